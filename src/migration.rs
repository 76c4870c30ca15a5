//! `compute-operator migration status`: how far each city's policy is on its way from claims to dependencies.

use std::{collections::BTreeMap, fmt::Write as _};

use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::{
    api::{
        karmada::{PropagationPolicy, ResourceBinding},
        meta::annotation,
    },
    io::{self, Error, clients::Connection},
    plan::{hub::policy::Phase, ownership},
};

/// One city in one hub namespace.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    namespace: String,
    policy: String,
    phase: Phase,
    ours: bool,
    /// Bindings of companions that the policy claims.
    claimed: usize,
}

/// Reads the hub and answers with a table, one line per city policy.
///
/// # Errors
/// When the hub does not answer, or does not allow it.
pub async fn status(hub: &Connection) -> Result<String, Error> {
    let client = hub.client();
    let policies = list::<PropagationPolicy>(&client).await?;
    let bindings = list::<ResourceBinding>(&client).await?;
    Ok(table(&rows(&policies, &bindings)))
}

fn rows(policies: &[PropagationPolicy], bindings: &[ResourceBinding]) -> Vec<Row> {
    let mut claimed: BTreeMap<(String, String), usize> = BTreeMap::new();
    for binding in bindings.iter().filter(|binding| binding.spec.resource.kind != "WorkloadDeployment") {
        if let Some(policy) = binding.annotations().get(annotation::POLICY_NAME) {
            *claimed.entry((binding.namespace().unwrap_or_default(), policy.clone())).or_default() += 1;
        }
    }
    let ours = policies.iter().filter(|policy| policy.name_any().starts_with("city-"));
    let mut rows: Vec<Row> = ours
        .map(|policy| {
            let key = (policy.namespace().unwrap_or_default(), policy.name_any());
            Row {
                claimed: claimed.get(&key).copied().unwrap_or(0),
                phase: Phase::of(&policy.spec),
                ours: ownership::is_managed(policy),
                namespace: key.0,
                policy: key.1,
            }
        })
        .collect();
    rows.sort();
    rows
}

fn table(rows: &[Row]) -> String {
    let width = |of: &dyn Fn(&Row) -> usize, title: usize| rows.iter().map(of).max().unwrap_or(0).max(title);
    let (namespace, policy) = (width(&|row| row.namespace.len(), 9), width(&|row| row.policy.len(), 6));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ =
        writeln!(text, "{:namespace$}  {:policy$}  {:12}  {:7}  CLAIMED", "NAMESPACE", "POLICY", "PHASE", "MANAGED");
    for row in rows {
        let managed = if row.ours { "yes" } else { "not yet" };
        let (phase, claimed) = (row.phase.label(), row.claimed);
        let _ =
            writeln!(text, "{:namespace$}  {:policy$}  {phase:12}  {managed:7}  {claimed}", row.namespace, row.policy);
    }
    let done = rows.iter().filter(|row| row.phase == Phase::Dependencies && row.claimed == 0).count();
    let _ = writeln!(text, "{done} of {} are done", rows.len());
    text
}

async fn list<K>(client: &Client) -> Result<Vec<K>, Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let what = || format!("list {} in hub", K::plural(&()));
    let api: Api<K> = Api::all(client.clone());
    let mut params = ListParams::default().limit(io::watch::PAGE_SIZE);
    let mut items = Vec::new();
    loop {
        let page = io::deadline(io::CALL * 3, what, api.list(&params)).await?;
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(items),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_says_how_far_each_city_is() {
        let policy = |name: &str, kinds: &[&str], by_need: bool| -> PropagationPolicy {
            let selectors: Vec<_> = kinds.iter().map(|kind| json!({ "apiVersion": "v1", "kind": kind })).collect();
            serde_json::from_value(json!({
                "metadata": { "namespace": "ns-1", "name": name, "labels": { "app.kubernetes.io/managed-by": "compute-operator" } },
                "spec": { "resourceSelectors": selectors, "propagateDeps": by_need },
            }))
            .unwrap()
        };
        let mut old = policy("city-ord", &["WorkloadDeployment", "Secret"], false);
        old.metadata.labels = None;
        let all = [policy("city-dfw", &["WorkloadDeployment"], true), old, policy("theirs", &[], false)];
        let binding: ResourceBinding = serde_json::from_value(json!({
            "metadata": { "namespace": "ns-1", "name": "db-secret", "annotations": { annotation::POLICY_NAME: "city-ord" } },
            "spec": { "resource": { "kind": "Secret", "name": "db" } },
        }))
        .unwrap();
        let expected = "\
NAMESPACE  POLICY    PHASE         MANAGED  CLAIMED
ns-1       city-dfw  dependencies  yes      0
ns-1       city-ord  claims        not yet  1
1 of 2 are done
";
        assert_eq!(table(&rows(&all, &[binding])), expected);
    }
}
