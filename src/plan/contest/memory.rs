//! Memory of writes that another client may revert.

use std::time::Duration;

use jiff::Timestamp;

use crate::plan::{Next, Object, Standing};

/// Number of reverts in a row after which a write is repeated at once.
const AT_ONCE: u32 = 3;
/// Number of longest waits after which a write that the server does not keep is repeated. Its definition may have changed.
pub(super) const TRIED_AGAIN: u32 = 60;

/// The verb that creates an object.
pub(super) const CREATE: &str = "create";

/// The part of an object that a write changes, and its field manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub(super) plane: &'static str,
    pub(super) object: Object,
    pub(super) manager: &'static str,
    pub(super) op: &'static str,
}

impl Subject {
    /// True if both are about one object.
    pub(super) fn is_about(&self, other: &Self) -> bool {
        (self.plane, &self.object) == (other.plane, &other.object)
    }

    /// True if it creates the object.
    pub(super) fn makes(&self) -> bool {
        self.op == CREATE
    }
}

/// The effect of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It puts this into an object.
    Puts(Subject, Asked),
    /// It deletes the object with this uid.
    Removes(Subject, String),
    /// It changes nothing that can be reverted.
    Looks,
}

impl Mark {
    /// Its subject.
    pub fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Puts(subject, _) | Self::Removes(subject, _) => Some(subject),
            Self::Looks => None,
        }
    }
}

/// The fields that a write puts into an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// A digest without what differs from one attempt to the next.
    pub(super) digest: String,
    /// A digest with the times that this operator sets.
    pub(super) content: String,
    /// The state of these fields when the write was planned.
    pub(super) standing: Option<Standing>,
}

/// Why a write waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Another client reverts it.
    TakenBack,
    /// The server does not keep this field of it.
    NotKept(String),
}

/// Memory of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contest {
    pub(super) digest: String,
    /// See [`Asked::content`].
    pub(super) content: String,
    /// Uid of the object that it created or deleted.
    pub(super) uid: Option<String>,
    /// The state of its fields in the server's answer.
    pub(super) answered: Option<Standing>,
    /// True if the server stores another value each time, such as a random name that a policy sets. To repeat the write would
    /// roll out another version each time.
    pub(super) varies: bool,
    /// Time of the last write.
    pub(super) written: Timestamp,
    /// Number of reverts in a row, each soon after the write.
    pub(super) times: u32,
    /// Time at which the revert of the last write was noticed.
    pub(super) since: Option<Timestamp>,
    /// The trouble of the last Event that was sent since the last write.
    pub(super) tried: Option<Trouble>,
    /// The trouble of the last Event that is stored.
    pub(super) told: Option<Trouble>,
}

impl Contest {
    pub(super) fn is_on(&self) -> bool {
        self.times > AT_ONCE
    }

    /// True if the server stores another value each time, now that it `answered` this.
    pub(super) fn varies_with(&self, content: &str, answered: Option<&Standing>) -> bool {
        let (Some(before), Some(answered)) = (&self.answered, answered) else { return false };
        if before.lacking().is_none() || answered.lacking().is_none() {
            return false;
        }
        self.varies || self.content == content && !before.is_same_as(answered)
    }

    /// The field that the server did not keep, if the object still is as the server answered.
    fn not_kept(&self, asked: &Asked) -> Option<&str> {
        let (answered, standing) = (self.answered.as_ref()?, asked.standing.as_ref()?);
        answered.lacking().filter(|_| self.digest == asked.digest && answered.is_same_as(standing))
    }

    /// True if the write only brings another time: it has one, and the object still has everything that was written before.
    fn renews(&self, asked: &Asked) -> bool {
        let (Some(answered), Some(standing)) = (&self.answered, &asked.standing) else { return false };
        self.content != asked.content && answered.lacking().is_none() && answered.is_same_as(standing)
    }

    /// The memory once this write is due again. `None` if it is another write. `made`: the object that was created there last.
    pub(super) fn due(&self, mark: &Mark, made: Option<&str>, now: Timestamp, pause: Duration) -> Option<Self> {
        let asked = match mark {
            Mark::Puts(_, asked) => asked,
            // It is still terminating, or we have created it.
            Mark::Removes(_, uid) if [self.uid.as_deref(), made].contains(&Some(uid)) => return Some(self.clone()),
            Mark::Removes(..) => return Some(self.clone().taken_back(now, pause)),
            Mark::Looks => return None,
        };
        match self.digest == asked.digest && !self.renews(asked) {
            false => (self.is_on() || self.varies).then(|| self.clone()),
            true if self.not_kept(asked).is_none() => Some(self.clone().taken_back(now, pause)),
            // The other client has stopped.
            true if elapsed(self.written, now) >= stands_after(pause) => Some(Self { times: 0, ..self.clone() }),
            true => Some(self.clone()),
        }
    }

