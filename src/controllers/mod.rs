//! Thin loops: fetch a snapshot, ask `plan` what to do, have `io` do it.

pub mod cell;
mod compact;
mod contests;
pub mod management;
mod watches;

use std::{
    fmt::Display,
    io::{self, Write as _},
    sync::{Arc, Weak},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    io::{
        Class, Error,
        apply::Stored,
        clients::ControlPlane,
        clock::Now,
        queue::{Key, Outcome, Queue},
        store::Change,
    },
    metrics::Metrics,
    plan::{Delta, Failure, Kind, NamespaceFacts, Next, Op, Plan, Plane, Step, Write, contest::Sent},
};

use self::watches::Watches;

/// Longest run at one key; every call in it has a shorter deadline of its own.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);

/// One controller's work on one key.
pub trait Reconciler: Send + Sync + 'static {
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// What it is enqueued for.
    type Key: Key;

    /// Brings the object behind `key` one step nearer to what is wanted. What it decides is decided at `now`; other
    /// clocks only measure. `failing`: how long work on `key` has failed without a success in between. An error that
    /// outlasts [`error_grace`](crate::timing::Timing::error_grace) is reported on the object that its user looks at.
    fn reconcile(
        &self,
        key: &Self::Key,
        now: Now,
        failing: Duration,
    ) -> impl Future<Output = Result<Next, Error>> + Send;
}

/// Works on `queue` with this many workers until `stop`; what is under way then is finished first. A key that fails is
/// tried again, at the latest, when it has failed for `error_grace`.
pub async fn run<R: Reconciler>(
    reconciler: Arc<R>,
    queue: Arc<Queue<R::Key>>,
    (workers, error_grace): (usize, Duration),
    metrics: Metrics,
    stop: CancellationToken,
) {
    queue.tell(metrics.queue(R::NAME));
    queue.report_after(error_grace);
    metrics.workers(R::NAME, workers);
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (reconciler, queue, metrics, stop) = (reconciler.clone(), queue.clone(), metrics.clone(), stop.clone());
        tasks.spawn(async move {
            loop {
                let key = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    key = queue.next() => key,
                };
                work(reconciler.as_ref(), &queue, key, &metrics).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        // A worker that died holds its key for ever, behind green probes: the process ends, and is started anew.
        if let Err(died) = ended
            && let Ok(panic) = died.try_into_panic()
        {
            tracing::error!(controller = R::NAME, "worker died");
            std::panic::resume_unwind(panic);
        }
    }
}

async fn work<R: Reconciler>(reconciler: &R, queue: &Queue<R::Key>, key: R::Key, metrics: &Metrics) {
    let started = Now::read();
    let _at_work = metrics.at_work(R::NAME);
    let failing = queue.failing_for(&key);
    let result = tokio::time::timeout(RECONCILE_TIMEOUT, reconciler.reconcile(&key, started, failing)).await;
    let result =
        result.unwrap_or_else(|_| Err(Error::Deadline { call: format!("reconcile {key}"), after: RECONCILE_TIMEOUT }));
    let (label, outcome) = match &result {
        Ok(Next::Await) => ("success", Outcome::Done),
        Ok(Next::After(after)) => ("requeue_after", Outcome::Again(*after)),
        Err(Error::Deadline { .. }) => ("error", Outcome::Unanswered),
        Err(_) => ("error", Outcome::Failed),
    };
    metrics.reconciled(R::NAME, label, Now::read().instant.duration_since(started.instant));
    let shown = key.to_string();
    let delay = queue.finish(key, outcome);
    if let Err(error) = result {
        metrics.reconcile_failed(R::NAME, error.label());
        let retry_in = format!("{:.1}s", delay.unwrap_or_default().as_secs_f64());
        match error.class() {
            // Somebody was faster: ordinary, and the next look settles it.
            Class::Conflict => tracing::debug!(controller = R::NAME, object = shown, %error, retry_in, "conflict"),
            // What was written to has gone meanwhile, which its own event tells.
            Class::Gone if error.is_of_an_object() => {
                tracing::debug!(controller = R::NAME, object = shown, %error, retry_in, "gone meanwhile");
            }
            _ => {
                tracing::warn!(controller = R::NAME, object = shown, %error, class = error.label(), retry_in, "reconcile failed");
            }
        }
    }
}

/// Sends one write and counts it.
async fn send<P: Plane>(plane: &ControlPlane<P>, write: &Write<P>, metrics: &Metrics) -> Result<Option<Stored>, Error> {
    let op = match &write.op {
        Op::Create { .. } => "create",
        Op::Apply { status: false, .. } => "apply",
        Op::Apply { status: true, .. } => "apply_status",
        Op::Merge { .. } => "patch",
        Op::TakeOver { .. } => "take_over",
        Op::Delete { .. } => "delete",
        Op::ConfirmAbsent => "confirm_absent",
        Op::ConfirmGone { .. } => "confirm_gone",
        Op::ConfirmPresent { .. } => "confirm_present",
        Op::ConfirmListed { .. } => "confirm_listed",
        Op::ConfirmUnchanged { .. } => "confirm_unchanged",
    };
    let (_, kind, _) = write.object.kind.gvk();
    tracing::debug!(plane = plane.name(), op, object = %write.object, "write");
    metrics.wrote(P::NAME, kind, op);
    let done = plane.execute(write).await;
    let takes = matches!(write.op, Op::TakeOver { .. });
    // A take-over that finds nothing to take answers with nothing.
    let did = done.as_ref().is_ok_and(|answer| answer.is_some() || !takes);
    if did && takes {
        metrics.took_over(P::NAME, kind);
    }
    if let Some(event) = write.told().filter(|_| did) {
        Box::pin(send(plane, &event, metrics)).await?;
    }
    match done {
        Err(error) if write.object.kind == Kind::Event => {
            // Whatever an Event says is said in a condition or a metric as well.
            tracing::debug!(%error, "Event is lost");
            Ok(None)
        }
        done => done,
    }
}

/// Longest snapshot, and longest plan, that are written to the log: to make their text keeps a worker from everything else.
const MAX_RECORD: usize = 64 << 10;

/// Says at debug level what was known of a key and what was decided on it: enough to decide it once more, as long as it is not
/// very large.
fn record<O: Serialize>(
    controller: &'static str,
    key: &impl Display,
    observed: &O,
    now: Now,
    plan: &impl std::fmt::Debug,
) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let snapshot = Excerpt::of(|text| serde_json::to_writer(text, observed).is_ok());
    let plan = Excerpt::of(|text| write!(text, "{plan:?}").is_ok());
    tracing::debug!(controller, object = %key, now = %now.time, snapshot, plan, "decided");
}

