//! Control planes as types of their own, so that a write to the wrong one does not compile.

use std::{
    collections::HashMap,
    fs,
    marker::PhantomData,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{expiry, requests::Meter, server_clock::ServerClock};
use crate::{
    api::names::ProjectName,
    metrics::{Host, Metrics},
    plan::{Kind, Object, Plane},
};

/// Calls that hang together are one reason to renew a connection.
const RENEW_AT_MOST: Duration = Duration::from_secs(2);

/// Takes the answers to our own writes into a cache, ahead of the watch.
pub trait Sink: Send + Sync {
    /// The object as the server holds it after our write.
    fn wrote(&self, object: Value);
    /// The server removed exactly this object for us.
    fn removed(&self, object: &Object, uid: &str);
}

/// Whether an object is not deleted at present.
type Held = Box<dyn Fn(&Object) -> bool + Send + Sync>;

/// The way to one API server: a client, and the means to make a fresh one.
///
/// When a network drops connections without a word, every one that the client has pooled is dead, and each call that
/// picks one waits for its deadline. So the first call that gets no answer has the whole pool replaced.
#[derive(Clone)]
pub struct Connection {
    config: Arc<Config>,
    current: Arc<RwLock<(Client, Instant)>>,
    /// The client of payloads, while one is under way.
    confidential: Arc<Mutex<Weak<Client>>>,
    /// How often the server was found to have been given another history.
    histories: Arc<watch::Sender<u64>>,
    meter: Option<Meter>,
    clock: ServerClock,
}

impl Connection {
    /// Prepares a connection; nothing is sent yet.
    ///
    /// # Errors
    /// One line, when `config` cannot make a client.
    pub fn new(config: Config) -> Result<Self, String> {
        Self::metered(config, None)
    }

    /// The same, with what counts each request.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn metered(config: Config, meter: Option<Meter>) -> Result<Self, String> {
        let clock = ServerClock::default();
        let client = client(&config, meter.as_ref(), &clock).map_err(|e| format!("kubeconfig: {}", root_cause(&e)))?;
        Ok(Self {
            config: Arc::new(config),
            current: Arc::new(RwLock::new((client, Instant::now()))),
            confidential: Arc::default(),
            histories: Arc::new(watch::Sender::new(0)),
            meter,
            clock,
        })
    }

    /// The server's clock.
    pub fn clock(&self) -> &ServerClock {
        &self.clock
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

    /// A client for calls that carry payloads of ConfigMaps and Secrets.
    ///
    /// Its connections live no longer than such calls are under way, for they keep in their buffers what went through
    /// them; memory that is given back is wiped (see `main`).
    pub(super) fn confidential(&self) -> Result<Arc<Client>, kube::Error> {
        let mut current = self.confidential.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = current.upgrade() {
            return Ok(client);
        }
        let client = Arc::new(client(&self.config, self.meter.as_ref(), &self.clock)?);
        *current = Arc::downgrade(&client);
        Ok(client)
    }

    /// The client to use for the next call.
    pub fn client(&self) -> Client {
        self.current.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// A call got no answer: from now on, calls go over connections that are made for them.
    pub fn renew(&self) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Calls that hung together fail together; one of them is enough.
        if current.1.elapsed() > RENEW_AT_MOST
            && let Ok(client) = client(&self.config, self.meter.as_ref(), &self.clock)
        {
            *current = (client, Instant::now());
        }
    }
}

fn client(config: &Config, meter: Option<&Meter>, clock: &ServerClock) -> Result<Client, kube::Error> {
    let builder = ClientBuilder::try_from(config.clone())?.with_layer(clock);
    Ok(match meter {
        Some(meter) => builder.with_layer(meter).build(),
        None => builder.build(),
    })
}

/// A control plane of kind `P`, and how to reach it.
pub struct ControlPlane<P> {
    name: Arc<str>,
    connection: Connection,
    sinks: Arc<RwLock<HashMap<Kind, Arc<dyn Sink>>>>,
    held: Arc<OnceLock<Held>>,
    plane: PhantomData<fn() -> P>,
}

impl<P> Clone for ControlPlane<P> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            connection: self.connection.clone(),
            sinks: self.sinks.clone(),
            held: self.held.clone(),
            plane: PhantomData,
        }
    }
}

