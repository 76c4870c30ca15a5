//! Two projects that have a namespace of the same uid: the data of one control plane was made from the other's.
//!
//! Everything on the hub is found by that uid. Each of the projects would take the other's objects for its own, and the Secrets
//! of one tenant would reach the containers of the other. So the hub namespace belongs to the project named in its labels while
//! that project may exist. The other project writes nothing there. A restart does not change which project is named. If the named
//! project seems to be gone, its objects are deleted first, with their own proof and grace period
//! ([`table`](crate::plan::management::collector::table)).

use serde::{Deserialize, Serialize};

use super::engagement::Mirrored;
use crate::{api::names::ProjectName, plan::NamespaceFacts};

/// Another project that a hub namespace belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rival {
    /// The other project has a namespace of that uid.
    Lives,
    /// The other project may have a namespace of that uid.
    Possible,
}

impl Rival {
    /// Message for the tenant of a deployment. It does not name the other project, which the tenant must not learn.
    pub const WORDS: &str = "the namespace there belongs to another project, whose control plane has a namespace of the \
         same uid: one of the two was created from the other's data";
}

/// Known state of the project that a hub namespace names.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// State of its namespace of that uid.
    pub mirrored: Mirrored,
    /// True if the hub namespace may contain objects of that project.
    pub has_content: bool,
}

/// Returns the rival of a project at a hub namespace. `other` is the project that the hub namespace names. Without discovery
/// there is only one project, and another name in the labels is a user's mistake.
pub fn of(facts: Option<&NamespaceFacts>, project: &ProjectName, other: Named, discovers: bool) -> Option<Rival> {
    let (named, _) = facts?.upstream()?;
    match other.mirrored {
        _ if named == *project || !discovers => None,
        Mirrored::Lives => Some(Rival::Lives),
        Mirrored::Unknown => Some(Rival::Possible),
        // A cache may lack the namespace only for a while. So running objects of the other project are not taken over.
        Mirrored::ProjectGone(_) | Mirrored::NamespaceGone => other.has_content.then_some(Rival::Possible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::meta::label, plan::Kind};

    #[test]
    fn rival_named_project_keeps_hub_namespace_while_it_may_exist() {
        let named = |project: &str| {
            let labels =
                [(label::UPSTREAM_CLUSTER, format!("cluster-{project}")), (label::UPSTREAM_NAMESPACE, "web".into())];
            let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
            NamespaceFacts { labels, ..NamespaceFacts::default() }
        };
        let (ours, theirs, unnamed) = (named("shop"), named("other"), NamespaceFacts::default());
        let gone = Mirrored::ProjectGone(Kind::Namespace);
        let possible = Some(Rival::Possible);
        for (what, facts, mirrored, discovers, expected) in [
            ("the other lives", Some(&theirs), Mirrored::Lives, true, [Some(Rival::Lives); 2]),
            ("the other is unknown", Some(&theirs), Mirrored::Unknown, true, [possible; 2]),
            ("the other is gone", Some(&theirs), gone, true, [None, possible]),
            (
                "the other has another namespace of that name",
                Some(&theirs),
                Mirrored::NamespaceGone,
                true,
                [None, possible],
            ),
            ("there is but one project", Some(&theirs), Mirrored::Unknown, false, [None; 2]),
            ("it is its own", Some(&ours), Mirrored::Lives, true, [None; 2]),
            ("it names no project", Some(&unnamed), Mirrored::Unknown, true, [None; 2]),
            ("it is not there", None, Mirrored::Unknown, true, [None; 2]),
        ] {
            for (has_content, expected) in [false, true].into_iter().zip(expected) {
                let other = Named { mirrored, has_content };
                let found = of(facts, &ProjectName::new("shop"), other, discovers);
                assert_eq!(found, expected, "{what}, content: {has_content}");
            }
        }
    }
}
