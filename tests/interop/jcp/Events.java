import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.rpc.Status;
import io.envoyproxy.controlplane.server.DiscoveryServerCallbacks;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryResponse;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryResponse;
import java.util.List;

/** Reports streams, requests and responses, as gcp/events.go does. */
final class Events implements DiscoveryServerCallbacks {
  @Override
  public void onStreamOpen(long stream, String typeUrl) {
    emit(event("opened", stream));
  }

  @Override
  public void onStreamClose(long stream, String typeUrl) {
    emit(event("closed", stream));
  }

  @Override
  public void onStreamCloseWithError(long stream, String typeUrl, Throwable error) {
    emit(event("closed", stream));
  }

  @Override
  public void onV3StreamRequest(long stream, DiscoveryRequest request) {
    JsonObject event = typed("request", stream, request.getTypeUrl());
    event.addProperty("node", request.getNode().getId());
    event.addProperty("version", request.getVersionInfo());
    event.addProperty("nonce", request.getResponseNonce());
    event.addProperty("names", request.getResourceNamesCount());
    event.addProperty("bytes", request.getSerializedSize());
    if (request.hasErrorDetail()) {
      event.add("error", error(request.getErrorDetail()));
    }
    emit(event);
  }

  @Override
  public void onV3StreamDeltaRequest(long stream, DeltaDiscoveryRequest request) {
    JsonObject event = typed("request", stream, request.getTypeUrl());
    event.addProperty("node", request.getNode().getId());
    event.addProperty("nonce", request.getResponseNonce());
    event.add("subscribe", array(request.getResourceNamesSubscribeList()));
    event.add("unsubscribe", array(request.getResourceNamesUnsubscribeList()));
    event.addProperty("held", request.getInitialResourceVersionsCount());
    event.addProperty("bytes", request.getSerializedSize());
    if (request.hasErrorDetail()) {
      event.add("error", error(request.getErrorDetail()));
    }
    emit(event);
  }

  @Override
  public void onV3StreamResponse(long stream, DiscoveryRequest request, DiscoveryResponse response) {
    JsonObject event = typed("response", stream, response.getTypeUrl());
    event.addProperty("version", response.getVersionInfo());
    event.addProperty("nonce", response.getNonce());
    event.addProperty("resources", response.getResourcesCount());
    event.addProperty("bytes", response.getSerializedSize());
    emit(event);
  }

  @Override
  public void onV3StreamDeltaResponse(
      long stream, DeltaDiscoveryRequest request, DeltaDiscoveryResponse response) {
    JsonObject event = typed("response", stream, response.getTypeUrl());
    event.addProperty("version", response.getSystemVersionInfo());
    event.addProperty("nonce", response.getNonce());
    event.addProperty("resources", response.getResourcesCount());
    event.add("removed", array(response.getRemovedResourcesList()));
    event.addProperty("bytes", response.getSerializedSize());
    emit(event);
  }

  /** Writes one JSON line. */
  static void emit(JsonObject line) {
    synchronized (System.out) {
      System.out.println(line);
      System.out.flush();
    }
  }

  /** The last part of a type URL: Cluster. */
  static String shortName(String url) {
    return url.substring(Math.max(url.lastIndexOf('.'), url.lastIndexOf('/')) + 1);
  }

  private static JsonObject event(String what, long stream) {
    JsonObject event = new JsonObject();
    event.addProperty("event", what);
    event.addProperty("stream", stream);
    return event;
  }

  private static JsonObject typed(String what, long stream, String url) {
    JsonObject event = event(what, stream);
    event.addProperty("type", shortName(url));
    return event;
  }

  private static JsonArray array(List<String> texts) {
    JsonArray array = new JsonArray(texts.size());
    texts.forEach(array::add);
    return array;
  }

  private static JsonObject error(Status detail) {
    JsonObject error = new JsonObject();
    error.addProperty("code", detail.getCode());
    error.addProperty("message", detail.getMessage());
    return error;
  }
}
