//! `trace instance`: an Instance on each control plane, and the way of its deployment.

use std::{collections::BTreeMap, fmt::Write as _};

use compute_operator::api::{
    compute::{ConditionStatus, Instance},
    meta::condition,
    names,
    reason::{Class, Reason},
};
use jiff::Timestamp;
use kube::Api;
use serde::{Deserialize, Serialize};

use super::{
    facts::{Facts, NO_HUB},
    judge::{Broken, Trace, Way, is_met, not_ready, shut_gates},
    text,
};
use crate::{
    exit::Exit,
    planes::Planes,
    screen::{Mark, Screen, age},
    seen::{Seen, get},
};

/// What the control planes show of one Instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceFacts {
    /// Name of the Instance.
    pub name: String,
    /// The Instance in the project.
    pub instance: Seen<Instance>,
    /// Its copy on the hub.
    pub hub: Seen<Instance>,
    /// The Instance on each cluster that its deployment is bound to.
    pub cells: BTreeMap<String, Seen<Instance>>,
    /// Its deployment, with the Workload.
    pub deployment: Facts,
}

impl InstanceFacts {
    /// Reads an Instance with its deployment.
    pub async fn read(planes: &Planes, name: &str, now: Timestamp) -> Self {
        let instances: Api<Instance> = Api::namespaced(planes.project.clone(), &planes.namespace);
        let owner = names::deployment_of_instance(name).unwrap_or(name);
        let (instance, deployment) =
            futures::future::join(get(&instances, name), Facts::of_deployment(planes, owner, now)).await;
        let way = deployment.deployments.found().and_then(|all| all.first());
        let namespace = way.and_then(|way| way.hub_namespace.clone());
        let hub = async {
            match (&planes.hub, &namespace) {
                (None, _) => Seen::NotAsked(NO_HUB.to_owned()),
                (_, None) => Seen::NotAsked("its namespace on the hub is not known".to_owned()),
                (Some(hub), Some(namespace)) => get(&Api::namespaced(hub.clone(), namespace), name).await,
            }
        };
        let clusters = way.into_iter().flat_map(|way| way.cells.keys().cloned());
        let cells = clusters.map(async |cluster| {
            let seen = match &namespace {
                Some(namespace) => {
                    let read = async |cell| get(&Api::namespaced(cell, namespace), name).await;
                    planes.read_in_cell(&cluster, read).await
                }
                None => Seen::NotAsked("its namespace on the hub is not known".to_owned()),
            };
            (cluster, seen)
        });
        let (hub, cells) = futures::future::join(hub, futures::future::join_all(cells)).await;
        Self { name: name.to_owned(), instance, hub, cells: cells.into_iter().collect(), deployment }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its status.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// The party that has to act. `None` if something is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Time of its last transition.
    pub since: Timestamp,
    /// Its message.
    pub message: String,
}

/// The Instance on one control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The control plane: `project`, `hub`, or the name of a Cluster.
    pub plane: String,
    /// State.
    pub mark: Mark,
    /// What is there.
    pub text: String,
}

/// Result of the trace of an Instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceTrace {
    /// Time of the reads.
    pub time: Timestamp,
    /// Context of the project.
    pub context: String,
    /// Namespace in the project.
    pub namespace: String,
    /// Name of the Instance.
    pub instance: String,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// Why it cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// Its conditions in the project.
    pub conditions: Vec<Row>,
    /// The gates that it still has. All of them open together.
    pub gates: Vec<String>,
    /// Those of them that it does not wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub met_gates: Vec<String>,
    /// The Instance on each control plane.
    pub places: Vec<Place>,
    /// The way of its deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Way>,
}

impl InstanceTrace {
    /// Judges what the control planes show.
    pub fn of(facts: &InstanceFacts) -> Self {
        let found = facts.instance.found();
        let conditions =
            found.and_then(|instance| instance.status.as_ref()).map_or(&[][..], |status| &status.conditions);
        let rows = conditions.iter().map(|condition| {
            let reason = condition.reason();
            let waits = condition.status != ConditionStatus::True && !is_progress(&reason);
            Row {
                type_: condition.type_.clone(),
                status: format!("{:?}", condition.status),
                reason: condition.reason.clone(),
                waits_for: waits.then(|| reason.waits_for().label().to_owned()),
                since: condition.last_transition_time.0,
                message: condition.message.clone(),
            }
        });
        let name = format!("Instance {}/{}", facts.deployment.namespace, facts.name);
        let hidden = match &facts.instance {
            Seen::Found(_) => None,
            Seen::Absent => Some(format!("{name} does not exist in the project")),
            Seen::Unserved => Some("the project does not serve Instances: its definitions are missing".to_owned()),
            seen => seen.hidden().map(|why| format!("{name}: {why}")),
        };
        let planes = [("project", &facts.instance), ("hub", &facts.hub)];
        let cells = facts.cells.iter().map(|(cluster, seen)| (&**cluster, seen));
        let trace = Trace::of(&facts.deployment);
        Self {
            time: facts.deployment.now,
            context: facts.deployment.context.clone(),
            namespace: facts.deployment.namespace.clone(),
            instance: facts.name.clone(),
            broken: found.and_then(|_| not_ready(conditions, &[condition::READY], None)),
            hidden,
            conditions: rows.collect(),
            met_gates: found.map_or_else(Vec::new, |instance| {
                shut_gates(instance).into_iter().filter(|gate| is_met(instance, gate)).collect()
            }),
            gates: found.map(shut_gates).unwrap_or_default(),
            places: planes.into_iter().chain(cells).map(|(plane, seen)| Place::of(plane, seen)).collect(),
            way: trace.ways.into_iter().next(),
        }
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        match &self.broken {
            None if self.hidden.is_some() => Exit::CouldNotAsk,
            None => Exit::Well,
            Some(broken) => broken.exit(),
        }
    }

