//! Every metric is provoked: here, or in the test that the table names.

use std::{collections::BTreeSet, time::Duration};

use crate::common::{
    RUNTIME, World, apply,
    beds::{Lent, Wish, alone},
    delete, eventually,
    example_app::{SWEEPS, secret, using},
    get, merge, ready, template, workload,
};
use serde_json::json;
use testbed::{bed::bind_location, neighbours::Reach};

/// The place where a metric changes.
enum Seen {
    /// Here, with an application that uses a Secret and runs.
    Served,
    /// Here, by this provocation.
    Provoked(Provocation),
    /// In another test, which names the metric. This is its source.
    Elsewhere(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Provocation {
    HubAway,
    BindingTaken,
    Stranger,
    LabelLost,
    BindingWithoutCompanion,
    QuotaAway,
    CityWithoutCluster,
    LastUserGone,
}

use Provocation::{
    BindingTaken, BindingWithoutCompanion, CityWithoutCluster, HubAway, LabelLost, LastUserGone, QuotaAway, Stranger,
};
use Seen::{Elsewhere, Provoked, Served};

const METRICS: [(&str, Seen); 59] = [
    ("controller_runtime_reconcile_total", Served),
    ("controller_runtime_reconcile_errors_total", Provoked(HubAway)),
    ("controller_runtime_reconcile_time_seconds_count", Served),
    ("controller_runtime_max_concurrent_reconciles", Served),
    ("controller_runtime_active_workers", Served),
    ("workqueue_depth", Served),
    ("workqueue_adds_total", Served),
    ("workqueue_retries_total", Provoked(HubAway)),
    ("workqueue_queue_duration_seconds_count", Served),
    ("workqueue_work_duration_seconds_count", Served),
    ("rest_client_requests_total", Served),
    ("rest_client_request_duration_seconds_count", Served),
    ("process_cpu_seconds_total", Served),
    ("process_start_time_seconds", Served),
    ("process_resident_memory_bytes", Served),
    ("process_virtual_memory_bytes", Served),
    ("process_open_fds", Served),
    ("process_max_fds", Served),
    ("compute_writes_total", Served),
    ("compute_fields_taken_over_total", Elsewhere(include_str!("../long/go_era/mod.rs"))),
    ("compute_watch_failures_total", Provoked(HubAway)),
    ("compute_watch_replaced_total", Elsewhere(include_str!("disruption.rs"))),
    ("compute_undecodable_objects_total", Elsewhere(include_str!("disruption.rs"))),
    ("compute_quota_enforcement_enabled", Served),
    ("compute_quota_eval_failures_total", Provoked(QuotaAway)),
    ("compute_quota_unanswered_instances", Provoked(QuotaAway)),
    ("compute_quota_claim_orphaned_total", Elsewhere(include_str!("cells/quota.rs"))),
    ("compute_federation_quarantined_objects", Provoked(Stranger)),
    ("compute_referenced_data_companions_present", Served),
    ("compute_referenced_data_companions_expected", Served),
    ("compute_referenced_data_gate_wait_seconds_count", Served),
    ("compute_referenced_data_condition_transitions_total", Served),
    ("compute_federation_repairs_total", Provoked(BindingTaken)),
    ("compute_federation_guard_given_up_total", Elsewhere(include_str!("claim_timeout.rs"))),
    ("compute_federation_policies", Served),
    ("compute_federation_migration_refused", Elsewhere(include_str!("migration.rs"))),
    ("compute_federation_karmada_assumed", Served),
    ("compute_sweeps_total", Served),
    ("compute_sweep_last_duration_seconds", Served),
    ("compute_sweep_last_end_timestamp_seconds", Served),
    ("compute_companions_collected_total", Provoked(LastUserGone)),
    ("compute_federation_bindings_reaped_total", Provoked(BindingWithoutCompanion)),
    ("compute_deletions_paused", Elsewhere(include_str!("../long/restored.rs"))),
    ("compute_federation_stranded_namespaces", Elsewhere(include_str!("projects/leaving.rs"))),
    ("compute_federation_mislabelled_clusters", Provoked(LabelLost)),
    ("compute_federation_unready_clusters", Elsewhere(include_str!("../long/faults/delivery.rs"))),
    ("compute_federation_drains", Elsewhere(include_str!("../long/drains.rs"))),
    ("compute_federation_left_on_clusters", Elsewhere(include_str!("../long/left_on_clusters.rs"))),
    ("compute_federation_works_removed_total", Elsewhere(include_str!("../long/left_on_clusters.rs"))),
    ("compute_federation_blocked_deployments", Provoked(CityWithoutCluster)),
    ("compute_waiting_objects", Provoked(CityWithoutCluster)),
    ("compute_federation_latency_seconds_count", Served),
    ("compute_certificate_expiration_timestamp_seconds", Elsewhere(include_str!("metrics_access.rs"))),
    ("compute_token_expiration_timestamp_seconds", Elsewhere(include_str!("credentials.rs"))),
    ("compute_token_issue_timestamp_seconds", Elsewhere(include_str!("credentials.rs"))),
    ("compute_kubeconfig_unusable", Elsewhere(include_str!("credentials.rs"))),
    ("compute_contested_objects", Elsewhere(include_str!("../long/two_managers.rs"))),
    ("compute_projects_engaged", Served),
    ("leader_election_master_status", Served),
];

/// Each leg is measured separately.
const LEGS: [&str; 3] = ["project_to_hub", "hub_to_cell", "status_back"];

/// Queues are empty and workers idle when the test reads these metrics. It is enough that they are exported.
const AT_REST: [&str; 2] = ["workqueue_depth", "controller_runtime_active_workers"];

#[test]
fn metrics_table_names_every_metric() {
    // A family without a count is not in the exported text.
    let families = ["controller_runtime_", "workqueue_", "rest_client_", "compute_", "leader_election_", "process_"];
    let source = concat!(include_str!("../../src/metrics/families.rs"), include_str!("../../src/metrics/process.rs"));
    let registered: BTreeSet<&str> = source
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| families.iter().any(|start| text.starts_with(start)))
        .collect();
    let named: BTreeSet<&str> =
        METRICS.iter().map(|(name, _)| name.trim_end_matches("_total").trim_end_matches("_count")).collect();
    assert_eq!(named, registered);
    for (name, seen) in METRICS {
        if let Elsewhere(source) = seen {
            assert!(source.contains(name), "{name} is not checked by the listed test");
        }
    }
}

/// Returns the sum of a metric over all operators and labels, or `None` if no operator exports it.
async fn value(world: &World, name: &str) -> Option<f64> {
    let mut sum = None;
    for operator in &world.operators {
        let text = operator.metrics().await.unwrap_or_default();
        for line in text.lines() {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '{']));
            if let Some(value) = rest.and_then(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()) {
                sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
    }
    sum
}

