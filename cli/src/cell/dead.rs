//! `cell dead`: declares that nothing runs on a cell any more.

use std::io::Write;

use compute_operator::{
    api::{
        karmada::Cluster,
        meta::{DEAD, annotation},
    },
    plan::management::observed::cluster::ClusterFacts,
};
use jiff::Timestamp;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};

use super::{Dead, drain::annotate};
use crate::{
    exit::Exit,
    output::Output,
    seen::{Seen, get},
};

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Declared {
    time: Timestamp,
    cluster: String,
    dead: bool,
    text: String,
}

/// Runs the command.
pub async fn run(hub: &Client, args: &Dead, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let name = &args.name;
    let cluster = match get(&Api::<Cluster>::all(hub.clone()), name).await {
        Seen::Found(cluster) => ClusterFacts::of(cluster),
        seen if seen.is_absent() => return Err((Exit::CouldNotAsk, format!("the hub has no Cluster {name}"))),
        seen => {
            let why = seen.hidden().unwrap_or_default();
            return Err((Exit::CouldNotAsk, format!("hub: Cluster {name}: {why}")));
        }
    };
    let text = decide(name, &cluster, args.yes).map_err(|error| (Exit::Usage, error))?;
    annotate(hub, name, DEAD).await.map_err(|error| (Exit::CouldNotAsk, error))?;
    let declared = Declared { time: Timestamp::now(), cluster: name.clone(), dead: true, text };
    output.print(out, &declared, |_| declared.text.clone())?;
    Ok(Exit::Well)
}

/// Decides if a Cluster may be declared dead. Returns what is said then.
fn decide(name: &str, cluster: &ClusterFacts, confirmed: bool) -> Result<String, String> {
    let Err(why) = &cluster.ready else {
        return Err(format!(
            "Karmada reaches Cluster {name}, so it is not dead. To move its city: kubectl compute cell drain {name}"
        ));
    };
    if !confirmed {
        return Err(format!(
            "Cluster {name} is not ready: {why}. Declaring it dead moves its city, and gives the quota of its Instances away.\n\
             A cell that is only cut off goes on running its Instances. Make sure that it runs nothing any more, for example that\n\
             its machines are off, and repeat the command with --yes. Every manager must have this version."
        ));
    }
    Ok(format!(
        "Cluster {name} is declared dead. Its city moves to another Cluster with its label, and its claims are freed.\n\
         See what still waits: kubectl compute waiting --city CODE\n\
         If the cell comes back, remove the annotation: kubectl --context HUB annotate cluster {name} {}-\n",
        annotation::DRAIN
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(ready: &str) -> ClusterFacts {
        ClusterFacts::of(
            serde_json::from_value(json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": "cell-ord" }, "spec": {},
                "status": { "conditions": [{ "type": "Ready", "status": ready, "reason": "ClusterNotReachable" }] },
            }))
            .unwrap(),
        )
    }

    #[test]
    fn only_an_unreachable_cluster_is_declared_dead_and_only_when_confirmed() {
        let refused = decide("cell-ord", &cluster("True"), true).unwrap_err();
        assert!(refused.contains("is not dead") && refused.contains("cell drain cell-ord"), "{refused}");
        let asked = decide("cell-ord", &cluster("False"), false).unwrap_err();
        assert!(asked.contains("ClusterNotReachable") && asked.contains("--yes"), "{asked}");
        let done = decide("cell-ord", &cluster("False"), true).unwrap();
        assert!(done.starts_with("Cluster cell-ord is declared dead."), "{done}");
    }
}
