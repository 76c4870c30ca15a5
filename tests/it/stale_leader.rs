//! A replica with hanging connections to the project becomes the leader. It must not act on its stale cache.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use kube::{
    ResourceExt,
    api::{DeleteParams, WatchEvent, WatchParams},
};
use serde_json::json;
use testbed::{
    operator::Operator,
    pki::{User, kubeconfig},
};

use crate::{
    common::{
        RUNTIME, World, api, apply,
        beds::{Lent, Wish, alone},
        binary, delete, eventually, get, merge, ready, template, workload,
    },
    disruption::proxy,
};

const LEASE: &str = "e98b06c6.datumapis.com";
const GENERATION: &str = "compute.datumapis.com/source-generation";
/// Leaders change fast, and a silent watch of the project lasts longer than a test.
const TIMING: &str = "timing:\n  leaseDurationSeconds: 6\n  watchLifetimeSeconds: 290\n";
/// Time for which the test watches the standby after it leads.
const WATCHED: Duration = Duration::from_secs(8);

/// A leader, and a standby behind a proxy to the project.
struct Pair {
    world: Lent<World>,
    leader: Operator,
    standby: Operator,
    deaf: Arc<AtomicBool>,
}

impl Pair {
    async fn start() -> Self {
        let mut world = alone(Wish::default()).await;
        world.operators[0].process.kill(); // it runs without a Lease
        let _ = api(&world.project, "Lease", "compute-system").delete(LEASE, &DeleteParams::default()).await;
        let hub = format!("--federation-kubeconfig={}", world.bed.hub.kubeconfig(&User::Operator).display());
        let replica = |name: &str, project: &str| {
            let flags = ["--enable-management-controllers", "--leader-elect", project, &hub];
            Operator::with_config(world.bed.dir(), binary(), name, TIMING, &flags).unwrap()
        };
        let direct = format!("--kubeconfig={}", world.bed.project.kubeconfig(&User::Operator).display());
        let mut leader = replica("leader", &direct);
        leader.wait_ready().await.unwrap();
        eventually("it leads", || leads(&leader)).await;
        let deaf = Arc::new(AtomicBool::new(false));
        let port = proxy(world.bed.project.port(), deaf.clone()).await;
        let file = kubeconfig(world.bed.dir(), "proxied-project", port, &User::Operator).unwrap();
        let mut standby = replica("standby", &format!("--kubeconfig={}", file.display()));
        standby.wait_ready().await.unwrap();
        Self { world, leader, standby, deaf }
    }

    /// Kills the leader, and waits until the standby has led for a while. The standby acts on its cache and meets conflicts.
    async fn change_leaders(&mut self) {
        self.leader.process.kill();
        eventually("the standby leads", || leads(&self.standby)).await;
        let conflicts = || async {
            let text = self.standby.metrics().await.map_err(|error| error.to_string())?;
            let is_conflict = |line: &&str| {
                line.starts_with("controller_runtime_reconcile_errors_total{")
                    && line.contains("conflict")
                    && line.contains("federator")
            };
            let lines: Vec<&str> =
                text.lines().filter(|line| line.starts_with("controller_runtime_reconcile_errors")).collect();
            if lines.iter().any(is_conflict) { Ok(()) } else { Err(lines.join("\n")) }
        };
        tokio::time::sleep(WATCHED).await;
        eventually("the standby has met the present", conflicts).await;
    }

    /// Restarts the usual manager and cleans up.
    async fn end(mut self, ns: &str, hub: &str) {
        self.standby.process.kill();
        let mut again = Operator::management(&self.world.bed, binary(), "operator-management", &[]).unwrap();
        again.wait_ready().await.unwrap();
        self.world.operators[0] = again;
        delete(&self.world.project, "Workload", ns, "web").await;
        eventually("nothing is left", || self.world.is_clean(ns, hub)).await;
    }
}

async fn leads(replica: &Operator) -> Result<(), String> {
    let text = replica.metrics().await.map_err(|error| error.to_string())?;
    if crate::leadership::leads(&text) { Ok(()) } else { Err("it does not".into()) }
}

