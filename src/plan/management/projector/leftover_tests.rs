use serde_json::{Value, json};

use super::*;
use crate::{
    api::meta::{annotation, label},
    plan::Op,
};

fn copy(name: &str, cell: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ns-1", "uid": "c", "resourceVersion": "9", "labels": { label::CELL_UID: cell },
        },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
    })
}

type Edit = fn(&mut Snapshot);

type Unlearn = fn(&mut Observed);

/// Input of a case.
struct Snapshot {
    copy: Value,
    siblings: Vec<Value>,
    deployment: Value,
    claim: Option<Value>,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Shared<T> {
    Shared::from(serde_json::from_value::<T>(value).unwrap())
}

fn observed(edit: impl FnOnce(&mut Snapshot)) -> Observed {
    let mut snapshot = Snapshot {
        copy: copy("web-2", "dead"),
        siblings: vec![copy("web-0", "new"), copy("web-1", "new"), copy("web-2", "dead")],
        deployment: json!({
            "metadata": { "name": "web", "namespace": "shop", "generation": 4 },
            "spec": {
                "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "DFW",
                "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                "scaleSettings": { "minReplicas": 2 },
            },
            "status": {
                "observedGeneration": 4, "replicas": 2, "desiredReplicas": 2, "currentReplicas": 2,
                "readyReplicas": 1, "updatedReplicas": 2, "conditions": [],
            },
        }),
        claim: Some(json!({
            "metadata": {
                "name": "instance-web-2", "namespace": "shop", "uid": "q", "resourceVersion": "7",
                "labels": { label::CELL_UID: "dead", label::INSTANCE_NAMESPACE: "ns-1" },
            },
            "spec": { "consumerRef": { "kind": "Project", "name": "x" }, "requests": [] },
        })),
    };
    edit(&mut snapshot);
    let left = dead_claim::Observed {
        source: read(snapshot.copy),
        deployment: Some(read(snapshot.deployment)),
        bound: Some("new".into()),
        members: Some(BTreeSet::from(["new".to_owned(), "third".to_owned()]).into()),
        claim: snapshot.claim.map(read),
    };
    Observed { left, siblings: snapshot.siblings.into_iter().map(read).collect(), given_before: false }
}

/// Returns whether the claim is deleted, and whether the copy is given away after that.
fn decided(observed: &Observed) -> (bool, bool) {
    let mut steps = plan(observed, Timestamp::UNIX_EPOCH).steps.into_iter();
    let mut next = steps.next();
    let freed = if let Some(Step::Local(delete)) = &next {
        let exact = matches!(&delete.op, Op::Delete { uid, resource_version } if uid == "q" && resource_version == "7");
        assert!(exact, "exactly the one that was judged: {delete:?}");
        next = steps.next();
        true
    } else {
        false
    };
    assert!(steps.next().is_none());
    let Some(Step::Remote(give)) = next else { return (freed, false) };
    let Op::Merge { body, .. } = give.op else { panic!("{give:?}") };
    let metadata = &body["metadata"];
    assert_eq!((&metadata["labels"][label::CELL_UID], &metadata["resourceVersion"]), (&json!("new"), &json!("9")));
    (freed, true)
}

/// The new holder deleted the copy, which was the only trace to the claim. Nothing freed the claim, and a tenant who scaled up
/// later waited forever.
#[test]
fn leftover_claim_is_deleted_before_copy_is_given_away() {
    assert_eq!(decided(&observed(|_| ())), (true, true));
    let cases: [(&str, Edit); 4] = [
        ("there is none", |snapshot| snapshot.claim = None),
        ("another cell's", |snapshot| {
            snapshot.claim.as_mut().unwrap()["metadata"]["labels"][label::CELL_UID] = json!("third");
        }),
        ("for another namespace", |snapshot| {
            snapshot.claim.as_mut().unwrap()["metadata"]["labels"][label::INSTANCE_NAMESPACE] = json!("ns-2");
        }),
        ("the Go operator's", |snapshot| {
            snapshot.claim.as_mut().unwrap()["metadata"]["labels"].as_object_mut().unwrap().remove(label::CELL_UID);
        }),
    ];
    for (name, edit) in cases {
        assert_eq!(decided(&observed(edit)), (false, true), "{name}");
    }
}

/// Copies of a dead cell stayed forever if its successor does not have their Instances. Copies of a live cell were given to a uid
/// that no cell has.
#[test]
fn leftover_copy_without_full_proof_is_kept() {
    let cases: [(&str, Edit); 18] = [
        ("created by hand", |snapshot| snapshot.copy["metadata"]["name"] = json!("by-hand")),
        ("it is of another deployment by its name", |snapshot| snapshot.copy["metadata"]["name"] = json!("api-2")),
        ("one of the Go operator's that is asked for", |snapshot| {
            snapshot.copy["metadata"]["name"] = json!("web-1");
            drop(snapshot.copy["metadata"]["labels"].take());
        }),
        ("the Go operator's, which has the others as well", |snapshot| {
            drop(snapshot.copy["metadata"]["labels"].take());
            drop(snapshot.siblings[0]["metadata"]["labels"].take());
        }),
        ("one that its successor counts, and asks for", |snapshot| snapshot.copy["metadata"]["name"] = json!("web-1")),
        ("a member's, which may be cut off and run it", |snapshot| {
            snapshot.copy["metadata"]["labels"][label::CELL_UID] = json!("third");
        }),
        ("its own", |snapshot| snapshot.copy["metadata"]["labels"][label::CELL_UID] = json!("new")),
        ("another cell asks", |snapshot| {
            snapshot.copy["metadata"]["annotations"] = json!({ annotation::CLAIMED_BY_CELL: "third" });
        }),
        ("it is terminating", |snapshot| {
            snapshot.copy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
        ("no copy has the bound cell's uid", |snapshot| snapshot.siblings.clear()),
        ("one of them is another's still", |snapshot| {
            snapshot.siblings[1]["metadata"]["labels"][label::CELL_UID] = json!("dead");
        }),
        ("a live cell asks for copies of its former uid", |snapshot| {
            snapshot.siblings[1]["metadata"]["annotations"] = json!({ annotation::CLAIMED_BY_CELL: "anew" });
        }),
        ("a sibling in another namespace", |snapshot| snapshot.siblings[1]["metadata"]["namespace"] = json!("ns-2")),
        ("of an earlier spec", |snapshot| snapshot.deployment["status"]["observedGeneration"] = json!(3)),
        ("no cell has answered", |snapshot| drop(snapshot.deployment["status"].take())),
        ("more are left there", |snapshot| snapshot.deployment["status"]["replicas"] = json!(3)),
        ("none is wanted, so no cell proves that it lives", |snapshot| {
            snapshot.deployment["spec"]["scaleSettings"]["minReplicas"] = json!(0);
            snapshot.deployment["status"]["replicas"] = json!(0);
            snapshot.deployment["status"]["desiredReplicas"] = json!(0);
        }),
        ("the deployment is terminating", |snapshot| {
            snapshot.deployment["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
    ];
    for (name, edit) in cases {
        assert_eq!(decided(&observed(edit)), (false, false), "{name}");
    }
    let unknown: [(&str, Unlearn); 5] = [
        ("bound to an unknown cell", |observed| observed.left.bound = None),
        ("the members are unknown", |observed| observed.left.members = None),
        ("bound to no member", |observed| observed.left.members = Some(BTreeSet::from(["third".to_owned()]).into())),
        ("the deployment is unknown", |observed| observed.left.deployment = None),
        ("bound to another", |observed| observed.left.bound = Some("third".into())),
    ];
    for (name, edit) in unknown {
        let mut observed = observed(|_| ());
        edit(&mut observed);
        assert_eq!(decided(&observed), (false, false), "{name}");
    }
}

/// An Instance of the Go operator that was terminating while the operators changed left its copy behind. The copy has no cell's
/// uid, and the tenant saw it until the deployment was deleted.
#[test]
fn leftover_copy_of_go_operator_is_given_away_without_a_claim() {
    assert_eq!(decided(&observed(|snapshot| drop(snapshot.copy["metadata"]["labels"].take()))), (false, true));
}

/// Two live cells of the Go operator would have exchanged the copy without end.
#[test]
fn leftover_copy_of_go_operator_is_given_away_only_once() {
    let again = |edit: Edit| Observed { given_before: true, ..observed(edit) };
    let written_again = again(|snapshot| drop(snapshot.copy["metadata"]["labels"].take()));
    assert_eq!(decided(&written_again), (false, false));
    assert_eq!(plan(&written_again, Timestamp::UNIX_EPOCH).signals, [WrittenAgain]);
    assert_eq!(decided(&again(|_| ())), (true, true));
}
