//! Which of the kinds that say where a cell is are watched: each from when the cell serves it.
//!
//! A definition that is not installed must not keep the cell from being ready, so that one kind is enough. The other may be
//! installed on any later day.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::plan::{Cell, Next, Plan, Write};

/// How many times longer to wait between two looks for a definition that is missing beside one that is watched: most
/// cells never get the other.
const PATIENCE_BESIDE_ANOTHER: u32 = 12;

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
}

/// Decides which kinds are watched from now on, and when to look for what is missing. Once both are watched, there is
/// nothing to look for; nothing of it depends on the time.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Write<Cell>, Signal> {
    let Observed { served, watched, retry } = observed;
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
        (1, _) => (Next::After(*retry * PATIENCE_BESIDE_ANOTHER), Signal::Found),
        _ => (Next::Await, Signal::Found),
    };
    Plan::until(Vec::new(), next).with(new.into_iter().map(Signal::Watch)).with([report])
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
            (Ok(&["locations"]), &[], later, found(&[Locations])),
            (Ok(&["locations", "locationbindings"]), &[], Next::Await, found(&[Locations, LocationBindings])),
            (Ok(&["locations", "locationbindings"]), &[Locations], Next::Await, found(&[LocationBindings])),
            (Ok(&["locations", "locationbindings"]), &[LocationBindings], Next::Await, found(&[Locations])),
            (Ok(&["locations"]), &[Locations], later, found(&[])),
            (Err("no answer"), &[Locations], later, found(&[])),
            (Ok(&[]), &[Locations, LocationBindings], Next::Await, found(&[])),
        ] {
            let served = served.map(|served: &[&str]| served.iter().map(|plural| (*plural).to_owned()).collect());
            let watched = watched.iter().copied().collect();
            let observed = Observed { served: served.map_err(str::to_owned), watched, retry };
            for plan in [plan(&observed, Timestamp::UNIX_EPOCH), plan(&recorded(&observed), Timestamp::UNIX_EPOCH)] {
                assert_eq!((plan.next, &plan.signals), (next, &expected), "{observed:?}");
                assert!(plan.steps.is_empty());
            }
        }
    }
}
