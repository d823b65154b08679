package flintlog;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** Turns a line that asks for a put into the message object that the store takes. */
final class Requests {
    private Requests() {
    }

    static MessageExtBrokerInner message(JSONObject line, long nowMs) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, line, nowMs);
        message.setBody(body(line));
        MessageAccessor.setProperties(message, properties(line));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    /** `batch` holds the single messages; everything that a batch has once is taken from the first. */
    static MessageExtBatch batch(JSONArray lines, long nowMs) {
        List<Message> parts = new ArrayList<>();
        for (int i = 0; i < lines.size(); i++) {
            JSONObject line = lines.getJSONObject(i);
            Message part = new Message();
            part.setTopic(line.getString("topic"));
            part.setFlag(line.getIntValue("flag"));
            part.setBody(body(line));
            MessageAccessor.setProperties(part, properties(line));
            parts.add(part);
        }
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, lines.getJSONObject(0), nowMs);
        MessageAccessor.setProperties(batch, new HashMap<>());
        batch.setBody(MessageDecoder.encodeMessages(parts));
        return batch;
    }

    private static void fill(MessageExtBrokerInner message, JSONObject line, long nowMs) {
        Long born = line.getLong("bornTimestamp");
        message.setTopic(line.getString("topic"));
        message.setQueueId(line.getIntValue("queueId"));
        message.setFlag(line.getIntValue("flag"));
        message.setSysFlag(line.getIntValue("sysFlag"));
        message.setBornTimestamp(born == null ? nowMs : born);
        message.setBornHost(host(line.getString("bornHost")));
        message.setStoreHost(host(line.getString("storeHost")));
        message.setReconsumeTimes(line.getIntValue("reconsumeTimes"));
        message.setPreparedTransactionOffset(line.getLongValue("preparedTransactionOffset"));
    }

    private static byte[] body(JSONObject line) {
        return Base64.getDecoder().decode(line.getString("body"));
    }

    /** Property order is part of the bytes: a HashMap of the default capacity, filled in the order of the line. */
    private static Map<String, String> properties(JSONObject line) {
        Map<String, String> properties = new HashMap<>();
        line.getJSONObject("properties").forEach((name, value) -> properties.put(name, (String) value));
        return properties;
    }

    private static InetSocketAddress host(String text) {
        int colon = text.lastIndexOf(':');
        String address = text.substring(0, colon).replace("[", "").replace("]", "");
        return new InetSocketAddress(address, Integer.parseInt(text.substring(colon + 1)));
    }
}
