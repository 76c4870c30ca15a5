//! The requests that a deployment costs, and the absence of requests in a steady state.

use super::*;

/// Returns the requests in the test's own namespaces, because other tests run at the same time. (`projects` counts requests over
/// all namespaces.)
pub fn ours(audit: &Audit, namespaces: &[&str]) -> Vec<Request> {
    let ours = |r: &Request| namespaces.contains(&r.namespace.as_str()) || namespaces.contains(&r.name.as_str());
    audit.requests().unwrap().into_iter().filter(ours).collect()
}

#[test]
fn deployment_creation_costs_the_fewest_writes() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("cost").await;
        let counted = [ns.as_str(), hub.as_str()];
        // The cell of this city claims no quota: a claim is a cost of the Instance. The first deployment of a namespace and city
        // also creates both. The second one shows its own cost.
        apply(&world.project, workload(&ns, "first", &["ord"], 1)).await;
        ready(world, &ns, "first", 1).await;
        let (project, on_hub) = (Audit::mark(&world.bed.project), Audit::mark(&world.bed.hub));
        apply(&world.project, deployment(&ns, "bare", "ord")).await;
        let mirrored = |name: &'static str| {
            let ns = ns.clone();
            async move {
                eventually("its status is back", || async {
                    let wd = get(&world.project, "WorkloadDeployment", &ns, name).await.ok_or("no deployment")?;
                    if wd.data["status"]["readyReplicas"] == 1 { Ok(()) } else { Err(wd.data["status"].to_string()) }
                })
                .await;
            }
        };
        mirrored("bare").await;
        let spec_writes = |requests: Vec<Request>| -> Vec<String> {
            // Instances come and go independently. Only the cost of the deployment counts.
            let counts = |r: &Request| {
                let by_itself = r.resource == "instances" || r.resource.ends_with("/status");
                // On a busy machine, Events report slow steps.
                !["get", "list"].contains(&r.verb.as_str()) && !by_itself && r.resource != "events"
            };
            let writes = requests.into_iter().filter(counts);
            writes.map(|r| format!("{} {} {}", r.verb, r.resource, r.name)).collect()
        };
        assert_eq!(
            spec_writes(ours(&project, &counted)),
            ["patch workloaddeployments bare"],
            "finalizer and namespace in one"
        );
        assert_eq!(spec_writes(ours(&on_hub, &counted)), ["patch workloaddeployments bare"], "the copy");

        let (project, on_hub) = (Audit::mark(&world.bed.project), Audit::mark(&world.bed.hub));
        apply(&world.project, workload(&ns, "second", &["ord"], 1)).await;
        mirrored("second-p-ord").await;
        let made = spec_writes(ours(&project, &counted));
        assert_eq!(
            made,
            ["patch workloads second", "patch workloaddeployments second-p-ord"],
            "created with its stamp"
        );
        assert_eq!(spec_writes(ours(&on_hub, &counted)), ["patch workloaddeployments second-p-ord"], "one more");
    });
}

#[test]
fn steady_state_makes_no_requests() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("quiet").await;
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 2)).await;
        ready(world, &ns, "web", 4).await;
        let planes: Vec<_> = [&world.bed.project, &world.bed.hub].into_iter().chain(world.bed.cells.values()).collect();
        // The steady state begins after a second without a request in these namespaces.
        let counted = [ns.as_str(), hub.as_str()];
        eventually("quiet begins", || async {
            let marks: Vec<_> = planes.iter().map(|plane| Audit::mark(plane)).collect();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let asked: usize = marks.iter().map(|mark| ours(mark, &counted).len()).sum();
            if asked == 0 { Ok(()) } else { Err(format!("{asked} requests")) }
        })
        .await;
        let marks: Vec<_> = planes.iter().map(|plane| Audit::mark(plane)).collect();
        tokio::time::sleep(Duration::from_secs(30)).await; // the test checks that nothing happens in this time
        for mark in &marks {
            assert_eq!(ours(mark, &counted), []);
        }
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

/// Without a pace, the Workload of another project waited 30 s behind such deployments on real Karmada.
#[test]
fn large_deployments_are_paced_without_delaying_other_namespaces() {
    const COUNT: usize = 20;
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("large").await;
        let (calm, calm_hub) = world.namespace("calm").await;
        let env: Vec<_> = (0..200).map(|n| json!({ "name": format!("V{n:03}"), "value": "v" })).collect();
        // All at once: on a slow machine, one after the other would hardly have to wait.
        let all = (0..COUNT).map(|n| {
            let mut large = deployment(&ns, &format!("large-{n:02}"), "lhr");
            large["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"] = json!(env);
            apply(&world.project, large)
        });
        futures::future::join_all(all).await;
        // The last copy is written more than 20 s after the first. After 20 s, waiting deployments report it.
        let waiting = async || {
            let all = list(&world.project, "WorkloadDeployment", &ns).await;
            all.iter().filter(|one| condition(one, "Federated")["reason"] == "RateLimited").count()
        };
        eventually("a deployment reports RateLimited", || async {
            if waiting().await > 0 { Ok(()) } else { Err(String::new()) }
        })
        .await;
        let there = async || list(&world.hub, "WorkloadDeployment", &hub).await;
        apply(&world.project, deployment(&calm, "calm", "lhr")).await;
        eventually("the deployment of another namespace is copied", || async {
            get(&world.hub, "WorkloadDeployment", &calm_hub, "calm").await.ok_or("not yet".into())
        })
        .await;
        eventually("all copies exist, and no deployment reports RateLimited", || async {
            let (there, waiting) = (there().await.len(), waiting().await);
            if (there, waiting) == (COUNT, 0) {
                Ok(())
            } else {
                Err(format!("{there} copies exist, {waiting} deployments wait"))
            }
        })
        .await;
        let mut made: Vec<_> = there().await.iter().map(|one| one.creation_timestamp().unwrap().0).collect();
        made.sort_unstable();
        // The last turn is (20 * (201 - 16) - 512) / 64 = 49 s after the first. On a busy machine the first copy is written some
        // seconds after its turn, so only the order of magnitude is asserted: without a pace, all are written within seconds.
        let took = made[COUNT - 1].duration_since(made[0]);
        assert!(took.as_secs() >= 30, "{took:?}");
    });
}
