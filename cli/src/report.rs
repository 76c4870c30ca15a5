//! `report`: an archive for support, of everything that can be seen of a Workload, without values.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args as ClapArgs;
use flate2::{Compression, write::GzEncoder};
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    events::Timeline,
    exit::Exit,
    flags,
    inventory::Inventory,
    output::Output,
    planes::Planes,
    redact::Redactor,
    screen::Screen,
    target::Target,
    trace::{facts::Facts, judge::Trace, text},
    tree::Tree,
};

/// Arguments of `report`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The object: `workload/NAME`, or the kind and the name as two words.
    #[arg(value_name = "KIND/NAME", num_args = 1..=2, required = true)]
    pub object: Vec<String>,
    /// File to write. Default: NAME-TIME.tar.gz in the current directory.
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// A trace with the facts that it was judged by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Version of the command.
    pub version: String,
    /// The facts, without values.
    pub facts: Facts,
    /// The trace.
    pub trace: Trace,
}

/// Result of the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The archive.
    pub file: String,
    /// Its length in bytes.
    pub bytes: usize,
    /// Number of objects of each control plane.
    pub read: BTreeMap<String, usize>,
    /// What could not be seen.
    pub unseen: usize,
    /// Number of removed values.
    pub removed: usize,
}

/// Files of an archive, by name.
pub type Files = BTreeMap<String, String>;

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(
    global: &flags::Global,
    args: &Args,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let name = Target::workload(&args.object)?;
    let planes = Planes::of(global).await?;
    let now = Timestamp::now();
    let target = Target::Workload(name.clone());
    let (inventory, facts) =
        futures::join!(Inventory::read(&planes, &target, true, now), Facts::of_workload(&planes, &name, now));
    let could_not = |error: String| (Exit::CouldNotAsk, error);
    let (files, removed) = files(&inventory, &facts).map_err(could_not)?;
    let stem = format!("{name}-{}", now.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ"));
    let bytes =
        archive(&stem, &files, now).map_err(|error| could_not(format!("the archive cannot be made: {error}")))?;
    let file = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("{stem}.tar.gz")));
    save(&file, &bytes).map_err(|error| could_not(format!("{} cannot be written: {error}", file.display())))?;
    let mut read = BTreeMap::new();
    for entry in &inventory.objects {
        *read.entry(entry.plane.clone()).or_default() += 1;
    }
    let summary =
        Summary { file: file.display().to_string(), bytes: bytes.len(), read, unseen: inventory.unseen.len(), removed };
    output.print(out, &summary, |_| summary.text())?;
    Ok(if inventory.objects.is_empty() { Exit::CouldNotAsk } else { Exit::Well })
}

impl Summary {
    fn text(&self) -> String {
        let read: Vec<String> = self.read.iter().map(|(plane, count)| format!("{plane} {count}")).collect();
        let read = if read.is_empty() { "nothing".to_owned() } else { read.join(" · ") };
        let mut text = format!("read     {read}\n");
        if self.unseen > 0 {
            let _ = writeln!(text, "unseen   {} (MANIFEST.txt lists them)", self.unseen);
        }
        let _ = writeln!(text, "removed  {} values. Values of ConfigMaps and Secrets were not read.", self.removed);
        let _ = writeln!(text, "{}  {} KiB", self.file, self.bytes.div_ceil(1024));
        text
    }
}

