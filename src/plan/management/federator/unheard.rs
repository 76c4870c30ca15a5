//! Deployments whose cluster has not answered for so long that nobody knows what becomes of them.
//!
//! What a cell last said stays in the counters. What it said of readiness is no longer known: once the cluster has been away
//! for [`Timing::cluster_silence`](crate::timing::Timing), that is said on the deployment, and from there on the Workload
//! and on the projections; until the cluster answers again.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;

use super::delivery::Delivery;
use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance, WorkloadDeployment},
        meta::condition,
        reason::Reason,
    },
    plan::condition::{Verdict, find},
};

/// What a deployment says while nothing is heard of it.
pub fn standing(deployment: &WorkloadDeployment) -> Option<&Condition> {
    let available = find(&deployment.status.as_ref()?.conditions, condition::AVAILABLE)?;
    (available.status == ConditionStatus::Unknown && available.reason() == Reason::ClusterNotReady).then_some(available)
}

/// Whether a finding says that no cluster that is to have the deployment answers.
pub(super) fn is_away(finding: Option<&Delivery>) -> bool {
    finding.is_some_and(|finding| unanswered(finding).is_some())
}

/// For how long a cluster has been away that is away: as it is remembered, or, by a manager that was started since, as the
/// deployment says.
pub(super) fn away_for(deployment: &WorkloadDeployment, remembered: Duration, now: Timestamp) -> Duration {
    let conditions = deployment.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let said = find(conditions, condition::FEDERATED)
        .filter(|said| said.status == ConditionStatus::False && said.reason() == Reason::ClusterNotReady);
    let since = said.and_then(|said| Duration::try_from(now.duration_since(said.last_transition_time.0)).ok());
    since.map_or(remembered, |since| since.max(remembered))
}

/// What is to be said of readiness in the place of what the cell last said: `lasts` says that the cluster has been away for
/// long. Once said it stays until something is heard again: what else keeps the deployment from being delivered, such as
/// the end of the Cluster's own object, brings no word of its instances, nor does what is not known, as after a start.
pub(super) fn verdict(deployment: &WorkloadDeployment, finding: Option<&Delivery>, lasts: bool) -> Option<Verdict> {
    let before = standing(deployment).map(|stands| Verdict::unknown(Reason::ClusterNotReady, stands.message.clone()));
    let Some(finding) = finding else { return before };
    let is_heard = matches!(finding, Delivery::Delivered { .. } | Delivery::Blocked { heard: true, .. });
    if is_heard {
        return None;
    }
    let Some(cause) = unanswered(finding).filter(|_| lasts || before.is_some()) else { return before };
    let text = format!("nothing is heard of its instances: {}", cause.message);
    Some(Verdict::unknown(Reason::ClusterNotReady, text))
}

fn unanswered(finding: &Delivery) -> Option<&Verdict> {
    match finding {
        Delivery::Blocked { cause, heard: false, .. } if cause.reason == Reason::ClusterNotReady => Some(cause),
        Delivery::Blocked { .. } | Delivery::Delivered { .. } => None,
    }
}

