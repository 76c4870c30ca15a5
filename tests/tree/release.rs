//! The scripts of a release, as far as they run without a registry: their files, and their calls to stand-ins of programs.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::{Value, json};
use testbed::chart;

use super::{executable, image::Folder, root};

/// Stand-in for the programs that a release starts. It records its call, and writes what the scripts read.
const STAND_IN: &str = r#"#!/usr/bin/env bash
name=$(basename "$0")
printf '%s %s\n' "$name" "$*" >> "$CALLS"
digest=sha256:$(printf '%064d' 7)
case "$name $*" in
  'cargo build '*) for target; do :; done
    mkdir -p "$CARGO_TARGET_DIR/$target/release" && printf 'program %s' "$RUSTFLAGS" > "$CARGO_TARGET_DIR/$target/release/kubectl-compute"
    chmod 700 "$CARGO_TARGET_DIR/$target/release/kubectl-compute" ;;
  'cargo testbed sbom') echo '{"bomFormat": "CycloneDX"}' ;;
  'cargo testbed schemas '*) mkdir -p "$3/group" && echo '{}' > "$3/group/kind_v1.json" ;;
  'cargo testbed install-files '*) mkdir -p "$3" && cp "$INSTALL_FILES"/*.yaml "$3" ;;
  'cargo testbed chart '*) mkdir -p "$3" && echo 'name: compute' > "$3/Chart.yaml" ;;
  'git log '*) echo 1700000000 ;;
  'git rev-parse '*) echo of-the-commit ;;
  'docker buildx build '*) file=$(sed 's/.*--metadata-file \([^ ]*\) .*/\1/' <<< "$*")
    printf '{\n  "buildx.build.ref": "x",\n  "containerimage.digest": "%s"\n}' "${DIGEST-$digest}" > "$file" ;;
  'docker buildx imagetools inspect '*) echo "${DIGEST-$digest}" ;;
  'gh release create '*) cat > "$(dirname "$CALLS")/notes" ;;
esac
"#;

/// A folder with stand-ins.
struct Stage(Folder);

impl Stage {
    fn new() -> Self {
        let stage = Self(Folder::new());
        let bin = stage.path("bin");
        fs::create_dir_all(&bin).unwrap();
        for program in ["cargo", "git", "docker", "helm", "cosign", "gh"] {
            executable(&bin.join(program), STAND_IN);
        }
        let kubectl = testbed::binaries::find_with_kubectl(&|_| ()).unwrap().join("kubectl");
        symlink(kubectl, bin.join("kubectl")).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    /// Runs a script of `release/` from this folder.
    fn run(&self, script: &str, arguments: &[&str]) -> (Output, Vec<String>) {
        self.run_with(script, arguments, &[])
    }

    fn run_with(&self, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Output, Vec<String>) {
        let calls = self.path("calls");
        fs::write(&calls, "").unwrap();
        let out = Command::new(root().join("release").join(script))
            .args(arguments)
            .current_dir(&self.0.0)
            .env("PATH", format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap()))
            .env("CALLS", &calls)
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env("INSTALL_FILES", self.path("made"))
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        (out, fs::read_to_string(calls).unwrap().lines().map(|line| line.trim_end().to_owned()).collect())
    }

    /// Returns the names in a folder of the stage.
    fn names(&self, folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));
const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000007";

#[test]
fn release_version_is_that_of_the_tag_and_of_the_changelog() {
    let stage = Stage::new();
    let (out, _) = stage.run("version", &[TAG]);
    assert_eq!((out.status.success(), text(&out).trim()), (true, env!("CARGO_PKG_VERSION")));
    let (out, _) = stage.run("version", &["v9.9.9"]);
    assert!(!out.status.success() && text(&out).contains("the tag is v9.9.9"), "{}", text(&out));
    let (out, _) = stage.run("notes", &["v9.9.9"]);
    assert!(!out.status.success() && text(&out).contains("no section v9.9.9"), "{}", text(&out));
    let (out, _) = stage.run("notes", &[TAG]);
    let notes = text(&out);
    assert!(notes.contains("### Do this first") && !notes.contains("\n## "), "{notes}");
}

