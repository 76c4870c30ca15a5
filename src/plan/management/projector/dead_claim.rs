//! Quota claim of a cell that is no longer a member. The city's new cell waits for it.
//!
//! Only a cell releases its own claims, because it could still run what they pay for. A cell that is gone for good cannot release
//! them, and the new cell's claim has the same name. Only management sees both facts: Karmada's binding names the present cell,
//! and no Cluster belongs to the cell that made the claim. A cell that is not a member of this hub is not proved dead. It may
//! have been removed by force, or belong to another hub. So a claim is deleted only if this hub's management took the copy over
//! from the claim's cell. It is deleted once: a claim that comes back belongs to a live cell.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::{annotation, condition, label, manager},
        neighbours::ResourceClaim,
        reason::Reason,
    },
    plan::{
        Hub, Plan, Project, Proof, Shared, Step, Write,
        condition::find,
        event::{self, Note, Severity},
        ownership,
    },
};

/// Snapshot of a copy on the hub, and of the quota claim of its Instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The copy.
    pub source: Shared<Instance>,
    /// The copy's deployment in the project. Events are reported on it.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// Uid of the cell that Karmada has bound the deployment to. `None` while it is unknown.
    pub bound: Option<String>,
    /// Uids of all member cells that are not declared dead. `None` while they are unknown, or if a cell has no uid.
    pub members: Option<Shared<BTreeSet<String>>>,
    /// The claim, as a live read found it. `None` before that read.
    pub claim: Option<Shared<ResourceClaim>>,
}

/// True if the cell reports that another cell's claim blocks the Instance.
pub fn is_waiting(source: &Instance) -> bool {
    let conditions = source.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::QUOTA_GRANTED).is_some_and(|granted| granted.reason == Reason::QuotaClaimHeld)
}

/// Returns the cell with a claim that may be deleted, so that the claim is worth a read. The waiting Instance belongs to the cell
/// that the deployment is bound to. It was handed over from a cell that has no Cluster any more, or is declared dead.
pub fn former<'a>(
    source: &'a Instance,
    bound: Option<&String>,
    members: Option<&BTreeSet<String>>,
) -> Option<&'a String> {
    let (bound, members) = (bound?, members?);
    let waits = is_waiting(source) && ownership::cell_of(source) == Some(bound) && members.contains(bound);
    let former = source.annotations().get(annotation::FORMER_CELL).filter(|_| waits)?;
    (!members.contains(former)).then_some(former)
}

/// Deletes the claim once its cell is proved unable to release it. Then removes the former cell from the copy, so that this is
/// done once.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Step<Project, Hub>> {
    let Observed { source, deployment, bound, members, claim } = observed;
    let former = former(source, bound.as_ref(), members.as_deref());
    let (Some(claim), Some(former)) = (claim, former) else { return Plan::nothing() };
    let freed = freed(claim, source, former, deployment.as_deref(), now);
    if freed.is_empty() {
        return Plan::nothing();
    }
    let forget = json!({ "metadata": { "annotations": { annotation::FORMER_CELL: null } } });
    freed.then([Step::Remote(Write::amend(manager::PROJECTOR, forget, &**source))]).into_iter().collect()
}

