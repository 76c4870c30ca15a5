//! Watches of the two kinds that name a cell's location. Each watch starts once the cell serves the kind.
//!
//! A missing CRD must not keep the cell from being ready, so one kind is enough. The other CRD may be installed later.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    api::{compute::LocationReference, names::CityCode},
    plan::{Cell, Next, Plan, Write},
};

/// Factor for the interval between checks for the second CRD, if the first is watched. Most cells never get the second.
const PATIENCE_BESIDE_ANOTHER: u32 = 12;

/// The fields of a location, of either kind, that the operator reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the location.
    pub reference: LocationReference,
    /// The city of the location, if it names one.
    pub city: Option<CityCode>,
}

/// The two kinds that name a cell's location. A cell has one or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// `Location`
    Locations,
    /// `LocationBinding`
    LocationBindings,
}

impl Source {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Locations, Self::LocationBindings];

    /// Returns the plural of the kind.
    fn plural(self) -> &'static str {
        match self {
            Self::Locations => "locations",
            Self::LocationBindings => "locationbindings",
        }
    }
}

/// Facts about both kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The plurals in the API group that the cell serves. Empty if the cell does not serve the group. `Err` if discovery failed.
    pub served: Result<Vec<String>, String>,
    /// The watched kinds.
    pub watched: BTreeSet<Source>,
    /// The watched kinds that have not been listed yet.
    #[serde(default)]
    pub unlisted: BTreeSet<Source>,
    /// Interval between checks while neither kind is served.
    pub retry: Duration,
}

/// Instructions to the controller. There are no writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// This kind is served. Start its watch.
    Watch(Source),
    /// At least one kind is watched. The cell can be ready.
    Found,
    /// No kind is watched, for this reason.
    Missing(String),
    /// The list of one kind does not arrive, and the other list has. Decisions go on without it.
    GoOn,
}

/// Decides which watches start, and the time of the next check. If both kinds are watched, there are no more checks. The decision
/// does not depend on the time.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Write<Cell>, Signal> {
    let Observed { served, watched, unlisted, retry } = observed;
    let is_served =
        |source: &Source| served.as_ref().is_ok_and(|served| served.iter().any(|plural| plural == source.plural()));
    let new: Vec<Source> = Source::ALL.into_iter().filter(|s| is_served(s) && !watched.contains(s)).collect();
    let (next, report) = match (watched.len() + new.len(), served) {
        (0, Ok(_)) => {
            let names = Source::ALL.map(|source| format!("{}.networking.datumapis.com", source.plural()));
            let missing = format!("neither CRD {} is installed in cell", names.join(" nor "));
            (Next::After(*retry), Signal::Missing(missing))
        }
        (0, Err(error)) => (Next::After(*retry), Signal::Missing(error.clone())),
        // A first list takes a moment. A list that never arrives must not stop the cell.
        _ if !unlisted.is_empty() || !new.is_empty() => (Next::After(*retry), Signal::Found),
        (1, _) => (Next::After(*retry * PATIENCE_BESIDE_ANOTHER), Signal::Found),
        _ => (Next::Await, Signal::Found),
    };
    let goes_on = (!unlisted.is_empty() && unlisted.len() < watched.len()).then_some(Signal::GoOn);
    Plan::until(Vec::new(), next).with(new.into_iter().map(Signal::Watch)).with([report]).with(goes_on)
}

#[cfg(test)]
mod tests {
    use super::{
        Source::{LocationBindings, Locations},
        *,
    };
    use crate::plan::recorded::recorded;

    /// Once one kind was watched, the other was never watched, even if its CRD was installed later.
    #[test]
    fn locations_served_kind_is_watched() {
        let retry = Duration::from_secs(5);
        let (soon, later) = (Next::After(retry), Next::After(retry * 12));
        let neither = "neither CRD locations.networking.datumapis.com nor locationbindings.networking.datumapis.com is \
                       installed in cell";
        let missing = |why: &str| vec![Signal::Missing(why.to_owned())];
        let found = |new: &[Source]| new.iter().copied().map(Signal::Watch).chain([Signal::Found]).collect::<Vec<_>>();
        for (served, watched, next, expected) in [
            (Ok(&["subnets"][..]), &[][..], soon, missing(neither)),
            (Err("no answer"), &[], soon, missing("no answer")),
            (Ok(&["locations"]), &[], soon, found(&[Locations])),
            (Ok(&["locations", "locationbindings"]), &[], soon, found(&[Locations, LocationBindings])),
            (Ok(&["locations", "locationbindings"]), &[Locations], soon, found(&[LocationBindings])),
            (Ok(&["locations", "locationbindings"]), &[LocationBindings], soon, found(&[Locations])),
            (Ok(&["locations"]), &[Locations], later, found(&[])),
            (Err("no answer"), &[Locations], later, found(&[])),
            (Ok(&[]), &[Locations, LocationBindings], Next::Await, found(&[])),
        ] {
            let served = served.map(|served: &[&str]| served.iter().map(|plural| (*plural).to_owned()).collect());
            let watched = watched.iter().copied().collect();
            let unlisted = BTreeSet::new();
            let observed = Observed { served: served.map_err(str::to_owned), watched, unlisted, retry };
            for plan in [plan(&observed, Timestamp::UNIX_EPOCH), plan(&recorded(&observed), Timestamp::UNIX_EPOCH)] {
                assert_eq!((plan.next, &plan.signals), (next, &expected), "{observed:?}");
                assert!(plan.steps.is_empty());
            }
        }
    }

    /// A failed list of the second kind stopped every decision of its cell.
    #[test]
    fn locations_one_list_missing_does_not_stop_the_other() {
        let retry = Duration::from_secs(5);
        for (watched, unlisted, goes_on, next) in [
            (&[Locations, LocationBindings][..], &[LocationBindings][..], true, Next::After(retry)),
            (&[Locations, LocationBindings], &[Locations], true, Next::After(retry)),
            (&[Locations, LocationBindings], &[Locations, LocationBindings], false, Next::After(retry)),
            (&[Locations], &[Locations], false, Next::After(retry)),
            (&[Locations, LocationBindings], &[], false, Next::Await),
        ] {
            let [watched, unlisted] = [watched, unlisted].map(|kinds| kinds.iter().copied().collect());
            let observed = Observed { served: Ok(Vec::new()), watched, unlisted, retry };
            let plan = plan(&observed, Timestamp::UNIX_EPOCH);
            assert_eq!((plan.signals.contains(&Signal::GoOn), plan.next), (goes_on, next), "{observed:?}");
        }
    }
}
