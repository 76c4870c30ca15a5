//! The caches of a cell's networks, and whom a change of them wakes.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use super::State;
use crate::{
    api::{
        compute::{LocationReference, WorkloadDeployment},
        names::CityCode,
        neighbours::{Location, LocationBinding, NetworkBinding, NetworkContext, Subnet, SubnetClaim},
    },
    controllers::{Watches, with},
    io::{
        REQUEST_TIMEOUT, deadline,
        health::Health,
        store::{ObjectKey, Store},
    },
    plan::{self, cell::networks::View, ownership},
};

/// Between two looks at which kinds of location are served, until one is.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Everything that a cell knows of networks.
pub(super) struct Networks {
    locations: Arc<Store<Place>>,
    location_bindings: Arc<Store<Place>>,
    /// Whether locations and location bindings are watched: whichever of the two the cell served first.
    watched: OnceLock<(bool, bool)>,
    /// By the uid of the deployment that controls them, and by [`context_index`].
    bindings: Arc<Store<NetworkBinding>>,
    contexts: Arc<Store<NetworkContext>>,
    /// By [`namespace_index`].
    claims: Arc<Store<SubnetClaim>>,
    subnets: Arc<Store<Subnet>>,
}

/// A location, by the one thing that is looked for.
struct Place {
    reference: LocationReference,
    city: Option<CityCode>,
}

fn context_index(namespace: &str, name: &str) -> String {
    format!("context {namespace}/{name}")
}

fn namespace_index(namespace: &str) -> String {
    format!("namespace {namespace}")
}

impl Default for Networks {
    fn default() -> Self {
        let place = || Arc::new(Store::new(|_, place: &Place| place.city.iter().map(ToString::to_string).collect()));
        Self {
            locations: place(),
            location_bindings: place(),
            watched: OnceLock::new(),
            bindings: Arc::new(Store::new(|_, binding: &NetworkBinding| {
                let owner = ownership::controller_of(binding).map(|owner| owner.uid.clone());
                let context = binding.status.as_ref().and_then(|status| status.network_context_ref.as_ref());
                owner.into_iter().chain(context.map(|c| context_index(&c.namespace, &c.name))).collect()
            })),
            contexts: Arc::new(Store::new(|_, _| Vec::new())),
            claims: Arc::new(Store::new(|key, _| vec![namespace_index(&key.namespace)])),
            subnets: Arc::new(Store::new(|_, _| Vec::new())),
        }
    }
}

impl Networks {
    /// Whether everything is known that a decision reads.
    pub(super) fn is_synced(&self) -> bool {
        let synced = |watched: bool, store: &Store<Place>| !watched || store.is_synced();
        self.watched.get().is_some_and(|(locations, bindings)| {
            synced(*locations, &self.locations) && synced(*bindings, &self.location_bindings)
        }) && self.bindings.is_synced()
            && self.contexts.is_synced()
            && self.claims.is_synced()
            && self.subnets.is_synced()
    }

    /// Starts the watches; `state` holds these caches.
    pub(super) fn start(
        &self,
        state: &Arc<State>,
        watches: &Watches<'_, plan::Cell>,
        health: &Health,
        stop: &CancellationToken,
    ) {
        self.listen(state);
        watches.written::<NetworkBinding, _>("", |b| b, &self.bindings);
        watches.objects::<NetworkContext, _>("", |c| c, &self.contexts);
        watches.written::<SubnetClaim, _>("", |c| c, &self.claims);
        watches.objects::<Subnet, _>("", |s| s, &self.subnets);
        let (state, health, stop) = (state.clone(), health.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = watch_locations(&state, &health, &stop) => {}
            }
        });
    }

    fn listen(&self, state: &Arc<State>) {
        let weak = Arc::downgrade(state);
        self.bindings.listen(move |change| {
            let owners = change.old.into_iter().chain(change.new).filter_map(|b| ownership::controller_of(b.as_ref()));
            with(&weak, |state| owners.for_each(|owner| state.wake_deployment(&change.key.namespace, &owner.name)));
        });
        let weak = Arc::downgrade(state);
        self.contexts.listen(move |change| {
            with_networks(&weak, |state, networks| {
                networks.wake_users(state, &change.key.namespace, &change.key.name);
            });
        });
        let weak = Arc::downgrade(state);
        self.claims.listen(move |change| {
            with_networks(&weak, |state, networks| {
                let context = change.any().map(|claim| claim.spec.network_context.name.clone());
                networks.wake_users(state, &change.key.namespace, &context.unwrap_or_default());
            });
        });
        let weak = Arc::downgrade(state);
        self.subnets.listen(move |change| {
            with_networks(&weak, |state, networks| {
                let context = change.any().map(|subnet| subnet.spec.network_context.name.clone());
                networks.wake_users(state, &change.key.namespace, &context.unwrap_or_default());
            });
        });
        for places in [&self.locations, &self.location_bindings] {
            let weak = Arc::downgrade(state);
            places.listen(move |_| {
                with(&weak, |state| state.everything_again());
            });
        }
    }

    /// Whoever has a binding in this context.
    fn wake_users(&self, state: &State, namespace: &str, context: &str) {
        for binding in self.bindings.by_index(&context_index(namespace, context)) {
            if let Some(owner) = ownership::controller_of(binding.as_ref()) {
                state.wake_deployment(&binding.namespace().unwrap_or_default(), &owner.name);
            }
        }
    }
}

