use super::*;
use crate::api::user_list::{Listed, MAX_NAMED_USERS};

const MANY_USERS: &str = "more than 32";
const NO_USERS: &str = "nobody any more";

/// Returns the body of the only write, and true if it carries content.
fn only(steps: &[Step<Project, Hub>]) -> (Value, bool) {
    let [Step::Remote(write)] = steps else { panic!("{steps:?}") };
    let (Op::Merge { body, .. } | Op::Create { body, .. }) = &write.op else { panic!("{write:?}") };
    (body.clone(), brings_content(write))
}

/// Returns a case where the source has changed and `b` is a new user in addition to `a`.
fn changed() -> Case {
    Case {
        users: vec![(deployment("a"), true), (deployment("b"), true)],
        companion: Some(facts(&["a"])),
        source: Some(payload("Qg==", &json!({}))),
        content: seen("QQ==", &json!({})),
        ..Case::default()
    }
}

/// With content and users in one write, a full list made the hub refuse the source for all users. With the users first, changed
/// content waited for them, and for ever once the list was full.
#[test]
fn companion_with_new_content_and_users_writes_content_alone_and_first() {
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
fn companion_with_refused_content_in_back_off_still_updates_users() {
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

/// A version that was read and not compared was recorded as equal, so that the copy of a rotated Secret stayed old.
#[test]
fn companion_is_equal_only_after_comparison_of_its_present_version() {
    let mut case = changed();
    assert_eq!(case.plan().signals, [], "it is not");
    case.content = seen("Qg==", &json!({}));
    assert_eq!(case.plan().signals, [Signal::Equal], "also where a user is added");
    case.content = Some((ObjectVersion::new("c", "8"), payload("QQ==", &json!({}))));
    assert_eq!(case.plan().signals, [], "the watch has not shown this version");
    case.content = seen("Qg==", &json!({}));
    case.users.iter_mut().for_each(|(_, wants)| *wants = false);
    assert_eq!(case.plan().signals, [], "no user wants it");
}

/// Returns this number of deployments that use the companion.
fn crowd(size: usize) -> Vec<(WorkloadDeployment, bool)> {
    (0..size).map(|n| (deployment(&format!("user-{n:04}")), true)).collect()
}

/// Returns the entries of so many users.
fn entries(size: usize) -> String {
    json!((0..size).map(|n| format!("shop/user-{n:04}")).collect::<Vec<_>>()).to_string()
}

/// Returns a companion with this list of users.
fn annotated(list: &str) -> CompanionFacts {
    CompanionFacts { users: UserList::parse(Some(list)), ..facts(&[]) }
}

/// Returns the list that these steps write. `None` if they do not change it.
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

/// With about 5,000 users the list exceeded the size limit of annotations. Each change of the users made Karmada write the
/// companion on every cell.
#[test]
fn companion_with_many_users_keeps_its_list_small() {
    let many = json!([MANY_USERS]).to_string();
    for size in [1, 31, 32, 33, 1000, 5000] {
        let expected = if size > MAX_NAMED_USERS { many.clone() } else { entries(size) };
        assert!(expected.len() < 4096);
        let source = Some(payload("Qg==", &json!({})));
        let made = Case { users: crowd(size), source, ..Case::default() };
        assert_eq!(list_written(&made.steps()).as_ref(), Some(&expected), "made for {size}");
        let with = |companion| Case { users: crowd(size), companion: Some(companion), fresh: true, ..Case::default() };
        let steps = with(annotated(&entries(size - 1))).steps();
        assert_eq!(list_written(&steps).as_ref(), Some(&expected), "one more than {}", size - 1);
        // A list of the Go operator with one user that is gone. The marker replaces all names, so no user is removed and nothing
        // is read.
        let steps = with(annotated(&entries(size + 1))).steps();
        assert_eq!(list_written(&steps).as_ref(), Some(&expected), "of a full list of {}", size + 1);
        assert_eq!(steps.len(), if size > MAX_NAMED_USERS { 1 } else { 2 });
        let again = with(annotated(&expected)).steps();
        assert!(again.is_empty(), "{size}: nothing changes any more");
    }
}

#[test]
fn companion_users_changing_beyond_the_limit_write_nothing() {
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
            companion = Some(annotated(&list));
            written.push(size);
        } else if !steps.is_empty() {
            assert_eq!(size, 0, "{steps:?}");
            assert!(matches!(remote(steps.last().unwrap()), Op::Delete { .. }));
        }
    }
    let expected: Vec<usize> = (1..=33).chain((1..=32).rev()).collect();
    assert_eq!(written, expected);
}

