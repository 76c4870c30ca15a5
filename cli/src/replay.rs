//! `replay`: judges a stored report again, or decides the snapshots of a debug log again.

use std::{
    fmt::{Debug, Write as _},
    io::{Read, Write},
    path::PathBuf,
};

use clap::Args as ClapArgs;
use compute_operator::plan::{
    cell,
    management::{city_policy, collector, drain, federator, projector, referenced_data, workload},
};
use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    exit::Exit,
    output::Output,
    report::Recorded,
    screen::{Mark, Screen},
    trace::judge::{Trace, Way},
};

/// Largest file of an archive that is read.
const MAX_FILE: u64 = 256 << 20;

/// Ends a snapshot or a plan that was too long for the log.
const CUT: &str = "… (cut: longer than";

/// Arguments of `replay`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// An archive of `report`, or a debug log of the operator in the form json.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// One judgement or decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Who decided: `trace`, or a controller.
    pub controller: String,
    /// About which object.
    pub object: String,
    /// When.
    pub time: String,
    /// The result then.
    pub then: String,
    /// The result of this version. `None` if it cannot decide.
    pub now: Option<String>,
    /// Why it cannot decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<String>,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Version that made the record, if it says so.
    pub recorded_by: Option<String>,
    /// The decisions.
    pub decisions: Vec<Decision>,
}

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub fn run(args: &Args, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let could_not = |error: String| (Exit::CouldNotAsk, format!("{}: {error}", args.file.display()));
    let bytes = std::fs::read(&args.file).map_err(|error| could_not(error.to_string()))?;
    let replay = Replay::of(&bytes).map_err(could_not)?;
    output.print(out, &replay, |screen| replay.text(screen))?;
    Ok(if replay.differs() == 0 { Exit::Well } else { Exit::CouldNotAsk })
}

impl Decision {
    /// True if the result of this version is another one.
    pub fn differs(&self) -> bool {
        self.now.as_ref().is_some_and(|now| *now != self.then)
    }
}

impl Replay {
    /// Decides again what a file records.
    ///
    /// # Errors
    /// One line.
    pub fn of(bytes: &[u8]) -> Result<Self, String> {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            return Ok(Self::of_report(&stored(bytes)?));
        }
        let decisions: Vec<Decision> = String::from_utf8_lossy(bytes).lines().filter_map(decision).collect();
        if decisions.is_empty() {
            return Err("it is no report, and no line of it is a decision in the form json at level debug".to_owned());
        }
        Ok(Self { recorded_by: None, decisions })
    }

    /// Judges the facts of a report again.
    fn of_report(recorded: &Recorded) -> Self {
        let now = Trace::of(&recorded.facts);
        let object = |name: &str| format!("{}/{name}", recorded.facts.namespace);
        let row = |object: String, then: String, now: String| Decision {
            controller: "trace".to_owned(),
            object,
            time: recorded.facts.now.to_string(),
            then,
            now: Some(now),
            undecided: None,
        };
        let of = |trace: &Trace, name: &str| {
            let way = trace.ways.iter().find(|way| way.deployment == name);
            way.map_or_else(|| "not judged".to_owned(), of_way)
        };
        let mut names: Vec<&str> = recorded.trace.ways.iter().chain(&now.ways).map(|way| &*way.deployment).collect();
        names.sort_unstable();
        names.dedup();
        let whole = |trace: &Trace| {
            let own = trace.broken.as_ref().map(|broken| format!("{}: {}", broken.reason, broken.message));
            own.or_else(|| trace.hidden.clone()).unwrap_or_else(|| "no trouble of its own".to_owned())
        };
        let own = row(object(&recorded.facts.name), whole(&recorded.trace), whole(&now));
        let ways = names.into_iter().map(|name| row(object(name), of(&recorded.trace, name), of(&now, name)));
        Self { recorded_by: Some(recorded.version.clone()), decisions: std::iter::once(own).chain(ways).collect() }
    }

    /// Number of decisions with another result.
    pub fn differs(&self) -> usize {
        self.decisions.iter().filter(|decision| decision.differs()).count()
    }

    /// Returns the text: what differs, and what cannot be decided.
    pub fn text(&self, screen: Screen) -> String {
        let mut text = String::new();
        if let Some(version) = &self.recorded_by {
            let _ = writeln!(text, "Recorded by {version}, judged by {}", env!("CARGO_PKG_VERSION"));
        }
        for decision in &self.decisions {
            let Decision { controller, object, time, then, now, undecided } = decision;
            let mark = match undecided {
                Some(_) => Mark::Unseen,
                None if decision.differs() => Mark::Broken,
                None => Mark::Well,
            };
            let _ = writeln!(text, "{} {controller}  {object}  {time}", screen.sign(mark));
            match (undecided, now) {
                (Some(why), _) => {
                    let _ = writeln!(text, "    not decided: {why}");
                }
                (None, Some(now)) if now != then => {
                    let _ = writeln!(text, "    then  {then}\n    now   {now}");
                }
                _ if controller == "trace" => {
                    let _ = writeln!(text, "    {then}");
                }
                _ => {}
            }
        }
        let decided = self.decisions.iter().filter(|decision| decision.undecided.is_none()).count();
        let left = self.decisions.len() - decided;
        let _ = write!(text, "{} of {decided} decisions differ", self.differs());
        if left > 0 {
            let _ = write!(text, ", {left} could not be decided");
        }
        text.push('\n');
        text
    }
}

