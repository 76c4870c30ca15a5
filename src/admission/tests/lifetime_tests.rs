//! The server's lifetime: the operator's identity at start-up, rotated certificates, and the last request.

use super::*;

#[tokio::test]
async fn rotated_certificate_interrupts_no_request() {
    let bed = Arc::new(bed(false).await);
    let first = std::fs::read(bed.dir.join("tls.crt")).unwrap();
    let first = CertificateDer::from_pem_slice(&first).unwrap();
    // The new pair is made in a folder beside and then renamed over the old one. Clients trust both.
    let second_dir = bed.dir.join("second");
    std::fs::create_dir(&second_dir).unwrap();
    let second = certify(&second_dir);
    let mut roots = RootCertStore::empty();
    roots.add(first).unwrap();
    roots.add(second.clone()).unwrap();
    let (done, total) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (bed, roots, done, second) = (bed.clone(), roots.clone(), done.clone(), second.clone());
            let total = total.clone();
            tokio::spawn(async move {
                let mut seen = false;
                let head = "GET /elsewhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                while !(done.is_cancelled() && seen) {
                    let mut stream = connect(bed.at, roots.clone()).await.expect("a connection during the rotation");
                    seen |= stream.get_ref().1.peer_certificates().is_some_and(|chain| chain[0] == second);
                    stream.write_all(head.as_bytes()).await.unwrap();
                    assert_eq!(answer(stream).await.0, 404);
                    total.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let under_way = total.clone();
    let asked = async |more: usize| {
        let wanted = under_way.load(Ordering::Relaxed) + more;
        until("more are answered", || under_way.load(Ordering::Relaxed) >= wanted).await;
    };
    asked(20).await;
    for name in ["tls.key", "tls.crt"] {
        std::fs::rename(second_dir.join(name), bed.dir.join(name)).unwrap();
    }
    done.cancel();
    for task in load {
        tokio::time::timeout(Duration::from_mins(1), task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn request_under_way_at_shutdown_is_answered() {
    let bed = bed(false).await;
    let mut stream = bed.connect().await.unwrap();
    stream.write_all(b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    bed.stop.cancel();
    // API servers learn of the end a little later: new connections are still served.
    assert_eq!(bed.raw("GET /elsewhere", b"\r\n").await.0, 404);
    stream.write_all(b"\r\n").await.unwrap();
    assert_eq!(answer(stream).await.0, 404);
}

#[tokio::test]
async fn server_without_known_identity_does_not_start() {
    let nobody = Router::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, nobody).await });
    let planes = || {
        let config = kube::Config::new(format!("http://{at}").parse().unwrap());
        Planes::single(Connection::new(config).unwrap())
    };
    let settings = |resolvers: &[&str]| Settings {
        at: (Ipv4Addr::LOCALHOST, 0).into(),
        files: Files { certificate: "none".into(), key: "none".into(), client_ca: None },
        certificate: Certificate::default(),
        resolvers: resolvers.iter().map(|name| (*name).to_owned()).collect(),
    };
    let (health, stop) = (Health::default(), CancellationToken::new());
    let milo = Planes::milo(Projects::new(kube::Config::new(format!("http://{at}").parse().unwrap())));
    for planes in [planes(), milo] {
        let error = start(settings(&[]), planes, Claimed::default(), &health, stop.clone()).await.unwrap_err();
        assert!(error.contains("cannot determine this operator's user"), "{error}");
    }
    assert_eq!(health.waiting(), Vec::<String>::new());
    assert!(start(settings(&["resolver"]), planes(), Claimed::default(), &health, stop.clone()).await.is_ok());
    assert_eq!(health.waiting().len(), 1, "no certificate has been read yet");
    stop.cancel();
}

/// A server without routes, whose connections may idle this long.
async fn quiet_server(bed: &Bed, limits: Limits) -> SocketAddr {
    let (health, certificate) = (Health::default(), Certificate::default());
    let files = Files { certificate: bed.dir.join("tls.crt"), key: bed.dir.join("tls.key"), client_ca: None };
    tokio::spawn(certificate.clone().keep(files, health.watch("serving certificate".into()), bed.stop.clone()));
    until("the certificate is read", || health.waiting().is_empty()).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let transport = Transport::Tls(certificate);
    tokio::spawn(server::serve("admission", listener, transport, Router::new(), limits, bed.stop.clone()));
    at
}

#[tokio::test]
async fn idle_connection_is_cut_and_used_one_is_kept() {
    const LONG: Duration = Duration::from_mins(5);
    // Longer than a client needs for its head while other tests use the processors.
    const SHORT: Duration = Duration::from_secs(3);
    let bed = bed(false).await;
    let roots = || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(bed.dir.join("tls.crt")).unwrap()).unwrap();
        roots
    };
    let request = b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n";

    // The client sends nothing, or an unfinished head.
    let at = quiet_server(&bed, Limits { first: SHORT, next: LONG, ..Limits::default() }).await;
    for said in [&b""[..], b"GET /else"] {
        let mut stream = connect(at, roots()).await.unwrap();
        stream.write_all(said).await.unwrap();
        assert_eq!(tokio::time::timeout(LONG, answer(stream)).await.unwrap().0, 0);
    }
    // After the first request the longer limit counts.
    let mut stream = connect(at, roots()).await.unwrap();
    for _ in 0..2 {
        stream.write_all(request).await.unwrap();
        assert!(one_answer(&mut stream).await.starts_with("HTTP/1.1 404"));
        let more = tokio::time::timeout(2 * SHORT, stream.read_u8()).await;
        assert!(more.is_err(), "it stays open: {more:?}");
    }

    // That limit ends the connection too.
    let at = quiet_server(&bed, Limits { first: LONG, next: SHORT, ..Limits::default() }).await;
    let mut stream = connect(at, roots()).await.unwrap();
    stream.write_all(request).await.unwrap();
    assert!(one_answer(&mut stream).await.starts_with("HTTP/1.1 404"));
    assert_eq!(tokio::time::timeout(LONG, answer(stream)).await.unwrap().0, 0);
}

/// Reads the head of a response without a body from a connection that stays open.
async fn one_answer(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}
