//! `tree`: all objects of a Workload on all control planes, by owner and by derivation.

use std::{collections::BTreeSet, fmt::Write as _, io::Write};

use clap::Args as ClapArgs;
use compute_operator::{
    api::{
        compute::{ConditionStatus, WorkloadDeployment},
        meta::{annotation, condition},
        names::{self, CityCode},
        referenced::DataRef,
    },
    plan::{
        condition::find,
        references::{annotated, references},
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    events::unseen,
    exit::Exit,
    flags,
    inventory::{Entry, HUB, Inventory, PROJECT, Unseen},
    output::Output,
    planes::Planes,
    screen::Screen,
    target::Target,
};

/// Arguments of `tree`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The object: `workload/NAME`, or the kind and the name as two words.
    #[arg(value_name = "KIND/NAME", num_args = 1..=2, required = true)]
    pub object: Vec<String>,
}

/// An object with those that were made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// The control plane.
    pub plane: String,
    /// Kind.
    pub kind: String,
    /// Namespace. Empty for an object without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// What it says of itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Objects that it owns, or that were made of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
}

/// All objects of a Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// Context of the project.
    pub context: String,
    /// Namespace in the project.
    pub namespace: String,
    /// The Workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Node>,
    /// Objects that belong to no deployment of the Workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unowned: Vec<Node>,
    /// Number of different objects.
    pub objects: usize,
    /// The control planes that they are on.
    pub planes: Vec<String>,
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
    let name = Target::workload(&args.object)?;
    let planes = Planes::of(global).await?;
    let inventory = Inventory::read(&planes, &Target::Workload(name.clone()), false, Timestamp::now()).await;
    let tree = Tree::of(&inventory);
    if tree.workload.is_none() && tree.unseen.iter().all(|one| one.plane != PROJECT) {
        return Err((Exit::CouldNotAsk, format!("Workload {}/{name} does not exist", planes.namespace)));
    }
    output.print(out, &tree, |screen| tree.text(screen))?;
    Ok(if tree.workload.is_none() { Exit::CouldNotAsk } else { Exit::Well })
}

/// Puts the objects in their places.
struct Builder<'a> {
    inventory: &'a Inventory,
    /// Objects that have a place.
    placed: BTreeSet<(&'a str, &'a str)>,
}

impl Tree {
    /// Makes the tree of the objects.
    pub fn of(inventory: &Inventory) -> Self {
        let mut builder = Builder { inventory, placed: BTreeSet::new() };
        let workload = inventory.objects.iter().find(|entry| entry.plane == PROJECT && entry.kind() == "Workload");
        let workload = workload.map(|entry| {
            let mut node = builder.node(entry, String::new());
            node.children = builder.deployments();
            node
        });
        let is_placed = |entry: &&Entry| !builder.placed.contains(&(&*entry.plane, entry.uid()));
        let is_frame = |entry: &Entry| ["Namespace", "Cluster", "NetworkContext"].contains(&entry.kind());
        let left = inventory.objects.iter().filter(is_placed);
        let unowned: Vec<Node> =
            left.filter(|entry| !is_frame(entry)).map(|entry| plain(entry, String::new())).collect();
        Self {
            context: inventory.context.clone(),
            namespace: inventory.namespace.clone(),
            workload,
            objects: builder.placed.len() + unowned.len(),
            unowned,
            planes: inventory.planes().into_iter().map(str::to_owned).collect(),
            unseen: inventory.unseen.clone(),
        }
    }

    /// Returns the text.
    pub fn text(&self, screen: Screen) -> String {
        let mut text = String::new();
        if let Some(workload) = &self.workload {
            let project = if self.context.is_empty() { String::new() } else { format!("  project {}", self.context) };
            let name = format!("Workload {}/{}", self.namespace, workload.name);
            let _ = writeln!(text, "{}{project}", screen.strong(&name));
            branches(&workload.children, PROJECT, "", screen, &mut text);
        }
        if !self.unowned.is_empty() {
            text.push_str("Of no deployment of this Workload:\n");
            branches(&self.unowned, "", "", screen, &mut text);
        }
        let (objects, planes, unowned) = (self.objects, self.planes.len(), self.unowned.len());
        let _ = writeln!(text, "{objects} objects on {planes} control planes · {unowned} without an owner");
        text.push_str(&unseen(&self.unseen, screen));
        text
    }
}

