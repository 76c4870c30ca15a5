use super::*;
use crate::plan::{Op, recorded::recorded};
use serde_json::Value;

const NS: &str = "ns-0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b11";
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn instance(edit: impl FnOnce(&mut Value)) -> Instance {
    let mut labels: BTreeMap<&str, &str> = ownership::OF_AN_INSTANCE.iter().map(|key| (*key, "x")).collect();
    labels.insert(label::WORKLOAD_DEPLOYMENT_NAME, "wd");
    labels.insert("app", "web");
    let mut object = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": {
            "name": "wd-0", "namespace": NS, "uid": "i", "resourceVersion": "5", "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:10Z",
            "ownerReferences": [{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": "wd", "uid": "d1", "controller": true }],
        },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
    });
    edit(&mut object);
    serde_json::from_value(object).unwrap()
}

fn deployment() -> WorkloadDeployment {
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": "wd", "namespace": NS, "uid": "d1", "annotations": { "resourcetemplate.karmada.io/uid": "h1" } },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

struct Seen {
    instance: Option<Instance>,
    deployment: Option<WorkloadDeployment>,
    labels: BTreeMap<String, String>,
    copy: Option<Instance>,
    hub: OnHub,
}

impl Seen {
    fn new() -> Self {
        let labels = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "default")];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        Self {
            instance: Some(instance(|_| ())),
            deployment: Some(deployment()),
            labels,
            copy: None,
            hub: OnHub::Unread,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&Observed) -> T) -> T {
        act(&Observed {
            object: Object::named::<Instance>(NS, "wd-0"),
            instance: self.instance.clone().map(Shared::from),
            deployment: self.deployment.clone().map(Shared::from),
            namespace_labels: self.labels.clone(),
            cell: "cell-a".into(),
            copy: self.copy.clone().map(Shared::from),
            hub: self.hub.clone(),
            rival: Rival::Unread,
            timing: Timing::default(),
        })
    }

    /// Makes the Instance one that a user created by hand.
    fn by_hand(&mut self) {
        self.deployment = None;
        self.instance.as_mut().unwrap().metadata.owner_references = None;
    }

    fn steps(&self) -> Vec<Step<Cell, Hub>> {
        self.with(|observed| plan(observed, NOW).steps)
    }

    /// Returns the copy as the hub would store it.
    fn written(&self) -> Instance {
        let Some(Step::Remote(write)) = self.steps().pop() else { panic!() };
        let Op::Apply { body, .. } = write.op else { panic!() };
        let mut copy: Instance = serde_json::from_value(json!(body)).unwrap();
        copy.metadata.uid = Some("c".into());
        copy.metadata.resource_version = Some("9".into());
        copy
    }
}

#[test]
fn copy_is_created_after_owner_and_vacancy_are_confirmed() {
    let steps = Seen::new().steps();
    let [Step::Remote(owner), Step::Remote(vacant), Step::Remote(write)] = &steps[..] else { panic!("{steps:?}") };
    assert!(matches!(&owner.op, Op::ConfirmPresent { uid } if uid == "h1") && owner.object.name == "wd");
    assert!(matches!(vacant.op, Op::ConfirmAbsent));
    let Op::Apply { body, .. } = &write.op else { panic!("{write:?}") };
    let labels = &body["metadata"]["labels"];
    assert_eq!(
        (&labels[label::UPSTREAM_CLUSTER], &labels[label::UPSTREAM_NAMESPACE]),
        (&json!("cluster-shop"), &json!("default"))
    );
    assert_eq!((&labels[label::CELL_UID], &labels["app"]), (&json!("cell-a"), &json!("web")));
    let owner = &body["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"], &owner["blockOwnerDeletion"]),
        (&json!("h1"), &json!(true), &json!(true))
    );
}

/// Without webhooks, one label in a template kept its Instances off the hub.
#[test]
fn instance_with_reserved_template_labels_is_written_back() {
    let mut seen = Seen::new();
    seen.instance = Some(instance(|o| {
        for (key, value) in [
            (label::UPSTREAM_CLUSTER, "cluster-other"),
            (label::UPSTREAM_NAMESPACE, "theirs"),
            (label::CELL_UID, "cell-b"),
        ] {
            o["metadata"]["labels"][key] = json!(value);
        }
    }));
    let labels = seen.written().metadata.labels.unwrap();
    for (key, value) in
        [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "default"), (label::CELL_UID, "cell-a")]
    {
        assert_eq!(labels[key], value, "ours win");
    }
}

/// Each teardown caused two reads and a status write for every Instance.
#[test]
fn orphaned_instance_causes_no_read_of_the_hub() {
    let mut seen = Seen::new();
    seen.deployment = None;
    let decided = seen.with(|observed| plan(observed, NOW));
    assert!(decided.steps.is_empty() && decided.signals.is_empty(), "{decided:?}");
}

