//! Answers of a real API server to the manifests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use testbed::{
    binaries,
    control_plane::{ControlPlane, Etcd},
    definitions, manifests, pki,
    pki::User,
};
use tokio::time::Instant;

use super::{
    manifests::{kustomize, of_kind, on_kind, overlays},
    monitoring::alone,
    optional::{OPTIONAL, rendered, rendered_with},
    platform::{SAMPLES, platform},
    root,
    skipping::skipped,
};

/// Arguments of a strict server-side dry run, which keeps nothing.
const STRICT: [&str; 7] =
    ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-"];
/// Groups without a Go module: the module proxy has no module of Milo's. `e2e/testbed/crds/milo.yaml` defines the used part by
/// hand.
const BY_HAND: [&str; 3] = ["iam.miloapis.com", "quota.miloapis.com", "resourcemetrics.miloapis.com"];
/// Fields of other projects' definitions that accept any key, such as maps of labels.
const FREE: [&str; 3] = [
    "monitoring.coreos.com/v1 PrometheusRule: .spec.groups.rules.annotations.misspelt",
    "monitoring.coreos.com/v1 PrometheusRule: .spec.groups.rules.labels.misspelt",
    "monitoring.coreos.com/v1 ServiceMonitor: .spec.selector.matchLabels.misspelt",
];

/// An API server with its etcd.
pub struct Server {
    // The fields are dropped in this order.
    pub plane: ControlPlane,
    _etcd: Etcd,
    bin: PathBuf,
    pub dir: PathBuf,
}

impl Server {
    pub async fn start() -> Self {
        let bin = binaries::find_with_kubectl(&|text| eprintln!("testbed: {text}")).unwrap();
        // The testbed cleans up after a dead run, which it finds by the process id in the folder's name.
        let dir = binaries::cache().join(format!("run-{}-tree{:04x}", std::process::id(), fastrand::u16(..)));
        fs::create_dir_all(&dir).unwrap();
        pki::make(&dir, &[]).unwrap();
        let etcd = Etcd::start(&dir, &bin).unwrap();
        let mut plane = ControlPlane::new(&dir, &bin, &etcd.url, "tree").unwrap();
        plane.start_api_server().unwrap();
        plane.wait_ready().await.unwrap();
        Self { plane, _etcd: etcd, bin, dir }
    }

    /// Installs the definitions of Milo, Karmada, the Prometheus operator and cert-manager. Returns false if Go is missing.
    pub async fn define_others(&self) -> bool {
        let Some(mut texts) = definitions::of_others().unwrap() else { return false };
        texts.insert("milo.yaml", fs::read_to_string(root().join("e2e/testbed/crds/milo.yaml")).unwrap());
        self.define(&texts).await;
        true
    }

    /// Installs the definitions of this operator, of Karmada's bindings and of the neighbouring services.
    pub async fn define_kinds(&self) {
        let folders = ["crds", "e2e/testbed/crds"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
        let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
        let text =
            |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap());
        let texts: BTreeMap<String, String> = files
            .map(text)
            .filter(|(name, _)| name.strip_suffix(".yaml").is_some_and(|stem| stem != "protection"))
            .collect();
        self.define(&texts).await;
    }

    async fn define<K>(&self, texts: &BTreeMap<K, String>) {
        let client = self.plane.client().await.unwrap();
        for text in texts.values() {
            manifests::apply(&client, text).await.unwrap();
        }
        let mut names = Vec::new();
        for definition in texts.values().flat_map(|text| manifests::documents(text).unwrap()) {
            names.push(format!("crd/{}", definition["metadata"]["name"].as_str().unwrap()));
        }
        let established: Vec<&str> = names.iter().map(String::as_str).collect();
        self.kubectl(&[&["wait", "--for=condition=Established"], &established[..]].concat(), "").unwrap();
    }

