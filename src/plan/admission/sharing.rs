//! One object for two cities, where the hub brings each to one city alone: while policies claim companions, the first city
//! that uses one has it, and the others would wait for good.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use super::field::{FieldError, Path};
use crate::{
    api::{compute::Workload, names::CityCode, referenced::DataRef},
    plan::references::uses,
};

/// What one deployment of a namespace uses in its city.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its Workload.
    pub workload: String,
    /// The city.
    pub city: CityCode,
    /// The objects.
    pub data: BTreeSet<DataRef>,
}

/// The cities that a Workload names, as far as they are cities, and the objects that it uses.
fn wanted(workload: &Workload) -> (BTreeSet<CityCode>, BTreeMap<DataRef, String>) {
    let codes = workload.spec.placements.iter().flat_map(|placement| &placement.city_codes);
    let cities = codes.filter_map(|code| CityCode::parse(code).ok()).collect();
    let mut data = BTreeMap::new();
    for used in uses(&workload.spec.template.spec) {
        data.entry(used.data_ref).or_insert(used.field);
    }
    (cities, data)
}

/// Refuses each object that a write has used in a city while another city uses it: one error an object, at the first field
/// that asks for it. What stood there before is not refused.
pub fn refusals(new: &Workload, old: Option<&Workload>, in_use: &[InUse]) -> Vec<FieldError> {
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let (cities, data) = wanted(new);
    let (old_cities, old_data) = old.map(wanted).unwrap_or_default();
    let spec = Path::new("spec").child("template").child("spec");
    let mut errors = Vec::new();
    for (data_ref, field) in &data {
        let stood = |city: &&CityCode| old_data.contains_key(data_ref) && old_cities.contains(city);
        let others = in_use.iter().filter(|one| one.workload != name && one.data.contains(data_ref));
        let by_others = others.map(|one| (one.workload.as_str(), &one.city));
        let users: Vec<(&str, &CityCode)> = cities.iter().map(|city| (name, city)).chain(by_others).collect();
        let clash = cities.iter().filter(|city| !stood(city)).find_map(|city| {
            let other = users.iter().find(|(_, other)| *other != city)?;
            Some((city, other))
        });
        let Some((city, (workload, other))) = clash else { continue };
        let (kind, object) = (data_ref.kind.as_str(), &data_ref.name);
        let by = if *workload == name { "this Workload".to_owned() } else { format!("Workload {workload:?}") };
        let detail = format!(
            "{kind} {object:?} is used by {by} in city {other}, and would not reach city {city}: at present each object \
             goes to one city alone; use a copy of it under another name in one of the two"
        );
        errors.push(FieldError::forbidden_content(&spec.child(field), &object, detail));
    }
    errors
}

/// Whether the name of a Workload's namespace and its cities could clash at all: nothing is looked up for what uses nothing.
pub fn may_clash(new: &Workload) -> bool {
    new.namespace().is_some() && !uses(&new.spec.template.spec).is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(name: &str, cities: &[&str], secrets: &[&str]) -> Workload {
        let from: Vec<_> = secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect();
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "shop" },
            "spec": {
                "template": { "spec": {
                    "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                        { "name": "c", "image": "i", "envFrom": from },
                    ] } },
                    "networkInterfaces": [],
                } },
                "placements": [{ "name": "p", "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } }],
            },
        }))
        .unwrap()
    }

    fn in_use(workload: &str, city: &str, secret: &str) -> InUse {
        let data = [DataRef::secret(secret)].into();
        InUse { workload: workload.into(), city: CityCode::parse(city).unwrap(), data }
    }

    #[test]
    fn an_object_is_used_in_one_city() {
        let (db, own) = ([in_use("api", "ord", "db")], [in_use("web", "ord", "db")]);
        let one = |cities: &[&str]| workload("web", cities, &["db"]);
        let table = vec![
            ("alone", one(&["dfw"]), None, &[][..], None),
            ("in two cities itself", one(&["dfw", "ord"]), None, &[], Some("this Workload in city ord")),
            ("another's city", one(&["DFW"]), None, &db, Some("Workload \"api\" in city ord")),
            ("another's city is its own", one(&["ORD"]), None, &db, None),
            ("another object", workload("web", &["dfw"], &["other"]), None, &db, None),
            ("its own deployment, of before", one(&["dfw"]), None, &own, None),
            ("it stood before", one(&["dfw"]), Some(one(&["dfw"])), &db, None),
            ("in two cities before", one(&["dfw", "ord"]), Some(one(&["dfw", "ord"])), &[], None),
            ("a city more", one(&["dfw", "ord"]), Some(one(&["dfw"])), &[], Some("would not reach city ord")),
            (
                "an object more",
                one(&["dfw"]),
                Some(workload("web", &["dfw"], &[])),
                &db,
                Some("would not reach city dfw"),
            ),
        ];
        for (what, new, old, in_use, words) in table {
            let errors = refusals(&new, old.as_ref(), in_use);
            assert_eq!(errors.len(), usize::from(words.is_some()), "{what}: {errors:?}");
            let (Some(words), [error]) = (words, &errors[..]) else { continue };
            assert_eq!(error.field, "spec.template.spec.runtime.sandbox.containers[0].envFrom[0].secretRef.name");
            let told = error.to_string();
            assert!(told.contains(words) && told.contains("Secret \"db\"") && told.contains("another name"), "{told}");
        }
    }

    #[test]
    fn nothing_is_looked_up_for_what_uses_nothing() {
        assert!(may_clash(&workload("web", &["dfw"], &["db"])));
        assert!(!may_clash(&workload("web", &["dfw"], &[])));
    }
}
