//! Caches of the Locations and LocationBindings, which name the cell's location.

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

/// Group and version of both kinds.
const GROUP_VERSION: &str = "networking.datumapis.com/v1alpha";

/// The cache of one kind.
struct Places {
    /// Indexed by [`Index::City`].
    store: Arc<Store<Place, Index>>,
    /// True once the watch has started. It starts when the cell serves the kind.
    watched: AtomicBool,
}

impl Default for Places {
    fn default() -> Self {
        let by_city = |_: &ObjectKey, place: &Place| place.city.iter().cloned().map(Index::City).collect();
        Self { store: Arc::new(Store::new(by_city)), watched: AtomicBool::new(false) }
    }
}

/// All known locations of a cell.
#[derive(Default)]
pub(super) struct Locations {
    locations: Places,
    bindings: Places,
    /// True once decisions have begun. A watch that starts later does not stop them.
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

    /// Returns the watched kinds that have not been listed yet.
    fn unlisted(&self) -> BTreeSet<Source> {
        self.watched().into_iter().filter(|source| !self.of(*source).store.is_synced()).collect()
    }

    /// True if all locations of the served kinds are known.
    pub(super) fn is_complete(&self) -> bool {
        !self.watched().is_empty() && self.unlisted().is_empty()
    }

    /// True if enough is known to decide: all locations, or the list of one kind while the other list does not arrive.
    pub(super) fn is_synced(&self) -> bool {
        let began = self.began.load(Ordering::Acquire) || self.is_complete();
        if began {
            self.began.store(true, Ordering::Release);
        }
        began
    }

    /// Starts the watch of each kind once the cell serves it. Ends when both kinds are watched and listed.
    pub(super) async fn run(&self, plane: &ControlPlane<plan::Cell>, scope: &Scope) {
        let entry = scope.health.watch("locations in cell".into());
        loop {
            entry.trying();
            let served = served(plane).await.map_err(|error| error.to_string());
            let (watched, unlisted) = (self.watched(), self.unlisted());
            let observed = Observed { served, watched, unlisted, retry: scope.timing.poll };
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
                Next::Await => return, // ends the health entry: the watches have their own entries
                Next::After(pause) => tokio::time::sleep(pause).await,
            }
        }
    }

    fn watch(&self, source: Source, plane: &ControlPlane<plan::Cell>, scope: &Scope) {
        let (watches, places) = (scope.watches(plane), self.of(source));
        // Set before the watch starts: the locations of this kind are unknown until its first list has arrived.
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

    /// Returns the locations of a city, without duplicates.
    pub(super) fn of_city(&self, city: &CityCode) -> Vec<LocationReference> {
        let places = |source: Source| self.of(source).store.by_index(&Index::City(city.clone()));
        networks::distinct(Source::ALL.into_iter().flat_map(places).map(|place| place.reference.clone()))
    }
}

/// Returns the plurals in the API group that the cell serves. Empty if the cell does not serve the group.
async fn served(plane: &ControlPlane<plan::Cell>) -> Result<Vec<String>, Error> {
    let client = plane.connection().client();
    let call = || format!("discover {GROUP_VERSION} in cell");
    match plane.connection().within(REQUEST_TIMEOUT, call, client.list_api_group_resources(GROUP_VERSION)).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        Err(error) if error.missing().is_some() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
