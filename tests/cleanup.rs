//! Nothing leaks and nothing in use is taken away, wherever the manager dies: deletion, and the way from claims to
//! dependencies, cut after each single write in turn; sweeps beside other people's objects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    RUNTIME, World, apply, binary, condition, delete, eventually, get, list, merge, ready, template, workload,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use testbed::{
    Options,
    gate::{Budget, Gate},
    operator::Operator,
};
use tokio::time::{Instant, sleep};

/// One testbed at a time: each is a dozen processes, and these tests look closely at what happens when.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const SWEEPS: &str = "cleanup:\n  sweepIntervalSeconds: 1\n";

/// A manager whose writes are counted, and stop at a budget.
struct Cut {
    budget: Arc<Budget>,
    project: Gate,
    hub: Gate,
}

impl Cut {
    async fn new(world: &World) -> Self {
        let budget = Arc::new(Budget::default());
        let dir = world.bed.dir();
        let project = Gate::start(dir, &world.bed.project, &budget).await.unwrap();
        let hub = Gate::start(dir, &world.bed.hub, &budget).await.unwrap();
        Self { budget, project, hub }
    }

    /// Starts the manager with so many writes left.
    async fn start(&self, world: &World, writes: i64) -> Operator {
        self.budget.set(writes);
        let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
        let flags = [
            "--enable-management-controllers".to_owned(),
            flag("kubeconfig", self.project.kubeconfig()),
            flag("federation-kubeconfig", self.hub.kubeconfig()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut manager = Operator::with_config(world.bed.dir(), binary(), "cut", SWEEPS, &flags).unwrap();
        tokio::select! {
            ready = manager.wait_ready() => ready.unwrap(),
            () = async {
                while !self.budget.is_spent() {
                    sleep(Duration::from_millis(10)).await; // it may be over before it is ready
                }
            } => {}
        }
        manager
    }
}

async fn manager(world: &World) -> Operator {
    let mut manager = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
    manager.wait_ready().await.unwrap();
    manager
}

fn secret(ns: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": ns, "name": "db" }, "data": { "k": "dg==" },
    })
}

fn using(ns: &str, cities: &[&str]) -> Value {
    let mut object = workload(ns, "web", cities, 1);
    object["spec"]["template"] = template("docker.io/library/nginx:1");
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
        json!([{ "secretRef": { "name": "db" } }]);
    object
}

/// What is left of ours on hub and cells, the hub namespace aside.
async fn left(world: &World, ns: &str, hub: &str) -> Result<(), String> {
    world.is_clean(ns, hub).await?;
    for (place, client) in [("hub", &world.hub), ("dfw", &world.dfw), ("ord", &world.ord)] {
        if get(client, "Secret", hub, "db").await.is_some() {
            return Err(format!("{place}: Secret db"));
        }
    }
    Ok(())
}

#[test]
fn a_deletion_that_is_cut_after_any_write_ends_clean_within_a_sweep() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let options = Options { management: SWEEPS.into(), ..Options::default() };
        let mut world = World::start_with(options).await;
        let (ns, hub) = world.namespace("cascade").await;
        let cut = Cut::new(&world).await;
        for writes in 1.. {
            apply(&world.project, secret(&ns)).await;
            apply(&world.project, using(&ns, &["dfw", "ord"])).await;
            ready(&world, &ns, "web", 2).await;
            eventually("both cities are guarded: nothing is under way", || async {
                for city in ["dfw", "ord"] {
                    let policy = get(&world.hub, "PropagationPolicy", &hub, &format!("city-{city}")).await;
                    let placement = policy.ok_or("no policy")?.data["spec"]["placement"].clone();
                    if placement["clusterAffinities"].is_null() {
                        return Err(placement.to_string());
                    }
                }
                Ok(())
            })
            .await;
            world.operators[0].process.kill();
            let mut dying = cut.start(&world, writes).await;
            delete(&world.project, "Workload", &ns, "web").await;
            let began = Instant::now();
            while !cut.budget.is_spent() && left(&world, &ns, &hub).await.is_err() {
                assert!(began.elapsed() < common::PATIENCE, "neither dead nor done");
                sleep(Duration::from_millis(20)).await;
            }
            let done = !cut.budget.is_spent();
            dying.process.kill();
            world.operators[0] = manager(&world).await;
            eventually(&format!("clean after a death at write {writes}"), || left(&world, &ns, &hub)).await;
            if done {
                assert!(writes > 8, "a cascade of {writes} writes is none");
                break;
            }
        }
        // It stays so.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(30) {
            left(&world, &ns, &hub).await.unwrap();
            sleep(Duration::from_millis(200)).await;
        }
    });
}

