//! The value of a Secret appears in no log, Event, status or metric, even at the most verbose level. After the copy, no operator
//! has it in memory.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    delete, eventually,
    example_app::using,
    get, list, ready,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

/// Enables every log line of the process.
const ALL: &str = "--zap-log-level=trace,compute_operator=trace,kube=trace,kube_client=trace,hyper=trace,hyper_util=trace,rustls=trace,tower=trace";

/// Returns the writable memory regions of a process that contain one of these texts.
fn found_in_memory(pid: u32, texts: &[Vec<u8>]) -> Vec<String> {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).unwrap());
    let mut found = Vec::new();
    for line in maps.lines().map(Result::unwrap) {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap(), fields.next().unwrap());
        if !rights.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        let read = memory.read_at(&mut bytes, from).unwrap_or(0);
        bytes.truncate(read);
        for text in texts {
            if memchr::memmem::find(&bytes, text).is_some() {
                found.push(format!("{} in {line}", String::from_utf8_lossy(text)));
            }
        }
    }
    found
}

async fn everything(client: &Client, namespace: &str, kinds: &[&str]) -> String {
    let mut text = String::new();
    for kind in kinds {
        for object in list(client, kind, namespace).await {
            text += &serde_json::to_string(&object).unwrap();
        }
    }
    text
}

/// Texts that must not appear, plain and in base64.
struct Canaries(Vec<Vec<u8>>);

impl Canaries {
    fn stand_in(&self, text: &[u8]) -> bool {
        self.0.iter().any(|canary| memchr::memmem::find(text, canary).is_some())
    }

    fn hidden(&self, what: &str, text: &str) {
        assert!(!self.stand_in(text.as_bytes()), "{what} shows it");
    }

    /// Asserts that no log, metric or readiness answer of the operators contains one.
    async fn hidden_by_operators(&self, world: &World) {
        for operator in &world.operators {
            self.hidden("a metric", &operator.metrics().await.unwrap());
            self.hidden("/readyz", &operator.probe("/readyz").await.unwrap().1);
        }
        let mut logs = 0;
        for entry in fs::read_dir(world.bed.dir()).unwrap().map(Result::unwrap) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("operator-") && entry.path().is_file() {
                let text = fs::read(entry.path()).unwrap();
                logs += usize::from(memchr::memmem::find(&text, b"TRACE").is_some());
                self.hidden(&name, &String::from_utf8_lossy(&text));
            }
        }
        assert_eq!(logs, 3, "all log at the most verbose level");
    }
}

