//! The cache behind a watch. It holds the facts of each object that decisions need, found by name or by index.
//!
//! It also takes the answers to our own writes, so a reconcile never sees an object older than its last write. Versions only move
//! forward, and an answer that the watch has already passed is dropped. If a complete list is older than the cache, etcd was
//! restored from a backup, and the cached content is invalid.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub use super::cache::{Before, Cache, Change, Incoming, Inherit, ObjectKey, Only};
use super::{reads::count as counted, uid::Uid};

/// The source of an object.
#[derive(Clone, Copy)]
enum Origin {
    Watch,
    /// A complete list of this version. `rewound`: the list is older than the cache.
    List {
        version: u64,
        rewound: bool,
    },
    OwnWrite,
}

impl<V: Send + Sync, I: IndexValue> Cache<V> for Store<V, I> {
    fn wants(&self, key: &ObjectKey) -> bool {
        (self.wants)(key)
    }

    fn is_older(&self, objects: &[Incoming<V>], version: u64) -> bool {
        Self::is_older(self, objects, version)
    }

    fn replace(&self, objects: Vec<Incoming<V>>, version: u64) {
        Self::replace(self, objects, version);
    }

    fn observe(&self, object: Incoming<V>) {
        Self::observe(self, object);
    }

    fn is_known(&self, key: &ObjectKey, version: u64) -> bool {
        Self::is_known(self, key, version)
    }

    fn forget(&self, key: &ObjectKey, uid: &str) {
        Self::forget(self, key, uid);
    }

    fn pass(&self, version: u64) {
        Self::pass(self, version);
    }

    fn set_live(&self, live: bool) {
        Self::set_live(self, live);
    }
}

/// A value that objects are indexed by.
pub trait IndexValue: Hash + Eq + Send + Sync + 'static {}

impl<I: Hash + Eq + Send + Sync + 'static> IndexValue for I {}

