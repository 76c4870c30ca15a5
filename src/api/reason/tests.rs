use std::{collections::BTreeSet, fs, path::Path};

use super::*;

/// All reasons with their entries.
fn entries() -> impl Iterator<Item = (&'static Reason, &'static Entry)> {
    Reason::ALL.iter().map(|reason| (reason, reason.entry().expect("it is our own")))
}

/// Names of the alerts in the rules.
fn alerts() -> BTreeSet<&'static str> {
    let rules = include_str!("../../../config/components/alerts/rules.yaml");
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn reason_is_parsed_back_and_foreign_one_has_no_rank() {
    for reason in Reason::ALL {
        assert_eq!(&Reason::from(reason.as_str()), reason);
        let known_to_users = reason.rank() > 0 || !matches!(reason.class(), Class::Network | Class::Source);
        assert!(known_to_users || *reason == Reason::NetworkReady, "{reason} would never be the one that is shown");
    }
    let odd = Reason::from("SomethingElse");
    assert_eq!((odd.as_str(), odd.rank(), odd.class(), odd.travels()), ("SomethingElse", 0, Class::Foreign, false));
    assert_eq!((odd.entry(), odd.waits_for()), (None, WaitsFor::Platform));
    assert_eq!(odd.url(), format!("{DOCS}/reasons.md"));
}

#[test]
fn delivery_reasons_outrank_data_and_progress() {
    let worst = |class| Reason::ALL.iter().filter(|r| r.class() == class).map(Reason::rank).max().unwrap();
    assert!(worst(Class::Delivery) > worst(Class::Data) && worst(Class::Data) > worst(Class::Progress));
    assert!(Reason::ALL.iter().filter(|r| r.class() == Class::Event).all(|r| r.rank() == 0));
}

#[test]
fn reasons_page_equals_what_the_command_prints() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reasons.md");
    let stands = fs::read_to_string(file).unwrap_or_default();
    assert!(stands == page::text(), "run `cargo run -- reasons > docs/reasons.md` and commit what it writes");
}

