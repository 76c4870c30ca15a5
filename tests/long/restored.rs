//! A project's etcd is restored from an old backup while the manager runs. Later objects are missing. Their copies stay until the
//! objects return or a person confirms the loss.

use std::collections::BTreeMap;

use crate::common::{
    RUNTIME, World, apply,
    beds::{Wish, alone},
    condition, delete, deployment, eventually,
    example_app::SWEEPS,
    get, list, merge, never,
};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

/// The number of missing deployments that pauses deletions.
const DEPLOYMENTS: usize = 12;

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

/// Waits until the project has this many Events with this reason. Returns the note of the latest.
async fn told(world: &World, reason: &str, count: usize) -> String {
    eventually(&format!("{reason} is told {count} times"), || async {
        let events = list(&world.project, "Event", "default").await;
        let told = events.iter().filter(|event| event.data["reason"] == reason);
        let mut notes: Vec<(String, String)> = told
            .map(|event| (event.data["eventTime"].to_string(), event.data["note"].as_str().unwrap_or_default().into()))
            .collect();
        notes.sort();
        if notes.len() < count { Err(format!("{notes:?}")) } else { Ok(notes.pop().unwrap().1) }
    })
    .await
}

/// Waits until all deployments have their copies.
async fn all_on_the_hub(world: &World, hub: &str) -> BTreeMap<String, String> {
    eventually("all are on the hub", || async {
        let copies = copies(world, hub).await;
        if copies.len() == DEPLOYMENTS { Ok(copies) } else { Err(copies.len().to_string()) }
    })
    .await
}

async fn paused(world: &World) -> bool {
    let text = world.operators[0].metrics().await.unwrap();
    text.lines().any(|line| line.starts_with("compute_deletions_paused{plane=\"project\"} 1"))
}

#[test]
fn copies_missing_in_a_restored_project_are_kept_until_confirmed() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("restored").await;
        let backup = world.bed.back_up_project().await.unwrap();
        deploy(&world, &ns).await;
        let before = all_on_the_hub(&world, &hub).await;

        let began = Instant::now();
        world.bed.restore_project(&backup).await.unwrap();
        let note = told(&world, "DeletionsPaused", 1).await;
        eprintln!("told {:?} after the restore began: {note}", began.elapsed());
        assert!(note.contains(&format!("{DEPLOYMENTS} of {DEPLOYMENTS} workloaddeployments")), "{note}");
        assert!(note.contains(&format!("{ns}/late-0 among them")), "{note}");
        eventually("it is counted", || async { if paused(&world).await { Ok(()) } else { Err("no".to_owned()) } })
            .await;
        never("a copy is deleted", || async {
            let now = copies(&world, &hub).await;
            (now != before).then_some(now)
        })
        .await;

        // The deployments are recreated, and their running copies stay the same.
        deploy(&world, &ns).await;
        told(&world, "DeletionsResumed", 1).await;
        never("a copy is made anew", || async {
            let now = copies(&world, &hub).await;
            (now != before).then_some(now)
        })
        .await;

        // The restore is repeated, and this time the loss is confirmed.
        world.bed.restore_project(&backup).await.unwrap();
        told(&world, "DeletionsPaused", 1).await;
        assert_eq!(copies(&world, &hub).await, before);
        // A deletion in the meantime reports why it waits.
        apply(&world.project, deployment(&ns, "late-0", "dfw")).await;
        eventually("its finalizer is there", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, "late-0").await.ok_or("none")?;
            if wd.finalizers().is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
        delete(&world.project, "WorkloadDeployment", &ns, "late-0").await;
        eventually("the one that is deleted says so", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, "late-0").await.ok_or("gone")?;
            let said = condition(&wd, "Federated");
            if said["reason"] == "DeletionsPaused" { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
        let began = Instant::now();
        eventually("they are gone from the hub", || async {
            // If a later list lacks more objects, that is reported again and needs another confirmation.
            let note = told(&world, "DeletionsPaused", 1).await;
            let (_, token) = note.rsplit_once('=').unwrap();
            let confirm = json!({ "metadata": { "annotations": { "compute.datumapis.com/confirm-missing": token } } });
            merge(&world.project, "Namespace", "", "kube-system", confirm).await;
            let left = copies(&world, &hub).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
        eprintln!("gone {:?} after it was confirmed", began.elapsed());
    });
}

/// A manager without earlier knowledge deleted every copy without its original. The restore itself can restart the manager,
/// because its Lease may be in the restored etcd.
#[test]
fn project_restored_without_a_manager_is_detected_by_its_copies() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("restored").await;
        let backup = world.bed.back_up_project().await.unwrap();
        deploy(&world, &ns).await;
        let before = all_on_the_hub(&world, &hub).await;
        world.operators[0].process.kill();
        world.bed.restore_project(&backup).await.unwrap();
        world.restart_manager(&[]).await;
        let note = told(&world, "DeletionsPaused", 1).await;
        assert!(note.contains(&format!("{DEPLOYMENTS} of {DEPLOYMENTS} workloaddeployments")), "{note}");
        never("a copy is deleted", || async {
            let now = copies(&world, &hub).await;
            (now != before).then_some(now)
        })
        .await;
        // The deployments are recreated, and each finds its copy unchanged.
        deploy(&world, &ns).await;
        told(&world, "DeletionsResumed", 1).await;
        assert_eq!(copies(&world, &hub).await, before);
    });
}

/// The backup had a namespace and deployments of the same names, so by name nothing was missing. The next sweep deleted the hub
/// objects of the later namespace. Here the versions of the project go back, so one namespace is enough.
#[test]
fn namespace_recreated_since_the_backup_is_missed_by_its_uid() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, earlier) = world.namespace("restored").await;
        deploy(&world, &ns).await;
        all_on_the_hub(&world, &earlier).await;
        let snapshot = world.bed.snapshot().unwrap();
        delete(&world.project, "Namespace", "", &ns).await;
        eventually("the namespace is gone", || async {
            get(&world.project, "Namespace", "", &ns)
                .await
                .map_or(Ok(()), |still| Err(still.data["status"].to_string()))
        })
        .await;
        let later = world.namespace_in(&world.project, &ns).await;
        deploy(&world, &ns).await;
        let before = all_on_the_hub(&world, &later).await;

        world.bed.rewind_project(&snapshot).await.unwrap();
        let note = told(&world, "DeletionsPaused", 1).await;
        assert!(note.contains(" namespaces that were known are missing"), "{note}");
        all_on_the_hub(&world, &earlier).await;
        never("a copy of the later one is deleted", || async {
            let now = copies(&world, &later).await;
            (now != before).then_some(now)
        })
        .await;
        let (_, token) = note.rsplit_once('=').unwrap();
        let confirm = json!({ "metadata": { "annotations": { "compute.datumapis.com/confirm-missing": token } } });
        merge(&world.project, "Namespace", "", "kube-system", confirm).await;
        eventually("what the later one left is gone", || async {
            let left = copies(&world, &later).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
        all_on_the_hub(&world, &earlier).await;
    });
}
