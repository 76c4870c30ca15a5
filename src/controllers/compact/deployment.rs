//! Deployments as the caches of the management side keep them: packed, and what many of them share kept once.
//!
//! There are thousands of them, each twice, in its project and on the hub, and a decision reads one or two of them, whole.
//! So what of a deployment is its own is kept as text, compressed against a text that has what they all have in common, and
//! is made an object again whenever it is looked at. Its template is kept beside it, once for all that have the same one, a
//! copy and its original among them; and so is the record of which fields a field manager has applied. What is asked of
//! many deployments at once, and what they are found by, is kept as it is read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;

use crate::{
    api::{
        compute::{InstanceTemplateSpec, Workload, WorkloadDeployment},
        meta::{annotation, label},
        referenced::DataRef,
    },
    io::{shared::share, store::Before},
    plan::{
        Shared, ownership,
        references::{Reference, annotated, references},
    },
};

/// Text that nearly every deployment contains: field names, labels, annotations, conditions. The most frequent stand near the
/// end, where a reference to them costs least.
const COMMON: &[u8] = include_bytes!("deployment_common.json");

/// Of each field manager's entry, the set of fields where it is kept as text.
type Book = [Option<Arc<str>>];

/// One deployment.
pub(crate) struct PackedDeployment {
    /// The deployment without its shared parts, as compressed JSON.
    text: Box<[u8]>,
    /// Length of that JSON.
    length: usize,
    template: Arc<Template>,
    fields: Arc<Book>,
    /// The uid that it gives for its Workload.
    workload_uid: Arc<str>,
    city_code: Arc<str>,
    city_label: Option<Arc<str>>,
    /// The companions that it expects.
    promised: Arc<[DataRef]>,
    deleting: bool,
    original: bool,
    /// Digest of what Karmada brings of it.
    said: u64,
    /// The version at which that was written; 0 while it is not known.
    written: u64,
    /// The deployment itself, if its packed text does not read back as it was.
    whole: Option<Box<WorkloadDeployment>>,
}

