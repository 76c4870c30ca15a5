//! The conditions for leaving claims, and the losses of a rollback to claims.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::api::{
    names::{self, CityCode},
    referenced::DataRef,
};
use crate::plan::management::observed::facts::{BindingFacts, CompanionFacts};

/// A deployment's copy in the hub namespace, and the companions that it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consumer {
    /// Its name.
    pub deployment: String,
    /// Its city. `None` if its label names none.
    pub city: Option<CityCode>,
    /// The companions.
    pub expects: Vec<DataRef>,
}

/// Consumers and companions of one hub namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Copies of all deployments.
    pub consumers: Vec<Consumer>,
    /// Of each companion that is there, the policy that claims it: a PropagationPolicy by name, a
    /// ClusterPropagationPolicy by kind and name.
    pub claimed_by: BTreeMap<DataRef, Option<String>>,
    /// Of each companion that has a binding, names of the bindings that need it.
    pub required_by: BTreeMap<DataRef, BTreeSet<String>>,
}

/// True if Karmada brings every companion to each deployment that expects it as a dependency (fact 23). Then claims may go.
pub fn all_delivered_by_dependency(observed: &Observed) -> bool {
    observed.consumers.iter().all(|consumer| {
        let parent = names::deployment_binding(&consumer.deployment);
        let brought = |data_ref| observed.required_by.get(data_ref).is_some_and(|by| by.contains(&parent));
        consumer.expects.iter().all(brought)
    })
}

/// Returns the losses of the cities if only claims delivered companions. For each companion, that is every city that expects it,
/// except the city of the policy that claims it.
///
/// # Errors
/// The companions that the rollback waits for: they do not exist, or no policy claims them yet.
pub fn rollback_impact(observed: &Observed) -> Result<Vec<String>, Vec<String>> {
    let (mut impact, mut waits) = (BTreeSet::new(), BTreeSet::new());
    for consumer in &observed.consumers {
        let Some(city) = &consumer.city else { continue };
        for data_ref in &consumer.expects {
            match observed.claimed_by.get(data_ref) {
                Some(Some(policy)) if *policy == city.policy_name() => {}
                Some(Some(policy)) => {
                    impact.insert(format!("{city} loses {data_ref}, which {policy} keeps"));
                }
                Some(None) => {
                    waits.insert(format!("{data_ref}, which no policy claims"));
                }
                None => {
                    waits.insert(format!("{data_ref}, which does not exist"));
                }
            }
        }
    }
    if waits.is_empty() { Ok(impact.into_iter().collect()) } else { Err(waits.into_iter().collect()) }
}

