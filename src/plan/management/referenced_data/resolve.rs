//! Resolves the references of a deployment: the data that its cell gets, or the reason why the cell cannot get it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::plan::management::{
    federator::held_copies::{HeldCopies, MAX_NAMED_IN_MESSAGE},
    observed::facts::SharedCompanion,
    referenced_data::users::expects,
};
use crate::{
    api::{compute::WorkloadDeployment, meta::annotation, reason::Reason, referenced::DataRef, user_list::Listed},
    plan::{
        condition::Verdict,
        limits::MAX_REFERENCES,
        references::{NameFlaw, Reference, annotated, name_flaw, references},
        text::{self, BoundedText},
    },
};

/// Limits on the data that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum bytes of the values of one source.
    pub per_object: u64,
    /// Maximum bytes of the values of all sources of one deployment.
    pub aggregate: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_object: 256 << 10, aggregate: 1 << 20 }
    }
}

/// Known state of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The source has not been read since its last change.
    #[default]
    Unknown,
    /// The source does not exist.
    Absent,
    /// The operator is not allowed to read the source. Holds the API server's message.
    Unauthorized(String),
    /// An object that is not ours has the name of the companion on the hub.
    Taken,
    /// The hub refuses the copy. Holds its API server's message without the parts that could repeat a value.
    Refused(String),
    /// The source was read.
    Present {
        /// Bytes of the source's values.
        size: u64,
    },
}

/// Reason why a source cannot be copied. Only the owner of the source or the user of the deployment can resolve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRefusal {
    /// The condition's reason.
    pub reason: Reason,
    /// Message with the problem, its place and the remedy.
    pub message: BoundedText,
}

impl SourceRefusal {
    /// Creates a refusal with this reason and message.
    pub fn new(reason: Reason, message: impl Into<BoundedText>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Value of the annotation that carries the refusal to the cell.
    pub fn to_annotation(&self) -> String {
        json!({ "reason": self.reason, "message": self.message }).to_string()
    }
}

/// Result of resolving a deployment's references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// These sources have not been read yet.
    Pending(Vec<DataRef>),
    /// At least one source cannot be copied.
    Refused(SourceRefusal),
    /// All sources are read. Optional ones that cannot be copied are left out.
    Complete {
        /// Sources that the cell gets.
        wanted: Vec<DataRef>,
        /// Optional sources that are left out.
        skipped: Vec<DataRef>,
    },
}

