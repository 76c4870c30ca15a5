//! Clean-up after a manager that dies at any write, and sweeps that leave foreign objects alone.

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    binary, condition, delete, deployment, eventually,
    example_app::{Cut, Place, SWEEPS, budgets, left, secret, takes, using},
    get, list, merge, never, ready,
    refusal::Refusal,
};
use http::Method;
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::operator::Operator;

/// More writes than the deletion of one application takes. The number includes a slow machine, which also reports what exceeds
/// its grace period.
const CUTS: u64 = 24;

#[test]
fn deletion_cut_after_any_write_ends_clean_within_a_sweep() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let cut = Cut::new(&world).await;
        let (budgets, mut places) = (budgets(CUTS), Vec::new());
        for _ in &budgets {
            let (ns, hub) = world.namespace("cascade").await;
            apply(&world.project, secret(&ns)).await;
            apply(&world.project, using(&ns, &["dfw", "ord"])).await;
            places.push(Place { ns, hub });
        }
        for Place { ns, hub } in &places {
            ready(&world, ns, "web", 2).await;
            eventually("both cities are guarded: nothing is under way", || async {
                for city in ["dfw", "ord"] {
                    let policy = get(&world.hub, "PropagationPolicy", hub, &format!("city-{city}")).await;
                    let placement = policy.ok_or("no policy")?.data["spec"]["placement"].clone();
                    if placement["clusterAffinities"].is_null() {
                        return Err(placement.to_string());
                    }
                }
                Ok(())
            })
            .await;
        }
        world.operators[0].process.kill();
        let places = cut.budgets(budgets, places);
        let mut dying = cut.start(&world).await;
        for (_, place) in &places {
            delete(&world.project, "Workload", &place.ns, "web").await;
        }
        let is_done = |place: Place| {
            let world = &world;
            async move { left(world, &place.ns, &place.hub).await }
        };
        let writes = cut.dead_or_done(&places, is_done).await;
        takes("a deletion", &writes, 8..CUTS);
        dying.process.kill();
        world.restart_manager(&[]).await;
        for (writes, place) in &places {
            eventually(&format!("clean after a death at write {writes}"), || left(&world, &place.ns, &place.hub)).await;
        }
        // It stays clean for some more sweeps.
        never("an object returns", || async {
            let mut back = Vec::new();
            for (writes, place) in &places {
                back.extend(left(&world, &place.ns, &place.hub).await.err().map(|what| (*writes, what)));
            }
            (!back.is_empty()).then_some(back)
        })
        .await;
    });
}

#[test]
fn companion_claimed_between_decision_and_deletion_is_kept() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("race").await;
        let cut = Cut::new(&world).await;
        world.operators[0].process.kill();
        world.operators[0] = cut.start(&world).await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(&world, &ns, "web", 1).await;
        let before = get(&world.hub, "Secret", &hub, "db").await.unwrap();
        let hold = cut.hub.hold();
        hold.next(Method::DELETE, "/secrets/db");
        delete(&world.project, "Workload", &ns, "web").await;
        hold.caught().await;
        // According to the manager's cache, no deployment claims it any more. Now one does.
        let mut late = deployment(&ns, "late", "dfw");
        late["spec"]["template"] = using(&ns, &["dfw"])["spec"]["template"].clone();
        apply(&world.project, late).await;
        let claim = json!({ "metadata": { "annotations": { "compute.datumapis.com/referenced-by": format!("[\"{ns}/late\"]") } } });
        merge(&world.hub, "Secret", &hub, "db", claim).await;
        hold.release();
        eventually("it runs with its data", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, "late").await.ok_or("no deployment")?;
            let condition = condition(&wd, "ReferencedDataReady");
            let there = get(&world.dfw, "Secret", &hub, "db").await.is_some();
            if condition["status"] == "True" && there { Ok(()) } else { Err(condition.to_string()) }
        })
        .await;
        let after = get(&world.hub, "Secret", &hub, "db").await.unwrap();
        assert_eq!(after.uid(), before.uid(), "the claim has won: the companion is the same");
        delete(&world.project, "WorkloadDeployment", &ns, "late").await;
        eventually("nothing is left", || left(&world, &ns, &hub)).await;
    });
}

/// Returns a binding of a companion that does not exist, as if this policy had made it.
fn binding(hub: &str, name: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": { "namespace": hub, "name": name, "annotations": { "propagationpolicy.karmada.io/name": policy } },
        "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "name": "x" } },
    })
}

