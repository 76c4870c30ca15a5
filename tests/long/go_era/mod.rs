//! The take-over of a federation that a Go program has written, in the state that the Go operator leaves.
//! Nothing is recreated, even if the new operator dies at any of its writes. From then on, the federation follows its tenants in
//! every field.
//!
//! The program relies on these facts about the Go operator:
//!
//! 1. Each of its writes is plain: a create, an update of the whole object or of its status, or a merge patch for gates. It names
//!    no field manager, so servers use the name of its binary, `manager`.
//! 2. Workloads have the finalizer `workload-controller`. A project's deployments have `federator`, and those with data also
//!    `referenced-data-controller`. A cell's deployments have `workload-controller`. Instances have `instance-controller` and
//!    `claim-cleanup`. Each is added by a separate update.
//! 3. A deployment's `spec.replicas` is set, at first to `minReplicas`. An autoscaler sets the cell's through `scale`.
//! 4. The policy `city-<code>` selects the city's deployments and every ConfigMap and Secret with the label `referenced-data`,
//!    without `propagateDeps`. Data that two cities use reaches only the city with the alphabetically first policy. The first
//!    Instance of the other city waits with `AwaitingPropagation`, and blocks those after it.
//! 5. A companion lists its users in `referenced-by`, sorted. The project's deployment, its copy and Karmada's copy list the
//!    expected data in `expected-referenced-data`: ConfigMaps first, then Secrets.
//! 6. The hash of a template is FNV-1a (32 bits) over Go's print of it, in decimal, in the alphabet that is safe for names.
//! 7. A claim has `source-cluster` and `instance-namespace`, and no uid of its cell. A write-back has the labels of its Instance
//!    and the two of the hub namespace. The hub's deployment controls it, and it does not name its cell either.
//! 8. A projection has its source's labels. The project's deployment owns it without controlling it.

mod fields;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::common::{
    RUNTIME, World, api,
    beds::{Lent, Wish, alone},
    binary, condition, delete, eventually,
    example_app::{Cut, Place, SWEEPS, budgets_by, takes},
    get, list, ready, rights, skip,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use testbed::{
    gate::{Budget, Gate},
    go_era::{self, Program},
    operator::Operator,
    pki::User,
};

/// The deployments that the program creates in each namespace, with their cities.
const DEPLOYMENTS: [(&str, &str); 4] =
    [("web-p-dfw", "dfw"), ("web-p-ord", "ord"), ("vm-p-dfw", "dfw"), ("late-p-ord", "ord")];
/// Each Workload, and its number of Instances once data reaches both cities and the autoscaler's number is kept.
const WORKLOADS: [(&str, u64); 3] = [("web", 4), ("vm", 1), ("late", 2)];

/// Returns the uid of every object that must not be recreated.
async fn uids(world: &World, Place { ns, hub }: &Place) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let on_cell =
        ["WorkloadDeployment", "Instance", "NetworkBinding", "NetworkContext", "SubnetClaim", "ConfigMap", "Secret"];
    let places: [(&str, &Client, &str, &[&str]); 4] = [
        ("project", &world.project, ns, &["Workload", "WorkloadDeployment", "Instance", "ResourceClaim"]),
        (
            "hub",
            &world.hub,
            hub,
            &["WorkloadDeployment", "Instance", "PropagationPolicy", "ResourceBinding", "ConfigMap", "Secret"],
        ),
        ("dfw", &world.dfw, hub, &on_cell),
        ("ord", &world.ord, hub, &on_cell),
    ];
    for (place, client, namespace, kinds) in places {
        for kind in kinds {
            for object in list(client, kind, namespace).await {
                found.insert(format!("{place} {kind} {}", object.name_any()), object.uid().unwrap());
            }
        }
    }
    found
}

/// Returns the objects that have changed or are missing.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    before.iter().filter(|(what, uid)| after.get(*what) != Some(uid)).map(|(what, _)| what.clone()).collect()
}

/// Returns the owners of fields in an object's spec, without the number of instances, each with its kind of write.
fn owners(object: &DynamicObject) -> BTreeSet<String> {
    let entries = object.metadata.managed_fields.iter().flatten();
    let of_spec = entries.filter(|entry| {
        let spec = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:spec")).and_then(Value::as_object);
        spec.is_some_and(|spec| spec.keys().any(|path| path != "f:replicas"))
    });
    of_spec.map(|entry| format!("{} {}", entry.manager.clone().unwrap(), entry.operation.clone().unwrap())).collect()
}

