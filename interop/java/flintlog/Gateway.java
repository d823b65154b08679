package flintlog;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import py4j.GatewayServer;

/**
 * The line between a Python process and this one.
 *
 * <p>The first line of standard input is the gateway's token; when standard input ends, the parent is gone and this
 * process stops as if it had been killed. What it holds of a store is then whatever a crash leaves.
 */
final class Gateway {
    private Gateway() {
    }

    static void serve(Object entryPoint) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        GatewayServer server = new GatewayServer.GatewayServerBuilder()
            .entryPoint(entryPoint).javaPort(0).authToken(in.readLine()).build();
        server.start(true);
        System.out.println("gateway " + server.getListeningPort());
        System.out.flush();
        while (in.readLine() != null) {
            continue;
        }
        Runtime.getRuntime().halt(3);
    }
}