/// Creates companions without users, and bindings without their template, on the hub. Also creates foreign objects that resemble
/// them, and returns these.
async fn leave_behind(world: &World, ns: &str, hub: &str) -> Vec<DynamicObject> {
    // Residue of an earlier crash: companions without existing users, one of them with a user in another namespace, and bindings
    // without templates.
    let ours = "compute.datumapis.com/referenced-data";
    let companion = |name: &str, by: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "namespace": hub, "name": name, "labels": { ours: "true" },
                "annotations": { "compute.datumapis.com/referenced-by": by },
            },
        })
    };
    let binding = |name: &str, policy: &str| binding(hub, name, policy);
    apply(&world.hub, companion("left", &format!("[\"{ns}/gone\"]"))).await;
    apply(&world.hub, companion("elsewhere", "[\"default/nonexistent-wd\"]")).await;
    apply(&world.hub, companion("of-many", "[\"more than 32\"]")).await;
    // This companion has lost its label, and neither a binding nor a user refers to it.
    let mut unlabelled = companion("unlabelled", &format!("[\"{ns}/gone\"]"));
    unlabelled["metadata"]["labels"] = json!({});
    let by = PatchParams::apply("compute-operator-companion");
    api(&world.hub, "ConfigMap", hub).patch("unlabelled", &by, &Patch::Apply(&unlabelled)).await.unwrap();
    unlabelled["metadata"]["name"] = json!("somebody-elses");
    apply(&world.hub, binding("lost-configmap", "city-dfw")).await;
    apply(&world.hub, binding("lost-workloaddeployment", "city-dfw")).await;
    // Foreign objects that resemble the operator's.
    let mut foreign = vec![
        apply(&world.hub, companion("corrupt", "not json")).await,
        apply(&world.hub, companion("empty", "[]")).await,
        apply(&world.hub, companion("malformed", "[\"wd\"]")).await,
        apply(&world.hub, unlabelled).await,
        apply(&world.hub, binding("theirs-configmap", "their-policy")).await,
        apply(&world.hub, binding("of-a-deployment-workloaddeployment", "their-policy")).await,
    ];
    let theirs = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": hub, "name": "city-nowhere" },
        "spec": { "resourceSelectors": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "none" }], "placement": {} },
    });
    apply(&world.hub, theirs).await;
    foreign.push(
        eventually("Karmada marks the policy as its own", || async {
            let policy = get(&world.hub, "PropagationPolicy", hub, "city-nowhere").await.ok_or("gone")?;
            if policy.finalizers().is_empty() { Err("not yet".to_owned()) } else { Ok(policy) }
        })
        .await,
    );
    foreign
}

#[test]
fn sweep_deletes_leftovers_and_keeps_foreign_objects() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("sweep").await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(&world, &ns, "web", 1).await;
        let in_use = get(&world.dfw, "Secret", &hub, "db").await.unwrap().uid();
        world.operators[0].process.kill();
        let foreign = leave_behind(&world, &ns, &hub).await;

        // While the clean-up is paused, nothing is deleted.
        let pause =
            |value: Value| json!({ "metadata": { "annotations": { "compute.datumapis.com/pause-cleanup": value } } });
        merge(&world.hub, "Namespace", "", &hub, pause(json!("true"))).await;
        world.restart_manager(&[]).await;
        // Two managers without leader election.
        let mut second = Operator::management(&world.bed, binary(), "second-management", &[]).unwrap();
        second.wait_ready().await.unwrap();
        eventually("the pause is logged", || async {
            let log = std::fs::read_to_string(world.operators[0].process.log()).map_err(|e| e.to_string())?;
            if log.contains("clean-up is paused") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        assert!(get(&world.hub, "ResourceBinding", &hub, "lost-configmap").await.is_some());
        merge(&world.hub, "Namespace", "", &hub, pause(Value::Null)).await;
        eventually("the leftovers are deleted", || async {
            let companions = ["left", "elsewhere", "of-many", "unlabelled"].map(|name| ("ConfigMap", name));
            let bindings = ["lost-configmap", "lost-workloaddeployment"].map(|name| ("ResourceBinding", name));
            for (kind, name) in companions.into_iter().chain(bindings) {
                if get(&world.hub, kind, &hub, name).await.is_some() {
                    return Err(format!("{kind} {name}"));
                }
            }
            Ok(())
        })
        .await;
        never("something of others is touched, in two sweeps more", || async {
            for object in &foreign {
                let kind = object.types.as_ref().unwrap().kind.clone();
                let now = get(&world.hub, &kind, &hub, &object.name_any()).await;
                if now.as_ref().and_then(|now| now.resource_version()) != object.resource_version() {
                    return Some(format!("{kind} {}", object.name_any()));
                }
            }
            None
        })
        .await;
        // Once, by both managers and all sweeps together.
        let events = list(&world.hub, "Event", &hub).await;
        for name in ["corrupt", "empty"] {
            let kept = events
                .iter()
                .filter(|event| event.data["reason"] == "Unreadable" && event.data["regarding"]["name"] == name);
            assert_eq!(kept.count(), 1, "{name} is reported once");
        }
        let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.unwrap();
        assert_eq!(condition(&wd, "ReferencedDataReady")["reason"], "Ready");
        let copy = get(&world.dfw, "Secret", &hub, "db").await;
        assert_eq!(copy.and_then(|copy| copy.uid()), in_use, "objects in use are kept");
    });
}

