//! A stand-in for the provider that runs Instances on a cell. It reports them as programmed and available once no gate is left,
//! and stops suspended ones.

use std::time::Duration;

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::process::Soon;

/// Images with this in their name never start, to test and demonstrate the report.
pub const BROKEN: &str = "broken";

/// A provider that ends when dropped.
#[derive(Debug)]
pub struct Provider {
    _stop: DropGuard,
}

impl Provider {
    /// Starts serving the Instances of a cell.
    pub fn start(cell: Client) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = run(cell) => {}
            }
        });
        Self { _stop: stop.drop_guard() }
    }
}

async fn run(cell: Client) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("compute.datumapis.com", "v1alpha", "Instance"));
    let all: Api<DynamicObject> = Api::all_with(cell.clone(), &resource);
    let events = watcher(all, watcher::Config::default().timeout(20)).backoff(Soon).touched_objects();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let Ok(instance) = event else { continue };
        let Some(status) = status(&instance) else { continue };
        let api: Api<DynamicObject> =
            Api::namespaced_with(cell.clone(), &instance.namespace().unwrap_or_default(), &resource);
        let mut body = json!({ "apiVersion": resource.api_version, "kind": "Instance", "status": status });
        body["metadata"] = json!({ "name": instance.name_any(), "uid": instance.uid() });
        let params = PatchParams::apply("provider-stand-in").force();
        let done = api.patch_status(&instance.name_any(), &params, &Patch::Apply(&body)).await;
        if done.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns the provider's report. `None` while a gate is left, while the Instance is terminating, or if the report already
/// exists.
fn status(instance: &DynamicObject) -> Option<Value> {
    let controller = &instance.data["spec"]["controller"];
    let gated = controller["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    if gated || controller["templateHash"].is_null() || instance.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let containers = instance.data["spec"]["runtime"]["sandbox"]["containers"].as_array();
    let broken = containers.into_iter().flatten().find_map(|c| c["image"].as_str().filter(|i| i.contains(BROKEN)));
    let programmed = condition(instance, "Programmed", "True", "Programmed", "instance is programmed");
    let conditions = match broken {
        _ if instance.data["status"]["suspended"] == true => {
            vec![programmed, condition(instance, "Available", "False", "Suspended", "instance is stopped")]
        }
        None => vec![programmed, condition(instance, "Available", "True", "Available", "instance is running")],
        Some(image) => {
            let why = format!("image {image} cannot be pulled");
            vec![
                condition(instance, "Programmed", "Unknown", "ProgrammingInProgress", "instance is being programmed"),
                condition(instance, "Available", "Unknown", "ImageUnavailable", &why),
            ]
        }
    };
    let known = instance.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let stands = |c: &Value| known.iter().any(|k| ["type", "status", "reason"].iter().all(|f| k[*f] == c[*f]));
    // Real providers report each hash, also one that changes for a running Instance.
    let is_observed = instance.data["status"]["controller"]["observedTemplateHash"] == controller["templateHash"];
    if is_observed && conditions.iter().all(stands) {
        return None;
    }
    let ordinal = instance.labels().get("compute.datumapis.com/instance-index").map_or("0", String::as_str);
    Some(json!({
        "conditions": conditions,
        "controller": { "observedTemplateHash": controller["templateHash"] },
        "networkInterfaces": [{ "assignments": { "networkIP": format!("10.0.0.{}", ordinal.parse::<u32>().unwrap_or(0) % 250 + 2) } }],
    }))
}

fn condition(instance: &DynamicObject, type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "observedGeneration": instance.metadata.generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}
