//! The report on a screen.

use std::fmt::Write as _;

use super::judge::{Check, Report, Row};
use crate::screen::{Mark, Screen};

/// Space between two checks that passed.
const GAP: usize = 3;

/// Returns the text of a report.
pub fn text(report: &Report, screen: Screen) -> String {
    let widest = report.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default() + 2;
    let mut text: String = report.rows.iter().map(|row| row_text(row, widest, screen)).collect();
    let Report { passed, warnings, failed, unseen, unanswered, .. } = report;
    let _ = write!(text, "{passed} passed, {warnings} warnings, {failed} failed");
    if *unseen > 0 {
        let _ = write!(text, ", {unseen} not visible");
    }
    if *unanswered > 0 {
        let _ = write!(text, ", {unanswered} without an answer");
    }
    text.push('\n');
    text
}

fn row_text(row: &Row, widest: usize, screen: Screen) -> String {
    let (well, others): (Vec<&Check>, Vec<&Check>) = row.checks.iter().partition(|check| check.mark == Mark::Well);
    let mut lines = packed(&well, widest, screen);
    for check in others {
        lines.push(format!("{} {}", screen.sign(check.mark), check.text));
        lines.extend(check.fix.iter().map(|fix| format!("  fix  {fix}")));
    }
    let mut text = String::new();
    for (nth, line) in lines.iter().enumerate() {
        let name = if nth == 0 { &*row.name } else { "" };
        let pad = " ".repeat(widest.saturating_sub(name.chars().count()));
        let name = if nth == 0 { screen.strong(name) } else { String::new() };
        let _ = writeln!(text, "{name}{pad}{line}");
    }
    text
}

/// Returns the checks that passed, as many in one line as fit on the terminal.
fn packed(checks: &[&Check], indent: usize, screen: Screen) -> Vec<String> {
    let room = screen.width.map(|width| width.saturating_sub(indent));
    let (mut lines, mut used): (Vec<String>, usize) = (Vec::new(), 0);
    for check in checks {
        let length = check.text.chars().count() + 2;
        let item = format!("{} {}", screen.sign(check.mark), check.text);
        match lines.last_mut() {
            Some(line) if room.is_none_or(|room| used + GAP + length <= room) => {
                line.push_str(&" ".repeat(GAP));
                line.push_str(&item);
                used += GAP + length;
            }
            _ => {
                lines.push(item);
                used = length;
            }
        }
    }
    lines
}
