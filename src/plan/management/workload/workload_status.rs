//! A Workload's status: sums over its deployments, and one condition per placement that names what is missing.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{placement::PlacementOutcome, refusal::Refusal};
use crate::plan::management::federator::{hub_trouble, unheard};
use crate::{
    api::{
        compute::{
            ConditionStatus, Placement, PlacementStatus, Workload, WorkloadDeployment, WorkloadDeploymentStatus,
            WorkloadStatus,
        },
        meta::{condition, manager},
        reason::Reason,
    },
    plan::{
        Project, Write,
        condition::{Verdict, find, is_true},
        limits,
    },
};

/// The status to write, or nothing when it stands already. `ours`: the deployments that the Workload controls. `refused`:
/// what the API server has just refused; while there is something, the generation does not count as observed.
pub(super) fn workload_status(
    workload: &Workload,
    ours: &[&WorkloadDeployment],
    outcomes: &[PlacementOutcome],
    refused: &[&Refusal],
    now: Timestamp,
) -> Option<Write<Project>> {
    let empty = WorkloadStatus::default();
    let old = workload.status.as_ref().unwrap_or(&empty);
    let generation = workload.metadata.generation;
    let observed_generation = if refused.is_empty() { generation } else { old.observed_generation };
    let mut status = WorkloadStatus { observed_generation, ..WorkloadStatus::default() };
    let mut verdicts = Vec::new();
    // No status is written that has more entries than that.
    for (placement, outcome) in workload.spec.placements.iter().zip(outcomes).take(limits::MAX_PLACEMENTS) {
        let deployments = || ours.iter().copied().filter(|wd| wd.spec.placement_name == placement.name);
        let refused: Vec<&Refusal> = refused.iter().copied().filter(|refusal| refusal.is_of(outcome)).collect();
        let verdict = placement_verdict(placement, outcome, deployments(), &refused);
        let sums = sum(deployments());
        let mut sums = PlacementStatus {
            name: placement.name.clone(),
            conditions: Vec::new(),
            replicas: sums.replicas,
            current_replicas: sums.current_replicas,
            desired_replicas: sums.desired_replicas,
            ready_replicas: sums.ready_replicas,
            updated_replicas: sums.updated_replicas,
        };
        let before = old.placements.iter().find(|p| p.name == placement.name).map_or(&[][..], |p| &p.conditions);
        sums.conditions = vec![verdict.clone().into_condition(before, condition::AVAILABLE, generation, now)];
        status.placements.push(sums);
        verdicts.push((placement.name.as_str(), verdict));
    }
    // A deployment on its way out counts until it is gone, also when its placement went with it.
    status.deployments = i32::try_from(ours.len()).unwrap_or(i32::MAX);
    let sums = sum(ours.iter().copied());
    status.replicas = sums.replicas;
    status.current_replicas = sums.current_replicas;
    status.desired_replicas = sums.desired_replicas;
    status.ready_replicas = sums.ready_replicas;
    status.updated_replicas = sums.updated_replicas;
    let of_none = refused.iter().filter(|refusal| !outcomes.iter().any(|outcome| refusal.is_of(outcome)));
    let mut verdict = with_refusals(workload_verdict(&verdicts), of_none.copied());
    if verdict.status == ConditionStatus::True {
        // What is not known of some that are available changes nothing else, and most people look no further.
        verdict.message.extend(hub_trouble::notes(ours.iter().copied()));
    }
    let of_scaling = autoscaling(workload).map(|verdict| (condition::AUTOSCALING_READY, verdict));
    let verdicts = [(condition::AVAILABLE, verdict)].into_iter().chain(of_scaling);
    status.conditions =
        verdicts.map(|(type_, verdict)| verdict.into_condition(&old.conditions, type_, generation, now)).collect();
    Write::status(manager::WORKLOAD, &json!(status), workload)
}

