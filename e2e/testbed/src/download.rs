//! Downloads the programs of a testbed that exist prebuilt. No file is used before its checksum was compared.

use std::{
    fs::{self, File, Permissions},
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Sha256, Sha512, digest::DynDigest};

/// File beside the programs that says that some of them are downloaded.
pub(crate) const DOWNLOADED: &str = ".downloaded";
/// Folder of the programs in an archive of setup-envtest.
const FOLDER: &str = "controller-tools/envtest";
/// Bytes between two progress lines.
const STEP: usize = 16 << 20;

/// A file to download.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// An archive of setup-envtest if it ends with `.tar.gz`. Otherwise the program itself.
    url: &'a str,
    /// SHA-512 or SHA-256, in hexadecimal. If `None`, it is read from the address with `.sha256` appended.
    checksum: Option<&'a str>,
    /// Names of the programs in the file.
    programs: &'a [&'a str],
}

const OF_ENVTEST: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];
const CONTROLLER_MANAGER: [&str; 1] = ["kube-controller-manager"];

/// The files for Linux on amd64, all of one Kubernetes version. Addresses and checksums of the archives are those of
/// `envtest-releases.yaml` in kubernetes-sigs/controller-tools. The archives have no kube-controller-manager.
const AMD64: [Source<'static>; 2] = [
    Source {
        url: "https://github.com/kubernetes-sigs/controller-tools/releases/download/envtest-v1.36.2/envtest-v1.36.2-linux-amd64.tar.gz",
        checksum: Some(
            "ea743186c8a799f5cf8faf16969f86189d003cb7d130e0ac4b58789f1e5748dcf30ebe91c837a10d5ac415383da3e10b9e64d65785c938c23e739781cfb76f08",
        ),
        programs: &OF_ENVTEST,
    },
    Source {
        url: "https://dl.k8s.io/release/v1.36.2/bin/linux/amd64/kube-controller-manager",
        checksum: Some("6332e45474baf6362f50394d8f7c6002274db04d68fe51dbe2229ef5c0b21e3c"),
        programs: &CONTROLLER_MANAGER,
    },
];

/// The same for arm64.
const ARM64: [Source<'static>; 2] = [
    Source {
        url: "https://github.com/kubernetes-sigs/controller-tools/releases/download/envtest-v1.36.2/envtest-v1.36.2-linux-arm64.tar.gz",
        checksum: Some(
            "2d72ee985a8e262a3c57dc9f7f0fd891f6a8c7bf7ebaa2db6dc6d8eac8ae28181afe51c1f368b67756cdb40b10de9b205609e1726e5f27f7c6d824dd9c6649ac",
        ),
        programs: &OF_ENVTEST,
    },
    Source {
        url: "https://dl.k8s.io/release/v1.36.2/bin/linux/arm64/kube-controller-manager",
        checksum: None,
        programs: &CONTROLLER_MANAGER,
    },
];

/// Returns the files for a platform in Rust's words. Empty if there are none.
pub(crate) fn sources(os: &str, arch: &str) -> &'static [Source<'static>] {
    match (os, arch) {
        ("linux", "x86_64") => &AMD64,
        ("linux", "aarch64") => &ARM64,
        _ => &[],
    }
}

/// Downloads these programs into `bin`, together with missing ones in the same files. Either all of them arrive, or none.
///
/// # Errors
/// Returns one line about the file that is unavailable or differs from its checksum.
pub(crate) fn download(sources: &[Source], bin: &Path, missing: &[&str], progress: &dyn Fn(&str)) -> Result<()> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    for name in missing {
        let exists = sources.iter().any(|source| source.programs.contains(name));
        ensure!(exists, "there is no prebuilt {name} for {os} on {arch}");
    }
    let is_needed = |source: &&Source| source.programs.iter().any(|name| missing.contains(name));
    let needed: Vec<&Source> = sources.iter().filter(is_needed).collect();
    if needed.is_empty() {
        return Ok(());
    }
    let scratch = bin.join(".download");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let done = needed.iter().try_for_each(|source| fetch(source, &scratch, progress)).and_then(|()| {
        let names = needed.iter().flat_map(|source| source.programs).filter(|name| !bin.join(name).exists());
        fs::write(bin.join(DOWNLOADED), "")?; // first, because the programs arrive one by one
        for name in names {
            let program = scratch.join(name);
            fs::set_permissions(&program, Permissions::from_mode(0o755)).with_context(|| (*name).to_owned())?;
            fs::rename(&program, bin.join(name)).with_context(|| (*name).to_owned())?;
        }
        Ok(())
    });
    let _ = fs::remove_dir_all(&scratch);
    done
}

