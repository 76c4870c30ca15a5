use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer, server::WebPkiClientVerifier},
};

use serde_json::Value;

use super::*;
use crate::{
    api::names::ProjectName,
    io::clients::{Connection, Projects},
};

/// Answers every request with `{}` over TLS, with a certificate for this name only. Returns the port and the authority.
async fn server_named(name: &str) -> (u16, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    let chain = vec![certificate.der().clone()];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let tls = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = tls.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
    });
    (port, certificate.pem())
}

#[tokio::test]
async fn connection_tls_server_name_is_checked_against_the_certificate() {
    let (port, authority) = server_named("kubernetes.default.svc").await;
    let file = std::env::temp_dir().join(format!("kubeconfig-{:016x}", fastrand::u64(..)));
    for (name, known) in [(Some("kubernetes.default.svc"), true), (Some("127.0.0.1"), false), (None, false)] {
        let mut config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "there",
            "clusters": [{ "name": "there", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority-data": STANDARD.encode(&authority),
            } }],
            "users": [{ "name": "compute", "user": { "token": "token" } }],
            "contexts": [{ "name": "there", "context": { "cluster": "there", "user": "compute" } }],
        });
        if let Some(name) = name {
            config["clusters"][0]["cluster"]["tls-server-name"] = name.into();
        }
        fs::write(&file, config.to_string()).unwrap();
        let template = load(&Source { path: Some(file.clone()), context: None }).unwrap();
        let projects = Projects::new(template.clone());
        let ways = [
            ("as a hub or a cell", Connection::new(template).unwrap()),
            ("as a project", projects.connect(&ProjectName::single()).unwrap()),
            ("as their host", projects.host().unwrap()),
        ];
        for (way, connection) in ways {
            // Payloads of Secrets use separate connections.
            for client in [connection.client(), (*connection.confidential().unwrap()).clone()] {
                let answer = client.request_text(http::Request::get("/").body(Vec::new()).unwrap()).await;
                let by_name = answer.as_ref().err().is_none_or(|why| format!("{why:?}").contains("NotValidForName"));
                assert_eq!((answer.is_ok(), by_name), (known, true), "{way}, {name:?}: {answer:?}");
            }
        }
    }
    fs::remove_file(file).unwrap();
}

#[test]
fn client_certificate_in_text_or_file_gives_its_expiry() {
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.not_after = rcgen::date_time_ymd(2026, 11, 22);
    let text = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    let file = std::env::temp_dir().join(format!("client-{:016x}.crt", fastrand::u64(..)));
    fs::write(&file, &text).unwrap();
    let mut config = Config::new("https://hub.example".parse().unwrap());
    assert_eq!(good_until(&config), None, "a token has no certificate");
    config.auth_info.client_certificate = Some(file.display().to_string());
    assert_eq!(good_until(&config), Some(1_795_305_600));
    fs::write(&file, "garbage").unwrap();
    assert_eq!(good_until(&config), None);
    config.auth_info.client_certificate_data = Some(STANDARD.encode(text));
    assert_eq!(good_until(&config), Some(1_795_305_600), "text in the kubeconfig has precedence over the file");
    fs::remove_file(file).unwrap();
}

/// A token with this end, as an API server issues it.
fn token_until(until: i64) -> String {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    format!("{}.{}.c2ln", BASE64.encode("{}"), BASE64.encode(format!("{{\"exp\":{until},\"iat\":5}}")))
}

