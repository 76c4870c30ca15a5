use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, label},
        names,
        referenced::SourceKind,
    },
    controllers::{
        compact::PackedDeployment,
        management::{Context, Options, fixtures, projects::project_cache::ProjectCache},
    },
    io::{
        clients::{Connection, ControlPlane},
        health::Health,
        store::Incoming,
        stub_server::{StubServer, not_found},
        watch::Metadata,
    },
    metrics::Metrics,
    plan::{
        NamespaceFacts, Object,
        management::{
            collector::table::{Grace, Read},
            observed::facts::{BindingFacts, CompanionFacts},
        },
    },
};

const NAMED: [(&str, &str); 2] = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];

fn ctx() -> Arc<Context> {
    Context::new(fixtures::unreachable(), Options::of_tests(), Health::default(), Metrics::default())
}

fn metadata(metadata: &Value) -> Metadata {
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// A sweep undoes what claims have left on a companion, if no event did.
#[tokio::test(start_paused = true)]
async fn sweep_enqueues_every_companion() {
    let ctx = ctx();
    let hub = &ctx.hub;
    hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED)], 1);
    hub.policies.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    hub.copies.replace(Vec::new(), 1);
    let binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": { "name": "db-secret", "namespace": "ns-u", "uid": "b", "resourceVersion": "3" },
        "spec": { "resource": { "kind": "Secret", "name": "db" }, "clusters": [{ "name": "cell-dfw" }] },
    });
    let facts = BindingFacts::of(serde_json::from_value(binding).unwrap());
    let key = ObjectKey::new("ns-u", &names::binding_name("Secret", "db"));
    let incoming = Incoming { key, uid: "b".into(), version: 3, value: Some(Arc::new(facts)) };
    hub.bindings.replace(vec![incoming], 3); // without listeners there is no event
    assert_eq!(ctx.queues.companion.depth(), 0, "no event has enqueued it");
    let companion = metadata(&json!({
        "name": "db", "namespace": "ns-u", "uid": "c", "labels": { label::REFERENCED_DATA: "true" },
    }));
    let collector = ctx.collector();
    for _ in 0..2 {
        let mut lists = Lists::default();
        lists.see(&collector, SourceKind::Secret, &companion, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(ctx.queues.companion.depth(), 1, "each sweep has it looked at, once");
        let key = ctx.queues.companion.next().await;
        assert_eq!((&*key.namespace, key.data_ref.to_string()), ("web", "Secret/db".to_owned()));
        ctx.queues.companion.finish(key, crate::io::queue::Outcome::Done);
        tokio::time::advance(std::time::Duration::from_secs(1)).await; // it pauses after each look
    }
}

/// A companion without label, binding and last user was never found.
#[tokio::test]
async fn unlabelled_object_that_names_its_users_may_be_a_companion() {
    let ctx = ctx();
    let mut paused = fixtures::namespace("ns-p", "p", &NAMED);
    let facts = paused.value.take().map(|facts| NamespaceFacts { paused: true, ..(*facts).clone() });
    paused.value = facts.map(Arc::new);
    let theirs = fixtures::namespace("ns-t", "t", &[]);
    ctx.hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED), paused, theirs], 1);
    let collector = ctx.collector();
    let users = json!({ annotation::REFERENCED_BY: "[\"web/gone\"]" });
    for (what, namespace, annotations, seen, looked_at) in [
        ("it says who uses it", "ns-u", users.clone(), true, true),
        ("it does not", "ns-u", json!({}), true, false),
        ("clean-up is paused there", "ns-p", users.clone(), true, false),
        ("in a namespace that mirrors nothing", "ns-t", users.clone(), false, false),
        ("in a namespace that is not known", "default", users, false, false),
    ] {
        let other = metadata(&json!({ "name": "db", "namespace": namespace, "uid": "c", "annotations": annotations }));
        let mut lists = Lists::default();
        let lost = lists.see_other(&collector, SourceKind::Secret, &other);
        assert_eq!((lists.has_seen_sources(), lost.is_some()), (seen, looked_at), "{what}");
    }
}

