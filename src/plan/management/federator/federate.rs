//! A project's WorkloadDeployment -> its copy on the hub, and the copy's status -> the project.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    blocked::{Case, State},
    diagnosis::{self, Delivery, Evidence, Repair},
    federation_status::{self as status, CellReport},
    hub_form,
    hub_trouble::{self, Cause},
    last_delivery,
};
pub use super::{
    repair::Blocked,
    snapshot::{Decided, HiddenCopy, Observed, Outage, Signal, Unshown, copy_namespace},
};
use crate::plan::management::{
    observed::replicas,
    projects::rival::Rival,
    referenced_data::resolve::{self, Data},
};
use crate::{
    api::{
        compute::{LastDelivery, WorkloadDeployment, WorkloadDeploymentStatus},
        meta::{self, annotation, finalizer, label, manager},
        names::{CityCode, CityPolicyName},
        reason::Reason,
        referenced,
    },
    plan::{
        Hub, Kind, NamespaceFacts, Next, Object, ObjectVersion, Op, Plan, Project, Proof, Step, Write, diff,
        event::{self, Note, Severity},
        limits, ownership, whole_spec,
    },
    timing::Timing,
};

/// Decides the writes for one deployment.
pub fn plan(observed: &Observed, now: Timestamp) -> Decided {
    let plan = decide(observed, now);
    match observed.turn_in {
        Some(wait) if plan.steps.iter().any(applies_copy) => not_yet(observed, wait, now),
        _ => proved(observed, plan),
    }
}

/// The plan for a deployment whose copy has to wait for other large deployments of its namespace.
fn not_yet(observed: &Observed, wait: Duration, now: Timestamp) -> Decided {
    let trouble = hub_trouble::lasting(observed, Cause::RateLimited, String::new());
    let told = hub_trouble::told(observed, &trouble, now);
    Plan { next: told.next.or_sooner(Next::After(wait)), ..told }.with([Signal::AwaitsTurn])
}

/// Puts a live read of its cause before each write that could take the hub back to an older state.
///
/// The watches of a project and those of the hub fail independently. The copy may be of a later generation than the deployment,
/// or of another deployment of the same name. Then the deployment is usually stale. In a restored project it is not. The first
/// copy of a hub namespace may be for a namespace that is gone, because a terminating namespace deletes all of its deployments
/// first.
fn proved(observed: &Observed, plan: Decided) -> Decided {
    let deployment = &*observed.deployment;
    let is_remote = |step: &Step<Project, Hub>| matches!(step, Step::Remote(_));
    if deployment.metadata.deletion_timestamp.is_some() || !plan.steps.iter().any(is_remote) {
        return plan; // a deletion has its own proof
    }
    let mut proof = Proof::of_target();
    if observed.hub_namespace.is_none() || observed.copy.is_none() && observed.is_first_copy {
        let namespace = Object::named::<Namespace>("", &deployment.namespace().unwrap_or_default());
        let uid = observed.namespace_uid.as_deref().unwrap_or_default();
        proof = proof.and(Write::confirm_present(namespace, uid), Step::Local);
    }
    let seen = observed.copy.as_deref().map(ResourceExt::annotations);
    let copy = seen.or(observed.hidden_copy.as_ref().map(|copy| &copy.annotations));
    if copy.is_some_and(|copy| may_be_newer(copy, deployment)) && plan.steps.iter().any(applies_copy) {
        proof = proof.and(Write::confirm_unchanged(deployment), Step::Local);
    }
    Plan { steps: proof.then(plan.steps).into_steps(), ..plan }
}

/// True if a step writes the deployment's content into its copy.
pub fn applies_copy(step: &Step<Project, Hub>) -> bool {
    let Step::Remote(write) = step else { return false };
    write.object.kind == Kind::WorkloadDeployment && matches!(write.op, Op::Apply { .. })
}