/// Records uid and source generation of every version of the copies in a hub namespace.
fn watch(world: &World, hub: &str) -> Arc<Mutex<Vec<(String, i64)>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (all, copies) = (seen.clone(), api(&world.hub, "WorkloadDeployment", hub));
    tokio::spawn(async move {
        let params = WatchParams::default().timeout(290);
        let Ok(events) = copies.watch(&params, "0").await else { return };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(copy) | WatchEvent::Modified(copy)) = event else { continue };
            let generation = copy.annotations().get(GENERATION).and_then(|text| text.parse().ok());
            all.lock().unwrap().push((copy.uid().unwrap(), generation.unwrap_or_default()));
        }
    });
    seen
}

/// Returns the uids of the copy on the hub and of its Instance on the cell.
async fn uids(world: &World, hub: &str) -> (Option<String>, Option<String>) {
    let copy = get(&world.hub, "WorkloadDeployment", hub, "web-p-dfw").await;
    let instance = get(&world.dfw, "Instance", hub, "web-p-dfw-0").await;
    (copy.and_then(|copy| copy.uid()), instance.and_then(|instance| instance.uid()))
}

/// A standby with hanging connections to the project became the leader, and rolled a copy back to the generation in its cache.
#[test]
fn leader_with_a_stale_project_cache_does_not_roll_a_copy_back() {
    RUNTIME.block_on(async {
        let mut pair = Pair::start().await;
        let (ns, hub) = pair.world.namespace("stale").await;
        apply(&pair.world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&pair.world, &ns, "web", 1).await;
        let seen = watch(&pair.world, &hub);

        pair.deaf.store(true, Ordering::SeqCst);
        let mut object = workload(&ns, "web", &["dfw"], 1);
        object["spec"]["template"] = template("docker.io/library/nginx:2");
        apply(&pair.world.project, object).await;
        let client = pair.world.hub.clone();
        let image = || async {
            let copy = get(&client, "WorkloadDeployment", &hub, "web-p-dfw").await.ok_or("gone")?;
            let text = copy.data["spec"]["template"].to_string();
            if text.contains("nginx:2") { Ok(()) } else { Err(text) }
        };
        eventually("the copy has the new image", image).await;
        ready(&pair.world, &ns, "web", 1).await;
        pair.change_leaders().await;

        let seen = seen.lock().unwrap().clone();
        assert!(seen.len() > 1 && seen.is_sorted_by_key(|(_, generation)| *generation), "{seen:?}");
        image().await.unwrap();
        pair.end(&ns, &hub).await;
    });
}

/// The same leader deleted the copy of a newer deployment with the same name, and the cell deleted its Instances.
#[test]
fn leader_with_a_stale_project_cache_does_not_delete_the_copy_of_a_newer_deployment() {
    RUNTIME.block_on(async {
        let mut pair = Pair::start().await;
        let (ns, hub) = pair.world.namespace("stale").await;
        apply(&pair.world.project, workload(&ns, "web", &["dfw", "ord"], 1)).await;
        ready(&pair.world, &ns, "web", 2).await;

        // The standby sees that the first deployment is terminating, but not that it is deleted.
        let first = get(&pair.world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.unwrap();
        let mut finalizers = first.finalizers().to_vec();
        finalizers.push("example.com/hold".to_owned());
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        merge(&pair.world.project, "WorkloadDeployment", &ns, "web-p-dfw", patch).await;
        apply(&pair.world.project, workload(&ns, "web", &["ord"], 1)).await;
        let held = || async {
            let first = get(&pair.world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("gone")?;
            if first.finalizers() == ["example.com/hold"] { Ok(()) } else { Err(format!("{:?}", first.finalizers())) }
        };
        eventually("the first deployment is held by this test alone", held).await;
        tokio::time::sleep(Duration::from_secs(1)).await;

        pair.deaf.store(true, Ordering::SeqCst);
        let free = json!({ "metadata": { "finalizers": [] } });
        merge(&pair.world.project, "WorkloadDeployment", &ns, "web-p-dfw", free).await;
        apply(&pair.world.project, workload(&ns, "web", &["dfw", "ord"], 1)).await;
        ready(&pair.world, &ns, "web", 2).await;
        let before = uids(&pair.world, &hub).await;
        assert!(before.0.is_some() && before.1.is_some(), "{before:?}");
        pair.change_leaders().await;

        assert_eq!(uids(&pair.world, &hub).await, before, "copy and Instance are the same");
        pair.end(&ns, &hub).await;
    });
}
