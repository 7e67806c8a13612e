use tracing::{debug, trace};

use super::{Engine, pending_response::PendingResponse};
use crate::{
    cache::{Entry, News, ResourceState},
    escape::Escaped,
    protocol::{EntryId, ViewId},
};

impl Engine {
    /// Gives news to an entry, whatever they are. True when there is something new to see.
    pub(super) fn give_news(&mut self, id: EntryId, news: impl FnOnce(&mut Entry) -> News) -> bool {
        let Some(entry) = self.table.get_mut(id) else { return false };
        let before = self.counters.begin(entry);
        let news = news(entry);
        self.counters.end(before, entry);
        if !entry.is_held() {
            self.ttls.set(id, None);
        }
        log(entry, self.types[entry.ty.index()].type_url(), news);
        self.note_turn(id);
        news.into()
    }

    /// What is logged of a response is found in this span, however many slices it is worked off in.
    pub(super) fn span_of(&self, job: &PendingResponse) -> tracing::Span {
        let server = self.servers[job.server()].machine.source();
        let (type_url, nonce) = (job.envelope.type_url(), job.envelope.nonce());
        tracing::debug_span!("response", %server, type_url, version = %Escaped(&job.version), nonce)
    }

    /// Says who is told of an entry.
    pub(super) fn log_told(&self, id: EntryId, view: ViewId) {
        if !tracing::enabled!(tracing::Level::TRACE) {
            return;
        }
        if let Some(entry) = self.table.get(id) {
            trace!(%view, type_url = self.types[entry.ty.index()].type_url(), name = %Escaped(&entry.name), "watcher notified");
        }
    }
}

/// Says what has become of an entry. Nothing is looked at for it unless somebody listens.
fn log(entry: &Entry, type_url: &'static str, news: News) {
    let (name, kept) = (Escaped(&entry.name), entry.is_held());
    let Some(setback) = entry.setback() else {
        return match (news, entry.held()) {
            (News::Changed, Some((version, _))) => {
                debug!(type_url, %name, version = %Escaped(version), "resource accepted");
            }
            (News::Same, Some((version, _))) => {
                trace!(type_url, %name, version = %Escaped(version), "resource unchanged");
            }
            // Not there, and there is nothing to be said of that.
            (News::Changed | News::Same, None) => {}
        };
    };
    let (version, error) = (Escaped(&setback.update.version), &setback.error);
    match (news, setback.state) {
        (News::Same, state) => trace!(type_url, %name, %version, %state, "error unchanged"),
        (News::Changed, ResourceState::Nacked) => {
            debug!(type_url, %name, %version, kept, %error, "resource rejected");
        }
        (News::Changed, ResourceState::DoesNotExist) => {
            debug!(type_url, %name, %version, kept, %error, "resource does not exist");
        }
        (News::Changed, ResourceState::Timeout) => debug!(type_url, %name, %error, "resource timed out"),
        (News::Changed, ResourceState::ReceivedError) => {
            debug!(type_url, %name, %version, kept, %error, "resource error from the server");
        }
        (News::Changed, ResourceState::Requested | ResourceState::Acked) => {
            debug_assert!(false, "these are no bad news");
        }
    }
}
