//! Reasons of conditions and Events: each is defined once, with its rank, its class, and whether it travels between planes.
//!
//! What a person needs to know about a reason is its [`Entry`], in the file of its class. `docs/reasons.md` is generated from the
//! entries.

mod data;
mod delivery;
mod events;
mod instance;
mod network;
pub mod page;
mod placement;
mod progress;
mod quota;

use std::fmt;

/// Address of the pages of this version. Links in alerts and messages begin with it.
pub const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/v", env!("CARGO_PKG_VERSION"), "/docs");

/// Subject of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// No problem.
    Success,
    /// Work in progress.
    Progress,
    /// The Instance itself, as its provider reports it.
    Instance,
    /// Networks.
    Network,
    /// Quota.
    Quota,
    /// Referenced data that has not arrived.
    Data,
    /// A ConfigMap or Secret that cannot be copied; its owner or the referring user can fix it.
    Source,
    /// Delivery between the hub and the cell.
    Delivery,
    /// A Workload's placement.
    Placement,
    /// Used only in Events.
    Event,
    /// Another component's own reason, passed on unchanged.
    Foreign,
}

/// Party that can resolve a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitsFor {
    /// The owner of the Workload or of the data that it refers to.
    Tenant,
    /// The operators of the federation, as far as is known.
    Platform,
    /// One project's API server, or a webhook that it calls. A webhook may be the tenant's. So no alert counts it, and a tenant
    /// cannot call the platform's operators by a broken webhook.
    Project,
}

impl WaitsFor {
    /// Returns the metric label. Alerts for the federation's operators depend on it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Platform => "platform",
            Self::Project => "project",
        }
    }
}

/// Party that acts on a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum Who {
    /// The owner of the Workload, or of an object that it refers to.
    Tenant,
    /// The team that runs the federation.
    Platform,
    /// No person has to act.
    Nobody,
}

impl Who {
    /// Returns the word for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Platform => "platform",
            Self::Nobody => "nobody",
        }
    }
}

/// Place where a reason is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    /// A condition of this kind of object.
    Condition {
        /// Kind of the object.
        kind: &'static str,
        /// Type of the condition.
        name: &'static str,
    },
    /// An Event on this kind of object.
    Event {
        /// Kind of the object.
        kind: &'static str,
    },
}

impl Seen {
    const fn condition(kind: &'static str, name: &'static str) -> Self {
        Self::Condition { kind, name }
    }

    const fn event(kind: &'static str) -> Self {
        Self::Event { kind }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition { kind, name } => write!(f, "condition `{name}` of {kind}"),
            Self::Event { kind } => write!(f, "Event on {kind}"),
        }
    }
}

/// Explanation of a reason for people. Texts are sentences in Markdown.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The problem, or the state.
    pub meaning: &'static str,
    /// The effect on what runs, and on what is new.
    pub effect: &'static str,
    /// The party that acts.
    pub who: Who,
    /// Actions that resolve it, in order. A command is in a code span, with placeholders in capitals.
    pub steps: &'static [&'static str],
    /// The conditions and Events that have it.
    pub seen_in: &'static [Seen],
    /// Alerts of `config/components/alerts` that fire for it.
    pub alerts: &'static [&'static str],
    /// File in `docs/runbooks`, with or without the anchor of a section.
    pub runbook: Option<&'static str>,
}

impl Entry {
    /// Returns the commands of the steps, in order.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        let spans = self.steps.iter().flat_map(|step| step.split('`').skip(1).step_by(2));
        spans.filter(|span| ["kubectl ", "karmadactl ", "curl "].iter().any(|program| span.starts_with(program)))
    }
}

