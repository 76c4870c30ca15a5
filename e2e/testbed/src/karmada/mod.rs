//! Karmada on the hub: the real thing when its binaries are given, else a stand-in for the parts that we touch.

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

/// Which Karmada to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Ours: see [`StandIn`].
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
    /// Real when `KARMADA_BIN` and `KARMADA_CRDS` are set.
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
/// It acts when Karmada would: the scheduler on a change of a claimed binding's spec or of any cluster, the distributor
/// on a change of a parent's spec or of a dependency, the binding controller on a change of a binding's spec. What it has
/// seen it forgets with the process.
///
/// It keeps the facts of `docs/karmada.md`, each of them a test in `tests/it/karmada_contract`. It does not keep 6, 14, 44, 45
/// and 76 (timing), 9 (endless retries), 20 (versions), 60 and 61 (not looked for), 72 (the bed keeps the members' credentials)
/// and 80 (its watches are back at once).
///
/// Other simplifications:
/// - 2: the distributor's finalizer comes with the binding. Karmada adds it once the script has answered.
/// - 24: a template that no policy selects any more always keeps its claim. Karmada removes it unless another policy was
///   quicker.
/// - 25: copies are always recreated. Karmada recreates them in most runs.
/// - 31: a cluster stays ready for 2 s unless a test makes it longer. A slow cluster counts as ready for 15 s. One whose APIs
///   cannot be read keeps those that it had, where Karmada lists what it could read. One that is back is ready at once.
/// - 38: a script that comes back is asked at once. Karmada asks it when a template is touched.
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

/// The state of the stand-in between two passes. What it has seen of an object is forgotten with the process, as Karmada
/// forgets it: after a restart all is looked at once more (fact 56).
struct Federation {
    hub: Plane,
    cells: BTreeMap<String, Plane>,
    /// Whether each cluster is there.
    health: HashMap<String, Health>,
    /// What each template's binding was last made of (fact 49).
    bound: HashMap<String, Bound>,
    /// Generation of each binding, and the clusters, when it was last scheduled.
    scheduled: HashMap<String, (i64, String)>,
    /// Each parent, and its dependencies, when they were last distributed (fact 50).
    distributed: HashMap<String, Distributed>,
    /// Generation of each binding when its Works were last made (fact 55).
    spread: HashMap<String, i64>,
    controls: Arc<Controls>,
    interpreter: Interpreter,
    probed: Option<tokio::time::Instant>,
    /// Where failures of passes are written.
    log: PathBuf,
    /// The failure that was written last.
    failed: String,
}

impl StandIn {
    /// Starts working on `hub` and the named cells. What fails is written into `log`.
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

    /// Switches the feature gate PropagateDeps; it is on at first.
    pub fn propagate_deps(&self, on: bool) {
        self.controls.set_distributes(on);
        self.changed.notify_one();
    }

    /// Whether it hears of every dependency that comes or changes, as at first. Karmada before 1.15.3 heard of the first of
    /// each kind alone (its issue 6924): another one reached the members when its parent was looked at for another reason.
    pub fn hear_of_later(&self, on: bool) {
        self.controls.set_hears_of_later(on);
        self.changed.notify_one();
    }

    /// Whether it evicts what is on a cluster with a `NoExecute` taint (fact 81); not at first.
    pub fn evict_tainted(&self, on: bool) {
        self.controls.set_evicts_tainted(on);
        self.changed.notify_one();
    }

    /// How many times a second the hub is written to at most; as fast as can be when there is no limit, as at first. Real
    /// Karmada's controller-manager keeps to 40 calls a second unless it is told otherwise (`--kube-api-qps`).
    pub fn writes_per_second(&self, writes: Option<u32>) {
        self.controls.set_writes_per_second(writes);
    }

    /// How long a cluster that does not answer still counts as ready (fact 31): 2 s at first, where real Karmada takes
    /// about 35 s. In that window what is written to it is refused with the network's error.
    pub fn failure_threshold(&self, threshold: Duration) {
        self.controls.set_failure_threshold(threshold);
    }

    /// Asks for the order of fact 58 in one binding: the scheduler reads it now, and writes its result (clusters, placement
    /// and the annotation about it) once somebody has taken the placement out. It does so once; a placement that is
    /// never taken out is left alone. [`Self::late_write_is_read`] says when it has read.
    pub fn write_late(&self, namespace: &str, binding: &str) {
        self.controls.ask_late_write(namespace, binding);
        self.changed.notify_one();
    }

    /// Whether a write asked for by [`Self::write_late`] has been prepared and is still to come.
    pub fn late_write_is_read(&self, namespace: &str, binding: &str) -> bool {
        self.controls.late_write_is_read(namespace, binding)
    }
}

impl Federation {
    /// One pass after every change, and one a second for what no event tells; sooner where something has failed.
    async fn run(mut self, changed: Arc<Notify>) {
        self.hub.wait_ready().await;
        let mut patience = QUIET;
        loop {
            let _ = tokio::time::timeout(patience, changed.notified()).await;
            // Any step may lose a race with another writer; the next pass, soon, sees what came of it. What fails each time
            // keeps nothing else waiting.
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

    /// Writes the failure of a pass into the log, unless the pass before failed in the same way.
    fn note(&mut self, failure: &str) {
        if self.failed != failure {
            failure.clone_into(&mut self.failed);
            let now = k8s_openapi::jiff::Timestamp::now();
            let written = File::options().create(true).append(true).open(&self.log);
            // A log that cannot be written is no reason to stop working.
            let _ = written.and_then(|mut file| writeln!(file, "{now} {failure}"));
        }
    }

    /// Every step, whatever became of the one before: as in Karmada, one object that cannot be dealt with holds up no
    /// other.
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

/// How long to wait for a change while nothing fails.
const QUIET: Duration = Duration::from_secs(1);
/// First pause after a pass that failed in part; it doubles while passes fail, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What went wrong in a step that goes on with the next object.
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
