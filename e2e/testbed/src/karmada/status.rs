//! Statuses: cell -> binding -> template, through the interpreter's scripts (facts 3, 9, 10).

use std::collections::BTreeSet;

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Failures, Federation,
    bindings::{clusters, of},
    interpreter::{Answer, Operation},
    works::{EXECUTION_SPACE, manifest_of},
};

impl Federation {
    /// Collects the status of every binding with Works or former Works.
    pub(super) async fn collect_status(&self) -> Result<()> {
        let mut failures = Failures::default();
        let works = self.works();
        for binding in self.hub.all("ResourceBinding") {
            if binding.metadata.deletion_timestamp.is_none() {
                let works = works.get(&of(&binding)).map(Vec::as_slice).unwrap_or_default();
                failures.note(self.collect(&binding, works).await);
            }
        }
        failures.result()
    }

    async fn collect(&self, binding: &DynamicObject, works: &[std::sync::Arc<DynamicObject>]) -> Result<()> {
        let mut items = Vec::new();
        for work in works.iter().filter(|work| work.metadata.deletion_timestamp.is_none()) {
            let cluster = work.namespace().unwrap_or_default().replacen(EXECUTION_SPACE, "", 1);
            let condition = &work.data["status"]["conditions"][0];
            let applied = condition["status"] == "True";
            let mut item = json!({ "clusterName": cluster, "applied": applied, "health": "Unknown" });
            if applied {
                if let Some(status) = self.reflect(&cluster, manifest_of(work)) {
                    item["status"] = status;
                }
            } else if let Some(message) = condition["message"].as_str() {
                item["appliedMessage"] = json!(message);
            }
            items.push(item);
        }
        items.sort_by_key(|item| item["clusterName"].as_str().unwrap_or_default().to_owned());
        let known = binding.data["status"].get("aggregatedStatus");
        if known.is_none() && items.is_empty() {
            return Ok(());
        }
        if known != Some(&json!(items)) {
            self.hub.merge_status("ResourceBinding", binding, &json!({ "aggregatedStatus": items })).await?;
        }
        let spec = &binding.data["spec"];
        let required = spec["requiredBy"].as_array().into_iter().flatten().flat_map(|by| clusters(&by["clusters"]));
        let targets: BTreeSet<String> = clusters(&spec["clusters"]).into_iter().chain(required).collect();
        let applied: BTreeSet<String> = items
            .iter()
            .filter(|item| item["applied"] == true)
            .filter_map(|item| Some(item["clusterName"].as_str()?.to_owned()))
            .collect();
        let condition = if applied == targets && !targets.is_empty() {
            json!({
                "type": "FullyApplied", "status": "True", "reason": "FullyAppliedSuccess",
                "message": "All works have been successfully applied",
            })
        } else {
            json!({
                "type": "FullyApplied", "status": "False", "reason": "FullyAppliedFailed",
                "message": "Failed to apply all works, see status.aggregatedStatus for details",
            })
        };
        self.set_condition(binding, condition).await?;
        self.aggregate(binding, &items).await
    }

    fn reflect(&self, cluster: &str, manifest: &Value) -> Option<Value> {
        let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default();
        let kind = manifest["kind"].as_str().filter(|kind| *kind == "WorkloadDeployment")?;
        let live = self.cells.get(cluster)?.get(kind, text("namespace"), text("name"))?;
        let Answer::Said(status) = self.interpret(Operation::Reflection, kind, &live, None) else { return None };
        Some(status)
    }

    async fn aggregate(&self, binding: &DynamicObject, items: &[Value]) -> Result<()> {
        let resource = &binding.data["spec"]["resource"];
        if resource["kind"] != "WorkloadDeployment" {
            return Ok(());
        }
        let name = resource["name"].as_str().unwrap_or_default();
        let Some(template) = self.hub.get("WorkloadDeployment", &binding.namespace().unwrap_or_default(), name) else {
            return Ok(());
        };
        let items = json!(items);
        let Answer::Said(answer) =
            self.interpret(Operation::Aggregation, "WorkloadDeployment", &template, Some(&items))
        else {
            return Ok(());
        };
        // Only the status of the answer counts. The API server ignores everything else in an update of it (fact 78).
        if answer["status"] != template.data["status"] {
            let object: DynamicObject = serde_json::from_value(answer)?;
            self.hub.replace_status("WorkloadDeployment", &object).await?;
        }
        Ok(())
    }
}
