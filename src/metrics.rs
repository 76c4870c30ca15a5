//! Prometheus metrics, with labels from closed sets. Names follow controller-runtime, so that stock boards work.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// All metrics of the process.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    reconciles: Family<Reconcile, Counter>,
    errors: Family<ReconcileError, Counter>,
    seconds: Family<Controller, Histogram>,
    depth: Family<Queue, Gauge>,
    writes: Family<WriteLabels, Counter>,
    watch_failures: Family<WatchFailure, Counter>,
    watch_replaced: Family<Watch, Counter>,
    undecodable: Family<Undecodable, Counter>,
    quota_enabled: Gauge,
    quota_failures: Family<Reason, Counter>,
    quota_orphans: Counter,
    quarantined: Family<Reason, Gauge>,
    companions_present: Family<Namespace, Gauge>,
    companions_expected: Family<Namespace, Gauge>,
    data_wait: Family<Namespace, Histogram>,
    data_turns: Family<Turn, Counter>,
    repairs: Counter,
    blocked: Family<BlockedReason, Gauge>,
    policy_claims_given_up: Counter,
    phases: Family<PhaseLabel, Gauge>,
    refused: Gauge,
    reaped: Counter,
    stranded: Gauge,
    mislabelled: Gauge,
    drains: Family<State, Gauge>,
    projects: Gauge,
    leader: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileError {
    controller: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    plane: &'static str,
    kind: &'static str,
    op: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watch {
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchFailure {
    resource: String,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Undecodable {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BlockedReason {
    reason: String,
}

/// Hub and cell namespaces: as many as there are project namespaces with deployments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Namespace {
    namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Turn {
    namespace: String,
    from_reason: String,
    to_reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let reconciles = Family::default();
        let errors = Family::default();
        let seconds = Family::<Controller, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.001, 2.0, 14))
        });
        let depth = Family::default();
        let writes = Family::default();
        let watch_failures = Family::default();
        let watch_replaced = Family::default();
        let undecodable = Family::default();
        let quota_enabled = Gauge::default();
        let quota_failures = Family::default();
        let quota_orphans = Counter::default();
        let quarantined = Family::default();
        let companions_present = Family::default();
        let companions_expected = Family::default();
        let data_wait = Family::<Namespace, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.005, 2.0, 16))
        });
        let data_turns = Family::default();
        let repairs = Counter::default();
        let blocked = Family::default();
        let policy_claims_given_up = Counter::default();
        let phases = Family::default();
        let reaped = Counter::default();
        let refused = Gauge::default();
        let stranded = Gauge::default();
        let mislabelled = Gauge::default();
        let drains = Family::<State, Gauge>::default();
        let projects = Gauge::default();
        let leader = Gauge::default();
        registry.register("controller_runtime_reconcile", "Reconciles by controller and result", reconciles.clone());
        registry.register("controller_runtime_reconcile_errors", "Failed reconciles by class", errors.clone());
        registry.register("controller_runtime_reconcile_time_seconds", "Length of reconciles", seconds.clone());
        registry.register("workqueue_depth", "Keys ready to be reconciled", depth.clone());
        registry.register("compute_writes", "Writes sent to API servers", writes.clone());
        registry.register("compute_watch_failures", "Failed attempts to list or watch", watch_failures.clone());
        registry.register(
            "compute_watch_replaced",
            "Watches replaced because they went silent",
            watch_replaced.clone(),
        );
        registry.register(
            "compute_undecodable_objects",
            "Objects that could not be read and were skipped",
            undecodable.clone(),
        );
        registry.register(
            "compute_quota_enforcement_enabled",
            "Whether Instances wait for quota",
            quota_enabled.clone(),
        );
        registry.register(
            "compute_quota_eval_failures",
            "Looks at an Instance's quota that gave no answer",
            quota_failures.clone(),
        );
        registry.register(
            "compute_quota_claim_orphaned",
            "ResourceClaims left behind because their project could not be reached",
            quota_orphans.clone(),
        );
        registry.register(
            "compute_federation_quarantined_objects",
            "Hub Instances that cannot be shown in a project",
            quarantined.clone(),
        );
        registry.register(
            "compute_referenced_data_companions_present",
            "Companions that the cell has, of those that are expected",
            companions_present.clone(),
        );
        registry.register(
            "compute_referenced_data_companions_expected",
            "Companions that deployments of the cell expect",
            companions_expected.clone(),
        );
        registry.register(
            "compute_referenced_data_gate_wait_seconds",
            "How long Instances waited for their companions",
            data_wait.clone(),
        );
        registry.register(
            "compute_referenced_data_condition_transitions",
            "Changes of reason of ReferencedDataReady on Instances",
            data_turns.clone(),
        );
        registry.register(
            "compute_federation_repairs",
            "Templates touched because their binding or Work on the hub was removed",
            repairs.clone(),
        );
        registry.register(
            "compute_federation_blocked_deployments",
            "Deployments that something keeps from being delivered, by reason",
            blocked.clone(),
        );
        registry.register(
            "compute_federation_guard_given_up",
            "City policies that went although companions were still claimed by them",
            policy_claims_given_up.clone(),
        );
        registry.register(
            "compute_federation_policies",
            "City policies by how far they are on their way from claims to dependencies",
            phases.clone(),
        );
        registry.register(
            "compute_federation_migration_refused",
            "1 while city policies stay with claims because Karmada does not bring dependencies",
            refused.clone(),
        );
        registry.register(
            "compute_federation_bindings_reaped",
            "Bindings removed because their companion was gone",
            reaped.clone(),
        );
        registry.register(
            "compute_federation_stranded_namespaces",
            "Hub namespaces of projects that do not exist",
            stranded.clone(),
        );
        registry.register(
            "compute_federation_mislabelled_clusters",
            "Clusters that hold a city without carrying its label",
            mislabelled.clone(),
        );
        registry.register("compute_federation_drains", "Cities that are to leave a cluster, by state", drains.clone());
        registry.register("compute_projects_engaged", "Project control planes that are watched", projects.clone());
        registry.register("leader_election_master_status", "Whether this process leads", leader.clone());
        Self(Arc::new(Inner {
            registry,
            reconciles,
            errors,
            seconds,
            depth,
            writes,
            watch_failures,
            watch_replaced,
            undecodable,
            quota_enabled,
            quota_failures,
            quota_orphans,
            quarantined,
            companions_present,
            companions_expected,
            data_wait,
            data_turns,
            repairs,
            blocked,
            policy_claims_given_up,
            phases,
            refused,
            reaped,
            stranded,
            mislabelled,
            drains,
            projects,
            leader,
        }))
    }
}