/// Returns the files of the archive, and the number of removed values.
///
/// # Errors
/// One line.
pub fn files(inventory: &Inventory, facts: &Facts) -> Result<(Files, usize), String> {
    let words = |error: serde_json::Error| format!("the report cannot be encoded: {error}");
    let stored = serde_json::to_value(facts).map_err(words)?;
    let timeline = serde_json::to_value(Timeline::of(inventory, None)).map_err(words)?;
    let tree = serde_json::to_value(Tree::of(inventory)).map_err(words)?;
    let unseen = serde_json::to_value(&inventory.unseen).map_err(words)?;
    let objects = inventory.objects.iter().map(|entry| entry.object.clone());
    let events = inventory.events.iter().map(|entry| entry.object.clone());
    let documents: Vec<Value> = objects.chain(events).chain([stored.clone()]).collect();
    let mut redactor = Redactor::learned(&documents);

    let mut files = Files::new();
    for entry in &inventory.objects {
        let clean = redactor.clean(&entry.object);
        let yaml = serde_saphyr::to_string(&clean).map_err(|error| format!("an object cannot be encoded: {error}"))?;
        let place = if entry.namespace().is_empty() { "cluster" } else { entry.namespace() };
        let name = format!("{}-{}-{}.yaml", entry.kind().to_lowercase(), safe(place), safe(entry.name()));
        files.insert(format!("objects/{}/{name}", safe(&entry.plane)), yaml);
    }
    // The facts that are stored are judged, so that they give the same trace again.
    let facts: Facts = serde_json::from_value(redactor.clean(&stored)).map_err(words)?;
    let trace = Trace::of(&facts);
    files.insert("trace.txt".to_owned(), text::text(&trace, Screen::PLAIN));
    let recorded = Recorded { version: env!("CARGO_PKG_VERSION").to_owned(), facts, trace };
    files.insert("trace.json".to_owned(), serde_json::to_string_pretty(&recorded).map_err(words)? + "\n");
    let timeline: Timeline = serde_json::from_value(redactor.clean(&timeline)).map_err(words)?;
    files.insert("events.txt".to_owned(), timeline.text(Screen::PLAIN));
    let lines: Result<Vec<String>, _> = timeline.rows.iter().map(serde_json::to_string).collect();
    files.insert("events.jsonl".to_owned(), lines.map_err(words)?.join("\n") + "\n");
    let tree: Tree = serde_json::from_value(redactor.clean(&tree)).map_err(words)?;
    files.insert("tree.txt".to_owned(), tree.text(Screen::PLAIN));
    let unseen = redactor.clean(&unseen);
    files.insert("MANIFEST.txt".to_owned(), manifest(inventory, &unseen, &redactor));
    Ok((files, redactor.removed.values().sum()))
}

fn manifest(inventory: &Inventory, unseen: &Value, redactor: &Redactor) -> String {
    let mut text = format!(
        "Report about a Workload, made by kubectl-compute {} at {}\nProject {}, namespace {}\n\nRead:\n",
        env!("CARGO_PKG_VERSION"),
        inventory.now,
        inventory.context,
        inventory.namespace
    );
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for entry in inventory.objects.iter().chain(&inventory.events) {
        *counts.entry((&entry.plane, entry.kind())).or_default() += 1;
    }
    for ((plane, kind), count) in counts {
        let _ = writeln!(text, "  {plane}: {count} {kind}");
    }
    text.push_str("\nNot seen:\n");
    let rows = unseen.as_array().into_iter().flatten();
    let rows: Vec<String> = rows
        .map(|row| {
            let part = |name: &str| row[name].as_str().unwrap_or_default();
            format!("  {}: {}: {}\n", part("plane"), part("what"), part("why"))
        })
        .collect();
    text.push_str(&if rows.is_empty() { "  nothing\n".to_owned() } else { rows.concat() });
    text.push_str(
        "\nNot read: the content of ConfigMaps and Secrets. Only their metadata is here.\n\nRemoved, with the number of values:\n",
    );
    for (sort, count) in &redactor.removed {
        let _ = writeln!(text, "  {sort}: {count}");
    }
    text
}

/// Returns a text as part of a file name.
fn safe(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') { c } else { '_' };
    text.chars().map(keep).collect()
}

/// Returns the archive, with all files in one folder.
///
/// # Errors
/// What the encoders report.
pub fn archive(folder: &str, files: &Files, now: Timestamp) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        tar.append_data(&mut header, format!("{folder}/{name}"), text.as_bytes())?;
    }
    tar.into_inner()?.finish()
}

/// Writes a file that only its owner reads.
fn save(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
