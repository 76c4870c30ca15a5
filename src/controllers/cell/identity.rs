//! Who this cell is, for whatever it writes where other cells write as well.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::{State, write_back::WriteBack};
use crate::{
    io::{REQUEST_TIMEOUT, clients::ControlPlane, deadline, health::Health, queue::backoff},
    plan,
};

/// Learns who this cell is; then everything begins that waits for it: quota, and the way back.
pub(super) fn learn(state: &Arc<State>, health: &Health, stop: &CancellationToken) {
    if state.quota.is_none() && state.write_back.is_none() {
        return;
    }
    let (state, health, stop) = (state.clone(), health.clone(), stop.clone());
    tokio::spawn(async move {
        let uid = tokio::select! {
            () = stop.cancelled() => return,
            uid = cell_uid(&state.plane, &health) => uid,
        };
        let _ = state.uid.set(uid);
        WriteBack::start(&state, &health, &stop);
        for instance in state.instances.keys() {
            state.wake_instance(&instance);
        }
    });
}

/// The uid of a namespace that every cluster has from its first to its last day.
async fn cell_uid(cell: &ControlPlane<plan::Cell>, health: &Health) -> String {
    let entry = health.watch("namespace kube-system in cell".into());
    let mut failures = 0;
    loop {
        entry.trying();
        let api: Api<Namespace> = Api::all(cell.connection().client());
        let found =
            deadline(REQUEST_TIMEOUT, || "get Namespace kube-system in cell".into(), api.get_metadata("kube-system"));
        match found.await.map(|namespace| namespace.uid()) {
            Ok(Some(uid)) => return uid,
            Ok(None) => drop(entry.failed("it has no uid")),
            Err(error) => drop(entry.failed(&error.to_string())),
        }
        failures += 1;
        tokio::time::sleep(backoff(failures, Duration::from_secs(1), Duration::from_secs(5))).await;
    }
}
