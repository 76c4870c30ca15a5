//! Writes of a plan, typed by their control plane.

mod body;
mod proof;

use std::{borrow::Cow, fmt, marker::PhantomData};

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    Kind, Known, Object, ObjectVersion, Shared, Standing, diff,
    members::members,
    takeover::{self, Part},
};
use crate::api::meta;

pub use body::Body;
pub use proof::{Confirm, Proof};

/// A kind of control plane. A write for one kind does not type-check on another.
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
/// The control plane that lists the projects. Nothing is written there.
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
    /// POST of an object that must not exist yet.
    Create {
        /// The whole object.
        body: Value,
        /// Field manager.
        manager: &'static str,
    },
    /// Server-side apply of our fields only. Creates the object if it is absent and no uid is given.
    Apply {
        /// Our fields.
        body: Body,
        /// Field manager.
        manager: &'static str,
        /// True if the fields belong to the status subresource.
        status: bool,
        /// True if the apply takes fields that other managers own. See [`Write::yielding`].
        force: bool,
    },
    /// JSON merge patch, guarded by the resourceVersion inside it. For changes that apply cannot express, like the removal of a
    /// list entry of another manager.
    Merge {
        /// The patch. It contains `metadata.uid` and `metadata.resourceVersion`.
        body: Value,
        /// Field manager.
        manager: &'static str,
    },
    /// Takes over the fields of these parts that other managers own, in exactly the judged version. It reads the owners live,
    /// then sends a JSON merge patch of `metadata.managedFields`.
    TakeOver {
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
        /// The field manager that becomes the owner.
        manager: &'static str,
        /// The parts.
        parts: &'static [Part],
    },
    /// DELETE of exactly the judged object. Only a [`Proof`] creates it.
    Delete {
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
    },
    /// A live read that must find no object, before an irrevocable step that relies on the absence.
    ConfirmAbsent,
    /// A live read that must find no object of this name, or one with another uid.
    ConfirmGone {
        /// The uid of the object that must be gone.
        uid: String,
    },
    /// A live read that must find exactly this object, before a step that relies on its presence.
    ConfirmPresent {
        /// Its uid.
        uid: String,
    },
    /// A live list that must contain an object of this name with this label that is not terminating. For kinds with permission to
    /// list, and none to get.
    ConfirmListed {
        /// The label. Its value is `true`.
        label: &'static str,
    },
    /// A live read that must find exactly this object, with the judged spec.
    ConfirmUnchanged {
        /// Its uid.
        uid: String,
        /// Its generation.
        generation: i64,
    },
}

impl Op {
    /// True if the call only reads. The following steps of a plan depend on its result.
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

    /// Returns the fields that the call requests.
    pub fn asked(&self) -> Option<Cow<'_, Value>> {
        match self {
            Self::Create { body, .. } | Self::Merge { body, .. } => Some(Cow::Borrowed(body)),
            Self::Apply { body, .. } => Some(body.to_value()),
            _ => None,
        }
    }
}

