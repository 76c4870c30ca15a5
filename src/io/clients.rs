//! Clients of control planes. Each plane has its own type, so a write to the wrong one does not compile.

use std::{
    collections::HashMap,
    fs,
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{Cluster, Kubeconfig, KubeconfigError},
};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch, time::Instant};
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    clock::Now,
    plugin,
    proxy::{self, Proxies},
    requests::{Meter, Observer, ServerClock},
    server,
    token::{self, Validity},
    transport::{self, Access},
};
use crate::{
    api::names::ProjectName,
    metrics::{Host, Metrics},
    plan::{Kind, Object, Plane},
};

/// Period in which the files of a kubeconfig are compared with the loaded content. client-go checks once a minute.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Shortest time between two runs of a credential plugin because the server refuses its credential.
const PLUGIN_PAUSE: Duration = Duration::from_mins(1);

/// Takes the answers to our own writes into a cache, ahead of the watch.
pub trait Sink: Send + Sync {
    /// Takes the text of an object of this kind, as the server stores it after our write.
    fn wrote(&self, kind: Kind, object: &str);
    /// Records that the server has removed exactly this object for us.
    fn removed(&self, object: &Object, uid: &str);
}

/// The server and credentials of a kubeconfig, as last loaded. All connections made of it share it. After a reload, each
/// connection makes a new client.
#[derive(Clone)]
pub struct Credentials(Arc<RwLock<Loaded>>);

struct Loaded {
    config: Arc<Config>,
    /// Proxies by the address of the server. `None` if the kubeconfig names a proxy.
    proxies: Option<Proxies>,
    /// Shared by all clients of these credentials. `None` before the first one.
    access: Option<Access>,
    /// Time at which a plugin was last asked.
    asked: Instant,
    /// The files that were loaded, and a digest of their content.
    files: Vec<PathBuf>,
    digest: Digest,
    version: u64,
}

/// Detects changed files without keeping keys in memory.
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

impl Loaded {
    fn new(config: Config, proxies: Option<Proxies>, files: Vec<PathBuf>) -> Self {
        let digest = digest(&files);
        Self { config: Arc::new(config), proxies, access: None, asked: Instant::now(), digest, files, version: 0 }
    }
}

impl From<Config> for Credentials {
    /// These credentials never change.
    fn from(config: Config) -> Self {
        Self(Arc::new(RwLock::new(Loaded::new(config, None, Vec::new()))))
    }
}

impl Credentials {
    fn loaded(&self) -> RwLockReadGuard<'_, Loaded> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the expiry of the client certificate in seconds since 1970. `None` if there is no certificate, as with tokens.
    /// `None` also if it cannot be read: then the connection reports the problem.
    pub fn good_until(&self) -> Option<i64> {
        good_until(&self.loaded().config)
    }

    /// Returns the validity of the bearer token. `None` if there is no token, and if the token does not tell its end. A token file is
    /// read again with each call. The tokens of a plugin are left out: the plugin renews them.
    pub fn token(&self) -> Option<Validity> {
        token_of(&self.loaded().config)
    }

    /// Returns the address of the server in the kubeconfig.
    fn server(&self) -> http::Uri {
        self.loaded().config.cluster_url.clone()
    }

    /// Makes a client for `address`, or for the server of the kubeconfig, and returns the version of the credentials. The first one
    /// reads the files of certificates, and runs a plugin.
    fn client(&self, address: Option<&http::Uri>, observer: &Observer) -> Result<(Client, u64), String> {
        let access = self.access()?;
        let (config, proxies, version) = {
            let loaded = self.loaded();
            (loaded.config.clone(), loaded.proxies.clone(), loaded.version)
        };
        let address = address.unwrap_or(&config.cluster_url).clone();
        let proxy = match proxies {
            Some(proxies) => proxies.of_server(&address)?,
            None => config.proxy_url.clone(),
        };
        let client = transport::client(config, address, proxy, &access, observer).map_err(|e| root_cause(&e))?;
        Ok((client, version))
    }

