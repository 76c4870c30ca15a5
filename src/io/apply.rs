//! Executes one [`Write`]. All changes on API servers go through it, except those of the Lease.

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request as Requests,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Class, Error, REQUEST_TIMEOUT, clients::ControlPlane, encoded::Encoded};
use crate::plan::{
    Kind, Known, Object, ObjectVersion, Op, Plane, Standing, Write,
    takeover::{self, Part},
};

/// The object that a write stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its uid and resourceVersion.
    pub version: ObjectVersion,
    /// The part of the write that the server's answer confirms. `None` if the answer is not the whole object.
    pub standing: Option<Standing>,
}

impl<P: Plane> ControlPlane<P> {
    /// Executes `write` and returns the stored object. Returns `None` if the object is deleted, or if the write only reads.
    ///
    /// Deleting an absent object succeeds. Deleting or patching an object that has changed since the decision is a conflict.
    /// After a call without an answer, the connection is renewed.
    ///
    /// # Errors
    /// [`Error::class`] says how to react.
    pub async fn execute(&self, write: &Write<P>) -> Result<Option<Stored>, Error> {
        let Write { object, op, .. } = write;
        let (requests, name) = (requests(object), &*object.name);
        let patching = |manager: &str| PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let applying = |manager: &str, force| PatchParams { force, ..PatchParams::apply(manager) };
        let (verb, request) = match op {
            Op::Create { body, manager } => {
                let params = PostParams { field_manager: Some((*manager).into()), ..PostParams::default() };
                ("create", requests.create(&params, body.to_string().into_bytes()))
            }
            Op::Apply { body, manager, status: true, force } => {
                let patch = Patch::Apply(body);
                ("apply status of", requests.patch_subresource("status", name, &applying(manager, *force), &patch))
            }
            Op::Apply { body, manager, status: false, force } => {
                ("apply", requests.patch(name, &applying(manager, *force), &Patch::Apply(body)))
            }
            Op::Merge { body, manager } => ("patch", requests.patch(name, &patching(manager), &Patch::Merge(body))),
            Op::Delete { uid, resource_version } => ("delete", requests.delete(name, &deletion(uid, resource_version))),
            Op::TakeOver { uid, resource_version, manager, parts, .. } => {
                let judged = ObjectVersion::new(uid, resource_version);
                return Box::pin(self.take_over(object, &judged, manager, parts)).await;
            }
            live_read => return self.live_read(object, live_read).await.map(|()| None),
        };
        let answer = match self.call(object, verb, request).await {
            // A deleted object needs no deletion and takes no patch.
            Err(gone) if matches!(op, Op::Merge { .. } | Op::Delete { .. }) && gone.class() == Class::Gone => {
                return Ok(None);
            }
            answer => answer?,
        };
        if let Op::Delete { uid, .. } = op {
            self.deleted(object, uid, answer);
            return Ok(None);
        }
        // Compare the answer with the write only if the cached object was compared too, and if the answer is the whole object.
        let asked = write.standing().filter(|_| !object.kind.is_confidential()).and_then(|_| op.asked());
        Ok(answer.map(|answer| self.feed_back(object, &answer, asked.as_deref())))
    }

