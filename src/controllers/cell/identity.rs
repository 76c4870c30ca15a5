//! The identity of this cell, for writes to places that other cells write to as well.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};

use crate::{
    io::{REQUEST_TIMEOUT, clients::ControlPlane, health::Health, queue::backoff},
    plan,
};

/// Returns the uid of the cell's `kube-system` namespace, which every cluster has for its whole life. Retries until the cell
/// answers.
pub(super) async fn cell_uid(cell: &ControlPlane<plan::Cell>, health: &Health) -> String {
    let entry = health.watch("namespace kube-system in cell".into());
    let mut failures = 0;
    loop {
        entry.trying();
        let api: Api<Namespace> = Api::all(cell.connection().client());
        let found = cell.connection().within(
            REQUEST_TIMEOUT,
            || "get Namespace kube-system in cell".into(),
            api.get_metadata("kube-system"),
        );
        match found.await.map(|namespace| namespace.uid()) {
            Ok(Some(uid)) => return uid,
            Ok(None) => drop(entry.failed("it has no uid")),
            Err(error) => drop(entry.failed(&error.to_string())),
        }
        failures += 1;
        tokio::time::sleep(backoff(failures, Duration::from_secs(1), Duration::from_secs(5))).await;
    }
}
