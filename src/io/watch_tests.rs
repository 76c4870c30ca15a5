use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use serde_json::{Value, json};

use super::*;
use crate::io::store::Store;

/// An API server at a version that may change; it ends every watch at once, and counts the watches. From version 50 on it
/// has a namespace.
async fn server(watches: Arc<AtomicUsize>, version: Arc<AtomicUsize>) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (watches, version) = (watches.clone(), version.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let n = stream.read(&mut request).await.unwrap_or(0);
                let watch = String::from_utf8_lossy(&request[..n]).contains("watch=true");
                watches.fetch_add(usize::from(watch), Ordering::SeqCst);
                let version = version.load(Ordering::SeqCst);
                let late = json!({ "metadata": { "name": "late", "uid": "u", "resourceVersion": "50" } });
                let items: Vec<Value> = (version >= 50).then_some(late).into_iter().collect();
                let list = json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": { "resourceVersion": version.to_string() }, "items": items,
                });
                let body = if watch { String::new() } else { list.to_string() };
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes()).await;
            });
        }
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    Connection::new(config).unwrap()
}

fn watch(connection: Connection, store: &Arc<Store<()>>, health: &Health) -> Watch<PartialObjectMeta<Namespace>, ()> {
    Watch {
        kind: (),
        connection,
        place: "stub".into(),
        plane: "hub",
        selector: String::new(),
        keep: |_| (),
        cache: store.clone(),
        on_fresh: Arc::new(|| ()),
        on_listed: Arc::new(|_, _, _| ()),
        page: PAGE_SIZE,
        tenant: false,
        health: health.clone(),
        metrics: Metrics::default(),
        timing: Timing::default(),
    }
}

#[tokio::test]
async fn a_server_that_ends_every_watch_at_once_makes_no_hot_loop_and_is_reported() {
    let watches = Arc::new(AtomicUsize::new(0));
    let health = Health::default();
    let stop = CancellationToken::new();
    let store = Arc::new(Store::<()>::new(|_, (): &()| Vec::new()));
    let connection = server(watches.clone(), Arc::new(AtomicUsize::new(5))).await;
    let watch = watch(connection, &store, &health);
    watch.start(stop.clone());
    let began = Instant::now();
    while watches.load(Ordering::SeqCst) < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Four pauses: 0.125, 0.25, 0.5 and 1 s at the least.
    assert!(began.elapsed() > Duration::from_millis(1800), "{:?}", began.elapsed());
    assert!(store.is_synced());
    assert_eq!(health.waiting(), ["namespaces in stub: watch namespaces in stub: unexpected answer: it ended at once"]);
    stop.cancel();
}

/// Found by reading: a watch from a version of the future is served without a word, for ever, and what a restored backup has
/// lost lived on.
#[tokio::test]
async fn a_server_that_is_at_an_older_version_is_listed_anew() {
    let version = Arc::new(AtomicUsize::new(50));
    let (health, stop) = (Health::default(), CancellationToken::new());
    let store = Arc::new(Store::<()>::new(|_, (): &()| Vec::new()));
    let connection = server(Arc::default(), version.clone()).await;
    watch(connection, &store, &health).start(stop.clone());
    let late = ObjectKey::new("", "late");
    let wait = async |there: bool| {
        let seen = async {
            while store.contains(&late) != there {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), seen).await.unwrap();
    };
    wait(true).await;
    version.store(10, Ordering::SeqCst);
    wait(false).await;
    stop.cancel();
}
