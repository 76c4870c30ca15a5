//! Table of the collector: objects that can lose their owner, and how they are handled.
//!
//! | rule | object | owner | kept for | most in one sweep |
//! |---|---|---|---|---|
//! | `Copy` | copy of a deployment | the original in the project | an hour, noted on the copy; nothing if it is young, or if the project recreated the namespace | 50 |
//! | `CompanionBinding` | ResourceBinding | the companion | nothing | `maxBindingsPerSweep` |
//! | `CopyBinding` | ResourceBinding | the copy, and the original in the project | one sweep | `maxBindingsPerSweep` |
//! | `Work` | Work without a binding | its template | one sweep | `maxBindingsPerSweep` |
//! | `Content` | companions, bindings | the project's namespace | nothing, once no copy is left | all |
//! | `ControlPlane` | the whole content of a hub namespace | that namespace, in another control plane | `strandedGraceSeconds`, noted on the hub namespace | a tenth, at most 5 |
//! | `Namespace` | hub namespace | the project | the same | the same |
//!
//! A live read finds the owner gone before anything is noted or deleted. Before a copy, or content of a hub namespace, is
//! deleted, another live read finds the hub namespace as it was judged. A delete is of exactly the version that was judged. The
//! hub's garbage collection deletes Instances with their copies, so the collector only removes their protection.
//!
//! An ordinary deletion leaves no copy without its original, because a deployment keeps our finalizer until its copy is gone.
//! There are three other causes. A write under way recreated the copy: then it is young. A user removed the finalizer by force.
//! Or the project was restored from a backup. The annotation `stranded-since` on the object holds the start of its grace, so that
//! a restart does not begin the grace again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{
    api::{karmada::PropagationPolicy, meta::label, names::ProjectName},
    plan::{Discovery, Hub, NamespaceFacts, Object, ObjectVersion, Project, Proof, Write, ownership},
    timing::Timing,
};

/// Most by which the clocks of two API servers are expected to differ.
const CLOCKS: SignedDuration = SignedDuration::from_mins(5);

/// Settings of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Time between two sweeps.
    pub interval: Duration,
    /// Maximum number of bindings, and of Works, that one sweep deletes.
    pub max_bindings: usize,
    /// Time for which the hub namespaces of a deleted project are kept. `None`: forever.
    pub stranded_grace: Option<Duration>,
    /// True if sweeps delete nothing.
    pub paused: bool,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(5),
            max_bindings: 100,
            stranded_grace: Some(Duration::from_hours(24)),
            paused: false,
        }
    }
}

impl Sweep {
    /// True if nothing may be deleted in a hub namespace, or if the namespace is unknown.
    pub fn is_paused(&self, namespace: Option<&NamespaceFacts>) -> bool {
        self.paused || namespace.is_none_or(|facts| facts.paused)
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rule {
    /// A copy of a deployment without its original.
    Copy,
    /// A binding without its companion.
    CompanionBinding,
    /// A binding without its copy, and without the copy's original.
    CopyBinding,
    /// A Work that Karmada has forgotten: its template was deleted just before Karmada made the Work (Karmada issue 7896).
    Work,
    /// Content of a hub namespace without copies, after the original namespace was deleted.
    Content,
    /// The same, if the project has another control plane.
    ControlPlane,
    /// A hub namespace without its project.
    Namespace,
}

/// Grace of an object without its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grace {
    /// It is deleted at once.
    Nothing,
    /// It is deleted by the second sweep in a row that finds it.
    OneSweep,
    /// It is deleted this long after the time that its note records. `None`: never.
    Noted(Option<Duration>),
}

impl Rule {
    /// Returns the grace of an object without its owner.
    pub fn grace(self, sweep: &Sweep, timing: &Timing) -> Grace {
        match self {
            Self::Copy => Grace::Noted(Some(timing.loss_patience)),
            Self::CompanionBinding | Self::Content => Grace::Nothing,
            Self::CopyBinding | Self::Work => Grace::OneSweep,
            Self::ControlPlane | Self::Namespace => Grace::Noted(sweep.stranded_grace),
        }
    }

    /// True if a deletion depends on the record in the hub namespace: its project, its keeper, a pause, the start of a grace.
    pub fn depends_on_namespace(self) -> bool {
        matches!(self, Self::Copy | Self::Content | Self::ControlPlane | Self::Namespace)
    }

    /// Returns the row with which this one shares the limit of a sweep.
    #[must_use]
    pub fn brake(self) -> Self {
        match self {
            Self::CopyBinding => Self::CompanionBinding,
            Self::ControlPlane => Self::Namespace,
            other => other,
        }
    }

