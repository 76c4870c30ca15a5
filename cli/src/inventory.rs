//! All objects of a Workload on all control planes, as they are. Of ConfigMaps and Secrets only the metadata.

use std::collections::BTreeSet;

use compute_operator::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, label},
        names::{self, CityCode},
        referenced::{DataRef, SourceKind},
    },
    plan::references::{annotated, references},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    planes::{NOT_REACHED, Planes},
    seen::{Seen, get, get_metadata, list},
    target::Target,
    trace::facts::{NO_HUB, hub_namespace},
};

/// Name of the project's plane.
pub const PROJECT: &str = "project";
/// Name of the hub's plane.
pub const HUB: &str = "hub";

/// Label of a binding, and of its Works: the binding's permanent id.
const BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";

/// Prefix of the namespaces in which Karmada keeps the Works of a cluster.
const WORKS: &str = "karmada-es-";

/// A kind that is read: group, version, kind, resource.
type Kind = (&'static str, &'static str, &'static str, &'static str);

const WORKLOAD: Kind = ("compute.datumapis.com", "v1alpha", "Workload", "workloads");
const DEPLOYMENT: Kind = ("compute.datumapis.com", "v1alpha", "WorkloadDeployment", "workloaddeployments");
const INSTANCE: Kind = ("compute.datumapis.com", "v1alpha", "Instance", "instances");
const CLAIM: Kind = ("quota.miloapis.com", "v1alpha1", "ResourceClaim", "resourceclaims");
const POLICY: Kind = ("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies");
const BINDING: Kind = ("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
const WORK: Kind = ("work.karmada.io", "v1alpha1", "Work", "works");
const CLUSTER: Kind = ("cluster.karmada.io", "v1alpha1", "Cluster", "clusters");
const NETWORK_BINDING: Kind = ("networking.datumapis.com", "v1alpha", "NetworkBinding", "networkbindings");
const CONTEXT: Kind = ("networking.datumapis.com", "v1alpha", "NetworkContext", "networkcontexts");
const SUBNET_CLAIM: Kind = ("networking.datumapis.com", "v1alpha", "SubnetClaim", "subnetclaims");
const NAMESPACE: Kind = ("", "v1", "Namespace", "namespaces");
const EVENT: Kind = ("events.k8s.io", "v1", "Event", "events");
const CORE_EVENT: Kind = ("", "v1", "Event", "events");

/// All objects of a Workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Time of the reads.
    pub now: Timestamp,
    /// Context of the project.
    pub context: String,
    /// Namespace in the project.
    pub namespace: String,
    /// Namespace on the hub and the cells, if that is known.
    pub hub_namespace: Option<String>,
    /// The objects.
    pub objects: Vec<Entry>,
    /// The Events about them, if they were asked for.
    pub events: Vec<Entry>,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
}

/// An object on a control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The control plane: `project`, `hub`, or the name of a Cluster.
    pub plane: String,
    /// The object.
    pub object: Value,
}

/// Something that could not be seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unseen {
    /// The control plane.
    pub plane: String,
    /// What was asked for.
    pub what: String,
    /// Why it could not be seen.
    pub why: String,
}

impl Entry {
    /// Returns a text of the object, by its JSON pointer.
    pub fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the kind.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Returns the namespace. Empty for an object without.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// Returns the uid.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Returns the value of a label. Empty if it has none.
    pub fn label(&self, key: &str) -> &str {
        self.object["metadata"]["labels"][key].as_str().unwrap_or_default()
    }

    /// Returns the value of an annotation. Empty if it has none.
    pub fn annotation(&self, key: &str) -> &str {
        self.object["metadata"]["annotations"][key].as_str().unwrap_or_default()
    }

    /// True if an owner reference names this uid.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        let owners = self.object["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
    }

    /// Returns the names of the clusters that a binding goes to: its own, and those of the bindings that need it.
    pub fn clusters(&self) -> BTreeSet<String> {
        let spec = &self.object["spec"];
        let required = spec["requiredBy"].as_array().into_iter().flatten();
        let lists = std::iter::once(&spec["clusters"]).chain(required.map(|by| &by["clusters"]));
        let all = lists.filter_map(Value::as_array).flatten();
        all.filter_map(|cluster| cluster["name"].as_str().map(str::to_owned)).collect()
    }
}

/// Reads one control plane.
struct Reader {
    client: Client,
    plane: String,
    found: Vec<Entry>,
    unseen: Vec<Unseen>,
}

