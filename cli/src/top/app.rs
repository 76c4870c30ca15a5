//! State of the view. It changes by keys and by finished reads, and does no IO itself.

use compute_operator::plan::management::waiting::{Answer, Cause, Waiting};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;

use super::rates::{Counters, Rates};
use crate::map::Map;

/// Rows that a page key moves.
const PAGE: usize = 10;

/// Source of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The manager's list of what waits.
    Waiting,
    /// Cities and cells, from the hub.
    Map,
    /// The manager's metrics.
    Rates,
    /// Objects of one cause.
    Objects,
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq)]
pub enum Fresh {
    /// What waits.
    Waiting(Answer),
    /// Cities and cells.
    Map(Map),
    /// Counters of the manager.
    Counters(Counters),
    /// Objects of the cause.
    Objects(CauseKey, Answer),
}

/// A read, as its reader reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// It began.
    Began(Source, Timestamp),
    /// It ended with a result.
    Done(Timestamp, Box<Fresh>),
    /// It failed. One line for the user.
    Failed(Source, String),
}

/// A cause among others: its objects wait for the same thing in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseKey {
    /// Reason of the objects.
    pub reason: String,
    /// Code of their city.
    pub city: Option<String>,
    waits_for: String,
    clusters: Vec<String>,
}

impl CauseKey {
    /// Returns the key of a cause.
    pub fn of(cause: &Cause) -> Self {
        Self {
            reason: cause.reason.clone(),
            city: cause.city.clone(),
            waits_for: cause.waits_for.clone(),
            clusters: cause.clusters.clone(),
        }
    }

    /// True if an object waits for this cause.
    pub fn has(&self, object: &Waiting) -> bool {
        object.reason == self.reason
            && object.city == self.city
            && object.waits_for == self.waits_for
            && object.clusters == self.clusters
    }
}

/// The last answer of a source, and what came after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Feed<T> {
    /// The last answer with its time.
    pub last: Option<(T, Timestamp)>,
    /// Why a later read failed.
    pub trouble: Option<String>,
    /// Time at which the read in progress began.
    pub began: Option<Timestamp>,
}

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self { last: None, trouble: None, began: None }
    }
}

impl<T> Feed<T> {
    /// Returns the last answer.
    pub fn found(&self) -> Option<&T> {
        self.last.as_ref().map(|(found, _)| found)
    }

    fn done(&mut self, found: T, at: Timestamp) {
        *self = Self { last: Some((found, at)), trouble: None, began: None };
    }

    fn failed(&mut self, why: String) {
        self.trouble = Some(why);
        self.began = None;
    }
}

/// Objects of a cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Drill {
    /// The cause.
    pub key: CauseKey,
    /// Its objects.
    pub feed: Feed<Vec<Waiting>>,
    /// Number of the selected object.
    pub selected: usize,
}

/// Part that the view shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum View {
    /// Causes, with a short map.
    #[default]
    Causes,
    /// The whole map.
    Map {
        /// First row.
        row: usize,
        /// First cluster.
        column: usize,
    },
    /// Objects of a cause.
    Objects(Drill),
}

/// What a key asks for besides another view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// End the program.
    Quit,
    /// Read all at once.
    Refresh,
}

/// State of the view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct App {
    /// What waits.
    pub waiting: Feed<Answer>,
    /// Cities and cells.
    pub map: Feed<Map>,
    /// Counters of the manager.
    pub counters: Feed<Counters>,
    /// Rates between the last two reads of the counters.
    pub rates: Option<Rates>,
    /// The shown part.
    pub view: View,
    /// True while the help is shown.
    pub help: bool,
    selected: usize,
}

impl App {
    /// Returns the causes.
    pub fn causes(&self) -> &[Cause] {
        self.waiting.found().map_or(&[], |answer| &answer.causes)
    }

    /// Returns the number of the selected cause.
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// Returns the cause whose objects are shown, and have to be read.
    pub fn open(&self) -> Option<&CauseKey> {
        if let View::Objects(drill) = &self.view { Some(&drill.key) } else { None }
    }

    /// Takes a read.
    pub fn on_read(&mut self, read: Read) {
        match read {
            Read::Began(Source::Waiting, at) => self.waiting.began = Some(at),
            Read::Began(Source::Map, at) => self.map.began = Some(at),
            Read::Began(Source::Rates, at) => self.counters.began = Some(at),
            Read::Began(Source::Objects, at) => {
                if let View::Objects(drill) = &mut self.view {
                    drill.feed.began = Some(at);
                }
            }
            Read::Failed(Source::Waiting, why) => self.waiting.failed(why),
            Read::Failed(Source::Map, why) => self.map.failed(why),
            Read::Failed(Source::Rates, why) => {
                self.counters.failed(why);
                self.rates = None;
            }
            Read::Failed(Source::Objects, why) => {
                if let View::Objects(drill) = &mut self.view {
                    drill.feed.failed(why);
                }
            }
            Read::Done(at, fresh) => self.on_fresh(*fresh, at),
        }
    }

