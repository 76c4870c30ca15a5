//! Tests that cannot run here say so.

use std::{
    io::Write,
    sync::atomic::{AtomicU32, Ordering},
};

/// Tells it on stderr, past the capture of output: a test that did not run must not look like one that passed.
pub fn skipped(why: &str) {
    static SKIPPED: AtomicU32 = AtomicU32::new(0);
    let nth = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "*skipped* ({nth} so far) {}: {why}", thread.name().unwrap_or_default());
}
