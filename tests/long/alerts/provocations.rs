//! Provocations of alerts, and their repair.

use std::time::Duration;

use serde_json::{Value, json};
use testbed::{
    admission::Webhooks,
    bed::bind_location,
    manifests,
    neighbours::{Reach, grant},
    operator::Operator,
};
use tokio::task::JoinHandle;

use super::steps::{change_without_end, refusal};
use crate::{
    common::{
        World, apply,
        beds::{Lent, Wish, alone},
        delete, eventually,
        example_app::{secret, using},
        path, ready,
    },
    scraping::Prometheus,
};

/// Waiting periods of the manager, shortened like those of the alerts, and a high limit of repairs.
pub(super) const MANAGEMENT: &str = "cleanup:\n  sweepIntervalSeconds: 5\nrepair:\n  perMinute: 600\n  burst: 100\ntiming:\n  \
                          deletionPatienceSeconds: 2\n  lossPatienceSeconds: 120\n";
/// A copy that is younger than that is deleted at once if its original is gone.
pub(super) const YOUNG: Duration = Duration::from_secs(21);
/// Those of the cells.
const CELL: &str = "timing:\n  takeoverPauseSeconds: 4\n  deletionPatienceSeconds: 5\n  errorGraceSeconds: 2\n";
/// Number of bindings that are deleted at once.
pub(super) const BINDINGS: usize = 24;
/// Number of lost deployments that are noticed.
pub(super) const MISSED: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provocation {
    HubAway,
    CellAway,
    CityWithoutCluster,
    LabelLost,
    DrainToNowhere,
    QuotaAway,
    BudgetTaken,
    ProjectGone,
    Stranger,
    BindingsTaken,
    CompanionUndelivered,
    CertificateEnds,
    SecondManager,
    TenantWithoutEnd,
    WorkloadsRefused,
    RightTaken,
    DeploymentGarbled,
    ProjectRestored,
    LeaseHeld,
    ManagersEnded,
}

use Provocation::{
    BindingsTaken, BudgetTaken, CellAway, CertificateEnds, CityWithoutCluster, CompanionUndelivered, DeploymentGarbled,
    DrainToNowhere, HubAway, LabelLost, LeaseHeld, ManagersEnded, ProjectGone, ProjectRestored, QuotaAway, RightTaken,
    SecondManager, Stranger, TenantWithoutEnd, WorkloadsRefused,
};

impl Provocation {
    /// All provocations in their order. The last one stops every operator.
    pub const ALL: [Self; 20] = [
        HubAway,
        CellAway,
        CityWithoutCluster,
        LabelLost,
        DrainToNowhere,
        QuotaAway,
        BudgetTaken,
        ProjectGone,
        Stranger,
        BindingsTaken,
        CompanionUndelivered,
        CertificateEnds,
        SecondManager,
        TenantWithoutEnd,
        WorkloadsRefused,
        RightTaken,
        DeploymentGarbled,
        ProjectRestored,
        LeaseHeld,
        ManagersEnded,
    ];

    /// Returns alerts that may fire in addition, because they report the same cause.
    pub fn beside(self) -> &'static [&'static str] {
        match self {
            // The affected deployments report the cause themselves.
            CompanionUndelivered | DrainToNowhere => &["ComputeDeploymentsBlocked"],
            // Here too. In addition, a cell repeats its pending writes. A server that has just started denies everything for a moment.
            HubAway => &["ComputeDeploymentsBlocked", "ComputePermissionMissing", "ComputeReconcileErrors"],
            // The manager checks missing objects for a while, on a server that has just started. In the meantime, the Instances
            // of missing deployments are quarantined, and restored deployments wait for a report on their generation.
            ProjectRestored => &[
                "ComputeControllerReconcileStorm",
                "ComputeDeploymentsBlocked",
                "ComputePermissionMissing",
                "ComputeQuarantinedInstances",
                "ComputeReconcileErrors",
            ],
            // Each deployment is reconciled again when Karmada has recreated its binding.
            BindingsTaken => &["ComputeControllerReconcileStorm", "ComputeDeploymentsBlocked"],
            // The cell's manager has lost its API server.
            CellAway => &["ComputeWatchFailing", "ComputeReconcileErrors"],
            // The cell repeats the reconciliation of the Instances.
            QuotaAway | ProjectGone => &["ComputeReconcileErrors"],
            _ => &[],
        }
    }
}

/// The federation for the provocations: an application with a Secret in both cities.
pub struct Stage {
    pub world: Lent<World>,
    pub(super) ns: String,
    pub(super) hub: String,
    pub(super) webhooks: Webhooks,
    pub(super) second: Option<Operator>,
    pub(super) busy: Option<JoinHandle<()>>,
    /// Namespace with leftovers of a provocation.
    pub(super) left: String,
}

