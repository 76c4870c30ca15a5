use super::*;
use crate::plan::{management::drain::whereabouts::Presence, recorded::recorded};

#[path = "moves_failed_tests.rs"]
mod failed;
#[path = "moves_restart_tests.rs"]
mod restart;
#[path = "moves_shared_tests.rs"]
mod shared;
#[path = "moves_stuck_tests.rs"]
mod stuck;
#[path = "moves_unfit_tests.rs"]
mod unfit;
#[path = "moves_way_back_tests.rs"]
mod way_back;

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn dfw() -> CityCode {
    CityCode::parse("dfw").unwrap()
}

/// A federation in which each namespace's part of a city is wholly on one cluster.
struct World {
    clusters: BTreeMap<String, ClusterFacts>,
    namespaces: BTreeMap<String, Whereabouts>,
    moves: BTreeMap<CityCode, Move>,
    /// Whether nobody has looked yet.
    first: bool,
    now: Timestamp,
}

fn presence(bindings: usize) -> Presence {
    Presence { bindings, applied: bindings, suspended: 0, shared: 0, unreported: 0, desired: 1, current: 1 }
}

impl World {
    /// The city on `a`, which is to be drained, in so many namespaces; `b` carries the label as well.
    fn new(namespaces: &[&str]) -> Self {
        let mut a = ClusterFacts::labelled("dfw");
        a.draining = true;
        let on_a = || Whereabouts { on: [("a".to_owned(), presence(1))].into(), ..Whereabouts::default() };
        Self {
            clusters: [("a".to_owned(), a), ("b".to_owned(), ClusterFacts::labelled("dfw"))].into(),
            namespaces: namespaces.iter().map(|name| ((*name).to_owned(), on_a())).collect(),
            moves: BTreeMap::new(),
            first: true,
            now: START,
        }
    }

    fn cluster(&mut self, name: &str) -> &mut ClusterFacts {
        self.clusters.get_mut(name).unwrap()
    }

    /// One look; the policies follow at once. Returns what was said.
    fn look(&mut self) -> String {
        let observed = Observed {
            clusters: self.clusters.clone(),
            cities: [(dfw(), self.namespaces.clone())].into(),
            before: self.moves.clone(),
            first: std::mem::take(&mut self.first),
            timing: Timing::default(),
        };
        let plan = plan(&observed, self.now);
        let again = super::plan(&recorded(&observed), self.now);
        assert_eq!(format!("{plan:?}"), format!("{again:?}"));
        self.moves = plan.signals.into_iter().collect();
        assert_eq!(plan.next == Next::Await, self.moves.is_empty(), "what moves is looked at again");
        for (name, there) in &mut self.namespaces {
            let transfer = self.moves.get(&dfw()).and_then(|of| of.transfer(name)).cloned();
            if there.policy_trouble.is_some() {
                continue; // it stays as it is
            }
            let failed = self.moves.get(&dfw()).and_then(|of| of.failed_of(name));
            there.failed = failed.map(|failed| serde_json::from_str(&failed).unwrap()).unwrap_or_default();
            there.standing = transfer.or_else(|| {
                there.standing.clone().filter(|transfer| there.has(&transfer.to) && !there.is_complete_on(&transfer.to))
            });
        }
        format!("{:?}", plan.steps)
    }

    /// The namespaces that are on their way, and where to.
    fn transfers(&self) -> Vec<String> {
        let transfers = self.moves.get(&dfw()).into_iter().flat_map(|of| &of.transfers);
        transfers.map(|(name, of)| format!("{name}>{}", of.transfer.to)).collect()
    }

    /// The scheduler has sent a namespace's part somewhere; there it runs, or does not.
    fn arrive(&mut self, name: &str, cluster: &str, runs: bool) {
        let current = i64::from(runs);
        self.namespaces.get_mut(name).unwrap().on = [(cluster.to_owned(), Presence { current, ..presence(1) })].into();
    }

    /// Another manager comes.
    fn restart(&mut self) {
        self.moves.clear();
        self.first = true;
    }

    fn waits(&self) -> String {
        self.moves[&dfw()].waits.clone().unwrap_or_default()
    }

    fn wait(&mut self, minutes: i64) {
        self.now += jiff::SignedDuration::from_mins(minutes);
    }
}

