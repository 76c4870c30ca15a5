//! Two projects with a namespace of one uid: the data of one's control plane was made from the other's.
//!
//! On the hub, everything is found by that uid. What one of them has there the other would take for its own, and the Secrets
//! of one tenant would come to run with the other. So it is his whom the hub namespace names, for as long as he may have it,
//! and of the other nothing goes there. Who is named first stays named, whoever restarts; and where
//! he seems to be gone, what he has there goes first, by its own proof and after its own grace ([`table`](crate::plan::management::collector::table)).

use serde::{Deserialize, Serialize};

use super::engagement::Mirrored;
use crate::{api::names::ProjectName, plan::NamespaceFacts};

/// Another project that a hub namespace mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rival {
    /// It has a namespace of that uid.
    Lives,
    /// Nobody knows whether it has.
    Possible,
}

impl Rival {
    /// What a deployment's tenant is told. Who the other is, is none of his business.
    pub const WORDS: &str = "the namespace there belongs to another project, whose control plane has a namespace of the same uid: \
                             the data of one of the two was made from the other's";
}

/// What is known of whom a hub namespace names.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Whether he has a namespace of that uid.
    pub mirrored: Mirrored,
    /// Whether something of his may be in the hub namespace.
    pub has_content: bool,
}

/// The rival of a project at a hub namespace; `other`: whom that one names. Where no projects are discovered there is but one,
/// and a name that is not its own is a slip of somebody's hand.
pub fn of(facts: Option<&NamespaceFacts>, project: &ProjectName, other: Named, discovers: bool) -> Option<Rival> {
    let (named, _) = facts?.upstream()?;
    match other.mirrored {
        _ if named == *project || !discovers => None,
        Mirrored::Lives => Some(Rival::Lives),
        Mirrored::Unknown => Some(Rival::Possible),
        // A cache has not seen it, and that may pass: what runs there is not taken for that.
        Mirrored::ProjectGone(_) | Mirrored::NamespaceGone => other.has_content.then_some(Rival::Possible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::meta::label, plan::Kind};

    #[test]
    fn whom_a_hub_namespace_names_has_it_for_as_long_as_he_may() {
        let named = |project: &str| {
            let labels =
                [(label::UPSTREAM_CLUSTER, format!("cluster-{project}")), (label::UPSTREAM_NAMESPACE, "web".into())];
            let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
            NamespaceFacts { labels, ..NamespaceFacts::default() }
        };
        let (ours, theirs, nobodys) = (named("shop"), named("other"), NamespaceFacts::default());
        let gone = Mirrored::ProjectGone(Kind::Namespace);
        let possible = Some(Rival::Possible);
        for (what, facts, mirrored, discovers, expected) in [
            ("the other lives", Some(&theirs), Mirrored::Lives, true, [Some(Rival::Lives); 2]),
            ("nobody knows of the other", Some(&theirs), Mirrored::Unknown, true, [possible; 2]),
            ("the other is gone", Some(&theirs), gone, true, [None, possible]),
            ("he has another namespace of that name", Some(&theirs), Mirrored::NamespaceGone, true, [None, possible]),
            ("there is but one project", Some(&theirs), Mirrored::Unknown, false, [None; 2]),
            ("it is its own", Some(&ours), Mirrored::Lives, true, [None; 2]),
            ("it names nobody", Some(&nobodys), Mirrored::Unknown, true, [None; 2]),
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
