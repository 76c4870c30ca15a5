//! The state of every watch, for `/readyz`, `/healthz` and the metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A watch whose task was inactive for this long is dead, and the process must restart. A working watch is reopened within a
/// minute. A failing one retries within seconds.
const DEAD_AFTER: Duration = Duration::from_mins(3);

/// The state of all watches, and of everything else that start-up waits for.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<String, State>>>);

#[derive(Clone, Debug)]
struct State {
    /// Identifies the entry. A watch may start before the one of the same name that it replaces has ended.
    id: u64,
    /// True if readiness waits only for its first attempt.
    tenant: bool,
    /// The control plane that is watched.
    place: String,
    synced: bool,
    problem: Option<String>,
    /// The problem for tenants, without names and addresses of the platform.
    outline: String,
    /// Start of the current problem.
    failing_since: Option<Instant>,
    tried: Instant,
}

/// A failing watch of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Time since the first failure.
    pub lasted: Duration,
    /// The watch and its problem, for operators of the platform.
    pub problem: String,
    /// The watch and its problem for tenants, without names and addresses.
    pub outline: String,
}

/// The entry of one watch in [`Health`]. Dropping it removes the entry.
pub struct Entry {
    health: Health,
    what: String,
    id: u64,
}

impl Health {
    /// Registers a watch. `what` is unique and for people, such as `workloads in project single`.
    pub fn watch(&self, what: String) -> Entry {
        self.register(what, String::new(), false)
    }

    /// Registers a watch of one tenant among many. Its failure is reported but does not affect readiness.
    pub fn tenant_watch(&self, what: String) -> Entry {
        self.register(what, String::new(), true)
    }

    /// Registers the watch of a resource in a control plane, so that [`Self::failing`] finds it.
    pub fn watch_in(&self, resource: &str, place: &str, tenant: bool) -> Entry {
        self.register(format!("{resource} in {place}"), place.to_owned(), tenant)
    }

    fn register(&self, what: String, place: String, tenant: bool) -> Entry {
        let id = fastrand::u64(..);
        let (synced, problem, outline, failing_since) = (false, None, String::new(), None);
        let state = State { id, tenant, place, synced, problem, outline, failing_since, tried: Instant::now() };
        self.lock().insert(what.clone(), state);
        Entry { health: self.clone(), what, id }
    }

    /// Returns the longest failing watch of these resources (plurals) in this control plane. `None` if none fails.
    pub fn failing(&self, resources: &[&str], place: &str, now: Instant) -> Option<Failing> {
        let all = self.lock();
        let is_one = |what: &str| what.split(' ').next().is_some_and(|resource| resources.contains(&resource));
        let of_place = all.iter().filter(|(what, state)| state.place == place && is_one(what));
        let failing = of_place
            .filter_map(|(what, state)| Some((state.failing_since?, what, state.problem.as_ref()?, &state.outline)));
        failing.min().map(|(since, what, problem, outline)| Failing {
            lasted: now.saturating_duration_since(since),
            problem: format!("{what}: {problem}"),
            outline: format!("{what}: {outline}"),
        })
    }

    /// Returns the watches and problems that readiness waits for, one line each. Empty if ready.
    pub fn waiting(&self) -> Vec<String> {
        let waits = |(what, state): (&String, &State)| match (&state.problem, state.synced) {
            (Some(problem), _) => (!state.tenant).then(|| format!("{what}: {problem}")),
            (None, false) => Some(format!("{what}: first list not complete")),
            (None, true) => None,
        };
        self.lock().iter().filter_map(waits).collect()
    }

    /// Returns failures that do not affect readiness, one line each.
    pub fn noted(&self) -> Vec<String> {
        let notes = |(what, state): (&String, &State)| {
            state.problem.as_ref().filter(|_| state.tenant).map(|problem| format!("{what}: {problem}"))
        };
        self.lock().iter().filter_map(notes).collect()
    }

