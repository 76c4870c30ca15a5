//! Completion, as shells and kubectl ask for it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const BINARY: &str = env!("CARGO_BIN_EXE_kubectl-compute");

/// A folder with both names of the binary, and a kubeconfig. It is deleted with this value.
struct Place(PathBuf);

impl Place {
    fn of(test: &str, server: &str, user: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("kubectl-compute-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        for name in ["kubectl-compute", "kubectl_complete-compute"] {
            symlink(BINARY, dir.join(name)).unwrap();
        }
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: shop\n\
             clusters: [{{ name: c, cluster: {{ server: \"{server}\" }} }}]\n\
             users: [{{ name: u, user: {user} }}]\n\
             contexts:\n- {{ name: shop, context: {{ cluster: c, user: u, namespace: demo }} }}\n\
             - {{ name: hub, context: {{ cluster: c, user: u }} }}\n"
        );
        std::fs::write(dir.join("kubeconfig"), config).unwrap();
        Self(dir)
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.env("PATH", path).env("KUBECONFIG", self.0.join("kubeconfig"));
        command.env_remove("COMPUTE_HUB_CONTEXT").env_remove("COMPUTE_MANAGER_CONTEXT");
        command
    }

    /// Asks as kubectl does.
    fn complete(&self, words: &[&str]) -> Output {
        self.command(self.0.join("kubectl_complete-compute")).args(words).output().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Requests that the API server got: each with its path and the forms that it accepts.
type Asked = Arc<Mutex<Vec<String>>>;

/// Starts an API server with two objects of every kind. Returns its address.
fn api() -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            let accept = head.iter().find(|line| line.to_lowercase().starts_with("accept:")).cloned();
            seen.lock().unwrap().push(format!("{} {}", head[0], accept.unwrap_or_default()));
            let items: Vec<String> = ["db", "hello-edge-dfw"]
                .map(|name| {
                    format!(r#"{{"metadata":{{"name":"{name}","labels":{{"topology.datum.net/city-code":"dfw"}}}}}}"#)
                })
                .to_vec();
            let body = format!(
                r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{}},"items":[{}]}}"#,
                items.join(",")
            );
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length:";
            let _ = write!(&stream, "{head} {}\r\n\r\n{body}", body.len());
        }
    });
    (address, asked)
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "nothing is written over the line: {output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn names_of_the_cluster_are_candidates_and_only_metadata_is_read() {
    let (server, asked) = api();
    let place = Place::of("names", &server, "{}");
    for (words, path, expected) in [
        (&["trace", "wd", ""][..], "namespaces/demo/workloaddeployments", "db\nhello-edge-dfw\n:4\n"),
        (&["trace", "wd", "h"], "namespaces/demo/workloaddeployments", "hello-edge-dfw\n:4\n"),
        (&["trace", "secret/"], "/api/v1/namespaces/demo/secrets", "secret/db\nsecret/hello-edge-dfw\n:4\n"),
        (&["trace", "-n", "x", "configmap", "d"], "/api/v1/namespaces/x/configmaps", "db\n:4\n"),
        (&["tree", "workload", "d"], "namespaces/demo/workloads", "db\n:4\n"),
        (&["events", "instance", "d"], "namespaces/demo/instances", "db\n:4\n"),
        (&["--namespace", "d"], "/api/v1/namespaces?", "db\n:4\n"),
        (&["--hub-context", "hub", "cell", "drain", "d"], "v1alpha1/clusters", "db\n:4\n"),
        (&["cell", "dead", "--hub-context", "hub", "d"], "v1alpha1/clusters", "db\n:4\n"),
        (&["--hub-context=hub", "trace", "cluster", "d"], "v1alpha1/clusters", "db\n:4\n"),
        (&["--hub-context=hub", "waiting", "--city", ""], "v1alpha1/clusters", "dfw\n:4\n"),
        (&["--hub-context=hub", "--cell-context", "d"], "v1alpha1/clusters", "db=\n:6\n"),
    ] {
        assert_eq!(text(&place.complete(words)), expected, "{words:?}");
        let last = asked.lock().unwrap().pop().unwrap();
        assert!(last.starts_with("GET ") && last.contains(path), "{words:?}: {last}");
    }
    for line in asked.lock().unwrap().iter() {
        assert!(line.contains("as=PartialObjectMetadataList"), "it asks for values: {line}");
    }
    assert_eq!(text(&place.complete(&["cell", "drain", ""])), ":4\n", "the hub is not known");
    assert_eq!(text(&place.complete(&["--context", ""])), "hub\nshop\n:4\n");
}

