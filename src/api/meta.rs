//! Every label, annotation, finalizer, field manager, condition type, reason and gate, once.

/// API group of our own kinds, and the prefix of most keys below.
pub const GROUP: &str = "compute.datumapis.com";
/// The only served version of [`GROUP`].
pub const VERSION: &str = "v1alpha";
/// Name of the leader election Lease (the Go operator's, so that the two never run side by side).
pub const LEASE: &str = "e98b06c6.datumapis.com";

/// Label keys.
pub mod label {
    /// On WorkloadDeployment and Instance: uid of the Workload in the project.
    pub const WORKLOAD_UID: &str = "compute.datumapis.com/workload-uid";
    /// On Instance: uid of the **cell's** WorkloadDeployment; differs between planes.
    pub const WORKLOAD_DEPLOYMENT_UID: &str = "compute.datumapis.com/workload-deployment-uid";
    /// On Instance: name of the WorkloadDeployment, equal on all planes.
    pub const WORKLOAD_DEPLOYMENT_NAME: &str = "compute.datumapis.com/workload-deployment-name";
    /// On Instance: ordinal, in decimal.
    pub const INSTANCE_INDEX: &str = "compute.datumapis.com/instance-index";
    /// On Instance: `spec.cityCode` of its deployment.
    pub const CITY_CODE: &str = "compute.datumapis.com/city-code";
    /// On Instance: name of the Workload.
    pub const WORKLOAD_NAME: &str = "compute.datumapis.com/workload-name";
    /// On Instance: name of the placement.
    pub const PLACEMENT_NAME: &str = "compute.datumapis.com/placement-name";
    /// On hub WorkloadDeployments, Karmada Clusters and location topologies: the city.
    pub const TOPOLOGY_CITY: &str = "topology.datum.net/city-code";
    /// On hub namespaces: which control plane the namespace mirrors, see [`crate::api::names::ProjectName`].
    pub const UPSTREAM_CLUSTER: &str = "meta.datumapis.com/upstream-cluster-name";
    /// On hub namespaces and hub WorkloadDeployments: the project's namespace.
    pub const UPSTREAM_NAMESPACE: &str = "meta.datumapis.com/upstream-namespace";
    /// On a write-back: uid of the cell's `kube-system` namespace, so that each cell watches and removes its own alone.
    pub const CELL_UID: &str = "compute.datumapis.com/cell-uid";
    /// On ResourceClaims: `discovery.clusterName` of the cell that made it.
    pub const SOURCE_CLUSTER: &str = "compute.datumapis.com/source-cluster";
    /// On ResourceClaims: the cell's namespace of the Instance.
    pub const INSTANCE_NAMESPACE: &str = "compute.datumapis.com/instance-namespace";
    /// On companions, the copies of ConfigMaps and Secrets that deployments use: `"true"`. Scopes our watches to them.
    pub const REFERENCED_DATA: &str = "compute.datumapis.com/referenced-data";
    /// On a hub namespace: [`super::PROTECTED`] makes Karmada refuse its deletion (karmada-behaviour, fact 53).
    pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
    /// On what a policy has claimed: the policy's own id (karmada-behaviour, fact 1).
    pub const KARMADA_CLAIM: &str = "propagationpolicy.karmada.io/permanent-id";
    /// On city policies: the value is [`super::MANAGED_BY`]. Scopes our watch of policies to our own.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
}

/// Value of [`label::MANAGED_BY`].
pub const MANAGED_BY: &str = "compute-operator";

/// Value of [`label::DELETION_PROTECTED`].
pub const PROTECTED: &str = "Always";

