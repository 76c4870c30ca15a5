//! The invariants of every history, and the end state of a settled world.

use compute_operator::api::user_list::{UserList, UserName};

use super::*;

impl World {
    /// Checks the invariants of one moment. Running Instances have a granted claim and their data.
    pub fn check_always(&self) {
        assert_eq!(self.foreign_state(), self.foreign, "a foreign object was changed");
        let Planes { project, hub, cell, .. } = &self.now;
        let DataRef { kind, name } = &data_refs()[0];
        assert!(
            hub.crowd.is_empty() || hub.objects.contains_key(&((*kind).into(), HUB_NS.into(), name.clone())),
            "{} copies expect a companion that is missing",
            hub.crowd.len()
        );
        for instance in cell.all::<Instance>(Kind::Instance) {
            let gated = instance.spec.controller.as_ref().is_none_or(|c| !c.scheduling_gates.is_empty());
            if gated || instance.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let claim = names::resource_claim_name(&instance.name_any());
            let claim: ResourceClaim = project.get(Kind::ResourceClaim, NS, &claim).expect("has its claim");
            let containers = &instance.spec.runtime.sandbox.as_ref().unwrap().containers;
            let cpu = &containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap()["cpu"].0;
            assert_eq!(format!("{cpu}000"), claim.spec.requests[1].amount.to_string(), "has the right size");
            assert!(claim.status.is_some(), "is granted");
            let owned = cell.objects.contains_key(&(
                Kind::WorkloadDeployment,
                HUB_NS.into(),
                instance.labels()[label::WORKLOAD_DEPLOYMENT_NAME].clone(),
            ));
            for reference in references(&instance.spec).iter().filter(|_| owned) {
                let data_ref = &reference.data_ref;
                let there = cell.objects.contains_key(&(data_ref.kind.into(), HUB_NS.into(), data_ref.name.clone()));
                assert!(there, "{} runs without its {data_ref}", instance.name_any());
            }
        }
    }

    /// Checks one act of the operator. It deletes a deployment, copy or Instance only if that object is unwanted before the act.
    /// A copy never returns to an earlier generation of its original.
    pub fn check_act(&mut self) {
        let before = self.past.front().expect("the state before the act is kept");
        let wanted = |name: &str| -> bool {
            let workload: Option<Workload> = before.project.get(Kind::Workload, NS, "web");
            let placements = workload.filter(|workload| workload.metadata.deletion_timestamp.is_none());
            let placements = placements.map(|workload| workload.spec.placements).unwrap_or_default();
            placements.iter().flat_map(|p| &p.city_codes).any(|city| format!("web-p-{city}") == name)
        };
        let is_of_workload = |name: &str| {
            let wd: WorkloadDeployment = before.project.get(Kind::WorkloadDeployment, NS, name).unwrap();
            Some(wd.spec.workload_ref.uid) == before.project.uid(Kind::Workload, NS, "web")
        };
        let gone = |model: fn(&Planes) -> &Model, kind: Kind, namespace: &str| -> Vec<String> {
            let after = model(&self.now).standing(kind, namespace);
            let before = model(before).standing(kind, namespace);
            before
                .into_iter()
                .filter(|(name, uid)| after.get(name) != Some(uid))
                .map(|(name, _)| name.to_owned())
                .collect()
        };
        for name in gone(|planes| &planes.project, Kind::WorkloadDeployment, NS) {
            assert!(!wanted(&name) || !is_of_workload(&name), "{name} was deleted, and its Workload wants it");
        }
        let originals = before.project.standing(Kind::WorkloadDeployment, NS);
        for name in gone(|planes| &planes.hub, Kind::WorkloadDeployment, HUB_NS) {
            assert!(!originals.contains_key(&*name), "the copy {name} was deleted, and its original exists");
        }
        for name in gone(|planes| &planes.cell, Kind::Instance, HUB_NS) {
            let instance: Instance = before.cell.get(Kind::Instance, HUB_NS, &name).unwrap();
            let owner = &instance.labels()[label::WORKLOAD_DEPLOYMENT_NAME];
            let owner: Option<WorkloadDeployment> = before.cell.get(Kind::WorkloadDeployment, HUB_NS, owner);
            let owner = owner.filter(|wd| wd.metadata.deletion_timestamp.is_none());
            let is_wanted = owner.is_some_and(|wd| {
                let hash = instance.spec.controller.as_ref().map(|controller| &controller.template_hash);
                ownership::is_controlled_by(&instance, &wd)
                    && names::instance_ordinal(&name).is_some_and(|ordinal| ordinal < wd.spec.desired_replicas())
                    && hash == Some(&template_hash(&wd.spec.template))
            });
            assert!(!is_wanted, "Instance {name} was deleted, and its deployment wants it");
        }
        self.check_generations();
    }

