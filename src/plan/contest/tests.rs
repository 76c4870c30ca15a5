use super::*;
use crate::{
    api::{
        compute::{WorkloadDeployment, WorkloadDeploymentSpec},
        karmada::{PropagationPolicy, PropagationPolicySpec as PolicySpec},
    },
    plan::{Hub, Object, Proof},
};
use serde_json::json;
use std::convert::identity;

#[path = "delete_tests.rs"]
mod deletes;
#[path = "order_tests.rs"]
mod order;

const PAUSE: Duration = Duration::from_secs(64);

fn deployment() -> WorkloadDeployment {
    let mut live = WorkloadDeployment::new("web", WorkloadDeploymentSpec::default());
    live.metadata.namespace = Some("ns-1".into());
    live.metadata.uid = Some("u".into());
    live
}

/// A write of a status with this message.
fn status(message: &str, now: Timestamp) -> Write<Cell> {
    let condition = json!({ "type": "Available", "message": message, "lastTransitionTime": now.to_string() });
    Write::status("compute-operator-test", &json!({ "conditions": [condition] }), &deployment()).unwrap()
}

fn deletion(live: &WorkloadDeployment) -> Write<Cell> {
    Proof::of_target().delete(live, identity).into_steps().remove(0)
}

fn stored(standing: Option<Standing>) -> Sent {
    Sent::Stored { uid: "u".into(), standing }
}

/// A manager with a clock. All of its writes succeed.
struct Manager {
    memory: Memory,
    now: Timestamp,
}

impl Manager {
    fn new() -> Self {
        Self { memory: Memory::default(), now: Timestamp::from_second(1_000_000).unwrap() }
    }

    fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    /// Reconciles once. Returns the writes in words, and the time of the next reconcile.
    fn reconcile<S: Contestable>(&mut self, steps: Vec<S>) -> (Vec<String>, Next) {
        let mut plan: Plan<S> = Plan::writes(steps);
        let held = hold_back(&mut plan, &self.memory, &Regarding::of(&deployment()), "test", self.now, PAUSE);
        self.memory = held.made(self.now, |_| stored(None));
        let words = |step: &S| match step.mark() {
            Mark::Puts(subject, _) => format!("{} {}", subject.op, subject.object),
            Mark::Removes(subject, _) => format!("delete {}", subject.object),
            Mark::Looks => "event".to_owned(),
        };
        (plan.steps.iter().map(words).collect(), plan.next)
    }

    fn report(&mut self, message: &str) -> (Vec<String>, Next) {
        let write = status(message, self.now);
        self.reconcile(vec![write])
    }
}

const WRITTEN: &str = "apply status of WorkloadDeployment ns-1/web";

/// Two managers of one cell wrote 105 statuses in 8 s. One of them had no quota credentials.
#[test]
fn write_reverted_repeatedly_waits_longer_and_is_reported_once() {
    let mut manager = Manager::new();
    let moment = Duration::from_millis(10);
    for _ in 0..4 {
        assert_eq!(manager.after(moment).report("mine"), (vec![WRITTEN.to_owned()], Next::Await), "a manual edit");
    }
    assert!(!manager.memory.is_contested());
    assert_eq!(manager.after(moment).report("mine"), (vec!["event".to_owned()], Next::After(PAUSE / 64)));
    assert!(manager.memory.is_contested());
    assert_eq!(
        manager.after(moment).report("mine"),
        (vec![], Next::After((PAUSE / 64).saturating_sub(moment))),
        "reported once"
    );
    let mut waited = Vec::new();
    for _ in 0..10 {
        // The other manager reverts it at once.
        let (written, Next::After(left)) = manager.after(moment).report("mine") else { panic!("it waits") };
        assert!(written.is_empty());
        assert_eq!(manager.after(left).report("mine").0, [WRITTEN]);
        waited.push((left + Duration::from_millis(500)).as_secs());
    }
    assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
}

