"""Files: the only room that opens them.

From the bottom: `libc` maps files, `medium` is the interface of a disk, `local` is the real disk and `faulty` one that
fails on command; `segment` is one file of a log, `segment_queue` the log; `allocator`, `buffer_pool` and `page_toucher`
prepare files and pages ahead of the writer; `source` reads ranges of local and remote files.
"""
