//! What is remembered of writes that may be taken back.

use std::time::Duration;

use jiff::Timestamp;

use crate::plan::{Next, Object, Standing};

/// How often in a row a write is made anew at once.
const AT_ONCE: u32 = 3;
/// After how many of the longest waits something is tried again that the server does not keep: its definition may be another by
/// then.
pub(super) const TRIED_AGAIN: u32 = 60;

/// What makes an object.
pub(super) const CREATE: &str = "create";

/// What of an object a write changes, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub(super) plane: &'static str,
    pub(super) object: Object,
    pub(super) manager: &'static str,
    pub(super) op: &'static str,
}

impl Subject {
    /// Whether both are about one object.
    pub(super) fn is_about(&self, other: &Self) -> bool {
        (self.plane, &self.object) == (other.plane, &other.object)
    }

    /// Whether it makes the object.
    pub(super) fn makes(&self) -> bool {
        self.op == CREATE
    }
}

/// A write, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It puts this into an object.
    Puts(Subject, Asked),
    /// It takes the object with this uid away.
    Removes(Subject, String),
    /// It changes nothing that anybody could take back.
    Looks,
}

impl Mark {
    /// What it changes.
    pub fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Puts(subject, _) | Self::Removes(subject, _) => Some(subject),
            Self::Looks => None,
        }
    }
}

/// What a write puts into an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// A digest without what differs from one attempt to the next.
    pub(super) digest: String,
    /// What stood of it where it was judged.
    pub(super) standing: Option<Standing>,
}

/// Why a write waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Somebody takes it back.
    TakenBack,
    /// The server does not keep this field of it.
    NotKept(String),
}

/// What is remembered of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contest {
    pub(super) digest: String,
    /// The object that it has made, or taken away.
    pub(super) uid: Option<String>,
    /// What stood of it in the server's answer.
    pub(super) answered: Option<Standing>,
    /// Whether the server made something else of it each time, as where a policy puts a random name in. To write it again would
    /// roll out another version each time.
    pub(super) varies: bool,
    /// When it was made last.
    pub(super) written: Timestamp,
    /// How often in a row it was taken back soon after.
    pub(super) times: u32,
    /// Since when it is known that what was written last does not stand.
    pub(super) since: Option<Timestamp>,
    /// Of what an Event was sent since it was written last.
    pub(super) tried: Option<Trouble>,
    /// Of what an Event is stored.
    pub(super) told: Option<Trouble>,
}

impl Contest {
    pub(super) fn is_on(&self) -> bool {
        self.times > AT_ONCE
    }

    /// Whether the server makes something else of what is written each time, now that it `answered` this to it.
    pub(super) fn varies_with(&self, digest: &str, answered: Option<&Standing>) -> bool {
        let (Some(before), Some(answered)) = (&self.answered, answered) else { return false };
        if before.lacking().is_none() || answered.lacking().is_none() {
            return false;
        }
        self.varies || self.digest == digest && !before.is_same_as(answered)
    }

    /// The field that the server did not keep, where what stands now is what it answered.
    fn not_kept(&self, asked: &Asked) -> Option<&str> {
        let (answered, standing) = (self.answered.as_ref()?, asked.standing.as_ref()?);
        answered.lacking().filter(|_| self.digest == asked.digest && answered.is_same_as(standing))
    }

    /// The same, once this is due on its object; nothing where it is news. `made`: the object that was made there last.
    pub(super) fn due(&self, mark: &Mark, made: Option<&str>, now: Timestamp, pause: Duration) -> Option<Self> {
        let asked = match mark {
            Mark::Puts(_, asked) => asked,
            // It goes still, or is of our own making.
            Mark::Removes(_, uid) if [self.uid.as_deref(), made].contains(&Some(uid)) => return Some(self.clone()),
            Mark::Removes(..) => return Some(self.clone().taken_back(now, pause)),
            Mark::Looks => return None,
        };
        match self.digest == asked.digest {
            false => (self.is_on() || self.varies).then(|| self.clone()),
            true if self.not_kept(asked).is_none() => Some(self.clone().taken_back(now, pause)),
            // Whoever took it back has given up.
            true if elapsed(self.written, now) >= stands_after(pause) => Some(Self { times: 0, ..self.clone() }),
            true => Some(self.clone()),
        }
    }

