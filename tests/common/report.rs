//! Report of a test: the time that it held its bed and, if it failed, the logs of the programs on it.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::Path,
};

use jiff::Timestamp;
use testbed::Testbed;

/// Number of lines that a failed test shows of each log.
const LINES: usize = 60;
/// Number of lines that a failed test shows of each API server.
const LINES_OF_SERVERS: usize = 12;
/// Longest shown line, in characters. Some lines contain whole objects.
const LINE: usize = 400;

/// Reports that a test returns the bed that it has held since `since`.
///
/// With `BED_TIMES=1` it prints the time to stderr, and bypasses the capture of output.
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

/// Prints the log lines of operators and of the stand-in for Karmada since this time, without debug lines, and what API servers
/// say of slow requests.
fn show_logs(dir: &Path, since: Timestamp) {
    let mut logs: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    logs.sort();
    for log in logs {
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        // The logs of API servers and their controllers are long, and rarely help.
        let of_servers = ["audit-", "controllers-", "etcd"];
        if !name.ends_with(".log") || of_servers.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let last = if name.starts_with("apiserver-") { slow_requests(&log) } else { end_of(&log, since) };
        if !last.is_empty() {
            eprintln!("--- the end of {name}:");
        }
        for line in last {
            eprintln!("{}", line.chars().take(LINE).collect::<String>());
        }
    }
}

/// Returns the last lines of an API server's log that say of what a slow request was made.
fn slow_requests(log: &Path) -> VecDeque<String> {
    let lines = File::open(log).into_iter().flat_map(|file| BufReader::new(file).lines()).map_while(Result::ok);
    let mut slow: VecDeque<_> = lines.filter(|line| line.contains("Trace[")).collect();
    slow.drain(..slow.len().saturating_sub(LINES_OF_SERVERS));
    slow
}

/// Returns the last log lines since this time, without debug lines. A line without a time belongs to the line before it.
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
