//! A federation in the state that the Go operator leaves, written by the Go program `e2e/go-era`.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, bail};

use crate::{
    bed::Testbed,
    binaries::{cache, root},
    pki::User,
};

/// The result of the build.
#[derive(Debug)]
pub enum Program {
    /// The binary.
    Built(PathBuf),
    /// Go or a module is missing. Contains the message.
    Missing(String),
}

/// Builds the program. The first build takes a minute on two cores, later ones take seconds.
///
/// The binary is called `manager`, because servers use the name of a program as its field manager.
///
/// # Errors
/// Returns the compiler's message for a mistake in the program. A missing Go is no error.
pub fn build() -> Result<Program> {
    let module = root().join("e2e/go-era");
    let binary = cache().join("go-era/manager");
    let dir = binary.parent().context("no folder")?;
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    // Only one build runs at a time, also among test binaries.
    let lock = File::create(dir.join(".lock"))?;
    lock.lock()?;
    for arguments in [&["version"][..], &["mod", "download"]] {
        match go(&module, arguments.iter().map(OsStr::new)) {
            Ok(done) if done.status.success() => {}
            Ok(done) => return Ok(Program::Missing(format!("go {}: {}", arguments.join(" "), last_line(&done)))),
            Err(why) => return Ok(Program::Missing(format!("Go is missing ({why})"))),
        }
    }
    let arguments = [OsStr::new("build"), OsStr::new("-trimpath"), OsStr::new("-o"), binary.as_os_str()];
    let done = go(&module, arguments.into_iter())?;
    if !done.status.success() {
        bail!("go build of {} failed:\n{}", module.display(), String::from_utf8_lossy(&done.stderr));
    }
    Ok(Program::Built(binary))
}

fn go<'a>(module: &Path, arguments: impl Iterator<Item = &'a OsStr>) -> std::io::Result<Output> {
    Command::new("go").current_dir(module).env("CGO_ENABLED", "0").args(arguments).output()
}

fn last_line(done: &Output) -> String {
    let text = String::from_utf8_lossy(&done.stderr);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
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
