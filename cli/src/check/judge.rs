//! Judges what the control planes show of the install: one row for each of them.

use std::collections::BTreeMap;

use compute_operator::plan::management::{
    city_policy::migration::karmada_version::{FormerBug, KarmadaVersion},
    observed::cluster::ClusterFacts,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    cities,
    credentials::End,
    definitions::{self, Comparison},
    facts::{Answer, Facts, Karmada, LeaseFacts, Manager, Plane, Rights, Webhook},
    foreign,
    read::tag,
    roles::{NAMESPACE, documents},
};
use crate::{exit::Exit, screen::Mark, seen::Seen};

/// Oldest supported minor release of Kubernetes 1, of a hub, of cells and of projects with webhooks.
const OLDEST: u32 = 30;
/// Days before the end of a credential from which on it is reported.
const SOON: i64 = 7;
/// Seconds by which clocks may differ.
const SKEW: i64 = 5;
/// The interpreter of this version.
const INTERPRETER: &str = include_str!("../../../config/components/federation/interpreter.yaml");

/// Result of one comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Its state.
    pub mark: Mark,
    /// What was found.
    pub text: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    /// Something that is as it should be.
    pub fn well(text: impl Into<String>) -> Self {
        Self { mark: Mark::Well, text: text.into(), fix: None }
    }

    /// Something that does not work.
    pub fn broken(text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { mark: Mark::Broken, text: text.into(), fix: Some(fix.into()) }
    }

    /// It works, and needs a look.
    pub fn warning(text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { mark: Mark::Warning, text: text.into(), fix: Some(fix.into()) }
    }

    /// Something that is not visible.
    pub fn unseen(text: impl Into<String>) -> Self {
        Self { mark: Mark::Unseen, text: text.into(), fix: None }
    }

    /// Something that was not found, with the reason. `absent` is the text if it does not exist.
    pub fn not_found<T>(what: &str, seen: &Seen<T>, absent: &str) -> Self {
        let mark = if matches!(seen, Seen::Unanswered(_)) { Mark::Unanswered } else { Mark::Unseen };
        let why = seen.hidden().unwrap_or_else(|| absent.to_owned());
        Self { mark, text: format!("{what}: {why}"), fix: None }
    }

    /// Something that is not visible, with the reason. `None` if it was seen or does not exist.
    pub fn hidden<T>(what: &str, seen: &Seen<T>) -> Option<Self> {
        seen.hidden().map(|_| Self::not_found(what, seen, ""))
    }
}

/// The checks of one control plane, or of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The checks.
    pub checks: Vec<Check>,
}

/// Result of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Time of the reads.
    pub time: Timestamp,
    /// The rows.
    pub rows: Vec<Row>,
    /// Number of checks that passed.
    pub passed: usize,
    /// Number of warnings.
    pub warnings: usize,
    /// Number of checks that failed.
    pub failed: usize,
    /// Number of checks that are not visible.
    pub unseen: usize,
    /// Number of checks without an answer of an API server.
    pub unanswered: usize,
}

impl Report {
    /// Judges what the control planes show.
    pub fn of(facts: &Facts) -> Self {
        let mut rows = vec![Row { name: named("project", &facts.project), checks: project(facts) }];
        if let Some(manager) = &facts.manager {
            rows.push(Row { name: named("manager", manager), checks: plane(manager, facts, Part::Manager) });
        }
        rows.push(Row { name: "hub".to_owned(), checks: hub(facts) });
        rows.extend(facts.cells.iter().map(|(name, seen)| Row { name: name.clone(), checks: cell(name, seen, facts) }));
        rows.push(Row { name: "cities".to_owned(), checks: cities::checks(facts) });
        rows.push(Row { name: "versions".to_owned(), checks: versions(facts) });
        rows.retain(|row| !row.checks.is_empty());
        let count = |mark| rows.iter().flat_map(|row| &row.checks).filter(|check| check.mark == mark).count();
        let (passed, warnings) = (count(Mark::Well), count(Mark::Warning));
        let (failed, unseen, unanswered) = (count(Mark::Broken), count(Mark::Unseen), count(Mark::Unanswered));
        Self { time: facts.now, rows, passed, warnings, failed, unseen, unanswered }
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        match (self.passed, self.failed, self.unanswered) {
            (0, ..) => Exit::CouldNotAsk,
            (_, 0, 0) => Exit::Well,
            (_, 0, _) => Exit::CouldNotAsk,
            _ => Exit::Platform,
        }
    }
}

