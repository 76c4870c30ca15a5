//! The writes that a plan may ask for, typed by the control plane they go to.

use std::{fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::diff;
use crate::api::referenced::SourceKind;

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

impl Plane for Project {
    const NAME: &'static str = "project";
}
impl Plane for Hub {
    const NAME: &'static str = "hub";
}
impl Plane for Cell {
    const NAME: &'static str = "cell";
}

/// The kinds we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `compute.datumapis.com/v1alpha` Workload
    Workload,
    /// `compute.datumapis.com/v1alpha` WorkloadDeployment
    WorkloadDeployment,
    /// `compute.datumapis.com/v1alpha` Instance
    Instance,
    /// `v1` Namespace
    Namespace,
    /// `policy.karmada.io/v1alpha1` PropagationPolicy
    PropagationPolicy,
    /// `networking.datumapis.com/v1alpha` NetworkBinding
    NetworkBinding,
    /// `networking.datumapis.com/v1alpha` SubnetClaim
    SubnetClaim,
    /// `quota.miloapis.com/v1alpha1` ResourceClaim
    ResourceClaim,
    /// `events.k8s.io/v1` Event
    Event,
    /// `v1` ConfigMap
    ConfigMap,
    /// `v1` Secret
    Secret,
    /// `work.karmada.io/v1alpha2` ResourceBinding
    ResourceBinding,
    /// `cluster.karmada.io/v1alpha1` Cluster; only ever spoken of in Events
    Cluster,
}

impl Kind {
    /// `apiVersion`, `kind` and plural.
    pub fn gvk(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Workload => ("compute.datumapis.com/v1alpha", "Workload", "workloads"),
            Self::WorkloadDeployment => ("compute.datumapis.com/v1alpha", "WorkloadDeployment", "workloaddeployments"),
            Self::Instance => ("compute.datumapis.com/v1alpha", "Instance", "instances"),
            Self::Namespace => ("v1", "Namespace", "namespaces"),
            Self::PropagationPolicy => ("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies"),
            Self::NetworkBinding => ("networking.datumapis.com/v1alpha", "NetworkBinding", "networkbindings"),
            Self::SubnetClaim => ("networking.datumapis.com/v1alpha", "SubnetClaim", "subnetclaims"),
            Self::ResourceClaim => ("quota.miloapis.com/v1alpha1", "ResourceClaim", "resourceclaims"),
            Self::Event => ("events.k8s.io/v1", "Event", "events"),
            Self::ConfigMap => ("v1", "ConfigMap", "configmaps"),
            Self::Secret => ("v1", "Secret", "secrets"),
            Self::ResourceBinding => ("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings"),
            Self::Cluster => ("cluster.karmada.io/v1alpha1", "Cluster", "clusters"),
        }
    }

    /// Whether its objects hold what must never be shown, nor stay in memory.
    pub fn is_confidential(self) -> bool {
        matches!(self, Self::ConfigMap | Self::Secret)
    }
}

/// Which object a write goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty when cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, kind, _) = self.kind.gvk();
        if self.namespace.is_empty() {
            write!(f, "{kind} {}", self.name)
        } else {
            write!(f, "{kind} {}/{}", self.namespace, self.name)
        }
    }
}

impl From<SourceKind> for Kind {
    fn from(kind: SourceKind) -> Self {
        match kind {
            SourceKind::ConfigMap => Self::ConfigMap,
            SourceKind::Secret => Self::Secret,
        }
    }
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
        body: Value,
        /// Field manager.
        manager: &'static str,
        /// Whether the fields are those of the status subresource.
        status: bool,
    },
    /// JSON merge patch, guarded by the resourceVersion inside it. For what apply cannot say: taking an entry out of a
    /// list that another manager put in.
    Merge {
        /// The patch; carries `metadata.uid` and `metadata.resourceVersion`.
        body: Value,
        /// Field manager.
        manager: &'static str,
    },
    /// DELETE of exactly the object that was judged.
    Delete {
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
    },
    /// A live read that must find nothing, before something irrevocable is built on the absence.
    ConfirmAbsent,
    /// A live read that must find exactly this object, before something is built on its presence.
    ConfirmPresent {
        /// Its uid.
        uid: String,
    },
    /// The same, and that its spec is the one that was judged.
    ConfirmUnchanged {
        /// Its uid.
        uid: String,
        /// Its generation.
        generation: i64,
    },
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
            Self::Apply { body, manager, status } => f
                .debug_struct("Apply")
                .field("body", &shown(body))
                .field("manager", manager)
                .field("status", status)
                .finish(),
            Self::Merge { body, manager } => {
                f.debug_struct("Merge").field("body", &shown(body)).field("manager", manager).finish()
            }
            Self::Delete { uid, resource_version } => {
                f.debug_struct("Delete").field("uid", uid).field("resource_version", resource_version).finish()
            }
            Self::ConfirmAbsent => f.write_str("ConfirmAbsent"),
            Self::ConfirmPresent { uid } => f.debug_struct("ConfirmPresent").field("uid", uid).finish(),
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
    plane: PhantomData<fn() -> P>,
}

impl<P> Clone for Write<P> {
    fn clone(&self) -> Self {
        Self::new(self.object.clone(), self.op.clone())
    }
}

