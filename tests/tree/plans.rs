//! Plans decide on plain data, and use each other one way.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{production, root, rust_files};

fn is_test(file: &Path) -> bool {
    file.file_stem().unwrap().to_str().unwrap().ends_with("_tests")
}

/// The bodies of the structs that a plan decides on.
fn snapshots(text: &str) -> Vec<&str> {
    let names = ["Observed", "Evidence", "View", "Karmada"];
    let begins = names.map(|name| format!("pub struct {name}"));
    let starts = begins.iter().flat_map(|begin| text.match_indices(begin.as_str()).map(|(at, _)| at));
    starts.map(|at| &text[at..at + text[at..].find("\n}").unwrap_or(0)]).collect()
}

#[test]
fn snapshots_are_plain_data() {
    let mut seen = 0;
    for file in rust_files(&root().join("src/plan")) {
        for snapshot in snapshots(&production(&file)) {
            seen += 1;
            for word in ["dyn ", "impl Fn", "fn("] {
                assert!(!snapshot.contains(word), "{}: {word} in {snapshot}", file.display());
            }
        }
    }
    assert!(seen > 5, "the reader of structs sees only {seen}: it is broken");
}

/// The modules beside it that a file names after `super::`.
fn siblings(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("super::") {
        let rest = &code[at + "super::".len()..];
        let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        let Some(list) = rest.strip_prefix('{') else {
            used.insert(word(rest));
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, c) in list.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    used.insert(word(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    used
}

/// A way through `uses` that comes back to where it began.
fn cycle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(uses: &BTreeMap<String, BTreeSet<String>>, path: &mut Vec<String>) -> bool {
        let next = &uses[path.last().unwrap()];
        for module in next.iter().filter(|module| uses.contains_key(*module)) {
            let back = *module == path[0];
            if !back && path.contains(module) {
                continue;
            }
            path.push(module.clone());
            if back || walk(uses, path) {
                return true;
            }
            path.pop();
        }
        false
    }
    uses.keys().find_map(|module| {
        let mut path = vec![module.clone()];
        walk(uses, &mut path).then_some(path)
    })
}

#[test]
fn plans_use_each_other_one_way() {
    let files = rust_files(&root().join("src/plan/management"));
    let modules = files.iter().filter(|file| !is_test(file) && !file.ends_with("mod.rs"));
    let uses: BTreeMap<String, BTreeSet<String>> = modules
        .map(|file| (file.file_stem().unwrap().to_str().unwrap().to_owned(), siblings(&production(file))))
        .collect();
    assert!(uses.values().map(BTreeSet::len).sum::<usize>() > 3, "the reader of `use` lines is broken: {uses:?}");
    assert_eq!(cycle(&uses), None);
}

#[test]
fn a_cycle_is_seen() {
    let uses = |list: &[(&str, &[&str])]| {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        list.iter().map(|(name, used)| ((*name).to_owned(), set(used))).collect()
    };
    assert_eq!(cycle(&uses(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["outside"])])), None);
    assert!(cycle(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])).is_some());
    assert_eq!(siblings("use super::{a::{self, X}, b::Y};\nuse super::c;"), ["a", "b", "c"].map(str::to_owned).into());
}
