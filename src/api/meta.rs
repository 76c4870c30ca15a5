//! Every label, annotation, finalizer, field manager, condition type and gate, each defined once.

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
    /// On write-backs and ResourceClaims: uid of the `kube-system` namespace of the cell that created them. Each cell removes
    /// only its own.
    pub const CELL_UID: &str = "compute.datumapis.com/cell-uid";
    /// On ResourceClaims: `discovery.clusterName` of the cell that made it.
    pub const SOURCE_CLUSTER: &str = "compute.datumapis.com/source-cluster";
    /// On ResourceClaims: the cell's namespace of the Instance.
    pub const INSTANCE_NAMESPACE: &str = "compute.datumapis.com/instance-namespace";
    /// On companions, the copies of ConfigMaps and Secrets that deployments use: `"true"`. Scopes our watches to them.
    pub const REFERENCED_DATA: &str = "compute.datumapis.com/referenced-data";
    /// On a hub namespace: [`super::PROTECTED`] makes Karmada refuse its deletion (fact 53).
    pub const DELETION_PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
    /// On an object claimed by a policy: the policy's permanent id (fact 1).
    pub const KARMADA_CLAIM: &str = "propagationpolicy.karmada.io/permanent-id";
    /// On an object claimed by a ClusterPropagationPolicy, and on its binding: the policy's permanent id (fact 67).
    pub const KARMADA_CLUSTER_CLAIM: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
    /// On city policies: the value is [`super::MANAGED_BY`]. A policy with a city policy's name and without this label is taken
    /// over while it is needed, and never deleted.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
}

/// Value of [`label::MANAGED_BY`].
pub const MANAGED_BY: &str = "compute-operator";

/// Value of [`label::DELETION_PROTECTED`].
pub const PROTECTED: &str = "Always";

/// Value of [`annotation::SUSPENDED`] that suspends.
pub const SUSPENDED: &str = "true";

/// Value of [`annotation::DRAIN`] for a cluster whose cell is given up: that cell will never release its claims.
pub const DEAD: &str = "dead";

