//! Back-off of writes that do not last: another client reverts them, or the server does not keep them. The other client is, as a
//! rule, a second manager of the same plane. A server does not keep a field that its definition lacks, or that an admission
//! webhook or policy changes.
//!
//! A manual edit is reverted at once. If the same write is reverted repeatedly and soon, its wait grows, so that two managers do
//! not write without end. Once a write lasts, the wait ends. A write counts as reverted if the same write is due again, and the
//! object no longer is as the server answered. If it still is, and the answer had everything, the write renews a time. If the
//! answer lacked something, the server does not keep it. Then a repetition would change nothing, so it is rare.

mod memory;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

pub use memory::{Asked, Mark, Memory, Subject};
use memory::{CREATE, Contest, TRIED_AGAIN, Trouble};

use super::{
    Cell, Hub, Kind, Known, Next, Object, ObjectVersion, Op, Plan, Plane, Project, Standing, Step, Write,
    event::{self, Note, Severity},
    hash::{self, Reads},
    takeover::{Part, holders},
};
use crate::api::{
    meta::{self, annotation},
    reason::Reason,
};

/// Fields whose value holds the time of the write. Each attempt sets another value, and two attempts at the same change are one
/// contest. The affinity groups of a transfer are named by its time.
const OWN_TIMES: &[&str] = &[
    annotation::REFERENCED_DATA_GATE_START,
    annotation::UNNEEDED_SINCE,
    annotation::MIGRATION_REPORTED,
    annotation::DRAIN_TRANSFER,
    annotation::DRAIN_FAILED,
    "affinityName",
];

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It failed, or was not sent.
    Refused,
    /// It was sent, and stored nothing: a live read, a deletion, a lost Event.
    Done,
    /// It is stored.
    Stored {
        /// The object's uid.
        uid: String,
        /// The part of the write that the server's answer contains.
        standing: Option<Standing>,
    },
}

/// A step of a plan.
pub trait Contestable: Sized {
    /// The plane of the objects that its controller serves, and of Events.
    type Home: Plane;

    /// True if the signals of its plan are about its writes. They are dropped if one of these waits.
    const SIGNALS_SPEAK_OF_WRITES: bool = true;

    /// True if it depends on the steps before it.
    fn rests_on_others(&self) -> bool;

    /// Its effect.
    fn mark(&self) -> Mark;

    /// The same for an Event.
    fn event(event: Write<Self::Home>) -> Self;
}

impl<P: Plane> Contestable for Write<P> {
    type Home = P;

    fn rests_on_others(&self) -> bool {
        false
    }

    fn mark(&self) -> Mark {
        // Writes outside the hub have timestamps of this operator.
        mark(self, P::NAME != Hub::NAME)
    }

    fn event(event: Self) -> Self {
        event
    }
}

impl<F: Plane> Contestable for Step<Cell, F> {
    type Home = Cell;

    fn rests_on_others(&self) -> bool {
        true
    }

    fn mark(&self) -> Mark {
        match self {
            Self::Local(write) => mark(write, true),
            Self::Remote(write) => mark(write, false),
        }
    }

    fn event(event: Write<Cell>) -> Self {
        Self::Local(event)
    }
}

impl Contestable for Step<Project, Hub> {
    type Home = Project;

    /// The signals report the cause of a blocked delivery.
    const SIGNALS_SPEAK_OF_WRITES: bool = false;

    /// A status reports the observed state, even if the other steps fail.
    fn rests_on_others(&self) -> bool {
        !matches!(self, Self::Local(Write { op: Op::Apply { status: true, .. }, .. }))
    }

    fn mark(&self) -> Mark {
        match self {
            // The status of a deployment is a copy too.
            Self::Local(write) => mark(write, false),
            Self::Remote(write) => mark(write, false),
        }
    }

    fn event(event: Write<Project>) -> Self {
        Self::Local(event)
    }
}

/// Returns the effect of a write. `is_stamped`: this operator sets its timestamps. In a copy, a new timestamp is a change of the
/// source.
fn mark<P: Plane>(write: &Write<P>, is_stamped: bool) -> Mark {
    let object = &write.object;
    let subject = |manager, op| Subject { plane: P::NAME, object: object.clone(), manager, op };
    let puts = |manager, op, body: &Value| {
        let (digest, content) = digests(body, is_stamped);
        Mark::Puts(subject(manager, op), Asked { digest, content, standing: write.standing().cloned() })
    };
    if object.kind == Kind::Event {
        return Mark::Looks;
    }
    match &write.op {
        Op::Create { body, manager } => puts(*manager, CREATE, body),
        Op::Apply { body, manager, status: false, .. } if body["metadata"].get("uid").is_none() => {
            puts(*manager, CREATE, &body.to_value())
        }
        Op::Apply { body, manager, status: false, .. } => puts(*manager, "apply", &body.to_value()),
        Op::Apply { body, manager, status: true, .. } => puts(*manager, "apply status of", &body.to_value()),
        Op::Merge { body, manager } => puts(*manager, "patch", body),
        Op::TakeOver { manager, .. } => puts(*manager, "take over", &Value::Null),
        Op::Delete { uid, .. } => Mark::Removes(subject(meta::MANAGED_BY, "delete"), uid.clone()),
        _ => Mark::Looks,
    }
}

