//! What is deleted, and made again by somebody else.

use super::*;

/// An object of this uid, which somebody else has made where none is to be.
fn of_others(uid: u32) -> Write<Cell> {
    let mut live = deployment();
    live.metadata.uid = Some(format!("theirs-{uid}"));
    deletion(&live)
}

/// Found by reading: of two managers, one that took away what the other made did so at full speed.
#[test]
fn what_somebody_else_makes_again_and_again_is_deleted_ever_more_rarely_and_told() {
    let mut manager = Manager::new();
    let deleted = "delete WorkloadDeployment ns-1/web".to_owned();
    let mut seen = Vec::new();
    for uid in 0..20 {
        seen.extend(manager.after(Duration::from_millis(10)).looks(vec![of_others(uid)]).0);
    }
    assert_eq!(seen, [vec![deleted.clone(); 4], vec!["event".to_owned()]].concat());
    assert!(manager.memory.is_contested());
    // One that goes still, since something holds it, is no answer; nor is what is deleted seldom.
    let mut manager = Manager::new();
    for _ in 0..20 {
        assert_eq!(manager.looks(vec![of_others(1)]).0, std::slice::from_ref(&deleted));
    }
    for uid in 0..20 {
        assert_eq!(manager.after(PAUSE * 2).looks(vec![of_others(uid)]).0, std::slice::from_ref(&deleted));
    }
    assert!(!manager.memory.is_contested());
}

/// Two managers that each take away what the other made, and make their own.
#[test]
fn who_replaces_what_we_made_answers_also_where_we_replace_his() {
    let mut manager = Manager::new();
    let object = Object::named::<WorkloadDeployment>("ns-1", "web");
    let create = || Write::<Cell>::create("compute-operator-test", object.clone(), json!({ "spec": {} }));
    let mut written = 0;
    for uid in 0..40 {
        manager.after(Duration::from_millis(10));
        let steps = if uid % 2 == 0 { create() } else { of_others(uid) };
        written += manager.looks(vec![steps]).0.iter().filter(|done| *done != "event").count();
    }
    assert!(written <= 8, "{written}");
    assert!(manager.memory.is_contested());
}
