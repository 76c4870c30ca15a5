use super::*;
use crate::{
    api::compute::{WorkloadDeployment, WorkloadDeploymentSpec},
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

/// A status that says this, whenever it is said.
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

/// A manager whose writes all succeed, and the world's clock.
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

    /// Looks once: what it writes, in words, and when it looks again.
    fn looks<S: Contestable>(&mut self, steps: Vec<S>) -> (Vec<String>, Next) {
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

    fn says(&mut self, message: &str) -> (Vec<String>, Next) {
        let write = status(message, self.now);
        self.looks(vec![write])
    }
}

const WRITTEN: &str = "apply status of WorkloadDeployment ns-1/web";

/// Found on servers: two managers of one cell, of which one had no way to quota, wrote 105 statuses in 8 s.
#[test]
fn what_is_taken_back_again_and_again_waits_longer_and_longer_and_is_told_once() {
    let mut manager = Manager::new();
    let moment = Duration::from_millis(10);
    for _ in 0..4 {
        assert_eq!(manager.after(moment).says("mine"), (vec![WRITTEN.to_owned()], Next::Await), "a hand's edit");
    }
    assert!(!manager.memory.is_contested());
    assert_eq!(manager.after(moment).says("mine"), (vec!["event".to_owned()], Next::After(PAUSE / 64)));
    assert!(manager.memory.is_contested());
    assert_eq!(
        manager.after(moment).says("mine"),
        (vec![], Next::After((PAUSE / 64).saturating_sub(moment))),
        "told once"
    );
    let mut waited = Vec::new();
    for _ in 0..10 {
        // The other one answers at once.
        let (written, Next::After(left)) = manager.after(moment).says("mine") else { panic!("it waits") };
        assert!(written.is_empty());
        assert_eq!(manager.after(left).says("mine").0, [WRITTEN]);
        waited.push((left + Duration::from_millis(500)).as_secs());
    }
    assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
}

#[test]
fn once_it_stands_all_is_written_at_once_again() {
    let mut manager = Manager::new();
    let moment = Duration::from_millis(10);
    for _ in 0..8 {
        if let (_, Next::After(left)) = manager.after(moment).says("mine") {
            assert_eq!(manager.after(left).says("mine").0, [WRITTEN]);
        }
    }
    assert!(manager.memory.is_contested());
    // The other one is silent: nothing is due, and it is looked at again until that is certain.
    let (_, Next::After(rest)) = manager.after(moment).looks::<Write<Cell>>(vec![]) else { panic!("it looks again") };
    assert_eq!(rest, (PAUSE * 2).saturating_sub(moment));
    // News are no answer to anybody.
    assert_eq!(manager.after(moment).says("news").0, [WRITTEN]);
    assert_eq!(manager.after(PAUSE * 2).looks::<Write<Cell>>(vec![]).1, Next::Await);
    assert_eq!(manager.memory, Memory::default(), "nothing is left of it");
    for _ in 0..4 {
        assert_eq!(manager.after(moment).says("mine").0, [WRITTEN]);
    }
}

/// Found by reading: each time the fields of the other one were taken over, all began anew, with an Event.
#[test]
fn what_is_taken_over_meanwhile_changes_no_wait() {
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
        manager.after(moment).says("mine");
    }
    let (_, Next::After(left)) = manager.after(moment).says("mine") else { panic!("it waits") };
    let both = vec![take_over(), status("mine", manager.now)];
    assert_eq!(manager.looks(both).0, ["take over WorkloadDeployment ns-1/web"]);
    assert_eq!(manager.says("mine"), (vec![], Next::After(left)), "neither at once, nor told anew");
}

#[test]
fn news_and_seldom_edits_are_no_contest() {
    let mut manager = Manager::new();
    for n in 0..50 {
        assert_eq!(manager.after(Duration::from_millis(10)).says(&format!("{}", n % 2)).0, [WRITTEN], "it flaps");
    }
    for _ in 0..50 {
        assert_eq!(manager.after(PAUSE * 2).says("mine").0, [WRITTEN], "somebody's nightly script");
    }
    assert!(!manager.memory.is_contested());
}