/// Downloads one file into a folder, compares its checksum, and unpacks it there.
fn fetch(source: &Source, dir: &Path, progress: &dyn Fn(&str)) -> Result<()> {
    let (url, names) = (source.url, source.programs.join(", "));
    let began = Instant::now();
    progress(&format!("downloading {names} from {} (once)", url.split('/').nth(2).unwrap_or_default()));
    let wanted = match source.checksum {
        Some(pinned) => pinned.to_owned(),
        None => published(&format!("{url}.sha256"))?,
    };
    let mut hasher: Box<dyn DynDigest> =
        if wanted.len() == 128 { Box::new(Sha512::default()) } else { Box::new(Sha256::default()) };
    let is_archive = url.ends_with(".tar.gz");
    let file = dir.join(if is_archive { "archive.tar.gz" } else { source.programs[0] });
    let mut to = File::create(&file).with_context(|| file.display().to_string())?;
    let (mut size, mut reported) = (0, 0);
    curl(url, |part| {
        hasher.update(part);
        size += part.len();
        if size - reported >= STEP {
            reported = size;
            progress(&format!("downloading {names}: {} MiB", size >> 20));
        }
        Ok(to.write_all(part)?)
    })?;
    let found = hex(&hasher.finalize());
    ensure!(found == wanted, "{url} has checksum {found} instead of {wanted}, so it is not used");
    if is_archive {
        unpack(&file, dir, source.programs)?;
    }
    progress(&format!("downloaded {names} in {} s", began.elapsed().as_secs()));
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns a checksum that the server publishes in a file of its own.
fn published(url: &str) -> Result<String> {
    let mut text = Vec::new();
    curl(url, |part| {
        text.extend_from_slice(part);
        Ok(())
    })?;
    let text = String::from_utf8_lossy(&text);
    let checksum = text.split_whitespace().next().unwrap_or_default();
    let is_checksum = checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(is_checksum, "{url} is no SHA-256 checksum");
    Ok(checksum.to_ascii_lowercase())
}

/// Passes on the content of an address. curl knows the proxies and the authorities of the machine. It gives up after three seconds
/// without a connection, and after ten with hardly any data.
fn curl(url: &str, mut part: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut curl = Command::new("curl");
    // `--disable` comes first, and leaves the user's settings out.
    curl.args(["--disable", "--fail", "--silent", "--show-error", "--location", "--proto-redir", "=https"]);
    curl.args(["--connect-timeout", "3", "--speed-limit", "10000", "--speed-time", "10", url]);
    let mut child = curl.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("curl does not start")?;
    let mut content = child.stdout.take().context("curl has no stdout")?;
    let mut buffer = vec![0; 1 << 16];
    let copied = loop {
        match content.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(size) => {
                if let Err(error) = part(&buffer[..size]) {
                    break Err(error);
                }
            }
            Err(error) => break Err(error.into()),
        }
    };
    drop(content); // ends a curl that still writes
    let out = child.wait_with_output()?;
    copied?;
    if !out.status.success() {
        let (file, why) = (url.rsplit('/').next().unwrap_or(url), String::from_utf8_lossy(&out.stderr));
        bail!("{file} cannot be downloaded ({})", why.lines().last().unwrap_or("curl failed").trim());
    }
    Ok(())
}

