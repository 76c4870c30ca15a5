//! A small model of an API server: versions, uids, preconditions, finalizers, apply by field manager, owner deletion.

use std::collections::{BTreeMap, BTreeSet};

use compute_operator::{
    api::compute::NOTHING_OBSERVED,
    plan::{Kind, Op, Write, takeover::Part},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

pub type Key = (Kind, String, String);

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub objects: BTreeMap<Key, Object>,
    /// Names of further deployments that use only the first source. On the hub, the names of their copies that expect it. Only
    /// searches for users read them.
    pub crowd: BTreeSet<String>,
    version: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Object {
    uid: String,
    version: u64,
    generation: i64,
    pub deleting: bool,
    pub finalizers: Vec<String>,
    /// The content at creation and the changes by other writers.
    base: Value,
    /// The last applied content of each field manager. The bool is true for the status.
    intents: BTreeMap<(String, bool), Value>,
}

/// The reason of a failed write.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Conflict,
    Exists,
    Present,
    Missing,
}

impl Model {
    /// Builds the view of a cache. Each kind comes from its own model.
    pub fn watched<'a>(kinds: impl Iterator<Item = (Kind, &'a Self)>) -> Self {
        let mut seen = Self::default();
        for (kind, model) in kinds {
            let of_kind = model.objects.iter().filter(|((of, ..), _)| *of == kind);
            seen.objects.extend(of_kind.map(|(key, object)| (key.clone(), object.clone())));
            if kind == Kind::WorkloadDeployment {
                seen.crowd.clone_from(&model.crowd);
            }
        }
        seen
    }

    pub fn get<K: DeserializeOwned>(&self, kind: Kind, namespace: &str, name: &str) -> Option<K> {
        let object = self.objects.get(&(kind, namespace.to_owned(), name.to_owned()))?;
        Some(serde_json::from_value(object.json(kind, namespace, name)).unwrap())
    }

    /// Returns the object as an API server does.
    pub fn raw(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        self.get(kind, namespace, name)
    }

    pub fn all<K: DeserializeOwned>(&self, kind: Kind) -> Vec<K> {
        let of_kind = self.objects.iter().filter(|((k, _, _), _)| *k == kind);
        of_kind.map(|((k, ns, name), o)| serde_json::from_value(o.json(*k, ns, name)).unwrap()).collect()
    }

    /// Executes a write of a plan. Returns `Ok(true)` if an object changed.
    pub fn execute<P>(&mut self, write: &Write<P>) -> Result<bool, Refused> {
        let key = (write.object.kind, write.object.namespace.clone(), write.object.name.clone());
        match &write.op {
            Op::ConfirmAbsent if key.0 == Kind::WorkloadDeployment && self.crowd.contains(&key.2) => {
                Err(Refused::Present)
            }
            Op::ConfirmAbsent => match self.objects.contains_key(&key) {
                true => Err(Refused::Present),
                false => Ok(false),
            },
            Op::ConfirmGone { uid } => match self.objects.get(&key).is_some_and(|object| object.uid == *uid) {
                true => Err(Refused::Present),
                false => Ok(false),
            },
            Op::ConfirmPresent { uid } => match self.objects.get(&key).is_some_and(|object| object.uid == *uid) {
                true => Ok(false),
                false => Err(Refused::Missing),
            },
            Op::ConfirmListed { .. } => match self.objects.get(&key).is_some_and(|object| !object.deleting) {
                true => Ok(false),
                false => Err(Refused::Missing),
            },
            Op::ConfirmUnchanged { uid, generation } => {
                match self.objects.get(&key).is_some_and(|o| o.uid == *uid && o.generation == *generation) {
                    true => Ok(false),
                    false => Err(Refused::Missing),
                }
            }
            // A lost Event is not an error.
            Op::Create { .. } if key.0 == Kind::Event && self.objects.contains_key(&key) => Ok(false),
            Op::Create { .. } if self.objects.contains_key(&key) => Err(Refused::Exists),
            Op::Create { body, .. } => {
                self.create(key, body.clone());
                Ok(true)
            }
            Op::Apply { force: false, .. } if self.objects.contains_key(&key) => Err(Refused::Conflict),
            Op::Apply { body, manager, status, .. } => self.apply(key, &body.to_value(), manager, *status),
            Op::Merge { body, .. } => {
                let Some(object) = self.objects.get(&key) else { return Ok(false) };
                let meta = &body["metadata"];
                if meta["uid"] != json!(object.uid) || meta["resourceVersion"] != json!(object.version.to_string()) {
                    return Err(Refused::Conflict);
                }
                self.merge(&key, body);
                Ok(true)
            }
            Op::TakeOver { uid, resource_version, manager, parts, .. } => {
                let Some(object) = self.objects.get(&key) else { return Ok(false) };
                if *uid != object.uid || *resource_version != object.version.to_string() {
                    return Err(Refused::Conflict);
                }
                self.take_over(&key, manager, parts);
                // The model sends the Event in the same step. A real death in between loses the Event, which is not an error.
                write.told().map_or(Ok(true), |event| self.execute(&event).map(|_| true))
            }
            Op::Delete { uid, resource_version } => {
                let Some(object) = self.objects.get(&key) else { return Ok(false) };
                if *uid != object.uid || *resource_version != object.version.to_string() {
                    return Err(Refused::Conflict);
                }
                self.delete(&key);
                write.told().map_or(Ok(true), |event| self.execute(&event).map(|_| true))
            }
        }
    }

    /// Adds an object that existed before the history, with this uid.
    pub fn found(&mut self, key: Key, uid: &str) {
        self.objects.insert(key, Object { uid: uid.to_owned(), generation: 1, base: json!({}), ..Object::default() });
    }

    pub fn create(&mut self, key: Key, body: Value) {
        self.version += 1;
        let mut body = body;
        // The definitions give a new object this status.
        if matches!(key.0, Kind::Workload | Kind::WorkloadDeployment) && body.get("status").is_none() {
            body["status"] = json!({ "observedGeneration": NOTHING_OBSERVED, "replicas": 0, "desiredReplicas": 0 });
        }
        let finalizers = serde_json::from_value(body["metadata"]["finalizers"].take()).unwrap_or_default();
        let object = Object {
            uid: format!("uid-{}", self.version),
            version: self.version,
            generation: 1,
            finalizers,
            base: body,
            ..Object::default()
        };
        self.objects.insert(key, object);
    }

    /// Applies a merge patch of another writer.
    pub fn merge(&mut self, key: &Key, patch: &Value) {
        self.version += 1;
        let Some(object) = self.objects.get_mut(key) else { return };
        if let Some(finalizers) = patch["metadata"].get("finalizers") {
            object.finalizers = serde_json::from_value(finalizers.clone()).unwrap();
        }
        let mut patch = patch.clone();
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| field == "labels" || field == "annotations");
        }
        // A writer that changes a value becomes its owner.
        for intent in object.intents.values_mut() {
            disown(intent, &patch);
        }
        overlay(&mut object.base, &patch);
        object.version = self.version;
        if patch.get("spec").is_some() {
            object.generation += 1;
        }
        if object.deleting && object.finalizers.is_empty() {
            self.remove(key);
        }
    }

    /// Makes `manager` the owner of the values of other writers in these parts. No value changes.
    fn take_over(&mut self, key: &Key, manager: &str, parts: &[Part]) {
        self.version += 1;
        let Some(object) = self.objects.get_mut(key) else { return };
        for part in parts {
            let field = match part {
                Part::Spec => "spec",
                Part::Status => "status",
            };
            let current = object.content()[field].clone();
            if let Some(base) = object.base.as_object_mut() {
                base.remove(field);
            }
            if !current.is_null() {
                let own = object.intents.entry((manager.to_owned(), *part == Part::Status)).or_default();
                own[field] = current;
            }
        }
        object.version = self.version;
    }

    /// Replaces the whole spec as another writer. Fields that the new spec does not have are removed.
    pub fn put_spec(&mut self, key: &Key, spec: &Value) {
        self.version += 1;
        let Some(object) = self.objects.get_mut(key) else { return };
        for intent in object.intents.values_mut().filter_map(Value::as_object_mut) {
            intent.remove("spec");
        }
        object.base["spec"] = spec.clone();
        object.version = self.version;
        object.generation += 1;
    }

    /// Makes another writer the owner of all fields of all objects of a kind, as plain updates of another operator do.
    pub fn as_others_wrote(&mut self, kind: Kind) {
        for (_, object) in self.objects.iter_mut().filter(|((k, _, _), _)| *k == kind) {
            object.base = object.content();
            object.intents.clear();
        }
    }

    /// Sets the message of every condition, as a release with other messages does.
    pub fn reword(&mut self, message: &str) {
        for object in self.objects.values_mut() {
            let bodies = object.intents.values_mut().chain([&mut object.base]);
            let conditions = bodies.filter_map(|body| body.pointer_mut("/status/conditions")?.as_array_mut());
            let mut reworded = false;
            for condition in conditions.flatten().filter(|condition| condition["message"].is_string()) {
                condition["message"] = json!(message);
                reworded = true;
            }
            if reworded {
                self.version += 1;
                object.version = self.version;
            }
        }
    }

    /// Returns the uid of each object.
    pub fn uids(&self) -> BTreeMap<Key, String> {
        self.objects.iter().map(|(key, object)| (key.clone(), object.uid.clone())).collect()
    }

    /// Returns the uids of the objects of a kind in a namespace, by name, without terminating ones.
    pub fn standing(&self, kind: Kind, namespace: &str) -> BTreeMap<&str, &str> {
        let of_kind = self.objects.iter().filter(|((k, ns, _), o)| *k == kind && ns == namespace && !o.deleting);
        of_kind.map(|((_, _, name), object)| (&**name, &*object.uid)).collect()
    }

    pub fn uid(&self, kind: Kind, namespace: &str, name: &str) -> Option<String> {
        self.objects.get(&(kind, namespace.to_owned(), name.to_owned())).map(|object| object.uid.clone())
    }

    /// Sets labels and annotations as another writer.
    pub fn set_metadata(&mut self, key: &Key, metadata: &Value) {
        if let Some(object) = self.objects.get_mut(key) {
            for (field, value) in metadata.as_object().unwrap() {
                object.base["metadata"][field] = value.clone();
            }
        }
    }

    fn apply(&mut self, key: Key, body: &Value, manager: &str, status: bool) -> Result<bool, Refused> {
        let wanted_uid = body["metadata"]["uid"].as_str();
        let wanted_version = body["metadata"]["resourceVersion"].as_str();
        match (self.objects.get(&key), wanted_uid) {
            (None, Some(_)) => return Err(Refused::Conflict),
            (Some(object), Some(uid)) if object.uid != uid => return Err(Refused::Conflict),
            (Some(object), _) if wanted_version.is_some_and(|wanted| wanted != object.version.to_string()) => {
                return Err(Refused::Conflict);
            }
            (None, None) => self.create(key.clone(), json!({})),
            _ => {}
        }
        let mut intent = body.clone();
        let finalizers: Vec<String> =
            serde_json::from_value(intent["metadata"]["finalizers"].take()).unwrap_or_default();
        intent["metadata"]
            .as_object_mut()
            .unwrap()
            .retain(|field, _| ["labels", "annotations", "ownerReferences"].contains(&field.as_str()));
        intent.as_object_mut().unwrap().retain(|field, value| field != "metadata" || *value != json!({}));
        let version = self.version + 1;
        let object = self.objects.get_mut(&key).unwrap();
        let before = (object.content(), object.finalizers.clone());
        let added = finalizers.into_iter().filter(|f| !object.finalizers.contains(f)).collect::<Vec<_>>();
        assert!(added.is_empty() || !object.deleting, "an API server refuses new finalizers on a terminating object");
        object.finalizers.extend(added);
        object.intents.insert((manager.to_owned(), status), intent);
        let after = (object.content(), object.finalizers.clone());
        if before == after && object.version != version - 1 {
            return Ok(false);
        }
        if before.0["spec"] != after.0["spec"] {
            object.generation += i64::from(!before.0["spec"].is_null());
        }
        (object.version, self.version) = (version, version);
        Ok(true)
    }

    pub fn delete(&mut self, key: &Key) {
        self.version += 1;
        let Some(object) = self.objects.get_mut(key) else { return };
        object.generation += i64::from(!object.deleting);
        object.deleting = true;
        object.version = self.version;
        if object.finalizers.is_empty() {
            self.remove(key);
        }
    }

    /// Deletes the objects whose owner does not exist, as the garbage collector does.
    pub fn collect_garbage(&mut self) {
        let uids: Vec<&String> = self.objects.values().map(|o| &o.uid).collect();
        let orphaned = |object: &Object| {
            let owner = object.content()["metadata"]["ownerReferences"][0]["uid"].as_str().map(str::to_owned);
            owner.is_some_and(|owner| !uids.contains(&&owner))
        };
        let orphans: Vec<Key> =
            self.objects.iter().filter(|(_, o)| !o.deleting && orphaned(o)).map(|(key, _)| key.clone()).collect();
        for orphan in orphans {
            self.delete(&orphan);
        }
    }

    /// Removes an object and deletes its dependents.
    fn remove(&mut self, key: &Key) {
        let Some(gone) = self.objects.remove(key) else { return };
        let owned = |object: &Object| object.content()["metadata"]["ownerReferences"][0]["uid"] == json!(gone.uid);
        let children: Vec<Key> = self.objects.iter().filter(|(_, o)| owned(o)).map(|(key, _)| key.clone()).collect();
        for child in children {
            self.delete(&child);
        }
    }
}