/// Returns a digest of a write without [`OWN_TIMES`], and one with them. Both are without versions. If `is_stamped`, they are
/// without the times of conditions too, because each attempt sets new ones. For a template hash they are also without the uid. If
/// another manager recreates an Instance because of its template hash, the contest is the same.
fn digests(body: &Value, is_stamped: bool) -> (String, String) {
    let recreated = body.pointer("/spec/controller/templateHash").map(|_| {
        let mut body = body.clone();
        body["metadata"].as_object_mut().map(|metadata| metadata.remove("uid"));
        body
    });
    let body = recreated.as_ref().unwrap_or(body);
    let content = hash::digest_of(body, &|name, _| {
        if is_of_version(name, is_stamped) { Reads::Nothing } else { Reads::Whole }
    });
    if !has_own_time(body) {
        return (content.clone(), content);
    }
    let digest = hash::digest_of(body, &|name, value| match () {
        () if is_of_version(name, is_stamped) => Reads::Nothing,
        () if is_own_time(name, value) => Reads::Presence,
        () => Reads::Whole,
    });
    (digest, content)
}

fn is_of_version(name: &str, is_stamped: bool) -> bool {
    name == "resourceVersion" || (is_stamped && name == "lastTransitionTime")
}

fn is_own_time(name: &str, value: &Value) -> bool {
    value.is_string() && OWN_TIMES.contains(&name)
}

fn has_own_time(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| is_own_time(name, value) || has_own_time(value)),
        Value::Array(entries) => entries.iter().any(has_own_time),
        _ => false,
    }
}

/// The rest of a plan, and the memory of its writes.
#[derive(Debug)]
pub struct Held {
    /// The memory before any write.
    pub memory: Memory,
    /// The effect of each remaining write, in order.
    left: Vec<Mark>,
    /// The content of the Event after the writes.
    told: Option<(Subject, Trouble)>,
}

impl Held {
    /// Returns the memory after the writes. `sent`: the result of each write, by its place.
    pub fn made(&self, now: Timestamp, sent: impl Fn(usize) -> Sent) -> Memory {
        let Self { memory, left, told } = self;
        let mut memory = memory.clone();
        if let Some((subject, trouble)) = told
            && matches!(sent(left.len()), Sent::Stored { .. })
            && let Some((_, contest)) = memory.0.iter_mut().find(|(of, _)| of == subject)
        {
            contest.told = Some(trouble.clone());
        }
        for (place, mark) in left.iter().enumerate() {
            let (stored, answered) = match sent(place) {
                Sent::Refused => continue,
                Sent::Done => (None, None),
                Sent::Stored { uid, standing } => (Some(uid), standing),
            };
            let (subject, (digest, exact), uid, removed) = match mark.clone() {
                Mark::Looks => continue,
                Mark::Removes(subject, uid) => (subject, Default::default(), Some(uid.clone()), Some(uid)),
                Mark::Puts(subject, asked) => (subject, (asked.digest, asked.content), stored, None),
            };
            let before = memory.of(&subject);
            let (times, told) = before.map_or((0, None), |before| (before.times, before.told.clone()));
            let varies = before.is_some_and(|before| before.varies_with(&exact, answered.as_ref()));
            memory.0.retain(|(of, contest)| {
                *of != subject && removed.as_ref().is_none_or(|uid| contest.outlives(of, &subject, uid))
            });
            let contest = Contest {
                digest,
                content: exact,
                uid,
                answered,
                varies,
                written: now,
                times,
                since: None,
                tried: None,
                told,
            };
            memory.0.push((subject, contest));
        }
        memory
    }
}

/// True if every change of these steps waits, so that only a status is left to write.
pub fn all_wait<S: Contestable>(steps: &[S], memory: &Memory, now: Timestamp, pause: Duration) -> bool {
    let mut changes = steps.iter().map(Contestable::mark).filter(|mark| *mark != Mark::Looks).peekable();
    let waits = |mark: Mark| {
        let contest = mark.subject().and_then(|subject| memory.due(subject, &mark, now, pause));
        contest.is_some_and(|contest| contest.wait(&mark, now, pause).is_some())
    };
    changes.peek().is_some() && changes.all(waits)
}

