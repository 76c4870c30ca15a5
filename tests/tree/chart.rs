//! The Helm chart and the install files: both have the objects of the overlays. `helm` checks the chart and renders it, and a real
//! API server takes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use compute_operator::config::{Config, Flags};
use serde_json::{Value, json};
use testbed::{
    chart::{self, MONITORING, NAMESPACE, ROLES, Release, Role},
    pki::User,
};

use super::{
    manifests::{of_kind, overlays},
    optional::{rendered, rendered_with},
    root,
    served::Server,
    skipping::skipped,
};

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// Overlays that are in no role of the chart. `tests/it/overlays` starts the one, and `kubectl compute cell join` replaces the
/// other.
const WITHOUT_ROLE: [&str; 2] = ["dev", "hub-cell"];

/// Each value below `values.yaml`, with a setting and the role that uses it, and a text that appears in its output.
const SETTINGS: [(&str, &str, &str, &str); 28] = [
    ("role", "cell", "role=cell", "name: compute-cell\n"),
    ("definitions", "cell", "definitions=false", "-kind: CustomResourceDefinition"),
    ("image.repository", "cell", "image.repository=r.example/c", "image: \"r.example/c:latest\""),
    ("image.tag", "cell", "image.tag=v1", "image: \"compute-operator:v1\""),
    ("image.pullSecrets", "cell", "image.pullSecrets={one}", "      imagePullSecrets:\n      - name: one\n"),
    ("replicas", "cell", "replicas=2", "\n  replicas: 2\n"),
    ("resources", "cell", "resources.limits.memory=1Gi", "          limits:\n            memory: 1Gi\n"),
    ("priorityClassName", "cell", "priorityClassName=mine", "priorityClassName: mine\n"),
    ("logLevel", "cell", "logLevel=debug", "        - --zap-log-level=debug\n"),
    (
        "featureGates",
        "cell",
        "featureGates=NetworkingIntegration=true",
        "name: FEATURE_GATES\n          value: \"NetworkingIntegration=true\"",
    ),
    ("cellName", "cell", "cellName=dfw-1", "      clusterName: \"dfw-1\"\n"),
    ("config", "cell", "config=a: b", "  config.yaml: |\n    a: b\n"),
    ("hub.server", "single-project", "hub.server=https://h:1", "        server: https://h:1\n"),
    ("hub.storedToken", "single-project", "hub.storedToken=true", "key: token\n                path: token\n"),
    ("secrets.hub", "single-project", "secrets.hub=one", "              name: \"one\"\n"),
    ("secrets.cellHub", "cell", "secrets.cellHub=one", "              name: \"one\"\n"),
    ("secrets.quota", "cell", "secrets.quota=one", "          secretName: \"one\"\n"),
    ("secrets.milo", "management-plane", "secrets.milo=one", "          secretName: \"one\"\n"),
    ("webhooks.enabled", "single-project", "webhooks.enabled=true", "kind: ValidatingWebhookConfiguration"),
    ("webhooks.caBundle", "single-project", "webhooks.enabled=true,webhooks.caBundle=QQ==", "    caBundle: QQ==\n"),
    (
        "webhooks.issuer.name",
        "single-project",
        "webhooks.enabled=true,webhooks.issuer.name=ca",
        "            csi.cert-manager.io/issuer-name: ca\n",
    ),
    (
        "webhooks.issuer.kind",
        "single-project",
        "webhooks.enabled=true,webhooks.issuer.name=ca,webhooks.issuer.kind=Issuer",
        "            csi.cert-manager.io/issuer-kind: Issuer\n",
    ),
    (
        "webhooks.issuer.group",
        "single-project",
        "webhooks.enabled=true,webhooks.issuer.name=ca,webhooks.issuer.group=a.b",
        "            csi.cert-manager.io/issuer-group: a.b\n",
    ),
    (
        "webhooks.secret",
        "single-project",
        "webhooks.enabled=true,webhooks.secret=one",
        "      - secret:\n          secretName: \"one\"\n        name: webhook-cert\n",
    ),
    ("webhooks.url", "project-access", "webhooks.enabled=true,webhooks.url=https://w", "    url: https://w/validate-"),
    ("metrics.serviceMonitor", "cell", "metrics.serviceMonitor=true", "kind: ServiceMonitor"),
    ("metrics.alerts", "cell", "metrics.alerts=true", "kind: PrometheusRule"),
    ("metrics.dashboards", "cell", "metrics.dashboards=true", "grafana_dashboard"),
];

