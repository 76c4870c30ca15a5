//! Control planes as types of their own, so that a write to the wrong one does not compile.

use std::{
    collections::HashMap,
    fs,
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{Cluster, Kubeconfig, KubeconfigError},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio_util::sync::CancellationToken;

use super::{
    proxy::{self, Proxies},
    requests::{Meter, Observer, ServerClock},
    server,
};
use crate::{
    api::names::ProjectName,
    metrics::{Host, Metrics},
    plan::{Kind, Object, Plane},
};

/// How often the files of a kubeconfig are compared with what was read; client-go looks once a minute.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Calls that hang together are one reason to renew a connection.
const RENEW_AT_MOST: Duration = Duration::from_secs(2);

/// Takes the answers to our own writes into a cache, ahead of the watch.
pub trait Sink: Send + Sync {
    /// The object as the server holds it after our write.
    fn wrote(&self, object: Value);
    /// The server removed exactly this object for us.
    fn removed(&self, object: &Object, uid: &str);
}

/// What a kubeconfig says of servers and of who we are there, as it was read last. Every connection made of it shares it: once it
/// is read again, each connects anew.
#[derive(Clone)]
pub struct Credentials(Arc<RwLock<Said>>);

struct Said {
    config: Config,
    /// Proxies by the server's address, unless the kubeconfig names one itself.
    proxies: Option<Proxies>,
    /// The files that this was read from, and a digest of what was in them.
    files: Vec<PathBuf>,
    digest: Digest,
    version: u64,
}

/// Tells whether files have changed, without keeping keys.
type Digest = [u8; 32];

fn digest(files: &[PathBuf]) -> Digest {
    let mut digest = Sha256::new();
    for file in files {
        let content = fs::read(file).unwrap_or_default();
        digest.update(content.len().to_be_bytes());
        digest.update(content);
    }
    digest.finalize().into()
}

impl Said {
    fn new(config: Config, proxies: Option<Proxies>, files: Vec<PathBuf>) -> Self {
        Self { config, proxies, digest: digest(&files), files, version: 0 }
    }
}

impl From<Config> for Credentials {
    /// For as long as the process runs.
    fn from(config: Config) -> Self {
        Self(Arc::new(RwLock::new(Said::new(config, None, Vec::new()))))
    }
}

impl Credentials {
    fn said(&self) -> RwLockReadGuard<'_, Said> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when the client's certificate is good, in seconds since 1970; nothing where there is none, as where tokens are
    /// used, or where it cannot be read: that is for the connection to say.
    pub fn good_until(&self) -> Option<i64> {
        good_until(&self.said().config)
    }

    /// The server's address, as the kubeconfig has it.
    fn server(&self) -> http::Uri {
        self.said().config.cluster_url.clone()
    }

    /// A client for the server at this address, or at the kubeconfig's, and the version of what it is made of. Files with
    /// certificates are read for it.
    fn client(&self, address: Option<&http::Uri>, observer: &Observer) -> Result<(Client, u64), String> {
        let (mut config, proxies, version) = {
            let said = self.said();
            (said.config.clone(), said.proxies.clone(), said.version)
        };
        if let Some(address) = address {
            config.cluster_url = address.clone();
        }
        if let Some(proxies) = proxies {
            config.proxy_url = proxies.of_server(&config.cluster_url)?;
        }
        let builder = ClientBuilder::try_from(config).map_err(|e| root_cause(&e))?;
        Ok((builder.with_layer(observer).build(), version))
    }

    /// Takes over what was read again, if a client can be made of it.
    fn replace(&self, new: &Self) -> Result<(), String> {
        new.client(None, &Observer { meter: None, clock: ServerClock::default() })?;
        let new = new.said();
        let mut said = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if said.config.cluster_url != new.config.cluster_url {
            // What is known of one server says nothing of another.
            return Err(format!("it names another server, {}: restart the manager to use it", new.config.cluster_url));
        }
        (said.config, said.proxies) = (new.config.clone(), new.proxies.clone());
        (said.files, said.digest) = (new.files.clone(), new.digest);
        said.version += 1;
        Ok(())
    }

    /// Reads the kubeconfig and the files that it names again whenever they change, until `stop`. Files that cannot be used
    /// leave in use what was read before. `tell` is told of each change, and of what is wrong with it.
    pub async fn keep(self, source: Source, tell: impl Fn(Result<&Self, &str>) + Send, stop: CancellationToken) {
        let mut failed: Option<String> = None;
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            failed = self.look(&source, failed.as_deref(), &tell);
        }
    }

    /// `failed`: what was wrong with the files when they were looked at last. Returns what is wrong with them now.
    fn look(
        &self,
        source: &Source,
        failed: Option<&str>,
        tell: &(impl Fn(Result<&Self, &str>) + Send),
    ) -> Option<String> {
        let changed = {
            let said = self.said();
            digest(&said.files) != said.digest
        };
        if !changed && failed.is_none() {
            return None;
        }
        match load(source).and_then(|new| self.replace(&new)) {
            Ok(()) => {
                tracing::info!(?source, "kubeconfig read again: connections are made anew");
                tell(Ok(self));
                None
            }
            Err(why) => {
                if failed != Some(why.as_str()) {
                    tracing::warn!(why, "kubeconfig changed and cannot be used: what was read before stays in use");
                }
                tell(Err(&why));
                Some(why)
            }
        }
    }
}

