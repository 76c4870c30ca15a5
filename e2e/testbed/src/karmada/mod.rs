//! Karmada on the hub: the real thing when its binaries are given, else a stand-in for the parts that we touch.

mod bindings;
mod cache;
mod claims;
mod interpreter;
pub mod lua;
mod real;
mod works;

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use real::Real;

use self::{cache::Plane, interpreter::Interpreter};

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
/// It keeps these facts of its measured behaviour, each of them a test in `tests/karmada_contract`:
/// 1 claims; 2 bindings, their names, owners and finalizers; 3 scheduling, Works, `FullyApplied`; 4 namespaces;
/// 5 marks on the member; 7 labels and annotations propagate; 8 others' additions survive, our fields are put back;
/// 10 status comes back through the interpreter's own Lua; 12 deletion does not wait for the member; 13 a policy that
/// goes leaves the object; 15 to 18 dependencies; 19 only of the own namespace; 29 no cluster fits; 32 Works of a
/// deleted template wait for their cluster; 33 what is there already is refused; 34, 35 claims of other policies;
/// 36 a dependency that comes late; 37 the feature gate off; 38 no script; 39 an invalid name holds up the others;
/// 40, 41 odd dependency annotations; 42 a cluster that loses its label; 46 and 48 two affinity groups, of which a binding goes on from where it is;
/// 49, 50 a lost binding stays lost until a touch; 51, 52 claims outlive policies and labels; 53 protection (by an
/// admission policy); 54 copies are put back; 55 a lost Work stays lost until a touch or 56 a restart; 57 namespaces of
/// members come back.
///
/// Of the way from claims to dependencies it keeps 21 to 24, 26 and 27: claims are exclusive and sticky, and what they
/// leave in a binding stays there; 25, where all is changed at once, copies are made anew each time. It does not keep 28.
/// Nor: 6 and 14 (timing), 9 (endless retries), 20 (versions), 31 (the network error), 43 (the webhook's defaults), 44, 45.
#[derive(Debug)]
pub struct StandIn {
    distributes: Arc<AtomicBool>,
    changed: Arc<Notify>,
    _stop: DropGuard,
}

/// The state of the stand-in between two passes.
struct Federation {
    hub: Plane,
    cells: BTreeMap<String, Plane>,
    /// Whether each cell answered when last asked.
    reachable: HashMap<String, bool>,
    /// Version of each template, and of its policy, when its binding was last made (fact 49).
    bound: HashMap<String, String>,
    /// Version of each dependency, and who needed it, when its binding was last attached (fact 50).
    attached: HashMap<String, String>,
    /// What each Work said when it was made last (fact 55).
    worked: HashMap<(String, String), String>,
    /// The feature gate PropagateDeps (fact 37).
    distributes: Arc<AtomicBool>,
    interpreter: Interpreter,
    probed: Option<tokio::time::Instant>,
}

impl StandIn {
    /// Starts working on `hub` and the named cells.
    pub fn start(hub: Client, cells: Vec<(String, Client)>) -> Self {
        let stop = CancellationToken::new();
        let changed = Arc::new(Notify::new());
        let hub = Plane::hub(hub, &changed, &stop);
        let cells = cells.into_iter().map(|(name, client)| (name, Plane::cell(client, &changed, &stop))).collect();
        let distributes = Arc::new(AtomicBool::new(true));
        let federation = Federation {
            hub,
            cells,
            reachable: HashMap::new(),
            bound: HashMap::new(),
            attached: HashMap::new(),
            worked: HashMap::new(),
            distributes: distributes.clone(),
            interpreter: Interpreter::default(),
            probed: None,
        };
        let (stopped, wake) = (stop.clone(), changed.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = federation.run(changed) => {}
            }
        });
        Self { distributes, changed: wake, _stop: stop.drop_guard() }
    }

    /// Switches the feature gate PropagateDeps; it is on at first.
    pub fn propagate_deps(&self, on: bool) {
        self.distributes.store(on, Ordering::SeqCst);
        self.changed.notify_one();
    }
}

impl Federation {
    /// One pass after every change, and one a second for what no event tells.
    async fn run(mut self, changed: Arc<Notify>) {
        self.hub.wait_ready().await;
        loop {
            let _ = tokio::time::timeout(Duration::from_secs(1), changed.notified()).await;
            // Any step may lose a race with another writer; the next pass, soon, sees what came of it.
            if let Err(error) = self.pass().await {
                if std::env::var_os("TESTBED_DEBUG").is_some() {
                    eprintln!("karmada stand-in: {error:#}");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                changed.notify_one();
            }
        }
    }

    async fn pass(&mut self) -> Result<()> {
        self.probe_clusters().await?;
        self.release_policies().await?;
        self.drop_unselected().await?;
        self.claim_templates().await?;
        self.bind_templates().await?;
        self.schedule().await?;
        self.distribute_dependencies().await?;
        self.release_bindings().await?;
        self.make_works().await?;
        self.execute_works().await?;
        self.collect_status().await
    }
}
