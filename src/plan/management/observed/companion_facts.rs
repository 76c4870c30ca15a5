//! Facts of a companion, and the part of them that one deployment sees.

use std::time::Duration;

use jiff::Timestamp;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::api::{
    meta::{annotation, label},
    user_list::{Listed, UserList, UserName},
};
use crate::plan::management::referenced_data::foreign_claim::{self, ClaimIds, ForeignClaim};

/// State of a terminating object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Going {
    /// Time of the deletion request.
    pub since: Timestamp,
    /// Finalizers that block the deletion.
    pub finalizers: Vec<String>,
}

impl Going {
    /// Extracts the state from an object's metadata. `None` if the object is not terminating.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let since = meta.deletion_timestamp.as_ref()?.0;
        Some(Self { since, finalizers: meta.finalizers.clone().unwrap_or_default() })
    }

    /// Returns how long the object has been terminating.
    pub fn lasted(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.since)).unwrap_or_default()
    }
}

/// Facts of a companion. Only its metadata is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanionFacts {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Creation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Its list of users.
    pub users: UserList,
    /// PropagationPolicy that claims it. No policy should (fact 21).
    pub policy: Option<String>,
    /// ClusterPropagationPolicy that claims it. No policy should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
    /// Claim ids of both policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ids: Option<Box<ClaimIds>>,
    /// True if it is terminating.
    pub terminating: bool,
    /// Since when it has been terminating, and its finalizers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going: Option<Box<Going>>,
}

impl CompanionFacts {
    /// Extracts the facts from a companion's metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        let annotations = meta.annotations.as_ref();
        let text = |key: &str| annotations.and_then(|all| all.get(key));
        let claimed = meta.labels.as_ref().is_some_and(|labels| labels.contains_key(label::KARMADA_CLAIM));
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map(|created| created.0),
            users: UserList::parse(text(annotation::REFERENCED_BY).map(String::as_str)),
            policy: text(annotation::POLICY_NAME).filter(|_| claimed).cloned(),
            cluster_policy: cluster_policy(meta),
            claim_ids: ClaimIds::of(meta),
            terminating: meta.deletion_timestamp.is_some(),
            going: Going::of(meta).map(Box::new),
        }
    }

    /// True if a policy claims it.
    pub fn is_claimed(&self) -> bool {
        self.policy.is_some() || self.cluster_policy.is_some()
    }

    /// Claims of policies that are not city policies. `None` if a claim does not name its policy.
    pub fn foreign_claims(&self) -> Option<Vec<ForeignClaim>> {
        foreign_claim::all(self.policy.as_deref(), self.cluster_policy.as_deref(), self.claim_ids.as_deref())
    }

    /// Returns what its list says about a deployment. A terminating companion has no users.
    pub fn listed(&self, user: &UserName) -> Listed {
        if self.terminating { Listed::No } else { self.users.listed(user) }
    }
}

/// Facts of a companion as one deployment sees it. Facts of its other users are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCompanion {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Creation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// What its list says about the deployment. [`Listed::No`] if the companion is terminating.
    #[serde(default)]
    pub listed: Listed,
    /// Why `referenced-by` takes no more names: the error of the hub's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// True if it was found to have the present content of its source.
    pub fresh: bool,
    /// PropagationPolicy that claims it.
    pub policy: Option<String>,
    /// ClusterPropagationPolicy that claims it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
    /// True if it is terminating.
    pub terminating: bool,
    /// Since when it has been terminating, and its finalizers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going: Option<Box<Going>>,
}

impl SharedCompanion {
    /// Returns the facts as `user` sees them. `copied`: uid of the companion that was found to have the source's present content.
    pub fn of(facts: &CompanionFacts, user: &UserName, copied: Option<&str>) -> Self {
        Self {
            uid: facts.uid.clone(),
            version: facts.version.clone(),
            created: facts.created,
            listed: facts.listed(user),
            full: None,
            fresh: copied == Some(&*facts.uid),
            policy: facts.policy.clone(),
            cluster_policy: facts.cluster_policy.clone(),
            terminating: facts.terminating,
            going: facts.going.clone(),
        }
    }
}

/// Returns the ClusterPropagationPolicy that claims an object or a binding: its name, or its id if no name is recorded (fact 67).
pub fn cluster_policy(meta: &ObjectMeta) -> Option<String> {
    let name = meta.annotations.as_ref().and_then(|all| all.get(annotation::CLUSTER_POLICY_NAME));
    name.or_else(|| meta.labels.as_ref()?.get(label::KARMADA_CLUSTER_CLAIM)).cloned()
}

/// Describes the finalizers that block deletion.
pub fn holders(finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        return "no finalizer, and its API server has not removed it yet".to_owned();
    }
    format!("the finalizers {}, which their owners must remove", finalizers.join(", "))
}