impl Metrics {
    /// The exposition text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }

    /// A reconcile ended.
    pub fn reconciled(&self, controller: &'static str, result: &'static str, took: Duration) {
        self.0.reconciles.get_or_create(&Reconcile { controller, result }).inc();
        self.0.seconds.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    /// A reconcile failed with an error of this class.
    pub fn reconcile_failed(&self, controller: &'static str, class: &'static str) {
        self.0.errors.get_or_create(&ReconcileError { controller, class }).inc();
    }

    /// This many keys are ready.
    pub fn depth(&self, name: &'static str, depth: usize) {
        self.0.depth.get_or_create(&Queue { name }).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// A write was sent.
    pub fn wrote(&self, plane: &'static str, kind: &'static str, op: &'static str) {
        self.0.writes.get_or_create(&WriteLabels { plane, kind, op }).inc();
    }

    /// An attempt to list or watch failed.
    pub fn watch_failed(&self, resource: &str, class: &'static str) {
        self.0.watch_failures.get_or_create(&WatchFailure { resource: resource.into(), class }).inc();
    }

    /// A watch went silent and was replaced.
    pub fn watch_replaced(&self, resource: &str) {
        self.0.watch_replaced.get_or_create(&Watch { resource: resource.into() }).inc();
    }

    /// An object could not be read.
    pub fn undecodable(&self, kind: &str) {
        self.0.undecodable.get_or_create(&Undecodable { kind: kind.into() }).inc();
    }

    /// Whether Instances wait for quota.
    pub fn quota_enabled(&self, enabled: bool) {
        self.0.quota_enabled.set(i64::from(enabled));
    }

    /// A look at an Instance's quota gave no answer.
    pub fn quota_failed(&self, reason: &'static str) {
        self.0.quota_failures.get_or_create(&Reason { reason }).inc();
    }

    /// A ResourceClaim was left behind.
    pub fn quota_orphaned(&self) {
        self.0.quota_orphans.inc();
    }

    /// So many hub Instances are in quarantine for this reason.
    pub fn quarantined(&self, reason: &'static str, objects: usize) {
        self.0.quarantined.get_or_create(&Reason { reason }).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Companions of a namespace that deployments expect, and how many of them are there.
    pub fn companions(&self, namespace: &str, expected: usize, present: usize) {
        let label = Namespace { namespace: namespace.into() };
        if expected == 0 {
            self.0.companions_expected.remove(&label);
            self.0.companions_present.remove(&label);
            return;
        }
        self.0.companions_expected.get_or_create(&label).set(i64::try_from(expected).unwrap_or(i64::MAX));
        self.0.companions_present.get_or_create(&label).set(i64::try_from(present).unwrap_or(i64::MAX));
    }

    /// An Instance's gate for its data opened after this long.
    pub fn waited_for_data(&self, namespace: &str, waited: Duration) {
        self.0.data_wait.get_or_create(&Namespace { namespace: namespace.into() }).observe(waited.as_secs_f64());
    }

    /// An Instance's `ReferencedDataReady` has another reason now. Reasons come from a closed set.
    pub fn data_turned(&self, namespace: &str, from: &str, to: &str) {
        let turn = Turn { namespace: namespace.into(), from_reason: from.into(), to_reason: to.into() };
        self.0.data_turns.get_or_create(&turn).inc();
    }

    /// A template was touched, so that Karmada makes anew what was removed.
    pub fn repaired(&self) {
        self.0.repairs.inc();
    }

    /// So many deployments are kept from being delivered for this reason, of a closed set.
    pub fn blocked(&self, reason: &str, count: usize) {
        let label = BlockedReason { reason: reason.into() };
        self.0.blocked.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A city policy goes although companions are still claimed by it.
    pub fn policy_claims_given_up(&self) {
        self.0.policy_claims_given_up.inc();
    }

    /// So many city policies are in this phase.
    pub fn policies(&self, phase: &'static str, count: usize) {
        self.0.phases.get_or_create(&PhaseLabel { phase }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the way from claims to dependencies is refused.
    pub fn migration_refused(&self, refused: bool) {
        self.0.refused.set(i64::from(refused));
    }

    /// A binding without its companion was removed.
    pub fn reaped(&self) {
        self.0.reaped.inc();
    }

    /// So many hub namespaces belong to projects that do not exist.
    pub fn stranded(&self, count: usize) {
        self.0.stranded.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// So many clusters hold a city without carrying its label.
    pub fn mislabelled(&self, clusters: usize) {
        self.0.mislabelled.set(i64::try_from(clusters).unwrap_or(i64::MAX));
    }

    /// So many cities are to leave a cluster: for each state, how many are in it.
    pub fn drains<const N: usize>(&self, counts: [(&'static str, usize); N]) {
        for (state, cities) in counts {
            self.0.drains.get_or_create(&State { state }).set(i64::try_from(cities).unwrap_or(i64::MAX));
        }
    }

    /// So many projects are watched.
    pub fn projects(&self, engaged: usize) {
        self.0.projects.set(i64::try_from(engaged).unwrap_or(i64::MAX));
    }

    /// Whether this process leads.
    pub fn leads(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }
}
