//! Judges what the control planes show: the way of each deployment, and its first broken link.
//!
//! The reason is the one that the operator reports in the conditions. What the hub shows is judged by the function that writes
//! the condition, so a change that the operator has not reported yet is visible too.

use std::collections::BTreeMap;

use compute_operator::{
    api::{
        compute::{Condition, ConditionStatus, Instance, WorkloadDeployment},
        meta::{condition, gate},
        names::{self, CityCode},
        reason::{Class, Reason, Who},
        user_list::UserName,
    },
    plan::{
        condition::{find, is_true_of, who_acts},
        management::{
            federator::diagnosis::{Delivery, Evidence, Karmada, diagnose},
            observed::{
                facts::{AttachedBinding, SharedCompanion},
                phase::Phase,
            },
        },
    },
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::facts::{Deployment, Facts};
use crate::{exit::Exit, planes::Contexts, screen::Mark, seen::Seen};

/// A link of the way from the project to the cell and back, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Link {
    /// Workload and deployment in the project.
    Project,
    /// ConfigMaps and Secrets that are copied.
    Data,
    /// The copy on the hub.
    Hub,
    /// The policy that sends it to its city.
    Policy,
    /// Karmada's binding to a cluster.
    Binding,
    /// The deployment on the cell.
    Cell,
    /// Networks, quota and data of the Instances.
    Gates,
    /// The Instances.
    Instances,
    /// The Instances as the project shows them.
    Shown,
}

impl Link {
    /// All links in their order.
    pub const ALL: [Self; 9] = [
        Self::Project,
        Self::Data,
        Self::Hub,
        Self::Policy,
        Self::Binding,
        Self::Cell,
        Self::Gates,
        Self::Instances,
        Self::Shown,
    ];

    /// Returns the link that a reason is about.
    pub fn of(reason: &Reason) -> Self {
        match reason {
            Reason::HubUnavailable
            | Reason::HubRefused
            | Reason::HubNamespaceTerminating
            | Reason::HubCopyHeld
            | Reason::RateLimited => Self::Hub,
            Reason::NoClusterForCity
            | Reason::ClaimedByAnotherPolicy
            | Reason::CityLabelLost
            | Reason::DrainWaiting => Self::Policy,
            Reason::ClusterNotReady | Reason::NotApplied | Reason::CellNotReporting => Self::Cell,
            Reason::HandOverWaits | Reason::InstancesNotShown | Reason::NotWrittenBack => Self::Shown,
            Reason::ProjectRefused | Reason::Pending => Self::Project,
            reason => match reason.class() {
                Class::Placement => Self::Project,
                Class::Source => Self::Data,
                Class::Delivery => Self::Binding,
                Class::Network | Class::Quota | Class::Data => Self::Gates,
                Class::Success | Class::Progress | Class::Instance | Class::Event | Class::Foreign => Self::Instances,
            },
        }
    }

    /// Returns the name of the link on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Data => "data",
            Self::Hub => "hub",
            Self::Policy => "policy",
            Self::Binding => "binding",
            Self::Cell => "cell",
            Self::Gates => "gates",
            Self::Instances => "instances",
            Self::Shown => "shown",
        }
    }
}

/// State of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The link.
    pub link: Link,
    /// Its state.
    pub mark: Mark,
    /// What is there.
    pub text: String,
}

/// What something waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Broken {
    /// The first broken link.
    pub link: Link,
    /// The reason, as the operator reports it.
    pub reason: String,
    /// The party that has to act. `None` if something is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Time since which it has been so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The message.
    pub message: String,
    /// True if only the hub shows it, and the operator has not reported it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreported: bool,
}

/// The way of one deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Way {
    /// Name of the deployment.
    pub deployment: String,
    /// Code of its city.
    pub city: String,
    /// Number of ready Instances.
    pub ready: i32,
    /// Number of wanted Instances.
    pub desired: i32,
    /// Its namespace on the hub, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_namespace: Option<String>,
    /// Clusters that it is bound to.
    pub clusters: Vec<String>,
    /// The links.
    pub steps: Vec<Step>,
    /// The first broken link. `None` if all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
}

