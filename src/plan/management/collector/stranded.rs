//! Hub namespaces whose project, or whose namespace in it, does not exist any more: what they hold goes, in every cell.
//!
//! No other deletion takes so much. So it rests on nothing that a cache says: a live read must find no such project, or no
//! such namespace with the uid in the hub namespace's name, and of the hub namespace itself it is the present state that is
//! judged. What another management plane keeps is never judged, nor is what nobody says that he keeps.
//!
//! Uids do not come back: what belonged to a namespace that is gone goes at once. A project may be missing for other reasons
//! than its end, and a control plane in the place of another says nothing of what was in that one: there, a grace comes
//! first. Since when, the hub namespace itself says, so that no restart begins it anew.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sweep;
use crate::plan::management::observed::facts::BindingFacts;
use crate::{
    api::{
        karmada::{PropagationPolicy, ResourceBinding},
        meta::{annotation, label, manager},
        names::HubNamespace,
        reason::Reason,
    },
    plan::{
        Discovery, Hub, Keeper, Kind, NamespaceFacts, Object, ObjectVersion, Plan, Project, Proof, Write,
        event::{self, Note, Severity},
        ownership,
    },
};

/// What discovery knows of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Existence {
    /// There is such a project, or one that cannot be read.
    Exists,
    /// Nobody knows: discovery does not follow the projects at present, or there is none to ask.
    Unknown,
    /// There is no such project, which would be one of this kind.
    Absent(Kind),
}

/// What is known of whoever a hub namespace mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mirrored {
    /// Nobody knows at present.
    Unknown,
    /// The project has the namespace, with the uid in the hub namespace's name.
    Lives,
    /// There is no such project, which would be one of this kind.
    ProjectGone(Kind),
    /// The project has no namespace of that name with that uid.
    NamespaceGone,
}

/// What a hub namespace holds of one that is gone, as far as it is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Copies of deployments.
    pub copies: Vec<(Object, ObjectVersion)>,
    /// How many such copies there are, with those on their way out.
    pub copies_left: usize,
    /// Companions, also those of which nobody can say who uses them: whoever did was in the namespace that is gone.
    pub companions: Vec<(Object, ObjectVersion)>,
    /// What cells wrote back.
    pub instances: Vec<(Object, ObjectVersion)>,
    /// City policies of ours that stand: they go when the last copy of their city has, by their own plan.
    pub policies: usize,
    /// Bindings of deployments of which no copy is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<LostBinding>,
}

/// A binding of a deployment that has outlived its copy: by it Instances run on (fact 14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBinding {
    /// The binding.
    pub binding: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// The copy that it was made for.
    pub copy: Object,
}

impl LostBinding {
    /// From a binding of ours, which is not on its way out.
    pub fn of(namespace: &str, name: &str, facts: &BindingFacts) -> Option<Self> {
        let copy = sweep::template_of(namespace, name).filter(|of| of.kind == Kind::WorkloadDeployment)?;
        let is_ours = ownership::is_binding_of_deployment(facts.policy.as_deref(), facts.scheduled_for.is_some());
        (is_ours && !facts.terminating).then(|| Self {
            binding: Object::named::<ResourceBinding>(namespace, name),
            version: ObjectVersion::new(&facts.uid, &facts.version),
            copy,
        })
    }

    /// It goes, once a live read has found no copy.
    fn removal(&self, protected: &[(Object, ObjectVersion)]) -> Proof<Action> {
        let proof = Proof::read(Write::confirm_absent(self.copy.clone()), Action::Hub);
        removal(proof, &self.binding, &self.version, protected)
    }
}

impl Content {
    /// Whether nothing is left that anything can be done about: what is on its way out goes by itself or not at all.
    pub fn is_empty(&self) -> bool {
        self.removals(Proof::of_target(), &[]).is_empty() && self.policies == 0
    }

