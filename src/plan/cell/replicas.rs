//! Facts about a deployment and its Instances, which both the roll-out and the status use.

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

/// All facts about one deployment on its cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The deployment.
    pub deployment: Shared<WorkloadDeployment>,
    /// The Instances that the deployment controls.
    pub instances: Vec<Shared<Instance>>,
    /// Instances that have a name which this deployment uses, and that it does not control. Most belong to an earlier deployment
    /// of the same name, and still hold their quota.
    pub in_the_way: Vec<Shared<Instance>>,
    /// Names that this deployment uses, and that belong to undecodable Instances. Their owner and their template are unknown.
    #[serde(default)]
    pub unreadable: BTreeSet<String>,
    /// Features that hold Instances at a gate on this cell.
    pub features: Features,
    /// Networks of the deployment and of its Instances. Set only with the network feature.
    pub networks: Option<networks::Observed>,
    /// True if the last attempt at the writes failed. The reported failure is kept until an attempt succeeds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failing: bool,
    /// Intervals and limits of the operator.
    pub timing: Timing,
}

/// Returns the ordinal of the Instance with this name. `None` if the deployment wants no Instance of this name.
///
/// The caller asks for the place of each existing Instance, not for the Instance of each place: a deployment may request
/// `i32::MAX` replicas.
pub fn place_of(name: &str, deployment: &WorkloadDeployment) -> Option<u32> {
    let ordinal = names::instance_ordinal(name).filter(|ordinal| *ordinal < deployment.spec.desired_replicas())?;
    (name == names::instance_name(&deployment.name_any(), ordinal)).then_some(ordinal)
}

impl Observed {
    /// Returns the Instance of this name that the deployment does not control.
    pub(super) fn in_the_way_of(&self, name: &str) -> Option<&Instance> {
        self.in_the_way.iter().map(|instance| &**instance).find(|instance| instance.name_any() == name)
    }
}

/// True if an Instance is ready and not terminating.
pub(super) fn is_ready(instance: &Instance) -> bool {
    let says_ready = instance.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::READY));
    says_ready && instance.metadata.deletion_timestamp.is_none()
}

/// True if an Instance was made from another template.
pub(super) fn is_outdated(instance: &Instance, hash: &str) -> bool {
    instance.spec.controller.as_ref().is_none_or(|c| c.template_hash != hash)
}

/// True if the provider runs the current template: the Instance is programmed, and the provider has observed this template.
pub(super) fn is_current(instance: &Instance, hash: &str) -> bool {
    let Some(status) = &instance.status else { return false };
    let observed = status.controller.as_ref().map(|controller| controller.observed_template_hash.as_str());
    !is_outdated(instance, hash) && observed == Some(hash) && is_true(&status.conditions, condition::PROGRAMMED)
}
