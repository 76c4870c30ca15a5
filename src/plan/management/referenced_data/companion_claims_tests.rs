use super::*;

/// The only write: its body, and whether it brings content.
fn only(steps: &[Step<Project, Hub>]) -> (Value, bool) {
    let [Step::Remote(write)] = steps else { panic!("{steps:?}") };
    let (Op::Merge { body, .. } | Op::Create { body, .. }) = &write.op else { panic!("{write:?}") };
    (body.clone(), brings_content(write))
}

/// A companion that `a` uses, and `b` as well from now on, of a source that has changed.
fn changed() -> Case {
    Case {
        users: vec![(deployment("a"), true), (deployment("b"), true)],
        companion: Some(facts(&["a"])),
        source: Some(payload("Qg==", &json!({}))),
        content: seen("QQ==", &json!({})),
        ..Case::default()
    }
}

/// Found by reading: with both in one write, one user more than the list can hold had the hub "refuse" the source for all;
/// and with the users first, a content that had changed waited while they came and went, for ever once the list was full.
#[test]
fn content_is_written_alone_and_before_who_uses_it() {
    let mut case = changed();
    let (data, content) = only(&case.steps());
    assert_eq!(data["data"], json!({ "k": "Qg==" }));
    assert!(data["metadata"].get("annotations").is_none() && content);
    case.content = seen("Qg==", &json!({}));
    let (claims, content) = only(&case.steps());
    assert_eq!(claims["metadata"]["annotations"], json!({ annotation::REFERENCED_BY: r#"["shop/a","shop/b"]"# }));
    assert!(claims.get("data").is_none() && !content);
}

#[test]
fn what_the_hub_has_refused_is_not_offered_while_it_waits_and_who_uses_it_is_said_all_the_same() {
    let mut case = Case { waits: true, ..changed() };
    let (claims, content) = only(&case.steps());
    assert!(claims.get("data").is_none() && !content);
    case.companion = Some(facts(&["a", "b"]));
    (case.source, case.content) = (None, None);
    assert!(case.steps().is_empty(), "nor is it read");
    case.companion = None;
    assert!(case.steps().is_empty());
    case.waits = false;
    assert!(case.reads());
}

/// Found by reading: a version that was read and not compared was booked as the one that has the content, so that a
/// rotated Secret stayed old.
#[test]
fn only_what_was_compared_is_said_to_be_equal() {
    let mut case = changed();
    assert_eq!(case.plan().signals, [], "it is not");
    case.content = seen("Qg==", &json!({}));
    assert_eq!(case.plan().signals, [Signal::Equal], "also where somebody is to be added");
    case.content = Some((ObjectVersion::new("c", "8"), payload("QQ==", &json!({}))));
    assert_eq!(case.plan().signals, [], "of a version that the watch has not shown");
    case.content = seen("Qg==", &json!({}));
    case.users.iter_mut().for_each(|(_, wants)| *wants = false);
    assert_eq!(case.plan().signals, [], "nobody wants it");
}

/// So many deployments that use the companion.
fn crowd(size: usize) -> Vec<(WorkloadDeployment, bool)> {
    (0..size).map(|n| (deployment(&format!("user-{n:04}")), true)).collect()
}

/// A companion that has what its source has, with these entries in its list.
fn listed(entries: impl IntoIterator<Item = String>) -> CompanionFacts {
    CompanionFacts { users: Some(entries.into_iter().collect()), ..facts(&[]) }
}

fn names_of(size: usize) -> impl Iterator<Item = String> {
    (0..size).map(|n| format!("shop/user-{n:04}"))
}

fn marker() -> CompanionFacts {
    listed([MANY_USERS.to_owned()])
}

/// The list that these steps leave on the companion; nothing when they leave it as it is.
fn list_written(steps: &[Step<Project, Hub>]) -> Option<String> {
    let bodies = steps.iter().filter_map(|step| match step {
        Step::Remote(write) => match &write.op {
            Op::Merge { body, .. } | Op::Create { body, .. } => Some(body),
            _ => None,
        },
        Step::Local(_) => None,
    });
    let mut lists = bodies.filter_map(|body| body["metadata"]["annotations"][annotation::REFERENCED_BY].as_str());
    lists.next().map(str::to_owned)
}

/// Found by reading: the list of all users outgrew what metadata may hold at some 5,000 of them, and each that came or went
/// had Karmada write the companion on every cell.
#[test]
fn the_list_of_users_stays_small_however_many_there_are() {
    let names = |size: usize| json!(names_of(size).collect::<Vec<_>>()).to_string();
    let many = json!([MANY_USERS]).to_string();
    for size in [1, 31, 32, 33, 1000, 5000] {
        let expected = if size > MAX_NAMED_USERS { many.clone() } else { names(size) };
        assert!(expected.len() < 4096);
        let source = Some(payload("Qg==", &json!({})));
        let made = Case { users: crowd(size), source, ..Case::default() };
        assert_eq!(list_written(&made.steps()).as_ref(), Some(&expected), "made for {size}");
        let stands =
            |companion| Case { users: crowd(size), companion: Some(companion), fresh: true, ..Case::default() };
        let steps = stands(listed(names_of(size - 1))).steps();
        assert_eq!(list_written(&steps).as_ref(), Some(&expected), "one more than {}", size - 1);
        // As the Go operator leaves it, with one who has gone since: where names are given up, nobody is struck off, and so
        // nothing is read.
        let steps = stands(listed(names_of(size + 1))).steps();
        assert_eq!(list_written(&steps).as_ref(), Some(&expected), "of a full list of {}", size + 1);
        assert_eq!(steps.len(), if size > MAX_NAMED_USERS { 1 } else { 2 });
        let again = stands(listed(serde_json::from_str::<Vec<String>>(&expected).unwrap())).steps();
        assert!(again.is_empty(), "{size}: nothing changes any more");
    }
}

#[test]
fn while_users_come_and_go_beyond_the_limit_nothing_is_written() {
    let all = crowd(200);
    let mut companion: Option<CompanionFacts> = None;
    let mut written = Vec::new();
    let sizes = (1..=all.len()).chain((0..all.len()).rev());
    for size in sizes {
        let users = all[..size].to_vec();
        let source = companion.is_none().then(|| payload("Qg==", &json!({})));
        let steps = Case { users, source, companion: companion.clone(), fresh: true, ..Case::default() }.steps();
        if let Some(list) = list_written(&steps) {
            assert!(list.len() < 4096);
            companion = Some(listed(serde_json::from_str::<Vec<String>>(&list).unwrap()));
            written.push(size);
        } else if !steps.is_empty() {
            assert_eq!(size, 0, "{steps:?}");
            assert!(matches!(remote(steps.last().unwrap()), Op::Delete { .. }));
        }
    }
    let expected: Vec<usize> = (1..=33).chain((1..=32).rev()).collect();
    assert_eq!(written, expected);
}

/// The list says nothing of who they are then: whoever refers to the source, and whatever copy on the hub was promised it.
/// Found by reading: once it was said that nobody uses it any more, what had been promised meanwhile was not looked at.
#[test]
fn a_companion_of_many_goes_when_nobody_is_known_to_need_it() {
    type Case_ = (&'static str, fn(&mut Case), Option<Result<&'static str, ()>>);
    let cases: [Case_; 11] = [
        ("nobody refers to it, and no copy expects it", |_| {}, Some(Ok(r#"["nobody any more"]"#))),
        ("one refers to it", |c| c.users = crowd(1), Some(Ok(r#"["shop/user-0000"]"#))),
        ("one that goes refers to it", |c| c.users = vec![(going("a"), true)], Some(Ok(r#"["shop/a"]"#))),
        ("one whose other data is missing", |c| c.users = vec![(deployment("a"), false)], Some(Ok(r#"["shop/a"]"#))),
        ("a copy expects it", |c| c.copies = vec![expecting("b")], Some(Ok(r#"["shop/b"]"#))),
        ("copies cannot be read", |c| c.copies_are_unreadable = true, None),
        ("the Go operator has added a name", |c| add(c, "shop/gone"), Some(Ok(r#"["nobody any more"]"#))),
        ("that was said before", |c| c.companion = Some(listed([NO_USERS.to_owned()])), Some(Err(()))),
        (
            "that was said, and a copy expects it",
            |c| given_up(c).copies = vec![expecting("b")],
            Some(Ok(r#"["shop/b"]"#)),
        ),
        ("that was said, and nobody knows", |c| given_up(c).copies_are_unreadable = true, None),
        ("somebody has added what names nobody", |c| add(c, "?"), Some(Ok(r#"["?"]"#))),
    ];
    for (what, change, expected) in cases {
        let mut case = Case { users: vec![], companion: Some(marker()), fresh: true, ..Case::default() };
        change(&mut case);
        let steps = case.steps();
        match expected {
            None => assert!(steps.is_empty(), "{what}: {steps:?}"),
            Some(Ok(list)) => assert_eq!(list_written(&steps).as_deref(), Some(list), "{what}"),
            Some(Err(())) => {
                let [step] = &steps[..] else { panic!("{what}: {steps:?}") };
                assert_eq!(*remote(step), Op::Delete { uid: "c".into(), resource_version: "7".into() }, "{what}");
            }
        }
    }
    let mut case = Case { users: crowd(30), companion: Some(marker()), fresh: true, ..Case::default() };
    case.copies = (28..40).map(|n| expecting(&format!("user-{n:04}"))).collect();
    assert!(case.steps().is_empty(), "some refer to it, and others still have what they referred to");
}

/// Found by reading: behind the marker nobody who came moved the version that a deletion had been decided on, so that one which
/// was sent long before took the companion from a crowd that had come back.
#[test]
fn whoever_comes_back_to_a_companion_that_is_given_up_changes_it_before_it_is_used() {
    for size in [1, 32, 33, 1000] {
        let companion = listed([NO_USERS.to_owned()]);
        assert!(!companion.is_used_by("shop/user-0000", true), "nobody is told to use it");
        let case = Case { users: crowd(size), companion: Some(companion), fresh: true, ..Case::default() };
        assert!(list_written(&case.steps()).is_some_and(|list| !list.contains(NO_USERS)), "{size}");
    }
}

fn given_up(case: &mut Case) -> &mut Case {
    case.companion = Some(listed([NO_USERS.to_owned()]));
    case
}

fn going(name: &str) -> WorkloadDeployment {
    let mut wd = deployment(name);
    wd.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    wd
}

fn expecting(name: &str) -> WorkloadDeployment {
    let mut wd = deployment(name);
    wd.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), r#"["Secret/db"]"#.into());
    wd
}

fn add(case: &mut Case, entry: &str) {
    case.companion = Some(listed([MANY_USERS.to_owned(), entry.to_owned()]));
}

#[test]
fn what_is_refused_is_offered_ever_more_rarely() {
    let retry = Duration::from_secs(10);
    let pauses = [1, 2, 3, 6, 7, 1000].map(|times| offer_pause(times, retry).as_secs());
    assert_eq!(pauses, [10, 20, 40, 300, 300, 300]);
}

/// Found by reading: the copy of an optional source went by what a cache said of the source.
#[test]
fn who_does_without_a_source_gives_up_its_copy_after_a_live_read_of_the_source() {
    let of = |container: Value| {
        let mut wd = deployment("a");
        let sandbox = json!({ "containers": [{ "name": "c", "image": "i", "envFrom": container }] });
        wd.spec.template.spec.runtime.sandbox = serde_json::from_value(sandbox).unwrap();
        let case = Case { users: vec![], others: vec![wd], companion: Some(facts(&["a"])), ..Case::default() };
        format!("{:?}", case.steps())
    };
    let without = of(json!([{ "secretRef": { "name": "db", "optional": true } }]));
    let read = without.find("ConfirmAbsent").unwrap();
    assert!(without.contains("ConfirmUnchanged") && read < without.find("Delete").unwrap(), "{without}");
    let unused = of(json!([]));
    assert!(!unused.contains("ConfirmAbsent") && unused.contains("Delete"), "{unused}");
}
