//! Reads the control planes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use compute_operator::{
    api::{
        compute::Workload,
        karmada::{Cluster, ResourceBinding},
        meta::{GROUP, LEASE, VERSION, label},
        neighbours::LocationBinding,
    },
    plan::management::observed::{cluster::ClusterFacts, facts::BindingFacts},
};
use futures::{StreamExt, stream};
use jiff::{Timestamp, fmt::rfc2822};
use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        apps::v1::Deployment,
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
            SubjectAccessReviewSpec,
        },
        coordination::v1::Lease,
        core::v1::{Namespace, Secret, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Subject},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};

use super::{
    credentials::{self, End},
    definitions,
    facts::{Answer, Bindings, Clock, DeploymentFacts, Facts, Karmada, LeaseFacts, Manager, Plane, Rights, Webhook},
    foreign,
    roles::{self, NAMESPACE, Right, Role},
};
use crate::{
    planes::Planes,
    seen::{Seen, get, get_metadata, list, patiently},
};

/// Number of reviews that are asked at a time.
const AT_ONCE: usize = 8;
/// Number of bindings that are looked at.
const BINDINGS: u32 = 500;
/// Name of the manager's Deployment.
const MANAGER: &str = "compute-manager";
/// Shown for everything on the hub if no context of the hub is given.
const NO_HUB: &str = "not asked: give --hub-context";
/// Shown for what the install brings, before the install.
const BEFORE: &str = "not asked before the install";
/// Shown for what is checked only before the install.
const AFTER: &str = "asked before the install";

/// Secrets of managers whose content ends.
pub const OF_MANAGEMENT: [&str; 3] = ["compute-hub-credentials", "compute-milo-credentials", "compute-webhook-cert"];
/// Secrets of a cell whose content ends.
pub const OF_CELL: [&str; 2] = ["compute-cell-federation-kubeconfig", "compute-quota-credentials"];

/// Who runs on a plane, and what it needs there.
#[derive(Default)]
struct Asked<'a> {
    context: &'a str,
    roles: Vec<(Role, String)>,
    /// Before the install: rights of the caller.
    install: BTreeSet<Right>,
    definitions: bool,
    /// Secrets of the manager, if one runs there.
    manager: Option<&'a [&'a str]>,
}

/// Settings of a check.
pub struct Settings<'a> {
    /// True before the install.
    pub pre: bool,
    /// User of the manager in the project and on the hub.
    pub user: &'a str,
    /// Context and client of the manager's cluster, if it is not the project's.
    pub manager: Option<(String, Client)>,
    /// Client of the cluster in which Karmada runs.
    pub karmada: Client,
    /// Contexts of cells, by the names of their Clusters.
    pub cell_contexts: &'a [(String, String)],
    /// Context of the hub.
    pub hub_context: Option<&'a str>,
}

/// Reads all control planes.
pub async fn facts(planes: &Planes, settings: &Settings<'_>, now: Timestamp) -> Facts {
    let (clusters, holders) = futures::join!(clusters(planes), holders(planes, settings.pre));
    let project = project(planes, settings);
    let manager = async {
        match &settings.manager {
            Some((context, client)) => Some(plane(client, &manager_asked(context, settings.pre)).await),
            None => None,
        }
    };
    let hub = async {
        match &planes.hub {
            Some(hub) => Some(plane(hub, &hub_asked(settings, &holders, &clusters)).await),
            None => None,
        }
    };
    let mut names: BTreeSet<&str> = settings.cell_contexts.iter().map(|(cluster, _)| &**cluster).collect();
    names.extend(clusters.found().into_iter().flatten().map(|(name, _)| name.as_str()));
    let cells = names.into_iter().filter_map(|name| Some((name.to_owned(), planes.cell(name)?)));
    let cells = cells.map(async |(name, client)| {
        let context = settings.cell_contexts.iter().find(|(cluster, _)| *cluster == name);
        let seen = plane(&client, &cell_asked(context.map_or("", |(_, context)| context), settings.pre)).await;
        (name, seen)
    });
    let cells = stream::iter(cells).buffer_unordered(AT_ONCE).collect::<BTreeMap<_, _>>();
    let webhook = async { if settings.pre { Webhook::default() } else { webhook(planes).await } };
    let (project, manager, hub, cells, locations, karmada, webhook) =
        futures::join!(project, manager, hub, cells, locations(planes), karmada(planes, settings), webhook);
    let accounts = accounts(planes, &clusters, &cells).await;
    Facts {
        now,
        pre: settings.pre,
        project,
        manager,
        hub,
        cells,
        clusters,
        holders,
        accounts,
        locations,
        karmada,
        webhook,
    }
}

