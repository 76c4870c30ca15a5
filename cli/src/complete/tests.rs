//! Candidates for lines of words.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::ValueHint;
use clap_complete::engine::ArgValueCompleter;

use super::*;

/// Arguments with a value that no source can know.
const FREE: [&str; 10] =
    ["timeout", "since", "wait", "every", "shell", "manager_user", "manager_url", "hub_server", "project", "help"];

/// Writes a kubeconfig with two contexts, of a server that refuses connections.
fn kubeconfig(test: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kubectl-compute-{test}-{}", std::process::id()));
    let config = r#"
apiVersion: v1
kind: Config
current-context: shop
clusters: [{ name: c, cluster: { server: "http://127.0.0.1:1" } }]
users: [{ name: u, user: {} }]
contexts:
- { name: shop, context: { cluster: c, user: u } }
- { name: hub, context: { cluster: c, user: u } }
"#;
    std::fs::write(&path, config).unwrap();
    path
}

fn words(line: &str) -> Vec<OsString> {
    [NAME].into_iter().chain(line.split(' ')).map(OsString::from).collect()
}

/// Returns the lines for kubectl.
fn kubectl(line: &str) -> Vec<String> {
    for_kubectl(&words(line)).lines().map(str::to_owned).collect()
}

fn candidates_of(line: &str) -> Vec<String> {
    let mut lines = kubectl(line);
    assert!(lines.pop().is_some_and(|last| last.starts_with(':')), "{line}");
    lines.iter().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn commands_kinds_and_forms_are_candidates() {
    let commands = kubectl("");
    assert!(commands.iter().any(|line| line.starts_with("trace\tFollow an object")), "{commands:?}");
    assert!(commands.iter().any(|line| line.starts_with("top\t")), "{commands:?}");
    assert!(!commands.iter().any(|line| line.starts_with('-')), "{commands:?}");
    assert_eq!(commands.last().unwrap(), ":4");
    assert_eq!(candidates_of("tr"), ["trace", "tree"]);
    assert_eq!(candidates_of("trace "), ["cluster", "configmap", "instance", "secret", "wd", "workload"]);
    assert_eq!(candidates_of("trace w"), ["wd", "workload"]);
    assert_eq!(candidates_of("events "), ["instance", "wd", "workload"]);
    assert_eq!(candidates_of("tree "), ["workload"]);
    assert_eq!(candidates_of("cell "), ["join", "rotate", "drain", "dead", "help"]);
    assert_eq!(candidates_of("trace wd x "), Vec::<String>::new());
    assert_eq!(candidates_of("map -o "), ["text", "json", "yaml", "dot"]);
    assert_eq!(candidates_of("map --output=j"), ["json"], "the shell adds the flag");
    assert_eq!(candidates_of("map --col"), ["--color"]);
    assert!(candidates_of("trace --").contains(&"--watch".to_owned()));
}

#[test]
fn reasons_are_candidates_with_their_meaning() {
    for line in ["explain Quota", "explain quota", "waiting quota"] {
        let lines = kubectl(line);
        assert!(lines.len() > 3, "{lines:?}");
        let reasons = &lines[..lines.len() - 1];
        assert!(reasons.iter().all(|line| line.starts_with("Quota") && line.contains('\t')), "{lines:?}");
        assert!(reasons.iter().all(|line| !line.contains('`')), "{lines:?}");
    }
}

#[test]
fn contexts_of_the_kubeconfig_are_candidates() {
    let path = kubeconfig("contexts");
    let file = path.display();
    for flag in ["--context ", "--hub-context ", "--context=", "waiting --manager-context ", "check --karmada-context "]
    {
        let candidates = candidates_of(&format!("--kubeconfig {file} {flag}"));
        assert_eq!(candidates, ["hub", "shop"], "{flag}");
    }
    assert_eq!(candidates_of(&format!("trace --kubeconfig={file} --context s")), ["shop"]);
    let behind = candidates_of(&format!("--kubeconfig {file} --cell-context cell-dfw=h"));
    assert_eq!(behind, ["cell-dfw=hub"]);
    let all: Vec<OsString> = words(&format!("--kubeconfig {file} --context = s"));
    assert_eq!(for_bash(all, 5), "shop", "bash splits the word at the sign");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn control_plane_that_does_not_answer_gives_no_candidates_and_no_delay() {
    let path = kubeconfig("silent");
    let file = path.display();
    let began = Instant::now();
    for line in ["trace wd ", "trace secret/", "-n ", "cell drain --hub-context hub ", "waiting --city "] {
        assert_eq!(kubectl(&format!("--kubeconfig {file} {line}")), [":4"], "{line}");
    }
    for line in ["--kubeconfig /nowhere --context ", "--kubeconfig /nowhere trace wd "] {
        assert_eq!(kubectl(line), [":4"], "{line}");
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn every_argument_has_a_source_or_is_known_to_have_none() {
    fn check(command: &Command) {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let id = arg.get_id().as_str();
            let has_values = !arg.get_possible_values().is_empty();
            let is_path = !matches!(arg.get_value_hint(), ValueHint::Unknown);
            let has_source = arg.get::<ArgValueCompleter>().is_some() || has_values || is_path;
            assert_ne!(has_source, FREE.contains(&id) && !has_values, "{} {id}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    let mut all = command(&words(""), 1);
    all.build();
    for verb in all.get_subcommands().filter(|command| command.get_name() != "help") {
        check(verb);
    }
}

#[test]
fn shells_get_their_own_forms() {
    let index = Some(1);
    assert_eq!(for_shell("bash", words("tre"), index), "tree");
    assert!(for_shell("fish", words("tre"), None).starts_with("tree\tShow all objects"));
    assert!(for_shell("powershell", words("tre"), None).starts_with("tree\tShow all objects"));
    assert_eq!(for_shell("tcsh", words("tre"), index), "");
}

#[test]
fn other_calls_are_no_completion() {
    let mut out = Vec::new();
    for args in [&["kubectl-compute"][..], &["/x/kubectl-compute", "map"], &[]] {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        assert_eq!(run(&args, &mut out), None, "{args:?}");
    }
    assert!(out.is_empty());
    let args = ["/x/kubectl_complete-compute", "explain", "NotSch"].map(OsString::from);
    assert_eq!(run(&args, &mut out), Some(Exit::Well));
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("NotScheduled\t") && text.ends_with("\n:4\n"), "{text}");
}
