//! The servers of the simulation: what real ones announce, and what some of them do to their clients.

use std::time::Duration;

use super::frames::{self, Setting};

/// The server that a peer is modelled on, by what it announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Real {
    CCore,
    GrpcGo,
    GrpcJava,
    Node,
    Nginx,
    Envoy,
    Hyper,
}

/// How a peer behaves.
#[derive(Debug, Clone)]
pub(super) struct Behavior {
    pub(super) real: Real,
    /// The bytes of a request that may arrive before they are read.
    pub(super) stream_window: u32,
    /// The same for all requests of a connection.
    pub(super) connection_window: u32,
    pub(super) max_streams: Option<u32>,
    /// The largest header list that is accepted.
    pub(super) header_limit: Option<u32>,
    pub(super) quirks: Vec<Quirk>,
}

/// What a peer does besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Quirk {
    /// The window of a stream is that small, and opened again as data arrive; 0 opens it after HEADERS.
    SmallStreamWindow(u32),
    /// Requests are not read: the windows of streams stay closed (a handler that is busy, of any server).
    NeverOpensStreams,
    /// The window of the connection is opened by nothing (hyper, where no handler reads).
    NeverOpensConnection,
    MaxStreams(u32),
    /// MAX_CONCURRENT_STREAMS changes at runtime (Envoy under load, grpc-java).
    ChangesMaxStreams {
        after: Duration,
        to: u32,
    },
    /// So many RST_STREAMs end the connection (Node, nginx, Envoy, grpc-java since the attack of rapid resets).
    LimitsResets(u32),
    GoAway {
        after: Duration,
        style: GoAwayStyle,
    },
    /// GOAWAY in one flight with SETTINGS, or a little later (a server that is shutting down).
    GoAwayAfterSettings(Duration),
    /// The connection is closed after SETTINGS (a proxy without a backend).
    EndsAfterSettings(Duration),
    /// PINGs are answered never, or late (servers under load).
    NoPong,
    LatePong(Duration),
    /// All DATA frames are that small (Node, where each write of the application is a frame).
    SmallFrames(usize),
    /// The peer reads and writes nothing any more (a process that is stopped).
    Silent {
        after: Duration,
    },
    /// The socket ends (a process that is killed).
    Cut {
        after: Duration,
    },
    /// So large header lists are refused: the connection ends with ENHANCE_YOUR_CALM (C-core, Node).
    HeaderLimit(u32),
}

/// How a server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoAwayStyle {
    /// A warning, and the last stream after a round trip (grpc-go, grpc-java, Envoy).
    TwoSteps,
    /// The last stream at once; running streams end well (nginx after its number of requests, hyper).
    OneStep,
    /// With an error, and the end of all streams (grpc-go for too many pings).
    Error { code: u32, debug: usize },
}

impl Real {
    pub(super) const ALL: [Self; 7] =
        [Self::CCore, Self::GrpcGo, Self::GrpcJava, Self::Node, Self::Nginx, Self::Envoy, Self::Hyper];
}

impl Behavior {
    /// What a server announces by default.
    pub(super) fn of(real: Real) -> Self {
        let (stream_window, connection_window, max_streams, header_limit) = match real {
            Real::CCore => (65_535, 4 << 20, None, Some(16 << 10)),
            Real::GrpcGo => (65_535, 65_535, None, None),
            Real::GrpcJava => (1 << 20, 1 << 20, None, Some(8 << 10)),
            Real::Node => (65_535, 65_535, Some(u32::MAX), Some(65_535)),
            Real::Nginx => (65_536, i32::MAX as u32, Some(128), None),
            Real::Envoy => (16 << 20, 24 << 20, Some(1_024), Some(60 << 10)),
            Real::Hyper => (1 << 20, 1 << 20, Some(200), Some(16 << 10)),
        };
        Self { real, stream_window, connection_window, max_streams, header_limit, quirks: Vec::new() }
    }

