//! On the way from claims to dependencies: what the claims leave behind, and what other policies hold up.

use crate::{
    common::{
        RUNTIME, apply,
        beds::{Wish, alone},
        delete, eventually,
        example_app::{Place, SWEEPS, using},
        get, list, merge, rights, skip,
    },
    migration::{as_go_left_it, left_dfw, migrated, of_go, status},
};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::json;

#[test]
fn what_claims_leave_is_healed_until_it_stays_healed_whoever_left_it_and_whenever() {
    RUNTIME.block_on(async {
        let config = format!("{SWEEPS}timing:\n  policyClaimReleaseSeconds: 1\n");
        let mut world = alone(Wish { management: config, ..Wish::default() }).await;
        if world.bed.stand_in().is_none() {
            skip!("it moves policies as the Go operator wrote them; on real Karmada that is done by hand");
        }
        let mut places = Vec::new();
        for name in ["written-late", "left-midway", "by-hand"] {
            let (ns, hub) = world.namespace(name).await;
            places.push(Place { ns, hub });
        }
        world.operators[0].process.kill();
        as_go_left_it(&world, &places).await;
        let [late, midway, by_hand] = &places[..] else { unreachable!() };
        // Karmada writes what it read before our write (fact 58).
        let karmada = world.bed.stand_in().unwrap();
        karmada.write_late(&late.hub, "db-secret");
        eventually("the scheduler has read it", || async {
            if karmada.late_write_is_read(&late.hub, "db-secret") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        // One city's last deployment leaves before anything can be brought by need.
        karmada.propagate_deps(false);
        apply(&world.project, using(&midway.ns, &["ord"])).await;
        world.restart_manager(&[]).await;
        eventually("the policy of the city that was left is gone", || async {
            match get(&world.hub, "PropagationPolicy", &midway.hub, "city-dfw").await {
                Some(policy) => Err(policy.data["spec"].to_string()),
                None => Ok(()),
            }
        })
        .await;
        let karmada = world.bed.stand_in().unwrap();
        karmada.propagate_deps(true);
        eventually("its data leaves the city", || left_dfw(&world, &midway.hub, None)).await;
        eventually("Karmada has written late", || async {
            if karmada.late_write_is_read(&late.hub, "db-secret") { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
        eventually("and it is healed again", || migrated(&world, &late.hub)).await;
        // Somebody else's hands, long after the migration: no claim, no policy behind it, and nothing that Karmada does.
        eventually("all is by need", || migrated(&world, &by_hand.hub)).await;
        let placement = json!({ "clusterAffinity": { "clusterNames": ["cell-dfw"] } });
        let left = json!({
            "metadata": { "annotations": { "policy.karmada.io/applied-placement": placement.to_string() } },
            "spec": { "clusters": [{ "name": "cell-dfw" }], "placement": placement },
        });
        merge(&world.hub, "ResourceBinding", &by_hand.hub, "db-secret", left).await;
        eventually("what was left is undone", || migrated(&world, &by_hand.hub)).await;
        let test = "what_claims_leave_is_healed_until_it_stays_healed_whoever_left_it_and_whenever";
        rights::shown(&world, world.since(), test);
        // Nothing of it stays when the last user leaves.
        for place in [late, by_hand] {
            let in_ord = get(&world.ord, "Secret", &place.hub, "db").await.and_then(|s| s.uid());
            apply(&world.project, using(&place.ns, &["ord"])).await;
            eventually("its data leaves the city", || left_dfw(&world, &place.hub, in_ord.as_deref())).await;
        }
    });
}

#[test]
fn where_karmada_cannot_answer_nobody_asks_and_it_is_told() {
    RUNTIME.block_on(async {
        let mut world =
            alone(Wish { management: "timing:\n  probeTimeoutSeconds: 2\n".into(), ..Wish::default() }).await;
        if world.bed.stand_in().is_none() {
            skip!("it moves policies as the Go operator wrote them; on real Karmada that is done by hand");
        }
        let (ns, hub) = world.namespace("deaf").await;
        world.operators[0].process.kill();
        as_go_left_it(&world, &[Place { ns, hub: hub.clone() }]).await;
        // Somebody's policy has the deployments, and asks for nothing.
        for city in ["dfw", "ord"] {
            delete(&world.hub, "PropagationPolicy", &hub, &format!("city-{city}")).await;
        }
        let selector = json!({ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment" });
        let theirs = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "namespace": hub, "name": "theirs" },
            "spec": {
                "resourceSelectors": [selector],
                "placement": { "clusterAffinity": { "clusterNames": ["cell-dfw"] } },
            },
        });
        apply(&world.hub, theirs).await;
        eventually("theirs has claimed them", || async {
            let bindings = list(&world.hub, "ResourceBinding", &hub).await;
            let of = |binding: &&DynamicObject| {
                binding.annotations().get("propagationpolicy.karmada.io/name").is_some_and(|name| name == "theirs")
            };
            let claimed = bindings.iter().filter(of).count();
            if claimed == 2 { Ok(()) } else { Err(claimed.to_string()) }
        })
        .await;
        for city in ["dfw", "ord"] {
            apply(&world.hub, of_go(&hub, city)).await;
        }
        world.restart_manager(&[]).await;
        eventually("it is told that nobody can be asked", || async {
            let events = list(&world.hub, "Event", &hub).await;
            let waits = events.iter().filter(|event| event.data["reason"] == "MigrationWaits").count();
            if waits == 1 { Ok(()) } else { Err(waits.to_string()) }
        })
        .await;
        assert!(status(&world).contains("nobody can ask"), "{}", status(&world));
        for city in ["dfw", "ord"] {
            let policy = get(&world.hub, "PropagationPolicy", &hub, &format!("city-{city}")).await.unwrap();
            assert_ne!(policy.data["spec"]["propagateDeps"], true, "nobody asks in vain");
        }
        // Once its own policies have them, it goes on by itself.
        delete(&world.hub, "PropagationPolicy", &hub, "theirs").await;
        eventually("all is by need", || migrated(&world, &hub)).await;
        assert!(status(&world).contains("2 of 2 are done\nKarmada brings dependencies"), "{}", status(&world));
    });
}
