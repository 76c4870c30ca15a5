//! `kubectl compute`, as its users start it, and the question whether all sources of a reason agree.

use std::{
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

use compute_operator::api::reason::{Reason, Who};
use kube::{Client, Config};
use kubectl_compute::exit::Exit;
use serde_json::{Value, json};
use testbed::{bed::Testbed, control_plane::free_port, manifests, pki::User};

use super::{condition, eventually, get, readers::account};

/// Runs the command. Returns its exit code and its output, or its error.
pub async fn run(args: &[&str]) -> (Exit, String) {
    let args: Vec<OsString> = ["kubectl-compute"].iter().chain(args).map(OsString::from).collect();
    let run = move || {
        let (mut out, mut problems) = (Vec::new(), Vec::new());
        let exit = kubectl_compute::start(args, &mut out, &mut problems);
        (exit, String::from_utf8([out, problems].concat()).unwrap())
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Port of a manager that serves its metrics and its list to permitted callers.
#[derive(Clone, Copy)]
pub struct SecurePort(u16);

impl SecurePort {
    pub fn free() -> Self {
        Self(free_port().unwrap())
    }

    /// Returns the lines of the manager's config file.
    pub fn config(self) -> String {
        format!("metricsServer:\n  bindAddress: 127.0.0.1:{}\n", self.0)
    }

    pub fn url(self) -> String {
        format!("https://localhost:{}", self.0)
    }
}

/// Asks about deployments in every way that a user has.
pub struct Asker {
    /// With a context for each control plane.
    pub kubeconfig: PathBuf,
    /// Of a user who may only read the objects of tenants.
    pub tenant: PathBuf,
    pub url: String,
    hub: String,
    cells: Vec<String>,
}

impl Asker {
    pub async fn of(bed: &Testbed, project: &Client, port: SecurePort) -> Self {
        let token = tenant(project).await;
        let kubeconfig = bed.contexts().unwrap();
        let mut config: Value = serde_json::from_slice(&std::fs::read(&kubeconfig).unwrap()).unwrap();
        config["users"] = json!([{ "name": User::Admin.name(), "user": { "token": token } }]);
        let tenant = bed.dir().join("tenant.kubeconfig");
        std::fs::write(&tenant, config.to_string()).unwrap();
        let cells = bed.cells.iter().map(|(city, cell)| format!("cell-{city}={}", cell.name())).collect();
        Self { kubeconfig, tenant, url: port.url(), hub: bed.hub.name().to_owned(), cells }
    }

    /// Runs the command with every right on all control planes.
    pub async fn ask(&self, namespace: &str, args: &[&str]) -> (Exit, String) {
        let kubeconfig = self.kubeconfig.display().to_string();
        let mut all = vec!["--kubeconfig", &kubeconfig, "--namespace", namespace, "--hub-context", &self.hub];
        for cell in &self.cells {
            all.extend(["--cell-context", cell]);
        }
        run(&[&all, args].concat()).await
    }

    /// Runs the command with the rights of a tenant.
    pub async fn ask_as_tenant(&self, namespace: &str, args: &[&str]) -> (Exit, String) {
        let kubeconfig = self.tenant.display().to_string();
        run(&[&["--kubeconfig", &kubeconfig, "--namespace", namespace], args].concat()).await
    }

    /// Returns the manager's metrics.
    pub async fn metrics(&self) -> Result<String, String> {
        let mut config = Config::new(self.url.parse().unwrap());
        config.auth_info.token = Some(User::Admin.token().to_string().into());
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).unwrap();
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        client.request_text(request).await.map_err(|error| error.to_string())
    }

    /// Returns the reason that a trace names, and its exit code.
    fn named((exit, text): (Exit, String)) -> (Exit, String) {
        let trace: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let of_way = trace["ways"][0]["broken"]["reason"].as_str();
        let reason = of_way.or_else(|| trace["broken"]["reason"].as_str());
        (exit, reason.unwrap_or_default().to_owned())
    }

    /// Asserts that condition, trace, list and metric name the same reason of a Workload or deployment that waits. Returns the time
    /// that the trace took.
    pub async fn all_name(
        &self,
        project: &Client,
        namespace: &str,
        (kind, name): (&str, &str),
        reason: &str,
    ) -> Duration {
        let object = format!("{}/{name}", kind.to_lowercase());
        let who = Reason::from(reason).entry().map_or(Who::Platform, |entry| entry.who);
        eventually(&format!("everything names {reason} for {object}"), || async {
            let found = get(project, kind, namespace, name).await.ok_or("it is gone")?;
            let ready = condition(&found, "Ready");
            let who = if ready["status"] == "Unknown" { Who::Platform } else { who };
            let exit = match who {
                Who::Tenant => Exit::Tenant,
                Who::Platform => Exit::Platform,
                Who::Nobody => Exit::InProgress,
            };
            let began = Instant::now();
            let traced = Self::named(self.ask(namespace, &["trace", &object, "--output", "json"]).await);
            let took = began.elapsed();
            let by_tenant = Self::named(self.ask_as_tenant(namespace, &["trace", &object, "--output", "json"]).await);
            let (_, list) =
                self.ask(namespace, &["waiting", reason, "--all", "--manager-url", &self.url, "-o", "json"]).await;
            let list: Value = serde_json::from_str(&list).map_err(|error| format!("{error}: {list}"))?;
            let of_list = list["objects"].as_array().into_iter().flatten();
            // A Workload is not listed beside its deployments.
            let is_it = |one: &Value| {
                one["name"] == name
                    || (kind == "Workload"
                        && one["name"].as_str().is_some_and(|of| of.starts_with(&format!("{name}-"))))
            };
            let listed = of_list
                .filter(|one| {
                    is_it(one)
                        && one["namespace"] == namespace
                        && one["reason"] == reason
                        && one["waitsFor"] == who.label()
                })
                .count();
            let expected = (exit, reason.to_owned());
            let gauge = format!("compute_waiting_objects{{reason=\"{reason}\",waits_for=\"{}\"", who.label());
            let metrics = self.metrics().await?;
            let counted = metrics.lines().any(|line| line.starts_with(&gauge));
            if ready["reason"] == reason && traced == expected && by_tenant == expected && listed >= 1 && counted {
                return Ok(took);
            }
            let all = format!("trace {traced:?}, as a tenant {by_tenant:?}, listed {listed} times, counted {counted}");
            Err(format!("condition {ready}, {all}"))
        })
        .await
    }
}

/// Creates a user who may only read the objects of tenants. Returns a token.
async fn tenant(project: &Client) -> String {
    let token = account(project, "tenant").await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "tenant" },
        "rules": [{
            "apiGroups": ["compute.datumapis.com"], "verbs": ["get", "list"],
            "resources": ["workloads", "workloaddeployments", "instances"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "tenant" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenant" },
        "subjects": [{ "kind": "ServiceAccount", "name": "tenant", "namespace": "compute-system" }],
    });
    for object in [role, binding] {
        manifests::apply_value(project, object).await.unwrap();
    }
    token
}
