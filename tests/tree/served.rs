//! What a real API server says of our manifests.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use testbed::{
    binaries,
    control_plane::{ControlPlane, Etcd},
    manifests, pki,
    pki::User,
};

use super::{
    manifests::{OPTIONAL, kustomize, overlays, rendered, rendered_with},
    root,
};

/// An API server that knows the kinds of our neighbours, of Karmada, of the Prometheus operator and of cert-manager.
pub struct Server {
    // Dropped in this order.
    pub plane: ControlPlane,
    _etcd: Etcd,
    bin: PathBuf,
    pub dir: PathBuf,
}

impl Server {
    pub async fn start() -> Self {
        let bin = binaries::find_with_kubectl(&|text| eprintln!("testbed: {text}")).unwrap();
        // The testbed clears away what a run leaves behind, by the name of its process.
        let dir = binaries::cache().join(format!("run-{}-tree{:04x}", std::process::id(), fastrand::u16(..)));
        fs::create_dir_all(&dir).unwrap();
        pki::make(&dir, &[]).unwrap();
        let etcd = Etcd::start(&dir, &bin).unwrap();
        let mut plane = ControlPlane::new(&dir, &bin, &etcd.url, "tree").unwrap();
        plane.start_api_server().unwrap();
        plane.wait_ready().await.unwrap();
        let client = plane.client().await.unwrap();
        for file in ["neighbours", "karmada", "monitoring", "milo", "cert-manager"] {
            let text = fs::read_to_string(root().join(format!("e2e/testbed/crds/{file}.yaml"))).unwrap();
            manifests::apply(&client, &text).await.unwrap();
        }
        Self { plane, _etcd: etcd, bin, dir }
    }

    /// Runs kubectl, with `input` on its stdin.
    fn kubectl(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(self.bin.join("kubectl"));
        command
            .arg(format!("--kubeconfig={}", self.plane.kubeconfig(&User::Admin).display()))
            .args(args)
            .current_dir(root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        if out.status.success() { Ok(said) } else { Err(said) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[tokio::test]
async fn an_api_server_takes_the_definitions_and_every_overlay() {
    let server = Server::start().await;
    // As somebody types it who has read the README.
    let said = server.kubectl(&["apply", "-f", "crds/"], "").unwrap();
    assert_eq!(said.lines().filter(|line| line.ends_with(" created")).count(), 3, "{said}");
    let kinds =
        ["workloads", "workloaddeployments", "instances"].map(|kind| format!("crd/{kind}.compute.datumapis.com"));
    let established: Vec<&str> = kinds.iter().map(String::as_str).collect();
    server.kubectl(&[&["wait", "--for=condition=Established"], &established[..]].concat(), "").unwrap();
    for namespace in ["compute-system", "milo-system"] {
        server.kubectl(&["create", "namespace", namespace], "").unwrap();
    }
    let strict = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-"];
    let added =
        OPTIONAL.map(|(component, overlay)| (format!("{overlay} with {component}"), rendered_with(component, overlay)));
    let on_kind = ["management", "cell"].map(|overlay| format!("e2e/kind/overlays/{overlay}"));
    let on_kind = on_kind.map(|dir| (dir.clone(), kustomize(&root().join(dir))));
    let stand = overlays().into_iter().map(|overlay| (overlay.clone(), rendered(&overlay)));
    for (overlay, text) in stand.chain(added).chain(on_kind) {
        let wanted = text.lines().filter(|line| line.starts_with("kind: ")).count();
        let said = server.kubectl(&strict, &text).unwrap_or_else(|why| panic!("{overlay}: {why}"));
        let taken = said.lines().filter(|line| line.ends_with("serverside-applied (server dry run)")).count();
        assert_eq!(taken, wanted, "{overlay}: {said}");
    }
    let sample = fs::read_to_string(root().join("config/samples/workload.yaml")).unwrap();
    server.kubectl(&strict, &sample).unwrap();
    // The check itself notices a misspelt field.
    let wrong = rendered("cell").replace("readOnlyRootFilesystem:", "readOnlyRootFileSystem:");
    let said = server.kubectl(&strict, &wrong).unwrap_err();
    assert!(said.contains("readOnlyRootFileSystem"), "{said}");
}
