//! Rate limit for writing the large deployments of one namespace on the hub.
//!
//! Hub, Karmada and cells serve all tenants. The cost of a deployment grows with the entries of its template, because for each
//! write an API server compares the owners of each entry. Measured on two cores for all of them: deployments with 4,096 entries
//! in total, written at once, keep them busy for a minute. Another tenant's Workload then takes 30 s.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::controllers::management::wiring::queues::ProjectKey;
use crate::{api::compute::InstanceTemplateSpec, plan::limits};

/// Maximum number of entries of an ordinary template. Its cost is small, so it is never delayed.
const ORDINARY: usize = 16;

/// Entries above the ordinary number that one namespace may write in a second.
const RATE: u32 = 64;

/// Entries that a namespace may write at once after a pause: those of the largest template.
const BURST: u32 = 512;

/// Time for which an unused turn is kept after it has come.
const KEPT: Duration = Duration::from_mins(1);

/// Time for which a taken turn remains valid, because one reconcile may write twice.
const SAME_LOOK: Duration = Duration::from_secs(1);

/// Turns of the large deployments of each namespace.
#[derive(Default)]
pub(crate) struct Pace(Mutex<HashMap<(String, String), Turns>>);

#[derive(Default)]
struct Turns {
    /// Time at which all granted entries are within the rate.
    paid: Option<Instant>,
    /// Turns by the name of the deployment.
    granted: HashMap<String, Turn>,
}

#[derive(Clone, Copy)]
enum Turn {
    /// The turn comes, or came, at this time.
    At(Instant),
    /// The turn was taken at this time.
    Taken(Instant),
}

impl Pace {
    /// Returns the time until the turn of a deployment with this template. `None` if it need not wait.
    pub(crate) fn wait(&self, key: &ProjectKey, template: &InstanceTemplateSpec, now: Instant) -> Option<Duration> {
        let beyond = beyond(template)?;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = all.get(&namespace(key))?;
        turns.comes(&key.object.name, beyond, now).0.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Takes the turn of a deployment with this template if it has come. Otherwise reserves its place in the queue.
    pub(crate) fn take(&self, key: &ProjectKey, template: &InstanceTemplateSpec, now: Instant) {
        let Some(beyond) = beyond(template) else { return };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, turns| !turns.is_over(now));
        all.entry(namespace(key)).or_default().take(&key.object.name, beyond, now);
    }
}

/// Returns the entries of a template above the ordinary number. `None` for an ordinary template.
fn beyond(template: &InstanceTemplateSpec) -> Option<u32> {
    let beyond = limits::entries(&template.spec).saturating_sub(ORDINARY);
    u32::try_from(beyond).ok().filter(|beyond| *beyond > 0)
}

fn namespace(key: &ProjectKey) -> (String, String) {
    (key.project.to_string(), key.object.namespace.to_string())
}

impl Turns {
    /// Returns the time of a deployment's turn, and the new value of `paid`. That value is `None` if the deployment has its place
    /// in the queue already.
    fn comes(&self, name: &str, beyond: u32, now: Instant) -> (Instant, Option<Instant>) {
        match self.granted.get(name) {
            Some(Turn::Taken(at)) if *at + SAME_LOOK > now => (*at, None),
            Some(Turn::At(at)) => (*at, None),
            Some(Turn::Taken(_)) | None => {
                let paid = self.paid.map_or(now, |paid| paid.max(now)) + Duration::from_secs(1) * beyond / RATE;
                (paid.checked_sub(Duration::from_secs(1) * BURST / RATE).unwrap_or(now), Some(paid))
            }
        }
    }

    fn take(&mut self, name: &str, beyond: u32, now: Instant) {
        let (at, paid) = self.comes(name, beyond, now);
        self.paid = paid.or(self.paid);
        let again = matches!(self.granted.get(name), Some(Turn::Taken(taken)) if *taken + SAME_LOOK > now);
        let turn = if at > now { Turn::At(at) } else { Turn::Taken(now) };
        if !again {
            self.granted.insert(name.to_owned(), turn);
        }
    }

    /// Drops turns that are over. True if none is left and all entries are paid.
    fn is_over(&mut self, now: Instant) -> bool {
        self.granted.retain(|_, turn| match turn {
            Turn::At(at) => *at + KEPT > now,
            Turn::Taken(at) => *at + SAME_LOOK > now,
        });
        self.granted.is_empty() && self.paid.is_none_or(|paid| paid <= now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::names::ProjectName;

    fn key(project: &str, namespace: &str, n: usize) -> ProjectKey {
        ProjectKey::new(&ProjectName::new(project), namespace, &format!("web-{n}"))
    }

    /// Takes the turn of a deployment as a reconcile does. Returns its wait.
    fn take(pace: &Pace, key: &ProjectKey, template: &InstanceTemplateSpec, now: Instant) -> Duration {
        let wait = pace.wait(key, template, now).unwrap_or_default();
        pace.take(key, template, now);
        wait
    }

    fn template(variables: usize) -> InstanceTemplateSpec {
        let env: Vec<_> = (0..variables).map(|n| json!({ "name": format!("V{n}"), "value": "v" })).collect();
        serde_json::from_value(json!({ "spec": {
            "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{ "name": "c", "image": "i", "env": env }] } },
            "networkInterfaces": [],
        } }))
        .unwrap()
    }

    #[test]
    fn pace_with_many_large_deployments_keeps_the_rate() {
        let (pace, began, large) = (Pace::default(), Instant::now(), template(127));
        let mut waits: Vec<(usize, Duration)> = Vec::new();
        for n in 0..32 {
            let wait = take(&pace, &key("p", "ns", n), &large, began);
            assert_eq!(
                take(&pace, &key("p", "ns", n), &large, began),
                wait,
                "a repeated reconcile changes nothing: {n}"
            );
            assert_eq!(!wait.is_zero(), n >= 4, "{n}");
            waits.push((n, wait));
        }
        let at_once = waits.iter().filter(|(_, wait)| wait.is_zero()).count();
        assert_eq!(at_once, 4, "{waits:?}");
        assert!(waits.windows(2).all(|two| two[0].1 <= two[1].1), "in order");
        assert_eq!(waits[31].1, Duration::from_secs(48), "{waits:?}");
        for (n, wait) in waits.into_iter().filter(|(_, wait)| !wait.is_zero()) {
            assert_eq!(take(&pace, &key("p", "ns", n), &large, began + wait), Duration::ZERO, "{n}");
        }
        let later = began + Duration::from_mins(2);
        assert_eq!(take(&pace, &key("p", "ns", 0), &large, later), Duration::ZERO);
        assert_eq!(pace.0.lock().unwrap().len(), 1);
        assert_eq!(take(&pace, &key("p", "other", 0), &large, later + KEPT), Duration::ZERO);
        assert_eq!(pace.0.lock().unwrap().len(), 1, "turns that are over are forgotten");
    }

    #[test]
    fn pace_with_ordinary_deployments_or_another_namespace_has_no_wait() {
        let (pace, now) = (Pace::default(), Instant::now());
        for n in 0..1000 {
            assert_eq!(take(&pace, &key("p", "ns", n), &template(15), now), Duration::ZERO);
        }
        assert!(pace.0.lock().unwrap().is_empty());
        for n in 0..8 {
            take(&pace, &key("p", "ns", n), &template(511), now);
        }
        assert_eq!(take(&pace, &key("q", "ns", 0), &template(511), now), Duration::ZERO);
        assert!(!take(&pace, &key("p", "ns", 100), &template(511), now).is_zero());
    }
}
