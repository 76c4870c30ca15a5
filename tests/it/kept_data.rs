//! Running deployments keep their data while another reference is missing, and after any edit of the list of users. The test uses
//! the shared bed.

use crate::{
    common::{RUNTIME, World, apply, beds::shared, copies, delete, eventually, get, merge, ready},
    data::{config_map, secret, source_is_missed, using, with},
};
use kube::ResourceExt;
use serde_json::{Value, json};

const LIST: &str = "compute.datumapis.com/referenced-by";
const EXPECTED: &str = "compute.datumapis.com/expected-referenced-data";

/// Waits until the companion names exactly these deployments. Returns its uid.
async fn named(world: &World, hub: &str, ns: &str, users: &[&str]) -> String {
    let wanted: Vec<String> = users.iter().map(|user| format!("{ns}/{user}")).collect();
    eventually(&format!("the companion names {wanted:?}"), || async {
        let companion = get(&world.hub, "Secret", hub, "db").await.ok_or("it is not there")?;
        let list = companion.annotations().get(LIST).cloned().unwrap_or_default();
        let found: Vec<String> = serde_json::from_str(&list).map_err(|error| format!("{list}: {error}"))?;
        if found == wanted { Ok(companion.uid().unwrap()) } else { Err(list) }
    })
    .await
}

/// Waits until the cell of dfw has this value. Asserts that the copy of the deployment still lists the Secret.
async fn in_dfw(world: &World, hub: &str, value: &str) {
    eventually(&format!("{value} is in dfw"), || async {
        let secret = get(&world.dfw, "Secret", hub, "db").await.ok_or("it is not there")?;
        if secret.data["data"]["key"] == value { Ok(()) } else { Err(secret.data["data"].to_string()) }
    })
    .await;
    let copy = get(&world.hub, "WorkloadDeployment", hub, "web-p-dfw").await.unwrap();
    let expected: Vec<String> = serde_json::from_str(&copy.annotations()[EXPECTED]).unwrap();
    assert!(expected.contains(&"Secret/db".to_owned()), "{expected:?}");
}

/// A Secret shared with another city was recreated while a ConfigMap of one deployment was missing. The cell of that deployment
/// lost the Secret until the ConfigMap returned, and no condition reported it.
#[test]
fn recreated_secret_reaches_running_deployments_while_another_source_is_missing() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("kept").await;
        let immutable = |value: &str| {
            let mut object = secret(&ns, "db", value);
            object["immutable"] = json!(true);
            object
        };
        apply(&world.project, config_map(&ns, "cfg", "1")).await;
        apply(&world.project, immutable("old")).await;
        let db = json!({ "secretRef": { "name": "db" } });
        let both = using(&json!([{ "configMapRef": { "name": "cfg" } }, db]));
        apply(&world.project, with(&both, &ns, "web", &["dfw"], 1)).await;
        apply(&world.project, with(&using(&json!([db])), &ns, "api", &["ord"], 1)).await;
        ready(world, &ns, "web", 1).await;
        ready(world, &ns, "api", 1).await;
        let users = ["api-p-ord", "web-p-dfw"];
        let before = named(world, &hub, &ns, &users).await;

        delete(&world.project, "ConfigMap", &ns, "cfg").await;
        source_is_missed(world, &ns, "web-p-dfw").await;
        delete(&world.project, "Secret", &ns, "db").await;
        apply(&world.project, immutable("new")).await;
        in_dfw(world, &hub, "bmV3").await;
        let renewed = named(world, &hub, &ns, &users).await;
        assert_ne!(renewed, before, "nothing but a new one can have the new content");

        // The list is overwritten and removed. It is restored, and the copies stay the same.
        let running = get(&world.dfw, "Secret", &hub, "db").await.unwrap().uid();
        for list in [json!(format!("[\"{ns}/ghost\"]")), json!("not a list"), Value::Null] {
            let edit = json!({ "metadata": { "annotations": { LIST: list } } });
            merge(&world.hub, "Secret", &hub, "db", edit).await;
            assert_eq!(named(world, &hub, &ns, &users).await, renewed, "{list}");
        }
        in_dfw(world, &hub, "bmV3").await;
        assert_eq!(get(&world.dfw, "Secret", &hub, "db").await.unwrap().uid(), running);

        for name in ["web", "api"] {
            delete(&world.project, "Workload", &ns, name).await;
        }
        eventually("nothing of it is left", || async {
            let left = copies(&world.dfw, &hub).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    });
}
