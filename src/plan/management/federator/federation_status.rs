//! Status of a project's deployment: the cell's report, the state of its delivery, and the state of its data.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{
    diagnosis::{Delivery, Karmada, is_withheld, is_wordless},
    last_delivery, repair, unheard,
};
use crate::plan::management::{
    observed::facts::SharedCompanion,
    readiness::{self, Report},
    referenced_data::resolve::{self, Data, SourceRefusal},
};
use crate::{
    api::{
        compute::{Condition, ConditionStatus, LastDelivery, WorkloadDeployment, WorkloadDeploymentStatus},
        meta::{annotation, condition, manager},
        reason::{Class, Reason},
        referenced::DataRef,
    },
    plan::{
        Next, Plan, Project, Write,
        condition::{Verdict, differs_in_their_numbers_alone, find, own_words},
        event::{self, Note, Severity},
    },
};

/// Reporting controller of Events about a deployment.
pub(super) const CONTROLLER: &str = "workload-deployment-federator";

/// Time after the creation of its copy in which a deployment gets no status that shows only that its city has not reported. If the
/// city reports within it, one write shows everything. Creation times are in whole seconds, so that it is one second at least.
const FIRST_STATUS_AFTER: Duration = Duration::from_secs(2);

/// Longest such time, after the creation of the deployment, if its copy cannot be seen. It may wait for its turn to be copied.
const FIRST_STATUS_WITHOUT_A_COPY_AFTER: Duration = Duration::from_secs(20);

/// Returns the reason that blocks a deployment's delivery. `None` if nothing blocks it.
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

/// True if the cell has not made its first report. The first success is written together with that report.
fn is_early(deployment: &WorkloadDeployment, copy: Option<&WorkloadDeployment>) -> bool {
    let reported = deployment.status.as_ref().is_some_and(|s| find(&s.conditions, condition::FEDERATED).is_some());
    !reported && copy.is_none_or(|copy| copy.report().is_none())
}

/// Problems that have outlasted their grace, and are reported. Each has its own grace: while the delivery recovers, other
/// problems may appear for a moment.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(super) struct Overdue {
    /// The delivery is not complete.
    pub blocked: bool,
    /// Its cluster does not answer, so that the readiness is unknown.
    pub unheard: bool,
    /// Karmada sends it to no cluster.
    pub nowhere: bool,
    /// Karmada has not got to it yet. A condition reports it, and no Event, because there may be many.
    pub is_pending: bool,
}

/// Report of the cell that a deployment is on.
#[derive(Clone, Copy, Debug)]
pub(super) enum CellReport<'a> {
    /// None can be seen. The last known one stands.
    Unseen,
    /// The cell has not reported. The copy shows the report of another cluster, which has the deployment no more.
    Former,
    /// The cell's report.
    Present(&'a WorkloadDeploymentStatus),
}

impl<'a> CellReport<'a> {
    /// Finds the report in the copy. The interpreter on the hub keeps the report that is there while no cluster has one, so the
    /// copy of a deployment that has moved shows that of its former cluster. The binding tells them apart.
    pub(super) fn of(copy: Option<&'a WorkloadDeployment>, karmada: Option<&Karmada>) -> Self {
        let binding = karmada.and_then(|karmada| karmada.binding.as_ref());
        match copy.and_then(WorkloadDeployment::report) {
            None => Self::Unseen,
            Some(_) if binding.is_some_and(|binding| binding.unreported) => Self::Former,
            Some(report) => Self::Present(report),
        }
    }

    fn present(self) -> Option<&'a WorkloadDeploymentStatus> {
        match self {
            Self::Present(report) => Some(report),
            Self::Unseen | Self::Former => None,
        }
    }
}

/// The deployment that gets the status.
pub(super) struct View<'a> {
    /// The deployment in its project.
    pub deployment: &'a WorkloadDeployment,
    /// Its copy.
    pub copy: Option<&'a WorkloadDeployment>,
    /// What its cell reports.
    pub report: CellReport<'a>,
    /// State of its data.
    pub data: &'a Data,
    /// The companions that it refers to.
    pub companions: &'a BTreeMap<DataRef, SharedCompanion>,
    /// Time that a tenant has before `Stalled` reports a problem.
    pub grace: Duration,
}

