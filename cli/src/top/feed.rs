//! Readers: threads that read the control planes, so that the keys never wait for an answer.

use std::{
    panic::AssertUnwindSafe,
    sync::mpsc,
    time::{Duration, Instant},
};

use compute_operator::plan::management::waiting::{Answer, MAX_LIMIT, Query};
use futures::FutureExt;
use jiff::Timestamp;
use tokio::sync::{mpsc::UnboundedSender, watch};

use super::{
    app::{CauseKey, Fresh, Read, Source},
    rates::Counters,
};
use crate::{
    flags,
    hub::HubFacts,
    manager::{Manager, Problems},
    map::Map,
    planes::Planes,
    seen::Seen,
};

/// Time that a read may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time that readers have to end, with the programs that they started.
const FAREWELL: Duration = Duration::from_secs(1);

/// Most answers that are put together for the objects of one cause.
const MOST_PARTS: usize = 10;

/// A control plane that is read again and again.
trait Reader {
    /// Reads everything once. `open` is the cause whose objects are wanted.
    async fn read(&mut self, open: Option<CauseKey>, say: &UnboundedSender<Read>);

    /// Reads what another cause needs.
    async fn open(&mut self, key: CauseKey, say: &UnboundedSender<Read>);

    /// Returns a source, for a failure of the reader itself.
    fn source(&self) -> Source;
}

/// All readers. They end with this value.
pub struct Readers {
    rounds: watch::Sender<u64>,
    open: watch::Sender<Option<CauseKey>>,
    stop: Option<watch::Sender<()>>,
    ended: mpsc::Receiver<()>,
    count: usize,
}

impl Readers {
    /// Starts them. What they read goes to `say`.
    pub fn start(global: &flags::Global, args: &flags::Top, say: &UnboundedSender<Read>) -> Self {
        let (rounds, round) = watch::channel(0);
        let (open, opened) = watch::channel(None);
        let (stop, stopped) = watch::channel(());
        let (end, ended) = mpsc::channel();
        let run = Run { every: args.every.max(Duration::from_secs(1)), round, opened, stopped, say: say.clone() };
        let manager = OfManager { global: global.clone(), args: args.manager.clone(), manager: None };
        start(run.clone(), manager, end.clone());
        start(run, OfHub { global: global.clone(), planes: None }, end);
        Self { rounds, open, stop: Some(stop), ended, count: 2 }
    }

    /// Has everything read at once.
    pub fn refresh(&self) {
        self.rounds.send_modify(|round| *round += 1);
    }

    /// Has the objects of this cause read too.
    pub fn open(&self, key: Option<&CauseKey>) {
        self.open.send_if_modified(|open| {
            let differs = open.as_ref() != key;
            *open = key.cloned();
            differs
        });
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop = None;
        let until = Instant::now() + FAREWELL;
        // A reader that waits in a program for credentials cannot be ended, and is left behind.
        for _ in 0..self.count {
            let _ = self.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// How a reader is driven.
#[derive(Clone)]
struct Run {
    every: Duration,
    round: watch::Receiver<u64>,
    opened: watch::Receiver<Option<CauseKey>>,
    stopped: watch::Receiver<()>,
    say: UnboundedSender<Read>,
}

/// Starts a reader in a thread with a runtime of its own: some credentials are made by programs, which block it.
fn start(run: Run, mut reader: impl Reader + Send + 'static, end: mpsc::Sender<()>) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (say, source) = (run.say.clone(), reader.source());
        let failed = match runtime {
            Ok(runtime) => runtime.block_on(AssertUnwindSafe(drive(run, &mut reader)).catch_unwind()).is_err(),
            Err(_) => true,
        };
        if failed {
            let _ = say.send(Read::Failed(source, "the reader has failed: start the command again".to_owned()));
        }
        drop(reader);
        let _ = end.send(());
    });
}

/// Reads until it is stopped.
async fn drive(mut run: Run, reader: &mut impl Reader) {
    loop {
        let began = Instant::now();
        let open = run.opened.borrow_and_update().clone();
        run.round.borrow_and_update();
        tokio::select! {
            () = reader.read(open, &run.say) => {}
            _ = run.stopped.changed() => return,
        }
        // What takes long is read less often.
        let pause = tokio::time::sleep(run.every.max(4 * began.elapsed()));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                changed = run.round.changed() => if changed.is_err() { return } else { break },
                changed = run.opened.changed() => {
                    let open = run.opened.borrow_and_update().clone();
                    match open {
                        _ if changed.is_err() => return,
                        Some(key) => tokio::select! {
                            () = reader.open(key, &run.say) => {}
                            _ = run.stopped.changed() => return,
                        },
                        None => {}
                    }
                }
                _ = run.stopped.changed() => return,
            }
        }
    }
}