#[test]
fn one_namespace_goes_first_and_the_others_follow_as_it_is_proved() {
    let mut world = World::new(&["n1", "n2", "n3", "n4", "n5"]);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    assert_eq!(world.moves[&dfw()].home.as_deref(), Some("a"), "new namespaces begin where the city is");
    world.arrive("n1", "b", false);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "nothing runs there yet");
    world.arrive("n1", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"]);
    assert_eq!(world.moves[&dfw()].home.as_deref(), Some("b"));
    world.arrive("n2", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n3>b", "n4>b"], "as many as have arrived");
    for name in ["n3", "n4"] {
        world.arrive(name, "b", true);
    }
    world.look();
    world.arrive("n5", "b", true);
    let events = world.look();
    assert!(world.moves.is_empty() && events.contains("DrainEnded"), "{events}");
}

/// Seen on real Karmada: back again half a second after it had moved, before its policy was written anew, the city was taken to
/// be on its first way still, and stayed for ten minutes.
#[test]
fn a_policy_that_stands_for_a_finished_move_yet_holds_up_no_other() {
    let mut world = World::new(&["n1"]);
    world.arrive("n1", "a", false);
    world.look();
    let standing = world.namespaces["n1"].standing.clone();
    world.arrive("n1", "b", false);
    world.cluster("a").draining = false;
    world.look();
    assert!(world.moves.is_empty());
    world.namespaces.get_mut("n1").unwrap().standing.clone_from(&standing);
    world.cluster("b").draining = true;
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    let attempt = |of: &Option<Transfer>| of.as_ref().unwrap().attempt.clone();
    assert_ne!(attempt(&world.namespaces["n1"].standing), attempt(&standing), "the scheduler has seen that one");
}

#[test]
fn a_drain_waits_for_whoever_takes_over_and_goes_on_by_itself() {
    type Edit = fn(&mut ClusterFacts);
    let obstacles: [(&str, Edit, Edit); 5] = [
        ("taint", |b| b.obstacle = Some("has the taint k:NoSchedule".into()), |b| b.obstacle = None),
        ("not ready", |b| b.ready = Err("away".into()), |b| b.ready = Ok(())),
        ("no other Cluster carries the label", |b| b.city = None, |b| b.city = Some(dfw())),
        ("no other Cluster carries the label", |b| b.deleting = true, |b| b.deleting = false),
        ("no other Cluster carries the label", |b| b.draining = true, |b| b.draining = false),
    ];
    for (what, spoil, mend) in obstacles {
        let mut world = World::new(&["n1", "n2"]);
        spoil(world.cluster("b"));
        let events = world.look();
        assert!(world.transfers().is_empty() && world.waits().contains(what), "{what}: {:?}", world.moves);
        assert!(events.contains("DrainWaiting") && events.contains(what), "{events}");
        assert_eq!((world.moves[&dfw()].state(), world.look().as_str()), ("waiting", "[]"), "it is told once");
        assert!(note(&dfw(), &world.moves[&dfw()]).unwrap().contains("dfw is to leave Cluster a"));
        world.wait(60);
        world.look();
        assert!(world.transfers().is_empty(), "{what}");
        mend(world.cluster("b"));
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "{what}");
    }
}

#[test]
fn the_last_namespaces_are_proved_like_the_first() {
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
fn a_namespace_that_nobody_schedules_is_passed_over_and_told() {
    let mut world = World::new(&["n1", "n2"]);
    world.namespaces.get_mut("n1").unwrap().on = [("a".to_owned(), Presence { suspended: 1, ..presence(1) })].into();
    world.look();
    assert_eq!(world.transfers(), ["n2>b"]);
    world.arrive("n2", "b", true);
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("n1 stay(s): spec.suspension"), "{:?}", world.moves);
}

#[test]
fn a_successor_that_dies_gives_back_what_it_had() {
    let mut world = World::new(&["n1", "n2"]);
    world.look();
    world.arrive("n1", "b", false);
    world.cluster("b").ready = Err("away".into());
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "it is not forgotten");
    world.wait(10);
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    // Refused on the way back, it is asked for under another name.
    let attempt = |world: &World| world.moves[&dfw()].transfers["n1"].transfer.attempt.clone();
    let first = attempt(&world);
    world.wait(1);
    world.look();
    assert!(attempt(&world) != first && Attempt::is_back(&attempt(&world)));
}

