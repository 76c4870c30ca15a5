//! The status of a project's deployment: what the cell reports, whether it has what it was given, and its data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{
    diagnosis::{Delivery, is_withheld, is_wordless},
    last_delivery, repair, unheard,
};
use crate::plan::management::{
    observed::facts::SharedCompanion,
    referenced_data::resolve::{self, Data, SourceRefusal},
};
use crate::{
    api::{
        compute::{Condition, ConditionStatus, LastDelivery, WorkloadDeployment, WorkloadDeploymentStatus},
        meta::{annotation, condition, manager},
        reason::Reason,
        referenced::DataRef,
    },
    plan::{
        Project, Write,
        condition::{Verdict, differs_in_their_numbers_alone, find, own_words},
        event::{self, Note, Severity},
    },
};

/// Who reports an Event about a deployment.
pub(super) const CONTROLLER: &str = "workload-deployment-federator";

/// What is missing of a deployment's delivery, in one word; nothing when all is as it should be.
pub(super) fn blocker(
    deployment: &WorkloadDeployment,
    copy: Option<&WorkloadDeployment>,
    data: &Data,
    finding: Option<&Delivery>,
) -> Option<String> {
    match finding {
        Some(Delivery::Blocked { cause, .. }) => return Some(cause.reason.to_string()),
        Some(Delivery::Delivered { note: Some(note), .. }) => return Some(note.reason.to_string()),
        _ => {}
    }
    if let Some(trouble) = &data.trouble {
        return Some(trouble.reason.to_string());
    }
    (finding.is_some() && is_early(deployment, copy)).then(|| "NotReported".to_owned())
}

/// Whether the cell is about to report for the first time: it brings the first word of success with it, in one write.
fn is_early(deployment: &WorkloadDeployment, copy: Option<&WorkloadDeployment>) -> bool {
    let reported = deployment.status.as_ref().is_some_and(|s| find(&s.conditions, condition::FEDERATED).is_some());
    !reported && copy.is_none_or(|copy| copy.status.is_none())
}

/// What has lasted longer than the grace before it is reported. Each cause has a grace of its own: while delivery recovers,
/// others pass by.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub(super) struct Overdue {
    /// Something is missing of its delivery.
    pub blocked: bool,
    /// Its cluster does not answer, so that nobody knows whether what is there is ready.
    pub unheard: bool,
    /// Karmada sends it to no cluster.
    pub nowhere: bool,
    /// Karmada has not got to it yet. A condition says so, and no Event: there may be many.
    pub is_pending: bool,
}

/// The deployment whose status is decided.
pub(super) struct View<'a> {
    /// The deployment in its project.
    pub deployment: &'a WorkloadDeployment,
    /// Its copy.
    pub copy: Option<&'a WorkloadDeployment>,
    /// What is known of its data.
    pub data: &'a Data,
    /// The companions that it refers to.
    pub companions: &'a BTreeMap<DataRef, SharedCompanion>,
}

/// Decides the status of one deployment. What has been missing for a moment only is not said: it is under way.
/// `last_delivery` is that of this copy.
pub(super) fn plan(
    view: &View<'_>,
    finding: Option<&Delivery>,
    overdue: Overdue,
    last_delivery: Option<LastDelivery>,
    now: Timestamp,
) -> Vec<Write<Project>> {
    let View { deployment, copy, data, companions } = *view;
    let reported = overdue.blocked;
    let empty = WorkloadDeploymentStatus::default();
    let old = deployment.status.as_ref().unwrap_or(&empty);
    let generation = deployment.metadata.generation;
    let before = |type_: &str| find(&old.conditions, type_).cloned();
    let verdict = |verdict: Option<Verdict>, type_: &str| match verdict {
        Some(verdict) => {
            Some(steady(verdict, find(&old.conditions, type_)).into_condition(&old.conditions, type_, generation, now))
        }
        None => before(type_),
    };
    let early = is_early(deployment, copy);
    let last_delivery = match (copy, finding) {
        (Some(copy), Some(Delivery::Delivered { on, .. })) if !early || reported => {
            Some(last_delivery::now(last_delivery, copy, on, companions, now))
        }
        _ => last_delivery,
    };
    let federated = verdict(federated(finding, reported, early), condition::FEDERATED);
    let of_data =
        if data.refers { verdict(data_ready(data, finding, reported), condition::REFERENCED_DATA_READY) } else { None };
    let silent = matches!(finding, Some(Delivery::Blocked { silent: true, .. }));
    let unheard = unheard::verdict(deployment, finding, overdue.unheard, overdue.nowhere);
    let own = Own { federated, of_data, unheard, last_delivery, silent, is_pending: overdue.is_pending };
    update(deployment, copy, own, now)
}

