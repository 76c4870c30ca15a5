//! The admission webhooks as a project's own API server asks them, under the configuration of `config/`.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use testbed::{
    admission::{Webhooks, role, rule},
    pki::User,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use super::*;
use crate::common::rights;

const NS: &str = "walled";
const PARENT_NAME: &str = "impersonate-extra-iam.miloapis.com%2fparent-name";
/// Where the operator asks whether somebody may do something in the project.
const ACCESS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/alpha/control-plane/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// A review that takes less is measured by the clock's own noise.
const LEAST: Duration = Duration::from_millis(10);
/// What allocators keep back, more or less.
const GROWTH_KIB: u64 = 16 << 10;
const POWER: &str = "compute.datumapis.com/expected-referenced-data";

/// The manager with webhooks in place of the bed's own, which comes back when the test ends well.
struct Walls {
    world: Lent<World>,
    alpha: Client,
    webhooks: Webhooks,
}

impl Walls {
    async fn raise(mut world: Lent<World>) -> Self {
        let alpha = client(&world, "alpha").await;
        let webhooks = Webhooks::new(&world.bed).unwrap();
        world.bed.options_mut().management = format!("{PERIODS}{}", webhooks.config());
        world.restart_manager(&[]).await;
        let walls = Self { world, alpha, webhooks };
        walls.world.namespace_in(&walls.alpha, NS).await;
        walls.rights().await;
        walls.configure().await;
        walls
    }

    /// What the tenant `ada` may do in her project: everything with Workloads, and read one Secret.
    async fn rights(&self) {
        let all = ["get", "create", "update", "patch", "delete"];
        let rules = json!([
            rule("compute.datumapis.com", &["workloads", "workloaddeployments"], &all, &[]),
            rule("networking.datumapis.com", &["networks"], &["use"], &["default"]),
            rule("", &["secrets"], &["get"], &["tls"]),
            // Each a review of its own.
            rule("", &["configmaps"], &["get"], &[]),
        ]);
        // Of him all that is refused, the rules refuse.
        let everything = json!([rule("*", &["*"], &["*"], &[])]);
        for object in role("ada", NS, &rules).into_iter().chain(role("bob", NS, &everything)) {
            testbed::manifests::apply_value(&self.alpha, object).await.unwrap();
        }
    }

