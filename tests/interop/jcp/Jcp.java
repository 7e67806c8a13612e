import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/**
 * A management server for the interoperability tests: java-control-plane around the mesh of gcp/mesh.go.
 *
 * <p>Usage: Jcp PORT GCP, where PORT may be 0 and GCP is the program of gcp/, the source of the mesh. The commands on standard
 * input and the lines on standard output are those of that program: see gcp/main.go.
 */
public final class Jcp {
  private final Server server;
  private final SnapshotCache cache;
  private final Feed feed;

  private Jcp(int port, String gcp) throws IOException {
    cache = new SnapshotCache();
    server = new Server(port, cache, List.of(new Events()));
    feed = new Feed(gcp);
  }

  public static void main(String[] args) throws IOException {
    if (args.length != 2) {
      System.err.println("usage: Jcp PORT GCP");
      System.exit(2);
    }
    new Jcp(Integer.parseInt(args[0]), args[1]).run();
    System.exit(0); // threads of gRPC may still run
  }

  private void run() throws IOException {
    cache.publish(feed.next());
    Server other = new Server(0, cache, List.of());
    other.start();
    WarmUp.of(other.port());
    other.stop();
    server.start();
    JsonObject first = new JsonObject();
    first.addProperty("port", server.port());
    Events.emit(first);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      line = line.trim();
      if (line.isEmpty()) {
        continue;
      }
      if (line.equals("quit")) {
        server.stop();
        answer("done", line);
        return;
      }
      try {
        carryOut(line);
        JsonObject done = labelled("done", line);
        done.add("versions", versions());
        Events.emit(done);
      } catch (IOException refused) {
        JsonObject failed = labelled("failed", line);
        failed.addProperty("reason", refused.getMessage());
        Events.emit(failed);
      }
    }
    server.stop(); // the parent process is gone
  }

  private void carryOut(String line) throws IOException {
    switch (line) {
      case "stop":
        server.stop();
        break;
      case "start":
        server.start();
        break;
      case "restart":
        server.stop();
        server.start();
        break;
      default:
        cache.publish(feed.command(line));
    }
  }

  private JsonObject versions() {
    JsonObject versions = new JsonObject();
    for (Map.Entry<String, String> version : feed.versions().entrySet()) {
      versions.addProperty(Events.shortName(version.getKey()), version.getValue());
    }
    return versions;
  }

  private static void answer(String label, String line) {
    Events.emit(labelled(label, line));
  }

  private static JsonObject labelled(String label, String line) {
    JsonObject object = new JsonObject();
    object.addProperty(label, line);
    return object;
  }
}