#[test]
fn what_we_take_away_and_make_anew_ourselves_is_no_contest() {
    let mut manager = Manager::new();
    let object = Object::named::<WorkloadDeployment>("ns-1", "web");
    let create = || Write::<Cell>::create("compute-operator-test", object.clone(), json!({ "spec": {} }));
    for _ in 0..20 {
        assert_eq!(manager.looks(vec![create()]).0, ["create WorkloadDeployment ns-1/web"]);
        assert_eq!(manager.looks(vec![deletion(&deployment())]).0, ["delete WorkloadDeployment ns-1/web"]);
    }
    // Taken away by somebody else each time, it is one.
    let made = (0..20)
        .map(|_| manager.looks(vec![create()]).0)
        .filter(|done| done[..] == ["create WorkloadDeployment ns-1/web"]);
    assert_eq!(made.count(), 4);
}

/// An Instance that the Go operator deletes for its template hash, and makes anew with its own, is another one each time.
#[test]
fn a_template_hash_is_contested_whatever_the_uid_of_the_instance() {
    let mut manager = Manager::new();
    let stamp = |uid: u32| {
        let patch = json!({ "spec": { "controller": { "templateHash": "j1-a" } } });
        let version = crate::plan::ObjectVersion::new(&uid.to_string(), "1");
        let object = Object::named::<crate::api::compute::Instance>("ns-1", "web-0");
        Write::<Cell>::amend_version("compute-operator-test", object, patch, &version)
    };
    let stamped =
        (0..20).map(|uid| manager.looks(vec![stamp(uid)]).0).filter(|done| done[..] == ["patch Instance ns-1/web-0"]);
    assert_eq!(stamped.count(), 4);
}

#[test]
fn a_write_that_failed_was_not_taken_back() {
    let mut manager = Manager::new();
    for _ in 0..20 {
        let mut plan: Plan<Write<Cell>> = Plan::writes(vec![status("mine", manager.now)]);
        let held = hold_back(&mut plan, &manager.memory, &Regarding::of(&deployment()), "test", manager.now, PAUSE);
        assert_eq!(plan.steps.len(), 1);
        manager.memory = held.made(manager.now, |_| Sent::Refused);
    }
    assert!(!manager.memory.is_contested());
}

/// Found by reading: a clock that was set back by an hour held everything for as long.
#[test]
fn a_clock_that_is_set_back_ends_every_wait() {
    let mut manager = Manager::new();
    let contested = |manager: &mut Manager| {
        for _ in 0..4 {
            assert_eq!(manager.after(Duration::from_millis(10)).says("mine").0, [WRITTEN]);
        }
        assert_eq!(manager.after(Duration::from_millis(10)).says("mine").0, ["event"]);
    };
    contested(&mut manager);
    manager.now -= Duration::from_hours(1);
    assert_eq!(manager.says("mine"), (vec![WRITTEN.to_owned()], Next::Await));
    manager.now -= Duration::from_hours(1);
    assert_eq!(manager.looks::<Write<Cell>>(vec![]).1, Next::Await);
    assert_eq!(manager.memory, Memory::default(), "what was written stands, since when nobody knows");
}

/// Found by reading: a provider that says the same with another time was taken for somebody who takes our copy back.
#[test]
fn another_time_in_what_is_copied_is_news() {
    let mut manager = Manager::new();
    let condition =
        |time: Timestamp| json!({ "conditions": [{ "type": "Ready", "lastTransitionTime": time.to_string() }] });
    let copied = |time| {
        Step::<Cell, Hub>::Remote(Write::status("compute-operator-test", &condition(time), &deployment()).unwrap())
    };
    for _ in 0..20 {
        manager.after(Duration::from_secs(1));
        let step = copied(manager.now);
        assert_eq!(manager.looks(vec![step]).0, [WRITTEN]);
    }
    let time = manager.now;
    let same = (0..20).map(|_| manager.looks(vec![copied(time)]).0).filter(|done| done[..] == [WRITTEN.to_owned()]);
    assert_eq!(same.count(), 3, "the same with the same time is taken back");
}

