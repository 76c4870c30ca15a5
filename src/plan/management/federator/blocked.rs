//! Causes that have blocked a deployment since its last delivery, and their consequences.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    delivery::{Delivery, Karmada, Note, Repair},
    federation_status::Overdue,
    repair::{self, Absence, Blocked, Capacity, Decision, Loss, grace_begins},
    unheard,
};
use crate::plan::management::observed::facts::SharedCompanion;
use crate::{
    api::{
        compute::{LastDelivery, WorkloadDeployment},
        meta::annotation,
        referenced::DataRef,
    },
    plan::{Next, condition::Verdict},
    timing::Timing,
};

/// Factor of the grace for pending objects: after many changes at once, Karmada takes longer.
const GRACES_WHILE_PENDING: u32 = 3;

/// State of the delivery of one deployment.
pub(super) struct State<'a> {
    /// Reason that blocks the delivery.
    pub blocker: Option<String>,
    /// Parts of the state that have outlasted their grace.
    pub overdue: Overdue,
    /// Kind of the absence about which Karmada says nothing. `None` if Karmada named a cause.
    pub silence: Option<Absence>,
    /// True if it was repaired since the last delivery.
    repaired: bool,
    /// The object that Karmada lost or never had, and its repair. `None` until it is reported.
    pub pending_repair: Option<PendingRepair<'a>>,
    /// Time of the next reconcile.
    pub next: Next,
}

/// A missing object and its repair.
pub(super) struct PendingRepair<'a> {
    /// The object to repair.
    pub what: &'a Repair,
    /// Why it is missing.
    pub absence: Absence,
    /// When it is repaired.
    pub decision: Decision,
    cause: Verdict,
}

/// Facts of one deployment, and of repairs.
pub(super) struct Case<'a> {
    /// Reason that blocks the delivery. `None` if everything is delivered.
    pub blocker: Option<String>,
    /// The deployment in its project.
    pub deployment: &'a WorkloadDeployment,
    /// Its copy.
    pub copy: Option<&'a WorkloadDeployment>,
    /// Record of the last complete delivery of this copy.
    pub last_delivery: Option<&'a LastDelivery>,
    /// Diagnosis of the delivery.
    pub finding: Option<&'a Delivery>,
    /// Objects that Karmada made of the copy.
    pub karmada: Option<&'a Karmada>,
    /// The companions that the copy expects.
    pub companions: &'a BTreeMap<DataRef, SharedCompanion>,
    /// The cause that has blocked it until now.
    pub before: Option<&'a Blocked>,
    /// Number of repairs that the hub can take.
    pub capacity: &'a Capacity,
    /// Waiting periods.
    pub timing: &'a Timing,
    /// Time of the decision.
    pub now: Timestamp,
}

impl Case<'_> {
    fn spread(&self) -> f64 {
        repair::spread(&self.deployment.uid().unwrap_or_default())
    }
}

impl<'a> State<'a> {
    /// Derives the state.
    pub(super) fn of(case: &Case<'a>) -> Self {
        let Case { blocker, finding, before, timing, .. } = case;
        let silent = matches!(finding, Some(Delivery::Blocked { silent: true, .. }));
        let missing = Missing::of(case);
        // Silence without a known loss means that a change is under way.
        let silence = silent.then(|| missing.as_ref().map_or(Absence::Pending, |missing| missing.absence));
        let goes_on = |before: &&Blocked| !grace_begins(before.silence, silence, before.repairs);
        let lasts = before.filter(|before| blocker.as_ref() == Some(&before.reason)).filter(goes_on);
        let elapsed = lasts.map_or(Duration::ZERO, |before| before.elapsed);
        let is_pending = silence == Some(Absence::Pending);
        let grace = timing.delivery_grace * if is_pending { GRACES_WHILE_PENDING } else { 1 };
        let reported = blocker.is_some() && elapsed >= grace;
        let away = unheard::is_away(*finding);
        let away_for = unheard::away_for(case.deployment, elapsed, case.now);
        let unheard = away && away_for >= timing.cluster_silence;
        let nowhere = reported && unheard::is_nowhere(*finding, case.karmada);
        let pending_repair =
            missing.zip(lasts).filter(|_| reported).map(|(missing, lasts)| missing.decide(case, lasts));
        let next = match (blocker, &pending_repair) {
            (Some(_), _) if !reported => Next::After(grace.saturating_sub(elapsed)),
            (Some(_), _) if away && !unheard => Next::After(timing.cluster_silence.saturating_sub(away_for)),
            (Some(_), Some(pending)) => Next::After(pending.decision.next),
            // A silent deployment is checked ever more rarely. For all others, an event reports the change.
            (Some(_), None) if silent => Next::After(repair::look_again(elapsed, timing, case.spread())),
            (Some(_) | None, _) => Next::Await,
        };
        Self {
            blocker: blocker.clone(),
            overdue: Overdue { blocked: reported, unheard, nowhere, is_pending },
            silence,
            repaired: before.is_some_and(|before| before.repairs > 0),
            pending_repair,
            next,
        }
    }