/// Values that the chart refuses, each with the role and a part of the message.
const REFUSED: [(&str, &str, &str); 10] = [
    ("", "replicas=1", "set the role"),
    ("cells", "replicas=1", "role"),
    ("cell", "image.name=x", "additional properties"),
    ("cell", "replicas=two", "replicas"),
    ("cell", "webhooks.enabled=true", "the role cell has no webhooks"),
    ("hub", "cellName=dfw-1", "cellName is for a cell"),
    ("hub", "logLevel=debug", "the role hub has no manager"),
    ("milo", "metrics.alerts=true", "the role milo has no manager"),
    ("cell", "cellName=dfw-1,config=a: b", "and not both"),
    ("single-project", "hub.server=http://h", "server"),
];

/// Returns helm, from `HELM` or the `PATH`. Prints that the test is skipped if it does not run.
fn helm() -> Option<PathBuf> {
    let program = std::env::var_os("HELM").map_or_else(|| PathBuf::from("helm"), PathBuf::from);
    let runs = Command::new(&program).arg("version").output().is_ok_and(|out| out.status.success());
    if !runs {
        skipped("helm is not on the PATH and not in HELM; .ci/tools helm installs it");
    }
    runs.then_some(program)
}

/// The chart in a folder of its own, which is removed at the end.
struct Chart {
    helm: PathBuf,
    dir: PathBuf,
}

impl Chart {
    fn new() -> Option<Self> {
        let helm = helm()?;
        let dir = testbed::binaries::cache().join(format!("run-{}-chart{:08x}", std::process::id(), fastrand::u32(..)));
        chart::write(&chart::files(&Release::default()).unwrap(), &dir.join("chart")).unwrap();
        Some(Self { helm, dir })
    }

    /// Runs helm. Its settings and caches are in the chart's folder.
    fn run(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.helm);
        for (variable, folder) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(variable, self.dir.join(folder));
        }
        command.args(args).arg("--namespace").arg(NAMESPACE);
        // Without a cluster, some builds of helm assume a version of Kubernetes that is too old for the chart.
        if ["lint", "template"].contains(&args[0]) {
            command.args(["--kube-version", "1.30.0"]);
        }
        let out = command.output().unwrap();
        let (said, problems) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
        if out.status.success() { Ok(said) } else { Err(said + &problems) }
    }

    fn path(&self) -> String {
        self.dir.join("chart").display().to_string()
    }

    /// Renders a role with these settings.
    fn template(&self, role: &str, settings: &[&str]) -> Result<String, String> {
        let role = format!("role={role}");
        let path = self.path();
        let mut args = vec!["template", "compute", &path, "--set", &role];
        args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        self.run(&args)
    }
}