#[test]
fn identity_missing_on_cell_is_read_from_hub_or_reported() {
    type Edit = fn(&mut Seen);
    let on_hub = |labels: Option<&[(&str, &str)]>, deployment: Option<&str>| OnHub::Read {
        labels: labels.map(|labels| labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
        deployment: deployment.map(str::to_owned),
    };
    let labels = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "default")];
    let cases: [(&str, Edit, OnHub, Option<&str>); 7] = [
        ("an Instance made by hand", Seen::by_hand, on_hub(Some(&labels), Some("h1")), None),
        ("labels that have not arrived", |s| s.labels.clear(), on_hub(Some(&labels), Some("h2")), None),
        (
            "not from the hub",
            |s| s.deployment.as_mut().unwrap().metadata.annotations = None,
            on_hub(Some(&labels), Some("h1")),
            None,
        ),
        ("no owner", Seen::by_hand, on_hub(Some(&labels), None), Some("no WorkloadDeployment")),
        ("no namespace", Seen::by_hand, on_hub(None, None), Some("no namespace")),
        ("no project", |s| s.labels.clear(), on_hub(Some(&labels[1..]), Some("h1")), Some(label::UPSTREAM_CLUSTER)),
        (
            "no place in the project",
            |s| drop(s.labels.insert(label::UPSTREAM_NAMESPACE.into(), String::new())),
            on_hub(Some(&labels[..1]), Some("h1")),
            Some(label::UPSTREAM_NAMESPACE),
        ),
    ];
    for (name, edit, hub, lack) in cases {
        let mut seen = Seen::new();
        let copy = seen.written();
        edit(&mut seen);
        let asked = seen.with(|observed| plan(observed, NOW));
        assert!(asked.steps.is_empty() && asked.signals == [Signal::Asks], "{name}: {asked:?}");
        seen.hub = hub;
        let decided = seen.with(|observed| plan(observed, NOW));
        match (lack, &decided.steps[..]) {
            (None, [.., Step::Remote(write)]) => {
                let Op::Apply { body, .. } = &write.op else { panic!("{name}: {write:?}") };
                assert_eq!(body["metadata"]["labels"][label::UPSTREAM_CLUSTER], "cluster-shop", "{name}");
                assert_eq!(
                    body["metadata"]["ownerReferences"][0]["uid"], "h1",
                    "{name}: what Karmada brought comes first"
                );
            }
            (Some(lack), [Step::Local(write)]) => {
                let Op::Apply { body, status: true, .. } = &write.op else { panic!("{name}: {write:?}") };
                let said = &body["status"]["conditions"][0];
                assert_eq!((&said["type"], &said["reason"]), (&json!("WrittenBack"), &json!("NotWrittenBack")));
                assert!(said["message"].as_str().unwrap().contains(lack), "{name}: {said}");
                assert_eq!(decided.next, Next::After(Timing::default().poll * POLLS_PER_READ), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        seen.hub = OnHub::Unread;
        seen.copy = Some(copy);
        let stands = seen.with(|observed| plan(observed, NOW));
        assert!(stands.steps.is_empty() && stands.signals.is_empty(), "{name}: the copy is kept, {stands:?}");
    }
}

#[test]
fn write_back_of_projection_or_terminating_instance_is_skipped() {
    type Edit = fn(&mut Seen);
    let cases: [(&str, Edit); 4] = [
        ("a label that the deployment's controller puts back", |s| {
            s.instance = Some(instance(|o| o["metadata"]["labels"][label::CITY_CODE] = json!("")));
        }),
        ("a projection", |s| {
            s.by_hand();
            s.instance = Some(instance(|o| o["metadata"]["labels"][label::UPSTREAM_CLUSTER] = json!("cluster-shop")));
        }),
        ("terminating", |s| {
            s.deployment = None;
            s.instance = Some(instance(|o| o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")));
        }),
        ("terminating, without a label", |s| {
            s.deployment = None;
            s.instance = Some(instance(|o| {
                o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                o["metadata"]["labels"][label::CITY_CODE] = json!("");
            }));
        }),
    ];
    for (name, edit) in cases {
        let mut seen = Seen::new();
        edit(&mut seen);
        let decided = seen.with(|observed| plan(observed, NOW));
        assert!(decided.steps.is_empty() && decided.signals.is_empty(), "{name}: {decided:?}");
    }
    let mut bare = Seen::new();
    bare.deployment = None;
    bare.instance = Some(instance(|o| o["metadata"]["labels"][label::CITY_CODE] = json!("")));
    let said = bare.with(|observed| format!("{:?}", plan(observed, NOW).steps));
    assert!(said.contains(label::CITY_CODE), "no controller restores it, and it is reported: {said}");
}

#[test]
fn copy_up_to_date_is_kept_until_instance_is_deleted() {
    let mut seen = Seen::new();
    seen.copy = Some(seen.written());
    assert!(seen.steps().is_empty());
    seen.instance = None;
    let steps = seen.steps();
    let [Step::Local(confirm), Step::Remote(delete)] = &steps[..] else { panic!("{steps:?}") };
    assert!(matches!(confirm.op, Op::ConfirmAbsent), "absent from a cache is not gone");
    assert!(matches!(&delete.op, Op::Delete { uid, resource_version } if uid == "c" && resource_version == "9"));
}

#[test]
fn copy_of_another_writer_is_adopted_requested_or_kept() {
    let seen = Seen::new();
    let contest = |edit: &dyn Fn(&mut Instance)| {
        let mut other = seen.written();
        edit(&mut other);
        let mut decided = seen.with(|observed| {
            let observed = Observed { rival: Rival::Present(other.into()), ..observed.clone() };
            let (decided, again) = (plan(&observed, NOW), plan(&recorded(&observed), NOW));
            assert_eq!(format!("{decided:?}"), format!("{again:?}"), "decided again from its record");
            decided
        });
        let timing = Timing::default();
        let soon = if decided.steps.is_empty() { timing.poll * POLLS_PER_READ } else { RECREATE_WAIT };
        assert_eq!((decided.next, decided.signals), (Next::After(soon), vec![]));
        decided.steps.pop().map(|step| match step {
            Step::Remote(write) => write.op,
            Step::Local(write) => panic!("{write:?}"),
        })
    };
    let at = |text: &str| Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(text.parse().unwrap()));
    let by = |other: &mut Instance, cell: &str, text: &str| {
        other.metadata.labels.as_mut().unwrap().insert(label::CELL_UID.into(), cell.into());
        other.metadata.creation_timestamp = at(text);
    };
    let unnamed = contest(&|o| drop(o.metadata.labels.as_mut().unwrap().remove(label::CELL_UID)));
    assert!(matches!(unnamed, Some(Op::Apply { .. })), "the Go operator's");
    let Some(Op::Merge { body, .. }) = contest(&|o| by(o, "cell-b", "2026-01-01T00:00:05Z")) else {
        panic!("the city moved here: it is asked for, and nothing else is done to it")
    };
    let asked = json!({ "annotations": { annotation::CLAIMED_BY_CELL: "cell-a" }, "uid": "c", "resourceVersion": "9" });
    assert_eq!(body, json!({ "metadata": asked }));
    let asking = |o: &mut Instance, cell: &str| {
        by(o, "cell-b", "2026-01-01T00:00:05Z");
        o.metadata.annotations = Some(BTreeMap::from([(annotation::CLAIMED_BY_CELL.to_owned(), cell.to_owned())]));
    };
    assert_eq!(contest(&|o| asking(o, "cell-a")), None, "once");
    assert!(contest(&|o| asking(o, "cell-c")).is_some(), "also if another cell requested it");
    assert_eq!(contest(&|o| by(o, "cell-b", "2026-01-01T00:00:15Z")), None, "the city moved there");
    assert_eq!(contest(&|o| by(o, "cell-a", "2026-01-01T00:00:05Z")), None, "our own, not seen yet");
    let gone = seen.with(|observed| plan(&Observed { rival: Rival::Absent, ..observed.clone() }, NOW));
    assert!(gone.steps.is_empty() && gone.next == Next::After(RECREATE_WAIT), "{gone:?}");
}

/// If the hub refused the write-back of an Instance, only a log line reported it.
#[test]
fn failed_write_back_is_reported_after_a_delay_until_success() {
    let failure = |words: &str, seconds| Failure {
        words: words.into(),
        is_final: false,
        lasted: std::time::Duration::from_secs(seconds),
    };
    let mut seen = Seen::new();
    let told =
        |seen: &Seen, words: &str, seconds| seen.with(|observed| failed(observed, &failure(words, seconds), NOW));
    assert!(told(&seen, "it answers with HTTP 500", 19).is_none(), "it may pass");
    let Op::Apply { body, status: true, .. } = told(&seen, "it answers with HTTP 500", 20).unwrap().op else {
        panic!()
    };
    let said = &body["status"]["conditions"][0];
    assert_eq!((&said["type"], &said["reason"]), (&json!("WrittenBack"), &json!("NotWrittenBack")));
    assert!(said["message"].as_str().unwrap().ends_with("it answers with HTTP 500"), "{said}");
    seen.instance.as_mut().unwrap().status = serde_json::from_value(body["status"].clone()).unwrap();
    assert!(told(&seen, "it answers with HTTP 502", 40).is_none(), "another number is not written");
    seen.instance = None;
    assert!(told(&seen, "it answers with HTTP 500", 40).is_none());
}
