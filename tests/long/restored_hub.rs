//! The hub's etcd is restored from an old backup while the manager runs. Nothing in use is deleted. Missing copies are recreated.
//! Copies of deployments deleted since the backup are deleted again after their grace.

use std::collections::BTreeMap;

use crate::common::{
    RUNTIME, World, apply,
    beds::{Lent, Wish, alone},
    copies as on_cell, delete, deployment, eventually,
    example_app::{SWEEPS, secret},
    get, list, never,
};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

/// The number of missing deployments that pauses deletions.
const DEPLOYMENTS: usize = 12;

/// Deployments from before and after the backup.
struct Stage {
    world: Lent<World>,
    ns: String,
    hub: String,
}

impl Stage {
    async fn start() -> Self {
        let management = format!("{SWEEPS}timing:\n  lossPatienceSeconds: 10\n");
        let world = alone(Wish { management, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("rehub").await;
        let stage = Self { world, ns, hub };
        apply(&stage.world.project, secret(&stage.ns)).await;
        for name in ["early", "leaves"] {
            stage.deploy(name).await;
            stage.is_ready(name).await;
        }
        stage
    }

    /// Creates a deployment that refers to the Secret.
    async fn deploy(&self, name: &str) {
        let mut object = deployment(&self.ns, name, "dfw");
        object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
            json!([{ "secretRef": { "name": "db" } }]);
        apply(&self.world.project, object).await;
    }

    /// Waits until the project reports its only Instance as ready.
    async fn is_ready(&self, name: &str) {
        eventually(&format!("{name} is ready"), || async {
            let found = get(&self.world.project, "WorkloadDeployment", &self.ns, name).await.ok_or("none")?;
            let status = &found.data["status"];
            if status["readyReplicas"] == 1 { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    /// Changes the project after the backup. Creates most deployments and deletes one.
    async fn go_on(&self) {
        for n in 0..DEPLOYMENTS {
            self.deploy(&format!("late-{n}")).await;
        }
        delete(&self.world.project, "WorkloadDeployment", &self.ns, "leaves").await;
        for n in 0..DEPLOYMENTS {
            self.is_ready(&format!("late-{n}")).await;
        }
        eventually("the deployment is deleted", || async {
            let left = get(&self.world.dfw, "WorkloadDeployment", &self.hub, "leaves").await;
            left.map_or(Ok(()), |left| Err(format!("{:?}", left.finalizers())))
        })
        .await;
    }

    /// Returns the names of the deployments on the hub.
    async fn on_hub(&self) -> Vec<String> {
        let all = list(&self.world.hub, "WorkloadDeployment", &self.hub).await;
        all.iter().map(ResourceExt::name_any).collect()
    }

    /// Returns the running objects in the cell and their data, by name, with uids.
    async fn in_use(&self) -> BTreeMap<String, String> {
        let mut all = on_cell(&self.world.dfw, &self.hub).await;
        for kind in ["WorkloadDeployment", "Instance"] {
            for object in list(&self.world.dfw, kind, &self.hub).await {
                all.insert(format!("{kind}/{}", object.name_any()), object.uid().unwrap());
            }
        }
        all.retain(|name, _| !name.contains("leaves"));
        all
    }

    /// Waits until the hub is as before the restore. `before`: the objects in use, none of which may be deleted or recreated.
    async fn survives(&self, before: &BTreeMap<String, String>, began: Instant) {
        eventually("all copies are recreated", || async {
            let there = self.on_hub().await;
            let lacks: Vec<usize> = (0..DEPLOYMENTS).filter(|n| !there.contains(&format!("late-{n}"))).collect();
            if lacks.is_empty() && there.contains(&"early".to_owned()) { Ok(()) } else { Err(format!("{there:?}")) }
        })
        .await;
        eprintln!("all copies were there {:?} after the restore began", began.elapsed());
        eventually("the copy without an original is deleted again", || async {
            let there = self.on_hub().await;
            if there.contains(&"leaves".to_owned()) { Err(format!("{there:?}")) } else { Ok(()) }
        })
        .await;
        for n in 0..DEPLOYMENTS {
            self.is_ready(&format!("late-{n}")).await;
        }
        never("an object in use is recreated", || async {
            let now = self.in_use().await;
            (now != *before).then_some(now)
        })
        .await;
        assert!(get(&self.world.hub, "Secret", &self.hub, "db").await.is_some());
    }
}

/// The restore raises the revisions and compacts the history, as etcd does for running API servers.
#[test]
fn hub_restored_under_a_running_manager_keeps_everything_in_use() {
    RUNTIME.block_on(async {
        let mut stage = Box::pin(Stage::start()).await;
        let backup = stage.world.bed.back_up_hub().await.unwrap();
        stage.go_on().await;
        let (before, began) = (stage.in_use().await, Instant::now());
        stage.world.bed.restore_hub(&backup).await.unwrap();
        stage.survives(&before, began).await;
    });
}