/// Reads the ServiceAccounts on the hub that the cells' tokens name. Returns their uids.
async fn accounts(
    planes: &Planes,
    clusters: &Seen<BTreeMap<String, ClusterFacts>>,
    cells: &BTreeMap<String, Plane>,
) -> BTreeMap<String, Seen<String>> {
    // A hub that has not answered is not asked again.
    let hub = planes.hub.as_ref().filter(|_| clusters.found().is_some());
    let named = cells.iter().filter_map(|(name, cell)| Some((name, cell.manager.as_ref()?.account.as_ref()?)));
    let read = named.filter_map(|(name, account)| Some((name, account, hub?.clone())));
    let read = read.map(async |(name, account, hub)| {
        let accounts: Api<ServiceAccount> = Api::namespaced(hub, &account.namespace);
        (name.clone(), get_metadata(&accounts, &account.name).await.map(|meta| meta.uid.unwrap_or_default()))
    });
    stream::iter(read).buffer_unordered(AT_ONCE).collect().await
}

async fn project(planes: &Planes, settings: &Settings<'_>) -> Plane {
    let home = settings.manager.is_none();
    let mut asked = Asked { context: &planes.context, definitions: !settings.pre, ..Asked::default() };
    if settings.pre {
        asked.install = roles::to_install(home);
    } else {
        asked.roles.push((Role::Project, settings.user.to_owned()));
        asked.roles.push((Role::Quota, roles::user("compute-quota")));
        if home {
            asked.roles.extend(of_home());
            asked.manager = Some(&OF_MANAGEMENT);
        }
    }
    plane(&planes.project, &asked).await
}

/// Roles of a manager in the cluster in which it runs.
fn of_home() -> [(Role, String); 2] {
    [Role::Metrics, Role::LeaderElection].map(|role| (role, roles::user(MANAGER)))
}

fn manager_asked(context: &str, pre: bool) -> Asked<'_> {
    let mut asked = Asked { context, ..Asked::default() };
    if pre {
        asked.install = roles::to_install(true);
    } else {
        asked.roles.extend(of_home());
        asked.manager = Some(&OF_MANAGEMENT);
    }
    asked
}

fn hub_asked<'a>(
    settings: &Settings<'a>,
    holders: &Seen<BTreeMap<String, BTreeSet<String>>>,
    clusters: &Seen<BTreeMap<String, ClusterFacts>>,
) -> Asked<'a> {
    let mut asked = Asked { context: settings.hub_context.unwrap_or_default(), ..Asked::default() };
    if settings.pre {
        asked.install = roles::to_install(false).into_iter().chain(roles::to_install_hub()).collect();
        return asked;
    }
    asked.definitions = true;
    asked.roles.push((Role::Hub, settings.user.to_owned()));
    let uids: BTreeSet<&String> =
        clusters.found().into_iter().flat_map(BTreeMap::values).filter_map(|c| c.cell.as_ref()).collect();
    let of_cells = holders.found().into_iter().flatten().filter(|(uid, _)| uids.contains(uid));
    let users: BTreeSet<&String> = of_cells.flat_map(|(_, users)| users).collect();
    asked.roles.extend(users.into_iter().map(|user| (Role::CellOnHub, user.clone())));
    asked
}

fn cell_asked(context: &str, pre: bool) -> Asked<'_> {
    let mut asked = Asked { context, ..Asked::default() };
    if pre {
        asked.install = roles::to_install(true);
    } else {
        asked.definitions = true;
        asked.roles.push((Role::Cell, roles::user(MANAGER)));
        asked.roles.extend(of_home());
        asked.manager = Some(&OF_CELL);
    }
    asked
}

