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
use crate::{io::store::Store, timing::Timing};

/// Answers: status line and body.
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
/// The same server later still, without the namespace.
const LISTED_LATER_STILL: (&str, &str) = (
    "200 OK",
    r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"60"},"items":[]}"#,
);
const EXPIRED: (&str, &str) = (
    "410 Gone",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#,
);
/// The same as the first event.
const EXPIRED_EVENT: (&str, &str) = (
    "200 OK",
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#,
);

const FORBIDDEN: (&str, &str) = (
    "403 Forbidden",
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"User \"system:serviceaccount:compute:manager\" cannot list","reason":"Forbidden","code":403}"#,
);

/// A watch without events.
const QUIET: (&str, &str) = ("200 OK", "quiet");

/// The server is unavailable: the connection ends without an answer.
const AWAY: (&str, &str) = ("", "away");

/// Counts of lists and watches that an API server received.
#[derive(Default)]
struct Asked {
    lists: AtomicUsize,
    watches: AtomicUsize,
    /// The answer to lists from now on.
    lists_are: Mutex<Option<(&'static str, &'static str)>>,
}

/// Starts an API server that gives these answers to every list and every watch, and counts both.
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

/// Returns a watch of namespaces on this connection.
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
        timing: Timing::default().watches(),
    }
}

fn store() -> Arc<Store<()>> {
    Arc::new(Store::new(|_, (): &()| Vec::new()))
}

/// Waits until the condition holds, for at most a minute.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn watch_ended_at_once_backs_off_and_is_reported() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), LISTED, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    let began = Instant::now();
    until("five watches", || asked.watches.load(Ordering::SeqCst) >= 5).await;
    // Four pauses of at least 0.125, 0.25, 0.5 and 1 s.
    assert!(began.elapsed() > Duration::from_millis(1800), "{:?}", began.elapsed());
    assert!(store.is_synced());
    assert_eq!(health.waiting(), ["namespaces in stub: watch namespaces in stub: unexpected answer: it ended at once"]);
    stop.cancel();
}

/// If the server rejected a version at the start of a watch, that version was requested forever. If each list succeeded, lists
/// were repeated without back-off.
#[tokio::test]
async fn watch_version_expired_at_its_start_lists_again_with_back_off() {
    for (expired, pauses) in [(EXPIRED, 1800), (EXPIRED_EVENT, 800)] {
        let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
        let stop = CancellationToken::new();
        let connection = server(asked.clone(), LISTED, expired).await;
        watch(connection, store.clone(), &health).start(stop.clone());
        let began = Instant::now();
        until("five lists", || asked.lists.load(Ordering::SeqCst) >= 5).await;
        // Pauses of at least 0.125, 0.25, 0.5 and 1 s. The first rejection by an event causes no pause.
        assert!(began.elapsed() > Duration::from_millis(pauses), "{:?}", began.elapsed());
        // Each successful list cleared the problem of the watch, so it was never reported.
        let failing = health.failing(&["namespaces"], "stub", std::time::Instant::now()).expect("it is reported");
        assert!(failing.lasted > Duration::from_millis(600), "{failing:?}");
        assert_eq!(failing.outline, "namespaces in stub: it cannot continue the watch");
        assert!(!store.is_live(), "the cache may be old");
        stop.cancel();
    }
}

/// A tenant read the platform's service account on a Workload.
#[tokio::test]
async fn watch_failure_for_tenants_names_no_account() {
    let (asked, health) = (Arc::new(Asked::default()), Health::default());
    let stop = CancellationToken::new();
    watch(server(asked, FORBIDDEN, QUIET).await, store(), &health).start(stop.clone());
    let failing = || health.failing(&["namespaces"], "stub", std::time::Instant::now());
    until("it fails", || failing().is_some()).await;
    let failing = failing().unwrap();
    assert!(failing.problem.contains("system:serviceaccount:compute:manager"), "{failing:?}");
    assert_eq!(failing.outline, "namespaces in stub: this operator may not read them");
    stop.cancel();
}