/// The city's policy as the Go operator writes it: it claims companions for its city.
fn of_go(hub: &str, city: &str) -> Value {
    let label = json!({ "matchLabels": { "topology.datum.net/city-code": city } });
    let companions = json!({ "matchLabels": { "compute.datumapis.com/referenced-data": "true" } });
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": hub, "name": format!("city-{city}") },
        "spec": {
            "resourceSelectors": [
                { "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "namespace": hub, "labelSelector": label },
                { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "labelSelector": companions },
                { "apiVersion": "v1", "kind": "Secret", "namespace": hub, "labelSelector": companions },
            ],
            "placement": { "clusterAffinity": { "labelSelector": label } },
        },
    })
}

/// Puts the hub into the state that the Go operator leaves: one city has the Secret by its policy's claim, the other
/// waits for ever (fact 21).
async fn as_go_left_it(world: &World, ns: &str, hub: &str) {
    apply(&world.project, secret(ns)).await;
    let waiting = using(ns, &["dfw", "ord"]);
    apply(&world.project, waiting).await;
    let mut first = manager(world).await;
    ready(world, ns, "web", 2).await;
    first.process.kill();
    for city in ["dfw", "ord"] {
        delete(&world.hub, "PropagationPolicy", hub, &format!("city-{city}")).await;
    }
    eventually("the policies are gone", || async {
        let policies = list(&world.hub, "PropagationPolicy", hub).await.len();
        if policies == 0 { Ok(()) } else { Err(policies.to_string()) }
    })
    .await;
    for city in ["dfw", "ord"] {
        apply(&world.hub, of_go(hub, city)).await;
    }
    eventually("dfw has it by claim, and ord has lost it", || async {
        let binding = get(&world.hub, "ResourceBinding", hub, "db-secret").await.ok_or("no binding")?;
        let spec = &binding.data["spec"];
        let by_need = spec["requiredBy"].as_array().is_some_and(|list| !list.is_empty());
        let ord = get(&world.ord, "Secret", hub, "db").await;
        let dfw = get(&world.dfw, "Secret", hub, "db").await;
        let claimed = spec["clusters"] == json!([{ "name": "cell-dfw" }]);
        if claimed && !by_need && ord.is_none() && dfw.is_some() { Ok(()) } else { Err(spec.to_string()) }
    })
    .await;
}

/// Looks at the copy in use without rest, and notes each thing that ever stood there.
fn watch_copy(cell: Client, hub: &str) -> (Arc<Mutex<BTreeMap<String, String>>>, tokio::task::JoinHandle<()>) {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let (notes, hub) = (seen.clone(), hub.to_owned());
    let task = tokio::spawn(async move {
        loop {
            let state = match get(&cell, "Secret", &hub, "db").await {
                Some(copy) => (copy.uid().unwrap(), copy.data["data"].to_string()),
                None => ("none".to_owned(), String::new()),
            };
            notes.lock().unwrap().insert(state.0, state.1);
            sleep(Duration::from_millis(5)).await;
        }
    });
    (seen, task)
}

