use std::collections::BTreeMap;

use kube::ResourceExt;

use super::*;
use crate::{
    api::{compute::WorkloadDeployment, karmada::BindingSnapshot, names, referenced::SourceKind, user_list::UserName},
    plan::{
        management::{
            observed::facts::{BindingFacts, Template},
            referenced_data::users::{HubCopy, User, expects},
        },
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
    let users = UserList::parse(None).with(users.iter().map(|name| UserName::new("shop", name)).collect());
    CompanionFacts { uid: "c".into(), version: "7".into(), users, ..CompanionFacts::default() }
}

/// Returns a companion with these entries in its list.
fn listed(entries: &[&str]) -> CompanionFacts {
    CompanionFacts { users: UserList::parse(Some(&json!(entries).to_string())), ..facts(&[]) }
}

/// Inputs of one plan for the Secret `db`.
struct Case {
    /// Deployments that refer to it. True if all their data can be copied.
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
        let hub_copy = |name: &str| match self.copies.iter().find(|copy| copy.name_any() == name) {
            Some(copy) if expects(copy, &data_ref) => HubCopy::Expects,
            Some(_) => HubCopy::Exists,
            None => HubCopy::Absent,
        };
        let referring = self.users.iter().map(|(deployment, resolved)| {
            let wants_copy = *resolved && deployment.metadata.deletion_timestamp.is_none();
            let copy = hub_copy(&deployment.name_any());
            (deployment.name_any(), User { refers: true, wants_copy, copy, deployment: None })
        });
        let mut by_name: BTreeMap<String, User> = referring.collect();
        for name in self.companion.iter().flat_map(|companion| companion.users.names()) {
            let name = name.deployment();
            by_name.entry(name.to_owned()).or_insert_with(|| User {
                deployment: self.others.iter().find(|wd| wd.name_any() == name).cloned().map(Shared::from),
                copy: hub_copy(name),
                ..User::default()
            });
        }
        if self.companion.as_ref().is_some_and(|companion| companion.users.is_open()) {
            for copy in self.copies.iter().filter(|copy| expects(copy, &data_ref)) {
                let user = || User { copy: HubCopy::Expects, ..User::default() };
                by_name.entry(copy.name_any()).or_insert_with(user);
            }
        }
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
            users: Users { by_name, unknown_deployments: false, unknown_copies: self.copies_are_unreadable },
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

#[allow(clippy::unnecessary_wraps)] // the field is an Option
fn seen(value: &str, more: &Value) -> Option<(ObjectVersion, Payload)> {
    Some((ObjectVersion::new("c", "7"), payload(value, more)))
}

#[test]
fn companion_with_first_user_is_created_with_our_label_alone() {
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
    assert!(!format!("{steps:?}").contains("QQ=="), "a plan does not show content");
    let observed = case.observed();
    let shown = format!("{observed:?} {}", json!(observed));
    assert!(shown.contains("\"keys\":[\"k\"],\"size\":1") && !shown.contains("QQ=="), "nor a snapshot: {shown}");
    // If some data of a deployment cannot be copied, nothing is copied for it.
    case.users[0].1 = false;
    assert!(case.steps().is_empty());
}

#[test]
fn companion_with_new_user_adds_entry_and_equal_content_is_not_written() {
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
    // Without a comparison, or after a change, both contents are read and compared.
    case.fresh = false;
    case.users.pop();
    assert!(case.reads());
    (case.source, case.content) = (Some(payload("QQ==", &json!({}))), seen("QQ==", &json!({})));
    assert!(case.steps().is_empty());
}

#[test]
fn companion_of_changed_source_is_updated_or_recreated() {
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
    assert!(case.steps().is_empty(), "the watch has not shown this version and its users");
    case.content = seen("Qg==", &json!({ "immutable": true }));
    case.source = Some(payload("Qg==", &json!({ "immutable": true })));
    assert!(case.steps().is_empty(), "immutable, and as it should be");
    case.source = Some(payload("Qg==", &json!({})));
    assert!(case.steps().is_empty(), "recreated with equal data: nothing has to change");
}

#[test]
fn companion_former_user_is_removed_after_live_read_and_the_last_one_deletes_it() {
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
    // The annotation of the deployment or of its copy still brings it to the cell, so it is in use.
    assert_eq!(left(vec![], &["a"], vec![expecting("a")], vec![]), "[]");
    assert_eq!(left(vec![], &["a"], vec![deployment("a")], vec![expecting("a")]), "[]");
    // A terminating user is kept.
    let mut terminating = deployment("a");
    terminating.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(left(vec![(terminating, true)], &["a"], vec![], vec![]), "[]");
}

#[test]
fn companion_user_of_another_namespace_is_matched_by_name_in_its_own_namespace() {
    let companion = listed(&["default/x"]);
    let steps = |others: Vec<WorkloadDeployment>, copies: Vec<WorkloadDeployment>| {
        let companion = Some(companion.clone());
        format!("{:?}", Case { users: vec![], others, copies, companion, fresh: true, ..Case::default() }.steps())
    };
    let unused = steps(vec![], vec![]);
    assert!(unused.contains("ConfirmAbsent") && unused.contains("\"shop\"") && unused.contains("Delete"), "{unused}");
    assert_eq!(steps(vec![deployment("x")], vec![]), "[]", "there is one of that name");
    assert_eq!(steps(vec![], vec![deployment("x")]), "[]", "or was, and its copy is terminating");
    // With another user only the entry is removed.
    let shared = Case { companion: Some(listed(&["default/x", "shop/a"])), fresh: true, ..Case::default() };
    let steps = format!("{:?}", shared.steps());
    assert!(steps.contains("ConfirmAbsent") && steps.contains("Merge") && !steps.contains("Delete"), "{steps}");
}

#[test]
fn companion_with_unreadable_list_of_users_is_kept() {
    let corrupt = CompanionFacts { users: UserList::parse(Some("no list")), ..facts(&[]) };
    let without_names = ["x", "/x", "other/", "other/x/y"].map(|user| listed(&[user]));
    for companion in without_names.into_iter().chain([facts(&[]), corrupt.clone()]) {
        let case = Case { users: vec![], companion: Some(companion.clone()), fresh: true, ..Case::default() };
        assert!(case.steps().is_empty(), "{companion:?}");
    }
    // With known users, an unreadable annotation is rewritten with every possible user.
    let users = vec![(deployment("a"), false), (deployment("b"), true)];
    let mut case = Case { users, companion: Some(corrupt), fresh: true, ..Case::default() };
    let rewritten = |case: &Case, expected: &str| {
        let steps = case.steps();
        let Op::Merge { body, .. } = remote(&steps[0]) else { panic!("{steps:?}") };
        assert_eq!(body["metadata"]["annotations"][annotation::REFERENCED_BY], expected);
    };
    rewritten(&case, r#"["shop/a","shop/b"]"#);
    // Instances of an older template of `c` use it.
    let mut copy = deployment("c");
    copy.metadata.annotations =
        Some([(annotation::EXPECTED_REFERENCED_DATA.to_owned(), r#"["Secret/db"]"#.to_owned())].into());
    case.copies = vec![copy];
    rewritten(&case, r#"["shop/a","shop/b","shop/c"]"#);
    // Another copy may expect it, so the list does not say that these are all.
    case.copies_are_unreadable = true;
    rewritten(&case, r#"["nobody any more","shop/a","shop/b","shop/c"]"#);
    case.users = vec![];
    case.copies = vec![];
    assert!(case.steps().is_empty(), "no user is known");
}

#[test]
fn companion_claim_of_our_policy_is_released_once_dependencies_bring_it() {
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
    // If only the first of the two was written, the second follows.
    assert_eq!(steps(facts(&["a"]), binding(true, "city-dfw")).len(), 1);
    assert!(steps(claimed("city-dfw"), binding(false, "city-dfw")).is_empty(), "no dependency brings it yet");
    assert!(steps(claimed("theirs"), binding(true, "theirs")).is_empty(), "a claim of another owner");
    assert!(steps(facts(&["a"]), BindingFacts { policy: None, ..binding(true, "") }).is_empty(), "no residue");
    // Karmada writes residue back after it was removed and is unclaimed (fact 58).
    let placed = BindingFacts { policy: None, placed: true, ..binding(true, "") };
    let again = steps(facts(&["a"]), placed.clone());
    let [Step::Remote(write)] = &again[..] else { panic!("{again:?}") };
    let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
    assert_eq!(body["metadata"]["resourceVersion"], "9", "exactly the observed version");
    assert!(body["metadata"]["annotations"][annotation::APPLIED_PLACEMENT].is_null());
    assert!(steps(facts(&["a"]), BindingFacts { required_by: vec![], ..placed.clone() }).is_empty(), "still needed");
    // Its list names no user, and no deployment refers to it: it is kept, and its residue is removed.
    let unused = Case { users: vec![], companion: Some(facts(&[])), binding: Some(placed), ..Case::default() };
    assert_eq!(unused.steps().len(), 1);
}

/// A snapshot as in a debug log. A renamed field makes old records unreadable.
#[test]
fn companion_snapshot_from_record_gives_the_same_plan() {
    let record = json!({
        "data_ref": "Secret/db",
        "namespace": "shop",
        "hub_namespace": "ns-1",
        "hub_namespace_lives": true,
        "users": { "by_name": {
            "a": { "refers": true, "wants_copy": true, "copy": "Absent" },
            "b": { "refers": false, "wants_copy": false, "copy": "Absent" },
        } },
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
fn source_that_is_unknown_is_read_first_and_requeued_if_no_event_comes() {
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
            assert!(
                !state(false).is_read_first() && state(false).next(retry) == Next::Await,
                "no deployment refers to it"
            );
        }
    }
    // Its event has enqueued the companion already. Its last state still needs a requeue, because no event reports new rights.
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

/// Every namespace of the hub may have its own one, and every namespace of a cell has one.
#[test]
fn config_map_of_every_namespace_is_not_created_on_the_hub() {
    let writes = |data_ref: DataRef| {
        let case = Case { source: Some(payload("v", &json!({}))), ..Case::default() };
        plan(&Observed { data_ref, ..case.observed() }, NOW).steps.len()
    };
    assert_eq!(writes(DataRef::config_map("settings")), 1);
    assert_eq!(writes(DataRef::config_map("kube-root-ca.crt")), 0);
}
