"""Options of the store itself, with RocketMQ's names in Python's case, and its defaults.

Each field is one option; `option.py` explains a declaration. The lines are formatted by hand, two or three an option,
because a formatter would make a page of each.
"""

from typing import Annotated

from flintlog.store.options.option import LONG_MAX, option
from flintlog.store.options.service_options import ServiceOptions


class StoreOptions(ServiceOptions, frozen=True, kw_only=True):
    """Options that the store reads: files, flushing, dispatch, queues, index, reading, retention."""

    # fmt: off
    store_path_commit_log: Annotated[str | None, option("storePathCommitLog", group="Places",
        about="Directory of the commit log, or several separated by commas; by default the root's "
        "`commitlog`.")] = None
    store_path_dledger_commit_log: Annotated[str | None, option("storePathDLedgerCommitLog",
        about="Directory of the ledger's commit log, or several separated by commas.")] = None
    read_only_commit_log_store_paths: Annotated[str | None, option("readOnlyCommitLogStorePaths",
        about="Commit log directories, separated by commas, that are read but get no new file.")] = None
    mapped_file_size_commit_log: Annotated[int, option(
        "mappedFileSizeCommitLog", unit="bytes", low=128, group="Commit log",
        about="Size of one commit log file.")] = 1024 * 1024 * 1024
    max_message_size: Annotated[int, option("maxMessageSize", unit="bytes", low=1,
        about="Longest body that a put accepts.")] = 1024 * 1024 * 4
    auto_message_version_on_topic_len: Annotated[bool, option("autoMessageVersionOnTopicLen",
        about="Topics over 127 bytes are stored in records of version 2 instead of being refused.")] = True
    enabled_append_prop_crc: Annotated[bool, option("enabledAppendPropCRC",
        about="Each record ends with a checksum over all of it, stored as a property; reading checks it.")] = False
    force_verify_prop_crc: Annotated[bool, option("forceVerifyPropCRC",
        about="A record without that checksum is treated as damaged when it is checked.")] = False
    os_page_cache_busy_time_out_millis: Annotated[int, option(
        "osPageCacheBusyTimeOutMills", unit="ms", low=0, high=LONG_MAX,
        about="A put that holds the log for longer than this makes later puts fail as busy.")] = 1000
    read_uncommitted: Annotated[bool, option("readUnCommitted",
        about="Messages become visible as soon as they are written, even before the flush.")] = False
    flush_interval_commit_log: Annotated[int, option("flushIntervalCommitLog", unit="ms", low=1, group="Flushing",
        about="Pause between two asynchronous flushes of the commit log.")] = 500
    flush_commit_log_timed: Annotated[bool, option("flushCommitLogTimed",
        about="The asynchronous flush sleeps its whole pause; only a close wakes it.")] = True
    flush_commit_log_least_pages: Annotated[int, option("flushCommitLogLeastPages", unit="pages", low=0,
        about="Fewest dirty pages for which an asynchronous flush writes.")] = 4
    flush_commit_log_thorough_interval: Annotated[int, option("flushCommitLogThoroughInterval", unit="ms", low=0,
        about="After this time a flush writes however few pages are dirty.")] = 1000 * 10
    wake_flush_when_put_message: Annotated[bool, option("wakeFlushWhenPutMessage",
        about="Every put wakes the asynchronous flush, unless that is timed.")] = False
    sync_flush_timeout: Annotated[int, option("syncFlushTimeout", unit="ms", low=1,
        about="How long a put waits for its synchronous flush before it answers FLUSH_DISK_TIMEOUT.")] = 1000 * 5
    flush_interval_consume_queue: Annotated[int, option("flushIntervalConsumeQueue", unit="ms", low=1,
        about="Pause between two flushes of the consume queues.")] = 1000
    flush_consume_queue_least_pages: Annotated[int, option("flushConsumeQueueLeastPages", unit="pages", low=0,
        about="Fewest dirty pages for which a consume queue is flushed.")] = 2
    flush_consume_queue_thorough_interval: Annotated[int, option("flushConsumeQueueThoroughInterval", unit="ms", low=0,
        about="After this time every consume queue is flushed and the checkpoint moves on.")] = 1000 * 60
    transient_store_pool_enable: Annotated[bool, option(
        "transientStorePoolEnable", group="Write buffers and files made ahead",
        about="Records are gathered in locked memory and written to the file later.")] = False
    transient_store_pool_size: Annotated[int, option("transientStorePoolSize", unit="count", low=1, high=4096,
        about="Number of such buffers, each as big as a commit log file.")] = 5
    fast_fail_if_no_buffer_in_store_pool: Annotated[bool, option("fastFailIfNoBufferInStorePool",
        about="A put fails when all these buffers are in use, instead of writing to the file directly.")] = False
    commit_interval_commit_log: Annotated[int, option("commitIntervalCommitLog", unit="ms", low=1,
        about="Pause between two writes of gathered records to the file.")] = 200
    commit_commit_log_least_pages: Annotated[int, option("commitCommitLogLeastPages", unit="pages", low=0,
        about="Fewest gathered pages for which a write is made.")] = 4
    commit_commit_log_thorough_interval: Annotated[int, option("commitCommitLogThoroughInterval", unit="ms", low=0,
        about="After this time gathered records are written however few they are.")] = 200
    wake_commit_when_put_message: Annotated[bool, option("wakeCommitWhenPutMessage",
        about="Every put wakes the thread that writes gathered records.")] = True
    write_without_mmap: Annotated[bool, option("writeWithoutMmap",
        about="Records are never gathered in the buffer pool, as in RocketMQ. RocketMQ then writes with file calls; "
        "here records are always written through the mapping.")] = False
    warm_mapped_file_enable: Annotated[bool, option("warmMapedFileEnable",
        about="A new commit log file is touched page by page and locked in memory before it is used.")] = False
    flush_least_pages_when_warm_mapped_file: Annotated[int, option(
        "flushLeastPagesWhenWarmMapedFile", unit="pages", low=1,
        about="Pages that this warm-up writes out at a time when flushing is synchronous.")] = 1024 // 4 * 16
    enable_build_consume_queue_concurrently: Annotated[bool, option(
        "enableBuildConsumeQueueConcurrently", group="Dispatch",
        about="Records are parsed by several threads before they are dispatched in order.")] = False
    batch_dispatch_request_thread_pool_nums: Annotated[int, option(
        "batchDispatchRequestThreadPoolNums", unit="threads", low=1, high=1024,
        about="Most threads that parse at once; each takes 4 MiB of the log.")] = 16
    mapped_file_size_consume_queue: Annotated[int, option(
        "mappedFileSizeConsumeQueue", unit="bytes", low=1, group="Consume queues",
        about="Size of one consume queue file, rounded up to whole entries of 20 bytes.")] = 300000 * 20
    mapped_file_size_batch_consume_queue: Annotated[int, option("mapperFileSizeBatchConsumeQueue", unit="bytes", low=46,
        about="Size of one batch consume queue file.")] = 300000 * 46
    enable_consume_queue_ext: Annotated[bool, option("enableConsumeQueueExt",
        about="Consume queues get extension files that hold filter bitmaps and store times.")] = False
    mapped_file_size_consume_queue_ext: Annotated[int, option("mappedFileSizeConsumeQueueExt", unit="bytes", low=64,
        about="Size of one consume queue extension file.")] = 48 * 1024 * 1024
    enable_lmq: Annotated[bool, option("enableLmq",
        about="Light queues (topics `%LMQ%...` named in a message's properties) are served.")] = False
    enable_multi_dispatch: Annotated[bool, option("enableMultiDispatch",
        about="A message is also entered in every light queue that its properties name.")] = False
    max_lmq_consume_queue_num: Annotated[int, option("maxLmqConsumeQueueNum", unit="count", low=0,
        about="Most light queues that may exist.")] = 20_000
    message_index_enable: Annotated[bool, option("messageIndexEnable", group="Index",
        about="Keys are entered in the index.")] = True
    index_file_write_enable: Annotated[bool, option("indexFileWriteEnable",
        about="Index files are written.")] = True
    max_hash_slot_num: Annotated[int, option("maxHashSlotNum", unit="count", low=1,
        about="Hash slots of one index file.")] = 5_000_000
    max_index_num: Annotated[int, option("maxIndexNum", unit="count", low=2,
        about="Entries of one index file, of which the first is never used.")] = 5000000 * 4
    max_msgs_num_batch: Annotated[int | None, option("maxMsgsNumBatch", unit="count", low=1,
        about="Most messages that one query by key returns, however many are asked for.")] = None
    default_query_max_num: Annotated[int, option("defaultQueryMaxNum", unit="count", low=1,
        about="Most messages that a query by key returns when no number is asked for.")] = 32
    max_transfer_bytes_on_message_in_memory: Annotated[int | None, option(
        "maxTransferBytesOnMessageInMemory", unit="bytes", low=1, group="Reading",
        about="Most bytes that one get returns of messages that are likely in memory, however many are asked for.")
    ] = None
    max_transfer_count_on_message_in_memory: Annotated[int | None, option(
        "maxTransferCountOnMessageInMemory", unit="count", low=1,
        about="Most messages that one get returns when they are likely in memory.")] = None
    max_transfer_bytes_on_message_in_disk: Annotated[int | None, option(
        "maxTransferBytesOnMessageInDisk", unit="bytes", low=1,
        about="Most bytes that one get returns of messages that must be read from disk.")] = None
    max_transfer_count_on_message_in_disk: Annotated[int | None, option(
        "maxTransferCountOnMessageInDisk", unit="count", low=1,
        about="Most messages that one get returns when they must be read from disk.")] = None
    access_message_in_memory_max_ratio: Annotated[int, option(
        "accessMessageInMemoryMaxRatio", unit="percent", low=0, high=100,
        about="Share of the machine's memory within which the newest messages count as likely in memory.")] = 40
    max_filter_message_size: Annotated[int, option("maxFilterMessageSize", unit="bytes", low=1,
        about="Consume queue bytes that one get looks through when a filter rejects most messages.")] = 16_000
    travel_cq_file_num_when_get_message: Annotated[int, option("travelCqFileNumWhenGetMessage", unit="files", low=1,
        about="Most consume queue files that one get visits before it has found anything.")] = 1
    offset_check_in_slave: Annotated[bool, option("offsetCheckInSlave",
        about="A slave corrects a wrong offset of a get as a master does.")] = False
    clean_resource_interval: Annotated[int, option("cleanResourceInterval", unit="ms", low=1, group="Retention",
        about="Pause between two rounds of cleaning.")] = 10_000
    file_reserved_time: Annotated[int, option("fileReservedTime", unit="hours", low=0,
        about="Age after which a commit log file may be deleted.")] = 72
    delete_when: Annotated[str, option("deleteWhen",
        about="Hours of the day in which expired files are deleted, separated by semicolons.")] = "04"
    delete_file_batch_max: Annotated[int, option("deleteFileBatchMax", unit="files", low=1,
        about="Most commit log files that one round deletes.")] = 10
    delete_commit_log_files_interval: Annotated[int, option("deleteCommitLogFilesInterval", unit="ms", low=0,
        about="Pause between two deletions of commit log files.")] = 100
    delete_consume_queue_files_interval: Annotated[int, option("deleteConsumeQueueFilesInterval", unit="ms", low=0,
        about="Pause between the cleaning of two consume queues.")] = 100
    destroy_mapped_file_interval_forcibly: Annotated[int, option("destroyMapedFileIntervalForcibly", unit="ms", low=0,
        about="How long the deletion of a file waits for its readers before the file is unmapped.")] = 1000 * 120
    redelete_hung_file_interval: Annotated[int, option("redeleteHangedFileInterval", unit="ms", low=0,
        about="Pause before a deletion that had to wait for readers is tried again.")] = 1000 * 120
    clean_file_forcibly_enable: Annotated[bool, option("cleanFileForciblyEnable",
        about="Files are deleted before they expire when a disk fills up.")] = True
    disk_max_used_space_ratio: Annotated[int, option("diskMaxUsedSpaceRatio", unit="percent", low=0, high=100,
        about="Disk usage above which expired files are deleted at any hour; raised to 10 or lowered to 95.")] = 75
    disk_space_clean_forcibly_ratio: Annotated[int, option(
        "diskSpaceCleanForciblyRatio", unit="percent", low=0, high=100,
        about="Disk usage above which files are deleted before they expire; raised to 30 or lowered to 85.")] = 85
    disk_space_warning_level_ratio: Annotated[int, option("diskSpaceWarningLevelRatio", unit="percent", low=0, high=100,
        about="Disk usage above which puts are refused; raised to 35 or lowered to 90.")] = 90
    disk_fall_recorded: Annotated[bool, option("diskFallRecorded",
        about="The distance from readers to the end of the log is recorded.")] = True
    logical_disk_space_clean_forcibly_threshold: Annotated[float, option(
        "logicalDiskSpaceCleanForciblyThreshold", unit="ratio", low=0.0, high=1.0,
        about="Share of the store's part of a shared disk above which files are deleted before they expire.")] = 0.8
    replicas_per_disk_partition: Annotated[int, option("replicasPerDiskPartition", unit="count", low=1,
        about="Number of stores among which one disk is divided.")] = 1
