//! A drain to a cluster that cannot take the city loses nothing. The drain reports the obstacle, continues by itself if the end
//! of the obstacle is visible, and leaves nothing behind when it is cancelled.

use std::{collections::BTreeMap, time::Duration};

use crate::common::{
    ABSENT, RUNTIME, World, api, apply,
    beds::{Lent, Wish, alone},
    condition, delete, deployment, eventually,
    example_app::deploy,
    get, list, merge, ready,
};
use crate::watched::Watched;
use kube::{
    Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

const CITY: &str = "topology.datum.net/city-code";
const DRAIN: &str = "compute.datumapis.com/drain";

/// A reason why a cluster cannot take the city.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Obstacle {
    /// Cordoned: the scheduler refuses the cluster (fact 59).
    Taint,
    /// The label is missing.
    Label,
    /// The cluster does not serve deployments (fact 66).
    Api,
    /// Its API server is stopped.
    Away,
    /// A foreign object is already there under the name (fact 33).
    Conflict,
    /// No provider serves its Instances.
    Provider,
}

impl Obstacle {
    /// True if the scheduler accepts the cluster anyway, so that only the first namespace reveals the obstacle.
    fn is_unseen(self) -> bool {
        matches!(self, Self::Conflict | Self::Provider)
    }

    /// Returns words of the drain's report.
    pub fn told(self) -> &'static str {
        match self {
            Self::Taint => "has the taint maintenance:NoSchedule",
            Self::Label => "no other Cluster has the label of dfw",
            Self::Api => "does not serve WorkloadDeployments",
            Self::Away => "is not ready",
            Self::Conflict => "1 of 1 deployment(s) are not applied",
            Self::Provider => "none of 1 instance(s) is programmed",
        }
    }

    /// Creates or removes the obstacle.
    pub async fn set(self, stage: &mut Stage, there: bool) {
        let cluster = stage.to.cluster();
        let hub = stage.world.hub.clone();
        match self {
            Self::Taint => {
                let taints = json!([{ "key": "maintenance", "effect": "NoSchedule" }]);
                let taints = if there { taints } else { Value::Null };
                merge(&hub, "Cluster", "", &cluster, json!({ "spec": { "taints": taints } })).await;
            }
            Self::Label => label(&hub, &cluster, (!there).then_some("dfw")).await,
            Self::Api => stage.serve_deployments(!there).await,
            Self::Away => {
                let plane = stage.world.bed.cell_mut(stage.to.city()).unwrap();
                if there {
                    plane.stop_api_server();
                } else {
                    plane.start_api_server().unwrap();
                    plane.wait_ready().await.unwrap();
                }
                eventually("the Cluster reports it", || async {
                    let cluster = get(&hub, "Cluster", "", &cluster).await.ok_or("gone")?;
                    let told = condition(&cluster, "Ready");
                    let is_ready = told["status"] == "True";
                    if is_ready == there { Err(told.to_string()) } else { Ok(()) }
                })
                .await;
            }
            Self::Conflict => {
                for place in &stage.places.clone() {
                    let client = stage.client(stage.to);
                    if there {
                        apply(client, foreign(&place.hub, &place.deployment)).await;
                    } else {
                        delete(client, "WorkloadDeployment", &place.hub, &place.deployment).await;
                    }
                }
            }
            Self::Provider => stage.world.bed.serve_instances_of(stage.to.city(), !there).await.unwrap(),
        }
    }
}

/// Returns a foreign deployment without instances.
fn foreign(namespace: &str, name: &str) -> Value {
    let mut object = deployment(namespace, name, "dfw");
    object["spec"]["workloadRef"]["name"] = json!("theirs");
    object["spec"]["scaleSettings"]["minReplicas"] = json!(0);
    object
}

/// One of the two cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    Dfw,
    Ord,
}

impl Cell {
    fn city(self) -> &'static str {
        match self {
            Self::Dfw => "dfw",
            Self::Ord => "ord",
        }
    }

    pub fn cluster(self) -> String {
        format!("cell-{}", self.city())
    }
}