/// What facts 15 and 27 ask for: everybody has it, by need alone.
async fn migrated(world: &World, hub: &str) -> Result<(), String> {
    for city in ["dfw", "ord"] {
        let policy = get(&world.hub, "PropagationPolicy", hub, &format!("city-{city}")).await.ok_or("no policy")?;
        let spec = &policy.data["spec"];
        let selectors = spec["resourceSelectors"].as_array().map_or(0, Vec::len);
        if selectors != 1 || spec["propagateDeps"] != true {
            return Err(spec.to_string());
        }
    }
    let companion = get(&world.hub, "Secret", hub, "db").await.ok_or("no companion")?;
    let binding = get(&world.hub, "ResourceBinding", hub, "db-secret").await.ok_or("no binding")?;
    let claim = "propagationpolicy.karmada.io/permanent-id";
    let spec = &binding.data["spec"];
    let free = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let clean = !companion.labels().contains_key(claim)
        && !binding.annotations().contains_key("propagationpolicy.karmada.io/name")
        && free(&spec["clusters"])
        && spec["placement"].is_null()
        && spec["requiredBy"].as_array().is_some_and(|list| list.len() == 2);
    let there =
        get(&world.dfw, "Secret", hub, "db").await.is_some() && get(&world.ord, "Secret", hub, "db").await.is_some();
    if clean && there { Ok(()) } else { Err(format!("{spec} {:?}", companion.annotations())) }
}

#[test]
fn the_way_from_claims_to_dependencies_takes_no_copy_away_wherever_it_is_cut() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let options = Options { management: SWEEPS.into(), ..Options::default() };
        let mut world = World::start_with(options).await;
        if world.bed.stand_in().is_none() {
            return; // by hand there
        }
        let (ns, hub) = world.namespace("migrate").await;
        let cut = Cut::new(&world).await;
        world.operators[0].process.kill();
        for writes in 1.. {
            as_go_left_it(&world, &ns, &hub).await;
            let (seen, watching) = watch_copy(world.dfw.clone(), &hub);
            sleep(Duration::from_millis(50)).await;
            let mut dying = cut.start(&world, writes).await;
            let began = Instant::now();
            while !cut.budget.is_spent() && migrated(&world, &hub).await.is_err() {
                assert!(
                    began.elapsed() < common::PATIENCE,
                    "neither dead nor done: {:?}",
                    migrated(&world, &hub).await
                );
                sleep(Duration::from_millis(20)).await;
            }
            let done = !cut.budget.is_spent();
            dying.process.kill();
            let mut next = manager(&world).await;
            eventually(&format!("done after a death at write {writes}"), || migrated(&world, &hub)).await;
            watching.abort();
            let seen = seen.lock().unwrap().clone();
            assert_eq!(seen.len(), 1, "the copy in use is the same throughout: {seen:?}");
            delete(&world.project, "Workload", &ns, "web").await;
            eventually("all is cleared for the next round", || left(&world, &ns, &hub)).await;
            next.process.kill();
            if done {
                assert!(writes > 5, "{writes} writes are no migration");
                break;
            }
        }
        // The same eye notices what the naive way does: everything in one step (fact 25).
        as_go_left_it(&world, &ns, &hub).await;
        let (seen, watching) = watch_copy(world.dfw.clone(), &hub);
        sleep(Duration::from_millis(50)).await;
        for city in ["dfw", "ord"] {
            let mut policy = of_go(&hub, city);
            policy["spec"]["propagateDeps"] = json!(true);
            policy["spec"]["resourceSelectors"].as_array_mut().unwrap().truncate(1);
            apply(&world.hub, policy).await;
        }
        eventually("the copy was taken away", || async {
            let seen = seen.lock().unwrap().clone();
            if seen.len() > 1 { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
        watching.abort();
    });
}

