//! Reviews by an API server, which store nothing: our own identity, and the permissions of users. Also short lists.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use http::{Method, Request};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Error, apply::api_resource, clients::Connection, confidential::scrubbed, list};
use crate::plan::{Kind, admission::deployment::Own};

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(7);

const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKEN: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Returns our user on an API server. `plane` is for people.
///
/// # Errors
/// Also if the server names no user.
pub async fn own(connection: &Connection, plane: &str) -> Result<Own, Error> {
    let question = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let what = || format!("create selfsubjectreview in {plane}");
    let answer = post(connection, SELF, &question, what).await?;
    let text = |field: &str| answer["status"]["userInfo"][field].as_str().unwrap_or_default().to_owned();
    match text("username") {
        username if !username.is_empty() => Ok(Own { username, uid: text("uid") }),
        _ => Err(Error::Answer { call: what(), why: "it names no user".into() }),
    }
}

/// Sends a SubjectAccessReview.
///
/// # Errors
/// If there is no answer.
pub async fn access(connection: &Connection, plane: &str, review: &Value) -> Result<Value, Error> {
    post(connection, ACCESS, review, || format!("create subjectaccessreview in {plane}")).await
}

/// Sends a TokenReview of this token. The answer repeats the token, so the connection is one for confidential content.
///
/// # Errors
/// If there is no answer.
pub async fn token(connection: &Connection, plane: &str, token: &str) -> Result<Value, Error> {
    let question = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
    });
    let what = || format!("create tokenreview in {plane}");
    let client = connection.confidential().map_err(|why| Error::Answer { call: what(), why })?;
    send(connection, &client, TOKEN, &question, what).await.map_err(scrubbed)
}

/// Returns the uid of every object of a kind in a namespace, by name. Keeps nothing else of a page.
///
/// # Errors
/// If a page cannot be read.
pub async fn uids_in(
    connection: &Connection,
    plane: &str,
    kind: Kind,
    namespace: &str,
) -> Result<BTreeMap<String, String>, Error> {
    let resource = api_resource(kind);
    let api = || Api::<DynamicObject>::namespaced_with(connection.client(), namespace, &resource);
    let what = || format!("list {} in namespace {namespace} of {plane}", resource.plural);
    let mut found = BTreeMap::new();
    let page = |params| list::page_of_metadata(api(), params);
    let see = |PartialObjectMeta { metadata, .. }: PartialObjectMeta<DynamicObject>| {
        found.insert(metadata.name.unwrap_or_default(), metadata.uid.unwrap_or_default());
    };
    list::pages(connection, what, TIMEOUT, ListParams::default(), page, see).await?;
    Ok(found)
}

/// Returns every object of a kind on a control plane.
///
/// # Errors
/// If a page cannot be read.
pub async fn all<K>(connection: &Connection, plane: &str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let what = || format!("list {} in {plane}", K::plural(&()));
    let mut found = Vec::new();
    let page = |params| list::page(Api::<K>::all(connection.client()), params);
    list::pages(connection, what, TIMEOUT, ListParams::default(), page, |object| found.push(object)).await?;
    Ok(found)
}

async fn post(connection: &Connection, path: &str, body: &Value, what: impl Fn() -> String) -> Result<Value, Error> {
    send(connection, &connection.client(), path, body, what).await
}

async fn send(
    connection: &Connection,
    client: &Client,
    path: &str,
    body: &Value,
    what: impl Fn() -> String,
) -> Result<Value, Error> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|e| Error::Answer { call: what(), why: e.to_string() })?;
    connection.within(TIMEOUT, &what, client.request(request)).await
}
