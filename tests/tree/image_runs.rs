//! Runs the image's binary as a container does: in a root that holds only the files of the last stage, as a user without rights.
//! The build takes minutes: `IMAGE=1 cargo test --test tree image_runs`. `IMAGE=FILE` runs an existing binary, built as here and
//! stripped.
//!
//! Two things differ from the image. The binary is linked statically with this machine's libc; the image has musl. The bundle of
//! authorities is one that knows the test's server.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;
use testbed::pki::User;

use super::{
    image::{Folder, build_stage, flags, last_stage, program},
    root,
    served::Server,
    skipping::skipped,
};

/// Largest binary, in bytes. A node must be able to pull the image within seconds.
const MOST: u64 = 20 << 20;
/// The user of the image.
const USER: &str = "65532";
const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

/// Returns the target that this compiler builds for.
fn host() -> String {
    let out = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// Runs the binary in a root, as a user without rights. That user is root in its own namespace, because chroot requires it.
fn run(root: &Path, args: &[&str]) -> (bool, String) {
    let out = Command::new("setpriv")
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "unshare", "--map-root-user", "chroot"])
        .arg(root)
        .arg("/compute-operator")
        .args(args)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), said)
}

/// Builds the binary as the image does, with `place` instead of its `/src`, and keeps the compiled dependencies. Builds are
/// serialized: two tests build in the same place, and each one copies its own sources there.
fn build(place: &Path) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let bin = Folder::new();
    program(&bin.0, "apk", "");
    for copied in ["src", "e2e"] {
        let _ = fs::remove_dir_all(place.join(copied));
    }
    fs::create_dir_all(place).unwrap();
    let host = host();
    // With no explicit target, macros would be linked statically like the binary, which fails.
    let flags = format!("{} -C target-feature=+crt-static", flags(place));
    let target = place.join("target");
    let variables = [
        ("CARGO_BUILD_TARGET", host.clone()),
        ("CARGO_TARGET_DIR", target.display().to_string()),
        ("RUSTFLAGS", flags),
    ];
    build_stage(place, &bin.0, &variables);
    target.join(&host).join("release/compute-operator")
}

/// The default build folder.
fn usual_place() -> PathBuf {
    root().join("target/image")
}

#[tokio::test]
async fn image_binary_runs_alone_and_trusts_its_ca_bundle() {
    let Some(image) = std::env::var_os("IMAGE") else {
        skipped("the image's release build takes minutes; IMAGE=1 builds and runs it");
        return;
    };
    let held = Folder::new();
    let built = if image == "1" { build(&usual_place()) } else { PathBuf::from(image) };
    let size = fs::metadata(&built).unwrap().len();
    eprintln!("the binary has {} KiB", size >> 10);
    assert!(size < MOST, "{size} bytes");

    // All users may read the root, and none may write it.
    for (to, from) in last_stage() {
        let file = held.0.join(to.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        match from.rsplit('/').next().unwrap() {
            "compute-operator" => drop(fs::copy(&built, file).unwrap()),
            "ca-certificates.crt" => fs::write(file, "").unwrap(),
            other => panic!("{other}: add this file of the last stage to the test"),
        }
    }
    fs::set_permissions(&held.0, fs::Permissions::from_mode(0o755)).unwrap();
    let (good, said) = run(&held.0, &["--help"]);
    assert!(good && said.contains("--federation-kubeconfig"), "{said}");

    // A server with a kubeconfig that names no authority. The kubeconfig is mounted like a volume.
    let server = Server::start().await;
    let own = fs::read_dir(root().join("crds")).unwrap().map(|file| file.unwrap().path());
    for file in own.chain([root().join("e2e/testbed/crds/karmada.yaml")]) {
        // The kustomization file is no Kubernetes object.
        if file.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        testbed::manifests::apply(&server.plane.client().await.unwrap(), &text).await.unwrap();
    }
    let text = fs::read_to_string(server.plane.kubeconfig(&User::Admin)).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"].as_object_mut().unwrap().remove("certificate-authority-data");
    fs::write(held.0.join("kubeconfig"), config.to_string()).unwrap();
    fs::set_permissions(held.0.join("kubeconfig"), fs::Permissions::from_mode(0o644)).unwrap();
    let status = ["migration", "status", "--federation-kubeconfig=/kubeconfig"];
    let (good, said) = run(&held.0, &status);
    assert!(!good && said.to_lowercase().contains("certificate"), "an unknown authority: {said}");
    fs::copy(server.dir.join("ca.crt"), held.0.join(BUNDLE)).unwrap();
    let (good, said) = run(&held.0, &status);
    assert!(good, "{said}");
    eprintln!("{said}");
}

/// The same sources and compiler produce the same binary in every folder. The binary does not contain the folder's path.
#[test]
fn image_binary_rebuilt_in_another_folder_is_identical() {
    if std::env::var_os("IMAGE").is_none_or(|image| image != "1") {
        skipped("two release builds take minutes; IMAGE=1 builds and compares them");
        return;
    }
    let elsewhere = Folder::new();
    let built = [&usual_place(), &elsewhere.0].map(|place| fs::read(build(place)).unwrap());
    let sources = [&usual_place(), &elsewhere.0].map(|place| place.join("src"));
    let differ = Command::new("diff").arg("-rq").args(&sources).output().unwrap();
    assert!(differ.status.success(), "changed during the build: {}", String::from_utf8_lossy(&differ.stdout));
    assert!(built[0] == built[1], "the binary differs, byte for byte, from one that was built elsewhere");
    let names =
        |place: &Path| built[0].windows(place.as_os_str().len()).any(|w| w == place.as_os_str().as_encoded_bytes());
    for place in [&usual_place(), &elsewhere.0, &root()] {
        assert!(!names(place), "the binary names {}", place.display());
    }
}