    /// The configuration of `config/`, in force.
    async fn configure(&self) {
        self.webhooks.ask_from(&self.alpha).await.unwrap();
        let ada = self.ada(Some("alpha")).await;
        eventually("the webhooks are asked", || async {
            match create(&ada, workload_of("tls", &["nowhere"])).await {
                Err(why) if why.contains("vworkload.kb.io") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// The tenant, as Milo says who she is, or without.
    async fn ada(&self, project: Option<&str>) -> Client {
        self.tenant("ada", project).await
    }

    async fn tenant(&self, name: &'static str, project: Option<&str>) -> Client {
        let file = Kubeconfig::read_from(self.world.bed.project.kubeconfig(&User::Admin)).unwrap();
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        config.headers.push((HeaderName::from_static("impersonate-user"), HeaderValue::from_static(name)));
        if let Some(project) = project {
            config.headers.push((HeaderName::from_static(PARENT_NAME), HeaderValue::from_str(project).unwrap()));
        }
        Client::try_from(config).unwrap()
    }

    /// Ten requests a second, each with twenty references, against one review by itself in the same seconds: half of the
    /// former take no longer than their reviews would one by one.
    async fn is_swift(&self, ada: &Client) {
        const REFERENCES: usize = 20;
        let milo = self.world.bed.milo.as_ref().unwrap().kubeconfig(&User::Operator);
        let operator = testbed::control_plane::client(&milo).await.unwrap();
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": "ada", "resourceAttributes": { "verb": "get", "resource": "configmaps", "namespace": NS, "name": "x" },
        } });
        let mut object = workload_of("tls", &["dfw"]);
        let of = |n| json!({ "configMapRef": { "name": format!("settings-{n}") } });
        let references: Vec<Value> = (0..REFERENCES).map(of).collect();
        object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] = json!(references);
        let (mut raw, mut asked) = (Vec::new(), Vec::new());
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..30 {
            ticks.tick().await;
            let began = Instant::now();
            let request = http::Request::post(ACCESS).header("content-type", "application/json");
            operator.request_text(request.body(review.to_string().into_bytes()).unwrap()).await.unwrap();
            raw.push(began.elapsed());
            let (dry, began) =
                (kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() }, Instant::now());
            let object = serde_json::from_value(object.clone()).unwrap();
            api(ada, "Workload", NS).create(&dry, &object).await.unwrap();
            asked.push(began.elapsed());
        }
        raw.sort();
        asked.sort();
        let (raw, asked) = ((raw[15], raw[29]), (asked[15], asked[29]));
        eprintln!(
            "admission, median and slowest: {asked:?} with {REFERENCES} references, {raw:?} one review by itself"
        );
        // What it asks about one after the other would take: at the worst it is no slower than that.
        let reviews = u32::try_from(REFERENCES).unwrap() + 4;
        assert!(asked.0 <= reviews * raw.0.max(LEAST), "{asked:?} against {raw:?}");
    }

    /// What is no question, or comes too slowly, or is too long: the memory does not grow by it from one time to the next.
    async fn keeps_its_memory(&self) {
        const ROUNDS: usize = 4;
        const AT_A_TIME: usize = 40;
        let pid = self.world.operators[0].process.pid();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.world.bed.dir().join("ca.crt")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        let head = "POST /validate-compute-datumapis-com-v1alpha-workload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let long = " ".repeat(6 << 20);
        let said = [
            format!("{head}Content-Length: {}\r\n\r\n{long}", long.len()),
            format!("{head}Content-Length: 99999999\r\n\r\n"),
            format!("{head}Content-Length: 7\r\n\r\n{{\"a\": ["),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}", long.len()),
            head.to_owned(),
        ];
        let mut resident = Vec::new();
        for _ in 0..ROUNDS {
            let attempts = (0..AT_A_TIME).map(|n| {
                let (tls, said) = (tls.clone(), said[n % said.len()].as_bytes());
                async move {
                    let stream = TcpStream::connect(("127.0.0.1", self.webhooks.port())).await.unwrap();
                    let Ok(mut stream) = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await else {
                        return;
                    };
                    let _ = stream.write_all(said).await;
                    // Answered, cut, or left alone by a client that loses its patience.
                    let _ = tokio::time::timeout(Duration::from_secs(6), stream.read_to_end(&mut Vec::new())).await;
                }
            });
            futures::future::join_all(attempts).await;
            resident.push(resident_kib(pid));
        }
        eprintln!("admission, KiB resident after each round of malformed, oversized and slow clients: {resident:?}");
        // What is kept of clients grows with every round; what the allocator has not given back yet comes and goes.
        let last = resident[ROUNDS / 2..].iter().min().unwrap();
        assert!(*last <= resident[0] + GROWTH_KIB, "{resident:?}");
    }

    /// Puts everything back as it was.
    async fn fell(mut self) {
        self.webhooks.leave(&self.alpha).await.unwrap();
        PERIODS.clone_into(&mut self.world.bed.options_mut().management);
        empty(&self.alpha, NS).await;
        self.world.restart_manager(&[]).await;
    }
}

/// Resident memory of a process.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn template_of(secret: &str) -> Value {
    json!({ "spec": {
        "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [
            { "name": "web", "image": "docker.io/library/nginx:1", "envFrom": [{ "secretRef": { "name": secret } }] },
        ] } },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    } })
}

fn workload_of(secret: &str, cities: &[&str]) -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "generateName": "web-", "namespace": NS },
        "spec": { "template": template_of(secret), "placements": [
            { "name": "p", "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } },
        ] },
    })
}

/// The name of what was made, or why it was not.
async fn create(client: &Client, object: Value) -> Result<String, String> {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let object = serde_json::from_value(object).unwrap();
    let made = api(client, &kind, NS).create(&kube::api::PostParams::default(), &object).await;
    made.map(|made| made.name_any()).map_err(|e| e.to_string())
}

async fn patch(client: &Client, kind: &str, name: &str, patch: Value) -> Result<(), String> {
    let patched = api(client, kind, NS).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|e| e.to_string())
}

