//! Prometheus metrics, with labels from closed sets. Names follow controller-runtime, so that stock boards work.

mod families;
mod process;

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
};

use self::families::{
    AssumedLabel, BlockedReason, CertificateLabel, ClusterLabel, Controller, Families, HostLabel, KindLabel, LegLabel,
    Namespace, PhaseLabel, PlaneLabel, Queue, Reason, ReasonChange, Reconcile, ReconcileError, RequestLabels,
    ResultLabel, State, Taken, Undecodable, Verb, Watch, WatchFailure, WriteLabels,
};

/// Which API servers requests go to. Not their addresses: each project has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// That of the cluster that the process is at home on: the one project, or the cell.
    Home,
    /// Karmada's.
    Hub,
    /// Those of projects that Milo knows.
    Project,
    /// Milo's own.
    Milo,
}

impl Host {
    /// Its name in labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Hub => "hub",
            Self::Project => "project",
            Self::Milo => "milo",
        }
    }
}

/// A worker that has something to do, as long as this lives.
pub struct AtWork(Gauge);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What one queue tells of itself.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queued: Histogram,
    worked: Histogram,
}

impl QueueMetrics {
    /// So many keys are ready now.
    pub fn depth(&self, ready: usize) {
        self.depth.set(i64::try_from(ready).unwrap_or(i64::MAX));
    }

    /// So many keys have become ready.
    pub fn added(&self, keys: usize) {
        self.adds.inc_by(u64::try_from(keys).unwrap_or(u64::MAX));
    }

    /// A worker took a key that had been ready for this long.
    pub fn taken(&self, waited: Duration) {
        self.queued.observe(waited.as_secs_f64());
    }