/// Returns the status that a plan writes to the project's deployment.
pub fn status_of(plan: &Decided) -> Option<WorkloadDeploymentStatus> {
    plan.steps.iter().find_map(|step| match step {
        Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. }) => {
            WorkloadDeploymentStatus::deserialize(&body["status"]).ok()
        }
        _ => None,
    })
}

/// True if another look has to follow a plan because of the status that it has `written`. `stored` is the deployment after it.
///
/// None has to follow if the plan waits for nothing, if the server stores the status as it is written, and if that ends no rollout,
/// which releases data. Then the next plan for the same objects is empty. `converge` shows that for plans that only report. A
/// status that has not come into the cache makes no look either: it would only be written again.
pub fn asks_for_another_look(
    observed: &Observed,
    plan: &Decided,
    written: &WorkloadDeploymentStatus,
    stored: &WorkloadDeployment,
) -> bool {
    let before = &*observed.deployment;
    let is_final = plan.next == Next::Await && plan.signals.is_empty();
    let is_as_written = stored.status.as_ref() == Some(written) && !resolve::may_release(before, stored);
    stored.metadata.resource_version != before.metadata.resource_version && !(is_final && is_as_written)
}

/// True if the annotations of a copy do not prove that it is of this deployment, at this generation or an earlier one.
fn may_be_newer(annotations: &BTreeMap<String, String>, deployment: &WorkloadDeployment) -> bool {
    let generation = annotations.get(annotation::SOURCE_GENERATION).and_then(|text| text.parse::<i64>().ok());
    annotations.get(annotation::SOURCE_UID) != deployment.metadata.uid.as_ref()
        || generation.is_none_or(|generation| generation > deployment.metadata.generation.unwrap_or(0))
}

fn decide(observed: &Observed, now: Timestamp) -> Decided {
    if observed.deployment.metadata.deletion_timestamp.is_some() {
        return delete(observed, now);
    }
    let Some(namespace) = copy_namespace(&observed.deployment, observed.namespace_uid.as_deref()) else {
        return Plan::nothing(); // the namespace's event enqueues it
    };
    let deployment = &*observed.deployment;
    let city = match CityCode::parse(&deployment.spec.city_code) {
        Ok(city) => city,
        Err(why) => return invalid(deployment, &why, &observed.timing, now),
    };
    if let Some(decided) = withheld(observed, now) {
        return decided;
    }
    let mut steps: Vec<Step<Project, Hub>> = Vec::new();
    let data =
        resolve::data(deployment, observed.copy.as_deref(), &observed.data, observed.timing.deletion_patience, now);
    steps.extend(mark(deployment, &namespace, &data).map(Step::Local));
    if observed.hub_namespace.as_deref().is_some_and(|facts| facts.terminating) {
        return hub_trouble::after(steps, hub_trouble::namespace_goes(observed, &namespace, now));
    }
    steps.extend(ensure_namespace(observed, &namespace).map(Step::Remote));
    let copy = observed.copy.as_deref();
    if let Some(copy) = copy.filter(|copy| needs_replacement(copy, &city)) {
        return until_gone(observed, copy, steps, now);
    }
    let last_delivery = copy.and_then(|copy| last_delivery::of(deployment, copy));
    let finding = diagnose(observed, copy, &city, last_delivery.as_ref());
    let data = match (copy, &finding) {
        (Some(copy), Some(Delivery::Delivered { .. })) => data.until_listed_by(copy),
        _ => data,
    };
    let state = State::of(&Case {
        blocker: status::blocker(deployment, copy, &data, finding.as_ref()),
        deployment,
        copy,
        last_delivery: last_delivery.as_ref(),
        finding: finding.as_ref(),
        karmada: observed.karmada.as_ref(),
        companions: &observed.data.companions,
        before: observed.blocked.as_ref(),
        capacity: &observed.capacity,
        timing: &observed.timing,
        now,
    });
    let hint = hint(&data, finding.as_ref(), copy).filter(|hint| state.is_hinted(copy, hint));
    let annotations = data_annotations(&data, hint.as_deref());
    let (of_copy, again) = write_copy(observed, &city, &namespace, annotations, now);
    steps.extend(of_copy.map(Step::Remote));
    let mut next = state.next.or_sooner(data.look_again.map_or(Next::Await, Next::After)).or_sooner(again);
    let finding = state.in_full(finding.as_ref());
    let pause = observed.timing.takeover_pause;
    let of_status = whole_spec::take_over_status(manager::FEDERATOR, deployment, pause, now);
    // An earlier mark makes a new version of the deployment, which the next reconcile reads.
    if !steps.iter().any(|step| matches!(step, Step::Local(_))) {
        steps.extend(of_status.write.map(Step::Local));
        next = next.or_sooner(of_status.next);
    }
    if let Some(outage) = observed.outage.as_ref().filter(|_| finding.is_none()) {
        return hub_trouble::after(steps, hub_trouble::told(observed, &hub_trouble::of_outage(outage), now));
    }
    let (companions, grace) = (&observed.data.companions, observed.timing.error_grace);
    let report = CellReport::of(copy, observed.karmada.as_ref());
    let view = status::View { deployment, copy, report, data: &data, companions, grace };
    let reports = status::plan(&view, finding.as_ref(), state.overdue, last_delivery.clone(), now);
    steps.extend(reports.steps.into_iter().map(Step::Local));
    next = next.or_sooner(reports.next);
    let blocked = state.blocker.clone().map(|reason| Signal::Blocked { reason, silence: state.silence });
    let mut signals = Vec::from_iter(blocked);
    if let Some(pending) = state.pending_repair.as_ref().filter(|pending| pending.decision.now) {
        let repair = repair(observed, copy, pending.what, now);
        signals.extend((!repair.is_empty()).then_some(Signal::Repaired(pending.absence)));
        steps.extend(repair);
    }
    Plan { steps, next, signals }
}

