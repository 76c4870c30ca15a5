//! Lifecycle of projects: the ones that the operator works on, and the ones that are known not to exist.

use serde::{Deserialize, Serialize};

use crate::plan::Kind;

/// Existence of a project, as discovery knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Existence {
    /// The project exists. It may be unreadable.
    Exists,
    /// Discovery does not follow the projects at present, or is not configured.
    Unknown,
    /// The project does not exist. An object of this kind would represent it.
    Absent(Kind),
}

/// State of the namespace that a hub namespace mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mirrored {
    /// The state is not known at present.
    Unknown,
    /// The project has the namespace, with the uid in the hub namespace's name.
    Lives,
    /// The project does not exist. An object of this kind would represent it.
    ProjectGone(Kind),
    /// The project has no namespace of that name with that uid.
    NamespaceGone,
}

/// Facts of a discovered project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFacts {
    /// Uid. A recreated project of the same name gets another one.
    pub uid: String,
    /// True if its control plane is ready.
    pub ready: bool,
    /// True if it is terminating.
    pub terminating: bool,
}

/// Snapshot of one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Facts of the project. `None` if it is gone or unreadable.
    pub facts: Option<ProjectFacts>,
    /// True if the project exists, readable or not.
    pub is_there: bool,
    /// Uid of the engaged project of this name. `None` if none is engaged.
    pub engaged: Option<String>,
}

/// Decision about a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start working on it.
    Engage,
    /// Stop working on it: it is gone.
    Disengage,
    /// Stop working on the engaged project, which is gone, and start with the new one of the same name.
    Replace,
    /// Change nothing.
    Stay,
}

/// Decides whether the operator works on a project. It does from when the project is ready until the project is gone. A
/// terminating project still has deployments to finalize. A project that becomes unready keeps its caches. A project that exists
/// and is unreadable is not gone: its watch reports it, and nothing changes.
pub fn decide(observed: &Observed) -> Decision {
    let Some(facts) = &observed.facts else {
        return if observed.is_there { Decision::Stay } else { Decision::Disengage };
    };
    let works = facts.ready || facts.terminating;
    match &observed.engaged {
        None if works => Decision::Engage,
        Some(engaged) if *engaged != facts.uid && works => Decision::Replace,
        Some(engaged) if *engaged != facts.uid => Decision::Disengage,
        _ => Decision::Stay,
    }
}

/// State of discovery for one project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Kind of object that represents a project.
    pub kind: Kind,
    /// True if discovery has the project, readable or not.
    pub has_it: bool,
    /// True if discovery follows the projects at present.
    pub live: bool,
}

/// Returns the existence of a project. An engaged project exists. Absence is known only while discovery follows the projects.
pub fn existence(engaged: bool, discovery: Option<Discovery>) -> Existence {
    match discovery {
        _ if engaged => Existence::Exists,
        Some(discovery) if discovery.has_it => Existence::Exists,
        Some(discovery) if discovery.live => Existence::Absent(discovery.kind),
        _ => Existence::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_from_ready_until_gone_is_engaged() {
        let facts = |ready, terminating| Some(ProjectFacts { uid: "u".into(), ready, terminating });
        for (facts, is_there, idle, engaged) in [
            (facts(true, false), true, Decision::Engage, Decision::Stay),
            (facts(false, false), true, Decision::Stay, Decision::Stay),
            (facts(false, true), true, Decision::Engage, Decision::Stay),
            (facts(true, true), true, Decision::Engage, Decision::Stay),
            (None, false, Decision::Disengage, Decision::Disengage),
            (None, true, Decision::Stay, Decision::Stay),
        ] {
            for (expected, engaged) in [(idle, None), (engaged, Some("u".to_owned()))] {
                let observed = Observed { facts: facts.clone(), is_there, engaged };
                assert_eq!(decide(&observed), expected, "{observed:?}");
            }
        }
    }

    /// A project that was deleted and recreated without an event kept the caches of the deleted one.
    #[test]
    fn project_recreated_with_same_name_replaces_the_engaged_one() {
        let facts = |ready| Some(ProjectFacts { uid: "new".into(), ready, terminating: false });
        for (ready, expected) in [(true, Decision::Replace), (false, Decision::Disengage)] {
            let observed = Observed { facts: facts(ready), is_there: true, engaged: Some("old".into()) };
            assert_eq!(decide(&observed), expected, "{observed:?}");
        }
    }

    #[test]
    fn project_is_absent_only_if_live_discovery_lacks_it() {
        let kind = Kind::ProjectControlPlane;
        let discovered = |has_it, live| Some(Discovery { kind, has_it, live });
        for (engaged, discovery, expected) in [
            (true, discovered(false, true), Existence::Exists),
            (true, None, Existence::Exists),
            (false, discovered(true, true), Existence::Exists),
            (false, discovered(true, false), Existence::Exists),
            (false, discovered(false, true), Existence::Absent(kind)),
            (false, discovered(false, false), Existence::Unknown),
            (false, None, Existence::Unknown),
        ] {
            assert_eq!(existence(engaged, discovery), expected, "engaged: {engaged}, {discovery:?}");
        }
    }
}
