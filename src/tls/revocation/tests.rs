//! CH7.17: which certificates are refused by which lists.

use std::{fs, path::Path};

use rcgen::{
    CertificateParams, CrlDistributionPoint, CrlIssuingDistributionPoint, CrlScope, KeyUsagePurpose,
    date_time_ymd,
};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::*;
use crate::{
    test_log::Log,
    tls::fixture::{self, Ca, Folder, dns},
};

/// A root, an intermediate authority of it (2), and a server of that (3), with a directory for lists.
struct World {
    folder: Folder,
    root: Ca,
    authority: Ca,
    server: CertificateDer<'static>,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {}, |_| {})
    }

    fn with(
        authority: impl FnOnce(&mut CertificateParams),
        server: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let root = Ca::named("root");
        let authority = root.intermediate("authority", 2, authority);
        let issued = authority.issue_with([dns("a.example")], |params| {
            params.serial_number = Some(3.into());
            server(params);
        });
        Self { folder: Folder::new(), root, authority, server: issued.der }
    }

    fn directory(&self) -> PathBuf {
        self.folder.path("")
    }

    fn lists(&self) -> RevocationLists {
        RevocationLists::directory(self.directory())
    }

    /// The result with the files as they are now: fail-open, and fail-closed.
    async fn verify(&self) -> (Result<(), String>, Result<(), String>) {
        let closed = self.verify_with(&Revocation::new(self.lists())).await;
        (self.verify_with(&Revocation::new(self.lists().fail_open())).await, closed)
    }

    async fn verify_with(&self, revocation: &Arc<Revocation>) -> Result<(), String> {
        let lists = revocation.for_handshake().await;
        let now = date_time_ymd(2026, 1, 1).unix_timestamp().unsigned_abs();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let (intermediates, roots) = ([self.authority.0.der().clone()], self.root.store());
        let algorithms = fixture::provider().signature_verification_algorithms.all;
        let chain =
            Chain { leaf: &self.server, intermediates: &intermediates, roots: &roots, role: Role::Server };
        lists.verify(&chain, now, algorithms)
    }

    /// Both modes refuse the server, for the same reason.
    async fn refused(&self) -> String {
        let (open, closed) = self.verify().await;
        assert_eq!(open, closed);
        open.unwrap_err()
    }

    /// It is refused by lists that fail closed alone.
    async fn undetermined(&self) -> String {
        let (open, closed) = self.verify().await;
        assert_eq!(open, Ok(()));
        closed.unwrap_err()
    }
}

/// Reads the files, whether that is due or not.
async fn read(revocation: &Arc<Revocation>) {
    tokio::time::advance(DEFAULT_REFRESH_INTERVAL).await;
    revocation.read(false).await;
}

fn contains(error: &str, texts: &[&str]) {
    for text in texts {
        assert!(error.contains(text), "{error:?} has no {text:?}");
    }
}

#[tokio::test]
async fn ch7_17_a_server_whose_chain_is_in_no_list_is_accepted() {
    let world = World::new();
    world.folder.write("root.crl", world.root.revoke(&[9]).pem().unwrap());
    world.folder.write("authority.crl", world.authority.revoke(&[2]).der()); // of another issuer
    assert_eq!(world.verify().await, (Ok(()), Ok(())));
    // The same by files, in one of which are both.
    let both = [world.root.revoke(&[]).pem().unwrap(), world.authority.revoke(&[1, 4]).pem().unwrap()];
    let file = world.folder.write("both.pem", both.concat());
    assert_eq!(world.verify_with(&Revocation::new(RevocationLists::files([file]))).await, Ok(()));
}

#[tokio::test]
async fn ch7_17_a_revoked_server_is_refused_with_its_serial_number_issuer_and_list() {
    let world = World::new();
    let file = world.folder.write("b.crl", world.authority.revoke(&[3, 300]).pem().unwrap());
    assert_eq!(
        world.refused().await,
        format!(
            "certificate 03 of the issuer \"CN=authority\" is revoked by {}: replace the certificate",
            file.display()
        )
    );
    // Another list of the issuer without it makes no difference.
    world.folder.write("a.crl", world.authority.revoke(&[]).pem().unwrap());
    world.refused().await;
}

