//! Thin loops: read a snapshot, ask `plan` for the writes, and let `io` send them.

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

/// Longest reconcile of one key. Each call in it has its own shorter deadline.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);

/// The work of one controller on one key.
pub trait Reconciler: Send + Sync + 'static {
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// The key that it is queued by.
    type Key: Key;

    /// Returns the pause of `key` after a successful run. A run that reads many objects needs a longer one, see [`rest_after`].
    fn rest(&self, _key: &Self::Key) -> Duration {
        Self::Key::REST
    }

    /// Returns the same moment by the clock of the API server that wrote the times which decisions on `key` compare.
    fn by_server(&self, key: &Self::Key, now: Now) -> Now;

    /// Brings the object of `key` one step nearer to its desired state. Decisions use the time `now`, which is that of [`by_server`](Self::by_server); other clocks only measure.
    /// `failing`: time since the first failure of `key` after its last success. If an error outlasts
    /// [`error_grace`](crate::timing::Timing::error_grace), it is reported on the object that its user reads.
    fn reconcile(
        &self,
        key: &Self::Key,
        now: Now,
        failing: Duration,
    ) -> impl Future<Output = Result<Next, Error>> + Send;
}

/// Reconciles the keys of `queue` with this number of workers until `stop`. Running reconciles are finished first. A failing key
/// is retried at the latest when it has failed for `error_grace`.
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
                // A reconcile without a request never waits. Ten thousand of them, as after a start, would hold up every other
                // task of the thread for seconds.
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        // A dead worker holds its key forever, and the probes still succeed. So the process ends, and is restarted.
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
    let now = reconciler.by_server(&key, started);
    let result = tokio::time::timeout(RECONCILE_TIMEOUT, reconciler.reconcile(&key, now, failing)).await;
    let result =
        result.unwrap_or_else(|_| Err(Error::Deadline { call: format!("reconcile {key}"), after: RECONCILE_TIMEOUT }));
    let (label, outcome) = match &result {
        Ok(Next::Await) => ("success", Outcome::Done),
        Ok(Next::After(after)) => ("requeue_after", Outcome::Again(*after)),
        Err(Error::Deadline { .. }) => ("error", Outcome::Unanswered),
        Err(_) => ("error", Outcome::Failed),
    };
    metrics.reconciled(R::NAME, label, Now::read().instant.duration_since(started.instant));
    let (shown, rest) = (key.to_string(), reconciler.rest(&key));
    let delay = queue.finish_with_rest(key, outcome, rest);
    if let Err(error) = result {
        metrics.reconcile_failed(R::NAME, error.label());
        let retry_in = format!("{:.1}s", delay.unwrap_or_default().as_secs_f64());
        match error.class() {
            // Another client was faster. This is ordinary, and the next reconcile sees its write.
            Class::Conflict => tracing::debug!(controller = R::NAME, object = shown, %error, retry_in, "conflict"),
            // The object was deleted in the meantime. Its own event reports that.
            Class::Gone if error.is_of_an_object() => {
                tracing::debug!(controller = R::NAME, object = shown, %error, retry_in, "object was deleted during its reconcile");
            }
            _ => {
                tracing::warn!(controller = R::NAME, object = shown, %error, class = error.label(), retry_in, "reconcile failed");
            }
        }
    }
}

/// Pause for each object that a run reads. Reading one takes less than 1 µs, so the runs of a key take a tenth of the thread.
const REST_OF_EACH: Duration = Duration::from_micros(10);
/// Longest such pause. A pause of seconds would delay the guard of a city too long, see the pause of policies.
const LONGEST_REST: Duration = Duration::from_millis(500);

