//! The form of the placements of city policies, by which a binding shows what it was scheduled by.

use std::collections::BTreeSet;

use serde_json::json;

use crate::{
    api::{karmada::PolicyPlacement, meta::label, names::CityCode},
    plan::hash,
};

/// Names of the two groups of a city that stays.
pub(crate) const CITY_GROUP: &str = "city";
pub(crate) const HOLDING_GROUP: &str = "holding";
/// Prefixes of the names of the two groups of a city that moves; the attempt follows.
pub(crate) const MOVING_GROUP_PREFIX: &str = "moving-";
pub(crate) const LEAVING_GROUP_PREFIX: &str = "holding-";

/// The city that a placement was made for, if it has a form that city policies have.
pub fn made_for(placement: &PolicyPlacement) -> Option<CityCode> {
    let group = match (&placement.cluster_affinity, placement.cluster_affinities.as_deref()) {
        (Some(plain), None) => plain,
        (None, Some([first, _]))
            if first.affinity_name == CITY_GROUP || first.affinity_name.starts_with(MOVING_GROUP_PREFIX) =>
        {
            &first.group
        }
        _ => return None,
    };
    let spellings = group.label_selector.as_ref()?.values_of(label::TOPOLOGY_CITY);
    let cities: BTreeSet<CityCode> =
        spellings.iter().map(|spelt| CityCode::parse(spelt)).collect::<Result<_, _>>().ok()?;
    cities.first().filter(|_| cities.len() == 1).cloned()
}

/// Digest of a placement, to tell whether what stands somewhere came of it.
pub fn digest(placement: &PolicyPlacement) -> String {
    hash::digest(&json!(placement))
}
