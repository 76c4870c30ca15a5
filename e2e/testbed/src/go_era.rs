//! A federation in the state that the Go operator leaves, written by the Go program `e2e/go-era`.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{bed::Testbed, go_program, pki::User};

pub use crate::go_program::Program;

/// Builds the program. The first build takes a minute on two cores, later ones take seconds.
///
/// The binary is called `manager`, because servers use the name of a program as its field manager.
///
/// # Errors
/// Returns the compiler's message for a mistake in the program. A missing Go is no error.
pub fn build() -> Result<Program> {
    go_program::build("go-era", "manager")
}

/// Runs the program in these namespaces of a bed's project, and waits for its end.
///
/// # Errors
/// Returns the program's message if a wait times out or a write is refused.
pub async fn write(program: &Path, bed: &Testbed, namespaces: &[&str]) -> Result<()> {
    let file = |plane: &crate::control_plane::ControlPlane| plane.kubeconfig(&User::Admin).display().to_string();
    let mut command = tokio::process::Command::new(program);
    command.arg(format!("--project={}", file(&bed.project))).arg(format!("--hub={}", file(&bed.hub)));
    for (city, cell) in &bed.cells {
        command.arg(format!("--cell={city}={}", file(cell)));
    }
    command.args(namespaces.iter().map(|name| format!("--namespace={name}")));
    command.arg(format!("--patience={}s", 180 + 20 * namespaces.len()));
    let done = command.kill_on_drop(true).output().await.context("cannot run it")?;
    if !done.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
