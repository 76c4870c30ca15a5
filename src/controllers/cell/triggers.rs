//! Enqueues the work of each change. The plan names the work, and this module looks up the keys.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use kube::ResourceExt;

use super::{caches::Caches, index::Index, quota_backends::QuotaBackends, write_back::Copies};
use crate::{
    api::{meta::annotation, reason::Reason, referenced::DataRef},
    io::{queue::Queue, store::ObjectKey},
    metrics::Metrics,
    plan::{
        cell::{
            data,
            quota_trouble::Cause,
            triggers::{self, Change, Work},
        },
        ownership,
        references::annotated,
    },
};

/// The queues of a cell, and the lookup of keys for a change.
pub(super) struct Triggers {
    pub(super) caches: Arc<Caches>,
    pub(super) deployments: Arc<Queue<ObjectKey>>,
    pub(super) instances: Arc<Queue<ObjectKey>>,
    /// Set only with the quota feature.
    quota: Option<Arc<QuotaBackends>>,
    /// Set only with a hub for the write-back.
    pub(super) copies: Option<Arc<Copies>>,
    metrics: Metrics,
    /// Serializes the counting of a gauge and its report. Otherwise an older count could be reported last.
    counting: Mutex<()>,
}

impl Triggers {
    pub(super) fn new(
        caches: Arc<Caches>,
        quota: Option<Arc<QuotaBackends>>,
        copies: Option<Arc<Copies>>,
        metrics: Metrics,
    ) -> Self {
        Self {
            caches,
            deployments: Arc::default(),
            instances: Arc::default(),
            quota,
            copies,
            metrics,
            counting: Mutex::default(),
        }
    }

    /// Enqueues the work that a change causes.
    pub(super) fn after(&self, change: &Change<'_>) {
        for work in triggers::after(change) {
            self.enqueue(work);
        }
    }

    /// Enqueues one piece of work.
    fn enqueue(&self, work: Work) {
        match work {
            Work::Deployment(namespace, name) => self.deployments.add(ObjectKey::new(&namespace, &name)),
            Work::Deployments(namespace) => {
                for key in self.caches.deployments.keys_by_index(&Index::namespace(&namespace)) {
                    self.deployments.add(key);
                }
            }
            Work::Instance(namespace, name) => self.enqueue_instance(&ObjectKey::new(&namespace, &name)),
            Work::Instances(namespace) => self.enqueue_instances_by(&Index::namespace(&namespace)),
            Work::InstancesOf(namespace, name) => self.enqueue_instances_of(&ObjectKey::new(&namespace, &name)),
            Work::Users(namespace, data_ref) => self.enqueue_instances_by(&Index::Needs(namespace, data_ref)),
            Work::UsersOfContext(namespace, context) => self.enqueue_users_of_context(namespace, context),
            Work::Copy(namespace, name) => {
                if let Some(copies) = &self.copies {
                    copies.queue.add(ObjectKey::new(&namespace, &name));
                }
            }
            Work::Copies(namespace) => self.enqueue_copies_in(&namespace),
            Work::QuotaClaims(namespace) => {
                if let Some(quota) = &self.quota {
                    quota.enqueue_claims_for(&namespace);
                }
            }
            Work::QuotaUse(namespace) => {
                if let Some(quota) = &self.quota {
                    quota.retire_unused(&namespace);
                }
            }
            Work::UnansweredCount(cause) => self.count_unanswered(cause),
            Work::CompanionCount(namespace) => self.count_companions(&namespace),
            Work::ForgetNamespace(namespace) => {
                if !self.caches.deployments.keys_by_index(&Index::namespace(&namespace)).is_empty() {
                    return;
                }
                let reasons: Vec<&str> = data::reasons().map(Reason::as_str).collect();
                self.metrics.forget_namespace(&namespace, &reasons);
            }
            Work::Everything => self.enqueue_everything(),
        }
    }

    /// Enqueues all work on an Instance.
    fn enqueue_instance(&self, instance: &ObjectKey) {
        self.instances.add(instance.clone());
        if let Some(copies) = &self.copies {
            copies.queue.add(instance.clone());
        }
        if let Some(quota) = &self.quota {
            quota.enqueue(instance);
        }
    }

    /// Enqueues all work on the Instances with this index value.
    fn enqueue_instances_by(&self, index: &Index) {
        for instance in self.caches.instances.keys_by_index(index) {
            self.enqueue_instance(&instance);
        }
    }

    /// Enqueues all work on the Instances that a deployment controls.
    fn enqueue_instances_of(&self, deployment: &ObjectKey) {
        if let Some(deployment) = self.caches.deployments.get(deployment) {
            self.enqueue_instances_by(&Index::ControlledBy(deployment.uid().unwrap_or_default()));
        }
    }

    /// Enqueues deployments with a binding to a context, and their Instances.
    fn enqueue_users_of_context(&self, namespace: String, context: String) {
        let Some(networks) = &self.caches.networks else { return };
        for binding in networks.bindings.by_index(&Index::Context(namespace, context)) {
            if let Some(owner) = ownership::controller_of(binding.as_ref()) {
                let deployment = ObjectKey::new(&binding.namespace().unwrap_or_default(), &owner.name);
                self.deployments.add(deployment.clone());
                self.enqueue_instances_of(&deployment);
            }
        }
    }

    /// Enqueues all Instances.
    pub(super) fn enqueue_instances(&self) {
        for instance in self.caches.instances.keys() {
            self.enqueue_instance(&instance);
        }
    }