impl Stage {
    pub async fn set() -> Self {
        let wish =
            Wish { networks_and_quota: true, management: MANAGEMENT.into(), cell: CELL.into(), ..Wish::default() };
        let mut world = alone(wish).await;
        let webhooks = Webhooks::new(&world.bed).unwrap();
        world.bed.options_mut().management += &webhooks.config();
        world.restart_manager(&[]).await;
        let (ns, hub) = world.namespace("alerts").await;
        apply(&world.project, secret(&ns)).await;
        apply(&world.project, using(&ns, &["dfw", "ord"])).await;
        ready(&world, &ns, "web", 2).await;
        Self { world, ns, hub, webhooks, second: None, busy: None, left: String::new() }
    }

    pub async fn provoke(&mut self, how: Provocation, prometheus: &Prometheus) {
        match how {
            HubAway => self.world.bed.hub.stop_api_server(),
            CellAway => self.take_cell_away().await,
            CityWithoutCluster => {
                bind_location(&self.world.project, "lhr").await.unwrap();
                self.deploy("nowhere", "lhr").await;
            }
            LabelLost => self.label(None).await,
            DrainToNowhere => self.drain(json!("true")).await,
            QuotaAway => self.quota(Reach::Away).await,
            BudgetTaken => {
                delete(&self.world.project, "ResourceGrant", &self.ns, "compute").await;
                self.deploy("more", "dfw").await;
            }
            ProjectGone => self.forget_project().await,
            Stranger => self.bring_stranger().await,
            BindingsTaken => self.take_bindings().await,
            CompanionUndelivered => {
                self.world.bed.stand_in().unwrap().propagate_deps(false);
                self.deploy_using("late").await;
            }
            CertificateEnds => self.certificate_ends(),
            SecondManager => self.second_manager(),
            TenantWithoutEnd => self.busy = Some(change_without_end(self.world.project.clone(), self.ns.clone())),
            WorkloadsRefused => self.refuse().await,
            RightTaken => self.take_right().await,
            DeploymentGarbled => self.garble().await,
            ProjectRestored => self.restore().await,
            LeaseHeld => self.hold_lease(prometheus).await,
            ManagersEnded => self.world.operators.iter_mut().for_each(|operator| operator.process.kill()),
        }
    }

    pub async fn mend(&mut self, how: Provocation, prometheus: &Prometheus) {
        let (project, ns) = (self.world.project.clone(), self.ns.clone());
        match how {
            HubAway => {
                self.world.bed.hub.start_api_server().unwrap();
                self.world.bed.hub.wait_ready().await.unwrap();
            }
            CellAway => {
                let ord = self.world.bed.cells.get_mut("ord").unwrap();
                ord.start_api_server().unwrap();
                ord.wait_ready().await.unwrap();
            }
            CityWithoutCluster => delete(&project, "Workload", &ns, "nowhere").await,
            LabelLost => self.label(Some("dfw")).await,
            DrainToNowhere => self.drain(Value::Null).await,
            QuotaAway => {
                self.world.bed.milo.as_ref().unwrap().set("single", Reach::Served);
                delete(&project, "Workload", &ns, "more").await;
            }
            BudgetTaken => {
                apply(&project, grant(&ns, 100)).await;
                delete(&project, "Workload", &ns, "more").await;
            }
            ProjectGone => delete(&self.world.dfw, "Namespace", "", &self.left).await,
            Stranger => delete(&self.world.hub, "Instance", &self.hub, "stranger").await,
            BindingsTaken => self.remove_deployments(BINDINGS).await,
            TenantWithoutEnd => self.busy.take().unwrap().abort(),
            CompanionUndelivered => {
                self.world.bed.stand_in().unwrap().propagate_deps(true);
                ready(&self.world, &ns, "late", 1).await;
                delete(&project, "Workload", &ns, "late").await;
            }
            CertificateEnds => self.webhooks.serve_under("server").unwrap(),
            SecondManager | LeaseHeld => {
                self.second = None;
                self.remove_lease().await;
                prometheus.look_at(&self.world.operators);
            }
            WorkloadsRefused => {
                refusal().end(&project).await;
                self.remove_workloads().await;
            }
            RightTaken => {
                let role = std::fs::read_to_string(path("config/components/controller_rbac/role.yaml")).unwrap();
                manifests::apply(&project, &role).await.unwrap();
            }
            DeploymentGarbled => self.ungarble().await,
            ProjectRestored => {
                self.deployments(MISSED).await;
                // If deployments are deleted before their return is noticed, they still count as missing.
                eventually("deletions go on", || async {
                    let paused = prometheus.ask("compute_deletions_paused == 1").await.unwrap();
                    if paused.is_empty() { Ok(()) } else { Err(format!("{paused:?}")) }
                })
                .await;
                self.remove_deployments(MISSED).await;
            }
            ManagersEnded => {
                self.world.start_operators(&[]).await;
                prometheus.look_at(&self.world.operators);
            }
        }
    }
}
