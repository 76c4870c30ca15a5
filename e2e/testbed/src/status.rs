//! The operator's objects in a project, as a table.

use std::path::PathBuf;

use anyhow::{Result, bail};
use comfy_table::{Table, presets::NOTHING};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

/// Returns all objects of one of the operator's kinds.
pub(crate) async fn list(client: &Client, kind: &str) -> Result<Vec<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("compute.datumapis.com", "v1alpha", kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) => bail!("cannot list {kind}: {error}"),
    }
}

/// Returns true if the condition is true, and a short text of it.
pub(crate) fn condition(object: &DynamicObject, type_: &str) -> (bool, String) {
    let conditions = object.data["status"]["conditions"].as_array();
    let Some(found) = conditions.into_iter().flatten().find(|c| c["type"] == type_) else { return (false, "-".into()) };
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    (text("status") == "True", format!("{type_}={} {}", text("status"), text("reason")))
}

/// Returns a table of the Workloads, WorkloadDeployments and Instances of a project, each with its condition `Ready`.
///
/// # Errors
/// Returns the error of the project's API server.
pub async fn table(project: &Client) -> Result<String> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["KIND", "NAMESPACE", "NAME", "READY"]);
    for kind in ["Workload", "WorkloadDeployment", "Instance"] {
        let mut objects = list(project, kind).await?;
        objects.sort_by_key(|object| (object.namespace(), object.name_any()));
        for object in objects {
            table.add_row(row(kind, &object));
        }
    }
    Ok(table.to_string())
}

/// Returns kind, namespace, name, and the condition `Ready`.
fn row(kind: &str, object: &DynamicObject) -> [String; 4] {
    let (_, says) = condition(object, "Ready");
    let ready = says.trim_start_matches("Ready=").to_owned();
    [kind.to_owned(), object.namespace().unwrap_or_default(), object.name_any(), ready]
}

/// Returns the projects in the lines of [`crate::Testbed::env`], each with its kubeconfig.
pub fn projects(env: &str) -> Vec<(&str, PathBuf)> {
    let lines = env.lines().filter_map(|line| line.split_once("_KUBECONFIG="));
    let own = lines.filter(|(name, _)| name.starts_with("PROJECT") && !name.ends_with("_OPERATOR"));
    own.map(|(name, file)| (name, PathBuf::from(file))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn row_shows_the_reason_of_ready() {
        let row = |status: serde_json::Value| {
            let metadata = json!({ "name": "hello", "namespace": "demo" });
            row("Workload", &serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap())
        };
        let conditions = json!([
            { "type": "Available", "status": "True", "reason": "Available" },
            { "type": "Ready", "status": "False", "reason": "QuotaExceeded" },
        ]);
        assert_eq!(row(json!({ "conditions": conditions })), ["Workload", "demo", "hello", "False QuotaExceeded"]);
        assert_eq!(row(json!({})), ["Workload", "demo", "hello", "-"]);
    }

    #[test]
    fn projects_are_read_from_the_addresses_of_the_testbed() {
        let env = "PROJECT_KUBECONFIG=/a\nPROJECT_OPERATOR_KUBECONFIG=/b\nHUB_KUBECONFIG=/c\nPROJECT_LAB_KUBECONFIG=/d\n\
                   PROJECT_LAB_OPERATOR_KUBECONFIG=/e\nCELL_DFW_KUBECONFIG=/f\n";
        assert_eq!(projects(env), [("PROJECT", "/a".into()), ("PROJECT_LAB", "/d".into())]);
    }
}
