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
    let owned = |kind: &str, name: &str, controller: bool, annotations: serde_json::Value| {
        let owner = json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": "o", "controller": controller });
        json!({ "ownerReferences": [owner], "annotations": annotations })
    };
    let by_all = json!({ annotation::CLUSTER_POLICY_NAME: "theirs" });
    let own = || owned("Secret", "db", true, json!({}));
    let nobody = || Some(BindingFacts::default());
    for (what, meta, facts, expected) in [
        ("claimed by a city policy", by("city-dfw"), None, Verdict::Goes),
        ("claimed by somebody else's", by("theirs"), None, Verdict::Stays),
        ("attached to a deployment", attached.clone(), Some(facts("wd-workloaddeployment")), Verdict::Goes),
        ("the last parent has gone", attached.clone(), Some(BindingFacts::default()), Verdict::Goes),
        ("attached to theirs", attached.clone(), Some(facts("theirs-deployment")), Verdict::Stays),
        ("of which the watch knows nothing", attached, None, Verdict::Stays),
        ("neither claimed nor attached", json!({}), nobody(), Verdict::Stays),
        // Karmada takes the mark off with the last parent; what it was made for was seen to be left so, with its binding.
        ("its companion's own, which nobody needs", own(), nobody(), Verdict::Goes),
        ("its companion's own, which others need", own(), Some(facts("theirs-deployment")), Verdict::Stays),
        ("its companion's own, of which the watch knows nothing", own(), None, Verdict::Stays),
        ("claimed for all", owned("Secret", "db", true, by_all), nobody(), Verdict::Stays),
        ("of another name", owned("Secret", "other", true, json!({})), nobody(), Verdict::Stays),
        ("of another kind", owned("ConfigMap", "db", true, json!({})), nobody(), Verdict::Stays),
        ("owned without control", owned("Secret", "db", false, json!({})), nobody(), Verdict::Stays),
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
    assert!(note.starts_with("2 binding(s)") && note.ends_with("ResourceBinding ns-1/db-secret: a webhook said no"));
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
