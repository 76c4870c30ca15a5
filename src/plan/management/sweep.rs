//! What is left behind on the hub: which bindings may be removed, and which namespaces belong to nobody.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::facts::{BindingFacts, CompanionFacts};
use crate::{
    api::{karmada::ResourceBinding, meta::annotation, names::Template, reason::Reason, referenced::DataRef},
    plan::{
        Hub, NamespaceFacts, Object, ObjectVersion, Plan, Write,
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

/// The companion that a binding's name speaks of.
pub fn companion_of(binding: &str) -> Option<DataRef> {
    match Template::of_binding(binding) {
        Template::Companion(data_ref) => Some(data_ref),
        Template::Deployment(_) | Template::Foreign => None,
    }
}

/// What is known of one binding whose name speaks of a companion.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed {
    /// The binding.
    pub binding: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// The companion that its name speaks of.
    pub companion: DataRef,
    /// Whether that was there when companions were listed.
    pub companion_exists: bool,
    /// The policy that claims it.
    pub policy: Option<String>,
    /// Whether it carries the mark of one that others need.
    pub attached: bool,
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
    /// From the metadata of a binding whose name speaks of `companion`, and what the watch knows of its content.
    pub fn of(companion: DataRef, meta: &ObjectMeta, facts: Option<&BindingFacts>) -> Self {
        let annotations = meta.annotations.as_ref();
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        Self {
            binding: Object::named::<ResourceBinding>(namespace.unwrap_or_default(), name.unwrap_or_default()),
            version: ObjectVersion::of(meta),
            companion,
            companion_exists: false,
            policy: annotations.and_then(|all| all.get(annotation::POLICY_NAME)).cloned(),
            attached: meta.labels.iter().flatten().any(|(key, _)| key.starts_with(annotation::DEPENDED_BY)),
            parents: facts.map(|facts| facts.required_by.iter().map(|by| by.name.clone()).collect()),
            terminating: meta.deletion_timestamp.is_some(),
            namespace: None,
            paused: false,
        }
    }

    /// Whether it is one of a companion of ours: claimed by a city policy, or attached to deployments of ours.
    fn is_ours(&self) -> bool {
        if self.namespace.as_ref().is_none_or(|facts| facts.upstream().is_none()) {
            return false;
        }
        ownership::is_binding_of_companion(self.policy.as_deref(), self.attached, self.parents.as_deref())
    }
}

/// What the controller is to say of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Its companion is gone, and it stays because clean-up is paused.
    Paused,
}

