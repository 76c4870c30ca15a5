//! Instances as the management caches keep them: those on the hub, which cells write, and those in the projects.
//!
//! Most decisions read only the labels and the status of an Instance. Its runtime and volumes are kept as text, once for all
//! Instances with the same ones. A writer can make an Instance as large as the API server accepts. So there are two limits: one
//! for each Instance, and one for everything that one cell has written. Above the first limit, an Instance is only known to exist
//! and to be too large. Above the second, its runtime and volumes are read from the API server when they are needed.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Deref,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    api::{
        compute::{Instance, InstanceRuntime, InstanceSpec, Volume},
        meta::{GROUP, label},
        shared::Shared,
    },
    io::shared::{find, share},
    plan::{diff, limits::json_bytes, ownership},
};

/// Most bytes of text kept of an Instance's runtime and volumes. Admission allows less in a template.
const MAX_BODY: usize = 256 << 10;
/// Most bytes kept of the rest of an Instance.
const MAX_BESIDE: usize = 64 << 10;
/// Most bytes kept of an Instance's annotations. Ours are short.
const MAX_ANNOTATIONS: usize = 4 << 10;
/// Smaller bodies are ordinary, and cost little more than the Instance itself.
const ORDINARY: usize = 8 << 10;
/// Most bytes kept of all distinct larger bodies that one writer was the first to write. A correct cell reaches this with 128
/// Workloads of the largest template, over all its tenants. Later ones cost a read whenever they are shown.
const MAX_OF_ONE: usize = 16 << 20;

/// Bytes of large bodies by writer.
static CHARGED: LazyLock<Mutex<HashMap<String, usize>>> = LazyLock::new(Mutex::default);

/// A packed Instance. Its labels and status can be read without decoding.
pub(crate) struct PackedInstance {
    /// The Instance without runtime and volumes.
    rest: Instance,
    body: Kept,
}

/// The kept part of an Instance's runtime and volumes.
enum Kept {
    /// Everything.
    Body(Arc<Body>),
    /// No part, because its writer has used up its share.
    Elsewhere,
    /// No part, because it is too large.
    TooLarge,
}

/// Runtime and volumes, kept once for all Instances that have them.
#[derive(Serialize)]
struct Body {
    json: Box<str>,
    /// The writer that is charged for it.
    #[serde(skip)]
    writer: Option<String>,
}

/// The fields of an Instance in a body.
#[derive(Serialize, Deserialize, Default)]
struct Runs {
    runtime: Shared<InstanceRuntime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volumes: Option<Shared<Vec<Volume>>>,
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let Some(writer) = &self.writer else { return };
        let mut charged = charged();
        if let Some(bytes) = charged.get_mut(writer) {
            *bytes -= self.json.len();
            if *bytes == 0 {
                charged.remove(writer);
            }
        }
    }
}

fn charged() -> MutexGuard<'static, HashMap<String, usize>> {
    CHARGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Charges these bytes to a writer. Returns false if they exceed its share.
fn charge(writer: &str, bytes: usize) -> bool {
    let mut charged = charged();
    let so_far = charged.get(writer).copied().unwrap_or(0);
    let fits = so_far + bytes <= MAX_OF_ONE;
    if fits {
        charged.insert(writer.to_owned(), so_far + bytes);
    }
    fits
}

impl Body {
    /// Keeps a body with this text within the limits.
    fn keep(json: String, writer: &str) -> Kept {
        if json.len() > MAX_BODY {
            return Kept::TooLarge;
        }
        let (bytes, mut body) = (json.len(), Self { json: json.into_boxed_str(), writer: None });
        if bytes > ORDINARY {
            if let Some(known) = find(&body) {
                return Kept::Body(known);
            }
            if !charge(writer, bytes) {
                return Kept::Elsewhere;
            }
            body.writer = Some(writer.to_owned());
        }
        Kept::Body(share(Arc::new(body)))
    }
}

impl PackedInstance {
    /// Packs an Instance on the hub, which a cell has written. No decision reads its field managers.
    pub(crate) fn of_hub(mut instance: Instance) -> Self {
        instance.metadata.managed_fields = Some(Vec::new());
        let writer = ownership::cell_of(&instance).cloned().unwrap_or_default();
        Self::of(instance, &format!("cell {writer}"))
    }

