//! Amounts of a project's quota that an Instance uses.

use std::collections::BTreeMap;

use crate::{
    api::{
        compute::{InstanceSpec, Quantity},
        neighbours::ResourceRequest,
    },
    plan::quantity::thousandths,
};

/// Resource types that claims request, as registered with Milo: Instances, thousandths of CPUs, MiB of memory.
pub const RESOURCES: [&str; 3] =
    ["compute.datumapis.com/instances", "compute.datumapis.com/vcpus", "compute.datumapis.com/memory"];

/// Sorts requests so that two lists can be compared.
pub(super) fn sorted(requests: &[ResourceRequest]) -> Vec<&ResourceRequest> {
    let mut all: Vec<_> = requests.iter().collect();
    all.sort();
    all
}

/// Returns the amounts that an Instance uses: one Instance, thousandths of CPUs, whole MiB of memory. Milo's quota and the Go
/// operator count in the same way. The limits count if every container has both cpu and memory. Otherwise the runtime's requests
/// count, if both are set. Otherwise the size of the instance type counts. For an unknown type, only the Instance itself is
/// counted.
pub(super) fn amounts(spec: &InstanceSpec) -> Result<Vec<ResourceRequest>, String> {
    let size = match limits(spec).or_else(|| requests(spec)) {
        Some(asked) => Some(counted(&asked)?),
        None => known_type(&spec.runtime.resources.instance_type),
    };
    let amounts = [1].into_iter().chain(size.into_iter().flat_map(|(cpu, memory)| [cpu, memory]));
    let request = |(what, amount): (&&str, i64)| ResourceRequest { resource_type: (*what).to_owned(), amount };
    Ok(RESOURCES.iter().zip(amounts).map(request).collect())
}

/// Known instance types, in all their spellings: name, thousandths of CPUs, MiB of memory.
pub(in crate::plan) const INSTANCE_TYPES: [(&str, i64, i64); 2] =
    [("datumcloud/d1-standard-2", 1000, 2048), ("datumcloud-d1-standard-2", 1000, 2048)];

/// Returns thousandths of CPUs and MiB of memory of an instance type.
fn known_type(name: &str) -> Option<(i64, i64)> {
    INSTANCE_TYPES.iter().find(|(known, ..)| *known == name).map(|(_, cpu, memory)| (*cpu, *memory))
}

/// Requested CPU and memory.
type Size<'a> = (&'a Quantity, &'a Quantity);

fn both(resources: &BTreeMap<String, Quantity>) -> Option<Size<'_>> {
    resources.get("cpu").zip(resources.get("memory"))
}

/// Returns the limits of all containers. `None` if a container lacks one of them.
fn limits(spec: &InstanceSpec) -> Option<Vec<Size<'_>>> {
    let containers = &spec.runtime.sandbox.as_ref()?.containers;
    let each: Option<Vec<Size<'_>>> = containers.iter().map(|c| both(c.resources.as_ref()?.limits.as_ref()?)).collect();
    each.filter(|each| !each.is_empty())
}

fn requests(spec: &InstanceSpec) -> Option<Vec<Size<'_>>> {
    Some(vec![both(spec.runtime.resources.requests.as_ref()?)?])
}

/// Returns the sum, in thousandths of CPUs and whole MiB.
fn counted(sizes: &[Size<'_>]) -> Result<(i64, i64), String> {
    let (mut cpus, mut memory) = (0, 0);
    for (cpu, of_memory) in sizes {
        cpus += in_thousandths("cpu", cpu)?;
        memory += in_thousandths("memory", of_memory)?;
    }
    let bytes = memory.div_ceil(1000);
    let fits =
        |what: &str, amount: u128| i64::try_from(amount).map_err(|_| format!("the amount of {what} is too large"));
    Ok((fits("cpu", cpus)?, fits("memory", bytes / (1024 * 1024))?))
}

fn in_thousandths(what: &str, quantity: &Quantity) -> Result<u128, String> {
    let value = thousandths(quantity).and_then(|value| u128::try_from(value).ok());
    value.ok_or_else(|| format!("{what} {:?} is not a quantity", quantity.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The cases are those of the Go operator's tests.
    #[test]
    fn amounts_limits_then_requests_then_type_are_counted() {
        let of = |containers: &Value, requests: &Value, instance_type: &str| {
            let resources = json!({ "instanceType": instance_type, "requests": requests });
            let runtime = json!({ "resources": resources, "sandbox": { "containers": containers } });
            let spec = serde_json::from_value(json!({ "runtime": runtime, "networkInterfaces": [] })).unwrap();
            amounts(&spec).map(|all| all.into_iter().map(|request| request.amount).collect::<Vec<_>>())
        };
        let container = |name: &str, resources: Value| json!({ "name": name, "image": "i", "resources": resources });
        let limits = |cpu: &str, memory: &str| json!({ "limits": { "cpu": cpu, "memory": memory } });
        let (standard, none) = ("datumcloud/d1-standard-2", json!({}));
        let only_cpu = container("a", json!({ "limits": { "cpu": "3" } }));
        let asks = container("a", json!({ "requests": { "cpu": "3", "memory": "3Gi" } }));
        let size = json!({ "cpu": "250m", "memory": "512Mi" });
        for (what, containers, requests, instance_type, expected) in [
            ("the type", json!([container("a", json!({}))]), &none, standard, vec![1, 1000, 2048]),
            (
                "its newer spelling",
                json!([container("a", json!({}))]),
                &none,
                "datumcloud-d1-standard-2",
                vec![1, 1000, 2048],
            ),
            ("limits", json!([container("a", limits("1", "1Gi"))]), &none, standard, vec![1, 1000, 1024]),
            (
                "their sum",
                json!([container("a", limits("1", "1Gi")), container("b", limits("0.1", "512Mi"))]),
                &none,
                standard,
                vec![1, 1100, 1536],
            ),
            ("memory is rounded down", json!([container("a", limits("1", "1G"))]), &none, standard, vec![1, 1000, 953]),
            (
                "and only its sum",
                json!([container("a", limits("1", "1.5Mi")), container("b", limits("1", "1.5Mi"))]),
                &none,
                standard,
                vec![1, 2000, 3],
            ),
            ("cpu is rounded up", json!([container("a", limits("1500u", "1Mi"))]), &none, standard, vec![1, 2, 1]),
            (
                "limits before requests",
                json!([container("a", limits("1", "1Gi"))]),
                &size,
                standard,
                vec![1, 1000, 1024],
            ),
            ("not half of the limits", json!([only_cpu.clone()]), &none, standard, vec![1, 1000, 2048]),
            (
                "limits of only some containers do not count",
                json!([container("b", limits("4", "4Gi")), only_cpu]),
                &size,
                standard,
                vec![1, 250, 512],
            ),
            ("requests of a container do not count", json!([asks]), &none, standard, vec![1, 1000, 2048]),
            (
                "half of the runtime's requests does not count",
                json!([]),
                &json!({ "cpu": "9" }),
                standard,
                vec![1, 1000, 2048],
            ),
            ("of an unknown type the Instance alone", json!([container("a", json!({}))]), &none, "huge", vec![1]),
            ("an unknown type with a size", json!([]), &size, "huge", vec![1, 250, 512]),
        ] {
            assert_eq!(of(&containers, requests, instance_type), Ok(expected), "{what}");
        }
        let wrong = of(&json!([container("a", limits("-1", "1"))]), &none, standard);
        assert_eq!(wrong, Err("cpu \"-1\" is not a quantity".into()));
    }
}
