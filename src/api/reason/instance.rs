//! The Instance itself.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};

/// The provider reports it on the Instance, and what the Instance belongs to takes it over.
const REPORTED: &[Seen] = &[
    Seen::condition("Instance", "Ready"),
    Seen::condition("WorkloadDeployment", "Available"),
    Seen::condition("Workload", "Available"),
];

pub(super) static ImageUnavailable: Entry = Entry {
    meaning: "The provider cannot pull the image.",
    effect: "The Instance does not start. Other Instances of the deployment are not affected.",
    who: Who::Tenant,
    steps: &[
        "Read the provider's message: `kubectl -n NAMESPACE describe instances NAME`.",
        "Correct the image in the Workload, or the Secret that `imagePullSecrets` names.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static InstanceCrashing: Entry = Entry {
    meaning: "The Instance starts and ends repeatedly.",
    effect: "The Instance does not serve. Other Instances of the deployment are not affected.",
    who: Who::Tenant,
    steps: &[
        "Read the provider's message: `kubectl -n NAMESPACE describe instances NAME`.",
        "Correct the program, its arguments or its data in the Workload.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static ConfigurationError: Entry = Entry {
    meaning: "The Instance cannot run with this configuration.",
    effect: "The Instance does not start. Other Instances of the deployment are not affected.",
    who: Who::Tenant,
    steps: &[
        "Read the provider's message: `kubectl -n NAMESPACE describe instances NAME`.",
        "Correct what the message names in the template of the Workload.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static InstanceRefused: Entry = Entry {
    meaning: "The cell's API server refuses an Instance, a change of it, or an object that it needs. The message quotes the API \
              server. It also appears in `Available`, next to other messages.",
    effect: "`ReplicaFailure` of the WorkloadDeployment is True while this lasts. Running Instances are not affected. The refused \
             Instance or change waits.",
    who: Who::Platform,
    steps: &[
        "Read the API server's answer: `kubectl --context CELL -n HUB_NAMESPACE describe workloaddeployments NAME`.",
        "If a right is missing, apply the cell's role again: `config/components/cell_rbac`.",
        "If the definition on the cell is older, apply it: `kubectl --context CELL apply --server-side --force-conflicts -f crds/`.",
        "If a quota, webhook or policy of the cell denies it, change that. If the template is invalid, the tenant corrects the Workload.",
    ],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "ReplicaFailure"),
        Seen::condition("WorkloadDeployment", "ReplicasReady"),
        Seen::condition("WorkloadDeployment", "Available"),
        Seen::condition("Workload", "Available"),
        Seen::condition("Instance", "Ready"),
        Seen::condition("Instance", "QuotaGranted"),
    ],
    alerts: &["ComputeDeploymentsBlocked", "ComputePermissionMissing", "ComputeReconcileErrors"],
    runbook: Some("reconcile-errors.md#where-users-see-an-error"),
};

pub(super) static Suspended: Entry = Entry {
    meaning: "The project is suspended (annotation `compute.datumapis.com/suspended`).",
    effect: "Instances are stopped. They keep their places, disks and quota.",
    who: Who::Platform,
    steps: &["When the suspension ends, remove the annotation where the platform set it. The Instances start again."],
    seen_in: &[
        Seen::condition("Instance", "Ready"),
        Seen::condition("WorkloadDeployment", "Available"),
        Seen::condition("WorkloadDeployment", "ReplicasReady"),
        Seen::condition("Workload", "Available"),
    ],
    alerts: &[],
    runbook: None,
};
