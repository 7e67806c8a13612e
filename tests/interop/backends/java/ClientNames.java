import io.grpc.Attributes;
import io.grpc.Grpc;
import java.security.cert.Certificate;
import java.security.cert.CertificateParsingException;
import java.security.cert.X509Certificate;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;

/** The subject alternative names in the certificate of a client. */
final class ClientNames {
  /** Email, DNS and URI, by the numbers of RFC 5280. */
  private static final Set<Integer> TYPES = Set.of(1, 2, 6);

  private ClientNames() {}

  /** Returns the names, sorted and joined by commas, or null without a certificate. */
  static String of(Attributes connection) {
    SSLSession session = connection.get(Grpc.TRANSPORT_ATTR_SSL_SESSION);
    if (session == null) {
      return null;
    }
    try {
      Certificate leaf = session.getPeerCertificates()[0];
      Collection<List<?>> all = ((X509Certificate) leaf).getSubjectAlternativeNames();
      Set<String> names = new TreeSet<>();
      for (List<?> name : all == null ? List.<List<?>>of() : all) {
        if (TYPES.contains(name.get(0))) {
          names.add((String) name.get(1));
        }
      }
      return String.join(",", names);
    } catch (SSLPeerUnverifiedException none) {
      return null;
    } catch (CertificateParsingException malformed) {
      throw new IllegalStateException(malformed);
    }
  }
}
