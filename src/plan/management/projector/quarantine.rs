//! When a hub Instance that cannot be shown in a project is put into quarantine and reported: once, and only after what
//! is missing has had the time to come.

use std::time::{Duration, Instant};

use super::projection::Quarantine;

/// What is remembered of a hub Instance that cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    uid: String,
    why: Quarantine,
    since: Instant,
    reported: bool,
}

impl Entry {
    /// Why it is in quarantine; nothing before that has been reported.
    pub fn reported_as(&self) -> Option<Quarantine> {
        self.reported.then_some(self.why)
    }
}

/// What is to be done about a hub Instance that cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Nothing: it has been reported.
    Already,
    /// It is to be reported now.
    Now,
    /// It may still find its place: look again after this long.
    After(Duration),
}

/// Judges an Instance by what was remembered of it (`before`); answers with what is to be remembered from now on.
/// Another object of its name, or another cause, begins anew. `grace`: how long it must have had no place.
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
    fn it_is_reported_once_and_not_before_its_grace() {
        use Quarantine::{DeploymentAbsent, ProjectAbsent};
        let (start, grace) = (some_moment(), Duration::from_secs(5));
        let at = |seconds| start + Duration::from_secs(seconds);
        let after = |seconds| Report::After(Duration::from_secs(seconds));
        let mut entry: Option<Entry> = None;
        for (second, uid, why, expected, what) in [
            (0, "a", DeploymentAbsent, after(5), "what it lacks may be on its way"),
            (3, "a", DeploymentAbsent, after(2), "the time counts from the first look"),
            (4, "a", ProjectAbsent, after(5), "another cause begins anew"),
            (9, "a", ProjectAbsent, Report::Now, "its grace is over"),
            (10, "a", ProjectAbsent, Report::Already, "once is enough"),
            (11, "b", ProjectAbsent, after(5), "a namesake begins anew"),
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
