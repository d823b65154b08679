package flintlog;

import com.alibaba.fastjson2.JSONObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;

/** The three questions a store answers: by key, by time, by queue offset. */
final class Answers {
    /** Where a record keeps its own physical offset. */
    private static final int PHYSICAL_OFFSET_POSITION = 28;

    private final ClockedStore store;

    Answers(ClockedStore store) {
        this.store = store;
    }

    Map<String, Object> to(JSONObject request) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        switch (request.getString("kind")) {
            case "key" -> byKey(request, answer);
            case "time" -> byTime(request, answer);
            case "get" -> byOffset(request, answer);
            default -> throw new IllegalArgumentException("no such question: " + request);
        }
        return answer;
    }

    private void byKey(JSONObject request, Map<String, Object> answer) {
        String topic = request.getString("topic");
        String key = request.getString("key");
        int maxNum = request.getIntValue("maxNum");
        long begin = request.getLongValue("begin");
        long end = request.getLongValue("end");
        String type = request.getString("indexType");
        QueryMessageResult found = type == null
            ? store.queryMessage(topic, key, maxNum, begin, end)
            : store.queryMessage(topic, key, maxNum, begin, end, type, null);
        answer.put("physicalOffsets", physicalOffsets(found.getMessageBufferList()));
        found.release();
    }

    private void byTime(JSONObject request, Map<String, Object> answer) {
        BoundaryType boundary = BoundaryType.valueOf(request.getString("boundary"));
        answer.put("queueOffset", store.getOffsetInQueueByTime(request.getString("topic"),
            request.getIntValue("queueId"), request.getLongValue("timestamp"), boundary));
    }

    private void byOffset(JSONObject request, Map<String, Object> answer) throws Exception {
        String topic = request.getString("topic");
        String tags = request.getString("filter");
        MessageFilter filter = tags == null
            ? null : new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, tags));
        GetMessageResult found = store.getMessage("flintlog", topic, request.getIntValue("queueId"),
            request.getLongValue("offset"), request.getIntValue("maxNum"), filter);
        answer.put("status", found.getStatus().name());
        answer.put("nextBeginOffset", found.getNextBeginOffset());
        answer.put("minOffset", found.getMinOffset());
        answer.put("maxOffset", found.getMaxOffset());
        answer.put("physicalOffsets", physicalOffsets(found.getMessageBufferList()));
        found.release();
    }

    private static List<Long> physicalOffsets(List<ByteBuffer> records) {
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer record : records) {
            offsets.add(record.getLong(PHYSICAL_OFFSET_POSITION));
        }
        return offsets;
    }
}
