//! Shares equal values that are in use.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    hash::{DefaultHasher, Hasher},
    io,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use serde::Serialize;

/// Fewest values of a type before unused ones are searched for.
const FEW: usize = 64;

/// The values by type.
static ALL: LazyLock<Mutex<HashMap<TypeId, Box<dyn Known>>>> = LazyLock::new(Mutex::default);

fn all() -> MutexGuard<'static, HashMap<TypeId, Box<dyn Known>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The values of one type.
trait Known: Any + Send {
    /// Frees the memory of unused values.
    fn clean(&mut self);
}

struct Values<T: ?Sized> {
    /// Values by digest. Of two values with the same digest, the last is shared.
    known: HashMap<u64, Weak<T>>,
    /// Number of values above which unused ones are searched for.
    room: usize,
}

impl<T: Send + Sync + ?Sized + 'static> Known for Values<T> {
    fn clean(&mut self) {
        self.known.retain(|_, value| value.strong_count() > 0);
        self.known.shrink_to(FEW);
        self.room = FEW.max(2 * self.known.len());
    }
}

impl<T: ?Sized> Values<T> {
    fn get(&self, digest: u64, is_equal: impl FnOnce(&T) -> bool) -> Option<Arc<T>> {
        self.known.get(&digest).and_then(Weak::upgrade).filter(|known| is_equal(known))
    }
}

/// Runs `act` on the values of one type.
fn with<T, R>(act: impl FnOnce(&mut Values<T>) -> R) -> Option<R>
where
    T: Send + Sync + ?Sized + 'static,
{
    let mut all = all();
    let values =
        all.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(Values::<T> { known: HashMap::new(), room: FEW }));
    let values: &mut dyn Any = values.as_mut();
    values.downcast_mut().map(act)
}

/// Returns an equal value that is in use, else this one.
pub fn share<T>(value: Arc<T>) -> Arc<T>
where
    T: Serialize + PartialEq + Send + Sync + ?Sized + 'static,
{
    let Some(digest) = digest(&*value) else { return value };
    let shared = with(|values: &mut Values<T>| {
        if let Some(known) = values.get(digest, |known| *known == *value) {
            return known;
        }
        values.known.insert(digest, Arc::downgrade(&value));
        if values.known.len() > values.room {
            values.clean();
        }
        value.clone()
    });
    shared.unwrap_or(value)
}

/// Returns an equal value that is in use.
pub fn find<T>(value: &T) -> Option<Arc<T>>
where
    T: Serialize + PartialEq + Send + Sync + ?Sized + 'static,
{
    find_by(value, |known| known == value)
}

/// Returns the value in use for which `is_equal` is true. `json` has the same JSON. So an equal value need not be made.
pub fn find_by<T>(json: &(impl Serialize + ?Sized), is_equal: impl FnOnce(&T) -> bool) -> Option<Arc<T>>
where
    T: Send + Sync + ?Sized + 'static,
{
    let digest = digest(json)?;
    with(|values: &mut Values<T>| values.get(digest, is_equal)).flatten()
}

/// Frees the memory of unused values. Without new shared values, nothing else does.
pub fn clean() {
    all().values_mut().for_each(|values| values.clean());
}

/// Returns a digest of the JSON of a value, without building the text.
fn digest<T: Serialize + ?Sized>(value: &T) -> Option<u64> {
    struct Digest(DefaultHasher);
    impl io::Write for Digest {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut digest = Digest(DefaultHasher::new());
    serde_json::to_writer(&mut digest, value).ok()?;
    Some(digest.0.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type of this test only. The values of other types are shared with other tests.
    #[derive(Debug, PartialEq, Serialize)]
    struct Value(usize);

    fn count() -> usize {
        with(|values: &mut Values<Value>| values.known.len()).unwrap()
    }

    #[test]
    fn shared_equal_values_are_one_while_in_use() {
        let first = share(Arc::new(Value(1)));
        assert!(Arc::ptr_eq(&first, &share(Arc::new(Value(1)))));
        assert!(!Arc::ptr_eq(&first, &share(Arc::new(Value(2)))));
        assert!(find(&Value(1)).is_some() && find(&Value(2)).is_none());
        let all: Vec<Arc<Value>> = (0..1000).map(|n| share(Arc::new(Value(n)))).collect();
        assert_eq!(count(), 1000);
        drop(all);
        for n in 0..2100 {
            share(Arc::new(Value(n)));
        }
        assert!(count() <= 2 * FEW, "{} are kept", count());
        assert!(Arc::ptr_eq(&first, &share(Arc::new(Value(1)))));
        drop(first);
        clean();
        assert_eq!(count(), 0);
    }

    /// The digest alone decides nothing: a tenant may know a template with the digest of another one.
    #[test]
    fn shared_value_of_equal_digest_is_found_only_if_it_is_equal() {
        #[derive(Debug, PartialEq, Serialize)]
        struct Other(&'static str);
        let known = share(Arc::new(Other("known")));
        let found = find_by(&"known", |value: &Other| *value == Other("known"));
        assert!(found.is_some_and(|found| Arc::ptr_eq(&found, &known)));
        assert_eq!(find_by(&"known", |_: &Other| false), None);
        assert_eq!(find_by(&"another", |_: &Other| true), None);
    }

    #[test]
    fn shared_unsized_values_are_shared_by_type() {
        let text: Arc<str> = share("of this test".into());
        assert!(Arc::ptr_eq(&text, &share("of this test".into())));
        let list: Arc<[u8]> = share(vec![1].into());
        assert!(Arc::ptr_eq(&list, &share(vec![1].into())));
    }
}
