//! `cell join`: what exists, what to write, and the writes.

use std::{fmt::Write as _, io::Write};

use compute_operator::{
    api::{
        karmada::Cluster,
        meta::label,
        names::{CityCode, dns_label},
    },
    plan::management::observed::cluster::ClusterFacts,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    rbac::v1::ClusterRole,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    FIELD_MANAGER, Join, SECRET,
    access::{self, DAYS, Endpoint, account, objects, user_name},
    cell_client,
};
use crate::{
    check::{
        credentials::{self, End},
        definitions::differs,
        roles::{NAMESPACE, Role},
    },
    exit::Exit,
    flags::Global,
    output::Output,
    planes::Planes,
    screen::{Screen, age},
    seen::{Seen, get, list, patiently, words},
};

/// Seconds of a token that is kept.
const KEPT_FROM: i64 = 7 * 86400;
/// Audience of the token that the kubelet renews.
const AUDIENCE: &str = "https://karmada-apiserver.karmada-system.svc.cluster.local:5443";

/// What the hub and the cell show.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    now: Timestamp,
    /// Name of the Cluster.
    name: String,
    /// Code of the city.
    city: String,
    /// The hub, as the cell is to reach it.
    endpoint: Endpoint,
    /// Issuer of the cell's tokens, if the hub is to trust it.
    issuer: Option<Seen<String>>,
    /// Uid of the cell.
    uid: Seen<String>,
    /// Member clusters.
    clusters: Seen<Vec<(String, ClusterFacts)>>,
    /// The role of cells on the hub.
    role: Seen<()>,
    /// The objects that make up the user, as they are on the hub.
    existing: Vec<Seen<Value>>,
    /// The managers' namespace in the cell.
    namespace: Seen<()>,
    /// The Secret in the cell.
    secret: Seen<Stored>,
}

/// What the cell's Secret has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    endpoint: Option<Endpoint>,
    /// User of its token.
    user: Option<String>,
    /// Uid of the ServiceAccount of its token.
    #[serde(default)]
    account: Option<String>,
    end: End,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `hub` or `cell`.
    plane: String,
    /// The object.
    object: String,
    /// What is done with it.
    action: Action,
    /// Details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
}

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Action {
    Create,
    Add,
    Replace,
    Keep,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Keep => "keep",
        }
    }
}

/// All steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Name of the Cluster.
    name: String,
    /// The steps.
    steps: Vec<Step>,
    /// What the user has to know.
    notes: Vec<String>,
}

/// Runs the command.
pub async fn run(
    global: &Global,
    (planes, hub, context): (&Planes, &Client, &str),
    args: &Join,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let usage = |error| (Exit::Usage, error);
    dns_label(&args.name).map_err(|why| (Exit::Usage, format!("{:?} is no name of a Cluster: {why}", args.name)))?;
    let city =
        CityCode::parse(&args.city).map_err(|why| (Exit::Usage, format!("{:?} is no city: {why}", args.city)))?;
    let cell = cell_client(planes, &args.name).map_err(usage)?;
    let failed = |error| (Exit::CouldNotAsk, error);
    let endpoint = Endpoint::given(global, context, args.hub_server.as_deref()).map_err(failed)?;
    let facts = Facts::read(hub, &cell, args, &city, &endpoint).await;
    let plan = Plan::of(&facts).map_err(|error| (Exit::Platform, error))?;
    output.print(out, &plan, |screen| text(&plan, args.dry_run, screen))?;
    if !args.dry_run {
        execute(&plan, &facts, hub, &cell, &endpoint).await.map_err(failed)?;
    }
    Ok(Exit::Well)
}

