//! Each cause, from its evidence.

use super::*;

/// A case: its name, the change of the world, the reason, words of the message, and true if it concerns data.
type Cause = (&'static str, fn(&mut World), &'static str, &'static [&'static str], bool);

/// Checks that every case is reported from its evidence.
fn are_reported(cases: &[Cause]) {
    for &(name, change, reason, words, of_data) in cases {
        let mut world = world();
        change(&mut world);
        let Delivery::Blocked { cause, data, silent, repair, .. } = judge(&world) else { panic!("{name}") };
        // Karmada checks these again when the copy changes.
        let looked_at =
            ["feature off", "script missing", "not scheduled, another"].iter().any(|start| name.starts_with(start));
        let cured = match name {
            "binding lost (49)" | "work lost (55)" => Some(Repair::Copy),
            _ if looked_at => Some(Repair::Copy),
            "attached binding lost (50)" => Some(Repair::Companion(DataRef::secret("db"))),
            _ => None,
        };
        assert_eq!(repair, cured, "{name}");
        let of_karmada = repair.is_some() && !looked_at || ["policy lost", "sent elsewhere only"].contains(&name);
        assert_eq!(silent, of_karmada, "{name}");
        assert_eq!((cause.reason.as_str(), data), (reason, of_data), "{name}: {}", cause.message);
        for word in words {
            assert!(cause.message.contains(word), "{name}: {}", cause.message);
        }
    }
}

/// Karmada finds no cluster.
fn unscheduled(world: &mut World) {
    let parent = world.bindings.get_mut(PARENT).unwrap();
    parent.clusters.clear();
    parent.scheduled = Some(Scheduled {
        succeeded: false,
        reason: "NoClusterFit".into(),
        message: "0/2 clusters are available".into(),
    })
    .into();
}

#[test]
fn deployment_without_a_usable_cluster_is_reported() {
    are_reported(&[
        (
            "no cluster (29)",
            |w| {
                unscheduled(w);
                w.clusters.remove("cell-dfw");
            },
            "NoClusterForCity",
            &["topology.datum.net/city-code=dfw", "0/2 clusters"],
            false,
        ),
        (
            "cluster not ready, new template (30)",
            |w| {
                unscheduled(w);
                w.clusters.get_mut("cell-dfw").unwrap().ready = Err("ClusterNotReachable".into());
            },
            "ClusterNotReady",
            &["Cluster cell-dfw of city dfw", "ClusterNotReachable", "0/2"],
            false,
        ),
        ("not scheduled, another reason", |w| unscheduled(w), "NotScheduled", &["NoClusterFit: 0/2"], false),
        (
            "evicted for a taint (81)",
            |w| {
                unscheduled(w);
                w.bindings.get_mut(PARENT).unwrap().evicting = true;
                w.clusters.get_mut("cell-dfw").unwrap().taints = vec!["maintenance:NoExecute".into()];
            },
            "NotScheduled",
            &[
                "Cluster cell-dfw of city dfw has the taint maintenance:NoExecute; Karmada removes the deployment",
                "0/2",
            ],
            false,
        ),
        (
            "cluster not ready, running template (31)",
            |w| {
                w.clusters.get_mut("cell-dfw").unwrap().ready = Err("ClusterNotReachable".into());
            },
            "ClusterNotReady",
            &["all was delivered before"],
            false,
        ),
    ]);
}

/// The scheduler does not look again when a cluster serves the kind at last (fact 66). New deployments of its city waited for ever.
#[test]
fn verdict_of_the_scheduler_that_a_cluster_contradicts_is_repaired() {
    let repair = |edit: &dyn Fn(&mut World)| {
        let mut world = world();
        unscheduled(&mut world);
        edit(&mut world);
        let Delivery::Blocked { cause, repair, silent, .. } = judge(&world) else { panic!("it is delivered") };
        assert_eq!((cause.reason, silent), (Reason::NotScheduled, false));
        repair
    };
    let cluster =
        |world: &mut World, edit: &dyn Fn(&mut ClusterFacts)| edit(world.clusters.get_mut("cell-dfw").unwrap());
    assert_eq!(repair(&|_| ()), Some(Repair::Copy), "the cluster can take it");
    let unserved = |facts: &mut ClusterFacts| facts.obstacle = Some("does not serve WorkloadDeployments".to_owned());
    assert_eq!(repair(&|world| cluster(world, &unserved)), None);
    let evicting = |world: &mut World| world.bindings.get_mut(PARENT).unwrap().evicting = true;
    assert_eq!(repair(&evicting), None, "Karmada is at work");
}