#[test]
fn changelog_begins_each_release_with_what_a_user_must_do() {
    let log = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let releases: Vec<&str> = log.split("\n## ").skip(1).collect();
    assert!(!releases.is_empty());
    for release in releases {
        let (title, rest) = release.split_once("\n\n").unwrap();
        assert!(title.starts_with('v') && title.split('.').count() == 3, "{title}");
        assert!(rest.starts_with("### Do this first\n\n"), "{title} begins with {rest:.40}");
    }
}

/// Asserts that a value is valid. Knows the words that the definitions use for types and fields.
fn fits(value: &Value, schema: &Value) -> Result<(), String> {
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        other => panic!("{other}"),
    };
    let kinds = &schema["type"];
    let mut kinds = kinds.as_array().into_iter().flatten().chain(std::iter::once(kinds)).filter_map(Value::as_str);
    if !kinds.any(is) && schema.get("type").is_some() {
        return Err(format!("{value} is not {}", schema["type"]));
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => return Err(format!("no field {name}")),
            (Value::Null, Value::Object(_)) => fits(field, &schema["additionalProperties"])?,
            (Value::Null, _) => {}
            (known, _) => fits(field, known)?,
        }
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        value.get(required.as_str().unwrap()).ok_or_else(|| format!("{required} is missing"))?;
    }
    value.as_array().into_iter().flatten().try_for_each(|item| fits(item, &schema["items"]))
}

#[test]
fn schemas_accept_the_sample_and_refuse_a_misspelt_field() {
    let files = testbed::schemas::files().unwrap();
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let kinds = ["instance", "workload", "workloaddeployment"];
    assert_eq!(names, kinds.map(|kind| format!("compute.datumapis.com/{kind}_v1alpha.json")));
    let schema: Value = serde_json::from_str(&files["compute.datumapis.com/workload_v1alpha.json"]).unwrap();
    let sample = fs::read_to_string(root().join("config/samples/workload.yaml")).unwrap();
    let samples = testbed::manifests::documents(&sample).unwrap();
    let mut workload = samples.into_iter().find(|object| object["kind"] == "Workload").unwrap();
    fits(&workload, &schema).unwrap();
    assert!(!files.values().any(|text| text.contains("x-kubernetes-")), "words that JSON schemas do not have");
    // Amounts are numbers or texts.
    let (amount, limits) = (&schema.to_string(), "\"type\":[\"integer\",\"string\"]");
    assert!(amount.contains(limits));
    for (place, key, value, said) in [
        ("/spec/template/spec", "runtimes", json!({}), "no field runtimes"),
        ("/spec/placements/0", "cityCodes", json!("DFW"), "\"DFW\" is not \"array\""),
        ("", "kind", json!(7), "7 is not \"string\""),
    ] {
        let before = workload.clone();
        workload.pointer_mut(place).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
        assert_eq!(fits(&workload, &schema).unwrap_err(), said);
        workload = before;
    }
    workload["spec"]["placements"][0].as_object_mut().unwrap().remove("name");
    assert_eq!(fits(&workload, &schema).unwrap_err(), "\"name\" is missing");
}

