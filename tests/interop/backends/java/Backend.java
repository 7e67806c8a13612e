import io.grpc.Server;
import io.grpc.ServerInterceptors;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * A gRPC server for the interoperability tests of the channel, on grpc-java.
 *
 * <p>Usage: Backend NAME [PORT]. The commands on standard input, the lines on standard output and the methods are those of the
 * program in ../go: see go/main.go.
 */
public final class Backend {
  private static final int MAX_MESSAGE = 64 << 20;

  private final Calls calls;
  private final Server server;

  private Backend(String name, int port) throws IOException {
    calls = new Calls(name);
    server =
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port))
            .maxInboundMessageSize(MAX_MESSAGE)
            .addService(ServerInterceptors.intercept(Methods.service(name), calls))
            .build()
            .start();
  }

  public static void main(String[] args) throws IOException {
    if (args.length != 1 && args.length != 2) {
      System.err.println("usage: Backend NAME [PORT]");
      System.exit(2);
    }
    new Backend(args[0], args.length == 2 ? Integer.parseInt(args[1]) : 0).run();
    System.exit(0); // threads of gRPC may still run
  }

  private void run() throws IOException {
    emit("{\"address\":\"127.0.0.1:" + server.getPort() + "\"}");
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      line = line.trim();
      switch (line) {
        case "":
          break;
        case "counts":
          emit("{\"done\":\"counts\",\"counts\":" + json(calls.counts()) + "}");
          break;
        case "stop":
          server.shutdown();
          new Thread(this::reportEnd).start();
          emit("{\"done\":\"stop\"}");
          break;
        case "quit":
          emit("{\"done\":\"quit\"}");
          return;
        default:
          emit("{\"failed\":\"" + line.replaceAll("[\"\\\\]", "\\\\$0") + "\",\"reason\":\"unknown command\"}");
      }
    }
  }

  private void reportEnd() {
    try {
      if (server.awaitTermination(1, TimeUnit.HOURS)) {
        emit("{\"event\":\"stopped\"}");
      }
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    }
  }

  private static String json(Map<String, Long> counts) {
    return counts.entrySet().stream()
        .map(count -> "\"" + count.getKey() + "\":" + count.getValue())
        .collect(Collectors.joining(",", "{", "}"));
  }

  /** Writes one JSON line; calls have threads of their own. */
  static synchronized void emit(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
