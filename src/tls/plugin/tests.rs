//! CH7.29 to CH7.31: plugins of all kinds, and what handshakes have of them.

use std::{
    future::pending,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use tokio::sync::mpsc as async_mpsc;

use super::*;
use crate::{
    config::{Bootstrap, CertificateProvider, Server},
    resource::Registry,
    test_log::Log,
    tls::{
        Providers,
        fixture::{self, Ca, Issued, dns, uri},
        providers::Provider,
        scripted::{Scripted, providers},
    },
};

fn instance(plugin: &Scripted) -> Arc<Provider> {
    providers(&[("a", plugin)]).instance("a").unwrap().clone()
}

async fn leaf(provider: &Provider) -> Vec<u8> {
    provider.identity("client").await.map(|identity| identity.key.cert[0].to_vec()).unwrap()
}

async fn reason(provider: &Provider) -> String {
    provider.identity("client").await.err().unwrap().to_string()
}

#[tokio::test]
async fn ch7_29_a_plugin_runs_once_for_equal_instances_from_the_first_user_to_the_last() {
    let (plugin, mut runs) = Scripted::handed("one");
    let (other, mut others) = Scripted::handed("other");
    let providers = providers(&[("a", &plugin), ("b", &plugin), ("c", &other)]);
    let of = |name: &str| providers.instance(name).unwrap().clone();
    assert!(Arc::ptr_eq(&of("a"), &of("b")) && !Arc::ptr_eq(&of("a"), &of("c")));
    assert_eq!(of("a").origin(), "certificate provider instance \"a\", \"b\"");
    assert!(runs.is_empty(), "nothing runs before there is a user");
    let users = [of("a").watch(), of("b").watch(), of("c").watch()];
    let publisher = runs.recv().await.unwrap();
    others.recv().await.unwrap();
    let issued = Ca::new().issue([dns("a")]);
    publisher.publish_identity(issued.identity()).unwrap();
    assert_eq!(leaf(&of("b")).await, issued.der.to_vec());
    drop(users);
    // The next run begins when the last one has ended.
    let _user = of("a").watch();
    runs.recv().await.unwrap();
    assert_eq!(leaf(&of("a")).await, issued.der.to_vec(), "the last good material is kept");
    assert!(runs.is_empty());
}

#[tokio::test]
async fn ch7_29_a_plugin_that_is_only_parsed_provides_nothing() {
    let (plugin, _runs) = Scripted::handed("one");
    let builder = Bootstrap::builder().server(Server::new("localhost:1").insecure());
    let custom = CertificateProvider::Custom(Custom::new(plugin));
    let bootstrap = builder.certificate_provider("a", custom).build().unwrap();
    let parsed =
        Registry::new().with_certificate_plugin::<Scripted>().with_certificate_provider::<Scripted>();
    let providers = Providers::new(&bootstrap, &parsed, fixture::crypto());
    let error = providers.instance("a").err().unwrap();
    let start = "certificate provider instance \"a\": its plugin \"scripted\" provides no certificates";
    assert!(error.starts_with(start), "{error}");
}

#[tokio::test]
async fn ch7_29_a_plugin_that_blocks_holds_nobody() {
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(Some(blocked));
    let blocking = Scripted::new("blocking", move |_| {
        // In the call itself, on a runtime with a single thread, which the test is on.
        let _ = blocked.lock().unwrap().take().unwrap().recv();
        Box::pin(async { Ok(()) })
    });
    let issued = Ca::new().issue([dns("a")]);
    let published = issued.identity();
    let good = Scripted::new("good", move |publisher| {
        let published = published.clone();
        Box::pin(async move { Ok(publisher.publish_identity(published)?) })
    });
    let providers = providers(&[("blocking", &blocking), ("good", &good)]);
    let blocking = providers.instance("blocking").unwrap();
    let good = providers.instance("good").unwrap();
    let _users = [blocking.watch(), good.watch()];
    let waiting = tokio::spawn({
        let blocking = blocking.clone();
        async move { reason(&blocking).await }
    });
    assert_eq!(leaf(good).await, issued.der.to_vec());
    assert!(!waiting.is_finished());
    drop(unblock);
    let ended = "no client certificate of certificate provider instance \"blocking\": it has completed, and published nothing";
    assert_eq!(waiting.await.unwrap(), ended);
}

#[tokio::test(start_paused = true)]
async fn ch7_29_a_handshake_waits_for_a_silent_plugin_and_not_for_ever() {
    let (plugin, _runs) = Scripted::handed("silent");
    let provider = instance(&plugin);
    let _user = provider.watch();
    let begin = tokio::time::Instant::now();
    assert_eq!(
        reason(&provider).await,
        "no client certificate of certificate provider instance \"a\": it has published none within 10 s"
    );
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn ch7_29_a_plugin_that_completes_has_published_its_last() {
    let roots = CertificateRoots::from_pem(Ca::new().pem());
    let plugin = Scripted::new("done", move |publisher| {
        let roots = roots.clone();
        Box::pin(async move { Ok(publisher.publish_roots(roots)?) })
    });
    let provider = instance(&plugin);
    let _user = provider.watch();
    assert_eq!(
        reason(&provider).await,
        "no client certificate of certificate provider instance \"a\": it has completed, and published none"
    );
    assert!(provider.roots().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn ch7_30_a_plugin_that_panics_or_fails_is_run_again_and_its_last_material_is_kept() {
    let (log, _guard) = Log::start("xdskit::tls=debug");
    let issued = Ca::new().issue([dns("a")]);
    let (runs, published) = (Arc::new(AtomicUsize::new(0)), issued.identity());
    let (ran, mut begun) = async_mpsc::unbounded_channel();
    let plugin = Scripted::new("bad", move |publisher| {
        let (run, published) = (runs.fetch_add(1, Ordering::Relaxed), published.clone());
        ran.send(run).unwrap();
        assert!(run != 0, "before it has a future");
        Box::pin(async move {
            match run {
                1 => Err("the vault is sealed".into()),
                2 => {
                    publisher.publish_identity(published)?;
                    panic!("after it has published")
                }
                3 => Err("the vault is sealed again".into()),
                _ => pending().await,
            }
        })
    });
    let provider = instance(&plugin);
    let _user = provider.watch();
    let begin = tokio::time::Instant::now();
    for run in 0..=4 {
        assert_eq!(begun.recv().await, Some(run));
    }
    // 1 s and 1.6 s before the publication, and 1 s and 1.6 s after it, each up to 20 % longer or shorter.
    let elapsed = begin.elapsed().as_secs_f64();
    assert!((4.1..6.3).contains(&elapsed), "{elapsed}");
    assert_eq!(leaf(&provider).await, issued.der.to_vec());
    let lines = log.lines();
    for part in ["it panicked: before it has a future", "it panicked: after it has published"] {
        let line = lines.iter().find(|line| line.contains(part)).unwrap();
        assert!(line.starts_with("WARN xdskit::tls::plugin: certificate provider failed"), "{line}");
    }
    let again = |line: &&String| line.contains("the vault is sealed") && line.starts_with("DEBUG");
    assert_eq!(lines.iter().filter(again).count(), 2, "{lines:?}");
}

#[tokio::test]
async fn ch7_30_a_failure_that_is_reported_is_the_reason_of_handshakes_without_material() {
    let (plugin, mut runs) = Scripted::handed("reports");
    let provider = instance(&plugin);
    let _user = provider.watch();
    let publisher = runs.recv().await.unwrap();
    publisher.report_failure("the agent refuses it");
    let expected = "no client certificate of certificate provider instance \"a\": the agent refuses it";
    assert_eq!(reason(&provider).await, expected);
    let issued = Ca::new().issue([dns("a")]);
    publisher.publish_identity(issued.identity()).unwrap();
    publisher.report_failure("the agent is gone");
    assert_eq!(leaf(&provider).await, issued.der.to_vec());
}

#[tokio::test]
async fn ch7_30_ch7_31_material_that_cannot_be_used_is_an_error_and_the_last_good_stays() {
    let (plugin, mut runs) = Scripted::handed("wrong");
    let provider = instance(&plugin);
    let _user = provider.watch();
    let publisher = runs.recv().await.unwrap();
    let ca = Ca::new();
    let (issued, other) = (ca.issue([dns("a")]), ca.issue([dns("b")]));
    publisher.publish_identity(issued.identity()).unwrap();
    let der = |issued: &Issued| issued.der.to_vec();
    for (wrong, why) in [
        (
            CertificateIdentity::from_pem(issued.pem.as_str(), other.key_pem()),
            "the key is not that of the certificate",
        ),
        (
            CertificateIdentity::from_der([der(&other)], issued.key_der()),
            "the key is not that of the certificate",
        ),
        (CertificateIdentity::from_pem("", issued.key_pem()), "the chain is empty"),
        (CertificateIdentity::from_der(Vec::<Vec<u8>>::new(), issued.key_der()), "the chain is empty"),
        (CertificateIdentity::from_pem(issued.pem.as_str(), ""), "no private key in PEM"),
        (CertificateIdentity::from_der([der(&issued)], [1, 2, 3]), "no private key in DER"),
        (CertificateIdentity::from_der([[1, 2, 3]], issued.key_der()), "a certificate that cannot be used"),
        (
            CertificateIdentity::from_der(vec![der(&issued); 1000], issued.key_der()),
            "it is larger than 64 KiB",
        ),
        (
            CertificateIdentity::from_der(vec![Vec::new(); 1 << 17], issued.key_der()),
            "it is larger than 64 KiB",
        ),
    ] {
        let error = publisher.publish_identity(wrong).unwrap_err().to_string();
        assert!(
            error.starts_with("a certificate with a key that cannot be used: ") && error.contains(why),
            "{error}"
        );
    }
    assert_eq!(leaf(&provider).await, der(&issued));
    assert_eq!(provider.rotations(), Default::default());
}

#[tokio::test]
async fn ch7_30_ch7_31_roots_that_cannot_be_used_are_an_error_and_the_last_good_stay() {
    let (plugin, mut runs) = Scripted::handed("wrong");
    let provider = instance(&plugin);
    let _user = provider.watch();
    let publisher = runs.recv().await.unwrap();
    let ca = Ca::new();
    publisher.publish_roots(CertificateRoots::from_der([ca.0.der().to_vec()])).unwrap();
    let roots = provider.roots().await.unwrap();
    let bundles = |domain: &str, bundle: Vec<u8>| {
        CertificateRoots::from_spiffe_bundles([(domain.to_owned(), vec![bundle])].into())
    };
    for (wrong, why) in [
        (CertificateRoots::from_pem(""), "there is no certificate"),
        (CertificateRoots::from_der(Vec::<Vec<u8>>::new()), "there is no certificate"),
        (CertificateRoots::from_der([ca.0.der().to_vec(), vec![1]]), "a certificate that cannot be used"),
        (CertificateRoots::from_der([vec![0; 17 << 20]]), "it is larger than 16 MiB"),
        (CertificateRoots::from_spiffe_json("[]"), "trust_domains: missing"),
        (bundles("a", vec![1]), "trust domain \"a\", certificate 0: it cannot be used"),
        (
            bundles("A", ca.0.der().to_vec()),
            "trust domain \"A\": the trust domain has a character that is not allowed",
        ),
    ] {
        let error = publisher.publish_roots(wrong).unwrap_err().to_string();
        assert!(error.starts_with("roots that cannot be used: ") && error.contains(why), "{error}");
    }
    assert!(Arc::ptr_eq(&roots, &provider.roots().await.unwrap()));
    assert_eq!(provider.rotations(), Default::default());
}

#[tokio::test]
async fn ch7_30_equal_material_changes_nothing_and_other_material_is_a_rotation() {
    let (plugin, mut runs) = Scripted::handed("equal");
    let provider = instance(&plugin);
    let _user = provider.watch();
    let publisher = runs.recv().await.unwrap();
    let ca = Ca::new();
    let (issued, other) = (ca.issue([dns("a")]), ca.issue([dns("b")]));
    publisher.publish_identity(issued.identity()).unwrap();
    publisher.publish_roots(CertificateRoots::from_pem(ca.pem())).unwrap();
    let before = provider.identity("client").await.unwrap();
    publisher.publish_identity(issued.identity()).unwrap();
    assert!(Arc::ptr_eq(&before, &provider.identity("client").await.unwrap()));
    publisher.publish_identity(CertificateIdentity::from_der([other.der.to_vec()], other.key_der())).unwrap();
    publisher.publish_roots(CertificateRoots::from_spiffe_bundles([].into())).unwrap();
    assert_eq!((provider.rotations().identity, provider.rotations().roots), (1, 1));
    assert_eq!(leaf(&provider).await, other.der.to_vec());
}

#[tokio::test]
async fn ch7_29_a_plugin_of_a_runtime_that_has_ended_is_run_by_the_next() {
    let (plugin, mut runs) = Scripted::handed("runtimes");
    let provider = instance(&plugin);
    let other = thread::spawn({
        let provider = provider.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let user = runtime.block_on(async { provider.watch() });
            runtime.block_on(runs.recv()).unwrap();
            (user, runs)
        }
    });
    let (_user, mut runs) = other.join().unwrap();
    let _second = provider.watch();
    let publisher = runs.recv().await.unwrap();
    let issued = Ca::new().issue([uri("spiffe://a/b")]);
    publisher.publish_identity(issued.identity()).unwrap();
    assert_eq!(leaf(&provider).await, issued.der.to_vec());
}