#[test]
fn write_that_lasts_ends_the_back_off() {
    let mut manager = Manager::new();
    let moment = Duration::from_millis(10);
    for _ in 0..8 {
        if let (_, Next::After(left)) = manager.after(moment).report("mine") {
            assert_eq!(manager.after(left).report("mine").0, [WRITTEN]);
        }
    }
    assert!(manager.memory.is_contested());
    // The other manager has stopped. Nothing is due, and another reconcile confirms it.
    let (_, Next::After(rest)) = manager.after(moment).reconcile::<Write<Cell>>(vec![]) else {
        panic!("another reconcile is due")
    };
    assert_eq!(rest, (PAUSE * 2).saturating_sub(moment));
    // A new status is not a reverted write.
    assert_eq!(manager.after(moment).report("news").0, [WRITTEN]);
    assert_eq!(manager.after(PAUSE * 2).reconcile::<Write<Cell>>(vec![]).1, Next::Await);
    assert_eq!(manager.memory, Memory::default(), "the memory is empty");
    for _ in 0..4 {
        assert_eq!(manager.after(moment).report("mine").0, [WRITTEN]);
    }
}

/// Each take-over of the other manager's fields restarted the back-off, with a new Event.
#[test]
fn take_over_during_a_wait_does_not_change_it() {
    let mut manager = Manager::new();
    let moment = Duration::from_millis(10);
    let mut live = deployment();
    live.metadata.managed_fields = serde_json::from_value(json!([{
        "manager": "manager", "operation": "Update", "apiVersion": "compute.datumapis.com/v1alpha", "subresource": "status",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:conditions": {} } }, "time": "2026-01-01T00:00:00Z",
    }]))
    .unwrap();
    let take_over = || Write::<Cell>::take_over("compute-operator-test", &[Part::Status], &live).unwrap();
    for _ in 0..5 {
        manager.after(moment).report("mine");
    }
    let (_, Next::After(left)) = manager.after(moment).report("mine") else { panic!("it waits") };
    let both = vec![take_over(), status("mine", manager.now)];
    assert_eq!(manager.reconcile(both).0, ["take over WorkloadDeployment ns-1/web"]);
    assert_eq!(manager.report("mine"), (vec![], Next::After(left)), "it still waits, and no Event is sent");
}

#[test]
fn changes_and_rare_edits_are_not_contested() {
    let mut manager = Manager::new();
    for n in 0..50 {
        assert_eq!(
            manager.after(Duration::from_millis(10)).report(&format!("{}", n % 2)).0,
            [WRITTEN],
            "the status flaps"
        );
    }
    for _ in 0..50 {
        assert_eq!(manager.after(PAUSE * 2).report("mine").0, [WRITTEN], "a nightly script");
    }
    assert!(!manager.memory.is_contested());
}

#[test]
fn object_recreated_by_this_manager_is_not_contested() {
    let mut manager = Manager::new();
    let object = Object::named::<WorkloadDeployment>("ns-1", "web");
    let create = || Write::<Cell>::create("compute-operator-test", object.clone(), json!({ "spec": {} }));
    for _ in 0..20 {
        assert_eq!(manager.reconcile(vec![create()]).0, ["create WorkloadDeployment ns-1/web"]);
        assert_eq!(manager.reconcile(vec![deletion(&deployment())]).0, ["delete WorkloadDeployment ns-1/web"]);
    }
    // If another client deletes it each time, it is contested.
    let made = (0..20)
        .map(|_| manager.reconcile(vec![create()]).0)
        .filter(|done| done[..] == ["create WorkloadDeployment ns-1/web"]);
    assert_eq!(made.count(), 4);
}

/// The Go operator recreates an Instance because of its template hash. Each one has another uid.
#[test]
fn template_hash_of_recreated_instances_is_contested() {
    let mut manager = Manager::new();
    let stamp = |uid: u32| {
        let patch = json!({ "spec": { "controller": { "templateHash": "j1-a" } } });
        let version = crate::plan::ObjectVersion::new(&uid.to_string(), "1");
        let object = Object::named::<crate::api::compute::Instance>("ns-1", "web-0");
        Write::<Cell>::amend_version("compute-operator-test", object, patch, &version)
    };
    let stamped = (0..20)
        .map(|uid| manager.reconcile(vec![stamp(uid)]).0)
        .filter(|done| done[..] == ["patch Instance ns-1/web-0"]);
    assert_eq!(stamped.count(), 4);
}

