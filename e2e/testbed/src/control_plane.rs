//! An API server with its controller manager, on a shared etcd.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    pki::{self, User},
    process::Process,
};

/// Returns a free port on 127.0.0.1 below the range of outgoing connections. A port of that range could be taken before the
/// server uses it.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 15_000;
    const COUNT: u16 = 17_000;
    // Parallel processes start at different ports.
    let begin = u16::try_from(std::process::id() % u32::from(COUNT))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + u16::try_from((u32::from(begin) + u32::from(step) * 7) % u32::from(COUNT))?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {FIRST} and {}", FIRST + COUNT)
}

/// Longest time for the start of a server. It takes seconds on an idle machine, and minutes on a small one that starts everything
/// at once.
pub(crate) const START_TIMEOUT: Duration = Duration::from_mins(4);

/// True if this machine has memory for many API servers. Each takes a third of a GiB.
pub fn has_much_memory() -> bool {
    const MUCH_KIB: u64 = 14 << 20;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    total.is_some_and(|kib: u64| kib >= MUCH_KIB)
}

/// The default issuer of ServiceAccount tokens on every API server.
const ISSUER: &str = "https://kubernetes.default.svc";

/// An etcd that all API servers share, each under its own prefix.
#[derive(Debug)]
pub struct Etcd {
    /// Its process.
    pub process: Process,
    /// Its client URL.
    pub url: String,
}

impl Etcd {
    /// Starts etcd without fsync: a testbed's data need not survive a power cut.
    pub fn start(dir: &Path, bin: &Path) -> Result<Self> {
        Self::serve(dir, "etcd", bin)
    }

    /// Starts etcd on the data in the folder of this name.
    pub(crate) fn serve(dir: &Path, name: &str, bin: &Path) -> Result<Self> {
        let (client, peer) = (free_port()?, free_port()?);
        let url = format!("http://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(bin.join("etcd"));
        command
            .arg(format!("--data-dir={}", dir.join(name).display()))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .args(["--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--log-level=warn"]);
        Ok(Self { process: Process::spawn(dir, name, &mut command)?, url })
    }
}

/// A control plane of the testbed.
#[derive(Debug)]
pub struct ControlPlane {
    name: String,
    dir: PathBuf,
    bin: PathBuf,
    etcd: String,
    port: u16,
    /// Issuers that the API server accepts. It issues ServiceAccount tokens under the first.
    issuers: Vec<String>,
    /// Configuration file of an additionally trusted issuer.
    trusted: Option<PathBuf>,
    api_server: Option<Process>,
    controllers: Option<Process>,
}

impl ControlPlane {
    /// Returns a control plane that does not run yet.
    pub fn new(dir: &Path, bin: &Path, etcd: &str, name: &str) -> Result<Self> {
        let this = Self {
            name: name.into(),
            dir: dir.into(),
            bin: bin.into(),
            etcd: etcd.into(),
            port: free_port()?,
            issuers: vec![ISSUER.into()],
            trusted: None,
            api_server: None,
            controllers: None,
        };
        for user in [User::Admin, User::Tenant, User::Operator] {
            pki::kubeconfig(dir, name, this.port, &user)?;
        }
        Ok(this)
    }

    /// Returns its name: `project`, `hub`, `cell-<city>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the API server use another etcd after its next start.
    pub(crate) fn move_to(&mut self, etcd: &Etcd) {
        self.etcd.clone_from(&etcd.url);
    }

    /// Makes the API server issue tokens under another issuer after its next start. Earlier tokens stay valid.
    pub fn issue_as(&mut self, issuer: &str) {
        self.issuers.insert(0, issuer.into());
    }