/// Deletes the claim if it belongs to `former`, a cell that is gone, and to the Instance with the copy `source`. Reports it on
/// the deployment. The claim was read live.
pub(super) fn freed(
    claim: &ResourceClaim,
    source: &Instance,
    former: &str,
    deployment: Option<&WorkloadDeployment>,
    now: Timestamp,
) -> Proof<Step<Project, Hub>> {
    let is_for_it = claim.labels().get(label::INSTANCE_NAMESPACE) == source.namespace().as_ref();
    let proof = Proof::of_target();
    if !is_for_it || ownership::cell_of(claim).is_none_or(|cell| cell != former) {
        return proof;
    }
    let text = format!(
        "ResourceClaim {} was deleted. The cell with the uid {former} held it, and is no longer a member or is declared \
         dead. The cell that now runs Instance {} creates its own claim",
        claim.name_any(),
        source.name_any()
    );
    let note = Note { severity: Severity::Normal, reason: Reason::ClaimFreed, action: "FreeingClaim", text: &text };
    let report = deployment.map(|deployment| event::on(deployment, "instance-projector", &note, now));
    proof.delete(claim, |delete| {
        Step::Local(match report {
            Some(report) => delete.telling(report),
            None => delete,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::plan::Op;

    fn observed(edit: impl FnOnce(&mut Value, &mut Value)) -> Observed {
        let mut source = json!({
            "metadata": {
                "name": "web-0", "namespace": "ns-1", "uid": "i", "resourceVersion": "3", "labels": { label::CELL_UID: "new" },
                "annotations": { annotation::FORMER_CELL: "old" },
            },
            "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
            "status": { "conditions": [{
                "type": "QuotaGranted", "status": "Unknown", "reason": "QuotaClaimHeld", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] },
        });
        let mut claim = json!({
            "metadata": {
                "name": "instance-web-0", "namespace": "shop", "uid": "c", "resourceVersion": "7",
                "labels": { label::CELL_UID: "old", label::INSTANCE_NAMESPACE: "ns-1" },
            },
            "spec": { "consumerRef": { "kind": "Project", "name": "x" }, "requests": [] },
        });
        edit(&mut source, &mut claim);
        Observed {
            source: Shared::from(serde_json::from_value::<Instance>(source).unwrap()),
            deployment: None,
            bound: Some("new".into()),
            members: Some(BTreeSet::from(["new".to_owned(), "third".to_owned()]).into()),
            claim: Some(Shared::from(serde_json::from_value::<ResourceClaim>(claim).unwrap())),
        }
    }

    fn frees(observed: &Observed) -> bool {
        let steps = plan(observed, Timestamp::UNIX_EPOCH).steps;
        let [Step::Local(delete), Step::Remote(forget)] = &steps[..] else {
            assert!(steps.is_empty(), "{steps:?}");
            return false;
        };
        let exact = matches!(&delete.op, Op::Delete { uid, resource_version } if uid == "c" && resource_version == "7");
        assert!(exact, "exactly the one that was judged: {delete:?}");
        let Op::Merge { body, .. } = &forget.op else { panic!("{forget:?}") };
        assert_eq!(body["metadata"]["annotations"], json!({ annotation::FORMER_CELL: null }));
        true
    }

    #[test]
    fn dead_claim_is_freed_only_if_its_cell_is_provably_gone() {
        type Edit = fn(&mut Value, &mut Value);
        assert!(frees(&observed(|_, _| ())));
        let cases: [(&str, Edit); 8] = [
            ("the copy was not taken over; the holder may be of another hub", |source, _| {
                source["metadata"]["annotations"] = json!({});
            }),
            ("it was taken over from another cell", |source, _| {
                source["metadata"]["annotations"][annotation::FORMER_CELL] = json!("older");
            }),
            ("no cell waits", |source, _| source["status"]["conditions"][0]["reason"] = json!("PendingEvaluation")),
            ("another cell waits than the bound one", |source, _| {
                source["metadata"]["labels"][label::CELL_UID] = json!("third");
            }),
            ("the holder is a member", |_, claim| claim["metadata"]["labels"][label::CELL_UID] = json!("third")),
            ("the waiting cell's own", |_, claim| claim["metadata"]["labels"][label::CELL_UID] = json!("new")),
            ("the Go operator's, of an unknown cell", |_, claim| {
                claim["metadata"]["labels"][label::CELL_UID] = Value::Null;
            }),
            ("for another namespace", |_, claim| {
                claim["metadata"]["labels"][label::INSTANCE_NAMESPACE] = json!("ns-2");
            }),
        ];
        for (what, edit) in cases {
            let edit = |source: &mut Value, claim: &mut Value| {
                edit(source, claim);
                claim["metadata"]["labels"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
            };
            assert!(!frees(&observed(edit)), "{what}");
        }
        let unknown = |edit: fn(&mut Observed)| {
            let mut observed = observed(|_, _| ());
            edit(&mut observed);
            frees(&observed)
        };
        assert!(!unknown(|o| o.members = None), "a Cluster without an id may be any cell");
        assert!(!unknown(|o| o.bound = None), "where it is bound is not known");
        assert!(!unknown(|o| o.claim = None), "there is no claim");
        assert!(
            !unknown(|o| o.members = Some(BTreeSet::from(["third".to_owned()]).into())),
            "the waiting cell must be a member"
        );
    }
}
