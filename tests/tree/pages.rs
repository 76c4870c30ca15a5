//! What the pages for people name is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use compute_operator::timing::Timing;

use super::{production, root, rust_files};

/// Directories of the tree that pages name files of, from its root.
const TREES: [&str; 7] = ["benches/", "config/", "crds/", "docs/", "e2e/", "src/", "tests/"];

/// Layers whose files pages name without the `src/` before them.
const LAYERS: [&str; 4] = ["api/", "controllers/", "io/", "plan/"];

/// `README.md`, and every page under `docs` and `e2e`.
fn pages() -> Vec<PathBuf> {
    fn under(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                under(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![root().join("README.md")];
    for dir in ["docs", "e2e"] {
        under(&root().join(dir), &mut found);
    }
    found
}

/// The files and directories that a page names in code spans, from the root of the tree.
fn paths_named(page: &str) -> BTreeSet<String> {
    let spans = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = spans.flat_map(str::split_whitespace).map(|word| word.trim_end_matches("/**").trim_end_matches('/'));
    let named = words.filter_map(|word| {
        let begins = |with: &str| word.starts_with(with) || format!("{word}/") == with;
        if TREES.iter().any(|tree| begins(tree)) {
            return Some(word.to_owned());
        }
        LAYERS.iter().any(|layer| word.starts_with(layer)).then(|| format!("src/{word}"))
    });
    named.collect()
}

/// The modules of the operator whose log lines a page shows, as paths below `src` without an ending.
fn modules_named(page: &str) -> impl Iterator<Item = String> {
    let from = page.split("compute_operator::").skip(1);
    let paths = from.filter_map(|from| from.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next());
    paths.map(|path| path.trim_end_matches(':').replace("::", "/"))
}

/// What a page links to beside it; other sites and places within a page left out.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|from| from.split(')').next());
    let files = targets.filter(|target| !target.contains("://")).filter_map(|target| target.split('#').next());
    files.filter(|target| !target.is_empty())
}

#[test]
fn every_path_that_a_page_names_exists() {
    let mut seen = 0;
    for file in pages() {
        let page = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display();
        for path in paths_named(&page) {
            assert!(root().join(&path).exists(), "{name}: there is no {path}");
            seen += 1;
        }
        for module in modules_named(&page) {
            let files = [format!("src/{module}.rs"), format!("src/{module}/mod.rs")];
            assert!(files.iter().any(|file| root().join(file).exists()), "{name}: there is no module {module}");
            seen += 1;
        }
        for link in links(&page) {
            assert!(file.parent().unwrap().join(link).exists(), "{name}: there is no {link} to link to");
            seen += 1;
        }
    }
    assert!(seen > 60, "the reader of pages sees only {seen}: it is broken");
}

/// Commands that a page has a reader type and that nobody has run, by the line that says so before them.
fn not_run(page: &str) -> Vec<&str> {
    let blocks = page.split("\n*Not run").skip(1).filter_map(|rest| rest.split_once("\n\n"));
    blocks.flat_map(|(_, block)| block.lines().map_while(|line| line.strip_prefix("    "))).collect()
}

/// Programs that a page has a reader start, by a line of an indented block, after variables that it sets for them.
const PROGRAMS: [&str; 6] = ["cargo", "curl", "docker", "e2e/kind/", "kubectl", "openssl"];

/// What readers of README and of the pages about building, testing and deploying are told to type, and where it is run: by this
/// file, or by hand. The runbooks say themselves what of them was done.
const RUN: [(&str, &str); 7] = [
    ("cargo demo", "tests/it/demo.rs"),
    ("cargo test", "Cargo.toml"),
    ("cargo testbed down", ""),
    ("cargo testbed e2e", ""),
    ("cargo testbed status", ""),
    ("cargo testbed up --operator --networks --quota", ""),
    ("kubectl kustomize config/overlays/cell", "tests/tree/manifests.rs"),
];

/// The commands of a page's indented blocks, without variables before them and notes behind them.
fn commands(page: &str) -> Vec<&str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let typed = lines.map(|line| line.split("    ").next().unwrap_or(line).split("   #").next().unwrap_or(line).trim());
    let bare = typed.map(|line| {
        let words = line.split_inclusive(' ').take_while(|word| word.contains('=') && !word.starts_with('-'));
        &line[words.map(str::len).sum()..]
    });
    bare.filter(|line| PROGRAMS.iter().any(|program| line.starts_with(program))).collect()
}

