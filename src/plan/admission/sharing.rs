//! Conflicts of cities over one object. While policies claim companions, each object reaches only the first city that uses it.
//! All other cities would wait forever.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use super::field::{FieldError, Path};
use crate::{
    api::{
        compute::{InstanceTemplateSpec, Workload, WorkloadDeployment},
        meta::annotation,
        names::CityCode,
        referenced::DataRef,
    },
    plan::references::{annotated, uses},
};

/// The data that one deployment of a namespace uses in its city.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The deployment.
    pub deployment: String,
    /// Its Workload.
    pub workload: String,
    /// The city.
    pub city: CityCode,
    /// The objects.
    pub data: BTreeSet<DataRef>,
}

impl InUse {
    /// Returns the data that a deployment uses in this city. That is every reference of its template, whether it exists and is
    /// copied or not. It is also the expected data, because Instances of an older template may use it.
    pub fn of(deployment: &WorkloadDeployment, city: CityCode) -> Self {
        let promised = annotated(deployment, annotation::EXPECTED_REFERENCED_DATA);
        let referred_to = uses(&deployment.spec.template.spec).into_iter().map(|used| used.data_ref);
        Self {
            deployment: deployment.name_any(),
            workload: deployment.spec.workload_ref.name.clone(),
            city,
            data: referred_to.chain(promised).collect(),
        }
    }
}

/// The data that a write needs: the cities, and each object with the first field that refers to it.
#[derive(Default)]
struct Wanted {
    cities: BTreeSet<CityCode>,
    data: BTreeMap<DataRef, String>,
}

impl Wanted {
    /// Collects the valid cities among `codes`, and the data of the template.
    fn new<'a>(codes: impl IntoIterator<Item = &'a String>, template: &InstanceTemplateSpec) -> Self {
        let cities = codes.into_iter().filter_map(|code| CityCode::parse(code).ok()).collect();
        let mut data = BTreeMap::new();
        for used in uses(&template.spec) {
            data.entry(used.data_ref).or_insert(used.field);
        }
        Self { cities, data }
    }

    fn of_workload(workload: &Workload) -> Self {
        let codes = workload.spec.placements.iter().flat_map(|placement| &placement.city_codes);
        Self::new(codes, &workload.spec.template)
    }

    fn of_deployment(deployment: &WorkloadDeployment) -> Self {
        Self::new([&deployment.spec.city_code], &deployment.spec.template)
    }
}

/// Refuses each object that a Workload needs in one city and that another city uses. Data that the Workload used before belongs
/// to it and follows it.
pub fn of_workload(new: &Workload, old: Option<&Workload>, in_use: &[InUse]) -> Vec<FieldError> {
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let others: Vec<&InUse> = in_use.iter().filter(|one| one.workload != name).collect();
    refusals(&Wanted::of_workload(new), &old.map(Wanted::of_workload).unwrap_or_default(), &others)
}

/// Refuses each such object for a deployment that a user creates, under any Workload.
pub fn of_deployment(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>, in_use: &[InUse]) -> Vec<FieldError> {
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let others: Vec<&InUse> = in_use.iter().filter(|one| one.deployment != name).collect();
    refusals(&Wanted::of_deployment(new), &old.map(Wanted::of_deployment).unwrap_or_default(), &others)
}

/// Returns one error for each object, at the first field that refers to it. A conflict that existed before is not refused.
fn refusals(new: &Wanted, old: &Wanted, others: &[&InUse]) -> Vec<FieldError> {
    let spec = Path::new("spec").child("template").child("spec");
    let mut errors = Vec::new();
    for (data_ref, field) in &new.data {
        let existed = |city: &&CityCode| old.data.contains_key(data_ref) && old.cities.contains(city);
        let others = others.iter().filter(|one| one.data.contains(data_ref));
        let by_others = others.map(|one| (Some(one.workload.as_str()), &one.city));
        let users: Vec<_> = new.cities.iter().map(|city| (None, city)).chain(by_others).collect();
        let clash = new.cities.iter().filter(|city| !existed(city)).find_map(|city| {
            let other = users.iter().find(|(_, other)| *other != city)?;
            Some((city, other))
        });
        let Some((city, (workload, other))) = clash else { continue };
        let (kind, object) = (data_ref.kind.as_str(), &data_ref.name);
        let by = workload.map_or_else(|| "this Workload".to_owned(), |workload| format!("Workload {workload:?}"));
        let detail = format!(
            "{kind} {object:?} is used by {by} in city {other}, and would not reach city {city}: at present each object is \
             copied to one city only; use a copy under another name in one of the two"
        );
        errors.push(FieldError::forbidden_content(&spec.child(field), &object, detail));
    }
    errors
}

