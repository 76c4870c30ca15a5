//! Objects of our neighbours, with only the fields we use. We only read these.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::{meta::label, names::CityCode};

/// A location that a project may use (network services). Cluster-scoped in the project.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(group = "networking.datumapis.com", version = "v1alpha", kind = "LocationBinding", schema = "disabled")]
pub struct LocationBindingSpec {
    /// Where it is; the city stands under [`label::TOPOLOGY_CITY`].
    #[serde(default)]
    pub topology: BTreeMap<String, String>,
}

impl LocationBindingSpec {
    /// The city that this binding opens to the project. `None` when it names none, or none that can be one.
    pub fn city(&self) -> Option<CityCode> {
        self.topology.get(label::TOPOLOGY_CITY).and_then(|code| CityCode::parse(code).ok())
    }
}
