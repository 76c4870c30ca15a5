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

/// Takes a list and returns true if it was older than the cache.
fn replace(store: &Store<&'static str>, objects: Vec<Incoming<&'static str>>, version: u64) -> bool {
    let older = store.is_older(&objects, version);
    store.replace(objects, version);
    older
}

#[test]
fn store_own_write_is_visible_at_once_and_notified_once() {
    let (store, log) = store();
    store.replace(vec![object("a", "1", 5, "x")], 5);
    store.wrote(object("a", "1", 6, "y"));
    assert_eq!(store.get(&ObjectKey::new("ns", "a")).as_deref(), Some(&"y"));
    store.observe(object("a", "1", 6, "y"));
    assert_eq!(log.lock().unwrap().len(), 2, "the event of our own write is no change");
    assert!(store.by_index("x").is_empty() && store.by_index("y").len() == 1);
}

#[test]
fn store_late_answer_does_not_restore_a_deleted_object() {
    let (store, _) = store();
    store.replace(vec![], 5);
    store.observe(object("a", "1", 6, "x"));
    store.pass(7);
    store.forget(&ObjectKey::new("ns", "a"), "1");
    store.wrote(object("a", "1", 6, "x"));
    assert!(store.get(&ObjectKey::new("ns", "a")).is_none());
}

/// What is dropped anyway is not decoded. The version counts as delivered, or a late answer restores a deleted object.
#[test]
fn store_version_that_would_be_dropped_is_known_before_it_is_decoded() {
    let (store, log) = store();
    let key = ObjectKey::new("ns", "a");
    store.replace(vec![], 5);
    assert!(!store.is_known(&key, 6) && !store.is_late(&key, 6), "nothing is cached");
    store.wrote(object("a", "1", 6, "x"));
    assert!(store.is_late(&key, 6) && !store.is_late(&key, 7));
    assert!(!store.is_known(&key, 7), "a later version is news");
    assert!(store.is_known(&key, 6), "the event of our own write");
    store.forget(&key, "1");
    assert!(store.is_late(&key, 6), "the watch has delivered it");
    store.wrote(object("a", "1", 6, "x"));
    assert!(store.get(&key).is_none());
    assert_eq!(log.lock().unwrap().len(), 2, "created and deleted");
}

