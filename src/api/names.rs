//! Names that cannot be wrong: parsed once, derived in one place, with their limits.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::referenced::{DataRef, SourceKind};

/// Longest value of a label; a WorkloadDeployment's name is one on each of its Instances.
pub const MAX_LABEL: usize = 63;

/// A city, in the one spelling that labels, policies and clusters use: lower case, spaces as dashes.
///
/// `spec.cityCode` keeps the user's spelling; every comparison goes through this type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CityCode(Arc<str>);

impl TryFrom<String> for CityCode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<CityCode> for String {
    fn from(city: CityCode) -> Self {
        city.0.to_string()
    }
}

impl CityCode {
    /// Parses what a user or a location wrote. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Letters of ASCII alone: the Kelvin sign, for one, is a k in lower case, and no label takes it as it was written.
        let code = text.trim().to_ascii_lowercase().replace(' ', "-");
        match dns_label(&code) {
            Ok(()) => Ok(Self(code.into())),
            Err(why) => Err(format!("city code {text:?} {why}")),
        }
    }

    /// The canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same code, by a text that others have as well.
    #[must_use]
    pub fn sharing(self, text: impl FnOnce(Arc<str>) -> Arc<str>) -> Self {
        Self(text(self.0))
    }

    /// The value of the label on a hub copy: the user's own spelling, where a label can have it (contract, section 12.1), else
    /// the canonical one.
    pub fn label_value(&self, written: &str) -> String {
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let fits = written.len() <= MAX_LABEL && written.chars().all(inner);
        let fits = fits && edge(written.chars().next()) && edge(written.chars().last());
        if fits { written.to_owned() } else { self.0.to_string() }
    }

    /// Name of the PropagationPolicy that sends this city's deployments to its cluster.
    pub fn policy_name(&self) -> String {
        CityPolicyName::of(self)
    }
}

