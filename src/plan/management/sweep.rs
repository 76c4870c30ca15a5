//! What is left behind on the hub: which bindings may be removed, and which namespaces belong to nobody.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::facts::{BindingFacts, CompanionFacts};
use crate::{
    api::{
        compute::WorkloadDeployment,
        karmada::ResourceBinding,
        meta::annotation,
        names::{CityPolicyName, Template},
        reason::Reason,
        referenced::DataRef,
    },
    plan::{
        Hub, Kind, NamespaceFacts, Object, ObjectVersion, Plan, Write,
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
    /// Whether it carries the mark of one that others need.
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
        Self {
            binding: Object::named::<ResourceBinding>(namespace.unwrap_or_default(), name.unwrap_or_default()),
            version: ObjectVersion::of(meta),
            template,
            template_exists: false,
            may_return: false,
            suspected: false,
            policy: annotations.and_then(|all| all.get(annotation::POLICY_NAME)).cloned(),
            attached: meta.labels.iter().flatten().any(|(key, _)| key.starts_with(annotation::DEPENDED_BY)),
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
            return self.policy.as_ref().map_or(self.of_city, |policy| CityPolicyName::parse(policy).is_some());
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
    let delete = Write::delete_version(observed.binding.clone(), observed.version.clone());
    Plan::writes(vec![Write::confirm_absent(observed.template.clone()), delete])
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{karmada::BindingSnapshot, meta::label, names::CityCode};
    use crate::plan::{Op, recorded::recorded};

    /// What becomes of a binding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Verdict {
        Stays,
        Paused,
        Suspected,
        Goes,
    }

    fn judge(observed: &Observed) -> Verdict {
        let plan = plan(observed, Timestamp::UNIX_EPOCH);
        match (&plan.steps[..], &plan.signals[..]) {
            ([], []) => Verdict::Stays,
            ([], [Signal::Paused]) => Verdict::Paused,
            ([], [Signal::Suspected]) => Verdict::Suspected,
            ([_, _], []) => Verdict::Goes,
            _ => panic!("{plan:?}"),
        }
    }

    #[test]
    fn a_binding_is_named_after_its_template() {
        let of = |binding| template_of("ns-1", binding).map(|template| template.to_string());
        assert_eq!(of("db-secret").as_deref(), Some("Secret ns-1/db"));
        assert_eq!(of("settings-configmap").as_deref(), Some("ConfigMap ns-1/settings"));
        assert_eq!(of("web-p-dfw-workloaddeployment").as_deref(), Some("WorkloadDeployment ns-1/web-p-dfw"));
        assert_eq!(of("web-deployment"), None);
        assert_eq!(of("-secret"), None);
    }

    fn facts(parent: &str) -> BindingFacts {
        BindingFacts {
            required_by: vec![BindingSnapshot { name: parent.into(), clusters: vec![] }],
            ..BindingFacts::default()
        }
    }

    /// A binding of ours, whose companion is gone.
    fn orphan(meta: serde_json::Value, facts: Option<&BindingFacts>) -> Observed {
        orphan_of("db-secret", meta, facts)
    }

    fn orphan_of(binding: &str, meta: serde_json::Value, facts: Option<&BindingFacts>) -> Observed {
        let labels = [(label::UPSTREAM_CLUSTER, "cluster-single"), (label::UPSTREAM_NAMESPACE, "shop")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        Observed {
            namespace: Some(NamespaceFacts { labels, ..NamespaceFacts::default() }),
            ..Observed::of(template_of("ns-1", binding).unwrap(), &meta, facts)
        }
    }

    /// Found by reading: a deployment's binding that outlived its copy was never found, and its Instances ran on.
    #[test]
    fn a_deployment_s_binding_goes_after_two_looks_once_its_project_has_the_deployment_no_more() {
        let by = |policy: &str| json!({ "annotations": { annotation::POLICY_NAME: policy } });
        let scheduled = BindingFacts { scheduled_for: CityCode::parse("dfw").ok(), ..BindingFacts::default() };
        let of = |meta, facts: Option<&BindingFacts>| Observed {
            suspected: true,
            ..orphan_of("web-dfw-workloaddeployment", meta, facts)
        };
        let ours = || of(by("city-dfw"), None);
        let mut copied = ours();
        copied.template_exists = true;
        for (what, observed, expected) in [
            ("twice", ours(), Verdict::Goes),
            ("once", Observed { suspected: false, ..ours() }, Verdict::Suspected),
            ("the project may have it", Observed { may_return: true, ..ours() }, Verdict::Stays),
            ("its copy is there", copied, Verdict::Stays),
            ("paused", Observed { paused: true, ..ours() }, Verdict::Paused),
            ("its policy has gone since", of(json!({}), Some(&scheduled)), Verdict::Goes),
            ("nobody of ours has ever claimed it", of(json!({}), Some(&BindingFacts::default())), Verdict::Stays),
            ("somebody else's", of(by("theirs"), Some(&scheduled)), Verdict::Stays),
        ] {
            assert_eq!(judge(&observed), expected, "{what}");
        }
        let steps = plan(&ours(), Timestamp::UNIX_EPOCH).steps;
        assert_eq!(
            (&steps[0].op, steps[0].object.to_string()),
            (&Op::ConfirmAbsent, "WorkloadDeployment ns-1/web-dfw".to_owned())
        );
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
            ("its companion is there", |o| o.template_exists = true, Verdict::Stays),
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
