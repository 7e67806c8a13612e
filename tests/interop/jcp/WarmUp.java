import io.envoyproxy.controlplane.cache.Resources;
import io.envoyproxy.envoy.service.discovery.v3.AggregatedDiscoveryServiceGrpc;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryResponse;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryResponse;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Sends a request to a server in each variant before the test begins: the first response of a process loads more than a
 * thousand classes, which may take longer than the resource timeout of a test's client.
 */
final class WarmUp {
  private WarmUp() {}

  static void of(int port) throws IOException {
    InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
    ManagedChannel channel = NettyChannelBuilder.forAddress(address).usePlaintext().build();
    try {
      AggregatedDiscoveryServiceGrpc.AggregatedDiscoveryServiceStub stub =
          AggregatedDiscoveryServiceGrpc.newStub(channel);
      Answer<DiscoveryResponse> all = new Answer<>();
      stub.streamAggregatedResources(all)
          .onNext(DiscoveryRequest.newBuilder().setTypeUrl(Resources.V3.LISTENER_TYPE_URL).build());
      all.await();
      Answer<DeltaDiscoveryResponse> changes = new Answer<>();
      stub.deltaAggregatedResources(changes)
          .onNext(DeltaDiscoveryRequest.newBuilder().setTypeUrl(Resources.V3.LISTENER_TYPE_URL).build());
      changes.await();
    } finally {
      channel.shutdownNow();
    }
  }

  /** Waits for the first response. */
  private static final class Answer<T> implements StreamObserver<T> {
    private final CountDownLatch came = new CountDownLatch(1);

    void await() throws IOException {
      try {
        if (!came.await(60, TimeUnit.SECONDS)) {
          throw new IOException("no answer");
        }
      } catch (InterruptedException interrupted) {
        throw new IOException(interrupted);
      }
    }

    @Override
    public void onNext(T response) {
      came.countDown();
    }

    @Override
    public void onError(Throwable end) {}

    @Override
    public void onCompleted() {}
  }
}
