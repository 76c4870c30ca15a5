//! A federation as the Go operator leaves it, written by a program of its language: `e2e/go-era`.

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

/// Whether the program can be had on this machine.
#[derive(Debug)]
pub enum Program {
    /// It was built, or its parts have not changed since.
    Built(PathBuf),
    /// Go or a module is missing, and what it said.
    Missing(String),
}

/// Builds the program: a minute on two cores the first time, seconds later, as Go keeps what it has compiled.
///
/// It is called `manager`, as servers take a program's name for the field manager of every write that names none.
///
/// # Errors
/// What the compiler says: that is a mistake in the program, not something that a machine lacks.
pub fn build() -> Result<Program> {
    let module = root().join("e2e/go-era");
    let binary = cache().join("go-era/manager");
    let dir = binary.parent().context("no folder")?;
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    // One build at a time, also among test binaries that start together.
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

/// Lets the program write everything in these namespaces of a bed's project, side by side, and waits until it has.
///
/// # Errors
/// What the program says that it has waited for in vain, or was refused.
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
