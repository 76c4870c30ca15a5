//! Each alert fires when its cause is provoked on the testbed, and no other alert fires with it. No alert fires while nothing is
//! wrong.
//!
//! Prometheus loads the operator's rules with one change: minutes become seconds and hours become minutes, in waiting periods and
//! in ranges. Thresholds stay.

mod provocations;
mod steps;

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use self::provocations::{Provocation, Stage};
use crate::{
    common::{RUNTIME, skipped},
    scraping::{Pace, Prometheus, program, rules},
};
use Provocation::{
    BindingsTaken, BudgetTaken, CellAway, CertificateEnds, CityWithoutCluster, CompanionUndelivered, DeploymentGarbled,
    DrainToNowhere, HubAway, LabelLost, LeaseHeld, ManagersEnded, ProjectGone, ProjectRestored, QuotaAway, RightTaken,
    SecondManager, Stranger, TenantWithoutEnd, WorkloadsRefused,
};

/// The way an alert is provoked.
#[derive(Clone, Copy, Debug)]
enum How {
    Live(Provocation),
    /// Only in `tests/alerts/rules_test.yaml`, with the reason.
    ByUnitTest(&'static str),
}

use How::{ByUnitTest, Live};

/// Every alert of `config/components/alerts/rules.yaml`, in its order.
const ALERTS: [(&str, How); 28] = [
    ("ComputeManagerDown", Live(ManagersEnded)),
    ("ComputeNoLeader", Live(LeaseHeld)),
    ("ComputeControllerReconcileStorm", Live(TenantWithoutEnd)),
    ("ComputeWritesTakenBack", Live(SecondManager)),
    ("ComputeReconcileErrors", Live(WorkloadsRefused)),
    ("ComputePermissionMissing", Live(RightTaken)),
    ("ComputeUndecodableObjects", Live(DeploymentGarbled)),
    ("ComputeCertificateExpires", Live(CertificateEnds)),
    (
        "ComputeTokenExpires",
        ByUnitTest(
            "the servers here take tokens that do not tell their end; tests/it/credentials.rs looks at the gauge",
        ),
    ),
    ("ComputeHubUnreachable", Live(HubAway)),
    ("ComputeWatchFailing", Live(HubAway)),
    ("ComputeCellUnreachable", Live(CellAway)),
    ("ComputeDeploymentsBlocked", Live(CityWithoutCluster)),
    ("ComputeReferencedDataMissing", Live(CompanionUndelivered)),
    ("ComputeFederationSlow", ByUnitTest("each of many changes would have to take longer than a minute")),
    ("ComputeRepairsFrequent", Live(BindingsTaken)),
    ("ComputeQuarantinedInstances", Live(Stranger)),
    (
        "ComputeStrandedNamespaces",
        ByUnitTest("tests/it/projects/leaving.rs has a project vanish behind Milo, and looks at the gauge"),
    ),
    ("ComputeLeftOnCluster", Live(CellAway)),
    ("ComputeDeletionsPaused", Live(ProjectRestored)),
    (
        "ComputePolicyGaveUp",
        ByUnitTest(
            "the sweeps here, seconds apart, remove what holds a policy; tests/it/claim_timeout.rs looks at the counter",
        ),
    ),
    ("ComputeClusterMislabelled", Live(LabelLost)),
    ("ComputeDrainStuck", Live(DrainToNowhere)),
    (
        "ComputeMigrationRefused",
        ByUnitTest("policies of the Go operator, which tests/it/migration.rs writes, and looks at the gauge"),
    ),
    ("ComputeMigrationStalled", ByUnitTest("policies of the Go operator would have to stay half-way for six minutes")),
    ("ComputeQuotaBackendUnavailable", Live(QuotaAway)),
    ("ComputeQuotaUnanswered", Live(BudgetTaken)),
    ("ComputeQuotaClaimsOrphaned", Live(ProjectGone)),
];

/// Time without a provocation at the start. It exceeds every waiting period that is not in hours.
const QUIET: Duration = Duration::from_mins(1);
/// Longest time until an alert fires or ends: twice the longest waiting period with the longest range before it.
const PATIENCE: Duration = Duration::from_mins(3);

/// Shortens a length of time of the rules.
fn shortened(time: &str) -> String {
    let (number, unit) = time.split_at(time.len() - 1);
    assert!(number.bytes().all(|byte| byte.is_ascii_digit()), "{time}");
    match unit {
        "m" => format!("{number}s"),
        "h" => format!("{number}m"),
        _ => panic!("{time}: minutes and hours alone are known here"),
    }
}

/// Returns the rules with every waiting period and every range shortened.
fn quick_rules() -> Value {
    let mut rules = rules();
    for group in rules["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            if let Some(time) = rule["for"].as_str() {
                rule["for"] = shortened(time).into();
            }
            let mut expression = String::new();
            // A range, or the value of `offset`.
            for part in rule["expr"].as_str().unwrap().split_inclusive(['[', ']', ' ', '\n']) {
                let (word, rest) = part.split_at(part.len() - usize::from(part.ends_with([']', ' ', '\n'])));
                let is_time = rest == "]" || expression.ends_with("offset ");
                expression += &if is_time { shortened(word) } else { word.to_owned() };
                expression += rest;
            }
            rule["expr"] = expression.into();
        }
    }
    rules
}

