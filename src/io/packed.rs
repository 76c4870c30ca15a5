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
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::ResourceExt;
use serde_json::Value;

use super::{
    cache::{self, Before},
    packed_instance,
    pool::Pool,
    shared_parts,
    uid::Uid,
};
use crate::{
    api::{
        compute::{InstanceTemplateSpec, Workload, WorkloadDeployment},
        karmada::{ResourceBinding, Suspension},
        meta::{annotation, label},
        referenced::DataRef,
    },
    plan::{
        Shared,
        management::observed::facts::{BindingFacts, Replicas, Scheduled},
        ownership,
        references::{Reference, annotated, references},
    },
};

/// The templates of all deployments that are kept, of every control plane.
static TEMPLATES: LazyLock<Pool<Template>> = LazyLock::new(Pool::default);

/// The sets of fields that field managers have applied to them, and the lists of these sets that deployments have.
static APPLIED_FIELDS: LazyLock<Pool<str>> = LazyLock::new(Pool::default);
static BOOKS: LazyLock<Pool<Book>> = LazyLock::new(Pool::default);

/// Their cities, as they are spelt.
static CITIES: LazyLock<Pool<str>> = LazyLock::new(Pool::default);

/// The lists of companions that they are promised.
static PROMISED: LazyLock<Pool<[DataRef]>> = LazyLock::new(Pool::default);

/// What bindings have in common: names of policies and digests of their placements, where they go, what the scheduler says, and
/// what clusters have made of them: whether they took them, and how many Instances there are; what they depend on, and what is
/// stopped of them.
static PLACEMENTS: LazyLock<Pool<str>> = LazyLock::new(Pool::default);
static CLUSTERS: LazyLock<Pool<Vec<String>>> = LazyLock::new(Pool::default);
static SCHEDULED: LazyLock<Pool<Option<Scheduled>>> = LazyLock::new(Pool::default);
static APPLIED: LazyLock<Pool<BTreeMap<String, Result<(), String>>>> = LazyLock::new(Pool::default);
static DEPENDENCIES: LazyLock<Pool<Option<Vec<DataRef>>>> = LazyLock::new(Pool::default);
static SUSPENSIONS: LazyLock<Pool<Suspension>> = LazyLock::new(Pool::default);
static REPLICAS: LazyLock<Pool<BTreeMap<String, Replicas>>> = LazyLock::new(Pool::default);

/// What nearly every deployment has, as it stands in their texts: field names, labels, annotations, conditions. What comes
/// often stands near the end, where it costs least to refer to.
const COMMON: &[u8] = include_bytes!("packed_common.json");

/// Of each field manager's entry, the set of fields where it is kept as text.
type Book = [Option<Arc<str>>];

/// One deployment.
pub struct PackedDeployment {
    /// What is its own, as compressed JSON.
    text: Box<[u8]>,
    /// Length of that JSON.
    length: usize,
    template: Arc<Template>,
    fields: Arc<Book>,
    /// The uid that it gives for its Workload.
    workload_uid: Uid,
    city_code: Arc<str>,
    city_label: Option<Arc<str>>,
    /// The companions that it is promised.
    promised: Arc<[DataRef]>,
    deleting: bool,
    original: bool,
    /// Digest of what Karmada brings of it.
    said: u64,
    /// The version at which that was written; 0 while it is not known.
    written: u64,
    /// The deployment itself, where what was packed of it does not read back as it was.
    whole: Option<Box<WorkloadDeployment>>,
}

/// What deployments run, once for all that run the same.
struct Template {
    json: Box<str>,
    references: Box<[Reference]>,
    /// The same as it is read, while somebody reads it: of a Workload's deployments many are looked at together.
    open: Mutex<Weak<InstanceTemplateSpec>>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for Template {}

impl Hash for Template {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.json.hash(state);
    }
}

