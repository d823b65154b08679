package flintlog;

import com.alibaba.fastjson2.JSONObject;
import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageArrivingListener;

/**
 * The Java store's own speed, measured as `flintlog bench` measures ours: the same messages, each made anew for its
 * put, the same windows of time, the same end (everything visible), the whole process's CPU time.
 */
final class StoreBench {
    private static final String TOPIC = "BenchTopic";
    private static final int QUEUES = 8;
    private static final int BATCH = 32;
    private static final int FIRST_PUTS = 70;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final AtomicLong sequence = new AtomicLong();
    private final JSONObject task;
    private final String directory;
    private final byte[] body;
    private final double seconds;

    StoreBench(String directory, JSONObject task) {
        this.directory = directory;
        this.task = task;
        body = new byte[task.getIntValue("bodyBytes")];
        new Random(1).nextBytes(body);
        seconds = task.getDoubleValue("seconds");
    }

    Map<String, Object> run() throws Exception {
        return switch (task.getString("kind")) {
            case "put", "synced" -> puts();
            case "batch" -> batches();
            case "cold" -> coldBatches();
            case "fill" -> fill();
            case "get" -> gets();
            case "rebuild" -> rebuild();
            case "visible" -> visible();
            default -> throw new IllegalArgumentException("no such task: " + task);
        };
    }

    /** Puts into a store that is open and stays so. */
    static Map<String, Object> puts(ClockedStore store, JSONObject task) throws Exception {
        StoreBench bench = new StoreBench("", task);
        return bench.produce(store, task.getIntValue("threads"), number -> bench.putOne(store, number));
    }

    private interface Work {
        /** Puts or reads once; how many messages that was. */
        int once(long number) throws Exception;
    }

    private Map<String, Object> puts() throws Exception {
        ClockedStore store = open(null);
        try {
            return produce(store, task.getIntValue("threads"), number -> putOne(store, number));
        } finally {
            close(store);
        }
    }

    private Map<String, Object> batches() throws Exception {
        ClockedStore store = open(null);
        try {
            byte[] ready = task.getBooleanValue("ready") ? encodedBatch() : null;
            return produce(store, 1, number -> {
                MessageExtBatch batch = new MessageExtBatch();
                address(batch, number);
                MessageAccessor.setProperties(batch, new HashMap<>());
                batch.setBody(ready == null ? encodedBatch() : ready);
                return store.putMessages(batch).isOk() ? BATCH : 0;
            });
        } finally {
            close(store);
        }
    }

    /** One batch, again and again into one queue; nothing is put before the clock, and the JVM is new. */
    private Map<String, Object> coldBatches() throws Exception {
        ClockedStore store = open(null);
        try {
            List<Message> parts = new ArrayList<>(BATCH);
            for (int i = 0; i < BATCH; i++) {
                Message part = new Message(TOPIC, "TagA", "", body);
                MessageAccessor.putProperty(part, "UNIQ_KEY", "7F00000100010000" + i);
                parts.add(part);
            }
            byte[] ready = MessageDecoder.encodeMessages(parts);
            return produce(store, 1, number -> {
                MessageExtBatch batch = new MessageExtBatch();
                address(batch, 0);
                MessageAccessor.setProperties(batch, new HashMap<>());
                batch.setBody(ready);
                return store.putMessages(batch).isOk() ? BATCH : 0;
            });
        } finally {
            close(store);
        }
    }

    private byte[] encodedBatch() {
        List<Message> parts = new ArrayList<>(BATCH);
        for (int i = 0; i < BATCH; i++) {
            Message part = new Message();
            part.setTopic(TOPIC);
            part.setBody(body);
            MessageAccessor.setProperties(part, properties(sequence.getAndIncrement()));
            parts.add(part);
        }
        return MessageDecoder.encodeMessages(parts);
    }

