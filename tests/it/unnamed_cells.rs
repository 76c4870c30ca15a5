//! Two cells without names claim quota in one project. Each claim is created once, and only its own cell deletes it.

use std::collections::BTreeMap;

use crate::common::{
    RUNTIME, World, apply,
    beds::{Lent, Wish, alone},
    binary, condition, delete, eventually, get, list, merge, never, ready, rights, workload,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use testbed::{Testbed, audit::Audit, neighbours::grant, operator::Operator, pki::User};

const UID: &str = "compute.datumapis.com/cell-uid";

/// Starts the operator of a cell, with quota and with or without `discovery.clusterName`.
fn cell_named(bed: &Testbed, city: &str, name: Option<&str>) -> Operator {
    let quota = bed.milo.as_ref().unwrap().kubeconfig(&User::Quota);
    let name = name.map(|name| format!("  clusterName: {name}\n")).unwrap_or_default();
    let config = format!("discovery:\n  quotaKubeconfigPath: {}\n{name}", quota.display());
    let flags = [
        format!("--kubeconfig={}", bed.cell(city).unwrap().kubeconfig(&User::Operator).display()),
        format!("--federation-kubeconfig={}", bed.hub.kubeconfig(&User::Cell(city.into())).display()),
        "--enable-cell-controllers=true".to_owned(),
        "--feature-gates=NetworkingIntegration=true".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Operator::with_config(bed.dir(), binary(), &format!("operator-{city}"), &config, &flags).unwrap()
}

/// Returns a bed with unnamed cells.
async fn world() -> Lent<World> {
    let mut world = alone(Wish { networks_and_quota: true, ..Wish::default() }).await;
    restart_cells(&mut world, [None, None]).await;
    world
}

/// Restarts the operators of the cells with or without these names.
async fn restart_cells(world: &mut World, names: [Option<&str>; 2]) {
    for (city, name) in ["dfw", "ord"].into_iter().zip(names) {
        let place = world.of_cell(city);
        world.operators[place].process.kill();
        world.operators[place] = cell_named(&world.bed, city, name);
    }
    for operator in &mut world.operators {
        operator.wait_ready().await.unwrap();
    }
}

async fn cell_uid(cell: &Client) -> String {
    get(cell, "Namespace", "", "kube-system").await.unwrap().uid().unwrap()
}

/// Returns how often each claim was created (with refused attempts) and deleted since the mark. A delete with an outdated
/// precondition is refused. That is normal and does not count.
fn calls(mark: &Audit) -> BTreeMap<(String, String, String), usize> {
    let mut calls = BTreeMap::new();
    for request in mark.requests().unwrap() {
        let counts = match request.verb.as_str() {
            "create" => true,
            "delete" => request.code == 200,
            _ => false,
        };
        if request.resource == "resourceclaims" && counts {
            *calls.entry((request.namespace, request.name, request.verb)).or_default() += 1;
        }
    }
    calls
}

/// Returns exactly these calls, once each.
fn once(namespace: &str, verb: &str, instances: &[&str]) -> BTreeMap<(String, String, String), usize> {
    let call = |name: &&str| ((namespace.to_owned(), format!("instance-{name}"), verb.to_owned()), 1);
    instances.iter().map(call).collect()
}

fn claim(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "quota.miloapis.com/v1alpha1", "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": { "consumerRef": { "kind": "Project", "name": "single" }, "requests": [] },
    })
}

