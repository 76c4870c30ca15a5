//! Every overlay of `config/` is applied as rendered and started. The binary runs with the overlay's flags, variables, files,
//! user and rights, and no others. The example of `config/samples` federates.

mod admitted;
mod dev;
mod on_kind;
mod pod;
mod trusted;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fs,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use kube::{
    Client, Config, ResourceExt,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use testbed::{
    Options, Testbed,
    admission::{role, rule},
    audit::Audit,
    bed::announce,
    control_plane::ControlPlane,
    door::Door,
    manifests,
    neighbours::grant,
    pki::User,
};

use self::{
    admitted::are_asked,
    dev::define,
    pod::{NS, Node, Pod, token},
};
use super::metrics_access::{Trust, scrape};
use crate::common::{
    RUNTIME, apply, bed, delete, eventually, get, list,
    optional::{of_managers, rendered, rendered_with},
    path,
};

/// Address of the hub in the manifests, which is also the audience of tokens.
const HUB: &str = "https://karmada-apiserver.karmada-system.svc.cluster.local:5443";
/// Address of the webhooks in the manifests for projects.
const WEBHOOKS: &str = "https://compute-webhook.compute-system.svc.cluster.local";
/// The cluster in which management of many projects runs. It is neither Milo nor a project.
const HOME: &str = "home";
/// A project registered in Milo.
const PROJECT: &str = "alpha";
/// A tenant of that project, with the rights that the example needs.
const TENANT: &str = "ada";
const PARENT_NAME: &str = "impersonate-extra-iam.miloapis.com%2fparent-name";

/// The planes, and the overlays applied so far.
struct Stage {
    bed: Testbed,
    /// The hub's address for pods. Its authority is not that of their clusters.
    door: Door,
    applied: RefCell<BTreeSet<String>>,
    /// Time since which the rights are complete.
    since: Cell<Timestamp>,
}

impl Stage {
    async fn raise() -> Self {
        let projects = vec!["single".to_owned(), HOME.to_owned()];
        let mut bed =
            bed(Options { quota: true, networks: Some(Duration::ZERO), projects, ..Options::default() }).await;
        // Milo has no project at the start.
        for project in [&"single".to_owned(), &HOME.to_owned()] {
            delete(&bed.project.client().await.unwrap(), "Project", "", project).await;
        }
        trusted::trust(&mut bed).await;
        let door = Door::to(&bed.hub, bed.dir()).await.unwrap();
        Self { bed, door, applied: RefCell::default(), since: Cell::new(Timestamp::now()) }
    }