/// Result of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// Time of the reads.
    pub time: Timestamp,
    /// Context of the project.
    pub context: String,
    /// Contexts of hub and cells.
    #[serde(default, skip_serializing_if = "Contexts::is_empty")]
    pub contexts: Contexts,
    /// Namespace in the project.
    pub namespace: String,
    /// Name of the Workload.
    pub workload: String,
    /// Generation of the Workload, and the one that its deployments were made from.
    pub generation: Option<(i64, Option<i64>)>,
    /// What the Workload itself waits for, if none of its deployments says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// Why the Workload or its deployments cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// The ways of its deployments.
    pub ways: Vec<Way>,
}

impl Trace {
    /// Judges what the control planes show.
    pub fn of(facts: &Facts) -> Self {
        let ways: Vec<Way> = match &facts.deployments {
            Seen::Found(all) => all.iter().map(|deployment| Way::of(deployment, facts)).collect(),
            _ => Vec::new(),
        };
        let workload = facts.workload.found();
        let status = workload.and_then(|workload| workload.status.as_ref());
        let generation = workload.and_then(|workload| {
            Some((workload.metadata.generation?, status.and_then(|status| status.observed_generation)))
        });
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        let own = workload
            .and_then(|_| not_ready(conditions, &WORKLOAD, workload.and_then(|workload| workload.metadata.generation)));
        // A placement without a deployment has no way of its own.
        let is_of_placement = |own: &Broken| {
            let is_told = ways.iter().filter_map(|way| way.broken.as_ref()).any(|broken| broken.reason == own.reason);
            !facts.only && !is_told && Reason::from(&*own.reason).class() == Class::Placement
        };
        let broken = own.filter(|own| is_of_placement(own) || ways.iter().all(|way| way.broken.is_none()));
        let kind = |seen: &str| format!("{seen} {}/{}", facts.namespace, facts.name);
        let hidden = match (&facts.workload, &facts.deployments) {
            // Without the Workload, the deployment that was asked for says enough.
            (_, Seen::Found(_)) => None,
            (Seen::Absent, _) => Some(format!("{} does not exist", kind("Workload"))),
            (Seen::Unserved, _) => Some("the project does not serve Workloads: its definitions are missing".to_owned()),
            (_, Seen::Absent) => Some(format!("{} does not exist", kind("WorkloadDeployment"))),
            (Seen::Found(_), seen) => seen.hidden().map(|why| format!("its deployments: {why}")),
            (seen, _) => seen.hidden().map(|why| format!("{}: {why}", kind("Workload"))),
        };
        Self {
            time: facts.now,
            context: facts.context.clone(),
            contexts: facts.contexts.clone(),
            namespace: facts.namespace.clone(),
            workload: facts.name.clone(),
            generation,
            broken,
            hidden,
            ways,
        }
    }

    /// Returns the worst thing that anything waits for: with the highest rank, and of equal ones the oldest.
    pub fn worst(&self) -> Option<(&Broken, Option<&Way>)> {
        let of_ways = self.ways.iter().filter_map(|way| Some((way.broken.as_ref()?, Some(way))));
        let all = of_ways.chain(self.broken.as_ref().map(|broken| (broken, None)));
        let weight = |broken: &Broken| {
            let reason = Reason::from(&*broken.reason);
            (broken.waits_for.is_some(), reason.rank(), std::cmp::Reverse(broken.since))
        };
        all.max_by_key(|(broken, _)| weight(broken))
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        match self.worst() {
            None if self.hidden.is_some() => Exit::CouldNotAsk,
            None => Exit::Well,
            Some((broken, _)) => broken.exit(),
        }
    }
}

/// Conditions of a deployment, in the order in which they explain why it is not ready.
const DEPLOYMENT: [&str; 5] = [
    condition::READY,
    condition::FEDERATED,
    condition::REFERENCED_DATA_READY,
    condition::AVAILABLE,
    condition::REPLICAS_READY,
];

/// Conditions of a Workload, likewise.
const WORKLOAD: [&str; 2] = [condition::READY, condition::AVAILABLE];

