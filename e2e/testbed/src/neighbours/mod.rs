//! Stand-ins for neighbouring systems: network services, quota, and Milo.

pub mod milo;
mod network;
mod quota;

use std::{collections::HashSet, time::Duration};

use anyhow::Result;
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
    runtime::{
        WatchStreamExt, reflector,
        reflector::{Store, store::Writer},
        watcher,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::process::Soon;

pub use milo::{Milo, Reach};
pub use quota::grant;

/// A task that works on a control plane until it is dropped.
#[derive(Debug)]
pub struct Worker {
    _stop: DropGuard,
}

impl Worker {
    pub(crate) fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = work => {}
            }
        });
        Self { _stop: stop.drop_guard() }
    }

    /// Serves the networks of a cell. A network is ready after this time.
    pub fn networks(cell: Client, after: Duration) -> Self {
        Self::start(network::run(cell, after))
    }

    /// Serves the quota of a project.
    pub fn quota(project: Client) -> Self {
        Self::start(quota::run(project))
    }
}

fn api(client: &Client, group: &str, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Known objects of one kind, from a watch.
type Known = Store<DynamicObject>;

/// Time after which stand-ins restart their watches.
const WATCH_LIFETIME: Duration = Duration::from_mins(1);

/// Runs `pass` with the known objects after each change of one of these kinds, and once a second. It only uses watches, because
/// each LIST loads an API server that tests share.
async fn on_change<const KINDS: usize, F: Future<Output = Result<()>>>(
    client: &Client,
    kinds: [GroupVersionKind; KINDS],
    mut pass: impl FnMut([Vec<DynamicObject>; KINDS]) -> F,
) {
    let watch = |kind: &GroupVersionKind| {
        let resource = ApiResource::from_gvk(kind);
        let writer = Writer::new(resource.clone());
        let watch = watcher(Api::all_with(client.clone(), &resource), watcher::Config::default().timeout(20));
        (writer.as_reader(), reflector(writer, watch.backoff(Soon)).boxed())
    };
    loop {
        let (known, watches): (Vec<Known>, Vec<_>) = kinds.iter().map(watch).unzip();
        let mut changes = futures::stream::select_all(watches);
        // On a busy machine, a watch with a dead connection does not end by itself.
        let restart = Instant::now() + WATCH_LIFETIME;
        while Instant::now() < restart {
            let _ = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
            if pass(std::array::from_fn(|n| in_order(&known[n]))).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Returns all known objects, the oldest first.
fn in_order(known: &Known) -> Vec<DynamicObject> {
    let mut items: Vec<DynamicObject> = known.state().iter().map(|object| (**object).clone()).collect();
    items.sort_by_key(|o| (o.creation_timestamp().map(|t| t.0), o.namespace(), o.name_any()));
    items
}

/// Writes a condition and further status fields of an object, unless the condition already exists.
async fn report(
    api: &Api<DynamicObject>,
    object: &DynamicObject,
    type_: &str,
    status: &str,
    reason: &str,
    more: Value,
) -> Result<()> {
    let known = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let reported: HashSet<_> =
        known.iter().map(|c| (c["type"].as_str(), c["status"].as_str(), c["reason"].as_str())).collect();
    if reported.contains(&(Some(type_), Some(status), Some(reason))) {
        return Ok(());
    }
    let mut fields = more;
    fields["conditions"] = json!([{
        "type": type_, "status": status, "reason": reason, "message": format!("says the stand-in: {reason}"),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let patch = Patch::Merge(json!({ "status": fields }));
    match api.patch_status(&object.name_any(), &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => Ok(done.map(|_| ())?),
    }
}
