//! The Helm chart and the install files, generated from the overlays of `config/`.
//!
//! `config/chart` has the parts that people write: values, their schema, notes and helpers. Each other template is an overlay as
//! kustomize renders it, with template actions in place of the settings. An edit that does not match exactly once is an error, so
//! a changed overlay cannot lose a setting.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{
    binaries::root,
    manifests::{documents, kustomize},
};

/// Folder of the parts that people write, from the repository's root.
pub const FOLDER: &str = "config/chart";
/// Namespace of the operator. Names of certificates and of users on the hub contain it.
pub const NAMESPACE: &str = "compute-system";
/// Home of the project.
const HOME: &str = "https://github.com/datum-cloud/compute-operator";
/// Image in the overlays.
const IMAGE: &str = "compute-operator:latest";
/// Address of the hub in the overlays.
const HUB: &str = "https://karmada-apiserver.karmada-system.svc.cluster.local:5443";
/// Address of the webhooks in the overlay for projects.
const WEBHOOKS: &str = "https://compute-webhook.compute-system.svc.cluster.local";
/// Name that kustomize gives to the ConfigMap with the hub's kubeconfig, without its hash.
const HUB_CONFIG: &str = "compute-downstream-kubeconfig-";

/// The objects that one release of the chart installs on one API server.
#[derive(Debug)]
pub struct Role {
    /// Value of `role`, which is the name of the overlay.
    pub name: &'static str,
    /// Overlays with `webhooks.enabled`. Empty if the role cannot have webhooks.
    pub with_webhooks: &'static [&'static str],
}

impl Role {
    const fn plain(name: &'static str) -> Self {
        Self { name, with_webhooks: &[] }
    }

    /// Returns the overlays of this role.
    pub fn overlays(&self, webhooks: bool) -> Vec<&'static str> {
        if webhooks { self.with_webhooks.to_vec() } else { vec![self.name] }
    }
}

/// The roles of the chart. The overlays `dev` and `hub-cell` are not in it: one is for developers, and `kubectl compute cell join`
/// creates what the other has.
pub const ROLES: [Role; 9] = [
    Role { name: "single-project", with_webhooks: &["single-project-admission"] },
    Role { name: "management-plane", with_webhooks: &["management-plane-admission"] },
    Role::plain("cell"),
    Role { name: "single-cluster", with_webhooks: &["single-cluster-admission"] },
    Role::plain("hub"),
    Role::plain("hub-single-cluster"),
    Role::plain("hub-with-go-cells"),
    Role { name: "project-access", with_webhooks: &["project-access", "project-webhooks"] },
    Role::plain("milo"),
];

/// Components that the chart adds by a value below `metrics`, in every role with a manager.
pub const MONITORING: [(&str, &str); 3] =
    [("serviceMonitor", "service-monitor"), ("alerts", "alerts"), ("dashboards", "dashboards")];

/// A version of the chart.
#[derive(Debug)]
pub struct Release {
    /// Version of the chart and of the operator, without `v`.
    pub version: String,
    /// Image with its tag, as a node pulls it.
    pub image: String,
}

impl Default for Release {
    fn default() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), image: IMAGE.to_owned() }
    }
}

impl Release {
    /// Returns repository and tag of the image.
    fn image(&self) -> Result<(&str, &str)> {
        let parts = self.image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
        parts.with_context(|| format!("{} has no tag", self.image))
    }
}

/// Returns the YAML of an overlay.
fn overlay(name: &str) -> Result<String> {
    kustomize(&root().join("config/overlays").join(name))
}

/// Returns one file for each overlay of the chart, by name: its objects, with the image of the release. `kubectl apply` takes it.
///
/// # Errors
/// Returns an error if an overlay does not render.
pub fn install_files(release: &Release) -> Result<BTreeMap<String, String>> {
    let names: BTreeSet<&str> =
        ROLES.iter().flat_map(|role| [role.overlays(false), role.overlays(true)]).flatten().collect();
    let mut files = BTreeMap::new();
    for name in names {
        let text = overlay(name)?.replace(&format!("image: {IMAGE}\n"), &format!("image: {}\n", release.image));
        let head = format!("# compute-operator {}: config/overlays/{name}\n", release.version);
        files.insert(format!("{name}.yaml"), head + &text);
    }
    Ok(files)
}

