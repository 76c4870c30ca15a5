//! Bindings: one per claimed template, scheduled to clusters; and those of dependencies, attached to their parents'.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Federation,
    cache::{TEMPLATES, hash, matches, resource},
    claims::{POLICY_ID, POLICY_NAME, POLICY_NAMESPACE},
    interpreter::Operation,
};

pub(super) const BINDING_FINALIZER: &str = "karmada.io/binding-controller";
const DEPENDENCIES_FINALIZER: &str = "karmada.io/binding-dependencies-distributor";
const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
const DEPENDED_BY: &str = "resourcebinding.karmada.io/depended-by-";
/// Annotation of a Work: the binding that it was made of.
pub(super) const MADE_OF: &str = "stand-in/binding";
pub(super) const BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";

/// Name of a template's binding (fact 2).
pub(super) fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{}", kind.to_lowercase())
}

/// Clusters in a `clusters` list.
pub(super) fn clusters(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|c| Some(c["name"].as_str()?.to_owned())).collect()
}

impl Federation {
    /// A binding per claimed template, made or renewed when template or policy changed (so a lost one stays lost until
    /// something is touched: fact 49).
    pub(super) async fn bind_templates(&mut self) -> Result<()> {
        for kind in TEMPLATES {
            for template in self.hub.all(kind) {
                let annotations = template.annotations();
                let (Some(name), Some(namespace)) = (annotations.get(POLICY_NAME), annotations.get(POLICY_NAMESPACE))
                else {
                    continue;
                };
                let Some(policy) = self.hub.get("PropagationPolicy", namespace, name) else { continue };
                if template.metadata.deletion_timestamp.is_some() || policy.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                let uid = template.uid().unwrap_or_default();
                let version = format!("{:?}/{:?}", template.resource_version(), policy.metadata.generation.or(Some(0)));
                let gate = self.distributes.load(Ordering::SeqCst);
                let version = format!("{version}/{}/{gate}", hash(&policy.data["spec"].to_string()));
                if self.bound.get(&uid) == Some(&version) {
                    continue;
                }
                self.bind(kind, &template, &policy).await?;
                self.bound.insert(uid, version);
            }
        }
        Ok(())
    }

    async fn bind(&self, kind: &str, template: &DynamicObject, policy: &DynamicObject) -> Result<()> {
        let namespace = template.namespace().unwrap_or_default();
        let name = binding_name(kind, &template.name_any());
        let propagates = policy.data["spec"]["propagateDeps"] == true;
        let mut finalizers = vec![BINDING_FINALIZER];
        if propagates && self.distributes.load(Ordering::SeqCst) {
            finalizers.push(DEPENDENCIES_FINALIZER);
        }
        let body = json!({
            "metadata": {
                "finalizers": finalizers,
                "ownerReferences": owner(kind, template),
                "labels": { POLICY_ID: policy.uid(), BINDING_ID: template.uid() },
                "annotations": { POLICY_NAME: policy.name_any(), POLICY_NAMESPACE: policy.namespace() },
            },
            "spec": {
                "resource": reference(kind, template),
                "propagateDeps": propagates,
                "placement": policy.data["spec"]["placement"],
            },
        });
        self.hub.apply("ResourceBinding", &namespace, &name, body).await?;
        Ok(())
    }

    /// Fills `spec.clusters` of every binding that has a placement (facts 3, 29, 31, 42, 46).
    pub(super) async fn schedule(&self) -> Result<()> {
        let all = self.hub.all("Cluster");
        for binding in self.hub.all("ResourceBinding") {
            let placement = &binding.data["spec"]["placement"];
            if binding.metadata.deletion_timestamp.is_some() || placement.is_null() {
                continue;
            }
            let before = clusters(&binding.data["spec"]["clusters"]);
            let groups: Vec<&Value> = match placement["clusterAffinities"].as_array() {
                Some(groups) => groups.iter().collect(),
                None => vec![&placement["clusterAffinity"]],
            };
            let fits = |group: &Value, cluster: &DynamicObject| {
                let name = cluster.name_any();
                let excluded = group["exclude"].as_array().is_some_and(|list| list.contains(&json!(name)));
                matches(cluster, group["labelSelector"].get("matchLabels"))
                    && !excluded
                    && clusters_named(group).is_none_or(|named| named.contains(&name))
                    // A cluster that went away, or is tainted, keeps what it has, and gets nothing new.
                    && (is_ready(cluster) && !is_tainted(cluster) || before.contains(&cluster.name_any()))
            };
            // It goes on from the group that it is in, and never back (fact 48).
            let observed = binding.data["status"]["schedulerObservingAffinityName"].as_str();
            let from = groups.iter().position(|group| group["affinityName"].as_str() == observed).unwrap_or(0);
            let (group, chosen) = groups[from..]
                .iter()
                .map(|group| (group, all.iter().filter(|c| fits(group, c)).map(|c| c.name_any()).collect::<Vec<_>>()))
                .find(|(_, chosen)| !chosen.is_empty())
                .map_or((None, Vec::new()), |(group, chosen)| (group["affinityName"].as_str(), chosen));
            if group.is_some() && group != observed {
                let status = json!({ "schedulerObservingAffinityName": group });
                self.hub.merge_status("ResourceBinding", &binding, &status).await?;
            }
            if chosen != before {
                let list: Vec<Value> = chosen.iter().map(|name| json!({ "name": name })).collect();
                self.hub.merge("ResourceBinding", &binding, &json!({ "spec": { "clusters": list } })).await?;
            }
            let condition = if chosen.is_empty() {
                let total = all.len();
                let tainted = all.iter().filter(|cluster| is_tainted(cluster)).count();
                let why = format!(
                    "0/{total} clusters are available: {tainted} cluster(s) had untolerated taint, {} cluster(s) did not match the placement cluster affinity constraint.",
                    total - tainted
                );
                json!({ "type": "Scheduled", "status": "False", "reason": "NoClusterFit", "message": why })
            } else {
                json!({ "type": "Scheduled", "status": "True", "reason": "Success", "message": "Binding has been scheduled successfully." })
            };
            self.set_condition(&binding, condition).await?;
        }
        Ok(())
    }

