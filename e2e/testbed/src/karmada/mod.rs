//! Karmada on the hub: real Karmada if its binaries are given, else a stand-in for the parts that the operator uses.

mod bindings;
mod cache;
mod changes;
mod claims;
mod clusters;
mod controls;
pub mod conversion;
mod distributor;
mod execution;
mod interpreter;
pub mod lua;
mod real;
mod scheduler;
mod status;
mod works;

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use cache::TEMPLATES;
pub use real::Real;

use self::{
    bindings::Bound, cache::Plane, clusters::Health, controls::Controls, distributor::Distributed,
    interpreter::Interpreter,
};

/// The Karmada to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// The stand-in: see [`StandIn`].
    #[default]
    StandIn,
    /// Karmada's own binaries, and the folder with its CRDs and webhook configuration.
    Real {
        /// Folder with `controller-manager`, `scheduler`, `webhook`, `aggregated-apiserver`.
        bin: PathBuf,
        /// Folder with `charts/karmada/_crds/bases` and `artifacts/deploy/webhook-configuration.yaml`.
        crds: PathBuf,
    },
}

impl Flavour {
    /// Returns the real flavour if `KARMADA_BIN` and `KARMADA_CRDS` are set.
    pub fn from_env() -> Self {
        match (std::env::var_os("KARMADA_BIN"), std::env::var_os("KARMADA_CRDS")) {
            (Some(bin), Some(crds)) if !bin.is_empty() && !crds.is_empty() => {
                Self::Real { bin: bin.into(), crds: crds.into() }
            }
            _ => Self::StandIn,
        }
    }
}

/// A stand-in for Karmada v1.18.
///
/// It acts at the same times as Karmada. The scheduler acts on a change of a claimed binding's spec or of any cluster. The
/// distributor acts on a change of a parent's spec or of a dependency. The binding controller acts on a change of a binding's
/// spec. Its memory ends with the process.
///
/// It follows the facts of `docs/karmada.md`, each of them a test in `tests/it/karmada_contract`. Facts that it does not follow:
/// - 6, 14, 44, 45 and 76: timing.
/// - 9: endless retries.
/// - 20: versions.
/// - 60 and 61: no test needs them.
/// - 72: the bed keeps the members' credentials.
/// - 80: its watches return at once.
///
/// Other simplifications:
/// - 2: the distributor's finalizer comes with the binding. Karmada adds it once the script has answered.
/// - 24: a template that no policy selects any more always keeps its claim. Karmada removes it unless another policy was quicker.
/// - 25: copies are always recreated. Karmada recreates them in most runs.
/// - 31: a cluster stays ready for 2 s unless a test makes it longer. A slow cluster counts as ready for 15 s. A cluster
///   with unreadable APIs keeps the APIs that it had. Karmada lists the readable ones. A returning cluster is ready at once.
/// - 38: a restored script is asked at once. Karmada asks it when a template is touched.
/// - 39: the distributor tries again after half a second at most.
/// - 43: a selector's namespace is filled in a moment after the policy is written.
/// - 53: an admission policy protects objects. In Karmada a webhook does.
/// - 58: a late write happens only when a test asks for it ([`StandIn::write_late`]).
/// - 74, 75: values are removed in order. Karmada has no order.
/// - 77: objects are preserved for what the policy claims, not for its dependencies. Karmada's marks stay on them.
/// - 81: a cluster is evicted at once. Karmada leaves the Work there for `--graceful-eviction-timeout`.
#[derive(Debug)]
pub struct StandIn {
    controls: Arc<Controls>,
    changed: Arc<Notify>,
    _stop: DropGuard,
}

/// The state of the stand-in between two passes. It ends with the process, like Karmada's: after a restart, everything is
/// processed once more (fact 56).
struct Federation {
    hub: Plane,
    cells: BTreeMap<String, Plane>,
    /// Health of each cluster.
    health: HashMap<String, Health>,
    /// The state that each template's binding was last made from (fact 49).
    bound: HashMap<String, Bound>,
    /// Generation and clusters of each binding at its last scheduling.
    scheduled: HashMap<String, (i64, String)>,
    /// The last distribution of each parent (fact 50).
    distributed: HashMap<String, Distributed>,
    /// Generation of each binding when its Works were last made (fact 55).
    spread: HashMap<String, i64>,
    controls: Arc<Controls>,
    interpreter: Interpreter,
    probed: Option<tokio::time::Instant>,
    /// Log file for failed passes.
    log: PathBuf,
    /// The last logged failure.
    failed: String,
}

