//! Cost of one event with few and with many other objects, in keys and in objects that are read from caches. The test uses the
//! real caches, triggers and controllers, with servers that do not answer. It measures no time.
//!
//! `GROWTH=1 cargo test --lib growth -- --nocapture` prints the table for 100, 1,000 and 10,000 objects. It takes minutes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use kube::ResourceExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{fixtures, projects::project_cache::ProjectCache, referenced_data::sources, *};
use crate::{
    api::{
        compute::{Instance, InstanceSpec, WorkloadDeployment},
        karmada::{BindingSnapshot, PropagationPolicy, PropagationPolicySpec, ResourceSelector},
        meta::{annotation, label},
        referenced::{DataRef, SourceKind},
        user_list::UserList,
    },
    controllers::{
        Reconciler,
        compact::{PackedDeployment, PackedInstance},
        management::wiring::queues::CompanionKey,
    },
    io::{
        clients::ControlPlane,
        clock::Now,
        queue::{Key, Outcome, Queue},
        reads,
        store::Incoming,
    },
    plan::{
        ObjectVersion,
        management::{
            observed::{
                cluster::ClusterFacts,
                facts::{BindingFacts, CompanionFacts, Phase, Template},
            },
            referenced_data::resolve::Source,
        },
    },
};

fn sizes() -> [usize; 3] {
    if std::env::var_os("GROWTH").is_some() { [100, 1_000, 10_000] } else { [40, 200, 1_000] }
}

/// Returns the city of the deployment with this number.
type City = fn(usize) -> String;

fn one_city(_: usize) -> String {
    "dfw".into()
}

fn own_city(n: usize) -> String {
    format!("c{n:05}")
}

/// A project whose namespace `shop` has deployments that all refer to the Secret `db`. The hub has their copies, bindings and
/// policies, and Instances without a project.
struct World {
    ctx: Arc<Context>,
    project: Arc<ProjectCache>,
    companion: Companion,
    policy: CityPolicy,
    phase: Phase,
    city: City,
    template: WorkloadDeployment,
    version: AtomicU64,
}

fn name(n: usize) -> String {
    format!("web-{n:05}")
}

fn db() -> DataRef {
    DataRef::secret("db")
}

fn incoming<V>(namespace: &str, name: &str, version: u64, value: V) -> Incoming<V> {
    Incoming { key: ObjectKey::new(namespace, name), uid: name.into(), version, value: Some(Arc::new(value)) }
}

impl World {
    fn new(phase: Phase, city: City, deployments: usize, quarantined: usize) -> Self {
        let ctx = Context::of_tests();
        let plane = ControlPlane::new("alpha", fixtures::unreachable());
        let project = ProjectCache::new(&ProjectName::new("alpha"), plane, false, None, CancellationToken::new());
        let project = Arc::new(project);
        assert!(project.begins_to_watch_sources(), "no watch of sources runs here");
        let companion = ctx.companion(&Arc::new(ctx.watches(&CancellationToken::new())));
        let policy = ctx.policy();
        let (template, version) = (Self::template(), AtomicU64::new(1));
        let world = Self { ctx, project, companion, policy, phase, city, template, version };
        world.ctx.projects.insert(world.project.clone());
        world.ctx.triggers.listen_to_hub();
        world.ctx.triggers.listen_to_project(&world.project);
        world.fill_project(deployments);
        world.fill_hub(deployments, quarantined);
        world
    }

