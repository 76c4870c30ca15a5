//! The webhooks as the manifests have them: what is asked is what is served.

use compute_operator::{admission, plan::admission::deployment::POWERS};
use serde_json::Value;

use super::manifests::{configuration, objects, of_kind};

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
