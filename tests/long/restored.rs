//! A project's etcd is restored from an old backup. Later deployments are missing. Their copies on the hub are kept for a grace
//! before they are deleted.

use std::{collections::BTreeMap, time::Duration};

use crate::common::{
    PATIENCE, RUNTIME, World, apply,
    beds::{Lent, Wish, alone},
    delete, deployment, eventually, eventually_within,
    example_app::SWEEPS,
    get, list, never,
};
use kube::{ResourceExt, api::DynamicObject};

/// The number of missing deployments that pauses deletions.
const DEPLOYMENTS: usize = 12;

/// The time for which a copy without an original is kept.
const GRACE: Duration = Duration::from_secs(42);

/// A younger copy is deleted at once if its original is missing.
const YOUNG: Duration = Duration::from_secs(8);

/// Returns the copies on the hub, with their uids.
async fn copies(world: &World, hub: &str) -> BTreeMap<String, String> {
    let all = list(&world.hub, "WorkloadDeployment", hub).await;
    all.into_iter().map(|copy| (copy.name_any(), copy.uid().unwrap())).collect()
}

async fn deploy(world: &World, ns: &str) {
    for n in 0..DEPLOYMENTS {
        apply(&world.project, deployment(ns, &format!("late-{n}"), "dfw")).await;
    }
}

/// Returns the time since which each waiting copy has no original.
async fn waiting(world: &World, hub: &str) -> BTreeMap<String, String> {
    let all = list(&world.hub, "WorkloadDeployment", hub).await;
    let since = |copy: &DynamicObject| copy.annotations().get("compute.datumapis.com/stranded-since").cloned();
    all.into_iter().filter_map(|copy| Some((copy.name_any(), since(&copy)?))).collect()
}

/// Waits until `count` copies are marked as waiting. Returns the time of each mark.
async fn all_wait(world: &World, hub: &str, count: usize) -> BTreeMap<String, String> {
    eventually(&format!("{count} copies wait"), || async {
        let waiting = waiting(world, hub).await;
        if waiting.len() == count { Ok(waiting) } else { Err(format!("{waiting:?}")) }
    })
    .await
}

/// Waits until the Event is on the hub namespace. Returns its note.
async fn reported(world: &World, hub: &str) -> String {
    eventually("the pause is reported", || async {
        let events = list(&world.hub, "Event", "default").await;
        let is_it = |event: &&DynamicObject| {
            event.data["reason"] == "DeletionsPaused" && event.data["regarding"]["name"] == hub
        };
        let found = events.iter().find(is_it);
        found.map(|event| event.data["note"].as_str().unwrap_or_default().to_owned()).ok_or("no".to_owned())
    })
    .await
}

