//! Deployments on a cluster that has not answered for long, so that their state is unknown.
//!
//! The counters keep the cell's last report. The readiness is unknown. Once the cluster has been away for
//! [`Timing::cluster_silence`](crate::timing::Timing), the deployment reports that, and its Workload and projections repeat it.
//! This ends when the cluster answers again.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;

use super::delivery::{Delivery, Karmada};
use crate::plan::management::observed::facts::BindingFacts;
use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance, WorkloadDeployment},
        meta::condition,
        reason::Reason,
    },
    plan::condition::{Verdict, find},
};

/// Causes for which Karmada sends a deployment to no cluster. No cell reports them.
const NOWHERE: [Reason; 2] = [Reason::NotScheduled, Reason::NoClusterForCity];

/// Returns the readiness that a deployment reports instead of its cell, while its cluster is silent or it is on no cluster.
pub fn standing(deployment: &WorkloadDeployment) -> Option<&Condition> {
    let available = find(&deployment.status.as_ref()?.conditions, condition::AVAILABLE)?;
    let is_ours = match available.status {
        ConditionStatus::Unknown => available.reason() == Reason::ClusterNotReady,
        ConditionStatus::False => NOWHERE.contains(&available.reason()),
        ConditionStatus::True => false,
    };
    is_ours.then_some(available)
}

/// True if Karmada has removed the deployment from every cluster, for example after an eviction. Then none of its Instances runs.
/// The copy keeps the last report of its cell.
pub(super) fn is_nowhere(finding: Option<&Delivery>, karmada: Option<&Karmada>) -> bool {
    let is_stated =
        matches!(finding, Some(Delivery::Blocked { cause, silent: false, .. }) if NOWHERE.contains(&cause.reason));
    let binding = karmada.and_then(|karmada| karmada.binding.as_ref());
    let is_gone = |binding: &BindingFacts| !binding.terminating && !binding.evicting && binding.clusters.is_empty();
    is_stated && binding.is_some_and(is_gone)
}

/// True if no cluster that should have the deployment answers.
pub(super) fn is_away(finding: Option<&Delivery>) -> bool {
    finding.is_some_and(|finding| unanswered(finding).is_some())
}

/// Returns how long the cluster has been away: the remembered time, or the longer time in the deployment's condition. A restarted
/// manager has only the condition.
pub(super) fn away_for(deployment: &WorkloadDeployment, remembered: Duration, now: Timestamp) -> Duration {
    let conditions = deployment.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let federated = find(conditions, condition::FEDERATED).filter(|federated| {
        federated.status == ConditionStatus::False && federated.reason() == Reason::ClusterNotReady
    });
    let since =
        federated.and_then(|federated| Duration::try_from(now.duration_since(federated.last_transition_time.0)).ok());
    since.map_or(remembered, |since| since.max(remembered))
}

/// Returns the verdict that replaces the cell's last report of readiness. `lasts`: the cluster has been away for long. The
/// verdict is kept until a cell reports again. Another cause that blocks the deployment, such as a deleted Cluster, brings no
/// news of its Instances. Neither does an unknown finding, as after a restart. `nowhere`: see [`is_nowhere`].
pub(super) fn verdict(
    deployment: &WorkloadDeployment,
    finding: Option<&Delivery>,
    lasts: bool,
    nowhere: bool,
) -> Option<Verdict> {
    let verdict = |stands: &Condition| Verdict {
        status: stands.status,
        reason: stands.reason(),
        message: stands.message.clone(),
    };
    let before = standing(deployment).map(verdict);
    if let Some(Delivery::Blocked { cause, .. }) = finding.filter(|_| nowhere) {
        let text = format!("none of its instances runs: {}", cause.message);
        return Some(Verdict::no(cause.reason.clone(), text));
    }
    let Some(finding) = finding else { return before };
    let is_heard = matches!(finding, Delivery::Delivered { .. } | Delivery::Blocked { heard: true, .. });
    if is_heard {
        return None;
    }
    let Some(cause) = unanswered(finding).filter(|_| lasts || before.is_some()) else { return before };
    let text = format!("the state of its instances is unknown: {}", cause.message);
    Some(Verdict::unknown(Reason::ClusterNotReady, text))
}

fn unanswered(finding: &Delivery) -> Option<&Verdict> {
    match finding {
        Delivery::Blocked { cause, heard: false, .. } if cause.reason == Reason::ClusterNotReady => Some(cause),
        Delivery::Blocked { .. } | Delivery::Delivered { .. } => None,
    }
}

