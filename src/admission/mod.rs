//! The admission webhooks: a server that reads the facts that a request needs and asks `plan::admission` for the verdict.
//!
//! Every replica serves them, the leader and the others, and none keeps a cache. The facts of a request are read in the request's
//! project. A fact that cannot be read is a refusal with its reason. So an outage of the hub or of another project refuses
//! nothing.

mod granted;
mod planes;
mod review;
mod room;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use k8s_openapi::api::autoscaling::v1::Scale;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::planes::Planes;
use self::{
    planes::Plane,
    review::Request,
    room::{Held, Room, refuse},
};
pub use crate::api::names::webhook::{MUTATE_WORKLOAD, VALIDATE_DEPLOYMENT, VALIDATE_WORKLOAD};
use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        names::ProjectName,
    },
    io::{
        Class,
        health::Health,
        server::{self, Certificate, Files, Limits, Transport},
    },
    plan::admission::{
        access::User,
        deployment::{Identities, Own},
        request::{Facts, Needs, Subject, Verdict},
        sharing::InUse,
    },
};

/// Settings of the webhook server.
#[derive(Clone)]
pub struct Settings {
    /// Address to serve on.
    pub at: SocketAddr,
    /// Files of the serving certificate.
    pub files: Files,
    /// The certificate in use, once the files are read.
    pub certificate: Certificate,
    /// User names that may write the fields otherwise reserved for the operator.
    pub resolvers: BTreeSet<String>,
}

/// Users of the data in a project namespace, where policies bring each object to one city only. Management sets the answer once
/// it is known. Until then, and without management, nothing is claimed.
#[derive(Clone, Default)]
pub struct Claimed(Arc<OnceLock<Box<ClaimedBy>>>);

/// Answers for a project and one of its namespaces. `None` if objects follow their users, or if it is not known.
type ClaimedBy = dyn Fn(&ProjectName, &str) -> Option<Vec<InUse>> + Send + Sync;

impl Claimed {
    /// Sets the answer. Only the first call counts.
    pub fn is_known_by(&self, answer: impl Fn(&ProjectName, &str) -> Option<Vec<InUse>> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(answer));
    }

    fn of(&self, project: &ProjectName, namespace: &str) -> Option<Vec<InUse>> {
        self.0.get().and_then(|answer| answer(project, namespace))
    }
}

/// State that all requests share.
struct Webhooks {
    planes: Planes,
    claimed: Claimed,
    resolvers: BTreeSet<String>,
    room: Room,
}

