use super::*;
use crate::plan::{
    Next,
    management::drain::{
        cities::{self, Decision},
        placement_status::{ClusterShare, PolicyTrouble},
    },
    recorded::recorded,
};

#[path = "city_drain_failed_tests.rs"]
mod failed;
#[path = "city_drain_restart_tests.rs"]
mod restart;
#[path = "city_drain_shared_tests.rs"]
mod shared;
#[path = "city_drain_stuck_tests.rs"]
mod stuck;
#[path = "city_drain_unfit_tests.rs"]
mod unfit;
#[path = "city_drain_way_back_tests.rs"]
mod way_back;

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn dfw() -> CityCode {
    CityCode::parse("dfw").unwrap()
}

/// A federation in which each namespace's part of a city is wholly on one cluster.
struct World {
    clusters: BTreeMap<String, ClusterFacts>,
    namespaces: BTreeMap<String, PlacementStatus>,
    decision: Decision,
    recalled: BTreeMap<String, Timestamp>,
    now: Timestamp,
}

fn share(bindings: usize) -> ClusterShare {
    ClusterShare { bindings, applied: bindings, suspended: 0, shared: 0, unreported: 0, desired: 1, current: 1 }
}

impl World {
    /// The city on `a`, which is to be drained, in these namespaces. `b` carries the label as well.
    fn new(namespaces: &[&str]) -> Self {
        let mut a = ClusterFacts::labelled("dfw");
        a.draining = true;
        let on_a = || PlacementStatus { on: [("a".to_owned(), share(1))].into(), ..PlacementStatus::default() };
        Self {
            clusters: [("a".to_owned(), a), ("b".to_owned(), ClusterFacts::labelled("dfw"))].into(),
            namespaces: namespaces.iter().map(|name| ((*name).to_owned(), on_a())).collect(),
            decision: Decision::default(),
            recalled: BTreeMap::new(),
            now: START,
        }
    }

    fn cluster(&mut self, name: &str) -> &mut ClusterFacts {
        self.clusters.get_mut(name).unwrap()
    }

    /// Decides once; the policies follow at once. Returns the Events.
    fn look(&mut self) -> String {
        let observed = cities::Observed {
            clusters: self.clusters.clone(),
            holders: BTreeMap::new(),
            cities: [(dfw(), self.namespaces.clone())].into(),
            guard: true,
            recalled: self.recalled.clone(),
            before: std::mem::take(&mut self.decision),
            timing: Timing::default(),
        };
        let mut plan = cities::plan(&observed, self.now);
        let again = cities::plan(&recorded(&observed), self.now);
        assert_eq!(format!("{plan:?}"), format!("{again:?}"));
        self.decision = plan.signals.pop().unwrap();
        assert_eq!(plan.next == Next::Await, self.decision.drains.is_empty(), "a drain is looked at again");
        self.follow();
        format!("{:?}", plan.steps)
    }

    /// Every policy that can be written follows the decision.
    fn follow(&mut self) {
        let drain = self.decision.drains.get(&dfw());
        for (name, there) in self.namespaces.iter_mut().filter(|(_, there)| there.policy_trouble.is_none()) {
            let instruction = drain.map(|drain| drain.instruction(name)).unwrap_or_default();
            let context = transfer::Context {
                namespace: name,
                city: &dfw(),
                clusters: &self.clusters,
                instruction: &instruction,
                timing: &Timing::default(),
                now: self.now,
            };
            let next = transfer::next(there, &context);
            (there.transfer, there.failed) = (next.transfer, next.failed);
        }
    }

    fn drain(&self) -> &Drain {
        &self.decision.drains[&dfw()]
    }

    /// Namespaces that move, with their targets. Includes those that have leave to go and a policy that cannot be written.
    fn transfers(&self) -> Vec<String> {
        let go = |name: &String| Some(&self.decision.drains.get(&dfw())?.go.get(name)?.route);
        let to = self.namespaces.iter().filter_map(|(name, there)| {
            let is_stuck = there.policy_trouble.is_some();
            let route = if is_stuck { go(name)? } else { &there.transfer.as_ref()?.route };
            Some(format!("{name}>{}", route.to))
        });
        to.collect()
    }

    /// The policy still asks for this transfer, for which the scheduler was asked a moment ago.
    fn still_asks(&mut self, name: &str, transfer: &Transfer) {
        let transfer = transfer.clone().counted_from(self.now);
        self.namespaces.get_mut(name).unwrap().transfer = Some(transfer);
    }

    fn transfer(&self, name: &str) -> &Transfer {
        self.namespaces[name].transfer.as_ref().unwrap()
    }

