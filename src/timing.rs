//! Every period after which the operator decides something, in one value.
//!
//! Periods of the transport (call deadlines, queue back-off) are defined where they are used. The periods here matter to a person
//! on call, or to a test. What follows from them is a method. Production runs with [`Timing::default`]. The section `timing` of the
//! config file shortens them for tests.

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
    /// long if it was never delivered and Karmada gives no reason. A hub Instance must be without a place this long before it is
    /// quarantined.
    delivery_grace, "deliveryGraceSeconds", Duration::from_secs(5);
    /// Work on an object must fail this long before any error is reported on the object that its user reads. A claim must be
    /// unevaluated this long before `QuotaNoBudget` is reported.
    error_grace, "errorGraceSeconds", Duration::from_secs(20);
    /// A deletion must wait this long for another object before its cause is reported. An unneeded city policy then stops waiting
    /// for the companions that it claims, and an Instance of an unknown project stops waiting for its ResourceClaim.
    deletion_patience, "deletionPatienceSeconds", Duration::from_mins(2);
    /// A cluster must be away this long before readiness there is Unknown.
    cluster_silence, "clusterSilenceSeconds", Duration::from_mins(2);
    /// Longest time for Karmada to deliver something. Then a deployment that was never delivered is touched, one at a time, and a
    /// namespace that a drain has moved is moved back. One attempt has a tenth of this.
    arrival, "arrivalSeconds", Duration::from_mins(10);
    /// Time for which a copy on the hub is kept after its original vanished without a deletion that the operator saw. An etcd may
    /// have been restored.
    loss_patience, "lossPatienceSeconds", Duration::from_hours(1);
    /// Longest wait of a terminating Instance for the release of its ResourceClaim while the quota backend is away.
    quota_claim_release, "quotaClaimReleaseSeconds", Duration::from_hours(2);
    /// Wait of an Instance with only optional data under the Go operator, which announces nothing if none of that data exists.
    optional_data, "optionalDataSeconds", Duration::from_mins(1);
    /// Longest time for Karmada to show that it brings dependencies. Usually that takes a second. Also the time between the
    /// warning and the loss of data in a rollback to claims.
    migration_step, "migrationStepSeconds", Duration::from_secs(30);
    /// Pause before the operator writes its field again, if another client reverts it repeatedly.
    takeover_pause, "takeoverPauseSeconds", Duration::from_mins(1);
    /// Interval of checks of something that no event reports. A source of data is read at each second interval, and the hub for a
    /// write-back of another cell at each sixth.
    poll, "pollSeconds", Duration::from_secs(5);
    /// How long an API server keeps one watch call open. If the call then stays silent for an eighth of this, at least two seconds,
    /// the connection is dead.
    watch_lifetime, "watchLifetimeSeconds", Duration::from_secs(40);
    /// The same for management's watches of the hub. A silent hub affects every tenant and must be reported within seconds.
    hub_watch_lifetime, "hubWatchLifetimeSeconds", Duration::from_secs(8);
    /// Longest wait between two attempts of a failing watch. Three times as long for a watch of one tenant among many.
    watch_retry_max, "watchRetryMaxSeconds", Duration::from_secs(5);
    /// How long a Lease is held without being renewed. The leader tries to renew it for two thirds of this.
    lease_duration, "leaseDurationSeconds", Duration::from_secs(15);
}

impl Timing {
    /// True if an error that has lasted so long is to be reported.
    #[must_use]
    pub fn outlasts_grace(&self, lasted: Duration) -> bool {
        lasted >= self.error_grace
    }

    /// Returns the time in which one attempt to deliver something shows its effect. The next attempt follows after it.
    #[must_use]
    pub fn attempt(&self) -> Duration {
        self.arrival / 10
    }

    /// Returns the periods of a watch.
    #[must_use]
    pub fn watches(&self) -> WatchTiming {
        WatchTiming::new(self.watch_lifetime, self.watch_retry_max)
    }

    /// Returns the periods of management's watches of the hub, which all tenants share.
    #[must_use]
    pub fn hub_watches(&self) -> WatchTiming {
        WatchTiming::new(self.hub_watch_lifetime, self.watch_retry_max)
    }
}

/// The periods of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTiming {
    /// How long the server keeps one call open.
    pub lifetime: Duration,
    /// A call that delivers nothing for this long has outlived its end: the connection is dead.
    pub silence: Duration,
    /// Longest wait between two attempts, if it fails.
    pub retry_max: Duration,
}

impl WatchTiming {
    fn new(lifetime: Duration, retry_max: Duration) -> Self {
        Self { lifetime, silence: lifetime + (lifetime / 8).max(Duration::from_secs(2)), retry_max }
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
            (timing.delivery_grace, 5),
            (timing.error_grace, 20),
            (timing.deletion_patience, 120),
            (timing.cluster_silence, 120),
            (timing.arrival, 600),
            (timing.loss_patience, 3_600),
            (timing.quota_claim_release, 7_200),
            (timing.optional_data, 60),
            (timing.migration_step, 30),
            (timing.takeover_pause, 60),
            (timing.poll, 5),
            (timing.watch_lifetime, 40),
            (timing.hub_watch_lifetime, 8),
            (timing.watch_retry_max, 5),
            (timing.lease_duration, 15),
        ];
        for (period, seconds) in table {
            assert_eq!(period, Duration::from_secs(seconds));
        }
        assert_eq!(table.len(), Timing::KEYS.len(), "each period has a row");
        let silences = [timing.watches(), timing.hub_watches()].map(|watch| watch.silence.as_secs());
        assert_eq!((timing.attempt().as_secs(), silences), (60, [45, 10]), "derived periods");
    }

    #[test]
    fn given_period_replaces_the_default_and_unknown_key_is_refused() {
        let given = |key: &str, seconds: f64| Timing::with(&[(key.to_owned(), seconds)].into());
        let shorter = given("deliveryGraceSeconds", 0.5).unwrap();
        assert_eq!(shorter, Timing { delivery_grace: Duration::from_millis(500), ..Timing::default() });
        for unknown in ["nothing", "leaseRetrySeconds"] {
            assert!(given(unknown, 1.0).unwrap_err().contains("no such period; there are deliveryGraceSeconds, "));
        }
        assert_eq!(given("arrivalSeconds", -1.0).unwrap_err(), "timing.arrivalSeconds -1: want a number of seconds");
    }
}
