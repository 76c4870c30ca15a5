//! Properties of a city that moves between clusters: in every history nothing of it is lost or runs twice, one namespace goes
//! first, and a drain ends on the other cluster or is reported.
//!
//! The scheduler is a model of Karmada's (facts 42, 46 to 48, 59, 64). The manager looks at the present, dies after any write,
//! and comes back without its memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use compute_operator::{
    api::{
        karmada::{Cluster, PropagationPolicy, ResourceBinding},
        meta::{annotation, label},
    },
    plan::{
        Kind,
        management::observed::{cluster::ClusterFacts, facts::BindingFacts},
    },
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::city_manager::Manager;
use super::model::Model;

pub const CITY: &str = "dfw";
const CLUSTERS: [&str; 3] = ["a", "b", "c"];
pub const NAMESPACES: usize = 3;

pub fn namespace(n: usize) -> String {
    format!("ns-00000000-0000-0000-0000-00000000000{n}")
}

/// A member cluster.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
struct Member {
    has_label: bool,
    is_drained: bool,
    is_tainted: bool,
    /// True if Instances start there.
    runs: bool,
}

/// Karmada's binding of a namespace's only deployment.
#[derive(Clone, Debug, Default)]
struct Binding {
    placement: Value,
    /// The placement that the scheduler has applied.
    applied: Value,
    /// Name of the affinity group that the scheduler took.
    group: String,
    on: Vec<String>,
    /// The clusters on which an Instance runs, as far as Karmada has reported.
    running: BTreeSet<String>,
    /// True if an Instance runs on the cluster, or did before, or none ran where it was sent from.
    is_proved: bool,
    /// True if no Instance ran at some time since the namespace was at rest.
    was_down: bool,
}

#[derive(Clone, Debug)]
pub struct City {
    pub now: Timestamp,
    members: BTreeMap<String, Member>,
    pub hub: Model,
    bindings: Vec<Binding>,
    manager: Manager,
    /// True once the scheduler has been away for longer than a namespace waits for it.
    was_delayed: bool,
    unscheduled_since: Timestamp,
    /// Clusters to which something was sent in vain since people last changed anything.
    in_vain: BTreeSet<String>,
}

/// One change by people or by chance.
#[derive(Clone, Debug)]
pub enum Change {
    Drain(usize, bool),
    Label(usize, bool),
    Taint(usize, bool),
    Runs(usize, bool),
}

#[derive(Clone, Debug)]
pub enum Event {
    /// The manager looks once at everything, and dies after so many writes.
    Manager {
        writes: usize,
    },
    /// Another manager takes over.
    Restart,
    /// Karmada schedules what has changed, and reports what runs.
    Karmada,
    Wait {
        minutes: i64,
    },
    Change(Change),
}

/// Cordons and lost labels do not come together: a namespace that no group takes loses everything (fact 42).
fn change(cordons: bool) -> impl Strategy<Value = Change> {
    let cluster = || 0..CLUSTERS.len();
    let kept = if cordons {
        (cluster(), any::<bool>()).prop_map(|(cluster, on)| Change::Taint(cluster, on)).boxed()
    } else {
        (cluster(), any::<bool>()).prop_map(|(cluster, on)| Change::Label(cluster, on)).boxed()
    };
    prop_oneof![
        3 => (cluster(), any::<bool>()).prop_map(|(cluster, on)| Change::Drain(cluster, on)),
        2 => (cluster(), any::<bool>()).prop_map(|(cluster, on)| Change::Runs(cluster, on)),
        2 => kept,
    ]
}

fn history() -> impl Strategy<Value = Vec<Event>> {
    any::<bool>().prop_flat_map(|cordons| {
        let event = prop_oneof![
            6 => prop_oneof![3 => Just(usize::MAX), 1 => 0..3_usize].prop_map(|writes| Event::Manager { writes }),
            5 => Just(Event::Karmada),
            4 => (1..8_i64).prop_map(|minutes| Event::Wait { minutes }),
            2 => change(cordons).prop_map(Event::Change),
            1 => Just(Event::Restart),
        ];
        proptest::collection::vec(event, 0..80)
    })
}

impl City {
    fn new() -> Self {
        static SETTLED: LazyLock<City> = LazyLock::new(City::settled);
        SETTLED.clone()
    }

