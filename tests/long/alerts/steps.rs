//! Steps of the provocations.

use std::{fs, time::Duration};

use jiff::Timestamp;
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{
    manifests,
    neighbours::{Reach, grant},
    operator::Operator,
};
use tokio::task::JoinHandle;

use super::provocations::{BINDINGS, MANAGEMENT, MISSED, Stage, YOUNG};
use crate::{
    common::{
        api, apply, binary, condition, delete, deployment, eventually,
        example_app::{secret, using},
        get, hub_namespace, list, merge, path,
        refusal::Refusal,
        template, workload,
    },
    scraping::Prometheus,
};

const DEFINITION: &str = "crds/compute.datumapis.com_workloaddeployments.yaml";
/// Number of Workloads with refused deployments.
const REFUSED: usize = 6;

impl Stage {
    pub(super) async fn deploy(&self, name: &str, city: &str) {
        apply(&self.world.project, workload(&self.ns, name, &[city], 1)).await;
    }

    pub(super) async fn label(&self, city: Option<&str>) {
        let label = json!({ "metadata": { "labels": { "topology.datum.net/city-code": city } } });
        merge(&self.world.hub, "Cluster", "", "cell-dfw", label).await;
    }

    pub(super) async fn drain(&self, value: Value) {
        let drain = json!({ "metadata": { "annotations": { "compute.datumapis.com/drain": value } } });
        merge(&self.world.hub, "Cluster", "", "cell-dfw", drain).await;
    }

    /// Deletes a deployment while its cell is unavailable.
    pub(super) async fn take_cell_away(&mut self) {
        let world = &mut *self.world;
        apply(&world.project, deployment(&self.ns, "kept", "ord")).await;
        eventually("it is on the cell", || async {
            get(&world.ord, "WorkloadDeployment", &self.hub, "kept").await.map(drop).ok_or("not yet".to_owned())
        })
        .await;
        world.bed.cells.get_mut("ord").unwrap().stop_api_server();
        eventually("Karmada has noticed", || async {
            let cluster = get(&world.hub, "Cluster", "", "cell-ord").await.ok_or("none")?;
            let ready = condition(&cluster, "Ready")["status"].clone();
            if ready == "True" { Err(ready.to_string()) } else { Ok(()) }
        })
        .await;
        delete(&world.project, "WorkloadDeployment", &self.ns, "kept").await;
    }

    /// Makes quota unavailable, and claims more of it.
    pub(super) async fn quota(&self, reach: Reach) {
        self.world.bed.milo.as_ref().unwrap().set("single", reach);
        self.deploy("more", "dfw").await;
    }