    /// Runs a command line of a page in a shell, with the server as the only context.
    pub fn shell(&self, line: &str) -> std::process::Output {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).env("PATH", path).env("KUBECONFIG", self.plane.kubeconfig(&User::Admin));
        command.output().unwrap()
    }

    /// Runs kubectl with `input` on its stdin.
    pub fn kubectl(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(self.bin.join("kubectl"));
        command
            .arg(format!("--kubeconfig={}", self.plane.kubeconfig(&User::Admin).display()))
            .args(args)
            .current_dir(root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        if out.status.success() { Ok(said) } else { Err(said) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn checked_karmada_definitions_match_the_kind_version() {
    let settings = fs::read_to_string(root().join("e2e/kind/settings.sh")).unwrap();
    let version = settings.lines().find_map(|line| line.strip_prefix("KARMADA_VERSION=")).unwrap();
    let module = fs::read_to_string(root().join("e2e/testbed/definitions/go.mod")).unwrap();
    assert!(module.contains(&format!("github.com/karmada-io/karmada {version}\n")), "{version} is not in {module}");
}

#[tokio::test]
async fn api_server_accepts_definitions_and_every_overlay() {
    let server = Server::start().await;
    if !server.define_others().await {
        skipped("Go is needed to fetch the definitions of others");
        return;
    }
    // The command of the README.
    let said = server.kubectl(&["apply", "-f", "crds/"], "").unwrap();
    assert_eq!(said.lines().filter(|line| line.ends_with(" created")).count(), 3, "{said}");
    let kinds =
        ["workloads", "workloaddeployments", "instances"].map(|kind| format!("crd/{kind}.compute.datumapis.com"));
    let established: Vec<&str> = kinds.iter().map(String::as_str).collect();
    server.kubectl(&[&["wait", "--for=condition=Established"], &established[..]].concat(), "").unwrap();
    for namespace in ["compute-system", "milo-system", "project-single"] {
        server.kubectl(&["create", "namespace", namespace], "").unwrap();
    }
    let added =
        OPTIONAL.map(|(component, overlay)| (format!("{overlay} with {component}"), rendered_with(component, overlay)));
    let on_kind = on_kind().into_iter().map(|overlay| {
        let text = kustomize(&root().join("e2e/kind/overlays").join(&overlay));
        (format!("e2e/kind/overlays/{overlay}"), text)
    });
    let file = "e2e/kind/project-in-cell.yaml";
    let text = fs::read_to_string(root().join(file)).unwrap();
    let in_cell = (file.to_owned(), text.replace("address-of-project", "172.18.0.2"));
    let stand = overlays().into_iter().map(|overlay| (overlay.clone(), rendered(&overlay)));
    let samples = SAMPLES.map(|(sample, _)| (format!("config/samples/platform/{sample}"), platform(sample)));
    let alone = alone().into_iter().map(|(component, text)| (format!("config/components/{component}"), text));
    let mut others = BTreeMap::new();
    for (overlay, text) in stand.chain(added).chain(on_kind).chain([in_cell]).chain(samples).chain(alone) {
        let wanted = text.lines().filter(|line| line.starts_with("kind: ")).count();
        let said = server.kubectl(&STRICT, &text).unwrap_or_else(|why| panic!("{overlay}: {why}"));
        let taken = said.lines().filter(|line| line.ends_with("serverside-applied (server dry run)")).count();
        assert_eq!(taken, wanted, "{overlay}: {said}");
        for object in manifests::documents(&text).unwrap() {
            let of = |key: &str| object[key].as_str().unwrap();
            let (version, kind) = (of("apiVersion"), of("kind"));
            let is_built_in =
                version.split_once('/').is_none_or(|(group, _)| !group.contains('.') || group.ends_with(".k8s.io"));
            if !is_built_in {
                others.insert(format!("{version} {kind}"), object);
            }
        }
    }
    let sample = fs::read_to_string(root().join("config/samples/workload.yaml")).unwrap();
    server.kubectl(&STRICT, &sample).unwrap();
    every_misspelt_field_is_refused(&server, &others);
}

/// The rollout fields that the server had defaulted for two replicas had no field owner, and blocked a change to one replica.
#[tokio::test]
async fn overlay_changed_from_two_replicas_to_one_applies() {
    let server = Server::start().await;
    for (two, one) in
        [("single-project-admission", "single-project"), ("management-plane-admission", "management-plane")]
    {
        for by in [&["apply", "--server-side", "-f", "-"][..], &["apply", "-f", "-"]] {
            for (overlay, replicas, strategy) in [(two, "2", "RollingUpdate 1 0"), (one, "1", "Recreate")] {
                server.kubectl(by, &rendered(overlay)).unwrap_or_else(|why| panic!("{overlay} by {by:?}: {why}"));
                let shown = "-o=jsonpath={.spec.replicas} {.spec.strategy.type} {.spec.strategy.rollingUpdate.maxSurge} \
                             {.spec.strategy.rollingUpdate.maxUnavailable}";
                let get = ["-n=compute-system", "get", "deployment", "compute-manager", shown];
                let is = server.kubectl(&get, "").unwrap();
                assert_eq!(is.trim(), format!("{replicas} {strategy}"), "{overlay} by {by:?}");
            }
            // Apply prunes nothing. The remaining budget must not block the drain of a node.
            let budget = ["-n=compute-system", "get", "pdb", "compute-manager", "-o=jsonpath={.spec}"];
            let budget: Value = serde_json::from_str(&server.kubectl(&budget, "").unwrap()).unwrap();
            assert_eq!((&budget["maxUnavailable"], &budget["minAvailable"]), (&json!(1), &Value::Null));
            // The command of docs/deploying.md.
            if rendered(two).contains("kind: ValidatingWebhookConfiguration") {
                server.kubectl(&["delete", "validatingwebhookconfiguration", "compute-validating"], "").unwrap();
            }
            server.kubectl(&["-n=compute-system", "delete", "poddisruptionbudget", "compute-manager"], "").unwrap();
            server.kubectl(&["-n=compute-system", "delete", "deployment", "compute-manager"], "").unwrap();
        }
    }
}

/// The steps that Prometheus needs were only in comments.
#[tokio::test]
async fn prometheus_after_the_page_commands_may_read_metrics() {
    let server = Server::start().await;
    let text = rendered("single-project");
    server.kubectl(&["apply", "--server-side", "-f", "-"], &text).unwrap();
    server.kubectl(&["create", "namespace", "monitoring"], "").unwrap();
    let may = || {
        let asked = ["auth", "can-i", "get", "/metrics", "--as=system:serviceaccount:monitoring:prometheus"];
        server.kubectl(&asked, "").is_ok_and(|said| said.trim() == "yes")
    };
    assert!(!may());
    as_the_page_has_it_typed(&server);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !may() {
        assert!(Instant::now() < deadline, "the right is not there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let objects = manifests::documents(&text).unwrap();
    let policy =
        of_kind(&objects, "NetworkPolicy").into_iter().find(|one| one["metadata"]["name"] == "compute-metrics");
    let selected = policy.unwrap()["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"].clone();
    let shown = server.kubectl(&["get", "namespace", "monitoring", "-o=jsonpath={.metadata.labels}"], "").unwrap();
    let labels: Value = serde_json::from_str(&shown).unwrap();
    for (label, value) in selected.as_object().unwrap() {
        assert_eq!(labels[label], *value, "the policy selects this pod");
    }
}

/// Runs the commands of the Prometheus section in `docs/deploying.md`.
fn as_the_page_has_it_typed(server: &Server) {
    let page = fs::read_to_string(root().join("docs/deploying.md")).unwrap();
    let (_, section) = page.split_once("\n## What Prometheus needs\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let typed: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("    kubectl ")).collect();
    assert_eq!(typed.len(), 2, "{typed:?}");
    for line in typed {
        server.kubectl(&line.split(' ').collect::<Vec<_>>(), "").unwrap_or_else(|why| panic!("{line}: {why}"));
    }
}

/// The check detects a misspelt field anywhere in an object of every foreign kind.
fn every_misspelt_field_is_refused(server: &Server, others: &BTreeMap<String, Value>) {
    let (mut groups, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for (kind, object) in others {
        groups.insert(kind.split('/').next().unwrap());
        let misspelt = misspelt(object);
        assert!(misspelt.contains_key(".spec.misspelt"), "{kind}: {object}");
        let text = misspelt.values().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
        let said = server.kubectl(&STRICT, &text).err().unwrap_or_default();
        // The index of the list item does not matter.
        let said: String = said.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
        let is_named = |at: &String| said.contains(&format!("{at}: field not declared in schema"));
        taken.extend(misspelt.into_keys().filter(|at| !is_named(at)).map(|at| format!("{kind}: {at}")));
    }
    assert_eq!(taken.iter().map(String::as_str).collect::<Vec<_>>(), FREE);
    let by_module = ["cert-manager.io", "config.karmada.io", "monitoring.coreos.com"];
    assert_eq!(groups, by_module.into_iter().chain(BY_HAND).collect());
}

/// Returns the object with an unknown field, once for each of its maps, by the position of the map.
fn misspelt(object: &Value) -> BTreeMap<String, Value> {
    fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
        if let Value::Object(fields) = value {
            found.push(at.to_owned());
            fields.iter().for_each(|(name, field)| pointers(field, &format!("{at}/{name}"), found));
        }
        // One item represents its whole list.
        if let Some(item) = value.as_array().and_then(|items| items.first()) {
            pointers(item, &format!("{at}/0"), found);
        }
    }
    let mut found = Vec::new();
    pointers(&object["spec"], "/spec", &mut found);
    let with = |at: &str| {
        let mut object = object.clone();
        object.pointer_mut(at).unwrap()["misspelt"] = json!("x");
        (format!("{}.misspelt", at.replace("/0", "").replace('/', ".")), object)
    };
    found.iter().map(|at| with(at)).collect()
}