    fn access(&self) -> Result<Access, String> {
        if let Some(access) = &self.loaded().access {
            return Ok(access.clone());
        }
        let config = self.loaded().config.clone();
        let access = Access::read(&config).map_err(|e| root_cause(&e))?;
        let mut loaded = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(loaded.access.get_or_insert(access).clone())
    }

    /// Asks the plugin for another credential, because a server did not take the present one. Its credentials can end without
    /// notice. The plugin runs in the background, for all connections together, and once in [`PLUGIN_PAUSE`] at most.
    fn ask_plugin(&self) {
        {
            let mut loaded = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if loaded.config.auth_info.exec.is_none() || loaded.asked.elapsed() < PLUGIN_PAUSE {
                return;
            }
            loaded.asked = Instant::now();
        }
        let credentials = self.clone();
        tokio::task::spawn_blocking(move || credentials.renew_access());
    }

    fn renew_access(&self) {
        let config = self.loaded().config.clone();
        match Access::read(&config) {
            Ok(access) => {
                let mut loaded = self.0.write().unwrap_or_else(PoisonError::into_inner);
                // Another kubeconfig may have been loaded meanwhile.
                if Arc::ptr_eq(&loaded.config, &config) {
                    loaded.access = Some(access);
                    loaded.version += 1;
                }
            }
            Err(error) => tracing::warn!(error = root_cause(&error), "the credential plugin gives no new credential"),
        }
    }

    /// Takes over reloaded credentials. A client could be made of them.
    fn replace(&self, new: &Self) -> Result<(), String> {
        let new = new.loaded();
        let mut loaded = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if loaded.config.cluster_url != new.config.cluster_url {
            // Facts about one server do not hold for another.
            return Err(format!("it names another server, {}: restart the manager to use it", new.config.cluster_url));
        }
        (loaded.config, loaded.proxies, loaded.access) = (new.config.clone(), new.proxies.clone(), new.access.clone());
        (loaded.files, loaded.digest, loaded.asked) = (new.files.clone(), new.digest, new.asked);
        loaded.version += 1;
        Ok(())
    }

    /// Reloads the kubeconfig and the files that it names when they change, until `stop`. If the new files cannot be used, the
    /// loaded credentials stay in use. `report` is called with each change and each problem, and with each renewed token file.
    pub async fn keep(self, source: Source, report: impl Fn(Result<&Self, &str>) + Send, stop: CancellationToken) {
        let mut failed: Option<String> = None;
        let mut token = self.token();
        while stop.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_some() {
            failed = self.check(&source, failed.as_deref(), &report).await;
            self.check_token(&mut token, failed.as_deref(), &report);
        }
    }

    /// Reports a token with another validity than `known`. The kubelet renews a token file without a change of the kubeconfig.
    fn check_token(
        &self,
        known: &mut Option<Validity>,
        failed: Option<&str>,
        report: &(impl Fn(Result<&Self, &str>) + Send),
    ) {
        let token = self.token();
        // A report of success ends the report of a problem.
        if failed.is_none() && token != *known {
            *known = token;
            report(Ok(self));
        }
    }

    /// Compares the files once. `failed`: the problem of the last check. Returns the current problem.
    async fn check(
        &self,
        source: &Source,
        failed: Option<&str>,
        report: &(impl Fn(Result<&Self, &str>) + Send),
    ) -> Option<String> {
        let changed = {
            let loaded = self.loaded();
            digest(&loaded.files) != loaded.digest
        };
        if !changed && failed.is_none() {
            return None;
        }
        let from = source.clone();
        // It can run a plugin, which takes its time.
        let new = tokio::task::spawn_blocking(move || usable(&from)).await;
        match new.unwrap_or_else(|died| Err(died.to_string())).and_then(|new| self.replace(&new)) {
            Ok(()) => {
                tracing::info!(?source, "kubeconfig reloaded: connections are reopened");
                report(Ok(self));
                None
            }
            Err(why) => {
                if failed != Some(why.as_str()) {
                    tracing::warn!(why, "kubeconfig changed and cannot be used: the earlier one stays in use");
                }
                report(Err(&why));
                Some(why)
            }
        }
    }
}

