use super::*;
use crate::api::user_list::{UserList, UserName};
use crate::api::{compute::WorkloadDeploymentStatus, referenced::to_annotation};
use crate::plan::{limits::MAX_REFERENCES, management::observed::facts::CompanionFacts};

fn deployment(references: &serde_json::Value, annotations: &serde_json::Value) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": { "name": "wd", "namespace": "shop", "generation": 2, "annotations": annotations },
        "spec": {
            "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                    { "name": "c", "image": "i", "envFrom": references },
                ] } },
                "networkInterfaces": [],
            } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn wd_user() -> UserName {
    UserName::new("shop", "wd")
}

fn present(size: u64) -> Source {
    Source::Present { size }
}

/// Every namespace of project, hub and cell has its own one, with different content.
#[test]
fn config_map_of_every_namespace_is_never_copied() {
    let asks =
        |data_ref, optional| Reference { data_ref, optional, asked_by: vec!["volume ca".into()], asked_by_more: 0 };
    let root = DataRef::config_map("kube-root-ca.crt");
    let known = [(root.clone(), present(1)), (DataRef::secret("kube-root-ca.crt"), present(1))].into();
    let resolved = |reference| resolve(&[reference], "shop", Limits::default(), &known);
    let Resolution::Refused(refusal) = resolved(asks(root.clone(), false)) else { panic!("it is copied") };
    assert_eq!(refusal.reason, Reason::SourceNameTaken);
    assert!(refusal.message.ends_with("(used by volume ca): copy it under another name"), "{}", refusal.message);
    let skipped = Resolution::Complete { wanted: Vec::new(), skipped: vec![root.clone()] };
    assert_eq!(resolved(asks(root, true)), skipped);
    let secret = DataRef::secret("kube-root-ca.crt");
    let copied = Resolution::Complete { wanted: vec![secret.clone()], skipped: Vec::new() };
    assert_eq!(resolved(asks(secret, false)), copied);
}

#[test]
#[allow(clippy::type_complexity)]
fn refusal_of_each_cause_names_problem_place_and_remedy() {
    let long = "x".repeat(250);
    let limits = Limits { per_object: 100, aggregate: 150 };
    let refs = |list: &[(&str, bool)]| -> Vec<Reference> {
        list.iter()
            .map(|(name, optional)| Reference {
                data_ref: DataRef::secret(name),
                optional: *optional,
                asked_by: vec!["container c: envFrom".into()],
                asked_by_more: 0,
            })
            .collect()
    };
    let reported = |list: &[(&str, bool)], sources: &[(&str, Source)]| {
        let known = sources.iter().map(|(name, source)| (DataRef::secret(name), source.clone())).collect();
        resolve(&refs(list), "shop", limits, &known)
    };
    let cases: [(&[(&str, bool)], &[(&str, Source)], &str, &str); 8] = [
        (
            &[("a", false)],
            &[("a", Source::Absent)],
            "SourceNotFound",
            "no Secret a in namespace shop (used by container c: envFrom): create it",
        ),
        (&[("a", false)], &[("a", Source::Unauthorized("forbidden".into()))], "SourceUnauthorized", "may not be read"),
        (&[("a", false)], &[("a", Source::Taken)], "SourceNameTaken", "use another name"),
        (&[("a", false)], &[("a", present(101))], "SourceTooLarge", "a has 101 bytes, 100 is the limit"),
        (
            &[("a", false), ("b", false)],
            &[("a", present(80)), ("b", present(71))],
            "SourceTooLarge",
            "151 bytes, 150 is the limit (largest: Secret/a 80, Secret/b 71)",
        ),
        (&[(&long, false)], &[], "SourceNameTooLong", "250 characters, 242 is the limit"),
        (&[("../x", false)], &[], "SourceNotFound", "not a name that a Secret can have"),
        // A certain problem is reported even while another source is still being read.
        (&[("a", false), ("b", false)], &[("a", Source::Absent)], "SourceNotFound", "no Secret a"),
    ];
    for (list, sources, reason, words) in cases {
        let Resolution::Refused(refusal) = reported(list, sources) else { panic!("{list:?}") };
        assert!(refusal.reason == reason && refusal.message.contains(words), "{refusal:?}");
    }
    assert_eq!(reported(&[("a", false)], &[]), Resolution::Pending(vec![DataRef::secret("a")]));
    // A problem with an optional source never blocks the others.
    for state in [Source::Absent, Source::Unauthorized(String::new()), present(500), Source::Taken] {
        let resolution = reported(&[("a", true), ("b", false)], &[("a", state), ("b", present(1))]);
        let expected = Resolution::Complete { wanted: vec![DataRef::secret("b")], skipped: vec![DataRef::secret("a")] };
        assert_eq!(resolution, expected);
    }
}