/// The beginning of a text that is made no longer than [`MAX_RECORD`].
struct Excerpt(Vec<u8>);

impl Excerpt {
    /// The text that `make` writes, which is to end where it cannot write on, and what has become of the rest.
    fn of(make: impl FnOnce(&mut Self) -> bool) -> String {
        let mut excerpt = Self(Vec::new());
        let whole = make(&mut excerpt);
        let text = String::from_utf8_lossy(&excerpt.0);
        if whole { text.into_owned() } else { format!("{text}… (cut: longer than {MAX_RECORD} bytes)") }
    }
}

impl io::Write for Excerpt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_RECORD - self.0.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let taken = bytes.len().min(room);
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends the writes of a plan over two planes, in order, until one fails.
async fn carry_out<N: Plane, F: Plane, G>(
    local: &ControlPlane<N>,
    remote: &ControlPlane<F>,
    plan: &Plan<Step<N, F>, G>,
    metrics: &Metrics,
) -> Result<Next, Stopped> {
    carry_out_each(local, remote, plan, metrics, |_| {}).await
}

/// The same; tells `came` what came of each write as soon as it is made, also where a later one fails.
async fn carry_out_each<N: Plane, F: Plane, G>(
    local: &ControlPlane<N>,
    remote: &ControlPlane<F>,
    plan: &Plan<Step<N, F>, G>,
    metrics: &Metrics,
    mut came: impl FnMut(Sent),
) -> Result<Next, Stopped> {
    for step in &plan.steps {
        let (at, sent) = match step {
            Step::Local(write) => (End::Local, send(local, write, metrics).await),
            Step::Remote(write) => (End::Remote, send(remote, write, metrics).await),
        };
        came(came_of(sent.map_err(|error| Stopped { at, error })?));
    }
    Ok(plan.next)
}

/// What came of a write that was answered.
fn came_of(answer: Option<Stored>) -> Sent {
    answer.map_or(Sent::Done, |stored| Sent::Stored { uid: stored.version.uid, standing: stored.standing })
}

/// Writes that were refused, each with the answer.
type Refused<'a, P> = Vec<(&'a Write<P>, Error)>;

/// Sends writes that do not hang on each other: one that is refused keeps no other back. Only when nobody answers the
/// rest is left for another time, and so is what follows a live read that does not find what was judged.
///
/// Tells `came` what came of each, and answers with those that were refused. `lasts`: errors here have outlasted the grace, and a
/// write without an answer counts as refused: a webhook that hangs looks the same as a server that does.
async fn send_each<'a, P: Plane>(
    plane: &ControlPlane<P>,
    writes: &'a [Write<P>],
    (metrics, lasts): (&Metrics, bool),
    mut came: impl FnMut(Sent),
) -> Result<Refused<'a, P>, Error> {
    let mut refused = Refused::new();
    for write in writes {
        match send(plane, write, metrics).await {
            Ok(answer) => came(came_of(answer)),
            Err(error) => {
                let silence = is_silence(&error);
                if silence && !lasts {
                    return Err(error);
                }
                came(Sent::Refused);
                refused.push((write, error));
                if silence || write.op.is_look() {
                    break;
                }
            }
        }
    }
    Ok(refused)
}

