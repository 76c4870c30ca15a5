//! What is told of a test beside its result: how long it had its bed and, where it has failed, what those at work there
//! have logged.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::Path,
};

use jiff::Timestamp;
use testbed::Testbed;

/// How many lines of each log a failed test shows.
const LINES: usize = 60;
/// What of a line is shown, in characters: some hold whole objects.
const LINE: usize = 400;

/// A test gives its bed back, which it has had since then.
///
/// With `BED_TIMES=1` that is told on stderr, past the capture of output.
pub fn ended(kind: &str, since: Timestamp, bed: &Testbed) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    if std::env::var_os("BED_TIMES").is_some() {
        let _ = writeln!(
            std::io::stderr(),
            "bed: {:6.1} s on {kind} in {}: {test}",
            Timestamp::now().duration_since(since).as_secs_f64(),
            bed.dir().display()
        );
    }
    if std::thread::panicking() {
        show_logs(bed.dir(), since);
    }
}

/// Prints what operators and the stand-in for Karmada have logged since then, without what is only for debugging.
fn show_logs(dir: &Path, since: Timestamp) {
    let mut logs: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    logs.sort();
    for log in logs {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        // Of API servers and their controllers there is little to learn, and much to read.
        let of_servers = ["apiserver-", "audit-", "controllers-", "etcd"];
        if !name.ends_with(".log") || of_servers.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let last = end_of(&log, since);
        if !last.is_empty() {
            eprintln!("--- the end of {name}:");
        }
        for line in last {
            eprintln!("{}", line.chars().take(LINE).collect::<String>());
        }
    }
}

/// The last lines that were logged since then, and not for debugging. What has no time belongs to the line before it.
fn end_of(log: &Path, since: Timestamp) -> VecDeque<String> {
    let (mut last, mut wanted) = (VecDeque::new(), false);
    for line in File::open(log).into_iter().flat_map(|file| BufReader::new(file).lines()).map_while(Result::ok) {
        let mut words = line.split_whitespace();
        if let Some(at) = words.next().and_then(|word| word.parse::<Timestamp>().ok()) {
            wanted = at >= since && !matches!(words.next(), Some("DEBUG" | "TRACE"));
        }
        if wanted {
            last.push_back(line);
        }
        if last.len() > LINES {
            last.pop_front();
        }
    }
    last
}
