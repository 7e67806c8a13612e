//! Durations that mean never.

use std::time::Duration;

use tokio::time::sleep;

use super::{life::Network, *};
use crate::config::Polling;

#[tokio::test(start_paused = true)]
async fn a_duration_of_the_greatest_length_means_never() {
    let never = Duration::MAX;
    let network = Network::default();
    let builder = network.client().resource_timeout(never).idle_stream_timeout(never).deletion_grace(never);
    let builder = builder
        .dns_refresh(never)
        .keep_alive_interval(never)
        .keep_alive_timeout(never)
        .connect_timeout(never);
    let builder = builder.polling(Polling::every(never).with_request_timeout(never));
    let (client, driver) = builder.build_with_driver().unwrap();
    let driver = tokio::spawn(driver);
    let (mut watch, resolution) = (client.watch::<Text>("a"), client.resolve("xds:///shop"));
    sleep(Duration::from_secs(100_000)).await;
    assert_eq!((network.open(), network.made()), (1, 1));
    assert!(watch.next().now_or_never().is_none(), "the resource is waited for");
    drop((watch, resolution));
    sleep(Duration::from_secs(100_000)).await;
    assert_eq!((network.open(), network.made()), (1, 1), "the connection is kept");
    assert!(!driver.is_finished(), "the driver has panicked");
}
