//! CH7.5 and CH7.6 with files: rotations of every kind.

use std::{fs, os::unix::fs::symlink, path::Path};

use tokio_rustls::rustls::pki_types::CertificateDer;

use super::*;
use crate::tls::fixture::{self, Ca, Folder, dns};

/// A `file_watcher` of a folder: `tls.crt`, `tls.key` and `ca.crt`.
fn watcher(folder: &Folder) -> Arc<Material> {
    let mut config = FileWatcherConfig::identity(folder.path("tls.crt"), folder.path("tls.key"));
    config.ca_certificate_file = Some(folder.path("ca.crt"));
    Arc::new(Material::of_file_watcher("it".to_owned(), &config, &fixture::crypto()))
}

/// Reads the files, whether that is due or not.
async fn read(material: &Arc<Material>) -> Published {
    tokio::time::advance(DEFAULT_REFRESH_INTERVAL).await;
    material.refresh().await;
    material.published()
}

fn leaf(published: &Published) -> CertificateDer<'static> {
    published.identity.as_ref().unwrap_or_else(|why| panic!("{why}")).key.cert[0].clone()
}

#[tokio::test(start_paused = true)]
async fn ch7_6_certificate_and_key_change_together_or_not_at_all() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let (first, second) = (ca.issue([dns("a")]), ca.issue([dns("b")]));
    folder.write("ca.crt", ca.pem());
    folder.write_identity(&first);
    let material = watcher(&folder);
    assert_eq!(leaf(&read(&material).await), first.der);
    folder.write("tls.crt", &second.pem);
    assert_eq!(leaf(&read(&material).await), first.der, "unequal generations");
    assert!(material.identity.lock().await.failure().unwrap().contains("replace both"));
    // A second later, the key is there, too.
    folder.write("tls.key", second.key_pem());
    tokio::time::advance(Duration::from_secs(1)).await;
    material.refresh().await;
    assert_eq!(leaf(&material.published()), second.der);
}

#[tokio::test(start_paused = true)]
async fn ch7_6_files_that_are_unusable_keep_the_last_good_material() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let good = ca.issue([dns("a")]);
    folder.write("ca.crt", ca.pem());
    folder.write_identity(&good);
    let material = watcher(&folder);
    read(&material).await;
    let (half, half_key) = (&good.pem[..good.pem.len() / 2], &good.key_pem()[..40]);
    for (file, content, reason) in [
        ("tls.crt", Some(half), "missing section end"),
        ("tls.crt", Some(""), "no certificate in it"),
        ("tls.crt", None, "No such file"),
        ("tls.key", Some(half_key), "missing section end"),
        ("tls.key", Some(""), "no private key in it"),
        ("tls.key", None, "No such file"),
    ] {
        write_or_remove(&folder, file, content);
        assert_eq!(leaf(&read(&material).await), good.der, "{file} {reason}");
        let failure = material.identity.lock().await.failure().unwrap().clone();
        assert!(failure.contains(file) && failure.contains(reason), "{failure:?}: {reason:?}");
        folder.write_identity(&good);
        read(&material).await;
        assert_eq!(material.identity.lock().await.failure(), None);
    }
    for (content, reason) in [
        (Some(&*format!("{}{half}", ca.pem())), "missing section end"),
        (Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "BadEncoding"),
        (Some("text"), "no certificate in it"),
        (None, "No such file"),
    ] {
        write_or_remove(&folder, "ca.crt", content);
        assert!(read(&material).await.roots.is_ok(), "{reason}");
        let failure = material.roots.lock().await.failure().unwrap().clone();
        assert!(
            failure.contains("ca_certificate_file") && failure.contains(reason),
            "{failure:?}: {reason:?}"
        );
    }
    assert_eq!(material.identity.lock().await.failure(), None, "each is refreshed by itself");
}