#[test]
fn what_is_split_is_asked_for_again_until_it_is_whole() {
    let split = || [("a".to_owned(), presence(2)), ("b".to_owned(), presence(1))].into();
    for called_off in [false, true] {
        let mut world = World::new(&["n1"]);
        world.look();
        world.cluster("a").obstacle = Some("has the taint k:NoSchedule".into());
        let attempt = |world: &World| world.moves[&dfw()].transfers["n1"].transfer.attempt.clone();
        let first = attempt(&world);
        world.namespaces.get_mut("n1").unwrap().on = split();
        world.cluster("a").draining = !called_off;
        world.look();
        assert_eq!(attempt(&world), first);
        world.wait(1);
        world.look();
        assert_ne!(attempt(&world), first, "the scheduler looks at the first group again only under another name");
        assert!(world.waits().contains("2 deployment(s) are still on a"), "{}", world.waits());
    }
}

#[test]
fn what_cannot_be_brought_back_stays_and_is_told() {
    let mut world = World::new(&["n1", "n2"]);
    world.look();
    world.cluster("a").obstacle = Some("has the taint k:NoSchedule".into());
    world.arrive("n1", "b", false);
    world.wait(10);
    let events = world.look();
    assert!(events.contains("it stays there, for Cluster a has the taint k:NoSchedule"), "{events}");
    assert_eq!(world.transfers(), ["n1>b"]);
    assert_eq!(world.look(), "[]", "once");
    world.arrive("n1", "b", true);
    world.look();
    assert!(world.transfers().is_empty(), "it has arrived after all; nothing follows it: {:?}", world.moves);
}

#[test]
fn what_the_scheduler_refuses_is_asked_for_again_under_another_name() {
    let mut world = World::new(&["n1"]);
    world.look();
    let attempt = |world: &World| world.moves[&dfw()].transfers["n1"].transfer.attempt.clone();
    assert_eq!(attempt(&world), "1-0-r1", "with one that is applied, and an Instance that runs");
    world.wait(1);
    world.look();
    assert_eq!(attempt(&world), "1-1-r1", "nothing has moved");
    assert!(world.waits().contains("n1 is on its way to b: 1 deployment(s) are still on a"), "{}", world.waits());
    // Another process reads it off the policy.
    world.restart();
    world.look();
    assert_eq!(attempt(&world), "1-1-r1");
}

#[test]
fn called_off_everything_stays_where_it_is_but_for_what_is_half_way() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.look();
    world.arrive("n1", "b", true);
    world.look();
    world.namespaces.get_mut("n2").unwrap().on = [("a".to_owned(), presence(1)), ("b".to_owned(), presence(1))].into();
    world.cluster("a").draining = false;
    world.look();
    assert_eq!(world.transfers(), ["n2>b"], "a namespace is not left on two clusters");
    world.arrive("n2", "b", true);
    world.look();
    assert!(world.moves.is_empty(), "n1 and n2 are on b, n3 on a: so they stay");
}

/// Found by reading: what was half-way to a cluster that turned out to be bad stayed on two for ever once the drain was called off,
/// and nobody was told.
#[test]
fn called_off_what_is_half_way_to_a_cluster_that_takes_no_more_comes_back() {
    for able in [true, false] {
        let mut world = World::new(&["n1"]);
        world.look();
        world.namespaces.get_mut("n1").unwrap().on =
            [("a".to_owned(), presence(1)), ("b".to_owned(), presence(1))].into();
        world.cluster("a").draining = false;
        world.cluster("a").obstacle = (!able).then(|| "has the taint x:NoSchedule".into());
        world.cluster("b").obstacle = Some("has the taint k:NoSchedule".into());
        world.wait(1);
        let events = world.look();
        let of = &world.moves[&dfw()];
        let told = note(&dfw(), of).unwrap_or_default();
        assert!(events.contains("k:NoSchedule") && told.contains("k:NoSchedule"), "{events} {told}");
        assert_eq!(of.concerned().into_iter().collect::<Vec<_>>(), ["a", "b"], "told on both");
        let transfer = &of.transfers["n1"].transfer;
        let back = Attempt::is_back(&transfer.attempt);
        assert_eq!((transfer.to.as_str(), back), if able { ("a", true) } else { ("b", false) });
    }
}

#[test]
fn a_cluster_that_is_being_deleted_is_left_at_once() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.cluster("a").draining = false;
    world.cluster("a").deleting = true;
    world.look();
    assert_eq!(world.transfers().len(), 3, "the scheduler takes everything away from it in any case");
}
