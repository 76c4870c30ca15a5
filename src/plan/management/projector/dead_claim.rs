//! The quota claim of a cell that is no member any more, which its successor waits for.
//!
//! A cell gives its claims up itself, and nobody else may while it could still run what they pay for. One that is gone for
//! good cannot, and the claim that the city's new cell is to make has the same name. Management alone sees both: which
//! cell has the deployment now, by Karmada's binding, and that no Cluster is the one that made the claim. That it is no
//! member of this hub does not say that it is dead: it may have been taken out by force, or be another hub's. So what is
//! freed is what a cell has claimed from which this hub's management took the copy over, and once: a claim that comes
//! back is somebody's who lives.

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

/// Everything that is known of a copy on the hub, and of the claim of its Instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The copy.
    pub source: Shared<Instance>,
    /// The project's deployment of it, which is told.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// Uid of the cell that Karmada has bound the deployment to; absent while it is not known.
    pub bound: Option<String>,
    /// Uids of all cells that are members and not given up; absent while they are not known, or where one has none.
    pub members: Option<Shared<BTreeSet<String>>>,
    /// The claim, as a live read has found it; absent before that.
    pub claim: Option<Shared<ResourceClaim>>,
}

/// Whether the cell says of an Instance that another's claim is in its way.
pub fn is_waiting(source: &Instance) -> bool {
    let conditions = source.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::QUOTA_GRANTED).is_some_and(|said| said.reason == Reason::QuotaClaimHeld)
}

/// The cell whose claim may be freed, so that it is worth to look at the claim: the Instance that waits is of the cell that
/// the deployment is bound to, and was handed over to it from one that no Cluster is any more, or whose Cluster is called
/// dead.
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

/// Deletes the claim, when it is proved that nobody can give it up any more, and forgets by whom it was held: it is done
/// once.
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

/// Deletes a claim for the Instance that `source` is the copy of, if it is that of the cell `former`, which is gone, and says
/// so on the deployment. The claim was read live, and names that cell.
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
        "ResourceClaim {} was held by the cell with the uid {former}, which is no member any more or was called dead, and \
         was deleted: whoever runs Instance {} from now on makes its own",
        claim.name_any(),
        source.name_any()
    );
    let note = Note { severity: Severity::Normal, reason: Reason::ClaimFreed, action: "FreeingClaim", text: &text };
    let told = deployment.map(|deployment| event::on(deployment, "instance-projector", &note, now));
    proof.delete(claim, |delete| {
        Step::Local(match told {
            Some(told) => delete.telling(told),
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
    fn only_the_claim_of_a_cell_that_is_provably_gone_is_freed() {
        type Edit = fn(&mut Value, &mut Value);
        assert!(frees(&observed(|_, _| ())));
        let cases: [(&str, Edit); 8] = [
            ("nobody has taken the copy from the holder, who may be another hub's", |source, _| {
                source["metadata"]["annotations"] = json!({});
            }),
            ("it was taken from somebody else", |source, _| {
                source["metadata"]["annotations"][annotation::FORMER_CELL] = json!("older");
            }),
            ("nobody waits", |source, _| source["status"]["conditions"][0]["reason"] = json!("PendingEvaluation")),
            ("who waits is not the cell it is bound to", |source, _| {
                source["metadata"]["labels"][label::CELL_UID] = json!("third");
            }),
            ("the holder is a member", |_, claim| claim["metadata"]["labels"][label::CELL_UID] = json!("third")),
            ("the waiting cell's own", |_, claim| claim["metadata"]["labels"][label::CELL_UID] = json!("new")),
            ("the Go operator's, of whom nobody knows", |_, claim| {
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
        assert!(!unknown(|o| o.members = None), "a Cluster without an id may be anybody");
        assert!(!unknown(|o| o.bound = None), "where it is bound is not known");
        assert!(!unknown(|o| o.claim = None), "it is gone");
        assert!(
            !unknown(|o| o.members = Some(BTreeSet::from(["third".to_owned()]).into())),
            "whoever waits is a member itself"
        );
    }
}
