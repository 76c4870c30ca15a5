//! Reasons that only Events have.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};

const POLICY: &[Seen] = &[Seen::event("PropagationPolicy")];
const NAMESPACE: &[Seen] = &[Seen::event("Namespace")];
const NOTHING_LOST: &str = "Running Instances are not affected. Nothing is lost.";

pub(super) static QuotaClaimOrphaned: Entry = Entry {
    meaning: "A ResourceClaim of a deleted Instance was left behind. Its project did not answer for two hours, or is unknown.",
    effect: "The claim uses the project's budget until it is deleted. Once the project answers, the cell deletes the claim itself.",
    who: Who::Platform,
    steps: &[
        "Check that the Instance is gone in its cell: `kubectl --context CELL -n HUB_NAMESPACE get instances`.",
        "See the claims: `kubectl --context PROJECT -n NAMESPACE get resourceclaims`.",
        "Delete the claim that the Event names: `kubectl --context PROJECT -n NAMESPACE delete resourceclaim NAME`.",
    ],
    seen_in: &[Seen::event("Instance")],
    alerts: &["ComputeQuotaClaimsOrphaned"],
    runbook: Some("quota-backend.md#claims-were-left-behind"),
};

pub(super) static Repaired: Entry = Entry {
    meaning: "An object was removed and is recreated, or Karmada was asked again to carry out a change.",
    effect: "The copies on the cell have new uids afterwards. A deployment may have been without its data for a moment.",
    who: Who::Platform,
    steps: &[
        "If it repeats, see what is repaired: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=Repaired`.",
        "Find who deletes `resourcebindings` or `works` in the hub's audit log, and stop it.",
    ],
    seen_in: &[Seen::event("WorkloadDeployment"), Seen::event("ConfigMap"), Seen::event("Secret")],
    alerts: &["ComputeRepairsFrequent"],
    runbook: Some("repairs.md"),
};

pub(super) static Quarantined: Entry = Entry {
    meaning: "An Instance on the hub cannot be shown in a project. The message says why.",
    effect: "The Instance runs, and is not changed. Its project does not show it.",
    who: Who::Platform,
    steps: &[
        "List them with their causes: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=Quarantined`.",
        "Look on the cell first. A cell that runs the Instance writes it back each time: `kubectl --context CELL -n HUB_NAMESPACE get instances`.",
        "If no cell has the Instance, delete it: `kubectl --context HUB -n HUB_NAMESPACE delete instance NAME`.",
    ],
    seen_in: &[Seen::event("Instance")],
    alerts: &["ComputeQuarantinedInstances"],
    runbook: Some("quarantined-instances.md"),
};

pub(super) static PlaceTaken: Entry = Entry {
    meaning: "A user made an Instance in the project that has the name of a running one.",
    effect: "The user's Instance is kept. The running one is not shown.",
    who: Who::Tenant,
    steps: &[
        "Delete the Instance that you made: `kubectl -n NAMESPACE delete instance NAME`. The next sweep shows the running one.",
    ],
    seen_in: &[Seen::event("WorkloadDeployment")],
    alerts: &[],
    runbook: Some("quarantined-instances.md#what-tenants-see"),
};

pub(super) static CompanionsStillClaimed: Entry = Entry {
    meaning: "A policy is deleted although it still claims companions.",
    effect: "Copies of ConfigMaps or Secrets may remain on the city's cluster for now. They are removed once every deployment that \
             needs them gets them as dependencies.",
    who: Who::Platform,
    steps: &[
        "Read what the deployments of the namespace lack, in `Federated`: `kubectl --context PROJECT -n NAMESPACE describe workloaddeployments`.",
    ],
    seen_in: POLICY,
    alerts: &["ComputePolicyGaveUp"],
    runbook: Some("stranded-data.md#a-policy-waits-or-has-given-up"),
};

pub(super) static AwaitingCompanions: Entry = Entry {
    meaning: "An unused policy waits for companions that it claims.",
    effect: "Deployments and their owners do not wait for it. After two minutes it gives up (`CompanionsStillClaimed`).",
    who: Who::Nobody,
    steps: &[],
    seen_in: POLICY,
    alerts: &[],
    runbook: Some("stranded-data.md#a-policy-waits-or-has-given-up"),
};

