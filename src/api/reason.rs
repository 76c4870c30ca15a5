//! Reasons of conditions and Events: each once, with how it ranks, what it speaks of, and whether it may travel.

use std::fmt;

/// What a reason speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// All is well.
    Success,
    /// Things take their course.
    Progress,
    /// The Instance itself, in its provider's words.
    Instance,
    /// Networks.
    Network,
    /// Quota.
    Quota,
    /// Referenced data on its way.
    Data,
    /// A ConfigMap or Secret that cannot be copied; whoever owns it, or refers to it, can mend it.
    Source,
    /// What happens between the hub and the cell.
    Delivery,
    /// A Workload's placement.
    Placement,
    /// Used in Events alone.
    Event,
    /// Another component's own word, passed on as it is.
    Foreign,
}

/// Who can mend what a reason speaks of, where somebody has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitsFor {
    /// Whoever owns the Workload, or what it refers to.
    Tenant,
    /// Whoever runs the federation, as far as anybody can tell.
    Platform,
}

impl WaitsFor {
    /// The label of metrics; alerts, which call for whoever runs the federation, rest on it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Platform => "platform",
        }
    }
}

/// Builds [`Reason`] from one table, so that a reason without a rank, a class or a spelling does not compile.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident: $class:ident, rank $rank:literal, $travel:ident $(, $tenant:ident)?;)*) => {
        /// Why a condition is as it is, or an Event was sent: a CamelCase word for machines.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
            /// A word of another component (a provider, network services, the Go operator) that has no rank here.
            Foreign(String),
        }

        impl Reason {
            /// All of our own.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As it stands in conditions and Events.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Foreign(word) => word,
                }
            }

            /// How bad it is; the worst of several is the one shown (contract, sections 3.1 to 3.3).
            pub fn rank(&self) -> u8 {
                match self {
                    $(Self::$name => $rank,)*
                    Self::Foreign(_) => 0,
                }
            }

            /// What it speaks of.
            pub fn class(&self) -> Class {
                match self {
                    $(Self::$name => Class::$class,)*
                    Self::Foreign(_) => Class::Foreign,
                }
            }

            /// Who can mend it: a tenant where the table says so.
            pub fn waits_for(&self) -> WaitsFor {
                match self {
                    $(Self::$name => waits_for!($($tenant)?),)*
                    Self::Foreign(_) => WaitsFor::Platform,
                }
            }

            /// Whether it is taken over from what another plane or component says, with its own rank: users know it.
            pub fn travels(&self) -> bool {
                match self {
                    $(Self::$name => travel!($travel),)*
                    Self::Foreign(_) => false,
                }
            }
        }
    };
}

/// The word for "travels" in the table.
macro_rules! travel {
    (travels) => {
        true
    };
    (stays) => {
        false
    };
}

/// The word for "a tenant can mend it" in the table; without it the platform has to.
macro_rules! waits_for {
    (tenant) => {
        WaitsFor::Tenant
    };
    () => {
        WaitsFor::Platform
    };
}

