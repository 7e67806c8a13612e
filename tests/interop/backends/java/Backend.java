import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerCredentials;
import io.grpc.ServerInterceptors;
import io.grpc.TlsServerCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * A gRPC server for the interoperability tests of the channel, on grpc-java.
 *
 * <p>Usage: Backend NAME [PORT [CERTIFICATE KEY [CLIENT_CA]]]. The commands on standard input, the lines on standard output and the methods are those of the
 * program in ../go: see go/main.go.
 */
public final class Backend {
  private static final int MAX_MESSAGE = 64 << 20;

  private final Calls calls;
  private final Server server;

  private Backend(String name, int port, List<String> files) throws IOException {
    calls = new Calls(name);
    server =
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port), credentials(files))
            .maxInboundMessageSize(MAX_MESSAGE)
            .addService(ServerInterceptors.intercept(Methods.service(name), calls))
            .build()
            .start();
  }

  public static void main(String[] args) throws IOException {
    if (args.length < 1 || args.length == 3 || args.length > 5) {
      System.err.println("usage: Backend NAME [PORT [CERTIFICATE KEY [CLIENT_CA]]]");
      System.exit(2);
    }
    int port = args.length > 1 ? Integer.parseInt(args[1]) : 0;
    new Backend(args[0], port, Arrays.asList(args).subList(Math.min(2, args.length), args.length)).run();
    System.exit(0); // threads of gRPC may still run
  }

  /** Plain text without files, or else TLS: a certificate, its key, and the authority of client certificates. */
  private static ServerCredentials credentials(List<String> files) throws IOException {
    if (files.isEmpty()) {
      return InsecureServerCredentials.create();
    }
    TlsServerCredentials.Builder tls =
        TlsServerCredentials.newBuilder().keyManager(new File(files.get(0)), new File(files.get(1)));
    if (files.size() > 2) {
      tls.trustManager(new File(files.get(2))).clientAuth(TlsServerCredentials.ClientAuth.REQUIRE);
    }
    return tls.build();
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
