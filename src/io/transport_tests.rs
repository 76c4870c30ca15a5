use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::{StreamExt, future::join_all, stream};
use http_body_util::{Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Bytes, Frame},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::api::DynamicObject;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        HandshakeKind, ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, pem::PemObject},
    },
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::io::{clients::Connection, credentials::Credentials};

/// Longest time of a test that would wait forever if it fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Size of the answer at `/large`.
const LARGE: usize = 8 << 20;

/// A server for `localhost` that answers with the version of HTTP of the request.
struct Server {
    credentials: Credentials,
    tls: Arc<Mutex<Arc<ServerConfig>>>,
    /// Number of connections, and of those that resumed a session.
    opened: Arc<AtomicUsize>,
    resumed: Arc<AtomicUsize>,
    /// A handshake needs a permit.
    handshakes: Arc<Semaphore>,
    /// Closes the connections that are open. Later ones are served.
    close: Arc<Mutex<CancellationToken>>,
}

impl Server {
    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn close_connections(&self) {
        std::mem::take(&mut *self.close.lock().unwrap()).cancel();
    }

    /// Offers these protocols for new connections.
    fn offer(&self, protocols: &[&str]) {
        let mut tls = self.tls.lock().unwrap();
        Arc::make_mut(&mut tls).alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    }

    async fn serve(self: Arc<Self>, stream: tokio::net::TcpStream) {
        let closed = self.close.lock().unwrap().clone();
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.handshakes.acquire().await.unwrap().forget();
        let tls = TlsAcceptor::from(self.tls.lock().unwrap().clone());
        let stream = tls.accept(stream).await.unwrap();
        let session = stream.get_ref().1;
        if session.handshake_kind() == Some(HandshakeKind::Resumed) {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let (stream, answer) = (TokioIo::new(stream), service_fn(answer));
        closed
            .run_until_cancelled(async {
                if is_http2 {
                    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await;
                } else {
                    let _ = http1::Builder::new().serve_connection(stream, answer).await;
                }
            })
            .await;
    }
}

/// Starts a server that offers these protocols. A client gives up after `patience` if it cannot connect.
async fn server_with(protocols: &[&str], handshakes: usize, patience: Duration) -> Arc<Server> {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut config = Config::new(format!("https://localhost:{port}").parse().unwrap());
    config.root_cert = Some(vec![certificate.der().to_vec()]);
    config.connect_timeout = Some(patience);
    let server = Arc::new(Server {
        credentials: config.into(),
        tls: Arc::new(Mutex::new(Arc::new(tls))),
        opened: Arc::default(),
        resumed: Arc::default(),
        handshakes: Arc::new(Semaphore::new(handshakes)),
        close: Arc::default(),
    });
    server.offer(protocols);
    let serving = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serving.clone().serve(stream));
        }
    });
    server
}

async fn server(protocols: &[&str]) -> Arc<Server> {
    server_with(protocols, 1000, PATIENCE).await
}

async fn answer(request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let body = match request.uri().path() {
        "/watch" => BodyExt::boxed(StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>())),
        "/large" => Full::new(Bytes::from(vec![b' '; LARGE])).boxed(),
        _ => Full::new(Bytes::from(format!("{:?}", request.version()))).boxed(),
    };
    Ok(Response::new(body))
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}

/// Asks this many times at once.
async fn ask(connection: &Connection, times: usize) -> Vec<kube::Result<String>> {
    let asked = (0..times).map(|_| async { connection.client().request_text(get("/")).await });
    tokio::time::timeout(PATIENCE, join_all(asked)).await.unwrap()
}

fn versions(answers: Vec<kube::Result<String>>) -> Vec<String> {
    let mut versions: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
    versions.dedup();
    versions
}

/// With HTTP/1.1, a project without objects had five connections, one for each of its watches.
#[tokio::test]
async fn transport_requests_that_begin_together_share_one_connection() {
    let server = server(&["h2", "http/1.1"]).await;
    let connection = Connection::new(server.credentials.clone()).unwrap();
    assert_eq!(versions(ask(&connection, 20).await), ["HTTP/2.0"]);
    assert_eq!(server.opened(), 1);
    // The requests after a lost connection share the next one.
    server.close_connections();
    while ask(&connection, 1).await.remove(0).is_err() {}
    assert_eq!(versions(ask(&connection, 20).await), ["HTTP/2.0"]);
    assert_eq!(server.opened(), 2);
}

