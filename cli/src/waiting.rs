//! `waiting`: what waits in all projects, and who has to act. The manager answers from its caches.

use std::{fmt::Write as _, io::Write, time::Duration};

use compute_operator::plan::management::waiting::{Answer, Cause, MAX_LIMIT, Query, Waiting};
use jiff::Timestamp;

use crate::{
    exit::Exit,
    flags,
    manager::{Manager, Problems},
    output::Output,
    screen::{Screen, age},
};

/// Time that a port-forward and an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Titles of [`cause_row`].
pub const CAUSE_TITLES: [&str; 7] = ["WHO ACTS", "REASON", "CITY", "CLUSTER", "PROJECTS", "OBJECTS", "OLDEST"];

/// Titles of [`object_row`].
pub const OBJECT_TITLES: [&str; 8] =
    ["PROJECT", "NAMESPACE", "OBJECT", "WHO ACTS", "REASON", "CLUSTER", "SINCE", "MESSAGE"];

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(
    global: &flags::Global,
    args: &flags::Waiting,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let answer = tokio::time::timeout(PATIENCE, ask(global, args)).await;
    let answer =
        answer.map_err(|_| (Exit::Timeout, format!("the manager has not answered in {} s", PATIENCE.as_secs())))?;
    let answer = answer.map_err(|error| (Exit::CouldNotAsk, error))?;
    let objects = args.objects || args.all || args.reason.is_some();
    output.print(out, &answer, |screen| text(&answer, objects, screen))?;
    Ok(exit(&answer))
}

/// Returns the exit code: whether anybody has to act.
fn exit(answer: &Answer) -> Exit {
    let waits_for = |who: &str| answer.causes.iter().any(|cause| cause.waits_for == who);
    if waits_for("platform") {
        Exit::Platform
    } else if waits_for("tenant") {
        Exit::Tenant
    } else if answer.causes.is_empty() {
        Exit::Well
    } else {
        Exit::InProgress
    }
}

async fn ask(global: &flags::Global, args: &flags::Waiting) -> Result<Answer, String> {
    let manager = Manager::reach(global, &args.manager, Problems::Shown).await?;
    let query = Query {
        reason: args.reason.clone(),
        city: args.city.clone(),
        project: args.project.clone(),
        limit: args.all.then_some(MAX_LIMIT),
        after: None,
    };
    if args.all { manager.all_waiting(query).await } else { manager.waiting(&query).await }
}

fn text(answer: &Answer, objects: bool, screen: Screen) -> String {
    let mut text =
        if objects { objects_text(&answer.objects, answer.time, screen) } else { causes_text(answer, screen) };
    let waiting: usize = answer.causes.iter().map(|cause| cause.objects).sum();
    let projects = answer.projects;
    let _ = match waiting {
        0 => writeln!(text, "Nothing waits: {} deployments in {projects} projects.", answer.deployments),
        _ => writeln!(
            text,
            "{waiting} objects wait. The manager serves {} deployments in {projects} projects.",
            answer.deployments
        ),
    };
    if objects && answer.next.is_some() {
        text.push_str("These are the first of them: --all lists the others too.\n");
    }
    if !answer.incomplete.is_empty() {
        let names: Vec<&str> = answer.incomplete.iter().map(|name| name.as_str()).collect();
        let _ = writeln!(text, "Not complete for {}: the manager cannot read everything there.", names.join(", "));
    }
    text
}

fn causes_text(answer: &Answer, screen: Screen) -> String {
    if answer.causes.is_empty() {
        return String::new();
    }
    let titles = CAUSE_TITLES.map(str::to_owned).to_vec();
    let rows = answer.causes.iter().map(|cause| cause_row(cause, answer.time));
    screen.table(&[titles].into_iter().chain(rows).collect::<Vec<_>>())
}