impl Template {
    /// What `template` is kept as, once for all that are equal.
    fn of(template: &InstanceTemplateSpec) -> Arc<Self> {
        let references = references(&template.spec).into();
        TEMPLATES.share(Arc::new(Self { json: json(template).into(), references, open: Mutex::default() }))
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
    pub fn of(deployment: WorkloadDeployment) -> Self {
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
            packed.0.as_str().map(|fields| APPLIED_FIELDS.share(fields.into()))
        });
        let fields = BOOKS.share(fields.collect());
        let text = json(&deployment);
        let said = said(&deployment, &template);
        Self {
            text: lz4_flex::block::compress_with_dict(text.as_bytes(), COMMON).into(),
            length: text.len(),
            template,
            fields,
            workload_uid: Uid::of(&deployment.spec.workload_ref.uid),
            city_code: CITIES.share(deployment.spec.city_code.as_str().into()),
            city_label: deployment.labels().get(label::TOPOLOGY_CITY).map(|city| CITIES.share(city.as_str().into())),
            promised: PROMISED.share(annotated(&deployment, annotation::EXPECTED_REFERENCED_DATA).into()),
            deleting: deployment.metadata.deletion_timestamp.is_some(),
            original: ownership::is_federated_original(&deployment),
            said,
            written: 0,
            whole: None,
        }
    }

    /// The deployment.
    pub fn open(&self) -> WorkloadDeployment {
        if let Some(whole) = &self.whole {
            return (**whole).clone();
        }
        let Some(deployment) = self.unpack() else {
            // It could be read when it was packed, by this very process. Whoever cannot trust his memory must not decide anything.
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

    /// What its template refers to.
    pub fn references(&self) -> &[Reference] {
        &self.template.references
    }

    /// The uid that it gives for its Workload.
    pub fn workload_uid(&self) -> String {
        self.workload_uid.to_string()
    }

    /// Its city, as its spec spells it.
    pub fn city_code(&self) -> &str {
        &self.city_code
    }

    /// Its city, as its label spells it, by which policies select.
    pub fn city_label(&self) -> Option<&str> {
        self.city_label.as_deref()
    }

    /// Whether it is promised a companion.
    pub fn expects(&self, data_ref: &DataRef) -> bool {
        self.promised.contains(data_ref)
    }

    /// Whether it is on its way out.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Whether it is a project's, where one cluster is project and cell at once.
    pub fn is_original(&self) -> bool {
        self.original
    }

    /// The version at which it was written last, its status and what Karmada itself puts on it aside; nothing where this process
    /// has not seen that.
    pub fn written(&self) -> Option<u64> {
        (self.written > 0).then_some(self.written)
    }

    /// Keeps in mind when it was written last: see [`Inherit`](super::cache::Inherit).
    pub fn inherit(&mut self, before: &Before<'_, Self>, next: Option<u64>) {
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
pub struct PackedWorkload {
    /// The Workload without its template.
    rest: Workload,
    template: Arc<Template>,
}

impl PackedWorkload {
    /// Packs a Workload.
    pub fn of(mut workload: Workload) -> Self {
        let template = Template::of(&std::mem::take(&mut workload.spec.template));
        Self { rest: workload, template }
    }

    /// The Workload; nothing where its template is no text, which no API server can have sent.
    pub fn open(&self) -> Option<Workload> {
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

/// Drops what no deployment, no binding and no key has any more.
pub fn clean() {
    cache::clean();
    packed_instance::clean();
    shared_parts::clean();
    TEMPLATES.clean();
    // A book has sets of fields, so it goes first.
    BOOKS.clean();
    APPLIED_FIELDS.clean();
    CITIES.clean();
    PROMISED.clean();
    PLACEMENTS.clean();
    CLUSTERS.clean();
    SCHEDULED.clean();
    APPLIED.clean();
    REPLICAS.clean();
    DEPENDENCIES.clean();
    SUSPENSIONS.clean();
}

/// What is kept of a binding. What is said of it is said of many.
pub fn binding(binding: ResourceBinding) -> BindingFacts {
    fn share<T: std::hash::Hash + Eq>(pool: &Pool<T>, value: Shared<T>) -> Shared<T> {
        pool.share(value.into()).into()
    }
    let facts = BindingFacts::of(binding);
    let name = |name: Option<Arc<str>>| name.map(|name| PLACEMENTS.share(name));
    BindingFacts {
        policy: name(facts.policy),
        placement: name(facts.placement),
        scheduled_by: name(facts.scheduled_by),
        clusters: share(&CLUSTERS, facts.clusters),
        scheduled: share(&SCHEDULED, facts.scheduled),
        applied: share(&APPLIED, facts.applied),
        replicas: share(&REPLICAS, facts.replicas),
        dependencies: share(&DEPENDENCIES, facts.dependencies),
        suspension: share(&SUSPENSIONS, facts.suspension),
        scheduled_for: facts.scheduled_for.map(|city| city.sharing(|text| CITIES.share(text))),
        ..facts
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

/// The text of part of a deployment. What cannot be written as text cannot be read back, and is kept whole.
fn json(of: &impl serde::Serialize) -> String {
    serde_json::to_string(of).unwrap_or_default()
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
