//! The screen. It is drawn from the state and the time alone.

use std::collections::BTreeMap;

use compute_operator::{
    api::reason::Reason,
    plan::management::waiting::{Waiting, WaitingKind},
};
use jiff::Timestamp;
use ratatui::{
    Frame,
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    app::{App, Drill, Feed, View},
    table::{self, Fit, cut, wrap},
};
use crate::{
    explain::plain,
    map::Map,
    screen::{Mark, age},
    waiting::{CAUSE_TITLES, OBJECT_TITLES, cause_row, object_row},
};

/// Smallest screen.
const SMALLEST: (usize, usize) = (40, 10);

/// Height from which the causes have a map above them.
const HIGH: usize = 18;

/// Time after which a read is slow.
const SLOW: i64 = 3;

/// Most lines about failed and slow reads.
const MOST_TROUBLES: usize = 3;

/// Columns of causes, the most important ones first.
const CAUSE_COLUMNS: [usize; 7] = [1, 5, 2, 0, 6, 3, 4];

/// Columns of objects, the most important ones first. All have the same reason, for the same party.
const OBJECT_COLUMNS: [usize; 6] = [2, 6, 1, 0, 7, 5];

const HELP: [&str; 7] = [
    "q       quit",
    "Esc     back; from the causes: quit",
    "↑ ↓     select; also PgUp PgDn Home End",
    "Enter   the objects of a cause",
    "m       the map; ← → its clusters",
    "r       read all again now",
    "✔ well ✖ broken ▲ look · later ? unseen",
];

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, app: &App, now: Timestamp, colours: bool) {
    let area = frame.area();
    let page = Page { width: area.width.into(), height: area.height.into(), now, colours };
    frame.render_widget(Paragraph::new(page.lines(app)), area);
}

/// Properties of the screen.
struct Page {
    width: usize,
    height: usize,
    now: Timestamp,
    colours: bool,
}

