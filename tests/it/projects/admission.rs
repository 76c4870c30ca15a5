//! The admission webhooks, called by a project's own API server under the configuration of `config/`.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use kube::api::{Patch, PatchParams, PostParams};
use testbed::{bed::bind_location, manifests};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

use super::*;
use crate::common::{
    admission::{NS, Walls, connect, create, patch, template_of, workload_of},
    rights,
};

const POWER: &str = "compute.datumapis.com/expected-referenced-data";

#[test]
fn webhooks_block_foreign_secrets_and_copy_control_without_lockout() {
    RUNTIME.block_on(async {
        // A Workload from the time before the webhooks, which violates three of today's rules.
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

        // It can be scaled, relabelled and deleted, although it would be refused as a new one.
        let scaled = json!({ "spec": { "placements": [
            { "name": "p", "cityCodes": ["dfw", "DFW", "gone"], "scaleSettings": { "minReplicas": 3 } },
        ] } });
        patch(&with, "Workload", "old", scaled).await.unwrap();
        patch(&without, "Workload", "old", json!({ "metadata": { "labels": { "a": "b" } } })).await.unwrap();
        let worse = json!({ "spec": { "template": template_of("db") } });
        assert!(patch(&with, "Workload", "old", worse).await.is_err());
        delete(&with, "Workload", NS, "old").await;

        // The operator created its deployment through the same webhooks. The tenant may not choose the copied data.
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
        // The limit holds for the deployment and for its scale subresource.
        let most = json!({ "spec": { "replicas": i32::MAX } });
        let refused = patch(&with, "WorkloadDeployment", &deployment, most.clone()).await.unwrap_err();
        assert!(refused.contains("spec.replicas: Invalid value: 2147483647: want at most 1000"), "{refused}");
        let deployments = api(&with, "WorkloadDeployment", NS);
        let scaled = deployments.patch_scale(&deployment, &PatchParams::default(), &Patch::Merge(most)).await;
        let refused = scaled.unwrap_err().to_string();
        assert!(refused.contains("spec.replicas: Invalid value: 2147483647: want at most 1000"), "{refused}");
        generated::judged_alike(&walls.tenant("bob", Some("alpha")).await, &walls.alpha, NS).await;
        let test = "webhooks_block_foreign_secrets_and_copy_control_without_lockout";
        rights::shown(&walls.world, walls.world.since(), test);
        walls.fell().await;
    });
}

/// Returns the objects of every example, in the namespace of the tenants.
fn examples() -> Vec<Value> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crate::common::path("config/samples")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "yaml") {
            found.extend(manifests::documents(&std::fs::read_to_string(file).unwrap()).unwrap());
        }
    }
    for object in &mut found {
        object["metadata"]["namespace"] = json!(NS);
    }
    found
}

