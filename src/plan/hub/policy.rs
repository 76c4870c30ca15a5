//! Deployments of a city in a hub namespace -> the city's PropagationPolicy there.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    api::{
        karmada::{
            ClusterAffinity, MatchLabels, PolicyPlacement, PropagationPolicy, PropagationPolicySpec, ResourceSelector,
        },
        meta::{self, GROUP, VERSION, label, manager},
        names::CityCode,
    },
    plan::{Hub, Kind, Plan, Write, ownership},
};

/// Everything that is known about one city in one hub namespace.
pub struct Observed<'a> {
    /// The hub namespace.
    pub namespace: &'a str,
    /// The city.
    pub city: &'a CityCode,
    /// Deployments of the city that the hub holds there, also those on their way out.
    pub copies: usize,
    /// Whether a living deployment of a project is to be copied there.
    pub wanted: bool,
    /// Whether that is all: every project's deployments have been seen.
    pub complete: bool,
    /// Whether the namespace is there, and stays.
    pub namespace_lives: bool,
    /// The policy, when it is ours.
    pub policy: Option<&'a PropagationPolicy>,
}

/// Decides the writes for one city.
///
/// A policy that goes before its last deployment would leave the deployment on the cell (karmada-behaviour, fact 13),
/// so it goes only when the hub holds none and nobody wants one.
pub fn plan(observed: &Observed<'_>) -> Plan<Write<Hub>> {
    let write = if observed.wanted || observed.copies > 0 {
        observed.namespace_lives.then(|| hold(observed)).flatten()
    } else if observed.complete {
        observed
            .policy
            .filter(|policy| ownership::is_managed(*policy))
            .and_then(|p| Write::delete(Kind::PropagationPolicy, p))
    } else {
        None
    };
    write.into_iter().collect()
}

fn hold(observed: &Observed<'_>) -> Option<Write<Hub>> {
    if observed.policy.is_some_and(|p| p.metadata.deletion_timestamp.is_some()) {
        return None; // made anew when it is gone; its event brings us back
    }
    let city = || MatchLabels {
        match_labels: BTreeMap::from([(label::TOPOLOGY_CITY.to_owned(), observed.city.as_str().to_owned())]),
    };
    let spec = PropagationPolicySpec {
        // Companions follow as dependencies; a policy that selected them would claim them for its city alone (fact 21).
        resource_selectors: vec![ResourceSelector {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "WorkloadDeployment".into(),
            namespace: Some(observed.namespace.into()),
            label_selector: Some(city()),
        }],
        propagate_deps: true,
        placement: PolicyPlacement { cluster_affinity: Some(ClusterAffinity { label_selector: Some(city()) }) },
    };
    let fields = json!({ "metadata": { "labels": { label::MANAGED_BY: meta::MANAGED_BY } }, "spec": spec });
    let name = observed.city.policy_name();
    Write::apply(Kind::PropagationPolicy, manager::CITY_POLICY, observed.namespace, &name, fields, observed.policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Op;

    fn observed<'a>(city: &'a CityCode, policy: Option<&'a PropagationPolicy>) -> Observed<'a> {
        Observed { namespace: "ns-1", city, copies: 0, wanted: false, complete: true, namespace_lives: true, policy }
    }

    fn held(city: &CityCode) -> PropagationPolicy {
        let plan = plan(&Observed { wanted: true, ..observed(city, None) });
        let Op::Apply { body, .. } = &plan.steps[0].op else { panic!("{plan:?}") };
        let mut policy: PropagationPolicy = serde_json::from_value(body.clone()).unwrap();
        policy.metadata.uid = Some("u".into());
        policy.metadata.resource_version = Some("7".into());
        policy
    }

    #[test]
    fn it_comes_with_the_first_and_goes_with_the_last() {
        let dfw = CityCode::parse("dfw").unwrap();
        let policy = held(&dfw);
        assert!(policy.spec.propagate_deps && policy.spec.resource_selectors.len() == 1);
        let cases = [
            ("wanted, there", Observed { wanted: true, ..observed(&dfw, Some(&policy)) }, 0),
            ("copies left", Observed { copies: 1, ..observed(&dfw, Some(&policy)) }, 0),
            ("copies left, policy lost", Observed { copies: 1, ..observed(&dfw, None) }, 1),
            ("not all projects seen", Observed { complete: false, ..observed(&dfw, Some(&policy)) }, 0),
            ("last one gone", observed(&dfw, Some(&policy)), 1),
            ("namespace not there yet", Observed { wanted: true, namespace_lives: false, ..observed(&dfw, None) }, 0),
        ];
        for (name, observed, writes) in cases {
            assert_eq!(plan(&observed).steps.len(), writes, "{name}");
        }
        let gone = plan(&observed(&dfw, Some(&policy)));
        assert_eq!(gone.steps[0].op, Op::Delete { uid: "u".into(), resource_version: "7".into() });
    }

    #[test]
    fn a_namesake_of_somebody_else_is_left_alone() {
        let dfw = CityCode::parse("dfw").unwrap();
        let mut policy = held(&dfw);
        policy.metadata.labels = None;
        assert!(plan(&observed(&dfw, Some(&policy))).steps.is_empty());
    }
}