/// What `compute-operator migration status` prints.
fn status(world: &World) -> String {
    let hub = world.bed.hub.kubeconfig(testbed::pki::User::Operator);
    let mut command = std::process::Command::new(binary());
    let out = command.args(["migration", "status", "--federation-kubeconfig"]).arg(hub).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn the_way_back_to_claims_warns_and_the_way_forth_heals() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let mut world = World::start().await;
        if world.bed.stand_in().is_none() {
            return; // by hand there
        }
        let (ns, hub) = world.namespace("rollback").await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw", "ord"])).await;
        ready(&world, &ns, "web", 2).await;
        assert!(status(&world).contains("2 of 2 are done"), "{}", status(&world));
        let uid_on =
            |cell: Client, hub: String| async move { get(&cell, "Secret", &hub, "db").await.and_then(|s| s.uid()) };
        let copies = [uid_on(world.dfw.clone(), hub.clone()).await, uid_on(world.ord.clone(), hub.clone()).await];
        world.operators[0].process.kill();
        let way = ["--referenced-data-propagation=selectors"];
        world.operators[0] = Operator::management(&world.bed, binary(), "operator-management", &way).unwrap();
        world.operators[0].wait_ready().await.unwrap();
        let warned = eventually("it is told what will be lost", || async {
            let events = list(&world.hub, "Event", &hub).await;
            let warning = events.iter().find(|event| event.data["reason"] == "DataWillBeLost");
            warning
                .map(|event| event.data["note"].as_str().unwrap().to_owned())
                .ok_or(format!("{} events", events.len()))
        })
        .await;
        // Whichever policy came first has claimed it.
        let ord_loses = warned.contains("ord loses Secret/db, which stays with city-dfw");
        assert!(ord_loses || warned.contains("dfw loses Secret/db, which stays with city-ord"), "{warned}");
        let (loser, city, winner, kept) = if ord_loses {
            (world.ord.clone(), "ord", world.dfw.clone(), &copies[0])
        } else {
            (world.dfw.clone(), "dfw", world.ord.clone(), &copies[1])
        };
        assert!(get(&loser, "Secret", &hub, "db").await.is_some(), "not before the warning has stood");
        eventually("the other city has lost it", || async {
            if get(&loser, "Secret", &hub, "db").await.is_none() { Ok(()) } else { Err(status(&world)) }
        })
        .await;
        eventually("its deployment says why", || async {
            let name = format!("web-p-{city}");
            let wd = get(&world.project, "WorkloadDeployment", &ns, &name).await.ok_or("gone")?;
            let told = condition(&wd, "Federated");
            if told["reason"] == "ClaimedByAnotherPolicy" { Ok(()) } else { Err(told.to_string()) }
        })
        .await;
        assert!(status(&world).contains("0 of 2 are done"), "{}", status(&world));
        world.operators[0].process.kill();
        world.operators[0] = manager(&world).await;
        eventually("all is by need again", || migrated(&world, &hub)).await;
        assert_eq!(&uid_on(winner, hub.clone()).await, kept, "the winner's copy never moved");
        assert!(status(&world).contains("2 of 2 are done"), "{}", status(&world));
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn sweeps_find_what_was_left_and_touch_nothing_of_others() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let options = Options { cells: vec!["dfw".into()], management: SWEEPS.into(), ..Options::default() };
        let mut world = World::start_with(options).await;
        let (ns, hub) = world.namespace("sweep").await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(&world, &ns, "web", 1).await;
        world.operators[0].process.kill();
        // Left behind by a death long ago: a companion whose user is gone, and a binding without its companion.
        let ours = "compute.datumapis.com/referenced-data";
        let companion = |name: &str, by: &str| json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "namespace": hub, "name": name, "labels": { ours: "true" },
                "annotations": { "compute.datumapis.com/referenced-by": by },
            },
        });
        let binding = |name: &str, policy: &str| json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": { "namespace": hub, "name": name, "annotations": { "propagationpolicy.karmada.io/name": policy } },
            "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "name": "x" } },
        });
        apply(&world.hub, companion("left", &format!("[\"{ns}/gone\"]"))).await;
        apply(&world.hub, binding("lost-configmap", "city-dfw")).await;
        // Others': each looks a little like ours.
        let mut foreign = vec![
            apply(&world.hub, companion("corrupt", "not json")).await,
            apply(&world.hub, companion("empty", "[]")).await,
            apply(&world.hub, companion("elsewhere", "[\"another-namespace/wd\"]")).await,
            apply(&world.hub, binding("theirs-configmap", "their-policy")).await,
            apply(&world.hub, binding("of-a-deployment-workloaddeployment", "city-dfw")).await,
        ];
        let theirs = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "namespace": hub, "name": "city-nowhere" },
            "spec": { "resourceSelectors": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "none" }], "placement": {} },
        });
        apply(&world.hub, theirs).await;
        sleep(Duration::from_millis(500)).await; // the stand-in marks the policy as its own
        foreign.push(get(&world.hub, "PropagationPolicy", &hub, "city-nowhere").await.unwrap());

        // Paused, nothing goes.
        let pause = |value: Value| json!({ "metadata": { "annotations": { "compute.datumapis.com/pause-cleanup": value } } });
        merge(&world.hub, "Namespace", "", &hub, pause(json!("true"))).await;
        world.operators[0] = manager(&world).await;
        eventually("it says that it is paused", || async {
            let log = std::fs::read_to_string(world.operators[0].process.log()).map_err(|e| e.to_string())?;
            if log.contains("clean-up is paused") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        assert!(get(&world.hub, "ResourceBinding", &hub, "lost-configmap").await.is_some());
        merge(&world.hub, "Namespace", "", &hub, pause(Value::Null)).await;
        eventually("what was left is gone", || async {
            let companion = get(&world.hub, "ConfigMap", &hub, "left").await;
            let binding = get(&world.hub, "ResourceBinding", &hub, "lost-configmap").await;
            if companion.is_none() && binding.is_none() { Ok(()) } else { Err(format!("{companion:?} {binding:?}")) }
        })
        .await;
        sleep(Duration::from_secs(3)).await; // two sweeps more
        for object in &foreign {
            let kind = object.types.as_ref().unwrap().kind.clone();
            let now = get(&world.hub, &kind, &hub, &object.name_any()).await;
            let same = now.as_ref().and_then(|now| now.resource_version()) == object.resource_version();
            assert!(same, "{kind} {} was touched", object.name_any());
        }
        let log = std::fs::read_to_string(world.operators[0].process.log()).unwrap();
        for name in ["corrupt", "empty"] {
            let told = |line: &&str| line.contains("companion is kept") && line.contains(&format!("{hub}/{name}"));
            assert_eq!(log.lines().filter(told).count(), 1, "{name} is reported once");
        }
        let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.unwrap();
        assert_eq!(condition(&wd, "ReferencedDataReady")["reason"], "Ready");
        assert!(get(&world.dfw, "Secret", &hub, "db").await.is_some(), "what is in use stays");
    });
}

