//! Calls that carry the content of ConfigMaps and Secrets: over connections of their own, with answers that carry
//! nothing but metadata, and with errors in which no value can stand.

use http::{HeaderValue, Method, Request, header::ACCEPT};
use kube::{
    api::DynamicObject,
    core::{Status, TypeMeta},
};
use serde_json::Value;

use super::{Error, REQUEST_TIMEOUT, apply::requests, clients::ControlPlane, deadline};
use crate::{
    api::referenced::DataRef,
    plan::{Object, ObjectVersion, Plane, payload::Payload},
};

/// Beginning of the message that is left of an admission error.
pub(super) const DENIED: &str = "denied by an admission ";

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

impl<P: Plane> ControlPlane<P> {
    /// Reads the content of a ConfigMap or Secret. `None` when the server says that it does not exist.
    ///
    /// # Errors
    /// As every call; no value stands in any of them.
    pub async fn read_payload(
        &self,
        namespace: &str,
        data_ref: &DataRef,
    ) -> Result<Option<(ObjectVersion, Payload)>, Error> {
        let object = Object { kind: data_ref.kind.into(), namespace: namespace.into(), name: data_ref.name.clone() };
        let what = || format!("get {object} in {}", self.name());
        let request = requests(&object)
            .get(&object.name, &kube::api::GetParams::default())
            .map_err(|e| Error::Answer { call: what(), why: e.to_string() })?;
        match self.call_confidential(what, request).await {
            Ok(text) => Payload::parse(data_ref.kind, text.as_bytes())
                .map(Some)
                .ok_or_else(|| Error::Answer { call: what(), why: format!("it is no {}", data_ref.kind.as_str()) }),
            Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request over a connection of its own. The answer to a write is asked for without the content.
    pub(super) async fn call_confidential(
        &self,
        what: impl Fn() -> String,
        mut request: Request<Vec<u8>>,
    ) -> Result<String, Error> {
        if request.method() != Method::GET {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        }
        let client = self.connection().confidential().map_err(|why| Error::Answer { call: what(), why })?;
        deadline(REQUEST_TIMEOUT, what, client.request_text(request)).await.map_err(scrubbed)
    }
}

/// The object behind an answer that was asked to be metadata alone, with nothing else of it.
pub(super) fn metadata(answer: &str) -> Option<DynamicObject> {
    let mut answer: Value = serde_json::from_str(answer).ok()?;
    let metadata = serde_json::from_value(answer["metadata"].take()).ok()?;
    Some(DynamicObject { types: None::<TypeMeta>, metadata, data: Value::Null })
}

/// True if the message is of a webhook: the server begins it in this way. Its code, its reason and its details are whatever the
/// webhook put there (`ToStatusErr` of k8s.io/apiserver changes the message alone).
fn is_of_webhook(status: &Status) -> bool {
    status.message.starts_with("admission webhook ")
}

/// True if the message is the server's own, and so repeats nothing of the object: not that of a webhook or of a policy of
/// admission, which may answer with any code (`... is forbidden: ValidatingAdmissionPolicy`), nor of a validation.
fn speaks_for_itself(status: &Status) -> bool {
    let of_webhook = is_of_webhook(status);
    let why = status.message.split_once(" is forbidden: ").map(|(_, why)| why);
    match status.code {
        401 | 404 | 409 => !of_webhook && why.is_none(),
        403 => !of_webhook && why.is_some_and(|why| why.starts_with("User \"") || why.starts_with("exceeded quota: ")),
        _ => false,
    }
}

/// The error without the server's words, of which nobody can say what they repeat; the fields that the server itself names are
/// kept.
pub(super) fn scrubbed(error: Error) -> Error {
    match error {
        Error::Api { call, source } => {
            let source = match *source {
                kube::Error::Api(mut status) if !speaks_for_itself(&status) => {
                    let causes = status.details.iter().flat_map(|d| &d.causes);
                    let fields: Vec<&str> = causes.map(|cause| cause.field.as_str()).collect();
                    if is_of_webhook(&status) {
                        status.message = format!("{DENIED}webhook (HTTP {})", status.code);
                        status.reason = String::new();
                        status.details = None;
                    } else if status.code == 403 && status.message.contains(" is forbidden: ") {
                        status.message = format!("{DENIED}plugin (HTTP 403) {}", fields.join(", "));
                    } else {
                        status.message = format!("{} (HTTP {}) {}", status.reason, status.code, fields.join(", "));
                    }
                    kube::Error::Api(status)
                }
                other => other,
            };
            Error::Api { call, source: Box::new(source) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str, reason: &str, field: &str) -> Error {
        let status = serde_json::json!({
            "status": "Failure", "code": code, "message": message, "reason": reason,
            "details": { "causes": [{ "reason": reason, "field": field, "message": message }] },
        });
        let status: Status = serde_json::from_value(status).unwrap();
        scrubbed(Error::Api { call: "create".into(), source: Box::new(kube::Error::Api(Box::new(status))) })
    }

    /// Found by reading: the words of a webhook that answers 403 were kept, and then what it gave as reason and as field.
    #[test]
    fn of_what_is_forbidden_the_words_of_rbac_and_quota_are_kept_and_no_webhooks() {
        let right = r#"secrets "db" is forbidden: User "m" cannot create resource"#;
        let quota = r#"secrets "db" is forbidden: exceeded quota: small, requested: count/secrets=1"#;
        let is_kept = |message: &str| refused(403, message, "Forbidden", "").to_string().contains(message);
        assert!([right, quota].into_iter().all(is_kept));
        for (denied, reason, field) in [
            (r#"admission webhook "w" denied the request: value canary is too weak"#, "Forbidden", "data"),
            (
                r#"admission webhook "w" denied the request: canary is forbidden: User "m" knows it"#,
                "Forbidden",
                "data",
            ),
            (r#"admission webhook "w" denied the request: canary"#, "canary", "data"),
            (r#"admission webhook "w" denied the request: no"#, "Forbidden", "data.pw=canary"),
            (
                r#"secrets "db" is forbidden: ValidatingAdmissionPolicy 'p' denied request: canary is forbidden: User "m""#,
                "Forbidden",
                "",
            ),
        ] {
            for code in [401, 403, 404, 409, 422, 500] {
                let error = refused(code, denied, reason, field);
                let told = format!("{error} {error:?}");
                let told = told.split(" causes: ").next().unwrap_or_default();
                assert!(told.contains(&code.to_string()) && !told.contains("canary"), "{told}");
            }
        }
    }

    /// What is told of a namespace that goes is told by a cause, which is left where the words are not.
    #[test]
    fn a_namespace_that_goes_is_known_without_the_words() {
        let words = r#"secrets "db" is forbidden: unable to create new content in namespace ns-1 because it is being terminated"#;
        assert!(refused(403, words, "NamespaceTerminating", "metadata.namespace").is_of_terminating_namespace());
        let claimed = r#"admission webhook "w" denied the request: x"#;
        assert!(!refused(403, claimed, "NamespaceTerminating", "metadata.namespace").is_of_terminating_namespace());
    }

    #[test]
    fn a_refusal_reports_fields_but_no_words() {
        let status: Status = serde_json::from_value(serde_json::json!({
            "status": "Failure", "code": 422, "reason": "Invalid", "message": "data[a]: Invalid value: \"canary\"",
            "details": { "causes": [{ "field": "data[a]", "message": "Invalid value: \"canary\"", "reason": "x" }] },
        }))
        .unwrap();
        let error = Error::Api { call: "create".into(), source: Box::new(kube::Error::Api(Box::new(status))) };
        let reported = scrubbed(error).to_string();
        assert!(reported.contains("data[a]") && reported.contains("422") && !reported.contains("canary"), "{reported}");
    }
}
