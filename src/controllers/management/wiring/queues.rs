//! The work queues of the management controllers, one per controller, and their keys.
//!
//! Keys are parsed when they are created. So no controller parses names, and none can get a key of another controller.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{
    api::{
        names::{CityCode, ProjectName},
        referenced::DataRef,
    },
    controllers::management::projects::project_cache::ProjectCache,
    io::{
        queue::{Key, Queue},
        store::ObjectKey,
    },
};

/// Keys for each queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) workload: BTreeSet<ProjectKey>,
    pub(crate) federator: BTreeSet<ProjectKey>,
    pub(crate) policy: BTreeSet<PolicyKey>,
    pub(crate) projector: BTreeSet<InstanceKey>,
    pub(crate) companion: BTreeSet<CompanionKey>,
    /// True if the Clusters are to be compared with their cities.
    pub(crate) clusters: bool,
}

impl Keys {
    /// Adds the policy of a city in a hub namespace.
    pub(crate) fn policy(&mut self, namespace: &str, city: CityCode) {
        self.policy.insert(PolicyKey { namespace: namespace.into(), city });
    }

    /// Adds the place of a projection in a project.
    pub(crate) fn place(&mut self, project: &ProjectCache, object: ObjectKey) {
        self.projector.insert(InstanceKey::Place(ProjectKey { project: project.name.clone(), object }));
    }
}

/// One queue per controller.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) workload: Arc<Queue<ProjectKey>>,
    pub(crate) federator: Arc<Queue<ProjectKey>>,
    pub(crate) policy: Arc<Queue<PolicyKey>>,
    pub(crate) projector: Arc<Queue<InstanceKey>>,
    pub(crate) companion: Arc<Queue<CompanionKey>>,
    /// Notified if a Cluster has changed. All Clusters are reconciled together, so there are no keys.
    pub(crate) clusters: Notify,
}

impl Queues {
    /// Adds keys to their queues.
    pub(crate) fn add(&self, keys: Keys) {
        let Keys { workload, federator, policy, projector, companion, clusters } = keys;
        self.workload.add_all(workload);
        self.federator.add_all(federator);
        self.policy.add_all(policy);
        self.projector.add_all(projector);
        self.companion.add_all(companion);
        if clusters {
            self.clusters.notify_one();
        }
    }

    /// Retries the failed keys of a project that can be reached again.
    pub(crate) fn retry_project(&self, project: &ProjectName) {
        self.workload.retry_now(project);
        self.federator.retry_now(project);
        self.companion.retry_now(project);
        self.projector.retry_now(&Some(project.clone()));
    }

    /// Removes the keys of a disengaged project.
    pub(crate) fn forget_project(&self, project: &ProjectName) {
        self.workload.forget_lane(project);
        self.federator.forget_lane(project);
        self.companion.forget_lane(project);
        self.projector.forget_lane(&Some(project.clone()));
    }
}

/// An object of a project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProjectKey {
    pub(crate) project: ProjectName,
    pub(crate) object: ObjectKey,
}

impl ProjectKey {
    pub(crate) fn new(project: &ProjectName, namespace: &str, name: &str) -> Self {
        Self { project: project.clone(), object: ObjectKey::new(namespace, name) }
    }
}

impl fmt::Display for ProjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.project, self.object)
    }
}

impl Key for ProjectKey {
    type Lane = ProjectName;

    /// The first event of a change is handled at once. What the operator has just written, and what Karmada makes of it, come back
    /// as several events.
    const REST: Duration = Duration::from_millis(50);

    fn lane(&self) -> ProjectName {
        self.project.clone()
    }
}

/// The companion of a ConfigMap or Secret, by its source in the project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CompanionKey {
    pub(crate) project: ProjectName,
    /// The source's namespace.
    pub(crate) namespace: Arc<str>,
    /// The source in it.
    pub(crate) data_ref: DataRef,
}

impl CompanionKey {
    pub(crate) fn new(project: &ProjectName, namespace: &str, data_ref: DataRef) -> Self {
        Self { project: project.clone(), namespace: namespace.into(), data_ref }
    }

    /// Returns the key of the source.
    pub(crate) fn source(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.data_ref.name.as_str().into() }
    }
}

impl fmt::Display for CompanionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.project, self.namespace, self.data_ref)
    }
}

impl Key for CompanionKey {
    type Lane = ProjectName;

    /// Each new user of a companion causes an event. The first one is handled at once.
    const REST: Duration = Duration::from_millis(50);

    fn lane(&self) -> ProjectName {
        self.project.clone()
    }
}

/// The policy of a city in a hub namespace, which is its lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyKey {
    /// The hub namespace.
    pub(crate) namespace: Arc<str>,
    pub(crate) city: CityCode,
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.city)
    }
}

impl Key for PolicyKey {
    type Lane = Arc<str>;

    /// Each deployment of the city causes several events. The pause also delays the guard
    /// of a city that has just been scheduled: with 5 s, a Cluster that lost its label lost its Instances (`it demo::`).
    const REST: Duration = Duration::from_millis(200);

    fn lane(&self) -> Arc<str> {
        self.namespace.clone()
    }
}

/// Key of the projector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum InstanceKey {
    /// A place in a project where a hub Instance is to be shown, or was shown.
    Place(ProjectKey),
    /// A hub Instance that names no engaged project. All of these share one lane.
    Unresolved(ObjectKey),
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(place) => place.fmt(f),
            Self::Unresolved(instance) => write!(f, "unresolved:{instance}"),
        }
    }
}

impl Key for InstanceKey {
    type Lane = Option<ProjectName>;

    fn lane(&self) -> Option<ProjectName> {
        match self {
            Self::Place(place) => Some(place.project.clone()),
            Self::Unresolved(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With plain strings as keys, a project without a name shared the keys of the Instances without a project.
    #[test]
    fn instance_without_a_project_shares_no_lane_with_a_project() {
        let instance = ObjectKey::new("ns", "web-0");
        let lost = InstanceKey::Unresolved(instance.clone());
        for name in ["", "unresolved", "cell"] {
            let place = InstanceKey::Place(ProjectKey { project: ProjectName::new(name), object: instance.clone() });
            assert!(place != lost && place.lane() != lost.lane(), "{name:?}");
        }
    }

    #[test]
    fn disengaged_project_loses_only_its_own_keys() {
        let (queues, gone, other) = (Queues::default(), ProjectName::new("gone"), ProjectName::new("other"));
        for project in [&gone, &other] {
            let key = ProjectKey::new(project, "ns", "web");
            queues.workload.add(key.clone());
            queues.federator.add(key.clone());
            queues.projector.add(InstanceKey::Place(key));
            queues.companion.add(CompanionKey::new(project, "ns", DataRef::secret("db")));
        }
        queues.projector.add(InstanceKey::Unresolved(ObjectKey::new("ns", "web-0")));
        queues.policy.add(PolicyKey { namespace: "gone".into(), city: CityCode::parse("dfw").unwrap() });
        queues.forget_project(&gone);
        let depths = (queues.workload.depth(), queues.federator.depth(), queues.companion.depth());
        assert_eq!((depths, queues.projector.depth(), queues.policy.depth()), ((1, 1, 1), 2, 1));
    }
}
