//! A model world: a project, a hub, one cell that serves every city, the operator's controllers, Karmada and a provider.

mod checks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use compute_operator::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        meta::{annotation, label},
        names::{self, CityCode},
        neighbours::ResourceClaim,
        referenced::{DataRef, SourceKind},
    },
    plan::{
        Kind,
        cell::Features,
        hash::template_hash,
        management::{federator::diagnosis::Karmada, workload::refusal::Cause},
        ownership,
        references::{annotated, references},
    },
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    data::{crowd_follows, replace},
    model::Model,
};

pub const CITIES: [&str; 3] = ["dfw", "ord", "lhr"];
pub const NS: &str = "shop";
pub const HUB_NS: &str = "ns-n1";
pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// Name of an object on each plane that belongs to another owner. No controller may change it.
pub const FOREIGN: &str = "foreign";

/// The kinds that the actors watch. Each plane has one watch for each kind.
const KINDS: [Kind; 8] = [
    Kind::Workload,
    Kind::WorkloadDeployment,
    Kind::Instance,
    Kind::Namespace,
    Kind::PropagationPolicy,
    Kind::ResourceClaim,
    Kind::Referenced(SourceKind::ConfigMap),
    Kind::Referenced(SourceKind::Secret),
];

/// The age of each watch of an actor, in events.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    /// The age for each plane (project, hub, cell) and each of the [`KINDS`].
    pub kinds: [[usize; 8]; 3],
    /// The age of the project's LocationBindings.
    pub bound: usize,
}

/// Ages without a snapshot, so that the actor sees the present.
pub const PRESENT: Ages = Ages { kinds: [[usize::MAX; 8]; 3], bound: usize::MAX };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    Workload,
    Federator,
    Policy,
    Deployment,
    Instance,
    Quota,
    WriteBack,
    Projector,
    Companion,
}

const ACTORS: [Actor; 9] = [
    Actor::Workload,
    Actor::Federator,
    Actor::Policy,
    Actor::Deployment,
    Actor::Instance,
    Actor::Quota,
    Actor::WriteBack,
    Actor::Projector,
    Actor::Companion,
];

/// The gates of the cell. Networks are off, because the world does not model them.
pub const FEATURES: Features = Features { networks: false, quota: true, data: true, abandon_claims: false };
pub const CLUSTER: &str = "cell-1";

#[derive(Clone, Debug)]
pub enum Edit {
    Spec {
        cities: Vec<usize>,
        replicas: i32,
        template: u32,
    },
    Bind(Vec<usize>),
    Delete,
    /// Sets the number of other deployments that refer to the first source.
    Crowd(usize),
    /// Sets the value of a source, or deletes the source.
    Source {
        source: usize,
        value: Option<u32>,
    },
}

/// The sources that templates refer to. Every template uses the first one. Only template 1 uses the second one.
pub fn data_refs() -> [DataRef; 2] {
    [DataRef::config_map("settings"), DataRef::secret("db")]
}

/// A manual change to an object of the operator.
#[derive(Clone, Copy, Debug)]
pub enum ManualChange {
    Policy,
    Copy,
    WriteBack,
    Projection,
    EditProjection,
    EditDeployment,
    EditCopy,
    /// Replaces the message of every condition.
    Messages,
}

/// A runtime whose size depends on the template, so that a new template needs a new claim.
fn runtime(template: u32) -> Value {
    let data = [json!({ "configMapRef": { "name": "settings" } }), json!({ "secretRef": { "name": "db" } })];
    let data = &data[..=usize::try_from(template).unwrap()];
    let limits = json!({ "cpu": (template + 1).to_string(), "memory": "1Gi" });
    let disk = (template > 0).then(|| json!({ "example.com/disk": template.to_string() }));
    let resources = json!({ "instanceType": "t", "requests": disk });
    json!({
        "resources": resources,
        "sandbox": { "containers": [{ "name": "c", "image": "i", "envFrom": data, "resources": { "limits": limits } }] },
    })
}

/// A manual change of a deployment's spec: a field that the Workload does not set, and another number of replicas.
fn by_hand() -> Value {
    json!({ "replicas": 3, "template": { "spec": { "location": { "name": "the moon" } } } })
}

#[derive(Clone, Debug, Default)]
pub struct Planes {
    pub project: Model,
    pub hub: Model,
    pub cell: Model,
    pub bound: BTreeSet<CityCode>,
}

