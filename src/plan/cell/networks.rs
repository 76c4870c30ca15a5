//! A deployment's networks on its cell: a NetworkBinding per interface, its NetworkContext, a SubnetClaim, its Subnet.

use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        compute::{
            Condition, ConditionStatus, LocalReference, LocationReference, NetworkInterface, NetworkReference,
            WorkloadDeployment,
        },
        meta::{condition, manager},
        names::{self, CityCode},
        neighbours::{NetworkBinding, NetworkContext, Subnet, SubnetClaim, SubnetClaimSpec},
        reason::{Class, Reason},
    },
    plan::{
        Cell, Object, Shared, Write,
        condition::{Verdict, find},
        ownership,
    },
};

/// Class of the subnets that Instances get.
const SUBNET_CLASS: &str = "private";
/// Their address family.
const IP_FAMILY: &str = "IPv4";

/// What is known of a deployment's networks: whatever stands where one of its interfaces leads to. The caches behind it
/// are filled, so what is not among it is not there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Locations of the deployment's city, each once.
    pub locations: Vec<LocationReference>,
    /// Bindings that the deployment controls, and whichever have the names of those that it needs.
    pub bindings: Vec<Shared<NetworkBinding>>,
    /// Contexts that these bindings name.
    pub contexts: Vec<Shared<NetworkContext>>,
    /// Claims in the namespaces of these contexts, sorted by name.
    pub claims: Vec<Shared<SubnetClaim>>,
    /// Subnets that the claims on these contexts name.
    pub subnets: Vec<Shared<Subnet>>,
}

/// Locations without their doubles: a Location and the LocationBindings to it are one. Where one of two references of a
/// name gives no namespace, as none has had since locations are cluster-scoped, they are the same.
pub fn distinct(references: impl IntoIterator<Item = LocationReference>) -> Vec<LocationReference> {
    let is_same = |one: &LocationReference, two: &LocationReference| {
        let namespaces = one.namespace.as_ref().zip(two.namespace.as_ref());
        one.name == two.name && namespaces.is_none_or(|(one, two)| one == two)
    };
    let mut found: Vec<LocationReference> = Vec::new();
    for reference in references {
        if !found.iter().any(|known| is_same(known, &reference)) {
            found.push(reference);
        }
    }
    found
}

/// The object of this name; most namespaces hold few of a kind.
fn named<'a, K: Resource>(objects: &'a [Shared<K>], namespace: &str, name: &str) -> Option<&'a K> {
    let is = |object: &&Shared<K>| {
        let meta = object.meta();
        meta.name.as_deref() == Some(name) && meta.namespace.as_deref() == Some(namespace)
    };
    objects.iter().find(is).map(|object| &**object)
}

/// What a deployment's networks come to.
#[derive(Debug)]
pub struct Networks {
    /// What is to be made or replaced now.
    pub writes: Vec<Write<Cell>>,
    /// True when every interface's network is ready, else the worst of what is not.
    pub verdict: Verdict,
    /// Where the deployment is, when that is clear.
    pub location: Option<LocationReference>,
}

/// Judges the networks of these interfaces: those of a deployment's template, or those of an Instance, which may still be
/// of an older template. Only the former's writes are to be carried out.
pub fn judge(observed: &Observed, deployment: &WorkloadDeployment, interfaces: &[NetworkInterface]) -> Networks {
    let location = match locate(observed, deployment) {
        Ok(location) => location,
        Err(verdict) => return Networks { writes: Vec::new(), verdict, location: None },
    };
    let mut writes = Vec::new();
    let mut worst = Verdict::yes(Reason::NetworkReady, "networks are ready");
    for (index, interface) in interfaces.iter().enumerate() {
        if let Err(pending) = judge_interface(observed, deployment, index, &interface.network, &location) {
            writes.extend(pending.write);
            if worst.status == ConditionStatus::True || pending.verdict.reason.rank() > worst.reason.rank() {
                worst = pending.verdict;
            }
        }
    }
    Networks { writes, verdict: worst, location: Some(location) }
}

/// Bindings of interfaces that the template no longer has; they go once no Instance can need them.
pub fn surplus(observed: &Observed, deployment: &WorkloadDeployment, interfaces: usize) -> Vec<Write<Cell>> {
    let wanted: Vec<String> =
        (0..interfaces).map(|index| names::network_binding_name(&deployment.name_any(), index)).collect();
    let controlled = observed.bindings.iter().filter(|binding| ownership::is_controlled_by(&***binding, deployment));
    let surplus = controlled.filter(|binding| !wanted.contains(&binding.name_any()));
    surplus.filter_map(|binding| Write::delete(&**binding)).collect()
}

/// The one location of the deployment's city.
fn locate(observed: &Observed, deployment: &WorkloadDeployment) -> Result<LocationReference, Verdict> {
    let written = &deployment.spec.city_code;
    CityCode::parse(written).map_err(|why| Verdict::no(Reason::NoMatchingLocation, why))?;
    match &observed.locations[..] {
        [location] => Ok(location.clone()),
        [] => Err(Verdict::no(
            Reason::NoMatchingLocation,
            format!("no Location or LocationBinding of this cell has the city code {written}"),
        )),
        locations => {
            let names: Vec<&str> = locations.iter().map(|location| location.name.as_str()).collect();
            Err(Verdict::no(
                Reason::AmbiguousServingLocation,
                format!("several locations of this cell have the city code {written}: {}; keep one", names.join(", ")),
            ))
        }
    }
}

