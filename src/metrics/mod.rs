//! Prometheus metrics, with labels from closed sets. Names follow controller-runtime, so that its dashboards work.

mod families;
mod process;

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use self::families::{
    AssumedLabel, BlockedReason, CertificateLabel, CityLabel, ClusterLabel, Controller, DrainLabel, Families,
    HostLabel, KindLabel, LegLabel, Namespace, PhaseLabel, PlaneLabel, Queue, Reason, ReasonChange, Reconcile,
    ReconcileError, RequestLabels, ResultLabel, Taken, Undecodable, Verb, WaitingLabel, Watch, WatchFailure,
    WriteLabels,
};

/// Kinds of API servers that requests go to. Addresses are no labels: each project has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The server of the cluster that the process runs in: the one project, or the cell.
    Home,
    /// Karmada's API server.
    Hub,
    /// Servers of projects that Milo lists.
    Project,
    /// Milo's own server.
    Milo,
}

impl Host {
    /// Returns the label value.
    pub fn label(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Hub => "hub",
            Self::Project => "project",
            Self::Milo => "milo",
        }
    }
}

/// A busy worker, counted as long as this value lives.
pub struct AtWork(Gauge);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The metrics of one queue.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queued: Histogram,
    worked: Histogram,
}

impl QueueMetrics {
    /// Sets the number of keys that are ready.
    pub fn depth(&self, ready: usize) {
        self.depth.set(i64::try_from(ready).unwrap_or(i64::MAX));
    }

    /// Counts keys that became ready.
    pub fn added(&self, keys: usize) {
        self.adds.inc_by(u64::try_from(keys).unwrap_or(u64::MAX));
    }

    /// Records that a worker took a key, and how long the key had been ready.
    pub fn taken(&self, waited: Duration) {
        self.queued.observe(waited.as_secs_f64());
    }

    /// Records that a worker returned a key, and how long it worked; `again` if the key is queued for later.
    pub fn finished(&self, worked: Duration, again: bool) {
        self.worked.observe(worked.as_secs_f64());
        if again {
            self.retries.inc();
        }
    }
}

/// All metrics of the process.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

/// The metrics, and the lock that keeps a scrape from seeing a family while it is rebuilt: the wait of an alert would start again.
#[derive(Default)]
struct Inner {
    families: Families,
    rebuild: Mutex<()>,
    /// Updates metrics that are counted for each scrape.
    refresh: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Deref for Inner {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.families
    }
}

impl Metrics {
    /// Sets the function that updates metrics before each scrape. Only the first call counts.
    pub fn is_refreshed_by(&self, refresh: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.refresh.set(Box::new(refresh));
    }

