package flintlog;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.HashMap;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.TreeMap;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;

/** One RocketMQ store in a process of its own, driven by a Python process through Py4J. */
public final class JavaStore {
    private static final long DISPATCH_PATIENCE_MS = 60_000;
    private static final long SAMPLE_PATIENCE_MS = 60_000;

    private ClockedStore store;

    public static void main(String[] arguments) throws Exception {
        Gateway.serve(new JavaStore());
    }

    /** Loads and recovers a directory; the answer is the store's state before any of its services runs. */
    public String load(String directory, String settingsText) throws Exception {
        JSONObject settings = JSON.parseObject(settingsText);
        store = ClockedStore.create(directory, strings(settings, "options"), strings(settings, "topicQueueTypes"), null);
        store.setClock(settings.getLongValue("clockMs"));
        boolean loaded = store.load();
        return Lines.text(Views.store(store, loaded));
    }

    public void start() throws Exception {
        store.start();
    }

    /** Lets a slave follow the master whose HA service listens there. */
    public void follow(String address) {
        store.updateHaMasterAddress(address);
    }

    public String info() {
        return Lines.text(Views.store(store, true));
    }

    /** What the store has counted. RocketMQ cannot say it before its first sample, a second after its start. */
    public String figures() throws InterruptedException {
        long patience = System.currentTimeMillis() + SAMPLE_PATIENCE_MS;
        while (true) {
            try {
                return Lines.text(Views.figures(store));
            } catch (NoSuchElementException notYet) {
                if (System.currentTimeMillis() > patience) {
                    throw notYet;
                }
                Thread.sleep(20);
            }
        }
    }

    public void setClock(long nowMs) {
        store.setClock(nowMs);
    }

    /** True when everything that was put can be read through the queues. */
    public boolean waitDispatched() throws InterruptedException {
        long patience = System.currentTimeMillis() + DISPATCH_PATIENCE_MS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > patience) {
                return false;
            }
            Thread.sleep(1);
        }
        return true;
    }

    /** Puts each line of a file: one message, or a `batch` of them; `clockMs` sets the clock just before. */
    public long put(String requests, String receipts) throws Exception {
        try (Lines out = new Lines(receipts)) {
            Lines.each(requests, line -> {
                if (line.containsKey("clockMs")) {
                    store.setClock(line.getLongValue("clockMs"));
                }
                long nowMs = store.getSystemClock().now();
                JSONArray batch = line.getJSONArray("batch");
                out.write(Views.receipt(batch == null
                    ? store.putMessage(Requests.message(line, nowMs))
                    : store.putMessages(Requests.batch(batch, nowMs))));
            });
            return out.count();
        }
    }

    /** Puts from many threads for some time, each waiting for its own message; the open store's speed. */
    public String measurePuts(String task) throws Exception {
        return Lines.text(StoreBench.puts(store, JSON.parseObject(task)));
    }

    /** Every record of the log, in log order. */
    public long messages(String file) throws Exception {
        long fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        try (Lines out = new Lines(file)) {
            long offset = store.getMinPhyOffset();
            while (offset < store.getMaxPhyOffset()) {
                offset += Views.headSize(store, offset);
                byte[] record = Views.record(store, offset);
                if (record == null) {
                    offset += fileSize - offset % fileSize;
                    continue;
                }
                out.write(Views.message(store, record));
                offset += record.length;
            }
            return out.count();
        }
    }

    public long queues(String file) throws Exception {
        try (Lines out = new Lines(file)) {
            for (var topic : queueTable().entrySet()) {
                for (var queue : topic.getValue().entrySet()) {
                    out.write(Views.queue(topic.getKey(), queue.getKey(), queue.getValue()));
                }
            }
            return out.count();
        }
    }

    public long entries(String file) throws Exception {
        try (Lines out = new Lines(file)) {
            for (var topic : queueTable().entrySet()) {
                for (var queue : topic.getValue().entrySet()) {
                    writeEntries(out, topic.getKey(), queue.getKey(), queue.getValue());
                }
            }
            return out.count();
        }
    }

    public long answer(String requests, String answers) throws Exception {
        Answers known = new Answers(store);
        try (Lines out = new Lines(answers)) {
            Lines.each(requests, line -> out.write(known.to(line)));
            return out.count();
        }
    }

    /** One measurement in a directory of its own; independent of the store that `load` opened. */
    public String measure(String directory, String task) throws Exception {
        return Lines.text(new StoreBench(directory, JSON.parseObject(task)).run());
    }

    /** A clean stop: RocketMQ flushes everything and takes its abort file away. */
    public void shutdown() {
        store.shutdown();
    }

    private Map<String, Map<Integer, ConsumeQueueInterface>> queueTable() {
        Map<String, Map<Integer, ConsumeQueueInterface>> sorted = new TreeMap<>();
        store.getQueueStore().getConsumeQueueTable().forEach((topic, queues) -> sorted.put(topic, new TreeMap<>(queues)));
        return sorted;
    }

    /** An iterator of a queue ends with its file, so a new one is asked for until the queue's end. */
    private static void writeEntries(Lines out, String topic, int queueId, ConsumeQueueInterface queue) throws Exception {
        long next = queue.getMinOffsetInQueue();
        long max = queue.getMaxOffsetInQueue();
        while (next < max) {
            long before = next;
            ReferredIterator<CqUnit> units = queue.iterateFrom(next);
            if (units == null) {
                return;
            }
            while (units.hasNext()) {
                CqUnit unit = units.next();
                out.write(Views.entry(topic, queueId, unit));
                next = unit.getQueueOffset() + Math.max(1, unit.getBatchNum());
            }
            units.release();
            if (next == before) {
                return;
            }
        }
    }

    private static Map<String, String> strings(JSONObject object, String name) {
        Map<String, String> strings = new HashMap<>();
        object.getJSONObject(name).forEach((key, value) -> strings.put(key, (String) value));
        return strings;
    }
}