    /// Everything runs on `a`, and `b` carries the label as well.
    fn settled() -> Self {
        let member = |has_label| Member { has_label, is_drained: false, is_tainted: false, runs: true };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut city = Self {
            now,
            members: [("a", true), ("b", false), ("c", false)].map(|(name, has)| (name.to_owned(), member(has))).into(),
            hub: Model::default(),
            bindings: vec![Binding::default(); NAMESPACES],
            manager: Manager::default(),
            was_delayed: false,
            unscheduled_since: now,
            in_vain: BTreeSet::new(),
        };
        city.settle();
        city.members.get_mut("b").unwrap().has_label = true;
        city.settle();
        city
    }

    pub fn policy(&self, n: usize) -> Option<PropagationPolicy> {
        self.hub.get(Kind::PropagationPolicy, &namespace(n), &format!("city-{CITY}"))
    }

    pub fn clusters(&self) -> BTreeMap<String, ClusterFacts> {
        self.members.iter().map(|(name, member)| (name.clone(), member.facts(name))).collect()
    }

    /// What the operator's cache keeps of a namespace's binding.
    pub fn facts(&self, n: usize) -> Option<BindingFacts> {
        let binding = &self.bindings[n];
        if binding.placement.is_null() {
            return None;
        }
        let of_cluster = |name: &String| {
            let current = i32::from(binding.running.contains(name));
            json!({ "clusterName": name, "applied": true, "status": { "desiredReplicas": 1, "currentReplicas": current } })
        };
        let mut annotations = json!({ annotation::POLICY_NAME: format!("city-{CITY}") });
        if !binding.applied.is_null() {
            annotations[annotation::APPLIED_PLACEMENT] = json!(binding.applied.to_string());
        }
        let binding: ResourceBinding = serde_json::from_value(json!({
            "metadata": {
                "name": "web-workloaddeployment", "namespace": namespace(n), "uid": format!("b-{n}"),
                "resourceVersion": "1", "annotations": annotations,
            },
            "spec": {
                "resource": { "kind": "WorkloadDeployment", "name": "web" }, "placement": binding.placement,
                "clusters": binding.on.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
            },
            "status": { "aggregatedStatus": binding.on.iter().map(of_cluster).collect::<Vec<_>>() },
        }))
        .unwrap();
        Some(BindingFacts::of(binding))
    }

    fn play(&mut self, event: &Event) {
        match event {
            Event::Manager { writes } => {
                self.act(*writes);
            }
            Event::Restart => self.manager = Manager::default(),
            Event::Karmada => self.karmada(),
            Event::Wait { minutes } => {
                self.now += SignedDuration::from_mins(*minutes);
                self.was_delayed |= self.now.duration_since(self.unscheduled_since) > SignedDuration::from_mins(8);
            }
            Event::Change(change) => {
                self.in_vain.clear();
                self.change(change);
            }
        }
        self.check_always();
    }

    fn change(&mut self, change: &Change) {
        let n = match *change {
            Change::Drain(n, _) | Change::Label(n, _) | Change::Taint(n, _) | Change::Runs(n, _) => n,
        };
        let member = self.members.get_mut(CLUSTERS[n]).unwrap();
        let was_drained = member.is_drained;
        match *change {
            Change::Drain(_, on) => member.is_drained = on,
            Change::Label(_, on) => member.has_label = on,
            Change::Taint(_, on) => member.is_tainted = on,
            Change::Runs(_, on) => member.runs = on,
        }
        if was_drained && !member.is_drained {
            // What has moved stays where it is.
            self.bindings.iter_mut().for_each(|binding| binding.is_proved = true);
            self.manager.drain_is_recalled(CLUSTERS[n], self.now);
        }
    }

