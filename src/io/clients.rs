//! Clients of control planes. Each plane has its own type, so a write to the wrong one does not compile.

use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
    time::Duration,
};

use kube::Client;
use tokio::{sync::watch, time::Instant};

use super::{
    Error,
    clock::Now,
    credentials::Credentials,
    encoded::Encoded,
    plugin,
    requests::{Meter, Observer, ServerClock},
};
use crate::{
    api::names::ProjectName,
    metrics::{Host, Metrics},
    plan::{Kind, Object, Plane},
};

/// Takes the answers to our own writes into a cache, ahead of the watch.
pub trait Sink: Send + Sync {
    /// Takes an object of this kind, as the server stores it after our write.
    fn wrote(&self, kind: Kind, object: &Encoded);
    /// Records that the server has removed exactly this object for us.
    fn removed(&self, object: &Object, uid: &str);
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
        if let Some(client) = current.0.upgrade().filter(|_| current.1 == self.credentials.version()) {
            return Ok(client);
        }
        let (client, version) = self.make()?;
        let client = Arc::new(client);
        *current = (Arc::downgrade(&client), version);
        Ok(client)
    }

    /// Returns the client for the next call.
    pub fn client(&self) -> Client {
        let version = self.credentials.version();
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

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
