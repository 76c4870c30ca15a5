//! What can be watched.

use std::fmt::Debug;

use kube::{
    Resource,
    api::DynamicObject,
    core::{DeserializeGuard, PartialObjectMeta},
};
use serde::de::DeserializeOwned;

/// What can be watched: a kind behind a guard, or the metadata of one.
pub trait Watched:
    Resource<DynamicType: Clone + Send + Sync + 'static> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// The readable object.
    type Object: Resource;
    /// The object, or why it cannot be read.
    ///
    /// # Errors
    /// The decoder's message.
    fn open(self) -> Result<Self::Object, String>;
}

impl<K> Watched for DeserializeGuard<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    type Object = K;

    fn open(self) -> Result<K, String> {
        self.0.map_err(|invalid| invalid.error)
    }
}

/// Asks for metadata only in the request itself. (A guard around it would not: kube fetches whole objects then.)
impl<K> Watched for PartialObjectMeta<K>
where
    K: Resource<DynamicType: Clone + Send + Sync + 'static> + Clone + Debug + Send + 'static,
{
    type Object = Self;

    fn open(self) -> Result<Self, String> {
        Ok(self)
    }
}

/// The metadata of an object, whatever its kind.
pub type Metadata = PartialObjectMeta<DynamicObject>;
