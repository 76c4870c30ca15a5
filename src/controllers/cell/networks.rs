//! The caches of a cell's networks.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use kube::ResourceExt;

use super::{index::Index, scope::Scope};
use crate::{
    api::{
        compute::{LocationReference, WorkloadDeployment},
        names::{self, CityCode},
        neighbours::{Location, LocationBinding, NetworkBinding, NetworkContext, Subnet, SubnetClaim},
    },
    controllers::Watches,
    io::{
        REQUEST_TIMEOUT,
        clients::ControlPlane,
        deadline,
        store::{ObjectKey, Store},
    },
    plan::{self, Shared, cell::networks::Observed, ownership},
};

/// Everything that a cell knows of networks.
pub(super) struct Networks {
    /// By [`Index::City`].
    pub(super) locations: Arc<Store<Place>>,
    /// By [`Index::City`].
    pub(super) location_bindings: Arc<Store<Place>>,
    /// Whether locations and location bindings are watched: whichever of the two the cell served first.
    watched: OnceLock<(bool, bool)>,
    /// By [`Index::ControlledBy`] and [`Index::Context`].
    pub(super) bindings: Arc<Store<NetworkBinding>>,
    pub(super) contexts: Arc<Store<NetworkContext>>,
    /// By [`Index::Namespace`].
    pub(super) claims: Arc<Store<SubnetClaim>>,
    pub(super) subnets: Arc<Store<Subnet>>,
}

/// A location, by the one thing that is looked for.
pub(super) struct Place {
    reference: LocationReference,
    city: Option<CityCode>,
}

