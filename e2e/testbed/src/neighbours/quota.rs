//! Quota of a project: in each namespace, claims are granted in the order they came, as long as the ResourceGrants there
//! last. (Milo's budgets are the project's; by namespace, several tests can share one.) Without a grant nobody looks.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::{
    Client,
    api::{DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{api, on_change, say};

const GROUP: &str = "quota.miloapis.com";
const VERSION: &str = "v1alpha1";
/// The resource that this stand-in counts.
const COUNTED: &str = "compute.datumapis.com/instances";

pub(super) async fn run(project: Client) {
    let of = |kind| GroupVersionKind::gvk(GROUP, VERSION, kind);
    let kinds = [of("ResourceGrant"), of("ResourceClaim")];
    on_change(&project, kinds, |[grants, claims]| pass(&project, grants, claims)).await;
}

async fn pass(project: &Client, grants: Vec<DynamicObject>, claims: Vec<DynamicObject>) -> Result<()> {
    for namespace in grants.iter().filter_map(|grant| grant.metadata.namespace.as_deref()).collect::<BTreeSet<_>>() {
        let here = |o: &&DynamicObject| o.metadata.namespace.as_deref() == Some(namespace);
        let budget: i64 = grants.iter().filter(here).map(|grant| amount(&grant.data["spec"]["amounts"])).sum();
        let mut used: i64 = claims.iter().filter(here).filter(|claim| is_granted(claim)).map(asked).sum();
        let claims_here = api(project, GROUP, VERSION, "ResourceClaim", namespace);
        for claim in claims.iter().filter(here).filter(|claim| !is_granted(claim)) {
            if used + asked(claim) <= budget {
                used += asked(claim);
                say(&claims_here, claim, "Granted", "True", "QuotaAvailable", json!({})).await?;
            } else {
                say(&claims_here, claim, "Granted", "False", "QuotaExceeded", json!({})).await?;
            }
        }
    }
    Ok(())
}

fn is_granted(claim: &DynamicObject) -> bool {
    let conditions = claim.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Granted" && c["status"] == "True")
}

fn asked(claim: &DynamicObject) -> i64 {
    amount(&claim.data["spec"]["requests"])
}

fn amount(list: &Value) -> i64 {
    let counted = |entry: &&Value| entry["resourceType"] == COUNTED;
    list.as_array().into_iter().flatten().filter(counted).filter_map(|entry| entry["amount"].as_i64()).sum()
}

/// A budget of Instances.
pub fn grant(namespace: &str, instances: i64) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceGrant",
        "metadata": { "name": "compute", "namespace": namespace },
        "spec": { "amounts": [{ "resourceType": COUNTED, "amount": instances }] },
    })
}
