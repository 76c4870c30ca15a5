//! A controller's memory of its writes, to notice that another client reverts them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    io::{queue::Key, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Plan,
        contest::{self, Contestable, Held, Memory, Regarding, Sent},
    },
};

/// Number of remembered keys above which those without a recent write or contest are dropped.
const ROOM: usize = 1024;
/// Maximum number of keys without a reverted write. A contest of a dropped key is noticed one write later.
const MOST: usize = 8 * ROOM;

/// The writes of one controller, by its keys.
pub(super) struct Contests<K: Key = ObjectKey> {
    controller: &'static str,
    /// Longest wait before a reverted change is written again.
    pause: Duration,
    metrics: Metrics,
    keys: Mutex<Keys<K>>,
}

struct Keys<K> {
    all: HashMap<K, Memory>,
    /// Number of keys above which those without a recent write or contest are dropped.
    room: usize,
    /// Number of contested keys.
    contested: usize,
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self { all: HashMap::new(), room: 0, contested: 0 }
    }
}

/// Execution of a plan. Its writes are remembered even if it fails.
pub(super) struct Round<'a, K: Key = ObjectKey> {
    contests: &'a Contests<K>,
    key: K,
    held: Held,
    /// Results of the writes, in their order.
    sent: Vec<Sent>,
    now: Timestamp,
}

impl<K: Key> Contests<K> {
    pub(super) fn new(controller: &'static str, pause: Duration, metrics: &Metrics) -> Self {
        Self { controller, pause, metrics: metrics.clone(), keys: Mutex::default() }
    }

    /// True if every change of a plan waits.
    pub(super) fn all_wait<S: Contestable, G>(&self, key: &K, plan: &Plan<S, G>, now: Timestamp) -> bool {
        let memory = self.lock().all.get(key).cloned();
        memory.is_some_and(|memory| contest::all_wait(&plan.steps, &memory, now, self.pause))
    }

    /// Removes the writes of a plan that wait. `regarding`: the object of the key.
    pub(super) fn begin<S: Contestable, G>(
        &self,
        key: &K,
        plan: &mut Plan<S, G>,
        regarding: &Regarding,
        now: Timestamp,
    ) -> Round<'_, K> {
        let memory = self.lock().all.get(key).cloned().unwrap_or_default();
        let held = contest::hold_back(plan, &memory, regarding, self.controller, now, self.pause);
        if held.memory != memory {
            self.remember(key, held.memory.clone(), now);
        }
        Round { contests: self, key: key.clone(), held, sent: Vec::new(), now }
    }

    /// True if another client reverts a write of this key, or if the server does not keep it.
    pub(super) fn are_about(&self, key: &K) -> bool {
        self.lock().all.get(key).is_some_and(Memory::is_contested)
    }

    /// Forgets the writes of a deleted object.
    pub(super) fn forget(&self, key: &K) {
        if self.lock().all.contains_key(key) {
            self.remember(key, Memory::default(), Timestamp::UNIX_EPOCH);
        }
    }

    fn remember(&self, key: &K, memory: Memory, now: Timestamp) {
        let mut keys = self.lock();
        let is_contested = memory.is_contested();
        let before =
            if memory == Memory::default() { keys.all.remove(key) } else { keys.all.insert(key.clone(), memory) };
        let was_contested = before.is_some_and(|memory| memory.is_contested());
        if is_contested != was_contested {
            keys.contested = keys.contested + usize::from(is_contested) - usize::from(was_contested);
            self.metrics.contested(self.controller, keys.contested);
        }
        if keys.all.len() > keys.room.max(ROOM) {
            keys.all.retain(|_, memory| memory.is_contested() || !memory.is_spent(now, self.pause));
            if keys.all.len() > MOST {
                keys.all.retain(|_, memory| memory.is_at_odds());
            }
            keys.room = keys.all.len() * 2;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Keys<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key> Round<'_, K> {
    /// Records the result of the next write.
    pub(super) fn came(&mut self, sent: Sent) {
        self.sent.push(sent);
    }
}

impl<K: Key> Drop for Round<'_, K> {
    fn drop(&mut self) {
        let memory = self.held.made(self.now, |place| self.sent.get(place).cloned().unwrap_or(Sent::Refused));
        if memory != self.held.memory {
            self.contests.remember(&self.key, memory, self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        api::compute::{Instance, InstanceSpec},
        plan::{Cell, Object, Write},
    };

    /// If the second write of a plan failed, the first one was repeated in every reconcile, although another client reverted it.
    #[test]
    fn contest_write_before_a_failed_one_is_remembered() {
        let contests = Contests::new("test", Duration::from_secs(64), &Metrics::default());
        let (key, live) = (ObjectKey::new("ns-1", "web-0"), Instance::new("web-0", InstanceSpec::default()));
        let attempt = |seconds| {
            let first = Write::<Cell>::status("test", &json!({ "replicas": 1 }), &live);
            let second = Write::create("test", Object::named::<Instance>("ns-1", "web-1"), json!({}));
            let mut plan: Plan<Write<Cell>> = first.into_iter().chain([second]).collect();
            let regarding = Regarding::of(&live);
            let mut round = contests.begin(&key, &mut plan, &regarding, Timestamp::from_second(seconds).unwrap());
            let is_made = plan.steps[0].object == Object::of(&live);
            if is_made {
                round.came(Sent::Stored { uid: "u".into(), standing: None });
            }
            is_made
        };
        assert_eq!([1, 2, 3, 4].map(attempt), [true; 4], "a hand's edit is put right at once");
        assert!(!attempt(5), "what is taken back each time waits");
        assert!(contests.are_about(&key) && !contests.are_about(&ObjectKey::new("ns-1", "web-1")));
    }
}