    /// The manager looks once; returns how many writes changed anything.
    fn act(&mut self, writes: usize) -> usize {
        let mut manager = std::mem::take(&mut self.manager);
        let returning = self.returning();
        let mut left = writes;
        let mut changed = 0;
        manager.look(self);
        'namespaces: for n in 0..NAMESPACES {
            for write in manager.decide(self, n) {
                if left == 0 {
                    manager = Manager::default();
                    break 'namespaces;
                }
                left -= 1;
                match self.hub.execute(&write) {
                    Ok(has_changed) => changed += usize::from(has_changed && write.object.kind != Kind::Event),
                    Err(_) => break,
                }
            }
        }
        self.manager = manager;
        // It counts from the decision: Karmada may carry that out after people have changed something.
        let new = self.returning().into_iter().filter(|(n, _)| !returning.contains_key(n));
        self.in_vain.extend(new.flat_map(|(_, from)| from));
        changed
    }

    /// The namespaces that are to return, each with the clusters that it returns from.
    fn returning(&self) -> BTreeMap<usize, Vec<String>> {
        let groups = (0..NAMESPACES).filter_map(|n| Some((n, self.groups(n)?)));
        let returning = groups.filter(|(_, [first, _])| first.0.starts_with("moving-back-"));
        returning.map(|(n, [_, second])| (n, second.1)).collect()
    }

    /// The detector brings each policy's placement to its binding, the scheduler chooses clusters, and cells report.
    fn karmada(&mut self) {
        self.unscheduled_since = self.now;
        for n in 0..NAMESPACES {
            let Some(policy) = self.policy(n) else { continue };
            let placement = json!(policy.spec.placement);
            let before = self.bindings[n].on.clone();
            let (group, on) = self.schedule(&placement, &self.bindings[n]);
            assert!(!on.is_empty() || before.is_empty(), "{n} is lost: {placement} {:?}", self.members);
            let binding = &mut self.bindings[n];
            (binding.placement, binding.applied) = (placement.clone(), placement);
            if on != before && !before.is_empty() {
                let is_sent = group.starts_with("moving-") && !group.starts_with("moving-back-");
                assert!(!is_sent || !self.in_vain.contains(&on[0]), "{n} is sent to {on:?} in vain once more");
                binding.is_proved = !is_sent || binding.was_down;
            }
            (binding.group, binding.on) = (group, on);
        }
        for binding in &mut self.bindings {
            let runs = |name: &&String| self.members[*name].runs;
            binding.running = binding.on.iter().filter(runs).cloned().collect();
            let (is_down, moves) = (binding.running.is_empty(), binding.applied.to_string().contains("moving-"));
            binding.is_proved |= !is_down;
            binding.was_down = is_down || moves && binding.was_down;
        }
    }

    fn schedule(&self, placement: &Value, binding: &Binding) -> (String, Vec<String>) {
        let single = [json!({ "affinityName": "" })];
        let groups = placement["clusterAffinities"].as_array().map_or(&single[..], Vec::as_slice);
        let from = groups.iter().position(|group| group["affinityName"] == json!(binding.group)).unwrap_or(0);
        for group in &groups[from..] {
            let affinity = if placement["clusterAffinities"].is_null() { &placement["clusterAffinity"] } else { group };
            let fits = |(name, member): &(&String, &Member)| {
                let named =
                    affinity["clusterNames"].as_array().is_none_or(|all| all.is_empty() || all.contains(&json!(name)));
                let labelled = affinity["labelSelector"].is_null() || member.has_label;
                named && labelled && (binding.on.contains(name) || !member.is_tainted)
            };
            let on: Vec<String> = self.members.iter().filter(fits).map(|(name, _)| name.clone()).collect();
            if !on.is_empty() {
                return (group["affinityName"].as_str().unwrap().to_owned(), on);
            }
        }
        (binding.group.clone(), Vec::new())
    }

    /// The clusters to which the policy of a namespace sends it: the first group's, and the second's.
    fn groups(&self, n: usize) -> Option<[(String, Vec<String>); 2]> {
        let terms = self.policy(n)?.spec.placement.cluster_affinities?;
        let [first, second] = &terms[..] else { panic!("two groups: {terms:?}") };
        Some([first, second].map(|term| (term.affinity_name.clone(), term.group.cluster_names.clone())))
    }

    fn check_always(&self) {
        for n in 0..NAMESPACES {
            let Some([first, second]) = self.groups(n) else { continue };
            assert!(first.1.len() == 1 && second.1.len() == 1, "each group names one cluster: {first:?} {second:?}");
        }
        let unproved = self.bindings.iter().filter(|of| !of.is_proved).count();
        let proved = |binding: &Binding| self.bindings.iter().any(|other| other.on == binding.on && other.is_proved);
        let is_first = self.bindings.iter().filter(|of| !of.is_proved).all(|of| !proved(of));
        assert!(self.was_delayed || !is_first || unproved <= 1, "one namespace goes first: {:?}", self.bindings);
    }

    /// What was sent and is not seen to run has the old cluster behind the new one.
    fn check_way_back(&self) {
        for n in 0..NAMESPACES {
            let (Some([first, second]), binding) = (self.groups(n), &self.bindings[n]) else { continue };
            let is_sent = binding.group.starts_with("moving-") && !binding.group.starts_with("moving-back-");
            if is_sent && !binding.is_proved && first.1 == binding.on {
                assert_eq!(second.1, ["a"], "{n} has a way back until it is proved");
            }
        }
    }

    /// Everybody acts until nothing changes; for as long as a drain may take.
    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..200 {
            self.karmada();
            quiet = if self.act(usize::MAX) == 0 { quiet + 1 } else { 0 };
            // Longer than anything is waited for.
            if quiet > 5 {
                return;
            }
            self.now += SignedDuration::from_mins(5);
        }
        panic!(
            "it does not settle: {:?} {:?}",
            self.bindings,
            (0..NAMESPACES).map(|n| self.groups(n)).collect::<Vec<_>>()
        );
    }

    /// People mend everything, and ask for each drain anew.
    fn mend(&mut self) {
        for (n, name) in CLUSTERS.into_iter().enumerate() {
            let is_drained = self.members[name].is_drained;
            for change in
                [Change::Label(n, n < 2), Change::Taint(n, false), Change::Runs(n, true), Change::Drain(n, false)]
            {
                self.change(&change);
            }
            self.act(usize::MAX);
            self.change(&Change::Drain(n, is_drained));
        }
        self.in_vain.clear();
        self.was_delayed = true;
    }

    fn check_end(&mut self) {
        self.mend();
        self.settle();
        let usable = |name: &str| self.members[name].has_label && !self.members[name].is_drained;
        let is_possible = CLUSTERS.into_iter().any(usable);
        for n in 0..NAMESPACES {
            let [on] = &self.bindings[n].on[..] else { panic!("{n} runs twice: {:?}", self.bindings[n]) };
            assert!(!is_possible || !self.members[on].is_drained, "{n} has not left {on}: {:?}", self.members);
            let policy = self.policy(n).unwrap();
            let names: Vec<String> = self.groups(n).unwrap().map(|(name, _)| name).into();
            assert_eq!(names, ["city", "holding"], "nothing is left of a move");
            let left: Vec<_> = policy.annotations().keys().filter(|key| key.contains("drain")).collect();
            assert!(!is_possible || left.is_empty(), "nothing is remembered of a move: {left:?}");
        }
    }
}