impl fmt::Display for CityCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A project control plane, by the name under which it was discovered. Single mode knows one, [`ProjectName::single`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ProjectName(Arc<str>);

impl From<String> for ProjectName {
    fn from(name: String) -> Self {
        Self::new(&name)
    }
}

impl From<ProjectName> for String {
    fn from(name: ProjectName) -> Self {
        name.as_str().to_owned()
    }
}

impl ProjectName {
    /// A name as discovery gives it.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The one project of single mode: the cluster that the manager runs in.
    pub fn single() -> Self {
        Self::new("single")
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Value of the label `meta.datumapis.com/upstream-cluster-name`: `cluster-` and the name with `/` as `_`.
    pub fn label_value(&self) -> String {
        format!("cluster-{}", self.0.replace('/', "_"))
    }

    /// The inverse of [`Self::label_value`]: the last path segment counts, so `cluster-_org_p` is `p`.
    /// `None` when the value was not written by a federator.
    pub fn from_label_value(value: &str) -> Option<Self> {
        let name = value.strip_prefix("cluster-")?;
        name.rsplit('_').next().filter(|n| !n.is_empty()).map(Self::new)
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hub and cell namespace of a project namespace, from that namespace's uid.
pub fn hub_namespace(project_namespace_uid: &str) -> String {
    HubNamespace::of(project_namespace_uid)
}

/// Name of a WorkloadDeployment: `<workload>-<placement>-<city>`.
///
/// It becomes a label value on every Instance, so it must be a label of at most [`MAX_LABEL`] characters.
/// `Err` names the parts, the length and the limit.
pub fn deployment_name(workload: &str, placement: &str, city: &CityCode) -> Result<String, String> {
    let name = format!("{workload}-{placement}-{city}");
    match dns_label(&name) {
        Ok(()) => Ok(name),
        Err(_) if name.len() > MAX_LABEL => Err(format!(
            "the deployment's name {name:?} would have {} characters, {MAX_LABEL} is the limit: shorten the workload's or the placement's name by {}",
            name.len(),
            name.len() - MAX_LABEL
        )),
        Err(why) => Err(format!("the deployment's name {name:?} {why}: rename the workload or the placement")),
    }
}

/// Name of the Instance with this ordinal.
pub fn instance_name(deployment: &str, ordinal: u32) -> String {
    format!("{deployment}-{ordinal}")
}

/// Ordinal of an Instance: the digits after the last dash. `None` when there are none.
pub fn instance_ordinal(name: &str) -> Option<u32> {
    name.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok())
}

/// Name of the deployment that the Instance of this name is one of; `None` when it has no ordinal.
pub fn deployment_of_instance(name: &str) -> Option<&str> {
    instance_ordinal(name)?;
    name.rsplit_once('-').map(|(deployment, _)| deployment)
}

/// Name of the NetworkBinding of a deployment's interface with this index.
pub fn network_binding_name(deployment: &str, interface: usize) -> String {
    format!("{deployment}-net-{interface}")
}

/// Name of the n-th SubnetClaim of ours in a network context.
pub fn subnet_claim_name(context: &str, n: usize) -> String {
    format!("{context}-{n}")
}

/// Name of an Instance's ResourceClaim in its project.
pub fn resource_claim_name(instance: &str) -> String {
    format!("{CLAIM_PREFIX}{instance}")
}

/// The Instance that a ResourceClaim of this name is for; `None` when the name is not one of ours.
pub fn claimant_of(claim: &str) -> Option<&str> {
    claim.strip_prefix(CLAIM_PREFIX)
}

/// What the name of an Instance's ResourceClaim begins with.
const CLAIM_PREFIX: &str = "instance-";

/// Name of the binding that Karmada makes for a template (fact 2).
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{}", kind.to_lowercase())
}

/// Name of the binding that Karmada makes for the copy of a WorkloadDeployment.
pub fn deployment_binding(deployment: &str) -> String {
    binding_name(Template::DEPLOYMENT, deployment)
}

/// The names of city policies, in both directions.
#[derive(Debug)]
pub enum CityPolicyName {}

impl CityPolicyName {
    const PREFIX: &str = "city-";

    /// Name of the PropagationPolicy that sends a city's deployments to its cluster.
    pub fn of(city: &CityCode) -> String {
        format!("{}{city}", Self::PREFIX)
    }

    /// The city whose policy has this name; `None` when it is no city policy's.
    pub fn parse(name: &str) -> Option<CityCode> {
        name.strip_prefix(Self::PREFIX).and_then(|city| CityCode::parse(city).ok())
    }
}

/// The names of hub and cell namespaces, in both directions.
#[derive(Debug)]
pub enum HubNamespace {}

impl HubNamespace {
    const PREFIX: &str = "ns-";

    /// Hub and cell namespace of the project namespace with this uid.
    pub fn of(project_namespace_uid: &str) -> String {
        format!("{}{project_namespace_uid}", Self::PREFIX)
    }

    /// Uid of the project namespace that a namespace of this name mirrors; `None` when it mirrors none.
    pub fn parse(name: &str) -> Option<&str> {
        name.strip_prefix(Self::PREFIX).filter(|uid| !uid.is_empty())
    }

    /// Whether a name is made of a uid as Kubernetes gives them.
    pub fn is_form_of(name: &str) -> bool {
        Self::parse(name).is_some_and(is_uuid)
    }
}

/// Whether a uid is one as Kubernetes gives them: 36 characters, lower case hex digits in five groups.
pub fn is_uuid(uid: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    uid.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && uid.chars().all(|c| c == '-' || is_hex(c))
}

/// The object that Karmada makes a binding for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Template {
    /// The copy of a WorkloadDeployment, by name.
    Deployment(String),
    /// A companion.
    Companion(DataRef),
    /// Something that is not of our making.
    #[default]
    Foreign,
}

impl Template {
    const DEPLOYMENT: &str = "WorkloadDeployment";

    /// The template of this kind and name.
    pub fn of(kind: &str, name: String) -> Self {
        if kind == Self::DEPLOYMENT {
            return Self::Deployment(name);
        }
        let source = SourceKind::ALL.into_iter().find(|source| source.as_str() == kind);
        source.map_or(Self::Foreign, |kind| Self::Companion(DataRef { kind, name }))
    }

    /// The template that a binding's name speaks of.
    pub fn of_binding(binding: &str) -> Self {
        let named = |kind: &str| binding.strip_suffix(&binding_name(kind, "")).filter(|name| !name.is_empty());
        if let Some(name) = named(Self::DEPLOYMENT) {
            return Self::Deployment(name.to_owned());
        }
        let mut data_refs = SourceKind::ALL.into_iter().filter_map(|kind| {
            let data_ref = DataRef { kind, name: named(kind.as_str())?.to_owned() };
            data_ref.is_valid().then_some(data_ref)
        });
        data_refs.next().map_or(Self::Foreign, Self::Companion)
    }

    /// Whether it is the copy of a WorkloadDeployment.
    pub fn is_deployment(&self) -> bool {
        matches!(self, Self::Deployment(_))
    }
}

/// The cluster whose Works Karmada keeps in this namespace of the hub (fact 3); nothing of any other namespace.
pub fn cluster_of_works(namespace: &str) -> Option<&str> {
    namespace.strip_prefix("karmada-es-").filter(|cluster| !cluster.is_empty())
}

/// Paths under which API servers ask the admission webhooks (contract, section 6).
pub mod webhook {
    /// Judges Workloads.
    pub const VALIDATE_WORKLOAD: &str = "/validate-compute-datumapis-com-v1alpha-workload";
    /// Gives Workloads defaults. There are none in this generation: a configuration of the Go operator's that still asks gets
    /// a yes.
    pub const MUTATE_WORKLOAD: &str = "/mutate-compute-datumapis-com-v1alpha-workload";
    /// Judges WorkloadDeployments.
    pub const VALIDATE_DEPLOYMENT: &str = "/validate-compute-datumapis-com-v1alpha-workloaddeployment";
}

/// RFC 1123 label: what a namespace, a label value of ours and most derived names must be. `Err` says what is wrong.
pub fn dns_label(text: &str) -> Result<(), String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if text.len() > MAX_LABEL {
        return Err(format!("has {} characters, {MAX_LABEL} is the limit", text.len()));
    }
    if !text.chars().all(inner) || !edge(text.chars().next()) || !edge(text.chars().last()) {
        return Err(
            "must consist of lower case letters, digits and '-', and begin and end with a letter or digit".into()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_city_has_one_spelling() {
        assert_eq!(CityCode::parse("DFW").unwrap(), CityCode::parse(" dfw ").unwrap());
        assert_eq!(CityCode::parse("San Jose").unwrap().policy_name(), "city-san-jose");
        for (written, label) in [("DFW", "DFW"), (" dfw", "dfw"), ("San Jose", "san-jose"), ("ord", "ord")] {
            assert_eq!(CityCode::parse(written).unwrap().label_value(written), label);
        }
        for bad in ["", "-", "dfw/1", "über", &"x".repeat(64)] {
            assert!(CityCode::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// A Kelvin sign passed as a k, and no Instance could be labelled with it.
    #[test]
    fn a_city_with_a_letter_that_only_looks_like_one_is_refused() {
        assert!(CityCode::parse("\u{212A}ul").is_err());
    }

    #[test]
    fn project_names_survive_the_label() {
        let single = ProjectName::single();
        assert_eq!(single.label_value(), "cluster-single");
        for (label, name) in
            [("cluster-single", "single"), ("cluster-_test-project-abc", "test-project-abc"), ("cluster-org_p", "p")]
        {
            assert_eq!(ProjectName::from_label_value(label), Some(ProjectName::new(name)), "{label}");
        }
        assert_eq!(ProjectName::from_label_value("single"), None);
        assert_eq!(ProjectName::from_label_value("cluster-"), None);
    }

    #[test]
    fn an_over_long_deployment_name_says_by_how_much() {
        let dfw = CityCode::parse("dfw").unwrap();
        assert_eq!(deployment_name("web", "main", &dfw).unwrap(), "web-main-dfw");
        let error = deployment_name(&"w".repeat(60), "main", &dfw).unwrap_err();
        assert!(error.contains("69 characters, 63 is the limit") && error.contains("by 6"), "{error}");
        assert!(deployment_name("Web", "main", &dfw).is_err());
    }

    #[test]
    fn names_are_taken_apart_as_they_are_put_together() {
        let dfw = CityCode::parse("dfw").unwrap();
        assert_eq!(CityPolicyName::parse(&CityPolicyName::of(&dfw)), Some(dfw));
        assert_eq!((CityPolicyName::parse("city-"), CityPolicyName::parse("theirs")), (None, None));
        assert_eq!(HubNamespace::parse(&HubNamespace::of("u-1")), Some("u-1"));
        let of_uid = HubNamespace::of("0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b11");
        let others = [
            "ns-shop",
            "ns-decade",
            "ns-0123456789abcdef",
            "ns-0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b1g",
            "ns-0b0f9a3e6-f0e-4b39-9a57-0d8f7f6f3b11",
            "0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b11",
        ];
        assert!(HubNamespace::is_form_of(&of_uid) && !others.into_iter().any(HubNamespace::is_form_of));
        assert_eq!((HubNamespace::parse("ns-"), HubNamespace::parse("default")), (None, None));
        assert_eq!((claimant_of(&resource_claim_name("web-0")), claimant_of("web-0")), (Some("web-0"), None));
        for (kind, template) in [
            ("WorkloadDeployment", Template::Deployment("web".into())),
            ("ConfigMap", Template::Companion(DataRef::config_map("web"))),
            ("Secret", Template::Companion(DataRef::secret("web"))),
        ] {
            assert_eq!(Template::of_binding(&binding_name(kind, "web")), template);
            assert_eq!(Template::of(kind, "web".into()), template);
        }
        for foreign in ["web-deployment", "-secret", "-workloaddeployment", "a/b-secret", "secret", ""] {
            assert_eq!(Template::of_binding(foreign), Template::Foreign, "{foreign:?}");
        }
    }

    #[test]
    fn ordinals() {
        assert_eq!(instance_ordinal("web-main-dfw-12"), Some(12));
        assert_eq!(instance_ordinal("web-main-dfw"), None);
        assert_eq!(instance_ordinal("web"), None);
        assert_eq!(deployment_of_instance(&instance_name("web-main-dfw", 12)), Some("web-main-dfw"));
        assert_eq!((deployment_of_instance("web-main"), deployment_of_instance("web")), (None, None));
    }
}