#[tokio::test]
async fn ch7_17_a_server_of_a_revoked_authority_is_refused() {
    let world = World::new();
    world.folder.write("authority.crl", world.authority.revoke(&[]).pem().unwrap());
    world.folder.write("root.crl", world.root.revoke(&[2]).der());
    let refused = world.refused().await;
    contains(
        &refused,
        &["the authority's certificate 02 of the issuer \"CN=root\" is revoked by", "root.crl"],
    );
    // A certificate that is undetermined hides no revocation.
    fs::remove_file(world.folder.path("authority.crl")).unwrap();
    assert_eq!(world.refused().await, refused);
}

#[tokio::test]
async fn ch7_17_without_a_list_of_the_issuer_the_status_is_undetermined() {
    let world = World::new();
    let why = world.undetermined().await;
    let directory = world.directory();
    assert_eq!(
        why,
        format!(
            "the revocation of certificate 03 of the issuer \"CN=authority\" is not determined by the certificate \
             revocation lists in {}: there is no list of its issuer (to accept such certificates, use \
             `RevocationLists::fail_open`)",
            directory.display()
        )
    );
    world.folder.write("other.crl", Ca::named("other").revoke(&[3]).der());
    world.folder.write("authority.crl", world.authority.revoke(&[]).der());
    contains(&world.undetermined().await, &["the authority's certificate 02", "\"CN=root\"", "no list"]);
}

#[tokio::test]
async fn ch7_17_an_expired_list_determines_nothing_but_what_it_has_revoked() {
    let world = World::new();
    let expired = |serials: &[u64]| {
        world.authority.revoke_with(serials, |list| list.next_update = date_time_ymd(2025, 12, 31))
    };
    world.folder.write("root.crl", world.root.revoke(&[]).der());
    world.folder.write("expired.crl", expired(&[]).der());
    contains(&world.undetermined().await, &["certificate 03", "expired.crl has expired 86400 s ago"]);
    world.folder.write("expired.crl", expired(&[3]).der());
    contains(&world.refused().await, &["is revoked by", "expired.crl"]);
    world.folder.write("expired.crl", expired(&[]).der());
    world.folder.write("current.crl", world.authority.revoke(&[]).der());
    assert_eq!(world.verify().await, (Ok(()), Ok(())));
}

#[tokio::test]
async fn ch7_17_a_forged_list_is_not_believed() {
    let world = World::new();
    let forger = Ca::named("authority");
    world.folder.write("root.crl", world.root.revoke(&[]).der());
    world.folder.write("a.crl", forger.revoke(&[3]).der());
    contains(&world.undetermined().await, &["a.crl is not signed by the key of the issuer"]);
    world.folder.write("a.crl", forger.revoke(&[]).der());
    world.undetermined().await;
    // It hides no other list of that name.
    world.folder.write("b.crl", world.authority.revoke(&[]).der());
    assert_eq!(world.verify().await, (Ok(()), Ok(())));
    world.folder.write("b.crl", world.authority.revoke(&[3]).der());
    world.refused().await;
    // A list whose signature is of other content.
    let mut altered = world.authority.revoke(&[4]).der().to_vec();
    let at = altered.windows(3).position(|it| it == [2, 1, 4]).unwrap();
    altered[at + 2] = 3;
    world.folder.write("b.crl", altered);
    contains(&world.undetermined().await, &["b.crl is not signed by"]);
}

#[tokio::test]
async fn ch7_17_an_issuer_that_may_not_sign_lists_is_not_believed() {
    let signer = World::with(
        |authority| authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign],
        |_| {},
    );
    let list = signer.authority.revoke(&[3]);
    signer.folder.write("root.crl", signer.root.revoke(&[]).der());
    signer.folder.write("a.crl", list.der());
    signer.refused().await;
    // The same key, with a certificate for other purposes.
    let mut world = World::new();
    world.folder.write("root.crl", world.root.revoke(&[]).der());
    world.folder.write("a.crl", world.authority.revoke(&[3]).der());
    let key = rcgen::KeyPair::from_pem(&world.authority.0.key().serialize_pem()).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    world.authority = Ca(rcgen::CertifiedIssuer::signed_by(params, key, &world.root.0).unwrap());
    contains(&world.undetermined().await, &["is not for signing lists, such as", "a.crl"]);
}

