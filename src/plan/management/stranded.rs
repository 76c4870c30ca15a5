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
    /// There is no such project, which would be one of this kind.
    Absent(Kind),
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
    /// The namespace as a live read has just found it; only read once it is due.
    pub present: Option<Present>,
}

/// A hub namespace as a live read has just found it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Present {
    /// What it says.
    pub facts: NamespaceFacts,
    /// Which version of it says so.
    pub version: ObjectVersion,
}

/// What the controller is to remember or to do beside the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It is stranded. Of one that is not, or of which nobody knows, nothing is remembered.
    Stranded,
    /// That is reported by the writes. Nothing is removed on one look.
    Reported,
    /// The namespace is to be read, and to be judged by its present state: it is due, or its protection has just been
    /// lifted.
    Read,
    /// It stays: it is not the one that was judged, or says something else by now.
    Stays(&'static str),
    /// It goes with these writes.
    Removed,
}

/// What is decided about one hub namespace.
pub type Decided = Plan<Step<Hub, Discovery>, Signal>;

/// Decides about one hub namespace: by what the caches know, and once it is due by its present state.
pub fn plan(observed: &Observed, now: Timestamp) -> Decided {
    let (Some((project, _)), Existence::Absent(kind)) = (observed.facts.upstream(), observed.project) else {
        return Plan::nothing();
    };
    if observed.facts.terminating {
        return Plan::nothing();
    }
    let stranded = |plan: Decided| plan.with([Signal::Stranded]);
    let Some(seen) = observed.seen.filter(|seen| seen.reported) else {
        let event = Step::Local(report(observed, &project, now));
        return stranded(Plan::writes(vec![event])).with([Signal::Reported]);
    };
    let due = observed.grace.is_some_and(|grace| seen.since >= grace);
    if !due || observed.paused || observed.facts.paused {
        return stranded(Plan::nothing());
    }
    stranded(match &observed.present {
        Some(present) => remove(observed, present, kind),
        None => Plan::nothing().with([Signal::Read]),
    })
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

/// Removes a namespace that is due, as far as its present state allows. `kind`: what a project is where projects are
/// discovered.
fn remove(observed: &Observed, present: &Present, kind: Kind) -> Decided {
    let stays = |why| Plan::nothing().with([Signal::Stays(why)]);
    let facts = &present.facts;
    let Some((project, _)) = facts.upstream().filter(|_| facts.uid == observed.facts.uid) else {
        return stays("it is another one by now");
    };
    if facts.upstream() != observed.facts.upstream() {
        return stays("it mirrors another project by now");
    }
    if facts.terminating {
        return stays("it is on its way out");
    }
    if facts.paused {
        return stays("clean-up is paused there");
    }
    let project = Object { kind, namespace: String::new(), name: project.to_string() };
    let absent = Step::Remote(Write::confirm_absent(project));
    let object = Object::named::<Namespace>("", &observed.namespace);
    if facts.labels.contains_key(label::DELETION_PROTECTED) {
        // The protection goes first (fact 53); its removal is a new version, which is judged anew.
        let patch = json!({ "metadata": { "labels": { label::DELETION_PROTECTED: null } } });
        let lift = Write::amend_version(manager::FEDERATOR, object, patch, &present.version);
        return Plan::writes(vec![absent, Step::Local(lift)]).with([Signal::Read]);
    }
    let delete = Write::delete_version(object, present.version.clone());
    Plan::writes(vec![absent, Step::Local(delete)]).with([Signal::Removed])
}

#[cfg(test)]
#[path = "stranded_tests.rs"]
mod tests;