#[test]
fn companion_and_copy_without_labels_are_relabelled_and_deleted_with_the_last_user() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("unlabelled").await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(&world, &ns, "web", 1).await;
        let in_use = get(&world.dfw, "Secret", &hub, "db").await.unwrap().uid();
        let label =
            |value: Value| json!({ "metadata": { "labels": { "compute.datumapis.com/referenced-data": value } } });
        for value in [Value::Null, json!("True")] {
            merge(&world.hub, "Secret", &hub, "db", label(value.clone())).await;
            eventually("the label is back, on the hub and on the cell", || async {
                for client in [&world.hub, &world.dfw] {
                    let copy = get(client, "Secret", &hub, "db").await.ok_or("gone")?;
                    let says = copy.labels().get("compute.datumapis.com/referenced-data").cloned();
                    if says.as_deref() != Some("true") {
                        return Err(format!("{says:?} after {value}"));
                    }
                }
                Ok(())
            })
            .await;
        }
        let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.unwrap();
        assert_ne!(condition(&wd, "ReferencedDataReady")["reason"], "SourceNameTaken");
        assert_eq!(get(&world.dfw, "Secret", &hub, "db").await.unwrap().uid(), in_use, "it is the same on the cell");

        // While no manager runs, the companion and the copy of its last user lose their labels. Then the user is deleted.
        world.operators[0].process.kill();
        merge(&world.hub, "Secret", &hub, "db", label(Value::Null)).await;
        let unlabelled = json!({ "metadata": { "labels": { "meta.datumapis.com/upstream-namespace": null } } });
        merge(&world.hub, "WorkloadDeployment", &hub, "web-p-dfw", unlabelled).await;
        api(&world.project, "Workload", &ns).delete("web", &DeleteParams::background()).await.unwrap();
        world.restart_manager(&[]).await;
        eventually("nothing is left", || left(&world, &ns, &hub)).await;
    });
}

#[test]
fn sweep_with_an_undeletable_binding_deletes_the_others() {
    const STUCK: &str = "a-configmap";
    const OTHERS: [&str; 2] = ["b-configmap", "c-secret"];
    RUNTIME.block_on(async {
        let world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("stuck").await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(&world, &ns, "web", 1).await;
        let unless = format!("oldObject.metadata.namespace != '{hub}' || oldObject.metadata.name != '{STUCK}'");
        let kind = ("work.karmada.io", "resourcebindings");
        let rule = Refusal { name: &ns, kind, operation: "DELETE", unless: &unless };
        // Until the rule is in force the binding is foreign, and no sweep touches it. By name it sorts first.
        apply(&world.hub, binding(&hub, STUCK, "their-policy")).await;
        let bindings = api(&world.hub, "ResourceBinding", &hub);
        let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
        rule.begin_with(&world.hub, || async { bindings.delete(STUCK, &dry).await.map(drop) }).await;
        for name in [STUCK].iter().chain(&OTHERS) {
            apply(&world.hub, binding(&hub, name, "city-dfw")).await;
        }
        eventually("the others are deleted, and the stuck one is counted and logged", || async {
            for name in OTHERS {
                if get(&world.hub, "ResourceBinding", &hub, name).await.is_some() {
                    return Err(format!("{name} is there"));
                }
            }
            let metrics = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let failed =
                |line: &&str| line.starts_with("controller_runtime_reconcile_errors_total{controller=\"sweep\"");
            let counted = metrics.lines().any(|line| failed(&line))
                && metrics.contains("compute_federation_bindings_reaped_total 2\n");
            let log = std::fs::read_to_string(world.operators[0].process.log()).map_err(|e| e.to_string())?;
            let tells = |line: &str| {
                ["cannot be deleted", STUCK, "not while the rule stands"].iter().all(|part| line.contains(part))
            };
            if counted && log.lines().any(tells) { Ok(()) } else { Err(metrics) }
        })
        .await;
        assert!(get(&world.hub, "ResourceBinding", &hub, STUCK).await.is_some());
        rule.end(&world.hub).await;
        eventually("it is deleted once the rule ends", || async {
            get(&world.hub, "ResourceBinding", &hub, STUCK).await.map_or(Ok(()), |_| Err("still there".to_owned()))
        })
        .await;
    });
}
