//! `kubectl compute` on a running federation.

use kubectl_compute::exit::Exit;
use serde_json::{Value, json};
use testbed::bed::bind_location;

use crate::common::{
    RUNTIME, apply,
    beds::{Wish, alone},
    command::{Asker, SecurePort},
    eventually,
    readers::{account, allow},
    ready, template, workload,
};

/// A Workload that refers to a Secret.
fn with_secret(namespace: &str, name: &str, city: &str) -> Value {
    let mut object = workload(namespace, name, &[city], 1);
    object["spec"]["template"] = template("docker.io/library/nginx:1");
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
        json!([{ "secretRef": { "name": "absent" } }]);
    object
}

#[test]
fn command_names_the_reason_of_what_waits_and_finds_the_rest_well() {
    RUNTIME.block_on(async {
        let port = SecurePort::free();
        let world = alone(Wish { management: port.config(), ..Wish::default() }).await;
        let asker = Asker::of(&world.bed, &world.project, port).await;
        let (ns, _) = world.namespace("command").await;
        bind_location(&world.project, "lhr").await.unwrap();
        apply(&world.project, workload(&ns, "well", &["dfw"], 1)).await;
        apply(&world.project, workload(&ns, "nowhere", &["lhr"], 1)).await;
        apply(&world.project, with_secret(&ns, "secret", "ord")).await;
        ready(&world, &ns, "well", 1).await;
        asker.all_name(&world.project, &ns, ("WorkloadDeployment", "nowhere-p-lhr"), "NoClusterForCity").await;
        asker.all_name(&world.project, &ns, ("WorkloadDeployment", "secret-p-ord"), "SourceNotFound").await;

        let (exit, text) = asker.ask(&ns, &["trace", "workload/nowhere"]).await;
        assert!(exit == Exit::Platform && text.contains("FIRST BROKEN LINK"), "{text}");
        let (exit, text) = asker.ask_as_tenant(&ns, &["trace", "workload", "secret"]).await;
        assert!(exit == Exit::Tenant && text.contains("Waits for the TENANT: SourceNotFound in ord."), "{text}");
        let (exit, text) = asker.ask(&ns, &["trace", "workload/absent"]).await;
        assert!(exit == Exit::CouldNotAsk && text.contains("does not exist"), "{text}");
        eventually("the running Workload is well on every link", || async {
            let (exit, text) = asker.ask(&ns, &["trace", "workload/well"]).await;
            let marks = text.matches(" ✔").count();
            if exit == Exit::Well && marks == 9 { Ok(()) } else { Err(text) }
        })
        .await;
        let (exit, text) = asker.ask(&ns, &["waiting", "--manager-url", &asker.url]).await;
        assert!(exit == Exit::Platform && text.contains("2 objects wait."), "{text}");
        let (exit, text) = asker.ask(&ns, &["waiting", "--city", "dfw", "--manager-url", &asker.url]).await;
        assert!(exit == Exit::Well && text.contains("Nothing waits"), "{text}");
    });
}

#[test]
fn list_of_what_waits_is_readable_only_with_its_own_permission() {
    RUNTIME.block_on(async {
        let port = SecurePort::free();
        let world = alone(Wish { management: port.config(), ..Wish::default() }).await;
        let asker = Asker::of(&world.bed, &world.project, port).await;
        let reader = account(&world.project, "waiting-reader").await;
        let token = world.bed.dir().join("token");
        std::fs::write(&token, reader).unwrap();
        let file = token.display().to_string();
        let ask = async || asker.ask("default", &["waiting", "--manager-url", &asker.url, "--token-file", &file]).await;
        let (exit, text) = ask().await;
        assert!(exit == Exit::CouldNotAsk && text.contains("may not get /waiting"), "{text}");
        // The right to read metrics is not the right to read the messages of all tenants.
        allow(&world.project, "waiting-reader").await;
        let (exit, text) = ask().await;
        assert!(exit == Exit::CouldNotAsk && text.contains("may not get /waiting"), "{text}");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "waiting" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "compute-waiting-reader" },
            "subjects": [{ "kind": "ServiceAccount", "name": "waiting-reader", "namespace": "compute-system" }],
        });
        apply(&world.project, binding).await;
        eventually("the right counts", || async {
            let (exit, text) = ask().await;
            if exit == Exit::CouldNotAsk { Err(text) } else { Ok(()) }
        })
        .await;
        std::fs::write(&token, "no.body.s").unwrap();
        let (exit, text) = ask().await;
        assert!(exit == Exit::CouldNotAsk && text.contains("does not know the user"), "{text}");
    });
}