#[test]
fn unnamed_cells_keep_each_others_claims() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        let uids = [cell_uid(&world.dfw).await, cell_uid(&world.ord).await];
        let all = ["web-p-dfw-0", "web-p-dfw-1", "web-p-ord-0", "web-p-ord-1"];
        // Several namespaces, because a cell might claim twice when namespace and watch of the project are new to it.
        let mut places = Vec::new();
        for _ in 0..3 {
            let (ns, hub) = world.namespace("claims").await;
            apply(&world.project, grant(&ns, 9)).await;
            let mark = Audit::mark(&world.bed.project);
            apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 2)).await;
            ready(&world, &ns, "web", 4).await;
            assert_eq!(calls(&mark), once(&ns, "create", &all), "each claim is asked for once, and none is given up");
            for claim in list(&world.project, "ResourceClaim", &ns).await {
                let cell = usize::from(claim.name_any().contains("-ord-"));
                assert_eq!(claim.labels()[UID], uids[cell], "{}", claim.name_any());
                assert_eq!(claim.labels()["compute.datumapis.com/source-cluster"], "single");
            }
            eventually("the tenant sees the Instances of both cells", || async {
                let seen = list(&world.project, "Instance", &ns).await.len();
                if seen == all.len() { Ok(()) } else { Err(seen.to_string()) }
            })
            .await;
            places.push((ns, hub));
        }
        let (ns, hub) = places.pop().unwrap();

        // Both cells restart. All claims stay, even those with an owner that this cell does not know.
        let mark = Audit::mark(&world.bed.project);
        let labels = |uid: Option<&str>| {
            let mut labels = json!({
                "compute.datumapis.com/source-cluster": "single", "compute.datumapis.com/instance-namespace": hub,
            });
            if let Some(uid) = uid {
                labels[UID] = json!(uid);
            }
            labels
        };
        apply(&world.project, claim(&ns, "instance-go-0", &labels(None))).await;
        apply(&world.project, claim(&ns, "instance-elsewhere-0", &labels(Some("another")))).await;
        restart_cells(&mut world, [None, None]).await;
        // A claim of this cell without an Instance is deleted, which shows that claims are checked again.
        apply(&world.project, claim(&ns, "instance-ghost-0", &labels(Some(&uids[0])))).await;
        eventually("the ghost is released", || async {
            let left = get(&world.project, "ResourceClaim", &ns, "instance-ghost-0").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 3)).await;
        ready(&world, &ns, "web", 6).await;
        let mut wanted = once(&ns, "create", &["web-p-dfw-2", "web-p-ord-2"]);
        wanted.extend(once(&ns, "delete", &["ghost-0"]));
        assert_eq!(calls(&mark), wanted);

        // Each cell deletes its own claims with its Instances.
        let mark = Audit::mark(&world.bed.project);
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("the claims of the Instances are gone", || async {
            let left: Vec<_> = list(&world.project, "ResourceClaim", &ns).await.iter().map(|c| c.name_any()).collect();
            if left == ["instance-elsewhere-0", "instance-go-0"] { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        let ended = once(&ns, "delete", &[&all[..], &["web-p-dfw-2", "web-p-ord-2"]].concat());
        assert_eq!(calls(&mark), ended);
    });
}

/// A cell that got a name no longer saw its earlier claims. It created each of them again at every reconcile, released none for
/// minutes, and never released a leftover one.
#[test]
fn cells_with_new_names_keep_their_earlier_claims() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        let uid = cell_uid(&world.dfw).await;
        let (ns, hub) = world.namespace("named").await;
        apply(&world.project, grant(&ns, 9)).await;
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 1)).await;
        ready(&world, &ns, "web", 2).await;
        let labels = json!({
            "compute.datumapis.com/source-cluster": "single", "compute.datumapis.com/instance-namespace": hub, UID: uid,
        });
        let mark = Audit::mark(&world.bed.project);
        restart_cells(&mut world, [Some("dfw-1"), Some("ord-1")]).await;
        apply(&world.project, claim(&ns, "instance-ghost-0", &labels)).await;
        eventually("the ghost is released", || async {
            let left = get(&world.project, "ResourceClaim", &ns, "instance-ghost-0").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        assert_eq!(calls(&mark), once(&ns, "delete", &["ghost-0"]), "nothing is asked for again");
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 2)).await;
        ready(&world, &ns, "web", 4).await;
        let made = get(&world.project, "ResourceClaim", &ns, "instance-web-p-dfw-1").await.unwrap();
        assert_eq!(made.labels()["compute.datumapis.com/source-cluster"], "dfw-1");
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("all claims are gone", || async {
            let left: Vec<_> = list(&world.project, "ResourceClaim", &ns).await.iter().map(|c| c.name_any()).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        let mut wanted = once(&ns, "create", &["web-p-dfw-1", "web-p-ord-1"]);
        wanted.extend(once(&ns, "delete", &["ghost-0", "web-p-dfw-0", "web-p-ord-0", "web-p-dfw-1", "web-p-ord-1"]));
        assert_eq!(calls(&mark), wanted);
    });
}

/// Declares the member dead that holds the claim of `held-p-dfw-0` and shows an Instance that no cell has.
async fn the_holder_dies(world: &mut World, ns: &str, hub: &str, member: &str) {
    // Only the silent member has shown this Instance. It may still run there.
    let silent = world.of_cell("ord");
    world.operators[silent].process.kill();
    let mut left = serde_json::to_value(get(&world.hub, "Instance", hub, "web-p-dfw-0").await.unwrap()).unwrap();
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "annotations"] {
        left["metadata"].as_object_mut().unwrap().remove(field);
    }
    left["metadata"]["name"] = json!("web-p-dfw-9");
    left["metadata"]["labels"][UID] = json!(member);
    apply(&world.hub, left).await;
    never("the copy is deleted", || async {
        get(&world.hub, "Instance", hub, "web-p-dfw-9").await.is_none().then_some("gone")
    })
    .await;
    // The Cluster stays. An administrator declares the cell dead, and the operator no longer waits for it.
    let given_up = json!({ "metadata": { "annotations": { "compute.datumapis.com/drain": "dead" } } });
    merge(&world.hub, "Cluster", "", "cell-ord", given_up).await;
    ready(world, ns, "held", 1).await;
    eventually("the copy of the dead cell is deleted", || async {
        let copy = get(&world.hub, "Instance", hub, "web-p-dfw-9").await;
        copy.map_or(Ok(()), |copy| Err(format!("{:?}", copy.labels())))
    })
    .await;
}

