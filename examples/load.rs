//! A client that reports its load to its management server (LRS), which prints the reports and their sums.
//!
//! ```console
//! $ cargo run --example load -- --seconds 3
//! ```
//!
//! The control plane and the client run in this process, on loopback. The calls are made up: what the client has to do is in
//! `Shop::call`. The program ends by itself; its exit code is 1 if a call is missing in the sums.

#[path = "common/print_line.rs"]
mod print_line;

use std::{env, error::Error, process::ExitCode, time::Duration};

use tokio::time::{Instant, sleep, sleep_until, timeout};
use xdskit::{
    Client,
    config::{Bootstrap, Locality},
    control_plane::{LoadReport, LoadReporting},
    lrs::{LoadReporter, LocalityReporter, Outcome},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints},
    },
};

use self::print_line::print_line;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let seconds = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => {
            print_line(USAGE);
            return ExitCode::SUCCESS;
        }
        [] => Some(DEFAULT_SECONDS),
        ["--seconds", seconds] => seconds.parse().ok().filter(|seconds| (1..=3600).contains(seconds)),
        [..] => None,
    };
    let Some(seconds) = seconds.map(Duration::from_secs) else {
        eprintln!("load: cannot understand {}\n{USAGE}", args.join(" "));
        return ExitCode::from(2);
    };
    let error = match timeout(seconds + GRACE, run(seconds)).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the sums are not complete".to_owned(),
    };
    eprintln!("load: {error}");
    ExitCode::FAILURE
}

async fn run(seconds: Duration) -> Result<(), Box<dyn Error>> {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop").report_load());
    server.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]).locality("eu", "b", ["10.0.0.2:80"]));
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)));

    let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json())?).build()?;
    let shop = Shop::new(client.load_reporter("shop"));
    // Calls are counted once the configuration of the cluster is there.
    while shop.reporter.stats().is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    let mut driving = tokio::spawn(async move { shop.drive(seconds).await });
    let mut reports = server.control_plane().loads();
    let (calls, drops) = loop {
        tokio::select! {
            report = reports.next() => print_report(&report),
            ended = &mut driving => break ended?,
        }
    };
    // The last calls are in the next report.
    let totals = loop {
        let totals = server.control_plane().load_totals("shop");
        if (totals.issued, totals.successful + totals.failed, totals.dropped) == (calls, calls, drops) {
            break totals;
        }
        let report = reports.next().await;
        print_report(&report);
    };
    while let Some(report) = reports.try_next() {
        print_report(&report);
    }
    print_line(format_args!(
        "{calls} calls and {drops} drops, in {} reports: {} succeeded, {} failed",
        totals.reports, totals.successful, totals.failed
    ));
    Ok(())
}

/// A client of a service, with the counters of the two localities of its endpoints.
struct Shop {
    reporter: LoadReporter,
    zones: [LocalityReporter; 2],
}

impl Shop {
    fn new(reporter: LoadReporter) -> Self {
        let zones = ["a", "b"].map(|zone| reporter.locality(&Locality::new("eu", zone, "")));
        Self { reporter, zones }
    }

    /// Makes calls for some time, and waits for their ends. Returns their number, and that of the drops.
    async fn drive(self, time: Duration) -> (u64, u64) {
        let end = Instant::now() + time;
        let (mut calls, mut drops) = (0, 0);
        let mut running = tokio::task::JoinSet::new();
        while Instant::now() < end {
            if fastrand::u8(..) < 10 {
                self.reporter.dropped("throttle");
                drops += 1;
            } else {
                running.spawn(Self::call(fastrand::choice(&self.zones).expect("there are two").clone()));
                calls += 1;
            }
            sleep_until(Instant::now() + Duration::from_millis(5)).await;
        }
        running.join_all().await;
        (calls, drops)
    }

    /// A call takes up to half a second, and some fail.
    async fn call(zone: LocalityReporter) {
        let call = zone.call_started();
        sleep(Duration::from_millis(fastrand::u64(..500))).await;
        let outcome = if fastrand::u8(..) < 25 { Outcome::Error } else { Outcome::Success };
        call.finish(outcome, None);
    }
}

/// Prints a report that the control plane has received.
fn print_report(report: &LoadReport) {
    for load in report.clusters() {
        let interval = load.interval.unwrap_or_default();
        print_line(format_args!(
            "{} to {} in {interval:.1?}: {} dropped",
            report.node(),
            load.cluster,
            load.dropped
        ));
        for zone in &load.localities {
            let calls = zone.requests;
            print_line(format_args!(
                "  {}/{}: {} issued, {} successful, {} failed, {} in progress",
                zone.locality.region(),
                zone.locality.zone(),
                calls.issued,
                calls.successful,
                calls.failed,
                calls.in_progress
            ));
        }
    }
}

/// How long the last calls and their report may take.
const GRACE: Duration = Duration::from_secs(10);

/// How long calls are made unless the command line has a number.
const DEFAULT_SECONDS: u64 = 3;

const USAGE: &str = "\
usage: load [--seconds N]

Drives a load that is made up for N seconds, 3 by default and 3600 at most, and prints what the management server receives of it.";
