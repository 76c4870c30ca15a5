//! What the watches of a cell share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    controllers::Watches,
    io::{clients::ControlPlane, health::Health},
    metrics::Metrics,
    plan::Plane,
    timing::Timing,
};

/// Where watches report to, how long they wait, and until when they run.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) health: Health,
    pub(super) metrics: Metrics,
    pub(super) timing: Timing,
    pub(super) stop: CancellationToken,
    /// What is done when a cache has been filled anew.
    pub(super) on_fresh: Arc<dyn Fn() + Send + Sync>,
}

impl Scope {
    /// The watches of a control plane that all tenants of the cell share.
    pub(super) fn watches<'a, P: Plane>(&'a self, plane: &'a ControlPlane<P>) -> Watches<'a, P> {
        Watches {
            plane,
            health: &self.health,
            metrics: &self.metrics,
            timing: self.timing,
            stop: &self.stop,
            tenant: false,
            on_fresh: self.on_fresh.clone(),
            on_listed: None,
        }
    }
}
