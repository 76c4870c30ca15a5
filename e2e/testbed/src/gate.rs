//! A proxy of control planes that closes for a place after a number of writes. Earlier writes of the process behind it are done,
//! and later ones never happen. It can also delay a single request.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, bail};
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

/// The writes that may still pass, by place, through all gates that share it. Unknown places are unlimited.
#[derive(Debug, Default)]
pub struct Budget {
    places: Mutex<Vec<Place>>,
}

/// Related namespaces with a common budget.
#[derive(Debug)]
struct Place {
    namespaces: Vec<String>,
    left: u64,
    /// Method and path of each write.
    spent: Vec<String>,
}

/// The handling of a write.
enum Fate {
    /// The write is forwarded and answered.
    Passes,
    /// The last write: it is forwarded, but its answer is lost.
    IsTheLast,
    /// The write is not forwarded.
    IsTooLate,
}

impl Budget {
    /// Allows this number of writes from now on in these namespaces, on any control plane.
    pub fn set(&self, namespaces: &[&str], writes: u64) {
        let namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
        self.places().push(Place { namespaces, left: writes, spent: Vec::new() });
    }

    /// True if the budget of this namespace is used up.
    pub fn is_spent(&self, namespace: &str) -> bool {
        self.places().iter().any(|place| place.left == 0 && place.namespaces.iter().any(|name| name == namespace))
    }

    /// Returns the writes in this namespace since its budget was set, each with method and path.
    pub fn spent(&self, namespace: &str) -> Vec<String> {
        let places = self.places();
        let of_namespace = |place: &&Place| place.namespaces.iter().any(|name| name == namespace);
        places.iter().filter(of_namespace).flat_map(|place| place.spent.clone()).collect()
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, method: &Method, path: &str) -> Fate {
        let Some((_, rest)) = path.split_once("/namespaces/") else { return Fate::Passes };
        let namespace = rest.split(['/', '?']).next().unwrap_or_default();
        let mut places = self.places();
        let Some(place) = places.iter_mut().find(|place| place.namespaces.iter().any(|name| name == namespace)) else {
            return Fate::Passes;
        };
        if place.left == 0 {
            return Fate::IsTooLate;
        }
        place.left -= 1;
        place.spent.push(format!("{method} {path}"));
        if place.left == 0 { Fate::IsTheLast } else { Fate::Passes }
    }
}

/// Delays a request until it is released.
#[derive(Debug, Default)]
pub struct Hold {
    wanted: Mutex<Option<(Method, String)>>,
    caught: Notify,
    released: Notify,
}

impl Hold {
    /// Delays the next request with this method and end of path.
    pub fn next(&self, method: Method, path: &str) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some((method, path.to_owned()));
    }

    /// Waits until the request is delayed.
    pub async fn caught(&self) {
        self.caught.notified().await;
    }

    /// Releases the request.
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

/// A gate that ends when dropped.
#[derive(Debug)]
pub struct Gate {
    kubeconfig: PathBuf,
    hold: Arc<Hold>,
    _worker: Worker,
}

impl Gate {
    /// Starts a gate in front of `plane`. Leases do not count.
    pub async fn start(dir: &Path, plane: &ControlPlane, budget: &Arc<Budget>) -> Result<Self> {
        Self::start_for(&User::Operator, dir, plane, budget).await
    }

    /// Starts a gate for another user.
    pub async fn start_for(user: &User, dir: &Path, plane: &ControlPlane, budget: &Arc<Budget>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let kubeconfig = pki::kubeconfig(dir, &format!("gate-{}", plane.name()), port, user)?;
        let (tls, client, budget) = (proxy::tls(dir)?, proxy::pass_through(plane).await?, budget.clone());
        let hold = Arc::new(Hold::default());
        let stops = hold.clone();
        let worker = Worker::start(async move {
            let serve = move |_, request| serve(client.clone(), budget.clone(), stops.clone(), request);
            proxy::accept(listener, tls, serve).await;
        });
        Ok(Self { kubeconfig, hold, _worker: worker })
    }

    /// Returns the hold for single requests.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns the user's kubeconfig through the gate.
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
    let fate = if writes && !path.contains("/leases") { budget.judge(request.method(), &path) } else { Fate::Passes };
    match fate {
        Fate::Passes => proxy::pass_on(&client, request, &path).await,
        Fate::IsTheLast => {
            proxy::pass_on(&client, request, &path).await?;
            bail!("cut off after this write")
        }
        Fate::IsTooLate => bail!("cut off before this write"),
    }
}
