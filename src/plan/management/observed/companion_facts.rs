//! Facts of a companion, and the part of them that one deployment sees.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::api::{
    meta::{annotation, label},
    referenced::{MANY_USERS, NO_USERS},
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
    /// Entries of its list of users: `<project namespace>/<deployment>`, [`MANY_USERS`] or [`NO_USERS`]. `None` if the annotation
    /// is unreadable.
    pub users: Option<BTreeSet<String>>,
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
            users: text(annotation::REFERENCED_BY)
                .map_or_else(|| Some(BTreeSet::new()), |text| serde_json::from_str(text).ok()),
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

    /// True if it has more users than its list can name. Then only the deployments show the users, and names in the list are
    /// ignored.
    pub fn has_many_users(&self) -> bool {
        self.users.as_ref().is_some_and(|users| users.contains(MANY_USERS))
    }

    /// True if its list does not name its users: there are too many, or none is known. Then the copies on the hub that expect the
    /// companion are checked.
    pub fn names_nobody(&self) -> bool {
        self.has_many_users() || self.users.as_ref().is_some_and(|users| users.contains(NO_USERS))
    }

    /// True if its users are unknown. Such a companion is kept and reported.
    pub fn has_no_known_user(&self) -> bool {
        self.users.as_ref().is_none_or(BTreeSet::is_empty)
    }

    /// True if `user` uses it, and it is not terminating. `needs_it`: the deployment refers to its source, or the deployment's
    /// copy on the hub expects it.
    pub fn is_used_by(&self, user: &str, needs_it: bool) -> bool {
        let named = || self.users.as_ref().is_some_and(|users| users.contains(user));
        !self.terminating && if self.has_many_users() { needs_it } else { named() }
    }
}

/// Why a deployment needs a companion. Annotations that the tenant wrote do not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    /// The deployment refers to the source.
    pub refers: bool,
    /// The deployment's copy on the hub expects the companion.
    pub promised: bool,
}

/// Facts of a companion as one deployment sees it. Facts of its other users are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct SharedCompanion {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Creation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// True if the deployment uses it, and the companion is not terminating.
    pub used: bool,
    /// True if it is assigned to the deployment: the list names the deployment, or the copy on the hub expects the companion. If
    /// the list is too long to name its users, a reference to the source is not sufficient.
    #[serde(default)]
    pub given: bool,
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
    /// Returns the facts as `user` sees them. `need`: why `user` needs the companion. `copied`: uid of the companion that was
    /// found to have the source's present content.
    pub fn of(facts: &CompanionFacts, user: &str, need: Need, copied: Option<&str>) -> Self {
        Self {
            uid: facts.uid.clone(),
            version: facts.version.clone(),
            created: facts.created,
            used: facts.is_used_by(user, need.refers || need.promised),
            given: facts.is_used_by(user, need.promised),
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
