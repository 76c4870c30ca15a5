//! Users of a companion by the caches of project and hub, and residue of former claims on it.

use std::collections::BTreeMap;

use crate::controllers::management::{
    referenced_data::companion::{PackedUser, ResolvedKey},
    wiring::index::namespace_index,
};
use crate::{
    api::{
        names,
        user_list::{MAX_NAMED_USERS, UserList},
    },
    controllers::compact::PackedDeployment,
    io::store::ObjectKey,
    plan::{
        ObjectVersion,
        management::{
            observed::{facts::CompanionFacts, phase},
            referenced_data::{
                companion::ResidueFacts,
                foreign_claim::ForeignClaim,
                residue,
                resolve::{does_without, lets_go, wants_companion},
                users::{self, HubCopy, User, Users},
            },
        },
    },
};

impl ResolvedKey<'_> {
    /// Returns the deployments that may use the companion. `referring`: those that refer to the source.
    pub(crate) fn users(&self, referring: &[PackedUser], companion: Option<&CompanionFacts>) -> Users {
        Users {
            by_name: self.users_by_name(referring, companion),
            unknown_deployments: self.project.deployments.has_unreadable(self.namespace),
            unknown_copies: self.of.ctx.hub.copies.has_unreadable(&self.hub_namespace),
        }
    }

    fn users_by_name(&self, referring: &[PackedUser], companion: Option<&CompanionFacts>) -> BTreeMap<String, User> {
        let source = self.project.sources(self.data_ref.kind).get(&self.source);
        let in_use = |(_, wd): &&PackedUser| {
            // The whole deployment is unpacked only if it does without the source.
            !does_without(wd.references(), self.data_ref, &source) || !lets_go(&wd.open(), self.data_ref, &source)
        };
        let user = |(key, deployment): &PackedUser| {
            let copy = self.hub_copy(&key.name);
            let wants_copy = !deployment.is_deleting() && self.wants_companion(deployment, copy == HubCopy::Expects);
            (key.name.to_string(), User { refers: true, wants_copy, copy, deployment: None })
        };
        let referring = referring.iter().filter(in_use).map(user);
        let list = companion.map(|companion| &companion.users);
        // With many users, each new one would cause a check of all others.
        let has_many = list.is_some_and(UserList::has_many);
        let mut users = if has_many { users::enough(referring) } else { referring.collect() };
        for entry in list.into_iter().flat_map(UserList::names) {
            let name = entry.deployment();
            users.entry(name.to_owned()).or_insert_with(|| User {
                copy: self.hub_copy(name),
                deployment: self.project.deployment(&ObjectKey::new(self.namespace, name)),
                ..User::default()
            });
        }
        if users::needs_copies(&users, list, self.namespace) {
            for name in self.expecting().take(MAX_NAMED_USERS + 1) {
                users.entry(name).or_insert_with(|| User { copy: HubCopy::Expects, ..User::default() });
            }
        }
        users
    }

    /// True if a deployment that refers to the source needs a copy of it now. `expected`: its copy on the hub expects it.
    fn wants_companion(&self, user: &PackedDeployment, expected: bool) -> bool {
        let (references, limits) = (user.references(), self.of.ctx.options.limits);
        let sources = self.project.read_sources(self.namespace, references);
        wants_companion(references, self.data_ref, self.namespace, limits, &sources, expected)
    }

    /// Returns the state of a deployment's copy.
    fn hub_copy(&self, deployment: &str) -> HubCopy {
        let (copies, key) = (&self.of.ctx.hub.copies, ObjectKey::new(&self.hub_namespace, deployment));
        match copies.get(&key) {
            Some(copy) if copy.expects(self.data_ref) => HubCopy::Expects,
            None if !copies.contains(&key) => HubCopy::Absent,
            _ => HubCopy::Exists, // readable or not
        }
    }

    /// Returns the names of the copies that expect the companion.
    fn expecting(&self) -> impl Iterator<Item = String> {
        let copies = self.of.ctx.hub.copies.entries_by_index(&namespace_index(&self.hub_namespace)).into_iter();
        copies.filter(|(_, copy)| copy.expects(self.data_ref)).map(|(key, _)| key.name.to_string())
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
        let needed = self.expecting().filter_map(|copy| {
            let parent = names::deployment_binding(&copy);
            let clusters = hub.binding_of(namespace, &copy).map(|binding| binding.clusters.clone());
            residue::is_needed(&binding, &parent, clusters.as_ref().map(|clusters| &clusters[..])).then_some(parent)
        });
        Some(ResidueFacts {
            on_companion: residue.on_companion,
            on_binding: residue.on_binding.then(|| ObjectVersion::new(&binding.uid, &binding.version)),
            needed_by: needed.collect(),
        })
    }
}
