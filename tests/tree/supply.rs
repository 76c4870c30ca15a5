//! The content of the binary: `deny.toml` allows its licences and sources, and the bill of materials lists everything. The check
//! for known vulnerabilities needs an external database. cargo-deny runs it in `.github/workflows/supply.yaml`.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::root;

/// Returns every package that a build on Linux needs, including tests.
fn packages() -> Vec<Value> {
    testbed::supply::metadata().unwrap()["packages"].as_array().unwrap().clone()
}

/// Returns the entries of a list in `deny.toml`: one a line, in quotes.
fn entries(list: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let from = text.split(&format!("\n{list} = [\n")).nth(1).unwrap_or_else(|| panic!("no list {list}"));
    let lines = from.lines().take_while(|line| *line != "]");
    lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// True if these licences satisfy an SPDX expression with `OR`, `AND` and parentheses. A slash is the older form of `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = offers(&tokens, &mut at, allowed);
    assert_eq!(at, tokens.len(), "{expression:?} is no expression");
    met
}

fn offers(tokens: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = demands(tokens, at, allowed);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= demands(tokens, at, allowed);
    }
    met
}

fn demands(tokens: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(tokens, at, allowed);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at, allowed);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let token = tokens[*at];
    *at += 1;
    if token == "(" {
        let met = offers(tokens, at, allowed);
        assert_eq!(tokens.get(*at), Some(&")"));
        *at += 1;
        return met;
    }
    let mut name = token.to_owned();
    if tokens.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", tokens[*at + 1]);
        *at += 2;
    }
    allowed.contains(&name)
}

#[test]
fn licences_are_allowed_and_every_allowed_one_is_used() {
    let (packages, allowed) = (packages(), entries("allow"));
    assert!(packages.len() > 100);
    let licence = |package: &Value| package["license"].as_str().unwrap_or("none").to_owned();
    let unmet: Vec<String> = packages
        .iter()
        .filter(|package| !is_met(&licence(package), &allowed))
        .map(|package| format!("{}: {}", package["name"], licence(package)))
        .collect();
    assert_eq!(unmet, Vec::<String>::new());
    for name in &allowed {
        let without: BTreeSet<String> = allowed.iter().filter(|other| *other != name).cloned().collect();
        assert!(packages.iter().any(|package| !is_met(&licence(package), &without)), "{name} is needed by nothing");
    }
}

#[test]
fn packages_come_from_the_allowed_registry() {
    let known = entries("allow-registry");
    for package in packages() {
        match package["source"].as_str() {
            None => {
                let own = ["compute-operator", "kubectl-compute", "testbed"];
                assert!(own.contains(&package["name"].as_str().unwrap()), "{package}");
            }
            Some(source) => {
                assert!(known.contains(source.trim_start_matches("registry+")), "{}: {source}", package["name"]);
            }
        }
    }
}

#[test]
fn spdx_expressions_are_evaluated() {
    let allowed: BTreeSet<String> = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND (GPL-3.0 OR ISC)", true),
        ("(MIT OR ISC) AND GPL-3.0", false),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
        ("Apache-2.0", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn bill_of_materials_matches_the_lock_file() {
    let bill = testbed::supply::bill_of_materials().unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&Value::from("CycloneDX"), &Value::from("1.5")));
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let listed = bill["components"].as_array().unwrap();
    for component in listed {
        let text = |field: &str| component[field].as_str().unwrap();
        let entry = format!("name = \"{}\"\nversion = \"{}\"\n", text("name"), text("version"));
        assert!(lock.contains(&entry), "{component}");
        assert!(lock.contains(component["hashes"][0]["content"].as_str().unwrap()), "{component}");
        assert!(text("purl").starts_with("pkg:cargo/"), "{component}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
    // The bill lists the packages of the binary, and none that only tests need.
    let names: BTreeSet<&str> = listed.iter().map(|component| component["name"].as_str().unwrap()).collect();
    assert!(["kube-client", "rustls", "tokio"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(["proptest", "mlua", "testbed"].iter().all(|name| !names.contains(name)), "{names:?}");
}

/// The suites that need chainsaw printed *skipped* in every run of the CI.
#[test]
fn ci_runs_every_suite_with_the_pinned_chainsaw() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let module = read("e2e/chainsaw/go.mod");
    assert!(module.contains("\ntool github.com/kyverno/chainsaw\n"), "it is built as a tool");
    let pinned = module.lines().find_map(|line| line.trim().strip_prefix("github.com/kyverno/chainsaw v")).unwrap();
    let pinned = pinned.split(' ').next().unwrap();
    assert!(read("e2e/chainsaw/go.sum").contains(&format!("github.com/kyverno/chainsaw v{pinned} h1:")), "{pinned}");
    let (ci, tools) = (read(".ci/run"), read(".ci/tools"));
    assert!(tools.contains("go -C e2e/chainsaw build"));
    assert!(ci.contains("\ntimeout 1200 .ci/tools chainsaw\n"), "it is built, or the run fails");
    assert!(
        ci.contains("for program in promtool prometheus shellcheck chainsaw actionlint helm mdbook; do"),
        "CHAINSAW names it"
    );
    assert!(ci.contains("\nfor tool in debian actionlint helm mdbook; do\n"), "each of them is installed if it can be");
    // The README's command runs all suites except the gated ones, which are in tests/it/suites.rs.
    assert!(ci.contains("\ncargo test --test long gated_suites\n"));
}
