//! A deployment's references and what is known of their sources -> what its cell is to get, or why it cannot.

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
};
use crate::{
    api::{compute::WorkloadDeployment, meta::annotation, reason::Reason, referenced::DataRef},
    plan::{
        condition::Verdict,
        limits::MAX_REFERENCES,
        references::{NameFlaw, Reference, annotated, name_flaw, references},
        text::{self, BoundedText},
    },
};

/// How much may be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of values in one source.
    pub per_object: u64,
    /// Bytes of values in all sources of a deployment.
    pub aggregate: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_object: 256 << 10, aggregate: 1 << 20 }
    }
}

/// What is known of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Not looked at since it last changed.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// It may not be read; in the API server's words.
    Unauthorized(String),
    /// Where its companion is to be, there is something that is not ours.
    Taken,
    /// The hub takes no copy of it; in its API server's words, as far as they cannot repeat a value.
    Refused(String),
    /// It was read.
    Present {
        /// Bytes of its values.
        size: u64,
    },
}

/// Why a source cannot be copied. Only whoever owns the source, or refers to it, can mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRefusal {
    /// The condition's reason.
    pub reason: Reason,
    /// What, where, and how to mend it.
    pub message: BoundedText,
}

impl SourceRefusal {
    /// A refusal with these words.
    pub fn new(reason: Reason, message: impl Into<BoundedText>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The value of the annotation that carries it to the cell.
    pub fn to_annotation(&self) -> String {
        json!({ "reason": self.reason, "message": self.message }).to_string()
    }
}

/// What a deployment's references come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Not all sources have been looked at.
    Pending(Vec<DataRef>),
    /// Some cannot be copied.
    Refused(SourceRefusal),
    /// These are to be copied; optional ones that cannot be are left out.
    Complete {
        /// What the cell is to get.
        wanted: Vec<DataRef>,
        /// What it does without.
        skipped: Vec<DataRef>,
    },
}

/// Resolves the references of one deployment. A source that is not among `sources` is unknown.
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

/// What is wrong with one reference.
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

/// What is known of the referenced data of one deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// How much may be copied.
    pub limits: Limits,
    /// What it refers to, as far as it is known.
    pub sources: BTreeMap<DataRef, Source>,
    /// The companions, as far as there are any, of what it refers to, was promised, or has on the hub.
    pub companions: BTreeMap<DataRef, SharedCompanion>,
    /// What the deployment's copy on the hub has been promised: management alone writes that there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub promised: BTreeSet<DataRef>,
    /// What it refers to that has not been read, or copied, for longer than the grace, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub late: BTreeMap<DataRef, String>,
}

/// What is to be said of a deployment's data, on the project and on the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Companions that the cell is to have, all of them in place on the hub. `None`: it refers to none, or not yet known.
    pub expected: Option<Vec<DataRef>>,
    /// Optional references that were left out.
    pub skipped: Vec<DataRef>,
    /// Why some source cannot be copied.
    pub refusal: Option<SourceRefusal>,
    /// What keeps it from being complete; nothing when `expected` is all that it needs.
    pub trouble: Option<Verdict>,
    /// Whether it refers to anything.
    pub refers: bool,
    /// When to look again, where what is waited for is told once it lasts.
    pub look_again: Option<Duration>,
    /// That the copy of some source is not renewed, and why. What runs keeps the content that was copied before.
    pub late: Option<String>,
}

impl Data {
    /// The same where the copy, which is where it is to be, has yet to be written with all of this: that is on the hub then, and
    /// on no cell. It is our own doing, and no silence of Karmada's.
    #[must_use]
    pub(crate) fn until_listed_by(self, copy: &WorkloadDeployment) -> Self {
        let listed = annotated(copy, annotation::EXPECTED_REFERENCED_DATA);
        let is_listed = self.expected.iter().flatten().all(|data_ref| listed.contains(data_ref));
        let text = "the copy on the hub does not list it yet";
        let trouble = (!is_listed).then(|| Verdict::unknown(Reason::Resolving, text));
        Self { trouble: self.trouble.or(trouble), ..self }
    }
}

