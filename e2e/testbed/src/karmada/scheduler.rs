//! Chooses the clusters of a binding (facts 29, 30, 42, 46 to 48, 59, 64).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Failures, Federation,
    bindings::clusters,
    cache::{hash, selects_labels},
    claims::is_claimed,
};

/// Annotation of a binding: the placement that the scheduler applied last.
pub(super) const APPLIED: &str = "policy.karmada.io/applied-placement";
const OBSERVED_GROUP: &str = "schedulerObservingAffinityName";

/// The scheduler's decision for one binding.
#[derive(Debug, PartialEq, Eq)]
struct Schedule {
    /// Chosen clusters by name, in order. Empty if every group was refused.
    chosen: Vec<String>,
    /// Name of the chosen affinity group, if the placement has named groups.
    group: Option<String>,
    /// Reason of the first tried group's refusal, if all were refused.
    refusal: Option<String>,
}

/// Chooses clusters for `placement`. `observed` is the last observed group, and `targets` are the current clusters.
///
/// With several groups it starts at the observed one, or at the first if that name is unknown. It tries the next only if a group
/// is refused, and reports the first refusal.
fn schedule(
    placement: &Value,
    observed: Option<&str>,
    targets: &[String],
    resource: &Value,
    clusters: &[&DynamicObject],
) -> Schedule {
    let single = [&placement["clusterAffinity"]];
    let named: Option<Vec<&Value>> = placement["clusterAffinities"].as_array().map(|groups| groups.iter().collect());
    let groups = named.as_deref().unwrap_or(&single);
    let from = groups.iter().position(|group| group["affinityName"].as_str() == observed).unwrap_or(0);
    let mut refusal = None;
    for group in &groups[from..] {
        let mut chosen = Vec::new();
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for cluster in clusters.iter().filter(|cluster| cluster.metadata.deletion_timestamp.is_none()) {
            match refused(group, targets, resource, cluster) {
                None => chosen.push(cluster.name_any()),
                Some(reason) => *reasons.entry(reason).or_default() += 1,
            }
        }
        if !chosen.is_empty() {
            let group = named.is_some().then(|| group["affinityName"].as_str().unwrap_or_default().to_owned());
            return Schedule { chosen, group, refusal: None };
        }
        let mut reasons: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        let reasons = if reasons.is_empty() { "no cluster exists".to_owned() } else { reasons.join(", ") };
        refusal.get_or_insert(format!("0/{} clusters are available: {reasons}.", clusters.len()));
    }
    Schedule { chosen: Vec::new(), group: None, refusal }
}

/// Returns why the scheduler refuses a cluster: affinity, a taint, or a missing API. The last two do not evict.
fn refused(group: &Value, targets: &[String], resource: &Value, cluster: &DynamicObject) -> Option<String> {
    if !in_group(group, cluster) {
        return Some("cluster(s) did not match the placement cluster affinity constraint".into());
    }
    if targets.contains(&cluster.name_any()) {
        return None;
    }
    if let Some(taint) = untolerated_taint(cluster) {
        return Some(format!("cluster(s) had untolerated taint {{{taint}}}"));
    }
    let missing = !serves(cluster, resource);
    missing.then(|| "cluster(s) did not have the API resource".into())
}

fn in_group(group: &Value, cluster: &DynamicObject) -> bool {
    let name = cluster.name_any();
    let list = |field: &str| group[field].as_array().filter(|list| !list.is_empty());
    let excluded = list("exclude").is_some_and(|excluded| excluded.contains(&json!(name)));
    let named = list("clusterNames").is_none_or(|names| names.contains(&json!(name)));
    !excluded && named && selects_labels(&group["labelSelector"], cluster.labels())
}

/// Returns the first taint that keeps new objects away, as the scheduler prints it.
fn untolerated_taint(cluster: &DynamicObject) -> Option<String> {
    let taints = cluster.data["spec"]["taints"].as_array()?;
    let taint = taints.iter().find(|taint| taint["effect"] == "NoSchedule" || taint["effect"] == "NoExecute")?;
    let (key, effect) = (taint["key"].as_str()?, taint["effect"].as_str()?);
    let value = taint["value"].as_str().filter(|value| !value.is_empty()).map(|value| format!("={value}"));
    Some(format!("{key}{}:{effect}", value.unwrap_or_default()))
}

