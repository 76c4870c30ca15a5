//! Limits of the credentials of cells and of management on the hub, and the separation of the cells.

mod management;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{control_plane::client, pki::User};

use self::management::{MEMBERS, content};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone, shared},
    delete, eventually, get, list, merge, never, path, ready, rights, workload,
};

const CELL: &str = "compute.datumapis.com/cell-uid";
const ASKS: &str = "compute.datumapis.com/claimed-by-cell";
const FORMER: &str = "compute.datumapis.com/former-cell";
const INSTANCE: &str = "web-p-dfw-0";

/// Rights of every user of a Kubernetes API server: self reviews.
const EVERYBODY: [(&str, &str); 3] = [
    ("authentication.k8s.io/selfsubjectreviews", "create"),
    ("authorization.k8s.io/selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io/selfsubjectrulesreviews", "create"),
];

/// Returns the rights that docs/security.md lists: resources by group, and verbs.
fn listed() -> BTreeSet<(String, String)> {
    let page = std::fs::read_to_string(path("docs/security.md")).unwrap();
    let section = page.split("\n## What a cell's credentials are good for\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut listed = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (group, name) = match cells[1].strip_suffix(", of the core group") {
            Some(name) => ("", name),
            None => ("compute.datumapis.com", cells[1]),
        };
        for verb in cells[2].split(", ") {
            listed.insert((format!("{group}/{}", name.trim_matches('`')), verb.to_owned()));
        }
    }
    listed
}

/// Returns a request that uses a verb and changes nothing.
fn attempt(root: &str, resource: &APIResource, verb: &str) -> Request<Vec<u8>> {
    let (plural, subresource) = resource.name.split_once('/').unwrap_or((&resource.name, ""));
    let namespace = if resource.namespaced { "/namespaces/default" } else { "" };
    let collection = format!("{root}{namespace}/{plural}");
    let one = [&collection, "nobody", subresource].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>();
    let one = one.join("/");
    let dry = "dryRun=All";
    let (method, uri) = match verb {
        "get" => (Method::GET, one),
        "list" => (Method::GET, format!("{collection}?limit=1")),
        "watch" => (Method::GET, format!("{collection}?watch=true&timeoutSeconds=1")),
        "create" if subresource.is_empty() => (Method::POST, format!("{collection}?{dry}")),
        "create" => (Method::POST, format!("{one}?{dry}")),
        "update" => (Method::PUT, format!("{one}?{dry}")),
        "patch" => (Method::PATCH, format!("{one}?{dry}")),
        "delete" => (Method::DELETE, format!("{one}?{dry}")),
        "deletecollection" => (Method::DELETE, format!("{collection}?{dry}")),
        other => panic!("{other} is a verb that this test does not know"),
    };
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    Request::builder().method(method).uri(uri).header("content-type", kind).body(b"{}".to_vec()).unwrap()
}

/// Returns every resource of an API server, with the path of its group.
async fn resources(client: &Client) -> Vec<(String, String, APIResource)> {
    let mut found = Vec::new();
    for resource in client.list_core_api_resources("v1").await.unwrap().resources {
        found.push(("/api/v1".to_owned(), format!("/{}", resource.name), resource));
    }
    for group in client.list_api_groups().await.unwrap().groups {
        for version in &group.versions {
            for resource in client.list_api_group_resources(&version.group_version).await.unwrap().resources {
                let name = format!("{}/{}", group.name, resource.name);
                found.push((format!("/apis/{}", version.group_version), name, resource));
            }
        }
    }
    found
}

#[test]
fn cell_credentials_allow_exactly_the_documented_rights() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let cell = client(&visit.bed.hub.kubeconfig(&User::Cell("ams".into()))).await.unwrap();
        let (mut tried, mut open) = (0, BTreeSet::new());
        for (root, name, resource) in resources(&visit.hub).await {
            for verb in &resource.verbs {
                tried += 1;
                let answer = cell.send(attempt(&root, &resource, verb).map(kube::client::Body::from)).await;
                let code = answer.unwrap().status().as_u16();
                assert_ne!(code, 401, "the hub knows the user");
                if code != 403 {
                    open.insert((name.clone(), verb.clone()));
                }
            }
        }
        assert!(tried > 300, "the hub serves more than {tried} verbs");
        let everybody = EVERYBODY.map(|(resource, verb)| (resource.to_owned(), verb.to_owned()));
        let mut expected = listed();
        // These rights have no served resource.
        let unserved = |entry: &(String, String)| entry.0.ends_with("/finalizers") || entry.0.ends_with("/cells");
        expected.retain(|entry| !unserved(entry));
        expected.extend(everybody);
        assert_eq!(open, expected);
    });
}