    /// Checks that the recorded generation of a copy never decreases for one original.
    fn check_generations(&mut self) {
        for copy in self.now.hub.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            let Some(generation) = copy.annotations().get(annotation::SOURCE_GENERATION) else { continue };
            let generation: i64 = generation.parse().unwrap();
            let named = copy.annotations().get(annotation::SOURCE_UID).cloned();
            let Some(original) = named.or_else(|| self.now.project.uid(Kind::WorkloadDeployment, NS, &copy.name_any()))
            else {
                continue;
            };
            let known = self.generations.entry(copy.uid().unwrap()).or_insert_with(|| (original.clone(), generation));
            let (before, latest) = &*known;
            assert!(
                *before != original || *latest <= generation,
                "{} returned from generation {latest} to {generation} of {original}",
                copy.name_any()
            );
            *known = (original, generation);
        }
    }

    /// Checks the end state of a settled world.
    pub fn check_end(&self) {
        let Planes { project, hub, cell, .. } = &self.now;
        let names = |model: &Model, kind: Kind, ns: &str| -> BTreeSet<String> {
            model
                .objects
                .keys()
                .filter(|k| k.0 == kind && k.1 == ns && k.2 != "city-syd")
                .map(|k| k.2.clone())
                .collect()
        };
        let deployments = names(project, Kind::WorkloadDeployment, NS);
        assert_eq!(names(hub, Kind::WorkloadDeployment, HUB_NS), deployments);
        assert_eq!(names(cell, Kind::WorkloadDeployment, HUB_NS), deployments);
        let cities: BTreeSet<String> = deployments.iter().map(|name| name.replace("web-p-", "city-")).collect();
        assert_eq!(names(hub, Kind::PropagationPolicy, HUB_NS), cities, "one policy for each city");
        let running = names(cell, Kind::Instance, HUB_NS);
        assert_eq!(names(hub, Kind::Instance, HUB_NS), running, "write-back is complete and exact");
        assert_eq!(names(project, Kind::Instance, NS), running, "projection is complete and exact");
        let claims = running.iter().map(|name| names::resource_claim_name(name)).collect();
        assert_eq!(names(project, Kind::ResourceClaim, NS), claims, "one claim for each Instance");
        for name in &running {
            let of = |model: &Model, ns| model.get::<Instance>(Kind::Instance, ns, name).unwrap();
            let (source, copy, shown) = (of(cell, HUB_NS), of(hub, HUB_NS), of(project, NS));
            assert_eq!((&source.spec, &source.status), (&copy.spec, &copy.status));
            assert_eq!((&source.spec, &source.status), (&shown.spec, &shown.status));
            let owner = &copy.labels()[label::WORKLOAD_DEPLOYMENT_NAME];
            let uid = |model: &Model, ns| model.uid(Kind::WorkloadDeployment, ns, owner).unwrap();
            assert_eq!(copy.owner_references()[0].uid, uid(hub, HUB_NS));
            assert_eq!(shown.owner_references()[0].uid, uid(project, NS));
        }
        self.check_companions();
        let Some(workload) = self.workload() else {
            assert!(deployments.is_empty() && running.is_empty());
            return;
        };
        let placement = workload.spec.placements.first();
        let wanted: BTreeSet<String> =
            placement.into_iter().flat_map(|p| &p.city_codes).map(|city| format!("web-p-{city}")).collect();
        assert!(deployments.is_subset(&wanted));
        for city in &self.now.bound {
            let name = format!("web-p-{city}");
            assert_eq!(wanted.contains(&name), deployments.contains(&name), "bound cities match the Workload");
        }
        let replicas = placement.map_or(0, |p| p.scale_settings.min_replicas);
        let instances = deployments
            .iter()
            .flat_map(|wd| (0..replicas).map(move |n| names::instance_name(wd, u32::try_from(n).unwrap())));
        assert_eq!(names(cell, Kind::Instance, HUB_NS), instances.collect());
        let total = replicas * i32::try_from(deployments.len()).unwrap();
        let status = workload.status.as_ref().unwrap();
        assert_eq!((status.replicas, status.ready_replicas, status.updated_replicas), (total, total, total));
        assert_eq!(status.observed_generation, workload.metadata.generation);
        for instance in cell.all::<Instance>(Kind::Instance) {
            assert_eq!(instance.spec.runtime, workload.spec.template.spec.runtime);
        }
        self.check_specs(&deployments, &workload, replicas);
    }

    /// Checks that exactly the needed companions exist, with copies of the right content.
    fn check_companions(&self) {
        let Planes { project, hub, cell, .. } = &self.now;
        for data_ref in data_refs() {
            let kind = Kind::from(data_ref.kind);
            let needed: BTreeSet<UserName> = hub
                .all::<WorkloadDeployment>(Kind::WorkloadDeployment)
                .iter()
                .filter(|wd| wd.name_any() != FOREIGN)
                .filter(|wd| references(&wd.spec.template.spec).iter().any(|r| r.data_ref == data_ref))
                .map(|wd| UserName::new(NS, &wd.name_any()))
                .collect();
            // The hub namespace is created for the deployments of the Workload. Without it, the crowd has no copies.
            let is_there = hub.objects.contains_key(&(Kind::Namespace, String::new(), HUB_NS.into()));
            let crowd = project.crowd.iter().filter(|_| is_there && data_ref == data_refs()[0]);
            let all: BTreeSet<UserName> = crowd.map(|name| UserName::new(NS, name)).chain(needed.clone()).collect();
            let copy = cell.raw(kind, HUB_NS, &data_ref.name);
            assert_eq!(copy.is_some(), !needed.is_empty(), "{data_ref} is on the cell exactly while it is needed");
            let companion = hub.raw(kind, HUB_NS, &data_ref.name);
            assert_eq!(companion.is_some(), !all.is_empty(), "{data_ref} is on the hub exactly while it is needed");
            if let Some(companion) = companion {
                let by = companion["metadata"]["annotations"][annotation::REFERENCED_BY].as_str().unwrap();
                assert_eq!(by, UserList::parse(None).with(all).to_annotation());
                let source = project.raw(kind, NS, &data_ref.name).unwrap();
                assert_eq!(companion["data"], source["data"]);
                assert!(copy.is_none_or(|copy| copy["data"] == source["data"]));
            }
        }
    }

    /// Checks that the specs of all deployments are equal on every plane and match the Workload.
    fn check_specs(&self, deployments: &BTreeSet<String>, workload: &Workload, replicas: i32) {
        let Planes { project, hub, cell, .. } = &self.now;
        for name in deployments {
            let of =
                |model: &Model, ns| model.get::<WorkloadDeployment>(Kind::WorkloadDeployment, ns, name).unwrap().spec;
            let (original, copy, there) = (of(project, NS), of(hub, HUB_NS), of(cell, HUB_NS));
            assert_eq!(original.template, workload.spec.template, "the template is exactly that of the Workload");
            assert_eq!(original.replicas, Some(replicas));
            assert_eq!((&original, &original), (&copy, &there));
        }
    }
}
