"""Why options of RocketMQ have no effect on a store here.

`from_rocketmq` accepts every name that RocketMQ knows, so that a broker's file can be used as it is. A name that
nothing here reads is listed in `StoreConfig.ignored`, with a reason. Each name of `MessageStoreConfig` has its own
reason; the names of another class share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ROCKSDB: Final = "nothing is kept in RocksDB"
_NAMES_BY_REASON: Final[Mapping[str, str]] = {
    "a delay level delivers in order, many messages with one flush": (
        "enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked"
    ),
    "a delivery is always counted as the put that it is": "enableScheduleMessageStats",
    "a delivery that the store refuses is always tried again": "timerEnableRetryUntilSuccess timerSkipUnknownError",
    "a failed sync always makes the store refuse writes": "enableRunningFlagsInFlush",
    "a leader chooses itself how many entries it pushes at once": "enableBatchPush",
    "a put needs no buffer that puts share": "sharedByteBufferNum",
    "a put that holds the log for long is not traced": "debugLockEnable",
    "a put waits for the disk (`syncFlushTimeout`) and for replicas (`slaveTimeout`) separately": "putMessageTimeout",
    "a query by key always reads the index": "indexFileReadEnable",
    "a slave does not ask its master how far that has flushed": "syncMasterFlushOffsetWhenStartup",
    "a store serves as soon as it is open": "disappearTimeAfterStart",
    "an elected leader leads as long as it can": "preferredLeaderId",
    "an opening always checks that": "checkCommitLogOffsetOnRecover checkCRCOnRecover",
    "an opening does not log each queue entry that it builds again": (
        "enableLogConsumeQueueRepeatedlyBuildWhenRecover"
    ),
    "an opening finds in the checkpoint and the queues how much of the log it has to read": (
        "commitLogRecoverMaxNum enableAcceleratedRecovery messageIndexSafe recheckReputOffsetFromCq"
    ),
    "`autoMessageVersionOnTopicLen` alone says how long a topic may be": "maxTopicLength",
    "`expectConsumerNumUseFilter` and `maxErrorRateOfBloomFilter` give that length": "bitMapLengthConsumeQueueExt",
    "half messages are always written to RocketMQ's half topic": "transWriteOriginTransHalfEnable",
    "`max_mapped_files` bounds how many files are mapped": (
        "cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum "
        "logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable"
    ),
    "`maxLmqConsumeQueueNum` always holds": "enableLmqQuota",
    _ROCKSDB: (
        "bottomMostCompressionTypeForConsumeQueueStore combineAssignOffsetCQType combineCQEnableCheckSelf "
        "combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType memTableFlushIntervalMs "
        "timerRecallToTimelineEnable timerRecallToTimeWheelEnable timerReputServiceCorePoolSize "
        "timerReputServiceMaxPoolSize timerReputServiceQueueCapacity"
    ),
    "one job delivers due messages, in order": (
        "timerEnableDisruptor timerGetMessageThreadNum timerPutMessageThreadNum"
    ),
    "one lock orders all puts": "topicQueueLockNum",
    "queue entries are always written through the mapping": "putConsumeQueueDataByFileChannel",
    "queues are always files, and a directory with RocksDB queues is refused": "storeType",
    "reading ahead is left to the system": "dataReadAheadEnable",
    "reads of messages that are not in memory are neither noticed nor slowed down": (
        "accessMessageInMemoryHotRatio coldDataFlowControlEnable coldDataScanEnable sampleSteps "
        "timerColdDataCheckIntervalMs"
    ),
    "replicas are counted when they are connected": "totalReplicas",
    "RocketMQ 5.5.0 does not read it either": (
        "dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread enableAsyncReput enableCleanExpiredOffset "
        "maxBatchDeleteFilesNum maxRecoveryCommitlogFiles maxSlaveResendLength pullBatchMaxMessageCount "
        "putMsgIndexHightWater timerInterceptDelayLevel"
    ),
    "the asynchronous puts under way have no bound of their own": "maxAsyncPutMessageRequests",
    "the begins of a batch queue's files are always kept in memory": "searchBcqByCacheEnable",
    "the confirmed end of the log is never set from outside": "duplicationEnable",
    "the directory of a store is named where it is opened": "storePathRootDir",
    "the first offset of a batch queue is corrected whenever the log's first file was deleted": (
        "correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval"
    ),
    "the store compacts no topic: `flintlog pipeline compact` does": (
        "compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum "
        "enableCompaction maxOffsetMapSize"
    ),
    "the store does not estimate how many messages pass a filter": "maxConsumeQueueScan sampleCountThreshold",
    "the timer does not log its progress": "timerProgressLogIntervalMs",
    "the timer reads a message when it is due, not before": "timerWarmEnable",
    "the timer's counts are not compared with its wheel every day": (
        "timerCheckMetricsWhen timerEnableCheckMetrics timerMetricSmallThreshold"
    ),
    "the wheel is always saved in place": "timerWheelSnapshotFlush timerWheelSnapshotIntervalMs",
    "there is no controller that chooses the master": (
        "allAckInSyncStateSet asyncLearner haMaxTimeSlaveNotCatchup storePathBrokerIdentity storePathEpochFile"
    ),
    "`useReentrantLockWhenPutMessage` alone chooses the lock of puts": (
        "spinLockCollisionRetreatOptimalDegree useABSLock"
    ),
}
_REASONS: Final = {name: reason for reason, names in _NAMES_BY_REASON.items() for name in names.split()}
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
