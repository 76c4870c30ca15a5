//! Networks of a deployment on its cell: a NetworkBinding per interface, its NetworkContext, a SubnetClaim and its Subnet.

use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        compute::{
            Condition, ConditionStatus, Instance, LocalReference, LocationReference, NetworkInterface,
            NetworkReference, WorkloadDeployment,
        },
        meta::{condition, manager},
        names::{self, CityCode},
        neighbours::{NetworkBinding, NetworkContext, Subnet, SubnetClaim, SubnetClaimSpec},
        reason::{Class, Reason},
    },
    plan::{
        Cell, Object, Shared, Write,
        condition::{Verdict, find},
        hash, ownership,
    },
};

/// Class of the subnets for Instances.
const SUBNET_CLASS: &str = "private";
/// Address family of the subnets.
const IP_FAMILY: &str = "IPv4";

/// All facts about a deployment's networks: the objects that its interfaces lead to. The caches are complete, so an object that
/// is not listed here does not exist.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Locations of the deployment's city, each once.
    pub locations: Vec<LocationReference>,
    /// True if the list of one kind of location failed. There may be more locations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Bindings that the deployment controls, and all bindings with a name that it needs.
    pub bindings: Vec<Shared<NetworkBinding>>,
    /// Contexts that these bindings name.
    pub contexts: Vec<Shared<NetworkContext>>,
    /// Claims in the namespaces of these contexts, sorted by name.
    pub claims: Vec<Shared<SubnetClaim>>,
    /// Subnets that the claims on these contexts name.
    pub subnets: Vec<Shared<Subnet>>,
}

/// Removes duplicate locations: a Location and the LocationBindings to it are one. Two references of one name are equal if one of
/// them has no namespace. Locations are cluster-scoped now, so new references have none.
pub fn distinct(references: impl IntoIterator<Item = LocationReference>) -> Vec<LocationReference> {
    let mut found: Vec<LocationReference> = Vec::new();
    for reference in references {
        if !found.iter().any(|known| is_same_location(known, &reference)) {
            found.push(reference);
        }
    }
    found
}

fn is_same_location(one: &LocationReference, two: &LocationReference) -> bool {
    is_same((&one.name, one.namespace.as_ref()), (&two.name, two.namespace.as_ref()))
}

/// True if two references name one network. A missing namespace means the reference's own namespace.
fn is_same_network(one: &NetworkReference, two: &NetworkReference) -> bool {
    is_same((&one.name, one.namespace.as_ref()), (&two.name, two.namespace.as_ref()))
}

fn is_same(one: (&String, Option<&String>), two: (&String, Option<&String>)) -> bool {
    one.0 == two.0 && one.1.zip(two.1).is_none_or(|(one, two)| one == two)
}

/// Finds an object by namespace and name. Most namespaces hold few objects of a kind.
fn named<'a, K: Resource>(objects: &'a [Shared<K>], namespace: &str, name: &str) -> Option<&'a K> {
    let is = |object: &&Shared<K>| {
        let meta = object.meta();
        meta.name.as_deref() == Some(name) && meta.namespace.as_deref() == Some(namespace)
    };
    objects.iter().find(is).map(|object| &**object)
}

/// The state of a deployment's networks.
#[derive(Debug)]
pub struct Networks {
    /// Objects to create now.
    pub writes: Vec<Write<Cell>>,
    /// True if the network of every interface is ready. Otherwise the worst problem.
    pub verdict: Verdict,
    /// The location of the deployment, if known.
    pub location: Option<LocationReference>,
    /// An additional message for the condition. It reports nothing that blocks the deployment.
    pub note: Option<String>,
}

