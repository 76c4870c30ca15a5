use super::*;

/// A copy that the hub forbade was not reported. Without a message, the error of a terminating namespace counted as a refusal.
#[test]
fn companion_forbidden_by_hub_is_refused_unless_namespace_is_terminating() {
    let answer = |code: u16, cause: &str| {
        let status = serde_json::json!({
            "status": "Failure", "code": code, "message": "Forbidden (HTTP 403) metadata.namespace",
            "details": { "causes": [{ "reason": cause, "field": "metadata.namespace", "message": "" }] },
        });
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        Error::Api { call: "create".into(), source: Box::new(kube::Error::Api(Box::new(status))) }
    };
    for (code, cause, refused) in [
        (422, "FieldValueTooLong", true),
        (403, "", true),
        (403, "NamespaceTerminating", false),
        (401, "", false),
        (409, "", false),
        (500, "", false),
    ] {
        assert_eq!(is_refusal(&answer(code, cause)), refused, "{code} {cause}");
    }
}
