//! Migrates from claims to dependencies while the manager is killed at random. A seed decides the moments. `SEEDS=10` runs ten of
//! them.

use std::time::Duration;

use crate::{
    common::{
        RUNTIME, World,
        beds::{Wish, alone},
        binary, eventually,
        example_app::{Place, SWEEPS},
        never_within,
    },
    migration::{migrated, watch_copies, write_as_the_go_operator},
};
use testbed::operator::Operator;

/// Hub namespaces that migrate in parallel, so that each kill hits each of them at another step.
const NAMESPACES: usize = 3;
/// Number of kills before the manager may finish.
const KILLS: usize = 8;

async fn all_migrated(world: &World, places: &[Place]) -> Result<(), String> {
    for place in places {
        migrated(world, &place.hub).await?;
    }
    Ok(())
}

/// Kills the manager at random until the migration is done, then lets it run. Returns the number of kills.
async fn kill_at_random(world: &mut World, places: &[Place], seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kills = 0;
    while kills < KILLS && all_migrated(world, places).await.is_err() {
        let mut manager = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        // The time includes the start: the manager may die before it has read anything.
        tokio::time::sleep(Duration::from_millis(random.u64(500..4000))).await;
        manager.process.kill();
        kills += 1;
    }
    world.restart_manager(&[]).await;
    kills
}

#[test]
fn migration_with_a_randomly_killed_manager_removes_no_copy() {
    RUNTIME.block_on(async {
        let seeds: u64 = std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(1);
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let mut all = Vec::new();
        for seed in 0..seeds {
            world.operators[0].process.kill();
            let mut places = Vec::new();
            for _ in 0..NAMESPACES {
                let (ns, hub) = world.namespace("kills").await;
                places.push(Place { ns, hub });
            }
            write_as_the_go_operator(&world, &places).await;
            let watched = watch_copies(&world, &places).await;
            let kills = kill_at_random(&mut world, &places, seed).await;
            eventually("all is by need alone", || all_migrated(&world, &places)).await;
            eprintln!("seed {seed}: {kills} kills");
            for (seen, watching) in watched {
                watching.abort();
                let seen = seen.lock().unwrap().clone();
                assert_eq!(seen.len(), 1, "seed {seed}: the copy in use is the same throughout: {seen:?}");
            }
            all.extend(places);
        }
        // Real Karmada may write removed marks back later.
        let settled = Duration::from_secs(if world.bed.stand_in().is_some() { 2 } else { 60 });
        never_within(settled, "the residue of a claim returns", || async { all_migrated(&world, &all).await.err() })
            .await;
    });
}