impl Drop for Chart {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns the objects of a rendered text.
fn by_name(text: &str) -> Objects {
    let mut objects = Objects::new();
    for object in testbed::manifests::documents(text).unwrap() {
        let metadata = &object["metadata"];
        let key = format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"]);
        assert!(objects.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    objects
}

/// Returns the objects that a role of the chart has by the overlays. Helm requires the namespace before the first object, keeps
/// definitions, and manages the objects.
fn expected(overlays: &[String]) -> Objects {
    let mut objects: Objects = overlays.iter().flat_map(|text| by_name(text)).collect();
    objects.retain(|_, object| object["kind"] != "Namespace");
    for object in objects.values_mut() {
        if object["kind"] == "CustomResourceDefinition" {
            object["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
        }
        if let Some(label) = object.pointer_mut("/metadata/labels/app.kubernetes.io~1managed-by") {
            assert_eq!(*label, "kustomize");
            *label = json!("Helm");
        }
    }
    objects
}

/// Fails with the first object that differs.
fn same(what: &str, rendered: &Objects, expected: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(rendered), names(expected), "{what}");
    for (name, object) in rendered {
        assert_eq!(object, &expected[name], "{what}: {name}");
    }
}

/// Returns the kinds of a role: with webhooks, and without.
fn kinds(role: &Role) -> Vec<bool> {
    if role.with_webhooks.is_empty() { vec![false] } else { vec![false, true] }
}

#[test]
fn chart_with_default_values_renders_the_objects_of_the_overlays() {
    let Some(chart) = Chart::new() else { return };
    let mut seen = BTreeSet::new();
    for role in &ROLES {
        for webhooks in kinds(role) {
            let names = role.overlays(webhooks);
            let overlays: Vec<String> = names.iter().map(|name| rendered(name)).collect();
            let text = chart.template(role.name, &[&format!("webhooks.enabled={webhooks}")]).unwrap();
            let objects = by_name(&text);
            assert!(objects.len() > 5 || role.name == "milo", "{}", role.name);
            same(&format!("{} {webhooks}", role.name), &objects, &expected(&overlays));
            seen.extend(names);
        }
    }
    let missing: Vec<String> = overlays().into_iter().filter(|name| !seen.contains(name.as_str())).collect();
    assert_eq!(missing, WITHOUT_ROLE);
}

#[test]
fn chart_with_a_component_renders_the_objects_of_the_overlay_with_it() {
    let Some(chart) = Chart::new() else { return };
    let gate = ("featureGates=NetworkingIntegration=true".to_owned(), "networking", "cell");
    let monitoring =
        MONITORING.map(|(value, component)| (format!("metrics.{value}=true"), component, "single-project"));
    for (setting, component, overlay) in [gate].into_iter().chain(monitoring) {
        let objects = by_name(&chart.template(overlay, &[&setting]).unwrap());
        same(component, &objects, &expected(&[rendered_with(component, overlay)]));
    }
}

#[test]
fn chart_passes_strict_lint_in_every_role() {
    let Some(chart) = Chart::new() else { return };
    let lint = |role: &str, webhooks: bool| {
        let (role, webhooks) = (format!("role={role}"), format!("webhooks.enabled={webhooks}"));
        chart.run(&["lint", "--strict", &chart.path(), "--set", &role, "--set", &webhooks])
    };
    for role in &ROLES {
        for webhooks in kinds(role) {
            lint(role.name, webhooks).unwrap_or_else(|why| panic!("{}: {why}", role.name));
        }
    }
    // The check detects a wrong template.
    let file = chart.dir.join("chart/templates/cell.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\nkind: ServiceAccount\n", "\nkind: ServiceAccount\n kind: x\n")).unwrap();
    lint("cell", false).unwrap_err();
}

/// Returns the leaves of the values, each as its path.
fn leaves(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value.as_object() {
        Some(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                leaves(field, format!("{at}.{name}").trim_start_matches('.'), found);
            }
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

fn values() -> (String, Value) {
    let text = fs::read_to_string(root().join(chart::FOLDER).join("values.yaml")).unwrap();
    let values = testbed::manifests::documents(&text).unwrap().remove(0);
    (text, values)
}

#[test]
fn every_value_changes_what_its_role_renders() {
    let mut found = BTreeSet::new();
    leaves(&values().1, "", &mut found);
    assert_eq!(found, SETTINGS.map(|(value, ..)| value.to_owned()).into());
    let Some(chart) = Chart::new() else { return };
    for (value, role, setting, shown) in SETTINGS {
        let without = if value == "role" { "hub" } else { role };
        let before = chart.template(without, &[]).unwrap();
        let after = chart.template(role, &[setting]).unwrap_or_else(|why| panic!("{value}: {why}"));
        let (gone, shown) = shown.strip_prefix('-').map_or((false, shown), |shown| (true, shown));
        assert_eq!((before.contains(shown), after.contains(shown)), (gone, !gone), "{value}: {shown:?}\n{after}");
        by_name(&after);
    }
}

#[test]
fn chart_refuses_unknown_and_contradicting_values() {
    let Some(chart) = Chart::new() else { return };
    for (role, setting, said) in REFUSED {
        let why = chart.template(role, &[setting]).expect_err(setting);
        assert!(why.contains(said), "{role} {setting}: {why}");
    }
    let path = chart.path();
    let args = ["template", "compute", &path, "--set", "role=cell", "--kube-version", "1.30.0"];
    let elsewhere = Command::new(&chart.helm).args(args).output().unwrap();
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("install into the namespace compute-system"));
}

/// The schema has every value, and each value has a comment.
#[test]
fn values_schema_and_comments_are_complete() {
    let (text, values) = values();
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(root().join(chart::FOLDER).join("values.schema.json")).unwrap())
            .unwrap();
    let mut found = BTreeSet::new();
    leaves(&values, "", &mut found);
    for value in &found {
        let mut node = &schema;
        for part in value.split('.') {
            assert_eq!(node["additionalProperties"], false, "{value}");
            node = &node["properties"][part];
            assert!(node.is_object(), "{value} is not in the schema");
        }
    }
    let roles: BTreeSet<&str> = ROLES.iter().map(|role| role.name).chain([""]).collect();
    let listed = schema["properties"]["role"]["enum"].as_array().unwrap();
    assert_eq!(listed.iter().map(|role| role.as_str().unwrap()).collect::<BTreeSet<_>>(), roles);
    for role in roles {
        assert!(text.contains(&format!("#   {role}")), "values.yaml does not explain {role}");
    }
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.starts_with(' ') && line.contains(':') && !line.starts_with('#'))
    {
        assert!(lines[at - 1].starts_with("# ") || lines[at - 1].starts_with("#   "), "{line} has no comment");
    }
}

/// The chart of a release has its version and image. Its config file and flags are accepted by the operator.
#[test]
fn released_chart_has_version_image_and_a_valid_configuration() {
    let release = Release { version: "1.2.3".to_owned(), image: "r.example:5000/c:v1.2.3".to_owned() };
    let files = chart::files(&release).unwrap();
    assert_eq!(files, chart::files(&release).unwrap(), "the files are reproducible");
    for line in ["\nversion: 1.2.3\n", "\nappVersion: 1.2.3\n", "\nname: compute-operator\n"] {
        assert!(files["Chart.yaml"].contains(line), "{}", files["Chart.yaml"]);
    }
    assert!(files["values.yaml"].contains("\n  repository: r.example:5000/c\n  tag: \"v1.2.3\"\n"));
    chart::files(&Release { image: "r.example:5000/c".to_owned(), ..Release::default() }).unwrap_err();
    let Some(chart) = Chart::new() else { return };
    let settings = ["cellName=dfw-1", "logLevel=debug"];
    let objects: Vec<Value> = by_name(&chart.template("cell", &settings).unwrap()).into_values().collect();
    let container = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    let level = container["args"].as_array().unwrap().last().unwrap().as_str().unwrap();
    Flags::from_args(["compute-operator", level].map(str::to_owned)).unwrap();
    let file = of_kind(&objects, "ConfigMap")[0]["data"]["config.yaml"].as_str().unwrap();
    let file = file.replace("/etc/quota-credentials/kubeconfig", &root().join("Cargo.toml").display().to_string());
    let more = "--server-config=/config/config.yaml --federation-kubeconfig=Cargo.toml";
    let flags = ["compute-operator", "--enable-cell-controllers"].into_iter().chain(more.split(' '));
    let config = Config::new(Flags::from_args(flags.map(str::to_owned)).unwrap(), Some(&file)).unwrap();
    assert_eq!(config.quota.unwrap().names.current, "dfw-1");
}

#[test]
fn install_files_have_the_objects_of_each_overlay() {
    let dir = testbed::binaries::cache().join(format!("run-{}-files", std::process::id()));
    let image = "r.example:5000/c:v1@sha256:0000000000000000000000000000000000000000000000000000000000000007";
    let files = chart::install_files(&Release { version: "1.2.3".to_owned(), image: image.to_owned() }).unwrap();
    chart::write(&files, &dir).unwrap();
    let mut written = BTreeSet::new();
    for name in overlays().iter().filter(|name| !WITHOUT_ROLE.contains(&name.as_str())) {
        let text = fs::read_to_string(dir.join(format!("{name}.yaml"))).unwrap();
        let expected = by_name(&rendered(name).replace("compute-operator:latest", image));
        same(name, &by_name(&text), &expected);
        assert!(text.starts_with(&format!("# compute-operator 1.2.3: config/overlays/{name}\n")));
        written.insert(format!("{name}.yaml"));
    }
    assert_eq!(files.into_keys().collect::<BTreeSet<_>>(), written);
    // A folder with other files is not replaced.
    let other = dir.join("other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("mine"), "").unwrap();
    chart::write(&BTreeMap::new(), &other).unwrap_err();
    assert!(other.join("mine").exists());
    fs::remove_dir_all(&dir).unwrap();
}

/// Runs helm against an API server.
fn against(chart: &Chart, kubeconfig: &Path, args: &[&str]) -> Result<String, String> {
    let kubeconfig = kubeconfig.display().to_string();
    chart.run(&[args, &["--kubeconfig", &kubeconfig]].concat())
}

#[tokio::test]
async fn helm_installs_upgrades_and_removes_a_release_and_keeps_definitions() {
    let Some(chart) = Chart::new() else { return };
    let server = Server::start().await;
    let (path, kubeconfig) = (chart.path(), server.plane.kubeconfig(&User::Admin));
    let install = ["upgrade", "--install", "compute", &path, "--create-namespace"];
    let role = ["--set", "role=single-project"];
    let said = against(&chart, &kubeconfig, &[&install[..], &role].concat()).unwrap();
    assert!(
        said.contains("is installed in the role single-project") && said.contains("compute-hub-credentials"),
        "{said}"
    );
    let get = |what: &str, template: &str| {
        server.kubectl(&["-n=compute-system", "get", what, &format!("-o=jsonpath={template}")], "")
    };
    assert_eq!(get("deployment/compute-manager", "{.spec.replicas}").unwrap(), "1");
    // The way from one replica to two, and back, as by overlays.
    for (enabled, replicas) in [("true", "2"), ("false", "1")] {
        let webhooks = ["--set", &format!("webhooks.enabled={enabled}"), "--set", "logLevel=debug"];
        let said = against(&chart, &kubeconfig, &[&install[..], &role, &webhooks].concat()).unwrap();
        assert_eq!(said.contains("WARNING: webhooks.caBundle is empty"), enabled == "true", "{said}");
        assert_eq!(get("deployment/compute-manager", "{.spec.replicas}").unwrap(), replicas);
        let configured = get("validatingwebhookconfiguration/compute-validating", "{.metadata.name}");
        assert_eq!(configured.is_ok(), enabled == "true", "{configured:?}");
    }
    against(&chart, &kubeconfig, &["uninstall", "compute"]).unwrap();
    get("deployment/compute-manager", "{}").unwrap_err();
    get("crd/workloads.compute.datumapis.com", "{.metadata.name}").unwrap();
    // The command of docs/uninstalling.md.
    server.kubectl(&["delete", "-f", "crds/", "--ignore-not-found"], "").unwrap();
    get("crd/workloads.compute.datumapis.com", "{.metadata.name}").unwrap_err();
    // What kustomize has applied is taken over.
    let applied = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    server.kubectl(&applied, &rendered("single-project")).unwrap();
    let refused = against(&chart, &kubeconfig, &[&install[..], &role].concat()).unwrap_err();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    against(&chart, &kubeconfig, &[&install[..], &role, &["--take-ownership"]].concat()).unwrap();
}
