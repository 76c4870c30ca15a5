//! The cache behind a watch: what decisions need of each object, found by name or by index.
//!
//! It takes the answers to our own writes as well, so that a reconcile never judges an object older than its own last
//! write. Versions only ever go forward; an answer that the watch has already passed is dropped. A complete list that is older
//! than what was seen is another history (an etcd restored from a backup): nothing of what is kept is true any more.

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

/// How an object came in.
#[derive(Clone, Copy)]
enum Origin {
    Watch,
    /// In a complete list of this version; `rewound`: it is older than what was seen.
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

/// A value under which objects are found beside their names.
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
    /// Whether the watch is believed to bring every change.
    live: AtomicBool,
    /// How often something has changed.
    changes: AtomicU64,
    listener: OnceLock<Listener<V>>,
    on_readable: OnceLock<NamespaceListener>,
}

struct Inner<V, I> {
    /// By keys that are shared with `by_index`: an object has several places there.
    entries: HashMap<Arc<ObjectKey>, Slot<V>>,
    by_index: HashMap<I, BTreeSet<Arc<ObjectKey>>>,
    /// Entries without a value; there are hardly ever any.
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
    /// An empty cache; `index` gives the other names under which an object is looked for.
    pub fn new(index: Index<V, I>) -> Self {
        Self::of_those(|_| true, index)
    }

    /// An empty cache for objects with these keys alone.
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

    /// An empty cache of objects that keep something which only their history shows.
    pub fn inheriting(inherit: Inherit<V>, index: Index<V, I>) -> Self {
        Self { inherit: Some(inherit), ..Self::new(index) }
    }

    /// Called for each change. Set once, before the watch begins.
    pub fn listen(&self, listener: impl Fn(&Change<'_, V>) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Called with a namespace in which everything can be read again: whoever waited for [`Self::has_unreadable`] to end may
    /// look now. Set once, before the watch begins.
    pub fn listen_readable(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.on_readable.set(Box::new(listener));
    }

    /// Whether the first list is in. Before that, nothing is known to be absent.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Whether the first list is in and the watch works: what is known is the present, as far as anybody can know.
    pub fn is_live(&self) -> bool {
        self.is_synced() && self.live.load(Ordering::Acquire)
    }

    /// The watch works, or does not.
    pub fn set_live(&self, live: bool) {
        self.live.store(live, Ordering::Release);
    }

    /// The object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        counted(1);
        self.read().entries.get(key)?.value.clone()
    }

    /// The version of the object of this name.
    pub fn version(&self, key: &ObjectKey) -> Option<u64> {
        self.read().entries.get(key).map(|slot| slot.version)
    }

    /// Whether the object of this name is there, be it readable or not.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.read().entries.contains_key(key)
    }

    /// Every object under this index value, sorted by key.
    pub fn by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Vec<Arc<V>>
    where
        I: Borrow<Q>,
    {
        let inner = self.read();
        let keys = inner.by_index.get(value).into_iter().flatten();
        keys.inspect(|_| counted(1)).filter_map(|key| inner.entries.get(key)?.value.clone()).collect()
    }

    /// Every object under this index value that can be read, with its key, sorted by key.
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

    /// Keys under this index value.
    pub fn keys_by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Vec<ObjectKey>
    where
        I: Borrow<Q>,
    {
        let inner = self.read();
        let keys = inner.by_index.get(value).into_iter().flatten();
        keys.inspect(|_| counted(1)).map(|key| (**key).clone()).collect()
    }

    /// How many objects are under this index value.
    pub fn count_by_index<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> usize
    where
        I: Borrow<Q>,
    {
        self.read().by_index.get(value).map_or(0, |keys| keys.len())
    }

    /// Every key.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.read().entries.keys().inspect(|_| counted(1)).map(|key| (**key).clone()).collect()
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.read().entries.len()
    }

    /// Every object that can be read, with its key.
    pub fn entries(&self) -> Vec<(ObjectKey, Arc<V>)> {
        let inner = self.read();
        inner
            .entries
            .iter()
            .inspect(|_| counted(1))
            .filter_map(|(key, slot)| Some(((**key).clone(), slot.value.clone()?)))
            .collect()
    }

    /// Every object.
    pub fn values(&self) -> Vec<Arc<V>> {
        self.read().entries.values().inspect(|_| counted(1)).filter_map(|slot| slot.value.clone()).collect()
    }

    /// How often something has changed so far: what was concluded from all objects holds as long as this is the same.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The watch delivered this object.
    pub fn observe(&self, object: Incoming<V>) {
        self.take(object, Origin::Watch);
    }

    /// Our own write was answered with this object.
    pub fn wrote(&self, object: Incoming<V>) {
        self.take(object, Origin::OwnWrite);
    }

    /// The object with this uid is gone.
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

    /// The watch has delivered everything up to this version.
    pub fn pass(&self, version: u64) {
        let mut inner = self.write();
        inner.passed = inner.passed.max(version);
    }

    fn take(&self, object: Incoming<V>, origin: Origin) {
        let Incoming { key, uid, version, mut value } = object;
        let uid = Uid::of(&uid);
        let (old, readable) = {
            let mut inner = self.write();
            match origin {
                Origin::Watch => inner.passed = inner.passed.max(version),
                Origin::OwnWrite if version <= inner.passed => return, // the watch is past it, and may have seen it deleted
                Origin::OwnWrite => {}
                // At its version, a complete list has the newest of everything: what is newer here, and not newer than the
                // list, is of another history.
                Origin::List { version: of_list, rewound } => {
                    let newer = |slot: &Slot<V>| slot.version > of_list && !rewound;
                    let same = |slot: &Slot<V>| slot.uid == uid && slot.version == version && version > 0;
                    if inner.entries.get(&key).is_some_and(|slot| newer(slot) || same(slot)) {
                        return;
                    }
                }
            }
            // Whatever its uid: a late event of an object that is gone must not take the place of the one made after it.
            let listed = matches!(origin, Origin::List { .. });
            let stands = |slot: &Slot<V>| slot.version >= version && version > 0;
            if !listed && inner.entries.get(&key).is_some_and(stands) {
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

    /// Passes a change on. `readable`: whether it was the last of its namespace that could not be read.
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
    /// Whether a complete list at `version` is older than what was seen.
    fn is_rewound(&self, version: u64) -> bool {
        version > 0 && version < self.passed
    }

    fn has_unreadable(&self, namespace: &str) -> bool {
        self.unreadable.iter().any(|key| &*key.namespace == namespace)
    }

    /// The object with this key is gone, or can be read. Whether it was the last of its namespace that could not be.
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
