//! Referenced data: ConfigMaps and Secrets that cannot be copied, or have not arrived.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};

/// Conditions of a source that cannot be copied.
const SOURCE: &[Seen] = &[
    Seen::condition("WorkloadDeployment", "ReferencedDataReady"),
    Seen::condition("Instance", "ReferencedDataReady"),
    Seen::condition("Workload", "Available"),
];
/// Conditions of data on its way.
const ON_ITS_WAY: &[Seen] = &[
    Seen::condition("WorkloadDeployment", "ReferencedDataReady"),
    Seen::condition("Instance", "ReferencedDataReady"),
    Seen::condition("Instance", "Ready"),
];
const NEW_WAIT: &str = "Running Instances keep their data. New Instances wait at their gate until it is resolved.";

pub(super) static Resolving: Entry = Entry {
    meaning: "The sources are being read. If this lasts, the message says why.",
    effect: "Running Instances keep their data. New Instances wait.",
    who: Who::Nobody,
    steps: &[],
    seen_in: ON_ITS_WAY,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: Some("blocked-deployments.md"),
};

pub(super) static AwaitingPropagation: Entry = Entry {
    meaning: "The copies have not arrived on the cell yet. If this lasts, the message says why. An Instance keeps the first message of \
              this reason. The WorkloadDeployment has the current one.",
    effect: "Running Instances keep their data. New Instances wait.",
    who: Who::Nobody,
    steps: &[
        "If it lasts, read the current message: `kubectl --context PROJECT -n NAMESPACE describe workloaddeployments NAME`.",
        "Compare what the hub and the cell have: `kubectl --context HUB -n HUB_NAMESPACE get configmaps,secrets -l compute.datumapis.com/referenced-data=true`.",
        "On the cell: `kubectl --context CELL -n HUB_NAMESPACE get configmaps,secrets -l compute.datumapis.com/referenced-data=true`.",
    ],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "ReferencedDataReady"),
        Seen::condition("Instance", "ReferencedDataReady"),
        Seen::condition("Instance", "Ready"),
        Seen::event("Instance"),
    ],
    alerts: &["ComputeReferencedDataMissing", "ComputeDeploymentsBlocked"],
    runbook: Some("blocked-deployments.md#a-cell-lacks-data-that-management-sees-as-delivered"),
};

pub(super) static ReferencedDataNotReady: Entry = Entry {
    meaning: "The copies have not arrived on the cell yet. The Go operator wrote this reason.",
    effect: "Running Instances keep their data. New Instances wait.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "ReferencedDataReady"), Seen::condition("Instance", "Ready")],
    alerts: &[],
    runbook: None,
};

pub(super) static SourceNotFound: Entry = Entry {
    meaning: "A ConfigMap or Secret that the template refers to does not exist. The message names it.",
    effect: NEW_WAIT,
    who: Who::Tenant,
    steps: &[
        "See what exists: `kubectl -n NAMESPACE get configmaps,secrets`.",
        "Create it, correct its name in the Workload, or mark the reference as optional.",
    ],
    seen_in: SOURCE,
    alerts: &[],
    runbook: None,
};

pub(super) static SourceUnauthorized: Entry = Entry {
    meaning: "The operator may not read the ConfigMap or Secret.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Find out who denies it: `kubectl --context PROJECT -n NAMESPACE describe workloaddeployments NAME`.",
        "Grant the manager the right to get ConfigMaps and Secrets in the project, as `config/components/controller_rbac` does.",
        "If a policy of the tenant denies it, the tenant has to change that policy.",
    ],
    seen_in: SOURCE,
    alerts: &["ComputeDeploymentsBlocked", "ComputePermissionMissing"],
    runbook: Some("reconcile-errors.md#a-permission-is-missing"),
};

pub(super) static SourceTooLarge: Entry = Entry {
    meaning: "A ConfigMap or Secret has more bytes than allowed, or all that the template refers to have together. By default 256 KiB \
              and 1 MiB are allowed.",
    effect: NEW_WAIT,
    who: Who::Tenant,
    steps: &[
        "The message has the limit and the size: `kubectl -n NAMESPACE describe wd NAME`.",
        "Make the object smaller, or refer to fewer of them. The Workload needs no change.",
        "The platform can raise `referencedData.perObjectLimitBytes` and `referencedData.aggregateLimitBytes` of the config file.",
    ],
    seen_in: SOURCE,
    alerts: &[],
    runbook: None,
};

pub(super) static TooManySources: Entry = Entry {
    meaning: "The template refers to more than 256 ConfigMaps and Secrets.",
    effect: NEW_WAIT,
    who: Who::Tenant,
    steps: &["Put the content into fewer objects, and refer to these in the Workload."],
    seen_in: SOURCE,
    alerts: &[],
    runbook: None,
};

pub(super) static SourceNameTooLong: Entry = Entry {
    meaning: "The name of the ConfigMap or Secret has more than 242 characters. Karmada adds up to 11 to it.",
    effect: NEW_WAIT,
    who: Who::Tenant,
    steps: &["Create the object again under a shorter name, and refer to that name in the Workload."],
    seen_in: SOURCE,
    alerts: &[],
    runbook: None,
};

pub(super) static SourceNameTaken: Entry = Entry {
    meaning: "Another owner's object on the hub has the name of the ConfigMap or Secret. Or the template refers to \
              `kube-root-ca.crt`, which every cluster writes itself. The message says which.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Find the owner of the object on the hub: `kubectl --context HUB -n HUB_NAMESPACE get configmap,secret NAME -o yaml --show-managed-fields`.",
        "Ask the owner to rename or remove the object.",
        "If the template refers to `kube-root-ca.crt`, the tenant has to use another name.",
    ],
    seen_in: SOURCE,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: Some("blocked-deployments.md"),
};

pub(super) static SourceRefused: Entry = Entry {
    meaning: "The hub refuses the copy of the ConfigMap or Secret. The message names the field.",
    effect: NEW_WAIT,
    who: Who::Tenant,
    steps: &["Correct the field that the message names in the ConfigMap or Secret."],
    seen_in: SOURCE,
    alerts: &[],
    runbook: None,
};

pub(super) static SourceCopyHeld: Entry = Entry {
    meaning: "The copy of the ConfigMap or Secret on the hub must be recreated, and finalizers hold it. The message names them.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "See who set the finalizers: `kubectl --context HUB -n HUB_NAMESPACE get configmap,secret NAME -o yaml --show-managed-fields`.",
        "Let the controller that owns the finalizer end its work. If that controller is gone, remove the finalizer.",
    ],
    seen_in: SOURCE,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: Some("blocked-deployments.md"),
};