/// A Work in the cell's namespace on the hub, of the deployment `web`.
fn work(namespace: &str, terminating: Option<&str>) -> ObjectMeta {
    serde_json::from_value(json!({
        "name": "web-1", "namespace": "karmada-es-cell-dfw", "uid": "w", "resourceVersion": "4",
        "deletionTimestamp": terminating,
        "annotations": {
            "resourcebinding.karmada.io/namespace": namespace,
            "resourcebinding.karmada.io/name": "web-workloaddeployment",
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn work_without_template_and_binding_is_forgotten_or_left() {
    const GONE: &str = "ns-0b0b2f5c-9d6c-4f2a-9a36-0f6c3a5c7c11";
    let ctx = ctx();
    let hub = &ctx.hub;
    hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED), fixtures::namespace("ns-t", "t", &[])], 1);
    hub.policies.replace(Vec::new(), 1);
    hub.copies.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    hub.bindings.replace(Vec::new(), 1);
    for kind in SourceKind::ALL {
        hub.companions(kind).replace(Vec::new(), 1);
    }
    let (collector, now) = (ctx.collector(), Now::read());
    let seen: BTreeSet<String> = ["w".to_owned()].into();
    let long_ago = Some("2026-01-01T00:00:00Z");
    let judge = |work: &ObjectMeta, seen: &BTreeSet<String>, settled: &BTreeSet<String>| {
        let lists = Lists::of_work(work);
        let forgotten = lists.works_without_template(&collector, seen)?;
        let left = lists.left_on_clusters(&collector, seen, settled, now)?;
        Some((forgotten.first().map(|found| (found.rule, found.paused)), left.len()))
    };
    hub.bindings.set_live(false);
    assert_eq!(judge(&work("ns-u", long_ago), &seen, &seen), None, "a watch of Karmada's objects fails");
    hub.bindings.set_live(true);
    let none = BTreeSet::new();
    for (what, work, seen, expected) in [
        ("once", work("ns-u", None), &none, (Some((Rule::Work, false)), 0)),
        ("twice", work("ns-u", None), &seen, (Some((Rule::Work, false)), 1)),
        ("terminating", work("ns-u", long_ago), &seen, (None, 1)),
        (
            "of a hub namespace that is gone: it is counted alone",
            work(GONE, None),
            &seen,
            (Some((Rule::Work, true)), 1),
        ),
        ("of another controller's namespace", work("ns-t", long_ago), &seen, (None, 0)),
        ("of no hub namespace", work("default", long_ago), &seen, (None, 0)),
    ] {
        assert_eq!(judge(&work, seen, &none), Some(expected), "{what}");
    }
    let settled = judge(&work("ns-u", None), &seen, &seen);
    assert_eq!(settled, Some((Some((Rule::Work, false)), 0)), "it is deleted, or a live read has found its template");
    let facts = Arc::new(BindingFacts::default());
    let key = ObjectKey::new("ns-u", "web-workloaddeployment");
    hub.bindings.replace(vec![Incoming { key, uid: "b".into(), version: 3, value: Some(facts) }], 3);
    assert_eq!(judge(&work("ns-u", None), &seen, &none), Some((None, 0)), "Karmada would make it again");
    let unlisted = Lists::default();
    assert!(unlisted.left_on_clusters(&collector, &seen, &none, now).is_none(), "Works could not be listed");
}

#[tokio::test]
async fn copy_without_an_original_in_its_namespace_is_lost() {
    let ctx = ctx();
    let other = fixtures::namespace("ns-other", "o", &NAMED);
    ctx.hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED), other], 1);
    let copies = [("ns-u", "api"), ("ns-u", "web"), ("ns-other", "web")];
    ctx.hub.copies.replace(copies.map(|(namespace, name)| fixtures::deployment(namespace, name)).into(), 1);
    let lost = |namespace: &str, name: &str| {
        let collector = ctx.collector();
        Owners::of(&collector).lost_copy(&ObjectKey::new(namespace, name)).map(|found| found.owner)
    };
    assert_eq!(lost("ns-u", "web"), None, "the project is not known");
    ctx.projects.insert(fixtures::project("shop"));
    assert_eq!(lost("ns-u", "api"), None, "its original is there");
    let original = Object::named::<WorkloadDeployment>("web", "web");
    assert_eq!(lost("ns-u", "web"), Some(Read::NotInProject(original)));
    assert_eq!(lost("ns-other", "web"), None, "the control plane of its namespace is unknown");
}

const PLANE: &str = "plane";

