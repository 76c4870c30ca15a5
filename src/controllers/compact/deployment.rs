//! Deployments as the management caches keep them: packed once they are no longer new ([`hot`](super::hot)), with shared parts
//! stored once.
//!
//! There are thousands of deployments, each one in its project and again on the hub. A decision reads one or two of them as a
//! whole. So the unique part of a deployment is kept as text, compressed with a dictionary of common text, and is decoded on each
//! read. Its template is kept separately, once for all deployments that have it, including copies and their originals. The fields
//! that a field manager has applied are shared in the same way. Index values, and facts that are read for many deployments at
//! once, are kept decoded.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;

use super::hot::{self, Pack};
use crate::{
    api::{
        compute::{InstanceTemplateSpec, Workload, WorkloadDeployment},
        meta::{annotation, label},
        referenced::DataRef,
    },
    io::{shared::share, store::Before},
    plan::{
        Shared,
        management::waiting::{self, Wait},
        ownership,
        references::{Reference, annotated, references},
    },
};

/// Text that nearly every deployment contains: field names, labels, annotations, conditions. The most frequent text is near the
/// end, where references to it are shortest.
const COMMON: &[u8] = include_bytes!("deployment_common.json");

/// For each field manager's entry, the set of fields if it is kept as text.
type FieldSets = [Option<Arc<str>>];

/// A deployment with decoded facts. The deployment itself is packed when it is no longer new.
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(crate) struct PackedDeployment {
    body: Arc<Body>,
    template: Arc<Template>,
    /// The uid of its Workload, as the deployment names it.
    workload_uid: Arc<str>,
    city_code: Arc<str>,
    city_label: Option<Arc<str>>,
    /// The companions that it expects.
    expected: Arc<[DataRef]>,
    deleting: bool,
    original: bool,
    waiting: bool,
    /// Why it is not ready.
    wait: Option<Arc<Wait>>,
    /// Digest of the content that Karmada propagates.
    propagated_digest: u64,
    /// The version at which that content last changed. 0 if unknown.
    written: u64,
}

/// The deployment.
struct Body(Mutex<Form>);

enum Form {
    /// Decoded: it is new, or its packed form does not decode to an equal one.
    Decoded(Box<WorkloadDeployment>),
    Packed(Packed),
}

/// A deployment without its template.
struct Packed {
    /// The deployment without its shared parts, as compressed JSON.
    text: Box<[u8]>,
    /// Length of that JSON.
    length: usize,
    fields: Arc<FieldSets>,
}

impl Packed {
    /// Packs a deployment without its template, and checks that it can be unpacked. `None` if not.
    fn of(deployment: &WorkloadDeployment) -> Option<Self> {
        let mut rest = deployment.clone();
        let fields = rest.metadata.managed_fields.iter_mut().flatten().map(|entry| {
            let packed = entry.fields_v1.take_if(|fields| fields.0.is_string())?;
            packed.0.as_str().map(|fields| share::<str>(fields.into()))
        });
        let fields = share::<FieldSets>(fields.collect());
        let text = json(&rest);
        let length = text.len();
        let text = lz4_flex::block::compress_with_dict(text.as_bytes(), COMMON).into();
        let packed = Self { text, length, fields };
        (packed.unpack().as_ref() == Some(deployment)).then_some(packed)
    }

    /// Returns the deployment without its template.
    fn unpack(&self) -> Option<WorkloadDeployment> {
        let text = lz4_flex::block::decompress_with_dict(&self.text, self.length, COMMON).ok()?;
        let mut deployment: WorkloadDeployment = serde_json::from_slice(&text).ok()?;
        let entries = deployment.metadata.managed_fields.iter_mut().flatten();
        for (entry, fields) in entries.zip(&*self.fields) {
            if let Some(fields) = fields {
                entry.fields_v1 = Some(FieldsV1(Value::String(fields.to_string())));
            }
        }
        Some(deployment)
    }
}

