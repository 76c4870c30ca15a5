//! A source and the deployments that refer to it -> its companion on the hub: content, users, and its end.
//!
//! A companion is written by create and merge patch of exactly the version that was judged, not by server-side apply:
//! its content is to be the source's and nothing more, and two writers of `referenced-by` must not lose an entry.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    residue,
    resolve::{self, Source},
};
use crate::plan::management::observed::facts::CompanionFacts;
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, label, manager},
        referenced::{DataRef, MANY_USERS, MAX_NAMED_USERS, NO_USERS},
    },
    plan::{
        Confirm, Hub, Next, Object, ObjectVersion, Op, Plan, Project, Proof, Shared, Step, Write,
        payload::Payload,
        references::{Reference, annotated, name_flaw, references},
    },
};

/// What is known of one deployment of the project that refers to the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The deployment's name.
    pub name: String,
    /// Whether a copy is to be made for it: it stays, and all that it refers to can be copied, or it has been promised this.
    pub wants_copy: bool,
    /// Whether its copy on the hub has been promised the companion: it runs with it, whatever the list says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promised: bool,
}

/// What is known of whoever stands in `referenced-by` and does not refer to the source any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FormerUser {
    /// The deployment, while it is there.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// Whether a copy of that name is on the hub.
    pub copy_exists: bool,
    /// Whether that copy expects the companion.
    pub copy_expects: bool,
}

/// What former claims of policies have left on a companion ([`residue`](super::residue)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidueFacts {
    /// Whether the companion itself carries a claim.
    pub on_companion: bool,
    /// The companion's binding, when something was left there.
    pub on_binding: Option<ObjectVersion>,
    /// The bindings of those deployments that would go without the companion if that was taken off.
    pub needed_by: BTreeSet<String>,
}

/// How much of the content has been read for this decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Reading {
    /// Nothing, or nothing that may be copied.
    #[default]
    Unknown,
    /// The source's.
    Source(Payload),
    /// The source's, and that of the companion, at this version.
    Both {
        /// The source's content.
        source: Payload,
        /// The version of the companion that was read.
        version: ObjectVersion,
        /// The companion's content.
        companion: Payload,
    },
}

/// Everything that is known about one companion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed {
    /// Which.
    pub data_ref: DataRef,
    /// The project's namespace.
    pub namespace: String,
    /// The hub's.
    pub hub_namespace: String,
    /// Whether the hub namespace is there, names this project's, and stays.
    pub hub_namespace_lives: bool,
    /// The deployments that refer to the source.
    pub users: Vec<User>,
    /// Whether some deployment of the namespace cannot be read, which may refer to the source as well: nothing is taken from
    /// anybody then, and whoever is known gets what he needs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_users: bool,
    /// Those that stand in `referenced-by` and are not among them, by name. Of an entry that names another namespace the
    /// name alone counts, as the Go operator's collector has it: a hub namespace holds one project namespace.
    pub former_users: BTreeMap<String, FormerUser>,
    /// Of a companion whose list does not say who its users are: the copies on the hub that have been promised it, by name, as many
    /// as it takes to see that there are more. Absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expecting: Option<BTreeSet<String>>,
    /// The companion.
    pub companion: Option<Shared<CompanionFacts>>,
    /// What former claims of policies have left on it, if anything.
    pub residue: Option<ResidueFacts>,
    /// Whether the companion has been seen to have what the source has.
    pub fresh: bool,
    /// Whether the hub has refused what the source has, and is not to be asked again yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// What has been read for this decision. A recorded snapshot comes without it, for it shows no content.
    #[serde(skip_deserializing)]
    pub reading: Reading,
}

/// What is known of the source of a companion, its content aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// Whether a deployment refers to it.
    pub used: bool,
    /// What it is at present.
    pub present: Source,
    /// What it was when it was last read.
    pub last: Source,
    /// Whether its watch fails, so that changes go unnoticed.
    pub failing: bool,
    /// For how long what the hub has refused of it is not offered again.
    pub offered_in: Option<Duration>,
    /// For how long it is waited for, after it was deleted: whoever replaces it deletes it first.
    pub may_return_in: Option<Duration>,
}

impl SourceState {
    /// Whether it is read before anything is decided.
    pub fn is_read_first(&self) -> bool {
        let known = matches!(self.present, Source::Absent | Source::Present { .. });
        self.used && (self.failing || !known)
    }

    /// When to look again, where no event of the source itself can be relied on: that it may be read now, or that its
    /// companion's place is free, or that the hub takes now what it has refused, or that it has not come back.
    pub fn next(&self, retry: Duration) -> Next {
        let waits = self.failing || matches!(self.last, Source::Unauthorized(_) | Source::Taken);
        let wait = waits.then_some(retry).into_iter().chain(self.offered_in).chain(self.may_return_in).min();
        wait.filter(|_| self.used).map_or(Next::Await, Next::After)
    }
}