/// A control plane's part in the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Project,
    Manager,
    Hub,
    Cell,
}

impl Part {
    /// Returns the overlay that grants the rights there.
    fn overlay(self) -> &'static str {
        match self {
            Self::Project => "your overlay of config/overlays/project-access or config/overlays/single-project",
            Self::Manager => "your overlay of config/overlays/management-plane",
            Self::Hub => "config/overlays/hub",
            Self::Cell => "your overlay of config/overlays/cell",
        }
    }
}

fn named(part: &str, plane: &Plane) -> String {
    if plane.context.is_empty() { part.to_owned() } else { format!("{part} {}", plane.context) }
}

/// Returns kubectl for a control plane.
fn kubectl(plane: &Plane) -> String {
    if plane.context.is_empty() { "kubectl".to_owned() } else { format!("kubectl --context {}", plane.context) }
}

fn project(facts: &Facts) -> Vec<Check> {
    let mut checks = plane(&facts.project, facts, Part::Project);
    if !facts.pre && is_reached(&facts.project) {
        checks.extend(webhook(&facts.webhook, facts.now));
    }
    checks
}

fn is_reached(plane: &Plane) -> bool {
    plane.version.found().is_some()
}

fn hub(facts: &Facts) -> Vec<Check> {
    let Some(seen) = &facts.hub else { return vec![Check::unseen("not asked: give --hub-context")] };
    let mut checks = plane(seen, facts, Part::Hub);
    if is_reached(seen) {
        checks.extend(karmada(&facts.karmada, seen, facts.pre));
        checks.extend(Check::hidden("Clusters", &facts.clusters));
    }
    checks
}

/// Returns the checks that every control plane has.
fn plane(seen: &Plane, facts: &Facts, part: Part) -> Vec<Check> {
    let version = match &seen.version {
        Seen::Found(version) => version,
        Seen::Unanswered(why) => {
            let fix = "see that the address in the kubeconfig is right, and that the API server runs";
            return vec![Check::broken(format!("the API server does not answer: {why}"), fix)];
        }
        hidden => {
            let why = hidden.hidden().unwrap_or_else(|| "no API server answers there; give --cell-context".to_owned());
            return vec![Check::unseen(why)];
        }
    };
    let mut checks = vec![kubernetes(version, part, facts)];
    checks.extend(seen.clock.as_ref().and_then(|clock| {
        let skew = clock.skew();
        let text = format!("the clock of the API server differs by {skew} s from this machine's");
        (skew > SKEW).then(|| Check::warning(text, "set both by NTP"))
    }));
    checks.extend(defined(seen));
    checks.extend(rights(&seen.rights, part, seen));
    if facts.pre {
        checks.extend(foreign::checks(&seen.webhooks));
    }
    checks.extend(seen.manager.iter().flat_map(|manager| managed(manager, seen, facts, part)));
    checks
}

fn kubernetes(version: &str, part: Part, facts: &Facts) -> Check {
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    let parsed = numbers.next().zip(numbers.next());
    let text = format!("Kubernetes {}", version.trim_start_matches('v'));
    match (parsed, part) {
        (None, _) => Check::unseen(format!("{text}, which is no version that this command can read")),
        (Some(parsed), Part::Hub | Part::Project) if parsed < (1, OLDEST) => {
            let fix = format!("upgrade it to 1.{OLDEST} or newer");
            let with_webhooks = facts.webhook.authorities.found().is_some_and(|hooks| !hooks.is_empty());
            if part == Part::Hub || with_webhooks {
                Check::broken(format!("{text} is older than 1.{OLDEST}"), fix)
            } else {
                Check::warning(format!("{text} is too old for webhooks"), fix)
            }
        }
        (Some(parsed), Part::Cell) if parsed < (1, OLDEST) => {
            Check::broken(format!("{text} is older than 1.{OLDEST}"), format!("upgrade it to 1.{OLDEST} or newer"))
        }
        (Some(_), Part::Hub | Part::Project) => Check::well(format!("{text} (1.{OLDEST} or newer)")),
        _ => Check::well(text),
    }
}