/// The way to one API server: a client, and the means to make a fresh one.
///
/// When a network drops connections without a word, every one that the client has pooled is dead, and each call that
/// picks one waits for its deadline. So the first call that gets no answer has the whole pool replaced.
#[derive(Clone)]
pub struct Connection {
    credentials: Credentials,
    /// The server's address in the place of the kubeconfig's.
    address: Option<http::Uri>,
    current: Arc<RwLock<Current>>,
    /// The client of payloads, while one is under way, and the version of what it was made of.
    confidential: Arc<Mutex<(Weak<Client>, u64)>>,
    /// How often the server was found to have been given another history.
    histories: Arc<watch::Sender<u64>>,
    observer: Observer,
}

struct Current {
    client: Client,
    made: Instant,
    /// Of what it was made of.
    version: u64,
}

impl Connection {
    /// Prepares a connection; nothing is sent yet.
    ///
    /// # Errors
    /// One line, when `credentials` cannot make a client.
    pub fn new(credentials: impl Into<Credentials>) -> Result<Self, String> {
        Self::metered(credentials, None)
    }

    /// The same, with what counts each request.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn metered(credentials: impl Into<Credentials>, meter: Option<Meter>) -> Result<Self, String> {
        Self::at(credentials.into(), None, meter)
    }

    fn at(credentials: Credentials, address: Option<http::Uri>, meter: Option<Meter>) -> Result<Self, String> {
        let observer = Observer { meter, clock: ServerClock::default() };
        let made = credentials.client(address.as_ref(), &observer);
        let (client, version) = made.map_err(|why| format!("kubeconfig: {why}"))?;
        Ok(Self {
            credentials,
            address,
            current: Arc::new(RwLock::new(Current { client, made: Instant::now(), version })),
            confidential: Arc::default(),
            histories: Arc::new(watch::Sender::new(0)),
            observer,
        })
    }

    /// The server's clock.
    pub fn clock(&self) -> &ServerClock {
        &self.observer.clock
    }

    /// The same way with connections of its own, at home on the runtime that this is called on.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn apart(&self) -> Result<Self, String> {
        Self::at(self.credentials.clone(), self.address.clone(), self.observer.meter.clone())
    }

    /// Somebody has found that the server was given another history (an etcd restored from a backup). Every watch lists
    /// again: of those whose kind was written to since, none could find it by itself.
    pub fn another_history(&self) {
        self.histories.send_modify(|count| *count += 1);
    }

    /// Tells of other histories that are found from now on.
    pub fn histories(&self) -> watch::Receiver<u64> {
        self.histories.subscribe()
    }

    fn make(&self) -> Result<(Client, u64), String> {
        self.credentials.client(self.address.as_ref(), &self.observer)
    }

    /// A client for calls that carry payloads of ConfigMaps and Secrets.
    ///
    /// Its connections live no longer than such calls are under way, for they keep in their buffers what went through
    /// them; memory that is given back is wiped (see `main`).
    ///
    /// # Errors
    /// One line, when no client can be made.
    pub(super) fn confidential(&self) -> Result<Arc<Client>, String> {
        let mut current = self.confidential.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = current.0.upgrade().filter(|_| current.1 == self.credentials.said().version) {
            return Ok(client);
        }
        let (client, version) = self.make()?;
        let client = Arc::new(client);
        *current = (Arc::downgrade(&client), version);
        Ok(client)
    }

    /// The client to use for the next call.
    pub fn client(&self) -> Client {
        let version = self.credentials.said().version;
        {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            if current.version == version {
                return current.client.clone();
            }
        }
        // The kubeconfig was read again: its connections are not those of before.
        self.replace(|current| current.version != version);
        self.current.read().unwrap_or_else(PoisonError::into_inner).client.clone()
    }

    /// A call got no answer: from now on, calls go over connections that are made for them.
    pub fn renew(&self) {
        // Calls that hung together fail together; one of them is enough.
        self.replace(|current| current.made.elapsed() > RENEW_AT_MOST);
    }

    fn replace(&self, is_due: impl Fn(&Current) -> bool) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if is_due(&current)
            && let Ok((client, version)) = self.make()
        {
            *current = Current { client, made: Instant::now(), version };
        }
    }
}