    /// Applies an overlay, or `<overlay> with <component>`, as rendered, after `edit`.
    async fn apply(&self, plane: &ControlPlane, overlay: &str, edit: impl FnOnce(String) -> String) {
        let text = match (overlay.strip_prefix("kind/"), overlay.split_once(" with ")) {
            (Some(name), _) => manifests::kustomize(&path("e2e/kind/overlays").join(name)).unwrap(),
            (None, Some((overlay, component))) => rendered_with(component, overlay),
            (None, None) => rendered(overlay),
        };
        let text = edit(text);
        manifests::apply(&plane.client().await.unwrap(), &text).await.unwrap();
        self.applied.borrow_mut().insert(overlay.to_owned());
        self.since.set(Timestamp::now());
    }
}

/// Deletes every right that `config/` grants, and the Deployments.
async fn strip(plane: &ControlPlane) {
    let client = plane.client().await.unwrap();
    let rbac = "rbac.authorization.k8s.io";
    for (group, kind) in [
        ("apps", "Deployment"),
        (rbac, "ClusterRole"),
        (rbac, "ClusterRoleBinding"),
        (rbac, "Role"),
        (rbac, "RoleBinding"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in all.list(&ListParams::default()).await.unwrap() {
            if !object.name_any().starts_with("compute") {
                continue;
            }
            let here = object.namespace().map(|ns| Api::namespaced_with(client.clone(), &ns, &resource));
            here.unwrap_or(all.clone()).delete(&object.name_any(), &kube::api::DeleteParams::default()).await.unwrap();
        }
    }
}

/// Creates a Secret that a platform supplies.
async fn supply(plane: &ControlPlane, name: &str, values: &[(&str, &str)]) {
    let data: serde_json::Map<String, Value> =
        values.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": NS }, "data": data });
    apply(&plane.client().await.unwrap(), secret).await;
}

/// Returns this kubeconfig with another token.
fn with_token(file: &std::path::Path, token: &str) -> String {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    config["users"][0]["user"] = json!({ "token": token });
    config.to_string()
}

impl Stage {
    /// Starts the pods of a plane. `issuer` makes the tokens for the hub's audience.
    async fn start(&self, plane: &ControlPlane, name: &str, issuer: &ControlPlane) -> Vec<Pod> {
        let addresses = vec![
            (HUB.to_owned(), format!("https://127.0.0.1:{}", self.door.port())),
            // Only the manager can build the name of a project's Service. Here all projects are behind one host instead.
            ("internalServiceDiscovery: true".to_owned(), "internalServiceDiscovery: false".to_owned()),
        ];
        let mut pods = Node { dir: self.bed.dir(), plane, issuer, addresses }.start(name).await;
        for pod in &mut pods {
            assert_eq!(pod.process.exit_code(), None);
        }
        self.is_scraped(plane, &pods).await;
        pods
    }

    /// Asserts that only a ServiceAccount bound to the overlay's role can read metrics.
    async fn is_scraped(&self, plane: &ControlPlane, pods: &[Pod]) {
        let client = plane.client().await.unwrap();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "prometheus" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "compute-metrics-reader" },
            "subjects": [{ "kind": "ServiceAccount", "name": "prometheus", "namespace": NS }],
        });
        let account = |name: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": NS } });
        for object in [account("prometheus"), account("passer-by"), binding] {
            manifests::apply_value(&client, object).await.unwrap();
        }
        let (scraper, other) = (token(plane, "prometheus", None).await, token(plane, "passer-by", None).await);
        for pod in pods {
            let port = pod.ports[&8443];
            assert_eq!(scrape(port, &other, &Trust::Nobody).await.unwrap_err(), 403);
            let told = scrape(port, &scraper, &Trust::Nobody).await.unwrap();
            assert!(told.contains("leader_election_master_status"), "{told}");
        }
    }

    /// Runs the example until it is complete, and deletes it until nothing is left.
    async fn federates(&self, plane: &ControlPlane, tenant: &Client, namespace: &str, pods: &[&[Pod]]) {
        let admin = plane.client().await.unwrap();
        let ns = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let hub = format!("ns-{}", apply(&admin, ns).await.uid().unwrap());
        apply(&admin, grant(namespace, 100)).await;
        let text = fs::read_to_string(path("config/samples/workload.yaml")).unwrap();
        for mut object in manifests::documents(&text).unwrap() {
            object["metadata"]["namespace"] = json!(namespace);
            apply(tenant, object).await;
        }
        let logs = || pods.iter().copied().flatten().map(|pod| pod.process.tail()).collect::<Vec<_>>().join("\n");
        eventually(&format!("{namespace}: the example runs"), || async {
            let workload = get(&admin, "Workload", namespace, "hello").await.ok_or("no workload")?;
            let ready = workload.data["status"]["readyReplicas"] == 4;
            if ready { Ok(()) } else { Err(format!("{}{}", workload.data["status"], logs())) }
        })
        .await;
        delete(&admin, "Workload", namespace, "hello").await;
        eventually(&format!("{namespace}: nothing is left"), || async {
            let mut left = Vec::new();
            let cells = self.bed.cells.values().map(|cell| (cell, &hub));
            for (plane, ns) in [(plane, &namespace.to_owned()), (&self.bed.hub, &hub)].into_iter().chain(cells) {
                let client = plane.client().await.unwrap();
                for kind in ["WorkloadDeployment", "Instance"] {
                    let of = list(&client, kind, ns).await;
                    left.extend(of.iter().map(|one| format!("{} {kind} {}", plane.name(), one.name_any())));
                }
                if *ns == hub {
                    let companions = list(&client, "Secret", ns).await.len();
                    left.extend((companions > 0).then(|| format!("{} {companions} Secrets", plane.name())));
                }
            }
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}{}", logs())) }
        })
        .await;
        self.nobody_lacked_a_right();
    }

    /// Asserts that management uses exactly its granted rights in its own cluster, and its project rights only in projects.
    async fn rights_are_used_where_they_are_granted(&self, home: &ControlPlane) {
        let manager = format!("system:serviceaccount:{NS}:compute-manager");
        let used = |plane: &ControlPlane| -> BTreeSet<String> {
            let uses = Audit::uses(plane, self.since.get()).unwrap().into_iter();
            let had = uses.filter(|one| one.user == manager && one.had);
            had.map(|one| format!("{} {}", one.resource, one.verb)).collect()
        };
        let at_home = [
            "authentication.k8s.io/tokenreviews create",
            "authorization.k8s.io/subjectaccessreviews create",
            "coordination.k8s.io/leases create",
            "coordination.k8s.io/leases get",
            "coordination.k8s.io/leases update",
        ];
        eventually("management uses every right that it has at home", || async {
            let used = used(home);
            if used == at_home.map(str::to_owned).into() { Ok(()) } else { Err(format!("{used:?}")) }
        })
        .await;
        let in_projects = used(&self.bed.project);
        for right in
            ["resourcemanager.miloapis.com/projects list", "/secrets get", "compute.datumapis.com/workloads list"]
        {
            assert!(in_projects.contains(right), "{right}: {in_projects:?}");
        }
        let own = with_token(&home.kubeconfig(&User::Admin), &token(home, "compute-manager", None).await);
        let file: Kubeconfig = serde_json::from_str(&own).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        let secrets = Api::<DynamicObject>::all_with(
            Client::try_from(config).unwrap(),
            &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret")),
        );
        let refused = secrets.list(&ListParams::default()).await.unwrap_err();
        assert!(refused.to_string().contains("forbidden"), "the pod's own token reads no Secret at home: {refused}");
    }

    fn nobody_lacked_a_right(&self) {
        let others = self.bed.cells.values().chain(self.bed.others.values());
        for plane in [&self.bed.project, &self.bed.hub].into_iter().chain(others) {
            let lacked: Vec<_> =
                Audit::uses(plane, self.since.get()).unwrap().into_iter().filter(|one| !one.had).collect();
            assert!(lacked.is_empty(), "{}: {lacked:?}", plane.name());
        }
    }
}