/// True if a template can conflict: one without references cannot.
pub fn may_clash(template: &InstanceTemplateSpec) -> bool {
    !uses(&template.spec).is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{compute::WorkloadDeploymentSpec, meta::annotation};

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
        let deployment = format!("{workload}-p-{city}");
        InUse { deployment, workload: workload.into(), city: CityCode::parse(city).unwrap(), data }
    }

    /// Only copied data counted as used. A deployment that waited for its data, or ran without it, used none, and another city
    /// was let in.
    #[test]
    fn referenced_data_counts_as_used_before_it_exists() {
        let mut deployment = WorkloadDeployment::new("web-p-dfw", WorkloadDeploymentSpec::default());
        deployment.spec.template = workload("web", &["dfw"], &["db", "cfg"]).spec.template;
        deployment.spec.workload_ref.name = "web".into();
        let promised =
            |refs: &str| BTreeMap::from([(annotation::EXPECTED_REFERENCED_DATA.to_owned(), refs.to_owned())]);
        for (what, annotations, more) in [
            ("nothing of it is there", None, None),
            ("one of them is", Some(promised(r#"["Secret/db"]"#)), None),
            ("Instances of an older template have another", Some(promised(r#"["Secret/old"]"#)), Some("old")),
        ] {
            deployment.metadata.annotations = annotations;
            let wanted: BTreeSet<DataRef> = ["db", "cfg"].into_iter().chain(more).map(DataRef::secret).collect();
            let used = InUse::of(&deployment, CityCode::parse("dfw").unwrap());
            assert_eq!((used.workload.as_str(), used.data), ("web", wanted), "{what}");
        }
    }

    #[test]
    fn data_used_in_another_city_is_refused() {
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
            let errors = of_workload(&new, old.as_ref(), in_use);
            assert_eq!(errors.len(), usize::from(words.is_some()), "{what}: {errors:?}");
            let (Some(words), [error]) = (words, &errors[..]) else { continue };
            assert_eq!(error.field, "spec.template.spec.runtime.sandbox.containers[0].envFrom[0].secretRef.name");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("Secret \"db\"") && text.contains("another name"), "{text}");
        }
    }

    #[test]
    fn deployment_of_a_user_that_shares_data_with_another_city_is_refused() {
        let by_hand = |city: &str, secrets: &[&str]| {
            let of = workload("web", &[], secrets);
            let mut deployment = WorkloadDeployment::new("by-hand", WorkloadDeploymentSpec::default());
            deployment.spec.template = of.spec.template;
            deployment.spec.workload_ref.name = "web".into();
            deployment.spec.city_code = city.into();
            deployment
        };
        let before = InUse { deployment: "by-hand".into(), ..in_use("web", "ord", "db") };
        let (own, other, before) = ([in_use("web", "ord", "db")], [in_use("api", "ord", "db")], [before]);
        let one = |city: &str| by_hand(city, &["db"]);
        let table = vec![
            ("alone", one("dfw"), None, &[][..], None),
            ("its Workload's other city", one("dfw"), None, &own, Some("Workload \"web\" in city ord")),
            ("another Workload's city", one("DFW"), None, &other, Some("would not reach city dfw")),
            ("the same city", one("ORD"), None, &other, None),
            ("another object", by_hand("dfw", &["other"]), None, &other, None),
            ("it moves, and takes along what it alone uses", one("dfw"), Some(one("ord")), &before, None),
            ("it moves away from others", one("dfw"), Some(one("ord")), &other, Some("would not reach city dfw")),
            ("it stood before", one("dfw"), Some(one("dfw")), &other, None),
            ("no city", one("../x"), None, &other, None),
        ];
        for (what, new, old, in_use, words) in table {
            let errors = of_deployment(&new, old.as_ref(), in_use);
            assert_eq!(errors.len(), usize::from(words.is_some()), "{what}: {errors:?}");
            let (Some(words), [error]) = (words, &errors[..]) else { continue };
            assert!(error.to_string().contains(words), "{what}: {error}");
        }
    }

    #[test]
    fn template_without_references_cannot_clash() {
        assert!(may_clash(&workload("web", &["dfw"], &["db"]).spec.template));
        assert!(!may_clash(&workload("web", &["dfw"], &[]).spec.template));
    }
}
