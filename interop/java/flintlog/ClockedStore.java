package flintlog;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ's own store; the one difference is that its clock can be set, so that two stores can hold equal bytes. */
final class ClockedStore extends DefaultMessageStore {
    /** No HA port that could clash, no retention that could delete under a test, no refusal on a full disk. */
    private static final Map<String, String> QUIET = Map.of(
        "haListenPort", "0",
        "enableCompaction", "false",
        "cleanFileForciblyEnable", "false",
        "fileReservedTime", "100000000",
        "diskMaxUsedSpaceRatio", "97",
        "diskSpaceCleanForciblyRatio", "98",
        "diskSpaceWarningLevelRatio", "99");

    private final SettableClock clock = new SettableClock();

    private ClockedStore(MessageStoreConfig config, MessageArrivingListener listener, BrokerConfig broker,
                         ConcurrentMap<String, TopicConfig> topics) throws IOException {
        super(config, new BrokerStatsManager("flintlog", true), listener, broker, topics);
    }

    static ClockedStore create(String directory, Map<String, String> options, Map<String, String> queueTypes,
                               MessageArrivingListener listener) throws IOException {
        Properties properties = new Properties();
        properties.putAll(QUIET);
        properties.putAll(options);
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(properties, config);
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + "/commitlog");
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("flintlog");
        // A store that takes itself for a master steps over a record of which only the first bytes have arrived.
        broker.setBrokerId(config.getBrokerRole() == BrokerRole.SLAVE ? 1 : 0);
        broker.setLongPollingEnable(listener != null);
        MessageArrivingListener known = listener != null ? listener : (t, q, o, c, s, b, p) -> { };
        return new ClockedStore(config, known, broker, topicConfigs(queueTypes));
    }

    private static ConcurrentMap<String, TopicConfig> topicConfigs(Map<String, String> queueTypes) {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        queueTypes.forEach((topic, type) -> {
            TopicConfig config = new TopicConfig(topic, 8, 8);
            config.setAttributes(new HashMap<>(Map.of("queue.type", type)));
            topics.put(topic, config);
        });
        return topics;
    }

    @Override
    public SystemClock getSystemClock() {
        // The superclass asks for the clock while it is being made, before our field is set.
        return clock == null ? new SystemClock() : clock;
    }

    /** A negative time gives the clock back to the machine. */
    void setClock(long nowMs) {
        clock.fixedMs = nowMs;
    }

    private static final class SettableClock extends SystemClock {
        private volatile long fixedMs = -1;

        @Override
        public long now() {
            long fixed = fixedMs;
            return fixed < 0 ? System.currentTimeMillis() : fixed;
        }
    }
}
