//! The last delivery of a deployment, recorded in its status. By this record even a manager that has just started can distinguish
//! a lost object from a pending one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{
        compute::{LastDelivery, WorkloadDeployment},
        meta::annotation,
        referenced::DataRef,
    },
    plan::{condition::whole_seconds, management::observed::facts::SharedCompanion, references::annotated},
};

/// Returns the last delivery of this copy, if the deployment's status records one.
pub fn of(deployment: &WorkloadDeployment, copy: &WorkloadDeployment) -> Option<LastDelivery> {
    let recorded = deployment.status.as_ref().and_then(|status| status.last_delivery.clone());
    let delivery = recorded.or_else(|| before_the_field::read(deployment, copy))?;
    (Some(&delivery.copy_uid) == copy.metadata.uid.as_ref()).then_some(delivery)
}

/// Returns the delivery to record once everything that the copy lists has arrived on these clusters.
///
/// The recorded delivery is kept, and costs no write, while the copy, its clusters and its data are the same, and no companion
/// was recreated.
pub(super) fn now(
    recorded: Option<LastDelivery>,
    copy: &WorkloadDeployment,
    clusters: &[String],
    companions: &BTreeMap<DataRef, SharedCompanion>,
    now: Timestamp,
) -> LastDelivery {
    let listed = annotated(copy, annotation::EXPECTED_REFERENCED_DATA);
    // The hub's clock may be ahead of ours.
    let newest = listed.iter().filter_map(|data_ref| companions.get(data_ref)?.created).max();
    let new = LastDelivery {
        copy_uid: copy.uid().unwrap_or_default(),
        clusters: clusters.to_vec(),
        data: listed.iter().map(ToString::to_string).collect(),
        time: whole_seconds(newest.map_or(now, |newest| newest.max(now))),
    };
    let holds = |recorded: &LastDelivery| {
        newest.is_none_or(|newest| newest <= recorded.time.0)
            && LastDelivery { time: recorded.time.clone(), ..new.clone() } == *recorded
    };
    recorded.filter(holds).unwrap_or(new)
}

/// True if the delivery was on these clusters, or if its clusters are unknown.
pub(super) fn was_on(delivery: &LastDelivery, clusters: &[String]) -> bool {
    delivery.clusters.is_empty() || delivery.clusters == clusters
}

/// True if this ConfigMap or Secret was part of the delivery.
pub(super) fn had(delivery: &LastDelivery, data_ref: &DataRef) -> bool {
    let name = data_ref.to_string();
    delivery.data.contains(&name)
}

/// Deliveries of releases that did not record them, read from the messages of those releases. It can be deleted one release after
/// the first that records deliveries: every deployment has been reconciled by then.
mod before_the_field {
    use kube::ResourceExt;

    use crate::{
        api::{
            compute::{ConditionStatus, LastDelivery, WorkloadDeployment},
            meta::{annotation, condition},
            reason::Reason,
        },
        plan::{condition::find, references::annotated},
    };

    pub(super) fn read(deployment: &WorkloadDeployment, copy: &WorkloadDeployment) -> Option<LastDelivery> {
        let conditions = &deployment.status.as_ref()?.conditions;
        let federated = find(conditions, condition::FEDERATED)?;
        let time = federated.last_transition_time.clone();
        // The message does not name the copy.
        if copy.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 > time.0) {
            return None;
        }
        let message = match federated.status {
            ConditionStatus::True => &federated.message[..],
            // The state before an outage of the hub.
            _ => federated.message.split_once("; last known: ")?.1,
        };
        let place = message.split("; ").next().unwrap_or_default();
        let clusters = place.strip_suffix(" has what the hub was given").unwrap_or_default();
        let listed = annotated(copy, annotation::EXPECTED_REFERENCED_DATA);
        let ready = find(conditions, condition::REFERENCED_DATA_READY);
        let had_arrived = ready.is_some_and(|ready| match ready.reason() {
            Reason::Ready => {
                let all = format!("All {} referenced companion(s) are materialised", listed.len());
                ready.message.split("; ").next() == Some(&*all)
            }
            Reason::Resolving | Reason::AwaitingPropagation => false,
            // A source that cannot be copied holds back new data, and the copy lists the data from before.
            _ => true,
        });
        let data = listed.iter().map(ToString::to_string).filter(|_| had_arrived).collect();
        let clusters = clusters.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(LastDelivery { copy_uid: copy.uid().unwrap_or_default(), clusters, data, time })
    }
}

#[cfg(test)]
#[path = "last_delivery_tests.rs"]
mod tests;
