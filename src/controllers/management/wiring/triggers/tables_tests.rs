//! Tables of changes and of the keys that each concerns, over caches with few objects.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        compute::{InstanceSpec, Workload},
        karmada::{BindingSnapshot, PropagationPolicy},
        meta::label,
        names::Template,
        user_list::UserList,
    },
    controllers::{
        compact::{PackedDeployment, PackedInstance, PackedWorkload},
        management::{Context, fixtures},
    },
    io::{
        clients::ControlPlane,
        store::{Incoming, Store},
    },
    plan::{
        Delta, NamespaceFacts,
        management::observed::{
            cluster::ClusterFacts,
            facts::{BindingFacts, CompanionFacts},
        },
    },
};

/// Everything in the hub namespace.
const ALL: &str = "federator api, federator web, policy dfw, policy ord, companion Secret/db";
/// The originals of all copies.
const ORIGINALS: &str = "federator api, federator web";
/// The Instance that a cell asks for.
const ASKED: &str = "projector web-0";
/// Everything in the project's namespace. The hub has one Instance of it, and the project shows another.
const OWN: &str = "workload w, workload waiting, federator api, federator web, policy dfw, policy ord, projector api-0, \
                   projector web-0, companion Secret/db";

/// The keys as text, by queue.
fn shown(keys: &Keys) -> String {
    let place = |key: &InstanceKey| match key {
        InstanceKey::Place(place) => format!("projector {}", place.object.name),
        InstanceKey::Unresolved(object) => format!("unresolved {}", object.name),
    };
    let all = keys.workload.iter().map(|key| format!("workload {}", key.object.name));
    let all = all.chain(keys.federator.iter().map(|key| format!("federator {}", key.object.name)));
    let all = all.chain(keys.policy.iter().map(|key| format!("policy {}", key.city)));
    let all = all.chain(keys.projector.iter().map(place));
    let all = all.chain(keys.companion.iter().map(|key| format!("companion {}", key.data_ref)));
    all.chain(keys.clusters.then(|| "clusters".to_owned())).collect::<Vec<_>>().join(", ")
}

fn joined(ctx: &[&str]) -> String {
    ctx.join(", ")
}

fn deployment(edit: impl FnOnce(&mut Value)) -> WorkloadDeployment {
    let mut object = json!({
        "metadata": { "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1", "generation": 1 },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
            ] } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    });
    edit(&mut object);
    serde_json::from_value(object).unwrap()
}

/// A deployment in another city, without references.
fn api() -> WorkloadDeployment {
    deployment(|object| {
        object["metadata"]["name"] = json!("api");
        object["spec"]["cityCode"] = json!("ord");
        object["spec"]["template"]["spec"]["runtime"] = json!({ "resources": { "instanceType": "t" } });
    })
}

fn copy(city: &str, expected: &[&str]) -> WorkloadDeployment {
    deployment(|object| {
        object["metadata"]["namespace"] = json!("ns-u");
        object["metadata"]["labels"] = json!({ label::TOPOLOGY_CITY: city });
        let expected = json!(expected).to_string();
        object["metadata"]["annotations"] = json!({ annotation::EXPECTED_REFERENCED_DATA: expected });
    })
}

fn policy(is_managed: bool, kinds: &[&str]) -> PropagationPolicy {
    let selectors: Vec<_> = kinds.iter().map(|kind| json!({ "apiVersion": "v1", "kind": kind })).collect();
    let manager = if is_managed { "compute-operator" } else { "another" };
    serde_json::from_value(json!({
        "metadata": { "labels": { label::MANAGED_BY: manager } }, "spec": { "resourceSelectors": selectors },
    }))
    .unwrap()
}

fn users(users: &[&str]) -> CompanionFacts {
    let users = UserList::parse(Some(&json!(users).to_string()));
    CompanionFacts { uid: "u".into(), users, ..CompanionFacts::default() }
}

/// An Instance of `web` on the hub. Its labels name this project.
fn instance(project: &str, name: &str) -> Instance {
    let mut instance = Instance::new(name, InstanceSpec::default());
    let labels = [
        (label::UPSTREAM_CLUSTER, project),
        (label::UPSTREAM_NAMESPACE, "shop"),
        (label::WORKLOAD_DEPLOYMENT_NAME, "web"),
    ];
    instance.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    (instance.metadata.namespace, instance.metadata.uid) = (Some("ns-u".into()), Some(name.into()));
    instance
}