impl StandIn {
    /// Starts the stand-in for `hub` and the named cells. It logs failures into `log`.
    pub fn start(hub: Client, cells: Vec<(String, Client)>, log: PathBuf) -> Self {
        let stop = CancellationToken::new();
        let changed = Arc::new(Notify::new());
        let controls = Arc::new(Controls::default());
        let hub = Plane::hub(hub, &controls, &changed, &stop);
        let cells = cells.into_iter().map(|(name, client)| (name, Plane::cell(client, &changed, &stop))).collect();
        let federation = Federation {
            hub,
            cells,
            health: HashMap::new(),
            bound: HashMap::new(),
            scheduled: HashMap::new(),
            distributed: HashMap::new(),
            spread: HashMap::new(),
            controls: controls.clone(),
            interpreter: Interpreter::default(),
            probed: None,
            log,
            failed: String::new(),
        };
        let (stopped, wake) = (stop.clone(), changed.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = federation.run(changed) => {}
            }
        });
        Self { controls, changed: wake, _stop: stop.drop_guard() }
    }

    /// Switches the feature gate PropagateDeps. The default is on.
    pub fn propagate_deps(&self, on: bool) {
        self.controls.set_distributes(on);
        self.changed.notify_one();
    }

    /// Switches the notice of every new or changed dependency. The default is on. Karmada before 1.15.3 only noticed the first of
    /// each kind (its issue 6924). Another one reached the members when its parent was processed for another reason.
    pub fn hear_of_later(&self, on: bool) {
        self.controls.set_hears_of_later(on);
        self.changed.notify_one();
    }

    /// Switches the eviction from clusters with a `NoExecute` taint (fact 81). The default is off.
    pub fn evict_tainted(&self, on: bool) {
        self.controls.set_evicts_tainted(on);
        self.changed.notify_one();
    }

    /// Limits the writes to the hub per second. The default is no limit. Real Karmada's controller-manager makes 40 calls a
    /// second by default (`--kube-api-qps`).
    pub fn writes_per_second(&self, writes: Option<u32>) {
        self.controls.set_writes_per_second(writes);
    }

    /// Sets the time for which an unreachable cluster counts as ready (fact 31). The default is 2 s. Real Karmada takes about 35
    /// s. In that time, writes to the cluster fail with the network's error.
    pub fn failure_threshold(&self, threshold: Duration) {
        self.controls.set_failure_threshold(threshold);
    }

    /// Requests the order of fact 58 in one binding. The scheduler reads it now, and writes its result (clusters, placement and
    /// its annotation) once another client has removed the placement. It does so once. If the placement is never removed, nothing
    /// happens. [`Self::late_write_is_read`] is true once it has read.
    pub fn write_late(&self, namespace: &str, binding: &str) {
        self.controls.ask_late_write(namespace, binding);
        self.changed.notify_one();
    }

    /// True if a write requested by [`Self::write_late`] is prepared and still pending.
    pub fn late_write_is_read(&self, namespace: &str, binding: &str) -> bool {
        self.controls.late_write_is_read(namespace, binding)
    }
}

impl Federation {
    /// Runs one pass after every change, and one a second for changes without an event. After a failure it runs sooner.
    async fn run(mut self, changed: Arc<Notify>) {
        self.hub.wait_ready().await;
        let mut patience = QUIET;
        loop {
            let _ = tokio::time::timeout(patience, changed.notified()).await;
            // Any step may lose a race with another writer, and the next pass sees the result. A permanent failure blocks nothing
            // else.
            patience = match self.pass().await {
                Ok(()) => QUIET,
                Err(error) => {
                    self.note(&format!("{error:#}"));
                    tokio::time::sleep(SHORTEST_PAUSE).await;
                    if patience == QUIET { SHORTEST_PAUSE } else { (patience * 2).min(LONGEST_PAUSE) }
                }
            };
        }
    }

    /// Logs the failure of a pass, unless the previous pass failed in the same way.
    fn note(&mut self, failure: &str) {
        if self.failed != failure {
            failure.clone_into(&mut self.failed);
            let now = k8s_openapi::jiff::Timestamp::now();
            let written = File::options().create(true).append(true).open(&self.log);
            // An unwritable log is no reason to stop.
            let _ = written.and_then(|mut file| writeln!(file, "{now} {failure}"));
        }
    }

    /// Runs every step, even after a failed one. As in Karmada, a failing object blocks no other.
    async fn pass(&mut self) -> Result<()> {
        let mut failures = Failures::default();
        failures.note(self.probe_clusters().await);
        failures.note(self.release_policies().await);
        failures.note(self.drop_unselected().await);
        failures.note(self.claim_templates().await);
        failures.note(self.bind_templates().await);
        failures.note(self.evict_tainted().await);
        failures.note(self.schedule().await);
        failures.note(self.distribute_dependencies().await);
        failures.note(self.release_bindings().await);
        failures.note(self.make_works().await);
        failures.note(self.execute_works().await);
        failures.note(self.collect_status().await);
        failures.result()
    }
}

/// Wait for a change while nothing fails.
const QUIET: Duration = Duration::from_secs(1);
/// First pause after a failed pass. It doubles with each failure up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Failures of a step that continues with the next object.
#[derive(Debug, Default)]
struct Failures(Vec<String>);

impl Failures {
    fn note(&mut self, done: Result<()>) {
        self.0.extend(done.err().map(|error| format!("{error:#}")));
    }

    fn result(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(anyhow::anyhow!(self.0.join("; "))) }
    }
}
