//! The migration from claims to dependencies and back. It never removes data in use, even if the manager dies at any write.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    binary, condition, delete, eventually,
    example_app::{Cut, Place, SWEEPS, budgets, secret, takes, using},
    get, list, merge, never_within, ready, skip,
};
use futures::StreamExt;
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use testbed::operator::Operator;

/// Returns the city's policy as the Go operator writes it, which claims companions for its city.
pub fn of_go(hub: &str, city: &str) -> Value {
    let label = json!({ "matchLabels": { "topology.datum.net/city-code": city } });
    let companions = json!({ "matchLabels": { "compute.datumapis.com/referenced-data": "true" } });
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": hub, "name": format!("city-{city}") },
        "spec": {
            "resourceSelectors": [
                { "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "namespace": hub, "labelSelector": label },
                { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "labelSelector": companions },
                { "apiVersion": "v1", "kind": "Secret", "namespace": hub, "labelSelector": companions },
            ],
            "placement": { "clusterAffinity": { "labelSelector": label } },
        },
    })
}

/// Changes the hub to the state that the Go operator leaves. One city has the Secret through its policy's claim. The other waits
/// forever (fact 21).
pub async fn write_as_the_go_operator(world: &World, places: &[Place]) {
    for Place { ns, .. } in places {
        apply(&world.project, secret(ns)).await;
        apply(&world.project, using(ns, &["dfw", "ord"])).await;
    }
    let mut first = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
    first.wait_ready().await.unwrap();
    for Place { ns, .. } in places {
        ready(world, ns, "web", 2).await;
    }
    first.process.kill();
    for Place { hub, .. } in places {
        for city in ["dfw", "ord"] {
            delete(&world.hub, "PropagationPolicy", hub, &format!("city-{city}")).await;
        }
        eventually("the policies are gone", || async {
            let policies = list(&world.hub, "PropagationPolicy", hub).await.len();
            if policies == 0 { Ok(()) } else { Err(policies.to_string()) }
        })
        .await;
        apply(&world.hub, of_go(hub, "dfw")).await;
        eventually("the first policy has claimed it", || async {
            let companion = get(&world.hub, "Secret", hub, "db").await.ok_or("gone")?;
            let by = companion.annotations().get("propagationpolicy.karmada.io/name").cloned();
            if by.as_deref() == Some("city-dfw") { Ok(()) } else { Err(format!("{by:?}")) }
        })
        .await;
        apply(&world.hub, of_go(hub, "ord")).await;
        eventually("dfw has it by claim, and ord has lost it", || async {
            let binding = get(&world.hub, "ResourceBinding", hub, "db-secret").await.ok_or("no binding")?;
            let spec = &binding.data["spec"];
            let by_need = spec["requiredBy"].as_array().is_some_and(|list| !list.is_empty());
            let ord = get(&world.ord, "Secret", hub, "db").await;
            let dfw = get(&world.dfw, "Secret", hub, "db").await;
            let claimed = spec["clusters"] == json!([{ "name": "cell-dfw" }]);
            if claimed && !by_need && ord.is_none() && dfw.is_some() { Ok(()) } else { Err(spec.to_string()) }
        })
        .await;
    }
}

/// All states of a copy in use, by uid, and the task that records them.
pub type Watched = (Arc<Mutex<BTreeMap<String, String>>>, tokio::task::JoinHandle<()>);

