use super::*;
use std::sync::Mutex;

fn object(name: &str, uid: &str, version: u64, value: &'static str) -> Incoming<&'static str> {
    Incoming { key: ObjectKey::new("ns", name), uid: uid.into(), version, value: Some(value.into()) }
}

fn store() -> (Arc<Store<&'static str>>, Arc<Mutex<Vec<String>>>) {
    let store = Arc::new(Store::new(|_, value: &&str| vec![(*value).to_owned()]));
    let log = Arc::new(Mutex::new(Vec::new()));
    let heard = log.clone();
    store.listen(move |change: &Change<'_, &str>| {
        heard.lock().unwrap().push(format!("{} {:?}->{:?}", change.key, change.old, change.new));
    });
    (store, log)
}

/// Takes a list over; returns true if it was older than what was seen.
fn replace(store: &Store<&'static str>, objects: Vec<Incoming<&'static str>>, version: u64) -> bool {
    let older = store.is_older(&objects, version);
    store.replace(objects, version);
    older
}

#[test]
fn own_writes_are_seen_at_once_and_reported_once() {
    let (store, log) = store();
    store.replace(vec![object("a", "1", 5, "x")], 5);
    store.wrote(object("a", "1", 6, "y"));
    assert_eq!(store.get(&ObjectKey::new("ns", "a")).as_deref(), Some(&"y"));
    store.observe(object("a", "1", 6, "y"));
    assert_eq!(log.lock().unwrap().len(), 2, "the watch's echo is no news");
    assert!(store.by_index("x").is_empty() && store.by_index("y").len() == 1);
}

#[test]
fn an_answer_that_comes_late_raises_no_ghost() {
    let (store, _) = store();
    store.replace(vec![], 5);
    store.observe(object("a", "1", 6, "x"));
    store.pass(7);
    store.forget(&ObjectKey::new("ns", "a"), "1");
    store.wrote(object("a", "1", 6, "x"));
    assert!(store.get(&ObjectKey::new("ns", "a")).is_none());
}