/// Shows the requested fields, without the content of ConfigMaps and Secrets.
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
    /// The call.
    pub op: Op,
    /// The Event that reports the write, as its object and its body. It is sent only after the write has changed something.
    told: Option<Box<(Object, Value)>>,
    /// The part of the write that the judged object already had. `None` if there was no object, or only its version is known.
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

    /// Records which part of the write `live` already has.
    fn on<K: Known>(mut self, live: Option<&K>) -> Self {
        let kind = self.object.kind;
        let standing = live.zip(self.op.asked()).and_then(|(live, asked)| {
            let object = members(live, asked.as_object()?)?;
            Some(Standing::of(kind, &asked, &object).into())
        });
        self.standing = standing;
        self
    }

    /// Returns the part of the write that the judged object already had. `None` if there was no object, or only its version is
    /// known.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_deref()
    }

    /// True if it creates an object of this kind.
    pub fn makes<K: Known>(&self) -> bool {
        matches!(self.op, Op::Create { .. }) && self.object.kind == K::KIND
    }

    /// True for a status or an Event. It reports a state, and no other write depends on it.
    pub fn reports(&self) -> bool {
        self.object.kind == Kind::Event || matches!(self.op, Op::Apply { status: true, .. })
    }

    /// Creates `object` with `body`. Fails if an object of that name exists.
    pub fn create(manager: &'static str, object: Object, body: Value) -> Self {
        let body = addressed(&object, None, body);
        Self::new(object, Op::Create { body, manager })
    }

    /// Returns a server-side apply of `fields`, which creates an absent object. `None` if `live` has these fields, and has no
    /// field that we applied before and no longer want.
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
        // The uid of the judged object. An object that replaced it must not be changed.
        let uid = live.and_then(|live| live.uid());
        let object = Object::named::<K>(namespace, name);
        let body = addressed(&object, uid, fields);
        Some(Self::new(object, Op::Apply { body: body.into(), manager, status: false, force: true }).on(live))
    }

    /// Makes the apply take no fields from other managers. If another client has created an object of that name with other
    /// values, the write is a conflict. For objects that may only be created where none exists, on a plane where all objects of
    /// the kind are watched.
    #[must_use]
    pub fn yielding(mut self) -> Self {
        if let Op::Apply { force, .. } = &mut self.op {
            *force = false;
        }
        self
    }

    /// Makes the apply create only. An existing object of that name is a conflict, also one of ours. A plain apply would merge
    /// into that object, which may be our own with a later spec.
    ///
    /// No object has the version in it. An API server compares it with the version of an existing object, and ignores it if there
    /// is none.
    #[must_use]
    pub fn creating(self) -> Self {
        self.at_version("1")
    }

    /// Binds the apply to exactly this version of the object. A later change by others is a conflict.
    #[must_use]
    pub fn at_version(mut self, resource_version: &str) -> Self {
        if let Op::Apply { body, .. } = &mut self.op {
            body["metadata"]["resourceVersion"] = json!(resource_version);
        }
        self
    }

    /// Shares the template with other writes, if it is equal to this one. The write then holds no copy.
    #[must_use]
    pub fn sharing(mut self, template: &Shared<Value>) -> Self {
        if let Op::Apply { body, .. } = &mut self.op {
            body.share(template);
        }
        self
    }

    /// Returns a server-side apply of `fields` to `live`. `None` if `live` has them, as for [`Self::ensure`].
    pub fn ensure_fields<K: Known>(manager: &'static str, fields: Value, live: &K) -> Option<Self> {
        Self::ensure(manager, &live.namespace().unwrap_or_default(), &live.name_any(), fields, Some(live))
    }

    /// Returns a server-side apply of `status` to the status subresource of `live`. `None` if `live` has it, as for
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

    /// Removes our finalizer from `live`, and keeps all others. `None` if `live` does not have it.
    pub fn release<K: Known>(manager: &'static str, finalizer: &str, live: &K) -> Option<Self> {
        let left: Vec<&String> = live.finalizers().iter().filter(|f| *f != finalizer).collect();
        if left.len() == live.finalizers().len() {
            return None;
        }
        Some(Self::amend(manager, json!({ "metadata": { "finalizers": left } }), live))
    }

    /// Merges `patch` into exactly the judged version of `live`.
    pub fn amend<K: Known>(manager: &'static str, patch: Value, live: &K) -> Self {
        Self::amend_version(manager, Object::of(live), patch, &ObjectVersion::of(live.meta())).on(Some(live))
    }

    /// Merges `patch` into exactly this version of an object that is not cached.
    pub fn amend_version(manager: &'static str, object: Object, mut patch: Value, version: &ObjectVersion) -> Self {
        patch["metadata"]["uid"] = json!(version.uid);
        patch["metadata"]["resourceVersion"] = json!(version.resource_version);
        Self::new(object, Op::Merge { body: patch, manager })
    }

    /// Takes over the fields of these parts of `live` that other managers own. `None` if they own nothing.
    pub fn take_over<K: Known>(manager: &'static str, parts: &'static [Part], live: &K) -> Option<Self> {
        if parts.iter().all(|part| takeover::holders(live, *part).is_empty()) {
            return None;
        }
        let ObjectVersion { uid, resource_version } = ObjectVersion::of(live.meta());
        Some(Self::new(Object::of(live), Op::TakeOver { uid, resource_version, manager, parts }))
    }

    /// Adds `event`, which is sent after the write has changed something.
    #[must_use]
    pub fn telling(mut self, event: Self) -> Self {
        if let Op::Create { body, .. } = event.op {
            self.told = Some(Box::new((event.object, body)));
        }
        self
    }

    /// Returns the Event that is sent after the write has changed something.
    pub fn told(&self) -> Option<Self> {
        let (object, body) = (**self.told.as_ref()?).clone();
        Some(Self::new(object, Op::Create { body, manager: meta::MANAGED_BY }))
    }

    /// Requires that a live read finds the object with this uid.
    pub fn confirm_present(object: Object, uid: &str) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmPresent { uid: uid.into() })
    }

    /// Requires that a live list with this label as `true` contains the object, and that the object is not terminating.
    pub fn confirm_listed(object: Object, label: &'static str) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmListed { label })
    }

    /// Requires that a live read finds `live` with the judged spec. It also detects a deletion that started since, because that
    /// makes a new generation.
    pub fn confirm_unchanged<K: Known>(live: &K) -> Confirm<P> {
        let (uid, generation) = (live.uid().unwrap_or_default(), live.meta().generation.unwrap_or_default());
        Confirm::new(Object::of(live), Op::ConfirmUnchanged { uid, generation })
    }

    /// Requires that a live read finds no such object, or one with another uid.
    pub fn confirm_gone(object: Object, uid: &str) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmGone { uid: uid.into() })
    }

    /// Requires that a live read finds no such object.
    pub fn confirm_absent(object: Object) -> Confirm<P> {
        Confirm::new(object, Op::ConfirmAbsent)
    }
}

/// Adds the type, name, namespace and uid of the object to `fields`.
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

/// A write of a controller that works on two planes.
pub enum Step<N, F> {
    /// A write to the plane of the controller's own objects.
    Local(Write<N>),
    /// A write to the plane of the objects that follow them.
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