    /// True if the memory still matters after the object with this uid was deleted. If another client replaces our object with
    /// its own, our deletion of that object is part of the same contest.
    pub(super) fn outlives(&self, subject: &Subject, removed: &Subject, uid: &str) -> bool {
        !subject.is_about(removed) || (subject.makes() && self.uid.as_deref() != Some(uid))
    }

    /// The memory once the same write is due again.
    fn taken_back(mut self, now: Timestamp, pause: Duration) -> Self {
        if self.since.is_none() {
            self.times = if elapsed(self.written, now) < stands_after(pause) { self.times + 1 } else { 1 };
            self.since = Some(now);
        }
        self
    }

    /// The rest of its wait, and the reason.
    pub(super) fn wait(&self, mark: &Mark, now: Timestamp, pause: Duration) -> Option<(Duration, Trouble)> {
        let not_kept = if let Mark::Puts(_, asked) = mark { self.not_kept(asked) } else { None };
        let (left, trouble) = match (not_kept, self.since) {
            (Some(field), _) => {
                let passed = if self.varies { Duration::ZERO } else { elapsed(self.written, now) };
                // A write with another time may be worth a try: it asks Karmada again.
                let is_same = matches!(mark, Mark::Puts(_, asked) if asked.content == self.content);
                let left = if is_same { pause * TRIED_AGAIN } else { pause }.checked_sub(passed)?;
                (left, Trouble::NotKept(field.to_owned()))
            }
            (None, Some(since)) => (patience(self.times, pause).checked_sub(elapsed(since, now))?, Trouble::TakenBack),
            (None, None) => return None,
        };
        (!left.is_zero()).then_some((left, trouble))
    }

    /// True if it no longer matters.
    pub(super) fn is_spent(&self, now: Timestamp, pause: Duration) -> bool {
        let last = self.since.map_or(self.written, |since| since.max(self.written));
        let is_kept = self.answered.as_ref().is_none_or(|answered| answered.lacking().is_none());
        elapsed(last, now) >= if is_kept { stands_after(pause) } else { pause * TRIED_AGAIN }
    }
}

/// Memory of the writes of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory(pub(super) Vec<(Subject, Contest)>);

impl Memory {
    /// True if a write is reverted again and again.
    pub fn is_contested(&self) -> bool {
        self.0.iter().any(|(_, contest)| contest.is_on())
    }

    /// True if a write was reverted, or not kept.
    pub fn is_at_odds(&self) -> bool {
        let lacks = |contest: &Contest| contest.answered.as_ref().is_some_and(|answered| answered.lacking().is_some());
        self.0.iter().any(|(_, contest)| contest.times > 0 || lacks(contest))
    }

    /// True if nothing of it matters any more. `pause`: the longest wait.
    pub fn is_spent(&self, now: Timestamp, pause: Duration) -> bool {
        self.0.iter().all(|(_, contest)| contest.is_spent(now, pause))
    }

    /// Memory of writes that are not due, because they last or are no longer wanted. Also the time to check them again.
    pub(super) fn of_what_stands(&self, due: &[Subject], now: Timestamp, pause: Duration) -> (Self, Next) {
        let (mut left, mut next) = (Self::default(), Next::Await);
        for (subject, contest) in self.0.iter().filter(|(subject, _)| !due.contains(subject)) {
            let rest = stands_after(pause).checked_sub(elapsed(contest.written, now));
            let Some(rest) = rest.filter(|rest| !rest.is_zero()) else { continue };
            if contest.is_on() {
                next = next.or_sooner(Next::After(rest));
            }
            left.0.push((subject.clone(), Contest { since: None, ..contest.clone() }));
        }
        (left, next)
    }

    /// Memory of a write that is due now. `None` if it is another write.
    pub(super) fn due(&self, subject: &Subject, mark: &Mark, now: Timestamp, pause: Duration) -> Option<Contest> {
        let made = self.0.iter().find(|(of, _)| of.makes() && of.is_about(subject));
        let made = made.and_then(|(_, contest)| contest.uid.as_deref());
        self.of(subject)?.due(mark, made, now, pause)
    }

    pub(super) fn of(&self, subject: &Subject) -> Option<&Contest> {
        self.0.iter().find(|(of, _)| of == subject).map(|(_, contest)| contest)
    }
}

/// The wait of a write after this number of reverts.
fn patience(times: u32, pause: Duration) -> Duration {
    match times.checked_sub(AT_ONCE + 1) {
        None => Duration::ZERO,
        Some(doublings) => (pause / 64).saturating_mul(1 << doublings.min(6)).min(pause),
    }
}

/// Time after which a write that was not reverted counts as standing.
fn stands_after(pause: Duration) -> Duration {
    pause * 2
}

/// Time since an event. If the clock was set back, every earlier wait is over.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::MAX)
}