    /// Whether it matters still, once the object with this uid is taken away: who has taken away what we made, and put his own
    /// there, answers also where we take that away.
    pub(super) fn outlives(&self, subject: &Subject, removed: &Subject, uid: &str) -> bool {
        !subject.is_about(removed) || (subject.makes() && self.uid.as_deref() != Some(uid))
    }

    /// The same, once what it has put into its object is due once more.
    fn taken_back(mut self, now: Timestamp, pause: Duration) -> Self {
        if self.since.is_none() {
            self.times = if elapsed(self.written, now) < stands_after(pause) { self.times + 1 } else { 1 };
            self.since = Some(now);
        }
        self
    }

    /// For how long it waits, and why.
    pub(super) fn wait(&self, mark: &Mark, now: Timestamp, pause: Duration) -> Option<(Duration, Trouble)> {
        let not_kept = if let Mark::Puts(_, asked) = mark { self.not_kept(asked) } else { None };
        let (left, trouble) = match (not_kept, self.since) {
            (Some(field), _) => {
                let passed = if self.varies { Duration::ZERO } else { elapsed(self.written, now) };
                let left = (pause * TRIED_AGAIN).checked_sub(passed)?;
                (left, Trouble::NotKept(field.to_owned()))
            }
            (None, Some(since)) => (patience(self.times, pause).checked_sub(elapsed(since, now))?, Trouble::TakenBack),
            (None, None) => return None,
        };
        (!left.is_zero()).then_some((left, trouble))
    }

    /// Whether it does not matter any more.
    pub(super) fn is_spent(&self, now: Timestamp, pause: Duration) -> bool {
        let last = self.since.map_or(self.written, |since| since.max(self.written));
        let is_kept = self.answered.as_ref().is_none_or(|answered| answered.lacking().is_none());
        elapsed(last, now) >= if is_kept { stands_after(pause) } else { pause * TRIED_AGAIN }
    }
}

/// What is remembered of the writes at one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory(pub(super) Vec<(Subject, Contest)>);

impl Memory {
    /// Whether anything of it is taken back again and again.
    pub fn is_contested(&self) -> bool {
        self.0.iter().any(|(_, contest)| contest.is_on())
    }

    /// Whether something of it is not as it was written, by anybody's doing.
    pub fn is_at_odds(&self) -> bool {
        let lacks = |contest: &Contest| contest.answered.as_ref().is_some_and(|answered| answered.lacking().is_some());
        self.0.iter().any(|(_, contest)| contest.times > 0 || lacks(contest))
    }

    /// Whether nothing of it matters any more. `pause`: the longest wait.
    pub fn is_spent(&self, now: Timestamp, pause: Duration) -> bool {
        self.0.iter().all(|(_, contest)| contest.is_spent(now, pause))
    }

    /// What is remembered of writes that are not due: what was written stands, or is not wanted any more; and when to look again
    /// whether it does.
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

    /// What is remembered of something that is due now; nothing where it is news.
    pub(super) fn due(&self, subject: &Subject, mark: &Mark, now: Timestamp, pause: Duration) -> Option<Contest> {
        let made = self.0.iter().find(|(of, _)| of.makes() && of.is_about(subject));
        let made = made.and_then(|(_, contest)| contest.uid.as_deref());
        self.of(subject)?.due(mark, made, now, pause)
    }

    pub(super) fn of(&self, subject: &Subject) -> Option<&Contest> {
        self.0.iter().find(|(of, _)| of == subject).map(|(_, contest)| contest)
    }
}

/// How long a write waits that was taken back so often.
fn patience(times: u32, pause: Duration) -> Duration {
    match times.checked_sub(AT_ONCE + 1) {
        None => Duration::ZERO,
        Some(doublings) => (pause / 64).saturating_mul(1 << doublings.min(6)).min(pause),
    }
}

/// How long what was written must have been there to count as standing.
fn stands_after(pause: Duration) -> Duration {
    pause * 2
}

/// How long ago something was. Where the clock was set back, nobody knows, and every wait from before is over.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::MAX)
}