/// A namespace of the project with a deployment in the city.
#[derive(Clone)]
pub struct Place {
    pub ns: String,
    pub hub: String,
    deployment: String,
}

pub struct Stage {
    pub world: Lent<World>,
    pub places: Vec<Place>,
    watched: Vec<Watched>,
    pub from: Cell,
    pub to: Cell,
}

impl Stage {
    fn client(&self, cell: Cell) -> &Client {
        match cell {
            Cell::Dfw => &self.world.dfw,
            Cell::Ord => &self.world.ord,
        }
    }

    /// Returns the operator's objects in a cell with their uids, without foreign ones.
    pub async fn uids(&self, cell: Cell, place: &Place) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for kind in ["WorkloadDeployment", "Instance", "Secret"] {
            let objects = loop {
                match api(self.client(cell), kind, &place.hub).list(&ListParams::default()).await {
                    // A kind that is served again needs a moment to become ready.
                    Err(kube::Error::Api(status)) if status.code == 429 => {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    answer => break answer,
                }
            };
            let objects = match objects {
                Ok(objects) => objects.items,
                // The kind is not served, or the server is unavailable.
                Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                Err(kube::Error::HyperError(_) | kube::Error::Service(_)) => Vec::new(),
                Err(error) => panic!("{error}"),
            };
            for object in objects {
                if kind != "WorkloadDeployment" || object.data["spec"]["workloadRef"]["name"] != "theirs" {
                    found.insert(format!("{kind}/{}", object.name_any()), object.uid().unwrap());
                }
            }
        }
        found
    }

    pub async fn all(&self, cell: Cell) -> Vec<BTreeMap<String, String>> {
        let mut all = Vec::new();
        for place in &self.places {
            all.push(self.uids(cell, place).await);
        }
        all
    }

    pub async fn drain(&self, on: bool) {
        let value = if on { json!("true") } else { Value::Null };
        let patch = json!({ "metadata": { "annotations": { DRAIN: value } } });
        merge(&self.world.hub, "Cluster", "", &self.from.cluster(), patch).await;
    }

    /// Waits until the gauge counts one drain in this state, or none.
    pub async fn state(&self, state: Option<&str>) {
        eventually(&format!("the gauge has {state:?}"), || async {
            let text = self.world.operators[0].metrics().await.map_err(|error| error.to_string())?;
            let drains: Vec<&str> =
                text.lines().filter(|line| line.starts_with("compute_federation_drains{")).collect();
            let counts = |line: &&&str| line.ends_with(" 1");
            let after = |line: &&str| line.split_once("state=\"").map(|(_, rest)| rest.to_owned());
            let in_one = drains.iter().find(counts).and_then(after);
            let in_one = in_one.as_deref().and_then(|rest| rest.split('"').next());
            if in_one == state { Ok(()) } else { Err(format!("{drains:?}")) }
        })
        .await;
    }

    /// Waits until everything is on one cluster, with a guard of only its name and the label.
    pub async fn settled(&self, on: Cell, off: Cell) {
        let cluster = on.cluster();
        eventually(&format!("everything is on {cluster}"), || async {
            for place in &self.places {
                let (here, there) = (self.uids(on, place).await, self.uids(off, place).await);
                if here.len() != 3 || !there.is_empty() {
                    let how = self.how(place).await;
                    return Err(format!("{here:?} {there:?}: {how}"));
                }
                let policy =
                    get(&self.world.hub, "PropagationPolicy", &place.hub, "city-dfw").await.ok_or("no policy")?;
                let placement = &policy.data["spec"]["placement"];
                let label = json!({ "matchLabels": { CITY: "dfw" } });
                let wanted = json!({ "clusterAffinities": [
                    { "affinityName": "city", "clusterNames": [cluster], "labelSelector": label },
                    { "affinityName": "holding", "clusterNames": [cluster] },
                ] });
                if *placement != wanted {
                    return Err(placement.to_string());
                }
            }
            Ok(())
        })
        .await;
        for place in &self.places {
            ready(&self.world, &place.ns, "web", 1).await;
        }
    }

