"""Why options of RocketMQ have no effect on a store here.

`from_rocketmq` accepts every name that RocketMQ knows, so that a broker's file can be used as it is. A name that
nothing here reads is listed in `StoreConfig.ignored`, with a reason. Each name of `MessageStoreConfig` has its own
reason; the names of another class share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_UNREAD_BY_ROCKETMQ: Final = "RocketMQ 5.5.0 does not read it either"
_ROCKSDB: Final = "nothing is kept in RocksDB"
_CONTROLLER: Final = "there is no controller that chooses the master"
_CHECKED_ALWAYS: Final = "an opening always checks that"
_RECOVERY: Final = "an opening finds in the checkpoint and the queues how much of the log it has to read"
_MAPPINGS: Final = "`max_mapped_files` bounds how many files are mapped"
_COLD_READS: Final = "reads of messages that are not in memory are neither noticed nor slowed down"
_NO_ESTIMATES: Final = "the store does not estimate how many messages pass a filter"
_FIRST_OFFSETS: Final = "the first offset of a batch queue is corrected whenever the log's first file was deleted"
_COMPACTION: Final = "the store compacts no topic: `flintlog pipeline compact` does"
_DELIVERY: Final = "a delay level delivers in order, many messages with one flush"
_TIMER_COUNTS: Final = "the timer's counts are not compared with its wheel every day"
_TIMER_THREADS: Final = "one job delivers due messages, in order"
_TIMER_RETRIES: Final = "a delivery that the store refuses is always tried again"
_WHEEL: Final = "the wheel is always saved in place"
_PUT_LOCK: Final = "`useReentrantLockWhenPutMessage` alone chooses the lock of puts"

_REASONS: Final[Mapping[str, str]] = {
    "accessMessageInMemoryHotRatio": _COLD_READS,
    "allAckInSyncStateSet": _CONTROLLER,
    "asyncLearner": _CONTROLLER,
    "bitMapLengthConsumeQueueExt": "`expectConsumerNumUseFilter` and `maxErrorRateOfBloomFilter` give that length",
    "bottomMostCompressionTypeForConsumeQueueStore": _ROCKSDB,
    "checkCRCOnRecover": _CHECKED_ALWAYS,
    "checkCommitLogOffsetOnRecover": _CHECKED_ALWAYS,
    "cleanSwapedMapInterval": _MAPPINGS,
    "coldDataFlowControlEnable": _COLD_READS,
    "coldDataScanEnable": _COLD_READS,
    "combineAssignOffsetCQType": _ROCKSDB,
    "combineCQEnableCheckSelf": _ROCKSDB,
    "combineCQLoadingCQTypes": _ROCKSDB,
    "combineCQMaxExtraSearchCommitLogFiles": _ROCKSDB,
    "combineCQPreferCQType": _ROCKSDB,
    "commitLogForceSwapMapInterval": _MAPPINGS,
    "commitLogRecoverMaxNum": _RECOVERY,
    "commitLogSwapMapInterval": _MAPPINGS,
    "commitLogSwapMapReserveFileNum": _MAPPINGS,
    "compactionCqMappedFileSize": _COMPACTION,
    "compactionMappedFileSize": _COMPACTION,
    "compactionScheduleInternal": _COMPACTION,
    "compactionThreadNum": _COMPACTION,
    "correctLogicMinOffsetForceInterval": _FIRST_OFFSETS,
    "correctLogicMinOffsetSleepInterval": _FIRST_OFFSETS,
    "dataReadAheadEnable": "reading ahead is left to the system",
    "debugLockEnable": "a put that holds the log for long is not traced",
    "disappearTimeAfterStart": "a store serves as soon as it is open",
    "dispatchCqCacheNum": _UNREAD_BY_ROCKETMQ,
    "dispatchCqThreads": _UNREAD_BY_ROCKETMQ,
    "dispatchFromSenderThread": _UNREAD_BY_ROCKETMQ,
    "duplicationEnable": "the confirmed end of the log is never set from outside",
    "enableAcceleratedRecovery": _RECOVERY,
    "enableAsyncReput": _UNREAD_BY_ROCKETMQ,
    "enableBatchPush": "a leader chooses itself how many entries it pushes at once",
    "enableCleanExpiredOffset": _UNREAD_BY_ROCKETMQ,
    "enableCompaction": _COMPACTION,
    "enableLmqQuota": "`maxLmqConsumeQueueNum` always holds",
    "enableLogConsumeQueueRepeatedlyBuildWhenRecover": "an opening does not log each queue entry that it builds again",
    "enableRunningFlagsInFlush": "a failed sync always makes the store refuse writes",
    "enableScheduleAsyncDeliver": _DELIVERY,
    "enableScheduleMessageStats": "a delivery is always counted as the put that it is",
    "haMaxTimeSlaveNotCatchup": _CONTROLLER,
    "indexFileReadEnable": "a query by key always reads the index",
    "logicQueueForceSwapMapInterval": _MAPPINGS,
    "logicQueueSwapMapInterval": _MAPPINGS,
    "logicQueueSwapMapReserveFileNum": _MAPPINGS,
    "mappedFileSwapEnable": _MAPPINGS,
    "maxAsyncPutMessageRequests": "the asynchronous puts under way have no bound of their own",
    "maxBatchDeleteFilesNum": _UNREAD_BY_ROCKETMQ,
    "maxConsumeQueueScan": _NO_ESTIMATES,
    "maxOffsetMapSize": _COMPACTION,
    "maxRecoveryCommitlogFiles": _UNREAD_BY_ROCKETMQ,
    "maxSlaveResendLength": _UNREAD_BY_ROCKETMQ,
    "maxTopicLength": "`autoMessageVersionOnTopicLen` alone says how long a topic may be",
    "memTableFlushIntervalMs": _ROCKSDB,
    "messageIndexSafe": _RECOVERY,
    "preferredLeaderId": "an elected leader leads as long as it can",
    "pullBatchMaxMessageCount": _UNREAD_BY_ROCKETMQ,
    "putConsumeQueueDataByFileChannel": "queue entries are always written through the mapping",
    "putMessageTimeout": "a put waits for the disk (`syncFlushTimeout`) and for replicas (`slaveTimeout`) separately",
    "putMsgIndexHightWater": _UNREAD_BY_ROCKETMQ,
    "recheckReputOffsetFromCq": _RECOVERY,
    "sampleCountThreshold": _NO_ESTIMATES,
    "sampleSteps": _COLD_READS,
    "scheduleAsyncDeliverMaxPendingLimit": _DELIVERY,
    "scheduleAsyncDeliverMaxResendNum2Blocked": _DELIVERY,
    "searchBcqByCacheEnable": "the begins of a batch queue's files are always kept in memory",
    "sharedByteBufferNum": "a put needs no buffer that puts share",
    "spinLockCollisionRetreatOptimalDegree": _PUT_LOCK,
    "storePathBrokerIdentity": _CONTROLLER,
    "storePathEpochFile": _CONTROLLER,
    "storePathRootDir": "the directory of a store is named where it is opened",
    "storeType": "queues are always files, and a directory with RocksDB queues is refused",
    "syncMasterFlushOffsetWhenStartup": "a slave does not ask its master how far that has flushed",
    "timerCheckMetricsWhen": _TIMER_COUNTS,
    "timerColdDataCheckIntervalMs": _COLD_READS,
    "timerEnableCheckMetrics": _TIMER_COUNTS,
    "timerEnableDisruptor": _TIMER_THREADS,
    "timerEnableRetryUntilSuccess": _TIMER_RETRIES,
    "timerGetMessageThreadNum": _TIMER_THREADS,
    "timerInterceptDelayLevel": _UNREAD_BY_ROCKETMQ,
    "timerMetricSmallThreshold": _TIMER_COUNTS,
    "timerProgressLogIntervalMs": "the timer does not log its progress",
    "timerPutMessageThreadNum": _TIMER_THREADS,
    "timerRecallToTimeWheelEnable": _ROCKSDB,
    "timerRecallToTimelineEnable": _ROCKSDB,
    "timerReputServiceCorePoolSize": _ROCKSDB,
    "timerReputServiceMaxPoolSize": _ROCKSDB,
    "timerReputServiceQueueCapacity": _ROCKSDB,
    "timerSkipUnknownError": _TIMER_RETRIES,
    "timerWarmEnable": "the timer reads a message when it is due, not before",
    "timerWheelSnapshotFlush": _WHEEL,
    "timerWheelSnapshotIntervalMs": _WHEEL,
    "topicQueueLockNum": "one lock orders all puts",
    "totalReplicas": "replicas are counted when they are connected",
    "transWriteOriginTransHalfEnable": "half messages are always written to RocketMQ's half topic",
    "useABSLock": _PUT_LOCK,
}
_REASONS_OF_CLASSES: Final[Mapping[str, str]] = {
    "BrokerConfig": "it is about a broker around its store",
    "NettyServerConfig": "it is about the network of a broker",
    "NettyClientConfig": "it is about the network of a broker",
    "AuthConfig": "it is about who may use a broker",
    "TieredMessageStoreConfig": "there is no tiered storage",
}


def why_ignored(name: str, owner: str) -> str:
    """Why a name of one of RocketMQ's classes does nothing here.

    >>> why_ignored("topicQueueLockNum", "MessageStoreConfig")
    'has no effect here because one lock orders all puts'
    """
    reason = _REASONS.get(name)
    if reason is None:
        reason = _ROCKSDB if "rocksdb" in name.lower() else _REASONS_OF_CLASSES[owner]
    return f"has no effect here because {reason}"
