//! The tree keeps its promises: layers, generated files, manifests, pins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use compute_operator::{
    api::crds,
    config::{Config, Discovery, Flags},
};
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}

/// What a module may use; the picture in `src/lib.rs` in the form of a table.
const LAYERS: [(&str, &[&str]); 11] = [
    ("api", &["api"]),
    ("metrics", &[]),
    ("timing", &[]),
    ("plan", &["api", "plan", "timing"]),
    ("io", &["api", "plan", "metrics", "timing", "io"]),
    ("controllers", &["api", "plan", "io", "metrics", "timing", "controllers"]),
    ("config", &["plan", "io", "timing", "config"]),
    ("admin", &["io", "metrics"]),
    ("migration", &["api", "plan", "io", "migration"]),
    ("manager", &["api", "config", "controllers", "io", "metrics", "timing", "admin"]),
    ("lib", &[]),
];

/// Modules named after `crate::` or inside `use crate::{...}`, at its first level.
fn modules_used(text: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let Some(list) = rest.strip_prefix('{') else {
            used.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            continue;
        };
        let (mut depth, mut word, mut fresh) = (0, String::new(), true);
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => (word, fresh) = (String::new(), true),
                ':' if depth == 0 && fresh => {
                    used.push(word.trim().to_owned());
                    fresh = false;
                }
                c if depth == 0 => word.push(c),
                _ => {}
            }
        }
    }
    used
}

#[test]
fn data_flows_one_way_through_the_layers() {
    let layers = BTreeMap::from(LAYERS);
    let src = root().join("src");
    let mut seen = 0;
    for file in rust_files(&src) {
        let relative = file.strip_prefix(&src).unwrap();
        let layer = relative.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if layer == "main" {
            continue;
        }
        let allowed =
            layers.get(layer).unwrap_or_else(|| panic!("{layer}: give it a place in LAYERS and in src/lib.rs"));
        for used in modules_used(&fs::read_to_string(&file).unwrap()) {
            assert!(allowed.contains(&used.as_str()), "{}: a module of {layer} may not use {used}", relative.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "the reader of `use` lines sees only {seen}: it is broken");
}

#[test]
fn plans_are_pure() {
    for file in rust_files(&root().join("src/plan")) {
        let text = fs::read_to_string(&file).unwrap();
        for word in [
            "async fn",
            ".await",
            "Client",
            "Timestamp::now",
            "Instant::now",
            "SystemTime",
            "tokio",
            "tracing",
            "fastrand",
        ] {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
}

#[test]
fn definitions_are_what_the_types_generate() {
    for (name, text) in crds::files().unwrap() {
        let path = root().join("crds").join(&name);
        let stands = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stands == text,
            "crds/{name} differs from the types; run `cargo run -- crds` and commit what it writes"
        );
    }
}

/// Renders an overlay with kubectl's kustomize.
fn render(overlay: &str) -> Vec<Value> {
    let kubectl = testbed::binaries::find(&|text| eprintln!("testbed: {text}")).unwrap().join("kubectl");
    let out =
        Command::new(kubectl).arg("kustomize").arg(root().join("config/overlays").join(overlay)).output().unwrap();
    assert!(out.status.success(), "{overlay}: {}", String::from_utf8_lossy(&out.stderr));
    testbed::manifests::documents(&String::from_utf8(out.stdout).unwrap()).unwrap()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|o| o["kind"] == kind).collect()
}

#[test]
fn the_parser_accepts_what_the_overlays_say() {
    for (overlay, management, cell, replicas) in [
        ("management-plane", true, false, 1),
        ("milo", true, false, 1),
        ("cell", false, true, 1),
        ("single-cluster", true, true, 2),
    ] {
        let objects = render(overlay);
        let deployment = of_kind(&objects, "Deployment")[0];
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let mut variables = BTreeMap::new();
        for variable in container["env"].as_array().unwrap() {
            variables.insert(
                format!("$({})", variable["name"].as_str().unwrap()),
                variable["value"].as_str().unwrap().to_owned(),
            );
        }
        let some_file = root().join("Cargo.toml").display().to_string();
        let given = variables.get_mut("$(FEDERATION_KUBECONFIG)").unwrap();
        assert!(!given.is_empty(), "{overlay}: management works on the hub, and cells write back to it");
        given.clone_from(&some_file);
        let args = container["args"].as_array().unwrap().iter().map(|arg| {
            let mut arg = arg.as_str().unwrap().to_owned();
            for (name, value) in &variables {
                arg = arg.replace(name, value);
            }
            assert!(!arg.contains("$("), "{overlay}: {arg}");
            arg
        });
        let flags = Flags::from_args(["compute-operator".to_owned()].into_iter().chain(args)).unwrap();
        let configs = of_kind(&objects, "ConfigMap");
        let file = configs.iter().find(|c| c["metadata"]["name"] == "compute-config").unwrap();
        let text = file["data"]["config.yaml"].as_str().unwrap().replace("/etc/milo/kubeconfig", &some_file);
        let config = Config::new(flags, Some(&text)).unwrap();
        assert_eq!(config.discovery != Discovery::Single, overlay == "milo");
        assert_eq!((config.management, config.cell), (management, cell), "{overlay}");
        assert!(config.leader_election.is_some() && config.health.is_some(), "{overlay}");
        assert_eq!(deployment["spec"]["replicas"], replicas);
        let context = &container["securityContext"];
        assert_eq!(
            (&context["readOnlyRootFilesystem"], &context["allowPrivilegeEscalation"]),
            (&Value::from(true), &Value::from(false))
        );
        assert_eq!(of_kind(&objects, "CustomResourceDefinition").len(), 3, "{overlay}");
    }
    assert_eq!(of_kind(&render("hub"), "ResourceInterpreterCustomization").len(), 1);
    assert!(of_kind(&render("dev"), "Deployment").is_empty());
}

#[test]
fn the_toolchain_is_one() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let channel = read("rust-toolchain.toml")
        .lines()
        .find_map(|l| l.strip_prefix("channel = ").map(|v| v.trim_matches('"').to_owned()))
        .unwrap();
    let minor = channel.rsplit_once('.').unwrap().0;
    assert!(read("Cargo.toml").contains(&format!("rust-version = \"{minor}\"")));
    assert!(read("Dockerfile").contains(&format!("FROM rust:{channel}")));
}