#[tokio::test]
async fn ch7_17_a_list_counts_for_the_certificates_that_it_is_about() {
    let point = |uri: &str| CrlDistributionPoint { uris: vec![uri.to_owned()] };
    let world = World::with(|_| {}, |server| server.crl_distribution_points = vec![point("http://a/1.crl")]);
    let about = |uri: &str, scope: Option<CrlScope>| {
        let of = CrlIssuingDistributionPoint { distribution_point: point(uri), scope };
        move |list: &mut rcgen::CertificateRevocationListParams| list.issuing_distribution_point = Some(of)
    };
    world.folder.write("root.crl", world.root.revoke_with(&[], about("http://r", None)).der());
    for (uri, scope, is_about) in [
        ("http://a/1.crl", None, true),
        ("http://a/2.crl", None, false),
        ("http://a/1.crl", Some(CrlScope::UserCertsOnly), true),
        ("http://a/1.crl", Some(CrlScope::CaCertsOnly), false),
    ] {
        let text = format!("{uri} {scope:?}");
        world.folder.write("a.crl", world.authority.revoke_with(&[], about(uri, scope)).der());
        match is_about {
            true => assert_eq!(world.verify().await, (Ok(()), Ok(())), "{text}"),
            false => contains(&world.undetermined().await, &["a.crl is about other certificates"]),
        }
        world.folder.write("a.crl", world.authority.revoke_with(&[3], about(uri, None)).der());
        world.refused().await;
    }
    world.folder.write("a.crl", world.authority.revoke(&[]).der());
    let users = about("http://r", Some(CrlScope::UserCertsOnly));
    world.folder.write("root.crl", world.root.revoke_with(&[], users).der());
    contains(&world.undetermined().await, &["root.crl is about other certificates"]);
}