async fn plane(client: &Client, asked: &Asked<'_>) -> Plane {
    let version = async { patiently(client.apiserver_version()).await.map(|info| info.git_version) };
    let (version, clock) = futures::join!(version, clock(client));
    let mut plane = Plane { context: asked.context.to_owned(), version, clock, ..Plane::default() };
    if matches!(plane.version, Seen::Unanswered(_)) {
        return plane;
    }
    let uid = async {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        match get_metadata(&namespaces, "kube-system").await.map(|meta| meta.uid) {
            Seen::Found(None) => Seen::Absent,
            seen => seen.map(Option::unwrap_or_default),
        }
    };
    let definitions = definitions::own().into_keys().filter(|_| asked.definitions).map(async |name| {
        let seen = get(&Api::<CustomResourceDefinition>::all(client.clone()), &name).await;
        (name, seen)
    });
    let rights = async {
        let mut all = Vec::new();
        for (role, user) in &asked.roles {
            all.push(rights(client, role.name(), user, role.rights()).await);
        }
        if !asked.install.is_empty() {
            all.push(rights(client, "install", "", asked.install.clone()).await);
        }
        all
    };
    let manager = async {
        match asked.manager {
            Some(secrets) => Some(manager(client, secrets).await),
            None => None,
        }
    };
    let webhooks = Box::pin(async {
        if asked.install.is_empty() { Seen::NotAsked(AFTER.to_owned()) } else { foreign::read(client).await }
    });
    let (uid, definitions, rights, manager, webhooks) =
        futures::join!(uid, futures::future::join_all(definitions), rights, manager, webhooks);
    (plane.uid, plane.rights, plane.manager, plane.webhooks) = (uid, rights, manager, webhooks);
    plane.definitions = definitions.into_iter().collect();
    plane
}

/// Reads the time of an API server.
async fn clock(client: &Client) -> Option<Clock> {
    let request = http::Request::get("/version").body(Body::empty()).ok()?;
    let asked = Timestamp::now();
    let Seen::Found(answer) = patiently(client.send(request)).await else { return None };
    let answered = Timestamp::now();
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    Some(Clock { server: rfc2822::parse(date).ok()?.timestamp(), asked, answered })
}

/// Asks which of these rights a user lacks. An empty user is the caller.
async fn rights(client: &Client, role: &str, user: &str, wanted: BTreeSet<Right>) -> Rights {
    let total = wanted.len();
    let answered = |lacking| Rights { role: role.to_owned(), user: user.to_owned(), total, lacking };
    let mut wanted = wanted.into_iter();
    let mut lacking = Vec::new();
    // If the caller may not ask, one question is enough.
    for right in wanted.by_ref().take(1) {
        match has(client, user, &right).await {
            Seen::Found(true) => {}
            Seen::Found(false) => lacking.push(right),
            other => return answered(other.map(|_| Vec::new())),
        }
    }
    let asked = wanted.map(async |right| (has(client, user, &right).await, right));
    let mut asked = stream::iter(asked).buffered(AT_ONCE);
    while let Some((seen, right)) = asked.next().await {
        match seen {
            Seen::Found(true) => {}
            Seen::Found(false) => lacking.push(right),
            other => return answered(other.map(|_| Vec::new())),
        }
    }
    answered(Seen::Found(lacking))
}

async fn has(client: &Client, user: &str, right: &Right) -> Seen<bool> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (&*right.resource, None),
    };
    let attributes = ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(right.verb.clone()),
        name: right.name.clone(),
        namespace: right.namespace.clone(),
        ..ResourceAttributes::default()
    };
    let params = PostParams::default();
    if user.is_empty() {
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        return patiently(reviews.create(&params, &review)).await.map(|done| done.status.is_some_and(|s| s.allowed));
    }
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
    }
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        groups: Some(groups),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    patiently(reviews.create(&params, &review)).await.map(|done| done.status.is_some_and(|status| status.allowed))
}

async fn manager(client: &Client, secrets: &[&str]) -> Manager {
    let lease = async {
        let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        get(&leases, LEASE).await.map(|lease| {
            let spec = lease.spec.unwrap_or_default();
            LeaseFacts {
                holder: spec.holder_identity.unwrap_or_default(),
                renewed: spec.renew_time.map(|time| time.0),
                seconds: spec.lease_duration_seconds.unwrap_or_default(),
            }
        })
    };
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let deployment = async { get(&deployments, MANAGER).await.map(deployment_facts) };
    let credentials = secrets.iter().map(async |name| {
        let all: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let secret = get(&all, name).await.map(|secret| secret.data.unwrap_or_default());
        let account = secret.found().filter(|_| *name == OF_CELL[0]).and_then(credentials::hub_account);
        ((*name).to_owned(), secret.map(|data| credentials::of_secret(&data)), account)
    });
    let (lease, deployment, read) = futures::join!(lease, deployment, futures::future::join_all(credentials));
    let (mut credentials, mut account) = (BTreeMap::new(), None);
    for (name, ends, of_hub) in read {
        credentials.insert(name, ends);
        account = account.or(of_hub);
    }
    Manager { lease, deployment, credentials, account }
}

