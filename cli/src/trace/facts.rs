//! What the control planes show of one Workload. It can be stored and judged again.

use std::collections::{BTreeMap, BTreeSet};

use compute_operator::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        karmada::{Cluster, PropagationPolicy, ResourceBinding},
        meta::{annotation, label},
        names::{self, CityCode},
        referenced::{DataRef, SourceKind},
    },
    plan::{
        management::observed::{
            cluster::ClusterFacts,
            facts::{BindingFacts, CompanionFacts},
            phase::Phase,
        },
        ownership,
        references::annotated,
    },
};
use futures::{
    StreamExt,
    future::{join, join_all, join3},
    stream,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{
    planes::{Contexts, Planes},
    seen::{Seen, get, get_metadata, list},
};

/// Number of deployments that are read at a time.
const AT_ONCE: usize = 8;

/// What the control planes show of one Workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Time of the reads.
    pub now: Timestamp,
    /// Context of the project.
    pub context: String,
    /// Contexts of hub and cells.
    #[serde(default, skip_serializing_if = "Contexts::is_empty")]
    pub contexts: Contexts,
    /// Namespace in the project.
    pub namespace: String,
    /// Name of the Workload.
    pub name: String,
    /// The Workload.
    pub workload: Seen<Workload>,
    /// Its deployments, by name. Only one of them if it was asked for.
    pub deployments: Seen<Vec<Deployment>>,
    /// True if one deployment was asked for, and not the Workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only: bool,
    /// Member clusters of the hub.
    pub clusters: Seen<BTreeMap<String, ClusterFacts>>,
}

/// What the control planes show of one deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// The deployment in its project.
    pub object: WorkloadDeployment,
    /// Its Instances in the project.
    pub instances: Seen<Vec<Instance>>,
    /// Its namespace on the hub, if that is known.
    pub hub_namespace: Option<String>,
    /// Its copy on the hub.
    pub copy: Seen<WorkloadDeployment>,
    /// The policy of its city on the hub.
    pub policy: Seen<PolicyFacts>,
    /// The binding of its copy.
    pub binding: Seen<BindingFacts>,
    /// The ConfigMaps and Secrets that its copy expects on the hub. Their content is not read.
    pub companions: BTreeMap<DataRef, Companion>,
    /// The deployment on each cluster that it is bound to.
    pub cells: BTreeMap<String, Seen<WorkloadDeployment>>,
}

/// What the hub shows of a city's policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyFacts {
    /// Name of the policy.
    pub name: String,
    /// True if it is the operator's.
    pub managed: bool,
    /// The way of companions to the city.
    pub phase: Phase,
}

/// What the hub shows of a ConfigMap or Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Companion {
    /// Facts of its metadata.
    pub facts: Seen<CompanionFacts>,
    /// Its binding.
    pub binding: Seen<BindingFacts>,
}

impl Facts {
    /// Reads a Workload with all its deployments.
    pub async fn of_workload(planes: &Planes, name: &str, now: Timestamp) -> Self {
        let workloads: Api<Workload> = Api::namespaced(planes.project.clone(), &planes.namespace);
        let workload = get(&workloads, name).await;
        let deployments = match workload.found().and_then(ResourceExt::uid) {
            Some(uid) => {
                let all: Api<WorkloadDeployment> = Api::namespaced(planes.project.clone(), &planes.namespace);
                list(&all, Some(&format!("{}={uid}", label::WORKLOAD_UID))).await
            }
            None => Seen::Unknown,
        };
        Self::with(planes, name.to_owned(), workload, deployments, now).await
    }

    /// Reads one deployment, with its Workload.
    pub async fn of_deployment(planes: &Planes, name: &str, now: Timestamp) -> Self {
        let deployments: Api<WorkloadDeployment> = Api::namespaced(planes.project.clone(), &planes.namespace);
        let deployment = get(&deployments, name).await;
        let owner = deployment.found().map(|deployment| deployment.spec.workload_ref.name.clone());
        let workload = match &owner {
            Some(owner) => get(&Api::namespaced(planes.project.clone(), &planes.namespace), owner).await,
            None => Seen::Unknown,
        };
        let name = owner.unwrap_or_else(|| name.to_owned());
        let facts = Self::with(planes, name, workload, deployment.map(|deployment| vec![deployment]), now).await;
        Self { only: true, ..facts }
    }

    async fn with(
        planes: &Planes,
        name: String,
        workload: Seen<Workload>,
        deployments: Seen<Vec<WorkloadDeployment>>,
        now: Timestamp,
    ) -> Self {
        let clusters = async {
            match &planes.hub {
                Some(hub) => list(&Api::<Cluster>::all(hub.clone()), None).await.map(|all| {
                    all.into_iter().map(|cluster| (cluster.name_any(), ClusterFacts::of(cluster))).collect()
                }),
                None => Seen::NotAsked(NO_HUB.to_owned()),
            }
        };
        let details = async {
            match deployments {
                Seen::Found(all) => {
                    let hub_namespace = hub_namespace(planes, &all).await;
                    let read = all.into_iter().map(|object| Deployment::read(planes, object, hub_namespace.clone()));
                    let mut all: Vec<Deployment> = stream::iter(read).buffer_unordered(AT_ONCE).collect().await;
                    all.sort_by_key(|deployment| deployment.object.name_any());
                    Seen::Found(all)
                }
                other => other.map(|_| Vec::new()),
            }
        };
        let (clusters, deployments) = join(clusters, details).await;
        let (context, namespace) = (planes.context.clone(), planes.namespace.clone());
        let contexts = planes.contexts.clone();
        Self { now, context, contexts, namespace, name, workload, deployments, only: false, clusters }
    }
}