/// The time, and troubles that no object of the model holds.
#[derive(Clone, Debug)]
pub struct Mishap {
    pub time: Timestamp,
    /// The hub does not answer. True if its copies cannot be seen.
    pub outage: Option<bool>,
    /// State of each deployment in Karmada, and the reason that has blocked it for a minute.
    pub karmada: Option<(Karmada, &'static str)>,
    /// Networks of the namespace. `None` without the network feature.
    pub networks: Option<BTreeSet<String>>,
    /// The project rejects every write to a deployment of the Workload.
    pub refused: Option<Cause>,
}

impl Mishap {
    fn none() -> Self {
        Self { time: NOW, outage: None, karmada: None, networks: None, refused: None }
    }
}

#[derive(Clone)]
pub struct World {
    pub now: Planes,
    /// Earlier states, the latest first. A stale cache shows one of them.
    past: VecDeque<Planes>,
    /// The foreign objects as they were at the start.
    foreign: Vec<String>,
    pub changes: usize,
    /// Number of statuses of the federator after which it looks no more.
    pub final_reports: usize,
    /// Troubles that no object of the model holds.
    pub mishap: Mishap,
    /// The uid of the original and its latest copied generation, by the uid of each copy.
    generations: BTreeMap<String, (String, i64)>,
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
        now.project.found((Kind::Namespace, String::new(), NS.into()), "n1");
        let mut world = Self {
            now,
            past: VecDeque::new(),
            foreign: Vec::new(),
            changes: 0,
            final_reports: 0,
            mishap: Mishap::none(),
            generations: BTreeMap::new(),
        };
        world.create_missing_sources();
        world.foreign = world.foreign_state();
        world.edit(&Edit::Spec { cities: vec![0], replicas: 1, template: 0 });
        world
    }