/// Returns the message of a refusal, or `None` if the attempt was accepted.
fn refusal<T>(result: kube::Result<T>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.code == 403 => Some(status.message.clone()),
        Err(other) => panic!("{other}"),
    }
}

/// Returns a cell's client for Instances in a namespace of the hub.
async fn as_cell(file: &Path, namespace: &str) -> kube::Api<DynamicObject> {
    api(&client(file).await.unwrap(), "Instance", namespace)
}

/// Returns a cell's attempts to change an Instance of another cell, each with its merge patch.
fn attacks(thief: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("its cell", json!({ "metadata": { "labels": { CELL: thief } } })),
        ("nobody's", json!({ "metadata": { "labels": { CELL: null } } })),
        ("a label", json!({ "metadata": { "labels": { "app": "stolen" } } })),
        ("an annotation", json!({ "metadata": { "annotations": { "note": "x" } } })),
        ("more than asked for", json!({ "metadata": { "annotations": { ASKS: thief, "note": "x" } } })),
        ("asked for in another's name", json!({ "metadata": { "annotations": { ASKS: "somebody" } } })),
        ("a finalizer", json!({ "metadata": { "finalizers": ["example.com/mine"] } })),
        ("its owner", json!({ "metadata": { "ownerReferences": null } })),
        ("its spec", json!({ "spec": { "runtime": { "resources": { "instanceType": "stolen" } } } })),
    ]
}

/// Returns Instances that a cell may not create, each with words of the refusal.
fn forgeries(own: &Value, uid: &str) -> Vec<(&'static str, &'static str, Value)> {
    let made = |edit: &dyn Fn(&mut Value)| {
        let mut object = own.clone();
        object["metadata"]["name"] = json!("forged-0");
        object["metadata"]["labels"][CELL] = json!(uid);
        edit(&mut object);
        object
    };
    let labels = |key: &'static str, value: &'static str| made(&move |o| o["metadata"]["labels"][key] = json!(value));
    vec![
        ("another cell's", "may not write", labels(CELL, "another")),
        ("no cell's", "may not write", made(&|o| drop(o["metadata"]["labels"].as_object_mut().unwrap().remove(CELL)))),
        ("another project's", "name the same project", labels("meta.datumapis.com/upstream-cluster-name", "cluster-x")),
        ("another namespace's", "name the same project", labels("meta.datumapis.com/upstream-namespace", "other")),
        ("without an owner", "must have one owner", made(&|o| o["metadata"]["ownerReferences"] = json!([]))),
        (
            "another deployment's",
            "must have one owner",
            labels("compute.datumapis.com/workload-deployment-name", "other"),
        ),
        (
            "one that stays",
            "may not add finalizers",
            made(&|o| o["metadata"]["finalizers"] = json!(["example.com/mine"])),
        ),
        (
            "one that cannot be deleted",
            "may not write labels or annotations",
            labels("resourcetemplate.karmada.io/deletion-protected", "Always"),
        ),
        ("one of Karmada's", "may not write labels or annotations", labels("karmada.io/managed", "")),
        (
            "one that a policy claims",
            "may not write labels or annotations",
            made(&|o| o["metadata"]["annotations"] = json!({ "propagationpolicy.karmada.io/name": "x" })),
        ),
        (
            "one that fills memory",
            "at most 262144 bytes",
            made(&|o| {
                let long = json!([{ "name": "LONG", "value": "x".repeat(300 << 10) }]);
                o["spec"]["runtime"]["sandbox"]["containers"][0]["env"] = long;
            }),
        ),
        ("one under its own name", "a cell must name an Instance", made(&|_| ())),
        (
            "one of many",
            "0 to 999",
            made(&|o| {
                o["metadata"]["name"] = json!("web-p-dfw-1000");
                o["metadata"]["labels"]["compute.datumapis.com/instance-index"] = json!("1000");
            }),
        ),
        ("one handed over", "only management", made(&|o| o["metadata"]["annotations"] = json!({ FORMER: "another" }))),
    ]
}