/// What is said to a Workload that asks for autoscaling.
fn autoscaling(workload: &Workload) -> Option<Verdict> {
    let asks = workload.spec.placements.iter().filter(|placement| placement.scale_settings.asks_for_autoscaling());
    let names: Vec<&str> = asks.map(|placement| placement.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        Verdict::no(
            Reason::AutoscalingNotServed,
            format!(
                "{}: maxReplicas or metrics ask for autoscaling, and this operator does not scale by itself: each city \
                 begins with minReplicas, and spec.replicas of its WorkloadDeployment in the cell is left to whoever scales \
                 it there, from minReplicas to maxReplicas",
                names.join(", ")
            ),
        )
    })
}

/// The counters of several deployments, added up as far as a counter goes: cells report them, whatever they are.
fn sum<'a>(deployments: impl Iterator<Item = &'a WorkloadDeployment>) -> WorkloadDeploymentStatus {
    deployments.filter_map(report).fold(WorkloadDeploymentStatus::default(), |mut sums, status| {
        sums.replicas = sums.replicas.saturating_add(status.replicas);
        sums.current_replicas = sums.current_replicas.saturating_add(status.current_replicas);
        sums.desired_replicas = sums.desired_replicas.saturating_add(status.desired_replicas);
        sums.ready_replicas = sums.ready_replicas.saturating_add(status.ready_replicas);
        sums.updated_replicas = sums.updated_replicas.saturating_add(status.updated_replicas);
        sums
    })
}

/// What a deployment's status says of its present generation. Of an older one it still says what runs, but nothing of
/// that is on the newest template.
fn report(deployment: &WorkloadDeployment) -> Option<WorkloadDeploymentStatus> {
    let mut status = deployment.status.clone()?;
    if status.observed_generation.is_some_and(|observed| Some(observed) < deployment.metadata.generation) {
        status.updated_replicas = 0;
        status.current_replicas = 0;
        status.desired_replicas = i32::try_from(deployment.spec.desired_replicas()).unwrap_or(i32::MAX);
    }
    Some(status)
}

/// The status to write when something holds the whole Workload up: the counters stay, the condition says what it is.
pub(super) fn blocked(workload: &Workload, verdict: Verdict, now: Timestamp) -> Option<Write<Project>> {
    let mut status = workload.status.clone().unwrap_or_default();
    let condition = verdict.into_condition(&status.conditions, condition::AVAILABLE, workload.metadata.generation, now);
    status.conditions.retain(|c| c.type_ != condition::AVAILABLE);
    status.conditions.push(condition);
    Write::status(manager::WORKLOAD, &json!(status), workload)
}

