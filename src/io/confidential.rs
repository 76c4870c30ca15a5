//! Calls that carry the content of ConfigMaps and Secrets. They use separate connections, their answers contain only metadata,
//! and their errors contain no values.

use http::{HeaderValue, Method, Request, header::ACCEPT};
use kube::core::Status;

use super::{Error, REQUEST_TIMEOUT, apply::requests, clients::ControlPlane};
use crate::{
    api::referenced::DataRef,
    plan::{Object, ObjectVersion, Plane, payload::Payload},
};

/// Prefix of the message that replaces an admission error.
pub(super) const DENIED: &str = "denied by an admission ";

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

impl<P: Plane> ControlPlane<P> {
    /// Reads the content of a ConfigMap or Secret. `None` if the server reports it as absent.
    ///
    /// # Errors
    /// Same as every call. No error contains a value.
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
                .ok_or_else(|| Error::Answer { call: what(), why: format!("it is not a {}", data_ref.kind.as_str()) }),
            Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request over a separate connection. Asks for the answer to a write without its content.
    pub(super) async fn call_confidential(
        &self,
        what: impl Fn() -> String,
        mut request: Request<Vec<u8>>,
    ) -> Result<String, Error> {
        if request.method() != Method::GET {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        }
        let client = self.connection().confidential().map_err(|why| Error::Answer { call: what(), why })?;
        let answer = self.connection().within(REQUEST_TIMEOUT, what, client.request_text(request)).await;
        answer.map_err(scrubbed)
    }
}

/// True if the message comes from a webhook, by the prefix that the server adds. Code, reason and details are the webhook's own:
/// `ToStatusErr` of k8s.io/apiserver changes only the message.
fn is_of_webhook(status: &Status) -> bool {
    status.message.starts_with("admission webhook ")
}

/// True if the server wrote the message itself, so that it repeats nothing of the object. False for a webhook, an admission
/// policy (`... is forbidden: ValidatingAdmissionPolicy`, with any code) and a validation.
fn speaks_for_itself(status: &Status) -> bool {
    let of_webhook = is_of_webhook(status);
    let why = status.message.split_once(" is forbidden: ").map(|(_, why)| why);
    match status.code {
        401 | 404 | 409 => !of_webhook && why.is_none(),
        403 => !of_webhook && why.is_some_and(|why| why.starts_with("User \"") || why.starts_with("exceeded quota: ")),
        _ => false,
    }
}

/// Removes the server's message if it may repeat values. Keeps the field names that the server itself reports.
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

    /// The message of a webhook that answered 403 was kept, and later its reason and its field.
    #[test]
    fn scrubbed_forbidden_error_keeps_messages_of_rbac_and_quota_but_not_of_webhooks() {
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
                let text = format!("{error} {error:?}");
                let text = text.split(" causes: ").next().unwrap_or_default();
                assert!(text.contains(&code.to_string()) && !text.contains("canary"), "{text}");
            }
        }
    }

    /// A terminating namespace is recognized by its cause, which is kept when the message is removed.
    #[test]
    fn scrubbed_error_of_terminating_namespace_is_still_recognized() {
        let words = r#"secrets "db" is forbidden: unable to create new content in namespace ns-1 because it is being terminated"#;
        assert!(refused(403, words, "NamespaceTerminating", "metadata.namespace").is_of_terminating_namespace());
        let claimed = r#"admission webhook "w" denied the request: x"#;
        assert!(!refused(403, claimed, "NamespaceTerminating", "metadata.namespace").is_of_terminating_namespace());
    }

    #[test]
    fn scrubbed_validation_error_keeps_fields_but_no_values() {
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
