//! Parts of an object that are ours whole, and what others own of them: how it becomes ours.
//!
//! The Go operator wrote with plain updates, which leave every field that it wrote to its field manager. An apply removes a
//! field only when nobody else owns it; so a field of such an object that we apply no more would stay for ever. Ownership
//! therefore passes to us first, by path and whoever holds it, in one write that changes nothing but `managedFields`. From
//! then on an apply of ours says all there is, and no write shows half of a change.
//!
//! A field that our own definition does not know cannot be in an apply of ours, which would then remove it. Such a field, of
//! a newer version, stays with whoever holds it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
use serde_json::{Map, Value};

use super::{Known, schema};
use crate::api::meta;

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What is wanted.
    Spec,
    /// What has come of it.
    Status,
}

/// The field of a spec that stays with whoever owns it: we apply it always, so that it is never left behind, and where
/// somebody else scales it is his.
const REPLICAS: &str = "f:replicas";

impl Part {
    const ALL: [Self; 2] = [Self::Spec, Self::Status];

    /// This part and no other.
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

    /// Whether an entry speaks of this part: what is said of a status is said through its subresource.
    fn is_spoken_of_by(self, entry: &ManagedFieldsEntry) -> bool {
        (entry.subresource.as_deref() == Some("status")) == (self == Self::Status)
    }

    /// The paths below this part that `entry` holds and that are to be ours.
    fn held(self, kind: &str, entry: &ManagedFieldsEntry) -> Option<Map<String, Value>> {
        let fields = &entry.fields_v1.as_ref().filter(|_| self.is_spoken_of_by(entry))?.0;
        let mut paths = schema::known(kind, self.field(), fields.get(self.field())?.as_object()?);
        paths.remove(REPLICAS);
        paths.keys().any(|path| path != ".").then_some(paths)
    }

    /// Whether somebody else holds something of this part in `entry`, which may be a trace.
    fn is_held_in<K: Known>(self, entry: &ManagedFieldsEntry) -> bool {
        let (_, kind, _) = K::KIND.gvk();
        !is_own(entry) && self.is_spoken_of_by(entry) && (entry.fields_v1.is_none() || self.held(kind, entry).is_some())
    }

    /// Takes `held` out of what `entry` holds.
    fn release(self, entry: &mut ManagedFieldsEntry, held: &Map<String, Value>) {
        let Some(Value::Object(fields)) = entry.fields_v1.as_mut().map(|fields| &mut fields.0) else { return };
        let Some(Value::Object(left)) = fields.get_mut(self.field()) else { return };
        subtract(left, held);
        if left.is_empty() {
            fields.remove(self.field());
        }
    }

    /// That entry, when nothing has been applied yet.
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

    /// Whether this is the entry in which our own applies of this part are booked.
    fn is_applied_in(self, entry: &ManagedFieldsEntry, manager: &str) -> bool {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == (self == Self::Status).then_some("status")
    }
}

/// What is kept of another's entry in an object of this kind: that it holds something of a spec or a status. What exactly is
/// read again when it is taken over, which happens once.
pub fn trace(kind: &str, entry: &ManagedFieldsEntry) -> Option<ManagedFieldsEntry> {
    let holds = Part::ALL.into_iter().any(|part| part.held(kind, entry).is_some());
    (holds && !is_own(entry)).then(|| ManagedFieldsEntry {
        manager: entry.manager.clone(),
        subresource: entry.subresource.clone(),
        time: entry.time.clone(),
        ..ManagedFieldsEntry::default()
    })
}

/// What is kept of an object in which no field manager is named: the server will name one at our first apply, and everything
/// that is there before it will be that one's.
pub fn trace_of_nobody() -> ManagedFieldsEntry {
    ManagedFieldsEntry { manager: Some("before-first-apply".into()), ..ManagedFieldsEntry::default() }
}

/// Whether what others hold of a part is to be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// They hold nothing.
    Never,
    /// Now.
    Now,
    /// After this long, if they still hold it then.
    After(Duration),
}

/// When `manager` is to take over what others hold of this part. Where both have written within `pause`, the other one takes
/// back what we take, and is not followed at that pace.
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

/// Names of the other field managers that hold something of this part.
pub fn holders<K: Known>(live: &K, part: Part) -> Vec<String> {
    let managers = live.meta().managed_fields.iter().flatten().filter(|entry| part.is_held_in::<K>(entry));
    let mut names: Vec<String> = managers.map(|entry| entry.manager.clone().unwrap_or_default()).collect();
    names.sort();
    names.dedup();
    names
}

/// The managed fields of an object of this kind once `manager` holds all that others hold of these parts, as far as the
/// kind's definition knows it. `None` when they hold nothing.
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

/// What our own managers hold otherwise than by an apply is what an admission plugin put into a write of ours: taken from
/// it, it would be put in again.
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

/// Takes `some` out of `all`, and what is left empty by that.
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

    #[allow(clippy::needless_pass_by_value)] // reads better where it is called
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

    #[allow(clippy::needless_pass_by_value)] // reads better where it is called
    fn in_runtime(paths: Value) -> Value {
        json!({ "f:template": { "f:spec": { "f:runtime": paths } } })
    }

    #[test]
    fn paths_of_the_spec_pass_whoever_holds_them_and_the_rest_stays() {
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
        assert_eq!(fields(&after, "autoscaler").len(), 1, "who scales goes on scaling");
        assert_eq!(taken_over(WD, &after, ME, &[Part::Spec]), None, "it happens once");
    }

    /// Found by reading: with all paths ours, our next apply removed the fields that our types do not know, and every
    /// instance was replaced.
    #[test]
    fn what_our_definition_does_not_know_stays_with_whoever_holds_it() {
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
        assert!(holders(&live, Part::Spec).is_empty(), "who holds nothing else is no holder");
        assert!(after.iter().all(|entry| trace(WD, entry).is_none()));
    }

    #[test]
    fn a_status_passes_in_its_own_subresource() {
        let go = entry("manager", "Update", Some("status"), json!({ "f:status": { "f:conditions": {} } }));
        let after = taken_over(WD, &[go], ME, &[Part::Spec, Part::Status]).unwrap();
        assert_eq!(after.len(), 1);
        let own = &after[0];
        assert_eq!((own.manager.as_deref(), own.operation.as_deref()), (Some(ME), Some("Apply")));
        assert_eq!(own.subresource.as_deref(), Some("status"));
        assert_eq!(own.fields_v1.as_ref().unwrap().0, json!({ "f:status": { "f:conditions": {} } }));
    }

    #[test]
    fn a_trace_tells_of_others_and_of_nothing_but_spec_and_status() {
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