/// Stops the pods as a kubelet does, within the grace period of the manifests.
async fn end(pods: Vec<Pod>) {
    for mut pod in pods {
        assert_eq!(pod.process.stop(Duration::from_secs(10)).await, 0, "{}", pod.process.tail());
    }
}

/// Returns the text unchanged.
fn as_it_is(text: String) -> String {
    text
}

impl Stage {
    /// Applies the hub's overlay, and creates the user of each cell.
    async fn hub(&self, overlay: &str) {
        let hub = &self.bed.hub;
        self.apply(hub, overlay, as_it_is).await;
        for (city, cell) in &self.bed.cells {
            let own = get(&cell.client().await.unwrap(), "Namespace", "", "kube-system").await.unwrap().uid().unwrap();
            let named = |text: String| text.replace("name-of-cell", city).replace("uid-of-cell", &own);
            self.apply(hub, "hub-cell", named).await;
            let file = with_token(self.door.kubeconfig(), &token(hub, &format!("compute-cell-{city}"), None).await);
            supply(cell, "compute-cell-federation-kubeconfig", &[("kubeconfig", &file)]).await;
        }
    }

    /// Starts one manager on each cell, each with its own overlay.
    async fn cells(&self, overlays: [&str; 2]) -> Vec<Vec<Pod>> {
        let mut all = Vec::new();
        for ((city, cell), overlay) in self.bed.cells.iter().zip(overlays) {
            strip(cell).await;
            self.apply(cell, overlay, |text| text.replace("name-of-cell", city)).await;
            all.push(self.start(cell, &format!("{}-{city}", overlay.replace(['/', ' '], "-")), cell).await);
        }
        all
    }

    /// Runs one project, and cells with quota in it.
    async fn single_project(&self) -> Vec<Vec<Pod>> {
        let (project, milo) = (&self.bed.project, self.bed.milo.as_ref().unwrap());
        strip(&self.bed.hub).await;
        self.hub("hub").await;
        strip(project).await;
        self.apply(project, "single-project", as_it_is).await;
        let quota = with_token(&milo.kubeconfig(&User::Admin), &token(project, "compute-quota", None).await);
        for cell in self.bed.cells.values() {
            supply(cell, "compute-quota-credentials", &[("kubeconfig", &quota)]).await;
        }
        supply(project, "compute-hub-credentials", &[("ca.crt", &self.door.authority().unwrap())]).await;
        let cells = self.cells(["cell with networking", "cell"]).await;
        self.is_believed(project).await;
        let management = self.start(project, "single-project", project).await;
        let tenant = project.client().await.unwrap();
        self.federates(project, &tenant, "of-one-project", &[&management, &cells[0], &cells[1]]).await;
        self.bound_networks("dfw");
        end(management).await;
        end(self.with_a_certificate_for_metrics(project).await).await;
        let management = self.admitted(project, "single-project-admission").await;
        self.federates(project, &tenant, "of-one-admitted", &[&management, &cells[0], &cells[1]]).await;
        self.end_admission(project, management).await;
        cells
    }

