//! Switches of the stand-in for tests.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::api::DynamicObject;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Default time for which an unreachable cluster counts as ready. Real Karmada waits 30 s and checks every 10 s, which would make
/// each test with an unavailable cell half a minute longer.
const FAILURE_THRESHOLD: Duration = Duration::from_secs(2);

/// The switches of one stand-in, shared with the test.
#[derive(Debug)]
pub(super) struct Controls {
    distributes: AtomicBool,
    hears_of_later: AtomicBool,
    evicts_tainted: AtomicBool,
    failure_threshold: Mutex<Duration>,
    pace: Mutex<Pace>,
    late: Mutex<HashMap<(String, String), Late>>,
}

/// Write rate of the hub.
#[derive(Debug, Default)]
struct Pace {
    /// Pause between two writes. `None` without a limit.
    every: Option<Duration>,
    /// Time of the next allowed write.
    next: Option<Instant>,
}

/// A write of the scheduler that must follow another client's write (fact 58).
#[derive(Clone, Debug)]
enum Late {
    /// Requested; the scheduler has not read the binding yet.
    Asked,
    /// The patch that the scheduler will write, from the binding that it read.
    Read(Value),
}

impl Default for Controls {
    fn default() -> Self {
        Self {
            distributes: AtomicBool::new(true),
            hears_of_later: AtomicBool::new(true),
            evicts_tainted: AtomicBool::new(false),
            failure_threshold: Mutex::new(FAILURE_THRESHOLD),
            pace: Mutex::default(),
            late: Mutex::default(),
        }
    }
}

impl Controls {
    pub(super) fn distributes(&self) -> bool {
        self.distributes.load(Ordering::SeqCst)
    }

    pub(super) fn set_distributes(&self, on: bool) {
        self.distributes.store(on, Ordering::SeqCst);
    }

    pub(super) fn hears_of_later(&self) -> bool {
        self.hears_of_later.load(Ordering::SeqCst)
    }

    pub(super) fn set_hears_of_later(&self, on: bool) {
        self.hears_of_later.store(on, Ordering::SeqCst);
    }

    pub(super) fn evicts_tainted(&self) -> bool {
        self.evicts_tainted.load(Ordering::SeqCst)
    }

    pub(super) fn set_evicts_tainted(&self, on: bool) {
        self.evicts_tainted.store(on, Ordering::SeqCst);
    }

    pub(super) fn failure_threshold(&self) -> Duration {
        *self.failure_threshold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_failure_threshold(&self, threshold: Duration) {
        *self.failure_threshold.lock().unwrap_or_else(PoisonError::into_inner) = threshold;
    }

    pub(super) fn set_writes_per_second(&self, writes: Option<u32>) {
        let every = writes.map(|writes| Duration::from_secs(1) / writes);
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = Pace { every, next: None };
    }

    /// Waits until the next write to the hub is allowed.
    pub(super) async fn turn(&self) {
        let until = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(every) = pace.every else { return };
            let at = pace.next.map_or_else(Instant::now, |next| next.max(Instant::now()));
            pace.next = Some(at + every);
            at
        };
        tokio::time::sleep_until(until).await;
    }

    pub(super) fn ask_late_write(&self, namespace: &str, binding: &str) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.insert((namespace.into(), binding.into()), Late::Asked);
    }

    /// True if the late write of this binding is prepared and still pending.
    pub(super) fn late_write_is_read(&self, namespace: &str, binding: &str) -> bool {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(late.get(&(namespace.into(), binding.into())), Some(Late::Read(_)))
    }

    /// Returns the requested late write for `binding`, once another client has removed the schedule that the scheduler read.
    pub(super) fn late_write(&self, binding: &DynamicObject) -> Option<Value> {
        let key = (binding.metadata.namespace.clone()?, binding.metadata.name.clone()?);
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let spec = &binding.data["spec"];
        match late.get(&key)? {
            Late::Asked if spec["placement"].is_object() => {
                let applied = binding.metadata.annotations.as_ref().and_then(|all| all.get(super::scheduler::APPLIED));
                let patch = json!({
                    "metadata": { "annotations": { super::scheduler::APPLIED: applied } },
                    "spec": { "clusters": spec["clusters"], "placement": spec["placement"] },
                });
                late.insert(key, Late::Read(patch));
                None
            }
            Late::Read(patch) if spec["placement"].is_null() => {
                let patch = patch.clone();
                late.remove(&key);
                Some(patch)
            }
            Late::Asked | Late::Read(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(spec: &Value) -> DynamicObject {
        let object = json!({ "metadata": { "namespace": "ns", "name": "b", "annotations": {
            "policy.karmada.io/applied-placement": "{}",
        } }, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn late_write_restores_the_read_schedule_once() {
        let controls = Controls::default();
        let held = binding(&json!({ "clusters": [{ "name": "a" }], "placement": { "clusterAffinity": {} } }));
        let released = binding(&json!({ "requiredBy": [] }));
        assert_eq!(controls.late_write(&held), None, "not requested");
        controls.ask_late_write("ns", "b");
        assert_eq!(controls.late_write(&released), None, "nothing was read yet");
        assert!(!controls.late_write_is_read("ns", "b"));
        assert_eq!(controls.late_write(&held), None, "read and delayed");
        assert!(controls.late_write_is_read("ns", "b"));
        let patch = controls.late_write(&released).unwrap();
        assert_eq!(patch["spec"], held.data["spec"]);
        assert_eq!(patch["metadata"]["annotations"]["policy.karmada.io/applied-placement"], "{}");
        assert_eq!(controls.late_write(&released), None, "once");
    }
    #[tokio::test]
    async fn writes_with_a_limit_are_spread() {
        let controls = Controls::default();
        controls.set_writes_per_second(Some(100));
        let began = Instant::now();
        for _ in 0..6 {
            controls.turn().await;
        }
        assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());
    }
}
