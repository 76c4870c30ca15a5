//! Complete lists, which start a watch and restart it when it cannot continue.

use std::time::Duration;

use kube::api::ListParams;

use super::{Entry, Error, ObjectKey, Watch, Watched, number};

/// Longest wait for one page of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

impl<W: Watched, V: Send + Sync + 'static> Watch<W, V>
where
    W::Object: Send,
{
    /// Fills the cache. Returns the version of the list, and true if etcd was restored since the last one. `restore_known`:
    /// another watch of this server has detected a restore.
    pub(super) async fn list(&self, entry: &Entry, restore_known: bool) -> Result<(u64, bool), Error> {
        let mut params = ListParams::default().labels(&self.selector).limit(self.page);
        let mut objects = Vec::new();
        loop {
            entry.trying();
            let page = self.connection.within(LIST_TIMEOUT, || self.call("list"), self.api().list(&params)).await?;
            let wanted = page.items.into_iter().filter(|object| self.cache.wants(&ObjectKey::of(object)));
            objects.extend(wanted.map(|object| self.take_in(object)));
            if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
                params = params.continue_token(&token);
            } else {
                let version = number(page.metadata.resource_version.as_deref());
                let another_history = restore_known || self.cache.is_older(&objects, version);
                if another_history {
                    let (kind, place) = (W::plural(&self.kind), &self.place);
                    tracing::warn!(kind = %kind, place, "etcd was restored or replaced: all objects are reconciled again");
                }
                self.cache.replace(objects, version);
                return Ok((version, another_history));
            }
        }
    }

    /// True if the server is at an older version than this one. A restarted server may have been restored from a backup.
    pub(super) async fn is_rewound(&self, version: u64, within: Duration) -> Result<bool, Error> {
        let params = ListParams::default().labels(&self.selector).limit(1);
        let page = self.connection.within(within, || self.call("list"), self.api().list_metadata(&params)).await?;
        let now = number(page.metadata.resource_version.as_deref());
        Ok(now > 0 && now < version)
    }
}