/// No test applied an example as a tenant, with the webhooks.
#[test]
fn examples_are_admitted_and_each_city_gets_a_deployment() {
    RUNTIME.block_on(async {
        let walls = Walls::raise(world().await).await;
        bind_location(&walls.alpha, "ord").await.unwrap();
        let bob = walls.tenant("bob", Some("alpha")).await;
        let (mut deployments, mut data) = (Vec::new(), Vec::new());
        for object in examples() {
            let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
            eventually(&format!("{kind} {name} is admitted"), || async {
                create(&bob, object.clone()).await.map(|_| ())
            })
            .await;
            if kind != "Workload" {
                data.push((kind.to_owned(), name.to_owned()));
            }
            for placement in object["spec"]["placements"].as_array().into_iter().flatten() {
                let of =
                    |city: &Value| format!("{name}-{}-{}", placement["name"].as_str().unwrap(), city.as_str().unwrap());
                deployments.extend(placement["cityCodes"].as_array().unwrap().iter().map(of));
            }
        }
        assert!(deployments.len() > 9 && data.len() > 4, "{deployments:?} {data:?}");
        eventually("each city has its deployment", || async {
            let made: Vec<String> =
                list(&walls.alpha, "WorkloadDeployment", NS).await.iter().map(|wd| wd.name_any()).collect();
            let missing: Vec<_> = deployments.iter().filter(|name| !made.contains(name)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
        })
        .await;
        empty(&walls.alpha, NS).await;
        for (kind, name) in data {
            delete(&walls.alpha, &kind, NS, &name).await;
        }
        api(&walls.alpha, "LocationBinding", "").delete("ord", &DeleteParams::default()).await.unwrap();
        walls.fell().await;
    });
}

/// A Workload that waited for its data counted as no user, and another city was admitted. No test checked that management
/// reports the users of an object to the webhooks.
#[test]
fn webhook_with_claiming_policies_refuses_a_second_city_before_any_copy() {
    RUNTIME.block_on(async {
        let mut walls = Walls::raise(world().await).await;
        walls.world.restart_manager(&["--referenced-data-propagation=selectors"]).await;
        bind_location(&walls.alpha, "ord").await.unwrap();
        let ada = walls.ada(Some("alpha")).await;
        // The Secret does not exist yet, so nothing is copied for the first Workload.
        create(&ada, workload_of("tls", &["dfw"])).await.unwrap();
        eventually("the other city is refused, as the first waits for it", || async {
            match attempt(&ada, "ord").await {
                Err(refused) if refused.to_string().contains("Secret \"tls\" is used by Workload") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        attempt(&ada, "dfw").await.unwrap();
        empty(&walls.alpha, NS).await;
        eventually("with its last user the object is free", || async {
            attempt(&ada, "ord").await.map_err(|e| e.to_string())
        })
        .await;
        let location = api(&walls.alpha, "LocationBinding", "");
        location.delete("ord", &DeleteParams::default()).await.unwrap();
        walls.fell().await;
    });
}

/// Returns the serial number of a certificate.
fn serial(certificate: &CertificateDer<'_>) -> String {
    x509_parser::parse_x509_certificate(certificate).unwrap().1.raw_serial_as_string()
}

/// Returns the serial number of the certificate that a new connection gets. The handshake verifies it.
async fn shown(port: u16, authority: &Path) -> String {
    let stream = connect(port, authority).await;
    serial(&stream.get_ref().1.peer_certificates().unwrap()[0])
}

/// Clients that send requests without a pause. Their tasks fail at the first wrong answer.
struct Load {
    done: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    fn begin() -> Self {
        Self { done: Arc::default(), answers: Arc::default(), tasks: Vec::new() }
    }

    /// Adds a client. `ask` makes and checks each of its requests.
    fn add<F: Future<Output = ()> + Send>(&mut self, ask: impl Fn() -> F + Send + 'static) {
        let (done, answers) = (self.done.clone(), self.answers.clone());
        self.tasks.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                ask().await;
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    /// Returns the number of right answers.
    fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// Stops the clients. Fails if one of them had a wrong answer.
    async fn end(self) {
        self.done.store(true, Ordering::Relaxed);
        for task in self.tasks {
            tokio::time::timeout(Duration::from_mins(1), task).await.unwrap().unwrap();
        }
    }
}

/// Creates a Workload in this city as a dry run.
async fn attempt(client: &Client, city: &str) -> kube::Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(workload_of("tls", &[city])).unwrap();
    api(client, "Workload", NS).create(&dry, &object).await.map(drop)
}

#[test]
fn webhook_with_hub_outage_and_new_certificate_refuses_no_valid_request() {
    RUNTIME.block_on(async {
        let mut walls = Walls::raise(world().await).await;
        let ada = walls.ada(Some("alpha")).await;
        // The outage of a project does not affect other projects.
        walls.world.bed.milo.as_ref().unwrap().set("beta", Reach::Silent);
        walls.world.bed.hub.stop_api_server();
        let name = create(&ada, workload_of("tls", &["dfw"])).await.unwrap();
        let dir = walls.world.bed.dir().to_path_buf();
        let (port, authority) = (walls.webhooks.port(), dir.join("ca.crt"));
        let mut load = Load::begin();
        for _ in 0..3 {
            let ada = ada.clone();
            load.add(move || {
                let ada = ada.clone();
                async move {
                    attempt(&ada, "dfw").await.unwrap();
                    // The webhook itself answers: it knows the cities.
                    let refused = attempt(&ada, "nowhere").await.unwrap_err().to_string();
                    assert!(refused.contains(r#""vworkload.kb.io" denied the request"#), "{refused}");
                }
            });
        }
        load.add(move || {
            let (ada, name) = (ada.clone(), name.clone());
            async move {
                let replicas = fastrand::u32(1..9);
                let scaled = json!({ "spec": { "placements": [
                    { "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": replicas } },
                ] } });
                patch(&ada, "Workload", &name, scaled).await.unwrap();
            }
        });
        // API servers reuse their connections. A client with a new connection for each request sees every certificate.
        let of_all = authority.clone();
        load.add(move || {
            let authority = of_all.clone();
            async move { drop(shown(port, &authority).await) }
        });
        for certificate in ["front-proxy", "server", "front-proxy"] {
            let new = serial(&CertificateDer::from_pem_file(dir.join(format!("{certificate}.crt"))).unwrap());
            assert_ne!(shown(port, &authority).await, new, "another one is served until now");
            walls.webhooks.serve_under(certificate).unwrap();
            eventually("the new certificate is served", || async {
                let now = shown(port, &authority).await;
                if now == new { Ok(()) } else { Err(now) }
            })
            .await;
            let before = load.answers();
            eventually("requests are answered under load", || async {
                let more = load.answers() - before;
                if more > 60 { Ok(()) } else { Err(format!("{more} answers")) }
            })
            .await;
        }
        load.end().await;
        let (code, body) = walls.world.operators[0].probe("/readyz/admission").await.unwrap();
        assert_eq!(code, 200, "{body}");
        walls.world.bed.hub.start_api_server().unwrap();
        walls.world.bed.hub.wait_ready().await.unwrap();
        walls.world.bed.milo.as_ref().unwrap().set("beta", Reach::Served);
        walls.fell().await;
    });
}