/// Decides the status of one deployment. A problem is not reported during its grace, because a change may be under way.
/// `last_delivery` is that of this copy.
pub(super) fn plan(
    view: &View<'_>,
    finding: Option<&Delivery>,
    overdue: Overdue,
    last_delivery: Option<LastDelivery>,
    now: Timestamp,
) -> Plan<Write<Project>> {
    let View { deployment, copy, report, data, companions, grace } = *view;
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
    // Without a copy, this plan creates it, unless the copy is hidden or refused.
    let early = match copy {
        Some(copy) => left_of(FIRST_STATUS_AFTER, copy, now),
        None => left_of(FIRST_STATUS_WITHOUT_A_COPY_AFTER, deployment, now),
    };
    let own = Own { federated, of_data, unheard, last_delivery, silent, is_pending: overdue.is_pending, early };
    update((deployment, report), own, grace, now)
}

/// Keeps the present message if a verdict differs from it only in the numbers of Karmada's words (a port, a resourceVersion).
/// Each of Karmada's attempts has other numbers.
fn steady(verdict: Verdict, before: Option<&Condition>) -> Verdict {
    let same = |before: &&Condition| {
        verdict.status != ConditionStatus::True
            && ends_in_words_of_others(&verdict.reason)
            && (before.status, &before.reason[..]) == (verdict.status, verdict.reason.as_str())
            && differs_in_their_numbers_alone(
                without_reason(&before.message, &verdict.reason),
                without_reason(&verdict.message, &verdict.reason),
            )
    };
    match before.filter(same) {
        Some(before) => Verdict { message: before.message.clone(), ..verdict },
        None => verdict,
    }
}

/// True if messages for this reason end in the words of Karmada or of a cluster. All other messages are the operator's own, and
/// their numbers are parts of names.
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

/// Returns a message without the cause's reason in front of it. In the operator's own words after that, numbers are names.
fn without_reason<'a>(message: &'a str, reason: &Reason) -> &'a str {
    match message.split_once(": ") {
        Some((_, cause)) if *reason == Reason::AwaitingPropagation => cause,
        _ => message,
    }
}

/// Returns the hint for the cell why its data does not arrive. The hint on the copy is kept while the reason and the operator's
/// own words are the same. Otherwise each of Karmada's messages would change the copy, and every Instance. Karmada's present
/// words are in the deployment's condition. A hint without words of Karmada is replaced once there are some.
pub(super) fn hint(cause: &Verdict, copy: Option<&WorkloadDeployment>) -> String {
    let standing = copy.and_then(|copy| copy.annotations().get(annotation::REFERENCED_DATA_ERROR));
    let same = |standing: &&String| {
        serde_json::from_str::<serde_json::Value>(standing).is_ok_and(|standing| {
            let message = standing["message"].as_str().unwrap_or_default();
            standing["reason"] == cause.reason.as_str()
                && own_words(message) == own_words(&cause.message)
                && (is_wordless(&cause.message) || !is_wordless(message))
                // Older words that may contain a value are not kept.
                && (!is_withheld(&cause.message) || is_withheld(message))
        })
    };
    let new = || SourceRefusal::new(cause.reason.clone(), cause.message.as_str()).to_annotation();
    standing.filter(same).cloned().unwrap_or_else(new)
}

/// Writes one verdict as `Federated`, and keeps everything else. Of the data it reports only a source that cannot be copied,
/// which is certain in each state of the hub.
pub(super) fn say(
    deployment: &WorkloadDeployment,
    report: CellReport<'_>,
    (verdict, data): (Verdict, Option<&Data>),
    last_delivery: Option<LastDelivery>,
    grace: Duration,
    now: Timestamp,
) -> Plan<Write<Project>> {
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
        early: None,
    };
    update((deployment, report), own, grace, now)
}

/// Gives a deployment its first status while a problem is not reported yet. A deployment with a status keeps it.
pub(super) fn first(
    deployment: &WorkloadDeployment,
    report: CellReport<'_>,
    grace: Duration,
    now: Timestamp,
) -> Plan<Write<Project>> {
    let conditions = deployment.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if find(conditions, condition::READY).is_some() {
        return Plan::nothing();
    }
    let present = |type_: &str| find(conditions, type_).cloned();
    let own = Own {
        federated: present(condition::FEDERATED),
        of_data: present(condition::REFERENCED_DATA_READY),
        unheard: unheard::verdict(deployment, None, false, false),
        last_delivery: None,
        silent: true,
        is_pending: true,
        early: left_of(FIRST_STATUS_AFTER, deployment, now),
    };
    update((deployment, report), own, grace, now)
}

/// Parts of the status that the hub side decides.
struct Own {
    federated: Option<Condition>,
    of_data: Option<Condition>,
    /// Replaces the readiness that the cell has reported.
    unheard: Option<Verdict>,
    /// Record of the last delivery of this copy.
    last_delivery: Option<LastDelivery>,
    /// True if Karmada says nothing about the cause.
    silent: bool,
    /// True if Karmada has not got to it yet.
    is_pending: bool,
    /// Time until a first status without news is due. `None` if it is due now.
    early: Option<Duration>,
}