    /// Makes the API server accept another control plane's tokens for this audience after its next start. The user names stay the
    /// same. The other control plane must serve its keys without credentials.
    pub fn trust(&mut self, other: &Self, audience: &str) -> Result<()> {
        let issuer = other.issuers.first().context("no issuer")?;
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {
                    "url": issuer, "audiences": [audience],
                    "discoveryURL": format!("https://127.0.0.1:{}/.well-known/openid-configuration", other.port),
                    "certificateAuthority": std::fs::read_to_string(self.dir.join("ca.crt"))?,
                },
                "claimMappings": { "username": { "claim": "sub", "prefix": "" } },
            }],
        });
        let file = self.dir.join(format!("{}-trusts.json", self.name));
        std::fs::write(&file, config.to_string())?;
        self.trusted = Some(file);
        Ok(())
    }

    /// Returns the folder of its programs.
    pub(crate) fn bin(&self) -> &Path {
        &self.bin
    }

    /// Returns its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path of the kubeconfig for `user`.
    pub fn kubeconfig(&self, user: &User) -> PathBuf {
        self.dir.join(format!("{}{}.kubeconfig", self.name, user.suffix()))
    }

    /// Writes the kubeconfig of another user.
    pub(crate) fn admit(&self, user: &User) -> Result<()> {
        pki::kubeconfig(&self.dir, &self.name, self.port, user).map(drop)
    }

    /// Returns a client with every right.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig(&User::Admin)).await
    }

    /// Starts the API server for the first time or after [`Self::stop_api_server`], on the same port.
    pub fn start_api_server(&mut self) -> Result<()> {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let mut command = Command::new(self.bin.join("kube-apiserver"));
        command
            .arg(format!("--etcd-servers={}", self.etcd))
            .arg(format!("--etcd-prefix=/{}", self.name))
            .arg(format!("--secure-port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--tls-cert-file={}", file("server.crt")))
            .arg(format!("--tls-private-key-file={}", file("server.key")))
            .arg(format!("--client-ca-file={}", file("ca.crt")))
            .arg(format!("--token-auth-file={}", file("tokens.csv")))
            .arg("--authorization-mode=RBAC")
            .arg(format!("--service-account-key-file={}", file("sa.pub")))
            .arg(format!("--service-account-signing-key-file={}", file("sa.key")))
            .args(self.issuers.iter().map(|issuer| format!("--service-account-issuer={issuer}")))
            .args(self.trusted.iter().map(|file| format!("--authentication-config={}", file.display())))
            .args([
                // The second one is the audience of the tokens in `config/`.
                "--api-audiences=https://kubernetes.default.svc,https://karmada-apiserver.karmada-system.svc.cluster.local:5443",
                "--service-cluster-ip-range=10.96.0.0/16",
            ])
            .arg(format!("--proxy-client-cert-file={}", file("front-proxy.crt")))
            .arg(format!("--proxy-client-key-file={}", file("front-proxy.key")))
            .arg(format!("--requestheader-client-ca-file={}", file("ca.crt")))
            .args([
                "--requestheader-allowed-names=front-proxy",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-username-headers=X-Remote-User",
            ])
            .arg(format!("--audit-policy-file={}", file("audit.yaml")))
            .arg(format!("--audit-log-path={}", self.audit_log().display()))
            .args([
                // With this plugin, an owner reference that blocks the owner's deletion needs a right.
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                "--disable-admission-plugins=ServiceAccount",
                "--enable-priority-and-fairness=false",
                "--max-requests-inflight=3000",
                "--max-mutating-requests-inflight=1500",
                "--shutdown-delay-duration=0s",
            ]);
        if has_much_memory() {
            command.env("GOGC", "200"); // half the work of the garbage collector, for a quarter more of memory
        }
        self.api_server = Some(Process::spawn(&self.dir, &format!("apiserver-{}", self.name), &mut command)?);
        Ok(())
    }

    /// Kills the API server, so that the control plane is unavailable.
    pub fn stop_api_server(&mut self) {
        self.api_server = None;
    }

    /// Returns the audit log: every answered request of the operator, one JSON object a line.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join(format!("audit-{}.log", self.name))
    }

    /// Waits until the API server serves.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let request = http_get("/readyz")?;
            let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            if matches!(answer, Ok(Ok(_))) {
                return Ok(());
            }
            let server = self.api_server.as_mut().context("the API server is stopped")?;
            if let Some(code) = server.exit_code() {
                bail!("kube-apiserver {} ended with {code}:\n{}", self.name, server.tail());
            }
            if Instant::now() > deadline {
                bail!(
                    "kube-apiserver {} is not ready after {START_TIMEOUT:?}; see {}",
                    self.name,
                    server.log().display()
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Starts the controller manager for namespace deletion and garbage collection. Start it after the installation, because the
    /// garbage collector looks for new definitions only every half minute.
    pub fn start_controllers(&mut self) -> Result<()> {
        let name = format!("controllers-{}", self.name);
        let mut command = Command::new(self.bin.join("kube-controller-manager"));
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig(&User::Admin).display()))
            .arg("--controllers=namespace-controller,garbage-collector-controller")
            .args(["--leader-elect=false", "--bind-address=127.0.0.1"])
            .arg(format!("--secure-port={}", free_port()?))
            .arg(format!("--cert-dir={}", self.dir.join(&name).display()))
            .args(["--kube-api-qps=400", "--kube-api-burst=800", "--concurrent-gc-syncs=5"]);
        self.controllers = Some(Process::spawn(&self.dir, &name, &mut command)?);
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // The controllers end before their server, and both before etcd, which the testbed drops last.
        self.controllers = None;
        self.api_server = None;
    }
}

/// Returns a client for a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Returns a GET request of a path, for [`Client::request_text`].
pub fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}