fn defined(seen: &Plane) -> Vec<Check> {
    if seen.definitions.is_empty() {
        return Vec::new();
    }
    let own = definitions::own();
    let fix = format!("{} apply --server-side --force-conflicts -f crds/", kubectl(seen));
    let mut checks = Vec::new();
    for (name, live) in &seen.definitions {
        let compared = match (live, own.get(name)) {
            (Seen::Found(live), Some(own)) => definitions::compare(live, own),
            (seen, _) if seen.is_absent() => {
                checks.push(Check::broken(format!("definition {name} is missing"), &*fix));
                continue;
            }
            (seen, _) => return vec![Check::not_found("definitions", seen, "")],
        };
        checks.extend(match compared {
            Comparison::Same => None,
            Comparison::Lacks(fields) => {
                Some(Check::broken(format!("definition {name} lacks fields of this version: {fields}"), &*fix))
            }
            Comparison::Newer(fields) => {
                let text = format!("definition {name} has fields that this version does not know: {fields}");
                Some(Check::warning(text, "use the newer kubectl-compute, or do not apply older definitions over it"))
            }
            Comparison::Differs(path) => {
                Some(Check::warning(format!("definition {name} differs from this version's in {path}"), &*fix))
            }
        });
    }
    if checks.is_empty() {
        checks.push(Check::well("definitions are this version's"));
    }
    checks
}

fn rights(all: &[Rights], part: Part, plane: &Plane) -> Vec<Check> {
    let (mut granted, mut checks) = (0, Vec::new());
    let mut hidden = None;
    for rights in all {
        match &rights.lacking {
            Seen::Found(lacking) if lacking.is_empty() => granted += rights.total,
            Seen::Found(lacking) => {
                let texts: Vec<String> = lacking.iter().map(super::roles::Right::text).collect();
                let texts = texts.join(", ");
                checks.push(if rights.user.is_empty() {
                    let fix = "install as a user with these rights, such as a cluster administrator";
                    Check::broken(format!("you lack: {texts}"), fix)
                } else {
                    let fix = format!("{}: apply {} of this version", kubectl(plane), part.overlay());
                    Check::broken(format!("role {} of {} lacks: {texts}", rights.role, rights.user), fix)
                });
            }
            seen => hidden = hidden.or_else(|| Check::hidden("rights of the operator", seen)),
        }
    }
    if granted > 0 {
        let whose = if all.iter().any(|rights| rights.user.is_empty()) { " to install" } else { "" };
        checks.insert(0, Check::well(format!("{granted} of {granted} rights{whose}")));
    }
    checks.extend(hidden);
    checks
}

fn managed(manager: &Manager, plane: &Plane, facts: &Facts, part: Part) -> Vec<Check> {
    let mut checks = vec![lease(&manager.lease, plane, facts)];
    let mounted = manager.deployment.found().map(|deployment| &deployment.secrets);
    // Others exist only with quota, with Milo or with webhooks, and the manager reports if they are missing.
    let is_required = |name: &str| match mounted {
        Some(mounted) => mounted.contains(name),
        None => ["compute-hub-credentials", "compute-cell-federation-kubeconfig"].contains(&name),
    };
    for (name, ends) in &manager.credentials {
        match ends {
            Seen::Found(ends) => {
                checks.extend(ends.iter().map(|(key, end)| credential(name, key, *end, facts.now, part)));
            }
            seen if seen.is_absent() && is_required(name) => {
                let fix = match part {
                    Part::Cell => "kubectl compute cell join NAME --city CODE",
                    _ => "create it as config/components/hub-access/kustomization.yaml says",
                };
                checks.push(Check::broken(format!("Secret {NAMESPACE}/{name} does not exist"), fix));
            }
            seen => checks.extend(Check::hidden(&format!("Secret {name}"), seen)),
        }
    }
    checks
}

fn lease(lease: &Seen<LeaseFacts>, plane: &Plane, facts: &Facts) -> Check {
    let fix = format!("{} -n {NAMESPACE} get pods", kubectl(plane));
    let lease = match lease {
        Seen::Found(lease) => lease,
        seen if seen.is_absent() => return Check::broken("no manager has led here: its Lease does not exist", fix),
        seen => return Check::not_found("Lease of the manager", seen, ""),
    };
    // The Lease is judged by the clock of its API server: this machine's may be wrong.
    let now = plane.clock.map_or(facts.now, |clock| clock.server);
    match lease.renewed.map(|renewed| now.duration_since(renewed).as_secs()) {
        _ if lease.holder.is_empty() => Check::broken("no manager leads: its Lease has no holder", fix),
        None => Check::broken("the manager's Lease was never renewed", fix),
        Some(age) if age > i64::from(lease.seconds) => {
            Check::broken(format!("{} has not renewed the manager's Lease for {age} s", lease.holder), fix)
        }
        Some(age) if age < -SKEW => {
            let text = format!("the clock of {} is {} s ahead of the API server's", lease.holder, -age);
            Check::warning(text, "set the clocks of the nodes by NTP")
        }
        Some(_) => Check::well("a manager leads"),
    }
}