/// Fails unless management has taken over a namespace: it owns all specs, and data is delivered as dependencies.
async fn is_taken(world: &World, Place { ns, hub }: &Place) -> Result<(), String> {
    for (client, namespace) in [(&world.project, ns), (&world.hub, hub)] {
        for (name, _) in DEPLOYMENTS {
            let object = get(client, "WorkloadDeployment", namespace, name).await.ok_or(name)?;
            let owners = owners(&object);
            if owners.is_empty()
                || !owners.iter().all(|one| one.starts_with("compute-operator-") && one.ends_with(" Apply"))
            {
                return Err(format!("{name}: {owners:?}"));
            }
        }
    }
    for city in ["dfw", "ord"] {
        let policy = get(&world.hub, "PropagationPolicy", hub, &format!("city-{city}")).await.ok_or("no policy")?;
        let spec = &policy.data["spec"];
        if spec["propagateDeps"] != true || spec["resourceSelectors"].as_array().map(Vec::len) != Some(1) {
            return Err(spec.to_string());
        }
    }
    let there = get(&world.ord, "Secret", hub, "app-secret").await;
    there.map(drop).ok_or("the second city lacks the data".into())
}

/// Fails unless the cells have taken over: everything runs, and every Instance has this operator's hash and cell.
async fn runs(world: &World, Place { ns, hub }: &Place) -> Result<(), String> {
    for (name, replicas) in WORKLOADS {
        let tenants = get(&world.project, "Workload", ns, name).await.ok_or(name)?;
        let status = &tenants.data["status"];
        if ["replicas", "readyReplicas", "currentReplicas"].iter().any(|field| status[*field] != replicas) {
            return Err(format!("{name}: {status}"));
        }
    }
    for object in list(&world.hub, "Instance", hub).await {
        let hash = object.data["spec"]["controller"]["templateHash"].to_string();
        if !hash.contains("j1-") || !object.labels().contains_key("compute.datumapis.com/cell-uid") {
            return Err(format!("{}: {hash} {:?}", object.name_any(), object.labels()));
        }
    }
    Ok(())
}

/// The cells' operators behind gates with a shared budget. A cell's writes in its cluster and on the hub both count.
struct CellCut {
    budget: Arc<Budget>,
    gates: BTreeMap<String, [Gate; 2]>,
}

impl CellCut {
    async fn new(world: &World) -> Self {
        let (budget, dir, mut gates) = (Arc::new(Budget::default()), world.bed.dir(), BTreeMap::new());
        for (city, cell) in &world.bed.cells {
            let home = Gate::start(dir, cell, &budget).await.unwrap();
            let hub = Gate::start_for(&User::Cell(city.clone()), dir, &world.bed.hub, &budget).await.unwrap();
            gates.insert(city.clone(), [home, hub]);
        }
        Self { budget, gates }
    }

    async fn start(&self, world: &World) -> Vec<Operator> {
        let mut operators = Vec::new();
        for (city, [home, hub]) in &self.gates {
            let flags = [
                format!("--kubeconfig={}", home.kubeconfig().display()),
                format!("--federation-kubeconfig={}", hub.kubeconfig().display()),
            ];
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            operators.push(Operator::cell(&world.bed, binary(), city, &flags).unwrap());
        }
        for operator in &mut operators {
            operator.wait_ready().await.unwrap();
        }
        operators
    }
}

/// More writes than management, and the cells, take for one namespace.
const MOST: [u64; 2] = [80, 140];

/// A namespace has three Workloads and seven Instances. With a cut at every fifth write, the test would take many minutes.
const STEP: [u64; 2] = [20, 40];

/// Returns a bed without operators, with namespaces that the program has written.
async fn written(program: &std::path::Path, count: usize) -> (Lent<World>, Vec<Place>) {
    let management = format!("{SWEEPS}timing:\n  takeoverPauseSeconds: 1\n");
    let mut world = alone(Wish { networks_and_quota: true, management, ..Wish::default() }).await;
    for operator in &mut world.operators {
        operator.process.kill();
    }
    let mut places = Vec::new();
    for _ in 0..count {
        let (ns, hub) = world.namespace("of-go").await;
        places.push(Place { ns, hub });
    }
    let names: Vec<&str> = places.iter().map(|place| place.ns.as_str()).collect();
    go_era::write(program, &world.bed, &names).await.unwrap();
    (world, places)
}

