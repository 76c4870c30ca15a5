//! Parts of the objects in a cell's caches that many have: what a deployment's Instances and their copies run is kept once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher},
    sync::{LazyLock, Mutex, PoisonError, Weak},
};

use serde::Serialize;

use crate::{
    api::{
        compute::{Instance, InstanceRuntime, InstanceTemplateSpec, Volume, WorkloadDeployment},
        shared::Shared,
    },
    plan::diff,
};

/// Fewest parts among which it is worth looking for those that no object has any more.
const FEW: usize = 64;

static RUNTIMES: LazyLock<Parts<InstanceRuntime>> = LazyLock::new(Parts::default);
static VOLUMES: LazyLock<Parts<Vec<Volume>>> = LazyLock::new(Parts::default);
static TEMPLATES: LazyLock<Parts<InstanceTemplateSpec>> = LazyLock::new(Parts::default);

/// Equal parts, as long as an object has them.
struct Parts<T>(Mutex<Known<T>>);

struct Known<T> {
    /// By digest; of two parts with one digest the last is shared.
    parts: HashMap<u64, Weak<T>>,
    /// Parts that are known before it is looked again for those that no object has.
    room: usize,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self(Mutex::new(Known { parts: HashMap::new(), room: FEW }))
    }
}

impl<T: Serialize + PartialEq> Parts<T> {
    /// The part that is equal to this one and that others have, if there is one; else this one.
    fn share(&self, part: Shared<T>) -> Shared<T> {
        let Some(digest) = digest(&*part) else { return part };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.parts.get(&digest).and_then(Weak::upgrade).filter(|same| **same == *part) {
            return same.into();
        }
        known.parts.insert(digest, part.downgrade());
        if known.parts.len() > known.room {
            known.clean();
        }
        part
    }

    fn clean(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clean();
    }
}

impl<T> Known<T> {
    fn clean(&mut self) {
        self.parts.retain(|_, part| part.strong_count() > 0);
        self.parts.shrink_to(FEW);
        self.room = FEW.max(2 * self.parts.len());
    }
}

/// Digest of the text of a part, which is not made.
fn digest(part: &impl Serialize) -> Option<u64> {
    struct Digest(DefaultHasher);
    impl std::io::Write for Digest {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut digest = Digest(DefaultHasher::new());
    serde_json::to_writer(&mut digest, part).ok()?;
    Some(digest.0.finish())
}

/// An Instance that has what it runs in common with all that run the same.
pub fn instance(mut instance: Instance) -> Instance {
    instance.spec.runtime = RUNTIMES.share(instance.spec.runtime);
    instance.spec.volumes = instance.spec.volumes.map(|volumes| VOLUMES.share(volumes));
    instance
}

/// The same of an Instance's copy, whose spec is compared as a whole.
pub fn instance_copy(mut copy: Instance) -> Instance {
    diff::forget_applied_spec(&mut copy);
    instance(copy)
}

/// A deployment that has its template in common with all that have the same, and with their Instances what they run.
pub fn deployment(mut deployment: WorkloadDeployment) -> WorkloadDeployment {
    let spec = &mut deployment.spec.template.spec;
    spec.runtime = RUNTIMES.share(std::mem::take(&mut spec.runtime));
    spec.volumes = spec.volumes.take().map(|volumes| VOLUMES.share(volumes));
    deployment.spec.template = TEMPLATES.share(deployment.spec.template);
    deployment
}

/// Forgets what no object has any more.
pub(super) fn clean() {
    RUNTIMES.clean();
    VOLUMES.clean();
    TEMPLATES.clean();
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: &str) -> Value {
        json!({
            "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                { "name": "c", "image": "i", "env": [{ "name": "A", "value": value }] },
            ] } },
            "networkInterfaces": [],
            "volumes": [{ "name": "v", "configMap": { "name": "m" } }],
        })
    }

    fn instance_of(value: &str) -> Instance {
        serde_json::from_value(json!({ "metadata": { "name": "web-0" }, "spec": spec(value) })).unwrap()
    }

    fn deployment_of(value: &str) -> WorkloadDeployment {
        serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": {
                "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "dfw",
                "template": { "spec": spec(value) }, "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap()
    }

    /// A cell held each template as often as it has deployments, Instances and copies of it.
    #[test]
    fn shared_parts_of_deployment_instances_and_copies_are_one() {
        let of = deployment_of("shared");
        let [one, two] = [of.clone(), of.clone()].map(deployment);
        let instances: Vec<_> = (0..3).map(|_| instance(instance_of("shared"))).collect();
        let copy = instance_copy(instance_of("shared"));
        assert_eq!((&one, &instances[0]), (&of, &instance_of("shared")), "nothing changes by it");
        assert!(one.spec.template.is_same_as(&two.spec.template));
        let template = &one.spec.template.spec;
        for other in instances.iter().chain([&copy]) {
            assert!(other.spec.runtime.is_same_as(&template.runtime));
            assert!(other.spec.volumes.as_ref().unwrap().is_same_as(template.volumes.as_ref().unwrap()));
        }
        assert!(!instance(instance_of("other")).spec.runtime.is_same_as(&template.runtime));
    }

    #[test]
    fn shared_parts_that_no_object_has_are_forgotten() {
        let parts = Parts::<String>::default();
        let kept = parts.share("kept".to_owned().into());
        for n in 0..1000 {
            parts.share(n.to_string().into());
        }
        assert!(parts.0.lock().unwrap().parts.len() <= FEW + 1);
        assert!(parts.share("kept".to_owned().into()).is_same_as(&kept));
    }
}
