import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import java.util.Map;
import java.util.TreeMap;

/** What all calls have in common: they are counted, and their responses have the server's headers. */
final class Calls implements ServerInterceptor {
  private static final Metadata.Key<String> BACKEND = text("x-backend");
  private static final Metadata.Key<String> CLIENT = text("x-client");
  private static final Metadata.Key<String> COMPRESS = text("x-compress");
  private static final Metadata.Key<String> ECHO = text("x-echo");
  private static final Metadata.Key<byte[]> ECHO_BIN = Metadata.Key.of("x-echo-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final String name;
  private final Map<String, Long> counts = new TreeMap<>();

  Calls(String name) {
    this.name = name;
  }

  /** The calls that began, by method. */
  synchronized Map<String, Long> counts() {
    return new TreeMap<>(counts);
  }

  private synchronized void count(String method) {
    counts.merge(method, 1L, Long::sum);
  }

  @Override
  public <Q, R> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, R> call, Metadata received, ServerCallHandler<Q, R> next) {
    count(call.getMethodDescriptor().getBareMethodName());
    if (received.containsKey(COMPRESS)) {
      call.setCompression("gzip");
    }
    ServerCall<Q, R> named =
        new SimpleForwardingServerCall<Q, R>(call) {
          private boolean isSent;

          @Override
          public void sendHeaders(Metadata headers) {
            if (isSent) {
              return;
            }
            isSent = true;
            headers.put(BACKEND, name);
            String client = ClientNames.of(call.getAttributes());
            if (client != null) {
              headers.put(CLIENT, client);
            }
            copy(received, headers, ECHO);
            copy(received, headers, ECHO_BIN);
            super.sendHeaders(headers);
          }
        };
    if (call.getMethodDescriptor().getType() == MethodType.BIDI_STREAMING) {
      // Before the first message, so that a client can wait for them.
      named.sendHeaders(new Metadata());
    }
    return next.startCall(named, received);
  }

  private static <T> void copy(Metadata from, Metadata to, Metadata.Key<T> key) {
    Iterable<T> values = from.getAll(key);
    if (values != null) {
      values.forEach(value -> to.put(key, value));
    }
  }

  static Metadata.Key<String> text(String key) {
    return Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER);
  }
}
