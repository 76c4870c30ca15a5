//! Progress of a build: compiled packages out of all packages.

use std::{io::IsTerminal, sync::LazyLock, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Step of the progress lines without a terminal, in percent.
const STEP: usize = 10;

/// The bars of all current builds, one below the other.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Counts packages and shows the progress: as a bar on a terminal, and as occasional lines elsewhere.
pub(crate) struct Meter<'a> {
    names: &'a str,
    done: usize,
    all: usize,
    reported: usize,
    bar: Option<ProgressBar>,
    progress: &'a dyn Fn(&str),
}

impl<'a> Meter<'a> {
    /// Starts the meter for this number of packages.
    pub(crate) fn new(names: &'a str, all: usize, progress: &'a dyn Fn(&str)) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("building {msg} [{bar:40}] {pos} of {len} packages, {elapsed}");
            let bar = BARS.add(ProgressBar::new(all as u64)).with_message(names.to_owned());
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Self::drawn(names, all, bar, progress)
    }

    fn drawn(names: &'a str, all: usize, bar: Option<ProgressBar>, progress: &'a dyn Fn(&str)) -> Self {
        Self { names, done: 0, all, reported: 0, bar, progress }
    }

    /// Counts one more package.
    pub(crate) fn one(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            return bar.set_position(self.done as u64);
        }
        let part = (self.done * 100).checked_div(self.all).unwrap_or(100).min(100) / STEP * STEP;
        if part > self.reported {
            self.reported = part;
            (self.progress)(&format!("building {}: {} of {} packages, {part} %", self.names, self.done, self.all));
        }
    }

    /// Ends the meter.
    pub(crate) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn meter_without_terminal_reports_every_tenth() {
        let lines = RefCell::new(Vec::new());
        let progress = |text: &str| lines.borrow_mut().push(text.to_owned());
        let mut meter = Meter::drawn("etcd", 40, None, &progress);
        for _ in 0..40 {
            meter.one();
        }
        let lines = lines.borrow();
        assert_eq!(lines.len(), 10, "{lines:?}");
        assert_eq!(lines[0], "building etcd: 4 of 40 packages, 10 %");
        assert_eq!(lines[9], "building etcd: 40 of 40 packages, 100 %");
    }
}
