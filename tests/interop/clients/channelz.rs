//! The channels of the client, read with the client of channelz that drivers have.

use serde_json::Value;
use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn a14_a_driver_finds_the_ready_channels_their_subchannels_and_sockets() {
    let backends = backends(["one", "two"]).await;
    let refs: Vec<_> = backends.iter().collect();
    let server = mesh(&refs).await;
    let flags = ["--num_channels=3", "--qps=50"];
    let client = Client::start("interop_client", "XDSKIT_INTEROP_CLIENT", &server, &flags).await;
    client.reach(&["one", "two"]).await;
    let shown = query(client.port).await;
    assert_eq!(shown["servers"], 0);
    let channels = shown["channels"].as_array().expect("a list");
    assert_eq!(channels.len(), 3, "{shown}");
    let mut addresses: Vec<_> = backends.iter().map(|backend| backend.address()).collect();
    addresses.sort();
    for channel in channels {
        assert_eq!(channel["state"], "READY", "{shown}");
        let calls: Vec<i64> = serde_json::from_value(channel["calls"].clone()).expect("three numbers");
        assert!(calls[0] > 10 && calls[1] > 10 && calls[2] == 0, "{shown}");
        let subchannels = channel["subchannels"].as_array().expect("a list");
        let mut targets: Vec<_> =
            subchannels.iter().map(|it| it["target"].as_str().unwrap_or_default()).collect();
        targets.sort_unstable();
        assert_eq!(targets, addresses);
        for subchannel in subchannels {
            assert_eq!(subchannel["state"], "READY", "{shown}");
            let socket = &subchannel["sockets"][0];
            assert_eq!((&socket["remote"], &socket["security"]), (&subchannel["target"], &Value::Null));
            assert!(socket["streams"].as_i64().is_some_and(|streams| streams > 0), "{shown}");
        }
    }
}

/// What the driver's client shows of the channels to the service.
async fn query(port: u64) -> Value {
    let paths = [program("XDSKIT_INTEROP_CHANNELZ_PYTHONPATH"), program("XDSKIT_INTEROP_PYTHONPATH")];
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", std::env::join_paths(paths).expect("paths without colons"));
    command.arg(program("XDSKIT_INTEROP_CHANNELZ")).args([&format!("127.0.0.1:{port}"), "xds:///shop"]);
    let output =
        timeout(PATIENCE, command.kill_on_drop(true).output()).await.expect("in time").expect("it runs");
    let (text, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{log}"))
}
