//! Of several replicas one leads.

use std::time::Duration;

use kube::api::DeleteParams;

use crate::common::{
    RUNTIME, api, apply,
    beds::{Wish, alone},
    binary, delete, eventually, promised, ready, rights, workload,
};
use testbed::operator::Operator;

/// Which of these say that they lead.
async fn leaders(replicas: &[Operator]) -> Vec<usize> {
    let mut leaders = Vec::new();
    for (index, replica) in replicas.iter().enumerate() {
        if replica.metrics().await.unwrap_or_default().contains("leader_election_master_status 1") {
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
fn of_two_replicas_one_leads_and_the_other_takes_over() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        world.operators[0].process.kill(); // it runs without a Lease
        // The first one makes it.
        let leases = api(&world.project, "Lease", "compute-system");
        let _ = leases.delete("e98b06c6.datumapis.com", &DeleteParams::default()).await;
        let replica = |name: &str| Operator::management(&world.bed, binary(), name, &["--leader-elect"]).unwrap();
        let mut replicas = vec![replica("replica-a"), replica("replica-b")];
        for replica in &mut replicas {
            replica.wait_ready().await.unwrap(); // warm caches, whether leading or not
        }
        let leader = eventually("one leads", || the_leader(&replicas)).await;
        let (ns, hub) = world.namespace("leader").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        assert_eq!(leaders(&replicas).await, vec![leader], "and only one");

        // Killed: the other waits until the Lease has run out.
        replicas[leader].process.kill();
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(&world, &ns, "web", 2).await;
        let mut survivor = replicas.remove(1 - leader);

        // Asked to end: the Lease is given up, and the next one leads at once.
        let mut next = replica("replica-c");
        next.wait_ready().await.unwrap();
        assert_eq!(survivor.process.stop(promised(Duration::from_secs(10))).await, 0, "within the grace period");
        let began = tokio::time::Instant::now();
        eventually("the next one leads", || the_leader(std::slice::from_ref(&next))).await;
        assert!(began.elapsed() < promised(Duration::from_secs(10)), "without waiting for the Lease to run out");
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        next.process.stop(Duration::from_secs(10)).await;
        rights::shown(&world, world.since(), "of_two_replicas_one_leads_and_the_other_takes_over");
        let mut again = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        again.wait_ready().await.unwrap();
        world.operators[0] = again;
    });
}