#[test]
fn what_nobody_has_run_is_marked_and_is_this() {
    let (mut marked, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for file in pages() {
        let page = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let not_run = not_run(&page);
        for command in commands(&page).into_iter().filter(|_| !name.starts_with("docs/runbooks/")) {
            let where_run =
                RUN.iter().find(|(known, _)| command == *known || command.starts_with(&format!("{known} ")));
            seen.extend(where_run);
            match where_run {
                Some((_, file)) => {
                    assert!(root().join(file).exists() && !not_run.contains(&command), "{name}: {command}");
                }
                None => assert!(
                    not_run.contains(&command),
                    "{name}: who runs `{command}`? it stands in no block that says nobody"
                ),
            }
        }
        if !not_run.is_empty() {
            marked.insert(name, not_run.join(", "));
        }
    }
    assert_eq!(seen, RUN.iter().collect(), "each of them is asked for");
    let scripts = "e2e/kind/up, e2e/kind/run, e2e/kind/down";
    let image = "docker buildx build --platform linux/amd64,linux/arm64 .";
    let of_pages = [("README.md", format!("{scripts}, {image}")), ("e2e/README.md", scripts.to_owned())];
    assert_eq!(marked, of_pages.map(|(name, what)| (name.to_owned(), what)).into());
}

#[test]
fn paths_modules_and_links_are_found() {
    let page =
        "`tests/it/cells/`, src/none.rs and `kubectl apply -f crds/`\n`plan/a.rs` | `src/plan/**` `planned` `a/b`\n";
    assert_eq!(paths_named(page), ["tests/it/cells", "crds", "src/plan/a.rs", "src/plan"].map(str::to_owned).into());
    let page = "INFO compute_operator::io::queue: said";
    assert_eq!(modules_named(page).collect::<Vec<_>>(), ["io/queue"]);
    let page = "[a](b.md) [c](https://d/e) [f](g.md#h) [i](#j)";
    assert_eq!(links(page).collect::<Vec<_>>(), ["b.md", "g.md"]);
}

#[test]
fn the_page_of_tests_has_a_row_for_every_file_of_the_integration_tests() {
    let named = paths_named(&fs::read_to_string(root().join("docs/testing.md")).unwrap());
    let files = ["tests/it", "tests/long"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap()))
    });
    let missing: Vec<String> = files.filter(|file| !file.ends_with("/main.rs") && !named.contains(file)).collect();
    assert!(missing.is_empty(), "docs/testing.md does not say what these are for: {missing:?}");
}

#[test]
fn the_page_of_the_architecture_says_where_each_controller_is() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut seen = 0;
    for file in rust_files(&root().join("src/controllers")) {
        let code = production(&file);
        for rest in code.split("const NAME: &'static str = \"").skip(1) {
            let (name, path) = (rest.split('"').next().unwrap(), file.strip_prefix(root()).unwrap().display());
            let side = if file.to_string_lossy().contains("/cell/") { "cell" } else { "management" };
            assert!(page.contains(&format!("| `{name}` | {side} | `{path}` |")), "{name} in {path}");
            seen += 1;
        }
    }
    assert!(seen >= 9, "the reader of names sees only {seen}: it is broken");
}

#[test]
fn the_page_of_settings_has_every_waiting_period_with_its_default() {
    let page = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `timing."));
    let mut listed = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.split('|').map(|column| column.trim().trim_matches('`')).collect();
        let [key, default, _, meaning, _] = columns[..] else { panic!("{row}") };
        let seconds: f64 = default.parse().unwrap_or_else(|_| panic!("{key}: {default:?} is no number of seconds"));
        let timing = Timing::with(&BTreeMap::from([(key.to_owned(), seconds)])).unwrap();
        assert_eq!(timing, Timing::default(), "{key}: {default} is not its default");
        assert!(!meaning.is_empty(), "{key}: what is it?");
        listed.push(key);
    }
    assert_eq!(listed, Timing::KEYS, "docs/configuration.md lists them in the order of src/timing.rs");
}
