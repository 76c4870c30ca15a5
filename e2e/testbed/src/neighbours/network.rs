//! Stand-in for the network services of a cell: bindings get contexts, claims get subnets.

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, stream};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, GroupVersionKind},
};
use serde_json::json;

use super::{api, on_change, report};
use crate::manifests;

const GROUP: &str = "networking.datumapis.com";
const VERSION: &str = "v1alpha";
/// Networks with this in their name fail, to test and demonstrate the report.
const BROKEN: &str = "broken";
/// Number of bindings and claims that are served at a time.
const AT_ONCE: usize = 8;
/// Bindings to networks with this in their name are left to the test.
const BY_HAND: &str = "by-hand";

pub(super) async fn run(cell: Client, after: Duration) {
    let of = |kind| GroupVersionKind::gvk(GROUP, VERSION, kind);
    let kinds = [of("NetworkBinding"), of("SubnetClaim")];
    on_change(&cell, kinds, |[bindings, claims]| pass(&cell, after, bindings, claims)).await;
}

async fn pass(cell: &Client, after: Duration, bindings: Vec<DynamicObject>, claims: Vec<DynamicObject>) -> Result<()> {
    // One that cannot be served, for example in a terminating namespace, delays no other.
    let limit = after + Duration::from_secs(10);
    let bound = bindings.into_iter().map(|binding| {
        let cell = cell.clone();
        async move { tokio::time::timeout(limit, bind(&cell, &binding, after)).await }
    });
    let bound: Vec<_> = stream::iter(bound).buffer_unordered(AT_ONCE).collect().await;
    let allocated = claims.into_iter().map(|claim| {
        let cell = cell.clone();
        async move { tokio::time::timeout(limit, allocate(&cell, &claim)).await }
    });
    let allocated: Vec<_> = stream::iter(allocated).buffer_unordered(AT_ONCE).collect().await;
    let failed = bound.into_iter().chain(allocated).find_map(|done| done.map_err(Into::into).flatten().err());
    failed.map_or(Ok(()), Err)
}

async fn bind(cell: &Client, binding: &DynamicObject, after: Duration) -> Result<()> {
    let namespace = binding.namespace().unwrap_or_default();
    let bindings = api(cell, GROUP, VERSION, "NetworkBinding", &namespace);
    let spec = &binding.data["spec"];
    let network = spec["network"]["name"].as_str().unwrap_or_default();
    if network.contains(BY_HAND) {
        return Ok(());
    }
    if network.contains(BROKEN) {
        return report(&bindings, binding, "Ready", "False", "NetworkFailedToCreate", json!({})).await;
    }
    if binding.data["status"]["networkContextRef"].is_object() {
        return Ok(());
    }
    report(&bindings, binding, "Ready", "False", "NetworkContextNotReady", json!({})).await?;
    tokio::time::sleep(after).await;
    let name = format!("{network}-{}", spec["location"]["name"].as_str().unwrap_or_default());
    let context = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NetworkContext",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "network": { "name": network }, "location": spec["location"] },
    });
    let context = manifests::apply_value(cell, context).await?;
    let contexts = api(cell, GROUP, VERSION, "NetworkContext", &namespace);
    report(&contexts, &context, "Ready", "True", "Ready", json!({})).await?;
    let reference = json!({ "networkContextRef": { "namespace": namespace, "name": name } });
    report(&bindings, binding, "Ready", "True", "NetworkContextReady", reference).await
}

async fn allocate(cell: &Client, claim: &DynamicObject) -> Result<()> {
    let namespace = claim.namespace().unwrap_or_default();
    let by_hand = claim.data["spec"]["networkContext"]["name"].as_str().is_some_and(|name| name.contains(BY_HAND));
    if by_hand || claim.data["status"]["subnetRef"].is_object() {
        return Ok(());
    }
    let name = claim.name_any();
    let subnet = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Subnet",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "networkContext": claim.data["spec"]["networkContext"], "startAddress": "10.0.0.0", "prefixLength": 24 },
    });
    let subnet = manifests::apply_value(cell, subnet).await?;
    let subnets = api(cell, GROUP, VERSION, "Subnet", &namespace);
    report(&subnets, &subnet, "Ready", "True", "Ready", json!({})).await?;
    let claims = api(cell, GROUP, VERSION, "SubnetClaim", &namespace);
    report(&claims, claim, "Ready", "True", "Ready", json!({ "subnetRef": { "name": name } })).await
}
