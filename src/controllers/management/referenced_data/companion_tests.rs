use std::sync::Arc;

use super::*;
use crate::{
    api::{meta::annotation, referenced::DataRef, user_list::UserList},
    controllers::management::{Context, fixtures},
    io::store::Incoming,
    plan::management::{observed::facts::CompanionFacts, referenced_data::users::HubCopy},
};

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

/// A deployment that no longer refers to a source may still run Instances with it. When the companion was recreated, its new list
/// lacked that deployment, and the companion was deleted with its other users.
#[tokio::test]
async fn copy_that_expects_an_unlisted_companion_is_found_before_the_list_is_made_or_emptied() {
    let ctx = Context::of_tests();
    let project = fixtures::project("alpha");
    let mut api = fixtures::deployment("ns-1", "api").value.unwrap().open();
    let expected = [(annotation::EXPECTED_REFERENCED_DATA.to_owned(), r#"["Secret/db"]"#.to_owned())];
    api.metadata.annotations = Some(expected.into());
    let packed = Some(Arc::new(PackedDeployment::of((*api).clone())));
    let key = ObjectKey::new("ns-1", "api");
    ctx.hub.copies.observe(Incoming { key, uid: "api".into(), version: 2, value: packed });
    let companion = ctx.companion(&Arc::new(ctx.watches(&tokio_util::sync::CancellationToken::new())));
    let data_ref = DataRef::secret("db");
    let key = CompanionKey::new(&project.name, "shop", data_ref.clone());
    let resolved = ResolvedKey {
        of: &companion,
        project: &project,
        key: &key,
        namespace: "shop",
        hub_namespace: "ns-1".into(),
        data_ref: &data_ref,
        source: ObjectKey::new("shop", "db"),
    };
    let with = |list: &str| CompanionFacts { users: UserList::parse(Some(list)), ..CompanionFacts::default() };
    let web: PackedUser = (ObjectKey::new("shop", "web"), fixtures::deployment("shop", "web").value.unwrap());
    let names = |referring: &[PackedUser], companion: Option<&CompanionFacts>| {
        let users = resolved.users(referring, companion).by_name;
        users.into_iter().filter(|(_, user)| user.copy == HubCopy::Expects).map(|(name, _)| name).collect::<Vec<_>>()
    };
    let alone = std::slice::from_ref(&web);
    assert_eq!(names(&[], Some(&with(r#"["shop/web"]"#))), ["api"], "the last user goes");
    assert_eq!(names(alone, Some(&with(r#"["shop/gone"]"#))), ["api"], "what is left does not use it yet");
    assert_eq!(names(alone, Some(&with("no list"))), ["api"]);
    assert!(names(alone, Some(&with(r#"["shop/web"]"#))).is_empty(), "the copies are not asked while it has a user");
}
