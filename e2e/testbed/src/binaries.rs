//! Finds, downloads or builds etcd, kube-apiserver, kube-controller-manager and kubectl.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    download::{DOWNLOADED, download, sources},
    go_build::{self, Program},
};

/// The programs of a testbed. Built ones are of one Go module: `kubernetes/go.mod` in this crate. Downloaded ones have the same
/// minor version.
const SERVERS: [Program; 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
];
/// kubectl of the same module. It renders manifests, and the suites' scripts call it.
const KUBECTL: Program = ("kubectl", "k8s.io/kubernetes/cmd/kubectl");
/// Free disk that the build needs for sources, build cache and results.
const DISK_MIB: u64 = 6 * 1024;
/// Free memory that a testbed needs.
const MEMORY_MIB: u64 = 3 * 1024;

/// Returns the repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).unwrap_or(here).to_path_buf()
}

/// Returns the folder of everything that the testbed creates.
pub fn cache() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("testbed")
}

/// Returns a folder with the servers: `KUBEBUILDER_ASSETS` if it is set. Otherwise they are downloaded once. If that is not
/// possible, they are built once with Go, which takes some minutes.
///
/// # Errors
/// Returns one line about the missing program and how to get it.
pub fn find(progress: &dyn Fn(&str)) -> Result<PathBuf> {
    enough_memory()?;
    let Some(assets) = assets() else { return provided(&SERVERS, progress) };
    for (name, _) in SERVERS {
        if !assets.join(name).is_file() {
            bail!(
                "KUBEBUILDER_ASSETS={} has no {name}; unset it to have it downloaded or built, or install it there",
                assets.display()
            );
        }
    }
    Ok(assets)
}

/// Returns the same folder with kubectl in addition.
///
/// # Errors
/// Returns one line about the missing program and how to get it.
pub fn find_with_kubectl(progress: &dyn Fn(&str)) -> Result<PathBuf> {
    match assets() {
        Some(assets) => Ok(assets),
        None => provided(&[&SERVERS[..], &[KUBECTL]].concat(), progress),
    }
}

fn assets() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from)
}

/// Returns a folder with these programs in the minor version of `kubernetes/go.mod`. Downloads missing ones, or builds them.
fn provided(wanted: &[Program], progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let bin = cache().join("bin");
    fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    // Only one download or build runs at a time, also among test binaries and a demo.
    let lock = File::create(bin.join(".lock"))?;
    lock.lock()?;
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes");
    let (stamp, versions) = (bin.join(".stamp"), fs::read_to_string(module.join("go.mod"))?);
    let is_refused = must_build() && bin.join(DOWNLOADED).exists();
    if is_refused || !fs::read_to_string(&stamp).is_ok_and(|before| before == versions) {
        for name in SERVERS.into_iter().chain([KUBECTL]).map(|(name, _)| name).chain([DOWNLOADED]) {
            let _ = fs::remove_file(bin.join(name));
        }
        fs::write(stamp, versions)?;
    }
    let missing: Vec<Program> = wanted.iter().copied().filter(|(name, _)| !bin.join(name).is_file()).collect();
    if missing.is_empty() {
        return Ok(bin);
    }
    let Err(why) = fetch(&bin, &missing, progress) else { return Ok(bin) };
    progress(&format!("no download: {why:#}"));
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|out| out.status.success()) {
        bail!(
            "Go is missing, and the servers were not downloaded ({why:#}): install Go 1.26 or newer (https://go.dev/dl), or point KUBEBUILDER_ASSETS at a folder with etcd, kube-apiserver and kube-controller-manager"
        );
    }
    enough_disk(&bin)?;
    go_build::build(&module, &bin, &missing, progress)?;
    Ok(bin)
}

/// Downloads these programs, unless `TESTBED_BUILD` says to build them.
fn fetch(bin: &Path, missing: &[Program], progress: &dyn Fn(&str)) -> Result<()> {
    if must_build() {
        bail!("TESTBED_BUILD is set");
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    download(sources(std::env::consts::OS, std::env::consts::ARCH), bin, &names, progress)
}

/// True if the servers must be those that Go builds, on every machine.
fn must_build() -> bool {
    std::env::var_os("TESTBED_BUILD").is_some()
}

fn enough_memory() -> Result<()> {
    let mut text = String::new();
    let Ok(mut file) = File::open("/proc/meminfo") else { return Ok(()) };
    file.read_to_string(&mut text)?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = available.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    match kib.map(|kib| kib / 1024) {
        Some(mib) if mib < MEMORY_MIB => {
            bail!("{mib} MiB of memory are free, and a testbed needs {MEMORY_MIB}: end other programs first")
        }
        _ => Ok(()),
    }
}

fn enough_disk(at: &Path) -> Result<()> {
    let Ok(out) = Command::new("df").arg("-Pm").arg(at).output() else { return Ok(()) };
    let text = String::from_utf8_lossy(&out.stdout);
    let free: Option<u64> = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    match free {
        Some(mib) if mib < DISK_MIB => {
            bail!(
                "{mib} MiB are free at {}, and the build of Kubernetes needs {DISK_MIB}: free some, or set CARGO_TARGET_DIR",
                at.display()
            )
        }
        _ => Ok(()),
    }
}
