//! Take-over of fields that other managers own in parts of an object that belong to us as a whole.
//!
//! The Go operator wrote plain updates, so each field that it wrote stays with its field manager. An apply removes a field only
//! if no other manager owns it. Fields that we no longer apply would therefore stay. So the ownership is transferred first, by
//! path and from every manager, in one write that changes only `managedFields`. After that, our apply is complete, and no write
//! shows half of a change.
//!
//! A field that our CRD does not know cannot be in our apply, which would then remove it. Such a field belongs to a newer
//! version, and stays with its manager.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
use serde_json::{Map, Value};

use super::{Known, diff, schema};
use crate::api::meta;

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The desired state.
    Spec,
    /// The observed state.
    Status,
}

/// The field of a spec that stays with its owner. We always apply it, so it is never left behind. If another controller scales,
/// it owns the field.
const REPLICAS: &str = "f:replicas";

impl Part {
    const ALL: [Self; 2] = [Self::Spec, Self::Status];

    /// Returns a list of only this part.
    pub(super) fn alone(self) -> &'static [Self] {
        match self {
            Self::Spec => &[Self::Spec],
            Self::Status => &[Self::Status],
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Spec => "f:spec",
            Self::Status => "f:status",
        }
    }

    /// True if an entry is about this part. A status is written through its subresource.
    fn is_spoken_of_by(self, entry: &ManagedFieldsEntry) -> bool {
        (entry.subresource.as_deref() == Some("status")) == (self == Self::Status)
    }

    /// Returns the paths below this part that `entry` owns and that must become ours.
    fn held(self, kind: &str, entry: &ManagedFieldsEntry) -> Option<Map<String, Value>> {
        let fields = &entry.fields_v1.as_ref().filter(|_| self.is_spoken_of_by(entry))?.0;
        let mut paths = schema::known(kind, self.field(), fields.get(self.field())?.as_object()?);
        paths.remove(REPLICAS);
        paths.keys().any(|path| path != ".").then_some(paths)
    }

    /// True if another manager owns fields of this part in `entry`. The entry may be a trace.
    fn is_held_in<K: Known>(self, entry: &ManagedFieldsEntry) -> bool {
        let (_, kind, _) = K::KIND.gvk();
        !is_own(entry) && self.is_spoken_of_by(entry) && (entry.fields_v1.is_none() || self.held(kind, entry).is_some())
    }

    /// Removes `held` from the fields of `entry`.
    fn release(self, entry: &mut ManagedFieldsEntry, held: &Map<String, Value>) {
        let Some(Value::Object(fields)) = entry.fields_v1.as_mut().map(|fields| &mut fields.0) else { return };
        let Some(Value::Object(left)) = fields.get_mut(self.field()) else { return };
        subtract(left, held);
        if left.is_empty() {
            fields.remove(self.field());
        }
    }

    /// Returns an entry for our applies of this part, without fields.
    fn no_apply_yet(self, manager: &str, version: Option<String>) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.into()),
            operation: Some("Apply".into()),
            api_version: version,
            fields_type: Some("FieldsV1".into()),
            fields_v1: Some(FieldsV1(Value::Object(Map::new()))),
            subresource: (self == Self::Status).then(|| "status".into()),
            ..ManagedFieldsEntry::default()
        }
    }

    /// True if this is the entry of our own applies of this part.
    fn is_applied_in(self, entry: &ManagedFieldsEntry, manager: &str) -> bool {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == (self == Self::Status).then_some("status")
    }
}

/// Returns the cached form of another manager's entry, if it owns fields of a spec or a status. The exact fields are read again
/// at the take-over, which happens once.
pub fn trace(kind: &str, entry: &ManagedFieldsEntry) -> Option<ManagedFieldsEntry> {
    (!is_own(entry) && holds(kind, entry)).then(|| ManagedFieldsEntry {
        manager: entry.manager.clone(),
        subresource: entry.subresource.clone(),
        time: entry.time.clone(),
        ..ManagedFieldsEntry::default()
    })
}

