//! Delivery between the hub and the cell.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};

/// The deployment reports it, an Event is sent, and the Workload takes it over.
const REPORTED: &[Seen] = &[
    Seen::condition("WorkloadDeployment", "Federated"),
    Seen::condition("Workload", "Available"),
    Seen::event("WorkloadDeployment"),
];
const BLOCKED: &[&str] = &["ComputeDeploymentsBlocked"];
const CELLS_GO_ON: &str =
    "What runs in the cells is not affected. New deployments and changes do not reach the city until it is resolved.";

pub(super) static NoClusterForCity: Entry = Entry {
    meaning: "No Cluster has the city's label.",
    effect: "The city waits, and nothing starts in it. Other cities are not affected.",
    who: Who::Platform,
    steps: &[
        "List the Clusters with their cities: `kubectl --context HUB get clusters -L topology.datum.net/city-code`.",
        "Give the city's Cluster its label: `kubectl --context HUB label cluster CLUSTER topology.datum.net/city-code=CITY`.",
        "If the city has no Cluster yet, join one to Karmada. Then join it to the operator: `kubectl compute cell join CLUSTER --city CITY --hub-context HUB --cell-context CLUSTER=CELL`.",
        "If the city does not exist, delete its LocationBinding in the project. Or ask the owner of the Workload to remove the city.",
    ],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("moving-a-city.md#no-cluster-has-the-label-yet"),
};

pub(super) static ClusterNotReady: Entry = Entry {
    meaning: "The city's cluster does not answer Karmada.",
    effect: "Nothing is evicted. A cell that only lacks its connection keeps its Instances. Its statuses are the last known ones, and readiness \
             becomes `Unknown` after two minutes. Changes wait.",
    who: Who::Platform,
    steps: &[
        "Read Karmada's message on the Cluster: `kubectl --context HUB describe cluster CLUSTER`.",
        "Repair the cell, or its connection to the hub. Once it answers, everything continues by itself.",
        "If the cell does not come back, give another Cluster the label: `kubectl --context HUB label cluster CLUSTER topology.datum.net/city-code=CITY`.",
        "Then mark the dead Cluster, only if nothing runs there any more: `kubectl compute cell dead CLUSTER --hub-context HUB --yes`.",
    ],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "Federated"),
        Seen::condition("WorkloadDeployment", "Available"),
        Seen::condition("WorkloadDeployment", "ReplicasReady"),
        Seen::condition("Workload", "Available"),
        Seen::condition("Instance", "Ready"),
        Seen::event("WorkloadDeployment"),
    ],
    alerts: &["ComputeCellUnreachable"],
    runbook: Some("dead-cell.md"),
};

pub(super) static CityLabelLost: Entry = Entry {
    meaning: "The city's Cluster lost its label, or has another city's label.",
    effect: "The deployment still runs. New deployments of the city also go to the Cluster that has it.",
    who: Who::Platform,
    steps: &[
        "Put the label back: `kubectl --context HUB label cluster CLUSTER topology.datum.net/city-code=CITY --overwrite`.",
        "If the city has to move, drain the Cluster instead: `kubectl compute cell drain CLUSTER --hub-context HUB`.",
    ],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "Federated"),
        Seen::event("WorkloadDeployment"),
        Seen::event("Cluster"),
    ],
    alerts: &["ComputeClusterMislabelled", "ComputeDeploymentsBlocked"],
    runbook: Some("moving-a-city.md#the-label-is-lost-or-wrong"),
};

pub(super) static DrainWaiting: Entry = Entry {
    meaning: "A drain cannot begin, or does not progress. The message says why.",
    effect: "The deployment still runs where it is. Nothing moves.",
    who: Who::Platform,
    steps: &[
        "Read the cause on the Cluster: `kubectl --context HUB describe cluster CLUSTER`.",
        "Make the new Cluster able to take the city. It needs the city's label, no taint, the definitions, and a ready cell.",
        "If Karmada cordoned the Cluster, end that: `karmadactl --karmada-context HUB uncordon CLUSTER`.",
        "Or end the drain: `kubectl --context HUB annotate cluster CLUSTER compute.datumapis.com/drain-`.",
    ],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "Federated"),
        Seen::event("WorkloadDeployment"),
        Seen::event("Cluster"),
    ],
    alerts: &["ComputeDrainStuck", "ComputeDeploymentsBlocked"],
    runbook: Some("moving-a-city.md#the-drain-waits"),
};