/// A verdict in the words that stand already, where it differs from them in the numbers of Karmada's alone (a port, a
/// resourceVersion): each of its attempts has others.
fn steady(verdict: Verdict, before: Option<&Condition>) -> Verdict {
    let same = |before: &&Condition| {
        verdict.status != ConditionStatus::True
            && ends_in_words_of_others(&verdict.reason)
            && (before.status, &before.reason[..]) == (verdict.status, verdict.reason.as_str())
            && differs_in_their_numbers_alone(
                said(&before.message, &verdict.reason),
                said(&verdict.message, &verdict.reason),
            )
    };
    match before.filter(same) {
        Some(before) => Verdict { message: before.message.clone(), ..verdict },
        None => verdict,
    }
}

/// Whether what is said for this reason ends in the words of Karmada, or of a cluster: everywhere else all words are our own, and
/// a number in them is part of a name.
fn ends_in_words_of_others(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NotApplied
            | Reason::NotScheduled
            | Reason::NoClusterForCity
            | Reason::ClusterNotReady
            | Reason::AwaitingPropagation
    )
}

/// What is said without the cause's reason before it: the numbers in our own words after that are names.
fn said<'a>(message: &'a str, reason: &Reason) -> &'a str {
    match message.split_once(": ") {
        Some((_, cause)) if *reason == Reason::AwaitingPropagation => cause,
        _ => message,
    }
}

/// What the cell is told of why its data does not arrive, in the words that stand on the copy already for as long as the reason
/// and our own words are the same: the copy would travel for each of Karmada's, to be told on every Instance. Its words of the
/// moment stand in the deployment's condition. Only that there are none yet is not kept once there are some.
pub(super) fn hint(cause: &Verdict, copy: Option<&WorkloadDeployment>) -> String {
    let standing = copy.and_then(|copy| copy.annotations().get(annotation::REFERENCED_DATA_ERROR));
    let same = |standing: &&String| {
        serde_json::from_str::<serde_json::Value>(standing).is_ok_and(|standing| {
            let message = standing["message"].as_str().unwrap_or_default();
            standing["reason"] == cause.reason.as_str()
                && own_words(message) == own_words(&cause.message)
                && (is_wordless(&cause.message) || !is_wordless(message))
                // Words of before, in which a value may stand, are not kept.
                && (!is_withheld(&cause.message) || is_withheld(message))
        })
    };
    let new = || SourceRefusal::new(cause.reason.clone(), cause.message.as_str()).to_annotation();
    standing.filter(same).cloned().unwrap_or_else(new)
}

/// Says one thing of how a deployment stands with the hub, and leaves everything else as it is. Of its data, it says what
/// cannot be copied: that is certain whatever becomes of the hub.
pub(super) fn say(
    deployment: &WorkloadDeployment,
    copy: Option<&WorkloadDeployment>,
    (verdict, data): (Verdict, Option<&Data>),
    last_delivery: Option<LastDelivery>,
    now: Timestamp,
) -> Vec<Write<Project>> {
    let conditions = deployment.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let generation = deployment.metadata.generation;
    let federated = verdict.into_condition(conditions, condition::FEDERATED, generation, now);
    let type_ = condition::REFERENCED_DATA_READY;
    let refused = data.filter(|data| data.refusal.is_some()).and_then(|data| data.trouble.clone());
    let refused = refused.map(|verdict| verdict.into_condition(conditions, type_, generation, now));
    let own = Own {
        federated: Some(federated),
        of_data: refused.or_else(|| find(conditions, type_).cloned()),
        unheard: unheard::verdict(deployment, None, false, false),
        last_delivery,
        silent: false,
        is_pending: false,
    };
    update(deployment, copy, own, now)
}