fn credential(secret: &str, key: &str, end: End, now: Timestamp, part: Part) -> Check {
    let fix = match (secret, part) {
        ("compute-cell-federation-kubeconfig", _) => "kubectl compute cell rotate NAME".to_owned(),
        _ => format!("put a new one into the Secret {NAMESPACE}/{secret}"),
    };
    let (kind, at) = match end {
        End::Token(at) => ("token", at),
        End::Certificate(at) => ("certificate", at),
        End::Renewed => return Check::well(format!("the kubelet renews the token of {secret}")),
        End::Other => return Check::unseen(format!("{secret}: a program or file gives the credential")),
        End::Missing => return Check::broken(format!("{key} of {secret} has no credential that can be read"), fix),
    };
    let what = if key == "ca.crt" { "authority" } else { kind };
    ending(&format!("{what} of {secret}"), at, now, fix)
}

/// Judges the end of a credential.
fn ending(what: &str, at: Option<Timestamp>, now: Timestamp, fix: String) -> Check {
    let Some(at) = at else { return Check::unseen(format!("{what} names no end that can be read")) };
    let seconds = at.duration_since(now).as_secs();
    let (days, hours) = (seconds / 86400, seconds / 3600);
    let left = if days > 0 { format!("{days} d") } else { format!("{hours} h") };
    match seconds {
        ..=0 => Check::broken(format!("{what} has ended"), fix),
        _ if days < SOON => Check::warning(format!("{what} ends in {left}"), fix),
        _ => Check::well(format!("{what} ends in {left}")),
    }
}

fn webhook(webhook: &Webhook, now: Timestamp) -> Vec<Check> {
    let is_configured = webhook.authorities.found().is_some_and(|hooks| !hooks.is_empty());
    let fix = "see docs/admission.md, and the log of compute-manager";
    let mut checks = vec![match &webhook.answer {
        Answer::Refused { millis } => Check::well(format!("webhook answers a dry run in {millis} ms")),
        Answer::Accepted
            if webhook.authorities.is_absent() || (!is_configured && webhook.authorities.found().is_some()) =>
        {
            Check::warning(
                "no webhook: who may write a Workload may have every ConfigMap and Secret of its namespace copied",
                "use an overlay whose name ends in -admission (docs/deploying.md, Webhooks)",
            )
        }
        Answer::Accepted if !is_configured => {
            Check::unseen("an invalid Workload passed the dry run; whether webhooks are configured is not visible")
        }
        Answer::Accepted => Check::broken("the webhook accepted an invalid Workload (dry run)", fix),
        Answer::Stored => {
            Check::broken("the API server stored a Workload of a dry run: delete kubectl-compute.check-*", fix)
        }
        Answer::Uncalled(why) => Check::broken(format!("the API server cannot call the webhook: {why}"), fix),
        Answer::Denied(why) => Check::unseen(format!("webhook: you may not create Workloads: {why}")),
        Answer::Other(why) => Check::unseen(format!("webhook: the dry run ended otherwise: {why}")),
        Answer::NotAsked => Check::unseen("webhook: not asked"),
    }];
    let refused = matches!(webhook.answer, Answer::Refused { .. });
    let first = webhook.authorities.found().and_then(|hooks| hooks.iter().min_by_key(|(_, end)| at(**end)));
    match first {
        Some((_, End::Certificate(at))) => {
            checks.push(ending("authority of the webhooks", *at, now, "renew it, and its copy in caBundle".to_owned()));
        }
        Some((name, End::Missing)) if !refused => {
            checks.push(Check::broken(
                format!("webhook {name} has no caBundle"),
                "put the authority of its certificate there",
            ));
        }
        _ => {}
    }
    checks
}

fn at(end: End) -> Option<Timestamp> {
    if let End::Certificate(at) | End::Token(at) = end { at } else { None }
}