/// Returns every file of the chart, by its path in the chart.
///
/// # Errors
/// Returns an error if an overlay does not render, or no longer has the text that a value replaces.
pub fn files(release: &Release) -> Result<BTreeMap<String, String>> {
    let mut files = written(release)?;
    files.insert("Chart.yaml".to_owned(), description(release));
    let mut definitions = Definitions::default();
    for role in &ROLES {
        for webhooks in [false, true] {
            for name in role.overlays(webhooks) {
                let documents = split(&overlay(name)?);
                let others = definitions.take(role.name, documents)?;
                // The overlay `project-access` comes twice, with and without webhooks, and is the same.
                let text = template(&condition(role, name), &edited(others)?);
                files.insert(format!("templates/{name}.yaml"), text);
            }
        }
    }
    files.insert("templates/definitions.yaml".to_owned(), definitions.text());
    for (value, component) in MONITORING {
        let text = kustomize(&root().join("config/components").join(component))?;
        let text = template(&format!(".Values.metrics.{value}"), &split(&escaped(&text)));
        files.insert(format!("templates/{component}.yaml"), text);
    }
    Ok(files)
}

/// Writes the files to a folder, which is emptied first.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write(files: &BTreeMap<String, String>, dir: &Path) -> Result<()> {
    if dir.exists() {
        let known = dir.join("Chart.yaml").exists() || dir.join("hub.yaml").exists();
        if !known && fs::read_dir(dir)?.next().is_some() {
            bail!("{} has other files", dir.display());
        }
        fs::remove_dir_all(dir)?;
    }
    for (name, text) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the files of [`FOLDER`], with the image of the release.
fn written(release: &Release) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for folder in ["", "templates/"] {
        for entry in fs::read_dir(root().join(FOLDER).join(folder))? {
            let path = entry?.path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                files.insert(format!("{folder}{}", name.to_string_lossy()), fs::read_to_string(&path)?);
            }
        }
    }
    let (repository, tag) = release.image()?;
    let values = files.get_mut("values.yaml").context("config/chart has no values.yaml")?;
    *values = once(values, "repository: compute-operator\n", &format!("repository: {repository}\n"))?;
    *values = once(values, "tag: latest\n", &format!("tag: {}\n", json!(tag)))?;
    Ok(files)
}

fn description(release: &Release) -> String {
    let version = &release.version;
    format!(
        "# Generated by `cargo testbed chart`.\napiVersion: v2\nname: compute-operator\n\
         description: Runs Workloads in cities over a Karmada federation\ntype: application\n\
         version: {version}\nappVersion: {version}\nkubeVersion: '>=1.30.0-0'\n\
         home: {HOME}\nsources:\n- {HOME}\n"
    )
}

/// Returns the condition under which a role renders an overlay.
fn condition(role: &Role, overlay: &str) -> String {
    let is_role = format!("eq .Values.role {}", json!(role.name));
    match (role.name == overlay, role.with_webhooks) {
        (true, []) => is_role,
        // The role with webhooks has its overlay as well.
        (true, with) if with.contains(&overlay) => is_role,
        (true, _) => format!("and ({is_role}) (not .Values.webhooks.enabled)"),
        (false, _) => format!("and ({is_role}) .Values.webhooks.enabled"),
    }
}

/// Returns the documents of a rendered text, each without separator and line break at the end.
fn split(text: &str) -> Vec<String> {
    text.trim_end().split("\n---\n").map(str::to_owned).collect()
}

fn template(condition: &str, documents: &[String]) -> String {
    let head = "{{- /* Generated by `cargo testbed chart`; do not edit. */}}";
    format!("{head}\n{{{{- if {condition} }}}}\n{}\n{{{{- end }}}}\n", documents.join("\n---\n"))
}

