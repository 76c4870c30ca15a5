//! Nothing leaks, wherever the manager dies: deletion cut after each single write in turn; sweeps beside other people's
//! objects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::time::Duration;

use common::{
    RUNTIME, World, apply, binary, condition, delete, deployment, eventually, get, list, merge, ready,
    shop::{Cut, ONE, SWEEPS, left, manager, secret, using},
    workload,
};
use http::Method;
use kube::ResourceExt;
use serde_json::{Value, json};
use testbed::{Options, operator::Operator};
use tokio::time::{Instant, sleep};

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

#[test]
fn a_claim_made_between_the_decision_and_the_deletion_wins() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let options = Options { cells: vec!["dfw".into()], management: SWEEPS.into(), ..Options::default() };
        let mut world = World::start_with(options).await;
        let (ns, hub) = world.namespace("race").await;
        let cut = Cut::new(&world).await;
        world.operators[0].process.kill();
        world.operators[0] = cut.start(&world, i64::MAX).await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(&world, &ns, "web", 1).await;
        let before = get(&world.hub, "Secret", &hub, "db").await.unwrap();
        let hold = cut.hub.hold();
        hold.next(Method::DELETE, "/secrets/db");
        delete(&world.project, "Workload", &ns, "web").await;
        hold.caught().await;
        // Nobody claims it any more, as far as the manager knows. Now somebody does.
        let mut late = deployment(&ns, "late", "dfw");
        late["spec"]["template"] = using(&ns, &["dfw"])["spec"]["template"].clone();
        apply(&world.project, late).await;
        let claim = json!({ "metadata": { "annotations": { "compute.datumapis.com/referenced-by": format!("[\"{ns}/late\"]") } } });
        merge(&world.hub, "Secret", &hub, "db", claim).await;
        hold.release();
        eventually("it runs with its data", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, "late").await.ok_or("no deployment")?;
            let told = condition(&wd, "ReferencedDataReady");
            let there = get(&world.dfw, "Secret", &hub, "db").await.is_some();
            if told["status"] == "True" && there { Ok(()) } else { Err(told.to_string()) }
        })
        .await;
        let after = get(&world.hub, "Secret", &hub, "db").await.unwrap();
        assert_eq!(after.uid(), before.uid(), "the claim has won: the companion is the same");
        delete(&world.project, "WorkloadDeployment", &ns, "late").await;
        eventually("nothing is left", || left(&world, &ns, &hub)).await;
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
        let in_use = get(&world.dfw, "Secret", &hub, "db").await.unwrap().uid();
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
        // Two of them: nothing elects a leader here.
        world.operators.push(Operator::management(&world.bed, binary(), "second-management", &[]).unwrap());
        world.operators.last_mut().unwrap().wait_ready().await.unwrap();
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
        let copy = get(&world.dfw, "Secret", &hub, "db").await;
        assert_eq!(copy.and_then(|copy| copy.uid()), in_use, "what is in use stays");
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
