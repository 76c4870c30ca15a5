//! An outage of the hub brings no event to anybody: who has to say that nothing is heard any more is called by the clock.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::controllers::management::{hub::hub_cache::HubCache, wiring::triggers::Triggers};
use crate::{
    api::referenced::SourceKind,
    io::{
        clock::{Now, ticks},
        health::{Failing, Health},
    },
    plan::{Kind, management::federator::federate::Outage},
};

/// How often to look whether the hub is away. It asks nobody.
const LOOK: Duration = Duration::from_secs(1);

/// What of the hub federation rests on, beside referenced data. That another watch fails, of whoever's, is none of its
/// business.
const RESTS_ON: [Kind; 5] =
    [Kind::Namespace, Kind::WorkloadDeployment, Kind::PropagationPolicy, Kind::ResourceBinding, Kind::Cluster];

/// What fails of the watches of the hub that federation rests on.
pub(crate) fn outage(hub: &HubCache, health: &Health, now: Now) -> Option<Outage> {
    if hub.is_synced() && hub.knows_karmada() && !companions_fail(hub, health, now) {
        return None;
    }
    let kinds: Vec<_> = RESTS_ON.into_iter().chain(SourceKind::ALL.map(Kind::from)).map(Kind::plural).collect();
    let Failing { lasted, outline, .. } = health.failing(&kinds, hub.plane.name(), now.instant)?;
    Some(Outage { words: outline, lasted, blind: !hub.is_synced() || !hub.copies.is_live() })
}

/// True if a watch of ConfigMaps or Secrets on the hub fails: what is known of them may be out of date. The watch has everything
/// looked at again once it works.
pub(crate) fn companions_fail(hub: &HubCache, health: &Health, now: Now) -> bool {
    let kinds = SourceKind::ALL.map(|kind| Kind::from(kind).plural());
    !hub.knows_companions() && health.failing(&kinds, hub.plane.name(), now.instant).is_some()
}

/// Has every deployment looked at when an outage begins. Its end is told by the watches, which have everything looked at
/// again.
pub(crate) struct OutageWatch {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) health: Health,
}

impl OutageWatch {
    /// Looks until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let mut ticks = ticks(LOOK);
        let mut before = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let away = outage(&self.hub, &self.health, Now::read()).is_some();
            if away && !before {
                self.triggers.enqueue_deployments();
            }
            before = away;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controllers::management::{Options, Parts, fixtures::nobody},
        metrics::Metrics,
    };

    /// The watch of Secrets failed alone: nothing said so, and what was known of them passed for the present.
    #[tokio::test(start_paused = true)]
    async fn watch_of_companions_that_fails_alone_is_an_outage() {
        let health = Health::default();
        let parts = Parts::new(nobody(), Options::of_tests(), health.clone(), Metrics::default());
        let hub = &parts.hub;
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
        assert_eq!(now(), None, "the watch of a project is none of the hub's");
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
