//! A project, a hub and one cell that serves every city; the operator's controllers, Karmada, and a provider.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use compute_operator::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        karmada::PropagationPolicy,
        meta::label,
        names::{self, CityCode, ProjectName},
    },
    plan::{
        Kind, Step,
        cell::{Features, instance, instances},
        hub::{
            fan_out,
            federate::{self, NamespaceFacts},
            policy,
        },
        ownership,
    },
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::model::Model;

const CITIES: [&str; 3] = ["dfw", "ord", "lhr"];
const NS: &str = "shop";
const HUB_NS: &str = "ns-n1";
const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// An object of somebody else on each plane; nothing may ever touch it.
const FOREIGN: &str = "foreign";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Workload,
    Federator,
    Policy,
    Deployment,
    Instance,
}

const ACTORS: [Actor; 5] = [Actor::Workload, Actor::Federator, Actor::Policy, Actor::Deployment, Actor::Instance];

#[derive(Clone, Debug)]
pub enum Edit {
    Spec { cities: Vec<usize>, replicas: i32, template: u32 },
    Bind(Vec<usize>),
    Delete,
}

#[derive(Clone, Debug, Default)]
struct Planes {
    project: Model,
    hub: Model,
    cell: Model,
    bound: BTreeSet<CityCode>,
}

pub struct World {
    now: Planes,
    /// Earlier states, the latest first: what a stale cache shows.
    past: VecDeque<Planes>,
    /// Cities that were bound at some time since the deployment's city was asked for.
    foreign: Vec<String>,
    changes: usize,
}

impl World {
    pub fn new() -> Self {
        let mut now =
            Planes { bound: CITIES.iter().map(|c| CityCode::parse(c).unwrap()).collect(), ..Planes::default() };
        for model in [&mut now.project, &mut now.hub, &mut now.cell] {
            let spec = json!({
                "workloadRef": { "name": "x", "uid": "x" }, "placementName": "x", "cityCode": "syd",
                "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                "scaleSettings": { "minReplicas": 0 },
            });
            model.create((Kind::WorkloadDeployment, "elsewhere".into(), FOREIGN.into()), json!({ "spec": spec }));
        }
        now.hub.create((Kind::PropagationPolicy, HUB_NS.into(), "city-syd".into()), json!({ "spec": {} }));
        let mut world = Self { now, past: VecDeque::new(), foreign: Vec::new(), changes: 0 };
        world.foreign = world.foreign_state();
        world.edit(&Edit::Spec { cities: vec![0], replicas: 1, template: 0 });
        world
    }

    fn foreign_state(&self) -> Vec<String> {
        let Planes { project, hub, cell, .. } = &self.now;
        let deployments = [project, hub, cell].map(|m| format!("{:?}", m.objects.iter().find(|(k, _)| k.2 == FOREIGN)));
        let policy = format!("{:?}", hub.objects.iter().find(|(k, _)| k.2 == "city-syd"));
        deployments.into_iter().chain([policy]).collect()
    }

    fn workload(&self) -> Option<Workload> {
        self.now.project.get(Kind::Workload, NS, "web")
    }

    pub fn edit(&mut self, edit: &Edit) {
        let key = (Kind::Workload, NS.to_owned(), "web".to_owned());
        match edit {
            Edit::Bind(cities) => {
                self.now.bound = cities.iter().map(|c| CityCode::parse(CITIES[*c]).unwrap()).collect();
            }
            Edit::Delete => self.now.project.delete(&key),
            Edit::Spec { cities, replicas, template } => {
                let cities: Vec<&str> = cities.iter().map(|c| CITIES[*c]).collect();
                let placements: Value = match cities.is_empty() {
                    true => json!([]),
                    false => {
                        json!([{ "name": "p", "cityCodes": cities, "scaleSettings": { "minReplicas": replicas } }])
                    }
                };
                let spec = json!({
                    "template": { "spec": { "runtime": { "resources": { "instanceType": format!("t{template}") } }, "networkInterfaces": [] } },
                    "placements": placements,
                });
                match self.now.project.objects.contains_key(&key) {
                    true => self.now.project.merge(&key, &json!({ "spec": spec })),
                    false => self.now.project.create(key, json!({ "spec": spec })),
                }
            }
        }
    }

