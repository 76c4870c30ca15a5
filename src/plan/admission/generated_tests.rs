//! Workloads at random: none makes the rules crash, and none that passes is refused by the plans.
//!
//! `ADMISSION_CASES=1` tries 100,000 of them.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use proptest::{prelude::*, sample::select, strategy::ValueTree};
use serde_json::{Value, json};

use super::{
    Bound, field,
    workload_tests::{containers, machine, set},
};
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

/// Fields that somebody may have got wrong, each with what he may have written there.
const FIELDS: [&str; 17] = [
    "metadata.name",
    "metadata.namespace",
    "spec.placements.0.name",
    "spec.placements.0.cityCodes",
    "spec.placements.1",
    "spec.placements.0.scaleSettings",
    "spec.template.metadata.labels",
    "spec.template.metadata.annotations",
    "spec.template.spec.networkInterfaces.0.network.name",
    "spec.template.spec.networkInterfaces.0.network.namespace",
    "spec.template.spec.runtime.resources.instanceType",
    "spec.template.spec.runtime.sandbox.containers.0.image",
    "spec.template.spec.runtime.sandbox.containers.0.env.0.valueFrom.secretKeyRef.name",
    "spec.template.spec.runtime.sandbox.imagePullSecrets",
    "spec.template.spec.volumes.0.configMap.name",
    "spec.template.spec.volumes.0.name",
    "spec.template.spec.volumes.1.disk.template.spec.resources",
];

fn text() -> impl Strategy<Value = String> {
    let long = (1_usize..300).prop_map(|length| "x".repeat(length));
    let good = [
        "web",
        "default",
        "dfw",
        "DFW",
        "shop",
        "a-b",
        "a.b",
        "10Gi",
        "settings",
        "San Jose",
        "datumcloud/d1-standard-2",
    ];
    prop_oneof![3 => select(good.to_vec()).prop_map(str::to_owned), 1 => ".{0,12}", 1 => long]
}

fn value() -> impl Strategy<Value = Value> {
    let placement = (text(), prop::collection::vec(text(), 0..3), -2..1003_i32, prop::option::of(-2..5_i32)).prop_map(
        |(name, cities, min, max)| {
            json!({ "name": name, "cityCodes": cities, "scaleSettings": { "minReplicas": min, "maxReplicas": max } })
        },
    );
    prop_oneof![
        4 => text().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => prop::collection::vec(text(), 0..4).prop_map(Value::from),
        1 => prop::collection::vec(text(), 0..3).prop_map(|names| names.into_iter().map(|name| json!({ "name": name })).collect()),
        1 => prop::collection::btree_map(text(), text(), 0..3).prop_map(|map| json!(map)),
        1 => (-1..1002_i32).prop_map(|replicas| json!({ "minReplicas": replicas })),
        1 => text().prop_map(|amount| json!({ "requests": { "storage": amount } })),
        2 => placement,
    ]
}

/// Workloads that an API server would have read: a few fields are other than they should be.
fn workload() -> impl Strategy<Value = Option<Workload>> {
    let edits = prop::collection::vec((select(FIELDS.to_vec()), value()), 0..4);
    (any::<bool>(), edits).prop_map(|(is_machine, edits)| {
        let base = if is_machine { machine() } else { containers() };
        let edited = edits.into_iter().filter(|(path, _)| {
            !is_machine || !path.contains("sandbox") && !path.contains("configMap") && !path.contains("volumes.1")
        });
        serde_json::from_value(edited.fold(base, |workload, (path, value)| set(workload, path, value))).ok()
    })
}

fn config() -> ProptestConfig {
    let cases = if std::env::var_os("ADMISSION_CASES").is_some() { 100_000 } else { 500 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_passes_is_not_refused_by_the_plans(workload in workload(), old in workload()) {
        let Some(workload) = workload else { return Ok(()) };
        let bound: BTreeSet<CityCode> = CITIES.iter().map(|city| CityCode::parse(city).unwrap()).collect();
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
    let bound = Bound::Known(CITIES.iter().map(|city| CityCode::parse(city).unwrap()).collect());
    let mut counts = [0; 2];
    for _ in 0..400 {
        let Some(workload) = workload().new_tree(&mut runner).unwrap().current() else { continue };
        counts[usize::from(super::workload(&workload, None, &bound).is_empty())] += 1;
    }
    assert!(counts.iter().all(|count| *count > 25), "{counts:?}");
}
