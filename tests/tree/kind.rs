//! The scripts of `e2e/kind`: shellcheck accepts them, and stand-ins record the order of their steps. The tests need no container
//! engine and touch none.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Parser;
use kubectl_compute::{
    cell,
    flags::{Command as Subcommand, Flags},
};

use super::{executable, root, skipping::skipped};

/// Stand-in for a program that the scripts start. It records its arguments (for `kubectl apply` also the input, and for
/// `kubectl compute` the kubeconfigs and whether its folder is on the PATH) and answers what the scripts need to continue. It fails
/// at call number `FAIL_AT`, and at each call that contains `FAIL_ON`. `EXISTING` are clusters that exist, `MEMBER` is a Cluster that
/// has joined Karmada, and `PASSED` is the number of suites that chainsaw runs each time.
const STAND_IN: &str = r#"#!/usr/bin/env bash
name=$(basename "$0")
said=$(printf '%s ' "$name" "$@")
case "$said" in 'openssl '*) for file in "$@"; do case $file in *.crt | *.key) echo "made by $name" > "$file" ;; esac; done ;; esac
case "$said" in *'--filename - ') given=$(cat); said+="<< $(printf %s "$given" | tr '\n' ' ')" ;; esac
case "$said" in 'kubectl compute '*) said+="<< $KUBECONFIG, ${PATH%%:*}" ;; esac
case "$said" in 'docker build '*) said+="<< ${BUILDX_BUILDER-none}, ${BUILDX_NO_DEFAULT_ATTESTATIONS-}" ;; esac
printf '%s\n' "$said" >> "$CALLS"
[ "$(wc -l < "$CALLS")" != "${FAIL_AT:-0}" ] || exit 7
case "$said" in *"${FAIL_ON:-nothing that is called}"*) exit 7 ;; esac
case "$said" in
  'kubectl version '*) printf '{\n  "clientVersion": {\n    "gitVersion": "%s"\n  }\n}\n' "${KUBECTL:-v1.36.3}" ;;
  'kind get clusters '*) printf %s "${EXISTING-}" ;;
  'chainsaw '*) printf 'Tests Summary...\n- Passed  tests %s\n- Failed  tests 0\n' "${PASSED-1}" ;;
  *"get cluster ${MEMBER-none} "*) echo "cluster.cluster.karmada.io/$MEMBER" ;;
  *'inspect --format'*compute-control-plane-control-plane*) echo 172.18.0.2 ;;
  *'inspect --format'*dfw*) echo 172.18.0.3 ;;
  *'inspect --format'*ord*) echo 172.18.0.4 ;;
  *'{.data.kubeconfig}'*) printf 'kind: Config' | base64 ;;
  *'{.clusters[0].name}'*) echo karmada-apiserver ;;
  *'certificate-authority-data}'*) echo QVVUSE9SSVRZ ;;
  *'create token compute-manager'*) echo token-of-management ;;
  *'create token compute-quota'*) echo token-of-quota ;;
  *'config current-context '*) echo context-of-the-hub ;;
  *'{.data.tls\.crt}'*) echo QVVUSE9SSVRZ ;;
  *'kustomize config/base/webhook'*) printf 'clientConfig:\n  service: compute-webhook' ;;
  *'kustomize e2e/kind/overlays/'*) echo "Manager of name-of-cell: ${said##*/}" ;;
esac
"#;

/// A copy of the scripts with stand-ins, in a temporary folder.
struct Stage(PathBuf);

/// Scripts and files of `e2e/kind` that a stage has.
const SCRIPTS: [&str; 7] = ["settings.sh", "up", "run", "down", "logs", "tools", "project-in-cell.yaml"];

impl Stage {
    fn new() -> Self {
        Self::at(&format!("kind-{:016x}", fastrand::u64(..)))
    }

