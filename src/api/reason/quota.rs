//! Quota.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};

/// Conditions of an Instance that waits for quota, and the Warning on it.
const REPORTED: &[Seen] = &[
    Seen::condition("Instance", "QuotaGranted"),
    Seen::condition("Instance", "Ready"),
    Seen::condition("WorkloadDeployment", "ReplicasReady"),
    Seen::event("Instance"),
];
const UNANSWERED: &[&str] = &["ComputeQuotaUnanswered"];
const NEW_WAIT: &str = "Running Instances are not affected, because their quota is granted. New Instances wait at the gate of quota. \
                        Terminating Instances wait for the release of their claim.";
const NEW_ONLY: &str =
    "Running Instances are not affected, because their quota is granted. New Instances wait at the gate of quota.";

pub(super) static QuotaDisabled: Entry = Entry {
    meaning: "Quota is not configured on the cell.",
    effect: "Instances start without a claim, and nothing is counted.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "QuotaGranted")],
    alerts: &[],
    runbook: None,
};

pub(super) static QuotaAvailable: Entry = Entry {
    meaning: "Quota is granted.",
    effect: "The gate of quota is open.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "QuotaGranted")],
    alerts: &[],
    runbook: None,
};

pub(super) static PendingEvaluation: Entry = Entry {
    meaning: "Quota has not answered yet.",
    effect: NEW_ONLY,
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "QuotaGranted")],
    alerts: &[],
    runbook: None,
};

pub(super) static QuotaExceeded: Entry = Entry {
    meaning: "The project's budget is used up.",
    effect: NEW_ONLY,
    who: Who::Platform,
    steps: &[
        "See what the project claims: `kubectl --context PROJECT get resourceclaims -A -o yaml`.",
        "Raise the project's budget. Or the tenant deletes or shrinks Workloads.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static ValidationFailed: Entry = Entry {
    meaning: "The size of the Instance cannot be counted, or quota calls the claim invalid.",
    effect: NEW_ONLY,
    who: Who::Tenant,
    steps: &[
        "Read the message: `kubectl -n NAMESPACE describe instances NAME`.",
        "Use an instance type that the platform knows, in `spec.template.spec.runtime.resources.instanceType` of the Workload.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static QuotaBackendUnavailable: Entry = Entry {
    meaning: "The project's control plane does not answer the cell.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Ask the project's control plane: `kubectl --context PROJECT get --raw /readyz`.",
        "Check server, CA and token in the kubeconfig of the Secret: `kubectl --context CELL -n compute-system get secret compute-quota-credentials`.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeQuotaBackendUnavailable"],
    runbook: Some("quota-backend.md"),
};

pub(super) static QuotaProjectNotFound: Entry = Entry {
    meaning: "The server does not know the project that the message names. It was deleted, or a label of the cell's namespace belongs \
              to another platform.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "See which project the cell's namespace names: `kubectl --context CELL get namespace HUB_NAMESPACE --show-labels`.",
        "If the project was deleted, wait for its clean-up. If the label is wrong, correct the namespace on the hub.",
    ],
    seen_in: REPORTED,
    alerts: UNANSWERED,
    runbook: Some("quota-backend.md"),
};

pub(super) static QuotaNamespaceNotFound: Entry = Entry {
    meaning: "The project has no namespace of that name. It was deleted.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Check the namespaces of the project: `kubectl --context PROJECT get namespaces`.",
        "If the namespace was deleted, sweeps remove what ran in it. If it was restored, see the runbook of a restored namespace.",
    ],
    seen_in: REPORTED,
    alerts: UNANSWERED,
    runbook: Some("quota-backend.md"),
};

pub(super) static QuotaMisconfigured: Entry = Entry {
    meaning: "The cell's rights in the project, its token, or the definitions there are wrong. Or the cell has no quota credentials, \
              and an Instance has a claim to release.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Check that the project has the definition: `kubectl --context PROJECT get crd resourceclaims.quota.miloapis.com`.",
        "Grant the cell get, list, watch, create and delete of ResourceClaims, as `config/components/quota_rbac` does.",
        "If the message names the token, put a new one into the Secret `compute-quota-credentials`.",
    ],
    seen_in: REPORTED,
    alerts: UNANSWERED,
    runbook: Some("quota-backend.md#quota-is-misconfigured"),
};

pub(super) static QuotaProjectIDUnresolvable: Entry = Entry {
    meaning: "The cell's namespace does not say which project it mirrors. It has no label `meta.datumapis.com/upstream-cluster-name`.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Karmada brings the label with the namespace. Look at the namespace on the hub: `kubectl --context HUB get namespace HUB_NAMESPACE --show-labels`.",
        "If the hub has the label, Karmada has not applied the namespace on the cell. Look at its Work: `kubectl --context HUB -n karmada-es-CLUSTER get works`.",
    ],
    seen_in: REPORTED,
    alerts: UNANSWERED,
    runbook: Some("quota-backend.md"),
};

pub(super) static QuotaNoBudget: Entry = Entry {
    meaning: "The claim has not been evaluated for 20 s. Maybe there is no budget for these resources.",
    effect: NEW_ONLY,
    who: Who::Platform,
    steps: &[
        "Read the claim's conditions: `kubectl --context PROJECT -n NAMESPACE get resourceclaims -o yaml`.",
        "Register the resources and grant a budget, as `config/components/quota` does.",
        "If the budget exists, check that Milo's quota controller is up.",
    ],
    seen_in: REPORTED,
    alerts: UNANSWERED,
    runbook: Some("quota-backend.md#a-claim-is-not-evaluated"),
};

pub(super) static QuotaClaimHeld: Entry = Entry {
    meaning: "Another cell holds the ResourceClaim that the Instance needs. Often it is the cell that the city just left.",
    effect: "The Instance waits until the other cell deletes its Instance, which releases the claim. Running Instances are not \
             affected.",
    who: Who::Platform,
    steps: &[
        "Find the holder: `kubectl --context PROJECT -n NAMESPACE get resourceclaims -L compute.datumapis.com/source-cluster,compute.datumapis.com/cell-uid`.",
        "If the holder is alive, wait until it deletes its Instance.",
        "If the holder is gone, delete its Cluster, or mark it: `kubectl compute cell dead CLUSTER --hub-context HUB --yes`. Management hands the Instance's record to the new cell, and then frees the claim once (`ClaimFreed`).",
        "Delete any other claim yourself: `kubectl --context PROJECT -n NAMESPACE delete resourceclaim NAME`.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: Some("dead-cell.md#what-you-may-have-to-delete-by-hand"),
};

pub(super) static PendingQuota: Entry = Entry {
    meaning: "Quota is being evaluated.",
    effect: NEW_ONLY,
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "Ready"), Seen::condition("WorkloadDeployment", "ReplicasReady")],
    alerts: &[],
    runbook: None,
};

pub(super) static QuotaNotGranted: Entry = Entry {
    meaning: "Quota is denied, or not granted yet. Cells of the Go operator report this reason.",
    effect: NEW_ONLY,
    who: Who::Platform,
    steps: &[
        "See what the project claims: `kubectl --context PROJECT get resourceclaims -A -o yaml`.",
        "Raise the project's budget. Or the tenant deletes or shrinks Workloads.",
    ],
    seen_in: &[Seen::condition("Instance", "Ready")],
    alerts: &[],
    runbook: None,
};
