//! What the objects of a cell are looked up by.

use crate::{
    api::{
        names::{CityCode, ProjectName},
        referenced::DataRef,
    },
    plan::cell::quota_trouble::Cause,
};

/// One value of an index. Each kind is a variant of its own, so that nothing that a tenant writes into one can be taken
/// for another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Index {
    /// What stands in this namespace.
    Namespace(String),
    /// What the object with this uid controls.
    ControlledBy(String),
    /// Instances of this namespace under a name that its deployment of this name may give.
    NamedAfter(String, String),
    /// Instances of this namespace that refer to this ConfigMap or Secret.
    Needs(String, DataRef),
    /// Instances that wait for an answer from quota, by why they get none.
    Unanswered(Cause),
    /// Bindings to the NetworkContext of this namespace and name.
    Context(String, String),
    /// Locations of this city.
    City(CityCode),
    /// Namespaces that mirror one of this project.
    Project(ProjectName),
}

impl Index {
    /// What stands in this namespace.
    pub(super) fn namespace(namespace: &str) -> Self {
        Self::Namespace(namespace.to_owned())
    }
}
