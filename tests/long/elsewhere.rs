//! Metrics that are not exported while Prometheus scrapes, and the tests that check them instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::common::path;

/// Metrics that are not exported while `prometheus.rs` scrapes. Each has the file under `tests/` and the name of the test that
/// provokes it.
pub const ELSEWHERE: [(&str, &str, &str); 20] = [
    (
        "compute_fields_taken_over_total",
        "long/go_era/mod.rs",
        "go_federation_taken_over_with_cuts_keeps_running_and_follows_changes",
    ),
    ("compute_contested_objects", "long/two_managers.rs", "two_managers_of_one_cell_slow_down_their_conflict"),
    ("compute_watch_replaced_total", "it/disruption.rs", "silent_watch_is_replaced_and_delays_no_other"),
    (
        "compute_undecodable_objects_total",
        "it/disruption.rs",
        "undecodable_deployment_is_reported_and_affects_no_other",
    ),
    ("compute_quota_eval_failures_total", "it/cells/quota.rs", "quota_reasons_appear_and_disappear"),
    ("compute_quota_unanswered_instances", "it/metrics.rs", "metrics_change_when_provoked"),
    (
        "compute_quota_claim_orphaned_total",
        "it/cells/quota.rs",
        "quota_claim_of_a_deleted_project_is_orphaned_and_reported",
    ),
    (
        "compute_federation_quarantined_objects",
        "it/refusals.rs",
        "instance_refused_by_a_project_is_shown_after_the_cause_ends",
    ),
    (
        "compute_federation_guard_given_up_total",
        "it/claim_timeout.rs",
        "city_policy_waits_for_claimed_companions_until_its_timeout",
    ),
    (
        "compute_federation_bindings_reaped_total",
        "it/cleanup.rs",
        "sweep_with_an_undeletable_binding_deletes_the_others",
    ),
    (
        "compute_federation_left_on_clusters",
        "long/left_on_clusters.rs",
        "works_of_deleted_objects_are_reported_and_forgotten_ones_deleted",
    ),
    (
        "compute_federation_works_removed_total",
        "long/left_on_clusters.rs",
        "works_of_deleted_objects_are_reported_and_forgotten_ones_deleted",
    ),
    (
        "compute_deletions_paused",
        "long/restored.rs",
        "copies_without_original_in_a_restored_project_are_kept_for_the_grace",
    ),
    ("compute_federation_drains", "long/drains.rs", "drain_with_an_obstacle_loses_nothing_reports_and_continues"),
    ("compute_federation_mislabelled_clusters", "it/metrics.rs", "metrics_change_when_provoked"),
    ("compute_federation_unready_clusters", "long/faults/delivery.rs", "delivery_faults_are_named_in_time_and_mended"),
    (
        "compute_token_expiration_timestamp_seconds",
        "it/credentials.rs",
        "kubeconfig_changed_is_reloaded_and_broken_is_reported",
    ),
    (
        "compute_token_issue_timestamp_seconds",
        "it/credentials.rs",
        "kubeconfig_changed_is_reloaded_and_broken_is_reported",
    ),
    ("compute_kubeconfig_unusable", "it/credentials.rs", "kubeconfig_changed_is_reloaded_and_broken_is_reported"),
    (
        "compute_certificate_expiration_timestamp_seconds",
        "it/metrics_access.rs",
        "metrics_are_readable_only_with_permission_of_the_api_server",
    ),
];

/// Returns the functions of a file and its top-level constants, by name, with their text.
fn items(text: &str) -> BTreeMap<&str, &str> {
    let words = ["fn ", "\nconst "].iter().flat_map(|word| text.match_indices(word));
    let starts: BTreeSet<usize> = words.map(|(at, word)| at + word.len()).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let of = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]);
    of.map(|item| (item.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default(), item)).collect()
}

#[test]
fn metrics_provoked_elsewhere_are_checked_by_the_named_test() {
    for (metric, file, test) in ELSEWHERE {
        let text = fs::read_to_string(path("tests").join(file)).unwrap();
        assert!(text.contains(&format!("#[test]\nfn {test}() {{")), "{metric}: {file} has no test {test}");
        let items = items(&text);
        // The metric is named in the test, or in a function or constant that the test uses directly or indirectly.
        let (mut reached, mut next) = (BTreeSet::new(), vec![test]);
        while let Some(name) = next.pop() {
            reached.insert(name);
            let words = items[name].split(|c: char| !(c.is_alphanumeric() || c == '_'));
            next.extend(words.filter(|word| items.contains_key(word) && !reached.contains(word)));
        }
        let names_it = reached.iter().any(|name| items[name].contains(metric));
        assert!(names_it, "{metric}: {test} of {file} does not look at it");
    }
}
