//! Plans the companion of a source on the hub: its content, its list of [`users`](super::users) and its deletion.
//!
//! A companion is written by create and by merge patch of exactly the observed version, not by server-side apply. Its content
//! must equal the source's, without additions. Two writers of `referenced-by` must not lose an entry.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{residue, resolve::Source, users::Users};
use crate::plan::management::observed::facts::CompanionFacts;
use crate::{
    api::{
        meta::{annotation, label, manager},
        referenced::DataRef,
        user_list::UserList,
    },
    plan::{
        Confirm, Hub, Next, Object, ObjectVersion, Op, Plan, Project, Proof, Shared, Step, Write, payload::Payload,
        references::name_flaw,
    },
};

/// Residue of former claims on a companion ([`residue`](super::residue)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidueFacts {
    /// True if the companion itself carries a claim.
    pub on_companion: bool,
    /// Version of the companion's binding. `None` if it has no residue.
    pub on_binding: Option<ObjectVersion>,
    /// Bindings of the deployments that would lose the companion if the residue was removed.
    pub needed_by: BTreeSet<String>,
}

/// Contents that were read for this decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Reading {
    /// No content that may be copied was read.
    #[default]
    Unknown,
    /// The content of the source.
    Source(Payload),
    /// The contents of the source and of the companion.
    Both {
        /// Content of the source.
        source: Payload,
        /// Version of the companion that was read.
        version: ObjectVersion,
        /// Content of the companion.
        companion: Payload,
    },
}

/// Snapshot of one companion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed {
    /// Kind and name of the source.
    pub data_ref: DataRef,
    /// Namespace in the project.
    pub namespace: String,
    /// Namespace on the hub.
    pub hub_namespace: String,
    /// True if the hub namespace exists, mirrors the project's namespace and is not terminating.
    pub hub_namespace_lives: bool,
    /// Deployments that may use the companion.
    pub users: Users,
    /// The companion. `None` if the hub has none.
    pub companion: Option<Shared<CompanionFacts>>,
    /// Residue of former claims on the companion.
    pub residue: Option<ResidueFacts>,
    /// True if the companion is known to have the content of the source.
    pub fresh: bool,
    /// True if the hub refused the content of the source, and the next attempt is not due yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// Contents that were read for this decision. A recorded snapshot lacks them, because a record shows no content.
    #[serde(skip_deserializing)]
    pub reading: Reading,
}

/// State of a companion's source, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// True if a deployment refers to the source.
    pub used: bool,
    /// Present state. Unknown after a change.
    pub present: Source,
    /// State at the last read.
    pub last: Source,
    /// True if the watch of the source fails, so that changes are not seen.
    pub failing: bool,
    /// Time until content that the hub refused is offered again.
    pub offered_in: Option<Duration>,
    /// Remaining wait for a deleted source to return. A replacement begins with the deletion.
    pub may_return_in: Option<Duration>,
}

impl SourceState {
    /// True if the source is read before a decision.
    pub fn is_read_first(&self) -> bool {
        let known = matches!(self.present, Source::Absent | Source::Present { .. });
        self.used && (self.failing || !known)
    }

    /// Returns the next requeue, for changes without an event of the source. In such a change the source becomes readable, the
    /// companion's name becomes free, the hub accepts refused content, or a deleted source does not return.
    pub fn next(&self, retry: Duration) -> Next {
        let waits = self.failing || matches!(self.last, Source::Unauthorized(_) | Source::Taken);
        let wait = waits.then_some(retry).into_iter().chain(self.offered_in).chain(self.may_return_in).min();
        wait.filter(|_| self.used).map_or(Next::Await, Next::After)
    }
}

/// Returns the back-off after so many refusals by the hub. Most refusals last until a user changes the source or a rule of the
/// hub. Each attempt costs a read and a write.
pub fn offer_pause(times: u32, retry: Duration) -> Duration {
    retry.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(16))).min(LONGEST_OFFER_PAUSE.max(retry))
}

/// Factor of the interval of checks, because each read of a source costs a request.
pub const POLLS_PER_READ: u32 = 2;

/// Maximum back-off between two attempts. A changed rule is found about as late as by a sweep.
const LONGEST_OFFER_PAUSE: Duration = Duration::from_mins(5);

/// Action of the controller in addition to the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Read the source, and the companion if it exists, and plan again.
    Read,
    /// The companion has the content of the source, at the version that was read.
    Equal,
    /// The companion has no users left. These writes delete it.
    Unused,
}

/// Plan for one companion.
pub type Decided = Plan<Step<Project, Hub>, Signal>;

