//! Projects come and go: each that is ready is engaged, and let go when it is gone.

use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use super::{
    registry::{Discovered, ProjectFacts},
    state::Management,
};
use crate::{
    api::{
        names::ProjectName,
        neighbours::{Project, ProjectControlPlane},
    },
    controllers::{Watches, with},
    io::{
        clients::{Connection, ControlPlane, Projects},
        health::Health,
        store::{Change, Store},
    },
    plan::Kind,
};

/// What a project's state asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Engaged,
    Gone,
    /// Whatever it is now.
    AsItIs,
}

/// A project is worked on from when it is ready until it is gone: one that is on its way out still has deployments to
/// be finalised, and one whose readiness flickers must not lose what is known of it. One that is there and cannot be read
/// is not gone: its watch reports it, and it stays as it is.
fn wanted(facts: Option<&ProjectFacts>, is_there: bool) -> Wanted {
    match facts {
        None if is_there => Wanted::AsItIs,
        None => Wanted::Gone,
        Some(facts) if facts.ready || facts.terminating => Wanted::Engaged,
        Some(_) => Wanted::AsItIs,
    }
}

/// Watches projects and engages them, over `projects`, until `stop`.
pub(super) fn start(
    management: &Arc<Management>,
    discovery: Connection,
    projects: Projects,
    internal: bool,
    health: &Health,
    stop: &CancellationToken,
) {
    let store: Arc<Store<ProjectFacts>> = Arc::new(Store::new(|_, _| Vec::new()));
    let weak = Arc::downgrade(management);
    store.listen(move |change| on_project(&weak, &projects, change));
    let plane = ControlPlane::new("discovery", discovery);
    let kind = if internal { Kind::ProjectControlPlane } else { Kind::Project };
    management.projects.discover(Discovered { plane: plane.clone(), kind, projects: store.clone() });
    let watches = Watches {
        plane: &plane,
        health,
        metrics: &management.metrics,
        timing: management.options.timing,
        stop,
        tenant: false,
        on_fresh: Arc::new(|| ()),
    };
    if internal {
        let keep = |p: ProjectControlPlane| ProjectFacts {
            ready: p.is_ready(),
            terminating: p.metadata.deletion_timestamp.is_some(),
        };
        watches.objects::<ProjectControlPlane, _>("", keep, &store);
    } else {
        let keep =
            |p: Project| ProjectFacts { ready: p.is_ready(), terminating: p.metadata.deletion_timestamp.is_some() };
        watches.objects::<Project, _>("", keep, &store);
    }
}

fn on_project(management: &Weak<Management>, projects: &Projects, change: &Change<'_, ProjectFacts>) {
    let name = ProjectName::new(&change.key.name);
    let is_there = |management: &Management| {
        management.projects.discovered().is_some_and(|discovered| discovered.projects.contains(change.key))
    };
    with(management, |management| match wanted(change.new.map(AsRef::as_ref), is_there(management)) {
        Wanted::Gone => management.disengage(&name),
        Wanted::Engaged if !management.is_engaged(&name) => match projects.connect(&name) {
            Ok(connection) => {
                let plane = ControlPlane::new(&format!("project {name}"), connection);
                Management::engage(management, &name, plane, true);
            }
            Err(error) => tracing::error!(project = %name, %error, "project cannot be engaged"),
        },
        Wanted::Engaged | Wanted::AsItIs => {}
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_engaged_from_ready_to_gone() {
        let facts = |ready, terminating| ProjectFacts { ready, terminating };
        for (state, is_there, expected) in [
            (Some(facts(true, false)), true, Wanted::Engaged),
            (Some(facts(false, false)), true, Wanted::AsItIs),
            (Some(facts(false, true)), true, Wanted::Engaged),
            (None, false, Wanted::Gone),
            (None, true, Wanted::AsItIs),
        ] {
            assert_eq!(wanted(state.as_ref(), is_there), expected, "{state:?}, there: {is_there}");
        }
    }
}