    /// Packs an Instance in a project, a copy whose spec is compared as a whole.
    pub(crate) fn of_project(mut instance: Instance) -> Self {
        diff::forget_applied_spec(&mut instance);
        Self::of(instance, "projects")
    }

    /// Packs an Instance. No decision reads annotations of other writers.
    fn of(mut instance: Instance, writer: &str) -> Self {
        let mut room = MAX_ANNOTATIONS;
        if let Some(annotations) = &mut instance.metadata.annotations {
            annotations.retain(|key, value| {
                let fits = key.contains(GROUP) && key.len() + value.len() <= room;
                room -= if fits { key.len() + value.len() } else { 0 };
                fits
            });
        }
        let runs = Runs { runtime: std::mem::take(&mut instance.spec.runtime), volumes: instance.spec.volumes.take() };
        if json_bytes(&instance) > MAX_BESIDE {
            return Self { rest: identity(instance), body: Kept::TooLarge };
        }
        // A body that does not encode cannot be shown either.
        let body = serde_json::to_string(&runs).map_or(Kept::TooLarge, |json| Body::keep(json, writer));
        Self { rest: instance, body }
    }

    /// True if it is too large to be kept.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self.body, Kept::TooLarge)
    }

    /// True if its runtime and volumes must be read from the API server.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.body, Kept::Elsewhere)
    }

    /// Returns the Instance as far as it is kept.
    pub(crate) fn open(&self) -> Instance {
        let mut instance = self.rest.clone();
        if let Kept::Body(body) = &self.body
            && let Ok(runs) = serde_json::from_str::<Runs>(&body.json)
        {
            (instance.spec.runtime, instance.spec.volumes) = (runs.runtime, runs.volumes);
        }
        instance
    }

    /// Returns about the number of bytes that only this Instance uses.
    #[cfg(test)]
    fn own_bytes(&self) -> usize {
        size_of::<Self>() + json_bytes(&self.rest)
    }
}

/// Everything except runtime and volumes.
impl Deref for PackedInstance {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.rest
    }
}

