use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::io::store::Store;

/// Answers: status line, and body.
const ENDS_AT_ONCE: (&str, &str) = ("200 OK", "");
const LISTED: (&str, &str) = (
    "200 OK",
    r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"5"},"items":[]}"#,
);
/// The same server at a later version, with a namespace.
const LISTED_LATER: (&str, &str) = (
    "200 OK",
    r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"50"},"items":[{"metadata":{"name":"late","uid":"u","resourceVersion":"50"}}]}"#,
);
/// Later again, without it.
const LISTED_LATER_STILL: (&str, &str) = (
    "200 OK",
    r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"60"},"items":[]}"#,
);
const EXPIRED: (&str, &str) = (
    "410 Gone",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#,
);
/// The same, as the first event.
const EXPIRED_EVENT: (&str, &str) = (
    "200 OK",
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#,
);

const FORBIDDEN: (&str, &str) = (
    "403 Forbidden",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"User \"system:serviceaccount:compute:manager\" cannot list","reason":"Forbidden","code":403}"#,
);

/// A watch on which nothing comes.
const QUIET: (&str, &str) = ("200 OK", "quiet");

/// The server is away: the connection ends without an answer.
const AWAY: (&str, &str) = ("", "away");

/// How often an API server was asked for a list, and for a watch.
#[derive(Default)]
struct Asked {
    lists: AtomicUsize,
    watches: AtomicUsize,
    /// What it answers lists with from now on.
    lists_are: Mutex<Option<(&'static str, &'static str)>>,
}

/// An API server that answers every list and every watch like this; it counts both.
async fn server(
    asked: Arc<Asked>,
    list: (&'static str, &'static str),
    watch: (&'static str, &'static str),
) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let n = stream.read(&mut request).await.unwrap_or(0);
                let (status, body) = if String::from_utf8_lossy(&request[..n]).contains("watch=true") {
                    asked.watches.fetch_add(1, Ordering::SeqCst);
                    watch
                } else {
                    asked.lists.fetch_add(1, Ordering::SeqCst);
                    asked.lists_are.lock().unwrap().unwrap_or(list)
                };
                if body == AWAY.1 {
                    return;
                }
                if body == QUIET.1 {
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
                    let _ = stream.write_all(head.as_bytes()).await;
                    return std::future::pending().await;
                }
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + body).as_bytes()).await;
            });
        }
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    Connection::new(config).unwrap()
}

/// A watch of namespaces there.
fn watch(connection: Connection, store: Arc<Store<()>>, health: &Health) -> Watch<PartialObjectMeta<Namespace>, ()> {
    Watch {
        kind: (),
        connection,
        place: "stub".into(),
        plane: "hub",
        selector: String::new(),
        keep: |_| (),
        cache: store,
        on_fresh: Arc::new(|| ()),
        page: PAGE_SIZE,
        tenant: false,
        health: health.clone(),
        metrics: Metrics::default(),
        timing: Timing::default(),
    }
}

fn store() -> Arc<Store<()>> {
    Arc::new(Store::new(|_, (): &()| Vec::new()))
}

/// Waits until this is so, and as good as for ever when it never is.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_that_ends_every_watch_at_once_makes_no_hot_loop_and_is_reported() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), LISTED, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    let began = Instant::now();
    until("five watches", || asked.watches.load(Ordering::SeqCst) >= 5).await;
    // Four pauses: 0.125, 0.25, 0.5 and 1 s at the least.
    assert!(began.elapsed() > Duration::from_millis(1800), "{:?}", began.elapsed());
    assert!(store.is_synced());
    assert_eq!(health.waiting(), ["namespaces in stub: watch namespaces in stub: unexpected answer: it ended at once"]);
    stop.cancel();
}

/// Found by reading: said as the answer to the request, not as an event, it was asked for the same version for ever; and
/// where each list succeeded, all was listed again without growing patience.
#[tokio::test]
async fn a_version_that_the_server_knows_no_more_when_the_watch_begins_has_all_listed_again_ever_more_rarely() {
    for (expired, pauses) in [(EXPIRED, 1800), (EXPIRED_EVENT, 800)] {
        let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
        let stop = CancellationToken::new();
        let connection = server(asked.clone(), LISTED, expired).await;
        watch(connection, store.clone(), &health).start(stop.clone());
        let began = Instant::now();
        until("five lists", || asked.lists.load(Ordering::SeqCst) >= 5).await;
        // Pauses of 0.125, 0.25, 0.5 and 1 s at the least; after the first that is said as an event there is none.
        assert!(began.elapsed() > Duration::from_millis(pauses), "{:?}", began.elapsed());
        // Found by reading: each list took back what was said of the watch, so that nobody was told.
        let failing = health.failing(&["namespaces"], "stub", std::time::Instant::now()).expect("it is told");
        assert!(failing.lasted > Duration::from_millis(600), "{failing:?}");
        assert_eq!(failing.outline, "namespaces in stub: it does not go on from where this operator has read them");
        assert!(!store.is_live(), "what is known may be old");
        stop.cancel();
    }
}