    /// The writes that delete it, for that cause. Cells take back what they wrote once the copies are gone; of what is there
    /// without copies, no cell knows any more. Bindings go with their copies, and those that have none come last: a copy that a live read finds
    /// after all ends the rest.
    fn removals(&self, cause: Proof<Action>, protected: &[(Object, ObjectVersion)]) -> Proof<Action> {
        let last = self.copies_left == 0;
        let instances = self.instances.iter().filter(move |_| last);
        let held = self.copies.iter().chain(&self.companions).chain(instances);
        let bindings = self.bindings.iter().filter(move |_| last).flat_map(|lost| lost.removal(protected));
        held.fold(cause, |cause, (object, version)| removal(cause, object, version, protected)).then(bindings)
    }
}

/// True if Karmada refuses to delete the object, and any namespace that holds it (fact 53). Federation puts that label on
/// namespaces alone; on anything else it is an administrator's, or of a cell that wrote before the hub's policy forbade it.
pub fn is_protected<K: Resource>(object: &K) -> bool {
    object.labels().contains_key(label::DELETION_PROTECTED)
}

/// Whether a policy in the namespace is one that its city's own plan is to take away still.
pub fn is_left(policy: &PropagationPolicy) -> bool {
    policy.metadata.deletion_timestamp.is_none() && ownership::is_city_policy(policy)
}

/// Everything that is known of one hub namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Its name.
    pub namespace: String,
    /// What the watch knows of it.
    pub facts: NamespaceFacts,
    /// What is known of whoever it mirrors.
    pub mirrored: Mirrored,
    /// Who would keep it if it was made now.
    pub keeper: Keeper,
    /// What it holds; only looked at where the namespace that it mirrors is gone.
    pub content: Content,
    /// Copies and Instances in it that Karmada's protection keeps from being deleted, and with them the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<(Object, ObjectVersion)>,
    /// How long it is kept where a grace comes first; for ever when there is none.
    pub grace: Option<Duration>,
    /// Whether sweeps delete nothing at all.
    pub paused: bool,
    /// The namespace as a live read has just found it; only read once something is to be done.
    pub present: Option<Present>,
}

/// A hub namespace as a live read has just found it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Present {
    /// What it says.
    pub facts: NamespaceFacts,
    /// Which version of it says so.
    pub version: ObjectVersion,
}

/// A write, or a live read before one, on one of the planes that decide.
#[derive(Clone, Debug)]
pub enum Action {
    /// On the hub.
    Hub(Write<Hub>),
    /// Where projects are discovered.
    Discovery(Write<Discovery>),
    /// In the project.
    Project(Write<Project>),
}

/// What the controller is to do beside the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It is stranded, and counted.
    Stranded,
    /// The namespace is to be read, and to be judged by its present state. What for says how many of it a sweep may do.
    Read(Purpose),
    /// It stays: it is not the one that was judged, or says something else by now.
    Stays(&'static str),
    /// It goes with these writes.
    Removed,
    /// What it holds goes with these writes, but for its policies, which are to be looked at.
    Emptied,
}

/// What a hub namespace is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// To write something on it: since when it is stranded, or that it is not, or who keeps it.
    Note,
    /// To take what belonged to a namespace that is gone for certain.
    Empty,
    /// To take what is missing in another way, after its grace.
    Remove,
}

/// What is decided about one hub namespace.
pub type Decided = Plan<Action, Signal>;

/// How many hub namespaces of so many that are known one sweep may take after their grace: a few, and no more than a tenth.
/// Where all seem to be gone it is rather the eyes that are.
pub fn removals(known: usize) -> usize {
    const FEW: usize = 5;
    (known / 10).clamp(1, FEW)
}