#[test]
fn what_a_vanished_project_leaves_on_the_hub_is_told_and_removed_after_its_grace() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let options = Options {
            cells: vec!["dfw".into()],
            projects: vec!["alpha".into(), "beta".into()],
            management: format!("{SWEEPS}  strandedGraceSeconds: 3\n"),
            ..Options::default()
        };
        let mut world = World::start_with(options).await;
        let beta = world.bed.others["beta"].client().await.unwrap();
        let (kept, lost) = (world.namespace_in(&world.project, "kept").await, world.namespace_in(&beta, "lost").await);
        apply(&world.project, workload("kept", "web", &["dfw"], 1)).await;
        apply(&beta, workload("lost", "web", &["dfw"], 1)).await;
        for hub in [&kept, &lost] {
            eventually("it runs", || async {
                get(&world.dfw, "Instance", hub, "web-p-dfw-0").await.map(|_| ()).ok_or("not yet".to_owned())
            })
            .await;
        }
        // Gone while nobody looks: nothing of it is finalised.
        world.operators[0].process.kill();
        delete(&world.project, "Project", "", "beta").await;
        let started = Instant::now();
        world.operators[0] = manager(&world).await;
        eventually("it is told", || async {
            let told = list(&world.hub, "Event", "default")
                .await
                .into_iter()
                .any(|event| event.data["reason"] == "Stranded" && event.data["regarding"]["name"] == json!(lost));
            let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let counted = text.contains("compute_federation_stranded_namespaces 1");
            if told && counted { Ok(()) } else { Err(format!("told: {told}, counted: {counted}")) }
        })
        .await;
        assert!(get(&world.hub, "Namespace", "", &lost).await.is_some() || started.elapsed() > Duration::from_secs(3));
        for (place, client) in [("hub", &world.hub), ("dfw", &world.dfw)] {
            eventually(&format!("it is gone from {place}"), || async {
                let left = get(client, "Namespace", "", &lost).await;
                if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
            })
            .await;
        }
        assert!(started.elapsed() > Duration::from_secs(3), "not before its grace");
        assert!(get(&world.dfw, "Instance", &kept, "web-p-dfw-0").await.is_some(), "the other project's runs on");
        delete(&world.project, "Workload", "kept", "web").await;
    });
}
