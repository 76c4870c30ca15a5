//! Which change has whom look again.
//!
//! A change says, by itself, what it concerns; who that is by name may have to be looked up (every policy of a namespace,
//! every user of a companion), which the triggers of the controllers do when they put keys into queues. A change that is
//! missed here shows only as something that waits for the next sweep, or for ever.

mod binding;

use std::collections::BTreeSet;

use kube::{Resource, ResourceExt};

use crate::plan::management::{
    federator::unheard,
    observed::{
        cluster::ClusterFacts,
        facts::{BindingFacts, CompanionFacts, Phase},
    },
    projector::projection::{self, Origin},
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        karmada::PropagationPolicy,
        meta::{annotation, label},
        names::{CityCode, CityPolicyName, ProjectName},
        referenced::{DataRef, SourceKind},
    },
    plan::{
        Delta, NamespaceFacts, ownership,
        references::{annotated, references},
    },
};

/// What changed on the hub.
#[derive(Debug)]
pub enum HubChange<'a> {
    /// The copy of a deployment.
    Copy(Delta<'a, WorkloadDeployment>),
    /// A policy with the name of a city's.
    Policy(Delta<'a, PropagationPolicy>),
    /// A companion.
    Companion(SourceKind, Delta<'a, CompanionFacts>),
    /// A binding.
    Binding(Delta<'a, BindingFacts>),
    /// A member cluster.
    Cluster(Delta<'a, ClusterFacts>),
    /// A namespace that mirrors one of a project.
    Namespace(Delta<'a, NamespaceFacts>),
    /// What a cell wrote back.
    Instance(Delta<'a, Instance>),
    /// Every copy in this namespace can be read again.
    CopiesReadable(&'a str),
    /// Every binding in this namespace can be read again, or is gone.
    BindingsReadable(&'a str),
    /// Every Cluster can be read again, or is gone.
    ClustersReadable,
    /// Everything that cells wrote back in this namespace can be read again.
    InstancesReadable(&'a str),
}

/// Work that a change on the hub brings. Names are the hub's, unless another place is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HubWork {
    /// The federator, on the original of this copy.
    Original {
        /// The hub namespace.
        namespace: String,
        /// The deployment, whose name is the same in the project.
        name: String,
    },
    /// The federator, on the originals of every copy there; everywhere when no namespace is given.
    Originals(Option<String>),
    /// The federator, on whoever uses this companion, as far as is known.
    Users(String, DataRef),
    /// The policy of a city in a namespace.
    Policy(String, CityCode),
    /// Every policy there; everywhere when no namespace is given.
    Policies(Option<String>),
    /// A companion.
    Companion(String, DataRef),
    /// A companion, if a policy claims it.
    ClaimedCompanion(String, DataRef),
    /// Every companion there.
    Companions(String),
    /// Everything of a namespace of a project.
    ProjectNamespace(ProjectName, String),
    /// Everything of the namespace of a project that this one mirrors.
    ProjectNamespaceOf(String),
    /// The projection of what a cell wrote back, and where it says that it belongs.
    Projection {
        /// The hub namespace.
        namespace: String,
        /// The Instance.
        name: String,
        /// Where it says that it belongs; nothing when it cannot be told.
        origin: Option<Origin>,
    },
    /// What one cell wrote back and another asks for, of one deployment or of all: who is to have it may be known now.
    Asked(Option<(String, String)>),
    /// What a cell wrote back is gone, and with it the reason to keep it in quarantine.
    Release(String, String),
    /// A cluster is not to be drained any more.
    CalledOff(String),
    /// What is on a cluster, and what is of these cities, whose label it carries or has carried.
    OnCluster(String, BTreeSet<CityCode>),
    /// What clusters hold is to be compared with what they say of themselves: labels, drains.
    Clusters,
}

/// What a change on the hub concerns.
pub fn after_hub(change: &HubChange<'_>) -> BTreeSet<HubWork> {
    match change {
        HubChange::Copy(delta) => after_copy(delta),
        HubChange::Policy(delta) => after_policy(delta),
        HubChange::Companion(kind, delta) => after_companion(*kind, delta),
        HubChange::Binding(delta) => binding::after_binding(delta),
        HubChange::Cluster(delta) if delta.old == delta.new => BTreeSet::new(),
        HubChange::Cluster(delta) => {
            let cities = delta.both().filter_map(|facts| facts.city.clone()).collect();
            let mut work = BTreeSet::from([HubWork::Clusters, HubWork::OnCluster(delta.name.to_owned(), cities)]);
            let draining = |facts: Option<&ClusterFacts>| facts.is_some_and(|facts| facts.draining);
            let called_off = draining(delta.old) && !draining(delta.new);
            work.extend(called_off.then(|| HubWork::CalledOff(delta.name.to_owned())));
            let member =
                |facts: Option<&ClusterFacts>| facts.filter(|facts| !facts.dead).and_then(|facts| facts.cell.clone());
            work.extend((member(delta.old) != member(delta.new)).then_some(HubWork::Asked(None)));
            work
        }
        HubChange::Namespace(delta) if delta.old == delta.new => BTreeSet::new(),
        HubChange::Namespace(delta) => after_namespace(delta),
        HubChange::Instance(delta) => after_instance(delta),
        // Whoever found something there unreadable has waited, and no event of its own would call it.
        HubChange::CopiesReadable(at) => {
            let namespace = || Some((*at).to_owned());
            let companions = HubWork::Companions((*at).to_owned());
            [HubWork::Originals(namespace()), HubWork::Policies(namespace()), companions].into()
        }
        // Where nobody knew what is on clusters, no city could be given a place.
        HubChange::BindingsReadable(namespace) => {
            let namespace = || Some((*namespace).to_owned());
            [HubWork::Originals(namespace()), HubWork::Policies(namespace()), HubWork::Clusters].into()
        }
        HubChange::ClustersReadable => {
            [HubWork::Originals(None), HubWork::Policies(None), HubWork::Clusters, HubWork::Asked(None)].into()
        }
        HubChange::InstancesReadable(namespace) => [HubWork::ProjectNamespaceOf((*namespace).to_owned())].into(),
    }
}

/// Whom it mirrored before is concerned as well: only they can put right what it says. And whoever could not be told whose
/// the objects in it are, while it said nothing, looks at them once it does.
fn after_namespace(delta: &Delta<'_, NamespaceFacts>) -> BTreeSet<HubWork> {
    let mirrored = delta.both().filter_map(NamespaceFacts::upstream);
    let mut work: BTreeSet<HubWork> =
        mirrored.map(|(project, namespace)| HubWork::ProjectNamespace(project, namespace.to_owned())).collect();
    let upstream = |facts: Option<&'_ NamespaceFacts>| {
        facts.and_then(NamespaceFacts::upstream).map(|(project, namespace)| (project, namespace.to_owned()))
    };
    if upstream(delta.new).is_some_and(|new| upstream(delta.old) != Some(new)) {
        let namespace = || delta.name.to_owned();
        work.extend([HubWork::Originals(Some(namespace())), HubWork::Policies(Some(namespace()))]);
        work.insert(HubWork::Companions(namespace()));
    }
    work
}

fn original(namespace: &str, name: &str) -> HubWork {
    HubWork::Original { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// The city of a hub copy, from the label that its policy selects by.
pub fn copy_city(copy: &WorkloadDeployment) -> Option<CityCode> {
    copy.labels().get(label::TOPOLOGY_CITY).and_then(|city| CityCode::parse(city).ok())
}

fn after_copy(delta: &Delta<'_, WorkloadDeployment>) -> BTreeSet<HubWork> {
    let mut work = BTreeSet::from([original(delta.namespace, delta.name)]);
    // What it reports, which is most of what changes, is no matter of its city.
    let seen = |copy: &WorkloadDeployment| {
        let city = copy.labels().get(label::TOPOLOGY_CITY).cloned();
        let expects = copy.annotations().get(annotation::EXPECTED_REFERENCED_DATA).cloned();
        (copy.uid(), copy.metadata.deletion_timestamp.is_some(), city, expects)
    };
    if delta.old.map(seen) != delta.new.map(seen) {
        work.extend(delta.both().filter_map(copy_city).map(|city| HubWork::Policy(delta.namespace.to_owned(), city)));
    }
    let data_refs = |copy: Option<&WorkloadDeployment>| -> BTreeSet<DataRef> {
        copy.map(|copy| annotated(copy, annotation::EXPECTED_REFERENCED_DATA)).into_iter().flatten().collect()
    };
    let (old, new) = (data_refs(delta.old), data_refs(delta.new));
    let concerned = old.symmetric_difference(&new).cloned();
    work.extend(concerned.map(|data_ref| HubWork::Companion(delta.namespace.to_owned(), data_ref)));
    work
}

fn after_policy(delta: &Delta<'_, PropagationPolicy>) -> BTreeSet<HubWork> {
    let mut work = BTreeSet::new();
    work.extend(CityPolicyName::parse(delta.name).map(|city| HubWork::Policy(delta.namespace.to_owned(), city)));
    // Whether claims are to be undone, and what a deployment is missing, is read off the policy's phase.
    let phase = |policy: Option<&PropagationPolicy>| {
        policy.map(|policy| (ownership::is_managed(policy), Phase::of(&policy.spec)))
    };
    if phase(delta.old) != phase(delta.new) {
        work.insert(HubWork::Companions(delta.namespace.to_owned()));
        work.insert(HubWork::Originals(Some(delta.namespace.to_owned())));
    }
    work
}

fn after_companion(kind: SourceKind, delta: &Delta<'_, CompanionFacts>) -> BTreeSet<HubWork> {
    let data_ref = DataRef { kind, name: delta.name.to_owned() };
    let mut work = BTreeSet::from([HubWork::Companion(delta.namespace.to_owned(), data_ref)]);
    let claim = |facts: Option<&CompanionFacts>| facts.map(|f| (f.policy.clone(), f.cluster_policy.clone()));
    if claim(delta.old) != claim(delta.new) {
        // What a policy has left of its claims shows in what it claims. How far one is on its way between claims and needs shows in
        // every companion: it looks by itself, and is not called by each.
        let cities = delta.both().filter_map(|facts| CityPolicyName::parse(facts.policy.as_deref()?));
        work.extend(cities.map(|city| HubWork::Policy(delta.namespace.to_owned(), city)));
    }
    let users = |facts: Option<&CompanionFacts>| facts.and_then(|facts| facts.users.clone()).unwrap_or_default();
    let (old, new) = (users(delta.old), users(delta.new));
    // Whoever waits until it is gone tells who holds it.
    let of = |facts: &CompanionFacts| (facts.uid.clone(), facts.terminating, facts.going.clone());
    // A change in the list of users concerns those who came and went, everything else all of them.
    let same = delta.old.map(of) == delta.new.map(of) && claim(delta.old) == claim(delta.new);
    let concerned: BTreeSet<&String> =
        if same { old.symmetric_difference(&new).collect() } else { old.union(&new).collect() };
    // Who they are where they are too many to be named, nobody says here.
    let many = |facts: Option<&CompanionFacts>| facts.is_some_and(CompanionFacts::has_many_users);
    if many(delta.old) != many(delta.new) || !same && many(delta.new) {
        work.insert(HubWork::Users(delta.namespace.to_owned(), DataRef { kind, name: delta.name.to_owned() }));
    }
    let names = concerned.into_iter().filter_map(|user| user.split_once('/'));
    work.extend(names.map(|(_, name)| original(delta.namespace, name)));
    work
}

fn after_instance(delta: &Delta<'_, Instance>) -> BTreeSet<HubWork> {
    let mut work = BTreeSet::new();
    if delta.new.is_none() {
        work.insert(HubWork::Release(delta.namespace.to_owned(), delta.name.to_owned()));
    }
    // Both: a label that changed may leave a projection behind where it pointed before.
    work.extend(delta.both().map(projection_of));
    work
}

/// The projection of what a cell wrote back.
pub fn projection_of(instance: &Instance) -> HubWork {
    HubWork::Projection {
        namespace: instance.namespace().unwrap_or_default(),
        name: instance.name_any(),
        origin: projection::identify(instance).ok(),
    }
}

/// What changed in a project.
#[derive(Debug)]
pub enum ProjectChange<'a> {
    /// A Workload, by namespace and name.
    Workload(&'a str, &'a str),
    /// A deployment.
    Deployment(Delta<'a, WorkloadDeployment>),
    /// The city that a location opens.
    Location(Delta<'a, Option<CityCode>>),
    /// A namespace.
    Namespace(Delta<'a, NamespaceFacts>),
    /// A projection, by namespace and name.
    Projection(&'a str, &'a str),
    /// A ConfigMap or Secret in use, by namespace.
    Source(&'a str, DataRef),
    /// A Network.
    Network(Delta<'a, ()>),
    /// Every deployment of this namespace can be read again.
    DeploymentsReadable(&'a str),
}

/// Work that a change in a project brings; all names are the project's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProjectWork {
    /// A Workload, by namespace and name.
    Workload(String, String),
    /// Every Workload of a namespace; everywhere when none is given.
    Workloads(Option<String>),
    /// The Workloads of a namespace that wait for a deployment's name, which its owner has given up.
    NameFreed(String, String),
    /// The federator, on a deployment.
    Deployment(String, String),
    /// The policy of a city.
    Policy {
        /// The project's namespace.
        namespace: String,
        /// The hub namespace that the deployment has recorded, should the project's be gone.
        recorded: Option<String>,
        /// The city.
        city: CityCode,
    },
    /// The companion of a source.
    Companion(String, DataRef),
    /// What the hub holds of the Instances of a deployment.
    HubInstances(String, String),
    /// Everything of a namespace.
    Namespace(String),
    /// Everything that the hub holds of a namespace.
    Mirror(String),
    /// A projection.
    Projection(String, String),
}

/// What a change in a project concerns.
pub fn after_project(change: &ProjectChange<'_>) -> BTreeSet<ProjectWork> {
    let owned = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    match change {
        ProjectChange::Workload(namespace, name) => {
            let (namespace, name) = owned(namespace, name);
            [ProjectWork::Workload(namespace, name)].into()
        }
        ProjectChange::Projection(namespace, name) => {
            let (namespace, name) = owned(namespace, name);
            [ProjectWork::Projection(namespace, name)].into()
        }
        ProjectChange::Source(namespace, data_ref) => {
            [ProjectWork::Companion((*namespace).to_owned(), data_ref.clone())].into()
        }
        ProjectChange::Deployment(delta) => after_deployment(delta),
        ProjectChange::Location(delta) if delta.old != delta.new => [ProjectWork::Workloads(None)].into(),
        ProjectChange::Namespace(delta) if delta.old != delta.new => {
            [ProjectWork::Namespace(delta.name.to_owned())].into()
        }
        // That a Network is there is all that matters of it.
        ProjectChange::Network(delta) if delta.old.is_none() || delta.new.is_none() => {
            [ProjectWork::Workloads(Some(delta.namespace.to_owned()))].into()
        }
        ProjectChange::DeploymentsReadable(namespace) => {
            let namespace = || (*namespace).to_owned();
            [ProjectWork::Namespace(namespace()), ProjectWork::Mirror(namespace())].into()
        }
        ProjectChange::Location(_) | ProjectChange::Namespace(_) | ProjectChange::Network(_) => BTreeSet::new(),
    }
}

fn after_deployment(delta: &Delta<'_, WorkloadDeployment>) -> BTreeSet<ProjectWork> {
    let namespace = || delta.namespace.to_owned();
    let mut work = BTreeSet::from([ProjectWork::Deployment(namespace(), delta.name.to_owned())]);
    for deployment in delta.both() {
        work.insert(ProjectWork::Workload(namespace(), deployment.spec.workload_ref.name.clone()));
    }
    let same = delta.old.zip(delta.new).is_some_and(|(old, new)| asks_for_the_same(old, new));
    for deployment in delta.both().filter(|_| !same) {
        work.extend(policy_of(deployment).into_iter().chain(companions_of(deployment)));
    }
    let uid = |deployment: Option<&WorkloadDeployment>| deployment.and_then(|wd| wd.meta().uid.clone());
    // Who waits for its name is not who had it.
    let owner = |deployment: Option<&WorkloadDeployment>| {
        deployment.and_then(ownership::controller_of).map(|owner| owner.uid.clone())
    };
    if delta.old.is_some() && (delta.new.is_none() || owner(delta.old) != owner(delta.new)) {
        work.insert(ProjectWork::NameFreed(namespace(), delta.name.to_owned()));
    }
    // Projections show of readiness what is known of their deployment.
    let unheard = |deployment: Option<&WorkloadDeployment>| deployment.and_then(unheard::standing).cloned();
    if uid(delta.old) != uid(delta.new) || unheard(delta.old) != unheard(delta.new) {
        work.insert(ProjectWork::HubInstances(namespace(), delta.name.to_owned()));
    }
    work
}

/// The policy of a deployment's city.
pub fn policy_of(deployment: &WorkloadDeployment) -> Option<ProjectWork> {
    Some(ProjectWork::Policy {
        namespace: deployment.namespace().unwrap_or_default(),
        recorded: deployment.annotations().get(annotation::FEDERATION_NAMESPACE).cloned(),
        city: CityCode::parse(&deployment.spec.city_code).ok()?,
    })
}

/// The companions that a deployment refers to, and those that it was promised.
pub fn companions_of(deployment: &WorkloadDeployment) -> Vec<ProjectWork> {
    let namespace = deployment.namespace().unwrap_or_default();
    let promised = annotated(deployment, annotation::EXPECTED_REFERENCED_DATA);
    let asked = references(&deployment.spec.template.spec).into_iter().map(|reference| reference.data_ref);
    asked.chain(promised).map(|data_ref| ProjectWork::Companion(namespace.clone(), data_ref)).collect()
}

/// Everything of a deployment that hangs on its namespace.
pub fn with_its_namespace(deployment: &WorkloadDeployment) -> Vec<ProjectWork> {
    let itself = ProjectWork::Deployment(deployment.namespace().unwrap_or_default(), deployment.name_any());
    [itself].into_iter().chain(policy_of(deployment)).chain(companions_of(deployment)).collect()
}

/// Whether a deployment's policy and companions have no reason to look at it again.
fn asks_for_the_same(old: &WorkloadDeployment, new: &WorkloadDeployment) -> bool {
    old.metadata.generation == new.metadata.generation
        && old.metadata.annotations == new.metadata.annotations
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        && old.metadata.uid == new.metadata.uid
}

#[cfg(test)]
#[path = "triggers_tests.rs"]
mod tests;
