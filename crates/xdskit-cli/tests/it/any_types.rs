//! `watch --type`: resources of types that are known at run time alone.

use std::fs;

use prost::Message;
use serde_json::{Value, json};
use xdskit::control_plane::AnyResource;

use super::{
    Server,
    banner::{BANNER, Banner, descriptor_set, incomplete_descriptor_set},
    brief, keys,
    process::Process,
};

impl Server {
    /// Runs `watch --type` for banners, by their descriptor set if it is written.
    fn watch_banners(&self, options: &str, names: &str) -> Process {
        let set = self.folder.path().join("set.pb");
        let proto = if set.exists() { format!("--proto {}", set.display()) } else { String::new() };
        self.watch(&format!("{options} --type {BANNER} {proto} {names}"))
    }

    fn write_descriptors(&self) {
        fs::write(self.folder.path().join("set.pb"), descriptor_set()).expect("a file");
    }
}

fn banner(name: &str, text: &str) -> AnyResource {
    AnyResource::encode(BANNER, name, &Banner { name: name.into(), text: text.into(), ..Banner::default() })
}

#[tokio::test]
async fn changes_of_messages_are_decoded_and_one_that_is_malformed_does_not_end_the_watch() {
    for protocol in ["sotw", "delta"] {
        let server = Server::start().await;
        server.write_descriptors();
        server.control_plane.set(banner("sale", "50 %"));
        let mut watch = server.watch_banners(&format!("--protocol {protocol} --json"), "sale");
        let line = watch.json().await;
        assert_eq!(keys(&line), ["invalid", "name", "resource", "state", "version", "warning", "watch"]);
        assert_eq!(brief(&line), format!("{BANNER}=sale sale present"));
        assert_eq!(line["resource"], json!({"@type": BANNER, "name": "sale", "text": "50 %"}));
        assert_eq!(line["invalid"], Value::Null);

        // The text is a number.
        let malformed = [&b"\x0a\x04sale"[..], &[0x10, 1]].concat();
        server.control_plane.set(AnyResource::new(BANNER, "sale", malformed));
        let line = watch.json().await;
        assert_eq!((&line["state"], &line["resource"]), (&json!("present"), &Value::Null), "{protocol}");
        let reason = line["invalid"].as_str().unwrap();
        assert!(reason.contains("is not a Banner"), "{reason}");

        server.control_plane.set(banner("sale", "60 %"));
        assert_eq!(watch.json().await["resource"]["text"], "60 %");
        watch.send(b"watch other").await;
        server.control_plane.set(banner("other", "new"));
        watch.json_until(|line| line["name"] == "other" && line["resource"]["text"] == "new").await;
    }
}

#[tokio::test]
async fn all_messages_of_a_type_are_watched_and_names_filter_them() {
    for protocol in ["sotw", "delta"] {
        let server = Server::start().await;
        server.write_descriptors();
        server.control_plane.update(|tx| {
            tx.set(banner("sale-a", "1"));
            tx.set(banner("other", "2"));
        });
        let options = format!("--protocol {protocol} --json --once");
        let both = server.watch_banners(&options, "*").text().await;
        assert_eq!(both.lines().count(), 2, "{protocol}: {both}");
        let matching = server.watch_banners(&options, "sale-*").text().await;
        assert!(matching.lines().count() == 1 && matching.contains("sale-a"), "{protocol}: {matching}");
    }
}

#[tokio::test]
async fn text_shows_the_message_as_json_and_escapes_what_controls_a_terminal() {
    let server = Server::start().await;
    server.write_descriptors();
    server.control_plane.set(banner("a\u{1b}[2J", "b\u{9b}2J\u{202e}"));
    let mut watch = server.watch_banners("--once", "*");
    let text = watch.text().await;
    assert!(text.starts_with("● shop.Banner a\\u{1b}[2J  version "), "{text}");
    assert!(text.contains(r#""text": "b\u009b2J\u202e""#), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
    // In a pipe, the output of `--raw` is JSON alone.
    let raw = server.watch_banners("--once --raw", "*").text().await;
    assert_eq!(serde_json::from_str::<Value>(&raw).unwrap()["@type"], BANNER, "{raw}");
}

#[tokio::test]
async fn without_descriptors_the_bytes_are_shown() {
    let server = Server::start().await;
    server.control_plane.set(AnyResource::new(
        BANNER,
        "a",
        Banner { name: "a".into(), ..Banner::default() }.encode_to_vec(),
    ));
    let text = server.watch_banners("--once --raw", "a").text().await;
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown, json!({"@type": BANNER, "@bytes": "CgFh", "@length": 3}));
}

#[tokio::test]
async fn what_cannot_be_used_is_an_error_of_the_command_line() {
    let server = Server::start().await;
    let file = |name: &str, content: &[u8]| {
        let path = server.folder.path().join(name);
        fs::write(&path, content).unwrap();
        format!("--proto={}", path.display())
    };
    let by_type = format!("--type={BANNER}");
    let bootstrap = format!("--bootstrap={}", server.bootstrap().display());
    for (args, part) in [
        (vec![&*by_type, &file("text", b"syntax"), "a"], "is no complete descriptor set"),
        (vec![&*by_type, &file("part", &incomplete_descriptor_set()), "a"], "detail.proto"),
        (vec![&*by_type, &file("empty", b""), "a"], "has no message shop.Banner"),
        (vec![&*by_type, "--proto=no/such/file", "a"], "--proto no/such/file"),
        (vec![&*by_type, &file("large", &vec![0; (16 << 20) + 1]), "a"], "larger than 16 MiB"),
        (vec!["--proto=set.pb", "cluster=a"], "needs --type"),
        (vec!["--type=Banner", "a"], "is no type URL"),
        (vec![&*by_type], "NAME is missing"),
    ] {
        let args = [vec!["watch", &*bootstrap], args].concat();
        Process::tool(args, &[]).assert_is_rejected(part).await;
    }
}
