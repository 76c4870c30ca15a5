//! chainsaw, the program that runs the suites of `e2e/suites`, where somebody has installed it.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{bed::Testbed, binaries, control_plane::ControlPlane, pki::User};

/// What `CHAINSAW` names, or what is called so on the `PATH`; none when it does not run.
pub fn find() -> Option<PathBuf> {
    let program = std::env::var_os("CHAINSAW").map_or_else(|| PathBuf::from("chainsaw"), PathBuf::from);
    let runs = Command::new(&program).arg("version").output().is_ok_and(|out| out.status.success());
    runs.then_some(program)
}

/// Runs all suites on a testbed that has the operator on it; `more` are arguments for chainsaw. Whether they pass.
pub async fn run(program: PathBuf, bed: &Testbed, more: &[String]) -> Result<bool> {
    let of = |plane: &ControlPlane| plane.kubeconfig(&User::Admin).display().to_string();
    let mut command = tokio::process::Command::new(program);
    command
        .current_dir(binaries::root())
        .args(["test", "e2e/suites", "--config", "e2e/chainsaw-config.yaml", "--parallel", "1"])
        .env("KUBECONFIG", of(&bed.project))
        .arg(format!("--cluster=downstream={}", of(&bed.hub)))
        .args(bed.cells.iter().map(|(city, cell)| format!("--cluster=pop-{city}={}", of(cell))))
        .kill_on_drop(true);
    // The suites' scripts call kubectl.
    let bin = binaries::find(&|_| ())?;
    let path = std::env::var("PATH").unwrap_or_default();
    let status = command.env("PATH", format!("{}:{path}", bin.display())).args(more).status().await;
    Ok(status.context("cannot run chainsaw")?.success())
}