pub(super) static Stranded: Entry = Entry {
    meaning: "A hub namespace holds objects of a project or namespace that does not exist.",
    effect: "Running Instances are not affected. The namespace is removed after `cleanup.strandedGraceSeconds`.",
    who: Who::Platform,
    steps: &[
        "See the project in the labels: `kubectl --context HUB get namespaces -L meta.datumapis.com/upstream-cluster-name,meta.datumapis.com/upstream-namespace`.",
        "If the project is to come back, pause the clean-up: `kubectl --context HUB annotate namespace HUB_NAMESPACE compute.datumapis.com/pause-cleanup=true`.",
        "Otherwise wait.",
    ],
    seen_in: NAMESPACE,
    alerts: &["ComputeStrandedNamespaces"],
    runbook: Some("stranded-data.md#a-project-was-deleted"),
};

pub(super) static Unreadable: Entry = Entry {
    meaning: "The operator cannot read the object, or its own notes on it. The message has the decoder's error.",
    effect: "The operator leaves the object, and what may depend on it, unchanged. What runs is not affected.",
    who: Who::Platform,
    steps: &[
        "List the objects with their errors: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=Unreadable`.",
        "If the definition there has another version, apply this operator's: `kubectl --context HUB apply --server-side --force-conflicts -f crds/`.",
        "Correct or delete what the message names. For a namespace, restore its labels.",
    ],
    seen_in: &[
        Seen::event("Workload"),
        Seen::event("WorkloadDeployment"),
        Seen::event("Instance"),
        Seen::event("PropagationPolicy"),
        Seen::event("ConfigMap"),
        Seen::event("Secret"),
        Seen::event("Namespace"),
    ],
    alerts: &["ComputeUndecodableObjects"],
    runbook: Some("reconcile-errors.md#an-object-cannot-be-read"),
};

pub(super) static RemovalRefused: Entry = Entry {
    meaning: "The hub refuses to delete an object without its owner, or refuses the annotation that starts its grace. The message \
              names the object, and why. It is sent once an hour.",
    effect: "The object stays. Running Instances are not affected.",
    who: Who::Platform,
    steps: &[
        "List the causes: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=RemovalRefused`.",
        "If a right is missing, apply the hub's overlay again: `kubectl kustomize config/overlays/hub | kubectl --context HUB apply --server-side --force-conflicts --filename -`.",
        "Otherwise let the webhook or policy of the hub accept the deletion.",
    ],
    seen_in: NAMESPACE,
    alerts: &[],
    runbook: Some("stranded-data.md#what-a-sweep-removes"),
};

pub(super) static LeftOnCluster: Entry = Entry {
    meaning: "Objects are deleted on the hub, and Karmada still keeps them on the cluster. It is sent once an hour for each cluster.",
    effect: "The Instances of these objects run there until the cluster answers.",
    who: Who::Platform,
    steps: &[
        "See what is left: `kubectl --context HUB -n karmada-es-CLUSTER get works`.",
        "Repair the cluster. Karmada then removes what is left.",
        "If the cluster does not come back, remove it from Karmada: `karmadactl --karmada-context HUB unjoin CLUSTER`.",
    ],
    seen_in: NAMESPACE,
    alerts: &["ComputeLeftOnCluster"],
    runbook: Some("dead-cell.md#a-tenant-removes-the-city-during-that-time"),
};

pub(super) static DeletionsPaused: Entry = Entry {
    meaning: "Copies in the hub namespace have lost their originals. A user removed finalizers by force, or an etcd was restored from \
              an old backup.",
    effect: "What runs keeps running. The copies are deleted after `timing.lossPatienceSeconds` (an hour).",
    who: Who::Platform,
    steps: &[
        "See which originals are missing: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=DeletionsPaused`.",
        "If they have to run on, restore the deployments, or create their Workloads again, within the hour.",
        "If you need more time, pause the clean-up: `kubectl --context HUB annotate namespace HUB_NAMESPACE compute.datumapis.com/pause-cleanup=true`.",
        "If the loss is right, wait.",
    ],
    seen_in: NAMESPACE,
    alerts: &["ComputeDeletionsPaused"],
    runbook: Some("rebuilt-hub.md#a-project-was-restored-from-a-backup"),
};

pub(super) static DrainFailed: Entry = Entry {
    meaning: "A city did not arrive in time where a drain sent it, and is moved back. The message says what was missing.",
    effect: "One hub namespace was away for a moment. No other namespace follows.",
    who: Who::Platform,
    steps: &[
        "Read what was missing on the target: `kubectl --context HUB describe cluster CLUSTER`.",
        "Repair the cell of the target.",
        "End the drain: `kubectl --context HUB annotate cluster CLUSTER compute.datumapis.com/drain-`.",
        "Start it again: `kubectl compute cell drain CLUSTER --hub-context HUB`.",
    ],
    seen_in: &[Seen::event("Cluster")],
    alerts: &["ComputeDrainStuck"],
    runbook: Some("moving-a-city.md#the-drain-has-failed"),
};