/// Cells of the Go operator do not mark their Instances. Asserts that the policy admits them by the rights of their overlay, and
/// still restricts the other cells.
async fn lets_go_cells_pass_and_holds_the_others(
    world: &World,
    hub: &str,
    own: &Value,
    other: &kube::Api<DynamicObject>,
) {
    let role = std::fs::read_to_string(path("config/overlays/hub-with-go-cells/role.yaml")).unwrap();
    let shared = User::Operator.name();
    assert!(role.contains(&*shared), "{role}");
    let role = role.replace(&*shared, "go-cell");
    testbed::manifests::apply(&world.hub, &role).await.unwrap();
    let mut unmarked = own.clone();
    unmarked["metadata"]["name"] = json!("by-go-0");
    unmarked["metadata"]["labels"].as_object_mut().unwrap().remove(CELL);
    let unmarked: DynamicObject = serde_json::from_value(unmarked).unwrap();
    let go = api(&rights::impersonating(&world.bed.hub, "go-cell").await, "Instance", hub);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually("a cell of Go's writes", || async { refusal(go.create(&dry, &unmarked).await).map_or(Ok(()), Err) })
        .await;
    let image = json!({ "spec": { "runtime": { "resources": { "instanceType": "other" } } } });
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    assert_eq!(refusal(go.patch(INSTANCE, &params, &Patch::Merge(&image)).await), None);
    let refused = refusal(other.create(&dry, &unmarked).await);
    assert!(refused.as_ref().is_some_and(|why| why.contains("may not write")), "{refused:?}");
    // In the namespace with the credentials of every cell, they may write as little as management.
    let planted = serde_json::from_value(content("Secret", MEMBERS, "planted")).unwrap();
    let go = api(&rights::impersonating(&world.bed.hub, "go-cell").await, "Secret", MEMBERS);
    let refused = refusal(go.create(&dry, &planted).await);
    assert!(refused.as_ref().is_some_and(|why| why.contains("'karmada-cluster' is not one")), "{refused:?}");
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        delete(&world.hub, kind, "", "compute-go-operator").await;
    }
}

/// Asserts that a cell cannot name the former cell of its Instance, because management would release the claim of that cell.
async fn cannot_name_former_cells(own: &kube::Api<DynamicObject>) {
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let says = |former: Value| json!({ "metadata": { "annotations": { FORMER: former, "note": "x" } } });
    for former in ["", "another"] {
        let refused = refusal(own.patch(INSTANCE, &dry, &Patch::Merge(&says(json!(former)))).await);
        assert!(refused.as_ref().is_some_and(|why| why.contains("only management")), "{former:?}: {refused:?}");
    }
    let kept = own.get_metadata(INSTANCE).await.unwrap().annotations().get(FORMER).cloned();
    for former in [kept.map_or(Value::Null, Value::String), Value::Null] {
        let refused = refusal(own.patch(INSTANCE, &dry, &Patch::Merge(&says(former.clone()))).await);
        assert_eq!(refused, None, "{former}: it is kept or removed");
    }
}

/// Asserts that a cell cannot control Karmada through its Instance. A label set by an administrator blocks no write.
async fn cannot_control_karmada(world: &World, hub: &str, own: &kube::Api<DynamicObject>) {
    const PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let puts =
        |key: &str, value: Value| json!({ "metadata": { key: { PROTECTED: value }, "annotations": { "note": "x" } } });
    for key in ["labels", "annotations"] {
        for value in ["", "Always"] {
            let mut patch = json!({ "metadata": {} });
            patch["metadata"][key] = json!({ PROTECTED: value });
            let refused = refusal(own.patch(INSTANCE, &dry, &Patch::Merge(&patch)).await);
            assert!(
                refused.as_ref().is_some_and(|why| why.contains("may not write labels or annotations")),
                "{key} {value:?}: {refused:?}"
            );
        }
    }
    let by_admin = |value: Value| json!({ "metadata": { "labels": { PROTECTED: value } } });
    merge(&world.hub, "Instance", hub, INSTANCE, by_admin(json!("Never"))).await;
    for (value, expected) in [(json!("Never"), true), (Value::Null, true), (json!("Always"), false)] {
        let refused = refusal(own.patch(INSTANCE, &dry, &Patch::Merge(&puts("labels", value.clone()))).await);
        assert_eq!(refused.is_none(), expected, "{value}: it is kept or removed: {refused:?}");
    }
    merge(&world.hub, "Instance", hub, INSTANCE, by_admin(Value::Null)).await;
}

async fn copy(world: &World, hub: &str) -> Option<DynamicObject> {
    get(&world.hub, "Instance", hub, INSTANCE).await
}

/// Waits until the hub has the Instance with the cell's uid on it.
async fn written_back(world: &World, hub: &str, uid: &str) -> DynamicObject {
    eventually("the copy is this cell's", || async {
        let copy = copy(world, hub).await.ok_or("no copy")?;
        let held = copy.labels().get(CELL).is_some_and(|cell| cell == uid) && !copy.annotations().contains_key(ASKS);
        if held { Ok(copy) } else { Err(format!("{:?} {:?}", copy.labels(), copy.annotations())) }
    })
    .await
}

