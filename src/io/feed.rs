//! The part of an object that a cache keeps, and the feed of answers to our own writes into the cache.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    clients::Sink,
    store::{Incoming, IndexValue, ObjectKey, Store},
};
use crate::{
    api::meta::manager,
    plan::{Object, diff, takeover},
};

/// Drops what no decision reads: every field manager's book-keeping but that of our own applies, which is packed, and a
/// trace of others' that hold something which may have to be ours. `kind` is the object's. Where no book is kept at all (an
/// object that was restored, or whose book somebody has emptied) nobody knows who wrote what, and that leaves a trace too.
pub(crate) fn pruned<K: Resource>(kind: &str, mut object: K) -> K {
    if object.meta().managed_fields.is_none() {
        object.meta_mut().managed_fields = Some(vec![takeover::trace_of_nobody()]);
    } else if let Some(entries) = &mut object.meta_mut().managed_fields {
        let kept = |mut entry: ManagedFieldsEntry| {
            let own = entry.manager.as_deref().is_some_and(|m| m.starts_with(manager::PREFIX));
            let applied = own && entry.operation.as_deref() == Some("Apply");
            if let Some(fields) = entry.fields_v1.as_mut() {
                // The watch brings text, the answer to a write a tree.
                if applied { diff::pack(fields) } else { diff::unpack(fields) }
            }
            match entry.manager.as_deref() {
                _ if applied => Some(entry),
                // When it was, by the server's clock.
                Some(manager::REPAIR) => {
                    Some(ManagedFieldsEntry { fields_v1: None, fields_type: None, api_version: None, ..entry })
                }
                _ => takeover::trace(kind, &entry),
            }
        };
        *entries = std::mem::take(entries).into_iter().filter_map(kept).collect();
        entries.shrink_to_fit();
    }
    object
}

/// Feeds the answers to our own writes into a watch's store.
pub struct Feed<K, V, I = String> {
    /// Makes the value that is kept of an object.
    pub keep: fn(K) -> V,
    /// True if such a value is kept.
    pub about: fn(&V) -> bool,
    /// The cache.
    pub store: Arc<Store<V, I>>,
}

impl<K, V, I> Sink for Feed<K, V, I>
where
    K: Resource + DeserializeOwned,
    V: Send + Sync,
    I: IndexValue,
{
    fn wrote(&self, object: Value) {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        // What we wrote and cannot read back comes by the watch, which reports it.
        if let Ok(object) = serde_json::from_value::<K>(object) {
            let frame = Incoming::<V>::new(&object, None);
            let value = (self.keep)(pruned(&kind, object));
            if (self.about)(&value) {
                self.store.wrote(Incoming { value: Some(Arc::new(value)), ..frame });
            }
        }
    }

    fn removed(&self, object: &Object, uid: &str) {
        self.store.forget(&ObjectKey::new(&object.namespace, &object.name), uid);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use serde_json::json;

    use super::*;
    use crate::{
        api::compute::{Workload, WorkloadSpec},
        io::watched::{Guarded, Watched},
        plan::takeover::Part,
    };

    /// Found by reading: what stood in an object that had lost its book was nobody's, and was never looked at.
    #[test]
    fn an_object_without_a_book_leaves_a_trace_and_one_with_our_own_leaves_none() {
        let mut workload = Workload::new("web", WorkloadSpec::default());
        let holders = |object: Workload| takeover::holders(&pruned("Workload", object), Part::Spec);
        assert_eq!(holders(workload.clone()), ["before-first-apply"]);
        workload.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
            manager: Some("kubectl".into()),
            operation: Some("Update".into()),
            ..ManagedFieldsEntry::default()
        }]);
        assert!(holders(workload).is_empty(), "somebody keeps it, who holds nothing of ours");
    }

    /// As a watch reads an object, where such sets are text.
    #[test]
    fn what_somebody_holds_of_an_object_leaves_a_trace_and_what_we_applied_stays_text() {
        let own = format!("{}workload", manager::PREFIX);
        let entry = |manager: &str, operation: &str| {
            let fields = json!({ "f:spec": { "f:placements": {} } });
            json!({ "manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields })
        };
        let mut workload = serde_json::to_value(Workload::new("web", WorkloadSpec::default())).unwrap();
        workload["metadata"]["managedFields"] = json!([entry("kubectl", "Update"), entry(&own, "Apply")]);
        let read: Guarded<Workload> = serde_json::from_str(&workload.to_string()).unwrap();
        let read = read.open().unwrap();
        let mut sets = read.metadata.managed_fields.iter().flatten().map(|entry| entry.fields_v1.as_ref().unwrap());
        assert!(sets.all(|set| set.0.is_string()), "none is read as a tree: {read:?}");
        let kept = pruned("Workload", read);
        assert_eq!(takeover::holders(&kept, Part::Spec), ["kubectl"]);
        let fields: Vec<_> =
            kept.metadata.managed_fields.iter().flatten().map(|entry| entry.fields_v1.clone()).collect();
        let text = json!(r#"{"f:spec":{"f:placements":{}}}"#);
        assert_eq!(fields, [None, Some(FieldsV1(text))]);
    }

    #[test]
    fn repair_leaves_its_time_and_holds_nothing() {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::from_second(9).unwrap());
        let mut workload = Workload::new("web", WorkloadSpec::default());
        workload.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
            manager: Some(manager::REPAIR.into()),
            operation: Some("Update".into()),
            fields_v1: Some(FieldsV1(json!({ "f:metadata": { "f:annotations": {} } }))),
            time: Some(time.clone()),
            ..ManagedFieldsEntry::default()
        }]);
        let kept = pruned("Workload", workload);
        assert!(takeover::holders(&kept, Part::Spec).is_empty());
        let [entry] = &kept.metadata.managed_fields.unwrap()[..] else { panic!("it is not kept") };
        assert_eq!((&entry.time, &entry.fields_v1), (&Some(time), &None));
    }

    #[test]
    fn an_answer_about_what_is_not_kept_is_not_kept() {
        let store = Arc::new(Store::<Workload>::new(|_, _| Vec::new()));
        let feed =
            Feed { keep: |w: Workload| w, about: |w: &Workload| w.metadata.name.as_deref() == Some("kept"), store };
        for name in ["kept", "other"] {
            let mut workload = Workload::new(name, WorkloadSpec::default());
            workload.metadata.resource_version = Some("5".into());
            feed.wrote(serde_json::to_value(workload).unwrap());
        }
        assert_eq!(feed.store.keys(), [ObjectKey::new("", "kept")]);
    }
}
