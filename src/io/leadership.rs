//! Leader election on a separate thread. The Lease is renewed even while every worker of the main runtime is busy, for example
//! with a tenant's template of megabytes.

use std::thread;

use tokio::{runtime::Builder, sync::oneshot};
use tokio_util::sync::CancellationToken;

use super::lease::Candidate;

/// A candidate that runs on its own thread.
pub struct Leadership {
    acquired: oneshot::Receiver<()>,
    /// Ends the candidacy. A leader releases the Lease.
    done: CancellationToken,
    /// True if the Lease was released. False or closed if it was lost.
    ended: oneshot::Receiver<bool>,
}

impl Leadership {
    /// Starts the candidacy. `make` creates the candidate on the runtime of the thread, which owns its connections. `working` is
    /// cancelled at once when the Lease is lost.
    ///
    /// # Errors
    /// One line, if the thread or the candidate cannot be created.
    pub async fn seek(
        make: impl FnOnce() -> Result<Candidate, String> + Send + 'static,
        working: CancellationToken,
    ) -> Result<Self, String> {
        let done = CancellationToken::new();
        let (began, beginning) = oneshot::channel();
        let (lead, acquired) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let stop = done.clone();
        let run = move || {
            // In every case, even after a panic, no work continues without the Lease.
            let working = working.drop_guard();
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(began.send(Err(error.to_string()))),
            };
            runtime.block_on(async move {
                let mut candidate = match make() {
                    Ok(candidate) => candidate,
                    Err(error) => return drop(began.send(Err(error))),
                };
                let _ = began.send(Ok(()));
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = candidate.acquire() => {}
                }
                if lead.send(()).is_err() {
                    stop.cancel(); // the caller has stopped waiting
                }
                candidate.hold(&stop).await;
                drop(working);
                let _ = end.send(stop.is_cancelled());
            });
        };
        let thread = thread::Builder::new().name("lease".into()).spawn(run);
        thread.map_err(|error| format!("cannot start the leader election: {error}"))?;
        beginning.await.unwrap_or_else(|_| Err("leader election ended before it began".into()))?;
        Ok(Self { acquired, done, ended })
    }

    /// Waits until the Lease is ours. A caller that stops waiting drops this, which ends the candidacy.
    pub async fn acquired(&mut self) {
        // The thread ends early only by a bug. `hold` reports that.
        let _ = (&mut self.acquired).await;
    }

    /// Holds the Lease until `let_go`. False if the Lease is lost before.
    pub async fn hold(mut self, let_go: oneshot::Receiver<()>) -> bool {
        tokio::select! {
            kept = &mut self.ended => return kept.unwrap_or(false),
            _ = let_go => self.done.cancel(),
        }
        (&mut self.ended).await.unwrap_or(false)
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.done.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::{TcpListener, TcpStream},
        sync::{
            Arc, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::{Duration, Instant},
    };

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        io::{clients::Connection, health::Health},
        timing::Timing,
    };

    const DEADLINE: Duration = Duration::from_secs(3);

    fn timing() -> Timing {
        Timing { lease_duration: DEADLINE * 3 / 2, ..Timing::default() }
    }

    /// An API server with one Lease, on its own threads.
    struct Server {
        url: String,
        lease: Mutex<Option<Value>>,
        renewals: AtomicUsize,
        refuses: std::sync::atomic::AtomicBool,
    }

    impl Server {
        fn start() -> Arc<Self> {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let (lease, renewals, refuses) = (Mutex::new(None), AtomicUsize::new(0), false.into());
            let server = Arc::new(Self { url, lease, renewals, refuses });
            let serving = server.clone();
            thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let server = serving.clone();
                    thread::spawn(move || while server.answer(&client).is_some() {});
                }
            });
            server
        }

        fn answer(&self, mut client: &TcpStream) -> Option<()> {
            let mut reader = BufReader::new(client);
            let (mut method, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                let line = line.trim_end().to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                if method.is_empty() {
                    method.clone_from(&line);
                }
                length = line.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap());
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            let (code, body) = self.stored(&method, &body);
            let body = body.to_string();
            let head = format!("HTTP/1.1 {code} -\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
            client.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).ok()
        }

        fn stored(&self, method: &str, body: &[u8]) -> (u16, Value) {
            let mut lease = self.lease.lock().unwrap();
            let status = |code: u16, reason: &str| {
                let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason,
                    "reason": reason, "code": code });
                (code, body)
            };
            if self.refuses.load(Ordering::Relaxed) {
                return status(403, "Forbidden");
            }
            if method.starts_with("get") {
                return lease.clone().map_or_else(|| status(404, "NotFound"), |lease| (200, lease));
            }
            let renewals = self.renewals.fetch_add(1, Ordering::Relaxed);
            let mut next: Value = serde_json::from_slice(body).unwrap();
            next["metadata"]["resourceVersion"] = json!(renewals.to_string());
            *lease = Some(next.clone());
            (200, next)
        }

        fn renewals(&self) -> usize {
            self.renewals.load(Ordering::Relaxed)
        }

        async fn seek(&self, working: &CancellationToken) -> Leadership {
            let config = kube::Config::new(self.url.parse().unwrap());
            let make = move || {
                let connection = Connection::new(config)?;
                Ok(Candidate::new(connection, "ns", "me".into(), &Health::default(), timing()))
            };
            let mut leadership = Leadership::seek(make, working.clone()).await.unwrap();
            leadership.acquired().await;
            leadership
        }
    }

    /// A debug build that wrote a large snapshot to its log could not renew its Lease, and ended.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lease_all_workers_busy_beyond_the_deadline_is_renewed() {
        let (server, working) = (Server::start(), CancellationToken::new());
        let leadership = server.seek(&working).await;
        let (release, let_go) = oneshot::channel();
        let held = tokio::spawn(leadership.hold(let_go));
        let before = server.renewals();
        let busy = || async {
            let until = Instant::now() + DEADLINE * 3 / 2;
            while Instant::now() < until {
                thread::sleep(Duration::from_millis(1)); // no await: the worker does nothing else
            }
        };
        let all: Vec<_> = (0..2).map(|_| tokio::spawn(busy())).collect();
        busy().await;
        let renewals = server.renewals() - before;
        for one in all {
            one.await.unwrap();
        }
        assert!(renewals > 1, "{renewals} renewals in that time");
        assert!(!working.is_cancelled() && !held.is_finished());
        release.send(()).unwrap();
        assert!(held.await.unwrap(), "released, not lost");
        let holder = server.lease.lock().unwrap().clone().unwrap()["spec"]["holderIdentity"].clone();
        assert!(holder.is_null(), "other candidates need not wait: {holder}");
    }

    #[tokio::test]
    async fn lease_lost_stops_the_work_at_once() {
        let (server, working) = (Server::start(), CancellationToken::new());
        let leadership = server.seek(&working).await;
        server.refuses.store(true, Ordering::Relaxed);
        let (_release, let_go) = oneshot::channel();
        let began = Instant::now();
        let held = leadership.hold(let_go).await;
        assert!(!held && working.is_cancelled());
        assert!(began.elapsed() < 3 * DEADLINE, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn lease_candidate_dropped_stops_renewing() {
        let (server, working) = (Server::start(), CancellationToken::new());
        drop(server.seek(&working).await);
        working.cancelled().await;
        let renewals = server.renewals();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(server.renewals(), renewals);
    }
}