/// An Instance as its projection shows it: with what is known of its readiness.
pub(crate) fn shown<'a>(source: &'a Instance, deployment: &WorkloadDeployment) -> Cow<'a, Instance> {
    let Some(unheard) = standing(deployment) else { return Cow::Borrowed(source) };
    let mut shown = source.clone();
    let conditions = shown.status.iter_mut().flat_map(|status| &mut status.conditions);
    for ready in conditions.filter(|c| c.type_ == condition::READY) {
        *ready = Condition {
            type_: condition::READY.into(),
            observed_generation: ready.observed_generation,
            ..unheard.clone()
        };
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::compute::{InstanceSpec, WorkloadDeploymentSpec};
    use serde_json::{Value, json};

    fn deployment(status: &str, reason: &str) -> WorkloadDeployment {
        let mut wd = WorkloadDeployment::new("wd", WorkloadDeploymentSpec::default());
        let since = "2026-01-01T00:00:00Z";
        let available: Value = json!({ "type": "Available", "status": status, "reason": reason, "message": "m", "lastTransitionTime": since });
        wd.status = serde_json::from_value(json!({ "conditions": [available] })).unwrap();
        wd
    }

    fn blocked(reason: Reason, heard: bool) -> Delivery {
        let cause = Verdict::no(reason, "Cluster c is not ready");
        Delivery::Blocked { cause, data: false, silent: false, heard, repair: None }
    }

    #[test]
    fn only_a_cluster_that_is_away_for_long_takes_the_word_away_and_only_an_answer_gives_it_back() {
        let heard = deployment("True", "StableInstanceFound");
        let unheard = deployment("Unknown", "ClusterNotReady");
        let away = blocked(Reason::ClusterNotReady, false);
        let in_part = blocked(Reason::ClusterNotReady, true);
        let delivered = Delivery::Delivered { on: vec!["c".into()], note: None };
        for (wd, finding, lasts, said) in [
            (&heard, Some(&away), false, None),
            (&heard, Some(&away), true, Some("nothing is heard of its instances: Cluster c is not ready")),
            (&heard, Some(&in_part), true, None),
            (&heard, Some(&blocked(Reason::NotApplied, false)), true, None),
            (&heard, None, true, None),
            // It stays over a start of the manager, whose memory begins anew.
            (&unheard, Some(&away), false, Some("nothing is heard of its instances: Cluster c is not ready")),
            (&unheard, None, false, Some("m")),
            // What else keeps it from being delivered says nothing of its instances.
            (&unheard, Some(&blocked(Reason::NotApplied, false)), true, Some("m")),
            (&unheard, Some(&blocked(Reason::BindingMissing, false)), false, Some("m")),
            (&unheard, Some(&blocked(Reason::NotScheduled, false)), false, Some("m")),
            (&unheard, Some(&blocked(Reason::NoClusterForCity, false)), false, Some("m")),
            (&unheard, Some(&blocked(Reason::DependenciesNotPropagated, true)), false, None),
            (&unheard, Some(&in_part), true, None),
            (&unheard, Some(&delivered), true, None),
            (&deployment("Unknown", "Pending"), None, true, None),
        ] {
            let verdict = verdict(wd, finding, lasts);
            assert_eq!(verdict.as_ref().map(|verdict| &*verdict.message), said, "{finding:?}");
            assert!(verdict.is_none_or(|verdict| verdict.status == ConditionStatus::Unknown));
        }
    }

    #[test]
    fn a_start_of_the_manager_does_not_begin_the_wait_anew() {
        let federated = |status: &str, reason: &str| {
            let mut wd = deployment("True", "StableInstanceFound");
            let since = "2026-01-01T00:00:00Z";
            let federated = json!({ "type": "Federated", "status": status, "reason": reason, "message": "", "lastTransitionTime": since });
            wd.status.as_mut().unwrap().conditions.push(serde_json::from_value(federated).unwrap());
            wd
        };
        let seconds = Duration::from_secs;
        let now: Timestamp = "2026-01-01T00:01:40Z".parse().unwrap();
        for (wd, remembered, of_all) in [
            (federated("False", "ClusterNotReady"), 0, 100),
            (federated("False", "ClusterNotReady"), 130, 130),
            (federated("False", "NotApplied"), 5, 5),
            (federated("True", "Propagated"), 5, 5),
            (deployment("True", "StableInstanceFound"), 5, 5),
        ] {
            assert_eq!(away_for(&wd, seconds(remembered), now), seconds(of_all));
        }
        let before = "2025-12-31T00:00:00Z".parse().unwrap();
        assert_eq!(away_for(&federated("False", "ClusterNotReady"), seconds(5), before), seconds(5), "clocks differ");
    }

    #[test]
    fn a_projection_shows_of_readiness_what_is_known() {
        let mut source = Instance::new("wd-0", InstanceSpec::default());
        let since = "2026-01-01T00:00:00Z";
        source.status = serde_json::from_value(json!({ "conditions": [
            { "type": "Programmed", "status": "True", "reason": "Programmed", "message": "", "lastTransitionTime": since },
            { "type": "Ready", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": since, "observedGeneration": 3 },
        ]}))
        .unwrap();
        assert_eq!(*shown(&source, &deployment("True", "StableInstanceFound")), source);
        let shown = shown(&source, &deployment("Unknown", "ClusterNotReady"));
        let conditions = &shown.status.as_ref().unwrap().conditions;
        assert_eq!(conditions[0], source.status.as_ref().unwrap().conditions[0]);
        let ready = &conditions[1];
        assert_eq!(
            (&*ready.type_, ready.status, &*ready.reason),
            ("Ready", ConditionStatus::Unknown, "ClusterNotReady")
        );
        assert_eq!((&*ready.message, ready.observed_generation), ("m", Some(3)));
    }
}
