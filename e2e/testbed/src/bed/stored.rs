//! Objects as etcd stores them, read and written past their API server. It shows them as if another API server had written them.
//! Thousands of objects take seconds in this way.

use std::collections::BTreeMap;

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::Testbed;
use crate::{control_plane::ControlPlane, prepared};

impl Testbed {
    /// Returns the stored texts of custom resources by their keys. `resource` is `group/plural/namespace`.
    pub async fn stored(&self, plane: &ControlPlane, resource: &str) -> Result<BTreeMap<String, String>> {
        let prefix = format!("/{}/", plane.name());
        let (from, to) = (format!("{prefix}{resource}/"), format!("{prefix}{resource}0"));
        let range = json!({ "key": STANDARD.encode(from), "range_end": STANDARD.encode(to) });
        let found = prepared::post(&self.etcd, "/v3/kv/range", &range).await?;
        let mut texts = BTreeMap::new();
        for pair in found["kvs"].as_array().into_iter().flatten() {
            let text = |field: &str| {
                Ok::<_, anyhow::Error>(String::from_utf8(STANDARD.decode(pair[field].as_str().unwrap_or_default())?)?)
            };
            texts.insert(text("key")?.replacen(&prefix, "", 1), text("value")?);
        }
        Ok(texts)
    }

    /// Stores texts of objects under these keys.
    pub async fn store(&self, plane: &ControlPlane, texts: impl IntoIterator<Item = (String, String)>) -> Result<()> {
        let pairs = texts.into_iter().map(|(key, text)| (key, STANDARD.encode(text)));
        prepared::write(&self.etcd, plane.name(), pairs).await
    }
}