/// Found by reading: a tenant read the platform's service account on his Workload.
#[tokio::test]
async fn what_tenants_read_of_a_failing_watch_names_nobody() {
    let (asked, health) = (Arc::new(Asked::default()), Health::default());
    let stop = CancellationToken::new();
    watch(server(asked, FORBIDDEN, QUIET).await, store(), &health).start(stop.clone());
    let failing = || health.failing(&["namespaces"], "stub", std::time::Instant::now());
    until("it fails", || failing().is_some()).await;
    let failing = failing().unwrap();
    assert!(failing.problem.contains("system:serviceaccount:compute:manager"), "{failing:?}");
    assert_eq!(failing.outline, "namespaces in stub: it does not let this operator read them");
    stop.cancel();
}

/// A hub that swallows packets: the watch stands, and nothing comes. Found by reading: one late end of a watch was told as an
/// outage of all that time, on every second deployment, though the server answered.
#[tokio::test]
async fn a_watch_on_which_nothing_comes_has_failed_since_it_was_heard_last() {
    let (asked, health) = (Arc::new(Asked::default()), Health::default());
    let stop = CancellationToken::new();
    let timing = Timing { hub_watch_silence: Duration::from_millis(700), ..Timing::default() }.of_hub_watches();
    let quiet = server(asked.clone(), LISTED, QUIET).await;
    Watch { timing, ..watch(quiet, store(), &health) }.start(stop.clone());
    let failing = || health.failing(&["namespaces"], "stub", std::time::Instant::now());
    until("another watch is opened", || asked.watches.load(Ordering::SeqCst) == 2).await;
    assert!(failing().is_none(), "it answers, and one watch may have been lost alone");
    until("that one fails", || failing().is_some()).await;
    assert!(failing().unwrap().lasted >= Duration::from_millis(700), "{:?}", failing());
    stop.cancel();
}

#[tokio::test]
async fn the_rest_of_a_list_that_has_expired_is_no_missing_definition() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), EXPIRED, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    until("a second list", || asked.lists.load(Ordering::SeqCst) >= 2).await;
    assert_eq!(health.waiting(), ["namespaces in stub: list namespaces in stub: too old resource version"]);
    assert!(!store.is_synced());
    stop.cancel();
}

/// Found by reading: a watch from a version of the future is served without a word, for ever, and what a restored backup has
/// lost lived on.
#[tokio::test]
async fn a_server_that_is_at_an_older_version_is_listed_anew() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), LISTED_LATER, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    let late = ObjectKey::new("", "late");
    until("it is listed", || store.contains(&late)).await;
    *asked.lists_are.lock().unwrap() = Some(LISTED);
    until("it is listed anew", || !store.contains(&late)).await;
    stop.cancel();
}

/// Found by reading: one that had passed the version by the time at which it was asked was believed never.
#[tokio::test]
async fn a_server_that_was_away_is_listed_anew() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), LISTED_LATER, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    let late = ObjectKey::new("", "late");
    until("it is listed", || store.contains(&late)).await;
    *asked.lists_are.lock().unwrap() = Some(AWAY);
    let before = asked.lists.load(Ordering::SeqCst);
    until("it has been asked meanwhile", || asked.lists.load(Ordering::SeqCst) > before + 1).await;
    *asked.lists_are.lock().unwrap() = Some(LISTED_LATER_STILL);
    until("it is listed anew", || !store.contains(&late)).await;
    stop.cancel();
}

/// Found by reading: of kinds that were written to since a restore, no watch noticed it by its version.
#[tokio::test]
async fn what_one_watch_finds_of_another_history_has_all_of_its_server_listed_again() {
    let (asked, health) = (Arc::new(Asked::default()), Health::default());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), LISTED_LATER, QUIET).await;
    for _ in 0..2 {
        watch(connection.clone(), store(), &health).start(stop.clone());
    }
    until("both watch", || asked.watches.load(Ordering::SeqCst) == 2).await;
    assert_eq!(asked.lists.load(Ordering::SeqCst), 2);
    connection.another_history();
    until("both have listed again, and watch", || asked.watches.load(Ordering::SeqCst) == 4).await;
    assert_eq!(asked.lists.load(Ordering::SeqCst), 4, "once each");
    stop.cancel();
}
