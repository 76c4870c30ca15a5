//! The workflows of `.github`: actionlint accepts them, they call scripts of this tree, and they pin the actions of others.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;

use super::{kind::scripts, root, skipping::skipped};

/// Commands of workflows that are no scripts. They hand a value from one step to the next.
const HANDED_ON: [&str; 2] = [
    "echo \"$PWD/target/tools/bin\" >> \"$GITHUB_PATH\"",
    "digest=$(release/image index \"$IMAGE\" \"$GITHUB_REF_NAME\" digests/*) && echo \"digest=$digest\" >> \"$GITHUB_OUTPUT\"",
];

/// Returns the workflows, with their texts and their jobs.
fn workflows() -> Vec<(String, String, Value)> {
    let files = fs::read_dir(root().join(".github/workflows")).unwrap();
    let mut found: Vec<_> = files
        .map(|file| {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let [parsed] = &testbed::manifests::documents(&text).unwrap()[..] else { panic!("{}", path.display()) };
            (path.file_name().unwrap().to_str().unwrap().to_owned(), text, parsed.clone())
        })
        .collect();
    found.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    found
}

fn jobs(workflow: &Value) -> impl Iterator<Item = (&String, &Value)> {
    workflow["jobs"].as_object().unwrap().iter()
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    jobs(workflow).flat_map(|(_, job)| job["steps"].as_array().into_iter().flatten())
}

/// True if a line uses an action of this tree, or one at a commit with its version beside it. A tag of another repository can move.
fn is_pinned(line: &str) -> bool {
    let used = line.split_once("uses: ").unwrap().1;
    let Some((_, rest)) = used.split_once('@') else { return used.starts_with("./") };
    let (commit, version) = rest.split_once(" # ").unwrap_or((rest, ""));
    commit.len() == 40
        && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
        && version.strip_prefix('v').is_some_and(|version| version.split('.').count() == 3)
}

#[test]
fn workflow_actions_are_pinned_by_commit() {
    let commit = "3d3c42e5aac5ba805825da76410c181273ba90b1";
    assert!(is_pinned(&format!("    - uses: actions/checkout@{commit} # v7.0.1")));
    assert!(is_pinned("    uses: ./.github/workflows/ci.yaml"));
    for wrong in ["a/b@v4", "a/b@main # v4.0.0", &format!("a/b@{commit}"), &format!("a/b@{commit} # v7"), "a/b"] {
        assert!(!is_pinned(&format!("- uses: {wrong}")), "{wrong}");
    }
    let mut seen = 0;
    for (name, text, _) in workflows() {
        for line in text.lines().filter(|line| line.contains("uses: ")) {
            assert!(is_pinned(line), "{name}: {line}: name the commit, and the version in a comment");
            seen += 1;
        }
    }
    assert!(seen > 10, "the reader of actions sees only {seen}: it is broken");
}

#[test]
fn workflow_jobs_have_few_rights_and_a_time_limit() {
    for (name, text, workflow) in workflows() {
        assert_eq!(workflow["permissions"].to_string(), r#"{"contents":"read"}"#, "{name}: others are for single jobs");
        for (job, body) in jobs(&workflow) {
            assert!(body["timeout-minutes"].is_u64() || body["uses"].is_string(), "{name}: {job} has no limit");
        }
        // The token of the checkout stays in no file that a later step reads.
        for step in
            steps(&workflow).filter(|step| step["uses"].as_str().is_some_and(|uses| uses.contains("/checkout@")))
        {
            assert_eq!(step["with"]["persist-credentials"], false, "{name}");
        }
        // Names that a tag or a branch gives are variables of the shell, and no part of its program.
        let runs = text.lines().filter(|line| line.trim_start().trim_start_matches("- ").starts_with("run: "));
        for run in runs {
            assert!(!run.contains("${{ github.") && !run.contains("${{ steps."), "{name}: {run}");
        }
    }
}

#[test]
fn workflow_steps_only_call_scripts_of_this_tree() {
    let scripts = scripts();
    let mut called = Vec::new();
    for (name, _, workflow) in workflows() {
        for run in steps(&workflow).filter_map(|step| step["run"].as_str()) {
            let script = run.split(' ').next().unwrap();
            if HANDED_ON.contains(&run) {
                called.extend(scripts.iter().find(|script| run.contains(&format!("$({script} "))).cloned());
            } else {
                assert!(scripts.contains(&script.to_owned()) && !run.contains('\n'), "{name}: {run}: write a script");
                called.push(script.to_owned());
            }
        }
    }
    // `release/notes` is called by others.
    let of_release = scripts.iter().filter(|script| script.starts_with("release/") && *script != "release/notes");
    for script in of_release {
        assert!(called.contains(script), "no workflow calls {script}");
    }
    assert!([".ci/run", "e2e/kind/up", "e2e/kind/tools"].iter().all(|script| called.iter().any(|one| one == script)));
}

/// Every pull request and the main branch run all checks. So does a tag, before anything is published.
#[test]
fn workflows_run_the_checks_where_they_must() {
    let all = workflows();
    let of = |wanted: &str| all.iter().find(|(name, ..)| name == wanted).map(|(_, _, workflow)| workflow).unwrap();
    let ci = of("ci.yaml");
    assert!(ci["on"].as_object().unwrap().contains_key("pull_request"), "{}", ci["on"]);
    assert_eq!(ci["on"]["push"]["branches"][0], "main");
    assert!(steps(ci).any(|step| step["run"] == ".ci/run"));
    let release = of("release.yaml");
    assert_eq!(release["on"]["push"]["tags"][0], "v*");
    let tests = jobs(release).find(|(_, job)| job["uses"] == "./.github/workflows/ci.yaml").unwrap().0;
    for (job, body) in jobs(release).filter(|(_, body)| body["permissions"]["packages"] == "write") {
        let needs = &body["needs"];
        let waits =
            needs == tests.as_str() || needs.as_array().is_some_and(|all| all.iter().any(|one| one == tests.as_str()));
        assert!(waits, "{job} publishes before the tests end");
    }
}

#[test]
fn workflows_pass_actionlint() {
    let from =
        |variable: &str, usual: &str| std::env::var_os(variable).map_or_else(|| PathBuf::from(usual), PathBuf::from);
    let program = from("ACTIONLINT", "actionlint");
    if !Command::new(&program).arg("-version").output().is_ok_and(|out| out.status.success()) {
        skipped("actionlint is not on the PATH and not in ACTIONLINT; .ci/tools actionlint installs it");
        return;
    }
    let files = workflows().into_iter().map(|(name, ..)| format!(".github/workflows/{name}"));
    // The command lines are checked too, if shellcheck is there.
    let shellcheck = from("SHELLCHECK", "shellcheck");
    let mut lint = Command::new(program);
    lint.arg("-no-color").arg("-shellcheck").arg(shellcheck).args(files).current_dir(root());
    let out = lint.output().unwrap();
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}