/// How long what the hub has refused so many times is not offered again. Most refusals last until somebody changes the
/// source or a rule of the hub, and each offer is a read and a write.
pub fn offer_pause(times: u32, retry: Duration) -> Duration {
    retry.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(16))).min(LONGEST_OFFER_PAUSE.max(retry))
}

/// Longest pause between two offers: a rule that has changed is found as late as what sweeps find.
const LONGEST_OFFER_PAUSE: Duration = Duration::from_mins(5);

/// What the controller is to do beside the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Read the source, and the companion when there is one, and ask again.
    Read,
    /// The companion, at the version that was read, has what the source has.
    Equal,
    /// Nobody uses the companion any more: with these writes it is collected.
    Unused,
}

/// What is decided about one companion.
pub type Decided = Plan<Step<Project, Hub>, Signal>;

/// Whether a deployment, in the project or on the hub, is promised a companion.
pub fn expects(deployment: &WorkloadDeployment, data_ref: &DataRef) -> bool {
    annotated(deployment, annotation::EXPECTED_REFERENCED_DATA).contains(data_ref)
}

/// Decides about one companion: without [`Signal::Read`], it is as its source, or will be with these writes.
pub fn plan(observed: &Observed, _now: Timestamp) -> Decided {
    let read = || Plan::nothing().with([Signal::Read]);
    // Of a name that cannot be copied nothing is made, whether those who refer to it can do without or not.
    let wanted = name_flaw(&observed.data_ref).is_none() && observed.users.iter().any(|user| user.wants_copy);
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
        return Plan::nothing(); // made anew when it is gone; its event enqueues it
    }
    let (users, confirm) = users(observed, companion);
    // Whoever is struck off the list is confirmed; a list that names nobody says itself that the companion is not needed.
    let struck_off = confirm.into_iter().fold(Proof::of_target(), |proof, cause| proof.and(cause, Step::Local));
    let version = ObjectVersion::new(&companion.uid, &companion.version);
    // Taken off only once everybody who needs it has it by need, wherever that is (fact 27).
    let released = observed.residue.as_ref().filter(|residue| residue.needed_by.is_empty());
    let binding = released.and_then(|residue| residue.on_binding.as_ref());
    let release =
        binding.map(|version| Step::Remote(residue::release(&observed.hub_namespace, &observed.data_ref, version)));
    if users.is_empty() {
        // Nobody has ever said that he uses it, or nobody can be read: not ours to judge.
        if !observed.unknown_users && companion.users.as_ref().is_some_and(|before| !before.is_empty()) {
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
            return Plan::nothing(); // the watch is behind: who uses it now will be known with its next event
        }
        // Content first, and alone: it is not to wait while users come and go, or for a list that takes no more of them. What
        // is left of the decision its event brings.
        if !content.holds(source) && !content.can_become(source) {
            // Immutable, or of another type: nothing but a new one can have the new content.
            let proof = Proof::in_snapshot();
            return proof.delete_version(object(observed), version, Step::Remote).into_iter().collect();
        }
        if !content.holds(source) {
            let change = Value::Object(content.patch_to(source));
            let write = Write::amend_version(manager::COMPANION, object(observed), change, &version);
            return Plan::writes(vec![Step::Remote(write)]);
        }
    }
    let metadata = metadata(companion, &users, released.is_some_and(|residue| residue.on_companion));
    let amend = (!metadata.is_empty()).then(|| {
        let patch = json!({ "metadata": metadata });
        Step::Remote(Write::amend_version(manager::COMPANION, object(observed), patch, &version))
    });
    let plan: Decided = struck_off.then(amend).then(release).into_iter().collect();
    plan.with(is_due.then_some(Signal::Equal))
}

/// Whether a write brings content, and not only what is said about it: of that alone can a refusal say that the source
/// cannot be copied.
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

/// The companion.
fn object(observed: &Observed) -> Object {
    Object {
        kind: observed.data_ref.kind.into(),
        namespace: observed.hub_namespace.clone(),
        name: observed.data_ref.name.clone(),
    }
}

/// What it is a copy of.
fn source(observed: &Observed) -> Object {
    Object { namespace: observed.namespace.clone(), ..object(observed) }
}

fn create(observed: &Observed, source: &Payload) -> Write<Hub> {
    let users = observed.users.iter().filter(|user| user.wants_copy || user.promised);
    let users: BTreeSet<String> = users.map(|user| resolve::user_entry(&observed.namespace, &user.name)).collect();
    let mut body = Value::Object(source.fields());
    body["metadata"] = json!({
        "labels": { label::REFERENCED_DATA: "true" },
        "annotations": { annotation::REFERENCED_BY: json!(listed(users)).to_string() },
    });
    Write::create(manager::COMPANION, object(observed), body)
}

