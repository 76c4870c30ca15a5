//! Detection of hub outages. An outage causes no event, so a timer enqueues the deployments that must report it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::controllers::management::{Context, hub::hub_cache::HubCache};
use crate::{
    api::referenced::SourceKind,
    io::{
        clock::{Now, ticks},
        health::{Failing, Health},
    },
    plan::{Kind, management::federator::federate::Outage},
};

/// Interval of the check for an outage. A check sends no request.
const LOOK: Duration = Duration::from_secs(1);

/// Kinds on the hub that federation depends on, in addition to referenced data. The failure of another watch is no outage.
const RESTS_ON: [Kind; 5] =
    [Kind::Namespace, Kind::WorkloadDeployment, Kind::PropagationPolicy, Kind::ResourceBinding, Kind::Cluster];

/// Returns the present outage of the hub watches that federation depends on. `None` if they work.
pub(crate) fn outage(hub: &HubCache, health: &Health, now: Now) -> Option<Outage> {
    if hub.is_synced() && hub.knows_karmada() && !companions_fail(hub, health, now) {
        return None;
    }
    let kinds: Vec<_> = RESTS_ON.into_iter().chain(SourceKind::ALL.map(Kind::from)).map(Kind::plural).collect();
    let Failing { lasted, outline, .. } = health.failing(&kinds, hub.plane.name(), now.instant)?;
    Some(Outage { words: outline, lasted, blind: !hub.is_synced() || !hub.copies.is_live() })
}

/// True if a watch of ConfigMaps or Secrets on the hub fails, so that the cache may be out of date. When the watch works again,
/// it enqueues every key.
pub(crate) fn companions_fail(hub: &HubCache, health: &Health, now: Now) -> bool {
    let kinds = SourceKind::ALL.map(|kind| Kind::from(kind).plural());
    !hub.knows_companions() && health.failing(&kinds, hub.plane.name(), now.instant).is_some()
}

/// Enqueues every deployment when an outage begins. At its end the watches enqueue every key themselves.
pub(crate) struct OutageWatch {
    pub(crate) ctx: Arc<Context>,
}

impl OutageWatch {
    /// Runs the check until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let mut ticks = ticks(LOOK);
        let mut before = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let now = Now::read();
            let since = since(outage(&self.ctx.hub, &self.ctx.health, now).as_ref(), now.instant);
            if begins(before, since) {
                self.ctx.triggers.enqueue_deployments();
            }
            before = since;
        }
    }
}

/// Returns the time at which an outage began.
fn since(outage: Option<&Outage>, now: Instant) -> Option<Instant> {
    outage.map(|outage| now.checked_sub(outage.lasted).unwrap_or(now))
}

/// True if an outage has begun since the last check: there was none, or one that has ended within the same second.
fn begins(before: Option<Instant>, now: Option<Instant>) -> bool {
    now.is_some_and(|now| before.is_none_or(|before| now > before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controllers::management::{Context, Options, fixtures::unreachable},
        metrics::Metrics,
    };

    /// One watch of the hub failed at the moment at which another one recovered. No deployment was enqueued for it.
    #[test]
    fn outage_that_follows_another_at_once_begins() {
        let start = Instant::now();
        let outage = |lasted: u64| Outage { words: String::new(), lasted: Duration::from_secs(lasted), blind: false };
        let at = |seconds: u64, outage: Option<Outage>| since(outage.as_ref(), start + Duration::from_secs(seconds));
        for (before, now, expected) in [
            (at(40, None), at(41, None), false),
            (at(40, None), at(41, Some(outage(1))), true),
            (at(40, Some(outage(10))), at(41, Some(outage(11))), false),
            (at(40, Some(outage(10))), at(41, Some(outage(1))), true),
            (at(40, Some(outage(10))), at(41, None), false),
        ] {
            assert_eq!(begins(before, now), expected, "{before:?} {now:?}");
        }
    }

    /// When only the watch of Secrets failed, no outage was reported, and the stale cache was used as current.
    #[tokio::test(start_paused = true)]
    async fn outage_is_reported_if_only_companion_watch_fails() {
        let health = Health::default();
        let ctx = Context::new(unreachable(), Options::of_tests(), health.clone(), Metrics::default());
        let hub = &ctx.hub;
        hub.namespaces.replace(Vec::new(), 1);
        hub.copies.replace(Vec::new(), 1);
        hub.policies.replace(Vec::new(), 1);
        hub.bindings.replace(Vec::new(), 1);
        hub.clusters.replace(Vec::new(), 1);
        for kind in SourceKind::ALL {
            hub.companions(kind).replace(Vec::new(), 1);
        }
        let failing = |resource: &str, place: &str| {
            let entry = health.watch_in(resource, place, false);
            entry.failed("secrets is forbidden");
            entry
        };
        let now = || outage(hub, &health, Now::read()).map(|outage| (outage.words, outage.blind));
        let _elsewhere = failing("secrets", "a-project");
        assert_eq!(now(), None, "the watch of a project is no outage of the hub");
        let on_hub = failing("secrets", hub.plane.name());
        hub.companions(SourceKind::Secret).set_live(false);
        let (words, blind) = now().unwrap();
        assert!(words.contains("secrets in hub") && !blind, "{words}");
        assert!(companions_fail(hub, &health, Now::read()));
        on_hub.fine();
        hub.companions(SourceKind::Secret).set_live(true);
        assert_eq!(now(), None);
    }
}
