//! A Workload's status: sums over its deployments, and one condition for each placement that names the cause.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{placement::PlacementOutcome, refusal::Refusal, workload_events};
use crate::plan::management::{
    federator::{hub_trouble, unheard},
    readiness::{self, Instances, Readiness},
};
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
        Next, Plan, Project, Write,
        condition::{Verdict, find, is_true},
        limits,
    },
};

/// Plans the status, and the end of a tenant's grace. `ours`: the deployments that the Workload controls. `refused`: the writes
/// that the API server has just rejected. If there are any, the generation does not count as observed, until `Stalled` says that
/// the tenant has to act.
pub(super) fn workload_status(
    workload: &Workload,
    ours: &[&WorkloadDeployment],
    outcomes: &[PlacementOutcome],
    refused: &[&Refusal],
    grace: Duration,
    now: Timestamp,
) -> Plan<Write<Project>> {
    let empty = WorkloadStatus::default();
    let old = workload.status.as_ref().unwrap_or(&empty);
    let generation = workload.metadata.generation;
    let observed_generation = if refused.is_empty() { generation } else { old.observed_generation };
    let mut status = WorkloadStatus { observed_generation, ..WorkloadStatus::default() };
    let mut verdicts = Vec::new();
    // A status has at most this number of entries.
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
    // A terminating deployment counts until it is deleted, even if its placement was removed.
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
        // An unknown state of some deployments does not change the condition. It is added to the message, because most users read
        // only that.
        verdict.message.extend(hub_trouble::notes(ours.iter().copied()));
    }
    let of_scaling = autoscaling(workload).map(|verdict| (condition::AUTOSCALING_READY, verdict));
    let verdicts = [(condition::AVAILABLE, verdict)].into_iter().chain(of_scaling);
    status.conditions =
        verdicts.map(|(type_, verdict)| verdict.into_condition(&old.conditions, type_, generation, now)).collect();
    let readiness = readiness(workload, ours, outcomes, refused);
    let instances = Instances { ready: status.ready_replicas.into(), wanted: wanted(workload, ours, outcomes) };
    let (conditions, next) = readiness::conditions(&readiness, instances, &old.conditions, generation, grace, now);
    if !refused.is_empty() && readiness::is_stalled(&conditions) {
        let stays = readiness::is_stalled(&old.conditions) && old.updated_replicas == 0;
        observe_stalled(&mut status, generation, stays);
    }
    status.conditions.extend(conditions);
    reported(workload, &status, next, now)
}

/// Counts a generation as observed although its writes were rejected: kstatus compares `observedGeneration` before it reads
/// `Stalled`. No Instance counts as updated to that generation. `stays`: the status said so already.
fn observe_stalled(status: &mut WorkloadStatus, generation: Option<i64>, stays: bool) {
    if status.observed_generation == generation && !stays {
        return;
    }
    status.observed_generation = generation;
    (status.updated_replicas, status.current_replicas) = (0, 0);
    for placement in &mut status.placements {
        (placement.updated_replicas, placement.current_replicas) = (0, 0);
    }
}

/// Judges a Workload by its placements, its deployments, and the writes that were rejected.
fn readiness(
    workload: &Workload,
    ours: &[&WorkloadDeployment],
    outcomes: &[PlacementOutcome],
    refused: &[&Refusal],
) -> Readiness {
    let refusals = refused.iter().map(|refusal| {
        let name = refusal.object.name.clone();
        (name, Readiness::incomplete(Verdict::no(refusal.reason(), refusal.text())))
    });
    if workload.metadata.deletion_timestamp.is_some() {
        let leaving = ours.iter().map(|wd| readiness::of_leaving(wd, hub_trouble::standing(wd)));
        return Readiness::worst(refusals.chain(leaving)).of_deletion();
    }
    if workload.spec.placements.is_empty() {
        return Readiness::pending(Reason::NoAvailablePlacements, "spec.placements is empty");
    }
    let placements = || workload.spec.placements.iter().zip(outcomes);
    let all = placements().flat_map(|(placement, outcome)| of_placement(placement, outcome, ours));
    let is_judged = |(_, outcome): &(&Placement, &PlacementOutcome)| {
        outcome.invalid.is_empty() && outcome.exceeded.is_none() // otherwise it keeps its deployments
    };
    let kept: BTreeSet<&String> =
        placements().filter(|one| !is_judged(one)).map(|(placement, _)| &placement.name).collect();
    let wanted: BTreeSet<&String> = outcomes.iter().flat_map(|outcome| outcome.desired.keys()).collect();
    let surplus = ours.iter().filter(|wd| !kept.contains(&wd.spec.placement_name) && !wanted.contains(&wd.name_any()));
    let leaving = surplus.map(|wd| readiness::of_leaving(wd, hub_trouble::standing(wd)));
    Readiness::worst(refusals.chain(all).chain(leaving))
}

