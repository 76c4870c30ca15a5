//! `kubectl compute check` and `kubectl compute cell` on real API servers.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::{
    Client, Config,
    api::{DynamicObject, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    delete, get, merge,
    rights::Role,
};

const SECRET: &str = "compute-cell-federation-kubeconfig";
const NS: &str = "compute-system";

/// Runs a command with the contexts of a bed. Returns its exit code and output.
async fn run(world: &World, args: &[&str]) -> (u8, String) {
    let kubeconfig = world.bed.contexts().unwrap().display().to_string();
    let mut all = vec!["kubectl-compute".to_owned(), "--kubeconfig".to_owned(), kubeconfig];
    all.extend(["--hub-context", "hub"].map(str::to_owned));
    for cell in world.bed.cells.values() {
        all.extend(["--cell-context".to_owned(), format!("{0}={0}", cell.name())]);
    }
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    let run = move || {
        let (mut out, mut problems) = (Vec::new(), Vec::new());
        let exit = kubectl_compute::start(all.into_iter().map(Into::into), &mut out, &mut problems);
        (exit.code(), String::from_utf8([out, problems].concat()).unwrap())
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// A Lease of a manager that leads for an hour. The operators of a bed do not elect a leader.
fn lease() -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "e98b06c6.datumapis.com", "namespace": NS },
        "spec": { "holderIdentity": "manager_1", "leaseDurationSeconds": 3600, "renewTime": now },
    })
}

