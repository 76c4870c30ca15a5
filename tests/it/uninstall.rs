//! Follows `docs/uninstalling.md` on a federation with webhooks, quota and data. It runs the commands of the page in their order.
//! In the end, no control plane has an object, a finalizer or a webhook of the operator, and tenants keep their data.

use std::{collections::BTreeSet, fs, process::Command};

use kube::{
    Client, ResourceExt,
    api::{Api, DynamicObject, ListParams},
    discovery::{Discovery, verbs},
};
use serde_json::{Value, json};
use testbed::{Options, admission::Webhooks, binaries, control_plane::ControlPlane, manifests};

use crate::common::{
    RUNTIME, World, api, apply, deployment, eventually, get, merge, optional::rendered, path, ready, workload,
};

/// Label by which Karmada protects a hub namespace.
const PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
/// Parts of keys that only the operator's objects have, and Clusters with a city.
const OURS: [&str; 4] = ["compute.datumapis.com", "meta.datumapis.com", "topology.datum.net/city-code", PROTECTED];
/// Namespace of a tenant.
const NS: &str = "shop";

/// Returns the sections of the page, each as its title and its commands.
fn sections() -> Vec<(String, Vec<String>)> {
    let page = fs::read_to_string(path("docs/uninstalling.md")).unwrap();
    let of = |section: &str| {
        let commands = section.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect();
        (section.lines().next().unwrap().to_owned(), commands)
    };
    page.split("\n## ").skip(1).map(of).collect()
}

/// Returns a command for each control plane that it is for.
fn commands(world: &World, line: &str) -> Vec<(String, String)> {
    let planes = ["PROJECT", "MILO", "MANAGEMENT"].map(|name| (name, "project")).into_iter().chain([("HUB", "hub")]);
    let line = planes.fold(line.to_owned(), |line, (name, context)| {
        line.replace(&format!("--context {name} "), &format!("--context {context} "))
    });
    if !line.contains("DFW") && !line.contains("dfw-1") {
        return vec![(line, String::new())];
    }
    let of_cell = |(city, cell): (&String, &ControlPlane)| {
        let line = line.replace("--context DFW ", &format!("--context {} ", cell.name()));
        (line.replace("dfw-1", city), city.clone())
    };
    world.bed.cells.iter().map(of_cell).collect()
}

/// Runs a command in a shell, in the root of the repository. Returns its output.
fn shell(world: &World, line: &str) -> String {
    let bin = binaries::find_with_kubectl(&|text| eprintln!("testbed: {text}")).unwrap();
    let programs = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", line]).current_dir(path("."));
    command.env("PATH", programs).env("KUBECONFIG", world.bed.contexts().unwrap());
    let out = command.output().unwrap();
    let problems = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{line}: {problems}");
    String::from_utf8(out.stdout).unwrap()
}

/// Applies the overlays, starts the operators, and lets a project call the webhooks.
async fn install() -> World {
    let mut world = World::bare(Options { quota: true, ..Options::default() }).await;
    for (plane, overlays) in [
        (&world.hub, &["hub"][..]),
        (&world.project, &["project-access", "management-plane-admission"]),
        (&world.dfw, &["cell"]),
        (&world.ord, &["cell"]),
    ] {
        for overlay in overlays {
            manifests::apply(plane, &rendered(overlay)).await.unwrap();
        }
    }
    let webhooks = Webhooks::new(&world.bed).unwrap();
    world.bed.options_mut().management.push_str(&webhooks.config());
    world.start_operators(&[]).await;
    webhooks.ask_from(&world.project).await.unwrap();
    world
}

/// Creates what tenants have: a Workload in both cities with a ConfigMap and a Secret, and a deployment made by hand.
async fn run_something(world: &World) -> String {
    let hub = world.namespace_in(&world.project, NS).await;
    for (kind, field) in [("ConfigMap", "data"), ("Secret", "stringData")] {
        let metadata = json!({ "name": "db", "namespace": NS });
        apply(&world.project, json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, field: { "k": "v" } }))
            .await;
    }
    let mut web = workload(NS, "web", &["dfw", "ord"], 1);
    let container = &mut web["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0];
    container["envFrom"] = json!([{ "configMapRef": { "name": "db" } }, { "secretRef": { "name": "db" } }]);
    apply(&world.project, web).await;
    ready(world, NS, "web", 2).await;
    apply(&world.project, deployment(NS, "by-hand", "dfw")).await;
    eventually("the deployment by hand runs", || async {
        get(&world.dfw, "Instance", &hub, "by-hand-0").await.map(drop).ok_or_else(|| "not yet".to_owned())
    })
    .await;
    hub
}

/// Returns every object of a control plane, with its kind, except Events.
async fn everything(client: &Client) -> Vec<(String, DynamicObject)> {
    let mut found = Vec::new();
    for group in Discovery::new(client.clone()).run().await.unwrap().groups() {
        for (resource, capabilities) in group.recommended_resources() {
            // The test made the ResourceGrant, as a platform does.
            if ["Event", "ResourceGrant"].contains(&&*resource.kind) || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let Ok(listed) = all.list(&ListParams::default()).await else { continue };
            found.extend(listed.items.into_iter().map(|object| (resource.kind.clone(), object)));
        }
    }
    assert!(found.len() > 20, "the reader of control planes sees only {}: it is broken", found.len());
    found
}

