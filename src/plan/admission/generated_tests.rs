//! Workloads at random: none makes the rules crash, and none that passes is refused by the plans.
//!
//! `ADMISSION_CASES=1` tries 100,000 of them.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use proptest::{prelude::*, strategy::ValueTree};

use super::{Bound, field, samples};
use crate::{
    api::{
        compute::Workload,
        names::{self, CityCode},
    },
    plan::{
        management::{
            placement,
            resolve::{Limits, Resolution, Source, resolve},
        },
        references::references,
    },
};

const CITIES: [&str; 3] = ["dfw", "ord", "san-jose"];

/// The cities that are open.
pub fn bound() -> BTreeSet<CityCode> {
    CITIES.iter().map(|city| CityCode::parse(city).unwrap()).collect()
}

/// Those that an API server would have read.
fn workload() -> impl Strategy<Value = Option<Workload>> {
    samples::workload().prop_map(|workload| serde_json::from_value(workload).ok())
}

pub fn config() -> ProptestConfig {
    let cases = if std::env::var_os("ADMISSION_CASES").is_some() { 100_000 } else { 500 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_passes_is_not_refused_by_the_plans(workload in workload(), old in workload()) {
        let Some(workload) = workload else { return Ok(()) };
        let bound = bound();
        let errors = super::workload(&workload, None, &Bound::Known(bound.clone()));
        prop_assert!(field::joined(&errors).len() < 1 << 20);
        if let Some(old) = old {
            let added = super::workload(&workload, Some(&old), &Bound::Known(bound.clone()));
            prop_assert!(added.iter().all(|error| errors.contains(error)), "an update adds what a creation has not");
        }
        let unchanged = super::workload(&workload, Some(&workload), &Bound::Known(BTreeSet::new()));
        prop_assert!(unchanged.is_empty(), "an update that changes nothing: {}", field::joined(&unchanged));
        if errors.is_empty() {
            passes_the_plans(&workload, &bound)?;
        }
    }
}

fn passes_the_plans(workload: &Workload, bound: &BTreeSet<CityCode>) -> Result<(), TestCaseError> {
    let outcomes = placement::outcomes(workload, &BTreeMap::new(), bound);
    for (placement, outcome) in workload.spec.placements.iter().zip(&outcomes) {
        prop_assert!(outcome.invalid.is_empty(), "{:?}", outcome.invalid);
        prop_assert!(outcome.unavailable.is_empty(), "{:?}", outcome.unavailable);
        prop_assert_eq!(outcome.desired.len(), placement.city_codes.len());
        for (name, city) in &outcome.desired {
            let replicas = u32::try_from(placement.scale_settings.min_replicas).unwrap();
            let instance = names::instance_name(name, replicas);
            let interfaces = workload.spec.template.spec.network_interfaces.len();
            for derived in [
                names::resource_claim_name(&instance),
                names::network_binding_name(name, interfaces),
                names::deployment_binding(name),
                city.code.policy_name(),
            ] {
                prop_assert!(derived.len() <= 253, "{derived}");
            }
            for label in [name, &placement.name, &workload.name_any(), &city.code.label_value(&city.written)] {
                prop_assert!(names::dns_label(&label.to_lowercase()).is_ok(), "{label}");
            }
        }
    }
    let needed = references(&workload.spec.template.spec);
    let sources = needed.iter().map(|needed| (needed.data_ref.clone(), Source::Present { size: 1 })).collect();
    let resolution = resolve(&needed, "shop", Limits::default(), &sources);
    prop_assert!(matches!(resolution, Resolution::Complete { .. }), "{:?}", resolution);
    Ok(())
}

#[test]
fn enough_of_the_generated_pass_and_enough_do_not() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bound = Bound::Known(bound());
    let mut counts = [0; 2];
    for _ in 0..400 {
        let Some(workload) = workload().new_tree(&mut runner).unwrap().current() else { continue };
        counts[usize::from(super::workload(&workload, None, &bound).is_empty())] += 1;
    }
    assert!(counts.iter().all(|count| *count > 25), "{counts:?}");
}