/// Returns why an object is not ready, by the first of its conditions that is not True. `Ready` alone decides if it is there: the
/// Go operator writes the others only. A `Ready` that is True for an earlier `generation` does not count.
pub fn not_ready(conditions: &[Condition], types: &[&str], generation: Option<i64>) -> Option<Broken> {
    let listed: Vec<&Condition> = types.iter().filter_map(|type_| find(conditions, type_)).collect();
    if listed.is_empty() {
        let message = "the operator has not reported about it yet".to_owned();
        return Some(Broken::new(&Reason::Pending, ConditionStatus::Unknown, None, message));
    }
    let decisive = if listed[0].type_ == condition::READY { &listed[..1] } else { &listed[..] };
    let is_of_earlier = generation.is_some() && !is_true_of(conditions, condition::READY, generation);
    if listed[0].type_ == condition::READY && listed[0].status == ConditionStatus::True && is_of_earlier {
        let message = "the operator has not reported about its latest change yet".to_owned();
        return Some(Broken::new(&Reason::Pending, ConditionStatus::Unknown, None, message));
    }
    let failing = decisive.iter().find(|condition| condition.status != ConditionStatus::True)?;
    let since = Some(failing.last_transition_time.0);
    Some(Broken::new(&failing.reason(), failing.status, since, failing.message.clone()))
}

impl Broken {
    fn new(reason: &Reason, status: ConditionStatus, since: Option<Timestamp>, message: String) -> Self {
        let who = who_acts(status, reason);
        let waits_for = (who != Who::Nobody).then(|| who.label().to_owned());
        let link = Link::of(reason);
        Self { link, reason: reason.as_str().to_owned(), waits_for, since, message, unreported: false }
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        match &self.waits_for {
            Some(_) if self.is_of_tenant() => Exit::Tenant,
            Some(_) => Exit::Platform,
            None => Exit::InProgress,
        }
    }

    /// True if a tenant has to act.
    pub fn is_of_tenant(&self) -> bool {
        self.waits_for.as_deref() == Some(Who::Tenant.label())
    }
}

impl Way {
    fn of(deployment: &Deployment, facts: &Facts) -> Self {
        let object = &deployment.object;
        let status = object.status.clone().unwrap_or_default();
        let reported = not_ready(&status.conditions, &DEPLOYMENT, object.metadata.generation);
        let live = live(deployment, facts);
        let broken = match (reported, live) {
            // The hub is ahead of the report, or it has already recovered: the report names what the user sees.
            (Some(reported), Some(live)) if reported.waits_for.is_none() => {
                Some(Broken { unreported: reported.reason != live.reason, since: None, ..live })
            }
            (Some(reported), _) => Some(reported),
            (None, Some(live)) => Some(Broken { unreported: true, ..live }),
            (None, None) => None,
        };
        let binding = deployment.binding.found();
        let desired = i32::try_from(object.spec.desired_replicas()).unwrap_or(i32::MAX);
        let mut way = Self {
            deployment: object.name_any(),
            city: object.spec.city_code.clone(),
            ready: status.ready_replicas,
            desired,
            hub_namespace: deployment.hub_namespace.clone(),
            clusters: binding.map(|binding| binding.clusters.to_vec()).unwrap_or_default(),
            steps: Vec::new(),
            broken,
        };
        way.steps = Link::ALL.into_iter().map(|link| way.step(link, deployment, facts)).collect();
        way
    }

    fn step(&self, link: Link, deployment: &Deployment, facts: &Facts) -> Step {
        let (hidden, text) = text(link, self, deployment, facts);
        let mark = match &self.broken {
            Some(broken) if broken.link == link => Mark::Broken,
            Some(broken) if broken.link < link => Mark::Later,
            _ if hidden => Mark::Unseen,
            _ => Mark::Well,
        };
        Step { link, mark, text }
    }
}

