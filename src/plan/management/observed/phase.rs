//! How far a policy is on its way from claims to dependencies, as it stands.

use serde::{Deserialize, Serialize};

use crate::api::{karmada::PropagationPolicySpec, referenced::SourceKind};

/// How far a policy is on its way from claims to dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// It selects companions, and brings nothing by need.
    Claims,
    /// It does both.
    Both,
    /// It selects deployments alone, whose data follows them.
    Dependencies,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Claims, Self::Both, Self::Dependencies];

    /// The metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::Both => "both",
            Self::Dependencies => "dependencies",
        }
    }

    /// Of a policy that stands.
    pub fn of(spec: &PropagationPolicySpec) -> Self {
        match (selects_companions(spec), spec.propagate_deps) {
            (true, false) => Self::Claims,
            (true, true) => Self::Both,
            (false, _) => Self::Dependencies,
        }
    }
}

/// Whether a policy claims companions.
pub fn selects_companions(spec: &PropagationPolicySpec) -> bool {
    SourceKind::ALL.into_iter().any(|kind| selects(spec, kind))
}

/// Whether a policy claims companions of this kind.
pub fn selects(spec: &PropagationPolicySpec, kind: SourceKind) -> bool {
    spec.resource_selectors.iter().any(|selector| selector.kind == kind.as_str())
}
