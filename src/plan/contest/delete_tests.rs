//! Deletions of objects that another manager recreates.

use super::*;

/// Deletion of an unwanted object with this uid, which another manager created.
fn foreign_deletion(uid: u32) -> Write<Cell> {
    let mut live = deployment();
    live.metadata.uid = Some(format!("theirs-{uid}"));
    deletion(&live)
}

/// One manager deleted the objects of another one without back-off.
#[test]
fn object_recreated_by_another_manager_is_deleted_with_back_off_and_reported() {
    let mut manager = Manager::new();
    let deleted = "delete WorkloadDeployment ns-1/web".to_owned();
    let mut seen = Vec::new();
    for uid in 0..20 {
        seen.extend(manager.after(Duration::from_millis(10)).reconcile(vec![foreign_deletion(uid)]).0);
    }
    assert_eq!(seen, [vec![deleted.clone(); 4], vec!["event".to_owned()]].concat());
    assert!(manager.memory.is_contested());
    // An object that finalizers keep terminating is not contested. Rare deletions are not contested either.
    let mut manager = Manager::new();
    for _ in 0..20 {
        assert_eq!(manager.reconcile(vec![foreign_deletion(1)]).0, std::slice::from_ref(&deleted));
    }
    for uid in 0..20 {
        assert_eq!(manager.after(PAUSE * 2).reconcile(vec![foreign_deletion(uid)]).0, std::slice::from_ref(&deleted));
    }
    assert!(!manager.memory.is_contested());
}

/// Two managers replace each other's object.
#[test]
fn objects_replaced_by_two_managers_are_contested() {
    let mut manager = Manager::new();
    let object = Object::named::<WorkloadDeployment>("ns-1", "web");
    let create = || Write::<Cell>::create("compute-operator-test", object.clone(), json!({ "spec": {} }));
    let mut written = 0;
    for uid in 0..40 {
        manager.after(Duration::from_millis(10));
        let steps = if uid % 2 == 0 { create() } else { foreign_deletion(uid) };
        written += manager.reconcile(vec![steps]).0.iter().filter(|done| *done != "event").count();
    }
    assert!(written <= 8, "{written}");
    assert!(manager.memory.is_contested());
}
