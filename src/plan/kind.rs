//! Kinds that the operator writes, each tied to its type, and the target object of a write.

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

/// A type of objects that the operator writes. Each write gets its kind from here, so that kind and type always agree.
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

/// Kinds that the operator writes or reads.
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
    /// `policy.karmada.io/v1alpha1` ClusterPropagationPolicy. Only read.
    ClusterPropagationPolicy,
    /// `networking.datumapis.com/v1alpha` NetworkBinding
    NetworkBinding,
    /// `networking.datumapis.com/v1alpha` SubnetClaim
    SubnetClaim,
    /// `quota.miloapis.com/v1alpha1` ResourceClaim
    ResourceClaim,
    /// `events.k8s.io/v1` Event
    Event,
    /// Objects that deployments reference, of the group `v1`
    Referenced(SourceKind),
    /// `work.karmada.io/v1alpha2` ResourceBinding
    ResourceBinding,
    /// `cluster.karmada.io/v1alpha1` Cluster. Only a subject of Events.
    Cluster,
    /// `work.karmada.io/v1alpha1` Work. Only deleted, if Karmada has lost track of it.
    Work,
    /// `resourcemanager.miloapis.com/v1alpha1` Project. Only read.
    Project,
    /// `infrastructure.miloapis.com/v1alpha1` ProjectControlPlane. Only read.
    ProjectControlPlane,
}

impl Kind {
    /// Returns `apiVersion`, `kind` and plural.
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

    /// Returns its name in URL paths.
    pub fn plural(self) -> &'static str {
        self.gvk().2
    }

    /// True if objects of this kind hold values that must not be shown, nor kept in memory.
    pub fn is_confidential(self) -> bool {
        matches!(self, Self::Referenced(_))
    }
}

/// The target object of a write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace. Empty if it is cluster-scoped.
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
    /// Returns the object of this kind, namespace and name.
    pub fn named<K: Known>(namespace: &str, name: &str) -> Self {
        Self { kind: K::KIND, namespace: namespace.into(), name: name.into() }
    }

    /// Returns the kind, namespace and name of `live`.
    pub fn of<K: Known>(live: &K) -> Self {
        Self::named::<K>(live.meta().namespace.as_deref().unwrap_or_default(), &live.name_any())
    }
}

/// One version of one object. A write that must change nothing else names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectVersion {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}

impl ObjectVersion {
    /// Returns the version with this uid and resourceVersion.
    pub fn new(uid: &str, resource_version: &str) -> Self {
        Self { uid: uid.into(), resource_version: resource_version.into() }
    }

    /// Returns the version in this metadata.
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
    fn kind_agrees_with_its_type() {
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