/// Watches the copy in use of each of these places in dfw.
pub async fn watch_copies(world: &World, places: &[Place]) -> Vec<Watched> {
    let watched: Vec<Watched> = places.iter().map(|place| watch_copy(&world.dfw, &place.hub)).collect();
    for (seen, _) in &watched {
        eventually("the eye is open", || async {
            if seen.lock().unwrap().is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
    }
    watched
}

/// Records every version of the copy in use, and its absence, from a watch on the server.
pub fn watch_copy(cell: &Client, hub: &str) -> Watched {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let (notes, copies) = (seen.clone(), api(cell, "Secret", hub));
    let note = move |copy: Option<&DynamicObject>| {
        let (uid, data) = match copy {
            Some(copy) => (copy.uid().unwrap(), copy.data["data"].to_string()),
            None => ("none".to_owned(), String::new()),
        };
        notes.lock().unwrap().insert(uid, data);
    };
    let task = tokio::spawn(async move {
        loop {
            let list = copies.list(&ListParams::default().fields("metadata.name=db")).await.unwrap();
            note(list.items.first());
            let from = list.metadata.resource_version.unwrap();
            let watched = WatchParams::default().fields("metadata.name=db").timeout(200);
            let mut changes = copies.watch(&watched, &from).await.unwrap().boxed();
            while let Some(Ok(change)) = changes.next().await {
                match change {
                    WatchEvent::Added(copy) | WatchEvent::Modified(copy) => note(Some(&copy)),
                    WatchEvent::Deleted(_) => note(None),
                    _ => {}
                }
            }
        }
    });
    (seen, task)
}

/// Fails unless both cities have the Secret only as a dependency, as facts 15 and 27 require.
pub async fn migrated(world: &World, hub: &str) -> Result<(), String> {
    for city in ["dfw", "ord"] {
        let policy = get(&world.hub, "PropagationPolicy", hub, &format!("city-{city}")).await.ok_or("no policy")?;
        let spec = &policy.data["spec"];
        let selectors = spec["resourceSelectors"].as_array().map_or(0, Vec::len);
        if selectors != 1 || spec["propagateDeps"] != true {
            return Err(spec.to_string());
        }
    }
    let companion = get(&world.hub, "Secret", hub, "db").await.ok_or("no companion")?;
    let binding = get(&world.hub, "ResourceBinding", hub, "db-secret").await.ok_or("no binding")?;
    let claim = "propagationpolicy.karmada.io/permanent-id";
    let spec = &binding.data["spec"];
    let free = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let clean = !companion.labels().contains_key(claim)
        && !binding.annotations().contains_key("propagationpolicy.karmada.io/name")
        && !binding.annotations().contains_key("policy.karmada.io/applied-placement")
        && free(&spec["clusters"])
        && spec["placement"].is_null()
        && spec["requiredBy"].as_array().is_some_and(|list| list.len() == 2);
    let there =
        get(&world.dfw, "Secret", hub, "db").await.is_some() && get(&world.ord, "Secret", hub, "db").await.is_some();
    if clean && there { Ok(()) } else { Err(format!("{spec} {:?}", companion.annotations())) }
}

/// Fails unless the Secret has left dfw with its last user, the city's policy is deleted, and the copy in ord is unchanged.
pub async fn left_dfw(world: &World, hub: &str, in_ord: Option<&str>) -> Result<(), String> {
    let there =
        |client: Client, kind: &'static str, name: &'static str| async move { get(&client, kind, hub, name).await };
    let ord = there(world.ord.clone(), "Secret", "db").await.ok_or("ord has lost it")?;
    if in_ord.is_some() && ord.uid().as_deref() != in_ord {
        return Err("ord has another".into());
    }
    if there(world.dfw.clone(), "Secret", "db").await.is_some() {
        let binding = there(world.hub.clone(), "ResourceBinding", "db-secret").await.ok_or("no binding")?;
        return Err(format!("dfw still has it: {}", binding.data["spec"]));
    }
    match there(world.hub.clone(), "PropagationPolicy", "city-dfw").await {
        Some(policy) => Err(format!("city-dfw: {}", policy.data["spec"])),
        None => Ok(()),
    }
}

/// More writes than the migration of one application takes. With a fast stand-in it takes 15. A slow machine also reports what
/// exceeds its grace period (27 at most so far). Real Karmada writes removed marks back.
const CUTS: u64 = 40;

#[test]
fn migration_to_dependencies_cut_at_any_write_removes_no_copy() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let cut = Cut::new(&world).await;
        world.operators[0].process.kill();
        let (budgets, mut places) = (budgets(CUTS), Vec::new());
        for _ in &budgets {
            let (ns, hub) = world.namespace("migrate").await;
            places.push(Place { ns, hub });
        }
        write_as_the_go_operator(&world, &places).await;
        let watched = watch_copies(&world, &places).await;
        let places = cut.budgets(budgets, places);
        let mut dying = cut.start(&world).await;
        let is_done = |place: Place| {
            let world = &world;
            async move { migrated(world, &place.hub).await }
        };
        let writes = cut.dead_or_done(&places, is_done).await;
        takes("a migration", &writes, 5..CUTS);
        dying.process.kill();
        world.restart_manager(&[]).await;
        for ((writes, place), (seen, watching)) in places.iter().zip(watched) {
            eventually(&format!("done after a death at write {writes}"), || migrated(&world, &place.hub)).await;
            watching.abort();
            let seen = seen.lock().unwrap().clone();
            assert_eq!(seen.len(), 1, "cut after write {writes}, the copy in use is the same throughout: {seen:?}");
        }
        // Real Karmada may write removed marks back later.
        let settled = Duration::from_secs(if world.bed.stand_in().is_some() { 2 } else { 60 });
        never_within(settled, "the residue of a claim returns", || async {
            for (writes, place) in &places {
                if let Err(why) = migrated(&world, &place.hub).await {
                    return Some(format!("cut after write {writes}: {why}"));
                }
            }
            None
        })
        .await;
        for (writes, place) in &places {
            let in_ord = get(&world.ord, "Secret", &place.hub, "db").await.and_then(|secret| secret.uid());
            apply(&world.project, using(&place.ns, &["ord"])).await;
            let left = || left_dfw(&world, &place.hub, in_ord.as_deref());
            eventually(&format!("cut after write {writes}, its data leaves the city with its last user"), left).await;
        }
        if world.bed.stand_in().is_none() {
            return; // real Karmada deletes the copy in three of four runs, so the result varies
        }
        world.operators[0].process.kill();
        let (ns, hub) = world.namespace("naive").await;
        // The same watch detects the naive migration, which does everything in one step (fact 25).
        let naive = [Place { ns, hub: hub.clone() }];
        write_as_the_go_operator(&world, &naive).await;
        let (seen, watching) = watch_copies(&world, &naive).await.remove(0);
        for city in ["dfw", "ord"] {
            let mut policy = of_go(&hub, city);
            policy["spec"]["propagateDeps"] = json!(true);
            policy["spec"]["resourceSelectors"].as_array_mut().unwrap().truncate(1);
            apply(&world.hub, policy).await;
        }
        eventually("the copy was taken away", || async {
            let seen = seen.lock().unwrap().clone();
            if seen.len() > 1 { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
        watching.abort();
    });
}

/// Returns the output of `compute-operator migration status`.
pub fn status(world: &World) -> String {
    let hub = world.bed.hub.kubeconfig(&testbed::pki::User::Operator);
    let mut command = std::process::Command::new(binary());
    let out = command.args(["migration", "status", "--federation-kubeconfig"]).arg(hub).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn rollback_to_claims_warns_and_migration_forward_recovers() {
    RUNTIME.block_on(async {
        let mut world =
            alone(Wish { management: "timing:\n  migrationStepSeconds: 10\n".into(), ..Wish::default() }).await;
        if world.bed.stand_in().is_none() {
            skip!("it moves policies as the Go operator wrote them; on real Karmada that is done by hand");
        }
        let (ns, hub) = world.namespace("rollback").await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw", "ord"])).await;
        ready(&world, &ns, "web", 2).await;
        assert!(status(&world).contains("2 of 2 are done"), "{}", status(&world));
        let uid_on =
            |cell: Client, hub: String| async move { get(&cell, "Secret", &hub, "db").await.and_then(|s| s.uid()) };
        let copies = [uid_on(world.dfw.clone(), hub.clone()).await, uid_on(world.ord.clone(), hub.clone()).await];
        world.restart_manager(&["--referenced-data-propagation=selectors"]).await;
        let warned = eventually("the coming loss is reported", || async {
            let events = list(&world.hub, "Event", &hub).await;
            let warning = events.iter().find(|event| event.data["reason"] == "DataWillBeLost");
            warning
                .map(|event| event.data["note"].as_str().unwrap().to_owned())
                .ok_or(format!("{} events", events.len()))
        })
        .await;
        // Either policy may have claimed it first.
        let ord_loses = warned.contains("ord loses Secret/db, which city-dfw keeps");
        assert!(ord_loses || warned.contains("dfw loses Secret/db, which city-ord keeps"), "{warned}");
        let (loser, city, winner, kept) = if ord_loses {
            (world.ord.clone(), "ord", world.dfw.clone(), &copies[0])
        } else {
            (world.dfw.clone(), "dfw", world.ord.clone(), &copies[1])
        };
        assert!(get(&loser, "Secret", &hub, "db").await.is_some(), "not before the warning has stood");
        eventually("the other city has lost it", || async {
            if get(&loser, "Secret", &hub, "db").await.is_none() { Ok(()) } else { Err(status(&world)) }
        })
        .await;
        eventually("its deployment reports the reason", || async {
            let name = format!("web-p-{city}");
            let wd = get(&world.project, "WorkloadDeployment", &ns, &name).await.ok_or("gone")?;
            let condition = condition(&wd, "Federated");
            if condition["reason"] == "ClaimedByAnotherPolicy" { Ok(()) } else { Err(condition.to_string()) }
        })
        .await;
        assert!(status(&world).contains("0 of 2 are done"), "{}", status(&world));
        world.operators[0].process.kill();
        world.restart_manager(&[]).await;
        eventually("all is by need again", || migrated(&world, &hub)).await;
        assert_eq!(&uid_on(winner, hub.clone()).await, kept, "the winner's copy never moved");
        assert!(status(&world).contains("2 of 2 are done"), "{}", status(&world));
        // The migration stops before the residue is removed, and Karmada sends no event. The policy's own change must be enough.
        world.operators[0].process.kill();
        world.bed.stop_stand_in();
        leave_residue(&world, &hub).await;
        world.restart_manager(&[]).await;
        eventually("the residue of the claim is removed", || migrated(&world, &hub)).await;
    });
}

/// Leaves the policy of one city half migrated, with its claim on companion and binding.
async fn leave_residue(world: &World, hub: &str) {
    let mut policy = of_go(hub, "dfw");
    policy["spec"]["propagateDeps"] = json!(true);
    let spec = json!({ "spec": { "propagateDeps": true, "resourceSelectors": policy["spec"]["resourceSelectors"] } });
    merge(&world.hub, "PropagationPolicy", hub, "city-dfw", spec).await;
    let marks = json!({ "metadata": {
        "labels": { "propagationpolicy.karmada.io/permanent-id": "some" },
        "annotations": { "propagationpolicy.karmada.io/name": "city-dfw", "propagationpolicy.karmada.io/namespace": hub },
    }});
    merge(&world.hub, "Secret", hub, "db", marks.clone()).await;
    merge(&world.hub, "ResourceBinding", hub, "db-secret", marks).await;
    let spec = json!({ "spec": { "clusters": [{ "name": "cell-dfw" }] } });
    merge(&world.hub, "ResourceBinding", hub, "db-secret", spec).await;
}

#[test]
fn migration_to_dependencies_without_karmada_support_is_refused() {
    RUNTIME.block_on(async {
        let mut world =
            alone(Wish { management: "timing:\n  migrationStepSeconds: 8\n".into(), ..Wish::default() }).await;
        if world.bed.stand_in().is_none() {
            skip!("it moves policies as the Go operator wrote them; on real Karmada that is done by hand");
        }
        let (ns, hub) = world.namespace("refuse").await;
        let (other, other_hub) = world.namespace("refuse-too").await;
        world.operators[0].process.kill();
        let places = [(&ns, &hub), (&other, &other_hub)].map(|(ns, hub)| Place { ns: ns.clone(), hub: hub.clone() });
        write_as_the_go_operator(&world, &places).await;
        world.bed.stand_in().unwrap().propagate_deps(false);
        let (seen, watching) = watch_copy(&world.dfw, &hub);
        world.restart_manager(&[]).await;
        eventually("it is reported and counted", || async {
            let mut events = Vec::new();
            for hub in [&hub, &other_hub] {
                events.extend(list(&world.hub, "Event", hub).await);
            }
            events.retain(|event| event.data["reason"] == "MigrationRefused");
            let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let counted = text.contains("compute_federation_migration_refused 1");
            if events.len() == 1 && counted {
                Ok(())
            } else {
                Err(format!("{} Events, counted: {counted}", events.len()))
            }
        })
        .await;
        let asking = || async {
            let mut asking = 0;
            for hub in [&hub, &other_hub] {
                for policy in list(&world.hub, "PropagationPolicy", hub).await {
                    assert_eq!(policy.data["spec"]["resourceSelectors"].as_array().unwrap().len(), 3);
                    asking += usize::from(policy.data["spec"]["propagateDeps"] == true);
                }
            }
            asking
        };
        let asks = asking().await;
        assert!((1..=3).contains(&asks), "only a few policies are probed, one after the other: {asks}");
        assert!(status(&world).contains("Karmada does not propagate dependencies"), "{}", status(&world));
        // After the repair of Karmada, the migration continues by itself.
        world.bed.stand_in().unwrap().propagate_deps(true);
        for hub in [&hub, &other_hub] {
            eventually("all is by need", || migrated(&world, hub)).await;
        }
        watching.abort();
        assert_eq!(seen.lock().unwrap().len(), 1, "the copy in use is the same throughout");
        assert!(status(&world).contains("4 of 4 are done\nKarmada propagates dependencies"), "{}", status(&world));
        let text = world.operators[0].metrics().await.unwrap();
        assert!(text.contains("compute_federation_migration_refused 0"));
    });
}
