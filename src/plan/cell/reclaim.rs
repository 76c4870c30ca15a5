//! Deletes a quota claim after its Instance is gone. Such a claim remains if the quota backend did not answer for too long.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::claim::Identity;
use crate::{
    api::neighbours::ResourceClaim,
    plan::{Cell, Object, Plan, Project, Proof, Shared, Step, Write, ownership::Holder},
};

/// Facts about a claim without an Instance in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The claim.
    pub claim: Shared<ResourceClaim>,
    /// The identity of this cell on its claims.
    pub cell: Identity,
    /// The Instance that the claim was made for.
    pub instance: Object,
}

/// Deletes a claim of this cell once a live read has shown that the Instance is absent. A claim without this cell's uid is kept:
/// another cell may have an Instance of the same name. The decision does not depend on the time.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Step<Cell, Project>> {
    let Observed { claim, cell, instance } = observed;
    if cell.holder(claim, &instance.namespace) != Holder::ThisCell {
        return Plan::nothing();
    }
    let proof = Proof::read(Write::confirm_absent(instance.clone()), Step::Local);
    proof.delete(&**claim, Step::Remote).into_iter().collect()
}
