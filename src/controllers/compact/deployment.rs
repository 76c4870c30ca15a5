//! Deployments as the management caches keep them: packed, with shared parts stored once.
//!
//! There are thousands of deployments, each one in its project and again on the hub. A decision reads one or two of them as a
//! whole. So the unique part of a deployment is kept as text, compressed with a dictionary of common text, and is decoded on each
//! read. Its template is kept separately, once for all deployments that have it, including copies and their originals. The fields
//! that a field manager has applied are shared in the same way. Index values, and facts that are read for many deployments at
//! once, are kept decoded.
//!
//! The deployments that changed last are not packed yet: they are read several times, and most are replaced by their next version
//! within a moment. To pack and unpack each version took a sixth of the processor time of a new deployment.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::ResourceExt;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    api::{
        compute::{InstanceTemplateSpec, Workload, WorkloadDeployment},
        meta::{annotation, label},
        referenced::DataRef,
    },
    io::{
        shared::{find_by, share},
        store::Before,
    },
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

/// Number of deployments that are not packed. Each takes some ten KiB.
const OPEN: usize = 32;

/// The deployments that are not packed, the oldest first.
static RECENT: Mutex<VecDeque<Recent>> = Mutex::new(VecDeque::new());

/// A deployment that is not packed, and its template.
type Recent = (Weak<Mutex<Body>>, Arc<Template>);

/// A deployment in a cache.
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(crate) struct PackedDeployment {
    body: Arc<Mutex<Body>>,
    template: Arc<Template>,
    facts: Arc<Facts>,
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

/// Facts that the deployments of a Workload in a city have in common.
#[derive(PartialEq, Serialize)]
struct Facts {
    /// The uid of the Workload, as the deployment names it.
    workload_uid: Box<str>,
    city_code: Box<str>,
    city_label: Option<Box<str>>,
    /// The companions that it expects.
    expected: Box<[DataRef]>,
}

/// The deployment itself.
enum Body {
    /// It is one of the [`RECENT`] ones, or its text would not decode to an equal one.
    Open(Shared<WorkloadDeployment>),
    Packed(Packed),
}

/// A deployment without its shared parts.
struct Packed {
    /// Compressed JSON.
    text: Box<[u8]>,
    /// Length of that JSON.
    length: usize,
    fields: Arc<FieldSets>,
}

impl Packed {
    /// Packs a deployment. `None` if it would not be unpacked to an equal one.
    fn of(deployment: &WorkloadDeployment, template: &Template) -> Option<Self> {
        let mut rest = deployment.clone();
        rest.spec.template = Shared::default();
        let fields = rest.metadata.managed_fields.iter_mut().flatten().map(|entry| {
            let packed = entry.fields_v1.take_if(|fields| fields.0.is_string())?;
            packed.0.as_str().map(|fields| share::<str>(fields.into()))
        });
        let fields = share::<FieldSets>(fields.collect());
        let text = json(&rest);
        let packed = lz4_flex::block::compress_with_dict(text.as_bytes(), COMMON).into();
        let packed = Self { text: packed, length: text.len(), fields };
        (packed.unpack(template).as_ref() == Some(deployment)).then_some(packed)
    }

    fn unpack(&self, template: &Template) -> Option<WorkloadDeployment> {
        let text = lz4_flex::block::decompress_with_dict(&self.text, self.length, COMMON).ok()?;
        let mut deployment: WorkloadDeployment = serde_json::from_slice(&text).ok()?;
        deployment.spec.template = template.open()?;
        let entries = deployment.metadata.managed_fields.iter_mut().flatten();
        for (entry, fields) in entries.zip(&*self.fields) {
            if let Some(fields) = fields {
                entry.fields_v1 = Some(FieldsV1(Value::String(fields.to_string())));
            }
        }
        Some(deployment)
    }
}

/// Adds a deployment to the [`RECENT`] ones, and packs the oldest.
fn keep_open(body: &Arc<Mutex<Body>>, template: &Arc<Template>) {
    let oldest = {
        let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((Arc::downgrade(body), template.clone()));
        if recent.len() > OPEN { recent.pop_front() } else { None }
    };
    // Most of them are gone: a newer version has replaced them.
    if let Some((body, template)) = oldest.and_then(|(body, template)| Some((body.upgrade()?, template))) {
        pack(&body, &template);
    }
}

fn pack(body: &Mutex<Body>, template: &Template) {
    let mut body = body.lock().unwrap_or_else(PoisonError::into_inner);
    if let Body::Open(deployment) = &*body
        && let Some(packed) = Packed::of(deployment, template)
    {
        *body = Body::Packed(packed);
    }
}

/// A template, kept once for all deployments that have it.
struct Template {
    /// Compressed JSON.
    text: Box<[u8]>,
    /// Length of that JSON.
    length: usize,
    /// Digest of that JSON.
    digest: u64,
    references: Box<[Reference]>,
    /// The decoded template while it is in use: several deployments of a Workload are often reconciled together.
    open: Mutex<Weak<InstanceTemplateSpec>>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Its digest identifies a template among those in use.
impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.digest.serialize(serializer)
    }
}

