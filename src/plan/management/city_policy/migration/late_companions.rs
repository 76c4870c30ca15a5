//! Evidence of Karmada issue 6924: late dependencies are ignored.
//!
//! Karmada before 1.15.3 noticed only the first of several companions of one kind. It compared a change with the recorded
//! dependencies of a binding, and stopped at the first name of the same kind (fixed by 6931). A second ConfigMap that was created
//! after the binding reached no cell, and neither did a change of it. Only a hub with such a companion shows if Karmada has the bug.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::referenced::{DataRef, MAX_SOURCE_NAME};
use crate::plan::management::{
    observed::facts::{BindingFacts, CompanionFacts},
    referenced_data::residue,
};

/// No version of Karmada delivers a longer name (fact 63).
const LONGEST_NAME: usize = MAX_SOURCE_NAME;

/// Delivery of a companion that was created after Karmada had processed the first of its kind. The worst one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LateDelivery {
    /// Karmada delivers it.
    Brought,
    /// Karmada does not deliver it yet.
    Awaited,
    /// Karmada has not delivered it in time.
    Missed,
}

impl LateDelivery {
    /// True if there is no evidence of Karmada issue 6924.
    pub fn is_well(seen: Option<Self>) -> bool {
        !matches!(seen, Some(Self::Awaited | Self::Missed))
    }
}

/// A companion on the hub, and its binding as far as it has one.
pub type Known = (Arc<CompanionFacts>, Option<Arc<BindingFacts>>);

