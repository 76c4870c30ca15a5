//! A backup of one control plane, restored as etcd does it for API servers that go on: with revisions raised, and the past
//! compacted, so that nobody takes the old for the new. The other control planes on the same etcd are left as they are.

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{control_plane::Etcd, prepared};

/// Everything that one control plane had in its etcd.
#[derive(Debug)]
pub struct Backup {
    plane: String,
    pairs: Vec<(String, String)>,
}

impl Backup {
    /// Of the control plane with this name.
    pub(crate) async fn take(etcd: &Etcd, plane: &str) -> Result<Self> {
        let found = prepared::post(etcd, "/v3/kv/range", &range(plane)).await?;
        let text = |pair: &Value, field: &str| pair[field].as_str().unwrap_or_default().to_owned();
        let pairs = found["kvs"].as_array().into_iter().flatten();
        // What passes by itself, a lease for instance, is of no use later.
        let stays = |pair: &&Value| pair["lease"].as_str().is_none_or(|lease| lease == "0");
        let pairs = pairs.filter(stays).map(|pair| (text(pair, "key"), text(pair, "value")));
        Ok(Self { plane: plane.to_owned(), pairs: pairs.collect() })
    }

    /// Puts it in the place of what is there. The API server must not run.
    pub(crate) async fn restore(&self, etcd: &Etcd) -> Result<()> {
        prepared::post(etcd, "/v3/kv/deleterange", &range(&self.plane)).await?;
        for pairs in self.pairs.chunks(50) {
            let puts: Vec<Value> =
                pairs.iter().map(|(key, value)| json!({ "requestPut": { "key": key, "value": value } })).collect();
            prepared::post(etcd, "/v3/kv/txn", &json!({ "success": puts })).await?;
        }
        let now = prepared::post(etcd, "/v3/kv/range", &json!({ "key": STANDARD.encode("/none") })).await?;
        let compact = json!({ "revision": now["header"]["revision"] });
        prepared::post(etcd, "/v3/kv/compaction", &compact).await.map(drop)
    }
}

fn range(plane: &str) -> Value {
    json!({ "key": STANDARD.encode(format!("/{plane}/")), "range_end": STANDARD.encode(format!("/{plane}0")) })
}
