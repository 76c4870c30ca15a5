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
