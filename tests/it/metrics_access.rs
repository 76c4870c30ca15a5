//! Metrics over TLS: access control, and a certificate that changes during scrapes.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::{Client, Config};
use testbed::{audit::Audit, control_plane::free_port, operator::Operator, pki::User};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::common::{
    RUNTIME, World,
    beds::{Wish, alone},
    binary, eventually,
    readers::{account, allow},
    rights,
};

const NS: &str = "compute-system";
const GOOD_UNTIL: &str = "compute_certificate_expiration_timestamp_seconds";
const TEST: &str = "metrics_are_readable_only_with_permission_of_the_api_server";

/// The certificates that a scraper trusts.
pub enum Trust<'a> {
    /// Any certificate.
    Nobody,
    /// Certificates of the authority in this file.
    Authority(&'a Path),
}

fn scraper(port: u16, token: &str, trust: &Trust<'_>) -> Client {
    let mut config = Config::new(format!("https://localhost:{port}").parse().unwrap());
    if !token.is_empty() {
        config.auth_info.token = Some(token.to_owned().into());
    }
    match trust {
        Trust::Nobody => config.accept_invalid_certs = true,
        Trust::Authority(file) => {
            let roots = CertificateDer::pem_file_iter(file).unwrap();
            config.root_cert = Some(roots.map(|root| root.unwrap().to_vec()).collect());
        }
    }
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn get(client: &Client) -> Result<String, u16> {
    let request = http::Request::get("/metrics").body(kube::client::Body::empty()).unwrap();
    let answer = client.send(request).await.unwrap_or_else(|e| panic!("no answer: {e:?}"));
    let code = answer.status().as_u16();
    // A refused client keeps none of the few connections.
    let closes = answer.headers().get("connection").is_some_and(|said| said == "close");
    assert_eq!(closes, code != 200, "{code}: {:?}", answer.headers());
    let body = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), 16 << 20).await.unwrap();
    if code == 200 { Ok(String::from_utf8(body.to_vec()).unwrap()) } else { Err(code) }
}

/// Returns the text of the metrics, or the status code of the refusal.
pub async fn scrape(port: u16, token: &str, trust: &Trust<'_>) -> Result<String, u16> {
    get(&scraper(port, token, trust)).await
}

/// Restarts the bed's manager with metrics over TLS. Returns the port.
async fn secured(world: &mut World, tls: &str) -> u16 {
    let port = free_port().unwrap();
    let config = format!("metricsServer:\n  bindAddress: 127.0.0.1:{port}\n{tls}");
    let project = format!("--kubeconfig={}", world.bed.project.kubeconfig(&User::Operator).display());
    let hub = format!("--federation-kubeconfig={}", world.bed.hub.kubeconfig(&User::Operator).display());
    let flags = ["--enable-management-controllers=true", &project, &hub];
    world.operators[0].process.kill();
    world.operators[0] =
        Operator::with_config(world.bed.dir(), binary(), "operator-management", &config, &flags).unwrap();
    world.operators[0].wait_ready().await.unwrap();
    port
}

/// Returns the answer to a plain HTTP request.
async fn plain(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn metrics_are_readable_only_with_permission_of_the_api_server() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        let since = world.since();
        let port = secured(&mut world, "").await;
        let (reader, other) = (account(&world.project, "reader").await, account(&world.project, "other").await);
        allow(&world.project, "reader").await;
        eventually("the reader's role counts", || async {
            scrape(port, &reader, &Trust::Nobody).await.map_err(|code| code.to_string())
        })
        .await;
        for (token, code) in [("", 401), ("no.body.s", 401), (&*User::Operator.token(), 403), (&*other, 403)] {
            assert_eq!(scrape(port, token, &Trust::Nobody).await.map(drop), Err(code), "{token:.10}");
        }
        let answer = plain(port).await;
        assert!(!answer.contains("200") && !answer.contains("compute_"), "plain HTTP without the flag: {answer}");
        let text = scrape(port, &reader, &Trust::Nobody).await.unwrap();
        assert!(
            text.contains(&format!("{GOOD_UNTIL}{{certificate=\"metrics\"}}")),
            "of the certificate that was made at the start: {text}"
        );
        let own = world.operators[1].metrics().await.unwrap();
        assert!(own.contains("leader_election_master_status"), "plain HTTP with the flag");
        rights::shown(&world, since, TEST);

        // Many scrapes cause few token reviews.
        let mark = Audit::mark(&world.bed.project);
        let client = scraper(port, &reader, &Trust::Nobody);
        for _ in 0..100 {
            get(&client).await.unwrap();
        }
        let asked = mark.requests().unwrap().into_iter().filter(|request| request.resource == "tokenreviews").count();
        assert!(asked <= 1, "{asked} questions for 100 scrapes");

        // A granted right takes effect soon.
        allow(&world.project, "other").await;
        eventually("the other one may as well", || async {
            scrape(port, &other, &Trust::Nobody).await.map_err(|code| code.to_string())
        })
        .await;

        // While the API server is unavailable, an already allowed reader may continue, and no new one is admitted.
        world.bed.project.stop_api_server();
        assert!(scrape(port, &reader, &Trust::Nobody).await.is_ok());
        assert_eq!(scrape(port, "some.body.new", &Trust::Nobody).await.map(drop), Err(503));
        world.bed.project.start_api_server().unwrap();
        world.bed.project.wait_ready().await.unwrap();
        for name in ["reader", "other"] {
            crate::common::delete(&world.project, "ServiceAccount", NS, name).await;
        }
        let log = std::fs::read_to_string(world.operators[0].process.log()).unwrap();
        for token in [&reader, &other] {
            assert!(!log.contains(token.as_str()), "a token shows in the log");
        }
    });
}