    /// A stage in a temporary folder of this name.
    fn at(name: &str) -> Self {
        let stage = Self(std::env::temp_dir().join(name));
        let (bin, kind) = (stage.0.join("bin"), stage.0.join("e2e/kind"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&kind).unwrap();
        for program in ["docker", "kind", "kubectl", "helm", "karmadactl", "openssl", "chainsaw", "cargo"] {
            executable(&bin.join(program), STAND_IN);
        }
        for script in SCRIPTS {
            executable(&kind.join(script), &fs::read_to_string(root().join("e2e/kind").join(script)).unwrap());
        }
        stage
    }

    /// Runs a script from `/`. The call with number `fail_at` fails, unless that is 0.
    fn run(&self, script: &str, fail_at: usize) -> (Output, Vec<String>) {
        self.run_with(script, &[], &[("FAIL_AT", &fail_at.to_string())])
    }

    /// Runs a script from `/`, with arguments and variables.
    fn run_with(&self, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Output, Vec<String>) {
        let calls = self.0.join("calls");
        fs::write(&calls, "").unwrap();
        let out = Command::new(self.0.join("e2e/kind").join(script))
            .current_dir("/")
            .env("PATH", format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap()))
            .env("CALLS", &calls)
            .args(arguments)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let stage = self.0.display().to_string();
        let calls = fs::read_to_string(calls).unwrap().replace(&stage, "").replace("/tmp/e2e/kubeconfigs/", "");
        (out, calls.lines().map(|line| line.trim_end().to_owned()).collect())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The calls of `up`. Each entry is the beginning of a call and a part of it.
const UP: [(&str, &str); 53] = [
    ("kubectl version --client", ""),
    ("cargo build --locked --release --package kubectl-compute --target-dir target", ""),
    ("kind get clusters", ""),
    ("kind create cluster --name compute-control-plane ", "--config e2e/kind/control-plane.yaml"),
    ("kind create cluster --name compute-pop-dfw ", "--kubeconfig pop-dfw.yaml"),
    ("kind create cluster --name compute-pop-ord ", "--kubeconfig pop-ord.yaml"),
    ("docker build --tag compute-operator:e2e", "<< none, 1"),
    ("kind load docker-image compute-operator:e2e --name compute-control-plane", ""),
    ("kind load docker-image compute-operator:e2e --name compute-pop-dfw", ""),
    ("kind load docker-image compute-operator:e2e --name compute-pop-ord", ""),
    ("docker inspect ", "compute-control-plane-control-plane"),
    ("helm upgrade --install karmada ", "--values e2e/kind/karmada-values.yaml --set certs.auto.hosts[6]=172.18.0.2"),
    ("kubectl --kubeconfig control-plane.yaml ", "get secret karmada-kubeconfig"),
    ("kubectl --kubeconfig karmada.yaml config view ", ""),
    ("kubectl --kubeconfig karmada.yaml config set-cluster karmada-apiserver ", "--server=https://127.0.0.1:32443"),
    ("kubectl --kubeconfig karmada.yaml wait --for=condition=Available apiservice/v1alpha1.cluster.karmada.io", ""),
    ("kubectl --kubeconfig karmada.yaml get cluster pop-dfw --ignore-not-found", ""),
    ("karmadactl join pop-dfw ", "--kubeconfig karmada.yaml --cluster-kubeconfig pop-dfw.yaml"),
    ("docker inspect ", "compute-pop-dfw-control-plane"),
    ("kubectl --kubeconfig karmada.yaml patch cluster pop-dfw ", "https://172.18.0.3:6443"),
    ("kubectl --kubeconfig karmada.yaml get cluster pop-ord --ignore-not-found", ""),
    ("karmadactl join pop-ord ", "--kubeconfig karmada.yaml --cluster-kubeconfig pop-ord.yaml"),
    ("docker inspect ", "compute-pop-ord-control-plane"),
    ("kubectl --kubeconfig karmada.yaml patch cluster pop-ord ", "https://172.18.0.4:6443"),
    ("kubectl --kubeconfig karmada.yaml wait --for=condition=Ready cluster/pop-dfw", ""),
    ("kubectl --kubeconfig karmada.yaml wait --for=condition=Ready cluster/pop-ord", ""),
    ("kubectl --kubeconfig control-plane.yaml apply ", "--filename e2e/testbed/crds/neighbours.yaml"),
    ("kubectl --kubeconfig pop-dfw.yaml apply ", "--filename e2e/testbed/crds/neighbours.yaml"),
    ("kubectl --kubeconfig pop-ord.yaml apply ", "--filename e2e/testbed/crds/neighbours.yaml"),
    ("kubectl --kubeconfig karmada.yaml apply ", "--kustomize config/overlays/hub"),
    ("kubectl --kubeconfig karmada.yaml config view --raw ", ""),
    ("kubectl --kubeconfig karmada.yaml ", "create token compute-manager --duration=720h"),
    ("kubectl --kubeconfig control-plane.yaml apply ", "--filename config/base/manager/namespace.yaml"),
    // base64 of `token-of-management`.
    (
        "kubectl --kubeconfig control-plane.yaml apply ",
        "name: compute-hub-credentials   namespace: compute-system data:   ca.crt: QVVUSE9SSVRZ   token: dG9rZW4tb2YtbWFuYWdlbWVudA==",
    ),
    ("kubectl --kubeconfig karmada.yaml config current-context", ""),
    ("kubectl compute cell join pop-dfw --city dfw ", "--hub-server https://172.18.0.2:32443"),
    ("kubectl compute cell join pop-ord --city ord ", "--hub-server https://172.18.0.2:32443"),
    ("openssl req -x509 ", "DNS:compute-webhook.compute-system.svc -keyout webhook.key -out webhook.crt"),
    // base64 of `made by openssl`.
    (
        "kubectl --kubeconfig control-plane.yaml apply ",
        "tls.crt: bWFkZSBieSBvcGVuc3NsCg==   tls.key: bWFkZSBieSBvcGVuc3NsCg==",
    ),
    ("kubectl --kubeconfig control-plane.yaml apply ", "--kustomize e2e/kind/overlays/management"),
    ("kubectl --kubeconfig pop-dfw.yaml apply ", "--kustomize e2e/kind/overlays/cell"),
    ("kubectl --kubeconfig pop-ord.yaml apply ", "--kustomize e2e/kind/overlays/cell"),
    ("kubectl --kubeconfig control-plane.yaml ", "rollout status deployment/compute-manager"),
    ("kubectl --kubeconfig pop-dfw.yaml ", "rollout status deployment/compute-manager"),
    ("kubectl --kubeconfig pop-ord.yaml ", "rollout status deployment/compute-manager"),
    ("kubectl --kubeconfig control-plane.yaml config view --raw ", ""),
    ("kubectl --kubeconfig control-plane.yaml ", "create token compute-quota --duration=720h"),
    ("kubectl --kubeconfig pop-dfw.yaml apply ", QUOTA),
    ("kubectl --kubeconfig pop-dfw.yaml apply ", "addresses: [172.18.0.2]"),
    ("kubectl --kubeconfig pop-dfw.yaml apply ", "topology.datum.net/city-code: dfw"),
    ("kubectl --kubeconfig pop-ord.yaml apply ", QUOTA),
    ("kubectl --kubeconfig pop-ord.yaml apply ", "addresses: [172.18.0.2]"),
    ("kubectl --kubeconfig pop-ord.yaml apply ", "topology.datum.net/city-code: ord"),
];

/// Beginning of the Secret with which a cell claims quota.
const QUOTA: &str = "name: compute-quota-credentials   namespace: compute-system data:   kubeconfig: ";

#[test]
fn kind_up_runs_its_steps_in_order() {
    let stage = Stage::new();
    let logs = stage.0.join("tmp/e2e/logs");
    fs::create_dir_all(&logs).unwrap();
    let (out, calls) = stage.run_with("up", &[], &[("BUILDX_BUILDER", "container")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!logs.exists(), "logs of an earlier run");
    for (nth, call) in calls.iter().enumerate() {
        let (begins, holds) = UP.get(nth).unwrap_or_else(|| panic!("one more: {call}"));
        assert!(call.starts_with(begins) && call.contains(holds), "step {nth}: {call}\nis not {begins}…{holds}");
    }
    assert_eq!(calls.len(), UP.len());
    is_there(&calls);
    // Only the owner may read the credentials. No argument contains them, because every user of the machine can list arguments.
    let kubeconfigs = stage.0.join("tmp/e2e/kubeconfigs");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(kubeconfigs.clone()), mode(kubeconfigs.join("karmada.yaml"))), (0o700, 0o600));
    for call in &calls {
        let arguments = call.split(" << ").next().unwrap();
        assert!(["token-of-", "dG9rZW4t", "bWFkZSBi"].iter().all(|secret| !arguments.contains(secret)), "{call}");
        assert!(!arguments.contains(QUOTA), "{call}");
    }
    joins_its_cells(&calls);
    // A cell claims quota as a separate user. The server is verified by a name that kind gives it.
    let kubeconfig = calls.iter().find_map(|call| call.split_once(QUOTA)).unwrap().1;
    let kubeconfig = String::from_utf8(STANDARD.decode(kubeconfig).unwrap()).unwrap();
    for said in [
        "server: \"https://172.18.0.2:6443\"",
        "certificate-authority-data: \"QVVUSE9SSVRZ\"",
        "tls-server-name: kubernetes.default.svc\n",
        "token: \"token-of-quota\"",
    ] {
        assert!(kubeconfig.contains(said), "{kubeconfig}");
    }
}

/// Asserts that the real command accepts the arguments with which each cell joins, and finds its contexts in the kubeconfigs.
fn joins_its_cells(calls: &[String]) {
    let joins = calls.iter().filter_map(|call| call.strip_prefix("kubectl compute "));
    let joined: Vec<String> = joins
        .map(|call| {
            let (arguments, given) = call.split_once(" << ").unwrap();
            let arguments = ["kubectl-compute"].into_iter().chain(arguments.split_whitespace());
            let flags = Flags::try_parse_from(arguments).unwrap_or_else(|error| panic!("{call}: {error}"));
            let Subcommand::Cell(cell::Args { verb: cell::Verb::Join(join) }) = flags.command else { panic!("{call}") };
            assert_eq!(flags.global.hub_context.as_deref(), Some("context-of-the-hub"), "{call}");
            assert_eq!(join.hub_server.as_deref(), Some("https://172.18.0.2:32443"), "{call}");
            assert!(!join.dry_run && !join.trust_issuer, "{call}");
            let (name, city) = (&join.name, &join.city);
            assert_eq!(flags.global.cell_contexts, [(name.clone(), format!("kind-compute-{name}"))], "{call}");
            let files = format!("control-plane.yaml:karmada.yaml:{name}.yaml, /target/release");
            assert_eq!(given, files, "the kubeconfigs, and the folder of the plugin");
            assert!(calls.iter().any(|call| call.starts_with(&format!("kind create cluster --name compute-{name} "))));
            format!("{name} {city}")
        })
        .collect();
    assert_eq!(joined, ["pop-dfw dfw", "pop-ord ord"]);
}

/// Asserts that every path of this tree in the calls exists.
fn is_there(calls: &[String]) {
    let words = calls.iter().flat_map(|call| call.split(' '));
    for word in words.filter(|word| word.starts_with("e2e/") || word.starts_with("config/")) {
        assert!(root().join(word).exists(), "{word} does not exist");
    }
}

#[test]
fn kind_up_failing_step_ends_the_script() {
    let stage = Stage::new();
    for fail_at in 1..=UP.len() {
        let (out, calls) = stage.run("up", fail_at);
        assert!(!out.status.success(), "step {fail_at} fails, and the script succeeds: {}", calls[fail_at - 1]);
        assert_eq!(calls.len(), fail_at, "it continues after {}", calls[fail_at - 1]);
    }
}

#[test]
fn kind_up_missing_program_is_named_before_the_first_step() {
    let stage = Stage::new();
    fs::remove_file(stage.0.join("bin/karmadactl")).unwrap();
    let (out, calls) = stage.run("up", 0);
    assert_eq!(out.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&out.stderr).contains("missing: karmadactl"));
    assert!(calls.is_empty(), "{calls:?}");
}