reasons! {
    /// Instance, and provider.
    Available: Success, rank 0, stays;
    /// Quota is not configured, nothing is counted.
    QuotaDisabled: Success, rank 0, stays;
    /// Quota is granted.
    QuotaAvailable: Success, rank 0, stays;
    /// Networks are there.
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
    /// The cell has what the hub was given.
    Propagated: Success, rank 0, stays;
    /// Instance of a cell: the hub cannot be told of it yet.
    NotWrittenBack: Progress, rank 0, stays;
    /// Nothing looked at yet.
    Pending: Progress, rank 0, stays;
    /// Instance: gates are left.
    SchedulingGatesPresent: Progress, rank 0, stays;
    /// Instance: the provider has not programmed it.
    PendingProgramming: Progress, rank 1, stays;
    /// Instance: the provider starts it.
    Provisioning: Progress, rank 1, stays;
    /// Quota has not answered yet.
    PendingEvaluation: Progress, rank 0, stays;
    /// Instance and WorkloadDeployment: stopped until whoever suspended its project lets it go on.
    Suspended: Instance, rank 8, stays;
    /// WorkloadDeployment: no instance is ready yet.
    InstancesProvisioning: Progress, rank 1, stays;
    /// Workload: none of its placements is available.
    NoAvailablePlacements: Progress, rank 0, stays;
    /// Placement: none of its deployments is available.
    NoAvailableDeployments: Progress, rank 0, stays;
    /// Instance, of its provider: the image cannot be had.
    ImageUnavailable: Instance, rank 5, stays, tenant;
    /// Instance, of its provider: it starts and ends again and again.
    InstanceCrashing: Instance, rank 5, stays, tenant;
    /// Instance, of its provider: what it is told to run cannot be run.
    ConfigurationError: Instance, rank 5, stays, tenant;
    /// WorkloadDeployment: the cell's API server does not take an Instance of it.
    InstanceRefused: Instance, rank 5, stays;
    /// Networks are on their way.
    NetworkProvisioning: Network, rank 2, stays;
    /// A network cannot be made in the location.
    NetworkFailedToCreate: Network, rank 7, travels;
    /// A network that is asked for does not exist.
    NetworkNotFound: Network, rank 6, travels, tenant;
    /// The network's project is unknown to the network services.
    ProjectUnresolved: Network, rank 6, travels;
    /// The network services do not serve the location.
    LocationNotAvailable: Network, rank 6, travels;
    /// The cell knows no location of the deployment's city.
    NoMatchingLocation: Network, rank 2, stays;
    /// Network services, and the Go operator: the cell knows several locations of the deployment's city.
    AmbiguousServingLocation: Network, rank 8, stays;
    /// Network services: the location is not the one that was asked for.
    LocationMismatch: Network, rank 8, stays;
    /// The project has not enough left.
    QuotaExceeded: Quota, rank 3, stays;
    /// What is asked for cannot be counted.
    ValidationFailed: Quota, rank 3, stays, tenant;
    /// Quota does not answer, or not as it should.
    QuotaBackendUnavailable: Quota, rank 3, stays;
    /// There is no such project.
    QuotaProjectNotFound: Quota, rank 3, stays;
    /// The project has no such namespace.
    QuotaNamespaceNotFound: Quota, rank 3, stays;
    /// Rights, definitions or settings are wrong: a person must act.
    QuotaMisconfigured: Quota, rank 3, stays;
    /// The cell's namespace does not say which project it belongs to.
    QuotaProjectIDUnresolvable: Quota, rank 3, stays;
    /// Quota looked away for so long that nobody can have set a budget.
    QuotaNoBudget: Quota, rank 3, stays;
    /// Another cell holds the ResourceClaim that an Instance is to have.
    QuotaClaimHeld: Quota, rank 3, stays;
    /// Instance: quota is not granted yet.
    PendingQuota: Quota, rank 3, stays;
    /// Instance, of the Go operator: quota is not granted.
    QuotaNotGranted: Quota, rank 3, stays;
    /// The data that is referred to is being looked up.
    Resolving: Data, rank 4, stays;
    /// Companions are on their way.
    AwaitingPropagation: Data, rank 4, stays;
    /// Instance, of the Go operator: companions are not in place.
    ReferencedDataNotReady: Data, rank 4, stays;
    /// A source that is referred to does not exist.
    SourceNotFound: Source, rank 5, travels, tenant;
    /// A source may not be read.
    SourceUnauthorized: Source, rank 5, travels;
    /// A source, or all of them together, are larger than the limit.
    SourceTooLarge: Source, rank 5, travels, tenant;
    /// It refers to more sources than it may.
    TooManySources: Source, rank 5, travels, tenant;
    /// A source's name leaves no room for the names that Karmada makes of it.
    SourceNameTooLong: Source, rank 5, travels, tenant;
    /// Where the companion is to be, there is an object of that name that is not ours.
    SourceNameTaken: Source, rank 5, travels;
    /// The hub takes no copy of a source.
    SourceRefused: Source, rank 5, travels, tenant;
    /// The copy of a source on the hub is to go, to be made anew, and cannot.
    SourceCopyHeld: Source, rank 5, travels;
    /// No cluster carries the city's label.
    NoClusterForCity: Delivery, rank 6, stays;
    /// The city's cluster does not answer.
    ClusterNotReady: Delivery, rank 6, stays;
    /// The cluster that has it has lost the city's label; it stays where it is.
    CityLabelLost: Delivery, rank 0, stays;
    /// The cluster that has it is to be drained, and something is in the way; it stays where it is.
    DrainWaiting: Delivery, rank 0, stays;
    /// Karmada found no place, for another reason.
    NotScheduled: Delivery, rank 6, stays;
    /// The cluster refuses it, or has not taken it.
    NotApplied: Delivery, rank 6, stays;
    /// Karmada made no binding, or somebody removed it.
    BindingMissing: Delivery, rank 6, stays;
    /// Instance: the cell that runs it does not hold its copy on the hub, and does not get it yet.
    HandOverWaits: Delivery, rank 6, stays;
    /// Somebody has suspended what Karmada does with it.
    PropagationSuspended: Delivery, rank 6, stays;
    /// A policy that is not ours sends it elsewhere.
    ClaimedByAnotherPolicy: Delivery, rank 6, stays;
    /// The deployment is on its way without its data.
    DependenciesNotPropagated: Delivery, rank 6, stays;
    /// The hub does not answer, or does not show what it holds: what becomes of the deployment is not known.
    HubUnavailable: Delivery, rank 6, stays;
    /// The hub does not take what is to be written there.
    HubRefused: Delivery, rank 6, stays;
    /// The deployment's namespace on the hub is on its way out.
    HubNamespaceTerminating: Delivery, rank 6, stays;
    /// The deployment's copy on the hub is to go and cannot.
    HubCopyHeld: Delivery, rank 6, stays;
    /// Many known objects are missing, and nothing is deleted until it is clear why.
    DeletionsPaused: Delivery, rank 6, stays;
    /// Other large deployments of the namespace are brought to the hub first.
    RateLimited: Delivery, rank 6, stays;
    /// The project's API server does not take Instances of the deployment, which run; all is well otherwise.
    InstancesNotShown: Delivery, rank 0, stays, tenant;
    /// Workload, placement and WorkloadDeployment: the project's API server does not take what this operator writes there.
    ProjectRefused: Delivery, rank 6, stays, tenant;
    /// Placement: none of its cities is bound in the project.
    NoMatchingLocations: Placement, rank 6, stays;
    /// Placement and Workload: something in the spec cannot be carried out; the message says what and how to mend it.
    InvalidPlacement: Placement, rank 8, stays, tenant;
    /// Placement, Workload and WorkloadDeployment: it asks for more than it may; the message names the limit and the value.
    LimitExceeded: Placement, rank 8, stays, tenant;
    /// Placement: a WorkloadDeployment of the wanted name belongs to somebody else.
    DeploymentNameTaken: Placement, rank 8, stays, tenant;
    /// Placement and Workload: the operator may not write a deployment.
    DeploymentForbidden: Placement, rank 8, stays;
    /// Placement and Workload: a quota, a webhook or a policy of the project does not let a deployment be written.
    DeploymentDenied: Placement, rank 8, stays, tenant;
    /// Workload: it is being deleted, and its deployments do not go.
    DeletionWaits: Placement, rank 8, stays;
    /// Workload: autoscaling is asked for, which this operator does not do.
    AutoscalingNotServed: Placement, rank 0, stays;
    /// Event: a ResourceClaim was left behind.
    QuotaClaimOrphaned: Event, rank 0, stays;
    /// Event: something that was removed is made anew.
    Repaired: Event, rank 0, stays;
    /// Event: a hub Instance cannot be shown in a project.
    Quarantined: Event, rank 0, stays;
    /// Event: an Instance that somebody has made in a project stands where another is to be shown.
    PlaceTaken: Event, rank 0, stays;
    /// Event: a policy goes although companions are still claimed by it.
    CompanionsStillClaimed: Event, rank 0, stays;
    /// Event: a policy that nobody needs waits for companions that it claims.
    AwaitingCompanions: Event, rank 0, stays;
    /// Event: a hub namespace belongs to a project that does not exist.
    Stranded: Event, rank 0, stays;
    /// Event: the operator cannot read an object, or what it has noted on it, and leaves it as it is.
    Unreadable: Event, rank 0, stays;
    /// Event: the hub does not take the removal of what nobody needs any more.
    RemovalRefused: Event, rank 0, stays;
    /// Event: Karmada still keeps on a cluster what is deleted on the hub.
    LeftOnCluster: Event, rank 0, stays;
    /// Event: what was held back is deleted again.
    DeletionsResumed: Event, rank 0, stays;
    /// Event: a city did not arrive where a drain sent it, and is brought back.
    DrainFailed: Event, rank 0, stays;
    /// Event: nothing of a city is to leave a cluster any more.
    DrainEnded: Event, rank 0, stays;
    /// Event: which of several clusters with a city's label has the city, or that several have it.
    SeveralClusters: Event, rank 0, stays;
    /// Event: a field that somebody else set in a city's policy is removed again.
    PolicyFieldsRemoved: Event, rank 0, stays;
    /// Event: a city is spelt in several ways, and each of them counts.
    SeveralSpellings: Event, rank 0, stays;
    /// Event: going back to claims takes data away from a city.
    DataWillBeLost: Event, rank 0, stays;
    /// Event: a policy of the Go operator has come a step nearer to dependencies.
    MigrationStep: Event, rank 0, stays;
    /// Event: Karmada on this hub does not bring dependencies, so that policies of the Go operator stay as they are.
    MigrationRefused: Event, rank 0, stays;
    /// Event: what another field manager owned of an object that is made from another passes to this operator.
    FieldsTakenOver: Event, rank 0, stays;
    /// Event: somebody else takes back again and again what is written into an object.
    WritesTakenBack: Event, rank 0, stays;
    /// Event: the API server leaves out, or changes, what is written into an object.
    WritesNotKept: Event, rank 0, stays;
    /// Event: an Instance that has no place among those of its deployment is deleted.
    StrayInstance: Event, rank 0, stays;
    /// The claim of a cell that is no member any more is deleted, and its successor may make its own.
    ClaimFreed: Event, rank 0, stays;
    /// Event: the gate of an Instance that waited for its data is open.
    GateOpened: Event, rank 0, stays;
    /// Event: an Instance is deleted, since fewer are wanted or its template is another by now.
    Terminating: Event, rank 0, stays;
    /// Event: another number of Instances is wanted.
    Scaled: Event, rank 0, stays;
    /// Event: no deployment can show whether Karmada brings dependencies, so that policies of the Go operator wait.
    MigrationWaits: Event, rank 0, stays;
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
#[path = "reason_tests.rs"]
mod tests;