fn update(
    (deployment, report): (&WorkloadDeployment, CellReport<'_>),
    own: Own,
    grace: Duration,
    now: Timestamp,
) -> Plan<Write<Project>> {
    if let Some(wait) = too_early(deployment, report, &own) {
        return Plan::until(Vec::new(), Next::After(wait));
    }
    let Own { federated, of_data, unheard, last_delivery, silent, is_pending, .. } = own;
    let empty = WorkloadDeploymentStatus::default();
    let old = deployment.status.as_ref().unwrap_or(&empty);
    let before = find(&old.conditions, condition::FEDERATED);
    let news = federated.as_ref().filter(|new| !is_pending && is_news(before, new, silent));
    let event = news.map(|news| {
        let reason = news.reason();
        let note = Note { severity: Severity::of(&reason), reason, action: "Federating", text: &news.message };
        event::on(deployment, CONTROLLER, &note, now)
    });
    let of_source = of_data.as_ref().filter(|new| is_news_of_source(find(&old.conditions, &new.type_), new));
    let of_source = of_source.map(|news| {
        let reason = news.reason();
        let note = Note { severity: Severity::of(&reason), reason, action: "Copying", text: &news.message };
        event::on(deployment, CONTROLLER, &note, now)
    });
    let mut status = match report {
        CellReport::Unseen => old.clone(),
        CellReport::Former => WorkloadDeploymentStatus::default(),
        CellReport::Present(report) => mirrored(report),
    };
    if let Some(unheard) = unheard {
        if unheard.status == ConditionStatus::False {
            let none = WorkloadDeploymentStatus::default();
            (status.replicas, status.current_replicas) = (none.replicas, none.current_replicas);
            (status.ready_replicas, status.updated_replicas) = (none.ready_replicas, none.updated_replicas);
        }
        let readiness = [condition::AVAILABLE, condition::REPLICAS_READY];
        for c in status.conditions.iter_mut().filter(|c| readiness.contains(&&*c.type_)) {
            *c = unheard.clone().into_condition(&old.conditions, &c.type_, deployment.metadata.generation, now);
        }
    }
    status.last_delivery = last_delivery.or_else(|| old.last_delivery.clone());
    let ours = [condition::FEDERATED, condition::REFERENCED_DATA_READY].into_iter().chain(readiness::TYPES);
    status.conditions.retain(|c| !ours.clone().any(|type_| type_ == c.type_));
    status.conditions.extend(federated.into_iter().chain(of_data));
    let next = judge(deployment, &mut status, Report::of(report.present()), grace, now);
    let write = Write::status(manager::FEDERATOR, &json!(status), deployment);
    Plan::until(write.into_iter().chain(event).chain(of_source).collect(), next)
}

/// Returns the time until a deployment gets its first status, if that would only show that nothing is known yet.
fn too_early(deployment: &WorkloadDeployment, report: CellReport<'_>, own: &Own) -> Option<Duration> {
    let is_new = deployment.status.as_ref().is_none_or(|status| status.conditions.is_empty());
    let has_trouble = [&own.federated, &own.of_data].into_iter().flatten().any(|c| c.status != ConditionStatus::True);
    if !is_new || has_trouble || report.present().is_some() {
        return None;
    }
    own.early
}

/// Returns the time that is left of this time after the creation of an object. `None` if it has passed, or if the clocks disagree.
fn left_of(limit: Duration, of: &WorkloadDeployment, now: Timestamp) -> Option<Duration> {
    let age = Duration::try_from(now.duration_since(of.metadata.creation_timestamp.as_ref()?.0)).ok()?;
    limit.checked_sub(age).filter(|left| !left.is_zero())
}

/// True if the state of the data is worth an Event: a source cannot be copied, for a new reason.
fn is_news_of_source(before: Option<&Condition>, new: &Condition) -> bool {
    new.reason().class() == Class::Source && before.is_none_or(|before| before.reason != new.reason)
}

/// Adds `Ready`, `Reconciling` and `Stalled` to a status, and `observedGeneration` to one that no cell has reported. Returns the
/// end of the tenant's grace.
///
/// kstatus compares `observedGeneration` before it reads `Stalled`. So a change that only its tenant can help counts as observed.
/// No Instance counts as updated by it.
fn judge(
    deployment: &WorkloadDeployment,
    status: &mut WorkloadDeploymentStatus,
    report: Report,
    grace: Duration,
    now: Timestamp,
) -> Next {
    let generation = deployment.metadata.generation;
    let old = deployment.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let judged = readiness::of_deployment(deployment, status, report);
    let instances = readiness::Instances::of(deployment, status);
    let (conditions, next) = readiness::conditions(&judged, instances, old, generation, grace, now);
    if report == Report::Missing && status.observed_generation.is_none() {
        status.observed_generation = generation;
    }
    if readiness::is_stalled(&conditions) && status.observed_generation < generation {
        status.observed_generation = generation;
        (status.updated_replicas, status.current_replicas) = (0, 0);
        status.desired_replicas = i32::try_from(deployment.spec.desired_replicas()).unwrap_or(i32::MAX);
    }
    status.conditions.extend(conditions);
    next
}

/// Returns the status of a deployment that cannot be federated because its spec is invalid.
pub(super) fn invalid(
    deployment: &WorkloadDeployment,
    why: &str,
    grace: Duration,
    now: Timestamp,
) -> Plan<Write<Project>> {
    let mut status = deployment.status.clone().unwrap_or_default();
    let generation = deployment.metadata.generation;
    let verdict = Verdict::no(Reason::InvalidPlacement, why);
    status.conditions = vec![verdict.into_condition(&status.conditions, condition::AVAILABLE, generation, now)];
    status.observed_generation = generation;
    let next = judge(deployment, &mut status, Report::Missing, grace, now);
    let write = Write::status(manager::FEDERATOR, &json!(status), deployment);
    Plan::until(write.into_iter().collect(), next)
}

/// Returns a deployment as it is after the first reconcile at this time, without a report of its city.
#[cfg(test)]
pub(super) fn judged(mut deployment: WorkloadDeployment, now: Timestamp) -> WorkloadDeployment {
    let mut status = deployment.status.clone().unwrap_or_default();
    status.conditions.retain(|c| !readiness::TYPES.contains(&&*c.type_));
    judge(&deployment, &mut status, Report::Missing, Duration::from_secs(20), now);
    deployment.status = Some(status);
    deployment
}

/// True if a condition is worth an Event: it has a new reason. Karmada's silence passes through several reasons, and only the
/// first one is.
fn is_news(old: Option<&Condition>, new: &Condition, silent: bool) -> bool {
    let changed = old.is_none_or(|old| (old.status, &old.reason) != (new.status, &new.reason));
    let goes_on = silent && old.is_some_and(|old| old.status == new.status);
    new.reason != Reason::Propagated && changed && !goes_on
}

/// Converts the cell's report to the project's terms: generations are those of the project's object. A cell of the Go operator
/// does not know that generation, and the interpreter on the hub adds it. Generations of two objects cannot be compared.
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

/// Returns the verdict for `Federated`. `None` keeps the present one.
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

/// Returns the verdict for `ReferencedDataReady`. `None` keeps the present one.
fn data_ready(data: &Data, finding: Option<&Delivery>, reported: bool) -> Option<Verdict> {
    if let Some(trouble) = &data.trouble {
        // A source that cannot be copied is certain, and reported at once. Everything else may pass in a moment.
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
    use crate::plan::{
        Op,
        management::observed::facts::{BindingFacts, WITHHELD},
    };

    const GRACE: Duration = Duration::from_secs(20);

    /// A cell reports readiness. It does not decide what was delivered to it.
    #[test]
    fn last_delivery_in_the_report_of_a_cell_is_ignored() {
        let forged = serde_json::json!({ "lastDelivery": { "copyUID": "c1", "time": "2026-01-01T00:00:00Z" } });
        let mut copy = WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
        copy.status = serde_json::from_value(forged).unwrap();
        let deployment = WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
        let verdict = Verdict::no(Reason::HubRefused, "refused");
        let report = CellReport::of(Some(&copy), None);
        let writes = say(&deployment, report, (verdict, None), None, GRACE, Timestamp::UNIX_EPOCH).steps;
        assert!(!writes.is_empty() && !format!("{writes:?}").contains("lastDelivery"), "{writes:?}");
    }

    /// An evicted deployment kept the last counters of its cell.
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
        let report = CellReport::of(Some(&copy), None);
        let view = View {
            deployment: &deployment,
            copy: Some(&copy),
            report,
            data: &data,
            companions: &companions,
            grace: GRACE,
        };
        let cause = Verdict::no(Reason::NotScheduled, "no cluster fits");
        let finding = Delivery::Blocked { cause, data: false, silent: false, heard: false, repair: None };
        for (nowhere, counted, available) in [(true, 0, "False"), (false, 2, "True")] {
            let overdue = Overdue { blocked: true, unheard: false, nowhere, is_pending: false };
            let writes = plan(&view, Some(&finding), overdue, None, Timestamp::UNIX_EPOCH).steps;
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

    /// A deployment that had moved was ready at once, by the report of the cluster that it had left.
    #[test]
    fn report_of_a_former_cluster_counts_no_instance() {
        let mut deployment = WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
        deployment.metadata.generation = Some(3);
        let mut copy = deployment.clone();
        let reported = json!({
            "replicas": 2, "currentReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "desiredReplicas": 2,
            "observedSourceGeneration": 3,
            "conditions": [{
                "type": "Available", "status": "True", "reason": "StableInstanceFound", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        copy.status = serde_json::from_value(reported).unwrap();
        deployment.status = Some(mirrored(copy.status.as_ref().unwrap()));
        let karmada = |unreported: bool| -> Karmada {
            let mut karmada: Karmada = serde_json::from_value(json!({
                "policy_lives": true, "phase": "Dependencies", "binding": null, "attached": {}, "clusters": {},
            }))
            .unwrap();
            karmada.binding = Some(BindingFacts { unreported, ..BindingFacts::default() });
            karmada
        };
        let (data, companions) = (Data::default(), BTreeMap::new());
        let finding = Delivery::Delivered { on: vec!["cell-ord".into()], note: None };
        let overdue = Overdue { blocked: true, unheard: false, nowhere: false, is_pending: false };
        for (karmada, ready, available) in
            [(None, 2, true), (Some(karmada(false)), 2, true), (Some(karmada(true)), 0, false)]
        {
            let report = CellReport::of(Some(&copy), karmada.as_ref());
            let (data, companions, deployment) = (&data, &companions, &deployment);
            let view = View { deployment, copy: Some(&copy), report, data, companions, grace: GRACE };
            let writes = plan(&view, Some(&finding), overdue, None, Timestamp::UNIX_EPOCH).steps;
            let Op::Apply { body, .. } = &writes[0].op else { panic!("{writes:?}") };
            let types: Vec<&str> =
                body["status"]["conditions"].as_array().unwrap().iter().filter_map(|c| c["type"].as_str()).collect();
            assert_eq!(body["status"]["readyReplicas"], ready, "{report:?}");
            assert_eq!(types.contains(&"Available"), available, "{report:?}: {types:?}");
        }
    }

    /// Karmada's messages contain ports and versions. Each of its attempts made a write for every user, and on every cell.
    #[test]
    fn message_with_other_numbers_of_karmada_is_kept() {
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
        // A cell that was hard to reach had each variant of the error on each of its Instances.
        assert_eq!(hint(&other, Some(&copy)), old, "words without a number change as often");
        assert_ne!(hint(&elsewhere, Some(&copy)), old, "another reason is news");
        let here = Verdict::no(Reason::NotApplied, "ConfigMap a/b is not on Cluster c: dial 10.0.0.1:1: refused");
        assert_ne!(hint(&here, Some(&copy)), old, "and so is what it is about");
        // While Karmada had no message for a moment, the hint was removed, and written again after that.
        let silent =
            Verdict::no(Reason::NotApplied, "WorkloadDeployment a/b is not on Cluster c: Karmada does not say why");
        assert_eq!(hint(&silent, Some(&copy)), old);
        let wordless = hint(&silent, None);
        copy.metadata.annotations = Some([(annotation::REFERENCED_DATA_ERROR.to_owned(), wordless.clone())].into());
        assert_eq!(hint(&silent, Some(&copy)), wordless);
        assert_eq!(hint(&cause(1), Some(&copy)), old, "the first words there are");
        // A message that may contain a value was kept while the cell rejected the data.
        let withheld =
            Verdict::no(Reason::NotApplied, format!("WorkloadDeployment a/b is not on Cluster c: {WITHHELD}"));
        assert_ne!(hint(&withheld, Some(&copy)), wordless);
        copy.metadata.annotations = Some([(annotation::REFERENCED_DATA_ERROR.to_owned(), old)].into());
        assert!(hint(&withheld, Some(&copy)).contains(WITHHELD));
    }

    /// A message that names two objects kept naming the second one, which existed by then.
    #[test]
    fn message_with_another_name_with_a_number_is_written() {
        let missing = |name: &str| {
            let text = format!("there is no Secret a: create it in the project; there is no ConfigMap {name}");
            Verdict::no(Reason::SourceNotFound, text)
        };
        let type_ = condition::REFERENCED_DATA_READY;
        let before = missing("app-1").into_condition(&[], type_, None, Timestamp::UNIX_EPOCH);
        assert_eq!(steady(missing("app-2"), Some(&before)), missing("app-2"));
    }
}
