//! The chainsaw suites for cells that wait for networks and quota, and for a project with webhooks. chainsaw runs them as in
//! `cargo testbed e2e --gated`. `tests/it/suites.rs` runs all others.

use testbed::admission::Webhooks;

use crate::common::{
    RUNTIME,
    beds::{Wish, alone},
    skipped,
};

#[test]
fn gated_suites_pass_on_the_testbed() {
    let Some(program) = testbed::chainsaw::find() else {
        skipped("chainsaw is not on the PATH and not in CHAINSAW; .ci/tools installs it");
        return;
    };
    RUNTIME.block_on(async {
        let mut world = alone(Wish { networks_and_quota: true, provider: false, ..Wish::default() }).await;
        let webhooks = Webhooks::new(&world.bed).unwrap();
        world.bed.options_mut().management = webhooks.config();
        world.restart_manager(&[]).await;
        webhooks.ask_from(&world.project).await.unwrap();
        let on = &mut *world;
        let suites = testbed::chainsaw::Run { program, gated: true, more: &[], shown: false };
        let passed = suites.on(&on.bed, &mut on.operators).await;
        // The next test on the bed has no webhooks.
        webhooks.leave(&world.project).await.unwrap();
        passed.unwrap();
    });
}
