//! Reports tests that cannot run here.

use std::{
    io::Write,
    sync::atomic::{AtomicU32, Ordering},
};

/// Prints the reason to stderr, and bypasses the capture of output. A skipped test must not look like a passed one.
pub fn skipped(why: &str) {
    static SKIPPED: AtomicU32 = AtomicU32::new(0);
    let nth = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "*skipped* ({nth} so far) {}: {why}", thread.name().unwrap_or_default());
}
