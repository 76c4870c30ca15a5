//! Optional components, and overlays rendered with them.

use std::{fs, path::PathBuf};

use testbed::{binaries::cache, manifests};

/// Components that not every cluster can use. Each has an overlay that it can be added to.
pub const OPTIONAL: [(&str, &str); 7] = [
    ("csi-metrics-cert", "single-project"),
    ("networking", "cell"),
    ("quota-credentials", "single-cluster"),
    ("service-monitor", "single-project"),
    ("alerts", "single-project"),
    ("dashboards", "single-project"),
    ("resource-metrics", "milo"),
];

/// Returns the YAML of an overlay.
pub fn rendered(overlay: &str) -> String {
    manifests::kustomize(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/overlays").join(overlay)).unwrap()
}

/// Returns the YAML of an overlay with one more component, as a platform's own kustomization adds it.
pub fn rendered_with(component: &str, overlay: &str) -> String {
    // Tests that run at the same time render the same overlay.
    let dir = cache().join(format!("run-{}-with-{component}{:08x}", std::process::id(), fastrand::u32(..)));
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    // Kustomize accepts relative paths only.
    let up = "../".repeat(dir.components().count() - 1);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
    let config = format!("{up}{}/config", root.display().to_string().trim_start_matches('/'));
    // Objects for Milo are in Milo's own namespaces, or in none.
    let namespace = if overlay == "milo" { "" } else { "namespace: compute-system\n" };
    let text =
        format!("{namespace}resources: [{config}/overlays/{overlay}]\ncomponents: [{config}/components/{component}]\n");
    fs::write(dir.join("kustomization.yaml"), text).unwrap();
    let text = manifests::kustomize(&dir).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    text
}

/// Adds the path of the quota kubeconfig to a rendered config file of mode `single`.
pub fn with_quota(text: &str) -> String {
    let mode = "      mode: single\n";
    assert_eq!(text.matches(mode).count(), 1, "{text}");
    text.replace(mode, &format!("{mode}      quotaKubeconfigPath: /etc/quota-credentials/kubeconfig\n"))
}

/// Returns the components that change the start of a manager, each as `<overlay> with <component>`.
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
