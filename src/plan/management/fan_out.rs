//! Workload -> one WorkloadDeployment per placement and city.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::workload_status;
use crate::{
    api::{
        compute::{Placement, Workload, WorkloadDeployment},
        meta::{annotation, finalizer, label, manager},
        names::{self, CityCode},
        reason::Reason,
    },
    plan::{Plan, Project, Write, condition::Verdict, ownership},
};

/// Everything that is known about one Workload. All of it is known: the stores behind it are filled.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    /// The Workload.
    pub workload: &'a Workload,
    /// Deployments that name its uid, also those that only pretend to be part of it.
    pub deployments: &'a [Arc<WorkloadDeployment>],
    /// The deployment of this name in the Workload's namespace, whoever owns it.
    pub named: &'a dyn Fn(&str) -> Option<Arc<WorkloadDeployment>>,
    /// Cities that the project's LocationBindings open to it.
    pub bound: &'a BTreeSet<CityCode>,
    /// Uid of the Workload's namespace, when the namespace has been seen.
    pub namespace_uid: Option<&'a str>,
    /// Whether a Network of this name is in the Workload's namespace; only with the network feature.
    pub network_exists: Option<&'a dyn Fn(&str) -> bool>,
}

/// What a placement's cities come to.
#[derive(Debug, Default)]
pub struct PlacementOutcome {
    /// Deployments to have: name -> placement and city as written.
    pub wanted: BTreeMap<String, City>,
    /// Cities without a deployment, each with the reason, for the placement's condition.
    pub unbound: Vec<String>,
    /// What is wrong with the placement. While something is, nothing of it is made, changed or taken away.
    pub invalid: Vec<String>,
    /// Wanted names that belong to somebody else.
    pub conflicting: Vec<String>,
}

/// A city of a placement.
#[derive(Clone, Debug)]
pub struct City {
    /// As the user wrote it.
    pub written: String,
    /// In its one spelling.
    pub code: CityCode,
}

/// Decides the writes for one Workload.
///
/// The status is written only once the deployments are as they should be, so that `observedGeneration` never runs ahead.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan<Write<Project>> {
    let workload = observed.workload;
    // Anybody can write our uid into a spec; ours is what we control.
    let ours: Vec<_> =
        observed.deployments.iter().filter(|wd| ownership::is_controlled_by(wd.as_ref(), workload)).cloned().collect();
    let observed = &Observed { deployments: &ours, ..*observed };
    if workload.metadata.deletion_timestamp.is_some() {
        return delete(observed);
    }
    let mut writes: Vec<Write<Project>> = Vec::new();
    writes.extend(ensure_finalizer(workload));
    let missing = missing_networks(observed);
    if !missing.is_empty() {
        // Nothing is made for networks that are not there, and what runs is left alone.
        let text = format!("Unable to find networks: {}", missing.into_iter().collect::<Vec<_>>().join(", "));
        writes.extend(workload_status::blocked(workload, Verdict::no(Reason::NetworkNotFound, text), now));
        return Plan::writes(writes);
    }
    let outcomes = outcomes(observed);
    for (placement, outcome) in workload.spec.placements.iter().zip(&outcomes) {
        for (name, city) in &outcome.wanted {
            writes.extend(deployment(observed, placement, name, city));
        }
    }
    writes.extend(surplus(observed, &outcomes).into_iter().filter_map(|wd| Write::delete(wd)));
    if writes.is_empty() {
        writes.extend(workload_status(observed, &outcomes, now));
    }
    Plan::writes(writes)
}

/// Deployments first, the Workload's own finalizer when none is left. Their events bring us back.
fn delete(observed: &Observed<'_>) -> Plan<Write<Project>> {
    if observed.deployments.is_empty() {
        return Write::release(manager::WORKLOAD, finalizer::WORKLOAD, observed.workload).into_iter().collect();
    }
    observed.deployments.iter().filter_map(|wd| Write::delete(wd.as_ref())).collect()
}

/// Networks that the template names and the Workload's namespace has not. A reference's own namespace does not count.
fn missing_networks(observed: &Observed<'_>) -> BTreeSet<String> {
    let Some(exists) = observed.network_exists else { return BTreeSet::new() };
    let interfaces = &observed.workload.spec.template.spec.network_interfaces;
    interfaces.iter().map(|i| &i.network.name).filter(|name| !exists(name)).cloned().collect()
}

fn ensure_finalizer(workload: &Workload) -> Option<Write<Project>> {
    let fields = json!({ "metadata": { "finalizers": [finalizer::WORKLOAD] } });
    Write::ensure_fields(manager::WORKLOAD, fields, workload)
}