    /// Returns the state of one place on the hub: the placement of its policy, and the result of the scheduler.
    async fn how(&self, place: &Place) -> String {
        let name = format!("{}-workloaddeployment", place.deployment);
        let policy = get(&self.world.hub, "PropagationPolicy", &place.hub, "city-dfw").await;
        let binding = get(&self.world.hub, "ResourceBinding", &place.hub, &name).await;
        let policy = policy.map(|policy| policy.data["spec"]["placement"].to_string());
        let binding = binding.map(|binding| format!("{:?} {}", binding.annotations(), binding.data));
        format!("policy {policy:?}, binding {binding:?}")
    }

    /// Serves deployments in the new cell, or stops serving them.
    async fn serve_deployments(&self, served: bool) {
        let definitions = api(self.client(self.to), "CustomResourceDefinition", "");
        let name = "workloaddeployments.compute.datumapis.com";
        let mut definition = definitions.get(name).await.unwrap();
        definition.data["spec"]["versions"][0]["served"] = json!(served);
        definitions.replace(name, &PostParams::default(), &definition).await.unwrap();
        eventually("the Cluster reports it", || async {
            let cluster = get(&self.world.hub, "Cluster", "", &self.to.cluster()).await.ok_or("gone")?;
            let found = cluster.data["status"]["apiEnablements"].to_string().contains("WorkloadDeployment");
            if found == served { Ok(()) } else { Err(format!("served: {found}")) }
        })
        .await;
    }

