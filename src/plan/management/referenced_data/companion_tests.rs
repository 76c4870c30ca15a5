use kube::ResourceExt;

use super::*;
use crate::{
    api::{karmada::BindingSnapshot, names, referenced::SourceKind},
    plan::{
        management::observed::facts::{BindingFacts, Template},
        recorded::recorded,
    },
};

#[path = "companion_claims_tests.rs"]
mod claims;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn deployment(name: &str) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 3 },
        "spec": {
            "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn payload(value: &str, more: &Value) -> Payload {
    let mut object = json!({ "metadata": {}, "data": { "k": value }, "type": "Opaque" });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Payload::parse(SourceKind::Secret, object.to_string().as_bytes()).unwrap().1
}

fn facts(users: &[&str]) -> CompanionFacts {
    let users = Some(users.iter().map(|name| format!("shop/{name}")).collect());
    CompanionFacts { uid: "c".into(), version: "7".into(), users, ..CompanionFacts::default() }
}

/// One look at the Secret `db`.
struct Case {
    /// Deployments that refer to it, and whether all their data can be copied.
    users: Vec<(WorkloadDeployment, bool)>,
    /// Other deployments of the namespace.
    others: Vec<WorkloadDeployment>,
    /// Copies on the hub.
    copies: Vec<WorkloadDeployment>,
    copies_are_unreadable: bool,
    companion: Option<CompanionFacts>,
    binding: Option<BindingFacts>,
    fresh: bool,
    waits: bool,
    source: Option<Payload>,
    content: Option<(ObjectVersion, Payload)>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            users: vec![(deployment("a"), true)],
            others: vec![],
            copies: vec![],
            copies_are_unreadable: false,
            companion: None,
            binding: None,
            fresh: false,
            waits: false,
            source: None,
            content: None,
        }
    }
}

impl Case {
    fn observed(&self) -> Observed {
        let data_ref = DataRef::secret("db");
        let expecting = |name: &str| self.copies.iter().any(|wd| wd.name_any() == name && expects(wd, &data_ref));
        let users = self.users.iter().map(|(deployment, resolved)| User {
            name: deployment.name_any(),
            wants_copy: *resolved && deployment.metadata.deletion_timestamp.is_none(),
            promised: false,
        });
        let former = |name: &str| FormerUser {
            deployment: self.others.iter().find(|wd| wd.name_any() == name).cloned().map(Shared::from),
            copy_exists: self.copies.iter().any(|wd| wd.name_any() == name),
            copy_expects: expecting(name),
        };
        let expecting_copies = self.copies.iter().filter(|wd| expects(wd, &data_ref));
        let listed = self.companion.iter().flat_map(|companion| companion.users.iter().flatten());
        let former_users = listed.filter_map(|user| Some(named(user)?.1));
        let reading = match (self.source.clone(), self.content.clone()) {
            (Some(source), None) => Reading::Source(source),
            (Some(source), Some((version, companion))) => Reading::Both { source, version, companion },
            (None, _) => Reading::Unknown,
        };
        let residue = self.companion.as_ref().zip(self.binding.as_ref()).and_then(|(companion, binding)| {
            let residue = residue::of(companion, binding, |_| false, |_| false)?;
            let parents = self.copies.iter().filter(|copy| expects(copy, &data_ref));
            let parents = parents.map(|copy| names::deployment_binding(&copy.name_any()));
            Some(ResidueFacts {
                on_companion: residue.on_companion,
                on_binding: residue.on_binding.then(|| ObjectVersion::new(&binding.uid, &binding.version)),
                needed_by: parents.filter(|parent| residue::is_needed(binding, parent, None)).collect(),
            })
        });
        Observed {
            data_ref: data_ref.clone(),
            namespace: "shop".into(),
            hub_namespace: "ns-1".into(),
            hub_namespace_lives: true,
            users: users.collect(),
            unknown_users: false,
            former_users: former_users.map(|name| (name.to_owned(), former(name))).collect(),
            expecting: (!self.copies_are_unreadable).then(|| expecting_copies.map(ResourceExt::name_any).collect()),
            companion: self.companion.clone().map(Shared::from),
            residue,
            fresh: self.fresh,
            waits: self.waits,
            reading,
        }
    }

