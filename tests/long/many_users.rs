//! A Secret with more users than its companion lists.

use kube::ResourceExt;
use serde_json::Value;

use crate::common::{
    RUNTIME, World, apply,
    beds::shared,
    condition, delete, deployment, eventually,
    example_app::{secret, using},
    get,
};

/// Returns the companion's list of users, and its version.
async fn listed(world: &World, hub: &str) -> Result<(Value, String), String> {
    let companion = get(&world.hub, "Secret", hub, "db").await.ok_or("the companion does not exist")?;
    let text = &companion.annotations()["compute.datumapis.com/referenced-by"];
    Ok((serde_json::from_str(text).map_err(|e| e.to_string())?, companion.resource_version().unwrap_or_default()))
}

async fn has_its_data(world: &World, ns: &str, hub: &str, name: &str) {
    eventually(&format!("{name} has its data"), || async {
        let wd = get(&world.project, "WorkloadDeployment", ns, name).await.ok_or("no deployment")?;
        let on_cell = get(&world.dfw, "WorkloadDeployment", hub, name).await.ok_or("not on the cell")?;
        let said = condition(&wd, "ReferencedDataReady");
        let promised = on_cell.annotations().get("compute.datumapis.com/expected-referenced-data").cloned();
        let done = said["status"] == "True" && promised.as_deref() == Some(r#"["Secret/db"]"#);
        if done { Ok(()) } else { Err(format!("{said} {promised:?}")) }
    })
    .await;
}

#[test]
fn companion_with_too_many_users_is_not_rewritten_and_is_deleted_with_the_last() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("crowd").await;
        let template = using(&ns, &["dfw"])["spec"]["template"].clone();
        let name = |n: usize| format!("user-{n:02}");
        let user = |n: usize| {
            let mut wd = deployment(&ns, &name(n), "dfw");
            wd["spec"]["template"] = template.clone();
            wd["spec"]["scaleSettings"]["minReplicas"] = 0.into();
            wd
        };
        apply(&world.project, secret(&ns)).await;
        for n in 0..33 {
            apply(&world.project, user(n)).await;
        }
        for n in 0..33 {
            has_its_data(world, &ns, &hub, &name(n)).await;
        }
        let (users, version) = listed(world, &hub).await.unwrap();
        assert_eq!(users, serde_json::json!(["more than 32"]));
        for n in 33..38 {
            apply(&world.project, user(n)).await;
            has_its_data(world, &ns, &hub, &name(n)).await;
        }
        assert_eq!(listed(world, &hub).await.unwrap(), (users, version), "five more, and nothing is written");
        for n in 1..38 {
            delete(&world.project, "WorkloadDeployment", &ns, &name(n)).await;
        }
        eventually("the one that is left is named", || async {
            let (users, _) = listed(world, &hub).await?;
            if users == serde_json::json!([format!("{ns}/user-00")]) { Ok(()) } else { Err(users.to_string()) }
        })
        .await;
        has_its_data(world, &ns, &hub, &name(0)).await;
        assert!(get(&world.dfw, "Secret", &hub, "db").await.is_some());
        delete(&world.project, "WorkloadDeployment", &ns, &name(0)).await;
        eventually("nothing is left", || async {
            world.is_clean(&ns, &hub).await?;
            match get(&world.hub, "Secret", &hub, "db").await {
                Some(_) => Err("the companion is there".to_owned()),
                None => Ok(()),
            }
        })
        .await;
    });
}