/// Karmada refuses a member that has joined, and kind refuses a cluster that exists.
#[test]
fn kind_up_repeated_keeps_existing_clusters_and_members() {
    let existing = [("EXISTING", "compute-control-plane\ncompute-pop-dfw\n"), ("MEMBER", "pop-dfw")];
    let (out, calls) = Stage::new().run_with("up", &[], &existing);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let with = |begins: &str| -> Vec<&str> { calls.iter().filter_map(|call| call.strip_prefix(begins)).collect() };
    assert_eq!(
        with("kind export kubeconfig --name "),
        ["compute-control-plane --kubeconfig control-plane.yaml", "compute-pop-dfw --kubeconfig pop-dfw.yaml"]
    );
    let created = with("kind create cluster --name ");
    assert!(created.len() == 1 && created[0].starts_with("compute-pop-ord "), "{created:?}");
    let joined = with("karmadactl join ");
    assert!(joined.len() == 1 && joined[0].starts_with("pop-ord "), "{joined:?}");
    assert_eq!(calls.len(), UP.len() - 1, "every other step is repeated");
}

#[test]
fn kind_scripts_refuse_an_old_kubectl_and_an_unreadable_path() {
    let stage = Stage::new();
    for (version, code) in [("v1.30.14", 3), ("v1.9.0", 3), ("unknown", 3), ("v1.31.0", 0), ("v2.0.1-eks", 0)] {
        for script in ["up", "run"] {
            let (out, calls) = stage.run_with(script, &[], &[("KUBECTL", version)]);
            assert_eq!(out.status.code(), Some(code), "{script} {version}: {calls:#?}");
            assert_eq!(calls.len() == 1, code == 3, "{script} {version}: {calls:#?}");
        }
    }
    for name in ["kind=of", "kind:of"] {
        let (out, calls) = Stage::at(&format!("{name}-{:016x}", fastrand::u64(..))).run("down", 0);
        assert_eq!((out.status.code(), calls), (Some(3), vec![]));
        assert!(String::from_utf8_lossy(&out.stderr).contains("contains = or :"));
    }
}

