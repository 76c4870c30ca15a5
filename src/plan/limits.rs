//! Limits on what one tenant may request, so that their requests do not slow down other tenants. Admission refuses more. Without
//! a webhook, the plans report the excess and create nothing.

use std::{collections::BTreeMap, fmt, io};

use serde::Serialize;

use super::references::{Use, uses};
use crate::api::{
    compute::{InstanceSpec, InstanceTemplateSpec, PortReference, Workload},
    names::{MAX_LABEL, ProjectName},
    referenced::DataRef,
};

/// Maximum number of placements of one Workload. Its status has an entry for each.
pub const MAX_PLACEMENTS: usize = 32;

/// Maximum number of deployments of one Workload: the cities of all its placements.
pub const MAX_DEPLOYMENTS: usize = 100;

/// Maximum size of a template as JSON, in bytes. Each deployment and each Instance has a copy of it, on every plane.
pub const MAX_TEMPLATE: usize = 128 << 10;

/// Maximum number of entries in a template's keyed lists: containers, variables, ports, volumes, attachments and capabilities. At
/// each update of a deployment, Karmada reads the owners of all entries. The cost grows with the square of their number.
pub const MAX_ENTRIES: usize = 512;

/// Maximum number of fields of a template that reference one ConfigMap or Secret.
pub const MAX_USES: usize = 128;

/// Maximum number of ConfigMaps and Secrets of a template. Karmada writes the dependencies of a deployment into one annotation of
/// its binding, at most 350 bytes each. All annotations of an object may have 256 KiB. Each dependency is checked at each
/// reconcile of the deployment.
pub const MAX_REFERENCES: usize = 256;

/// Maximum number of networks of a template. Each causes a request to the API server.
pub const MAX_NETWORKS: usize = 64;

/// A value that exceeds its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The path of the field in the object: `spec.template.spec.runtime.sandbox.containers`.
    pub field: String,
    /// The kind of value.
    pub measure: Measure,
    /// The value that was found.
    pub found: usize,
}

/// A kind of limited value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Placements of a Workload.
    Placements,
    /// Deployments that a Workload requests.
    Deployments,
    /// Bytes of a template.
    Bytes,
    /// Entries of a template's lists.
    Entries,
    /// Fields that reference this object.
    Uses(DataRef),
    /// A port number. The providers of Instances read it as 32 bits.
    Port(String),
}

impl Measure {
    /// Returns the maximum value.
    pub fn limit(&self) -> usize {
        match self {
            Self::Placements => MAX_PLACEMENTS,
            Self::Deployments => MAX_DEPLOYMENTS,
            Self::Bytes => MAX_TEMPLATE,
            Self::Entries => MAX_ENTRIES,
            Self::Uses(_) => MAX_USES,
            Self::Port(_) => 65535,
        }
    }

    /// Returns advice on how to get below the limit.
    pub fn remedy(&self) -> String {
        match self {
            Self::Placements => "put cities with the same scale into one placement, or make several Workloads".into(),
            Self::Deployments => "name fewer cities, or make several Workloads".into(),
            Self::Bytes => "move files and long values into ConfigMaps or Secrets".into(),
            Self::Entries => "move variables into a ConfigMap or Secret, and name that in envFrom".into(),
            Self::Uses(data_ref) => format!("take all keys of {data_ref} with one envFrom, or as one volume"),
            Self::Port(_) => "use a valid port number".into(),
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, measure, found } = self;
        match measure {
            Measure::Placements => write!(f, "{field} has {found} placements"),
            Measure::Deployments => write!(f, "{field} asks for {found} deployments, one for each city"),
            Measure::Bytes => write!(f, "{field} has {found} bytes as JSON"),
            Measure::Entries => write!(
                f,
                "{field} has {found} containers, variables, ports, volumes, attachments and capabilities together"
            ),
            Measure::Uses(data_ref) => write!(f, "{field} is one of {found} fields that refer to {data_ref}"),
            Measure::Port(number) => write!(f, "{field} is {number}"),
        }?;
        write!(f, ", {} is the limit: {}", measure.limit(), measure.remedy())
    }
}

/// Collects values above their limits.
struct Found(Vec<Excess>);

impl Found {
    fn count(&mut self, field: &str, measure: Measure, found: usize) {
        if found > measure.limit() {
            self.0.push(Excess { field: field.to_owned(), measure, found });
        }
    }
}

/// Returns the limits that a Workload exceeds.
pub fn of_workload(workload: &Workload) -> Vec<Excess> {
    let mut found = Found(of_placements(workload));
    found.0.extend(of_template(&workload.spec.template));
    found.0
}

