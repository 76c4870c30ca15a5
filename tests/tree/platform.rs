//! The kustomizations of `config/samples/platform`. A platform that copies them only fills in the values that they mark as its
//! own.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    manifests::{configuration, kustomize, of_kind, overlays},
    optional::{OPTIONAL, rendered, rendered_with},
    root,
};

/// Each sample, and true if it has a manager. Their components are in the same folder.
pub const SAMPLES: [(&str, bool); 3] = [("management", true), ("project", false), ("cell", true)];

/// Returns the YAML of a sample.
pub fn platform(sample: &str) -> String {
    kustomize(&root().join("config/samples/platform").join(sample))
}

fn objects(sample: &str) -> Vec<Value> {
    testbed::manifests::documents(&platform(sample)).unwrap()
}

/// Attributes of the operator's volumes that cert-manager's CSI driver reads (its `pkg/apis/v1alpha1/types.go`). An API server
/// accepts any key, and the driver ignores an unknown one.
const ATTRIBUTES: [&str; 5] = ["dns-names", "fs-group", "issuer-group", "issuer-kind", "issuer-name"];
/// The attribute that the driver requires. Without it, no certificate is made and no pod starts.
const REQUIRED: &str = "csi.cert-manager.io/issuer-name";

/// Returns the errors in the volumes that the driver fills. `complete` is true if the platform has already filled in its values.
fn wrong_volumes(pod: &Value, complete: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let volumes = pod["volumes"].as_array().unwrap().iter();
    for volume in volumes.filter(|volume| volume["csi"]["driver"] == "csi.cert-manager.io") {
        let attributes = volume["csi"]["volumeAttributes"].as_object().unwrap();
        let known = |key: &str| key.strip_prefix("csi.cert-manager.io/").is_some_and(|key| ATTRIBUTES.contains(&key));
        wrong.extend(attributes.keys().filter(|key| !known(key)).cloned());
        if attributes.contains_key(REQUIRED) != complete {
            wrong.push(REQUIRED.to_owned());
        }
        // The group of the process must be able to read the key.
        let group = pod["securityContext"]["runAsGroup"].to_string();
        if attributes.get("csi.cert-manager.io/fs-group").and_then(Value::as_str) != Some(&group) {
            wrong.push("csi.cert-manager.io/fs-group".to_owned());
        }
        if volume["csi"]["readOnly"] != true {
            wrong.push("readOnly".to_owned());
        }
    }
    wrong
}

