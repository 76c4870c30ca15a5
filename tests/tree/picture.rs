//! The recorded picture of the demo, and the commands that the demo proposes at its end.

use std::fs;

use clap::Parser;
use kubectl_compute::flags::Flags;
use testbed::demo::{Step, TRY_NEXT};

use super::root;

#[test]
fn readme_shows_the_picture_of_the_current_demo() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains("](docs/demo.svg)") && readme.lines().count() <= 80, "two commands and one picture");
    let picture = fs::read_to_string(root().join("docs/demo.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    let again = "run `cargo demo --once --picture docs/demo.svg`";
    for words in Step::ALL.iter().flat_map(|step| [step.happens(), step.ended()]) {
        assert!(picture.contains(words), "the picture does not say {words:?}: {again}");
    }
    for instance in ["hello-edge-dfw-1", "hello-edge-ord-1", "probe-edge-dfw-0"] {
        assert!(picture.contains(&format!(">{instance}</text>")), "the picture does not show {instance}: {again}");
    }
    assert!(picture.contains(">Ready=True Available</text>") && !picture.contains("=False"), "{again}");
}

#[test]
fn commands_that_the_demo_proposes_are_typed_by_tests() {
    let [(_, see), (_, change), (_, trace)] = TRY_NEXT;
    for (page, command) in [("first-workload", see), ("change-scale-delete", change)] {
        let text = fs::read_to_string(root().join(format!("docs/tenants/{page}.md"))).unwrap();
        assert!(text.contains(&format!("    {command}\n")), "tests/it/tenants.rs does not type {command}");
    }
    let trace = trace.strip_prefix("kubectl compute ").unwrap();
    Flags::try_parse_from(["kubectl-compute"].into_iter().chain(trace.split(' '))).unwrap();
}
