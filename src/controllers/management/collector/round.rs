//! Results of one sweep about servers and hub namespaces, and the memory for the next sweep.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::{
    api::names::ProjectName,
    controllers::is_silence,
    io::{Class, Error, clients::ControlPlane, clock::Now},
    metrics::Metrics,
    plan::{
        Discovery, Hub, NamespaceFacts, Plane, Project, Write,
        management::collector::table::{Observed, Read},
    },
};

/// Time for which a stored Event is not sent again. By default, API servers keep Events for this long.
const EVENT_LIFE: Duration = Duration::from_hours(1);

/// A server: its kind, and its project.
pub(super) type Server = (&'static str, Option<ProjectName>);

/// The hub.
pub(super) const HUB: Server = (Hub::NAME, None);

/// Returns the server that is asked for the owner.
pub(super) fn server_of(observed: &Observed) -> Server {
    match observed.owner {
        Read::NotOnHub(_) => HUB,
        Read::NotInProject(_) | Read::NoNamespace { .. } => (Project::NAME, observed.project.clone()),
        Read::NoProject(_) => (Discovery::NAME, None),
    }
}

/// Memory of sweeps. After a restart, objects that two sweeps must find are found twice again, and each Event is sent once more.
#[derive(Default)]
pub(super) struct Memory {
    /// Uids of bindings without their template.
    pub(super) bindings: BTreeSet<String>,
    /// Uids of Works without their template.
    pub(super) works: BTreeSet<String>,
    pub(super) events: SentEvents,
}

/// Times when Events were stored, by name.
#[derive(Default)]
pub(super) struct SentEvents(BTreeMap<String, Instant>);

impl SentEvents {
    /// Forgets Events that may have expired.
    pub(super) fn expire(&mut self, now: Now) {
        self.0.retain(|_, at| now.instant.saturating_duration_since(*at) < EVENT_LIFE);
    }

    /// Sends an Event, unless it was stored within the last hour. A lost Event is no error.
    pub(super) async fn send(&mut self, hub: &ControlPlane<Hub>, event: &Write<Hub>, metrics: &Metrics, now: Now) {
        if self.0.contains_key(&event.object.name) {
            return;
        }
        metrics.wrote(Hub::NAME, "Event", "create");
        match hub.execute(event).await {
            // The server refuses an Event that it still has.
            Err(error) if error.class() != Class::Conflict => tracing::debug!(%error, "Event could not be written"),
            _ => drop(self.0.insert(event.object.name.clone(), now.instant)),
        }
    }
}

/// One sweep.
pub(super) struct Round<'a> {
    pub(super) now: Now,
    /// Number of hub namespaces that this management plane keeps.
    pub(super) namespaces: usize,
    /// Hub namespaces as live reads have found them.
    pub(super) present: BTreeMap<String, NamespaceFacts>,
    /// Servers that have not answered. This sweep does not ask them again.
    pub(super) silent: BTreeSet<Server>,
    pub(super) events: &'a mut SentEvents,
}

impl Round<'_> {
    /// True if the hub, or this server, has not answered.
    pub(super) fn is_silent(&self, server: &Server) -> bool {
        self.silent.contains(&HUB) || self.silent.contains(server)
    }

    /// Records an error.
    pub(super) fn failed(&mut self, stopped: &Stopped) {
        if is_silence(&stopped.error) {
            self.silent.insert(stopped.server.clone());
        }
    }
}

/// The reason why some steps were not carried out.
pub(super) struct Stopped {
    pub(super) error: Error,
    pub(super) server: Server,
    /// True if the hub refused a write. False for a live read.
    pub(super) is_write: bool,
}

impl Stopped {
    pub(super) fn read(error: Error, server: Server) -> Self {
        Self { error, server, is_write: false }
    }
}
