//! Generated Workloads, sent as a tenant to a project's API server that calls the webhooks.

use http::Request;
use kube::ResourceExt;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use super::*;

#[path = "../../../src/plan/admission/definitions.rs"]
mod definitions;
#[path = "../../../src/plan/admission/samples.rs"]
mod samples;

use definitions::Definitions;

/// Number of Workloads that are sent, and number of accepted ones that are created.
const SENT: usize = 200;
const MADE: usize = 12;

/// Asserts that each Workload is accepted or refused with a message, and none causes an error of the webhooks. The definition
/// refuses exactly what the tests without servers expect. For accepted Workloads, the operator creates all deployments.
pub async fn judged_alike(tenant: &Client, admin: &Client, namespace: &str) {
    refused_by_webhooks(tenant, namespace).await;
    let mut runner = TestRunner::deterministic();
    let definition = std::fs::read_to_string(crate::common::path("crds/compute.datumapis.com_workloads.yaml")).unwrap();
    let definitions = Definitions::new([definition.as_str()]);
    let (mut taken, mut refused, mut by_definition) = (Vec::new(), 0, 0);
    let began = tokio::time::Instant::now();
    for n in 0..SENT {
        let mut workload = samples::workload().new_tree(&mut runner).unwrap().current();
        workload["apiVersion"] = json!("compute.datumapis.com/v1alpha");
        workload["kind"] = json!("Workload");
        // A namespace other than that of the URL never reaches the webhooks.
        workload["metadata"]["namespace"] = json!(namespace);
        let (code, body) = send(tenant, namespace, "?dryRun=All", &workload).await;
        let found = definitions.refused(&workload);
        match code {
            201 => {
                assert_eq!(found, [], "{workload} was taken");
                taken.push((n, workload));
            }
            // The rules of the definition, or those of the webhooks. Both name the fields.
            400 | 422 => {
                let message = body["message"].as_str().unwrap();
                assert!(message.len() < 1 << 20 && !message.is_empty(), "{body}");
                let is_by_rules = message.contains("vworkload.kb.io");
                // Names, labels and other metadata have the same rules for every kind.
                let is_by_name =
                    !is_by_rules && [" metadata.", "[metadata.", "ObjectMeta."].iter().any(|of| message.contains(of));
                assert!(is_by_name || is_by_rules == found.is_empty(), "{message}\n{found:?}");
                by_definition += usize::from(!is_by_rules && !is_by_name);
                refused += 1;
            }
            _ => panic!("{code} {body} for {workload}"),
        }
    }
    let time = began.elapsed();
    eprintln!(
        "generated Workloads: {} taken, {refused} refused, {by_definition} by the definition, in {time:?}",
        taken.len()
    );
    assert!(by_definition > SENT / 20, "{by_definition} by the definition");
    assert!(taken.len() > SENT / 10 && refused > SENT / 10, "{} taken, {refused} refused", taken.len());

    let few = |workload: &Value| {
        let placements = workload["spec"]["placements"].as_array().unwrap();
        placements.iter().all(|placement| placement["scaleSettings"]["minReplicas"].as_i64().unwrap_or(0) < 4)
    };
    let mut made = Vec::new();
    for (n, mut workload) in taken.into_iter().filter(|(_, workload)| few(workload)).take(MADE) {
        workload["metadata"]["name"] = json!(format!("generated-{n}"));
        let (code, body) = send(tenant, namespace, "", &workload).await;
        assert_eq!(code, 201, "{body}");
        made.push(body);
    }
    for workload in made {
        let uid = workload["metadata"]["uid"].as_str().unwrap();
        let placements = workload["spec"]["placements"].as_array().unwrap();
        let cities: usize = placements.iter().map(|placement| placement["cityCodes"].as_array().unwrap().len()).sum();
        eventually("every requested deployment is created", || async {
            let all = list(admin, "WorkloadDeployment", namespace).await;
            let of_it = all.iter().filter(|wd| wd.owner_references().iter().any(|owner| owner.uid == uid)).count();
            if of_it == cities { Ok(()) } else { Err(format!("{of_it} of {cities} for {workload}")) }
        })
        .await;
    }
}

/// Asserts that the webhooks refuse each violation of a rule that no definition states, with the path of its field.
async fn refused_by_webhooks(tenant: &Client, namespace: &str) {
    let policy = "spec.template.spec.networkInterfaces.0.networkPolicy";
    let at = |field: &str| format!("spec.template.spec.networkInterfaces[0].networkPolicy.ingress[0].{field}");
    let ports = |first: Value, last: i32| json!({ "ingress": [{ "ports": [{ "port": first, "endPort": last }] }] });
    let from =
        |hole: &str| json!({ "ingress": [{ "from": [{ "ipBlock": { "cidr": "10.0.0.0/16", "except": [hole] } }] }] });
    let placement =
        |n: usize| json!({ "name": format!("p{n}"), "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } });
    let placements: Vec<Value> = (0..33).map(placement).collect();
    let shown = "spec.template.spec.runtime.sandbox.containers[0]";
    let variables: Vec<Value> = (0..600).map(|n| json!({ "name": format!("V{n}") })).collect();
    let env = "spec.template.spec.runtime.sandbox.containers.0.env";
    let field =
        json!([{ "name": "A", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "spec.containers" } } }]);
    for (path, value, field) in [
        (policy, ports(json!(9000), 80), at("ports[0].endPort")),
        (policy, ports(json!("http"), 443), at("ports[0].endPort")),
        (policy, from("192.168.0.0/24"), at("from[0].ipBlock.except[0]")),
        (env, field, format!("{shown}.env[0].valueFrom.fieldRef.fieldPath")),
        (env, variables.into(), "spec.template.spec".into()),
        ("spec.placements", placements.into(), "spec.placements".into()),
        (
            "spec.template.spec.volumes.0.configMap.name",
            json!("kube-root-ca.crt"),
            "spec.template.spec.volumes[0].configMap.name".into(),
        ),
    ] {
        let mut workload = samples::set(samples::containers(), path, value);
        workload["apiVersion"] = json!("compute.datumapis.com/v1alpha");
        workload["kind"] = json!("Workload");
        workload["metadata"]["namespace"] = json!(namespace);
        let (code, body) = send(tenant, namespace, "?dryRun=All", &workload).await;
        let causes = body["details"]["causes"].as_array().into_iter().flatten();
        let fields: Vec<&str> = causes.filter_map(|cause| cause["field"].as_str()).collect();
        assert!(code == 422 && fields.contains(&&*field), "{field}: {code} {body}");
    }
}

/// Sends a creation. Returns status code and body.
async fn send(client: &Client, namespace: &str, query: &str, workload: &Value) -> (u16, Value) {
    let path = format!("/apis/compute.datumapis.com/v1alpha/namespaces/{namespace}/workloads{query}");
    let request = Request::post(path).header("content-type", "application/json");
    let answer = client.send(request.body(workload.to_string().into_bytes().into()).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&body).unwrap())
}
