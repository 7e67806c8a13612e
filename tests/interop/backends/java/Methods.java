import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** The methods of the service, whose messages are bytes. */
final class Methods {
  private static final String SERVICE = "interop.Backend";
  private static final Metadata.Key<String> TRAILER = Calls.text("x-trailer");
  private static final Metadata.Key<byte[]> TRAILER_BIN =
      Metadata.Key.of("x-trailer-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final String name;
  private final ScheduledExecutorService timers = Executors.newSingleThreadScheduledExecutor();

  private Methods(String name) {
    this.name = name;
  }

  static ServerServiceDefinition service(String name) {
    Methods methods = new Methods(name);
    return ServerServiceDefinition.builder(SERVICE)
        .addMethod(method("Echo", MethodType.UNARY), ServerCalls.asyncUnaryCall(Methods::echo))
        .addMethod(
            method("Collect", MethodType.CLIENT_STREAMING), ServerCalls.asyncClientStreamingCall(Methods::collect))
        .addMethod(
            method("Expand", MethodType.SERVER_STREAMING), ServerCalls.asyncServerStreamingCall(Methods::expand))
        .addMethod(method("Chat", MethodType.BIDI_STREAMING), ServerCalls.asyncBidiStreamingCall(Methods::chat))
        .addMethod(method("Hold", MethodType.UNARY), ServerCalls.asyncUnaryCall(methods::hold))
        .addMethod(method("Fail", MethodType.UNARY), ServerCalls.asyncUnaryCall(methods::fail))
        .build();
  }

  private static void echo(byte[] message, StreamObserver<byte[]> responses) {
    responses.onNext(message);
    responses.onCompleted();
  }

  private static StreamObserver<byte[]> collect(StreamObserver<byte[]> responses) {
    return new Requests() {
      private int messages;
      private int size;

      @Override
      public void onNext(byte[] message) {
        messages++;
        size += message.length;
      }

      @Override
      public void onCompleted() {
        echo(bytes(messages + " " + size), responses);
      }
    };
  }

  private static void expand(byte[] message, StreamObserver<byte[]> responses) {
    String[] words = string(message).split(" ");
    byte[] each = "x".repeat(Integer.parseInt(words[1])).getBytes(StandardCharsets.UTF_8);
    for (int i = Integer.parseInt(words[0]); i > 0; i--) {
      responses.onNext(each);
    }
    responses.onCompleted();
  }

  private static StreamObserver<byte[]> chat(StreamObserver<byte[]> responses) {
    report("began", "Chat");
    observer(responses).setOnCancelHandler(() -> report("cancelled", "Chat"));
    return new Requests() {
      @Override
      public void onNext(byte[] message) {
        responses.onNext(message);
      }

      @Override
      public void onCompleted() {
        responses.onCompleted();
      }
    };
  }

  private void hold(byte[] message, StreamObserver<byte[]> responses) {
    report("began", "Hold");
    ServerCallStreamObserver<byte[]> call = observer(responses);
    call.setOnCancelHandler(() -> report("cancelled", "Hold"));
    Runnable end =
        () -> {
          if (!call.isCancelled()) {
            echo(bytes("held"), call);
          }
        };
    timers.schedule(end, Long.parseLong(string(message)), TimeUnit.MILLISECONDS);
  }

  private void fail(byte[] message, StreamObserver<byte[]> responses) {
    String[] words = string(message).split(" ", 2);
    Metadata trailers = new Metadata();
    trailers.put(TRAILER, name);
    trailers.put(TRAILER_BIN, new byte[] {0, 1, (byte) 0xff});
    Status status = Status.fromCodeValue(Integer.parseInt(words[0])).withDescription(words[1]);
    responses.onError(status.asRuntimeException(trailers));
  }

  /** The requests of a client's stream. A cancelled one is reported by the handler of the responses. */
  private abstract static class Requests implements StreamObserver<byte[]> {
    @Override
    public void onError(Throwable cancelled) {}
  }

  private static ServerCallStreamObserver<byte[]> observer(StreamObserver<byte[]> responses) {
    return (ServerCallStreamObserver<byte[]>) responses;
  }

  private static void report(String event, String method) {
    Backend.emit("{\"event\":\"" + event + "\",\"method\":\"" + method + "\"}");
  }

  private static MethodDescriptor<byte[], byte[]> method(String method, MethodType type) {
    return MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(type)
        .setFullMethodName(MethodDescriptor.generateFullMethodName(SERVICE, method))
        .setRequestMarshaller(new Bytes())
        .setResponseMarshaller(new Bytes())
        .build();
  }

  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] message) {
      return new ByteArrayInputStream(message);
    }

    @Override
    public byte[] parse(InputStream message) {
      try {
        return message.readAllBytes();
      } catch (IOException broken) {
        throw new UncheckedIOException(broken);
      }
    }
  }

  private static String string(byte[] message) {
    return new String(message, StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
