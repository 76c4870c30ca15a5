//! How fast the large deployments of one namespace are written on the hub.
//!
//! Hub, Karmada and cells serve all tenants, and what a deployment costs them grows with the entries of its template: each write
//! has an API server compare who owns each entry. On two cores for all of them, deployments of 4,096 entries together that are
//! written at once keep them busy for a minute, and another tenant's Workload takes 30 s.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::controllers::management::wiring::queues::ProjectKey;
use crate::{api::compute::InstanceTemplateSpec, plan::limits};

/// Entries up to which a template costs little beside the rest of a deployment. Ordinary ones are never held back.
const ORDINARY: usize = 16;

/// Entries beyond that which may be written in a second, of one namespace.
const RATE: u32 = 64;

/// Entries that may be written at once where none were for a while: those of the largest template.
const BURST: u32 = 512;

/// How long after it has come a turn is kept that is not taken.
const KEPT: Duration = Duration::from_mins(1);

/// How long after it was taken a turn is still taken: one look may write twice.
const SAME_LOOK: Duration = Duration::from_secs(1);

/// Turns of the large deployments of each namespace.
#[derive(Default)]
pub(crate) struct Pace(Mutex<HashMap<(String, String), Turns>>);

#[derive(Default)]
struct Turns {
    /// When all that was granted will have been paid for.
    paid: Option<Instant>,
    /// Whose turn comes when, by the name of the deployment.
    granted: HashMap<String, Turn>,
}

#[derive(Clone, Copy)]
enum Turn {
    /// It comes, or has come, at this time.
    At(Instant),
    /// It was taken at this time.
    Taken(Instant),
}

impl Pace {
    /// Returns how long a write of a deployment with this template would wait for its turn. `None` if it does not wait.
    pub(crate) fn wait(&self, key: &ProjectKey, template: &InstanceTemplateSpec, now: Instant) -> Option<Duration> {
        let beyond = beyond(template)?;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = all.get(&namespace(key))?;
        turns.comes(&key.object.name, beyond, now).0.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Takes the turn of a deployment with this template if it has come, and else its place in the row.
    pub(crate) fn take(&self, key: &ProjectKey, template: &InstanceTemplateSpec, now: Instant) {
        let Some(beyond) = beyond(template) else { return };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, turns| !turns.is_over(now));
        all.entry(namespace(key)).or_default().take(&key.object.name, beyond, now);
    }
}

/// Returns the entries of a template that are held back. `None` for an ordinary one.
fn beyond(template: &InstanceTemplateSpec) -> Option<u32> {
    let beyond = limits::entries(&template.spec).saturating_sub(ORDINARY);
    u32::try_from(beyond).ok().filter(|beyond| *beyond > 0)
}

fn namespace(key: &ProjectKey) -> (String, String) {
    (key.project.to_string(), key.object.namespace.to_string())
}

impl Turns {
    /// Returns when the turn of a deployment comes, and when all that is granted with it will have been paid for, unless it has
    /// its place in the row already.
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

    /// Drops turns that are over; true if there is nothing left to remember.
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

    /// Takes the turn of a deployment as a look does. Returns how long it waits.
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
    fn pace_of_large_deployments_is_the_same_however_many_there_are() {
        let (pace, began, large) = (Pace::default(), Instant::now(), template(127));
        let mut waits: Vec<(usize, Duration)> = Vec::new();
        for n in 0..32 {
            let wait = take(&pace, &key("p", "ns", n), &large, began);
            assert_eq!(take(&pace, &key("p", "ns", n), &large, began), wait, "a look in between changes nothing: {n}");
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
        assert_eq!(pace.0.lock().unwrap().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn pace_holds_back_no_ordinary_deployment_and_no_other_namespace() {
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
