"""Files: the only room that opens them.

From below: `libc` maps, `medium` says what a disk is, `local` is the real one and `faulty` the one that breaks;
`segment` is one file of a log, `segment_queue` the log; `allocator`, `buffer_pool` and `page_toucher`
keep the writer from waiting; `source` reads ranges, wherever they are.
"""
