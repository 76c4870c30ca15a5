//! Removes from an object what a stranger must not read: values of data, of environment variables and of unknown annotations,
//! keys, tokens and managed fields.

use std::collections::{BTreeMap, BTreeSet};

use compute_operator::api::{
    compute::{Instance, Workload, WorkloadDeployment},
    meta::annotation,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// Stands for a removed value.
pub const REMOVED: &str = "(removed)";

/// Shortest value that is also looked for in messages. A shorter one is in every message.
const SHORTEST: usize = 8;

/// Shortest part of a value, such as the key in `user:key`, and shortest annotation, that is looked for.
const SHORTEST_PART: usize = 16;

/// Domains of the annotations whose values are kept.
const KNOWN: [&str; 3] = ["datumapis.com", "datum.net", "karmada.io"];

/// Fields whose text is a secret, whatever has them.
const SECRET: [&str; 9] = [
    "token",
    "bearerToken",
    "password",
    "privateKey",
    "clientKey",
    "clientSecret",
    "kubeconfig",
    "userData",
    "proxyHeader",
];

/// Removes values, and counts them.
#[derive(Debug, Default)]
pub struct Redactor {
    /// Removed values, by which messages are searched.
    values: BTreeSet<String>,
    /// Number of removed values of each sort.
    pub removed: BTreeMap<&'static str, usize>,
}

impl Redactor {
    /// Learns the values of all documents, so that messages that repeat one lose it too, wherever they are.
    pub fn learned(documents: &[Value]) -> Self {
        let mut redactor = Self::default();
        for document in documents {
            redactor.clean(document);
        }
        redactor.removed.clear();
        redactor
    }

    /// Returns a document without the values.
    pub fn clean(&mut self, document: &Value) -> Value {
        match document {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.clean(item)).collect(),
            Value::Object(fields) => self.object(fields),
            other => other.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Value {
        let known = typed(fields);
        let fields = known.as_ref().unwrap_or(fields);
        let mut kept = Map::new();
        for (name, value) in fields {
            let value = match (name.as_str(), value) {
                ("managedFields", _) => {
                    self.count("managed fields");
                    continue;
                }
                ("data" | "binaryData" | "stringData", Value::Object(_)) => self.drop("data", value),
                ("annotations", Value::Object(annotations)) => self.annotations(annotations),
                ("env", Value::Array(items)) => items.iter().map(|item| self.env(item)).collect(),
                ("command" | "args", Value::Array(items)) => {
                    items.iter().map(|item| self.drop("commands", item)).collect()
                }
                ("manifests", Value::Array(items)) => items.iter().map(|item| self.manifest(item)).collect(),
                (name, value) if SECRET.contains(&name) => self.drop("tokens", value),
                (_, value) => self.clean(value),
            };
            kept.insert(name.clone(), value);
        }
        Value::Object(kept)
    }

    /// Keeps the annotations of the operator and of Karmada, except keys.
    fn annotations(&mut self, annotations: &Map<String, Value>) -> Value {
        let mut kept = Map::new();
        for (key, value) in annotations {
            let domain = key.split('/').next().unwrap_or_default();
            let is_known = KNOWN.iter().any(|known| domain == *known || domain.ends_with(&format!(".{known}")));
            let value = match value {
                value if key == annotation::SSH_KEYS => self.drop("ssh keys", value),
                value if is_known => self.clean(value),
                value => {
                    self.count("annotations");
                    let long = value.as_str().filter(|text| text.len() >= SHORTEST_PART);
                    self.values.extend(long.map(str::to_owned));
                    json!(REMOVED)
                }
            };
            kept.insert(key.clone(), value);
        }
        Value::Object(kept)
    }

    /// Keeps the name of an environment variable, and where its value is from.
    fn env(&mut self, item: &Value) -> Value {
        let Value::Object(fields) = item else { return self.drop("environment", item) };
        let mut kept = Map::new();
        for (name, value) in fields {
            let value = match name.as_str() {
                "name" => value.clone(),
                "valueFrom" => self.clean(value),
                _ => self.drop("environment", value),
            };
            kept.insert(name.clone(), value);
        }
        Value::Object(kept)
    }

    /// Keeps of a Work's manifest what it is of.
    fn manifest(&mut self, manifest: &Value) -> Value {
        self.count("manifests");
        // Its values are learned. Its names are in every message.
        self.clean(manifest);
        let metadata = &manifest["metadata"];
        json!({
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "metadata": { "name": metadata["name"], "namespace": metadata["namespace"] },
        })
    }

    fn count(&mut self, sort: &'static str) {
        *self.removed.entry(sort).or_default() += 1;
    }

    /// Removes a value, and learns its texts.
    fn drop(&mut self, sort: &'static str, value: &Value) -> Value {
        self.count(sort);
        self.learn(value);
        json!(REMOVED)
    }

    fn learn(&mut self, value: &Value) {
        match value {
            Value::String(text) if text.len() >= SHORTEST => {
                let parts = text.split(|c: char| c == ':' || c.is_whitespace());
                self.values.extend(parts.filter(|part| part.len() >= SHORTEST_PART).map(str::to_owned));
                self.values.insert(text.clone());
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => fields.values().for_each(|item| self.learn(item)),
            _ => {}
        }
    }

    /// Returns a text without tokens and credentials of URLs. A message, which a name is not, also loses the removed values.
    pub fn text(&mut self, text: &str) -> String {
        let mut kept = text.to_owned();
        if text.contains(char::is_whitespace) {
            // The longest first: a value may contain another one.
            let mut values: Vec<&String> = self.values.iter().collect();
            values.sort_by_key(|value| std::cmp::Reverse(value.len()));
            for value in values {
                if kept.contains(&**value) {
                    kept = kept.replace(&**value, REMOVED);
                }
            }
        }
        let cleaned = without_credentials(&without_tokens(&kept));
        if cleaned != text {
            self.count("texts");
        }
        cleaned
    }
}

/// Returns an object of this operator's kinds with the fields that they have. Others could be anything.
fn typed(fields: &Map<String, Value>) -> Option<Map<String, Value>> {
    fn of<K: DeserializeOwned + Serialize>(fields: &Map<String, Value>) -> Value {
        let known = serde_json::from_value::<K>(Value::Object(fields.clone())).ok();
        let known = known.and_then(|known| serde_json::to_value(known).ok());
        known.unwrap_or_else(|| json!({ "kind": fields.get("kind"), "metadata": fields.get("metadata"), "left out": "the object is not understood" }))
    }
    let version = fields.get("apiVersion")?.as_str()?;
    if !version.starts_with("compute.datumapis.com/") || !fields.contains_key("metadata") {
        return None;
    }
    let known = match fields.get("kind")?.as_str()? {
        "Workload" => of::<Workload>(fields),
        "WorkloadDeployment" => of::<WorkloadDeployment>(fields),
        "Instance" => of::<Instance>(fields),
        _ => return None,
    };
    if let Value::Object(known) = known { Some(known) } else { None }
}

/// Replaces JSON web tokens: three parts in base64, of which the first begins an object.
fn without_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=');
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("eyJ") {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !is_part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        kept.push_str(before);
        kept.push_str(if word.matches('.').count() >= 2 { REMOVED } else { word });
        rest = after;
    }
    kept + rest
}

/// Replaces the user and the password of URLs.
fn without_credentials(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        kept.push_str(before);
        let end = after.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(after.len());
        let (authority, more) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                kept.push_str(REMOVED);
                kept.push('@');
                kept.push_str(host);
            }
            None => kept.push_str(authority),
        }
        rest = more;
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_credentials_of_urls_are_removed_from_texts() {
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln";
        let text = Redactor::default().text(&format!("Bearer {token} for https://ada:word@host:1/x, eyJust a word"));
        assert_eq!(text, "Bearer (removed) for https://(removed)@host:1/x, eyJust a word");
        assert_eq!(Redactor::default().text("https://host/a@b"), "https://host/a@b");
    }

    #[test]
    fn removed_values_are_removed_from_messages_too_and_names_stay() {
        let object = json!({ "env": [{ "name": "A", "value": "hunter22" }], "message": "bad value hunter22", "name": "hunter22" });
        let mut redactor = Redactor::learned(std::slice::from_ref(&object));
        let clean = redactor.clean(&object);
        assert_eq!(clean["env"][0], json!({ "name": "A", "value": REMOVED }));
        assert_eq!((&clean["message"], &clean["name"]), (&json!("bad value (removed)"), &json!("hunter22")));
        assert_eq!(redactor.removed, [("environment", 1), ("texts", 1)].into());
    }
}
