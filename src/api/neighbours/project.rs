//! Projects of Milo, as discovery sees them.

use std::borrow::Cow;

use k8s_openapi::{ClusterResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::Conditions;
use crate::api::compute::ConditionStatus;

/// Defines a kind of which discovery reads only name, deletion and conditions; its spec is not used.
macro_rules! discovered {
    ($(#[$doc:meta])* $kind:ident, $group:literal, $plural:literal, $ready:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
        pub struct $kind {
            /// Its metadata.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// Its conditions.
            #[serde(default)]
            pub status: Option<Conditions>,
        }

        impl $kind {
            /// True if its control plane serves.
            pub fn is_ready(&self) -> bool {
                let conditions = self.status.iter().flat_map(|status| &status.conditions);
                conditions.into_iter().any(|c| c.type_ == $ready && c.status == ConditionStatus::True)
            }
        }

        impl Resource for $kind {
            type DynamicType = ();
            type Scope = ClusterResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1alpha1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

discovered!(
    /// A tenant's project.
    Project,
    "resourcemanager.miloapis.com",
    "projects",
    "Ready"
);
discovered!(
    /// The control plane of a project, where discovery is internal. Named like its project.
    ProjectControlPlane,
    "infrastructure.miloapis.com",
    "projectcontrolplanes",
    "ControlPlaneReady"
);
