//! Kubeconfigs: the server and credentials that they name, and their reload.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{Cluster, ExecInteractiveMode, Kubeconfig, KubeconfigError},
};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use tokio::{
    task::{JoinError, JoinHandle},
    time::Instant,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio_util::sync::CancellationToken;

use super::{
    plugin,
    proxy::{self, Proxies},
    requests::{Observer, ServerClock},
    server,
    token::{self, Validity},
    transport::{self, Access},
};

/// Period in which the files of a kubeconfig are compared with the loaded content. client-go checks once a minute.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Shortest time between two runs of a credential plugin because a server refuses its credential.
const PLUGIN_PAUSE: Duration = Duration::from_mins(1);
/// The same after many of them.
const LONGEST_PLUGIN_PAUSE: Duration = Duration::from_mins(5);
/// Longest run of a plugin that counts as work in progress.
const PLUGIN_TIMEOUT: Duration = Duration::from_mins(1);

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
    /// The last run of a plugin. `None` while it runs.
    asked: Option<Asked>,
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

/// A run of a credential plugin.
#[derive(Clone, Copy)]
struct Asked {
    at: Instant,
    /// Shortest time until the next run.
    pause: Duration,
}

impl Asked {
    fn first() -> Self {
        Self { at: Instant::now(), pause: PLUGIN_PAUSE }
    }

    /// Returns the run after this one, which has just given another credential.
    fn again(self) -> Self {
        let was_refused = self.at.elapsed() < LONGEST_PLUGIN_PAUSE * 2;
        let pause = if was_refused { self.pause * 2 } else { PLUGIN_PAUSE };
        Self { pause: pause.clamp(PLUGIN_PAUSE, LONGEST_PLUGIN_PAUSE), ..Self::first() }
    }
}

impl Loaded {
    fn new(config: Config, proxies: Option<Proxies>, files: Vec<PathBuf>) -> Self {
        let digest = digest(&files);
        Self { config: Arc::new(config), proxies, access: None, asked: Some(Asked::first()), digest, files, version: 0 }
    }
}

impl From<Config> for Credentials {
    /// These credentials never change.
    fn from(config: Config) -> Self {
        Self(Arc::new(RwLock::new(Loaded::new(config, None, Vec::new()))))
    }
}

impl Credentials {
    /// Returns the number of reloads and renewals so far. Clients of another version must not be used.
    pub(super) fn version(&self) -> u64 {
        self.loaded().version
    }

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
    pub(super) fn server(&self) -> http::Uri {
        self.loaded().config.cluster_url.clone()
    }

    /// Makes a client for `address`, or for the server of the kubeconfig, and returns the version of the credentials. The first one
    /// reads the files of certificates, and runs a plugin.
    pub(super) fn client(&self, address: Option<&http::Uri>, observer: &Observer) -> Result<(Client, u64), String> {
        self.read_access()?;
        // All of one version.
        let (config, proxies, access, version) = {
            let loaded = self.loaded();
            (loaded.config.clone(), loaded.proxies.clone(), loaded.access.clone(), loaded.version)
        };
        let access = access.ok_or("its credentials have just changed")?;
        let address = address.unwrap_or(&config.cluster_url).clone();
        let proxy = match proxies {
            Some(proxies) => proxies.of_server(&address)?,
            None => config.proxy_url.clone(),
        };
        let client = transport::client(config, address, proxy, &access, observer).map_err(|e| root_cause(&e))?;
        Ok((client, version))
    }

    fn read_access(&self) -> Result<(), String> {
        if self.loaded().access.is_some() {
            return Ok(());
        }
        let config = self.loaded().config.clone();
        let access = Access::read(&config).map_err(|e| root_cause(&e))?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).access.get_or_insert(access);
        Ok(())
    }

    /// Asks the plugin for another credential, because a server did not take the present one. Its credentials can end without
    /// notice. The plugin runs in the background, for all connections together. If the servers do not take the new one either, the
    /// pause until the next run is doubled, from [`PLUGIN_PAUSE`] to [`LONGEST_PLUGIN_PAUSE`]: each run reopens all connections.
    pub(super) fn ask_plugin(&self) {
        let due = {
            let mut loaded = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let has_plugin = loaded.config.auth_info.exec.is_some();
            loaded.asked.take_if(|asked| has_plugin && asked.at.elapsed() >= asked.pause)
        };
        let Some(asked) = due else { return };
        let credentials = self.clone();
        tokio::spawn(async move {
            let renewing = credentials.clone();
            let run = tokio::task::spawn_blocking(move || renewing.renew_access());
            let asked = match in_time(run).await {
                Ok(()) => asked.again(),
                Err(error) => {
                    tracing::warn!(error, "the credential plugin gives no new credential");
                    Asked::first()
                }
            };
            credentials.0.write().unwrap_or_else(PoisonError::into_inner).asked = Some(asked);
        });
    }

    fn renew_access(&self) -> Result<(), String> {
        let (config, version) = {
            let loaded = self.loaded();
            (loaded.config.clone(), loaded.version)
        };
        let access = Access::read(&config).map_err(|e| root_cause(&e))?;
        let mut loaded = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A later run or another kubeconfig may have been faster.
        if loaded.version == version {
            loaded.access = Some(access);
            loaded.version += 1;
        }
        Ok(())
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
        let mut reload = None;
        let mut token = self.token();
        while stop.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_some() {
            failed = self.check(&source, (failed.as_deref(), &mut reload), &report).await;
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

    /// Compares the files once. `failed`: the problem of the last check. `reload`: the one under way, if its plugin hangs. Returns the
    /// current problem.
    async fn check(
        &self,
        source: &Source,
        (failed, reload): (Option<&str>, &mut Option<Reload>),
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
        let run = reload.get_or_insert_with(|| tokio::task::spawn_blocking(move || usable(&from)));
        let new = in_time(&mut *run).await;
        // Another run would hang as well.
        reload.take_if(|run| run.is_finished());
        match new.and_then(|new| self.replace(&new)) {
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
    // The digest must be older than the content: files that change during the read are read again with the next check.
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

/// A reload under way.
type Reload = JoinHandle<Result<Credentials, String>>;

/// Waits until a plugin has run.
async fn in_time<T>(run: impl Future<Output = Result<Result<T, String>, JoinError>>) -> Result<T, String> {
    match tokio::time::timeout(PLUGIN_TIMEOUT, run).await {
        Ok(Ok(result)) => result,
        Ok(Err(died)) => Err(died.to_string()),
        Err(_) => Err(format!("the credential plugin has not ended within {} s", PLUGIN_TIMEOUT.as_secs())),
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
    if let Some(exec) = &mut user.exec {
        // The manager has no terminal, and the output of the plugin would go into its log.
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
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
#[path = "credentials_tests.rs"]
mod tests;
