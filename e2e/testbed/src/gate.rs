//! A door in front of a control plane that falls shut after so many writes: what the process behind it has written by
//! then stands, and what it would have done next never happens. It can also hold up a single request.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use anyhow::Result;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use kube::Client;
use tokio::{net::TcpListener, sync::Notify};

use crate::{
    control_plane::ControlPlane,
    neighbours::Worker,
    pki::{self, User},
    proxy::{self, Answer},
};

/// How many writes may still pass, through all the gates that share it.
#[derive(Debug, Default)]
pub struct Budget {
    left: AtomicI64,
    spent: AtomicU64,
}

impl Budget {
    /// So many from now on.
    pub fn set(&self, writes: i64) {
        self.spent.store(0, Ordering::SeqCst);
        self.left.store(writes, Ordering::SeqCst);
    }

    /// Whether the last one has been made.
    pub fn is_spent(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }

    /// Writes since it was set.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::SeqCst)
    }
}

/// A request that is stopped on its way until somebody lets it go on.
#[derive(Debug, Default)]
pub struct Hold {
    wanted: Mutex<Option<(Method, String)>>,
    caught: Notify,
    released: Notify,
}

impl Hold {
    /// Stops the next request of this method whose path ends so.
    pub fn next(&self, method: Method, path: &str) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some((method, path.to_owned()));
    }

    /// Waits until it has been stopped.
    pub async fn caught(&self) {
        self.caught.notified().await;
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.released.notify_one();
    }

    async fn stop(&self, request: &Request<Incoming>) {
        {
            let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it = |(method, path): &mut (Method, String)| {
                request.method() == *method && request.uri().path().ends_with(path.as_str())
            };
            if wanted.take_if(is_it).is_none() {
                return;
            }
        }
        self.caught.notify_one();
        self.released.notified().await;
    }
}

/// The gate; it ends when dropped.
#[derive(Debug)]
pub struct Gate {
    kubeconfig: PathBuf,
    hold: Arc<Hold>,
    _worker: Worker,
}

impl Gate {
    /// A gate in front of `plane`. Leases pass without counting.
    pub async fn start(dir: &Path, plane: &ControlPlane, budget: &Arc<Budget>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let kubeconfig = pki::kubeconfig(dir, &format!("gate-{}", plane.name()), port, User::Operator)?;
        let (tls, client, budget) = (proxy::tls(dir)?, proxy::pass_through(plane).await?, budget.clone());
        let hold = Arc::new(Hold::default());
        let stops = hold.clone();
        let worker = Worker::start(async move {
            let serve = move |_, request| serve(client.clone(), budget.clone(), stops.clone(), request);
            proxy::accept(listener, tls, serve).await;
        });
        Ok(Self { kubeconfig, hold, _worker: worker })
    }

    /// Requests can be stopped on their way.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// The operator's way through it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

async fn serve(
    client: Client,
    budget: Arc<Budget>,
    hold: Arc<Hold>,
    request: Request<Incoming>,
) -> Result<Response<Answer>> {
    hold.stop(&request).await;
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
    if !writes || path.contains("/leases") {
        if budget.is_spent() {
            return std::future::pending().await;
        }
        return proxy::pass_on(&client, request, &path).await;
    }
    let left = budget.left.fetch_sub(1, Ordering::SeqCst);
    if left <= 0 {
        return std::future::pending().await;
    }
    let answer = proxy::pass_on(&client, request, &path).await;
    budget.spent.fetch_add(1, Ordering::SeqCst);
    if left == 1 {
        return std::future::pending().await; // made, and never known to have been
    }
    answer
}
