//! Every label, annotation, finalizer, field manager, condition type and gate, once.

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
    /// On hub namespaces, and so on the cells', on write-backs and on projections: the project, see
    /// [`crate::api::names::ProjectName`].
    pub const UPSTREAM_CLUSTER: &str = "meta.datumapis.com/upstream-cluster-name";
    /// On hub namespaces, and so on the cells', on hub WorkloadDeployments, on write-backs and on projections: the
    /// project's namespace.
    pub const UPSTREAM_NAMESPACE: &str = "meta.datumapis.com/upstream-namespace";
    /// On write-backs and ResourceClaims: uid of the `kube-system` namespace of the cell that made them, so that each cell
    /// removes its own alone.
    pub const CELL_UID: &str = "compute.datumapis.com/cell-uid";
    /// On ResourceClaims: `discovery.clusterName` of the cell that made it.
    pub const SOURCE_CLUSTER: &str = "compute.datumapis.com/source-cluster";
    /// On ResourceClaims: the cell's namespace of the Instance.
    pub const INSTANCE_NAMESPACE: &str = "compute.datumapis.com/instance-namespace";
    /// On companions, the copies of ConfigMaps and Secrets that deployments use: `"true"`. Scopes our watches to them.
    pub const REFERENCED_DATA: &str = "compute.datumapis.com/referenced-data";
    /// On a hub namespace: [`super::PROTECTED`] makes Karmada refuse its deletion (fact 53).
    pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
    /// On what a policy has claimed: the policy's own id (fact 1).
    pub const KARMADA_CLAIM: &str = "propagationpolicy.karmada.io/permanent-id";
    /// On what a ClusterPropagationPolicy has claimed, and on its binding: that policy's own id (fact 67).
    pub const KARMADA_CLUSTER_CLAIM: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
    /// On city policies: the value is [`super::MANAGED_BY`]. A policy without it that has the name of one is taken over while
    /// it is needed, and never deleted.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
}

/// Value of [`label::MANAGED_BY`].
pub const MANAGED_BY: &str = "compute-operator";

/// Value of [`label::DELETION_PROTECTED`].
pub const PROTECTED: &str = "Always";

/// Value of [`annotation::SUSPENDED`] that suspends.
pub const SUSPENDED: &str = "true";

/// Value of [`annotation::DRAIN`] for a cluster whose cell is given up: nobody there will let go of what it has claimed.
pub const DEAD: &str = "dead";

