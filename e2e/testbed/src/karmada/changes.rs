//! Counts the changes of each object's content in the order of the watch. A change that is reverted between two passes counts as
//! two changes (fact 73).

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kube::{ResourceExt, api::DynamicObject, runtime::watcher::Event};

use super::cache::content;

/// For each object by uid: its last known content, and the number of changes.
#[derive(Default)]
pub(super) struct Changes(Mutex<HashMap<String, (String, u64)>>);

impl Changes {
    /// Records an event of a watch. A new list is compared with the last known content, as in Karmada's informers.
    pub(super) fn hear(&self, event: &Event<DynamicObject>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let now = content(object);
                let (content, times) = all.entry(object.uid().unwrap_or_default()).or_default();
                if *content != now {
                    (*content, *times) = (now, *times + 1);
                }
            }
            Event::Delete(object) => {
                all.remove(&object.uid().unwrap_or_default());
            }
            Event::Init | Event::InitDone => {}
        }
    }

    /// Returns the number of changes of each object, by uid. A caller who reads this before the objects never sees older objects.
    pub(super) fn so_far(&self) -> HashMap<String, u64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(uid, (_, times))| (uid.clone(), *times)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reverted_change_counts_twice_and_a_status_change_does_not() {
        let changes = Changes::default();
        let object = |mark: &str, status: u32| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "status": status,
                "metadata": { "name": "a", "uid": "u", "annotations": { "mark": mark } },
            }))
            .unwrap()
        };
        let mut seen = Vec::new();
        for event in [
            Event::InitApply(object("", 1)),
            Event::Apply(object("", 2)),
            Event::Apply(object("x", 2)),
            Event::Apply(object("", 2)),
            Event::InitApply(object("", 3)),
        ] {
            changes.hear(&event);
            seen.push(changes.so_far()["u"]);
        }
        assert_eq!(seen, [1, 1, 2, 3, 3]);
        changes.hear(&Event::Delete(object("", 3)));
        assert!(changes.so_far().is_empty());
    }
}
