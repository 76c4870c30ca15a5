//! Names from an API server in memory.

use std::sync::Mutex;

use http::{Request, Response, header::ACCEPT};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// Requests, each with its path and the forms that it accepts.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// Returns a client of an API server that gives these answers, one after the other.
fn api(answers: Vec<(u16, Value)>) -> (Client, Asked) {
    let asked = Asked::default();
    let (seen, answers) = (Arc::clone(&asked), Mutex::new(answers.into_iter()));
    let service = tower::service_fn(move |request: Request<Body>| {
        let accept =
            request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default().to_owned();
        seen.lock().unwrap().push((request.uri().to_string(), accept));
        let (code, answer) = answers.lock().unwrap().next().expect("so many requests are expected");
        let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
        std::future::ready(Ok::<_, std::convert::Infallible>(response.unwrap()))
    });
    (Client::new(service, "default"), asked)
}

fn part(names: &[&str], next: Option<&str>) -> (u16, Value) {
    let items: Vec<Value> = names
        .iter()
        .map(|name| json!({ "metadata": { "name": name, "labels": { label::TOPOLOGY_CITY: format!("of-{name}") } } }))
        .collect();
    let list = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": { "continue": next },
        "items": items,
    });
    (200, list)
}

fn denied() -> (u16, Value) {
    (403, json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no" }))
}

async fn names(source: Source, answers: Vec<(u16, Value)>) -> (Vec<String>, Vec<(String, String)>) {
    let (client, asked) = api(answers);
    let (say, names) = mpsc::channel();
    read(client, "demo", source, &say).await;
    drop(say);
    let names = gather(&names, Instant::now() + Duration::from_secs(1));
    let asked = asked.lock().unwrap().clone();
    (names, asked)
}

#[tokio::test]
async fn each_source_is_one_list_of_metadata() {
    let of = |source, path: &str| (source, format!("{path}?&limit=500"));
    let compute = "/apis/compute.datumapis.com/v1alpha/namespaces/demo";
    for (source, path) in [
        of(Source::Workloads, &format!("{compute}/workloads")),
        of(Source::Deployments, &format!("{compute}/workloaddeployments")),
        of(Source::Instances, &format!("{compute}/instances")),
        of(Source::Secrets, "/api/v1/namespaces/demo/secrets"),
        of(Source::ConfigMaps, "/api/v1/namespaces/demo/configmaps"),
        of(Source::Namespaces, "/api/v1/namespaces"),
        of(Source::ManagerNamespaces, "/api/v1/namespaces"),
        of(Source::Clusters, "/apis/cluster.karmada.io/v1alpha1/clusters"),
        of(Source::Cities, "/apis/cluster.karmada.io/v1alpha1/clusters"),
    ] {
        let (names, asked) = names(source, vec![part(&["a", "b"], None)]).await;
        let expected = if source == Source::Cities { ["of-a", "of-b"] } else { ["a", "b"] };
        assert_eq!(names, expected, "{source:?}");
        assert_eq!(asked.iter().map(|(path, _)| &**path).collect::<Vec<_>>(), [path], "{source:?}");
        for (_, accept) in asked {
            assert!(
                accept.split(',').all(|form| form.contains("as=PartialObjectMetadataList")),
                "{source:?} must not read values: {accept}"
            );
        }
    }
}

#[tokio::test]
async fn names_of_many_answers_are_put_together_and_kept_if_a_later_one_fails() {
    let (all, asked) = names(Source::Secrets, vec![part(&["a"], Some("t")), part(&["b"], None)]).await;
    assert_eq!(all, ["a", "b"]);
    assert!(asked[1].0.ends_with("limit=500&continue=t"), "{asked:?}");
    let (some, _) = names(Source::Secrets, vec![part(&["a"], Some("t")), denied()]).await;
    assert_eq!(some, ["a"]);
    let (none, _) = names(Source::Secrets, vec![denied()]).await;
    assert_eq!(none, Vec::<String>::new());
}

#[test]
fn names_are_waited_for_only_so_long() {
    let (say, names) = mpsc::channel();
    say.send(vec!["a".to_owned()]).unwrap();
    let began = Instant::now();
    assert_eq!(gather(&names, began + Duration::from_millis(100)), ["a"], "what came in time");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");
    drop(say);
}

#[test]
fn programs_for_credentials_cannot_ask_the_user() {
    let text = r"
apiVersion: v1
kind: Config
users:
- name: ada
  user: { exec: { apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: IfAvailable } }
- name: bob
  user: { token: x }
";
    let silent = silent(Kubeconfig::from_yaml(text).unwrap());
    let exec = silent.auth_infos[0].auth_info.as_ref().unwrap().exec.as_ref().unwrap();
    assert_eq!(exec.interactive_mode, Some(ExecInteractiveMode::Never));
}

#[test]
fn kinds_of_the_commands_are_those_that_they_take() {
    for (kind, expected) in KINDS {
        assert_eq!(source(kind), Some(expected), "{kind}");
    }
    for (kind, expected) in [("workloads.compute.datumapis.com", Source::Workloads), ("cm", Source::ConfigMaps)] {
        assert_eq!(source(kind), Some(expected), "{kind}");
    }
    assert_eq!(source("pod"), None);
}
