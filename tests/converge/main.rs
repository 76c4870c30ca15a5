//! Properties of the plans over generated worlds. The world converges with any order of events, any stale snapshot and a death
//! after any write. A converged world does not change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
// Tables of cases make the model easy to read. Its functions need not be cheap.
#![allow(clippy::match_bool, clippy::needless_pass_by_value)]

mod actors;
mod cities;
mod city_manager;
mod companions;
mod data;
mod kstatus;
mod model;
#[path = "../common/skipping.rs"]
mod skipping;
mod world;

use compute_operator::plan::Kind;
use proptest::prelude::*;
use serde_json::Value;
use world::{Actor, Ages, Edit, ManualChange, World};

#[derive(Clone, Debug)]
enum Event {
    /// An actor reconciles a snapshot and dies after `writes` writes. Each kind of each plane is as old as `ages` says.
    Act { actor: Actor, ages: Ages, writes: usize },
    /// The user changes the Workload.
    Edit(Edit),
    /// Karmada, garbage collection, quota and the provider act once.
    Others,
    /// A user deletes or edits an object of the operator.
    Manual { city: usize, change: ManualChange },
}

fn event() -> impl Strategy<Value = Event> {
    let actor = prop_oneof![
        Just(Actor::Workload),
        Just(Actor::Federator),
        Just(Actor::Policy),
        Just(Actor::Deployment),
        Just(Actor::Instance),
        Just(Actor::Quota),
        Just(Actor::WriteBack),
        Just(Actor::Projector),
        Just(Actor::Companion),
    ];
    let change = prop_oneof![
        Just(ManualChange::Policy),
        Just(ManualChange::Copy),
        Just(ManualChange::WriteBack),
        Just(ManualChange::Projection),
        Just(ManualChange::EditProjection),
        Just(ManualChange::EditDeployment),
        Just(ManualChange::EditCopy),
        // No decision depends on the message of a condition.
        Just(ManualChange::Messages),
    ];
    let edit = prop_oneof![
        (proptest::sample::subsequence(vec![0, 1, 2], 0..=3), 0..4_i32, 0..2_u32)
            .prop_map(|(cities, replicas, template)| Edit::Spec { cities, replicas, template }),
        proptest::sample::subsequence(vec![0, 1, 2], 0..=3).prop_map(Edit::Bind),
        Just(Edit::Delete),
        // A companion names up to 32 users.
        prop_oneof![Just(0), 1..3_usize, 29..36_usize].prop_map(Edit::Crowd),
        (0..2_usize, proptest::option::of(0..3_u32)).prop_map(|(source, value)| Edit::Source { source, value }),
    ];
    // Most snapshots are a few events old. Some are so old that they miss the whole life of an object.
    let age = || prop_oneof![4 => 0..6_usize, 1 => 6..60_usize];
    let kinds = || proptest::array::uniform8(age());
    let ages = ([kinds(), kinds(), kinds()], age()).prop_map(|(kinds, bound)| Ages { kinds, bound });
    prop_oneof![
        12 => (actor, ages, 0..4_usize).prop_map(|(actor, ages, writes)| Event::Act { actor, ages, writes }),
        2 => edit.prop_map(Event::Edit),
        4 => Just(Event::Others),
        1 => (0..3_usize, change).prop_map(|(city, change)| Event::Manual { city, change }),
    ]
}

/// The state of a world before its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Empty,
    Settled,
    /// Everything runs, written by plain updates of the Go operator.
    GoEra,
}

fn play(start: Start, events: &[Event]) -> World {
    let mut world = World::new();
    if start != Start::Empty {
        // The template uses both sources, so that the history can lose running instances and data.
        world.edit(&Edit::Spec { cities: vec![0], replicas: 1, template: 1 });
        world.settle();
    }
    if start == Start::GoEra {
        world.write_as_the_go_operator();
    }
    for event in events {
        match event {
            Event::Act { actor, ages, writes } => world.act(*actor, *ages, *writes),
            Event::Edit(edit) => world.edit(edit),
            Event::Others => world.others(),
            Event::Manual { city, change } => world.change_manually(*city, *change),
        }
        world.check_always();
    }
    world
}

