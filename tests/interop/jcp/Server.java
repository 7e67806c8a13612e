import io.envoyproxy.controlplane.server.DiscoveryServerCallbacks;
import io.envoyproxy.controlplane.server.V3DiscoveryServer;
import io.grpc.netty.NettyServerBuilder;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** java-control-plane behind gRPC on a port that stays the same when it is stopped and started. */
final class Server {
  private final int port;
  private final SnapshotCache cache;
  private final List<DiscoveryServerCallbacks> callbacks;
  private io.grpc.Server grpc;

  Server(int port, SnapshotCache cache, List<DiscoveryServerCallbacks> callbacks) throws IOException {
    try (ServerSocket free = new ServerSocket()) {
      free.setReuseAddress(true);
      free.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
      this.port = free.getLocalPort();
    }
    this.cache = cache;
    this.callbacks = callbacks;
  }

  int port() {
    return port;
  }

  void start() throws IOException {
    if (grpc != null) {
      throw new IOException("it runs already");
    }
    grpc = NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), port))
        // The defaults of gRPC servers are too small for a mesh, and allow one ping in five minutes.
        .maxInboundMessageSize(64 << 20)
        .permitKeepAliveTime(1, TimeUnit.MILLISECONDS)
        .permitKeepAliveWithoutCalls(true)
        .addService(new V3DiscoveryServer(callbacks, cache).getAggregatedDiscoveryServiceImpl())
        .build()
        .start();
  }

  /** Breaks all connections at once, as a crash would. */
  void stop() throws IOException {
    if (grpc == null) {
      return;
    }
    try {
      if (!grpc.shutdownNow().awaitTermination(10, TimeUnit.SECONDS)) {
        throw new IOException("it does not stop");
      }
    } catch (InterruptedException interrupted) {
      throw new IOException(interrupted);
    }
    grpc = null;
  }
}
