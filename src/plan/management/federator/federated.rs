//! What is known of one deployment on its way to the hub, and what can be decided on it.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::{
    delivery::{Karmada, Note},
    repair::{Absence, Blocked, Capacity},
};
use crate::plan::management::{projects::rival::Rival, referenced_data::resolve};
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::annotation,
        names::{self, ProjectName},
        reason::Reason,
    },
    plan::{Hub, Keeper, NamespaceFacts, ObjectVersion, Plan, Project, Shared, Step},
    timing::Timing,
};

/// The watches of the hub that federation rests on, while some of them fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Which, and why, in words for tenants: whose rights are lacking, and where, is the platform's to read, in its log.
    pub words: String,
    /// For how long.
    pub lasted: Duration,
    /// Whether copies of deployments cannot be seen, so that nothing is to be written there on the ground of them.
    pub blind: bool,
}

/// A copy that no cache has, as a live read has just found it: it is newer than the cache, has lost its label, or cannot be
/// decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenCopy {
    /// Its version.
    pub version: ObjectVersion,
    /// Its annotations, which say of what it is a copy.
    pub annotations: BTreeMap<String, String>,
}

/// Instances of a deployment that run, and that the project's API server does not take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unshown {
    /// The first of them.
    pub first: String,
    /// How many there are.
    pub count: usize,
    /// What is said of the first.
    pub words: String,
}

impl Unshown {
    /// What `Federated` says of it beside the delivery.
    pub(super) fn note(&self) -> Note {
        let more = if self.count > 1 { format!(", nor {} more", self.count - 1) } else { String::new() };
        let message = format!(
            "the project's API server does not take Instance {}{more}. The Instances run, and the project does not show them. \
             The owner of the project must mend what its API server says: {}",
            self.first, self.words
        );
        Note::new(Reason::InstancesNotShown, message)
    }
}

/// Everything that is known about one deployment of a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The project it lives in.
    pub project: ProjectName,
    /// The deployment.
    pub deployment: Shared<WorkloadDeployment>,
    /// Uid of its namespace; `None` when the namespace is gone.
    pub namespace_uid: Option<String>,
    /// The hub namespace in which the copy is, [`copy_namespace`], if it carries a label of ours.
    pub hub_namespace: Option<Shared<NamespaceFacts>>,
    /// Its version, where it has just been read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_namespace_version: Option<ObjectVersion>,
    /// Another project that has a better right to the hub namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rival: Option<Rival>,
    /// Who is to keep the hub namespace, as far as is known.
    #[serde(default, skip_serializing_if = "Keeper::is_unknown")]
    pub keeper: Keeper,
    /// The copy there.
    pub copy: Option<Shared<WorkloadDeployment>>,
    /// True if no other copy is there, as far as is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_first_copy: bool,
    /// The copy there, if it is known from a live read alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_copy: Option<HiddenCopy>,
    /// How long a write of its copy would wait, since other large deployments of its namespace come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_in: Option<Duration>,
    /// What it refers to.
    pub data: resolve::View,
    /// What Karmada made of it; absent while that is not known.
    pub karmada: Option<Karmada>,
    /// What has kept it from being delivered until now.
    pub blocked: Option<Blocked>,
    /// How much the hub can take.
    #[serde(default)]
    pub capacity: Capacity,
    /// Its Instances that the project does not take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unshown: Option<Unshown>,
    /// What fails of the watches of the hub that this rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    /// What the hub says of a namespace that does not go, if that [is due](super::hub_trouble::is_namespace_overdue).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_words: Option<String>,
    /// How long to wait for what.
    pub timing: Timing,
}

/// What the controller is to remember or to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Delivery is blocked. A plan without it says that nothing blocks it.
    Blocked {
        /// By what, in one word.
        reason: String,
        /// True if Karmada says nothing about it.
        silent: bool,
    },
    /// Something is repaired, so that Karmada recreates what was removed.
    Repaired(Absence),
    /// The copy waits for its turn to be written.
    AwaitsTurn,
}

/// What is decided about one deployment.
pub type Decided = Plan<Step<Project, Hub>, Signal>;

/// The hub namespace in which the copy of a deployment is: derived, never believed, for whoever could name another
/// project's namespace could write into it. Only of one that is on its way out, and whose namespace is gone, the recorded
/// one tells where its copy may have stayed.
pub fn copy_namespace(deployment: &WorkloadDeployment, namespace_uid: Option<&str>) -> Option<String> {
    let deleting = deployment.metadata.deletion_timestamp.is_some();
    let recorded = || deployment.annotations().get(annotation::FEDERATION_NAMESPACE).filter(|_| deleting).cloned();
    namespace_uid.map(names::hub_namespace).or_else(recorded)
}