#[test]
fn cell_cannot_write_instances_of_another_and_management_hands_over() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("held").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        let mut uids = BTreeMap::new();
        for (city, cell) in [("dfw", &world.dfw), ("ord", &world.ord)] {
            uids.insert(city, get(cell, "Namespace", "", "kube-system").await.unwrap().uid().unwrap());
        }
        let held = written_back(&world, &hub, &uids["dfw"]).await;
        let thief = as_cell(&world.bed.hub.kubeconfig(&User::Cell("ord".into())), &hub).await;

        let params = PatchParams::default();
        for (what, patch) in attacks(&uids["ord"]) {
            let refused = refusal(thief.patch(INSTANCE, &params, &Patch::Merge(&patch)).await);
            assert!(refused.as_ref().is_some_and(|why| why.contains(&uids["dfw"])), "{what}: {refused:?}");
        }
        let status = json!({ "status": { "conditions": [] } });
        assert!(refusal(thief.patch_status(INSTANCE, &params, &Patch::Merge(&status)).await).is_some());
        assert!(refusal(thief.delete(INSTANCE, &DeleteParams::default()).await).is_some());
        let mut own = serde_json::to_value(&held).unwrap();
        let metadata = own["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
        for (what, words, object) in forgeries(&own, &uids["ord"]) {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let refused = refusal(thief.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await);
            assert!(refused.as_ref().is_some_and(|why| why.contains(words)), "{what}: {refused:?}");
        }
        // This is allowed: the policy does not see where Karmada has bound the deployment.
        let mut let_through = own.clone();
        let_through["metadata"]["name"] = json!("web-p-dfw-7");
        let_through["metadata"]["labels"]["compute.datumapis.com/instance-index"] = json!("7");
        let_through["metadata"]["labels"][CELL] = json!(uids["ord"]);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let let_through: DynamicObject = serde_json::from_value(let_through).unwrap();
        assert_eq!(refusal(thief.create(&dry, &let_through).await), None);
        lets_go_cells_pass_and_holds_the_others(&world, &hub, &own, &thief).await;
        let holder = as_cell(&world.bed.hub.kubeconfig(&User::Cell("dfw".into())), &hub).await;
        cannot_name_former_cells(&holder).await;
        cannot_control_karmada(&world, &hub, &holder).await;
        // A cell may request the Instance. Karmada has not bound the deployment to that cell, so management does not hand it
        // over.
        let asks = json!({ "metadata": { "annotations": { ASKS: uids["ord"] } } });
        thief.patch(INSTANCE, &params, &Patch::Merge(&asks)).await.unwrap();
        never("the copy is another's", || async {
            copy(&world, &hub).await.filter(|copy| copy.labels()[CELL] != uids["dfw"])
        })
        .await;

        // The cell was rebuilt. Its Instance is on the hub under the former uid.
        let created = held.creation_timestamp().unwrap().0;
        world_older_than(created).await;
        let former = json!({ "metadata": { "labels": { CELL: "the-former" }, "annotations": { ASKS: null } } });
        merge(&world.hub, "Instance", &hub, INSTANCE, former).await;
        delete(&world.dfw, "Instance", &hub, INSTANCE).await;
        let handed = written_back(&world, &hub, &uids["dfw"]).await;
        assert_eq!(handed.uid(), held.uid(), "handed over, not recreated");
        assert_eq!(handed.annotations().get(FORMER).map(String::as_str), Some("the-former"));
        cannot_name_former_cells(&holder).await;
        ready(&world, &ns, "web", 1).await;

        // An Instance of the former cell that no cell requests is deleted, because the current cell does not have it.
        own["metadata"]["name"] = json!("web-p-dfw-7");
        own["metadata"]["labels"][CELL] = json!("the-former");
        apply(&world.hub, own).await;
        eventually("projections without a source are deleted", || async {
            let left = (list(&world.hub, "Instance", &hub).await, list(&world.project, "Instance", &ns).await);
            if (left.0.len(), left.1.len()) == (1, 1) { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        let test = "cell_cannot_write_instances_of_another_and_management_hands_over";
        rights::shown(&world, world.since(), test);
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Waits until new objects have a later creationTimestamp. API servers store whole seconds.
async fn world_older_than(then: Timestamp) {
    eventually("a second has passed", || async {
        if Timestamp::now().as_second() > then.as_second() { Ok(()) } else { Err("not yet".into()) }
    })
    .await;
}
