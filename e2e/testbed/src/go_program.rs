//! Go programs of this repository: the folders of `e2e` with a `go.mod` of their own.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, bail};

use crate::binaries::{cache, root};

/// The result of the build.
#[derive(Debug)]
pub enum Program {
    /// The binary.
    Built(PathBuf),
    /// Go or a module is missing. Contains the message.
    Missing(String),
}

/// Builds the program of the folder `e2e/<folder>`. Go compiles only what has changed.
///
/// # Errors
/// Returns the compiler's message for a mistake in the program. A missing Go is no error.
pub fn build(folder: &str, binary: &str) -> Result<Program> {
    let module = root().join("e2e").join(folder);
    let binary = cache().join(folder).join(binary);
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