/// Annotation keys.
pub mod annotation {
    /// On the project's WorkloadDeployment: its hub namespace, recorded before anything is written there.
    pub const FEDERATION_NAMESPACE: &str = "compute.datumapis.com/federation-namespace";
    /// On the hub's WorkloadDeployment, and so on the cell's: generation of the project's object it was copied from.
    /// The cell answers with it in `status.observedSourceGeneration`, which makes `observedGeneration` in the project true.
    pub const SOURCE_GENERATION: &str = "compute.datumapis.com/source-generation";
    /// On a copy that Karmada made: uid of its template on the hub (karmada-behaviour, fact 5).
    pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
    /// On a WorkloadDeployment, on all planes: the companions that it needs (JSON array of `Kind/name`). On the hub it
    /// decides what Karmada brings to the cell (fact 19).
    pub const EXPECTED_REFERENCED_DATA: &str = "compute.datumapis.com/expected-referenced-data";
    /// Beside it: optional references that were left out because there is nothing to copy (JSON array of `Kind/name`).
    pub const SKIPPED_REFERENCED_DATA: &str = "compute.datumapis.com/skipped-referenced-data";
    /// Beside them: why a source cannot be copied, as JSON `{"reason":..., "message":...}`.
    pub const REFERENCED_DATA_ERROR: &str = "compute.datumapis.com/referenced-data-error";
    /// On a companion: who uses it (sorted JSON array of `<project namespace>/<deployment>`).
    pub const REFERENCED_BY: &str = "compute.datumapis.com/referenced-by";
    /// On a cell's Instance: since when it waits for its companions (RFC 3339).
    pub const REFERENCED_DATA_GATE_START: &str = "compute.datumapis.com/referenced-data-gate-start";
    /// On what a policy has claimed, and on its binding: the policy (fact 1).
    pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
    /// Beside it: the policy's namespace.
    pub const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    /// On a Cluster: `"true"` says that what runs there is to move to another cluster of its city.
    pub const DRAIN: &str = "compute.datumapis.com/drain";
    /// On a hub WorkloadDeployment or companion: when it was last touched so that Karmada makes anew what somebody removed
    /// (facts 49, 50, 55), in unix seconds.
    pub const REPAIRED: &str = "compute.datumapis.com/repaired";
    /// On a hub namespace: `"true"` stops every deletion by sweeps there.
    pub const PAUSE: &str = "compute.datumapis.com/pause-cleanup";
    /// On a binding: the placement it was scheduled by (fact 27).
    pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
    /// What the labels of a binding begin with whose template others depend on (fact 15).
    pub const DEPENDED_BY: &str = "resourcebinding.karmada.io/depended-by-";
    /// On a parent's binding: what its template depends on, as Karmada understood it (fact 15).
    pub const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
}

/// Finalizers.
pub mod finalizer {
    /// On a Workload (until its deployments are gone); on a cell's WorkloadDeployment only as a leftover of the Go operator.
    pub const WORKLOAD: &str = "compute.datumapis.com/workload-controller";
    /// On a project's WorkloadDeployment, until its hub copy is gone.
    pub const FEDERATOR: &str = "compute.datumapis.com/federator";
    /// On a cell's Instance, only as a leftover of the Go operator.
    pub const INSTANCE: &str = "compute.datumapis.com/instance-controller";
    /// On a project's WorkloadDeployment, only as a leftover of the Go operator.
    pub const REFERENCED_DATA: &str = "compute.datumapis.com/referenced-data-controller";
    /// On a binding that propagates dependencies; it is Karmada's own (fact 37).
    pub const KARMADA_DEPENDENCIES: &str = "karmada.io/binding-dependencies-distributor";
    /// On a cell's Instance, until its ResourceClaim is gone.
    pub const QUOTA: &str = "quota.compute.datumapis.com/claim-cleanup";
}

