//! `compute-operator migration status`: the preconditions, the progress of each city's policy from claims to dependencies, and
//! the cost of the way back.

mod preconditions;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use kube::{ResourceExt, api::ListParams};
use serde::Serialize;

use crate::{
    api::{
        karmada::{PropagationPolicy, ResourceBinding},
        names::{CityPolicyName, HubNamespace, Template},
    },
    io::{Error, clients::Connection, list},
    plan::{
        management::{
            city_policy::migration::karmada_version,
            observed::facts::{BindingFacts, Phase},
        },
        ownership,
    },
};

/// One city in one hub namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The hub namespace.
    pub namespace: String,
    /// Name of the city's policy.
    pub policy: String,
    /// The way of companions to the city.
    #[serde(serialize_with = "by_label")]
    pub phase: Phase,
    /// True if the policy is this operator's.
    #[serde(rename = "managed")]
    pub ours: bool,
    /// Number of bindings of companions that the policy claims.
    pub claimed: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn by_label<S: serde::Serializer>(phase: &Phase, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(phase.label())
}

impl Row {
    /// True if the city has left the claims behind.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Dependencies && self.claimed == 0
    }
}

/// Progress of the migration on a hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Obstacles, and the cost of the way back; one line each.
    pub preconditions: String,
    /// One row for each city's policy, sorted.
    pub policies: Vec<Row>,
    /// The line about the remains of former claims. Empty if there are none.
    pub residue: String,
    /// The sentence that says if Karmada propagates dependencies.
    pub verdict: String,
    /// The facts about Karmada that were assumed and not seen.
    pub assumed: String,
}

impl Progress {
    /// Reads the hub.
    ///
    /// # Errors
    /// If the hub does not answer, or denies the reads.
    pub async fn read(hub: &Connection) -> Result<Self, Error> {
        let mut policies = Vec::new();
        list::objects(hub, "hub", ListParams::default(), |policy: PropagationPolicy| policies.push(policy)).await?;
        let mut bindings = Bindings::default();
        list::objects(hub, "hub", ListParams::default(), |binding| bindings.add(binding)).await?;
        Ok(Self {
            preconditions: preconditions::status(hub).await?,
            policies: rows(&policies, &bindings.claimed),
            residue: bindings.residue(),
            verdict: bindings.verdict(),
            assumed: karmada_version::of_any(),
        })
    }

    /// Number of policies that are done.
    pub fn done(&self) -> usize {
        self.policies.iter().filter(|row| row.is_done()).count()
    }

    /// True if all policies are done.
    pub fn is_complete(&self) -> bool {
        self.done() == self.policies.len()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { preconditions, policies, residue, verdict, assumed } = self;
        write!(f, "{preconditions}{}{residue}{verdict}\n{assumed}\n", table(policies))
    }
}

/// Reads the hub. Returns the preconditions and a table with one line for each city policy.
///
/// # Errors
/// If the hub does not answer, or denies the reads.
pub async fn status(hub: &Connection) -> Result<String, Error> {
    Ok(Progress::read(hub).await?.to_string())
}

/// Counts over the bindings of the hub.
#[derive(Default)]
struct Bindings {
    /// Bindings of companions, by namespace and name of the policy that claims them.
    claimed: BTreeMap<(String, String), usize>,
    /// Bindings of companions with clusters or a placement of their own that no policy claims.
    left: usize,
    /// Deployments that Karmada can show dependencies on: placed on a cluster, and claimed by a city policy.
    able: usize,
    /// Deployments that ask for their dependencies.
    asking: usize,
    /// Bindings that show propagated dependencies.
    answered: usize,
}