/// Returns the cells of a cause.
pub fn cause_row(cause: &Cause, now: Timestamp) -> Vec<String> {
    row(&[
        &cause.waits_for,
        &cause.reason,
        cause.city.as_deref().unwrap_or("–"),
        &or_dash(&cause.clusters),
        &cause.projects.to_string(),
        &cause.objects.to_string(),
        &age(cause.oldest, now),
    ])
}

fn objects_text(objects: &[Waiting], now: Timestamp, screen: Screen) -> String {
    if objects.is_empty() {
        return String::new();
    }
    let titles = OBJECT_TITLES.map(str::to_owned).to_vec();
    let rows = objects.iter().map(|object| object_row(object, now));
    screen.table(&[titles].into_iter().chain(rows).collect::<Vec<_>>())
}

/// Returns the cells of an object.
pub fn object_row(object: &Waiting, now: Timestamp) -> Vec<String> {
    let place = &object.place;
    row(&[
        place.project.as_str(),
        &place.namespace,
        &format!("{}/{}", format!("{:?}", place.kind).to_lowercase(), place.name),
        &object.waits_for,
        &object.reason,
        &or_dash(&object.clusters),
        &age(object.since, now),
        &object.message.replace('\n', " "),
    ])
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn or_dash(names: &[String]) -> String {
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Answer {
        serde_json::from_value(json!({
            "time": "2026-01-01T12:00:00Z", "projects": 212, "deployments": 2041, "incomplete": ["lab"],
            "causes": [
                { "waitsFor": "platform", "reason": "NotScheduled", "city": "ord", "clusters": ["cell-ord"],
                  "projects": 3, "objects": 14, "oldest": "2026-01-01T11:53:50Z" },
                { "waitsFor": "tenant", "reason": "InvalidPlacement", "projects": 1, "objects": 1,
                  "oldest": "2026-01-01T09:57:00Z" },
            ],
            "objects": [{
                "project": "shop", "namespace": "demo", "kind": "WorkloadDeployment", "name": "hello-edge-ord",
                "city": "ord", "clusters": ["cell-ord"], "reason": "NotScheduled", "waitsFor": "platform",
                "since": "2026-01-01T11:53:50Z", "message": "Karmada: 0/2 clusters are available",
            }],
            "next": "shop/demo/WorkloadDeployment/hello-edge-ord",
        }))
        .unwrap()
    }

    #[test]
    fn causes_are_one_line_each() {
        let expected = "\
WHO ACTS  REASON            CITY  CLUSTER   PROJECTS  OBJECTS  OLDEST
platform  NotScheduled      ord   cell-ord  3         14       6m10s
tenant    InvalidPlacement  –     –         1         1        2h3m
15 objects wait. The manager serves 2041 deployments in 212 projects.
Not complete for lab: the manager cannot read everything there.
";
        assert_eq!(text(&answer(), false, Screen::PLAIN), expected);
        assert_eq!(exit(&answer()), Exit::Platform);
    }

    #[test]
    fn objects_are_listed_with_their_messages() {
        let text = text(&answer(), true, Screen::PLAIN);
        let row = text.lines().nth(1).unwrap();
        let words: Vec<_> = row.split_whitespace().take(7).collect();
        assert_eq!(
            words,
            ["shop", "demo", "workloaddeployment/hello-edge-ord", "platform", "NotScheduled", "cell-ord", "6m10s"]
        );
        assert!(text.contains("--all lists the others too"), "{text}");
    }

    #[test]
    fn nothing_that_waits_is_said() {
        let quiet = Answer { causes: Vec::new(), objects: Vec::new(), next: None, incomplete: Vec::new(), ..answer() };
        for objects in [false, true] {
            let text = text(&quiet, objects, Screen::PLAIN);
            assert_eq!(text, "Nothing waits: 2041 deployments in 212 projects.\n");
        }
        assert_eq!(exit(&quiet), Exit::Well);
        let mut new = answer();
        for cause in &mut new.causes {
            cause.waits_for = "nobody".to_owned();
        }
        assert_eq!(exit(&new), Exit::InProgress);
    }
}
