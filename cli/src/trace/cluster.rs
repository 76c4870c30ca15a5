//! `trace cluster`: what a Cluster has, and what waits there.

use std::{collections::BTreeMap, fmt::Write as _};

use compute_operator::{api::names::CityCode, plan::management::observed::cluster::ClusterFacts};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    exit::Exit,
    hub::{Bound, Copy, HubFacts},
    screen::{Mark, Screen},
};

/// Deployments of one namespace and city on the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Namespace on the hub.
    pub namespace: String,
    /// Namespace in the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Code of the city.
    pub city: String,
    /// Number of deployments.
    pub deployments: usize,
    /// Number of ready Instances.
    pub ready: i64,
    /// Number of wanted Instances.
    pub desired: i64,
}

/// A deployment that waits for the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Namespace on the hub.
    pub namespace: String,
    /// Its name.
    pub deployment: String,
    /// Code of its city.
    pub city: String,
    /// `Broken` if something stops it, `Later` if it makes progress.
    pub mark: Mark,
    /// Why it waits.
    pub text: String,
}

/// Result of the trace of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTrace {
    /// Time of the reads.
    pub time: Timestamp,
    /// Name of the Cluster.
    pub cluster: String,
    /// Why something cannot be seen.
    pub hidden: Vec<String>,
    /// The Cluster itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<ClusterFacts>,
    /// Its deployments.
    pub groups: Vec<Group>,
    /// Number of ConfigMaps and Secrets that go to it.
    pub data: usize,
    /// What waits there.
    pub waiting: Vec<Waiting>,
}

impl ClusterTrace {
    /// Judges what the hub shows.
    pub fn of(facts: &HubFacts, name: &str) -> Self {
        let mut hidden = facts.hidden();
        let cluster = facts.clusters.found().and_then(|all| all.get(name));
        if cluster.is_none() && facts.clusters.hidden().is_none() {
            hidden.push(format!("Cluster {name} does not exist"));
        }
        let mut groups: BTreeMap<(&str, &str), Group> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (copy, bound) in facts.deployments() {
            if let Some(on) = bound.and_then(|bound| bound.clusters.get(name)) {
                let group = groups.entry((&copy.namespace, &copy.city)).or_insert_with(|| Group {
                    namespace: copy.namespace.clone(),
                    upstream: copy.upstream.clone(),
                    city: copy.city.clone(),
                    deployments: 0,
                    ready: 0,
                    desired: 0,
                });
                group.deployments += 1;
                group.ready += on.ready.unwrap_or_default();
                group.desired += on.desired.unwrap_or(copy.desired);
            }
            let city = cluster.and_then(|cluster| cluster.city.as_ref());
            waiting.extend(waits(copy, bound, name, city));
        }
        Self {
            time: facts.now,
            cluster: name.to_owned(),
            hidden,
            facts: cluster.cloned(),
            groups: groups.into_values().collect(),
            data: facts.data_on(name),
            waiting,
        }
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        let is_sound = self.facts.as_ref().is_some_and(|facts| facts.is_able().is_ok());
        let stopped = self.waiting.iter().any(|waiting| waiting.mark == Mark::Broken);
        match &self.facts {
            None => Exit::CouldNotAsk,
            Some(_) if !is_sound || stopped => Exit::Platform,
            Some(_) if !self.hidden.is_empty() => Exit::CouldNotAsk,
            Some(_) if !self.waiting.is_empty() => Exit::InProgress,
            Some(_) => Exit::Well,
        }
    }

