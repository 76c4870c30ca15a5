//! The binary, as kubectl starts it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-compute")).args(args).env("KUBECONFIG", "/nowhere").output().unwrap()
}

#[test]
fn help_is_printed_and_wrong_arguments_are_refused() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(text.contains("kubectl compute") && text.contains("trace") && text.contains("waiting"), "{text}");
    for wrong in [
        &["dance"][..],
        &[],
        &["trace"],
        &["trace", "pod/x"],
        &["--cell-context", "x", "waiting"],
        &["cell", "dead", "x", "--yes", "-o", "dot"],
        &["top"],
        &["top", "-o", "json"],
    ] {
        let refused = run(wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(refused.stdout.is_empty() && !refused.stderr.is_empty(), "{wrong:?}");
    }
}

#[test]
fn missing_kubeconfig_is_named() {
    let failed = run(&["trace", "workload/hello"]);
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8(failed.stderr).unwrap();
    assert!(text.starts_with("error: the kubeconfig cannot be read") && text.lines().count() == 1, "{text}");
}

#[test]
fn contexts_are_found_in_every_file_of_kubeconfig() {
    let folder = std::env::temp_dir().join(format!("kubeconfigs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let files = ["project", "hub", "cell"].map(|name| {
        let file = folder.join(name);
        let text = format!(
            "{{ apiVersion: v1, kind: Config, current-context: {name}, users: [{{ name: {name}, user: {{ token: t }} }}], \
             clusters: [{{ name: {name}, cluster: {{ server: \"https://127.0.0.1:1\" }} }}], \
             contexts: [{{ name: {name}, context: {{ cluster: {name}, user: {name} }} }}] }}"
        );
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    });
    let join = |files: &[String]| {
        let args = "cell join dfw-1 --city dfw --hub-context hub --cell-context dfw-1=cell".split(' ');
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-compute"));
        let refused = command.args(args).env("KUBECONFIG", files.join(":")).output().unwrap();
        String::from_utf8(refused.stderr).unwrap()
    };
    let asked = join(&files);
    assert!(asked.starts_with("error: hub: Clusters: "), "the hub is asked, and does not answer: {asked}");
    let unknown = join(&files[..2]);
    assert!(unknown.starts_with("error: context cell cannot be used"), "{unknown}");
    std::fs::remove_dir_all(&folder).unwrap();
}
