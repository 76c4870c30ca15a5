//! Every period that the operator waits before it decides something, in one value.
//!
//! Periods of the transport (deadlines of a call, back-off of a queue) stand where they are used; these are the ones that
//! a person on call, or a test, may want to know together. Production runs with [`Timing::default`]; the section `timing`
//! of the config file shortens them for tests.

use std::{collections::BTreeMap, time::Duration};

/// Builds [`Timing`] from one table, so that a period without a name in the config file, or without a default, does not
/// compile.
macro_rules! periods {
    ($($(#[doc = $doc:literal])* $field:ident, $key:literal, $default:expr;)*) => {
        /// How long to wait, for each thing that is waited for.
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
            /// The keys of the config file's section, each a number of seconds.
            pub const KEYS: &'static [&'static str] = &[$($key,)*];

            /// The defaults, with these seconds in their place.
            ///
            /// # Errors
            /// The first key that is none, or whose value is no length of time, in words for whoever wrote it.
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
    /// How long a deployment must be blocked on its way to the cell before that is reported: bindings, schedules and
    /// copies take their moment. Three times that where it was never there and Karmada says nothing.
    delivery_grace, "deliveryGraceSeconds", Duration::from_secs(5);
    /// How long work on an object may fail before that is reported on the object that its user looks at, whatever the error is.
    error_grace, "errorGraceSeconds", Duration::from_secs(20);
    /// How long a deletion may wait for the hub, or for what holds the copy there, before it is told by whom it is held.
    deletion_patience, "deletionPatienceSeconds", Duration::from_mins(2);
    /// How long a cluster must have been away before nobody knows any more whether what is there is ready.
    cluster_silence, "clusterSilenceSeconds", Duration::from_mins(2);
    /// How long what somebody else writes into a spec or a status that is ours stays his, when he does so again and again.
    takeover_pause, "takeoverPauseSeconds", Duration::from_mins(1);
    /// How long to wait after the first repair that did not help; later ones wait longer.
    repair_backoff_base, "repairBackoffBaseSeconds", Duration::from_secs(5);
    /// How long something that was never delivered is waited for before it is touched. One deployment at a time is: the next once it
    /// has arrived, or after a tenth of this.
    never_delivered_repair, "neverDeliveredRepairSeconds", Duration::from_mins(10);
    /// How often a source is read again whose reading no watch can announce: rights, and names that others hold.
    source_retry, "sourceRetrySeconds", Duration::from_secs(10);
    /// How long a city policy that nobody needs waits for the companions that it still claims.
    policy_claim_release, "policyClaimReleaseSeconds", Duration::from_mins(2);
    /// How often a city policy that waits for something in memory looks again, beside the events.
    policy_poll, "policyPollSeconds", Duration::from_secs(5);
    /// How long Karmada may take to show that it brings dependencies; it does within a second.
    probe_timeout, "probeTimeoutSeconds", Duration::from_secs(30);
    /// How long the choice of the policy that asks Karmada stands.
    probe_election_ttl, "probeElectionTtlSeconds", Duration::from_secs(1);
    /// How long a hub namespace's part of a city may take to arrive on the cluster that a drain sends it to, before it is
    /// brought back.
    drain_arrival, "drainArrivalSeconds", Duration::from_mins(10);
    /// How long after a drain has asked the scheduler it asks again, for what was left where it was.
    drain_retry, "drainRetrySeconds", Duration::from_mins(1);
    /// How long a warning stands before the rollback to claims takes data away.
    rollback_warning, "rollbackWarningSeconds", Duration::from_secs(30);
    /// How long a hub Instance must have had no place before it is quarantined: its deployment may come after it.
    quarantine_grace, "quarantineGraceSeconds", Duration::from_secs(5);
    /// How long quota may leave a claim unevaluated before `QuotaNoBudget` is reported.
    quota_no_budget, "quotaNoBudgetSeconds", Duration::from_secs(15);
    /// How long an Instance waits that refers to optional data alone, of which the Go operator says nothing at all: it says
    /// nothing either where none of it exists.
    optional_data, "optionalDataSeconds", Duration::from_mins(1);
    /// How long a deleted Instance waits for the release of its ResourceClaim while its quota backend is away.
    quota_claim_release, "quotaClaimReleaseSeconds", Duration::from_hours(2);
    /// How long it waits when the project is not known: to the backend, or because its namespace does not say which it is.
    quota_project_gone, "quotaProjectGoneSeconds", Duration::from_mins(2);
    /// How long a project's watch of ResourceClaims may take before claims are read one by one.
    quota_watch_patience, "quotaWatchPatienceSeconds", Duration::from_secs(2);
    /// How often a network object is looked at again that no watch shows.
    network_retry, "networkRetrySeconds", Duration::from_secs(5);
    /// Between taking over another cell's write-back and making it anew.
    write_back_recreate, "writeBackRecreateSeconds", Duration::from_millis(200);
    /// Between two looks at a write-back that is another cell's.
    write_back_contested, "writeBackContestedSeconds", Duration::from_secs(30);
    /// How long deletions wait at most where many known objects are missing after a list.
    loss_patience, "lossPatienceSeconds", Duration::from_mins(10);
    /// How long Karmada may take to remove the Work of what is deleted before that is told; it does so within a second where
    /// the cluster answers.
    work_removal, "workRemovalSeconds", Duration::from_mins(1);
    /// How long the server keeps one watch call open.
    watch_lifetime, "watchLifetimeSeconds", Duration::from_secs(40);
    /// A watch call that has delivered nothing for this long outlived its end: the connection is dead.
    watch_silence, "watchSilenceSeconds", Duration::from_secs(45);
    /// How long the hub keeps one watch call of management open: what is silent there concerns everybody, and is to be told
    /// within seconds.
    hub_watch_lifetime, "hubWatchLifetimeSeconds", Duration::from_secs(8);
    /// A watch call of the hub that has delivered nothing for this long outlived its end: the connection is dead.
    hub_watch_silence, "hubWatchSilenceSeconds", Duration::from_secs(10);
    /// How long a server may take to answer when one of its watches went over its time, before it counts as silent.
    silence_proof, "silenceProofSeconds", Duration::from_secs(3);
    /// How long a watch that failed before must stay quiet to count as recovered.
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

    /// The same for management's watches of the hub, which all tenants share.
    #[must_use]
    pub fn of_hub_watches(self) -> Self {
        Self { watch_lifetime: self.hub_watch_lifetime, watch_silence: self.hub_watch_silence, ..self }
    }
}

/// Some moment, for tests to count from: what is tested reads no clock of its own.
#[cfg(test)]
pub(crate) fn some_moment() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What production waits for; a change here is a change that people on call will notice.
    #[test]
    fn production_waits_this_long() {
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
            (timing.loss_patience, 600_000),
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
    fn periods_that_belong_together_fit() {
        let timing = Timing::default();
        assert!(timing.watch_lifetime < timing.watch_silence && timing.hub_watch_lifetime < timing.hub_watch_silence);
        assert!(
            timing.lease_retry < timing.lease_renew_deadline && timing.lease_renew_deadline < timing.lease_duration
        );
    }

    #[test]
    fn a_silent_hub_is_told_on_deployments_within_twenty_seconds() {
        let Timing { hub_watch_silence, silence_proof, delivery_grace, .. } = Timing::default();
        // Each deployment says so at a moment of its own, three times the grace after the hub was heard last at the latest,
        // or once it has not answered a question either.
        assert!(hub_watch_silence.max(delivery_grace * 3) + silence_proof < Duration::from_secs(20));
    }

    #[test]
    fn what_is_given_replaces_the_default_and_what_is_none_is_refused() {
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
