use std::sync::mpsc::{self, Receiver};

use prost::Message;

use super::*;
use crate::{
    filters::{ChainCompiler, Filter, FilterChain, Instances},
    pb::{
        envoy::config::{
            cluster::v3::{
                self as pb,
                cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
            },
            core::v3::{
                AggregatedConfigSource, ConfigSource, Metadata, config_source::ConfigSourceSpecifier,
            },
        },
        google::protobuf::Any,
    },
    resource::{
        Context, Resource,
        http_filter::{GcpAuthn, HttpFilter, HttpFilterConfig},
    },
};

/// A cache, its clock, and the answers of the calls that wait.
struct World {
    cache: TokenCache,
    now: Instant,
    /// The time since 1970.
    clock: Duration,
    random: fastrand::Rng,
    answers: Vec<Receiver<TokenResult>>,
}

impl World {
    fn new(capacity: usize) -> Self {
        let (cache, random) = (TokenCache::new(capacity), fastrand::Rng::with_seed(1));
        let clock = Duration::from_secs(2_000_000_000);
        Self { cache, now: Instant::now(), clock, random, answers: Vec::new() }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.clock += Duration::from_millis(millis);
    }

    fn request(&mut self, audience: &str) -> TokenDecision {
        let (send, answer) = mpsc::channel();
        let waiter = Box::new(move |result| send.send(result).unwrap());
        let decision = self.cache.request(&audience.into(), self.now, waiter);
        if matches!(decision, TokenDecision::Wait | TokenDecision::Fetch) {
            self.answers.push(answer);
        }
        decision
    }

    /// A fetch ends. Returns the answers of the calls that waited.
    fn fetched(&mut self, audience: &str, outcome: Result<Token, TokenError>) -> Vec<TokenResult> {
        let at = FetchTime { now: self.now, since_1970: self.clock };
        let (waiters, result) = self.cache.on_fetched(&audience.into(), outcome, at, &mut self.random);
        waiters.into_iter().for_each(|waiter| waiter(result.clone()));
        self.answers.drain(..).filter_map(|answer| answer.try_recv().ok()).collect()
    }

    /// A token that is valid for so many seconds.
    fn token(&self, text: &str, seconds: u64) -> Result<Token, TokenError> {
        Ok(Token { text: text.into(), expiry: self.clock + Duration::from_secs(seconds) })
    }

    /// Fetches a token for an audience that has none.
    fn fetch(&mut self, audience: &str, seconds: u64) {
        assert_eq!(self.request(audience), TokenDecision::Fetch);
        let token = self.token(audience, seconds);
        assert_eq!(self.fetched(audience, token), [Ok(audience.into())]);
    }
}

fn now(text: &str) -> TokenDecision {
    TokenDecision::Now(Ok(text.into()))
}

fn down() -> TokenError {
    TokenError::unavailable("a", "it is down")
}

#[test]
fn ch5_14_a_token_is_fetched_once_on_demand_and_shared_by_the_calls_that_wait() {
    let mut world = World::new(10);
    assert_eq!(world.request("a"), TokenDecision::Fetch);
    assert_eq!([world.request("a"), world.request("a")], [TokenDecision::Wait, TokenDecision::Wait]);
    assert_eq!(world.request("b"), TokenDecision::Fetch, "each audience has its own");
    let token = world.token("t", 3_600);
    assert_eq!(world.fetched("a", token), [Ok("t".into()), Ok("t".into()), Ok("t".into())]);
    assert_eq!([world.request("a"), world.request("a")], [now("t"), now("t")]);
}

#[test]
fn ch5_14_a_token_is_used_until_30_s_before_its_expiry_and_fetched_anew_in_the_last_60_s() {
    let mut world = World::new(10);
    world.fetch("a", 100);
    world.pass(10_000);
    assert_eq!(world.request("a"), now("a"), "60 s are left");
    world.pass(1);
    assert_eq!(world.request("a"), TokenDecision::NowAndFetch("a".into()));
    assert_eq!(world.request("a"), now("a"), "one fetch at a time");
    world.pass(59_998);
    assert_eq!(world.request("a"), now("a"), "1 ms is left");
    world.pass(1);
    assert_eq!(world.request("a"), TokenDecision::Wait, "for the fetch that runs");
    let token = world.token("new", 3_600);
    assert_eq!(world.fetched("a", token), [Ok("new".into())]);
    world.pass(3_570_000);
    assert_eq!(world.request("a"), TokenDecision::Fetch, "it was not fetched ahead of the demand");
}