impl Bindings {
    fn add(&mut self, binding: ResourceBinding) {
        let namespace = binding.namespace().unwrap_or_default();
        let facts = BindingFacts::of(binding);
        let of_deployment = facts.template.is_deployment();
        let claimed = facts.policy.is_some() || facts.cluster_policy.is_some();
        let companions = matches!(facts.template, Template::Companion(_)) && HubNamespace::parse(&namespace).is_some();
        self.left += usize::from(companions && !claimed && (facts.placed || !facts.clusters.is_empty()));
        let city_policy = facts.policy.as_deref().filter(|policy| CityPolicyName::parse(policy).is_some());
        let claimed = city_policy.is_some_and(|policy| facts.is_claimed_by(policy));
        self.able += usize::from(of_deployment && claimed && !facts.clusters.is_empty());
        self.asking += usize::from(of_deployment && facts.propagates);
        self.answered += usize::from(facts.shows_dependencies());
        if let Some(policy) = facts.policy.filter(|_| !of_deployment) {
            *self.claimed.entry((namespace, policy.to_string())).or_default() += 1;
        }
    }

    /// Returns the line about the remains of former claims; empty if there are none.
    fn residue(&self) -> String {
        match self.left {
            0 => String::new(),
            left => format!(
                "{left} companion(s) have clusters or a placement of a former claim. Both are removed once each deployment \
                 that needs the companion has it as a dependency\n"
            ),
        }
    }

    fn verdict(&self) -> String {
        match self {
            Self { answered: 1.., .. } => "Karmada propagates dependencies".to_owned(),
            Self { asking: 0, able: 0, .. } => {
                "Karmada has not been asked for dependencies yet, and cannot be asked: no deployment has both a cluster and \
                 the claim of its city's policy"
                    .to_owned()
            }
            Self { asking: 0, .. } => "Karmada has not been asked for dependencies yet".to_owned(),
            Self { asking, .. } => format!(
                "Karmada does not propagate dependencies, which {asking} deployment(s) request: policies keep their claims \
                 until it does. Enable the feature gate PropagateDeps of karmada-controller-manager, and apply \
                 config/components/federation to the hub"
            ),
        }
    }
}

fn rows(policies: &[PropagationPolicy], claimed: &BTreeMap<(String, String), usize>) -> Vec<Row> {
    let ours = policies.iter().filter(|policy| CityPolicyName::parse(&policy.name_any()).is_some());
    let mut rows: Vec<Row> = ours
        .map(|policy| {
            let key = (policy.namespace().unwrap_or_default(), policy.name_any());
            Row {
                claimed: claimed.get(&key).copied().unwrap_or(0),
                phase: Phase::of(&policy.spec),
                ours: ownership::is_managed(policy),
                namespace: key.0,
                policy: key.1,
            }
        })
        .collect();
    rows.sort();
    rows
}