    /// A worker gives a key back after this long; `again`: it is to be looked at later.
    pub fn finished(&self, worked: Duration, again: bool) {
        self.worked.observe(worked.as_secs_f64());
        if again {
            self.retries.inc();
        }
    }
}

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

    /// A controller works with so many workers.
    pub fn workers(&self, controller: &'static str, workers: usize) {
        let label = Controller { controller };
        self.0.workers.get_or_create(&label).set(i64::try_from(workers).unwrap_or(i64::MAX));
        self.0.active.get_or_create(&label).set(0);
    }

    /// A worker has something to do; it has not any more when what is returned goes.
    pub fn at_work(&self, controller: &'static str) -> AtWork {
        let active = self.0.active.get_or_create(&Controller { controller }).clone();
        active.inc();
        AtWork(active)
    }

    /// What the queue of this name tells of itself.
    pub fn queue(&self, name: &'static str) -> QueueMetrics {
        let label = Queue { name };
        QueueMetrics {
            depth: self.0.depth.get_or_create(&label).clone(),
            adds: self.0.adds.get_or_create(&label).clone(),
            retries: self.0.retries.get_or_create(&label).clone(),
            queued: self.0.queued.get_or_create(&label).clone(),
            worked: self.0.worked.get_or_create(&label).clone(),
        }
    }

    /// An API server has answered a request, or not, after this long. `method` and `code` are of closed sets.
    pub fn requested(&self, host: Host, method: &'static str, code: &'static str, took: Duration) {
        let host = host.label();
        self.0.requests.get_or_create(&RequestLabels { code, host, method }).inc();
        self.0.request_seconds.get_or_create(&Verb { host, verb: method }).observe(took.as_secs_f64());
    }

    /// A write was sent.
    pub fn wrote(&self, plane: &'static str, kind: &'static str, op: &'static str) {
        self.0.writes.get_or_create(&WriteLabels { plane, kind, op }).inc();
    }

    /// What another field manager owned of an object has passed to this operator.
    pub fn took_over(&self, plane: &'static str, kind: &'static str) {
        self.0.taken_over.get_or_create(&Taken { plane, kind }).inc();
    }

    /// Of so many objects of a controller somebody else takes back what it writes.
    pub fn contested(&self, controller: &'static str, objects: usize) {
        let label = Controller { controller };
        self.0.contested.get_or_create(&label).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// An attempt to list or watch failed.
    pub fn watch_failed(&self, plane: &'static str, resource: &str, class: &'static str) {
        self.0.watch_failures.get_or_create(&WatchFailure { plane, resource: resource.into(), class }).inc();
    }

    /// A watch went silent and was replaced.
    pub fn watch_replaced(&self, plane: &'static str, resource: &str) {
        self.0.watch_replaced.get_or_create(&Watch { plane, resource: resource.into() }).inc();
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

    /// So many Instances wait for quota and get no answer, for this reason.
    pub fn quota_unanswered(&self, reason: &'static str, instances: usize) {
        self.0.quota_unanswered.get_or_create(&Reason { reason }).set(i64::try_from(instances).unwrap_or(i64::MAX));
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
        let change = ReasonChange { namespace: namespace.into(), from_reason: from.into(), to_reason: to.into() };
        self.0.data_reason_changes.get_or_create(&change).inc();
    }

    /// A namespace of the cell is gone, or its last deployment, and what is counted of it goes along. `reasons` are all that
    /// [`Self::data_turned`] may have named.
    pub fn forget_namespace(&self, namespace: &str, reasons: &[&str]) {
        self.companions(namespace, 0, 0);
        self.0.data_wait.remove(&Namespace { namespace: namespace.into() });
        let before = || reasons.iter().chain(&[""]);
        for (from, to) in before().flat_map(|from| reasons.iter().map(move |to| (*from, *to))) {
            let change = ReasonChange { namespace: namespace.into(), from_reason: from.into(), to_reason: to.into() };
            self.0.data_reason_changes.remove(&change);
        }
    }

    /// A leg of federation took this long; `leg` is of a closed set.
    pub fn federated(&self, leg: &'static str, took: Duration) {
        self.0.latency.get_or_create(&LegLabel { leg }).observe(took.as_secs_f64());
    }

    /// Until when a certificate is good, in seconds since 1970; `name` is of a closed set.
    pub fn certificate(&self, name: &'static str, until: i64) {
        self.0.certificates.get_or_create(&CertificateLabel { certificate: name }).set(until);
    }

    /// The same of the certificate that servers of this kind are asked with.
    pub fn client_certificate(&self, host: Host, until: i64) {
        let name = match host {
            Host::Home => "client_home",
            Host::Hub => "client_hub",
            Host::Project => "client_project",
            Host::Milo => "client_milo",
        };
        self.certificate(name, until);
    }

    /// True while the files of a kubeconfig for servers of this kind have changed and cannot be used.
    pub fn kubeconfig_unusable(&self, host: Host, unusable: bool) {
        self.0.kubeconfigs.get_or_create(&HostLabel { host: host.label() }).set(i64::from(unusable));
    }

    /// A template was touched, so that Karmada makes anew what was removed.
    pub fn repaired(&self) {
        self.0.repairs.inc();
    }

    /// So many deployments are kept from being delivered for this reason, of a closed set, as is who can mend it.
    pub fn blocked(&self, reason: &str, waits_for: &'static str, count: usize) {
        let label = BlockedReason { reason: reason.into(), waits_for };
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

    /// It is only assumed of Karmada on the hub that it has not this bug.
    pub fn karmada_assumed(&self, bug: &'static str) {
        self.0.assumed.get_or_create(&AssumedLabel { bug }).set(1);
    }

    /// A sweep has come to its end, at this time in seconds since 1970.
    pub fn swept(&self, result: &'static str, took: Duration, ended: i64) {
        self.0.sweeps.get_or_create(&ResultLabel { result }).inc();
        self.0.sweep_seconds.set(took.as_secs_f64());
        self.0.sweep_ended.set(ended);
    }

    /// A companion that nobody uses any more was removed.
    pub fn collected(&self, kind: &'static str) {
        self.0.collected.get_or_create(&KindLabel { kind }).inc();
    }

    /// A binding without its template was removed.
    pub fn reaped(&self) {
        self.0.reaped.inc();
    }

    /// Karmada keeps so many Works for this cluster of what is deleted on the hub.
    pub fn left_on_cluster(&self, cluster: &str, works: usize) {
        let label = ClusterLabel { cluster: cluster.into() };
        self.0.left_on_clusters.get_or_create(&label).set(i64::try_from(works).unwrap_or(i64::MAX));
    }

    /// A Work that Karmada had forgotten was removed.
    pub fn work_removed(&self) {
        self.0.works_removed.inc();
    }

    /// On so many control planes of this kind deletions wait.
    pub fn deletions_paused(&self, plane: &'static str, count: usize) {
        let label = PlaneLabel { plane };
        self.0.deletions_paused.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// So many hub namespaces hold something whose original does not exist.
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

#[cfg(test)]
mod tests;