#[test]
fn ch5_14_a_failed_refresh_leaves_the_token_until_it_expires() {
    let mut world = World::new(10);
    world.fetch("a", 80);
    assert_eq!(world.request("a"), TokenDecision::NowAndFetch("a".into()));
    assert_eq!(world.fetched("a", Err(down())), []);
    assert_eq!(world.request("a"), now("a"), "no fetch during the backoff");
    world.pass(1_201);
    assert_eq!(world.request("a"), TokenDecision::NowAndFetch("a".into()));
    world.pass(48_799);
    assert_eq!(world.request("a"), TokenDecision::Wait, "50 s were all it had");
    assert_eq!(world.fetched("a", Err(down())), [Err(down())]);
}

#[test]
fn ch5_14_calls_fail_with_the_last_status_until_the_end_of_a_growing_backoff() {
    let mut world = World::new(10);
    let mut expected = 1_000.0;
    for _ in 0..14 {
        assert_eq!([world.request("a"), world.request("a")], [TokenDecision::Fetch, TokenDecision::Wait]);
        assert_eq!(world.fetched("a", Err(down())), [Err(down()), Err(down())]);
        let mut waited = 0.0;
        while world.request("a") == TokenDecision::Now(Err(down())) {
            world.pass(10);
            waited += 10.0;
        }
        assert!((expected * 0.79..expected * 1.21 + 10.0).contains(&waited), "{waited} is not {expected}");
        // The request that ended the loop has begun a fetch.
        world.fetched("a", Err(down()));
        expected = f64::min(expected * 1.6 * 1.6, 120_000.0);
        world.pass(145_000);
    }
    world.fetch("a", 100);
    world.pass(70_000);
    assert_eq!(world.request("a"), TokenDecision::Fetch);
    assert_eq!(world.fetched("a", Err(down())), [Err(down())]);
    world.pass(1_201);
    assert_eq!(world.request("a"), TokenDecision::Fetch, "a success ends the backoff");
}

#[test]
fn ch5_14_a_token_that_has_expired_is_a_failure() {
    let mut world = World::new(10);
    for left in [0_u64, 5] {
        assert_eq!(world.request("a"), TokenDecision::Fetch);
        let expiry = world.clock - Duration::from_secs(left);
        let answers = world.fetched("a", Ok(Token { text: "t".into(), expiry }));
        assert_eq!(answers, [Err(TokenError::unauthenticated("a", "it has expired"))]);
        assert!(matches!(world.request("a"), TokenDecision::Now(Err(_))), "it is not fetched for each call");
        world.pass(10_000);
    }
    // One that soon expires is for the calls that wait alone.
    assert_eq!(world.request("a"), TokenDecision::Fetch);
    let token = world.token("short", 30);
    assert_eq!(world.fetched("a", token), [Ok("short".into())]);
    assert_eq!(world.request("a"), TokenDecision::Fetch);
    // One that is valid for ever is no overflow.
    let forever = Token { text: "long".into(), expiry: Duration::MAX };
    assert_eq!(world.fetched("a", Ok(forever)), [Ok("long".into())]);
    assert_eq!(world.request("a"), now("long"));
}

#[test]
fn ch5_13_the_audiences_that_were_used_last_stay() {
    let mut world = World::new(2);
    world.fetch("a", 3_600);
    world.fetch("b", 3_600);
    assert_eq!(world.request("a"), now("a"));
    world.fetch("c", 3_600);
    assert_eq!([world.request("a"), world.request("c")], [now("a"), now("c")]);
    world.fetch("b", 3_600);
    assert_eq!(world.request("a"), TokenDecision::Fetch, "b and c were used later");
}

#[test]
fn ch5_13_a_smaller_cache_forgets_at_once() {
    let mut world = World::new(10);
    for audience in ["a", "b", "c", "d"] {
        world.fetch(audience, 3_600);
    }
    assert_eq!(world.request("b"), now("b"));
    world.cache.set_capacity(2);
    world.cache.set_capacity(10);
    assert_eq!([world.request("b"), world.request("d")], [now("b"), now("d")]);
    assert_eq!([world.request("a"), world.request("c")], [TokenDecision::Fetch, TokenDecision::Fetch]);
    world.cache.set_capacity(0);
    assert_eq!(world.cache.entries.len(), 1, "at least one stays");
}

#[test]
fn ch5_13_a_forgotten_audience_answers_the_calls_that_wait_for_it() {
    let mut world = World::new(1);
    assert_eq!([world.request("a"), world.request("b")], [TokenDecision::Fetch, TokenDecision::Fetch]);
    assert_eq!(world.request("a"), TokenDecision::Wait, "its fetch runs still");
    assert_eq!(world.request("b"), TokenDecision::Wait);
    let token = world.token("t", 3_600);
    assert_eq!(world.fetched("a", token), [Ok("t".into()), Ok("t".into())]);
    assert_eq!(world.request("a"), TokenDecision::Fetch, "it had no place for the token");
}

