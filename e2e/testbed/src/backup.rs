//! A backup of one control plane. The restore raises the revisions and compacts the history, as etcd does for running API
//! servers. So no client mistakes old objects for new ones. The other control planes on the same etcd stay unchanged.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{control_plane::Etcd, prepared, process::signal};

/// All keys of one control plane in its etcd.
#[derive(Debug)]
pub struct Backup {
    plane: String,
    pairs: Vec<(String, String)>,
}

impl Backup {
    /// Backs up the control plane with this name.
    pub(crate) async fn take(etcd: &Etcd, plane: &str) -> Result<Self> {
        let found = prepared::post(etcd, "/v3/kv/range", &range(plane)).await?;
        let text = |pair: &Value, field: &str| pair[field].as_str().unwrap_or_default().to_owned();
        let pairs = found["kvs"].as_array().into_iter().flatten();
        // Temporary keys, such as those with a lease, are useless later.
        let stays = |pair: &&Value| pair["lease"].as_str().is_none_or(|lease| lease == "0");
        let pairs = pairs.filter(stays).map(|pair| (text(pair, "key"), text(pair, "value")));
        Ok(Self { plane: plane.to_owned(), pairs: pairs.collect() })
    }

    /// Replaces the current content. The API server must not run.
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

/// All data of etcd at one moment, with its revisions. An etcd that serves it has the old revisions, like one restored without
/// raising them.
#[derive(Debug)]
pub struct Snapshot {
    dir: PathBuf,
    name: String,
}

impl Snapshot {
    /// Copies the data of this etcd from the folder `etcd`. The process is stopped during the copy.
    pub(crate) fn take(etcd: &Etcd, dir: &Path) -> Result<Self> {
        let name = format!("etcd-{}", next());
        let pid = etcd.process.pid();
        signal(pid, Signal::STOP);
        let copied = copy(&dir.join("etcd"), &dir.join(&name));
        signal(pid, Signal::CONT);
        copied.map(|()| Self { dir: dir.into(), name })
    }

    /// Starts an etcd on a copy of the snapshot.
    pub(crate) fn serve(&self, bin: &Path) -> Result<Etcd> {
        let served = format!("{}-{}", self.name, next());
        copy(&self.dir.join(&self.name), &self.dir.join(&served))?;
        Etcd::serve(&self.dir, &served, bin)
    }
}

/// Returns a number that no other folder uses.
fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Copies a folder recursively.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).map(drop).with_context(|| target.display().to_string())?;
        }
    }
    Ok(())
}

fn range(plane: &str) -> Value {
    json!({ "key": STANDARD.encode(format!("/{plane}/")), "range_end": STANDARD.encode(format!("/{plane}0")) })
}
