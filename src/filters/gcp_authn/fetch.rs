//! The fetch of an identity token, beside the calls that wait for it.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{FetchTime, IdentityTokens, OnToken, Token, TokenError, TokenResult};
use crate::filters::FilterCallbacks;

/// A fetch that runs. However it ends, the calls that wait for it have an answer.
struct Fetch {
    tokens: Arc<IdentityTokens>,
    audience: Arc<str>,
    callbacks: Arc<dyn FilterCallbacks>,
    /// Whether the outcome was reported, so that a drop reports nothing.
    is_finished: bool,
}

/// Waits for the result of a fetch.
pub(super) struct Fetched(Arc<Mutex<Delivery>>);

/// The state between a fetch and a call that waits for it.
enum Delivery {
    /// Set once the call has polled.
    Waiting(Option<Waker>),
    /// The result, which each further poll returns.
    Delivered(TokenResult),
}

/// Fetches a token in a task of its own, since the call that needs it first may end before others that wait for it.
pub(super) fn spawn(tokens: &Arc<IdentityTokens>, audience: &Arc<str>, callbacks: &Arc<dyn FilterCallbacks>) {
    let (tokens, audience, callbacks) = (tokens.clone(), audience.clone(), callbacks.clone());
    let outcome = callbacks.fetch_identity_token(audience.clone());
    let fetch = Fetch { tokens, audience, callbacks: callbacks.clone(), is_finished: false };
    callbacks.spawn(Box::pin(async move { fetch.finish(outcome.await) }));
}

/// Returns what delivers the token to a call, and what the call waits for.
pub(super) fn fetched() -> (OnToken, Fetched) {
    let delivery = Arc::new(Mutex::new(Delivery::Waiting(None)));
    let fetched = Fetched(delivery.clone());
    let deliver = move |token: TokenResult| {
        let mut delivery = delivery.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *delivery, Delivery::Delivered(token));
        // Unlocked before the waker: the task may poll at once, on another thread.
        drop(delivery);
        if let Delivery::Waiting(Some(waker)) = before {
            waker.wake();
        }
    };
    (Box::new(deliver), fetched)
}

impl Fetch {
    /// Reports the outcome of a fetch that was not aborted.
    fn finish(mut self, outcome: Result<Token, TokenError>) {
        self.is_finished = true;
        self.report(outcome);
    }

    /// Stores the outcome in the cache, and delivers it to the calls that wait.
    fn report(&self, outcome: Result<Token, TokenError>) {
        let at = FetchTime { now: self.callbacks.now(), since_1970: self.callbacks.since_1970() };
        let fetched = self.tokens.lock().on_fetched(&self.audience, outcome, at, &mut fastrand::Rng::new());
        // The cache is unlocked by now: what the calls do next may need it.
        let (waiters, result) = fetched;
        if let Err(error) = &result {
            tracing::debug!(audience = &*self.audience, error = &*error.message, "no identity token");
        }
        for waiter in waiters {
            waiter(result.clone());
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        // The fetch panicked, or its runtime has ended: the calls must not wait for ever.
        if !self.is_finished {
            self.report(Err(TokenError::unavailable(&self.audience, "the fetch was aborted")));
        }
    }
}

impl Future for Fetched {
    type Output = TokenResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TokenResult> {
        let mut delivery = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *delivery {
            Delivery::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Delivery::Delivered(token) => Poll::Ready(token.clone()),
        }
    }
}