/// Removes the waiting writes of a plan: those that another client reverts or the server does not keep. Reports that once on
/// `regarding`. `pause`: the longest wait of a reverted write.
pub fn hold_back<S: Contestable, G>(
    plan: &mut Plan<S, G>,
    memory: &Memory,
    regarding: &Regarding,
    controller: &str,
    now: Timestamp,
    pause: Duration,
) -> Held {
    let marks: Vec<Mark> = plan.steps.iter().map(Contestable::mark).collect();
    let due: Vec<Subject> = marks.iter().filter_map(|mark| mark.subject().cloned()).collect();
    let (mut after, mut next) = memory.of_what_stands(&due, now, pause);
    let mut waits: Vec<Option<Trouble>> = vec![None; marks.len()];
    let mut news = None;
    for (place, mark) in marks.iter().enumerate() {
        let Some(subject) = mark.subject() else { continue };
        let Some(mut contest) = memory.due(subject, mark, now, pause) else { continue };
        if let Some((left, trouble)) = contest.wait(mark, now, pause) {
            next = next.or_sooner(Next::After(left));
            let is_said = [&contest.tried, &contest.told].contains(&&Some(trouble.clone()));
            if !is_said && news.is_none() {
                // A lost Event is sent again in the next wait, and not in each reconcile.
                contest.tried = Some(trouble.clone());
                news = Some((subject.clone(), trouble.clone()));
            }
            waits[place] = Some(trouble);
        }
        after.0.push((subject.clone(), contest));
    }
    let rests: Vec<bool> = plan.steps.iter().map(Contestable::rests_on_others).collect();
    let is_kept = kept_steps(&marks, &waits, &rests);
    let mut place = 0..;
    plan.steps.retain(|_| place.next().is_some_and(|place: usize| is_kept[place]));
    let left = marks.into_iter().zip(&is_kept).filter(|(_, is_kept)| **is_kept).map(|(mark, _)| mark).collect();
    if S::SIGNALS_SPEAK_OF_WRITES && waits.iter().any(Option::is_some) {
        // The signals are about writes that are not sent now.
        plan.signals.clear();
    }
    plan.next = plan.next.or_sooner(next);
    let event =
        |(subject, why): &(Subject, Trouble)| S::event(back_off_event(regarding, controller, subject, why, now, pause));
    plan.steps.extend(news.as_ref().map(event));
    Held { memory: after, left, told: news }
}

/// Returns for each step if it stays in the plan. If a write is reverted, no step that depends on others stays. If the server
/// does not keep a write, the other steps stay. If any step waits, a live read stays only if a write follows it.
fn kept_steps(marks: &[Mark], waits: &[Option<Trouble>], rests: &[bool]) -> Vec<bool> {
    let is_taken_back = waits.contains(&Some(Trouble::TakenBack));
    let left: Vec<bool> =
        waits.iter().zip(rests).map(|(wait, rests)| wait.is_none() && !(*rests && is_taken_back)).collect();
    if waits.iter().all(Option::is_none) {
        return left;
    }
    let changes = |place: usize| left[place] && marks[place] != Mark::Looks;
    let last = (0..marks.len()).rev().find(|place| changes(*place));
    let is_kept = |place: usize| left[place] && last.is_some_and(|last| place <= last);
    (0..marks.len()).map(is_kept).collect()
}

/// The object on which an Event reports the back-off.
#[derive(Clone, Debug)]
pub struct Regarding {
    object: Object,
    version: ObjectVersion,
    /// Other managers that write its status.
    writers: Vec<String>,
}

impl Regarding {
    /// Regards an existing object.
    pub fn of<K: Known>(live: &K) -> Self {
        Self { object: Object::of(live), version: ObjectVersion::of(live.meta()), writers: holders(live, Part::Status) }
    }

    /// Regards an object that does not exist yet.
    pub fn absent(object: Object) -> Self {
        Self { object, version: ObjectVersion::default(), writers: Vec::new() }
    }
}

/// Returns the Event that reports the back-off.
fn back_off_event<P: Plane>(
    regarding: &Regarding,
    controller: &str,
    subject: &Subject,
    why: &Trouble,
    now: Timestamp,
    pause: Duration,
) -> Write<P> {
    let what = format!("{} {} as {}", subject.op, subject.object, subject.manager);
    let (reason, text) = match why {
        Trouble::TakenBack => {
            let others = match &regarding.writers[..] {
                [] => String::new(),
                names => format!(" (its status is also written by {})", names.join(", ")),
            };
            let text = format!(
                "another client repeatedly reverts what this operator writes ({what}){others}, so the operator backs off, \
                 down to one write in {} s; two managers must not run on one {}: stop the other one",
                pause.as_secs(),
                P::NAME
            );
            (Reason::WritesTakenBack, text)
        }
        Trouble::NotKept(field) => {
            let text = format!(
                "the API server of the {} does not keep what this operator writes ({what}): its answer has no {field}, or \
                 another value, so the operator writes only once in {} s, and the stored value is in effect; the CRD has \
                 another version, or an admission webhook or policy changes the field: apply the CRD, or exclude the field \
                 from the policy",
                subject.plane,
                (pause * TRIED_AGAIN).as_secs()
            );
            (Reason::WritesNotKept, text)
        }
    };
    let note = Note { severity: Severity::Warning, reason, action: "Writing", text: &text };
    event::about(&regarding.object, &regarding.version, controller, &note, now)
}

#[cfg(test)]
mod tests;
