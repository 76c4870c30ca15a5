use std::sync::Mutex;

use jiff::Timestamp;

use super::*;
use crate::timing::some_moment;

const PATIENCE: Duration = Duration::from_mins(10);

/// A cache of a project, whose deployments come and go.
#[derive(Default)]
struct World {
    losses: Losses,
    there: Arc<Mutex<BTreeSet<Lost>>>,
    start: Option<Instant>,
}

impl World {
    fn new() -> Self {
        Self { start: Some(some_moment()), ..Self::default() }
    }

    fn at(&self, seconds: u64) -> Now {
        let time = Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap();
        Now { time, instant: self.start.unwrap() + Duration::from_secs(seconds) }
    }

    fn have(&self, keys: &[Lost]) {
        self.there.lock().unwrap().extend(keys.iter().cloned());
    }

    fn note(&self, missing: &[Lost], proved: bool, taking: Taking, seconds: u64) {
        let known = self.there.lock().unwrap().len();
        let listed = Listed { another_history: proved, known, missing: missing.to_vec() };
        let there = self.there.clone();
        let is_there: IsThere = Box::new(move |key| there.lock().unwrap().contains(key));
        self.losses.note(&scope(), "workloaddeployments", &listed, taking, is_there, self.at(seconds));
    }

    /// A complete list without these comes in.
    fn lose(&self, missing: &[Lost], proved: bool, seconds: u64) {
        self.note(missing, proved, Taking::Begins, seconds);
        self.there.lock().unwrap().retain(|key| !missing.contains(key));
        self.note(missing, proved, Taking::Over, seconds);
    }

    fn ends(&self, seconds: u64) -> Vec<End> {
        self.losses.end(PATIENCE, self.at(seconds)).into_iter().map(|(_, end)| end).collect()
    }

    fn told(&self) -> Option<String> {
        self.losses.to_tell(&scope()).map(|told| told.what)
    }
}

fn scope() -> Scope {
    Scope::Project(ProjectName::new("alpha"))
}

fn keys(names: std::ops::Range<usize>) -> Vec<Lost> {
    names.map(|n| Lost { key: ObjectKey::new("shop", &format!("wd-{n}")), uid: String::new() }).collect()
}

/// Found by reading: a second restore minutes into a pause had what was left of it, and its own token was the first's.
#[test]
fn a_loss_that_comes_into_a_pause_has_its_own_time_and_its_own_confirmation() {
    let world = World::new();
    world.have(&keys(0..40));
    world.lose(&keys(0..20), false, 0);
    assert!(world.told().unwrap().starts_with("20 of 40 workloaddeployments"));
    assert_eq!((world.told(), world.ends(590)), (None, vec![]));
    world.lose(&keys(20..35), false, 590);
    assert!(!world.losses.confirm(&scope(), &format!("{:.0}", world.at(0).time)), "that was said of the first");
    assert!(world.told().unwrap().starts_with("35 of 40 workloaddeployments"));
    assert_eq!(world.ends(601), []);
    // The first ones come back, the second do not.
    world.have(&keys(0..20));
    assert_eq!(world.ends(602), []);
    assert_eq!((world.ends(1189), world.ends(1190)), (vec![], vec![End::Expired]));
    assert!(!world.losses.holds(&scope()));
}

/// Found by reading: a standby keeps what its watches told it, and ended nothing of it before it led.
#[test]
fn what_nobody_has_told_ends_as_well() {
    let world = World::new();
    world.have(&keys(0..20));
    world.lose(&keys(0..20), false, 0);
    assert_eq!(world.ends(600), [End::Expired]);
    assert!(world.losses.lock_over().is_empty(), "who was not told of it is not told of its end");
    world.have(&keys(0..20));
    world.lose(&keys(0..20), false, 200_000);
    assert!(world.ends(200_001).is_empty() && world.losses.holds(&scope()), "days later it is another");
    world.told().unwrap();
    world.have(&keys(0..20));
    assert_eq!(world.ends(200_002), [End::Back]);
    assert_eq!(*world.losses.lock_over(), [(scope(), End::Back)]);
}

/// Found by reading: a look while the list was taken over found everything in the cache still.
#[test]
fn what_is_not_taken_over_yet_is_not_back() {
    let world = World::new();
    world.have(&keys(0..20));
    world.note(&keys(0..20), false, Taking::Begins, 0);
    assert!(world.ends(1).is_empty() && world.losses.holds(&scope()));
    world.note(&keys(0..20), false, Taking::Over, 1);
    assert_eq!(world.ends(2), [End::Back]);
}

/// Found by reading: nine copies of a small tenant went at once.
#[test]
fn where_the_server_has_another_history_one_is_enough() {
    let world = World::new();
    world.have(&keys(0..60));
    world.lose(&keys(0..9), false, 0);
    assert!(!world.losses.holds(&scope()), "in the ordinary way of things");
    world.lose(&keys(9..11), true, 1);
    assert!(world.told().unwrap().starts_with("2 of 51"));
    world.have(&keys(9..10));
    assert_eq!(world.ends(2), []);
    world.have(&keys(10..11));
    assert_eq!(world.ends(3), [End::Back]);
}

#[test]
fn whoever_confirms_it_confirms_what_is_told() {
    let world = World::new();
    world.have(&keys(0..20));
    world.lose(&keys(0..20), false, 7);
    let told = world.losses.to_tell(&scope()).unwrap();
    assert_eq!(world.losses.waiting(), [(scope(), told.token.clone())]);
    assert!(world.losses.confirm(&scope(), &told.token) && !world.losses.confirm(&scope(), &told.token));
}
