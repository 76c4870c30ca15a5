//! Snapshot of one deployment for federation, and the decisions about it.

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

/// Failing watches of the hub that federation needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The watches and their errors, in words for tenants. The platform reads in its log which permissions are missing.
    pub words: String,
    /// Time for which they have failed.
    pub lasted: Duration,
    /// True if copies of deployments cannot be seen. Then no write to the hub may depend on them.
    pub blind: bool,
}

/// A copy that is in no cache, as a live read has just found it. It is newer than the cache, has lost its label, or cannot be
/// decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenCopy {
    /// Its version.
    pub version: ObjectVersion,
    /// Its annotations, which name its original.
    pub annotations: BTreeMap<String, String>,
}

/// Running Instances of a deployment that the project's API server rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unshown {
    /// Name of the first one.
    pub first: String,
    /// Number of them.
    pub count: usize,
    /// Error about the first one.
    pub words: String,
}

impl Unshown {
    /// Returns the note that `Federated` adds to a delivery.
    pub(super) fn note(&self) -> Note {
        let more = if self.count > 1 { format!(" and {} more", self.count - 1) } else { String::new() };
        let message = format!(
            "the project's API server rejects Instance {}{more}. The Instances run, and the project does not show them. \
             The owner of the project must fix what its API server reports: {}",
            self.first, self.words
        );
        Note::new(Reason::InstancesNotShown, message)
    }
}

/// Snapshot of one deployment of a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Project of the deployment.
    pub project: ProjectName,
    /// The deployment.
    pub deployment: Shared<WorkloadDeployment>,
    /// Uid of its namespace. `None` if the namespace is gone.
    pub namespace_uid: Option<String>,
    /// Facts of the copy's hub namespace, [`copy_namespace`], if that has a label of ours.
    pub hub_namespace: Option<Shared<NamespaceFacts>>,
    /// Version of the hub namespace, if it has just been read live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_namespace_version: Option<ObjectVersion>,
    /// Another project that the hub namespace belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rival: Option<Rival>,
    /// Wanted keeper of the hub namespace, as far as it is known.
    #[serde(default, skip_serializing_if = "Keeper::is_unknown")]
    pub keeper: Keeper,
    /// The copy in the hub namespace.
    pub copy: Option<Shared<WorkloadDeployment>>,
    /// True if no other copy is known there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_first_copy: bool,
    /// The copy there, if only a live read found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_copy: Option<HiddenCopy>,
    /// Wait before a write of its copy, because other large deployments of its namespace come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_in: Option<Duration>,
    /// Data that it refers to.
    pub data: resolve::View,
    /// Objects that Karmada made of it. `None` while they are unknown.
    pub karmada: Option<Karmada>,
    /// The cause that has blocked its delivery until now.
    pub blocked: Option<Blocked>,
    /// Number of repairs that the hub can take.
    #[serde(default)]
    pub capacity: Capacity,
    /// Its Instances that the project rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unshown: Option<Unshown>,
    /// Failing watches of the hub that the decision needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    /// The hub's message about a namespace, if its deletion [is overdue](super::hub_trouble::is_namespace_overdue).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_words: Option<String>,
    /// Waiting periods.
    pub timing: Timing,
}

/// Information for the controller to remember or to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Delivery is blocked. A plan without this signal means that nothing blocks it.
    Blocked {
        /// The reason.
        reason: String,
        /// Kind of the absence about which Karmada says nothing. `None` if Karmada named a cause.
        silence: Option<Absence>,
    },
    /// An object is repaired, so that Karmada recreates what was removed.
    Repaired(Absence),
    /// The copy waits for its turn to be written.
    AwaitsTurn,
}

/// Decision about one deployment.
pub type Decided = Plan<Step<Project, Hub>, Signal>;

/// Returns the hub namespace of a deployment's copy. It is derived from the uid, because a client that names another project's
/// namespace could write into it. The recorded name is used only for a terminating deployment without its namespace, to find a copy
/// that was left.
pub fn copy_namespace(deployment: &WorkloadDeployment, namespace_uid: Option<&str>) -> Option<String> {
    let deleting = deployment.metadata.deletion_timestamp.is_some();
    let recorded = || deployment.annotations().get(annotation::FEDERATION_NAMESPACE).filter(|_| deleting).cloned();
    namespace_uid.map(names::hub_namespace).or_else(recorded)
}
