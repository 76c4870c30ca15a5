//! What is left behind on the hub: which bindings may be removed, and which namespaces belong to nobody.

use std::{collections::BTreeSet, convert::identity, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::plan::management::observed::facts::{self, BindingFacts, CompanionFacts};
use crate::{
    api::{
        compute::WorkloadDeployment, karmada::ResourceBinding, meta::annotation, names::Template, reason::Reason,
        referenced::DataRef,
    },
    plan::{
        Hub, Kind, NamespaceFacts, Object, ObjectVersion, Plan, Proof, Write,
        event::{self, Note, Severity},
        ownership,
    },
};

/// How what is left behind is found, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// How often to look.
    pub interval: Duration,
    /// How many bindings one sweep may remove.
    pub max_bindings: usize,
    /// How long the hub namespaces of a project that is gone are kept; for ever when there is none.
    pub stranded_grace: Option<Duration>,
    /// Whether sweeps delete nothing at all.
    pub paused: bool,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(5),
            max_bindings: 100,
            stranded_grace: Some(Duration::from_hours(24)),
            paused: false,
        }
    }
}

/// What the binding of this name in this namespace was made for; nothing where that is not of our making.
pub fn template_of(namespace: &str, binding: &str) -> Option<Object> {
    match Template::of_binding(binding) {
        Template::Companion(DataRef { kind, name }) => {
            Some(Object { kind: kind.into(), namespace: namespace.to_owned(), name })
        }
        Template::Deployment(name) => Some(Object::named::<WorkloadDeployment>(namespace, &name)),
        Template::Foreign => None,
    }
}

/// What is known of one binding whose name speaks of a companion, or of a deployment's copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed {
    /// The binding.
    pub binding: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// What its name speaks of.
    pub template: Object,
    /// Whether that was there when companions were listed, or is among the copies.
    pub template_exists: bool,
    /// Of a deployment's copy: whether its project may have the deployment, so that the copy is made anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_return: bool,
    /// Whether the sweep before this one has found the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspected: bool,
    /// The policy that claims it.
    pub policy: Option<String>,
    /// Whether Karmada made it because others need what it was made for: it carries the mark of that, or, since Karmada takes the
    /// mark off with the last that needs it, what its name speaks of owns it and no policy claims it.
    pub attached: bool,
    /// Whether a city's policy has brought it where it is, which has gone since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_city: bool,
    /// Names of the bindings that need it; `None` while the watch knows nothing of it.
    pub parents: Option<Vec<String>>,
    /// Whether it is on its way out.
    pub terminating: bool,
    /// Its namespace; `None` when that is not one that we know.
    pub namespace: Option<NamespaceFacts>,
    /// Whether sweeps delete nothing at all.
    pub paused: bool,
}

impl Observed {
    /// From the metadata of a binding whose name speaks of `template`, and what the watch knows of its content.
    pub fn of(template: Object, meta: &ObjectMeta, facts: Option<&BindingFacts>) -> Self {
        let annotations = meta.annotations.as_ref();
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let is_marked = meta.labels.iter().flatten().any(|(key, _)| key.starts_with(annotation::DEPENDED_BY));
        let owned = meta.owner_references.iter().flatten().any(|owner| {
            owner.controller == Some(true) && owner.kind == template.kind.gvk().1 && owner.name == template.name
        });
        Self {
            binding: Object::named::<ResourceBinding>(namespace.unwrap_or_default(), name.unwrap_or_default()),
            version: ObjectVersion::of(meta),
            template,
            template_exists: false,
            may_return: false,
            suspected: false,
            policy: annotations.and_then(|all| all.get(annotation::POLICY_NAME)).cloned(),
            attached: is_marked || owned && facts::cluster_policy(meta).is_none(),
            of_city: facts.is_some_and(|facts| facts.scheduled_for.is_some()),
            parents: facts.map(|facts| facts.required_by.iter().map(|by| by.name.clone()).collect()),
            terminating: meta.deletion_timestamp.is_some(),
            namespace: None,
            paused: false,
        }
    }

