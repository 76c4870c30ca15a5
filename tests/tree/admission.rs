//! The webhooks as the manifests have them: what is asked is what is served.

use compute_operator::{admission, plan::admission::deployment::POWERS};
use serde_json::Value;

use super::manifests::{configuration, objects, of_kind, overlays};

const OVERLAY: &str = "management-plane-admission";

fn webhooks(objects: &[Value]) -> Vec<Value> {
    of_kind(objects, "ValidatingWebhookConfiguration")[0]["webhooks"].as_array().unwrap().clone()
}

#[test]
fn what_is_asked_is_what_is_served() {
    let objects = objects(OVERLAY);
    let config = configuration(OVERLAY, &objects);
    let served = config.webhook.unwrap();
    let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let services = of_kind(&objects, "Service");
    let service = services.iter().find(|service| service["metadata"]["name"] == "compute-webhook").unwrap();
    let port = &service["spec"]["ports"][0];
    let ports = container["ports"].as_array().unwrap();
    let target = ports.iter().find(|p| p["name"] == port["targetPort"]).unwrap()["containerPort"].as_u64();
    assert_eq!(target, Some(u64::from(served.at.port())));
    let policies = of_kind(&objects, "NetworkPolicy");
    assert!(policies.iter().any(|policy| policy["spec"]["ingress"][0]["ports"][0]["port"].as_u64() == target));
    // Not /readyz, which asks for hub and projects too: while one of them is away, nobody could write anything.
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz/admission");
    for webhook in webhooks(&objects) {
        let client = &webhook["clientConfig"]["service"];
        assert_eq!(
            (&client["name"], &client["namespace"]),
            (&service["metadata"]["name"], &service["metadata"]["namespace"])
        );
        assert_eq!(webhook["failurePolicy"], "Fail");
    }
}

/// A webhook that must answer is never left to one pod, nor to none while a new version starts.
#[test]
fn whoever_must_answer_is_there_twice() {
    let mut found = 0;
    for overlay in overlays() {
        let objects = objects(&overlay);
        let must = |kind| {
            let webhooks =
                of_kind(&objects, kind).into_iter().flat_map(|object| object["webhooks"].as_array().unwrap());
            webhooks.filter(|webhook| webhook["failurePolicy"] != "Ignore").count()
        };
        let must = must("ValidatingWebhookConfiguration") + must("MutatingWebhookConfiguration");
        for deployment in of_kind(&objects, "Deployment").into_iter().filter(|_| must > 0) {
            let spec = &deployment["spec"];
            assert!(spec["replicas"].as_u64() > Some(1), "{overlay}: {}", spec["replicas"]);
            assert_eq!(spec["strategy"]["type"], "RollingUpdate", "{overlay}");
            found += 1;
        }
    }
    assert!(found > 0, "no overlay has webhooks");
}

#[test]
fn probes_and_metrics_are_reached_beside_the_webhooks() {
    let objects = objects(OVERLAY);
    let policies = of_kind(&objects, "NetworkPolicy");
    let policy = policies.iter().find(|policy| policy["metadata"]["name"] == "compute-webhook").unwrap();
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let container = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    for port in container["ports"].as_array().unwrap() {
        let rule = rules.iter().find(|rule| rule["ports"][0]["port"] == port["containerPort"]);
        assert_eq!(rule.unwrap()["from"].is_null(), port["name"] == "probes", "{port}");
    }
}

#[test]
fn every_configuration_asks_the_same() {
    let (one, other) = (objects(OVERLAY), objects("project-webhooks"));
    for (service, url) in webhooks(&one).iter().zip(&webhooks(&other)) {
        let path = service["clientConfig"]["service"]["path"].as_str().unwrap();
        assert!([admission::VALIDATE_WORKLOAD, admission::VALIDATE_DEPLOYMENT].contains(&path));
        let url_text = url["clientConfig"]["url"].as_str().unwrap();
        assert_eq!(url_text, format!("https://compute-webhook.compute-system.svc.cluster.local{path}"));
        assert_eq!((&service["rules"], &service["matchConditions"]), (&url["rules"], &url["matchConditions"]));
    }
}

#[test]
fn whoever_writes_what_is_a_power_is_asked_about() {
    let webhooks = webhooks(&objects(OVERLAY));
    let deployments =
        webhooks.iter().find(|webhook| webhook["rules"][0]["resources"][0] == "workloaddeployments").unwrap();
    let condition = deployments["matchConditions"][0]["expression"].as_str().unwrap();
    for power in POWERS {
        assert!(condition.contains(&format!("{power:?}")), "{power}");
    }
    // Beside the annotations nothing may keep it from being asked.
    assert_eq!(deployments["matchConditions"].as_array().unwrap().len(), 1);
}