/// Decides about one hub namespace: by what the caches know, and once something is due by its present state.
pub fn plan(observed: &Observed, now: Timestamp) -> Decided {
    let facts = &observed.facts;
    let (Some((project, own)), Some(uid)) = (facts.upstream(), HubNamespace::parse(&observed.namespace)) else {
        return Plan::nothing();
    };
    if facts.terminating || observed.keeper.management.is_none() {
        return Plan::nothing();
    }
    let of_namespace = Object::named::<Namespace>("", own);
    let ours = facts.keeper.management == observed.keeper.management;
    match observed.mirrored {
        Mirrored::Unknown => Plan::nothing(),
        Mirrored::Lives => lives(observed, Proof::read(Write::confirm_present(of_namespace, uid), Action::Project)),
        _ if !ours => Plan::nothing(),
        Mirrored::ProjectGone(kind) => {
            let object = Object { kind, namespace: String::new(), name: project.to_string() };
            let what = format!("project {project}, whose objects this namespace holds, does not exist");
            let proof = Proof::read(Write::confirm_absent(object), Action::Discovery);
            after_grace(observed, &Case { what, proof, whole: true }, now)
        }
        Mirrored::NamespaceGone if observed.content.is_empty() => Plan::nothing(),
        Mirrored::NamespaceGone => {
            let proof = Proof::read(Write::confirm_gone(of_namespace, uid), Action::Project);
            if facts.keeper.control_plane.is_some() && facts.keeper.control_plane == observed.keeper.control_plane {
                return with_present(observed, Purpose::Empty, |_| empty(observed, proof)).with([Signal::Stranded]);
            }
            let what =
                format!("project {project} has another control plane by now, without namespace {own} of uid {uid}");
            after_grace(observed, &Case { what, proof, whole: false }, now)
        }
    }
}

/// Why a namespace is stranded, and what is to be done about it.
struct Case {
    what: String,
    /// The live read that must stand behind each write.
    proof: Proof<Action>,
    /// Whether the namespace goes as a whole, for nobody is left who could look after it.
    whole: bool,
}

/// One whose original lives says who keeps it, and that nothing is stranded there.
fn lives(observed: &Observed, proof: Proof<Action>) -> Decided {
    let facts = &observed.facts;
    let keeper = observed.keeper.of(Some(&facts.keeper));
    let ours = keeper.management == observed.keeper.management;
    let forgets = ours && facts.stranded_since.is_some();
    let adopts = facts.keeper.management.is_none();
    if !forgets && !adopts {
        return Plan::nothing();
    }
    with_present(observed, Purpose::Note, |present| {
        let mut annotations = json!(keeper.to_annotations());
        annotations[annotation::STRANDED_SINCE] = Value::Null;
        let metadata = json!({ "annotations": annotations });
        proof.then([Action::Hub(amend(observed, present, &metadata))]).into_iter().collect()
    })
}

/// First it is said that it is stranded; then, once its grace is over, it goes.
fn after_grace(observed: &Observed, case: &Case, now: Timestamp) -> Decided {
    let stranded = |plan: Decided| plan.with([Signal::Stranded]);
    let Some(since) = observed.facts.stranded_since else {
        return stranded(with_present(observed, Purpose::Note, |present| {
            let since = json!({ "annotations": { annotation::STRANDED_SINCE: now.to_string() } });
            let mark = Action::Hub(amend(observed, present, &since));
            let report = Action::Hub(report(observed, &case.what, now));
            case.proof.clone().then([mark, report]).into_iter().collect()
        }));
    };
    let grace = observed.grace.and_then(|grace| SignedDuration::try_from(grace).ok());
    if grace.is_none_or(|grace| now.duration_since(since) < grace) {
        return stranded(Plan::nothing());
    }
    stranded(with_present(observed, Purpose::Remove, |present| {
        if present.facts.stranded_since != Some(since) {
            return Plan::nothing().with([Signal::Stays("somebody has changed since when it is stranded")]);
        }
        if case.whole { remove(observed, present, case.proof.clone()) } else { empty(observed, case.proof.clone()) }
    }))
}