#[test]
fn alerts_have_a_provocation_or_a_reason_why_not() {
    let rules = rules();
    let groups = rules["groups"].as_array().unwrap().iter();
    let names = groups.flat_map(|group| group["rules"].as_array().unwrap()).map(|rule| rule["alert"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ALERTS.map(|(name, _)| name));
}

#[test]
fn quick_rules_shorten_minutes_to_seconds_and_hours_to_minutes() {
    let (text, quick) = (rules().to_string(), quick_rules().to_string());
    for (before, after) in
        [("[30m]", "[30s]"), ("[1h]", "[1m]"), ("offset 1h", "offset 1m"), ("\"for\":\"15m\"", "\"for\":\"15s\"")]
    {
        assert_eq!(text.matches(before).count(), quick.matches(after).count(), "{before}");
        assert!(text.contains(before) && !quick.contains(before), "{before}");
    }
}

/// Returns the alerts that have fired within this time.
async fn fired(prometheus: &Prometheus, within: Duration) -> BTreeSet<String> {
    // Whole seconds since the start. One more would include leftovers of the previous provocation.
    let range = within.as_secs().max(1);
    let query = format!("max_over_time(ALERTS{{alertstate=\"firing\"}}[{range}s])");
    let series = prometheus.ask(&query).await.unwrap();
    series.iter().map(|series| series["metric"]["alertname"].as_str().unwrap().to_owned()).collect()
}

/// Returns true if the condition becomes true within this time.
async fn within(patience: Duration, is_so: impl AsyncFn() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < patience {
        if is_so().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    false
}

#[test]
fn alerts_fire_only_when_provoked() {
    let Some(program) = program() else {
        skipped("prometheus is not on the PATH and not in PROMETHEUS; .ci/tools installs it");
        return;
    };
    RUNTIME.block_on(async {
        let mut stage = Stage::set().await;
        let pace = Pace { scrape: "500ms", evaluate: "500ms", rules: quick_rules(), ..Pace::default() };
        let prometheus = Prometheus::scraping(&program, &stage.world, &pace).await;
        let began = Instant::now();
        // Nothing is provoked during this time.
        tokio::time::sleep(QUIET).await;
        let quiet = fired(&prometheus, began.elapsed()).await;
        assert!(quiet.is_empty(), "nothing was wrong: {quiet:?}");
        for (name, how) in ALERTS {
            if let ByUnitTest(why) = how {
                eprintln!("{name} is provoked in a unit test alone: {why}");
            }
        }
        let chosen = std::env::var("PROVOKE").ok();
        let mut wrong = Vec::new();
        for how in Provocation::ALL {
            if chosen.as_ref().is_some_and(|only| !only.split(',').any(|name| name == format!("{how:?}"))) {
                continue;
            }
            if how == Provocation::CompanionUndelivered && stage.world.bed.stand_in().is_none() {
                skipped("CompanionUndelivered needs a Karmada that delivers no dependencies");
                continue;
            }
            let wanted =
                ALERTS.into_iter().filter(|(_, by)| matches!(by, Live(by) if *by == how)).map(|(name, _)| name);
            let wanted: BTreeSet<String> = wanted.map(str::to_owned).collect();
            assert!(!wanted.is_empty(), "{how:?} provokes nothing");
            let began = Instant::now();
            stage.provoke(how, &prometheus).await;
            let fire = async || fired(&prometheus, began.elapsed()).await.is_superset(&wanted);
            let does = within(PATIENCE, fire).await;
            let took = began.elapsed();
            stage.mend(how, &prometheus).await;
            // No alert is pending either.
            let is_quiet = within(PATIENCE, async || prometheus.ask("ALERTS").await.unwrap().is_empty()).await;
            let beside = how.beside().iter().map(|name| (*name).to_owned());
            let fired = fired(&prometheus, began.elapsed()).await;
            let meant: BTreeSet<String> = wanted.iter().cloned().chain(beside).collect();
            let too_much: Vec<_> = fired.difference(&meant).collect();
            eprintln!(
                "{how:?}: {fired:?} after {:.0} s, quiet again after {:.0} s",
                took.as_secs_f64(),
                began.elapsed().as_secs_f64()
            );
            if !does || !is_quiet || !too_much.is_empty() {
                wrong.push(format!("{how:?} has {fired:?} fire, quiet again: {is_quiet}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        drop(prometheus);
    });
}
