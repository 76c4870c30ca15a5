//! Users of a companion by its own list and the hub's caches, and residue of former claims on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::controllers::management::{referenced_data::companion::ResolvedKey, wiring::index::namespace_index};
use crate::{
    api::{names, referenced::MAX_NAMED_USERS},
    io::store::ObjectKey,
    plan::{
        ObjectVersion, Shared,
        management::{
            observed::{facts::CompanionFacts, phase},
            referenced_data::{
                companion::{self, FormerUser, ResidueFacts, User},
                foreign_claim::ForeignClaim,
                residue,
            },
        },
    },
};

impl ResolvedKey<'_> {
    /// Returns the deployments in `referenced-by` that are not among the users.
    pub(crate) fn former_users(&self, users: &[User], companion: &CompanionFacts) -> BTreeMap<String, FormerUser> {
        let users: BTreeSet<&str> = users.iter().map(|user| &*user.name).collect();
        let names = companion.users.iter().flatten().filter(|_| !companion.has_many_users());
        let users_then = names.filter_map(|user| companion::named(user));
        let former = users_then.filter(|(namespace, name)| *namespace != self.namespace || !users.contains(name));
        let observe = |(_, name): (&str, &str)| {
            let deployment = self.project.deployment(&ObjectKey::new(self.namespace, name));
            let key = ObjectKey::new(&self.hub_namespace, name);
            let copy = self.of.ctx.hub.copy(&key);
            let former = FormerUser {
                deployment: deployment.map(Shared::from),
                copy_exists: self.of.ctx.hub.copies.contains(&key), // readable or not
                copy_expects: copy.is_some_and(|copy| companion::expects(&copy, self.data_ref)),
            };
            (name.to_owned(), former)
        };
        former.map(observe).collect()
    }

    /// Returns the copies on the hub that were promised a companion whose list does not name its users. At most one more than a
    /// list names. `None` while a copy cannot be read.
    pub(crate) fn expecting(&self, users: usize, companion: &CompanionFacts) -> Option<BTreeSet<String>> {
        let (copies, namespace) = (&self.of.ctx.hub.copies, &*self.hub_namespace);
        if !companion.names_nobody() || copies.has_unreadable(namespace) {
            return None;
        }
        // With the marker for many users, and more users than a list names, the copies do not change the decision.
        if companion.has_many_users() && users > MAX_NAMED_USERS {
            return Some(BTreeSet::new());
        }
        let all = copies.entries_by_index(&namespace_index(namespace)).into_iter();
        let expecting = all.filter(|(_, copy)| copy.expects(self.data_ref)).map(|(key, _)| key.name.to_string());
        Some(expecting.take(MAX_NAMED_USERS + 1).collect())
    }

    /// Returns the residue of former claims. Copies that expect the companion are read only if there is residue.
    pub(crate) fn residue(&self, companion: &CompanionFacts) -> Option<ResidueFacts> {
        let (hub, namespace) = (&self.of.ctx.hub, &*self.hub_namespace);
        if !hub.knows_karmada() || hub.copies.has_unreadable(namespace) {
            return None; // living policies and users are unknown; a filled cache enqueues every key
        }
        let name = names::binding_name(self.data_ref.kind.as_str(), &self.data_ref.name);
        let binding = hub.bindings.get(&ObjectKey::new(namespace, &name))?;
        let lives = |policy: &str| {
            let key = ObjectKey::new(namespace, policy);
            match hub.policies.get(&key) {
                Some(policy) => phase::selects(&policy.spec, self.data_ref.kind),
                None => hub.policies.contains(&key), // it exists but cannot be read
            }
        };
        let is_abandoned = |claim: &ForeignClaim| hub.is_abandoned(namespace, claim);
        let residue = residue::of(companion, &binding, lives, is_abandoned)?;
        let copies = hub.copies.entries_by_index(&namespace_index(namespace));
        let expecting = copies.iter().filter(|(_, copy)| copy.expects(self.data_ref));
        let expecting = expecting.map(|(key, _)| &*key.name);
        let needed = expecting.filter_map(|copy| {
            let parent = names::deployment_binding(copy);
            let clusters = hub.binding_of(namespace, copy).map(|binding| binding.clusters.clone());
            residue::is_needed(&binding, &parent, clusters.as_ref().map(|clusters| &clusters[..])).then_some(parent)
        });
        Some(ResidueFacts {
            on_companion: residue.on_companion,
            on_binding: residue.on_binding.then(|| ObjectVersion::new(&binding.uid, &binding.version)),
            needed_by: needed.collect(),
        })
    }
}