/// What the hub side says of a deployment by itself.
struct Own {
    federated: Option<Condition>,
    of_data: Option<Condition>,
    /// In the place of what the cell said of readiness.
    unheard: Option<Verdict>,
    /// What was delivered last, of this copy.
    last_delivery: Option<LastDelivery>,
    /// Whether Karmada says nothing of the cause.
    silent: bool,
    /// True if Karmada has not got to it yet.
    is_pending: bool,
}

fn update(
    deployment: &WorkloadDeployment,
    copy: Option<&WorkloadDeployment>,
    own: Own,
    now: Timestamp,
) -> Vec<Write<Project>> {
    let Own { federated, of_data, unheard, last_delivery, silent, is_pending } = own;
    let empty = WorkloadDeploymentStatus::default();
    let old = deployment.status.as_ref().unwrap_or(&empty);
    let report = copy.and_then(|copy| copy.status.as_ref());
    let before = find(&old.conditions, condition::FEDERATED);
    let news = federated.as_ref().filter(|new| !is_pending && is_news(before, new, silent));
    let event = news.map(|news| {
        let note =
            Note { severity: Severity::Warning, reason: news.reason(), action: "Federating", text: &news.message };
        event::on(deployment, CONTROLLER, &note, now)
    });
    let mut status = report.map_or_else(|| old.clone(), mirrored);
    if let Some(unheard) = unheard {
        if unheard.status == ConditionStatus::False {
            let none = WorkloadDeploymentStatus::default();
            (status.replicas, status.current_replicas) = (none.replicas, none.current_replicas);
            (status.ready_replicas, status.updated_replicas) = (none.ready_replicas, none.updated_replicas);
        }
        let readiness = [condition::AVAILABLE, condition::REPLICAS_READY];
        for said in status.conditions.iter_mut().filter(|said| readiness.contains(&&*said.type_)) {
            *said = unheard.clone().into_condition(&old.conditions, &said.type_, said.observed_generation, now);
        }
    }
    status.last_delivery = last_delivery.or_else(|| old.last_delivery.clone());
    status.conditions.retain(|c| ![condition::FEDERATED, condition::REFERENCED_DATA_READY].contains(&&*c.type_));
    let own = federated.into_iter().chain(of_data).collect::<Vec<_>>();
    if report.is_none() && own.is_empty() {
        return Vec::new();
    }
    status.conditions.extend(own);
    let write = Write::status(manager::FEDERATOR, &json!(status), deployment);
    write.into_iter().chain(event).collect()
}

/// True if a condition is worth an Event: it has another reason. Of Karmada's silence, which passes through several reasons, only
/// the first is.
fn is_news(old: Option<&Condition>, new: &Condition, silent: bool) -> bool {
    let changed = old.is_none_or(|old| (old.status, &old.reason) != (new.status, &new.reason));
    let goes_on = silent && old.is_some_and(|old| old.status == new.status);
    new.reason != Reason::Propagated && changed && !goes_on
}

/// The cell's report, in the project's terms: generations are those of the project's object. For a cell of the Go operator,
/// which knows nothing of that one, the interpreter says it, beside the cell's own object: generations of two objects cannot be
/// compared.
pub(super) fn mirrored(report: &WorkloadDeploymentStatus) -> WorkloadDeploymentStatus {
    let observed = report.observed_source_generation;
    let conditions =
        report.conditions.iter().map(|c| Condition { observed_generation: observed, ..c.clone() }).collect();
    WorkloadDeploymentStatus {
        conditions,
        observed_generation: observed,
        observed_source_generation: None,
        last_delivery: None,
        ..report.clone()
    }
}