/// `--set certs.auto.hosts[N]` adds a host only if N is the number of hosts in the file. A smaller N replaces one.
#[test]
fn karmada_values_keep_every_host_and_the_job_that_helm_waits_for() {
    let text = fs::read_to_string(root().join("e2e/kind/karmada-values.yaml")).unwrap();
    let [values] = &testbed::manifests::documents(&text).unwrap()[..] else { panic!("one document") };
    let hosts = values["certs"]["auto"]["hosts"].as_array().unwrap().len();
    let up = fs::read_to_string(root().join("e2e/kind/up")).unwrap();
    assert!(up.contains(&format!("--set \"certs.auto.hosts[{hosts}]=")), "{hosts} hosts are in the file");
    let kept = values["staticResourceJob"]["ttlSecondsAfterFinished"].as_u64().unwrap();
    let (_, waits) = up.split_once("--wait --timeout ").unwrap();
    let minutes: u64 = waits.split('m').next().unwrap().parse().unwrap();
    assert!(kept > minutes * 60, "the Job is removed after {kept} s, and helm waits {minutes} minutes");
}

/// Returns the calls with which `run` switches the cells to an overlay.
fn cells_are_brought_to(overlay: &str) -> Vec<String> {
    let to = |city: &str, call: &str| format!("kubectl --kubeconfig pop-{city}.yaml {call}");
    let manager = |verb: &str| format!("--namespace compute-system rollout {verb} deployment/compute-manager");
    let brought = ["dfw", "ord"].into_iter().flat_map(|city| {
        [
            to(city, &format!("kustomize e2e/kind/overlays/{overlay}")),
            to(city, &format!("apply --server-side --filename - << Manager of {city}: {overlay}")),
            to(city, &manager("restart")),
        ]
    });
    brought.chain(["dfw", "ord"].map(|city| to(city, &format!("{} --timeout=3m", manager("status"))))).collect()
}