/// Writes nodes as branches. A node that is not on the plane of its parent names its own.
fn branches(nodes: &[Node], plane: &str, indent: &str, screen: Screen, text: &mut String) {
    for (index, node) in nodes.iter().enumerate() {
        let last = index + 1 == nodes.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let at = if node.plane == plane { String::new() } else { format!("{} ", screen.strong(&node.plane)) };
        let name = match (node.plane == PROJECT, node.namespace.is_empty()) {
            (false, false) if node.plane != plane => format!("{}/{}", node.namespace, node.name),
            _ if node.kind == "Work" => format!("{}/{}", node.namespace, node.name),
            _ => node.name.clone(),
        };
        let note = if node.note.is_empty() { String::new() } else { format!("  {}", node.note) };
        let _ = writeln!(text, "{indent}{branch}{at}{} {name}{note}", node.kind);
        branches(&node.children, &node.plane, &format!("{indent}{below}"), screen, text);
    }
}

fn plain(entry: &Entry, note: String) -> Node {
    Node {
        plane: entry.plane.clone(),
        kind: entry.kind().to_owned(),
        namespace: entry.namespace().to_owned(),
        name: entry.name().to_owned(),
        uid: entry.uid().to_owned(),
        note,
        children: Vec::new(),
    }
}

impl<'a> Builder<'a> {
    fn node(&mut self, entry: &'a Entry, note: String) -> Node {
        self.placed.insert((&entry.plane, entry.uid()));
        let deleted = !entry.text("/metadata/deletionTimestamp").is_empty();
        let note = match (note.is_empty(), deleted) {
            (_, false) => note,
            (true, true) => "terminating".to_owned(),
            (false, true) => format!("{note}, terminating"),
        };
        plain(entry, note)
    }

