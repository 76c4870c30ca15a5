//! What is known of a deployment and its Instances, and what both the roll-out and the status read off it.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::{Features, networks};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::condition,
        names,
    },
    plan::{Shared, condition::is_true},
    timing::Timing,
};

/// Everything that is known about one deployment on its cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The deployment.
    pub deployment: Shared<WorkloadDeployment>,
    /// The Instances that it controls.
    pub instances: Vec<Shared<Instance>>,
    /// Instances under names that it makes, which it does not control: of an earlier deployment of its name, mostly, that
    /// have not let go of their quota yet.
    pub in_the_way: Vec<Shared<Instance>>,
    /// Names under which it makes Instances where there are some that cannot be read: whose they are is not known, and what
    /// they run on neither.
    #[serde(default)]
    pub unreadable: BTreeSet<String>,
    /// What this cell gates on.
    pub features: Features,
    /// Its networks, and those of its Instances; only with the network feature.
    pub networks: Option<networks::Observed>,
    /// True if the last attempt at its writes failed: what is reported of that stands until one succeeds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failing: bool,
    /// How long to wait for what.
    pub timing: Timing,
}

/// The place of what has this name among the Instances that a deployment is to have; nothing where it is none of their names.
///
/// What is there is asked for its place, and not each place for what is there: a deployment may ask for as many as there are
/// numbers.
pub fn place_of(name: &str, deployment: &WorkloadDeployment) -> Option<u32> {
    let ordinal = names::instance_ordinal(name).filter(|ordinal| *ordinal < deployment.spec.desired_replicas())?;
    (name == names::instance_name(&deployment.name_any(), ordinal)).then_some(ordinal)
}

impl Observed {
    /// What stands in the place of the Instance with this name, and is not the deployment's.
    pub(super) fn in_the_way_of(&self, name: &str) -> Option<&Instance> {
        self.in_the_way.iter().map(|instance| &**instance).find(|instance| instance.name_any() == name)
    }
}

/// Whether an Instance serves, and goes on serving.
pub(super) fn is_ready(instance: &Instance) -> bool {
    let says_ready = instance.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::READY));
    says_ready && instance.metadata.deletion_timestamp.is_none()
}

/// Whether an Instance was made from another template.
pub(super) fn is_outdated(instance: &Instance, hash: &str) -> bool {
    instance.spec.controller.as_ref().is_none_or(|c| c.template_hash != hash)
}

/// Whether the provider runs what an Instance is now: it is programmed, and from this very template.
pub(super) fn is_current(instance: &Instance, hash: &str) -> bool {
    let Some(status) = &instance.status else { return false };
    let observed = status.controller.as_ref().map(|controller| controller.observed_template_hash.as_str());
    !is_outdated(instance, hash) && observed == Some(hash) && is_true(&status.conditions, condition::PROGRAMMED)
}