#[test]
fn release_manifests_are_the_install_files_with_the_image() {
    let stage = Stage::new();
    let image = format!("registry.example:5000/team/compute-operator:{TAG}@{DIGEST}");
    let release = chart::Release { image: image.clone(), ..chart::Release::default() };
    let made = chart::install_files(&release).unwrap();
    chart::write(&made, &stage.path("made")).unwrap();
    let (out, calls) = stage.run("manifests", &[&image, "dist"]);
    assert!(out.status.success(), "{}", text(&out));
    let files: BTreeSet<String> = made.keys().map(|name| format!("install-{name}")).collect();
    let packed = ["compute-config.tar.gz", "crd-schemas.tar.gz", "crds.yaml"].map(str::to_owned);
    assert_eq!(stage.names("dist"), files.iter().cloned().chain(packed).collect());
    for (name, text) in &made {
        assert_eq!(&fs::read_to_string(stage.path("dist").join(format!("install-{name}"))).unwrap(), text);
    }
    let version = env!("CARGO_PKG_VERSION");
    let asked = format!(" --image {image} --version {version}");
    let of_chart = format!(" --image {} --version {version}", image.split_once('@').unwrap().0);
    for (verb, options) in [("install-files", &asked), ("chart", &of_chart)] {
        let call = calls.iter().find(|call| call.starts_with(&format!("cargo testbed {verb} ")));
        assert!(call.is_some_and(|call| call.ends_with(options.as_str())), "{verb}{options}: {calls:#?}");
    }
    let crds = testbed::manifests::documents(&fs::read_to_string(stage.path("dist/crds.yaml")).unwrap()).unwrap();
    assert!(crds.len() == 3 && crds.iter().all(|object| object["kind"] == "CustomResourceDefinition"));
    assert!(calls.iter().any(|call| call.starts_with("helm package ")), "{calls:#?}");
    // The same tree gives the same files.
    let (out, _) = stage.run("manifests", &[&image, "again"]);
    assert!(out.status.success(), "{}", text(&out));
    for name in stage.names("dist") {
        let read = |folder: &str| fs::read(stage.path(folder).join(&name)).unwrap();
        assert!(read("dist") == read("again"), "{name}");
    }
    let (out, _) = stage.run("manifests", &["registry.example:5000/compute-operator", "none"]);
    assert!(!out.status.success() && text(&out).contains("no image with a tag"), "{}", text(&out));
}

#[test]
fn release_checksums_find_a_changed_file() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("dist")).unwrap();
    let (out, calls) = stage.run("sbom", &["dist/sbom.cdx.json"]);
    assert!(out.status.success(), "{}", text(&out));
    assert_eq!(
        calls,
        ["cargo fetch --locked", "cargo testbed sbom"],
        "a build of the testbed alone has not all packages"
    );
    fs::write(stage.path("dist/b c"), "b").unwrap();
    for _ in 0..2 {
        let (out, _) = stage.run("checksums", &["dist"]);
        assert!(out.status.success(), "{}", text(&out));
    }
    let sums = fs::read_to_string(stage.path("dist/SHA256SUMS")).unwrap();
    let named: Vec<&str> = sums.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    assert_eq!(named, ["b c", "sbom.cdx.json"]);
    let (out, calls) = stage.run("publish", &[TAG, "dist"]);
    assert!(out.status.success(), "{}", text(&out));
    let dist = stage.path("dist");
    let files = ["SHA256SUMS", "b c", "sbom.cdx.json"].map(|name| dist.join(name).display().to_string()).join(" ");
    assert_eq!(calls, [format!("gh release create {TAG} --verify-tag --title {TAG} --notes-file - {files}")]);
    assert!(fs::read_to_string(stage.path("notes")).unwrap().contains("### Do this first"));
    fs::write(stage.path("dist/b c"), "changed").unwrap();
    let (out, calls) = stage.run("publish", &[TAG, "dist"]);
    assert!(!out.status.success() && calls.is_empty(), "{calls:#?}");
}