impl Facts {
    async fn read(hub: &Client, cell: &Client, args: &Join, city: &CityCode, endpoint: &Endpoint) -> Self {
        let namespaces: Api<Namespace> = Api::all(cell.clone());
        let (uid, namespace) = futures::join!(get(&namespaces, "kube-system"), get(&namespaces, NAMESPACE));
        let uid = uid.map(|namespace| namespace.uid().unwrap_or_default());
        let issuer = if args.trust_issuer { Some(issuer(cell).await) } else { None };
        let clusters: Api<Cluster> = Api::all(hub.clone());
        let roles: Api<ClusterRole> = Api::all(hub.clone());
        let (clusters, role) = futures::join!(list(&clusters, None), get(&roles, Role::CellOnHub.name()));
        let clusters = clusters.map(|all| all.into_iter().map(|one| (one.name_any(), ClusterFacts::of(one))).collect());
        let mut facts = Self {
            now: Timestamp::now(),
            name: args.name.clone(),
            city: city.as_str().to_owned(),
            endpoint: endpoint.clone(),
            issuer,
            uid,
            clusters,
            role: role.map(|_| ()),
            namespace: namespace.map(|_| ()),
            ..Self::default()
        };
        for object in facts.objects() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let seen = match access::api(hub, &object) {
                Some(api) => get(&api, name).await.map(|live| json!(live)),
                None => Seen::Unknown,
            };
            facts.existing.push(seen);
        }
        let secrets: Api<Secret> = Api::namespaced(cell.clone(), NAMESPACE);
        facts.secret = get(&secrets, SECRET).await.map(|secret| Stored::of(&secret));
        facts
    }

    /// Returns the objects that make up the cell's user.
    fn objects(&self) -> Vec<Value> {
        let uid = self.uid.found().map_or("", String::as_str);
        objects(&self.name, uid, self.user().as_deref())
    }

    /// True if the ServiceAccount of a stored token exists. A token that names no uid counts as one of the present ServiceAccount.
    fn has_account_of(&self, stored: &Stored) -> bool {
        let objects = self.objects();
        let mut accounts = objects.iter().zip(&self.existing).filter(|(object, _)| object["kind"] == "ServiceAccount");
        accounts.any(|(_, live)| {
            let uid = live.found().map(|live| live["metadata"]["uid"].as_str().unwrap_or_default());
            uid.is_some_and(|uid| stored.account.as_deref().is_none_or(|account| account == uid))
        })
    }

    /// Returns the user of the cell if the hub trusts the issuer of the cell's tokens.
    fn user(&self) -> Option<String> {
        self.issuer.as_ref().map(|_| format!("{}:system:serviceaccount:{NAMESPACE}:compute-manager", self.name))
    }
}

impl Stored {
    fn of(secret: &Secret) -> Self {
        let text = secret.data.as_ref().and_then(|data| data.get("kubeconfig"));
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default();
        let user = credentials::user(&text);
        let token = user.as_ref().and_then(|user| user["token"].as_str());
        Self {
            endpoint: Endpoint::stored(&text),
            user: token.and_then(credentials::subject),
            account: token.and_then(credentials::account_uid),
            end: credentials::of_kubeconfig(&text),
        }
    }
}

/// Reads the issuer of a cluster's tokens.
async fn issuer(cell: &Client) -> Seen<String> {
    let Ok(request) = http::Request::get("/.well-known/openid-configuration").body(Vec::new()) else {
        return Seen::Unknown;
    };
    match patiently(cell.request::<Value>(request)).await {
        Seen::Found(answer) => answer["issuer"].as_str().map_or(Seen::Absent, |issuer| Seen::Found(issuer.to_owned())),
        other => other.map(|_| String::new()),
    }
}

impl Plan {
    /// Decides the steps.
    ///
    /// # Errors
    /// One line for the user: why the cell cannot join.
    pub fn of(facts: &Facts) -> Result<Self, String> {
        let cluster = preconditions(facts)?;
        let mut steps = Vec::new();
        let step =
            |plane: &str, object: String, action, note: String| Step { plane: plane.to_owned(), object, action, note };
        for (object, live) in facts.objects().iter().zip(&facts.existing) {
            let action = match live {
                Seen::Found(live) if differs(object, live, "").is_none() => Action::Keep,
                Seen::Found(_) => Action::Replace,
                seen if seen.is_absent() => Action::Create,
                seen => return Err(format!("hub: {}", seen.hidden().unwrap_or_default())),
            };
            let word = |field: &Value| field.as_str().unwrap_or_default().to_owned();
            let kind = word(&object["kind"]);
            let note = if kind == "ClusterRole" {
                format!("uid {}", facts.uid.found().map_or("", String::as_str))
            } else {
                String::new()
            };
            steps.push(step("hub", format!("{kind} {}", word(&object["metadata"]["name"])), action, note));
        }
        let labelled = if cluster.label.is_some() { Action::Keep } else { Action::Add };
        let label = format!("{}={}", label::TOPOLOGY_CITY, cluster.label.as_deref().unwrap_or(&facts.city));
        steps.push(step("hub", format!("Cluster {}", facts.name), labelled, format!("label {label}")));
        let made = if facts.namespace.is_absent() { Action::Create } else { Action::Keep };
        steps.push(step("cell", format!("Namespace {NAMESPACE}"), made, String::new()));
        let (action, note) = secret(facts)?;
        steps.push(step("cell", format!("Secret {NAMESPACE}/{SECRET}"), action, note));
        Ok(Self { name: facts.name.clone(), steps, notes: notes(facts) })
    }

