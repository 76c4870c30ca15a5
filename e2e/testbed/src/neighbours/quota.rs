//! Stand-in for the quota of a project. In each namespace, claims are granted in the order of their creation, up to the
//! ResourceGrants there. (Milo's budgets are for the whole project. With namespaces, several tests can share one.) Without a
//! grant, claims get no answer.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{api, on_change, report};

const GROUP: &str = "quota.miloapis.com";
const VERSION: &str = "v1alpha1";
/// The resource that this stand-in counts.
const COUNTED: &str = "compute.datumapis.com/instances";

/// Uids of claims that were just granted. The watch may not show their status yet when the next claim arrives.
type Granted = BTreeSet<String>;

pub(super) async fn run(project: Client) {
    let of = |kind| GroupVersionKind::gvk(GROUP, VERSION, kind);
    let kinds = [of("ResourceGrant"), of("ResourceClaim")];
    let granted = Mutex::new(Granted::default());
    on_change(&project, kinds, |[grants, claims]| pass(&project, grants, claims, &granted)).await;
}

async fn pass(
    project: &Client,
    grants: Vec<DynamicObject>,
    claims: Vec<DynamicObject>,
    granted: &Mutex<Granted>,
) -> Result<()> {
    let mut granted = granted.lock().await;
    granted.retain(|uid| claims.iter().any(|claim| claim.metadata.uid.as_ref() == Some(uid)));
    for namespace in grants.iter().filter_map(|grant| grant.metadata.namespace.as_deref()).collect::<BTreeSet<_>>() {
        let here = |o: &&DynamicObject| o.metadata.namespace.as_deref() == Some(namespace);
        let budget: i64 = grants.iter().filter(here).map(|grant| amount(&grant.data["spec"]["amounts"])).sum();
        let claims_here = api(project, GROUP, VERSION, "ResourceClaim", namespace);
        for (claim, is_granted) in decide(claims.iter().filter(here), budget, &mut granted) {
            let (status, reason) = if is_granted { ("True", "QuotaAvailable") } else { ("False", "QuotaExceeded") };
            report(&claims_here, claim, "Granted", status, reason, json!({})).await?;
        }
    }
    Ok(())
}

/// Returns the claims without a grant in their status, each with the decision. Newly granted ones become part of `granted`.
fn decide<'a>(
    claims: impl Iterator<Item = &'a DynamicObject>,
    budget: i64,
    granted: &mut Granted,
) -> Vec<(&'a DynamicObject, bool)> {
    let uid = |claim: &DynamicObject| claim.uid().unwrap_or_default();
    let (shown, pending): (Vec<_>, Vec<_>) = claims.partition(|claim| is_granted(claim));
    for claim in &shown {
        granted.remove(&uid(claim)); // from now on only its status counts
    }
    let under_way = pending.iter().filter(|claim| granted.contains(&uid(claim)));
    let mut used: i64 = shown.iter().chain(under_way).map(|claim| asked(claim)).sum();
    let mut decided = Vec::new();
    for claim in pending {
        let fits = granted.contains(&uid(claim)) || used + asked(claim) <= budget;
        if fits && granted.insert(uid(claim)) {
            used += asked(claim);
        }
        decided.push((claim, fits));
    }
    decided
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

/// Returns a budget of Instances.
pub fn grant(namespace: &str, instances: i64) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ResourceGrant",
        "metadata": { "name": "compute", "namespace": namespace },
        "spec": { "amounts": [{ "resourceType": COUNTED, "amount": instances }] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim that came within a second of another, and before it by name, was granted beyond the budget.
    #[test]
    fn quota_budget_with_a_delayed_watch_is_spent_once() {
        let claim = |name: &str, is_granted: bool| -> DynamicObject {
            let conditions = if is_granted { json!([{ "type": "Granted", "status": "True" }]) } else { json!([]) };
            serde_json::from_value(json!({
                "metadata": { "name": name, "uid": name },
                "spec": { "requests": [{ "resourceType": COUNTED, "amount": 1 }] },
                "status": { "conditions": conditions },
            }))
            .unwrap()
        };
        let answers = |claims: &[DynamicObject], granted: &mut Granted| -> Vec<(String, bool)> {
            decide(claims.iter(), 2, granted).into_iter().map(|(claim, fits)| (claim.name_any(), fits)).collect()
        };
        let is = |name: &str, fits: bool| (name.to_owned(), fits);
        let mut granted = Granted::default();
        assert_eq!(answers(&[claim("a", true), claim("c", false)], &mut granted), [is("c", true)]);
        let unseen = [claim("a", true), claim("b", false), claim("c", false)];
        assert_eq!(answers(&unseen, &mut granted), [is("b", false), is("c", true)]);
        let seen = [claim("a", true), claim("b", false), claim("c", true)];
        assert_eq!(answers(&seen, &mut granted), [is("b", false)]);
        let taken_back = [claim("a", true), claim("b", true), claim("c", false)];
        assert_eq!(answers(&taken_back, &mut granted), [is("c", false)], "an earlier answer may change");
        assert_eq!(answers(&[claim("a", true), claim("b", false)], &mut Granted::default()), [is("b", true)]);
    }
}
