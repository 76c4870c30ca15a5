//! Facts of a member cluster: its city, and whether the scheduler may bring new objects there.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{
    karmada::{ApiEnablement, Cluster, ClusterSpec, ClusterStatus, StatusCondition, Taint},
    meta::{DEAD, GROUP, VERSION, annotation, label},
    names::CityCode,
};

/// Facts of a member cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// City that its label names.
    pub city: Option<CityCode>,
    /// The label as it is written. Karmada compares labels byte by byte.
    pub label: Option<String>,
    /// `Ok` if the cluster is ready, else Karmada's reason and message.
    pub ready: Result<(), String>,
    /// Why Karmada's scheduler would bring nothing new to the cluster (facts 59, 64, 66). `None` if it would.
    pub obstacle: Option<String>,
    /// Taints that users set. Karmada's own taints are left out.
    pub taints: Vec<String>,
    /// True if the drain annotation moves its cities to another cluster.
    pub draining: bool,
    /// True if the drain annotation declares the cluster dead: nothing runs there, and nothing held there will be released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
    /// True if the Cluster is terminating. The scheduler then moves everything away from it.
    pub deleting: bool,
    /// Uid of the cell, which marks the cell's write-backs. `None` if Karmada did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Generation of the spec, which contains the taints.
    pub generation: i64,
}

impl ClusterFacts {
    /// Extracts the facts from a Cluster.
    pub fn of(cluster: Cluster) -> Self {
        let label = cluster.labels().get(label::TOPOLOGY_CITY).cloned();
        let city = label.as_deref().and_then(|city| CityCode::parse(city).ok());
        let drain = cluster.annotations().get(annotation::DRAIN).map(String::as_str);
        let dead = drain == Some(DEAD);
        let draining = dead || drain == Some("true");
        let deleting = cluster.metadata.deletion_timestamp.is_some();
        let generation = cluster.metadata.generation.unwrap_or_default();
        let status = cluster.status.unwrap_or_else(|| ClusterStatus::from(Value::Null));
        let obstacle = obstacle(&cluster.spec, status.api_enablements.as_deref());
        let ready = ready(status.conditions);
        let theirs = cluster.spec.taints.iter().flatten().filter(|taint| !taint.key.starts_with(KARMADA_TAINTS));
        let taints = theirs.map(shown).collect();
        let cell = Some(cluster.spec.id).filter(|id| !id.is_empty());
        Self { city, label, ready, obstacle, taints, draining, dead, deleting, cell, generation }
    }

    /// Facts of a ready cluster with this label.
    #[cfg(test)]
    pub fn labelled(label: &str) -> Self {
        Self {
            city: CityCode::parse(label).ok(),
            label: Some(label.to_owned()).filter(|label| !label.is_empty()),
            ready: Ok(()),
            obstacle: None,
            taints: Vec::new(),
            draining: false,
            dead: false,
            deleting: false,
            cell: None,
            generation: 1,
        }
    }

    /// True if everything on the cluster has to move to another one.
    pub fn is_leaving(&self) -> bool {
        self.draining || self.deleting
    }

    /// The label and the taints that users set, in one text. If the text changes, failed attempts on this cluster may be
    /// repeated. Karmada's own taints follow the cluster's health, and are left out.
    pub fn marks(&self) -> String {
        let label = self.label.as_deref().unwrap_or_default();
        format!("{label} {}", self.taints.join(" "))
    }

    /// Checks that the scheduler may bring new objects to the cluster, as far as is known.
    ///
    /// # Errors
    /// The obstacle, in words that follow the Cluster's name.
    pub fn is_able(&self) -> Result<(), String> {
        if self.deleting {
            return Err("is being deleted".to_owned());
        }
        if let Err(why) = &self.ready {
            return Err(format!("is not ready: {why}"));
        }
        self.obstacle.clone().map_or(Ok(()), Err)
    }
}

/// Uids of the member cells that are not declared dead. `None` if the uid of one of them is unknown.
pub fn members<'a>(clusters: impl Iterator<Item = &'a ClusterFacts>) -> Option<BTreeSet<String>> {
    clusters.filter(|facts| !facts.dead).map(|facts| facts.cell.clone()).collect()
}

/// Prefix of the keys of Karmada's own taints.
const KARMADA_TAINTS: &str = "cluster.karmada.io/";

/// Reads the condition `Ready`. The error is Karmada's reason and message. Unreadable conditions are an error too.
fn ready(conditions: Option<Vec<StatusCondition>>) -> Result<(), String> {
    let conditions = conditions.ok_or_else(|| unreadable("status.conditions"))?;
    match conditions.into_iter().find(|c| c.type_ == "Ready") {
        Some(c) if c.status == "True" => Ok(()),
        Some(c) => Err([c.reason, c.message].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(": ")),
        None => Err("it has not joined yet".to_owned()),
    }
}

fn unreadable(field: &str) -> String {
    format!("this operator cannot read its {field}")
}

/// Describes an unreadable field as an obstacle, in words that follow the Cluster's name.
fn unknown(field: &str) -> String {
    format!("has {field} that this operator cannot read")
}

/// Formats a taint as kubectl does.
fn shown(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{}", taint.key, taint.effect)
}

