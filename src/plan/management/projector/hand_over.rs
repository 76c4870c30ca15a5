//! Hand-over of Instance copies on the hub from one cell to another.
//!
//! No cell writes another cell's copies: the hub's admission policy prevents it. After a city has moved, or a cell was rebuilt,
//! management gives the cell the copies of its Instances. Management decides by Karmada's binding, and not by what cells report.

use std::borrow::Cow;

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        compute::{Condition, Instance, WorkloadDeployment},
        meta::{annotation, condition, label, manager},
        reason::Reason,
    },
    plan::{
        Hub, Write,
        condition::Verdict,
        ownership::{self, Holder},
    },
};

/// Why the cell that a deployment is bound to is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unbound {
    /// The state of the hub is unknown at present.
    Unseen,
    /// The copy's owner does not exist.
    NoOwner,
    /// The deployment has no binding, or a terminating one.
    NoBinding,
    /// The deployment is bound to this number of clusters.
    Clusters(usize),
    /// The Cluster of this name does not say which cell it is.
    Unnamed(String),
}

impl Unbound {
    fn words(&self) -> String {
        match self {
            Self::Unseen => "the state of the hub is unknown at present".to_owned(),
            Self::NoOwner => "the deployment of its copy on the hub does not exist".to_owned(),
            Self::NoBinding => "Karmada has no ResourceBinding of its deployment".to_owned(),
            Self::Clusters(count) => format!("Karmada has bound its deployment to {count} clusters"),
            Self::Unnamed(cluster) => format!("Cluster {cluster} has no spec.id, which identifies the cell"),
        }
    }
}

/// Returns the name of the hub deployment that a copy belongs to, from its owner reference. A copy without an owner, as the Go
/// operator first wrote them, has a label instead. A copy that our cells have marked always has an owner.
pub fn deployment_of(copy: &Instance) -> Option<&String> {
    let labelled = || copy.labels().get(label::WORKLOAD_DEPLOYMENT_NAME).filter(|_| ownership::cell_of(copy).is_none());
    ownership::controller_of(copy).map_or_else(labelled, |owner| Some(&owner.name))
}

/// True if the copy belongs to this deployment, and not to another one of the same name. The deployment has the name that
/// [`deployment_of`] returns.
pub fn is_of(copy: &Instance, deployment: &WorkloadDeployment) -> bool {
    ownership::controller_of(copy).is_none() || ownership::is_controlled_by(copy, deployment)
}

/// Returns an Instance as its projection shows it while another cell asks for the copy and does not get it. The readiness that
/// the present holder reports may be about an Instance that no longer runs.
pub(super) fn shown<'a>(source: Cow<'a, Instance>, bound: Result<&str, &Unbound>, now: Timestamp) -> Cow<'a, Instance> {
    let Some(asking) = ownership::asking_cell(&*source) else { return source };
    let why = match bound {
        Ok(bound) if bound == asking => return source, // handed over in the same reconcile
        // The asking cell has no right to the copy, and the holder's report is correct.
        Ok(bound) if ownership::cell_of(&*source).is_some_and(|holder| holder == bound) => return source,
        // The state of the hub is unknown for a moment.
        Err(Unbound::Unseen) => return source,
        Ok(_) => "Karmada has bound its deployment to another cell".to_owned(),
        Err(unbound) => unbound.words(),
    };
    let text = format!("the cell {asking} runs it and requests its copy on the hub, which another cell keeps: {why}");
    let mut shown = source.into_owned();
    let conditions = shown.status.iter_mut().flat_map(|status| &mut status.conditions);
    for ready in conditions.filter(|c| c.type_ == condition::READY) {
        let verdict = Verdict::unknown(Reason::HandOverWaits, text.clone());
        // The transition time stays that of the source, so that time alone makes no change.
        *ready = Condition {
            last_transition_time: ready.last_transition_time.clone(),
            ..verdict.into_condition(&[], condition::READY, ready.observed_generation, now)
        };
    }
    Cow::Owned(shown)
}

/// Gives a copy to the cell that asks for it, if Karmada has bound the copy's deployment to that cell. `bound` is the uid of that
/// cell. It is `None` while the cell is unknown, or not exactly one.
///
/// The cell's request is part of the proof. The uid that Karmada recorded when the cluster joined may be out of date. Then no
/// cell asks with that uid.
pub fn write(copy: &Instance, bound: Option<&str>) -> Option<Write<Hub>> {
    let bound = bound.filter(|bound| ownership::asking_cell(copy).is_some_and(|asking| asking == bound))?;
    if copy.metadata.deletion_timestamp.is_some() || ownership::holder(copy, bound) == Holder::ThisCell {
        return None;
    }
    Some(give(copy, bound))
}