fn of_way(way: &Way) -> String {
    match &way.broken {
        None => "ready".to_owned(),
        Some(broken) => {
            let who = broken.waits_for.as_deref().unwrap_or("nobody");
            format!("{} at {}, waits for {who}: {}", broken.reason, broken.link.name(), broken.message)
        }
    }
}

/// Reads the record of an archive.
fn stored(bytes: &[u8]) -> Result<Recorded, String> {
    let words = |error: std::io::Error| format!("the archive cannot be read: {error}");
    let mut archive = tar::Archive::new(GzDecoder::new(bytes));
    for entry in archive.entries().map_err(words)? {
        let entry = entry.map_err(words)?;
        let is_trace = entry.path().is_ok_and(|path| path.file_name().is_some_and(|name| name == "trace.json"));
        if is_trace {
            let mut text = String::new();
            entry.take(MAX_FILE).read_to_string(&mut text).map_err(words)?;
            return serde_json::from_str(&text).map_err(|error| format!("trace.json is not understood: {error}"));
        }
    }
    Err("the archive has no trace.json".to_owned())
}

/// Decides again what a line of a log records. `None` if the line is of something else.
fn decision(line: &str) -> Option<Decision> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| line[name].as_str();
    let (controller, snapshot, then) = (text("controller")?, text("snapshot")?, text("plan")?);
    let time = text("now").unwrap_or_default();
    let result = decide(controller, snapshot, then, time);
    let (now, undecided) = match result {
        Ok(now) => (Some(now), None),
        Err(why) => (None, Some(why)),
    };
    Some(Decision {
        controller: controller.to_owned(),
        object: text("object").unwrap_or_default().to_owned(),
        time: time.to_owned(),
        then: then.to_owned(),
        now,
        undecided,
    })
}

fn decide(controller: &str, snapshot: &str, then: &str, time: &str) -> Result<String, String> {
    if snapshot.contains(CUT) || then.contains(CUT) {
        return Err("the log has only the beginning of it".to_owned());
    }
    let now: Timestamp = time.parse().map_err(|_| "its time is not understood".to_owned())?;
    match controller {
        "workload-deployment-federator" => again(snapshot, now, federator::federate::plan),
        "workload" => again(snapshot, now, workload::fan_out::plan),
        "city-policy" => again(snapshot, now, city_policy::policy::plan),
        "propagation-probe" => again(snapshot, now, city_policy::migration::probe::plan),
        "referenced-data" => again(snapshot, now, referenced_data::companion::plan),
        "city-drains" => again(snapshot, now, drain::cities::plan),
        "collector" => again(snapshot, now, collector::collect::plan),
        "instance-projector" => again(snapshot, now, projector::projection::plan),
        "dead-claim" => again(snapshot, now, projector::dead_claim::plan),
        "leftover" => again(snapshot, now, projector::leftover::plan),
        "write-back" => again(snapshot, now, cell::write_back::plan),
        "quota" => again(snapshot, now, cell::quota::plan),
        "quota-reclaim" => again(snapshot, now, cell::reclaim::plan),
        "workload-deployment" => again(snapshot, now, cell::instances::plan),
        "instance" => again(snapshot, now, cell::instance::plan),
        "locations" => again(snapshot, now, cell::locations::plan),
        _ => Err(format!("the decisions of {controller} cannot be made from its snapshot")),
    }
}

/// Decides by a recorded snapshot.
fn again<O: DeserializeOwned, P: Debug>(
    snapshot: &str,
    now: Timestamp,
    plan: impl FnOnce(&O, Timestamp) -> P,
) -> Result<String, String> {
    let observed: O =
        serde_json::from_str(snapshot).map_err(|error| format!("this version does not read the snapshot: {error}"))?;
    Ok(format!("{:?}", plan(&observed, now)))
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
