//! End of tokens and certificates in Secrets. Only the time is kept, never a credential.

use std::collections::BTreeMap;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use compute_operator::io::server::expiry_of_pem;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The end of one credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// A token that ends at this time. `None`: it names no end.
    Token(Option<Timestamp>),
    /// A certificate that ends at this time. `None`: it cannot be read.
    Certificate(Option<Timestamp>),
    /// A token file, which the kubelet renews.
    Renewed,
    /// A program or password gives the credential.
    Other,
    /// There is none, or the content cannot be read.
    Missing,
}

/// The ServiceAccount that a token is for, as the token says. Its signature is not checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Account {
    /// Returns the ServiceAccount of a kubeconfig's token. `None` if it has another credential.
    pub fn of_kubeconfig(kubeconfig: &str) -> Option<Self> {
        let user = user(kubeconfig)?;
        let claims = claims(user["token"].as_str()?)?;
        let of = &claims["kubernetes.io"];
        let word = |field: &Value| field.as_str().map(str::to_owned);
        let account = &of["serviceaccount"];
        Some(Self { namespace: word(&of["namespace"])?, name: word(&account["name"])?, uid: word(&account["uid"])? })
    }
}

/// Returns the user of a kubeconfig's current context.
pub fn user(kubeconfig: &str) -> Option<Value> {
    of_current_context(kubeconfig, "users", "user")
}

/// Returns the cluster of a kubeconfig's current context.
pub fn cluster(kubeconfig: &str) -> Option<Value> {
    of_current_context(kubeconfig, "clusters", "cluster")
}

/// Returns the entry of a list that a kubeconfig's current context names.
fn of_current_context(kubeconfig: &str, list: &str, field: &str) -> Option<Value> {
    let file: Value = serde_saphyr::from_str(kubeconfig).ok()?;
    let entry = |list: &str, name: &Value| {
        let entries = file[list].as_array()?;
        entries.iter().find(|entry| entry["name"] == *name).cloned()
    };
    let context = entry("contexts", &file["current-context"])?;
    Some(entry(list, &context["context"][field])?[field].clone())
}

/// Returns the end of the credential in a kubeconfig.
pub fn of_kubeconfig(kubeconfig: &str) -> End {
    let Some(user) = user(kubeconfig) else { return End::Missing };
    if let Some(token) = user["token"].as_str().filter(|token| !token.is_empty()) {
        return of_token(token);
    }
    if let Some(data) = user["client-certificate-data"].as_str() {
        return of_certificate(&STANDARD.decode(data).unwrap_or_default());
    }
    let has = |field: &str| user[field].is_string() || user[field].is_object();
    if has("tokenFile") {
        End::Renewed
    } else if ["client-certificate", "exec", "auth-provider", "password"].into_iter().any(has) {
        End::Other
    } else {
        End::Missing
    }
}

/// Returns the end of a certificate.
pub fn of_certificate(pem: &[u8]) -> End {
    End::Certificate(expiry_of_pem(pem).and_then(|at| Timestamp::from_second(at).ok()))
}

/// Returns the end of a token. Its signature is not checked.
pub fn of_token(token: &str) -> End {
    End::Token(claims(token).and_then(|claims| Timestamp::from_second(claims["exp"].as_i64()?).ok()))
}

/// Returns the user name that a token of a ServiceAccount is for.
pub fn subject(token: &str) -> Option<String> {
    claims(token)?["sub"].as_str().map(str::to_owned)
}

/// Returns the uid of the ServiceAccount that a token is for. A token of a deleted ServiceAccount is not valid, also if there is a
/// new one of the same name.
pub fn account_uid(token: &str) -> Option<String> {
    claims(token)?["kubernetes.io"]["serviceaccount"]["uid"].as_str().map(str::to_owned)
}

fn claims(token: &str) -> Option<Value> {
    let payload = token.trim().split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}

/// Returns the ServiceAccount of the token in a Secret with a kubeconfig.
pub fn hub_account(data: &BTreeMap<String, ByteString>) -> Option<Account> {
    Account::of_kubeconfig(&String::from_utf8_lossy(&data.get("kubeconfig")?.0))
}

/// Returns the ends of the credentials in a Secret, by key.
pub fn of_secret(data: &BTreeMap<String, ByteString>) -> BTreeMap<String, End> {
    let end = |key: &str, value: &[u8]| {
        let text = String::from_utf8_lossy(value);
        match key {
            "kubeconfig" => Some(of_kubeconfig(&text)),
            "token" => Some(of_token(&text)),
            "ca.crt" | "tls.crt" => Some(of_certificate(value)),
            _ => None,
        }
    };
    data.iter().filter_map(|(key, value)| Some((key.clone(), end(key, &value.0)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn token(claims: &Value) -> String {
        format!("e30.{}.signature", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn kubeconfig(user: &Value) -> String {
        json!({
            "current-context": "there", "contexts": [{ "name": "there", "context": { "cluster": "c", "user": "u" } }],
            "clusters": [{ "name": "c", "cluster": { "server": "https://hub:5443" } }],
            "users": [{ "name": "other", "user": { "token": "x" } }, { "name": "u", "user": user }],
        })
        .to_string()
    }

    #[test]
    fn end_is_that_of_the_current_contexts_user() {
        let at = |seconds| Some(Timestamp::from_second(seconds).unwrap());
        let good =
            token(&json!({ "exp": 1_800_000_000, "sub": "system:serviceaccount:compute-system:compute-cell-a" }));
        for (user, expected) in [
            (json!({ "token": good }), End::Token(at(1_800_000_000))),
            (json!({ "token": "opaque" }), End::Token(None)),
            (json!({ "tokenFile": "/x" }), End::Renewed),
            (json!({ "exec": {} }), End::Other),
            (json!({ "client-certificate-data": "bm90IG9uZQ==" }), End::Certificate(None)),
            (json!({}), End::Missing),
        ] {
            assert_eq!(of_kubeconfig(&kubeconfig(&user)), expected, "{user}");
        }
        assert_eq!(of_kubeconfig("garbage: ["), End::Missing);
        assert_eq!(subject(&good).unwrap(), "system:serviceaccount:compute-system:compute-cell-a");
        assert_eq!(cluster(&kubeconfig(&json!({}))).unwrap()["server"], "https://hub:5443");
        let of = json!({ "namespace": "n", "serviceaccount": { "name": "a", "uid": "1" } });
        let bound = kubeconfig(&json!({ "token": token(&json!({ "kubernetes.io": of })) }));
        let account = Account { namespace: "n".into(), name: "a".into(), uid: "1".into() };
        assert_eq!(Account::of_kubeconfig(&bound), Some(account));
        assert_eq!(Account::of_kubeconfig(&kubeconfig(&json!({ "token": good }))), None);
    }

    #[test]
    fn ends_of_a_secret_name_no_content() {
        let certificate = include_bytes!("../../../config/samples/platform/authority/ca.crt");
        let bytes = |text: &[u8]| ByteString(text.to_vec());
        let token = token(&json!({ "exp": 1_800_000_000 }));
        let data = [("ca.crt", bytes(certificate)), ("token", bytes(token.as_bytes())), ("tls.key", bytes(b"secret"))];
        let ends = of_secret(&data.map(|(key, value)| (key.to_owned(), value)).into());
        assert_eq!(ends.keys().collect::<Vec<_>>(), ["ca.crt", "token"]);
        let text = serde_json::to_string(&ends).unwrap();
        assert!(!text.contains(&token) && text.contains("2027-01-15"), "{text}");
    }
}