/// Unpacks the programs of an archive into a folder.
fn unpack(archive: &Path, dir: &Path, programs: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(dir);
    tar.args(programs.iter().map(|name| format!("{FOLDER}/{name}")));
    let out = tar.output().context("tar does not start")?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success(),
        "{} cannot be unpacked ({})",
        archive.display(),
        why.lines().last().unwrap_or_default()
    );
    for name in programs {
        fs::rename(dir.join(FOLDER).join(name), dir.join(name)).with_context(|| (*name).to_owned())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        collections::{BTreeMap, BTreeSet},
        io::{BufRead, BufReader},
        net::{Ipv4Addr, TcpListener},
        path::PathBuf,
        thread,
    };

    use sha2::Digest;

    use super::*;

    /// Programs of a testbed, which the files of a platform have together.
    const ALL: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

    #[test]
    fn platform_has_all_programs_in_the_minor_version_of_the_build_or_none() {
        let module = include_str!("../kubernetes/go.mod");
        let built = module.split("k8s.io/kubernetes v").nth(1).unwrap().split(' ').next().unwrap();
        let (minor, _) = built.rsplit_once('.').unwrap();
        for (os, arch, word) in [
            ("linux", "x86_64", Some("amd64")),
            ("linux", "aarch64", Some("arm64")),
            ("linux", "riscv64", None),
            ("macos", "aarch64", None),
        ] {
            let found = sources(os, arch);
            let programs: BTreeSet<&str> = found.iter().flat_map(|source| source.programs).copied().collect();
            assert_eq!(programs, word.map_or(BTreeSet::new(), |_| BTreeSet::from(ALL)), "{os} {arch}");
            let mut versions = BTreeSet::new();
            for source in found {
                assert!(source.url.starts_with("https://") && source.url.contains(word.unwrap()), "{}", source.url);
                versions.insert(source.url.split(['/', '-']).find(|part| part.starts_with("v1.")).unwrap());
                let pinned = source.checksum.unwrap_or_default();
                assert!([0, 64, 128].contains(&pinned.len()), "{pinned}");
                assert!(pinned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{pinned}");
            }
            assert!(versions.len() == usize::from(word.is_some()), "{versions:?}");
            assert!(versions.iter().all(|version| version.starts_with(&format!("v{minor}."))), "{versions:?}");
        }
    }

    /// A folder of one test. It is deleted at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("testbed-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns an archive as setup-envtest has it. Each program is its own name.
    fn archive() -> Vec<u8> {
        let folder = Folder::new("archive");
        fs::create_dir_all(folder.0.join(FOLDER)).unwrap();
        for name in OF_ENVTEST {
            fs::write(folder.0.join(FOLDER).join(name), name).unwrap();
        }
        let out = Command::new("tar").args(["-cz", "-C"]).arg(&folder.0).arg("controller-tools").output().unwrap();
        assert!(out.status.success(), "{out:?}");
        out.stdout
    }

    /// Serves files on 127.0.0.1 until the process ends. Returns the address.
    fn serve(files: BTreeMap<&'static str, Vec<u8>>) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let path = head[0].split(' ').nth(1).unwrap();
                let (status, body) = files.get(path).map_or(("404 Not Found", &[][..]), |body| ("200 OK", body));
                // The length of a file that ends early is too large.
                let length = body.len() + usize::from(path.contains("cut"));
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            }
        });
        address
    }

    #[test]
    fn download_is_complete_and_verified_or_leaves_nothing() {
        if Command::new("curl").arg("--version").output().is_err() {
            eprintln!("*skipped* download_is_complete_and_verified_or_leaves_nothing: curl is missing");
            return;
        }
        let (archive, program) = (archive(), b"kube-controller-manager".to_vec());
        let (sum, sum256) = (hex(&Sha512::digest(&archive)), hex(&Sha256::digest(&program)));
        let here = serve(BTreeMap::from([
            ("/all.tar.gz", archive.clone()),
            ("/cut.tar.gz", archive),
            ("/program", program.clone()),
            ("/program.sha256", format!("{sum256}\n").into_bytes()),
            ("/changed", b"changed".to_vec()),
            ("/changed.sha256", sum256.clone().into_bytes()),
            ("/page", program),
            ("/page.sha256", b"<html>Log in</html>".to_vec()),
        ]));
        let away = "http://127.0.0.1:1";
        for (name, all, controllers, error) in [
            ("pinned", (&*here, "/all.tar.gz", &*sum), (&*here, "/program", Some(&*sum256)), None),
            ("published", (&here, "/all.tar.gz", &sum), (&here, "/program", None), None),
            ("wrong", (&here, "/all.tar.gz", &sum256), (&here, "/program", None), Some("has checksum")),
            ("changed", (&here, "/all.tar.gz", &sum), (&here, "/changed", None), Some("so it is not used")),
            ("no-checksum", (&here, "/all.tar.gz", &sum), (&here, "/page", None), Some("is no SHA-256 checksum")),
            ("no-file", (&here, "/none.tar.gz", &sum), (&here, "/program", None), Some("404")),
            ("cut", (&here, "/cut.tar.gz", &sum), (&here, "/program", None), Some("cannot be downloaded")),
            ("no-server", (away, "/all.tar.gz", &sum), (&here, "/program", None), Some("cannot be downloaded")),
        ] {
            let folder = Folder::new(name);
            let urls = [format!("{}{}", all.0, all.1), format!("{}{}", controllers.0, controllers.1)];
            let sources = [
                Source { url: &urls[0], checksum: Some(all.2), programs: &OF_ENVTEST },
                Source { url: &urls[1], checksum: controllers.2, programs: &CONTROLLER_MANAGER },
            ];
            let lines = RefCell::new(Vec::new());
            let progress = |text: &str| lines.borrow_mut().push(text.to_owned());
            let done = download(&sources, &folder.0, &["etcd", "kube-controller-manager"], &progress);
            if let Some(words) = error {
                let said = format!("{:#}", done.unwrap_err());
                assert!(said.contains(words) && !said.contains('\n'), "{name}: {said}");
                assert_eq!(folder.files(), [""; 0], "{name}");
                continue;
            }
            done.unwrap();
            assert_eq!(folder.files(), [&[DOWNLOADED][..], &ALL].concat(), "{name}");
            for program in ALL {
                let file = folder.0.join(program);
                assert_eq!(fs::read_to_string(&file).unwrap(), program);
                assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o755, "{program}");
            }
            assert_eq!(lines.borrow().len(), 4, "{lines:?}");
        }
    }

    #[test]
    fn download_keeps_existing_programs_and_fetches_only_missing_ones() {
        let folder = Folder::new("kept");
        let nothing = download(&AMD64, &folder.0, &[], &|text| panic!("{text}"));
        nothing.unwrap();
        let unknown = download(&AMD64, &folder.0, &["kubelet"], &|text| panic!("{text}")).unwrap_err();
        assert!(unknown.to_string().starts_with("there is no prebuilt kubelet"), "{unknown}");
        assert_eq!(folder.files(), [""; 0]);
    }
}
