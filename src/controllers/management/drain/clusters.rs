//! What member clusters hold, compared with what they say of themselves: the city's label, and whether they are to be
//! drained. Looked at when a Cluster changes, while cities move, and with each sweep.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::controllers::management::{
    drain::{
        labels::{ClusterLabels, Reported},
        moves::CityMoves,
    },
    wiring::queues::Queues,
};
use crate::{io::clock::Now, plan::Next};

/// Compares them.
pub(crate) struct ClusterWatch {
    pub(crate) labels: ClusterLabels,
    pub(crate) moves: CityMoves,
    pub(crate) queues: Arc<Queues>,
    /// The longest time between two looks.
    pub(crate) interval: Duration,
}

impl ClusterWatch {
    /// Looks until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let mut reported = Reported::default();
        let mut moving = self.moves.look(Now::read()).await;
        loop {
            let changed = tokio::select! {
                () = stop.cancelled() => return,
                () = self.queues.clusters.notified() => true,
                () = tokio::time::sleep(self.interval) => true,
                () = passed(moving) => false,
            };
            let before = std::mem::replace(&mut moving, self.moves.look(Now::read()).await);
            // What was on its way is in one place now, or is not.
            if changed || before != Next::Await && moving == Next::Await {
                self.labels.look(&mut reported, Now::read()).await;
            }
        }
    }
}

/// Until it is time to look again; for ever where an event will say.
async fn passed(next: Next) {
    match next {
        Next::After(period) => tokio::time::sleep(period).await,
        Next::Await => std::future::pending().await,
    }
}
