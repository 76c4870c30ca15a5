//! The kustomizations of `config/samples/platform`: a platform that copies them has nothing else to fill in than what they mark as
//! its own.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    manifests::{configuration, kustomize, of_kind, overlays},
    optional::{OPTIONAL, rendered, rendered_with},
    root,
};

/// Each, and whether it has a manager. Their components lie beside them.
pub const SAMPLES: [(&str, bool); 3] = [("management", true), ("project", false), ("cell", true)];

/// The YAML of one.
pub fn platform(sample: &str) -> String {
    kustomize(&root().join("config/samples/platform").join(sample))
}

fn objects(sample: &str) -> Vec<Value> {
    testbed::manifests::documents(&platform(sample)).unwrap()
}

/// What our volumes tell cert-manager's CSI driver, of what it reads (`pkg/apis/v1alpha1/types.go` there). An API server takes any
/// key, and the driver passes over one that it does not know.
const ATTRIBUTES: [&str; 5] = ["dns-names", "fs-group", "issuer-group", "issuer-kind", "issuer-name"];
/// The one of them without which the driver makes no certificate, and no pod starts.
const REQUIRED: &str = "csi.cert-manager.io/issuer-name";

/// What is wrong with the volumes that the driver fills, in a pod that a platform has completed or is still to complete.
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
        // Whoever the process runs as must be able to read the key.
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
fn volumes_with_certificates_say_what_their_driver_reads_and_who_issues_once_a_platform_has_said_it() {
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
                // The check itself notices a misspelt attribute.
                let misspelt = pod.to_string().replace("/dns-names", "/dns-name");
                let misspelt = wrong_volumes(&serde_json::from_str(&misspelt).unwrap(), complete);
                assert!(misspelt.contains(&"csi.cert-manager.io/dns-name".to_owned()), "{misspelt:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 4, "only {seen} have certificates");
}

/// What base64 says that stands in several lines.
fn decoded(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().unwrap().replace('\n', "")).unwrap()
}

#[test]
fn every_folder_of_the_sample_is_one_that_is_rendered_or_a_component_of_one() {
    for entry in fs::read_dir(root().join("config/samples/platform")).unwrap() {
        let entry = entry.unwrap();
        let text = fs::read_to_string(entry.path().join("kustomization.yaml")).unwrap();
        let name = entry.file_name().into_string().unwrap();
        let rendered = SAMPLES.iter().any(|(sample, _)| *sample == name);
        assert!(rendered != text.contains("kind: Component\n"), "{name}: who looks at it?");
    }
}

#[test]
fn a_platform_s_manager_has_an_image_a_name_and_certificates_that_somebody_issues() {
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
        // Whatever it serves with is issued, and mounted where its config file says.
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
fn a_platform_s_authority_is_known_to_whoever_asks_the_manager() {
    let authority = fs::read(root().join("config/samples/platform/authority/ca.crt")).unwrap();
    for (sample, manager) in SAMPLES {
        let objects = objects(sample);
        let hooks = of_kind(&objects, "ValidatingWebhookConfiguration");
        assert_eq!(hooks.is_empty(), sample == "cell", "{sample}");
        for hook in hooks.iter().flat_map(|hooks| hooks["webhooks"].as_array().unwrap()) {
            assert_eq!(decoded(&hook["clientConfig"]["caBundle"]), authority, "{sample}: {}", hook["name"]);
        }
        // Prometheus finds it beside the manager; in a project's control plane there is nobody to look for it.
        let secrets = of_kind(&objects, "Secret");
        assert_eq!(secrets.len(), usize::from(manager), "{sample}");
        let Some(secret) = secrets.first() else { continue };
        let monitor = of_kind(&objects, "ServiceMonitor")[0];
        let tls = &monitor["spec"]["endpoints"][0]["tlsConfig"];
        assert_eq!(tls["insecureSkipVerify"], Value::Null, "{sample}: Prometheus gives nobody else its token");
        let (wanted, key) = (&tls["ca"]["secret"], tls["ca"]["secret"]["key"].as_str().unwrap());
        assert_eq!((&wanted["name"], &monitor["metadata"]["namespace"]), {
            let metadata = &secret["metadata"];
            (&metadata["name"], &metadata["namespace"])
        });
        assert_eq!(decoded(&secret["data"][key]), authority, "{sample}");
        // The name that it asks for is one of the certificate's.
        let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
        let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "metrics-cert").unwrap();
        let names = volume["csi"]["volumeAttributes"]["csi.cert-manager.io/dns-names"].as_str().unwrap();
        assert!(names.split(',').any(|name| tls["serverName"] == name), "{sample}: {names}");
    }
}

#[test]
fn the_page_shows_the_sample_as_it_is() {
    let page = fs::read_to_string(root().join("docs/deploying.md")).unwrap();
    for file in ["management/kustomization.yaml", "cell/config.yaml"] {
        let text = fs::read_to_string(root().join("config/samples/platform").join(file)).unwrap();
        assert!(page.contains(&format!("```yaml\n{text}```\n")), "docs/deploying.md shows another {file}");
    }
}
