//! A source and the deployments that refer to it -> its companion on the hub: content, claims, and its end.
//!
//! A companion is written by create and merge patch of exactly the version that was judged, not by server-side apply:
//! its content is to be the source's and nothing more, and two writers of `referenced-by` must not lose an entry.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{
    facts::{BindingFacts, CompanionFacts},
    resolve,
};
use crate::{
    api::{
        compute::WorkloadDeployment,
        karmada::ResourceBinding,
        meta::{annotation, label, manager},
        names,
        referenced::Token,
    },
    plan::{
        Hub, Object, ObjectVersion, Plan, Project, Step, Write,
        payload::{Payload, Seen},
        references::annotated,
    },
};

/// What is known of one deployment of the project that may use the companion.
#[derive(Clone, Debug)]
pub struct User<'a> {
    /// The deployment.
    pub deployment: &'a WorkloadDeployment,
    /// Whether all that it refers to can be copied, so that copies are to be made for it.
    pub resolved: bool,
}

/// Everything that is known about one companion. `source` and `content` are read only when a plan asks for them.
pub struct Observed<'a> {
    /// Which.
    pub token: &'a Token,
    /// The project's namespace.
    pub namespace: &'a str,
    /// The hub's.
    pub hub_namespace: &'a str,
    /// Whether the hub namespace is there and stays.
    pub hub_namespace_lives: bool,
    /// Deployments that refer to the source.
    pub users: &'a [User<'a>],
    /// Any deployment of the project's namespace.
    pub deployment: &'a dyn Fn(&str) -> Option<std::sync::Arc<WorkloadDeployment>>,
    /// Its copy on the hub.
    pub copy: &'a dyn Fn(&str) -> Option<std::sync::Arc<WorkloadDeployment>>,
    /// The companion.
    pub companion: Option<&'a CompanionFacts>,
    /// Its binding.
    pub binding: Option<&'a BindingFacts>,
    /// Whether a policy of that name in the hub namespace is one of our city policies.
    pub is_city_policy: &'a dyn Fn(&str) -> bool,
    /// Whether the companion has been seen to have what the source has.
    pub fresh: bool,
    /// The source's content.
    pub source: Option<&'a Payload>,
    /// The companion's content, and the version that has it.
    pub content: Option<&'a (Seen, Payload)>,
}

/// What is to be done about a companion.
#[derive(Debug)]
pub enum Decision {
    /// Read the source, and the companion when there is one, and ask again.
    Read,
    /// These writes. The companion is as the source, or will be with them.
    Plan(Plan<Step<Project, Hub>>),
}

/// Decides about one companion.
pub fn plan(observed: &Observed<'_>) -> Decision {
    let nothing = Decision::Plan(Plan::nothing());
    let resolved = observed.users.iter().any(|user| user.resolved && lives(user.deployment));
    let Some(companion) = observed.companion else {
        if !resolved || !observed.hub_namespace_lives {
            return nothing;
        }
        let Some(source) = observed.source else { return Decision::Read };
        return Decision::Plan(Plan::writes(vec![Step::Remote(create(observed, source))]));
    };
    if companion.terminating {
        return nothing; // made anew when it is gone; its event brings us back
    }
    let (claims, confirm) = claims(observed, companion);
    let mut steps: Vec<Step<Project, Hub>> = confirm.into_iter().map(Step::Local).collect();
    let object = Object {
        kind: observed.token.kind.into(),
        namespace: observed.hub_namespace.into(),
        name: observed.token.name.clone(),
    };
    let version = ObjectVersion::new(&companion.uid, &companion.version);
    if claims.is_empty() {
        // Nobody has ever said that he uses it, or nobody can be read: not ours to judge.
        if companion.claims.as_ref().is_some_and(|before| !before.is_empty()) {
            steps.push(Step::Remote(Write::delete_version(object, version)));
        }
        return Decision::Plan(Plan::writes(steps));
    }
    let mut patch = Map::new();
    if resolved && !observed.fresh {
        let (Some(source), Some((seen, content))) = (observed.source, observed.content) else { return Decision::Read };
        if (&seen.uid, &seen.version) != (&companion.uid, &companion.version) {
            return nothing; // the watch is behind: who claims it now will be known with its next event
        }
        let change = content.patch_to(source);
        if !content.can_become(source) && (!change.is_empty() || content != source) {
            // Immutable, or of another type: nothing but a new one can have the new content.
            steps.push(Step::Remote(Write::delete_version(object, version)));
            return Decision::Plan(Plan::writes(steps));
        }
        patch.extend(change);
    }
    let mut metadata = Map::new();
    if companion.claims.as_ref() != Some(&claims) {
        metadata.insert("annotations".into(), json!({ annotation::REFERENCED_BY: json!(claims).to_string() }));
    }
    let leftovers = leftovers(observed);
    if leftovers && companion.policy.as_deref().is_some_and(observed.is_city_policy) {
        metadata.insert("labels".into(), json!({ label::KARMADA_CLAIM: null }));
        let marks = metadata.entry("annotations").or_insert_with(|| json!({}));
        for key in [annotation::POLICY_NAME, annotation::POLICY_NAMESPACE] {
            marks[key] = Value::Null;
        }
    }
    if !metadata.is_empty() {
        patch.insert("metadata".into(), Value::Object(metadata));
    }
    if !patch.is_empty() {
        let patch = Value::Object(patch);
        steps.push(Step::Remote(Write::amend_version(manager::COMPANION, object, patch, &version)));
    }
    if leftovers {
        steps.extend(release_binding(observed).map(Step::Remote));
    }
    Decision::Plan(Plan::writes(steps))
}

