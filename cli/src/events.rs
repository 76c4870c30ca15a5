//! `events`: one timeline of Events and changes over all control planes.

use std::{collections::BTreeSet, io::Write, time::Duration};

use clap::Args as ClapArgs;
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    exit::Exit,
    flags::{self, duration},
    inventory::{Entry, Inventory, Unseen, order},
    output::Output,
    planes::Planes,
    screen::{Mark, Screen},
    target::Target,
};

/// Most field paths in one row.
const NAMED: usize = 6;

/// Arguments of `events`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The object: `workload/NAME`, `wd/NAME` or `instance/NAME`, or the kind and the name as two words.
    #[arg(value_name = "KIND/NAME", num_args = 1..=2, required = true)]
    pub object: Vec<String>,
    /// Only what is younger, such as 10m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub since: Option<Duration>,
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Time.
    pub time: Timestamp,
    /// The control plane.
    pub plane: String,
    /// The object, as `Kind/name`.
    pub object: String,
    /// The writer: a field manager, or the reporter of an Event.
    pub who: String,
    /// The change, or the Event.
    pub what: String,
}

/// Everything that happened, in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The rows, the oldest first.
    pub rows: Vec<Row>,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
}

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
    let target = Target::of(&args.object)?;
    if matches!(target, Target::Data(_) | Target::Cluster(_)) {
        return Err((Exit::Usage, "events are listed of a workload, a workloaddeployment or an instance".to_owned()));
    }
    let planes = Planes::of(global).await?;
    let inventory = Inventory::read(&planes, &target, true, Timestamp::now()).await;
    let timeline = Timeline::of(&inventory, args.since);
    output.print(out, &timeline, |screen| timeline.text(screen))?;
    Ok(if inventory.objects.is_empty() { Exit::CouldNotAsk } else { Exit::Well })
}

impl Timeline {
    /// Makes the timeline of the objects and their Events.
    pub fn of(inventory: &Inventory, since: Option<Duration>) -> Self {
        let changes = inventory.objects.iter().flat_map(changes);
        let events = inventory.events.iter().filter_map(event);
        let mut rows: Vec<Row> = changes.chain(events).collect();
        let begin = since.and_then(|since| inventory.now.checked_sub(since).ok());
        rows.retain(|row| begin.is_none_or(|begin| row.time >= begin));
        rows.sort_by(|one, two| {
            let key = |row: &Row| (row.time, order(&row.plane));
            let names = |row: &Row| (row.plane.clone(), row.object.clone(), row.who.clone(), row.what.clone());
            key(one).cmp(&key(two)).then_with(|| names(one).cmp(&names(two)))
        });
        rows.dedup();
        Self { rows, unseen: inventory.unseen.clone() }
    }

    /// Returns the text.
    pub fn text(&self, screen: Screen) -> String {
        let mut text = String::new();
        if self.rows.is_empty() {
            text.push_str("Nothing is known to have happened.\n");
        } else {
            let mut rows = vec![["TIME", "PLANE", "OBJECT", "WHO", "WHAT"].map(str::to_owned).to_vec()];
            let days: BTreeSet<String> = self.rows.iter().map(|row| day(row.time, "%F")).collect();
            let form = if days.len() > 1 { "%F %T" } else { "%T" };
            for row in &self.rows {
                let Row { time, plane, object, who, what } = row;
                rows.push(vec![day(*time, form), plane.clone(), object.clone(), who.clone(), what.replace('\n', " ")]);
            }
            text.push_str(&screen.table(&rows));
        }
        text.push_str(&unseen(&self.unseen, screen));
        text
    }
}

/// Returns one line for everything that could not be seen.
pub fn unseen(all: &[Unseen], screen: Screen) -> String {
    let line = |one: &Unseen| format!("{} {}: {}: {}\n", screen.sign(Mark::Unseen), one.plane, one.what, one.why);
    all.iter().map(line).collect()
}

