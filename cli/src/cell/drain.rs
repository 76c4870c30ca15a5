//! `cell drain`: the annotation, and what the city policies say.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Write,
    time::{Duration, Instant},
};

use compute_operator::{
    api::{
        karmada::{Cluster, PropagationPolicy, ResourceBinding},
        meta::{DEAD, MANAGED_BY, annotation, label},
        names::CityPolicyName,
        reason::Reason,
    },
    plan::management::{
        drain::placement_status::PlacementStatus,
        observed::{cluster::ClusterFacts, facts::BindingFacts},
    },
};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Drain, FIELD_MANAGER};
use crate::{
    exit::Exit,
    output::Output,
    screen::{Screen, age},
    seen::{Seen, list, patiently, words},
};

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(3);
/// Objects of one page of a list.
const PAGE: u32 = 500;

/// Stage of a city in one hub namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Stage {
    /// It is on the Cluster, and does not move yet.
    Held,
    /// Karmada is asked to move it.
    Requested,
    /// Part of it has left.
    Moving,
    /// It comes back, because it did not arrive.
    Returning,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Requested => "requested",
            Self::Moving => "moving",
            Self::Returning => "returning",
        }
    }
}

/// A city in one hub namespace that is not away from the Cluster yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    namespace: String,
    city: String,
    stage: Stage,
    /// Deployments that are on the Cluster.
    deployments: usize,
    /// The Cluster that it goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Why it failed before, or cannot move.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
}

/// How far a drain is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    time: Timestamp,
    cluster: String,
    /// Other Clusters with the label of its city, and why Karmada would bring nothing to one.
    targets: BTreeMap<String, Option<String>>,
    city: Option<String>,
    /// What is not away yet.
    places: Vec<Place>,
    /// The operator's last report on the Cluster: reason and message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<(String, String)>,
}

