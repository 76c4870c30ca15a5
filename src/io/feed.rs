//! The part of an object that a cache keeps, and the feed of our own writes' answers into the cache.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Resource;

use super::{
    clients::Sink,
    encoded::Encoded,
    store::{Incoming, IndexValue, ObjectKey, Store},
    watched::Watched,
};
use crate::{
    api::meta::manager,
    plan::{Kind, Object, diff, takeover},
};

/// Removes the managed fields that no decision reads. Keeps our own applies, packed. Of other managers, keeps a trace of the
/// entries whose fields may have to become ours. `kind` is the kind of the object. An object without managed fields (restored, or
/// emptied by a user) gets a trace too, because the owner of its fields is unknown.
pub(crate) fn pruned<K: Resource>(kind: &str, mut object: K) -> K {
    if object.meta().managed_fields.is_none() {
        object.meta_mut().managed_fields = Some(vec![takeover::trace_of_nobody()]);
    } else if let Some(entries) = &mut object.meta_mut().managed_fields {
        let kept = |mut entry: ManagedFieldsEntry| {
            let own = entry.manager.as_deref().is_some_and(|m| m.starts_with(manager::PREFIX));
            let applied = own && entry.operation.as_deref() == Some("Apply");
            if let Some(fields) = entry.fields_v1.as_mut().filter(|_| applied) {
                diff::pack(fields); // objects of which only metadata is read have trees
            }
            match entry.manager.as_deref() {
                _ if applied => Some(entry),
                // Keep only the time of the entry, by the server's clock.
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

/// Feeds the answers to our own writes into the store of a watch. They are decoded as the watch decodes its events.
pub struct Feed<W: Watched, V, I = String> {
    /// Makes the cached value of an object.
    pub keep: fn(W::Object) -> V,
    /// True if the value is cached.
    pub about: fn(&V) -> bool,
    /// The cache.
    pub store: Arc<Store<V, I>>,
}

impl<W, V, I> Sink for Feed<W, V, I>
where
    W: Watched,
    V: Send + Sync,
    I: IndexValue,
{
    fn wrote(&self, kind: Kind, object: &Encoded) {
        let frame = Incoming::<V>::of(object.identity(), None);
        // The watch was faster.
        if self.store.is_late(&frame.key, frame.version) {
            return;
        }
        // If our own write cannot be decoded, the watch delivers it too and reports it.
        if let Ok(object) = object.decode::<W::Object>() {
            let value = (self.keep)(pruned(kind.gvk().1, object));
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use serde_json::json;

    use super::*;
    use crate::{
        api::compute::{Workload, WorkloadSpec},
        io::watched::Guarded,
        plan::takeover::Part,
    };

    /// The fields of an object without managed fields counted as owned by no one, so they were never taken over.
    #[test]
    fn pruned_object_without_managed_fields_has_a_trace() {
        let mut workload = Workload::new("web", WorkloadSpec::default());
        let holders = |object: Workload| takeover::holders(&pruned("Workload", object), Part::Spec);
        assert_eq!(holders(workload.clone()), ["before-first-apply"]);
        workload.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
            manager: Some("kubectl".into()),
            operation: Some("Update".into()),
            ..ManagedFieldsEntry::default()
        }]);
        assert!(holders(workload).is_empty(), "another manager owns none of our fields");
    }

    /// The watch decodes sets of fields as text.
    #[test]
    fn pruned_object_keeps_a_trace_of_other_managers_and_own_applies_as_text() {
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
        assert!(sets.all(|set| set.0.is_string()), "no set is decoded as a tree: {read:?}");
        let kept = pruned("Workload", read);
        assert_eq!(takeover::holders(&kept, Part::Spec), ["kubectl"]);
        let fields: Vec<_> =
            kept.metadata.managed_fields.iter().flatten().map(|entry| entry.fields_v1.clone()).collect();
        let text = json!(r#"{"f:spec":{"f:placements":{}}}"#);
        assert_eq!(fields, [None, Some(FieldsV1(text))]);
    }

    #[test]
    fn pruned_repair_entry_keeps_only_its_time() {
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

    /// An answer that comes after the event of the watch was decoded and packed, and then dropped.
    #[test]
    fn feed_answer_that_is_late_is_not_decoded() {
        static DECODED: AtomicUsize = AtomicUsize::new(0);
        let keep = |workload: Workload| {
            DECODED.fetch_add(1, Ordering::Relaxed);
            workload
        };
        let store = Arc::new(Store::<Workload>::new(|_, _| Vec::new()));
        let feed = Feed::<Guarded<Workload>, _> { keep, about: |_| true, store };
        for (passed, decoded) in [(4, 1), (5, 1), (6, 1)] {
            feed.store.pass(passed);
            let mut workload = Workload::new("web", WorkloadSpec::default());
            workload.metadata.resource_version = Some("5".into());
            feed.wrote(Kind::Workload, &Encoded::of(&serde_json::to_string(&workload).unwrap()).unwrap());
            assert_eq!(DECODED.load(Ordering::Relaxed), decoded, "the watch is at {passed}");
        }
    }

    #[test]
    fn feed_answer_that_is_not_cached_is_dropped() {
        let store = Arc::new(Store::<Workload>::new(|_, _| Vec::new()));
        let about = |workload: &Workload| workload.metadata.name.as_deref() == Some("kept");
        let feed = Feed::<Guarded<Workload>, _> { keep: |workload| workload, about, store };
        for name in ["kept", "other"] {
            let mut workload = Workload::new(name, WorkloadSpec::default());
            workload.metadata.resource_version = Some("5".into());
            feed.wrote(Kind::Workload, &Encoded::of(&serde_json::to_string(&workload).unwrap()).unwrap());
        }
        assert_eq!(feed.store.keys(), [ObjectKey::new("", "kept")]);
    }
}