impl<P> fmt::Debug for Write<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").field("object", &self.object).field("op", &self.op).finish()
    }
}

impl<P> Write<P> {
    fn new(object: Object, op: Op) -> Self {
        Self { object, op, plane: PhantomData }
    }

    /// Creates `body`, and fails when an object of that name exists.
    pub fn create(kind: Kind, manager: &'static str, namespace: &str, name: &str, body: Value) -> Self {
        let object = Object { kind, namespace: namespace.into(), name: name.into() };
        Self::new(object.clone(), Op::Create { body: addressed(&object, None, body), manager })
    }

    /// Applies `fields` when `live` does not carry them already, or carries some that we applied before and no longer want.
    pub fn apply<K: Resource + Serialize>(
        kind: Kind,
        manager: &'static str,
        namespace: &str,
        name: &str,
        fields: Value,
        live: Option<&K>,
    ) -> Option<Self> {
        Self::apply_to(kind, manager, false, namespace, name, fields, live)
    }

    /// The same for the status subresource of `live`.
    pub fn apply_status<K: Resource + Serialize>(
        kind: Kind,
        manager: &'static str,
        status: &Value,
        live: &K,
    ) -> Option<Self> {
        let namespace = live.namespace().unwrap_or_default();
        Self::apply_to(kind, manager, true, &namespace, &live.name_any(), json!({ "status": status }), Some(live))
    }

    fn apply_to<K: Resource + Serialize>(
        kind: Kind,
        manager: &'static str,
        status: bool,
        namespace: &str,
        name: &str,
        fields: Value,
        live: Option<&K>,
    ) -> Option<Self> {
        if live.is_some_and(|live| !diff::differs(&fields, live, manager, status)) {
            return None;
        }
        let object = Object { kind, namespace: namespace.into(), name: name.into() };
        // The uid of what was judged: an object that was replaced in between is not ours to change.
        let uid = live.and_then(|live| live.uid());
        let body = addressed(&object, uid, fields);
        Some(Self::new(object, Op::Apply { body, manager, status }))
    }

    /// Takes our finalizer off `live`, leaving every other. `None` when it is not there.
    pub fn release<K: Resource>(kind: Kind, manager: &'static str, finalizer: &str, live: &K) -> Option<Self> {
        let left: Vec<&String> = live.finalizers().iter().filter(|f| *f != finalizer).collect();
        if left.len() == live.finalizers().len() {
            return None;
        }
        Some(Self::merge(kind, manager, json!({ "metadata": { "finalizers": left } }), live))
    }

    /// Merges `patch` into exactly the version of `live` that was judged.
    pub fn merge<K: Resource>(kind: Kind, manager: &'static str, patch: Value, live: &K) -> Self {
        let (uid, version) = (live.uid().unwrap_or_default(), live.resource_version().unwrap_or_default());
        Self::merge_into(Object::of(kind, live.meta()), manager, patch, &uid, &version)
    }

    /// The same for an object of which only uid and resourceVersion are kept.
    pub fn merge_into(object: Object, manager: &'static str, mut patch: Value, uid: &str, version: &str) -> Self {
        patch["metadata"]["uid"] = json!(uid);
        patch["metadata"]["resourceVersion"] = json!(version);
        Self::new(object, Op::Merge { body: patch, manager })
    }

    /// Deletes exactly the version of `live` that was judged. `None` when it is on its way out already.
    pub fn delete<K: Resource>(kind: Kind, live: &K) -> Option<Self> {
        if live.meta().deletion_timestamp.is_some() {
            return None;
        }
        let (uid, version) = (live.uid().unwrap_or_default(), live.resource_version().unwrap_or_default());
        Some(Self::delete_version(Object::of(kind, live.meta()), &uid, &version))
    }

    /// The same for an object of which only uid and resourceVersion are kept.
    pub fn delete_version(object: Object, uid: &str, version: &str) -> Self {
        Self::new(object, Op::Delete { uid: uid.into(), resource_version: version.into() })
    }

    /// Demands that a live read finds this very object.
    pub fn confirm_present(kind: Kind, namespace: &str, name: &str, uid: &str) -> Self {
        let object = Object { kind, namespace: namespace.into(), name: name.into() };
        Self::new(object, Op::ConfirmPresent { uid: uid.into() })
    }

    /// Demands that a live read finds `live` with the spec that was judged.
    pub fn confirm_unchanged<K: Resource>(kind: Kind, live: &K) -> Self {
        let (uid, generation) = (live.uid().unwrap_or_default(), live.meta().generation.unwrap_or_default());
        Self::new(Object::of(kind, live.meta()), Op::ConfirmUnchanged { uid, generation })
    }

    /// Demands that a live read finds no such object.
    pub fn confirm_absent(kind: Kind, namespace: &str, name: &str) -> Self {
        Self::new(Object { kind, namespace: namespace.into(), name: name.into() }, Op::ConfirmAbsent)
    }
}

impl Object {
    /// The object with this metadata.
    pub fn of(kind: Kind, meta: &ObjectMeta) -> Self {
        Self {
            kind,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
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

/// A write of a controller that works on two planes: the one it serves, and one far from it.
pub enum Step<N, F> {
    /// Where the controller's own objects live.
    Local(Write<N>),
    /// The other end.
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