/// Returns an Instance as its projection shows it, with its known readiness.
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
    fn cluster_away_for_long_makes_readiness_unknown_until_it_answers() {
        let heard = deployment("True", "StableInstanceFound");
        let unheard = deployment("Unknown", "ClusterNotReady");
        let away = blocked(Reason::ClusterNotReady, false);
        let in_part = blocked(Reason::ClusterNotReady, true);
        let delivered = Delivery::Delivered { on: vec!["c".into()], note: None };
        for (wd, finding, lasts, message) in [
            (&heard, Some(&away), false, None),
            (&heard, Some(&away), true, Some("the state of its instances is unknown: Cluster c is not ready")),
            (&heard, Some(&in_part), true, None),
            (&heard, Some(&blocked(Reason::NotApplied, false)), true, None),
            (&heard, None, true, None),
            // It is kept over a restart of the manager, which has no memory.
            (&unheard, Some(&away), false, Some("the state of its instances is unknown: Cluster c is not ready")),
            (&unheard, None, false, Some("m")),
            // Another cause that blocks the deployment says nothing about its Instances.
            (&unheard, Some(&blocked(Reason::NotApplied, false)), true, Some("m")),
            (&unheard, Some(&blocked(Reason::BindingMissing, false)), false, Some("m")),
            (&unheard, Some(&blocked(Reason::NotScheduled, false)), false, Some("m")),
            (&unheard, Some(&blocked(Reason::NoClusterForCity, false)), false, Some("m")),
            (&unheard, Some(&blocked(Reason::DependenciesNotPropagated, true)), false, None),
            (&unheard, Some(&in_part), true, None),
            (&unheard, Some(&delivered), true, None),
            (&deployment("Unknown", "Pending"), None, true, None),
        ] {
            let verdict = verdict(wd, finding, lasts, false);
            assert_eq!(verdict.as_ref().map(|verdict| &*verdict.message), message, "{finding:?}");
            assert!(verdict.is_none_or(|verdict| verdict.status == ConditionStatus::Unknown));
        }
    }

    /// An evicted deployment counted its Instances as ready while the taint was there.
    #[test]
    fn deployment_on_no_cluster_is_unavailable_until_a_cell_reports() {
        let karmada = |clusters: &[&str]| -> Karmada {
            let mut karmada: Karmada = serde_json::from_value(json!({
                "policy_lives": true, "phase": "Dependencies", "binding": null, "attached": {}, "clusters": {},
            }))
            .unwrap();
            let clusters: Vec<String> = clusters.iter().map(|name| (*name).to_owned()).collect();
            karmada.binding = Some(BindingFacts { clusters: clusters.into(), ..BindingFacts::default() });
            karmada
        };
        let evicting = |mut karmada: Karmada| {
            karmada.binding.as_mut().unwrap().evicting = true;
            karmada
        };
        let evicted = blocked(Reason::NotScheduled, false);
        let silent = |mut finding: Delivery| {
            if let Delivery::Blocked { silent, .. } = &mut finding {
                *silent = true;
            }
            finding
        };
        for (finding, karmada, nowhere) in [
            (evicted.clone(), karmada(&[]), true),
            (blocked(Reason::NoClusterForCity, false), karmada(&[]), true),
            (evicted.clone(), karmada(&["cell-dfw"]), false),
            (evicted.clone(), evicting(karmada(&[])), false),
            (silent(evicted.clone()), karmada(&[]), false),
            // The cluster may still run it.
            (blocked(Reason::ClusterNotReady, false), karmada(&[]), false),
        ] {
            assert_eq!(is_nowhere(Some(&finding), Some(&karmada)), nowhere, "{finding:?}");
        }
        let heard = deployment("True", "StableInstanceFound");
        let reported = verdict(&heard, Some(&evicted), false, true).unwrap();
        assert_eq!((reported.status, &reported.reason), (ConditionStatus::False, &Reason::NotScheduled));
        assert_eq!(reported.message, "none of its instances runs: Cluster c is not ready");
        let stands = deployment("False", "NotScheduled");
        assert_eq!(
            verdict(&stands, Some(&evicted), false, false).unwrap().status,
            ConditionStatus::False,
            "after a start"
        );
        let delivered = Delivery::Delivered { on: vec!["c".into()], note: None };
        assert!(verdict(&stands, Some(&delivered), false, false).is_none());
    }

    #[test]
    fn cluster_silence_is_counted_over_a_restart() {
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
    fn projection_of_a_silent_cluster_shows_unknown_readiness() {
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
