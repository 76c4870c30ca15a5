//! Everything that pages for people refer to exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use compute_operator::{
    api::reason::{Entry, Reason},
    timing::Timing,
};

use super::{production, root, rust_files};

/// Directories of the files that pages cite, from the root of the tree.
const TREES: [&str; 8] = ["benches/", "cli/", "config/", "crds/", "docs/", "e2e/", "src/", "tests/"];

/// Layers of the files that pages cite without `src/`.
const LAYERS: [&str; 4] = ["api/", "controllers/", "io/", "plan/"];

/// Collects the files below a folder that have this extension.
pub fn under(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            under(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

/// Pages at the root of the tree.
const AT_ROOT: [&str; 4] = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Returns the pages at the root, and every page under `docs` and `e2e`.
pub fn pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = AT_ROOT.iter().map(|name| root().join(name)).collect();
    for dir in ["docs", "e2e"] {
        under(&root().join(dir), "md", &mut found);
    }
    found
}

/// Returns the runbooks.
pub fn runbooks() -> Vec<PathBuf> {
    let mut found = Vec::new();
    under(&root().join("docs/runbooks"), "md", &mut found);
    found
}

/// Returns the files and directories that a page names in code spans, from the root of the tree.
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

/// Returns the operator's modules in a page's log lines, as paths below `src` without an extension.
fn modules_named(page: &str) -> impl Iterator<Item = String> {
    let from = page.split("compute_operator::").skip(1);
    let paths = from.filter_map(|from| from.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next());
    paths.map(|path| path.trim_end_matches(':').replace("::", "/"))
}

/// Returns the relative links of a page. Links to other sites and within the page are left out.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|from| from.split(')').next());
    let files = targets.filter(|target| !target.contains("://")).filter_map(|target| target.split('#').next());
    files.filter(|target| !target.is_empty())
}

#[test]
fn paths_named_in_pages_exist() {
    let mut seen = 0;
    for file in pages() {
        let page = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display();
        for path in paths_named(&page) {
            assert!(root().join(&path).exists(), "{name}: {path} does not exist");
            seen += 1;
        }
        for module in modules_named(&page) {
            let files = [format!("src/{module}.rs"), format!("src/{module}/mod.rs")];
            assert!(files.iter().any(|file| root().join(file).exists()), "{name}: module {module} does not exist");
            seen += 1;
        }
        for link in links(&page) {
            assert!(file.parent().unwrap().join(link).exists(), "{name}: {link} does not exist");
            seen += 1;
        }
    }
    assert!(seen > 60, "the reader of pages sees only {seen}: it is broken");
}

/// Returns the commands of a page that no test runs. A line that begins with `*Not run` marks them.
fn not_run(page: &str) -> Vec<&str> {
    let blocks = page.split("\n*Not run").skip(1).filter_map(|rest| rest.split_once("\n\n"));
    blocks.flat_map(|(_, block)| block.lines().map_while(|line| line.strip_prefix("    "))).collect()
}

/// Programs that a page's commands start. A command is a line of an indented block, after its variables.
const PROGRAMS: [&str; 9] = [".ci/", "cargo", "cosign", "curl", "docker", "e2e/kind/", "helm", "kubectl", "openssl"];

/// Evidence for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    /// A test runs it: this file contains these words.
    File(&'static str, &'static str),
    /// A person runs it. The code that it starts is in this file, under these words.
    Hand(&'static str, &'static str),
}

use By::{File, Hand};

/// The commands of the testbed.
const TESTBED: &str = "e2e/testbed/src/bin/testbed.rs";

