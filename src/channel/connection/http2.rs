//! The settings of HTTP/2 on connections to endpoints: each limit of the h2 crate's client, decided.

use std::time::Duration;

use h2::client::Builder;

/// The limits of what an endpoint may send on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::channel) struct Http2Settings {
    /// The largest header list of a response, and of its trailers, by HTTP/2's count: the lengths of names and values, and 32 bytes
    /// for each field (RFC 9113, section 6.5.2).
    pub(in crate::channel) max_header_list_size: u32,
    /// The largest window of a stream: the bytes that an endpoint may send on it before the application reads them.
    pub(in crate::channel) max_stream_window: u32,
    /// The bytes that all streams of a connection may hold unread above [`INITIAL_WINDOW`] each.
    pub(in crate::channel) max_unread: u64,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Self { max_header_list_size: 16 << 10, max_stream_window: 16 << 20, max_unread: 64 << 20 }
    }
}

impl Http2Settings {
    /// The h2 client of a connection. `docs/channel/http2.md` has the table of these decisions.
    pub(super) fn client(&self) -> Builder {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_max_send_streams(UNKNOWN_STREAMS)
            .initial_window_size(INITIAL_WINDOW)
            // What an application does not read must not keep the responses of other calls from arriving: streams have windows,
            // the connection has none that counts.
            .initial_connection_window_size(LARGEST_WINDOW)
            .max_frame_size(MAX_FRAME)
            .max_header_list_size(self.enforced_header_list_size())
            .max_send_buffer_size(SEND_BUFFER)
            // A frame that was under way when its stream was reset is no fault of anybody (RFC 9113, section 5.1). The crate ignores
            // such frames on streams that it remembers, and counts others, without an end, against a limit at which it closes the
            // connection.
            .max_concurrent_reset_streams(REMEMBERED_RESETS)
            .reset_stream_duration(RESET_MEMORY)
            .max_local_error_reset_streams(Some(LOCAL_ERROR_RESETS))
            // At the end of this budget the crate closes the connection, and it is charged for frames on streams that were reset without
            // being given back. `Responses::compact` bounds what small frames take instead.
            .data_frame_budget(usize::MAX);
        builder
    }

    /// Returns the header list size at which the h2 crate resets a stream. It closes the connection at 4 times that, or by one
    /// frame behind it that is larger, and does not report why it has reset a stream: a list that is only a little too large is
    /// to fail its own call, with the name of the limit.
    pub(in crate::channel) fn enforced_header_list_size(&self) -> u32 {
        self.max_header_list_size.saturating_mul(ENFORCED_FACTOR).max(2 * MAX_FRAME)
    }
}

/// The limit of streams until the SETTINGS of the peer have arrived, which no peer can send (CH15.2).
// h2 has no event for the first SETTINGS. `usize::MAX` is its value for SETTINGS without a limit, so that the arrival shows as
// any other value than this one.
pub(super) const UNKNOWN_STREAMS: usize = usize::MAX - 1;
/// The window of a stream at first, as HTTP/2 has it by default (RFC 9113, section 6.9.2).
pub(super) const INITIAL_WINDOW: u32 = (1 << 16) - 1;
/// The largest window that HTTP/2 has.
pub(super) const LARGEST_WINDOW: u32 = (1 << 31) - 1;
/// The number of small DATA frames that wait to be read after which they are merged.
pub(super) const COMPACT_AFTER: u32 = 8 << 10;
/// The longest frame that a peer may send.
const MAX_FRAME: u32 = 64 << 10;
/// The bytes of a request that one stream holds before they are written.
const SEND_BUFFER: usize = 400 << 10;
/// How many streams that the channel has reset are remembered, and for how long.
const REMEMBERED_RESETS: usize = 1 << 17;
const RESET_MEMORY: Duration = Duration::from_secs(3);
/// How many frames on streams that are not remembered a peer may send during the life of a connection.
const LOCAL_ERROR_RESETS: usize = 1 << 17;
/// The number of answers to such frames after which a connection is replaced.
pub(super) const REPLACE_AFTER_RESETS: usize = LOCAL_ERROR_RESETS / 2;
/// How many times larger the enforced header list size is than the announced one.
const ENFORCED_FACTOR: u32 = 8;