/// What the present state of the namespace allows; it is read first. Nothing is done where clean-up is paused.
fn with_present(observed: &Observed, purpose: Purpose, act: impl FnOnce(&Present) -> Decided) -> Decided {
    if purpose != Purpose::Note && (observed.paused || observed.facts.paused) {
        return Plan::nothing();
    }
    let Some(present) = &observed.present else { return Plan::nothing().with([Signal::Read(purpose)]) };
    let (before, facts) = (&observed.facts, &present.facts);
    let stays = |why| Plan::nothing().with([Signal::Stays(why)]);
    if facts.uid != before.uid || facts.upstream().is_none() {
        return stays("it is another one by now");
    }
    if facts.upstream() != before.upstream() {
        return stays("it mirrors another project by now");
    }
    if facts.keeper != before.keeper {
        return stays("somebody else keeps it by now");
    }
    if facts.terminating {
        return stays("it is on its way out");
    }
    if facts.paused && purpose != Purpose::Note {
        return stays("clean-up is paused there");
    }
    act(present)
}

fn amend(observed: &Observed, present: &Present, metadata: &Value) -> Write<Hub> {
    let object = Object::named::<Namespace>("", &observed.namespace);
    Write::amend_version(manager::FEDERATOR, object, json!({ "metadata": metadata }), &present.version)
}

fn report(observed: &Observed, what: &str, now: Timestamp) -> Write<Hub> {
    let then = match observed.grace {
        Some(grace) => format!("what it holds is removed in {} s", grace.as_secs()),
        None => "it is left as it is".to_owned(),
    };
    let text = format!("{what}: {then}");
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(observed.namespace.clone());
    namespace.metadata.uid = Some(observed.facts.uid.clone());
    let note = Note { severity: Severity::Warning, reason: Reason::Stranded, action: "Sweeping", text: &text };
    event::on(&namespace, "sweep", &note, now)
}

/// Removes the namespace with all that it holds.
fn remove(observed: &Observed, present: &Present, proof: Proof<Action>) -> Decided {
    let is_protected = present.facts.labels.contains_key(label::DELETION_PROTECTED);
    if is_protected || !observed.protected.is_empty() {
        // The protection goes first (fact 53), that of the namespace last; its removal is a new version, which is judged anew.
        let own = is_protected.then(|| amend(observed, present, &unprotected()["metadata"]));
        let lifted = observed.protected.iter().map(lift).chain(own).map(Action::Hub);
        let plan: Decided = proof.then(lifted).into_iter().collect();
        return plan.with([Signal::Read(Purpose::Remove)]);
    }
    let object = Object::named::<Namespace>("", &observed.namespace);
    let plan: Decided = proof.delete_version(object, present.version.clone(), Action::Hub).into_iter().collect();
    plan.with([Signal::Removed])
}

fn unprotected() -> Value {
    json!({ "metadata": { "labels": { label::DELETION_PROTECTED: null } } })
}

fn lift((object, version): &(Object, ObjectVersion)) -> Write<Hub> {
    Write::amend_version(manager::FEDERATOR, object.clone(), unprotected(), version)
}

/// Deletes one object; one that is protected loses its protection first, and goes with the next sweep.
fn removal(
    proof: Proof<Action>,
    object: &Object,
    version: &ObjectVersion,
    protected: &[(Object, ObjectVersion)],
) -> Proof<Action> {
    match protected.iter().find(|(of, _)| of == object) {
        Some(protected) => proof.then([Action::Hub(lift(protected))]),
        None => proof.delete_version(object.clone(), version.clone(), Action::Hub),
    }
}

/// Removes what the namespace holds. A policy that went before its last copy would leave that on the cell (fact 13).
fn empty(observed: &Observed, proof: Proof<Action>) -> Decided {
    let plan: Decided = observed.content.removals(proof, &observed.protected).into_iter().collect();
    plan.with([Signal::Emptied])
}

#[cfg(test)]
#[path = "stranded_tests.rs"]
mod tests;