/// Commands of pages, runbooks and comments in `config/`, by their beginning, each with its evidence.
const RUN: [(&str, By); 68] = [
    (".ci/run", File(".github/workflows/ci.yaml", "run: .ci/run")),
    ("cargo clippy --workspace --all-targets", File(".ci/run", "\ncargo clippy --workspace --all-targets --locked\n")),
    ("cargo fmt --all --check", File(".ci/run", "\ncargo fmt --all --check\n")),
    ("cargo bench --bench admission", Hand("Cargo.toml", "name = \"admission\"")),
    ("cargo bench --bench cell", Hand("Cargo.toml", "name = \"cell\"")),
    ("cargo bench --bench cleanup", Hand("Cargo.toml", "name = \"cleanup\"")),
    ("cargo bench --bench federation", Hand("Cargo.toml", "name = \"federation\"")),
    ("cargo bench --bench memory", Hand("Cargo.toml", "name = \"memory\"")),
    ("cargo build --release --package kubectl-compute", Hand("cli/Cargo.toml", "name = \"kubectl-compute\"")),
    ("cargo demo", File("tests/it/demo.rs", "testbed::demo::{Args, Step, run}")),
    ("cargo run -- --server-config config/overlays/dev/config.yaml", File("tests/it/overlays/dev.rs", "config.yaml")),
    ("cargo run -- crds", Hand("src/main.rs", "fn write_crds")),
    ("cargo run -- reasons", File("src/api/reason/tests.rs", "reasons_page_equals_what_the_command_prints")),
    ("cargo test", File(".ci/run", "cargo test")),
    ("cargo testbed board", File("tests/tree/monitoring.rs", "dashboard::text()")),
    ("cargo testbed chart", File(CHART, "chart::files(&Release::default())")),
    ("cargo testbed down", Hand(TESTBED, "Down")),
    ("cargo testbed e2e", Hand(TESTBED, "E2e")),
    ("cargo testbed install-files", File(CHART, "chart::install_files(")),
    ("cargo testbed sbom", Hand(TESTBED, "Sbom")),
    ("cargo testbed status", Hand(TESTBED, "Status")),
    ("cargo testbed up", Hand(TESTBED, "Up")),
    ("helm lint --strict", File(CHART, "[\"lint\", \"--strict\"")),
    ("helm template compute", File(CHART, "\"template\", \"compute\"")),
    ("helm uninstall compute", File(CHART, "\"uninstall\", \"compute\"")),
    ("helm upgrade --install compute", File(CHART, "\"upgrade\", \"--install\", \"compute\"")),
    (
        "kubectl --context CELL apply --server-side --filename target/install/cell.yaml",
        File(SERVED, "[\"apply\", \"--server-side\", \"-f\", \"-\"]"),
    ),
    (
        "kubectl delete -f crds/ --ignore-not-found",
        File(CHART, "\"delete\", \"-f\", \"crds/\", \"--ignore-not-found\""),
    ),
    ("kubectl --context PROJECT get cwl -A -o json", File("tests/tree/stored.rs", "command_of_the_page")),
    (
        "kubectl --context DFW -n compute-system delete secret compute-cell-federation-kubeconfig",
        File(CHECK, "delete(&world.dfw, \"Secret\", NS, SECRET)"),
    ),
    ("kubectl --context HUB -n compute-system create token compute-cell-NAME", File(OVERLAYS, "compute-cell-{city}")),
    ("kubectl --context HUB -n compute-system create token compute-manager", File(OVERLAYS, "compute-manager\", None")),
    ("kubectl --context HUB apply --server-side --filename -", File(OVERLAYS, "\"hub-cell\"")),
    ("kubectl compute top", File("cli/tests/top.rs", "keys_end_it_and_the_terminal_is_as_before")),
    ("kubectl compute events", File(VIEWS, "[\"events\"")),
    ("kubectl compute explain", File("cli/src/explain.rs", "find(\"notscheduled\")")),
    ("kubectl compute man", File("cli/src/generate.rs", "man_has_a_page_for_each_command")),
    ("kubectl compute map", File(VIEWS, "[\"map\"")),
    ("kubectl compute migrate status", File(VIEWS, "[\"migrate\", \"status\"")),
    ("kubectl compute replay", File(VIEWS, "[\"replay\"")),
    ("kubectl compute report", File(VIEWS, "[\"report\"")),
    ("kubectl compute tree", File(VIEWS, "[\"tree\"")),
    ("kubectl compute trace", File("tests/it/command.rs", "[\"trace\"")),
    ("kubectl compute waiting", File("tests/it/command.rs", "[\"waiting\"")),
    (
        "kubectl create clusterrolebinding compute-waiting-reader",
        File("tests/it/command.rs", "\"name\": \"compute-waiting-reader\""),
    ),
    ("kubectl create clusterrolebinding compute-metrics-reader", File(SERVED, "as_the_page_has_it_typed")),
    ("kubectl label namespace monitoring metrics=enabled", File(SERVED, "as_the_page_has_it_typed")),
    (
        "kubectl -n compute-system delete poddisruptionbudget compute-manager",
        File(SERVED, "\"delete\", \"poddisruptionbudget\""),
    ),
    (
        "kubectl wait --for=condition=Ready workloads.compute.datumapis.com/NAME",
        File("tests/it/federation/waiting.rs", "--for=condition=Ready"),
    ),
    ("kubectl apply -f crds/", File("tests/tree/image_runs.rs", "\"crds\"")),
    (
        "kubectl delete validatingwebhookconfiguration compute-validating",
        File(SERVED, "\"delete\", \"validatingwebhookconfiguration\""),
    ),
    ("kubectl delete cwl --cascade=orphan", File("tests/it/as_written.rs", "PropagationPolicy::Orphan")),
    ("kubectl -n shop delete cwl web --cascade=orphan", File("tests/it/as_written.rs", "PropagationPolicy::Orphan")),
    ("kubectl compute cell", File(CHECK, "\"cell\", \"drain\"")),
    ("kubectl compute cell join dfw-1 --city dfw", File(CHECK, "\"join\", \"cell-dfw\", \"--city\", \"dfw\"")),
    ("kubectl compute cell rotate dfw-1", File(CHECK, "\"cell\", \"rotate\"")),
    ("kubectl compute check", File(CHECK, "\"check\", \"--wait=2m\"")),
    (
        "kubectl -n shop delete workloaddeployment web-edge-dfw",
        File("tests/it/as_written.rs", "WorkloadDeployment\", &ns, WD)"),
    ),
    ("kubectl get compute", File("tests/tree/shown.rs", "get compute")),
    ("kubectl get locationbindings", File("tests/it/tenants.rs", "docs/tenants/first-workload.md")),
    ("kubectl kustomize config/components/alerts", File("tests/tree/monitoring.rs", "config/components")),
    ("kubectl kustomize config/overlays/cell", File("tests/tree/manifests.rs", "config/overlays")),
    ("kubectl kustomize config/overlays/hub", File(OVERLAYS, "self.hub(\"hub\")")),
    ("kubectl kustomize config/overlays/hub-cell", File(OVERLAYS, "uid-of-cell")),
    ("kubectl kustomize config/overlays/project-access", File(OVERLAYS, "project-access")),
    ("kubectl kustomize config/samples/platform/cell", File("tests/tree/platform.rs", "(\"cell\", true)")),
    ("kubectl kustomize config/samples/platform/management", File("tests/tree/platform.rs", "(\"management\", true)")),
    ("kubectl kustomize config/samples/platform/project", File("tests/tree/platform.rs", "(\"project\", false)")),
];

