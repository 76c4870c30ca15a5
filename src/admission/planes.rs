//! The control plane that a request is about, and the facts read there.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::granted::{Asked, Granted};
use crate::{
    api::{names::ProjectName, neighbours::LocationBinding},
    io::{
        Class,
        clients::{Connection, Projects},
        reviews,
    },
    plan::{
        Kind,
        admission::{
            Bound,
            access::{Access, Answer, User},
            deployment::Own,
            request::{Facts, Needs},
        },
    },
};

/// Key in `extra`: name of the object that a Milo request is about.
const PARENT_NAME: &str = "iam.miloapis.com/parent-name";

/// Key in `extra`: type of that object.
const PARENT_TYPE: &str = "iam.miloapis.com/parent-type";

/// Most reviews of one request under way at a time.
const PARALLEL: usize = 32;

/// How long the operator's known identity is believed while a user with its name has another uid.
const OWN_FOR: Duration = Duration::from_secs(30);

/// Longest time for all reads of one request; API servers wait for ten seconds.
pub(super) const DEADLINE: Duration = Duration::from_secs(8);

/// Size of the requests of one project under way at a time, in KiB; as much again may wait.
const MAX_UNDER_WAY_KIB: u32 = 8 << 10;

/// Size that the smallest request counts for, which also bounds the number of requests.
const LEAST_KIB: u32 = 512;

/// Most connections to projects kept; the least recently used one is dropped first.
const MAX_KEPT: usize = 256;

/// The control planes that requests come from.
pub enum Planes {
    /// Single mode: one control plane.
    Single(Arc<Plane>),
    /// Milo: each request names its project.
    Milo(Box<Known>),
}

/// Connections to recently used projects.
pub struct Known {
    projects: Projects,
    /// The host of all projects, with the credentials for each.
    host: Result<Arc<Plane>, String>,
    kept: Mutex<HashMap<ProjectName, (Arc<Plane>, Instant)>>,
}

/// The control plane of a project.
pub struct Plane {
    name: String,
    project: Option<ProjectName>,
    connection: Connection,
    own: tokio::sync::Mutex<Option<(Own, Instant)>>,
    granted: Granted,
    /// Requests under way, in KiB, and requests that wait for them.
    under_way: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Planes {
    /// The one project of single mode.
    pub fn single(connection: Connection) -> Self {
        Self::Single(Plane::new(&ProjectName::single(), connection))
    }

    /// The projects of a Milo API server.
    pub fn milo(projects: Projects) -> Self {
        let host = projects.host().map(|connection| Plane::called("Milo".into(), None, connection));
        Self::Milo(Box::new(Known { projects, host, kept: Mutex::default() }))
    }

    /// Returns the control plane that a user's request is about.
    ///
    /// # Errors
    /// The missing part, as a message to the sender of the request.
    pub(super) fn of(&self, user: &User) -> Result<Arc<Plane>, String> {
        match self {
            Self::Single(plane) => Ok(plane.clone()),
            Self::Milo(known) => known.get(&project_of(user)?),
        }
    }

    /// Returns the control plane that identifies the operator at start-up: the one project, or the host of all projects.
    pub(super) fn home(&self) -> Result<Arc<Plane>, String> {
        match self {
            Self::Single(plane) => Ok(plane.clone()),
            Self::Milo(known) => known.host.clone(),
        }
    }

    /// Returns the control plane that identifies the operator for a request. If the request names no project, as the operator's
    /// own may not, it is the host: all projects share its users.
    pub(super) fn of_identity(&self, asked: &Result<Arc<Plane>, String>) -> Result<Arc<Plane>, String> {
        match (asked, self) {
            (Err(_), Self::Milo(known)) => known.host.clone(),
            _ => asked.clone(),
        }
    }
}

/// Returns the project that a Milo request is about.
fn project_of(user: &User) -> Result<ProjectName, String> {
    let first = |key: &str| user.extra.get(key).and_then(|values| values.first()).filter(|value| !value.is_empty());
    if let Some(other) = first(PARENT_TYPE).filter(|kind| !kind.eq_ignore_ascii_case("project")) {
        return Err(format!("the request is about a {other:?}, not about a project ({PARENT_TYPE} in extra)"));
    }
    match first(PARENT_NAME) {
        Some(name) => Ok(ProjectName::new(name)),
        None => Err(format!("the request does not say which project it is about ({PARENT_NAME} in extra)")),
    }
}

impl Known {
    fn get(&self, project: &ProjectName) -> Result<Arc<Plane>, String> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((plane, used)) = kept.get_mut(project) {
            *used = Instant::now();
            return Ok(plane.clone());
        }
        let plane = Plane::new(project, self.projects.connect(project)?);
        if kept.len() >= MAX_KEPT {
            let oldest = kept.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone());
            oldest.and_then(|name| kept.remove(&name));
        }
        kept.insert(project.clone(), (plane.clone(), Instant::now()));
        Ok(plane)
    }
}

