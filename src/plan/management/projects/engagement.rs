//! Which projects are worked on, and which are known not to exist.

use serde::{Deserialize, Serialize};

use crate::plan::Kind;

/// What discovery knows of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Existence {
    /// There is such a project, or one that cannot be read.
    Exists,
    /// Nobody knows: discovery does not follow the projects at present, or there is none to ask.
    Unknown,
    /// There is no such project, which would be one of this kind.
    Absent(Kind),
}

/// What is known of the original of a hub namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mirrored {
    /// Nobody knows at present.
    Unknown,
    /// The project has the namespace, with the uid in the hub namespace's name.
    Lives,
    /// There is no such project, which would be one of this kind.
    ProjectGone(Kind),
    /// The project has no namespace of that name with that uid.
    NamespaceGone,
}

/// What is kept of a project where projects are discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFacts {
    /// Its uid: another project of its name has another.
    pub uid: String,
    /// Whether its control plane can be worked with.
    pub ready: bool,
    /// Whether it is on its way out.
    pub terminating: bool,
}

/// What is known of one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What it says; nothing when it is gone, or cannot be read.
    pub facts: Option<ProjectFacts>,
    /// Whether it is there, be it readable or not.
    pub is_there: bool,
    /// The uid of the project of this name that is worked on, if one is.
    pub engaged: Option<String>,
}

/// What becomes of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is worked on from now on.
    Engage,
    /// It is gone, and let go.
    Disengage,
    /// The one that is worked on is gone, and let go; its namesake is worked on from now on.
    Replace,
    /// It stays as it is.
    Stay,
}

/// A project is worked on from when it is ready until it is gone: one that is on its way out still has deployments to
/// be finalised, and one whose readiness flickers must not lose what is known of it. One that is there and cannot be read
/// is not gone: its watch reports it, and it stays as it is.
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

/// What discovery knows, where there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// What a project is there.
    pub kind: Kind,
    /// Whether it has the project, be it readable or not.
    pub has_it: bool,
    /// Whether it follows the projects at present.
    pub live: bool,
}

/// Whether a project exists. One that is worked on does; that one does not is only known while discovery follows them.
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
    fn a_project_is_engaged_from_ready_to_gone() {
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

    /// Found by reading: a project that was deleted and made anew while no event could tell kept the caches of the old one.
    #[test]
    fn a_namesake_is_another_project() {
        let facts = |ready| Some(ProjectFacts { uid: "new".into(), ready, terminating: false });
        for (ready, expected) in [(true, Decision::Replace), (false, Decision::Disengage)] {
            let observed = Observed { facts: facts(ready), is_there: true, engaged: Some("old".into()) };
            assert_eq!(decide(&observed), expected, "{observed:?}");
        }
    }

    #[test]
    fn absent_is_only_what_discovery_knows_to_be() {
        let kind = Kind::ProjectControlPlane;
        let of = |has_it, live| Some(Discovery { kind, has_it, live });
        for (engaged, discovery, expected) in [
            (true, of(false, true), Existence::Exists),
            (true, None, Existence::Exists),
            (false, of(true, true), Existence::Exists),
            (false, of(true, false), Existence::Exists),
            (false, of(false, true), Existence::Absent(kind)),
            (false, of(false, false), Existence::Unknown),
            (false, None, Existence::Unknown),
        ] {
            assert_eq!(existence(engaged, discovery), expected, "engaged: {engaged}, {discovery:?}");
        }
    }
}