/// A template, kept once for all deployments that have it.
#[derive(Serialize)]
struct Template {
    json: Box<str>,
    #[serde(skip)]
    references: Box<[Reference]>,
    /// The same as it is read, while it is in use: of a Workload's deployments many are reconciled together.
    #[serde(skip)]
    open: Mutex<Weak<InstanceTemplateSpec>>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Template {
    /// Shares a template.
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
    /// Packs a deployment, and makes sure that it can be had back.
    pub(crate) fn of(deployment: WorkloadDeployment) -> Self {
        let mut packed = Self::pack(deployment.clone());
        if packed.unpack().as_ref() != Some(&deployment) {
            packed.whole = Some(Box::new(deployment));
        }
        packed
    }

    fn pack(mut deployment: WorkloadDeployment) -> Self {
        let template = std::mem::take(&mut deployment.spec.template);
        let template = Template::of(&template);
        let fields = deployment.metadata.managed_fields.iter_mut().flatten().map(|entry| {
            let packed = entry.fields_v1.take_if(|fields| fields.0.is_string())?;
            packed.0.as_str().map(|fields| share::<str>(fields.into()))
        });
        let fields = share::<Book>(fields.collect());
        let text = json(&deployment);
        let said = said(&deployment, &template);
        Self {
            text: lz4_flex::block::compress_with_dict(text.as_bytes(), COMMON).into(),
            length: text.len(),
            template,
            fields,
            workload_uid: share(deployment.spec.workload_ref.uid.as_str().into()),
            city_code: share::<str>(deployment.spec.city_code.as_str().into()),
            city_label: deployment.labels().get(label::TOPOLOGY_CITY).map(|city| share::<str>(city.as_str().into())),
            promised: share(annotated(&deployment, annotation::EXPECTED_REFERENCED_DATA).into()),
            deleting: deployment.metadata.deletion_timestamp.is_some(),
            original: ownership::is_federated_original(&deployment),
            said,
            written: 0,
            whole: None,
        }
    }

    /// The deployment.
    pub(crate) fn open(&self) -> WorkloadDeployment {
        if let Some(whole) = &self.whole {
            return (**whole).clone();
        }
        let Some(deployment) = self.unpack() else {
            // This process could read the text when it packed the deployment. Without reliable memory it must not decide anything.
            tracing::error!("a deployment in memory cannot be read any more: the process ends");
            std::process::abort();
        };
        deployment
    }

    fn unpack(&self) -> Option<WorkloadDeployment> {
        let text = lz4_flex::block::decompress_with_dict(&self.text, self.length, COMMON).ok()?;
        let mut deployment: WorkloadDeployment = serde_json::from_slice(&text).ok()?;
        deployment.spec.template = self.template.open()?;
        let entries = deployment.metadata.managed_fields.iter_mut().flatten();
        for (entry, fields) in entries.zip(&*self.fields) {
            if let Some(fields) = fields {
                entry.fields_v1 = Some(FieldsV1(Value::String(fields.to_string())));
            }
        }
        Some(deployment)
    }

    /// References of its template.
    pub(crate) fn references(&self) -> &[Reference] {
        &self.template.references
    }

    /// The uid that it gives for its Workload.
    pub(crate) fn workload_uid(&self) -> &str {
        &self.workload_uid
    }

    /// Its city, as its spec spells it.
    pub(crate) fn city_code(&self) -> &str {
        &self.city_code
    }

    /// Its city, as its label spells it, by which policies select.
    pub(crate) fn city_label(&self) -> Option<&str> {
        self.city_label.as_deref()
    }

    /// True if it expects this companion.
    pub(crate) fn expects(&self, data_ref: &DataRef) -> bool {
        self.promised.contains(data_ref)
    }

    /// True if it is terminating.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// True if it is the project's, where one cluster is project and cell at once.
    pub(crate) fn is_original(&self) -> bool {
        self.original
    }

    /// The version at which it was written last, its status and what Karmada itself puts on it aside; nothing where this process
    /// has not seen that.
    pub(crate) fn written(&self) -> Option<u64> {
        (self.written > 0).then_some(self.written)
    }

    /// Keeps in mind when it was written last: see [`Inherit`](crate::io::store::Inherit).
    pub(crate) fn inherit(&mut self, before: &Before<'_, Self>, next: Option<u64>) {
        self.written = match before {
            Before::Known(before) if before.said == self.said => before.written,
            Before::Known(_) | Before::Nothing => next.unwrap_or(0),
            Before::Unknown => 0,
        };
    }

    /// Bytes that are kept for it alone, what the allocator and the index need aside.
    #[cfg(test)]
    fn own_bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }
}

/// A Workload as the caches of the management side keep it: its template once for it and all deployments that have the same.
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

    /// The Workload; nothing where its template is no text, which no API server can have sent.
    pub(crate) fn open(&self) -> Option<Workload> {
        let mut workload = self.rest.clone();
        workload.spec.template = self.template.open()?;
        Some(workload)
    }
}

/// All but its template.
impl Deref for PackedWorkload {
    type Target = Workload;

    fn deref(&self) -> &Workload {
        &self.rest
    }
}

/// Digest of what Karmada brings of a deployment: each change of it makes Karmada write the deployment's binding anew. (Its
/// detector leaves out the status, versions and field managers: pkg/util/eventfilter of v1.18.2.)
fn said(deployment: &WorkloadDeployment, template: &Template) -> u64 {
    let others = |map: &BTreeMap<String, String>| {
        json(&map.iter().filter(|(key, _)| !key.contains(".karmada.io")).collect::<BTreeMap<_, _>>())
    };
    let mut hasher = DefaultHasher::new();
    (&*template.json, json(&deployment.spec), others(deployment.labels()), others(deployment.annotations()))
        .hash(&mut hasher);
    hasher.finish()
}

/// The JSON of a part of a deployment. A part without JSON does not read back, so its deployment is kept whole.
fn json(of: &impl serde::Serialize) -> String {
    serde_json::to_string(of).unwrap_or_default()
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