impl Member {
    fn facts(&self, name: &str) -> ClusterFacts {
        let labels = if self.has_label { json!({ label::TOPOLOGY_CITY: CITY }) } else { json!({}) };
        let taints = if self.is_tainted { json!([{ "key": "k", "effect": "NoSchedule" }]) } else { json!([]) };
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": labels, "generation": 1,
                "annotations": { annotation::DRAIN: self.is_drained.to_string() },
            },
            "spec": { "id": name, "taints": taints },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "apiEnablements": [{
                    "groupVersion": "compute.datumapis.com/v1alpha", "resources": [{ "kind": "WorkloadDeployment" }],
                }],
            },
        }))
        .unwrap();
        ClusterFacts::of(cluster)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("CONVERGE_CASES").is_some() { 5_000 } else { 100 },
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn city_every_history_of_drains_ends_in_one_place_and_loses_nothing(events in history()) {
        let mut city = City::new();
        for event in &events {
            city.play(event);
        }
        city.check_end();
    }
}

#[test]
fn city_with_death_after_any_write_moves_as_a_whole() {
    for writes in 0..30 {
        let mut city = City::new();
        city.play(&Event::Change(Change::Drain(0, true)));
        for _ in 0..4 {
            city.play(&Event::Manager { writes });
            city.play(&Event::Karmada);
        }
        city.check_end();
        assert!(city.bindings.iter().all(|binding| binding.on == ["b"]), "{:?}", city.bindings);
    }
}

/// Nothing runs on the new cluster: one namespace goes there, keeps its way back, and returns; wherever the manager dies.
#[test]
fn city_with_death_after_any_write_keeps_its_way_back_until_it_runs() {
    for writes in 0..10 {
        let mut city = City::new();
        city.play(&Event::Change(Change::Runs(1, false)));
        city.play(&Event::Change(Change::Drain(0, true)));
        for _ in 0..12 {
            for event in [Event::Manager { writes }, Event::Karmada, Event::Wait { minutes: 2 }] {
                city.play(&event);
                city.check_way_back();
            }
        }
        city.check_end();
    }
}