/// The list of these users: their names, or of too many that there are more. What names nobody stays beside that.
fn listed(users: BTreeSet<String>) -> BTreeSet<String> {
    let (named, unnamed): (BTreeSet<_>, BTreeSet<_>) = users.into_iter().partition(|entry| named(entry).is_some());
    if named.len() > MAX_NAMED_USERS {
        return unnamed.into_iter().chain([MANY_USERS.to_owned()]).collect();
    }
    named.into_iter().chain(unnamed).collect()
}

/// What the list of users is from now on, and the live reads that must stand behind each whose name is struck off.
fn users(observed: &Observed, companion: &CompanionFacts) -> (BTreeSet<String>, Vec<Confirm<Project>>) {
    let mut before = companion.users.clone().unwrap_or_default();
    before.remove(NO_USERS);
    // Then anybody who refers to it may have it.
    let anybody = companion.users.is_none() || companion.has_many_users();
    let mut users = BTreeSet::new();
    for user in &observed.users {
        let entry = resolve::user_entry(&observed.namespace, &user.name);
        // One that goes stays in the list until it is gone, and so does one whose other data cannot be copied.
        if anybody || before.contains(&entry) || user.wants_copy || user.promised {
            users.insert(entry);
        }
    }
    if companion.names_nobody() {
        let Some(expecting) = &observed.expecting else {
            return (companion.users.clone().unwrap_or_default(), Vec::new());
        };
        users.extend(expecting.iter().map(|name| resolve::user_entry(&observed.namespace, name)));
    }
    if companion.has_many_users() {
        users.extend(before.into_iter().filter(|entry| entry != MANY_USERS && named(entry).is_none()));
        if observed.unknown_users {
            users.insert(MANY_USERS.to_owned());
            return (users.into_iter().filter(|entry| named(entry).is_none()).collect(), Vec::new());
        }
        // Behind that one nobody who comes changes anything: it is given up before the companion is.
        let list = if users.is_empty() { [NO_USERS.to_owned()].into() } else { listed(users) };
        return (list, Vec::new());
    }
    let confirm = if observed.unknown_users {
        users.extend(before); // whoever cannot be read may be any of them
        Vec::new()
    } else {
        former(observed, &before, &mut users)
    };
    let list = listed(users);
    // Where names are given up, nobody is struck off.
    let confirm = if list.contains(MANY_USERS) { Vec::new() } else { confirm };
    (list, confirm)
}

/// Keeps among the users those of the list who may still be some, and answers with the live reads that must stand behind the
/// others.
fn former(observed: &Observed, before: &BTreeSet<String>, users: &mut BTreeSet<String>) -> Vec<Confirm<Project>> {
    let mut confirm = Vec::new();
    for entry in before {
        if users.contains(entry) {
            continue;
        }
        let Some((namespace, name)) = named(entry) else {
            users.insert(entry.clone()); // nobody can say who that is
            continue;
        };
        let nothing = FormerUser::default();
        let former = observed.former_users.get(name).unwrap_or(&nothing);
        let is_of_here = namespace == observed.namespace;
        match former.deployment.as_deref() {
            // What the hub still holds of it is brought to the cell by its list.
            _ if former.copy_expects || (former.copy_exists && !is_of_here) => {
                users.insert(entry.clone());
            }
            Some(deployment) if !is_of_here || expects(deployment, &observed.data_ref) => {
                users.insert(entry.clone());
            }
            Some(deployment) => {
                confirm.push(Write::confirm_unchanged(deployment));
                // It refers to the source, and does without it: nothing but the source's absence takes its copy away.
                let refers = |of: &Reference| of.data_ref == observed.data_ref;
                let absent = references(&deployment.spec.template.spec).iter().any(refers);
                confirm.extend(absent.then(|| Write::confirm_absent(source(observed))));
            }
            None => {
                let object = Object::named::<WorkloadDeployment>(&observed.namespace, name);
                confirm.push(Write::confirm_absent(object));
            }
        }
    }
    confirm
}

/// The namespace and the name of a deployment that an entry of `referenced-by` names; nothing when it names none.
pub fn named(entry: &str) -> Option<(&str, &str)> {
    entry.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
}

/// What changes in the companion's metadata. `released`: a former claim is taken off; it would send the companion to that
/// city for ever (facts 24, 26).
fn metadata(companion: &CompanionFacts, users: &BTreeSet<String>, released: bool) -> Map<String, Value> {
    let mut metadata = Map::new();
    if companion.users.as_ref() != Some(users) {
        metadata.insert("annotations".into(), json!({ annotation::REFERENCED_BY: json!(users).to_string() }));
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