/// A connection to one API server: a client, and the means to make a new one.
///
/// If a network drops connections silently, every pooled connection of the client is dead, and each call waits for its deadline.
/// So the first call without an answer replaces the whole pool.
#[derive(Clone)]
pub struct Connection {
    credentials: Credentials,
    /// Replaces the address of the kubeconfig.
    address: Option<http::Uri>,
    current: Arc<RwLock<Current>>,
    /// The client for calls with payloads, while such a call is in progress, and the version of its credentials.
    confidential: Arc<Mutex<(Weak<Client>, u64)>>,
    /// Counts how often the etcd of the server was found restored or replaced.
    histories: Arc<watch::Sender<u64>>,
    observer: Observer,
}

struct Current {
    client: Client,
    made: Instant,
    /// Version of the credentials that the client was made of.
    version: u64,
}

impl Connection {
    /// Prepares a connection. Sends nothing yet.
    ///
    /// # Errors
    /// One line, if `credentials` cannot make a client.
    pub fn new(credentials: impl Into<Credentials>) -> Result<Self, String> {
        Self::metered(credentials, None)
    }

    /// Prepares a connection whose requests are counted.
    ///
    /// # Errors
    /// Same as [`Self::new`].
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

    /// Returns the clock of the server.
    pub fn clock(&self) -> &ServerClock {
        &self.observer.clock
    }

    /// Returns a separate connection to the same server. Its sockets belong to the runtime of the caller.
    ///
    /// # Errors
    /// Same as [`Self::new`].
    pub fn apart(&self) -> Result<Self, String> {
        Self::at(self.credentials.clone(), self.address.clone(), self.observer.meter.clone())
    }

    /// Reports that the etcd of the server was restored from a backup or replaced. Every watch lists again: a watch whose kind
    /// was written to since cannot detect it by version.
    pub fn another_history(&self) {
        self.histories.send_modify(|count| *count += 1);
    }

    /// Returns a receiver of later restores.
    pub fn histories(&self) -> watch::Receiver<u64> {
        self.histories.subscribe()
    }

    fn make(&self) -> Result<(Client, u64), String> {
        self.credentials.client(self.address.as_ref(), &self.observer)
    }

    /// Returns a client for calls that carry payloads of ConfigMaps and Secrets.
    ///
    /// Its connections close after the last such call, because their buffers keep what went through them. Freed memory is wiped
    /// (see `main`).
    ///
    /// # Errors
    /// One line, if no client can be made.
    pub(super) fn confidential(&self) -> Result<Arc<Client>, String> {
        let mut current = self.confidential.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = current.0.upgrade().filter(|_| current.1 == self.credentials.loaded().version) {
            return Ok(client);
        }
        let (client, version) = self.make()?;
        let client = Arc::new(client);
        *current = (Arc::downgrade(&client), version);
        Ok(client)
    }

    /// Returns the client for the next call.
    pub fn client(&self) -> Client {
        let version = self.credentials.loaded().version;
        {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            if current.version == version {
                return current.client.clone();
            }
        }
        // The kubeconfig was reloaded, so its old connections must not be used.
        self.replace(|current| current.version != version);
        self.current.read().unwrap_or_else(PoisonError::into_inner).client.clone()
    }

