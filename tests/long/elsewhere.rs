//! Which metrics are not told while Prometheus scrapes, and who looks at them instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::common::path;

/// What is not told while `prometheus.rs` scrapes, with the test that has it told: its file under `tests/`, and its name there.
pub const ELSEWHERE: [(&str, &str, &str); 16] = [
    (
        "compute_fields_taken_over_total",
        "long/go_era/mod.rs",
        "a_federation_that_go_has_written_runs_on_wherever_its_taking_over_is_cut_and_follows",
    ),
    ("compute_contested_objects", "long/two_managers.rs", "two_managers_of_one_cell_do_not_fight_at_full_speed"),
    ("compute_watch_replaced_total", "it/disruption.rs", "a_watch_that_goes_silent_is_replaced_and_delays_no_other"),
    (
        "compute_undecodable_objects_total",
        "it/disruption.rs",
        "a_deployment_nobody_can_decode_is_reported_and_disturbs_no_other",
    ),
    ("compute_quota_eval_failures_total", "it/cells/quota.rs", "every_reason_of_quota_appears_and_disappears"),
    ("compute_quota_unanswered_instances", "it/metrics.rs", "every_metric_moves_when_it_is_provoked"),
    (
        "compute_quota_claim_orphaned_total",
        "it/cells/quota.rs",
        "a_claim_whose_project_is_gone_for_good_is_left_behind_and_reported",
    ),
    (
        "compute_federation_quarantined_objects",
        "it/refusals.rs",
        "an_instance_that_a_project_refused_is_shown_once_the_cause_has_ended",
    ),
    (
        "compute_federation_guard_given_up_total",
        "it/claim_timeout.rs",
        "a_city_policy_waits_for_what_it_claims_and_gives_up_in_the_end",
    ),
    (
        "compute_federation_bindings_reaped_total",
        "it/cleanup.rs",
        "a_binding_that_the_hub_does_not_let_go_keeps_no_other_from_the_sweep",
    ),
    (
        "compute_federation_left_on_clusters",
        "long/left_on_clusters.rs",
        "what_karmada_keeps_of_what_is_deleted_is_told_and_what_it_forgot_goes",
    ),
    (
        "compute_federation_works_removed_total",
        "long/left_on_clusters.rs",
        "what_karmada_keeps_of_what_is_deleted_is_told_and_what_it_forgot_goes",
    ),
    (
        "compute_deletions_paused",
        "long/restored.rs",
        "what_a_restored_project_lacks_is_not_deleted_before_it_is_clear_why",
    ),
    (
        "compute_federation_drains",
        "long/drains.rs",
        "a_drain_that_cannot_be_carried_out_loses_nothing_waits_aloud_and_goes_on",
    ),
    ("compute_kubeconfig_unusable", "it/credentials.rs", "kubeconfig_that_changes_is_read_again_and_a_broken_one_told"),
    (
        "compute_certificate_expiration_timestamp_seconds",
        "it/metrics_access.rs",
        "metrics_are_for_whom_the_api_server_allows_them",
    ),
];

/// The functions of a file, and the constants outside of them, each by its name, with its text.
fn items(text: &str) -> BTreeMap<&str, &str> {
    let words = ["fn ", "\nconst "].iter().flat_map(|word| text.match_indices(word));
    let starts: BTreeSet<usize> = words.map(|(at, word)| at + word.len()).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let of = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]);
    of.map(|item| (item.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default(), item)).collect()
}

#[test]
fn what_is_told_elsewhere_is_looked_at_by_the_test_that_is_named() {
    for (metric, file, test) in ELSEWHERE {
        let text = fs::read_to_string(path("tests").join(file)).unwrap();
        assert!(text.contains(&format!("#[test]\nfn {test}() {{")), "{metric}: {file} has no test {test}");
        let items = items(&text);
        // The test itself names the metric, or somebody does whom it calls, or who is called by these.
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
