"""Options of the services around a store: delays, timer, transactions, groups, replication, DLedger.

Each field is one option; `option.py` explains a declaration. The lines are formatted by hand, two or three an option,
because a formatter would make a page of each.
"""

from typing import Annotated, Literal

import msgspec

from flintlog.store.options.option import LONG_MAX, option


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that services read, and the store itself does not."""

    # fmt: off
    message_delay_level: Annotated[str, option("messageDelayLevel", group="Delayed messages",
        about="Waiting times of the delay levels, from level 1 on, as numbers with s, m, h or d.")] = (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    flush_delay_offset_interval: Annotated[int, option("flushDelayOffsetInterval", unit="ms", low=1, high=LONG_MAX,
        about="Pause between two writes of the delay levels' progress.")] = 1000 * 10
    timer_wheel_enable: Annotated[bool, option("timerWheelEnable", group="Timer",
        about="Messages with a delivery time are accepted when the timer service runs.")] = True
    timer_precision_ms: Annotated[int, option("timerPrecisionMs", unit="ms", low=1,
        about="Length of one slot of the wheel: 100, 200, 500 or 1000, to which other values are lowered.")] = 1000
    timer_roll_window_slot: Annotated[int, option("timerRollWindowSlot", unit="slots", low=2,
        about="Slots after which a message that is due even later is entered again.")] = 3600 * 24 * 2
    timer_max_delay_sec: Annotated[int, option("timerMaxDelaySec", unit="s", low=1,
        about="Longest delay that a message may ask for.")] = 3600 * 24 * 3
    mapped_file_size_timer_log: Annotated[int, option("mappedFileSizeTimerLog", unit="bytes", low=52,
        about="Size of one timer log file.")] = 100 * 1024 * 1024
    timer_flush_interval_ms: Annotated[int, option("timerFlushIntervalMs", unit="ms", low=1,
        about="Pause between two flushes of the timer's files.")] = 1000
    timer_stop_enqueue: Annotated[bool, option("timerStopEnqueue",
        about="The timer takes no new messages into its wheel.")] = False
    timer_stop_dequeue: Annotated[bool, option("timerStopDequeue",
        about="The timer delivers nothing.")] = False
    timer_congest_num_each_slot: Annotated[int, option("timerCongestNumEachSlot", unit="count", low=1,
        about="Messages in one slot above which more are refused at random, and all at twice as many.")] = 2_147_483_647
    append_topic_for_timer_delete_key: Annotated[bool, option("appendTopicForTimerDeleteKey",
        about="A recall names the topic as well as the message.")] = False
    transaction_time_out: Annotated[int, option(
        "transactionTimeOut", unit="ms", low=0, high=LONG_MAX, group="Transactions",
        about="Age from which an open transaction is checked.")] = 6000
    transaction_check_max: Annotated[int, option("transactionCheckMax", unit="count", low=1,
        about="Checks after which an open transaction is given up.")] = 15
    transaction_check_interval: Annotated[int, option("transactionCheckInterval", unit="ms", low=1, high=LONG_MAX,
        about="Pause between two rounds of checks.")] = 30_000
    transaction_op_msg_max_size: Annotated[int, option("transactionOpMsgMaxSize", unit="bytes", low=1,
        about="Most bytes of one message that notes finished transactions.")] = 4096
    transaction_op_batch_interval: Annotated[int, option("transactionOpBatchInterval", unit="ms", low=0,
        about="How long finished transactions are gathered for one such message.")] = 3000
    transaction_metric_flush_interval: Annotated[int, option(
        "transactionMetricFlushInterval", unit="ms", low=1, high=LONG_MAX,
        about="Pause between two writes of the transactions' counts.")] = 10_000
    flush_consumer_offset_interval: Annotated[int, option(
        "flushConsumerOffsetInterval", unit="ms", low=1, group="Groups and filters",
        about="Pause between two writes of the groups' offsets.")] = 5000
    enable_calc_filter_bit_map: Annotated[bool, option("enableCalcFilterBitMap",
        about="Dispatch evaluates which SQL filters a message passes and stores that in extension files.")] = False
    expect_consumer_num_use_filter: Annotated[int, option("expectConsumerNumUseFilter", unit="count", low=1,
        about="Number of filters that the bitmap is sized for.")] = 32
    max_error_rate_of_bloom_filter: Annotated[int, option("maxErrorRateOfBloomFilter", unit="percent", low=1, high=99,
        about="Share of false positives that the bitmap may have.")] = 20
    broker_role: Annotated[Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"], option(
        "brokerRole", group="Roles and replication",
        about="Whether the store takes puts itself, and whether those wait for a replica.")] = "ASYNC_MASTER"
    ha_listen_port: Annotated[int, option("haListenPort", unit="port", low=0, high=65535,
        about="Port on which a master sends its log; 0 takes a free one.")] = 10_912
    ha_master_address: Annotated[str | None, option("haMasterAddress",
        about="Host and port of the master that a slave follows.")] = None
    ha_send_heartbeat_interval: Annotated[int, option("haSendHeartbeatInterval", unit="ms", low=1,
        about="Silence after which either side sends a heartbeat.")] = 1000 * 5
    ha_housekeeping_interval: Annotated[int, option("haHousekeepingInterval", unit="ms", low=1,
        about="Silence after which a connection is closed.")] = 1000 * 20
    ha_transfer_batch_size: Annotated[int, option("haTransferBatchSize", unit="bytes", low=1,
        about="Most log bytes of one packet.")] = 1024 * 32
    ha_max_gap_not_in_sync: Annotated[int, option("haMaxGapNotInSync", unit="bytes", low=0,
        about="Bytes that a slave may lag behind the master and still count as in sync.")] = 1024 * 1024 * 256
    ha_flow_control_enable: Annotated[bool, option("haFlowControlEnable",
        about="The master limits the rate at which it sends.")] = False
    max_ha_transfer_byte_in_second: Annotated[int, option(
        "maxHaTransferByteInSecond", unit="bytes/s", low=1, high=LONG_MAX,
        about="That rate.")] = 100 * 1024 * 1024
    slave_timeout: Annotated[int, option("slaveTimeout", unit="ms", low=1,
        about="How long a put waits for its replicas before it answers FLUSH_SLAVE_TIMEOUT.")] = 3000
    in_sync_replicas: Annotated[int, option("inSyncReplicas", unit="count", low=-1,
        about="Stores, the master counted, that must hold a message before its put is acknowledged. With 1 or less, "
        "also -1, a put waits for no slave.")] = 1
    min_in_sync_replicas: Annotated[int, option("minInSyncReplicas", unit="count", low=1,
        about="Stores, the master counted, that must be in sync for puts to be taken.")] = 1
    enable_auto_in_sync_replicas: Annotated[bool, option("enableAutoInSyncReplicas",
        about="The number of needed replicas falls when fewer are in sync.")] = False
    sync_from_last_file: Annotated[bool, option("syncFromLastFile",
        about="An empty replica starts with the master's last file instead of its first.")] = False
    max_checksum_range: Annotated[int, option("maxChecksumRange", unit="bytes", low=1, high=LONG_MAX,
        about="Most bytes that are compared when two replicas look for their last common place.")] = 1024 * 1024 * 1024
    enable_dledger_commit_log: Annotated[bool, option("enableDLegerCommitLog", group="DLedger",
        about="The commit log is a replicated DLedger log.")] = False
    dledger_group: Annotated[str | None, option("dLegerGroup",
        about="Name of the ledger's group.")] = None
    dledger_peers: Annotated[str | None, option("dLegerPeers",
        about="Members of the group as `id-host:port`, separated by semicolons.")] = None
    dledger_self_id: Annotated[str | None, option("dLegerSelfId",
        about="This member's id.")] = None
    ledger_index_file_size: Annotated[int, option(unit="bytes", low=32,
        about="Size of one index file of a new ledger, a multiple of 32; Java opens only files of its own "
        "default size.")] = 5 * 1024 * 1024 * 32
