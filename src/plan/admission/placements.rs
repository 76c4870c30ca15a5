//! Rules of placements: cities, the names derived from them, and scale.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Bound,
    field::{Errors, FieldError, Path},
    format::dns_label,
    template,
};
use crate::{
    api::{
        compute::{MAX_REPLICAS, MetricTarget, ScaleSettings, Workload},
        names::{self, CityCode},
    },
    plan::{
        limits,
        management::workload::placement::{self, Flaw},
        quantity::thousandths,
    },
};

/// Supported metrics for scaling.
const METRICS: [&str; 1] = ["cpu"];

/// Supported numbers of Instances in each city of a placement.
const REPLICAS: std::ops::RangeInclusive<i32> = 1..=MAX_REPLICAS;

/// Validates the placements. `workload` is the name that the Workload has or will get.
pub(super) fn validate(path: &Path, workload: &str, of: &Workload, errors: &mut Errors) {
    let placements = &of.spec.placements;
    if placements.is_empty() {
        errors.push(FieldError::required(path, "name at least one placement"));
    }
    for excess in limits::of_placements(of) {
        template::excess(&excess, errors);
    }
    let mut seen = BTreeSet::new();
    let mut made: BTreeMap<String, &str> = BTreeMap::new();
    for (index, placement) in placements.iter().enumerate() {
        let path = path.index(index);
        let name = path.child("name");
        dns_label(&name, &placement.name, errors);
        if !placement.name.is_empty() && !seen.insert(&placement.name) {
            errors.push(FieldError::duplicate(&name, &placement.name));
        }
        let (named, flaws) = placement::judge_alone(workload, placement);
        let good_parts = [workload, &placement.name].iter().all(|part| names::dns_label(part).is_ok());
        let cities = path.child("cityCodes");
        for flaw in flaws {
            match flaw {
                // The parts are reported at their own fields.
                Flaw::WorkloadName(_) => {}
                Flaw::Name(..) if !good_parts => {}
                Flaw::NoCities => errors.push(FieldError::required(&cities, "name at least one city")),
                Flaw::City(at, why) => {
                    errors.push(FieldError::invalid(&cities.index(at), &placement.city_codes[at], why));
                }
                Flaw::Repeated(at, _) => {
                    errors.push(FieldError::duplicate(&cities.index(at), &placement.city_codes[at]));
                }
                Flaw::Name(at, why) => {
                    let city = &placement.city_codes[at];
                    errors.push(FieldError::too_long(&cities.index(at), city, names::MAX_LABEL, &why));
                }
            }
        }
        for (deployment, _) in named {
            if let Some(other) =
                made.insert(deployment.clone(), &placement.name).filter(|other| *other != placement.name)
            {
                let why = placement::clash(other, &placement.name, &deployment);
                errors.push(FieldError::invalid(&name, &placement.name, why));
            }
        }
        scale(&path.child("scaleSettings"), &placement.scale_settings, errors);
    }
}

/// Returns the cities that a Workload names and its old state did not: only these must be bound.
pub(super) fn new_cities(new: &Workload, old: Option<&Workload>) -> BTreeSet<CityCode> {
    let before: BTreeSet<CityCode> = old.into_iter().flat_map(placement::cities).collect();
    placement::cities(new).filter(|city| !before.contains(city)).collect()
}

/// Reports the new cities for which the project has no LocationBinding.
pub(super) fn unbound(path: &Path, new: &Workload, old: Option<&Workload>, bound: &Bound, errors: &mut Errors) {
    let asked = new_cities(new, old);
    let open = open(bound);
    for (index, placement) in new.spec.placements.iter().enumerate() {
        for (at, written) in placement.city_codes.iter().enumerate() {
            let path = path.index(index).child("cityCodes").index(at);
            let Some(city) = CityCode::parse(written).ok().filter(|city| asked.contains(city)) else { continue };
            if let Some(error) = refusal(&path, written, &city, bound, &open) {
                errors.push(error);
            }
        }
    }
}

/// Returns the error for the city of a deployment that a user creates or moves.
pub(super) fn one_city(path: &Path, written: &str, bound: &Bound) -> Option<FieldError> {
    match CityCode::parse(written) {
        Ok(city) => refusal(path, written, &city, bound, &open(bound)),
        Err(why) => Some(FieldError::invalid(path, written, why)),
    }
}

fn open(bound: &Bound) -> Vec<&str> {
    match bound {
        Bound::Known(bound) => bound.iter().map(CityCode::as_str).collect(),
        Bound::Unknown(_) => Vec::new(),
    }
}

fn refusal(path: &Path, written: &str, city: &CityCode, bound: &Bound, open: &[&str]) -> Option<FieldError> {
    match bound {
        Bound::Known(bound) if bound.contains(city) => None,
        Bound::Known(_) => Some(FieldError::not_supported(path, written, open)),
        Bound::Unknown(why) => {
            let why = format!("cannot read which cities are open to this project: {why}; try again");
            Some(FieldError::internal(path, why))
        }
    }
}

/// Reports violations in the scale settings of a placement or a deployment.
pub(super) fn scale(path: &Path, scale: &ScaleSettings, errors: &mut Errors) {
    let minimum = scale.min_replicas;
    if !REPLICAS.contains(&minimum) {
        let why = format!("want 1 to {MAX_REPLICAS}");
        errors.push(FieldError::invalid(&path.child("minReplicas"), minimum.to_string(), why));
    }
    let metrics = scale.metrics.as_deref().unwrap_or_default();
    if let Some(maximum) = scale.max_replicas {
        if maximum < minimum {
            let why = format!("it is below minReplicas, which is {minimum}");
            errors.push(FieldError::invalid(&path.child("maxReplicas"), maximum.to_string(), why));
        }
        at_most(&path.child("maxReplicas"), maximum, errors);
        if metrics.is_empty() {
            errors.push(FieldError::required(&path.child("metrics"), "maxReplicas needs a metric to scale by"));
        }
    }
    for (index, metric) in metrics.iter().enumerate() {
        let path = path.child("metrics").index(index).child("resource");
        let resource = &metric.resource;
        if !METRICS.contains(&resource.name.as_str()) {
            errors.push(FieldError::not_supported(&path.child("name"), &resource.name, &METRICS));
        }
        target(&path.child("target"), &resource.target, errors);
    }
}

/// Reports a number of Instances over the limit of one deployment.
pub(super) fn at_most(path: &Path, replicas: i32, errors: &mut Errors) {
    if replicas > MAX_REPLICAS {
        errors.push(FieldError::too_large(path, replicas, MAX_REPLICAS));
    }
}

fn target(path: &Path, target: &MetricTarget, errors: &mut Errors) {
    let positive = |amount: &crate::api::compute::Quantity| thousandths(amount).is_some_and(|amount| amount > 0);
    let given = [
        ("value", target.value.as_ref().map(|amount| (amount.0.clone(), positive(amount)))),
        ("averageValue", target.average_value.as_ref().map(|amount| (amount.0.clone(), positive(amount)))),
        ("averageUtilization", target.average_utilization.map(|percent| (percent.to_string(), percent > 0))),
    ];
    let mut given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let Some((first, (text, positive))) = given.next() else {
        errors.push(FieldError::required(path, "give one of value, averageValue and averageUtilization"));
        return;
    };
    if !positive {
        errors.push(FieldError::invalid(&path.child(first), text, "must be more than 0"));
    }
    for (other, content) in given {
        let why = format!("one target is enough, and {first} is given");
        errors.push(FieldError::forbidden_content(&path.child(other), &content, why));
    }
}
