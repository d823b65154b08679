package flintlog;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** Files with one JSON object a line: how thousands of messages cross between the two processes. */
final class Lines implements Closeable {
    interface Step {
        void take(JSONObject line) throws Exception;
    }

    private final BufferedWriter out;
    private long count;

    Lines(String file) throws IOException {
        out = Files.newBufferedWriter(Path.of(file));
    }

    static void each(String file, Step step) throws Exception {
        try (BufferedReader in = Files.newBufferedReader(Path.of(file))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                step.take(JSON.parseObject(line));
            }
        }
    }

    static String text(Map<String, Object> object) {
        return JSON.toJSONString(object, JSONWriter.Feature.WriteNulls);
    }

    void write(Map<String, Object> object) throws IOException {
        out.write(text(object));
        out.write('\n');
        count++;
    }

    long count() {
        return count;
    }

    @Override
    public void close() throws IOException {
        out.close();
    }
}
