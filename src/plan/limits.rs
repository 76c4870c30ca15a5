//! The most that one tenant may ask for, so that what they ask for costs nobody else. Admission refuses more, and where no
//! webhook runs the plans report it and make nothing of it.

use std::{collections::BTreeMap, fmt, io};

use serde::Serialize;

use super::references::{Use, uses};
use crate::api::{
    compute::{InstanceSpec, InstanceTemplateSpec, PortReference, Workload},
    names::{MAX_LABEL, ProjectName},
    referenced::DataRef,
};

/// Placements of one Workload. Its status has an entry for each.
pub const MAX_PLACEMENTS: usize = 32;

/// Deployments of one Workload: the cities of all its placements.
pub const MAX_DEPLOYMENTS: usize = 100;

/// Bytes of a template as JSON. Each deployment and each Instance has a copy of it, on every plane.
pub const MAX_TEMPLATE: usize = 128 << 10;

/// Entries of a template's lists that have keys: containers, variables, ports, volumes, attachments and capabilities. For each
/// update of a deployment Karmada reads who owns each of them, at a cost that grows with the square of their number.
pub const MAX_ENTRIES: usize = 512;

/// Fields of a template that refer to one and the same ConfigMap or Secret.
pub const MAX_USES: usize = 128;

/// ConfigMaps and Secrets of a template. Karmada writes what a deployment depends on into one annotation of its binding, an
/// entry of at most 350 bytes for each; all annotations of an object have 256 KiB, and each of them is looked at whenever the
/// deployment is.
pub const MAX_REFERENCES: usize = 256;

/// Networks of a template; the API server is asked about each.
pub const MAX_NETWORKS: usize = 64;

/// Something of which there is more than there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The field, from the object's own down: `spec.template.spec.runtime.sandbox.containers`.
    pub field: String,
    /// The kind of thing that is counted.
    pub measure: Measure,
    /// Amount that was found.
    pub found: usize,
}

/// A kind of thing that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Placements of a Workload.
    Placements,
    /// Deployments that a Workload asks for.
    Deployments,
    /// Bytes of a template.
    Bytes,
    /// Entries of a template's lists.
    Entries,
    /// Fields that refer to this object.
    Uses(DataRef),
    /// A port's number, which the providers of Instances read as one of 32 bits.
    Port(String),
}

impl Measure {
    /// The most that there may be.
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

    /// How to come back under the limit.
    pub fn remedy(&self) -> String {
        match self {
            Self::Placements => "put cities with the same scale into one placement, or make several Workloads".into(),
            Self::Deployments => "name fewer cities, or make several Workloads".into(),
            Self::Bytes => "move files and long values into ConfigMaps or Secrets".into(),
            Self::Entries => "move variables into a ConfigMap or Secret, and name that in envFrom".into(),
            Self::Uses(data_ref) => format!("take all keys of {data_ref} with one envFrom, or as one volume"),
            Self::Port(_) => "use a number that a port can have".into(),
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

/// Collects what is over its limit.
struct Found(Vec<Excess>);

impl Found {
    fn count(&mut self, field: &str, measure: Measure, found: usize) {
        if found > measure.limit() {
            self.0.push(Excess { field: field.to_owned(), measure, found });
        }
    }
}

/// Limits that a Workload exceeds.
pub fn of_workload(workload: &Workload) -> Vec<Excess> {
    let mut found = Found(of_placements(workload));
    found.0.extend(of_template(&workload.spec.template));
    found.0
}

/// Limits that the placements of a Workload exceed.
pub fn of_placements(workload: &Workload) -> Vec<Excess> {
    let placements = &workload.spec.placements;
    let mut found = Found(Vec::new());
    found.count("spec.placements", Measure::Placements, placements.len());
    let cities = placements.iter().map(|placement| placement.city_codes.len()).sum();
    found.count("spec", Measure::Deployments, cities);
    found.0
}

/// Limits that a template exceeds, of a Workload or of a deployment.
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

/// Number of entries of the lists of a template that have keys.
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

/// Ports whose number no 32 bits hold: no provider could read an Instance that has one, nor any list with it.
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

/// All of them in one text for a condition.
pub fn words(excesses: &[Excess]) -> Option<String> {
    /// Most that one message names.
    const MAX_NAMED: usize = 3;
    let named: Vec<String> = excesses.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = excesses.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("{}{more}", named.join("; ")))
}

/// The flaw of a project's name that no label on the hub can carry.
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

/// Number of bytes of the JSON of something, which is not made for that.
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
    // What comes from JSON can be written as such.
    serde_json::to_writer(&mut counter, of).map_or(usize::MAX, |()| counter.0)
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
