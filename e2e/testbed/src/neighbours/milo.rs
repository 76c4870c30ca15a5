//! A stand-in for Milo: one host that serves each project's control plane under its own path. With each request, it passes the
//! name of the project in the user's `extra`.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Worker;
use crate::{
    control_plane::ControlPlane,
    pki::{self, User},
    proxy::{Answer, accept, front_proxy, pass_on, pass_through, tls},
};

/// The handling of requests for a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Requests are served.
    Served,
    /// Requests fail with 503.
    Away,
    /// Requests are never answered.
    Silent,
    /// Requests fail with 403.
    Forbidden,
    /// The project does not exist.
    Absent,
}

/// A proxy that ends when dropped.
#[derive(Debug)]
pub struct Milo {
    _worker: Worker,
    table: Arc<Table>,
    dir: std::path::PathBuf,
    port: u16,
}

const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/";

/// Headers with the project of the request, in the user's `extra`.
const EXTRA: [&str; 2] =
    ["x-remote-extra-iam.miloapis.com%2fparent-name", "x-remote-extra-iam.miloapis.com%2fparent-type"];

struct Project {
    /// A client that the API server trusts as a front proxy.
    believed: Client,
    /// A client that forwards the user's own credentials, for the API server to verify.
    plain: Client,
    reach: Reach,
    /// Open connections with requests for the project.
    connections: Vec<CancellationToken>,
}

#[derive(Default)]
struct Table {
    projects: Mutex<BTreeMap<String, Project>>,
    /// The API server for requests without a project, such as those for Projects.
    own: Mutex<Option<Client>>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Table")
    }
}

impl Milo {
    /// Starts the stand-in. `own` is the API server with the Projects.
    pub async fn start(dir: &Path, own: &ControlPlane) -> Result<Self> {
        let table = Arc::new(Table::default());
        *table.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(pass_through(own).await?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        for user in [User::Admin, User::Operator, User::Quota] {
            pki::kubeconfig(dir, "milo", port, &user)?;
        }
        let tls = tls(dir)?;
        let served = (table.clone(), Arc::<[User]>::from([User::Admin, User::Tenant, User::Operator, User::Quota]));
        let worker = Worker::start(async move {
            accept(listener, tls, move |connection, request| serve(served.clone(), connection, request)).await;
        });
        Ok(Self { _worker: worker, table, dir: dir.into(), port })
    }

    /// Returns a kubeconfig of a project's control plane through this host.
    pub fn project_kubeconfig(&self, project: &str, user: &User) -> Result<std::path::PathBuf> {
        let address = format!("https://127.0.0.1:{}{PROJECTS}{project}/control-plane", self.port);
        pki::kubeconfig_of(&self.dir, &format!("milo-{project}"), &address, user)
    }

    /// Returns a kubeconfig of the host.
    pub fn kubeconfig(&self, user: &User) -> std::path::PathBuf {
        self.dir.join(format!("milo{}.kubeconfig", user.suffix()))
    }

    /// Serves this control plane under the project's path.
    pub async fn add(&self, project: &str, plane: &ControlPlane) -> Result<()> {
        let (believed, plain) = (front_proxy(plane, &self.dir).await?, pass_through(plane).await?);
        let mut projects = self.table.projects.lock().unwrap_or_else(PoisonError::into_inner);
        projects.insert(project.into(), Project { believed, plain, reach: Reach::Served, connections: Vec::new() });
        Ok(())
    }

    /// Changes the handling of requests for a project from the next one on. Open watches are closed.
    pub fn set(&self, project: &str, reach: Reach) {
        let mut projects = self.table.projects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(project) = projects.get_mut(project) {
            project.reach = reach;
            project.connections.drain(..).for_each(|connection| connection.cancel());
        }
    }
}

/// Answers one request. `connection` closes the connection of the request.
async fn serve(
    (table, users): (Arc<Table>, Arc<[User]>),
    connection: CancellationToken,
    mut request: Request<Incoming>,
) -> Result<Response<Answer>> {
    let text = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let named = text.strip_prefix(PROJECTS).and_then(|rest| rest.split_once("/control-plane"));
    let Some((name, path)) = named else {
        let own = table.own.lock().unwrap_or_else(PoisonError::into_inner).clone().context("no server")?;
        return pass_on(&own, request, &text).await;
    };
    let found = {
        let mut projects = table.projects.lock().unwrap_or_else(PoisonError::into_inner);
        projects.get_mut(name).map(|project| {
            project.connections.retain(|known| !known.is_cancelled());
            project.connections.push(connection);
            (project.believed.clone(), project.plain.clone(), project.reach)
        })
    };
    match found {
        None | Some((.., Reach::Absent)) => Ok(refusal(StatusCode::NOT_FOUND, "NotFound", name)),
        Some((.., Reach::Away)) => Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", name)),
        Some((.., Reach::Forbidden)) => Ok(refusal(StatusCode::FORBIDDEN, "Forbidden", name)),
        Some((.., Reach::Silent)) => std::future::pending().await,
        Some((believed, plain, Reach::Served)) => {
            let is_known = introduce(request.headers_mut(), &users, name)?;
            pass_on(if is_known { &believed } else { &plain }, request, path).await
        }
    }
}

/// Adds user and project to the headers. Returns true if this host knows the user.
fn introduce(headers: &mut HeaderMap, users: &[User], project: &str) -> Result<bool> {
    let claimed: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(user) = users.iter().find(|user| token == Some(&*user.token())) else { return Ok(false) };
    headers.remove(AUTHORIZATION);
    headers.insert("x-remote-user", HeaderValue::from_str(&user.name())?);
    for group in user.groups() {
        headers.append("x-remote-group", HeaderValue::from_static(group));
    }
    for (name, value) in EXTRA.into_iter().zip([project, "Project"]) {
        headers.insert(name, HeaderValue::from_str(value)?);
    }
    Ok(true)
}

fn refusal(code: StatusCode, reason: &str, project: &str) -> Response<Answer> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason,
        "message": format!("projects.resourcemanager.miloapis.com {project:?}: {reason}"),
        "details": { "name": project, "group": "resourcemanager.miloapis.com", "kind": "projects" },
    });
    let body = Full::from(status.to_string().into_bytes()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
