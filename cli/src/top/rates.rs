//! Rates of the manager, from two reads of its metrics.

/// Counters of the manager, each summed over its labels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    reconciles: f64,
    failed: f64,
    writes: f64,
    queued: f64,
}

/// Rates between two reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Reconciles in a second.
    pub reconciles: f64,
    /// Failed reconciles in a second.
    pub failed: f64,
    /// Writes to API servers in a second.
    pub writes: f64,
    /// Keys that are ready to be reconciled.
    pub queued: f64,
}

impl Counters {
    /// Reads them in the text of `/metrics`. Metrics with labels that were never counted are absent, and count as 0.
    pub fn read(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let field = match name {
                "controller_runtime_reconcile_total" => &mut counters.reconciles,
                "controller_runtime_reconcile_errors_total" => &mut counters.failed,
                "compute_writes_total" => &mut counters.writes,
                "workqueue_depth" => &mut counters.queued,
                _ => continue,
            };
            // A label's value may have spaces: the number follows the last brace.
            let rest = line.rsplit_once('}').map_or_else(|| line.trim_start_matches(name), |(_, rest)| rest);
            let value = rest.split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
            *field += value.unwrap_or_default();
        }
        counters
    }
}

impl Rates {
    /// Returns the rates. `None` if the counters were reset in between, as by a change of the leader.
    pub fn between(before: &Counters, after: &Counters, seconds: f64) -> Option<Self> {
        let grown = after.reconciles >= before.reconciles
            && after.failed >= before.failed
            && after.writes >= before.writes
            && seconds > 0.0;
        grown.then(|| Self {
            reconciles: (after.reconciles - before.reconciles) / seconds,
            failed: (after.failed - before.failed) / seconds,
            writes: (after.writes - before.writes) / seconds,
            queued: after.queued,
        })
    }

    /// Returns the line of the screen.
    pub fn text(&self) -> String {
        let Self { reconciles, failed, writes, queued } = self;
        format!("{reconciles:.1} reconciles/s, {failed:.1} failed/s, {writes:.1} writes/s, {queued:.0} in queues")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP compute_writes Writes sent to API servers.
# TYPE compute_writes counter
compute_writes_total{plane="hub",kind="Secret } x",op="apply"} 40
compute_writes_total{plane="project",kind="Instance",op="apply"} 2
controller_runtime_reconcile_total{controller="federator",result="success"} 100
controller_runtime_reconcile_time_seconds_count{controller="federator"} 7
workqueue_depth{name="federator"} 3
process_start_time_seconds 1.7e9
"#;

    #[test]
    fn counters_are_sums_over_labels() {
        let read = Counters::read(TEXT);
        assert_eq!(read, Counters { reconciles: 100.0, failed: 0.0, writes: 42.0, queued: 3.0 });
    }

    #[test]
    fn rates_are_differences_by_time_and_unknown_after_a_restart() {
        let before = Counters::read(TEXT);
        let after = Counters { reconciles: 150.0, writes: 43.0, ..before };
        let rates = Rates::between(&before, &after, 10.0).unwrap();
        assert_eq!(rates.text(), "5.0 reconciles/s, 0.0 failed/s, 0.1 writes/s, 3 in queues");
        assert_eq!(Rates::between(&after, &before, 10.0), None);
        assert_eq!(Rates::between(&before, &after, 0.0), None);
    }

    #[test]
    fn metrics_are_those_of_the_operator() {
        let page = include_str!("../../../docs/metrics.md");
        for name in [
            "controller_runtime_reconcile_total",
            "controller_runtime_reconcile_errors_total",
            "compute_writes_total",
            "workqueue_depth",
        ] {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
            assert_ne!(Counters::read(&format!("{name} 1")), Counters::default(), "{name} is read");
        }
    }
}
