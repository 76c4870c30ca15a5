use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer},
};

use super::*;

#[test]
fn a_project_has_an_address_of_its_own() {
    let template = Config::new("https://milo.example:6443/ignored".parse().unwrap());
    let address = |internal, name| Projects::new(template.clone(), internal).address(&ProjectName::new(name));
    assert_eq!(
        address(false, "shop").unwrap(),
        "https://milo.example:6443/apis/resourcemanager.miloapis.com/v1alpha1/projects/shop/control-plane"
    );
    assert_eq!(address(true, "shop").unwrap(), "https://milo-apiserver.project-shop.svc.cluster.local:6443");
    for bad in ["", "a/b", "..", "a?b", "A"] {
        assert!(address(false, bad).is_err() && address(true, bad).is_err(), "{bad}");
    }
    // The service of another namespace, whose owner would get the project's credentials.
    assert!(address(false, "a.b").is_ok() && address(true, "a.b").is_err());
}

/// As `e2e/kind/up` makes it in each cell.
#[test]
fn on_kind_a_project_is_where_a_cell_looks_for_it() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/kind/project-in-cell.yaml");
    let text = fs::read_to_string(file).unwrap();
    let object = |kind: &str| text.split("---\n").find(|one| one.contains(&format!("kind: {kind}\n"))).unwrap();
    let said = |kind: &str, key: &str| {
        let value = object(kind).lines().find_map(|line| line.trim_start_matches(['-', ' ']).strip_prefix(key));
        value.unwrap_or_else(|| panic!("{kind} has no {key}")).trim().to_owned()
    };
    let projects = Projects::new(Config::new("https://172.18.0.2:6443".parse().unwrap()), true);
    let at = format!(
        "https://{}.{}.svc.cluster.local:{}",
        said("Service", "name:"),
        said("Service", "namespace:"),
        said("EndpointSlice", "port:")
    );
    assert_eq!(projects.address(&ProjectName::single()).unwrap(), at.as_str());
}

/// A server that answers every request with `{}`, over TLS under a certificate for this name alone; its port and authority.
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
async fn a_server_is_known_by_the_name_that_the_kubeconfig_gives_it() {
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
        let template = load(&Source { path: Some(file.clone()), context: None }).await.unwrap();
        let projects = Projects::new(template.clone(), false);
        let ways = [
            ("as a hub or a cell", Connection::new(template).unwrap()),
            ("as a project", projects.connect(&ProjectName::single()).unwrap()),
            ("as their host", projects.host().unwrap()),
        ];
        for (way, connection) in ways {
            // Payloads of Secrets have connections of their own.
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
fn the_certificate_of_a_kubeconfig_is_read_from_its_text_or_from_a_file() {
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
    assert_eq!(good_until(&config), Some(1_795_305_600), "what stands in the kubeconfig goes before the file");
    fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_reported_in_one_line() {
    let file = std::env::temp_dir().join(format!("kubeconfig-{:016x}", fastrand::u64(..)));
    for (text, words) in [
        ("garbage: [", "line 1"),
        ("{}", "current context"),
        ("apiVersion: v1\nkind: Config\ncurrent-context: nope\ncontexts: []\n", "nope"),
    ] {
        std::fs::write(&file, text).unwrap();
        let source = Source { path: Some(file.clone()), context: None };
        let error = load(&source).await.unwrap_err();
        assert!(error.starts_with(&format!("kubeconfig {}: ", file.display())), "{error}");
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
    std::fs::remove_file(file).unwrap();
}
