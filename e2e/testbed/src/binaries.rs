//! Where etcd, kube-apiserver, kube-controller-manager and kubectl come from.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result, bail};

/// Programs to build, by package. Versions are those of `kubernetes/go.mod` in this crate.
const PROGRAMS: [(&str, &str); 4] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];
/// Free disk that the build wants: sources, build cache and results.
const DISK_MIB: u64 = 6 * 1024;
/// Free memory that a testbed wants.
const MEMORY_MIB: u64 = 3 * 1024;

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).unwrap_or(here).to_path_buf()
}

/// Where everything that the testbed makes is kept.
pub fn cache() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("testbed")
}

/// A folder with the programs: `KUBEBUILDER_ASSETS` when set, else built once with Go, which takes some minutes.
///
/// # Errors
/// One line that says what is missing and how to get it.
pub fn find(progress: &dyn Fn(&str)) -> Result<PathBuf> {
    enough_memory()?;
    if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
        for (name, _) in PROGRAMS.iter().take(3) {
            if !assets.join(name).is_file() {
                bail!(
                    "KUBEBUILDER_ASSETS={} has no {name}; unset it to have it built, or install it there",
                    assets.display()
                );
            }
        }
        return Ok(assets);
    }
    let bin = cache().join("bin");
    fs::create_dir_all(&bin).with_context(|| bin.display().to_string())?;
    // One build at a time, also among test binaries and a demo that start together.
    let lock = File::create(bin.join(".lock"))?;
    lock.lock()?;
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes");
    let stamp = fs::read_to_string(module.join("go.mod"))?;
    if fs::read_to_string(bin.join(".stamp")).is_ok_and(|before| before == stamp)
        && PROGRAMS.iter().all(|(name, _)| bin.join(name).is_file())
    {
        return Ok(bin);
    }
    build(&module, &bin, progress)?;
    fs::write(bin.join(".stamp"), stamp)?;
    Ok(bin)
}

fn build(module: &Path, bin: &Path, progress: &dyn Fn(&str)) -> Result<()> {
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|out| out.status.success()) {
        bail!(
            "Go is missing: install Go 1.26 or newer (https://go.dev/dl), or point KUBEBUILDER_ASSETS at a folder with etcd and kube-apiserver"
        );
    }
    enough_disk(bin)?;
    let version = "v1.36.3";
    let started = Instant::now();
    for (index, (name, package)) in PROGRAMS.iter().enumerate() {
        progress(&format!("building {name} ({} of {}; once, about 5 minutes on two cores)", index + 1, PROGRAMS.len()));
        let out = Command::new("go")
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .args(["build", "-trimpath", "-ldflags"])
            .arg(format!(
                "-s -w -X k8s.io/component-base/version.gitVersion={version} -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
            ))
            .arg("-o")
            .arg(bin.join(name))
            .arg(package)
            .output()
            .context("cannot run go")?;
        if !out.status.success() {
            let text = String::from_utf8_lossy(&out.stderr);
            let why = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
            bail!("go build {package} failed: {why}");
        }
    }
    progress(&format!(
        "built etcd, kube-apiserver, kube-controller-manager and kubectl in {} s",
        started.elapsed().as_secs()
    ));
    Ok(())
}

fn enough_memory() -> Result<()> {
    let mut text = String::new();
    let Ok(mut file) = File::open("/proc/meminfo") else { return Ok(()) };
    file.read_to_string(&mut text)?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = available.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    match kib.map(|kib| kib / 1024) {
        Some(mib) if mib < MEMORY_MIB => {
            bail!("{mib} MiB of memory are free, a testbed wants {MEMORY_MIB}: end something else first")
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
                "{mib} MiB are free at {}, building Kubernetes wants {DISK_MIB}: free some, or set CARGO_TARGET_DIR",
                at.display()
            )
        }
        _ => Ok(()),
    }
}
