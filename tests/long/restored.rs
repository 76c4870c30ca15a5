//! A project's etcd is restored from an old backup while the manager runs: what was made since is missing, and its copies
//! stay until it is back, or somebody says that it is right.

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

/// As many as are missed.
const DEPLOYMENTS: usize = 12;

/// The copies on the hub, with their uids.
async fn copies(world: &World, hub: &str) -> BTreeMap<String, String> {
    let all = list(&world.hub, "WorkloadDeployment", hub).await;
    all.into_iter().map(|copy| (copy.name_any(), copy.uid().unwrap())).collect()
}

async fn deploy(world: &World, ns: &str) {
    for n in 0..DEPLOYMENTS {
        apply(&world.project, deployment(ns, &format!("late-{n}"), "dfw")).await;
    }
}

/// Waits until this is told in the project, with one of its latest Events.
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
fn what_a_restored_project_lacks_is_not_deleted_before_it_is_clear_why() {
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

        // Somebody puts them back: what runs of them is as it was.
        deploy(&world, &ns).await;
        told(&world, "DeletionsResumed", 1).await;
        never("a copy is made anew", || async {
            let now = copies(&world, &hub).await;
            (now != before).then_some(now)
        })
        .await;

        // Once more, and this time it is right.
        world.bed.restore_project(&backup).await.unwrap();
        told(&world, "DeletionsPaused", 1).await;
        assert_eq!(copies(&world, &hub).await, before);
        // Whoever deletes something meanwhile reads why it does not go.
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
            // Where a list that comes later lacks more, that is told anew, and wants to be confirmed as well.
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

/// Found by reading: a manager that begins has known nothing before, and took away every copy without its original. Its own
/// Lease may lie in the etcd that is restored, so that it begins anew by that alone.
#[test]
fn what_was_restored_while_no_manager_ran_is_missed_by_its_copies() {
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
        // They are put back, and each finds its copy as it was.
        deploy(&world, &ns).await;
        told(&world, "DeletionsResumed", 1).await;
        assert_eq!(copies(&world, &hub).await, before);
    });
}

/// Found by reading: the backup has a namespace of the same name with deployments of the same names, so that by their names
/// nothing was missed, and what the hub holds of the later one went with the next sweep. Here the project has older versions than
/// it had: one namespace is enough.
#[test]
fn a_namespace_that_was_made_anew_since_the_backup_is_missed_by_its_uid() {
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