    /// Enqueues everything after a cache was filled again, and ends the back-off of failed keys.
    pub(super) fn enqueue_everything(&self) {
        for queue in [&self.deployments, &self.instances] {
            queue.retry_all_now();
        }
        for key in self.caches.deployments.keys() {
            self.deployments.add(key);
        }
        self.enqueue_instances();
        self.enqueue_copies();
    }

    /// Enqueues all copies after the cache of the hub or of the cell was filled again.
    pub(super) fn enqueue_copies(&self) {
        let Some(copies) = &self.copies else { return };
        copies.queue.retry_all_now();
        for key in self.caches.instances.keys().into_iter().chain(copies.store.keys()) {
            copies.queue.add(key);
        }
    }

    /// Enqueues the copy of each Instance of a namespace, and each copy there that may have lost its Instance.
    fn enqueue_copies_in(&self, namespace: &str) {
        let Some(copies) = &self.copies else { return };
        let there = copies.store.keys().into_iter().filter(|copy| &*copy.namespace == namespace);
        for key in self.caches.instances_in(namespace).into_iter().chain(there) {
            copies.queue.add(key);
        }
    }

    /// Updates the gauge of Instances that wait for quota.
    fn count_unanswered(&self, cause: Cause) {
        let _counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.caches.instances.count_by_index(&Index::Unanswered(cause));
        self.metrics.quota_unanswered(cause.label(), waiting);
    }

    /// Updates the gauges of a namespace.
    fn count_companions(&self, namespace: &str) {
        let Some(companions) = &self.caches.companions else { return };
        let expected: BTreeSet<DataRef> = self
            .caches
            .deployments
            .by_index(&Index::namespace(namespace))
            .iter()
            .flat_map(|deployment| annotated(deployment, annotation::EXPECTED_REFERENCED_DATA))
            .collect();
        let present = expected.iter().filter(|data_ref| companions.has(namespace, data_ref)).count();
        self.metrics.companions(namespace, expected.len(), present);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        api::{
            compute::{Instance, WorkloadDeployment},
            meta::{condition, gate},
        },
        io::{clients::Connection, clients::ControlPlane, store::Incoming},
        plan::cell::Features,
    };

    /// An alert counted unanswered requests, although some reasons cause no second request.
    #[tokio::test]
    async fn unanswered_gauge_counts_waiting_instances_by_reason() {
        let plane = Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let caches = Arc::new(Caches::new(ControlPlane::new("cell", plane), Features::default()));
        let metrics = Metrics::default();
        let triggers = Arc::new(Triggers::new(caches.clone(), None, None, metrics.clone()));
        triggers.listen();
        let saying = |version: &str, reason: &str| -> Incoming<Instance> {
            let instance: Instance = serde_json::from_value(json!({
                "metadata": { "name": "web-0", "namespace": "ns-1", "uid": "i", "resourceVersion": version },
                "spec": {
                    "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [],
                    "controller": { "templateHash": "h", "schedulingGates": [{ "name": gate::QUOTA }] },
                },
                "status": { "conditions": [{
                    "type": condition::QUOTA_GRANTED, "status": "Unknown", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }] },
            }))
            .unwrap();
            Incoming::new(&instance, Some(instance.clone()))
        };
        let told = |reason: &str| {
            let text = metrics.text();
            let start = format!("compute_quota_unanswered_instances{{reason=\"{reason}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
        };
        assert_eq!(told("no_budget"), None);
        // A new process gets the Instance from its first list.
        caches.instances.replace(vec![saying("2", "QuotaNoBudget")], 2);
        assert_eq!(told("no_budget").as_deref(), Some("1"));
        caches.instances.observe(saying("3", "QuotaMisconfigured"));
        assert_eq!((told("no_budget").as_deref(), told("misconfigured").as_deref()), (Some("0"), Some("1")));
        caches.instances.forget(&ObjectKey::new("ns-1", "web-0"), "i");
        assert_eq!(told("misconfigured").as_deref(), Some("0"));
    }

    /// The gauges of each namespace stayed until the namespace was deleted.
    #[tokio::test]
    async fn metrics_of_namespace_are_removed_with_its_last_deployment() {
        let plane = Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let features = Features { networks: false, quota: false, abandon_claims: false, data: true };
        let caches = Arc::new(Caches::new(ControlPlane::new("cell", plane), features));
        let metrics = Metrics::default();
        let triggers = Arc::new(Triggers::new(caches.clone(), None, None, metrics.clone()));
        triggers.listen();
        let deployment = |name: &str| -> WorkloadDeployment {
            serde_json::from_value(json!({
                "metadata": {
                    "name": name, "namespace": "ns-1", "uid": name, "resourceVersion": "1",
                    "annotations": { annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/db"]"# },
                },
                "spec": {
                    "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
                    "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                    "scaleSettings": { "minReplicas": 1 },
                },
            }))
            .unwrap()
        };
        for name in ["api", "web"] {
            let deployment = deployment(name);
            caches.deployments.observe(Incoming::new(&deployment, Some(deployment.clone())));
        }
        metrics.waited_for_data("ns-1", std::time::Duration::from_secs(1));
        let is_told = || metrics.text().contains("ns-1");
        for (name, left) in [("web", true), ("api", false)] {
            caches.deployments.forget(&ObjectKey::new("ns-1", name), name);
            assert_eq!(is_told(), left, "{name} was deleted");
        }
    }
}
