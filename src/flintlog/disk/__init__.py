"""Files: the only room that opens them.

From the bottom: `libc` maps files, `medium` is the interface of a disk, `local` is the real disk and `faulty` the one
that fails on command; `segment` is one file of a log, `segment_queue` the log; `allocator`, `buffer_pool` and
`page_toucher` keep the writer from waiting; `source` reads ranges of local and remote files.
"""
