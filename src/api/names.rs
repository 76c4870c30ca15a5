//! Validated names: each is parsed once and derived in one place, with its limits.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::referenced::{DataRef, SourceKind};

/// Longest value of a label. A WorkloadDeployment's name is a label value on each of its Instances.
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
    /// Parses the text of a user or a location. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Only ASCII letters: the Kelvin sign, for example, is a `k` in lower case, and no label value may contain it.
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

    /// Returns the same code with a shared copy of its text.
    #[must_use]
    pub fn sharing(self, text: impl FnOnce(Arc<str>) -> Arc<str>) -> Self {
        Self(text(self.0))
    }

    /// Returns the label value for a hub copy: the user's own spelling if a label may have it, else the canonical one.
    pub fn label_value(&self, written: &str) -> String {
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let fits = written.len() <= MAX_LABEL && written.chars().all(inner);
        let fits = fits && edge(written.chars().next()) && edge(written.chars().last());
        if fits { written.to_owned() } else { self.0.to_string() }
    }

    /// Returns the name of the PropagationPolicy that sends this city's deployments to its cluster.
    pub fn policy_name(&self) -> String {
        CityPolicyName::of(self)
    }
}

impl fmt::Display for CityCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A project control plane, by the name under which it was discovered. Single mode has one, [`ProjectName::single`].
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
    /// Makes a project name from the name that discovery gives.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the one project of single mode: the cluster that the manager runs in.
    pub fn single() -> Self {
        Self::new("single")
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the value of the label `meta.datumapis.com/upstream-cluster-name`: `cluster-` and the name with `/` as `_`.
    pub fn label_value(&self) -> String {
        format!("cluster-{}", self.0.replace('/', "_"))
    }

    /// Inverse of [`Self::label_value`]. Only the last path segment counts, so `cluster-_org_p` is `p`. `None` if no federator
    /// wrote the value.
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

/// Returns the hub and cell namespace for the uid of a project namespace.
pub fn hub_namespace(project_namespace_uid: &str) -> String {
    HubNamespace::of(project_namespace_uid)
}

/// Returns the name of a WorkloadDeployment: `<workload>-<placement>-<city>`.
///
/// It is a label value on every Instance, so it must be a label of at most [`MAX_LABEL`] characters. `Err` names the parts, the
/// length and the limit.
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

/// Returns the name of the Instance with this ordinal.
pub fn instance_name(deployment: &str, ordinal: u32) -> String {
    format!("{deployment}-{ordinal}")
}

/// Returns the ordinal of an Instance: the digits after the last dash. `None` if there are none.
pub fn instance_ordinal(name: &str) -> Option<u32> {
    name.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok())
}

/// Returns the deployment that an Instance of this name belongs to; `None` if the name has no ordinal.
pub fn deployment_of_instance(name: &str) -> Option<&str> {
    instance_ordinal(name)?;
    name.rsplit_once('-').map(|(deployment, _)| deployment)
}

/// Returns the name of the NetworkBinding for a deployment's interface with this index.
pub fn network_binding_name(deployment: &str, interface: usize) -> String {
    format!("{deployment}-net-{interface}")
}

/// Returns the name of our n-th SubnetClaim in a network context.
pub fn subnet_claim_name(context: &str, n: usize) -> String {
    format!("{context}-{n}")
}

/// Returns the name of an Instance's ResourceClaim in its project.
pub fn resource_claim_name(instance: &str) -> String {
    format!("{CLAIM_PREFIX}{instance}")
}

/// Returns the Instance that a ResourceClaim of this name is for; `None` if the name is not one of ours.
pub fn claimant_of(claim: &str) -> Option<&str> {
    claim.strip_prefix(CLAIM_PREFIX)
}

/// Prefix of the name of an Instance's ResourceClaim.
const CLAIM_PREFIX: &str = "instance-";

/// Returns the name of the binding that Karmada creates for a template (fact 2).
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{}", kind.to_lowercase())
}

/// Returns the name of the binding that Karmada creates for the copy of a WorkloadDeployment.
pub fn deployment_binding(deployment: &str) -> String {
    binding_name(Template::DEPLOYMENT, deployment)
}

/// Names of city policies, in both directions.
#[derive(Debug)]
pub enum CityPolicyName {}

impl CityPolicyName {
    const PREFIX: &str = "city-";

    /// Returns the name of the PropagationPolicy that sends a city's deployments to its cluster.
    pub fn of(city: &CityCode) -> String {
        format!("{}{city}", Self::PREFIX)
    }

    /// Returns the city whose policy has this name; `None` if it is no city policy's name.
    pub fn parse(name: &str) -> Option<CityCode> {
        name.strip_prefix(Self::PREFIX).and_then(|city| CityCode::parse(city).ok())
    }
}

/// Names of hub and cell namespaces, in both directions.
#[derive(Debug)]
pub enum HubNamespace {}