/// Returns the limits that the placements of a Workload exceed.
pub fn of_placements(workload: &Workload) -> Vec<Excess> {
    let placements = &workload.spec.placements;
    let mut found = Found(Vec::new());
    found.count("spec.placements", Measure::Placements, placements.len());
    let cities = placements.iter().map(|placement| placement.city_codes.len()).sum();
    found.count("spec", Measure::Deployments, cities);
    found.0
}

/// Returns the limits that the template of a Workload or a deployment exceeds.
pub fn of_template(template: &InstanceTemplateSpec) -> Vec<Excess> {
    let spec = &template.spec;
    let mut found = Found(Vec::new());
    found.count("spec.template", Measure::Bytes, json_bytes(template));
    found.count("spec.template.spec", Measure::Entries, entries(spec));
    let mut by_object: BTreeMap<DataRef, (usize, String)> = BTreeMap::new();
    for Use { data_ref, field, .. } in uses(spec) {
        let (count, first_beyond) = by_object.entry(data_ref).or_default();
        *count += 1;
        if *count == MAX_USES + 1 {
            *first_beyond = format!("spec.template.spec.{field}");
        }
    }
    for (data_ref, (count, first_beyond)) in by_object {
        found.count(&first_beyond, Measure::Uses(data_ref), count);
    }
    found.0.extend(ports(template));
    found.0
}

/// Returns the number of entries in the keyed lists of a template.
pub fn entries(spec: &InstanceSpec) -> usize {
    fn len<T>(list: Option<&Vec<T>>) -> usize {
        list.map_or(0, Vec::len)
    }
    let volumes = spec.volumes.as_ref().map_or(0, |volumes| volumes.len());
    let containers = spec.runtime.sandbox.iter().flat_map(|sandbox| &sandbox.containers);
    let in_containers: usize = containers
        .map(|container| {
            let capabilities = container.security_context.as_ref().and_then(|context| context.capabilities.as_ref());
            let capabilities = capabilities.map_or(0, |of| len(of.add.as_ref()) + len(of.drop.as_ref()));
            let attachments = len(container.volume_attachments.as_ref());
            1 + len(container.env.as_ref()) + len(container.ports.as_ref()) + attachments + capabilities
        })
        .sum();
    let machine = spec.runtime.virtual_machine.as_ref();
    let in_machine = machine.map_or(0, |machine| machine.volume_attachments.len() + len(machine.ports.as_ref()));
    volumes + in_containers + in_machine
}

/// Returns a port with a number that does not fit into 32 bits. No provider could decode an Instance with such a port, nor a list
/// that contains it.
fn ports(template: &InstanceTemplateSpec) -> Option<Excess> {
    let fits = |number: &serde_json::Number| number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    let rules = template.spec.network_interfaces.iter().enumerate().flat_map(|(at, interface)| {
        let rules = interface.network_policy.iter().flat_map(|policy| policy.ingress.iter().flatten()).enumerate();
        rules.map(move |(rule, ingress)| (at, rule, ingress))
    });
    let mut ports = rules.flat_map(|(at, rule, ingress)| {
        let ports = ingress.ports.iter().flatten().enumerate();
        ports.filter_map(move |(index, port)| Some((at, rule, index, port.port.as_ref()?)))
    });
    ports.find_map(|(at, rule, index, port)| match port {
        PortReference::Number(number) if !fits(number) => Some(Excess {
            field: format!(
                "spec.template.spec.networkInterfaces[{at}].networkPolicy.ingress[{rule}].ports[{index}].port"
            ),
            measure: Measure::Port(number.to_string()),
            found: usize::MAX,
        }),
        _ => None,
    })
}

/// Returns one text about all of them for a condition.
pub fn words(excesses: &[Excess]) -> Option<String> {
    /// Maximum number of limits that one message names.
    const MAX_NAMED: usize = 3;
    let named: Vec<String> = excesses.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = excesses.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("{}{more}", named.join("; ")))
}

/// Describes why a project's name does not fit into a label on the hub.
pub fn of_project(project: &ProjectName) -> Option<String> {
    let beside = project.label_value().len() - project.as_str().len();
    let (length, limit) = (project.as_str().len(), MAX_LABEL - beside);
    (length > limit).then(|| {
        format!(
            "the name of project {project} has {length} characters, {limit} is the limit: a label on the hub carries it. \
             Use a project with a shorter name"
        )
    })
}

/// Returns the size of a value as JSON, without creating the JSON.
pub fn json_bytes(of: &impl Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // A value that was read from JSON can be written as JSON.
    serde_json::to_writer(&mut counter, of).map_or(usize::MAX, |()| counter.0)
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
