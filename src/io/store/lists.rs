//! Complete lists and their effect on the cache.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use super::{Incoming, IndexValue, ObjectKey, Origin, Slot, Store, Uid};

impl<V, I: IndexValue> Store<V, I> {
    /// True if a complete list at `version` is older than the cache. Without a restore, no object gets older.
    pub fn is_older(&self, objects: &[Incoming<V>], version: u64) -> bool {
        let inner = self.read();
        // An object that we wrote after the list was taken is not in the list, but exists.
        let was_newer = |of: &Incoming<V>, slot: &Slot<V>| {
            slot.version <= version && 0 < of.version && of.version < slot.version && Uid::of(&of.uid) == slot.uid
        };
        let is_older = |of: &Incoming<V>| inner.entries.get(&of.key).is_some_and(|slot| was_newer(of, slot));
        inner.is_rewound(version) || objects.iter().any(is_older)
    }

    /// Takes a complete list at `version`. Calls the listener for every difference, also for deletions without an event.
    pub fn replace(&self, objects: Vec<Incoming<V>>, version: u64) {
        let rewound = {
            let mut inner = self.write();
            let rewound = inner.is_rewound(version);
            if rewound {
                inner.passed = 0;
            }
            rewound
        };
        let listed: BTreeSet<ObjectKey> = objects.iter().map(|o| o.key.clone()).collect();
        for object in objects {
            self.take(object, Origin::List { version, rewound });
        }
        let vanished: Vec<(ObjectKey, String)> = {
            let inner = self.read();
            let gone = |slot: &Slot<V>| rewound || slot.version <= version;
            let gone = inner.entries.iter().filter(|(key, slot)| !listed.contains(&***key) && gone(slot));
            gone.map(|(key, slot)| ((**key).clone(), slot.uid.to_string())).collect()
        };
        for (key, uid) in vanished {
            self.forget(&key, &uid);
        }
        self.pass(version);
        self.set_live(true);
        self.synced.store(true, Ordering::Release);
    }
}