/// Judges each placement, in the order of the spec.
pub fn outcomes(observed: &Observed<'_>) -> Vec<PlacementOutcome> {
    let workload = observed.workload;
    let mut seen = BTreeSet::new();
    let placements = &workload.spec.placements;
    let mut outcomes: Vec<PlacementOutcome> = placements.iter().map(|placement| outcome(observed, placement)).collect();
    for (placement, outcome) in placements.iter().zip(&mut outcomes) {
        if !seen.insert(&placement.name) {
            outcome.invalid.push(format!("two placements are named {:?}: give each its own name", placement.name));
        }
    }
    // `a-b` in `c` and `a` in `b-c` would be one deployment.
    let mut names: BTreeMap<&String, &String> = BTreeMap::new();
    let mut clashes = Vec::new();
    for (index, (placement, outcome)) in placements.iter().zip(&outcomes).enumerate() {
        for name in outcome.wanted.keys() {
            if let Some(other) = names.insert(name, &placement.name).filter(|other| **other != placement.name) {
                clashes.push((
                    index,
                    format!(
                        "placements {other:?} and {:?} both make the deployment {name:?}: rename one",
                        placement.name
                    ),
                ));
            }
        }
    }
    for (index, clash) in clashes {
        outcomes[index].invalid.push(clash);
    }
    for outcome in &mut outcomes {
        if !outcome.invalid.is_empty() {
            outcome.wanted.clear();
        }
    }
    outcomes
}

fn outcome(observed: &Observed<'_>, placement: &Placement) -> PlacementOutcome {
    let mut outcome = PlacementOutcome::default();
    let workload = observed.workload.name_any();
    if workload.len() > names::MAX_LABEL {
        outcome.invalid.push(format!(
            "the workload's name has {} characters, {} is the limit",
            workload.len(),
            names::MAX_LABEL
        ));
    }
    if placement.city_codes.is_empty() {
        outcome.invalid.push("cityCodes is empty: name at least one city".into());
    }
    let mut cities = BTreeSet::new();
    for written in &placement.city_codes {
        let city = match CityCode::parse(written) {
            Ok(code) => City { written: written.clone(), code },
            Err(why) => {
                outcome.invalid.push(why);
                continue;
            }
        };
        if !cities.insert(city.code.clone()) {
            outcome.invalid.push(format!("city {:?} is listed twice: list each city once", city.code.as_str()));
            continue;
        }
        match names::deployment_name(&workload, &placement.name, &city.code) {
            Err(why) => outcome.invalid.push(why),
            Ok(name) => want(observed, &mut outcome, name, city),
        }
    }
    outcome
}

fn want(observed: &Observed<'_>, outcome: &mut PlacementOutcome, name: String, city: City) {
    let live = (observed.named)(&name);
    let ours = live.as_ref().map(|wd| ownership::is_controlled_by(wd.as_ref(), observed.workload));
    match (ours, observed.bound.contains(&city.code)) {
        (Some(false), _) => {
            outcome
                .conflicting
                .push(format!("a WorkloadDeployment {name:?} that belongs to somebody else is in the way"));
        }
        (None, false) => outcome
            .unbound
            .push(format!("{} is not available to this project (no LocationBinding has this city code)", city.written)),
        (Some(true), false) => {
            // Losing a binding must not stop what runs: the city keeps its deployment until the workload drops it.
            outcome.unbound.push(format!("{} is no longer available to this project (no LocationBinding has this city code); its deployment is kept", city.written));
            outcome.wanted.insert(name, city);
        }
        (_, true) => {
            outcome.wanted.insert(name, city);
        }
    }
}

/// Deployments of this Workload that no valid placement wants. Those of an invalid placement are left alone.
fn surplus<'a>(observed: &Observed<'a>, outcomes: &[PlacementOutcome]) -> Vec<&'a WorkloadDeployment> {
    let placements = &observed.workload.spec.placements;
    let invalid: BTreeSet<&String> =
        placements.iter().zip(outcomes).filter(|(_, f)| !f.invalid.is_empty()).map(|(p, _)| &p.name).collect();
    observed
        .deployments
        .iter()
        .map(Arc::as_ref)
        .filter(|wd| !invalid.contains(&wd.spec.placement_name))
        .filter(|wd| !outcomes.iter().any(|outcome| outcome.wanted.contains_key(&wd.name_any())))
        .collect()
}

fn deployment(observed: &Observed<'_>, placement: &Placement, name: &str, city: &City) -> Option<Write<Project>> {
    let workload = observed.workload;
    let live = (observed.named)(name);
    if live.as_ref().is_some_and(|wd| wd.metadata.deletion_timestamp.is_some()) {
        return None; // it is made anew when it is gone; its event brings us back
    }
    let mut template = workload.spec.template.clone();
    template.spec.controller = None; // the cell's to write, never the tenant's
    let mut fields = json!({
        "metadata": {
            "labels": { label::WORKLOAD_UID: workload.uid() },
            "ownerReferences": ownership::controller_reference(workload),
        },
        "spec": {
            "workloadRef": { "name": workload.name_any(), "uid": workload.uid() },
            "placementName": placement.name,
            "cityCode": city.written,
            "template": template,
            "scaleSettings": placement.scale_settings,
        },
    });
    if let Some(uid) = observed.namespace_uid {
        stamp(&mut fields, uid);
    }
    let namespace = workload.namespace().unwrap_or_default();
    Write::ensure(manager::WORKLOAD, &namespace, name, fields, live.as_deref())
}

/// What the federator would otherwise add in a write of its own.
fn stamp(fields: &mut Value, namespace_uid: &str) {
    fields["metadata"]["annotations"] =
        json!({ annotation::FEDERATION_NAMESPACE: names::hub_namespace(namespace_uid) });
    fields["metadata"]["finalizers"] = json!([finalizer::FEDERATOR]);
}

#[cfg(test)]
#[path = "fan_out_tests.rs"]
mod tests;