/// Replaces the certificate files with a pair of the bed, as a kubelet does.
fn put(from: &Path, to: &Path, name: &str) {
    for (file, end) in [("tls.key", "key"), ("tls.crt", "crt")] {
        let beside = to.join(format!("{file}.new"));
        std::fs::copy(from.join(format!("{name}.{end}")), &beside).unwrap();
        std::fs::rename(beside, to.join(file)).unwrap();
    }
}

#[test]
fn metrics_certificate_change_fails_no_scrape() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        let dir = world.bed.dir().to_path_buf();
        let certificates = dir.join("metrics-cert");
        std::fs::create_dir_all(&certificates).unwrap();
        let port = secured(&mut world, &format!("  tls: {{ certDir: {} }}\n", certificates.display())).await;
        let token = account(&world.project, "scraper").await;
        allow(&world.project, "scraper").await;
        // As with the Go operator, the manager serves metrics before it has a certificate. No client can verify it yet.
        eventually("metrics are served before a certificate exists", || async {
            scrape(port, &token, &Trust::Nobody).await.map_err(|code| code.to_string())
        })
        .await;
        let (code, noted) = world.operators[0].probe("/readyz").await.unwrap();
        assert!(code == 200 && noted.contains("tls.crt"), "{code}: {noted}");
        put(&dir, &certificates, "server");
        let read = "serving certificate read";
        eventually("the first certificate is read", || async {
            let log = std::fs::read_to_string(world.operators[0].process.log()).unwrap();
            if log.contains(read) { Ok(()) } else { Err("it is not".to_owned()) }
        })
        .await;
        let authority = dir.join("ca.crt");
        eventually("the scraper's role counts", || async {
            scrape(port, &token, &Trust::Authority(&authority)).await.map_err(|code| code.to_string())
        })
        .await;
        let (done, scrapes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let load: Vec<_> = (0..4)
            .map(|nth| {
                let (done, scrapes, token, authority) =
                    (done.clone(), scrapes.clone(), token.clone(), authority.clone());
                tokio::spawn(async move {
                    // Two clients keep their connection. Two open a new one for each scrape.
                    let mut client = scraper(port, &token, &Trust::Authority(&authority));
                    while !done.load(Ordering::Relaxed) {
                        assert!(get(&client).await.is_ok());
                        scrapes.fetch_add(1, Ordering::Relaxed);
                        if nth % 2 == 0 {
                            client = scraper(port, &token, &Trust::Authority(&authority));
                        }
                    }
                })
            })
            .collect();
        for (turn, name) in ["front-proxy", "server", "front-proxy"].into_iter().enumerate() {
            let before = scrapes.load(Ordering::Relaxed);
            put(&dir, &certificates, name);
            eventually("the new certificate is read, and scrapes go on", || async {
                let log = std::fs::read_to_string(world.operators[0].process.log()).unwrap();
                let (times, more) = (log.matches(read).count(), scrapes.load(Ordering::Relaxed) - before);
                if times >= turn + 2 && more > 20 { Ok(()) } else { Err(format!("read {times} times, {more} scrapes")) }
            })
            .await;
        }
        done.store(true, Ordering::Relaxed);
        for task in load {
            tokio::time::timeout(Duration::from_mins(1), task).await.unwrap().unwrap();
        }

        // The metric shows the expiry of the served certificate.
        let good_until = |seconds: &str| format!("{GOOD_UNTIL}{{certificate=\"metrics\"}} {seconds}\n");
        let text = scrape(port, &token, &Trust::Authority(&authority)).await.unwrap();
        assert!(text.contains(&good_until("67090118400")), "the bed's are good until 4096: {text}");
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(dir.join("own.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(dir.join("own.key"), key.serialize_pem()).unwrap();
        put(&dir, &certificates, "own");
        eventually("the expiry of the other certificate is exported", || async {
            let text = scrape(port, &token, &Trust::Nobody).await.map_err(|code| code.to_string())?;
            if text.contains(&good_until("1893456000")) { Ok(()) } else { Err(text) }
        })
        .await;
    });
}
