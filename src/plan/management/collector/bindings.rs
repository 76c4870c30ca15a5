//! Bindings that Karmada made of companions and of copies: their template, and whether they are ours.

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::plan::management::observed::facts::{self, BindingFacts};
use crate::{
    api::{
        compute::WorkloadDeployment, karmada::ResourceBinding, meta::annotation, names::Template, referenced::DataRef,
    },
    plan::{Kind, Object, ObjectVersion, ownership},
};

/// Returns the template of the binding with this name, in this namespace. `None` if its kind is not ours.
pub fn template_of(namespace: &str, binding: &str) -> Option<Object> {
    match Template::of_binding(binding) {
        Template::Companion(DataRef { kind, name }) => {
            Some(Object { kind: kind.into(), namespace: namespace.to_owned(), name })
        }
        Template::Deployment(name) => Some(Object::named::<WorkloadDeployment>(namespace, &name)),
        Template::Foreign => None,
    }
}

/// A binding and its template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The binding.
    pub object: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// The object that it was made of.
    pub template: Object,
}

impl Binding {
    /// Reads a binding's metadata, and the watch's facts of its content. `None` if the binding is terminating or not ours. It is
    /// ours if a city policy claims it, or claimed it until that policy was deleted. The binding of a companion is also ours if
    /// it is attached only to our deployments.
    pub fn ours(meta: &ObjectMeta, facts: Option<&BindingFacts>) -> Option<Self> {
        let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
        let template = template_of(namespace, name).filter(|_| meta.deletion_timestamp.is_none())?;
        let policy = meta.annotations.as_ref().and_then(|all| all.get(annotation::POLICY_NAME)).map(String::as_str);
        let is_ours = if template.kind == Kind::WorkloadDeployment {
            ownership::is_binding_of_deployment(policy, facts.is_some_and(|facts| facts.scheduled_for.is_some()))
        } else {
            let parents: Option<Vec<String>> =
                facts.map(|facts| facts.required_by.iter().map(|by| by.name.clone()).collect());
            ownership::is_binding_of_companion(policy, is_attached(meta, &template), parents.as_deref())
        };
        let object = Object::named::<ResourceBinding>(namespace, name);
        is_ours.then(|| Self { object, version: ObjectVersion::of(meta), template })
    }
}

/// True if Karmada made the binding because others need its template. Such a binding has a mark. Karmada removes the mark with
/// the last user. Then the template owns the binding, and no policy claims it.
fn is_attached(meta: &ObjectMeta, template: &Object) -> bool {
    let is_marked = meta.labels.iter().flatten().any(|(key, _)| key.starts_with(annotation::DEPENDED_BY));
    let is_owned = meta.owner_references.iter().flatten().any(|owner| {
        owner.controller == Some(true) && owner.kind == template.kind.gvk().1 && owner.name == template.name
    });
    is_marked || is_owned && facts::cluster_policy(meta).is_none()
}

#[cfg(test)]
#[path = "bindings_tests.rs"]
mod tests;