    /// Returns the text.
    pub fn text(&self, screen: Screen) -> String {
        let mut title = format!("Instance {}/{}", self.namespace, self.instance);
        if !self.context.is_empty() {
            let _ = write!(title, " · project {}", self.context);
        }
        let verdict = text::verdict(self.broken.as_ref(), self.hidden.is_some(), self.time);
        let mut text = format!("{title} · {}\n", screen.strong(&verdict));
        if let Some(broken) = &self.broken {
            let _ = writeln!(text, "{}", text::who(broken, ""));
        }
        if let Some(hidden) = &self.hidden {
            let _ = writeln!(text, "{} {hidden}", screen.sign(Mark::Unseen));
        }
        if !self.conditions.is_empty() {
            let head = ["CONDITION", "STATUS", "REASON", "WHO ACTS", "SINCE", "MESSAGE"];
            let mut rows = vec![head.map(str::to_owned).to_vec()];
            for row in &self.conditions {
                let who = row.waits_for.clone().unwrap_or_else(|| "–".to_owned());
                // A definition gives a new object conditions with this time.
                let is_unset = row.since == Timestamp::UNIX_EPOCH;
                let since = if is_unset { "–".to_owned() } else { age(row.since, self.time) };
                let message = row.message.replace('\n', " ");
                rows.push(vec![row.type_.clone(), row.status.clone(), row.reason.clone(), who, since, message]);
            }
            let _ = write!(text, "\n{}", screen.table(&rows));
        }
        if self.hidden.is_none() {
            // A condition of an earlier generation opens no gate.
            let all_met = self.met_gates.len() == self.gates.len();
            let waits = |gate: &&String| all_met || !self.met_gates.contains(gate);
            let waits: Vec<&str> = self.gates.iter().filter(waits).map(String::as_str).collect();
            let mut gates = if waits.is_empty() { "none".to_owned() } else { waits.join(", ") };
            if !self.met_gates.is_empty() && !all_met {
                let _ = write!(gates, " (met: {})", self.met_gates.join(", "));
            }
            let _ = writeln!(text, "\nGates that it waits for: {gates}");
        }
        let width = self.places.iter().map(|place| place.plane.chars().count()).max().unwrap_or(0);
        text.push('\n');
        for place in &self.places {
            let _ = writeln!(text, "{} {:width$}  {}", screen.sign(place.mark), place.plane, place.text);
        }
        if let Some(way) = &self.way {
            let _ = write!(text, "\n{}", text::way_text(way, self.time, screen));
        }
        text
    }
}

impl Place {
    fn of(plane: &str, seen: &Seen<Instance>) -> Self {
        let (mark, text) = match seen {
            Seen::Found(instance) => shown(instance),
            seen if seen.is_absent() => (Mark::Broken, "does not exist".to_owned()),
            seen => (Mark::Unseen, seen.hidden().unwrap_or_default()),
        };
        Self { plane: plane.to_owned(), mark, text }
    }
}

/// Returns what an Instance says of itself: `Ready`, and on a cell also why it is not on the hub.
fn shown(instance: &Instance) -> (Mark, String) {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let told = [condition::READY, condition::WRITTEN_BACK];
    let told: Vec<_> = conditions.iter().filter(|condition| told.contains(&&*condition.type_)).collect();
    let mark = match told.iter().find(|condition| condition.status != ConditionStatus::True) {
        None if told.is_empty() => Mark::Later,
        None => Mark::Well,
        Some(condition) if is_progress(&condition.reason()) => Mark::Later,
        Some(_) => Mark::Broken,
    };
    let words = told.iter().map(|condition| format!("{}={:?} {}", condition.type_, condition.status, condition.reason));
    let words: Vec<String> = words.collect();
    (mark, if words.is_empty() { "exists, without conditions".to_owned() } else { words.join(", ") })
}

fn is_progress(reason: &Reason) -> bool {
    matches!(reason.class(), Class::Progress | Class::Success)
}
