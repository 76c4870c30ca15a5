//! The work queue. A key is queued once and never runs on two workers. Projects are served in turn, and failures back off.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fmt::{Debug, Display},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::store::ObjectKey;
use crate::metrics::QueueMetrics;

/// First delay after a failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// Longest delay between two attempts at one key.
const BACKOFF_MAX: Duration = Duration::from_mins(1);

/// Longest delay of a failing key after an event for it.
const RETRY_AFTER_EVENT: Duration = Duration::from_secs(1);
/// Capacity for this many ready keys is kept while none is ready.
const ROOM: usize = 1024;

/// A key that a controller reconciles. Each controller has its own key type, made of parsed names. So no content of an object can
/// be mistaken for another key.
pub trait Key: Clone + Debug + Display + Ord + Hash + Send + Sync + 'static {
    /// Lanes are served in turn, so that a busy one does not starve the others.
    type Lane: Clone + Ord + Hash + Send + Sync + 'static;

    /// Shortest pause of a key after a successful run, for keys with many events. One run handles all events of the pause.
    const REST: Duration = Duration::ZERO;

    /// Returns the lane of this key.
    fn lane(&self) -> Self::Lane;
}

/// An object of a cell. Each namespace is a lane, because it belongs to one project.
impl Key for ObjectKey {
    type Lane = Arc<str>;

    fn lane(&self) -> Arc<str> {
        self.namespace.clone()
    }
}

/// The result of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done until the next event.
    Done,
    /// Done. Requeue after this time.
    Again(Duration),
    /// Failed. Requeue with back-off.
    Failed,
    /// Failed because a server did not answer. Requeue with back-off. Until the lane gets an answer again it has only one worker,
    /// so that a silent server cannot occupy all workers.
    Unanswered,
}

/// Exponential back-off with jitter: `first` is doubled per failure after the first, up to `longest`, and multiplied by 0.5 to 1.
pub fn backoff(failures: u32, first: Duration, longest: Duration) -> Duration {
    let doubled = first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(16)));
    doubled.min(longest).mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Most workers of one lane while other lanes have some.
const LANE_SHARE: usize = 8;
/// Most workers of one lane while no other lane has any: half of all, so that another lane finds a free one at once.
const LONE_LANE_SHARE: usize = 16;

/// A queue of [`Key`]s.
pub struct Queue<K: Key> {
    state: Mutex<State<K>>,
    wake: Notify,
}

struct State<K: Key> {
    /// Ready keys by lane.
    lanes: BTreeMap<K::Lane, VecDeque<K>>,
    /// Lanes with ready keys, in the order of service.
    turn: VecDeque<K::Lane>,
    /// Ready keys and the time since they are ready.
    ready: HashMap<K, Instant>,
    /// Running keys and the time since they run.
    running: HashMap<K, Instant>,
    /// Workers per lane. No entry if there are none.
    busy: HashMap<K::Lane, usize>,
    /// Lanes whose last attempt got no answer.
    silent: HashSet<K::Lane>,
    /// Keys to run again as soon as their current run ends.
    dirty: HashSet<K>,
    due: BTreeSet<(Instant, K)>,
    due_at: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    /// Time of the first failure of each key since its last success. A reset of the back-off does not change it.
    failing_since: HashMap<K, Instant>,
    /// A failing key is retried once it has failed for this long, even if its back-off is longer.
    error_grace: Option<Duration>,
    /// End of the pause of each key, and the same pauses in the order of their ends.
    rests_until: HashMap<K, Instant>,
    rests: BTreeSet<(Instant, K)>,
    /// The due time for which an idle worker waits. The others sleep until there is a key for them.
    watched: Option<Instant>,
    metrics: Option<QueueMetrics>,
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            lanes: BTreeMap::new(),
            turn: VecDeque::new(),
            ready: HashMap::new(),
            running: HashMap::new(),
            busy: HashMap::new(),
            silent: HashSet::new(),
            dirty: HashSet::new(),
            due: BTreeSet::new(),
            due_at: HashMap::new(),
            failures: HashMap::new(),
            failing_since: HashMap::new(),
            error_grace: None,
            rests_until: HashMap::new(),
            rests: BTreeSet::new(),
            watched: None,
            metrics: None,
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }
}

impl<K: Key> Queue<K> {
    /// Reports to these metrics from now on.
    pub fn tell(&self, metrics: QueueMetrics) {
        let mut state = self.lock();
        metrics.added(state.ready.len());
        metrics.depth(state.ready.len());
        state.metrics = Some(metrics);
    }

    /// Retries each failing key once it has failed for `grace`, because only an attempt reports the error.
    pub fn report_after(&self, grace: Duration) {
        self.lock().error_grace = Some(grace);
    }