/// Returns the calls of `run`, each by its beginning.
fn of_run() -> Vec<String> {
    let clusters = "--config e2e/chainsaw-config.yaml --parallel 1 --cluster=downstream=karmada.yaml \
                    --cluster=pop-dfw=pop-dfw.yaml --cluster=pop-ord=pop-ord.yaml";
    let project = "kubectl --kubeconfig control-plane.yaml";
    let suite = |name: &str| vec![format!("chainsaw test e2e/suites/{name} {clusters}")];
    [
        vec!["kubectl version --client".to_owned()],
        vec![format!("chainsaw test e2e/suites --selector=environment!=gated {clusters}")],
        cells_are_brought_to("cell-quota"),
        suite("quota"),
        cells_are_brought_to("cell-networks"),
        suite("networks"),
        cells_are_brought_to("cell"),
        vec![
            format!("{project} apply --server-side --filename - << "),
            format!("{project} apply --server-side --filename - << "),
            format!("{project} --namespace compute-system get secret compute-webhook-cert "),
            format!("{project} kustomize config/base/webhook"),
            format!("{project} apply --server-side --filename - << clientConfig:"),
        ],
        suite("admission"),
        vec![ENDS.to_owned()],
    ]
    .concat()
}

/// The call that removes the webhook configuration.
const ENDS: &str = "kubectl --kubeconfig control-plane.yaml delete validatingwebhookconfiguration compute-validating";

