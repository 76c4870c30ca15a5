//! Quarantine of hub Instances that cannot be shown in a project. Each is reported once, after a grace in which missing objects
//! may arrive.

use std::time::{Duration, Instant};

use super::projection::Quarantine;

/// Record of a hub Instance that cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    uid: String,
    why: Quarantine,
    since: Instant,
    reported: bool,
}

impl Entry {
    /// Returns the cause of the quarantine. `None` until it has been reported.
    pub fn reported_as(&self) -> Option<Quarantine> {
        self.reported.then_some(self.why)
    }
}

/// Action for a hub Instance that cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It has been reported.
    Already,
    /// Report it now.
    Now,
    /// Check it again after this time: its place may still appear.
    After(Duration),
}

/// Judges an Instance by its earlier record (`before`), and returns its new record. Another object of the same name, or another
/// cause, starts a new grace. `grace`: how long the Instance must have been without a place.
pub fn judge(before: Option<&Entry>, uid: &str, why: Quarantine, grace: Duration, now: Instant) -> (Entry, Report) {
    let same = before.filter(|entry| entry.uid == uid && entry.why == why);
    let since = same.map_or(now, |entry| entry.since);
    let left = grace.saturating_sub(now.saturating_duration_since(since));
    let report = match same {
        Some(entry) if entry.reported => Report::Already,
        _ if left.is_zero() => Report::Now,
        _ => Report::After(left),
    };
    (Entry { uid: uid.to_owned(), why, since, reported: !matches!(report, Report::After(_)) }, report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::some_moment;

    #[test]
    fn quarantined_instance_is_reported_once_after_its_grace() {
        use Quarantine::{DeploymentAbsent, ProjectAbsent};
        let (start, grace) = (some_moment(), Duration::from_secs(5));
        let at = |seconds| start + Duration::from_secs(seconds);
        let after = |seconds| Report::After(Duration::from_secs(seconds));
        let mut entry: Option<Entry> = None;
        for (second, uid, why, expected, what) in [
            (0, "a", DeploymentAbsent, after(5), "the missing object may arrive"),
            (3, "a", DeploymentAbsent, after(2), "the time counts from the first reconcile"),
            (4, "a", ProjectAbsent, after(5), "another cause starts a new grace"),
            (9, "a", ProjectAbsent, Report::Now, "its grace is over"),
            (10, "a", ProjectAbsent, Report::Already, "once is enough"),
            (11, "b", ProjectAbsent, after(5), "a recreated object starts a new grace"),
            (99, "b", ProjectAbsent, Report::Now, "late, but once"),
            (99, "b", ProjectAbsent, Report::Already, "once is enough"),
        ] {
            let (next, report) = judge(entry.as_ref(), uid, why, grace, at(second));
            assert_eq!(report, expected, "second {second}: {what}");
            let reported = (report == Report::Now || report == Report::Already).then_some(why);
            assert_eq!(next.reported_as(), reported, "second {second}");
            entry = Some(next);
        }
        let (_, report) = judge(None, "c", DeploymentAbsent, Duration::ZERO, start);
        assert_eq!(report, Report::Now, "without a grace at once");
    }
}