/// Server-side apply field managers, one per controller and purpose.
pub mod manager {
    /// Workload controller: WorkloadDeployments of a project.
    pub const WORKLOAD: &str = "compute-operator-workload";
    /// Federator: its marks on the project's WorkloadDeployment, and everything it writes on the hub.
    pub const FEDERATOR: &str = "compute-operator-federator";
    /// City policies on the hub.
    pub const CITY_POLICY: &str = "compute-operator-city-policy";
    /// Touches on the hub, by which Karmada makes anew what somebody removed.
    pub const REPAIR: &str = "compute-operator-repair";
    /// Companions on the hub.
    pub const COMPANION: &str = "compute-operator-companion";
    /// Cell: Instances of a WorkloadDeployment, and its status.
    pub const DEPLOYMENT: &str = "compute-operator-deployment";
    /// Cell: gates and status of an Instance.
    pub const INSTANCE: &str = "compute-operator-instance";
    /// Cell: what quota says of an Instance, and its ResourceClaim in the project.
    pub const QUOTA: &str = "compute-operator-quota";
    /// Cell: NetworkBindings and SubnetClaims.
    pub const NETWORK: &str = "compute-operator-network";
    /// Cell: the copies of its Instances on the hub.
    pub const WRITE_BACK: &str = "compute-operator-write-back";
    /// Copies of the hub's Instances in a project.
    pub const PROJECTOR: &str = "compute-operator-projector";
    /// What all of them begin with; the cache keeps no other manager's entry.
    pub const PREFIX: &str = "compute-operator-";
}

/// Condition types.
pub mod condition {
    /// Summary of Workload, placement and WorkloadDeployment; on an Instance written by its provider.
    pub const AVAILABLE: &str = "Available";
    /// WorkloadDeployment: all desired replicas are ready.
    pub const REPLICAS_READY: &str = "ReplicasReady";
    /// Instance: summary.
    pub const READY: &str = "Ready";
    /// Instance: written by its provider.
    pub const PROGRAMMED: &str = "Programmed";
    /// Instance: quota.
    pub const QUOTA_GRANTED: &str = "QuotaGranted";
    /// WorkloadDeployment and Instance: companions are in place.
    pub const REFERENCED_DATA_READY: &str = "ReferencedDataReady";
    /// WorkloadDeployment of a project: its cell has what the hub was given.
    pub const FEDERATED: &str = "Federated";
}