/// Reports a read: its begin, and its result.
async fn report(
    say: &UnboundedSender<Read>,
    source: Source,
    read: impl Future<Output = Result<Fresh, String>>,
) -> bool {
    let _ = say.send(Read::Began(source, Timestamp::now()));
    let result = tokio::time::timeout(PATIENCE, read).await;
    let result = result.unwrap_or_else(|_| Err(format!("no answer in {} s", PATIENCE.as_secs())));
    let is_well = result.is_ok();
    let read = match result {
        Ok(fresh) => Read::Done(Timestamp::now(), Box::new(fresh)),
        Err(why) => Read::Failed(source, why),
    };
    let _ = say.send(read);
    is_well
}

/// The manager: its list, its metrics, and the objects of the open cause.
struct OfManager {
    global: flags::Global,
    args: flags::Manager,
    manager: Option<Manager>,
}

impl Reader for OfManager {
    async fn read(&mut self, open: Option<CauseKey>, say: &UnboundedSender<Read>) {
        let (global, args, manager) = (&self.global, &self.args, &mut self.manager);
        let well = report(say, Source::Waiting, async {
            let manager = reach(manager, global, args).await?;
            // The causes are complete in every answer.
            let answer = manager.waiting(&Query { limit: Some(1), ..Query::default() }).await?;
            Ok(Fresh::Waiting(answer))
        });
        if !well.await {
            self.manager = None;
            return;
        }
        if let Some(key) = open {
            self.open(key, say).await;
        }
        if let Some(manager) = &self.manager {
            report(say, Source::Rates, async { Ok(Fresh::Counters(Counters::read(&manager.metrics().await?))) }).await;
        }
    }

    async fn open(&mut self, key: CauseKey, say: &UnboundedSender<Read>) {
        let (global, args, manager) = (&self.global, &self.args, &mut self.manager);
        let well = report(say, Source::Objects, async {
            let answer = objects(reach(manager, global, args).await?, &key).await?;
            Ok(Fresh::Objects(key, answer))
        });
        if !well.await {
            self.manager = None;
        }
    }

    fn source(&self) -> Source {
        Source::Waiting
    }
}

/// Returns the connection to the manager, or makes it.
async fn reach<'a>(
    manager: &'a mut Option<Manager>,
    global: &flags::Global,
    args: &flags::Manager,
) -> Result<&'a Manager, String> {
    let reached = match manager.take() {
        Some(reached) => reached,
        None => Manager::reach(global, args, Problems::Hidden).await?,
    };
    Ok(manager.insert(reached))
}

/// Asks for the objects of a cause.
async fn objects(manager: &Manager, key: &CauseKey) -> Result<Answer, String> {
    let (reason, city) = (Some(key.reason.clone()), key.city.clone());
    let mut query = Query { reason, city, limit: Some(MAX_LIMIT), ..Query::default() };
    let mut answer = manager.waiting(&query).await?;
    for _ in 1..MOST_PARTS {
        let Some(next) = answer.next.take() else { break };
        query.after = Some(next);
        let more = manager.waiting(&query).await?;
        answer.objects.extend(more.objects);
        answer.next = more.next;
    }
    Ok(answer)
}

/// The hub: cities and cells.
struct OfHub {
    global: flags::Global,
    planes: Option<Planes>,
}

impl Reader for OfHub {
    async fn read(&mut self, _: Option<CauseKey>, say: &UnboundedSender<Read>) {
        let (global, planes) = (&self.global, &mut self.planes);
        // It reads three lists at a time, and is large.
        let well = Box::pin(report(say, Source::Map, async {
            if global.hub_context.is_none() {
                return Err("the hub is not known: give --hub-context".to_owned());
            }
            let planes = match planes.take() {
                Some(known) => planes.insert(known),
                None => planes.insert(Planes::of(global).await.map_err(|(_, error)| error)?),
            };
            judged(&HubFacts::read(planes, Timestamp::now()).await).map(Fresh::Map)
        }));
        if !well.await {
            // The kubeconfig may be another one by now.
            self.planes = None;
        }
    }

