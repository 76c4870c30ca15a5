//! Access of a cell to the hub: its user there, a token, and the kubeconfig in its Secret.

use base64::{Engine, engine::general_purpose::STANDARD};
use compute_operator::plan::management::observed::cluster::ClusterFacts;
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{FIELD_MANAGER, SECRET};
use crate::{
    check::{
        credentials,
        roles::{NAMESPACE, documents},
    },
    flags::Global,
    planes,
    seen::words,
};

/// The user of one cell on the hub, with two names to replace.
const USER: &str = include_str!("../../../config/base/cell-access/user.yaml");

/// Days for which a token is requested.
pub const DAYS: i64 = 30;

/// Path of the token that the kubelet renews in the manager's pod.
const TOKEN_FILE: &str = "/etc/kubernetes/upstream/auth/token";

/// Returns the name of a cell's ServiceAccount on the hub.
pub fn account(name: &str) -> String {
    format!("compute-cell-{name}")
}

/// Returns the user name of a cell's ServiceAccount, as the subject of its tokens has it.
pub fn user_name(name: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{}", account(name))
}

/// Returns the objects on the hub that make up a cell's user. With `user`, that user is the subject instead of the
/// ServiceAccount.
pub fn objects(name: &str, uid: &str, user: Option<&str>) -> Vec<Value> {
    let mut objects = documents(&USER.replace("name-of-cell", name).replace("uid-of-cell", uid));
    if let Some(user) = user {
        objects.retain(|object| object["kind"] != "ServiceAccount");
        for binding in objects.iter_mut().filter(|object| object["kind"] == "ClusterRoleBinding") {
            binding["subjects"] = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]);
        }
    }
    objects
}

/// Checks that a context is the cell of a Cluster, by the uid of its namespace kube-system. Commands write only then.
///
/// # Errors
/// One line for the user.
pub fn is_cell_of(name: &str, cluster: &ClusterFacts, uid: &str) -> Result<(), String> {
    match &cluster.cell {
        Some(id) if id == uid => Ok(()),
        Some(id) => Err(format!(
            "Cluster {name} has spec.id {id}, and kube-system of the cell's context has the uid {uid}: give the context of that \
             Cluster, or let a rebuilt cluster join Karmada again"
        )),
        None => Err(format!("Cluster {name} has no spec.id: let it join Karmada again")),
    }
}

/// The address of the hub, as a kubeconfig names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// URL.
    pub server: String,
    /// Its authority, in base64. `None`: one that every system trusts.
    pub authority: Option<String>,
    /// Name in the server's certificate, if it differs from the URL's.
    pub name: Option<String>,
}

impl Endpoint {
    /// Returns the endpoint of a context of the user's kubeconfig, with another server if one is given.
    ///
    /// # Errors
    /// One line for the user.
    pub fn given(global: &Global, context: &str, server: Option<&str>) -> Result<Self, String> {
        let kubeconfig = planes::kubeconfig(global.kubeconfig.as_deref())?;
        let endpoint = Self::of(&kubeconfig, context)?;
        Ok(Self { server: server.map_or(endpoint.server, str::to_owned), ..endpoint })
    }

    /// Returns the endpoint of a context.
    ///
    /// # Errors
    /// One line for the user.
    pub fn of(kubeconfig: &Kubeconfig, context: &str) -> Result<Self, String> {
        let missing = || format!("the kubeconfig has no cluster for context {context}");
        let named = kubeconfig.contexts.iter().find(|one| one.name == context).and_then(|one| one.context.as_ref());
        let named = named.ok_or_else(missing)?;
        let cluster = kubeconfig.clusters.iter().find(|one| one.name == named.cluster);
        let cluster = cluster.and_then(|one| one.cluster.as_ref()).ok_or_else(missing)?;
        let authority = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
            (Some(data), _) => Some(data.clone()),
            (None, Some(file)) => {
                let read = std::fs::read(file).map_err(|error| format!("{file} cannot be read: {error}"))?;
                Some(STANDARD.encode(read))
            }
            (None, None) => None,
        };
        let server = cluster.server.clone().ok_or_else(missing)?;
        Ok(Self { server, authority, name: cluster.tls_server_name.clone() })
    }

    /// Returns the endpoint of a stored kubeconfig's current context. An authority in a file of the pod cannot be read: it is the
    /// name of that file.
    pub fn stored(kubeconfig: &str) -> Option<Self> {
        let cluster = credentials::cluster(kubeconfig)?;
        let text = |field: &str| cluster[field].as_str().map(str::to_owned);
        let authority = text("certificate-authority-data").or_else(|| text("certificate-authority"));
        Some(Self { server: text("server")?, authority, name: text("tls-server-name") })
    }

    /// True if both have the same authority. Line breaks in the text of a certificate make no difference.
    pub fn has_authority_of(&self, other: &Self) -> bool {
        let certificates = |one: &Self| {
            let decode = |data: &String| {
                let text = STANDARD.decode(data.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                text.unwrap_or_else(|| data.clone()).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            };
            one.authority.as_ref().map(decode)
        };
        certificates(self) == certificates(other)
    }

    /// Returns a kubeconfig with this token. `None`: the manager's own token, which the kubelet renews.
    pub fn kubeconfig(&self, token: Option<&str>) -> String {
        let mut cluster = json!({ "server": self.server });
        if let Some(authority) = &self.authority {
            cluster["certificate-authority-data"] = json!(authority);
        }
        if let Some(name) = &self.name {
            cluster["tls-server-name"] = json!(name);
        }
        let user = token.map_or_else(|| json!({ "tokenFile": TOKEN_FILE }), |token| json!({ "token": token }));
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "hub",
            "clusters": [{ "name": "hub", "cluster": cluster }],
            "users": [{ "name": "compute", "user": user }],
            "contexts": [{ "name": "hub", "context": { "cluster": "hub", "user": "compute" } }],
        })
        .to_string()
    }
}

