//! Whether Karmada has looked at a deployment's copy since that was written: what its binding does not say yet says nothing of
//! Karmada's settings before.

use kube::ResourceExt;

use super::facts::{BindingFacts, written};
use crate::api::compute::WorkloadDeployment;

/// Whether Karmada has made the binding anew of all that is written on the copy, its status aside. A status makes another
/// version of the copy, and none of the binding: `written_at` is the version of the copy's last other write. Where nobody has seen
/// that, the times tell, and within one second, that a status has come since.
pub(crate) fn is_of_latest(binding: &BindingFacts, copy: &WorkloadDeployment, written_at: Option<u64>) -> bool {
    let version = copy.resource_version().and_then(|version| version.parse().ok());
    let Some((seen, version)) = binding.seen.zip(version) else { return true };
    if seen >= version {
        return true;
    }
    if let Some(written) = written_at {
        return seen >= written;
    }
    // A repair among them: its entry has the server's time, while what it writes is by the clock of whoever repairs.
    let applied = written(&copy.metadata, None);
    let Some((changed, applied)) = binding.changed.zip(applied) else { return false };
    changed > applied || changed == applied && written(&copy.metadata, Some("status")) >= Some(applied)
}