fn table(rows: &[Row]) -> String {
    let width = |of: &dyn Fn(&Row) -> usize, title: usize| rows.iter().map(of).max().unwrap_or(0).max(title);
    let (namespace, policy) = (width(&|row| row.namespace.len(), 9), width(&|row| row.policy.len(), 6));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ =
        writeln!(text, "{:namespace$}  {:policy$}  {:12}  {:7}  CLAIMED", "NAMESPACE", "POLICY", "PHASE", "MANAGED");
    for row in rows {
        let managed = if row.ours { "yes" } else { "not yet" };
        let (phase, claimed) = (row.phase.label(), row.claimed);
        let _ =
            writeln!(text, "{:namespace$}  {:policy$}  {phase:12}  {managed:7}  {claimed}", row.namespace, row.policy);
    }
    let done = rows.iter().filter(|row| row.is_done()).count();
    let _ = writeln!(text, "{done} of {} are done", rows.len());
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{
        karmada::TargetCluster,
        meta::{annotation, finalizer},
    };

    #[test]
    fn migration_status_lists_the_phase_of_each_city() {
        let policy = |name: &str, kinds: &[&str], by_need: bool| -> PropagationPolicy {
            let selectors: Vec<_> = kinds.iter().map(|kind| json!({ "apiVersion": "v1", "kind": kind })).collect();
            serde_json::from_value(json!({
                "metadata": { "namespace": "ns-1", "name": name, "labels": { "app.kubernetes.io/managed-by": "compute-operator" } },
                "spec": { "resourceSelectors": selectors, "propagateDeps": by_need },
            }))
            .unwrap()
        };
        let mut old = policy("city-ord", &["WorkloadDeployment", "Secret"], false);
        old.metadata.labels = None;
        let all = [policy("city-dfw", &["WorkloadDeployment"], true), old, policy("theirs", &[], false)];
        let mut bindings = Bindings::default();
        bindings.add(binding("Secret", &json!({ annotation::POLICY_NAME: "city-ord" })));
        let expected = "\
NAMESPACE  POLICY    PHASE         MANAGED  CLAIMED
ns-1       city-dfw  dependencies  yes      0
ns-1       city-ord  claims        not yet  1
1 of 2 are done
";
        assert_eq!(table(&rows(&all, &bindings.claimed)), expected);
    }

    #[test]
    fn migration_status_counts_the_remains_of_former_claims() {
        let mut bindings = Bindings::default();
        let on = vec![TargetCluster { name: "cell-dfw".into() }];
        let claimed = binding("Secret", &json!({ annotation::POLICY_NAME: "city-dfw" }));
        let placed = binding("Secret", &json!({ annotation::APPLIED_PLACEMENT: "{}" }));
        let deployment = binding("WorkloadDeployment", &json!({}));
        for (binding, left) in [(claimed, 0), (binding("Secret", &json!({})), 0), (deployment, 0), (placed, 1)] {
            let mut scheduled = binding.clone();
            scheduled.spec.clusters.clone_from(&on);
            let is_deployment = scheduled.spec.resource.kind == "WorkloadDeployment";
            let is_claimed = scheduled.annotations().contains_key(annotation::POLICY_NAME);
            for (binding, left) in [(binding, left), (scheduled, usize::from(!is_deployment && !is_claimed))] {
                let before = bindings.left;
                bindings.add(binding);
                assert_eq!(bindings.left - before, left);
            }
        }
        assert!(bindings.residue().starts_with("3 companion(s) have clusters or a placement"));
        assert_eq!(Bindings::default().residue(), "");
    }

    fn binding(kind: &str, annotations: &serde_json::Value) -> ResourceBinding {
        serde_json::from_value(json!({
            "metadata": { "namespace": "ns-1", "name": "b", "annotations": annotations },
            "spec": { "resource": { "kind": kind, "name": "db" }, "propagateDeps": kind == "WorkloadDeployment" },
        }))
        .unwrap()
    }

    #[test]
    fn migration_status_reports_whether_karmada_propagates_dependencies() {
        let mut bindings = Bindings::default();
        bindings.add(binding("Secret", &json!({})));
        for (policy, able) in [("theirs", false), ("city-dfw", true)] {
            let mut scheduled = binding("WorkloadDeployment", &json!({ annotation::POLICY_NAME: policy }));
            scheduled.spec.propagate_deps = false;
            scheduled.spec.clusters = vec![TargetCluster { name: "cell-dfw".into() }];
            bindings.add(scheduled);
            let cannot = bindings.verdict().contains("and cannot be asked");
            assert!(bindings.verdict().starts_with("Karmada has not been asked for dependencies yet"), "{policy}");
            assert_eq!(cannot, !able, "{policy}");
        }
        bindings.add(binding("WorkloadDeployment", &json!({})));
        assert!(bindings.verdict().starts_with("Karmada does not propagate dependencies, which 1 "));
        let mut left = binding("WorkloadDeployment", &json!({ annotation::DEPENDENCIES: "[]" }));
        bindings.add(left.clone());
        assert!(
            bindings.verdict().starts_with("Karmada does not propagate dependencies, which 2 "),
            "the record is an old one"
        );
        left.metadata.finalizers = Some(vec![finalizer::KARMADA_DEPENDENCIES.into()]);
        bindings.add(left);
        assert_eq!(bindings.verdict(), "Karmada propagates dependencies");
    }
}