impl Page {
    fn lines(&self, app: &App) -> Vec<Line<'static>> {
        if self.width < SMALLEST.0 || self.height < SMALLEST.1 {
            let text = format!("The screen needs {} columns and {} lines.", SMALLEST.0, SMALLEST.1);
            return wrap(&text, self.width, self.height).into_iter().map(Line::raw).collect();
        }
        let mut lines = vec![self.head(app)];
        let foot = self.foot(app);
        let room = self.height - lines.len() - foot.len();
        let body = if app.help {
            HELP.map(|line| Line::raw(cut(line, self.width))).to_vec()
        } else {
            match &app.view {
                View::Causes => self.causes(app, room),
                View::Map { row, column } => self.map(app, (*row, *column), room),
                View::Objects(drill) => self.objects(drill, room),
            }
        };
        lines.extend(body.into_iter().take(room));
        lines.resize(self.height - foot.len(), Line::default());
        lines.extend(foot);
        lines
    }

    fn head(&self, app: &App) -> Line<'static> {
        let clock = self.now.strftime("%H:%M:%SZ").to_string();
        let totals = app.waiting.found().map_or_else(String::new, |answer| {
            format!(" · {} projects · {} deployments", answer.projects, answer.deployments)
        });
        let left = cut(&format!("compute top{totals}"), self.width - clock.len() - 1);
        let gap = self.width - table::width(&left) - clock.len();
        Line::styled(format!("{left}{}{clock}", " ".repeat(gap)), Style::new().add_modifier(Modifier::BOLD))
    }

    /// Returns failed and slow reads, rates and keys.
    fn foot(&self, app: &App) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if !app.help {
            let objects = match &app.view {
                View::Objects(drill) => self.trouble("objects", &drill.feed),
                _ => None,
            };
            let troubles = [self.trouble("waiting", &app.waiting), self.trouble("map", &app.map), objects];
            let incomplete = app.waiting.found().filter(|answer| !answer.incomplete.is_empty()).map(|answer| {
                let names: Vec<&str> = answer.incomplete.iter().map(|name| name.as_str()).collect();
                (Mark::Warning, format!("not complete for {}", names.join(", ")))
            });
            let all = troubles.into_iter().chain([incomplete]).flatten().take(MOST_TROUBLES);
            lines.extend(all.map(|(mark, text)| self.marked(mark, &text)));
            if self.height > SMALLEST.1 + MOST_TROUBLES {
                lines.extend(self.rates(app));
            }
        }
        let keys = match (&app.view, app.help) {
            (_, true) => "q quit  ? close the help",
            (View::Causes, _) => "q quit  ? help  ↑↓ select  Enter objects  m map  r refresh",
            (View::Map { .. }, _) => "q quit  ? help  ↑↓←→ move  Esc back  r refresh",
            (View::Objects(_), _) => "q quit  ? help  ↑↓ select  Esc back  r refresh",
        };
        lines.push(Line::styled(cut(keys, self.width), Style::new().add_modifier(Modifier::DIM)));
        lines
    }

    /// Returns what is wrong with a source: its last read failed, or the present one is slow.
    fn trouble<T>(&self, name: &str, feed: &Feed<T>) -> Option<(Mark, String)> {
        let seen = feed.last.as_ref().map(|(_, at)| format!(", last seen {} ago", age(*at, self.now)));
        let is_known = seen.is_some();
        let seen = seen.unwrap_or_default();
        let slow = feed.began.filter(|began| self.now.duration_since(*began).as_secs() >= SLOW);
        match (&feed.trouble, slow) {
            (Some(why), _) => Some((Mark::Unanswered, format!("{name}: {why}{seen}"))),
            (None, Some(began)) => {
                Some((Mark::Unanswered, format!("{name}: no answer for {}{seen}", age(began, self.now))))
            }
            (None, None) if !is_known => Some((Mark::Later, format!("{name}: reading"))),
            (None, None) => None,
        }
    }

    /// Returns the line about the manager's rates. Its metrics need another right, so they may be missing.
    fn rates(&self, app: &App) -> Option<Line<'static>> {
        match (&app.rates, &app.counters.trouble) {
            (Some(rates), _) => Some(Line::raw(cut(&format!("manager: {}", rates.text()), self.width))),
            (None, Some(why)) => Some(self.marked(Mark::Unseen, &format!("rates: {why}"))),
            (None, None) => None,
        }
    }

    fn causes(&self, app: &App, room: usize) -> Vec<Line<'static>> {
        let Some(answer) = app.waiting.found() else {
            return self.short_map(app, room);
        };
        let mut by_party: BTreeMap<&str, usize> = BTreeMap::new();
        for cause in &answer.causes {
            *by_party.entry(&cause.waits_for).or_default() += cause.objects;
        }
        let sum: usize = by_party.values().sum();
        let mut parties: Vec<(&str, usize)> = by_party.into_iter().collect();
        parties.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let parties: Vec<String> = parties.iter().map(|(party, count)| format!("{party} {count}")).collect();
        let text = match sum {
            0 => "Nothing waits.".to_owned(),
            sum => format!("{sum} objects wait: {}", parties.join(", ")),
        };
        let mut lines = vec![self.strong(&text)];
        lines.extend(self.short_map(app, room - lines.len()));
        let causes = app.causes();
        if !causes.is_empty() {
            let room = room.saturating_sub(lines.len() + 1);
            let shown = table::window(app.selected(), causes.len(), room);
            let rows = causes[shown.clone()].iter().map(|cause| cause_row(cause, self.now)).collect();
            let selected = app.selected().checked_sub(shown.start);
            lines.extend(self.table(&CAUSE_TITLES.map(str::to_owned), rows, &CAUSE_COLUMNS, selected));
        }
        lines
    }

    /// Returns the map above the causes: one line, or a third of a high screen.
    fn short_map(&self, app: &App, room: usize) -> Vec<Line<'static>> {
        let Some(map) = app.map.found() else { return Vec::new() };
        let (ready, desired) =
            map.cities.values().fold((0, 0), |(ready, desired), count| (ready + count.ready, desired + count.desired));
        let notes = match map.notes().len() {
            0 => String::new(),
            1 => ", 1 note".to_owned(),
            count => format!(", {count} notes"),
        };
        let (cities, clusters) = (map.cities.len(), map.clusters.len());
        let text = format!("Map: {ready}/{desired} ready in {cities} cities on {clusters} clusters{notes}");
        let mut lines = vec![Line::raw(cut(&text, self.width))];
        if self.height >= HIGH {
            if let Some((titles, rows)) = map.rows().split_first() {
                let shown = rows.len().min(room / 3);
                lines.extend(self.map_table(titles, &rows[..shown], 0, None));
                if shown < rows.len() {
                    lines.push(Line::raw(cut(&format!("  … {} more lines: m", rows.len() - shown), self.width)));
                }
            }
            lines.push(Line::default());
        }
        lines
    }

    fn map(&self, app: &App, (row, column): (usize, usize), room: usize) -> Vec<Line<'static>> {
        let Some(map) = app.map.found() else { return Vec::new() };
        let notes = map.notes();
        // The table has at least half of the room.
        let note_lines = notes.len().min(room / 2);
        let rows = map.rows();
        let room = room.saturating_sub(note_lines + 1);
        let mut lines = vec![self.strong(&format!("Cities and cells: {} clusters", clusters(map)))];
        if let Some((titles, rows)) = rows.split_first() {
            let shown = table::window(row, rows.len(), room.saturating_sub(1));
            lines.extend(self.map_table(titles, &rows[shown.clone()], column, row.checked_sub(shown.start)));
        }
        lines.extend(notes.into_iter().take(note_lines).map(|(mark, text)| self.marked(mark, &text)));
        lines
    }

    /// Returns the lines of a part of the map, from one of its clusters on.
    fn map_table(
        &self,
        titles: &[String],
        rows: &[Vec<String>],
        column: usize,
        selected: Option<usize>,
    ) -> Vec<Line<'static>> {
        let last = titles.len().saturating_sub(1);
        let columns: Vec<usize> = [0, 1, last].into_iter().chain((2 + column)..last).collect();
        self.table(titles, rows.to_vec(), &columns, selected)
    }

    fn objects(&self, drill: &Drill, room: usize) -> Vec<Line<'static>> {
        let key = &drill.key;
        let place = key.city.as_deref().map_or_else(String::new, |city| format!(" in {city}"));
        let count = drill.feed.found().map_or_else(String::new, |objects| format!(": {} objects", objects.len()));
        let mut lines = vec![self.strong(&format!("{}{place}{count}", key.reason))];
        if let Some(entry) = Reason::from(key.reason.as_str()).entry() {
            lines.push(Line::raw(cut(&plain(entry.meaning), self.width)));
        }
        let Some(objects) = drill.feed.found() else { return lines };
        let detail = objects.get(drill.selected).filter(|_| room >= 12).map(|object| self.detail(object));
        let detail = detail.unwrap_or_default();
        let rest = room.saturating_sub(lines.len() + detail.len() + 1);
        let shown = table::window(drill.selected, objects.len(), rest);
        let row = |object: &Waiting| {
            let mut row = object_row(object, self.now);
            row[OBJECT_COLUMNS[0]] = short(object);
            row
        };
        let rows = objects[shown.clone()].iter().map(row).collect();
        let selected = drill.selected.checked_sub(shown.start);
        lines.extend(self.table(&OBJECT_TITLES.map(str::to_owned), rows, &OBJECT_COLUMNS, selected));
        lines.extend(detail);
        lines
    }

    /// Returns the message of an object, and the command that follows it.
    fn detail(&self, object: &Waiting) -> Vec<Line<'static>> {
        let command = format!("kubectl compute trace {} -n {}", short(object), object.place.namespace);
        let mut lines = vec![Line::default()];
        lines.extend(wrap(&object.message, self.width, 3).into_iter().map(Line::raw));
        lines.push(Line::raw(cut(&format!("DO  {command}"), self.width)));
        lines
    }

    /// Returns the lines of a table, with a title.
    fn table(
        &self,
        titles: &[String],
        rows: Vec<Vec<String>>,
        columns: &[usize],
        selected: Option<usize>,
    ) -> Vec<Line<'static>> {
        let all: Vec<Vec<String>> = [titles.to_vec()].into_iter().chain(rows).collect();
        let fit = Fit::of(&all, columns, self.width - 2);
        all.iter()
            .enumerate()
            .map(|(n, row)| {
                let is_selected = n > 0 && selected == Some(n - 1);
                let mut spans = vec![Span::raw(if is_selected { "▶ " } else { "  " })];
                let styled = |cell: String| {
                    let style = if n == 0 { Style::new() } else { self.style_of(cell.trim_end()) };
                    Span::styled(cell, style)
                };
                spans.extend(fit.cells(row).into_iter().map(styled));
                let line = Line::from(spans);
                match (n, is_selected) {
                    (0, _) => line.style(Style::new().add_modifier(Modifier::BOLD)),
                    (_, true) => line.style(Style::new().add_modifier(Modifier::REVERSED)),
                    _ => line,
                }
            })
            .collect()
    }

    fn strong(&self, text: &str) -> Line<'static> {
        Line::styled(cut(text, self.width), Style::new().add_modifier(Modifier::BOLD))
    }

    fn marked(&self, mark: Mark, text: &str) -> Line<'static> {
        let line = cut(&format!("{} {text}", mark.sign()), self.width);
        Line::styled(line, self.style_of(mark.sign()))
    }

    /// Returns the style of a cell: that of its mark, or of the party that acts.
    fn style_of(&self, cell: &str) -> Style {
        if !self.colours {
            return Style::new();
        }
        let of_mark = |mark: Mark| cell.starts_with(mark.sign());
        if of_mark(Mark::Broken) || cell == "platform" {
            Style::new().fg(Color::Red)
        } else if of_mark(Mark::Warning) || of_mark(Mark::Unseen) || cell == "tenant" {
            Style::new().fg(Color::Yellow)
        } else if of_mark(Mark::Well) {
            Style::new().fg(Color::Green)
        } else {
            Style::new()
        }
    }
}

/// Returns an object as `trace` takes it.
fn short(object: &Waiting) -> String {
    let kind = match object.place.kind {
        WaitingKind::Workload => "workload",
        WaitingKind::WorkloadDeployment => "wd",
    };
    format!("{kind}/{}", object.place.name)
}

/// Returns the number of clusters in the map, with those that are no longer members.
fn clusters(map: &Map) -> usize {
    map.rows().first().map_or(0, |titles| titles.len().saturating_sub(3))
}
