//! The views of `kubectl compute` on a running federation: traces of all kinds, events, tree, map, report and replay.

use std::path::{Path, PathBuf};

use kubectl_compute::exit::Exit;
use serde_json::{Value, json};

use crate::common::{RUNTIME, World, apply, beds::shared, eventually, ready, template, workload};

/// Never in an output: it is in the data, and in an environment variable.
const VALUE: &str = "hunter2-correct-horse";

/// Runs the command with the contexts of the bed. Returns its exit code and its output.
async fn compute(world: &World, kubeconfig: &Path, namespace: &str, args: &[&str]) -> (Exit, String) {
    let mut all: Vec<String> = vec![
        "kubectl-compute".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--context={}", world.bed.project.name()),
        format!("--hub-context={}", world.bed.hub.name()),
        format!("--namespace={namespace}"),
    ];
    for city in ["dfw", "ord"] {
        let cell = world.bed.cell(city).unwrap().name().to_owned();
        all.push(format!("--cell-context={cell}={cell}"));
    }
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    let run = move || {
        let (mut out, mut problems) = (Vec::new(), Vec::new());
        let exit = kubectl_compute::start(all.into_iter().map(Into::into), &mut out, &mut problems);
        (exit, String::from_utf8(out).unwrap() + &String::from_utf8(problems).unwrap())
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[test]
fn command_shows_a_workload_on_all_planes() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("command").await;
        let kubeconfig = world.bed.contexts().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": ns, "name": "settings" },
            "data": { "key": VALUE },
        });
        apply(&world.project, config).await;
        let mut object = workload(&ns, "web", &["dfw", "ord"], 1);
        object["spec"]["template"] = template("docker.io/library/nginx:1");
        let container = &mut object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0];
        container["envFrom"] = json!([{ "configMapRef": { "name": "settings" } }]);
        container["env"] = json!([{ "name": "PASSWORD", "value": VALUE }]);
        apply(&world.project, object).await;
        ready(world, &ns, "web", 2).await;

        let run = async |args: &[&str]| compute(world, &kubeconfig, &ns, args).await;
        let (exit, text) = run(&["trace", "workload/web", "--watch", "--timeout", "60s"]).await;
        assert_eq!(exit, Exit::Well, "{text}");
        assert!(text.contains("READY") && text.contains("web-p-dfw") && !text.contains("? cell"), "{text}");
        let (exit, text) = run(&["trace", "workload/web", "-o", "dot"]).await;
        assert!(exit == Exit::Well && text.starts_with("digraph trace {"), "{text}");
        let (exit, text) = run(&["trace", "instance", "web-p-dfw-0"]).await;
        assert!(exit == Exit::Well && text.contains("✔ hub"), "{text}");
        eventually("the trace of the ConfigMap has both cities", || async {
            let (exit, text) = run(&["trace", "configmap/settings"]).await;
            let cities = text.matches(": has it, uid").count() + text.matches("  has it, uid").count();
            if exit == Exit::Well && cities == 2 { Ok(()) } else { Err(text) }
        })
        .await;
        let cell = world.bed.cell("dfw").unwrap().name().to_owned();
        let (_, text) = run(&["trace", "cluster", &cell]).await;
        assert!(text.contains(&hub) && text.contains("dfw"), "{text}");
        let (_, text) = run(&["map"]).await;
        assert!(text.contains(&cell), "{text}");

        let (exit, text) = run(&["events", "workload/web", "--since", "1h"]).await;
        assert_eq!(exit, Exit::Well, "{text}");
        for words in ["Workload/web", "WorkloadDeployment/web-p-ord", "hub ", "compute-operator-federator", "created"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        tree_is_complete(&run(&["tree", "workload/web", "-o", "json"]).await.1);
        let (exit, text) = run(&["tree", "workload/web"]).await;
        assert!(exit == Exit::Well && text.contains("Work ") && text.contains("0 without an owner"), "{text}");
        let (_, text) = run(&["migrate", "status", "-o", "json"]).await;
        assert!(text.contains("\"policies\""), "{text}");
        report_has_no_value(&run, &kubeconfig).await;
        names_are_completed(world, &kubeconfig, &ns).await;
    });
}

/// The API servers give the names of objects, contexts, namespaces, Clusters and cities.
async fn names_are_completed(world: &World, kubeconfig: &Path, namespace: &str) {
    let (file, hub) = (kubeconfig.display().to_string(), world.bed.hub.name().to_owned());
    let cell = world.bed.cell("dfw").unwrap().name().to_owned();
    let project = world.bed.project.name().to_owned();
    for (words, expected) in [
        (vec!["trace", "workload", ""], "web\n:4\n".to_owned()),
        (vec!["trace", "wd", "web-"], "web-p-dfw\nweb-p-ord\n:4\n".to_owned()),
        (vec!["events", "instance/web-p-d"], "instance/web-p-dfw-0\n:4\n".to_owned()),
        (vec!["trace", "configmap", "sett"], "settings\n:4\n".to_owned()),
        (vec!["cell", "drain", &cell], format!("{cell}\n:4\n")),
        (vec!["waiting", "--city", "df"], "dfw\n:4\n".to_owned()),
        (vec!["--namespace", namespace], format!("{namespace}\n:4\n")),
    ] {
        let flags = ["kubectl_complete-compute", "--kubeconfig", &file, "--context", &project, "--hub-context", &hub];
        let all = [&flags[..], &["-n", namespace], &words].concat();
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        // The words are quoted in the message.
        let shown = format!("{words:?}");
        let run = move || {
            let mut out = Vec::new();
            kubectl_compute::start(all.into_iter().map(Into::into), &mut out, &mut Vec::new());
            String::from_utf8(out).unwrap()
        };
        assert_eq!(tokio::task::spawn_blocking(run).await.unwrap(), expected, "{shown}");
    }
}

/// Every object has a place, and none was hidden.
fn tree_is_complete(text: &str) {
    let tree: Value = serde_json::from_str(text).unwrap();
    assert_eq!(tree["unseen"], json!([]), "{text}");
    let deployments = tree["workload"]["children"].as_array().unwrap();
    assert_eq!(deployments.len(), 2, "{text}");
    for deployment in deployments {
        let planes = deployment["children"].as_array().unwrap();
        let has = |plane: &str, kind: &str| planes.iter().any(|child| child["plane"] == plane && child["kind"] == kind);
        assert!(has("project", "ConfigMap") && has("project", "Instance"), "{text}");
        assert!(has("hub", "WorkloadDeployment") && planes.len() == 4, "{text}");
    }
}

async fn report_has_no_value(run: &impl AsyncFn(&[&str]) -> (Exit, String), kubeconfig: &Path) {
    let file: PathBuf = kubeconfig.with_file_name("report-of-web.tar.gz");
    let path = file.display().to_string();
    let (exit, text) = run(&["report", "workload/web", "-f", &path]).await;
    assert_eq!(exit, Exit::Well, "{text}");
    let unpack = std::process::Command::new("tar").args(["-xzOf", &path]).output().unwrap();
    assert!(unpack.status.success(), "{unpack:?}");
    let all = String::from_utf8(unpack.stdout).unwrap();
    assert!(all.contains("PASSWORD") && all.contains("web-p-dfw"), "it has the objects");
    assert!(!all.contains(VALUE) && !all.contains("managedFields"), "a value is in the report");
    let (exit, text) = run(&["replay", &path]).await;
    assert!(exit == Exit::Well && text.contains("0 of 3 decisions differ"), "{text}");
    std::fs::remove_file(&file).unwrap();
}