/// A token that ends in so many days. Its signature is invalid.
fn token(user: &str, days: i64) -> String {
    let claims = json!({ "exp": Timestamp::now().as_second() + days * 86400, "sub": user });
    format!("e30.{}.none", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

async fn stored(cell: &Client) -> Option<Kubeconfig> {
    let secret = get(cell, "Secret", NS, SECRET).await?;
    let text = secret.data["data"]["kubeconfig"].as_str().unwrap().to_owned();
    let text = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

/// Lists objects on the hub with the kubeconfig in a cell's Secret. Returns the code of a refusal.
async fn lists(kubeconfig: Kubeconfig, kind: &str) -> Result<(), u16> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let all: kube::Api<DynamicObject> = api(&Client::try_from(config).unwrap(), kind, "");
    match all.list(&ListParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

/// Creates what the pods of an install would have.
async fn install(world: &World) {
    for plane in [&world.project, &world.dfw, &world.ord] {
        apply(plane, lease()).await;
    }
    let data = json!({ "token": token("system:serviceaccount:compute-system:compute-manager", 29) });
    let name = "compute-hub-credentials";
    let metadata = json!({ "name": name, "namespace": NS });
    apply(&world.project, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data }))
        .await;
}

/// Deletes what the test has created and a lent bed does not restore.
async fn uninstall(world: &World) {
    delete(&world.project, "Secret", NS, "compute-hub-credentials").await;
    for plane in [&world.project, &world.dfw, &world.ord] {
        delete(plane, "Lease", NS, "e98b06c6.datumapis.com").await;
    }
    for (city, cell) in [("dfw", &world.dfw), ("ord", &world.ord)] {
        delete(cell, "Secret", NS, SECRET).await;
        delete(&world.hub, "ClusterRole", "", &format!("compute-cell-cell-{city}")).await;
        delete(&world.hub, "ClusterRoleBinding", "", &format!("compute-cell-cell-{city}")).await;
        delete(&world.hub, "ClusterRoleBinding", "", &format!("compute-cell-federation-cell-{city}")).await;
        delete(&world.hub, "ServiceAccount", NS, &format!("compute-cell-cell-{city}")).await;
    }
}

/// Asserts that the cells join by the command, and only then.
async fn cells_join(world: &World) {
    let join = ["cell", "join", "cell-dfw", "--city", "dfw"];
    let (code, text) = run(world, &[&join[..], &["--dry-run"]].concat()).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("ServiceAccount compute-cell-cell-dfw") && text.contains("create"), "{text}");
    assert!(stored(&world.dfw).await.is_none(), "a dry run writes nothing");
    assert!(get(&world.hub, "ServiceAccount", NS, "compute-cell-cell-dfw").await.is_none(), "nor on the hub");
    let (code, text) = run(world, &["cell", "join", "cell-dfw", "--city", "ord"]).await;
    assert!(code == 4 && text.contains("has the city dfw: drain it first"), "{code}: {text}");
    for city in ["dfw", "ord"] {
        let (code, text) = run(world, &["cell", "join", &format!("cell-{city}"), "--city", city]).await;
        assert_eq!(code, 0, "{text}");
    }
    let kubeconfig = stored(&world.dfw).await.unwrap();
    assert_eq!(lists(kubeconfig.clone(), "Instance").await, Ok(()), "the cell reads its Instances on the hub");
    assert_eq!(lists(kubeconfig, "Secret").await, Err(403), "and no Secrets");
    let (code, text) = run(world, &join).await;
    let actions: Vec<&str> = text.lines().take(7).filter(|line| line.contains("  keep")).collect();
    assert_eq!((code, actions.len()), (0, 7), "a second time, nothing is left to do\n{text}");
    // As the runbook of a rebuilt hub has it.
    delete(&world.dfw, "Secret", NS, SECRET).await;
    let (code, text) = run(world, &join).await;
    assert!(code == 0 && stored(&world.dfw).await.is_some(), "the cell gets its kubeconfig again: {code}: {text}");
}

/// Asserts that a token that the command has not made stays in the Secret.
async fn rotate_refuses_another_token(world: &World) {
    let good = serde_json::to_value(stored(&world.dfw).await.unwrap()).unwrap();
    let put = async |kubeconfig: &Value| {
        let data = json!({ "stringData": { "kubeconfig": kubeconfig.to_string() } });
        merge(&world.dfw, "Secret", NS, SECRET, data).await;
    };
    let mut foreign = good.clone();
    foreign["users"][0]["user"]["token"] = json!(token("system:serviceaccount:other:reader", 20));
    let mut elsewhere = good.clone();
    elsewhere["clusters"][0]["cluster"]["server"] = json!("https://other.example:5443");
    for (stored_before, said) in
        [(&foreign, "is for system:serviceaccount:other:reader"), (&elsewhere, "names https://other.example:5443")]
    {
        put(stored_before).await;
        let before = get(&world.dfw, "Secret", NS, SECRET).await.unwrap().metadata.resource_version;
        let (code, text) = run(world, &["cell", "rotate", "cell-dfw"]).await;
        assert!(code == 4 && text.contains(said) && text.contains("Nothing is written"), "{code}: {text}");
        assert_eq!(get(&world.dfw, "Secret", NS, SECRET).await.unwrap().metadata.resource_version, before);
    }
    put(&good).await;
}

/// Asserts that `check --pre` warns of a webhook that reviews the operator's objects.
async fn pre_names_webhooks_of_others(world: &World) {
    let none = "no webhook of others reviews its kinds";
    let (code, text) = run(world, &["check", "--pre"]).await;
    // Project, hub and two cells.
    assert_eq!((code, text.matches(none).count()), (0, 4), "{text}");
    assert!(text.contains("interpreter is this version's"), "{text}");
    let kind = "ValidatingWebhookConfiguration";
    let rule = json!({
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["instances"],
    });
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": "policies" },
        "webhooks": [{
            "name": "instances.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": 1, "rules": [rule],
            "clientConfig": { "url": "https://127.0.0.1:1/" },
        }],
    });
    apply(&world.dfw, hook).await;
    let (code, text) = run(world, &["check", "--pre"]).await;
    delete(&world.dfw, kind, "", "policies").await;
    assert_eq!((code, text.matches(none).count()), (0, 3), "{text}");
    let said = "▲ webhook instances.example.com of policies reviews the operator's objects: it can refuse them";
    assert!(text.contains(said), "{text}");
}