fn karmada(karmada: &Karmada, hub: &Plane, pre: bool) -> Vec<Check> {
    let mut checks = vec![karmada_version(&karmada.version)];
    let missing: Vec<&str> =
        karmada.kinds.iter().filter(|(_, seen)| seen.is_absent()).map(|(kind, _)| kind.as_str()).collect();
    let hidden = karmada.kinds.iter().find_map(|(kind, seen)| Check::hidden(kind, seen));
    checks.push(match (&missing[..], hidden) {
        ([], None) => Check::well("Karmada's kinds are served"),
        ([], Some(hidden)) => hidden,
        (missing, _) => Check::broken(
            format!("it does not serve {}", missing.join(", ")),
            "give --hub-context of Karmada's API server, not of the cluster in which Karmada runs",
        ),
    });
    if pre {
        checks.extend(interpreters_before(karmada));
        return checks;
    }
    checks.push(match &karmada.bindings {
        Seen::Found(bindings) if bindings.asking == 0 => {
            Check::unseen("PropagateDeps: no binding asks for its dependencies yet")
        }
        Seen::Found(bindings) if bindings.distributed == 0 => Check::broken(
            format!("PropagateDeps is off: Karmada has processed none of {} bindings", bindings.asking),
            "start karmada-controller-manager with --feature-gates=PropagateDeps=true",
        ),
        Seen::Found(bindings) => Check::well(format!("PropagateDeps (seen on {} bindings)", bindings.distributed)),
        seen => Check::not_found("bindings", seen, "none are served"),
    });
    checks.extend(interpreters(karmada, hub));
    checks
}

fn karmada_version(version: &Seen<String>) -> Check {
    let Seen::Found(text) = version else {
        let absent = "its Deployment is not in karmada-system there; give --karmada-context";
        return Check::not_found("version of Karmada", version, absent);
    };
    match KarmadaVersion::parse(text) {
        None => Check::unseen(format!("Karmada {text}, which is no release that this command knows")),
        Some(version) if version.bugs().is_empty() => Check::well(format!("Karmada {version}")),
        Some(version) => {
            let bugs: Vec<&str> = version.bugs().into_iter().map(FormerBug::text).collect();
            let text = format!("Karmada {version} is not supported: {}", bugs.join("; "));
            Check::broken(text, "upgrade Karmada to 1.15.6, 1.16.3, 1.17.0 or later")
        }
    }
}

fn interpreters(karmada: &Karmada, hub: &Plane) -> Vec<Check> {
    let Seen::Found(live) = &karmada.interpreters else {
        return vec![Check::not_found("interpreter", &karmada.interpreters, "none is served")];
    };
    let fix = format!("{} apply --server-side --force-conflicts -k config/components/federation", kubectl(hub));
    let own = documents(INTERPRETER).into_iter().next().unwrap_or_default();
    let name = own["metadata"]["name"].as_str().unwrap_or_default();
    let mut checks = vec![match live.get(name) {
        None => Check::broken(format!("ResourceInterpreterCustomization {name} does not exist"), fix),
        Some(live) => match definitions::differs(&own["spec"], live, "spec") {
            None => Check::well("interpreter is this version's"),
            Some(path) => Check::broken(
                format!("ResourceInterpreterCustomization {name} differs from this version's in {path}"),
                fix,
            ),
        },
    }];
    checks.extend(other_interpreters(live, name));
    checks
}

/// Returns the check for interpreters of others. Karmada uses only one of them.
fn other_interpreters(live: &BTreeMap<String, Value>, own: &str) -> Option<Check> {
    let others: Vec<&str> = live.keys().map(String::as_str).filter(|other| *other != own).collect();
    let text = || format!("Karmada has other interpreters for WorkloadDeployments too: {}", others.join(", "));
    (!others.is_empty()).then(|| Check::warning(text(), "delete them: only one of them is used"))
}

/// Judges the interpreters before the install, which brings this version's.
fn interpreters_before(karmada: &Karmada) -> Vec<Check> {
    let live = match &karmada.interpreters {
        Seen::Found(live) => live,
        // The missing kind is reported already.
        seen if seen.is_absent() => return Vec::new(),
        seen => return vec![Check::not_found("interpreter", seen, "")],
    };
    let own = documents(INTERPRETER).into_iter().next().unwrap_or_default();
    let name = own["metadata"]["name"].as_str().unwrap_or_default();
    let mut checks = vec![match live.get(name) {
        None => Check::well("no interpreter for WorkloadDeployments yet"),
        Some(live) => match definitions::differs(&own["spec"], live, "spec") {
            None => Check::well("interpreter is this version's"),
            Some(path) => Check::warning(
                format!("ResourceInterpreterCustomization {name} of another version differs in {path}"),
                "the install replaces it: follow docs/upgrading.md",
            ),
        },
    }];
    checks.extend(other_interpreters(live, name));
    checks
}

