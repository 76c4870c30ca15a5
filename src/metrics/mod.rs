//! Prometheus metrics, with labels from closed sets. Names follow controller-runtime, so that stock boards work.

mod families;

use std::{sync::Arc, time::Duration};

use prometheus_client::encoding::text::encode;

use self::families::{
    BlockedReason, Controller, Families, Namespace, PhaseLabel, Queue, Reason, Reconcile, ReconcileError, State, Taken,
    Turn, Undecodable, Watch, WatchFailure, WriteLabels,
};

/// All metrics of the process.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Families>);

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

    /// What another field manager owned of an object has passed to this operator.
    pub fn took_over(&self, plane: &'static str, kind: &'static str) {
        self.0.taken_over.get_or_create(&Taken { plane, kind }).inc();
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