#[test]
fn kind_run_executes_its_steps_in_order() {
    let stage = Stage::new();
    let logs = stage.0.join("tmp/e2e/logs");
    fs::create_dir_all(&logs).unwrap();
    let (out, calls) = stage.run("run", 0);
    assert!(out.status.success(), "{calls:?}");
    assert!(!logs.exists(), "logs of an earlier run");
    let expected = of_run();
    for (call, begins) in calls.iter().zip(&expected) {
        assert!(call.starts_with(begins), "{call}\nis not {begins}");
    }
    assert_eq!(calls.len(), expected.len(), "{calls:#?}");
    is_there(&calls);
    let bound: Vec<&String> = calls.iter().filter(|call| call.contains("kind: LocationBinding")).collect();
    assert!(bound[0].contains("name: dfw") && bound[1].contains("name: ord"), "{bound:#?}");
    let asked = calls.iter().find(|call| call.contains("<< clientConfig:")).unwrap();
    assert!(asked.ends_with("<< clientConfig:     caBundle: QVVUSE9SSVRZ   service: compute-webhook"), "{asked}");
}

/// Returns the overlay that a cell has at the end. `None` if the script did not restart its manager and wait for it afterwards.
fn overlay_of<'a>(city: &str, calls: &'a [String]) -> Option<&'a str> {
    let to = format!("kubectl --kubeconfig pop-{city}.yaml ");
    let changes = |call: &&str| ["apply ", "rollout "].iter().any(|verb| call.contains(verb));
    let mut of_city = calls.iter().filter_map(|call| call.strip_prefix(&to)).filter(changes).rev();
    assert!(of_city.next()?.contains("rollout status"), "{city}: {calls:#?}");
    assert!(of_city.next()?.contains("rollout restart"), "{city}: {calls:#?}");
    Some(of_city.next()?.split_once(&format!("<< Manager of {city}: ")).unwrap().1)
}

#[test]
fn kind_run_failing_step_restores_the_cells() {
    let (stage, steps) = (Stage::new(), of_run());
    let asked = steps.iter().position(|step| step.contains("<< clientConfig:")).unwrap() + 1;
    for fail_at in 3..=steps.len() {
        let (out, calls) = stage.run("run", fail_at);
        assert!(!out.status.success(), "step {fail_at} fails, and the script succeeds: {calls:#?}");
        assert_eq!(calls.iter().any(|call| call.starts_with(ENDS)), fail_at >= asked, "{fail_at}: {calls:#?}");
        for city in ["dfw", "ord"] {
            assert_eq!(overlay_of(city, &calls), Some("cell"), "{fail_at}: {calls:#?}");
        }
    }
    // If a suite fails, the script collects the logs before it switches the cells back.
    for suite in ["quota", "networks"] {
        let fails = format!("chainsaw test e2e/suites/{suite} ");
        let (out, calls) = stage.run_with("run", &[], &[("FAIL_ON", &fails)]);
        assert_eq!(out.status.code(), Some(1));
        let place = |part: &str| calls.iter().rposition(|call| call.contains(part)).unwrap();
        assert!(place(&fails) < place("logs deployment/compute-manager"), "{calls:#?}");
        assert!(place("logs deployment/compute-manager") < place("kustomize e2e/kind/overlays/cell"), "{calls:#?}");
        assert!(!calls.iter().any(|call| call.contains("e2e/suites/admission")), "{calls:#?}");
    }
    // If one cell cannot be switched back, the other one still is.
    let (out, calls) = stage.run_with("run", &[], &[("FAIL_ON", "pop-dfw.yaml apply ")]);
    assert!(!out.status.success());
    assert_eq!(overlay_of("ord", &calls), Some("cell"), "{calls:#?}");
}