/// Shown for everything on the hub if no context of the hub is given.
pub const NO_HUB: &str = "not asked: give --hub-context";

/// Returns the hub namespace of a project's namespace: from its uid, else as a deployment records it.
pub async fn hub_namespace(planes: &Planes, deployments: &[WorkloadDeployment]) -> Option<String> {
    planes.hub.as_ref()?;
    let namespaces: Api<Namespace> = Api::all(planes.project.clone());
    let by_uid = get_metadata(&namespaces, &planes.namespace).await;
    let by_uid = by_uid.found().and_then(|meta| meta.uid.as_deref()).map(names::hub_namespace);
    let recorded = |of: &WorkloadDeployment| of.annotations().get(annotation::FEDERATION_NAMESPACE).cloned();
    by_uid.or_else(|| deployments.iter().find_map(recorded))
}

impl Deployment {
    async fn read(planes: &Planes, object: WorkloadDeployment, hub_namespace: Option<String>) -> Self {
        let selector = object.labels().get(label::WORKLOAD_UID).map(|uid| format!("{}={uid}", label::WORKLOAD_UID));
        let name = object.name_any();
        let instances: Api<Instance> = Api::namespaced(planes.project.clone(), &planes.namespace);
        let own = |all: Vec<Instance>| {
            let is_own = |instance: &Instance| names::deployment_of_instance(&instance.name_any()) == Some(&*name);
            let mut own: Vec<Instance> = all.into_iter().filter(is_own).collect();
            own.sort_by_key(|instance| names::instance_ordinal(&instance.name_any()));
            own
        };
        let instances = async { list(&instances, selector.as_deref()).await.map(own) };
        let hub = OnHub::read(planes, &object, hub_namespace.as_deref());
        let (instances, hub) = join(instances, hub).await;
        let OnHub { copy, policy, binding, companions, cells } = hub;
        Self { object, instances, hub_namespace, copy, policy, binding, companions, cells }
    }
}

/// The hub's part of a deployment, and the cells'.
struct OnHub {
    copy: Seen<WorkloadDeployment>,
    policy: Seen<PolicyFacts>,
    binding: Seen<BindingFacts>,
    companions: BTreeMap<DataRef, Companion>,
    cells: BTreeMap<String, Seen<WorkloadDeployment>>,
}

impl OnHub {
    fn hidden(why: &str) -> Self {
        let why = || why.to_owned();
        Self {
            copy: Seen::NotAsked(why()),
            policy: Seen::NotAsked(why()),
            binding: Seen::NotAsked(why()),
            companions: BTreeMap::new(),
            cells: BTreeMap::new(),
        }
    }

    async fn read(planes: &Planes, object: &WorkloadDeployment, namespace: Option<&str>) -> Self {
        let Some(hub) = &planes.hub else { return Self::hidden(NO_HUB) };
        let Some(namespace) = namespace else { return Self::hidden("its namespace on the hub is not known") };
        let name = object.name_any();
        let copies: Api<WorkloadDeployment> = Api::namespaced(hub.clone(), namespace);
        let bindings: Api<ResourceBinding> = Api::namespaced(hub.clone(), namespace);
        let binding_name = names::deployment_binding(&name);
        let binding = async { get(&bindings, &binding_name).await.map(BindingFacts::of) };
        let policy = policy(hub, namespace, &object.spec.city_code);
        let (copy, binding, policy) = join3(get(&copies, &name), binding, policy).await;
        let expected = copy.found().map(|copy| annotated(copy, annotation::EXPECTED_REFERENCED_DATA));
        let companions = expected.unwrap_or_default().into_iter().map(async |data_ref| {
            let companion = companion(hub, &bindings, namespace, &data_ref).await;
            (data_ref, companion)
        });
        let clusters: BTreeSet<String> =
            binding.found().map(|facts| facts.clusters.iter().cloned().collect()).unwrap_or_default();
        let cells = clusters.into_iter().map(async |cluster| {
            let read = async |cell| get(&Api::<WorkloadDeployment>::namespaced(cell, namespace), &name).await;
            let seen = planes.read_in_cell(&cluster, read).await;
            (cluster, seen)
        });
        let (companions, cells) =
            join(stream::iter(companions).buffer_unordered(AT_ONCE).collect::<Vec<_>>(), join_all(cells)).await;
        let (companions, cells) = (companions.into_iter().collect(), cells.into_iter().collect());
        Self { copy, policy, binding, companions, cells }
    }
}

async fn policy(hub: &kube::Client, namespace: &str, city: &str) -> Seen<PolicyFacts> {
    let Ok(city) = CityCode::parse(city) else { return Seen::Absent };
    let policies: Api<PropagationPolicy> = Api::namespaced(hub.clone(), namespace);
    get(&policies, &city.policy_name()).await.map(|policy| PolicyFacts {
        name: policy.name_any(),
        managed: ownership::is_managed(&policy),
        phase: Phase::of(&policy.spec),
    })
}

async fn companion(
    hub: &kube::Client,
    bindings: &Api<ResourceBinding>,
    namespace: &str,
    data_ref: &DataRef,
) -> Companion {
    let facts = async {
        match data_ref.kind {
            SourceKind::ConfigMap => {
                get_metadata(&Api::<ConfigMap>::namespaced(hub.clone(), namespace), &data_ref.name).await
            }
            SourceKind::Secret => {
                get_metadata(&Api::<Secret>::namespaced(hub.clone(), namespace), &data_ref.name).await
            }
        }
        .map(|meta| CompanionFacts::of(&meta))
    };
    let name = names::binding_name(data_ref.kind.as_str(), &data_ref.name);
    let binding = async { get(bindings, &name).await.map(BindingFacts::of) };
    let (facts, binding) = join(facts, binding).await;
    Companion { facts, binding }
}
