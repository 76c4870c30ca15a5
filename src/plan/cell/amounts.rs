//! How much of a project's quota an Instance takes.

use std::collections::BTreeMap;

use crate::{
    api::{
        compute::{InstanceSpec, Quantity, SandboxContainer},
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

/// What an Instance uses: one Instance, its CPUs in thousandths, its memory in MiB. The sum of its containers' limits
/// when each has one, else of their requests when each has one, else what its type has.
pub(super) fn amounts(spec: &InstanceSpec) -> Result<Vec<ResourceRequest>, String> {
    let instance_type = &spec.runtime.resources.instance_type;
    let known = known_type(instance_type);
    let containers = spec.runtime.sandbox.as_ref().map_or(&[][..], |sandbox| &sandbox.containers);
    let of = |resource: &str, known: Option<i64>, unit: i128| {
        match asked(containers, resource)? {
        // In thousandths of what `unit` counts; whatever is begun counts whole.
        Some(sum) => i64::try_from((sum + unit - 1) / unit).map_err(|_| format!("so much {resource} cannot be counted")),
        None => known.ok_or_else(|| {
            format!("instance type {instance_type:?} is unknown, and not every container has a limit or a request for {resource}: give them, or use datumcloud/d1-standard-2")
        }),
    }
    };
    let vcpus = of("cpu", known.map(|(cpu, _)| cpu), 1)?;
    let memory = of("memory", known.map(|(_, memory)| memory), 1000 * 1024 * 1024)?;
    Ok([("instances", 1), ("vcpus", vcpus), ("memory", memory)]
        .map(|(what, amount)| ResourceRequest { resource_type: format!("compute.datumapis.com/{what}"), amount })
        .into())
}

/// Thousandths of CPUs and MiB of memory of a type.
fn known_type(name: &str) -> Option<(i64, i64)> {
    match name {
        "datumcloud/d1-standard-2" => Some((1000, 2048)),
        _ => None,
    }
}

/// The sum of what all containers ask for, in thousandths; `None` when one of them does not say.
fn asked(containers: &[SandboxContainer], resource: &str) -> Result<Option<i128>, String> {
    type Pick = fn(&SandboxContainer) -> Option<&BTreeMap<String, Quantity>>;
    let picks: [Pick; 2] = [|c| c.resources.as_ref()?.limits.as_ref(), |c| c.resources.as_ref()?.requests.as_ref()];
    for pick in picks {
        let each: Option<Vec<&Quantity>> = containers.iter().map(|c| pick(c)?.get(resource)).collect();
        let Some(each) = each.filter(|each| !each.is_empty()) else { continue };
        let mut sum = 0;
        for quantity in each {
            sum += thousandths(quantity).ok_or_else(|| format!("{resource} {:?} is not an amount", quantity.0))?;
        }
        return Ok(Some(sum));
    }
    Ok(None)
}
