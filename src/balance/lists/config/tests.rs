use super::*;
use crate::balance::identity::Identity;

fn endpoint(port: u16, weight: u32) -> EndpointConfig {
    EndpointConfig {
        addresses: vec![([127, 0, 0, 1], port).into()],
        identity: Identity::default(),
        weight,
        hostname: None,
        hash_key: None,
    }
}

#[test]
fn ch3_50_ch13_8_an_endpoint_weighs_its_share_of_the_locality_times_that_of_the_locality() {
    let locality = |weight, weights: &[u32]| {
        let endpoints = weights.iter().map(|weight| endpoint(*weight as u16, *weight)).collect();
        LocalityConfig::new(Locality::new("a", "", ""), weight, endpoints)
    };
    let localities = [locality(1, &[1, 3]), locality(3, &[5]), locality(u32::MAX - 4, &[])];
    let weights = |localities: &[LocalityConfig]| {
        let list = EndpointList { priority: 0, locality: None, weight: 1, localities };
        list.weighted().into_iter().map(|(_, weight)| weight).collect::<Vec<_>>()
    };
    assert_eq!(weights(&localities[..2]), [ONE / 16, 3 * ONE / 16, 3 * ONE / 4]);
    assert_eq!(weights(&localities), [1, 1, 1], "none is left out");
    assert!(weights(&[locality(1, &[])]).is_empty());
}
