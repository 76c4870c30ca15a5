//! A Workload's placements -> the cities that get a deployment, and the cities that do not, with the cause.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use kube::ResourceExt;

use crate::{
    api::{
        compute::{Placement, Workload, WorkloadDeployment},
        names::{self, CityCode},
        reason::Reason,
    },
    plan::{Shared, condition::Verdict, limits, ownership},
};

/// Result for the cities of a placement.
#[derive(Debug, Default)]
pub struct PlacementOutcome {
    /// Wanted deployments: name -> city.
    pub desired: BTreeMap<String, City>,
    /// Cities without a deployment, each with the reason, for the placement's condition.
    pub unavailable: Vec<String>,
    /// True if it is not known whether these cities are still closed.
    pub is_stale: bool,
    /// Errors of the placement. While there is one, no deployment of the placement is created, changed or deleted.
    pub invalid: Vec<String>,
    /// Wanted names that belong to another owner's deployments.
    pub conflicting: Vec<String>,
    /// Limits that the Workload exceeds. Then no deployment of the placement is created, changed or deleted either.
    pub exceeded: Option<String>,
}

/// A city of a placement.
#[derive(Clone, Debug)]
pub struct City {
    /// As the user wrote it.
    pub written: String,
    /// In canonical spelling.
    pub code: CityCode,
}

/// Facts that a city is judged by.
struct Situation<'a> {
    workload: &'a Workload,
    named: &'a BTreeMap<String, Shared<WorkloadDeployment>>,
    bound: &'a BTreeSet<CityCode>,
}

/// Valid cities that a Workload's placements name.
pub fn cities(workload: &Workload) -> impl Iterator<Item = CityCode> {
    let written = workload.spec.placements.iter().flat_map(|placement| &placement.city_codes);
    written.filter_map(|written| CityCode::parse(written).ok())
}

/// Deployment names that a Workload's placements make. A Workload with placements over a limit makes none.
pub fn names(workload: &Workload) -> BTreeSet<String> {
    if !limits::of_placements(workload).is_empty() {
        return BTreeSet::new();
    }
    let names_of = |placement: &Placement| -> Vec<String> {
        let cities = placement.city_codes.iter().filter_map(|written| CityCode::parse(written).ok());
        cities.filter_map(|city| names::deployment_name(&workload.name_any(), &placement.name, &city).ok()).collect()
    };
    workload.spec.placements.iter().flat_map(names_of).collect()
}

impl PlacementOutcome {
    /// Returns the verdict that a city is closed. The owner acts on what is known only.
    pub(super) fn closed(&self, message: String) -> Verdict {
        let verdict = if self.is_stale { Verdict::unknown } else { Verdict::no };
        verdict(Reason::NoMatchingLocations, message)
    }
}

/// True if a placement of the Workload reports that the name of its deployment is taken.
pub fn waits_for_a_name(workload: &Workload) -> bool {
    let placements = workload.status.iter().flat_map(|status| &status.placements);
    placements
        .flat_map(|placement| &placement.conditions)
        .any(|condition| condition.reason == Reason::DeploymentNameTaken)
}

/// Judges each placement, in the order of the spec.
///
/// `named`: the existing deployments under the names that the placements make. `bound`: the cities that are open.
pub fn outcomes(
    workload: &Workload,
    named: &BTreeMap<String, Shared<WorkloadDeployment>>,
    bound: &BTreeSet<CityCode>,
) -> Vec<PlacementOutcome> {
    let placements = &workload.spec.placements;
    if let Some(exceeded) = limits::words(&limits::of_workload(workload)) {
        let outcome = || PlacementOutcome { exceeded: Some(exceeded.clone()), ..PlacementOutcome::default() };
        return placements.iter().map(|_| outcome()).collect();
    }
    let situation = Situation { workload, named, bound };
    let mut seen = BTreeSet::new();
    let mut outcomes: Vec<PlacementOutcome> =
        placements.iter().map(|placement| outcome(&situation, placement)).collect();
    for (placement, outcome) in placements.iter().zip(&mut outcomes) {
        if !seen.insert(&placement.name) {
            outcome.invalid.push(format!("two placements are named {:?}: give each its own name", placement.name));
        }
    }
    for (index, clash) in clashes(placements, &outcomes, named) {
        outcomes[index].invalid.push(clash);
    }
    for outcome in &mut outcomes {
        if !outcome.invalid.is_empty() {
            outcome.desired.clear();
        }
    }
    outcomes
}

/// Returns the placements that make a name that another one makes too (`a-b` in `c` and `a` in `b-c`), by index, with the
/// message. An invalid placement makes no deployment. Only a deployment that it already has blocks another placement.
fn clashes(
    placements: &[Placement],
    outcomes: &[PlacementOutcome],
    named: &BTreeMap<String, Shared<WorkloadDeployment>>,
) -> Vec<(usize, String)> {
    let has = |name: &String, placement: &Placement| {
        named.get(name).is_some_and(|wd| wd.spec.placement_name == placement.name)
    };
    let all = || placements.iter().zip(outcomes).enumerate();
    let mut made: BTreeMap<&String, &String> = BTreeMap::new();
    for (_, (placement, outcome)) in all().filter(|(_, (_, outcome))| !outcome.invalid.is_empty()) {
        made.extend(outcome.desired.keys().filter(|name| has(name, placement)).map(|name| (name, &placement.name)));
    }
    let mut clashes = Vec::new();
    for (index, (placement, outcome)) in all().filter(|(_, (_, outcome))| outcome.invalid.is_empty()) {
        let this = &placement.name;
        for name in outcome.desired.keys() {
            if let Some(other) = made.insert(name, this).filter(|other| *other != this) {
                clashes.push((index, clash(other, this, name)));
            }
        }
    }
    clashes
}

