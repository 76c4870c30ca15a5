//! Access to one path. The API server at home authenticates the caller's token and authorizes the read.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::io::{Class, Error, clients::Connection, reviews};

/// Lifetime of a cached permission.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// Lifetime of a cached refusal. It is short, so that a newly granted right counts soon.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Lifetime of a cached permission while the API server does not answer. Metrics matter most during an outage.
const ALLOWED_UNASKED_FOR: Duration = Duration::from_mins(10);
/// Most tokens with a cached answer; the oldest answer is evicted first.
const MAX_KNOWN: usize = 256;
/// Most tokens under review at a time.
const MAX_ASKED: usize = 4;
/// Longest wait for all reviews of one caller: a scraper waits for ten seconds.
const DEADLINE: Duration = Duration::from_secs(4);
/// Longest token that is reviewed, in bytes.
const MAX_TOKEN: usize = 16 << 10;
/// Name of the API server in log lines.
const PLANE: &str = "the manager's control plane";

/// Result of an access check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The caller may read.
    Allowed,
    /// The request has no token of a known user.
    Unauthenticated,
    /// The user is known and may not read.
    Forbidden,
    /// The API server does not answer.
    Unknown,
}

/// A cached answer, and when it came.
#[derive(Clone, Copy, Debug)]
struct Known {
    verdict: Verdict,
    at: Instant,
}

impl Known {
    /// Returns the answer while it needs no new review.
    fn now(self, now: Instant) -> Option<Verdict> {
        let lifetime = if self.verdict == Verdict::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
        (now.saturating_duration_since(self.at) < lifetime).then_some(self.verdict)
    }

    /// Returns the answer that counts while the API server does not answer.
    fn unasked(self, now: Instant) -> Option<Verdict> {
        let recent = now.saturating_duration_since(self.at) < ALLOWED_UNASKED_FOR;
        (recent && self.verdict == Verdict::Allowed).then_some(self.verdict)
    }
}

/// Digest of a token: the token itself is never stored.
type Caller = [u8; 32];

/// Checks the callers of one path, and caches the answers for a short while.
pub(super) struct Access {
    connection: Connection,
    path: &'static str,
    known: Mutex<HashMap<Caller, Known>>,
    asked: Semaphore,
    /// Reviews of callers that were allowed before. Unknown callers do not delay these.
    asked_again: Semaphore,
    /// True if the last review got no answer; a change is logged once.
    failing: AtomicBool,
}

impl Access {
    /// Checks the callers of `path` with this API server.
    pub(super) fn new(connection: Connection, path: &'static str) -> Self {
        let turns = || Semaphore::new(MAX_ASKED);
        let failing = AtomicBool::new(false);
        Self { connection, path, known: Mutex::default(), asked: turns(), asked_again: turns(), failing }
    }

    /// Returns the path.
    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    /// Returns whether the sender of these headers may read the path.
    pub(super) async fn of(&self, headers: &HeaderMap) -> Verdict {
        let path = self.path;
        let Some(token) = bearer(headers) else { return Verdict::Unauthenticated };
        let caller: Caller = Sha256::digest(token).into();
        let known = self.known(&caller);
        if let Some(verdict) = known.and_then(|known| known.now(Instant::now())) {
            return verdict;
        }
        let was_allowed = known.is_some_and(|known| known.verdict == Verdict::Allowed);
        // Neither semaphore is ever closed.
        let _turn = if was_allowed { &self.asked_again } else { &self.asked }.acquire().await;
        // Another request with the same token may have been reviewed in the meantime.
        let known = self.known(&caller);
        if let Some(verdict) = known.and_then(|known| known.now(Instant::now())) {
            return verdict;
        }
        let late = || Error::Deadline { call: format!("review access to {path} in {PLANE}"), after: DEADLINE };
        match tokio::time::timeout(DEADLINE, self.ask(token)).await.unwrap_or_else(|_| Err(late())) {
            Ok(verdict) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(path, "access reviews are answered again");
                }
                self.learn(caller, verdict);
                verdict
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(path, %error, "access reviews are not answered");
                }
                // If the operator itself may not ask any more, an earlier permission does not count.
                let silent = error.class() == Class::Retry;
                known.filter(|_| silent).and_then(|known| known.unasked(Instant::now())).unwrap_or(Verdict::Unknown)
            }
        }
    }

    async fn ask(&self, token: &str) -> Result<Verdict, Error> {
        let review = reviews::token(&self.connection, PLANE, token).await?;
        let Some(user) = user(&review) else { return Ok(Verdict::Unauthenticated) };
        let answer = reviews::access(&self.connection, PLANE, &question(user, self.path)).await?;
        // Only an explicit permission counts.
        let status = &answer["status"];
        let allowed = status["allowed"] == true && status["denied"] != true;
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }

    fn known(&self, caller: &Caller) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(caller).copied()
    }

    fn learn(&self, caller: Caller, verdict: Verdict) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN && !known.contains_key(&caller) {
            // Made-up tokens must not evict callers that may read.
            let oldest = known.iter().min_by_key(|(_, known)| (known.verdict == Verdict::Allowed, known.at));
            if let Some(oldest) = oldest.map(|(caller, _)| *caller) {
                known.remove(&oldest);
            }
        }
        known.insert(caller, Known { verdict, at: Instant::now() });
    }
}

