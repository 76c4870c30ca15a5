//! Plans take plain data, and use each other in one direction.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{production, root, rust_files};

fn is_test(file: &Path) -> bool {
    file.file_stem().unwrap().to_str().unwrap().ends_with("_tests")
}

/// Returns every public struct of a file: the text before its fields, and its fields.
fn structs(text: &str) -> Vec<(&str, &str)> {
    let starts = text.match_indices("\npub struct ").map(|(at, begin)| &text[at + begin.len()..]);
    starts.filter_map(|from| from[..from.find("\n}").unwrap_or(from.len())].split_once('{')).collect()
}

#[test]
fn plan_snapshots_are_plain_data() {
    let mut seen = 0;
    for file in rust_files(&root().join("src/plan")) {
        for (head, fields) in structs(&production(&file)) {
            for word in ["dyn ", "impl Fn", ": fn(", "<fn("] {
                let is_marker = word == "<fn(" && fields.contains("PhantomData<fn(");
                assert!(is_marker || !fields.contains(word), "{}: {head} holds {word}", file.display());
            }
            if head.starts_with("Observed") {
                seen += 1;
                assert!(!head.contains('<'), "{}: {head} borrows: it cannot be recorded", file.display());
            }
        }
    }
    assert!(seen > 9, "the reader of structs sees only {seen}: it is broken");
}

/// Controllers that may read the clock: the loop around every reconcile, tickers, events that no loop announces, and measured
/// durations.
const CLOCKS: [&str; 10] = [
    "mod.rs",
    "cell/locations.rs",
    "management/drain/city_watch.rs",
    "management/hub/hub_outage.rs",
    "management/federator/latency.rs",
    "management/collector/mod.rs",
    "management/wiring/triggers/hub.rs",
    "management/wiring/triggers/project.rs",
    "management/projects/unreadable.rs",
    "management/wiring/watches.rs",
];

#[test]
fn controllers_do_not_read_the_clock() {
    let controllers = root().join("src/controllers");
    for file in rust_files(&controllers) {
        let name = file.strip_prefix(&controllers).unwrap().to_str().unwrap().to_owned();
        let code = production(&file);
        for word in ["Instant::now", "Timestamp::now", "SystemTime", "Now::read", "plane.now()"] {
            assert!(CLOCKS.contains(&&*name) || !code.contains(word), "{name}: {word}");
        }
    }
}