    /// Waits until an Event on the old cluster reports the reason.
    pub async fn reported_on_the_cluster(&self, reason: &str, why: &str) {
        eventually(&format!("{reason} is reported on the Cluster: {why}"), || async {
            let events = list(&self.world.hub, "Event", "default").await;
            let said = events.iter().filter(|event| event.data["reason"] == reason);
            let said: Vec<&str> = said.filter_map(|event| event.data["note"].as_str()).collect();
            if said.iter().any(|note| note.contains(why)) { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
    }

    /// Waits until every deployment reports why it has not moved.
    async fn reported_on_deployments(&self, why: &str) {
        for place in &self.places {
            eventually("the deployment reports the reason of the delay", || async {
                let wd = get(&self.world.project, "WorkloadDeployment", &place.ns, &place.deployment).await;
                let told = condition(&wd.ok_or("no deployment")?, "Federated");
                let message = told["message"].as_str().unwrap_or_default();
                let waits = told["status"] == "True" && told["reason"] == "DrainWaiting" && message.contains(why);
                if waits { Ok(()) } else { Err(told.to_string()) }
            })
            .await;
        }
    }

    /// Starts a drain with the obstacle. Asserts that everything stays or returns, and that the obstacle is reported.
    async fn is_held_up_by(&self, obstacle: Obstacle) {
        let before = self.all(self.from).await;
        self.drain(true).await;
        if obstacle.is_unseen() {
            self.reported_on_the_cluster("DrainFailed", obstacle.told()).await;
            self.state(Some("failed")).await;
            self.settled(self.from, self.to).await;
            let after = self.all(self.from).await;
            let kept = before.iter().zip(&after).filter(|(before, after)| before == after).count();
            assert_eq!(kept, before.len() - 1, "one namespace went first, and no other: {before:?} {after:?}");
        } else {
            self.reported_on_the_cluster("DrainWaiting", obstacle.told()).await;
            self.state(Some("waiting")).await;
            self.reported_on_deployments(obstacle.told()).await;
            tokio::time::sleep(ABSENT).await; // the test checks that nothing happens in this time
            assert_eq!(self.all(self.from).await, before, "nothing has moved");
        }
    }

    /// Tests one obstacle: the drain is cancelled, requested again, and then completes, which moves the city.
    async fn meets(&mut self, obstacle: Obstacle) {
        eprintln!("{obstacle:?}, from {:?} to {:?}", self.from, self.to);
        obstacle.set(self, true).await;
        self.is_held_up_by(obstacle).await;
        let before = self.all(self.from).await;
        self.drain(false).await;
        self.state(None).await;
        self.settled(self.from, self.to).await;
        assert_eq!(self.all(self.from).await, before, "called off, everything stays where it is");
        if obstacle.is_unseen() {
            obstacle.set(self, false).await;
            self.drain(true).await;
        } else {
            self.drain(true).await;
            self.state(Some("waiting")).await;
            obstacle.set(self, false).await;
        }
        self.settled(self.to, self.from).await;
        self.state(None).await;
        self.reported_on_the_cluster("DrainEnded", "the drain of dfw has ended").await;
        self.drain(false).await;
        self.watched.iter().for_each(Watched::was_in_order);
        std::mem::swap(&mut self.from, &mut self.to);
    }
}

async fn label(hub: &Client, cluster: &str, city: Option<&str>) {
    merge(hub, "Cluster", "", cluster, json!({ "metadata": { "labels": { CITY: city } } })).await;
}

/// Runs the city on `dfw` in this many namespaces, each with one instance and its Secret. A move may take `arrival` seconds.
pub async fn stage(namespaces: usize, arrival: u64) -> Stage {
    // Real Karmada is slower, also for a successful move. After the return of a member it is blind for up to a minute more,
    // because its informers back off (fact 80). An object that Karmada returns to it in that time stays there.
    let arrival = if std::env::var_os("KARMADA_BIN").is_some() { arrival.max(75) } else { arrival };
    let management = format!("timing:\n  arrivalSeconds: {arrival}\n  pollSeconds: 0.5\n");
    let world = alone(Wish { management, ..Wish::default() }).await;
    let mut places = Vec::new();
    for _ in 0..namespaces {
        let (ns, hub) = world.namespace("drained").await;
        deploy(&world, &ns, &["dfw"]).await;
        ready(&world, &ns, "web", 1).await;
        places.push(Place { ns, hub, deployment: "web-p-dfw".into() });
    }
    let watched = |place: &Place| Watched::open(&world.hub, &[&world.dfw, &world.ord], &place.hub);
    let watched = places.iter().map(watched).collect();
    let stage = Stage { world, places, watched, from: Cell::Dfw, to: Cell::Ord };
    stage.settled(Cell::Dfw, Cell::Ord).await;
    label(&stage.world.hub, "cell-ord", Some("dfw")).await;
    stage
}

#[test]
fn drain_with_an_obstacle_loses_nothing_reports_and_continues() {
    RUNTIME.block_on(async {
        let mut stage = Box::pin(stage(2, 20)).await;
        // `Away` is last: after the return of a member, Karmada's cache may miss objects, which then stay there (fact 80).
        let obstacles =
            [Obstacle::Taint, Obstacle::Label, Obstacle::Api, Obstacle::Conflict, Obstacle::Provider, Obstacle::Away];
        for obstacle in obstacles {
            tokio::time::timeout(Duration::from_mins(5), stage.meets(obstacle)).await.unwrap();
        }
    });
}

#[test]
fn drain_of_a_dead_manager_is_continued_by_the_next_one() {
    RUNTIME.block_on(async {
        // With only one namespace, nothing on the old cluster indicates the drain.
        let mut stage = Box::pin(stage(1, 20)).await;
        Obstacle::Provider.set(&mut stage, true).await;
        stage.drain(true).await;
        eventually("it is on the new cluster", || async {
            let there = stage.uids(stage.to, &stage.places[0]).await;
            if there.is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
        stage.world.restart_manager(&[]).await;
        stage.reported_on_the_cluster("DrainFailed", Obstacle::Provider.told()).await;
        stage.state(Some("failed")).await;
        stage.settled(stage.from, stage.to).await;
    });
}