impl HubNamespace {
    const PREFIX: &str = "ns-";

    /// Returns the hub and cell namespace of the project namespace with this uid.
    pub fn of(project_namespace_uid: &str) -> String {
        format!("{}{project_namespace_uid}", Self::PREFIX)
    }

    /// Returns the uid of the project namespace that a namespace of this name mirrors; `None` if it mirrors none.
    pub fn parse(name: &str) -> Option<&str> {
        name.strip_prefix(Self::PREFIX).filter(|uid| !uid.is_empty())
    }

    /// True if the name is made of a uid in Kubernetes' form.
    pub fn is_form_of(name: &str) -> bool {
        Self::parse(name).is_some_and(is_uuid)
    }
}

/// True if a uid has Kubernetes' form: 36 characters, lower case hex digits in five groups.
pub fn is_uuid(uid: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    uid.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && uid.chars().all(|c| c == '-' || is_hex(c))
}

/// The object that Karmada creates a binding for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Template {
    /// The copy of a WorkloadDeployment, by name.
    Deployment(String),
    /// A companion.
    Companion(DataRef),
    /// An object that the operator did not create.
    #[default]
    Foreign,
}

impl Template {
    const DEPLOYMENT: &str = "WorkloadDeployment";

    /// Returns the template of this kind and name.
    pub fn of(kind: &str, name: String) -> Self {
        if kind == Self::DEPLOYMENT {
            return Self::Deployment(name);
        }
        let source = SourceKind::ALL.into_iter().find(|source| source.as_str() == kind);
        source.map_or(Self::Foreign, |kind| Self::Companion(DataRef { kind, name }))
    }

    /// Returns the template of the binding with this name.
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

    /// True if it is the copy of a WorkloadDeployment.
    pub fn is_deployment(&self) -> bool {
        matches!(self, Self::Deployment(_))
    }
}

/// Returns the cluster whose Works Karmada keeps in this hub namespace (fact 3); `None` for any other namespace.
pub fn cluster_of_works(namespace: &str) -> Option<&str> {
    namespace.strip_prefix("karmada-es-").filter(|cluster| !cluster.is_empty())
}

/// Paths at which API servers call the admission webhooks.
pub mod webhook {
    /// Judges Workloads.
    pub const VALIDATE_WORKLOAD: &str = "/validate-compute-datumapis-com-v1alpha-workload";
    /// Sets defaults of Workloads. There are none in this version: a webhook configuration of the Go operator that still calls it
    /// gets "allowed".
    pub const MUTATE_WORKLOAD: &str = "/mutate-compute-datumapis-com-v1alpha-workload";
    /// Judges WorkloadDeployments.
    pub const VALIDATE_DEPLOYMENT: &str = "/validate-compute-datumapis-com-v1alpha-workloaddeployment";
}

/// Checks an RFC 1123 label, the form of a namespace, a label value of ours and most derived names. `Err` says what is wrong.
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
    fn city_code_in_any_spelling_has_one_canonical_form() {
        assert_eq!(CityCode::parse("DFW").unwrap(), CityCode::parse(" dfw ").unwrap());
        assert_eq!(CityCode::parse("San Jose").unwrap().policy_name(), "city-san-jose");
        for (written, label) in [("DFW", "DFW"), (" dfw", "dfw"), ("San Jose", "san-jose"), ("ord", "ord")] {
            assert_eq!(CityCode::parse(written).unwrap().label_value(written), label);
        }
        for bad in ["", "-", "dfw/1", "über", &"x".repeat(64)] {
            assert!(CityCode::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// A Kelvin sign passed as a `k`, and then no Instance could carry the label.
    #[test]
    fn city_code_with_kelvin_sign_is_refused() {
        assert!(CityCode::parse("\u{212A}ul").is_err());
    }

    #[test]
    fn project_name_survives_the_label() {
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
    fn deployment_name_over_the_limit_reports_the_excess() {
        let dfw = CityCode::parse("dfw").unwrap();
        assert_eq!(deployment_name("web", "main", &dfw).unwrap(), "web-main-dfw");
        let error = deployment_name(&"w".repeat(60), "main", &dfw).unwrap_err();
        assert!(error.contains("69 characters, 63 is the limit") && error.contains("by 6"), "{error}");
        assert!(deployment_name("Web", "main", &dfw).is_err());
    }

    #[test]
    fn derived_name_is_parsed_back() {
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
    fn instance_name_is_split_into_deployment_and_ordinal() {
        assert_eq!(instance_ordinal("web-main-dfw-12"), Some(12));
        assert_eq!(instance_ordinal("web-main-dfw"), None);
        assert_eq!(instance_ordinal("web"), None);
        assert_eq!(deployment_of_instance(&instance_name("web-main-dfw", 12)), Some("web-main-dfw"));
        assert_eq!((deployment_of_instance("web-main"), deployment_of_instance("web")), (None, None));
    }
}