/// Judges what the hub shows now. `None` if it is not visible, or if everything has been delivered.
fn live(deployment: &Deployment, facts: &Facts) -> Option<Broken> {
    let copy = deployment.copy.found()?;
    let clusters = facts.clusters.found()?;
    if deployment.policy.hidden().or_else(|| deployment.binding.hidden()).is_some() {
        return None;
    }
    let city = CityCode::parse(&deployment.object.spec.city_code).ok()?;
    let parent = names::deployment_binding(&copy.name_any());
    let binding = deployment.binding.found();
    let goes_to = binding.map_or(&[][..], |binding| &binding.clusters);
    let user = UserName::new(&facts.namespace, &deployment.object.name_any());
    let (mut attached, mut companions) = (BTreeMap::new(), BTreeMap::new());
    for (data_ref, companion) in &deployment.companions {
        if companion.facts.hidden().or_else(|| companion.binding.hidden()).is_some() {
            return None;
        }
        if let Some(facts) = companion.binding.found() {
            attached.insert(data_ref.clone(), AttachedBinding::of(facts, &parent, goes_to));
        }
        if let Some(facts) = companion.facts.found() {
            companions.insert(data_ref.clone(), SharedCompanion::of(facts, &user, None));
        }
    }
    let of_city = clusters.iter().filter(|(name, facts)| goes_to.contains(name) || facts.city.as_ref() == Some(&city));
    let policy = deployment.policy.found();
    let karmada = Karmada {
        policy_lives: policy.is_some_and(|policy| policy.managed),
        policy_trouble: None,
        phase: policy.map_or(Phase::Dependencies, |policy| policy.phase),
        written: None,
        binding: binding.cloned(),
        attached,
        clusters: of_city.map(|(name, facts)| (name.clone(), facts.clone())).collect(),
        drain_waits: None,
    };
    let last_delivery = deployment.object.status.as_ref().and_then(|status| status.last_delivery.as_ref());
    let evidence = Evidence {
        copy,
        city: &city,
        karmada: &karmada,
        companions: &companions,
        last_delivery: last_delivery.filter(|delivery| copy.uid().as_deref() == Some(&delivery.copy_uid)),
        behind: false,
    };
    match diagnose(&evidence) {
        Delivery::Blocked { cause, .. } => Some(Broken::new(&cause.reason, cause.status, None, cause.message)),
        Delivery::Delivered { .. } => None,
    }
}

/// Returns what a link shows, and whether it is hidden.
fn text(link: Link, way: &Way, deployment: &Deployment, facts: &Facts) -> (bool, String) {
    let hidden = |why: String| (true, why);
    let shown = |text: String| (false, text);
    let object = &deployment.object;
    match link {
        Link::Project => {
            let generation = object.metadata.generation.unwrap_or_default();
            shown(format!("WorkloadDeployment {}/{}, generation {generation}", facts.namespace, way.deployment))
        }
        Link::Data => data(deployment),
        Link::Hub => match (&deployment.copy, &deployment.hub_namespace) {
            (Seen::Found(_), Some(namespace)) => shown(format!("WorkloadDeployment {namespace}/{}", way.deployment)),
            (seen, namespace) if seen.is_absent() => {
                let namespace = namespace.as_deref().unwrap_or("its namespace");
                shown(format!("no copy in {namespace}"))
            }
            (seen, _) => hidden(seen.hidden().unwrap_or_default()),
        },
        Link::Policy => match &deployment.policy {
            Seen::Found(policy) => shown(format!("PropagationPolicy {}", policy.name)),
            seen if seen.is_absent() => shown("no PropagationPolicy for the city".to_owned()),
            seen => hidden(seen.hidden().unwrap_or_default()),
        },
        Link::Binding => match &deployment.binding {
            Seen::Found(_) if way.clusters.is_empty() => {
                shown(format!("ResourceBinding {}, on no cluster", names::deployment_binding(&way.deployment)))
            }
            Seen::Found(_) => {
                let on = way.clusters.join(", ");
                shown(format!("ResourceBinding {} on {on}", names::deployment_binding(&way.deployment)))
            }
            seen if seen.is_absent() => shown("no ResourceBinding".to_owned()),
            seen => hidden(seen.hidden().unwrap_or_default()),
        },
        Link::Cell => cell(way, deployment, facts),
        Link::Gates => gates(deployment),
        Link::Instances => {
            let words = deployment.instances.found().and_then(|all| provider_words(all));
            shown(format!("{} of {} ready{}", way.ready, way.desired, words.unwrap_or_default()))
        }
        Link::Shown => match &deployment.instances {
            Seen::Found(all) => shown(format!("{} in the project", all.len())),
            seen => hidden(seen.hidden().unwrap_or_else(|| "none in the project".to_owned())),
        },
    }
}

fn data(deployment: &Deployment) -> (bool, String) {
    let references = compute_operator::plan::references::references(&deployment.object.spec.template.spec);
    if references.is_empty() {
        return (false, "it refers to none".to_owned());
    }
    let names: Vec<String> = references.iter().map(|reference| reference.data_ref.to_string()).collect();
    (false, names.join(", "))
}