/// A control plane of kind `P`, and how to reach it.
pub struct ControlPlane<P> {
    name: Arc<str>,
    connection: Connection,
    sinks: Arc<RwLock<HashMap<Kind, Arc<dyn Sink>>>>,
    plane: PhantomData<fn() -> P>,
}

impl<P> Clone for ControlPlane<P> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            connection: self.connection.clone(),
            sinks: self.sinks.clone(),
            plane: PhantomData,
        }
    }
}

impl<P: Plane> ControlPlane<P> {
    /// `name` is for people: `project single`, `hub`, `cell`.
    pub fn new(name: &str, connection: Connection) -> Self {
        Self { name: name.into(), connection, sinks: Arc::default(), plane: PhantomData }
    }

    /// Its name in logs, errors and `/readyz`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way to it, for watches. Writes go through [`Self::execute`](crate::io::apply).
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Answers to writes of this kind go to `sink` from now on.
    pub fn feed(&self, kind: Kind, sink: Arc<dyn Sink>) {
        self.sinks.write().unwrap_or_else(PoisonError::into_inner).insert(kind, sink);
    }

    pub(super) fn sink(&self, kind: Kind) -> Option<Arc<dyn Sink>> {
        self.sinks.read().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned()
    }
}

/// How the control planes of projects are reached: one set of credentials, an address for each.
#[derive(Clone)]
pub struct Projects {
    credentials: Credentials,
    /// The cluster's domain, where each project's API server is a service of the cluster we run in; else it is a path on one
    /// host.
    internal: Option<String>,
    metrics: Option<Metrics>,
}

impl Projects {
    /// Credentials and host of a kubeconfig for every project.
    pub fn new(credentials: impl Into<Credentials>) -> Self {
        Self { credentials: credentials.into(), internal: None, metrics: None }
    }

    /// The same credentials, for services of a cluster with this domain; for the host if there is none.
    #[must_use]
    pub fn inside(self, domain: Option<&str>) -> Self {
        Self { internal: domain.map(str::to_owned), ..self }
    }

    /// The same, with requests counted.
    #[must_use]
    pub fn counted(self, metrics: &Metrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..self }
    }

    fn meter(&self, host: Host) -> Option<Meter> {
        self.metrics.as_ref().map(|metrics| Meter::new(metrics, host))
    }

    /// Prepares a connection to a project; nothing is sent yet.
    ///
    /// # Errors
    /// One line, when the name cannot be part of an address.
    pub fn connect(&self, project: &ProjectName) -> Result<Connection, String> {
        Connection::at(self.credentials.clone(), Some(self.address(project)?), self.meter(Host::Project))
    }

    /// Prepares a connection to the host itself, with the credentials that serve for every project; nothing is sent yet.
    ///
    /// # Errors
    /// One line, when the credentials make no client.
    pub fn host(&self) -> Result<Connection, String> {
        Connection::metered(self.credentials.clone(), self.meter(Host::Milo))
    }

    fn address(&self, project: &ProjectName) -> Result<http::Uri, String> {
        let name = project.as_str();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if name.is_empty() || name.contains("..") || !name.chars().all(plain) {
            return Err(format!("project {name:?}: not a name that an address can carry"));
        }
        let uri = if let Some(domain) = &self.internal {
            // Behind a dot stands the namespace of the service: whoever has that one would answer for the project.
            if name.contains('.') {
                return Err(format!(
                    "project {name:?}: no project whose name has a dot is found by internalServiceDiscovery"
                ));
            }
            http::Uri::try_from(format!("https://milo-apiserver.project-{name}.svc.{domain}:6443"))
        } else {
            let path = format!("/apis/resourcemanager.miloapis.com/v1alpha1/projects/{name}/control-plane");
            let mut parts = self.credentials.server().into_parts();
            parts.path_and_query = path.parse().ok();
            return http::Uri::from_parts(parts).map_err(|e| format!("project {name:?}: {e}"));
        };
        uri.map_err(|e| format!("project {name:?}: {e}"))
    }
}

/// Where a kubeconfig comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// File to read; the usual rules (`KUBECONFIG`, `~/.kube/config`, in-cluster) when absent.
    pub path: Option<PathBuf>,
    /// Context inside it; its current one when absent.
    pub context: Option<String>,
}

