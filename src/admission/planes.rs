//! Whose control plane a request is about, and what is read there.

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

/// In `extra`: the name of what a request of Milo's is about.
const PARENT_NAME: &str = "iam.miloapis.com/parent-name";

/// In `extra`, beside it: of what type that is.
const PARENT_TYPE: &str = "iam.miloapis.com/parent-type";

/// Reviews of one request that are under way at a time.
const PARALLEL: usize = 32;

/// How long it is believed who this operator is, while somebody else has its name.
const OWN_FOR: Duration = Duration::from_secs(30);

/// Longest that one request may take for all that it needs; the API servers wait for ten seconds.
pub(super) const DEADLINE: Duration = Duration::from_secs(8);

/// Objects of one project that are under way at a time, in KiB of their text; as many again may wait for that.
const MAX_UNDER_WAY_KIB: u32 = 8 << 10;

/// What the smallest counts for, so that requests under way are few, too.
const LEAST_KIB: u32 = 512;

/// Most connections to projects that are kept; the one that was used longest ago goes first.
const MAX_KEPT: usize = 256;

/// The control planes that requests come from.
pub enum Planes {
    /// There is one.
    Single(Arc<Plane>),
    /// Milo knows them; each request says which it is about.
    Milo(Box<Known>),
}

/// The connections to projects that were asked for lately.
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
    /// In KiB: what is under way, and what waits for that.
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

    /// The control plane that a user's request is about.
    ///
    /// # Errors
    /// What is missing, in words for whoever sent the request.
    pub(super) fn of(&self, user: &User) -> Result<Arc<Plane>, String> {
        match self {
            Self::Single(plane) => Ok(plane.clone()),
            Self::Milo(known) => known.get(&project_of(user)?),
        }
    }

    /// Where to ask at the start who we are: the one project, or the host of all.
    pub(super) fn home(&self) -> Result<Arc<Plane>, String> {
        match self {
            Self::Single(plane) => Ok(plane.clone()),
            Self::Milo(known) => known.host.clone(),
        }
    }

    /// Where to ask who we are: the control plane that a request is about; for one that names none, which this operator's
    /// own may be, the host, whose users they all share.
    pub(super) fn of_identity(&self, asked: &Result<Arc<Plane>, String>) -> Result<Arc<Plane>, String> {
        match (asked, self) {
            (Err(_), Self::Milo(known)) => known.host.clone(),
            _ => asked.clone(),
        }
    }
}

/// Which project a request of Milo's is about.
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

    /// Whose it is; nothing for the host of all projects.
    pub(super) fn project(&self) -> Option<&ProjectName> {
        self.project.as_ref()
    }

    /// Waits until so few requests of this project are under way that one more may be, whose objects were so large. A
    /// project whose API server is slow holds up, and fills the memory with, nobody's requests but its own.
    ///
    /// # Errors
    /// When too many wait already, or too long.
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

    /// As whom this operator writes there; asked for once. Where a user has its name and not its uid, whose account may have
    /// been made anew, it is asked once more after a while.
    ///
    /// # Errors
    /// Why it could not be found out, and whether asking again could help.
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

    /// Reads what a request needs, all of it at once; what has not come in time is unknown.
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
        // Each review repeats all that is known of the user: it is made when its turn comes, not all at once.
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
    fn a_request_says_which_project_it_is_about() {
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
    async fn so_much_of_one_project_is_under_way_and_so_much_waits() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let plane = Plane::new(&ProjectName::new("shop"), Connection::new(config).unwrap());
        let (minute, half) = (Duration::from_mins(1), (MAX_UNDER_WAY_KIB as usize) << 9);
        let large = plane.enter(half, minute).await.unwrap();
        let mut small = Vec::new();
        for _ in 0..MAX_UNDER_WAY_KIB / LEAST_KIB / 2 {
            small.push(plane.enter(1, minute).await.unwrap());
        }
        assert!(plane.enter(1, Duration::ZERO).await.is_err(), "nobody leaves");
        // Two wait, and a third is one too many.
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
    async fn so_many_connections_are_kept_and_no_more() {
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