/// Resolves the references of one deployment. A source that is missing in `sources` is unknown.
pub fn resolve(
    references: &[Reference],
    namespace: &str,
    limits: Limits,
    sources: &BTreeMap<DataRef, Source>,
) -> Resolution {
    if references.len() > MAX_REFERENCES {
        let message = format!(
            "it refers to {} ConfigMaps and Secrets, {MAX_REFERENCES} is the limit: refer to fewer, or put several into one",
            references.len()
        );
        return Resolution::Refused(SourceRefusal::new(Reason::TooManySources, message));
    }
    let (mut pending, mut problems, mut wanted, mut skipped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut total = 0;
    for reference in references {
        let state = sources.get(&reference.data_ref).unwrap_or(&Source::Unknown);
        match (problem(reference, namespace, limits, state), state) {
            (Some(_), _) if reference.optional => skipped.push(reference.data_ref.clone()),
            (Some(problem), _) => problems.push(problem),
            (None, Source::Present { size }) => {
                total += size;
                wanted.push((reference, *size));
            }
            (None, _) => pending.push(reference.data_ref.clone()),
        }
    }
    if let Some((reason, _)) = problems.first() {
        let more = problems.len().saturating_sub(MAX_NAMED_IN_MESSAGE);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let named =
            problems.iter().take(MAX_NAMED_IN_MESSAGE).map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("; ");
        return Resolution::Refused(SourceRefusal::new(reason.clone(), named + &more));
    }
    if !pending.is_empty() {
        return Resolution::Pending(pending);
    }
    if total > limits.aggregate {
        wanted.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        let largest: Vec<String> =
            wanted.iter().take(MAX_NAMED_IN_MESSAGE).map(|(r, size)| format!("{} {size}", r.data_ref)).collect();
        let message = format!(
            "its ConfigMaps and Secrets have {total} bytes, {} is the limit (largest: {}): refer to fewer, or make them \
             smaller",
            limits.aggregate,
            largest.join(", ")
        );
        return Resolution::Refused(SourceRefusal::new(Reason::SourceTooLarge, message));
    }
    Resolution::Complete { wanted: wanted.into_iter().map(|(r, _)| r.data_ref.clone()).collect(), skipped }
}

/// Returns the problem with one reference. `None` if there is none.
fn problem(reference: &Reference, namespace: &str, limits: Limits, source: &Source) -> Option<(Reason, String)> {
    let data_ref = &reference.data_ref;
    let (kind, name) = (data_ref.kind.as_str(), &text::name(&data_ref.name));
    let asked = || format!("(used by {})", reference.asking());
    match name_flaw(data_ref) {
        Some(NameFlaw::TooLong { limit }) => {
            let length = data_ref.name.len();
            let text = format!(
                "the name of {kind} {name:?} has {length} characters, {limit} is the limit {}: rename it",
                asked()
            );
            return Some((Reason::SourceNameTooLong, text));
        }
        Some(NameFlaw::InEveryNamespace) => {
            let text = format!(
                "every cluster writes a ConfigMap {name} with its own content into every namespace, so the project's \
                 cannot be copied {}: copy it under another name",
                asked()
            );
            return Some((Reason::SourceNameTaken, text));
        }
        Some(NameFlaw::NoName) => {
            let text = format!("{name:?} is not a name that a {kind} can have {}: correct the reference", asked());
            return Some((Reason::SourceNotFound, text));
        }
        None => {}
    }
    match source {
        Source::Absent => Some((
            Reason::SourceNotFound,
            format!(
                "there is no {kind} {name} in namespace {namespace} {}: create it, or mark the reference optional",
                asked()
            ),
        )),
        Source::Unauthorized(why) => Some((
            Reason::SourceUnauthorized,
            format!("{kind} {name} in namespace {namespace} may not be read {}: {why}", asked()),
        )),
        Source::Taken => Some((
            Reason::SourceNameTaken,
            format!(
                "{kind} {name} cannot be copied: another owner has that name on the hub {}: use another name",
                asked()
            ),
        )),
        Source::Refused(why) => {
            let text = format!("the hub refuses the copy of {kind} {name} {}: {why}", asked());
            Some((Reason::SourceRefused, text))
        }
        Source::Present { size } if *size > limits.per_object => Some((
            Reason::SourceTooLarge,
            format!("{kind} {name} has {size} bytes, {} is the limit {}: make it smaller", limits.per_object, asked()),
        )),
        Source::Unknown | Source::Present { .. } => None,
    }
}

/// Snapshot of the referenced data of one deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Limits on the data that is copied.
    pub limits: Limits,
    /// Known states of the sources that the deployment refers to.
    pub sources: BTreeMap<DataRef, Source>,
    /// Existing companions of the data that the deployment refers to, or that it or its copy on the hub expects.
    pub companions: BTreeMap<DataRef, SharedCompanion>,
    /// Referenced sources that could not be read or copied for longer than the grace period, with the cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub late: BTreeMap<DataRef, String>,
}

/// Report about a deployment's data, for the project and for the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Companions that the cell gets, all of them in place on the hub. `None` if there are none, or they are not known yet.
    pub expected: Option<Vec<DataRef>>,
    /// Optional references that were left out.
    pub skipped: Vec<DataRef>,
    /// Reason why a source cannot be copied.
    pub refusal: Option<SourceRefusal>,
    /// Reason why the data is incomplete. `None` if `expected` is all that the deployment needs.
    pub trouble: Option<Verdict>,
    /// True if the deployment refers to any source.
    pub refers: bool,
    /// Requeue delay until a wait is long enough to be reported.
    pub look_again: Option<Duration>,
    /// Reason why the copy of a source is not updated. Running instances keep the content of the last copy.
    pub late: Option<String>,
}

impl Data {
    /// Reports the data as unknown until the copy on the hub lists all of it. Until then the data is on the hub and on no cell.
    /// The cause is our own pending write, not a missing reaction of Karmada.
    #[must_use]
    pub(crate) fn until_listed_by(self, copy: &WorkloadDeployment) -> Self {
        let listed = annotated(copy, annotation::EXPECTED_REFERENCED_DATA);
        let is_listed = self.expected.iter().flatten().all(|data_ref| listed.contains(data_ref));
        let text = "the copy on the hub does not list it yet";
        let trouble = (!is_listed).then(|| Verdict::unknown(Reason::Resolving, text));
        Self { trouble: self.trouble.or(trouble), ..self }
    }
}