    pub fn vandal(&mut self, city: usize, policy: bool) {
        let (kind, name) = match policy {
            true => (Kind::PropagationPolicy, format!("city-{}", CITIES[city])),
            false => (Kind::WorkloadDeployment, format!("web-p-{}", CITIES[city])),
        };
        self.now.hub.delete(&(kind, HUB_NS.into(), name));
    }

    /// An actor looks at a snapshot and carries out at most `writes` of what it decides, until one is refused.
    pub fn act(&mut self, actor: Actor, age: usize, writes: usize) {
        let seen = self.past.get(age).unwrap_or(&self.now).clone();
        self.past.push_front(self.now.clone());
        self.past.truncate(8);
        let mut left = writes;
        match actor {
            Actor::Workload => self.act_workload(&seen, &mut left),
            Actor::Federator => {
                self.act_federator(&seen, &mut left);
                self.act_on_orphans(&seen, &mut left);
            }
            Actor::Policy => self.act_policy(&seen, &mut left),
            Actor::Deployment => self.act_deployment(&seen, &mut left),
            Actor::Instance => self.act_instance(&seen, &mut left),
        }
    }

    fn act_workload(&mut self, seen: &Planes, left: &mut usize) {
        let Some(workload) = seen.project.get::<Workload>(Kind::Workload, NS, "web") else { return };
        let all: Vec<Arc<WorkloadDeployment>> =
            seen.project.all(Kind::WorkloadDeployment).into_iter().map(Arc::new).collect();
        let ours: Vec<_> = all
            .iter()
            .filter(|wd| Some(&wd.spec.workload_ref.uid) == workload.metadata.uid.as_ref())
            .cloned()
            .collect();
        let observed = fan_out::Observed {
            workload: &workload,
            deployments: &ours,
            named: &|name| all.iter().find(|wd| wd.name_any() == name).cloned(),
            bound: &seen.bound,
            namespace_uid: Some("n1"),
        };
        for write in fan_out::plan(&observed, NOW).steps {
            if !spend(left, &mut self.changes, self.now.project.execute(&write)) {
                return;
            }
        }
    }

