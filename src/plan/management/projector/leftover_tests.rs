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

type Edit = fn(&mut Told);

type Unlearn = fn(&mut Observed);

/// Everything that one is told by.
struct Told {
    copy: Value,
    siblings: Vec<Value>,
    deployment: Value,
    claim: Option<Value>,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Shared<T> {
    Shared::from(serde_json::from_value::<T>(value).unwrap())
}

fn observed(edit: impl FnOnce(&mut Told)) -> Observed {
    let mut told = Told {
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
    edit(&mut told);
    let left = dead_claim::Observed {
        source: read(told.copy),
        deployment: Some(read(told.deployment)),
        bound: Some("new".into()),
        members: Some(BTreeSet::from(["new".to_owned(), "third".to_owned()]).into()),
        claim: told.claim.map(read),
    };
    Observed { left, siblings: told.siblings.into_iter().map(read).collect(), given_before: false }
}

/// Whether the claim goes, and whether the copy is given away after that.
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

/// Found by reading: the copy was given away, its new holder took it away, and with it went the only trace by which the
/// claim could be freed: the tenant who scaled up later waited for ever.
#[test]
fn the_claim_of_a_cell_that_is_gone_goes_before_the_copy_that_tells_of_it() {
    assert_eq!(decided(&observed(|_| ())), (true, true));
    let cases: [(&str, Edit); 4] = [
        ("there is none", |told| told.claim = None),
        ("another cell's", |told| told.claim.as_mut().unwrap()["metadata"]["labels"][label::CELL_UID] = json!("third")),
        ("for another namespace", |told| {
            told.claim.as_mut().unwrap()["metadata"]["labels"][label::INSTANCE_NAMESPACE] = json!("ns-2");
        }),
        ("the Go operator's", |told| {
            told.claim.as_mut().unwrap()["metadata"]["labels"].as_object_mut().unwrap().remove(label::CELL_UID);
        }),
    ];
    for (name, edit) in cases {
        assert_eq!(decided(&observed(edit)), (false, true), "{name}");
    }
}

/// Found by reading: what a dead cell had shown of Instances that its successor does not have stayed for ever; and what a
/// cell that lives had shown was given to a uid that nobody has.
#[test]
fn what_is_left_of_a_cell_that_is_gone_goes_to_the_one_that_has_all_and_no_more() {
    let cases: [(&str, Edit); 18] = [
        ("somebody has made it by hand", |told| told.copy["metadata"]["name"] = json!("by-hand")),
        ("it is of another deployment by its name", |told| told.copy["metadata"]["name"] = json!("api-2")),
        ("one of the Go operator's that is asked for", |told| {
            told.copy["metadata"]["name"] = json!("web-1");
            drop(told.copy["metadata"]["labels"].take());
        }),
        ("the Go operator's, which has the others as well", |told| {
            drop(told.copy["metadata"]["labels"].take());
            drop(told.siblings[0]["metadata"]["labels"].take());
        }),
        ("one that its successor counts, and asks for", |told| told.copy["metadata"]["name"] = json!("web-1")),
        ("a member's, which may be cut off and run it", |told| {
            told.copy["metadata"]["labels"][label::CELL_UID] = json!("third");
        }),
        ("its own", |told| told.copy["metadata"]["labels"][label::CELL_UID] = json!("new")),
        ("somebody asks", |told| {
            told.copy["metadata"]["annotations"] = json!({ annotation::CLAIMED_BY_CELL: "third" });
        }),
        ("it goes", |told| told.copy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        ("nobody shows anything under that uid", |told| told.siblings.clear()),
        ("one of them is another's still", |told| {
            told.siblings[1]["metadata"]["labels"][label::CELL_UID] = json!("dead");
        }),
        ("who lives asks for what is left of a former uid", |told| {
            told.siblings[1]["metadata"]["annotations"] = json!({ annotation::CLAIMED_BY_CELL: "anew" });
        }),
        ("a liar's, of another namespace", |told| told.siblings[1]["metadata"]["namespace"] = json!("ns-2")),
        ("of an earlier spec", |told| told.deployment["status"]["observedGeneration"] = json!(3)),
        ("nobody has answered", |told| drop(told.deployment["status"].take())),
        ("more are left there", |told| told.deployment["status"]["replicas"] = json!(3)),
        ("none is wanted, so that nobody shows that he lives", |told| {
            told.deployment["spec"]["scaleSettings"]["minReplicas"] = json!(0);
            told.deployment["status"]["replicas"] = json!(0);
            told.deployment["status"]["desiredReplicas"] = json!(0);
        }),
        ("the deployment goes", |told| {
            told.deployment["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
    ];
    for (name, edit) in cases {
        assert_eq!(decided(&observed(edit)), (false, false), "{name}");
    }
    let unknown: [(&str, Unlearn); 5] = [
        ("bound to nobody who is known", |of| of.left.bound = None),
        ("nobody knows the members", |of| of.left.members = None),
        ("bound to no member", |of| of.left.members = Some(BTreeSet::from(["third".to_owned()]).into())),
        ("nobody knows the deployment", |of| of.left.deployment = None),
        ("bound to another", |of| of.left.bound = Some("third".into())),
    ];
    for (name, edit) in unknown {
        let mut observed = observed(|_| ());
        edit(&mut observed);
        assert_eq!(decided(&observed), (false, false), "{name}");
    }
}

/// Found by reading: an Instance of the Go operator's that was on its way out as the operators changed left its copy behind,
/// which carries no cell's uid and was shown to the tenant until its deployment went.
#[test]
fn a_copy_of_the_go_operators_goes_to_the_cell_that_has_all_and_no_more_and_no_claim_goes_by_it() {
    assert_eq!(decided(&observed(|told| drop(told.copy["metadata"]["labels"].take()))), (false, true));
}

/// Found by reading: two Go cells that both live would have had it given to and fro.
#[test]
fn a_copy_of_the_go_operators_is_given_once_and_one_of_a_cell_that_is_gone_as_often_as_it_is_there() {
    let again = |edit: Edit| Observed { given_before: true, ..observed(edit) };
    let written_again = again(|told| drop(told.copy["metadata"]["labels"].take()));
    assert_eq!(decided(&written_again), (false, false));
    assert_eq!(plan(&written_again, Timestamp::UNIX_EPOCH).signals, [WrittenAgain]);
    assert_eq!(decided(&again(|_| ())), (true, true));
}