/// Decides about one binding. One that has lost its companion goes, once a live read has found no companion; nothing of
/// it depends on the time.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Write<Hub>, Signal> {
    if observed.companion_exists || observed.terminating || !observed.is_ours() {
        return Plan::nothing();
    }
    if is_paused(observed.namespace.as_ref(), observed.paused) {
        return Plan::nothing().with([Signal::Paused]);
    }
    let DataRef { kind, name } = observed.companion.clone();
    let companion = Object { kind: kind.into(), namespace: observed.binding.namespace.clone(), name };
    let delete = Write::delete_version(observed.binding.clone(), observed.version.clone());
    Plan::writes(vec![Write::confirm_absent(companion), delete])
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
            "{} binding(s) here have lost their ConfigMap or Secret and cannot be removed, so that copies may stay in cells; the \
             next sweep tries again: {}",
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{karmada::BindingSnapshot, meta::label};
    use crate::plan::{Op, recorded::recorded};

    /// What becomes of a binding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Verdict {
        Stays,
        Paused,
        Goes,
    }

    fn judge(observed: &Observed) -> Verdict {
        let plan = plan(observed, Timestamp::UNIX_EPOCH);
        match (&plan.steps[..], &plan.signals[..]) {
            ([], []) => Verdict::Stays,
            ([], [Signal::Paused]) => Verdict::Paused,
            ([_, _], []) => Verdict::Goes,
            _ => panic!("{plan:?}"),
        }
    }

    #[test]
    fn a_binding_is_named_after_its_companion() {
        assert_eq!(companion_of("db-secret"), Some(DataRef::secret("db")));
        assert_eq!(companion_of("settings-configmap"), Some(DataRef::config_map("settings")));
        assert_eq!(companion_of("web-p-dfw-workloaddeployment"), None);
        assert_eq!(companion_of("-secret"), None);
    }

    fn facts(parent: &str) -> BindingFacts {
        BindingFacts {
            required_by: vec![BindingSnapshot { name: parent.into(), clusters: vec![] }],
            ..BindingFacts::default()
        }
    }

    /// A binding of ours, whose companion is gone.
    fn orphan(meta: serde_json::Value, facts: Option<&BindingFacts>) -> Observed {
        let labels = [(label::UPSTREAM_CLUSTER, "cluster-single"), (label::UPSTREAM_NAMESPACE, "shop")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        Observed {
            namespace: Some(NamespaceFacts { labels, ..NamespaceFacts::default() }),
            ..Observed::of(DataRef::secret("db"), &meta, facts)
        }
    }

    #[test]
    fn only_bindings_of_companions_of_ours_are_orphans() {
        let by = |policy: &str| json!({ "annotations": { annotation::POLICY_NAME: policy } });
        let attached = json!({ "labels": { "resourcebinding.karmada.io/depended-by-abc": "x" } });
        for (what, meta, facts, expected) in [
            ("claimed by a city policy", by("city-dfw"), None, Verdict::Goes),
            ("claimed by somebody else's", by("theirs"), None, Verdict::Stays),
            ("attached to a deployment", attached.clone(), Some(facts("wd-workloaddeployment")), Verdict::Goes),
            ("the last parent has gone", attached.clone(), Some(BindingFacts::default()), Verdict::Goes),
            ("attached to theirs", attached.clone(), Some(facts("theirs-deployment")), Verdict::Stays),
            ("of which the watch knows nothing", attached, None, Verdict::Stays),
            ("neither claimed nor attached", json!({}), Some(BindingFacts::default()), Verdict::Stays),
        ] {
            assert_eq!(judge(&orphan(meta, facts.as_ref())), expected, "{what}");
        }
    }

    #[test]
    fn exactly_what_was_judged_goes_once_a_live_read_has_found_no_companion() {
        let meta = json!({
            "namespace": "ns-1", "name": "db-secret", "uid": "b", "resourceVersion": "7",
            "annotations": { annotation::POLICY_NAME: "city-dfw" },
        });
        let steps = plan(&orphan(meta, None), Timestamp::UNIX_EPOCH).steps;
        let [confirm, delete] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!((&confirm.op, confirm.object.to_string()), (&Op::ConfirmAbsent, "Secret ns-1/db".to_owned()));
        assert_eq!(delete.op, Op::Delete { uid: "b".into(), resource_version: "7".into() });
        assert_eq!(delete.object.to_string(), "ResourceBinding ns-1/db-secret");
    }

    #[test]
    fn an_orphan_goes_unless_something_speaks_against_it() {
        type Case = (&'static str, fn(&mut Observed), Verdict);
        let cases: [Case; 7] = [
            ("nothing does", |_| {}, Verdict::Goes),
            ("its companion is there", |o| o.companion_exists = true, Verdict::Stays),
            ("it is on its way out", |o| o.terminating = true, Verdict::Stays),
            ("its namespace is not known", |o| o.namespace = None, Verdict::Stays),
            ("its namespace mirrors nothing", |o| o.namespace = Some(NamespaceFacts::default()), Verdict::Stays),
            ("paused there", |o| o.namespace.as_mut().unwrap().paused = true, Verdict::Paused),
            ("paused everywhere", |o| o.paused = true, Verdict::Paused),
        ];
        for (what, change, expected) in cases {
            let mut observed = orphan(json!({ "annotations": { annotation::POLICY_NAME: "city-dfw" } }), None);
            change(&mut observed);
            assert_eq!(judge(&observed), expected, "{what}");
            assert_eq!(judge(&recorded(&observed)), expected, "{what}: decided again from its record");
        }
    }

    #[test]
    fn a_binding_that_cannot_be_removed_takes_no_others_share() {
        let mut budget = Budget::of(2);
        budget.refused();
        budget.removed();
        assert!(!budget.is_spent());
        budget.removed();
        assert!(budget.is_spent());
        let mut refused = Budget::of(2);
        (0..2).for_each(|_| refused.refused());
        assert!(refused.is_spent());
    }

    /// Found by reading: a binding that could not be deleted was told in the log alone.
    #[test]
    fn what_cannot_be_removed_is_told_on_its_namespace() {
        let mut refused = Refused::default();
        for name in ["db-secret", "key-secret"] {
            refused.count(&Object::named::<ResourceBinding>("ns-1", name), "a webhook said no");
        }
        let Op::Create { body, .. } = refused.tell("ns-1", "h", Timestamp::UNIX_EPOCH).op else { panic!("an Event") };
        assert_eq!(body["regarding"]["name"], "ns-1");
        let note = body["note"].as_str().unwrap();
        assert!(
            note.starts_with("2 binding(s)") && note.ends_with("ResourceBinding ns-1/db-secret: a webhook said no")
        );
    }

    #[test]
    fn of_a_companion_without_a_readable_list_nobody_knows_who_uses_it() {
        let of = |users: Option<&[&str]>| CompanionFacts {
            users: users.map(|users| users.iter().map(|user| (*user).to_owned()).collect()),
            ..CompanionFacts::default()
        };
        assert!(
            has_no_known_user(&of(None))
                && has_no_known_user(&of(Some(&[])))
                && !has_no_known_user(&of(Some(&["shop/web"])))
        );
    }
}
