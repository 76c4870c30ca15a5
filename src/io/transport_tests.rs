use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use http_body_util::Full;
use hyper::{
    body::Bytes,
    server::conn::{http1, http2},
    service::service_fn,
};
use tokio::net::TcpListener;
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
use crate::io::clients::{Connection, Credentials};

/// Longest time of a test that would wait forever if it fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Size of the answer at `/large`.
const LARGE: usize = 8 << 20;

/// A server for `localhost` that answers with the version of HTTP of the request.
struct Server {
    credentials: Credentials,
    /// Number of connections, and of those that resumed a session.
    opened: Arc<AtomicUsize>,
    resumed: Arc<AtomicUsize>,
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
}

/// Starts a server that offers these protocols.
async fn server(protocols: &[&str]) -> Server {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let mut tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut config = Config::new(format!("https://localhost:{port}").parse().unwrap());
    config.root_cert = Some(vec![certificate.der().to_vec()]);
    let server =
        Server { credentials: config.into(), opened: Arc::default(), resumed: Arc::default(), close: Arc::default() };
    let (opened, resumed, close) = (server.opened.clone(), server.resumed.clone(), server.close.clone());
    tokio::spawn(async move {
        let tls = TlsAcceptor::from(Arc::new(tls));
        while let Ok((stream, _)) = listener.accept().await {
            opened.fetch_add(1, Ordering::Relaxed);
            let (tls, resumed, closed) = (tls.clone(), resumed.clone(), close.lock().unwrap().clone());
            tokio::spawn(async move {
                let stream = tls.accept(stream).await.unwrap();
                let session = stream.get_ref().1;
                if session.handshake_kind() == Some(HandshakeKind::Resumed) {
                    resumed.fetch_add(1, Ordering::Relaxed);
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
            });
        }
    });
    server
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = match request.uri().path() {
        "/large" => vec![b' '; LARGE],
        _ => format!("{:?}", request.version()).into_bytes(),
    };
    Ok(Response::new(Full::new(Bytes::from(text))))
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
        assert_eq!(versions(ask(&connection, 1).await), ["HTTP/1.1"]);
        assert_eq!(server.opened(), 1, "the connection that found out the version is used");
        assert_eq!(versions(ask(&connection, 5).await), ["HTTP/1.1"]);
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
    let connection = Connection::new(server.credentials).unwrap();
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
