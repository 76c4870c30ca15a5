//! `trace secret` and `trace configmap`: who uses it, and which cities have it. Only metadata is read, never the content.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use compute_operator::{
    api::{
        compute::{Workload, WorkloadDeployment},
        karmada::ResourceBinding,
        meta::annotation,
        names,
        referenced::{DataRef, SourceKind},
    },
    plan::{management::observed::facts::BindingFacts, references::uses},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt, core::ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{
    facts::{NO_HUB, hub_namespace},
    instance::Place,
};
use crate::{
    exit::Exit,
    planes::Planes,
    screen::{Mark, Screen},
    seen::{Seen, get, get_metadata, list},
};

/// What the control planes show of one ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataFacts {
    /// Time of the reads.
    pub now: Timestamp,
    /// Context of the project.
    pub context: String,
    /// Namespace in the project.
    pub namespace: String,
    /// The ConfigMap or Secret.
    pub data: DataRef,
    /// Its metadata in the project.
    pub source: Seen<Meta>,
    /// Workloads of the namespace, and where they use it.
    pub workloads: Seen<BTreeMap<String, Vec<Field>>>,
    /// Deployments of the namespace that use it.
    pub deployments: Seen<Vec<User>>,
    /// Its namespace on the hub, if that is known.
    pub hub_namespace: Option<String>,
    /// The copy on the hub.
    pub copy: Seen<Meta>,
    /// The binding of the copy.
    pub binding: Seen<BindingFacts>,
    /// The copy on each cluster of its users.
    pub cells: BTreeMap<String, Seen<Meta>>,
}

/// Metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Uid of the hub's object that Karmada made it from.
    pub template: Option<String>,
}

/// A field that refers to the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The field, for users.
    pub asked_by: String,
    /// True if the reference is optional.
    pub optional: bool,
}

/// A deployment that refers to the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Name of the deployment.
    pub deployment: String,
    /// Name of its Workload.
    pub workload: String,
    /// Code of its city.
    pub city: String,
    /// The clusters that it is bound to.
    pub clusters: Seen<Vec<String>>,
}

impl Meta {
    fn of(meta: ObjectMeta) -> Self {
        let template = meta.annotations.as_ref().and_then(|all| all.get(annotation::TEMPLATE_UID)).cloned();
        Self { uid: meta.uid.unwrap_or_default(), version: meta.resource_version.unwrap_or_default(), template }
    }

    fn words(&self) -> String {
        format!("uid {}, resourceVersion {}", self.uid, self.version)
    }
}

async fn metadata(client: &Client, namespace: &str, data: &DataRef) -> Seen<Meta> {
    match data.kind {
        SourceKind::ConfigMap => {
            get_metadata(&Api::<ConfigMap>::namespaced(client.clone(), namespace), &data.name).await
        }
        SourceKind::Secret => get_metadata(&Api::<Secret>::namespaced(client.clone(), namespace), &data.name).await,
    }
    .map(Meta::of)
}

impl DataFacts {
    /// Reads a ConfigMap or Secret with its users.
    pub async fn read(planes: &Planes, data: DataRef, now: Timestamp) -> Self {
        let workloads: Api<Workload> = Api::namespaced(planes.project.clone(), &planes.namespace);
        let deployments: Api<WorkloadDeployment> = Api::namespaced(planes.project.clone(), &planes.namespace);
        let (source, workloads, deployments) = futures::future::join3(
            metadata(&planes.project, &planes.namespace, &data),
            list(&workloads, None),
            list(&deployments, None),
        )
        .await;
        let asks = |spec: &compute_operator::api::compute::InstanceSpec| {
            let own = uses(spec).into_iter().filter(|one| one.data_ref == data);
            own.map(|one| Field { asked_by: one.asked_by, optional: one.optional }).collect::<Vec<_>>()
        };
        let workloads = workloads.map(|all| {
            let all = all.into_iter().map(|workload| (workload.name_any(), asks(&workload.spec.template.spec)));
            all.filter(|(_, fields)| !fields.is_empty()).collect()
        });
        let deployments = deployments.map(|mut all| {
            all.retain(|deployment| !asks(&deployment.spec.template.spec).is_empty());
            all
        });
        let own = deployments.found().map_or(&[][..], |all| all);
        let hub_namespace = hub_namespace(planes, own).await;
        let hub = OnHub::read(planes, &data, hub_namespace.as_deref(), own).await;
        let deployments = deployments.map(|all| {
            let user = |deployment: WorkloadDeployment| User {
                deployment: deployment.name_any(),
                workload: deployment.spec.workload_ref.name.clone(),
                city: deployment.spec.city_code.clone(),
                clusters: hub.clusters.get(&deployment.name_any()).cloned().unwrap_or_default(),
            };
            all.into_iter().map(user).collect()
        });
        let (context, namespace) = (planes.context.clone(), planes.namespace.clone());
        let OnHub { copy, binding, cells, .. } = hub;
        Self { now, context, namespace, data, source, workloads, deployments, hub_namespace, copy, binding, cells }
    }
}

