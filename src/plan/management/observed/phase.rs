//! Phase of a policy on the way from claims to dependencies.

use serde::{Deserialize, Serialize};

use crate::api::{karmada::PropagationPolicySpec, referenced::SourceKind};

/// Phase of a policy on the way from claims to dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The policy selects companions, and brings no dependencies.
    Claims,
    /// The policy selects companions, and brings dependencies.
    Both,
    /// The policy selects only deployments, and their data follows them.
    Dependencies,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 3] = [Self::Claims, Self::Both, Self::Dependencies];

    /// Value of the metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::Both => "both",
            Self::Dependencies => "dependencies",
        }
    }

    /// Returns the phase of an existing policy.
    pub fn of(spec: &PropagationPolicySpec) -> Self {
        match (selects_companions(spec), spec.propagate_deps) {
            (true, false) => Self::Claims,
            (true, true) => Self::Both,
            (false, _) => Self::Dependencies,
        }
    }
}

/// True if a policy selects companions.
pub fn selects_companions(spec: &PropagationPolicySpec) -> bool {
    SourceKind::ALL.into_iter().any(|kind| selects(spec, kind))
}

/// True if a policy selects companions of this kind.
pub fn selects(spec: &PropagationPolicySpec, kind: SourceKind) -> bool {
    spec.resource_selectors.iter().any(|selector| selector.kind == kind.as_str())
}