fn cell(way: &Way, deployment: &Deployment, facts: &Facts) -> (bool, String) {
    if way.clusters.is_empty() {
        return (false, "none yet".to_owned());
    }
    let mut is_hidden = false;
    let parts = way.clusters.iter().map(|name| {
        let cluster = facts.clusters.found().and_then(|all| all.get(name));
        let state = match cluster.map(|cluster| &cluster.ready) {
            Some(Ok(())) => String::new(),
            Some(Err(why)) => format!(", not ready: {why}"),
            None => ", which is no Cluster of the hub".to_owned(),
        };
        let seen = match deployment.cells.get(name) {
            Some(Seen::Found(of_cell)) => reported(of_cell),
            Some(seen) if seen.is_absent() => "has no such deployment".to_owned(),
            Some(seen) => {
                is_hidden = true;
                seen.hidden().unwrap_or_default()
            }
            None => String::new(),
        };
        format!("{name}{state}: {seen}")
    });
    let text = parts.collect::<Vec<_>>().join("; ");
    (is_hidden, text)
}

/// Returns what the cell's deployment says of its manager.
fn reported(of_cell: &WorkloadDeployment) -> String {
    let generation = of_cell.metadata.generation.unwrap_or_default();
    match of_cell.status.as_ref().filter(|status| !status.conditions.is_empty()) {
        None => "has it, and its manager has not reported about it".to_owned(),
        Some(status) => match status.observed_generation.filter(|observed| *observed < generation) {
            Some(observed) => format!("has generation {generation}, and its manager has reported on {observed}"),
            None => "has it".to_owned(),
        },
    }
}

fn gates(deployment: &Deployment) -> (bool, String) {
    let Some(instances) = deployment.instances.found() else { return (true, "not visible".to_owned()) };
    let shut: Vec<&Instance> = instances.iter().filter(|instance| !shut_gates(instance).is_empty()).collect();
    match shut.first() {
        None => (false, "open".to_owned()),
        Some(first) => {
            // All gates open together, once none of them waits.
            let (met, unmet): (Vec<_>, Vec<_>) = shut_gates(first).into_iter().partition(|gate| is_met(first, gate));
            let names = if unmet.is_empty() { met } else { unmet }.join(", ");
            (false, format!("{} of {} Instances wait for {names}", shut.len(), instances.len()))
        }
    }
}

/// Returns what the provider says of the first Instance that passed its gates and does not run. A reason of the provider's own has no
/// rank among ours, so no other link shows it.
fn provider_words(instances: &[Instance]) -> Option<String> {
    let waits = |instance: &&Instance| shut_gates(instance).is_empty() && !is_available(instance);
    let instance = instances.iter().find(waits)?;
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let types = [condition::AVAILABLE, condition::PROGRAMMED];
    let said = types.iter().filter_map(|type_| find(conditions, type_));
    let said =
        said.into_iter().find(|said| said.status != ConditionStatus::True && said.reason() != Reason::Pending)?;
    Some(format!("; {}: {}: {}", instance.name_any(), said.reason, said.message))
}

fn is_available(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::READY).is_some_and(|ready| ready.status == ConditionStatus::True)
}

/// True if the condition of a gate is true, so that the Instance waits for another one.
pub fn is_met(instance: &Instance, gate: &str) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let type_ = match gate {
        gate::QUOTA => condition::QUOTA_GRANTED,
        gate::REFERENCED_DATA => condition::REFERENCED_DATA_READY,
        _ => return false,
    };
    let is_met = |c: &Condition| c.status == ConditionStatus::True && c.reason() != Reason::QuotaDisabled;
    find(conditions, type_).is_some_and(is_met)
}

/// Returns the gates that an Instance still has.
pub fn shut_gates(instance: &Instance) -> Vec<String> {
    let gates = instance.spec.controller.iter().flat_map(|controller| &controller.scheduling_gates);
    gates.map(|gate| gate.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cell_names_the_generation_that_its_manager_has_not_seen() {
        let of_cell = |generation: i64, status: serde_json::Value| -> WorkloadDeployment {
            let mut deployment =
                WorkloadDeployment::new("web", compute_operator::api::compute::WorkloadDeploymentSpec::default());
            deployment.metadata.generation = Some(generation);
            deployment.status = serde_json::from_value(status).unwrap();
            deployment
        };
        let seen = |observed: i64| {
            let condition = json!({ "type": "Available", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" });
            json!({ "observedGeneration": observed, "conditions": [condition] })
        };
        assert_eq!(reported(&of_cell(2, seen(1))), "has generation 2, and its manager has reported on 1");
        assert_eq!(reported(&of_cell(2, seen(2))), "has it");
        let new = json!({ "observedGeneration": -1, "conditions": [] });
        assert_eq!(reported(&of_cell(1, new)), "has it, and its manager has not reported about it");
    }
}
