//! A kubelet for the operator's Deployment. It runs the pod as a process with its flags, environment and files.
//!
//! It reads everything from the API server to which the overlay was applied. Three things differ from a cluster. Files are in a
//! folder of the pod, so that all paths have one prefix. Ports are free ports of this machine. Addresses replace names that the
//! cluster's DNS would resolve.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use testbed::{
    control_plane::{ControlPlane, free_port},
    process::Process,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::common::{PATIENCE, binary};

/// Namespace of the operator.
pub const NS: &str = "compute-system";
/// Folder in which a kubelet mounts the credentials for the pod's own API server.
const OWN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Files of a pod, by their paths in the pod.
type Files = BTreeMap<String, String>;

/// Environment of a pod.
pub struct Node<'a> {
    /// Folder of the bed. Its authority is that of every cluster with pods. The hub has another authority.
    pub dir: &'a Path,
    /// The control plane with the pod's Deployment.
    pub plane: &'a ControlPlane,
    /// The API server that makes tokens for an audience: the hub if the tokens are for it, else the pod's own API server.
    pub issuer: &'a ControlPlane,
    /// Replacements for names in the network.
    pub addresses: Vec<(String, String)>,
}

/// A pod of the Deployment.
pub struct Pod {
    pub process: Process,
    /// Ports of this machine by container port.
    pub ports: BTreeMap<u16, u16>,
    /// Port and path of the readiness probe.
    ready: (u16, String),
}

/// Reads an object by its path.
async fn read(client: &Client, path: &str) -> Option<Value> {
    let request = Request::get(path).body(Vec::new()).unwrap();
    match client.request(request).await {
        Ok(object) => Some(object),
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Requests a token of a ServiceAccount, for an audience or for the API server itself.
pub async fn token(plane: &ControlPlane, account: &str, audience: Option<&str>) -> String {
    let audiences: Vec<&str> = audience.into_iter().collect();
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "audiences": audiences, "expirationSeconds": 3600 },
    });
    let path = format!("/api/v1/namespaces/{NS}/serviceaccounts/{account}/token");
    let request = Request::post(path).header("content-type", "application/json");
    let made: Value =
        plane.client().await.unwrap().request(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Node<'_> {
    /// Starts every replica of the Deployment, and waits until each is ready.
    pub async fn start(&self, name: &str) -> Vec<Pod> {
        let client = self.plane.client().await.unwrap();
        let path = format!("/apis/apps/v1/namespaces/{NS}/deployments/compute-manager");
        let deployment = read(&client, &path).await.expect("the overlay has a Deployment");
        let mut pods = Vec::new();
        for replica in 0..deployment["spec"]["replicas"].as_u64().unwrap() {
            let name = format!("{name}-{replica}");
            pods.push(self.pod(&client, &name, &deployment["spec"]["template"]["spec"]).await);
        }
        for pod in &mut pods {
            pod.wait_ready().await;
        }
        pods
    }

    async fn pod(&self, client: &Client, name: &str, spec: &Value) -> Pod {
        let account = text(&spec["serviceAccountName"]);
        let container = &spec["containers"][0];
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        let mut files = self.own(account).await;
        let mut folders = vec![OWN.to_owned()];
        for mount in list(&container["volumeMounts"]) {
            let folder = text(&mount["mountPath"]);
            let volume = list(&spec["volumes"]).find(|volume| volume["name"] == mount["name"]).unwrap();
            for (file, content) in self.volume(client, volume, account).await {
                files.insert(format!("{folder}/{file}"), content);
            }
            folders.push(folder.to_owned());
        }
        let numbers =
            list(&container["ports"]).map(|port| u16::try_from(port["containerPort"].as_u64().unwrap()).unwrap());
        let ports: BTreeMap<u16, u16> = numbers.map(|number| (number, free_port().unwrap())).collect();
        let root = self.dir.join(name);
        let here = |text: &str| self.here(text, &root, &folders, &ports);
        for (path, content) in &files {
            let file = within(&root, path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, here(content)).unwrap();
        }
        let (args, variables) = given(container);
        let mut command = Command::new(binary());
        command.env_clear().env("KUBECONFIG", self.kubeconfig(&root)).env("HOSTNAME", name);
        command.envs(variables.iter().map(|(name, value)| (name, here(value))));
        command.args(args.iter().map(|arg| here(arg)));
        let probe = &container["readinessProbe"]["httpGet"];
        let port = list(&container["ports"]).find(|port| port["name"] == probe["port"]).unwrap();
        let port = ports[&u16::try_from(port["containerPort"].as_u64().unwrap()).unwrap()];
        let ready = (port, text(&probe["path"]).to_owned());
        Pod { process: Process::spawn(self.dir, name, &mut command).unwrap(), ports, ready }
    }

    /// Returns the files of every pod: the credentials for its own API server.
    async fn own(&self, account: &str) -> Files {
        let files = [
            ("token", token(self.plane, account, None).await),
            ("ca.crt", self.authority()),
            ("namespace", NS.to_owned()),
        ];
        files.into_iter().map(|(name, content)| (format!("{OWN}/{name}"), content)).collect()
    }

    fn authority(&self) -> String {
        fs::read_to_string(self.dir.join("ca.crt")).unwrap()
    }

    /// Writes a kubeconfig for the pod's own API server. A pod would use the variables of its cluster's Service and fixed paths,
    /// which cannot have a prefix here.
    fn kubeconfig(&self, root: &Path) -> PathBuf {
        let own = within(root, OWN);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "own",
            "clusters": [{ "name": "own", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.plane.port()), "certificate-authority": own.join("ca.crt"),
            } }],
            "users": [{ "name": "own", "user": { "tokenFile": own.join("token") } }],
            "contexts": [{ "name": "own", "context": { "cluster": "own", "user": "own" } }],
        });
        let file = root.join("own.kubeconfig");
        fs::write(&file, config.to_string()).unwrap();
        file
    }

    /// Returns the files of a volume, by name.
    async fn volume(&self, client: &Client, volume: &Value, account: &str) -> Files {
        if volume["csi"]["driver"] == "csi.cert-manager.io" {
            let read = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap();
            return [("tls.crt", "server.crt"), ("tls.key", "server.key")]
                .map(|(to, from)| (to.into(), read(from)))
                .into();
        }
        let mut files = Files::new();
        let sources = list(&volume["projected"]["sources"]).chain((!volume["projected"].is_object()).then_some(volume));
        for source in sources {
            if let Some(wanted) = source.get("serviceAccountToken") {
                let token = token(self.issuer, account, wanted["audience"].as_str()).await;
                files.insert(text(&wanted["path"]).to_owned(), token);
                continue;
            }
            let (plural, of) = if source["secret"].is_object() {
                ("secrets", &source["secret"])
            } else {
                (
                    "configmaps",
                    source.get("configMap").unwrap_or_else(|| panic!("{source} is not known to this kubelet")),
                )
            };
            let name = of["name"].as_str().or(of["secretName"].as_str()).unwrap();
            let Some(object) = read(client, &format!("/api/v1/namespaces/{NS}/{plural}/{name}")).await else {
                assert_eq!(of["optional"], true, "{plural} {name} is not there");
                continue;
            };
            for (key, value) in object["data"].as_object().into_iter().flatten() {
                let decoded = || String::from_utf8(STANDARD.decode(text(value)).unwrap()).unwrap();
                // A volume has all keys, or the named ones, each under its own file name.
                let named = list(&of["items"]).find(|item| item["key"] == **key).map(|item| text(&item["path"]));
                let Some(file) = named.or(of["items"].is_null().then_some(key.as_str())) else { continue };
                files.insert(file.to_owned(), if plural == "secrets" { decoded() } else { text(value).to_owned() });
            }
            for item in list(&of["items"]) {
                assert!(files.contains_key(text(&item["path"])), "{plural} {name} has no {}", item["key"]);
            }
        }
        files
    }

    /// Translates a text of the pod for this machine.
    fn here(&self, text: &str, root: &Path, folders: &[String], ports: &BTreeMap<u16, u16>) -> String {
        let mut text = text.to_owned();
        for (name, address) in &self.addresses {
            text = text.replace(name, address);
        }
        for (number, port) in ports {
            text = text.replace(&format!("\":{number}\""), &format!("\":{port}\""));
            text = text.replace(&format!("port: {number}\n"), &format!("port: {port}\n"));
            if let Some(before) = text.strip_suffix(&format!(":{number}"))
                && (before.is_empty() || before.ends_with('='))
            {
                text = format!("{before}:{port}");
            }
        }
        prefixed(&text, root, folders)
    }
}

