use super::*;
use crate::{
    api::meta,
    plan::{Op, recorded::recorded},
};

const GRACE: Duration = Duration::from_mins(1);

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_hours(1)
}

/// Since when what is past its grace is stranded.
fn long_ago() -> Timestamp {
    now() - GRACE
}

fn keeper(management: &str, control_plane: &str) -> Keeper {
    Keeper { management: Some(management.into()), control_plane: Some(control_plane.into()) }
}

fn facts() -> NamespaceFacts {
    let labels = [
        (label::UPSTREAM_CLUSTER, "cluster-_beta"),
        (label::UPSTREAM_NAMESPACE, "shop"),
        (label::DELETION_PROTECTED, meta::PROTECTED),
    ];
    NamespaceFacts {
        uid: "u".into(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        keeper: keeper("m", "p"),
        stranded_since: Some(long_ago()),
        ..NamespaceFacts::default()
    }
}

/// Of a project that does not exist, for as long as its grace.
fn due() -> Observed {
    Observed {
        namespace: "ns-1".into(),
        facts: facts(),
        mirrored: Mirrored::ProjectGone(Kind::Project),
        keeper: Keeper { control_plane: None, ..keeper("m", "") },
        content: Content::default(),
        protected: Vec::new(),
        grace: Some(GRACE),
        paused: false,
        present: None,
    }
}

fn held(name: &str) -> (Object, ObjectVersion) {
    (Object { kind: Kind::Instance, namespace: "ns-1".into(), name: name.into() }, ObjectVersion::new(name, "3"))
}

/// Of a namespace that its project has no more, in the very control plane that had it.
fn left() -> Observed {
    let content = Content {
        copies: vec![held("copy")],
        copies_left: 1,
        companions: vec![held("companion")],
        instances: vec![held("instance")],
        policies: 1,
        bindings: Vec::new(),
    };
    let facts = NamespaceFacts { stranded_since: None, ..facts() };
    Observed { mirrored: Mirrored::NamespaceGone, keeper: keeper("m", "p"), facts, content, ..due() }
}

/// The same, as a live read has found it.
fn found(observed: Observed, change: impl FnOnce(&mut NamespaceFacts)) -> Observed {
    let mut facts = observed.facts.clone();
    change(&mut facts);
    Observed { present: Some(Present { facts, version: ObjectVersion::new("u", "7") }), ..observed }
}

/// What a plan asks for, in short.
fn steps(plan: &Decided) -> Vec<String> {
    let step = |(place, object, op): (&str, &Object, &Op)| match op {
        Op::ConfirmAbsent => format!("{place}: no {object}"),
        Op::ConfirmGone { uid } => format!("{place}: no {object} of uid {uid}"),
        Op::ConfirmPresent { uid } => format!("{place}: {object} of uid {uid}"),
        Op::Merge { body, .. } => format!("{place}: {object} {}", body["metadata"]),
        Op::Delete { uid, resource_version } => format!("{place}: delete {object} {uid} {resource_version}"),
        Op::Create { body, .. } => format!("{place}: {}", body["note"].as_str().unwrap_or_default()),
        other => format!("{other:?}"),
    };
    let all = plan.steps.iter().map(|action| match action {
        Action::Hub(write) => ("hub", &write.object, &write.op),
        Action::Discovery(write) => ("discovery", &write.object, &write.op),
        Action::Project(write) => ("project", &write.object, &write.op),
    });
    all.map(step).collect()
}

fn decided(observed: &Observed) -> Decided {
    let decided = plan(observed, now());
    let again = plan(&recorded(observed), now());
    assert_eq!(format!("{again:?}"), format!("{decided:?}"), "decided again from its record");
    decided
}

const KEPT: &[Signal] = &[Signal::Stranded];
const NOTED: &[Signal] = &[Signal::Read(Purpose::Note), Signal::Stranded];
const GOES: &[Signal] = &[Signal::Read(Purpose::Remove), Signal::Stranded];
const EMPTIED: &[Signal] = &[Signal::Read(Purpose::Empty), Signal::Stranded];

#[test]
fn what_the_caches_say_decides_whether_anybody_looks() {
    type Case = (&'static str, fn() -> Observed, fn(&mut Observed), &'static [Signal]);
    let cases: [Case; 26] = [
        ("past its grace", due, |_| {}, GOES),
        ("nobody knows whether its project exists", due, |o| o.mirrored = Mirrored::Unknown, &[]),
        ("it mirrors nothing", due, |o| o.facts.labels.clear(), &[]),
        ("it is none of ours by its name", due, |o| o.namespace = "default".into(), &[]),
        ("it is on its way out", due, |o| o.facts.terminating = true, &[]),
        ("another management plane keeps it", due, |o| o.facts.keeper = keeper("other", "p"), &[]),
        ("nobody says that he keeps it", due, |o| o.facts.keeper = Keeper::default(), &[]),
        ("nobody knows who we are", due, |o| o.keeper = Keeper::default(), &[]),
        ("neither knows who he is", due, |o| (o.keeper, o.facts.keeper) = (Keeper::default(), Keeper::default()), &[]),
        ("never seen before", due, |o| o.facts.stranded_since = None, NOTED),
        ("no grace at all", due, |o| (o.facts.stranded_since, o.grace) = (None, Some(Duration::ZERO)), NOTED),
        ("paused, and never seen before", due, |o| (o.facts.stranded_since, o.paused) = (None, true), NOTED),
        (
            "a moment before its grace ends",
            due,
            |o| o.facts.stranded_since = Some(long_ago() + Duration::from_millis(1)),
            KEPT,
        ),
        ("a clock that went back", due, |o| o.facts.stranded_since = Some(now() + GRACE), KEPT),
        ("kept for ever", due, |o| o.grace = None, KEPT),
        ("paused there", due, |o| o.facts.paused = true, KEPT),
        ("paused everywhere", due, |o| o.paused = true, KEPT),
        ("its project is back", due, |o| o.mirrored = Mirrored::Lives, &[Signal::Read(Purpose::Note)]),
        ("nothing was ever wrong with it", left, |o| o.mirrored = Mirrored::Lives, &[]),
        ("the namespace is gone", left, |_| {}, EMPTIED),
        ("nothing is left of it", left, |o| o.content = Content::default(), &[]),
        ("clean-up is paused", left, |o| o.paused = true, KEPT),
        ("another's", left, |o| o.facts.keeper = keeper("other", "p"), &[]),
        ("the project has another control plane", left, |o| o.keeper = keeper("m", "new"), NOTED),
        ("nobody knows which control plane had it", left, |o| o.facts.keeper.control_plane = None, NOTED),
        (
            "the other control plane has stayed for the grace",
            left,
            |o| (o.keeper, o.facts.stranded_since) = (keeper("m", "new"), Some(long_ago())),
            GOES,
        ),
    ];
    for (what, start, change, expected) in cases {
        let mut observed = start();
        change(&mut observed);
        let decided = decided(&observed);
        assert_eq!(decided.signals, expected, "{what}");
        assert!(decided.steps.is_empty(), "{what}: without a live read: {decided:?}");
    }
}

#[test]
fn it_is_told_once_with_when_it_goes_and_the_namespace_keeps_since_when() {
    let project = "project beta, whose objects this namespace holds, does not exist";
    for (grace, then) in [(Some(GRACE), "what it holds is removed in 60 s"), (None, "it is left as it is")] {
        let mut new = Observed { grace, ..due() };
        new.facts.stranded_since = None;
        let first = steps(&decided(&found(new, |_| {})));
        let [absent, mark, event] = &first[..] else { panic!("{first:?}") };
        assert_eq!(absent, "discovery: no Project beta");
        assert!(mark.contains(r#""compute.datumapis.com/stranded-since":"1970-01-01T01:00:00Z""#), "{mark}");
        assert!(mark.contains(r#""resourceVersion":"7""#), "of the version that was judged: {mark}");
        assert_eq!(*event, format!("hub: {project}: {then}"));
    }
}

/// A stolen credential of a cell made Instances that Karmada refuses to delete: neither they nor the namespace ever went.
#[test]
fn stranded_namespace_with_protected_objects_lifts_their_protection_before_it_deletes() {
    let whole = Observed { protected: vec![held("instance")], ..due() };
    let decided_on = decided(&found(whole, |_| {}));
    assert_eq!(decided_on.signals, GOES, "judged once more without it");
    let all = steps(&decided_on);
    let [_, instance, namespace] = &all[..] else { panic!("{all:?}") };
    let lifted =
        r#""labels":{"resourcetemplate.karmada.io/deletion-protected":null},"resourceVersion":"3","uid":"instance""#;
    assert!(instance.starts_with("hub: Instance ns-1/instance ") && instance.contains(lifted), "{all:?}");
    assert!(namespace.starts_with("hub: Namespace ns-1 "), "{all:?}");
    let content = Content { instances: vec![held("instance"), held("other")], ..Content::default() };
    let emptied = Observed { content, protected: vec![held("instance")], ..left() };
    let all = steps(&decided(&found(emptied, |_| {})));
    assert!(all[1].starts_with("hub: Instance ns-1/instance ") && all[1].contains(lifted), "{all:?}");
    assert_eq!(all[2], "hub: delete Instance ns-1/other other 3");
}

#[test]
fn first_the_protection_goes_and_then_the_version_that_was_judged() {
    let decided_on = decided(&found(due(), |_| {}));
    assert_eq!(decided_on.signals, GOES, "it is judged anew without its protection");
    let all = steps(&decided_on);
    assert_eq!(all[0], "discovery: no Project beta");
    assert!(all[1].contains(r#""labels":{"resourcetemplate.karmada.io/deletion-protected":null}"#), "{all:?}");
    let internal = Observed { mirrored: Mirrored::ProjectGone(Kind::ProjectControlPlane), ..due() };
    let decided_on = decided(&found(internal, |facts| drop(facts.labels.remove(label::DELETION_PROTECTED))));
    assert_eq!(decided_on.signals, [Signal::Removed, Signal::Stranded]);
    assert_eq!(steps(&decided_on), ["discovery: no ProjectControlPlane beta", "hub: delete Namespace ns-1 u 7"]);
}

#[test]
fn what_a_namespace_that_is_gone_left_goes_after_a_live_read_of_its_uid() {
    let gone = "project: no Namespace shop of uid 1";
    let decided_on = decided(&found(left(), |_| {}));
    assert_eq!(decided_on.signals, [Signal::Emptied, Signal::Stranded]);
    assert_eq!(
        steps(&decided_on),
        [gone, "hub: delete Instance ns-1/copy copy 3", "hub: delete Instance ns-1/companion companion 3"],
        "what cells wrote they take back themselves, as long as there are copies"
    );
    let mut without_copies = left();
    (without_copies.content.copies, without_copies.content.copies_left) = (Vec::new(), 0);
    let all = steps(&decided(&found(without_copies, |_| {})));
    assert_eq!(
        all[1..],
        ["hub: delete Instance ns-1/companion companion 3", "hub: delete Instance ns-1/instance instance 3"]
    );
    let policies = Observed { content: Content { policies: 1, ..Content::default() }, ..left() };
    let decided_on = decided(&found(policies, |_| {}));
    assert!(decided_on.steps.is_empty() && decided_on.signals.contains(&Signal::Emptied), "{decided_on:?}");
    // What is on its way out goes by itself: found by reading, a copy that could not go was reported removed by each sweep, and
    // took the place of others.
    let stuck = Content { copies_left: 1, instances: vec![held("instance")], ..Content::default() };
    let mut other = Observed { content: stuck.clone(), keeper: keeper("m", "new"), ..left() };
    other.facts.stranded_since = Some(long_ago());
    for observed in [Observed { content: stuck, ..left() }, other] {
        let decided_on = decided(&found(observed, |_| {}));
        assert!(decided_on.steps.is_empty() && decided_on.signals.is_empty(), "{decided_on:?}");
    }
    // In another control plane the same, after the grace.
    let mut other = Observed { keeper: keeper("m", "new"), ..left() };
    other.facts.stranded_since = Some(long_ago());
    assert_eq!(steps(&decided(&found(other, |_| {})))[0], gone);
}

/// Found by reading: a binding that had outlived its copy stayed for ever once the tenant's namespace was gone, and what ran by it
/// ran on: the sweep left it to this plan, which did not look at bindings.
#[test]
fn a_binding_without_a_copy_goes_with_a_namespace_that_is_gone() {
    let facts = |policy: Option<&str>| BindingFacts {
        uid: "b".into(),
        version: "4".into(),
        policy: policy.map(Into::into),
        ..BindingFacts::default()
    };
    let of = |name: &str, facts: &BindingFacts| LostBinding::of("ns-1", name, facts);
    let name = "web-dfw-workloaddeployment";
    let scheduled = BindingFacts { scheduled_for: crate::api::names::CityCode::parse("dfw").ok(), ..facts(None) };
    let going = BindingFacts { terminating: true, ..facts(Some("city-dfw")) };
    for (what, lost, expected) in [
        ("a city's", of(name, &facts(Some("city-dfw"))), true),
        ("a city's before that policy went", of(name, &scheduled), true),
        ("somebody else's", of(name, &facts(Some("theirs"))), false),
        ("claimed by nobody, ever", of(name, &facts(None)), false),
        ("on its way out", of(name, &going), false),
        ("a companion's, which the sweep finds", of("db-secret", &facts(Some("city-dfw"))), false),
    ] {
        assert_eq!(lost.is_some(), expected, "{what}");
    }
    let lost = of(name, &facts(Some("city-dfw"))).unwrap();
    let content = Content { bindings: vec![lost], ..Content::default() };
    let observed = Observed { content: content.clone(), ..left() };
    assert_eq!(decided(&observed).signals, EMPTIED);
    let gone = "project: no Namespace shop of uid 1";
    let removal =
        ["hub: no WorkloadDeployment ns-1/web-dfw", "hub: delete ResourceBinding ns-1/web-dfw-workloaddeployment b 4"];
    let all = steps(&decided(&found(observed, |_| {})));
    assert_eq!(all, [&[gone], &removal[..]].concat());
    // As long as there are copies their bindings are theirs.
    let observed = Observed { content: Content { copies_left: 1, ..content.clone() }, ..left() };
    assert!(decided(&observed).signals.is_empty());
    // In another control plane the grace comes first.
    let mut other = Observed { content, keeper: keeper("m", "new"), ..left() };
    assert_eq!(decided(&other).signals, NOTED);
    other.facts.stranded_since = Some(long_ago());
    assert_eq!(steps(&decided(&found(other, |_| {})))[1..], removal);
}

#[test]
fn what_the_namespace_says_at_present_counts_and_not_what_the_watch_has_brought() {
    type Case = (&'static str, fn(&mut NamespaceFacts), &'static str);
    let cases: [Case; 6] = [
        ("a pause was set a moment ago", |f| f.paused = true, "clean-up is paused there"),
        ("somebody else deletes it", |f| f.terminating = true, "it is on its way out"),
        ("a namesake stands in its place", |f| f.uid = "other".into(), "it is another one by now"),
        (
            "it was given to another project",
            |f| drop(f.labels.insert(label::UPSTREAM_CLUSTER.into(), "cluster-_alpha".into())),
            "it mirrors another project by now",
        ),
        ("it mirrors nothing any more", |f| f.labels.clear(), "it is another one by now"),
        ("another has taken it", |f| f.keeper = keeper("other", "p"), "somebody else keeps it by now"),
    ];
    for (what, change, why) in cases {
        for start in [due(), left()] {
            let decided_on = decided(&found(start, change));
            assert_eq!(decided_on.signals, [Signal::Stays(why), Signal::Stranded], "{what}");
            assert!(decided_on.steps.is_empty(), "{what}: {decided_on:?}");
        }
    }
    let again = decided(&found(due(), |facts| facts.stranded_since = Some(now())));
    assert!(matches!(again.signals[0], Signal::Stays(_)), "it was stranded anew a moment ago: {again:?}");
}

#[test]
fn one_whose_original_lives_is_adopted_and_forgets_that_it_was_stranded() {
    let lives = || Observed { mirrored: Mirrored::Lives, keeper: keeper("m", "p"), ..due() };
    let all = steps(&decided(&found(lives(), |_| {})));
    assert_eq!(all[0], "project: Namespace shop of uid 1");
    assert!(all[1].contains(r#""compute.datumapis.com/stranded-since":null"#), "{all:?}");
    let mut of_go = lives();
    (of_go.facts.keeper, of_go.facts.stranded_since) = (Keeper::default(), None);
    assert_eq!(decided(&of_go).signals, [Signal::Read(Purpose::Note)]);
    let all = steps(&decided(&found(of_go, |_| {})));
    assert!(all[1].contains(r#""compute.datumapis.com/kept-by":"m""#), "{all:?}");
    let mut of_another = lives();
    of_another.facts.keeper = keeper("other", "p");
    assert!(decided(&of_another).signals.is_empty(), "whatever it says");
}

#[test]
fn one_sweep_takes_a_few_and_no_more_than_a_tenth() {
    for (known, expected) in [(0, 1), (1, 1), (19, 1), (20, 2), (49, 4), (50, 5), (10_000, 5)] {
        assert_eq!(removals(known), expected, "{known}");
    }
}

/// Found by reading: the Go operator's policies, which carry no label, were not counted, and a namespace was told to be empty
/// that had one.
#[test]
fn policies_that_their_city_is_to_take_away_are_left_and_nobody_elses() {
    type Edit = fn(&mut PropagationPolicy);
    let selects = |kind: &str, label: &str, value: &str| json!({ "apiVersion": "v1", "kind": kind, "labelSelector": { "matchLabels": { (label): value } } });
    let of_go = || -> PropagationPolicy {
        serde_json::from_value(json!({
            "metadata": { "name": "city-dfw", "namespace": "ns-1" },
            "spec": {
                "resourceSelectors": [
                    selects("WorkloadDeployment", label::TOPOLOGY_CITY, "DFW"),
                    selects("Secret", label::REFERENCED_DATA, "true"),
                ],
                "placement": {},
            },
        }))
        .unwrap()
    };
    let cases: [(&str, Edit, bool); 4] = [
        ("the Go operator's", |_| (), true),
        (
            "ours, whatever it selects",
            |policy| {
                policy.metadata.labels = Some([(label::MANAGED_BY.to_owned(), meta::MANAGED_BY.to_owned())].into());
                policy.spec.resource_selectors.clear();
            },
            true,
        ),
        ("one that has but the name", |policy| policy.spec.resource_selectors.clear(), false),
        (
            "one that goes",
            |policy| {
                policy.metadata.deletion_timestamp =
                    Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            },
            false,
        ),
    ];
    for (name, edit, expected) in cases {
        let mut policy = of_go();
        edit(&mut policy);
        assert_eq!(is_left(&policy), expected, "{name}");
    }
}