#[test]
fn failed_write_does_not_count_as_reverted() {
    let mut manager = Manager::new();
    for _ in 0..20 {
        let mut plan: Plan<Write<Cell>> = Plan::writes(vec![status("mine", manager.now)]);
        let held = hold_back(&mut plan, &manager.memory, &Regarding::of(&deployment()), "test", manager.now, PAUSE);
        assert_eq!(plan.steps.len(), 1);
        manager.memory = held.made(manager.now, |_| Sent::Refused);
    }
    assert!(!manager.memory.is_contested());
}

/// After the clock was set back by an hour, all writes waited for an hour.
#[test]
fn clock_set_back_ends_every_wait() {
    let mut manager = Manager::new();
    let contested = |manager: &mut Manager| {
        for _ in 0..4 {
            assert_eq!(manager.after(Duration::from_millis(10)).report("mine").0, [WRITTEN]);
        }
        assert_eq!(manager.after(Duration::from_millis(10)).report("mine").0, ["event"]);
    };
    contested(&mut manager);
    manager.now -= Duration::from_hours(1);
    assert_eq!(manager.report("mine"), (vec![WRITTEN.to_owned()], Next::Await));
    manager.now -= Duration::from_hours(1);
    assert_eq!(manager.reconcile::<Write<Cell>>(vec![]).1, Next::Await);
    assert_eq!(manager.memory, Memory::default(), "the write counts as lasting");
}

/// A provider reported the same status with a new timestamp. That counted as a revert of the copy.
#[test]
fn copy_with_a_new_timestamp_is_not_contested() {
    let mut manager = Manager::new();
    let condition =
        |time: Timestamp| json!({ "conditions": [{ "type": "Ready", "lastTransitionTime": time.to_string() }] });
    let copied = |time| {
        Step::<Cell, Hub>::Remote(Write::status("compute-operator-test", &condition(time), &deployment()).unwrap())
    };
    for _ in 0..20 {
        manager.after(Duration::from_secs(1));
        let step = copied(manager.now);
        assert_eq!(manager.reconcile(vec![step]).0, [WRITTEN]);
    }
    let time = manager.now;
    let same = (0..20).map(|_| manager.reconcile(vec![copied(time)]).0).filter(|done| done[..] == [WRITTEN.to_owned()]);
    assert_eq!(same.count(), 3, "the same timestamp is a revert");
}

#[test]
fn object_on_two_planes_has_two_subjects() {
    let of =
        |step: Step<Cell, Hub>| if let Mark::Puts(subject, _) = step.mark() { subject } else { panic!("{step:?}") };
    let object = Object::named::<WorkloadDeployment>("ns-1", "web");
    let on_cell = of(Step::Local(Write::create("compute-operator-test", object.clone(), json!({}))));
    let on_hub = of(Step::Remote(Write::create("compute-operator-test", object, json!({}))));
    assert_ne!(on_cell, on_hub);
}

/// A server with one object. It may change a written status.
struct Server {
    stored: Value,
    /// The object in a cache.
    live: WorkloadDeployment,
    keeps: fn(&mut Value),
}

impl Server {
    fn new(keeps: fn(&mut Value)) -> Self {
        Self { stored: json!(deployment()), live: deployment(), keeps }
    }

    fn write(&mut self, status: &Value) {
        self.stored["status"] = status.clone();
        (self.keeps)(&mut self.stored["status"]);
        self.live = serde_json::from_value(self.stored.clone()).unwrap();
    }

    /// Lets a manager reconcile once with this wanted status. Returns true if it writes, and the reason of its Event.
    fn reconciled_by(&mut self, manager: &mut Manager, status: &Value, event_arrives: bool) -> (bool, Option<String>) {
        let due = Write::<Cell>::status("compute-operator-test", status, &self.live);
        let mut plan: Plan<Write<Cell>> = due.into_iter().collect();
        let held = hold_back(&mut plan, &manager.memory, &Regarding::of(&self.live), "test", manager.now, PAUSE);
        let (mut written, mut told, mut sent) = (false, None, Vec::new());
        for step in &plan.steps {
            let body = step.op.asked().unwrap();
            if step.object.kind == Kind::Event {
                told = body["reason"].as_str().map(str::to_owned);
                sent.push(if event_arrives { stored(None) } else { Sent::Done });
            } else {
                self.write(&body["status"]);
                written = true;
                sent.push(stored(Some(Standing::of(step.object.kind, &body, &self.stored))));
            }
        }
        manager.memory = held.made(manager.now, |place| sent[place].clone());
        (written, told)
    }
}

