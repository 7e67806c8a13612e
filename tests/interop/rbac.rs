//! RBAC beside Envoy: policies and requests from seeds, and which of the requests both allow. `XDSKIT_INTEROP_RBAC` is the number of
//! policies, each with 100 requests, and `XDSKIT_INTEROP_RBAC_SEED` the first seed.
//!
//! Left out is what gRPC defines in another way than Envoy, so that it has tests of its own: absent headers of inverted matchers, several
//! values of a header, which Envoy matches one by one, padding of binary headers, metadata, and what Envoy does not accept at all, such as empty lists.

use std::env;

use fastrand::Rng;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use xdskit::rbac::{ConnectionFacts, Rbac, RequestFacts};

use crate::envoy::Envoy;

/// The head of a request to one of the virtual hosts.
#[derive(Debug)]
struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
}

#[tokio::test(flavor = "multi_thread")]
async fn sv13_3_policies_allow_the_requests_that_envoy_allows() {
    let number = |name, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first = number("XDSKIT_INTEROP_RBAC_SEED", 1);
    let seeds: Vec<u64> = (first..first + number("XDSKIT_INTEROP_RBAC", 100)).collect();
    let configs: Vec<_> = seeds.iter().map(|seed| config(&mut Rng::with_seed(*seed))).collect();
    let mut envoy = Envoy::start_with(&bootstrap(&configs)).await;
    envoy.becomes_ready().await;
    let address = envoy.listener().await;
    let stream = TcpStream::connect(address).await.expect("Envoy listens");
    let connection = ConnectionFacts::new(address, stream.local_addr().expect("it is connected"));
    let mut stream = BufReader::new(stream);
    let mut counts = [0_u32; 2];
    for (index, (seed, config)) in seeds.iter().zip(&configs).enumerate() {
        let rbac =
            Rbac::from_json(&config.to_string()).unwrap_or_else(|e| panic!("seed {seed}: {e}: {config}"));
        let mut rng = Rng::with_seed(!seed);
        for _ in 0..REQUESTS {
            let (request, host) = (Request::new(&mut rng), host(index));
            let facts = RequestFacts::new(request.method, &request.path, &connection)
                .with_authority(&host)
                .with_headers(&request.headers)
                .with_strict_path(false);
            let allowed = rbac.decide(&facts).allowed;
            let status = request.send(&mut stream, &host).await;
            assert_eq!(
                allowed,
                status == 200,
                "seed {seed}: {request:?} has {status} of Envoy under {config}"
            );
            counts[usize::from(allowed)] += 1;
        }
    }
    let least = (seeds.len() * REQUESTS / 8) as u32;
    assert!(counts.iter().all(|count| *count > least), "{counts:?}: both outcomes are frequent");
}

impl Request {
    fn new(rng: &mut Rng) -> Self {
        let headers = ["x", "y"].into_iter().map(|name| (name, pick(rng, &VALUES))).collect();
        let path = format!("{}{}", pick(rng, &PATHS), pick(rng, &["", "", "?a", "?/a/b"]));
        Self { method: pick(rng, &["GET", "POST"]), path, headers }
    }

    /// Sends the request, and returns the status of the response.
    async fn send(&self, stream: &mut BufReader<TcpStream>, host: &str) -> u16 {
        let mut head =
            format!("{} {} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        stream.write_all(head.as_bytes()).await.expect("Envoy reads");
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            assert_ne!(stream.read_line(&mut line).await.expect("Envoy answers"), 0, "Envoy has closed");
            let line = line.trim_end();
            if line.is_empty() {
                break;
            } else if let Some(code) = line.strip_prefix("HTTP/1.1 ") {
                status = code[..3].parse().expect("a status");
            } else if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse().expect("a length");
            }
        }
        stream.read_exact(&mut vec![0; length]).await.expect("Envoy answers");
        status
    }
}

/// Envoy with a virtual host for each configuration, which overrides that of the filter, and answers by itself.
fn bootstrap(configs: &[Value]) -> Value {
    let per_route = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute";
    let virtual_host = |(index, config): (usize, &Value)| {
        json!({
            "name": host(index),
            "domains": [host(index)],
            "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}],
            "typed_per_filter_config": {"rbac": {"@type": per_route, "rbac": config}},
        })
    };
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "rbac",
        "route_config": {"virtual_hosts": configs.iter().enumerate().map(virtual_host).collect::<Vec<_>>()},
        "http_filters": [
            {"name": "rbac", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"}},
            {"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}},
        ],
    });
    let any_port = json!({"socket_address": {"address": "127.0.0.1", "port_value": 0}});
    json!({
        "node": {"id": "envoy", "cluster": "interop"},
        "admin": {"address": any_port},
        "static_resources": {"listeners": [{
            "name": "rbac",
            "address": any_port,
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        }]},
    })
}