    fn next(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed)
    }

    fn fill_project(&self, deployments: usize) {
        let project = &self.project;
        project.workloads.replace(Vec::new(), 1);
        project.namespaces.replace(vec![fixtures::namespace("shop", "u", &[])], 1);
        let all = (0..deployments).map(|n| self.original(n, 1)).collect();
        project.deployments.replace(all, self.next());
        project.instances.replace(Vec::new(), 1);
        project.locations.replace(Vec::new(), 1);
        let (sources, source) = (project.sources(SourceKind::Secret), ObjectKey::new("shop", "db"));
        let epoch = sources.begin(&source);
        let present = Source::Present { size: 1 };
        sources.read(&source, epoch, sources::Reading { uid: "s".into(), version: 1, source: present });
    }

    fn fill_hub(&self, deployments: usize, quarantined: usize) {
        let (hub, all) = (&self.ctx.hub, 0..deployments);
        let labels = [(label::UPSTREAM_CLUSTER, "cluster-alpha"), (label::UPSTREAM_NAMESPACE, "shop")];
        hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &labels)], 1);
        hub.clusters.replace(vec![incoming("", "c1", 1, ClusterFacts::labelled("dfw"))], 1);
        let cities: BTreeSet<String> = all.clone().map(self.city).collect();
        hub.policies.replace(cities.iter().map(|city| self.policy_of(city)).collect(), self.next());
        hub.copies.replace(all.clone().map(|n| self.copy(n, 1)).collect(), self.next());
        for kind in SourceKind::ALL {
            hub.companions(kind).replace(Vec::new(), 1);
        }
        hub.companions(SourceKind::Secret).observe(self.secret(None));
        hub.bindings.replace(all.clone().map(|n| self.binding(n, true)).collect(), self.next());
        hub.bindings.observe(self.binding_of_secret(deployments));
        hub.instances.replace((0..quarantined).map(|n| self.lost(n, 0)).collect(), self.next());
    }

    fn deployment(&self, n: usize, namespace: &str, replicas: i32) -> Incoming<PackedDeployment> {
        let mut deployment = self.template.clone();
        let city = (self.city)(n);
        deployment.spec.city_code.clone_from(&city);
        deployment.labels_mut().insert(label::TOPOLOGY_CITY.into(), city);
        deployment.status.as_mut().unwrap().replicas = replicas;
        let meta = &mut deployment.metadata;
        (meta.name, meta.uid, meta.namespace) = (Some(name(n)), Some(name(n)), Some(namespace.into()));
        meta.resource_version = Some(self.next().to_string());
        Incoming::new(&deployment.clone(), Some(PackedDeployment::of(deployment)))
    }

    fn template() -> WorkloadDeployment {
        let mut deployment: WorkloadDeployment = serde_json::from_value(json!({
            "metadata": {
                "name": "web", "generation": 1, "labels": { label::UPSTREAM_NAMESPACE: "shop" },
                "annotations": { annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/db"]"# },
            },
            "spec": {
                "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
                "template": { "spec": {
                    "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                        { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
                    ] } },
                    "networkInterfaces": [],
                } },
                "scaleSettings": { "minReplicas": 1 },
            },
            "status": { "observedGeneration": 1, "replicas": 1, "currentReplicas": 1, "desiredReplicas": 1,
                        "readyReplicas": 1, "updatedReplicas": 1 },
        }))
        .unwrap();
        deployment.metadata.finalizers = Some(vec![crate::api::meta::finalizer::FEDERATOR.into()]);
        deployment
    }

    fn original(&self, n: usize, replicas: i32) -> Incoming<PackedDeployment> {
        self.deployment(n, "shop", replicas)
    }

    fn copy(&self, n: usize, replicas: i32) -> Incoming<PackedDeployment> {
        self.deployment(n, "ns-u", replicas)
    }

    fn policy_of(&self, city: &str) -> Incoming<PropagationPolicy> {
        let selector = |kind: &str| ResourceSelector { kind: kind.into(), ..ResourceSelector::default() };
        let claims = (self.phase != Phase::Dependencies).then(|| selector("Secret"));
        let spec = PropagationPolicySpec {
            resource_selectors: [selector("WorkloadDeployment")].into_iter().chain(claims).collect(),
            propagate_deps: self.phase != Phase::Claims,
            ..PropagationPolicySpec::default()
        };
        let mut policy = PropagationPolicy::new(&format!("city-{city}"), spec);
        policy.metadata.namespace = Some("ns-u".into());
        incoming("ns-u", &format!("city-{city}"), self.next(), policy)
    }

    fn secret(&self, claimed_by: Option<&str>) -> Incoming<CompanionFacts> {
        let version = self.next();
        let copied = ObjectVersion::new("db", &version.to_string());
        self.project.sources(SourceKind::Secret).copied(&ObjectKey::new("shop", "db"), copied);
        let facts = CompanionFacts {
            uid: "db".into(),
            version: version.to_string(),
            users: UserList::parse(Some(r#"["more than 32"]"#)),
            policy: claimed_by.map(str::to_owned),
            ..CompanionFacts::default()
        };
        incoming("ns-u", "db", version, facts)
    }

    fn binding(&self, n: usize, applied: bool) -> Incoming<BindingFacts> {
        let taken = if applied { Ok(()) } else { Err("no".to_owned()) };
        let facts = BindingFacts {
            template: Template::Deployment(name(n)),
            policy: Some(format!("city-{}", (self.city)(n)).into()),
            clusters: vec!["c1".to_owned()].into(),
            applied: BTreeMap::from([("c1".to_owned(), taken)]).into(),
            ..BindingFacts::default()
        };
        incoming("ns-u", &format!("{}-workloaddeployment", name(n)), self.next(), facts)
    }

    fn binding_of_secret(&self, users: usize) -> Incoming<BindingFacts> {
        let user =
            |n| BindingSnapshot { name: format!("{}-workloaddeployment", name(n)), ..BindingSnapshot::default() };
        let facts = BindingFacts {
            template: Template::Companion(db()),
            required_by: (0..users).map(user).collect(),
            ..BindingFacts::default()
        };
        incoming("ns-u", "db-secret", self.next(), facts)
    }

    /// Returns an Instance that a cell wrote back for an unknown project.
    fn lost(&self, n: usize, change: usize) -> Incoming<PackedInstance> {
        let mut instance = Instance::new(&name(n), InstanceSpec::default());
        let labels = [
            (label::UPSTREAM_CLUSTER, "cluster-nobody"),
            (label::UPSTREAM_NAMESPACE, "shop"),
            (label::WORKLOAD_DEPLOYMENT_NAME, "web"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let of_test = ("change".to_owned(), change.to_string());
        instance.metadata.labels = Some(labels.into_iter().chain([of_test]).collect());
        (instance.metadata.namespace, instance.metadata.uid) = (Some("ns-u".into()), Some(name(n)));
        incoming("ns-u", &name(n), self.next(), PackedInstance::of_hub(instance))
    }

    /// Runs `event`, and reconciles all keys that it enqueues.
    async fn cost(&self, event: impl FnOnce()) -> Cost {
        let mut cost = Cost::default();
        let _ = (self.drain().await, reads::take());
        event();
        cost.heard = reads::take();
        let keys = self.drain().await;
        cost.keys = keys.count();
        reads::take();
        let now = Now::read();
        reconcile(&self.ctx.workload(), &keys.workload, now).await;
        reconcile(&self.ctx.federator(), &keys.federator, now).await;
        reconcile(&self.ctx.projector(), &keys.projector, now).await;
        cost.looked = reads::take();
        reconcile(&self.companion, &keys.companion, now).await;
        cost.companions = reads::take();
        reconcile(&self.policy, &keys.policy, now).await;
        cost.policies = reads::take();
        cost
    }

    async fn drain(&self) -> Keys {
        let queues = &self.ctx.queues;
        Keys {
            workload: drain(&queues.workload).await,
            federator: drain(&queues.federator).await,
            policy: drain(&queues.policy).await,
            projector: drain(&queues.projector).await,
            companion: drain(&queues.companion).await,
        }
    }
}

struct Keys {
    workload: Vec<super::wiring::queues::ProjectKey>,
    federator: Vec<super::wiring::queues::ProjectKey>,
    policy: Vec<super::wiring::queues::PolicyKey>,
    projector: Vec<super::wiring::queues::InstanceKey>,
    companion: Vec<super::wiring::queues::CompanionKey>,
}

impl Keys {
    fn count(&self) -> usize {
        [self.workload.len() + self.federator.len(), self.projector.len(), self.policy.len(), self.companion.len()]
            .iter()
            .sum()
    }
}

async fn drain<K: Key>(queue: &Queue<K>) -> Vec<K> {
    let mut keys = Vec::new();
    while queue.depth() > 0 {
        let key = queue.next().await;
        keys.push(key.clone());
        queue.finish(key, Outcome::Done);
    }
    tokio::time::advance(Duration::from_mins(1)).await; // a finished key has a short pause
    keys
}

/// Reconciles these keys. The servers do not answer, so each reconcile ends with its first write.
async fn reconcile<R: Reconciler>(controller: &R, keys: &[R::Key], now: Now) {
    for key in keys {
        let _ = controller.reconcile(key, now, Duration::ZERO).await;
    }
}

/// Cost of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    /// Number of keys, each counted once.
    keys: usize,
    /// Objects that were read to find the keys.
    heard: usize,
    /// Objects that the controllers of Workloads, deployments and Instances read.
    looked: usize,
    /// Objects that the controller of companions reads. Each reconcile covers all users, and all events before it share one.
    companions: usize,
    /// Objects that the controller of policies reads. Each reconcile covers all deployments of its city, and all events before it
    /// share one.
    policies: usize,
}

/// Creates a world of a size.
type Make<'a> = &'a dyn Fn(usize) -> World;

type Event = (&'static str, fn(&World, usize));

/// Events in a world of `n` deployments.
const OF_DEPLOYMENTS: [Event; 10] = [
    ("a deployment's status changes", |w, n| w.project.deployments.observe(w.original(n / 2, 2))),
    ("one more deployment", |w, n| w.project.deployments.observe(w.original(n, 1))),
    ("its copy", |w, n| w.ctx.hub.copies.observe(w.copy(n, 1))),
    ("a copy reports", |w, n| w.ctx.hub.copies.observe(w.copy(n / 2, 2))),
    ("a cluster refuses one", |w, n| w.ctx.hub.bindings.observe(w.binding(n / 2, false))),
    ("one more binding", |w, n| w.ctx.hub.bindings.observe(w.binding(n, true))),
    ("one more needs the Secret", |w, n| w.ctx.hub.bindings.observe(w.binding_of_secret(n + 1))),
    ("the Secret's copy changes", |w, _| w.ctx.hub.companions(SourceKind::Secret).observe(w.secret(None))),
    ("a cluster without any of them", |w, _| {
        let facts = ClusterFacts { ready: Err(w.next().to_string()), ..ClusterFacts::labelled("elsewhere") };
        w.ctx.hub.clusters.observe(incoming("", "c2", w.next(), facts));
    }),
    ("the Secret changes", |w, _| w.ctx.queues.companion.add(CompanionKey::new(&w.project.name, "shop", db()))),
];

const OF_INSTANCES: [Event; 2] = [
    ("one that is quarantined changes", |w, n| w.ctx.hub.instances.observe(w.lost(n / 2, 1))),
    ("a binding moves", |w, _| w.ctx.hub.bindings.observe(w.binding(0, true))),
];

/// Returns the cost of each of these events, one after the other, in worlds of each size.
async fn costs(world: &dyn Fn(usize) -> World, events: &[Event]) -> Vec<[Cost; 3]> {
    let mut costs = vec![[Cost::default(); 3]; events.len()];
    for (nth, size) in sizes().into_iter().enumerate() {
        let world = world(size);
        for ((_, event), costs) in events.iter().zip(&mut costs) {
            costs[nth] = world.cost(|| event(&world, size)).await;
        }
    }
    costs
}

/// Checks that each event costs the same with many other objects as with few. Prints a table of the costs.
#[tokio::test(start_paused = true)]
async fn event_cost_with_many_other_objects_does_not_grow() {
    let of_secret = |n| World::new(Phase::Dependencies, one_city, n, 0);
    let claimed = |n| World::new(Phase::Claims, one_city, n, 0);
    let claims = |n| World::new(Phase::Claims, own_city, n, 0);
    let both = |n| World::new(Phase::Both, own_city, n, 0);
    let quarantined = |n| World::new(Phase::Dependencies, one_city, 1, n);
    let worlds: [(&str, Make<'_>, &[Event]); 5] = [
        ("users of one Secret", &of_secret, &OF_DEPLOYMENTS),
        ("the same, claimed", &claimed, &OF_DEPLOYMENTS),
        ("cities that claim", &claims, &OF_DEPLOYMENTS),
        ("cities on their way", &both, &OF_DEPLOYMENTS),
        ("quarantined", &quarantined, &OF_INSTANCES),
    ];
    let mut grows = Vec::new();
    println!("{:<20} {:<30} keys; read to find them, at looks, for companions, for cities", "", "");
    for (world, make, events) in worlds {
        for ((what, _), costs) in events.iter().zip(costs(make, events).await) {
            let show =
                |of: fn(&Cost) -> usize| costs.iter().map(of).map(|n| n.to_string()).collect::<Vec<_>>().join("/");
            let columns =
                [show(|c| c.keys), show(|c| c.heard), show(|c| c.looked), show(|c| c.companions), show(|c| c.policies)];
            println!("{world:<20} {what:<30} {}", columns.join("; "));
            let bounded = |cost: &Cost| (cost.keys, cost.heard, cost.looked);
            if costs.iter().any(|cost| bounded(cost) != bounded(&costs[0])) {
                grows.push(format!("{world}: {what}: {}", columns.join("; ")));
            }
        }
    }
    assert!(grows.is_empty(), "grows with the number of objects: {grows:#?}");
}
