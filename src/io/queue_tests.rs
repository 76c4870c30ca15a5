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
async fn queue_key_added_during_its_run_runs_again_afterwards() {
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
async fn queue_lanes_are_served_in_turn() {
    let queue = Queue::default();
    for n in 0..1000 {
        queue.add(key("big", &n.to_string()));
    }
    queue.add(key("small", "a"));
    let served = [queue.next().await, queue.next().await];
    assert!(served.iter().any(|key| key.lane() == "small"), "{served:?}");
}

#[tokio::test]
async fn queue_lone_lane_has_more_workers() {
    let queue = Queue::default();
    for n in 0..100 {
        queue.add(key("big", &n.to_string()));
    }
    let mut at_work = Vec::new();
    for _ in 0..LONE_LANE_SHARE {
        at_work.push(queue.next().await);
    }
    assert!(queue.lock().take().is_none(), "half of the workers stay free for other lanes");
    queue.add(key("small", "a"));
    assert_eq!(queue.next().await.lane(), "small");
    for key in at_work.drain(LANE_SHARE..) {
        queue.finish(key, Outcome::Done);
        assert!(queue.lock().take().is_none(), "with another lane it keeps to its share");
    }
    queue.finish(at_work.remove(0), Outcome::Done);
    assert_eq!(queue.next().await.lane(), "big");
}

#[tokio::test]
async fn queue_silent_lane_has_one_worker() {
    let queue = Queue::default();
    for n in 0..20 {
        queue.add(key("silent", &n.to_string()));
    }
    let first = queue.next().await;
    queue.finish(first, Outcome::Unanswered);
    let held = queue.next().await;
    queue.add(key("other", "a"));
    assert_eq!(queue.next().await.lane(), "other", "19 silent keys wait and block no other lane");
    assert!(queue.lock().take().is_none());
    queue.finish(held, Outcome::Done);
    for _ in 0..LANE_SHARE {
        assert_eq!(queue.next().await.lane(), "silent", "an answer gives the lane its share back");
    }
    assert!(queue.lock().take().is_none(), "but no more than its share");
}

#[tokio::test(start_paused = true)]
async fn queue_failing_key_backs_off_until_a_success() {
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
    assert!(queue.finish(running, Outcome::Failed).unwrap() <= BACKOFF_FIRST, "a success resets the back-off");
}

#[tokio::test(start_paused = true)]
async fn queue_event_shortens_the_back_off_without_a_hot_loop() {
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
async fn queue_recovered_lane_retries_at_once() {
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
async fn queue_event_overtakes_a_planned_requeue() {
    let queue = Queue::default();
    queue.add(key("p", "a"));
    let running = queue.next().await;
    queue.finish(running, Outcome::Again(Duration::from_mins(5)));
    queue.add(key("p", "a"));
    assert_eq!(queue.depth(), 1);
}

#[tokio::test(start_paused = true)]
async fn queue_metrics_count_adds_retries_and_durations() {
    let metrics = Metrics::default();
    let queue = Queue::default();
    queue.add(key("p", "before"));
    queue.tell(metrics.queue("q"));
    queue.add(key("p", "a"));
    queue.add(key("p", "a"));
    let metric = |name: &str| {
        let text = metrics.text();
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("{name}{{name=\"q\"}} "))).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse::<f64>().unwrap()
    };
    assert_eq!((metric("workqueue_depth"), metric("workqueue_adds_total")), (2.0, 2.0));
    tokio::time::advance(Duration::from_secs(3)).await;
    let first = queue.next().await;
    assert_eq!((metric("workqueue_depth"), metric("workqueue_queue_duration_seconds_sum")), (1.0, 3.0));
    tokio::time::advance(Duration::from_secs(2)).await;
    queue.finish(first, Outcome::Again(Duration::from_secs(9)));
    assert_eq!((metric("workqueue_work_duration_seconds_sum"), metric("workqueue_retries_total")), (2.0, 1.0));
    let second = queue.next().await;
    queue.finish(second, Outcome::Done);
    assert_eq!((metric("workqueue_depth"), metric("workqueue_retries_total")), (0.0, 1.0));
}

/// A key with many events.
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
async fn queue_pausing_key_runs_once_for_all_events() {
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
        assert_eq!(queue.depth(), usize::from(rounds == 0), "another key does not wait for it");
        if rounds == 0 {
            let other = queue.next().await;
            queue.finish(other, Outcome::Failed);
            queue.retry_all_now();
            assert_eq!(queue.depth(), 1, "a failed key does not pause, it backs off");
            queue.next().await;
        }
    }
    let last = queue.next().await;
    queue.finish(last, Outcome::Again(Duration::from_secs(9)));
    queue.add(Restful(1));
    let again = queue.next().await;
    assert_eq!((again, start.elapsed().as_secs()), (Restful(1), 4), "an event overtakes the requeue");
    assert!(queue.lock().rests_until.len() <= 1 && queue.lock().rests.len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn queue_pause_of_each_run_can_differ_and_ends_in_its_own_order() {
    let (queue, start) = (Queue::default(), Instant::now());
    for (key, rest) in [(1, 9), (2, 2), (3, 0)] {
        queue.add(Restful(key));
        let running = queue.next().await;
        queue.finish_with_rest(running, Outcome::Done, Duration::from_secs(rest));
        queue.add(Restful(key));
    }
    for expected in [(3, 0), (2, 2), (1, 9)] {
        let running = queue.next().await;
        assert_eq!((running.0, start.elapsed().as_secs()), expected);
    }
}

/// All objects of a cell were in one lane, so a deployment waited for the work of other projects.
#[tokio::test]
async fn queue_cell_namespace_with_many_objects_does_not_delay_another() {
    let queue = Queue::default();
    for n in 0..1000 {
        queue.add(ObjectKey::new("ns-large", &format!("web-{n}")));
    }
    queue.add(ObjectKey::new("ns-small", "web"));
    let served = [queue.next().await, queue.next().await];
    assert!(served.iter().any(|key| &*key.namespace == "ns-small"), "{served:?}");
}

/// Only an attempt reports an error, and the back-off alone left a gap from 13 s to 38 s.
#[tokio::test(start_paused = true)]
async fn queue_failing_key_is_retried_when_its_grace_ends() {
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
        assert_eq!(queue.failing_for(&running), grace, "a reset of the back-off does not make an error younger");
        queue.finish(running.clone(), Outcome::Done);
        assert_eq!(queue.failing_for(&running), Duration::ZERO, "a success ends it");
    }
}

/// Every idle worker waited for the next due time, so that each due key woke all of them.
#[tokio::test(start_paused = true)]
async fn queue_due_keys_run_in_time_though_one_worker_waits_for_the_clock() {
    let queue = std::sync::Arc::new(Queue::<Named>::default());
    let runs = std::sync::Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    for _ in 0..8 {
        let (queue, runs) = (queue.clone(), runs.clone());
        tokio::spawn(async move {
            loop {
                let key = queue.next().await;
                let pause: u64 = key.1.parse().unwrap();
                runs.lock().unwrap().push((pause, began.elapsed().as_millis()));
                queue.finish(key, Outcome::Again(Duration::from_millis(pause)));
            }
        });
    }
    let pauses = [1900, 170, 130, 110, 70];
    for (n, pause) in pauses.into_iter().enumerate() {
        // Later keys are due earlier than the time for which a worker waits already.
        tokio::time::sleep(Duration::from_millis(7 * n as u64)).await;
        let name: &'static str = Box::leak(pause.to_string().into_boxed_str());
        queue.add(key("a", name));
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    for pause in pauses {
        let all = runs.lock().unwrap();
        let times: Vec<u128> = all.iter().filter(|(of, _)| *of == pause).map(|(_, at)| *at).collect();
        assert!(times.len() > 4, "{pause}: {times:?}");
        // The clock of tokio's timers has a resolution of a millisecond.
        let is_late = |pair: &[u128]| pair[1] - pair[0] > u128::from(pause) + 1;
        assert!(!times.windows(2).any(is_late), "{pause}: {times:?}");
    }
}
