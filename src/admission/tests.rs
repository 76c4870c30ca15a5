//! The webhook server over TLS, with a stand-in for a project's API server.

use std::{
    net::Ipv4Addr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{body::to_bytes, routing::get};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use super::*;
use crate::{
    api::meta::annotation,
    io::clients::{Connection, Projects},
};

const PARENT: &str = "iam.miloapis.com/parent-name";
const DIR: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/shop/control-plane";

/// A stand-in for a project's API server. Like Milo's, its authorizer allows only requests with the project in `extra`.
#[derive(Default)]
struct Project {
    reviews: Mutex<Vec<Value>>,
    away: AtomicBool,
    /// True if it never answers; and the number of requests that wait.
    stuck: AtomicBool,
    waiting: AtomicUsize,
}

/// A webhook server, its project, and how to reach it.
struct Bed {
    project: Arc<Project>,
    claimed: Claimed,
    health: Health,
    at: SocketAddr,
    dir: std::path::PathBuf,
    stop: CancellationToken,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.cancel();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

async fn project(state: Arc<Project>) -> SocketAddr {
    let access = |State(state): State<Arc<Project>>, body: Body| async move {
        if state.away.load(Ordering::Relaxed) {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        if state.stuck.load(Ordering::Relaxed) {
            state.waiting.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        let mut review: Value = serde_json::from_slice(&to_bytes(body, 1 << 20).await.unwrap()).unwrap();
        let allowed =
            review["spec"]["extra"][PARENT][0] == "shop" && review["spec"]["resourceAttributes"]["name"] != "db";
        review["status"] = json!({ "allowed": allowed, "reason": if allowed { "" } else { "no role" } });
        state.reviews.lock().unwrap().push(review.clone());
        json(&review)
    };
    let own = async |State(state): State<Arc<Project>>| {
        if state.away.load(Ordering::Relaxed) {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        json(&json!({ "status": { "userInfo": { "username": "operator" } } }))
    };
    let bindings = async || {
        let of = |city: &str| json!({ "metadata": { "name": city }, "spec": { "topology": { "topology.datum.net/city-code": city } } });
        json(&json!({ "apiVersion": "networking.datumapis.com/v1alpha", "kind": "LocationBindingList",
            "metadata": {}, "items": [of("DFW")] }))
    };
    let router = Router::new()
        .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(access))
        .route("/apis/authentication.k8s.io/v1/selfsubjectreviews", post(own))
        .route("/apis/networking.datumapis.com/v1alpha/locationbindings", get(bindings))
        .with_state(state);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    // Real connections to a Milo project have this path prefix.
    let router = Router::new().nest(DIR, router.clone()).merge(router);
    tokio::spawn(async move { axum::serve(listener, router).await });
    at
}

fn certify(dir: &std::path::Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    std::fs::write(dir.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(dir.join("tls.crt"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

/// Waits for a state that other tasks bring about. It fails after a minute, in case one of those tasks has failed.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let comes = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), comes).await.expect(what);
}

async fn bed(milo: bool) -> Bed {
    bed_with(milo, Arc::default(), None).await
}

/// Starts a server for this project, with an optional client CA in PEM.
async fn bed_with(milo: bool, state: Arc<Project>, authority: Option<&str>) -> Bed {
    let api: http::Uri = format!("http://{}", project(state.clone()).await).parse().unwrap();
    let config = kube::Config::new(api);
    let planes =
        if milo { Planes::milo(Projects::new(config)) } else { Planes::single(Connection::new(config).unwrap()) };
    let dir = std::env::temp_dir().join(format!("admission-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&dir).unwrap();
    certify(&dir);
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let client_ca = authority.map(|pem| {
        std::fs::write(dir.join("clients.crt"), pem).unwrap();
        dir.join("clients.crt")
    });
    let files = Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), client_ca };
    let settings = Settings { at: free, files, certificate: Certificate::default(), resolvers: BTreeSet::new() };
    let (health, stop) = (Health::default(), CancellationToken::new());
    let claimed = Claimed::default();
    start(settings, planes, claimed.clone(), &health, stop.clone()).await.unwrap();
    until("the certificate is read", || health.waiting().is_empty()).await;
    Bed { project: state, claimed, health, at: free, dir, stop }
}

impl Bed {
    async fn connect(&self) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(self.dir.join("tls.crt")).unwrap() {
            roots.add(root.unwrap()).unwrap();
        }
        connect(self.at, roots).await
    }

    /// Sends `rest` after the request line and the Host header, and reads the response to its end.
    async fn raw(&self, line: &str, rest: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await.unwrap();
        stream
            .write_all(format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n").as_bytes())
            .await
            .unwrap();
        let _ = stream.write_all(rest).await;
        answer(stream).await
    }

    async fn ask(&self, path: &str, request: &Value) -> (u16, Value) {
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        let body = review.to_string();
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let (code, text) = self.raw(&format!("POST {path}?timeout=10s"), head.as_bytes()).await;
        (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Returns the texts of the causes; empty if the request is allowed.
    async fn refused(&self, path: &str, request: &Value) -> Vec<String> {
        let (code, answer) = self.ask(path, request).await;
        assert_eq!((code, &answer["response"]["uid"]), (200, &request["uid"]), "{answer}");
        let causes = answer["response"]["status"]["details"]["causes"].as_array().cloned().unwrap_or_default();
        let of =
            |cause: &Value| format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap());
        let causes: Vec<String> = causes.iter().map(of).collect();
        assert_eq!(answer["response"]["allowed"], causes.is_empty(), "{answer}");
        causes
    }
}

async fn connect(at: SocketAddr, roots: RootCertStore) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(at).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn answer(mut stream: impl AsyncReadExt + Unpin) -> (u16, String) {
    let mut bytes = Vec::new();
    // A cut connection ends without TLS's close_notify.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn template(secret: &str) -> Value {
    json!({ "spec": {
        "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [
            { "name": "web", "image": "i", "envFrom": [{ "secretRef": { "name": secret } }, { "secretRef": { "name": secret } }] },
        ] } },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    } })
}

fn creation(secret: &str, city: &str, extra: &Value) -> Value {
    json!({
        "uid": "r-1", "operation": "CREATE", "name": "web", "namespace": "team",
        "kind": { "group": "compute.datumapis.com", "version": "v1alpha", "kind": "Workload" },
        "userInfo": { "username": "ada", "uid": "u-1", "groups": ["dev"], "extra": extra },
        "object": { "metadata": { "name": "web", "namespace": "team" }, "spec": {
            "template": template(secret),
            "placements": [{ "name": "main", "cityCodes": [city], "scaleSettings": { "minReplicas": 1 } }],
        } },
    })
}

fn deployment(user: &str, annotations: &Value) -> Value {
    let object = |annotations: &Value| {
        json!({ "metadata": { "name": "web-main-dfw", "namespace": "team", "annotations": annotations }, "spec": {
            "workloadRef": { "name": "web", "uid": "u" }, "placementName": "main", "cityCode": "dfw",
            "template": template("tls"), "scaleSettings": { "minReplicas": 1 },
        } })
    };
    json!({
        "uid": "r-2", "operation": "UPDATE", "name": "web-main-dfw", "namespace": "team",
        "kind": { "group": "compute.datumapis.com", "version": "v1alpha", "kind": "WorkloadDeployment" },
        "userInfo": { "username": user }, "object": object(annotations), "oldObject": object(&json!({})),
    })
}

#[tokio::test]
async fn workload_user_is_authorized_by_the_project_in_extra() {
    let bed = bed(true).await;
    let shop = json!({ PARENT: ["shop"], "example.com/more": ["1", "2"] });
    assert_eq!(bed.refused(VALIDATE_WORKLOAD, &creation("tls", "dfw", &shop)).await, Vec::<String>::new());
    let reviews = std::mem::take(&mut *bed.project.reviews.lock().unwrap());
    // One review for the network and one for the Secret that two fields refer to, each with all that is known of the user.
    assert_eq!(reviews.len(), 2);
    for review in &reviews {
        let spec = &review["spec"];
        assert_eq!(
            (&spec["user"], &spec["uid"], &spec["groups"], &spec["extra"]),
            (&json!("ada"), &json!("u-1"), &json!(["dev"]), &shop)
        );
        assert_eq!(spec["resourceAttributes"]["namespace"], "team");
    }
    // A recent grant is not reviewed again for the same user with the same extra.
    assert_eq!(bed.refused(VALIDATE_WORKLOAD, &creation("tls", "dfw", &shop)).await, Vec::<String>::new());
    assert!(bed.project.reviews.lock().unwrap().is_empty());
    let refused = bed.refused(VALIDATE_WORKLOAD, &creation("db", "lhr", &shop)).await;
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(
        refused[0]
            .starts_with("spec.placements[0].cityCodes[0]: Unsupported value: \"lhr\": supported values: \"dfw\"")
    );
    assert!(
        refused[1].contains("envFrom[0].secretRef.name: Forbidden: permission to get Secret \"db\" denied: no role")
    );
    // The same user without the project in `extra`.
    let refused = bed.refused(VALIDATE_WORKLOAD, &creation("tls", "dfw", &json!({}))).await;
    assert!(
        refused.len() == 4 && refused.iter().all(|text| text.contains("Internal error") && text.contains(PARENT)),
        "{refused:?}"
    );
    // An outage is no grant, and a grant for a user with other extra does not count.
    bed.project.away.store(true, Ordering::Relaxed);
    let less = json!({ PARENT: ["shop"], "example.com/more": ["1"] });
    let refused = bed.refused(VALIDATE_WORKLOAD, &creation("tls", "dfw", &less)).await;
    assert!(refused.len() == 3 && refused.iter().all(|text| text.contains("Internal error")), "{refused:?}");
    let (_, mutated) = bed.ask(MUTATE_WORKLOAD, &creation("db", "lhr", &json!({}))).await;
    assert_eq!((&mutated["response"]["allowed"], &mutated["response"]["patch"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn deployment_data_annotation_is_written_by_the_operator_only() {
    let bed = bed(false).await;
    let spoofed = json!({ annotation::EXPECTED_REFERENCED_DATA: "[\"Secret/db\"]" });
    let refused = bed.refused(VALIDATE_DEPLOYMENT, &deployment("ada", &spoofed)).await;
    assert!(
        refused.len() == 1 && refused[0].contains("Forbidden: \"ada\" may not add, change or remove it"),
        "{refused:?}"
    );
    assert!(bed.refused(VALIDATE_DEPLOYMENT, &deployment("operator", &spoofed)).await.is_empty());
    assert!(bed.refused(VALIDATE_DEPLOYMENT, &deployment("ada", &json!({ "note": "x" }))).await.is_empty());
    assert!(bed.project.reviews.lock().unwrap().is_empty(), "nothing new is referred to");
}

/// Requests of the operator itself and of control planes may have no project in `extra`.
#[tokio::test]
async fn request_without_project_that_needs_no_fact_is_allowed() {
    let bed = bed(true).await;
    let mut own = deployment("operator", &json!({ annotation::EXPECTED_REFERENCED_DATA: "[]" }));
    own["operation"] = "CREATE".into();
    own["object"]["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "name": "web", "uid": "u", "controller": true,
    }]);
    assert_eq!(bed.refused(VALIDATE_DEPLOYMENT, &own).await, Vec::<String>::new());
    own["userInfo"]["username"] = "ada".into();
    let refused = bed.refused(VALIDATE_DEPLOYMENT, &own).await;
    assert_eq!(
        refused.len(),
        6,
        "the annotation, the uid, the city, the network, and both fields with the Secret: {refused:?}"
    );
    let mut collector = deployment("system:serviceaccount:kube-system:generic-garbage-collector", &json!({}));
    collector["object"]["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    assert!(bed.refused(VALIDATE_DEPLOYMENT, &collector).await.is_empty());
    assert!(bed.project.reviews.lock().unwrap().is_empty());
}

#[tokio::test]
async fn silent_project_does_not_hold_the_room_of_others() {
    let bed = Arc::new(bed(false).await);
    bed.project.stuck.store(true, Ordering::Relaxed);
    let padded = |kib: usize| {
        let mut request = creation("tls", "dfw", &json!({}));
        request["object"]["metadata"]["annotations"] = json!({ "note": " ".repeat(kib << 10) });
        request
    };
    // Two requests fill the room for large bodies and wait for their project, each with a network and a Secret to review.
    for _ in 0..2 {
        let (bed, request) = (bed.clone(), padded(1100));
        tokio::spawn(async move { bed.ask(VALIDATE_WORKLOAD, &request).await });
    }
    until("four questions wait", || bed.project.waiting.load(Ordering::Relaxed) >= 4).await;
    let (code, answer) = bed.ask(MUTATE_WORKLOAD, &padded(1100)).await;
    assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(true)), "{answer}");
}

#[tokio::test]
async fn webhook_malformed_request_is_rejected_or_cut() {
    let bed = bed(false).await;
    let post = format!("POST {VALIDATE_WORKLOAD}");
    let json = "Content-Type: application/json\r\n";
    for (line, rest, expected) in [
        (post.as_str(), format!("{json}Content-Length: 7\r\n\r\nhunter2"), 400),
        (&post, format!("{json}Content-Length: 2\r\n\r\n{{}}"), 400),
        (&post, "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}".to_owned(), 415),
        (&post, "Content-Length: 2\r\n\r\n{}".to_owned(), 415),
        (&post, format!("{json}Content-Length: {}\r\n\r\n{{", room::MAX_BODY + 1), 413),
        (&post, format!("{json}Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 400),
        (&format!("GET {VALIDATE_WORKLOAD}"), "\r\n".to_owned(), 405),
        ("POST /elsewhere", format!("{json}Content-Length: 2\r\n\r\n{{}}"), 404),
        ("nonsense", "\r\n".to_owned(), 400),
    ] {
        let (code, text) = bed.raw(line, rest.as_bytes()).await;
        assert_eq!(code, expected, "{line} {rest}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    // A body that is too large and announces no length.
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    let body = format!("{json}Transfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(8));
    let (code, _) = bed.raw(&post, body.as_bytes()).await;
    assert_eq!(code, 400);
    let mut odd = creation("tls", "dfw", &json!({}));
    odd["object"]["spec"] = "hunter2".into();
    let (code, answer) = bed.ask(VALIDATE_WORKLOAD, &odd).await;
    assert_eq!(
        (code, &answer["response"]["allowed"], &answer["response"]["status"]["code"]),
        (200, &json!(false), &json!(400))
    );
    // Plain HTTP and a silent client get no response; a client whose body does not arrive gets 408.
    let mut plain = TcpStream::connect(bed.at).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(answer_of(plain).await, 0);
    let (silent, slow) = tokio::join!(answer_of(TcpStream::connect(bed.at).await.unwrap()), async {
        bed.raw(&post, format!("{json}Content-Length: 100\r\n\r\n{{").as_bytes()).await.0
    });
    assert_eq!((silent, slow), (0, 408));
}

async fn answer_of(stream: TcpStream) -> u16 {
    tokio::time::timeout(Duration::from_mins(1), answer(stream)).await.unwrap().0
}

mod lifetime_tests;
mod room_tests;
mod walls_tests;