/// Returns the obstacle for the scheduler. See [`ClusterFacts::obstacle`].
fn obstacle(spec: &ClusterSpec, apis: Option<&[ApiEnablement]>) -> Option<String> {
    let keeps_away = |taint: &&Taint| ["NoSchedule", "NoExecute"].contains(&&*taint.effect);
    let Some(taints) = &spec.taints else { return Some(unknown("spec.taints")) };
    if let Some(taint) = taints.iter().find(keeps_away) {
        return Some(format!("has the taint {}", shown(taint)));
    }
    let Some(apis) = apis else { return Some(unknown("status.apiEnablements")) };
    let version = format!("{GROUP}/{VERSION}");
    let serves = |api: &ApiEnablement| {
        api.group_version == version && api.resources.iter().any(|resource| resource.kind == "WorkloadDeployment")
    };
    (!apis.iter().any(serves)).then(|| format!("does not serve WorkloadDeployments ({version})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(edit: impl FnOnce(&mut Value)) -> ClusterFacts {
        let mut cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": { "name": "a", "generation": 3, "labels": { "topology.datum.net/city-code": "DFW" } },
            "spec": {},
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "apiEnablements": [{
                    "groupVersion": "compute.datumapis.com/v1alpha",
                    "resources": [{ "kind": "Instance" }, { "kind": "WorkloadDeployment" }],
                }],
            },
        });
        edit(&mut cluster);
        ClusterFacts::of(serde_json::from_value(cluster).unwrap())
    }

    type Edit = Box<dyn FnOnce(&mut Value)>;

    #[test]
    fn cluster_is_able_only_if_scheduler_would_use_it() {
        let able = facts(|_| ());
        assert_eq!((able.label.as_deref(), able.city.as_ref().map(CityCode::as_str)), (Some("DFW"), Some("dfw")));
        assert_eq!((able.is_able(), able.is_leaving(), able.generation, able.cell), (Ok(()), false, 3, None));
        assert_eq!(facts(|c| c["spec"]["id"] = json!("cell-a")).cell.as_deref(), Some("cell-a"));
        let drained = |value: &str| {
            let facts = facts(|c| c["metadata"]["annotations"] = json!({ annotation::DRAIN: value }));
            (facts.draining, facts.dead)
        };
        assert_eq!(["true", "dead", "no"].map(drained), [(true, false), (true, true), (false, false)]);
        let named = |id: &str, drain: &str| {
            facts(|c| {
                c["spec"]["id"] = json!(id);
                c["metadata"]["annotations"] = json!({ annotation::DRAIN: drain });
            })
        };
        let uids = |all: &[ClusterFacts]| members(all.iter()).map(|members| members.into_iter().collect::<Vec<_>>());
        assert_eq!(uids(&[named("a", ""), named("b", "dead"), named("c", "true")]), Some(vec!["a".into(), "c".into()]));
        assert_eq!(uids(&[named("a", ""), named("", "dead")]), Some(vec!["a".into()]), "a dead cell does not count");
        assert_eq!(uids(&[named("a", ""), named("", "true")]), None, "its uid is unknown");
        let taint = |effect: &str| json!([{ "key": "maintenance", "effect": effect }]);
        let cases: [(&str, Edit, &str); 5] = [
            (
                "cordoned",
                Box::new(move |c| c["spec"]["taints"] = taint("NoSchedule")),
                "has the taint maintenance:NoSchedule",
            ),
            ("evicted", Box::new(move |c| c["spec"]["taints"] = taint("NoExecute")), "maintenance:NoExecute"),
            ("without our kinds", Box::new(|c| c["status"]["apiEnablements"] = json!([])), "does not serve"),
            (
                "away",
                Box::new(|c| {
                    c["status"]["conditions"][0] = json!({ "type": "Ready", "status": "False", "reason": "R" });
                }),
                "is not ready: R",
            ),
            (
                "terminating",
                Box::new(|c| c["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
                "is being deleted",
            ),
        ];
        for (what, edit, why) in cases {
            let problem = facts(edit).is_able().unwrap_err();
            assert!(problem.contains(why), "{what}: {problem}");
        }
        let odd: [(&str, Edit, &str); 4] = [
            ("taints", Box::new(|c| c["spec"]["taints"] = json!("none")), "has spec.taints that"),
            ("a spec", Box::new(|c| c["spec"] = json!(7)), "has spec.taints that"),
            ("apis", Box::new(|c| c["status"]["apiEnablements"] = json!([1])), "has status.apiEnablements that"),
            (
                "a status",
                Box::new(|c| c["status"] = json!([])),
                "is not ready: this operator cannot read its status.cond",
            ),
        ];
        for (what, edit, why) in odd {
            let cluster = facts(edit);
            assert_eq!(cluster.city.as_ref().map(CityCode::as_str), Some("dfw"), "{what}: the city is in a label");
            let problem = cluster.is_able().unwrap_err();
            assert!(problem.contains(why), "{what}: {problem}");
        }
        let prefers = facts(|c| c["spec"]["taints"] = json!([{ "key": "k", "effect": "PreferNoSchedule" }]));
        assert_eq!(prefers.is_able(), Ok(()), "keeps nothing away");
        assert!(facts(|c| c["metadata"]["annotations"] = json!({ annotation::DRAIN: "true" })).is_leaving());
    }
}