struct OnHub {
    copy: Seen<Meta>,
    binding: Seen<BindingFacts>,
    clusters: BTreeMap<String, Seen<Vec<String>>>,
    cells: BTreeMap<String, Seen<Meta>>,
}

impl OnHub {
    async fn read(planes: &Planes, data: &DataRef, namespace: Option<&str>, users: &[WorkloadDeployment]) -> Self {
        let hidden = match (&planes.hub, namespace) {
            (Some(_), Some(_)) => None,
            (None, _) => Some(NO_HUB),
            (_, None) => Some("its namespace on the hub is not known"),
        };
        let (Some(hub), Some(namespace)) = (&planes.hub, namespace) else {
            let why = hidden.unwrap_or_default();
            let none = |user: &WorkloadDeployment| (user.name_any(), Seen::NotAsked(why.to_owned()));
            return Self {
                copy: Seen::NotAsked(why.to_owned()),
                binding: Seen::NotAsked(why.to_owned()),
                clusters: users.iter().map(none).collect(),
                cells: BTreeMap::new(),
            };
        };
        let bindings: Api<ResourceBinding> = Api::namespaced(hub.clone(), namespace);
        let own = names::binding_name(data.kind.as_str(), &data.name);
        let of_users = users.iter().map(async |user| {
            let seen = get(&bindings, &names::deployment_binding(&user.name_any())).await;
            (user.name_any(), seen.map(|binding| BindingFacts::of(binding).clusters.to_vec()))
        });
        let (copy, binding, clusters) = futures::future::join3(
            metadata(hub, namespace, data),
            get(&bindings, &own),
            futures::future::join_all(of_users),
        )
        .await;
        let clusters: BTreeMap<String, Seen<Vec<String>>> = clusters.into_iter().collect();
        let all: BTreeSet<String> = clusters.values().filter_map(Seen::found).flatten().cloned().collect();
        let cells = all.into_iter().map(async |cluster| {
            let seen = planes.read_in_cell(&cluster, async |cell| metadata(&cell, namespace, data).await).await;
            (cluster, seen)
        });
        let cells = futures::future::join_all(cells).await.into_iter().collect();
        Self { copy, binding: binding.map(BindingFacts::of), clusters, cells }
    }
}

/// A Workload that uses the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// Name of the Workload.
    pub workload: String,
    /// Its cities.
    pub cities: Vec<String>,
    /// The field.
    pub field: String,
    /// True if the reference is optional.
    pub optional: bool,
}

/// Result of the trace of a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataTrace {
    /// Time of the reads.
    pub time: Timestamp,
    /// Context of the project.
    pub context: String,
    /// Namespace in the project.
    pub namespace: String,
    /// The ConfigMap or Secret.
    pub data: DataRef,
    /// Its users.
    pub uses: Vec<Use>,
    /// Why its users cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    /// The object on each control plane. Cells are named with their cities.
    pub places: Vec<Place>,
}

impl DataTrace {
    /// Judges what the control planes show.
    pub fn of(facts: &DataFacts) -> Self {
        let users = facts.deployments.found().map_or(&[][..], |all| all);
        let mut found = Vec::new();
        for (workload, fields) in facts.workloads.found().into_iter().flatten() {
            let own = users.iter().filter(|user| user.workload == *workload);
            let cities: BTreeSet<String> = own.map(|user| user.city.clone()).collect();
            found.extend(fields.iter().map(|field| Use {
                workload: workload.clone(),
                cities: cities.iter().cloned().collect(),
                field: field.asked_by.clone(),
                optional: field.optional,
            }));
        }
        let is_needed = found.iter().any(|one| !one.optional);
        let mut places = vec![source(facts, is_needed), copy(facts, !users.is_empty())];
        for user in users {
            match user.clusters.found().map(Vec::as_slice) {
                Some([]) => places.push(place(&user.city, Mark::Later, "its deployment has no cluster yet".to_owned())),
                Some(clusters) => places.extend(clusters.iter().map(|name| on_cell(facts, &user.city, name))),
                None => {
                    let why = user.clusters.hidden();
                    let mark = if why.is_some() { Mark::Unseen } else { Mark::Later };
                    let text = why.unwrap_or_else(|| "its deployment has no binding yet".to_owned());
                    places.push(place(&user.city, mark, text));
                }
            }
        }
        places.dedup();
        Self {
            time: facts.now,
            context: facts.context.clone(),
            namespace: facts.namespace.clone(),
            data: facts.data.clone(),
            uses: found,
            hidden: facts.workloads.hidden().or_else(|| facts.deployments.hidden()),
            places,
        }
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        let any = |mark: Mark| self.places.iter().any(|place| place.mark == mark);
        let source = self.places.first().map_or(Mark::Unseen, |place| place.mark);
        if source == Mark::Broken {
            Exit::Tenant
        } else if any(Mark::Broken) {
            Exit::Platform
        } else if source == Mark::Unseen || self.hidden.is_some() {
            Exit::CouldNotAsk
        } else if any(Mark::Later) && !self.uses.is_empty() {
            Exit::InProgress
        } else {
            Exit::Well
        }
    }

