//! Works that outlive their template.
//!
//! Karmada deletes the Works of a template after the template. A Work for a cluster that does not answer stays terminating until
//! the cluster answers (fact 32), and its content runs on there. Only this operator reports that. A Work that is not terminating
//! was forgotten, and is collected.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::core::ObjectMeta;

use super::bindings;
use crate::{
    api::{meta::annotation, names::cluster_of_works},
    plan::{Kind, Object, ObjectVersion},
};

/// Facts of a Work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkFacts {
    /// The Work.
    pub work: Object,
    /// Its version.
    pub version: ObjectVersion,
    /// Cluster that it is for.
    pub cluster: String,
    /// Object that it was made of.
    pub template: Object,
    /// Name of the template's binding, in the template's namespace.
    pub binding: String,
    /// Since when it is terminating.
    pub terminating_since: Option<Timestamp>,
}

impl WorkFacts {
    /// Extracts the facts from a Work's metadata. `None` if it was made neither of a deployment nor of a possible companion.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let annotations = meta.annotations.as_ref()?;
        let namespace = annotations.get(annotation::WORK_BINDING_NAMESPACE)?;
        let binding = annotations.get(annotation::WORK_BINDING_NAME)?.clone();
        let (place, name) = (meta.namespace.clone()?, meta.name.clone()?);
        Some(Self {
            cluster: cluster_of_works(&place)?.to_owned(),
            work: Object { kind: Kind::Work, namespace: place, name },
            version: ObjectVersion::of(meta),
            template: bindings::template_of(namespace, &binding)?,
            binding,
            terminating_since: meta.deletion_timestamp.as_ref().map(|at| at.0),
        })
    }

    /// True if the Work has been terminating for at least `patience`.
    pub fn is_left(&self, patience: Duration, now: Timestamp) -> bool {
        let lasted = self.terminating_since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        lasted.is_some_and(|lasted| lasted >= patience)
    }
}

/// Objects of a hub namespace that are left on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Number of Works without a template.
    pub count: usize,
    /// One of those templates, by kind and name.
    pub example: String,
}

/// Left objects by hub namespace and cluster.
pub type AllLeft = BTreeMap<(String, String), Left>;

/// Counts one more Work.
pub fn count(left: &mut AllLeft, work: &WorkFacts) {
    let left = left.entry((work.template.namespace.clone(), work.cluster.clone())).or_default();
    left.count += 1;
    if left.example.is_empty() {
        left.example = work.template.to_string();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(binding: Option<&str>, terminating: Option<&str>) -> ObjectMeta {
        let mut meta = json!({
            "name": "web-123", "namespace": "karmada-es-cell-dfw", "uid": "w1", "resourceVersion": "7", "annotations": {},
        });
        if let Some(binding) = binding {
            meta["annotations"] =
                json!({ "resourcebinding.karmada.io/namespace": "ns-n1", "resourcebinding.karmada.io/name": binding });
        }
        meta["deletionTimestamp"] = json!(terminating);
        serde_json::from_value(meta).unwrap()
    }

    #[test]
    fn work_names_its_template() {
        let template = |binding| WorkFacts::of(&meta(binding, None)).map(|facts| facts.template.to_string());
        assert_eq!(template(Some("web-dfw-workloaddeployment")).as_deref(), Some("WorkloadDeployment ns-n1/web-dfw"));
        assert_eq!(template(Some("db-secret")).as_deref(), Some("Secret ns-n1/db"));
        assert_eq!(template(Some("web-deployment")), None);
        assert_eq!(template(None), None, "one of a namespace");
        let mut elsewhere = meta(Some("db-secret"), None);
        elsewhere.namespace = Some("default".into());
        assert_eq!(WorkFacts::of(&elsewhere), None);
    }

    #[test]
    fn work_terminating_for_long_is_left() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        for (since, left) in
            [(None, false), (Some("2026-01-01T00:00:01Z"), false), (Some("2026-01-01T00:00:00Z"), true)]
        {
            let work = WorkFacts::of(&meta(Some("db-secret"), since)).unwrap();
            assert_eq!(work.is_left(Duration::from_mins(1), now), left, "{since:?}");
        }
    }

    #[test]
    fn left_works_are_counted_by_namespace_and_cluster() {
        let mut left = AllLeft::new();
        for binding in ["web-dfw-workloaddeployment", "db-secret"] {
            count(&mut left, &WorkFacts::of(&meta(Some(binding), None)).unwrap());
        }
        let expected = Left { count: 2, example: "WorkloadDeployment ns-n1/web-dfw".into() };
        assert_eq!(left.pop_first(), Some((("ns-n1".to_owned(), "cell-dfw".to_owned()), expected)));
    }
}