#[tokio::test(start_paused = true)]
async fn ch7_6_a_directory_that_kubernetes_swaps_is_a_rotation_of_all_its_files() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let generations = [ca.issue([dns("a")]), ca.issue([dns("b")])];
    for (at, issued) in generations.iter().enumerate() {
        let of = folder.path(&format!("..{at}"));
        fs::create_dir(&of).unwrap();
        fs::write(of.join("tls.crt"), &issued.pem).unwrap();
        fs::write(of.join("tls.key"), issued.key_pem()).unwrap();
        fs::write(of.join("ca.crt"), ca.pem()).unwrap();
    }
    symlink("..0", folder.path("..data")).unwrap();
    for file in ["tls.crt", "tls.key", "ca.crt"] {
        symlink(format!("..data/{file}"), folder.path(file)).unwrap();
    }
    let material = watcher(&folder);
    let before = read(&material).await;
    assert_eq!(leaf(&before), generations[0].der);
    symlink("..1", folder.path("..data_tmp")).unwrap();
    fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
    fs::remove_dir_all(folder.path("..0")).unwrap();
    let after = read(&material).await;
    assert_eq!(leaf(&after), generations[1].der);
    assert!(Arc::ptr_eq(&before.roots.unwrap(), &after.roots.unwrap()), "roots of the same bytes stay");
}

