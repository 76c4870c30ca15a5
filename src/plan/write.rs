//! The writes that a plan may ask for, typed by the control plane they go to.

mod body;
mod proof;

use std::{borrow::Cow, fmt, marker::PhantomData};

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    Kind, Known, Object, ObjectVersion, Shared, Standing, diff,
    takeover::{self, Part},
};
use crate::api::meta;

pub use body::Body;
pub use proof::{Confirm, Proof};

/// A kind of control plane. A write to one does not type-check on another.
pub trait Plane: Send + Sync + 'static {
    /// Its name in logs and errors.
    const NAME: &'static str;
}

/// A project's control plane.
#[derive(Debug)]
pub enum Project {}
/// The Karmada hub.
#[derive(Debug)]
pub enum Hub {}
/// A POP cell.
#[derive(Debug)]
pub enum Cell {}
/// Where it is known which projects exist. Nothing is written there.
#[derive(Debug)]
pub enum Discovery {}

impl Plane for Project {
    const NAME: &'static str = "project";
}
impl Plane for Hub {
    const NAME: &'static str = "hub";
}
impl Plane for Cell {
    const NAME: &'static str = "cell";
}
impl Plane for Discovery {
    const NAME: &'static str = "discovery";
}

/// One API call.
#[derive(Clone, PartialEq)]
pub enum Op {
    /// POST: an object that nobody may have made before us.
    Create {
        /// The whole object.
        body: Value,
        /// Field manager.
        manager: &'static str,
    },
    /// Server-side apply of our fields alone; creates the object when it is absent and no uid is given.
    Apply {
        /// Our fields.
        body: Body,
        /// Field manager.
        manager: &'static str,
        /// Whether the fields are those of the status subresource.
        status: bool,
        /// Whether fields that others own are taken from them; see [`Write::yielding`].
        force: bool,
    },
    /// JSON merge patch, guarded by the resourceVersion inside it. For what apply cannot say: taking an entry out of a
    /// list that another manager put in.
    Merge {
        /// The patch; carries `metadata.uid` and `metadata.resourceVersion`.
        body: Value,
        /// Field manager.
        manager: &'static str,
    },
    /// Makes what others own of these parts ours, in exactly the version that was judged: a live read of who owns what, and
    /// a JSON merge patch of `metadata.managedFields`.
    TakeOver {
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
        /// Field manager that is to own them.
        manager: &'static str,
        /// The parts.
        parts: &'static [Part],
    },
    /// DELETE of exactly the object that was judged. Made by a [`Proof`] alone.
    Delete {
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
    },
    /// A live read that must find nothing, before something irrevocable is built on the absence.
    ConfirmAbsent,
    /// A live read that must find no object of this name, or another one.
    ConfirmGone {
        /// The uid of the one that is gone.
        uid: String,
    },
    /// A live read that must find exactly this object, before something is built on its presence.
    ConfirmPresent {
        /// Its uid.
        uid: String,
    },
    /// A live list that must find an object of this name with this label, which is not terminating: for kinds that may be listed
    /// and not be read.
    ConfirmListed {
        /// The label, whose value is `true`.
        label: &'static str,
    },
    /// A live read that must find exactly this object, with the spec that was judged.
    ConfirmUnchanged {
        /// Its uid.
        uid: String,
        /// Its generation.
        generation: i64,
    },
}

impl Op {
    /// True if it only looks: what follows in a plan rests on what it finds.
    pub fn is_look(&self) -> bool {
        matches!(
            self,
            Self::ConfirmAbsent
                | Self::ConfirmGone { .. }
                | Self::ConfirmPresent { .. }
                | Self::ConfirmListed { .. }
                | Self::ConfirmUnchanged { .. }
        )
    }

    /// What it asks the object to carry.
    pub fn asked(&self) -> Option<Cow<'_, Value>> {
        match self {
            Self::Create { body, .. } | Self::Merge { body, .. } => Some(Cow::Borrowed(body)),
            Self::Apply { body, .. } => Some(body.to_value()),
            _ => None,
        }
    }
}