#[test]
fn go_federation_taken_over_with_cuts_keeps_running_and_follows_changes() {
    RUNTIME.block_on(async {
        let program = match go_era::build().unwrap() {
            Program::Built(program) => program,
            Program::Missing(what) => skip!("no program writes a federation as Go does: {what}"),
        };
        let [mut of_manager, mut of_cells] = [0, 1].map(|at| budgets_by(MOST[at], STEP[at]));
        // The same number of budgets for each. The additional ones are unlimited.
        let count = of_manager.len().max(of_cells.len());
        of_manager.resize(count, u64::MAX);
        of_cells.resize(count, u64::MAX);
        let began = std::time::Instant::now();
        let (mut world, places) = written(&program, count).await;
        eprintln!("Go has written {} namespaces after {:?}", places.len(), began.elapsed());
        let mut before = Vec::new();
        for place in &places {
            before.push(uids(&world, place).await);
        }
        let uncut = places.last().unwrap().clone();
        assert_go_state(&world, &uncut).await;
        let generations = generations(&world, &uncut).await;

        let cut = Cut::new(&world).await;
        let budgeted = cut.budgets(of_manager, places.clone());
        let mut dying = cut.start(&world).await;
        let is_done = |place: Place| {
            let world = &world;
            async move { is_taken(world, &place).await }
        };
        let writes = cut.dead_or_done(&budgeted, is_done).await;
        takes("management's takeover of a namespace", &writes, 20..MOST[0]);
        is_counted(&dying.metrics().await.unwrap());
        dying.process.kill();
        world.restart_manager(&[]).await;
        for (writes, place) in &budgeted {
            eventually(&format!("taken over after a death at write {writes}"), || is_taken(&world, place)).await;
        }
        assert_eq!(self::generations(&world, &uncut).await, generations, "no cell has seen a change");

        let cut = CellCut::new(&world).await;
        let budgeted: Vec<(u64, Place)> = of_cells.into_iter().zip(places.clone()).collect();
        for (writes, place) in &budgeted {
            cut.budget.set(&[&place.hub], *writes);
        }
        let dying = cut.start(&world).await;
        for (writes, place) in &budgeted {
            eventually(&format!("dead at write {writes}, or done"), || async {
                if cut.budget.is_spent(&place.hub) { Ok(()) } else { runs(&world, place).await }
            })
            .await;
        }
        let writes = cut.budget.spent(&uncut.hub);
        takes("the cells' takeover of a namespace", &writes, 20..MOST[1]);
        drop(dying);
        restart_cells(&mut world).await;
        for ((writes, place), before) in budgeted.iter().zip(&before) {
            eventually(&format!("all runs after a death at write {writes}"), || runs(&world, place)).await;
            let changed = changed(before, &uids(&world, place).await);
            assert!(changed.is_empty(), "after a death at write {writes}: {changed:?}");
        }
        reported_once(&world, &uncut).await;
        eprintln!("all of it runs after {:?}", began.elapsed());

        fields::follow(&world, &uncut).await;
        manual_edit_is_reverted(&world, &uncut).await;
        eprintln!("all of it follows after {:?}", began.elapsed());
        for (name, _) in WORKLOADS {
            delete(&world.project, "Workload", &uncut.ns, name).await;
        }
        eventually("nothing is left of it", || world.is_clean(&uncut.ns, &uncut.hub)).await;
        rights::shown(&world, world.since(), "go_federation_taken_over_with_cuts_keeps_running_and_follows_changes");
    });
}

/// Asserts that the take-over is counted by plane and kind.
fn is_counted(metrics: &str) {
    for plane in ["project", "hub"] {
        let of = format!("compute_fields_taken_over_total{{plane=\"{plane}\",kind=\"WorkloadDeployment\"}}");
        assert!(metrics.contains(&of), "{of} is counted:\n{metrics}");
    }
}

