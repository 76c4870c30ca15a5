//! What one sweep finds out about servers and hub namespaces, and what it remembers for the next one.

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

/// How long an Event that a sweep has stored is not sent again. API servers keep Events as long, unless they are configured otherwise.
const EVENT_LIFE: Duration = Duration::from_hours(1);

/// A server: its kind, and the project that it is of.
pub(super) type Server = (&'static str, Option<ProjectName>);

/// The hub.
pub(super) const HUB: Server = (Hub::NAME, None);

/// The server that is asked for the owner.
pub(super) fn server_of(observed: &Observed) -> Server {
    match observed.owner {
        Read::NotOnHub(_) => HUB,
        Read::NotInProject(_) | Read::NoNamespace { .. } => (Project::NAME, observed.project.clone()),
        Read::NoProject(_) => (Discovery::NAME, None),
    }
}

/// What sweeps remember. A restart forgets it: then what must be found twice is found once more, and each Event is sent once more.
#[derive(Default)]
pub(super) struct Memory {
    /// Uids of bindings without their template.
    pub(super) bindings: BTreeSet<String>,
    /// Uids of Works without their template.
    pub(super) works: BTreeSet<String>,
    pub(super) events: SentEvents,
}

/// When Events were stored, by name.
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
            Err(error) if error.class() != Class::Conflict => tracing::debug!(%error, "Event is lost"),
            _ => drop(self.0.insert(event.object.name.clone(), now.instant)),
        }
    }
}

/// One sweep.
pub(super) struct Round<'a> {
    pub(super) now: Now,
    /// How many hub namespaces this management plane keeps.
    pub(super) namespaces: usize,
    /// Hub namespaces as live reads have found them.
    pub(super) present: BTreeMap<String, NamespaceFacts>,
    /// Servers that have not answered. They are asked no more.
    pub(super) silent: BTreeSet<Server>,
    pub(super) events: &'a mut SentEvents,
}

impl Round<'_> {
    /// True if the hub, or this server, has not answered.
    pub(super) fn is_silent(&self, server: &Server) -> bool {
        self.silent.contains(&HUB) || self.silent.contains(server)
    }

    /// Takes note of an error.
    pub(super) fn failed(&mut self, stopped: &Stopped) {
        if is_silence(&stopped.error) {
            self.silent.insert(stopped.server.clone());
        }
    }
}

/// Why steps were not carried out to their end.
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
