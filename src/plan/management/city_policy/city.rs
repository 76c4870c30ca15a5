//! A city in one hub namespace, as the plans of its policy see it, and what they decide.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{guard, probe::Probe};
use crate::plan::management::observed::phase::Phase;
use crate::{
    api::{karmada::PropagationPolicy, names::CityCode, reason::Reason},
    plan::{
        Hub, Plan, Shared, Write,
        event::{self, Note, Severity},
    },
    timing::Timing,
};

/// Everything that is known about one city in one hub namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed {
    /// The hub namespace.
    pub namespace: String,
    /// The city.
    pub city: CityCode,
    /// How its deployments spell it, those on the hub and those that are to come there.
    pub spellings: BTreeSet<String>,
    /// Deployments of the city that the hub holds there, also those on their way out.
    pub copies: usize,
    /// Whether a living deployment of a project is to be copied there.
    pub wanted: bool,
    /// Whether that is all: every deployment of the mirrored namespace, and every copy in the hub namespace, can be read.
    pub complete: bool,
    /// Whether the namespace is there, and stays.
    pub namespace_lives: bool,
    /// The policy of the city's name.
    pub policy: Option<Shared<PropagationPolicy>>,
    /// Where the city is; absent while that is not known.
    pub place: Option<guard::Observed>,
    /// Whether the city guard is on.
    pub guard: bool,
    /// Whether every companion in the namespace is known to be brought to all its consumers by their need.
    pub delivered_by_dependency: bool,
    /// Companions, and bindings of such, that the policy claims.
    pub claimed: usize,
    /// How long nobody has needed it.
    pub unneeded_for: Duration,
    /// Whether it has been reported that it waits for those companions.
    pub wait_is_reported: bool,
    /// How companions are to be brought to the cells.
    pub propagation: Propagation,
    /// Whether Karmada brings dependencies at all; only asked on the way there.
    pub probe: Probe,
    /// On the rollback to claims: what some city will lose by it, in words, and how long ago that was reported. Nothing while
    /// it is not known.
    pub rollback_impact: Option<(Vec<String>, Option<Duration>)>,
    /// What keeps that from being known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_wait: Option<RollbackWait>,
    /// How long to wait for what.
    pub timing: Timing,
}

/// A rollback to claims that cannot go on yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackWait {
    /// The companions that it waits for, in words.
    pub companions: Vec<String>,
    /// For how long.
    pub lasted: Duration,
    /// Whether that has been reported.
    pub reported: bool,
    /// The other policies on the hub that wait so, for the report speaks of all.
    #[serde(default)]
    pub others: OthersWaiting,
}

/// The other policies that wait as one does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OthersWaiting {
    /// How many there are.
    pub count: usize,
    /// The first of them, with what each waits for, in words.
    pub first: Vec<String>,
}

/// What a policy waits for, in words: this many of the companions, and how many more.
pub fn named(companions: &[String], most: usize) -> String {
    let named: Vec<&str> = companions.iter().take(most).map(String::as_str).collect();
    match companions.len().saturating_sub(most) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// How companions are brought to the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// They follow the deployments that need them.
    #[default]
    Dependencies,
    /// The Go operator's way, for going back to it: each is claimed by one city's policy, and reaches that city alone.
    Selectors,
}

/// What a look at a policy is to find out beside the plain facts: it takes going over all that the hub namespace, or the
/// hub, holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Questions {
    /// How far companions are on the way between claims and dependencies.
    pub migration: bool,
    /// Whether Karmada brings dependencies, for a policy that is this far on its way there.
    pub probe: Option<Phase>,
    /// What the rollback to claims takes away.
    pub rollback: bool,
}

impl Questions {
    /// Those about a policy in this phase; nothing of what Karmada makes of things is asked while that is not known.
    pub fn of(phase: Option<Phase>, propagation: Propagation, knows_karmada: bool) -> Self {
        let migration = knows_karmada && phase == Some(Phase::Both);
        let to_dependencies = knows_karmada && propagation == Propagation::Dependencies;
        Self {
            migration,
            probe: phase.filter(|phase| to_dependencies && *phase != Phase::Dependencies),
            rollback: migration && propagation == Propagation::Selectors,
        }
    }
}

/// What is decided about one policy.
pub type Decided = Plan<Write<Hub>, Signal>;

/// What is reported about a policy, once: to be remembered or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Nobody needs it, and it waits for companions that it claims.
    Waits,
    /// It goes although companions are still claimed by it.
    GaveUp,
    /// Going back to claims will take data away.
    Warned,
    /// Going back to claims waits for companions.
    RollbackWaits,
    /// Karmada does not bring dependencies.
    Refused,
    /// Karmada cannot be asked whether it does.
    NobodyToAsk,
}

/// Says how far a policy gets with this look.
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
    fn only_what_a_policy_on_its_way_needs_is_found_out() {
        use {
            Phase::{Both, Claims, Dependencies},
            Propagation::{Dependencies as ToDependencies, Selectors},
        };
        for (phase, propagation, migration, probe, rollback) in [
            (None, ToDependencies, false, None, false),
            (Some(Claims), ToDependencies, false, Some(Claims), false),
            (Some(Both), ToDependencies, true, Some(Both), false),
            (Some(Dependencies), ToDependencies, false, None, false),
            (None, Selectors, false, None, false),
            (Some(Claims), Selectors, false, None, false),
            (Some(Both), Selectors, true, None, true),
            (Some(Dependencies), Selectors, false, None, false),
        ] {
            let expected = Questions { migration, probe, rollback };
            assert_eq!(Questions::of(phase, propagation, true), expected, "{phase:?}, {propagation:?}");
            let nothing = Questions { migration: false, probe: None, rollback: false };
            assert_eq!(Questions::of(phase, propagation, false), nothing, "{phase:?}, Karmada's answers are not known");
        }
    }
}