    /// The scheduler has sent a namespace's part to a cluster, where it runs or does not run.
    fn arrive(&mut self, name: &str, cluster: &str, runs: bool) {
        let current = i64::from(runs);
        self.namespaces.get_mut(name).unwrap().on = [(cluster.to_owned(), ClusterShare { current, ..share(1) })].into();
    }

    /// Restarts the manager.
    fn restart(&mut self) {
        (self.decision, self.recalled) = (Decision::default(), BTreeMap::new());
    }

    fn waits(&self) -> String {
        self.drain().waits.clone().unwrap_or_default()
    }

    fn wait(&mut self, minutes: i64) {
        self.now += jiff::SignedDuration::from_mins(minutes);
    }
}

#[test]
fn drain_moves_one_namespace_first_and_others_after_its_arrival() {
    let mut world = World::new(&["n1", "n2", "n3", "n4", "n5"]);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    assert_eq!(world.drain().home.as_deref(), Some("a"), "new namespaces begin where the city is");
    world.arrive("n1", "b", false);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "nothing runs there yet");
    world.arrive("n1", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"]);
    assert_eq!(world.drain().home.as_deref(), Some("b"));
    world.arrive("n2", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n3>b", "n4>b"], "as many as have arrived");
    for name in ["n3", "n4"] {
        world.arrive(name, "b", true);
    }
    world.look();
    world.arrive("n5", "b", true);
    let events = world.look();
    assert!(world.decision.drains.is_empty() && events.contains("DrainEnded"), "{events}");
}

/// A drain in the opposite direction, half a second after the first one, met the old policy. The first transfer seemed to go on,
/// and the city waited for ten minutes.
#[test]
fn policy_of_a_finished_transfer_does_not_block_the_next_drain() {
    let mut world = World::new(&["n1"]);
    world.arrive("n1", "a", false);
    world.look();
    let first = world.transfer("n1").clone();
    world.arrive("n1", "b", false);
    world.cluster("a").draining = false;
    world.look();
    assert!(world.decision.drains.is_empty());
    world.namespaces.get_mut("n1").unwrap().transfer = Some(first.clone());
    world.cluster("b").draining = true;
    world.wait(1);
    world.look();
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    assert_ne!(world.transfer("n1").attempt, first.attempt, "the scheduler has seen that one");
}

#[test]
fn drain_without_an_able_target_waits_and_continues() {
    type Edit = fn(&mut ClusterFacts);
    let obstacles: [(&str, Edit, Edit); 5] = [
        ("taint", |b| b.obstacle = Some("has the taint k:NoSchedule".into()), |b| b.obstacle = None),
        ("not ready", |b| b.ready = Err("away".into()), |b| b.ready = Ok(())),
        ("no other Cluster has the label", |b| b.city = None, |b| b.city = Some(dfw())),
        ("no other Cluster has the label", |b| b.deleting = true, |b| b.deleting = false),
        ("no other Cluster has the label", |b| b.draining = true, |b| b.draining = false),
    ];
    for (what, spoil, mend) in obstacles {
        let mut world = World::new(&["n1", "n2"]);
        spoil(world.cluster("b"));
        let events = world.look();
        assert!(world.transfers().is_empty() && world.waits().contains(what), "{what}: {:?}", world.decision);
        assert!(events.contains("DrainWaiting") && events.contains(what), "{events}");
        assert_eq!((world.drain().state(), world.look().as_str()), ("waiting", "[]"), "it is told once");
        assert!(world.drain().note(&dfw()).unwrap().contains("the drain of dfw from Cluster a"));
        world.wait(60);
        world.look();
        assert!(world.transfers().is_empty(), "{what}");
        mend(world.cluster("b"));
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "{what}");
    }
}

#[test]
fn last_namespace_is_proved_like_the_first() {
    let mut world = World::new(&["n1", "n2"]);
    world.look();
    world.arrive("n1", "b", true);
    world.look();
    world.arrive("n2", "b", false);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"], "nothing is on a any more, but it is not known whether n2 runs");
    world.wait(10);
    let events = world.look();
    assert!(events.contains("DrainFailed") && world.transfers() == ["n2>a"], "{events}");
}

#[test]
fn namespace_with_suspended_scheduling_is_skipped_and_reported() {
    let mut world = World::new(&["n1", "n2"]);
    world.namespaces.get_mut("n1").unwrap().on = [("a".to_owned(), ClusterShare { suspended: 1, ..share(1) })].into();
    world.look();
    assert_eq!(world.transfers(), ["n2>b"]);
    world.arrive("n2", "b", true);
    world.look();
    assert!(
        world.transfers().is_empty() && world.waits().contains("not moved: n1: spec.suspension"),
        "{:?}",
        world.decision
    );
}

