//! Every period after which the operator decides something, in one value.
//!
//! Periods of the transport (call deadlines, queue back-off) are defined where they are used. The periods here matter to a person
//! on call, or to a test. Production runs with [`Timing::default`]. The section `timing` of the config file shortens them for
//! tests.

use std::{collections::BTreeMap, time::Duration};

/// Builds [`Timing`] from one table, so that a period without a key in the config file, or without a default, does not compile.
macro_rules! periods {
    ($($(#[doc = $doc:literal])* $field:ident, $key:literal, $default:expr;)*) => {
        /// The operator's periods.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct Timing {
            $($(#[doc = $doc])* pub $field: Duration,)*
        }

        impl Default for Timing {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Timing {
            /// Keys of the config file's section; each value is a number of seconds.
            pub const KEYS: &'static [&'static str] = &[$($key,)*];

            /// Returns the defaults with these values, in seconds.
            ///
            /// # Errors
            /// The first key that does not exist, or whose value is no length of time, as a message for the author of the file.
            pub fn with(seconds: &BTreeMap<String, f64>) -> Result<Self, String> {
                let mut timing = Self::default();
                for (key, seconds) in seconds {
                    let period = Duration::try_from_secs_f64(*seconds)
                        .map_err(|_| format!("timing.{key} {seconds}: want a number of seconds"))?;
                    match key.as_str() {
                        $($key => timing.$field = period,)*
                        other => return Err(format!("timing.{other}: no such period; there are {}", Self::KEYS.join(", "))),
                    }
                }
                Ok(timing)
            }
        }
    };
}

periods! {
    /// A deployment must be blocked this long before that is reported: bindings, schedules and copies take time. Three times as
    /// long if it was never delivered and Karmada gives no reason.
    delivery_grace, "deliveryGraceSeconds", Duration::from_secs(5);
    /// Work on an object must fail this long before any error is reported on the object that its user reads.
    error_grace, "errorGraceSeconds", Duration::from_secs(20);
    /// A deletion must wait this long for the hub, or for a blocked copy there, before its cause is reported.
    deletion_patience, "deletionPatienceSeconds", Duration::from_mins(2);
    /// A cluster must be away this long before readiness there is Unknown.
    cluster_silence, "clusterSilenceSeconds", Duration::from_mins(2);
    /// Pause before the operator writes its field again, if another client reverts it repeatedly.
    takeover_pause, "takeoverPauseSeconds", Duration::from_mins(1);
    /// Wait after the first repair that did not help; later waits are longer.
    repair_backoff_base, "repairBackoffBaseSeconds", Duration::from_secs(5);
    /// Wait before something that was never delivered is touched, one deployment at a time. The next one follows once it has
    /// arrived, or after a tenth of this.
    never_delivered_repair, "neverDeliveredRepairSeconds", Duration::from_mins(10);
    /// Interval of reads of a source that waits for something no watch shows: rights, and names that other objects hold.
    source_retry, "sourceRetrySeconds", Duration::from_secs(10);
    /// Longest wait of an unneeded city policy for the companions that it still claims.
    policy_claim_release, "policyClaimReleaseSeconds", Duration::from_mins(2);
    /// Interval of reconciles of a city policy that waits for something in memory, besides events.
    policy_poll, "policyPollSeconds", Duration::from_secs(5);
    /// Longest time for Karmada to show that it propagates dependencies; usually that takes a second.
    probe_timeout, "probeTimeoutSeconds", Duration::from_secs(30);
    /// How long the choice of the policy that probes Karmada is valid.
    probe_election_ttl, "probeElectionTtlSeconds", Duration::from_secs(1);
    /// Longest time for a hub namespace's part of a city to arrive on the target cluster of a drain. Then it is moved back.
    drain_arrival, "drainArrivalSeconds", Duration::from_mins(10);
    /// Interval at which a drain asks the scheduler again to move what is left.
    drain_retry, "drainRetrySeconds", Duration::from_mins(1);
    /// Time between the warning and the loss of data in a rollback to claims.
    rollback_warning, "rollbackWarningSeconds", Duration::from_secs(30);
    /// A hub Instance must be without a place this long before it is quarantined: its deployment may arrive later.
    quarantine_grace, "quarantineGraceSeconds", Duration::from_secs(5);
    /// A claim must be unevaluated this long before `QuotaNoBudget` is reported.
    quota_no_budget, "quotaNoBudgetSeconds", Duration::from_secs(15);
    /// Wait of an Instance with only optional data under the Go operator, which announces nothing if none of that data exists.
    optional_data, "optionalDataSeconds", Duration::from_mins(1);
    /// Longest wait of a terminating Instance for the release of its ResourceClaim while the quota backend is away.
    quota_claim_release, "quotaClaimReleaseSeconds", Duration::from_hours(2);
    /// The same wait, if the backend does not know the project or the namespace does not name it.
    quota_project_gone, "quotaProjectGoneSeconds", Duration::from_mins(2);
    /// Longest time for a project's watch of ResourceClaims to start; then claims are read one by one.
    quota_watch_patience, "quotaWatchPatienceSeconds", Duration::from_secs(2);
    /// Interval of reads of a network object that no watch shows.
    network_retry, "networkRetrySeconds", Duration::from_secs(5);
    /// Time between taking over another cell's write-back and recreating it.
    write_back_recreate, "writeBackRecreateSeconds", Duration::from_millis(200);
    /// Interval of checks of a write-back that belongs to another cell.
    write_back_contested, "writeBackContestedSeconds", Duration::from_secs(30);
    /// Time for which a copy on the hub is kept after its original vanished without a deletion that the operator saw. An etcd may
    /// have been restored.
    loss_patience, "lossPatienceSeconds", Duration::from_hours(1);
    /// Time for Karmada to remove the Work of a deleted object before the delay is reported. It takes a second if the cluster
    /// answers.
    work_removal, "workRemovalSeconds", Duration::from_mins(1);
    /// How long an API server keeps one watch call open.
    watch_lifetime, "watchLifetimeSeconds", Duration::from_secs(40);
    /// A watch call that delivers nothing for this long has outlived its end: the connection is dead.
    watch_silence, "watchSilenceSeconds", Duration::from_secs(45);
    /// How long the hub keeps one watch call of management open. A silent hub affects every tenant and must be reported within
    /// seconds.
    hub_watch_lifetime, "hubWatchLifetimeSeconds", Duration::from_secs(8);
    /// A watch call of the hub that delivers nothing for this long has outlived its end: the connection is dead.
    hub_watch_silence, "hubWatchSilenceSeconds", Duration::from_secs(10);
    /// Time for a server to answer after one of its watches went silent, before the server counts as silent.
    silence_proof, "silenceProofSeconds", Duration::from_secs(3);
    /// A watch that failed must stay quiet this long to count as recovered.
    watch_proof, "watchProofSeconds", Duration::from_secs(1);
    /// Longest wait between two attempts of a failing watch.
    watch_retry_max, "watchRetryMaxSeconds", Duration::from_secs(5);
    /// Longest wait between two attempts of a failing watch of one tenant among many.
    tenant_watch_retry_max, "tenantWatchRetryMaxSeconds", Duration::from_secs(15);
    /// How long a Lease is held without being renewed.
    lease_duration, "leaseDurationSeconds", Duration::from_secs(15);
    /// How long a leader tries to renew before it gives up its work.
    lease_renew_deadline, "leaseRenewDeadlineSeconds", Duration::from_secs(10);
    /// Between two attempts at the Lease.
    lease_retry, "leaseRetrySeconds", Duration::from_secs(2);
}

impl Timing {
    /// True if an error that has lasted so long is to be reported.
    #[must_use]
    pub fn outlasts_grace(&self, lasted: Duration) -> bool {
        lasted >= self.error_grace
    }

    /// Returns the timing for management's watches of the hub, which all tenants share.
    #[must_use]
    pub fn of_hub_watches(self) -> Self {
        Self { watch_lifetime: self.hub_watch_lifetime, watch_silence: self.hub_watch_silence, ..self }
    }
}

/// Returns a moment for tests to count from: the tested code reads no clock.
#[cfg(test)]
pub(crate) fn some_moment() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of production. People on call notice a change of any of them.
    #[test]
    fn default_timing_has_the_values_of_production() {
        let timing = Timing::default();
        let table = [
            (timing.delivery_grace, 5_000),
            (timing.error_grace, 20_000),
            (timing.deletion_patience, 120_000),
            (timing.cluster_silence, 120_000),
            (timing.takeover_pause, 60_000),
            (timing.repair_backoff_base, 5_000),
            (timing.never_delivered_repair, 600_000),
            (timing.source_retry, 10_000),
            (timing.policy_claim_release, 120_000),
            (timing.policy_poll, 5_000),
            (timing.probe_timeout, 30_000),
            (timing.probe_election_ttl, 1_000),
            (timing.drain_arrival, 600_000),
            (timing.drain_retry, 60_000),
            (timing.rollback_warning, 30_000),
            (timing.quarantine_grace, 5_000),
            (timing.quota_no_budget, 15_000),
            (timing.optional_data, 60_000),
            (timing.quota_claim_release, 7_200_000),
            (timing.quota_project_gone, 120_000),
            (timing.quota_watch_patience, 2_000),
            (timing.network_retry, 5_000),
            (timing.write_back_recreate, 200),
            (timing.write_back_contested, 30_000),
            (timing.loss_patience, 3_600_000),
            (timing.work_removal, 60_000),
            (timing.watch_lifetime, 40_000),
            (timing.watch_silence, 45_000),
            (timing.hub_watch_lifetime, 8_000),
            (timing.hub_watch_silence, 10_000),
            (timing.silence_proof, 3_000),
            (timing.watch_proof, 1_000),
            (timing.watch_retry_max, 5_000),
            (timing.tenant_watch_retry_max, 15_000),
            (timing.lease_duration, 15_000),
            (timing.lease_renew_deadline, 10_000),
            (timing.lease_retry, 2_000),
        ];
        for (period, milliseconds) in table {
            assert_eq!(period, Duration::from_millis(milliseconds));
        }
        assert_eq!(table.len(), Timing::KEYS.len(), "each period has a row");
    }

    #[test]
    fn default_timing_of_related_periods_is_ordered() {
        let timing = Timing::default();
        assert!(timing.watch_lifetime < timing.watch_silence && timing.hub_watch_lifetime < timing.hub_watch_silence);
        assert!(
            timing.lease_retry < timing.lease_renew_deadline && timing.lease_renew_deadline < timing.lease_duration
        );
    }

    #[test]
    fn silent_hub_is_reported_on_deployments_within_twenty_seconds() {
        let Timing { hub_watch_silence, silence_proof, delivery_grace, .. } = Timing::default();
        // Each deployment reports it at its own time. The latest is three times the grace after the last answer of the hub, or an
        // unanswered question.
        assert!(hub_watch_silence.max(delivery_grace * 3) + silence_proof < Duration::from_secs(20));
    }

    #[test]
    fn given_period_replaces_the_default_and_unknown_key_is_refused() {
        let given = |key: &str, seconds: f64| Timing::with(&[(key.to_owned(), seconds)].into());
        let shorter = given("deliveryGraceSeconds", 0.5).unwrap();
        assert_eq!(shorter, Timing { delivery_grace: Duration::from_millis(500), ..Timing::default() });
        assert!(given("nothing", 1.0).unwrap_err().contains("no such period; there are deliveryGraceSeconds, "));
        assert_eq!(
            given("leaseRetrySeconds", -1.0).unwrap_err(),
            "timing.leaseRetrySeconds -1: want a number of seconds"
        );
    }
}
