//! Quota of a project: claims are granted in the order they came, as long as the project's ResourceGrants last.
//! Without any grant nobody looks at a claim.

use anyhow::Result;
use kube::{Client, api::DynamicObject};
use serde_json::{Value, json};

use super::{all, api, on_change, say};

const GROUP: &str = "quota.miloapis.com";
const VERSION: &str = "v1alpha1";
/// The resource that this stand-in counts.
const COUNTED: &str = "compute.datumapis.com/instances";

pub(super) async fn run(project: Client) {
    let of = |kind| api(&project, GROUP, VERSION, kind, None);
    on_change(vec![of("ResourceClaim"), of("ResourceGrant")], || pass(&project)).await;
}

async fn pass(project: &Client) -> Result<()> {
    let of = |kind| api(project, GROUP, VERSION, kind, None);
    let grants = all(&of("ResourceGrant")).await?;
    if grants.is_empty() {
        return Ok(());
    }
    let budget: i64 = grants.iter().map(|grant| amount(&grant.data["spec"]["amounts"])).sum();
    let claims = all(&of("ResourceClaim")).await?;
    let mut used: i64 = claims.iter().filter(|claim| is_granted(claim)).map(asked).sum();
    for claim in claims.iter().filter(|claim| !is_granted(claim)) {
        let claims = api(project, GROUP, VERSION, "ResourceClaim", claim.metadata.namespace.as_deref());
        if used + asked(claim) <= budget {
            used += asked(claim);
            say(&claims, claim, "Granted", "True", "QuotaAvailable", json!({})).await?;
        } else {
            say(&claims, claim, "Granted", "False", "QuotaExceeded", json!({})).await?;
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

/// A project's budget of Instances.
pub fn grant(instances: i64) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceGrant",
        "metadata": { "name": "compute", "namespace": "default" },
        "spec": { "amounts": [{ "resourceType": COUNTED, "amount": instances }] },
    })
}