#[test]
fn the_same_object_of_two_planes_is_two() {
    let of =
        |step: Step<Cell, Hub>| if let Mark::Puts(subject, _) = step.mark() { subject } else { panic!("{step:?}") };
    let object = Object::named::<WorkloadDeployment>("ns-1", "web");
    let on_cell = of(Step::Local(Write::create("compute-operator-test", object.clone(), json!({}))));
    let on_hub = of(Step::Remote(Write::create("compute-operator-test", object, json!({}))));
    assert_ne!(on_cell, on_hub);
}

/// A server, as far as this manager writes to it: what it makes of a status, and who else writes there.
struct Server {
    stored: Value,
    /// The same as a cache has it.
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

    /// One look of a manager that wants this status: whether it writes, and the reason of the Event that it sends.
    fn looked_at(&mut self, manager: &mut Manager, status: &Value, event_arrives: bool) -> (bool, Option<String>) {
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

/// Prunes a field, as where the definition of the kind does not know it.
fn prunes(status: &mut Value) {
    status.as_object_mut().unwrap().remove("replicas");
}

/// Has another value of a field, as where a webhook puts it in.
fn says_otherwise(status: &mut Value) {
    status["replicas"] = json!(7);
}

/// Found by reading: what the server prunes was written once a minute, and told as somebody's answer.
#[test]
fn what_the_server_does_not_keep_is_written_once_and_told_as_what_it_is() {
    for (what, keeps, writes, told) in [
        ("kept", (|_| ()) as fn(&mut Value), 1, vec![]),
        ("pruned", prunes, 1, vec!["WritesNotKept"]),
        ("said otherwise", says_otherwise, 1, vec!["WritesNotKept"]),
    ] {
        let (mut manager, mut server) = (Manager::new(), Server::new(keeps));
        let mut seen = (0, Vec::new());
        for n in 0..200 {
            manager.after(Duration::from_secs(1));
            // Somebody else's news in the same object.
            server.live.metadata.annotations = Some([("seen".to_owned(), n.to_string())].into());
            let (written, told) = server.looked_at(&mut manager, &wanted(2), true);
            seen.0 += u32::from(written);
            seen.1.extend(told);
        }
        assert_eq!((seen.0, seen.1.iter().map(String::as_str).collect()), (writes, told), "{what}");
        assert!(!manager.memory.is_contested(), "{what}");
    }
}

#[test]
fn what_the_server_did_not_keep_is_tried_again_after_long_and_at_once_when_it_is_news() {
    let (mut manager, mut server) = (Manager::new(), Server::new(prunes));
    assert!(server.looked_at(&mut manager, &wanted(2), true).0);
    assert!(!server.looked_at(&mut manager, &wanted(2), true).0);
    assert!(
        !manager.memory.is_spent(manager.now + PAUSE * 3, PAUSE),
        "it is not forgotten, and written again, before that"
    );
    let mut waits: Plan<Write<Cell>> =
        Write::status("compute-operator-test", &wanted(2), &server.live).into_iter().collect();
    hold_back(&mut waits, &manager.memory, &Regarding::of(&server.live), "test", manager.now, PAUSE);
    assert_eq!((waits.steps.len(), waits.next), (0, Next::After(PAUSE * TRIED_AGAIN)));
    let mut news = wanted(2);
    news["conditions"][0]["message"] = json!("news");
    assert!(server.looked_at(&mut manager, &news, true).0);
    assert!(!server.looked_at(&mut manager, &news, true).0);
    // The definition is applied.
    server.keeps = |_| ();
    assert!(!server.looked_at(manager.after(PAUSE), &news, true).0);
    assert!(server.looked_at(manager.after(PAUSE * TRIED_AGAIN), &news, true).0);
    assert!(!server.looked_at(&mut manager, &news, true).0);
    assert_eq!(server.stored["status"]["replicas"], 2);
}

#[test]
fn who_takes_back_what_the_server_keeps_of_it_is_told_all_the_same() {
    let (mut manager, mut server) = (Manager::new(), Server::new(prunes));
    let mut all = Vec::new();
    for _ in 0..8 {
        all.extend(server.looked_at(manager.after(Duration::from_millis(10)), &wanted(2), true).1);
        let mut theirs = wanted(2);
        theirs["conditions"][0]["message"] = json!("theirs");
        server.write(&theirs);
    }
    assert_eq!(all, ["WritesTakenBack"]);
    assert!(manager.memory.is_contested());
}

/// A policy that puts a random name into what is written has each write roll out another version.
#[test]
fn server_makes_something_else_of_each_write_is_not_written_to_again() {
    fn counts(status: &mut Value) {
        static WRITTEN: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(100);
        status["replicas"] = json!(WRITTEN.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
    }
    let (mut manager, mut server) = (Manager::new(), Server::new(counts));
    let (mut written, mut told) = (0, Vec::new());
    for minute in 0..3000 {
        // A new version that is wanted is written, whatever becomes of it.
        let news = if minute < 1500 { 2 } else { 3 };
        let look = server.looked_at(manager.after(Duration::from_mins(1)), &wanted(news), true);
        written += u32::from(look.0);
        told.extend(look.1);
    }
    assert_eq!((written, told), (3, vec!["WritesNotKept".to_owned()]), "once more after an hour, and then no more");
}

/// A status that sums up what others report waits for no write that is of no use.
#[test]
fn plan_of_writes_that_wait_is_told_from_one_with_others() {
    let (mut manager, mut server) = (Manager::new(), Server::new(prunes));
    let waits = |manager: &Manager, server: &Server, status: &Value| {
        let due = Write::<Cell>::status("compute-operator-test", status, &server.live);
        let steps: Vec<Write<Cell>> = due.into_iter().collect();
        all_wait(&steps, &manager.memory, manager.now, PAUSE)
    };
    assert!(!waits(&manager, &server, &wanted(2)), "nothing is known of it");
    server.looked_at(&mut manager, &wanted(2), true);
    assert!(waits(&manager, &server, &wanted(2)));
    assert!(!waits(&manager, &server, &json!({ "replicas": 3 })), "that is news");
    manager.after(PAUSE * TRIED_AGAIN);
    assert!(!waits(&manager, &server, &wanted(2)), "it is tried again");
    assert!(!all_wait::<Write<Cell>>(&[], &manager.memory, manager.now, PAUSE), "nothing is due");
}

/// Found by reading: an Event that got lost was taken for told, and nobody heard of it.
#[test]
fn an_event_that_is_lost_is_sent_again_in_the_next_wait_until_one_arrives() {
    let (mut manager, mut server) = (Manager::new(), Server::new(|_| ()));
    let mut events = Vec::new();
    for second in 0..400 {
        for _ in 0..10 {
            let arrives = second >= 100;
            let (_, told) = server.looked_at(manager.after(Duration::from_millis(100)), &wanted(2), arrives);
            events.extend(told.map(|reason| (arrives, reason)));
        }
        server.write(&wanted(3));
    }
    let (arrived, lost): (Vec<_>, Vec<_>) = events.into_iter().partition(|(arrives, _)| *arrives);
    assert!((4..=8).contains(&lost.len()), "once in each wait: {lost:?}");
    assert_eq!(arrived, [(true, "WritesTakenBack".to_owned())], "and no more, once one has arrived");
}
