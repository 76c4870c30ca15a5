//! The admission webhooks: a server of their own, which asks `plan::admission` what to answer and reads what that needs.
//!
//! It runs on every replica, whoever leads, and keeps no cache: what a request needs is read in the project that it is about,
//! and what cannot be read is a refusal with its reason. So nobody is refused because the hub or another project is away.

mod planes;
mod review;
mod server;
mod tls;

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::OwnedSemaphorePermit, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub use self::{planes::Planes, tls::Files};
use self::{
    review::Request,
    server::{Room, refuse},
    tls::Certificate,
};
pub use crate::api::names::webhook::{MUTATE_WORKLOAD, VALIDATE_DEPLOYMENT, VALIDATE_WORKLOAD};
use crate::{
    api::compute::{Workload, WorkloadDeployment},
    io::{Class, health::Health, listen::listen},
    plan::admission::{
        deployment::Identities,
        request::{Facts, Subject, Verdict},
    },
};

/// How the webhooks are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where.
    pub at: SocketAddr,
    /// With which certificate.
    pub files: Files,
    /// Names that may write what else this operator alone may.
    pub resolvers: BTreeSet<String>,
}

/// What every request shares.
struct Webhooks {
    planes: Planes,
    resolvers: BTreeSet<String>,
    room: Room,
}

/// Serves the webhooks until a while after `stop`; the handle ends with the last request.
///
/// # Errors
/// One line: when the address cannot be had, or when nobody but `system:masters` could ever write what this operator writes,
/// because the one project's API server will not say who we are there.
pub async fn start(
    settings: Settings,
    planes: Planes,
    health: Health,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, String> {
    let Settings { at, files, resolvers } = settings;
    if let Planes::Single(plane) = &planes
        && resolvers.is_empty()
        && let Err((class, why)) = plane.own_name().await
        && matches!(class, Class::Forbidden | Class::Gone | Class::Invalid)
    {
        return Err(format!(
            "webhookServer: cannot find out who this operator is: {why}; give referencedData.resolverUsernames"
        ));
    }
    let listener = listen(at).map_err(|e| format!("cannot serve admission webhooks on {at}: {e}"))?;
    tracing::info!(what = "admission webhooks", at = %listener.local_addr().unwrap_or(at), "serving");
    let certificate = Certificate::default();
    tokio::spawn(certificate.clone().keep(files, health, stop.clone()));
    let webhooks = Arc::new(Webhooks { planes, resolvers, room: Room::default() });
    Ok(tokio::spawn(server::serve(listener, certificate, router(webhooks), stop)))
}

fn router(webhooks: Arc<Webhooks>) -> Router {
    Router::new()
        .route(VALIDATE_WORKLOAD, post(validate_workload))
        .route(VALIDATE_DEPLOYMENT, post(validate_deployment))
        .route(MUTATE_WORKLOAD, post(mutate_workload))
        .with_state(webhooks)
}

type Shared = State<Arc<Webhooks>>;

async fn validate_workload(State(webhooks): Shared, headers: HeaderMap, body: Body) -> Response {
    let subject = |new: Workload, old: Option<_>| Subject::Workload(Box::new(new), old.map(Box::new));
    webhooks.validate(&headers, body, subject).await
}

async fn validate_deployment(State(webhooks): Shared, headers: HeaderMap, body: Body) -> Response {
    let subject = |new: WorkloadDeployment, old: Option<_>| Subject::Deployment(Box::new(new), old.map(Box::new));
    webhooks.validate(&headers, body, subject).await
}

async fn mutate_workload(State(webhooks): Shared, headers: HeaderMap, body: Body) -> Response {
    match webhooks.question(&headers, body).await {
        Ok((request, _held)) => json(&request.answer(&Verdict::default())),
        Err(answer) => answer,
    }
}

fn json(answer: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

impl Webhooks {
    async fn validate<K: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
        subject: impl FnOnce(K, Option<K>) -> Subject,
    ) -> Response {
        let (mut request, _held) = match self.question(headers, body).await {
            Ok(question) => question,
            Err(answer) => return answer,
        };
        let answer = match request.objects::<K>() {
            Err(why) => request.unreadable(&why),
            Ok(None) => request.answer(&Verdict::default()),
            Ok(Some((new, old))) => {
                let verdict = self.judge(&request, &subject(new, old)).await;
                if !verdict.errors.is_empty() {
                    let fields: Vec<&str> = verdict.errors.iter().map(|error| error.field.as_str()).take(10).collect();
                    let (kind, namespace, name) = (&request.kind.kind, &request.namespace, &request.name);
                    tracing::info!(kind, namespace, name, user = request.user_info.username, ?fields, "refused");
                }
                request.answer(&verdict)
            }
        };
        json(&answer)
    }

    /// Reads the question; what comes with it is to be kept as long as the question.
    async fn question(&self, headers: &HeaderMap, body: Body) -> Result<(Request, OwnedSemaphorePermit), Response> {
        let is_json = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json"));
        if !is_json {
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "want application/json"));
        }
        let (bytes, held) = self.room.read(headers.get(header::CONTENT_LENGTH), body).await?;
        let request = Request::read(&bytes).map_err(|why| refuse(StatusCode::BAD_REQUEST, &why))?;
        Ok((request, held))
    }

    async fn judge(&self, request: &Request, subject: &Subject) -> Verdict {
        let (user, began) = (&request.user_info, Instant::now());
        let plane = self.planes.of(user);
        let mut identities = Identities { own: Err("not asked".into()), resolvers: self.resolvers.clone() };
        if subject.needs_identity(user) {
            identities.own = match self.planes.of_identity(&plane) {
                Ok(plane) => plane.own_name().await.map_err(|(_, why)| why),
                Err(why) => Err(why),
            };
        }
        let needs = subject.needs(user, &identities);
        let facts = match &plane {
            _ if needs.is_empty() => Facts::unknown(&needs, "not asked"),
            Ok(plane) => {
                let left = planes::DEADLINE.saturating_sub(began.elapsed());
                plane.read(&needs, user, &request.namespace, left).await
            }
            Err(why) => Facts::unknown(&needs, why),
        };
        subject.judge(user, &identities, &facts)
    }
}

#[cfg(test)]
mod tests;