/// Such a list does not name the users. They are the deployments that refer to the source and the copies that expect it.
/// After the list was replaced by the marker for no users, copies that expected it later were ignored.
#[test]
fn companion_with_many_users_is_deleted_only_without_a_possible_user() {
    type Case_ = (&'static str, fn(&mut Case), Option<Result<&'static str, ()>>);
    let cases: [Case_; 11] = [
        ("no deployment refers to it, and no copy expects it", |_| {}, Some(Ok(r#"["nobody any more"]"#))),
        ("one refers to it", |c| c.users = crowd(1), Some(Ok(r#"["shop/user-0000"]"#))),
        ("a terminating one refers to it", |c| c.users = vec![(terminating("a"), true)], Some(Ok(r#"["shop/a"]"#))),
        ("one whose other data is missing", |c| c.users = vec![(deployment("a"), false)], Some(Ok(r#"["shop/a"]"#))),
        ("a copy expects it", |c| c.copies = vec![expecting("b")], Some(Ok(r#"["shop/b"]"#))),
        ("copies cannot be read", |c| c.copies_are_unreadable = true, None),
        ("the Go operator has added a name", |c| add(c, "shop/gone"), Some(Ok(r#"["nobody any more"]"#))),
        ("it had the marker for no users", |c| c.companion = Some(listed(&[NO_USERS])), Some(Err(()))),
        (
            "it had that marker, and a copy expects it",
            |c| given_up(c).copies = vec![expecting("b")],
            Some(Ok(r#"["shop/b"]"#)),
        ),
        ("it had that marker, and copies cannot be read", |c| given_up(c).copies_are_unreadable = true, None),
        ("another client has added an entry without a name", |c| add(c, "?"), Some(Ok(r#"["?"]"#))),
    ];
    for (what, change, expected) in cases {
        let mut case = Case { users: vec![], companion: Some(listed(&[MANY_USERS])), fresh: true, ..Case::default() };
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
    let mut case = Case { users: crowd(30), companion: Some(listed(&[MANY_USERS])), fresh: true, ..Case::default() };
    case.copies = (28..40).map(|n| expecting(&format!("user-{n:04}"))).collect();
    assert!(case.steps().is_empty(), "some refer to it, and the copies of others still expect it");
}

/// New users did not change a companion with the marker for many. So its version stayed, and an old deletion removed the
/// companion from users that had returned.
#[test]
fn companion_with_no_users_marker_is_rewritten_before_new_users_use_it() {
    for size in [1, 32, 33, 1000] {
        let companion = listed(&[NO_USERS]);
        assert_eq!(companion.listed(&UserName::new("shop", "user-0000")), Listed::No, "no user has it");
        let case = Case { users: crowd(size), companion: Some(companion), fresh: true, ..Case::default() };
        assert!(list_written(&case.steps()).is_some_and(|list| !list.contains(NO_USERS)), "{size}");
    }
}

fn given_up(case: &mut Case) -> &mut Case {
    case.companion = Some(listed(&[NO_USERS]));
    case
}

fn terminating(name: &str) -> WorkloadDeployment {
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
    case.companion = Some(listed(&[MANY_USERS, entry]));
}

#[test]
fn offer_pause_grows_with_refusals_up_to_five_minutes() {
    let retry = Duration::from_secs(10);
    let pauses = [1, 2, 3, 6, 7, 1000].map(|times| offer_pause(times, retry).as_secs());
    assert_eq!(pauses, [10, 20, 40, 300, 300, 300]);
}

/// The copy of an optional source was deleted because a cache, and no live read, showed the source as absent.
#[test]
fn companion_of_absent_optional_source_is_deleted_after_live_read_of_the_source() {
    let steps = |container: Value| {
        let mut wd = deployment("a");
        let sandbox = json!({ "containers": [{ "name": "c", "image": "i", "envFrom": container }] });
        wd.spec.template.spec.runtime.sandbox = serde_json::from_value(sandbox).unwrap();
        let case = Case { users: vec![], others: vec![wd], companion: Some(facts(&["a"])), ..Case::default() };
        format!("{:?}", case.steps())
    };
    let without = steps(json!([{ "secretRef": { "name": "db", "optional": true } }]));
    let read = without.find("ConfirmAbsent").unwrap();
    assert!(without.contains("ConfirmUnchanged") && read < without.find("Delete").unwrap(), "{without}");
    let unused = steps(json!([]));
    assert!(!unused.contains("ConfirmAbsent") && unused.contains("Delete"), "{unused}");
}