#[test]
fn deployment_blocked_by_cluster_or_policy_is_reported() {
    are_reported(&[
        (
            "refused by the cluster (33)",
            |w| {
                w.bindings.get_mut(PARENT).unwrap().applied.insert("cell-dfw".into(), Err("already exists".into()));
            },
            "NotApplied",
            &["WorkloadDeployment ns-1/wd is not on Cluster cell-dfw: already exists"],
            false,
        ),
        (
            "a companion refused (33)",
            |w| {
                w.bindings
                    .get_mut("db-secret")
                    .unwrap()
                    .applied
                    .insert("cell-dfw".into(), Err("already exists".into()));
            },
            "NotApplied",
            &["Secret ns-1/db is not on Cluster cell-dfw: already exists"],
            true,
        ),
        (
            "claimed by another policy (34)",
            |w| {
                w.copy.annotations_mut().insert(annotation::POLICY_NAME.into(), "theirs".into());
            },
            "ClaimedByAnotherPolicy",
            &["PropagationPolicy theirs, not by city-dfw"],
            false,
        ),
        (
            "claimed by the policy of another city (52)",
            |w| {
                w.copy.annotations_mut().insert(annotation::POLICY_NAME.into(), "city-ord".into());
            },
            "ClaimedByAnotherPolicy",
            &["PropagationPolicy city-ord, not by city-dfw", "keep the policy"],
            false,
        ),
        (
            "claimed by a cluster-wide policy (67)",
            |w| {
                w.copy.annotations_mut().remove(annotation::POLICY_NAME);
                w.copy.annotations_mut().insert(annotation::CLUSTER_POLICY_NAME.into(), "wide".into());
            },
            "ClaimedByAnotherPolicy",
            &["claimed by ClusterPropagationPolicy wide, not by city-dfw"],
            false,
        ),
        (
            "its binding is claimed by a cluster-wide policy (67)",
            |w| {
                w.bindings.get_mut(PARENT).unwrap().cluster_policy = Some("wide".into());
            },
            "ClaimedByAnotherPolicy",
            &["claimed by ClusterPropagationPolicy wide, not by city-dfw"],
            false,
        ),
    ]);
}

#[test]
fn data_that_is_not_propagated_is_reported() {
    are_reported(&[
        (
            "feature off (37)",
            |w| {
                let parent = w.bindings.get_mut(PARENT).unwrap();
                (parent.distributed, parent.dependencies) = (false, None.into());
            },
            "DependenciesNotPropagated",
            &["feature gate PropagateDeps"],
            true,
        ),
        (
            "script missing, new binding (38)",
            |w| {
                w.bindings.get_mut(PARENT).unwrap().dependencies = None.into();
            },
            "DependenciesNotPropagated",
            &["does not list Secret/db", "ResourceInterpreterCustomization"],
            true,
        ),
        (
            "script missing, old binding (38)",
            |w| {
                w.bindings.get_mut(PARENT).unwrap().dependencies = Some(vec![DataRef::config_map("old")]).into();
            },
            "DependenciesNotPropagated",
            &["does not list Secret/db"],
            true,
        ),
        (
            "sent elsewhere only",
            |w| {
                w.bindings.get_mut("db-secret").unwrap().required_by.clear();
            },
            "DependenciesNotPropagated",
            &["does not send it to cluster cell-dfw"],
            true,
        ),
    ]);
}

#[test]
fn removed_object_is_reported_with_its_repair() {
    are_reported(&[
        (
            "binding lost (49)",
            |w| {
                w.bindings.remove(PARENT);
            },
            "BindingMissing",
            &["ResourceBinding ns-1/wd-workloaddeployment"],
            false,
        ),
        (
            "work lost (55)",
            |w| {
                w.bindings.get_mut(PARENT).unwrap().applied.clear();
            },
            "NotApplied",
            &["has not reported about it"],
            false,
        ),
        (
            "policy lost",
            |w| {
                w.bindings.remove(PARENT);
                w.policy = false;
            },
            "BindingMissing",
            &["PropagationPolicy ns-1/city-dfw does not exist"],
            false,
        ),
        (
            "attached binding lost (50)",
            |w| {
                w.bindings.remove("db-secret");
            },
            "BindingMissing",
            &["ResourceBinding ns-1/db-secret for Secret db"],
            true,
        ),
    ]);
}
