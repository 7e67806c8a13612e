use std::sync::mpsc::{self, Receiver, SyncSender};

use super::*;
use crate::rbac::{AuditCondition, Auditor, ConnectionFacts, Rbac, RequestFacts};

/// How long a test waits for the thread, if something is wrong.
const LIMIT: Duration = Duration::from_secs(60);

/// What a write does.
enum Write {
    Ok,
    Fail,
    Panic,
}

/// An output whose writes wait for an order, and are then kept.
struct Ordered {
    orders: Receiver<Write>,
    written: Arc<Mutex<Vec<String>>>,
}

impl io::Write for Ordered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.orders.recv().unwrap_or(Write::Ok) {
            Write::Ok => self.written.lock().unwrap().push(String::from_utf8(bytes.to_vec()).unwrap()),
            Write::Fail => return Err(io::ErrorKind::BrokenPipe.into()),
            Write::Panic => panic!("as it should"),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ordered() -> (StdoutAuditLogger, SyncSender<Write>, Arc<Mutex<Vec<String>>>) {
    let (send, orders) = mpsc::sync_channel(100);
    let written = Arc::default();
    let output = Ordered { orders, written: Arc::clone(&written) };
    (StdoutAuditLogger::to(Box::new(output)), send, written)
}

/// Logs events with the names of methods, at the time of the example in Go's documentation.
fn log(logger: &StdoutAuditLogger, methods: impl IntoIterator<Item = String>) {
    let time = Duration::new(1_136_214_245, 999_999_999);
    let auditor =
        Auditor::new("", AuditCondition::OnDenyAndAllow, [Arc::new(logger.clone()) as Arc<dyn AuditLogger>]);
    let rbac = Rbac::from_rules(&no_policies()).with_auditor(auditor);
    let connection = ConnectionFacts::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 9).into());
    for method in methods {
        rbac.authorize(&RequestFacts::new("POST", &method, &connection), time);
    }
}

/// Rules that deny by no policy.
fn no_policies() -> crate::resource::http_filter::RbacRules {
    use crate::resource::{Context, Extension, Payload, http_filter};
    // `rules { action: DENY }`
    let message = Payload::Message(vec![0x0a, 0x02, 0x08, 0x01].into());
    http_filter::Rbac::parse(message, &Context::new()).unwrap().rules.unwrap()
}

#[test]
fn sv10_4_a_line_has_the_form_of_a59() {
    let (logger, orders, written) = ordered();
    log(&logger, ["/p.S/M".to_owned()]);
    orders.send(Write::Ok).unwrap();
    assert!(logger.flush(LIMIT));
    let expected = concat!(
        r#"{"grpc_audit_log":{"timestamp":"2006-01-02T15:04:05.999999999Z","rpc_method":"/p.S/M","principal":"","#,
        r#""policy_name":"","matched_rule":"","authorized":true}}"#,
        "\n"
    );
    assert_eq!(*written.lock().unwrap(), [expected]);
    for (seconds, nanos, expected) in [
        (0, 0, "1970-01-01T00:00:00Z"),
        (951_782_400, 0, "2000-02-29T00:00:00Z"),
        (4_107_542_399, 120_000_000, "2100-02-28T23:59:59.12Z"),
        (4_107_542_400, 1, "2100-03-01T00:00:00.000000001Z"),
        (1_767_225_599, 0, "2025-12-31T23:59:59Z"),
    ] {
        assert_eq!(rfc_3339(Duration::new(seconds, nanos)), expected);
    }
}

#[test]
fn sv10_5_lines_are_whole_in_order_and_written_at_the_end() {
    let (logger, orders, written) = ordered();
    // The path is that of a peer: it cannot add lines.
    let methods: Vec<_> = (0..1_000).map(|i| format!("/{i}\n\"}}\\")).collect();
    log(&logger, methods.clone());
    assert!(!logger.flush(Duration::ZERO), "nothing is written yet");
    drop(orders);
    assert!(logger.flush(LIMIT));
    drop(logger);
    let text = written.lock().unwrap().concat();
    let read: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let read: Vec<_> =
        read.iter().map(|line| line["grpc_audit_log"]["rpc_method"].as_str().unwrap()).collect();
    assert_eq!(read, methods);
    assert!(written.lock().unwrap().iter().all(|write| write.ends_with('\n')), "a write ends with a line");
}

#[test]
fn sv10_5_an_output_that_nobody_reads_delays_no_request_and_what_is_dropped_is_counted() {
    let (logger, orders, written) = ordered();
    log(&logger, (0..MAX_LINES + 2 * BATCH).map(|i| format!("/{i}")));
    // The thread has taken a batch at most, and waits.
    let dropped = logger.dropped();
    assert!((BATCH as u64..=2 * BATCH as u64).contains(&dropped), "{dropped}");
    drop(orders);
    assert!(logger.flush(LIMIT));
    let lines = written.lock().unwrap().concat().lines().count() as u64;
    assert_eq!(lines + dropped, (MAX_LINES + 2 * BATCH) as u64);
    log(&logger, ["/later".to_owned()]);
    assert!(logger.flush(LIMIT));
    assert!(written.lock().unwrap().concat().contains("/later"), "it has recovered");
    assert_eq!(logger.dropped(), dropped);
}

#[test]
fn sv10_5_an_output_that_fails_or_panics_loses_its_lines_alone() {
    let (logger, orders, written) = ordered();
    for (order, lost) in [(Write::Fail, 1), (Write::Panic, 2), (Write::Ok, 2)] {
        log(&logger, ["/a".to_owned()]);
        orders.send(order).unwrap();
        assert!(logger.flush(LIMIT));
        assert_eq!(logger.dropped(), lost);
    }
    assert_eq!(written.lock().unwrap().len(), 1);
}

#[test]
fn sv10_5_the_thread_ends_with_the_logger() {
    let (logger, orders, written) = ordered();
    let clone = logger.clone();
    log(&logger, ["/a".to_owned()]);
    drop((logger, clone));
    orders.send(Write::Ok).unwrap();
    // The output is dropped by the thread, which then sends no more.
    while orders.send(Write::Ok).is_ok() {
        thread::yield_now();
    }
    assert_eq!(written.lock().unwrap().len(), 1, "what waits is written first");
}
