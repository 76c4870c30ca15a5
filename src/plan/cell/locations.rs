//! Which of the kinds that say where a cell is are watched: each from when the cell serves it.
//!
//! A definition that is not installed must not keep the cell from being ready, so that one kind is enough. The other may be
//! installed on any later day.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    api::{compute::LocationReference, names::CityCode},
    plan::{Cell, Next, Plan, Write},
};

/// How many times longer to wait between two looks for a definition that is missing beside one that is watched: most
/// cells never get the other.
const PATIENCE_BESIDE_ANOTHER: u32 = 12;

/// A location of either kind: all that is read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What it is called.
    pub reference: LocationReference,
    /// Its city, if it names one.
    pub city: Option<CityCode>,
}

/// The two kinds that say where a cell is. A cell has either, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// `Location`
    Locations,
    /// `LocationBinding`
    LocationBindings,
}

impl Source {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Locations, Self::LocationBindings];

    /// The kind's plural.
    fn plural(self) -> &'static str {
        match self {
            Self::Locations => "locations",
            Self::LocationBindings => "locationbindings",
        }
    }
}

/// What is known of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The plurals that the cell serves beside its locations, none when it does not know the group; or why nobody knows.
    pub served: Result<Vec<String>, String>,
    /// Those that are watched.
    pub watched: BTreeSet<Source>,
    /// Those of them whose first list has not come.
    #[serde(default)]
    pub unlisted: BTreeSet<Source>,
    /// How long to wait before the next look while neither is served.
    pub retry: Duration,
}

/// What the controller is to do; there is nothing to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// This kind is served, and to be watched from now on.
    Watch(Source),
    /// One kind at least is watched, which is enough for the cell to be ready.
    Found,
    /// None is watched, for this reason.
    Missing(String),
    /// The list of a kind does not come, and that of the other has: decisions go on without it.
    GoOn,
}

/// Decides which kinds are watched from now on, and when to look for what is missing. Once both are watched, there is
/// nothing to look for; nothing of it depends on the time.
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
        // A first list takes a moment; one that does not come must not stop the cell.
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

    /// Found by reading: once one kind was watched the other never was, however late it was installed.
    #[test]
    fn each_kind_is_watched_once_it_is_served() {
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

    /// A second kind whose list failed stopped every decision of its cell.
    #[test]
    fn a_kind_whose_list_does_not_come_stops_nothing_beside_another() {
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