/// Annotation keys.
pub mod annotation {
    /// On the template of a virtual machine: the users who may log in, one line `user:public-key` each.
    pub const SSH_KEYS: &str = "compute.datumapis.com/ssh-keys";
    /// On the project's WorkloadDeployment: its hub namespace, recorded before the first write there.
    pub const FEDERATION_NAMESPACE: &str = "compute.datumapis.com/federation-namespace";
    /// On the WorkloadDeployment of the hub and the cell: generation of the project's object that it was copied from. The cell
    /// returns it in `status.observedSourceGeneration`, which makes `observedGeneration` in the project exact.
    pub const SOURCE_GENERATION: &str = "compute.datumapis.com/source-generation";
    /// On the same objects: uid of that object. A copy made by an earlier version gets it with the next apply.
    pub const SOURCE_UID: &str = "compute.datumapis.com/source-uid";
    /// On a copy that Karmada made: uid of its template on the hub (fact 5).
    pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
    /// On a WorkloadDeployment, on all planes: the companions that it needs (JSON array of `Kind/name`). On the hub it decides
    /// which dependencies Karmada brings to the cell (fact 19).
    pub const EXPECTED_REFERENCED_DATA: &str = "compute.datumapis.com/expected-referenced-data";
    /// On the same object: optional references left out because there is nothing to copy (JSON array of `Kind/name`).
    pub const SKIPPED_REFERENCED_DATA: &str = "compute.datumapis.com/skipped-referenced-data";
    /// On the same object: the reason why a source cannot be copied, as JSON `{"reason":..., "message":...}`.
    pub const REFERENCED_DATA_ERROR: &str = "compute.datumapis.com/referenced-data-error";
    /// On a companion: its users (sorted JSON array of `<project namespace>/<deployment>`). With more than
    /// [`MAX_NAMED_USERS`](super::super::user_list::MAX_NAMED_USERS) it only says so: see [`super::super::user_list`].
    pub const REFERENCED_BY: &str = "compute.datumapis.com/referenced-by";
    /// On a cell's Instance: the time since which it waits for its companions (RFC 3339).
    pub const REFERENCED_DATA_GATE_START: &str = "compute.datumapis.com/referenced-data-gate-start";
    /// On an object claimed by a policy, and on its binding: the policy's name (fact 1).
    pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
    /// On the same objects: the policy's namespace.
    pub const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
    /// On a Work: namespace of its binding.
    pub const WORK_BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
    /// On a Work: name of its binding.
    pub const WORK_BINDING_NAME: &str = "resourcebinding.karmada.io/name";
    /// On an object claimed by a ClusterPropagationPolicy, and on its binding: the policy's name (fact 67).
    pub const CLUSTER_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
    /// On a write-back that another cell holds: uid of the cell that now runs the Instance and asks for its copy. Management
    /// hands the copy over once Karmada's binding confirms it.
    pub const CLAIMED_BY_CELL: &str = "compute.datumapis.com/claimed-by-cell";
    /// On a write-back that was handed over: uid of the cell that held it before. The quota claim of that cell may be freed once;
    /// then the annotation is removed.
    pub const FORMER_CELL: &str = "compute.datumapis.com/former-cell";
    /// On a Cluster: `"true"` moves everything there to another cluster of its city. [`super::DEAD`] does so too, and says that
    /// nothing runs there any more.
    pub const DRAIN: &str = "compute.datumapis.com/drain";
    /// On a city's policy in a hub namespace: clusters on which its part of the city did not arrive (JSON). A later manager does
    /// not try them again.
    pub const DRAIN_FAILED: &str = "compute.datumapis.com/drain-failed";
    /// On a city's policy, while the city moves in that namespace: the start of the transfer and the state before it (JSON).
    pub const DRAIN_TRANSFER: &str = "compute.datumapis.com/drain-transfer";
    /// On a city's policy that no deployment needs: the time since which it waits for the companions that it claims (RFC 3339).
    pub const UNNEEDED_SINCE: &str = "compute.datumapis.com/unneeded-since";
    /// On a city's policy between claims and dependencies: time and digest of the last report about the migration (JSON).
    pub const MIGRATION_REPORTED: &str = "compute.datumapis.com/migration-reported";
    /// On a hub WorkloadDeployment or companion: time of the last touch that made Karmada recreate a removed object (facts 49,
    /// 50, 55), in unix seconds.
    pub const REPAIRED: &str = "compute.datumapis.com/repaired";
    /// On a hub namespace: uid of the management plane that keeps it. Another management plane does not clean up there. Without
    /// the annotation, none does.
    pub const KEPT_BY: &str = "compute.datumapis.com/kept-by";
    /// On a hub namespace: uid of the project's control plane.
    pub const PROJECT_CONTROL_PLANE: &str = "compute.datumapis.com/project-control-plane";
    /// On a hub namespace, and on a deployment's copy: the time since which its original is known to be gone (RFC 3339).
    pub const STRANDED_SINCE: &str = "compute.datumapis.com/stranded-since";
    /// On a project's WorkloadDeployment, and so on its copies: with [`super::SUSPENDED`] the cell stops its Instances, which
    /// keep their places. The service that suspends projects writes it, never the operator.
    pub const SUSPENDED: &str = "compute.datumapis.com/suspended";
    /// On a hub namespace: `"true"` keeps objects there that have lost their owner.
    pub const PAUSE: &str = "compute.datumapis.com/pause-cleanup";
    /// On a binding: the placement that it was scheduled by (fact 27).
    pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
    /// Prefix of the labels on a binding whose template others depend on (fact 15).
    pub const DEPENDED_BY: &str = "resourcebinding.karmada.io/depended-by-";
    /// On a parent's binding: the dependencies of its template, as Karmada understood them (fact 15).
    pub const DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
}