impl Plane {
    fn new(project: &ProjectName, connection: Connection) -> Arc<Self> {
        Self::called(format!("project {project}"), Some(project.clone()), connection)
    }

    fn called(name: String, project: Option<ProjectName>, connection: Connection) -> Arc<Self> {
        let room = || Semaphore::new(MAX_UNDER_WAY_KIB as usize);
        let (own, under_way) = (tokio::sync::Mutex::default(), Arc::new(room()));
        Arc::new(Self { name, project, connection, own, granted: Granted::default(), under_way, waiting: room() })
    }

    /// The project, or `None` for the host of all projects.
    pub(super) fn project(&self) -> Option<&ProjectName> {
        self.project.as_ref()
    }

    /// Waits until a request of this size may run beside the others of this project. A project with a slow API server delays only
    /// its own requests, and only they fill the memory.
    ///
    /// # Errors
    /// If too many requests wait already, or this one waits too long.
    pub(super) async fn enter(&self, bytes: usize, within: Duration) -> Result<OwnedSemaphorePermit, String> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).clamp(LEAST_KIB, MAX_UNDER_WAY_KIB);
        if let Ok(permit) = self.under_way.clone().try_acquire_many_owned(kib) {
            return Ok(permit);
        }
        let too_many = || format!("{}: too many requests are under way", self.name);
        let _waits = self.waiting.try_acquire_many(kib).map_err(|_| too_many())?;
        match timeout(within, self.under_way.clone().acquire_many_owned(kib)).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(too_many()),
        }
    }

    /// Returns the operator's identity on this control plane, which is read once. If a user has the operator's name but another
    /// uid, the operator's account may have been recreated: after a while the identity is read again.
    ///
    /// # Errors
    /// Why the identity is not known, and the class of the error.
    pub(super) async fn own(&self, user: Option<&User>) -> Result<Own, (Class, String)> {
        let mut known = self.own.lock().await;
        let doubted = |own: &Own| user.is_some_and(|user| own.has_name_of(user) && !own.is(user));
        if let Some((own, _)) = known.as_ref().filter(|(own, at)| !doubted(own) || at.elapsed() < OWN_FOR) {
            return Ok(own.clone());
        }
        match reviews::own(&self.connection, &self.name).await {
            Ok(own) => Ok(known.insert((own, Instant::now())).0.clone()),
            Err(error) => Err((error.class(), error.to_string())),
        }
    }

    /// Reads all facts of a request in parallel. A fact that is not read in time is unknown.
    pub(super) async fn read(&self, needs: &Needs, user: &User, namespace: &str, within: Duration) -> Facts {
        let all = async {
            let (bound, workloads, answers) = tokio::join!(
                self.bound(needs.cities),
                self.workloads(needs.workloads, namespace),
                self.answers(needs, user)
            );
            Facts { bound, workloads, answers, claimed: None, project: None }
        };
        let late = || Facts::unknown(needs, &format!("{}: no answer within {} s", self.name, DEADLINE.as_secs()));
        timeout(within, all).await.unwrap_or_else(|_| late())
    }

    async fn bound(&self, needed: bool) -> Bound {
        if !needed {
            return Bound::Unknown("not asked".into());
        }
        match reviews::all::<LocationBinding>(&self.connection, &self.name).await {
            Ok(bindings) => Bound::Known(bindings.iter().filter_map(|binding| binding.spec.city()).collect()),
            Err(error) => Bound::Unknown(error.to_string()),
        }
    }

    async fn workloads(&self, needed: bool, namespace: &str) -> Result<BTreeMap<String, String>, String> {
        if !needed {
            return Err("not asked".into());
        }
        let found = reviews::uids_in(&self.connection, &self.name, Kind::Workload, namespace).await;
        found.map_err(|error| error.to_string())
    }

    async fn answers(&self, needs: &Needs, user: &User) -> BTreeMap<Access, Answer> {
        // Each review repeats all that is known of the user, so it is built when its turn comes.
        let ask = |access: Access| {
            let review = access.review(user);
            let (connection, plane) = (self.connection.clone(), self.name.clone());
            async move {
                let (asked, at) = (Asked::of(&review), Instant::now());
                if self.granted.covers(&asked, at) {
                    return (access, Answer::Allowed);
                }
                let answer = match reviews::access(&connection, &plane, &review).await {
                    Ok(answer) => Answer::read(&answer),
                    Err(error) => Answer::Failed(error.to_string()),
                };
                if answer == Answer::Allowed {
                    self.granted.add(asked, at);
                }
                (access, answer)
            }
        };
        let all: Vec<Access> = needs.accesses.keys().cloned().collect();
        stream::iter(all).map(ask).buffer_unordered(PARALLEL).collect().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(extra: &[(&str, &str)]) -> User {
        let extra = extra.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect();
        User { extra, ..User::default() }
    }

    #[test]
    fn milo_request_names_its_project_in_extra() {
        for (extra, expected) in [
            (&[(PARENT_NAME, "shop")][..], Some("shop")),
            (&[(PARENT_NAME, "shop"), (PARENT_TYPE, "Project")], Some("shop")),
            (&[(PARENT_NAME, "acme"), (PARENT_TYPE, "Organization")], None),
            (&[(PARENT_NAME, "")], None),
            (&[], None),
        ] {
            let project = project_of(&user(extra));
            assert_eq!(project.ok(), expected.map(ProjectName::new), "{extra:?}");
        }
        let error = project_of(&user(&[])).unwrap_err();
        assert!(error.contains(PARENT_NAME), "{error}");
    }

    #[tokio::test]
    async fn project_at_its_limit_refuses_further_requests() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let plane = Plane::new(&ProjectName::new("shop"), Connection::new(config).unwrap());
        let (minute, half) = (Duration::from_mins(1), (MAX_UNDER_WAY_KIB as usize) << 9);
        let large = plane.enter(half, minute).await.unwrap();
        let mut small = Vec::new();
        for _ in 0..MAX_UNDER_WAY_KIB / LEAST_KIB / 2 {
            small.push(plane.enter(1, minute).await.unwrap());
        }
        assert!(plane.enter(1, Duration::ZERO).await.is_err(), "nobody leaves");
        // Two may wait, and a third is refused.
        let mut waits: Vec<_> = [half, half].into_iter().map(|bytes| Box::pin(plane.enter(bytes, minute))).collect();
        for waiting in &mut waits {
            assert!(futures::poll!(waiting).is_pending());
        }
        let error = plane.enter(1, minute).await.unwrap_err();
        assert!(error.contains("shop") && error.contains("too many requests"), "{error}");
        drop(large);
        drop(waits.remove(0).await.unwrap());
        drop(small);
        drop(waits.remove(0).await.unwrap());
        drop(plane.enter(1, minute).await.unwrap());
    }

    #[tokio::test]
    async fn project_connections_at_capacity_drop_the_least_recently_used() {
        let template = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let planes = Planes::milo(Projects::new(template));
        let first = planes.of(&user(&[(PARENT_NAME, "p-0")])).unwrap();
        for n in 1..=MAX_KEPT {
            // The first is used all the time.
            assert!(Arc::ptr_eq(&first, &planes.of(&user(&[(PARENT_NAME, "p-0")])).unwrap()));
            planes.of(&user(&[(PARENT_NAME, &format!("p-{n}"))])).unwrap();
        }
        let Planes::Milo(known) = &planes else { panic!() };
        assert_eq!(known.kept.lock().unwrap().len(), MAX_KEPT);
        assert!(Arc::ptr_eq(&first, &planes.of(&user(&[(PARENT_NAME, "p-0")])).unwrap()));
        assert!(planes.of(&user(&[(PARENT_NAME, "../x")])).is_err());
    }
}