#[test]
fn token_in_text_or_file_gives_its_end() {
    let until = |config: &Config| token_of(config).map(|token| token.until);
    let file = std::env::temp_dir().join(format!("token-{:016x}", fastrand::u64(..)));
    let mut config = Config::new("https://hub.example".parse().unwrap());
    assert_eq!(until(&config), None, "no token");
    config.auth_info.token_file = Some(file.display().to_string());
    assert_eq!(until(&config), None, "the file does not exist yet");
    fs::write(&file, token_until(20)).unwrap();
    assert_eq!(until(&config), Some(20));
    fs::write(&file, format!("{}\n", token_until(30))).unwrap();
    assert_eq!(until(&config), Some(30), "the kubelet has renewed it");
    config.auth_info.token = Some(token_until(10).into());
    assert_eq!(until(&config), Some(10), "text in the kubeconfig has precedence over the file");
    config.auth_info.token = Some("opaque".to_owned().into());
    assert_eq!(until(&config), None, "the file is not used");
    config.auth_info.token = Some(token_until(10).into());
    (config.auth_info.username, config.auth_info.password) = (Some("u".to_owned()), Some("p".to_owned().into()));
    assert_eq!(until(&config), None, "the password is used");
    fs::remove_file(file).unwrap();
}

#[test]
fn token_file_renewed_is_reported_once_and_not_while_the_kubeconfig_is_broken() {
    let dir = folder();
    let file = dir.join("token");
    fs::write(&file, token_until(20)).unwrap();
    let server = serde_json::json!({ "server": "https://localhost:1" });
    let source = kubeconfig(&dir, &server, &serde_json::json!({ "tokenFile": "token" }));
    let credentials = load(&source).unwrap();
    let reported = Mutex::new(Vec::new());
    let report = |read: Result<&Credentials, &str>| {
        reported.lock().unwrap().push(read.ok().and_then(Credentials::token).map(|token| token.until));
    };
    let mut known = credentials.token();
    assert_eq!(known, Some(Validity { until: 20, since: Some(5) }));
    credentials.check_token(&mut known, None, &report);
    fs::write(&file, token_until(30)).unwrap();
    credentials.check_token(&mut known, Some("it is broken"), &report);
    assert!(reported.lock().unwrap().is_empty());
    credentials.check_token(&mut known, None, &report);
    credentials.check_token(&mut known, None, &report);
    assert_eq!(*reported.lock().unwrap(), [Some(30)]);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn kubeconfig_unusable_is_reported_in_one_line() {
    let file = std::env::temp_dir().join(format!("kubeconfig-{:016x}", fastrand::u64(..)));
    for (text, words) in [
        ("garbage: [", "line 1"),
        ("{}", "current context"),
        ("apiVersion: v1\nkind: Config\ncurrent-context: nope\ncontexts: []\n", "nope"),
    ] {
        std::fs::write(&file, text).unwrap();
        let source = Source { path: Some(file.clone()), context: None };
        let error = load(&source).err().unwrap();
        assert!(error.starts_with(&format!("kubeconfig {}: ", file.display())), "{error}");
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
    std::fs::remove_file(file).unwrap();
}

/// Writes a kubeconfig with this cluster and this user.
fn kubeconfig(dir: &Path, cluster: &Value, user: &Value) -> Source {
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "there",
        "clusters": [{ "name": "there", "cluster": cluster }], "users": [{ "name": "compute", "user": user }],
        "contexts": [{ "name": "there", "context": { "cluster": "there", "user": "compute" } }],
    });
    let path = dir.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    Source { path: Some(path), context: None }
}

fn folder() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("clients-{:016x}", fastrand::u64(..)));
    fs::create_dir(&dir).unwrap();
    dir
}

async fn ask(connection: &Connection) -> Result<String, kube::Error> {
    connection.client().request_text(http::Request::get("/").body(Vec::new()).unwrap()).await
}

/// Starts a proxy that connects to any server. Returns its address and a counter of its connections.
async fn tunnel() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (at, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let asked = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let to = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
                asked.fetch_add(1, Ordering::Relaxed);
                let mut server = TcpStream::connect(to).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    (at, count)
}