/// Returns the number of companions, and of their bindings, that a policy still claims.
pub fn claims_left<'a>(
    policy: &str,
    companions: impl IntoIterator<Item = &'a CompanionFacts>,
    bindings: impl IntoIterator<Item = &'a BindingFacts>,
) -> usize {
    let companions = companions.into_iter().filter(|companion| companion.policy.as_deref() == Some(policy));
    let bindings = bindings.into_iter().filter(|b| !b.template.is_deployment() && b.policy.as_deref() == Some(policy));
    companions.count() + bindings.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::management::observed::facts::Template;

    fn consumer(deployment: &str, city: Option<&str>, expects: &[&str]) -> Consumer {
        Consumer {
            deployment: deployment.into(),
            city: city.map(|city| CityCode::parse(city).unwrap()),
            expects: expects.iter().map(|name| DataRef::secret(name)).collect(),
        }
    }

    fn required(by: &[(&str, &[&str])]) -> BTreeMap<DataRef, BTreeSet<String>> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        by.iter().map(|(data_ref, by)| (DataRef::secret(data_ref), names(by))).collect()
    }

    /// Attached bindings, each with the bindings that need it.
    type Attached = &'static [(&'static str, &'static [&'static str])];

    #[test]
    fn claims_are_dropped_once_dependencies_bring_every_companion() {
        let one = consumer("web", Some("dfw"), &["db"]);
        let two = consumer("api", Some("ord"), &["db", "key"]);
        let cases: [(&str, Vec<Consumer>, Attached, bool); 7] = [
            ("no consumer", vec![], &[], true),
            ("no consumer expects data", vec![consumer("web", Some("dfw"), &[])], &[], true),
            ("no binding at all: not known is not brought", vec![one.clone()], &[], false),
            ("a binding without users", vec![one.clone()], &[("db", &[])], false),
            ("brought", vec![one.clone()], &[("db", &["web-workloaddeployment"])], true),
            (
                "one of two is not",
                vec![one.clone(), two.clone()],
                &[("db", &["web-workloaddeployment", "api-workloaddeployment"]), ("key", &[])],
                false,
            ),
            (
                "both are",
                vec![one, two],
                &[("db", &["web-workloaddeployment", "api-workloaddeployment"]), ("key", &["api-workloaddeployment"])],
                true,
            ),
        ];
        for (what, consumers, by, expected) in cases {
            let observed = Observed { consumers, required_by: required(by), ..Observed::default() };
            assert_eq!(all_delivered_by_dependency(&observed), expected, "{what}");
        }
    }

    #[test]
    fn rollback_impact_lists_every_city_without_the_claim() {
        let dfw = consumer("web", Some("dfw"), &["db"]);
        let ord = consumer("api", Some("ord"), &["db"]);
        let lost = |text: &str| Ok(vec![text.to_owned()]);
        let waits = |text: &str| Err(vec![text.to_owned()]);
        let claimed = |policy: Option<&str>| [(DataRef::secret("db"), policy.map(str::to_owned))].into();
        let none: BTreeMap<DataRef, Option<String>> = BTreeMap::new();
        for (what, consumers, claimed_by, expected) in [
            ("no consumer expects data", vec![consumer("web", Some("dfw"), &[])], none.clone(), Ok(vec![])),
            ("the companion is not there", vec![dfw.clone()], none, waits("Secret/db, which does not exist")),
            ("no policy claims it yet", vec![dfw.clone()], claimed(None), waits("Secret/db, which no policy claims")),
            ("the only city has it", vec![dfw.clone()], claimed(Some("city-dfw")), Ok(vec![])),
            (
                "the other city loses it",
                vec![dfw.clone(), ord],
                claimed(Some("city-dfw")),
                lost("ord loses Secret/db, which city-dfw keeps"),
            ),
            (
                "a deployment without a city is not delivered",
                vec![consumer("x", None, &["db"])],
                claimed(None),
                Ok(vec![]),
            ),
            (
                "another's policy keeps it",
                vec![dfw],
                claimed(Some("theirs")),
                lost("dfw loses Secret/db, which theirs keeps"),
            ),
        ] {
            let observed = Observed { consumers, claimed_by, ..Observed::default() };
            assert_eq!(rollback_impact(&observed), expected, "{what}");
        }
    }

    #[test]
    fn claims_left_counts_companions_and_their_bindings() {
        let companion = |policy: Option<&str>| CompanionFacts { policy: policy.map(Into::into), ..Default::default() };
        let binding =
            |template, policy: &str| BindingFacts { template, policy: Some(policy.into()), ..BindingFacts::default() };
        let companions = [companion(None), companion(Some("city-dfw")), companion(Some("city-ord"))];
        let bindings = [
            binding(Template::Companion(DataRef::secret("db")), "city-dfw"),
            binding(Template::Foreign, "city-dfw"),
            binding(Template::Deployment("web".into()), "city-dfw"),
            binding(Template::Companion(DataRef::secret("db")), "city-ord"),
        ];
        assert_eq!(claims_left("city-dfw", &companions, &bindings), 3, "a deployment's own binding is no companion's");
        assert_eq!(claims_left("city-sea", &companions, &bindings), 0);
    }
}
