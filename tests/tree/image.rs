//! The build steps of the image that need no container engine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{executable, root};

/// Returns the instructions of the Dockerfile, each with its argument. Continued lines are joined.
fn instructions() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .join("\n")
        .replace("\\\n", " ")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(word, rest)| (word.to_owned(), rest.trim().to_owned()))
        .collect()
}

/// The instructions of each stage.
fn stages() -> Vec<Vec<(String, String)>> {
    let mut stages: Vec<Vec<_>> = Vec::new();
    for (word, rest) in instructions() {
        if word == "FROM" {
            stages.push(Vec::new());
        }
        stages.last_mut().unwrap().push((word, rest));
    }
    stages
}

/// Copies a file or a folder as COPY does. Of a folder it copies the content.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
}

/// A temporary folder, deleted when the test ends.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("image-{:016x}", fastrand::u64(..)));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a program that the build steps find instead of the real one.
pub fn program(dir: &Path, name: &str, script: &str) {
    executable(&dir.join(name), &format!("#!/bin/sh\n{script}\n"));
}

/// Returns the compiler flags of the image, with `source` in place of its `/src`.
pub fn flags(source: &Path) -> String {
    let set = stages().remove(0).into_iter().filter(|(word, _)| word == "ENV");
    let mut set = set.filter_map(|(_, rest)| environment(&rest, source));
    set.find_map(|(name, value)| (name == "RUSTFLAGS").then_some(value)).unwrap_or_default()
}

/// Returns a variable that the image sets, with the folders of the image replaced by these.
fn environment(rest: &str, source: &Path) -> Option<(String, String)> {
    let (name, value) = rest.split_once('=')?;
    let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap()));
    let value = value.trim_matches('"').replace("=/usr/local/cargo=", &format!("={cargo}="));
    Some((name.to_owned(), value.replace("=/src=", &format!("={}=", source.display()))))
}

/// Runs every step of the build stage in `source`, in place of the image's `/src`. Programs in `bin` are found first.
pub fn build_stage(source: &Path, bin: &Path, variables: &[(&str, String)]) {
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let mut own: BTreeMap<String, String> = BTreeMap::new();
    for (word, rest) in stages().remove(0) {
        match word.as_str() {
            "COPY" => {
                let mut paths: Vec<&str> = rest.split_whitespace().collect();
                let to = paths.pop().unwrap();
                for from in &paths {
                    assert!(!ignored.lines().any(|line| line == *from), "{from} is left out of the context");
                    let into = if to.ends_with('/') { source.join(to).join(from) } else { source.join(to) };
                    copy(&root().join(from), &into);
                }
            }
            "RUN" => {
                let mut command = Command::new("sh");
                command.args(["-ec", &rest]).current_dir(source).env("PATH", &path);
                let out = command.envs(&own).envs(variables.iter().cloned()).output().unwrap();
                assert!(out.status.success(), "RUN {rest}: {}", String::from_utf8_lossy(&out.stderr));
            }
            "ENV" => own.extend(environment(&rest, source)),
            "WORKDIR" => assert_eq!(rest, "/src"),
            "FROM" => {}
            other => panic!("{other}: add this instruction to the test"),
        }
    }
}

/// Runs every step of the build stage in a folder with only the files of the COPY steps so far. `cargo fetch`
/// replaces the compiler. Like `cargo build`, it reads the manifests, resolves every dependency from the lock file, and needs the
/// source of every target. (`cargo metadata` accepts a missing target.)
#[test]
fn image_build_steps_have_the_files_that_cargo_needs() {
    let (source, bin) = (Folder::new(), Folder::new());
    let cargo = env!("CARGO");
    let log = bin.0.join("built");
    program(&bin.0, "apk", "");
    program(
        &bin.0,
        "cargo",
        &format!(
            "[ \"$1 $2\" = 'build --locked' ] || exit 9\n\
             host=$(rustc -vV | sed -n 's/^host: //p')\n\
             '{cargo}' fetch --quiet --offline --locked --target \"$host\" || exit\n\
             echo \"$@\" >> '{}'",
            log.display()
        ),
    );
    build_stage(&source.0, &bin.0, &[]);
    let built = fs::read_to_string(log).unwrap();
    assert_eq!(built.lines().count(), 2, "dependencies in a layer of their own, then the operator:\n{built}");
    for line in built.lines() {
        assert!(line.contains("--release") && line.ends_with("--bin compute-operator"), "{line}");
    }
    // cargo reads the allocator's configuration there.
    for file in ["src/main.rs", "src/lib.rs", ".cargo/config.toml"] {
        assert_eq!(
            fs::read(source.0.join(file)).unwrap(),
            fs::read(root().join(file)).unwrap(),
            "{file} is the project's own in the end"
        );
    }
}

/// Returns the content of the last stage, by path.
pub fn last_stage() -> BTreeMap<String, String> {
    let stage = stages().pop().unwrap();
    assert_eq!(stage[0], ("FROM".into(), "scratch".into()));
    let copies = stage.iter().filter(|(word, _)| word == "COPY");
    copies
        .map(|(_, rest)| {
            let [from, what, to] = rest.split_whitespace().collect::<Vec<_>>()[..] else { panic!("COPY {rest}") };
            assert_eq!(from, "--from=build");
            (to.to_owned(), what.to_owned())
        })
        .collect()
}

#[test]
fn image_holds_binary_and_authorities_and_runs_as_non_root() {
    let held = last_stage();
    assert_eq!(
        held.keys().collect::<Vec<_>>(),
        ["/compute-operator", "/etc/ssl/certs/ca-certificates.crt"],
        "without the authorities no server of a public CA is believed"
    );
    let build = stages().remove(0);
    let installs = build.iter().find(|(word, rest)| word == "RUN" && rest.starts_with("apk add")).unwrap();
    assert!(installs.1.split_whitespace().any(|word| word == "ca-certificates"), "{}", installs.1);
    let last = stages().pop().unwrap();
    let of = |wanted: &str| last.iter().find(|(word, _)| word == wanted).map(|(_, rest)| rest.clone());
    assert_eq!(of("USER").unwrap(), "65532:65532");
    let manager = fs::read_to_string(root().join("config/base/manager/manager.yaml")).unwrap();
    let [deployment] = &testbed::manifests::documents(&manager).unwrap()[..] else { panic!("one Deployment") };
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(
        of("ENTRYPOINT").unwrap(),
        pod["containers"][0]["command"].to_string(),
        "the manifests start the entry point"
    );
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
}

/// Without these, jemalloc's build reads the processor and the kernel of the machine that compiles it.
#[test]
fn allocator_is_configured_alike_on_every_machine() {
    let config = fs::read_to_string(root().join(".cargo/config.toml")).unwrap();
    let deny = fs::read_to_string(root().join("deny.toml")).unwrap();
    let targets = deny.split("targets = [").nth(1).unwrap().split(']').next().unwrap();
    let targets: Vec<String> =
        targets.split('"').skip(1).step_by(2).map(|t| t.to_uppercase().replace('-', "_")).collect();
    assert_eq!(targets.len(), 4, "{targets:?}");
    for target in targets {
        let (what, bits) = if target.starts_with("X86_64_") { ("LG_VADDR", 48) } else { ("LG_PAGE", 16) };
        let line = format!("\n{target}_JEMALLOC_SYS_WITH_{what} = \"{bits}\"\n");
        assert!(config.contains(&line), ".cargo/config.toml has no line {line}");
    }
    assert!(config.contains("\nJEMALLOC_SYS_WITH_LG_HUGEPAGE = \"21\"\n"));
}