/// Plans one companion. Without [`Signal::Read`], it equals its source, or will after these writes.
pub fn plan(observed: &Observed, _now: Timestamp) -> Decided {
    let read = || Plan::nothing().with([Signal::Read]);
    // A source with a name that cannot be copied gets no companion, even if a user requires it.
    let wanted = name_flaw(&observed.data_ref).is_none() && observed.users.by_name.values().any(|user| user.wants_copy);
    let Some(companion) = observed.companion.as_deref() else {
        return match &observed.reading {
            _ if !wanted || observed.waits || !observed.hub_namespace_lives => Plan::nothing(),
            Reading::Unknown => read(),
            Reading::Source(source) | Reading::Both { source, .. } => {
                Plan::writes(vec![Step::Remote(create(observed, source))])
            }
        };
    };
    if companion.terminating {
        return Plan::nothing(); // recreated after the deletion: its event enqueues the key
    }
    let (list, confirm) = next_list(observed, &companion.users);
    // A live read confirms each removal from the list. A list without names shows by itself that the companion is not needed.
    let struck_off = confirm.into_iter().fold(Proof::of_target(), |proof, cause| proof.and(cause, Step::Local));
    let version = ObjectVersion::new(&companion.uid, &companion.version);
    // Residue is removed only after dependencies bring the companion to every user, on each cluster (fact 27).
    let released = observed.residue.as_ref().filter(|residue| residue.needed_by.is_empty());
    let binding = released.and_then(|residue| residue.on_binding.as_ref());
    let release =
        binding.map(|version| Step::Remote(residue::release(&observed.hub_namespace, &observed.data_ref, version)));
    if list.is_empty() {
        // Without an entry in its list, or with an unreadable deployment, the companion may still be in use.
        if !observed.users.unknown_deployments && !companion.users.is_unknown() {
            let plan: Decided =
                struck_off.delete_version(object(observed), version, Step::Remote).into_iter().collect();
            return plan.with([Signal::Unused]);
        }
        return struck_off.then(release).into_iter().collect();
    }
    let is_due = wanted && !observed.fresh && !observed.waits;
    if is_due {
        let Reading::Both { source, version: seen, companion: content } = &observed.reading else { return read() };
        if *seen != version {
            return Plan::nothing(); // the watch is behind: its next event shows the present users
        }
        // The content is written first and alone. It must not wait for changes of the users, or for a list that is full. The
        // event of this write brings the rest.
        if !content.holds(source) && !content.can_become(source) {
            // The companion is immutable or has another type. Only a recreated one can have the new content.
            let proof = Proof::in_snapshot();
            return proof.delete_version(object(observed), version, Step::Remote).into_iter().collect();
        }
        if !content.holds(source) {
            let change = Value::Object(content.patch_to(source));
            let write = Write::amend_version(manager::COMPANION, object(observed), change, &version);
            return Plan::writes(vec![Step::Remote(write)]);
        }
    }
    let metadata = metadata(companion, &list, released.is_some_and(|residue| residue.on_companion));
    let amend = (!metadata.is_empty()).then(|| {
        let patch = json!({ "metadata": metadata });
        Step::Remote(Write::amend_version(manager::COMPANION, object(observed), patch, &version))
    });
    let plan: Decided = struck_off.then(amend).then(release).into_iter().collect();
    plan.with(is_due.then_some(Signal::Equal))
}

/// True if a write carries content, not only metadata. Only the refusal of such a write means that the source cannot be copied.
pub fn brings_content(write: &Write<Hub>) -> bool {
    let is_companion = write.object.kind.is_confidential();
    match &write.op {
        Op::Create { .. } => is_companion,
        Op::Merge { body, .. } => {
            is_companion && body.as_object().is_some_and(|body| body.keys().any(|field| field != "metadata"))
        }
        _ => false,
    }
}

/// Returns the reference to the companion.
fn object(observed: &Observed) -> Object {
    Object {
        kind: observed.data_ref.kind.into(),
        namespace: observed.hub_namespace.clone(),
        name: observed.data_ref.name.clone(),
    }
}

fn next_list(observed: &Observed, list: &UserList) -> (UserList, Vec<Confirm<Project>>) {
    observed.users.next_list(list, &observed.namespace, &observed.data_ref)
}

fn create(observed: &Observed, source: &Payload) -> Write<Hub> {
    let list = next_list(observed, &UserList::parse(None)).0;
    let mut body = Value::Object(source.fields());
    body["metadata"] = json!({
        "labels": { label::REFERENCED_DATA: "true" },
        "annotations": { annotation::REFERENCED_BY: list.to_annotation() },
    });
    Write::create(manager::COMPANION, object(observed), body)
}

/// Returns the changes of the companion's metadata. If `released`, a former claim is removed. It would send the companion to that
/// city for ever (facts 24, 26).
fn metadata(companion: &CompanionFacts, list: &UserList, released: bool) -> Map<String, Value> {
    let mut metadata = Map::new();
    if companion.users != *list {
        metadata.insert("annotations".into(), json!({ annotation::REFERENCED_BY: list.to_annotation() }));
    }
    if released {
        metadata.insert("labels".into(), residue::no_claim_labels());
        let marks = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (key, gone) in residue::no_claim_annotations().as_object_mut().into_iter().flatten() {
            marks[key] = gone.take();
        }
    }
    metadata
}

#[cfg(test)]
#[path = "companion_tests.rs"]
mod tests;