#[tokio::test(start_paused = true)]
async fn ch7_17_a_file_that_becomes_unusable_keeps_its_last_good_lists() {
    let world = World::new();
    world.folder.write("root.crl", world.root.revoke(&[]).der());
    let bad = world.authority.revoke(&[3]);
    let (der, pem) = (bad.der().to_vec(), bad.pem().unwrap());
    world.folder.write("a.crl", &der);
    let revocation = Revocation::new(world.lists());
    for (content, reason) in [
        (Some(&der[..der.len() / 2]), "cannot be used"),
        (Some(&pem.as_bytes()[..pem.len() / 2]), "missing section end"),
        (Some(b""), "no certificate revocation list (X509 CRL) in it"),
        (Some(world.root.pem().as_bytes()), "no certificate revocation list (X509 CRL) in it"),
        (Some(b"\x30\x82"), "cannot be used"),
    ] {
        world.folder.write("a.crl", &der);
        read(&revocation).await;
        let good = revocation.for_handshake().await;
        assert!(world.verify_with(&revocation).await.unwrap_err().contains("is revoked by"));
        write_or_remove(&world.folder.path("a.crl"), content);
        // The other file is newer than before all the same.
        world.folder.write("root.crl", world.root.revoke(&[reason.len() as u64]).der());
        read(&revocation).await;
        assert!(world.verify_with(&revocation).await.unwrap_err().contains("is revoked by"), "{reason}");
        let lists = revocation.for_handshake().await;
        assert!(!Arc::ptr_eq(&lists, &good));
        let error = revocation.readings.lock().await.failures().next().unwrap().to_string();
        contains(&error, &["certificate_revocation ", "a.crl: ", reason]);
    }
    // Half a file is read again after a second.
    world.folder.write("a.crl", world.authority.revoke(&[]).der());
    tokio::time::advance(Duration::from_secs(1)).await;
    revocation.read(false).await;
    assert_eq!(world.verify_with(&revocation).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn ch7_17_lists_of_a_file_that_is_gone_are_kept_while_another_cannot_be_read() {
    let world = World::new();
    world.folder.write("root.crl", world.root.revoke(&[]).der());
    let old = world.folder.write("old.crl", world.authority.revoke(&[3]).der());
    let revocation = Revocation::new(world.lists().fail_open());
    let is_revoked = async || {
        read(&revocation).await;
        world.verify_with(&revocation).await.is_err()
    };
    assert!(is_revoked().await);
    // Renamed, and not written yet.
    fs::remove_file(old).unwrap();
    let new = world.folder.write("new.crl", "");
    assert!(is_revoked().await && is_revoked().await);
    world.folder.write("new.crl", world.authority.revoke(&[3]).der());
    assert!(is_revoked().await);
    fs::remove_file(new).unwrap();
    assert!(!is_revoked().await);
    // Nor does a directory that is gone end its lists.
    world.folder.write("new.crl", world.authority.revoke(&[3]).der());
    assert!(is_revoked().await);
    fs::rename(world.directory(), world.directory().with_extension("moved")).unwrap();
    assert!(is_revoked().await);
    fs::rename(world.directory().with_extension("moved"), world.directory()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn ch7_17_lists_that_are_the_same_stay_the_same() {
    let world = World::new();
    let file = world.folder.write("root.crl", world.root.revoke(&[]).der());
    let revocation = Revocation::new(world.lists());
    let before = revocation.for_handshake().await;
    let bytes = fs::read(&file).unwrap();
    world.folder.write("root.crl", bytes);
    read(&revocation).await;
    assert!(Arc::ptr_eq(&before, &revocation.for_handshake().await));
    fs::remove_file(file).unwrap();
    read(&revocation).await;
    assert!(!Arc::ptr_eq(&before, &revocation.for_handshake().await));
}

#[tokio::test(start_paused = true)]
async fn ch7_17_without_lists_they_are_read_at_most_once_a_second() {
    let world = World::new();
    let missing = world.folder.path("not/yet");
    let lists = RevocationLists::directory(&missing);
    let revocation = Revocation::new(lists);
    let error = world.verify_with(&revocation).await.unwrap_err();
    contains(
        &error,
        &["there is no list of its issuer", "unusable: certificate_revocation ", "No such file"],
    );
    fs::create_dir_all(&missing).unwrap();
    let lists = [world.root.revoke(&[]).pem().unwrap(), world.authority.revoke(&[]).pem().unwrap()].concat();
    fs::write(missing.join("lists.pem"), lists).unwrap();
    world.verify_with(&revocation).await.unwrap_err();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(world.verify_with(&revocation).await, Ok(()));
}

#[tokio::test]
async fn ch7_17_hidden_files_and_directories_are_skipped() {
    let world = World::new();
    let both = [world.root.revoke(&[]).pem().unwrap(), world.authority.revoke(&[]).pem().unwrap()].concat();
    world.folder.write("5ed36f99.r0", both);
    world.folder.write(".new.crl.tmp", "half");
    fs::create_dir(world.folder.path("old")).unwrap();
    fs::write(world.folder.path("old/a.crl"), world.authority.revoke(&[3]).der()).unwrap();
    assert_eq!(world.verify().await, (Ok(()), Ok(())));
    let revocation = Revocation::new(world.lists());
    revocation.for_handshake().await;
    assert_eq!(revocation.readings.lock().await.failures().count(), 0);
}

#[tokio::test]
async fn ch7_17_lists_have_a_largest_size() {
    let world = World::new();
    let endless = RevocationLists::files(["/dev/zero"]);
    let error = world.verify_with(&Revocation::new(endless)).await.unwrap_err();
    contains(&error, &["unusable: certificate_revocation /dev/zero: it is not a regular file"]);
    for at in 0..5 {
        let file = fs::File::create(world.folder.path(&format!("{at}.crl"))).unwrap();
        file.set_len(16 << 20).unwrap();
    }
    let revocation = Revocation::new(world.lists());
    revocation.for_handshake().await;
    let failures: Vec<_> =
        revocation.readings.lock().await.failures().filter(|it| it.contains("in all")).cloned().collect();
    let [failure] = &*failures else { panic!("{failures:?}") };
    contains(failure, &["4.crl: more than 64 MiB of lists in all"]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "its clock begins some time")]
fn ch7_17_files_that_are_not_due_count_for_the_largest_size_too() {
    let world = World::new();
    let list = world.root.revoke(&[1]).der().to_vec();
    world.folder.write("a.crl", &list);
    world.folder.write("b.crl", "");
    let lists = world.lists();
    let mut readings = Readings::new(lists.refresh_interval).with_max_total(list.len() * 3 / 2);
    let (now, wall) = (Instant::now(), Duration::ZERO);
    readings.read_due(&lists, now, wall);
    world.folder.write("b.crl", &list);
    // It was half-written, and is read again alone.
    readings.read_due(&lists, now + Duration::from_secs(1), wall);
    let failures: Vec<_> = readings.failures().collect();
    let [failure] = &*failures else { panic!("{failures:?}") };
    contains(failure, &["b.crl: more than 0 MiB of lists in all"]);
}

#[test]
fn ch7_17_bytes_that_are_no_list_are_an_error() {
    use super::list::List;
    let der = Ca::new().revoke(&[1, 2]).der().to_vec();
    assert!(List::in_file(&der).is_ok());
    for end in 0..der.len() {
        assert!(List::in_file(&der[..end]).is_err(), "{end}");
    }
    for at in 0..der.len() {
        for byte in [0, 0x30, 0x7f, 0x80, 0xff] {
            let mut altered = der.clone();
            altered[at] = byte;
            // It does not panic. Some are lists, whose signatures are wrong.
            let _ = List::in_file(&altered);
        }
    }
}

#[test]
fn ch7_17_lists_that_are_unusable_or_have_expired_are_a_warning_once() {
    let (log, _guard) = Log::start("xdskit::tls=info");
    let world = World::new();
    let bad = world.folder.write("bad.crl", "");
    let expired = world.folder.write("expired.crl", world.root.revoke(&[]).der());
    let (start, lists) = (tokio::time::Instant::now().into_std(), world.lists());
    let mut readings = Readings::new(DEFAULT_REFRESH_INTERVAL);
    let mut read = |interval: u32, year: i32| {
        let wall = date_time_ymd(year, 6, 1).unix_timestamp().unsigned_abs();
        readings.read_due(&lists, start + interval * DEFAULT_REFRESH_INTERVAL, Duration::from_secs(wall));
    };
    read(0, 2039);
    read(1, 2039);
    read(2, 2040);
    read(3, 2040);
    world.folder.write("bad.crl", world.authority.revoke(&[]).der());
    read(4, 2039);
    read(5, 2040);
    let (bad, expired) = (bad.display(), expired.display());
    let has_expired = format!(
        "WARN xdskit::tls::revocation::readings: certificate revocation list has expired file=\"{expired}\" \
         seconds=13132800"
    );
    let unusable = format!(
        "WARN xdskit::tls::revocation::readings: certificate revocation lists are unusable; the last good ones are kept \
         file=\"{bad}\" reason=\"certificate_revocation {bad}: no certificate revocation list (X509 CRL) in it\""
    );
    let mut lines = log.lines();
    // The file that is usable again has expired, too.
    lines.retain(|line| !line.contains("has expired file") || line.contains("expired.crl"));
    assert_eq!(lines, [unusable, has_expired.clone(), has_expired]);
}

#[test]
fn ch7_17_lists_are_named_in_errors() {
    let files = RevocationLists::files(["a", "b", "c", "d", "e"]);
    assert_eq!(files.to_string(), "the certificate revocation lists a, b, c, d and 1 more");
    assert_eq!(RevocationLists::directory("/x").to_string(), "the certificate revocation lists in /x");
}

fn write_or_remove(path: &Path, content: Option<&[u8]>) {
    match content {
        Some(content) => fs::write(path, content).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
}