/// A namespace of the project or the hub, with its creation time.
fn namespace(name: &str, uid: &str, created: &str) -> Incoming<NamespaceFacts> {
    let facts = NamespaceFacts::of(
        serde_json::from_value(json!({
            "name": name, "uid": uid, "creationTimestamp": created,
            "labels": { label::UPSTREAM_CLUSTER: "cluster-shop", label::UPSTREAM_NAMESPACE: "web" },
            "annotations": { annotation::KEPT_BY: PLANE, annotation::PROJECT_CONTROL_PLANE: PLANE },
        }))
        .unwrap(),
    );
    Incoming { key: ObjectKey::new("", name), uid: uid.into(), version: 1, value: Some(Arc::new(facts)) }
}

/// A copy in `ns-u` with more metadata.
fn copy(name: &str, more: &Value) -> Incoming<PackedDeployment> {
    let incoming = fixtures::deployment("ns-u", name);
    let mut copy = json!(incoming.value.unwrap().open());
    copy["metadata"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let copy: WorkloadDeployment = serde_json::from_value(copy).unwrap();
    Incoming::new(&copy.clone(), Some(PackedDeployment::of(copy)))
}

/// A project of the control plane [`PLANE`], with these namespaces.
fn project(namespaces: Vec<Incoming<NamespaceFacts>>, connection: Connection) -> Arc<ProjectCache> {
    let (name, plane) = (ProjectName::new("shop"), ControlPlane::new("shop", connection));
    let project = ProjectCache::new(&name, plane, false, Some("shop"), CancellationToken::new());
    project.workloads.replace(Vec::new(), 1);
    project.deployments.replace(Vec::new(), 1);
    let itself = namespace("kube-system", PLANE, "2025-01-01T00:00:00Z");
    project.namespaces.replace(namespaces.into_iter().chain([itself]).collect(), 1);
    Arc::new(project)
}

/// Fills the hub's caches with the namespace `ns-u`, and these copies in it.
fn fill(ctx: &Arc<Context>, copies: Vec<Incoming<PackedDeployment>>) {
    let hub = &ctx.hub;
    hub.namespaces.replace(vec![namespace("ns-u", "h", "2026-01-01T00:00:00Z")], 1);
    hub.copies.replace(copies, 1);
    hub.policies.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    hub.bindings.replace(Vec::new(), 1);
    for kind in SourceKind::ALL {
        hub.companions(kind).replace(Vec::new(), 1);
    }
}

/// One copy of another owner kept the Secrets of a deleted namespace on the hub and in cells forever.
#[tokio::test]
async fn secrets_of_a_deleted_namespace_wait_only_for_copies_that_may_need_them() {
    let foreign = copy("web", &json!({ "labels": { label::UPSTREAM_NAMESPACE: "another" } }));
    let held = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"] });
    let unreadable = Incoming { value: None, ..copy("web", &json!({})) };
    let cases = [
        ("no copy is left", Vec::new(), true, 0),
        ("a deployment of another owner", vec![foreign], true, 0),
        ("a copy waits for its grace", vec![copy("web", &json!({}))], false, 0),
        ("an unreadable copy", vec![unreadable], false, 0),
        ("a finalizer holds a copy", vec![copy("web", &held)], false, 1),
    ];
    for (what, copies, is_lost, events) in cases {
        let ctx = ctx();
        ctx.projects.insert(project(Vec::new(), fixtures::unreachable()));
        fill(&ctx, copies);
        let secret = metadata(&json!({ "name": "db", "namespace": "ns-u", "uid": "s", "resourceVersion": "4" }));
        let facts = Arc::new(CompanionFacts::of(&secret.metadata));
        let key = ObjectKey::new("ns-u", "db");
        let incoming = Incoming { key, uid: "s".into(), version: 4, value: Some(facts) };
        ctx.hub.companions(SourceKind::Secret).replace(vec![incoming], 4);
        let collector = ctx.collector();
        let found = Owners::of(&collector).namespaces(Now::read().time);
        let rules: Vec<Rule> = found.lost.iter().map(|lost| lost.rule).collect();
        assert_eq!(rules, if is_lost { vec![Rule::Content] } else { Vec::new() }, "{what}");
        assert_eq!(found.events.len(), events, "{what}");
    }
}

#[tokio::test]
async fn copy_of_a_recreated_namespace_has_no_grace_and_one_of_a_restored_project_has() {
    for (what, created, replaced) in
        [("recreated", "2026-01-02T00:00:00Z", true), ("restored", "2025-12-01T00:00:00Z", false)]
    {
        let ctx = ctx();
        ctx.projects.insert(project(vec![namespace("web", "other", created)], fixtures::unreachable()));
        fill(&ctx, vec![copy("web", &json!({}))]);
        let collector = ctx.collector();
        let [found] = &Owners::of(&collector).lost_copies()[..] else { panic!("{what}: the copy is lost") };
        assert_eq!(found.grace == Grace::Nothing, replaced, "{what}");
        assert_eq!(found.owner, Read::NoNamespace { name: "web".into(), uid: "u".into() }, "{what}");
    }
}

/// The federator ends the grace with its next write, which may have to wait for data.
#[tokio::test]
async fn sweep_ends_the_grace_of_a_copy_with_its_original() {
    let ctx = ctx();
    let shop = project(vec![namespace("web", "u", "2025-12-01T00:00:00Z")], fixtures::unreachable());
    shop.deployments.replace(vec![fixtures::deployment("web", "api"), fixtures::deployment("web", "new")], 1);
    ctx.projects.insert(shop);
    let waits = json!({ "annotations": { annotation::STRANDED_SINCE: "2026-01-01T00:00:00Z" } });
    fill(&ctx, vec![copy("api", &waits), copy("new", &json!({})), copy("web", &waits)]);
    let collector = ctx.collector();
    let returned = Owners::of(&collector).returned_copies();
    let [(_, steps)] = &returned[..] else { panic!("{returned:?}") };
    let [Action::Hub(write)] = &steps[..] else { panic!("{steps:?}") };
    let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
    assert_eq!(write.object, Object::named::<WorkloadDeployment>("ns-u", "api"));
    assert!(body["metadata"]["annotations"][annotation::STRANDED_SINCE].is_null(), "{body}");
}

/// A context with this server as hub and project, and two copies in `ns-u` that wait since `since`.
fn served(url: &str, since: Option<&str>) -> Arc<Context> {
    let connection = || Connection::new(kube::Config::new(url.parse().unwrap())).unwrap();
    let ctx = Context::new(connection(), Options::of_tests(), Health::default(), Metrics::default());
    ctx.projects.insert(project(vec![namespace("web", "u", "2025-12-01T00:00:00Z")], connection()));
    let annotations = since.map_or_else(|| json!({}), |since| json!({ annotation::STRANDED_SINCE: since }));
    fill(&ctx, ["api", "web"].map(|name| copy(name, &json!({ "annotations": annotations }))).into());
    ctx
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no" }),
    )
}