    /// Deletes an Instance after its project was deleted in the quota backend.
    pub(super) async fn forget_project(&mut self) {
        let (world, name) = (&*self.world, format!("gone-{:06x}", fastrand::u32(..0x0100_0000)));
        let milo = world.bed.milo.as_ref().unwrap();
        milo.add(&name, &world.bed.project).await.unwrap();
        let namespace = |name: &str, labels: Value| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
        apply(&world.project, namespace(&name, json!({}))).await;
        apply(&world.project, grant(&name, 9)).await;
        self.left = hub_namespace();
        let labels = json!({ "meta.datumapis.com/upstream-cluster-name": format!("cluster-{name}"), "meta.datumapis.com/upstream-namespace": name });
        apply(&world.dfw, namespace(&self.left, labels)).await;
        let mut object = deployment(&self.left, "wd", "dfw");
        object["metadata"]["labels"] = json!({ "meta.datumapis.com/upstream-namespace": "whatever" });
        apply(&world.dfw, object).await;
        eventually("its claim is granted", || async {
            let instance = get(&world.dfw, "Instance", &self.left, "wd-0").await.ok_or("none")?;
            let said = condition(&instance, "QuotaGranted");
            if said["status"] == "True" { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
        milo.set(&name, Reach::Absent);
        delete(&world.dfw, "WorkloadDeployment", &self.left, "wd").await;
        // Garbage collection in Kubernetes can be slow.
        delete(&world.dfw, "Instance", &self.left, "wd-0").await;
    }

    pub(super) async fn bring_stranger(&self) {
        let stranger = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": { "name": "stranger", "namespace": self.hub }, "spec": template("i")["spec"],
        });
        apply(&self.world.hub, stranger).await;
    }

    /// Creates deployments, and waits until each is on its cell.
    pub(super) async fn deployments(&self, count: usize) {
        for n in 0..count {
            apply(&self.world.project, deployment(&self.ns, &format!("many-{n}"), "dfw")).await;
        }
        eventually("all are on the cell", || async {
            let all = list(&self.world.dfw, "WorkloadDeployment", &self.hub).await;
            let there = all.iter().filter(|wd| wd.name_any().starts_with("many-")).count();
            if there == count { Ok(()) } else { Err(there.to_string()) }
        })
        .await;
    }

    pub(super) async fn remove_deployments(&self, count: usize) {
        for n in 0..count {
            delete(&self.world.project, "WorkloadDeployment", &self.ns, &format!("many-{n}")).await;
        }
    }

    pub(super) async fn take_bindings(&self) {
        self.deployments(BINDINGS).await;
        for n in 0..BINDINGS {
            delete(&self.world.hub, "ResourceBinding", &self.hub, &format!("many-{n}-workloaddeployment")).await;
        }
    }

    /// Deploys an application with its own Secret.
    pub(super) async fn deploy_using(&self, name: &str) {
        let (mut data, mut app) = (secret(&self.ns), using(&self.ns, &["dfw"]));
        for object in [&mut data, &mut app] {
            object["metadata"]["name"] = json!(name);
        }
        app["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
            json!([{ "secretRef": { "name": name } }]);
        apply(&self.world.project, data).await;
        apply(&self.world.project, app).await;
    }

    /// Serves the webhooks with a certificate that expires in two days.
    pub(super) fn certificate_ends(&self) {
        let end = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().saturating_add(jiff::Span::new().days(2));
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.not_after =
            rcgen::date_time_ymd(end.year().into(), end.month().unsigned_abs(), end.day().unsigned_abs());
        let key = rcgen::KeyPair::generate().unwrap();
        let dir = self.world.bed.dir();
        fs::write(dir.join("ends.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(dir.join("ends.key"), key.serialize_pem()).unwrap();
        self.webhooks.serve_under("ends").unwrap();
    }

    /// Starts a second manager of a cell. It has no quota credentials, and reports that on every Instance.
    pub(super) fn second_manager(&mut self) {
        self.world.bed.options_mut().quota = false;
        self.second = Some(Operator::cell(&self.world.bed, binary(), "dfw", &[]).unwrap());
        self.world.bed.options_mut().quota = true;
    }

    /// Starts a manager that waits for a Lease of an inactive holder.
    pub(super) async fn hold_lease(&mut self, prometheus: &Prometheus) {
        let now = Timestamp::now();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "e98b06c6.datumapis.com", "namespace": "compute-system" },
            "spec": {
                "holderIdentity": "somebody", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
                "acquireTime": format!("{now:.6}"), "renewTime": format!("{now:.6}"),
            },
        });
        manifests::apply_value(&self.world.project, lease).await.unwrap();
        // The webhooks are off, because they have only one port.
        self.world.bed.options_mut().management = MANAGEMENT.into();
        let standby = Operator::management(&self.world.bed, binary(), "standby", &["--leader-elect"]).unwrap();
        prometheus.look_at(self.world.operators.iter().chain([&standby]));
        self.second = Some(standby);
    }

    pub(super) async fn refuse(&self) {
        refusal().begin(&self.world.project, &deployment(&self.ns, "refused", "dfw")).await;
        for n in 0..REFUSED {
            self.deploy(&format!("refused-{n}"), "dfw").await;
        }
    }

    pub(super) async fn remove_workloads(&self) {
        for n in 0..REFUSED {
            delete(&self.world.project, "Workload", &self.ns, &format!("refused-{n}")).await;
        }
    }

    /// Removes the manager's right to watch the locations of cities.
    pub(super) async fn take_right(&self) {
        let text = fs::read_to_string(path("config/components/controller_rbac/role.yaml")).unwrap();
        let mut role = manifests::documents(&text).unwrap().remove(0);
        let rules = role["rules"].as_array_mut().unwrap();
        rules.retain(|rule| rule["apiGroups"][0] != "networking.datumapis.com");
        manifests::apply_value(&self.world.project, role).await.unwrap();
    }

    /// Creates an undecodable deployment while its definition is loose.
    pub(super) async fn garble(&self) {
        let project = &self.world.project;
        apply(project, deployment(&self.ns, "bad", "dfw")).await;
        let mut loose = manifests::documents(&fs::read_to_string(path(DEFINITION)).unwrap()).unwrap().remove(0);
        loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        // They must name fields of the schema.
        loose["spec"]["versions"][0].as_object_mut().unwrap().remove("selectableFields");
        manifests::apply_value(project, loose).await.unwrap();
        let garble = Patch::Merge(json!({ "spec": { "scaleSettings": "many" } }));
        eventually("it is garbled", || async {
            let deployments = api(project, "WorkloadDeployment", &self.ns);
            deployments.patch("bad", &PatchParams::default(), &garble).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }

    pub(super) async fn ungarble(&self) {
        let project = &self.world.project;
        for settings in [Value::Null, json!({ "minReplicas": 1 })] {
            merge(project, "WorkloadDeployment", &self.ns, "bad", json!({ "spec": { "scaleSettings": settings } }))
                .await;
        }
        manifests::apply(project, &fs::read_to_string(path(DEFINITION)).unwrap()).await.unwrap();
        delete(project, "WorkloadDeployment", &self.ns, "bad").await;
        eventually("the deployment is deleted", || async {
            let left = get(project, "WorkloadDeployment", &self.ns, "bad").await;
            if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
        })
        .await;
    }

    /// Restores the project's etcd from a backup that lacks many deployments.
    pub(super) async fn restore(&mut self) {
        let backup = self.world.bed.back_up_project().await.unwrap();
        self.deployments(MISSED).await;
        tokio::time::sleep(YOUNG).await;
        self.world.bed.restore_project(&backup).await.unwrap();
    }

    pub(super) async fn remove_lease(&self) {
        let leases = api(&self.world.project, "Lease", "compute-system");
        let _ = leases.delete("e98b06c6.datumapis.com", &DeleteParams::default()).await;
    }
}

/// Starts a tenant's program that changes a Workload several times a second.
pub(super) fn change_without_end(project: Client, ns: String) -> JoinHandle<()> {
    tokio::spawn(async move {
        for n in 0_u64.. {
            let change = json!({ "metadata": { "annotations": { "example.com/change": n.to_string() } } });
            merge(&project, "Workload", &ns, "web", change).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

/// Returns a policy that refuses deployments of Workloads with these names.
pub(super) fn refusal() -> Refusal<'static> {
    Refusal {
        name: "alerts",
        kind: ("compute.datumapis.com", "workloaddeployments"),
        operation: "CREATE",
        unless: "!object.metadata.name.startsWith('refused')",
    }
}