impl<P: Plane> ControlPlane<P> {
    /// `name` is for people: `project single`, `hub`, `cell`.
    pub fn new(name: &str, connection: Connection) -> Self {
        Self { name: name.into(), connection, sinks: Arc::default(), held: Arc::default(), plane: PhantomData }
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

    /// Objects of which `held` says so are not deleted at present. Said once, before anything is written.
    pub fn hold_deletions(&self, held: impl Fn(&Object) -> bool + Send + Sync + 'static) {
        let _ = self.held.set(Box::new(held));
    }

    pub(super) fn holds_deletion(&self, object: &Object) -> bool {
        self.held.get().is_some_and(|held| held(object))
    }

    pub(super) fn sink(&self, kind: Kind) -> Option<Arc<dyn Sink>> {
        self.sinks.read().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned()
    }
}

/// How the control planes of projects are reached: one set of credentials, an address for each.
#[derive(Clone)]
pub struct Projects {
    template: Config,
    /// Whether each project's API server is a service of the cluster we run in, instead of a path on one host.
    internal: bool,
    metrics: Option<Metrics>,
}

impl Projects {
    /// Credentials and host of `template` for every project.
    pub fn new(template: Config, internal: bool) -> Self {
        Self { template, internal, metrics: None }
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
        let mut config = self.template.clone();
        config.cluster_url = self.address(project)?;
        Connection::metered(config, self.meter(Host::Project))
    }

    /// Prepares a connection to the host itself, with the credentials that serve for every project; nothing is sent yet.
    ///
    /// # Errors
    /// One line, when the credentials make no client.
    pub fn host(&self) -> Result<Connection, String> {
        Connection::metered(self.template.clone(), self.meter(Host::Milo))
    }

    fn address(&self, project: &ProjectName) -> Result<http::Uri, String> {
        let name = project.as_str();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if name.is_empty() || name.contains("..") || !name.chars().all(plain) {
            return Err(format!("project {name:?}: not a name that an address can carry"));
        }
        // Behind a dot stands the namespace of the service: whoever has that one would answer for the project.
        if self.internal && name.contains('.') {
            return Err(format!(
                "project {name:?}: no project whose name has a dot is found by internalServiceDiscovery"
            ));
        }
        let uri = if self.internal {
            http::Uri::try_from(format!("https://milo-apiserver.project-{name}.svc.cluster.local:6443"))
        } else {
            let path = format!("/apis/resourcemanager.miloapis.com/v1alpha1/projects/{name}/control-plane");
            let mut parts = self.template.cluster_url.clone().into_parts();
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
    pub path: Option<std::path::PathBuf>,
    /// Context inside it; its current one when absent.
    pub context: Option<String>,
}

/// Reads a kubeconfig. No connection is made.
///
/// # Errors
/// One line that says which file and what is wrong with it.
pub async fn load(source: &Source) -> Result<Config, String> {
    let mut config = match &source.path {
        Some(path) => from_file(path, source.context.as_deref()).await?,
        None => Config::infer().await.map_err(|e| {
            format!("no kubeconfig: {}; give --kubeconfig, set KUBECONFIG or run inside a cluster", root_cause(&e))
        })?,
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    // Every call has a deadline of ours and every key its own back-off; kube would retry one call for minutes.
    config.default_retry = false;
    Ok(config)
}

/// Until when the client's certificate of a kubeconfig is good, in seconds since 1970; nothing where it has none, as where
/// tokens are used, or where it cannot be read: that is for the connection to say.
pub fn good_until(config: &Config) -> Option<i64> {
    let auth = &config.auth_info;
    let text = match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok()?,
        (None, Some(file)) => fs::read(file).ok()?,
        (None, None) => return None,
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().ok()?;
    expiry::of_chain(&chain)
}

async fn from_file(path: &Path, context: Option<&str>) -> Result<Config, String> {
    let file = path.display();
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| format!("kubeconfig {file}: {}", root_cause(&e)))?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|e| format!("kubeconfig {file}: {}", root_cause(&e)))
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