/// An Instance that a cell asks for.
fn asked() -> Instance {
    let mut instance = instance("cluster-alpha", "web-0");
    let annotations = [(annotation::CLAIMED_BY_CELL.to_owned(), "cell".to_owned())];
    instance.metadata.annotations = Some(annotations.into());
    let owner = json!([{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": "web", "uid": "u",
                         "controller": true }]);
    instance.metadata.owner_references = serde_json::from_value(owner).unwrap();
    instance
}

fn put<V: Send + Sync + 'static, I: Clone + Eq + std::hash::Hash + Send + Sync + 'static>(
    store: &Store<V, I>,
    objects: impl IntoIterator<Item = (&'static str, &'static str, V)>,
) {
    static VERSION: AtomicU64 = AtomicU64::new(1);
    let version = VERSION.fetch_add(1, Ordering::Relaxed);
    let incoming = |(namespace, name, value): (&str, &str, V)| {
        let key = ObjectKey::new(namespace, name);
        Incoming { key, uid: name.into(), version, value: Some(Arc::new(value)) }
    };
    store.replace(objects.into_iter().map(incoming).collect(), version);
}

fn mirror(project: &str) -> NamespaceFacts {
    let labels = [(label::UPSTREAM_CLUSTER, project), (label::UPSTREAM_NAMESPACE, "shop")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    NamespaceFacts { labels, ..NamespaceFacts::default() }
}

/// The project `alpha` with the namespace `shop`, and its hub namespace `ns-u`.
fn world() -> (Arc<Context>, Arc<ProjectCache>) {
    let ctx = Context::of_tests();
    let plane = ControlPlane::new("alpha", fixtures::unreachable());
    let stop = tokio_util::sync::CancellationToken::new();
    let project = Arc::new(ProjectCache::new(&ProjectName::new("alpha"), plane, true, None, stop));
    let workload = |name: &str, reason: &str| -> Workload {
        let conditions = json!([{ "type": "Available", "status": "False", "reason": reason, "message": "",
                                  "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        let placement = json!({ "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } });
        let template =
            json!({ "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } });
        serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": name, "uid": name, "resourceVersion": "1" },
            "spec": { "placements": [placement], "template": template },
            "status": { "conditions": conditions, "placements": [{ "name": "p", "conditions": conditions }] },
        }))
        .unwrap()
    };
    let waiting = PackedWorkload::of(workload("waiting", "DeploymentNameTaken"));
    put(&project.workloads, [("shop", "w", PackedWorkload::of(workload("w", "Ready"))), ("shop", "waiting", waiting)]);
    let packed = PackedDeployment::of;
    put(&project.deployments, [("shop", "web", packed(deployment(|_| ()))), ("shop", "api", packed(api()))]);
    project.namespaces.replace(vec![fixtures::namespace("shop", "u", &[])], 1);
    put(&project.instances, [("shop", "api-0", PackedInstance::of_project(instance("cluster-alpha", "api-0")))]);
    ctx.projects.insert(project.clone());
    let hub = &ctx.hub;
    put(&hub.namespaces, [("", "ns-u", mirror("cluster-alpha"))]);
    put(&hub.copies, [("ns-u", "web", packed(copy("dfw", &["Secret/db"]))), ("ns-u", "api", packed(copy("ord", &[])))]);
    let of_city = || policy(true, &["WorkloadDeployment"]);
    put(&hub.policies, [("ns-u", "city-dfw", of_city()), ("ns-u", "city-ord", of_city())]);
    put(hub.companions(SourceKind::ConfigMap), []);
    put(hub.companions(SourceKind::Secret), [("ns-u", "db", users(&["shop/web"]))]);
    let binding = BindingFacts {
        template: Template::Deployment("web".into()),
        policy: Some("city-dfw".into()),
        clusters: vec!["a".to_owned()].into(),
        ..BindingFacts::default()
    };
    put(&hub.bindings, [("ns-u", "web-workloaddeployment", binding)]);
    put(&hub.clusters, [("", "a", ClusterFacts::labelled("dfw"))]);
    put(&hub.instances, [("ns-u", "web-0", PackedInstance::of_hub(asked()))]);
    (ctx, project)
}

/// A change of an object on the hub.
fn on_hub<'a, V>(name: &'a str, old: Option<&'a V>, new: Option<&'a V>) -> Delta<'a, V> {
    Delta { namespace: "ns-u", name, old, new }
}