/// Returns the bearer token of a request, unless it is longer than tokens are.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let fits = !token.is_empty() && token.len() <= MAX_TOKEN;
    (scheme.eq_ignore_ascii_case("bearer") && fits).then_some(token)
}

/// Returns the authenticated user in the answer to a TokenReview.
fn user(review: &Value) -> Option<&Value> {
    let status = &review["status"];
    let named = status["user"]["username"].as_str().is_some_and(|name| !name.is_empty());
    (status["authenticated"] == true && named).then_some(&status["user"])
}

/// The SubjectAccessReview for reading `path` as this user.
fn question(user: &Value, path: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user["username"], "uid": user["uid"], "groups": user["groups"], "extra": user["extra"],
            "nonResourceAttributes": { "path": path, "verb": "get" },
        },
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Access with an API server that does not answer.
    fn unreachable() -> Access {
        let home = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        Access::new(Connection::new(home).unwrap(), "/metrics")
    }

    fn headers(value: &str) -> HeaderMap {
        [(header::AUTHORIZATION, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn bearer_header_yields_its_token() {
        assert_eq!(bearer(&headers("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&headers("bearer abc")), Some("abc"));
        let long = format!("Bearer {}", "x".repeat(MAX_TOKEN + 1));
        for other in ["", "abc", "Bearer ", "Bearer", "Basic abc", &long] {
            assert_eq!(bearer(&headers(other)), None, "{other:.20}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn cached_permission_while_api_server_is_silent_lasts_longer() {
        let at = Instant::now();
        for (verdict, after, now, unasked) in [
            (Verdict::Allowed, 59, true, true),
            (Verdict::Allowed, 61, false, true),
            (Verdict::Allowed, 601, false, false),
            (Verdict::Forbidden, 9, true, false),
            (Verdict::Forbidden, 11, false, false),
            (Verdict::Unauthenticated, 11, false, false),
        ] {
            let (known, later) = (Known { verdict, at }, at + Duration::from_secs(after));
            assert_eq!(known.now(later), now.then_some(verdict), "{verdict:?} after {after} s");
            assert_eq!(known.unasked(later), unasked.then_some(verdict), "{verdict:?} after {after} s, unanswered");
        }
    }

    #[test]
    fn token_review_without_plain_answer_names_no_user() {
        let ada = json!({ "username": "ada", "groups": ["g"] });
        assert_eq!(user(&json!({ "status": { "authenticated": true, "user": ada } })), Some(&ada));
        for status in [
            json!({ "authenticated": false, "user": ada }),
            json!({ "user": ada }),
            json!({ "authenticated": true }),
            json!({ "authenticated": true, "user": { "username": "" } }),
            json!({ "authenticated": "true", "user": ada }),
        ] {
            assert_eq!(user(&json!({ "status": status })), None, "{status}");
        }
    }

    /// Unknown callers with made-up tokens kept permitted callers waiting for a review.
    #[tokio::test]
    async fn permitted_caller_beside_unknown_ones_does_not_wait() {
        let access = unreachable();
        let _strangers = access.asked.acquire_many(MAX_ASKED.try_into().unwrap()).await.unwrap();
        let at = Instant::now().checked_sub(ALLOWED_FOR * 2).unwrap();
        let caller: Caller = Sha256::digest("known").into();
        access.known.lock().unwrap().insert(caller, Known { verdict: Verdict::Allowed, at });
        let asked = |token: &str| access.of(&headers(&format!("Bearer {token}"))).now_or_never();
        assert_eq!(asked("stranger"), None, "all reviews are taken");
        let headers = headers("Bearer known");
        let verdict = tokio::time::timeout(DEADLINE * 2, access.of(&headers)).await.unwrap();
        assert_eq!(verdict, Verdict::Allowed, "the API server does not answer");
    }

    #[tokio::test]
    async fn permitted_caller_beside_made_up_tokens_is_not_evicted() {
        let access = unreachable();
        access.learn([255; 32], Verdict::Allowed);
        for guess in 0..2 * MAX_KNOWN {
            let mut caller = [0; 32];
            caller[..8].copy_from_slice(&guess.to_le_bytes());
            access.learn(caller, Verdict::Unauthenticated);
        }
        assert_eq!(access.known.lock().unwrap().len(), MAX_KNOWN);
        assert!(access.known(&[255; 32]).is_some());
    }
}
