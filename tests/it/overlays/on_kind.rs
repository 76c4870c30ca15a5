//! The overlays of `e2e/kind`, and those of a project in the cluster of a cell.

use testbed::{audit::Audit, bed::bind_location, control_plane::ControlPlane, neighbours::Worker, pki::User};

use super::{
    Stage,
    admitted::mark_as_copies,
    as_it_is, end,
    pod::{Pod, token},
    strip, supply, with_token,
};
use crate::common::optional::with_quota;

impl Stage {
    /// Runs the overlays of `e2e/kind`: first cells that wait for quota (one also for networks), then cells that wait for
    /// neither. Then the project moves into the cluster of a cell, first with its overlay, then with a manager outside of the
    /// cluster.
    pub(super) async fn on_kind_and_alone(&self) {
        let (project, hub) = (&self.bed.project, &self.bed.hub);
        let dfw = self.bed.cell("dfw").unwrap();
        strip(project).await;
        self.apply(project, "kind/management", as_it_is).await;
        let authority = self.door.authority().unwrap();
        let of_hub = token(hub, "compute-manager", None).await;
        supply(project, "compute-hub-credentials", &[("ca.crt", &authority), ("token", &of_hub)]).await;
        self.supply_certificate(project).await;
        let waiting = self.cells(["kind/cell-quota", "kind/cell-networks"]).await;
        let management = self.start(project, "kind-management", hub).await;
        let admin = project.client().await.unwrap();
        self.federates(project, &admin, "on-kind-waiting", &[&management, &waiting[0], &waiting[1]]).await;
        self.bound_networks("ord");
        for pods in waiting {
            end(pods).await;
        }
        let mut cells = self.cells(["kind/cell"; 2]).await;
        self.federates(project, &admin, "on-kind", &[&management, &cells[0], &cells[1]]).await;
        end(management).await;
        end(cells.remove(0)).await;

        self.apply(hub, "hub-single-cluster", as_it_is).await;
        strip(dfw).await;
        self.apply(dfw, "single-cluster", as_it_is).await;
        supply(dfw, "compute-hub-credentials", &[("ca.crt", &authority)]).await;
        let admin = dfw.client().await.unwrap();
        for city in ["dfw", "ord"] {
            bind_location(&admin, city).await.unwrap();
        }
        let both = self.start(dfw, "single-cluster", hub).await;
        assert_eq!(both.len(), 2);
        // A tenant may set any label on a deployment. No label makes it a copy. Here the label is set at once.
        let marking = tokio::spawn(mark_as_copies(admin.clone()));
        self.federates(dfw, &admin, "of-one-cluster", &[&both, &cells[0]]).await;
        marking.abort();
        end(both).await;
        self.with_own_quota(dfw, &cells[0]).await;
        let both = self.admitted(dfw, "single-cluster-admission").await;
        self.only_karmada_brings_unasked(dfw).await;
        self.federates(dfw, &admin, "of-one-admitted", &[&both, &cells[0]]).await;
        self.end_admission(dfw, both).await;

        self.dev(dfw, &cells[0]).await;
        end(cells.remove(0)).await;
    }
    /// Runs project and cell in one cluster, with Instances that wait for quota of that project. It uses the component and the
    /// config key that the overlay's comments name.
    async fn with_own_quota(&self, plane: &ControlPlane, others: &[Pod]) {
        let (milo, admin) = (self.bed.milo.as_ref().unwrap(), plane.client().await.unwrap());
        milo.add("single", plane).await.unwrap();
        let _grants = Worker::quota(admin.clone());
        let credentials = with_token(&milo.kubeconfig(&User::Admin), &token(plane, "compute-quota", None).await);
        supply(plane, "compute-quota-credentials", &[("kubeconfig", &credentials)]).await;
        self.apply(plane, "single-cluster with quota-credentials", |text| with_quota(&text)).await;
        let both = self.start(plane, "single-cluster-quota", &self.bed.hub).await;
        self.federates(plane, &admin, "of-one-with-quota", &[&both, others]).await;
        let uses = Audit::uses(plane, self.since.get()).unwrap();
        let claims =
            uses.iter().any(|one| one.resource.ends_with("/resourceclaims") && one.verb == "create" && one.had);
        assert!(claims, "no claim was created");
        end(both).await;
    }
}
