//! Where a cell is: the caches of its Locations and LocationBindings.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::ResourceExt;

use super::{index::Index, scope::Scope};
use crate::{
    api::{
        compute::LocationReference,
        names::CityCode,
        neighbours::{Location, LocationBinding},
    },
    controllers::record,
    io::{
        Error, REQUEST_TIMEOUT,
        clients::ControlPlane,
        clock::Now,
        deadline,
        store::{Change, ObjectKey, Store},
    },
    plan::{
        self, Next,
        cell::{
            locations::{self, Observed, Place, Signal, Source},
            networks,
        },
    },
};

/// What serves both kinds.
const GROUP_VERSION: &str = "networking.datumapis.com/v1alpha";

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
    /// True once decisions have begun. A kind that is watched later does not stop them.
    began: AtomicBool,
}

impl Locations {
    fn of(&self, source: Source) -> &Places {
        match source {
            Source::Locations => &self.locations,
            Source::LocationBindings => &self.bindings,
        }
    }

    /// Calls `listener` for every change.
    pub(super) fn listen(&self, listener: impl Fn(&Change<'_, Place>) + Clone + Send + Sync + 'static) {
        for source in Source::ALL {
            self.of(source).store.listen(listener.clone());
        }
    }

    fn watched(&self) -> BTreeSet<Source> {
        Source::ALL.into_iter().filter(|source| self.of(*source).watched.load(Ordering::Acquire)).collect()
    }

    /// The kinds that are watched and whose first list has not come.
    fn unlisted(&self) -> BTreeSet<Source> {
        self.watched().into_iter().filter(|source| !self.of(*source).store.is_synced()).collect()
    }

    /// True if every location is known, of the kinds that the cell serves.
    pub(super) fn is_complete(&self) -> bool {
        !self.watched().is_empty() && self.unlisted().is_empty()
    }

    /// True if enough is known to decide: every location, or the list of one kind has come and that of the other does not.
    pub(super) fn is_synced(&self) -> bool {
        let began = self.began.load(Ordering::Acquire) || self.is_complete();
        if began {
            self.began.store(true, Ordering::Release);
        }
        began
    }

    /// Watches each kind from when the cell serves it; ends when both are watched and listed.
    pub(super) async fn run(&self, plane: &ControlPlane<plan::Cell>, scope: &Scope) {
        let entry = scope.health.watch("locations in cell".into());
        loop {
            entry.trying();
            let served = served(plane).await.map_err(|error| error.to_string());
            let (watched, unlisted) = (self.watched(), self.unlisted());
            let observed = Observed { served, watched, unlisted, retry: scope.timing.network_retry };
            let now = Now::read();
            let plan = locations::plan(&observed, now.time);
            record("locations", &"this cell", &observed, now, &plan);
            for signal in &plan.signals {
                match signal {
                    Signal::Watch(source) => self.watch(*source, plane, scope),
                    Signal::Found => entry.synced(),
                    Signal::Missing(why) => {
                        entry.failed(why);
                    }
                    Signal::GoOn if self.began.swap(true, Ordering::AcqRel) => {}
                    Signal::GoOn => (scope.on_fresh)(),
                }
            }
            match plan.next {
                Next::Await => return, // the entry goes, the watches have their own
                Next::After(pause) => tokio::time::sleep(pause).await,
            }
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