#[test]
fn ch5_13_the_cache_has_as_many_uses_as_entries() {
    let mut world = World::new(3);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..1_000 {
        let audience = ["a", "b", "c", "d", "e"][random.usize(..5)];
        if world.request(audience) == TokenDecision::Fetch && random.bool() {
            let token = world.token("t", 40 + random.u64(..100));
            world.fetched(audience, token);
        }
        world.pass(random.u64(..5_000));
        let uses: Vec<_> = world.cache.by_use.iter().map(|(at, audience)| (audience.clone(), *at)).collect();
        let mut entries: Vec<_> =
            world.cache.entries.iter().map(|(it, of)| (it.clone(), of.last_use)).collect();
        entries.sort_by_key(|(_, at)| *at);
        assert_eq!(uses, entries);
        assert!(entries.len() <= 3);
    }
}

#[test]
fn ch5_14_the_status_of_a_call_is_unavailable_if_that_of_the_server_is() {
    let code = |status| TokenError::of_status("a", status).code;
    assert_eq!([429, 502, 503, 504].map(code), [Code::Unavailable; 4]);
    assert_eq!([400, 401, 403, 404, 500, 302, 204].map(code), [Code::Unauthenticated; 7]);
    let message = TokenError::of_status("https://shop", 404).message;
    assert_eq!(&*message, "identity token for https://shop: HTTP status 404");
}

/// A cluster whose metadata have a value of a type under a key.
fn cluster(key: &str, type_name: &str, value: &[u8]) -> Cluster {
    let any = Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.to_vec().into() };
    let metadata = Metadata { typed_filter_metadata: [(key.to_owned(), any)].into(), ..Default::default() };
    let ads = ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    };
    let message = pb::Cluster {
        name: "cart".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads), ..Default::default() }),
        metadata: Some(metadata),
        ..Default::default()
    };
    Cluster::parse(&message.encode_to_vec().into(), &Context::new()).unwrap()
}

#[test]
fn ch5_12_the_audience_is_in_the_metadata_of_the_cluster_under_the_name_of_the_filter() {
    let tokens = IdentityTokens::new("authn", 10);
    // `url: "https://shop"`
    let shop = cluster("authn", AUDIENCE, b"\x0a\x0chttps://shop");
    assert_eq!(tokens.audience("cart", Some(&shop)), Ok(Some("https://shop".into())));
    assert_eq!(IdentityTokens::new("other", 10).audience("cart", Some(&shop)), Ok(None));
    let reason = "HTTP filter \"authn\": the configuration lacks the cluster cart";
    assert_eq!(tokens.audience("cart", None), Err(reason.to_owned()));
    // `socket_address { address: "10.0.0.1" port_value: 1 }`
    let address = cluster("authn", "envoy.config.core.v3.Address", b"\x0a\x0c\x12\x0810.0.0.1\x18\x01");
    let reason = "HTTP filter \"authn\": the metadata of cluster cart under it are no Audience";
    assert_eq!(tokens.audience("cart", Some(&address)), Err(reason.to_owned()));
}

const AUDIENCE: &str = "envoy.extensions.filters.http.gcp_authn.v3.Audience";

#[test]
fn ch5_13_the_tokens_of_a_filter_outlive_updates_and_are_shared_by_routes() {
    let mut instances = Instances::default();
    let listed = |name: &str, cache_size| {
        let config = HttpFilterConfig::GcpAuthn(GcpAuthn { cache_size });
        HttpFilter { name: name.into(), config, disabled: false }
    };
    let compile = |instances: &mut Instances, filters: &[HttpFilter], routes: usize| {
        let mut compiler = ChainCompiler::new(filters, &[]).with_instances(std::mem::take(instances));
        let chains: Vec<_> = (0..routes).map(|_| compiler.chain(&[], &[]).unwrap()).collect();
        *instances = compiler.take_instances();
        chains.into_iter().next_back().unwrap()
    };
    let tokens = |chain: Arc<FilterChain>| match chain.filters() {
        [Filter::GcpAuthn(GcpAuthnFilter(tokens))] => tokens.clone(),
        other => panic!("{other:?}"),
    };
    let first = tokens(compile(&mut instances, &[listed("a", 10)], 2));
    assert!(Arc::ptr_eq(&first, &tokens(compile(&mut instances, &[listed("a", 10)], 1))));
    for audience in ["x", "y", "z"] {
        first.lock().request(&audience.into(), Instant::now(), Box::new(|_| {}));
    }
    assert!(format!("{first:?}").contains(r#"["x", "y", "z"]"#));
    let smaller = tokens(compile(&mut instances, &[listed("a", 1)], 1));
    assert!(Arc::ptr_eq(&first, &smaller));
    assert!(format!("{first:?}").contains(r#"["z"]"#), "it is shrunk at once: {first:?}");
    let other = tokens(compile(&mut instances, &[listed("b", 10)], 1));
    assert!(!Arc::ptr_eq(&first, &other));
    assert!(!Arc::ptr_eq(&first, &tokens(compile(&mut instances, &[listed("a", 10)], 1))), "it was removed");
}