    /// Returns the exposition text.
    pub fn text(&self) -> String {
        if let Some(refresh) = self.0.refresh.get() {
            refresh();
        }
        let _whole = self.rebuild();
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.0.registry);
        text
    }

    fn rebuild(&self) -> MutexGuard<'_, ()> {
        self.0.rebuild.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the end of a reconcile.
    pub fn reconciled(&self, controller: &'static str, result: &'static str, took: Duration) {
        self.0.reconciles.get_or_create(&Reconcile { controller, result }).inc();
        self.0.seconds.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    /// Counts a reconcile that failed with an error of this class.
    pub fn reconcile_failed(&self, controller: &'static str, class: &'static str) {
        self.0.errors.get_or_create(&ReconcileError { controller, class }).inc();
    }

    /// Sets the number of a controller's workers.
    pub fn workers(&self, controller: &'static str, workers: usize) {
        let label = Controller { controller };
        self.0.workers.get_or_create(&label).set(i64::try_from(workers).unwrap_or(i64::MAX));
        self.0.active.get_or_create(&label).set(0);
    }

    /// Counts a busy worker until the returned value is dropped.
    pub fn at_work(&self, controller: &'static str) -> AtWork {
        let active = self.0.active.get_or_create(&Controller { controller }).clone();
        active.inc();
        AtWork(active)
    }

    /// Returns the metrics of the queue with this name.
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

    /// Records a request to an API server and its duration, with or without an answer. `method` and `code` come from closed sets.
    pub fn requested(&self, host: Host, method: &'static str, code: &'static str, took: Duration) {
        let host = host.label();
        self.0.requests.get_or_create(&RequestLabels { code, host, method }).inc();
        self.0.request_seconds.get_or_create(&Verb { host, verb: method }).observe(took.as_secs_f64());
    }

    /// Counts a write.
    pub fn wrote(&self, plane: &'static str, kind: &'static str, op: &'static str) {
        self.0.writes.get_or_create(&WriteLabels { plane, kind, op }).inc();
    }

    /// Counts an object whose fields pass from another field manager to the operator.
    pub fn took_over(&self, plane: &'static str, kind: &'static str) {
        self.0.taken_over.get_or_create(&Taken { plane, kind }).inc();
    }

    /// Sets the number of a controller's objects in which another client reverts its writes.
    pub fn contested(&self, controller: &'static str, objects: usize) {
        let label = Controller { controller };
        self.0.contested.get_or_create(&label).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Counts a failed list or watch.
    pub fn watch_failed(&self, plane: &'static str, resource: &str, class: &'static str) {
        self.0.watch_failures.get_or_create(&WatchFailure { plane, resource: resource.into(), class }).inc();
    }

    /// Counts a silent watch that was replaced.
    pub fn watch_replaced(&self, plane: &'static str, resource: &str) {
        self.0.watch_replaced.get_or_create(&Watch { plane, resource: resource.into() }).inc();
    }

    /// Counts an object that could not be decoded.
    pub fn undecodable(&self, kind: &str) {
        self.0.undecodable.get_or_create(&Undecodable { kind: kind.into() }).inc();
    }

    /// Sets the gauge to 1 if Instances wait for quota.
    pub fn quota_enabled(&self, enabled: bool) {
        self.0.quota_enabled.set(i64::from(enabled));
    }

    /// Counts an evaluation of an Instance's quota without an answer.
    pub fn quota_failed(&self, reason: &'static str) {
        self.0.quota_failures.get_or_create(&Reason { reason }).inc();
    }

    /// Sets the number of Instances that wait for quota without an answer, for this reason.
    pub fn quota_unanswered(&self, reason: &'static str, instances: usize) {
        self.0.quota_unanswered.get_or_create(&Reason { reason }).set(i64::try_from(instances).unwrap_or(i64::MAX));
    }

    /// Counts a ResourceClaim that was left behind.
    pub fn quota_orphaned(&self) {
        self.0.quota_orphans.inc();
    }

    /// Sets the number of hub Instances in quarantine for this reason.
    pub fn quarantined(&self, reason: &'static str, objects: usize) {
        self.0.quarantined.get_or_create(&Reason { reason }).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Sets the number of companions that deployments of a namespace expect, and of those that exist.
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

    /// Records how long an Instance waited for its data.
    pub fn waited_for_data(&self, namespace: &str, waited: Duration) {
        self.0.data_wait.get_or_create(&Namespace { namespace: namespace.into() }).observe(waited.as_secs_f64());
    }

    /// Counts a change of reason of an Instance's `ReferencedDataReady`. Reasons come from a closed set.
    pub fn data_turned(&self, namespace: &str, from: &str, to: &str) {
        let change = ReasonChange { namespace: namespace.into(), from_reason: from.into(), to_reason: to.into() };
        self.0.data_reason_changes.get_or_create(&change).inc();
    }

    /// Removes the series of a cell namespace that is deleted or has no deployment left. `reasons` must hold every reason given
    /// to [`Self::data_turned`].
    pub fn forget_namespace(&self, namespace: &str, reasons: &[&str]) {
        self.companions(namespace, 0, 0);
        self.0.data_wait.remove(&Namespace { namespace: namespace.into() });
        let before = || reasons.iter().chain(&[""]);
        for (from, to) in before().flat_map(|from| reasons.iter().map(move |to| (*from, *to))) {
            let change = ReasonChange { namespace: namespace.into(), from_reason: from.into(), to_reason: to.into() };
            self.0.data_reason_changes.remove(&change);
        }
    }

    /// Records the duration of one leg of federation; `leg` comes from a closed set.
    pub fn federated(&self, leg: &'static str, took: Duration) {
        self.0.latency.get_or_create(&LegLabel { leg }).observe(took.as_secs_f64());
    }

    /// Sets the end of a certificate's validity, in seconds since 1970; `name` comes from a closed set.
    pub fn certificate(&self, name: &'static str, until: i64) {
        self.0.certificates.get_or_create(&CertificateLabel { certificate: name }).set(until);
    }

    /// Sets the end of the client certificate for servers of this kind.
    pub fn client_certificate(&self, host: Host, until: i64) {
        let name = match host {
            Host::Home => "client_home",
            Host::Hub => "client_hub",
            Host::Project => "client_project",
            Host::Milo => "client_milo",
        };
        self.certificate(name, until);
    }

    /// Sets the end of the bearer token for servers of this kind, and the time of its issue, in seconds since 1970. `None` removes
    /// the series: the token has no end, or does not tell it.
    pub fn token(&self, host: Host, until: Option<i64>, since: Option<i64>) {
        let label = HostLabel { host: host.label() };
        for (family, time) in [(&self.0.token_ends, until), (&self.0.token_issues, since)] {
            match time {
                Some(time) => drop(family.get_or_create(&label).set(time)),
                None => drop(family.remove(&label)),
            }
        }
    }

    /// Sets the gauge to 1 if the changed files of a kubeconfig for servers of this kind are unusable.
    pub fn kubeconfig_unusable(&self, host: Host, unusable: bool) {
        self.0.kubeconfigs.get_or_create(&HostLabel { host: host.label() }).set(i64::from(unusable));
    }

    /// Counts a template that was touched so that Karmada recreates a removed object.
    pub fn repaired(&self) {
        self.0.repairs.inc();
    }

    /// Sets the number of deployments whose delivery is blocked. `reason` and `waits_for` come from closed sets.
    pub fn blocked(&self, reason: &str, waits_for: &'static str, count: usize) {
        let label = BlockedReason { reason: reason.into(), waits_for };
        self.0.blocked.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the numbers of waiting objects, each with its reason, the party that acts, and the city. `waits_for` comes from a closed
    /// set. The others must be few.
    pub fn waiting<'a>(&self, all: impl IntoIterator<Item = (&'a str, &'static str, &'a str, usize)>) {
        let _whole = self.rebuild();
        self.0.waiting.clear();
        for (reason, waits_for, city, count) in all {
            let label = WaitingLabel { reason: reason.into(), waits_for, city: city.into() };
            self.0.waiting.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts a city policy that is deleted although it still claims companions.
    pub fn policy_claims_given_up(&self) {
        self.0.policy_claims_given_up.inc();
    }

    /// Sets the number of city policies in this phase.
    pub fn policies(&self, phase: &'static str, count: usize) {
        self.0.phases.get_or_create(&PhaseLabel { phase }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the gauge to 1 if the migration from claims to dependencies is refused.
    pub fn migration_refused(&self, refused: bool) {
        self.0.refused.set(i64::from(refused));
    }

    /// Marks a bug of Karmada that is only assumed to be absent on the hub.
    pub fn karmada_assumed(&self, bug: &'static str) {
        self.0.assumed.get_or_create(&AssumedLabel { bug }).set(1);
    }

    /// Records the end of a sweep, at this time in seconds since 1970.
    pub fn swept(&self, result: &'static str, took: Duration, ended: i64) {
        self.0.sweeps.get_or_create(&ResultLabel { result }).inc();
        self.0.sweep_seconds.set(took.as_secs_f64());
        self.0.sweep_ended.set(ended);
    }

    /// Counts the removal of an unneeded companion.
    pub fn collected(&self, kind: &'static str) {
        self.0.collected.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts the removal of a binding without its template.
    pub fn reaped(&self) {
        self.0.reaped.inc();
    }

    /// Sets the number of Works that Karmada keeps for each cluster although their objects are deleted on the hub.
    pub fn left_on_clusters(&self, works: &BTreeMap<String, usize>) {
        // A deleted Cluster has no count.
        let _whole = self.rebuild();
        self.0.left_on_clusters.clear();
        for (cluster, works) in works {
            let label = ClusterLabel { cluster: cluster.clone() };
            self.0.left_on_clusters.get_or_create(&label).set(i64::try_from(*works).unwrap_or(i64::MAX));
        }
    }

    /// Counts the removal of a Work that Karmada had forgotten.
    pub fn work_removed(&self) {
        self.0.works_removed.inc();
    }

    /// Sets the number of control planes of this kind whose copies on the hub wait because their originals are missing.
    pub fn deletions_paused(&self, plane: &'static str, count: usize) {
        let label = PlaneLabel { plane };
        self.0.deletions_paused.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of hub namespaces with objects whose original does not exist.
    pub fn stranded(&self, count: usize) {
        self.0.stranded.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the Clusters that hold a city without its label, each with the city.
    pub fn mislabelled<'a>(&self, all: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let _whole = self.rebuild();
        set_cities(&self.0.mislabelled, all);
    }

    /// Sets the Clusters that are not ready, each with a city that it holds or that its label names.
    pub fn unready<'a>(&self, all: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let _whole = self.rebuild();
        set_cities(&self.0.unready, all);
    }

    /// Sets the cities that have to leave a cluster, each with the state of the drain. `state` comes from a closed set.
    pub fn drains<'a>(&self, all: impl IntoIterator<Item = (&'a str, &'a str, &'static str)>) {
        let _whole = self.rebuild();
        self.0.drains.clear();
        for (cluster, city, state) in all {
            self.0.drains.get_or_create(&DrainLabel { cluster: cluster.into(), city: city.into(), state }).set(1);
        }
    }

    /// Sets the number of watched projects.
    pub fn projects(&self, engaged: usize) {
        self.0.projects.set(i64::try_from(engaged).unwrap_or(i64::MAX));
    }

    /// Sets the gauge to 1 if this process leads.
    pub fn leads(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }
}

/// Sets a gauge to 1 for these clusters and cities, and removes all others.
fn set_cities<'a>(family: &Family<CityLabel, Gauge>, all: impl IntoIterator<Item = (&'a str, &'a str)>) {
    family.clear();
    for (cluster, city) in all {
        family.get_or_create(&CityLabel { cluster: cluster.into(), city: city.into() }).set(1);
    }
}

#[cfg(test)]
mod tests;