/// Judges the networks of these interfaces. They belong to the deployment's template, or to an Instance that may have an older
/// template. Only the writes for the template may be sent.
pub fn judge(observed: &Observed, deployment: &WorkloadDeployment, interfaces: &[NetworkInterface]) -> Networks {
    let (location, note) = match locate(observed, deployment) {
        Ok(located) => located,
        Err(verdict) => return Networks { writes: Vec::new(), verdict, location: None, note: None },
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
    Networks { writes, verdict: worst, location: Some(location), note }
}

/// Returns the bindings that are no longer used, neither by the template nor by Instances of an older template.
pub fn surplus<'a>(
    observed: &'a Observed,
    deployment: &WorkloadDeployment,
    instances: &[Shared<Instance>],
) -> Vec<&'a NetworkBinding> {
    let Ok((here, _)) = locate(observed, deployment) else { return Vec::new() };
    let of_template = (&deployment.spec.template.spec.network_interfaces, &here);
    let of_instances = instances
        .iter()
        .filter_map(|instance| Some((&instance.spec.network_interfaces, instance.spec.location.as_ref()?)));
    let interfaces = [of_template].into_iter().chain(of_instances);
    let interfaces =
        interfaces.flat_map(|(all, location)| all.iter().enumerate().map(move |(i, one)| (i, one, location)));
    let used: Vec<String> = interfaces
        .filter_map(|(index, interface, location)| {
            let of = |location| binding(observed, deployment, index, &interface.network, location);
            // Until the binding in the right location exists, a binding in another location is kept.
            Some(of(Some(location)).or_else(|| of(None))?.name_any())
        })
        .collect();
    // The location of an Instance that reports none is unknown. Each binding of its networks may be in use.
    let anywhere = |network: &NetworkReference| {
        let unplaced = instances.iter().filter(|instance| instance.spec.location.is_none());
        let mut networks = unplaced.flat_map(|instance| &instance.spec.network_interfaces);
        networks.any(|interface| is_same_network(&interface.network, network))
    };
    let standing = observed.bindings.iter().map(|binding| &**binding);
    let standing = standing.filter(|binding| binding.metadata.deletion_timestamp.is_none());
    let controlled = standing.filter(|binding| ownership::is_controlled_by(*binding, deployment));
    controlled
        .filter(|binding| !used.contains(&binding.name_any()))
        .filter(|binding| !anywhere(&binding.spec.network))
        .collect()
}

/// Returns the binding of an interface to its network, in `location` if one is given. A terminating binding does not count,
/// because its network is being removed. The spec of a binding is immutable. While Instances of an older template use the binding
/// of the plain name, the new template gets a second one.
fn binding<'a>(
    observed: &'a Observed,
    deployment: &WorkloadDeployment,
    index: usize,
    network: &NetworkReference,
    location: Option<&LocationReference>,
) -> Option<&'a NetworkBinding> {
    let plain = names::network_binding_name(&deployment.name_any(), index);
    let is_of_interface = |binding: &&NetworkBinding| {
        binding.name_any().strip_prefix(&plain).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let is_right = |binding: &&NetworkBinding| {
        is_same_network(&binding.spec.network, network)
            && location.is_none_or(|location| is_same_location(&binding.spec.location, location))
    };
    let controlled = observed.bindings.iter().map(|binding| &**binding);
    controlled
        .filter(|binding| binding.metadata.deletion_timestamp.is_none())
        .filter(|binding| ownership::is_controlled_by(*binding, deployment))
        .filter(is_of_interface)
        .find(is_right)
}

/// Returns the location of the deployment's city, and a note about the choice. Of several locations, the one from the status or
/// the bindings wins, else the first by name. A deployment with bindings keeps its location, even if that location cannot be
/// found. Otherwise its Instances would be judged by the networks of another location.
fn locate(
    observed: &Observed,
    deployment: &WorkloadDeployment,
) -> Result<(LocationReference, Option<String>), Verdict> {
    let written = &deployment.spec.city_code;
    CityCode::parse(written).map_err(|why| Verdict::no(Reason::NoMatchingLocation, why))?;
    let by_name = |location: &&LocationReference| (location.name.clone(), location.namespace.clone());
    let controlled = observed.bindings.iter().filter(|binding| ownership::is_controlled_by(&***binding, deployment));
    let bound: Vec<&LocationReference> = controlled.map(|binding| &binding.spec.location).collect();
    let status = deployment.status.as_ref().and_then(|status| status.location.as_ref());
    let held = status.or_else(|| bound.iter().copied().min_by_key(by_name));
    let first = observed.locations.iter().min_by_key(by_name).or(held.filter(|_| observed.partial));
    let Some(first) = first else {
        let known = if observed.partial { "known so far " } else { "" };
        return Err(Verdict::no(
            Reason::NoMatchingLocation,
            format!("no Location or LocationBinding of this cell {known}has the city code {written}"),
        ));
    };
    let standing = observed.locations.iter().find(|location| held.is_some_and(|held| is_same_location(held, location)));
    // Kept also while it is unknown if the location still exists.
    let used = held.filter(|held| observed.partial || bound.iter().any(|location| is_same_location(held, location)));
    let chosen = standing.or(used).unwrap_or(first);
    let note = (observed.locations.len() > 1 || standing.or(Some(first)) != Some(chosen)).then(|| {
        let mut names: Vec<&str> = observed.locations.iter().map(|location| location.name.as_str()).collect();
        names.sort_unstable();
        let names = names.join(", ");
        format!("several locations of this cell have the city code {written} ({names}): {} is used", chosen.name)
    });
    Ok((chosen.clone(), note))
}