    /// Runs a call with a deadline. After a call without an answer, the next calls get new connections.
    ///
    /// # Errors
    /// [`Error::Deadline`] if there is no answer in time, else [`Error::Api`]. Both contain `what`.
    pub async fn within<T>(
        &self,
        limit: Duration,
        what: impl FnOnce() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => {
                if plugin::may_have_ended(&source) {
                    self.credentials.ask_plugin();
                }
                Err(Error::Api { call: what(), source: Box::new(source) })
            }
            Err(_) => {
                self.renew(began);
                Err(Error::Deadline { call: what(), after: limit })
            }
        }
    }

    /// Makes new connections for the next calls, after the server was silent since this time. A client that was made later stays.
    pub(super) fn renew(&self, silent_since: Instant) {
        self.replace(|current| current.made <= silent_since);
    }

    /// Makes new connections for the next calls, also for those with payloads: while they overlap, they share a connection.
    fn replace(&self, is_due: impl Fn(&Current) -> bool) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if is_due(&current)
            && let Ok((client, version)) = self.make()
        {
            *current = Current { client, made: Instant::now(), version };
            self.confidential.lock().unwrap_or_else(PoisonError::into_inner).0 = Weak::new();
        }
    }
}

/// A control plane of kind `P` and its connection.
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

    /// Returns its name in logs, errors and `/readyz`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the connection, for watches. Writes go through [`Self::execute`](crate::io::apply).
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Reads the clock of its server, for comparison with times that it has written.
    pub fn now(&self) -> Now {
        Now::read().on(self.connection.clock())
    }

    /// Sends answers to writes of this kind to `sink` from now on.
    pub fn feed(&self, kind: Kind, sink: Arc<dyn Sink>) {
        self.sinks.write().unwrap_or_else(PoisonError::into_inner).insert(kind, sink);
    }

    pub(super) fn sink(&self, kind: Kind) -> Option<Arc<dyn Sink>> {
        self.sinks.read().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned()
    }
}

/// The control planes of projects: one set of credentials, one address each.
#[derive(Clone)]
pub struct Projects {
    credentials: Credentials,
    /// The cluster domain, if each project's API server is a Service of our own cluster. `None` if projects are paths on one
    /// host.
    internal: Option<String>,
    metrics: Option<Metrics>,
}

impl Projects {
    /// Uses the credentials and the host of a kubeconfig for every project.
    pub fn new(credentials: impl Into<Credentials>) -> Self {
        Self { credentials: credentials.into(), internal: None, metrics: None }
    }

    /// Uses Services of a cluster with this domain. `None`: uses the host.
    #[must_use]
    pub fn inside(self, domain: Option<&str>) -> Self {
        Self { internal: domain.map(str::to_owned), ..self }
    }

    /// Counts requests.
    #[must_use]
    pub fn counted(self, metrics: &Metrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..self }
    }

    fn meter(&self, host: Host) -> Option<Meter> {
        self.metrics.as_ref().map(|metrics| Meter::new(metrics, host))
    }

    /// Prepares a connection to a project. Sends nothing yet.
    ///
    /// # Errors
    /// One line, if the name cannot be part of an address.
    pub fn connect(&self, project: &ProjectName) -> Result<Connection, String> {
        Connection::at(self.credentials.clone(), Some(self.address(project)?), self.meter(Host::Project))
    }

    /// Prepares a connection to the host itself, with the credentials of all projects. Sends nothing yet.
    ///
    /// # Errors
    /// One line, if the credentials make no client.
    pub fn host(&self) -> Result<Connection, String> {
        Connection::metered(self.credentials.clone(), self.meter(Host::Milo))
    }

    fn address(&self, project: &ProjectName) -> Result<http::Uri, String> {
        let name = project.as_str();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if name.is_empty() || name.contains("..") || !name.chars().all(plain) {
            return Err(format!("project {name:?}: the name is not valid in a URL"));
        }
        let uri = if let Some(domain) = &self.internal {
            // The part after a dot would be the namespace of the Service. The owner of that namespace would answer for the
            // project.
            if name.contains('.') {
                return Err(format!("project {name:?}: internalServiceDiscovery does not support names with a dot"));
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

/// Location of a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// File to read. `None`: the usual rules (`KUBECONFIG`, `~/.kube/config`, in-cluster).
    pub path: Option<PathBuf>,
    /// Context in the file. `None`: its current one.
    pub context: Option<String>,
}

/// Reads a kubeconfig. Makes no connection.
///
/// # Errors
/// One line that names the file and the problem.
pub fn load(source: &Source) -> Result<Credentials, String> {
    // The digest must be older than the content: files that change meanwhile are read again with the next check.
    let digest = read(source)?.digest;
    let mut loaded = Loaded { digest, ..read(source)? };
    let config = Arc::make_mut(&mut loaded.config);
    config.connect_timeout = Some(Duration::from_secs(5));
    // Every call has a deadline and every key its own back-off. kube would retry one call for minutes.
    config.default_retry = false;
    Ok(Credentials(Arc::new(RwLock::new(loaded))))
}

/// Reads the files of a kubeconfig, and then the digest of their content.
fn read(source: &Source) -> Result<Loaded, String> {
    match &source.path {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|e| root_cause(&e));
            let context = source.context.as_deref();
            let loaded = kubeconfig.and_then(|kubeconfig| from_kubeconfig(&kubeconfig, context, Some(path)));
            loaded.map_err(|why| format!("kubeconfig {}: {why}", path.display()))
        }
        None => infer()
            .map_err(|why| format!("no kubeconfig: {why}; set --kubeconfig or KUBECONFIG, or run inside a cluster")),
    }
}