    /// True if the cell gets the hint why data does not arrive. While Karmada is silent, the hint waits for a repair: Karmada
    /// would have to carry it, on a copy that changes once more. A hint on the copy is kept until something changes.
    pub(super) fn is_hinted(&self, copy: Option<&WorkloadDeployment>, hint: &String) -> bool {
        let repaired = self.repaired || self.pending_repair.as_ref().is_some_and(|pending| pending.decision.now);
        let is_there = copy.is_some_and(|copy| copy.annotations().get(annotation::REFERENCED_DATA_ERROR) == Some(hint));
        is_there || self.overdue.blocked && (self.silence.is_none() || repaired)
    }

    /// Returns the finding with the full cause of a loss.
    pub(super) fn in_full(&self, finding: Option<&Delivery>) -> Option<Delivery> {
        match (finding, &self.pending_repair) {
            (Some(Delivery::Blocked { data, silent, heard, repair, .. }), Some(pending)) => Some(Delivery::Blocked {
                cause: pending.cause.clone(),
                data: *data,
                silent: *silent,
                heard: *heard,
                repair: repair.clone(),
            }),
            (finding, _) => finding.cloned(),
        }
    }
}

/// An object that Karmada lost, or never had.
struct Missing<'a> {
    what: &'a Repair,
    cause: Verdict,
    absence: Absence,
}

impl<'a> Missing<'a> {
    fn of(case: &Case<'a>) -> Option<Self> {
        let (mut why, what, silent) = match case.finding? {
            Delivery::Blocked { cause, repair: Some(what), silent, .. } => (cause.clone(), what, *silent),
            Delivery::Delivered { note: Some(Note { reason, message, repair: Some(what) }), .. } => {
                (Verdict::no(reason.clone(), message.clone()), what, false)
            }
            _ => return None,
        };
        let copy = case.copy?;
        let companion = match what {
            Repair::Copy | Repair::Change => None,
            Repair::Companion(data_ref) => Some(data_ref),
        };
        let created = companion.and_then(|data_ref| case.companions.get(data_ref)?.created);
        let binding = case.karmada.and_then(|karmada| karmada.binding.as_ref());
        let clusters = binding.map_or(&[][..], |binding| &binding.clusters);
        let before = Loss { copy, companion, created, clusters }.had_been_delivered(case.last_delivery);
        let is_change = *what == Repair::Change;
        let absence = if silent && before && !is_change { Absence::Lost } else { Absence::Pending };
        if silent && !before && !is_change {
            why.message.push_str("; it was never delivered: Karmada may not have processed it yet");
        }
        Some(Self { what, cause: why, absence })
    }

    /// Decides about the repair, given how long the object has been missing.
    fn decide(self, case: &Case<'a>, blocked: &Blocked) -> PendingRepair<'a> {
        let Self { what, cause, absence } = self;
        let decision = repair::decide(absence, blocked, case.capacity, case.timing, case.spread());
        PendingRepair { what, absence, decision, cause }
    }
}

#[cfg(test)]
#[path = "blocked_tests.rs"]
mod tests;
