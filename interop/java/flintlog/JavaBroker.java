package flintlog;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.client.ClientChannelInfo;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.CheckTransactionStateRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** One RocketMQ broker over a store directory, in a process of its own: no name server, no client, free ports. */
public class JavaBroker {
    private static final int PULL_COUNT = 32;
    private static final long WAKE_INTERVAL_MS = 100;

    /** As in ClockedStore: nothing that could clash, delete or refuse under a test. */
    private static final Map<String, String> QUIET = Map.of(
        "haListenPort", "0",
        "enableCompaction", "false",
        "cleanFileForciblyEnable", "false",
        "fileReservedTime", "100000000",
        "diskMaxUsedSpaceRatio", "97",
        "diskSpaceCleanForciblyRatio", "98",
        "diskSpaceWarningLevelRatio", "99");

    private final Map<String, ProducerChannel> producers = new ConcurrentHashMap<>();
    BrokerController broker;

    public static void main(String[] arguments) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, System.getProperty("user.home"));
        Gateway.serve(new JavaBroker());
    }

    /** Loads and recovers a directory; false when the broker refuses it. An option may be the store's or the broker's. */
    public boolean load(String directory, String optionsText) throws Exception {
        Properties options = new Properties();
        options.putAll(QUIET);
        JSON.parseObject(optionsText).forEach((name, value) -> options.put(name, (String) value));
        MessageStoreConfig store = new MessageStoreConfig();
        MixAll.properties2Object(options, store);
        store.setStorePathRootDir(directory);
        store.setStorePathCommitLog(directory + "/commitlog");
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("flintlog");
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setListenPort(10911);
        MixAll.properties2Object(options, config);
        if (store.isEnableDLegerCommitLog()) {
            config.setBrokerId(-1);  // as a broker's own start does: its group will say what it is
        }
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("127.0.0.1");
        server.setListenPort(0);
        broker = new BrokerController(config, server, new NettyClientConfig(), store);
        return broker.initialize();
    }

    public void start() throws Exception {
        broker.start();
    }

    /** The port that takes requests. */
    public int port() {
        return broker.getRemotingServer().localListenPort();
    }

    /** Takes topics, groups and offsets from a master, as a slave does every ten seconds. */
    public void syncFrom(String masterAddress) {
        broker.getSlaveSynchronize().setMasterAddr(masterAddress);
        broker.getSlaveSynchronize().syncAll();
    }

    /** A clean stop, as a broker's own, without waiting for threads that only sleep and touch no file. */
    public void shutdown() {
        Thread waker = new Thread(JavaBroker::wakeSleepers);
        waker.setDaemon(true);
        waker.start();
        broker.shutdown();
        waker.interrupt();
    }

    private static void wakeSleepers() {
        try {
            while (true) {
                for (Thread thread : Thread.getAllStackTraces().keySet()) {
                    if (thread.getName().startsWith("NettyEventExecutor") || thread.getName().startsWith("PopReviveService")) {
                        thread.interrupt();
                    }
                }
                Thread.sleep(WAKE_INTERVAL_MS);
            }
        } catch (InterruptedException done) {
            return;
        }
    }

    public void createTopic(String topic, int queues) {
        broker.getTopicConfigManager().updateTopicConfig(new TopicConfig(topic, queues, queues));
    }

    /** Puts each line of a file. The broker's hooks look at DELAY and TIMER_* properties, as for a message that was sent. */
    public long put(String requests, String receipts) throws Exception {
        try (Lines out = new Lines(receipts)) {
            Lines.each(requests, line -> out.write(Views.receipt(
                broker.getMessageStore().putMessage(Requests.message(line, System.currentTimeMillis())))));
            return out.count();
        }
    }

    /** Puts each line of a file as a half message; TRAN_MSG, PGROUP and UNIQ_KEY are among its properties already. */
    public long putHalf(String requests, String receipts) throws Exception {
        try (Lines out = new Lines(receipts)) {
            Lines.each(requests, line -> out.write(Views.receipt(
                broker.getTransactionalMessageService().prepareMessage(received(line)))));
            return out.count();
        }
    }

    /** A message as it comes out of a request: its properties are a map that was parsed, which orders them otherwise. */
    private static MessageExtBrokerInner received(JSONObject line) {
        MessageExtBrokerInner message = Requests.message(line, System.currentTimeMillis());
        MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(message.getPropertiesString()));
        return message;
    }

    /** What a producer sends to commit or roll back; the answer's code, 0 for success, and its remark. */
    public String endTransaction(String requestText) throws Exception {
        JSONObject request = JSON.parseObject(requestText);
        EndTransactionRequestHeader header = new EndTransactionRequestHeader();
        header.setTopic(request.getString("topic"));
        header.setProducerGroup(request.getString("producerGroup"));
        header.setTranStateTableOffset(request.getLong("queueOffset"));
        header.setCommitLogOffset(request.getLong("physicalOffset"));
        header.setCommitOrRollback(request.getInteger("sysFlag"));
        header.setFromTransactionCheck(request.getBoolean("fromCheck"));
        header.setMsgId(request.getString("transactionId"));
        header.setTransactionId(request.getString("transactionId"));
        RemotingCommand command = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header);
        command.makeCustomHeaderToNet();
        RemotingCommand answer = broker.getEndTransactionProcessor()
            .processRequest(producer(request.getString("producerGroup")).context(), command);
        Map<String, Object> view = new LinkedHashMap<>();
        view.put("code", answer == null ? -1 : answer.getCode());
        view.put("remark", answer == null ? null : answer.getRemark());
        return Lines.text(view);
    }

    /** From now on this group has a producer that the broker can ask about its open transactions. */
    public void registerProducer(String group) {
        ClientChannelInfo client = new ClientChannelInfo(
            producer(group).channel, "flintlog-" + group, LanguageCode.JAVA, MQVersion.CURRENT_VERSION);
        broker.getProducerManager().registerProducer(group, client);
    }

    /** What the broker asked a group's producer since the last call. */
    public long checks(String group, String file) throws Exception {
        try (Lines out = new Lines(file)) {
            for (RemotingCommand asked = producer(group).sent.poll(); asked != null; asked = producer(group).sent.poll()) {
                if (asked.getCode() == RequestCode.CHECK_TRANSACTION_STATE) {
                    out.write(check(asked));
                }
            }
            return out.count();
        }
    }

    private ProducerChannel producer(String group) {
        return producers.computeIfAbsent(group, unknown -> new ProducerChannel());
    }

    private static Map<String, Object> check(RemotingCommand asked) {
        CheckTransactionStateRequestHeader header = (CheckTransactionStateRequestHeader) asked.readCustomHeader();
        MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(asked.getBody()), true, false);
        Map<String, Object> view = new LinkedHashMap<>();
        view.put("queueOffset", header.getTranStateTableOffset());
        view.put("physicalOffset", header.getCommitLogOffset());
        view.put("transactionId", header.getTransactionId());
        view.put("message", message(message));
        return view;
    }

    /** Every message of a queue from an offset on. */
    public long messages(String topic, int queueId, long offset, String file) throws Exception {
        try (Lines out = new Lines(file)) {
            long next = offset;
            while (next < broker.getMessageStore().getMaxOffsetInQueue(topic, queueId)) {
                GetMessageResult page = broker.getMessageStore().getMessage("flintlog", topic, queueId, next, PULL_COUNT, null);
                if (page == null) {
                    break;
                }
                long before = next;
                for (SelectMappedBufferResult found : page.getMessageMapedList()) {
                    out.write(message(MessageDecoder.decode(found.getByteBuffer(), true, false)));
                }
                next = page.getNextBeginOffset();
                page.release();
                if (next <= before) {
                    break;
                }
            }
            return out.count();
        }
    }

    private static Map<String, Object> message(MessageExt message) {
        Map<String, Object> view = new LinkedHashMap<>();
        view.put("topic", message.getTopic());
        view.put("queueId", message.getQueueId());
        view.put("queueOffset", message.getQueueOffset());
        view.put("physicalOffset", message.getCommitLogOffset());
        view.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        view.put("properties", message.getProperties() == null ? Map.of() : new TreeMap<>(message.getProperties()));
        view.put("flag", message.getFlag());
        view.put("sysFlag", message.getSysFlag());
        view.put("bornTimestamp", message.getBornTimestamp());
        view.put("storeTimestamp", message.getStoreTimestamp());
        view.put("reconsumeTimes", message.getReconsumeTimes());
        view.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        return view;
    }

    public long minOffset(String topic, int queueId) {
        return broker.getMessageStore().getMinOffsetInQueue(topic, queueId);
    }

    public long maxOffset(String topic, int queueId) throws Exception {
        return broker.getMessageStore().getMaxOffsetInQueue(topic, queueId);
    }

    /** -1 when the group has none. */
    public long consumerOffset(String group, String topic, int queueId) {
        return broker.getConsumerOffsetManager().queryOffset(group, topic, queueId);
    }

    public void commitConsumerOffset(String group, String topic, int queueId, long offset) {
        broker.getConsumerOffsetManager().commitOffset("127.0.0.1", group, topic, queueId, offset);
    }

    /** How far each delay level was delivered. */
    public String delayOffsets() {
        return JSON.toJSONString(broker.getScheduleMessageService().getOffsetTable());
    }

    /** Saves offsets as the broker's own timers do. */
    public void persist() {
        broker.getConsumerOffsetManager().persist();
        broker.getScheduleMessageService().persist();
    }
}