impl Template {
    /// Returns the shared template, and an equal decoded form, which its deployments share while it is in use.
    fn of(decoded: Shared<InstanceTemplateSpec>) -> (Arc<Self>, Shared<InstanceTemplateSpec>) {
        if let Some(recent) = Self::recent(&decoded) {
            return recent;
        }
        let json = json(&decoded);
        let mut hasher = DefaultHasher::new();
        json.hash(&mut hasher);
        let digest = hasher.finish();
        // Each version of a deployment has the template of the one before. To compress it again would take longer than to compare it.
        let is_same = |known: &Self| known.json().as_deref() == Some(json.as_bytes());
        let template = find_by(&digest, is_same).unwrap_or_else(|| {
            let text = lz4_flex::block::compress_with_dict(json.as_bytes(), COMMON).into();
            let references = references(&decoded.spec).into();
            share(Arc::new(Self { text, length: json.len(), digest, references, open: Mutex::default() }))
        });
        // A template that its text does not decode to stays with its deployment, which is kept whole then.
        let opened = template.open().filter(|opened| **opened == *decoded).unwrap_or(decoded);
        (template, opened)
    }

    /// Returns the same if a deployment that is not packed has the template. To compare it takes less time than to encode it.
    fn recent(decoded: &InstanceTemplateSpec) -> Option<(Arc<Self>, Shared<InstanceTemplateSpec>)> {
        let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().rev().find_map(|(_, known)| {
            let opened = known.opened().filter(|opened| **opened == *decoded)?;
            Some((known.clone(), opened))
        })
    }

    fn json(&self) -> Option<Vec<u8>> {
        lz4_flex::block::decompress_with_dict(&self.text, self.length, COMMON).ok()
    }

    /// Decodes the template.
    fn open(&self) -> Option<Shared<InstanceTemplateSpec>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = open.upgrade() {
            return Some(template.into());
        }
        let template: Shared<InstanceTemplateSpec> = serde_json::from_slice(&self.json()?).ok()?;
        *open = template.downgrade();
        Some(template)
    }

    /// Returns the decoded template if it is in use.
    fn opened(&self) -> Option<Shared<InstanceTemplateSpec>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).upgrade().map(Shared::from)
    }
}

impl PackedDeployment {
    /// Takes a deployment, which is packed after some others.
    pub(crate) fn of(mut deployment: WorkloadDeployment) -> Self {
        let (template, of_spec) = Template::of(std::mem::take(&mut deployment.spec.template));
        let propagated_digest = propagated_digest(&deployment, &template);
        deployment.spec.template = of_spec;
        let packed = Self {
            facts: share(Arc::new(Facts {
                workload_uid: deployment.spec.workload_ref.uid.as_str().into(),
                city_code: deployment.spec.city_code.as_str().into(),
                city_label: deployment.labels().get(label::TOPOLOGY_CITY).map(|city| city.as_str().into()),
                expected: annotated(&deployment, annotation::EXPECTED_REFERENCED_DATA).into(),
            })),
            deleting: deployment.metadata.deletion_timestamp.is_some(),
            original: ownership::is_federated_original(&deployment),
            waiting: deployment.annotations().contains_key(annotation::STRANDED_SINCE),
            wait: wait_of(&deployment).map(|wait| share(Arc::new(wait))),
            propagated_digest,
            written: 0,
            body: Arc::new(Mutex::new(Body::Open(deployment.into()))),
            template,
        };
        keep_open(&packed.body, &packed.template);
        packed
    }

    /// Returns the deployment.
    pub(crate) fn open(&self) -> Shared<WorkloadDeployment> {
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        let packed = match &*body {
            Body::Open(deployment) => return deployment.clone(),
            Body::Packed(packed) => packed,
        };
        let Some(deployment) = packed.unpack(&self.template) else {
            // This process decoded the text when it packed the deployment. With unreliable memory it must not decide anything.
            tracing::error!("a cached deployment cannot be decoded: the process exits");
            std::process::abort();
        };
        deployment.into()
    }

    /// Returns the references of its template.
    pub(crate) fn references(&self) -> &[Reference] {
        &self.template.references
    }

    /// Returns the uid of its Workload, as the deployment names it.
    pub(crate) fn workload_uid(&self) -> &str {
        &self.facts.workload_uid
    }

    /// Returns its city code in the spec.
    pub(crate) fn city_code(&self) -> &str {
        &self.facts.city_code
    }

    /// Returns its city label, which policies select by.
    pub(crate) fn city_label(&self) -> Option<&str> {
        self.facts.city_label.as_deref()
    }

    /// Returns the companions that it expects.
    pub(crate) fn expected(&self) -> &[DataRef] {
        &self.facts.expected
    }

    /// True if it expects this companion.
    pub(crate) fn expects(&self, data_ref: &DataRef) -> bool {
        self.facts.expected.contains(data_ref)
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

    /// Returns the bytes that only this deployment uses once it is packed, without the allocator's and the index's overhead.
    #[cfg(test)]
    fn own_bytes(&self) -> usize {
        pack(&self.body, &self.template);
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        let Body::Packed(packed) = &*body else { return usize::MAX };
        size_of::<Self>() + size_of::<Mutex<Body>>() + packed.text.len()
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
        let (template, _) = Template::of(std::mem::take(&mut workload.spec.template));
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
    (template.digest, json(&deployment.spec), others(deployment.labels()), others(deployment.annotations()))
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