impl Reader {
    fn new(client: Client, plane: &str) -> Self {
        Self { client, plane: plane.to_owned(), found: Vec::new(), unseen: Vec::new() }
    }

    fn note(&mut self, what: String, why: Option<String>) {
        if let Some(why) = why {
            self.unseen.push(Unseen { plane: self.plane.clone(), what, why });
        }
    }

    fn api(&self, (group, version, kind, plural): Kind, namespace: &str) -> Api<DynamicObject> {
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let (group, version, kind, plural) = (group.into(), version.into(), kind.into(), plural.into());
        let resource = ApiResource { group, version, api_version, kind, plural };
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// Keeps an object, with its kind, which lists leave out.
    fn keep(&mut self, (group, version, kind, _): Kind, object: &impl Serialize) -> Option<&Entry> {
        // An object that was decoded from JSON always encodes.
        let mut object = serde_json::to_value(object).ok()?;
        object["apiVersion"] = json!(if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") });
        object["kind"] = json!(kind);
        let entry = Entry { plane: self.plane.clone(), object };
        let is_same = |known: &Entry| known.uid() == entry.uid() && known.kind() == kind;
        let place = self.found.iter().position(is_same).unwrap_or_else(|| {
            self.found.push(entry);
            self.found.len() - 1
        });
        self.found.get(place)
    }

    async fn one(&mut self, kind: Kind, namespace: &str, name: &str) -> Option<Entry> {
        let seen = get(&self.api(kind, namespace), name).await;
        // Every API server serves the kinds without a group.
        let is_nowhere = kind.0.is_empty() && matches!(seen, Seen::Unserved);
        let nowhere = is_nowhere.then(|| format!("no API server answers: {NOT_REACHED} {}=CONTEXT", self.plane));
        self.note(format!("{} {name}", kind.2), seen.hidden().or(nowhere));
        self.keep(kind, seen.found()?).cloned()
    }

    async fn metadata(&mut self, namespace: &str, data: &DataRef) {
        let client = self.client.clone();
        let seen = match data.kind {
            SourceKind::ConfigMap => get_metadata(&Api::<ConfigMap>::namespaced(client, namespace), &data.name).await,
            SourceKind::Secret => get_metadata(&Api::<Secret>::namespaced(client, namespace), &data.name).await,
        };
        self.note(data.to_string(), seen.hidden());
        if let Seen::Found(metadata) = seen {
            let kind = ("", "v1", data.kind.as_str(), data.kind.plural());
            self.keep(kind, &json!({ "metadata": metadata }));
        }
    }

    async fn all(&mut self, kind: Kind, namespace: &str, labels: Option<&str>, keep: impl Fn(&Entry) -> bool) {
        let seen = list(&self.api(kind, namespace), labels).await;
        self.note(format!("{}s", kind.2), seen.hidden());
        let before = self.found.len();
        for object in seen.found().into_iter().flatten() {
            self.keep(kind, object);
        }
        let new = self.found.split_off(before);
        self.found.extend(new.into_iter().filter(keep));
    }

    /// Reads the Events about what was found. Both groups serve the same Events.
    async fn events(&self, namespace: &str) -> (Vec<Entry>, Vec<Unseen>) {
        let mut events = Self::new(self.client.clone(), &self.plane);
        let is_about = |event: &Entry| {
            let regarding = [event.object.get("regarding"), event.object.get("involvedObject")];
            regarding.into_iter().flatten().any(|about| {
                // An earlier object of the same name has another uid.
                let uid = about["uid"].as_str().filter(|uid| !uid.is_empty());
                self.found.iter().any(|known| match uid {
                    Some(uid) => uid == known.uid(),
                    None => about["kind"] == known.kind() && about["name"] == known.name(),
                })
            })
        };
        for kind in [EVENT, CORE_EVENT] {
            events.all(kind, namespace, None, is_about).await;
        }
        events.unseen.sort();
        events.unseen.dedup();
        (events.found, events.unseen)
    }
}

/// The Workload's parts that the project shows.
struct Parts {
    deployments: Vec<WorkloadDeployment>,
    workload_uid: Option<String>,
    data: BTreeSet<DataRef>,
    /// Only this Instance.
    instance: Option<String>,
}

impl Parts {
    fn has_instance(&self, name: &str) -> bool {
        let of = names::deployment_of_instance(name);
        let deployments = self.deployments.iter().filter_map(|deployment| deployment.metadata.name.as_deref());
        self.instance.as_deref().is_none_or(|only| only == name) && deployments.into_iter().any(|own| Some(own) == of)
    }

    fn names(&self) -> Vec<String> {
        self.deployments.iter().filter_map(|deployment| deployment.metadata.name.clone()).collect()
    }

    fn labels(&self) -> Option<String> {
        self.workload_uid.as_ref().map(|uid| format!("{}={uid}", label::WORKLOAD_UID))
    }
}

impl Inventory {
    /// Reads the objects of a Workload, a deployment or an Instance; with the Events about them if `events`.
    pub async fn read(planes: &Planes, target: &Target, events: bool, now: Timestamp) -> Self {
        let mut project = Reader::new(planes.project.clone(), PROJECT);
        let parts = of_project(&mut project, &planes.namespace, target).await;
        let hub_namespace = hub_namespace(planes, &parts.deployments).await;
        let mut readers = Vec::new();
        let mut unseen = Vec::new();
        let hidden = |plane: &str, what: &str, why: &str| Unseen {
            plane: plane.to_owned(),
            what: what.to_owned(),
            why: why.to_owned(),
        };
        match (&planes.hub, &hub_namespace) {
            (None, _) => unseen.push(hidden(HUB, "everything", NO_HUB)),
            (_, None) => unseen.push(hidden(HUB, "everything", "its namespace on the hub is not known")),
            (Some(hub), Some(namespace)) => {
                let mut hub = Reader::new(hub.clone(), HUB);
                let clusters = of_hub(&mut hub, namespace, &parts).await;
                let cells = clusters.iter().map(async |cluster| match planes.cell(cluster) {
                    Some(cell) => {
                        let mut cell = Reader::new(cell, cluster);
                        of_cell(&mut cell, namespace, &parts).await;
                        Ok(cell)
                    }
                    None => Err(hidden(cluster, "everything", "no way to the cell")),
                });
                readers.push(hub);
                for cell in futures::future::join_all(cells).await {
                    match cell {
                        Ok(cell) => readers.push(cell),
                        Err(why) => unseen.push(why),
                    }
                }
            }
        }
        let mut found = Vec::new();
        if events {
            let own = [(&project, planes.namespace.as_str())];
            let others = readers.iter().map(|reader| (reader, hub_namespace.as_deref().unwrap_or_default()));
            let reads = own.into_iter().chain(others).map(async |(reader, namespace)| reader.events(namespace).await);
            for (events, hidden) in futures::future::join_all(reads).await {
                found.extend(events);
                unseen.extend(hidden);
            }
        }
        let mut objects = Vec::new();
        for reader in std::iter::once(project).chain(readers) {
            objects.extend(reader.found);
            unseen.extend(reader.unseen);
        }
        unseen.sort();
        unseen.dedup();
        let (context, namespace) = (planes.context.clone(), planes.namespace.clone());
        Self { now, context, namespace, hub_namespace, objects, events: found, unseen }
    }

    /// Returns the names of the control planes that objects were found on, in the order project, hub, cells.
    pub fn planes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.objects.iter().map(|entry| &*entry.plane).collect();
        names.sort_by_key(|name| (order(name), *name));
        names.dedup();
        names
    }
}

/// Returns the place of a control plane in an order: project, hub, cells.
pub fn order(plane: &str) -> u8 {
    match plane {
        PROJECT => 0,
        HUB => 1,
        _ => 2,
    }
}

async fn of_project(project: &mut Reader, namespace: &str, target: &Target) -> Parts {
    let mut parts = Parts { deployments: Vec::new(), workload_uid: None, data: BTreeSet::new(), instance: None };
    let decoded = |entry: Entry| serde_json::from_value::<WorkloadDeployment>(entry.object).ok();
    match target {
        Target::Workload(name) => {
            let workload = project.one(WORKLOAD, namespace, name).await;
            parts.workload_uid = workload.map(|workload| workload.uid().to_owned());
            if let Some(labels) = parts.labels() {
                project.all(DEPLOYMENT, namespace, Some(&labels), |_| true).await;
            }
            let own = project.found.iter().filter(|entry| entry.kind() == DEPLOYMENT.2).cloned();
            parts.deployments = own.filter_map(decoded).collect();
        }
        Target::Deployment(name) | Target::Instance(name) => {
            let is_instance = matches!(target, Target::Instance(_));
            parts.instance = is_instance.then(|| name.clone());
            let name = if is_instance { names::deployment_of_instance(name).unwrap_or(name) } else { name };
            let found = project.one(DEPLOYMENT, namespace, name).await;
            parts.deployments = found.and_then(decoded).into_iter().collect();
            if let Some(deployment) = parts.deployments.first() {
                let owner = deployment.spec.workload_ref.clone();
                parts.workload_uid = Some(owner.uid);
                project.one(WORKLOAD, namespace, &owner.name).await;
            }
        }
        Target::Data(_) | Target::Cluster(_) => {}
    }
    if let Some(labels) = parts.labels() {
        project.all(INSTANCE, namespace, Some(&labels), |entry| parts.has_instance(entry.name())).await;
        let is_own = |entry: &Entry| names::claimant_of(entry.name()).is_some_and(|name| parts.has_instance(name));
        project.all(CLAIM, namespace, None, is_own).await;
    }
    for deployment in &parts.deployments {
        let used = references(&deployment.spec.template.spec).into_iter().map(|reference| reference.data_ref);
        parts.data.extend(used.chain(annotated(deployment, annotation::EXPECTED_REFERENCED_DATA)));
    }
    for data in &parts.data {
        project.metadata(namespace, data).await;
    }
    parts
}

/// Reads the hub. Returns the clusters that the deployments are bound to.
async fn of_hub(hub: &mut Reader, namespace: &str, parts: &Parts) -> BTreeSet<String> {
    hub.one(NAMESPACE, "", namespace).await;
    let mut bindings = Vec::new();
    let mut clusters = BTreeSet::new();
    for deployment in &parts.deployments {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        hub.one(DEPLOYMENT, namespace, name).await;
        if let Ok(city) = CityCode::parse(&deployment.spec.city_code) {
            hub.one(POLICY, namespace, &city.policy_name()).await;
        }
        if let Some(binding) = hub.one(BINDING, namespace, &names::deployment_binding(name)).await {
            clusters.extend(binding.clusters());
            bindings.push(binding);
        }
    }
    for data in &parts.data {
        hub.metadata(namespace, data).await;
        let name = names::binding_name(data.kind.as_str(), &data.name);
        bindings.extend(hub.one(BINDING, namespace, &name).await);
    }
    if let Some(labels) = parts.labels() {
        hub.all(INSTANCE, namespace, Some(&labels), |entry| parts.has_instance(entry.name())).await;
    }
    for binding in &bindings {
        let id = binding.label(BINDING_ID);
        let labels = (!id.is_empty()).then(|| format!("{BINDING_ID}={id}"));
        let is_own = |entry: &Entry| {
            entry.annotation(annotation::WORK_BINDING_NAMESPACE) == namespace
                && entry.annotation(annotation::WORK_BINDING_NAME) == binding.name()
        };
        for cluster in binding.clusters() {
            hub.all(WORK, &format!("{WORKS}{cluster}"), labels.as_deref(), is_own).await;
        }
    }
    for cluster in &clusters {
        hub.one(CLUSTER, "", cluster).await;
    }
    clusters
}

async fn of_cell(cell: &mut Reader, namespace: &str, parts: &Parts) {
    cell.one(NAMESPACE, "", namespace).await;
    let mut uids = BTreeSet::new();
    for name in parts.names() {
        uids.extend(cell.one(DEPLOYMENT, namespace, &name).await.map(|entry| entry.uid().to_owned()));
    }
    if uids.is_empty() {
        return;
    }
    cell.all(NETWORK_BINDING, namespace, None, |entry| uids.iter().any(|uid| entry.is_owned_by(uid))).await;
    let contexts: BTreeSet<(String, String)> = cell
        .found
        .iter()
        .filter(|entry| entry.kind() == NETWORK_BINDING.2)
        .map(|entry| {
            let part = |name: &str| entry.text(&format!("/status/networkContextRef/{name}")).to_owned();
            (part("namespace"), part("name"))
        })
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .collect();
    for (namespace, name) in contexts {
        cell.one(CONTEXT, &namespace, &name).await;
        let of_context = |entry: &Entry| entry.text("/spec/networkContext/name") == name;
        cell.all(SUBNET_CLAIM, &namespace, None, of_context).await;
    }
    if let Some(labels) = parts.labels() {
        cell.all(INSTANCE, namespace, Some(&labels), |entry| parts.has_instance(entry.name())).await;
    }
    for data in &parts.data {
        cell.metadata(namespace, data).await;
    }
}