#[test]
fn certificate_volumes_have_the_attributes_that_the_csi_driver_reads() {
    let stand = overlays().into_iter().map(|overlay| (rendered(&overlay), false));
    let added = OPTIONAL.map(|(component, overlay)| (rendered_with(component, overlay), false));
    let complete = SAMPLES.map(|(sample, _)| (platform(sample), true));
    let mut seen = 0;
    for (text, complete) in stand.chain(added).chain(complete) {
        let objects = testbed::manifests::documents(&text).unwrap();
        for deployment in of_kind(&objects, "Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            assert_eq!(wrong_volumes(pod, complete), [""; 0], "{pod}");
            if pod.to_string().contains("csi.cert-manager.io/dns-names") {
                // The check detects a misspelt attribute.
                let misspelt = pod.to_string().replace("/dns-names", "/dns-name");
                let misspelt = wrong_volumes(&serde_json::from_str(&misspelt).unwrap(), complete);
                assert!(misspelt.contains(&"csi.cert-manager.io/dns-name".to_owned()), "{misspelt:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 4, "only {seen} have certificates");
}

/// Decodes base64 text that has line breaks.
fn decoded(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().unwrap().replace('\n', "")).unwrap()
}

#[test]
fn platform_sample_folders_are_rendered_or_components() {
    for entry in fs::read_dir(root().join("config/samples/platform")).unwrap() {
        let entry = entry.unwrap();
        let text = fs::read_to_string(entry.path().join("kustomization.yaml")).unwrap();
        let name = entry.file_name().into_string().unwrap();
        let rendered = SAMPLES.iter().any(|(sample, _)| *sample == name);
        assert!(rendered != text.contains("kind: Component\n"), "{name} is neither rendered nor a component");
    }
}

#[test]
fn platform_sample_manager_has_image_cell_name_and_issued_certificates() {
    for (sample, _) in SAMPLES.iter().filter(|(_, manager)| *manager) {
        let objects = objects(sample);
        let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
        let image = pod["containers"][0]["image"].as_str().unwrap();
        assert!(image.contains('/') && !image.ends_with(":latest"), "{sample}: no node can pull {image}");
        let volumes = pod["volumes"].as_array().unwrap();
        let issued: Vec<&Value> = volumes.iter().filter(|v| v["csi"]["driver"] == "csi.cert-manager.io").collect();
        for volume in &issued {
            for key in ["issuer-name", "issuer-kind", "issuer-group"] {
                let value = &volume["csi"]["volumeAttributes"][format!("csi.cert-manager.io/{key}")];
                assert!(value.is_string(), "{sample}: {} has no {key}", volume["name"]);
            }
        }
        let config = configuration(sample, &objects);
        // Every certificate that the manager serves with is issued, and mounted at the path in its config file.
        assert_eq!(issued.len(), 1 + usize::from(config.webhook.is_some()), "{sample}");
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        for volume in issued {
            let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).unwrap();
            let file = of_kind(&objects, "ConfigMap").into_iter().find(|c| c["metadata"]["name"] == "compute-config");
            let named = format!("certDir: {}\n", mount["mountPath"].as_str().unwrap());
            assert!(file.unwrap()["data"]["config.yaml"].as_str().unwrap().contains(&named), "{sample}: {named}");
        }
        if config.cell {
            assert!(
                config.quota.is_some_and(|quota| quota.names.current != "single"),
                "{sample}: whose claims are they?"
            );
        }
    }
}

#[test]
fn platform_sample_clients_trust_the_authority() {
    let authority = fs::read(root().join("config/samples/platform/authority/ca.crt")).unwrap();
    for (sample, manager) in SAMPLES {
        let objects = objects(sample);
        let hooks = of_kind(&objects, "ValidatingWebhookConfiguration");
        assert_eq!(hooks.is_empty(), sample == "cell", "{sample}");
        for hook in hooks.iter().flat_map(|hooks| hooks["webhooks"].as_array().unwrap()) {
            assert_eq!(decoded(&hook["clientConfig"]["caBundle"]), authority, "{sample}: {}", hook["name"]);
        }
        // Prometheus finds the Secret in the manager's namespace. A project's control plane has no Prometheus.
        let secrets = of_kind(&objects, "Secret");
        assert_eq!(secrets.len(), usize::from(manager), "{sample}");
        let Some(secret) = secrets.first() else { continue };
        let monitor = of_kind(&objects, "ServiceMonitor")[0];
        let tls = &monitor["spec"]["endpoints"][0]["tlsConfig"];
        assert_eq!(
            tls["insecureSkipVerify"],
            Value::Null,
            "{sample}: Prometheus sends its token only to a verified server"
        );
        let (wanted, key) = (&tls["ca"]["secret"], tls["ca"]["secret"]["key"].as_str().unwrap());
        assert_eq!((&wanted["name"], &monitor["metadata"]["namespace"]), {
            let metadata = &secret["metadata"];
            (&metadata["name"], &metadata["namespace"])
        });
        assert_eq!(decoded(&secret["data"][key]), authority, "{sample}");
        // The certificate has the server name that Prometheus expects.
        let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
        let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "metrics-cert").unwrap();
        let names = volume["csi"]["volumeAttributes"]["csi.cert-manager.io/dns-names"].as_str().unwrap();
        assert!(names.split(',').any(|name| tls["serverName"] == name), "{sample}: {names}");
    }
}

#[test]
fn deploying_page_shows_the_platform_sample_unchanged() {
    let page = fs::read_to_string(root().join("docs/deploying.md")).unwrap();
    for file in ["management/kustomization.yaml", "cell/config.yaml"] {
        let text = fs::read_to_string(root().join("config/samples/platform").join(file)).unwrap();
        assert!(page.contains(&format!("```yaml\n{text}```\n")), "docs/deploying.md shows another {file}");
    }
}
