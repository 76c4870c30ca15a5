//! Components that no overlay has, and what a platform's own kustomization makes of them.

use std::{fs, path::PathBuf};

use testbed::{binaries::cache, manifests};

/// Components that no overlay has, since not every cluster can take them; each with an overlay that it goes with.
pub const OPTIONAL: [(&str, &str); 6] = [
    ("csi-metrics-cert", "single-project"),
    ("networking", "cell"),
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
    let dir = cache().join(format!("run-{}-with-{component}", std::process::id()));
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
