//! Dependencies: the objects from the interpreter's script follow their parent (facts 15 to 19, 36 to 41).

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Failures, Federation,
    bindings::{BINDING_FINALIZER, BINDING_ID, binding_name, clusters, owner, reference, wait_for_collection, with},
    cache::{TEMPLATES, content, hash},
    interpreter::{Answer, Operation},
};

pub(super) const DEPENDENCIES_FINALIZER: &str = "karmada.io/binding-dependencies-distributor";
/// Annotation of a parent's binding: the dependencies from the script's last answer.
const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
const DEPENDED_BY: &str = "resourcebinding.karmada.io/depended-by-";

/// The last distribution of a parent.
#[derive(Debug, Default)]
pub(super) struct Distributed {
    /// Generation of the parent's binding.
    generation: Option<i64>,
    dependencies: Vec<Value>,
    /// Watched content of each dependency. `None` if the dependency does not exist.
    versions: Vec<Option<String>>,
}

/// Names of the bindings that list each parent, by namespace and name of the parent, at one moment.
#[derive(Default)]
pub(super) struct Attached(HashMap<(String, String), Vec<String>>);

impl Federation {
    /// Returns the bindings that list each parent. One lookup serves many parents.
    pub(super) fn attached(&self) -> Attached {
        let mut attached = Attached::default();
        for binding in self.hub.all("ResourceBinding") {
            let namespace = binding.namespace().unwrap_or_default();
            let entries = binding.data["spec"]["requiredBy"].as_array();
            for entry in entries.into_iter().flatten().filter(|entry| entry["namespace"] == json!(namespace)) {
                let parent = entry["name"].as_str().unwrap_or_default().to_owned();
                attached.0.entry((namespace.clone(), parent)).or_default().push(binding.name_any());
            }
        }
        attached
    }

    /// Returns the current bindings that list this parent.
    fn attached_to(&self, parent: &DynamicObject, attached: &Attached) -> Vec<Arc<DynamicObject>> {
        let namespace = parent.namespace().unwrap_or_default();
        let names = attached.0.get(&(namespace.clone(), parent.name_any()));
        names.into_iter().flatten().filter_map(|name| self.hub.get("ResourceBinding", &namespace, name)).collect()
    }

    /// Distributes parents that have changed, or that have a changed dependency.
    pub(super) async fn distribute_dependencies(&mut self) -> Result<()> {
        if !self.controls.distributes() {
            self.distributed.clear();
            return Ok(());
        }
        let mut failures = Failures::default();
        let mut present = BTreeSet::new();
        let mut attached = None;
        for parent in self.hub.all("ResourceBinding") {
            let uid = parent.uid().unwrap_or_default();
            present.insert(uid.clone());
            if parent.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let known = self.distributed.get(&uid);
            let unchanged = known.is_some_and(|known| {
                known.generation == parent.metadata.generation
                    && known.versions == self.dependency_contents(&known.dependencies)
            });
            // An unscheduled parent has no target.
            let unscheduled = known.is_none() && clusters(&parent.data["spec"]["clusters"]).is_empty();
            let concerned = parent.data["spec"]["propagateDeps"] == true
                || parent.finalizers().iter().any(|f| f == DEPENDENCIES_FINALIZER);
            if !concerned || unscheduled || unchanged {
                continue;
            }
            let attached = attached.get_or_insert_with(|| self.attached());
            match self.distribute(&parent, attached).await {
                Ok(distributed) => {
                    self.distributed.insert(uid, distributed);
                }
                Err(error) => failures.note(Err(error)),
            }
        }
        self.distributed.retain(|uid, _| present.contains(uid));
        failures.result()
    }