    async fn open(&mut self, _: CauseKey, _: &UnboundedSender<Read>) {}

    fn source(&self) -> Source {
        Source::Map
    }
}

/// Returns the map. A hub that does not answer has none: the last one is kept.
fn judged(facts: &HubFacts) -> Result<Map, String> {
    let unanswered = matches!(facts.clusters, Seen::Unanswered(_))
        || matches!(facts.copies, Seen::Unanswered(_))
        || matches!(facts.bindings, Seen::Unanswered(_));
    if unanswered { Err(facts.hidden().join("; ")) } else { Ok(Map::of(facts)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parts_tests::hub;

    #[test]
    fn map_of_a_silent_hub_is_a_failure_and_of_a_forbidden_part_it_is_not() {
        let mut facts = hub();
        assert_eq!(judged(&facts), Ok(Map::of(&hub())));
        facts.bindings = Seen::Denied("forbidden".to_owned());
        assert!(judged(&facts).is_ok_and(|map| map.hidden.len() == 1));
        facts.copies = Seen::Unanswered("no route to host".to_owned());
        let why = judged(&facts).unwrap_err();
        assert!(why.contains("deployments: no answer: no route to host"), "{why}");
    }

    /// Reads with a given delay, and counts its reads.
    struct Slow(Duration, mpsc::Sender<&'static str>);

    impl Reader for Slow {
        async fn read(&mut self, _: Option<CauseKey>, say: &UnboundedSender<Read>) {
            let _ = self.1.send("read");
            tokio::time::sleep(self.0).await;
            assert!(!self.0.is_zero() || say.is_closed(), "it panics");
        }

        async fn open(&mut self, _: CauseKey, _: &UnboundedSender<Read>) {}

        fn source(&self) -> Source {
            Source::Map
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.1.send("dropped");
        }
    }

    fn run_of(
        every: Duration,
    ) -> (Run, watch::Sender<u64>, watch::Sender<()>, tokio::sync::mpsc::UnboundedReceiver<Read>) {
        let (rounds, round) = watch::channel(0);
        let opened = watch::channel(None).1;
        let (stop, stopped) = watch::channel(());
        let (say, reads) = tokio::sync::mpsc::unbounded_channel();
        (Run { every, round, opened, stopped, say }, rounds, stop, reads)
    }

    #[test]
    fn reader_is_stopped_in_the_middle_of_a_read() {
        let (run, _rounds, stop, _reads) = run_of(Duration::from_mins(1));
        let ((count, counted), (end, ended)) = (mpsc::channel(), mpsc::channel());
        start(run, Slow(Duration::from_mins(10), count), end);
        assert_eq!(counted.recv_timeout(Duration::from_secs(5)), Ok("read"));
        drop(stop);
        ended.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(counted.recv_timeout(Duration::from_secs(5)), Ok("dropped"), "and with it what it started");
    }

    #[test]
    fn reader_that_panics_says_so() {
        let (run, _rounds, _stop, mut reads) = run_of(Duration::from_mins(1));
        let ((count, _counted), (end, ended)) = (mpsc::channel(), mpsc::channel());
        start(run, Slow(Duration::ZERO, count), end);
        ended.recv_timeout(Duration::from_secs(5)).unwrap();
        assert!(matches!(reads.try_recv(), Ok(Read::Failed(Source::Map, why)) if why.contains("has failed")));
    }

    #[tokio::test]
    async fn read_that_takes_too_long_is_a_failure() {
        tokio::time::pause();
        let (say, mut reads) = tokio::sync::mpsc::unbounded_channel();
        assert!(!report(&say, Source::Map, std::future::pending()).await);
        assert!(matches!(reads.try_recv(), Ok(Read::Began(Source::Map, _))));
        assert_eq!(reads.try_recv(), Ok(Read::Failed(Source::Map, "no answer in 15 s".to_owned())));
    }
}
