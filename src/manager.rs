//! Wiring: clients, watches, leadership, controllers, and an orderly end.

use std::{
    iter,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, WaitingList},
    admission::{self, Claimed, Planes},
    api::names::ProjectName,
    config::{self, Config, Discovery, Serving, Webhook},
    controllers::{
        cell::{self, CellControllers},
        management::{self, ManagementControllers},
    },
    io::{
        clients::{Connection, Projects},
        credentials::{self, Credentials, Source},
        health::Health,
        leadership::Leadership,
        lease::{self, Candidate},
        requests::Meter,
        server::{self, Certificate},
    },
    metrics::{Host, Metrics},
};

/// Longest time for work under way to end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);

/// Longest time from SIGTERM to the end of the process. The work ends first, then the Lease (one renewal and the release), then
/// the last webhook requests. The manifests give the pod longer.
pub const ENDS_WITHIN: Duration = Duration::from_secs(
    SHUTDOWN_GRACE.as_secs() + 2 * lease::LONGEST_ATTEMPT.as_secs() + server::LONGEST_END.as_secs(),
);

/// Longest time for work under way to end after a lost Lease.
const SHUTDOWN_GRACE_AFTER_LOSS: Duration = Duration::from_secs(2);

/// Causes of an end that was not requested.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is invalid; nothing was started.
    #[error("{0}")]
    Config(String),
    /// Another replica holds the Lease; two must not write.
    #[error("leadership lost")]
    LeadershipLost,
}

/// Runs until `stop`.
///
/// Watches start at once, on every replica, so that a new leader has warm caches. Work starts with leadership.
///
/// # Errors
/// See [`Failure`].
pub async fn run(config: Config, stop: CancellationToken) -> Result<(), Failure> {
    let (health, metrics) = (Health::default(), Metrics::default());
    for warning in &config.warnings {
        tracing::warn!(warning, "configuration");
    }
    let loader = Loader { metrics: &metrics, health: &health, stop: &stop };
    let local = loader.connect(&config.kubeconfig, Host::Home)?;
    let hub = config.federation.as_ref().map(|source| loader.connect(source, Host::Hub)).transpose()?;
    let admission_health = config.webhook.as_ref().map(|_| Health::default());
    // The replica is not ready before every readiness check is registered.
    let starting: Vec<_> = iter::once(&health).chain(&admission_health).map(|h| h.watch("start".into())).collect();
    if let Some(at) = config.health {
        admin::serve_health(at, health.clone(), admission_health.clone(), stop.clone()).map_err(Failure::Config)?;
    }
    let waiting = WaitingList::default();
    if let Some(server) = &config.metrics {
        // The access checks get their own connection: callers without rights must not delay other requests.
        let asked = loader.connect(&config.kubeconfig, Host::Home)?;
        serve_metrics(server, asked, (&metrics, &waiting), &health, &stop).map_err(Failure::Config)?;
    }
    // Webhooks run on every replica, leader or not, and start before anything that may wait. They write nothing, so they may
    // outlive a Lease.
    let (claimed, answering) = (Claimed::default(), stop.child_token());
    let admission = match (&config.webhook, admission_health) {
        (Some(webhook), Some(health)) => {
            Some(start_admission(&config, webhook, local.clone(), claimed.clone(), &health, loader, &answering).await?)
        }
        _ => None,
    };
    drop(starting);
    let management = match hub.clone().filter(|_| config.management) {
        Some(hub) => Some(start_management(&config, local.clone(), hub, &claimed, loader)?),
        None => None,
    };
    if let Some(management) = &management {
        waiting.is_answered_by(management.waiting());
    }
    let cell = if config.cell { Some(start_cell(&config, local.clone(), hub, loader)?) } else { None };

    let working = stop.child_token();
    let leadership = match config.leader_election.clone() {
        None => None,
        Some(namespace) => {
            let (health, timing) = (health.clone(), config.timing);
            let make = move || Ok(Candidate::new(local.apart()?, &namespace, identity(), &health, timing));
            let mut leadership = Leadership::seek(make, working.clone()).await.map_err(Failure::Config)?;
            tokio::select! {
                () = stop.cancelled() => {
                    end_of(admission).await;
                    return Ok(());
                }
                () = leadership.acquired() => {}
            }
            Some(leadership)
        }
    };
    metrics.leads(true);
    tracing::info!(management = config.management, cell = config.cell, "started");
    let (released, let_go) = tokio::sync::oneshot::channel::<()>();
    // The Lease outlives the work by a moment: it is released once no write of ours is under way.
    let leading = tokio::spawn(lead(leadership, working.clone(), let_go));
    tokio::select! {
        () = work(management.as_ref(), cell.as_ref(), &working) => {}
        () = deadline(&working, &stop) => tracing::warn!("some work did not finish before the shutdown deadline"),
    }
    let _ = released.send(());
    let kept = leading.await.unwrap_or(false);
    metrics.leads(false);
    // After a lost Lease too: a client that connects here would be refused while another replica serves it.
    answering.cancel();
    end_of(admission).await;
    if kept || stop.is_cancelled() { Ok(()) } else { Err(Failure::LeadershipLost) }
}