    /// Distributes the dependencies of a parent.
    async fn distribute(&self, parent: &DynamicObject, attached: &Attached) -> Result<Distributed> {
        let mut distributed = Distributed { generation: parent.metadata.generation, ..Distributed::default() };
        if parent.data["spec"]["propagateDeps"] != true {
            self.detach_all(parent, attached).await?;
            self.hub.release("ResourceBinding", parent, DEPENDENCIES_FINALIZER).await?;
            return Ok(distributed);
        }
        let resource = &parent.data["spec"]["resource"];
        let text = |field: &str| resource[field].as_str().unwrap_or_default();
        let namespace = parent.namespace().unwrap_or_default();
        let Some(template) = self.hub.get(text("kind"), &namespace, text("name")) else {
            return Ok(distributed);
        };
        let dependencies = match self.interpret(Operation::Dependencies, text("kind"), &template, None) {
            // Without a script, nothing changes: delivered dependencies stay. A restored script does not trigger a new
            // distribution (fact 38).
            Answer::NoScript => {
                distributed.dependencies = recorded(parent);
                distributed.versions = self.dependency_contents(&distributed.dependencies);
                return Ok(distributed);
            }
            Answer::Raised(why) => anyhow::bail!("the dependency script raises: {why}"),
            Answer::Said(answer) => sorted(&answer),
        };
        distributed.versions = self.dependency_contents(&dependencies);
        self.record(parent, &dependencies).await?;
        let named: BTreeSet<String> = dependencies.iter().map(key).collect();
        for attached in self.attached_to(parent, attached) {
            if !named.contains(&key(&attached.data["spec"]["resource"])) {
                self.detach(parent, &attached).await?;
            }
        }
        let mut failures = Failures::default();
        for dependency in &dependencies {
            let (kind, name) = (&dependency["kind"], &dependency["name"]);
            let (Some(kind), Some(name)) = (kind.as_str(), name.as_str()) else { continue };
            if !TEMPLATES.contains(&kind) || dependency["namespace"] != json!(namespace) {
                continue;
            }
            if name.is_empty() || name.contains('/') {
                failures.note(Err(anyhow::anyhow!("invalid resource name {name:?}: [may not contain '/']")));
            } else if let Some(object) = self.hub.get(kind, &namespace, name)
                && object.metadata.deletion_timestamp.is_none()
            {
                failures.note(self.attach(parent, kind, &object).await);
            }
        }
        // An invalid name is retried and reported. The others are delivered (fact 39).
        let outcome = failures.result();
        if let Err(error) = &outcome {
            self.report_failure(parent, &format!("{error:#}")).await?;
        }
        outcome?;
        distributed.dependencies = dependencies;
        Ok(distributed)
    }

    /// Reports a dependency that could not be delivered, as an Event.
    async fn report_failure(&self, parent: &DynamicObject, why: &str) -> Result<()> {
        let namespace = parent.namespace().unwrap_or_default();
        let body = json!({
            "involvedObject": {
                "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "namespace": namespace,
                "name": parent.name_any(), "uid": parent.uid(),
            },
            "type": "Warning", "reason": "SyncScheduleResultToDependenciesFailed", "message": why,
        });
        let name = format!("{}.{}", parent.name_any(), hash(why));
        self.hub.apply("Event", &namespace, &name, body).await.map(|_| ())
    }

    /// Writes the script's answer and the finalizer. Both only follow a first answer.
    async fn record(&self, parent: &DynamicObject, dependencies: &[Value]) -> Result<()> {
        let text = json!(dependencies).to_string();
        let finalizers = with(parent.finalizers().to_vec(), DEPENDENCIES_FINALIZER);
        if parent.annotations().get(DEPENDENCIES) == Some(&text) && finalizers == parent.finalizers() {
            return Ok(());
        }
        let patch = json!({ "metadata": {
            "annotations": { DEPENDENCIES: text }, "finalizers": finalizers, "resourceVersion": parent.resource_version(),
        }});
        self.hub.merge("ResourceBinding", parent, &patch).await
    }

    async fn attach(&self, parent: &DynamicObject, kind: &str, object: &DynamicObject) -> Result<()> {
        let namespace = object.namespace().unwrap_or_default();
        let live = self.hub.api("ResourceBinding", &namespace).get_opt(&binding_name(kind, &object.name_any())).await?;
        let snapshot = snapshot(&namespace, &parent.name_any(), &parent.data["spec"]["clusters"]);
        let mut required_by = Vec::new();
        if let Some(live) = &live {
            wait_for_collection(live, object)?;
            required_by = live.data["spec"]["requiredBy"].as_array().cloned().unwrap_or_default();
        }
        match required_by.iter_mut().find(|entry| is_of(entry, parent)) {
            Some(entry) => *entry = snapshot,
            None => required_by.push(snapshot),
        }
        let reference = reference(kind, object);
        if let Some(live) = &live
            && live.data["spec"]["requiredBy"] == json!(required_by)
            && live.data["spec"]["resource"] == reference
        {
            return Ok(());
        }
        let mut body = json!({
            "metadata": { "labels": { depended_by(parent): parent.labels().get(BINDING_ID) } },
            "spec": { "resource": reference, "requiredBy": required_by },
        });
        if live.is_none() {
            body["metadata"]["finalizers"] = json!([BINDING_FINALIZER]);
            body["metadata"]["ownerReferences"] = owner(kind, object);
        }
        self.hold_binding(kind, object, live.as_ref(), body).await
    }