/// Reads a kubeconfig, and makes a client of it. Blocks.
fn usable(source: &Source) -> Result<Credentials, String> {
    let new = load(source)?;
    new.client(None, &Observer { meter: None, clock: ServerClock::default() })?;
    Ok(new)
}

/// Finds a kubeconfig as kubectl does, else the credentials of a pod. kube renews the token of a pod. The network of a pod needs
/// no proxy.
fn infer() -> Result<Loaded, String> {
    let read = Kubeconfig::read().map_err(|e| root_cause(&e));
    read.and_then(|kubeconfig| from_kubeconfig(&kubeconfig, None, None)).or_else(|why| {
        let inside = Config::incluster().map_err(|e| format!("{why}; {}", root_cause(&e)))?;
        Ok(Loaded::new(inside, None, Vec::new()))
    })
}

/// Returns the expiry of the client certificate, see [`Credentials::good_until`].
fn good_until(config: &Config) -> Option<i64> {
    let auth = &config.auth_info;
    let text = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(file)) => fs::read(file).ok()?,
        (None, None) => return None,
    };
    server::expiry_of_pem(&text)
}

/// Returns the validity of the bearer token, see [`Credentials::token`]. The order is kube's.
fn token_of(config: &Config) -> Option<Validity> {
    let auth = &config.auth_info;
    let has_password = auth.username.is_some() && auth.password.is_some();
    if auth.auth_provider.is_some() || has_password {
        return None;
    }
    match (&auth.token, &auth.token_file) {
        (Some(text), _) => token::validity(text.expose_secret()),
        (None, Some(file)) => token::validity(&fs::read_to_string(file).ok()?),
        (None, None) => None,
    }
}

/// Loads one context. kube's own loader applies the proxy variables in another way (see [`proxy`]).
fn from_kubeconfig(kubeconfig: &Kubeconfig, context: Option<&str>, path: Option<&Path>) -> Result<Loaded, String> {
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
    let mut config = Config::new(server.parse().map_err(|_| format!("server {server:?} is not a URL"))?);
    config.root_cert = authority(cluster)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.auth_info = user;
    let proxies = proxy.is_none().then(Proxies::of_environment);
    config.proxy_url = proxy;
    Ok(Loaded::new(config, proxies, files))
}

/// Returns the certificate authority of the server. `None`: the authorities of the machine are used.
fn authority(cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>, String> {
    let text = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => {
            STANDARD.decode(data.trim()).map_err(|e| format!("certificate-authority-data is not base64: {e}"))?
        }
        (None, Some(file)) => fs::read(file).map_err(|e| format!("certificate-authority {file}: {e}"))?,
        (None, None) => return Ok(None),
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|_| "the server's authority is not PEM".to_owned())?;
    Ok(Some(chain.into_iter().map(|one| one.to_vec()).collect()))
}

/// Returns the chain of causes in one line.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(words) = plugin::words(error) {
        return words;
    }
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