    /// Sends a request and returns the object of the answer. Sends nothing if the request cannot be built.
    async fn call(
        &self,
        object: &Object,
        verb: &str,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Option<Encoded>, Error> {
        let what = || format!("{verb} {object} in {}", self.name());
        let unreadable = |why: String| Error::Answer { call: what(), why };
        let request = request.map_err(|e| unreadable(e.to_string()))?;
        if object.kind.is_confidential() {
            let answer = self.call_confidential(what, request).await?;
            return Ok(Encoded::of(&answer).ok().map(Encoded::metadata_alone));
        }
        let answer =
            self.connection().within(REQUEST_TIMEOUT, what, self.connection().client().request_text(request)).await?;
        Encoded::of(&answer).map(Some).map_err(|e| unreadable(e.to_string()))
    }

    /// Executes a live read that a plan asks for.
    async fn live_read(&self, object: &Object, op: &Op) -> Result<(), Error> {
        match op {
            Op::ConfirmAbsent => self.confirm_gone(object, None).await,
            Op::ConfirmGone { uid } => self.confirm_gone(object, Some(uid)).await,
            Op::ConfirmPresent { uid } => self.confirm_present(object, uid, None).await,
            Op::ConfirmListed { label } => self.confirm_listed(object, label).await,
            Op::ConfirmUnchanged { uid, generation } => self.confirm_present(object, uid, Some(*generation)).await,
            Op::Create { .. } | Op::Apply { .. } | Op::Merge { .. } | Op::TakeOver { .. } | Op::Delete { .. } => Ok(()),
        }
    }

    /// Returns `None` if the object is deleted, or if no other manager owns fields of these parts.
    async fn take_over(
        &self,
        object: &Object,
        judged: &ObjectVersion,
        manager: &str,
        parts: &[Part],
    ) -> Result<Option<Stored>, Error> {
        let what = || format!("take over {object} in {}", self.name());
        if object.kind.is_confidential() {
            // No plan asks for this: the answer would contain the content.
            return Err(Error::Answer { call: what(), why: "its content is confidential".into() });
        }
        let api = self.api(object);
        let found = match self.connection().within(REQUEST_TIMEOUT, what, api.get_metadata(&object.name)).await {
            Err(gone) if gone.class() == Class::Gone => return Ok(None),
            found => found?,
        };
        let mut entries = found.metadata.managed_fields.unwrap_or_default();
        let (api_version, kind, _) = object.kind.gvk();
        let mut judged = judged.clone();
        if entries.is_empty() {
            // No manager owns a field yet, so an empty apply changes nothing. At the first apply the server assigns all existing
            // fields to a separate manager.
            let ObjectVersion { uid, resource_version } = &judged;
            let metadata = json!({ "name": object.name, "uid": uid, "resourceVersion": resource_version });
            let nothing = Patch::Apply(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }));
            let params = PatchParams { force: true, ..PatchParams::apply(manager) };
            let noted =
                self.connection().within(REQUEST_TIMEOUT, what, api.patch(&object.name, &params, &nothing)).await?;
            judged = ObjectVersion::of(&noted.metadata);
            entries = noted.metadata.managed_fields.unwrap_or_default();
        }
        let Some(entries) = takeover::taken_over(kind, &entries, manager, parts) else { return Ok(None) };
        let ObjectVersion { uid, resource_version } = judged;
        let metadata = json!({ "uid": uid, "resourceVersion": resource_version, "managedFields": entries });
        let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        match self.call(object, "take over", requests(object).patch(&object.name, &params, &patch)).await {
            Err(gone) if gone.class() == Class::Gone => Ok(None),
            answer => Ok(answer?.map(|answer| self.feed_back(object, &answer, None))),
        }
    }

    /// Updates the cache after a deletion. The server answers with the object if finalizers keep it, else with a status.
    fn deleted(&self, object: &Object, uid: &str, answer: Option<Encoded>) {
        let is_it = |answer: &Encoded| answer.identity().uid.as_deref() == Some(uid) && answer.is_terminating();
        match answer.filter(is_it) {
            Some(deleting) => drop(self.feed_back(object, &deleting, None)),
            None => {
                if let Some(sink) = self.sink(object.kind) {
                    sink.removed(object, uid);
                }
            }
        }
    }

    /// Puts the answer into the cache, because it is newer than anything the watch has delivered. The next reconcile must see it.
    /// `asked`: the body of the write, if the answer is the whole object.
    fn feed_back(&self, object: &Object, answer: &Encoded, asked: Option<&Value>) -> Stored {
        let (version, sink) = (ObjectVersion::of(answer.identity()), self.sink(object.kind));
        if answer.is_terminating() && !answer.has_finalizers() {
            // This write removed the last finalizer, and with it the object. A namespace is not deleted in this way.
            if let Some(sink) = sink.filter(|_| object.kind != Kind::Namespace) {
                sink.removed(object, &version.uid);
            }
            return Stored { version, standing: None };
        }
        let standing = asked.and_then(|asked| {
            let standing = answer.part(asked.as_object()?)?;
            Some(Standing::of(object.kind, asked, &standing))
        });
        if let Some(sink) = sink {
            sink.wrote(object.kind, answer);
        }
        Stored { version, standing }
    }

    /// Reads an object from the server, for the few decisions that a cache cannot support.
    ///
    /// # Errors
    /// Also if the server does not serve the path. `Ok(None)` only if the server reports this object as absent.
    pub async fn read<K: Known + DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let object = &Object::named::<K>(namespace, name);
        let what = || format!("get {object} in {}", self.name());
        let found = self.connection().within(REQUEST_TIMEOUT, what, self.api(object).get(&object.name)).await;
        match found {
            Ok(found) => serde_json::to_value(found)
                .and_then(serde_json::from_value)
                .map(Some)
                .map_err(|e| Error::Answer { call: what(), why: e.to_string() }),
            Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the metadata of an object from the server.
    ///
    /// # Errors
    /// Same as [`Self::read`].
    pub async fn read_metadata(&self, object: &Object) -> Result<Option<ObjectMeta>, Error> {
        let what = || format!("get {object} in {}", self.name());
        match self.connection().within(REQUEST_TIMEOUT, what, self.api(object).get_metadata(&object.name)).await {
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

    /// Succeeds if the server reports the object as absent. A 404 for the namespace, or for a path that is not served, is no proof.
    /// `uid`: the object that must be absent, if another object may have its name.
    async fn confirm_gone(&self, object: &Object, uid: Option<&str>) -> Result<(), Error> {
        let what = || format!("get {object} in {}", self.name());
        match self.connection().within(REQUEST_TIMEOUT, what, self.api(object).get_metadata(&object.name)).await {
            // Without a uid, any object of this name counts as the same one.
            Ok(found) if uid.is_some() && found.metadata.uid.as_deref().is_some_and(|found| Some(found) != uid) => {
                Ok(())
            }
            Ok(_) => Err(Error::StillThere(format!("{object} in {}", self.name()))),
            Err(error) if error.missing() == Some(object.kind.gvk().2) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn confirm_present(&self, object: &Object, uid: &str, generation: Option<i64>) -> Result<(), Error> {
        let what = || format!("get {object} in {}", self.name());
        match self.connection().within(REQUEST_TIMEOUT, what, self.api(object).get_metadata_opt(&object.name)).await? {
            Some(found) if found.metadata.uid.as_deref() == Some(uid) => {
                let is_same = generation.is_none() || generation == found.metadata.generation;
                if is_same { Ok(()) } else { Err(Error::Changed(format!("{object} in {}", self.name()))) }
            }
            // If a spec was compared, another object of this name is a change too.
            _ if generation.is_some() => Err(Error::Changed(format!("{object} in {}", self.name()))),
            _ => Err(Error::NotThere(format!("{object} in {}", self.name()))),
        }
    }

    async fn confirm_listed(&self, object: &Object, label: &str) -> Result<(), Error> {
        let what = || format!("list {object} in {}", self.name());
        let params =
            ListParams::default().fields(&format!("metadata.name={}", object.name)).labels(&format!("{label}=true"));
        let found = self.connection().within(REQUEST_TIMEOUT, what, self.api(object).list_metadata(&params)).await?;
        let is_there = found.items.iter().any(|found| found.metadata.deletion_timestamp.is_none());
        if is_there { Ok(()) } else { Err(Error::NotThere(format!("{object} in {}", self.name()))) }
    }
}

/// Returns the request builder for the kind and namespace of an object.
pub(super) fn requests(object: &Object) -> Requests {
    let namespace = Some(&*object.namespace).filter(|namespace| !namespace.is_empty());
    Requests::new(DynamicObject::url_path(&api_resource(object.kind), namespace))
}

/// Deletes exactly this version.
fn deletion(uid: &str, resource_version: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.into()), resource_version: Some(resource_version.into()) }),
        // Without background propagation the children of some kinds would keep running.
        ..DeleteParams::background()
    }
}

