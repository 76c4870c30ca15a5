//! What the operator asked of an API server, from the server's own audit log.

use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::PathBuf,
};

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::control_plane::ControlPlane;

/// One request of the operator, answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `patch`, `update`, `delete`.
    pub verb: String,
    /// Plural, with `/status` for the subresource.
    pub resource: String,
    /// Namespace, or nothing.
    pub namespace: String,
    /// Name, or nothing.
    pub name: String,
    /// Field manager that the request names, or nothing.
    pub manager: String,
    /// Status code.
    pub code: u64,
    /// When it was received.
    pub at: Timestamp,
}

/// A mark in an audit log; requests before it do not count.
#[derive(Clone, Debug)]
pub struct Audit {
    file: PathBuf,
    from: u64,
}

/// The parameter `fieldManager` of a request; those of ours need no decoding.
fn field_manager(uri: &str) -> String {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let named = query.split('&').find_map(|parameter| parameter.strip_prefix("fieldManager="));
    named.unwrap_or_default().to_owned()
}

impl Audit {
    /// From now on.
    pub fn mark(plane: &ControlPlane) -> Self {
        let file = plane.audit_log();
        let from = std::fs::metadata(&file).map_or(0, |meta| meta.len());
        Self { file, from }
    }

    /// Every request since the mark, watches and leases aside.
    pub fn requests(&self) -> Result<Vec<Request>> {
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut requests = Vec::new();
        for line in BufReader::new(file).lines() {
            let Ok(event) = serde_json::from_str::<Value>(&line?) else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let target = &event["objectRef"];
            let (verb, mut resource) = (text(&event["verb"]), text(&target["resource"]));
            if verb == "watch" || resource == "leases" {
                continue;
            }
            if let Some(subresource) = target["subresource"].as_str() {
                resource = format!("{resource}/{subresource}");
            }
            requests.push(Request {
                verb,
                resource,
                namespace: text(&target["namespace"]),
                name: text(&target["name"]),
                manager: field_manager(event["requestURI"].as_str().unwrap_or_default()),
                code: event["responseStatus"]["code"].as_u64().unwrap_or(0),
                at: text(&event["requestReceivedTimestamp"]).parse()?,
            });
        }
        Ok(requests)
    }
}