/// Escapes what Helm would take for an action.
fn escaped(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

/// Replaces a text that is there exactly once.
fn once(text: &str, from: &str, to: &str) -> Result<String> {
    let found = text.matches(from).count();
    if found != 1 {
        bail!("{from:?} is there {found} times in\n{text}");
    }
    Ok(text.replacen(from, to, 1))
}

/// Replaces a text that is there at most once.
fn optional(text: &str, from: &str, to: &str) -> Result<String> {
    if text.contains(from) { once(text, from, to) } else { Ok(text.to_owned()) }
}

/// The definitions of all roles. They are in one template, because they are the largest objects and differ in labels alone.
#[derive(Default)]
struct Definitions {
    /// Text without labels, and the roles with and without labels, by the text of the labels.
    texts: BTreeMap<String, BTreeMap<String, BTreeSet<&'static str>>>,
}

impl Definitions {
    /// Takes the definitions out of the documents of a role. Returns the rest, without the namespace: Helm requires it before the
    /// first object.
    fn take(&mut self, role: &'static str, documents: Vec<String>) -> Result<Vec<String>> {
        let mut others = Vec::new();
        for document in documents {
            if document.contains("\nkind: CustomResourceDefinition\n") {
                let labels = block(&document, "  labels:\n").unwrap_or_default();
                let bare = document.replacen(&labels, "", 1);
                self.texts.entry(bare).or_default().entry(labels).or_default().insert(role);
            } else if !document.contains("\nkind: Namespace\n") {
                others.push(document);
            }
        }
        if self.texts.len() > 3 {
            bail!("overlays have different definitions");
        }
        Ok(others)
    }

    fn text(&self) -> String {
        let mut documents = Vec::new();
        let list =
            |roles: &BTreeSet<&str>| roles.iter().map(|role| json!(role).to_string()).collect::<Vec<_>>().join(" ");
        let mut all = BTreeSet::new();
        for (bare, by_labels) in &self.texts {
            let mut labels = String::new();
            for (text, roles) in by_labels {
                all.extend(roles);
                if !text.is_empty() {
                    let text = managed(text);
                    let listed = list(roles);
                    let _ =
                        write!(labels, "  {{{{- if has .Values.role (list {listed}) }}}}\n{text}  {{{{- end }}}}\n");
                }
            }
            // The annotations are the first part of the metadata.
            let head = "  annotations:\n";
            let kept = format!("{head}    helm.sh/resource-policy: keep\n");
            documents.push(escaped(bare).replacen(head, &kept, 1).replacen(
                "\nmetadata:\n",
                &format!("\nmetadata:\n{labels}"),
                1,
            ));
        }
        template(&format!("and .Values.definitions (has .Values.role (list {}))", list(&all)), &documents)
    }
}

/// Returns the lines of a block: its first line, and all that are indented more.
fn block(text: &str, first: &str) -> Option<String> {
    let from = text.find(&format!("\n{first}"))? + 1;
    let indent = first.len() - first.trim_start().len();
    let lines = text[from..].split_inclusive('\n');
    let is_inside = |line: &&str| line.len() - line.trim_start_matches(' ').len() > indent;
    let rest: String = lines.skip(1).take_while(is_inside).collect();
    Some(format!("{first}{rest}"))
}

/// Names Helm instead of kustomize as the manager of an object.
fn managed(text: &str) -> String {
    text.replace("app.kubernetes.io/managed-by: kustomize\n", "app.kubernetes.io/managed-by: {{ .Release.Service }}\n")
}

/// Puts the settings into the documents of an overlay.
fn edited(documents: Vec<String>) -> Result<Vec<String>> {
    let mut edited = Vec::new();
    for text in documents {
        let object = documents_of_one(&text)?;
        let text = managed(&escaped(&(text + "\n")));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let text = match (object["kind"].as_str().unwrap_or_default(), name) {
            ("Deployment", _) => deployment(&text, &object)?,
            ("ValidatingWebhookConfiguration", _) => webhooks(&text)?,
            ("ConfigMap", "compute-config") => config(&text)?,
            ("ConfigMap", name) if name.starts_with(HUB_CONFIG) => hub_config(&text)?,
            _ => text,
        };
        edited.push(text.trim_end().to_owned());
    }
    Ok(edited)
}

fn documents_of_one(text: &str) -> Result<Value> {
    documents(text)?.into_iter().next().context("an empty document")
}

fn webhooks(text: &str) -> Result<String> {
    let authority =
        "  clientConfig:\n    {{- with $.Values.webhooks.caBundle }}\n    caBundle: {{ . }}\n    {{- end }}\n";
    if text.matches("  clientConfig:\n").count() != 2 {
        bail!("there are two webhooks");
    }
    Ok(text.replace("  clientConfig:\n", authority).replace(WEBHOOKS, "{{ $.Values.webhooks.url }}"))
}

/// The whole file, or the name of the cell in it.
fn config(text: &str) -> Result<String> {
    let file = block(text, "  config.yaml: |\n").context("no config.yaml")?;
    let mode = if file.contains(" mode: milo\n") { "      mode: milo\n" } else { "      mode: single\n" };
    let named = format!(
        "{mode}      {{{{- with .Values.cellName }}}}\n      clusterName: {{{{ . | quote }}}}\n      {{{{- end }}}}\n"
    );
    let head = "  config.yaml: |\n";
    let body = once(file.trim_start_matches(head), mode, &named)?;
    let whole = format!(
        "{head}    {{{{- if .Values.config }}}}\n    {{{{- .Values.config | trim | nindent 4 }}}}\n    {{{{- else }}}}\n{body}    {{{{- end }}}}\n"
    );
    once(text, &file, &whole)
}

/// The kubeconfig of the hub, with its address.
fn hub_config(text: &str) -> Result<String> {
    let text = once(text, HUB, "{{ .Values.hub.server }}")?;
    named_hub_config(&text)
}

/// The name of the hub's kubeconfig. Another server needs another name, because a manager does not follow to it.
fn named_hub_config(text: &str) -> Result<String> {
    let at = text.find(HUB_CONFIG).context("no name of the hub's kubeconfig")?;
    let name: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let hash = &name[HUB_CONFIG.len()..];
    let action = format!("{{{{ include \"compute.hubConfig\" (dict \"hash\" {} \"root\" .) }}}}", json!(hash));
    once(text, &name, &action)
}

fn deployment(text: &str, object: &Value) -> Result<String> {
    let image = "        image: {{ printf \"%s:%v\" .Values.image.repository .Values.image.tag | quote }}\n";
    let mut text = once(text, &format!("        image: {IMAGE}\n"), image)?;
    let replicas = &object["spec"]["replicas"];
    let wanted = format!(
        "\n  replicas: {{{{ if kindIs \"invalid\" .Values.replicas }}}}{replicas}{{{{ else }}}}{{{{ .Values.replicas }}}}{{{{ end }}}}\n"
    );
    text = once(&text, &format!("\n  replicas: {replicas}\n"), &wanted)?;
    let level = "        {{- with .Values.logLevel }}\n        - --zap-log-level={{ . }}\n        {{- end }}\n";
    let gates = "        - --feature-gates=$(FEATURE_GATES)\n";
    text = once(&text, gates, &format!("{gates}{level}"))?;
    let gates = "        - name: FEATURE_GATES\n          value: ";
    text = once(&text, &format!("{gates}\"\"\n"), &format!("{gates}{{{{ .Values.featureGates | quote }}}}\n"))?;
    let resources = block(&text, "        resources:\n").context("no resources")?;
    let body = resources.trim_start_matches("        resources:\n");
    let chosen = format!(
        "        resources:\n          {{{{- with .Values.resources }}}}\n          {{{{- toYaml . | nindent 10 }}}}\n          {{{{- else }}}}\n{body}          {{{{- end }}}}\n"
    );
    text = once(&text, &resources, &chosen)?;
    let class = "      priorityClassName: system-cluster-critical\n";
    let pulls = "      {{- with .Values.image.pullSecrets }}\n      imagePullSecrets:\n      {{- range . }}\n      - name: {{ . }}\n      {{- end }}\n      {{- end }}\n      priorityClassName: {{ .Values.priorityClassName }}\n";
    text = once(&text, class, pulls)?;
    volumes(&text)
}

/// The Secrets of the volumes, the token for the hub, and the certificate of the webhooks.
fn volumes(text: &str) -> Result<String> {
    let mut text = text.to_owned();
    for (value, name) in [("quota", "compute-quota-credentials"), ("milo", "compute-milo-credentials")] {
        text = optional(
            &text,
            &format!(" secretName: {name}\n"),
            &format!(" secretName: {{{{ .Values.secrets.{value} | quote }}}}\n"),
        )?;
    }
    // The Secret, and the ConfigMap that replaces it if the kubeconfig has no credentials.
    text =
        text.replace(" name: compute-cell-federation-kubeconfig\n", " name: {{ .Values.secrets.cellHub | quote }}\n");
    text = optional(&text, " name: compute-hub-credentials\n", " name: {{ .Values.secrets.hub | quote }}\n")?;
    if text.contains(HUB_CONFIG) {
        text = named_hub_config(&text)?;
        let token = block(&text, "          - serviceAccountToken:\n").context("no token for the hub")?;
        let stored = "          - secret:\n              items:\n              - key: token\n                path: token\n              name: {{ .Values.secrets.hub | quote }}\n";
        let chosen = format!(
            "          {{{{- if .Values.hub.storedToken }}}}\n{stored}          {{{{- else }}}}\n{token}          {{{{- end }}}}\n"
        );
        text = once(&text, &token, &chosen)?;
    }
    let Some(driver) = block(&text, "      - csi:\n") else { return Ok(text) };
    let chosen = format!(
        "      {{{{- if .Values.webhooks.secret }}}}\n      - secret:\n          secretName: {{{{ .Values.webhooks.secret | quote }}}}\n        name: webhook-cert\n      {{{{- else }}}}\n{}      {{{{- end }}}}\n",
        issued(&driver)?
    );
    once(&text, &driver, &chosen)
}

/// The issuer of the certificate of the webhooks, which cert-manager's CSI driver asks.
fn issued(driver: &str) -> Result<String> {
    let group = "            csi.cert-manager.io/fs-group: \"65532\"\n";
    let issuer = "            {{- with .Values.webhooks.issuer }}\n            {{- if .name }}\n            csi.cert-manager.io/issuer-group: {{ .group }}\n            csi.cert-manager.io/issuer-kind: {{ .kind }}\n            csi.cert-manager.io/issuer-name: {{ .name }}\n            {{- end }}\n            {{- end }}\n";
    once(driver, group, &format!("{group}{issuer}"))
}