impl Body {
    /// Takes a deployment without its template, the template, and its shared form.
    fn of(mut deployment: WorkloadDeployment, template: Shared<InstanceTemplateSpec>, shared: &Template) -> Arc<Self> {
        let bytes = weight(&deployment) + shared.json.len();
        let opened = shared.open().filter(|opened| *opened == template);
        let is_whole = opened.is_some();
        deployment.spec.template = opened.unwrap_or(template);
        let body = Arc::new(Self(Mutex::new(Form::Decoded(deployment.into()))));
        if is_whole {
            hot::keep(&body, bytes);
        }
        body
    }

    fn lock(&self) -> MutexGuard<'_, Form> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pack for Body {
    fn pack(&self) {
        let mut form = self.lock();
        let Form::Decoded(deployment) = &mut *form else { return };
        let template = std::mem::take(&mut deployment.spec.template);
        match Packed::of(deployment) {
            Some(packed) => *form = Form::Packed(packed),
            None => deployment.spec.template = template,
        }
    }
}

/// A template, kept once for all deployments that have it.
#[derive(Serialize)]
struct Template {
    json: Box<str>,
    #[serde(skip)]
    references: Box<[Reference]>,
    /// The decoded template while it is in use: several deployments of a Workload are often reconciled together.
    #[serde(skip)]
    open: Mutex<Weak<InstanceTemplateSpec>>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Template {
    /// Returns the shared template.
    fn of(template: &InstanceTemplateSpec) -> Arc<Self> {
        let references = references(&template.spec).into();
        share(Arc::new(Self { json: json(template).into(), references, open: Mutex::default() }))
    }

    fn open(&self) -> Option<Shared<InstanceTemplateSpec>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = open.upgrade() {
            return Some(template.into());
        }
        let template: Shared<InstanceTemplateSpec> = serde_json::from_str(&self.json).ok()?;
        *open = template.downgrade();
        Some(template)
    }
}

impl PackedDeployment {
    /// Takes a deployment. It stays decoded while it is new.
    pub(crate) fn of(mut deployment: WorkloadDeployment) -> Self {
        let whole = std::mem::take(&mut deployment.spec.template);
        let template = Template::of(&whole);
        Self {
            workload_uid: share(deployment.spec.workload_ref.uid.as_str().into()),
            city_code: share::<str>(deployment.spec.city_code.as_str().into()),
            city_label: deployment.labels().get(label::TOPOLOGY_CITY).map(|city| share::<str>(city.as_str().into())),
            expected: share(annotated(&deployment, annotation::EXPECTED_REFERENCED_DATA).into()),
            deleting: deployment.metadata.deletion_timestamp.is_some(),
            original: ownership::is_federated_original(&deployment),
            waiting: deployment.annotations().contains_key(annotation::STRANDED_SINCE),
            wait: wait_of(&deployment).map(|wait| share(Arc::new(wait))),
            propagated_digest: propagated_digest(&deployment, &template),
            written: 0,
            body: Body::of(deployment, whole, &template),
            template,
        }
    }

    /// Returns the deployment.
    pub(crate) fn open(&self) -> WorkloadDeployment {
        let form = self.body.lock();
        let unpacked = match &*form {
            Form::Decoded(deployment) => return (**deployment).clone(),
            Form::Packed(packed) => packed.unpack().zip(self.template.open()),
        };
        let Some((mut deployment, template)) = unpacked else {
            // This process decoded the text when it packed the deployment. With unreliable memory it must not decide anything.
            tracing::error!("a cached deployment cannot be decoded: the process exits");
            std::process::abort();
        };
        deployment.spec.template = template;
        deployment
    }

    /// Returns the references of its template.
    pub(crate) fn references(&self) -> &[Reference] {
        &self.template.references
    }

    /// Returns the uid of its Workload, as the deployment names it.
    pub(crate) fn workload_uid(&self) -> &str {
        &self.workload_uid
    }

    /// Returns its city code in the spec.
    pub(crate) fn city_code(&self) -> &str {
        &self.city_code
    }

    /// Returns its city label, which policies select by.
    pub(crate) fn city_label(&self) -> Option<&str> {
        self.city_label.as_deref()
    }

    /// Returns the companions that it expects.
    pub(crate) fn expected(&self) -> &[DataRef] {
        &self.expected
    }

    /// True if it expects this companion.
    pub(crate) fn expects(&self, data_ref: &DataRef) -> bool {
        self.expected.contains(data_ref)
    }