/// True if the cluster is known to serve the kind. An unknown kind counts as not served.
fn serves(cluster: &DynamicObject, resource: &Value) -> bool {
    let groups = cluster.data["status"]["apiEnablements"].as_array();
    let mut of_version = groups.into_iter().flatten().filter(|group| group["groupVersion"] == resource["apiVersion"]);
    of_version.any(|group| {
        group["resources"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] == resource["kind"]))
    })
}

/// True if the cluster has a `NoExecute` taint that the placement does not tolerate.
fn is_evicted(placement: &Value, cluster: &DynamicObject) -> bool {
    let tolerations = placement["clusterTolerations"].as_array().map_or(&[][..], Vec::as_slice);
    let tolerated = |taint: &Value| {
        tolerations.iter().any(|toleration| {
            let effect = &toleration["effect"];
            toleration["key"] == taint["key"]
                && (effect.is_null() || *effect == taint["effect"])
                && (toleration["operator"] == "Exists" || toleration["value"] == taint["value"])
        })
    };
    let taints = cluster.data["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    taints.iter().any(|taint| taint["effect"] == "NoExecute" && !tolerated(taint))
}

impl Federation {
    /// Removes clusters with a `NoExecute` taint from the bindings that are scheduled to them, if this is switched on.
    pub(super) async fn evict_tainted(&mut self) -> Result<()> {
        if !self.controls.evicts_tainted() {
            return Ok(());
        }
        let mut failures = Failures::default();
        let all = self.hub.all("Cluster");
        for binding in self.hub.all("ResourceBinding") {
            let spec = &binding.data["spec"];
            let must_leave = |name: &String| {
                all.iter().any(|cluster| cluster.name_any() == *name && is_evicted(&spec["placement"], cluster))
            };
            let before = clusters(&spec["clusters"]);
            if binding.metadata.deletion_timestamp.is_some() || !before.iter().any(must_leave) {
                continue;
            }
            let left: Vec<Value> =
                before.iter().filter(|name| !must_leave(name)).map(|name| json!({ "name": name })).collect();
            let left = if left.is_empty() { Value::Null } else { json!(left) };
            failures.note(self.hub.merge("ResourceBinding", &binding, &json!({ "spec": { "clusters": left } })).await);
        }
        failures.result()
    }

    /// Schedules changed bindings and, after a change of any cluster, all with a placement.
    ///
    /// A change of a binding only counts while a policy claims it. A change of a cluster's labels, spec or deletion triggers
    /// every binding with a placement, including residue of former claims.
    pub(super) async fn schedule(&mut self) -> Result<()> {
        let mut failures = Failures::default();
        let all = self.hub.all("Cluster");
        let all: Vec<&DynamicObject> = all.iter().map(|cluster| &**cluster).collect();
        let landscape = landscape(&all);
        let mut present = BTreeSet::new();
        for binding in self.hub.all("ResourceBinding") {
            let uid = binding.uid().unwrap_or_default();
            present.insert(uid.clone());
            if let Some(patch) = self.controls.late_write(&binding) {
                failures.note(self.hub.merge("ResourceBinding", &binding, &patch).await);
            }
            let spec = &binding.data["spec"];
            let suspended = spec["suspension"]["scheduling"] == true;
            if binding.metadata.deletion_timestamp.is_some() || spec["placement"].is_null() || suspended {
                continue;
            }
            let seen = (binding.metadata.generation.unwrap_or_default(), landscape.clone());
            let claimed = is_claimed(&binding);
            let due = self
                .scheduled
                .get(&uid)
                .map_or(claimed, |before| before.1 != seen.1 || (claimed && before.0 != seen.0));
            if !due {
                // An unclaimed binding is scheduled once the clusters change.
                self.scheduled.entry(uid).or_insert(seen);
                continue;
            }
            let done = self.schedule_one(&binding, &all).await;
            if done.is_ok() {
                self.scheduled.insert(uid, seen);
            }
            failures.note(done);
        }
        self.scheduled.retain(|uid, _| present.contains(uid));
        failures.result()
    }

    async fn schedule_one(&self, binding: &DynamicObject, all: &[&DynamicObject]) -> Result<()> {
        let spec = &binding.data["spec"];
        let before = clusters(&spec["clusters"]);
        let observed = binding.data["status"][OBSERVED_GROUP].as_str();
        let answer = schedule(&spec["placement"], observed, &before, &spec["resource"], all);
        // The difference between the read binding and the result, as one merge patch.
        let applied = spec["placement"].to_string();
        let mut patch = json!({});
        if binding.annotations().get(APPLIED) != Some(&applied) {
            patch["metadata"] = json!({ "annotations": { APPLIED: applied } });
        }
        if answer.chosen != before {
            let list: Vec<Value> = answer.chosen.iter().map(|name| json!({ "name": name })).collect();
            patch["spec"] = json!({ "clusters": if list.is_empty() { Value::Null } else { json!(list) } });
        }
        if patch != json!({}) {
            self.hub.merge("ResourceBinding", binding, &patch).await?;
        }
        if let Some(group) = answer.group.as_deref().filter(|group| Some(*group) != observed) {
            self.hub.merge_status("ResourceBinding", binding, &json!({ OBSERVED_GROUP: group })).await?;
        }
        let condition = match answer.refusal {
            Some(why) => json!({ "type": "Scheduled", "status": "False", "reason": "NoClusterFit", "message": why }),
            None => json!({
                "type": "Scheduled", "status": "True", "reason": "Success",
                "message": "Binding has been scheduled successfully.",
            }),
        };
        self.set_condition(binding, condition).await
    }
}

/// Returns one value of everything that the scheduler watches on the clusters. It changes with any of it. The served kinds are
/// not part of it (fact 66), except that a joined cluster has reported some.
fn landscape(all: &[&DynamicObject]) -> String {
    let of = |cluster: &&DynamicObject| {
        json!([
            cluster.name_any(),
            cluster.labels(),
            cluster.data["spec"],
            cluster.metadata.deletion_timestamp.is_some(),
            cluster.data["status"]["apiEnablements"].is_null(),
        ])
    };
    hash(&json!(all.iter().map(of).collect::<Vec<_>>()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str, city: &str, taint: Option<&str>) -> DynamicObject {
        let taints: Vec<Value> = taint.into_iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect();
        let object = json!({
            "metadata": { "name": name, "labels": { "city": city } },
            "spec": { "taints": taints },
            "status": { "apiEnablements": [{ "groupVersion": "v1", "resources": [{ "kind": "ConfigMap" }] }] },
        });
        serde_json::from_value(object).unwrap()
    }

    fn resource() -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap" })
    }

    fn guarded() -> Value {
        json!({ "clusterAffinities": [
            { "affinityName": "city", "labelSelector": { "matchLabels": { "city": "x" } } },
            { "affinityName": "holding", "clusterNames": ["a"] },
        ]})
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn scheduler_starts_at_the_last_observed_group() {
        let (a, b) = (cluster("a", "y", None), cluster("b", "x", None));
        let first = schedule(&guarded(), None, &[], &resource(), &[&a, &b]);
        assert_eq!((first.chosen, first.group.as_deref()), (names(&["b"]), Some("city")));
        let second = schedule(&guarded(), Some("holding"), &names(&["a"]), &resource(), &[&a, &b]);
        assert_eq!((second.chosen, second.group.as_deref()), (names(&["a"]), Some("holding")));
        let renamed = schedule(&guarded(), Some("of-former-times"), &names(&["a"]), &resource(), &[&a, &b]);
        assert_eq!(renamed.group.as_deref(), Some("city"), "an unknown name means the first group");
    }

    #[test]
    fn scheduler_tries_the_next_group_after_a_refusal() {
        let (a, b) = (cluster("a", "y", None), cluster("b", "x", Some("cordoned")));
        let second = schedule(&guarded(), Some("city"), &names(&["a"]), &resource(), &[&a, &b]);
        assert_eq!((second.chosen, second.group.as_deref()), (names(&["a"]), Some("holding")));
        let drained =
            json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { "city": "x" } }, "exclude": ["a"] } });
        let nothing = schedule(&drained, None, &names(&["a"]), &resource(), &[&a, &b]);
        assert_eq!(nothing.chosen, names(&[]));
        let why = nothing.refusal.unwrap();
        assert_eq!(
            why,
            "0/2 clusters are available: 1 cluster(s) did not match the placement cluster affinity constraint, \
             1 cluster(s) had untolerated taint {cordoned:NoSchedule}."
        );
    }

    #[test]
    fn taint_and_missing_api_do_not_evict() {
        let mut tainted = cluster("a", "x", Some("cordoned"));
        tainted.data["status"] = json!({});
        let placement = json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { "city": "x" } } } });
        let kept = schedule(&placement, None, &names(&["a"]), &resource(), &[&tainted]);
        assert_eq!(kept.chosen, names(&["a"]));
        tainted.data["spec"] = json!({});
        let new = schedule(&placement, None, &[], &resource(), &[&tainted]);
        assert!(new.refusal.unwrap().contains("did not have the API resource"));
    }
}
