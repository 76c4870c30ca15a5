//! Failures: unavailable servers, killed managers, silent watches, undecodable objects. Each test has its own bed, because a
//! failure affects everything on it.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::common::{
    RUNTIME, World, apply,
    beds::{Lent, Wish, alone},
    binary, condition, delete, deployment, eventually, get, list, merge, promised, ready, rights, skip, template,
    workload,
};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::json;
use testbed::{
    control_plane::free_port,
    operator::Operator,
    pki::{User, kubeconfig},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

async fn world() -> Lent<World> {
    alone(Wish::default()).await
}

#[test]
fn managers_killed_during_a_rollout_finish_it_after_restart() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        let (ns, hub) = world.namespace("killed").await;
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 3)).await;
        for round in 0_u64..6 {
            // Each round kills at another moment.
            tokio::time::sleep(Duration::from_millis(30 + 70 * round)).await;
            for operator in &mut world.operators {
                operator.process.kill();
            }
            if round == 3 {
                let mut object = workload(&ns, "web", &["dfw", "ord"], 3);
                object["spec"]["template"] = template("docker.io/library/nginx:2");
                apply(&world.project, object).await;
            }
            let mut operators = vec![Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap()];
            for city in ["dfw", "ord"] {
                operators.push(Operator::cell(&world.bed, binary(), city, &[]).unwrap());
            }
            world.operators = operators;
        }
        ready(&world, &ns, "web", 6).await;
        for (city, cell) in [("dfw", &world.dfw), ("ord", &world.ord)] {
            let instances = list(cell, "Instance", &hub).await;
            let names: BTreeSet<_> = instances.iter().map(|i| i.name_any()).collect();
            assert_eq!(names, (0..3).map(|n| format!("web-p-{city}-{n}")).collect(), "none twice, none missing");
            assert!(
                instances
                    .iter()
                    .all(|i| i.data["spec"]["runtime"]["sandbox"]["containers"][0]["image"]
                        == "docker.io/library/nginx:2")
            );
        }
        delete(&world.project, "Workload", &ns, "web").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.operators[0].process.kill();
        // Residue of a manager that died at the worst moment: a policy without a deployment, and a copy without an original.
        let city = json!({ "topology.datum.net/city-code": "lhr", "meta.datumapis.com/upstream-namespace": ns });
        let mut ghost = deployment(&hub, "ghost", "lhr");
        ghost["metadata"]["labels"] = city;
        apply(&world.hub, ghost).await;
        let policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "name": "city-syd", "namespace": hub, "labels": { "app.kubernetes.io/managed-by": "compute-operator" } },
            "spec": { "resourceSelectors": [{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment" }] },
        });
        apply(&world.hub, policy).await;
        world.operators[0] = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Waits until `/readyz` fails with these words.
async fn waits_for(operator: &Operator, words: &[&str]) {
    eventually(&format!("readiness reports {words:?}"), || async {
        match operator.probe("/readyz").await {
            Ok((503, body)) if words.iter().all(|word| body.contains(word)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[test]
fn start_up_obstacles_are_reported_by_readiness_without_a_crash() {
    RUNTIME.block_on(async {
        let world = world().await;
        let dir = world.bed.dir().to_path_buf();
        let start = |name: &str, project: PathBuf, hub: PathBuf| {
            let flags =
                [format!("--kubeconfig={}", project.display()), format!("--federation-kubeconfig={}", hub.display())];
            // The helper would add flags of the same name, and the operator refuses duplicates.
            Operator::with_flags(&dir, binary(), name, &["--enable-management-controllers", &flags[0], &flags[1]])
                .unwrap()
        };
        let project = || world.bed.project.kubeconfig(&User::Operator);
        let hub = || world.bed.hub.kubeconfig(&User::Operator);

        // The hub is unreachable.
        let port = free_port().unwrap();
        let nowhere = kubeconfig(&dir, "nowhere", port, &User::Operator).unwrap();
        let operator = start("unreachable", project(), nowhere);
        waits_for(&operator, &["propagationpolicies in hub", "refused"]).await;

        // A permission is missing. Readiness names verb, resource and control plane.
        let operator = start("forbidden", hub(), hub());
        waits_for(
            &operator,
            &["list workloads.compute.datumapis.com in project single", "forbidden", "cannot list resource"],
        )
        .await;

        let flags = ["--enable-cell-controllers", "--leader-elect", "--leader-elect-namespace=default"];
        let kubeconfig_flag =
            format!("--kubeconfig={}", world.bed.cell("dfw").unwrap().kubeconfig(&User::Operator).display());
        let operator =
            Operator::with_flags(&dir, binary(), "no-lease", &[flags[0], flags[1], flags[2], &kubeconfig_flag])
                .unwrap();
        waits_for(&operator, &["Lease default/", "cannot get resource \"leases\""]).await;

        // The token is invalid or expired.
        let text = std::fs::read_to_string(hub()).unwrap().replace(&*User::Operator.token(), "expired");
        let expired = dir.join("expired.kubeconfig");
        std::fs::write(&expired, text).unwrap();
        let operator = start("expired", project(), expired);
        waits_for(&operator, &["list workloaddeployments.compute.datumapis.com in hub", "Unauthorized"]).await;

        // A definition is installed late.
        let name = "locationbindings.networking.datumapis.com";
        delete(&world.project, "CustomResourceDefinition", "", name).await;
        eventually("the definition is deleted", || async {
            match get(&world.project, "CustomResourceDefinition", "", name).await {
                None => Ok(()),
                Some(_) => Err("still there".into()),
            }
        })
        .await;
        let mut operator = start("no-crd", project(), hub());
        waits_for(&operator, &["CRD locationbindings.networking.datumapis.com is not installed in project single"])
            .await;
        assert_eq!(operator.probe("/healthz").await.unwrap().0, 200);
        let text = std::fs::read_to_string(crate::common::path("e2e/testbed/crds/neighbours.yaml")).unwrap();
        testbed::manifests::apply(&world.project, &text).await.unwrap();
        for city in ["dfw", "ord"] {
            testbed::eventually("location", || testbed::bed::bind_location(&world.project, city)).await.unwrap();
        }
        operator.wait_ready().await.unwrap();
        assert_eq!(operator.process.stop(promised(Duration::from_secs(10))).await, 0);
    });
}

/// Starts a proxy in front of an API server. While `deaf` is set, existing connections hang without an error.
pub(crate) async fn proxy(to: u16, deaf: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let Ok((mut client, _)) = listener.accept().await else { return };
            let born_deaf = deaf.load(Ordering::SeqCst);
            let deaf = deaf.clone();
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                if born_deaf {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                    return;
                }
                let (mut cr, mut cw) = client.split();
                let (mut sr, mut sw) = server.split();
                let carry = async |from: &mut (dyn tokio::io::AsyncRead + Unpin + Send),
                                   to: &mut (dyn tokio::io::AsyncWrite + Unpin + Send)| {
                    let mut buffer = vec![0; 16 * 1024];
                    while let Ok(n @ 1..) = from.read(&mut buffer).await {
                        if deaf.load(Ordering::SeqCst) {
                            std::future::pending::<()>().await;
                        }
                        if to.write_all(&buffer[..n]).await.is_err() {
                            return;
                        }
                    }
                };
                tokio::select! { () = carry(&mut cr, &mut sw) => {} () = carry(&mut sr, &mut cw) => {} }
            });
        }
    });
    port
}

/// Seconds of silence after which a watch counts as dead in these tests.
const SILENCE: u64 = 10;

#[test]
fn silent_watch_is_replaced_and_delays_no_other() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        world.operators[0].process.kill();
        let deaf = Arc::new(AtomicBool::new(false));
        let port = proxy(world.bed.hub.port(), deaf.clone()).await;
        let hub_file = kubeconfig(world.bed.dir(), "proxied-hub", port, &User::Operator).unwrap();
        let flags = [
            format!("--kubeconfig={}", world.bed.project.kubeconfig(&User::Operator).display()),
            format!("--federation-kubeconfig={}", hub_file.display()),
        ];
        let mut operator = Operator::with_config(
            world.bed.dir(),
            binary(),
            "proxied",
            &format!("timing:\n  hubWatchLifetimeSeconds: {}\n", SILENCE - 2),
            &["--enable-management-controllers", &flags[0], &flags[1]],
        )
        .unwrap();
        operator.wait_ready().await.unwrap();
        let (ns, hub) = world.namespace("silent").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;

        deaf.store(true, Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        // The watches of the project are healthy. A change there is handled at once, over a new connection to the hub.
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        let copied = || async {
            let copy = get(&world.hub, "WorkloadDeployment", &hub, "web-p-dfw").await.ok_or("gone")?;
            let replicas = &copy.data["spec"]["scaleSettings"]["minReplicas"];
            if *replicas == 2 { Ok(()) } else { Err(replicas.to_string()) }
        };
        eventually("the copy is changed", copied).await;
        assert!(
            began.elapsed() < promised(Duration::from_secs(SILENCE + 10)),
            "no other watch waits for the silent one: {:?}",
            began.elapsed()
        );
        // Changes on the hub arrive after the silent watch is replaced.
        ready(&world, &ns, "web", 2).await;
        assert!(began.elapsed() < promised(Duration::from_secs(SILENCE + 15)), "{:?}", began.elapsed());
        let text = operator.metrics().await.unwrap();
        assert!(
            text.contains("compute_watch_replaced_total{plane=\"hub\",resource=\"workloaddeployments\"}"),
            "{text}"
        );
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        let mut again = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        again.wait_ready().await.unwrap();
        world.operators[0] = again;
    });
}