/// Plays one history and settles the world. Checks the end state, and that a further round changes nothing.
fn converges(start: Start, events: &[Event]) -> Result<(), TestCaseError> {
    let mut world = play(start, events);
    world.create_missing_sources();
    world.settle();
    world.check_end();
    prop_assert_eq!(world.round(), 0, "a settled world does not change");
    Ok(())
}

fn history() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(event(), 0..60)
}

// One test for each start, so that they run in parallel. `CONVERGE_CASES` plays 10,000 histories in total.
proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("CONVERGE_CASES").is_some() { 3_334 } else { 60 },
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn empty_world_with_any_history_converges(events in history()) {
        converges(Start::Empty, &events)?;
    }

    #[test]
    fn settled_world_with_any_history_converges(events in history()) {
        converges(Start::Settled, &events)?;
    }

    #[test]
    fn world_of_the_go_operator_with_any_history_converges(events in history()) {
        converges(Start::GoEra, &events)?;
    }
}

/// Covers every point of death in one simple history. All actors stop after `n` writes in total, and then start again.
#[test]
fn controllers_dying_after_any_write_converge() {
    for n in 0..80 {
        let mut world = World::new();
        world.edit(&Edit::Spec { cities: vec![0, 1], replicas: 2, template: 0 });
        world.run_until_write(n);
        world.edit(&Edit::Spec { cities: vec![1], replicas: 1, template: 1 });
        world.run_until_write(n);
        world.edit(&Edit::Delete);
        world.run_until_write(n);
        world.settle();
        world.check_end();
    }
}

/// The number of users rises over the limit of named users, falls to zero and rises again. The process dies at any write.
#[test]
fn companion_with_many_users_is_kept_until_the_last_leaves() {
    for n in 0..24 {
        let mut world = World::new();
        world.edit(&Edit::Spec { cities: vec![0], replicas: 1, template: 0 });
        for (crowd, leaves) in [(40, false), (20, false), (33, true), (0, true), (40, true), (2, true), (0, true)] {
            world.edit(&Edit::Crowd(crowd));
            if leaves {
                world.edit(&Edit::Delete);
            }
            world.run_until_write(n);
        }
        world.settle();
        world.check_end();
    }
}

/// Objects of the Go operator keep their uids and then follow changes of the Workload. The process dies at any write.
#[test]
fn fields_of_the_go_operator_are_taken_over_once_and_follow_changes() {
    let mut initial = World::new();
    initial.edit(&Edit::Spec { cities: vec![0], replicas: 1, template: 1 });
    initial.settle();
    assert!(initial.final_reports > 0, "each of them was checked");
    initial.write_as_the_go_operator();
    let uids = |world: &World| {
        let planes = [&world.now.project, &world.now.hub, &world.now.cell];
        planes.map(|model| {
            let mut uids = model.uids();
            uids.retain(|(kind, ..), _| *kind != Kind::Event);
            uids
        })
    };
    let before = uids(&initial);
    for n in 0..12 {
        let mut world = initial.clone();
        world.run_until_write(n);
        world.settle();
        world.check_end();
        assert_eq!(uids(&world), before, "an object was recreated");
        let taken_over = |model: &model::Model| {
            let events: Vec<Value> = model.all(Kind::Event);
            events.iter().filter(|event| event["reason"] == "FieldsTakenOver").count()
        };
        let sent = (taken_over(&world.now.project), taken_over(&world.now.hub));
        assert!(sent.0 <= 1 && sent.1 <= 1 && (n > 0 || sent == (1, 1)), "died at {n}, Events {sent:?}");
        world.edit(&Edit::Spec { cities: vec![0], replicas: 2, template: 0 });
        world.run_until_write(n);
        world.settle();
        world.check_end();
    }
}