fn day(time: Timestamp, form: &str) -> String {
    time.to_zoned(TimeZone::UTC).strftime(form).to_string()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn named(entry: &Entry) -> String {
    format!("{}/{}", entry.kind(), entry.name())
}

/// Returns the changes of an object: the last one of each field manager, and the request to delete it.
fn changes(entry: &Entry) -> Vec<Row> {
    let metadata = &entry.object["metadata"];
    let created = time(&metadata["creationTimestamp"]);
    let row = |time: Timestamp, who: &str, what: String| Row {
        time,
        plane: entry.plane.clone(),
        object: named(entry),
        who: who.to_owned(),
        what,
    };
    let managed = metadata["managedFields"].as_array().into_iter().flatten();
    let mut rows: Vec<Row> = managed
        .filter_map(|fields| {
            let at = time(&fields["time"])?;
            let subresource = fields["subresource"].as_str().unwrap_or_default();
            let verb = match fields["operation"].as_str() {
                _ if created == Some(at) && subresource.is_empty() => "created",
                Some("Apply") => "applied",
                _ => "updated",
            };
            let paths = paths(&fields["fieldsV1"]);
            let what = if paths.is_empty() { verb.to_owned() } else { format!("{verb} {}", listed(&paths)) };
            Some(row(at, fields["manager"].as_str().unwrap_or("unknown"), what))
        })
        .collect();
    if let Some(created) = created.filter(|created| !rows.iter().any(|row| row.time == *created)) {
        rows.push(row(created, "–", "created".to_owned()));
    }
    if let Some(deleted) = time(&metadata["deletionTimestamp"]) {
        rows.push(row(deleted, "–", "deletion requested".to_owned()));
    }
    rows
}

/// Returns the first two levels of managed fields: `spec.template`, `status.conditions`, `metadata.labels`.
fn paths(fields: &Value) -> Vec<String> {
    let below = |value: &Value| -> Vec<String> {
        let keys = value.as_object().into_iter().flatten();
        keys.filter_map(|(key, _)| key.strip_prefix("f:").map(str::to_owned)).collect()
    };
    let mut all = Vec::new();
    for top in below(fields) {
        // Names of keys are content.
        let is_content = ["data", "stringData", "binaryData"].contains(&&*top);
        let children = if is_content { Vec::new() } else { below(&fields[&format!("f:{top}")]) };
        if children.is_empty() {
            all.push(top);
        } else {
            all.extend(children.iter().map(|child| format!("{top}.{child}")));
        }
    }
    all
}

fn listed(paths: &[String]) -> String {
    let named = paths.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Returns the row of an Event of either group. `None` if it has no time.
fn event(entry: &Entry) -> Option<Row> {
    let event = &entry.object;
    let about = event.get("regarding").or_else(|| event.get("involvedObject"))?;
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["deprecatedLastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let at = times.into_iter().find_map(time)?;
    let text = |values: [&Value; 3]| {
        let mut texts = values.into_iter().filter_map(Value::as_str).filter(|text| !text.is_empty());
        texts.next().unwrap_or_default().to_owned()
    };
    let who = text([&event["reportingController"], &event["reportingComponent"], &event["source"]["component"]]);
    let who =
        if who.is_empty() { text([&event["deprecatedSource"]["component"], &Value::Null, &Value::Null]) } else { who };
    let note = text([&event["note"], &event["message"], &Value::Null]);
    let counts = [&event["series"]["count"], &event["count"], &event["deprecatedCount"]];
    let count = counts.into_iter().filter_map(Value::as_i64).find(|count| *count > 1);
    let times = count.map(|count| format!(" ({count} times)")).unwrap_or_default();
    Some(Row {
        time: at,
        plane: entry.plane.clone(),
        object: format!("{}/{}", about["kind"].as_str()?, about["name"].as_str()?),
        who,
        what: format!("{}: {note}{times}", event["reason"].as_str().unwrap_or("Event")),
    })
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