    /// Returns the text.
    pub fn text(&self, screen: Screen) -> String {
        let mut text = format!("Cluster {}", self.cluster);
        if let Some(facts) = &self.facts {
            let _ = writeln!(text, " · {}", screen.strong(&summary(facts)));
            let mut line = |mark: Mark, name: &str, words: String| {
                let _ = writeln!(text, "{} {name:<9} {words}", screen.sign(mark));
            };
            let is_city = facts.city.is_some();
            let label = facts.label.clone().unwrap_or_else(|| "none: no city is served from here".to_owned());
            line(if is_city { Mark::Well } else { Mark::Warning }, "city", label);
            match &facts.ready {
                Ok(()) => line(Mark::Well, "ready", "yes".to_owned()),
                Err(why) => line(Mark::Broken, "ready", format!("no: {why}")),
            }
            if let Some(obstacle) = &facts.obstacle {
                line(Mark::Broken, "scheduler", format!("brings nothing new here: the Cluster {obstacle}"));
            }
            let taints = if facts.taints.is_empty() { "none".to_owned() } else { facts.taints.join(", ") };
            line(if facts.taints.is_empty() { Mark::Well } else { Mark::Warning }, "taints", taints);
            let drain = drain(facts);
            line(if drain == "no" { Mark::Well } else { Mark::Warning }, "drain", drain.to_owned());
            line(Mark::Well, "data", format!("{} ConfigMaps and Secrets", self.data));
        } else {
            text.push('\n');
        }
        for hidden in &self.hidden {
            let _ = writeln!(text, "{} {hidden}", screen.sign(Mark::Unseen));
        }
        if !self.groups.is_empty() {
            let mut rows =
                vec![["NAMESPACE", "IN THE PROJECT", "CITY", "DEPLOYMENTS", "READY"].map(str::to_owned).to_vec()];
            for group in &self.groups {
                let upstream = group.upstream.clone().unwrap_or_else(|| "–".to_owned());
                let ready = format!("{}/{}", group.ready, group.desired);
                let count = group.deployments.to_string();
                rows.push(vec![group.namespace.clone(), upstream, group.city.clone(), count, ready]);
            }
            let _ = write!(text, "\n{}", screen.table(&rows));
        }
        if !self.waiting.is_empty() {
            let _ = writeln!(text, "\nWaits there:");
            for waiting in &self.waiting {
                let Waiting { namespace, deployment, text: why, mark, .. } = waiting;
                let _ = writeln!(text, "{} {namespace}/{deployment}  {why}", screen.sign(*mark));
            }
        } else if self.facts.is_some() && self.hidden.is_empty() {
            let _ = writeln!(text, "\nNothing waits there.");
        }
        text
    }
}

/// Returns the state of a Cluster in a few words.
pub fn summary(facts: &ClusterFacts) -> String {
    match facts.is_able() {
        Ok(()) if facts.is_leaving() => "READY, LEAVING".to_owned(),
        Ok(()) => "READY".to_owned(),
        Err(_) if facts.deleting => "DELETING".to_owned(),
        Err(_) if facts.ready.is_ok() => "READY, CLOSED".to_owned(),
        Err(_) => "NOT READY".to_owned(),
    }
}

/// Returns what the drain annotation asks for.
pub fn drain(facts: &ClusterFacts) -> &'static str {
    match (facts.dead, facts.draining) {
        (true, _) => "dead",
        (_, true) => "yes",
        _ => "no",
    }
}

/// Returns why a deployment waits for the cluster: it is bound to it, or its city is the cluster's and it has none.
fn waits(copy: &Copy, bound: Option<&Bound>, cluster: &str, city: Option<&CityCode>) -> Option<Waiting> {
    let (mark, text) = match bound.map(|bound| (bound, bound.clusters.get(cluster))) {
        Some((_, Some(on))) => {
            let (ready, desired) = (on.ready.unwrap_or_default(), on.desired.unwrap_or(copy.desired));
            match &on.trouble {
                Some(why) => (Mark::Broken, format!("not applied: {why}")),
                None if ready < desired => (Mark::Later, format!("{ready} of {desired} Instances are ready")),
                None => return None,
            }
        }
        Some((bound, None)) if bound.clusters.is_empty() => {
            same_city(copy, city)?;
            match &bound.unscheduled {
                Some(why) => (Mark::Broken, format!("has no cluster: {why}")),
                None => (Mark::Later, "has no cluster yet: the scheduler has not processed it".to_owned()),
            }
        }
        Some(_) => return None,
        None => {
            same_city(copy, city)?;
            (Mark::Later, "has no binding".to_owned())
        }
    };
    Some(Waiting {
        namespace: copy.namespace.clone(),
        deployment: copy.name.clone(),
        city: copy.city.clone(),
        mark,
        text,
    })
}

fn same_city(copy: &Copy, city: Option<&CityCode>) -> Option<()> {
    let own = CityCode::parse(&copy.city).ok()?;
    (Some(&own) == city).then_some(())
}
