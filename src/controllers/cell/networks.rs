//! Caches of a cell's networks.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;

use super::{index::Index, locations::Locations};
use crate::{
    api::{
        compute::WorkloadDeployment,
        names::{self, CityCode},
        neighbours::{NetworkBinding, NetworkContext, Subnet, SubnetClaim},
    },
    controllers::Watches,
    io::store::{ObjectKey, Store},
    plan::{self, Shared, cell::networks::Observed, ownership},
};

/// All known network objects of a cell.
pub(super) struct Networks {
    pub(super) locations: Locations,
    /// Indexed by [`Index::ControlledBy`] and [`Index::Context`].
    pub(super) bindings: Arc<Store<NetworkBinding, Index>>,
    pub(super) contexts: Arc<Store<NetworkContext>>,
    /// Indexed by [`Index::Namespace`].
    pub(super) claims: Arc<Store<SubnetClaim, Index>>,
    pub(super) subnets: Arc<Store<Subnet>>,
}

impl Default for Networks {
    fn default() -> Self {
        Self {
            locations: Locations::default(),
            bindings: Arc::new(Store::new(|_, binding: &NetworkBinding| {
                let owner = ownership::controller_of(binding).map(|owner| Index::ControlledBy(owner.uid.clone()));
                let context = binding.status.as_ref().and_then(|status| status.network_context_ref.as_ref());
                let context = context.map(|c| Index::Context(c.namespace.clone(), c.name.clone()));
                owner.into_iter().chain(context).collect()
            })),
            contexts: Arc::new(Store::new(|_, _| Vec::new())),
            claims: Arc::new(Store::new(|key, _| vec![Index::namespace(&key.namespace)])),
            subnets: Arc::new(Store::new(|_, _| Vec::new())),
        }
    }
}

impl Networks {
    /// True if all caches are filled that a decision reads.
    pub(super) fn is_synced(&self) -> bool {
        self.locations.is_synced()
            && self.bindings.is_synced()
            && self.contexts.is_synced()
            && self.claims.is_synced()
            && self.subnets.is_synced()
    }

    /// Starts the watches, except those of locations.
    pub(super) fn start(&self, watches: &Watches<'_, plan::Cell>) {
        watches.written::<NetworkBinding, _>("", |b| b, &self.bindings);
        watches.objects::<NetworkContext, _>("", |c| c, &self.contexts);
        watches.written::<SubnetClaim, _>("", |c| c, &self.claims);
        watches.objects::<Subnet, _>("", |s| s, &self.subnets);
    }

    /// Returns the facts about the networks of a deployment's first `interfaces` interfaces.
    pub(super) fn observe(&self, deployment: &WorkloadDeployment, interfaces: usize) -> Observed {
        let city = CityCode::parse(&deployment.spec.city_code);
        let uid = deployment.uid().unwrap_or_default();
        let mut bindings = self.bindings.by_index(&Index::ControlledBy(uid));
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
        let in_namespace = |namespace: &&String| self.claims.by_index(&Index::namespace(namespace));
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
            locations: city.map(|city| self.locations.of_city(&city)).unwrap_or_default(),
            partial: !self.locations.is_complete(),
            contexts: wanted.iter().filter_map(context).map(Shared::from).collect(),
            subnets: subnets.iter().filter_map(|key| self.subnets.get(key)).map(Shared::from).collect(),
            claims: claims.into_iter().map(Shared::from).collect(),
            bindings: bindings.into_iter().map(Shared::from).collect(),
        }
    }
}
