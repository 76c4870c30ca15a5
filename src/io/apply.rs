//! Carries out one [`Write`]: the only place that changes anything on an API server (the Lease aside).

use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
        PropagationPolicy,
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Class, Error, REQUEST_TIMEOUT, clients::ControlPlane, deadline};
use crate::plan::{
    Kind, Known, Object, ObjectVersion, Op, Plane, Standing, Write,
    takeover::{self, Part},
};

/// What a write has made.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The version of its object.
    pub version: ObjectVersion,
    /// What stands of it in the server's answer; nothing where the answer does not say.
    pub standing: Option<Standing>,
}

impl<P: Plane> ControlPlane<P> {
    /// Carries out `write`. To delete what is gone already is a success; to delete or patch what has changed since it was
    /// judged is a conflict. A call without an answer has the connection renewed. Answers with what
    /// the write made; with nothing when the object is gone or was only looked at.
    ///
    /// # Errors
    /// With the class that says how to react; see [`Error::class`].
    pub async fn execute(&self, write: &Write<P>) -> Result<Option<Stored>, Error> {
        if matches!(write.op, Op::Delete { .. }) && self.holds_deletion(&write.object) {
            return Err(Error::Held(format!("{} in {}", write.object, self.name())));
        }
        let done = self.send(write).await;
        if matches!(done, Err(Error::Deadline { .. })) {
            self.connection().renew();
        }
        done
    }

    async fn send(&self, write: &Write<P>) -> Result<Option<Stored>, Error> {
        let Write { object, op, .. } = write;
        if object.kind.is_confidential() && !op.is_look() {
            return self.send_confidential(object, op).await;
        }
        let api = self.api(object);
        let name = &object.name;
        let what = |verb: &'static str| move || format!("{verb} {object} in {}", self.name());
        let answer = match op {
            Op::Create { body, manager } => {
                let params = PostParams { field_manager: Some((*manager).into()), ..PostParams::default() };
                let body: DynamicObject = serde_json::from_value(body.clone())
                    .map_err(|e| Error::Answer { call: what("create")(), why: e.to_string() })?;
                deadline(REQUEST_TIMEOUT, what("create"), api.create(&params, &body)).await?
            }
            Op::Apply { body, manager, status, force } => {
                let params = PatchParams { force: *force, ..PatchParams::apply(manager) };
                if *status {
                    deadline(
                        REQUEST_TIMEOUT,
                        what("apply status of"),
                        api.patch_status(name, &params, &Patch::Apply(body)),
                    )
                    .await?
                } else {
                    deadline(REQUEST_TIMEOUT, what("apply"), api.patch(name, &params, &Patch::Apply(body))).await?
                }
            }
            Op::Merge { body, manager } => {
                let params = PatchParams { field_manager: Some((*manager).into()), ..PatchParams::default() };
                let patched =
                    deadline(REQUEST_TIMEOUT, what("patch"), api.patch(name, &params, &Patch::Merge(body))).await;
                match patched {
                    Err(gone) if gone.class() == Class::Gone => return Ok(None),
                    patched => patched?,
                }
            }
            Op::TakeOver { uid, resource_version, manager, parts, .. } => {
                let judged = ObjectVersion::new(uid, resource_version);
                match Box::pin(self.take_over(&api, object, &judged, manager, parts)).await? {
                    Some(taken) => taken,
                    None => return Ok(None),
                }
            }
            Op::Delete { uid, resource_version } => {
                self.delete(&api, object, uid, resource_version).await?;
                return Ok(None);
            }
            Op::ConfirmAbsent => {
                confirm_gone(&api, object, None, self.name()).await?;
                return Ok(None);
            }
            Op::ConfirmGone { uid } => {
                confirm_gone(&api, object, Some(uid), self.name()).await?;
                return Ok(None);
            }
            Op::ConfirmPresent { uid } => {
                confirm_present(&api, object, uid, None, self.name()).await?;
                return Ok(None);
            }
            Op::ConfirmListed { label } => {
                confirm_listed(&api, object, label, self.name()).await?;
                return Ok(None);
            }
            Op::ConfirmUnchanged { uid, generation } => {
                confirm_present(&api, object, uid, Some(*generation), self.name()).await?;
                return Ok(None);
            }
        };
        // What stands of it is only compared where that is known of before as well.
        Ok(Some(self.feed_back(object, answer, write.standing().and_then(|_| op.asked()).as_deref())))
    }

