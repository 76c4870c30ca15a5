//! Equal values that are in use, kept once.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    hash::{DefaultHasher, Hasher},
    io,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use serde::Serialize;

/// Fewest values of a type among which it is worth looking for those that are no longer in use.
const FEW: usize = 64;

/// The values by their type.
static ALL: LazyLock<Mutex<HashMap<TypeId, Box<dyn Known>>>> = LazyLock::new(Mutex::default);

fn all() -> MutexGuard<'static, HashMap<TypeId, Box<dyn Known>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The values of one type.
trait Known: Any + Send {
    /// Gives back the memory of values that are no longer in use.
    fn clean(&mut self);
}

struct Values<T: ?Sized> {
    /// By digest; of two values with one digest the last is shared.
    known: HashMap<u64, Weak<T>>,
    /// Number of values above which it is looked again for those that are no longer in use.
    room: usize,
}

impl<T: Send + Sync + ?Sized + 'static> Known for Values<T> {
    fn clean(&mut self) {
        self.known.retain(|_, value| value.strong_count() > 0);
        self.known.shrink_to(FEW);
        self.room = FEW.max(2 * self.known.len());
    }
}

impl<T: Serialize + PartialEq + ?Sized> Values<T> {
    fn get(&self, digest: u64, value: &T) -> Option<Arc<T>> {
        self.known.get(&digest).and_then(Weak::upgrade).filter(|known| **known == *value)
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

/// The value that is equal to this one and in use, if there is one; else this one.
pub fn share<T>(value: Arc<T>) -> Arc<T>
where
    T: Serialize + PartialEq + Send + Sync + ?Sized + 'static,
{
    let Some(digest) = digest(&*value) else { return value };
    let shared = with(|values: &mut Values<T>| {
        if let Some(known) = values.get(digest, &value) {
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

/// The value that is equal to this one, if it is in use.
pub fn find<T>(value: &T) -> Option<Arc<T>>
where
    T: Serialize + PartialEq + Send + Sync + ?Sized + 'static,
{
    let digest = digest(value)?;
    with(|values: &mut Values<T>| values.get(digest, value)).flatten()
}

/// Gives back the memory of values that are no longer in use: where no value is shared, nothing else does.
pub fn clean() {
    all().values_mut().for_each(|values| values.clean());
}

/// Digest of the JSON of a value, without making the text.
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

    /// A type of this test alone: the values of all others are shared with other tests.
    #[derive(Debug, PartialEq, Serialize)]
    struct Value(usize);

    fn count() -> usize {
        with(|values: &mut Values<Value>| values.known.len()).unwrap()
    }

    #[test]
    fn shared_values_equal_are_one_while_in_use() {
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

    #[test]
    fn shared_texts_of_one_type_each_have_their_own_values() {
        let text: Arc<str> = share("of this test".into());
        assert!(Arc::ptr_eq(&text, &share("of this test".into())));
        let list: Arc<[u8]> = share(vec![1].into());
        assert!(Arc::ptr_eq(&list, &share(vec![1].into())));
    }
}
