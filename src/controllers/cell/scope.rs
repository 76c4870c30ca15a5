//! Dependencies that the watches of a cell share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    controllers::Watches,
    io::{clients::ControlPlane, health::Health},
    metrics::Metrics,
    plan::Plane,
    timing::Timing,
};

/// Health, metrics, intervals and stop signal of the watches.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) health: Health,
    pub(super) metrics: Metrics,
    pub(super) timing: Timing,
    pub(super) stop: CancellationToken,
    /// Called after a cache was filled again.
    pub(super) on_fresh: Arc<dyn Fn() + Send + Sync>,
}

impl Scope {
    /// Returns the watches of a control plane that all tenants of the cell share.
    pub(super) fn watches<'a, P: Plane>(&'a self, plane: &'a ControlPlane<P>) -> Watches<'a, P> {
        Watches {
            plane,
            health: &self.health,
            metrics: &self.metrics,
            timing: self.timing.watches(),
            stop: &self.stop,
            tenant: false,
            on_fresh: self.on_fresh.clone(),
        }
    }
}
