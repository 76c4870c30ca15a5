//! Bindings that Karmada made of companions and of copies: what each was made of, and whether it is ours.

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::plan::management::observed::facts::{self, BindingFacts};
use crate::{
    api::{
        compute::WorkloadDeployment, karmada::ResourceBinding, meta::annotation, names::Template, referenced::DataRef,
    },
    plan::{Kind, Object, ObjectVersion, ownership},
};

/// What the binding of this name in this namespace was made of; `None` if that is no kind of ours.
pub fn template_of(namespace: &str, binding: &str) -> Option<Object> {
    match Template::of_binding(binding) {
        Template::Companion(DataRef { kind, name }) => {
            Some(Object { kind: kind.into(), namespace: namespace.to_owned(), name })
        }
        Template::Deployment(name) => Some(Object::named::<WorkloadDeployment>(namespace, &name)),
        Template::Foreign => None,
    }
}

/// A binding, and what it was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The binding.
    pub object: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// What it was made of.
    pub template: Object,
}

impl Binding {
    /// From the metadata of a binding, and what the watch knows of its content. `None` if it is terminating, or not ours: a city
    /// policy claims it, or did before that policy went; or it is of a companion, and attached to deployments of ours alone.
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

/// True if Karmada made the binding because others need what it was made of: it carries the mark of that. Karmada takes the mark off
/// with the last that needs it; then what it was made of owns it, and no policy claims it.
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