/// Sends the status and the Events of a plan although a write of it has failed. Ends at the first that the plane does not take: an
/// Event goes with the status that it reports. What follows them rests on the failed write, and is not sent.
async fn report<N: Plane, F: Plane, G>(local: &ControlPlane<N>, plan: &Plan<Step<N, F>, G>, metrics: &Metrics) {
    let is_report = |step: &&Step<N, F>| matches!(step, Step::Local(write) if write.reports());
    for step in plan.steps.iter().skip_while(|step| !is_report(step)).take_while(is_report) {
        let Step::Local(write) = step else { break };
        if let Err(error) = send(local, write, metrics).await {
            tracing::debug!(%error, "a report is not taken");
            break;
        }
    }
}

/// Whether nobody answered: whoever asks for the next thing would wait as long once more.
fn is_silence(error: &Error) -> bool {
    matches!(error, Error::Deadline { .. })
}

/// An error of hub or cell as plans take it. `lasted`: how long work on the key has failed.
fn failure_of(error: &Error, lasted: Duration) -> Failure {
    let is_final = match error.class() {
        Class::Invalid => true,
        Class::Forbidden => !error.is_of_terminating_namespace(),
        Class::Retry | Class::Conflict | Class::Gone | Class::Unauthenticated => false,
    };
    Failure { words: error.words_for_tenants(), is_final, lasted }
}

/// The error that speaks for several: what a person has to mend before what passes by itself. The others are logged.
fn worst(errors: impl IntoIterator<Item = Error>) -> Option<Error> {
    let severity = |error: &Error| match error.class() {
        Class::Conflict => 0,
        Class::Gone => 1,
        Class::Retry | Class::Unauthenticated => 2,
        Class::Invalid => 3,
        Class::Forbidden => 4,
    };
    errors.into_iter().reduce(|worst, error| {
        let (worst, other) = if severity(&error) > severity(&worst) { (error, worst) } else { (worst, error) };
        tracing::debug!(error = %other, class = other.label(), "refused beside something worse");
        worst
    })
}

/// One of the two planes of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Local,
    Remote,
}

/// A plan over two planes that could not be carried out.
struct Stopped {
    /// Where.
    at: End,
    error: Error,
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Self {
        stopped.error
    }
}

/// Runs `act` while `weak` lives: listeners must not keep alive what they speak of.
fn with<T>(weak: &Weak<T>, act: impl FnOnce(&Arc<T>)) {
    if let Some(strong) = weak.upgrade() {
        act(&strong);
    }
}

/// A change in a cache as plans take it.
fn delta<'a, V>(change: &'a Change<'_, V>) -> Delta<'a, V> {
    let (old, new) = (change.old.map(AsRef::as_ref), change.new.map(AsRef::as_ref));
    Delta { namespace: &change.key.namespace, name: &change.key.name, old, new }
}

/// What is kept of a namespace that a watch brings.
fn namespace_facts(namespace: PartialObjectMeta<Namespace>) -> NamespaceFacts {
    NamespaceFacts::of(namespace.metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::store::ObjectKey;

    #[test]
    fn the_worst_of_several_errors_is_what_a_person_has_to_mend() {
        let api = |code: u16| Error::Api {
            call: code.to_string(),
            source: Box::new(kube::Error::Api(Box::new(kube::core::Status { code, ..kube::core::Status::default() }))),
        };
        for (codes, expected) in [
            (vec![], None),
            (vec![409], Some("409")),
            (vec![409, 500, 409], Some("500")),
            (vec![409, 422, 500], Some("422")),
            (vec![422, 403, 409], Some("403")),
            (vec![403, 401], Some("403")),
        ] {
            let worst = worst(codes.iter().map(|code| api(*code)));
            let call = worst.map(|error| if let Error::Api { call, .. } = error { call } else { String::new() });
            assert_eq!(call.as_deref(), expected, "{codes:?}");
        }
    }

    /// A snapshot of megabytes was made into text between two renewals of the Lease, on each look.
    #[test]
    fn record_large_snapshot_is_cut() {
        let whole = Excerpt::of(|text| serde_json::to_writer(text, &["a"]).is_ok());
        assert_eq!(whole, r#"["a"]"#);
        let mut made = 0;
        let endless = std::iter::repeat_with(|| made += 1).take(1 << 30).map(|()| "entry");
        let cut = Excerpt::of(|text| endless.into_iter().all(|entry| write!(text, "{entry:?}").is_ok()));
        assert!(cut.len() < MAX_RECORD + 100 && cut.ends_with("(cut: longer than 65536 bytes)"), "{}", cut.len());
        assert!(made < 20_000, "it is not made in full: {made}");
    }

    struct Broken;

    impl Reconciler for Broken {
        const NAME: &'static str = "broken";

        type Key = ObjectKey;

        async fn reconcile(&self, _: &ObjectKey, _: Now, _: Duration) -> Result<Next, Error> {
            panic!("a bug")
        }
    }

    #[tokio::test]
    async fn a_worker_that_dies_takes_the_process_along() {
        let queue = Arc::new(Queue::default());
        queue.add(ObjectKey::new("ns", "name"));
        let ended = tokio::spawn(run(
            Arc::new(Broken),
            queue,
            (2, Duration::MAX),
            Metrics::default(),
            CancellationToken::new(),
        ))
        .await;
        assert!(ended.unwrap_err().is_panic());
    }
}