/// Reads a kubeconfig. No connection is made.
///
/// # Errors
/// One line that says which file and what is wrong with it.
pub fn load(source: &Source) -> Result<Credentials, String> {
    let mut said = match &source.path {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|e| root_cause(&e));
            let context = source.context.as_deref();
            let said = kubeconfig.and_then(|kubeconfig| from_kubeconfig(&kubeconfig, context, Some(path)));
            said.map_err(|why| format!("kubeconfig {}: {why}", path.display()))?
        }
        None => infer().map_err(|why| {
            format!("no kubeconfig: {why}; give --kubeconfig, set KUBECONFIG or run inside a cluster")
        })?,
    };
    said.config.connect_timeout = Some(Duration::from_secs(5));
    // Every call has a deadline of ours and every key its own back-off; kube would retry one call for minutes.
    said.config.default_retry = false;
    Ok(Credentials(Arc::new(RwLock::new(said))))
}

/// As kubectl finds it, else as a pod has it. Kubernetes renews a pod's token by itself, and its own network has no proxy.
fn infer() -> Result<Said, String> {
    let read = Kubeconfig::read().map_err(|e| root_cause(&e));
    read.and_then(|kubeconfig| from_kubeconfig(&kubeconfig, None, None)).or_else(|why| {
        let inside = Config::incluster().map_err(|e| format!("{why}; {}", root_cause(&e)))?;
        Ok(Said::new(inside, None, Vec::new()))
    })
}

/// Until when the client's certificate of a kubeconfig is good, in seconds since 1970; nothing where it has none, as where
/// tokens are used, or where it cannot be read: that is for the connection to say.
fn good_until(config: &Config) -> Option<i64> {
    let auth = &config.auth_info;
    let text = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(file)) => fs::read(file).ok()?,
        (None, None) => return None,
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().ok()?;
    server::expiry_of_chain(&chain)
}

/// kube's own reading of it looks at the environment for proxies, in its own way (see [`proxy`]).
fn from_kubeconfig(kubeconfig: &Kubeconfig, context: Option<&str>, path: Option<&Path>) -> Result<Said, String> {
    let named = context.or(kubeconfig.current_context.as_deref()).ok_or("it has no current context")?;
    let context = kubeconfig.contexts.iter().find(|one| one.name == named).and_then(|one| one.context.as_ref());
    let context = context.ok_or_else(|| format!("it has no context {named:?}"))?;
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == context.cluster);
    let cluster = cluster.and_then(|one| one.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| format!("it has no cluster {:?}", context.cluster))?;
    let user = context.user.as_ref().map(|name| {
        let user = kubeconfig.auth_infos.iter().find(|one| one.name == *name).and_then(|one| one.auth_info.clone());
        user.ok_or_else(|| format!("it has no user {name:?}"))
    });
    let mut user = user.transpose()?.unwrap_or_default();
    if let Some(exec) = user.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(cluster.try_into().map_err(|e: KubeconfigError| root_cause(&e))?);
    }
    let files = cluster.certificate_authority.iter().chain(&user.client_certificate).chain(&user.client_key);
    let files = path.map(Path::to_owned).into_iter().chain(files.map(PathBuf::from)).collect();
    let proxy = cluster.proxy_url.as_deref().filter(|text| !text.is_empty()).map(proxy::parse).transpose();
    let proxy = proxy.map_err(|why| format!("proxy-url of cluster {:?}: {why}", context.cluster))?;
    let server = cluster.server.as_deref().ok_or_else(|| format!("cluster {:?} has no server", context.cluster))?;
    let mut config = Config::new(server.parse().map_err(|_| format!("server {server:?} is no address"))?);
    config.root_cert = authority(cluster)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.auth_info = user;
    let proxies = proxy.is_none().then(Proxies::of_environment);
    config.proxy_url = proxy;
    Ok(Said::new(config, proxies, files))
}

/// The authority of a server's certificate; the machine's are asked where it has none.
fn authority(cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>, String> {
    let text = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => {
            STANDARD.decode(data.trim()).map_err(|e| format!("certificate-authority-data is no base64: {e}"))?
        }
        (None, Some(file)) => fs::read(file).map_err(|e| format!("certificate-authority {file}: {e}"))?,
        (None, None) => return Ok(None),
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|_| "the server's authority is no PEM".to_owned())?;
    Ok(Some(chain.into_iter().map(|one| one.to_vec()).collect()))
}

/// The chain of causes in one line.
fn root_cause(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default().to_owned();
    match error.source() {
        Some(inner) if !text.contains(&inner.to_string()) => format!("{text}: {}", root_cause(inner)),
        _ => text,
    }
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
