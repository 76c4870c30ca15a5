//! What is kept of a companion, and what of it one deployment sees.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::api::{
    meta::{annotation, label},
    referenced::{MANY_USERS, NO_USERS},
};
use crate::plan::management::referenced_data::foreign_claim::{self, ClaimIds, ForeignClaim};

/// What is known of an object that is on its way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Going {
    /// Since when.
    pub since: Timestamp,
    /// What it waits for.
    pub finalizers: Vec<String>,
}

impl Going {
    /// From an object's metadata; nothing of one that stays.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let since = meta.deletion_timestamp.as_ref()?.0;
        Some(Self { since, finalizers: meta.finalizers.clone().unwrap_or_default() })
    }

    /// For how long.
    pub fn lasted(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.since)).unwrap_or_default()
    }
}

/// What is kept of a companion: its metadata alone is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanionFacts {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The entries of its list of users: `<project namespace>/<deployment>`, or [`MANY_USERS`], or
    /// [`NO_USERS`]. `None` when the annotation cannot be read.
    pub users: Option<BTreeSet<String>>,
    /// Name of the PropagationPolicy that claims it; none should (fact 21).
    pub policy: Option<String>,
    /// The ClusterPropagationPolicy that claims it; none should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
    /// The ids of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ids: Option<Box<ClaimIds>>,
    /// Whether it is on its way out.
    pub terminating: bool,
    /// The same, with what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going: Option<Box<Going>>,
}

impl CompanionFacts {
    /// From a companion's metadata.
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

    /// Whether a policy claims it.
    pub fn is_claimed(&self) -> bool {
        self.policy.is_some() || self.cluster_policy.is_some()
    }

    /// The claims of policies that are not a city's; `None` where one names no policy.
    pub fn foreign_claims(&self) -> Option<Vec<ForeignClaim>> {
        foreign_claim::all(self.policy.as_deref(), self.cluster_policy.as_deref(), self.claim_ids.as_deref())
    }

    /// Whether it has more users than it names: who they are is to be seen on the deployments alone, and no name that stands
    /// there nevertheless says anything.
    pub fn has_many_users(&self) -> bool {
        self.users.as_ref().is_some_and(|users| users.contains(MANY_USERS))
    }

    /// Whether its list does not say who its users are: there are too many, or nobody is known to be one. Then the copies on the
    /// hub that have been promised it are to be looked at.
    pub fn names_nobody(&self) -> bool {
        self.has_many_users() || self.users.as_ref().is_some_and(|users| users.contains(NO_USERS))
    }

    /// True if nobody can say who uses it: it is kept, and reported.
    pub fn has_no_known_user(&self) -> bool {
        self.users.as_ref().is_none_or(BTreeSet::is_empty)
    }

    /// Whether this is one of its users, and it stays. `needs_it`: whether the deployment refers to its source, or its copy
    /// on the hub has been promised it.
    pub fn is_used_by(&self, user: &str, needs_it: bool) -> bool {
        let named = || self.users.as_ref().is_some_and(|users| users.contains(user));
        !self.terminating && if self.has_many_users() { needs_it } else { named() }
    }
}

/// Why a deployment needs a companion, whatever its tenant has written on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    /// It refers to the source.
    pub refers: bool,
    /// Its copy on the hub has been promised the companion.
    pub promised: bool,
}

/// What one deployment sees of a companion. Of the others that use it, nothing is gathered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct SharedCompanion {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Whether the deployment is one of its users, and the companion stays.
    pub used: bool,
    /// Whether it has been given to the deployment: that has its name in the list, or its copy on the hub has been promised it.
    /// Where the list names nobody, to refer to the source is not enough for that.
    #[serde(default)]
    pub given: bool,
    /// Why `referenced-by` takes no more names, in the words of the hub's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// Whether it has been seen to have what its source has now.
    pub fresh: bool,
    /// Name of the PropagationPolicy that claims it.
    pub policy: Option<String>,
    /// The ClusterPropagationPolicy that claims it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
    /// Whether it is on its way out.
    pub terminating: bool,
    /// The same, with what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going: Option<Box<Going>>,
}

impl SharedCompanion {
    /// As `user` sees it, who needs it so. `copied`: uid of the companion that was seen to have what the source has now.
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

/// The ClusterPropagationPolicy that claims an object or a binding: its name, or its id where no name stands (fact 67).
pub fn cluster_policy(meta: &ObjectMeta) -> Option<String> {
    let name = meta.annotations.as_ref().and_then(|all| all.get(annotation::CLUSTER_POLICY_NAME));
    name.or_else(|| meta.labels.as_ref()?.get(label::KARMADA_CLUSTER_CLAIM)).cloned()
}

/// Who keeps an object from going that is on its way out, as what it has: these finalizers.
pub fn holders(finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        return "no finalizer, and its API server has not removed it yet".to_owned();
    }
    format!("the finalizers {}, which whoever set them is to remove", finalizers.join(", "))
}