#[tokio::test(start_paused = true)]
async fn ch7_6_unchanged_files_leave_the_material_as_it_is() {
    let (folder, ca) = (Folder::new(), Ca::new());
    folder.write("ca.crt", ca.pem());
    let issued = ca.issue([dns("a")]);
    folder.write_identity(&issued);
    let material = watcher(&folder);
    let before = read(&material).await;
    folder.write_identity(&issued); // another file of the same bytes
    let after = read(&material).await;
    assert!(Arc::ptr_eq(&before.identity.ok().unwrap(), &after.identity.ok().unwrap()));
    assert!(Arc::ptr_eq(&before.roots.unwrap(), &after.roots.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn ch7_5_a_handshake_without_material_reads_at_most_once_a_second() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let material = watcher(&folder);
    let missing = material.for_handshake(Need::Roots, Freshness::Watched).await.roots.unwrap_err();
    assert!(missing.contains("No such file"), "{missing}");
    folder.write("ca.crt", ca.pem());
    assert!(
        material.for_handshake(Need::Roots, Freshness::Watched).await.roots.is_err(),
        "the second is not over"
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(material.for_handshake(Need::Roots, Freshness::Watched).await.roots.is_ok());
}

#[tokio::test(start_paused = true)]
async fn ch7_14_material_that_is_not_configured_is_an_error() {
    let folder = Folder::new();
    let roots = FileWatcherConfig::roots(folder.write("ca.crt", Ca::new().pem()));
    let material = Arc::new(Material::of_file_watcher("it".to_owned(), &roots, &fixture::crypto()));
    let published = material.for_handshake(Need::Identity, Freshness::Watched).await;
    assert_eq!(&*published.identity.err().unwrap(), "it has no certificate_file");
    let issued = Ca::new().issue([dns("a")]);
    let (certificate, key) = folder.write_identity(&issued);
    let identity = FileWatcherConfig::identity(certificate, key);
    let material = Arc::new(Material::of_file_watcher("it".to_owned(), &identity, &fixture::crypto()));
    let published = material.for_handshake(Need::Roots, Freshness::Watched).await;
    assert!(published.roots.unwrap_err().starts_with("it has neither a ca_certificate_file nor"));
}

#[tokio::test(start_paused = true)]
async fn ch7_11_a_map_replaces_the_roots_even_if_it_is_unusable_and_the_old_one_is_kept() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let mut config = FileWatcherConfig::roots(folder.write("ca.crt", ca.pem()));
    config.spiffe_trust_bundle_map_file = Some(folder.write("map.json", "{"));
    let material = Arc::new(Material::of_file_watcher("it".to_owned(), &config, &fixture::crypto()));
    let broken = read(&material).await.roots.unwrap_err();
    assert!(broken.starts_with("spiffe_trust_bundle_map_file ") && broken.contains("not JSON"), "{broken}");
    folder.write("map.json", serde_json::json!({ "trust_domains": { "a": ca.bundle() } }).to_string());
    let loaded = read(&material).await.roots.unwrap();
    assert!(matches!(&*loaded, TrustRoots::Spiffe(map) if map.roots("a").is_some()));
    folder.write("map.json", "{}");
    assert!(Arc::ptr_eq(&loaded, &read(&material).await.roots.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn ch7_6_an_expired_certificate_of_the_client_is_used_and_named() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let expired = ca.issue_with([dns("a")], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let (certificate, key) = folder.write_identity(&expired);
    let identity = FileWatcherConfig::identity(&certificate, key);
    let material = Arc::new(Material::of_file_watcher("it".to_owned(), &identity, &fixture::crypto()));
    let identity = read(&material).await.identity.ok().unwrap();
    let end = identity.not_after.unwrap();
    assert_eq!(identity.expired(end), None);
    assert_eq!(
        identity.expired(end + Duration::from_secs(5)).unwrap(),
        format!(
            "certificate_file {}: the client's certificate has expired 5 s ago (not after 2020-01-01T00:00:00Z): replace it",
            certificate.display()
        )
    );
}

fn write_or_remove(folder: &Folder, file: &str, content: Option<&str>) {
    match content {
        Some(content) => drop(folder.write(file, content)),
        None => fs::remove_file(folder.path(file)).unwrap(),
    }
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn ch7_27_a_fifo_in_the_place_of_a_file_is_an_error_and_rotations_go_on() {
    let (folder, ca, other) = (Folder::new(), Ca::new(), Ca::new());
    folder.write("ca.crt", ca.pem());
    folder.write_identity(&ca.issue([dns("a")]));
    let material = watcher(&folder);
    read(&material).await.roots.unwrap_or_else(|why| panic!("{why}"));
    fs::remove_file(folder.path("ca.crt")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.path("ca.crt")).status().unwrap().success());
    assert!(read(&material).await.roots.is_ok(), "the last good material is kept");
    let failure = material.roots.lock().await.failure().unwrap().clone();
    assert!(failure.ends_with("ca.crt: it is not a regular file"), "{failure}");
    fs::remove_file(folder.path("ca.crt")).unwrap();
    folder.write("ca.crt", other.pem());
    assert_eq!(read(&material).await.rotations.roots, 1);
    assert_eq!(material.roots.lock().await.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn ch7_27_roots_that_hang_delay_neither_the_identity_nor_later_rotations() {
    let (folder, ca, other) = (Folder::new(), Ca::new(), Ca::new());
    let (first, second) = (ca.issue([dns("a")]), ca.issue([dns("b")]));
    folder.write("ca.crt", ca.pem());
    folder.write_identity(&first);
    let material = watcher(&folder);
    read(&material).await;
    // All readings of the roots hang.
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let ends = Arc::new(Mutex::new(ends));
    for _ in 0..crate::file_reads::MAX_HANGING {
        let (of, path, ends) = (material.clone(), folder.path("ca.crt"), ends.clone());
        tokio::spawn(async move {
            let hangs = move || Ok(ends.lock().unwrap().recv());
            of.reads.read("it", &path, hangs).await
        });
    }
    tokio::task::yield_now().await;
    folder.write_identity(&second);
    folder.write("ca.crt", other.pem());
    tokio::time::advance(DEFAULT_REFRESH_INTERVAL).await;
    let refresh = tokio::spawn({
        let material = material.clone();
        async move { material.refresh().await }
    });
    while material.published().rotations.identity == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(leaf(&material.published()), second.der, "the identity is there before");
    let identity = material.for_handshake(Need::Identity, Freshness::Watched).await;
    assert_eq!(leaf(&identity), second.der, "no handshake waits for what it does not need");
    tokio::time::advance(Duration::from_secs(11)).await;
    refresh.await.unwrap();
    assert_eq!(material.published().rotations.roots, 0, "the last good roots are kept");
    let failure = material.roots.lock().await.failure().unwrap().clone();
    assert!(failure.contains("2 readings before have not ended"), "{failure}");
    drop(end);
    while material.reads.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&material).await.rotations.roots, 1, "the roots of the file are there");
}

#[test]
fn ch7_6_a_file_without_end_is_an_error() {
    let error = files::read("ca_certificate_file", Path::new("/dev/zero")).unwrap_err();
    assert_eq!(error, "ca_certificate_file /dev/zero: it is not a regular file");
}

#[tokio::test(start_paused = true)]
async fn a65_files_that_hang_delay_a_handshake_that_has_good_ones_for_a_moment() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let config = TlsConfig::default().with_ca_certificate_file(folder.write("ca.crt", ca.pem()));
    let material = Arc::new(Material::of_server(&config, "xds.example:443", &fixture::crypto()));
    let roots = async || material.for_handshake(Need::Roots, Freshness::Handshake).await.roots.unwrap();
    let first = roots().await;
    // As if a reading had not ended.
    let hanging = material.roots.clone().lock_owned().await;
    folder.write("ca.crt", Ca::new().pem());
    let begin = tokio::time::Instant::now();
    assert!(Arc::ptr_eq(&first, &roots().await));
    assert_eq!(begin.elapsed(), REFRESH_WAIT);
    drop(hanging);
    assert!(!Arc::ptr_eq(&first, &roots().await));
}
