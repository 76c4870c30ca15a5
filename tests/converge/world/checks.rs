//! What holds in every history, and what at its end.

use compute_operator::api::referenced::{MANY_USERS, MAX_NAMED_USERS};

use super::*;

impl World {
    /// What holds at every moment.
    pub fn check_always(&self) {
        assert_eq!(self.foreign_state(), self.foreign, "somebody else's object was touched");
        let Planes { project, hub, cell, .. } = &self.now;
        let DataRef { kind, name } = &data_refs()[0];
        assert!(
            hub.crowd.is_empty() || hub.objects.contains_key(&((*kind).into(), HUB_NS.into(), name.clone())),
            "{} have been promised what is not there",
            hub.crowd.len()
        );
        for instance in cell.all::<Instance>(Kind::Instance) {
            let gated = instance.spec.controller.as_ref().is_none_or(|c| !c.scheduling_gates.is_empty());
            if gated || instance.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let claim = names::resource_claim_name(&instance.name_any());
            let claim: ResourceClaim = project.get(Kind::ResourceClaim, NS, &claim).expect("what runs has its claim");
            let containers = &instance.spec.runtime.sandbox.as_ref().unwrap().containers;
            let cpu = &containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap()["cpu"].0;
            assert_eq!(format!("{cpu}000"), claim.spec.requests[1].amount.to_string(), "for what it is");
            assert!(claim.status.is_some(), "and it was granted before");
            let owned = cell.objects.contains_key(&(
                Kind::WorkloadDeployment,
                HUB_NS.into(),
                instance.labels()[label::WORKLOAD_DEPLOYMENT_NAME].clone(),
            ));
            for reference in references(&instance.spec).iter().filter(|_| owned) {
                let data_ref = &reference.data_ref;
                let there = cell.objects.contains_key(&(data_ref.kind.into(), HUB_NS.into(), data_ref.name.clone()));
                assert!(there, "{} runs and its {data_ref} is not there", instance.name_any());
            }
        }
    }

    /// What holds of everything that the operator does: a deployment, a copy or an Instance goes only while it is unwanted at
    /// that moment, and a copy never goes back to an earlier generation of its original.
    pub fn check_act(&mut self) {
        let before = self.past.front().expect("it has been as it was before the act");
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
            assert!(!wanted(&name) || !is_of_workload(&name), "{name} is wanted by its Workload, and was deleted");
        }
        let originals = before.project.standing(Kind::WorkloadDeployment, NS);
        for name in gone(|planes| &planes.hub, Kind::WorkloadDeployment, HUB_NS) {
            assert!(!originals.contains_key(&*name), "the original of {name} lives, and the copy was deleted");
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
            assert!(!is_wanted, "Instance {name} is as its deployment wants it, and was deleted");
        }
        self.check_generations();
    }

    /// The generation that a copy says never falls, for one original.
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
                "{} went back from generation {latest} to {generation} of {original}",
                copy.name_any()
            );
            *known = (original, generation);
        }
    }

    /// What holds once nothing more happens.
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
        assert_eq!(names(hub, Kind::PropagationPolicy, HUB_NS), cities, "a policy per city, and no other");
        let running = names(cell, Kind::Instance, HUB_NS);
        assert_eq!(names(hub, Kind::Instance, HUB_NS), running, "every Instance is written back, and nothing else");
        assert_eq!(names(project, Kind::Instance, NS), running, "and shown in the project");
        let claims = running.iter().map(|name| names::resource_claim_name(name)).collect();
        assert_eq!(names(project, Kind::ResourceClaim, NS), claims, "a claim for each, and none left behind");
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
            assert_eq!(wanted.contains(&name), deployments.contains(&name), "a bound city has what is wanted");
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

    /// The companions that are needed, and their copies.
    fn check_companions(&self) {
        let Planes { project, hub, cell, .. } = &self.now;
        for data_ref in data_refs() {
            let kind = Kind::from(data_ref.kind);
            let needed: BTreeSet<String> = hub
                .all::<WorkloadDeployment>(Kind::WorkloadDeployment)
                .iter()
                .filter(|wd| wd.name_any() != FOREIGN)
                .filter(|wd| references(&wd.spec.template.spec).iter().any(|r| r.data_ref == data_ref))
                .map(|wd| format!("{NS}/{}", wd.name_any()))
                .collect();
            // The namespace is made for the Workload's deployments: where none has ever been, the crowd has nowhere to go.
            let is_there = hub.objects.contains_key(&(Kind::Namespace, String::new(), HUB_NS.into()));
            let crowd = project.crowd.iter().filter(|_| is_there && data_ref == data_refs()[0]);
            let all: BTreeSet<String> = crowd.map(|name| format!("{NS}/{name}")).chain(needed.clone()).collect();
            let copy = cell.raw(kind, HUB_NS, &data_ref.name);
            assert_eq!(copy.is_some(), !needed.is_empty(), "{data_ref} is on the cell while it is needed");
            let companion = hub.raw(kind, HUB_NS, &data_ref.name);
            assert_eq!(companion.is_some(), !all.is_empty(), "{data_ref} is on the hub while it is needed");
            if let Some(companion) = companion {
                let by = companion["metadata"]["annotations"][annotation::REFERENCED_BY].as_str().unwrap();
                let listed = if all.len() > MAX_NAMED_USERS { [MANY_USERS.to_owned()].into() } else { all };
                assert_eq!(serde_json::from_str::<BTreeSet<String>>(by).unwrap(), listed);
                let source = project.raw(kind, NS, &data_ref.name).unwrap();
                assert_eq!(companion["data"], source["data"]);
                assert!(copy.is_none_or(|copy| copy["data"] == source["data"]));
            }
        }
    }

    /// The specs of deployments, on every plane.
    fn check_specs(&self, deployments: &BTreeSet<String>, workload: &Workload, replicas: i32) {
        let Planes { project, hub, cell, .. } = &self.now;
        for name in deployments {
            let of =
                |model: &Model, ns| model.get::<WorkloadDeployment>(Kind::WorkloadDeployment, ns, name).unwrap().spec;
            let (original, copy, there) = (of(project, NS), of(hub, HUB_NS), of(cell, HUB_NS));
            assert_eq!(original.template, workload.spec.template, "what the Workload says, and nothing beside it");
            assert_eq!(original.replicas, Some(replicas));
            assert_eq!((&original, &original), (&copy, &there));
        }
    }
}