pub(super) static NotScheduled: Entry = Entry {
    meaning: "Karmada's scheduler found no cluster. The message quotes it.",
    effect: CELLS_GO_ON,
    who: Who::Platform,
    steps: &[
        "Look at the city's Cluster, its taints and its readiness: `kubectl --context HUB describe cluster CLUSTER`.",
        "If the Cluster has a taint from a cordon, remove it: `karmadactl --karmada-context HUB uncordon CLUSTER`.",
        "If the Cluster does not serve our kinds, apply the definitions there: `kubectl --context CELL apply --server-side --force-conflicts -f crds/`.",
        "If the message names another cause, read the scheduler's condition: `kubectl --context HUB -n HUB_NAMESPACE describe resourcebindings`.",
    ],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md"),
};

pub(super) static NotApplied: Entry = Entry {
    meaning: "The cluster refused the object, or has not got the last change. The message quotes the cluster. For a ConfigMap or \
              Secret the message names the ResourceBinding that quotes the cluster, because the quote may contain a value.",
    effect: "The cluster keeps the object as it was before the last change, or does not have it. Running Instances are not affected.",
    who: Who::Platform,
    steps: &[
        "Read what the cluster answered: `kubectl --context HUB -n HUB_NAMESPACE get resourcebindings -o yaml`.",
        "Often an object of that name was on the cluster before. Remove that object, or let Karmada take it over.",
        "If the message says that the cluster has an earlier version, Karmada has not carried out the change. Check that karmada-controller-manager is up.",
    ],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md#not-applied"),
};

pub(super) static CellNotReporting: Entry = Entry {
    meaning: "The cluster has the deployment, and the cell's manager has not reported about it for 20 s. Often the manager is not \
              there, or cannot write in its cell. Or it is an early version of the Go operator, which reports no generation. The \
              message says so.",
    effect: "New Instances do not start, and changes wait. What runs in the cell runs on.",
    who: Who::Platform,
    steps: &[
        "See if the cell's manager leads: `kubectl compute check --hub-context HUB --cell-context CLUSTER=CELL`.",
        "If not, see if its pods run, and start them if there are none: `kubectl --context CELL -n compute-system get pods`.",
        "Read what it logs: `kubectl --context CELL -n compute-system logs deployment/compute-manager`.",
        "Check that the cell has the deployment: `kubectl --context CELL -n HUB_NAMESPACE get workloaddeployments NAME`.",
        "If its status is complete there, the hub does not reflect it. Check that the interpreter exists: `kubectl --context HUB get resourceinterpretercustomizations`.",
    ],
    seen_in: &[Seen::condition("WorkloadDeployment", "Ready"), Seen::condition("Workload", "Ready")],
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md#the-cell-does-not-report"),
};

pub(super) static BindingMissing: Entry = Entry {
    meaning: "Karmada has not made a binding, or another client removed it.",
    effect: "A deployment that was never delivered does not start. What was delivered before is recreated, with new uids on the cell.",
    who: Who::Platform,
    steps: &[
        "See which bindings exist: `kubectl --context HUB -n HUB_NAMESPACE get resourcebindings`.",
        "Check that karmada-controller-manager is up and can write. Its log names the binding.",
        "If another client deletes bindings, find it in the hub's audit log, and stop it.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked", "ComputeRepairsFrequent"],
    runbook: Some("repairs.md"),
};

pub(super) static HandOverWaits: Entry = Entry {
    meaning: "Two cells claim the record of the Instance on the hub: the cell that runs it, and a former one. The message says why \
              the record cannot move yet.",
    effect: "The Instance runs. Its status in the project is the former cell's last one, and is not current.",
    who: Who::Platform,
    steps: &[
        "Read the cause in the Instance's condition: `kubectl --context PROJECT -n NAMESPACE describe instances NAME`.",
        "If the former cell is alive, wait until it deletes its Instance.",
        "If the former cell is gone, delete its Cluster, or mark it: `kubectl compute cell dead CLUSTER --hub-context HUB --yes`.",
    ],
    seen_in: &[Seen::condition("Instance", "Ready")],
    alerts: &[],
    runbook: Some("dead-cell.md#what-becomes-of-the-dead-cells-instances"),
};

