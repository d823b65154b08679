"""Explains every kind of finding: its cause, the danger, the remedy. The names are fixed, because scripts use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding in plain words."""

    id: str
    title: str
    cause: str
    danger: str
    remedy: str


_REBUILD_QUEUES = (
    "`flintlog repair --plan`, then `--apply`; on a cluster `flintlog pipeline rebuild`. The log has it all."
)
_RESTORE = "Restore the bytes from a replica or a backup (`flintlog diff` shows where two logs part), then `repair`."
_INDEX_AGAIN = (
    "Stop the member and move its `index` directory away: the next opening writes it again from the data files."
)
_FILL_AGAIN = (
    "Move the member's directory (`dledger-<id>`) away and start it: it votes again once its group has filled it, "
    "which needs a majority without it. A group of one has nobody to ask: restore the directory from a backup."
)

_ALL = (
    Kind(
        "torn-tail",
        "The log ends in bytes that are no record",
        "The machine or the process stopped while the last records were on their way to the disk.",
        "Messages that were not durable yet are lost. Nothing else is.",
        "Open the store or run `repair`: the log is cut there, and the bytes are kept in `flintlog/cut/`.",
    ),
    Kind(
        "unclosed-batch",
        "A batch at the end of the log that was never closed",
        "Its writer, a Spark job for example, was stopped while it appended the batch.",
        "Nothing: a batch counts when its closing marker is in the log, and its writer writes it again.",
        "Open the store: the log is cut where the batch began, and the bytes are kept in `flintlog/cut/`.",
    ),
    Kind(
        "damaged-note",
        "A note of flintlog's own that cannot be trusted",
        "Bytes of a file in the folder `flintlog` changed on the disk, in both copies that the file holds.",
        "No message. The log is read instead of the note: queues are built again, so topics that were deleted may come "
        "back.",
        "Open the store: it does without the note, and writes a new one when it has something to note.",
    ),
    Kind(
        "damaged-record",
        "A message whose body does not match its CRC",
        "Bytes changed on the disk or on the way to it; lengths and place are right, so only the body is lost.",
        "Reading this message is an error. RocketMQ would cut the log here after a crash, and lose what follows.",
        _RESTORE,
    ),
    Kind(
        "damaged-range",
        "A stretch of the log without records, where there were some",
        "Lost or overwritten blocks of the disk, a copy that was not finished, a file cut short. Intact records "
        "follow, or the last stop was clean and had left whole records there.",
        "The messages in the stretch are lost. RocketMQ would cut the log here, and lose what follows.",
        _RESTORE,
    ),
    Kind(
        "damaged-properties",
        "A message whose tags or keys are not those it was put with",
        "Bytes of its properties changed on the disk. Its queue entry and its index entries, which were written when "
        "it was put, have other hashes.",
        "Consumers get it with wrong properties. Filters and queries find it by the right ones.",
        _RESTORE,
    ),
    Kind(
        "misplaced-record",
        "A message that names another queue or offset than its queue does",
        "One bit of its topic, queue id or queue offset changed on the disk. Its queue still has an entry for it, at "
        "an offset that no other message has.",
        "Reading it by its queue is an error. A queue that is built from the log shows it elsewhere, or not at all.",
        "`flintlog repair` sets the bit right.",
    ),
    Kind(
        "missing-log-file",
        "A file of the log is not there",
        "It was deleted or never copied; or a directory, an empty file or a link that leads nowhere has its name.",
        "Its messages are lost; queue and index entries that point at it are answered with an error.",
        _RESTORE,
    ),
    Kind(
        "misnamed-log-file",
        "A file of the log has a wrong name",
        "Somebody renamed it, added a suffix, or put a copy beside it. Each record holds its own place in the log, "
        "and those of this file say another one than its name.",
        "RocketMQ sees a hole or a torn end in the log, and may cut it there. flintlog opens the store "
        "only to read it, with the file in its right place, and changes nothing.",
        "Rename the file as the finding says, or let `repair` do it. If its right name is taken, compare the two files "
        "and move one of them away.",
    ),
    Kind(
        "short-log",
        "The log ends before the end that the last stop, the queues or the checkpoint recorded",
        "A disk is not mounted, the last files were deleted or replaced by older ones, or overwritten with zeros.",
        "The messages at the end are lost. An opening goes on after them: their offsets are not given again.",
        "Restore the files from a replica or a backup. `repair --plan` names the messages; `--apply` gives them up.",
    ),
    Kind(
        "damaged-blank",
        "The mark at the end of a log file says a wrong length",
        "Bytes changed on the disk.",
        "None to messages: readers go on with the next file. RocketMQ's replicas may stop there.",
        "`repair` writes the mark again.",
    ),
    Kind(
        "wrong-file-size",
        "A file is shorter or longer than its neighbours",
        "A copy or a restore that was not finished, or a store written with other sizes.",
        "RocketMQ and flintlog refuse to open the store.",
        "Name the right sizes with `--config`; if the file was cut short, restore it, or let `repair` fill it up.",
    ),
    Kind(
        "empty-file",
        "A file without a byte",
        "A crash while it was made; for a log file before others, something cut it.",
        "None, if it is derived from the log, or the log's last. The messages of another log file are lost.",
        "Open the store, which removes it, or run `repair`, which moves it away. A log file before others is to be "
        "restored from a replica or a backup; the store does not open before `repair` has moved it away.",
    ),
    Kind(
        "foreign-file",
        "A file that does not belong to a store",
        "Somebody put it there: an editor, a copy, a sync tool.",
        "RocketMQ refuses to open the store.",
        "Move it away.",
    ),
    Kind(
        "missing-queues",
        "The log has messages, and there are no queues",
        "`consumequeue` was deleted or not copied, or the queues are kept in RocksDB (`queues-in-rocksdb` says so).",
        "No consumer can read before they are built. RocketMQ builds them only from its checkpoint on.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "queues-in-rocksdb",
        "The queues are kept in RocksDB",
        "The broker ran with `storeType=defaultRocksDB`.",
        "flintlog refuses to open the store, and shows no queue of it; the log is read as any other.",
        "Stop the broker and move the named directory away: the next opening, or `repair`, builds the queues as files.",
    ),
    Kind(
        "missing-queue",
        "The log has messages for a queue that is not there",
        "Its directory was deleted or not copied; or its topic was deleted, and there is no `topics.json` to say so.",
        "Consumers of this queue find nothing.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "missing-queue-entries",
        "Messages without an entry in their queue",
        "Queue files lost blocks, or a recovery built the queue only from its checkpoint on.",
        "Consumers do not get these messages, though the log has them.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "wrong-queue-entries",
        "Queue entries that differ from the log",
        "Bytes of the queue file (or of the record's head in the log) changed on the disk.",
        "Consumers get another message or an error, or their filter skips the message.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "dangling-queue-entries",
        "Queue entries that point at no message of their queue",
        "The log lost its end, or queue files are of another log.",
        "Consumers get an error, or wait at an offset that no message has.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "damaged-queues",
        "A queue ends at an entry that should be whole",
        "Bytes of a queue file changed on the disk; an opening found it.",
        "None any more: all queues were built again from the log.",
        "Nothing is left to do.",
    ),
    Kind(
        "impossible-queue",
        "Records for an impossible queue",
        "The topic or queue id in the record's head was damaged, or another program wrote it.",
        "No queue has a place for them; only `cat` and `get --physical` show them.",
        _RESTORE,
    ),
    Kind(
        "wrong-queue-type",
        "A topic has batch queues, and its configuration says otherwise",
        "Bytes of `topics.json` changed on the disk, or somebody edited it.",
        "flintlog refuses to open the store if the configuration names another type. RocketMQ would take the "
        "topic's queues for empty ones of the plain kind.",
        "Set the topic's attribute `queue.type` to `BatchCQ` in `topics.json`. `repair` leaves it.",
    ),
    Kind(
        "queue-gap",
        "Queue offsets that were never given",
        "A record's queue offset was damaged, or the store went on with wrong offsets after a recovery.",
        "RocketMQ puts later entries out of step with their offsets; consumers see others than they asked for.",
        "Look at the two messages beside the gap with `get`. `repair` leaves it, no rebuild closes it: the offsets "
        "are those of the records. Where a record's head was damaged, a replica or a backup has the right one "
        "(`flintlog diff` shows where two logs part).",
    ),
    Kind(
        "repeated-queue-offset",
        "A queue offset that was given twice",
        "The store went on with wrong offsets after a recovery, or two stores wrote one log.",
        "One of the two messages cannot be read by queue.",
        "Look at both with `cat`; put the one that is hidden again. `repair` leaves them.",
    ),
    Kind(
        "missing-index",
        "Messages have keys, and there is no index",
        "`index` was deleted or not copied, or indexing was off.",
        "Queries by key find nothing.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "missing-index-entries",
        "Keys that are not in the index",
        "Index files were deleted, or a recovery indexed only from its checkpoint on.",
        "Queries by these keys do not find their messages.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "wrong-index-entry",
        "An index entry that no key of a record accounts for",
        "Bytes of the index file changed on the disk, or it is of another log.",
        "Queries find another message, or do not find the right one.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "wrong-index-header",
        "The header of an index file does not fit its entries",
        "Bytes of the header changed on the disk, or the file was not flushed before a crash.",
        "Queries by time may pass the file over.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "broken-index-chain",
        "Index entries that cannot be reached from their slot",
        "Bytes of a slot, a link or a hash changed on the disk.",
        "Queries by the keys of this chain find only a part.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "stray-index-bytes",
        "Bytes where an index file should have none",
        "Bytes changed on the disk, or a crash before the header was flushed.",
        "None, until entries are written there.",
        _REBUILD_QUEUES,
    ),
    Kind(
        "missing-checkpoint",
        "There is no checkpoint",
        "It was deleted or not copied.",
        "After an unclean stop everything is read again, and RocketMQ may skip records that it takes for dispatched.",
        "`repair` writes one; so does the next clean stop.",
    ),
    Kind(
        "damaged-checkpoint",
        "A checkpoint that does not fit the log",
        "It is of another log, or its bytes changed on the disk.",
        "After an unclean stop RocketMQ would start its recovery at a wrong place.",
        "`repair` writes one that fits the log.",
    ),
    Kind(
        "damaged-config",
        "A config file that is not JSON",
        "A crash while it was written, or an edit by hand.",
        "RocketMQ takes its `.bak`, and without one starts with nothing: topics, groups or offsets are forgotten.",
        "Restore it from its `.bak` or from another broker; `repair` does the former.",
    ),
    Kind(
        "config-restored",
        "A config file was missing or not JSON, and its backup was used",
        "A crash while it was written, or an edit by hand.",
        "The last change before that is lost: a topic, a group, or how far groups had consumed.",
        "Nothing, if that is as it should be; groups may be given again what they consumed last.",
    ),
    Kind(
        "offsets-taken-over",
        "The groups' offsets were in the file of the other kind of store",
        "`enable_lmq` was switched: with it offsets are in `lmqConsumerOffset.json`, without in `consumerOffset.json`.",
        "Groups go on where the other file says. A RocketMQ broker would look at its own file alone and begin anew.",
        "Nothing, if it was meant; the file that is used from now on has been written by the next clean stop.",
    ),
    Kind(
        "offset-beyond-queue",
        "A consumer is further than its queue",
        "The log or the queue lost its end, or offsets were copied from another broker.",
        "The group gets nothing until the queue has caught up, and misses what is put before.",
        "`flintlog offsets set` the group to the queue's end.",
    ),
    Kind(
        "missing-ledger-index",
        "Entries of a ledger that its index does not have",
        "Files of the member's `index` were deleted or not copied, or lost blocks.",
        "The member cannot be asked for these entries: it refuses to compare them with its leader's, or to send them.",
        _INDEX_AGAIN,
    ),
    Kind(
        "wrong-ledger-index",
        "Records of a ledger's index that differ from its data files",
        "Bytes of the index file changed on the disk, or it is of another member.",
        "The member finds another entry than it looks for, and answers its group with an error.",
        _INDEX_AGAIN,
    ),
    Kind(
        "damaged-ledger-head",
        "Entries of a ledger whose heads do not follow each other",
        "Bytes of a head changed on the disk (index, term, or what is always 0), or data files are of another member.",
        "flintlog does not open the member. DLedger ends its log before such an entry, and forgets what follows.",
        _FILL_AGAIN,
    ),
    Kind(
        "short-ledger",
        "A ledger ends before the entry that was its last, or that was committed",
        "A disk is not mounted, the last files were deleted or replaced by older ones, or overwritten with zeros.",
        "Acknowledged entries are lost in this member. flintlog refuses to open it; DLedger goes on with what is left, "
        "and may elect a leader without them.",
        _FILL_AGAIN,
    ),
    Kind(
        "damaged-ledger-vote",
        "A member's term and vote are lost",
        "`currterm` was deleted or damaged, or is older than the log: RocketMQ replaces it without a moment's overlap.",
        "A member that forgot its vote could vote twice in one term, and the group have two leaders. It is not opened.",
        _FILL_AGAIN,
    ),
    Kind(
        "damaged-ledger-checkpoint",
        "A ledger's checkpoint is missing or cannot be read",
        "It was deleted, or a crash came while RocketMQ replaced it.",
        "Until the group says how far it has committed, nothing of the ledger counts as committed and is shown.",
        "Open the member in its group: the next stop writes the checkpoint.",
    ),
    Kind(
        "timer-beyond-log",
        "The timer refers to messages that the log does not have",
        "The log lost its end, or the timer's files are of another log.",
        "Timer messages in question are not delivered.",
        "Move `timerwheel`, `timerlog` and `timercheck` away: the timer reads its queue again.",
    ),
    Kind(
        "damaged-timer",
        "The timer's wheel and its log do not agree",
        "Bytes of a slot or of a unit changed on the disk, or files are of different times.",
        "Timer messages of the slot in question are not delivered, or at a wrong time. Where flintlog notices it on "
        "opening, it makes both anew from the queue.",
        "`flintlog repair`, or move `timerwheel`, `timerlog` and `timercheck` away: the timer reads its queue again.",
    ),
)

KINDS: Mapping[str, Kind] = {kind.id: kind for kind in _ALL}
