//! The etcd content of an API server after the installation of definitions and roles, kept under the cache. Later testbeds start
//! with it, because the installation takes most of their start.
//!
//! The file name has a hash of all inputs. A file is written under a temporary name and then renamed, and an unreadable file
//! counts as absent. Parallel and killed processes do no harm.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::{
    binaries,
    control_plane::{Etcd, START_TIMEOUT},
    install::Role,
};

/// Keys that each API server creates for itself. They include the system namespaces, because Karmada distinguishes clusters by
/// the uid of `kube-system`.
const OWN: [&str; 10] = [
    "namespaces/default",
    "namespaces/kube-",
    "configmaps/kube-system/",
    "services/endpoints/",
    "endpointslices/",
    "leases/",
    "masterleases/",
    "peerserverleases/",
    "events/",
    "minions/",
];
/// etcd accepts 128 operations in a transaction, and 1.5 MiB in a request.
const OPERATIONS: usize = 100;
const REQUEST_BYTES: usize = 1 << 20;

/// The prepared data of one role.
#[derive(Debug)]
pub(crate) struct Prepared {
    file: PathBuf,
    role: &'static str,
}

impl Prepared {
    /// Returns the prepared data of this role for these API servers and files.
    pub(crate) fn of(role: Role, bin: &Path, files: &[PathBuf]) -> Result<Self> {
        let mut hash = DefaultHasher::new();
        let server = fs::metadata(bin.join("kube-apiserver"))?;
        (server.len(), server.modified()?).hash(&mut hash);
        for text in [include_str!("prepared.rs"), include_str!("install.rs"), include_str!("pki.rs")] {
            text.hash(&mut hash);
        }
        for file in files {
            fs::read(file).with_context(|| file.display().to_string())?.hash(&mut hash);
        }
        let name = format!("{}-{:016x}.json", role.name(), hash.finish());
        Ok(Self { file: binaries::cache().join("prepared").join(name), role: role.name() })
    }

    /// Writes the prepared data into etcd for the API server of this name, which must not run yet. Returns false if there is
    /// none.
    pub(crate) async fn give(&self, etcd: &Etcd, name: &str) -> Result<bool> {
        let Some(kept) = fs::read(&self.file).ok().and_then(|text| serde_json::from_slice(&text).ok()) else {
            return Ok(false);
        };
        let kept: BTreeMap<String, String> = kept;
        write(etcd, name, kept).await?;
        Ok(true)
    }

    /// Keeps the current data of the API server of this name, and removes older data of its role.
    pub(crate) async fn keep(&self, etcd: &Etcd, name: &str) -> Result<()> {
        let prefix = format!("/{name}/");
        let range = json!({ "key": STANDARD.encode(&prefix), "range_end": STANDARD.encode(format!("/{name}0")) });
        let found = post(etcd, "/v3/kv/range", &range).await?;
        let mut kept = BTreeMap::new();
        for pair in found["kvs"].as_array().into_iter().flatten() {
            let text = |field: &str| pair[field].as_str().unwrap_or_default();
            let key = String::from_utf8(STANDARD.decode(text("key"))?)?;
            let key = key.strip_prefix(&prefix).unwrap_or_default();
            let passes = pair["lease"].as_str().is_some_and(|lease| lease != "0");
            if !passes && !OWN.iter().any(|own| key.starts_with(own)) {
                kept.insert(key.to_owned(), text("value").to_owned());
            }
        }
        if kept.is_empty() {
            bail!("etcd has nothing under {prefix}");
        }
        let folder = self.file.parent().context("no folder")?;
        fs::create_dir_all(folder)?;
        remove_older(folder, &self.file, self.role)?;
        let whole = self.file.with_extension(format!("{}-{}", std::process::id(), fresh()));
        fs::write(&whole, serde_json::to_vec(&kept)?)?;
        Ok(fs::rename(&whole, &self.file)?)
    }
}

/// Removes data of older states of a role. A temporary file of another bed for the present state stays.
fn remove_older(folder: &Path, file: &Path, role: &str) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let is_of_role = entry.file_name().to_string_lossy().starts_with(&format!("{role}-"));
        if is_of_role && entry.path().file_stem() != file.file_stem() {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Returns a number that this process has not used yet.
fn fresh() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Writes values in base64 under these keys of the API server of this name.
pub(crate) async fn write(etcd: &Etcd, name: &str, pairs: impl IntoIterator<Item = (String, String)>) -> Result<()> {
    let (mut batch, mut size) = (Vec::new(), 0);
    for (key, value) in pairs {
        if !batch.is_empty() && (batch.len() == OPERATIONS || size + value.len() > REQUEST_BYTES) {
            put(etcd, std::mem::take(&mut batch)).await?;
            size = 0;
        }
        size += value.len();
        let key = STANDARD.encode(format!("/{name}/{key}"));
        batch.push(json!({ "requestPut": { "key": key, "value": value } }));
    }
    put(etcd, batch).await
}

async fn put(etcd: &Etcd, operations: Vec<Value>) -> Result<()> {
    post(etcd, "/v3/kv/txn", &json!({ "success": operations })).await.map(|_| ())
}

/// Sends a request to etcd's JSON gateway, once it listens.
pub(crate) async fn post(etcd: &Etcd, path: &str, body: &Value) -> Result<Value> {
    let address = etcd.url.strip_prefix("http://").context("etcd's address")?;
    let deadline = Instant::now() + START_TIMEOUT;
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > deadline => return Err(error).context("etcd does not listen"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let body = body.to_string();
    // With HTTP 1.0, the answer is one piece, and the connection ends with it.
    let head =
        format!("POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer of etcd")?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("etcd refuses {path}: {body}");
    }
    Ok(serde_json::from_str(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a fresh clone, one of two parallel beds deleted the file that the other was writing.
    #[test]
    fn older_prepared_data_is_removed_and_temporary_files_stay() {
        let folder = std::env::temp_dir().join(format!("prepared-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["cell-old.json", "cell-new.json", "cell-new.7-1", "hub-old.json"] {
            fs::write(folder.join(name), "").unwrap();
        }
        remove_older(&folder, &folder.join("cell-new.json"), "cell").unwrap();
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, ["cell-new.7-1", "cell-new.json", "hub-old.json"]);
    }
}