/// Returns only the identity and the owner of an Instance.
fn identity(of: Instance) -> Instance {
    let mut instance = Instance::new("", InstanceSpec::default());
    let ours = |all: BTreeMap<String, String>| {
        let own = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE, label::CELL_UID];
        let is_ours = |key: &str| own.contains(&key) || ownership::OF_AN_INSTANCE.contains(&key);
        all.into_iter().filter(|(key, _)| is_ours(key)).collect()
    };
    instance.metadata.labels = of.metadata.labels.clone().map(ours);
    instance.metadata.owner_references = ownership::controller_of(&of).cloned().map(|owner| vec![owner]);
    instance.metadata.name = of.metadata.name;
    instance.metadata.namespace = of.metadata.namespace;
    instance.metadata.uid = of.metadata.uid;
    instance.metadata.resource_version = of.metadata.resource_version;
    instance.metadata.generation = of.metadata.generation;
    instance.metadata.creation_timestamp = of.metadata.creation_timestamp;
    instance.metadata.deletion_timestamp = of.metadata.deletion_timestamp;
    instance.metadata.managed_fields = Some(Vec::new());
    instance
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    fn instance(n: usize, cell: &str, value: &str) -> Instance {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("web-{n}"), "namespace": "ns-1", "uid": format!("u{n}"), "resourceVersion": "7",
                "labels": {
                    label::CELL_UID: cell, label::UPSTREAM_CLUSTER: "cluster-p", label::UPSTREAM_NAMESPACE: "shop",
                    label::WORKLOAD_DEPLOYMENT_NAME: "web",
                },
                "annotations": { "compute.datumapis.com/claimed-by-cell": "other", "theirs": "x".repeat(100_000) },
                "ownerReferences": [
                    { "apiVersion": "v", "kind": "WorkloadDeployment", "name": "web", "uid": "w", "controller": true },
                ],
            },
            "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                    { "name": "c", "image": "i", "env": [{ "name": "A", "value": value }] },
                ] } },
                "networkInterfaces": [{ "network": { "name": "n" } }],
                "volumes": [{ "name": "v", "configMap": { "name": "m" } }],
                "controller": { "templateHash": "h" },
            },
            "status": { "conditions": [] },
        }))
        .unwrap()
    }

    fn bytes(all: &[PackedInstance]) -> usize {
        let kept = all.iter().filter_map(|one| if let Kept::Body(body) = &one.body { Some(body) } else { None });
        let bodies: BTreeMap<*const Body, usize> = kept.map(|body| (Arc::as_ptr(body), body.json.len())).collect();
        all.iter().map(PackedInstance::own_bytes).sum::<usize>() + bodies.values().sum::<usize>()
    }

    #[test]
    fn packed_instance_opens_with_everything_that_decisions_read() {
        let of = instance(0, "c1", "x");
        let packed = PackedInstance::of_hub(of.clone());
        assert!(packed.spec.volumes.is_none() && packed.labels() == of.labels(), "readable without decoding");
        let open = packed.open();
        assert_eq!((&open.spec, &open.status), (&of.spec, &of.status));
        assert_eq!(open.annotations().keys().collect::<Vec<_>>(), ["compute.datumapis.com/claimed-by-cell"]);
        let in_project = PackedInstance::of_project(of);
        assert_eq!(in_project.open().spec, open.spec);
    }

    #[test]
    fn packed_instances_of_one_template_share_it() {
        let value = "y".repeat(100_000);
        let of = |n| PackedInstance::of_hub(instance(n, "c2", &value));
        let all: Vec<_> = (0..100).map(of).chain((0..100).map(|n| PackedInstance::of_project(of(n).open()))).collect();
        assert!(all.iter().all(|one| matches!(one.body, Kept::Body(_))));
        assert!(bytes(&all) < 100_000 + 200 * 3000, "{}", bytes(&all));
    }

    /// A cell's credentials could stop management of all projects, because everything that the cell wrote was kept.
    #[test]
    fn packed_instances_of_one_cell_stay_within_its_share() {
        let large: Vec<_> = (0..200)
            .map(|n| PackedInstance::of_hub(instance(n, "c3", &format!("{n}{}", "z".repeat(1 << 20)))))
            .collect();
        assert!(large.iter().all(PackedInstance::is_too_large));
        assert!(bytes(&large) < 1 << 20, "{}", bytes(&large));
        let mut below: Vec<_> = (0..200)
            .map(|n| PackedInstance::of_hub(instance(n, "c3", &format!("{n}{}", "z".repeat(250_000)))))
            .collect();
        assert!(bytes(&below) < MAX_OF_ONE + (1 << 20), "{}", bytes(&below));
        let another = PackedInstance::of_hub(instance(0, "c4", &"w".repeat(250_000)));
        assert!(matches!(another.body, Kept::Body(_)), "another cell has its own share");
        assert!(
            below.last().unwrap().is_elsewhere() && !below.last().unwrap().is_too_large(),
            "it is read from the server and shown"
        );
        below.clear();
        let again = PackedInstance::of_hub(instance(0, "c3", &"z".repeat(250_000)));
        assert!(matches!(again.body, Kept::Body(_)), "deleted Instances are not charged");
    }

    #[test]
    fn packed_instance_with_many_labels_keeps_its_identity() {
        let mut of = instance(0, "c5", "x");
        of.labels_mut().extend((0..20_000).map(|n| (format!("l{n}"), "v".into())));
        of.status = serde_json::from_value(json!({ "conditions": [{
            "type": "T", "status": "True", "reason": "R", "message": "m".repeat(200_000),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] }))
        .unwrap();
        let packed = PackedInstance::of_hub(of);
        assert!(packed.is_too_large() && packed.own_bytes() < 4096, "{}", packed.own_bytes());
        let kept: Value = json!(packed.open());
        assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], "w");
        assert_eq!(packed.labels()[label::UPSTREAM_CLUSTER], "cluster-p");
        assert_eq!(packed.labels().len(), 4, "{:?}", packed.labels());
    }
}