/// Decides what the annotations of one deployment are to say.
///
/// While something cannot be copied, or is not yet, what was promised before stands as far as it is still referred to:
/// its copies are in use, also while one is made anew or somebody has written over the list of those who use it. The project's
/// own annotation is believed only where the copy on the hub or the companion says the same, for whoever can write it could
/// ask for anything (fact 19). `patience`: how long a copy that is to be made anew may take to go before it is told who holds it.
pub fn data(deployment: &WorkloadDeployment, view: &View, patience: Duration, now: Timestamp) -> Data {
    let namespace = deployment.namespace().unwrap_or_default();
    let references = references(&deployment.spec.template.spec);
    let promised = annotated(deployment, annotation::EXPECTED_REFERENCED_DATA);
    let holds = |data_ref: &DataRef| view.companions.get(data_ref).is_some_and(|companion| companion.used);
    let is_named = |data_ref: &DataRef| view.companions.get(data_ref).is_some_and(|companion| companion.given);
    let is_given = |data_ref: &DataRef| view.promised.contains(data_ref) || is_named(data_ref);
    // Instances of the old template run on what it referred to until they are replaced.
    let refers = |data_ref: &DataRef| references.iter().any(|r| &r.data_ref == data_ref);
    let kept: Vec<DataRef> = promised
        .iter()
        .filter(|data_ref| is_given(data_ref) && (refers(data_ref) || is_rolling(deployment)))
        .filter(|data_ref| {
            let source = view.sources.get(data_ref).unwrap_or(&Source::Unknown);
            !lets_go(deployment, data_ref, source)
        })
        .cloned()
        .collect();
    let late = view.late.iter().find(|(data_ref, _)| refers(data_ref));
    let mut data = Data { refers: !references.is_empty(), late: late.map(not_renewed), ..Data::default() };
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
            let in_place = |data_ref: &&DataRef| holds(data_ref) && (kept.contains(data_ref) || is_fresh(data_ref));
            let missing: Vec<DataRef> = wanted.iter().filter(|data_ref| !in_place(data_ref)).cloned().collect();
            data.skipped = skipped;
            if missing.is_empty() {
                let all: BTreeSet<DataRef> = wanted.into_iter().chain(kept).collect();
                data.expected = Some(all.into_iter().collect());
            } else {
                let going = HeldCopies::of(&missing, &view.companions, patience, now);
                data.look_again = going.told_in;
                data.refusal = going.told.map(|message| SourceRefusal::new(Reason::SourceCopyHeld, message));
                data.trouble = Some(data.refusal.as_ref().map_or_else(
                    || {
                        let text = with_note(&on_its_way(&missing, view), data.late.as_deref());
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

/// What is said of a source that has not been read, or copied, for longer than the grace.
fn not_renewed((data_ref, why): (&DataRef, &String)) -> String {
    format!(
        "{data_ref} is not copied to the hub. Running instances keep their data. The platform, or the owner of the \
         project, must fix this: {why}"
    )
}

/// A message, and a note after it.
pub(crate) fn with_note(message: &str, note: Option<&str>) -> String {
    note.map_or_else(|| message.to_owned(), |note| format!("{message}; {note}"))
}

/// What is said of copies that are not in place yet.
fn on_its_way(missing: &[DataRef], view: &View) -> String {
    let message = format!("copying {} to the hub", list(missing));
    let companions = missing.iter().filter_map(|data_ref| Some((data_ref, view.companions.get(data_ref)?)));
    let mut full = companions.filter(|(_, companion)| !companion.used);
    match full.find_map(|(of, companion)| Some((of, companion.full.as_ref()?))) {
        Some((data_ref, why)) => {
            format!("{message}; the list of users of {data_ref} cannot grow: {why}")
        }
        None => message,
    }
}

/// Whether a deployment with these references does without a source: it may be missing, and it is.
pub fn does_without(references: &[Reference], data_ref: &DataRef, source: &Source) -> bool {
    *source == Source::Absent && references.iter().any(|of| of.data_ref == *data_ref && of.optional)
}

/// Whether a deployment lets go of what was copied of a source that it does without, or whoever deletes the source would not
/// take back what it holds. Not while Instances of an older template run, which may need it.
pub fn lets_go(deployment: &WorkloadDeployment, data_ref: &DataRef, source: &Source) -> bool {
    let references = || references(&deployment.spec.template.spec);
    !is_rolling(deployment) && does_without(&references(), data_ref, source)
}

/// Whether a copy of one source is to be made or renewed for a deployment of this namespace that has these references: all that
/// it refers to can be copied; or this one can, and its copy on the hub has been promised it, which then is kept as the source
/// is, whatever has become of the others.
pub fn wants_companion(
    references: &[Reference],
    data_ref: &DataRef,
    namespace: &str,
    limits: Limits,
    sources: &BTreeMap<DataRef, Source>,
    promised: bool,
) -> bool {
    let source = sources.get(data_ref).unwrap_or(&Source::Unknown);
    let size = |source: &Source| if let Source::Present { size } = source { *size } else { 0 };
    let is_copied = |of: &Reference| {
        let can_be = problem(of, namespace, limits, source).is_none() && matches!(source, Source::Present { .. });
        of.data_ref == *data_ref && can_be
    };
    let fits =
        || references.iter().filter_map(|of| sources.get(&of.data_ref)).map(size).sum::<u64>() <= limits.aggregate;
    !does_without(references, data_ref, source)
        && (wants_companions(references, namespace, limits, sources)
            || promised && references.iter().any(is_copied) && fits())
}

/// Whether a deployment of this namespace that has these references wants a companion of each to be made now.
pub fn wants_companions(
    references: &[Reference],
    namespace: &str,
    limits: Limits,
    sources: &BTreeMap<DataRef, Source>,
) -> bool {
    matches!(resolve(references, namespace, limits, sources), Resolution::Complete { .. })
}

/// Entry of a deployment in a companion's `referenced-by`.
pub fn user_entry(namespace: &str, deployment: &str) -> String {
    format!("{namespace}/{deployment}")
}

/// Whether Instances of an older template may still run; so they may while the cell has not said otherwise.
pub fn is_rolling(deployment: &WorkloadDeployment) -> bool {
    deployment.status.as_ref().is_none_or(|status| {
        status.observed_generation < deployment.metadata.generation || status.updated_replicas < status.replicas
    })
}

/// Tokens for people.
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