    fn act_federator(&mut self, seen: &Planes, left: &mut usize) {
        for deployment in seen.project.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            if deployment.name_any() == FOREIGN {
                continue;
            }
            let namespace = seen.hub.objects.get(&(Kind::Namespace, String::new(), HUB_NS.into()));
            let facts = namespace.map(|ns| NamespaceFacts {
                uid: "h".into(),
                labels: serde_json::from_value(ns.content()["metadata"]["labels"].clone()).unwrap_or_default(),
                terminating: false,
            });
            let observed = federate::Observed {
                project: &ProjectName::single(),
                deployment: &deployment,
                namespace_uid: Some("n1"),
                hub_namespace: &|_| facts.clone(),
                copy: &|ns| seen.hub.get(Kind::WorkloadDeployment, ns, &deployment.name_any()).map(Arc::new),
            };
            for step in federate::plan(&observed, NOW).steps {
                let done = match &step {
                    Step::Project(write) => self.now.project.execute(write),
                    Step::Hub(write) => self.now.hub.execute(write),
                };
                if !spend(left, &mut self.changes, done) {
                    break;
                }
            }
        }
    }

    /// Copies whose original is gone.
    fn act_on_orphans(&mut self, seen: &Planes, left: &mut usize) {
        for copy in seen.hub.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            if seen.project.objects.contains_key(&(Kind::WorkloadDeployment, NS.into(), copy.name_any())) {
                continue;
            }
            for step in federate::plan_orphan(NS, "n1", &copy).steps {
                let done = match &step {
                    Step::Project(write) => self.now.project.execute(write),
                    Step::Hub(write) => self.now.hub.execute(write),
                };
                if done.is_err() {
                    break;
                }
                spend(left, &mut self.changes, done);
            }
        }
    }

    fn act_policy(&mut self, seen: &Planes, left: &mut usize) {
        for city in CITIES.iter().chain(["syd"].iter()).map(|c| CityCode::parse(c).unwrap()) {
            let copies: Vec<WorkloadDeployment> = seen.hub.all(Kind::WorkloadDeployment);
            let here = |wd: &&WorkloadDeployment| {
                wd.labels().get(label::TOPOLOGY_CITY).map(String::as_str) == Some(city.as_str())
            };
            let originals: Vec<WorkloadDeployment> = seen.project.all(Kind::WorkloadDeployment);
            let wanted = originals.iter().any(|wd| {
                wd.name_any() != FOREIGN
                    && wd.spec.city_code == city.as_str()
                    && wd.metadata.deletion_timestamp.is_none()
            });
            // The watch of policies is scoped to ours.
            let policy: Option<PropagationPolicy> = seen.hub.get(Kind::PropagationPolicy, HUB_NS, &city.policy_name());
            let policy = policy.filter(ownership::is_managed);
            let plan = policy::plan(&policy::Observed {
                namespace: HUB_NS,
                city: &city,
                copies: copies.iter().filter(here).count(),
                wanted,
                complete: true,
                namespace_lives: seen.hub.objects.contains_key(&(Kind::Namespace, String::new(), HUB_NS.into())),
                policy: policy.as_ref(),
            });
            for write in plan.steps {
                spend(left, &mut self.changes, self.now.hub.execute(&write));
            }
        }
    }

    fn act_deployment(&mut self, seen: &Planes, left: &mut usize) {
        for deployment in seen.cell.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            if deployment.name_any() == FOREIGN {
                continue;
            }
            let all: Vec<Instance> = seen.cell.all(Kind::Instance);
            let ours: Vec<_> =
                all.into_iter().filter(|i| ownership::is_controlled_by(i, &deployment)).map(Arc::new).collect();
            for write in instances::plan(&instances::Observed { deployment: &deployment, instances: &ours }, NOW).steps
            {
                if !spend(left, &mut self.changes, self.now.cell.execute(&write)) {
                    break;
                }
            }
        }
    }

    fn act_instance(&mut self, seen: &Planes, left: &mut usize) {
        for object in seen.cell.all::<Instance>(Kind::Instance) {
            for write in instance::plan(&object, Features::default(), NOW).steps {
                spend(left, &mut self.changes, self.now.cell.execute(&write));
            }
        }
    }

    /// Karmada brings copies to the cell and statuses back; the provider runs what has no gate.
    pub fn others(&mut self) {
        let Planes { project, hub, cell, .. } = &mut self.now;
        project.collect_garbage();
        cell.collect_garbage();
        let copies: Vec<WorkloadDeployment> = hub.all(Kind::WorkloadDeployment);
        for copy in copies.iter().filter(|c| c.name_any() != FOREIGN) {
            let key = (Kind::WorkloadDeployment, HUB_NS.to_owned(), copy.name_any());
            let city = CityCode::parse(&copy.labels()[label::TOPOLOGY_CITY]).unwrap();
            let claimed = hub.objects.contains_key(&(Kind::PropagationPolicy, HUB_NS.into(), city.policy_name()));
            let body = json!({ "metadata": { "labels": copy.labels(), "annotations": copy.annotations() }, "spec": copy.spec });
            match cell.get::<WorkloadDeployment>(Kind::WorkloadDeployment, HUB_NS, &copy.name_any()) {
                None if claimed => cell.create(key.clone(), body),
                Some(live) if live.spec != copy.spec || live.annotations() != copy.annotations() => {
                    let (labels, annotations) = (copy.labels().clone(), copy.annotations().clone());
                    replace(cell, &key, &json!({ "spec": copy.spec }), &labels, &annotations);
                }
                _ => {}
            }
            let reported = cell.get::<WorkloadDeployment>(Kind::WorkloadDeployment, HUB_NS, &copy.name_any());
            if let Some(status) =
                reported.and_then(|wd| wd.status).filter(|status| Some(status) != copy.status.as_ref())
            {
                hub.merge(&key, &json!({ "status": status }));
            }
        }
        let names: BTreeSet<String> = copies.iter().map(|c| c.name_any()).collect();
        for copy in cell.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            if !names.contains(&copy.name_any()) {
                cell.delete(&(Kind::WorkloadDeployment, HUB_NS.into(), copy.name_any()));
            }
        }
        for object in cell.all::<Instance>(Kind::Instance) {
            let gated = object.spec.controller.as_ref().is_none_or(|c| !c.scheduling_gates.is_empty());
            let conditions = object.status.as_ref().map_or(0, |s| s.conditions.len());
            let runs = object.status.as_ref().is_some_and(|s| s.conditions.iter().any(|c| c.type_ == "Programmed"));
            if !gated && !runs && conditions > 0 {
                let yes = |type_: &str| json!({ "type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
                let key = (Kind::Instance, HUB_NS.to_owned(), object.name_any());
                cell.merge(&key, &json!({ "status": { "conditions": [yes("Programmed"), yes("Available")] } }));
            }
        }
    }

    /// Everybody acts once on the present; returns how many writes changed anything.
    pub fn round(&mut self) -> usize {
        let before = self.changes;
        for actor in ACTORS {
            self.past.clear();
            self.act(actor, 9, usize::MAX);
            self.check_always();
        }
        self.others();
        self.changes - before
    }

    pub fn settle(&mut self) {
        for _ in 0..200 {
            if self.round() == 0 && self.round() == 0 {
                return;
            }
        }
        panic!("does not settle");
    }

    /// Rounds in which everybody dies after the n-th write in all.
    pub fn run_until_write(&mut self, n: usize) {
        let mut left = n;
        while left > 0 {
            let before = self.changes;
            for actor in ACTORS {
                self.past.clear();
                let spent = self.changes;
                self.act(actor, 9, left);
                left = left.saturating_sub(self.changes - spent);
            }
            self.others();
            if self.changes == before {
                return;
            }
        }
    }

    /// What holds at every moment.
    pub fn check_always(&self) {
        assert_eq!(self.foreign_state(), self.foreign, "somebody else's object was touched");
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
        let Some(workload) = self.workload() else {
            assert!(deployments.is_empty() && names(cell, Kind::Instance, HUB_NS).is_empty());
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
        let status = workload.status.unwrap();
        assert_eq!((status.replicas, status.ready_replicas, status.updated_replicas), (total, total, total));
        assert_eq!(status.observed_generation, workload.metadata.generation);
        for instance in cell.all::<Instance>(Kind::Instance) {
            assert_eq!(
                instance.spec.runtime.resources.instance_type,
                workload.spec.template.spec.runtime.resources.instance_type
            );
        }
    }
}

/// Books a write; false when the actor has died or was refused.
fn spend(left: &mut usize, changes: &mut usize, done: Result<bool, crate::model::Refused>) -> bool {
    match done {
        Ok(news) => {
            *changes += usize::from(news);
            *left = left.saturating_sub(usize::from(news));
            *left > 0
        }
        Err(_) => false,
    }
}

/// What Karmada does to a member's copy.
fn replace(
    cell: &mut Model,
    key: &crate::model::Key,
    content: &Value,
    labels: &std::collections::BTreeMap<String, String>,
    annotations: &std::collections::BTreeMap<String, String>,
) {
    cell.merge(key, content);
    cell.set_metadata(key, &json!({ "labels": labels, "annotations": annotations }));
}
