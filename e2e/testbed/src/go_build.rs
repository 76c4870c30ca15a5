//! Builds several Go programs in one call, and reports the progress.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::meter::Meter;

/// Name and package of a program.
pub type Program = (&'static str, &'static str);

/// Version of the Kubernetes programs: that of `kubernetes/go.mod` in this crate.
const LD_FLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
                        -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36";

/// Builds programs of a Go module into `bin`. One call compiles each shared package once, and links in parallel.
///
/// # Errors
/// Returns Go's last line.
pub fn build(module: &Path, bin: &Path, programs: &[Program], progress: &dyn Fn(&str)) -> Result<()> {
    let started = Instant::now();
    let names = programs.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    progress(&format!("looking what there is to build of {names} (once, about 5 minutes on two cores)"));
    let mut meter = Meter::new(&names, stale(module, programs)?, progress);
    let scratch = bin.join(".build");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let mut go = go(module, "build");
    go.arg("-v").arg("-o").arg(&scratch).args(packages(programs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = go.spawn().context("cannot run go")?;
    let mut last = String::new();
    for line in BufReader::new(child.stderr.take().context("go has no stderr")?).lines() {
        let line = line?;
        if is_package(&line) {
            meter.one();
        }
        if !line.trim().is_empty() {
            last = line;
        }
    }
    if !child.wait()?.success() {
        bail!("go build of {names} failed: {last}");
    }
    for (name, package) in programs {
        fs::rename(scratch.join(built_as(package)), bin.join(name)).with_context(|| format!("go built no {name}"))?;
    }
    fs::remove_dir_all(&scratch)?;
    meter.end();
    progress(&format!("built {names} in {} s", started.elapsed().as_secs()));
    Ok(())
}

fn go(module: &Path, verb: &str) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module).env("CGO_ENABLED", "0").args([verb, "-trimpath", "-ldflags", LD_FLAGS]);
    go
}

fn packages(programs: &[Program]) -> impl Iterator<Item = &'static str> {
    programs.iter().map(|(_, package)| *package)
}

/// Returns the number of packages to compile, without those in Go's cache. Fetches the sources.
fn stale(module: &Path, programs: &[Program]) -> Result<usize> {
    let mut go = go(module, "list");
    let out = go.args(["-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"]).args(packages(programs)).output()?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("go list failed: {}", text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default());
    }
    Ok(out.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count())
}

/// Returns Go's name of a package's program: the last part of the path that is no version.
fn built_as(package: &str) -> &str {
    let is_version = |part: &&str| {
        let digits = part.strip_prefix('v').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    package.rsplit('/').find(|part| !is_version(part)).unwrap_or(package)
}

/// True if a line of `go build -v` is a compiled package and no other message.
fn is_package(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#') && !line.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_lines_are_distinguished_from_messages() {
        for line in ["go: downloading x v1", "# a/b", "", "    a.go:1: warning"] {
            assert!(!is_package(line), "{line}");
        }
        assert!(is_package("example.com/p1"));
    }

    #[test]
    fn go_program_names_skip_the_version() {
        for (package, name) in [
            ("go.etcd.io/etcd/server/v3", "server"),
            ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
            ("example.com/v3x", "v3x"),
        ] {
            assert_eq!(built_as(package), name);
        }
    }
}
