//! Running Instances that their project's API server refuses. Their deployments report them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::controllers::management::wiring::queues::ProjectKey;
use crate::{
    api::names::ProjectName,
    plan::{Failure, management::federator::federate::Unshown},
    timing::Timing,
};

/// Messages of the refusals, by the name of the Instance.
type Refused = BTreeMap<Arc<str>, String>;

/// Registry of the Instances that projects refuse, by deployment.
#[derive(Default)]
pub(crate) struct UnshownInstances(Mutex<BTreeMap<ProjectKey, Refused>>);

impl UnshownInstances {
    /// Records the project's refusal of an Instance of a deployment. `None` if the project accepts it, or if none is to be shown.
    /// Returns true if the report of the deployment changes.
    pub(crate) fn note(
        &self,
        deployment: &ProjectKey,
        instance: &Arc<str>,
        failure: Option<Failure>,
        timing: &Timing,
    ) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(deployment).and_then(|refused| refused.get(instance)).cloned();
        let words = failure.and_then(|failure| failure.reported(before.clone(), timing));
        let changed = before != words;
        if let Some(words) = words {
            all.entry(deployment.clone()).or_default().insert(instance.clone(), words);
        } else if let Some(refused) = all.get_mut(deployment) {
            refused.remove(instance);
            if refused.is_empty() {
                all.remove(deployment);
            }
        }
        changed
    }

    /// Returns the Instances of a deployment that the project refuses.
    pub(crate) fn of(&self, deployment: &ProjectKey) -> Option<Unshown> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = all.get(deployment)?;
        let (first, words) = refused.first_key_value()?;
        Some(Unshown { first: first.to_string(), count: refused.len(), words: words.clone() })
    }

    /// Forgets a deployment that is gone.
    pub(crate) fn forget(&self, deployment: &ProjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(deployment);
    }

    /// Forgets a project that is disengaged.
    pub(crate) fn forget_project(&self, project: &ProjectName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| key.project != *project);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn unshown_instance_is_reported_on_deployment_until_it_is_shown() {
        let (unshown, timing) = (UnshownInstances::default(), Timing::default());
        let web = ProjectKey::new(&ProjectName::new("shop"), "ns", "web-p-dfw");
        let failure = |seconds| Failure {
            words: "it answers with HTTP 500".into(),
            is_final: false,
            lasted: Duration::from_secs(seconds),
        };
        let names: [Arc<str>; 2] = ["web-p-dfw-0".into(), "web-p-dfw-1".into()];
        assert!(
            !unshown.note(&web, &names[0], Some(failure(19)), &timing) && unshown.of(&web).is_none(),
            "it may pass"
        );
        assert!(unshown.note(&web, &names[1], Some(failure(20)), &timing), "it lasts");
        assert!(unshown.note(&web, &names[0], Some(failure(20)), &timing));
        assert!(!unshown.note(&web, &names[0], Some(failure(40)), &timing), "it is reported already");
        assert_eq!(unshown.of(&web).map(|of| (of.first, of.count)), Some(("web-p-dfw-0".to_owned(), 2)));
        assert!(unshown.note(&web, &names[0], None, &timing) && unshown.note(&web, &names[1], None, &timing));
        assert_eq!(unshown.of(&web), None);
        assert!(unshown.0.lock().unwrap().is_empty(), "a shown Instance has no entry");
    }
}
