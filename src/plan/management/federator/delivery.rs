//! What is asked about one deployment's delivery, and what the answer can be.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::management::observed::{
    cluster::ClusterFacts,
    facts::{AttachedBinding, BindingFacts, Phase, SharedCompanion},
};
use crate::{
    api::{
        compute::{LastDelivery, WorkloadDeployment},
        karmada::Suspension,
        names::CityCode,
        reason::Reason,
        referenced::DataRef,
    },
    plan::condition::Verdict,
};

/// What Karmada made of a deployment's copy, and of the companions that the copy expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Karmada {
    /// Whether the city's policy is there, and ours.
    pub policy_lives: bool,
    /// Why the city's policy is not there as it is to be: in the hub's words, or that it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_trouble: Option<String>,
    /// How companions are brought to the city.
    pub phase: Phase,
    /// The version at which the copy was written last, its status aside; nothing where this process has not seen that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// The copy's binding.
    pub binding: Option<BindingFacts>,
    /// The bindings of the companions that the copy expects.
    pub attached: BTreeMap<DataRef, AttachedBinding>,
    /// The clusters that the copy goes to, as far as they are there, and all that carry the city's label.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// What keeps the city from leaving a cluster that the copy goes to, in words; nothing when it is not to leave, or does.
    pub drain_waits: Option<String>,
}

/// What the hub shows of one deployment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Evidence<'a> {
    /// Its copy on the hub.
    pub copy: &'a WorkloadDeployment,
    /// Its city.
    pub city: &'a CityCode,
    /// What Karmada made of it.
    pub karmada: &'a Karmada,
    /// The companions that the copy expects.
    pub companions: &'a BTreeMap<DataRef, SharedCompanion>,
    /// When all of this copy was there last: what is missing of it was lost.
    pub last_delivery: Option<&'a LastDelivery>,
    /// Whether Karmada is known to take its time: what it has not done yet then says nothing of its settings.
    pub behind: bool,
}

/// What the evidence comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The cell has what the hub was given.
    Delivered {
        /// The clusters that have it.
        on: Vec<String>,
        /// What is to be reported all the same.
        note: Option<Note>,
    },
    /// Something is not there: the cause.
    Blocked {
        /// Why.
        cause: Verdict,
        /// Whether it is the data that is missing, not the deployment itself.
        data: bool,
        /// Whether Karmada has not said a word about it: it may simply not have got there yet.
        silent: bool,
        /// Whether some cluster has the deployment all the same, and answers: what is said of its readiness is heard.
        heard: bool,
        /// What Karmada makes anew once it is repaired, when it may be that something was removed that it does not miss
        /// by itself.
        repair: Option<Repair>,
    },
}

/// Something that harms nobody yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The condition's reason.
    pub reason: Reason,
    /// What, and how to mend it.
    pub message: String,
    /// What makes Karmada look again, where it has looked and does not do so by itself once that is mended.
    pub repair: Option<Repair>,
}

impl Note {
    /// One that ends by itself once it is mended.
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Self { reason, message, repair: None }
    }
}

/// What has Karmada make anew what it lacks: a template whose binding or Work was removed (facts 49, 50, 55), or whose last change
/// it does not take up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The deployment's copy.
    Copy,
    /// The same, of which Karmada has taken up all but the last change.
    Change,
    /// A companion.
    Companion(DataRef),
}

/// Why something is not where it is to be.
pub(super) struct Gap {
    cause: Verdict,
    silent: bool,
    repair: Option<Repair>,
}

impl Gap {
    /// Whether nobody says anything of it.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Something says so.
    pub(super) fn stated(reason: Reason, text: String) -> Self {
        Self { cause: Verdict::no(reason, text), silent: false, repair: None }
    }

    /// Karmada says so, and does not look again by itself when what it found then is mended: the copy makes it look.
    pub(super) fn looked_at(reason: Reason, text: String) -> Self {
        Self { cause: Verdict::no(reason, text), silent: false, repair: Some(Repair::Copy) }
    }

    /// Nothing says anything; perhaps it was lost.
    pub(super) fn silent(reason: Reason, text: String, repair: Option<Repair>) -> Self {
        Self { cause: Verdict::no(reason, text), silent: true, repair }
    }

    /// As what keeps a deployment.
    pub(super) fn of_deployment(self, heard: bool) -> Delivery {
        Delivery::Blocked { cause: self.cause, data: false, silent: self.silent, heard, repair: self.repair }
    }

    /// As what keeps the data of a deployment that every one of its clusters has.
    pub(super) fn of_data(self) -> Delivery {
        Delivery::Blocked { cause: self.cause, data: true, silent: self.silent, heard: true, repair: self.repair }
    }
}

/// What one binding brings, and how far it has come.
pub(super) struct Brought<'a> {
    /// The template, in words.
    pub what: &'a str,
    /// The binding, in words.
    pub at: &'a str,
    /// Of each cluster, whether it took it; if not, in Karmada's words.
    pub applied: &'a BTreeMap<String, Result<(), String>>,
    /// What somebody has stopped of it.
    pub suspension: &'a Suspension,
}

impl Brought<'_> {
    /// Clusters that have it and get no change of it, because somebody has stopped that.
    pub(super) fn suspended(&self, on: &[String]) -> Option<Note> {
        let cluster = on.iter().find(|cluster| self.suspension.stops_dispatching(cluster))?;
        let message = format!(
            "Cluster {cluster} has it as it was: spec.suspension of {} keeps every change from there until it is resumed",
            self.at
        );
        Some(Note::new(Reason::PropagationSuspended, message))
    }
}