/// Annotation keys.
pub mod annotation {
    /// On the template of a virtual machine: who may log in, a line `user:public-key` each.
    pub const SSH_KEYS: &str = "compute.datumapis.com/ssh-keys";
    /// On the project's WorkloadDeployment: its hub namespace, recorded before anything is written there.
    pub const FEDERATION_NAMESPACE: &str = "compute.datumapis.com/federation-namespace";
    /// On the hub's WorkloadDeployment, and so on the cell's: generation of the project's object it was copied from.
    /// The cell answers with it in `status.observedSourceGeneration`, which makes `observedGeneration` in the project true.
    pub const SOURCE_GENERATION: &str = "compute.datumapis.com/source-generation";
    /// Beside it: uid of that object. A copy of an earlier version gets it with the next apply that is due.
    pub const SOURCE_UID: &str = "compute.datumapis.com/source-uid";
    /// On a copy that Karmada made: uid of its template on the hub (fact 5).
    pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
    /// On a WorkloadDeployment, on all planes: the companions that it needs (JSON array of `Kind/name`). On the hub it
    /// decides what Karmada brings to the cell (fact 19).
    pub const EXPECTED_REFERENCED_DATA: &str = "compute.datumapis.com/expected-referenced-data";
    /// Beside it: optional references that were left out because there is nothing to copy (JSON array of `Kind/name`).
    pub const SKIPPED_REFERENCED_DATA: &str = "compute.datumapis.com/skipped-referenced-data";
    /// Beside them: why a source cannot be copied, as JSON `{"reason":..., "message":...}`.
    pub const REFERENCED_DATA_ERROR: &str = "compute.datumapis.com/referenced-data-error";
    /// On a companion: who uses it (sorted JSON array of `<project namespace>/<deployment>`); of more than
    /// [`MAX_NAMED_USERS`](super::super::referenced::MAX_NAMED_USERS) only [that](super::super::referenced::MANY_USERS).
    pub const REFERENCED_BY: &str = "compute.datumapis.com/referenced-by";
    /// On a cell's Instance: since when it waits for its companions (RFC 3339).
    pub const REFERENCED_DATA_GATE_START: &str = "compute.datumapis.com/referenced-data-gate-start";
    /// On what a policy has claimed, and on its binding: the policy (fact 1).
    pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
    /// Beside it: the policy's namespace.
    pub const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    /// On a Work: the namespace of the binding that it was made of.
    pub const WORK_BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
    /// Beside it: the binding's name.
    pub const WORK_BINDING_NAME: &str = "resourcebinding.karmada.io/name";
    /// On what a ClusterPropagationPolicy has claimed, and on its binding: that policy (fact 67).
    pub const CLUSTER_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
    /// On a write-back that another cell holds: uid of the cell that runs the Instance now and asks for its copy. Management
    /// hands the copy over where Karmada's binding shows that it is so.
    pub const CLAIMED_BY_CELL: &str = "compute.datumapis.com/claimed-by-cell";
    /// On a write-back that was handed over: uid of the cell that had it before. What that one has claimed of quota may be
    /// freed once; then this goes.
    pub const FORMER_CELL: &str = "compute.datumapis.com/former-cell";
    /// On a Cluster: `"true"` says that what runs there is to move to another cluster of its city; [`super::DEAD`] that it
    /// is to, and that nothing runs there any more.
    pub const DRAIN: &str = "compute.datumapis.com/drain";
    /// On a city's policy in a hub namespace: the clusters on which its part of the city did not arrive, so that a manager that
    /// comes after tries none of them again (JSON).
    pub const DRAIN_FAILED: &str = "compute.datumapis.com/drain-failed";
    /// On a hub WorkloadDeployment or companion: when it was last touched so that Karmada makes anew what somebody removed
    /// (facts 49, 50, 55), in unix seconds.
    pub const REPAIRED: &str = "compute.datumapis.com/repaired";
    /// On a hub namespace: the management plane that keeps it, by a uid. Another one judges nothing there;
    /// without it nobody does.
    pub const KEPT_BY: &str = "compute.datumapis.com/kept-by";
    /// Beside it: the project's control plane, by a uid.
    pub const PROJECT_CONTROL_PLANE: &str = "compute.datumapis.com/project-control-plane";
    /// On a hub namespace: since when it has been known that nobody needs what it holds (RFC 3339).
    pub const STRANDED_SINCE: &str = "compute.datumapis.com/stranded-since";
    /// On a project's WorkloadDeployment, and so on its copies: [`super::SUSPENDED`] has the cell stop its Instances, which
    /// keep their places. Written by whoever suspends a project, never by this operator.
    pub const SUSPENDED: &str = "compute.datumapis.com/suspended";
    /// On `kube-system` of a control plane: confirms that what is missing there since this moment (RFC 3339) is to be missing.
    pub const CONFIRM_MISSING: &str = "compute.datumapis.com/confirm-missing";
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
    /// Kubernetes' own, on an object that is deleted with `--cascade=orphan`, until garbage collection has taken its owner
    /// references off what it owns.
    pub const ORPHAN: &str = "orphan";
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
    /// Workload: whether somebody scales it, where it asks for that.
    pub const AUTOSCALING_READY: &str = "AutoscalingReady";
    /// WorkloadDeployment: all desired replicas are ready.
    pub const REPLICAS_READY: &str = "ReplicasReady";
    /// WorkloadDeployment of a cell: True while the cell's API server refuses a write that its Instances need; absent otherwise.
    /// Named as that of a ReplicaSet.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
    /// Instance: summary.
    pub const READY: &str = "Ready";
    /// Instance: written by its provider.
    pub const PROGRAMMED: &str = "Programmed";
    /// Instance: quota.
    pub const QUOTA_GRANTED: &str = "QuotaGranted";
    /// WorkloadDeployment and Instance: companions are in place.
    pub const REFERENCED_DATA_READY: &str = "ReferencedDataReady";
    /// Instance of a cell: why it is not on the hub; absent when it is.
    pub const WRITTEN_BACK: &str = "WrittenBack";
    /// WorkloadDeployment of a project: its cell has what the hub was given.
    pub const FEDERATED: &str = "Federated";
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