/// Checks that a stored kubeconfig names the server of the hub.
///
/// # Errors
/// The beginning of a line for the user, with one way out.
pub fn is_server_of(stored: Option<&Endpoint>, hub: &Endpoint) -> Result<(), String> {
    if stored.is_some_and(|stored| stored.server == hub.server) {
        return Ok(());
    }
    let named = stored.map_or("no server", |stored| &stored.server);
    Err(format!(
        "Secret {NAMESPACE}/{SECRET} names {named}, and this hub is {}: give --hub-server with the former",
        hub.server
    ))
}

/// Returns a kubeconfig with another token for the user of its current context. `None` if it has no token there.
pub fn with_token(kubeconfig: &str, token: &str) -> Option<String> {
    let mut file: Value = serde_saphyr::from_str(kubeconfig).ok()?;
    let contexts = file["contexts"].as_array()?;
    let context = contexts.iter().find(|entry| entry["name"] == file["current-context"])?;
    let name = context["context"]["user"].clone();
    let user = file["users"].as_array_mut()?.iter_mut().find(|entry| entry["name"] == name)?;
    user["user"]["token"].as_str()?;
    user["user"]["token"] = json!(token);
    Some(file.to_string())
}

/// Requests a token of the hub for a ServiceAccount.
///
/// # Errors
/// One line for the user.
pub async fn token(hub: &Client, account: &str) -> Result<String, String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(hub.clone(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(DAYS * 86400), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let made = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let made =
        made.map_err(|error| format!("hub: no token for ServiceAccount {NAMESPACE}/{account}: {}", words(&error)))?;
    made.status.and_then(|status| status.token).ok_or_else(|| format!("hub: no token for ServiceAccount {account}"))
}

/// Writes the kubeconfig into the cell's Secret.
///
/// # Errors
/// One line for the user.
pub async fn store(cell: &Client, kubeconfig: &str) -> Result<(), String> {
    let metadata =
        ObjectMeta { name: Some(SECRET.to_owned()), namespace: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
    let data = [("kubeconfig".to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))].into();
    let secret = Secret { metadata, data: Some(data), ..Secret::default() };
    let secrets: Api<Secret> = Api::namespaced(cell.clone(), NAMESPACE);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let written = secrets.patch(SECRET, &params, &Patch::Apply(&secret)).await;
    written.map(|_| ()).map_err(|error| format!("cell: Secret {NAMESPACE}/{SECRET}: {}", words(&error)))
}

/// Returns the API of an object's kind.
pub fn api(client: &Client, object: &Value) -> Option<Api<DynamicObject>> {
    let (group, version) = match object["apiVersion"].as_str()?.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", object["apiVersion"].as_str()?),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, object["kind"].as_str()?));
    Some(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// Applies an object.
///
/// # Errors
/// One line for the user.
pub async fn apply(plane: &str, client: &Client, object: &Value) -> Result<(), String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("{plane}: {} {name}", object["kind"].as_str().unwrap_or_default());
    let api = api(client, object).ok_or_else(|| format!("{what} has no kind"))?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .map(|_| ())
        .map_err(|error| format!("{what}: {}", words(&error)))
}

/// True if the pods of a manager see a changed Secret without a restart: they mount it as a folder.
pub fn is_reread(deployment: &Deployment) -> bool {
    let Some(pod) = &deployment.spec.template.spec else { return false };
    let holds = |volume: &&k8s_openapi::api::core::v1::Volume| {
        let direct = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref()) == Some(SECRET);
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        direct || sources.filter_map(|source| source.secret.as_ref()).any(|secret| secret.name == SECRET)
    };
    let volumes: Vec<&str> = pod.volumes.iter().flatten().filter(holds).map(|volume| &*volume.name).collect();
    let mut mounts = pod.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.any(|mount| volumes.contains(&&*mount.name) && mount.sub_path.is_none() && mount.sub_path_expr.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_those_of_the_manifest_for_this_cell() {
        let names = |objects: &[Value]| {
            let name = |object: &Value| {
                format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
            };
            objects.iter().map(name).collect::<Vec<_>>()
        };
        let own = objects("dfw-1", "5b1c", None);
        assert_eq!(
            names(&own),
            [
                "ServiceAccount/compute-cell-dfw-1",
                "ClusterRole/compute-cell-dfw-1",
                "ClusterRoleBinding/compute-cell-dfw-1",
                "ClusterRoleBinding/compute-cell-federation-dfw-1",
            ]
        );
        assert_eq!(own[1]["rules"][0]["resourceNames"], json!(["5b1c"]));
        let trusted = objects("dfw-1", "5b1c", Some("dfw-1:system:serviceaccount:a:b"));
        assert_eq!(trusted.len(), 3);
        assert_eq!(trusted[2]["subjects"][0]["name"], "dfw-1:system:serviceaccount:a:b");
    }

    #[test]
    fn kubeconfig_gets_another_token_and_keeps_the_rest() {
        let endpoint =
            Endpoint { server: "https://hub:5443".to_owned(), authority: Some("QQ==".to_owned()), name: None };
        let old = endpoint.kubeconfig(Some("old"));
        let new = with_token(&old, "new").unwrap();
        assert_eq!(new, endpoint.kubeconfig(Some("new")));
        assert_eq!(with_token(&endpoint.kubeconfig(None), "new"), None, "the kubelet renews it");
        assert_eq!(with_token("garbage: [", "new"), None);
    }

    #[test]
    fn stored_endpoint_is_that_of_the_current_context_and_its_authority_is_compared_as_text() {
        let endpoint = |authority: Option<&str>| Endpoint {
            server: "https://hub:5443".to_owned(),
            authority: authority.map(|text| STANDARD.encode(text)),
            name: Some("n".to_owned()),
        };
        let one = endpoint(Some("BEGIN\nQQ==\nEND\n"));
        assert_eq!(Endpoint::stored(&one.kubeconfig(Some("t"))), Some(one.clone()));
        assert_eq!(Endpoint::stored("garbage: ["), None);
        for (other, same) in [
            (endpoint(Some("BEGIN\r\nQQ==\r\nEND")), true),
            (endpoint(Some("BEGIN\nQg==\nEND\n")), false),
            (endpoint(None), false),
        ] {
            assert_eq!(one.has_authority_of(&other), same, "{other:?}");
        }
        assert!(endpoint(None).has_authority_of(&endpoint(None)));
    }

    #[test]
    fn endpoint_is_that_of_the_context() {
        let file = |cluster: Value| -> Kubeconfig {
            serde_json::from_value(json!({
                "contexts": [{ "name": "hub", "context": { "cluster": "c", "user": "u" } }],
                "clusters": [{ "name": "c", "cluster": cluster }],
            }))
            .unwrap()
        };
        let given =
            file(json!({ "server": "https://hub", "certificate-authority-data": "QQ==", "tls-server-name": "n" }));
        let endpoint = Endpoint::of(&given, "hub").unwrap();
        assert_eq!((&*endpoint.server, endpoint.name.as_deref()), ("https://hub", Some("n")));
        assert!(Endpoint::of(&given, "other").unwrap_err().contains("other"));
        let unreadable = file(json!({ "server": "https://hub", "certificate-authority": "/nowhere/ca.crt" }));
        assert!(Endpoint::of(&unreadable, "hub").unwrap_err().starts_with("/nowhere/ca.crt"));
    }

    #[test]
    fn secret_in_a_folder_is_reread_and_one_file_is_not() {
        let deployment = |mount: Value| -> Deployment {
            serde_json::from_value(json!({ "spec": { "selector": {}, "template": { "spec": {
                "containers": [{ "name": "manager", "volumeMounts": [mount] }],
                "volumes": [{ "name": "upstream", "projected": { "sources": [{ "secret": { "name": SECRET } }] } }],
            } } } }))
            .unwrap()
        };
        assert!(is_reread(&deployment(json!({ "name": "upstream", "mountPath": "/a" }))));
        assert!(!is_reread(&deployment(json!({ "name": "upstream", "mountPath": "/a", "subPath": "kubeconfig" }))));
        assert!(!is_reread(&deployment(json!({ "name": "other", "mountPath": "/a" }))));
    }
}