    fn action(&self, object: &str) -> Option<Action> {
        self.steps.iter().find(|step| step.object == object).map(|step| step.action)
    }
}

/// Returns the Cluster of the cell if it may join.
fn preconditions(facts: &Facts) -> Result<&ClusterFacts, String> {
    let Facts { name, city, .. } = facts;
    let hidden =
        |what: &str, why: Option<String>| format!("{what}: {}", why.unwrap_or_else(|| "it is not served".to_owned()));
    let clusters = facts.clusters.found().ok_or_else(|| hidden("hub: Clusters", facts.clusters.hidden()))?;
    let cluster = clusters.iter().find(|(one, _)| one == name).map(|(_, facts)| facts);
    let cluster = cluster
        .ok_or_else(|| format!("the hub has no Cluster {name}: first let it join Karmada (karmadactl join {name})"))?;
    let uid = facts.uid.found().ok_or_else(|| hidden("cell: Namespace kube-system", facts.uid.hidden()))?;
    access::is_cell_of(name, cluster, uid)?;
    match &cluster.city {
        Some(other) if other.as_str() != city => {
            return Err(format!(
                "Cluster {name} has the city {other}: drain it first (kubectl compute cell drain {name}), then change its label"
            ));
        }
        None if cluster.label.is_some() => {
            let label = cluster.label.as_deref().unwrap_or_default();
            return Err(format!(
                "Cluster {name} has the label {}={label:?}, which is no city: remove it",
                label::TOPOLOGY_CITY
            ));
        }
        _ => {}
    }
    match &facts.role {
        Seen::Found(()) => Ok(cluster),
        seen if seen.is_absent() => {
            Err(format!("the hub has no ClusterRole {}: first apply config/overlays/hub there", Role::CellOnHub.name()))
        }
        seen => Err(hidden("hub: ClusterRoles", seen.hidden())),
    }
}

/// Decides about the Secret.
fn secret(facts: &Facts) -> Result<(Action, String), String> {
    let new = match &facts.issuer {
        Some(_) => "token of the cell's own cluster, renewed by the kubelet".to_owned(),
        None => format!("token of {}, {DAYS} d", account(&facts.name)),
    };
    let stored = match &facts.secret {
        Seen::Found(stored) => stored,
        seen if seen.is_absent() => return Ok((Action::Create, new)),
        seen => return Err(format!("cell: Secret {NAMESPACE}/{SECRET}: {}", seen.hidden().unwrap_or_default())),
    };
    access::is_server_of(stored.endpoint.as_ref(), &facts.endpoint)
        .map_err(|why| format!("cell: {why}, or delete the Secret first"))?;
    let trusts = stored.endpoint.as_ref().is_some_and(|stored| stored.has_authority_of(&facts.endpoint));
    let own = user_name(&facts.name);
    match (&facts.issuer, stored.end) {
        (Some(_), End::Renewed) if trusts => Ok((Action::Keep, new)),
        (None, End::Renewed) => Err(format!(
            "cell: Secret {NAMESPACE}/{SECRET} has a token that the kubelet renews: give --trust-issuer to keep it, or delete \
             the Secret first"
        )),
        _ if !trusts => Ok((Action::Replace, format!("{new}; now it has the authority of another hub"))),
        (None, End::Token(Some(_))) if stored.user.as_deref() == Some(&*own) && !facts.has_account_of(stored) => {
            Ok((Action::Replace, format!("{new}; the present one is of a ServiceAccount that was deleted")))
        }
        (None, End::Token(Some(at))) if stored.user.as_deref() == Some(&*own) => {
            let left = at.duration_since(facts.now).as_secs();
            if left > KEPT_FROM {
                return Ok((Action::Keep, format!("its token ends in {}", age(facts.now, at))));
            }
            let ends = if left > 0 { format!("ends in {}", age(facts.now, at)) } else { "has ended".to_owned() };
            Ok((Action::Replace, format!("{new}; the present one {ends}")))
        }
        _ => Ok((Action::Replace, format!("{new}; now it has another credential"))),
    }
}

