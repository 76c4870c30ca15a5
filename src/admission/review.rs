//! The wire format of admission.k8s.io/v1: requests and responses.

use kube::Resource;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::plan::admission::{
    access::User,
    field::{self, ErrorKind, FieldError},
    request::Verdict,
};

/// The only version of the format.
const API_VERSION: &str = "admission.k8s.io/v1";

/// The review without its objects. They are read from the same bytes once their kind is known.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionReview {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

/// One write that an API server asks about.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    /// Returned in the response.
    pub uid: String,
    /// Kind of the object.
    #[serde(default)]
    pub kind: GroupKind,
    /// Subresource that is written; empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Name of the object; empty while it is not known.
    #[serde(default)]
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// User that writes.
    #[serde(default)]
    pub user_info: User,
}

/// A review of which only a part is read.
#[derive(Deserialize)]
struct Only<T> {
    request: T,
}

/// The object after the write.
#[derive(Deserialize)]
struct New<K> {
    object: K,
}

/// The object before the write.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Old<K> {
    old_object: K,
}

/// A kind by name.
#[derive(Default, Deserialize)]
pub(super) struct GroupKind {
    /// Its group.
    #[serde(default)]
    pub group: String,
    /// Its name.
    #[serde(default)]
    pub kind: String,
}

impl Request {
    /// Parses a review.
    ///
    /// # Errors
    /// One line that says what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        // The error names a line and a column, and repeats no value.
        let review: AdmissionReview =
            serde_json::from_slice(body).map_err(|e| format!("not an AdmissionReview: {}", without_values(&e)))?;
        if review.api_version != API_VERSION || review.kind != "AdmissionReview" {
            return Err(format!("want an AdmissionReview of {API_VERSION}"));
        }
        let request = review.request.ok_or("the AdmissionReview has no request")?;
        if request.uid.is_empty() { Err("the request has no uid".into()) } else { Ok(request) }
    }

    /// Reads the object after the write and, for an update, the one before it. `None` for other operations, or for another
    /// subresource than `part` (empty for the object itself). Only the typed objects are held: a tree of JSON takes many times
    /// its text.
    ///
    /// # Errors
    /// One line, if the objects are not of this kind.
    pub fn objects<K: DeserializeOwned + Resource>(
        &self,
        part: &str,
        body: &[u8],
    ) -> Result<Option<(K, Option<K>)>, String> {
        let is_update = match self.operation.as_str() {
            "CREATE" => false,
            "UPDATE" => true,
            _ => return Ok(None),
        };
        if self.sub_resource != part {
            return Ok(None);
        }
        let new: Only<New<K>> =
            serde_json::from_slice(body).map_err(|e| format!("the object cannot be read: {}", without_values(&e)))?;
        let old = if is_update {
            let old: Only<Old<K>> = serde_json::from_slice(body)
                .map_err(|e| format!("the old object cannot be read: {}", without_values(&e)))?;
            Some(self.placed(old.request.old_object))
        } else {
            None
        };
        Ok(Some((self.placed(new.request.object), old)))
    }

    /// An object without a namespace gets the request's.
    fn placed<K: Resource>(&self, mut object: K) -> K {
        object.meta_mut().namespace.get_or_insert_with(|| self.namespace.clone());
        object
    }

    /// The response for this verdict.
    pub fn answer(&self, verdict: &Verdict) -> Value {
        if verdict.errors.is_empty() {
            return review(&json!({ "uid": self.uid, "allowed": true, "warnings": verdict.warnings }));
        }
        let GroupKind { group, kind } = &self.kind;
        let nobody_knows = verdict.errors.iter().all(|error| error.kind == ErrorKind::Internal);
        let (code, reason) = if nobody_knows { (500, "InternalError") } else { (422, "Invalid") };
        let causes: Vec<Value> = field::named(&verdict.errors).iter().map(cause).collect();
        let errors = field::joined(&verdict.errors);
        self.refuse(&json!({
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": format!("{kind}.{group} {:?} is invalid: {errors}", self.name),
            "details": { "name": self.name, "group": group, "kind": kind, "causes": causes },
        }))
    }

    /// The response to a request that could not be judged.
    pub fn unreadable(&self, why: &str) -> Value {
        self.refuse(&json!({ "status": "Failure", "code": 400, "reason": "BadRequest", "message": why }))
    }

    fn refuse(&self, status: &Value) -> Value {
        review(&json!({ "uid": self.uid, "allowed": false, "status": status }))
    }
}