/// What `Federated` is to say; nothing: what it says already.
fn federated(finding: Option<&Delivery>, reported: bool, early: bool) -> Option<Verdict> {
    match finding? {
        Delivery::Delivered { .. } if early && !reported => None,
        Delivery::Delivered { on, note: Some(note) } => {
            let text = format!("{}; {}", repair::delivered(on).message, note.message);
            reported.then(|| Verdict::yes(note.reason.clone(), text))
        }
        Delivery::Delivered { on, note: None } => Some(repair::delivered(on)),
        Delivery::Blocked { cause, .. } => reported.then(|| cause.clone()),
    }
}

/// What `ReferencedDataReady` is to say; nothing: what it says already.
fn data_ready(data: &Data, finding: Option<&Delivery>, reported: bool) -> Option<Verdict> {
    if let Some(trouble) = &data.trouble {
        // That a source cannot be copied is certain, and reported at once; everything else may be a matter of a moment.
        return (data.refusal.is_some() || reported).then(|| trouble.clone());
    }
    match finding? {
        Delivery::Delivered { .. } => {
            let count = data.expected.as_ref().map_or(0, Vec::len);
            let verdict = repair::materialised(count);
            Some(Verdict { message: resolve::with_note(&verdict.message, data.late.as_deref()), ..verdict })
        }
        Delivery::Blocked { cause, .. } => {
            reported.then(|| Verdict::no(Reason::AwaitingPropagation, format!("{}: {}", cause.reason, cause.message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Op, management::observed::facts::WITHHELD};

    /// A cell reports readiness. It has no say in what was delivered to it.
    #[test]
    fn last_delivery_in_the_report_of_a_cell_is_ignored() {
        let forged = serde_json::json!({ "lastDelivery": { "copyUID": "c1", "time": "2026-01-01T00:00:00Z" } });
        let mut copy = WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
        copy.status = serde_json::from_value(forged).unwrap();
        let deployment = WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
        let verdict = Verdict::no(Reason::HubRefused, "refused");
        let said = say(&deployment, Some(&copy), (verdict, None), None, Timestamp::UNIX_EPOCH);
        assert!(!said.is_empty() && !format!("{said:?}").contains("lastDelivery"), "{said:?}");
    }

    /// An evicted deployment kept the counters that its cell had reported last.
    #[test]
    fn deployment_on_no_cluster_counts_no_instance() {
        let new = || WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
        let (deployment, mut copy) = (new(), new());
        let reported = json!({
            "replicas": 2, "currentReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "desiredReplicas": 2,
            "conditions": [{
                "type": "Available", "status": "True", "reason": "StableInstanceFound", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        copy.status = serde_json::from_value(reported).unwrap();
        let (data, companions) = (Data::default(), BTreeMap::new());
        let view = View { deployment: &deployment, copy: Some(&copy), data: &data, companions: &companions };
        let cause = Verdict::no(Reason::NotScheduled, "no cluster fits");
        let finding = Delivery::Blocked { cause, data: false, silent: false, heard: false, repair: None };
        for (nowhere, counted, available) in [(true, 0, "False"), (false, 2, "True")] {
            let overdue = Overdue { blocked: true, unheard: false, nowhere, is_pending: false };
            let writes = plan(&view, Some(&finding), overdue, None, Timestamp::UNIX_EPOCH);
            let Op::Apply { body, .. } = &writes[0].op else { panic!("{writes:?}") };
            let status = &body["status"];
            for counter in ["replicas", "currentReplicas", "readyReplicas", "updatedReplicas"] {
                assert_eq!(status[counter], counted, "{counter}");
            }
            assert_eq!(
                (&status["desiredReplicas"], &status["conditions"][0]["status"]),
                (&json!(2), &json!(available))
            );
        }
    }

    /// Found by reading: Karmada's words have ports and versions in them, and each of its attempts was a write for every user
    /// and on every cell.
    #[test]
    fn numbers_in_karmadas_words_are_written_once() {
        let cause = |port: u32| {
            Verdict::no(
                Reason::NotApplied,
                format!("WorkloadDeployment a/b is not on Cluster c: dial 10.0.0.1:{port}: refused"),
            )
        };
        let first = cause(1).into_condition(&[], condition::FEDERATED, None, Timestamp::UNIX_EPOCH);
        assert_eq!(steady(cause(2), Some(&first)), cause(1));
        let data =
            |name: &str| Verdict::no(Reason::AwaitingPropagation, format!("BindingMissing: no binding for {name}"));
        let before =
            data("config-1").into_condition(&[], condition::REFERENCED_DATA_READY, None, Timestamp::UNIX_EPOCH);
        assert_eq!(steady(data("config-2"), Some(&before)), data("config-2"), "the name of what is missing is news");
        let other = Verdict::no(Reason::NotApplied, "WorkloadDeployment a/b is not on Cluster c: it exists");
        assert_eq!(steady(other.clone(), Some(&first)), other);
        let elsewhere = Verdict { reason: Reason::ClusterNotReady, ..cause(2) };
        assert_eq!(steady(elsewhere.clone(), Some(&first)), elsewhere);
        let mut copy = WorkloadDeployment::new("b", crate::api::compute::WorkloadDeploymentSpec::default());
        let old = hint(&cause(1), None);
        copy.metadata.annotations = Some([(annotation::REFERENCED_DATA_ERROR.to_owned(), old.clone())].into());
        assert_eq!(hint(&cause(2), Some(&copy)), old);
        // Found by reading: a cell that was hard to reach had each of the ways in which it was told on each of its Instances.
        assert_eq!(hint(&other, Some(&copy)), old, "words without a number change as often");
        assert_ne!(hint(&elsewhere, Some(&copy)), old, "another reason is news");
        let here = Verdict::no(Reason::NotApplied, "ConfigMap a/b is not on Cluster c: dial 10.0.0.1:1: refused");
        assert_ne!(hint(&here, Some(&copy)), old, "and so is what it is about");
        // Found by reading: while Karmada had no words for a moment the cell was told that all was well, and then anew.
        let silent =
            Verdict::no(Reason::NotApplied, "WorkloadDeployment a/b is not on Cluster c: Karmada does not say why");
        assert_eq!(hint(&silent, Some(&copy)), old);
        let wordless = hint(&silent, None);
        copy.metadata.annotations = Some([(annotation::REFERENCED_DATA_ERROR.to_owned(), wordless.clone())].into());
        assert_eq!(hint(&silent, Some(&copy)), wordless);
        assert_eq!(hint(&cause(1), Some(&copy)), old, "the first words there are");
        // Words in which a value may stand were kept for as long as the cell refused the data.
        let withheld =
            Verdict::no(Reason::NotApplied, format!("WorkloadDeployment a/b is not on Cluster c: {WITHHELD}"));
        assert_ne!(hint(&withheld, Some(&copy)), wordless);
        copy.metadata.annotations = Some([(annotation::REFERENCED_DATA_ERROR.to_owned(), old)].into());
        assert!(hint(&withheld, Some(&copy)).contains(WITHHELD));
    }

    /// Found by reading: a message that names two objects went on naming the second, which was there by then.
    #[test]
    fn a_number_in_our_own_words_is_news() {
        let missing = |name: &str| {
            let text = format!("there is no Secret a: create it in the project; there is no ConfigMap {name}");
            Verdict::no(Reason::SourceNotFound, text)
        };
        let type_ = condition::REFERENCED_DATA_READY;
        let before = missing("app-1").into_condition(&[], type_, None, Timestamp::UNIX_EPOCH);
        assert_eq!(steady(missing("app-2"), Some(&before)), missing("app-2"));
    }
}
