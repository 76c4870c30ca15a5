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

/// Found by reading: made with all who use it at once, there was no companion where they were thousands.
#[test]
fn a_companion_is_made_with_as_many_users_as_the_hub_surely_takes() {
    let users: Vec<_> = (0..5000).map(|n| (deployment(&format!("user-{n}")), true)).collect();
    let case = Case { users, source: Some(payload("Qg==", &json!({}))), ..Case::default() };
    let (body, content) = only(&case.steps());
    let listed = body["metadata"]["annotations"][annotation::REFERENCED_BY].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Vec<String>>(listed).unwrap().len(), FIRST_USERS);
    assert!(content);
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