    /// Returns the text.
    pub fn text(&self, screen: Screen) -> String {
        let kind = self.data.kind.as_str();
        let mut text = format!("{kind} {}/{}", self.namespace, self.data.name);
        if !self.context.is_empty() {
            let _ = write!(text, " · project {}", self.context);
        }
        let workloads: BTreeSet<&str> = self.uses.iter().map(|one| &*one.workload).collect();
        let cities: BTreeSet<&str> = self.uses.iter().flat_map(|one| one.cities.iter().map(String::as_str)).collect();
        let users = match (workloads.len(), &self.hidden) {
            (_, Some(_)) => "users not visible".to_owned(),
            (0, _) => "no Workload uses it".to_owned(),
            (count, _) => format!("used by {count} Workload(s) in {} city(s)", cities.len()),
        };
        let _ = writeln!(text, " · {}", screen.strong(&users));
        if let Some(hidden) = &self.hidden {
            let _ = writeln!(text, "{} {hidden}", screen.sign(Mark::Unseen));
        }
        if !self.uses.is_empty() {
            let mut rows = vec![["WORKLOAD", "CITIES", "FIELD", "OPTIONAL"].map(str::to_owned).to_vec()];
            for one in &self.uses {
                let cities = if one.cities.is_empty() { "–".to_owned() } else { one.cities.join(", ") };
                let optional = if one.optional { "yes" } else { "no" };
                rows.push(vec![one.workload.clone(), cities, one.field.clone(), optional.to_owned()]);
            }
            let _ = write!(text, "\n{}", screen.table(&rows));
        }
        let width = self.places.iter().map(|place| place.plane.chars().count()).max().unwrap_or(0);
        text.push('\n');
        for place in &self.places {
            let _ = writeln!(text, "{} {:width$}  {}", screen.sign(place.mark), place.plane, place.text);
        }
        text
    }
}

fn place(plane: &str, mark: Mark, text: String) -> Place {
    Place { plane: plane.to_owned(), mark, text }
}

fn source(facts: &DataFacts, is_needed: bool) -> Place {
    let (mark, text) = match &facts.source {
        Seen::Found(meta) => (Mark::Well, meta.words()),
        seen if seen.is_absent() && is_needed => (Mark::Broken, "does not exist (SourceNotFound)".to_owned()),
        seen if seen.is_absent() => (Mark::Warning, "does not exist".to_owned()),
        seen => (Mark::Unseen, seen.hidden().unwrap_or_default()),
    };
    place("project", mark, text)
}

fn copy(facts: &DataFacts, is_used: bool) -> Place {
    let (mark, text) = match &facts.copy {
        Seen::Found(meta) => (Mark::Well, format!("a copy, {}", meta.words())),
        seen if seen.is_absent() && is_used && facts.source.found().is_some() => {
            (Mark::Later, "not copied yet".to_owned())
        }
        seen if seen.is_absent() => (Mark::Later, "no copy".to_owned()),
        seen => (Mark::Unseen, seen.hidden().unwrap_or_default()),
    };
    place("hub", mark, text)
}

fn on_cell(facts: &DataFacts, city: &str, cluster: &str) -> Place {
    let plane = format!("{city} ({cluster})");
    let applied = facts.binding.found().and_then(|binding| binding.applied.get(cluster));
    let copy = facts.copy.found().map(|copy| &*copy.uid);
    let (mark, text) = match facts.cells.get(cluster) {
        Some(Seen::Found(meta)) => match &meta.template {
            Some(template) if copy.is_none_or(|uid| uid == template) => {
                (Mark::Well, format!("has it, {}", meta.words()))
            }
            _ => (Mark::Broken, format!("has another object of this name, {}", meta.words())),
        },
        Some(seen) if seen.is_absent() => match applied {
            Some(Err(why)) => (Mark::Broken, format!("does not have it. Karmada: {why}")),
            _ if copy.is_none() => (Mark::Later, "waits for the copy on the hub".to_owned()),
            _ => (Mark::Broken, "does not have it".to_owned()),
        },
        seen => match applied {
            Some(Ok(())) => (Mark::Well, "has it, as Karmada reports".to_owned()),
            Some(Err(why)) => (Mark::Broken, format!("does not have it. Karmada: {why}")),
            None => (Mark::Unseen, seen.and_then(Seen::hidden).unwrap_or_default()),
        },
    };
    place(&plane, mark, text)
}