    fn plan(&self) -> Decided {
        let observed = self.observed();
        let again = Observed { reading: observed.reading.clone(), ..recorded(&observed) };
        let plan_of = |observed: &Observed| plan(observed, NOW);
        let plan = plan_of(&observed);
        assert_eq!(format!("{:?}", plan_of(&again)), format!("{plan:?}"), "decided again from its record");
        plan
    }

    fn steps(&self) -> Vec<Step<Project, Hub>> {
        let plan = self.plan();
        assert!(!plan.signals.contains(&Signal::Read), "wants to read");
        plan.steps
    }

    fn reads(&self) -> bool {
        let plan = self.plan();
        plan.steps.is_empty() && plan.signals == [Signal::Read]
    }
}

fn remote(step: &Step<Project, Hub>) -> &Op {
    match step {
        Step::Remote(write) => &write.op,
        Step::Local(write) => panic!("{write:?}"),
    }
}

#[allow(clippy::unnecessary_wraps)] // as it is held
fn seen(value: &str, more: &Value) -> Option<(ObjectVersion, Payload)> {
    Some((ObjectVersion::new("c", "7"), payload(value, more)))
}

#[test]
fn a_companion_is_made_with_its_first_user_and_carries_no_label_that_others_select_by() {
    let mut case = Case::default();
    assert!(case.reads(), "content is read when it is due");
    case.source = Some(payload("QQ==", &json!({ "immutable": true })));
    let steps = case.steps();
    let Op::Create { body, .. } = remote(&steps[0]) else { panic!("{steps:?}") };
    assert_eq!(body["metadata"]["labels"], json!({ label::REFERENCED_DATA: "true" }));
    assert_eq!(body["metadata"]["annotations"], json!({ annotation::REFERENCED_BY: r#"["shop/a"]"# }));
    assert_eq!(
        (&body["data"]["k"], &body["type"], &body["immutable"]),
        (&json!("QQ=="), &json!("Opaque"), &json!(true))
    );
    assert!(!format!("{steps:?}").contains("QQ=="), "a plan does not show what it carries");
    let observed = case.observed();
    let shown = format!("{observed:?} {}", json!(observed));
    assert!(shown.contains("\"keys\":[\"k\"],\"size\":1") && !shown.contains("QQ=="), "nor a snapshot: {shown}");
    // Of a deployment that cannot have all it needs, nothing is copied.
    case.users[0].1 = false;
    assert!(case.steps().is_empty());
}

#[test]
fn a_claim_is_added_and_an_equal_content_costs_nothing() {
    let mut case = Case { companion: Some(facts(&["a"])), fresh: true, ..Case::default() };
    assert!(case.steps().is_empty());
    case.users.push((deployment("b"), true));
    let steps = case.steps();
    let Op::Merge { body, .. } = remote(&steps[0]) else { panic!("{steps:?}") };
    assert_eq!(
        *body,
        json!({ "metadata": {
            "annotations": { annotation::REFERENCED_BY: r#"["shop/a","shop/b"]"# }, "uid": "c", "resourceVersion": "7",
        }})
    );
    // Not seen before, or changed since: both are read, and compared.
    case.fresh = false;
    case.users.pop();
    assert!(case.reads());
    (case.source, case.content) = (Some(payload("QQ==", &json!({}))), seen("QQ==", &json!({})));
    assert!(case.steps().is_empty());
}

#[test]
fn a_changed_source_changes_its_companion_or_makes_it_anew() {
    let mut case = Case {
        companion: Some(facts(&["a"])),
        source: Some(payload("Qg==", &json!({}))),
        content: seen("QQ==", &json!({})),
        ..Case::default()
    };
    let steps = case.steps();
    let Op::Merge { body, .. } = remote(&steps[0]) else { panic!("{steps:?}") };
    assert_eq!(*body, json!({ "data": { "k": "Qg==" }, "metadata": { "uid": "c", "resourceVersion": "7" } }));
    let delete = Op::Delete { uid: "c".into(), resource_version: "7".into() };
    case.content = seen("QQ==", &json!({ "immutable": true }));
    assert_eq!(remote(&case.steps()[0]), &delete);
    case.content = seen("Qg==", &json!({ "type": "kubernetes.io/tls" }));
    assert_eq!(remote(&case.steps()[0]), &delete);
    case.content.as_mut().unwrap().0.resource_version = "8".into();
    assert!(case.steps().is_empty(), "read at a version whose users are not known");
    case.content = seen("Qg==", &json!({ "immutable": true }));
    case.source = Some(payload("Qg==", &json!({ "immutable": true })));
    assert!(case.steps().is_empty(), "immutable, and as it should be");
    case.source = Some(payload("Qg==", &json!({})));
    assert!(case.steps().is_empty(), "recreated with equal data: nothing has to change");
}

#[test]
fn whoever_has_gone_gives_up_his_claim_after_a_live_read_and_the_last_takes_it_along() {
    let expecting = |name: &str| {
        let mut wd = deployment(name);
        let list = [(annotation::EXPECTED_REFERENCED_DATA.to_owned(), r#"["Secret/db"]"#.to_owned())];
        wd.metadata.annotations = Some(list.into());
        wd
    };
    let left = |users: Vec<(WorkloadDeployment, bool)>, claims: &[&str], others, copies| {
        let case = Case { users, companion: Some(facts(claims)), fresh: true, others, copies, ..Case::default() };
        format!("{:?}", case.steps())
    };
    let gone = left(vec![], &["a"], vec![], vec![]);
    assert!(gone.contains("ConfirmAbsent") && gone.contains("Delete"), "{gone}");
    let shared = left(vec![(deployment("b"), true)], &["a", "b"], vec![], vec![]);
    assert!(shared.contains("ConfirmAbsent") && shared.contains("Merge") && !shared.contains("Delete"), "{shared}");
    let dropped = left(vec![], &["a"], vec![deployment("a")], vec![]);
    assert!(
        dropped.contains("ConfirmUnchanged { uid: \"uid-a\", generation: 3 }") && dropped.contains("Delete"),
        "{dropped}"
    );
    // Its list still brings it to the cell, in the project or on the hub: it is in use.
    assert_eq!(left(vec![], &["a"], vec![expecting("a")], vec![]), "[]");
    assert_eq!(left(vec![], &["a"], vec![deployment("a")], vec![expecting("a")]), "[]");
    // Deleted, but not gone.
    let mut going = deployment("a");
    going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(left(vec![(going, true)], &["a"], vec![], vec![]), "[]");
}

#[test]
fn of_a_user_in_another_namespace_the_name_decides_in_the_companions_own() {
    let companion = CompanionFacts { users: Some(["default/x".to_owned()].into()), ..facts(&[]) };
    let of = |others: Vec<WorkloadDeployment>, copies: Vec<WorkloadDeployment>| {
        let companion = Some(companion.clone());
        format!("{:?}", Case { users: vec![], others, copies, companion, fresh: true, ..Case::default() }.steps())
    };
    let nobody = of(vec![], vec![]);
    assert!(nobody.contains("ConfirmAbsent") && nobody.contains("\"shop\"") && nobody.contains("Delete"), "{nobody}");
    assert_eq!(of(vec![deployment("x")], vec![]), "[]", "there is one of that name");
    assert_eq!(of(vec![], vec![deployment("x")]), "[]", "or was, and its copy is on its way out");
    // Beside somebody who does use it, the entry alone goes.
    let users = Some(["default/x".to_owned(), "shop/a".to_owned()].into());
    let shared = Case { companion: Some(CompanionFacts { users, ..facts(&[]) }), fresh: true, ..Case::default() };
    let steps = format!("{:?}", shared.steps());
    assert!(steps.contains("ConfirmAbsent") && steps.contains("Merge") && !steps.contains("Delete"), "{steps}");
}

#[test]
fn what_is_not_understood_stays() {
    let of = |users: &[&str]| CompanionFacts {
        users: Some(users.iter().map(|user| (*user).to_owned()).collect()),
        ..facts(&[])
    };
    let named_by_nobody = ["x", "/x", "other/", "other/x/y"].map(|user| of(&[user]));
    for companion in named_by_nobody.into_iter().chain([facts(&[]), CompanionFacts { users: None, ..facts(&[]) }]) {
        let case = Case { users: vec![], companion: Some(companion.clone()), fresh: true, ..Case::default() };
        assert!(case.steps().is_empty(), "{companion:?}");
    }
    // With users, an annotation that cannot be read is written anew: every possible user is known.
    let corrupt = CompanionFacts { users: None, ..facts(&[]) };
    let users = vec![(deployment("a"), false), (deployment("b"), true)];
    let case = Case { users, companion: Some(corrupt), fresh: true, ..Case::default() };
    let steps = case.steps();
    let Op::Merge { body, .. } = remote(&steps[0]) else { panic!("{steps:?}") };
    assert_eq!(body["metadata"]["annotations"][annotation::REFERENCED_BY], r#"["shop/a","shop/b"]"#);
}

#[test]
fn a_claim_of_our_own_policies_is_undone_once_everybody_has_it_by_need() {
    let mut copy = deployment("a");
    copy.metadata.annotations =
        Some([(annotation::EXPECTED_REFERENCED_DATA.to_owned(), r#"["Secret/db"]"#.to_owned())].into());
    let claimed = |policy: &str| CompanionFacts { policy: Some(policy.into()), ..facts(&["a"]) };
    let binding = |needed: bool, policy: &str| BindingFacts {
        uid: "b".into(),
        version: "9".into(),
        template: Template::Companion(DataRef::secret("db")),
        policy: Some(policy.into()),
        required_by: needed
            .then(|| BindingSnapshot { name: "a-workloaddeployment".into(), clusters: vec![] })
            .into_iter()
            .collect(),
        ..BindingFacts::default()
    };
    let steps = |companion, binding| {
        let case = Case {
            companion: Some(companion),
            binding: Some(binding),
            copies: vec![copy.clone()],
            fresh: true,
            ..Case::default()
        };
        case.steps()
    };
    let both = steps(claimed("city-dfw"), binding(true, "city-dfw"));
    let (Op::Merge { body: marks, .. }, Op::Merge { body: spec, .. }) = (remote(&both[0]), remote(&both[1])) else {
        panic!("{both:?}")
    };
    assert!(marks["metadata"]["labels"][label::KARMADA_CLAIM].is_null() && marks.get("data").is_none());
    assert_eq!(spec["spec"], json!({ "clusters": null, "placement": null }));
    // Cut between the two: the second is made up for.
    assert_eq!(steps(facts(&["a"]), binding(true, "city-dfw")).len(), 1);
    assert!(steps(claimed("city-dfw"), binding(false, "city-dfw")).is_empty(), "not delivered by need yet");
    assert!(steps(claimed("theirs"), binding(true, "theirs")).is_empty(), "not ours to undo");
    assert!(steps(facts(&["a"]), BindingFacts { policy: None, ..binding(true, "") }).is_empty(), "nothing was left");
    // Written back after it was taken off, when nobody claims it any more (fact 58).
    let placed = BindingFacts { policy: None, placed: true, ..binding(true, "") };
    let again = steps(facts(&["a"]), placed.clone());
    let [Step::Remote(write)] = &again[..] else { panic!("{again:?}") };
    let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
    assert_eq!(body["metadata"]["resourceVersion"], "9", "exactly what was judged");
    assert!(body["metadata"]["annotations"][annotation::APPLIED_PLACEMENT].is_null());
    assert!(steps(facts(&["a"]), BindingFacts { required_by: vec![], ..placed.clone() }).is_empty(), "still needed");
    // Nobody can say who uses it, but no deployment does: it is kept, and what was left is not.
    let unused = Case { users: vec![], companion: Some(facts(&[])), binding: Some(placed), ..Case::default() };
    assert_eq!(unused.steps().len(), 1);
}

/// A snapshot as it stands in a debug log: a name that changes there makes records of before unreadable.
#[test]
fn a_snapshot_is_decided_again_from_its_record() {
    let record = json!({
        "data_ref": "Secret/db",
        "namespace": "shop",
        "hub_namespace": "ns-1",
        "hub_namespace_lives": true,
        "users": [{ "name": "a", "wants_copy": true }],
        "former_users": { "b": { "deployment": null, "copy_exists": false, "copy_expects": false } },
        "companion": {
            "uid": "c", "version": "7", "users": ["shop/a", "shop/b"], "policy": null, "terminating": false,
        },
        "residue": null,
        "fresh": true,
        "reading": "Unknown",
    });
    let observed: Observed = serde_json::from_value(record.clone()).unwrap();
    assert_eq!(json!(observed), record);
    let steps = plan(&observed, NOW).steps;
    let [Step::Local(confirm), Step::Remote(amend)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((confirm.object.name.as_str(), &confirm.op), ("b", &Op::ConfirmAbsent));
    let Op::Merge { body, .. } = &amend.op else { panic!("{amend:?}") };
    assert_eq!(body["metadata"]["annotations"][annotation::REFERENCED_BY], r#"["shop/a"]"#);
}

#[test]
fn a_source_is_read_first_while_it_is_not_known_and_looked_at_again_where_no_event_comes() {
    let retry = Duration::from_secs(30);
    let unauthorized = || Source::Unauthorized("forbidden".into());
    for (source, read_first, waits) in [
        (Source::Unknown, true, false),
        (Source::Absent, false, false),
        (Source::Present { size: 1 }, false, false),
        (unauthorized(), true, true),
        (Source::Taken, true, true),
    ] {
        for failing in [false, true] {
            let (present, last) = (source.clone(), source.clone());
            let state = |used| SourceState {
                used,
                present: present.clone(),
                last: last.clone(),
                failing,
                offered_in: None,
                may_return_in: None,
            };
            assert_eq!(state(true).is_read_first(), read_first || failing, "{source:?}, failing: {failing}");
            let next = if waits || failing { Next::After(retry) } else { Next::Await };
            assert_eq!(state(true).next(retry), next, "{source:?}, failing: {failing}");
            assert!(!state(false).is_read_first() && state(false).next(retry) == Next::Await, "nobody refers to it");
        }
    }
    // Its event has enqueued the companion already; what it was still waits for what no event brings.
    let changed = SourceState {
        used: true,
        present: Source::Unknown,
        last: unauthorized(),
        failing: false,
        offered_in: None,
        may_return_in: None,
    };
    assert!(changed.is_read_first() && changed.next(retry) == Next::After(retry));
    let read = Source::Present { size: 1 };
    let offered_in = Some(Duration::from_secs(7));
    let refused =
        SourceState { used: true, present: read.clone(), last: read, failing: false, offered_in, may_return_in: None };
    assert!(!refused.is_read_first() && refused.next(retry) == Next::After(Duration::from_secs(7)));
    let missing = SourceState { offered_in: None, may_return_in: Some(Duration::from_secs(2)), ..refused.clone() };
    assert_eq!(missing.next(Duration::from_secs(10)), Next::After(Duration::from_secs(2)), "it may come back");
    let gone = SourceState { used: false, ..refused };
    assert_eq!(gone.next(retry), Next::Await);
}

/// Every namespace of the hub may have its own one, and a cell's always does.
#[test]
fn config_map_of_every_namespace_is_not_made_on_the_hub() {
    let of = |data_ref: DataRef| {
        let case = Case { source: Some(payload("v", &json!({}))), ..Case::default() };
        plan(&Observed { data_ref, ..case.observed() }, NOW).steps.len()
    };
    assert_eq!(of(DataRef::config_map("settings")), 1);
    assert_eq!(of(DataRef::config_map("kube-root-ca.crt")), 0);
}