fn lives(deployment: &WorkloadDeployment) -> bool {
    deployment.metadata.deletion_timestamp.is_none()
}

fn create(observed: &Observed<'_>, source: &Payload) -> Write<Hub> {
    let users = observed.users.iter().filter(|user| user.resolved && lives(user.deployment));
    let claims: BTreeSet<String> =
        users.map(|user| resolve::claim(observed.namespace, &user.deployment.name_any())).collect();
    let mut body = Value::Object(source.fields());
    body["metadata"] = json!({
        "labels": { label::REFERENCED_DATA: "true" },
        "annotations": { annotation::REFERENCED_BY: json!(claims).to_string() },
    });
    let object = Object {
        kind: observed.token.kind.into(),
        namespace: observed.hub_namespace.into(),
        name: observed.token.name.clone(),
    };
    Write::create(manager::COMPANION, object, body)
}

/// Who uses the companion from now on, and the live reads that must stand behind each who does no more.
fn claims(observed: &Observed<'_>, companion: &CompanionFacts) -> (BTreeSet<String>, Vec<Write<Project>>) {
    let before = companion.claims.clone().unwrap_or_default();
    let corrupt = companion.claims.is_none();
    let mut claims = BTreeSet::new();
    for user in observed.users {
        let entry = resolve::claim(observed.namespace, &user.deployment.name_any());
        // One that goes keeps its claim until it is gone, and so does one whose other data cannot be copied.
        if corrupt || before.contains(&entry) || (user.resolved && lives(user.deployment)) {
            claims.insert(entry);
        }
    }
    let mut confirm = Vec::new();
    for entry in &before {
        if claims.contains(entry) {
            continue;
        }
        let ours = entry.split_once('/').filter(|(namespace, _)| *namespace == observed.namespace);
        let Some((namespace, name)) = ours else {
            claims.insert(entry.clone()); // who that is, is not known here
            continue;
        };
        let expects =
            |wd: &WorkloadDeployment| annotated(wd, annotation::EXPECTED_REFERENCED_DATA).contains(observed.token);
        // What the hub still holds of it is brought to the cell by its list.
        if (observed.copy)(name).is_some_and(|copy| expects(&copy)) {
            claims.insert(entry.clone());
            continue;
        }
        match (observed.deployment)(name) {
            Some(deployment) if expects(&deployment) => {
                claims.insert(entry.clone());
            }
            Some(deployment) => {
                confirm.push(Write::confirm_unchanged(deployment.as_ref()));
            }
            None => confirm.push(Write::confirm_absent(Object::named::<WorkloadDeployment>(namespace, name))),
        }
    }
    (claims, confirm)
}

/// Whether a claim of one of our own city policies, from the time when they selected companions, may be undone: it would
/// send the companion to that city for ever (facts 24, 26). Only once every city that needs it has it by its
/// deployments' need (fact 27).
fn leftovers(observed: &Observed<'_>) -> bool {
    let Some(binding) = observed.binding else { return false };
    let needs = |user: &User<'_>| {
        let name = user.deployment.name_any();
        let expects =
            |copy: &WorkloadDeployment| annotated(copy, annotation::EXPECTED_REFERENCED_DATA).contains(observed.token);
        (observed.copy)(&name)
            .is_some_and(|copy| expects(&copy))
            .then(|| names::binding_name("WorkloadDeployment", &name))
    };
    let mut needed = observed.users.iter().filter_map(needs).peekable();
    needed.peek().is_some() && needed.all(|parent| binding.required_by.iter().any(|by| by.name == parent))
}

/// Takes from a companion's binding what a city policy's claim has left there.
fn release_binding(observed: &Observed<'_>) -> Option<Write<Hub>> {
    let binding = observed.binding.filter(|b| b.policy.as_deref().is_some_and(observed.is_city_policy))?;
    let patch = json!({
        "metadata": {
            "labels": { label::KARMADA_CLAIM: null },
            "annotations": {
                annotation::POLICY_NAME: null,
                annotation::POLICY_NAMESPACE: null,
                annotation::APPLIED_PLACEMENT: null,
            },
        },
        "spec": { "clusters": null, "placement": null },
    });
    let name = names::binding_name(observed.token.kind.as_str(), &observed.token.name);
    let object = Object::named::<ResourceBinding>(observed.hub_namespace, &name);
    let version = ObjectVersion::new(&binding.uid, &binding.version);
    Some(Write::amend_version(manager::COMPANION, object, patch, &version))
}

#[cfg(test)]
#[path = "companion_tests.rs"]
mod tests;