/// The problem of one interface, and the write that resolves it.
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

/// Checks one interface, from its binding to its subnet. Returns the first object that is not ready.
fn judge_interface(
    observed: &Observed,
    deployment: &WorkloadDeployment,
    index: usize,
    network: &NetworkReference,
    location: &LocationReference,
) -> Result<(), Box<Pending>> {
    let Some(binding) = binding(observed, deployment, index, network, Some(location)) else {
        return Err(missing_binding(observed, deployment, index, network, location));
    };
    let name = binding.name_any();
    let status = binding.status.clone().unwrap_or_default();
    ready("NetworkBinding", &name, &status.conditions)?;
    let Some(context) = status.network_context_ref else {
        return Err(Pending::provisioning(format!("NetworkBinding {name} has no NetworkContext yet")));
    };
    let Some(live) = named(&observed.contexts, &context.namespace, &context.name) else {
        return Err(Pending::provisioning(format!("NetworkContext {} does not exist yet", context.name)));
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
    let is_wanted = |claim: &&&Shared<SubnetClaim>| {
        is_same_location(&claim.spec.location, location)
            && SubnetClaimSpec { location: location.clone(), ..claim.spec.clone() } == wanted
    };
    let Some(claim) = claims.iter().find(is_wanted) else {
        // There is one name more than there are claims, so one name is free.
        let taken = |name: &String| claims.iter().any(|claim| claim.name_any() == *name);
        let mut names = (0..=claims.len()).map(|n| names::subnet_claim_name(&context.name, n));
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        return Err(Pending {
            verdict: Verdict::no(Reason::NetworkProvisioning, format!("SubnetClaim {name} is being created")),
            write: Some(claim_subnet(live, &context.namespace, &name, &wanted)),
        }
        .into());
    };
    let status = claim.status.clone().unwrap_or_default();
    ready("SubnetClaim", &claim.name_any(), &status.conditions)?;
    let Some(subnet) = status.subnet_ref else {
        return Err(Pending::provisioning(format!("SubnetClaim {} has no Subnet yet", claim.name_any())));
    };
    let Some(live) = named(&observed.subnets, &context.namespace, &subnet.name) else {
        return Err(Pending::provisioning(format!("Subnet {} does not exist yet", subnet.name)));
    };
    ready("Subnet", &subnet.name, live.status.as_ref().map_or(&[], |s| &s.conditions))
}

/// Creates the binding of an interface that has none. The plain name is used if it is free, else a name with a hash.
fn missing_binding(
    observed: &Observed,
    deployment: &WorkloadDeployment,
    index: usize,
    network: &NetworkReference,
    location: &LocationReference,
) -> Box<Pending> {
    let namespace = deployment.namespace().unwrap_or_default();
    let plain = names::network_binding_name(&deployment.name_any(), index);
    let own = format!("{plain}-{}", &hash::digest(&json!([network, location]))[..8]);
    let standing = |name: &String| named(&observed.bindings, &namespace, name);
    let Some(name) = [plain.clone(), own].into_iter().find(|name| standing(name).is_none()) else {
        return Pending::provisioning(format!("NetworkBinding {plain} is being replaced"));
    };
    if let Some(other) = standing(&plain).filter(|other| !ownership::is_controlled_by(*other, deployment)) {
        return Pending::waits(Verdict::no(
            Reason::NetworkFailedToCreate,
            format!("NetworkBinding {} has another owner; it must be deleted first", other.name_any()),
        ));
    }
    Pending {
        write: Some(bind(deployment, &namespace, &name, network, location)),
        verdict: Verdict::no(Reason::NetworkProvisioning, format!("NetworkBinding {name} is being created")),
    }
    .into()
}

/// Returns `Ok` if an object reports that it is ready. Otherwise returns its message, and its reason if users know that reason.
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
        None => Err(Pending::provisioning(format!("{kind} {name} reports no status yet"))),
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