fn wanted(replicas: i32) -> Value {
    json!({ "replicas": replicas, "conditions": [{ "type": "Available", "status": "True", "reason": "A", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
}

/// Prunes a field, as a server does if the definition lacks it.
fn prunes(status: &mut Value) {
    status.as_object_mut().unwrap().remove("replicas");
}

/// Changes the value of a field, as a webhook does.
fn changes_value(status: &mut Value) {
    status["replicas"] = json!(7);
}

/// A field that the server prunes was written once a minute, and was reported as reverted by another client.
#[test]
fn write_not_kept_by_the_server_is_sent_once_and_reported() {
    for (what, keeps, writes, told) in [
        ("kept", (|_| ()) as fn(&mut Value), 1, vec![]),
        ("pruned", prunes, 1, vec!["WritesNotKept"]),
        ("changed", changes_value, 1, vec!["WritesNotKept"]),
    ] {
        let (mut manager, mut server) = (Manager::new(), Server::new(keeps));
        let mut seen = (0, Vec::new());
        for n in 0..200 {
            manager.after(Duration::from_secs(1));
            // Another client changes the same object.
            server.live.metadata.annotations = Some([("seen".to_owned(), n.to_string())].into());
            let (written, told) = server.reconciled_by(&mut manager, &wanted(2), true);
            seen.0 += u32::from(written);
            seen.1.extend(told);
        }
        assert_eq!((seen.0, seen.1.iter().map(String::as_str).collect()), (writes, told), "{what}");
        assert!(!manager.memory.is_contested(), "{what}");
    }
}

#[test]
fn write_not_kept_by_the_server_is_repeated_rarely_and_sent_at_once_if_changed() {
    let (mut manager, mut server) = (Manager::new(), Server::new(prunes));
    assert!(server.reconciled_by(&mut manager, &wanted(2), true).0);
    assert!(!server.reconciled_by(&mut manager, &wanted(2), true).0);
    assert!(!manager.memory.is_spent(manager.now + PAUSE * 3, PAUSE), "the memory is kept until then");
    let mut waits: Plan<Write<Cell>> =
        Write::status("compute-operator-test", &wanted(2), &server.live).into_iter().collect();
    hold_back(&mut waits, &manager.memory, &Regarding::of(&server.live), "test", manager.now, PAUSE);
    assert_eq!((waits.steps.len(), waits.next), (0, Next::After(PAUSE * TRIED_AGAIN)));
    let mut news = wanted(2);
    news["conditions"][0]["message"] = json!("news");
    assert!(server.reconciled_by(&mut manager, &news, true).0);
    assert!(!server.reconciled_by(&mut manager, &news, true).0);
    // The definition is applied.
    server.keeps = |_| ();
    assert!(!server.reconciled_by(manager.after(PAUSE), &news, true).0);
    assert!(server.reconciled_by(manager.after(PAUSE * TRIED_AGAIN), &news, true).0);
    assert!(!server.reconciled_by(&mut manager, &news, true).0);
    assert_eq!(server.stored["status"]["replicas"], 2);
}

#[test]
fn revert_of_a_partly_kept_write_is_reported() {
    let (mut manager, mut server) = (Manager::new(), Server::new(prunes));
    let mut all = Vec::new();
    for _ in 0..8 {
        all.extend(server.reconciled_by(manager.after(Duration::from_millis(10)), &wanted(2), true).1);
        let mut theirs = wanted(2);
        theirs["conditions"][0]["message"] = json!("theirs");
        server.write(&theirs);
    }
    assert_eq!(all, ["WritesTakenBack"]);
    assert!(manager.memory.is_contested());
}

/// A policy sets a random name in each write, so that each write rolls out another version.
#[test]
fn write_with_a_different_result_each_time_is_repeated_once() {
    fn counts(status: &mut Value) {
        static WRITTEN: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(100);
        status["replicas"] = json!(WRITTEN.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
    }
    let (mut manager, mut server) = (Manager::new(), Server::new(counts));
    let (mut written, mut told) = (0, Vec::new());
    for minute in 0..3000 {
        // A new wanted version is written, even if the server changes it.
        let news = if minute < 1500 { 2 } else { 3 };
        let look = server.reconciled_by(manager.after(Duration::from_mins(1)), &wanted(news), true);
        written += u32::from(look.0);
        told.extend(look.1);
    }
    assert_eq!((written, told), (3, vec!["WritesNotKept".to_owned()]), "it is repeated once, after an hour");
}

/// A summary status does not wait for writes that change nothing.
#[test]
fn plan_with_only_waiting_writes_is_recognized() {
    let (mut manager, mut server) = (Manager::new(), Server::new(prunes));
    let waits = |manager: &Manager, server: &Server, status: &Value| {
        let due = Write::<Cell>::status("compute-operator-test", status, &server.live);
        let steps: Vec<Write<Cell>> = due.into_iter().collect();
        all_wait(&steps, &manager.memory, manager.now, PAUSE)
    };
    assert!(!waits(&manager, &server, &wanted(2)), "the memory is empty");
    server.reconciled_by(&mut manager, &wanted(2), true);
    assert!(waits(&manager, &server, &wanted(2)));
    assert!(!waits(&manager, &server, &json!({ "replicas": 3 })), "another status is wanted");
    manager.after(PAUSE * TRIED_AGAIN);
    assert!(!waits(&manager, &server, &wanted(2)), "it is repeated");
    assert!(!all_wait::<Write<Cell>>(&[], &manager.memory, manager.now, PAUSE), "nothing is due");
}

/// A lost Event counted as sent, so that the back-off was never reported.
#[test]
fn lost_event_is_repeated_in_each_wait_until_one_is_stored() {
    let (mut manager, mut server) = (Manager::new(), Server::new(|_| ()));
    let mut events = Vec::new();
    for second in 0..400 {
        for _ in 0..10 {
            let arrives = second >= 100;
            let (_, told) = server.reconciled_by(manager.after(Duration::from_millis(100)), &wanted(2), arrives);
            events.extend(told.map(|reason| (arrives, reason)));
        }
        server.write(&wanted(3));
    }
    let (arrived, lost): (Vec<_>, Vec<_>) = events.into_iter().partition(|(arrives, _)| *arrives);
    assert!((4..=8).contains(&lost.len()), "once in each wait: {lost:?}");
    assert_eq!(arrived, [(true, "WritesTakenBack".to_owned())], "none after the first stored one");
}

/// Reconciles a policy whose transfer is requested at this time. `live`: the policy in a cache. `keeps`: the server keeps its
/// annotation. Returns the policy after the write, or `None` if the write waits.
fn transfer_requested(manager: &mut Manager, live: &PropagationPolicy, keeps: bool) -> Option<PropagationPolicy> {
    let name = format!("moving-{}", manager.now.as_millisecond());
    let fields = json!({
        "metadata": { "annotations": { annotation::DRAIN_TRANSFER: json!({ "asked": manager.now }).to_string() } },
        "spec": { "placement": { "clusterAffinities": [{ "affinityName": name, "clusterNames": ["new"] }] } },
    });
    let write = Write::<Hub>::ensure("compute-operator-test", "ns-1", "city-dfw", fields, Some(live)).unwrap();
    let mut plan: Plan<Write<Hub>> = Plan::writes(vec![write]);
    let held = hold_back(&mut plan, &manager.memory, &Regarding::of(live), "test", manager.now, PAUSE);
    let written =
        plan.steps.first().filter(|step| step.object.kind != Kind::Event).map(|step| step.op.asked().unwrap());
    let mut stored = json!(live);
    if let Some(asked) = &written {
        if keeps {
            stored["metadata"]["annotations"] = asked["metadata"]["annotations"].clone();
        }
        stored["spec"] = asked["spec"].clone();
    }
    let answer = written.as_ref().map(|asked| Standing::of(Kind::PropagationPolicy, asked, &stored));
    manager.memory = held.made(manager.now, |_| answer.clone().map_or(Sent::Done, |answer| self::stored(Some(answer))));
    written.map(|_| serde_json::from_value(stored).unwrap())
}

/// Each attempt at a transfer has another time in it, so that another manager and this one wrote without end.
#[test]
fn attempt_with_a_new_time_is_the_same_write() {
    let mut policy = PropagationPolicy::new("city-dfw", PolicySpec::default());
    policy.metadata.namespace = Some("ns-1".into());
    policy.metadata.uid = Some("p".into());
    let mut manager = Manager::new();
    let attempts =
        (0..20).filter(|_| transfer_requested(manager.after(Duration::from_secs(1)), &policy, true).is_some());
    assert!((4..8).contains(&attempts.count()), "another client puts the placement back after each attempt");
    assert!(manager.memory.is_contested());

    let mut manager = Manager::new();
    for _ in 0..20 {
        policy = transfer_requested(manager.after(Duration::from_secs(1)), &policy, true)
            .expect("its own renewal never waits");
    }
    assert!(!manager.memory.is_contested());

    // A new attempt asks Karmada again, although the server drops the record of the transfer each time.
    let mut manager = Manager::new();
    policy = transfer_requested(&mut manager, &policy, false).expect("the first attempt");
    assert!(transfer_requested(manager.after(Duration::from_secs(1)), &policy, false).is_none());
    assert!(transfer_requested(manager.after(PAUSE), &policy, false).is_some(), "a repetition would wait for an hour");
}

/// The second attempt at a write names another version of the object, and its conditions have another time.
#[test]
fn digests_of_two_attempts_are_the_same() {
    let write = |version: &str, uid: &str, time: &str, spec: Value| {
        let metadata = json!({ "name": "web", "uid": uid, "resourceVersion": version });
        let conditions = json!([{ "type": "Ready", "lastTransitionTime": time }]);
        json!({ "metadata": metadata, "spec": spec, "status": { "conditions": conditions } })
    };
    let first = write("1", "u", "1", json!({ "a": 1 }));
    assert_eq!(digests(&first, true), digests(&write("2", "u", "2", json!({ "a": 1 })), true));
    assert_eq!(digests(&first, false), digests(&write("2", "u", "1", json!({ "a": 1 })), false));
    assert_ne!(digests(&first, false), digests(&write("1", "u", "2", json!({ "a": 1 })), false), "the source's time");
    assert_ne!(digests(&first, true), digests(&write("1", "v", "1", json!({ "a": 1 })), true), "another object");
    let hashed = |uid: &str| write("1", uid, "1", json!({ "controller": { "templateHash": "j1-0" } }));
    assert_eq!(digests(&hashed("u"), true), digests(&hashed("v"), true), "an Instance that is recreated for its hash");
}

/// A condition that one manager clears and another one sets again has the same fields before and after each write. It was taken for
/// a renewal, so that two managers of one cell wrote without end.
#[test]
fn removed_entry_that_returns_each_time_is_contested() {
    let mut manager = Manager::new();
    let mut live = deployment();
    let cleared = json!({ "conditions": [] });
    let owned = json!([{
        "manager": "compute-operator-test", "operation": "Apply", "apiVersion": "compute.datumapis.com/v1alpha",
        "subresource": "status", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
        "fieldsV1": { "f:status": { "f:conditions": { "k:{\"type\":\"WrittenBack\"}": { ".": {}, "f:type": {} } } } },
    }]);
    live.metadata.managed_fields = serde_json::from_value(owned).unwrap();
    live.status = serde_json::from_value(json!({ "conditions": [{
        "type": "WrittenBack", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] }))
    .unwrap();
    let mut written = 0;
    for _ in 0..20 {
        manager.after(Duration::from_millis(10));
        let write = Write::<Cell>::status("compute-operator-test", &cleared, &live).expect("the entry is there again");
        let answer = Standing::of(Kind::WorkloadDeployment, &cleared, &json!({ "status": { "conditions": [] } }));
        let mut plan: Plan<Write<Cell>> = Plan::writes(vec![write]);
        let held = hold_back(&mut plan, &manager.memory, &Regarding::of(&live), "test", manager.now, PAUSE);
        written += plan.steps.iter().filter(|step| step.object.kind != Kind::Event).count();
        manager.memory = held.made(manager.now, |_| stored(Some(answer.clone())));
    }
    assert!((4..8).contains(&written), "{written}");
}