/// Returns what a control plane has of the operator: objects by name, and keys of other objects.
async fn traces(client: &Client) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (kind, object) in everything(client).await {
        let name = object.name_any();
        let is_ours = name.starts_with("compute")
            || name.starts_with("city-")
            || kind == "ResourceInterpreterCustomization"
            || name.contains(".compute.datumapis.com");
        let metadata = &object.metadata;
        let keys = metadata.labels.iter().chain(&metadata.annotations).flatten().flat_map(|(key, value)| [key, value]);
        let keys = keys.chain(metadata.finalizers.iter().flatten());
        let marked = keys.into_iter().find(|key| OURS.iter().any(|ours| key.contains(ours)));
        if is_ours || marked.is_some() {
            let marked = marked.map_or_else(String::new, |key| format!(" ({key})"));
            found.insert(format!("{kind} {}/{name}{marked}", object.namespace().unwrap_or_default()));
        }
    }
    found
}

/// Returns the data of the tenant, with versions.
async fn data(world: &World) -> Vec<Value> {
    let mut found = Vec::new();
    for kind in ["Namespace", "ConfigMap", "Secret"] {
        let (namespace, name) = if kind == "Namespace" { ("", NS) } else { (NS, "db") };
        let object = get(&world.project, kind, namespace, name).await.unwrap();
        found.push(serde_json::to_value(object).unwrap());
    }
    found
}

/// Runs the commands of one section. Where the page stops a manager, its process ends.
fn follow(world: &mut World, title: &str, lines: &[String]) {
    for line in lines {
        for (command, city) in commands(world, line) {
            let said = shell(world, &command);
            if command.contains("delete deployment compute-manager") {
                let of = if city.is_empty() { 0 } else { world.of_cell(&city) };
                world.operators[of].process.kill();
            }
            if title.starts_with("7. ") {
                assert_eq!(said, "", "{command}");
            }
        }
    }
}

/// A deployment that lost its manager is released by the command of the page.
async fn release_by_hand(world: &World, lines: &[String]) {
    let command = lines.iter().find(|line| line.contains(" patch ")).unwrap();
    apply(&world.project, deployment(NS, "stuck", "dfw")).await;
    let held = json!({ "metadata": { "finalizers": ["compute.datumapis.com/federator"] } });
    merge(&world.project, "WorkloadDeployment", NS, "stuck", held).await;
    let all = api(&world.project, "WorkloadDeployment", NS);
    let _ = all.delete("stuck", &kube::api::DeleteParams::background()).await.unwrap();
    assert!(get(&world.project, "WorkloadDeployment", NS, "stuck").await.is_some(), "its finalizer holds it");
    let command = command.replace("PROJECT", "project").replace("NAMESPACE", NS).replace("NAME", "stuck");
    shell(world, &command);
    eventually("it is deleted", || async {
        get(&world.project, "WorkloadDeployment", NS, "stuck").await.map_or(Ok(()), |_| Err("not yet".to_owned()))
    })
    .await;
}

#[test]
fn uninstalling_page_leaves_nothing_of_the_operator_and_keeps_tenant_data() {
    RUNTIME.block_on(async {
        let mut world = install().await;
        let hub = run_something(&world).await;
        let before = data(&world).await;
        let planes = [&world.project, &world.hub, &world.dfw, &world.ord].map(Clone::clone);
        let installed = traces(&planes[0]).await;
        for seen in
            ["Workload shop/web", "ValidatingWebhookConfiguration /compute-validating", "Namespace /compute-system"]
        {
            assert!(installed.iter().any(|trace| trace.starts_with(seen)), "{seen}: {installed:?}");
        }
        let sections = sections();
        let titles: Vec<&str> = sections.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(
            titles.iter().filter(|title| title.starts_with(|c: char| c.is_ascii_digit())).count(),
            7,
            "{titles:?}"
        );
        let stuck: Vec<&String> =
            sections.last().unwrap().1.iter().filter(|line| !line.starts_with("kubectl compute")).collect();
        assert!(stuck.len() == 1 && sections[0].1.is_empty(), "a command of the page is not run: {stuck:?}");
        for (title, lines) in &sections {
            if title.starts_with("5. ") {
                // The managers are gone, and the definitions are still there.
                release_by_hand(&world, &sections.last().unwrap().1).await;
                let protected = get(&world.hub, "Namespace", "", &hub).await.unwrap();
                assert!(protected.labels().contains_key(PROTECTED), "the page removes the protection");
            }
            if title.starts_with(|c: char| c.is_ascii_digit()) {
                follow(&mut world, title, lines);
            }
        }
        eventually("nothing of the operator is left", || async {
            let mut left = BTreeSet::new();
            for plane in &planes {
                left.extend(traces(plane).await);
            }
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        assert_eq!(data(&world).await, before, "the tenant's data is as it was");
    });
}