fn deployment_facts(deployment: Deployment) -> DeploymentFacts {
    let pod = deployment.spec.template.spec.unwrap_or_default();
    let image = pod.containers.into_iter().next().and_then(|container| container.image).unwrap_or_default();
    let mut secrets = BTreeSet::new();
    for volume in pod.volumes.unwrap_or_default() {
        secrets.extend(volume.secret.and_then(|secret| secret.secret_name));
        let sources = volume.projected.and_then(|projected| projected.sources).unwrap_or_default();
        secrets.extend(sources.into_iter().filter_map(|source| Some(source.secret?.name)));
    }
    DeploymentFacts { image, secrets }
}

async fn clusters(planes: &Planes) -> Seen<BTreeMap<String, ClusterFacts>> {
    let Some(hub) = &planes.hub else { return Seen::NotAsked(NO_HUB.to_owned()) };
    let all = list(&Api::<Cluster>::all(hub.clone()), None).await;
    all.map(|all| all.into_iter().map(|cluster| (cluster.name_any(), ClusterFacts::of(cluster))).collect())
}

/// Reads which users of the hub may write for which cell.
async fn holders(planes: &Planes, pre: bool) -> Seen<BTreeMap<String, BTreeSet<String>>> {
    let Some(hub) = &planes.hub else { return Seen::NotAsked(NO_HUB.to_owned()) };
    if pre {
        return Seen::NotAsked(BEFORE.to_owned());
    }
    let (all, bound): (Api<ClusterRole>, Api<ClusterRoleBinding>) = (Api::all(hub.clone()), Api::all(hub.clone()));
    let (all, bound) = futures::join!(list(&all, None), list(&bound, None));
    let all = match all {
        Seen::Found(all) => all,
        other => return other.map(|_| BTreeMap::new()),
    };
    bound.map(|bound| holders_of(&all, &bound))
}

/// Returns the users that hold each cell by its uid. Management, which holds all cells, is not listed.
pub fn holders_of(roles: &[ClusterRole], bindings: &[ClusterRoleBinding]) -> BTreeMap<String, BTreeSet<String>> {
    let mut holders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for role in roles {
        let holds = |rule: &&k8s_openapi::api::rbac::v1::PolicyRule| {
            let of = |list: &Option<Vec<String>>, word: &str| list.iter().flatten().any(|one| one == word);
            of(&rule.api_groups, GROUP) && of(&rule.resources, "cells") && rule.verbs.iter().any(|verb| verb == "hold")
        };
        let uids: Vec<&String> =
            role.rules.iter().flatten().filter(holds).flat_map(|rule| rule.resource_names.iter().flatten()).collect();
        if uids.is_empty() {
            continue;
        }
        let bound = bindings.iter().filter(|binding| binding.role_ref.name == role.name_any());
        let users: Vec<String> =
            bound.flat_map(|binding| binding.subjects.iter().flatten()).filter_map(user_of).collect();
        for uid in uids {
            holders.entry(uid.clone()).or_default().extend(users.iter().cloned());
        }
    }
    holders
}

fn user_of(subject: &Subject) -> Option<String> {
    match &*subject.kind {
        "User" => Some(subject.name.clone()),
        "ServiceAccount" => Some(format!("system:serviceaccount:{}:{}", subject.namespace.as_deref()?, subject.name)),
        _ => None,
    }
}

async fn locations(planes: &Planes) -> Seen<BTreeMap<String, String>> {
    let all = list(&Api::<LocationBinding>::all(planes.project.clone()), None).await;
    let city = |binding: LocationBinding| {
        let city = binding.spec.topology.get(label::TOPOLOGY_CITY).cloned();
        Some((binding.name_any(), city?))
    };
    all.map(|all| all.into_iter().filter_map(city).collect())
}

/// Kinds of Karmada that the operator uses.
const KINDS: [(&str, &str, &str); 5] = [
    ("cluster.karmada.io", "v1alpha1", "Cluster"),
    ("config.karmada.io", "v1alpha1", "ResourceInterpreterCustomization"),
    ("policy.karmada.io", "v1alpha1", "PropagationPolicy"),
    ("work.karmada.io", "v1alpha2", "ResourceBinding"),
    ("work.karmada.io", "v1alpha1", "Work"),
];