fn outcome(situation: &Situation<'_>, placement: &Placement) -> PlacementOutcome {
    let (named, flaws) = judge_alone(&situation.workload.name_any(), placement);
    let invalid = flaws.into_iter().map(|flaw| flaw.to_string()).collect();
    let mut outcome = PlacementOutcome { invalid, ..PlacementOutcome::default() };
    let judged = named.len();
    for (name, city) in named {
        judge_city(situation, &mut outcome, placement, name, city);
    }
    let has_closed_city = outcome.desired.len() + outcome.conflicting.len() < judged;
    if has_closed_city {
        outcome.unavailable.push(open_cities(situation.bound));
    }
    outcome
}

/// Number of cities that a message lists.
const MAX_LISTED: usize = 20;

/// Says which cities a placement can name instead of a closed one.
fn open_cities(bound: &BTreeSet<CityCode>) -> String {
    let listed: Vec<&str> = bound.iter().take(MAX_LISTED).map(CityCode::as_str).collect();
    match bound.len().saturating_sub(MAX_LISTED) {
        _ if listed.is_empty() => "no city is open to this project: ask your platform to open one".to_owned(),
        0 => format!("open cities: {}", listed.join(", ")),
        more => format!("open cities: {}, and {more} more", listed.join(", ")),
    }
}

/// Error of a placement that does not depend on other objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The workload's name is too long for a label. It has this number of characters.
    WorkloadName(usize),
    /// It names no city.
    NoCities,
    /// The city with this index is invalid, with the cause.
    City(usize, String),
    /// The city with this index is listed before, in this or another spelling.
    Repeated(usize, CityCode),
    /// The deployment of the city with this index cannot have its name, with the cause.
    Name(usize, String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkloadName(length) => {
                write!(f, "the workload's name has {length} characters, {} is the limit", names::MAX_LABEL)
            }
            Self::NoCities => f.write_str("cityCodes is empty: name at least one city"),
            Self::City(_, why) | Self::Name(_, why) => f.write_str(why),
            Self::Repeated(_, city) => write!(f, "city {:?} is listed twice: list each city once", city.as_str()),
        }
    }
}

/// Returns the deployments that a placement of the workload with this name makes, and the placement's errors. Admission uses it
/// like the plan: the plan makes every deployment that admission accepts.
pub fn judge_alone(workload: &str, placement: &Placement) -> (Vec<(String, City)>, Vec<Flaw>) {
    let (mut named, mut flaws) = (Vec::new(), Vec::new());
    if workload.len() > names::MAX_LABEL {
        flaws.push(Flaw::WorkloadName(workload.len()));
    }
    if placement.city_codes.is_empty() {
        flaws.push(Flaw::NoCities);
    }
    let mut cities = BTreeSet::new();
    for (index, written) in placement.city_codes.iter().enumerate() {
        let city = match CityCode::parse(written) {
            Ok(code) => City { written: written.clone(), code },
            Err(why) => {
                flaws.push(Flaw::City(index, why));
                continue;
            }
        };
        if !cities.insert(city.code.clone()) {
            flaws.push(Flaw::Repeated(index, city.code));
            continue;
        }
        match names::deployment_name(workload, &placement.name, &city.code) {
            Err(why) => flaws.push(Flaw::Name(index, why)),
            Ok(name) => named.push((name, city)),
        }
    }
    (named, flaws)
}

/// Message for two placements that make a deployment of the same name.
pub fn clash(one: &str, other: &str, name: &str) -> String {
    format!("placements {one:?} and {other:?} both make the deployment {name:?}: rename one")
}

fn judge_city(
    situation: &Situation<'_>,
    outcome: &mut PlacementOutcome,
    placement: &Placement,
    name: String,
    city: City,
) {
    let live = situation.named.get(&name);
    let ours = live.map(|deployment| {
        let spec = &deployment.spec;
        let is_of_the_place = spec.placement_name == placement.name
            && CityCode::parse(&spec.city_code).is_ok_and(|code| code == city.code);
        ownership::is_controlled_by(&**deployment, situation.workload)
            || is_of_the_place && ownership::may_adopt(situation.workload, deployment)
    });
    match (ours, situation.bound.contains(&city.code)) {
        (Some(false), _) => {
            outcome
                .conflicting
                .push(format!("WorkloadDeployment {name:?} has another owner; it must be deleted first"));
        }
        (None, false) => outcome
            .unavailable
            .push(format!("{} is not available to this project (no LocationBinding has this city code)", city.written)),
        (Some(true), false) => {
            // A lost binding must not stop running Instances: the city keeps its deployment until the workload drops the city.
            outcome.unavailable.push(format!("{} is no longer available to this project (no LocationBinding has this city code); its deployment is kept", city.written));
            outcome.desired.insert(name, city);
        }
        (_, true) => {
            outcome.desired.insert(name, city);
        }
    }
}