/// True if a copy is terminating, or has to be deleted.
fn needs_replacement(copy: &WorkloadDeployment, city: &CityCode) -> bool {
    copy.metadata.deletion_timestamp.is_some() || is_of_another_city(copy, city)
}

/// Deletes a copy, or waits until it is gone. The event of its deletion leads to a new copy.
fn until_gone(
    observed: &Observed,
    copy: &WorkloadDeployment,
    mut steps: Vec<Step<Project, Hub>>,
    now: Timestamp,
) -> Decided {
    let delete = Proof::read(Write::confirm_unchanged(&*observed.deployment), Step::Local).delete(copy, Step::Remote);
    if !delete.is_empty() {
        steps.extend(delete);
        return Plan::writes(steps);
    }
    let trouble = hub_trouble::lasting(observed, Cause::CopyHeld, hub_trouble::copy_words(copy));
    hub_trouble::after(steps, hub_trouble::told(observed, &trouble, now))
}

/// True if the policy of another city has claimed a copy: the deployment named another city before. Karmada never releases such a
/// claim (fact 52), so that the copy would stay in the old city.
fn is_of_another_city(copy: &WorkloadDeployment, city: &CityCode) -> bool {
    let claimed = copy.annotations().get(annotation::POLICY_NAME).and_then(|policy| CityPolicyName::parse(policy));
    claimed.is_some_and(|other| other != *city)
}

/// Returns the plan for a deployment that must not be written to the hub at present. `None` for all others.
fn withheld(observed: &Observed, now: Timestamp) -> Option<Decided> {
    if let Some(outage) = observed.outage.as_ref().filter(|outage| outage.blind) {
        return Some(hub_trouble::told(observed, &hub_trouble::of_outage(outage), now));
    }
    if observed.rival.is_some() {
        return Some(refused_for_a_rival(observed, now));
    }
    let exceeded = limits::of_project(&observed.project);
    let exceeded = exceeded.or_else(|| limits::words(&limits::of_template(&observed.deployment.spec.template)));
    if let Some(exceeded) = exceeded {
        return Some(hub_trouble::told(observed, &hub_trouble::lasting(observed, Cause::LimitExceeded, exceeded), now));
    }
    None
}