    /// Whether it is one of ours: claimed by a city policy; or of a companion, and attached to deployments of ours; or of a
    /// deployment, and claimed by a city policy before that went.
    fn is_ours(&self) -> bool {
        if self.namespace.as_ref().is_none_or(|facts| facts.upstream().is_none()) {
            return false;
        }
        if self.is_of_deployment() {
            return ownership::is_binding_of_deployment(self.policy.as_deref(), self.of_city);
        }
        ownership::is_binding_of_companion(self.policy.as_deref(), self.attached, self.parents.as_deref())
    }

    fn is_of_deployment(&self) -> bool {
        self.template.kind == Kind::WorkloadDeployment
    }
}

/// What the controller is to say of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// What it was made for is gone, and it stays because clean-up is paused.
    Paused,
    /// The next sweep is to look again.
    Suspected,
}

/// Decides about one binding; nothing of it depends on the time. One that has lost its template goes, once a live read has
/// found none: the hub's garbage collector may be away, or Karmada has made it anew in between (fact 14). What runs by it is
/// somebody's Instances where the template is a deployment: that has to be gone from its project as well, and two sweeps have to
/// find it so.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Write<Hub>, Signal> {
    if observed.template_exists || observed.terminating || observed.may_return || !observed.is_ours() {
        return Plan::nothing();
    }
    if is_paused(observed.namespace.as_ref(), observed.paused) {
        return Plan::nothing().with([Signal::Paused]);
    }
    if observed.is_of_deployment() && !observed.suspected {
        return Plan::nothing().with([Signal::Suspected]);
    }
    let cause = Write::<Hub>::confirm_absent(observed.template.clone());
    let proof = Proof::read(cause, identity);
    proof.delete_version(observed.binding.clone(), observed.version.clone(), identity).into_iter().collect()
}

/// What of a hub namespace could not be removed in one sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many bindings.
    pub count: usize,
    /// One of them, and why, in words.
    pub example: String,
}

impl Refused {
    /// One more.
    pub fn count(&mut self, binding: &Object, why: &str) {
        self.count += 1;
        if self.example.is_empty() {
            self.example = format!("{binding}: {why}");
        }
    }

    /// Says so on the hub namespace.
    pub fn tell(&self, namespace: &str, uid: &str, now: Timestamp) -> Write<Hub> {
        let text = format!(
            "{} binding(s) here have lost what they were made for and cannot be removed, so that it may stay in cells; the next \
             sweep tries again: {}",
            self.count, self.example
        );
        let note =
            Note { severity: Severity::Warning, reason: Reason::RemovalRefused, action: "Sweeping", text: &text };
        event::about(&Object::named::<Namespace>("", namespace), &ObjectVersion::new(uid, ""), "sweep", &note, now)
    }
}

/// Whether a sweep leaves alone what is in a namespace. `paused`: whether it leaves everything alone.
pub fn is_paused(namespace: Option<&NamespaceFacts>, paused: bool) -> bool {
    paused || namespace.is_none_or(|facts| facts.paused)
}

/// Whether nobody can say who uses a companion: it is kept, and reported once.
pub fn has_no_known_user(companion: &CompanionFacts) -> bool {
    companion.users.as_ref().is_none_or(BTreeSet::is_empty)
}

/// How many bindings one sweep may still remove. One that is refused takes nothing from the others' share, but has one of
/// its own: where everything is refused, a sweep does not ask without end.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    removals: usize,
    refusals: usize,
}

impl Budget {
    /// So many removals, and as many refusals.
    pub fn of(limit: usize) -> Self {
        Self { removals: limit, refusals: limit }
    }

    /// The same with so many refusals at least, where few may be removed: what is refused is not to keep the rest for ever.
    #[must_use]
    pub fn patient(self, refusals: usize) -> Self {
        Self { refusals: self.refusals.max(refusals), ..self }
    }

    /// One was removed.
    pub fn removed(&mut self) {
        self.removals = self.removals.saturating_sub(1);
    }

    /// One could not be removed.
    pub fn refused(&mut self) {
        self.refusals = self.refusals.saturating_sub(1);
    }

    /// Whether the rest is left to the next sweep.
    pub fn is_spent(self) -> bool {
        self.removals == 0 || self.refusals == 0
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
