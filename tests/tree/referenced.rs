//! The kinds that a deployment can refer to are one list. Roles, scripts, plans and pages agree with it.

use std::{collections::BTreeSet, fs};

use compute_operator::{
    api::{
        names::{Template, binding_name},
        referenced::{DataRef, MAX_SOURCE_NAME, SourceKind},
    },
    plan::Kind,
};
use serde_json::Value;

use super::{production, root, rust_files};

/// The only source files that name a kind: its definition, and the fields that refer to it. All others use the list.
const KINDS: &str = "src/api/referenced.rs";
const REFERENCES: &str = "src/plan/references.rs";

/// The roles, each with its verbs for every kind.
const ROLES: [(&str, &[&str]); 3] = [
    // Management reads a source when a copy of it is due.
    ("config/components/controller_rbac/role.yaml", &["get", "list", "watch"]),
    // Management creates, updates and deletes companions.
    ("config/base/downstream-rbac/role.yaml", &["get", "list", "watch", "create", "patch", "delete"]),
    // A cell checks that an object exists, and never reads its content.
    ("config/components/cell_rbac/role.yaml", &["list", "watch"]),
];

/// The interpreter script that returns the dependencies of a deployment to Karmada.
const SCRIPT: &str = "config/components/federation/interpreter.yaml";

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn strings(list: &Value) -> BTreeSet<&str> {
    list.as_array().unwrap().iter().map(|value| value.as_str().unwrap()).collect()
}

#[test]
fn roles_name_every_referenced_kind() {
    let kinds: BTreeSet<&str> = SourceKind::ALL.into_iter().map(SourceKind::plural).collect();
    for (file, verbs) in ROLES {
        let documents = testbed::manifests::documents(&read(file)).unwrap();
        let rules = documents.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten());
        let of_kinds: Vec<&Value> = rules
            .filter(|rule| rule["resources"].is_array() && !strings(&rule["resources"]).is_disjoint(&kinds))
            .collect();
        assert_eq!(of_kinds.len(), 1, "{file}: one rule for all kinds");
        assert_eq!(strings(&of_kinds[0]["resources"]), kinds, "{file}");
        assert_eq!(strings(&of_kinds[0]["apiGroups"]), [""].into(), "{file}");
        assert_eq!(strings(&of_kinds[0]["verbs"]), verbs.iter().copied().collect(), "{file}");
    }
}

#[test]
fn interpreter_script_handles_every_referenced_kind_and_no_other() {
    let script = read(SCRIPT);
    let quoted = script.split("kind == \"").skip(1);
    let taken: Vec<&str> = quoted.map(|from| from.split('"').next().unwrap()).collect();
    assert_eq!(taken, SourceKind::ALL.map(SourceKind::as_str), "{SCRIPT}");
}

#[test]
fn referenced_kinds_have_gvk_and_valid_binding_names() {
    for kind in SourceKind::ALL {
        assert_eq!(Kind::from(kind).gvk(), ("v1", kind.as_str(), kind.plural()));
        assert!(Kind::from(kind).is_confidential(), "{kind:?}: its content may be a secret's");
        let longest = DataRef { kind, name: "x".repeat(MAX_SOURCE_NAME) };
        let binding = binding_name(kind.as_str(), &longest.name);
        assert!(binding.len() <= 253, "{kind:?}: Karmada could not name a binding of the longest source");
        let short = DataRef { kind, name: "db".into() };
        assert_eq!(Template::of_binding(&binding_name(kind.as_str(), "db")), Template::Companion(short));
    }
}

/// A third kind is a small change. It touches six files, and `docs/architecture.md` lists them.
#[test]
fn referenced_kinds_are_named_in_two_source_files() {
    let homes = [KINDS, REFERENCES].map(|file| root().join(file));
    let fields_of_tenants = root().join("src/api/compute");
    let explanations_for_people = root().join("src/api/reason");
    for file in rust_files(&root().join("src")) {
        let is_text = file.starts_with(&fields_of_tenants) || file.starts_with(&explanations_for_people);
        if homes.contains(&file) || is_text {
            continue;
        }
        let code = production(&file);
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for kind in SourceKind::ALL.map(SourceKind::as_str) {
                let named = [format!("SourceKind::{kind}"), format!("\"{kind}\""), format!("<{kind}>")];
                let found = named.iter().any(|named| line.contains(named));
                assert!(!found, "{}: {line:?}: go by SourceKind::ALL", file.display());
            }
        }
    }
    let page = read("docs/architecture.md");
    let row = page.lines().find(|line| line.starts_with("| A third kind of referenced data")).unwrap();
    let touched: Vec<&str> = [KINDS, REFERENCES, SCRIPT].into_iter().chain(ROLES.map(|(file, _)| file)).collect();
    assert!(touched.len() <= 6);
    for file in touched {
        let file = file.trim_start_matches("src/");
        assert!(row.contains(&format!("`{file}`")), "docs/architecture.md: {file} is not in {row}");
    }
}
