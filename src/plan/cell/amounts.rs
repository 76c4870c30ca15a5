//! How much of a project's quota an Instance takes.

use std::collections::BTreeMap;

use crate::{
    api::{
        compute::{InstanceSpec, Quantity},
        neighbours::ResourceRequest,
    },
    plan::quantity::thousandths,
};

/// Amounts in an order of their own, to be compared.
pub(super) fn sorted(requests: &[ResourceRequest]) -> Vec<&ResourceRequest> {
    let mut all: Vec<_> = requests.iter().collect();
    all.sort();
    all
}

/// What an Instance uses, as Milo's quota and the Go operator count it: one Instance, its CPUs in thousandths, its memory in
/// whole MiB. Its containers' limits when every container has both of cpu and memory; else what its runtime requests, when
/// that is both; else what its type has. Of an unknown type only the Instance itself is counted.
pub(super) fn amounts(spec: &InstanceSpec) -> Result<Vec<ResourceRequest>, String> {
    let size = match limits(spec).or_else(|| requests(spec)) {
        Some(asked) => Some(counted(&asked)?),
        None => known_type(&spec.runtime.resources.instance_type),
    };
    let size = size.into_iter().flat_map(|(cpu, memory)| [("vcpus", cpu), ("memory", memory)]);
    let request = |(what, amount)| ResourceRequest { resource_type: format!("compute.datumapis.com/{what}"), amount };
    Ok([("instances", 1)].into_iter().chain(size).map(request).collect())
}

/// Thousandths of CPUs and MiB of memory of a type, in each of the spellings that it has had.
fn known_type(name: &str) -> Option<(i64, i64)> {
    match name {
        "datumcloud/d1-standard-2" | "datumcloud-d1-standard-2" => Some((1000, 2048)),
        _ => None,
    }
}

/// CPU and memory that somebody asks for.
type Size<'a> = (&'a Quantity, &'a Quantity);

fn both(resources: &BTreeMap<String, Quantity>) -> Option<Size<'_>> {
    resources.get("cpu").zip(resources.get("memory"))
}

/// The limits of all containers; nothing when one of them lacks one.
fn limits(spec: &InstanceSpec) -> Option<Vec<Size<'_>>> {
    let containers = &spec.runtime.sandbox.as_ref()?.containers;
    let each: Option<Vec<Size<'_>>> = containers.iter().map(|c| both(c.resources.as_ref()?.limits.as_ref()?)).collect();
    each.filter(|each| !each.is_empty())
}

fn requests(spec: &InstanceSpec) -> Option<Vec<Size<'_>>> {
    Some(vec![both(spec.runtime.resources.requests.as_ref()?)?])
}

/// The sum, in thousandths of CPUs and whole MiB.
fn counted(sizes: &[Size<'_>]) -> Result<(i64, i64), String> {
    let (mut cpus, mut memory) = (0, 0);
    for (cpu, of_memory) in sizes {
        cpus += in_thousandths("cpu", cpu)?;
        memory += in_thousandths("memory", of_memory)?;
    }
    let bytes = memory.div_ceil(1000);
    let fits =
        |what: &str, amount: u128| i64::try_from(amount).map_err(|_| format!("so much {what} cannot be counted"));
    Ok((fits("cpu", cpus)?, fits("memory", bytes / (1024 * 1024))?))
}

fn in_thousandths(what: &str, quantity: &Quantity) -> Result<u128, String> {
    let value = thousandths(quantity).and_then(|value| u128::try_from(value).ok());
    value.ok_or_else(|| format!("{what} {:?} is not an amount", quantity.0))
}