impl Object {
    pub fn content(&self) -> Value {
        let mut content = self.base.clone();
        for intent in self.intents.values() {
            overlay(&mut content, intent);
        }
        content
    }

    fn json(&self, kind: Kind, namespace: &str, name: &str) -> Value {
        let (api_version, kind, _) = kind.gvk();
        let mut object = self.content();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let managed: Vec<Value> = self
            .intents
            .iter()
            .map(|((manager, status), intent)| {
                let mut intent = intent.clone();
                intent.as_object_mut().unwrap().retain(|field, _| field != "apiVersion" && field != "kind");
                let mut entry = json!({ "manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields(&intent) });
                if *status {
                    entry["subresource"] = json!("status");
                }
                entry
            })
            .collect();
        overlay(
            &mut object,
            &json!({ "metadata": {
                "name": name, "namespace": namespace, "uid": self.uid, "resourceVersion": self.version.to_string(),
                "generation": self.generation, "finalizers": self.finalizers, "managedFields": managed,
            }}),
        );
        for (part, subresource) in [("spec", Value::Null), ("status", json!("status"))] {
            if !self.base[part].is_null() {
                let fields = json!({ format!("f:{part}"): fields(&self.base[part]) });
                let entry = json!({
                    "manager": "manager", "operation": "Update", "subresource": subresource,
                    "fieldsType": "FieldsV1", "fieldsV1": fields,
                });
                object["metadata"]["managedFields"].as_array_mut().unwrap().push(entry);
            }
        }
        if self.deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        object
    }
}

/// Merges `over` into `under`: maps by key, conditions by type, other values as a whole. Null removes a field.
fn overlay(under: &mut Value, over: &Value) {
    let Some(over) = over.as_object() else {
        *under = over.clone();
        return;
    };
    if !under.is_object() {
        *under = Value::Object(Map::new());
    }
    for (field, value) in over {
        if value.is_null() {
            under.as_object_mut().unwrap().remove(field);
        } else if field == "conditions" && under.get(field).is_some_and(Value::is_array) {
            let list = under[field].as_array_mut().unwrap();
            for condition in value.as_array().unwrap() {
                list.retain(|c| c["type"] != condition["type"]);
                list.push(condition.clone());
            }
        } else {
            overlay(&mut under[field], value);
        }
    }
}

/// Removes the fields of `intent` that `patch` changes.
fn disown(intent: &mut Value, patch: &Value) {
    let (Some(intent), Some(patch)) = (intent.as_object_mut(), patch.as_object()) else { return };
    for (field, patch) in patch {
        match intent.get_mut(field) {
            Some(own) if own.is_object() && patch.is_object() => disown(own, patch),
            Some(own) if own != patch && field != "conditions" => drop(intent.remove(field)),
            _ => {}
        }
    }
}

/// Returns the `fieldsV1` of an intent.
fn fields(value: &Value) -> Value {
    let mut set = Map::new();
    for (field, value) in value.as_object().into_iter().flatten() {
        let below = match value {
            Value::Object(_) => fields(value),
            Value::Array(list) if field == "conditions" => {
                list.iter().map(|c| (format!("k:{{\"type\":{}}}", c["type"]), fields(c))).collect::<Map<_, _>>().into()
            }
            _ => json!({}),
        };
        set.insert(format!("f:{field}"), below);
    }
    Value::Object(set)
}
