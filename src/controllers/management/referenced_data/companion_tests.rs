use super::*;

/// Found by reading: of a copy that the hub forbade nobody was told; and, of errors without words, that what the API server
/// says of a namespace that goes was taken for a refusal.
#[test]
fn what_the_hub_forbids_is_refused_unless_its_namespace_goes() {
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
