//! What the objects of a cell are looked up by.

use std::fmt;

use crate::api::{names::CityCode, referenced::Token};

/// One value of an index. Each kind has a space of its own, so that nothing that a tenant writes into one is ever taken
/// for another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Index<'a> {
    /// What stands in this namespace.
    Namespace(&'a str),
    /// What the object with this uid controls.
    ControlledBy(&'a str),
    /// Instances of this namespace that refer to this ConfigMap or Secret.
    Needs(&'a str, &'a Token),
    /// Bindings to the NetworkContext of this namespace and name.
    Context(&'a str, &'a str),
    /// Locations of this city.
    City(&'a CityCode),
    /// Namespaces that mirror one of this project.
    Project(&'a str),
}

impl fmt::Display for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::ControlledBy(uid) => write!(f, "controlled by {uid}"),
            Self::Needs(namespace, token) => write!(f, "needs {namespace}/{token}"),
            Self::Context(namespace, name) => write!(f, "context {namespace}/{name}"),
            Self::City(city) => write!(f, "city {city}"),
            Self::Project(name) => write!(f, "project {name}"),
        }
    }
}