/// Diagnoses a deployment's delivery. `None` while there is nothing to diagnose.
fn diagnose(
    observed: &Observed,
    copy: Option<&WorkloadDeployment>,
    city: &CityCode,
    last_delivery: Option<&LastDelivery>,
) -> Option<Delivery> {
    let (copy, karmada) = copy.zip(observed.karmada.as_ref())?;
    let behind = observed.capacity.is_karmada_behind;
    let companions = &observed.data.companions;
    let found = diagnosis::diagnose(&Evidence { copy, city, karmada, companions, last_delivery, behind });
    Some(match (found, &observed.unshown) {
        (Delivery::Delivered { on, note: None }, Some(unshown)) => {
            Delivery::Delivered { on, note: Some(unshown.note()) }
        }
        (found, _) => found,
    })
}

/// Deletes the copy. Releases our finalizer once a live read has found the copy gone.
fn delete(observed: &Observed, now: Timestamp) -> Decided {
    let deployment = &*observed.deployment;
    let own = deployment.namespace().unwrap_or_default();
    // The Go operator held one more finalizer, for its claims on companions. The claims are released without it.
    let leftover = Write::release(manager::FEDERATOR, finalizer::REFERENCED_DATA, deployment);
    if let Some(leftover) = leftover {
        return Plan::writes(vec![Step::Local(leftover)]);
    }
    let release = || -> Option<Write<Project>> { Write::release(manager::FEDERATOR, finalizer::FEDERATOR, deployment) };
    let Some(namespace) = copy_namespace(deployment, observed.namespace_uid.as_deref()) else {
        // The namespace is recorded before the first write there, so nothing was written.
        return release().map(Step::Local).into_iter().collect();
    };
    if let Some(outage) = observed.outage.as_ref().filter(|outage| outage.blind) {
        return hub_trouble::told(observed, &hub_trouble::of_outage(outage), now);
    }
    match observed.rival {
        // The hub namespace has no object of it.
        Some(Rival::Lives) => return release().map(Step::Local).into_iter().collect(),
        Some(Rival::Possible) => return refused_for_a_rival(observed, now),
        None => {}
    }
    // The record of the hub namespace may be the tenant's. Only the hub namespace itself shows its owner.
    let mirrors = observed.hub_namespace.as_deref().map(|facts| facts.mirrors(&observed.project, &own));
    let believed = observed.namespace_uid.is_some();
    if !believed && mirrors == Some(false) {
        return release().map(Step::Local).into_iter().collect();
    }
    if let Some(copy) = observed.copy.as_deref().filter(|_| believed || mirrors == Some(true)) {
        if ownership::is_hub_copy_from(copy, &own) {
            // If there is no delete, the copy is terminating already, and its event enqueues the deployment.
            let held = || {
                hub_trouble::told(
                    observed,
                    &hub_trouble::lasting(observed, Cause::CopyHeld, hub_trouble::copy_words(copy)),
                    now,
                )
            };
            let proof = Proof::read(Write::confirm_unchanged(deployment), Step::Local).delete(copy, Step::Remote);
            return if proof.is_empty() { held() } else { proof.into_iter().collect() };
        }
        return release().map(Step::Local).into_iter().collect();
    }
    let Some(release) = release() else { return Plan::nothing() };
    let copy = Object::named::<WorkloadDeployment>(&namespace, &deployment.name_any());
    Proof::read(Write::confirm_absent(copy), Step::Remote).then([Step::Local(release)]).into_iter().collect()
}