    /** Writes what `get` reads: as many messages as asked for. */
    private Map<String, Object> fill() throws Exception {
        ClockedStore store = open(null);
        long count = task.getLongValue("count");
        for (long done = 0; done < count; ) {
            done += putOne(store, done);
        }
        settle(store);
        close(store);
        return new LinkedHashMap<>();
    }

    private Map<String, Object> gets() throws Exception {
        ClockedStore store = open(null);
        long cpu = cpuNanos();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        long count = 0;
        while (System.nanoTime() < end) {
            for (int queue = 0; queue < QUEUES; queue++) {
                count += readQueue(store, queue, end);
            }
        }
        Map<String, Object> reported = reported(count, begin, begin, cpu, null);
        close(store);
        return reported;
    }

    private long readQueue(ClockedStore store, int queue, long end) {
        long offset = 0;
        long count = 0;
        while (System.nanoTime() < end) {
            GetMessageResult page = store.getMessage("bench", TOPIC, queue, offset, BATCH, null);
            if (page.getStatus() != GetMessageStatus.FOUND) {
                page.release();
                return count;
            }
            for (ByteBuffer record : page.getMessageBufferList()) {
                count += MessageDecoder.decode(record, true, false).getBody().length > 0 ? 1 : 0;
            }
            offset = page.getNextBeginOffset();
            page.release();
        }
        return count;
    }

    /** The caller removed queues, index and checkpoint, and left an abort file: everything is derived again. */
    private Map<String, Object> rebuild() throws Exception {
        long cpu = cpuNanos();
        long begin = System.nanoTime();
        ClockedStore store = open(null);
        settle(store);
        long done = System.nanoTime();
        long cpuAtEnd = cpuNanos();
        long count = 0;
        for (int queue = 0; queue < QUEUES; queue++) {
            count += store.getMaxOffsetInQueue(TOPIC, queue);
        }
        Map<String, Object> reported = reported(count, begin, begin, cpu, null);
        reported.put("seconds", (done - begin) / 1e9);
        reported.put("visibleSeconds", (done - begin) / 1e9);
        reported.put("cpuSeconds", (cpuAtEnd - cpu) / 1e9);
        close(store);
        return reported;
    }

    /** From just before a put to the listener's call: at a pace of `rate` a second, or as fast as it goes (0). */
    private Map<String, Object> visible() throws Exception {
        int rate = task.getIntValue("rate");
        int most = 4_000_000;
        long[] put = new long[most];
        long[] seen = new long[most];
        AtomicLong arrived = new AtomicLong();
        MessageArrivingListener listener = (topic, queue, next, code, time, bits, properties) -> {
            if (queue == 0) {
                seen[(int) Math.min(next, most) - 1] = System.nanoTime();
                arrived.set(next);
            }
        };
        ClockedStore store = open(listener);
        firstPuts(store);
        long cpu = cpuNanos();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        int count = 0;
        while (count < most && System.nanoTime() < end) {
            if (rate > 0) {
                await(begin + count * 1_000_000_000L / rate);
            }
            put[count] = System.nanoTime();
            count += putOne(store, 0);
        }
        long done = System.nanoTime();
        while (arrived.get() < count && System.nanoTime() < done + 60_000_000_000L) {
            Thread.sleep(1);
        }
        long[] waits = new long[count];
        for (int i = 0; i < count; i++) {
            waits[i] = seen[i] - put[i];
        }
        Map<String, Object> reported = reported(count, begin, done, cpu, waits);
        close(store);
        return reported;
    }

    private static void await(long due) {
        while (System.nanoTime() < due - 100_000) {
            LockSupport.parkNanos(due - 100_000 - System.nanoTime());
        }
        while (System.nanoTime() < due) {
            Thread.onSpinWait();
        }
    }