    /// Returns the time since the first failure of `key` after its last success. Zero if it does not fail.
    pub fn failing_for(&self, key: &K) -> Duration {
        self.lock().failing_since.get(key).map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Queues `key` now, or right after its current run.
    pub fn add(&self, key: K) {
        self.add_all([key]);
    }

    /// Queues these keys now, or right after their current runs.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        let mut state = self.lock();
        let mut wakes = false;
        for key in keys {
            wakes |= state.add(key);
        }
        drop(state);
        if wakes {
            self.wake.notify_one();
        }
    }

    /// Retries every failed key of `lane` now, and resets its back-off.
    pub fn retry_now(&self, lane: &K::Lane) {
        let mut state = self.lock();
        let failed: Vec<K> = state.failures.keys().filter(|key| key.lane() == *lane).cloned().collect();
        for key in failed {
            state.failures.remove(&key);
            state.add(key);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Retries every failed key now, as [`Self::retry_now`] does.
    pub fn retry_all_now(&self) {
        let mut state = self.lock();
        for key in std::mem::take(&mut state.failures).into_keys() {
            state.add(key);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Removes a lane after its project is deleted.
    pub fn forget_lane(&self, lane: &K::Lane) {
        let mut state = self.lock();
        state.lanes.remove(lane);
        state.turn.retain(|l| l != lane);
        state.ready.retain(|key, _| key.lane() != *lane);
        state.dirty.retain(|key| key.lane() != *lane);
        state.failures.retain(|key, _| key.lane() != *lane);
        state.failing_since.retain(|key, _| key.lane() != *lane);
        state.due.retain(|(_, key)| key.lane() != *lane);
        state.due_at.retain(|key, _| key.lane() != *lane);
        state.silent.remove(lane);
        state.report_depth();
    }

    /// Waits for the next key. The caller must return it with [`Self::finish`], and ask for the next one then.
    pub async fn next(&self) -> K {
        loop {
            let watch = {
                let mut state = self.lock();
                state.release_due(Instant::now());
                if let Some(key) = state.take() {
                    if !state.turn.is_empty() || state.needs_watch().is_some() {
                        self.wake.notify_one(); // for the other keys, or for the clock
                    }
                    return key;
                }
                let watch = state.needs_watch();
                state.watched = watch.or(state.watched);
                watch
            };
            match watch {
                Some(at) => {
                    let _watch = Watch { queue: self, at };
                    tokio::select! {
                        () = self.wake.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Returns `key` to the queue after a run. The result is the back-off delay, if the run failed.
    pub fn finish(&self, key: K, outcome: Outcome) -> Option<Duration> {
        self.finish_with_rest(key, outcome, K::REST)
    }

    /// The same, with another pause after a successful run.
    pub fn finish_with_rest(&self, key: K, outcome: Outcome, rest: Duration) -> Option<Duration> {
        let mut state = self.lock();
        let worked = state.running.remove(&key).map(|since| since.elapsed());
        state.leave(&key.lane(), outcome);
        let dirty = state.dirty.remove(&key);
        let failed = matches!(outcome, Outcome::Failed | Outcome::Unanswered);
        let delay = match outcome {
            Outcome::Done => {
                state.succeeded(&key);
                None
            }
            Outcome::Again(after) => {
                state.succeeded(&key);
                Some(after)
            }
            Outcome::Failed | Outcome::Unanswered => Some(state.failed(&key)),
        };
        if let (Some(metrics), Some(worked)) = (&state.metrics, worked) {
            metrics.finished(worked, delay.is_some());
        }
        if !failed {
            state.rest(&key, rest);
        }
        match delay {
            Some(after) if failed && dirty => state.add_after(key, after.min(RETRY_AFTER_EVENT)),
            Some(after) if !dirty => state.add_after(key, after),
            _ if dirty => {
                state.add(key);
            }
            _ => {}
        }
        // The worker asks for its next key now, so that no other one has to wake.
        delay.filter(|_| failed)
    }

    /// Returns the number of ready keys.
    #[cfg(test)]
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An idle worker that waits for a due time. When it takes a key instead, it wakes another worker for that.
struct Watch<'a, K: Key> {
    queue: &'a Queue<K>,
    at: Instant,
}

impl<K: Key> Drop for Watch<'_, K> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        if state.watched == Some(self.at) {
            state.watched = None;
        }
    }
}

impl<K: Key> State<K> {
    /// Returns the next due time, if no idle worker waits for it or for an earlier one.
    fn needs_watch(&self) -> Option<Instant> {
        let next = self.due.first().map(|(at, _)| *at)?;
        self.watched.is_none_or(|watched| next < watched).then_some(next)
    }

    /// Queues `key` now, or right after its current run. Returns true if a worker has to wake: there is a key for it, or an earlier
    /// due time to wait for.
    fn add(&mut self, key: K) -> bool {
        if self.running.contains_key(&key) {
            self.dirty.insert(key);
            return false;
        }
        if let Some(at) = self.due_at.get(&key).copied() {
            self.due.remove(&(at, key.clone()));
            self.due_at.remove(&key);
            if self.failures.contains_key(&key) {
                // The event may have fixed the problem, so the delay is short. Some delay prevents a hot loop.
                self.hold(key, at.min(Instant::now() + RETRY_AFTER_EVENT));
                return self.needs_watch().is_some();
            }
        }
        if self.ready.contains_key(&key) {
            return false;
        }
        if let Some(until) = self.rests_until.get(&key).copied().filter(|until| *until > Instant::now()) {
            self.hold(key, until);
            return self.needs_watch().is_some();
        }
        self.ready.insert(key.clone(), Instant::now());
        if let Some(metrics) = &self.metrics {
            metrics.added(1);
        }
        self.report_depth();
        let lane = key.lane();
        let keys = self.lanes.entry(lane.clone()).or_default();
        if keys.is_empty() {
            self.turn.push_back(lane);
        }
        keys.push_back(key);
        true
    }

    fn add_after(&mut self, key: K, after: Duration) {
        let at = Instant::now() + after;
        if self.due_at.get(&key).is_some_and(|before| *before <= at) || self.ready.contains_key(&key) {
            return;
        }
        self.hold(key, at);
    }

    fn hold(&mut self, key: K, at: Instant) {
        if let Some(before) = self.due_at.insert(key.clone(), at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }

    /// Forgets the failures of this key.
    fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
        self.failing_since.remove(key);
    }

    /// Counts a failure and returns the delay until the next attempt.
    fn failed(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures += 1;
        let delay = backoff(*failures, BACKOFF_FIRST, BACKOFF_MAX);
        let lasted = self.failing_since.entry(key.clone()).or_insert_with(Instant::now).elapsed();
        let left = self.error_grace.and_then(|grace| grace.checked_sub(lasted)).filter(|left| !left.is_zero());
        left.map_or(delay, |left| delay.min(left))
    }

    /// Starts the pause of this key after a successful run.
    fn rest(&mut self, key: &K, rest: Duration) {
        if rest.is_zero() {
            return;
        }
        let until = Instant::now() + rest;
        if let Some(before) = self.rests_until.insert(key.clone(), until) {
            self.rests.remove(&(before, key.clone()));
        }
        self.rests.insert((until, key.clone()));
    }

    fn release_due(&mut self, now: Instant) {
        while self.rests.first().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, key)) = self.rests.pop_first() {
                self.rests_until.remove(&key);
            }
        }
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.due.pop_first() {
                self.due_at.remove(&key);
                self.add(key);
            }
        }
    }

    fn take(&mut self) -> Option<K> {
        for _ in 0..self.turn.len() {
            let lane = self.turn.pop_front()?;
            let is_alone = self.busy.keys().all(|other| *other == lane);
            let share = match (self.silent.contains(&lane), is_alone) {
                (true, _) => 1,
                (false, true) => LONE_LANE_SHARE,
                (false, false) => LANE_SHARE,
            };
            if self.busy.get(&lane).is_some_and(|busy| *busy >= share) {
                self.turn.push_back(lane);
                continue;
            }
            let keys = self.lanes.get_mut(&lane)?;
            let key = keys.pop_front()?;
            if keys.is_empty() {
                self.lanes.remove(&lane);
            } else {
                self.turn.push_back(lane.clone());
            }
            *self.busy.entry(lane).or_default() += 1;
            let waited = self.ready.remove(&key).map(|since| since.elapsed());
            if self.ready.is_empty() && self.ready.capacity() > ROOM {
                self.ready.shrink_to_fit(); // every key is ready at the start
            }
            self.running.insert(key.clone(), Instant::now());
            if let (Some(metrics), Some(waited)) = (&self.metrics, waited) {
                metrics.taken(waited);
            }
            self.report_depth();
            return Some(key);
        }
        None
    }

    fn report_depth(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.depth(self.ready.len());
        }
    }

    /// Releases a worker of this lane.
    fn leave(&mut self, lane: &K::Lane, outcome: Outcome) {
        if let Some(busy) = self.busy.get_mut(lane) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(lane);
            }
        }
        if outcome == Outcome::Unanswered {
            self.silent.insert(lane.clone());
        } else {
            self.silent.remove(lane);
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
