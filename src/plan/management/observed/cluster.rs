//! What is kept of a member cluster: which city it says it is, and whether anything new may come there.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{
    karmada::{ApiEnablement, Cluster, ClusterSpec, ClusterStatus, StatusCondition, Taint},
    meta::{DEAD, GROUP, VERSION, annotation, label},
    names::CityCode,
};

/// What is kept of a member cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// The city that its label names.
    pub city: Option<CityCode>,
    /// The label, as somebody has spelt it: Karmada compares by the byte.
    pub label: Option<String>,
    /// Whether it answers; if not, in Karmada's words.
    pub ready: Result<(), String>,
    /// Why Karmada's scheduler would bring nothing new there (facts 59, 64, 66), in words; nothing when it would.
    pub obstacle: Option<String>,
    /// The taints that people have put on it.
    pub taints: Vec<String>,
    /// Whether somebody has said that what is there is to move elsewhere.
    pub draining: bool,
    /// Whether somebody has said that nothing runs there any more, and nobody will give up what is held there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
    /// Whether it is on its way out: the scheduler takes everything away from it.
    pub deleting: bool,
    /// Uid of the cell that it is, by which that marks what it writes back; absent where Karmada did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Generation of its spec, in which taints stand.
    pub generation: i64,
}

impl ClusterFacts {
    /// From a Cluster.
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

    /// One that carries a label, and is able.
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

    /// Whether what is there has to go elsewhere.
    pub fn is_leaving(&self) -> bool {
        self.draining || self.deleting
    }

    /// What people have said of it, in one text: once that changes, what went wrong there may be tried again. Karmada's own
    /// taints come and go with its health, and say nothing.
    pub fn marks(&self) -> String {
        let label = self.label.as_deref().unwrap_or_default();
        format!("{label} {}", self.taints.join(" "))
    }

    /// Whether something new may come there, as far as can be told; if not, why not.
    ///
    /// # Errors
    /// Why not, in words that follow the Cluster's name.
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

/// Uids of the cells that are members and not given up; absent where one does not say which it is.
pub fn members<'a>(clusters: impl Iterator<Item = &'a ClusterFacts>) -> Option<BTreeSet<String>> {
    clusters.filter(|facts| !facts.dead).map(|facts| facts.cell.clone()).collect()
}

/// What the keys of taints begin with that Karmada itself puts on a cluster.
const KARMADA_TAINTS: &str = "cluster.karmada.io/";

/// Whether the conditions say that a cluster answers; if not, in Karmada's words. What cannot be read does not say so.
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

/// As what is in the way of something new, in words that follow the Cluster's name.
fn unknown(field: &str) -> String {
    format!("has {field} that this operator cannot read")
}

/// A taint as kubectl shows it.
fn shown(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{}", taint.key, taint.effect)
}

/// Why the scheduler would bring nothing of ours to a cluster; see [`ClusterFacts::obstacle`].
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
    fn a_cluster_is_able_when_the_scheduler_would_bring_something_new_there() {
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
        let of = |all: &[ClusterFacts]| members(all.iter()).map(|members| members.into_iter().collect::<Vec<_>>());
        assert_eq!(of(&[named("a", ""), named("b", "dead"), named("c", "true")]), Some(vec!["a".into(), "c".into()]));
        assert_eq!(of(&[named("a", ""), named("", "dead")]), Some(vec!["a".into()]), "whoever it was");
        assert_eq!(of(&[named("a", ""), named("", "true")]), None, "it may be anyone");
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
                "on its way out",
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
            assert_eq!(
                cluster.city.as_ref().map(CityCode::as_str),
                Some("dfw"),
                "{what}: which city it is stands elsewhere"
            );
            let problem = cluster.is_able().unwrap_err();
            assert!(problem.contains(why), "{what}: {problem}");
        }
        let prefers = facts(|c| c["spec"]["taints"] = json!([{ "key": "k", "effect": "PreferNoSchedule" }]));
        assert_eq!(prefers.is_able(), Ok(()), "keeps nothing away");
        assert!(facts(|c| c["metadata"]["annotations"] = json!({ annotation::DRAIN: "true" })).is_leaving());
    }
}