/// Decides the data annotations of one deployment. `copy` is its copy on the hub.
///
/// While a source cannot be copied, or is not copied yet, data that was expected before is kept if the deployment still refers to
/// it. The copies are in use. This holds also while a copy is recreated, or after another client overwrote the list of its users.
/// The annotation in the project counts only if the copy on the hub or the companion's list confirms it. Otherwise a tenant could
/// write it to request any data (fact 19). `patience` is the time that the deletion of a copy may take before its finalizers are
/// reported.
pub fn data(
    deployment: &WorkloadDeployment,
    copy: Option<&WorkloadDeployment>,
    view: &View,
    patience: Duration,
    now: Timestamp,
) -> Data {
    let namespace = deployment.namespace().unwrap_or_default();
    let references = references(&deployment.spec.template.spec);
    let listed = |data_ref: &DataRef| view.companions.get(data_ref).map_or(Listed::No, |companion| companion.listed);
    let is_confirmed =
        |data_ref: &DataRef| copy.is_some_and(|copy| expects(copy, data_ref)) || listed(data_ref) == Listed::Named;
    // Instances of the old template use the data of that template until they are replaced.
    let refers = |data_ref: &DataRef| references.iter().any(|r| &r.data_ref == data_ref);
    let kept: Vec<DataRef> = annotated(deployment, annotation::EXPECTED_REFERENCED_DATA)
        .into_iter()
        .filter(|data_ref| is_confirmed(data_ref) && (refers(data_ref) || is_rolling(deployment)))
        .filter(|data_ref| {
            let source = view.sources.get(data_ref).unwrap_or(&Source::Unknown);
            !lets_go(deployment, data_ref, source)
        })
        .collect();
    let late = view.late.iter().find(|(data_ref, _)| refers(data_ref));
    let mut data = Data { refers: !references.is_empty(), late: late.map(stale_copy_message), ..Data::default() };
    let held = |kept: Vec<DataRef>| (!kept.is_empty()).then_some(kept);
    if references.is_empty() {
        data.expected = held(kept);
        return data;
    }
    match resolve(&references, &namespace, view.limits, &view.sources) {
        Resolution::Pending(data_refs) => {
            let text = with_note(&format!("reading {}", list(&data_refs)), data.late.as_deref());
            data.trouble = Some(Verdict::unknown(Reason::Resolving, text));
            data.skipped = annotated(deployment, annotation::SKIPPED_REFERENCED_DATA);
            data.expected = held(kept);
        }
        Resolution::Refused(refusal) => {
            data.trouble = Some(Verdict::no(refusal.reason.clone(), &*refusal.message));
            data.skipped = annotated(deployment, annotation::SKIPPED_REFERENCED_DATA);
            data.refusal = Some(refusal);
            data.expected = held(kept);
        }
        Resolution::Complete { wanted, skipped } => {
            let is_fresh = |data_ref: &DataRef| view.companions.get(data_ref).is_some_and(|companion| companion.fresh);
            let in_place = |of: &&DataRef| listed(of) != Listed::No && (kept.contains(of) || is_fresh(of));
            let missing: Vec<DataRef> = wanted.iter().filter(|data_ref| !in_place(data_ref)).cloned().collect();
            data.skipped = skipped;
            if missing.is_empty() {
                let all: BTreeSet<DataRef> = wanted.into_iter().chain(kept).collect();
                data.expected = Some(all.into_iter().collect());
            } else {
                let copies = HeldCopies::of(&missing, &view.companions, patience, now);
                data.look_again = copies.told_in;
                data.refusal = copies.told.map(|message| SourceRefusal::new(Reason::SourceCopyHeld, message));
                data.trouble = Some(data.refusal.as_ref().map_or_else(
                    || {
                        let text = with_note(&copying_message(&missing, view), data.late.as_deref());
                        Verdict::unknown(Reason::Resolving, text)
                    },
                    |refusal| Verdict::no(refusal.reason.clone(), &*refusal.message),
                ));
                data.expected = held(kept);
            }
        }
    }
    data
}