impl Pod {
    async fn wait_ready(&mut self) {
        let (port, path) = self.ready.clone();
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "{} is not ready: {}", self.process.name(), self.process.tail());
            if let Some(code) = self.process.exit_code() {
                panic!("{} ended with {code}: {}", self.process.name(), self.process.tail());
            }
            let looked = tokio::time::timeout(Duration::from_millis(200), probe(port, &path)).await;
            if matches!(looked, Ok(Some(200))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns the place of a pod's path on this machine.
fn within(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Returns `text` with `root` before each path in one of these folders.
fn prefixed(text: &str, root: &Path, folders: &[String]) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        result += before;
        let begins = !result.ends_with(|c: char| c.is_ascii_alphanumeric() || "./-_".contains(c));
        let ends = |folder: &String| {
            path.strip_prefix(&**folder)
                .is_some_and(|more| !more.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
        };
        if begins && folders.iter().any(ends) {
            result += root.to_str().unwrap();
        }
        result.push('/');
        rest = &path[1..];
    }
    result + rest
}

/// Returns the flags with their variables resolved, and the variables.
fn given(container: &Value) -> (Vec<String>, BTreeMap<String, String>) {
    let value = |variable: &Value| {
        (text(&variable["name"]).to_owned(), variable["value"].as_str().unwrap_or_default().to_owned())
    };
    let variables: BTreeMap<String, String> = list(&container["env"]).map(value).collect();
    let args = list(&container["args"]).map(|arg| {
        let mut arg = text(arg).to_owned();
        for (name, value) in &variables {
            arg = arg.replace(&format!("$({name})"), value);
        }
        arg
    });
    (args.collect(), variables)
}

/// Returns the status code of a request.
async fn probe(port: u16, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

#[test]
fn pod_paths_get_one_prefix() {
    let folders = ["/config".to_owned(), "/etc/milo".to_owned()];
    let text = "--server-config=/config/config.yaml a: /etc/milo/kubeconfig, https://h/config/x /configs \"/etc/milo\"";
    let wanted = "--server-config=/pod/config/config.yaml a: /pod/etc/milo/kubeconfig, https://h/config/x /configs \"/pod/etc/milo\"";
    assert_eq!(prefixed(text, Path::new("/pod"), &folders), wanted);
}
