//! The snapshot and the decision of a city policy.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    guard,
    migration::probe::{Probe, Problem},
};
use crate::plan::management::observed::phase::Phase;
use crate::{
    api::{compute::WorkloadDeployment, karmada::PropagationPolicy, meta::label, names::CityCode, reason::Reason},
    plan::{
        Hub, Known, Plan, Shared, Write,
        event::{self, Note, Severity},
        ownership,
    },
    timing::Timing,
};

/// True if a policy needs no change for one more deployment with this spelling of its city: it selects the spelling, and is past
/// the migration. It must be needed for other deployments already.
pub fn covers(policy: &PropagationPolicy, spelling: &str) -> bool {
    let templates =
        policy.spec.resource_selectors.iter().filter(|selector| selector.kind == WorkloadDeployment::KIND.gvk().1);
    let mut spellings = templates
        .filter_map(|selector| selector.label_selector.as_ref())
        .flat_map(|selector| selector.values_of(label::TOPOLOGY_CITY));
    ownership::is_managed(policy)
        && policy.metadata.deletion_timestamp.is_none()
        && Phase::of(&policy.spec) == Phase::Dependencies
        && spellings.any(|selected| selected == spelling)
}

/// One city in one hub namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed {
    /// The hub namespace.
    pub namespace: String,
    /// The city.
    pub city: CityCode,
    /// The spellings of the city in its deployments, on the hub and in the project.
    pub spellings: BTreeSet<String>,
    /// Deployments of the city in the hub namespace, terminating ones included.
    pub copies: usize,
    /// True if a deployment of the project that is not terminating is to be copied there.
    pub wanted: bool,
    /// True if every deployment of the mirrored namespace, and every copy in the hub namespace, can be read.
    pub complete: bool,
    /// True if the namespace exists and is not terminating.
    pub namespace_lives: bool,
    /// The policy of the city's name.
    pub policy: Option<Shared<PropagationPolicy>>,
    /// The place of the city. `None` if it is unknown.
    pub place: Option<guard::Observed>,
    /// True if the city guard is on.
    pub guard: bool,
    /// True if every companion in the namespace is known to follow all its users.
    pub delivered_by_dependency: bool,
    /// Number of companions and their bindings that the policy claims.
    pub claimed: usize,
    /// The configured way of companions to the cells.
    pub propagation: Propagation,
    /// The state of the probe. Only the migration to dependencies needs it.
    pub probe: Probe,
    /// The problem of the migration that this policy is to report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// On the rollback to claims: the losses of each city, in words. `None` if they are unknown.
    pub rollback_impact: Option<Vec<String>>,
    /// On the rollback to claims: the companions that it waits for, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollback_waits: Vec<String>,
    /// Periods.
    pub timing: Timing,
}

/// The way of companions to the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// They follow the deployments that need them.
    #[default]
    Dependencies,
    /// The way of the Go operator, for a rollback: each is claimed by one city's policy, and only reaches that city.
    Selectors,
}

/// The facts that a reconcile gathers only if needed: each takes all objects of the hub namespace, or of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Questions {
    /// Progress of the companions between claims and dependencies.
    pub migration: bool,
    /// The state of the probe.
    pub probe: bool,
    /// The losses of the rollback to claims.
    pub rollback: bool,
}

impl Questions {
    /// Returns the questions about a policy in this phase. None are asked while Karmada's state is unknown.
    pub fn of(phase: Option<Phase>, propagation: Propagation, knows_karmada: bool) -> Self {
        let migration = knows_karmada && phase == Some(Phase::Both);
        let to_dependencies = knows_karmada && propagation == Propagation::Dependencies;
        Self {
            migration,
            probe: to_dependencies && phase.is_some_and(|phase| phase != Phase::Dependencies),
            rollback: migration && propagation == Propagation::Selectors,
        }
    }
}

/// The decision about one policy.
pub type Decided = Plan<Write<Hub>, ClaimsGivenUp>;

/// The policy is deleted although it still claims companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimsGivenUp;

/// Reports the next phase of a policy.
pub(super) fn step(observed: &Observed, policy: &PropagationPolicy, phase: Phase, now: Timestamp) -> Write<Hub> {
    let before = Phase::of(&policy.spec);
    let text = format!("companions of {}: from {} to {}", observed.city, before.label(), phase.label());
    let note = Note { severity: Severity::Normal, reason: Reason::MigrationStep, action: "Migrating", text: &text };
    event::on(policy, "city-policy", &note, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_follow_the_phase_of_the_policy() {
        use {
            Phase::{Both, Claims, Dependencies},
            Propagation::{Dependencies as ToDependencies, Selectors},
        };
        for (phase, propagation, migration, probe, rollback) in [
            (None, ToDependencies, false, false, false),
            (Some(Claims), ToDependencies, false, true, false),
            (Some(Both), ToDependencies, true, true, false),
            (Some(Dependencies), ToDependencies, false, false, false),
            (None, Selectors, false, false, false),
            (Some(Claims), Selectors, false, false, false),
            (Some(Both), Selectors, true, false, true),
            (Some(Dependencies), Selectors, false, false, false),
        ] {
            let expected = Questions { migration, probe, rollback };
            assert_eq!(Questions::of(phase, propagation, true), expected, "{phase:?}, {propagation:?}");
            let nothing = Questions { migration: false, probe: false, rollback: false };
            assert_eq!(Questions::of(phase, propagation, false), nothing, "{phase:?}, Karmada's answers are not known");
        }
    }
}
