//! `explain`: what a reason means, from the table that the pages and the alerts come from. It asks no control plane.

use std::{fmt::Write as _, io::Write};

use compute_operator::api::reason::{Class, DOCS, Entry, Reason, Seen};
use serde::Serialize;

use crate::{exit::Exit, flags, output::Output, screen::Screen};

/// A reason with its explanation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    reason: String,
    rank: u8,
    waits_for: &'static str,
    meaning: &'static str,
    effect: &'static str,
    steps: &'static [&'static str],
    seen_in: Vec<String>,
    alerts: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    runbook: Option<String>,
}

impl Explanation {
    fn of(reason: &Reason) -> Option<Self> {
        let Entry { meaning, effect, who, steps, seen_in, alerts, runbook } = reason.entry()?;
        Some(Self {
            reason: reason.as_str().to_owned(),
            rank: reason.rank(),
            waits_for: who.label(),
            meaning,
            effect,
            steps,
            seen_in: shown_in(reason, seen_in),
            alerts,
            runbook: runbook.map(|page| format!("{DOCS}/runbooks/{page}")),
        })
    }
}

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub fn run(args: &flags::Explain, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    if let Some(word) = &args.reason {
        let explanation = find(word).map_err(|error| (Exit::Usage, error))?;
        output.print(out, &explanation, |screen| text(&explanation, screen))?;
    } else {
        let all: Vec<Explanation> = Reason::ALL.iter().filter_map(Explanation::of).collect();
        output.print(out, &all, |screen| list(&all, screen))?;
    }
    Ok(Exit::Well)
}

/// Returns where a reason is seen. A problem of a Workload is also in its summary, which names only the worst one.
fn shown_in(reason: &Reason, seen_in: &[Seen]) -> Vec<String> {
    let is_summed_up = |seen: &Seen| {
        matches!(seen, Seen::Condition { kind: "Workload" | "WorkloadDeployment", .. })
            && reason.class() != Class::Success
    };
    let summary =
        seen_in.iter().any(is_summed_up).then(|| "condition Ready of Workload and WorkloadDeployment".to_owned());
    let is_ready = |seen: &&Seen| matches!(seen, Seen::Condition { name: "Ready", .. });
    let covered = summary.is_some();
    let others = seen_in.iter().filter(|seen| !(covered && is_ready(seen)));
    summary.into_iter().chain(others.map(ToString::to_string)).collect()
}

/// Finds a reason in any spelling of upper and lower case.
fn find(word: &str) -> Result<Explanation, String> {
    let known = Reason::ALL.iter().find(|reason| reason.as_str().eq_ignore_ascii_case(word));
    known.and_then(Explanation::of).ok_or_else(|| {
        let near: Vec<&str> = Reason::ALL.iter().map(Reason::as_str).filter(|known| is_near(known, word)).collect();
        let near = if near.is_empty() { String::new() } else { format!("; similar ones: {}", near.join(", ")) };
        format!(
            "{word:?} is no reason of this operator{near}. A provider or the network services may have it: read the message"
        )
    })
}

/// True if one word contains the other, in any case.
fn is_near(known: &str, word: &str) -> bool {
    let (known, word) = (known.to_ascii_lowercase(), word.to_ascii_lowercase());
    word.len() > 2 && (known.contains(&word) || word.contains(&known))
}

fn text(of: &Explanation, screen: Screen) -> String {
    let mut text = format!("{} · waits for: {}\n", screen.strong(&of.reason), of.waits_for);
    let mut part = |label: &str, lines: &[String]| {
        for (n, line) in lines.iter().enumerate() {
            let label = if n == 0 { label } else { "" };
            let _ = writeln!(text, "{label:<9} {line}");
        }
    };
    part("MEANING", &[plain(of.meaning)]);
    part("EFFECT", &[plain(of.effect)]);
    let steps = of.steps.iter().enumerate().map(|(n, step)| format!("{}. {}", n + 1, plain(step)));
    part("DO", &steps.collect::<Vec<_>>());
    part("SEEN IN", &of.seen_in.iter().map(|seen| plain(seen)).collect::<Vec<_>>());
    part("ALERT", &of.alerts.iter().map(|alert| (*alert).to_owned()).collect::<Vec<_>>());
    part("RUNBOOK", &of.runbook.iter().cloned().collect::<Vec<_>>());
    text
}

fn list(all: &[Explanation], screen: Screen) -> String {
    let mut rows = vec![["REASON", "WAITS FOR", "MEANING"].map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|one| vec![one.reason.clone(), one.waits_for.to_owned(), plain(one.meaning)]));
    screen.table(&rows)
}

/// Returns a text of the page without its marks.
pub fn plain(text: &str) -> String {
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_explained_in_any_case() {
        let text = text(&find("notscheduled").unwrap(), Screen::PLAIN);
        let labels: Vec<_> =
            text.lines().filter_map(|line| line.split(' ').next()).filter(|label| !label.is_empty()).collect();
        assert_eq!(labels, ["NotScheduled", "MEANING", "EFFECT", "DO", "SEEN", "ALERT", "RUNBOOK"], "{text}");
        assert!(text.starts_with("NotScheduled · waits for: platform\n"), "{text}");
        assert!(text.contains("/docs/runbooks/blocked-deployments.md"), "{text}");
    }

    #[test]
    fn unknown_reason_is_answered_with_similar_ones() {
        let error = find("Quota").unwrap_err();
        assert!(error.contains("QuotaExceeded") && error.contains("QuotaNoBudget"), "{error}");
        assert!(find("FailedScheduling").unwrap_err().contains("is no reason of this operator"));
    }

    #[test]
    fn every_reason_has_an_explanation() {
        let all: Vec<_> = Reason::ALL.iter().map(|reason| find(reason.as_str()).unwrap()).collect();
        let text = list(&all, Screen::PLAIN);
        assert_eq!(text.lines().count(), 1 + Reason::ALL.len());
    }
}