/// The test that follows the comments of the overlays.
const OVERLAYS: &str = "tests/it/overlays/mod.rs";

/// The test of `kubectl compute check` and `kubectl compute cell`.
const CHECK: &str = "tests/it/install_check.rs";

/// The test of the chart and of the install files.
const CHART: &str = "tests/tree/chart.rs";

/// Pages with a test that runs the commands of their blocks in order. The test reads the page.
const FOLLOWED: [(&str, &str); 1] = [("docs/uninstalling.md", "tests/it/uninstall.rs")];

/// The test of the views of `kubectl compute`.
const VIEWS: &str = "tests/it/command_views.rs";

/// The tests that use a real API server.
const SERVED: &str = "tests/tree/served.rs";

/// Commands of runbooks, `docs/deploying.md` and comments in `config/` that need pods, Karmada's chart or a federation of the Go
/// operator. No test runs them, as `docs/runbooks/README.md` states.
const UNRUN: [&str; 10] = [
    "curl -s localhost:8081/readyz",
    "kubectl -n compute-system create secret generic compute-hub-credentials",
    "kubectl -n compute-system get leases",
    "kubectl -n compute-system get pods",
    "kubectl -n compute-system get secret compute-webhook-cert",
    "kubectl -n compute-system logs",
    "kubectl -n compute-system port-forward",
    "kubectl -n karmada-system get secret karmada-cert",
    "kubectl delete clusterrole,clusterrolebinding compute-go-operator",
    "openssl s_client -connect ADDRESS:9443",
];