pub(super) static PropagationSuspended: Entry = Entry {
    meaning: "Scheduling or dispatching of the named binding is suspended in Karmada.",
    effect: "What runs in the cell is not affected. No change reaches the cell.",
    who: Who::Platform,
    steps: &[
        "Find who suspended the binding, and whether the suspension is still needed: `kubectl --context HUB -n HUB_NAMESPACE get resourcebinding NAME -o yaml --show-managed-fields`.",
        "Resume it. Remove `spec.suspension` from the binding that the message names, or from the city's policy: `kubectl --context HUB -n HUB_NAMESPACE edit resourcebinding NAME`.",
    ],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md"),
};

pub(super) static ClaimedByAnotherPolicy: Entry = Entry {
    meaning: "Another PropagationPolicy sends the object, or a companion, elsewhere. The message names the policy.",
    effect: "The object does not reach the deployment's city. Instances that run there keep what they have read.",
    who: Who::Platform,
    steps: &[
        "Look at the policy that the message names: `kubectl --context HUB get propagationpolicies,clusterpropagationpolicies -A`.",
        "Ask its owner to narrow it, or remove it. Never remove a policy with a name of the form `city-<code>`.",
        "If the policy is a `city-<code>`, a rollback to claims took the data away. Start the manager with `--referenced-data-propagation=dependencies`.",
    ],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md"),
};

pub(super) static DependenciesNotPropagated: Entry = Entry {
    meaning: "Karmada has not taken up the dependencies yet. Or its feature gate `PropagateDeps` is off, or the interpreter of \
              `config/components/federation` is missing. The message says which, as far as Karmada shows it.",
    effect: "ConfigMaps and Secrets do not reach the cell. New Instances that use them wait. Running Instances are not affected.",
    who: Who::Platform,
    steps: &[
        "Check that the interpreter exists: `kubectl --context HUB get resourceinterpretercustomizations`.",
        "If it is missing, apply it: `kubectl kustomize config/overlays/hub | kubectl --context HUB apply --server-side --force-conflicts --filename -`.",
        "Start karmada-controller-manager with the feature gate `PropagateDeps=true`. Restart it after a change of the interpreter.",
    ],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md#dependencies-are-not-propagated"),
};

pub(super) static HubUnavailable: Entry = Entry {
    meaning: "The hub does not answer, or cannot be read. `Federated` is `Unknown`.",
    effect: "Running Instances are not affected, and the last known status is kept. No change reaches a cell. Everything is made up \
             for later.",
    who: Who::Platform,
    steps: &[
        "Ask the hub: `kubectl --context HUB get --raw /readyz`.",
        "Ask the manager what fails, through a forwarded port: `kubectl --context MANAGEMENT -n compute-system port-forward deployment/compute-manager 8081`.",
        "The line in its answer names the cause: `curl -s localhost:8081/readyz`.",
        "If the hub does not accept the token, make a new one: `kubectl --context HUB -n compute-system create token compute-manager --duration=720h`.",
        "Put it into the kubeconfig in Secret `compute-hub-credentials`. The manager reads it without a restart.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeHubUnreachable", "ComputeWatchFailing", "ComputeDeploymentsBlocked"],
    runbook: Some("hub-unreachable.md"),
};

pub(super) static HubRefused: Entry = Entry {
    meaning: "The hub refuses a write. The message quotes it.",
    effect: CELLS_GO_ON,
    who: Who::Platform,
    steps: &[
        "If a permission is missing, apply the hub's overlay again: `kubectl kustomize config/overlays/hub | kubectl --context HUB apply --server-side --force-conflicts --filename -`.",
        "If the message names a webhook, find its configuration, and mend or remove it: `kubectl --context HUB get validatingwebhookconfigurations,mutatingwebhookconfigurations --output=custom-columns=kind:.kind,name:.metadata.name,webhooks:.webhooks[*].name`.",
        "Otherwise find the quota or the admission rule on the hub that the message quotes.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked", "ComputePermissionMissing"],
    runbook: Some("reconcile-errors.md"),
};