/// Condition reasons. The worst reason shown where several block is chosen by [`reason::severity`].
pub mod reason {
    /// Instance, and provider.
    pub const AVAILABLE: &str = "Available";
    /// Nothing looked at yet.
    pub const PENDING: &str = "Pending";
    /// Instance: gates are left.
    pub const SCHEDULING_GATES_PRESENT: &str = "SchedulingGatesPresent";
    /// Instance: the provider has not programmed it.
    pub const PENDING_PROGRAMMING: &str = "PendingProgramming";
    /// Instance: the provider starts it.
    pub const PROVISIONING: &str = "Provisioning";
    /// Quota is not configured, nothing is counted.
    pub const QUOTA_DISABLED: &str = "QuotaDisabled";
    /// Quota has not answered yet.
    pub const PENDING_EVALUATION: &str = "PendingEvaluation";
    /// Quota is granted.
    pub const QUOTA_AVAILABLE: &str = "QuotaAvailable";
    /// The project has not enough left.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// What is asked for cannot be counted.
    pub const VALIDATION_FAILED: &str = "ValidationFailed";
    /// Quota does not answer, or not as it should.
    pub const QUOTA_BACKEND_UNAVAILABLE: &str = "QuotaBackendUnavailable";
    /// There is no such project.
    pub const QUOTA_PROJECT_NOT_FOUND: &str = "QuotaProjectNotFound";
    /// The project has no such namespace.
    pub const QUOTA_NAMESPACE_NOT_FOUND: &str = "QuotaNamespaceNotFound";
    /// Rights, definitions or settings are wrong: a person must act.
    pub const QUOTA_MISCONFIGURED: &str = "QuotaMisconfigured";
    /// The cell's namespace does not say which project it belongs to.
    pub const QUOTA_PROJECT_ID_UNRESOLVABLE: &str = "QuotaProjectIDUnresolvable";
    /// Quota looked away for so long that nobody can have set a budget.
    pub const QUOTA_NO_BUDGET: &str = "QuotaNoBudget";
    /// Instance: quota is not granted yet.
    pub const PENDING_QUOTA: &str = "PendingQuota";
    /// Event: a ResourceClaim was left behind.
    pub const QUOTA_CLAIM_ORPHANED: &str = "QuotaClaimOrphaned";
    /// Networks are on their way.
    pub const NETWORK_PROVISIONING: &str = "NetworkProvisioning";
    /// Networks are there.
    pub const NETWORK_READY: &str = "NetworkReady";
    /// A network cannot be made in the location.
    pub const NETWORK_FAILED_TO_CREATE: &str = "NetworkFailedToCreate";
    /// A network that is asked for does not exist.
    pub const NETWORK_NOT_FOUND: &str = "NetworkNotFound";
    /// The network's project is unknown to the network services.
    pub const PROJECT_UNRESOLVED: &str = "ProjectUnresolved";
    /// The network services do not serve the location.
    pub const LOCATION_NOT_AVAILABLE: &str = "LocationNotAvailable";
    /// The cell knows no location of the deployment's city.
    pub const NO_MATCHING_LOCATION: &str = "NoMatchingLocation";
    /// The cell knows several locations of the deployment's city.
    pub const AMBIGUOUS_SERVING_LOCATION: &str = "AmbiguousServingLocation";
    /// WorkloadDeployment.
    pub const STABLE_INSTANCE_FOUND: &str = "StableInstanceFound";
    /// WorkloadDeployment: no instance is ready yet.
    pub const INSTANCES_PROVISIONING: &str = "InstancesProvisioning";
    /// WorkloadDeployment.
    pub const REPLICAS_AVAILABLE: &str = "ReplicasAvailable";
    /// Workload.
    pub const AVAILABLE_PLACEMENT_FOUND: &str = "AvailablePlacementFound";
    /// Workload.
    pub const NO_AVAILABLE_PLACEMENTS: &str = "NoAvailablePlacements";
    /// Placement.
    pub const AVAILABLE_DEPLOYMENT_FOUND: &str = "AvailableDeploymentFound";
    /// Placement.
    pub const NO_AVAILABLE_DEPLOYMENTS: &str = "NoAvailableDeployments";
    /// Placement: none of its cities is bound in the project.
    pub const NO_MATCHING_LOCATIONS: &str = "NoMatchingLocations";
    /// Placement and Workload: something in the spec cannot be carried out; the message says what and how to mend it.
    pub const INVALID_PLACEMENT: &str = "InvalidPlacement";
    /// Placement: a WorkloadDeployment of the wanted name belongs to somebody else.
    pub const NAME_TAKEN: &str = "DeploymentNameTaken";