/// Commands that pages mention but do not ask the reader to type.
const MENTIONED: [&str; 3] = [
    "kubectl delete namespace",
    "kubectl get events -A --field-selector reason=StrayInstance",
    "kubectl --context MILO -n compute-system create token",
];

/// True if a test types all commands of this page.
fn is_of_tenants(page: &str) -> bool {
    page == "docs/start/see-it-run.md" || page.starts_with("docs/tenants/")
}

/// True if kubectl itself runs this command, and no plugin.
fn is_kubectl(command: &str) -> bool {
    command.starts_with("kubectl ") && !command.starts_with("kubectl compute ")
}

/// Returns the entry that a command begins with.
fn of<'a>(command: &str, mut all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    all.find(|known| command == *known || command.starts_with(known) && command[known.len()..].starts_with([' ', '.']))
}

/// Returns the commands in a page's indented blocks, without leading variables and trailing notes.
fn commands(page: &str) -> Vec<&str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let typed = lines.map(|line| line.split("    ").next().unwrap_or(line).split("   #").next().unwrap_or(line).trim());
    let bare = typed.map(|line| {
        let words = line.split_inclusive(' ').take_while(|word| word.contains('=') && !word.starts_with('-'));
        &line[words.map(str::len).sum()..]
    });
    bare.filter(|line| PROGRAMS.iter().any(|program| line.starts_with(program))).collect()
}

/// Returns the commands in a page's prose: code spans with a program and at least two more words.
fn inline(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.lines().filter(|line| !line.starts_with("    "));
    let spans = prose.flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.filter(|span| span.split(' ').count() > 2 && PROGRAMS.iter().any(|program| span.starts_with(program)))
}

/// Returns the commands in the comments of `config/`. Each is on an indented line.
fn commented() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut files = Vec::new();
    under(&root().join("config"), "yaml", &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("#   ")).map(str::trim);
        let typed = lines.filter(|line| PROGRAMS.iter().any(|program| line.starts_with(program)));
        found.extend(typed.map(|line| (name.clone(), line.to_owned())));
    }
    found
}