    /// Returns watches whose tasks have stopped. Empty while the process is alive.
    pub fn dead(&self, now: Instant) -> Vec<String> {
        let dead = |state: &State| now.saturating_duration_since(state.tried) > DEAD_AFTER;
        self.lock().iter().filter(|(_, s)| dead(s)).map(|(what, _)| what.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Returns the name of the watch, for people.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Records that the watch is about to call the server.
    pub fn trying(&self) {
        self.update(|state| state.tried = Instant::now());
    }

    /// Records a correct answer of the server.
    pub fn fine(&self) {
        self.update(|state| (state.problem, state.failing_since, state.tried) = (None, None, Instant::now()));
    }

    /// Records that the cache is complete and the watch works.
    pub fn synced(&self) {
        self.update(|state| {
            (state.problem, state.failing_since) = (None, None);
            (state.synced, state.tried) = (true, Instant::now());
        });
    }

    /// Records that the cache is complete. A problem of the watch remains.
    pub fn listed(&self) {
        self.update(|state| (state.synced, state.tried) = (true, Instant::now()));
    }

    /// Records a wrong answer of the server. Returns true if the problem is new.
    pub fn failed(&self, problem: &str) -> bool {
        self.silent(problem, "it does not work", Duration::ZERO)
    }

    /// Records a problem of a server that has been silent for this long. `outline`: the problem without names and addresses.
    /// Returns true if the problem is new.
    pub fn silent(&self, problem: &str, outline: &str, silence: Duration) -> bool {
        let mut news = false;
        self.update(|state| {
            news = state.problem.as_deref() != Some(problem);
            (state.problem, state.outline) = (Some(problem.to_owned()), outline.to_owned());
            let now = Instant::now();
            state.failing_since.get_or_insert_with(|| now.checked_sub(silence).unwrap_or(now));
        });
        news
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        if let Some(state) = self.health.lock().get_mut(&self.what).filter(|state| state.id == self.id) {
            change(state);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut all = self.health.lock();
        if all.get(&self.what).is_some_and(|state| state.id == self.id) {
            all.remove(&self.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_unsynced_watch_is_named_by_readiness() {
        let health = Health::default();
        let (a, b) = (health.watch("a".into()), health.watch("b".into()));
        a.synced();
        assert!(b.failed("CRD missing") && !b.failed("CRD missing"));
        assert_eq!(health.waiting(), ["b: CRD missing"]);
        b.synced();
        assert!(health.waiting().is_empty());
        assert!(a.failed("unreachable"), "a synced watch that fails is reported as well");
        assert_eq!(health.waiting(), ["a: unreachable"]);
        drop(a);
        assert!(health.waiting().is_empty());
    }

    #[test]
    fn health_control_plane_fails_until_the_last_watch_recovers() {
        let health = Health::default();
        let (a, b) = (health.watch_in("a", "hub", false), health.watch_in("b", "hub", false));
        let other = health.watch_in("a", "project x", true);
        other.failed("unreachable");
        assert_eq!(health.failing(&["a", "b"], "hub", Instant::now()), None);
        b.failed("refused");
        let later = Instant::now() + Duration::from_secs(5);
        a.failed("refused");
        b.failed("no answer");
        let failing = health.failing(&["a", "b"], "hub", later).unwrap();
        assert_eq!(failing.problem, "b in hub: no answer");
        assert!(failing.lasted >= Duration::from_secs(5), "{failing:?}");
        b.fine();
        assert_eq!(health.failing(&["a", "b"], "hub", later).unwrap().problem, "a in hub: refused");
        assert_eq!(health.failing(&["b"], "hub", later), None, "only other watches fail");
        a.synced();
        assert_eq!(health.failing(&["a", "b"], "hub", later), None);
    }

    #[test]
    fn health_silent_watch_fails_since_its_last_event_even_after_a_list() {
        let health = Health::default();
        let entry = health.watch_in("a", "hub", false);
        let failing = || health.failing(&["a"], "hub", Instant::now());
        entry.silent("User \"system:serviceaccount:x:y\" cannot", "it may not", Duration::from_secs(9));
        let first = failing().unwrap();
        assert!(first.lasted >= Duration::from_secs(9) && first.outline == "a in hub: it may not", "{first:?}");
        assert!(first.problem.contains("serviceaccount"));
        entry.listed();
        assert!(failing().is_some_and(|now| now.lasted >= first.lasted));
        assert_eq!(health.waiting().len(), 1);
        entry.fine();
        assert_eq!((failing(), health.waiting()), (None, vec![]));
    }

    #[test]
    fn health_failing_tenant_watch_does_not_affect_readiness() {
        let health = Health::default();
        let entry = health.tenant_watch("workloads in project a".into());
        assert_eq!(health.waiting().len(), 1, "not tried yet");
        entry.failed("unreachable");
        assert!(health.waiting().is_empty());
        assert_eq!(health.noted(), ["workloads in project a: unreachable"]);
        entry.synced();
        assert!(health.noted().is_empty());
    }

    #[test]
    fn health_replaced_watch_does_not_change_the_entry_of_its_successor() {
        let health = Health::default();
        let old = health.watch("a".into());
        let new = health.watch("a".into());
        new.failed("unreachable");
        old.synced();
        drop(old);
        assert_eq!(health.waiting(), ["a: unreachable"]);
        drop(new);
        assert!(health.waiting().is_empty());
    }

    #[test]
    fn health_inactive_task_is_dead() {
        let health = Health::default();
        let entry = health.watch("a".into());
        entry.trying();
        assert!(health.dead(Instant::now()).is_empty());
        assert_eq!(health.dead(Instant::now() + DEAD_AFTER + Duration::from_secs(1)), ["a"]);
    }
}