/// For example an API server with `--disable-http2-serving`, or a gateway in front of it.
#[tokio::test]
async fn transport_server_without_http2_is_asked_in_http1() {
    for protocols in [&[][..], &["http/1.1"]] {
        let server = server(protocols).await;
        let connection = Connection::new(server.credentials.clone()).unwrap();
        assert_eq!(versions(ask(&connection, 5).await), ["HTTP/1.1"]);
    }
    let server = server(&["h2"]).await;
    let connection = Connection::new(server.credentials.clone()).unwrap();
    assert_eq!(versions(ask(&connection, 1).await), ["HTTP/2.0"]);
    server.offer(&["http/1.1"]);
    server.close_connections();
    while ask(&connection, 1).await.remove(0).is_err() {}
    assert_eq!(versions(ask(&connection, 5).await), ["HTTP/1.1"], "the client follows a server that changes");
}

/// Each waiting request tried to connect, one after the other, so most of them missed their deadline.
#[tokio::test]
async fn transport_requests_share_the_failure_of_an_attempt_to_connect() {
    let server = server_with(&["h2"], 0, Duration::from_millis(200)).await;
    let connection = Connection::new(server.credentials.clone()).unwrap();
    let errors: Vec<_> = ask(&connection, 20).await.into_iter().map(Result::unwrap_err).collect();
    let attempts: Vec<_> = errors.iter().map(attempt).collect();
    assert!(attempts.iter().all(|ConnectError(one)| Arc::ptr_eq(one, &attempts[0].0)), "{errors:?}");
    let is_late = attempts[0].0.downcast_ref::<io::Error>().map(io::Error::kind) == Some(io::ErrorKind::TimedOut);
    assert!(is_late, "{errors:?}");
    server.handshakes.add_permits(1000);
    while ask(&connection, 1).await.remove(0).is_err() {}
}

/// The failed attempt to connect that caused this error.
fn attempt(error: &kube::Error) -> &ConnectError {
    std::iter::successors(Some(error as &(dyn StdError + 'static)), |error| (*error).source())
        .find_map(|error| error.downcast_ref())
        .unwrap_or_else(|| panic!("{error:?}"))
}

/// In hyper's pool, the requests that wait for a connection fail if the one that opens it is given up.
#[tokio::test]
async fn transport_request_that_is_given_up_leaves_the_connection_to_the_others() {
    let server = server_with(&["h2"], 0, PATIENCE).await;
    let connection = Connection::new(server.credentials.clone()).unwrap();
    let same = connection.clone();
    let first = tokio::spawn(async move { ask(&same, 1).await });
    while server.opened() == 0 {
        tokio::task::yield_now().await;
    }
    let other = tokio::spawn(async move { ask(&connection, 5).await });
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    server.handshakes.add_permits(1);
    assert_eq!(versions(other.await.unwrap()), ["HTTP/2.0"]);
    assert_eq!(server.opened(), 1);
}

/// As with HTTP/1.1. Each lost connection counted as a failure of all its watches.
#[tokio::test]
async fn transport_watch_on_a_lost_connection_ends_without_an_error() {
    for protocol in ["h2", "http/1.1"] {
        let server = server(&[protocol]).await;
        let client = Connection::new(server.credentials.clone()).unwrap().client();
        let events = client.request_events::<DynamicObject>(get("/watch")).await.unwrap();
        server.close_connections();
        let events: Vec<_> = tokio::time::timeout(PATIENCE, events.collect()).await.unwrap();
        assert!(events.is_empty(), "{protocol}: {events:?}");
    }
}

#[tokio::test]
async fn transport_clients_with_the_same_credentials_resume_tls_sessions() {
    let server = server(&["h2"]).await;
    for resumed in 0..3 {
        let connection = Connection::new(server.credentials.clone()).unwrap();
        assert_eq!(versions(ask(&connection, 1).await), ["HTTP/2.0"]);
        assert_eq!(server.resumed.load(Ordering::Relaxed), resumed);
    }
}

/// All requests of a client share the window of one connection.
#[tokio::test]
async fn transport_watches_that_are_not_read_do_not_hold_up_a_request() {
    let server = server(&["h2"]).await;
    let connection = Connection::new(server.credentials.clone()).unwrap();
    let mut unread = Vec::new();
    for _ in 0..10 {
        unread.push(connection.client().send(get("/large").map(Body::from)).await.unwrap());
    }
    assert_eq!(versions(ask(&connection, 1).await), ["HTTP/2.0"]);
    for response in unread {
        let body = tokio::time::timeout(PATIENCE, response.into_body().collect_bytes()).await.unwrap().unwrap();
        assert_eq!(body.len(), LARGE, "none is lost");
    }
}
