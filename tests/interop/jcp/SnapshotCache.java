import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.Parser;
import io.envoyproxy.controlplane.cache.Resources;
import io.envoyproxy.controlplane.cache.Response;
import io.envoyproxy.controlplane.cache.Watch;
import io.envoyproxy.controlplane.cache.XdsRequest;
import io.envoyproxy.controlplane.cache.v3.SimpleCache;
import io.envoyproxy.controlplane.cache.v3.Snapshot;
import io.envoyproxy.envoy.config.cluster.v3.Cluster;
import io.envoyproxy.envoy.config.endpoint.v3.ClusterLoadAssignment;
import io.envoyproxy.envoy.config.listener.v3.Listener;
import io.envoyproxy.envoy.config.route.v3.RouteConfiguration;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/** The mesh as a snapshot, the same for all clients. */
final class SnapshotCache extends SimpleCache<String> {
  private static final String GROUP = "mesh";

  SnapshotCache() {
    super(node -> GROUP);
  }

  void publish(Map<String, DiscoveryResponse> mesh) throws InvalidProtocolBufferException {
    DiscoveryResponse clusters = mesh.get(Resources.V3.CLUSTER_TYPE_URL);
    DiscoveryResponse endpoints = mesh.get(Resources.V3.ENDPOINT_TYPE_URL);
    DiscoveryResponse listeners = mesh.get(Resources.V3.LISTENER_TYPE_URL);
    DiscoveryResponse routes = mesh.get(Resources.V3.ROUTE_TYPE_URL);
    setSnapshot(GROUP, Snapshot.create(
        parsed(clusters, Cluster.parser()), clusters.getVersionInfo(),
        parsed(endpoints, ClusterLoadAssignment.parser()), endpoints.getVersionInfo(),
        parsed(listeners, Listener.parser()), listeners.getVersionInfo(),
        parsed(routes, RouteConfiguration.parser()), routes.getVersionInfo(),
        List.of(), "1"));
  }

  /** Not in ADS mode, in which a request with a name outside of the snapshot gets no response. */
  @Override
  public Watch createWatch(
      boolean ads,
      XdsRequest request,
      Set<String> known,
      Consumer<Response> consumer,
      boolean hasClusterChanged,
      boolean allowDefaultEmptyEdsUpdate) {
    return super.createWatch(false, request, known, consumer, hasClusterChanged, allowDefaultEmptyEdsUpdate);
  }

  private static <T extends Message> List<T> parsed(DiscoveryResponse all, Parser<T> parser)
      throws InvalidProtocolBufferException {
    List<T> messages = new ArrayList<>();
    for (Any resource : all.getResourcesList()) {
      messages.add(parser.parseFrom(resource.getValue()));
    }
    return messages;
  }
}
