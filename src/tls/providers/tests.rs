//! CH7.4: instances, who shares them, and how long they run.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::{
    config::Server,
    tls::fixture::{self, Ca, Folder, dns},
};

fn providers(all: &[(&str, CertificateProvider)]) -> Arc<Providers> {
    let builder = Bootstrap::builder().server(Server::new("localhost:1").insecure());
    let builder = all
        .iter()
        .fold(builder, |builder, (name, provider)| builder.certificate_provider(*name, provider.clone()));
    Providers::new(&builder.build().unwrap(), &Registry::new(), fixture::crypto())
}

#[test]
fn ch7_4_instances_of_equal_configuration_are_one() {
    let files = |ca: &str| CertificateProvider::FileWatcher(FileWatcherConfig::roots(ca));
    let providers = providers(&[("a", files("x")), ("b", files("x")), ("c", files("y"))]);
    let of = |name: &str| providers.instance(name).unwrap();
    assert!(Arc::ptr_eq(of("a"), of("b")) && !Arc::ptr_eq(of("a"), of("c")));
    assert_eq!(of("a").origin(), "certificate provider instance \"a\", \"b\"");
}

#[test]
fn ch7_4_an_instance_that_is_not_usable_is_an_error_with_its_name() {
    let unknown =
        CertificateProvider::Unknown { plugin_name: "vault".to_owned(), config: serde_json::Value::Null };
    let providers = providers(&[("a", unknown)]);
    let error = |name: &str| providers.instance(name).err().unwrap();
    assert_eq!(
        error("a"),
        "certificate provider instance \"a\": its plugin \"vault\" provides no certificates: it is neither `file_watcher` nor \
         added by `Registry::with_certificate_plugin`"
    );
    assert_eq!(error("b"), "certificate provider instance \"b\": the bootstrap has none of this name");
}

#[tokio::test(start_paused = true)]
async fn ch7_4_ch7_5_an_instance_is_kept_up_to_date_from_its_first_user_to_its_last() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let generations = [ca.issue([dns("a")]), ca.issue([dns("b")]), ca.issue([dns("c")])];
    let (certificate, key) = folder.write_identity(&generations[0]);
    let files = CertificateProvider::FileWatcher(FileWatcherConfig::identity(certificate, key));
    let providers = providers(&[("a", files)]);
    let provider = providers.instance("a").unwrap();
    let leaf = || provider.published().identity.ok().map(|identity| identity.key.cert[0].clone());
    assert_eq!(leaf(), None, "nothing is read before there is a user");
    let (first, second) = (provider.watch(), provider.watch());
    assert!(Arc::ptr_eq(&first, &second));
    provider.for_handshake(Need::Identity).await;
    assert_eq!(leaf(), Some(generations[0].der.clone()));
    folder.write_identity(&generations[1]);
    drop(first);
    let interval = crate::config::DEFAULT_REFRESH_INTERVAL + Duration::from_secs(1);
    tokio::time::sleep(interval).await;
    assert_eq!(leaf(), Some(generations[1].der.clone()), "one user remains");
    drop(second);
    folder.write_identity(&generations[2]);
    tokio::time::sleep(interval).await;
    assert_eq!(
        leaf(),
        Some(generations[1].der.clone()),
        "without users nothing is read, and the last good stays"
    );
    let _third = provider.watch();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(leaf(), Some(generations[2].der.clone()), "the next user has the files read at once");
}

#[tokio::test(start_paused = true)]
async fn ch7_7_a_rotation_is_good_material_in_the_place_of_other_material() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let mut files = FileWatcherConfig::identity(folder.path("tls.crt"), folder.path("tls.key"));
    files.ca_certificate_file = Some(folder.path("ca.crt"));
    let roots = CertificateProvider::FileWatcher(FileWatcherConfig::roots(folder.path("ca.crt")));
    let providers = providers(&[("both", CertificateProvider::FileWatcher(files)), ("roots", roots)]);
    let mut rotations = ProviderRotations::new(providers.clone());
    let watched = ["both", "roots"].map(|name| providers.instance(name).unwrap().watch());
    let interval = crate::config::DEFAULT_REFRESH_INTERVAL + Duration::from_secs(1);
    let mut next = async || {
        tokio::time::sleep(interval).await;
        rotations.next().now_or_never().unwrap_or_default()
    };
    let rotated = |name: &str, identity, roots| RotatedInstance { name: name.into(), identity, roots };
    assert_eq!(next().await, [], "there are no files");
    let issued = ca.issue([dns("a")]);
    folder.write_identity(&issued);
    folder.write("ca.crt", ca.pem());
    assert_eq!(next().await, [], "the first material replaces nothing");
    folder.write_identity(&ca.issue([dns("b")]));
    assert_eq!(next().await, [rotated("both", true, false)]);
    folder.write("tls.crt", &issued.pem);
    assert_eq!(next().await, [], "half a rotation");
    folder.write_identity(&issued);
    folder.write("ca.crt", format!("{}{}", ca.pem(), Ca::new().pem()));
    assert_eq!(next().await, [rotated("both", true, true), rotated("roots", false, true)]);
    folder.write_identity(&issued);
    assert_eq!(next().await, [], "the same bytes");
    folder.write("ca.crt", "text");
    assert_eq!(next().await, [], "what is not usable");
    drop(watched);
}