#[test]
fn store_list_removes_objects_deleted_without_an_event() {
    let (store, log) = store();
    store.replace(vec![object("a", "1", 1, "x"), object("b", "2", 2, "x")], 2);
    store.wrote(object("c", "3", 9, "x"));
    store.replace(vec![object("b", "2", 2, "x")], 8);
    assert!(store.get(&ObjectKey::new("ns", "a")).is_none());
    assert!(store.get(&ObjectKey::new("ns", "c")).is_some(), "written after the list was taken");
    assert_eq!(log.lock().unwrap().last().unwrap(), r#"ns/a Some("x")->None"#);
}

#[test]
fn store_deletion_of_an_old_uid_keeps_the_newer_object() {
    let (store, _) = store();
    store.replace(vec![object("a", "new", 5, "x")], 5);
    store.forget(&ObjectKey::new("ns", "a"), "old");
    assert!(store.get(&ObjectKey::new("ns", "a")).is_some());
}

#[test]
fn store_unreadable_object_is_not_absent() {
    let (store, _) = store();
    store.replace(vec![Incoming { value: None, ..object("a", "1", 1, "x") }], 1);
    assert!(store.get(&ObjectKey::new("ns", "a")).is_none());
    assert!(store.contains(&ObjectKey::new("ns", "a")) && !store.contains(&ObjectKey::new("ns", "b")));
    assert!(store.has_unreadable("ns") && !store.has_unreadable("other"));
    store.observe(object("a", "1", 2, "mended"));
    assert!(!store.has_unreadable("ns"));
}

/// Work that waited for objects to become readable waited until the next list, which may take days.
#[test]
fn store_last_unreadable_object_of_a_namespace_notifies_when_it_ends() {
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
    assert_eq!(count(), 0, "no unreadable object has ended");
    store.observe(object("a", "a", 7, "mended"));
    assert_eq!(count(), 0, "there is another unreadable object");
    store.forget(&ObjectKey::new("ns", "b"), "b");
    assert_eq!(*heard.lock().unwrap(), ["ns"], "the other namespace still has one");
    store.observe(broken("a", 8));
    store.replace(vec![object("c", "c", 5, "y")], 9);
    let mut all = heard.lock().unwrap().clone();
    all.sort_unstable();
    assert_eq!(all, ["ns", "ns", "other"], "a list ends it as well");
}

/// Our own answer arrived first, and then a late event replaced the object with its predecessor.
#[test]
fn store_late_event_of_an_old_uid_does_not_replace_the_newer_object() {
    let (store, _) = store();
    store.replace(vec![object("a", "old", 3, "x")], 3);
    store.forget(&ObjectKey::new("ns", "a"), "old");
    store.wrote(object("a", "new", 9, "y"));
    store.observe(object("a", "old", 5, "late"));
    assert_eq!(store.get(&ObjectKey::new("ns", "a")).as_deref(), Some(&"y"));
    store.forget(&ObjectKey::new("ns", "a"), "old");
    assert!(store.contains(&ObjectKey::new("ns", "a")), "nor does its deletion remove it");
}

/// With a new etcd of the hub, no listed object was accepted until its versions had grown enough.
#[test]
fn store_list_of_a_new_etcd_replaces_the_cache() {
    let key = ObjectKey::new("ns", "a");
    let kept = |known: u64, uid: &str, version: u64, list: u64| {
        let (store, _) = store();
        store.replace(vec![object("a", "old", known, "x"), object("b", "b", known, "x")], known);
        store.replace(vec![object("a", uid, version, "y")], list);
        assert!(!store.contains(&ObjectKey::new("ns", "b")), "an unlisted object is deleted");
        store.wrote(object("c", "c", list + 1, "z"));
        assert!(store.contains(&ObjectKey::new("ns", "c")), "later writes count in the new versions");
        store.get(&key)
    };
    assert_eq!(kept(900, "new", 3, 5).as_deref(), Some(&"y"), "another etcd");
    assert_eq!(kept(900, "old", 850, 860).as_deref(), Some(&"y"), "a backup");
    assert_eq!(kept(900, "new", 3, 950).as_deref(), Some(&"y"), "another etcd with higher versions by now");
    // An object written after the list was taken is not in the list.
    let (store, _) = store();
    store.replace(vec![object("a", "old", 3, "x")], 3);
    store.wrote(object("a", "new", 9, "z"));
    store.replace(vec![object("a", "old", 3, "x")], 8);
    assert_eq!(store.get(&key).as_deref(), Some(&"z"));
}

/// After a restore of etcd from a backup, lost objects stayed in the cache and restored ones were ignored as old.
#[test]
fn store_list_older_than_the_cache_replaces_it() {
    let (store, log) = store();
    store.replace(vec![object("a", "1", 5, "x"), object("b", "2", 20, "later"), object("c", "3", 4, "x")], 20);
    store.pass(30);
    store.wrote(object("d", "4", 31, "mine"));
    let heard = log.lock().unwrap().len();
    // The state at version 10: `b` had other content, and `d` did not exist.
    let earlier = vec![object("a", "1", 5, "x"), object("b", "2", 7, "earlier"), object("c", "3", 4, "x")];
    assert!(replace(&store, earlier, 10));
    assert_eq!(store.get(&ObjectKey::new("ns", "d")), None);
    assert_eq!(store.get(&ObjectKey::new("ns", "b")).as_deref(), Some(&"earlier"));
    assert_eq!(log.lock().unwrap().len(), heard + 2, "unchanged objects cause no notification");
    // Versions continue from there, and answers to our writes are accepted again.
    store.wrote(object("d", "5", 11, "again"));
    assert_eq!(store.get(&ObjectKey::new("ns", "d")).as_deref(), Some(&"again"));
    assert!(!replace(&store, vec![object("d", "5", 11, "again")], 12) && store.count() == 1);
}

/// A restore may raise the revisions. Then no list looks old, but its objects do.
#[test]
fn store_list_with_older_objects_replaces_all_that_is_not_newer() {
    let (store, _) = store();
    store.replace(vec![object("a", "1", 20, "later"), object("b", "2", 20, "x")], 20);
    store.wrote(object("b", "2", 1002, "mine"));
    let older = replace(&store, vec![object("a", "1", 7, "earlier"), object("b", "2", 20, "x")], 1000);
    assert!(older, "no object gets older without a restore");
    assert_eq!(store.get(&ObjectKey::new("ns", "a")).as_deref(), Some(&"earlier"));
    assert_eq!(store.get(&ObjectKey::new("ns", "b")).as_deref(), Some(&"mine"), "written after the list was taken");
}

/// An object that must not be cached was cached when it came as an answer, and never updated.
#[test]
fn store_object_outside_the_filter_is_never_cached() {
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
    assert!(store.has_unreadable("ns"), "an unreadable object may be one that is kept");
    only.replace(vec![object("b", "2", 6, "copy")], 6);
    assert_eq!((get("b"), store.count()), (None, 0));
}
