//! Evidence about one deployment's delivery, and the possible results of its diagnosis.

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

/// Objects that Karmada made of a deployment's copy, and of the companions that the copy expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Karmada {
    /// True if the city's policy exists and is ours.
    pub policy_lives: bool,
    /// Why the city's policy is not as it should be: the hub's error, or that the policy is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_trouble: Option<String>,
    /// The way of companions to the city.
    pub phase: Phase,
    /// Version of the copy after its last write, except status writes. `None` if this process did not see that write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// The copy's binding.
    pub binding: Option<BindingFacts>,
    /// Bindings of the companions that the copy expects.
    pub attached: BTreeMap<DataRef, AttachedBinding>,
    /// Existing clusters that the copy goes to, and all clusters with the city's label.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// Why the drain of the copy's current cluster is blocked. `None` if no drain is requested or the drain is progressing.
    pub drain_waits: Option<String>,
}

/// State of the hub for one deployment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Evidence<'a> {
    /// Its copy on the hub.
    pub copy: &'a WorkloadDeployment,
    /// Its city.
    pub city: &'a CityCode,
    /// Objects that Karmada made of it.
    pub karmada: &'a Karmada,
    /// The companions that the copy expects.
    pub companions: &'a BTreeMap<DataRef, SharedCompanion>,
    /// Record of the last complete delivery of this copy. Parts of it that are missing now were lost.
    pub last_delivery: Option<&'a LastDelivery>,
    /// True if Karmada is known to be behind. Then a missing result proves nothing about its settings.
    pub behind: bool,
}

/// Result of the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The cell has everything that the hub was given.
    Delivered {
        /// The clusters that have it.
        on: Vec<String>,
        /// A problem to report nevertheless.
        note: Option<Note>,
    },
    /// Something is missing, for this cause.
    Blocked {
        /// The cause.
        cause: Verdict,
        /// True if only the data is missing, and not the deployment itself.
        data: bool,
        /// True if Karmada says nothing about it. It may not have got to it yet.
        silent: bool,
        /// True if a cluster that answers has the deployment nevertheless. Then the reported readiness is current.
        heard: bool,
        /// Repair that makes Karmada recreate a lost object. `None` if nothing can have been lost that Karmada does not recreate
        /// by itself.
        repair: Option<Repair>,
    },
}

/// A problem that has no effect yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The condition's reason.
    pub reason: Reason,
    /// The problem, and how to fix it.
    pub message: String,
    /// Repair that makes Karmada check again. `None` if Karmada does so by itself once the problem is fixed.
    pub repair: Option<Repair>,
}

impl Note {
    /// Returns a note that ends by itself once its problem is fixed.
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Self { reason, message, repair: None }
    }
}

/// Object with a repair that makes Karmada recreate a removed binding or Work (facts 49, 50, 55), or process a change that it
/// ignores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The deployment's copy.
    Copy,
    /// The copy, if Karmada has processed all but its last change.
    Change,
    /// A companion.
    Companion(DataRef),
}

/// Cause of a missing object.
pub(super) struct Gap {
    cause: Verdict,
    silent: bool,
    repair: Option<Repair>,
}

impl Gap {
    /// True if no component reports a cause.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Returns a gap with a reported cause.
    pub(super) fn stated(reason: Reason, text: String) -> Self {
        Self { cause: Verdict::no(reason, text), silent: false, repair: None }
    }

    /// Returns a gap that Karmada reports, and does not check again by itself once it is fixed. A repair of the copy makes it
    /// check.
    pub(super) fn looked_at(reason: Reason, text: String) -> Self {
        Self { cause: Verdict::no(reason, text), silent: false, repair: Some(Repair::Copy) }
    }

    /// Returns a gap without a reported cause. The object may have been lost.
    pub(super) fn silent(reason: Reason, text: String, repair: Option<Repair>) -> Self {
        Self { cause: Verdict::no(reason, text), silent: true, repair }
    }

    /// Converts a gap of a deployment.
    pub(super) fn of_deployment(self, heard: bool) -> Delivery {
        Delivery::Blocked { cause: self.cause, data: false, silent: self.silent, heard, repair: self.repair }
    }

    /// Converts a gap of the data of a deployment that all of its clusters have.
    pub(super) fn of_data(self) -> Delivery {
        Delivery::Blocked { cause: self.cause, data: true, silent: self.silent, heard: true, repair: self.repair }
    }
}

/// Object that one binding delivers, and its progress.
pub(super) struct Brought<'a> {
    /// The template, by kind and name.
    pub what: &'a str,
    /// The binding, by kind and name.
    pub at: &'a str,
    /// Result of the apply on each cluster. The error is Karmada's message.
    pub applied: &'a BTreeMap<String, Result<(), String>>,
    /// Parts of the binding that are suspended.
    pub suspension: &'a Suspension,
}

impl Brought<'_> {
    /// Reports a cluster that has the object, and gets no changes of it because the binding is suspended.
    pub(super) fn suspended(&self, on: &[String]) -> Option<Note> {
        let cluster = on.iter().find(|cluster| self.suspension.stops_dispatching(cluster))?;
        let message = format!(
            "Cluster {cluster} has an earlier version: spec.suspension of {} blocks every change until it is resumed",
            self.at
        );
        Some(Note::new(Reason::PropagationSuspended, message))
    }
}