/// Requests with this method, by the last part of their path.
fn requested(server: &StubServer, method: &str) -> Vec<String> {
    let seen = server.seen().into_iter().filter_map(|seen| {
        let path = seen.line.strip_prefix(&format!("{method} "))?.to_owned();
        Some(path.rsplit('/').next().unwrap_or_default().to_owned())
    });
    let mut seen: Vec<String> = seen.collect();
    seen.sort();
    seen
}

async fn collect_copies(ctx: &Arc<Context>, events: &mut SentEvents) -> Collected {
    let collector = ctx.collector();
    let found = Owners::of(&collector).lost_copies();
    let mut round =
        Round { now: Now::read(), namespaces: 1, present: BTreeMap::new(), silent: BTreeSet::new(), events };
    collector.collect(found, &mut round).await
}

#[tokio::test]
async fn sweep_reads_a_hub_namespace_once_before_it_deletes_copies_and_obeys_a_pause() {
    for paused in [false, true] {
        let server = StubServer::start(None, move |request| match request.line.split_once(' ') {
            Some(("GET", path)) if path.ends_with("/namespaces/ns-u") => {
                let metadata = json!({
                    "name": "ns-u", "uid": "h", "resourceVersion": "9", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": { label::UPSTREAM_CLUSTER: "cluster-shop", label::UPSTREAM_NAMESPACE: "web" },
                    "annotations": {
                        annotation::KEPT_BY: PLANE, annotation::PROJECT_CONTROL_PLANE: PLANE, annotation::PAUSE: paused.to_string(),
                    },
                });
                (200, json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata }))
            }
            Some(("GET", path)) => not_found("workloaddeployments", path.rsplit('/').next().unwrap_or_default()),
            _ => (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })),
        })
        .await;
        let ctx = served(&server.url, Some("2026-01-01T00:00:00Z"));
        let collected = collect_copies(&ctx, &mut SentEvents::default()).await;
        let deleted = requested(&server, "DELETE");
        let reads = requested(&server, "GET").into_iter().filter(|name| name == "ns-u").count();
        assert_eq!((deleted.len(), reads), (if paused { 0 } else { 2 }, 1), "paused: {paused}");
        assert_eq!(collected.waiting.len(), usize::from(paused), "paused: {paused}");
    }
}

