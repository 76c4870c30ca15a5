//! The admission webhooks, called by a project's own API server under the configuration of `config/`.

use std::{path::Path, sync::Arc};

use http::{HeaderName, HeaderValue};
use kube::{
    Client, Config, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use testbed::{
    admission::{Webhooks, role, rule},
    pki::User,
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use super::{
    World, api,
    beds::Lent,
    eventually,
    projects::{PERIODS, client, empty},
};

/// The namespace in which the tenants `ada` and `bob` have rights.
pub const NS: &str = "walled";
const PARENT_NAME: &str = "impersonate-extra-iam.miloapis.com%2fparent-name";

/// A bed with a manager that serves webhooks. `fell` restores the bed's usual manager if the test ends well.
pub struct Walls {
    pub world: Lent<World>,
    pub alpha: Client,
    pub webhooks: Webhooks,
}

impl Walls {
    pub async fn raise(mut world: Lent<World>) -> Self {
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

    /// Rights of the tenant `ada` in the project: every verb on Workloads, and read access to one Secret.
    async fn rights(&self) {
        let all = ["get", "create", "update", "patch", "delete"];
        let rules = json!([
            rule("compute.datumapis.com", &["workloads", "workloaddeployments"], &all, &[]),
            rule("compute.datumapis.com", &["workloaddeployments/scale"], &["patch"], &[]),
            rule("networking.datumapis.com", &["networks"], &["use"], &["default"]),
            rule("", &["secrets"], &["get"], &["tls"]),
            // A separate review checks each of these rights.
            rule("", &["configmaps"], &["get"], &[]),
        ]);
        // The tenant `bob` has all rights, so only the webhook rules can refuse bob's requests.
        let everything = json!([rule("*", &["*"], &["*"], &[])]);
        for object in role("ada", NS, &rules).into_iter().chain(role("bob", NS, &everything)) {
            testbed::manifests::apply_value(&self.alpha, object).await.unwrap();
        }
    }

    /// Applies the webhook configuration of `config/`, and waits until it is in force.
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

    /// A client of the tenant `ada`, with or without the project that Milo adds to the user.
    pub async fn ada(&self, project: Option<&str>) -> Client {
        self.tenant("ada", project).await
    }

    pub async fn tenant(&self, name: &'static str, project: Option<&str>) -> Client {
        let file = Kubeconfig::read_from(self.world.bed.project.kubeconfig(&User::Admin)).unwrap();
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        config.headers.push((HeaderName::from_static("impersonate-user"), HeaderValue::from_static(name)));
        if let Some(project) = project {
            config.headers.push((HeaderName::from_static(PARENT_NAME), HeaderValue::from_str(project).unwrap()));
        }
        Client::try_from(config).unwrap()
    }

    /// Restores the bed's usual manager.
    pub async fn fell(mut self) {
        self.webhooks.leave(&self.alpha).await.unwrap();
        PERIODS.clone_into(&mut self.world.bed.options_mut().management);
        empty(&self.alpha, NS).await;
        self.world.restart_manager(&[]).await;
    }
}

/// Connects to the webhooks as an API server does.
pub async fn connect(port: u16, authority: &Path) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let server = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(server, stream).await.unwrap()
}

pub fn template_of(secret: &str) -> Value {
    json!({ "spec": {
        "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [
            { "name": "web", "image": "docker.io/library/nginx:1", "envFrom": [{ "secretRef": { "name": secret } }] },
        ] } },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    } })
}

pub fn workload_of(secret: &str, cities: &[&str]) -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "generateName": "web-", "namespace": NS },
        "spec": { "template": template_of(secret), "placements": [
            { "name": "p", "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } },
        ] },
    })
}

/// Creates the object. Returns its name or the error.
pub async fn create(client: &Client, object: Value) -> Result<String, String> {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let object = serde_json::from_value(object).unwrap();
    let made = api(client, &kind, NS).create(&PostParams::default(), &object).await;
    made.map(|made| made.name_any()).map_err(|e| e.to_string())
}

pub async fn patch(client: &Client, kind: &str, name: &str, patch: Value) -> Result<(), String> {
    let patched = api(client, kind, NS).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|e| e.to_string())
}