/// kube was built without its proxy support, so the process ended at its start.
#[tokio::test]
async fn kubeconfig_proxy_is_used_for_every_server() {
    let (port, authority) = server_named("127.0.0.1").await;
    let (proxy, asked) = tunnel().await;
    let dir = folder();
    let mut cluster = serde_json::json!({
        "server": format!("https://127.0.0.1:{port}"), "proxy-url": format!("http://{proxy}"),
        "certificate-authority-data": STANDARD.encode(&authority), "tls-server-name": "127.0.0.1",
    });
    let token = serde_json::json!({ "token": "token" });
    let connection = Connection::new(load(&kubeconfig(&dir, &cluster, &token)).unwrap()).unwrap();
    assert_eq!(ask(&connection).await.unwrap(), "{}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    cluster["proxy-url"] = "ftp://hunter2@proxy".into();
    let why = load(&kubeconfig(&dir, &cluster, &token)).err().unwrap();
    assert!(why.contains("proxy-url") && why.contains("neither http://") && !why.contains("hunter2"), "{why}");
    fs::remove_dir_all(dir).unwrap();
}

/// Returns certificate and key of a client that this authority signed.
fn client_of(issuer: &rcgen::Issuer<'_, rcgen::KeyPair>) -> (String, String, Vec<u8>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["operator".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem(), certificate.der().to_vec())
}

/// Answers with the bytes of the client's certificate. Returns the port and the server's certificate.
async fn server_for_clients_of(authority: &str) -> (u16, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![own.der().clone()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let tls = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = tls.accept(stream).await else { return };
                let shown = format!("{:?}", stream.get_ref().1.peer_certificates().unwrap()[0].to_vec());
                // Keep the connection open, as an API server does.
                while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{shown}", shown.len());
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    (port, own.pem())
}

/// The client certificate was read only at the start, so the manager lost access when a rotated certificate expired.
#[tokio::test]
async fn client_certificate_rotated_on_disk_is_used_after_the_next_check() {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let (port, own) = server_for_clients_of(&authority).await;
    let (first, second) = (client_of(&issuer), client_of(&issuer));
    let dir = folder();
    let (crt, pem) = (dir.join("client.crt"), dir.join("client.key"));
    let write = |text: &str, file: &Path| fs::write(file, text).unwrap();
    write(&first.0, &crt);
    write(&first.1, &pem);
    let server = |host: &str| {
        serde_json::json!({
            "server": format!("https://{host}:{port}"), "certificate-authority-data": STANDARD.encode(&own),
        })
    };
    let user = serde_json::json!({ "client-certificate": crt, "client-key": pem });
    let source = kubeconfig(&dir, &server("localhost"), &user);
    let credentials = load(&source).unwrap();
    let connection = Connection::new(credentials.clone()).unwrap();
    let project = Projects::new(credentials.clone()).connect(&ProjectName::single()).unwrap();
    let reported = Mutex::new(Vec::new());
    let report =
        |read: Result<&Credentials, &str>| reported.lock().unwrap().push(read.map(drop).map_err(str::to_owned));
    let shows = async |of: &(String, String, Vec<u8>)| {
        for connection in [&connection, &project] {
            assert_eq!(ask(connection).await.unwrap(), format!("{:?}", of.2));
        }
    };
    shows(&first).await;
    assert_eq!(credentials.check(&source, (None, &mut None), &report).await, None);
    assert!(reported.lock().unwrap().is_empty(), "nothing changed");

    // The files are written one after the other, as by hand. In between they do not match.
    write(&second.0, &crt);
    let failed = credentials.check(&source, (None, &mut None), &report).await;
    assert!(failed.is_some() && reported.lock().unwrap().pop().unwrap().is_err(), "{failed:?}");
    shows(&first).await;
    write(&second.1, &pem);
    assert_eq!(credentials.check(&source, (failed.as_deref(), &mut None), &report).await, None);
    assert_eq!(reported.lock().unwrap().pop(), Some(Ok(())));
    shows(&second).await;

    // A kubeconfig that names another server is not used: facts about one server do not hold for another.
    kubeconfig(&dir, &server("127.0.0.1"), &user);
    let failed = credentials.check(&source, (None, &mut None), &report).await;
    assert!(failed.as_ref().is_some_and(|why| why.contains("names another server")), "{failed:?}");
    shows(&second).await;
    kubeconfig(&dir, &server("localhost"), &user);
    assert_eq!(credentials.check(&source, (failed.as_deref(), &mut None), &report).await, None, "put back");
    fs::remove_dir_all(dir).unwrap();
}

/// Returns the user of a kubeconfig whose plugin is this shell script.
fn plugin(script: &str) -> Value {
    serde_json::json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable",
        "command": "sh", "args": ["-c", script], "env": [{ "name": "CLIENT_SECRET", "value": "hidden" }],
    }})
}

