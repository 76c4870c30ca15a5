//! Real Karmada as plain processes on the hub.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use tokio::{net::TcpStream, time::Instant};

use crate::{
    control_plane::{ControlPlane, START_TIMEOUT, free_port},
    manifests,
    pki::User,
    process::Process,
};

/// Karmada's processes.
#[derive(Debug)]
pub struct Real {
    _processes: Vec<Process>,
}

impl Real {
    /// Checks that the folders are complete.
    pub fn check(bin: &Path, crds: &Path) -> Result<()> {
        for name in ["controller-manager", "scheduler", "webhook", "aggregated-apiserver"] {
            if !bin.join(name).is_file() {
                bail!(
                    "{} has no {name}: give a folder with Karmada's binaries (KARMADA_BIN, --karmada-bin)",
                    bin.display()
                );
            }
        }
        for name in ["charts/karmada/_crds/bases", "artifacts/deploy/webhook-configuration.yaml"] {
            if !crds.join(name).exists() {
                bail!("{} has no {name}: give Karmada's source folder (KARMADA_CRDS, --karmada-crds)", crds.display());
            }
        }
        Ok(())
    }

    /// Installs Karmada's kinds and starts its processes from these folders. [`super::super::bed`] registers the clusters.
    pub async fn start(
        dir: &Path,
        (bin, crds): (&Path, &Path),
        evict_tainted: bool,
        hub: &ControlPlane,
        etcd: &str,
    ) -> Result<Self> {
        let client = hub.client().await?;
        for name in ["karmada-system", "karmada-cluster"] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            manifests::apply_value(&client, namespace).await?;
        }
        for file in yaml_files(&crds.join("charts/karmada/_crds/bases"))? {
            manifests::apply(&client, &fs::read_to_string(&file)?).await.with_context(|| file.display().to_string())?;
        }
        let kubeconfig = hub.kubeconfig(&User::Admin).display().to_string();
        let file = |name: &str| dir.join(name).display().to_string();
        let limits = ["--kube-api-qps=400", "--kube-api-burst=800"];
        let (api, hook) = (free_port()?, free_port()?);
        let mut processes = Vec::new();
        let mut command = Command::new(bin.join("aggregated-apiserver"));
        command
            .args(
                ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
                    .map(|f| format!("--{f}={kubeconfig}")),
            )
            .arg(format!("--etcd-servers={etcd}"))
            .args([format!("--secure-port={api}"), "--bind-address=127.0.0.1".into()])
            .args([
                format!("--tls-cert-file={}", file("server.crt")),
                format!("--tls-private-key-file={}", file("server.key")),
            ])
            .args(limits);
        processes.push(Process::spawn(dir, "karmada-aggregated-apiserver", &mut command)?);
        let ca = STANDARD.encode(fs::read(dir.join("ca.crt"))?);
        for object in [
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": "karmada-aggregated-apiserver", "namespace": "karmada-system" },
                "spec": { "type": "ExternalName", "externalName": "localhost", "ports": [{ "port": api }] },
            }),
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": { "name": "v1alpha1.cluster.karmada.io" },
                "spec": {
                    "caBundle": ca, "group": "cluster.karmada.io", "version": "v1alpha1",
                    "groupPriorityMinimum": 2000, "versionPriority": 10,
                    "service": { "name": "karmada-aggregated-apiserver", "namespace": "karmada-system", "port": api },
                },
            }),
        ] {
            manifests::apply_value(&client, object).await?;
        }
        let certs = dir.join("webhook-certs");
        fs::create_dir_all(&certs)?;
        fs::copy(dir.join("server.crt"), certs.join("tls.crt"))?;
        fs::copy(dir.join("server.key"), certs.join("tls.key"))?;
        wait_for(&client, "/apis/cluster.karmada.io/v1alpha1/clusters").await?;
        let webhook = || {
            let mut command = Command::new(bin.join("webhook"));
            command
                .arg(format!("--kubeconfig={kubeconfig}"))
                .args([format!("--secure-port={hook}"), "--bind-address=127.0.0.1".into()])
                .arg(format!("--cert-dir={}", certs.display()))
                .args(probes()?)
                .args(limits);
            Process::spawn(dir, "karmada-webhook", &mut command)
        };
        processes.push(serving(webhook, hook).await?);
        let hooks = fs::read_to_string(crds.join("artifacts/deploy/webhook-configuration.yaml"))?
            .replace("{{caBundle}}", &ca)
            .replace("karmada-webhook.karmada-system.svc:443", &format!("127.0.0.1:{hook}"));
        manifests::apply(&client, &hooks).await?;
        let mut command = Command::new(bin.join("controller-manager"));
        command
            .arg(format!("--kubeconfig={kubeconfig}"))
            .args(["--leader-elect=false", "--cluster-status-update-frequency=10s"])
            .args(["--cluster-api-qps=400", "--cluster-api-burst=800"])
            .args(probes()?)
            .args(limits);
        if evict_tainted {
            command
                .args(["--feature-gates=Failover=true", "--enable-no-execute-taint-eviction=true"])
                .arg("--graceful-eviction-timeout=10s");
        }
        processes.push(Process::spawn(dir, "karmada-controller-manager", &mut command)?);
        let mut command = Command::new(bin.join("scheduler"));
        command
            .arg(format!("--kubeconfig={kubeconfig}"))
            .args(["--leader-elect=false", "--enable-scheduler-estimator=false"])
            .args(probes()?)
            .args(limits);
        processes.push(Process::spawn(dir, "karmada-scheduler", &mut command)?);
        Ok(Self { _processes: processes })
    }
}

fn probes() -> Result<[String; 2]> {
    Ok([
        format!("--metrics-bind-address=127.0.0.1:{}", free_port()?),
        format!("--health-probe-bind-address=127.0.0.1:{}", free_port()?),
    ])
}

/// Starts a process that serves on a port. On a slow machine it may exit before that, and is restarted.
async fn serving(start: impl Fn() -> Result<Process>, port: u16) -> Result<Process> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut process = start()?;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        if Instant::now() > deadline {
            let (name, tail) = (process.name(), process.tail());
            // Each webhook server and each aggregated API server watches its certificates, which takes an inotify instance.
            let lacks = if tail.contains("too many open files") { ": raise fs.inotify.max_user_instances" } else { "" };
            bail!("{name} does not serve after {START_TIMEOUT:?}{lacks}:\n{tail}");
        }
        if process.exit_code().is_some() {
            process = start()?;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(process)
}

async fn wait_for(client: &kube::Client, path: &str) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match client.request_text(crate::control_plane::http_get(path)?).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => bail!("{path} is not served: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }
}

fn yaml_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(yaml_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