/// Runs the command.
pub async fn run(hub: &Client, args: &Drain, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let failed = |error| (Exit::CouldNotAsk, error);
    let before = annotate(hub, &args.name, "true").await.map_err(failed)?;
    let (began, mut shown) = (Instant::now(), None);
    loop {
        let progress = Progress::read(hub, &args.name, &before).await.map_err(failed)?;
        let is_over = args.timeout.is_some_and(|timeout| began.elapsed() + PAUSE > timeout);
        let places = Some((progress.places.clone(), progress.report.clone()));
        if shown != places {
            output.print(out, &progress, |screen| text(&progress, screen))?;
            shown = places;
        }
        match progress.exit() {
            Exit::Well => return Ok(Exit::Well),
            exit if !args.watch => return Ok(exit),
            _ if is_over => return Ok(Exit::Timeout),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Writes the drain annotation. Returns the Cluster as it was before.
pub(super) async fn annotate(hub: &Client, name: &str, value: &str) -> Result<ClusterFacts, String> {
    let clusters: Api<Cluster> = Api::all(hub.clone());
    let before = match crate::seen::get(&clusters, name).await {
        Seen::Found(cluster) => cluster,
        seen if seen.is_absent() => return Err(format!("the hub has no Cluster {name}")),
        seen => return Err(format!("hub: Cluster {name}: {}", seen.hidden().unwrap_or_default())),
    };
    let present = before.annotations().get(annotation::DRAIN).map(String::as_str);
    // A dead cell is drained already. As a plain drain it would hold its claims again.
    let is_stronger = present == Some(DEAD) && value == "true";
    if present != Some(value) && !is_stronger {
        let patch = json!({ "metadata": { "annotations": { annotation::DRAIN: value } } });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let done = clusters.patch_metadata(name, &params, &Patch::Merge(patch)).await;
        done.map_err(|error| format!("hub: Cluster {name}: {}", words(&error)))?;
    }
    Ok(ClusterFacts::of(before))
}

impl Progress {
    async fn read(hub: &Client, name: &str, cluster: &ClusterFacts) -> Result<Self, String> {
        let now = Timestamp::now();
        let hidden = |what: &str, why: Option<String>| {
            format!("hub: {what}: {}", why.unwrap_or_else(|| "not served".to_owned()))
        };
        let policies: Api<PropagationPolicy> = Api::all(hub.clone());
        let managed = format!("{}={MANAGED_BY}", label::MANAGED_BY);
        let clusters: Api<Cluster> = Api::all(hub.clone());
        let (policies, clusters) = futures::join!(list(&policies, Some(&managed)), list(&clusters, None));
        let Seen::Found(policies) = policies else { return Err(hidden("PropagationPolicies", policies.hidden())) };
        let Seen::Found(clusters) = clusters else { return Err(hidden("Clusters", clusters.hidden())) };
        let bindings = bindings(hub).await?;
        let others = clusters.into_iter().filter(|one| one.name_any() != name);
        let others = others.map(|one| (one.name_any(), ClusterFacts::of(one)));
        let targets =
            others.filter(|(_, facts)| facts.city.is_some() && facts.city == cluster.city && !facts.is_leaving());
        Ok(Self {
            time: now,
            cluster: name.to_owned(),
            targets: targets.map(|(name, facts)| (name, facts.is_able().err())).collect(),
            city: cluster.city.as_ref().map(|city| city.as_str().to_owned()),
            places: places(name, &policies, &bindings, now),
            report: report(hub, name).await,
        })
    }

    /// Returns the exit code.
    fn exit(&self) -> Exit {
        if self.places.is_empty() {
            return Exit::Well;
        }
        let failed = self.report.as_ref().is_some_and(|(reason, _)| *reason == Reason::DrainFailed.as_str());
        if failed || self.targets.is_empty() { Exit::Platform } else { Exit::InProgress }
    }
}

/// Reads the bindings of all deployments, each with its namespace.
async fn bindings(hub: &Client) -> Result<Vec<(String, BindingFacts)>, String> {
    let all: Api<ResourceBinding> = Api::all(hub.clone());
    let (mut found, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = match patiently(all.list(&params)).await {
            Seen::Found(page) => page,
            seen => return Err(format!("hub: ResourceBindings: {}", seen.hidden().unwrap_or_default())),
        };
        let own = page.items.into_iter().map(|one| (one.namespace().unwrap_or_default(), BindingFacts::of(one)));
        found.extend(own.filter(|(_, facts)| facts.template.is_deployment()));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(found),
        }
    }
}

/// Returns what is not away from a Cluster.
fn places(
    cluster: &str,
    policies: &[PropagationPolicy],
    bindings: &[(String, BindingFacts)],
    now: Timestamp,
) -> Vec<Place> {
    let mut places = Vec::new();
    for policy in policies {
        let (namespace, name) = (policy.namespace().unwrap_or_default(), policy.name_any());
        let Some(city) = CityPolicyName::parse(&name) else { continue };
        let own = bindings.iter().filter(|(of, facts)| *of == namespace && facts.policy.as_deref() == Some(&*name));
        let status = own.fold(PlacementStatus::of_policy(policy, now), |status, (_, facts)| status.with(facts));
        let concerns = |route: &compute_operator::plan::management::drain::placement_status::Route| {
            route.from == cluster || route.to == cluster
        };
        let transfer = status.transfer.as_ref().filter(|transfer| concerns(&transfer.route));
        if !status.has(cluster) && transfer.is_none() {
            continue;
        }
        let stage = match transfer {
            None => Stage::Held,
            Some(transfer) if transfer.is_back() => Stage::Returning,
            Some(transfer) if status.has_begun(&transfer.route) => Stage::Moving,
            Some(_) => Stage::Requested,
        };
        let failure =
            status.failed.iter().next().map(|(on, failure)| format!("did not arrive on {on}: {}", failure.why));
        let trouble = status.policy_trouble.as_ref().map(|trouble| trouble.words());
        places.push(Place {
            namespace,
            city: city.as_str().to_owned(),
            stage,
            deployments: status.on.get(cluster).map_or(0, |share| share.bindings),
            to: transfer.map(|transfer| transfer.route.to.clone()),
            since: transfer.map(|transfer| transfer.record.requested),
            note: trouble.or(failure).unwrap_or_default(),
        });
    }
    places.sort_by(|one, other| (&one.city, &one.namespace).cmp(&(&other.city, &other.namespace)));
    places
}

/// Reads the operator's last report about a drain on a Cluster.
async fn report(hub: &Client, name: &str) -> Option<(String, String)> {
    let events: Api<Event> = Api::namespaced(hub.clone(), "default");
    let Seen::Found(all) = patiently(events.list(&ListParams::default())).await else { return None };
    let drains =
        [Reason::DrainWaiting, Reason::DrainFailed, Reason::DrainEnded].map(|reason| reason.as_str().to_owned());
    let about = all.items.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|on| on.kind.as_deref() == Some("Cluster") && on.name.as_deref() == Some(name))
            && event.reason.as_ref().is_some_and(|reason| drains.contains(reason))
    });
    let last = about.max_by_key(|event| event.event_time.as_ref().map(|time| time.0))?;
    Some((last.reason?, last.note.unwrap_or_default()))
}

