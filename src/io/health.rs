//! The state of every watch, for `/readyz`, `/healthz` and the metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A watch whose task has not tried anything for this long is dead: the process is to be restarted.
/// Every healthy watch is opened anew within a minute, every failing one tries again within seconds.
const DEAD_AFTER: Duration = Duration::from_mins(3);

/// The state of all watches, and of everything else that start-up waits for.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<String, State>>>);

#[derive(Clone, Debug)]
struct State {
    /// Which entry this is: a watch may begin before the one of its name that it replaces has ended.
    id: u64,
    /// True if readiness waits for it only until it has been tried once.
    tenant: bool,
    /// The control plane that is watched.
    place: String,
    synced: bool,
    problem: Option<String>,
    /// The same for tenants, without names and addresses of the platform.
    outline: String,
    /// Start of the present problem.
    failing_since: Option<Instant>,
    tried: Instant,
}

/// A control plane of which some watch fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Time since the first failure.
    pub lasted: Duration,
    /// The watch and its problem, for operators of the platform.
    pub problem: String,
    /// The same for tenants, without names and addresses.
    pub outline: String,
}

/// One watch's entry in [`Health`]; it leaves with the watch.
pub struct Entry {
    health: Health,
    what: String,
    id: u64,
}

impl Health {
    /// Registers a watch; `what` is unique and for people, such as `workloads in project single`.
    pub fn watch(&self, what: String) -> Entry {
        self.register(what, String::new(), false)
    }

    /// Registers a watch of one tenant among many: its failure is reported, and does not affect readiness.
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

    /// The watch of one of these resources (by their plurals) in this control plane that has failed for longest; nothing while
    /// none fails.
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

    /// Watches and problems that readiness waits for, one line each. Empty when ready.
    pub fn waiting(&self) -> Vec<String> {
        let waits = |(what, state): (&String, &State)| match (&state.problem, state.synced) {
            (Some(problem), _) => (!state.tenant).then(|| format!("{what}: {problem}")),
            (None, false) => Some(format!("{what}: first list not complete")),
            (None, true) => None,
        };
        self.lock().iter().filter_map(waits).collect()
    }

    /// Failures that do not keep the process from being ready, one line each.
    pub fn noted(&self) -> Vec<String> {
        let notes = |(what, state): (&String, &State)| {
            state.problem.as_ref().filter(|_| state.tenant).map(|problem| format!("{what}: {problem}"))
        };
        self.lock().iter().filter_map(notes).collect()
    }

    /// Watches whose tasks have stopped; empty while the process is alive.
    pub fn dead(&self, now: Instant) -> Vec<String> {
        let dead = |state: &State| now.saturating_duration_since(state.tried) > DEAD_AFTER;
        self.lock().iter().filter(|(_, s)| dead(s)).map(|(what, _)| what.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Name of the watch, for people.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The watch is about to call the server.
    pub fn trying(&self) {
        self.update(|state| state.tried = Instant::now());
    }

    /// The server answered as it should.
    pub fn fine(&self) {
        self.update(|state| (state.problem, state.failing_since, state.tried) = (None, None, Instant::now()));
    }

    /// The cache is complete.
    pub fn synced(&self) {
        self.update(|state| {
            (state.problem, state.failing_since) = (None, None);
            (state.synced, state.tried) = (true, Instant::now());
        });
    }

    /// The cache has been filled. A problem of the watch remains.
    pub fn listed(&self) {
        self.update(|state| (state.synced, state.tried) = (true, Instant::now()));
    }

    /// The server did not answer as it should. Returns true if this problem is new.
    pub fn failed(&self, problem: &str) -> bool {
        self.silent(problem, "it does not work", Duration::ZERO)
    }

    /// The same for a server that has been silent for this long. `outline`: the problem without names and addresses.
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
    fn readiness_names_what_it_waits_for() {
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
    fn a_control_plane_fails_from_the_first_failure_of_a_watch_to_its_end() {
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
        assert_eq!(health.failing(&["b"], "hub", later), None, "it asks for others");
        a.synced();
        assert_eq!(health.failing(&["a", "b"], "hub", later), None);
    }

    #[test]
    fn what_is_silent_has_failed_since_it_was_heard_last_and_a_list_is_no_end_of_it() {
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
    fn a_failing_tenant_is_reported_and_keeps_nobody_from_being_ready() {
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
    fn a_watch_that_ends_late_takes_nothing_from_the_one_that_replaced_it() {
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
    fn a_task_that_stopped_trying_is_dead() {
        let health = Health::default();
        let entry = health.watch("a".into());
        entry.trying();
        assert!(health.dead(Instant::now()).is_empty());
        assert_eq!(health.dead(Instant::now() + DEAD_AFTER + Duration::from_secs(1)), ["a"]);
    }
}