/// Returns the pause after a run that reads this many objects, and at least `least`. Without it, thousands of objects with an event
/// each would have a key read all of them after each event.
fn rest_after(least: Duration, read: usize) -> Duration {
    let each = REST_OF_EACH.saturating_mul(u32::try_from(read).unwrap_or(u32::MAX));
    least.saturating_add(each).min(LONGEST_REST).max(least)
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
    // A take-over without anything to take returns `None`.
    let did = done.as_ref().is_ok_and(|answer| answer.is_some() || !takes);
    if did && takes {
        metrics.took_over(P::NAME, kind);
    }
    if let Some(event) = write.told().filter(|_| did) {
        Box::pin(send(plane, &event, metrics)).await?;
    }
    match done {
        Err(error) if write.object.kind == Kind::Event => {
            // A condition or a metric reports everything that an Event does.
            tracing::debug!(%error, "Event could not be written");
            Ok(None)
        }
        done => done,
    }
}

/// Longest snapshot, and longest plan, in a log line. Encoding a longer one would block a worker.
const MAX_RECORD: usize = 64 << 10;

/// Logs the snapshot and the plan of a key at debug level. Unless they are very large, this is enough to repeat the decision.
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

/// The start of a text, no longer than [`MAX_RECORD`].
struct Excerpt(Vec<u8>);

impl Excerpt {
    /// Returns the text that `make` writes. If the text is too long, a write fails. Then `make` must stop and return false, and a
    /// note is added.
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

/// The same, and calls `came` with the result of each write right after it, even if a later one fails.
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

/// Returns the result of an answered write.
fn came_of(answer: Option<Stored>) -> Sent {
    answer.map_or(Sent::Done, |stored| Sent::Stored { uid: stored.version.uid, standing: stored.standing })
}

/// Refused writes, each with its error.
type Refused<'a, P> = Vec<(&'a Write<P>, Error)>;

/// Sends independent writes: a refused one does not stop the others. The rest is not sent if the server does not answer, or if a
/// live read contradicts the decision.
///
/// Calls `came` with the result of each write, and returns the refused ones. `lasts`: errors of this key have outlasted the
/// grace. Then a write without an answer counts as refused, because a hanging webhook looks the same as a hanging server.
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

/// Sends the status and the Events of a plan after a write of the plan has failed. Stops at the first refused one, because an
/// Event belongs to the status that it reports. Later steps depend on the failed write and are not sent.
async fn report<N: Plane, F: Plane, G>(local: &ControlPlane<N>, plan: &Plan<Step<N, F>, G>, metrics: &Metrics) {
    let is_report = |step: &&Step<N, F>| matches!(step, Step::Local(write) if write.reports());
    for step in plan.steps.iter().skip_while(|step| !is_report(step)).take_while(is_report) {
        let Step::Local(write) = step else { break };
        if let Err(error) = send(local, write, metrics).await {
            tracing::debug!(%error, "a status report is rejected");
            break;
        }
    }
}

/// True if the server did not answer. The next request would wait just as long.
fn is_silence(error: &Error) -> bool {
    matches!(error, Error::Deadline { .. })
}

/// Returns an error of the hub or a cell for plans. `lasted`: time since the first failure of the key.
fn failure_of(error: &Error, lasted: Duration) -> Failure {
    let is_final = match error.class() {
        Class::Invalid => true,
        Class::Forbidden => !error.is_of_terminating_namespace(),
        Class::Retry | Class::Conflict | Class::Gone | Class::Unauthenticated => false,
    };
    Failure { words: error.words_for_tenants(), is_final, lasted }
}

/// Returns the most severe error. One that a person must fix comes before one that ends without help. The others are logged.
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
        tracing::debug!(error = %other, class = other.label(), "also failed, besides a more severe error");
        worst
    })
}

/// One of the two planes of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Local,
    Remote,
}

/// The failure of a plan over two planes.
struct Stopped {
    /// The plane of the failed write.
    at: End,
    error: Error,
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Self {
        stopped.error
    }
}

/// Runs `act` if the target of `weak` still exists. Listeners must not keep it alive.
fn with<T>(weak: &Weak<T>, act: impl FnOnce(&Arc<T>)) {
    if let Some(strong) = weak.upgrade() {
        act(&strong);
    }
}

