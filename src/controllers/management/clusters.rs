//! What member clusters hold, compared with what they say of themselves: the city's label, and whether they are to be
//! drained. Looked at when a Cluster changes, while cities move, and with each sweep.

use std::{collections::BTreeMap, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{labels, moves, state::Management};
use crate::{io::clock::Now, plan::Next};

/// Looks until `stop`.
pub(super) async fn run(all: &Arc<Management>, stop: &CancellationToken) {
    let mut mislabelled = BTreeMap::new();
    let mut moving = moves::look(all, Now::read()).await;
    loop {
        let changed = tokio::select! {
            () = stop.cancelled() => return,
            () = all.clusters_changed.notified() => true,
            () = tokio::time::sleep(all.options.sweep.interval) => true,
            () = passed(moving) => false,
        };
        if changed {
            labels::look(all, &mut mislabelled, Now::read()).await;
        }
        moving = moves::look(all, Now::read()).await;
    }
}

/// Until it is time to look again; for ever where an event will say.
async fn passed(next: Next) {
    match next {
        Next::After(period) => tokio::time::sleep(period).await,
        Next::Await => std::future::pending().await,
    }
}
