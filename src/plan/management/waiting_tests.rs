use serde_json::json;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn ready(status: &str, reason: &str, seconds: i64) -> serde_json::Value {
    json!({ "type": "Ready", "status": status, "reason": reason, "message": "m", "lastTransitionTime": at(seconds) })
}

fn object(name: &str, city: &str, conditions: &serde_json::Value) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": { "namespace": "demo", "name": name, "creationTimestamp": at(5) },
        "spec": {
            "workloadRef": { "name": "web", "uid": "u" }, "placementName": "p", "cityCode": city,
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
        "status": { "conditions": conditions },
    }))
    .unwrap()
}

fn waits(project: &str, name: &str, city: &str, reason: &str, seconds: i64) -> (Waiting, String) {
    let object = object(name, city, &json!([ready("False", reason, seconds)]));
    (deployment(&ProjectName::new(project), &object, vec![format!("cell-{city}")]).unwrap(), "web".to_owned())
}

fn named(name: &str, project: &str, reason: &str) -> Waiting {
    let object: Workload = serde_json::from_value(json!({
        "metadata": { "namespace": "demo", "name": name },
        "spec": {
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "placements": [],
        },
        "status": { "conditions": [ready("False", reason, 1)] },
    }))
    .unwrap();
    workload(&ProjectName::new(project), &object).unwrap()
}

fn asked(query: &Query) -> Answer {
    let deployments = vec![
        waits("shop", "web-dfw", "dfw", "NotScheduled", 30),
        waits("lab", "web-ord", "ord", "NotScheduled", 20),
        waits("shop", "web-ord", "ord", "NotScheduled", 10),
        waits("shop", "api-ord", "ord", "SourceNotFound", 40),
    ];
    let workloads = vec![named("web", "shop", "NotScheduled"), named("bad", "shop", "InvalidPlacement")];
    let totals = Totals { projects: 2, incomplete: Vec::new(), deployments: 9 };
    answer(query, workloads, deployments, totals, at(100)).unwrap()
}

#[test]
fn entry_repeats_the_condition_of_its_object() {
    let project = ProjectName::new("shop");
    let of = |conditions| deployment(&project, &object("web", "dfw", &conditions), Vec::new());
    assert_eq!(of(json!([ready("True", "ReplicasAvailable", 1)])), None);
    let mut changed = object("web", "dfw", &json!([ready("True", "ReplicasAvailable", 1)]));
    changed.metadata.generation = Some(2);
    assert_eq!(deployment(&project, &changed, Vec::new()).unwrap().reason, "Pending", "of an earlier generation");
    let unknown = of(json!([ready("Unknown", "HubUnavailable", 7)])).unwrap();
    assert_eq!((&*unknown.reason, &*unknown.waits_for, unknown.since), ("HubUnavailable", "platform", at(7)));
    let missing = of(json!([ready("False", "SourceNotFound", 8)])).unwrap();
    assert_eq!((&*missing.reason, &*missing.waits_for), ("SourceNotFound", "tenant"));
    let new = of(json!([])).unwrap();
    assert_eq!((&*new.reason, new.since), ("Pending", at(5)), "an object without a report waits since its creation");
    assert_eq!(new.waits_for, "nobody");
    let mut leaving = object("web", "dfw", &json!([ready("False", "NotScheduled", 1)]));
    leaving.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
    assert_eq!(deployment(&project, &leaving, Vec::new()), None);
}

#[test]
fn objects_with_the_same_cause_and_place_are_one_row() {
    let answer = asked(&Query::default());
    let rows: Vec<_> = answer
        .causes
        .iter()
        .map(|cause| (&*cause.reason, cause.city.as_deref(), cause.projects, cause.objects, cause.oldest))
        .collect();
    assert_eq!(
        rows,
        [
            ("NotScheduled", Some("ord"), 2, 2, at(10)),
            ("NotScheduled", Some("dfw"), 1, 1, at(30)),
            ("InvalidPlacement", None, 1, 1, at(1)),
            ("SourceNotFound", Some("ord"), 1, 1, at(40)),
        ]
    );
    assert_eq!(answer.causes[0].clusters, ["cell-ord"]);
    let names: Vec<_> =
        answer.objects.iter().map(|object| (object.place.project.as_str(), &*object.place.name)).collect();
    assert_eq!(
        names,
        [("lab", "web-ord"), ("shop", "bad"), ("shop", "api-ord"), ("shop", "web-dfw"), ("shop", "web-ord")],
        "Workload web is left out, because its deployments wait"
    );
}