#[test]
fn a_list_shows_deletions_that_no_event_brought() {
    let (store, log) = store();
    store.replace(vec![object("a", "1", 1, "x"), object("b", "2", 2, "x")], 2);
    store.wrote(object("c", "3", 9, "x"));
    store.replace(vec![object("b", "2", 2, "x")], 8);
    assert!(store.get(&ObjectKey::new("ns", "a")).is_none());
    assert!(store.get(&ObjectKey::new("ns", "c")).is_some(), "written after the list was taken");
    assert_eq!(log.lock().unwrap().last().unwrap(), r#"ns/a Some("x")->None"#);
}

#[test]
fn a_namesake_with_another_uid_is_not_forgotten() {
    let (store, _) = store();
    store.replace(vec![object("a", "new", 5, "x")], 5);
    store.forget(&ObjectKey::new("ns", "a"), "old");
    assert!(store.get(&ObjectKey::new("ns", "a")).is_some());
}

#[test]
fn unreadable_is_not_absent() {
    let (store, _) = store();
    store.replace(vec![Incoming { value: None, ..object("a", "1", 1, "x") }], 1);
    assert!(store.get(&ObjectKey::new("ns", "a")).is_none());
    assert!(store.contains(&ObjectKey::new("ns", "a")) && !store.contains(&ObjectKey::new("ns", "b")));
    assert!(store.has_unreadable("ns") && !store.has_unreadable("other"));
    store.observe(object("a", "1", 2, "mended"));
    assert!(!store.has_unreadable("ns"));
}

/// Found by reading: whoever waited for the end of it waited for the next list, which may be days away.
#[test]
fn the_end_of_the_last_unreadable_object_of_a_namespace_is_heard() {
    let (store, _) = store();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    store.listen_readable(move |namespace| log.lock().unwrap().push(namespace.to_owned()));
    let broken = |name: &str, version| Incoming { value: None, ..object(name, name, version, "x") };
    store.replace(vec![broken("a", 1), broken("b", 2), object("c", "c", 3, "x")], 3);
    let others = Incoming { key: ObjectKey::new("other", "d"), ..broken("d", 4) };
    store.observe(others);
    let count = || heard.lock().unwrap().len();
    store.observe(object("c", "c", 5, "y"));
    store.observe(broken("a", 6));
    assert_eq!(count(), 0, "nothing has ended");
    store.observe(object("a", "a", 7, "mended"));
    assert_eq!(count(), 0, "there is one more");
    store.forget(&ObjectKey::new("ns", "b"), "b");
    assert_eq!(*heard.lock().unwrap(), ["ns"], "the other namespace has one still");
    store.observe(broken("a", 8));
    store.replace(vec![object("c", "c", 5, "y")], 9);
    let mut all = heard.lock().unwrap().clone();
    all.sort_unstable();
    assert_eq!(all, ["ns", "ns", "other"], "a list ends it as well");
}

/// Found by reading: our own answer was there first, and the event of the object before it came late.
#[test]
fn a_late_event_of_an_old_uid_does_not_replace_the_newer_object() {
    let (store, _) = store();
    store.replace(vec![object("a", "old", 3, "x")], 3);
    store.forget(&ObjectKey::new("ns", "a"), "old");
    store.wrote(object("a", "new", 9, "y"));
    store.observe(object("a", "old", 5, "late"));
    assert_eq!(store.get(&ObjectKey::new("ns", "a")).as_deref(), Some(&"y"));
    store.forget(&ObjectKey::new("ns", "a"), "old");
    assert!(store.contains(&ObjectKey::new("ns", "a")), "nor does its end take it away");
}

/// Found by reading: a hub whose etcd was made anew had nothing that is listed believed until it had counted far enough.
#[test]
fn a_list_is_believed_whatever_was_known_before_it() {
    let key = ObjectKey::new("ns", "a");
    let kept = |known: u64, uid: &str, version: u64, list: u64| {
        let (store, _) = store();
        store.replace(vec![object("a", "old", known, "x"), object("b", "b", known, "x")], known);
        store.replace(vec![object("a", uid, version, "y")], list);
        assert!(!store.contains(&ObjectKey::new("ns", "b")), "what is not listed is gone");
        store.wrote(object("c", "c", list + 1, "z"));
        assert!(store.contains(&ObjectKey::new("ns", "c")), "what is written then counts as they do there");
        store.get(&key)
    };
    assert_eq!(kept(900, "new", 3, 5).as_deref(), Some(&"y"), "another etcd");
    assert_eq!(kept(900, "old", 850, 860).as_deref(), Some(&"y"), "a backup");
    assert_eq!(kept(900, "new", 3, 950).as_deref(), Some(&"y"), "another etcd, that has counted further by now");
    // What was written after the list was taken is not in it.
    let (store, _) = store();
    store.replace(vec![object("a", "old", 3, "x")], 3);
    store.wrote(object("a", "new", 9, "z"));
    store.replace(vec![object("a", "old", 3, "x")], 8);
    assert_eq!(store.get(&key).as_deref(), Some(&"z"));
}

/// Found by reading: an etcd that was restored from a backup was believed never. What it had lost lived on, and what was in
/// it as it had been was taken for old.
#[test]
fn a_list_that_is_older_than_what_was_seen_is_another_history() {
    let (store, log) = store();
    store.replace(vec![object("a", "1", 5, "x"), object("b", "2", 20, "later"), object("c", "3", 4, "x")], 20);
    store.pass(30);
    store.wrote(object("d", "4", 31, "mine"));
    let heard = log.lock().unwrap().len();
    // As it was at 10: `b` had other content, `d` was not there.
    let earlier = vec![object("a", "1", 5, "x"), object("b", "2", 7, "earlier"), object("c", "3", 4, "x")];
    assert!(replace(&store, earlier, 10));
    assert_eq!(store.get(&ObjectKey::new("ns", "d")), None);
    assert_eq!(store.get(&ObjectKey::new("ns", "b")).as_deref(), Some(&"earlier"));
    assert_eq!(log.lock().unwrap().len(), heard + 2, "what has not changed is no news");
    // It counts on from there: the answers to our writes are taken again.
    store.wrote(object("d", "5", 11, "again"));
    assert_eq!(store.get(&ObjectKey::new("ns", "d")).as_deref(), Some(&"again"));
    assert!(!replace(&store, vec![object("d", "5", 11, "again")], 12) && store.count() == 1);
}

/// A restore may raise the revisions, so that no list looks old; its objects do.
#[test]
fn a_complete_list_is_right_about_whatever_is_not_newer_than_itself() {
    let (store, _) = store();
    store.replace(vec![object("a", "1", 20, "later"), object("b", "2", 20, "x")], 20);
    store.wrote(object("b", "2", 1002, "mine"));
    let older = replace(&store, vec![object("a", "1", 7, "earlier"), object("b", "2", 20, "x")], 1000);
    assert!(older, "no object gets older in one history");
    assert_eq!(store.get(&ObjectKey::new("ns", "a")).as_deref(), Some(&"earlier"));
    assert_eq!(store.get(&ObjectKey::new("ns", "b")).as_deref(), Some(&"mine"), "written after the list was taken");
}

/// Found by reading: what was not to be kept was kept once it came as an answer, and never heard of again.
#[test]
fn what_is_not_to_be_kept_comes_by_no_way_and_goes_when_it_turns_into_that() {
    let (store, _) = store();
    let only = Only { cache: store.clone(), about: |value: &&str| *value != "copy" };
    let get = |name: &str| store.get(&ObjectKey::new("ns", name)).map(|value| *value);
    only.replace(vec![object("a", "1", 1, "x"), object("b", "2", 2, "copy")], 2);
    assert_eq!((get("a"), get("b")), (Some("x"), None));
    only.observe(object("b", "2", 3, "x"));
    only.observe(object("a", "1", 4, "copy"));
    assert_eq!((get("a"), get("b")), (None, Some("x")), "as it is now");
    store.wrote(object("a", "1", 4, "late"));
    assert_eq!(get("a"), None, "the watch is past it");
    only.observe(Incoming { value: None, ..object("c", "3", 5, "") });
    assert!(store.has_unreadable("ns"), "what cannot be read may be one that is kept");
    only.replace(vec![object("b", "2", 6, "copy")], 6);
    assert_eq!((get("b"), store.count()), (None, 0));
}
