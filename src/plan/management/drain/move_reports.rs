//! What is said of cities that are to leave a cluster: on the Clusters, and on their deployments.

use jiff::Timestamp;

use super::whereabouts::Move;
use crate::plan::management::city_policy::city::named;
use crate::{
    api::{
        karmada::{Cluster, ClusterSpec},
        meta::annotation,
        names::CityCode,
        reason::Reason,
    },
    plan::{
        Hub, Write,
        event::{self, Note, Severity},
    },
    timing::Timing,
};

/// How many namespaces are named with what keeps them; the others are counted.
const MAX_NAMED: usize = 3;

/// The namespaces that are not sent anywhere.
#[derive(Debug, Default)]
pub(super) struct Staying {
    /// Those that nobody schedules elsewhere.
    pub(super) suspended: Vec<String>,
    /// Those that several clusters have, of which the one that is to keep them is not seen to run them; each with why.
    pub(super) shared: Vec<String>,
}

/// What keeps namespaces where they are, in words: those that did not begin, one that Karmada has left, and, where nothing
/// else is under way, those that are not sent anywhere.
pub(super) fn told(of: &Move, stay: &Staying, timing: &Timing) -> Option<String> {
    let aside: Vec<String> = of.aside.iter().map(|(name, aside)| format!("{name}: {}", aside.why)).collect();
    let aside = (!aside.is_empty()).then(|| {
        let within = timing.drain_arrival.as_secs();
        format!(
            "what did not begin to move within {within} s is tried again after the others: {}",
            named(&aside, MAX_NAMED)
        )
    });
    let mut others = of.transfers.iter().filter(|(name, _)| !of.aside.contains_key(*name)).peekable();
    let idle = others.peek().is_none();
    let left = others.find_map(|(_, of)| of.told.clone());
    let Staying { suspended, shared } = stay;
    let shared = (idle && !shared.is_empty()).then(|| {
        format!(
            "no cluster gives up what several have before the one that is to keep it runs it: {}",
            named(shared, MAX_NAMED)
        )
    });
    let suspended = (idle && !suspended.is_empty()).then(|| {
        let why = "spec.suspension.scheduling of ResourceBindings there keeps them from being scheduled";
        format!("{} stay(s): {why}", suspended.join(", "))
    });
    let all: Vec<String> = [aside, left, shared, suspended].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Says on the Clusters what is news: what a drain waits for, that it failed, that it is done.
pub(super) fn report(city: &CityCode, before: Option<&Move>, next: Option<&Move>, now: Timestamp) -> Vec<Write<Hub>> {
    let said = before.and_then(|before| before.waits.as_ref());
    let (on, severity, reason, text) = match next {
        Some(next) => match &next.waits {
            Some(waits) if said != Some(waits) => {
                let reason = if next.failed.is_empty() { Reason::DrainWaiting } else { Reason::DrainFailed };
                let text = format!("{city} stays here for now: {waits}");
                (next.concerned(), Severity::Warning, reason, text)
            }
            _ => return Vec::new(),
        },
        None => match before {
            Some(before) if !before.from.is_empty() => {
                let to = before.to.as_ref().map(|to| format!("; it was on its way to {to}")).unwrap_or_default();
                let text = format!("nothing of {city} is to leave any more{to}");
                (before.from.iter().map(String::as_str).collect(), Severity::Normal, Reason::DrainEnded, text)
            }
            _ => return Vec::new(),
        },
    };
    let event = |name: &str| {
        let note = Note { severity, reason: reason.clone(), action: "Draining", text: &text };
        event::on(&Cluster::new(name, ClusterSpec::default()), "city-guard", &note, now)
    };
    on.into_iter().map(event).collect()
}

/// What the deployments of a city that waits are to say, for those on a cluster that it is to leave, or between two.
pub fn note(city: &CityCode, of: &Move) -> Option<String> {
    let waits = of.waits.as_ref()?;
    if of.from.is_empty() {
        return Some(format!("{city} is to leave no Cluster any more, and is not whole on one yet: {waits}"));
    }
    let from: Vec<&str> = of.from.iter().map(String::as_str).collect();
    Some(format!(
        "{city} is to leave Cluster {} ({}=true), and stays for now: {waits}",
        from.join(", "),
        annotation::DRAIN
    ))
}