#[test]
fn claim_of_a_removed_member_is_freed_after_the_hand_over() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { networks_and_quota: true, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("dead").await;
        let labels = |uid: &str, cluster: &str| {
            json!({
                "compute.datumapis.com/source-cluster": cluster, "compute.datumapis.com/instance-namespace": hub, UID: uid,
            })
        };
        // One claim belongs to a cell that is no longer a member, and one to a member that may still run the Instance.
        let member = cell_uid(&world.ord).await;
        apply(&world.project, claim(&ns, "instance-web-p-dfw-0", &labels("gone-for-good", "cell-former"))).await;
        apply(&world.project, claim(&ns, "instance-held-p-dfw-0", &labels(&member, "cell-ord"))).await;
        let mark = Audit::mark(&world.bed.project);
        for name in ["web", "held"] {
            apply(&world.project, workload(&ns, name, &["dfw"], 1)).await;
        }
        // No copy was taken over from the holders of these claims. They may belong to another hub.
        eventually("both wait", || async {
            for name in ["web-p-dfw-0", "held-p-dfw-0"] {
                let copy = get(&world.hub, "Instance", &hub, name).await.ok_or("no copy")?;
                let said = condition(&copy, "QuotaGranted");
                if said["reason"] != "QuotaClaimHeld" {
                    return Err(said.to_string());
                }
            }
            Ok(())
        })
        .await;
        let untouched = || async {
            let claim = get(&world.project, "ResourceClaim", &ns, "instance-web-p-dfw-0").await;
            claim.is_none_or(|claim| claim.labels()[UID] != "gone-for-good").then_some("freed")
        };
        never("it is freed", untouched).await;
        // Management marks the copies of a cell like this when it hands them over.
        for (name, former) in [("web-p-dfw-0", "gone-for-good"), ("held-p-dfw-0", &member[..])] {
            let note = json!({ "metadata": { "annotations": { "compute.datumapis.com/former-cell": former } } });
            merge(&world.hub, "Instance", &hub, name, note).await;
        }
        ready(&world, &ns, "web", 1).await;
        let copy = get(&world.hub, "Instance", &hub, "web-p-dfw-0").await.unwrap();
        assert!(!copy.annotations().contains_key("compute.datumapis.com/former-cell"), "it is done once");
        eventually("it is reported", || async {
            let events = list(&world.project, "Event", &ns).await;
            let told = events.iter().filter(|event| event.data["reason"] == "ClaimFreed").count();
            if told == 1 { Ok(()) } else { Err(format!("{told} Events")) }
        })
        .await;
        let freed = get(&world.project, "ResourceClaim", &ns, "instance-web-p-dfw-0").await.unwrap();
        assert_eq!(freed.labels()[UID], cell_uid(&world.dfw).await);
        // The first creation of each is refused, because the name is taken. Afterwards the cell reads the claim.
        let mut wanted = once(&ns, "create", &["web-p-dfw-0", "held-p-dfw-0"]);
        wanted.extend(once(&ns, "delete", &["web-p-dfw-0"]));
        *wanted.get_mut(&(ns.clone(), "instance-web-p-dfw-0".into(), "create".into())).unwrap() += 1;
        eventually("the other Instance waits, and names the holder", || async {
            let shown = get(&world.project, "Instance", &ns, "held-p-dfw-0").await.ok_or("not shown")?;
            let said = condition(&shown, "QuotaGranted");
            let right = said["reason"] == "QuotaClaimHeld" && said["message"].to_string().contains("cell-ord");
            if right { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
        let mut made = calls(&mark);
        made.retain(|(namespace, ..), _| *namespace == ns);
        // The test creates its own claims by patch.
        assert_eq!(made, wanted, "each once");
        rights::shown(&world, world.since(), "claim_of_a_removed_member_is_freed_after_the_hand_over");
        the_holder_dies(&mut world, &ns, &hub, &member).await;
    });
}
