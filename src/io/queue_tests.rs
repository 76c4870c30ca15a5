use super::*;
use crate::metrics::Metrics;

/// A lane and a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Named(&'static str, String);

impl Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

impl Key for Named {
    type Lane = &'static str;

    fn lane(&self) -> &'static str {
        self.0
    }
}

fn key(lane: &'static str, name: &str) -> Named {
    Named(lane, name.to_owned())
}

#[tokio::test]
async fn a_key_runs_once_at_a_time_and_again_when_touched_meanwhile() {
    let queue = Queue::default();
    queue.add(key("p", "a"));
    queue.add(key("p", "a"));
    let running = queue.next().await;
    assert_eq!(queue.depth(), 0);
    queue.add(key("p", "a"));
    assert_eq!(queue.depth(), 0, "not while it runs");
    queue.finish(running, Outcome::Done);
    assert_eq!(queue.depth(), 1);
}

#[tokio::test]
async fn lanes_are_served_in_turn() {
    let queue = Queue::default();
    for n in 0..1000 {
        queue.add(key("big", &n.to_string()));
    }
    queue.add(key("small", "a"));
    let served = [queue.next().await, queue.next().await];
    assert!(served.iter().any(|key| key.lane() == "small"), "{served:?}");
}

#[tokio::test]
async fn a_lane_has_more_workers_while_it_is_the_only_one() {
    let queue = Queue::default();
    for n in 0..100 {
        queue.add(key("big", &n.to_string()));
    }
    let mut at_work = Vec::new();
    for _ in 0..LONE_LANE_SHARE {
        at_work.push(queue.next().await);
    }
    assert!(queue.lock().take().is_none(), "the others wait for whoever may come");
    queue.add(key("small", "a"));
    assert_eq!(queue.next().await.lane(), "small");
    for key in at_work.drain(LANE_SHARE..) {
        queue.finish(key, Outcome::Done);
        assert!(queue.lock().take().is_none(), "beside another it keeps to its share");
    }
    queue.finish(at_work.remove(0), Outcome::Done);
    assert_eq!(queue.next().await.lane(), "big");
}

#[tokio::test]
async fn a_silent_lane_keeps_one_worker_waiting_and_no_more() {
    let queue = Queue::default();
    for n in 0..20 {
        queue.add(key("silent", &n.to_string()));
    }
    let first = queue.next().await;
    queue.finish(first, Outcome::Unanswered);
    let held = queue.next().await;
    queue.add(key("other", "a"));
    assert_eq!(queue.next().await.lane(), "other", "19 silent keys wait, and keep nobody from working");
    assert!(queue.lock().take().is_none());
    queue.finish(held, Outcome::Done);
    for _ in 0..LANE_SHARE {
        assert_eq!(queue.next().await.lane(), "silent", "an answer gives the lane its share back");
    }
    assert!(queue.lock().take().is_none(), "and no more than that");
}

#[tokio::test(start_paused = true)]
async fn failures_are_held_back_longer_and_longer_until_a_success() {
    let queue = Queue::default();
    let mut delays = Vec::new();
    queue.add(key("p", "a"));
    for _ in 0..12 {
        let running = queue.next().await;
        delays.push(queue.finish(running, Outcome::Failed).unwrap());
        assert_eq!(queue.depth(), 0);
    }
    assert!(delays[0] <= BACKOFF_FIRST && delays[11] >= BACKOFF_MAX / 2 && delays[11] <= BACKOFF_MAX, "{delays:?}");
    let running = queue.next().await;
    assert_eq!(queue.finish(running, Outcome::Done), None);
    queue.add(key("p", "a"));
    let running = queue.next().await;
    assert!(queue.finish(running, Outcome::Failed).unwrap() <= BACKOFF_FIRST, "success renews patience");
}