#[test]
fn target_that_dies_loses_its_namespaces_to_the_old_cluster() {
    let mut world = World::new(&["n1", "n2"]);
    world.look();
    world.arrive("n1", "b", false);
    world.cluster("b").ready = Err("away".into());
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "it is not forgotten");
    world.wait(10);
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    // A refused return is requested again under another name.
    let attempt = |world: &World| world.transfer("n1").attempt.clone();
    let first = attempt(&world);
    world.wait(1);
    world.look();
    assert!(attempt(&world) != first && world.transfer("n1").is_back());
}

#[test]
fn split_namespace_is_requested_again_until_whole() {
    let split = || [("a".to_owned(), share(2)), ("b".to_owned(), share(1))].into();
    for called_off in [false, true] {
        let mut world = World::new(&["n1"]);
        world.look();
        world.cluster("a").obstacle = Some("has the taint k:NoSchedule".into());
        let attempt = |world: &World| world.transfer("n1").attempt.clone();
        let first = attempt(&world);
        world.namespaces.get_mut("n1").unwrap().on = split();
        world.cluster("a").draining = !called_off;
        world.look();
        assert_eq!(attempt(&world), first);
        world.wait(1);
        world.look();
        assert_ne!(attempt(&world), first, "the scheduler looks at the first group again only under another name");
        assert!(world.waits().contains("it is still on a"), "{}", world.waits());
    }
}

#[test]
fn failed_namespace_without_a_way_back_stays_and_is_reported() {
    let mut world = World::new(&["n1", "n2"]);
    world.look();
    world.cluster("a").obstacle = Some("has the taint k:NoSchedule".into());
    world.arrive("n1", "b", false);
    world.wait(10);
    let events = world.look();
    assert!(events.contains("it stays there because Cluster a has the taint k:NoSchedule"), "{events}");
    assert_eq!(world.transfers(), ["n1>b"]);
    assert_eq!(world.look(), "[]", "once");
    world.arrive("n1", "b", true);
    world.look();
    assert!(world.transfers().is_empty(), "it has arrived after all; nothing follows it: {:?}", world.decision);
}

#[test]
fn refused_transfer_is_requested_again_under_another_name() {
    let mut world = World::new(&["n1"]);
    world.look();
    let attempt = |world: &World| world.transfer("n1").attempt.clone();
    let first = attempt(&world);
    world.wait(1);
    world.look();
    let second = attempt(&world);
    assert_ne!(second, first, "nothing has moved");
    assert!(world.waits().contains("n1 is moving to b: it is still on a"), "{}", world.waits());
    // Another process reads it off the policy.
    world.restart();
    world.look();
    assert_eq!(attempt(&world), second);
}

#[test]
fn recalled_drain_only_finishes_namespaces_half_way() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.look();
    world.arrive("n1", "b", true);
    world.look();
    world.namespaces.get_mut("n2").unwrap().on = [("a".to_owned(), share(1)), ("b".to_owned(), share(1))].into();
    world.cluster("a").draining = false;
    world.look();
    assert_eq!(world.transfers(), ["n2>b"], "a namespace is not left on two clusters");
    world.arrive("n2", "b", true);
    world.look();
    assert!(world.decision.drains.is_empty(), "n1 and n2 are on b, n3 on a: so they stay");
}

/// A namespace half-way to a bad cluster stayed on two clusters forever after the recall, without a report.
#[test]
fn recalled_drain_returns_a_namespace_half_way_to_an_unable_cluster() {
    for able in [true, false] {
        let mut world = World::new(&["n1"]);
        world.look();
        world.namespaces.get_mut("n1").unwrap().on = [("a".to_owned(), share(1)), ("b".to_owned(), share(1))].into();
        world.cluster("a").draining = false;
        world.cluster("a").obstacle = (!able).then(|| "has the taint x:NoSchedule".into());
        world.cluster("b").obstacle = Some("has the taint k:NoSchedule".into());
        world.wait(1);
        let events = world.look();
        let of = world.drain();
        let told = of.note(&dfw()).unwrap_or_default();
        assert!(events.contains("k:NoSchedule") && told.contains("k:NoSchedule"), "{events} {told}");
        assert_eq!(of.concerned().into_iter().collect::<Vec<_>>(), ["a", "b"], "told on both");
        let transfer = world.transfer("n1");
        assert_eq!((&*transfer.route.to, transfer.is_back()), if able { ("a", true) } else { ("b", false) });
    }
}

#[test]
fn deleted_cluster_is_left_by_all_namespaces_at_once() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.cluster("a").draining = false;
    world.cluster("a").deleting = true;
    world.look();
    assert_eq!(world.transfers().len(), 3, "the scheduler takes everything away from it in any case");
}