/// Judges one placement: its errors, its cities without a deployment, and its deployments. Each with the name of its object.
fn of_placement(
    placement: &Placement,
    outcome: &PlacementOutcome,
    ours: &[&WorkloadDeployment],
) -> Vec<(String, Readiness)> {
    let name = &placement.name;
    let error = |reason: Reason, text: String| (name.clone(), Readiness::incomplete(Verdict::no(reason, text)));
    if !outcome.invalid.is_empty() {
        return vec![error(Reason::InvalidPlacement, outcome.invalid.join("; "))];
    }
    if let Some(exceeded) = &outcome.exceeded {
        return vec![error(Reason::LimitExceeded, exceeded.clone())];
    }
    let mut all = Vec::new();
    if !outcome.conflicting.is_empty() {
        all.push(error(Reason::DeploymentNameTaken, outcome.conflicting.join("; ")));
    }
    // A city that is not available any more keeps its deployment.
    if outcome.desired.len() + outcome.conflicting.len() < placement.city_codes.len() {
        all.push((name.clone(), Readiness::incomplete(outcome.closed(outcome.unavailable.join("; ")))));
    }
    all.extend(outcome.desired.keys().map(|name| {
        let deployment = ours.iter().find(|wd| wd.name_any() == *name);
        let readiness = match deployment {
            None => Readiness::pending(Reason::Pending, "it is being created"),
            Some(wd) if wd.metadata.deletion_timestamp.is_some() => {
                return readiness::of_leaving(wd, hub_trouble::standing(wd));
            }
            Some(wd) => Readiness::reported_by(wd),
        };
        (name.clone(), readiness)
    }));
    all
}

/// Number of Instances that a Workload wants in all of its cities.
fn wanted(workload: &Workload, ours: &[&WorkloadDeployment], outcomes: &[PlacementOutcome]) -> i64 {
    let empty = WorkloadDeploymentStatus::default();
    let of_placement = |(placement, outcome): (&Placement, &PlacementOutcome)| -> i64 {
        let each = i64::from(placement.scale_settings.min_replicas.max(0));
        let deployments = outcome.desired.keys().filter_map(|name| ours.iter().find(|wd| wd.name_any() == *name));
        let counts = deployments.map(|wd| Instances::of(wd, wd.status.as_ref().unwrap_or(&empty)).wanted);
        let counts: Vec<i64> = counts.collect();
        let others = i64::try_from(placement.city_codes.len().saturating_sub(counts.len())).unwrap_or_default();
        counts.iter().fold(each.saturating_mul(others), |sum, count| sum.saturating_add(*count))
    };
    let counts = workload.spec.placements.iter().zip(outcomes).map(of_placement);
    counts.fold(0, i64::saturating_add)
}

/// Returns the condition for a Workload that asks for autoscaling.
fn autoscaling(workload: &Workload) -> Option<Verdict> {
    let asks = workload.spec.placements.iter().filter(|placement| placement.scale_settings.asks_for_autoscaling());
    let names: Vec<&str> = asks.map(|placement| placement.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        Verdict::no(
            Reason::AutoscalingNotServed,
            format!(
                "{}: maxReplicas or metrics ask for autoscaling, and this operator does not autoscale: each city starts \
                 with minReplicas, and an autoscaler in the cell may set spec.replicas of its WorkloadDeployment, from \
                 minReplicas to maxReplicas",
                names.join(", ")
            ),
        )
    })
}