/// Writes to an object with a lost binding or Work, so that Karmada recreates it. A terminating object is not written.
fn repair(
    observed: &Observed,
    copy: Option<&WorkloadDeployment>,
    lost: &Repair,
    now: Timestamp,
) -> Vec<Step<Project, Hub>> {
    let Some(copy) = copy else { return Vec::new() };
    let patch = json!({ "metadata": { "annotations": { annotation::REPAIRED: now.as_second().to_string() } } });
    let (repair, what): (Write<Hub>, String) = match lost {
        Repair::Copy | Repair::Change => {
            let what = format!("WorkloadDeployment {}", copy.name_any());
            (Write::amend(manager::REPAIR, patch, copy), what)
        }
        Repair::Companion(data_ref) => {
            let companion = observed.data.companions.get(data_ref).filter(|companion| !companion.terminating);
            let Some(companion) = companion else { return Vec::new() };
            let object = Object {
                kind: data_ref.kind.into(),
                namespace: copy.namespace().unwrap_or_default(),
                name: data_ref.name.clone(),
            };
            let version = ObjectVersion::new(&companion.uid, &companion.version);
            (Write::amend_version(manager::REPAIR, object, patch, &version), data_ref.to_string())
        }
    };
    let mut steps = vec![Step::Remote(repair)];
    if observed.blocked.as_ref().is_some_and(|blocked| blocked.repairs > 0) {
        return steps;
    }
    let text = format!("{what} was touched on the hub, so that Karmada recreates what is missing");
    let note = Note { severity: Severity::Warning, reason: Reason::Repaired, action: "Repairing", text: &text };
    steps.push(Step::Local(event::on(&*observed.deployment, status::CONTROLLER, &note, now)));
    steps
}

/// Finalizer and hub-namespace annotation. Set before the first write to the hub.
pub(crate) fn bond(hub_namespace: &str) -> [(&'static str, Value); 2] {
    let annotations = json!({ annotation::FEDERATION_NAMESPACE: hub_namespace });
    [("finalizers", json!([finalizer::FEDERATOR])), ("annotations", annotations)]
}

/// Writes the [`bond`] with its copy, and the data that the deployment needs, in one write.
fn mark(deployment: &WorkloadDeployment, namespace: &str, data: &Data) -> Option<Write<Project>> {
    let annotations = data_annotations(data, None);
    let stale = stale(deployment, &OF_DATA, &annotations);
    let mut fields = json!({});
    for (key, value) in bond(namespace) {
        fields["metadata"][key] = value;
    }
    for (key, value) in annotations {
        fields["metadata"]["annotations"][key] = value.into();
    }
    Write::ensure_fields(manager::FEDERATOR, fields, deployment).or(stale)
}

/// Returns the annotations with the data that a deployment needs. On the hub they decide what Karmada brings to the cell.
fn data_annotations(data: &Data, hint: Option<&str>) -> BTreeMap<&'static str, String> {
    let mut annotations = BTreeMap::new();
    if let Some(expected) = &data.expected {
        annotations.insert(annotation::EXPECTED_REFERENCED_DATA, referenced::to_annotation(expected));
    }
    if !data.skipped.is_empty() {
        annotations.insert(annotation::SKIPPED_REFERENCED_DATA, referenced::to_annotation(&data.skipped));
    }
    if let Some(error) = data.refusal.as_ref().map(resolve::SourceRefusal::to_annotation).or(hint.map(str::to_owned)) {
        annotations.insert(annotation::REFERENCED_DATA_ERROR, error);
    }
    annotations
}

/// The annotations of [`data_annotations`]. They belong to this operator on each plane, even if another client wrote them.
const OF_DATA: [&str; 3] =
    [annotation::EXPECTED_REFERENCED_DATA, annotation::SKIPPED_REFERENCED_DATA, annotation::REFERENCED_DATA_ERROR];