/// The object is written while the definition is loose, as an older version of it may have been.
#[test]
fn undecodable_deployment_is_reported_and_affects_no_other() {
    RUNTIME.block_on(async {
        let world = world().await;
        let (ns, hub) = world.namespace("undecodable").await;
        apply(&world.project, deployment(&ns, "bad", "dfw")).await;
        eventually("it is federated", || async {
            get(&world.dfw, "WorkloadDeployment", &hub, "bad").await.map(|_| ()).ok_or("not yet".into())
        })
        .await;
        let strict =
            std::fs::read_to_string(crate::common::path("crds/compute.datumapis.com_workloaddeployments.yaml"))
                .unwrap();
        let mut loose = testbed::manifests::documents(&strict).unwrap().remove(0);
        loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        // They must name fields of the schema.
        loose["spec"]["versions"][0].as_object_mut().unwrap().remove("selectableFields");
        testbed::manifests::apply_value(&world.project, loose).await.unwrap();
        let garble = json!({ "spec": { "scaleSettings": "many" } });
        eventually("it is garbled", || async {
            let api = crate::common::api(&world.project, "WorkloadDeployment", &ns);
            let patch = kube::api::Patch::Merge(&garble);
            api.patch("bad", &kube::api::PatchParams::default(), &patch).await.map(|_| ()).map_err(|e| e.to_string())
        })
        .await;
        eventually("it is reported", || async {
            let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            if text.contains("compute_undecodable_objects_total{kind=\"WorkloadDeployment\"}") {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
        let log = std::fs::read_to_string(world.operators[0].process.log()).unwrap();
        assert!(
            log.lines().any(|l| l.contains("object cannot be read") && l.contains(&format!("{ns}/bad"))),
            "by name"
        );
        eventually("it is reported on the object", || async {
            let events = list(&world.project, "Event", &ns).await;
            let of = |event: &&DynamicObject| {
                event.data["reason"] == "Unreadable" && event.data["regarding"]["name"] == "bad"
            };
            let notes: Vec<_> = events.iter().filter(of).map(|event| event.data["note"].to_string()).collect();
            if notes.len() == 1 && notes[0].contains("invalid type") { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
        apply(&world.project, workload(&ns, "good", &["dfw"], 1)).await;
        ready(&world, &ns, "good", 1).await;
        assert!(get(&world.hub, "WorkloadDeployment", &hub, "bad").await.is_some(), "unknown is not absent");
        // After the repair, the deployment is reconciled again.
        merge(&world.project, "WorkloadDeployment", &ns, "bad", json!({ "spec": { "scaleSettings": null } })).await;
        merge(
            &world.project,
            "WorkloadDeployment",
            &ns,
            "bad",
            json!({ "spec": { "scaleSettings": { "minReplicas": 2 } } }),
        )
        .await;
        eventually("it is mended", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, "bad").await.ok_or("gone")?;
            if wd.data["status"]["readyReplicas"] == 2 { Ok(()) } else { Err(condition(&wd, "Available").to_string()) }
        })
        .await;
        testbed::manifests::apply(&world.project, &strict).await.unwrap();
        delete(&world.project, "WorkloadDeployment", &ns, "bad").await;
        delete(&world.project, "Workload", &ns, "good").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn undecodable_policy_is_reported_and_kept() {
    RUNTIME.block_on(async {
        let world = world().await;
        if world.bed.stand_in().is_none() {
            skip!("real Karmada's definition takes no policy that this operator could not read");
        }
        let (ns, hub) = world.namespace("unread").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        merge(&world.hub, "PropagationPolicy", &hub, "city-dfw", json!({ "spec": { "propagateDeps": "often" } })).await;
        eventually("it is reported on the policy", || async {
            let events = list(&world.hub, "Event", &hub).await;
            let of = |event: &&DynamicObject| {
                event.data["reason"] == "Unreadable" && event.data["regarding"]["name"] == "city-dfw"
            };
            let notes: Vec<_> = events.iter().filter(of).map(|event| event.data["note"].to_string()).collect();
            if notes.len() == 1 && notes[0].contains("invalid type") { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
        // Even its last deployment does not remove the policy, because its purpose is unknown.
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("the copy is deleted", || async {
            get(&world.hub, "WorkloadDeployment", &hub, "web-p-dfw").await.map_or(Ok(()), |_| Err("there".to_owned()))
        })
        .await;
        assert!(get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await.is_some());
        merge(&world.hub, "PropagationPolicy", &hub, "city-dfw", json!({ "spec": { "propagateDeps": true } })).await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        rights::shown(&world, world.since(), "undecodable_policy_is_reported_and_kept");
    });
}