/// Gives a copy to a cell, and records its former cell.
pub(super) fn give(copy: &Instance, to: &str) -> Write<Hub> {
    let metadata = json!({
        "labels": { label::CELL_UID: to },
        "annotations": {
            annotation::CLAIMED_BY_CELL: null,
            annotation::FORMER_CELL: ownership::cell_of(copy),
        },
    });
    Write::amend(manager::PROJECTOR, json!({ "metadata": metadata }), copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Op;

    #[test]
    fn hand_over_that_waits_is_reported_on_projection() {
        let mut source = copy("old", Some("new"), false);
        source.status = serde_json::from_value(json!({ "conditions": [{
            "type": "Ready", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}))
        .unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let reported = |bound: Result<&str, &Unbound>| {
            let shown = shown(Cow::Borrowed(&source), bound, now);
            let ready = &shown.status.as_ref().unwrap().conditions[0];
            (ready.reason.clone(), ready.message.clone())
        };
        assert_eq!(reported(Ok("new")).0, "Available", "it is handed over in the same reconcile");
        for (bound, words) in [
            (Ok("third"), "another cell"),
            (Err(&Unbound::Unnamed("cell-dfw".into())), "Cluster cell-dfw has no spec.id"),
            (Err(&Unbound::Clusters(2)), "2 clusters"),
            (Err(&Unbound::NoBinding), "no ResourceBinding"),
            (Err(&Unbound::NoOwner), "does not exist"),
        ] {
            let (reason, message) = reported(bound);
            assert!(reason == "HandOverWaits" && message.contains(words), "{reason}: {message}");
        }
        assert_eq!(reported(Ok("old")).0, "Available", "the bound cell holds it");
        assert_eq!(reported(Err(&Unbound::Unseen)).0, "Available");
        let unasked = copy("old", None, false);
        assert!(matches!(shown(Cow::Borrowed(&unasked), Err(&Unbound::NoBinding), now), Cow::Borrowed(_)));
    }

    fn copy(holder: &str, asking: Option<&str>, leaving: bool) -> Instance {
        let mut object = json!({
            "metadata": {
                "name": "web-0", "namespace": "ns-1", "uid": "c", "resourceVersion": "9",
                "labels": { label::CELL_UID: holder },
            },
            "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
        });
        if let Some(asking) = asking {
            object["metadata"]["annotations"] = json!({ annotation::CLAIMED_BY_CELL: asking });
        }
        if leaving {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn hand_over_goes_only_to_bound_cell_that_asks() {
        for (what, holder, asking, leaving, bound, expected) in [
            ("the city moved", "old", Some("new"), false, Some("new"), true),
            ("no cell asks", "old", None, false, Some("new"), false),
            ("another asks", "old", Some("thief"), false, Some("new"), false),
            ("the binding says otherwise", "old", Some("new"), false, Some("old"), false),
            ("where it is bound is not known", "old", Some("new"), false, None, false),
            ("it has it already", "new", Some("new"), false, Some("new"), false),
            ("it is terminating", "old", Some("new"), true, Some("new"), false),
        ] {
            let write = write(&copy(holder, asking, leaving), bound);
            assert_eq!(write.is_some(), expected, "{what}");
            let Some(Op::Merge { body, .. }) = write.map(|write| write.op) else { continue };
            assert_eq!(body["metadata"]["labels"], json!({ label::CELL_UID: "new" }));
            assert_eq!(
                body["metadata"]["annotations"],
                json!({ annotation::CLAIMED_BY_CELL: null, annotation::FORMER_CELL: "old" })
            );
            assert_eq!(body["metadata"]["resourceVersion"], "9", "in exactly the version that was judged");
        }
    }

    #[test]
    fn copy_belongs_to_deployment_of_owner_or_go_operators_label() {
        let deployment = |uid: &str| -> WorkloadDeployment {
            serde_json::from_value(json!({
                "metadata": { "name": "web", "namespace": "ns-1", "uid": uid },
                "spec": {
                    "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
                    "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                    "scaleSettings": { "minReplicas": 1 },
                },
            }))
            .unwrap()
        };
        let placed = |cell: Option<&str>, owner: Option<&str>, label: Option<&str>| {
            let mut copy = copy("old", None, false);
            let labels = [(label::CELL_UID, cell), (label::WORKLOAD_DEPLOYMENT_NAME, label)];
            let labels = labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
            copy.metadata.labels = Some(labels.collect());
            copy.metadata.owner_references = owner.map(|owner| {
                serde_json::from_value(json!([{
                    "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": owner, "uid": "w",
                    "controller": true,
                }]))
                .unwrap()
            });
            let name = deployment_of(&copy).cloned();
            (name.as_deref().map(str::to_owned), is_of(&copy, &deployment("w")), is_of(&copy, &deployment("anew")))
        };
        let web = |same: bool, recreated: bool| (Some("web".to_owned()), same, recreated);
        assert_eq!(placed(Some("cell"), Some("web"), None), web(true, false));
        assert_eq!(placed(None, Some("web"), Some("api")), web(true, false), "an owner says more than a label");
        assert_eq!(placed(None, None, Some("web")), web(true, true));
        assert_eq!(placed(Some("cell"), None, Some("web")).0, None, "our cells write an owner, and a user removed it");
        assert_eq!(placed(None, None, None).0, None);
    }
}