#[test]
fn page_commands_without_a_test_are_marked_and_listed() {
    let (mut marked, mut seen, mut typed) = (BTreeMap::new(), BTreeSet::new(), commented());
    assert!(typed.len() > 5, "the reader of comments sees only {typed:?}: it is broken");
    for file in pages() {
        let page = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let not_run = not_run(&page);
        // An API server is asked for all of them in `tests/tree/commands.rs`.
        let of_reasons: BTreeSet<&str> =
            Reason::ALL.iter().filter_map(Reason::entry).flat_map(Entry::commands).collect();
        let is_of_a_reason = |command: &&str| name == "docs/reasons.md" && of_reasons.contains(command);
        // `kubectl compute` is a program of this repository, and has its own tests.
        let is_followed = FOLLOWED.iter().any(|(page, _)| *page == name);
        // `tests/it/tenants.rs` types each of them.
        let is_typed = |command: &&str| is_of_tenants(&name) && is_kubectl(command);
        let of_blocks = commands(&page).into_iter().filter(|command| !is_typed(command));
        let of_blocks = of_blocks.filter(|command| !is_followed || command.starts_with("kubectl compute "));
        for command in of_blocks.chain(inline(&page)).filter(|command| !is_of_a_reason(command)) {
            if not_run.contains(&command) {
                assert!(of(command, RUN.iter().map(|(known, _)| *known)).is_none(), "{name}: {command} is run");
            } else {
                typed.push((name.clone(), command.to_owned()));
            }
        }
        if !not_run.is_empty() {
            marked.insert(name, not_run.join(", "));
        }
    }
    let known = || RUN.iter().map(|(known, _)| *known).chain(UNRUN).chain(MENTIONED);
    for (name, command) in &typed {
        // The longest entry is the most exact one.
        let found = known().filter(|known| of(command, [*known].into_iter()).is_some()).max_by_key(|known| known.len());
        // An API server is asked for these too.
        if found.is_none() && name.starts_with("docs/runbooks/") && command.starts_with("kubectl --context ") {
            continue;
        }
        let found =
            found.unwrap_or_else(|| panic!("{name}: no test runs `{command}`, and no block marks it as not run"));
        seen.insert(found);
    }
    assert_eq!(seen, known().collect(), "each of them is asked for");
    let of_a_release = marked.remove("SECURITY.md").unwrap();
    let programs: Vec<&str> = of_a_release.split(", ").filter_map(|command| command.split(' ').next()).collect();
    assert_eq!(programs, ["sha256sum", "cosign", "cosign", "gh"], "{of_a_release}");
    let scripts = "e2e/kind/up, e2e/kind/run, e2e/kind/down";
    let tools = "e2e/kind/tools";
    let image = "docker run --privileged --rm tonistiigi/binfmt --install all, docker buildx create --use, \
                 docker buildx build --platform linux/amd64,linux/arm64 --tag REGISTRY/compute-operator:TAG --push .";
    let remote = "kubectl kustomize 'https://github.com/datum-cloud/compute-operator//config/overlays/hub?ref=TAG'";
    let of_pages = [
        ("docs/deploying.md", remote.to_owned()),
        ("docs/testing.md", image.to_owned()),
        ("e2e/README.md", format!("{tools}, {scripts}")),
    ];
    assert_eq!(marked, of_pages.map(|(name, what)| (name.to_owned(), what)).into());
}

/// Verbs of kubectl that take a resource.
const VERBS: [&str; 9] = ["get", "describe", "delete", "patch", "edit", "explain", "annotate", "label", "wait"];

/// Returns the resources in commands of a text that Kubernetes 1.35 and later take for its own Workload.
fn ambiguous(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split([' ', '`']).filter(|word| !word.is_empty()).collect();
        let verbs = words.iter().enumerate().filter(|(_, word)| VERBS.contains(word));
        let resources = verbs.filter_map(|(at, _)| words[at + 1..].iter().find(|word| !word.starts_with('-')));
        found.extend(
            resources.filter(|list| list.split([',', '/']).any(|one| ["workload", "workloads"].contains(&one))),
        );
    }
    found
}

#[test]
fn commands_name_workloads_without_ambiguity() {
    let text = "kubectl get workloads,instances\n`kubectl -n a describe workload x`\nget --watch workload/x\n\
                get workloads.compute.datumapis.com, get cwl, delete the Workload, describe computeworkloads";
    assert_eq!(ambiguous(text), ["workloads,instances", "workload", "workload/x"]);
    let mut files = pages();
    under(&root().join("config"), "yaml", &mut files);
    files.extend(rust_files(&root().join("e2e/testbed/src")));
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(ambiguous(&text), [""; 0], "{}: use the short name cwl", file.display());
    }
}

