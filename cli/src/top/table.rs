//! Text in columns of a limited width.

use std::ops::Range;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns between two cells.
const GAP: usize = 2;

/// Width that the most important column needs at least, unless its cells are shorter.
const LEAST_OF_FIRST: usize = 12;

/// The same of the other columns.
const LEAST: usize = 9;

/// Columns that fit, each with its number and width.
pub struct Fit(Vec<(usize, usize)>);

impl Fit {
    /// Chooses columns of these rows: in the given order of importance, as many as fit. Long cells are cut before a column is left
    /// out.
    pub fn of(rows: &[Vec<String>], importance: &[usize], room: usize) -> Self {
        let longest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max();
        let mut fit: Vec<(usize, usize)> = Vec::new();
        let mut used = 0;
        for &column in importance {
            let natural = longest(column).unwrap_or_default();
            let (least, gap) = if fit.is_empty() { (LEAST_OF_FIRST, 0) } else { (LEAST, GAP) };
            let needed = natural.min(least) + gap;
            if used + needed > room {
                break;
            }
            used += needed;
            fit.push((column, natural));
        }
        let mut over = total(&fit).saturating_sub(room);
        while over > 0 {
            // The widest column gives, until it is as narrow as the next one.
            let spare = |n: usize, width: usize| width.saturating_sub(if n == 0 { LEAST_OF_FIRST } else { LEAST });
            let widest = fit.iter().enumerate().filter(|(n, (_, width))| spare(*n, *width) > 0);
            let Some((n, (_, widest))) = widest.max_by_key(|(_, (_, width))| *width) else { break };
            let next = fit.iter().enumerate().filter(|(other, _)| *other != n).map(|(_, (_, width))| *width).max();
            let given = over.min(spare(n, *widest)).min(widest.saturating_sub(next.unwrap_or_default()).max(1));
            fit[n].1 -= given;
            over -= given;
        }
        fit.sort_by_key(|(column, _)| *column);
        Self(fit)
    }

    /// Returns the cells of a row, filled up to their widths.
    pub fn cells(&self, row: &[String]) -> Vec<String> {
        let last = self.0.len().saturating_sub(1);
        let cell = |(n, (column, wanted)): (usize, &(usize, usize))| {
            let text = cut(row.get(*column).map_or("", |cell| cell), *wanted);
            let gap = if n == last { 0 } else { GAP };
            let filled = wanted.saturating_sub(width(&text)) + gap;
            text + &" ".repeat(filled)
        };
        self.0.iter().enumerate().map(cell).collect()
    }
}

fn total(fit: &[(usize, usize)]) -> usize {
    fit.iter().map(|(_, width)| width).sum::<usize>() + GAP * fit.len().saturating_sub(1)
}

/// Returns the columns that a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Returns a text in one line that takes at most so many columns. Control characters become spaces.
pub fn cut(text: &str, room: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if width(&text) <= room {
        return text;
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or_default();
        used <= room
    };
    let kept: String = text.chars().take_while(fits).collect();
    if room == 0 { String::new() } else { kept + "…" }
}

/// Returns a text in at most so many lines. The last one is cut.
pub fn wrap(text: &str, room: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while words.peek().is_some() && lines.len() < most {
        let mut line = words.next().unwrap_or_default().to_owned();
        let is_last = lines.len() + 1 == most;
        while let Some(word) = words.next_if(|word| is_last || width(&line) + 1 + width(word) <= room) {
            line = line + " " + word;
        }
        lines.push(cut(&line, room));
    }
    lines
}

/// Returns the rows to show of `count`, so that the selected one is among them.
pub fn window(selected: usize, count: usize, room: usize) -> Range<usize> {
    let from = selected.saturating_sub(room / 2).min(count.saturating_sub(room));
    from..(from + room).min(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn columns_fit_every_width() {
        let name = "n".repeat(253);
        let rows = rows(&[&["ONE", "TWO", "THREE"], &[&name, "2", &name], &["日本語日本語", "x", "é"]]);
        for room in 1..300 {
            let fit = Fit::of(&rows, &[1, 0, 2], room);
            for row in &rows {
                let line = fit.cells(row).concat();
                assert!(width(&line) <= room, "{room}: {line:?} of {}", width(&line));
            }
        }
        let fit = Fit::of(&rows, &[1, 0, 2], 40);
        assert_eq!(fit.cells(&rows[0]).concat().split_whitespace().collect::<Vec<_>>(), ["ONE", "TWO", "THREE"]);
        let fit = Fit::of(&rows, &[1, 0, 2], 20);
        assert_eq!(fit.cells(&rows[0]).concat().trim_end(), "ONE              TWO", "the last is left out");
    }

    #[test]
    fn text_is_cut_by_its_columns_and_has_no_control_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("a\x1b[31m\nb", 20), "a [31m b");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".to_owned(), String::new()));
    }

    #[test]
    fn text_is_wrapped_and_its_last_line_cut() {
        assert_eq!(wrap("one two three", 7, 3), ["one two", "three"]);
        assert_eq!(wrap("one two three four", 7, 2), ["one two", "three …"]);
        assert_eq!(wrap("extraordinary", 5, 3), ["extr…"]);
        assert!(wrap("", 5, 3).is_empty() && wrap("x", 5, 0).is_empty());
    }

    #[test]
    fn window_has_the_selected_row() {
        for (count, room) in [(0, 5), (3, 5), (10_000, 7), (8, 7), (5, 1), (5, 0)] {
            for selected in 0..count {
                let shown = window(selected, count, room);
                assert!(shown.contains(&selected) || room == 0, "{selected} of {count} in {room}: {shown:?}");
                assert_eq!(shown.len(), room.min(count));
            }
        }
    }
}
