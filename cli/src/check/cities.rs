//! Cities: the labels of Clusters against each other and against the project's LocationBindings.

use std::collections::{BTreeMap, BTreeSet};

use compute_operator::api::{meta::label, names::CityCode};

use super::{facts::Facts, judge::Check};
use crate::seen::Seen;

/// Checks the cities.
pub fn checks(facts: &Facts) -> Vec<Check> {
    let Seen::Found(clusters) = &facts.clusters else { return Vec::new() };
    let mut checks = Vec::new();
    let mut on: BTreeMap<&CityCode, Vec<&str>> = BTreeMap::new();
    let mut spellings: BTreeMap<CityCode, BTreeSet<&str>> = BTreeMap::new();
    for (name, cluster) in clusters {
        match (&cluster.city, &cluster.label) {
            (Some(city), Some(label)) => {
                spellings.entry(city.clone()).or_default().insert(label);
                if !cluster.is_leaving() {
                    on.entry(city).or_default().push(name);
                }
            }
            (None, Some(label)) => {
                checks.push(Check::broken(format!("Cluster {name}: {label:?} is no city"), label_it(name, "CODE")));
            }
            _ => checks.push(Check::warning(format!("Cluster {name} has no city"), label_it(name, "CODE"))),
        }
    }
    let (one, several): (Vec<_>, Vec<_>) = on.iter().partition(|(_, names)| names.len() == 1);
    checks.extend(one.iter().map(|(city, names)| Check::well(format!("{city} -> {}", names[0]))));
    checks.extend(several.iter().map(|(city, names)| {
        let text = format!("{city} is on several Clusters: {}", names.join(", "));
        Check::warning(text, format!("drain all but one: kubectl compute cell drain {}", names[names.len() - 1]))
    }));
    let open = facts.locations.found().map(|bindings| {
        let mut open: BTreeMap<CityCode, &str> = BTreeMap::new();
        for (name, label) in bindings {
            match CityCode::parse(label) {
                Ok(city) => {
                    spellings.entry(city.clone()).or_default().insert(label);
                    open.insert(city, name);
                }
                Err(why) => checks.push(Check::broken(
                    format!("LocationBinding {name}: {label:?} is no city: {why}"),
                    "correct its topology",
                )),
            }
        }
        open
    });
    for (city, spelt) in spellings.iter().filter(|(_, spelt)| spelt.len() > 1) {
        let all: Vec<&str> = spelt.iter().copied().collect();
        checks.push(Check::warning(format!("{city} has several spellings: {}", all.join(", ")), "use one everywhere"));
    }
    match open {
        Some(open) => {
            for (city, binding) in open.iter().filter(|(city, _)| !on.contains_key(*city)) {
                checks.push(Check::broken(
                    format!("{city} is open to the project (LocationBinding {binding}), and no Cluster has it"),
                    label_it("NAME", city.as_str()),
                ));
            }
            for city in on.keys().filter(|city| !open.contains_key(**city)) {
                checks.push(Check::warning(
                    format!("no LocationBinding opens {city} to the project"),
                    "create one if the project may use the city",
                ));
            }
        }
        None => checks.push(Check::not_found("LocationBindings", &facts.locations, "the project does not serve them")),
    }
    checks
}

fn label_it(cluster: &str, city: &str) -> String {
    format!("kubectl --context HUB label cluster {cluster} {}={city} --overwrite", label::TOPOLOGY_CITY)
}