/// What one interface waits for, and what can be done about it.
struct Pending {
    write: Option<Write<Cell>>,
    verdict: Verdict,
}

impl Pending {
    fn waits(verdict: Verdict) -> Box<Self> {
        Self { write: None, verdict }.into()
    }

    fn provisioning(message: String) -> Box<Self> {
        Self::waits(Verdict::no(Reason::NetworkProvisioning, message))
    }
}

/// One interface, from its binding to its subnet; the first of them that is not ready is what it waits for.
fn judge_interface(
    observed: &Observed,
    deployment: &WorkloadDeployment,
    index: usize,
    network: &NetworkReference,
    location: &LocationReference,
) -> Result<(), Box<Pending>> {
    let namespace = deployment.namespace().unwrap_or_default();
    let name = names::network_binding_name(&deployment.name_any(), index);
    let Some(binding) = named(&observed.bindings, &namespace, &name) else {
        return Err(Pending {
            write: Some(bind(deployment, &namespace, &name, network, location)),
            verdict: Verdict::no(Reason::NetworkProvisioning, format!("NetworkBinding {name} is being made")),
        }
        .into());
    };
    if !ownership::is_controlled_by(binding, deployment) {
        return Err(Pending::waits(Verdict::no(
            Reason::NetworkFailedToCreate,
            format!("a NetworkBinding {name} that belongs to somebody else is in the way"),
        )));
    }
    if binding.spec.network != *network || binding.spec.location != *location {
        // Its spec is immutable: it is made anew once it is gone.
        return Err(Pending {
            write: Write::delete(binding),
            verdict: Verdict::no(Reason::NetworkProvisioning, format!("NetworkBinding {name} is being replaced")),
        }
        .into());
    }
    let status = binding.status.clone().unwrap_or_default();
    ready("NetworkBinding", &name, &status.conditions)?;
    let Some(context) = status.network_context_ref else {
        return Err(Pending::provisioning(format!("NetworkBinding {name} names no NetworkContext yet")));
    };
    let Some(live) = named(&observed.contexts, &context.namespace, &context.name) else {
        return Err(Pending::provisioning(format!("NetworkContext {} is not there yet", context.name)));
    };
    ready("NetworkContext", &context.name, live.status.as_ref().map_or(&[], |s| &s.conditions))?;
    let wanted = SubnetClaimSpec {
        subnet_class: SUBNET_CLASS.into(),
        network_context: LocalReference { name: context.name.clone() },
        location: location.clone(),
        ip_family: IP_FAMILY.into(),
    };
    let in_namespace = |claim: &&Shared<SubnetClaim>| claim.namespace().as_deref() == Some(&*context.namespace);
    let claims: Vec<_> = observed.claims.iter().filter(in_namespace).collect();
    let Some(claim) = claims.iter().find(|claim| claim.spec == wanted) else {
        // Of one name more than there are claims, one is free.
        let taken = |name: &String| claims.iter().any(|claim| claim.name_any() == *name);
        let mut names = (0..=claims.len()).map(|n| names::subnet_claim_name(&context.name, n));
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        return Err(Pending {
            verdict: Verdict::no(Reason::NetworkProvisioning, format!("SubnetClaim {name} is being made")),
            write: Some(claim_subnet(live, &context.namespace, &name, &wanted)),
        }
        .into());
    };
    let status = claim.status.clone().unwrap_or_default();
    ready("SubnetClaim", &claim.name_any(), &status.conditions)?;
    let Some(subnet) = status.subnet_ref else {
        return Err(Pending::provisioning(format!("SubnetClaim {} names no Subnet yet", claim.name_any())));
    };
    let Some(live) = named(&observed.subnets, &context.namespace, &subnet.name) else {
        return Err(Pending::provisioning(format!("Subnet {} is not there yet", subnet.name)));
    };
    ready("Subnet", &subnet.name, live.status.as_ref().map_or(&[], |s| &s.conditions))
}

/// Whether an object says that it is ready; else in its own words, and with its own reason where users know that reason.
fn ready(kind: &str, name: &str, conditions: &[Condition]) -> Result<(), Box<Pending>> {
    match find(conditions, condition::READY) {
        Some(c) if c.status == ConditionStatus::True => Ok(()),
        Some(c) => {
            let reason = Some(c.reason()).filter(|reason| reason.class() == Class::Network && reason.travels());
            let why = if c.message.is_empty() { c.reason.clone() } else { format!("{}: {}", c.reason, c.message) };
            Err(Pending::waits(Verdict::no(
                reason.unwrap_or(Reason::NetworkProvisioning),
                format!("{kind} {name} is not ready: {why}"),
            )))
        }
        None => Err(Pending::provisioning(format!("{kind} {name} says nothing yet"))),
    }
}

fn bind(
    deployment: &WorkloadDeployment,
    namespace: &str,
    name: &str,
    network: &NetworkReference,
    location: &LocationReference,
) -> Write<Cell> {
    let body = json!({
        "metadata": { "ownerReferences": ownership::controller_reference(deployment) },
        "spec": { "network": network, "location": location },
    });
    Write::create(manager::NETWORK, Object::named::<NetworkBinding>(namespace, name), body)
}

fn claim_subnet(context: &NetworkContext, namespace: &str, name: &str, spec: &SubnetClaimSpec) -> Write<Cell> {
    let body = json!({ "metadata": { "ownerReferences": ownership::reference(context) }, "spec": spec });
    Write::create(manager::NETWORK, Object::named::<SubnetClaim>(namespace, name), body)
}

#[cfg(test)]
#[path = "networks_tests.rs"]
mod tests;