pub(super) static DrainEnded: Entry = Entry {
    meaning: "The drain of a city from the Cluster has ended.",
    effect: "Nothing of the city has to leave the Cluster.",
    who: Who::Nobody,
    steps: &[
        "When the Cluster is gone or has another city, remove the annotation: `kubectl --context HUB annotate cluster CLUSTER compute.datumapis.com/drain-`.",
    ],
    seen_in: &[Seen::event("Cluster")],
    alerts: &[],
    runbook: Some("moving-a-city.md#move-a-city"),
};

pub(super) static SeveralClusters: Entry = Entry {
    meaning: "Several Clusters have the city's label. The message names the one that has the city, or says that several have it. On \
              Clusters: each has the city in different namespaces, and no namespace moves.",
    effect: "What runs stays where it is.",
    who: Who::Platform,
    steps: &[
        "List the Clusters with their cities: `kubectl --context HUB get clusters -L topology.datum.net/city-code`.",
        "To bring the city together, drain the other Clusters: `kubectl compute cell drain CLUSTER --hub-context HUB`.",
    ],
    seen_in: &[Seen::event("PropagationPolicy"), Seen::event("Cluster")],
    alerts: &[],
    runbook: Some("moving-a-city.md#two-clusters-have-the-label"),
};

pub(super) static PolicyFieldsRemoved: Entry = Entry {
    meaning: "Another client set the named fields in a city's policy, and the operator removed them.",
    effect: "The policy is as the operator writes it. The fields could have kept a deleted Secret on a cell, for example.",
    who: Who::Platform,
    steps: &[
        "Find the client: `kubectl --context HUB -n HUB_NAMESPACE get propagationpolicies NAME -o yaml --show-managed-fields`.",
        "Stop the client. Others may set `spec.placement.clusterTolerations` and `spec.suspension` only.",
    ],
    seen_in: POLICY,
    alerts: &[],
    runbook: Some("moving-a-city.md#what-others-may-change-in-a-city-policy"),
};

pub(super) static SeveralSpellings: Entry = Entry {
    meaning: "Deployments and Clusters spell a city in several ways. All of them count.",
    effect: "Nothing is affected while the city guard is on.",
    who: Who::Platform,
    steps: &[
        "Use one spelling for the label of the Clusters: `kubectl --context HUB label cluster CLUSTER topology.datum.net/city-code=CITY --overwrite`.",
    ],
    seen_in: POLICY,
    alerts: &[],
    runbook: Some("moving-a-city.md#several-spellings"),
};

pub(super) static DataWillBeLost: Entry = Entry {
    meaning: "The rollback to claims removes data from a city. The message names the data, 30 s before the loss.",
    effect: "Each companion stays only in the city of the policy that claims it. Elsewhere, running Instances keep what they have \
             read, and cannot start again.",
    who: Who::Platform,
    steps: &["To keep the data, start the manager with `--referenced-data-propagation=dependencies`."],
    seen_in: POLICY,
    alerts: &[],
    runbook: Some("rollback.md"),
};

pub(super) static MigrationStep: Entry = Entry {
    meaning: "A policy of the Go operator has moved a step towards dependencies.",
    effect: NOTHING_LOST,
    who: Who::Nobody,
    steps: &[],
    seen_in: POLICY,
    alerts: &[],
    runbook: Some("migration.md"),
};

pub(super) static MigrationRefused: Entry = Entry {
    meaning: "Karmada on this hub does not propagate dependencies, or does not deliver later companions. Policies of the Go operator \
              are kept as they are.",
    effect: "Companions reach the same cities as before. Data that two cities share reaches only one of them.",
    who: Who::Platform,
    steps: &[
        "Read the cause: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=MigrationRefused`.",
        "Start karmada-controller-manager with the feature gate `PropagateDeps=true`.",
        "Apply the interpreter: `kubectl kustomize config/overlays/hub | kubectl --context HUB apply --server-side --force-conflicts --filename -`.",
        "Restart karmada-controller-manager. Without a restart, Karmada does not look again at what it has seen without a script.",
    ],
    seen_in: POLICY,
    alerts: &["ComputeMigrationRefused"],
    runbook: Some("migration.md#the-migration-is-refused"),
};