type Listener<V> = Box<dyn Fn(&Change<'_, V>) + Send + Sync>;
type NamespaceListener = Box<dyn Fn(&str) + Send + Sync>;
type Index<V, I> = fn(&ObjectKey, &V) -> Vec<I>;

/// A cache of `V`s, found by name or by an index of `I`s.
pub struct Store<V, I = String> {
    inner: RwLock<Inner<V, I>>,
    index: Index<V, I>,
    wants: fn(&ObjectKey) -> bool,
    inherit: Option<Inherit<V>>,
    synced: AtomicBool,
    /// True if the watch delivers every change, as far as we know.
    live: AtomicBool,
    /// Counts the changes.
    changes: AtomicU64,
    listener: OnceLock<Listener<V>>,
    on_readable: OnceLock<NamespaceListener>,
}

struct Inner<V, I> {
    /// By keys that are shared with `by_index`, where an object has several places.
    entries: HashMap<Arc<ObjectKey>, Slot<V>>,
    by_index: HashMap<I, BTreeSet<Arc<ObjectKey>>>,
    /// Entries without a value. There are hardly ever any.
    unreadable: BTreeSet<ObjectKey>,
    /// Newest version that the watch has delivered.
    passed: u64,
}

struct Slot<V> {
    uid: Uid,
    version: u64,
    value: Option<Arc<V>>,
}

impl<V, I: IndexValue> Store<V, I> {
    /// Creates an empty cache. `index` returns the index values of an object.
    pub fn new(index: Index<V, I>) -> Self {
        Self::of_those(|_| true, index)
    }

    /// Creates an empty cache for objects with these keys only.
    pub fn of_those(wants: fn(&ObjectKey) -> bool, index: Index<V, I>) -> Self {
        let inner = Inner { entries: HashMap::new(), by_index: HashMap::new(), unreadable: BTreeSet::new(), passed: 0 };
        Self {
            inner: RwLock::new(inner),
            index,
            wants,
            inherit: None,
            synced: AtomicBool::new(false),
            live: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            listener: OnceLock::new(),
            on_readable: OnceLock::new(),
        }
    }

    /// Creates an empty cache of objects that inherit facts of their earlier versions.
    pub fn inheriting(inherit: Inherit<V>, index: Index<V, I>) -> Self {
        Self { inherit: Some(inherit), ..Self::new(index) }
    }

    /// Sets the listener for changes. Call it once, before the watch starts.
    pub fn listen(&self, listener: impl Fn(&Change<'_, V>) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Sets the listener for namespaces in which every object can be decoded again, so that waiting work may continue. Call it
    /// once, before the watch starts.
    pub fn listen_readable(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.on_readable.set(Box::new(listener));
    }

    /// True if the first list is complete. Before that, no object is known to be absent.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// True if the first list is complete and the watch works. Then the cache is as current as it can be.
    pub fn is_live(&self) -> bool {
        self.is_synced() && self.live.load(Ordering::Acquire)
    }

    /// Sets if the watch works.
    pub fn set_live(&self, live: bool) {
        self.live.store(live, Ordering::Release);
    }

    /// Returns the object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        counted(1);
        self.read().entries.get(key)?.value.clone()
    }

    /// Returns the object of this name, with its version.
    pub fn get_versioned(&self, key: &ObjectKey) -> Option<(Arc<V>, u64)> {
        counted(1);
        let inner = self.read();
        let slot = inner.entries.get(key)?;
        Some((slot.value.clone()?, slot.version))
    }

    /// True if the object of this name exists, even if it cannot be decoded.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.read().entries.contains_key(key)
    }

    /// Returns every object of this index value, sorted by key.
    pub fn by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Vec<Arc<V>>
    where
        I: Borrow<Q>,
    {
        let inner = self.read();
        let keys = inner.by_index.get(value).into_iter().flatten();
        keys.inspect(|_| counted(1)).filter_map(|key| inner.entries.get(key)?.value.clone()).collect()
    }

    /// Returns every object of this index value that can be decoded, with its key, sorted by key.
    pub fn entries_by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Vec<(ObjectKey, Arc<V>)>
    where
        I: Borrow<Q>,
    {
        let inner = self.read();
        let keys = inner.by_index.get(value).into_iter().flatten();
        keys.inspect(|_| counted(1))
            .filter_map(|key| Some(((**key).clone(), inner.entries.get(key)?.value.clone()?)))
            .collect()
    }

    /// Returns the keys of this index value.
    pub fn keys_by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Vec<ObjectKey>
    where
        I: Borrow<Q>,
    {
        let inner = self.read();
        let keys = inner.by_index.get(value).into_iter().flatten();
        keys.inspect(|_| counted(1)).map(|key| (**key).clone()).collect()
    }

    /// True if `is` is true for an object of this index value that can be decoded.
    pub fn any_by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q, is: impl Fn(&ObjectKey, &V) -> bool) -> bool
    where
        I: Borrow<Q>,
    {
        let inner = self.read();
        let mut keys = inner.by_index.get(value).into_iter().flatten().inspect(|_| counted(1));
        keys.any(|key| inner.entries.get(key).and_then(|slot| slot.value.as_ref()).is_some_and(|value| is(key, value)))
    }

    /// Returns the number of objects of this index value.
    pub fn count_by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> usize
    where
        I: Borrow<Q>,
    {
        self.read().by_index.get(value).map_or(0, |keys| keys.len())
    }

    /// Returns every key.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.read().entries.keys().inspect(|_| counted(1)).map(|key| (**key).clone()).collect()
    }

    /// Returns the number of objects.
    pub fn count(&self) -> usize {
        self.read().entries.len()
    }

    /// Returns every object that can be decoded, with its key.
    pub fn entries(&self) -> Vec<(ObjectKey, Arc<V>)> {
        let inner = self.read();
        inner
            .entries
            .iter()
            .inspect(|_| counted(1))
            .filter_map(|(key, slot)| Some(((**key).clone(), slot.value.clone()?)))
            .collect()
    }

    /// Returns every object that can be decoded.
    pub fn values(&self) -> Vec<Arc<V>> {
        self.read().entries.values().inspect(|_| counted(1)).filter_map(|slot| slot.value.clone()).collect()
    }

    /// Returns the number of changes so far. A conclusion from all objects holds while this is the same.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Takes an object that the watch delivered.
    pub fn observe(&self, object: Incoming<V>) {
        self.take(object, Origin::Watch);
    }

    /// Takes the answer to our own write.
    pub fn wrote(&self, object: Incoming<V>) {
        self.take(object, Origin::OwnWrite);
    }

    /// Removes the object with this uid.
    pub fn forget(&self, key: &ObjectKey, uid: &str) {
        let (old, readable) = {
            let mut inner = self.write();
            if inner.entries.get(key).is_none_or(|slot| slot.uid != Uid::of(uid)) {
                return;
            }
            let old = inner.entries.remove(key).and_then(|slot| slot.value);
            let readable = inner.becomes_readable(key);
            inner.unindex(self.index, key, old.as_deref());
            (old, readable)
        };
        self.notify(&Change { key, old: old.as_ref(), new: None }, readable);
    }

    /// Records that the watch has delivered everything up to this version.
    pub fn pass(&self, version: u64) {
        let mut inner = self.write();
        inner.passed = inner.passed.max(version);
    }

    /// True if [`Self::observe`] would drop this version of the object. Then it records that the watch has delivered the version.
    pub fn is_known(&self, key: &ObjectKey, version: u64) -> bool {
        // One lock for both, as in `take`: a late answer to an own write must not come between them.
        let mut inner = self.write();
        let known = inner.stands(key, version);
        if known {
            inner.passed = inner.passed.max(version);
        }
        known
    }

    /// True if [`Self::wrote`] would drop this version of the object.
    pub fn is_late(&self, key: &ObjectKey, version: u64) -> bool {
        self.read().is_late(key, version)
    }

    fn take(&self, object: Incoming<V>, origin: Origin) {
        let Incoming { key, uid, version, mut value } = object;
        let uid = Uid::of(&uid);
        let (old, readable) = {
            let mut inner = self.write();
            match origin {
                Origin::Watch => inner.passed = inner.passed.max(version),
                Origin::OwnWrite if inner.is_late(&key, version) => return,
                Origin::OwnWrite => {}
                // A complete list contains the newest version of everything. A cached version that is newer than the listed
                // object but not newer than the list is from before a restore.
                Origin::List { version: of_list, rewound } => {
                    let newer = |slot: &Slot<V>| slot.version > of_list && !rewound;
                    let same = |slot: &Slot<V>| slot.uid == uid && slot.version == version && version > 0;
                    if inner.entries.get(&key).is_some_and(|slot| newer(slot) || same(slot)) {
                        return;
                    }
                }
            }
            let listed = matches!(origin, Origin::List { .. });
            if !listed && inner.stands(&key, version) {
                return;
            }
            if let Some((inherit, value)) = self.inherit.zip(value.as_mut().and_then(Arc::get_mut)) {
                let known = inner.entries.get(&key).filter(|slot| slot.uid == uid);
                let (before, next) = match origin {
                    Origin::List { rewound: true, .. } => (Before::Unknown, None),
                    Origin::List { .. } => (known.map_or(Before::Unknown, Slot::before), None),
                    Origin::Watch | Origin::OwnWrite => (known.map_or(Before::Nothing, Slot::before), Some(version)),
                };
                inherit(value, &before, next);
            }
            let readable = value.is_some() && inner.becomes_readable(&key);
            if value.is_none() {
                inner.unreadable.insert(key.clone());
            }
            let new = Slot { uid, version, value: value.clone() };
            let known = inner.entries.get_key_value(&key).map(|(known, _)| known.clone());
            let shared = known.unwrap_or_else(|| Arc::new(key.clone()));
            let old = inner.entries.insert(shared.clone(), new).and_then(|slot| slot.value);
            inner.unindex(self.index, &key, old.as_deref());
            for at in value.as_deref().map(|value| (self.index)(&key, value)).into_iter().flatten() {
                inner.by_index.entry(at).or_default().insert(shared.clone());
            }
            (old, readable)
        };
        self.notify(&Change { key: &key, old: old.as_ref(), new: value.as_ref() }, readable);
    }

    /// Notifies the listeners of a change. `readable`: true if this was the last object of its namespace that could not be
    /// decoded.
    fn notify(&self, change: &Change<'_, V>, readable: bool) {
        self.changes.fetch_add(1, Ordering::Release);
        if let Some(listener) = self.listener.get() {
            listener(change);
        }
        if let Some(listener) = self.on_readable.get().filter(|_| readable) {
            listener(&change.key.namespace);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner<V, I>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner<V, I>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Slot<V> {
    fn before(&self) -> Before<'_, V> {
        self.value.as_deref().map_or(Before::Unknown, Before::Known)
    }
}

impl<V, I: IndexValue> Inner<V, I> {
    /// True if a complete list at `version` is older than the cache.
    fn is_rewound(&self, version: u64) -> bool {
        version > 0 && version < self.passed
    }

    /// True if this or a later version is cached. This holds for any uid: a late event of a deleted object must not replace the
    /// object created after it.
    fn stands(&self, key: &ObjectKey, version: u64) -> bool {
        version > 0 && self.entries.get(key).is_some_and(|slot| slot.version >= version)
    }

    /// True if the answer to an own write comes too late: the watch is newer, and may have seen the deletion.
    fn is_late(&self, key: &ObjectKey, version: u64) -> bool {
        version <= self.passed || self.stands(key, version)
    }

    fn has_unreadable(&self, namespace: &str) -> bool {
        self.unreadable.iter().any(|key| &*key.namespace == namespace)
    }

    /// Records that the object with this key is deleted or can be decoded. True if it was the last one of its namespace that
    /// could not be.
    fn becomes_readable(&mut self, key: &ObjectKey) -> bool {
        self.unreadable.remove(key) && !self.has_unreadable(&key.namespace)
    }

    fn unindex(&mut self, index: Index<V, I>, key: &ObjectKey, old: Option<&V>) {
        for at in old.map(|old| index(key, old)).into_iter().flatten() {
            if let Some(keys) = self.by_index.get_mut(&at) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_index.remove(&at);
                }
            }
        }
    }
}

mod lists;
mod unreadable;

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