#[test]
fn release_image_is_pushed_by_digest_and_signed() {
    let stage = Stage::new();
    for processor in ["amd64", "arm64"] {
        let (out, calls) = stage
            .run("image", &["build", "ghcr.io/x/y", &format!("linux/{processor}"), &format!("digests/{processor}")]);
        assert!(out.status.success(), "{}", text(&out));
        let build = calls.iter().find(|call| call.starts_with("docker ")).unwrap();
        for part in [
            format!("docker buildx build --platform linux/{processor} --provenance=false --sbom=false "),
            "--build-arg SOURCE_DATE_EPOCH=1700000000 ".to_owned(),
            "--label org.opencontainers.image.revision=of-the-commit ".to_owned(),
            "type=image,name=ghcr.io/x/y,push-by-digest=true,name-canonical=true,push=true,rewrite-timestamp=true"
                .to_owned(),
        ] {
            assert!(build.contains(&part), "{build}\nhas no {part}");
        }
        assert_eq!(fs::read_to_string(stage.path("digests").join(processor)).unwrap().trim(), DIGEST);
    }
    let digests = ["digests/amd64", "digests/arm64"];
    let (out, calls) = stage.run("image", &[&["index", "ghcr.io/x/y", TAG], &digests[..]].concat());
    assert_eq!((out.status.success(), text(&out).trim()), (true, DIGEST), "only the digest");
    assert!(calls[0].starts_with(&format!("docker buildx imagetools create --tag ghcr.io/x/y:{TAG} ")), "{calls:#?}");
    assert!(calls[0].ends_with(&format!(" ghcr.io/x/y@{DIGEST} ghcr.io/x/y@{DIGEST}")), "{calls:#?}");
    // What is no digest is not published, and an index has every platform.
    let build = ["build", "ghcr.io/x/y", "linux/amd64", "digests/odd"];
    assert!(!stage.run_with("image", &build, &[("DIGEST", "none")]).0.status.success());
    assert!(!stage.run("image", &["index", "ghcr.io/x/y", TAG, digests[0]]).0.status.success());
    let index = [&["index", "ghcr.io/x/y", TAG], &digests[..]].concat();
    assert!(!stage.run_with("image", &index, &[("DIGEST", "")]).0.status.success());

    let image = format!("ghcr.io/x/y@{DIGEST}");
    let (out, calls) = stage.run("sign", &[&image, "dist"]);
    assert!(out.status.success(), "{}", text(&out));
    let blob = "cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS";
    assert_eq!(calls, [format!("cosign sign --yes --recursive {image}"), blob.to_owned()]);
    assert!(!stage.run("sign", &["ghcr.io/x/y:v1", "dist"]).0.status.success(), "a tag can move");
}

#[test]
fn release_cli_archive_is_reproducible_and_has_the_completion() {
    let stage = Stage::new();
    let packed = |folder: &str| {
        let (out, calls) = stage.run("cli", &["aarch64-unknown-linux-gnu", folder]);
        assert!(out.status.success(), "{}", text(&out));
        assert_eq!(
            calls[0],
            "cargo build --locked --release --package kubectl-compute --target aarch64-unknown-linux-gnu"
        );
        stage.path(folder).join("kubectl-compute-linux-arm64.tar.gz")
    };
    let (one, other) = (packed("one"), packed("other"));
    assert!(fs::read(&one).unwrap() == fs::read(other).unwrap());
    let list = ["--list", "--verbose", "--utc", "--full-time", "--file"];
    let listed = Command::new("tar").args(list).arg(one).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(lines.iter().all(|line| line.contains(" 2023-11-14 22:13:20 ")), "the time of the commit: {listed}");
    assert!(lines[0].starts_with("-rw-r--r-- 0/0") && lines[0].ends_with(" LICENSE"), "{listed}");
    assert!(lines[1].starts_with("-rwxr-xr-x 0/0") && lines[1].ends_with(" kubectl-compute"), "{listed}");
    assert!(lines[2].ends_with(" kubectl_complete-compute -> kubectl-compute"), "{listed}");
    for (target, name) in [("x86_64-apple-darwin", "darwin-amd64"), ("aarch64-apple-darwin", "darwin-arm64")] {
        assert!(stage.run("cli", &[target, "mac"]).0.status.success());
        assert!(stage.path("mac").join(format!("kubectl-compute-{name}.tar.gz")).exists(), "{name}");
    }
    for target in ["x86_64-pc-windows-msvc", "riscv64gc-unknown-linux-gnu"] {
        let (out, calls) = stage.run("cli", &[target, "none"]);
        assert_eq!((out.status.code(), calls), (Some(2), vec![]), "{target}");
    }
}
