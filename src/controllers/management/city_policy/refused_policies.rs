//! City policies that the hub rejects, with its message. The deployments that wait for such a policy report them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::controllers::management::wiring::queues::PolicyKey;
use crate::{plan::Failure, timing::Timing};

/// The last error of each policy that the hub rejects, until it accepts the policy.
#[derive(Default)]
pub(crate) struct RefusedPolicies(Mutex<BTreeMap<PolicyKey, String>>);

impl RefusedPolicies {
    /// Records the error of the last write; `None` if the hub accepted all. Returns true if the report has changed.
    pub(crate) fn note(&self, policy: &PolicyKey, failure: Option<Failure>, timing: &Timing) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(policy).cloned();
        let words = failure.and_then(|failure| failure.reported(before.clone(), timing));
        match words.clone() {
            Some(words) => all.insert(policy.clone(), words),
            None => all.remove(policy),
        };
        before != words
    }

    /// Returns the hub's message about a policy that it rejects.
    pub(crate) fn of(&self, policy: &PolicyKey) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(policy).cloned()
    }

    /// Forgets the policies of deleted hub namespaces.
    pub(crate) fn forget_gone(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|policy, _| is_there(&policy.namespace));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::names::CityCode;

    fn policy(namespace: &str, city: &str) -> PolicyKey {
        PolicyKey { namespace: namespace.into(), city: CityCode::parse(city).unwrap() }
    }

    fn refused(words: &str) -> Failure {
        Failure { words: words.into(), is_final: true, lasted: Duration::ZERO }
    }

    /// A 5xx cleared the earlier rejection, and was never reported.
    #[test]
    fn refusal_is_kept_until_the_hub_accepts_the_policy() {
        let (memory, timing, dfw) = (RefusedPolicies::default(), Timing::default(), policy("ns-a", "dfw"));
        let passing = |seconds| Failure {
            words: "it answers with HTTP 500".into(),
            is_final: false,
            lasted: Duration::from_secs(seconds),
        };
        assert!(!memory.note(&dfw, Some(passing(3)), &timing) && memory.of(&dfw).is_none(), "it may pass");
        assert!(memory.note(&dfw, Some(passing(20)), &timing), "it lasts");
        assert_eq!(memory.of(&dfw).as_deref(), Some("it answers with HTTP 500"));
        assert!(memory.note(&dfw, Some(refused("no")), &timing));
        assert!(!memory.note(&dfw, Some(passing(3)), &timing), "what is reported stays");
        assert_eq!(memory.of(&dfw).as_deref(), Some("no"));
        assert!(memory.note(&dfw, None, &timing) && memory.of(&dfw).is_none());
    }

    #[test]
    fn refusal_in_a_deleted_namespace_is_forgotten() {
        let (memory, timing) = (RefusedPolicies::default(), Timing::default());
        let policies = [policy("ns-a", "dfw"), policy("ns-b", "dfw")];
        for policy in &policies {
            memory.note(policy, Some(refused("no")), &timing);
        }
        memory.forget_gone(|namespace| namespace == "ns-b");
        assert_eq!(policies.map(|policy| memory.of(&policy).is_some()), [false, true]);
    }
}