fn cause(error: &FieldError) -> Value {
    json!({ "reason": error.kind.reason(), "message": error.message(), "field": error.field })
}

fn review(response: &Value) -> Value {
    json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response })
}

/// Position and kind of a parse error, without the values: serde repeats values in its messages.
fn without_values(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Io => "it was cut off",
        serde_json::error::Category::Syntax => "it is not JSON",
        serde_json::error::Category::Data => "a field is missing, or has the wrong type",
        serde_json::error::Category::Eof => "it ends too early",
    };
    match error.line() {
        0 => kind.to_owned(),
        line => format!("{kind} (line {line}, column {})", error.column()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::compute::Workload, plan::admission::field::Path};

    fn question(more: &Value) -> Vec<u8> {
        let mut review = json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "request": {
            "uid": "r-1", "operation": "UPDATE", "name": "web", "namespace": "shop",
            "kind": { "group": "compute.datumapis.com", "version": "v1alpha", "kind": "Workload" },
            "userInfo": { "username": "ada", "groups": ["dev"], "extra": { "a/b": ["c"] } },
            "object": { "metadata": { "name": "web" }, "spec": { "placements": [], "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } } } },
            "oldObject": null,
        } });
        review["request"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        review.to_string().into_bytes()
    }

    #[test]
    fn malformed_review_is_reported_without_its_values() {
        for (body, words) in [
            (&b"hunter2"[..], "not JSON"),
            (b"", "ends too early"),
            (b"{}", "field is missing"),
            (br#"{"apiVersion":"hunter2","kind":"AdmissionReview"}"#, "want an AdmissionReview of admission.k8s.io/v1"),
            (br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "has no request"),
            (br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"","operation":"CREATE"}}"#, "no uid"),
            (br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":"hunter2"}"#, "wrong type"),
        ] {
            let error = Request::read(body).err().unwrap();
            assert!(error.contains(words) && !error.contains("hunter2"), "{error}");
        }
        let body = question(&json!({ "object": { "spec": "hunter2" } }));
        let bad = Request::read(&body).unwrap();
        let error = bad.objects::<Workload>("", &body).unwrap_err();
        assert!(error.starts_with("the object cannot be read") && !error.contains("hunter2"), "{error}");
        assert_eq!(bad.unreadable(&error)["response"]["status"]["code"], 400);
    }

    #[test]
    fn review_of_other_operation_or_subresource_has_no_objects() {
        let old = json!({ "metadata": { "name": "web", "namespace": "old" }, "spec": { "placements": [], "template": {
            "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } } } });
        let objects = |more| {
            let body = question(&more);
            Request::read(&body).unwrap().objects::<Workload>("", &body).unwrap()
        };
        let (new, before) = objects(json!({ "oldObject": old })).unwrap();
        assert_eq!(new.metadata.namespace.as_deref(), Some("shop"), "the request's");
        assert_eq!(before.unwrap().metadata.namespace.as_deref(), Some("old"));
        assert!(objects(json!({ "operation": "CREATE" })).unwrap().1.is_none());
        for more in [json!({ "operation": "DELETE" }), json!({ "subResource": "status" })] {
            assert!(objects(more).is_none());
        }
    }

    #[test]
    fn response_to_errors_carries_code_reason_and_causes() {
        let request = Request::read(&question(&json!({}))).unwrap();
        assert_eq!((request.user_info.username.as_str(), request.user_info.extra["a/b"].len()), ("ada", 1));
        let allowed = request.answer(&Verdict { warnings: vec!["mind".into()], ..Verdict::default() });
        assert_eq!(allowed["response"], json!({ "uid": "r-1", "allowed": true, "warnings": ["mind"] }));
        let path = Path::new("spec");
        let errors = vec![FieldError::required(&path, "give it"), FieldError::internal(&path, "away")];
        let refused = request.answer(&Verdict { errors, warnings: Vec::new() });
        let status = &refused["response"]["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
        assert_eq!(
            status["message"],
            "Workload.compute.datumapis.com \"web\" is invalid: [spec: Required value: give it, spec: Internal error: away]"
        );
        assert_eq!(
            status["details"]["causes"][0],
            json!({ "reason": "FieldValueRequired", "message": "Required value: give it", "field": "spec" })
        );
        let errors = vec![FieldError::internal(&path, "away")];
        let unknown = request.answer(&Verdict { errors, warnings: Vec::new() });
        assert_eq!(unknown["response"]["status"]["code"], 500);
        assert_eq!((&unknown["response"]["allowed"], &unknown["response"]["uid"]), (&json!(false), &json!("r-1")));
    }
}
