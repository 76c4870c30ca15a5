//! The companion controller in the model.

use std::collections::BTreeSet;

use compute_operator::{
    api::{compute::WorkloadDeployment, referenced::MAX_NAMED_USERS},
    plan::{
        Kind, Shared,
        management::referenced_data::{
            companion::{self, FormerUser, Observed, Reading, User},
            resolve::{self, Limits, Source},
        },
        payload::Payload,
        references::references,
    },
};
use kube::ResourceExt;

use crate::{
    actors::Place,
    data::{companion_facts, promised, sources},
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
            let user = |wd: &WorkloadDeployment| {
                let (name, stays) = (wd.name_any(), wd.metadata.deletion_timestamp.is_none());
                let copy = seen.hub.get::<WorkloadDeployment>(Kind::WorkloadDeployment, HUB_NS, &name);
                let promised = copy.is_some_and(|copy| companion::expects(&copy, &data_ref));
                let wants =
                    || resolve::wants_companion(&refs(wd), &data_ref, NS, Limits::default(), &sources, promised);
                User { name, wants_copy: stays && wants(), promised }
            };
            let mut users: Vec<User> = all.iter().filter(refers).map(user).collect();
            let is_first = data_ref == data_refs()[0];
            let wants_copy = matches!(sources.get(&data_ref), Some(Source::Present { .. }));
            let others = seen.project.crowd.iter().filter(|_| is_first);
            users.extend(others.map(|name| User {
                name: name.clone(),
                wants_copy,
                promised: seen.hub.crowd.contains(name),
            }));
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
            let former = |name: &str| {
                let copy = seen.hub.get::<WorkloadDeployment>(Kind::WorkloadDeployment, HUB_NS, name);
                let is_promised = is_first && seen.hub.crowd.contains(name);
                FormerUser {
                    deployment: all.iter().find(|wd| wd.name_any() == name).cloned().map(Shared::from),
                    copy_exists: is_promised || copy.is_some(),
                    copy_expects: is_promised || copy.is_some_and(|copy| companion::expects(&copy, &data_ref)),
                }
            };
            let claims = facts.iter().flat_map(|facts| facts.users.iter().flatten());
            let claims = claims.filter_map(|claim| claim.strip_prefix(&format!("{NS}/")).map(str::to_owned));
            let expecting = facts.as_ref().filter(|facts| facts.names_nobody()).map(|_| match users.len() {
                0..=MAX_NAMED_USERS => promised(&seen.hub, &data_ref).into_iter().take(MAX_NAMED_USERS + 1).collect(),
                _ => BTreeSet::new(),
            });
            let observed = Observed {
                data_ref: data_ref.clone(),
                namespace: NS.into(),
                hub_namespace: HUB_NS.into(),
                hub_namespace_lives: seen.hub.objects.contains_key(&(Kind::Namespace, String::new(), HUB_NS.into())),
                unknown_users: false,
                former_users: claims.map(|name| (name.clone(), former(&name))).collect(),
                users,
                expecting,
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