    fn all(&self, plane: &str, kind: &str) -> Vec<&'a Entry> {
        let own = self.inventory.objects.iter().filter(|entry| entry.plane == plane && entry.kind() == kind);
        let mut own: Vec<&Entry> = own.collect();
        own.sort_by(|one, two| {
            names::instance_ordinal(one.name())
                .cmp(&names::instance_ordinal(two.name()))
                .then_with(|| one.name().cmp(two.name()))
        });
        own
    }

    fn find(&self, plane: &str, kind: &str, name: &str) -> Option<&'a Entry> {
        self.inventory.objects.iter().find(|entry| entry.plane == plane && entry.kind() == kind && entry.name() == name)
    }

    fn deployments(&mut self) -> Vec<Node> {
        let all = self.all(PROJECT, "WorkloadDeployment");
        all.into_iter().map(|entry| self.deployment(entry)).collect()
    }

    fn deployment(&mut self, entry: &'a Entry) -> Node {
        let typed: Option<WorkloadDeployment> = serde_json::from_value(entry.object.clone()).ok();
        let mut node = self.node(entry, typed.as_ref().map(state).unwrap_or_default());
        let mut data: BTreeSet<DataRef> = BTreeSet::new();
        if let Some(typed) = &typed {
            data.extend(references(&typed.spec.template.spec).into_iter().map(|reference| reference.data_ref));
            data.extend(annotated(typed, annotation::EXPECTED_REFERENCED_DATA));
        }
        for source in &data {
            if let Some(found) = self.find(PROJECT, source.kind.as_str(), &source.name) {
                let words = format!("source, resourceVersion {}", found.text("/metadata/resourceVersion"));
                node.children.push(self.node(found, words));
            }
        }
        node.children.extend(self.instances(PROJECT, entry.name()));
        let clusters = self
            .find(HUB, "ResourceBinding", &names::deployment_binding(entry.name()))
            .map(Entry::clusters)
            .unwrap_or_default();
        if let Some(copy) = self.find(HUB, "WorkloadDeployment", entry.name()) {
            let city = typed.as_ref().and_then(|typed| CityCode::parse(&typed.spec.city_code).ok());
            let mut hub = self.node(copy, String::new());
            hub.children = self.on_hub(copy, city.as_ref(), &data);
            node.children.push(hub);
        }
        for cluster in &clusters {
            if let Some(on_cell) = self.find(cluster, "WorkloadDeployment", entry.name()) {
                let mut cell = self.node(on_cell, String::new());
                cell.children = self.on_cell(on_cell, &data);
                node.children.push(cell);
            }
        }
        node
    }

    fn instances(&mut self, plane: &str, deployment: &str) -> Vec<Node> {
        let all = self.all(plane, "Instance");
        let own = all.into_iter().filter(|entry| names::deployment_of_instance(entry.name()) == Some(deployment));
        let own: Vec<&Entry> = own.collect();
        own.into_iter().map(|entry| self.instance(entry)).collect()
    }

    /// Returns an Instance. A cell makes the claim of its Instance in the project.
    fn instance(&mut self, entry: &'a Entry) -> Node {
        let mut node = self.node(entry, ready(entry));
        if entry.plane != PROJECT && entry.plane != HUB {
            let claim = self.find(PROJECT, "ResourceClaim", &names::resource_claim_name(entry.name()));
            node.children.extend(claim.map(|claim| self.node(claim, granted(claim))));
        }
        node
    }

    fn on_hub(&mut self, copy: &'a Entry, city: Option<&CityCode>, data: &BTreeSet<DataRef>) -> Vec<Node> {
        let mut nodes = Vec::new();
        let policy = city.and_then(|city| self.find(HUB, "PropagationPolicy", &city.policy_name()));
        nodes.extend(policy.map(|policy| self.node(policy, String::new())));
        nodes.extend(self.binding(&names::deployment_binding(copy.name())));
        for source in data {
            let kind = source.kind.as_str();
            if let Some(companion) = self.find(HUB, kind, &source.name) {
                let from = self.find(PROJECT, kind, &source.name);
                let version = from.map_or("", |from| from.text("/metadata/resourceVersion"));
                let words = match from {
                    Some(from) => format!("<- {}/{} (resourceVersion {version})", from.namespace(), from.name()),
                    None => "its source is not there".to_owned(),
                };
                let mut node = self.node(companion, words);
                node.children.extend(self.binding(&names::binding_name(kind, &source.name)));
                nodes.push(node);
            }
        }
        nodes.extend(self.instances(HUB, copy.name()));
        nodes
    }

    fn binding(&mut self, name: &str) -> Option<Node> {
        let binding = self.find(HUB, "ResourceBinding", name)?;
        let clusters: Vec<String> = binding.clusters().into_iter().collect();
        let target = if clusters.is_empty() { "no cluster".to_owned() } else { format!("-> {}", clusters.join(", ")) };
        let mut node = self.node(binding, target);
        let is_own = |work: &&Entry| work.annotation(annotation::WORK_BINDING_NAME) == name;
        let works: Vec<&Entry> = self.all(HUB, "Work").into_iter().filter(is_own).collect();
        node.children = works.into_iter().map(|work| self.node(work, applied(work))).collect();
        Some(node)
    }

    fn on_cell(&mut self, on_cell: &'a Entry, data: &BTreeSet<DataRef>) -> Vec<Node> {
        let plane = &on_cell.plane;
        let mut nodes = Vec::new();
        for binding in self.all(plane, "NetworkBinding").into_iter().filter(|entry| entry.is_owned_by(on_cell.uid())) {
            let context = binding.text("/status/networkContextRef/name").to_owned();
            let mut node = self.node(binding, status(binding, "Ready"));
            let of_context = |claim: &&Entry| claim.text("/spec/networkContext/name") == context;
            let claims: Vec<&Entry> = self.all(plane, "SubnetClaim").into_iter().filter(of_context).collect();
            node.children = claims.into_iter().map(|claim| self.node(claim, status(claim, "Ready"))).collect();
            nodes.push(node);
        }
        for source in data {
            let found = self.find(plane, source.kind.as_str(), &source.name);
            nodes.extend(found.map(|found| self.node(found, String::new())));
        }
        nodes.extend(self.instances(plane, on_cell.name()));
        nodes
    }
}

/// Returns the counts of a deployment, and why it is not ready.
fn state(deployment: &WorkloadDeployment) -> String {
    let status = deployment.status.clone().unwrap_or_default();
    let counts = format!("{}/{}", status.ready_replicas, deployment.spec.desired_replicas());
    let types = [condition::READY, condition::FEDERATED, condition::AVAILABLE];
    match types.iter().find_map(|type_| find(&status.conditions, type_)) {
        Some(ready) if ready.status == ConditionStatus::True => format!("{counts} ready"),
        Some(ready) => format!("{counts} {}", ready.reason),
        None => format!("{counts} not reported yet"),
    }
}

/// Returns the status and the reason of a condition of any object. Empty without it.
fn status(entry: &Entry, type_: &str) -> String {
    let mut conditions = entry.object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == type_);
    let text = |name: &str| found.and_then(|found| found[name].as_str()).unwrap_or_default();
    match (text("status"), text("reason")) {
        ("", _) => String::new(),
        ("True", _) => type_.to_owned(),
        (status, "") => format!("{type_}={status}"),
        (status, reason) => format!("{type_}={status} {reason}"),
    }
}

fn ready(entry: &Entry) -> String {
    status(entry, condition::READY)
}

fn granted(entry: &Entry) -> String {
    status(entry, "Granted")
}

fn applied(entry: &Entry) -> String {
    status(entry, "Applied")
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