    /// Changes the owners of all federated fields to those that plain updates of the Go operator leave.
    pub fn write_as_the_go_operator(&mut self) {
        for kind in [Kind::WorkloadDeployment, Kind::Instance] {
            self.now.project.as_others_wrote(kind);
            self.now.hub.as_others_wrote(kind);
        }
        self.foreign = self.foreign_state();
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
            Edit::Crowd(size) => self.now.project.crowd = (0..*size).map(|n| format!("crowd-{n:02}")).collect(),
            Edit::Source { source, value } => {
                let data_ref = &data_refs()[*source];
                let key = (data_ref.kind.into(), NS.to_owned(), data_ref.name.clone());
                match value {
                    None => self.now.project.delete(&key),
                    Some(value) => {
                        let body = json!({ "data": { "key": value.to_string() } });
                        match self.now.project.objects.contains_key(&key) {
                            true => self.now.project.merge(&key, &body),
                            false => self.now.project.create(key, body),
                        }
                    }
                }
            }
            Edit::Spec { cities, replicas, template } => {
                let cities: Vec<&str> = cities.iter().map(|c| CITIES[*c]).collect();
                let placements: Value = match cities.is_empty() {
                    true => json!([]),
                    false => {
                        json!([{ "name": "p", "cityCodes": cities, "scaleSettings": { "minReplicas": replicas } }])
                    }
                };
                let spec = json!({
                    "template": { "spec": { "runtime": runtime(*template), "networkInterfaces": [] } },
                    "placements": placements,
                });
                match self.now.project.objects.contains_key(&key) {
                    true => self.now.project.put_spec(&key, &spec),
                    false => self.now.project.create(key, json!({ "spec": spec })),
                }
            }
        }
    }

    /// Creates the sources that are missing.
    pub fn create_missing_sources(&mut self) {
        for (source, data_ref) in data_refs().iter().enumerate() {
            if !self.now.project.objects.contains_key(&(data_ref.kind.into(), NS.into(), data_ref.name.clone())) {
                self.edit(&Edit::Source { source, value: Some(7) });
            }
        }
    }

    pub fn change_manually(&mut self, city: usize, change: ManualChange) {
        let deployment = format!("web-p-{}", CITIES[city]);
        let instance = format!("{deployment}-0");
        let mine = (Kind::Instance, NS.to_owned(), instance.clone());
        match change {
            ManualChange::Policy => {
                self.now.hub.delete(&(Kind::PropagationPolicy, HUB_NS.into(), format!("city-{}", CITIES[city])));
            }
            ManualChange::Copy => self.now.hub.delete(&(Kind::WorkloadDeployment, HUB_NS.into(), deployment)),
            ManualChange::WriteBack => self.now.hub.delete(&(Kind::Instance, HUB_NS.into(), instance)),
            ManualChange::Projection => self.now.project.delete(&mine),
            ManualChange::EditDeployment => {
                let key = (Kind::WorkloadDeployment, NS.to_owned(), deployment);
                self.now.project.merge(&key, &json!({ "spec": by_hand() }));
            }
            ManualChange::EditCopy => {
                let key = (Kind::WorkloadDeployment, HUB_NS.to_owned(), deployment);
                self.now.hub.merge(&key, &json!({ "spec": by_hand() }));
            }
            ManualChange::Messages => {
                for model in [&mut self.now.project, &mut self.now.hub, &mut self.now.cell] {
                    model.reword(CITIES[city]);
                }
            }
            ManualChange::EditProjection => {
                self.now.project.merge(&mine, &json!({ "spec": { "location": { "name": "the moon" } } }));
            }
        }
    }

    /// Lets an actor plan on a snapshot and execute at most `writes` writes, until one is refused. Each kind of each plane is as
    /// old as its watch. Live reads return the present.
    pub fn act(&mut self, actor: Actor, ages: Ages, writes: usize) {
        let at = |age: usize| self.past.get(age).unwrap_or(&self.now);
        let watched = |plane: usize, model: fn(&Planes) -> &Model| {
            Model::watched(KINDS.iter().zip(ages.kinds[plane]).map(|(kind, age)| (*kind, model(at(age)))))
        };
        let seen = Planes {
            project: watched(0, |planes| &planes.project),
            hub: watched(1, |planes| &planes.hub),
            cell: watched(2, |planes| &planes.cell),
            bound: at(ages.bound).bound.clone(),
        };
        self.past.push_front(self.now.clone());
        self.past.truncate(60);
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
            Actor::Quota => self.act_quota(&seen, &mut left),
            Actor::WriteBack => self.act_write_back(&seen, &mut left),
            Actor::Projector => self.act_projector(&seen, &mut left),
            Actor::Companion => self.act_companion(&seen, &mut left),
        }
        self.check_act();
    }

    /// Lets garbage collection, quota, Karmada and the provider act once. Quota grants every claim. The provider runs every
    /// Instance without gates.
    pub fn others(&mut self) {
        let Planes { project, hub, cell, .. } = &mut self.now;
        for model in [&mut *project, &mut *hub, &mut *cell] {
            model.collect_garbage();
        }
        for claim in project.all::<ResourceClaim>(Kind::ResourceClaim) {
            if claim.status.is_none() {
                let granted = json!({ "type": "Granted", "status": "True", "reason": "QuotaAvailable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
                let key = (Kind::ResourceClaim, NS.to_owned(), claim.name_any());
                project.merge(&key, &json!({ "status": { "conditions": [granted] } }));
            }
        }
        let copies: Vec<WorkloadDeployment> = hub.all(Kind::WorkloadDeployment);
        for copy in copies.iter().filter(|c| c.name_any() != FOREIGN) {
            let key = (Kind::WorkloadDeployment, HUB_NS.to_owned(), copy.name_any());
            let city = CityCode::parse(&copy.labels()[label::TOPOLOGY_CITY]).unwrap();
            let claimed = hub.objects.contains_key(&(Kind::PropagationPolicy, HUB_NS.into(), city.policy_name()));
            let mut annotations = copy.annotations().clone();
            annotations.insert(annotation::TEMPLATE_UID.into(), copy.uid().unwrap());
            let body =
                json!({ "metadata": { "labels": copy.labels(), "annotations": annotations }, "spec": copy.spec });
            match cell.get::<WorkloadDeployment>(Kind::WorkloadDeployment, HUB_NS, &copy.name_any()) {
                None if claimed => cell.create(key.clone(), body),
                Some(live) if live.spec != copy.spec || *live.annotations() != annotations => {
                    let labels = copy.labels().clone();
                    replace(cell, &key, &json!(copy.spec), &labels, &annotations);
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
        crowd_follows(project, hub);
        for data_ref in data_refs() {
            let key = (Kind::from(data_ref.kind), HUB_NS.to_owned(), data_ref.name.clone());
            let needs = |copy: &WorkloadDeployment| {
                annotated(copy, annotation::EXPECTED_REFERENCED_DATA).contains(&data_ref)
                    && cell.objects.contains_key(&(Kind::WorkloadDeployment, HUB_NS.into(), copy.name_any()))
            };
            let companion = hub.raw(key.0, &key.1, &key.2).filter(|_| copies.iter().any(needs));
            match (companion, cell.raw(key.0, &key.1, &key.2)) {
                (Some(companion), None) => cell.create(key, json!({ "data": companion["data"] })),
                (Some(companion), Some(copy)) if companion["data"] != copy["data"] => {
                    cell.merge(&key, &json!({ "data": companion["data"] }));
                }
                (None, Some(_)) => cell.delete(&key),
                _ => {}
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

    /// Lets each actor act once on the present. Returns the number of writes that changed an object.
    pub fn round(&mut self) -> usize {
        let before = self.changes;
        for actor in ACTORS {
            self.act(actor, PRESENT, usize::MAX);
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

    /// Runs rounds until `n` writes in total or until nothing changes. All actors die after the last write.
    pub fn run_until_write(&mut self, n: usize) {
        let mut left = n;
        while left > 0 {
            let before = self.changes;
            for actor in ACTORS {
                let spent = self.changes;
                self.act(actor, PRESENT, left);
                left = left.saturating_sub(self.changes - spent);
            }
            self.others();
            if self.changes == before {
                return;
            }
        }
    }
}