fn text(progress: &Progress, screen: Screen) -> String {
    let Progress { cluster, city, places, targets, .. } = progress;
    let mut text = String::new();
    if places.is_empty() {
        let _ = writeln!(text, "Nothing of any city is on {cluster}.");
        return text;
    }
    let named = city.as_deref().unwrap_or("no city");
    if targets.is_empty() {
        let _ = writeln!(text, "The drain of {cluster} waits: no other Cluster has the label of {named}.");
    } else {
        let targets = targets.iter().map(|(name, obstacle)| match obstacle {
            Some(why) => format!("{name} ({why})"),
            None => name.clone(),
        });
        let _ = writeln!(text, "{cluster} is drained: {named} goes to {}.", targets.collect::<Vec<_>>().join(", "));
    }
    if let Some((reason, message)) = &progress.report {
        let _ = writeln!(text, "{}: {message}", screen.strong(reason));
    }
    let head = ["NAMESPACE", "CITY", "STAGE", "DEPLOYMENTS", "TO", "SINCE", "NOTE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(places.iter().map(|place| {
        let since = place.since.map_or_else(|| "–".to_owned(), |since| age(since, progress.time));
        vec![
            place.namespace.clone(),
            place.city.clone(),
            place.stage.name().to_owned(),
            place.deployments.to_string(),
            place.to.clone().unwrap_or_else(|| "–".to_owned()),
            since,
            place.note.clone(),
        ]
    }));
    text.push_str(&screen.table(&rows));
    let _ = writeln!(text, "To end the drain: kubectl --context HUB annotate cluster {cluster} {}-", annotation::DRAIN);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn policy(namespace: &str, groups: &Value) -> PropagationPolicy {
        serde_json::from_value(json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "name": "city-dfw", "namespace": namespace },
            "spec": { "placement": { "clusterAffinities": groups } },
        }))
        .unwrap()
    }

    fn binding(namespace: &str, name: &str, cluster: &str) -> (String, BindingFacts) {
        let binding = json!({
            "metadata": {
                "name": name, "namespace": namespace,
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
            },
            "spec": { "resource": { "kind": "WorkloadDeployment", "name": name }, "clusters": [{ "name": cluster }] },
        });
        (namespace.to_owned(), BindingFacts::of(serde_json::from_value(binding).unwrap()))
    }

    fn group(name: &str, cluster: &str) -> Value {
        json!({ "affinityName": name, "clusterNames": [cluster] })
    }

    #[test]
    fn places_show_the_stage_of_each_namespace() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let requested = now.as_millisecond() - 130_000;
        let held = json!([group("city", "old"), group("holding", "old")]);
        let moves =
            json!([group(&format!("moving-{requested}"), "new"), group(&format!("holding-{requested}"), "old")]);
        let back = json!([
            group(&format!("moving-back-{requested}"), "old"),
            group(&format!("holding-back-{requested}"), "new")
        ]);
        let away = json!([group("city", "new"), group("holding", "new")]);
        let policies = [("ns-1", &held), ("ns-2", &moves), ("ns-3", &moves), ("ns-4", &back), ("ns-5", &away)];
        let policies = policies.map(|(namespace, groups)| policy(namespace, groups));
        let bindings = [
            binding("ns-1", "a", "old"),
            binding("ns-1", "b", "old"),
            binding("ns-2", "a", "old"),
            binding("ns-3", "a", "old"),
            binding("ns-3", "b", "new"),
            binding("ns-4", "a", "new"),
            binding("ns-5", "a", "new"),
        ];
        let progress = Progress {
            time: now,
            cluster: "old".to_owned(),
            targets: [("new".to_owned(), None)].into(),
            city: Some("dfw".to_owned()),
            places: places("old", &policies, &bindings, now),
            report: Some(("DrainWaiting".to_owned(), "the drain of dfw is not complete: new is not ready".to_owned())),
        };
        let expected = "\
old is drained: dfw goes to new.
DrainWaiting: the drain of dfw is not complete: new is not ready
NAMESPACE  CITY  STAGE      DEPLOYMENTS  TO   SINCE  NOTE
ns-1       dfw   held       2            –    –
ns-2       dfw   requested  1            new  2m10s
ns-3       dfw   moving     1            new  2m10s
ns-4       dfw   returning  0            old  2m10s
To end the drain: kubectl --context HUB annotate cluster old compute.datumapis.com/drain-
";
        assert_eq!(text(&progress, Screen::PLAIN), expected);
        assert_eq!(progress.exit(), Exit::InProgress);
        let failed = Progress { report: Some(("DrainFailed".to_owned(), String::new())), ..progress.clone() };
        assert_eq!(failed.exit(), Exit::Platform);
        let alone = Progress { targets: BTreeMap::new(), report: None, ..progress.clone() };
        assert!(
            text(&alone, Screen::PLAIN).starts_with("The drain of old waits: no other Cluster has the label of dfw.\n")
        );
        assert_eq!(alone.exit(), Exit::Platform);
        let done = Progress { places: Vec::new(), ..progress };
        assert_eq!(
            (text(&done, Screen::PLAIN).as_str(), done.exit()),
            ("Nothing of any city is on old.\n", Exit::Well)
        );
    }
}
