//! The metrics and their labels, each in one row of one table.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use super::process::Process;

/// Buckets of a histogram: they begin at `first` seconds, and each is twice the one before.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    first: f64,
    count: u16,
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(self.first, 2.0, self.count))
    }
}

/// A histogram of durations with `count` buckets from `first` seconds on.
fn timed<L: Clone + std::hash::Hash + Eq>(first: f64, count: u16) -> Family<L, Histogram, Buckets> {
    Family::new_with_constructor(Buckets { first, count })
}

/// Builds [`Families`] from one table, so that a metric without registration or help does not compile.
macro_rules! families {
    ($($field:ident: $type:ty $(= $make:expr)?, $name:literal, $help:literal;)*) => {
        /// Every metric, and their registry.
        pub(super) struct Families {
            pub(super) registry: Registry,
            $(pub(super) $field: $type,)*
        }

        impl Default for Families {
            fn default() -> Self {
                let mut registry = Registry::default();
                $(
                    let $field: $type = made!($($make)?);
                    registry.register($name, $help, $field.clone());
                )*
                registry.register_collector(Box::new(Process::default()));
                Self { registry, $($field,)* }
            }
        }
    };
}

/// The value of a row, or the default.
macro_rules! made {
    () => {
        Default::default()
    };
    ($make:expr) => {
        $make
    };
}