fn host(index: usize) -> String {
    format!("host-{index}.example")
}

fn config(rng: &mut Rng) -> Value {
    let mut policies = Map::new();
    for _ in 0..rng.usize(1..5) {
        let permissions: Vec<_> = (0..rng.usize(1..3)).map(|_| rule(rng, 3, false)).collect();
        let principals: Vec<_> = (0..rng.usize(1..3)).map(|_| rule(rng, 2, true)).collect();
        let policy = json!({"permissions": permissions, "principals": principals});
        policies.insert(pick(rng, &["a", "b", "c", "d"]).to_owned(), policy);
    }
    json!({"rules": {"action": pick(rng, &["ALLOW", "DENY"]), "policies": policies}})
}

/// A permission, or a principal.
fn rule(rng: &mut Rng, depth: usize, is_principal: bool) -> Value {
    let (and, or, not, of) = match is_principal {
        false => ("and_rules", "or_rules", "not_rule", "rules"),
        true => ("and_ids", "or_ids", "not_id", "ids"),
    };
    if depth > 0 {
        let rules: Vec<_> = (0..rng.usize(1..4)).map(|_| rule(rng, depth - 1, is_principal)).collect();
        match rng.u8(0..7) {
            0 => return json!({and: {of: rules}}),
            1 | 2 => return json!({or: {of: rules}}),
            3 => return json!({not: rules[0]}),
            _ => {}
        }
    }
    match (rng.u8(0..8), is_principal) {
        (0, _) => json!({"any": true}),
        (1..=3, _) => json!({"header": header(rng)}),
        (4..=5, _) => json!({"url_path": {"path": string(rng, &PATHS)}}),
        (_, true) => match rng.bool() {
            true => json!({"authenticated": {}}),
            false => json!({"direct_remote_ip": range(rng)}),
        },
        (_, false) => match rng.u8(0..4) {
            0 => json!({"destination_ip": range(rng)}),
            1 => json!({"destination_port": pick(rng, &[1, 443])}),
            2 => {
                json!({"destination_port_range": {"start": pick(rng, &[1, 1024]), "end": pick(rng, &[1025, 65_535])}})
            }
            _ => json!({"requested_server_name": string(rng, &["", "a"])}),
        },
    }
}

fn header(rng: &mut Rng) -> Value {
    let (key, condition) = match rng.u8(0..4) {
        0 => ("present_match", json!(rng.bool())),
        1 => ("range_match", json!({"start": pick(rng, &[-1, 1]), "end": pick(rng, &[2, 17])})),
        _ => ("string_match", string(rng, &VALUES)),
    };
    json!({"name": pick(rng, &["x", "X", "y", ":path", ":method", ":authority"]), key: condition, "invert_match": rng.bool()})
}

/// A matcher that fits some of these texts.
fn string(rng: &mut Rng, texts: &[&str]) -> Value {
    let (text, ignore_case) = (pick(rng, texts), rng.bool());
    match rng.u8(0..5) {
        0 if !text.is_empty() => json!({"prefix": text[..1], "ignore_case": ignore_case}),
        1 if !text.is_empty() => json!({"suffix": text[text.len() - 1..], "ignore_case": ignore_case}),
        2 if !text.is_empty() => json!({"contains": text[text.len() / 2..], "ignore_case": ignore_case}),
        3 => json!({"safe_regex": {"regex": format!("{}.*", text.replace('.', "\\."))}}),
        _ => json!({"exact": text, "ignore_case": ignore_case}),
    }
}

fn range(rng: &mut Rng) -> Value {
    let address = pick(rng, &["127.0.0.1", "127.0.0.2", "10.0.0.1", "::1"]);
    json!({"address_prefix": address, "prefix_len": pick(rng, &[0, 8, 31, 32])})
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

const PATHS: [&str; 6] = ["/", "/a", "/A", "/a/b", "/p.S/M", "/p.S/N"];
const VALUES: [&str; 7] = ["a", "A", "ab", "1", "16", "GET", "/a"];
/// The requests for each configuration.
const REQUESTS: usize = 100;
