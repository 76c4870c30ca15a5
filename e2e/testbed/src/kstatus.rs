//! Judges objects as other tools do: with kstatus' own Go code, and with the Lua that Argo CD runs.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    go_program::{self, Program},
    karmada::{conversion::Shape, lua},
};

/// Builds the program `e2e/kstatus`.
///
/// # Errors
/// Returns the compiler's message for a mistake in the program. A missing Go is no error.
pub fn build() -> Result<Program> {
    go_program::build("kstatus", "kstatus")
}

/// Returns what kstatus says about each object: `Current`, `InProgress`, `Failed` or `Terminating`.
///
/// # Errors
/// Returns the program's message, for example about an object without a kind.
pub fn judge<'a>(program: &Path, objects: impl IntoIterator<Item = &'a Value>) -> Result<Vec<String>> {
    let mut command = Command::new(program);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut text = Vec::new();
    let mut count = 0;
    for object in objects {
        serde_json::to_writer(&mut text, object)?;
        text.push(b'\n');
        count += 1;
    }
    let mut stdin = child.stdin.take().context("no stdin")?;
    // The program answers while it reads. Without a thread, both would wait for each other.
    let writer = std::thread::spawn(move || stdin.write_all(&text));
    let done = child.wait_with_output()?;
    if !done.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&done.stderr));
    }
    writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    let answers = String::from_utf8(done.stdout)?;
    let answers: Vec<String> =
        answers.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect();
    ensure!(answers.len() == count, "{} answers for {count} objects", answers.len());
    Ok(answers)
}

/// Returns the health that a script for Argo CD gives to an object. Argo CD sets the global `obj`, and reads the returned table.
///
/// # Errors
/// Returns an error if the script does not load, fails, or returns no status.
pub fn argo_health(script: &str, object: &Value) -> Result<String> {
    let function = format!("function Health(obj)\n{script}\nend");
    let health = lua::call(&function, "Health", &[object], Shape::Object, &[])?;
    health["status"].as_str().map(str::to_owned).context("no status")
}