/// Each failed read in a project was reported on the hub namespace as if the hub had refused a deletion.
#[tokio::test]
async fn hub_namespace_reports_refused_writes_only() {
    for (what, read, written, events, waiting) in [
        ("the note is accepted", 404, 200, 1, 1),
        ("the note is refused", 404, 403, 1, 0),
        ("the project fails", 500, 200, 0, 0),
    ] {
        let server = StubServer::start(None, move |request| match request.line.split_once(' ') {
            Some(("GET", path)) if read == 404 => {
                not_found("workloaddeployments", path.rsplit('/').next().unwrap_or_default())
            }
            Some(("GET", _)) => failure(500, "InternalError"),
            Some(("PATCH", _)) if written == 403 => failure(403, "Forbidden"),
            Some(("PATCH", _)) => (200, json!(fixtures::deployment("ns-u", "api").value.unwrap().open())),
            _ => (201, serde_json::from_str(&request.body).unwrap_or_default()),
        })
        .await;
        let ctx = served(&server.url, None);
        let mut sent = SentEvents::default();
        for _ in 0..2 {
            let collected = collect_copies(&ctx, &mut sent).await;
            assert_eq!(collected.waiting.len(), waiting, "{what}");
        }
        let posts: Vec<_> = server.seen().into_iter().filter(|seen| seen.line.starts_with("POST ")).collect();
        assert_eq!(posts.len(), events, "{what}: two copies and two sweeps send each Event once");
        let is_refusal = posts.iter().any(|post| post.body.contains("RemovalRefused"));
        assert_eq!(is_refusal, written == 403, "{what}");
    }
}

/// Without the list of Works, no companion was reconciled, and no binding was deleted.
#[tokio::test]
async fn sweep_without_a_list_of_works_runs_its_other_parts() {
    let server = StubServer::start(None, |request| {
        let page = |items: Value| {
            let metadata = json!({ "resourceVersion": "5" });
            (200, json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items }))
        };
        let corrupt = json!([{ "metadata": {
            "name": "corrupt", "namespace": "ns-u", "uid": "c", "resourceVersion": "4",
            "labels": { label::REFERENCED_DATA: "true" }, "annotations": { annotation::REFERENCED_BY: "no json" },
        } }]);
        let lost = json!([{ "metadata": {
            "name": "lost-configmap", "namespace": "ns-u", "uid": "b", "resourceVersion": "4",
            "annotations": { annotation::POLICY_NAME: "city-dfw" },
        } }]);
        match request.line.split_once(' ') {
            Some(("GET", path)) if path.ends_with("/works") => failure(500, "InternalError"),
            Some(("GET", path)) if path.ends_with("/v1/configmaps") => page(corrupt),
            Some(("GET", path)) if path.ends_with("/resourcebindings") => page(lost),
            Some(("GET", path)) if path.ends_with("/lost") => not_found("configmaps", "lost"),
            Some(("GET", _)) => page(json!([])),
            Some(("DELETE", _)) => (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })),
            _ => (201, serde_json::from_str(&request.body).unwrap_or_default()),
        }
    })
    .await;
    let ctx = served(&server.url, None);
    fill(&ctx, Vec::new());
    let mut memory = Memory { works: ["w".to_owned()].into(), ..Memory::default() };
    for _ in 0..2 {
        assert_eq!(ctx.collector().sweep_once(&mut memory, Now::read()).await, End::Error);
    }
    assert_eq!(requested(&server, "DELETE"), ["lost-configmap", "lost-configmap"], "in each sweep");
    assert_eq!(requested(&server, "POST").len(), 1, "the Event about the companion is sent once");
    assert!(memory.works.contains("w"), "what was found before is not forgotten");
    assert!(memory.bindings.contains("b"));
}