/// Waits until a gauge is zero, so that an earlier cause no longer counts.
async fn settled(world: &World, name: &str) {
    eventually(&format!("{name} counts nothing"), || async {
        let now = value(world, name).await.unwrap_or_default();
        if now == 0.0 { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
}

/// Time within which a due repair is done.
const ENOUGH: Duration = Duration::from_secs(40);

async fn moves(world: &World, name: &str, before: Option<f64>) {
    let before = before.unwrap_or(0.0);
    eventually(&format!("{name} rises"), || async {
        match value(world, name).await {
            Some(now) if now > before || AT_REST.contains(&name) => Ok(()),
            other => Err(format!("{before} before, {other:?} now")),
        }
    })
    .await;
}

struct Stage {
    world: Lent<World>,
    ns: String,
    hub: String,
    changes: u32,
    /// Instances of the application in its first city.
    replicas: u32,
}

#[test]
fn metrics_change_when_provoked() {
    RUNTIME.block_on(async {
        let wish = Wish { networks_and_quota: true, management: SWEEPS.into(), ..Wish::default() };
        let world = alone(wish).await;
        let (ns, hub) = world.namespace("metrics").await;
        let mut stage = Stage { world, ns, hub, changes: 0, replicas: 1 };
        apply(&stage.world.project, secret(&stage.ns)).await;
        apply(&stage.world.project, using(&stage.ns, &["dfw", "ord"])).await;
        ready(&stage.world, &stage.ns, "web", 2).await;
        for leg in LEGS {
            let seconds = "compute_federation_latency_seconds";
            moves(&stage.world, &format!("{seconds}_count{{leg=\"{leg}\"}}"), None).await;
            // On one machine nothing takes a minute, and nothing arrives before it is sent.
            let quick = value(&stage.world, &format!("{seconds}_bucket{{le=\"81.92\",leg=\"{leg}\"}}")).await;
            let all = value(&stage.world, &format!("{seconds}_bucket{{le=\"+Inf\",leg=\"{leg}\"}}")).await;
            assert!(quick == all && all > Some(0.0), "{leg}: {quick:?} of {all:?}");
        }
        for (name, seen) in METRICS {
            match seen {
                Served => moves(&stage.world, name, None).await,
                Provoked(how) => {
                    // Leftovers of an earlier provocation were counted a moment after the gauge had been zero.
                    let before = if name.ends_with("_total") {
                        value(&stage.world, name).await
                    } else {
                        settled(&stage.world, name).await;
                        None
                    };
                    stage.provoke(how).await;
                    // Real Karmada recreated the binding by itself, because another event triggered it at that moment.
                    for _ in 0..if matches!(how, BindingTaken) { 3 } else { 0 } {
                        if tokio::time::timeout(ENOUGH, moves(&stage.world, name, before)).await.is_ok() {
                            break;
                        }
                        stage.provoke(how).await;
                    }
                    moves(&stage.world, name, before).await;
                    stage.mend(how).await;
                }
                Elsewhere(_) => {}
            }
        }
    });
}

impl Stage {
    async fn provoke(&mut self, how: Provocation) {
        let world = &mut *self.world;
        match how {
            HubAway => {
                world.bed.hub.stop_api_server();
                self.changes += 1;
                let mut changed = using(&self.ns, &["dfw"]);
                // Only a difference from the last change causes a write.
                changed["spec"]["template"]["metadata"]["annotations"]["change"] = json!(self.changes.to_string());
                apply(&world.project, changed).await;
            }
            BindingTaken => delete(&world.hub, "ResourceBinding", &self.hub, "db-secret").await,
            Stranger => {
                let stranger = json!({
                    "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
                    "metadata": { "name": "stranger", "namespace": self.hub }, "spec": template("i")["spec"],
                });
                apply(&world.hub, stranger).await;
            }
            LabelLost => label(world, None).await,
            BindingWithoutCompanion => {
                let binding = json!({
                    "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                    "metadata": {
                        "namespace": self.hub, "name": "lost-configmap",
                        "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
                    },
                    "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": self.hub, "name": "lost" } },
                });
                apply(&world.hub, binding).await;
            }
            CityWithoutCluster => {
                bind_location(&world.project, "lhr").await.unwrap();
                apply(&world.project, workload(&self.ns, "nowhere", &["lhr"], 1)).await;
            }
            LastUserGone => {
                let (mut lone, mut using_it) = (secret(&self.ns), using(&self.ns, &["dfw"]));
                lone["metadata"]["name"] = json!("lone");
                using_it["metadata"]["name"] = json!("lone");
                let containers = &mut using_it["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"];
                containers[0]["envFrom"] = json!([{ "secretRef": { "name": "lone" } }]);
                apply(&world.project, lone).await;
                apply(&world.project, using_it).await;
                ready(world, &self.ns, "lone", 1).await;
                delete(&world.project, "Workload", &self.ns, "lone").await;
            }
            QuotaAway => {
                world.bed.milo.as_ref().unwrap().set("single", Reach::Away);
                // One more Instance each time: those of an earlier provocation may have their answer.
                self.replicas += 1;
                let mut more = using(&self.ns, &["dfw"]);
                more["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = json!(self.replicas);
                apply(&world.project, more).await;
            }
        }
    }

    async fn mend(&mut self, how: Provocation) {
        let world = &mut *self.world;
        match how {
            HubAway => {
                world.bed.hub.start_api_server().unwrap();
                world.bed.hub.wait_ready().await.unwrap();
                world.operators[0].wait_ready().await.unwrap();
            }
            LabelLost => label(world, Some("dfw")).await,
            QuotaAway => world.bed.milo.as_ref().unwrap().set("single", Reach::Served),
            Stranger => delete(&world.hub, "Instance", &self.hub, "stranger").await,
            CityWithoutCluster => {
                delete(&world.project, "Workload", &self.ns, "nowhere").await;
                // It is provoked again, and an object that is being deleted would not stay.
                eventually("the Workload is gone", || async {
                    let left = get(&world.project, "Workload", &self.ns, "nowhere").await;
                    left.map_or(Ok(()), |_| Err("not yet".to_owned()))
                })
                .await;
            }
            BindingTaken | BindingWithoutCompanion | LastUserGone => {}
        }
    }
}

async fn label(world: &World, city: Option<&str>) {
    let label = json!({ "metadata": { "labels": { "topology.datum.net/city-code": city } } });
    merge(&world.hub, "Cluster", "", "cell-dfw", label).await;
}
