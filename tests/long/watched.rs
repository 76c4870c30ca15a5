//! Records every version of an object, to check what happens between two polls of a test.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::api;
use futures::StreamExt;
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};

/// One version of an object. `there` is false for its deletion.
#[derive(Clone)]
struct Version {
    number: u64,
    there: bool,
    object: DynamicObject,
}

/// Records every version of the objects of a kind in a namespace.
struct Eye {
    seen: Arc<Mutex<Vec<Version>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Eye {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Eye {
    fn open(client: &Client, kind: &str, namespace: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (notes, objects) = (seen.clone(), api(client, kind, namespace));
        let note = move |object: DynamicObject, there: bool| {
            let number = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
            notes.lock().unwrap().push(Version { number, there, object });
        };
        let task = tokio::spawn(async move {
            loop {
                // If the server is unavailable or does not serve the kind, the watch retries.
                if let Ok(list) = objects.list(&ListParams::default()).await {
                    let from = list.metadata.resource_version.unwrap_or_default();
                    list.items.into_iter().for_each(|object| note(object, true));
                    if let Ok(changes) = objects.watch(&WatchParams::default().timeout(200), &from).await {
                        let mut changes = changes.boxed();
                        while let Some(Ok(change)) = changes.next().await {
                            match change {
                                WatchEvent::Added(object) | WatchEvent::Modified(object) => note(object, true),
                                WatchEvent::Deleted(object) => note(object, false),
                                _ => {}
                            }
                        }
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Self { seen, task }
    }

    fn seen(&self) -> Vec<Version> {
        let mut seen = self.seen.lock().unwrap().clone();
        seen.sort_by_key(|version| version.number);
        seen
    }
}

/// Watches one namespace of a city: its bindings on the hub, and its Instances and Secrets in the cells.
pub struct Watched {
    bindings: Eye,
    cells: Vec<(Eye, Eye)>,
}

impl Watched {
    /// Starts the watches.
    pub fn open(hub: &Client, cells: &[&Client], namespace: &str) -> Self {
        let eyes = |cell: &&Client| (Eye::open(cell, "Instance", namespace), Eye::open(cell, "Secret", namespace));
        Self { bindings: Eye::open(hub, "ResourceBinding", namespace), cells: cells.iter().map(eyes).collect() }
    }

    /// Asserts that nothing was ever on two clusters, and that no Instance started before its Secret was there.
    pub fn was_in_order(&self) {
        let bindings = self.bindings.seen();
        assert!(!bindings.is_empty(), "no binding was observed");
        for Version { object, .. } in &bindings {
            let clusters = object.data["spec"]["clusters"].as_array().map_or(0, Vec::len);
            assert!(clusters <= 1, "{} is on several: {}", object.name_any(), object.data["spec"]["clusters"]);
        }
        for (instances, secrets) in &self.cells {
            let secrets = secrets.seen();
            for (uid, (waited, started)) in starts(&instances.seen()) {
                // An Instance that had started before the watch proves nothing.
                let Some(started) = started.filter(|_| waited) else { continue };
                let before = secrets.iter().rfind(|secret| secret.number < started);
                assert!(before.is_some_and(|secret| secret.there), "{uid} started at {started} without its Secret");
            }
        }
    }
}

/// Returns for each Instance: true if it was seen waiting, and the first version without a gate.
fn starts(versions: &[Version]) -> BTreeMap<String, (bool, Option<u64>)> {
    let mut starts: BTreeMap<String, (bool, Option<u64>)> = BTreeMap::new();
    for Version { number, there, object } in versions {
        let gates = object.data["spec"]["controller"]["schedulingGates"].as_array().map_or(0, Vec::len);
        let (waited, started) = starts.entry(object.uid().unwrap()).or_default();
        *waited |= gates > 0 && started.is_none();
        if gates == 0 && *there {
            started.get_or_insert(*number);
        }
    }
    starts
}