pub(super) static InstancesNotShown: Entry = Entry {
    meaning: "A quota, a webhook or a policy of the project keeps Instances of the deployment from being shown in it. The message \
              quotes the API server.",
    effect: "The Instances run. The project does not show them. The operator tries again once a minute.",
    who: Who::Tenant,
    steps: &[
        "Read the message: `kubectl -n NAMESPACE describe workloaddeployments NAME`.",
        "Look at the quotas of the namespace: `kubectl -n NAMESPACE describe resourcequotas`.",
        "Let the quota, the webhook or the policy that the message names accept Instances.",
    ],
    seen_in: &[Seen::condition("WorkloadDeployment", "Federated"), Seen::event("WorkloadDeployment")],
    alerts: &[],
    runbook: Some("quarantined-instances.md#what-tenants-see"),
};

pub(super) static ProjectRefused: Entry = Entry {
    meaning: "The project's API server, or a webhook that it calls, has failed the operator's writes for 20 s. The message names a \
              webhook that does not answer. Nothing has judged the Workload.",
    effect: "Running Instances are not affected. Statuses are not current, and changes of the Workload are not carried out. The \
             operator retries.",
    who: Who::Platform,
    steps: &[
        "Read the message: `kubectl --context PROJECT -n NAMESPACE describe workloads.compute.datumapis.com NAME`.",
        "If it names a webhook, look at the webhook's configuration: `kubectl --context PROJECT get validatingwebhookconfigurations,mutatingwebhookconfigurations`.",
        "Repair that webhook. If it is the tenant's, the tenant repairs or removes it. The operator continues by itself.",
        "If it names no webhook, ask the project's API server: `kubectl --context PROJECT get --raw /readyz`.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: Some("reconcile-errors.md#where-users-see-an-error"),
};

pub(super) static HubNamespaceTerminating: Entry = Entry {
    meaning: "The deployment's namespace on the hub was deleted, and something in it is held. The message quotes the hub.",
    effect: "The deletion removes the namespace's objects from the cells as well. Once the namespace is gone, the operator recreates \
             it with all its objects.",
    who: Who::Platform,
    steps: &[
        "See what holds it: `kubectl --context HUB get namespace HUB_NAMESPACE -o yaml`.",
        "Remove what holds it: the finalizers that the message names, or the API that does not answer.",
    ],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md"),
};

pub(super) static HubCopyHeld: Entry = Entry {
    meaning: "Another client's finalizers hold the copy on the hub. Or the copy lost its label \
              `meta.datumapis.com/upstream-namespace`, or cannot be read. The message says which. The Event is also on a copy that \
              cannot be deleted: of a ConfigMap or Secret, or of a deployment whose namespace is gone.",
    effect: "Instances run until the copy is deleted. A deletion waits, and so does a recreation.",
    who: Who::Platform,
    steps: &[
        "See the finalizers of the copy: `kubectl --context HUB -n HUB_NAMESPACE get workloaddeployments NAME -o yaml`.",
        "Let the controller that owns the finalizer end its work. If that controller is gone, remove the finalizer.",
    ],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "Federated"),
        Seen::condition("Workload", "Available"),
        Seen::event("WorkloadDeployment"),
        Seen::event("ConfigMap"),
        Seen::event("Secret"),
    ],
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md#a-deletion-does-not-end"),
};

pub(super) static RateLimited: Entry = Entry {
    meaning: "Large deployments of one namespace are written to the hub one after another, and others of this namespace come first.",
    effect: "The deployment is written in its turn. What runs is not affected, and no other namespace waits.",
    who: Who::Nobody,
    steps: &[],
    seen_in: REPORTED,
    alerts: BLOCKED,
    runbook: Some("blocked-deployments.md"),
};

pub(super) static Propagated: Entry = Entry {
    meaning: "The copy is applied on the cell.",
    effect: "The cell runs the last version of the deployment.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("WorkloadDeployment", "Federated")],
    alerts: &[],
    runbook: None,
};
