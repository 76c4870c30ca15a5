//! The operator's controllers in the model. Each one plans on a snapshot and executes its writes until one is refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use compute_operator::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        karmada::PropagationPolicy,
        meta::label,
        names::{self, CityCode, ProjectName},
        neighbours::ResourceClaim,
        referenced::DataRef,
        user_list::UserName,
    },
    plan::{
        Keeper, Kind, NamespaceFacts, Next, Object, ObjectVersion, Op, Shared, Step, Write,
        cell::{claim, instance, instances, quota, reclaim, write_back},
        management::{
            city_policy::{guard, migration::probe, policy},
            collector::{
                collect,
                table::{Action, Item, Observed, Read, Rule, Sweep},
            },
            federator::{
                federate::{self, Blocked, Outage},
                repair::{Absence, Capacity},
            },
            observed::facts::SharedCompanion,
            projector::projection,
            referenced_data::resolve,
            workload::{
                fan_out,
                refusal::{self, Cause, Refusal},
            },
        },
        ownership,
        references::references,
    },
    timing::Timing,
};
use kube::{Resource, ResourceExt};

use crate::{
    data::{companion_facts, sources},
    model::{Key, Model, Refused},
    world::{CITIES, CLUSTER, FEATURES, FOREIGN, HUB_NS, NOW, NS, Planes, World, data_refs},
};

/// A plane of the world.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Project,
    Hub,
    Cell,
}

impl World {
    pub(super) fn act_workload(&mut self, seen: &Planes, left: &mut usize) {
        let Some(workload) = seen.project.get::<Workload>(Kind::Workload, NS, "web") else { return };
        let all: Vec<Arc<WorkloadDeployment>> =
            seen.project.all(Kind::WorkloadDeployment).into_iter().map(Arc::new).collect();
        let ours: Vec<_> = all
            .iter()
            .filter(|wd| Some(&wd.spec.workload_ref.uid) == workload.metadata.uid.as_ref())
            .cloned()
            .collect();
        let named = all.iter().map(|wd| (wd.name_any(), wd.clone().into())).collect();
        let observed = fan_out::Observed {
            workload: workload.into(),
            deployments: ours.into_iter().map(Shared::from).collect(),
            named,
            bound: seen.bound.clone(),
            namespace_uid: Some("n1".into()),
            networks: self.mishap.networks.clone(),
            locations_fail: None,
            unreadable: Vec::new(),
            contested: false,
            timing: Timing::default(),
        };
        let mut refused = Vec::new();
        for write in fan_out::plan(&observed, self.mishap.time).steps {
            if !refusal::may_follow(&write, &refused) {
                continue;
            }
            if let Some(cause) = self.mishap.refused.filter(|_| changes_deployment(&write)) {
                refused.push(Refusal::of(&write, cause, "denied".into()));
                continue;
            }
            let done = self.now.project.execute(&write);
            let (is_refused, looked) = (done.is_err(), matches!(done, Ok(false)));
            if !spend(left, &mut self.changes, done) && *left == 0 && !looked {
                return;
            }
            if is_refused {
                refused.push(Refusal::of(&write, Cause::Passing { lasted: Duration::ZERO }, String::new()));
            }
        }
        let reported = self.mishap.refused.and_then(|_| fan_out::refused(&observed, &refused, self.mishap.time));
        if let Some(reported) = reported {
            spend(left, &mut self.changes, self.now.project.execute(&reported));
        }
    }