/// Returns the places of a text that name a control plane in another way than by its context: by a kubeconfig, or by a shell
/// function such as `hub`.
fn other_notations(text: &str) -> Vec<&str> {
    let of_files = ["kubectl --kubeconfig", "karmadactl --kubeconfig"];
    let functions = ["hub", "project", "cell", "dfw", "ord", "milo"];
    let verbs = ["-n", "annotate", "apply", "delete", "describe", "get", "label", "patch"];
    let is_function = |command: &str| {
        let mut words = command.split_whitespace();
        let (name, verb) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        functions.contains(&name) && verbs.contains(&verb)
    };
    let typed = |line: &str| {
        let command = line.strip_prefix("    ").map(str::trim_start).unwrap_or_default();
        is_function(command.strip_prefix("$ ").unwrap_or(command))
    };
    let spans = |line: &str| line.split('`').skip(1).step_by(2).any(is_function);
    let is_other = |line: &&str| of_files.iter().any(|begin| line.contains(begin)) || typed(line) || spans(line);
    text.lines().filter(is_other).collect()
}

#[test]
fn commands_name_a_control_plane_by_its_context() {
    let text = "    $ hub -n $NS get wd\n      project get cwl\nuse `dfw get wd`\n# kubectl --kubeconfig CELL get wd\n\
                karmadactl --kubeconfig HUB unjoin\n    kubectl --context HUB get wd\nthe hub gets `hub-cell`";
    assert_eq!(other_notations(text).len(), 5, "{:?}", other_notations(text));
    let mut files = pages();
    under(&root().join("config"), "yaml", &mut files);
    under(&root().join("e2e/kind"), "yaml", &mut files);
    files.extend(["src", "cli/src"].into_iter().flat_map(|folder| rust_files(&root().join(folder))));
    assert!(files.len() > 200, "{}", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(other_notations(&text), [""; 0], "{}: use --context", file.display());
    }
}

#[test]
fn page_commands_are_run_by_the_listed_files() {
    for (command, by) in RUN {
        let (File(file, words) | Hand(file, words)) = by;
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|_| panic!("{command}: {file} does not exist"));
        assert!(text.contains(words), "{command}: {file} does not have {words:?}");
    }
    for (page, test) in FOLLOWED {
        let text = fs::read_to_string(root().join(test)).unwrap();
        assert!(text.contains(&format!("path(\"{page}\")")), "{test} does not read {page}");
    }
    let runbooks = fs::read_to_string(root().join("docs/runbooks/README.md")).unwrap();
    assert!(runbooks.contains("What wants pods has not been run"), "the runbooks name the commands that were not run");
    let typed = fs::read_to_string(root().join("tests/it/tenants.rs")).unwrap();
    let mut of_tenants = Vec::new();
    under(&root().join("docs/tenants"), "md", &mut of_tenants);
    of_tenants.push(root().join("docs/start/see-it-run.md"));
    let has_commands = |path: &&PathBuf| commands(&fs::read_to_string(path).unwrap()).iter().any(|one| is_kubectl(one));
    for page in of_tenants.iter().filter(has_commands) {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        assert!(
            is_of_tenants(&name) && typed.contains(&format!("\"{name}\"")),
            "tests/it/tenants.rs does not type {name}"
        );
    }
}

#[test]
fn page_reader_finds_paths_modules_and_links() {
    let page =
        "`tests/it/cells/`, src/none.rs and `kubectl apply -f crds/`\n`plan/a.rs` | `src/plan/**` `planned` `a/b`\n";
    assert_eq!(paths_named(page), ["tests/it/cells", "crds", "src/plan/a.rs", "src/plan"].map(str::to_owned).into());
    let page = "INFO compute_operator::io::queue: said";
    assert_eq!(modules_named(page).collect::<Vec<_>>(), ["io/queue"]);
    let page = "[a](b.md) [c](https://d/e) [f](g.md#h) [i](#j)";
    assert_eq!(links(page).collect::<Vec<_>>(), ["b.md", "g.md"]);
}