    /// The data that is referred to is being looked up.
    pub const RESOLVING: &str = "Resolving";
    /// Companions are on their way.
    pub const AWAITING_PROPAGATION: &str = "AwaitingPropagation";
    /// Companions are in place.
    pub const DATA_READY: &str = "Ready";
    /// A source that is referred to does not exist.
    pub const SOURCE_NOT_FOUND: &str = "SourceNotFound";
    /// A source may not be read.
    pub const SOURCE_UNAUTHORIZED: &str = "SourceUnauthorized";
    /// A source, or all of them together, are larger than the limit.
    pub const SOURCE_TOO_LARGE: &str = "SourceTooLarge";
    /// A source's name leaves no room for the names that Karmada makes of it.
    pub const SOURCE_NAME_TOO_LONG: &str = "SourceNameTooLong";
    /// Where the companion is to be, there is an object of that name that is not ours.
    pub const SOURCE_NAME_TAKEN: &str = "SourceNameTaken";
    /// The hub takes no copy of a source.
    pub const SOURCE_REFUSED: &str = "SourceRefused";
    /// The cell has what the hub was given.
    pub const PROPAGATED: &str = "Propagated";
    /// No cluster carries the city's label.
    pub const NO_CLUSTER_FOR_CITY: &str = "NoClusterForCity";
    /// The city's cluster does not answer.
    pub const CLUSTER_NOT_READY: &str = "ClusterNotReady";
    /// The cluster that has it has lost the city's label; it stays where it is.
    pub const CITY_LABEL_LOST: &str = "CityLabelLost";
    /// Event: something that was removed is made anew.
    pub const REPAIRED: &str = "Repaired";
    /// Event: a policy goes although companions are still claimed by it.
    pub const GUARD_GIVEN_UP: &str = "CompanionsStillClaimed";
    /// Event: a policy that nobody needs waits for companions that it claims.
    pub const AWAITING_COMPANIONS: &str = "AwaitingCompanions";
    /// Event: a hub namespace belongs to a project that does not exist.
    pub const STRANDED: &str = "Stranded";
    /// Event: going back to claims takes data away from a city.
    pub const DATA_WILL_BE_LOST: &str = "DataWillBeLost";
    /// Event: a policy of the Go operator has come a step nearer to dependencies.
    pub const MIGRATION_STEP: &str = "MigrationStep";
    /// Event: Karmada on this hub does not bring dependencies, so that policies of the Go operator stay as they are.
    pub const MIGRATION_REFUSED: &str = "MigrationRefused";
    /// Karmada found no place, for another reason.
    pub const NOT_SCHEDULED: &str = "NotScheduled";
    /// The cluster refuses it, or has not taken it.
    pub const NOT_APPLIED: &str = "NotApplied";
    /// Karmada made no binding, or somebody removed it.
    pub const BINDING_MISSING: &str = "BindingMissing";
    /// A policy that is not ours sends it elsewhere.
    pub const CLAIMED_BY_ANOTHER_POLICY: &str = "ClaimedByAnotherPolicy";
    /// The deployment is on its way without its data.
    pub const DEPENDENCIES_NOT_PROPAGATED: &str = "DependenciesNotPropagated";

    /// How bad a reason is; the worst of several is the one shown (contract, sections 3.1 to 3.3).
    #[must_use]
    pub fn severity(reason: &str) -> u8 {
        match reason {
            PROVISIONING | INSTANCES_PROVISIONING | PENDING_PROGRAMMING => 1,
            NETWORK_PROVISIONING | NO_MATCHING_LOCATION => 2,
            PENDING_QUOTA
            | "QuotaNotGranted"
            | QUOTA_EXCEEDED
            | VALIDATION_FAILED
            | QUOTA_BACKEND_UNAVAILABLE
            | QUOTA_PROJECT_NOT_FOUND
            | QUOTA_NAMESPACE_NOT_FOUND
            | QUOTA_MISCONFIGURED
            | QUOTA_PROJECT_ID_UNRESOLVABLE
            | QUOTA_NO_BUDGET => 3,
            "ReferencedDataNotReady" | AWAITING_PROPAGATION | RESOLVING => 4,
            "ImageUnavailable" | "InstanceCrashing" | "ConfigurationError" | SOURCE_NOT_FOUND | SOURCE_TOO_LARGE
            | SOURCE_UNAUTHORIZED | SOURCE_NAME_TOO_LONG | SOURCE_NAME_TAKEN | SOURCE_REFUSED => 5,
            NO_CLUSTER_FOR_CITY
            | CLUSTER_NOT_READY
            | NOT_SCHEDULED
            | NOT_APPLIED
            | BINDING_MISSING
            | CLAIMED_BY_ANOTHER_POLICY
            | DEPENDENCIES_NOT_PROPAGATED
            | NO_MATCHING_LOCATIONS
            | NETWORK_NOT_FOUND
            | PROJECT_UNRESOLVED
            | LOCATION_NOT_AVAILABLE => 6,
            NETWORK_FAILED_TO_CREATE => 7,
            "LocationMismatch" | AMBIGUOUS_SERVING_LOCATION | INVALID_PLACEMENT | NAME_TAKEN => 8,
            _ => 0,
        }
    }
}

/// Scheduling gates of an Instance.
pub mod gate {
    /// Networks of the deployment are ready.
    pub const NETWORK: &str = "Network";
    /// Quota is granted.
    pub const QUOTA: &str = "Quota";
    /// Companions are in place.
    pub const REFERENCED_DATA: &str = "ReferencedData";
}
