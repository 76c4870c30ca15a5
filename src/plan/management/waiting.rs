//! The list of everything that waits, in all projects: the answer of `/waiting`.
//!
//! It repeats the `Ready` conditions of deployments and Workloads, so it names the reasons that their users see.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        compute::{Condition, ConditionStatus, Workload, WorkloadDeployment},
        meta::condition,
        names::ProjectName,
        reason::{Reason, Who},
    },
    plan::condition::{find, is_true_of, who_acts},
};

/// Number of objects in an answer, unless the request names another.
pub const DEFAULT_LIMIT: usize = 100;

/// Largest number of objects in an answer.
pub const MAX_LIMIT: usize = 1000;

/// Kind of a waiting object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WaitingKind {
    /// A Workload without a deployment that waits.
    Workload,
    /// A Workload in one city.
    WorkloadDeployment,
}

/// Place of a waiting object. Answers are in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Project of the object.
    pub project: ProjectName,
    /// Namespace in the project.
    pub namespace: String,
    /// Kind of the object.
    pub kind: WaitingKind,
    /// Name of the object.
    pub name: String,
}

/// An object that is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The object.
    #[serde(flatten)]
    pub place: Place,
    /// Code of the city. `None` for a Workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// Clusters that Karmada chose, else those with the city's label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Reason of its condition `Ready`.
    pub reason: String,
    /// Party that acts: `tenant`, `platform` or `nobody`.
    pub waits_for: String,
    /// Time since which it has not been ready.
    pub since: Timestamp,
    /// Message of its condition `Ready`.
    pub message: String,
}

/// Objects that wait for the same thing in the same place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Party that acts: `tenant`, `platform` or `nobody`.
    pub waits_for: String,
    /// Reason of the objects' conditions `Ready`.
    pub reason: String,
    /// Code of the city. `None` for Workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// Clusters of the objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Number of projects.
    pub projects: usize,
    /// Number of objects.
    pub objects: usize,
    /// Time since which the oldest has not been ready.
    pub oldest: Timestamp,
}

/// Selection of objects, as the parameters of a request state it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Query {
    /// Only objects with this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only objects of this city.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// Only objects of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Largest number of objects: [`DEFAULT_LIMIT`] by default, [`MAX_LIMIT`] at most. Causes are always complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The `next` of an earlier answer: continues after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The answer of `/waiting`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Time of the answer.
    pub time: Timestamp,
    /// Number of projects that the manager serves.
    pub projects: usize,
    /// Projects whose objects are not complete in the manager's caches. They may have more that waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<ProjectName>,
    /// Number of all deployments in these projects.
    pub deployments: usize,
    /// Causes of the selected objects, those with the most objects first.
    pub causes: Vec<Cause>,
    /// Selected objects, in the order of their places.
    pub objects: Vec<Waiting>,
    /// Continues this answer. `None` if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What the caches hold, apart from the waiting objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of projects.
    pub projects: usize,
    /// Projects with incomplete caches.
    pub incomplete: Vec<ProjectName>,
    /// Number of deployments.
    pub deployments: usize,
}

/// Returns the entry of a deployment. `None` if it is ready or is being deleted. A deployment without the condition `Ready` has not
/// been reconciled yet.
pub fn deployment(project: &ProjectName, deployment: &WorkloadDeployment, clusters: Vec<String>) -> Option<Waiting> {
    let conditions = deployment.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let kind = WaitingKind::WorkloadDeployment;
    let mut waiting = entry(project, kind, deployment, conditions)?;
    waiting.city = Some(deployment.spec.city_code.clone());
    waiting.clusters = clusters;
    Some(waiting)
}

/// Returns the entry of a Workload. `None` if it is ready or is being deleted.
pub fn workload(project: &ProjectName, workload: &Workload) -> Option<Waiting> {
    let conditions = workload.status.as_ref().map_or(&[][..], |status| &status.conditions);
    entry(project, WaitingKind::Workload, workload, conditions)
}

/// Why an object waits, without its words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Wait {
    /// Reason of its condition `Ready`.
    pub reason: Reason,
    /// Party that acts.
    pub who: Who,
}

/// Returns why an object with these conditions waits. `None` if it is ready in its present generation, or is being deleted.
pub fn wait(meta: &ObjectMeta, conditions: &[Condition]) -> Option<Wait> {
    if meta.deletion_timestamp.is_some() || is_true_of(conditions, condition::READY, meta.generation) {
        return None;
    }
    let ready = find(conditions, condition::READY);
    let reason = match ready {
        Some(ready) if ready.status != ConditionStatus::True => ready.reason(),
        _ => Reason::Pending,
    };
    let who = who_acts(ready.map_or(ConditionStatus::Unknown, |ready| ready.status), &reason);
    Some(Wait { reason, who })
}

fn entry(
    project: &ProjectName,
    kind: WaitingKind,
    object: &impl ResourceExt,
    conditions: &[Condition],
) -> Option<Waiting> {
    let meta = object.meta();
    let Wait { reason, who } = wait(meta, conditions)?;
    let (since, message) = match find(conditions, condition::READY) {
        Some(ready) if ready.status == ConditionStatus::True => {
            let text = "The operator has not reported about its latest change yet".to_owned();
            (ready.last_transition_time.0, text)
        }
        Some(ready) => (ready.last_transition_time.0, ready.message.clone()),
        None => {
            let created = meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
            (created, "The operator has not reported about it yet".to_owned())
        }
    };
    let namespace = object.namespace().unwrap_or_default();
    Some(Waiting {
        place: Place { project: project.clone(), namespace, kind, name: object.name_any() },
        city: None,
        clusters: Vec::new(),
        waits_for: who.label().to_owned(),
        reason: reason.as_str().to_owned(),
        since,
        message,
    })
}