    pub(super) async fn set_condition(&self, binding: &DynamicObject, condition: Value) -> Result<()> {
        // Read from the server: a pass changes several of them, and the cache may be behind.
        let api = self.hub.api("ResourceBinding", &binding.namespace().unwrap_or_default());
        let known = binding.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let same = |c: &Value| ["type", "status", "reason", "message"].iter().all(|f| c[*f] == condition[*f]);
        if known.iter().any(same) {
            return Ok(());
        }
        let Some(fresh) = api.get_opt(&binding.name_any()).await? else { return Ok(()) };
        let mut conditions = fresh.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|c| c["type"] != condition["type"]);
        let mut condition = condition;
        condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        conditions.push(condition);
        self.hub.merge_status("ResourceBinding", &fresh, &json!({ "conditions": conditions })).await
    }

    /// What the interpreter's script names follows its parent (facts 15 to 19).
    pub(super) async fn distribute_dependencies(&mut self) -> Result<()> {
        if !self.distributes.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut wanted: BTreeMap<(String, String, String), Vec<Value>> = BTreeMap::new();
        for parent in self.hub.all("ResourceBinding") {
            let propagates = parent.data["spec"]["propagateDeps"] == true;
            if !propagates || parent.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let resource = &parent.data["spec"]["resource"];
            let namespace = parent.namespace().unwrap_or_default();
            let (kind, name) =
                (resource["kind"].as_str().unwrap_or_default(), resource["name"].as_str().unwrap_or_default());
            let Some(template) = self.hub.get(kind, &namespace, name) else { continue };
            let Some(dependencies) = self.dependencies(kind, &template) else { continue };
            self.record_dependencies(&parent, &dependencies).await?;
            let to = &parent.data["spec"]["clusters"];
            let named =
                dependencies.as_array().into_iter().flatten().filter_map(|dependency| dependency["name"].as_str());
            // One that cannot be a name holds up all the others of this parent (fact 39).
            if clusters(to).is_empty() || named.clone().any(|name| name.contains('/') || name.is_empty()) {
                continue;
            }
            for dependency in dependencies.as_array().into_iter().flatten() {
                let (kind, name) = (&dependency["kind"], &dependency["name"]);
                let (Some(kind), Some(name)) = (kind.as_str(), name.as_str()) else { continue };
                if !TEMPLATES.contains(&kind) || dependency["namespace"] != json!(namespace) {
                    continue;
                }
                let snapshot = json!({ "namespace": namespace, "name": parent.name_any(), "clusters": to });
                wanted.entry((namespace.clone(), kind.into(), name.into())).or_default().push(snapshot);
            }
        }
        for ((namespace, kind, name), required_by) in &wanted {
            if let Some(template) =
                self.hub.get(kind, namespace, name).filter(|t| t.metadata.deletion_timestamp.is_none())
            {
                let uid = template.uid().unwrap_or_default();
                let binding = self.hub.get("ResourceBinding", namespace, &binding_name(kind, name));
                let version = format!("{:?}/{}", template.resource_version(), hash(&json!(required_by).to_string()));
                // Lost, and nobody has touched the dependency or who needs it since (fact 50).
                if binding.is_none() && self.attached.get(&uid) == Some(&version) {
                    continue;
                }
                self.attach(kind, &template, required_by).await?;
                self.attached.insert(uid, version);
            }
        }
        for binding in self.hub.all("ResourceBinding") {
            let attached = binding.data["spec"]["requiredBy"].as_array().is_some_and(|list| !list.is_empty());
            let resource = &binding.data["spec"]["resource"];
            let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
            let key = (binding.namespace().unwrap_or_default(), text("kind"), text("name"));
            if attached && !wanted.contains_key(&key) && binding.metadata.deletion_timestamp.is_none() {
                self.hub.merge("ResourceBinding", &binding, &json!({ "spec": { "requiredBy": [] } })).await?;
            }
        }
        Ok(())
    }

    fn dependencies(&self, kind: &str, template: &DynamicObject) -> Option<Value> {
        if kind != "WorkloadDeployment" {
            return None;
        }
        let answer = self.interpret(Operation::Dependencies, template, None)?;
        // An empty Lua table has no form: it is a list here.
        Some(if answer.is_array() { answer } else { json!([]) })
    }

    async fn record_dependencies(&self, parent: &DynamicObject, dependencies: &Value) -> Result<()> {
        let text = dependencies.to_string();
        if parent.annotations().get(DEPENDENCIES) == Some(&text) {
            return Ok(());
        }
        self.hub
            .merge("ResourceBinding", parent, &json!({ "metadata": { "annotations": { DEPENDENCIES: text } } }))
            .await
    }

    async fn attach(&self, kind: &str, template: &DynamicObject, required_by: &[Value]) -> Result<()> {
        let namespace = template.namespace().unwrap_or_default();
        let name = binding_name(kind, &template.name_any());
        let live = self.hub.get("ResourceBinding", &namespace, &name);
        if live.as_ref().is_some_and(|live| live.data["spec"]["requiredBy"] == json!(required_by)) {
            return Ok(());
        }
        let labels: BTreeMap<String, &str> = required_by
            .iter()
            .map(|by| (format!("{DEPENDED_BY}{}", hash(by["name"].as_str().unwrap_or_default())), "true"))
            .collect();
        if let Some(live) = live {
            let patch = json!({ "metadata": { "labels": labels }, "spec": { "requiredBy": required_by } });
            self.hub.merge("ResourceBinding", &live, &patch).await
        } else {
            let body = json!({
                "metadata": { "finalizers": [BINDING_FINALIZER], "ownerReferences": owner(kind, template), "labels": labels },
                "spec": { "resource": reference(kind, template), "requiredBy": required_by },
            });
            self.hub.apply("ResourceBinding", &namespace, &name, body).await?;
            Ok(())
        }
    }

    /// A binding that goes takes its Works along; their end it does not wait for (facts 12, 32).
    pub(super) async fn release_bindings(&mut self) -> Result<()> {
        let going = self.hub.all("ResourceBinding").into_iter().filter(|b| b.metadata.deletion_timestamp.is_some());
        let going: Vec<_> = going.collect();
        let works = if going.is_empty() { HashMap::new() } else { self.works() };
        for binding in going {
            for work in works.get(&of(&binding)).into_iter().flatten() {
                self.worked.remove(&(work.namespace().unwrap_or_default(), work.name_any()));
                if work.metadata.deletion_timestamp.is_none() {
                    self.hub.delete("Work", &work.namespace().unwrap_or_default(), &work.name_any()).await?;
                }
            }
            let left: Vec<&String> = binding
                .finalizers()
                .iter()
                .filter(|f| *f != BINDING_FINALIZER && *f != DEPENDENCIES_FINALIZER)
                .collect();
            if left.len() < binding.finalizers().len() {
                self.hub.merge("ResourceBinding", &binding, &json!({ "metadata": { "finalizers": left } })).await?;
            }
        }
        Ok(())
    }

    /// The Works of each binding, by what [`of`] says.
    pub(super) fn works(&self) -> HashMap<String, Vec<Arc<DynamicObject>>> {
        let mut works: HashMap<String, Vec<Arc<DynamicObject>>> = HashMap::new();
        for work in self.hub.all("Work") {
            if let Some(of) = work.annotations().get(MADE_OF) {
                works.entry(of.clone()).or_default().push(work);
            }
        }
        works
    }
}

/// How a Work names the binding that it was made of.
pub(super) fn of(binding: &DynamicObject) -> String {
    format!("{}/{}", binding.namespace().unwrap_or_default(), binding.name_any())
}

fn clusters_named(group: &Value) -> Option<Vec<String>> {
    let names = group["clusterNames"].as_array()?;
    Some(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

pub(super) fn is_ready(cluster: &DynamicObject) -> bool {
    let conditions = cluster.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn is_tainted(cluster: &DynamicObject) -> bool {
    let taints = cluster.data["spec"]["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["effect"] == "NoSchedule")
}

fn owner(kind: &str, template: &DynamicObject) -> Value {
    json!([{
        "apiVersion": resource(kind).api_version, "kind": kind, "name": template.name_any(), "uid": template.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

fn reference(kind: &str, template: &DynamicObject) -> Value {
    json!({
        "apiVersion": resource(kind).api_version, "kind": kind, "namespace": template.namespace(),
        "name": template.name_any(), "uid": template.uid(),
    })
}
