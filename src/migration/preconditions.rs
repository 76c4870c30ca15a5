//! State of the hub that matters for the migration from the Go operator and back, besides the policies. It covers outdated
//! definitions, and the Instances that the way back would restart.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, ResourceExt, api::ListParams};

use crate::{
    api::{
        compute::{Instance, InstanceSpec, InstanceTemplateSpec, Workload, WorkloadDeployment},
        crds,
        meta::label,
        shared::Shared,
    },
    io::{Class, Error, clients::Connection, list},
    plan::hash::{digest, is_own_hash},
};

/// Most names in one line.
const NAMED: usize = 20;

/// Reads the hub. Returns one line for each obstacle, and one for the cost of the way back.
///
/// # Errors
/// If the hub does not answer, or denies the reads.
pub(super) async fn status(hub: &Connection) -> Result<String, Error> {
    let ours = [Workload::crd(), WorkloadDeployment::crd(), Instance::crd()];
    let mut lines = String::new();
    let compare = |live: CustomResourceDefinition| {
        if let Some(own) = ours.iter().find(|own| own.name_any() == live.name_any()) {
            lines.extend(describe_differences(&live, own));
        }
    };
    match list::objects(hub, "hub", ListParams::default(), compare).await {
        // The operator's own credentials do not allow this read. The policies are reported nevertheless.
        Err(error) if error.class() == Class::Forbidden => {
            lines.push_str("the hub's CRDs cannot be read with these credentials, and are not compared\n");
        }
        done => done?,
    }
    let mut hashed: BTreeSet<String> = BTreeSet::new();
    let mut templates: BTreeMap<String, Shared<InstanceTemplateSpec>> = BTreeMap::new();
    let keep = |deployment: WorkloadDeployment| {
        if *deployment.spec.template != deployment.spec.template.without_later_fields() {
            let key = format!("{}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any());
            templates.insert(key, deployment.spec.template);
        }
    };
    list::objects(hub, "hub", ListParams::default(), keep).await?;
    let mut lacking: BTreeSet<String> = BTreeSet::new();
    let remember = |instance: Instance| {
        let named = instance.labels().get(label::WORKLOAD_DEPLOYMENT_NAME);
        let key = named.map(|name| format!("{}/{name}", instance.namespace().unwrap_or_default()));
        if key.and_then(|key| templates.get(&key)).is_some_and(|template| lacks_later_fields(&instance, template)) {
            lacking.insert(format!("{}/{}", instance.namespace().unwrap_or_default(), instance.name_any()));
        }
        if instance.spec.controller.as_ref().is_some_and(|controller| is_own_hash(&controller.template_hash)) {
            hashed.insert(format!("{}/{}", instance.namespace().unwrap_or_default(), instance.name_any()));
        }
    };
    list::objects(hub, "hub", ListParams::default(), remember).await?;
    Ok(format!("{lines}{}{}", describe_completed(&lacking), describe_restarted(&hashed)))
}

/// True if an Instance equals its template except for fields that only later definitions have: the definition of its cell has
/// dropped them.
fn lacks_later_fields(instance: &Instance, template: &InstanceTemplateSpec) -> bool {
    let hash = |spec: &InstanceSpec| {
        digest(&serde_json::json!(InstanceSpec { controller: None, location: None, ..spec.clone() }))
    };
    let (live, without) = (hash(&instance.spec), hash(&template.without_later_fields().spec));
    live == without && live != hash(&template.spec)
}

/// Returns the steps for a definition on the hub before ours is applied over it, or before this operator starts.
fn describe_differences(live: &CustomResourceDefinition, own: &CustomResourceDefinition) -> Option<String> {
    let differences = crds::differences(live, own);
    let name = live.name_any();
    let describe = |problem: &str, fields: &[String]| {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        format!("{name}: {problem}: {}\n", first_names(&fields))
    };
    let lost = "the hub's CRD has fields that this version lacks, and that would be lost; stop here";
    let old = "the hub's CRD lacks fields of this version; apply config/base/crd first";
    let both = [(&differences.more, lost), (&differences.less, old)];
    let lines = both.into_iter().filter(|(fields, _)| !fields.is_empty());
    let lines: String = lines.map(|(fields, problem)| describe(problem, fields)).collect();
    (!lines.is_empty()).then_some(lines)
}

/// Returns the line about Instances that are recreated once their cell's definitions know the fields of their template.
fn describe_completed(instances: &BTreeSet<String>) -> String {
    if instances.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = instances.iter().map(String::as_str).collect();
    format!(
        "{} Instance(s) run without fields of their templates, which their cells' CRDs dropped. Once config/base/crd is \
         applied to the cell, they are recreated, one at a time for each deployment: {}\n",
        names.len(),
        first_names(&names)
    )
}

/// Returns the line about Instances that the way back recreates.
fn describe_restarted(instances: &BTreeSet<String>) -> String {
    if instances.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = instances.iter().map(String::as_str).collect();
    format!(
        "the rollback to the Go operator would recreate {} Instance(s), one at a time for each deployment: {}\n",
        names.len(),
        first_names(&names)
    )
}

/// Returns the first names, and the number of the others.
fn first_names(all: &[&str]) -> String {
    let first = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Our definition of an Instance, with an edited schema.
    fn definition(edit: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut value = serde_json::to_value(Instance::crd()).unwrap();
        edit(&mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn hub_definition_with_other_fields_is_reported() {
        let own = Instance::crd();
        assert_eq!(describe_differences(&own, &own), None);
        let newer = definition(|schema| {
            schema["spec"]["properties"]["networkInterfaces"]["items"]["properties"]["mtu"] =
                json!({ "type": "integer" });
        });
        let text = describe_differences(&newer, &own).unwrap();
        assert!(text.contains("that would be lost; stop here: spec.networkInterfaces[].mtu\n"), "{text}");
        let told_more = definition(|schema| {
            schema["status"]["properties"]["dns"]["items"]["properties"]["name"] = json!({ "type": "string" });
        });
        assert_eq!(describe_differences(&told_more, &own), None, "ours takes everything there");
        let older = definition(|schema| {
            schema["status"]["properties"].as_object_mut().unwrap().remove("suspended");
        });
        let text = describe_differences(&older, &own).unwrap();
        assert!(text.ends_with("apply config/base/crd first: status.suspended\n"), "{text}");
    }

    #[test]
    fn instance_without_dropped_later_fields_is_reported_as_lacking() {
        let template = |class: Option<&str>, image: &str| -> InstanceTemplateSpec {
            serde_json::from_value(json!({ "spec": {
                "runtime": {
                    "class": class, "resources": { "instanceType": "t" },
                    "sandbox": { "containers": [{ "name": "c", "image": image }] },
                },
                "networkInterfaces": [{ "network": { "name": "n" } }],
            } }))
            .unwrap()
        };
        let made_from = |template: &InstanceTemplateSpec| -> Instance {
            let mut spec = json!(template.spec);
            spec["location"] = json!({ "name": "dfw-1" });
            spec["controller"] = json!({ "templateHash": "5b7c" });
            serde_json::from_value(json!({ "metadata": { "name": "web-0" }, "spec": spec })).unwrap()
        };
        let asked = template(Some("fast"), "i:1");
        for (what, instance, expected) in [
            ("it has been dropped", made_from(&template(None, "i:1")), true),
            ("it has it", made_from(&asked), false),
            ("it is made anew anyway", made_from(&template(None, "i:0")), false),
        ] {
            assert_eq!(lacks_later_fields(&instance, &asked), expected, "{what}");
        }
        assert!(!lacks_later_fields(&made_from(&template(None, "i:1")), &template(None, "i:1")), "nothing to drop");
        let text = describe_completed(&["ns-1/web-0".to_owned()].into());
        assert!(text.starts_with("1 Instance(s) run without fields") && text.ends_with(": ns-1/web-0\n"), "{text}");
        assert_eq!(describe_completed(&BTreeSet::new()), "");
    }

    #[test]
    fn recreated_instances_are_named_up_to_the_limit() {
        assert_eq!(describe_restarted(&BTreeSet::new()), "");
        let few: BTreeSet<String> = ["ns-1/web-0".to_owned(), "ns-1/web-1".to_owned()].into();
        let text = describe_restarted(&few);
        assert!(
            text.contains("would recreate 2 Instance(s)") && text.ends_with(": ns-1/web-0, ns-1/web-1\n"),
            "{text}"
        );
        let many: BTreeSet<String> = (0..25).map(|n| format!("ns-1/web-{n:02}")).collect();
        assert!(describe_restarted(&many).ends_with("ns-1/web-19 and 5 more\n"), "{}", describe_restarted(&many));
    }
}
