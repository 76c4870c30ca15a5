//! Index values for the objects of a cell.

use crate::{
    api::{
        names::{CityCode, ProjectName},
        referenced::DataRef,
    },
    plan::cell::quota_trouble::Cause,
};

/// One index value. Each kind of value is a separate variant, so that a value from a tenant never matches another kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Index {
    /// Objects in this namespace.
    Namespace(String),
    /// Objects that the object with this uid controls.
    ControlledBy(String),
    /// Instances of this namespace that have a name which the deployment of this name may use.
    NamedAfter(String, String),
    /// Instances of this namespace that reference this ConfigMap or Secret.
    Needs(String, DataRef),
    /// Instances that wait for an answer from quota, by cause.
    Unanswered(Cause),
    /// Bindings to the NetworkContext of this namespace and name.
    Context(String, String),
    /// Locations of this city.
    City(CityCode),
    /// Namespaces that mirror a namespace of this project.
    Project(ProjectName),
}

impl Index {
    /// Returns the value for the objects in this namespace.
    pub(super) fn namespace(namespace: &str) -> Self {
        Self::Namespace(namespace.to_owned())
    }
}
