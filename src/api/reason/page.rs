//! The page `docs/reasons.md`, generated from the table.

use std::fmt::Write;

use super::{Class, DOCS, Entry, Reason};

/// Beginning of the page.
const HEAD: &str = "# Reasons

Every reason that a condition or an Event of this operator can have, and who has to act. `compute-operator reasons` prints this
page, and a test compares. To see the reasons of one Workload:

    $ kubectl compute trace workload/NAME -n NAMESPACE
    $ kubectl -n NAMESPACE describe cwl NAME
    $ kubectl -n NAMESPACE get wd --field-selector spec.workloadRef.name=NAME -o yaml

`kubectl compute explain REASON` shows one entry of this page. [Status](status.md) says which condition to wait for. `Ready` of a
Workload or WorkloadDeployment has the worst of these reasons.

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
    ("Data that has not arrived", "In `ReferencedDataReady`.", &[Class::Data]),
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
        "When `Federated` becomes False or Unknown, an Event with the same reason is sent. There is one exception: deployments \
         wait for their first delivery, and Karmada gives no reason. If these are more than 20, and more than one in ten, no Events \
         are sent. Look at the conditions, or at `compute_federation_blocked_deployments`.

On an Instance in its cell, a Warning is sent in two cases. `QuotaGranted` changes to a reason of the section on quota, or \
         `ReferencedDataReady` changes to `AwaitingPropagation`. It is sent only while the Instance waits at a gate, not while it runs.

The reasons below are of Events alone.",
        &[Class::Event],
    ),
];

/// Returns the page.
pub fn text() -> String {
    let mut page = HEAD.to_owned();
    for (title, introduction, classes) in SECTIONS {
        let introduction = wrapped(introduction);
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

/// Width of a line of the page, in characters.
const WIDTH: usize = 130;

/// Breaks the lines of paragraphs. A span of code stays on one line, because a reader copies it.
fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    for (nth, paragraph) in text.split("\n\n").enumerate() {
        wrapped.push_str(if nth == 0 { "" } else { "\n\n" });
        let (mut width, mut is_code) = (0, false);
        for word in paragraph.split(' ') {
            let length = word.chars().count();
            let breaks = width > 0 && !is_code && width + 1 + length > WIDTH;
            if width > 0 {
                wrapped.push(if breaks { '\n' } else { ' ' });
            }
            width = if breaks { length } else { width + length + usize::from(width > 0) };
            wrapped.push_str(word);
            is_code ^= word.matches('`').count() % 2 == 1;
        }
    }
    wrapped
}

/// Returns the part of the page about one reason.
fn explained(reason: &Reason, entry: &Entry) -> String {
    let mut text = format!("\n### {reason}\n\n{}\n\n{}\n", wrapped(entry.meaning), wrapped(entry.effect));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_and_code_is_not() {
        let words = ["word"; 40].join(" ");
        let lines: Vec<usize> = wrapped(&words).lines().map(str::len).collect();
        assert_eq!(lines, [129, 69]);
        let code = format!("{} `kubectl get {}` end", ["word"; 25].join(" "), "x".repeat(20));
        let text = wrapped(&code);
        assert!(text.lines().any(|line| line.contains(&format!("`kubectl get {}`", "x".repeat(20)))), "{text}");
        assert_eq!(wrapped("one\n\ntwo"), "one\n\ntwo");
        assert_eq!(wrapped(&words).replace('\n', " "), words, "nothing is lost");
    }
}
