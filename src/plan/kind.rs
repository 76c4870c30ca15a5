//! The kinds that we write, each tied to its type, and which object a write goes to.

use std::fmt;

use k8s_openapi::{
    api::{core::v1::Namespace, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::api::{
    compute::{Instance, Workload, WorkloadDeployment},
    karmada::{Cluster, PropagationPolicy, ResourceBinding},
    neighbours::{NetworkBinding, Project, ProjectControlPlane, ResourceClaim, SubnetClaim},
    referenced::SourceKind,
};

/// A type whose objects we write. What is written of it has its kind from here, so that the two cannot disagree.
pub trait Known: Resource<DynamicType = ()> + Serialize {
    /// Its kind.
    const KIND: Kind;
}

/// Ties each type to its kind.
macro_rules! known {
    ($($kind:ident),* $(,)?) => {
        $(impl Known for $kind {
            const KIND: Kind = Kind::$kind;
        })*
    };
}

known!(
    Workload,
    WorkloadDeployment,
    Instance,
    Namespace,
    PropagationPolicy,
    NetworkBinding,
    SubnetClaim,
    ResourceClaim,
    Event,
    ResourceBinding,
    Cluster,
    Project,
    ProjectControlPlane,
);

/// The kinds we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// `compute.datumapis.com/v1alpha` Workload
    Workload,
    /// `compute.datumapis.com/v1alpha` WorkloadDeployment
    WorkloadDeployment,
    /// `compute.datumapis.com/v1alpha` Instance
    Instance,
    /// `v1` Namespace
    Namespace,
    /// `policy.karmada.io/v1alpha1` PropagationPolicy
    PropagationPolicy,
    /// `policy.karmada.io/v1alpha1` ClusterPropagationPolicy; only ever looked for
    ClusterPropagationPolicy,
    /// `networking.datumapis.com/v1alpha` NetworkBinding
    NetworkBinding,
    /// `networking.datumapis.com/v1alpha` SubnetClaim
    SubnetClaim,
    /// `quota.miloapis.com/v1alpha1` ResourceClaim
    ResourceClaim,
    /// `events.k8s.io/v1` Event
    Event,
    /// What deployments refer to, of the group `v1`
    Referenced(SourceKind),
    /// `work.karmada.io/v1alpha2` ResourceBinding
    ResourceBinding,
    /// `cluster.karmada.io/v1alpha1` Cluster; only ever spoken of in Events
    Cluster,
    /// `work.karmada.io/v1alpha1` Work; only ever removed where Karmada has forgotten it
    Work,
    /// `resourcemanager.miloapis.com/v1alpha1` Project; only ever looked for
    Project,
    /// `infrastructure.miloapis.com/v1alpha1` ProjectControlPlane; only ever looked for
    ProjectControlPlane,
}

impl Kind {
    /// `apiVersion`, `kind` and plural.
    pub fn gvk(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Workload => ("compute.datumapis.com/v1alpha", "Workload", "workloads"),
            Self::WorkloadDeployment => ("compute.datumapis.com/v1alpha", "WorkloadDeployment", "workloaddeployments"),
            Self::Instance => ("compute.datumapis.com/v1alpha", "Instance", "instances"),
            Self::Namespace => ("v1", "Namespace", "namespaces"),
            Self::PropagationPolicy => ("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies"),
            Self::ClusterPropagationPolicy => {
                ("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies")
            }
            Self::NetworkBinding => ("networking.datumapis.com/v1alpha", "NetworkBinding", "networkbindings"),
            Self::SubnetClaim => ("networking.datumapis.com/v1alpha", "SubnetClaim", "subnetclaims"),
            Self::ResourceClaim => ("quota.miloapis.com/v1alpha1", "ResourceClaim", "resourceclaims"),
            Self::Event => ("events.k8s.io/v1", "Event", "events"),
            Self::Referenced(kind) => ("v1", kind.as_str(), kind.plural()),
            Self::ResourceBinding => ("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings"),
            Self::Work => ("work.karmada.io/v1alpha1", "Work", "works"),
            Self::Cluster => ("cluster.karmada.io/v1alpha1", "Cluster", "clusters"),
            Self::Project => ("resourcemanager.miloapis.com/v1alpha1", "Project", "projects"),
            Self::ProjectControlPlane => {
                ("infrastructure.miloapis.com/v1alpha1", "ProjectControlPlane", "projectcontrolplanes")
            }
        }
    }

    /// Its name in paths.
    pub fn plural(self) -> &'static str {
        self.gvk().2
    }

    /// Whether its objects hold what must never be shown, nor stay in memory.
    pub fn is_confidential(self) -> bool {
        matches!(self, Self::Referenced(_))
    }
}

/// Which object a write goes to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty when cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, kind, _) = self.kind.gvk();
        if self.namespace.is_empty() {
            write!(f, "{kind} {}", self.name)
        } else {
            write!(f, "{kind} {}/{}", self.namespace, self.name)
        }
    }
}

impl From<SourceKind> for Kind {
    fn from(kind: SourceKind) -> Self {
        Self::Referenced(kind)
    }
}

impl Object {
    /// The object of this kind, namespace and name.
    pub fn named<K: Known>(namespace: &str, name: &str) -> Self {
        Self { kind: K::KIND, namespace: namespace.into(), name: name.into() }
    }

    /// The object that `live` is.
    pub fn of<K: Known>(live: &K) -> Self {
        Self::named::<K>(live.meta().namespace.as_deref().unwrap_or_default(), &live.name_any())
    }
}

/// One version of one object: what a write that must not touch anything else names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectVersion {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}

impl ObjectVersion {
    /// The version with this uid and resourceVersion.
    pub fn new(uid: &str, resource_version: &str) -> Self {
        Self { uid: uid.into(), resource_version: resource_version.into() }
    }

    /// The version with this metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees<K: Known>() {
        let (api_version, kind, plural) = K::KIND.gvk();
        let of_type = (K::api_version(&()), K::kind(&()), K::plural(&()));
        assert_eq!((api_version, kind, plural), (&*of_type.0, &*of_type.1, &*of_type.2));
    }

    #[test]
    fn a_kind_has_the_address_of_its_type() {
        agrees::<Workload>();
        agrees::<WorkloadDeployment>();
        agrees::<Instance>();
        agrees::<Namespace>();
        agrees::<PropagationPolicy>();
        agrees::<NetworkBinding>();
        agrees::<SubnetClaim>();
        agrees::<ResourceClaim>();
        agrees::<Event>();
        agrees::<ResourceBinding>();
        agrees::<Cluster>();
        agrees::<Project>();
        agrees::<ProjectControlPlane>();
    }
}