#[test]
fn answer_in_parts_has_each_object_once_and_all_causes() {
    let whole = asked(&Query::default());
    for limit in 0..=5 {
        let (mut objects, mut after) = (Vec::new(), None);
        for _ in 0..10 {
            let part = asked(&Query { limit: Some(limit), after: after.clone(), ..Query::default() });
            assert_eq!(part.causes, whole.causes);
            objects.extend(part.objects);
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(objects.len(), if limit == 0 { 0 } else { 5 }, "limit {limit}");
        assert!(limit == 0 || objects == whole.objects);
    }
}

#[test]
fn query_selects_objects_and_their_causes() {
    let of = |reason: Option<&str>, city: Option<&str>, project: Option<&str>| {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let query = Query { reason: own(reason), city: own(city), project: own(project), ..Query::default() };
        let answer = asked(&query);
        (answer.causes.len(), answer.objects.len())
    };
    assert_eq!(of(Some("NotScheduled"), None, None), (2, 3));
    assert_eq!(of(Some("notscheduled"), Some("ORD"), None), (1, 2));
    assert_eq!(of(None, Some("ord"), Some("lab")), (1, 1));
    assert_eq!(of(None, None, Some("Lab")), (0, 0), "names of projects have their case");
    assert_eq!(of(Some("Unheard"), None, None), (0, 0));
}

#[test]
fn unusable_parameter_is_an_error() {
    let of = |query: &Query| answer(query, Vec::new(), Vec::new(), Totals::default(), at(0));
    assert!(of(&Query { limit: Some(MAX_LIMIT), ..Query::default() }).is_ok());
    assert!(of(&Query { limit: Some(MAX_LIMIT + 1), ..Query::default() }).is_err());
    for after in ["", "x", "a/b/Pod/c", "a//Workload/c", "///", "a/b/Workload/"] {
        assert!(of(&Query { after: Some(after.to_owned()), ..Query::default() }).is_err(), "{after:?}");
    }
    let place = parse("org/p/demo/Workload/web").unwrap();
    assert_eq!((place.project.as_str(), &*place.namespace), ("org/p", "demo"), "a project's name may have slashes");
    assert_eq!(parse(&token(&place)).unwrap(), place);
}

#[test]
fn answer_reads_back_equal() {
    let answer = asked(&Query::default());
    let text = serde_json::to_string(&answer).unwrap();
    assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
}

#[test]
fn waiting_objects_are_counted_by_reason_party_and_city_in_a_bounded_number_of_groups() {
    let of = |status, reason: &str| {
        let conditions = serde_json::from_value::<Vec<Condition>>(json!([ready(status, reason, 1)])).unwrap();
        wait(&ObjectMeta::default(), &conditions)
    };
    assert_eq!(of("True", "ReplicasAvailable"), None);
    let (tenant, platform) = (of("False", "ImageUnavailable").unwrap(), of("Unknown", "ImageUnavailable").unwrap());
    let counts = count([(&tenant, "DFW"), (&tenant, "dfw"), (&tenant, ""), (&platform, "dfw")]);
    let shown: Vec<_> =
        counts.iter().map(|(group, count)| (&*group.reason, group.who.label(), &*group.city, *count)).collect();
    let expected = [
        ("ImageUnavailable", "tenant", "", 1),
        ("ImageUnavailable", "tenant", "dfw", 2),
        ("ImageUnavailable", "platform", "dfw", 1),
    ];
    assert_eq!(shown, expected);
    let foreign: Vec<Wait> = (0..1000).map(|n| of("False", &format!("Reason{n}")).unwrap()).collect();
    let counts = count(foreign.iter().map(|wait| (wait, "dfw")));
    let other = Group { reason: OTHER.to_owned(), who: Who::Platform, city: String::new() };
    assert_eq!((counts.len(), counts[&other]), (GROUPS + 1, 1000 - GROUPS));
}