/// Message about a source that could not be read or copied for longer than the grace period.
fn stale_copy_message((data_ref, why): (&DataRef, &String)) -> String {
    format!(
        "{data_ref} is not copied to the hub. Running instances keep their data. The platform, or the owner of the \
         project, must fix this: {why}"
    )
}

/// Appends a note to a message.
pub(crate) fn with_note(message: &str, note: Option<&str>) -> String {
    note.map_or_else(|| message.to_owned(), |note| format!("{message}; {note}"))
}

/// Message about copies that are not in place yet.
fn copying_message(missing: &[DataRef], view: &View) -> String {
    let message = format!("copying {} to the hub", list(missing));
    let companions = missing.iter().filter_map(|data_ref| Some((data_ref, view.companions.get(data_ref)?)));
    let mut full = companions.filter(|(_, companion)| companion.listed == Listed::No);
    match full.find_map(|(data_ref, companion)| Some((data_ref, companion.full.as_ref()?))) {
        Some((data_ref, why)) => {
            format!("{message}; the list of users of {data_ref} cannot grow: {why}")
        }
        None => message,
    }
}

/// True if a deployment with these references does without a source: the source is optional and absent.
pub fn does_without(references: &[Reference], data_ref: &DataRef, source: &Source) -> bool {
    *source == Source::Absent && references.iter().any(|r| r.data_ref == *data_ref && r.optional)
}

/// True if a deployment releases the copy of a source that it does without. Otherwise the deletion of a source would not revoke
/// its content. False while Instances of an older template run, because they may need the copy.
pub fn lets_go(deployment: &WorkloadDeployment, data_ref: &DataRef, source: &Source) -> bool {
    let references = || references(&deployment.spec.template.spec);
    !is_rolling(deployment) && does_without(&references(), data_ref, source)
}

/// True if the copy of one source must be created or updated for a deployment of this namespace with these references. That is so
/// if all referenced sources can be copied. It is also so if this source can be copied and the deployment's copy on the hub
/// expects it. Then the companion follows the source, and the state of the other sources does not matter.
pub fn wants_companion(
    references: &[Reference],
    data_ref: &DataRef,
    namespace: &str,
    limits: Limits,
    sources: &BTreeMap<DataRef, Source>,
    expected: bool,
) -> bool {
    let source = sources.get(data_ref).unwrap_or(&Source::Unknown);
    let size = |source: &Source| if let Source::Present { size } = source { *size } else { 0 };
    let is_copied = |r: &Reference| {
        let can_be = problem(r, namespace, limits, source).is_none() && matches!(source, Source::Present { .. });
        r.data_ref == *data_ref && can_be
    };
    let fits = || references.iter().filter_map(|r| sources.get(&r.data_ref)).map(size).sum::<u64>() <= limits.aggregate;
    !does_without(references, data_ref, source)
        && (wants_companions(references, namespace, limits, sources)
            || expected && references.iter().any(is_copied) && fits())
}

/// True if a deployment of this namespace with these references needs a companion of each source now.
pub fn wants_companions(
    references: &[Reference],
    namespace: &str,
    limits: Limits,
    sources: &BTreeMap<DataRef, Source>,
) -> bool {
    matches!(resolve(references, namespace, limits, sources), Resolution::Complete { .. })
}

/// True if Instances of an older template may still run. That is so until the cell reports otherwise.
fn is_rolling(deployment: &WorkloadDeployment) -> bool {
    deployment.report().is_none_or(|status| {
        status.observed_generation < deployment.metadata.generation || status.updated_replicas < status.replicas
    })
}

/// True if a new status of a deployment ends a rollout that has kept data of an older template.
pub fn may_release(before: &WorkloadDeployment, after: &WorkloadDeployment) -> bool {
    let keeps_data = annotated(before, annotation::EXPECTED_REFERENCED_DATA).into_iter().next().is_some();
    keeps_data && is_rolling(before) != is_rolling(after)
}

/// Formats references for a message.
pub(crate) fn list(data_refs: &[DataRef]) -> String {
    let shown: Vec<String> = data_refs.iter().take(MAX_NAMED_IN_MESSAGE).map(ToString::to_string).collect();
    match data_refs.len().saturating_sub(MAX_NAMED_IN_MESSAGE) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
