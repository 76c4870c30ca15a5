//! The commands of the tenant pages, typed in their order as the pages have them.

use std::process::Command;

use testbed::{pki::User, status};

use crate::common::{
    RUNTIME,
    beds::{Wish, alone},
    eventually, get, path,
};

/// The pages, in the order of reading.
const PAGES: [&str; 6] = [
    "docs/start/see-it-run.md",
    "docs/tenants/first-workload.md",
    "docs/tenants/look-up.md",
    "docs/tenants/data.md",
    "docs/tenants/change-scale-delete.md",
    "docs/tenants/examples.md",
];

/// The namespace in which the pages work.
const NAMESPACE: &str = "demo";

/// Returns the commands of a page that kubectl itself runs.
fn typed(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path(page)).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("    ")).map(str::trim);
    let own = lines.filter(|line| line.starts_with("kubectl ") && !line.starts_with("kubectl compute "));
    own.map(str::to_owned).collect()
}

/// True if the table of `cargo testbed status` shows this object as ready.
fn is_ready(table: &str, kind: &str, name: &str) -> bool {
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.any(|line| line.starts_with(&[kind, NAMESPACE, name, "True"]))
}

#[test]
fn tenant_pages_commands_work_in_their_order() {
    RUNTIME.block_on(async {
        let world = alone(Wish { networks_and_quota: true, ..Wish::default() }).await;
        let bin = testbed::binaries::find_with_kubectl(&|_| ()).unwrap();
        let programs = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let kubeconfig = world.bed.project.kubeconfig(&User::Admin);
        let mut seen = 0;
        for page in PAGES {
            for command in typed(page) {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(&command).env("PATH", &programs).env("KUBECONFIG", &kubeconfig);
                shell.current_dir(path(""));
                let out = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
                let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
                assert!(out.status.success(), "{page}: {command}: {said}");
                seen += 1;
            }
            if page == PAGES[0] {
                let table = status::table(&world.project).await.unwrap();
                let waited_for = [("Workload", "hello"), ("WorkloadDeployment", "hello-edge-ord")];
                assert!(waited_for.iter().all(|(kind, name)| is_ready(&table, kind, name)), "{table}");
                // The state of an Instance comes by another way than the status of its deployment, and can arrive later.
                eventually("the table shows the last Instance of dfw as ready", async || {
                    let table = status::table(&world.project).await.unwrap();
                    is_ready(&table, "Instance", "hello-edge-dfw-1").then_some(()).ok_or(table)
                })
                .await;
            }
        }
        assert!(seen > 25, "the reader of pages sees only {seen} commands: it is broken");
        let namespace = get(&world.project, "Namespace", "", NAMESPACE).await.unwrap();
        let hub = format!("ns-{}", namespace.metadata.uid.unwrap());
        eventually("nothing is left of the pages", || world.is_clean(NAMESPACE, &hub)).await;
    });
}
