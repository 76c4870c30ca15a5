//! Two cells that were given no name claim quota in one project: each claim is made once, and by nobody's hand but its
//! own cell's is it given up.

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

/// The operator on a cell, with quota and with this `discovery.clusterName`, or without any.
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

/// A bed whose cells have no names.
async fn world() -> Lent<World> {
    let mut world = alone(Wish { networks_and_quota: true, ..Wish::default() }).await;
    restart_cells(&mut world, [None, None]).await;
    world
}

/// Kills the operators of the cells, and starts them with these names, or without.
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

/// How often each claim was asked for since the mark, refused attempts included, and how often it was deleted. A delete is
/// refused when the claim's status has changed since it was judged, and is ordinary.
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

/// Exactly these calls, once each.
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
fn cells_without_names_leave_each_others_claims_alone() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        let uids = [cell_uid(&world.dfw).await, cell_uid(&world.ord).await];
        let all = ["web-p-dfw-0", "web-p-dfw-1", "web-p-ord-0", "web-p-ord-1"];
        // Several namespaces, as what is new to a cell (namespace, watch of the project) is what makes it ask twice.
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

        // Both start anew: what is claimed stays claimed, also what nobody here can tell the owner of.
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
        // One of this cell's own whose Instance is gone is found, which shows that claims are looked at again.
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

        // Each gives up its own when its Instances go.
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

/// A cell that was given a name did not see the claims that it had made before: it asked for each again at every look, gave
/// none up for minutes, and never one that was left behind.
#[test]
fn cells_that_are_given_names_keep_to_their_claims_from_before() {
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

/// The member that holds the claim of `held-p-dfw-0`, and shows what nobody has any more, dies, and is called dead.
async fn the_holder_dies(world: &mut World, ns: &str, hub: &str, member: &str) {
    // What the member has shown, and the city's new cell has not: it may still run it, though it says nothing.
    let silent = world.of_cell("ord");
    world.operators[silent].process.kill();
    let mut left = serde_json::to_value(get(&world.hub, "Instance", hub, "web-p-dfw-0").await.unwrap()).unwrap();
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "annotations"] {
        left["metadata"].as_object_mut().unwrap().remove(field);
    }
    left["metadata"]["name"] = json!("web-p-dfw-9");
    left["metadata"]["labels"][UID] = json!(member);
    apply(&world.hub, left).await;
    never("it goes", || async { get(&world.hub, "Instance", hub, "web-p-dfw-9").await.is_none().then_some("gone") })
        .await;
    // Its Cluster stays; somebody says that the cell is dead, and nobody waits for it any more.
    let given_up = json!({ "metadata": { "annotations": { "compute.datumapis.com/drain": "dead" } } });
    merge(&world.hub, "Cluster", "", "cell-ord", given_up).await;
    ready(world, ns, "held", 1).await;
    eventually("what the dead cell has shown goes", || async {
        let copy = get(&world.hub, "Instance", hub, "web-p-dfw-9").await;
        copy.map_or(Ok(()), |copy| Err(format!("{:?}", copy.labels())))
    })
    .await;
}

#[test]
fn a_claim_of_a_cell_that_is_no_member_any_more_keeps_nobody_waiting() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { networks_and_quota: true, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("dead").await;
        let labels = |uid: &str, cluster: &str| {
            json!({
                "compute.datumapis.com/source-cluster": cluster, "compute.datumapis.com/instance-namespace": hub, UID: uid,
            })
        };
        // One of a cell that the city has left and that is no member any more; one of a member, which may still run it.
        let member = cell_uid(&world.ord).await;
        apply(&world.project, claim(&ns, "instance-web-p-dfw-0", &labels("gone-for-good", "cell-former"))).await;
        apply(&world.project, claim(&ns, "instance-held-p-dfw-0", &labels(&member, "cell-ord"))).await;
        let mark = Audit::mark(&world.bed.project);
        for name in ["web", "held"] {
            apply(&world.project, workload(&ns, name, &["dfw"], 1)).await;
        }
        // Nobody has taken a copy from whoever holds these: they may be another hub's.
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
        // As management leaves the copies of a cell that it has handed over.
        for (name, former) in [("web-p-dfw-0", "gone-for-good"), ("held-p-dfw-0", &member[..])] {
            let note = json!({ "metadata": { "annotations": { "compute.datumapis.com/former-cell": former } } });
            merge(&world.hub, "Instance", &hub, name, note).await;
        }
        ready(&world, &ns, "web", 1).await;
        let copy = get(&world.hub, "Instance", &hub, "web-p-dfw-0").await.unwrap();
        assert!(!copy.annotations().contains_key("compute.datumapis.com/former-cell"), "it is done once");
        eventually("it is told", || async {
            let events = list(&world.project, "Event", &ns).await;
            let told = events.iter().filter(|event| event.data["reason"] == "ClaimFreed").count();
            if told == 1 { Ok(()) } else { Err(format!("{told} events")) }
        })
        .await;
        let freed = get(&world.project, "ResourceClaim", &ns, "instance-web-p-dfw-0").await.unwrap();
        assert_eq!(freed.labels()[UID], cell_uid(&world.dfw).await);
        // The first attempt of each is refused, as the name is taken; from then on the claim is read.
        let mut wanted = once(&ns, "create", &["web-p-dfw-0", "held-p-dfw-0"]);
        wanted.extend(once(&ns, "delete", &["web-p-dfw-0"]));
        *wanted.get_mut(&(ns.clone(), "instance-web-p-dfw-0".into(), "create".into())).unwrap() += 1;
        eventually("the other waits, and says for whom", || async {
            let shown = get(&world.project, "Instance", &ns, "held-p-dfw-0").await.ok_or("not shown")?;
            let said = condition(&shown, "QuotaGranted");
            let right = said["reason"] == "QuotaClaimHeld" && said["message"].to_string().contains("cell-ord");
            if right { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
        let mut made = calls(&mark);
        made.retain(|(namespace, ..), _| *namespace == ns);
        // The claims that this test has made itself are patches.
        assert_eq!(made, wanted, "each once");
        rights::shown(&world, world.since(), "a_claim_of_a_cell_that_is_no_member_any_more_keeps_nobody_waiting");
        the_holder_dies(&mut world, &ns, &hub, &member).await;
    });
}