#[test]
fn guarantees_name_tests_that_the_testing_page_explains() {
    let promises = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let explained = paths_named(&fs::read_to_string(root().join("docs/testing.md")).unwrap());
    let promises: Vec<&str> = promises.split("\n- ").skip(1).collect();
    assert!(promises.len() > 5, "{promises:?}");
    for promise in promises {
        let held =
            paths_named(promise.rsplit_once("*Held by ").unwrap_or_else(|| panic!("{promise}: by which test?")).1);
        assert!(!held.is_empty() && held.is_subset(&explained), "{promise}");
    }
}

#[test]
fn testing_page_names_every_integration_test_file() {
    let named = paths_named(&fs::read_to_string(root().join("docs/testing.md")).unwrap());
    let files = ["tests/it", "tests/long"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap()))
    });
    let missing: Vec<String> = files.filter(|file| !file.ends_with("/main.rs") && !named.contains(file)).collect();
    assert!(missing.is_empty(), "docs/testing.md does not say what these are for: {missing:?}");
}

#[test]
fn architecture_page_names_the_file_of_each_controller() {
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
fn configuration_page_lists_every_timing_key_with_its_default() {
    let page = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `timing."));
    let mut listed = Vec::new();
    for row in rows {
        let columns: Vec<&str> = row.split('|').map(|column| column.trim().trim_matches('`')).collect();
        let [key, default, _, meaning, _] = columns[..] else { panic!("{row}") };
        let seconds: f64 = default.parse().unwrap_or_else(|_| panic!("{key}: {default:?} is no number of seconds"));
        let timing = Timing::with(&BTreeMap::from([(key.to_owned(), seconds)])).unwrap();
        assert_eq!(timing, Timing::default(), "{key}: {default} is not its default");
        assert!(!meaning.is_empty(), "{key} has no meaning");
        listed.push(key);
    }
    assert_eq!(listed, Timing::KEYS, "docs/configuration.md lists them in the order of src/timing.rs");
}

/// Returns the numbers that a text cites as "fact N" or "facts N".
fn facts_cited(text: &str) -> impl Iterator<Item = &str> {
    let cites = ["fact ", "facts "].into_iter().flat_map(|word| text.split(word).skip(1));
    cites.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()).filter(|number| !number.is_empty())
}

#[test]
fn karmada_page_has_every_cited_fact_and_every_contract_test() {
    let page = fs::read_to_string(root().join("docs/karmada.md")).unwrap();
    let lists = page.split("\nTest: ").skip(1).filter_map(|rest| rest.split("\n\n").next());
    let spans = lists.flat_map(|list| list.split('`').skip(1).step_by(2)).filter(|span| !span.contains('/'));
    let named: BTreeSet<String> = spans.map(str::to_owned).collect();
    let mut tests = BTreeSet::new();
    for file in rust_files(&root().join("tests/it/karmada_contract")) {
        let text = fs::read_to_string(&file).unwrap();
        let found = text.split("#[test]\nfn ").skip(1).filter_map(|rest| rest.split('(').next());
        tests.extend(found.map(str::to_owned));
    }
    assert_eq!(named, tests);
    let mut seen = 0;
    for folder in ["src", "tests", "e2e/testbed/src"] {
        for file in rust_files(&root().join(folder)) {
            for number in facts_cited(&fs::read_to_string(&file).unwrap()) {
                assert!(page.contains(&format!("\n### Fact {number}\n")), "{}: fact {number}", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "the reader of cites sees only {seen}: it is broken");
}

#[test]
fn page_reader_finds_cited_facts() {
    let text = "as measured (fact 13, and facts 21 to 24); \"fact \", in fact none";
    assert_eq!(facts_cited(text).collect::<Vec<_>>(), ["13", "21"]);
}