/// Creates a rule on a cell that refuses Secrets, and quotes a value in its message.
async fn quoting_rule(cell: &Client) {
    let name = "quotes";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"],
            }] },
            "validations": [{
                "expression": "!has(object.data) || !('password' in object.data)",
                "messageExpression": "'too weak: ' + string(object.data['password'])",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    apply(cell, policy).await;
    apply(cell, binding).await;
    let probe = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "default", "name": "probe" },
        "stringData": { "password": "x" },
    });
    eventually("the rule is in force", || async {
        let params = PatchParams { dry_run: true, ..PatchParams::apply("test").force() };
        match api(cell, "Secret", "default").patch("probe", &params, &Patch::Apply(&probe)).await {
            Err(error) if error.to_string().contains("too weak") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Karmada repeats the answer of a cluster, and the operator's conditions, Events and annotations repeated Karmada.
#[test]
fn secret_quoted_by_a_refusing_cell_shows_only_on_karmadas_binding() {
    RUNTIME.block_on(async {
        let world = alone(Wish { flags: vec![ALL.into()], ..Wish::default() }).await;
        let (ns, hub) = world.namespace("quoted").await;
        let canary = format!("canary-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let canaries = Canaries(vec![canary.clone().into_bytes(), STANDARD.encode(&canary).into_bytes()]);
        quoting_rule(&world.dfw).await;
        apply(
            &world.project,
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": ns, "name": "db" },
                "stringData": { "password": canary },
            }),
        )
        .await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        let told = eventually("the refusal by the cell is reported to the tenant", || async {
            let object = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("no deployment")?;
            let text = object.data["status"]["conditions"].to_string();
            if text.contains("the cluster refuses it") { Ok(text) } else { Err(text) }
        })
        .await;
        assert!(told.contains(&format!("ResourceBinding {hub}/db-secret on the hub")), "{told}");
        eventually("its Instance reports it", || async {
            let text = everything(&world.dfw, &hub, &["Instance"]).await;
            if text.contains("the cluster refuses it") { Ok(()) } else { Err(text) }
        })
        .await;
        let bindings = everything(&world.hub, &hub, &["ResourceBinding"]).await;
        assert!(canaries.stand_in(bindings.as_bytes()), "Karmada repeats it, on the binding: {bindings}");
        let kinds = ["Event", "Workload", "WorkloadDeployment", "Instance", "ConfigMap"];
        canaries.hidden("the project", &everything(&world.project, &ns, &kinds).await);
        canaries
            .hidden("the hub", &everything(&world.hub, &hub, &["WorkloadDeployment", "Instance", "ConfigMap"]).await);
        canaries.hidden("the cell", &everything(&world.dfw, &hub, &["Event", "WorkloadDeployment", "Instance"]).await);
        let ours = |event: &DynamicObject| {
            let by = event.data["reportingController"].as_str().unwrap_or_default();
            by.contains("compute") || by.contains("datumapis")
        };
        for event in list(&world.hub, "Event", &hub).await.iter().filter(|event| ours(event)) {
            canaries.hidden("an Event on the hub", &serde_json::to_string(event).unwrap());
        }
        canaries.hidden_by_operators(&world).await;
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            delete(&world.dfw, kind, "", "quotes").await;
        }
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn secret_value_appears_nowhere_after_the_copy() {
    RUNTIME.block_on(async {
        let world = alone(Wish { flags: vec![ALL.into()], ..Wish::default() }).await;
        let (ns, hub) = world.namespace("canary").await;
        // Generated at run time, so that no binary contains the text.
        let canaries = [0, 1].map(|n| format!("canary-{n}-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)));
        let texts: Vec<Vec<u8>> =
            canaries.iter().flat_map(|c| [c.clone().into_bytes(), STANDARD.encode(c).into_bytes()]).collect();
        let secret = |value: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": ns, "name": "db" },
                "stringData": { "password": value },
            })
        };
        apply(&world.project, secret(&canaries[0])).await;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(&world, &ns, "web", 1).await;
        apply(&world.project, secret(&canaries[1])).await;
        let arrived = STANDARD.encode(&canaries[1]);
        eventually("the second value is on the cell", || async {
            let copy = get(&world.dfw, "Secret", &hub, "db").await.ok_or("no copy")?;
            if copy.data["data"]["password"] == json!(arrived) { Ok(()) } else { Err("the old one".to_owned()) }
        })
        .await;
        let pids: Vec<u32> = world.operators.iter().map(|operator| operator.process.pid()).collect();
        eventually("nothing of it is left in memory", || async {
            let found: Vec<String> = pids.iter().flat_map(|pid| found_in_memory(*pid, &texts)).collect();
            if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
        })
        .await;

        let canaries = Canaries(texts);
        let shows = |what: &str, text: &str| canaries.hidden(what, text);
        let kinds = ["Event", "Workload", "WorkloadDeployment", "Instance", "ConfigMap"];
        shows("the project", &everything(&world.project, &ns, &kinds).await);
        let kinds = ["Event", "WorkloadDeployment", "Instance", "PropagationPolicy", "ResourceBinding", "ConfigMap"];
        shows("the hub", &everything(&world.hub, &hub, &kinds).await);
        shows(
            "the cell",
            &everything(&world.dfw, &hub, &["Event", "WorkloadDeployment", "Instance", "ConfigMap"]).await,
        );
        canaries.hidden_by_operators(&world).await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}