#[test]
fn kind_run_failing_suite_dumps_state_and_down_deletes_all() {
    let stage = Stage::new();
    let (out, calls) = stage.run("run", 2);
    assert_eq!(out.status.code(), Some(1));
    for plane in ["control-plane", "karmada", "pop-dfw", "pop-ord"] {
        assert!(
            calls.iter().any(|call| call.starts_with(&format!("kubectl --kubeconfig {plane}.yaml get "))),
            "{plane}"
        );
    }
    // The dump leaves out the content of Secrets: it shows whole objects of other kinds only.
    for call in calls.iter().filter(|call| call.contains("--output yaml")) {
        assert!(!call.contains("secrets") && !call.contains(" all "), "{call}");
    }
    // Works contain copies of Secrets for the cells.
    assert!(calls.iter().all(|call| !call.contains("works") || !call.contains("--output yaml")), "{calls:#?}");
    for fail_at in [0, 1] {
        let (out, calls) = stage.run("down", fail_at);
        assert_eq!(out.status.success(), fail_at == 0);
        let deleted: Vec<&str> =
            calls.iter().filter_map(|call| call.strip_prefix("kind delete cluster --name ")).collect();
        assert_eq!(deleted, ["compute-pop-dfw", "compute-pop-ord", "compute-control-plane"]);
        assert!(!stage.0.join("tmp/e2e/kubeconfigs").exists());
    }
}