fn serve_metrics(
    server: &config::Metrics,
    local: Connection,
    (metrics, waiting): (&Metrics, &WaitingList),
    health: &Health,
    stop: &CancellationToken,
) -> Result<(), String> {
    match &server.serving {
        Serving::Plain => admin::serve_metrics(server.at, metrics.clone(), stop.clone()),
        Serving::Secure(files) => {
            let content = (metrics.clone(), waiting.clone());
            admin::serve_metrics_securely(server.at, files.clone(), local, content, health, stop.clone())
        }
    }
}

async fn start_admission(
    config: &Config,
    webhook: &Webhook,
    local: Connection,
    claimed: Claimed,
    health: &Health,
    loader: Loader<'_>,
    stop: &CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let planes = match &config.discovery {
        Discovery::Single => Planes::single(local),
        Discovery::Milo { projects, internal, .. } => Planes::milo(loader.projects(projects, internal.as_deref())?),
    };
    let certificate = Certificate::counted("webhook", loader.metrics);
    let (files, resolvers) = (webhook.files.clone(), webhook.resolvers.clone());
    let settings = admission::Settings { at: webhook.at, files, certificate, resolvers };
    admission::start(settings, planes, claimed, health, stop.clone()).await.map_err(Failure::Config)
}

/// Waits for the last request; the server limits that wait itself.
async fn end_of(admission: Option<JoinHandle<()>>) {
    if let Some(admission) = admission {
        let _ = admission.await;
    }
}

fn start_management(
    config: &Config,
    local: Connection,
    hub: Connection,
    claimed: &Claimed,
    loader: Loader<'_>,
) -> Result<ManagementControllers, Failure> {
    let options = management::Options {
        networks: config.networks,
        beside_cell: config.cell && config.discovery == Discovery::Single,
        limits: config.limits,
        propagation: config.propagation,
        city_guard: config.city_guard,
        karmada: config.karmada,
        sweep: config.sweep,
        repair: config.repair,
        timing: config.timing,
    };
    let management = ManagementControllers::start(hub, options, loader.health, loader.metrics, loader.stop);
    claimed.is_known_by(management.claimed());
    match &config.discovery {
        Discovery::Single => management.engage(&ProjectName::single(), local),
        Discovery::Milo { discovery, projects, internal } => {
            let projects = loader.projects(projects, internal.as_deref())?;
            let discovery = loader.connect(discovery, Host::Milo)?;
            management.discover(discovery, projects, internal.is_some(), loader.health, loader.stop);
        }
    }
    Ok(management)
}

fn start_cell(
    config: &Config,
    cell: Connection,
    hub: Option<Connection>,
    loader: Loader<'_>,
) -> Result<CellControllers, Failure> {
    if hub.is_none() {
        tracing::warn!("no --federation-kubeconfig: Instances are not written back to the hub");
    }
    let quota = match &config.quota {
        Some(quota) => Some((quota.names.clone(), loader.projects(&quota.projects, quota.internal.as_deref())?)),
        None => None,
    };
    Ok(CellControllers::start(
        cell::Options {
            cell,
            hub,
            networks: config.networks,
            data: config.data,
            quota,
            abandon_claims: config.abandon_claims,
            timing: config.timing,
        },
        loader.health,
        loader.metrics,
        loader.stop,
    ))
}