/// Returns the answer of a plugin.
fn credential(status: &Value) -> String {
    let answer = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    format!("echo '{answer}'")
}

/// A client without a credential is an anonymous user, who lacks every permission. Tenants read that the operator does.
#[test]
fn plugin_without_a_credential_makes_no_client() {
    let dir = folder();
    let cluster = serde_json::json!({ "server": "https://127.0.0.1:1" });
    for (script, expected) in [
        (
            credential(&serde_json::json!({ "expirationTimestamp": "2126-01-01T00:00:00Z" })),
            "neither a token nor a client",
        ),
        ("echo hidden; exit 3".to_owned(), "the credential plugin failed: exit status: 3"),
        ("echo 'token: hidden'".to_owned(), "the credential plugin gave no token"),
        ("echo '[hidden'".to_owned(), "the answer of the credential plugin cannot be read"),
    ] {
        let credentials = load(&kubeconfig(&dir, &cluster, &plugin(&script))).unwrap();
        let why = Connection::new(credentials).err().unwrap();
        assert!(why.contains(expected) && !why.contains("hidden"), "{why}");
    }
    fs::remove_dir_all(dir).unwrap();
}

/// Answers requests with this token. Returns the port.
async fn server_for_token(token: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut head).await {
                    let is_known = String::from_utf8_lossy(&head[..read]).contains(&format!("Bearer {token}\r\n"));
                    let (code, body) = if is_known { (200, "{}") } else { (401, r#"{"kind":"Status","code":401}"#) };
                    let answer = format!("HTTP/1.1 {code} \r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    port
}

/// A token that ended before its time was used until the next restart.
#[tokio::test]
async fn plugin_is_asked_again_once_after_a_refused_credential() {
    let dir = folder();
    let (token, runs) = (dir.join("token"), dir.join("runs"));
    let status = serde_json::json!({ "token": "$TOKEN" });
    let script = format!(
        "echo run >> {}; TOKEN=$(cat {}); {}",
        runs.display(),
        token.display(),
        credential(&status).replace("$TOKEN", "'$TOKEN'")
    );
    fs::write(&token, "old").unwrap();
    let cluster = serde_json::json!({ "server": format!("http://127.0.0.1:{}", server_for_token("new").await) });
    let credentials = load(&kubeconfig(&dir, &cluster, &plugin(&script))).unwrap();
    let connection = Connection::new(credentials.clone()).unwrap();
    let other = Connection::new(credentials.clone()).unwrap();
    let get = async |connection: &Connection| {
        let request = http::Request::get("/").body(Vec::new()).unwrap();
        let call = connection.client();
        let call = call.request_text(request);
        connection.within(Duration::from_secs(10), || "get".into(), call).await
    };
    let times = || fs::read_to_string(&runs).unwrap().lines().count();
    assert!(get(&connection).await.is_err() && get(&other).await.is_err());
    fs::write(&token, "new").unwrap();
    let before = times();
    assert!(get(&connection).await.is_err());
    assert_eq!(times(), before, "it was asked a moment ago");
    credentials.0.write().unwrap().asked.as_mut().unwrap().pause = Duration::ZERO;
    for connection in [&connection, &other, &connection, &other] {
        let _ = get(connection).await;
    }
    let works = async {
        while get(&connection).await.is_err() || get(&other).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), works).await.unwrap();
    assert_eq!((before, times()), (1, 2), "one run for all clients");
    fs::remove_dir_all(dir).unwrap();
}