    pub(super) fn with(mut self, quirks: impl IntoIterator<Item = Quirk>) -> Self {
        for quirk in quirks {
            if let Quirk::SmallStreamWindow(window) = quirk {
                self.stream_window = window;
            }
            if let Quirk::MaxStreams(streams) = quirk {
                self.max_streams = Some(streams);
            }
            if let Quirk::HeaderLimit(limit) = quirk {
                self.header_limit = Some(limit);
            }
            self.quirks.push(quirk);
        }
        self
    }

    /// The parameters of its SETTINGS.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let mut settings = vec![Setting { id: frames::INITIAL_WINDOW_SIZE, value: self.stream_window }];
        let streams = self.max_streams.map(|value| Setting { id: frames::MAX_CONCURRENT_STREAMS, value });
        let headers = self.header_limit.map(|value| Setting { id: frames::MAX_HEADER_LIST_SIZE, value });
        settings.extend(streams.into_iter().chain(headers));
        settings
    }

    /// The smallest number of streams that it ever permits.
    pub(super) fn fewest_streams(&self) -> u32 {
        let changes = self.quirks.iter().filter_map(|quirk| {
            let Quirk::ChangesMaxStreams { to, .. } = quirk else { return None };
            Some(*to)
        });
        changes.chain(self.max_streams).min().unwrap_or(u32::MAX)
    }

    /// Whether frames of a stream that were queued follow its RST_STREAM (grpc-java, when a deadline passes there).
    pub(super) fn goes_on_after_reset(&self) -> bool {
        self.real == Real::GrpcJava
    }

    /// The number of resets that ends a connection.
    pub(super) fn max_resets(&self) -> Option<u32> {
        self.quirks.iter().find_map(|quirk| {
            let Quirk::LimitsResets(resets) = quirk else { return None };
            Some(*resets)
        })
    }

    /// Whether connections to it end, or stop, in such a way that calls on them cannot succeed.
    pub(super) fn breaks_connections(&self) -> bool {
        self.quirks.iter().any(|quirk| match quirk {
            Quirk::GoAway { style, .. } => matches!(style, GoAwayStyle::Error { .. }),
            Quirk::GoAwayAfterSettings(_)
            | Quirk::EndsAfterSettings(_)
            | Quirk::Silent { .. }
            | Quirk::Cut { .. } => true,
            Quirk::SmallStreamWindow(_)
            | Quirk::NeverOpensStreams
            | Quirk::NeverOpensConnection
            | Quirk::MaxStreams(_)
            | Quirk::ChangesMaxStreams { .. }
            | Quirk::LimitsResets(_)
            | Quirk::NoPong
            | Quirk::LatePong(_)
            | Quirk::SmallFrames(_)
            | Quirk::HeaderLimit(_) => false,
        })
    }

    /// Whether it accepts further connections, and serves calls on them, after each end of one.
    pub(super) fn serves_again(&self) -> bool {
        !self.has(|quirk| {
            matches!(
                quirk,
                Quirk::GoAwayAfterSettings(_)
                    | Quirk::EndsAfterSettings(_)
                    | Quirk::Silent { .. }
                    | Quirk::NeverOpensConnection
            )
        })
    }

    pub(super) fn has(&self, condition: impl Fn(&Quirk) -> bool) -> bool {
        self.quirks.iter().any(condition)
    }

    /// How long a PING waits for its answer; `None` is forever.
    pub(super) fn pong_after(&self) -> Option<Duration> {
        if self.has(|quirk| *quirk == Quirk::NoPong) {
            return None;
        }
        let late = self.quirks.iter().find_map(|quirk| {
            let Quirk::LatePong(late) = quirk else { return None };
            Some(*late)
        });
        Some(late.unwrap_or_default())
    }

    /// The largest DATA frame that it writes.
    pub(super) fn frame(&self) -> usize {
        let small = self.quirks.iter().filter_map(|quirk| {
            let Quirk::SmallFrames(bytes) = quirk else { return None };
            Some(*bytes)
        });
        small.min().unwrap_or(usize::MAX)
    }
}