    /// Returns how many of them one sweep deletes. `namespaces`: the number of hub namespaces that this management plane keeps. If
    /// all owners seem to be gone at once, the operator probably does not see them.
    pub fn most(self, sweep: &Sweep, namespaces: usize) -> usize {
        match self {
            Self::Copy => 50,
            Self::CompanionBinding | Self::CopyBinding | Self::Work => sweep.max_bindings,
            Self::Content => usize::MAX,
            Self::ControlPlane | Self::Namespace => (namespaces / 10).clamp(1, 5),
        }
    }
}

/// A live read that must find an owner gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Read {
    /// The hub has no such object.
    NotOnHub(Object),
    /// The project has no such object.
    NotInProject(Object),
    /// The project has no namespace of that name, or one of another uid.
    NoNamespace {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// There is no such project.
    NoProject(Object),
}

/// A write, or a live read before one, on one of the three kinds of control planes.
#[derive(Clone, Debug)]
pub enum Action {
    /// On the hub.
    Hub(Write<Hub>),
    /// In the project.
    Project(Write<Project>),
    /// On the control plane that lists the projects.
    Discovery(Write<Discovery>),
}

impl Read {
    pub(super) fn add_to(&self, proof: Proof<Action>) -> Proof<Action> {
        match self {
            Self::NotOnHub(object) => proof.and(Write::confirm_absent(object.clone()), Action::Hub),
            Self::NotInProject(object) => proof.and(Write::confirm_absent(object.clone()), Action::Project),
            Self::NoNamespace { name, uid } => {
                proof.and(Write::confirm_gone(Object::named::<Namespace>("", name), uid), Action::Project)
            }
            Self::NoProject(object) => proof.and(Write::confirm_absent(object.clone()), Action::Discovery),
        }
    }
}

/// An object at the version that is judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The object.
    pub object: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// A second owner, which must be gone as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Read>,
    /// True if Karmada refuses to delete it (fact 53).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
}

impl Item {
    /// An object that only the owner of the whole keeps.
    pub fn new(object: Object, version: ObjectVersion) -> Self {
        Self { object, version, read: None, protected: false }
    }
}

/// The object that records the time since when the owner is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// The object.
    pub on: Item,
    /// Start of the grace, if it is recorded.
    pub since: Option<Timestamp>,
}

/// One owner that is gone according to the caches, and the objects that it has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The row of the table.
    pub rule: Rule,
    /// The hub namespace.
    pub namespace: String,
    /// The hub namespace as it was judged. Empty if no cache has it.
    pub hub_namespace: NamespaceFacts,
    /// The hub namespace as a live read found it, empty if it is gone. `None` before the read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<NamespaceFacts>,
    /// The project, if an owner was there.
    pub project: Option<ProjectName>,
    /// Live read that proves its owner gone.
    pub owner: Read,
    /// The objects that are left.
    pub items: Vec<Item>,
    /// The grace of the objects.
    pub grace: Grace,
    /// Record of the start of the grace. Only for [`Grace::Noted`].
    pub noted: Option<Noted>,
    /// Creation time. Only of a copy.
    pub created: Option<Timestamp>,
    /// True if an earlier sweep found it too.
    pub seen_before: bool,
    /// True if a sweep judges it. Only sweeps delete objects after a grace, because sweeps limit the number of deletions.
    pub in_sweep: bool,
    /// True if sweeps delete nothing there.
    pub paused: bool,
}

impl Observed {
    /// Start of the grace, if it is recorded.
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.noted.as_ref()?.since
    }

    /// Records that these objects lost their protection, each with its new version. `None`: the object is gone.
    pub fn unprotect(&mut self, lifted: &[(Object, Option<ObjectVersion>)]) {
        self.items.retain_mut(|item| match lifted.iter().find(|(object, _)| *object == item.object) {
            Some((_, None)) => false,
            Some((_, Some(version))) => {
                item.version = version.clone();
                item.protected = false;
                true
            }
            None => true,
        });
    }
}

/// True if the project recreated the namespace that a hub namespace mirrors, so that the mirrored one does not come back.
/// `namesake`: the project's namespace of that name now. A restored project has an older namespace again, created before the
/// hub namespace.
pub fn is_replaced(hub_namespace: &NamespaceFacts, namesake: Option<&NamespaceFacts>) -> bool {
    let times = namesake.and_then(|namesake| namesake.created).zip(hub_namespace.created);
    times.is_some_and(|(recreated, mirrored)| recreated.duration_since(mirrored) > CLOCKS)
}

/// True if Karmada refuses to delete the object, and any namespace that contains it (fact 53). Federation sets that label only on
/// namespaces. On other objects, an administrator set it, or a cell before the hub's policy forbade it.
pub fn is_protected<K: Resource>(object: &K) -> bool {
    object.labels().contains_key(label::DELETION_PROTECTED)
}

/// True if the city's own plan deletes this policy once no copy of the city is left. If the policy was deleted earlier, that copy
/// would stay on the cell (fact 13).
pub fn is_left_to_its_city(policy: &PropagationPolicy) -> bool {
    policy.metadata.deletion_timestamp.is_none() && ownership::is_city_policy(policy)
}
