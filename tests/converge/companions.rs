//! The companion controller in the model.

use std::collections::BTreeMap;

use compute_operator::{
    api::{compute::WorkloadDeployment, user_list::MAX_NAMED_USERS},
    plan::{
        Kind, Shared,
        management::referenced_data::{
            companion::{self, Observed, Reading},
            resolve::{self, Limits, Source},
            users::{HubCopy, User, Users, needs_copies},
        },
        payload::Payload,
        references::references,
    },
};
use kube::ResourceExt;

use crate::{
    actors::Place,
    data::{companion_facts, hub_copies, sources},
    model::Model,
    world::{FOREIGN, HUB_NS, NOW, NS, Planes, World, data_refs},
};

impl World {
    /// Reconciles the companion of each source. Its facts are as old as the watches. Its content is read live.
    pub(super) fn act_companion(&mut self, seen: &Planes, left: &mut usize) {
        let mut all: Vec<WorkloadDeployment> = seen.project.all(Kind::WorkloadDeployment);
        all.retain(|wd| wd.name_any() != FOREIGN);
        for data_ref in data_refs() {
            let refs = |wd: &WorkloadDeployment| references(&wd.spec.template.spec);
            let refers = |wd: &&WorkloadDeployment| refs(wd).iter().any(|r| r.data_ref == data_ref);
            let sources = sources(&seen.project);
            let copies = hub_copies(&seen.hub, &data_ref);
            let copy = |name: &str| copies.get(name).copied().unwrap_or_default();
            let user = |wd: &WorkloadDeployment| {
                let (name, stays) = (wd.name_any(), wd.metadata.deletion_timestamp.is_none());
                let copy = copy(&name);
                let expected = copy == HubCopy::Expects;
                let wants =
                    || resolve::wants_companion(&refs(wd), &data_ref, NS, Limits::default(), &sources, expected);
                (name, User { refers: true, wants_copy: stays && wants(), copy, deployment: None })
            };
            let mut users: BTreeMap<String, User> = all.iter().filter(refers).map(user).collect();
            let is_first = data_ref == data_refs()[0];
            let wants_copy = matches!(sources.get(&data_ref), Some(Source::Present { .. }));
            let others = seen.project.crowd.iter().filter(|_| is_first);
            let other = |name: &String| User { refers: true, wants_copy, copy: copy(name), deployment: None };
            users.extend(others.map(|name| (name.clone(), other(name))));
            let read = |model: &Model, ns: &str| {
                let object = model.raw(data_ref.kind.into(), ns, &data_ref.name)?;
                Payload::parse(data_ref.kind, object.to_string().as_bytes())
            };
            let reading = match (read(&self.now.project, NS), read(&self.now.hub, HUB_NS)) {
                (Some((_, source)), Some((version, companion))) => Reading::Both { source, version, companion },
                (Some((_, source)), None) => Reading::Source(source),
                (None, _) => Reading::Unknown,
            };
            let facts = companion_facts(&seen.hub, &data_ref);
            for name in facts.iter().flat_map(|facts| facts.users.names()) {
                let name = name.deployment();
                users.entry(name.to_owned()).or_insert_with(|| User {
                    copy: copy(name),
                    deployment: all.iter().find(|wd| wd.name_any() == name).cloned().map(Shared::from),
                    ..User::default()
                });
            }
            if needs_copies(&users, facts.as_ref().map(|facts| &facts.users), NS) {
                let expecting = copies.iter().filter(|(_, copy)| **copy == HubCopy::Expects);
                for (name, copy) in expecting.take(MAX_NAMED_USERS + 1) {
                    users.entry(name.clone()).or_insert_with(|| User { copy: *copy, ..User::default() });
                }
            }
            let observed = Observed {
                data_ref: data_ref.clone(),
                namespace: NS.into(),
                hub_namespace: HUB_NS.into(),
                hub_namespace_lives: seen.hub.objects.contains_key(&(Kind::Namespace, String::new(), HUB_NS.into())),
                users: Users { by_name: users, ..Users::default() },
                companion: facts.map(Shared::from),
                residue: None,
                fresh: false,
                waits: false,
                reading,
            };
            self.carry_out([Place::Project, Place::Hub], companion::plan(&observed, NOW).steps, left);
        }
    }
}