#[test]
fn reasons_page_has_one_anchor_for_each_reason_where_its_url_points() {
    let page = page::text();
    let mut seen = BTreeSet::new();
    for heading in page.lines().filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("### "))) {
        assert!(seen.insert(anchor(heading)), "{heading} is there twice");
    }
    for reason in Reason::ALL {
        let url = reason.url();
        let (file, at) = url.split_once('#').unwrap();
        assert_eq!(file, format!("{DOCS}/reasons.md"));
        assert!(seen.contains(at), "{url}");
    }
    assert!(
        DOCS.starts_with("https://github.com/") && DOCS.ends_with(&format!("/v{}/docs", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn entries_are_sentences_and_name_the_places_where_the_reason_is_seen() {
    for (reason, entry) in entries() {
        for text in [entry.meaning, entry.effect].iter().chain(entry.steps) {
            assert!(text.ends_with('.') && !text.contains('\n') && !text.contains("  "), "{reason}: {text:?}");
            assert_eq!(text.matches('`').count() % 2, 0, "{reason}: {text:?}");
        }
        assert!(!entry.seen_in.is_empty(), "{reason} is seen nowhere");
        let kinds: BTreeSet<_> = entry.seen_in.iter().collect();
        assert_eq!(kinds.len(), entry.seen_in.len(), "{reason} names a place twice");
        if reason.class() == Class::Event {
            assert!(entry.seen_in.iter().all(|seen| matches!(seen, Seen::Event { .. })), "{reason}");
        }
    }
}

/// Alerts called the federation's operators for a Secret that a tenant had not created.
#[test]
fn entry_of_a_reason_with_steps_names_who_acts() {
    for (reason, entry) in entries() {
        assert_eq!(reason.waits_for() == WaitsFor::Tenant, entry.who == Who::Tenant, "{reason}");
        assert!(entry.who == Who::Nobody || !entry.steps.is_empty(), "{reason}: what is {} to do?", entry.who.label());
        let is_problem = !matches!(reason.class(), Class::Success | Class::Event);
        assert!(is_problem || reason.rank() == 0, "{reason}");
        if reason.class() == Class::Success {
            assert!(entry.who == Who::Nobody && entry.steps.is_empty() && entry.alerts.is_empty(), "{reason}");
        }
        if entry.who == Who::Tenant {
            assert!(entry.alerts.is_empty(), "{reason} calls the platform for what a tenant has to do");
        }
    }
}

#[test]
fn entries_name_existing_runbooks_with_existing_sections() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
    for (reason, entry) in entries() {
        let Some(runbook) = entry.runbook else { continue };
        let (file, section) = runbook.split_once('#').map_or((runbook, None), |(file, section)| (file, Some(section)));
        let text = fs::read_to_string(folder.join(file)).unwrap_or_else(|_| panic!("{reason}: {file} does not exist"));
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let anchors: BTreeSet<String> = headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect();
        assert!(section.is_none_or(|section| anchors.contains(section)), "{reason}: {runbook}: {anchors:?}");
    }
}

/// Alerts that fire for no reason of a condition or an Event.
const WITHOUT_REASON: [&str; 6] = [
    "ComputeManagerDown",
    "ComputeNoLeader",
    "ComputeControllerReconcileStorm",
    "ComputeCertificateExpires",
    "ComputeTokenExpires",
    "ComputeFederationSlow",
];

#[test]
fn alerts_and_entries_name_each_other() {
    let alerts = alerts();
    let named: BTreeSet<&str> = entries().flat_map(|(_, entry)| entry.alerts).copied().collect();
    assert!(named.is_subset(&alerts), "{:?} do not exist", named.difference(&alerts));
    let others: BTreeSet<&str> = alerts.difference(&named).copied().collect();
    assert_eq!(others, BTreeSet::from(WITHOUT_REASON));
}

/// Words in capitals that a command may have.
const PLACEHOLDERS: [&str; 9] =
    ["HUB", "PROJECT", "CELL", "MANAGEMENT", "HUB_NAMESPACE", "NAMESPACE", "NAME", "CLUSTER", "CITY"];

/// Core Kubernetes has a kind Workload since 1.35: the short name means that one.
#[test]
fn commands_use_known_placeholders_and_no_ambiguous_kind() {
    let mut seen = 0;
    for (reason, entry) in entries() {
        for command in entry.commands() {
            seen += 1;
            let words = command.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
            for word in words.filter(|word| word.len() > 1) {
                let is_capital = word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
                assert!(!is_capital || PLACEHOLDERS.contains(&word), "{reason}: {word} in {command}");
                assert!(!["workload", "workloads"].contains(&word), "{reason}: {command}");
            }
            let platform = entry.who != Who::Tenant && command.starts_with("kube");
            let is_tenants = ["kubectl -n NAMESPACE", "kubectl kustomize"].iter().any(|of| command.starts_with(of));
            assert!(
                !platform || is_tenants || ["--context ", "--hub-context "].iter().any(|flag| command.contains(flag)),
                "{reason}: where? {command}"
            );
        }
    }
    assert!(seen > 100, "the reader of commands sees only {seen}: it is broken");
}

/// The alert of what waits for the platform leaves some reasons out: those with an alert of their own, and those that a tenant can
/// cause.
#[test]
fn alert_of_what_waits_is_named_by_the_reasons_that_it_counts() {
    let rules = include_str!("../../../config/components/alerts/rules.yaml");
    let (_, rest) =
        rules.split_once("compute_waiting_objects{job=\"compute-metrics\",waits_for=\"platform\",reason!~\"").unwrap();
    let left_out: BTreeSet<&str> = rest.split_once('"').unwrap().0.split('|').collect();
    let of_deployments = |entry: &Entry| {
        let is = |seen: &Seen| matches!(seen, Seen::Condition { kind, .. } if kind.contains("Workload"));
        entry.seen_in.iter().any(is)
    };
    let mut counted = 0;
    for (reason, entry) in entries() {
        // They stand on what is being deleted, or on deployments that are ready.
        let has_no_wait = [Reason::DeletionWaits, Reason::CityLabelLost, Reason::DrainWaiting].contains(reason);
        if entry.who != Who::Platform || !of_deployments(entry) || has_no_wait {
            continue;
        }
        let names_it = entry.alerts.contains(&"ComputeDeploymentsBlocked");
        assert_ne!(names_it, left_out.contains(reason.as_str()), "{reason}");
        counted += usize::from(names_it);
    }
    assert!(
        counted > 20
            && left_out
                .iter()
                .all(|word| matches!(Reason::from(*word).entry(), Some(entry) if entry.who == Who::Platform))
    );
}