pub(super) static MigrationWaits: Entry = Entry {
    meaning: "Policies of the Go operator wait, because no deployment can show whether Karmada propagates dependencies. Or the \
              rollback to claims waits for companions that are missing or unclaimed; the message names them. It is sent once on each \
              policy that waits.",
    effect: NOTHING_LOST,
    who: Who::Platform,
    steps: &[
        "Read what the policies wait for: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=MigrationWaits`.",
        "Find out why no deployment is delivered by its policy: `kubectl --context HUB get resourcebindings -A`.",
    ],
    seen_in: POLICY,
    alerts: &["ComputeMigrationStalled"],
    runbook: Some("migration.md#nothing-can-be-asked"),
};

pub(super) static FieldsTakenOver: Entry = Entry {
    meaning: "The operator took over fields of a spec from another field manager (the Go operator, a person).",
    effect: "The operator removes fields that the Workload no longer sets. Running Instances are not affected by the take-over.",
    who: Who::Nobody,
    steps: &["If a person changed the object, change the Workload instead."],
    seen_in: &[Seen::event("WorkloadDeployment"), Seen::event("Instance")],
    alerts: &[],
    runbook: Some("migration.md#field-owners"),
};

pub(super) static WritesTakenBack: Entry = Entry {
    meaning: "Another client repeatedly reverts what the operator writes. The message names the client and the write.",
    effect: "The object changes back and forth. The operator backs off to one write a minute.",
    who: Who::Platform,
    steps: &[
        "Find the client, on a cell: `kubectl --context CELL get events.events.k8s.io -A --field-selector reason=WritesTakenBack`.",
        "On management, the Event is in the project or on the hub: `kubectl --context HUB get events.events.k8s.io -A --field-selector reason=WritesTakenBack`.",
        "Stop the client. It is usually a second manager.",
    ],
    seen_in: &[
        Seen::event("Workload"),
        Seen::event("WorkloadDeployment"),
        Seen::event("Instance"),
        Seen::event("PropagationPolicy"),
    ],
    alerts: &["ComputeWritesTakenBack"],
    runbook: Some("reconcile-storm.md#another-client-reverts-the-operators-writes"),
};

pub(super) static WritesNotKept: Entry = Entry {
    meaning: "The API server drops or changes a field that the operator writes. The message names the field.",
    effect: "The stored object runs, and status is still written. The operator writes the field again once an hour.",
    who: Who::Platform,
    steps: &[
        "Read the field: `kubectl --context CELL get events.events.k8s.io -A --field-selector reason=WritesNotKept`.",
        "If the definition there has another version, apply this operator's: `kubectl --context CELL apply --server-side --force-conflicts -f crds/`.",
        "Otherwise find the admission webhook or policy that changes the object. A restart of the manager writes at once.",
    ],
    seen_in: &[
        Seen::event("Workload"),
        Seen::event("WorkloadDeployment"),
        Seen::event("Instance"),
        Seen::event("PropagationPolicy"),
    ],
    alerts: &[],
    runbook: Some("reconcile-storm.md#the-api-server-drops-or-changes-a-field"),
};

pub(super) static StrayInstance: Entry = Entry {
    meaning: "An Instance is deleted: its number is out of range, or another Instance has the same number.",
    effect: "The other Instances of the deployment are not affected.",
    who: Who::Nobody,
    steps: &[
        "If it repeats, find who creates Instances on the cell: `kubectl --context CELL -n HUB_NAMESPACE get instances -o yaml --show-managed-fields`.",
    ],
    seen_in: &[Seen::event("WorkloadDeployment")],
    alerts: &[],
    runbook: None,
};

pub(super) static ClaimFreed: Entry = Entry {
    meaning: "A quota claim of a cell that is gone is deleted. The cell that has the deployment now needs it.",
    effect: "The new cell creates its own claim, and the Instance starts.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::event("WorkloadDeployment")],
    alerts: &[],
    runbook: Some("dead-cell.md#the-cell-does-not-come-back"),
};

pub(super) static GateOpened: Entry = Entry {
    meaning: "On an Instance in its cell: the gate for its data is open.",
    effect: "The Instance starts once its other gates are open.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::event("Instance")],
    alerts: &[],
    runbook: None,
};

pub(super) static Terminating: Entry = Entry {
    meaning: "On an Instance in its cell: it is deleted, because fewer are wanted or the template changed. `related` is the project's \
              Workload.",
    effect: "If the template changed, an Instance of the new template follows.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::event("Instance")],
    alerts: &[],
    runbook: None,
};

pub(super) static Scaled: Entry = Entry {
    meaning: "On a WorkloadDeployment in its cell: the desired number of Instances changed. `related` is the project's Workload.",
    effect: "Instances are created or deleted until the number is reached.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::event("WorkloadDeployment")],
    alerts: &[],
    runbook: None,
};
