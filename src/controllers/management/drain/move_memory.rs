//! Where cities are on their way to: what one look at the clusters decides, and the controllers of policies and deployments
//! go by until the next.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    api::names::CityCode,
    plan::management::{
        city_policy::guard,
        drain::moves::{self, Move},
    },
};

/// The moves that the last look decided on.
#[derive(Default)]
pub(crate) struct Moves {
    all: Mutex<BTreeMap<CityCode, Move>>,
    /// Whether anybody has looked yet: until then it is not known what is on its way.
    looked: AtomicBool,
}

impl Moves {
    /// Whether anybody has looked yet.
    pub(crate) fn are_known(&self) -> bool {
        self.looked.load(Ordering::Acquire)
    }

    /// Somebody has taken back that a cluster is to be drained: what went wrong with it is to be tried again, should it be
    /// asked for again.
    pub(crate) fn called_off(&self, cluster: &str) {
        self.lock().values_mut().filter(|of| of.from.contains(cluster)).for_each(|of| of.failed.clear());
    }

    /// What a city's policy in a hub namespace is to know of them.
    pub(crate) fn instruct(&self, city: &CityCode, namespace: &str, place: guard::Observed) -> guard::Observed {
        let all = self.lock();
        let Some(of) = all.get(city) else { return place };
        let (transfer, home) = (of.transfer(namespace).cloned(), of.home.clone());
        guard::Observed { transfer, home, failed: of.failed_of(namespace), ..place }
    }

    /// What a deployment of the city on one of these clusters is to say of it.
    pub(crate) fn note(&self, city: &CityCode, on: &[String]) -> Option<String> {
        let all = self.lock();
        let of = all.get(city).filter(|of| on.iter().any(|cluster| of.concerned().contains(cluster.as_str())))?;
        moves::note(city, of)
    }

    /// What the last look decided.
    pub(crate) fn all(&self) -> BTreeMap<CityCode, Move> {
        self.lock().clone()
    }

    /// What a look has decided. Says whether it is the first.
    pub(crate) fn remember(&self, decided: BTreeMap<CityCode, Move>) -> bool {
        *self.lock() = decided;
        !self.looked.swap(true, Ordering::AcqRel)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CityCode, Move>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::management::drain::whereabouts::Failure;

    #[test]
    fn a_failure_is_forgotten_when_the_drain_is_called_off() {
        let (moves, dfw) = (Moves::default(), CityCode::parse("dfw").unwrap());
        assert!(!moves.are_known());
        let failed = Failure { namespace: "ns-1".into(), marks: String::new(), why: "it is full".into() };
        let of = Move { from: ["a".to_owned()].into(), failed: [("b".to_owned(), failed)].into(), ..Move::default() };
        assert!(moves.remember([(dfw.clone(), of)].into()) && moves.are_known(), "the first look");
        moves.called_off("c");
        assert!(!moves.all()[&dfw].failed.is_empty(), "another cluster's");
        moves.called_off("a");
        assert!(moves.all()[&dfw].failed.is_empty());
        assert!(!moves.remember(BTreeMap::new()), "not the first any more");
    }
}