#[test]
fn silent_hub_is_reported_on_deployments_within_twenty_seconds() {
    let timing = Timing::default();
    // Each deployment reports it at its own time. The latest is three times the grace after the last answer of the hub, or an
    // unanswered question.
    let latest = timing.hub_watches().silence.max(timing.delivery_grace * 3) + SILENCE_PROOF;
    assert!(latest < Duration::from_secs(20), "{latest:?}");
}

/// The hub drops packets, so the watch is open but silent. One late end of a watch was reported as an outage on every second
/// deployment, though the server answered.
#[tokio::test]
async fn watch_silent_is_reported_as_failing_since_its_last_event() {
    let (asked, health) = (Arc::new(Asked::default()), Health::default());
    let stop = CancellationToken::new();
    let timing = WatchTiming { silence: Duration::from_millis(700), ..Timing::default().hub_watches() };
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
async fn watch_expired_rest_of_a_list_is_not_a_missing_crd() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), EXPIRED, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    until("a second list", || asked.lists.load(Ordering::SeqCst) >= 2).await;
    assert_eq!(health.waiting(), ["namespaces in stub: list namespaces in stub: too old resource version"]);
    assert!(!store.is_synced());
    stop.cancel();
}

/// A watch from a future version is served but stays silent forever, so objects lost in a restore stayed in the cache.
#[tokio::test]
async fn watch_server_at_an_older_version_is_listed_again() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), LISTED_LATER, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    let late = ObjectKey::new("", "late");
    until("it is listed", || store.contains(&late)).await;
    *asked.lists_are.lock().unwrap() = Some(LISTED);
    until("it is listed again", || !store.contains(&late)).await;
    stop.cancel();
}

/// A server that had passed our version before we asked was never recognized as restored.
#[tokio::test]
async fn watch_server_back_from_an_outage_is_listed_again() {
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let connection = server(asked.clone(), LISTED_LATER, ENDS_AT_ONCE).await;
    watch(connection, store.clone(), &health).start(stop.clone());
    let late = ObjectKey::new("", "late");
    until("it is listed", || store.contains(&late)).await;
    *asked.lists_are.lock().unwrap() = Some(AWAY);
    let before = asked.lists.load(Ordering::SeqCst);
    until("it has been asked in the meantime", || asked.lists.load(Ordering::SeqCst) > before + 1).await;
    *asked.lists_are.lock().unwrap() = Some(LISTED_LATER_STILL);
    until("it is listed again", || !store.contains(&late)).await;
    stop.cancel();
}

/// A watch whose kind was written to since a restore did not detect the restore by its version.
#[tokio::test]
async fn watch_restore_found_by_one_watch_lists_all_of_its_server_again() {
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

/// The event of our own write was decoded a second time, and then dropped.
#[tokio::test]
async fn watch_version_that_is_cached_is_not_decoded_again() {
    static DECODED: AtomicUsize = AtomicUsize::new(0);
    const CACHED_THEN_NEW: (&str, &str) = (
        "200 OK",
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"late","uid":"u","resourceVersion":"50"}}}
{"type":"ADDED","object":{"metadata":{"name":"new","uid":"n","resourceVersion":"51"}}}
"#,
    );
    let (asked, health, store) = (Arc::new(Asked::default()), Health::default(), store());
    let stop = CancellationToken::new();
    let watch = watch(server(asked, LISTED_LATER, CACHED_THEN_NEW).await, store.clone(), &health);
    let keep = |_| {
        DECODED.fetch_add(1, Ordering::SeqCst);
    };
    Watch { keep, ..watch }.start(stop.clone());
    until("the new one is there", || store.contains(&ObjectKey::new("", "new"))).await;
    assert_eq!(DECODED.load(Ordering::SeqCst), 2, "the listed one, and the new one");
    stop.cancel();
}