/// Restarts the operators of the cells without gates.
async fn restart_cells(world: &mut World) {
    for city in world.bed.cells.keys().cloned().collect::<Vec<_>>() {
        let at = world.of_cell(&city);
        world.operators[at] = Operator::cell(&world.bed, binary(), &city, &[]).unwrap();
    }
    for operator in &mut world.operators[1..] {
        operator.wait_ready().await.unwrap();
    }
}

/// Returns the generation of each deployment on its cell.
async fn generations(world: &World, place: &Place) -> BTreeMap<String, Option<i64>> {
    let mut found = BTreeMap::new();
    for (name, city) in DEPLOYMENTS {
        let cell = if city == "dfw" { &world.dfw } else { &world.ord };
        let live = get(cell, "WorkloadDeployment", &place.hub, name).await.unwrap();
        found.insert(name.to_owned(), live.metadata.generation);
    }
    found
}

/// Asserts that the objects are as the Go operator leaves them, without any mark of this operator (facts 1, 2, 4 and 7).
async fn assert_go_state(world: &World, Place { ns, hub }: &Place) {
    for (client, namespace) in [(&world.project, ns), (&world.hub, hub)] {
        for (name, _) in DEPLOYMENTS {
            let object = get(client, "WorkloadDeployment", namespace, name).await.unwrap();
            assert_eq!(owners(&object), ["manager Update".to_owned()].into(), "{name}");
        }
    }
    let original = get(&world.project, "WorkloadDeployment", ns, "web-p-dfw").await.unwrap();
    for finalizer in ["federator", "referenced-data-controller"] {
        assert!(original.finalizers().contains(&format!("compute.datumapis.com/{finalizer}")));
    }
    assert!(get(&world.dfw, "Secret", hub, "app-secret").await.is_some());
    assert!(get(&world.ord, "Secret", hub, "app-secret").await.is_none(), "by claim it reaches one city");
    let waiting = get(&world.ord, "Instance", hub, "web-p-ord-0").await.unwrap();
    assert_eq!(condition(&waiting, "Ready")["reason"], "AwaitingPropagation");
    for object in list(&world.project, "ResourceClaim", ns).await.iter().chain(&list(&world.hub, "Instance", hub).await)
    {
        assert!(!object.labels().contains_key("compute.datumapis.com/cell-uid"), "{}", object.name_any());
    }
}

/// Asserts that each deployment has one Event about the take-over.
async fn reported_once(world: &World, Place { ns, hub }: &Place) {
    for (client, namespace) in [(&world.project, ns), (&world.hub, hub)] {
        let events = list(client, "Event", namespace).await;
        let told = events.iter().filter(|event| event.data["reason"] == "FieldsTakenOver");
        let about: BTreeSet<String> = told.clone().map(|event| event.data["regarding"]["name"].to_string()).collect();
        assert_eq!((about.len(), told.count()), (DEPLOYMENTS.len(), DEPLOYMENTS.len()), "{about:?}");
    }
}

/// Asserts that a manual edit of the copy is undone, under any field manager and without one.
async fn manual_edit_is_reverted(world: &World, Place { hub, .. }: &Place) {
    let copies = api(&world.hub, "WorkloadDeployment", hub);
    for (value, forgotten) in [("MINE", false), ("LOST", true)] {
        eventually("the copy is edited", || async {
            let mut copy = copies.get("web-p-dfw").await.map_err(|e| e.to_string())?;
            copy.data["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["args"] = json!([value]);
            copy.metadata.managed_fields = forgotten.then(|| vec![ManagedFieldsEntry::default()]);
            let by = PostParams { field_manager: Some("kubectl-edit".into()), ..PostParams::default() };
            copies.replace("web-p-dfw", &by, &copy).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
        eventually("the manual edit is reverted", || async {
            let copy = copies.get("web-p-dfw").await.map_err(|e| e.to_string())?;
            let right = !copy.data.to_string().contains(value) && owners(&copy).len() == 1;
            if right { Ok(()) } else { Err(format!("{:?}", owners(&copy))) }
        })
        .await;
    }
    ready(world, &world_ns(world, hub).await, "web", 1).await;
}

/// Returns the project namespace that a hub namespace mirrors.
async fn world_ns(world: &World, hub: &str) -> String {
    let namespace = get(&world.hub, "Namespace", "", hub).await.unwrap();
    namespace.labels()["meta.datumapis.com/upstream-namespace"].clone()
}
