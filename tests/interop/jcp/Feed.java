import com.google.rpc.Status;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryResponse;
import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

/** The mesh from the program of gcp/: see gcp/feed.go. */
final class Feed {
  private final OutputStream commands;
  private final InputStream answers;
  private final Map<String, String> versions = new TreeMap<>();

  Feed(String gcp) throws IOException {
    // It ends at EOF of its standard input, and so with this process.
    Process process = new ProcessBuilder(gcp, "-feed").redirectError(ProcessBuilder.Redirect.INHERIT).start();
    commands = process.getOutputStream();
    answers = new BufferedInputStream(process.getInputStream());
  }

  /** Changes the mesh, and returns it. */
  Map<String, DiscoveryResponse> command(String line) throws IOException {
    commands.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    commands.flush();
    return next();
  }

  /** All current resources by type URL. */
  Map<String, DiscoveryResponse> next() throws IOException {
    Status status = Status.parseDelimitedFrom(answers);
    if (status == null) {
      throw new EOFException("the feed has ended");
    }
    Map<String, DiscoveryResponse> all = new LinkedHashMap<>();
    for (DiscoveryResponse each = read(); !each.getTypeUrl().isEmpty(); each = read()) {
      all.put(each.getTypeUrl(), each);
    }
    if (status.getCode() != 0) {
      throw new IOException(status.getMessage());
    }
    all.forEach((url, response) -> versions.put(url, response.getVersionInfo()));
    return all;
  }

  /** The versions of the types by their URLs. */
  Map<String, String> versions() {
    return versions;
  }

  private DiscoveryResponse read() throws IOException {
    DiscoveryResponse response = DiscoveryResponse.parseDelimitedFrom(answers);
    if (response == null) {
      throw new EOFException("the feed has ended");
    }
    return response;
  }
}