fn cell(name: &str, seen: &Plane, facts: &Facts) -> Vec<Check> {
    let mut checks = plane(seen, facts, Part::Cell);
    for check in &mut checks {
        check.fix = check.fix.take().map(|fix| fix.replace("NAME", name));
    }
    let Seen::Found(clusters) = &facts.clusters else { return checks };
    let Some(cluster) = clusters.get(name) else {
        checks.push(Check::broken(format!("the hub has no Cluster {name}"), format!("karmadactl join {name}")));
        return checks;
    };
    let city = cluster.city.as_ref().map_or("CODE", |city| city.as_str());
    for check in &mut checks {
        check.fix = check.fix.take().map(|fix| fix.replace("--city CODE", &format!("--city {city}")));
    }
    checks.extend(token_of_deleted(name, city, seen, facts));
    checks.extend(member(name, cluster));
    if let (Seen::Found(uid), false) = (&seen.uid, facts.pre) {
        checks.push(match &cluster.cell {
            Some(id) if id == uid => Check::well("spec.id is the uid of kube-system"),
            Some(id) => Check::broken(
                format!("the Cluster has spec.id {id}, and kube-system has the uid {uid}"),
                "give --cell-context of the right cluster; a rebuilt one has to join Karmada again",
            ),
            None => Check::broken("the Cluster has no spec.id", "let it join Karmada again"),
        });
    }
    if let (Seen::Found(holders), Some(id)) = (&facts.holders, &cluster.cell) {
        checks.push(match holders.get(id) {
            Some(users) if !users.is_empty() => Check::well("it has its own user on the hub"),
            _ => Check::broken(
                "no user of the hub may write for this cell",
                format!("kubectl compute cell join {name} --city {city}"),
            ),
        });
    }
    checks
}

/// Returns the check for a cell whose token is of a ServiceAccount that the hub has no more. The hub refuses such a token, also if
/// there is a new ServiceAccount of the same name.
fn token_of_deleted(name: &str, city: &str, cell: &Plane, facts: &Facts) -> Option<Check> {
    let account = cell.manager.as_ref()?.account.as_ref()?;
    let live = facts.accounts.get(name)?;
    let is_deleted = live.is_absent() || live.found().is_some_and(|uid| *uid != account.uid);
    is_deleted.then(|| {
        Check::broken(
            format!(
                "its token is of a ServiceAccount {}/{} that was deleted, or of another hub",
                account.namespace, account.name
            ),
            format!("kubectl compute cell join {name} --city {city}"),
        )
    })
}

fn member(name: &str, cluster: &ClusterFacts) -> Vec<Check> {
    let mut checks = vec![match &cluster.ready {
        Ok(()) => Check::well("Cluster is ready"),
        Err(why) => Check::broken(format!("Cluster is not ready: {why}"), "see docs/runbooks/dead-cell.md"),
    }];
    if let Some(obstacle) = &cluster.obstacle {
        let fix = format!("karmadactl uncordon {name}, or apply crds/ there");
        checks.push(Check::warning(format!("Karmada brings nothing new to it: it {obstacle}"), fix));
    }
    if cluster.is_leaving() {
        let state = if cluster.dead {
            "declared dead"
        } else if cluster.deleting {
            "being deleted"
        } else {
            "drained"
        };
        let fix = format!("kubectl compute cell drain {name} --watch");
        checks.push(Check::warning(format!("the Cluster is {state}: its city moves to another one"), fix));
    }
    checks
}

fn versions(facts: &Facts) -> Vec<Check> {
    let home = facts.manager.as_ref().map_or(("project", &facts.project), |manager| ("manager", manager));
    let planes = [home].into_iter().chain(facts.cells.iter().map(|(name, plane)| (name.as_str(), plane)));
    let image = |plane: &Plane| {
        let deployment = plane.manager.as_ref()?.deployment.found()?;
        Some(tag(&deployment.image).to_owned())
    };
    let mut by_version: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, plane) in planes {
        if let Some(version) = image(plane) {
            by_version.entry(version).or_default().push(name);
        }
    }
    match by_version.len() {
        0 => Vec::new(),
        1 => by_version.keys().map(|version| Check::well(format!("all managers run {version}"))).collect(),
        _ => {
            let parts = by_version.iter().map(|(version, names)| format!("{} run {version}", names.join(", ")));
            let text = parts.collect::<Vec<_>>().join("; ");
            vec![Check::warning(text, "upgrade as docs/upgrading.md says: definitions, management, then the cells")]
        }
    }
}
