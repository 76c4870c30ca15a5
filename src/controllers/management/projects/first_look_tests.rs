use super::*;
use crate::{
    api::{meta::label, referenced::SourceKind},
    controllers::management::{
        Options, Parts,
        fixtures::{deployment, namespace, nobody, project},
    },
    io::health::Health,
    metrics::Metrics,
    plan::Proof,
};
use std::convert::identity;

/// A hub that holds copies of so many deployments, which a project has until `missing` of them are not there.
struct World {
    parts: Parts,
    name: ProjectName,
}

impl World {
    fn new(copies: usize, missing: usize) -> Self {
        let parts = Parts::new(nobody(), Options::of_tests(), Health::default(), Metrics::default());
        let (hub, name) = (&parts.hub, ProjectName::new("shop"));
        parts.losses.guard_hub(hub, &parts.projects);
        let named = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
        hub.namespaces.replace(vec![namespace("ns-u", "h", &named)], 1);
        hub.copies.replace((0..copies).map(|n| deployment("ns-u", &format!("api-{n}"))).collect(), 1);
        hub.policies.replace(Vec::new(), 1);
        let project = project("shop");
        let there = (missing..copies).map(|n| deployment("web", &format!("api-{n}")));
        project.deployments.replace(there.collect(), 1);
        parts.projects.insert(project);
        Self { parts, name }
    }

    /// The hub's last list comes in.
    fn sync(&self) {
        for kind in SourceKind::ALL {
            self.parts.hub.companions(kind).replace(Vec::new(), 1);
        }
    }

    /// Whether a deletion on the hub is held back, rather than sent to a server that does not answer.
    async fn holds(&self) -> bool {
        let copy = self.parts.hub.copy(&ObjectKey::new("ns-u", "api-0")).unwrap();
        let delete = Proof::of_target().delete(&copy, identity).into_steps();
        let deleted = self.parts.hub.plane.execute(&delete[0]).await;
        matches!(deleted, Err(crate::io::Error::Held(_)))
    }
}

/// Found by reading: where the manager's own Lease lay in the etcd that was restored, the manager began anew, missed nothing,
/// and every copy without its original went.
#[tokio::test]
async fn what_a_manager_that_begins_does_not_find_is_missed_by_its_copies() {
    for (copies, missing, held) in [(12, 12, true), (12, 10, true), (12, 9, false), (60, 10, false), (12, 0, false)] {
        let world = World::new(copies, missing);
        world.sync();
        assert_eq!(world.holds().await, held, "{missing} of {copies}");
        assert_eq!(world.parts.losses.holds_project(&world.name), held, "{missing} of {copies}");
    }
}

#[tokio::test]
async fn nothing_goes_before_it_was_compared_and_it_is_compared_once() {
    let world = World::new(12, 0);
    assert!(world.holds().await, "the hub is not known yet");
    world.sync();
    assert!(!world.holds().await);
    // What goes from now on is for the watch to miss.
    let project = world.parts.projects.get(&world.name).unwrap();
    project.deployments.replace(Vec::new(), 2);
    assert!(!world.holds().await);
    // Another project in the place of this one is compared anew.
    world.parts.losses.forget(&world.name);
    assert!(world.holds().await);
    // They are back, but in another namespace of the name they are others.
    project.deployments.replace((0..12).map(|n| deployment("web", &format!("api-{n}"))).collect(), 3);
    let first = FirstLook::new(&world.parts.hub, &world.parts.projects);
    let of = |uid: &str| Lost { key: ObjectKey::new("web", "api-3"), uid: uid.into() };
    let is_there = first.is_there(&world.name);
    assert!(is_there(&of("u")) && !is_there(&of("earlier")));
}

/// Found by reading: where the namespace was deleted and made anew since the backup, with deployments of the same names, nobody
/// missed what the hub holds of the later one, and all of it went.
#[tokio::test]
async fn the_original_of_a_copy_is_in_the_namespace_whose_uid_the_hubs_has() {
    for (uid, held) in [("u", false), ("earlier", true)] {
        let world = World::new(12, 0);
        let project = world.parts.projects.get(&world.name).unwrap();
        project.namespaces.replace(vec![namespace("web", uid, &[])], 2);
        world.sync();
        assert_eq!(world.holds().await, held, "{uid}");
    }
}

/// Found by reading: for a moment a project had been compared and what it misses was not noted yet, and a worker that asked just
/// then deleted.
#[tokio::test]
async fn nobody_learns_that_a_project_was_compared_before_what_it_misses_is_noted() {
    const WORKERS: usize = 8;
    for _ in 0..20 {
        let world = World::new(200, 200);
        world.sync();
        let start = std::sync::Barrier::new(WORKERS);
        let held = || {
            start.wait();
            world.parts.losses.holds_project(&world.name)
        };
        let all: Vec<bool> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(held)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(all, [true; WORKERS]);
    }
}
