//! A quota claim whose Instance is gone, left behind when its backend was away for too long.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::claim::Identity;
use crate::{
    api::neighbours::ResourceClaim,
    plan::{Cell, Object, Plan, Project, Proof, Shared, Step, Write, ownership::Holder},
};

/// What is known of a claim whose Instance no cache has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The claim.
    pub claim: Shared<ResourceClaim>,
    /// This cell, as its claims name it.
    pub cell: Identity,
    /// The Instance that the claim is for.
    pub instance: Object,
}

/// A claim of this cell is released once a live read has shown that its Instance is gone. One that does not carry this
/// cell's uid may be another's whose Instance lives there, under the same name. Nothing of it depends on the time.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Step<Cell, Project>> {
    let Observed { claim, cell, instance } = observed;
    if cell.holder(claim, &instance.namespace) != Holder::ThisCell {
        return Plan::nothing();
    }
    let proof = Proof::read(Write::confirm_absent(instance.clone()), Step::Local);
    proof.delete(&**claim, Step::Remote).into_iter().collect()
}
