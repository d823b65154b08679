package flintlog;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.LeadershipTransferRequest;
import io.openmessaging.storage.dledger.store.DLedgerStore;
import java.util.ArrayDeque;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.MixAll;

/** Nodes of DLedger groups in one process, driven by a Python process through Py4J. */
public final class JavaLedger {
    private static final int PATIENCE_S = 10;

    private final Map<String, DLedgerServer> nodes = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        Gateway.serve(new JavaLedger());
    }

    /** Starts the node that the settings name; every setting is a property of DLedgerConfig. */
    public void start(String settingsText) {
        Properties properties = new Properties();
        JSON.parseObject(settingsText).forEach((name, value) -> properties.setProperty(name, String.valueOf(value)));
        DLedgerConfig config = new DLedgerConfig();
        MixAll.properties2Object(properties, config);
        config.init();
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        nodes.put(config.getSelfId(), server);
    }

    public void stop(String id) {
        nodes.remove(id).shutdown();
    }

    /** What the node knows of itself and of its ledger. */
    public String info(String id) {
        return info(nodes.get(id));
    }

    static String info(DLedgerServer server) {
        DLedgerStore store = server.getDLedgerStore();
        Map<String, Object> reported = new LinkedHashMap<>();
        reported.put("role", server.getMemberState().getRole().name());
        reported.put("term", server.getMemberState().currTerm());
        reported.put("leaderId", server.getMemberState().getLeaderId());
        reported.put("beginIndex", store.getLedgerBeginIndex());
        reported.put("endIndex", store.getLedgerEndIndex());
        reported.put("endTerm", store.getLedgerEndTerm());
        reported.put("committedIndex", store.getCommittedIndex());
        return Lines.text(reported);
    }

    /** Appends each line's body, as many at a time as the window allows; the answers are in the same order. */
    public long append(String id, int window, String requests, String receipts) throws Exception {
        ArrayDeque<CompletableFuture<AppendEntryResponse>> open = new ArrayDeque<>();
        try (Lines out = new Lines(receipts)) {
            Lines.each(requests, line -> {
                if (open.size() >= window) {
                    out.write(receipt(open.remove()));
                }
                open.add(submit(id, Base64.getDecoder().decode(line.getString("body"))));
            });
            while (!open.isEmpty()) {
                out.write(receipt(open.remove()));
            }
            return out.count();
        }
    }

    /** Entries as the node's own files hold them, committed or not. */
    public long entries(String id, long first, long last, String file) throws Exception {
        DLedgerStore store = nodes.get(id).getDLedgerStore();
        try (Lines out = new Lines(file)) {
            for (long index = first; index <= last; index++) {
                out.write(entry(store.get(index)));
            }
            return out.count();
        }
    }

    /** Asks the leader to hand over; the answer's code. */
    public int transfer(String id, String successor) throws Exception {
        return transfer(nodes.get(id), successor);
    }

    static int transfer(DLedgerServer server, String successor) throws Exception {
        String id = server.getMemberState().getSelfId();
        LeadershipTransferRequest request = new LeadershipTransferRequest();
        request.setGroup(server.getMemberState().getGroup());
        request.setRemoteId(id);
        request.setTransferId(id);
        request.setTransfereeId(successor);
        request.setTerm(server.getMemberState().currTerm());
        return server.handleLeadershipTransfer(request).get(PATIENCE_S, TimeUnit.SECONDS).getCode();
    }

    /** Producers that each wait for their own entry before they send the next: how many were committed in the time. */
    public String measure(String id, String taskText) throws Exception {
        JSONObject task = JSON.parseObject(taskText);
        byte[] body = new byte[task.getIntValue("bodyBytes")];
        new Random(1).nextBytes(body);
        AtomicLong count = new AtomicLong();
        long begin = System.nanoTime();
        long end = begin + (long) (task.getDoubleValue("seconds") * 1e9);
        Thread[] producers = new Thread[task.getIntValue("producers")];
        for (int i = 0; i < producers.length; i++) {
            producers[i] = new Thread(() -> produce(id, body, end, count));
            producers[i].start();
        }
        for (Thread producer : producers) {
            producer.join();
        }
        Map<String, Object> reported = new LinkedHashMap<>();
        reported.put("count", count.get());
        reported.put("seconds", (System.nanoTime() - begin) / 1e9);
        return Lines.text(reported);
    }

    private void produce(String id, byte[] body, long end, AtomicLong count) {
        try {
            while (System.nanoTime() < end) {
                if (submit(id, body).get(PATIENCE_S, TimeUnit.SECONDS).getCode() == 200) {
                    count.incrementAndGet();
                } else {
                    Thread.sleep(1);
                }
            }
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    private CompletableFuture<AppendEntryResponse> submit(String id, byte[] body) throws Exception {
        DLedgerServer server = nodes.get(id);
        AppendEntryRequest request = new AppendEntryRequest();
        request.setGroup(server.getMemberState().getGroup());
        request.setRemoteId(id);
        request.setBody(body);
        return server.handleAppend(request);
    }

    private static Map<String, Object> receipt(CompletableFuture<AppendEntryResponse> future) throws Exception {
        AppendEntryResponse response = future.get(PATIENCE_S, TimeUnit.SECONDS);
        Map<String, Object> reported = new LinkedHashMap<>();
        reported.put("code", response.getCode());
        reported.put("index", response.getIndex());
        reported.put("pos", response.getPos());
        reported.put("term", response.getTerm());
        return reported;
    }

    private static Map<String, Object> entry(DLedgerEntry entry) {
        Map<String, Object> reported = new LinkedHashMap<>();
        reported.put("magic", entry.getMagic());
        reported.put("size", entry.getSize());
        reported.put("index", entry.getIndex());
        reported.put("term", entry.getTerm());
        reported.put("pos", entry.getPos());
        reported.put("body", Base64.getEncoder().encodeToString(entry.getBody()));
        return reported;
    }
}
