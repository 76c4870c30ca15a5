use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Reasons that the Instances cycle through.
const REASONS: [&str; 3] = ["Resolving", "AwaitingPropagation", "Ready"];

/// Returns the number of series of a process with these namespaces and deployments in each.
fn series(namespaces: usize, deployments: usize) -> usize {
    let metrics = Metrics::default();
    for nth in 0..namespaces {
        let namespace = format!("ns-{nth:08x}-1111-2222-3333-444444444444");
        metrics.companions(&namespace, deployments, deployments);
        for wait in 0..deployments {
            metrics.waited_for_data(&namespace, Duration::from_millis(wait as u64));
            metrics.federated("hub_to_cell", Duration::from_millis(wait as u64));
            let (from, to) = (REASONS[wait % REASONS.len()], REASONS[(wait + 1) % REASONS.len()]);
            metrics.data_turned(&namespace, from, to);
            metrics.reconciled("workload", "success", Duration::from_millis(wait as u64));
            metrics.wrote("hub", "WorkloadDeployment", "apply");
        }
    }
    metrics.text().lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn series_grow_with_namespaces_and_not_with_deployments() {
    let few = series(10, 10);
    assert_eq!(few, series(10, 1000), "not with deployments");
    // Two gauges, a histogram (16 buckets, the last bound, sum and count), and the observed changes of reason.
    assert_eq!(series(200, 50) - few, 190 * (OF_A_NAMESPACE + REASONS.len()));
    let page = include_str!("../../docs/metrics.md");
    assert!(page.contains(&format!("{OF_A_NAMESPACE} series")), "the page has the number");
}

/// Series of one namespace of a cell, without the changes of reason.
const OF_A_NAMESPACE: usize = 2 + 19;

/// The histogram of a deleted namespace was kept in memory forever.
#[test]
fn forgotten_namespace_loses_its_series_and_others_keep_theirs() {
    let metrics = Metrics::default();
    for namespace in ["ns-gone", "ns-stays"] {
        metrics.companions(namespace, 2, 1);
        metrics.waited_for_data(namespace, Duration::from_secs(1));
        metrics.data_turned(namespace, "", "Resolving");
        metrics.data_turned(namespace, "Resolving", "Ready");
    }
    metrics.forget_namespace("ns-gone", &["Resolving", "Ready"]);
    let text = metrics.text();
    assert!(!text.contains("ns-gone"), "{text}");
    let left = text.lines().filter(|line| line.contains("ns-stays") && !line.contains("_bucket")).count();
    assert_eq!(left, 6, "two gauges, sum and count of the wait, two changes: {text}");
}

#[test]
fn gauges_of_tokens_and_cities_have_only_what_is_so_now() {
    let metrics = Metrics::default();
    let shown = |name: &str| {
        let text = metrics.text();
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line[name.len()..].to_owned()).collect::<Vec<_>>()
    };
    metrics.token(Host::Hub, Some(20), Some(10));
    assert_eq!(shown("compute_token_expiration_timestamp_seconds"), ["{host=\"hub\"} 20"]);
    assert_eq!(shown("compute_token_issue_timestamp_seconds"), ["{host=\"hub\"} 10"]);
    metrics.token(Host::Hub, Some(30), None);
    assert_eq!(shown("compute_token_expiration_timestamp_seconds"), ["{host=\"hub\"} 30"]);
    assert!(shown("compute_token_issue_timestamp_seconds").is_empty());
    metrics.token(Host::Hub, None, None);
    assert!(shown("compute_token_expiration_timestamp_seconds").is_empty(), "another token has no end");

    metrics.mislabelled([("a", "dfw"), ("b", "ord")]);
    metrics.mislabelled([("b", "ord")]);
    assert_eq!(shown("compute_federation_mislabelled_clusters"), ["{cluster=\"b\",city=\"ord\"} 1"]);
    metrics.unready([("a", "dfw")]);
    assert_eq!(shown("compute_federation_unready_clusters"), ["{cluster=\"a\",city=\"dfw\"} 1"]);
    metrics.drains([("a", "dfw", "waiting")]);
    metrics.drains([("a", "dfw", "failed")]);
    assert_eq!(shown("compute_federation_drains"), ["{cluster=\"a\",city=\"dfw\",state=\"failed\"} 1"]);
    metrics.unready([]);
    assert!(shown("compute_federation_unready_clusters").is_empty());

    let (counted, weak) = (AtomicUsize::new(0), Arc::downgrade(&metrics.0));
    metrics.is_refreshed_by(move || {
        let scrape = counted.fetch_add(1, Ordering::Relaxed);
        Metrics(weak.upgrade().unwrap()).waiting((scrape == 0).then_some(("NotApplied", "platform", "dfw", 3)));
    });
    let waiting = "{reason=\"NotApplied\",waits_for=\"platform\",city=\"dfw\"} 3";
    assert_eq!(shown("compute_waiting_objects"), [waiting]);
    assert!(shown("compute_waiting_objects").is_empty(), "it is counted for each scrape");
}
