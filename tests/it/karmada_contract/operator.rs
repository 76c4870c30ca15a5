//! What the operator makes of the hub's own ways.

use std::time::Instant;

use testbed::{audit::Audit, operator::Operator, pki::User};

use super::*;
use crate::common::{binary, workload};

#[test]
fn fact_43_the_defaults_of_a_live_policy_cause_no_write_of_ours() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let project = testbed::control_plane::client(&hub.bed.project.kubeconfig(&User::Admin)).await.unwrap();
        let name = format!("fact-{:06x}", fastrand::u32(..0x0100_0000));
        let made =
            apply(&project, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
        let ns = format!("ns-{}", made.uid().unwrap());
        apply(&project, workload(&name, "web", &["dfw"], 1)).await;
        let start = || async {
            let mut operator = Operator::management(&hub.bed, binary(), "operator-fact-43", &[]).unwrap();
            operator.wait_ready().await.unwrap();
            operator
        };
        let mut operator = start().await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "web-p-dfw").await;
        // The guard names who holds the city, once the binding says so: that is the last write of the policy.
        let settled = || async {
            let policy = get(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await.ok_or("no policy")?;
            let spec = &policy.data["spec"];
            let defaulted = spec["conflictResolution"] == "Abort" && spec["schedulerName"] == "default-scheduler";
            let guarded = spec["placement"]["clusterAffinities"][1]["clusterNames"] == json!(["cell-dfw"]);
            if defaulted && guarded { Ok(policy) } else { Err(spec.to_string()) }
        };
        let before = eventually("the policy has its defaults and its guard", settled).await;
        operator.process.kill();
        let (audit, began) = (Audit::mark(&hub.bed.hub), Instant::now());
        // After a restart every object is compared once more; a change that goes its way shows that it has been.
        let _operator = start().await;
        let scaled = json!({ "spec": { "placements": [{
            "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 2 },
        }] } });
        merge(&project, "Workload", &name, "web", scaled).await;
        eventually("the change is on the hub", || async {
            let deployment = get(&hub.hub, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("gone")?;
            let scale = &deployment.data["spec"]["scaleSettings"]["minReplicas"];
            if scale == 2 { Ok(()) } else { Err(scale.to_string()) }
        })
        .await;
        never("the policy is written", || async {
            let now = get(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
            let same = now.as_ref().is_some_and(|now| now.resource_version() == before.resource_version());
            (!same).then(|| format!("{now:?}"))
        })
        .await;
        let asked = audit.requests().unwrap();
        assert!(!asked.is_empty(), "nothing was asked in {:?}", began.elapsed());
        let written: Vec<_> = asked
            .iter()
            .filter(|r| r.resource == "propagationpolicies" && !["get", "list"].contains(&r.verb.as_str()))
            .collect();
        assert!(written.is_empty(), "{written:?}");
        delete(&project, "Workload", &name, "web").await;
        gone(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
    });
}
