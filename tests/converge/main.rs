//! Properties of the plans over generated worlds: whatever order things happen in, whichever snapshot is stale, after
//! whichever write a manager dies, the world converges, and then stays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
// A model reads best as tables of cases; it is no API to be kept cheap.
#![allow(clippy::match_bool, clippy::needless_pass_by_value)]

mod actors;
mod companions;
mod data;
#[path = "../oracle/look.rs"]
mod look;
mod model;
mod world;

use compute_operator::plan::Kind;
use proptest::prelude::*;
use serde_json::Value;
use world::{Actor, Ages, Edit, Vandalism, World};

#[derive(Clone, Debug)]
enum Event {
    /// An actor looks (at each kind of each plane as it is, or as it was so many events ago) and dies after so many writes.
    Act { actor: Actor, ages: Ages, writes: usize },
    /// The user changes the Workload.
    Edit(Edit),
    /// Karmada, garbage collection and the provider move on.
    Others,
    /// Somebody deletes or edits what is ours.
    Vandal { city: usize, what: Vandalism },
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
    let what = prop_oneof![
        Just(Vandalism::Policy),
        Just(Vandalism::Copy),
        Just(Vandalism::WriteBack),
        Just(Vandalism::Projection),
        Just(Vandalism::EditProjection),
        Just(Vandalism::EditDeployment),
        Just(Vandalism::EditCopy),
        // No decision rests on the words of a condition.
        Just(Vandalism::Messages),
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
    // Mostly a little behind, now and then so far that whole lives have been missed.
    let age = || prop_oneof![4 => 0..6_usize, 1 => 6..60_usize];
    let kinds = || proptest::array::uniform8(age());
    let ages = ([kinds(), kinds(), kinds()], age()).prop_map(|(kinds, bound)| Ages { kinds, bound });
    prop_oneof![
        12 => (actor, ages, 0..4_usize).prop_map(|(actor, ages, writes)| Event::Act { actor, ages, writes }),
        2 => edit.prop_map(Event::Edit),
        4 => Just(Event::Others),
        1 => (0..3_usize, what).prop_map(|(city, what)| Event::Vandal { city, what }),
    ]
}

/// How a world begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Empty,
    Settled,
    /// Everything runs, and the Go operator's plain updates have written it.
    OfGo,
}

fn play(start: Start, events: &[Event]) -> World {
    let mut world = World::new();
    if start != Start::Empty {
        // With everything running, on all the data there is, there is more to lose.
        world.edit(&Edit::Spec { cities: vec![0], replicas: 1, template: 1 });
        world.settle();
    }
    if start == Start::OfGo {
        world.as_go_left_it();
    }
    for event in events {
        match event {
            Event::Act { actor, ages, writes } => world.act(*actor, *ages, *writes),
            Event::Edit(edit) => world.edit(edit),
            Event::Others => world.others(),
            Event::Vandal { city, what } => world.vandal(*city, *what),
        }
        world.check_always();
    }
    world
}

/// Plays one history to its end, and looks whether all is as wanted there, and stays so.
fn converges(start: Start, events: &[Event]) -> Result<(), TestCaseError> {
    let mut world = play(start, events);
    world.mend_sources();
    world.settle();
    world.check_end();
    prop_assert_eq!(world.round(), 0, "what has settled stays");
    Ok(())
}

fn history() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(event(), 0..60)
}

// One test for each beginning, so that they run side by side. `CONVERGE_CASES` plays 10,000 histories in all.
proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("CONVERGE_CASES").is_some() { 3_334 } else { 60 },
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_history_from_nothing_ends_as_wanted(events in history()) {
        converges(Start::Empty, &events)?;
    }

    #[test]
    fn every_history_of_what_has_settled_ends_as_wanted(events in history()) {
        converges(Start::Settled, &events)?;
    }

    #[test]
    fn every_history_of_what_another_operator_left_ends_as_wanted(events in history()) {
        converges(Start::OfGo, &events)?;
    }
}

/// Every point of death of one plain history: after the n-th write of each actor in turn, everything starts anew.
#[test]
fn death_after_any_write_changes_nothing_of_the_end() {
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

/// A companion gets more users than it names, fewer again, none, and a crowd once more; wherever the process dies.
#[test]
fn a_companion_of_a_crowd_lives_as_long_as_anybody_uses_it() {
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

/// What the Go operator wrote runs on as it is, and follows from then on; wherever the process dies on the way.
#[test]
fn what_another_operator_wrote_is_taken_over_once_and_follows() {
    let mut begun = World::new();
    begun.edit(&Edit::Spec { cities: vec![0], replicas: 1, template: 1 });
    begun.settle();
    begun.as_go_left_it();
    let uids = |world: &World| {
        let planes = [&world.now.project, &world.now.hub, &world.now.cell];
        planes.map(|model| {
            let mut uids = model.uids();
            uids.retain(|(kind, ..), _| *kind != Kind::Event);
            uids
        })
    };
    let before = uids(&begun);
    for n in 0..12 {
        let mut world = begun.clone();
        world.run_until_write(n);
        world.settle();
        world.check_end();
        assert_eq!(uids(&world), before, "nothing is made anew");
        let told = |model: &model::Model| {
            let events: Vec<Value> = model.all(Kind::Event);
            events.iter().filter(|event| event["reason"] == "FieldsTakenOver").count()
        };
        let told = (told(&world.now.project), told(&world.now.hub));
        assert!(told.0 <= 1 && told.1 <= 1 && (n > 0 || told == (1, 1)), "dead at {n}, told {told:?}");
        world.edit(&Edit::Spec { cities: vec![0], replicas: 2, template: 0 });
        world.run_until_write(n);
        world.settle();
        world.check_end();
    }
}
