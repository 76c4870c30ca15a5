//! Complete lists: what they change, and how they are taken over.

use std::{
    collections::{BTreeSet, HashMap},
    sync::atomic::Ordering,
};

use super::{Incoming, IndexValue, Listed, Lost, ObjectKey, Origin, Slot, Store, Uid};

impl<V, I: IndexValue> Store<V, I> {
    /// What a complete list at `version` will change beside the objects in it.
    pub fn compare(&self, objects: &[Incoming<V>], version: u64) -> Listed {
        let inner = self.read();
        let rewound = inner.is_rewound(version);
        let listed: HashMap<&ObjectKey, &Incoming<V>> = objects.iter().map(|object| (&object.key, object)).collect();
        // What we wrote after the list was taken is not in it, and is there all the same.
        let counts = |slot: &Slot<V>| rewound || slot.version <= version;
        let is_it = |of: &Incoming<V>, slot: &Slot<V>| !self.by_uid || Uid::of(&of.uid) == slot.uid;
        let (mut missing, mut older) = (Vec::new(), false);
        for (key, slot) in inner.entries.iter().filter(|(_, slot)| counts(slot)) {
            let found = listed.get(&**key);
            // No object is older than it was, unless all of them are.
            older |=
                found.is_some_and(|of| 0 < of.version && of.version < slot.version && Uid::of(&of.uid) == slot.uid);
            if found.is_none_or(|of| !is_it(of, slot)) {
                let uid = if self.by_uid { slot.uid.to_string() } else { String::new() };
                missing.push(Lost { key: (**key).clone(), uid });
            }
        }
        Listed { another_history: rewound || older, known: inner.entries.len(), missing }
    }

    /// A complete list at `version`: takes it all over, and calls the listener for every difference, so that it learns of
    /// deletions that no event brought.
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
