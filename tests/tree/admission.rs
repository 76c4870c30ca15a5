//! The webhooks of the manifests: the rules of each configuration and the server that answers.

use compute_operator::{
    admission,
    api::meta::{annotation, label},
    config::{Config, Flags},
    plan::admission::deployment::POWERS,
};
use serde_json::Value;

use super::{
    manifests::{configuration, objects, of_kind, overlays},
    root,
};

const OVERLAY: &str = "management-plane-admission";
const BESIDE_A_CELL: &str = "single-cluster-admission";

fn webhooks(objects: &[Value]) -> Vec<Value> {
    of_kind(objects, "ValidatingWebhookConfiguration")[0]["webhooks"].as_array().unwrap().clone()
}

#[test]
fn webhook_manifests_match_the_port_and_service_of_the_server() {
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
    // Not /readyz: that also needs the hub and the projects. While one of them is away, every write would be refused.
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

/// An overlay with webhooks that fail closed runs two replicas, and keeps one while a new version starts.
#[test]
fn overlay_with_webhooks_that_fail_closed_has_two_replicas() {
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
fn webhook_network_policy_admits_probes_and_metrics() {
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
fn webhook_configurations_of_all_overlays_have_the_same_rules() {
    let one = webhooks(&objects(OVERLAY));
    for (overlay, host) in [
        ("project-webhooks", "https://compute-webhook.compute-system.svc.cluster.local"),
        ("dev", "https://host.docker.internal:9443"),
    ] {
        for (service, url) in one.iter().zip(&webhooks(&objects(overlay))) {
            let path = service["clientConfig"]["service"]["path"].as_str().unwrap();
            assert!([admission::VALIDATE_WORKLOAD, admission::VALIDATE_DEPLOYMENT].contains(&path));
            assert_eq!(url["clientConfig"]["url"], format!("{host}{path}"), "{overlay}");
            assert_eq!((&service["rules"], &service["matchConditions"]), (&url["rules"], &asked(overlay, url)));
        }
    }
    for overlay in ["single-project-admission", BESIDE_A_CELL] {
        for (service, other) in one.iter().zip(&webhooks(&objects(overlay))) {
            assert_eq!(service["clientConfig"], other["clientConfig"], "{overlay}");
            assert_eq!((&service["rules"], &service["matchConditions"]), (&other["rules"], &asked(overlay, other)));
        }
    }
}

/// Returns the match conditions of a webhook, without the one that the component `webhook-beside-cell` adds.
fn asked(overlay: &str, webhook: &Value) -> Value {
    let mut conditions = webhook["matchConditions"].as_array().unwrap().clone();
    if ["dev", BESIDE_A_CELL].contains(&overlay) && webhook["name"] == "vworkloaddeployment.kb.io" {
        let last = conditions.pop().unwrap();
        assert_eq!(last["name"], "is-not-brought-to-the-cell", "{overlay}");
        // No label is enough to pass the webhook.
        assert!(last["expression"].as_str().unwrap().ends_with("check('bring').allowed())"), "{last}");
        assert!(webhook["namespaceSelector"].is_null() && webhook["objectSelector"].is_null(), "{overlay}");
        for key in [label::UPSTREAM_NAMESPACE, annotation::TEMPLATE_UID, annotation::FEDERATION_NAMESPACE] {
            assert!(last["expression"].as_str().unwrap().contains(&format!("{key:?}")), "{key}");
        }
    }
    conditions.into()
}

#[test]
fn dev_overlay_webhooks_match_the_manager_port_and_certificate() {
    let objects = objects("dev");
    let one = |kind: &str| match of_kind(&objects, kind)[..] {
        [one] => one,
        ref others => panic!("{kind}: {others:?}"),
    };
    let (certificate, configuration) = (one("Certificate"), one("ValidatingWebhookConfiguration"));
    let named = format!("compute-system/{}", certificate["metadata"]["name"].as_str().unwrap());
    assert_eq!(configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], named);
    assert_eq!(certificate["spec"]["dnsNames"], serde_json::json!(["host.docker.internal"]));
    assert_eq!(certificate["spec"]["issuerRef"]["name"], one("Issuer")["metadata"]["name"]);
    let dir = root().join("config/overlays/dev");
    let told = std::fs::read_to_string(dir.join("kustomization.yaml")).unwrap();
    assert!(told.contains(&format!("get secret {} ", certificate["spec"]["secretName"].as_str().unwrap())));
    let file = std::fs::read_to_string(dir.join("config.yaml")).unwrap();
    let some_file = root().join("Cargo.toml").display().to_string();
    let given = ["--server-config", "--federation-kubeconfig"].map(|flag| format!("{flag}={some_file}"));
    let both = ["compute-operator", "--enable-management-controllers", "--enable-cell-controllers"].map(str::to_owned);
    let config = Config::new(Flags::from_args(both.into_iter().chain(given)).unwrap(), Some(&file)).unwrap();
    let served = config.webhook.unwrap();
    assert_eq!(served.at.port(), 9443);
    let folder = served.files.certificate.parent().unwrap().display().to_string();
    assert!(told.contains(&format!("> {folder}/$file")), "{folder}");
}

#[test]
fn webhook_condition_names_every_power_annotation() {
    let webhooks = webhooks(&objects(OVERLAY));
    let deployments =
        webhooks.iter().find(|webhook| webhook["rules"][0]["resources"][0] == "workloaddeployments").unwrap();
    let condition = deployments["matchConditions"][0]["expression"].as_str().unwrap();
    for power in POWERS {
        assert!(condition.contains(&format!("{power:?}")), "{power}");
    }
    // No other condition may exempt a write from the webhook.
    assert_eq!(deployments["matchConditions"].as_array().unwrap().len(), 1);
}
