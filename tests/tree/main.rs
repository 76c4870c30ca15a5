//! Rules for the tree: layers, generated files, manifests, pages, pinned versions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod admission;
mod chart;
mod commands;
mod flags;
mod image;
mod image_runs;
mod kind;
mod manifests;
mod monitoring;
#[path = "../common/optional.rs"]
mod optional;
mod pages;
mod picture;
mod plans;
mod platform;
mod reference;
mod referenced;
mod release;
mod served;
mod shown;
mod site;
mod size;
#[path = "../common/skipping.rs"]
mod skipping;
mod stored;
mod supply;
mod workflows;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use compute_operator::api::crds;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Writes a program that a test runs, by another process. If this process had the file open for writing, a child of another
/// thread could inherit the handle. Then the program would fail as busy.
fn executable(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    let done = std::process::Command::new("install").args(["-m", "755"]).arg(&draft).arg(path).status().unwrap();
    assert!(done.success(), "{}", path.display());
    fs::remove_file(draft).unwrap();
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

/// The modules that each module may use. `src/lib.rs` has the same as a picture.
const LAYERS: [(&str, &[&str]); 12] = [
    ("api", &["api"]),
    ("metrics", &[]),
    ("timing", &[]),
    ("plan", &["api", "plan", "timing"]),
    ("io", &["api", "plan", "metrics", "timing", "io"]),
    ("controllers", &["api", "plan", "io", "metrics", "timing", "controllers"]),
    ("config", &["plan", "io", "timing", "config"]),
    ("admin", &["io", "metrics", "plan"]),
    ("admission", &["api", "plan", "io", "admission"]),
    ("migration", &["api", "plan", "io", "migration"]),
    ("manager", &["api", "config", "controllers", "io", "metrics", "timing", "admin", "admission"]),
    ("lib", &[]),
];

/// Returns the modules named after `crate::`, or on the first level of `use crate::{...}`.
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
fn layers_use_only_the_modules_they_may() {
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
fn plans_have_no_clock_client_or_randomness() {
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

/// Returns the production code of a file: the part before its tests. Empty for a file of tests.
fn production(file: &Path) -> String {
    if file.file_stem().unwrap().to_str().unwrap().ends_with("tests") {
        return String::new();
    }
    let text = fs::read_to_string(file).unwrap();
    text.split("\n#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

#[test]
fn object_names_are_built_and_parsed_in_one_file() {
    let prefixes = ["city-", "ns-", "instance-"].map(|prefix| [format!("\"{prefix}\""), format!("\"{prefix}{{")]);
    let suffixes = ["-configmap\"", "-secret\"", "-workloaddeployment\""].map(str::to_owned);
    let parts: Vec<String> = prefixes.into_iter().flatten().chain(suffixes).collect();
    let home = root().join("src/api/names.rs");
    for file in rust_files(&root().join("src")).iter().filter(|file| **file != home) {
        let text = production(file);
        for part in &parts {
            // The longest source name leaves room for the longest suffix. That is a length and no name.
            let found = text.lines().any(|line| line.contains(part) && !line.contains("MAX_SOURCE_NAME"));
            assert!(!found, "{}: {part} belongs into src/api/names.rs", file.display());
        }
    }
    let known = fs::read_to_string(home).unwrap();
    assert!(known.contains("\"city-\"") && known.contains("\"ns-\"") && known.contains("\"instance-\""));
}

#[test]
fn crds_equal_what_the_types_generate() {
    let generated = crds::files().unwrap();
    for (name, text) in &generated {
        let stands = fs::read_to_string(root().join("crds").join(name)).unwrap_or_default();
        assert!(
            stands == *text,
            "crds/{name} differs from the types; run `cargo run -- crds` and commit what it writes"
        );
    }
    let wanted: BTreeSet<String> = generated.into_iter().map(|(name, _)| name).collect();
    let entries = fs::read_dir(root().join("crds")).unwrap();
    let stands: BTreeSet<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(stands, wanted, "crds/ has exactly the generated files");
}

#[test]
fn toolchain_version_is_the_same_in_all_files() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let channel = read("rust-toolchain.toml")
        .lines()
        .find_map(|l| l.strip_prefix("channel = ").map(|v| v.trim_matches('"').to_owned()))
        .unwrap();
    let minor = channel.rsplit_once('.').unwrap().0;
    assert!(read("Cargo.toml").contains(&format!("rust-version = \"{minor}\"")));
    assert!(read("Dockerfile").contains(&format!("FROM rust:{channel}")));
}