/// True if an entry owns fields of a spec or a status. Its set of fields may be text. All objects that one client writes have the
/// same set, so the results of the last texts are kept.
fn holds(kind: &str, entry: &ManagedFieldsEntry) -> bool {
    /// By kind, subresource and text.
    type Results = HashMap<(String, Option<String>, String), bool>;
    static RESULTS: LazyLock<Mutex<Results>> = LazyLock::new(Mutex::default);
    const ROOM: usize = 64;
    let holds_any = |entry: &ManagedFieldsEntry| Part::ALL.into_iter().any(|part| part.held(kind, entry).is_some());
    let Some(text) = entry.fields_v1.as_ref().and_then(|fields| fields.0.as_str()) else { return holds_any(entry) };
    if !Part::ALL.iter().any(|part| text.contains(part.field())) {
        return false;
    }
    let results = || RESULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (kind.to_owned(), entry.subresource.clone(), text.to_owned());
    if let Some(result) = results().get(&key) {
        return *result;
    }
    let mut unpacked = entry.clone();
    unpacked.fields_v1.iter_mut().for_each(diff::unpack);
    let result = holds_any(&unpacked);
    let mut results = results();
    if results.len() >= ROOM {
        results.clear();
    }
    results.insert(key, result);
    result
}

/// Returns the cached form for an object without field managers. At our first apply, the server creates a manager that owns all
/// existing fields.
pub fn trace_of_nobody() -> ManagedFieldsEntry {
    ManagedFieldsEntry { manager: Some("before-first-apply".into()), ..ManagedFieldsEntry::default() }
}

/// The time of a take-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Other managers own nothing.
    Never,
    /// Now.
    Now,
    /// After this time, if they still own something.
    After(Duration),
}

/// Returns when `manager` takes over the fields of this part that others own. If both have written within `pause`, the other
/// manager reverts our take-over. Then we wait, so as not to repeat it at that pace.
pub fn due<K: Known>(live: &K, part: Part, manager: &str, pause: Duration, now: Timestamp) -> Due {
    let entries = || live.meta().managed_fields.iter().flatten();
    let Some(theirs) = entries().filter(|entry| part.is_held_in::<K>(entry)).map(|entry| &entry.time).max() else {
        return Due::Never;
    };
    let own = entries().find(|entry| part.is_applied_in(entry, manager)).and_then(|entry| entry.time.as_ref());
    let left = |time: Option<&Time>| {
        let since = Duration::try_from(now.duration_since(time?.0)).unwrap_or_default();
        pause.checked_sub(since).filter(|left| !left.is_zero())
    };
    left(own).zip(left(theirs.as_ref())).map_or(Due::Now, |(own, theirs)| Due::After(own.min(theirs)))
}

