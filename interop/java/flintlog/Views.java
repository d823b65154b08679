package flintlog;

import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.StoreStatsService;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;

/** What the Java store sees, as plain maps: a record, a queue, a queue entry, a receipt, the store as a whole. */
final class Views {
    private static final int BLANK_MAGIC = -875286124;
    private static final int LEDGER_MAGIC = 1;
    private static final int LEDGER_BLANK_MAGIC = -1;

    private Views() {
    }

    static Map<String, Object> store(ClockedStore store, boolean loaded) {
        Map<String, Object> view = new LinkedHashMap<>();
        StoreCheckpoint checkpoint = store.getStoreCheckpoint();
        view.put("loaded", loaded);
        view.put("minPhyOffset", store.getMinPhyOffset());
        view.put("maxPhyOffset", store.getMaxPhyOffset());
        view.put("flushedWhere", store.getFlushedWhere());
        view.put("physicMsgTimestamp", checkpoint == null ? -1 : checkpoint.getPhysicMsgTimestamp());
        view.put("logicsMsgTimestamp", checkpoint == null ? -1 : checkpoint.getLogicsMsgTimestamp());
        view.put("indexMsgTimestamp", checkpoint == null ? -1 : checkpoint.getIndexMsgTimestamp());
        return view;
    }

    static Map<String, Object> figures(ClockedStore store) {
        StoreStatsService counted = store.getStoreStatsService();
        Map<String, Object> view = new LinkedHashMap<>();
        view.put("runtimeInfo", new TreeMap<>(store.getRuntimeInfo()));
        view.put("topicTimes", sums(counted.getPutMessageTopicTimesTotal()));
        view.put("topicSizes", sums(counted.getPutMessageTopicSizeTotal()));
        view.put("getFound", counted.getGetMessageTimesTotalFound().sum());
        view.put("getMiss", counted.getGetMessageTimesTotalMiss().sum());
        view.put("transferred", counted.getGetMessageTransferredMsgCount().sum());
        Map<String, Object> behind = new TreeMap<>();
        store.getBrokerStatsManager().getMomentStatsItemSetFallSize().getStatsItemTable()
            .forEach((key, item) -> behind.put(key, item.getValue().get()));
        view.put("fallSize", behind);
        return view;
    }

    private static Map<String, Long> sums(Map<String, LongAdder> counts) {
        Map<String, Long> sums = new TreeMap<>();
        counts.forEach((name, count) -> sums.put(name, count.sum()));
        return sums;
    }

    static Map<String, Object> receipt(PutMessageResult result) {
        Map<String, Object> view = new LinkedHashMap<>();
        var append = result.getAppendMessageResult();
        view.put("status", result.getPutMessageStatus().name());
        view.put("physicalOffset", append == null ? -1 : append.getWroteOffset());
        view.put("queueOffset", append == null ? -1 : append.getLogicsOffset());
        view.put("size", append == null ? 0 : append.getWroteBytes());
        view.put("msgId", append == null ? null : append.getMsgId());
        return view;
    }

    static Map<String, Object> queue(String topic, int queueId, ConsumeQueueInterface queue) {
        Map<String, Object> view = new LinkedHashMap<>();
        view.put("topic", topic);
        view.put("queueId", queueId);
        view.put("cqType", queue.getCQType().name());
        view.put("min", queue.getMinOffsetInQueue());
        view.put("max", queue.getMaxOffsetInQueue());
        view.put("maxPhysicOffset", queue.getMaxPhysicOffset());
        return view;
    }

    static Map<String, Object> entry(String topic, int queueId, CqUnit unit) {
        Map<String, Object> view = new LinkedHashMap<>();
        view.put("topic", topic);
        view.put("queueId", queueId);
        view.put("queueOffset", unit.getQueueOffset());
        view.put("physicalOffset", unit.getPos());
        view.put("size", unit.getSize());
        view.put("tagsCode", unit.getTagsCode());
        view.put("batchNum", unit.getBatchNum());
        return view;
    }

    /** How many bytes stand before the record at an offset: DLedger's head, where its own magic is; otherwise none. */
    static int headSize(ClockedStore store, long offset) {
        SelectMappedBufferResult found = store.getCommitLogData(offset);
        if (found == null) {
            return 0;
        }
        try {
            boolean isEntry = found.getSize() >= DLedgerEntry.BODY_OFFSET
                && found.getByteBuffer().getInt(0) == LEDGER_MAGIC;
            return isEntry ? DLedgerEntry.BODY_OFFSET : 0;
        } finally {
            found.release();
        }
    }

    /** The whole record at a physical offset; null where the log ends, and where a blank fills the file. */
    static byte[] record(ClockedStore store, long physicalOffset) {
        SelectMappedBufferResult found = store.getCommitLogData(physicalOffset);
        if (found == null) {
            return null;
        }
        try {
            ByteBuffer buffer = found.getByteBuffer();
            if (buffer.getInt(4) == BLANK_MAGIC || buffer.getInt(0) == LEDGER_BLANK_MAGIC) {
                return null;
            }
            byte[] record = new byte[buffer.getInt(0)];
            buffer.get(record);
            return record;
        } finally {
            found.release();
        }
    }

    /** Every field as RocketMQ's decoder gives it, and the tags code as its dispatcher computes it. */
    static Map<String, Object> message(ClockedStore store, byte[] record) {
        MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(record), true, false);
        DispatchRequest dispatch = store.checkMessageAndReturnSize(ByteBuffer.wrap(record), true, false, true);
        Map<String, Object> view = new LinkedHashMap<>();
        view.put("topic", message.getTopic());
        view.put("queueId", message.getQueueId());
        view.put("queueOffset", message.getQueueOffset());
        view.put("physicalOffset", message.getCommitLogOffset());
        view.put("size", message.getStoreSize());
        view.put("msgId", message.getMsgId());
        view.put("bodyCRC32", message.getBodyCRC());
        view.put("tags", message.getTags());
        view.put("tagsCode", dispatch.getTagsCode());
        view.put("keys", message.getKeys());
        view.put("uniqKey", dispatch.getUniqKey());
        view.put("sysFlag", message.getSysFlag());
        view.put("flag", message.getFlag());
        view.put("bornTimestamp", message.getBornTimestamp());
        view.put("storeTimestamp", message.getStoreTimestamp());
        view.put("bornHost", host(message.getBornHost()));
        view.put("storeHost", host(message.getStoreHost()));
        view.put("reconsumeTimes", message.getReconsumeTimes());
        view.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        view.put("properties", new TreeMap<>(message.getProperties()));
        view.put("bodySha256", sha256(message.getBody()));
        view.put("recordSha256", sha256(record));
        view.put("magicCode", ByteBuffer.wrap(record).getInt(4));
        view.put("dispatchOk", dispatch.isSuccess());
        return view;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress socket = (InetSocketAddress) address;
        return "[" + socket.getAddress().getHostAddress() + "]:" + socket.getPort();
    }

    private static String sha256(byte[] bytes) {
        try {
            byte[] known = bytes == null ? new byte[0] : bytes;
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(known));
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException(missing);
        }
    }
}