families! {
    reconciles: Family<Reconcile, Counter>, "controller_runtime_reconcile", "Reconciles by controller and result";
    errors: Family<ReconcileError, Counter>, "controller_runtime_reconcile_errors", "Failed reconciles by class";
    seconds: Family<Controller, Histogram, Buckets> = timed(0.001, 14),
        "controller_runtime_reconcile_time_seconds", "Length of reconciles";
    workers: Family<Controller, Gauge>,
        "controller_runtime_max_concurrent_reconciles", "Maximum of concurrent reconciles of a controller";
    active: Family<Controller, Gauge>, "controller_runtime_active_workers", "Reconciles in progress";
    depth: Family<Queue, Gauge>, "workqueue_depth", "Keys ready to be reconciled";
    adds: Family<Queue, Counter>, "workqueue_adds", "Keys that became ready to be reconciled";
    retries: Family<Queue, Counter>, "workqueue_retries", "Keys queued again for later";
    queued: Family<Queue, Histogram, Buckets> = timed(0.001, 16),
        "workqueue_queue_duration_seconds", "Time that keys were ready before a worker took them";
    worked: Family<Queue, Histogram, Buckets> = timed(0.001, 16),
        "workqueue_work_duration_seconds", "Time that workers took to process keys";
    requests: Family<RequestLabels, Counter>,
        "rest_client_requests", "Requests to API servers, by the kind of server";
    request_seconds: Family<Verb, Histogram, Buckets> = timed(0.001, 16),
        "rest_client_request_duration_seconds", "Time until API servers began their answer";
    writes: Family<WriteLabels, Counter>, "compute_writes", "Writes sent to API servers";
    taken_over: Family<Taken, Counter>,
        "compute_fields_taken_over", "Objects with fields taken over from another field manager";
    contested: Family<Controller, Gauge>,
        "compute_contested_objects", "Objects in which another client repeatedly reverts writes";
    watch_failures: Family<WatchFailure, Counter>, "compute_watch_failures", "Failed attempts to list or watch";
    watch_replaced: Family<Watch, Counter>, "compute_watch_replaced", "Watches replaced because they went silent";
    undecodable: Family<Undecodable, Counter>,
        "compute_undecodable_objects", "Objects that could not be read and were skipped";
    quota_enabled: Gauge, "compute_quota_enforcement_enabled", "Set to 1 if Instances wait for quota";
    quota_failures: Family<Reason, Counter>,
        "compute_quota_eval_failures", "Failed evaluations of an Instance's quota";
    quota_unanswered: Family<Reason, Gauge>,
        "compute_quota_unanswered_instances", "Instances that wait for quota and get no answer";
    quota_orphans: Counter,
        "compute_quota_claim_orphaned", "ResourceClaims left behind because their project could not be reached";
    quarantined: Family<Reason, Gauge>,
        "compute_federation_quarantined_objects", "Hub Instances that cannot be shown in a project";
    companions_present: Family<Namespace, Gauge>,
        "compute_referenced_data_companions_present", "Expected companions that the cell has";
    companions_expected: Family<Namespace, Gauge>,
        "compute_referenced_data_companions_expected", "Companions that deployments of the cell expect";
    data_wait: Family<Namespace, Histogram, Buckets> = timed(0.005, 16),
        "compute_referenced_data_gate_wait_seconds", "Time that Instances waited for their companions";
    data_reason_changes: Family<ReasonChange, Counter>,
        "compute_referenced_data_condition_transitions", "Changes of reason of ReferencedDataReady on Instances";
    repairs: Counter,
        "compute_federation_repairs", "Templates touched because their binding or Work on the hub was removed";
    blocked: Family<BlockedReason, Gauge>,
        "compute_federation_blocked_deployments", "Deployments that are blocked on their way to the cell, by reason and by who has to act";
    waiting: Family<WaitingLabel, Gauge>,
        "compute_waiting_objects", "Deployments that are not ready, and Workloads without such a deployment, by reason, by who has to act and by city";
    policy_claims_given_up: Counter,
        "compute_federation_guard_given_up", "City policies deleted although they still claimed companions";
    phases: Family<PhaseLabel, Gauge>,
        "compute_federation_policies", "City policies by phase of the migration from claims to dependencies";
    refused: Gauge,
        "compute_federation_migration_refused",
        "Set to 1 while city policies keep claims because Karmada does not propagate dependencies";
    assumed: Family<AssumedLabel, Gauge>,
        "compute_federation_karmada_assumed",
        "Set to 1 for each fixed bug of Karmada that only karmada.minimumVersion rules out";
    sweeps: Family<ResultLabel, Counter>, "compute_sweeps", "Finished sweeps of the hub, by result";
    sweep_seconds: Gauge<f64, AtomicU64>, "compute_sweep_last_duration_seconds", "Length of the last sweep";
    sweep_ended: Gauge, "compute_sweep_last_end_timestamp_seconds", "End of the last sweep, in seconds since 1970";
    collected: Family<KindLabel, Counter>,
        "compute_companions_collected", "Companions removed because they were unused";
    reaped: Counter, "compute_federation_bindings_reaped", "Bindings removed because their companion does not exist";
    left_on_clusters: Family<ClusterLabel, Gauge>,
        "compute_federation_left_on_clusters", "Works that Karmada keeps on a cluster for objects deleted on the hub";
    works_removed: Counter, "compute_federation_works_removed", "Removed Works that Karmada had left behind";
    deletions_paused: Family<PlaneLabel, Gauge>,
        "compute_deletions_paused",
        "Projects whose copies on the hub have lost their originals and wait to be deleted";
    stranded: Gauge,
        "compute_federation_stranded_namespaces",
        "Hub namespaces with objects of a project or namespace that does not exist";
    mislabelled: Family<CityLabel, Gauge>,
        "compute_federation_mislabelled_clusters", "Set to 1 for each Cluster that holds a city without its label";
    unready: Family<CityLabel, Gauge>,
        "compute_federation_unready_clusters", "Set to 1 for each Cluster of a city that is not ready";
    drains: Family<DrainLabel, Gauge>,
        "compute_federation_drains", "Set to 1 for each city that has to leave a Cluster, by state of the drain";
    latency: Family<LegLabel, Histogram, Buckets> = timed(0.01, 17),
        "compute_federation_latency_seconds",
        "Latency of federation, by leg: to the hub, from there to the cell's report, and then to the status";
    certificates: Family<CertificateLabel, Gauge>,
        "compute_certificate_expiration_timestamp_seconds", "End of a certificate's validity, in seconds since 1970";
    token_ends: Family<HostLabel, Gauge>,
        "compute_token_expiration_timestamp_seconds", "End of a bearer token's validity, in seconds since 1970";
    token_issues: Family<HostLabel, Gauge>,
        "compute_token_issue_timestamp_seconds", "Issue of a bearer token, in seconds since 1970";
    kubeconfigs: Family<HostLabel, Gauge>,
        "compute_kubeconfig_unusable",
        "Set to 1 while the changed files of a kubeconfig cannot be used, and the earlier ones stay in use";
    projects: Gauge, "compute_projects_engaged", "Project control planes that are watched";
    leader: Gauge, "leader_election_master_status", "Set to 1 if this process leads";
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Controller {
    pub(super) controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CertificateLabel {
    pub(super) certificate: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HostLabel {
    pub(super) host: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LegLabel {
    pub(super) leg: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AssumedLabel {
    pub(super) bug: &'static str,
}

/// Bounded by the number of Clusters on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClusterLabel {
    pub(super) cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PlaneLabel {
    pub(super) plane: &'static str,
}

/// Bounded by the Clusters on the hub and the cities that they have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CityLabel {
    pub(super) cluster: String,
    pub(super) city: String,
}

/// Bounded like [`CityLabel`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DrainLabel {
    pub(super) cluster: String,
    pub(super) city: String,
    pub(super) state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Reconcile {
    pub(super) controller: &'static str,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReconcileError {
    pub(super) controller: &'static str,
    pub(super) class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Queue {
    pub(super) name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) code: &'static str,
    pub(super) host: &'static str,
    pub(super) method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Verb {
    pub(super) host: &'static str,
    pub(super) verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WriteLabels {
    pub(super) plane: &'static str,
    pub(super) kind: &'static str,
    pub(super) op: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Taken {
    pub(super) plane: &'static str,
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Watch {
    pub(super) plane: &'static str,
    pub(super) resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WatchFailure {
    pub(super) plane: &'static str,
    pub(super) resource: String,
    pub(super) class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Undecodable {
    pub(super) kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Reason {
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BlockedReason {
    pub(super) reason: String,
    pub(super) waits_for: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WaitingLabel {
    pub(super) reason: String,
    pub(super) waits_for: &'static str,
    pub(super) city: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResultLabel {
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabel {
    pub(super) kind: &'static str,
}

/// Hub and cell namespaces: bounded by the number of project namespaces with deployments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Namespace {
    pub(super) namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReasonChange {
    pub(super) namespace: String,
    pub(super) from_reason: String,
    pub(super) to_reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PhaseLabel {
    pub(super) phase: &'static str,
}
