//! The form of objects in caches. Parts that many objects share are stored once. On the management side, deployments and
//! Instances are also packed.

mod deployment;
mod instance;

use std::sync::Arc;

use serde::Serialize;

pub(crate) use self::{
    deployment::{PackedDeployment, PackedWorkload},
    instance::PackedInstance,
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        karmada::ResourceBinding,
        shared::Shared,
    },
    controllers::delta,
    io::{shared::share, store::Change},
    plan::{Delta, diff, management::observed::facts::BindingFacts},
};

/// Calls `act` with the unpacked deployments of a change.
pub(crate) fn opened<R>(
    change: &Change<'_, PackedDeployment>,
    act: impl FnOnce(Delta<'_, WorkloadDeployment>) -> R,
) -> R {
    let Delta { namespace, name, old, new } = delta(change);
    let (old, new) = (old.map(PackedDeployment::open), new.map(PackedDeployment::open));
    act(Delta { namespace, name, old: old.as_deref(), new: new.as_deref() })
}

fn part<T: Serialize + PartialEq + Send + Sync + 'static>(part: Shared<T>) -> Shared<T> {
    share::<T>(part.into()).into()
}

/// Shares runtime and volumes of a cell's Instance.
pub(crate) fn instance(mut instance: Instance) -> Instance {
    instance.spec.runtime = part(instance.spec.runtime);
    instance.spec.volumes = instance.spec.volumes.map(part);
    instance
}

/// Shares parts of the copy of a cell's Instance. Its spec is compared as a whole.
pub(crate) fn instance_copy(mut copy: Instance) -> Instance {
    diff::forget_applied_spec(&mut copy);
    instance(copy)
}

/// Shares parts of a cell's deployment: its template with other deployments, and runtime and volumes with their Instances.
pub(crate) fn deployment(mut deployment: WorkloadDeployment) -> WorkloadDeployment {
    let spec = &mut deployment.spec.template.spec;
    spec.runtime = part(std::mem::take(&mut spec.runtime));
    spec.volumes = spec.volumes.take().map(part);
    deployment.spec.template = part(deployment.spec.template);
    deployment
}

/// Returns the facts of a binding. Many bindings have the same policy, clusters and results.
pub(crate) fn binding(binding: ResourceBinding) -> BindingFacts {
    let facts = BindingFacts::of(binding);
    let name = |name: Option<Arc<str>>| name.map(share);
    BindingFacts {
        policy: name(facts.policy),
        placement: name(facts.placement),
        scheduled_by: name(facts.scheduled_by),
        clusters: part(facts.clusters),
        scheduled: part(facts.scheduled),
        applied: part(facts.applied),
        replicas: part(facts.replicas),
        dependencies: part(facts.dependencies),
        suspension: part(facts.suspension),
        scheduled_for: facts.scheduled_for.map(|city| city.sharing(share)),
        ..facts
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: &str) -> Value {
        json!({
            "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                { "name": "c", "image": "i", "env": [{ "name": "A", "value": value }] },
            ] } },
            "networkInterfaces": [],
            "volumes": [{ "name": "v", "configMap": { "name": "m" } }],
        })
    }

    fn instance_of(value: &str) -> Instance {
        serde_json::from_value(json!({ "metadata": { "name": "web-0" }, "spec": spec(value) })).unwrap()
    }

    fn deployment_of(value: &str) -> WorkloadDeployment {
        serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": {
                "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "dfw",
                "template": { "spec": spec(value) }, "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap()
    }

    /// A cell kept each template once for each deployment, Instance and copy.
    #[test]
    fn shared_parts_of_deployment_instances_and_copies_are_one() {
        let of = deployment_of("shared");
        let [one, two] = [of.clone(), of.clone()].map(deployment);
        let instances: Vec<_> = (0..3).map(|_| instance(instance_of("shared"))).collect();
        let copy = instance_copy(instance_of("shared"));
        assert_eq!((&one, &instances[0]), (&of, &instance_of("shared")), "sharing changes no content");
        assert!(one.spec.template.is_same_as(&two.spec.template));
        let template = &one.spec.template.spec;
        for other in instances.iter().chain([&copy]) {
            assert!(other.spec.runtime.is_same_as(&template.runtime));
            assert!(other.spec.volumes.as_ref().unwrap().is_same_as(template.volumes.as_ref().unwrap()));
        }
        assert!(!instance(instance_of("other")).spec.runtime.is_same_as(&template.runtime));
    }
}
