//! Calls that carry the content of ConfigMaps and Secrets: over connections of their own, with answers that carry
//! nothing but metadata, and with errors in which no value can stand.

use http::{HeaderValue, Request, header::ACCEPT};
use kube::{
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::{Request as Requests, Status, TypeMeta},
};
use serde_json::Value;

use super::{Class, Error, REQUEST_TIMEOUT, apply::Stored, clients::ControlPlane, deadline};
use crate::{
    api::referenced::DataRef,
    plan::{Object, ObjectVersion, Op, Plane, payload::Payload},
};

/// How what is left of admission's words begins.
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
        match self.call(&object, "get", request).await {
            Ok(text) => Payload::parse(data_ref.kind, text.as_bytes())
                .map(Some)
                .ok_or_else(|| Error::Answer { call: what(), why: format!("it is no {}", data_ref.kind.as_str()) }),
            Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Carries out one write on such an object.
    pub(super) async fn send_confidential(&self, object: &Object, op: &Op) -> Result<Option<Stored>, Error> {
        let unbuilt = |e: kube::core::request::Error| Error::Answer {
            call: format!("write {object} in {}", self.name()),
            why: e.to_string(),
        };
        let requests = requests(object);
        match op {
            Op::Create { body, manager } => {
                let params = PostParams { field_manager: Some((*manager).into()), ..PostParams::default() };
                let request = requests.create(&params, body.to_string().into_bytes()).map_err(unbuilt)?;
                Ok(self.remember(object, &self.call(object, "create", request).await?))
            }
            Op::Merge { body, manager } => {
                let params = PatchParams { field_manager: Some((*manager).into()), ..PatchParams::default() };
                let request = requests.patch(&object.name, &params, &Patch::Merge(body)).map_err(unbuilt)?;
                match self.call(object, "patch", request).await {
                    Ok(answer) => Ok(self.remember(object, &answer)),
                    Err(gone) if gone.class() == Class::Gone => Ok(None),
                    Err(error) => Err(error),
                }
            }
            Op::Delete { uid, resource_version } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid.clone()),
                        resource_version: Some(resource_version.clone()),
                    }),
                    ..DeleteParams::background()
                };
                let request = requests.delete(&object.name, &params).map_err(unbuilt)?;
                match self.call(object, "delete", request).await {
                    Ok(answer) => self.deleted(object, uid, &answer),
                    Err(gone) if gone.class() == Class::Gone => {}
                    Err(error) => return Err(error),
                }
                Ok(None)
            }
            Op::Apply { .. }
            | Op::TakeOver { .. }
            | Op::ConfirmAbsent
            | Op::ConfirmGone { .. }
            | Op::ConfirmPresent { .. }
            | Op::ConfirmListed { .. }
            | Op::ConfirmUnchanged { .. } => {
                // No plan asks for these; an answer in full would be on its way if one did.
                Err(Error::Answer { call: format!("{object}"), why: "not a way to treat what is confidential".into() })
            }
        }
    }

    async fn call(&self, object: &Object, verb: &str, mut request: Request<Vec<u8>>) -> Result<String, Error> {
        if verb != "get" {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        }
        let what = || format!("{verb} {object} in {}", self.name());
        let client = match self.connection().confidential() {
            Ok(client) => client,
            Err(why) => return Err(Error::Answer { call: what(), why }),
        };
        let called = deadline(REQUEST_TIMEOUT, what, client.request_text(request)).await;
        called.map_err(scrubbed)
    }

    fn remember(&self, object: &Object, answer: &str) -> Option<Stored> {
        metadata(answer).map(|answer| self.feed_back(object, answer, None))
    }

    fn deleted(&self, object: &Object, uid: &str, answer: &str) {
        match metadata(answer).filter(|answer| answer.metadata.uid.as_deref() == Some(uid)) {
            Some(deleting) if deleting.metadata.finalizers.as_ref().is_some_and(|left| !left.is_empty()) => {
                self.feed_back(object, deleting, None);
            }
            _ => {
                if let Some(sink) = self.sink(object.kind) {
                    sink.removed(object, uid);
                }
            }
        }
    }
}

fn requests(object: &Object) -> Requests {
    let (_, _, plural) = object.kind.gvk();
    Requests::new(format!("/api/v1/namespaces/{}/{plural}", object.namespace))
}

/// The object behind an answer that was asked to be metadata alone, with nothing else of it.
fn metadata(answer: &str) -> Option<DynamicObject> {
    let mut answer: Value = serde_json::from_str(answer).ok()?;
    let metadata = serde_json::from_value(answer["metadata"].take()).ok()?;
    Some(DynamicObject { types: None::<TypeMeta>, metadata, data: Value::Null })
}

/// Whether a webhook speaks, whose message the server begins in this way. Its code, its reason and its details are whatever the
/// webhook put there (`ToStatusErr` of k8s.io/apiserver changes the message alone).
fn is_of_webhook(status: &Status) -> bool {
    status.message.starts_with("admission webhook ")
}

/// Whether the server's words are its own, and so repeat nothing of the object: not those of a webhook or of a policy of
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