    pub(super) fn act_federator(&mut self, seen: &Planes, left: &mut usize) {
        for deployment in seen.project.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            if deployment.name_any() == FOREIGN {
                continue;
            }
            let namespace = seen.hub.objects.get(&(Kind::Namespace, String::new(), HUB_NS.into()));
            let facts = namespace.map(|ns| NamespaceFacts {
                uid: "h".into(),
                labels: serde_json::from_value(ns.content()["metadata"]["labels"].clone()).unwrap_or_default(),
                ..NamespaceFacts::default()
            });
            let copy = seen.hub.get::<WorkloadDeployment>(Kind::WorkloadDeployment, HUB_NS, &deployment.name_any());
            let data = |model: &Model, ns, data_ref: &DataRef| {
                model.raw(data_ref.kind.into(), ns, &data_ref.name).map(|object| object["data"].clone())
            };
            let user = UserName::new(NS, &deployment.name_any());
            let shared = |data_ref: DataRef| {
                let facts = companion_facts(&seen.hub, &data_ref)?;
                let fresh = data(&seen.hub, HUB_NS, &data_ref) == data(&seen.project, NS, &data_ref);
                Some((data_ref, SharedCompanion::of(&facts, &user, fresh.then_some(&*facts.uid))))
            };
            let companions = data_refs().into_iter().filter_map(shared).collect();
            let is_copy = |key: &&Key| key.0 == Kind::WorkloadDeployment && key.1 == HUB_NS;
            let mut observed = federate::Observed {
                is_first_copy: !seen.hub.objects.keys().any(|key| is_copy(&key)),
                hidden_copy: None,
                turn_in: None,
                project: ProjectName::single(),
                namespace_uid: Some("n1".into()),
                hub_namespace: facts.map(Shared::from),
                keeper: Keeper::default(),
                copy: copy.map(Shared::from),
                data: resolve::View { sources: sources(&seen.project), companions, ..resolve::View::default() },
                deployment: deployment.into(),
                karmada: self.mishap.karmada.as_ref().map(|(karmada, _)| karmada.clone()),
                blocked: self.mishap.karmada.as_ref().map(|(_, reason)| blocked(reason)),
                unshown: None,
                outage: self.mishap.outage.map(outage),
                hub_namespace_version: None,
                rival: None,
                namespace_words: None,
                capacity: Capacity::default(),
                timing: Timing::default(),
            };
            let plan = federate::plan(&observed, self.mishap.time);
            let name = observed.deployment.name_any();
            let stored =
                |world: &Self| world.now.project.get::<WorkloadDeployment>(Kind::WorkloadDeployment, NS, &name);
            let is_current = stored(self).as_ref() == Some(&*observed.deployment);
            self.carry_out([Place::Project, Place::Hub], plan.steps.clone(), left);
            let reports = |step: &Step<_, _>| matches!(step, Step::Local(write) if write.reports());
            let is_report = is_current && !plan.steps.is_empty() && plan.steps.iter().all(reports);
            let written = federate::status_of(&plan).filter(|_| is_report);
            if let Some((written, stored)) = written.zip(stored(self))
                && stored.status.as_ref() == Some(&written)
                && !federate::asks_for_another_look(&observed, &plan, &written, &stored)
            {
                observed.deployment = stored.into();
                let next = federate::plan(&observed, self.mishap.time);
                assert!(next.steps.is_empty(), "after {:?}, another look finds {:?}", plan.steps, next.steps);
                assert_eq!((next.next, next.signals), (Next::Await, Vec::new()), "after {:?}", plan.steps);
                self.final_reports += 1;
            }
        }
    }

    /// Runs the collector on the copies without an original.
    pub(super) fn act_on_orphans(&mut self, seen: &Planes, left: &mut usize) {
        for copy in seen.hub.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            let has_original =
                seen.project.objects.contains_key(&(Kind::WorkloadDeployment, NS.into(), copy.name_any()));
            let is_ours = copy.namespace().as_deref() == Some(HUB_NS) && ownership::is_hub_copy_from(&copy, NS);
            if has_original || !is_ours || copy.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let original = Object::named::<WorkloadDeployment>(NS, &copy.name_any());
            let observed = Observed {
                rule: Rule::Copy,
                namespace: HUB_NS.into(),
                hub_namespace: NamespaceFacts::default(),
                present: Some(NamespaceFacts::default()),
                project: None,
                owner: Read::NotInProject(original),
                items: vec![Item::new(Object::of(&copy), ObjectVersion::of(copy.meta()))],
                grace: Rule::Copy.grace(&Sweep::default(), &Timing::default()),
                noted: None,
                created: Some(NOW), // a write under way has recreated it
                seen_before: false,
                in_sweep: false,
                paused: false,
            };
            let steps = collect::plan(&observed, NOW).steps.into_iter();
            let steps = steps.filter_map(|action| match action {
                Action::Hub(write) => Some(Step::Remote(write)),
                Action::Project(write) => Some(Step::Local(write)),
                Action::Discovery(_) => None,
            });
            self.carry_out([Place::Project, Place::Hub], steps.collect(), left);
        }
    }

    pub(super) fn act_policy(&mut self, seen: &Planes, left: &mut usize) {
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
            let policy: Option<PropagationPolicy> = seen.hub.get(Kind::PropagationPolicy, HUB_NS, &city.policy_name());
            let observed = policy::Observed {
                namespace: HUB_NS.into(),
                spellings: BTreeSet::new(),
                copies: copies.iter().filter(here).count(),
                wanted,
                complete: true,
                namespace_lives: seen.hub.objects.contains_key(&(Kind::Namespace, String::new(), HUB_NS.into())),
                policy: policy.map(Shared::from),
                place: Some(guard::Observed::default()),
                guard: false,
                delivered_by_dependency: false,
                claimed: 0,
                probe: probe::Probe::Passed,
                propagation: policy::Propagation::Dependencies,
                rollback_impact: None,
                rollback_waits: Vec::new(),
                problem: None,
                timing: Timing::default(),
                city,
            };
            for write in policy::plan(&observed, NOW).steps {
                spend(left, &mut self.changes, self.now.hub.execute(&write));
            }
        }
    }

    pub(super) fn act_deployment(&mut self, seen: &Planes, left: &mut usize) {
        for deployment in seen.cell.all::<WorkloadDeployment>(Kind::WorkloadDeployment) {
            if deployment.name_any() == FOREIGN {
                continue;
            }
            let all: Vec<Instance> = seen.cell.all(Kind::Instance);
            let (own, others): (Vec<Instance>, Vec<Instance>) =
                all.into_iter().partition(|i| ownership::is_controlled_by(i, &deployment));
            let is_placed = |other: &Instance| instances::place_of(&other.name_any(), &deployment).is_some();
            let in_the_way: Vec<Instance> = others.into_iter().filter(is_placed).collect();
            let observed = instances::Observed {
                instances: own.into_iter().map(Shared::from).collect(),
                in_the_way: in_the_way.into_iter().map(Shared::from).collect(),
                unreadable: [].into(),
                deployment: deployment.into(),
                features: FEATURES,
                networks: None,
                failing: false,
                timing: Timing::default(),
            };
            for write in instances::plan(&observed, NOW).steps {
                let done = self.now.cell.execute(&write);
                let (ends, looked) = (done.is_err() && is_live_read(&write.op), matches!(done, Ok(false)));
                if !spend(left, &mut self.changes, done) && *left == 0 && !looked {
                    return;
                }
                if ends {
                    break; // later writes depend on it
                }
            }
        }
    }

    pub(super) fn act_instance(&mut self, seen: &Planes, left: &mut usize) {
        for object in seen.cell.all::<Instance>(Kind::Instance) {
            let owner = ownership::controller_of(&object).map(|owner| owner.name.clone()).unwrap_or_default();
            let owner: Option<WorkloadDeployment> = seen.cell.get(Kind::WorkloadDeployment, HUB_NS, &owner);
            let owner = owner.filter(|wd| ownership::is_controlled_by(&object, wd));
            if owner.is_none() && object.metadata.deletion_timestamp.is_none() {
                continue;
            }
            let is_there = |data_ref: &DataRef| {
                seen.cell.objects.contains_key(&(data_ref.kind.into(), HUB_NS.into(), data_ref.name.clone()))
            };
            let needed = references(&object.spec).into_iter().map(|reference| reference.data_ref);
            let observed = instance::Observed {
                companions: Some(needed.filter(is_there).collect()),
                instance: object.into(),
                deployment: owner.map(Shared::from),
                features: FEATURES,
                networks: None,
                timing: Timing::default(),
            };
            for write in instance::plan(&observed, NOW).steps {
                let done = self.now.cell.execute(&write);
                let is_refused = done.is_err();
                spend(left, &mut self.changes, done);
                if is_refused {
                    break;
                }
            }
        }
    }

    pub(super) fn act_quota(&mut self, seen: &Planes, left: &mut usize) {
        let address = claim::Address { project: ProjectName::single(), namespace: NS.into() };
        let names = claim::Names { current: CLUSTER.into(), former: [].into() };
        let cell = claim::Identity { uid: CLUSTER.into(), names };
        for instance in seen.cell.all::<Instance>(Kind::Instance) {
            let name = names::resource_claim_name(&instance.name_any());
            let claim = match seen.project.get::<ResourceClaim>(Kind::ResourceClaim, NS, &name) {
                Some(claim) => quota::Claim::Present(claim.into()),
                None => quota::Claim::Absent,
            };
            let observed = quota::Observed {
                instance: instance.into(),
                address: Some(address.clone()),
                claim,
                watched: true,
                cell: cell.clone(),
                timing: Timing::default(),
            };
            self.carry_out([Place::Cell, Place::Project], quota::plan(&observed, NOW).steps, left);
        }
        for claim in seen.project.all::<ResourceClaim>(Kind::ResourceClaim) {
            let name = claim.name_any().replace("instance-", "");
            if !seen.cell.objects.contains_key(&(Kind::Instance, HUB_NS.into(), name.clone())) {
                let instance = Object::named::<Instance>(HUB_NS, &name);
                let observed = reclaim::Observed { claim: claim.into(), cell: cell.clone(), instance };
                self.carry_out([Place::Cell, Place::Project], reclaim::plan(&observed, NOW).steps, left);
            }
        }
    }

    /// Executes the steps of a controller of two planes until one is refused or the controller dies.
    pub(super) fn carry_out<N, F>(&mut self, [local, remote]: [Place; 2], steps: Vec<Step<N, F>>, left: &mut usize) {
        for step in steps {
            let done = match &step {
                Step::Local(write) => self.at(local).execute(write),
                Step::Remote(write) => self.at(remote).execute(write),
            };
            let looked = matches!(done, Ok(false)); // a live read changes nothing and does not count as a write
            if !spend(left, &mut self.changes, done) && !looked {
                return;
            }
        }
    }

    fn at(&mut self, place: Place) -> &mut Model {
        match place {
            Place::Project => &mut self.now.project,
            Place::Hub => &mut self.now.hub,
            Place::Cell => &mut self.now.cell,
        }
    }

    pub(super) fn act_write_back(&mut self, seen: &Planes, left: &mut usize) {
        let labels = [(label::UPSTREAM_CLUSTER, "cluster-single"), (label::UPSTREAM_NAMESPACE, NS)];
        let labels: BTreeMap<String, String> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let of = |model: &Model| model.all::<Instance>(Kind::Instance).into_iter().map(|i| i.name_any());
        let all: BTreeSet<String> = of(&seen.cell).chain(of(&seen.hub)).collect();
        for name in all {
            let instance: Option<Instance> = seen.cell.get(Kind::Instance, HUB_NS, &name);
            let deployment = instance.as_ref().and_then(|instance| {
                let owner = ownership::controller_of(instance)?;
                seen.cell.get::<WorkloadDeployment>(Kind::WorkloadDeployment, HUB_NS, &owner.name)
            });
            let deployment = deployment
                .filter(|wd| instance.as_ref().is_some_and(|instance| ownership::is_controlled_by(instance, wd)));
            let copy: Option<Instance> = seen.hub.get(Kind::Instance, HUB_NS, &name);
            let observed = write_back::Observed {
                object: Object::named::<Instance>(HUB_NS, &name),
                instance: instance.map(Shared::from),
                deployment: deployment.map(Shared::from),
                namespace_labels: labels.clone(),
                cell: CLUSTER.into(),
                copy: copy.map(Shared::from),
                hub: write_back::OnHub::Unread,
                rival: write_back::Rival::Unread,
                timing: Timing::default(),
            };
            self.carry_out([Place::Cell, Place::Hub], write_back::plan(&observed, NOW).steps, left);
        }
    }

    pub(super) fn act_projector(&mut self, seen: &Planes, left: &mut usize) {
        let of = |model: &Model| model.all::<Instance>(Kind::Instance).into_iter().map(|i| i.name_any());
        let all: BTreeSet<String> = of(&seen.project).chain(of(&seen.hub)).collect();
        for name in all {
            let source: Option<Instance> = seen.hub.get(Kind::Instance, HUB_NS, &name);
            let claimed = source.as_ref().map(|source| projection::identify(source).unwrap());
            let deployment: Option<WorkloadDeployment> =
                claimed.and_then(|claimed| seen.project.get(Kind::WorkloadDeployment, NS, &claimed.deployment));
            let projection: Option<Instance> = seen.project.get(Kind::Instance, NS, &name);
            let observed = projection::Observed {
                too_large: false,
                bound: None,
                unbound: None,
                members: None,
                namespace: NS.into(),
                name,
                facts: Some(NamespaceFacts { uid: "n1".into(), ..NamespaceFacts::default() }),
                source: source.map(Shared::from),
                foreign: Vec::new(),
                deployment: deployment.map(Shared::from),
                projection: projection.map(Shared::from),
            };
            self.carry_out([Place::Project, Place::Hub], projection::plan(&observed, NOW).steps, left);
        }
    }
}

/// True if a write changes a deployment.
fn changes_deployment<P>(write: &Write<P>) -> bool {
    write.object.kind == Kind::WorkloadDeployment && !is_live_read(&write.op)
}

/// A reason that has blocked a deployment for a minute.
fn blocked(reason: &str) -> Blocked {
    let (elapsed, silence) = (Duration::from_mins(1), (reason == "BindingMissing").then_some(Absence::Lost));
    Blocked { reason: reason.to_owned(), silence, elapsed, repairs: 0, repaired_ago: None }
}

fn outage(blind: bool) -> Outage {
    Outage { words: "no answer".into(), lasted: Duration::from_mins(1), blind }
}

/// True if a write is only a live read.
fn is_live_read(op: &Op) -> bool {
    matches!(op, Op::ConfirmAbsent | Op::ConfirmGone { .. } | Op::ConfirmPresent { .. } | Op::ConfirmUnchanged { .. })
}

/// Counts a write. Returns false if the write was refused or if the actor has no writes left.
fn spend(left: &mut usize, changes: &mut usize, done: Result<bool, Refused>) -> bool {
    let Ok(wrote) = done else { return false };
    *changes += usize::from(wrote);
    *left = left.saturating_sub(usize::from(wrote));
    *left > 0
}