    fn on_fresh(&mut self, fresh: Fresh, at: Timestamp) {
        match fresh {
            Fresh::Waiting(answer) => {
                let key = self.causes().get(self.selected).map(CauseKey::of);
                let same = |cause: &Cause| key.as_ref().is_some_and(|key| CauseKey::of(cause) == *key);
                let last = answer.causes.len().saturating_sub(1);
                // The selection stays on its cause. If that is no more, it stays in its place.
                self.selected = answer.causes.iter().position(same).unwrap_or(self.selected).min(last);
                self.waiting.done(answer, at);
            }
            Fresh::Map(map) => self.map.done(map, at),
            Fresh::Counters(counters) => {
                self.rates = self.counters.last.as_ref().and_then(|(before, since)| {
                    Rates::between(before, &counters, at.duration_since(*since).as_secs_f64())
                });
                self.counters.done(counters, at);
            }
            Fresh::Objects(key, answer) => {
                if let View::Objects(drill) = &mut self.view
                    && drill.key == key
                {
                    let objects: Vec<Waiting> = answer.objects.into_iter().filter(|object| key.has(object)).collect();
                    drill.selected = kept(drill, &objects);
                    drill.feed.done(objects, at);
                }
            }
        }
    }

    /// Takes a key. Returns what it asks for.
    pub fn on_key(&mut self, key: KeyEvent) -> Option<Ask> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Ask::Quit);
        }
        match key.code {
            KeyCode::Char('q') => return Some(Ask::Quit),
            KeyCode::Char('r') => return Some(Ask::Refresh),
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc if self.view == View::Causes => return Some(Ask::Quit),
            // Behind the help, nothing moves.
            _ if self.help => {}
            KeyCode::Esc | KeyCode::Backspace => self.view = View::Causes,
            KeyCode::Char('m') => {
                self.view = match self.view {
                    View::Map { .. } => View::Causes,
                    _ => View::Map { row: 0, column: 0 },
                };
            }
            KeyCode::Enter => self.enter(),
            KeyCode::Left => self.aside(false),
            KeyCode::Right => self.aside(true),
            KeyCode::Up | KeyCode::Char('k') => self.step(|at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.step(|at| at.saturating_add(1)),
            KeyCode::PageUp => self.step(|at| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.step(|at| at.saturating_add(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.step(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.step(|_| usize::MAX),
            _ => {}
        }
        None
    }

    fn enter(&mut self) {
        if self.view == View::Causes
            && let Some(cause) = self.causes().get(self.selected)
        {
            self.view = View::Objects(Drill { key: CauseKey::of(cause), feed: Feed::default(), selected: 0 });
        }
    }

    /// Moves the selection, or the first row of the map.
    fn step(&mut self, to: impl Fn(usize) -> usize) {
        let count = match &self.view {
            View::Causes => self.causes().len(),
            // The first row has the titles.
            View::Map { .. } => self.map.found().map_or(0, |map| map.rows().len().saturating_sub(1)),
            View::Objects(drill) => drill.feed.found().map_or(0, Vec::len),
        };
        let at = match &mut self.view {
            View::Causes => &mut self.selected,
            View::Map { row, .. } => row,
            View::Objects(drill) => &mut drill.selected,
        };
        *at = to(*at).min(count.saturating_sub(1));
    }

    /// Moves the first cluster of the map. In the objects, the left key leads back.
    fn aside(&mut self, right: bool) {
        let titles = self.map.found().map_or(0, |map| map.rows().first().map_or(0, Vec::len));
        match &mut self.view {
            View::Map { column, .. } if right => {
                // Three columns are not clusters: the first two, and the last. One cluster stays.
                *column = (*column + 1).min(titles.saturating_sub(4));
            }
            View::Map { column, .. } => *column = column.saturating_sub(1),
            View::Objects(_) if !right => self.view = View::Causes,
            _ => {}
        }
    }
}

/// Returns the place of the selected object among new ones. If it is no more, the selection stays in its place.
fn kept(drill: &Drill, objects: &[Waiting]) -> usize {
    let place = drill.feed.found().and_then(|before| Some(&before.get(drill.selected)?.place));
    let same = objects.iter().position(|object| place.is_some_and(|place| object.place == *place));
    same.unwrap_or(drill.selected).min(objects.len().saturating_sub(1))
}