/// Returns the names of the other field managers that own fields of this part.
pub fn holders<K: Known>(live: &K, part: Part) -> Vec<String> {
    let managers = live.meta().managed_fields.iter().flatten().filter(|entry| part.is_held_in::<K>(entry));
    let mut names: Vec<String> = managers.map(|entry| entry.manager.clone().unwrap_or_default()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the managed fields after `manager` has taken over these parts, as far as the schema of the kind knows their fields.
/// `None` if other managers own nothing.
pub fn taken_over(
    kind: &str,
    entries: &[ManagedFieldsEntry],
    manager: &str,
    parts: &[Part],
) -> Option<Vec<ManagedFieldsEntry>> {
    let mut entries = entries.to_vec();
    let mut news = false;
    for part in parts {
        let mut paths = Map::new();
        let mut version = None;
        for entry in entries.iter_mut().filter(|entry| !is_own(entry)) {
            let Some(held) = part.held(kind, entry) else { continue };
            part.release(entry, &held);
            unite(&mut paths, held);
            version.clone_from(&entry.api_version);
        }
        if paths.is_empty() {
            continue;
        }
        news = true;
        if !entries.iter().any(|entry| part.is_applied_in(entry, manager)) {
            entries.push(part.no_apply_yet(manager, version));
        }
        let own = entries.iter_mut().filter(|entry| part.is_applied_in(entry, manager));
        for fields in own.filter_map(|entry| entry.fields_v1.as_mut()?.0.as_object_mut()) {
            unite(fields, Map::from_iter([(part.field().to_owned(), Value::Object(std::mem::take(&mut paths)))]));
        }
    }
    entries.retain(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0 != Value::Object(Map::new())));
    news.then_some(entries)
}

/// True if an entry belongs to one of our managers. Fields of such an entry that are not from an apply were added by an admission
/// plugin to our write. After a take-over, it would add them again.
fn is_own(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref().is_some_and(|name| name.starts_with(meta::manager::PREFIX))
}

fn unite(all: &mut Map<String, Value>, more: Map<String, Value>) {
    for (path, below) in more {
        match (all.get_mut(&path), below) {
            (Some(Value::Object(all)), Value::Object(more)) => unite(all, more),
            (_, below) => drop(all.insert(path, below)),
        }
    }
}

/// Removes `some` from `all`, and the paths that this leaves empty.
fn subtract(all: &mut Map<String, Value>, some: &Map<String, Value>) {
    for (path, below) in some {
        if let (Some(Value::Object(left)), Value::Object(below)) = (all.get_mut(path), below) {
            subtract(left, below);
            if !left.is_empty() {
                continue;
            }
        }
        all.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::compute::{WorkloadDeployment, WorkloadDeploymentSpec};
    use serde_json::json;

    const WD: &str = "WorkloadDeployment";
    const ME: &str = "compute-operator-workload";

    #[allow(clippy::needless_pass_by_value)] // easier to read at the call
    fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({
            "manager": manager, "operation": operation, "subresource": subresource,
            "apiVersion": "compute.datumapis.com/v1alpha", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }))
        .unwrap()
    }

    fn fields(entries: &[ManagedFieldsEntry], manager: &str) -> Vec<Value> {
        let of = entries.iter().filter(|entry| entry.manager.as_deref() == Some(manager));
        of.map(|entry| entry.fields_v1.as_ref().unwrap().0.clone()).collect()
    }

    #[allow(clippy::needless_pass_by_value)] // easier to read at the call
    fn in_runtime(paths: Value) -> Value {
        json!({ "f:template": { "f:spec": { "f:runtime": paths } } })
    }

    /// A status has the same field names as a spec, so the subresource decides.
    #[test]
    fn trace_of_text_is_that_of_the_tree_each_time() {
        for fields in [
            json!({ "f:spec": { "f:cityCode": {} } }),
            json!({ "f:status": { "f:replicas": {} } }),
            json!({ "f:spec": { "f:replicas": {} } }),
            json!({ "f:spec": { "f:unknown": {} } }),
            json!({ "f:metadata": { "f:labels": { "f:f:spec": {} } } }),
        ] {
            for subresource in [None, Some("status"), None, Some("scale"), Some("status")] {
                let tree = entry("kubectl", "Update", subresource, fields.clone());
                let text = entry("kubectl", "Update", subresource, fields.to_string().into());
                assert_eq!(trace(WD, &text), trace(WD, &tree), "{subresource:?} {fields}");
            }
        }
        let own = entry(ME, "Update", None, json!({ "f:spec": { "f:cityCode": {} } }).to_string().into());
        assert_eq!(trace(WD, &own), None);
    }

    #[test]
    fn take_over_spec_paths_of_all_managers_become_ours() {
        let containers =
            |paths: Value| in_runtime(json!({ "f:sandbox": { "f:containers": { "k:{\"name\":\"c\"}": paths } } }));
        let mut go = json!({ "f:metadata": { "f:labels": { "f:theirs": {} } }, "f:spec": containers(json!({ ".": {}, "f:env": {} })) });
        go["f:spec"]["f:replicas"] = json!({});
        let before = [
            entry("manager", "Update", None, go),
            entry("manager", "Update", Some("status"), json!({ "f:status": { "f:replicas": {} } })),
            entry("kubectl-edit", "Update", None, json!({ "f:spec": { "f:cityCode": {} } })),
            entry("hand", "Apply", None, json!({ "f:spec": { "f:placementName": {} } })),
            entry("autoscaler", "Update", Some("scale"), json!({ "f:spec": { "f:replicas": {} } })),
            entry(
                ME,
                "Apply",
                None,
                json!({ "f:metadata": { "f:labels": { "f:ours": {} } }, "f:spec": containers(json!({ ".": {}, "f:image": {} })) }),
            ),
        ];
        let after = taken_over(WD, &before, ME, &[Part::Spec]).unwrap();
        let mut all = containers(json!({ ".": {}, "f:image": {}, "f:env": {} }));
        all["f:cityCode"] = json!({});
        all["f:placementName"] = json!({});
        assert_eq!(fields(&after, ME), [json!({ "f:metadata": { "f:labels": { "f:ours": {} } }, "f:spec": all })]);
        assert_eq!(
            fields(&after, "manager"),
            [
                json!({ "f:metadata": { "f:labels": { "f:theirs": {} } }, "f:spec": { "f:replicas": {} } }),
                json!({ "f:status": { "f:replicas": {} } }),
            ]
        );
        assert!(
            fields(&after, "kubectl-edit").is_empty() && fields(&after, "hand").is_empty(),
            "nothing is left to them"
        );
        assert_eq!(fields(&after, "autoscaler").len(), 1, "the autoscaler keeps its field");
        assert_eq!(taken_over(WD, &after, ME, &[Part::Spec]), None, "it happens once");
    }

    /// A take-over of all paths made our next apply remove the fields that our types do not know. Every Instance was replaced.
    #[test]
    fn take_over_unknown_fields_stay_with_their_manager() {
        let sandbox = |paths: Value| json!({ "f:containers": { "k:{\"name\":\"c\"}": paths } });
        let go = json!({
            ".": {}, "f:newer": {}, "f:resources": { ".": {}, "f:instanceType": {} },
            "f:sandbox": sandbox(json!({ ".": {}, "f:image": {}, "f:newer": { ".": {}, "f:runAsUser": {} } })),
        });
        let before = [entry("manager", "Update", None, json!({ "f:spec": in_runtime(go) }))];
        let after = taken_over(WD, &before, ME, &[Part::Spec]).unwrap();
        let ours = json!({
            ".": {}, "f:resources": { ".": {}, "f:instanceType": {} },
            "f:sandbox": sandbox(json!({ ".": {}, "f:image": {} })),
        });
        assert_eq!(fields(&after, ME), [json!({ "f:spec": in_runtime(ours) })]);
        let theirs =
            json!({ "f:newer": {}, "f:sandbox": sandbox(json!({ "f:newer": { ".": {}, "f:runAsUser": {} } })) });
        assert_eq!(fields(&after, "manager"), [json!({ "f:spec": in_runtime(theirs) })]);
        assert_eq!(taken_over(WD, &after, ME, &[Part::Spec]), None, "it happens once");
        let mut live = WorkloadDeployment::new("web", WorkloadDeploymentSpec::default());
        live.metadata.managed_fields = Some(after.clone());
        assert!(holders(&live, Part::Spec).is_empty(), "a manager of only unknown fields does not count");
        assert!(after.iter().all(|entry| trace(WD, entry).is_none()));
    }

    #[test]
    fn take_over_status_uses_its_subresource() {
        let go = entry("manager", "Update", Some("status"), json!({ "f:status": { "f:conditions": {} } }));
        let after = taken_over(WD, &[go], ME, &[Part::Spec, Part::Status]).unwrap();
        assert_eq!(after.len(), 1);
        let own = &after[0];
        assert_eq!((own.manager.as_deref(), own.operation.as_deref()), (Some(ME), Some("Apply")));
        assert_eq!(own.subresource.as_deref(), Some("status"));
        assert_eq!(own.fields_v1.as_ref().unwrap().0, json!({ "f:status": { "f:conditions": {} } }));
    }

    #[test]
    fn trace_contains_only_other_managers_of_spec_and_status() {
        let of = |manager: &str, fields: Value| trace(WD, &entry(manager, "Update", None, fields));
        assert!(
            of("manager", json!({ "f:spec": { "f:cityCode": {} } })).is_some_and(|trace| trace.fields_v1.is_none())
        );
        for (manager, fields) in [
            ("manager", json!({ "f:metadata": { "f:labels": { "f:a": {} } } })),
            ("scaler", json!({ "f:spec": { ".": {}, "f:replicas": {} } })),
            (ME, json!({ "f:spec": { "f:cityCode": {} } })),
            ("newer", json!({ "f:spec": in_runtime(json!({ "f:newer": {} })) })),
        ] {
            assert_eq!(of(manager, fields.clone()), None, "{manager} {fields}");
        }
        let mut live = WorkloadDeployment::new("web", WorkloadDeploymentSpec::default());
        live.metadata.managed_fields = Some(vec![
            of("manager", json!({ "f:spec": { "f:cityCode": {} } })).unwrap(),
            trace(WD, &entry("karmada", "Update", Some("status"), json!({ "f:status": { "f:conditions": {} } })))
                .unwrap(),
        ]);
        assert_eq!(holders(&live, Part::Spec), ["manager"]);
        assert_eq!(holders(&live, Part::Status), ["karmada"]);
    }
}
