package flintlog;

import io.openmessaging.storage.dledger.DLedgerServer;
import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/**
 * A whole broker whose log is a ledger: a member of a group, with the role changes that only a broker makes.
 *
 * <p>A DefaultMessageStore alone does not take its queue offsets from its queues when it becomes the leader: the broker
 * does that for it.
 */
public final class JavaMember extends JavaBroker {
    private static final int PATIENCE_S = 30;

    public static void main(String[] arguments) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, System.getProperty("user.home"));
        Gateway.serve(new JavaMember());
    }

    /** Between load and start: how often a leader beats, which MessageStoreConfig has no name for. */
    public void setHeartbeatMs(int interval) {
        node().getdLedgerConfig().setHeartBeatTimeIntervalMs(interval);
    }

    /** What the member knows of its group and its ledger. */
    public String ledger() {
        return JavaLedger.info(node());
    }

    /** Whether the broker has become a master: its queue offsets are known, and it takes puts. */
    public boolean isMaster() {
        return node().getMemberState().isLeader()
            && broker.getMessageStoreConfig().getBrokerRole() == BrokerRole.SYNC_MASTER;
    }

    public int transfer(String successor) throws Exception {
        return JavaLedger.transfer(node(), successor);
    }

    /** Bytes of the log that are committed and not in their queues yet. */
    public long behind() {
        return broker.getMessageStore().dispatchBehindBytes();
    }

    /** Puts each line of a file, as many at a time as the window allows; the answers are in the same order. */
    public long putMany(int window, String requests, String receipts) throws Exception {
        ArrayDeque<CompletableFuture<PutMessageResult>> open = new ArrayDeque<>();
        try (Lines out = new Lines(receipts)) {
            Lines.each(requests, line -> {
                if (open.size() >= window) {
                    out.write(Views.receipt(open.remove().get(PATIENCE_S, TimeUnit.SECONDS)));
                }
                open.add(broker.getMessageStore().asyncPutMessage(Requests.message(line, System.currentTimeMillis())));
            });
            while (!open.isEmpty()) {
                out.write(Views.receipt(open.remove().get(PATIENCE_S, TimeUnit.SECONDS)));
            }
            return out.count();
        }
    }

    private DLedgerServer node() {
        DefaultMessageStore store = (DefaultMessageStore) broker.getMessageStore();
        return ((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer();
    }
}