    private Map<String, Object> produce(ClockedStore store, int threads, Work work) throws Exception {
        if (!"cold".equals(task.getString("kind"))) {  // puts into an open store have no kind
            firstPuts(store);
        }
        AtomicLong count = new AtomicLong();
        List<long[]> waits = new ArrayList<>();
        long cpu = cpuNanos();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        Thread[] producers = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int first = i;
            producers[i] = new Thread(() -> {
                Waits own = new Waits();
                long done = 0;
                long number = first;
                long now = System.nanoTime();
                while (now < end) {
                    int put = attempt(work, number++);
                    long after = System.nanoTime();
                    own.add(after - now);
                    now = after;
                    done += put;
                }
                count.addAndGet(done);
                synchronized (waits) {
                    waits.add(own.known());
                }
            });
            producers[i].start();
        }
        for (Thread producer : producers) {
            producer.join();
        }
        long done = System.nanoTime();
        settle(store);
        return reported(count.get(), begin, done, cpu, waits.stream().flatMapToLong(Arrays::stream).toArray());
    }

    /** The last waits of one thread: enough for percentiles, bounded however long it runs. */
    private static final class Waits {
        private final long[] ring = new long[200_000];
        private long count;

        void add(long nanos) {
            ring[(int) (count++ % ring.length)] = nanos;
        }

        long[] known() {
            return Arrays.copyOf(ring, (int) Math.min(count, ring.length));
        }
    }

    /** A few into all queues but the first: the files are made before the clock runs. */
    private void firstPuts(ClockedStore store) throws InterruptedException {
        for (int i = 0; i < FIRST_PUTS; i++) {
            putOne(store, 1 + i % (QUEUES - 1));
        }
        settle(store);
    }

    private static int attempt(Work work, long number) {
        try {
            int done = work.once(number);
            if (done == 0) {
                Thread.sleep(1);
            }
            return done;
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    private int putOne(ClockedStore store, long number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        address(message, number);
        message.setBody(body);
        Map<String, String> properties = properties(sequence.getAndIncrement());
        MessageAccessor.setProperties(message, properties);
        message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        return store.putMessage(message).isOk() ? 1 : 0;
    }

    private static void address(MessageExtBrokerInner message, long number) {
        message.setTopic(TOPIC);
        message.setQueueId((int) (number % QUEUES));
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        message.setBornTimestamp(System.currentTimeMillis());
    }

    private static Map<String, String> properties(long number) {
        Map<String, String> properties = new HashMap<>(4);
        properties.put("KEYS", "key" + number);
        properties.put("UNIQ_KEY", "7F0000010001" + number);
        properties.put("TAGS", "TagA");
        return properties;
    }

    private ClockedStore open(MessageArrivingListener listener) throws Exception {
        Map<String, String> options = new HashMap<>();
        task.getJSONObject("options").forEach((name, value) -> options.put(name, (String) value));
        ClockedStore store = ClockedStore.create(directory, options, Map.of(), listener);
        if (!store.load()) {
            throw new IllegalStateException("the store refuses to load " + new File(directory));
        }
        store.start();
        return store;
    }

    /** What later tasks read stays; anything else is unmapped and removed, or its deleted pages would fill the disk. */
    private void close(ClockedStore store) {
        store.shutdown();
        if (!task.getBooleanValue("keeps")) {
            store.destroy();
        }
    }

    private static void settle(ClockedStore store) throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private static long cpuNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** Called when everything is visible: what was counted, until when puts ran, and what it cost. */
    private static Map<String, Object> reported(long count, long begin, long done, long cpu, long[] waits) {
        long now = System.nanoTime();
        Map<String, Object> reported = new LinkedHashMap<>();
        reported.put("count", count);
        reported.put("seconds", ((done == begin ? now : done) - begin) / 1e9);
        reported.put("visibleSeconds", (now - begin) / 1e9);
        reported.put("cpuSeconds", (cpuNanos() - cpu) / 1e9);
        if (waits != null && waits.length > 0) {
            Arrays.sort(waits);
            reported.put("p50Us", waits[waits.length / 2] / 1e3);
            reported.put("p99Us", waits[(int) (waits.length * 0.99)] / 1e3);
            reported.put("p999Us", waits[(int) (waits.length * 0.999)] / 1e3);
        }
        return reported;
    }
}
