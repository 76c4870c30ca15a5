use super::*;
use crate::{
    api::names::ProjectName,
    controllers::management::{Context, fixtures},
};

/// Each place was kept until the process ended.
#[tokio::test]
async fn given_places_are_kept_only_while_their_deployments_exist() {
    let ctx = Context::of_tests();
    ctx.projects.insert(fixtures::project("shop"));
    let projector = ctx.projector();
    let key = |project: &str, name: &str| InstanceKey::Place(ProjectKey::new(&ProjectName::new(project), "web", name));
    for (what, key, expected) in [
        ("its deployment exists", key("shop", "api-0"), true),
        ("its deployment is gone", key("shop", "gone-0"), false),
        ("its project is not engaged", key("other", "api-0"), false),
        ("it has no place", InstanceKey::Unresolved(ObjectKey::new("ns-u", "api-0")), false),
    ] {
        assert_eq!(projector.may_be_given(&key), expected, "{what}");
    }
    let mut given = Given::default();
    for n in 0..10_000 {
        given.insert(key("shop", &format!("gone-{n}")), |key| projector.may_be_given(key));
        given.insert(key("shop", "api-0"), |key| projector.may_be_given(key));
        assert!(given.keys.len() <= Given::ROOM + 2, "{}", given.keys.len());
    }
    assert!(given.keys.contains(&key("shop", "api-0")));
    let mut living = Given::default();
    let all = (0..10_000).map(|n| key("shop", &format!("api-{n}")));
    all.for_each(|key| living.insert(key, |_| true));
    assert_eq!(living.keys.len(), 10_000, "places of existing deployments are kept");
}