/// Number of groups that [`count`] returns at most, before the rest is one group. Providers name reasons of their own.
const GROUPS: usize = 500;
/// Reason of the rest.
const OTHER: &str = "Other";

/// Objects that wait for the same party, for the same reason, in the same city.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Reason.
    pub reason: String,
    /// Party that acts.
    pub who: Who,
    /// Code of the city. Empty for Workloads.
    pub city: String,
}

/// Counts waiting objects for the metric. Each has the code of its city, or an empty one.
pub fn count<'a>(all: impl IntoIterator<Item = (&'a Wait, &'a str)>) -> BTreeMap<Group, usize> {
    let mut as_written: BTreeMap<(&Wait, &str), usize> = BTreeMap::new();
    for wait_and_city in all {
        *as_written.entry(wait_and_city).or_default() += 1;
    }
    let mut counts: BTreeMap<(&Wait, String), usize> = BTreeMap::new();
    for ((wait, city), objects) in as_written {
        *counts.entry((wait, city.to_ascii_lowercase())).or_default() += objects;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, objects)| std::cmp::Reverse(*objects));
    let mut groups = BTreeMap::new();
    for (n, ((Wait { reason, who }, city), objects)) in counts.into_iter().enumerate() {
        let (reason, city) = if n < GROUPS { (reason.as_str(), city) } else { (OTHER, String::new()) };
        *groups.entry(Group { reason: reason.to_owned(), who: *who, city }).or_default() += objects;
    }
    groups
}

/// Answers a request. A Workload is left out if one of its deployments waits: the deployment's entry says more.
///
/// # Errors
/// One line if a parameter is not usable.
pub fn answer(
    query: &Query,
    workloads: Vec<Waiting>,
    deployments: Vec<(Waiting, String)>,
    totals: Totals,
    now: Timestamp,
) -> Result<Answer, String> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit > MAX_LIMIT {
        return Err(format!("limit must be at most {MAX_LIMIT}"));
    }
    let after = query.after.as_deref().map(parse).transpose()?;
    let covered: BTreeSet<(ProjectName, String, String)> = deployments
        .iter()
        .map(|(waiting, workload)| (waiting.place.project.clone(), waiting.place.namespace.clone(), workload.clone()))
        .collect();
    let is_covered = |waiting: &Waiting| {
        let place = &waiting.place;
        covered.contains(&(place.project.clone(), place.namespace.clone(), place.name.clone()))
    };
    let alone = workloads.into_iter().filter(|waiting| !is_covered(waiting));
    let mut objects: Vec<Waiting> = deployments
        .into_iter()
        .map(|(waiting, _)| waiting)
        .chain(alone)
        .filter(|waiting| query.selects(waiting))
        .collect();
    let causes = causes(&objects);
    objects.retain(|waiting| after.as_ref().is_none_or(|after| waiting.place > *after));
    objects.sort_by(|one, other| one.place.cmp(&other.place));
    let more = objects.len() > limit;
    objects.truncate(limit);
    let next = objects.last().filter(|_| more).map(|last| token(&last.place));
    let Totals { projects, incomplete, deployments } = totals;
    Ok(Answer { time: now, projects, incomplete, deployments, causes, objects, next })
}

impl Query {
    fn selects(&self, waiting: &Waiting) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| value.is_some_and(|value| value.eq_ignore_ascii_case(wanted)))
        };
        is(&self.reason, Some(&waiting.reason))
            && is(&self.city, waiting.city.as_deref())
            && self.project.as_ref().is_none_or(|wanted| waiting.place.project.as_str() == wanted)
    }
}

/// Groups objects by what they wait for, and where.
fn causes(objects: &[Waiting]) -> Vec<Cause> {
    let mut groups: BTreeMap<_, Vec<&Waiting>> = BTreeMap::new();
    for object in objects {
        let key = (&object.waits_for, &object.reason, &object.city, &object.clusters);
        groups.entry(key).or_default().push(object);
    }
    let mut causes: Vec<Cause> = groups.into_values().filter_map(|group| Cause::of(&group)).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.objects));
    causes
}

impl Cause {
    /// Returns the row of objects with the same cause. `None` without objects.
    fn of(group: &[&Waiting]) -> Option<Self> {
        let first = group.first()?;
        let projects: BTreeSet<_> = group.iter().map(|waiting| &waiting.place.project).collect();
        Some(Self {
            waits_for: first.waits_for.clone(),
            reason: first.reason.clone(),
            city: first.city.clone(),
            clusters: first.clusters.clone(),
            projects: projects.len(),
            objects: group.len(),
            oldest: group.iter().map(|waiting| waiting.since).min()?,
        })
    }
}

/// Returns the text of a place that continues an answer.
fn token(place: &Place) -> String {
    let kind = match place.kind {
        WaitingKind::Workload => "Workload",
        WaitingKind::WorkloadDeployment => "WorkloadDeployment",
    };
    format!("{}/{}/{kind}/{}", place.project.as_str(), place.namespace, place.name)
}

fn parse(token: &str) -> Result<Place, String> {
    let bad = || "after must be the `next` of an earlier answer".to_owned();
    let mut parts = token.rsplitn(4, '/');
    let mut part = || parts.next().filter(|part| !part.is_empty()).ok_or_else(bad);
    let (name, kind, namespace, project) = (part()?, part()?, part()?, part()?);
    let kind = match kind {
        "Workload" => WaitingKind::Workload,
        "WorkloadDeployment" => WaitingKind::WorkloadDeployment,
        _ => return Err(bad()),
    };
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Ok(Place { project: ProjectName::new(project), namespace, kind, name })
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
