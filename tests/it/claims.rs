//! The migration from claims to dependencies: residue of claims, and foreign policies that block it.

use crate::{
    common::{
        RUNTIME, World, apply,
        beds::{Wish, alone},
        delete, eventually,
        example_app::{Place, SWEEPS, secret, using},
        get, list, merge, ready, rights, skip,
    },
    migration::{left_dfw, migrated, of_go, status, write_as_the_go_operator},
};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

#[test]
fn claim_residue_is_removed_until_it_stays_removed() {
    RUNTIME.block_on(async {
        let config = format!("{SWEEPS}timing:\n  deletionPatienceSeconds: 1\n");
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
        write_as_the_go_operator(&world, &places).await;
        let [late, midway, by_hand] = &places[..] else { unreachable!() };
        // Karmada writes the state that it read before the operator's write (fact 58).
        let karmada = world.bed.stand_in().unwrap();
        karmada.write_late(&late.hub, "db-secret");
        eventually("the scheduler has read it", || async {
            if karmada.late_write_is_read(&late.hub, "db-secret") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        // The last deployment of one city leaves before Karmada delivers anything as a dependency.
        karmada.propagate_deps(false);
        apply(&world.project, using(&midway.ns, &["ord"])).await;
        world.restart_manager(&[]).await;
        eventually("the policy of the removed city is deleted", || async {
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
        // An edit long after the migration, with no claim, no policy and no action of Karmada.
        eventually("all is by need", || migrated(&world, &by_hand.hub)).await;
        let placement = json!({ "clusterAffinity": { "clusterNames": ["cell-dfw"] } });
        let left = json!({
            "metadata": { "annotations": { "policy.karmada.io/applied-placement": placement.to_string() } },
            "spec": { "clusters": [{ "name": "cell-dfw" }], "placement": placement },
        });
        merge(&world.hub, "ResourceBinding", &by_hand.hub, "db-secret", left).await;
        eventually("the residue is removed", || migrated(&world, &by_hand.hub)).await;
        let test = "claim_residue_is_removed_until_it_stays_removed";
        rights::shown(&world, world.since(), test);
        // The data is deleted with its last user.
        for place in [late, by_hand] {
            let in_ord = get(&world.ord, "Secret", &place.hub, "db").await.and_then(|s| s.uid());
            apply(&world.project, using(&place.ns, &["ord"])).await;
            eventually("its data leaves the city", || left_dfw(&world, &place.hub, in_ord.as_deref())).await;
        }
    });
}

#[test]
fn migration_without_an_answer_from_karmada_waits_and_reports() {
    RUNTIME.block_on(async {
        let mut world =
            alone(Wish { management: "timing:\n  migrationStepSeconds: 2\n".into(), ..Wish::default() }).await;
        if world.bed.stand_in().is_none() {
            skip!("it moves policies as the Go operator wrote them; on real Karmada that is done by hand");
        }
        let (ns, hub) = world.namespace("deaf").await;
        world.operators[0].process.kill();
        write_as_the_go_operator(&world, &[Place { ns, hub: hub.clone() }]).await;
        // A foreign policy has claimed the deployments, and does not propagate dependencies.
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
        eventually("the missing probe is reported", || async {
            let events = list(&world.hub, "Event", &hub).await;
            let waits = events.iter().filter(|event| event.data["reason"] == "MigrationWaits").count();
            if waits == 1 { Ok(()) } else { Err(waits.to_string()) }
        })
        .await;
        assert!(status(&world).contains("cannot be asked"), "{}", status(&world));
        for city in ["dfw", "ord"] {
            let policy = get(&world.hub, "PropagationPolicy", &hub, &format!("city-{city}")).await.unwrap();
            assert_ne!(policy.data["spec"]["propagateDeps"], true, "no policy is changed for a probe");
        }
        // When the operator's policies claim the deployments again, the migration continues by itself.
        delete(&world.hub, "PropagationPolicy", &hub, "theirs").await;
        eventually("all is by need", || migrated(&world, &hub)).await;
        assert!(status(&world).contains("2 of 2 are done\nKarmada propagates dependencies"), "{}", status(&world));
    });
}

/// Returns a foreign policy that sends an object of a namespace to dfw.
fn theirs(hub: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": hub, "name": "theirs" },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "v1", "kind": kind, "namespace": hub, "name": name }],
            "placement": { "clusterAffinity": { "clusterNames": ["cell-dfw"] } },
        },
    })
}

/// Writes the result of such a policy's claim back onto the binding of the Secret. Karmada may do that if it read the binding
/// before the policy was deleted (fact 58).
async fn claimed_late(world: &World, hub: &str, marks: &Value) {
    let placement = json!({ "clusterAffinity": { "clusterNames": ["cell-dfw"] } });
    let mut marks = marks.clone();
    marks["annotations"]["policy.karmada.io/applied-placement"] = json!(placement.to_string());
    let late = json!({
        "metadata": marks, "spec": { "clusters": [{ "name": "cell-dfw" }], "placement": placement },
    });
    merge(&world.hub, "ResourceBinding", hub, "db-secret", late).await;
}

/// Fails unless everything is delivered as a dependency, and neither the Secret nor its binding has a claim.
async fn unclaimed(world: &World, hub: &str) -> Result<(), String> {
    migrated(world, hub).await?;
    for (kind, name) in [("Secret", "db"), ("ResourceBinding", "db-secret")] {
        let object = get(&world.hub, kind, hub, name).await.ok_or("gone")?;
        let claim = |key: &&String| key.contains("propagationpolicy.karmada.io/");
        if let Some(mark) = object.labels().keys().chain(object.annotations().keys()).find(claim) {
            return Err(format!("{kind} {name}: {mark}"));
        }
    }
    Ok(())
}

#[test]
fn claim_residue_of_a_foreign_policy_is_removed_after_its_deletion() {
    RUNTIME.block_on(async {
        let world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let mut places = Vec::new();
        for name in ["gone", "wide", "anew", "lives"] {
            let (ns, hub) = world.namespace(name).await;
            apply(&world.project, secret(&ns)).await;
            apply(&world.project, using(&ns, &["dfw", "ord"])).await;
            places.push(Place { ns, hub });
        }
        for Place { ns, hub } in &places {
            ready(&world, ns, "web", 2).await;
            eventually("all is by need", || unclaimed(&world, hub)).await;
        }
        let [gone, wide, anew, lives] = &places[..] else { unreachable!() };
        // One foreign policy claims the object. Another one exists under the name of an earlier policy that did.
        apply(&world.hub, theirs(&lives.hub, "Secret", "db")).await;
        apply(&world.hub, theirs(&anew.hub, "ConfigMap", "another")).await;
        let claimed = || async {
            let binding = get(&world.hub, "ResourceBinding", &lives.hub, "db-secret").await.ok_or("no binding")?;
            let by = binding.annotations().get("propagationpolicy.karmada.io/name").cloned();
            let is_theirs = by.as_deref() == Some("theirs");
            let clusters = &binding.data["spec"]["clusters"];
            if is_theirs && clusters[0]["name"] == "cell-dfw" { Ok(()) } else { Err(format!("{by:?} {clusters}")) }
        };
        eventually("theirs has claimed it", claimed).await;
        eventually("theirs has its id", || async {
            let policy = get(&world.hub, "PropagationPolicy", &anew.hub, "theirs").await.ok_or("gone")?;
            let id = policy.labels().get("propagationpolicy.karmada.io/permanent-id");
            id.map(|_| ()).ok_or_else(|| "not yet".to_owned())
        })
        .await;
        let claim = |hub: &str| {
            json!({
                "labels": { "propagationpolicy.karmada.io/permanent-id": "an-earlier-one" },
                "annotations": {
                    "propagationpolicy.karmada.io/namespace": hub, "propagationpolicy.karmada.io/name": "theirs",
                },
            })
        };
        for place in [gone, anew] {
            claimed_late(&world, &place.hub, &claim(&place.hub)).await;
        }
        // The Secret has the claim too. Karmada keeps the claim of an existing policy, even with another id.
        merge(&world.hub, "Secret", &anew.hub, "db", json!({ "metadata": claim(&anew.hub) })).await;
        let of_all = json!({
            "labels": { "clusterpropagationpolicy.karmada.io/permanent-id": "an-earlier-one" },
            "annotations": { "clusterpropagationpolicy.karmada.io/name": "theirs" },
        });
        claimed_late(&world, &wide.hub, &of_all).await;
        for place in [gone, wide, anew] {
            eventually("the residue is removed", || unclaimed(&world, &place.hub)).await;
        }
        claimed().await.expect("a city with a policy keeps its claims");
        let test = "claim_residue_of_a_foreign_policy_is_removed_after_its_deletion";
        rights::shown(&world, world.since(), test);
        delete(&world.hub, "PropagationPolicy", &lives.hub, "theirs").await;
        eventually("it is healed with its policy", || unclaimed(&world, &lives.hub)).await;
        // The data is deleted with its last user.
        for place in &places {
            let in_ord = get(&world.ord, "Secret", &place.hub, "db").await.and_then(|s| s.uid());
            apply(&world.project, using(&place.ns, &["ord"])).await;
            eventually("its data leaves the city", || left_dfw(&world, &place.hub, in_ord.as_deref())).await;
        }
    });
}
