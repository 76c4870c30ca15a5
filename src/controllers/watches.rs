//! The watches of one control plane: their common settings, and how each is started.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    io::{
        apply::api_resource,
        clients::ControlPlane,
        feed::Feed,
        health::Health,
        store::{Cache, IndexValue, Only, Store},
        watch::{Guarded, Metadata, WHOLE_PAGE_SIZE, Watch, Watched},
    },
    metrics::Metrics,
    plan::{Kind, Known, Plane},
    timing::WatchTiming,
};

/// The common settings of all watches of one control plane.
pub(super) struct Watches<'a, P> {
    pub(super) plane: &'a ControlPlane<P>,
    pub(super) health: &'a Health,
    pub(super) metrics: &'a Metrics,
    pub(super) timing: WatchTiming,
    pub(super) stop: &'a CancellationToken,
    /// True if this control plane belongs to one tenant among many.
    pub(super) tenant: bool,
    pub(super) on_fresh: Arc<dyn Fn() + Send + Sync>,
}

impl<P: Plane> Watches<'_, P> {
    /// Watches every object of a kind that we write, under `selector`. Answers to our writes feed the same store.
    pub(super) fn written<K, V>(&self, selector: &str, keep: fn(K) -> V, store: &Arc<Store<V, impl IndexValue>>)
    where
        K: Known + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        self.objects(selector, keep, store);
        self.plane.feed(K::KIND, Arc::new(Feed::<Guarded<K>, V, _> { keep, about: |_| true, store: store.clone() }));
    }

    /// Does the same for a kind of which only some objects are cached, both from the watch and from answers.
    pub(super) fn written_about<K, V>(
        &self,
        about: fn(&V) -> bool,
        keep: fn(K) -> V,
        store: &Arc<Store<V, impl IndexValue>>,
    ) where
        K: Known + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let cache = Arc::new(Only { cache: store.clone(), about });
        self.start_into::<Guarded<K>, V>((), "", WHOLE_PAGE_SIZE, keep, cache);
        self.plane.feed(K::KIND, Arc::new(Feed::<Guarded<K>, V, _> { keep, about, store: store.clone() }));
    }

    /// Watches every object of a kind under `selector`.
    pub(super) fn objects<K, V>(&self, selector: &str, keep: fn(K) -> V, store: &Arc<Store<V, impl IndexValue>>)
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + Sync
            + 'static,
        V: Send + Sync + 'static,
    {
        self.start::<Guarded<K>, V>(selector, keep, store);
    }

    pub(super) fn start<W, V>(&self, selector: &str, keep: fn(W::Object) -> V, store: &Arc<Store<V, impl IndexValue>>)
    where
        W: Watched<DynamicType = ()>,
        W::Object: Send,
        V: Send + Sync + 'static,
    {
        self.start_into::<W, V>((), selector, WHOLE_PAGE_SIZE, keep, store.clone());
    }

    /// Watches the metadata of every object of a kind under `selector`, with `page` objects per page of a list.
    pub(super) fn metadata<V>(
        &self,
        kind: Kind,
        selector: &str,
        page: u32,
        keep: fn(Metadata) -> V,
        cache: Arc<dyn Cache<V>>,
    ) where
        V: Send + Sync + 'static,
    {
        self.start_into::<Metadata, V>(api_resource(kind), selector, page, keep, cache);
    }

    fn start_into<W, V>(
        &self,
        kind: W::DynamicType,
        selector: &str,
        page: u32,
        keep: fn(W::Object) -> V,
        cache: Arc<dyn Cache<V>>,
    ) where
        W: Watched,
        W::Object: Send,
        V: Send + Sync + 'static,
    {
        let watch = Watch::<W, V> {
            kind,
            connection: self.plane.connection().clone(),
            place: self.plane.name().to_owned(),
            plane: P::NAME,
            selector: selector.to_owned(),
            keep,
            cache,
            on_fresh: self.on_fresh.clone(),
            page,
            tenant: self.tenant,
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            timing: self.timing,
        };
        watch.start(self.stop.clone());
    }
}