/// Finalizers.
pub mod finalizer {
    /// On a Workload, until its deployments are gone. On a cell's WorkloadDeployment only as a leftover of the Go operator.
    pub const WORKLOAD: &str = "compute.datumapis.com/workload-controller";
    /// On a project's WorkloadDeployment, until its hub copy is gone.
    pub const FEDERATOR: &str = "compute.datumapis.com/federator";
    /// On a cell's Instance, only as a leftover of the Go operator.
    pub const INSTANCE: &str = "compute.datumapis.com/instance-controller";
    /// On a project's WorkloadDeployment, only as a leftover of the Go operator.
    pub const REFERENCED_DATA: &str = "compute.datumapis.com/referenced-data-controller";
    /// Kubernetes' own, on an object deleted with `--cascade=orphan`. Garbage collection removes it once the object's dependents
    /// have no owner references to it.
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
    /// Federator: its annotations and finalizer on the project's WorkloadDeployment, and all of its writes on the hub.
    pub const FEDERATOR: &str = "compute-operator-federator";
    /// City policies on the hub.
    pub const CITY_POLICY: &str = "compute-operator-city-policy";
    /// Touches on the hub, which make Karmada recreate removed objects.
    pub const REPAIR: &str = "compute-operator-repair";
    /// Companions on the hub.
    pub const COMPANION: &str = "compute-operator-companion";
    /// Cell: Instances of a WorkloadDeployment, and its status.
    pub const DEPLOYMENT: &str = "compute-operator-deployment";
    /// Cell: gates and status of an Instance.
    pub const INSTANCE: &str = "compute-operator-instance";
    /// Cell: the quota parts of an Instance, and its ResourceClaim in the project.
    pub const QUOTA: &str = "compute-operator-quota";
    /// Cell: NetworkBindings and SubnetClaims.
    pub const NETWORK: &str = "compute-operator-network";
    /// Cell: the copies of its Instances on the hub.
    pub const WRITE_BACK: &str = "compute-operator-write-back";
    /// Copies of the hub's Instances in a project.
    pub const PROJECTOR: &str = "compute-operator-projector";
    /// Prefix of all of them; the cache keeps no other manager's entry.
    pub const PREFIX: &str = "compute-operator-";
}

/// Condition types.
pub mod condition {
    /// Summary of Workload, placement and WorkloadDeployment; on an Instance written by its provider.
    pub const AVAILABLE: &str = "Available";
    /// Workload that asks for autoscaling: True if an autoscaler serves it.
    pub const AUTOSCALING_READY: &str = "AutoscalingReady";
    /// WorkloadDeployment: all desired replicas are ready.
    pub const REPLICAS_READY: &str = "ReplicasReady";
    /// WorkloadDeployment of a cell: True while the cell's API server rejects a write that its Instances need; absent otherwise.
    /// It is named as on a ReplicaSet.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
    /// Instance: summary. Workload and WorkloadDeployment of a project: every wanted Instance is ready and up to date.
    pub const READY: &str = "Ready";
    /// Workload and WorkloadDeployment of a project: True while it is not ready and the platform works on it; absent otherwise.
    pub const RECONCILING: &str = "Reconciling";
    /// The same objects: True while they are not ready and the tenant has to act; absent otherwise.
    pub const STALLED: &str = "Stalled";
    /// Instance: written by its provider.
    pub const PROGRAMMED: &str = "Programmed";
    /// Instance: quota.
    pub const QUOTA_GRANTED: &str = "QuotaGranted";
    /// WorkloadDeployment and Instance: companions are in place.
    pub const REFERENCED_DATA_READY: &str = "ReferencedDataReady";
    /// Instance of a cell: the reason why it is not on the hub; absent when it is.
    pub const WRITTEN_BACK: &str = "WrittenBack";
    /// WorkloadDeployment of a project: applied on its cell.
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
    /// All gates of this operator. It removes no others.
    pub const ALL: [&str; 3] = [NETWORK, QUOTA, REFERENCED_DATA];
}
