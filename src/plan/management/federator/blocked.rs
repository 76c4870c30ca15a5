//! What has kept a deployment from being delivered since it last was, and what follows from it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    delivery::{Delivery, Karmada, Note, Repair},
    federation_status::Overdue,
    repair::{self, Absence, Blocked, Capacity, Decision, Loss, has_spoken},
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

/// How many times the grace Karmada gets for what is pending: after many changes at once, it takes its time.
const GRACES_WHILE_PENDING: u32 = 3;

/// How things stand with the delivery of one deployment.
pub(super) struct State<'a> {
    /// What is missing, in one word.
    pub blocker: Option<String>,
    /// What of it has lasted for longer than the grace.
    pub overdue: Overdue,
    /// Whether Karmada says nothing about it.
    pub silent: bool,
    /// True if it was repaired since it was delivered last.
    repaired: bool,
    /// What Karmada lost, or never had, and what is done about it; only once it is reported.
    pub pending_repair: Option<PendingRepair<'a>>,
    /// When to look again.
    pub next: Next,
}

/// What is missing, and what is done about it.
pub(super) struct PendingRepair<'a> {
    /// What is to be repaired.
    pub what: &'a Repair,
    /// Why it is missing.
    pub absence: Absence,
    /// When it is repaired.
    pub decision: Decision,
    cause: Verdict,
}

/// All that is known of one deployment, and of repairs.
pub(super) struct Case<'a> {
    /// What is missing, in one word; nothing when all is as it should be.
    pub blocker: Option<String>,
    /// The deployment in its project.
    pub deployment: &'a WorkloadDeployment,
    /// Its copy.
    pub copy: Option<&'a WorkloadDeployment>,
    /// When all of this copy was there last.
    pub last_delivery: Option<&'a LastDelivery>,
    /// What the hub shows.
    pub finding: Option<&'a Delivery>,
    /// What Karmada made of it.
    pub karmada: Option<&'a Karmada>,
    /// The companions that the copy expects.
    pub companions: &'a BTreeMap<DataRef, SharedCompanion>,
    /// What has kept it until now.
    pub before: Option<&'a Blocked>,
    /// How much the hub can take.
    pub capacity: &'a Capacity,
    /// How long to wait for what.
    pub timing: &'a Timing,
    /// When it is decided.
    pub now: Timestamp,
}

impl Case<'_> {
    fn spread(&self) -> f64 {
        repair::spread(&self.deployment.uid().unwrap_or_default())
    }
}

impl<'a> State<'a> {
    /// Decides how things stand.
    pub(super) fn of(case: &Case<'a>) -> Self {
        let Case { blocker, finding, before, timing, .. } = case;
        let silent = matches!(finding, Some(Delivery::Blocked { silent: true, .. }));
        let goes_on = |before: &&Blocked| !has_spoken(before.silent, silent, before.repairs);
        let lasts = before.filter(|before| blocker.as_ref() == Some(&before.reason)).filter(goes_on);
        let elapsed = lasts.map_or(Duration::ZERO, |before| before.elapsed);
        let missing = Missing::of(case);
        // Of what was delivered and is not seen to be lost, a change is under way.
        let is_pending = silent && missing.as_ref().is_none_or(|missing| missing.absence == Absence::Pending);
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
            // What is silent is looked at ever more rarely; the end of everything else some event reports.
            (Some(_), None) if silent => Next::After(repair::look_again(elapsed, timing, case.spread())),
            (Some(_) | None, _) => Next::Await,
        };
        Self {
            blocker: blocker.clone(),
            overdue: Overdue { blocked: reported, unheard, nowhere, is_pending },
            silent,
            repaired: before.is_some_and(|before| before.repairs > 0),
            pending_repair,
            next,
        }
    }

    /// Whether the cell is told why data does not arrive. Of Karmada's silence it is told only once that is repaired: it
    /// would be told by Karmada, on a copy that has to travel once more. What it was told stays until something changes.
    pub(super) fn is_hinted(&self, copy: Option<&WorkloadDeployment>, hint: &String) -> bool {
        let repaired = self.repaired || self.pending_repair.as_ref().is_some_and(|pending| pending.decision.now);
        let is_there = copy.is_some_and(|copy| copy.annotations().get(annotation::REFERENCED_DATA_ERROR) == Some(hint));
        is_there || self.overdue.blocked && (!self.silent || repaired)
    }

    /// The finding, with all that is known of what was lost.
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

/// What Karmada lost, or never had.
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
            why.message.push_str("; it has not been there before: Karmada may not have got to it yet");
        }
        Some(Self { what, cause: why, absence })
    }

    /// What is done about it, after it has been missing for so long.
    fn decide(self, case: &Case<'a>, blocked: &Blocked) -> PendingRepair<'a> {
        let Self { what, cause, absence } = self;
        let decision = repair::decide(absence, blocked, case.capacity, case.timing, case.spread());
        PendingRepair { what, absence, decision, cause }
    }
}

#[cfg(test)]
#[path = "blocked_tests.rs"]
mod tests;