fn placement_verdict<'a>(
    placement: &Placement,
    outcome: &PlacementOutcome,
    deployments: impl Iterator<Item = &'a WorkloadDeployment> + Clone,
    refused: &[&Refusal],
) -> Verdict {
    let notes = |first: String| -> String {
        let refused = refused.iter().map(|refusal| refusal.text());
        let all = [first].into_iter().chain(refused).chain(outcome.unavailable.iter().cloned());
        all.filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ")
    };
    if !outcome.invalid.is_empty() {
        let kept = match deployments.count() {
            0 => "",
            _ => " (its deployments are left as they are)",
        };
        return Verdict::no(Reason::InvalidPlacement, format!("{}{kept}", outcome.invalid.join("; ")));
    }
    if let Some(exceeded) = &outcome.exceeded {
        let effect = match deployments.count() {
            0 => "No deployment is created",
            _ => "Its deployments run on and are not changed",
        };
        return Verdict::no(Reason::LimitExceeded, format!("{exceeded}. {effect}"));
    }
    if !outcome.conflicting.is_empty() {
        return Verdict::no(Reason::DeploymentNameTaken, notes(outcome.conflicting.join("; ")));
    }
    let conditions = |wd: &'a WorkloadDeployment| wd.status.as_ref().map_or(&[][..], |s| &s.conditions);
    let available = deployments.clone().filter(|wd| is_true(conditions(wd), condition::AVAILABLE)).count();
    if available > 0 {
        let mut text = format!("{available} of {} deployments are available", placement.city_codes.len());
        let silent = deployments.clone().filter_map(|wd| Some((wd.name_any(), unheard::standing(wd)?)));
        text.extend(silent.map(|(name, unheard)| format!("; {name}: {}", unheard.message)));
        return Verdict::yes(Reason::AvailableDeploymentFound, notes(text));
    }
    if let Some(refusal) = refused.first() {
        return Verdict::no(refusal.reason(), notes(String::new()));
    }
    if outcome.desired.is_empty() && !outcome.unavailable.is_empty() {
        return Verdict::no(Reason::NoMatchingLocations, notes(String::new()));
    }
    // A deployment that never reached its cell has nothing but the hub's word; the cell's own comes first otherwise.
    let types = [condition::AVAILABLE, condition::REFERENCED_DATA_READY, condition::FEDERATED];
    let deployments_unheard = deployments.clone().any(|wd| unheard::standing(wd).is_some());
    let worst = deployments
        .flat_map(|wd| types.iter().rev().filter_map(move |type_| Some((wd.name_any(), find(conditions(wd), type_)?))))
        .filter(|(_, c)| c.status != ConditionStatus::True)
        .max_by_key(|(name, c)| (c.reason().rank(), std::cmp::Reverse(name.clone())));
    match worst {
        Some((name, c)) if c.reason().rank() > 1 => {
            let unheard =
                deployments_unheard && c.reason() == Reason::ClusterNotReady || c.reason() == Reason::HubUnavailable;
            let status = if unheard { ConditionStatus::Unknown } else { ConditionStatus::False };
            Verdict { status, reason: c.reason(), message: notes(format!("{name}: {}", c.message)) }
        }
        Some((name, c)) => Verdict::no(Reason::NoAvailableDeployments, notes(format!("{name}: {}", c.message))),
        None => Verdict::no(Reason::NoAvailableDeployments, notes("no deployment has reported yet".into())),
    }
}

/// A verdict on the whole Workload, and what was refused that no placement speaks of.
fn with_refusals<'a>(verdict: Verdict, refused: impl Iterator<Item = &'a Refusal>) -> Verdict {
    refused.fold(verdict, |verdict, refusal| {
        let message = format!("{}; {}", verdict.message, refusal.text());
        let reason = refusal.reason();
        if verdict.status != ConditionStatus::True && reason.rank() > verdict.reason.rank() {
            Verdict::no(reason, message)
        } else {
            Verdict { message, ..verdict }
        }
    })
}

fn workload_verdict(placements: &[(&str, Verdict)]) -> Verdict {
    let available = placements.iter().filter(|(_, v)| v.status == ConditionStatus::True).count();
    // What a placement cannot do is said here too, also when another one is available: most people look no further.
    let worst =
        placements.iter().filter(|(_, v)| v.status != ConditionStatus::True).max_by_key(|(_, v)| v.reason.rank());
    match worst {
        None if placements.is_empty() => {
            Verdict::no(Reason::NoAvailablePlacements, "spec.placements is empty: add one with the cities to run in")
        }
        None => Verdict::yes(
            Reason::AvailablePlacementFound,
            format!("{available} of {} placements are available", placements.len()),
        ),
        Some((name, verdict)) if available > 0 => Verdict::yes(
            Reason::AvailablePlacementFound,
            format!("{available} of {} placements are available; {name}: {}", placements.len(), verdict.message),
        ),
        Some((name, verdict)) => {
            let reason = match verdict.reason.rank() {
                0 | 1 => Reason::NoAvailablePlacements,
                _ => verdict.reason.clone(),
            };
            Verdict { status: verdict.status, reason, message: format!("{name}: {}", verdict.message) }
        }
    }
}
