//! The demo, run as its command runs it.

use std::path::PathBuf;

use crate::common::RUNTIME;
use testbed::demo::{Args, Step, run};

#[test]
fn demo_completes_every_step() {
    RUNTIME.block_on(async {
        let args = Args {
            once: true,
            json: true,
            picture: None,
            karmada_bin: std::env::var_os("KARMADA_BIN").map(PathBuf::from),
            karmada_crds: std::env::var_os("KARMADA_CRDS").map(PathBuf::from),
        };
        let outcome = run(&args, |_| Ok(env!("CARGO_BIN_EXE_compute-operator").into())).await.unwrap();
        assert!(outcome.ok && outcome.over_quota.is_some(), "{outcome:?}");
        assert_eq!(outcome.projects.len(), 2, "{outcome:?}");
        let steps: Vec<Step> = outcome.steps.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, Step::ALL);
    });
}
