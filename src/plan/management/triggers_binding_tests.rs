use super::*;
use crate::{
    api::karmada::BindingSnapshot,
    plan::management::observed::facts::{BindingFacts, Template},
};

#[test]
fn a_binding_concerns_its_template_its_city_and_the_parents_that_see_something_else_in_it() {
    let required_by = |parents: &[&str], on: &str| -> Vec<BindingSnapshot> {
        let clusters = vec![serde_json::from_value(json!({ "name": on })).unwrap()];
        parents.iter().map(|by| BindingSnapshot { name: (*by).into(), clusters: clusters.clone() }).collect()
    };
    let of = |template: Template, parents: &[&str]| BindingFacts {
        template,
        required_by: required_by(parents, "a"),
        ..BindingFacts::default()
    };
    let claimed = Some("city-dfw".into());
    let web = BindingFacts { policy: claimed.clone(), ..of(Template::Deployment("web".into()), &[]) };
    let newer = BindingFacts { version: "2".into(), ..web.clone() };
    let answered =
        BindingFacts { propagates: true, distributed: true, dependencies: Some(vec![]).into(), ..web.clone() };
    let away = BindingFacts { clusters: vec!["b".into()].into(), ..web.clone() };
    let ours = "web-workloaddeployment";
    let companion = |parents: &[&str]| of(Template::Companion(DataRef::secret("db")), parents);
    let (secret, moved) = (companion(&[ours]), companion(&["api-workloaddeployment", "theirs-deployment"]));
    let more = companion(&[ours, "api-workloaddeployment"]);
    let taken = BindingFacts { applied: [("a".to_owned(), Ok(()))].into(), ..more.clone() };
    let elsewhere = BindingFacts { applied: [("b".to_owned(), Ok(()))].into(), ..more.clone() };
    let sent = BindingFacts { required_by: required_by(&[ours], "b"), ..secret.clone() };
    let with_claim = BindingFacts { policy: claimed, ..secret.clone() };
    let users = || HubWork::Users("ns-1".into(), DataRef::secret("db"));
    let if_claimed = || HubWork::ClaimedCompanion("ns-1".into(), DataRef::secret("db"));
    let (of_web, of_api) = (|| original("ns-1", "web"), || original("ns-1", "api"));
    let web_changes = |old, new| HubChange::Binding(changed(ours, old, new));
    let db_changes = |old, new| HubChange::Binding(changed("db-secret", old, new));
    let placed = || vec![on("dfw"), of_web()];
    let asked = || [placed(), vec![HubWork::Asked(Some(("ns-1".into(), "web".into())))]].concat();
    table([
        ("a deployment's is new", web_changes(None, Some(&web)), asked()),
        ("it goes to another cluster: a cell there may ask for it", web_changes(Some(&web), Some(&away)), asked()),
        ("nothing", web_changes(Some(&web), Some(&web)), vec![]),
        ("nothing but its version", web_changes(Some(&web), Some(&newer)), vec![]),
        (
            "the scheduler has done what its placement asks for",
            web_changes(Some(&web), Some(&BindingFacts { scheduled_by: Some("digest".into()), ..web.clone() })),
            placed(),
        ),
        ("it shows that Karmada brings dependencies", web_changes(Some(&web), Some(&answered)), placed()),
        ("a companion's is new", db_changes(None, Some(&secret)), vec![of_web(), of_secret("db"), users()]),
        ("one more needs it", db_changes(Some(&secret), Some(&more)), vec![of_api(), if_claimed()]),
        (
            "others need it: those that did as well",
            db_changes(Some(&secret), Some(&moved)),
            vec![of_web(), of_api(), if_claimed()],
        ),
        ("it goes elsewhere", db_changes(Some(&secret), Some(&sent)), vec![of_web(), if_claimed()]),
        ("a cluster took it", db_changes(Some(&more), Some(&taken)), vec![of_web(), of_api(), if_claimed()]),
        ("a cluster where nobody needs it", db_changes(Some(&more), Some(&elsewhere)), vec![if_claimed()]),
        ("a policy claims it", db_changes(Some(&secret), Some(&with_claim)), vec![on("dfw"), of_secret("db")]),
        ("it is gone", db_changes(Some(&secret), None), vec![of_web(), of_secret("db"), users()]),
        (
            "it is somebody else's",
            HubChange::Binding(changed("x-deployment", None, Some(&of(Template::Foreign, &[])))),
            vec![],
        ),
    ]);
}

/// Found by reading: with so many users of one companion, each one's coming woke all of them, and every policy beside.
#[test]
fn one_of_ten_thousand_that_share_a_companion_wakes_no_more_than_one_of_a_hundred() {
    let name = |n: usize| format!("web-{n}-workloaddeployment");
    let shared = |users: usize| BindingFacts {
        template: Template::Companion(DataRef::secret("db")),
        required_by: (0..users).map(|n| BindingSnapshot { name: name(n), clusters: vec![] }).collect(),
        ..BindingFacts::default()
    };
    let count = |users: usize| {
        let (before, now) = (shared(users), shared(users + 1));
        after_hub(&HubChange::Binding(changed("db-secret", Some(&before), Some(&now)))).len()
    };
    assert_eq!([100, 1_000, 10_000].map(count), [2; 3]);
    let versions = |users: usize| {
        let before = shared(users);
        let now = BindingFacts { version: "2".into(), ..before.clone() };
        after_hub(&HubChange::Binding(changed("db-secret", Some(&before), Some(&now)))).len()
    };
    assert_eq!([100, 1_000, 10_000].map(versions), [0; 3]);
}