    /// Answers with nothing when the object is gone, or nobody else holds anything of these parts any more.
    async fn take_over(
        &self,
        api: &Api<DynamicObject>,
        object: &Object,
        judged: &ObjectVersion,
        manager: &str,
        parts: &[Part],
    ) -> Result<Option<DynamicObject>, Error> {
        let what = || format!("take over {object} in {}", self.name());
        let found = match deadline(REQUEST_TIMEOUT, what, api.get_metadata(&object.name)).await {
            Err(gone) if gone.class() == Class::Gone => return Ok(None),
            found => found?,
        };
        let mut entries = found.metadata.managed_fields.unwrap_or_default();
        let (api_version, kind, _) = object.kind.gvk();
        let mut judged = judged.clone();
        if entries.is_empty() {
            // Nobody holds anything, so an apply of nothing changes nothing; but at the first apply the server writes down
            // what was there before it, and from then on that is held by a manager of its own.
            let ObjectVersion { uid, resource_version } = &judged;
            let metadata = json!({ "name": object.name, "uid": uid, "resourceVersion": resource_version });
            let nothing = Patch::Apply(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }));
            let params = PatchParams { force: true, ..PatchParams::apply(manager) };
            let noted = deadline(REQUEST_TIMEOUT, what, api.patch(&object.name, &params, &nothing)).await?;
            judged = ObjectVersion::of(&noted.metadata);
            entries = noted.metadata.managed_fields.unwrap_or_default();
        }
        let Some(entries) = takeover::taken_over(kind, &entries, manager, parts) else { return Ok(None) };
        let ObjectVersion { uid, resource_version } = judged;
        let metadata = json!({ "uid": uid, "resourceVersion": resource_version, "managedFields": entries });
        let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        match deadline(REQUEST_TIMEOUT, what, api.patch(&object.name, &params, &patch)).await {
            Err(gone) if gone.class() == Class::Gone => Ok(None),
            patched => Ok(Some(patched?)),
        }
    }

    async fn delete(&self, api: &Api<DynamicObject>, object: &Object, uid: &str, version: &str) -> Result<(), Error> {
        let params = DeleteParams {
            // Without it the children of some kinds are left to run on.
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions { uid: Some(uid.into()), resource_version: Some(version.into()) }),
            ..DeleteParams::default()
        };
        let what = || format!("delete {object} in {}", self.name());
        match deadline(REQUEST_TIMEOUT, what, api.delete(&object.name, &params)).await {
            Ok(either) => {
                either.map_left(|deleting| drop(self.feed_back(object, deleting, None))).map_right(|_| {
                    if let Some(sink) = self.sink(object.kind) {
                        sink.removed(object, uid);
                    }
                });
                Ok(())
            }
            Err(gone) if gone.class() == Class::Gone => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The answer is newer than anything the watch has brought: whoever judges this object next must see it. `asked`: what the
    /// write asked for, where the answer is the whole object.
    pub(super) fn feed_back(&self, object: &Object, answer: DynamicObject, asked: Option<&Value>) -> Stored {
        let version = ObjectVersion::of(&answer.metadata);
        let terminated = answer.metadata.deletion_timestamp.is_some()
            && answer.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        let sink = self.sink(object.kind);
        if terminated {
            // The last finalizer went with this write, and the object with it; no namespace works that way.
            if let Some(sink) = sink.filter(|_| object.kind != Kind::Namespace) {
                sink.removed(object, &version.uid);
            }
            return Stored { version, standing: None };
        }
        let Ok(value) = serde_json::to_value(answer) else { return Stored { version, standing: None } };
        let standing = asked.map(|asked| Standing::of(object.kind, asked, &value));
        if let Some(sink) = sink {
            sink.wrote(value);
        }
        Stored { version, standing }
    }

    /// A live read, for the few decisions that a cache cannot carry.
    ///
    /// # Errors
    /// Also when the server does not serve the path; `Ok(None)` only when it says that this object is absent.
    pub async fn read<K: Known + DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let object = &Object::named::<K>(namespace, name);
        let what = || format!("get {object} in {}", self.name());
        let found = deadline(REQUEST_TIMEOUT, what, self.api(object).get(&object.name)).await;
        if matches!(found, Err(Error::Deadline { .. })) {
            self.connection().renew();
        }
        match found {
            Ok(found) => serde_json::to_value(found)
                .and_then(serde_json::from_value)
                .map(Some)
                .map_err(|e| Error::Answer { call: what(), why: e.to_string() }),
            Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A live read of an object's metadata alone.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn read_metadata(&self, object: &Object) -> Result<Option<ObjectMeta>, Error> {
        let what = || format!("get {object} in {}", self.name());
        match deadline(REQUEST_TIMEOUT, what, self.api(object).get_metadata(&object.name)).await {
            Ok(found) => Ok(Some(found.metadata)),
            Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn api(&self, object: &Object) -> Api<DynamicObject> {
        let resource = api_resource(object.kind);
        if object.namespace.is_empty() {
            Api::all_with(self.connection().client(), &resource)
        } else {
            Api::namespaced_with(self.connection().client(), &object.namespace, &resource)
        }
    }
}

/// Absent is only what the server says is absent: a 404 for the namespace, or for a path that it does not serve, is not.
/// `uid`: of the one that is to be gone, where another of its name may be there.
async fn confirm_gone(api: &Api<DynamicObject>, object: &Object, uid: Option<&str>, place: &str) -> Result<(), Error> {
    let what = || format!("get {object} in {place}");
    match deadline(REQUEST_TIMEOUT, what, api.get_metadata(&object.name)).await {
        // Without a uid it cannot be told apart from any other.
        Ok(found) if uid.is_some() && found.metadata.uid.as_deref().is_some_and(|found| Some(found) != uid) => Ok(()),
        Ok(_) => Err(Error::StillThere(format!("{object} in {place}"))),
        Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn confirm_present(
    api: &Api<DynamicObject>,
    object: &Object,
    uid: &str,
    generation: Option<i64>,
    place: &str,
) -> Result<(), Error> {
    let what = || format!("get {object} in {place}");
    match deadline(REQUEST_TIMEOUT, what, api.get_metadata_opt(&object.name)).await? {
        Some(found) if found.metadata.uid.as_deref() == Some(uid) => {
            let is_same = generation.is_none() || generation == found.metadata.generation;
            if is_same { Ok(()) } else { Err(Error::Changed(format!("{object} in {place}"))) }
        }
        // Of an object whose spec was judged, another of its name is a change as well.
        _ if generation.is_some() => Err(Error::Changed(format!("{object} in {place}"))),
        _ => Err(Error::NotThere(format!("{object} in {place}"))),
    }
}

async fn confirm_listed(api: &Api<DynamicObject>, object: &Object, label: &str, place: &str) -> Result<(), Error> {
    let what = || format!("list {object} in {place}");
    let params =
        ListParams::default().fields(&format!("metadata.name={}", object.name)).labels(&format!("{label}=true"));
    let found = deadline(REQUEST_TIMEOUT, what, api.list_metadata(&params)).await?;
    let is_there = found.items.iter().any(|found| found.metadata.deletion_timestamp.is_none());
    if is_there { Ok(()) } else { Err(Error::NotThere(format!("{object} in {place}"))) }
}

/// How requests for a kind are addressed.
pub fn api_resource(kind: Kind) -> ApiResource {
    let (api_version, kind, plural) = kind.gvk();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_address() {
        let namespace = api_resource(Kind::Namespace);
        assert_eq!((namespace.group.as_str(), namespace.version.as_str()), ("", "v1"));
        let policy = api_resource(Kind::PropagationPolicy);
        assert_eq!((policy.group.as_str(), policy.version.as_str()), ("policy.karmada.io", "v1alpha1"));
    }
}