/// Serves the webhooks until a while after `stop`. The handle ends with the last request.
///
/// # Errors
/// One line, in two cases. The address is not available. Or no resolver is configured, and the API server (the project's or the
/// host's) refuses to say who the operator is. Then only `system:masters` could write the operator's own fields.
pub async fn start(
    settings: Settings,
    planes: Planes,
    claimed: Claimed,
    health: &Health,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, String> {
    let Settings { at, files, certificate, resolvers } = settings;
    let own = match planes.home() {
        Ok(_) if !resolvers.is_empty() => Ok(()),
        Ok(plane) => plane.own(None).await.map(|_| ()),
        Err(why) => Err((Class::Invalid, why)),
    };
    if let Err((class, why)) = own
        && resolvers.is_empty()
        && matches!(class, Class::Forbidden | Class::Gone | Class::Invalid)
    {
        return Err(format!(
            "webhookServer: cannot determine this operator's user: {why}; set referencedData.resolverUsernames"
        ));
    }
    let listener = server::listen(at).map_err(|e| format!("cannot serve admission webhooks on {at}: {e}"))?;
    tracing::info!(what = "admission webhooks", at = %listener.local_addr().unwrap_or(at), "serving");
    // Readiness waits for the certificate from now on, before the task first runs.
    let entry = health.watch("serving certificate".into());
    tokio::spawn(certificate.clone().keep(files, entry, stop.clone()));
    let webhooks = Arc::new(Webhooks { planes, claimed, resolvers, room: Room::default() });
    let transport = Transport::Tls(certificate);
    Ok(tokio::spawn(server::serve("admission", listener, transport, router(webhooks), Limits::default(), stop)))
}

fn router(webhooks: Arc<Webhooks>) -> Router {
    Router::new()
        .route(VALIDATE_WORKLOAD, post(validate_workload))
        .route(VALIDATE_DEPLOYMENT, post(validate_deployment))
        .route(MUTATE_WORKLOAD, post(mutate_workload))
        .with_state(webhooks)
}

/// Subresource that scales a WorkloadDeployment.
const SCALE: &str = "scale";

type Shared = State<Arc<Webhooks>>;

async fn validate_workload(State(webhooks): Shared, headers: HeaderMap, body: Body) -> Response {
    let subject = |request: &Request, body: &[u8]| {
        let objects = request.objects::<Workload>("", body)?;
        Ok(objects.map(|(new, old)| Subject::Workload(Box::new(new), old.map(Box::new))))
    };
    webhooks.validate(&headers, body, subject).await
}

async fn validate_deployment(State(webhooks): Shared, headers: HeaderMap, body: Body) -> Response {
    let subject = |request: &Request, body: &[u8]| {
        if request.sub_resource == SCALE {
            let replicas = |scale: Scale| scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
            let objects = request.objects::<Scale>(SCALE, body)?;
            return Ok(objects.map(|(new, old)| Subject::Scale(replicas(new), old.map(replicas))));
        }
        let objects = request.objects::<WorkloadDeployment>("", body)?;
        Ok(objects.map(|(new, old)| Subject::Deployment(Box::new(new), old.map(Box::new))))
    };
    webhooks.validate(&headers, body, subject).await
}

async fn mutate_workload(State(webhooks): Shared, headers: HeaderMap, body: Body) -> Response {
    match webhooks.question(&headers, body).await {
        Ok((request, ..)) => json(&request.answer(&Verdict::default())),
        Err(answer) => answer,
    }
}

fn json(answer: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

impl Webhooks {
    /// Validates one request. `subject` reads the written object from the bytes; `None` if the webhook does not judge it.
    async fn validate(
        &self,
        headers: &HeaderMap,
        body: Body,
        subject: impl FnOnce(&Request, &[u8]) -> Result<Option<Subject>, String>,
    ) -> Response {
        let began = Instant::now();
        let (request, body, held) = match self.question(headers, body).await {
            Ok(question) => question,
            Err(answer) => return answer,
        };
        let (subject, size) = (subject(&request, &body), body.len());
        // From here on the request may wait for its project's API server, in room of that project.
        drop((body, held));
        let answer = match subject {
            Err(why) => request.unreadable(&why),
            Ok(None) => request.answer(&Verdict::default()),
            Ok(Some(subject)) => {
                let verdict = self.judge(&request, &subject, size, began).await;
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

    /// Reads the request without its objects. The caller keeps the room as long as the bytes.
    async fn question(&self, headers: &HeaderMap, body: Body) -> Result<(Request, Bytes, Held), Response> {
        let is_json = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json"));
        if !is_json {
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "want application/json"));
        }
        let (bytes, held) = self.room.read(headers.get(header::CONTENT_LENGTH), body).await?;
        let request = Request::read(&bytes).map_err(|why| refuse(StatusCode::BAD_REQUEST, &why))?;
        Ok((request, bytes, held))
    }

    /// Returns the verdict. `size` is the length of the request in bytes.
    async fn judge(&self, request: &Request, subject: &Subject, size: usize, began: Instant) -> Verdict {
        let left = || planes::DEADLINE.saturating_sub(began.elapsed());
        let user = &request.user_info;
        let mut identities = Identities { own: Err("not asked".into()), resolvers: self.resolvers.clone() };
        let needs_identity = subject.needs_identity(user);
        if !needs_identity && subject.needs(user, &identities).is_empty() {
            return subject.judge(user, &identities, &Facts::unknown(&Needs::default(), "not asked"));
        }
        let plane = self.planes.of(user);
        // One slot covers all reads of this request, on whichever control plane.
        let entered = match self.planes.of_identity(&plane) {
            Ok(asked) => asked.enter(size, left()).await.map(|place| (asked, place)),
            Err(why) => Err(why),
        };
        let (plane, asked) = match &entered {
            Ok((asked, _)) => (plane, Ok(asked)),
            Err(why) => (Err(why.clone()), Err(why.clone())),
        };
        if needs_identity {
            identities.own = match asked {
                Ok(asked) => own_identity(asked, user, left()).await,
                Err(why) => Err(why),
            };
        }
        let needs = subject.needs(user, &identities);
        let mut facts = match &plane {
            _ if needs.is_empty() => Facts::unknown(&needs, "not asked"),
            Ok(plane) => plane.read(&needs, user, &request.namespace, left()).await,
            Err(why) => Facts::unknown(&needs, why),
        };
        // An object that is new in a city comes from a new reference or a new city, and both have been read.
        facts.project = plane.as_ref().ok().and_then(|plane| plane.project()).cloned();
        let project = facts.project.as_ref().filter(|_| subject.may_clash());
        facts.claimed = project.and_then(|project| self.claimed.of(project, &request.namespace));
        subject.judge(user, &identities, &facts)
    }
}

/// Returns the operator's own identity on a control plane, for a request of this user.
async fn own_identity(plane: &Plane, user: &User, within: Duration) -> Result<Own, String> {
    match tokio::time::timeout(within, plane.own(Some(user))).await {
        Ok(found) => found.map_err(|(_, why)| why),
        Err(_) => Err("no answer in time".into()),
    }
}

#[cfg(test)]
mod tests;