#[test]
fn silent_control_plane_and_slow_credentials_end_in_two_seconds() {
    // It accepts connections, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let login = "{ exec: { apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, command: sh, \
                 args: [-c, \"echo noise >&2; sleep 4\"] } }";
    let broken = "{ exec: { apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, command: sh, \
                  args: [-c, \"echo noise >&2; exit 1\"] } }";
    for (user, server) in [("{}", &*silent), (login, "http://127.0.0.1:1"), (broken, "http://127.0.0.1:1")] {
        let place = Place::of("silent", server, user);
        let began = Instant::now();
        assert_eq!(text(&place.complete(&["trace", "wd", ""])), ":4\n", "{user}");
        assert!(began.elapsed() < Duration::from_millis(2500), "{user}: {:?}", began.elapsed());
    }
}

/// Returns kubectl: of the tests' servers, else of the PATH.
fn kubectl() -> Option<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    assets.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join("kubectl")).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[test]
fn kubectl_completes_the_plugin() {
    let Some(kubectl) = kubectl() else {
        let _ = writeln!(std::io::stderr(), "*skipped* kubectl_completes_the_plugin: there is no kubectl");
        return;
    };
    let (server, _) = api();
    let place = Place::of("kubectl", &server, "{}");
    let ask = |words: &[&str]| {
        let output = place.command(&kubectl).arg("__complete").arg("compute").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(&["trace", "wd", ""]), "db\nhello-edge-dfw\n:4\n");
    let reasons = ask(&["explain", "NotSch"]);
    assert!(reasons.starts_with("NotScheduled\t") && reasons.ends_with("\n:4\n"), "{reasons}");
    assert_eq!(ask(&["trace", "--context=s"]), "shop\n:4\n");
    let commands = ask(&["t"]);
    let names: Vec<&str> = commands.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(names, ["trace", "tree", "top", ":4"]);
}

#[test]
fn bash_completes_with_the_script() {
    let (server, _) = api();
    let place = Place::of("bash", &server, "{}");
    let ask = |words: &str, index: usize, last: &str| {
        let script = format!(
            "source <(kubectl-compute completion bash) && COMP_WORDS=({words}) COMP_CWORD={index} COMP_TYPE=9 && \
             _clap_complete_kubectl_compute kubectl-compute {last} x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        text(&place.command("bash").args(["-c", &script]).output().unwrap())
    };
    assert_eq!(ask("kubectl-compute tr", 1, "tr"), "trace\ntree\n");
    assert_eq!(ask("kubectl-compute trace wd ''", 3, "''"), "db\nhello-edge-dfw\n");
    assert_eq!(ask("kubectl-compute --context = s", 3, "s"), "shop\n");
    assert_eq!(ask("kubectl-compute --context =", 2, "''"), "hub\nshop\n");
}

#[test]
fn other_shells_get_their_form() {
    let place = Place::of("shells", "http://127.0.0.1:1", "{}");
    for (shell, index, words, expected) in [
        ("zsh", "2", &["trace"][..], "cluster\n"),
        ("zsh", "1", &["tre"], "tree:Show all objects of a Workload on all control planes\n"),
        ("elvish", "1", &["tre"], "tree\n"),
        ("fish", "", &["tre"], "tree\tShow all objects of a Workload on all control planes\n"),
        ("powershell", "", &["tre"], "tree\tShow all objects of a Workload on all control planes\n"),
        ("nushell", "", &["tre"], "\n"),
    ] {
        let mut command = place.command(BINARY);
        command.args(["--", "kubectl-compute"]).args(words).env("KUBECTL_COMPUTE_COMPLETE", shell);
        if !index.is_empty() {
            command.env("_CLAP_COMPLETE_INDEX", index);
        }
        let found = text(&command.output().unwrap());
        assert!(format!("{}\n", found.trim_end()).starts_with(expected), "{shell}: {found}");
    }
}
