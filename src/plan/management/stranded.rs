//! Hub namespaces of projects that do not exist: reported, and after a grace removed with all that they hold, in every
//! cell.
//!
//! No other deletion takes so much. So it rests on nothing that a cache says: on a live read the project must be absent,
//! and of the namespace itself it is the present state that is judged, and exactly the version judged that goes.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        meta::{label, manager},
        names::ProjectName,
        reason::Reason,
    },
    plan::{
        Discovery, Hub, Kind, NamespaceFacts, Object, ObjectVersion, Plan, Step, Write,
        event::{self, Note, Severity},
    },
};

/// What discovery knows of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Existence {
    /// There is such a project, or one that cannot be read.
    Exists,
    /// Nobody knows: discovery does not follow the projects at present, or there is none to ask.
    Unknown,
    /// There is no such project.
    Absent,
}

/// What is remembered of a namespace that was stranded when it was looked at before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// How long ago that was first seen.
    pub since: Duration,
    /// Whether it has been reported.
    pub reported: bool,
}

/// Everything that is known of one hub namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Its name.
    pub namespace: String,
    /// What the watch knows of it.
    pub facts: NamespaceFacts,
    /// Whether the project that it mirrors exists, as far as discovery knows.
    pub project: Existence,
    /// What earlier looks found; nothing at the first.
    pub seen: Option<Seen>,
    /// How long it is kept; for ever when there is none.
    pub grace: Option<Duration>,
    /// Whether sweeps delete nothing at all.
    pub paused: bool,
}

/// What is to be done about one hub namespace.
#[derive(Debug)]
pub enum Decision {
    /// It is not stranded, or nobody knows: what was remembered of it counts no more.
    Belongs,
    /// It is stranded, and stays for now.
    Keep,
    /// It is stranded, and that is reported. Nothing is removed on one look.
    Report(Write<Hub>),
    /// It may be due: the namespace is to be read as it is at present, and [`remove`] says what follows.
    Look,
}

/// Decides about one hub namespace by what the caches know.
pub fn plan(observed: &Observed, now: Timestamp) -> Decision {
    let Some((project, _)) = observed.facts.upstream() else { return Decision::Belongs };
    if observed.facts.terminating || observed.project != Existence::Absent {
        return Decision::Belongs;
    }
    let Some(seen) = observed.seen.filter(|seen| seen.reported) else {
        return Decision::Report(report(observed, &project, now));
    };
    let due = observed.grace.is_some_and(|grace| seen.since >= grace);
    if due && !observed.paused && !observed.facts.paused { Decision::Look } else { Decision::Keep }
}

fn report(observed: &Observed, project: &ProjectName, now: Timestamp) -> Write<Hub> {
    let what = match observed.grace {
        Some(grace) => format!("it is removed in {} s, with all that it holds", grace.as_secs()),
        None => "it is left as it is".to_owned(),
    };
    let text = format!("project {project}, whose objects this namespace holds, does not exist: {what}");
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(observed.namespace.clone());
    namespace.metadata.uid = Some(observed.facts.uid.clone());
    let note = Note { severity: Severity::Warning, reason: Reason::Stranded, action: "Sweeping", text: &text };
    event::on(&namespace, "sweep", &note, now)
}

/// A hub namespace as a live read has just found it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Present {
    /// What it says.
    pub facts: NamespaceFacts,
    /// Which version of it says so.
    pub version: ObjectVersion,
}

/// What is to be done about a namespace that is due.
#[derive(Debug)]
pub enum Removal {
    /// It stays: it is not the one that was judged, or says something else by now.
    Stays(&'static str),
    /// Its protection is lifted first (fact 53); then it is to be read and judged anew.
    Lift(Plan<Step<Hub, Discovery>>),
    /// It goes.
    Delete(Plan<Step<Hub, Discovery>>),
}

/// Decides about a namespace that [`plan`] found due, by its present state. `kind`: what a project is where projects are
/// discovered.
pub fn remove(observed: &Observed, present: &Present, kind: Kind) -> Removal {
    let facts = &present.facts;
    let Some((project, _)) = facts.upstream().filter(|_| facts.uid == observed.facts.uid) else {
        return Removal::Stays("it is another one by now");
    };
    if facts.upstream() != observed.facts.upstream() {
        return Removal::Stays("it mirrors another project by now");
    }
    if facts.terminating {
        return Removal::Stays("it is on its way out");
    }
    if facts.paused {
        return Removal::Stays("clean-up is paused there");
    }
    let project = Object { kind, namespace: String::new(), name: project.to_string() };
    let absent = Step::Remote(Write::confirm_absent(project));
    let object = Object::named::<Namespace>("", &observed.namespace);
    if facts.labels.contains_key(label::DELETION_PROTECTED) {
        let patch = json!({ "metadata": { "labels": { label::DELETION_PROTECTED: null } } });
        let lift = Write::amend_version(manager::FEDERATOR, object, patch, &present.version);
        return Removal::Lift(Plan::writes(vec![absent, Step::Local(lift)]));
    }
    Removal::Delete(Plan::writes(vec![absent, Step::Local(Write::delete_version(object, present.version.clone()))]))
}

#[cfg(test)]
#[path = "stranded_tests.rs"]
mod tests;