fn with_networks(state: &std::sync::Weak<State>, act: impl FnOnce(&State, &Networks)) {
    with(state, |state| {
        if let Some(networks) = &state.networks {
            act(state, networks);
        }
    });
}

/// A cell has Locations, LocationBindings or both. A definition that is not installed must not keep the cell from
/// being ready, so what is watched is what is served, as soon as either is.
async fn watch_locations(state: &Arc<State>, health: &Health, stop: &CancellationToken) {
    const GROUP_VERSION: &str = "networking.datumapis.com/v1alpha";
    let Some(networks) = &state.networks else { return };
    let entry = health.watch("locations in cell".into());
    loop {
        entry.trying();
        let client = state.plane.connection().client();
        let call = || format!("discover {GROUP_VERSION} in cell");
        let served = match deadline(REQUEST_TIMEOUT, call, client.list_api_group_resources(GROUP_VERSION)).await {
            Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
            Err(error) if error.missing().is_some() => Vec::new(),
            Err(error) => {
                entry.failed(&error.to_string());
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
        };
        let is_served = |plural: &str| served.iter().any(|name| name == plural);
        let (locations, bindings) = (is_served("locations"), is_served("locationbindings"));
        if !locations && !bindings {
            entry.failed("neither CRD locations.networking.datumapis.com nor locationbindings.networking.datumapis.com is installed in cell");
            tokio::time::sleep(LOOK_AGAIN).await;
            continue;
        }
        let again = state.clone();
        let watches = state.watches(health, stop, Arc::new(move || again.everything_again()));
        if locations {
            let keep = |location: Location| Place {
                reference: LocationReference { name: location.name_any(), namespace: location.namespace() },
                city: location.spec.city(),
            };
            watches.objects::<Location, _>("", keep, &networks.locations);
        }
        if bindings {
            let keep = |binding: LocationBinding| {
                let own = LocationReference { name: binding.name_any(), namespace: None };
                Place { city: binding.spec.city(), reference: binding.spec.location_ref.unwrap_or(own) }
            };
            watches.objects::<LocationBinding, _>("", keep, &networks.location_bindings);
        }
        let _ = networks.watched.set((locations, bindings));
        return; // the entry goes, the watches have their own
    }
}

impl View for Networks {
    fn locations(&self, city: &CityCode) -> Vec<LocationReference> {
        let mut found: Vec<LocationReference> = Vec::new();
        let city = city.to_string();
        for place in self.locations.by_index(&city).into_iter().chain(self.location_bindings.by_index(&city)) {
            if !found.iter().any(|known| known.name == place.reference.name) {
                found.push(place.reference.clone());
            }
        }
        found
    }

    fn binding(&self, namespace: &str, name: &str) -> Option<Arc<NetworkBinding>> {
        self.bindings.get(&ObjectKey::new(namespace, name))
    }

    fn bindings_of(&self, deployment: &WorkloadDeployment) -> Vec<Arc<NetworkBinding>> {
        self.bindings.by_index(&deployment.uid().unwrap_or_default())
    }

    fn context(&self, namespace: &str, name: &str) -> Option<Arc<NetworkContext>> {
        self.contexts.get(&ObjectKey::new(namespace, name))
    }

    fn claims(&self, namespace: &str) -> Vec<Arc<SubnetClaim>> {
        self.claims.by_index(&namespace_index(namespace))
    }

    fn subnet(&self, namespace: &str, name: &str) -> Option<Arc<Subnet>> {
        self.subnets.get(&ObjectKey::new(namespace, name))
    }
}
