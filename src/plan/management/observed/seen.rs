//! Checks whether Karmada has processed a deployment's copy since its last write. Before that, data missing in the binding proves
//! nothing about Karmada's settings.

use kube::ResourceExt;

use super::facts::{BindingFacts, written};
use crate::api::compute::WorkloadDeployment;

/// True if Karmada has updated the binding from everything written on the copy, except the status. A status write changes the
/// copy's version, and leaves the binding as it is. `written_at` is the version of the copy's last other write. If it is unknown,
/// the timestamps decide. Within the same second, a status written since then decides.
pub(crate) fn is_of_latest(binding: &BindingFacts, copy: &WorkloadDeployment, written_at: Option<u64>) -> bool {
    let version = copy.resource_version().and_then(|version| version.parse().ok());
    let Some((seen, version)) = binding.seen.zip(version) else { return true };
    if seen >= version {
        return true;
    }
    if let Some(written) = written_at {
        return seen >= written;
    }
    // A repair counts too. Its managed-fields entry has the server's time, and its annotation has the operator's time.
    let applied = written(&copy.metadata, None);
    let Some((changed, applied)) = binding.changed.zip(applied) else { return false };
    changed > applied || changed == applied && written(&copy.metadata, Some("status")) >= Some(applied)
}