/// Shows what is asked for, but no content of ConfigMaps and Secrets.
impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |body: &Value| {
            let mut body = body.clone();
            for field in ["data", "binaryData", "stringData"] {
                if let Some(values) = body.get_mut(field).and_then(Value::as_object_mut) {
                    values.values_mut().for_each(|value| *value = json!("(not shown)"));
                }
            }
            body
        };
        match self {
            Self::Create { body, manager } => {
                f.debug_struct("Create").field("body", &shown(body)).field("manager", manager).finish()
            }
            Self::Apply { body, manager, status, force } => f
                .debug_struct("Apply")
                .field("body", &shown(&body.to_value()))
                .field("manager", manager)
                .field("status", status)
                .field("force", force)
                .finish(),
            Self::Merge { body, manager } => {
                f.debug_struct("Merge").field("body", &shown(body)).field("manager", manager).finish()
            }
            Self::TakeOver { uid, resource_version, manager, parts } => f
                .debug_struct("TakeOver")
                .field("uid", uid)
                .field("resource_version", resource_version)
                .field("manager", manager)
                .field("parts", parts)
                .finish(),
            Self::Delete { uid, resource_version } => {
                f.debug_struct("Delete").field("uid", uid).field("resource_version", resource_version).finish()
            }
            Self::ConfirmAbsent => f.write_str("ConfirmAbsent"),
            Self::ConfirmGone { uid } => f.debug_struct("ConfirmGone").field("uid", uid).finish(),
            Self::ConfirmPresent { uid } => f.debug_struct("ConfirmPresent").field("uid", uid).finish(),
            Self::ConfirmListed { label } => f.debug_struct("ConfirmListed").field("label", label).finish(),
            Self::ConfirmUnchanged { uid, generation } => {
                f.debug_struct("ConfirmUnchanged").field("uid", uid).field("generation", generation).finish()
            }
        }
    }
}

/// One API call on a control plane of kind `P`.
pub struct Write<P> {
    /// The object.
    pub object: Object,
    /// What to do with it.
    pub op: Op,
    /// The Event that tells of it, sent only once it has done something: its address, and what it says.
    told: Option<Box<(Object, Value)>>,
    /// What stood of it in the object that it was judged by; nothing where none stood, or only its version is known.
    standing: Option<Box<Standing>>,
    plane: PhantomData<fn() -> P>,
}

impl<P> Clone for Write<P> {
    fn clone(&self) -> Self {
        Self {
            told: self.told.clone(),
            standing: self.standing.clone(),
            ..Self::new(self.object.clone(), self.op.clone())
        }
    }
}

impl<P> fmt::Debug for Write<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Write");
        shown.field("object", &self.object).field("op", &self.op);
        self.told.iter().fold(&mut shown, |shown, told| shown.field("told", told)).finish_non_exhaustive()
    }
}

impl<P> Write<P> {
    fn new(object: Object, op: Op) -> Self {
        Self { object, op, told: None, standing: None, plane: PhantomData }
    }

    /// The same write, of which that much stands in `live`.
    fn on<K: Known>(mut self, live: Option<&K>) -> Self {
        let object = live.and_then(|live| serde_json::to_value(live).ok());
        let kind = self.object.kind;
        self.standing =
            object.and_then(|object| self.op.asked().map(|asked| Standing::of(kind, &asked, &object).into()));
        self
    }

