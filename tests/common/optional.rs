//! Components that an overlay does not have, and what a platform's own kustomization makes of them.

use std::{fs, path::PathBuf};

use testbed::{binaries::cache, manifests};

/// Components that not every cluster can take, or wants; each with an overlay that it goes with and that does not have it.
pub const OPTIONAL: [(&str, &str); 7] = [
    ("csi-metrics-cert", "single-project"),
    ("networking", "cell"),
    ("quota-credentials", "single-cluster"),
    ("service-monitor", "single-project"),
    ("alerts", "single-project"),
    ("dashboards", "single-project"),
    ("resource-metrics", "milo"),
];

/// The YAML of an overlay.
pub fn rendered(overlay: &str) -> String {
    manifests::kustomize(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/overlays").join(overlay)).unwrap()
}

/// The YAML of an overlay with a component more, as a platform's own kustomization adds it.
pub fn rendered_with(component: &str, overlay: &str) -> String {
    // Tests that run at the same time render the same.
    let dir = cache().join(format!("run-{}-with-{component}{:08x}", std::process::id(), fastrand::u32(..)));
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    // Kustomize takes relative paths alone.
    let up = "../".repeat(dir.components().count() - 1);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
    let config = format!("{up}{}/config", root.display().to_string().trim_start_matches('/'));
    // What is for Milo is in namespaces of Milo's own, or in none.
    let namespace = if overlay == "milo" { "" } else { "namespace: compute-system\n" };
    let text =
        format!("{namespace}resources: [{config}/overlays/{overlay}]\ncomponents: [{config}/components/{component}]\n");
    fs::write(dir.join("kustomization.yaml"), text).unwrap();
    let text = manifests::kustomize(&dir).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    text
}

/// A config file of mode `single` that says where quota is, as it stands in what is rendered.
pub fn with_quota(text: &str) -> String {
    let mode = "      mode: single\n";
    assert_eq!(text.matches(mode).count(), 1, "{text}");
    text.replace(mode, &format!("{mode}      quotaKubeconfigPath: /etc/quota-credentials/kubeconfig\n"))
}

/// Those that change what a manager is started with, each as `<overlay> with <component>`.
pub fn of_managers() -> Vec<String> {
    let deployment = |text: &str| {
        let objects = manifests::documents(text).unwrap();
        objects.into_iter().find(|object| object["kind"] == "Deployment")
    };
    let changes = |(component, overlay): &(&str, &str)| {
        deployment(&rendered_with(component, overlay)) != deployment(&rendered(overlay))
    };
    OPTIONAL
        .iter()
        .filter(|one| changes(one))
        .map(|(component, overlay)| format!("{overlay} with {component}"))
        .collect()
}
