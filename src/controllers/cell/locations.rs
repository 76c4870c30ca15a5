//! Where a cell is: the caches of its Locations and LocationBindings.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use kube::ResourceExt;

use super::{index::Index, scope::Scope};
use crate::{
    api::{
        compute::LocationReference,
        names::CityCode,
        neighbours::{Location, LocationBinding},
    },
    io::{
        Error, REQUEST_TIMEOUT,
        clients::ControlPlane,
        deadline,
        store::{ObjectKey, Store},
    },
    plan::{self, cell::networks},
};

/// What serves both kinds.
const GROUP_VERSION: &str = "networking.datumapis.com/v1alpha";

/// How many times longer to wait between two looks for a definition that is missing beside one that is watched: most
/// cells never get the other.
const PATIENCE_BESIDE_ANOTHER: u32 = 12;

/// The two kinds that say where a cell is. A cell has either, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Locations,
    LocationBindings,
}

impl Source {
    const ALL: [Self; 2] = [Self::Locations, Self::LocationBindings];

    /// The kind's plural.
    fn plural(self) -> &'static str {
        match self {
            Self::Locations => "locations",
            Self::LocationBindings => "locationbindings",
        }
    }
}

/// A location, by the one thing that is looked for.
pub(super) struct Place {
    reference: LocationReference,
    city: Option<CityCode>,
}

/// One kind's cache.
struct Places {
    /// By [`Index::City`].
    store: Arc<Store<Place, Index>>,
    /// Whether it is watched: from when the cell serves its kind.
    watched: AtomicBool,
}

impl Default for Places {
    fn default() -> Self {
        let by_city = |_: &ObjectKey, place: &Place| place.city.iter().cloned().map(Index::City).collect();
        Self { store: Arc::new(Store::new(by_city)), watched: AtomicBool::new(false) }
    }
}

/// Everything that a cell knows of where it is.
#[derive(Default)]
pub(super) struct Locations {
    locations: Places,
    bindings: Places,
}

impl Locations {
    fn of(&self, source: Source) -> &Places {
        match source {
            Source::Locations => &self.locations,
            Source::LocationBindings => &self.bindings,
        }
    }

    /// Calls `listener` for every change.
    pub(super) fn listen(&self, listener: impl Fn() + Clone + Send + Sync + 'static) {
        for source in Source::ALL {
            let listener = listener.clone();
            self.of(source).store.listen(move |_| listener());
        }
    }

    fn watched(&self) -> Vec<Source> {
        Source::ALL.into_iter().filter(|source| self.of(*source).watched.load(Ordering::Acquire)).collect()
    }

    /// Whether every location is known, of the kinds that the cell serves.
    pub(super) fn is_synced(&self) -> bool {
        let watched = self.watched();
        !watched.is_empty() && watched.into_iter().all(|source| self.of(source).store.is_synced())
    }

    /// Watches each kind from when the cell serves it; ends when both are watched.
    ///
    /// A definition that is not installed must not keep the cell from being ready, so that one kind is enough. The other
    /// may be installed on any later day.
    pub(super) async fn run(&self, plane: &ControlPlane<plan::Cell>, scope: &Scope) {
        let entry = scope.health.watch("locations in cell".into());
        loop {
            entry.trying();
            let found = served(plane).await;
            for source in to_watch(found.as_ref().map_or(&[], Vec::as_slice), &self.watched()) {
                self.watch(source, plane, scope);
            }
            let retry = scope.timing.network_retry;
            let pause = match (self.watched().len(), found) {
                (2, _) => return, // the entry goes, the watches have their own
                (1, found) => {
                    entry.synced();
                    if let Err(error) = found {
                        tracing::debug!(%error, "cannot look for the other kind of location");
                    }
                    retry * PATIENCE_BESIDE_ANOTHER
                }
                (_, Ok(_)) => {
                    entry.failed("neither CRD locations.networking.datumapis.com nor locationbindings.networking.datumapis.com is installed in cell");
                    retry
                }
                (_, Err(error)) => {
                    entry.failed(&error.to_string());
                    retry
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn watch(&self, source: Source, plane: &ControlPlane<plan::Cell>, scope: &Scope) {
        let (watches, places) = (scope.watches(plane), self.of(source));
        // First: from now on its locations are unknown until the first list is in.
        places.watched.store(true, Ordering::Release);
        match source {
            Source::Locations => {
                let keep = |location: Location| Place {
                    reference: LocationReference { name: location.name_any(), namespace: location.namespace() },
                    city: location.spec.city(),
                };
                watches.objects::<Location, _>("", keep, &places.store);
            }
            Source::LocationBindings => {
                let keep = |binding: LocationBinding| {
                    let own = LocationReference { name: binding.name_any(), namespace: None };
                    Place { city: binding.spec.city(), reference: binding.spec.location_ref.unwrap_or(own) }
                };
                watches.objects::<LocationBinding, _>("", keep, &places.store);
            }
        }
    }

    /// Locations of a city, each once.
    pub(super) fn of_city(&self, city: &CityCode) -> Vec<LocationReference> {
        let places = |source: Source| self.of(source).store.by_index(&Index::City(city.clone()));
        networks::distinct(Source::ALL.into_iter().flat_map(places).map(|place| place.reference.clone()))
    }
}

/// The kinds that are served and not watched yet.
fn to_watch(served: &[String], watched: &[Source]) -> Vec<Source> {
    let is_served = |source: &Source| served.iter().any(|plural| plural == source.plural());
    Source::ALL.into_iter().filter(|source| is_served(source) && !watched.contains(source)).collect()
}

/// The plurals that the cell serves beside its locations; none when it does not know the group.
async fn served(plane: &ControlPlane<plan::Cell>) -> Result<Vec<String>, Error> {
    let client = plane.connection().client();
    let call = || format!("discover {GROUP_VERSION} in cell");
    match deadline(REQUEST_TIMEOUT, call, client.list_api_group_resources(GROUP_VERSION)).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        Err(error) if error.missing().is_some() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by reading: once one kind was watched the other never was, however late it was installed.
    #[test]
    fn each_kind_is_watched_once_it_is_served() {
        use Source::{LocationBindings, Locations};
        for (served, watched, expected) in [
            (&["subnets"][..], &[][..], vec![]),
            (&["locations"], &[], vec![Locations]),
            (&["locations", "locationbindings"], &[], vec![Locations, LocationBindings]),
            (&["locations", "locationbindings"], &[Locations], vec![LocationBindings]),
            (&["locations", "locationbindings"], &[LocationBindings], vec![Locations]),
            (&["locations"], &[Locations], vec![]),
        ] {
            let served: Vec<String> = served.iter().map(|plural| (*plural).to_owned()).collect();
            assert_eq!(to_watch(&served, watched), expected, "{served:?} beside {watched:?}");
        }
    }
}