/// Returns the API resource of a kind.
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
    use std::{
        convert::identity,
        sync::{Arc, Mutex},
    };

    use super::*;
    use crate::{
        api::referenced::SourceKind,
        io::{
            clients::{Connection, Sink},
            stub_server::{StubServer, not_found},
        },
        plan::{Hub, Proof},
    };

    #[test]
    fn api_resource_any_kind_has_group_and_version() {
        let namespace = api_resource(Kind::Namespace);
        assert_eq!((namespace.group.as_str(), namespace.version.as_str()), ("", "v1"));
        let policy = api_resource(Kind::PropagationPolicy);
        assert_eq!((policy.group.as_str(), policy.version.as_str()), ("policy.karmada.io", "v1alpha1"));
    }

    /// Records the answers that reach a cache.
    #[derive(Default)]
    struct Fed(Mutex<Vec<String>>);

    impl Sink for Fed {
        fn wrote(&self, _: Kind, object: &Encoded) {
            self.0.lock().unwrap().push(format!("wrote {}", object.identity().uid.as_deref().unwrap()));
        }

        fn removed(&self, _: &Object, uid: &str) {
            self.0.lock().unwrap().push(format!("removed {uid}"));
        }
    }

    #[tokio::test]
    async fn execute_deletion_removes_the_object_from_the_cache_unless_a_finalizer_keeps_it() {
        let object = |metadata: Value| json!({ "apiVersion": "v1", "kind": "Any", "metadata": metadata });
        let kept = object(json!({ "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"] }));
        let done = json!({ "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success" });
        let gone = object(json!({ "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z" }));
        for kind in [Kind::Instance, Kind::Referenced(SourceKind::Secret)] {
            for (answer, expected) in [
                ((200, kept.clone()), &["wrote u"][..]),
                ((200, done.clone()), &["removed u"]),
                ((200, gone.clone()), &["removed u"]),
                (not_found(kind.gvk().2, "a"), &[]),
            ] {
                let fed = Arc::new(Fed::default());
                let server = StubServer::start(None, move |_: &_| answer.clone()).await;
                let connection = Connection::new(kube::Config::new(server.url.parse().unwrap())).unwrap();
                let hub = ControlPlane::<Hub>::new("hub", connection);
                hub.feed(kind, fed.clone());
                let object = Object { kind, namespace: "ns".into(), name: "a".into() };
                let steps =
                    Proof::of_target().delete_version(object, ObjectVersion::new("u", "7"), identity::<Write<Hub>>);
                assert!(hub.execute(&steps.into_steps()[0]).await.unwrap().is_none());
                assert_eq!(*fed.0.lock().unwrap(), expected);
                let seen = server.seen();
                assert!(seen[0].line.starts_with("DELETE ") && seen[0].body.contains("\"resourceVersion\":\"7\""));
            }
        }
    }
}
