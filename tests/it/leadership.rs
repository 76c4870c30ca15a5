//! Leader election among several replicas.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{
    RUNTIME,
    admission::connect,
    api, apply,
    beds::{Wish, alone},
    binary, delete, eventually, promised, ready, rights, workload,
};
use testbed::{admission::Webhooks, operator::Operator};

const LEASE: &str = "e98b06c6.datumapis.com";

/// True if a page of metrics reports leadership.
pub fn leads(metrics: &str) -> bool {
    metrics.lines().any(|line| line == "leader_election_master_status 1")
}

/// Returns the replicas that report leadership.
async fn leaders(replicas: &[Operator]) -> Vec<usize> {
    let mut leaders = Vec::new();
    for (index, replica) in replicas.iter().enumerate() {
        if leads(&replica.metrics().await.unwrap_or_default()) {
            leaders.push(index);
        }
    }
    leaders
}

async fn the_leader(replicas: &[Operator]) -> Result<usize, String> {
    match leaders(replicas).await[..] {
        [leader] => Ok(leader),
        ref other => Err(format!("{other:?} lead")),
    }
}

#[test]
fn leader_election_second_replica_takes_over() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        world.operators[0].process.kill(); // it runs without a Lease
        // The first replica creates the Lease.
        let leases = api(&world.project, "Lease", "compute-system");
        let _ = leases.delete(LEASE, &DeleteParams::default()).await;
        let replica = |name: &str| Operator::management(&world.bed, binary(), name, &["--leader-elect"]).unwrap();
        let mut replicas = vec![replica("replica-a"), replica("replica-b")];
        for replica in &mut replicas {
            replica.wait_ready().await.unwrap(); // its caches are filled, even if it does not lead
        }
        let leader = eventually("one leads", || the_leader(&replicas)).await;
        let (ns, hub) = world.namespace("leader").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        assert_eq!(leaders(&replicas).await, vec![leader], "and only one");

        // The leader is killed: the other replica waits until the Lease expires.
        replicas[leader].process.kill();
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(&world, &ns, "web", 2).await;
        let mut survivor = replicas.remove(1 - leader);

        // The leader is stopped: it releases the Lease, and the next replica leads at once.
        let mut next = replica("replica-c");
        next.wait_ready().await.unwrap();
        assert_eq!(survivor.process.stop(promised(Duration::from_secs(10))).await, 0, "within the grace period");
        let began = tokio::time::Instant::now();
        eventually("the next one leads", || the_leader(std::slice::from_ref(&next))).await;
        assert!(began.elapsed() < promised(Duration::from_secs(10)), "without waiting for the Lease to run out");
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        next.process.stop(Duration::from_secs(10)).await;
        rights::shown(&world, world.since(), "leader_election_second_replica_takes_over");
        let mut again = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        again.wait_ready().await.unwrap();
        world.operators[0] = again;
    });
}

/// Number of blanks before an admission request. More than are sent during the test.
const BLANKS: usize = 600;

/// The webhook server stopped with the loss of the Lease, and refused an admission request in progress.
#[test]
fn webhook_request_in_progress_during_lease_loss_is_answered() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        world.operators[0].process.kill();
        let leases = api(&world.project, "Lease", "compute-system");
        let _ = leases.delete(LEASE, &DeleteParams::default()).await;
        let (webhooks, without) = (Webhooks::new(&world.bed).unwrap(), world.bed.options_mut().management.clone());
        world.bed.options_mut().management = format!("{without}{}", webhooks.config());
        let mut replica = Operator::management(&world.bed, binary(), "replica-w", &["--leader-elect"]).unwrap();
        world.bed.options_mut().management = without;
        replica.wait_ready().await.unwrap();
        eventually("it leads", || the_leader(std::slice::from_ref(&replica))).await;

        let question = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "r-1", "operation": "CREATE",
        } });
        // The server ends a request if its body pauses for a second. This body arrives blank by blank.
        let question = format!("{}{question}", " ".repeat(BLANKS));
        let head = format!(
            "POST /mutate-compute-datumapis-com-v1alpha-workload HTTP/1.1\r\nHost: localhost\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            question.len()
        );
        let mut asking = connect(webhooks.port(), &world.bed.dir().join("ca.crt")).await;
        asking.write_all(head.as_bytes()).await.unwrap();
        let (lost, mut is_lost) = tokio::sync::oneshot::channel::<()>();
        let asked = tokio::spawn(async move {
            let mut sent = 0;
            while sent < BLANKS && is_lost.try_recv().is_err() {
                asking.write_all(b" ").await.unwrap();
                sent += 1;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            asking.write_all(&question.as_bytes()[sent..]).await.unwrap();
            let mut answer = String::new();
            asking.read_to_string(&mut answer).await.unwrap();
            answer
        });
        let taken = json!({ "spec": { "holderIdentity": "somebody-else" } });
        leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
        eventually("it leads no more", || async {
            let metrics = replica.metrics().await.map_err(|e| e.to_string())?;
            if leads(&metrics) { Err("it leads".to_owned()) } else { Ok(()) }
        })
        .await;
        lost.send(()).unwrap();
        let answer = asked.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""allowed":true"#), "{answer}");

        replica.process.kill();
        let _ = leases.delete(LEASE, &DeleteParams::default()).await;
        let mut again = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        again.wait_ready().await.unwrap();
        world.operators[0] = again;
    });
}