/// Adds up the counters of several deployments. The sums saturate, because cells may report any number.
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

/// Returns the status of a deployment for its present generation. A status of an older generation still counts Instances, but
/// none of them as updated to the newest template.
fn report(deployment: &WorkloadDeployment) -> Option<WorkloadDeploymentStatus> {
    let mut status = deployment.report()?.clone();
    if status.observed_generation.is_some_and(|observed| Some(observed) < deployment.metadata.generation) {
        status.updated_replicas = 0;
        status.current_replicas = 0;
        status.desired_replicas = i32::try_from(deployment.spec.desired_replicas()).unwrap_or(i32::MAX);
    }
    Some(status)
}

/// Plans the status if the whole Workload is blocked: the counters stay, and the conditions report the cause.
pub(super) fn blocked(workload: &Workload, verdict: Verdict, grace: Duration, now: Timestamp) -> Plan<Write<Project>> {
    let mut status = workload.status.clone().unwrap_or_default();
    let generation = workload.metadata.generation;
    let mut readiness = Readiness::incomplete(verdict.clone());
    if workload.metadata.deletion_timestamp.is_some() {
        readiness = readiness.of_deletion();
    }
    let least = workload.spec.placements.iter().map(|placement| {
        let cities = i64::try_from(placement.city_codes.len()).unwrap_or(i64::MAX);
        i64::from(placement.scale_settings.min_replicas.max(0)).saturating_mul(cities)
    });
    let instances = Instances { ready: status.ready_replicas.into(), wanted: least.fold(0, i64::saturating_add) };
    let (judged, next) = readiness::conditions(&readiness, instances, &status.conditions, generation, grace, now);
    let condition = verdict.into_condition(&status.conditions, condition::AVAILABLE, generation, now);
    if readiness::is_stalled(&judged) {
        observe_stalled(&mut status, generation, false);
    }
    status.conditions.retain(|c| c.type_ != condition::AVAILABLE && !readiness::TYPES.contains(&&*c.type_));
    status.conditions.push(condition);
    status.conditions.extend(judged);
    reported(workload, &status, next, now)
}

/// Plans the write of a status, with the Event that reports its news.
fn reported(workload: &Workload, status: &WorkloadStatus, next: Next, now: Timestamp) -> Plan<Write<Project>> {
    let write = Write::status(manager::WORKLOAD, &json!(status), workload);
    let write = write.map(|write| workload_events::tells(write, workload, &status.conditions, now));
    Plan::until(write.into_iter().collect(), next)
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
            _ => " (its deployments are not changed)",
        };
        return Verdict::no(Reason::InvalidPlacement, format!("{}{kept}", outcome.invalid.join("; ")));
    }
    if let Some(exceeded) = &outcome.exceeded {
        let effect = match deployments.count() {
            0 => "No deployment is created",
            _ => "Its deployments keep running and are not changed",
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
        return outcome.closed(notes(String::new()));
    }
    // A deployment that never reached its cell has only the hub's condition. Otherwise the cell's condition comes first.
    let types = [condition::AVAILABLE, condition::REFERENCED_DATA_READY, condition::FEDERATED];
    let deployments_unheard = deployments.clone().any(|wd| unheard::standing(wd).is_some());
    let worst = deployments
        .flat_map(|wd| types.iter().rev().filter_map(move |type_| Some((wd.name_any(), find(conditions(wd), type_)?))))
        .filter(|(_, c)| c.status != ConditionStatus::True)
        .max_by_key(|(name, c)| (c.reason().rank(), Reverse(name.clone())));
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

/// Adds the failed writes that concern no placement to the verdict on the whole Workload.
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
    // The worst placement is reported even if another one is available, because most users read only this condition. Of equal
    // ranks the first name is reported, as in `Ready`.
    let bad = placements.iter().filter(|(_, v)| v.status != ConditionStatus::True);
    let worst = bad.max_by_key(|(name, v)| (v.reason.rank(), Reverse(*name)));
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