fn any(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

async fn karmada(planes: &Planes, settings: &Settings<'_>) -> Karmada {
    let hidden = || NO_HUB.to_owned();
    let Some(hub) = &planes.hub else {
        let (interpreters, bindings) = (Seen::NotAsked(hidden()), Seen::NotAsked(hidden()));
        return Karmada { version: Seen::NotAsked(hidden()), kinds: BTreeMap::new(), interpreters, bindings };
    };
    let version = async {
        let deployments: Api<Deployment> = Api::namespaced(settings.karmada.clone(), "karmada-system");
        let image = get(&deployments, "karmada-controller-manager").await.map(|found| deployment_facts(found).image);
        image.map(|image| tag(&image).to_owned())
    };
    let kinds = KINDS.map(async |(group, version, kind)| {
        let (all, one) = (any(hub, group, version, kind), ListParams::default().limit(1));
        (kind.to_owned(), patiently(all.list(&one)).await.map(|_| ()))
    });
    let interpreters = async {
        let all = any(hub, "config.karmada.io", "v1alpha1", "ResourceInterpreterCustomization");
        list(&all, None).await.map(|all| {
            let target = json!({ "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "WorkloadDeployment" });
            let ours = all.into_iter().filter(|one| one.data["spec"]["target"] == target);
            ours.map(|one| (one.name_any(), one.data["spec"].clone())).collect()
        })
    };
    let bindings = async {
        if settings.pre {
            return Seen::NotAsked(BEFORE.to_owned());
        }
        let all: Api<ResourceBinding> = Api::all(hub.clone());
        let some = patiently(all.list(&ListParams::default().limit(BINDINGS))).await;
        some.map(|some| {
            let asking = some.items.into_iter().map(BindingFacts::of).filter(|facts| facts.propagates);
            asking.fold(Bindings::default(), |sum, facts| Bindings {
                asking: sum.asking + 1,
                distributed: sum.distributed + usize::from(facts.distributed),
            })
        })
    };
    let (version, kinds, interpreters, bindings) =
        futures::join!(version, futures::future::join_all(kinds), interpreters, bindings);
    Karmada { version, kinds: kinds.into_iter().collect(), interpreters, bindings }
}

/// Returns the tag of an image; its whole name without one.
pub fn tag(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or_default();
    match image.rsplit_once(':') {
        Some((_, tag)) if !tag.contains('/') => tag,
        _ => image,
    }
}

async fn webhook(planes: &Planes) -> Webhook {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(planes.project.clone());
    let authorities = async {
        get(&all, "compute-validating").await.map(|configuration| {
            let hooks = configuration.webhooks.into_iter().flatten();
            hooks
                .map(|hook| {
                    let authority = hook.client_config.ca_bundle.map(|bundle| bundle.0);
                    (hook.name, authority.map_or(End::Missing, |pem| credentials::of_certificate(&pem)))
                })
                .collect()
        })
    };
    let (authorities, answer) = futures::join!(authorities, answer(planes));
    Webhook { authorities, answer }
}

/// Creates an invalid Workload as a dry run. Its name has a dot, which only the webhook refuses.
async fn answer(planes: &Planes) -> Answer {
    let name = format!("kubectl-compute.check-{}", Timestamp::now().as_microsecond());
    let workloads: Api<Workload> = Api::namespaced(planes.project.clone(), &planes.namespace);
    let Ok(workload) = serde_json::from_value::<Workload>(invalid(&name)) else { return Answer::NotAsked };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let began = Instant::now();
    let created = tokio::time::timeout(std::time::Duration::from_secs(15), workloads.create(&dry, &workload)).await;
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match created {
        Err(_) => Answer::Uncalled("no answer within 15 s".to_owned()),
        Ok(Ok(_)) => match get(&workloads, &name).await {
            Seen::Found(_) => Answer::Stored,
            _ => Answer::Accepted,
        },
        Ok(Err(kube::Error::Api(status))) => {
            let words = status.message.replace('\n', " ");
            if words.contains("denied the request") && words.contains("vworkload.kb.io") {
                Answer::Refused { millis }
            } else if words.contains("failed calling webhook") {
                Answer::Uncalled(words)
            } else if matches!(status.code, 401 | 403) {
                Answer::Denied(words)
            } else {
                Answer::Other(words)
            }
        }
        Ok(Err(error)) => Answer::Other(crate::seen::words(&error)),
    }
}

fn invalid(name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Workload", "metadata": { "name": name },
        "spec": {
            "template": { "spec": {
                "runtime": {
                    "resources": { "instanceType": "datumcloud/d1-standard-2" },
                    "sandbox": { "containers": [{ "name": "check", "image": "example.com/check:1" }] },
                },
                "networkInterfaces": [{ "network": { "name": "default" } }],
            } },
            "placements": [{ "name": "check", "cityCodes": ["zzz"], "scaleSettings": { "minReplicas": 1 } }],
        },
    })
}