    /// Removes a parent from every binding that lists it.
    pub(super) async fn detach_all(&self, parent: &DynamicObject, attached: &Attached) -> Result<()> {
        for attached in self.attached_to(parent, attached) {
            self.detach(parent, &attached).await?;
        }
        Ok(())
    }

    async fn detach(&self, parent: &DynamicObject, attached: &DynamicObject) -> Result<()> {
        let mut left = attached.data["spec"]["requiredBy"].as_array().cloned().unwrap_or_default();
        left.retain(|entry| !is_of(entry, parent));
        let patch = json!({
            "metadata": { "labels": { depended_by(parent): null }, "resourceVersion": attached.resource_version() },
            "spec": { "requiredBy": if left.is_empty() { Value::Null } else { json!(left) } },
        });
        self.hub.merge("ResourceBinding", attached, &patch).await
    }

    /// Returns the current content of the dependencies. A change of one of them triggers the parent (facts 18, 36, 50). With the
    /// older behaviour, only the first of each kind does.
    fn dependency_contents(&self, dependencies: &[Value]) -> Vec<Option<String>> {
        let all = self.controls.hears_of_later();
        let is_first = |n: usize| dependencies[..n].iter().all(|before| before["kind"] != dependencies[n]["kind"]);
        let version = |dependency: &Value| {
            let text = |field: &str| dependency[field].as_str().unwrap_or_default();
            let object = self.hub.get(text("kind"), text("namespace"), text("name"))?;
            Some(content(&object))
        };
        (0..dependencies.len()).filter(|n| all || is_first(*n)).map(|n| version(&dependencies[n])).collect()
    }
}

/// Removes duplicates, and sorts as Karmada does: by version, kind, namespace and name.
fn sorted(answer: &Value) -> Vec<Value> {
    // An empty Lua table has no form. Here it is a list.
    let mut dependencies = answer.as_array().cloned().unwrap_or_default();
    dependencies.sort_by_key(key);
    dependencies.dedup();
    dependencies
}

fn key(dependency: &Value) -> String {
    ["apiVersion", "kind", "namespace", "name"].map(|field| dependency[field].as_str().unwrap_or_default()).join("\n")
}

fn is_of(entry: &Value, parent: &DynamicObject) -> bool {
    entry["name"] == json!(parent.name_any()) && entry["namespace"] == json!(parent.namespace())
}

fn depended_by(parent: &DynamicObject) -> String {
    format!("{DEPENDED_BY}{}", hash(&super::bindings::of(parent)))
}

/// Returns the recorded dependencies of a parent's binding.
fn recorded(parent: &DynamicObject) -> Vec<Value> {
    let text = parent.annotations().get(DEPENDENCIES);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns a parent's entry in the binding of a dependency. Karmada omits the clusters if there are none.
fn snapshot(namespace: &str, name: &str, clusters: &Value) -> Value {
    let mut snapshot = json!({ "namespace": namespace, "name": name });
    if clusters.as_array().is_some_and(|clusters| !clusters.is_empty()) {
        snapshot["clusters"] = clusters.clone();
    }
    snapshot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_snapshot_without_clusters_omits_them() {
        let nowhere = json!({ "namespace": "ns", "name": "web" });
        assert_eq!(snapshot("ns", "web", &Value::Null), nowhere);
        assert_eq!(snapshot("ns", "web", &json!([])), nowhere);
        let there = json!([{ "name": "a" }]);
        assert_eq!(snapshot("ns", "web", &there)["clusters"], there);
    }

    #[test]
    fn dependencies_are_sorted_without_duplicates() {
        let of = |kind: &str, name: &str| json!({ "apiVersion": "v1", "kind": kind, "namespace": "ns", "name": name });
        let answer = json!([of("Secret", "a"), of("ConfigMap", "z"), of("ConfigMap", "a"), of("ConfigMap", "z")]);
        assert_eq!(sorted(&answer), [of("ConfigMap", "a"), of("ConfigMap", "z"), of("Secret", "a")]);
        assert_eq!(sorted(&json!({})), Vec::<Value>::new(), "an empty table");
    }
}