fn notes(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    let others = facts.clusters.found().into_iter().flatten().filter(|(name, other)| {
        *name != facts.name
            && !other.is_leaving()
            && other.city.as_ref().is_some_and(|city| city.as_str() == facts.city)
    });
    let others: Vec<&str> = others.map(|(name, _)| name.as_str()).collect();
    if !others.is_empty() {
        notes.push(format!(
            "{} is on {} too: the city stays there until that Cluster is drained.",
            facts.city,
            others.join(", ")
        ));
    }
    if ["//127.", "//localhost", "//[::1]"].iter().any(|local| facts.endpoint.server.contains(local)) {
        notes.push(format!(
            "The cell has to reach the hub as {}. If it cannot, give --hub-server.",
            facts.endpoint.server
        ));
    }
    match &facts.issuer {
        Some(Seen::Found(issuer)) => notes.push(format!(
            "The hub needs this entry in the file of --authentication-config, under jwt:\n  \
             - issuer: {{ url: \"{issuer}\", audiences: [\"{AUDIENCE}\"] }}\n    \
             claimMappings: {{ username: {{ claim: sub, prefix: \"{}:\" }} }}",
            facts.name
        )),
        Some(_) => {
            notes.push("The issuer of the cell's tokens cannot be read: see its --service-account-issuer.".to_owned());
        }
        None => {}
    }
    notes
}

async fn execute(plan: &Plan, facts: &Facts, hub: &Client, cell: &Client, endpoint: &Endpoint) -> Result<(), String> {
    for (object, step) in facts.objects().iter().zip(&plan.steps) {
        if step.action != Action::Keep {
            access::apply("hub", hub, object).await?;
        }
    }
    if plan.action(&format!("Cluster {}", facts.name)) == Some(Action::Add) {
        let clusters: Api<Cluster> = Api::all(hub.clone());
        let patch = json!({ "metadata": { "labels": { label::TOPOLOGY_CITY: facts.city } } });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let done = clusters.patch_metadata(&facts.name, &params, &Patch::Merge(patch)).await;
        done.map_err(|error| format!("hub: Cluster {}: {}", facts.name, words(&error)))?;
    }
    if plan.action(&format!("Namespace {NAMESPACE}")) == Some(Action::Create) {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        access::apply("cell", cell, &namespace).await?;
    }
    if plan.action(&format!("Secret {NAMESPACE}/{SECRET}")) == Some(Action::Keep) {
        return Ok(());
    }
    let token = match &facts.issuer {
        Some(_) => None,
        None => Some(access::token(hub, &account(&facts.name)).await?),
    };
    access::store(cell, &endpoint.kubeconfig(token.as_deref())).await
}

fn text(plan: &Plan, dry_run: bool, screen: Screen) -> String {
    let rows = plan.steps.iter().map(|step| {
        let Step { plane, object, action, note } = step;
        vec![plane.clone(), object.clone(), action.word().to_owned(), note.clone()]
    });
    let mut text = screen.table(&rows.collect::<Vec<_>>());
    for note in &plan.notes {
        let _ = writeln!(text, "{note}");
    }
    if dry_run {
        text.push_str("Nothing is written: --dry-run.\n");
    } else {
        let _ = writeln!(
            text,
            "Then apply your overlay of config/overlays/cell there, and check: kubectl compute check --wait=3m"
        );
    }
    text
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
