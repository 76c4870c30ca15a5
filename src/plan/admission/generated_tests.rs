//! Random Workloads: none makes the rules panic, and the plans accept each one that passes.
//!
//! `ADMISSION_CASES=1` tries 100,000 of them.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use proptest::{prelude::*, sample::select, strategy::ValueTree};
use serde_json::{Value, json};

use super::{Bound, field, samples};
use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        names::{self, CityCode},
    },
    plan::{
        management::{
            referenced_data::resolve::{Limits, Resolution, Source, resolve},
            workload::placement,
        },
        references::references,
    },
};

const CITIES: [&str; 3] = ["dfw", "ord", "san-jose"];

/// The cities that are open to the project.
pub fn bound() -> BTreeSet<CityCode> {
    CITIES.iter().map(|city| CityCode::parse(city).unwrap()).collect()
}

/// Random Workloads; `None` if an API server would not decode it.
fn workload() -> impl Strategy<Value = Option<Workload>> {
    samples::workload().prop_map(|workload| serde_json::from_value(workload).ok())
}

/// Random deployments as users create them, with a generated template and a few wrong fields; `None` if an API server would not
/// decode it.
pub fn deployment() -> impl Strategy<Value = Option<WorkloadDeployment>> {
    let texts = vec![json!(""), json!("a.b"), json!("A"), json!("a/b"), json!("x".repeat(63)), json!("x".repeat(64))];
    let numbers = [-1, 0, 1, 1000, 1001, i32::MAX].map(Value::from).to_vec();
    let scales = [0, 1, 1000, 1001].map(|least| json!({ "minReplicas": least, "maxReplicas": i32::MAX })).to_vec();
    let text = (select(vec!["name", "workload", "uid", "placement"]), select(texts));
    let edit = prop_oneof![
        4 => text,
        1 => (Just("replicas"), select(numbers)),
        1 => (Just("scale"), select(scales)),
    ];
    (samples::workload(), prop::collection::vec(edit, 0..3)).prop_map(|(workload, edits)| {
        let edits: BTreeMap<&str, Value> = edits.into_iter().collect();
        let field = |key: &str, good: Value| edits.get(key).cloned().unwrap_or(good);
        let made = json!({
            "metadata": { "name": field("name", json!("by-hand")), "namespace": "shop" },
            "spec": {
                "workloadRef": { "name": field("workload", json!("web")), "uid": field("uid", json!("u-1")) },
                "placementName": field("placement", json!("main")), "cityCode": "dfw",
                "template": workload["spec"]["template"], "scaleSettings": field("scale", json!({ "minReplicas": 1 })),
                "replicas": field("replicas", Value::Null),
            },
        });
        serde_json::from_value(made).ok()
    })
}

/// Returns all violations in a deployment itself.
pub fn violations(deployment: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<field::FieldError> {
    super::deployment::shape(deployment, old).into_iter().chain(super::deployment::template(deployment, old)).collect()
}

pub fn config() -> ProptestConfig {
    let cases = if std::env::var_os("ADMISSION_CASES").is_some() { 100_000 } else { 500 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn generated_workload_that_passes_is_accepted_by_the_plans(workload in workload(), old in workload()) {
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

proptest! {
    #![proptest_config(config())]

    #[test]
    fn generated_deployment_that_passes_has_names_and_scale_within_limits(new in deployment(), old in deployment()) {
        let Some(new) = new else { return Ok(()) };
        let errors = violations(&new, None);
        prop_assert_eq!(violations(&new, Some(&new)), [], "an update that changes nothing");
        if let Some(old) = old {
            let added = violations(&new, Some(&old));
            prop_assert!(added.iter().all(|error| errors.contains(error)), "an update adds what a creation has not");
        }
        if errors.is_empty() {
            prop_assert!(new.spec.desired_replicas() <= 1000);
            for label in [&new.name_any(), &new.spec.placement_name, &new.spec.workload_ref.name] {
                prop_assert!(names::dns_label(label).is_ok(), "{label}");
            }
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
fn generated_objects_pass_and_fail_often_enough() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bound = Bound::Known(bound());
    let mut counts = [0; 2];
    for _ in 0..400 {
        let Some(workload) = workload().new_tree(&mut runner).unwrap().current() else { continue };
        counts[usize::from(super::workload(&workload, None, &bound).is_empty())] += 1;
    }
    assert!(counts.iter().all(|count| *count > 25), "{counts:?}");
    let mut by_hand = [0; 2];
    for _ in 0..400 {
        let Some(deployment) = deployment().new_tree(&mut runner).unwrap().current() else { continue };
        by_hand[usize::from(violations(&deployment, None).is_empty())] += 1;
    }
    assert!(by_hand.iter().all(|count| *count > 25), "{by_hand:?}");
}