    /// What stood of it in the object that it was judged by; nothing where none stood, or only its version is known.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_deref()
    }

    /// Whether it makes an object of this kind.
    pub fn makes<K: Known>(&self) -> bool {
        matches!(self.op, Op::Create { .. }) && self.object.kind == K::KIND
    }

    /// True for a status or an Event: it reports what is, and no other write rests on it.
    pub fn reports(&self) -> bool {
        self.object.kind == Kind::Event || matches!(self.op, Op::Apply { status: true, .. })
    }

    /// Creates `object` as `body` says, and fails when an object of that name exists.
    pub fn create(manager: &'static str, object: Object, body: Value) -> Self {
        let body = addressed(&object, None, body);
        Self::new(object, Op::Create { body, manager })
    }

    /// Has an object carry `fields`, by a server-side apply that creates it when it is absent. `None` when `live` carries
    /// them already, and none that we applied before and no longer want.
    pub fn ensure<K: Known>(
        manager: &'static str,
        namespace: &str,
        name: &str,
        fields: Value,
        live: Option<&K>,
    ) -> Option<Self> {
        if live.is_some_and(|live| !diff::differs(&fields, live, manager)) {
            return None;
        }
        // The uid of what was judged: an object that was replaced in between is not ours to change.
        let uid = live.and_then(|live| live.uid());
        let object = Object::named::<K>(namespace, name);
        let body = addressed(&object, uid, fields);
        Some(Self::new(object, Op::Apply { body: body.into(), manager, status: false, force: true }).on(live))
    }

    /// The same apply, but it takes nothing from anybody: where somebody else has meanwhile made an object of that name
    /// that says otherwise, the object is theirs and the write is a conflict. For what may be made only where nothing is,
    /// on a plane of which every object of the kind is watched.
    #[must_use]
    pub fn yielding(mut self) -> Self {
        if let Op::Apply { force, .. } = &mut self.op {
            *force = false;
        }
        self
    }

    /// The same apply, which only creates: an object of that name is a conflict, whoever made it. Apply itself merges into
    /// what it finds, also into what a later spec of ours has made of it.
    ///
    /// The version in it is one that no object has. An API server compares it with that of an object that exists, and drops
    /// it where there is none.
    #[must_use]
    pub fn creating(self) -> Self {
        self.at_version("1")
    }

    /// The same apply, of exactly this version of the object: what others have made of it since is a conflict.
    #[must_use]
    pub fn at_version(mut self, resource_version: &str) -> Self {
        if let Op::Apply { body, .. } = &mut self.op {
            body["metadata"]["resourceVersion"] = json!(resource_version);
        }
        self
    }

    /// The same apply. If its template is this one, it holds no copy of it.
    #[must_use]
    pub fn sharing(mut self, template: &Shared<Value>) -> Self {
        if let Op::Apply { body, .. } = &mut self.op {
            body.share(template);
        }
        self
    }

    /// Has `live` carry `fields`, by a server-side apply. `None` when it does, as with [`Self::ensure`].
    pub fn ensure_fields<K: Known>(manager: &'static str, fields: Value, live: &K) -> Option<Self> {
        Self::ensure(manager, &live.namespace().unwrap_or_default(), &live.name_any(), fields, Some(live))
    }

    /// Has `live` carry `status` in its status subresource, by a server-side apply. `None` when it does, as with
    /// [`Self::ensure`].
    pub fn status<K: Known>(manager: &'static str, status: &Value, live: &K) -> Option<Self> {
        let fields = json!({ "status": status });
        if !diff::status_differs(&fields, live, manager) {
            return None;
        }
        let object = Object::of(live);
        let body = addressed(&object, live.uid(), fields);
        Some(Self::new(object, Op::Apply { body: body.into(), manager, status: true, force: true }).on(Some(live)))
    }

    /// Takes our finalizer off `live`, leaving every other. `None` when it is not there.
    pub fn release<K: Known>(manager: &'static str, finalizer: &str, live: &K) -> Option<Self> {
        let left: Vec<&String> = live.finalizers().iter().filter(|f| *f != finalizer).collect();
        if left.len() == live.finalizers().len() {
            return None;
        }
        Some(Self::amend(manager, json!({ "metadata": { "finalizers": left } }), live))
    }

    /// Merges `patch` into exactly the version of `live` that was judged.
    pub fn amend<K: Known>(manager: &'static str, patch: Value, live: &K) -> Self {
        Self::amend_version(manager, Object::of(live), patch, &ObjectVersion::of(live.meta())).on(Some(live))
    }

    /// Merges `patch` into exactly this version of an object of which no more is kept.
    pub fn amend_version(manager: &'static str, object: Object, mut patch: Value, version: &ObjectVersion) -> Self {
        patch["metadata"]["uid"] = json!(version.uid);
        patch["metadata"]["resourceVersion"] = json!(version.resource_version);
        Self::new(object, Op::Merge { body: patch, manager })
    }

    /// Makes what others own of these parts of `live` ours. `None` when they own nothing of them.
    pub fn take_over<K: Known>(manager: &'static str, parts: &'static [Part], live: &K) -> Option<Self> {
        if parts.iter().all(|part| takeover::holders(live, *part).is_empty()) {
            return None;
        }
        let ObjectVersion { uid, resource_version } = ObjectVersion::of(live.meta());
        Some(Self::new(Object::of(live), Op::TakeOver { uid, resource_version, manager, parts }))
    }

    /// The same write, which has `event` sent once it has done something.
    #[must_use]
    pub fn telling(mut self, event: Self) -> Self {
        if let Op::Create { body, .. } = event.op {
            self.told = Some(Box::new((event.object, body)));
        }
        self
    }

    /// The Event that tells of this write once it has done something.
    pub fn told(&self) -> Option<Self> {
        let (object, body) = (**self.told.as_ref()?).clone();
        Some(Self::new(object, Op::Create { body, manager: meta::MANAGED_BY }))
    }

    /// Demands that a live read finds the object with this uid.
    pub fn confirm_present(object: Object, uid: &str) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmPresent { uid: uid.into() })
    }

    /// Demands that a live list of what has this label as `true` finds the object, and that it is not terminating.
    pub fn confirm_listed(object: Object, label: &'static str) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmListed { label })
    }

    /// Demands that a live read finds `live` with the spec that was judged. A deletion that has begun since then is found as
    /// well: it makes a new generation.
    pub fn confirm_unchanged<K: Known>(live: &K) -> Confirm<P> {
        let (uid, generation) = (live.uid().unwrap_or_default(), live.meta().generation.unwrap_or_default());
        Confirm::new(Object::of(live), Op::ConfirmUnchanged { uid, generation })
    }

    /// Demands that a live read finds no such object, or another than the one with this uid.
    pub fn confirm_gone(object: Object, uid: &str) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmGone { uid: uid.into() })
    }

    /// Demands that a live read finds no such object.
    pub fn confirm_absent(object: Object) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmAbsent)
    }
}

/// `fields` with the type and address of the object put in.
fn addressed(object: &Object, uid: Option<String>, mut fields: Value) -> Value {
    let (api_version, kind, _) = object.kind.gvk();
    fields["apiVersion"] = json!(api_version);
    fields["kind"] = json!(kind);
    fields["metadata"]["name"] = json!(object.name);
    if !object.namespace.is_empty() {
        fields["metadata"]["namespace"] = json!(object.namespace);
    }
    if let Some(uid) = uid {
        fields["metadata"]["uid"] = json!(uid);
    }
    fields
}

/// A write of a controller that works on two planes: the one that it serves, and another.
pub enum Step<N, F> {
    /// Where the controller's own objects live.
    Local(Write<N>),
    /// Where what it keeps in step with them lives.
    Remote(Write<F>),
}

impl<N, F> Clone for Step<N, F> {
    fn clone(&self) -> Self {
        match self {
            Self::Local(write) => Self::Local(write.clone()),
            Self::Remote(write) => Self::Remote(write.clone()),
        }
    }
}

impl<N, F> fmt::Debug for Step<N, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(write) => f.debug_tuple("Local").field(write).finish(),
            Self::Remote(write) => f.debug_tuple("Remote").field(write).finish(),
        }
    }
}