/// A change of `web` in the project.
fn of_web<'a, V>(old: Option<&'a V>, new: Option<&'a V>) -> Delta<'a, V> {
    Delta { namespace: "shop", name: "web", old, new }
}

fn assert_table(rows: impl IntoIterator<Item = (&'static str, Keys, String)>) {
    for (change, keys, expected) in rows {
        assert_eq!(shown(&keys), expected, "{change}");
    }
}

#[tokio::test]
async fn change_of_a_copy_concerns_its_original_its_cities_and_its_companions() {
    let (ctx, _) = world();
    let (dfw, ord) = (copy("dfw", &["Secret/db"]), copy("ord", &["Secret/db", "Secret/key"]));
    let invalid = copy("not/a city", &[]);
    let after = |old, new| ctx.triggers.after_copy(&on_hub("web", old, new));
    assert_table([
        ("created", after(None, Some(&dfw)), "federator web, policy dfw, companion Secret/db".into()),
        ("status changed", after(Some(&dfw), Some(&dfw)), "federator web".into()),
        ("moved", after(Some(&dfw), Some(&ord)), "federator web, policy dfw, policy ord, companion Secret/key".into()),
        ("deleted", after(Some(&dfw), None), "federator web, policy dfw, companion Secret/db".into()),
        ("created with an invalid city", after(None, Some(&invalid)), "federator web".into()),
    ]);
}

#[tokio::test]
async fn change_of_a_policy_concerns_its_city_and_a_change_of_phase_the_namespace() {
    let (ctx, _) = world();
    let (ours, claims) = (policy(true, &["WorkloadDeployment"]), policy(true, &["WorkloadDeployment", "Secret"]));
    let foreign = policy(false, &["WorkloadDeployment"]);
    let after = |old, new| ctx.triggers.after_policy(&on_hub("city-dfw", old, new));
    let all = || "federator api, federator web, policy dfw, companion Secret/db".to_owned();
    assert_table([
        ("created", after(None, Some(&ours)), all()),
        ("deleted", after(Some(&ours), None), all()),
        ("claims removed", after(Some(&claims), Some(&ours)), all()),
        ("taken over", after(Some(&foreign), Some(&ours)), all()),
        ("placement changed", after(Some(&ours), Some(&ours)), "policy dfw".into()),
        (
            "foreign policy deleted",
            ctx.triggers.after_policy(&on_hub("foreign", Some(&ours), None)),
            joined(&[ORIGINALS, "companion Secret/db"]),
        ),
    ]);
}

#[tokio::test]
async fn change_of_a_companion_concerns_its_source_and_the_users_for_which_it_changed() {
    let (ctx, _) = world();
    let (one, two) = (users(&["shop/web"]), users(&["shop/web", "shop/api"]));
    let claimed = CompanionFacts { policy: Some("city-dfw".into()), ..one.clone() };
    let cluster_claimed = CompanionFacts { cluster_policy: Some("wide".into()), ..one.clone() };
    let terminating = CompanionFacts { terminating: true, ..two.clone() };
    let undecodable = CompanionFacts { users: UserList::default(), ..one.clone() };
    let many = users(&["more than 32"]);
    let many_terminating = CompanionFacts { terminating: true, ..many.clone() };
    let after = |old, new| ctx.triggers.after_companion(SourceKind::Secret, &on_hub("db", old, new));
    let web = || "federator web, companion Secret/db".to_owned();
    let both = || joined(&[ORIGINALS, "companion Secret/db"]);
    assert_table([
        ("created", after(None, Some(&one)), web()),
        ("user added", after(Some(&one), Some(&two)), "federator api, companion Secret/db".into()),
        ("content changed", after(Some(&two), Some(&two)), "companion Secret/db".into()),
        ("claimed", after(Some(&one), Some(&claimed)), "federator web, policy dfw, companion Secret/db".into()),
        ("claimed by a cluster policy", after(Some(&one), Some(&cluster_claimed)), web()),
        ("terminating", after(Some(&two), Some(&terminating)), both()),
        ("list undecodable", after(Some(&one), Some(&undecodable)), web()),
    ]);
    // Its users are those that reference it, or whose copies expect it.
    put(ctx.hub.companions(SourceKind::Secret), [("ns-u", "db", many.clone())]);
    assert_table([
        ("too many users to name", after(Some(&one), Some(&many)), web()),
        ("one more of many", after(Some(&many), Some(&many)), "companion Secret/db".into()),
        ("terminating with many", after(Some(&many), Some(&many_terminating)), web()),
        ("deleted with many", after(Some(&many), None), web()),
    ]);
    // A list that may lack users does not name them either.
    let open = users(&["nobody any more"]);
    let open_terminating = CompanionFacts { terminating: true, ..open.clone() };
    put(ctx.hub.companions(SourceKind::Secret), [("ns-u", "db", open.clone())]);
    assert_table([
        ("may lack users", after(Some(&one), Some(&open)), web()),
        ("terminating without names", after(Some(&open), Some(&open_terminating)), web()),
    ]);
}

#[tokio::test]
async fn change_of_a_binding_concerns_its_city_and_the_parents_for_which_it_changed() {
    let (ctx, _) = world();
    let required_by = |parents: &[&str], on: &str| -> Vec<BindingSnapshot> {
        let clusters = vec![serde_json::from_value(json!({ "name": on })).unwrap()];
        parents.iter().map(|by| BindingSnapshot { name: (*by).into(), clusters: clusters.clone() }).collect()
    };
    let of = |template: Template, parents: &[&str]| BindingFacts {
        template,
        required_by: required_by(parents, "a"),
        ..BindingFacts::default()
    };
    let claimed = Some("city-dfw".into());
    let web = BindingFacts { policy: claimed.clone(), ..of(Template::Deployment("web".into()), &[]) };
    let newer = BindingFacts { version: "2".into(), ..web.clone() };
    let distributed =
        BindingFacts { propagates: true, distributed: true, dependencies: Some(vec![]).into(), ..web.clone() };
    let moved = BindingFacts { clusters: vec!["b".into()].into(), ..web.clone() };
    let scheduled = BindingFacts { scheduled_by: Some("digest".into()), ..web.clone() };
    let (of_web, of_api) = ("web-workloaddeployment", "api-workloaddeployment");
    let companion = |parents: &[&str]| of(Template::Companion(DataRef::secret("db")), parents);
    let (secret, others) = (companion(&[of_web]), companion(&[of_api, "foreign-deployment"]));
    let more = companion(&[of_web, of_api]);
    let applied = BindingFacts { applied: [("a".to_owned(), Ok(()))].into(), ..more.clone() };
    let elsewhere = BindingFacts { applied: [("b".to_owned(), Ok(()))].into(), ..more.clone() };
    let sent = BindingFacts { required_by: required_by(&[of_web], "b"), ..secret.clone() };
    let with_claim = BindingFacts { policy: claimed, ..secret.clone() };
    let foreign = of(Template::Foreign, &[]);
    let after = |old, new| ctx.triggers.after_binding(&on_hub(of_web, old, new));
    let db = |old, new| ctx.triggers.after_binding(&on_hub("db-secret", old, new));
    let placed = || "federator web, policy dfw".to_owned();
    let all_users = || "federator web, companion Secret/db".to_owned();
    assert_table([
        ("created", after(None, Some(&web)), joined(&[&placed(), ASKED])),
        ("moved: its new cell may ask for Instances", after(Some(&web), Some(&moved)), joined(&[&placed(), ASKED])),
        ("unchanged", after(Some(&web), Some(&web)), String::new()),
        ("version changed", after(Some(&web), Some(&newer)), String::new()),
        ("scheduled", after(Some(&web), Some(&scheduled)), placed()),
        ("dependencies distributed", after(Some(&web), Some(&distributed)), placed()),
        ("companion's created", db(None, Some(&secret)), all_users()),
        ("one more parent", db(Some(&secret), Some(&more)), "federator api".into()),
        ("other parents", db(Some(&secret), Some(&others)), ORIGINALS.into()),
        ("parent moved", db(Some(&secret), Some(&sent)), "federator web".into()),
        ("applied", db(Some(&more), Some(&applied)), ORIGINALS.into()),
        ("applied on a cluster without parents", db(Some(&more), Some(&elsewhere)), String::new()),
        ("claimed", db(Some(&secret), Some(&with_claim)), "policy dfw, companion Secret/db".into()),
        ("companion's deleted", db(Some(&secret), None), all_users()),
        ("foreign", ctx.triggers.after_binding(&on_hub("x-deployment", None, Some(&foreign))), String::new()),
    ]);
    put(
        ctx.hub.companions(SourceKind::Secret),
        [("ns-u", "db", CompanionFacts { policy: Some("city-dfw".into()), ..users(&["shop/web"]) })],
    );
    let of_claimed = "federator api, companion Secret/db".to_owned();
    assert_table([("one more parent of a claimed companion", db(Some(&secret), Some(&more)), of_claimed)]);
}

/// Each new user of a shared companion woke all of its users, and every policy.
#[tokio::test]
async fn binding_shared_by_thousands_with_one_more_parent_concerns_that_parent() {
    let (ctx, _) = world();
    let name = |n: usize| format!("web-{n}-workloaddeployment");
    let shared = |users: usize| BindingFacts {
        template: Template::Companion(DataRef::secret("db")),
        required_by: (0..users).map(|n| BindingSnapshot { name: name(n), clusters: vec![] }).collect(),
        ..BindingFacts::default()
    };
    for users in [100, 1_000, 10_000] {
        let (before, now) = (shared(users), shared(users + 1));
        let newer = BindingFacts { version: "2".into(), ..before.clone() };
        let after = |new| ctx.triggers.after_binding(&on_hub("db-secret", Some(&before), Some(new)));
        assert_table([
            ("one more", after(&now), format!("federator web-{users}")),
            ("version changed", after(&newer), String::new()),
        ]);
    }
}

#[tokio::test]
async fn change_of_a_cluster_concerns_its_deployments_and_its_cities() {
    let (ctx, _) = world();
    let cluster = |draining| ClusterFacts { draining, ..ClusterFacts::labelled("dfw") };
    let (stays, drained) = (cluster(false), cluster(true));
    let relabelled = ClusterFacts::labelled("ord");
    let rebuilt = ClusterFacts { cell: Some("uid-2".into()), ..stays.clone() };
    let dead = ClusterFacts { dead: true, draining: true, ..rebuilt.clone() };
    let after = |old, new| ctx.triggers.after_cluster(&Delta { namespace: "", name: "a", old, new });
    let of_dfw = || "federator web, policy dfw, clusters".to_owned();
    let with_asked = || "federator web, policy dfw, projector web-0, clusters".to_owned();
    assert_table([
        ("drained", after(Some(&stays), Some(&drained)), of_dfw()),
        ("drain cancelled", after(Some(&drained), Some(&stays)), of_dfw()),
        ("declared dead", after(Some(&rebuilt), Some(&dead)), with_asked()),
        ("another cell", after(Some(&stays), Some(&rebuilt)), with_asked()),
        (
            "relabelled",
            after(Some(&stays), Some(&relabelled)),
            joined(&[ORIGINALS, "policy dfw", "policy ord", "clusters"]),
        ),
        ("unchanged", after(Some(&stays), Some(&stays)), String::new()),
    ]);
}

#[tokio::test]
async fn change_of_a_hub_namespace_concerns_the_namespaces_that_it_mirrors() {
    let (ctx, _) = world();
    let (ours, other) = (mirror("cluster-alpha"), mirror("cluster-other"));
    let (unlabelled, terminating) = (NamespaceFacts::default(), NamespaceFacts { terminating: true, ..ours.clone() });
    let after = |old, new| ctx.triggers.after_namespace(&Delta { namespace: "", name: "ns-u", old, new });
    assert_table([
        ("created", after(None, Some(&ours)), OWN.into()),
        ("label removed: the project writes it again", after(Some(&ours), Some(&unlabelled)), OWN.into()),
        ("given to another project", after(Some(&ours), Some(&other)), OWN.into()),
        ("label restored", after(Some(&unlabelled), Some(&ours)), OWN.into()),
        ("terminating", after(Some(&ours), Some(&terminating)), OWN.into()),
        ("deleted", after(Some(&terminating), None), OWN.into()),
        ("unchanged", after(Some(&ours), Some(&ours)), String::new()),
        ("without a project", after(None, Some(&unlabelled)), String::new()),
        ("of an unknown project", after(None, Some(&other)), ALL.into()),
    ]);
}

#[tokio::test]
async fn change_of_a_hub_instance_concerns_every_place_that_it_named() {
    let (ctx, _) = world();
    ctx.projects.insert(fixtures::project("beta"));
    let named = |project: &str| PackedInstance::of_hub(instance(project, "web-0"));
    let (alpha, beta, unknown) = (named("cluster-alpha"), named("cluster-_beta"), named("cluster-unknown"));
    let after = |old, new| ctx.triggers.after_instance(&on_hub("web-0", old, new));
    assert_table([
        ("created", after(None, Some(&alpha)), "projector web-0".into()),
        ("relabelled", after(Some(&alpha), Some(&beta)), "projector web-0, projector web-0".into()),
        ("of an unknown project", after(Some(&alpha), Some(&unknown)), "projector web-0, unresolved web-0".into()),
        ("deleted", after(Some(&beta), None), "projector web-0".into()),
    ]);
}

/// Keys that waited for an undecodable object kept waiting after its deletion.
#[tokio::test]
async fn undecodable_object_mended_or_deleted_wakes_all_that_waited() {
    let (ctx, project) = world();
    let triggers = &ctx.triggers;
    let policies = joined(&[ORIGINALS, "policy dfw", "policy ord"]);
    assert_table([
        ("copy", triggers.copies_readable("ns-u"), ALL.into()),
        ("binding", triggers.bindings_readable("ns-u"), joined(&[&policies, "clusters"])),
        ("Cluster", triggers.clusters_readable(), joined(&[&policies, ASKED, "clusters"])),
        ("Instance", triggers.instances_readable("ns-u"), OWN.into()),
        ("deployment", triggers.deployments_readable(&project, "shop"), OWN.into()),
    ]);
}

#[tokio::test]
async fn change_of_a_deployment_concerns_what_it_refers_to_and_what_waits_for_it() {
    let (ctx, project) = world();
    let web = deployment(|_| ());
    let newer = deployment(|object| object["metadata"]["generation"] = json!(2));
    let recreated = deployment(|object| object["metadata"]["uid"] = json!("v"));
    let expecting = deployment(|object| {
        let expected = r#"["ConfigMap/settings"]"#;
        object["metadata"]["annotations"] = json!({ annotation::EXPECTED_REFERENCED_DATA: expected });
    });
    let unheard = deployment(|object| {
        object["status"] = json!({ "conditions": [{
            "type": "Available", "status": "Unknown", "reason": "ClusterNotReady", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
    });
    let owned = deployment(|object| {
        object["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "a/v1", "kind": "Workload", "name": "o", "uid": "o", "controller": true }]);
    });
    let after = |old, new| ctx.triggers.after_deployment(&project, &of_web(old, new));
    let created = "workload w, federator web, policy dfw, projector web-0, companion Secret/db";
    let deleted =
        "workload w, federator web, policy dfw, projector web-0, companion ConfigMap/settings, companion Secret/db";
    assert_table([
        ("created", after(None, Some(&web)), created.into()),
        ("status changed", after(Some(&web), Some(&web)), "workload w, federator web".into()),
        ("spec changed", after(Some(&web), Some(&newer)), "workload w, federator web, companion Secret/db".into()),
        ("recreated", after(Some(&web), Some(&recreated)), created.into()),
        (
            "cluster does not answer",
            after(Some(&web), Some(&unheard)),
            "workload w, federator web, projector web-0".into(),
        ),
        ("deleted", after(Some(&expecting), None), deleted.into()),
        ("owner changed", after(Some(&web), Some(&owned)), "workload w, federator web".into()),
    ]);
    // The Workload `waiting` waits for this name.
    let free = Delta { namespace: "shop", name: "waiting-p-dfw", old: Some(&api()), new: None };
    let keys = shown(&ctx.triggers.after_deployment(&project, &free));
    assert_eq!(keys, "workload w, workload waiting, federator waiting-p-dfw, policy ord");
}

/// Each new deployment had the policy of its city read all others of the city twice.
#[tokio::test]
async fn new_deployment_among_others_of_its_city_leaves_the_policy_that_covers_it() {
    let (ctx, project) = world();
    let selecting = |spelling: &str, kinds: &[&str]| {
        let mut policy = policy(true, kinds);
        let selected = json!({ "matchLabels": { label::TOPOLOGY_CITY: spelling } });
        policy.spec.resource_selectors[0].label_selector = serde_json::from_value(selected).unwrap();
        policy
    };
    let mut terminating = selecting("DFW", &["WorkloadDeployment"]);
    terminating.metadata.deletion_timestamp = deployment(|object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    })
    .metadata
    .deletion_timestamp;
    let leaving = deployment(|object| {
        object["metadata"]["name"] = json!("leaving");
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let (new, of_hub) = (deployment(|object| object["metadata"]["name"] = json!("new")), copy("DFW", &[]));
    let (web, web_on_hub) = (deployment(|_| ()), copy("dfw", &[]));
    let packed = PackedDeployment::of;
    let covering = || selecting("DFW", &["WorkloadDeployment"]);
    for (case, policy, other, expected) in [
        ("covered", covering(), Some(&web), (false, false)),
        ("another spelling", selecting("dfw", &["WorkloadDeployment"]), Some(&web), (true, true)),
        ("migrating", selecting("DFW", &["WorkloadDeployment", "Secret"]), Some(&web), (true, true)),
        ("policy terminating", terminating, Some(&web), (true, true)),
        ("alone", covering(), None, (true, true)),
        ("the other is terminating", covering(), Some(&leaving), (true, false)),
    ] {
        put(&ctx.hub.policies, [("ns-u", "city-dfw", policy)]);
        let (others, copies) = (
            other.map(|other| ("shop", "web", packed(other.clone()))),
            other.map(|_| ("ns-u", "web", packed(web_on_hub.clone()))),
        );
        put(&project.deployments, others.into_iter().chain([("shop", "new", packed(new.clone()))]));
        put(&ctx.hub.copies, copies.into_iter().chain([("ns-u", "new", packed(of_hub.clone()))]));
        let of_new = |old, new| Delta { namespace: "shop", name: "new", old, new };
        let concerns = |keys: Keys| !keys.policy.is_empty();
        let is_enqueued = (
            concerns(ctx.triggers.after_deployment(&project, &of_new(None, Some(&new)))),
            concerns(ctx.triggers.after_copy(&on_hub("new", None, Some(&of_hub)))),
        );
        assert_eq!(is_enqueued, expected, "{case}");
        assert!(concerns(ctx.triggers.after_deployment(&project, &of_new(Some(&new), None))), "{case}: deleted");
        assert!(concerns(ctx.triggers.after_copy(&on_hub("new", Some(&of_hub), None))), "{case}: copy deleted");
    }
    put(&ctx.hub.policies, [("ns-u", "city-dfw", covering())]);
    put(&ctx.hub.copies, [("ns-u", "web", packed(of_hub.clone())), ("ns-u", "new", packed(of_hub.clone()))]);
    let bound = ctx.triggers.after_copy(&on_hub("web", None, Some(&of_hub)));
    assert_eq!(shown(&bound), "federator web, policy dfw", "its binding was seen before it");
}

#[tokio::test]
async fn deployment_of_a_deleted_namespace_concerns_its_former_policy() {
    let (ctx, project) = world();
    project.namespaces.replace(Vec::new(), 2);
    let recorded = deployment(|object| {
        object["metadata"]["annotations"] = json!({ annotation::FEDERATION_NAMESPACE: "ns-9" });
    });
    let keys = ctx.triggers.after_deployment(&project, &of_web(Some(&recorded), None));
    let policies: Vec<String> = keys.policy.iter().map(ToString::to_string).collect();
    assert_eq!(policies, ["ns-9/dfw"]);
}

#[tokio::test]
async fn change_of_a_location_a_namespace_or_a_network_concerns_its_workloads() {
    let (ctx, project) = world();
    let triggers = &ctx.triggers;
    let (open, closed) = (CityCode::parse("dfw").ok(), None);
    let facts = NamespaceFacts::default();
    let paused = NamespaceFacts { paused: true, ..NamespaceFacts::default() };
    let namespace = |old, new| {
        triggers.after_own_namespace(&project, &Delta { namespace: "", name: "shop", old: Some(old), new: Some(new) })
    };
    let workloads = || "workload w, workload waiting".to_owned();
    let location = |old, new| project::after_location(&project, &of_web(Some(old), Some(new)));
    let network = |old, new| project::after_network(&project, &of_web(old, new));
    assert_table([
        ("location opens a city", location(&closed, &open), workloads()),
        ("location unchanged", location(&open, &open), String::new()),
        ("namespace", namespace(&facts, &paused), OWN.into()),
        ("namespace unchanged", namespace(&facts, &facts), String::new()),
        ("Network created", network(None, Some(&())), workloads()),
        ("Network changed", network(Some(&()), Some(&())), String::new()),
    ]);
}