/// Returns the evidence of one deployment with the binding `binding`, named `parent`. `None` if no companion came late, or if
/// delivery failed for another reason: the binding terminates, or no cluster that lacks the companion is ready. `timeout` is the
/// longest time that Karmada may take.
pub fn observe(
    parent: &str,
    binding: &BindingFacts,
    known: impl Fn(&DataRef) -> Option<Known>,
    is_ready: impl Fn(&str) -> bool,
    timeout: Duration,
    now: Timestamp,
) -> Option<LateDelivery> {
    let taken = binding.shows_dependencies() && !binding.clusters.is_empty();
    let listed = binding.dependencies.as_deref().filter(|_| taken)?;
    let taken_up = binding.changed?;
    let others = listed.iter().enumerate().filter(|(n, of)| listed[..*n].iter().any(|before| before.kind == of.kind));
    let seen = others.filter(|(_, of)| of.name.len() <= LONGEST_NAME).filter_map(|(_, data_ref)| {
        let (companion, attached) = known(data_ref).filter(|(companion, _)| !companion.terminating)?;
        // A later write to the binding would make Karmada read all of them again.
        let created = companion.created.filter(|created| *created > taken_up)?;
        if attached.as_ref().is_some_and(|of| of.terminating) {
            return None;
        }
        let lacks =
            |clusters: &[String]| attached.as_ref().is_none_or(|of| residue::is_needed(of, parent, Some(clusters)));
        if !lacks(&binding.clusters) {
            return Some(LateDelivery::Brought);
        }
        let ready: Vec<String> = binding.clusters.iter().filter(|cluster| is_ready(cluster)).cloned().collect();
        if ready.is_empty() || !lacks(&ready) {
            return None;
        }
        let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
        Some(if age > timeout { LateDelivery::Missed } else { LateDelivery::Awaited })
    });
    seen.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::karmada::{BindingSnapshot, TargetCluster};

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000 + seconds).unwrap()
    }

    /// A binding that was last written to at 10, and depends on two ConfigMaps and a Secret.
    fn parent() -> BindingFacts {
        BindingFacts {
            changed: Some(at(10)),
            clusters: vec!["cell-dfw".into()].into(),
            propagates: true,
            distributed: true,
            dependencies: Some(vec![DataRef::config_map("one"), DataRef::config_map("two"), DataRef::secret("key")])
                .into(),
            ..BindingFacts::default()
        }
    }

    fn companion(created: i64) -> CompanionFacts {
        CompanionFacts { created: Some(at(created)), ..CompanionFacts::default() }
    }

    fn attached(clusters: &[&str]) -> BindingFacts {
        let clusters = clusters.iter().map(|name| TargetCluster { name: (*name).into() }).collect();
        let required_by = vec![BindingSnapshot { name: "web".into(), clusters }];
        BindingFacts { required_by, ..BindingFacts::default() }
    }

    /// The evidence at second `now`, with the given ConfigMap. All other companions are old.
    fn see(name: &str, companion_: &CompanionFacts, of: Option<&BindingFacts>, now: i64) -> Option<LateDelivery> {
        let known = |data_ref: &DataRef| {
            Some(if data_ref.name == name {
                (Arc::new(companion_.clone()), of.cloned().map(Arc::new))
            } else {
                (Arc::new(companion(0)), Some(Arc::new(attached(&["cell-dfw"]))))
            })
        };
        super::observe("web", &parent(), known, |_| true, TIMEOUT, at(now))
    }

    #[test]
    fn late_companion_shows_if_karmada_notices_it() {
        let there = attached(&["cell-dfw"]);
        let (late, elsewhere) = (companion(20), attached(&["cell-ord"]));
        let cases = [
            ("it was there before: the binding itself had it brought", "two", companion(5), Some(&there), 99, None),
            ("it is brought", "two", late.clone(), Some(&there), 99, Some(LateDelivery::Brought)),
            ("the first of its kind is always heard of", "one", late.clone(), None, 99, None),
            ("so is one of another kind", "key", late.clone(), None, 99, None),
            ("Karmada may take its time", "two", late.clone(), None, 50, Some(LateDelivery::Awaited)),
            ("and has had it", "two", late.clone(), None, 51, Some(LateDelivery::Missed)),
            ("elsewhere is not there", "two", late.clone(), Some(&elsewhere), 51, Some(LateDelivery::Missed)),
        ];
        for (what, name, companion, attached, now, expected) in cases {
            assert_eq!(see(name, &companion, attached, now), expected, "{what}");
        }
    }

    /// One blocked companion, or one unavailable cluster, counted as a failure of Karmada.
    #[test]
    fn late_companion_undelivered_for_another_reason_shows_nothing() {
        let going = BindingFacts { terminating: true, ..attached(&[]) };
        assert_eq!(see("two", &companion(20), Some(&going), 99), None);
        let on_both = BindingFacts { clusters: vec!["cell-dfw".into(), "cell-ord".into()].into(), ..parent() };
        let of = |brought_to: &[&str], ready: &[&str]| {
            let late = |data_ref: &DataRef| {
                let clusters = if data_ref.name == "two" { brought_to } else { &["cell-dfw", "cell-ord"] };
                Some((Arc::new(companion(20)), Some(Arc::new(attached(clusters)))))
            };
            super::observe("web", &on_both, late, |cluster| ready.contains(&cluster), TIMEOUT, at(99))
        };
        for (what, brought_to, ready, expected) in [
            ("it lacks where nobody answers", &["cell-dfw"][..], &["cell-dfw"][..], None),
            ("nobody answers at all", &[], &[], None),
            ("it lacks where somebody answers", &["cell-dfw"], &["cell-dfw", "cell-ord"], Some(LateDelivery::Missed)),
            ("it lacks nowhere", &["cell-dfw", "cell-ord"], &[], Some(LateDelivery::Brought)),
        ] {
            assert_eq!(of(brought_to, ready), expected, "{what}");
        }
    }

    #[test]
    fn late_companion_of_an_unprocessed_deployment_shows_nothing() {
        type Change = fn(&mut BindingFacts);
        let cases: [(&str, Change); 5] = [
            ("it does not ask", |b| b.propagates = false),
            ("the feature is off", |b| b.distributed = false),
            ("there is no record", |b| b.dependencies = None.into()),
            ("nobody knows when it was written", |b| b.changed = None),
            ("it goes nowhere", |b| b.clusters.clear()),
        ];
        for (what, change) in cases {
            let mut binding = parent();
            change(&mut binding);
            let known = |_: &DataRef| Some((Arc::new(companion(20)), None));
            assert_eq!(super::observe("web", &binding, known, |_| true, TIMEOUT, at(99)), None, "{what}");
        }
        assert_eq!(
            super::observe("web", &parent(), |_| None, |_| true, TIMEOUT, at(99)),
            None,
            "no companion, nothing to bring"
        );
        let going = CompanionFacts { terminating: true, ..companion(20) };
        assert_eq!(see("two", &going, None, 99), None);
    }
}