#[tokio::test(start_paused = true)]
async fn an_event_brings_a_failing_key_forward_without_a_hot_loop() {
    let queue = Queue::default();
    queue.add(key("p", "a"));
    for _ in 0..12 {
        let running = queue.next().await;
        queue.finish(running, Outcome::Failed);
    }
    let before = Instant::now();
    queue.add(key("p", "a"));
    assert_eq!(queue.depth(), 0);
    let running = queue.next().await;
    assert!(before.elapsed() <= RETRY_AFTER_EVENT + Duration::from_millis(10));
    queue.add(key("p", "a"));
    queue.finish(running, Outcome::Failed);
    assert_eq!(queue.depth(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_recovered_lane_tries_at_once() {
    let queue = Queue::default();
    for lane in ["p", "q"] {
        queue.add(key(lane, "a"));
        let running = queue.next().await;
        queue.finish(running, Outcome::Failed);
    }
    queue.retry_now(&"p");
    assert_eq!(queue.depth(), 1);
    assert_eq!(queue.next().await.lane(), "p");
}

#[tokio::test(start_paused = true)]
async fn an_event_overtakes_a_planned_look() {
    let queue = Queue::default();
    queue.add(key("p", "a"));
    let running = queue.next().await;
    queue.finish(running, Outcome::Again(Duration::from_mins(5)));
    queue.add(key("p", "a"));
    assert_eq!(queue.depth(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_tells_what_it_does() {
    let metrics = Metrics::default();
    let queue = Queue::default();
    queue.add(key("p", "before"));
    queue.tell(metrics.queue("q"));
    queue.add(key("p", "a"));
    queue.add(key("p", "a"));
    let told = |name: &str| {
        let text = metrics.text();
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("{name}{{name=\"q\"}} "))).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse::<f64>().unwrap()
    };
    assert_eq!((told("workqueue_depth"), told("workqueue_adds_total")), (2.0, 2.0));
    tokio::time::advance(Duration::from_secs(3)).await;
    let first = queue.next().await;
    assert_eq!((told("workqueue_depth"), told("workqueue_queue_duration_seconds_sum")), (1.0, 3.0));
    tokio::time::advance(Duration::from_secs(2)).await;
    queue.finish(first, Outcome::Again(Duration::from_secs(9)));
    assert_eq!((told("workqueue_work_duration_seconds_sum"), told("workqueue_retries_total")), (2.0, 1.0));
    let second = queue.next().await;
    queue.finish(second, Outcome::Done);
    assert_eq!((told("workqueue_depth"), told("workqueue_retries_total")), (0.0, 1.0));
}

/// A key that many events concern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Restful(u8);

impl Display for Restful {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Key for Restful {
    type Lane = ();

    const REST: Duration = Duration::from_secs(1);

    fn lane(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_key_that_rests_runs_once_for_all_that_happened_meanwhile() {
    let queue = Queue::default();
    let start = Instant::now();
    for rounds in 0..3 {
        queue.add(Restful(1));
        let running = queue.next().await;
        assert_eq!(start.elapsed().as_secs(), rounds);
        queue.add(Restful(1));
        queue.finish(running, Outcome::Done);
        for _ in 0..20 {
            queue.add(Restful(1));
        }
        queue.add(Restful(2));
        assert_eq!(queue.depth(), usize::from(rounds == 0), "another one does not wait for it");
        if rounds == 0 {
            let other = queue.next().await;
            queue.finish(other, Outcome::Failed);
            queue.retry_all_now();
            assert_eq!(queue.depth(), 1, "what has failed does not rest: it has a patience of its own");
            queue.next().await;
        }
    }
    let last = queue.next().await;
    queue.finish(last, Outcome::Again(Duration::from_secs(9)));
    queue.add(Restful(1));
    let again = queue.next().await;
    assert_eq!((again, start.elapsed().as_secs()), (Restful(1), 4), "an event comes before its time");
    assert!(queue.lock().rests_until.len() <= 1 && queue.lock().rests.len() <= 1);
}

/// All objects of a cell were one lane: a deployment waited for all that another project's had to do.
#[tokio::test]
async fn cell_namespace_with_many_objects_does_not_hold_up_another() {
    let queue = Queue::default();
    for n in 0..1000 {
        queue.add(ObjectKey::new("ns-large", &format!("web-{n}")));
    }
    queue.add(ObjectKey::new("ns-small", "web"));
    let served = [queue.next().await, queue.next().await];
    assert!(served.iter().any(|key| &*key.namespace == "ns-small"), "{served:?}");
}

/// An error is reported by an attempt alone: with the back-off as it is, none came between 13 s and 38 s.
#[tokio::test(start_paused = true)]
async fn failing_key_is_tried_again_when_its_grace_ends() {
    let (queue, grace) = (Queue::default(), Duration::from_secs(20));
    queue.report_after(grace);
    for _ in 0..20 {
        queue.add(key("p", "a"));
        let started = Instant::now();
        let mut ages = Vec::new();
        while ages.last().is_none_or(|age| *age < grace) {
            let running = queue.next().await;
            ages.push(queue.failing_for(&running));
            queue.finish(running, Outcome::Failed);
        }
        assert_eq!((ages[0], ages.last()), (Duration::ZERO, Some(&grace)), "{ages:?}");
        assert_eq!(started.elapsed(), grace);
        queue.retry_now(&"p");
        let running = queue.next().await;
        assert_eq!(queue.failing_for(&running), grace, "renewed patience does not make an error younger");
        queue.finish(running.clone(), Outcome::Done);
        assert_eq!(queue.failing_for(&running), Duration::ZERO, "a success ends it");
    }
}
