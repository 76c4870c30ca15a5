//! A copy on the hub whose original is gone: a request of ours that was under way while the original was let go has made
//! it anew.

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::{
    api::{compute::WorkloadDeployment, names},
    plan::{Hub, Object, Plan, Project, Proof, Shared, Step, Write, ownership},
};

/// What is known of a copy whose original no cache has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The project's namespace.
    pub namespace: String,
    /// Its uid.
    pub namespace_uid: String,
    /// The copy.
    pub copy: Shared<WorkloadDeployment>,
}

/// The copy goes, once a live read has found no original.
///
/// Only within a project namespace that still is the very one the hub namespace was named after: of another one (a
/// project rebuilt, a kubeconfig gone astray) the absence of an original says nothing. Nothing of it depends on the time.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Step<Project, Hub>> {
    let Observed { namespace, namespace_uid, copy } = observed;
    let same = copy.namespace().as_deref() == Some(&*names::hub_namespace(namespace_uid));
    if !same || !ownership::is_hub_copy_from(copy, namespace) {
        return Plan::nothing();
    }
    let original = Object::named::<WorkloadDeployment>(namespace, &copy.name_any());
    Proof::read(Write::confirm_absent(original), Step::Local).delete(&**copy, Step::Remote).into_iter().collect()
}
