//! Index values of the management caches, and the city of a deployment. Only locations are indexed by the plain code of their
//! city.
//!
//! Each kind of value is a separate variant. So a text of a tenant in one kind, such as the uid of a Workload, never equals a
//! value of another kind.

use kube::ResourceExt;

use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::label,
        names::{CityCode, CityPolicyName, ProjectName},
        referenced::DataRef,
    },
    controllers::compact::PackedDeployment,
    plan::management::{
        observed::facts::{BindingFacts, Phase},
        referenced_data::foreign_claim::ForeignClaim,
    },
};

/// One value of an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Index {
    /// Deployments that name the Workload with this uid as theirs.
    Workload(String),
    /// Deployments of a city in a namespace.
    City(String, CityCode),
    /// Objects of a namespace.
    Namespace(String),
    /// Workloads of a namespace that wait for a deployment's name.
    WaitsForName(String),
    /// Deployments of a namespace that refer to a ConfigMap or Secret.
    Source(String, DataRef),
    /// The hub's objects of a project.
    Project(ProjectName),
    /// Hub Instances that name a namespace of a project.
    OriginNamespace(ProjectName, String),
    /// Hub Instances that name a deployment of a project.
    OriginDeployment(ProjectName, String, String),
    /// Hub Instances that name one place in a project.
    OriginPlace(ProjectName, String, String),
    /// Clusters that carry a city's label.
    Cluster(CityCode),
    /// Bindings that a city's policy claims on a cluster.
    Held(CityCode, String),
    /// Bindings of deployments that go to a cluster.
    On(String),
    /// Companions and their bindings that a policy of another owner claims.
    ClaimedByOthers,
    /// Policies of a city.
    CityPolicies(CityCode),
    /// Policies in this phase of the migration from claims to dependencies.
    InPhase(Phase),
    /// Hub Instances that another cell asks for, or that no member cell writes any more.
    Asked,
    /// The same, if one deployment in a hub namespace owns them.
    AskedOf(String, String),
}

/// Index value of deployments that name the Workload with this uid as theirs.
pub(crate) fn workload_index(uid: &str) -> Index {
    Index::Workload(uid.to_owned())
}

/// Index value under which a store keeps the deployments of a city in a namespace.
pub(crate) fn city_index(namespace: &str, city: &CityCode) -> Index {
    Index::City(namespace.to_owned(), city.clone())
}

/// Index value under which a store keeps the objects of a namespace.
pub(crate) fn namespace_index(namespace: &str) -> Index {
    Index::Namespace(namespace.to_owned())
}

/// Index value of deployments that refer to a ConfigMap or Secret.
pub(crate) fn source_index(namespace: &str, data_ref: &DataRef) -> Index {
    Index::Source(namespace.to_owned(), data_ref.clone())
}

/// Index value under which the hub's objects of a project are kept.
pub(crate) fn project_index(project: &ProjectName) -> Index {
    Index::Project(project.clone())
}

/// Index value of hub Instances that name a namespace of a project.
pub(crate) fn origin_namespace_index(project: &ProjectName, namespace: &str) -> Index {
    Index::OriginNamespace(project.clone(), namespace.to_owned())
}

/// Index value of hub Instances that name a deployment of a project.
pub(crate) fn origin_deployment_index(project: &ProjectName, namespace: &str, deployment: &str) -> Index {
    Index::OriginDeployment(project.clone(), namespace.to_owned(), deployment.to_owned())
}

/// Index value of hub Instances that name one place in a project.
pub(crate) fn origin_place_index(project: &ProjectName, namespace: &str, name: &str) -> Index {
    Index::OriginPlace(project.clone(), namespace.to_owned(), name.to_owned())
}

/// Index values of a deployment's binding that a city's policy claims: one for each cluster that it goes to.
pub(crate) fn held_indices(binding: &BindingFacts) -> Vec<Index> {
    let claimed = binding.policy.as_deref().and_then(CityPolicyName::parse).or_else(|| binding.scheduled_for.clone());
    let stays = binding.template.is_deployment() && !binding.terminating;
    let Some(city) = claimed.filter(|city| stays && binding.is_of_city(city)) else { return Vec::new() };
    binding.clusters.iter().map(|cluster| held_index(&city, cluster)).collect()
}

/// Index values of a deployment's binding with any policy: one for each cluster that it goes to.
pub(crate) fn on_indices(binding: &BindingFacts) -> Vec<Index> {
    let of_deployment = binding.template.is_deployment();
    binding.clusters.iter().filter(|_| of_deployment).map(|cluster| Index::On(cluster.clone())).collect()
}

/// Index value of an object that a policy of another owner claims. `None` if no such policy claims it.
pub(crate) fn others_index(claims: Option<Vec<ForeignClaim>>) -> Option<Index> {
    claims.is_some_and(|claims| !claims.is_empty()).then_some(Index::ClaimedByOthers)
}

/// Index value of bindings that a city's policy claims on a cluster.
pub(crate) fn held_index(city: &CityCode, cluster: &str) -> Index {
    Index::Held(city.clone(), cluster.to_owned())
}

/// Index value of a city's policies.
pub(crate) fn policies_index(city: &CityCode) -> Index {
    Index::CityPolicies(city.clone())
}

/// The city of a hub copy: its policy selects it by this label.
pub(crate) fn copy_city(copy: &WorkloadDeployment) -> Option<CityCode> {
    copy.labels().get(label::TOPOLOGY_CITY).and_then(|city| CityCode::parse(city).ok())
}

/// The same, of a packed copy.
pub(crate) fn label_city(copy: &PackedDeployment) -> Option<CityCode> {
    CityCode::parse(copy.city_label()?).ok()
}

/// The city of a project's deployment.
pub(crate) fn original_city(deployment: &PackedDeployment) -> Option<CityCode> {
    CityCode::parse(deployment.city_code()).ok()
}
