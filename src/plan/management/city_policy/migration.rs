//! The way from claims to dependencies, and back: what may be dropped, and who would lose what.

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
    /// Its city; `None` when its label names none.
    pub city: Option<CityCode>,
    /// The companions.
    pub expects: Vec<DataRef>,
}

/// What one hub namespace shows of the way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Every deployment's copy.
    pub consumers: Vec<Consumer>,
    /// Of each companion that is there, the policy that claims it: a PropagationPolicy by name, a
    /// ClusterPropagationPolicy by kind and name.
    pub claimed_by: BTreeMap<DataRef, Option<String>>,
    /// Of each companion that has a binding, names of the bindings that need it.
    pub required_by: BTreeMap<DataRef, BTreeSet<String>>,
}

/// Whether every companion is brought to each deployment that expects it by its need (fact 23), so that claims may go.
pub fn all_delivered_by_dependency(observed: &Observed) -> bool {
    observed.consumers.iter().all(|consumer| {
        let parent = names::deployment_binding(&consumer.deployment);
        let brought = |data_ref| observed.required_by.get(data_ref).is_some_and(|by| by.contains(&parent));
        consumer.expects.iter().all(brought)
    })
}

/// What the cities would lose if companions were brought by claims alone: of each companion, every city that expects it
/// but the one whose policy claims it.
///
/// # Errors
/// What that waits for: companions that are not there, or that no policy claims yet.
pub fn rollback_impact(observed: &Observed) -> Result<Vec<String>, Vec<String>> {
    let (mut impact, mut waits) = (BTreeSet::new(), BTreeSet::new());
    for consumer in &observed.consumers {
        let Some(city) = &consumer.city else { continue };
        for data_ref in &consumer.expects {
            match observed.claimed_by.get(data_ref) {
                Some(Some(policy)) if *policy == city.policy_name() => {}
                Some(Some(policy)) => {
                    impact.insert(format!("{city} loses {data_ref}, which stays with {policy}"));
                }
                Some(None) => {
                    waits.insert(format!("{data_ref}, which no policy claims"));
                }
                None => {
                    waits.insert(format!("{data_ref}, which is not there"));
                }
            }
        }
    }
    if waits.is_empty() { Ok(impact.into_iter().collect()) } else { Err(waits.into_iter().collect()) }
}

/// How many of these companions, and of these bindings of such, a policy still claims.
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
    fn claims_may_go_once_each_need_brings_each_companion() {
        let one = consumer("web", Some("dfw"), &["db"]);
        let two = consumer("api", Some("ord"), &["db", "key"]);
        let cases: [(&str, Vec<Consumer>, Attached, bool); 7] = [
            ("nobody is there", vec![], &[], true),
            ("nobody expects anything", vec![consumer("web", Some("dfw"), &[])], &[], true),
            ("no binding at all: not known is not brought", vec![one.clone()], &[], false),
            ("a binding that nobody needs yet", vec![one.clone()], &[("db", &[])], false),
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
    fn every_city_but_the_one_whose_policy_claims_it_loses_a_companion() {
        let dfw = consumer("web", Some("dfw"), &["db"]);
        let ord = consumer("api", Some("ord"), &["db"]);
        let lost = |text: &str| Ok(vec![text.to_owned()]);
        let waits = |text: &str| Err(vec![text.to_owned()]);
        let claimed = |policy: Option<&str>| [(DataRef::secret("db"), policy.map(str::to_owned))].into();
        let none: BTreeMap<DataRef, Option<String>> = BTreeMap::new();
        for (what, consumers, claimed_by, expected) in [
            ("nobody expects anything", vec![consumer("web", Some("dfw"), &[])], none.clone(), Ok(vec![])),
            ("the companion is not there", vec![dfw.clone()], none, waits("Secret/db, which is not there")),
            ("nobody claims it yet", vec![dfw.clone()], claimed(None), waits("Secret/db, which no policy claims")),
            ("the only city has it", vec![dfw.clone()], claimed(Some("city-dfw")), Ok(vec![])),
            (
                "the other city loses it",
                vec![dfw.clone(), ord],
                claimed(Some("city-dfw")),
                lost("ord loses Secret/db, which stays with city-dfw"),
            ),
            ("one without a city goes nowhere", vec![consumer("x", None, &["db"])], claimed(None), Ok(vec![])),
            (
                "another's policy keeps it",
                vec![dfw],
                claimed(Some("theirs")),
                lost("dfw loses Secret/db, which stays with theirs"),
            ),
        ] {
            let observed = Observed { consumers, claimed_by, ..Observed::default() };
            assert_eq!(rollback_impact(&observed), expected, "{what}");
        }
    }

    #[test]
    fn claims_on_companions_and_on_their_bindings_are_left() {
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