#[test]
fn nobody_reads_through_a_workload_or_steers_copies_and_nobody_is_locked_out() {
    RUNTIME.block_on(async {
        // Made before there were webhooks, by the rules of that time: three of today's are broken.
        let mut old = workload_of("none-of-hers", &["dfw", "DFW", "gone"]);
        old["metadata"] = json!({ "name": "old", "namespace": NS });
        old["spec"]["template"]["spec"]["networkInterfaces"][0]["network"]["namespace"] = json!("other");
        let world = world().await;
        let alpha = client(&world, "alpha").await;
        world.namespace_in(&alpha, NS).await;
        apply(&alpha, old).await;

        let walls = Walls::raise(world).await;
        let (with, without) = (walls.ada(Some("alpha")).await, walls.ada(None).await);
        let made = create(&with, workload_of("tls", &["dfw"])).await.unwrap();
        let refused = create(&without, workload_of("tls", &["dfw"])).await.unwrap_err();
        assert!(refused.contains("iam.miloapis.com/parent-name"), "{refused}");
        let refused = create(&with, workload_of("db", &["dfw"])).await.unwrap_err();
        let field = "spec.template.spec.runtime.sandbox.containers[0].envFrom[0].secretRef.name: Forbidden: permission to get Secret \"db\" denied";
        assert!(refused.contains(field), "{refused}");

        // Scaled, relabelled and deleted, although it would be refused as a new one.
        let scaled = json!({ "spec": { "placements": [
            { "name": "p", "cityCodes": ["dfw", "DFW", "gone"], "scaleSettings": { "minReplicas": 3 } },
        ] } });
        patch(&with, "Workload", "old", scaled).await.unwrap();
        patch(&without, "Workload", "old", json!({ "metadata": { "labels": { "a": "b" } } })).await.unwrap();
        let worse = json!({ "spec": { "template": template_of("db") } });
        assert!(patch(&with, "Workload", "old", worse).await.is_err());
        delete(&with, "Workload", NS, "old").await;

        // The operator has made its deployment through the same webhooks; the tenant may not say what is copied.
        let deployment = format!("{made}-p-dfw");
        eventually("the operator's own writes pass", || async {
            let wd = get(&walls.alpha, "WorkloadDeployment", NS, &deployment).await.ok_or("no deployment")?;
            if wd.annotations().contains_key("compute.datumapis.com/federation-namespace") { Ok(()) } else { Err("not yet".into()) }
        })
        .await;
        let spoofed = json!({ "metadata": { "annotations": { POWER: "[\"Secret/db\"]" } } });
        let refused = patch(&with, "WorkloadDeployment", &deployment, spoofed).await.unwrap_err();
        assert!(refused.contains(&format!("metadata.annotations[{POWER}]: Forbidden: \"ada\"")), "{refused}");
        let elsewhere = json!({ "metadata": { "annotations": { "compute.datumapis.com/federation-namespace": "ns-other" } } });
        assert!(patch(&with, "WorkloadDeployment", &deployment, elsewhere).await.is_err());
        patch(&with, "WorkloadDeployment", &deployment, json!({ "metadata": { "annotations": { "note": "x" } } })).await.unwrap();
        generated::judged_alike(&walls.tenant("bob", Some("alpha")).await, &walls.alpha, NS).await;
        let test = "nobody_reads_through_a_workload_or_steers_copies_and_nobody_is_locked_out";
        rights::shown(&walls.world, walls.world.since(), test);
        walls.fell().await;
    });
}

#[test]
fn neither_a_hub_that_is_away_nor_a_new_certificate_refuses_anybody() {
    RUNTIME.block_on(async {
        let mut walls = Walls::raise(world().await).await;
        let ada = walls.ada(Some("alpha")).await;
        // Another project's outage is nobody else's.
        walls.world.bed.milo.as_ref().unwrap().set("beta", Reach::Silent);
        walls.world.bed.hub.stop_api_server();
        let began = Instant::now();
        let (mut made, mut turns) = (0, 0);
        while made < 60 {
            if made % 20 == 10 && turns == made / 20 {
                // Both are signed for this machine; which one is served cannot be told from the outside, and need not be.
                turns += 1;
                walls.webhooks.serve_under(if turns % 2 == 1 { "front-proxy" } else { "server" }).unwrap();
            }
            let name = create(&ada, workload_of("tls", &["dfw"])).await.unwrap();
            let scaled = json!({ "spec": { "placements": [
                { "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 2 } },
            ] } });
            patch(&ada, "Workload", &name, scaled).await.unwrap();
            made += 1;
        }
        assert!(began.elapsed() < promised(Duration::from_mins(1)), "{:?}", began.elapsed());
        let (code, body) = walls.world.operators[0].probe("/readyz/admission").await.unwrap();
        assert_eq!(code, 200, "{body}");
        walls.is_swift(&ada).await;
        walls.keeps_its_memory().await;
        walls.world.bed.hub.start_api_server().unwrap();
        walls.world.bed.hub.wait_ready().await.unwrap();
        walls.world.bed.milo.as_ref().unwrap().set("beta", Reach::Served);
        walls.fell().await;
    });
}