/// chainsaw ends with 0 if it finds no suite, as for a folder that was renamed.
#[test]
fn kind_run_without_a_suite_fails() {
    let stage = Stage::new();
    let (out, calls) = stage.run_with("run", &[], &[("PASSED", "0")]);
    assert_eq!((out.status.code(), calls.len()), (Some(1), 2), "{calls:#?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("chainsaw ran no suite of: e2e/suites"));
    // Arguments may select a suite of one call alone. A selection of no suite in any call is an error.
    let (out, calls) = stage.run_with("run", &["--include-test-regex", "typo"], &[("PASSED", "0")]);
    assert_eq!((out.status.code(), calls.len()), (Some(1), of_run().len()), "{calls:#?}");
    assert!(calls.iter().filter(|call| call.ends_with(" --include-test-regex typo")).count() == 4, "{calls:#?}");
    let (out, _) = stage.run_with("run", &["--include-test-regex", "quota"], &[("PASSED", "1")]);
    assert!(out.status.success());
    // The reader shows what chainsaw prints.
    assert!(String::from_utf8_lossy(&out.stderr).contains("- Passed  tests 1"));
}

#[test]
fn kind_logs_exports_existing_clusters_only() {
    let stage = Stage::new();
    let existing =
        [("EXISTING", "compute-pop-ord\ncompute-control-plane\nother\n"), ("FAIL_ON", "control-plane --name")];
    let (out, calls) = stage.run_with("logs", &[], &existing);
    assert!(!out.status.success());
    assert_eq!(calls[0], "kind get clusters");
    assert_eq!(
        calls[1..],
        [
            "kind export logs /tmp/e2e/logs/kind/compute-control-plane --name compute-control-plane",
            "kind export logs /tmp/e2e/logs/kind/compute-pop-ord --name compute-pop-ord",
        ]
    );
}

/// A stand-in for curl. It serves the files in `SERVED`, and their checksums. The checksum of the file `WRONG` is wrong.
const CURL: &str = r#"#!/usr/bin/env bash
url=${*: -1}
printf 'curl %s\n' "$url" >> "$CALLS"
file=${url##*/}
while [ $# -gt 1 ]; do
  if [ "$1" = --output ]; then cp "$SERVED/$file" "$2"; exit; fi
  shift
done
file=${file%.sha256*}
if [ "$file" = "${WRONG-}" ]; then printf '%064d' 0; else (cd "$SERVED" && sha256sum "$file"); fi
"#;

#[test]
fn kind_tools_are_installed_after_their_checksums_are_compared() {
    let stage = Stage::new();
    executable(&stage.0.join("bin/curl"), CURL);
    let served = stage.0.join("served");
    let settings = fs::read_to_string(root().join("e2e/kind/settings.sh")).unwrap();
    let pinned = |name: &str| settings.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap();
    let (kind, helm, karmada) = (pinned("KIND_VERSION"), pinned("HELM_VERSION"), pinned("KARMADA_VERSION"));
    let script = format!(
        "mkdir -p '{0}' && cd '{0}' && touch LICENSE karmadactl
         for arch in amd64 arm64; do
           echo kind > kind-linux-$arch && mkdir -p linux-$arch && touch linux-$arch/helm linux-$arch/README.md
           tar -czf karmadactl-linux-$arch.tgz LICENSE karmadactl && tar -czf helm-{helm}-linux-$arch.tar.gz linux-$arch
         done",
        served.display()
    );
    assert!(Command::new("sh").args(["-ec", &script]).status().unwrap().success());
    let served = ("SERVED", served.to_str().unwrap());
    let installed = || {
        let found = ["kind", "karmadactl", "helm", "README.md"].into_iter();
        found.filter(|name| stage.0.join("target/tools/bin").join(name).exists()).collect::<Vec<_>>()
    };
    let arch = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let archive = format!("karmadactl-linux-{arch}.tgz");
    let (out, _) = stage.run_with("tools", &[], &[served, ("WRONG", &archive)]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains(&format!("{archive} does not have the published checksum")), "{said}");
    assert_eq!((out.status.code(), installed()), (Some(1), vec!["kind"]));
    let (out, calls) = stage.run_with("tools", &[], &[served]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(installed(), ["kind", "karmadactl", "helm"]);
    let github = "curl https://github.com";
    let addresses = [
        (format!("{github}/kubernetes-sigs/kind/releases/download/{kind}/kind-linux-{arch}"), ".sha256sum"),
        (format!("{github}/karmada-io/karmada/releases/download/{karmada}/karmadactl-linux-{arch}.tgz"), ".sha256"),
        (format!("curl https://get.helm.sh/helm-{helm}-linux-{arch}.tar.gz"), ".sha256sum"),
    ];
    let expected = addresses.iter().flat_map(|(address, ending)| [address.clone(), format!("{address}{ending}")]);
    assert_eq!(calls, expected.collect::<Vec<_>>());
}

/// Returns every shell script of these folders, from the root of the tree.
pub fn scripts() -> Vec<String> {
    let mut found = vec!["e2e/manager".to_owned()];
    for folder in [".ci", "e2e/kind", "release"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let is_script = path.is_file() && {
                let text = fs::read_to_string(&path).unwrap();
                text.starts_with("#!/usr/bin/env bash\n") || text.starts_with("# shellcheck shell=bash\n")
            };
            if is_script {
                found.push(path.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn scripts_pass_shellcheck() {
    let program = std::env::var_os("SHELLCHECK").map_or_else(|| PathBuf::from("shellcheck"), PathBuf::from);
    if !Command::new(&program).arg("--version").output().is_ok_and(|out| out.status.success()) {
        skipped("shellcheck is not on the PATH and not in SHELLCHECK; .ci/tools installs it");
        return;
    }
    let scripts = scripts();
    assert!(scripts.len() > 8, "{scripts:?}");
    let out = Command::new(program).arg("--external-sources").args(scripts).current_dir(root()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}
