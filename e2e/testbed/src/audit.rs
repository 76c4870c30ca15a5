//! Requests of the operator, read from an API server's audit log.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::PathBuf,
};

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::control_plane::ControlPlane;

/// An answered request of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `patch`, `update`, `delete`.
    pub verb: String,
    /// Plural, with `/status` for the subresource.
    pub resource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Field manager of the request, or empty.
    pub manager: String,
    /// Status code.
    pub code: u64,
    /// Time at which the request was received.
    pub at: Timestamp,
}

/// A position in an audit log. Earlier requests do not count.
#[derive(Clone, Debug)]
pub struct Audit {
    file: PathBuf,
    from: u64,
}

/// Returns the parameter `fieldManager` of a request. The operator's names need no decoding.
fn field_manager(uri: &str) -> String {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let named = query.split('&').find_map(|parameter| parameter.strip_prefix("fieldManager="));
    named.unwrap_or_default().to_owned()
}

/// A right as a role states it, used by a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The user of the request.
    pub user: String,
    /// `group/plural`, with `/status` for the subresource.
    pub resource: String,
    /// The verb.
    pub verb: String,
    /// True if the user's roles grant the right.
    pub had: bool,
}

/// Returns the rights that one request uses. An apply that creates its object uses two.
fn uses_of(event: &Value) -> Vec<Use> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = &event["objectRef"];
    let mut resource = format!("{}/{}", text(&target["apiGroup"]), text(&target["resource"]));
    if let Some(subresource) = target["subresource"].as_str() {
        resource = format!("{resource}/{subresource}");
    }
    let had = event["annotations"]["authorization.k8s.io/decision"] == "allow";
    let verb = text(&event["verb"]);
    let made = (verb == "patch" && event["responseStatus"]["code"] == 201).then(|| "create".to_owned());
    let user = text(&event["user"]["username"]);
    let of = |verb| Use { user: user.clone(), resource: resource.clone(), verb, had };
    [verb].into_iter().chain(made).map(of).collect()
}

impl Audit {
    /// Returns the rights used on a control plane since this time, without self reviews.
    pub fn uses(plane: &ControlPlane, since: Timestamp) -> Result<BTreeSet<Use>> {
        let mut uses = BTreeSet::new();
        for line in BufReader::new(File::open(plane.audit_log())?).lines() {
            let Ok(event) = serde_json::from_str::<Value>(&line?) else { continue };
            let at: Timestamp = event["requestReceivedTimestamp"].as_str().unwrap_or_default().parse()?;
            if at >= since && event["objectRef"].is_object() {
                uses.extend(uses_of(&event).into_iter().filter(|one| !one.resource.contains("/self")));
            }
        }
        Ok(uses)
    }

    /// Marks the current end of the log.
    pub fn mark(plane: &ControlPlane) -> Self {
        let file = plane.audit_log();
        let from = std::fs::metadata(&file).map_or(0, |meta| meta.len());
        Self { file, from }
    }

    /// Returns every request since the mark, without watches and leases.
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