/// Runs the controllers, which only a leader does, until `working` is cancelled.
async fn work(management: Option<&ManagementControllers>, cell: Option<&CellControllers>, working: &CancellationToken) {
    let management = async {
        if let Some(management) = management {
            management.run(working).await;
        }
    };
    let cell = async {
        if let Some(cell) = cell {
            cell.run(working).await;
        }
    };
    tokio::join!(management, cell);
}

/// Holds the Lease until the work has ended. If the Lease is lost before, it stops the work and returns false.
async fn lead(
    leadership: Option<Leadership>,
    working: CancellationToken,
    let_go: tokio::sync::oneshot::Receiver<()>,
) -> bool {
    let Some(leadership) = leadership else {
        let _ = let_go.await;
        return true;
    };
    let kept = leadership.hold(let_go).await;
    working.cancel();
    kept
}

/// Waits until cancelled work has had its time to end. After a lost Lease that is short: the next leader starts when the Lease
/// expires, a few seconds after the failed renewal.
async fn deadline(working: &CancellationToken, stop: &CancellationToken) {
    working.cancelled().await;
    tokio::time::sleep(if stop.is_cancelled() { SHUTDOWN_GRACE } else { SHUTDOWN_GRACE_AFTER_LOSS }).await;
}

/// Loads kubeconfigs, reloads them as long as the process runs, and reports the result.
#[derive(Clone, Copy)]
struct Loader<'a> {
    metrics: &'a Metrics,
    health: &'a Health,
    stop: &'a CancellationToken,
}

impl Loader<'_> {
    fn connect(self, source: &Source, host: Host) -> Result<Connection, Failure> {
        let meter = Meter::new(self.metrics, host);
        Connection::metered(self.load(source, host)?, Some(meter)).map_err(Failure::Config)
    }

    /// Returns the projects; `domain` is that of the cluster that has each project's control plane as a service.
    fn projects(self, source: &Source, domain: Option<&str>) -> Result<Projects, Failure> {
        Ok(Projects::new(self.load(source, Host::Project)?).inside(domain).counted(self.metrics))
    }

    /// Reads a kubeconfig for servers of this kind, and reads it again whenever its files change. Each read reports the end of
    /// its client certificate and of its token, if it has one. An unusable change is reported on `/readyz` and as a metric.
    fn load(self, source: &Source, host: Host) -> Result<Credentials, Failure> {
        let credentials = credentials::load(source).map_err(Failure::Config)?;
        let metrics = self.metrics.clone();
        let report_expiry = move |credentials: &Credentials| {
            if let Some(until) = credentials.good_until() {
                metrics.client_certificate(host, until);
            }
            let token = credentials.token();
            metrics.token(host, token.map(|token| token.until), token.and_then(|token| token.since));
        };
        report_expiry(&credentials);
        let (metrics, health) = (self.metrics.clone(), self.health.clone());
        // Several kubeconfigs may serve one kind of server: each has its own line.
        let what = source.path.as_ref().map_or_else(|| "default".to_owned(), |path| path.display().to_string());
        let line = Mutex::new(None);
        let report_change = move |read: Result<&Credentials, &str>| {
            metrics.kubeconfig_unusable(host, read.is_err());
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            match read {
                Ok(credentials) => {
                    report_expiry(credentials);
                    *line = None;
                }
                Err(why) => {
                    let name = || format!("kubeconfig {what} for the {} API server", host.label());
                    let entry = line.get_or_insert_with(|| health.tenant_watch(name()));
                    entry.trying();
                    entry.failed(&format!("it changed and cannot be used; the earlier one stays in use: {why}"));
                }
            }
        };
        tokio::spawn(credentials.clone().keep(source.clone(), report_change, self.stop.clone()));
        Ok(credentials)
    }
}

/// Returns an identity that is unique per process: two replicas on one host differ as well.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "compute-operator".into());
    format!("{host}_{:016x}", fastrand::u64(..))
}