/// Removes surplus annotations of ours that another client wrote. An apply removes only fields that it owns.
fn stale<P>(
    live: &WorkloadDeployment,
    ours: &[&'static str],
    wanted: &BTreeMap<&'static str, String>,
) -> Option<Write<P>> {
    let surplus = ours.iter().filter(|key| live.annotations().contains_key(**key) && !wanted.contains_key(*key));
    let surplus: serde_json::Map<String, Value> = surplus.map(|key| ((*key).to_owned(), Value::Null)).collect();
    if surplus.is_empty() {
        return None;
    }
    let patch = json!({ "metadata": { "annotations": surplus } });
    Some(Write::amend(manager::FEDERATOR, patch, live))
}

/// Returns why data does not arrive although all of it is on the hub. The cell cannot know that, and reports it on its Instances.
fn hint(data: &Data, finding: Option<&Delivery>, copy: Option<&WorkloadDeployment>) -> Option<String> {
    match finding {
        Some(Delivery::Blocked { cause, data: true, .. }) if data.trouble.is_none() => Some(status::hint(cause, copy)),
        _ => None,
    }
}

/// Writes nothing to the hub, because the namespace there belongs to another project.
fn refused_for_a_rival(observed: &Observed, now: Timestamp) -> Decided {
    let trouble = hub_trouble::lasting(observed, Cause::Refused, Rival::WORDS.to_owned());
    hub_trouble::told(observed, &trouble, now)
}

/// Returns the write that has the hub namespace name its project and its keeper. A namespace that names another project, or none,
/// is written at the version of a live read alone: another project may want it as well. Until it is read, the write is its
/// creation, which the hub refuses if it exists.
fn ensure_namespace(observed: &Observed, name: &str) -> Option<Write<Hub>> {
    let live = observed.hub_namespace.as_deref();
    let own = observed.deployment.namespace().unwrap_or_default();
    // Other services spell the project in another way, and mean the same. Their spelling is kept, so that no conflict goes on
    // forever.
    let spelt = live.filter(|live| live.mirrors(&observed.project, &own));
    let spelt = spelt.and_then(|live| live.labels.get(label::UPSTREAM_CLUSTER)).cloned();
    let labels = BTreeMap::from([
        (label::UPSTREAM_CLUSTER.to_owned(), spelt.unwrap_or_else(|| observed.project.label_value())),
        (label::UPSTREAM_NAMESPACE.to_owned(), own.clone()),
        (label::DELETION_PROTECTED.to_owned(), meta::PROTECTED.to_owned()),
    ]);
    let keeper = observed.keeper.of(live.map(|live| &live.keeper));
    let same = |live: &NamespaceFacts| labels.iter().all(|(key, value)| live.labels.get(key) == Some(value));
    if live.is_some_and(|live| same(live) && live.keeper == keeper) {
        return None;
    }
    let fields = json!({ "metadata": { "labels": labels, "annotations": keeper.to_annotations() } });
    let object = Object::named::<Namespace>("", name);
    if live.is_some_and(|live| live.mirrors(&observed.project, &own)) {
        return Write::ensure::<Namespace>(manager::FEDERATOR, "", name, fields, None);
    }
    Some(match observed.hub_namespace_version.as_ref().filter(|_| live.is_some()) {
        Some(version) => Write::amend_version(manager::FEDERATOR, object, fields, version),
        None => Write::create(manager::FEDERATOR, object, fields),
    })
}

/// Returns the writes that update the copy from the deployment, at exactly the version that was judged. So a later spec that
/// another replica wrote in between is kept.
fn write_copy(
    observed: &Observed,
    city: &CityCode,
    namespace: &str,
    annotations: BTreeMap<&'static str, String>,
    now: Timestamp,
) -> (impl Iterator<Item = Write<Hub>>, Next) {
    let (deployment, copy) = (&*observed.deployment, observed.copy.as_deref());
    let pause = observed.timing.takeover_pause;
    let taking = copy.map(|copy| whole_spec::take_over(manager::FEDERATOR, status::CONTROLLER, copy, pause, now));
    let (taken_over, again) = taking.map_or((None, Next::Await), |taking| (taking.write, taking.next));
    let applied = ensure_copy(deployment, city, namespace, copy, annotations).map(|write| {
        match (copy, &observed.hidden_copy) {
            // The take-over is at the judged version, and makes a new one.
            (Some(_), _) if taken_over.is_some() => write,
            (Some(copy), _) => write.at_version(&copy.resource_version().unwrap_or_default()),
            (None, Some(hidden)) => write.at_version(&hidden.version.resource_version),
            (None, None) => write.creating(),
        }
    });
    (taken_over.into_iter().chain(applied), again)
}

fn ensure_copy(
    deployment: &WorkloadDeployment,
    city: &CityCode,
    namespace: &str,
    live: Option<&WorkloadDeployment>,
    mut annotations: BTreeMap<&'static str, String>,
) -> Option<Write<Hub>> {
    // The deployment's annotation of suspension is for the cell. Its removal is copied too.
    let suspended = deployment.annotations().get(annotation::SUSPENDED).cloned();
    annotations.extend(suspended.map(|suspended| (annotation::SUSPENDED, suspended)));
    let ours = [&OF_DATA[..], &[annotation::SUSPENDED, annotation::STRANDED_SINCE]].concat();
    let stale = live.and_then(|live| stale(live, &ours, &annotations));
    let mut labels: BTreeMap<String, String> = deployment
        .labels()
        .iter()
        .filter(|(key, _)| ownership::may_travel(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    // A copy keeps the spelling of its city label while that names the city. A copy with a new spelling that its policy does not
    // select yet would not be propagated any more (fact 52).
    let standing = live.and_then(|live| live.labels().get(label::TOPOLOGY_CITY));
    let standing = standing.filter(|label| CityCode::parse(label).is_ok_and(|code| code == *city)).cloned();
    labels
        .insert(label::TOPOLOGY_CITY.into(), standing.unwrap_or_else(|| city.label_value(&deployment.spec.city_code)));
    labels.insert(label::UPSTREAM_NAMESPACE.into(), deployment.namespace().unwrap_or_default());
    annotations.insert(annotation::SOURCE_GENERATION, deployment.metadata.generation.unwrap_or(0).to_string());
    let mut spec = deployment.spec.clone();
    // A deployment made by hand may have no replicas. Then the API server answers its subresource `scale` with an error.
    spec.replicas = spec.replicas.or_else(|| replicas::wanted(&spec.scale_settings, live));
    let (spec, standing) = (json!(spec), live.map(|live| json!(live.spec)));
    let spec = standing.as_ref().map_or_else(|| spec.clone(), |standing| diff::in_standing_form(standing, &spec));
    let spec = hub_form::without_empty_lists(spec);
    let mut fields = json!({ "metadata": { "labels": labels, "annotations": annotations }, "spec": spec });
    // Copies of an earlier version do not name their original. That alone is not worth a write to each of them.
    let is_due = live.is_none_or(|live| {
        live.annotations().contains_key(annotation::SOURCE_UID) || diff::differs(&fields, live, manager::FEDERATOR)
    });
    if is_due {
        fields["metadata"]["annotations"][annotation::SOURCE_UID] = json!(deployment.metadata.uid);
    }
    // The comparison treats an empty list as absent, so a live spec with an empty list is always written.
    let other_form = live.filter(|_| standing.is_some_and(|standing| hub_form::has_empty_lists(&standing)));
    if let Some(live) = other_form {
        fields["metadata"]["uid"] = json!(live.uid());
    }
    let live = live.filter(|_| other_form.is_none());
    Write::ensure(manager::FEDERATOR, namespace, &deployment.name_any(), fields, live).or(stale)
}

/// Reports on a deployment that it cannot be federated.
fn invalid(deployment: &WorkloadDeployment, why: &str, timing: &Timing, now: Timestamp) -> Decided {
    let report = status::invalid(deployment, why, timing.error_grace, now);
    Plan::until(report.steps.into_iter().map(Step::Local).collect(), report.next)
}

#[cfg(test)]
#[path = "federate_tests.rs"]
mod tests;