impl Default for Networks {
    fn default() -> Self {
        let by_city = |_: &ObjectKey, place: &Place| {
            place.city.iter().map(|city| Index::City(city).to_string()).collect::<Vec<_>>()
        };
        Self {
            locations: Arc::new(Store::new(by_city)),
            location_bindings: Arc::new(Store::new(by_city)),
            watched: OnceLock::new(),
            bindings: Arc::new(Store::new(|_, binding: &NetworkBinding| {
                let owner = ownership::controller_of(binding).map(|owner| Index::ControlledBy(&owner.uid).to_string());
                let context = binding.status.as_ref().and_then(|status| status.network_context_ref.as_ref());
                let context = context.map(|c| Index::Context(&c.namespace, &c.name).to_string());
                owner.into_iter().chain(context).collect()
            })),
            contexts: Arc::new(Store::new(|_, _| Vec::new())),
            claims: Arc::new(Store::new(|key, _| vec![Index::Namespace(&key.namespace).to_string()])),
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

    /// Starts the watches, those of locations aside.
    pub(super) fn start(&self, watches: &Watches<'_, plan::Cell>) {
        watches.written::<NetworkBinding, _>("", |b| b, &self.bindings);
        watches.objects::<NetworkContext, _>("", |c| c, &self.contexts);
        watches.written::<SubnetClaim, _>("", |c| c, &self.claims);
        watches.objects::<Subnet, _>("", |s| s, &self.subnets);
    }

    /// Starts the watches of locations, once the cell serves some.
    ///
    /// A cell has Locations, LocationBindings or both. A definition that is not installed must not keep the cell from
    /// being ready, so what is watched is what is served, as soon as either is.
    pub(super) async fn start_locations(&self, plane: &ControlPlane<plan::Cell>, scope: &Scope) {
        let (locations, bindings) = served(plane, scope).await;
        let watches = scope.watches(plane);
        if locations {
            let keep = |location: Location| Place {
                reference: LocationReference { name: location.name_any(), namespace: location.namespace() },
                city: location.spec.city(),
            };
            watches.objects::<Location, _>("", keep, &self.locations);
        }
        if bindings {
            let keep = |binding: LocationBinding| {
                let own = LocationReference { name: binding.name_any(), namespace: None };
                Place { city: binding.spec.city(), reference: binding.spec.location_ref.unwrap_or(own) }
            };
            watches.objects::<LocationBinding, _>("", keep, &self.location_bindings);
        }
        let _ = self.watched.set((locations, bindings));
    }

    /// What is known of the networks of a deployment's first `interfaces` interfaces.
    pub(super) fn observe(&self, deployment: &WorkloadDeployment, interfaces: usize) -> Observed {
        let city = CityCode::parse(&deployment.spec.city_code);
        let uid = deployment.uid().unwrap_or_default();
        let mut bindings = self.bindings.by_index(&Index::ControlledBy(&uid).to_string());
        let namespace = deployment.namespace().unwrap_or_default();
        let known: BTreeSet<String> = bindings.iter().map(|binding| binding.name_any()).collect();
        let names = (0..interfaces).map(|index| names::network_binding_name(&deployment.name_any(), index));
        let others = names.filter(|name| !known.contains(name));
        bindings.extend(others.filter_map(|name| self.bindings.get(&ObjectKey::new(&namespace, &name))));
        let wanted: BTreeSet<(String, String)> = bindings
            .iter()
            .filter_map(|binding| binding.status.as_ref()?.network_context_ref.as_ref())
            .map(|context| (context.namespace.clone(), context.name.clone()))
            .collect();
        let namespaces: BTreeSet<&String> = wanted.iter().map(|(namespace, _)| namespace).collect();
        let in_namespace = |namespace: &&String| self.claims.by_index(&Index::Namespace(namespace).to_string());
        let claims: Vec<Arc<SubnetClaim>> = namespaces.iter().flat_map(in_namespace).collect();
        let on_wanted = |claim: &&Arc<SubnetClaim>| {
            let namespace = claim.namespace().unwrap_or_default();
            wanted.contains(&(namespace, claim.spec.network_context.name.clone()))
        };
        let subnets: BTreeSet<ObjectKey> = claims
            .iter()
            .filter(on_wanted)
            .filter_map(|claim| {
                let subnet = claim.status.as_ref()?.subnet_ref.as_ref()?;
                Some(ObjectKey::new(&claim.namespace().unwrap_or_default(), &subnet.name))
            })
            .collect();
        let context = |(namespace, name): &(String, String)| self.contexts.get(&ObjectKey::new(namespace, name));
        Observed {
            locations: city.map(|city| self.locations_of(&city)).unwrap_or_default(),
            contexts: wanted.iter().filter_map(context).map(Shared::from).collect(),
            subnets: subnets.iter().filter_map(|key| self.subnets.get(key)).map(Shared::from).collect(),
            claims: claims.into_iter().map(Shared::from).collect(),
            bindings: bindings.into_iter().map(Shared::from).collect(),
        }
    }

    /// Locations of a city, by name, each once.
    fn locations_of(&self, city: &CityCode) -> Vec<LocationReference> {
        let mut found: Vec<LocationReference> = Vec::new();
        let city = Index::City(city).to_string();
        for place in self.locations.by_index(&city).into_iter().chain(self.location_bindings.by_index(&city)) {
            if !found.iter().any(|known| known.name == place.reference.name) {
                found.push(place.reference.clone());
            }
        }
        found
    }
}

/// Whether the cell serves Locations, and LocationBindings; waits until it serves either.
async fn served(plane: &ControlPlane<plan::Cell>, scope: &Scope) -> (bool, bool) {
    const GROUP_VERSION: &str = "networking.datumapis.com/v1alpha";
    let entry = scope.health.watch("locations in cell".into());
    loop {
        entry.trying();
        let client = plane.connection().client();
        let call = || format!("discover {GROUP_VERSION} in cell");
        let served = match deadline(REQUEST_TIMEOUT, call, client.list_api_group_resources(GROUP_VERSION)).await {
            Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
            Err(error) if error.missing().is_some() => Vec::new(),
            Err(error) => {
                entry.failed(&error.to_string());
                tokio::time::sleep(scope.timing.network_retry).await;
                continue;
            }
        };
        let is_served = |plural: &str| served.iter().any(|name| name == plural);
        let (locations, bindings) = (is_served("locations"), is_served("locationbindings"));
        if locations || bindings {
            return (locations, bindings); // the entry goes, the watches have their own
        }
        entry.failed("neither CRD locations.networking.datumapis.com nor locationbindings.networking.datumapis.com is installed in cell");
        tokio::time::sleep(scope.timing.network_retry).await;
    }
}
