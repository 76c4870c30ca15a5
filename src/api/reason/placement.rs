//! Placements of a Workload.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};

/// Condition of the Workload, and of the placement in its status.
const REPORTED: &[Seen] =
    &[Seen::condition("Workload", "Available"), Seen::condition("placement of a Workload", "Available")];
/// The same, and the deployment to which a write failed.
const WRITES_REPORTED: &[Seen] = &[
    Seen::condition("Workload", "Available"),
    Seen::condition("placement of a Workload", "Available"),
    Seen::condition("WorkloadDeployment", "Federated"),
    Seen::event("WorkloadDeployment"),
];
const RUNS_ON: &str = "Running Instances are kept. The placement is not changed until it is resolved.";

pub(super) static NoMatchingLocations: Entry = Entry {
    meaning: "A city of the placement is not open to the project. The message names it, and the cities that are open.",
    effect: "The city has no deployment. Other cities are not affected.",
    who: Who::Tenant,
    steps: &[
        "Name a city that is open: `kubectl -n NAMESPACE edit workloads.compute.datumapis.com NAME`.",
        "See the cities that are open to the project: `kubectl --context PROJECT get locationbindings -o yaml`.",
        "If you need another city, ask your platform to open it to the project with a LocationBinding.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static InvalidPlacement: Entry = Entry {
    meaning: "The placement cannot be carried out. The message says what is wrong and how to correct it.",
    effect: RUNS_ON,
    who: Who::Tenant,
    steps: &[
        "Read the message: `kubectl -n NAMESPACE describe workloads.compute.datumapis.com NAME`.",
        "Correct the Workload as the message says: `kubectl -n NAMESPACE edit workloads.compute.datumapis.com NAME`.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static LimitExceeded: Entry = Entry {
    meaning: "The Workload, or a deployment without a Workload, is over a limit. The message names the limit and the value.",
    effect: "Nothing is created or changed. Running Instances are kept.",
    who: Who::Tenant,
    steps: &[
        "Read the message: `kubectl -n NAMESPACE describe workloads.compute.datumapis.com NAME`.",
        "Make the Workload smaller, or split it into several Workloads.",
    ],
    seen_in: &[
        Seen::condition("Workload", "Available"),
        Seen::condition("placement of a Workload", "Available"),
        Seen::condition("WorkloadDeployment", "Federated"),
    ],
    alerts: &[],
    runbook: None,
};

pub(super) static DeploymentNameTaken: Entry = Entry {
    meaning: "Another object has the name that the deployment needs.",
    effect: "The deployment of that city is not created. Other deployments are not affected.",
    who: Who::Tenant,
    steps: &[
        "See whose WorkloadDeployment it is: `kubectl -n NAMESPACE get workloaddeployments NAME -o yaml`.",
        "Delete that WorkloadDeployment if it is not needed, or rename the placement.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: Some("restored-namespace.md#what-a-workload-adopts"),
};

pub(super) static DeploymentForbidden: Entry = Entry {
    meaning: "The operator lacks a right in the project. The message names it.",
    effect: RUNS_ON,
    who: Who::Platform,
    steps: &[
        "Check the role of the manager: `kubectl --context PROJECT get clusterroles,clusterrolebindings`.",
        "Apply the role again: `config/components/controller_rbac`, or `config/overlays/project-access` in a Milo platform.",
    ],
    seen_in: WRITES_REPORTED,
    alerts: &["ComputeDeploymentsBlocked", "ComputePermissionMissing"],
    runbook: Some("reconcile-errors.md#a-permission-is-missing"),
};

pub(super) static DeploymentDenied: Entry = Entry {
    meaning: "A quota, a webhook or a policy of the project denies a write to a deployment. The message names and quotes it.",
    effect: RUNS_ON,
    who: Who::Tenant,
    steps: &[
        "Read the message: `kubectl -n NAMESPACE describe workloads.compute.datumapis.com NAME`.",
        "Look at the quotas of the namespace: `kubectl -n NAMESPACE describe resourcequotas`.",
        "Let the quota, the webhook or the policy that the message names accept WorkloadDeployments.",
        "If the rule is not yours, ask its owner. The operator cannot tell who owns it.",
    ],
    seen_in: WRITES_REPORTED,
    alerts: &[],
    runbook: Some("reconcile-errors.md#where-users-see-an-error"),
};

pub(super) static DeletionWaits: Entry = Entry {
    meaning: "The Workload is being deleted, and its deployments are held. The message names them with their finalizers, or those \
              that cannot be read.",
    effect: "Instances run until their deployment is deleted.",
    who: Who::Platform,
    steps: &[
        "Read what holds each deployment, in `Federated`: `kubectl --context PROJECT -n NAMESPACE describe workloaddeployments`.",
        "Remove what the deployment names: a finalizer of another client, or an object that cannot be read.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: Some("blocked-deployments.md#a-deletion-does-not-end"),
};

pub(super) static AutoscalingNotServed: Entry = Entry {
    meaning: "The Workload asks for autoscaling. This operator does not scale, and leaves `spec.replicas` in the cell to an \
              autoscaler.",
    effect: "The Workload runs with the number of Instances that an autoscaler, or nobody, sets.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Workload", "AutoscalingReady")],
    alerts: &[],
    runbook: None,
};