/// Returns a change in a cache for plans.
fn delta<'a, V>(change: &'a Change<'_, V>) -> Delta<'a, V> {
    let (old, new) = (change.old.map(AsRef::as_ref), change.new.map(AsRef::as_ref));
    Delta { namespace: &change.key.namespace, name: &change.key.name, old, new }
}

/// Returns the cached facts of a namespace.
fn namespace_facts(namespace: PartialObjectMeta<Namespace>) -> NamespaceFacts {
    NamespaceFacts::of(namespace.metadata)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::io::store::ObjectKey;

    #[test]
    fn worst_error_is_the_one_that_a_person_must_fix() {
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

    #[test]
    fn rest_grows_with_the_objects_that_a_run_reads_up_to_a_limit() {
        let rest = |least, read| rest_after(Duration::from_millis(least), read).as_millis();
        for (least, read, expected) in
            [(0, 0, 0), (50, 0, 50), (50, 100, 51), (200, 10_000, 300), (200, 1_000_000, 500), (5000, 9, 5000)]
        {
            assert_eq!(rest(least, read), expected, "{least} ms, {read} objects");
        }
    }

    /// A snapshot of megabytes was encoded on each reconcile, between two renewals of the Lease.
    #[test]
    fn record_large_snapshot_is_cut() {
        let whole = Excerpt::of(|text| serde_json::to_writer(text, &["a"]).is_ok());
        assert_eq!(whole, r#"["a"]"#);
        let mut made = 0;
        let endless = std::iter::repeat_with(|| made += 1).take(1 << 30).map(|()| "entry");
        let cut = Excerpt::of(|text| endless.into_iter().all(|entry| write!(text, "{entry:?}").is_ok()));
        assert!(cut.len() < MAX_RECORD + 100 && cut.ends_with("(cut: longer than 65536 bytes)"), "{}", cut.len());
        assert!(made < 20_000, "it is not encoded in full: {made}");
    }

    struct Broken;

    impl Reconciler for Broken {
        const NAME: &'static str = "broken";

        type Key = ObjectKey;

        fn by_server(&self, _: &ObjectKey, now: Now) -> Now {
            now
        }

        async fn reconcile(&self, _: &ObjectKey, _: Now, _: Duration) -> Result<Next, Error> {
            panic!("a bug")
        }
    }

    #[tokio::test]
    async fn worker_that_panics_ends_the_process() {
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

    /// Counts its reconciles, which wait for nothing.
    #[derive(Default)]
    struct Immediate(AtomicUsize);

    impl Reconciler for Immediate {
        const NAME: &'static str = "immediate";

        type Key = ObjectKey;

        fn by_server(&self, _: &ObjectKey, now: Now) -> Now {
            now
        }

        async fn reconcile(&self, _: &ObjectKey, _: Now, _: Duration) -> Result<Next, Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Next::Await)
        }
    }

    /// After a start beside 10,000 deployments, no other task ran for seconds. A Secret was read so late that its deployment reported
    /// that it was not read yet.
    #[tokio::test]
    async fn worker_lets_other_tasks_run_after_each_key() {
        const KEYS: usize = 1000;
        const WORKERS: usize = 2;
        let queue = Arc::new(Queue::default());
        queue.add_all((0..KEYS).map(|n| ObjectKey::new("ns", &n.to_string())));
        let (immediate, stop) = (Arc::new(Immediate::default()), CancellationToken::new());
        let running = run(immediate.clone(), queue, (WORKERS, Duration::MAX), Metrics::default(), stop.clone());
        let running = tokio::spawn(running);
        let mut before = 0;
        while before < KEYS {
            tokio::task::yield_now().await;
            let now = immediate.0.load(Ordering::Relaxed);
            assert!(now - before <= 2 * WORKERS, "{before} keys, and then {now}");
            before = now;
        }
        stop.cancel();
        running.await.unwrap();
    }
}
