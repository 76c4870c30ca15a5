//! What the control planes show of the install. It can be stored and judged again.

use std::collections::{BTreeMap, BTreeSet};

use compute_operator::plan::management::observed::cluster::ClusterFacts;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    credentials::{Account, End},
    foreign::Foreign,
    roles::Right,
};
use crate::seen::Seen;

/// What the control planes show of the install.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Time of the reads.
    pub now: Timestamp,
    /// True before the install: only its requirements are checked.
    pub pre: bool,
    /// The project.
    pub project: Plane,
    /// The cluster of the manager, if it is not the project's.
    pub manager: Option<Plane>,
    /// The hub. `None` if its context is not known.
    pub hub: Option<Plane>,
    /// The cells, by the names of their Clusters.
    pub cells: BTreeMap<String, Plane>,
    /// Member clusters of the hub.
    pub clusters: Seen<BTreeMap<String, ClusterFacts>>,
    /// Users of the hub that may write for a cell, by its uid.
    pub holders: Seen<BTreeMap<String, BTreeSet<String>>>,
    /// Uid of the ServiceAccount on the hub that each cell's token names, by the name of the cell's Cluster.
    #[serde(default)]
    pub accounts: BTreeMap<String, Seen<String>>,
    /// City of each LocationBinding of the project, as it is written.
    pub locations: Seen<BTreeMap<String, String>>,
    /// Karmada.
    pub karmada: Karmada,
    /// The webhooks of the project.
    pub webhook: Webhook,
}

/// What one control plane shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plane {
    /// Its context. Empty if it is read through Karmada's proxy.
    pub context: String,
    /// Version of its API server.
    pub version: Seen<String>,
    /// Its clock.
    pub clock: Option<Clock>,
    /// Uid of `kube-system`.
    pub uid: Seen<String>,
    /// Definitions of this operator's kinds, by name.
    pub definitions: BTreeMap<String, Seen<CustomResourceDefinition>>,
    /// Rights of the operator's users, or before the install those of the caller.
    pub rights: Vec<Rights>,
    /// The manager that runs there. `None` if none is expected.
    pub manager: Option<Manager>,
    /// Webhooks of others that review the operator's kinds. Only before the install.
    #[serde(default)]
    pub webhooks: Seen<Vec<Foreign>>,
}

/// Time of an API server, and the local times of question and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Time in its answer, in whole seconds.
    pub server: Timestamp,
    /// Local time of the question.
    pub asked: Timestamp,
    /// Local time of the answer.
    pub answered: Timestamp,
}

impl Clock {
    /// Returns the least number of seconds by which the two clocks differ. The server read its clock between question and
    /// answer.
    pub fn skew(self) -> i64 {
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs();
        seconds(self.server, self.asked).max(seconds(self.answered, self.server)).max(0)
    }
}

/// Rights of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Name of the role that grants them.
    pub role: String,
    /// The user. Empty: the caller.
    pub user: String,
    /// Number of rights.
    pub total: usize,
    /// The rights that the user lacks.
    pub lacking: Seen<Vec<Right>>,
}

/// The manager of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manager {
    /// Its Lease.
    pub lease: Seen<LeaseFacts>,
    /// Its Deployment.
    pub deployment: Seen<DeploymentFacts>,
    /// End of the credentials in each Secret that it uses, by key.
    pub credentials: BTreeMap<String, Seen<BTreeMap<String, End>>>,
    /// ServiceAccount of the hub that a cell's token is for.
    #[serde(default)]
    pub account: Option<Account>,
}

/// The Lease of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFacts {
    /// The leader. Empty if no manager leads.
    pub holder: String,
    /// Last renewal, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// Duration in seconds.
    pub seconds: i32,
}

/// The Deployment of a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentFacts {
    /// Image of the manager.
    pub image: String,
    /// Secrets that its pods mount.
    pub secrets: BTreeSet<String>,
}

/// What the hub shows of Karmada.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Karmada {
    /// Tag of its controller's image.
    pub version: Seen<String>,
    /// Kinds that the operator uses. `Found` if the hub serves the kind.
    pub kinds: BTreeMap<String, Seen<()>>,
    /// Interpreters for WorkloadDeployments, by name.
    pub interpreters: Seen<BTreeMap<String, Value>>,
    /// Bindings that ask for their dependencies.
    pub bindings: Seen<Bindings>,
}

/// Bindings that ask for their dependencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    /// Their number.
    pub asking: usize,
    /// Number of those that Karmada's distributor has processed.
    pub distributed: usize,
}

/// What the project shows of the webhooks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// End of the authority of each webhook, by the webhook's name.
    pub authorities: Seen<BTreeMap<String, End>>,
    /// Answer to an invalid Workload.
    pub answer: Answer,
}

/// Answer to an invalid Workload that is created as a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The webhook refused it, after this time.
    Refused {
        /// Milliseconds.
        millis: u64,
    },
    /// It was accepted.
    Accepted,
    /// It was accepted and stored, although it was a dry run.
    Stored,
    /// The API server could not call the webhook.
    Uncalled(String),
    /// The caller may not create Workloads.
    Denied(String),
    /// Another answer.
    Other(String),
    /// It was not asked.
    #[default]
    NotAsked,
}