/// Returns the signature of every function of a file that has a name beginning with `plan`.
fn plans(code: &str) -> Vec<String> {
    let starts = code.match_indices("pub fn plan").map(|(at, _)| &code[at..]);
    starts.map(|from| from.split('{').next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn plan_functions_have_one_signature() {
    let mut seen = 0;
    for file in rust_files(&root().join("src/plan")) {
        for signature in plans(&production(&file)) {
            let times =
                ["now", "_now", "_"].map(|time| format!("pub fn plan(observed: &Observed, {time}: Timestamp) -> "));
            let decides = times.iter().find_map(|begin| signature.strip_prefix(begin));
            let decides = decides.is_some_and(|decides| decides == "Decided" || decides.starts_with("Plan<"));
            assert!(decides, "{}: {signature}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 14, "the reader of plans sees only {seen}: it is broken");
}

/// Returns the modules with a `plan` that a file calls.
fn planners(code: &str) -> BTreeSet<String> {
    let before = code.match_indices("::plan(").map(|(at, _)| &code[..at]);
    before.map(|text| text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned()).collect()
}

#[test]
fn controllers_record_every_plan_they_call() {
    let mut seen = 0;
    for file in rust_files(&root().join("src/controllers")) {
        let code = production(&file);
        let asked = planners(&code);
        let recorded = code.matches(" record(").count();
        assert!(recorded >= asked.len(), "{}: {recorded} records of {asked:?}", file.display());
        seen += asked.len();
    }
    assert!(seen > 14, "the reader of controllers sees only {seen}: it is broken");
}

#[test]
fn reconcile_functions_document_numbered_steps() {
    let mut seen = 0;
    for file in rust_files(&root().join("src/controllers")) {
        let code = production(&file);
        for (at, _) in code.match_indices("    async fn reconcile(") {
            let doc = code[..at].lines().rev().take_while(|line| line.trim_start().starts_with("///"));
            let numbered =
                doc.filter_map(|line| line.trim_start_matches(['/', ' ']).split_once(". ")?.0.parse::<u32>().ok());
            let mut numbers: Vec<u32> = numbered.collect();
            numbers.reverse();
            let steps: Vec<u32> = (1..=u32::try_from(numbers.len()).unwrap()).collect();
            assert!(numbers.len() > 1 && numbers == steps, "{}: {numbers:?}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 7, "the reader of controllers sees only {seen}: it is broken");
}

/// Only triggers compare old and new objects. Their tests are tables of changes and keys.
#[test]
fn controllers_do_not_compare_old_and_new_objects() {
    let controllers = root().join("src/controllers");
    for file in rust_files(&controllers) {
        // `controllers::delta` passes both objects to the plans.
        if file.to_string_lossy().contains("/triggers/") {
            continue;
        }
        let own = usize::from(file == controllers.join("mod.rs"));
        let compared = production(&file).matches(".old").count();
        assert_eq!(compared, own, "{}: compares old and new objects", file.display());
    }
}

/// Returns the modules that a file names after `path`.
fn named_after(path: &str, code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices(path) {
        let rest = &code[at + path.len()..];
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

/// Returns a path through `uses` that ends where it began.
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

/// Returns the code without the items that `use` lists after such a path.
fn without_paths_after(path: &str, code: &str) -> String {
    let mut parts = code.split(path);
    let mut left = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut depth = 0_i32;
        let end = part.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth < 0 || depth == 0 && [';', ',', '}', '('].contains(c)
        });
        left.push_str(&part[end.map_or(part.len(), |(at, _)| at)..]);
    }
    left
}

/// Returns which modules of a directory and its folders use which. It reads the names after `super::`, after the name of a folder
/// and, if given, after the directory's own path.
fn uses(dir: &str, own_path: Option<&str>) -> BTreeMap<String, BTreeSet<String>> {
    // Plans shared by both sides are checked apart from the plans of each side.
    let (deep, is_controllers) = (dir != "src/plan", dir.starts_with("src/controllers"));
    let dir = root().join(dir);
    let files = rust_files(&dir);
    let here = |file: &&PathBuf| !is_test(file) && !file.ends_with("mod.rs") && (deep || file.parent() == Some(&dir));
    let folders: BTreeSet<String> = files
        .iter()
        .filter_map(|file| file.parent().filter(|parent| *parent != dir)?.file_name()?.to_str())
        .filter(|_| deep)
        .map(|folder| format!("{folder}::"))
        .collect();
    let of = |file: &PathBuf| {
        let code: Vec<String> =
            production(file).lines().map(|line| line.split("//").next().unwrap().to_owned()).collect();
        let mut code = code.join("\n");
        if is_controllers {
            // Plans have folders with the same names.
            code = without_paths_after("plan::", &code);
        }
        let module = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let paths = ["super::"].into_iter().chain(own_path).chain(folders.iter().map(String::as_str));
        let mut used: BTreeSet<String> = paths.flat_map(|path| named_after(path, &code)).collect();
        used.remove(&module);
        (module, used)
    };
    files.iter().filter(here).map(of).collect()
}

#[test]
fn modules_have_no_use_cycle() {
    for (dir, own_path, least) in [
        ("src/api", Some("crate::api::"), 2),
        ("src/plan", None, 3),
        ("src/plan/admission", Some("admission::"), 5),
        ("src/plan/cell", Some("cell::"), 5),
        ("src/plan/management", Some("management::"), 10),
        ("src/controllers/cell", None, 5),
        ("src/controllers/management", None, 10),
    ] {
        let uses = uses(dir, own_path);
        let count = uses.values().map(BTreeSet::len).sum::<usize>();
        assert!(count >= least, "{dir}: the reader of `use` lines is broken: {uses:?}");
        assert_eq!(cycle(&uses), None, "{dir}");
    }
}

/// Plans shared by both sides use neither side, so no cycle runs through a folder.
#[test]
fn shared_plans_use_no_side() {
    let shared: Vec<PathBuf> = rust_files(&root().join("src/plan"));
    let shared =
        shared.iter().filter(|file| file.parent() == Some(&root().join("src/plan")) && !file.ends_with("mod.rs"));
    let mut seen = 0;
    for file in shared {
        let code = production(file);
        for side in ["cell::", "management::", "admission::"] {
            let used = code
                .match_indices(side)
                .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
            assert!(!used, "{}: {side}", file.display());
        }
        seen += 1;
    }
    assert!(seen > 10, "the reader sees only {seen} files: it is broken");
}

#[test]
fn cycle_check_detects_a_cycle() {
    let uses = |list: &[(&str, &[&str])]| {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        list.iter().map(|(name, used)| ((*name).to_owned(), set(used))).collect()
    };
    assert_eq!(cycle(&uses(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["outside"])])), None);
    assert!(cycle(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])).is_some());
    assert_eq!(
        named_after("super::", "use super::{a::{self, X}, b::Y};\nuse super::c;"),
        ["a", "b", "c"].map(str::to_owned).into()
    );
}

/// Expressions that read the marks of ownership.
const MARKS: [&str; 5] = [
    "owner_references()",
    "get(label::MANAGED_BY)",
    "get(label::CELL_UID)",
    "get(label::REFERENCED_DATA)",
    "contains_key(label::UPSTREAM_CLUSTER)",
];

#[test]
fn ownership_marks_are_read_in_one_module() {
    let home = root().join("src/plan/ownership.rs");
    for file in rust_files(&root().join("src")).iter().filter(|file| **file != home) {
        let code = production(file);
        for mark in MARKS {
            assert!(!code.contains(mark), "{}: {mark} is read in src/plan/ownership.rs", file.display());
        }
    }
    let known = production(&home);
    assert!(MARKS.iter().all(|mark| known.contains(mark)), "the list of marks is not up to date");
}