/// Breaks one thing of each plane.
async fn break_each(world: &World) {
    let rules = Role::Project.rules_without(Some("compute.datumapis.com/workloads watch"), None);
    merge(&world.project, "ClusterRole", "", "compute", json!({ "rules": rules })).await;
    let script = json!({ "luaScript": "function Retain(desiredObj, observedObj)\n  return desiredObj\nend" });
    let script = json!({ "spec": { "customizations": { "retention": script } } });
    merge(&world.hub, "ResourceInterpreterCustomization", "", "workloaddeployment", script).await;
    let mut ended = serde_json::to_value(stored(&world.dfw).await.unwrap()).unwrap();
    ended["users"][0]["user"]["token"] = json!(token("system:serviceaccount:compute-system:compute-cell-cell-dfw", -1));
    let ended = json!({ "stringData": { "kubeconfig": ended.to_string() } });
    merge(&world.dfw, "Secret", NS, SECRET, ended).await;
    let label = json!({ "metadata": { "labels": { "topology.datum.net/city-code": null } } });
    merge(&world.hub, "Cluster", "", "cell-ord", label).await;
}

#[test]
fn check_of_a_joined_federation_is_well_and_names_each_broken_plane() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        install(&world).await;
        let (code, text) = run(&world, &["check"]).await;
        assert_eq!(code, 4, "no cell has joined\n{text}");
        assert!(text.contains("fix  kubectl compute cell join cell-dfw"), "{text}");
        cells_join(&world).await;
        let (code, text) = run(&world, &["check", "--wait=2m"]).await;
        assert_eq!(code, 0, "{text}");
        for row in ["project project ", "hub ", "cell-dfw ", "cell-ord ", "cities "] {
            let line = text.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("no {row}\n{text}"));
            assert!(line.contains('✔'), "{line}");
        }
        assert!(text.contains("definitions are this version's") && text.contains("interpreter is this version's"), "{text}");
        assert!(text.contains("token of compute-cell-federation-kubeconfig ends in 30 d") || text.contains("ends in 29 d"), "{text}");
        let (code, before) = run(&world, &["check", "--pre"]).await;
        assert!(code == 0 && before.contains("rights to install"), "{code}: {before}");
        pre_names_webhooks_of_others(&world).await;
        break_each(&world).await;
        let (code, text) = run(&world, &["check"]).await;
        assert_eq!(code, 4, "{text}");
        for said in [
            "✖ role compute of system:serviceaccount:compute-system:compute-manager lacks: watch workloads.compute.datumapis.com",
            "✖ ResourceInterpreterCustomization workloaddeployment differs from this version's in spec.customizations.retention",
            "✖ token of compute-cell-federation-kubeconfig has ended",
            "✖ ord is open to the project (LocationBinding ord), and no Cluster has it",
        ] {
            assert!(text.contains(said), "{said} is not said\n{text}");
        }
        let (code, text) = run(&world, &["cell", "rotate", "cell-dfw"]).await;
        assert!(code == 0 && text.contains("new token of compute-cell-cell-dfw for 30 d"), "{code}: {text}");
        assert_eq!(lists(stored(&world.dfw).await.unwrap(), "Instance").await, Ok(()));
        rotate_refuses_another_token(&world).await;
        let (code, text) = run(&world, &["cell", "dead", "cell-dfw", "--yes"]).await;
        assert!(code == 2 && text.contains("is not dead"), "{code}: {text}");
        let (code, text) = run(&world, &["cell", "drain", "cell-dfw", "--watch", "--timeout=30s"]).await;
        assert_eq!((code, text.as_str()), (0, "Nothing of any city is on cell-dfw.\n"));
        let drained = get(&world.hub, "Cluster", "", "cell-dfw").await.unwrap();
        assert_eq!(drained.metadata.annotations.unwrap()["compute.datumapis.com/drain"], "true");
        uninstall(&world).await;
    });
}