/// Builds [`Reason`] from one table, so that a reason without a rank, a class, a spelling or an entry does not compile.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident: $class:ident, rank $rank:literal, $travel:ident;)*) => {
        /// Machine-readable cause of a condition or an Event, in CamelCase.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
            /// A reason of another component (a provider, network services, the Go operator) that has no rank here.
            Foreign(String),
        }

        impl Reason {
            /// All of our own reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the spelling in conditions and Events.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Foreign(word) => word,
                }
            }

            /// Returns the severity. Of several reasons the one with the highest rank is shown.
            pub fn rank(&self) -> u8 {
                match self {
                    $(Self::$name => $rank,)*
                    Self::Foreign(_) => 0,
                }
            }

            /// Returns the subject of the reason.
            pub fn class(&self) -> Class {
                match self {
                    $(Self::$name => Class::$class,)*
                    Self::Foreign(_) => Class::Foreign,
                }
            }

            /// Returns the explanation for people. `None` for a reason of another component.
            pub fn entry(&self) -> Option<&'static Entry> {
                match self {
                    $(Self::$name => Some(entry!($class, $name)),)*
                    Self::Foreign(_) => None,
                }
            }

            /// True if it is taken over from another plane or component with its own rank, because users know it.
            pub fn travels(&self) -> bool {
                match self {
                    $(Self::$name => travel!($travel),)*
                    Self::Foreign(_) => false,
                }
            }
        }
    };
}

/// Maps the table's word for "travels" to a bool.
macro_rules! travel {
    (travels) => {
        true
    };
    (stays) => {
        false
    };
}

/// Finds the entry of a reason: it has the name of the reason, in the module of the class.
macro_rules! entry {
    (Success, $name:ident) => {
        &progress::$name
    };
    (Progress, $name:ident) => {
        &progress::$name
    };
    (Instance, $name:ident) => {
        &instance::$name
    };
    (Network, $name:ident) => {
        &network::$name
    };
    (Quota, $name:ident) => {
        &quota::$name
    };
    (Data, $name:ident) => {
        &data::$name
    };
    (Source, $name:ident) => {
        &data::$name
    };
    (Delivery, $name:ident) => {
        &delivery::$name
    };
    (Placement, $name:ident) => {
        &placement::$name
    };
    (Event, $name:ident) => {
        &events::$name
    };
}

