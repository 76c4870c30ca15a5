//! Text for a terminal: colours only there, and ages as kubectl writes them.

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use jiff::{SignedDuration, Timestamp};

/// State of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mark {
    /// It is as it should be.
    Well,
    /// The first thing that is not.
    Broken,
    /// It works, and needs a look.
    Warning,
    /// It waits for what comes before.
    Later,
    /// It is not visible.
    Unseen,
    /// Its API server did not answer. Another attempt may show it.
    Unanswered,
}

impl Mark {
    /// Returns the sign at the beginning of a row.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Well => "✔",
            Self::Broken => "✖",
            Self::Warning => "▲",
            Self::Later => "·",
            Self::Unseen | Self::Unanswered => "?",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Well => AnsiColor::Green.on_default(),
            Self::Broken => AnsiColor::Red.on_default().bold(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Later | Self::Unseen | Self::Unanswered => Style::new().dimmed(),
        }
    }
}

/// Properties of the output.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// True if the output shows colours.
    pub colours: bool,
    /// Columns of the terminal. `None` if the output is no terminal: nothing is cut then.
    pub width: Option<usize>,
}

impl Screen {
    /// Output without colours and of any width.
    pub const PLAIN: Self = Self { colours: false, width: None };

    /// Returns the sign of a mark, in its colour.
    pub fn sign(self, mark: Mark) -> String {
        self.styled(mark.sign(), mark.style())
    }

    /// Returns a text that stands out.
    pub fn strong(self, text: &str) -> String {
        self.styled(text, Style::new().bold())
    }

    fn styled(self, text: &str, style: Style) -> String {
        if self.colours { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Returns rows in columns, two spaces apart. On a terminal, cells that do not fit are wrapped.
    pub fn table(self, rows: &[Vec<String>]) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        match self.width.and_then(|width| u16::try_from(width).ok()) {
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        table.add_rows(rows);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n") + "\n"
    }

    /// Cuts a line without colours at the width of the terminal.
    pub fn cut(self, line: &str) -> String {
        match self.width {
            Some(width) if line.chars().count() > width => {
                let kept: String = line.chars().take(width.saturating_sub(1)).collect();
                format!("{kept}…")
            }
            _ => line.to_owned(),
        }
    }
}

/// Returns a duration in its two largest units: `6m10s`, `2h3m`, `5d1h`. Negative ones, of clocks that differ, are `0s`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).max(SignedDuration::ZERO).as_secs();
    let (days, hours, minutes, rest) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => two(minutes, "m", rest, "s"),
        (0, _, _) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_has_its_two_largest_units() {
        let of = |seconds| age(Timestamp::UNIX_EPOCH, Timestamp::from_second(seconds).unwrap());
        let ages = [-5, 0, 59, 60, 370, 3600, 7380, 86400, 435_600].map(of);
        assert_eq!(ages, ["0s", "0s", "59s", "1m", "6m10s", "1h", "2h3m", "1d", "5d1h"]);
    }

    #[test]
    fn table_on_a_terminal_fits_its_width() {
        let rows =
            vec![vec!["NAME".to_owned(), "MESSAGE".to_owned()], vec!["wéb".to_owned(), "a long text".to_owned()]];
        assert_eq!(Screen::PLAIN.table(&rows), "NAME  MESSAGE\nwéb   a long text\n");
        let narrow = Screen { colours: false, width: Some(14) };
        assert!(narrow.table(&rows).lines().all(|line| line.chars().count() <= 14), "{}", narrow.table(&rows));
    }
}
