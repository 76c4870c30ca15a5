//! The page `docs/reasons.md`, generated from the table.

use std::fmt::Write;

use super::{Class, DOCS, Entry, Reason};

/// Beginning of the page.
const HEAD: &str = "# Reasons

Every reason that a condition or an Event of this operator can have, and who has to act. `compute-operator reasons` prints this page,
and a test compares. To see the reasons of one Workload:

    $ kubectl compute trace workload/NAME -n NAMESPACE
    $ kubectl -n NAMESPACE describe cwl NAME
    $ kubectl -n NAMESPACE get wd --field-selector spec.workloadRef.name=NAME -o yaml

`kubectl compute explain REASON` shows one entry of this page. [Status](status.md) says which condition to wait for. `Ready` of Workload
and WorkloadDeployment has the worst of these reasons.

Kubernetes has a Workload of its own from version 1.35 on. So use the short name `cwl` or `computeworkloads`, or the whole name
`workloads.compute.datumapis.com`. `kubectl get compute` lists all three kinds. The field selector needs Kubernetes 1.31.

The condition's message says what is wrong and what to do. If several things are wrong, the reason with the highest rank is shown,
up to the Workload. A rank of 0 means that the deployment runs, or that nothing is wrong yet.

**Who acts** is `tenant` for the owner of the Workload, or of an object that it refers to. Alerts leave such reasons out (label
`waits_for` of `compute_federation_blocked_deployments`), and `ProjectRefused`. `platform` is the team that runs the federation.
`nobody` means that no person has to act.

Commands have words in capitals, which you replace. `HUB`, `PROJECT`, `CELL` and `MANAGEMENT` are contexts of your kubeconfig: of
Karmada, of the project, of the city's cell, and of the cluster where the management controllers run. A command without `--context`
is for the tenant in the project. `HUB_NAMESPACE` is `ns-` with the uid of the project's namespace. The hub and the cells use it.
";

/// A section: title, introduction, and the classes of its reasons.
type Section = (&'static str, &'static str, &'static [Class]);

const SECTIONS: [Section; 10] = [
    (
        "What keeps a deployment, or its data, from its city",
        "In condition `Federated` of the WorkloadDeployment, in the message of `ReferencedDataReady`, on the Workload, and as an Event. \
         The pace behind `RateLimited` is among the [limits](admission.md#limits).",
        &[Class::Delivery],
    ),
    (
        "A ConfigMap or Secret that cannot be copied",
        "In `ReferencedDataReady` of WorkloadDeployment and Instance, and on the Workload. The limits are keys of the \
         [config file](configuration.md).",
        &[Class::Source],
    ),
    ("Data on its way", "In `ReferencedDataReady`.", &[Class::Data]),
    ("Networks", "In `Ready` of the Instance, and in `Available` of WorkloadDeployment and Workload.", &[Class::Network]),
    (
        "Quota",
        "In `QuotaGranted` and `Ready` of the Instance, and in `ReplicasReady` of the WorkloadDeployment.",
        &[Class::Quota],
    ),
    (
        "Placements",
        "In `Available` of the Workload and of the placement. The limits behind `LimitExceeded` are [listed](admission.md#limits).",
        &[Class::Placement],
    ),
    (
        "The Instance itself",
        "`ImageUnavailable`, `InstanceCrashing` and `ConfigurationError` are the provider's. Its messages are passed on unchanged.",
        &[Class::Instance],
    ),
    ("Progress", "Work that is not complete yet.", &[Class::Progress]),
    (
        "Success",
        "`Available` of a Workload becomes True with the first ready Instance in any city. Compare READY with DESIRED to see whether \
         all of it runs.",
        &[Class::Success],
    ),
    (
        "Events",
        "When `Federated` turns bad, an Event with the reason of the condition is sent too. There is one exception. If more than 20 \
         deployments, and more than one in ten, wait for their first delivery and Karmada gives no reason, no Events are sent. Look at \
         the conditions, or at `compute_federation_blocked_deployments`.

On an Instance in its cell, a Warning is sent when `QuotaGranted` changes to a reason of the section on quota, or when \
         `ReferencedDataReady` changes to `AwaitingPropagation`. It is sent only while the Instance waits at a gate, not while it runs.

The reasons below are of Events alone.",
        &[Class::Event],
    ),
];

/// Returns the page.
pub fn text() -> String {
    let mut page = HEAD.to_owned();
    for (title, introduction, classes) in SECTIONS {
        let _ = write!(page, "\n## {title}\n\n{introduction}\n\n| reason | rank | who acts |\n|---|---|---|\n");
        let reasons: Vec<(&Reason, &Entry)> = Reason::ALL
            .iter()
            .filter(|reason| classes.contains(&reason.class()))
            .filter_map(|reason| Some((reason, reason.entry()?)))
            .collect();
        for (reason, entry) in &reasons {
            let anchor = reason.as_str().to_lowercase();
            let _ = writeln!(page, "| [`{reason}`](#{anchor}) | {} | {} |", reason.rank(), entry.who.label());
        }
        for (reason, entry) in reasons {
            page += &explained(reason, entry);
        }
    }
    page
}

/// Returns the part of the page about one reason.
fn explained(reason: &Reason, entry: &Entry) -> String {
    let mut text = format!("\n### {reason}\n\n{}\n\n{}\n", entry.meaning, entry.effect);
    for (nth, step) in entry.steps.iter().enumerate() {
        let before = if nth == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{before}{}. {step}", nth + 1);
    }
    let seen: Vec<String> = entry.seen_in.iter().map(ToString::to_string).collect();
    let _ = write!(text, "\n- **Seen in**: {}\n", seen.join(", "));
    if !entry.alerts.is_empty() {
        let alerts: Vec<String> = entry.alerts.iter().map(|alert| format!("`{alert}`")).collect();
        let _ = writeln!(text, "- **Alerts**: {}", alerts.join(", "));
    }
    if let Some(file) = entry.runbook {
        let _ = writeln!(text, "- **Runbook**: [{}](runbooks/{file})", file.split(".md").next().unwrap_or(file));
    }
    text
}

/// Returns the head of a runbook: its alerts, and the reasons whose entry names it.
pub fn runbook_head(file: &str, alerts: &[&str]) -> String {
    let is_for = |entry: &Entry| entry.runbook.and_then(|runbook| runbook.split('#').next()) == Some(file);
    let reasons = Reason::ALL.iter().filter(|reason| reason.entry().is_some_and(is_for));
    let reasons: Vec<String> =
        reasons.map(|reason| format!("[{reason}](../reasons.md#{})", reason.as_str().to_lowercase())).collect();
    let alerts: Vec<String> = alerts.iter().map(|alert| format!("`{alert}`")).collect();
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    format!("Alerts: {}.\nReasons: {}.\n", list(&alerts), list(&reasons))
}

/// Returns the address of a runbook.
pub fn runbook_url(file: &str) -> String {
    format!("{DOCS}/runbooks/{file}")
}