    /// True if it is terminating.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// True if it belongs to the project, if one cluster is both project and cell.
    pub(crate) fn is_original(&self) -> bool {
        self.original
    }

    /// Returns why it waits. `None` if it is ready in its present generation, or is being deleted.
    pub(crate) fn wait(&self) -> Option<&Wait> {
        self.wait.as_deref()
    }

    /// True if it records since when its original is gone.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Returns the version of the last change that Karmada propagates. Changes of the status, and changes by Karmada itself, do
    /// not count. `None` if this process has not seen that change.
    pub(crate) fn written(&self) -> Option<u64> {
        (self.written > 0).then_some(self.written)
    }

    /// Inherits the version of the last change: see [`Inherit`](crate::io::store::Inherit).
    pub(crate) fn inherit(&mut self, before: &Before<'_, Self>, next: Option<u64>) {
        self.written = match before {
            Before::Known(before) if before.propagated_digest == self.propagated_digest => before.written,
            Before::Known(_) | Before::Nothing => next.unwrap_or(0),
            Before::Unknown => 0,
        };
    }

    /// Returns the bytes that only this deployment uses, without the allocator's and the index's overhead.
    #[cfg(test)]
    fn own_bytes(&self) -> usize {
        let Form::Packed(packed) = &*self.body.lock() else { return usize::MAX };
        size_of::<Self>() + size_of::<Body>() + packed.text.len()
    }
}

/// A Workload as the management caches keep it. It shares its template with its deployments.
pub(crate) struct PackedWorkload {
    /// The Workload without its template.
    rest: Workload,
    template: Arc<Template>,
}

impl PackedWorkload {
    /// Packs a Workload.
    pub(crate) fn of(mut workload: Workload) -> Self {
        let template = Template::of(&std::mem::take(&mut workload.spec.template));
        Self { rest: workload, template }
    }

    /// Returns the Workload. `None` if its template does not decode, which cannot happen with a template from an API server.
    pub(crate) fn open(&self) -> Option<Workload> {
        let mut workload = self.rest.clone();
        workload.spec.template = self.template.open()?;
        Some(workload)
    }
}

/// Everything except the template.
impl Deref for PackedWorkload {
    type Target = Workload;

    fn deref(&self) -> &Workload {
        &self.rest
    }
}

/// Returns the bytes of a deployment's texts without its template, roughly.
fn weight(deployment: &WorkloadDeployment) -> usize {
    const FEW: usize = 2 << 10;
    let texts: usize = deployment.annotations().iter().map(|(key, value)| key.len() + value.len()).sum();
    let conditions = deployment.status.iter().flat_map(|status| &status.conditions);
    let messages: usize = conditions.map(|condition| condition.message.len()).sum();
    let fields = deployment.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.fields_v1.as_ref());
    let fields: usize = fields.filter_map(|fields| fields.0.as_str()).map(str::len).sum();
    FEW + texts + messages + fields
}

fn wait_of(deployment: &WorkloadDeployment) -> Option<Wait> {
    let conditions = deployment.status.as_ref().map_or(&[][..], |status| &status.conditions);
    waiting::wait(&deployment.metadata, conditions)
}

/// Returns a digest of the content that Karmada propagates. A change of it makes Karmada rewrite the deployment's binding.
/// Karmada's detector ignores the status, versions and field managers: pkg/util/eventfilter of v1.18.2.
fn propagated_digest(deployment: &WorkloadDeployment, template: &Template) -> u64 {
    let others = |map: &BTreeMap<String, String>| {
        json(&map.iter().filter(|(key, _)| !key.contains(".karmada.io")).collect::<BTreeMap<_, _>>())
    };
    let mut hasher = DefaultHasher::new();
    (&*template.json, json(&deployment.spec), others(deployment.labels()), others(deployment.annotations()))
        .hash(&mut hasher);
    hasher.finish()
}

/// Returns the JSON of a part of a deployment. A part that does not encode does not decode either, so its deployment is kept
/// whole.
fn json(of: &impl serde::Serialize) -> String {
    serde_json::to_string(of).unwrap_or_default()
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
