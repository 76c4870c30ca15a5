//! The trace on a screen.

use std::{collections::BTreeSet, fmt::Write as _};

use compute_operator::api::reason::Reason;
use jiff::Timestamp;

use super::judge::{Broken, Step, Trace, Way};
use crate::screen::{Mark, Screen, age};

/// Returns the text of a trace.
pub fn text(trace: &Trace, screen: Screen) -> String {
    let mut text = head(trace, screen);
    if let Some(hidden) = &trace.hidden {
        let _ = writeln!(text, "{} {hidden}", screen.sign(Mark::Unseen));
    }
    if let Some(broken) = &trace.broken {
        let _ = writeln!(text, "\n{} {}", screen.sign(Mark::Broken), line(broken, trace.time, screen));
        let _ = writeln!(text, "    {}", screen.cut(&broken.message));
    }
    for way in &trace.ways {
        text.push('\n');
        text.push_str(&way_text(way, trace.time, screen));
    }
    text.push_str(&advice(trace));
    text
}

/// Returns what to do about the worst problem, and where more about it stands.
fn advice(trace: &Trace) -> String {
    let Some((broken, way)) = trace.worst().filter(|(broken, _)| broken.waits_for.is_some()) else {
        return String::new();
    };
    let reason = Reason::from(&*broken.reason);
    let mut text = String::from("\n");
    // Steps for the platform need the hub.
    let may_act = broken.is_of_tenant() || way.is_none_or(|way| way.hub_namespace.is_some());
    if let Some(entry) = reason.entry().filter(|_| may_act) {
        for (n, step) in entry.steps.iter().enumerate() {
            let label = if n == 0 { "DO" } else { "" };
            let _ = writeln!(text, "{label:<8}{}. {}", n + 1, filled_in(step, trace, way));
        }
        if !entry.alerts.is_empty() {
            let _ = writeln!(text, "ALERT   {}", entry.alerts.join(", "));
        }
    }
    if reason.entry().is_some() {
        let _ = writeln!(text, "WHY     kubectl compute explain {}", broken.reason);
    }
    if let Some(way) = way.filter(|_| !broken.is_of_tenant()) {
        let since = broken.since.map_or_else(String::new, |since| format!(" since {since}"));
        let _ = writeln!(
            text,
            "TELL    the platform: {} {}/{} {}{since}",
            trace.context, trace.namespace, way.deployment, broken.reason
        );
    }
    text
}

/// Replaces the placeholders of a step by the names of this trace, as far as they are certain.
fn filled_in(step: &str, trace: &Trace, way: Option<&Way>) -> String {
    let mut step = step.replace("workloads.compute.datumapis.com NAME", &format!("cwl {}", trace.workload));
    if let Some(way) = way {
        step = step.replace("workloaddeployments NAME", &format!("wd {}", way.deployment));
        step = step.replace("=CITY", &format!("={}", way.city));
        if let Some(namespace) = &way.hub_namespace {
            step = step.replace("HUB_NAMESPACE", namespace);
        }
        if let [cluster] = &way.clusters[..] {
            if let Some(context) = trace.contexts.cells.get(cluster) {
                step = step
                    .replace("-context CELL", &format!("-context {context}"))
                    .replace("=CELL", &format!("={context}"));
            }
            // A label goes to another Cluster, and often another one is dead. A person names it.
            if !["label cluster CLUSTER", "cell dead CLUSTER"].iter().any(|other| step.contains(other)) {
                step = step.replace("CLUSTER", cluster);
            }
        }
    }
    if let Some(hub) = &trace.contexts.hub {
        step = step.replace("-context HUB", &format!("-context {hub}"));
    }
    if !trace.context.is_empty() {
        step = step.replace("-context PROJECT", &format!("-context {}", trace.context));
    }
    step.replace("-n NAMESPACE", &format!("-n {}", trace.namespace)).replace('`', "")
}

/// Returns the title, and the sentence that says who has to act.
fn head(trace: &Trace, screen: Screen) -> String {
    let mut title = format!("Workload {}/{}", trace.namespace, trace.workload);
    if !trace.context.is_empty() {
        let _ = write!(title, " · project {}", trace.context);
    }
    if let Some((generation, seen)) = trace.generation {
        let seen = seen.map_or_else(|| "not seen yet".to_owned(), |seen| format!("seen {seen}"));
        let _ = write!(title, " · generation {generation}, {seen}");
    }
    let is_hidden = trace.hidden.is_some() && trace.ways.is_empty();
    let verdict = verdict(trace.worst().map(|(broken, _)| broken), is_hidden, trace.time);
    let mut text = format!("{title} · {}\n", screen.strong(&verdict));
    if let Some((broken, way)) = trace.worst() {
        let waits = |way: &&Way| way.broken.as_ref().is_some_and(|other| other.reason == broken.reason);
        let cities: BTreeSet<&str> = trace.ways.iter().filter(waits).map(|way| way.city.as_str()).collect();
        let place = way.map_or_else(String::new, |_| format!(" in {}", Vec::from_iter(cities).join(", ")));
        let _ = writeln!(text, "{}", who(broken, &place));
    }
    text
}

/// Returns the state in capitals, with its age.
pub fn verdict(broken: Option<&Broken>, is_hidden: bool, now: Timestamp) -> String {
    match broken {
        None if is_hidden => "NOT VISIBLE".to_owned(),
        None => "READY".to_owned(),
        Some(Broken { since: Some(since), .. }) => format!("NOT READY for {}", age(*since, now)),
        Some(_) => "NOT READY".to_owned(),
    }
}

/// Returns the sentence that says who has to act.
pub fn who(broken: &Broken, place: &str) -> String {
    match &broken.waits_for {
        Some(who) => format!("Waits for the {}: {}{place}.", who.to_uppercase(), broken.reason),
        None => format!("In progress: {}{place}.", broken.reason),
    }
}

/// Returns the way of one deployment: one line if it is ready, else one line for each link.
pub fn way_text(way: &Way, now: Timestamp, screen: Screen) -> String {
    let (mark, folded) = match &way.broken {
        None => (Mark::Well, true),
        Some(broken) if broken.waits_for.is_none() => (Mark::Later, false),
        Some(_) => (Mark::Broken, false),
    };
    let count = format!("{}/{}", way.ready, way.desired);
    let title = format!("{}  {}  {count}", screen.strong(&way.city), way.deployment);
    if folded {
        let marks = way.steps.iter().map(|step| format!("{} {}", step.link.name(), screen.sign(step.mark)));
        let marks: Vec<String> = marks.collect();
        return format!("{} {title}   {}\n", screen.sign(mark), marks.join("  "));
    }
    let mut text = format!("{} {title}\n", screen.sign(mark));
    for step in &way.steps {
        let _ = writeln!(text, "  {}", step_text(step, screen));
        if let Some(broken) = way.broken.as_ref().filter(|_| step.mark == Mark::Broken) {
            let _ = writeln!(text, "    {}   <- FIRST BROKEN LINK", line(broken, now, screen));
            let _ = writeln!(text, "    {}", broken.message);
            if broken.unreported {
                let _ = writeln!(text, "    The hub shows it now. The operator has not reported it.");
            }
        }
    }
    text
}

fn step_text(step: &Step, screen: Screen) -> String {
    format!("{} {:<10}{}", screen.sign(step.mark), step.link.name(), step.text)
}

/// Returns the reason with its age.
fn line(broken: &Broken, now: Timestamp, screen: Screen) -> String {
    let since = broken.since.map_or_else(String::new, |since| format!("  since {}", age(since, now)));
    format!("{}{since}", screen.strong(&broken.reason))
}