struct World {
    sources: BTreeMap<DataRef, Source>,
    /// Companions that the deployment uses. True if the companion is fresh.
    companions: BTreeMap<DataRef, bool>,
}

fn decide(world: &World, deployment: &WorkloadDeployment) -> Data {
    let users = UserList::parse(None).with([UserName::new("shop", "wd")].into());
    let facts = CompanionFacts { uid: "c".into(), users, ..CompanionFacts::default() };
    let companion = |fresh: bool| SharedCompanion::of(&facts, &wd_user(), fresh.then_some("c"));
    let companions = world.companions.iter().map(|(data_ref, fresh)| (data_ref.clone(), companion(*fresh))).collect();
    data(
        deployment,
        None,
        &View { limits: Limits::default(), sources: world.sources.clone(), companions, ..View::default() },
        Duration::from_mins(2),
        Timestamp::UNIX_EPOCH,
    )
}

fn texts(data_refs: Option<&Vec<DataRef>>) -> Vec<String> {
    data_refs.into_iter().flatten().map(ToString::to_string).collect()
}

#[test]
fn data_is_expected_once_all_companions_are_in_place_and_kept_while_needed() {
    let (a, b) = (DataRef::config_map("a"), DataRef::secret("b"));
    let refs = json!([{ "configMapRef": { "name": "a" } }, { "secretRef": { "name": "b" } }]);
    let fresh = deployment(&refs, &json!({}));
    let mut world = World { sources: BTreeMap::new(), companions: BTreeMap::new() };
    assert_eq!(decide(&world, &fresh).trouble.unwrap().reason, "Resolving");
    world.sources = [(a.clone(), present(1)), (b.clone(), present(1))].into();
    world.companions = [(a.clone(), true)].into();
    let waiting = decide(&world, &fresh);
    assert!(waiting.expected.is_none() && waiting.trouble.unwrap().message == "copying Secret/b to the hub");
    world.companions.insert(b.clone(), false);
    assert!(decide(&world, &fresh).expected.is_none(), "it exists, but its content was not compared");
    world.companions.insert(b.clone(), true);
    let done = decide(&world, &fresh);
    assert!(done.trouble.is_none());
    assert_eq!(texts(done.expected.as_ref()), ["ConfigMap/a", "Secret/b"]);

    // It stays expected while a copy is updated or a source is gone.
    let expecting =
        deployment(&refs, &json!({ annotation::EXPECTED_REFERENCED_DATA: r#"["ConfigMap/a","Secret/b"]"# }));
    world.companions.insert(b.clone(), false);
    assert_eq!(texts(decide(&world, &expecting).expected.as_ref()), ["ConfigMap/a", "Secret/b"]);
    world.sources.insert(b.clone(), Source::Absent);
    let orphaned = decide(&world, &expecting);
    assert_eq!(orphaned.refusal.as_ref().unwrap().reason, "SourceNotFound");
    assert_eq!(texts(orphaned.expected.as_ref()), ["ConfigMap/a", "Secret/b"], "copies are kept");
}

/// A companion with a full list of users was never given to the next user, and no message gave the reason.
#[test]
fn data_with_full_list_of_users_reports_the_reason() {
    let wd = deployment(&json!([{ "secretRef": { "name": "b" } }]), &json!({}));
    let message = |user: &str| {
        let users = UserList::parse(None).with([UserName::new("shop", user)].into());
        let facts = CompanionFacts { uid: "c".into(), users, ..CompanionFacts::default() };
        let full = Some("annotations are too long".into());
        let companion = SharedCompanion { full, ..SharedCompanion::of(&facts, &wd_user(), Some("c")) };
        let (sources, companions) =
            ([(DataRef::secret("b"), present(1))].into(), [(DataRef::secret("b"), companion)].into());
        data(&wd, None, &View { sources, companions, ..View::default() }, Duration::MAX, Timestamp::UNIX_EPOCH)
            .trouble
            .map(|trouble| trouble.message)
    };
    let refused = message("another").unwrap();
    assert!(refused.ends_with("the list of users of Secret/b cannot grow: annotations are too long"), "{refused}");
    assert_eq!(message("wd"), None, "the list names this one");
}

/// While another owner's finalizer blocked the deletion of a copy, the condition said for ever that the data was being copied.
#[test]
fn data_copy_held_by_finalizer_for_two_minutes_is_reported_with_the_finalizer() {
    let refs = json!([{ "secretRef": { "name": "b" } }]);
    let held_for = |seconds: i64, finalizers: &[&str]| {
        let meta = json!({
            "uid": "c", "deletionTimestamp": Timestamp::UNIX_EPOCH.to_string(), "finalizers": finalizers,
            "annotations": { annotation::REFERENCED_BY: r#"["shop/wd"]"# },
        });
        let facts = CompanionFacts::of(&serde_json::from_value(meta).unwrap());
        let companion = SharedCompanion::of(&facts, &wd_user(), None);
        let (sources, companions) =
            ([(DataRef::secret("b"), present(1))].into(), [(DataRef::secret("b"), companion)].into());
        let view = View { sources, companions, ..View::default() };
        let wd = deployment(&refs, &json!({ annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/b"]"# }));
        let now = Timestamp::from_second(seconds).unwrap();
        data(&wd, Some(&wd), &view, Duration::from_mins(2), now)
    };
    let under_way = held_for(100, &["example.com/hold"]);
    assert_eq!(under_way.trouble.unwrap().message, "copying Secret/b to the hub");
    assert_eq!((under_way.refusal, under_way.look_again), (None, Some(Duration::from_secs(20))));
    for (finalizers, words) in [
        (&["example.com/hold"][..], "Secret/b has the finalizers example.com/hold, which their owners"),
        (&[], "Secret/b has no finalizer, and its API server has not removed it yet"),
    ] {
        let held = held_for(120, finalizers);
        let trouble = held.trouble.unwrap();
        assert!(trouble.reason == "SourceCopyHeld" && trouble.message.contains(words), "{trouble:?}");
        assert!(held.refusal.unwrap().to_annotation().contains(words), "the cell reports it on the Instances too");
        assert_eq!(held.look_again, None);
        assert_eq!(texts(held.expected.as_ref()), ["Secret/b"], "running instances keep it");
    }
}

#[test]
fn data_annotation_of_tenant_without_companion_entry_is_ignored() {
    let forged = json!({ annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/of-somebody-else"]"# });
    let world = World { sources: BTreeMap::new(), companions: BTreeMap::new() };
    assert_eq!(decide(&world, &deployment(&json!([]), &forged)).expected, None);
}

/// Returns the status of a deployment with two Instances at generation 2.
fn status(observed: i64, updated: i32) -> Option<WorkloadDeploymentStatus> {
    let status = json!({ "replicas": 2, "updatedReplicas": updated, "observedGeneration": observed });
    serde_json::from_value(status).unwrap()
}

#[test]
fn data_of_old_template_is_kept_until_its_instances_are_replaced() {
    let old = json!({ annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/old"]"# });
    let mut deployment = deployment(&json!([]), &old);
    let companions = [(DataRef::secret("old"), true)].into();
    let world = World { sources: BTreeMap::new(), companions };
    for (observed, updated, kept) in [(1, 2, true), (2, 1, true), (2, 2, false)] {
        deployment.status = status(observed, updated);
        assert_eq!(decide(&world, &deployment).expected.is_some(), kept, "{observed} {updated}");
    }
    deployment.status = None;
    assert!(decide(&world, &deployment).expected.is_some(), "the cell has not reported");
}

#[test]
fn references_beyond_the_limit_are_refused_with_too_many_sources() {
    let many = |count: usize| -> Vec<Reference> {
        let one = |n: usize| Reference {
            data_ref: DataRef::secret(&format!("s-{n}")),
            optional: true,
            asked_by: vec!["container c: envFrom".into()],
            asked_by_more: 0,
        };
        (0..count).map(one).collect()
    };
    let resolved = |count| resolve(&many(count), "shop", Limits::default(), &BTreeMap::new());
    assert!(matches!(resolved(MAX_REFERENCES), Resolution::Pending(_)));
    let Resolution::Refused(refusal) = resolved(MAX_REFERENCES + 1) else { panic!("too many") };
    assert_eq!(refusal.reason, Reason::TooManySources);
    assert!(refusal.message.contains("257") && refusal.message.contains("256"), "{}", refusal.message);
}

/// An optional Secret that was deleted to revoke its content stayed on every cell.
#[test]
fn optional_source_that_is_deleted_is_no_longer_expected() {
    let both = r#"["ConfigMap/a","Secret/b"]"#;
    let (a, b) = (DataRef::config_map("a"), DataRef::secret("b"));
    let refs = json!([{ "configMapRef": { "name": "a" } }, { "secretRef": { "name": "b", "optional": true } }]);
    let mut expecting = deployment(&refs, &json!({ annotation::EXPECTED_REFERENCED_DATA: both }));
    expecting.status = status(2, 2);
    let mut world = World {
        sources: [(a.clone(), present(1)), (b.clone(), Source::Absent)].into(),
        companions: [(a.clone(), true), (b.clone(), true)].into(),
    };
    let without = decide(&world, &expecting);
    assert_eq!(texts(without.expected.as_ref()), ["ConfigMap/a"]);
    assert_eq!((texts(Some(&without.skipped)), without.trouble), (vec!["Secret/b".to_owned()], None));
    // The same while another source is read again.
    world.sources.insert(a, Source::Unknown);
    assert_eq!(texts(decide(&world, &expecting).expected.as_ref()), ["ConfigMap/a"]);
    for doubtful in [Source::Unknown, Source::Unauthorized("forbidden".into())] {
        world.sources.insert(b.clone(), doubtful.clone());
        assert!(texts(decide(&world, &expecting).expected.as_ref()).contains(&"Secret/b".to_owned()), "{doubtful:?}");
    }
}

/// When a new template made a Secret optional, Instances of the old template lost it, although they required it.
#[test]
fn optional_source_that_is_absent_is_kept_for_instances_of_an_older_template() {
    let b = DataRef::secret("b");
    let refs = json!([{ "secretRef": { "name": "b", "optional": true } }]);
    let mut expecting = deployment(&refs, &json!({ annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/b"]"# }));
    for (what, observed, updated, kept) in [
        ("the cell has not seen the template", 1, 2, true),
        ("one instance runs the old template", 2, 1, true),
        ("all run the new one", 2, 2, false),
    ] {
        expecting.status = status(observed, updated);
        let (sources, companions) = ([(b.clone(), Source::Absent)].into(), [(b.clone(), true)].into());
        let expected = decide(&World { sources, companions }, &expecting).expected;
        assert_eq!(texts(expected.as_ref()).len(), usize::from(kept), "{what}");
    }
}

/// With the marker `more than 32`, every deployment that refers to a source counts as a user of its companion. A tenant could
/// then request more than the aggregate limit through the annotation of their own deployment.
#[test]
fn data_of_tenant_annotation_with_many_users_counts_only_if_the_hub_copy_expects_it() {
    let (a, b) = (DataRef::secret("a"), DataRef::secret("b"));
    let of_tenant = r#"["Secret/a","Secret/b"]"#;
    let references = json!([{ "secretRef": { "name": "a" } }, { "secretRef": { "name": "b" } }]);
    let users = UserList::parse(Some(r#"["more than 32"]"#));
    let facts = CompanionFacts { uid: "c".into(), users, ..CompanionFacts::default() };
    let limits = Limits { per_object: 100, aggregate: 150 };
    for (what, sizes, on_hub, expected) in [
        ("too much together", Some(80), vec![], None),
        ("not yet read", None, vec![], None),
        ("too much by now, and in use", Some(80), vec![&a, &b], Some(vec![&a, &b])),
        ("too much, and one in use", Some(80), vec![&a], Some(vec![&a])),
        ("it fits", Some(70), vec![], Some(vec![&a, &b])),
    ] {
        let source = sizes.map_or(Source::Unknown, present);
        let sources = [&a, &b].map(|data_ref| (data_ref.clone(), source.clone())).into();
        let companion = |data_ref: &DataRef| (data_ref.clone(), SharedCompanion::of(&facts, &wd_user(), Some("c")));
        let companions = [&a, &b].map(companion).into();
        let view = View { limits, sources, companions, ..View::default() };
        let wd = deployment(&references, &json!({ annotation::EXPECTED_REFERENCED_DATA: of_tenant }));
        let copy = deployment(&references, &json!({ annotation::EXPECTED_REFERENCED_DATA: to_annotation(on_hub) }));
        let data = data(&wd, Some(&copy), &view, Duration::MAX, Timestamp::UNIX_EPOCH);
        assert_eq!(data.expected, expected.map(|all| all.into_iter().cloned().collect()), "{what}");
    }
}

/// If the hub answered a copy with HTTP 500, a rotated Secret was not reported, and a new one waited without a reason.
#[test]
fn data_copy_failing_beyond_the_grace_is_reported_with_its_cause() {
    let wd = deployment(&json!([{ "secretRef": { "name": "db" } }]), &json!({}));
    let db = DataRef::secret("db");
    let users = UserList::parse(None).with([UserName::new("shop", "wd")].into());
    let facts = CompanionFacts { uid: "c".into(), users, ..CompanionFacts::default() };
    let fresh = SharedCompanion::of(&facts, &wd_user(), Some("c"));
    let late = BTreeMap::from([(db.clone(), "it answers with HTTP 500".to_owned())]);
    let resolved = |source: Option<Source>, companion: Option<&SharedCompanion>| {
        let view = View {
            sources: source.map(|source| (db.clone(), source)).into_iter().collect(),
            companions: companion.map(|companion| (db.clone(), companion.clone())).into_iter().collect(),
            late: late.clone(),
            ..View::default()
        };
        data(&wd, None, &view, Duration::from_mins(2), Timestamp::UNIX_EPOCH)
    };
    let in_place = resolved(Some(present(1)), Some(&fresh));
    assert_eq!((in_place.trouble, texts(in_place.expected.as_ref())), (None, vec!["Secret/db".to_owned()]));
    let note = in_place.late.unwrap();
    assert!(note.contains("Secret/db is not copied") && note.ends_with("it answers with HTTP 500"), "{note}");
    for (what, data) in [("copied", resolved(Some(present(1)), None)), ("read", resolved(None, None))] {
        let trouble = data.trouble.unwrap();
        assert_eq!(trouble.reason, Reason::Resolving, "it is not {what} yet");
        assert!(trouble.message.ends_with("it answers with HTTP 500"), "{trouble:?}");
    }
}