/// Waits until a hub namespace has no copies.
async fn all_deleted(world: &World, hub: &str) {
    eventually_within(GRACE + PATIENCE, "the copies are deleted", || async {
        let left = copies(world, hub).await;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// Waits until all deployments have copies. Returns the copies.
async fn all_on_the_hub(world: &World, hub: &str) -> BTreeMap<String, String> {
    eventually("all copies are on the hub", || async {
        let copies = copies(world, hub).await;
        if copies.len() == DEPLOYMENTS { Ok(copies) } else { Err(copies.len().to_string()) }
    })
    .await
}

async fn paused(world: &World) -> bool {
    let text = world.operators[0].metrics().await.unwrap();
    text.lines().any(|line| line.starts_with("compute_deletions_paused{plane=\"project\"} 1"))
}

async fn stage() -> (Lent<World>, String, String) {
    let management = format!("{SWEEPS}timing:\n  lossPatienceSeconds: {}\n", GRACE.as_secs());
    let world = alone(Wish { management, ..Wish::default() }).await;
    let (ns, hub) = world.namespace("restored").await;
    (world, ns, hub)
}

#[test]
fn copies_without_original_in_a_restored_project_are_kept_for_the_grace() {
    RUNTIME.block_on(async {
        let (mut world, ns, hub) = stage().await;
        let backup = world.bed.back_up_project().await.unwrap();
        deploy(&world, &ns).await;
        let before = all_on_the_hub(&world, &hub).await;
        tokio::time::sleep(YOUNG).await;

        world.bed.restore_project(&backup).await.unwrap();
        all_wait(&world, &hub, DEPLOYMENTS).await;
        let note = reported(&world, &hub).await;
        let is_named = note.contains("has lost its original") && note.contains(&format!("{ns}/late-"));
        assert!(is_named && !note.contains("backup"), "the Event blames nobody: {note}");
        eventually("it is counted", || async { if paused(&world).await { Ok(()) } else { Err("no".to_owned()) } })
            .await;
        never("a copy is deleted", || async {
            let now = copies(&world, &hub).await;
            (now != before).then_some(now)
        })
        .await;

        // The originals are recreated, and their copies are unchanged.
        deploy(&world, &ns).await;
        all_wait(&world, &hub, 0).await;
        assert_eq!(copies(&world, &hub).await, before);

        // After the second restore, no original is recreated.
        world.bed.restore_project(&backup).await.unwrap();
        all_wait(&world, &hub, DEPLOYMENTS).await;
        all_deleted(&world, &hub).await;
    });
}

/// A manager that was started after the restore saw no deletion. It deleted every copy without an original at once.
#[test]
fn copies_without_original_after_manager_restarts_keep_their_first_grace() {
    RUNTIME.block_on(async {
        let (mut world, ns, hub) = stage().await;
        let backup = world.bed.back_up_project().await.unwrap();
        deploy(&world, &ns).await;
        let before = all_on_the_hub(&world, &hub).await;
        world.operators[0].process.kill();
        world.bed.restore_project(&backup).await.unwrap();
        tokio::time::sleep(YOUNG).await;
        world.restart_manager(&[]).await;
        let since = all_wait(&world, &hub, DEPLOYMENTS).await;
        world.restart_manager(&[]).await;
        never("a copy is deleted or gets a new grace", || async {
            let now = (copies(&world, &hub).await, waiting(&world, &hub).await);
            (now.0 != before || now.1 != since).then_some(now)
        })
        .await;
        // The deployments are recreated, and each finds its copy unchanged.
        deploy(&world, &ns).await;
        all_wait(&world, &hub, 0).await;
        assert_eq!(copies(&world, &hub).await, before);
    });
}

/// The backup has an earlier namespace of the same name, with deployments of the same names. The next sweep deleted the hub
/// objects of the later namespace. The restored project has lower resource versions than before.
#[test]
fn copies_of_a_namespace_missing_in_a_restored_project_are_kept_for_the_grace() {
    RUNTIME.block_on(async {
        let (mut world, ns, earlier) = stage().await;
        deploy(&world, &ns).await;
        all_on_the_hub(&world, &earlier).await;
        let snapshot = world.bed.snapshot().unwrap();
        delete(&world.project, "Namespace", "", &ns).await;
        eventually("the namespace is deleted", || async {
            get(&world.project, "Namespace", "", &ns)
                .await
                .map_or(Ok(()), |still| Err(still.data["status"].to_string()))
        })
        .await;
        let later = world.namespace_in(&world.project, &ns).await;
        deploy(&world, &ns).await;
        let before = all_on_the_hub(&world, &later).await;
        tokio::time::sleep(YOUNG).await;

        world.bed.rewind_project(&snapshot).await.unwrap();
        all_wait(&world, &later, DEPLOYMENTS).await;
        all_on_the_hub(&world, &earlier).await;
        never("a copy of the later namespace is deleted", || async {
            let now = copies(&world, &later).await;
            (now != before).then_some(now)
        })
        .await;
        all_deleted(&world, &later).await;
        all_on_the_hub(&world, &earlier).await;
    });
}
