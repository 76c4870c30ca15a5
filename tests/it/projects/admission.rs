//! The admission webhooks as a project's own API server asks them, under the configuration of `config/`.

use tokio::time::Instant;

use super::*;
use crate::common::{
    admission::{NS, Walls, create, patch, template_of, workload_of},
    rights,
};

const POWER: &str = "compute.datumapis.com/expected-referenced-data";

#[test]
fn nobody_reads_through_a_workload_or_steers_copies_and_nobody_is_locked_out() {
    RUNTIME.block_on(async {
        // Made before there were webhooks, by the rules of that time: three of today's are broken.
        let mut old = workload_of("none-of-hers", &["dfw", "DFW", "gone"]);
        old["metadata"] = json!({ "name": "old", "namespace": NS });
        old["spec"]["template"]["spec"]["networkInterfaces"][0]["network"]["namespace"] = json!("other");
        let world = world().await;
        let alpha = client(&world, "alpha").await;
        world.namespace_in(&alpha, NS).await;
        apply(&alpha, old).await;

        let walls = Walls::raise(world).await;
        let (with, without) = (walls.ada(Some("alpha")).await, walls.ada(None).await);
        let made = create(&with, workload_of("tls", &["dfw"])).await.unwrap();
        let refused = create(&without, workload_of("tls", &["dfw"])).await.unwrap_err();
        assert!(refused.contains("iam.miloapis.com/parent-name"), "{refused}");
        let refused = create(&with, workload_of("db", &["dfw"])).await.unwrap_err();
        let field = "spec.template.spec.runtime.sandbox.containers[0].envFrom[0].secretRef.name: Forbidden: permission to get Secret \"db\" denied";
        assert!(refused.contains(field), "{refused}");

        // Scaled, relabelled and deleted, although it would be refused as a new one.
        let scaled = json!({ "spec": { "placements": [
            { "name": "p", "cityCodes": ["dfw", "DFW", "gone"], "scaleSettings": { "minReplicas": 3 } },
        ] } });
        patch(&with, "Workload", "old", scaled).await.unwrap();
        patch(&without, "Workload", "old", json!({ "metadata": { "labels": { "a": "b" } } })).await.unwrap();
        let worse = json!({ "spec": { "template": template_of("db") } });
        assert!(patch(&with, "Workload", "old", worse).await.is_err());
        delete(&with, "Workload", NS, "old").await;

        // The operator has made its deployment through the same webhooks; the tenant may not say what is copied.
        let deployment = format!("{made}-p-dfw");
        eventually("the operator's own writes pass", || async {
            let wd = get(&walls.alpha, "WorkloadDeployment", NS, &deployment).await.ok_or("no deployment")?;
            if wd.annotations().contains_key("compute.datumapis.com/federation-namespace") { Ok(()) } else { Err("not yet".into()) }
        })
        .await;
        let spoofed = json!({ "metadata": { "annotations": { POWER: "[\"Secret/db\"]" } } });
        let refused = patch(&with, "WorkloadDeployment", &deployment, spoofed).await.unwrap_err();
        assert!(refused.contains(&format!("metadata.annotations[{POWER}]: Forbidden: \"ada\"")), "{refused}");
        let elsewhere = json!({ "metadata": { "annotations": { "compute.datumapis.com/federation-namespace": "ns-other" } } });
        assert!(patch(&with, "WorkloadDeployment", &deployment, elsewhere).await.is_err());
        patch(&with, "WorkloadDeployment", &deployment, json!({ "metadata": { "annotations": { "note": "x" } } })).await.unwrap();
        generated::judged_alike(&walls.tenant("bob", Some("alpha")).await, &walls.alpha, NS).await;
        let test = "nobody_reads_through_a_workload_or_steers_copies_and_nobody_is_locked_out";
        rights::shown(&walls.world, walls.world.since(), test);
        walls.fell().await;
    });
}

#[test]
fn neither_a_hub_that_is_away_nor_a_new_certificate_refuses_anybody() {
    RUNTIME.block_on(async {
        let mut walls = Walls::raise(world().await).await;
        let ada = walls.ada(Some("alpha")).await;
        // Another project's outage is nobody else's.
        walls.world.bed.milo.as_ref().unwrap().set("beta", Reach::Silent);
        walls.world.bed.hub.stop_api_server();
        let began = Instant::now();
        let (mut made, mut turns) = (0, 0);
        while made < 60 {
            if made % 20 == 10 && turns == made / 20 {
                // Both are signed for this machine; which one is served cannot be told from the outside, and need not be.
                turns += 1;
                walls.webhooks.serve_under(if turns % 2 == 1 { "front-proxy" } else { "server" }).unwrap();
            }
            let name = create(&ada, workload_of("tls", &["dfw"])).await.unwrap();
            let scaled = json!({ "spec": { "placements": [
                { "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 2 } },
            ] } });
            patch(&ada, "Workload", &name, scaled).await.unwrap();
            made += 1;
        }
        assert!(began.elapsed() < promised(Duration::from_mins(1)), "{:?}", began.elapsed());
        let (code, body) = walls.world.operators[0].probe("/readyz/admission").await.unwrap();
        assert_eq!(code, 200, "{body}");
        walls.world.bed.hub.start_api_server().unwrap();
        walls.world.bed.hub.wait_ready().await.unwrap();
        walls.world.bed.milo.as_ref().unwrap().set("beta", Reach::Served);
        walls.fell().await;
    });
}