    /// Runs management of every project in Milo, next to cells of the Go operator, first without and then with admission.
    async fn management_plane(&self, cells: Vec<Vec<Pod>>) {
        let (project, milo) = (&self.bed.project, self.bed.milo.as_ref().unwrap());
        let admin = project.client().await.unwrap();
        milo.add(PROJECT, project).await.unwrap();
        announce(&admin, PROJECT).await.unwrap();
        apply(&admin, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "milo-system" } })).await;
        let quota = "quota.miloapis.com/v1alpha1";
        let served = ["grantcreationpolicies", "resourceregistrations"].map(|kind| format!("{quota}/{kind}"));
        let kinds = fs::read_to_string(path("e2e/testbed/crds/milo.yaml")).unwrap();
        define(&admin, &kinds, &served.each_ref().map(String::as_str)).await;
        self.apply(project, "milo", as_it_is).await;
        self.hub("hub-with-go-cells").await;
        let home = &self.bed.others[HOME];
        for plane in [project, home] {
            strip(plane).await;
        }
        self.apply(project, "project-access", as_it_is).await;
        self.apply(home, "management-plane", as_it_is).await;
        let credentials = with_token(&milo.kubeconfig(&User::Admin), &token(project, "compute-manager", None).await);
        supply(home, "compute-milo-credentials", &[("kubeconfig", &credentials)]).await;
        supply(home, "compute-hub-credentials", &[("ca.crt", &self.door.authority().unwrap())]).await;
        let management = self.start(home, "management-plane", &self.bed.hub).await;
        self.federates(project, &admin, "of-milo", &[&management, &cells[0], &cells[1]]).await;
        self.rights_are_used_where_they_are_granted(home).await;
        end(management).await;

        self.apply(home, "management-plane-admission", as_it_is).await;
        let management = self.start(home, "management-plane-admission", &self.bed.hub).await;
        assert_eq!(management.len(), 2, "without a serving webhook, writes are refused");
        let authority = STANDARD.encode(fs::read(self.bed.dir().join("ca.crt")).unwrap());
        let port = management[0].ports[&9443];
        let reached = |text: String| {
            let text = text.replace(WEBHOOKS, &format!("https://127.0.0.1:{port}"));
            // The platform has to add the authority.
            text.replace("clientConfig:\n", &format!("clientConfig:\n    caBundle: {authority}\n"))
        };
        self.apply(project, "project-webhooks", reached).await;
        let tenant = tenant_of(project, PROJECT).await;
        let write = ["get", "create", "patch"];
        let rules = json!([
            rule("compute.datumapis.com", &["workloads"], &write, &[]),
            rule("", &["configmaps", "secrets"], &write, &[]),
            rule("networking.datumapis.com", &["networks"], &["use"], &["default"]),
        ]);
        for ns in ["default", "of-milo-admitted"] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": ns } });
            apply(&admin, namespace).await;
            for object in role(TENANT, ns, &rules) {
                manifests::apply_value(&admin, object).await.unwrap();
            }
        }
        are_asked(&tenant).await;
        self.federates(project, &tenant, "of-milo-admitted", &[&management, &cells[0], &cells[1]]).await;
        self.end_admission(project, management).await;
        for pods in cells {
            end(pods).await;
        }
    }
}

/// Returns a client of a tenant of a Milo project, with the tenant's roles there.
async fn tenant_of(plane: &ControlPlane, project: &str) -> Client {
    let file = Kubeconfig::read_from(plane.kubeconfig(&User::Admin)).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    for (name, value) in [("impersonate-user", TENANT), (PARENT_NAME, project)] {
        config.headers.push((HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
    }
    Client::try_from(config).unwrap()
}

#[test]
fn overlays_run_with_their_own_rights_and_federate_the_example() {
    RUNTIME.block_on(async {
        let stage = Stage::raise().await;
        let cells = stage.single_project().await;
        stage.management_plane(cells).await;
        stage.on_kind_and_alone().await;
        let mut wanted = BTreeSet::new();
        for (folder, prefix) in [("config/overlays", ""), ("e2e/kind/overlays", "kind/")] {
            for entry in fs::read_dir(path(folder)).unwrap() {
                wanted.insert(format!("{prefix}{}", entry.unwrap().file_name().into_string().unwrap()));
            }
        }
        wanted.extend(of_managers());
        assert_eq!(*stage.applied.borrow(), wanted, "each overlay must be started");
    });
}