reasons! {
    /// Instance: ready, as its provider reports.
    Available: Success, rank 0, stays;
    /// Quota is not configured, so nothing is counted.
    QuotaDisabled: Success, rank 0, stays;
    /// Quota is granted.
    QuotaAvailable: Success, rank 0, stays;
    /// Networks are ready.
    NetworkReady: Success, rank 0, stays;
    /// WorkloadDeployment: at least one Instance is ready.
    StableInstanceFound: Success, rank 0, stays;
    /// WorkloadDeployment: every desired Instance is ready.
    ReplicasAvailable: Success, rank 0, stays;
    /// Workload: at least one placement is available.
    AvailablePlacementFound: Success, rank 0, stays;
    /// Placement: at least one of its deployments is available.
    AvailableDeploymentFound: Success, rank 0, stays;
    /// Companions are in place.
    Ready: Success, rank 0, stays;
    /// Applied on the cell.
    Propagated: Success, rank 0, stays;
    /// Instance of a cell: its copy cannot be written to the hub yet.
    NotWrittenBack: Progress, rank 0, stays;
    /// Not evaluated yet.
    Pending: Progress, rank 0, stays;
    /// Instance: scheduling gates are left.
    SchedulingGatesPresent: Progress, rank 0, stays;
    /// Instance: the provider has not programmed it.
    PendingProgramming: Progress, rank 1, stays;
    /// Instance: the provider starts it.
    Provisioning: Progress, rank 1, stays;
    /// Quota has not answered yet.
    PendingEvaluation: Progress, rank 0, stays;
    /// Instance and WorkloadDeployment: stopped while its project is suspended.
    Suspended: Instance, rank 8, stays;
    /// WorkloadDeployment: no instance is ready yet.
    InstancesProvisioning: Progress, rank 1, stays;
    /// Workload: none of its placements is available.
    NoAvailablePlacements: Progress, rank 0, stays;
    /// Placement: none of its deployments is available.
    NoAvailableDeployments: Progress, rank 0, stays;
    /// Instance, from its provider: the image cannot be pulled.
    ImageUnavailable: Instance, rank 5, stays;
    /// Instance, from its provider: it starts and exits repeatedly.
    InstanceCrashing: Instance, rank 5, stays;
    /// Instance, from its provider: its configuration cannot be run.
    ConfigurationError: Instance, rank 5, stays;
    /// WorkloadDeployment: the cell's API server rejects an Instance of it.
    InstanceRefused: Instance, rank 5, stays;
    /// Networks are being created.
    NetworkProvisioning: Network, rank 2, stays;
    /// A network cannot be created in the location.
    NetworkFailedToCreate: Network, rank 7, travels;
    /// A requested network does not exist.
    NetworkNotFound: Network, rank 6, travels;
    /// The network's project is unknown to the network services.
    ProjectUnresolved: Network, rank 6, travels;
    /// The network services do not serve the location.
    LocationNotAvailable: Network, rank 6, travels;
    /// The cell knows no location of the deployment's city.
    NoMatchingLocation: Network, rank 2, stays;
    /// Network services, and the Go operator: the cell knows several locations of the deployment's city.
    AmbiguousServingLocation: Network, rank 8, stays;
    /// Network services: the location is not the requested one.
    LocationMismatch: Network, rank 8, stays;
    /// The project has not enough quota left.
    QuotaExceeded: Quota, rank 3, stays;
    /// The requested resources cannot be counted.
    ValidationFailed: Quota, rank 3, stays;
    /// The quota backend does not answer, or answers with an error.
    QuotaBackendUnavailable: Quota, rank 3, stays;
    /// The quota backend knows no such project.
    QuotaProjectNotFound: Quota, rank 3, stays;
    /// The project has no such namespace.
    QuotaNamespaceNotFound: Quota, rank 3, stays;
    /// Permissions, definitions or settings are wrong: a person must act.
    QuotaMisconfigured: Quota, rank 3, stays;
    /// The cell's namespace does not name its project.
    QuotaProjectIDUnresolvable: Quota, rank 3, stays;
    /// Quota left the claim unevaluated for long; the project may have no budget.
    QuotaNoBudget: Quota, rank 3, stays;
    /// Another cell holds the ResourceClaim that an Instance needs.
    QuotaClaimHeld: Quota, rank 3, stays;
    /// Instance: quota is not granted yet.
    PendingQuota: Quota, rank 3, stays;
    /// Instance, of the Go operator: quota is not granted.
    QuotaNotGranted: Quota, rank 3, stays;
    /// The referenced data is being looked up.
    Resolving: Data, rank 4, stays;
    /// Companions have not arrived.
    AwaitingPropagation: Data, rank 4, stays;
    /// Instance, of the Go operator: companions are not in place.
    ReferencedDataNotReady: Data, rank 4, stays;
    /// A referenced source does not exist.
    SourceNotFound: Source, rank 5, travels;
    /// A source may not be read.
    SourceUnauthorized: Source, rank 5, travels;
    /// A source, or all of them together, exceed the size limit.
    SourceTooLarge: Source, rank 5, travels;
    /// The deployment refers to too many sources.
    TooManySources: Source, rank 5, travels;
    /// A source's name leaves no room for the names that Karmada derives from it.
    SourceNameTooLong: Source, rank 5, travels;
    /// The companion's name is taken by an object that is not ours.
    SourceNameTaken: Source, rank 5, travels;
    /// The hub rejects the copy of a source.
    SourceRefused: Source, rank 5, travels;
    /// The copy of a source on the hub must be recreated, and its deletion is blocked.
    SourceCopyHeld: Source, rank 5, travels;
    /// No cluster carries the city's label.
    NoClusterForCity: Delivery, rank 6, stays;
    /// The city's cluster is not ready.
    ClusterNotReady: Delivery, rank 6, stays;
    /// The cluster that runs it has lost the city's label; it is kept there.
    CityLabelLost: Delivery, rank 0, stays;
    /// The cluster that runs it is being drained, and the drain is blocked; it is kept there.
    DrainWaiting: Delivery, rank 0, stays;
    /// Karmada found no cluster, for another reason.
    NotScheduled: Delivery, rank 6, stays;
    /// The cluster rejects it, or has not applied it.
    NotApplied: Delivery, rank 6, stays;
    /// The cluster has it, and the cell's manager does not report about it.
    CellNotReporting: Delivery, rank 6, stays;
    /// Karmada created no binding, or the binding was removed.
    BindingMissing: Delivery, rank 6, stays;
    /// Instance: another cell holds its copy on the hub, and the hand-over has to wait.
    HandOverWaits: Delivery, rank 6, stays;
    /// Propagation is suspended in Karmada.
    PropagationSuspended: Delivery, rank 6, stays;
    /// Another policy sends it elsewhere.
    ClaimedByAnotherPolicy: Delivery, rank 6, stays;
    /// The deployment is propagated without its dependencies.
    DependenciesNotPropagated: Delivery, rank 6, stays;
    /// The hub does not answer, or does not show its objects: the status of the deployment is unknown.
    HubUnavailable: Delivery, rank 6, stays;
    /// The hub rejects a write.
    HubRefused: Delivery, rank 6, stays;
    /// The deployment's namespace on the hub is terminating.
    HubNamespaceTerminating: Delivery, rank 6, stays;
    /// The deployment's copy on the hub must be deleted, and its deletion is blocked.
    HubCopyHeld: Delivery, rank 6, stays;
    /// Other large deployments of the namespace are copied to the hub first.
    RateLimited: Delivery, rank 6, stays;
    /// The project's API server rejects the copies of the deployment's Instances, which run without a problem.
    InstancesNotShown: Delivery, rank 0, stays;
    /// Workload, placement and WorkloadDeployment: the project's API server rejects the operator's writes.
    ProjectRefused: Delivery, rank 6, stays;
    /// Placement and Workload: a city is not open to the project.
    NoMatchingLocations: Placement, rank 6, stays;
    /// Placement and Workload: the spec cannot be carried out; the message says why and how to fix it.
    InvalidPlacement: Placement, rank 8, stays;
    /// Placement, Workload and WorkloadDeployment: it exceeds a limit; the message names the limit and the value.
    LimitExceeded: Placement, rank 8, stays;
    /// Placement: a WorkloadDeployment of the wanted name belongs to another owner.
    DeploymentNameTaken: Placement, rank 8, stays;
    /// Placement and Workload: the operator may not write a deployment.
    DeploymentForbidden: Placement, rank 8, stays;
    /// Placement and Workload: a quota, a webhook or a policy of the project rejects a deployment.
    DeploymentDenied: Placement, rank 8, stays;
    /// Workload: it is being deleted, and the deletion of its deployments is blocked.
    DeletionWaits: Placement, rank 8, stays;
    /// Workload: it asks for autoscaling, which the operator does not do.
    AutoscalingNotServed: Placement, rank 0, stays;
    /// Event: a ResourceClaim was left behind.
    QuotaClaimOrphaned: Event, rank 0, stays;
    /// Event: a removed object is recreated.
    Repaired: Event, rank 0, stays;
    /// Event: a hub Instance cannot be shown in a project.
    Quarantined: Event, rank 0, stays;
    /// Event: an Instance that a user created in a project has the name of one to be shown.
    PlaceTaken: Event, rank 0, stays;
    /// Event: a policy is deleted although it still claims companions.
    CompanionsStillClaimed: Event, rank 0, stays;
    /// Event: an unneeded policy waits for companions that it claims.
    AwaitingCompanions: Event, rank 0, stays;
    /// Event: a hub namespace belongs to a project that does not exist.
    Stranded: Event, rank 0, stays;
    /// Event: the operator cannot read an object, or its own annotation on it, and leaves the object unchanged.
    Unreadable: Event, rank 0, stays;
    /// Event: the hub rejects the deletion of unneeded objects.
    RemovalRefused: Event, rank 0, stays;
    /// Event: Karmada keeps an object on a cluster that is deleted on the hub.
    LeftOnCluster: Event, rank 0, stays;
    /// Event: the original of a copy on the hub is gone without a deletion that the operator saw, and the copy is kept for a while.
    DeletionsPaused: Event, rank 0, stays;
    /// Event: a city did not arrive on the target cluster of a drain, and is brought back.
    DrainFailed: Event, rank 0, stays;
    /// Event: a drain ended; nothing of the city has to leave the cluster.
    DrainEnded: Event, rank 0, stays;
    /// Event: several clusters carry a city's label; the message names the one that has the city, or all that have it.
    SeveralClusters: Event, rank 0, stays;
    /// Event: a field that another writer set in a city's policy is removed again.
    PolicyFieldsRemoved: Event, rank 0, stays;
    /// Event: a city is spelt in several ways, and all of them count.
    SeveralSpellings: Event, rank 0, stays;
    /// Event: the rollback to claims removes data from a city.
    DataWillBeLost: Event, rank 0, stays;
    /// Event: a policy of the Go operator has moved one step towards dependencies.
    MigrationStep: Event, rank 0, stays;
    /// Event: Karmada on this hub does not propagate dependencies, so policies of the Go operator are kept as they are.
    MigrationRefused: Event, rank 0, stays;
    /// Event: fields of another field manager on an object that the operator derives pass to the operator.
    FieldsTakenOver: Event, rank 0, stays;
    /// Event: another writer repeatedly reverts the operator's writes to an object.
    WritesTakenBack: Event, rank 0, stays;
    /// Event: the API server drops or changes fields that the operator writes.
    WritesNotKept: Event, rank 0, stays;
    /// Event: an Instance is deleted, because its ordinal is out of range or another Instance has it.
    StrayInstance: Event, rank 0, stays;
    /// Event: the claim of a cell that is no member any more is deleted, and its successor may create its own.
    ClaimFreed: Event, rank 0, stays;
    /// Event: the gate of an Instance that waited for its data is open.
    GateOpened: Event, rank 0, stays;
    /// Event: an Instance is deleted, because fewer are wanted or its template has changed.
    Terminating: Event, rank 0, stays;
    /// Event: the number of wanted Instances has changed.
    Scaled: Event, rank 0, stays;
    /// Event: no deployment can show whether Karmada propagates dependencies, so policies of the Go operator wait.
    MigrationWaits: Event, rank 0, stays;
}

impl Reason {
    /// Returns the party that can resolve it: the tenant if the entry says so, else the platform.
    pub fn waits_for(&self) -> WaitsFor {
        match (self, self.entry()) {
            (Self::ProjectRefused, _) => WaitsFor::Project,
            (_, Some(Entry { who: Who::Tenant, .. })) => WaitsFor::Tenant,
            _ => WaitsFor::Platform,
        }
    }

    /// Returns the address of the explanation. A reason of another component has the address of the whole page.
    pub fn url(&self) -> String {
        match self.entry() {
            Some(_) => format!("{DOCS}/reasons.md#{}", self.as_str().to_lowercase()),
            None => format!("{DOCS}/reasons.md"),
        }
    }
}

impl From<&str> for Reason {
    fn from(word: &str) -> Self {
        let known = Self::ALL.iter().find(|reason| reason.as_str() == word);
        known.cloned().unwrap_or_else(|| Self::Foreign(word.to_owned()))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for Reason {
    fn eq(&self, word: &str) -> bool {
        self.as_str() == word
    }
}

impl PartialEq<&str> for Reason {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

impl PartialEq<Reason> for String {
    fn eq(&self, reason: &Reason) -> bool {
        self == reason.as_str()
    }
}

impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
