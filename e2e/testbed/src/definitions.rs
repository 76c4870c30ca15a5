//! Definitions of other projects' kinds, from the Go modules in `definitions/go.mod` of this crate. The repository has no copy.
//! `go.sum` pins their content.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::binaries::root;

/// The modules, with the files that define kinds of the manifests.
const FILES: [(&str, &[&str]); 3] = [
    (
        "github.com/cert-manager/cert-manager",
        &["deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml"],
    ),
    (
        "github.com/karmada-io/karmada",
        &["charts/karmada/_crds/bases/config/config.karmada.io_resourceinterpretercustomizations.yaml"],
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        &[
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        ],
    ),
];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Module {
    path: String,
    dir: Option<PathBuf>,
    error: Option<String>,
}

/// Returns the text of each definition by its file name, or `None` without Go. The modules are fetched once, in a few seconds.
///
/// # Errors
/// Returns Go's message if a module is unavailable or has changed.
pub fn of_others() -> Result<Option<BTreeMap<&'static str, String>>> {
    let mut go = Command::new("go");
    go.current_dir(root().join("e2e/testbed/definitions")).args(["mod", "download", "-json"]);
    let Ok(out) = go.output() else { return Ok(None) };
    let modules = serde_json::Deserializer::from_slice(&out.stdout).into_iter().collect::<Result<Vec<Module>, _>>()?;
    if let Some(why) = modules.iter().find_map(|module| module.error.as_ref()) {
        bail!("{why}");
    }
    if !out.status.success() {
        bail!("go mod download: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let mut texts = BTreeMap::new();
    for (path, files) in FILES {
        let module = modules.iter().find(|module| module.path == path);
        let dir = module.and_then(|module| module.dir.as_ref()).with_context(|| format!("go.mod names no {path}"))?;
        for file in files {
            let text = fs::read_to_string(dir.join(file)).with_context(|| format!("{path} has no {file}"))?;
            texts.insert(file.rsplit('/').next().unwrap_or(file), text);
        }
    }
    Ok(Some(texts))
}
