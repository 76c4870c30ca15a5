//! Success, and work in progress.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};
pub(super) use super::{
    delivery::Propagated,
    network::NetworkReady,
    quota::{PendingEvaluation, QuotaAvailable, QuotaDisabled},
};

const NOT_YET: &str = "New Instances are starting. Running Instances are not affected.";

pub(super) static Available: Entry = Entry {
    meaning: "The Instance is ready, and its provider reports so.",
    effect: "The Instance runs.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "Ready")],
    alerts: &[],
    runbook: None,
};

pub(super) static StableInstanceFound: Entry = Entry {
    meaning: "WorkloadDeployment: at least one Instance is ready.",
    effect: "The city serves. Compare READY with DESIRED to see whether all of it runs.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("WorkloadDeployment", "Available")],
    alerts: &[],
    runbook: None,
};

pub(super) static ReplicasAvailable: Entry = Entry {
    meaning: "WorkloadDeployment: every desired Instance is ready.",
    effect: "All of the deployment runs.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("WorkloadDeployment", "ReplicasReady")],
    alerts: &[],
    runbook: None,
};

pub(super) static AvailablePlacementFound: Entry = Entry {
    meaning: "Workload: at least one placement is available. The message has the worst reason of the others.",
    effect: "The Workload serves from at least one city.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Workload", "Available")],
    alerts: &[],
    runbook: None,
};

pub(super) static AvailableDeploymentFound: Entry = Entry {
    meaning: "Placement: at least one of its deployments is available.",
    effect: "The placement serves from at least one city.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("placement of a Workload", "Available")],
    alerts: &[],
    runbook: None,
};

pub(super) static Ready: Entry = Entry {
    meaning: "All ConfigMaps and Secrets are in place.",
    effect: "The gate of the data is open.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "ReferencedDataReady"),
        Seen::condition("Instance", "ReferencedDataReady"),
    ],
    alerts: &[],
    runbook: None,
};

pub(super) static NotWrittenBack: Entry = Entry {
    meaning: "The Instance cannot be written to the hub yet. A label, the hub namespace, or the owning deployment on the hub is \
              missing. The message says which.",
    effect: "The Instance runs. The tenant cannot see it.",
    who: Who::Platform,
    steps: &[
        "Read the message on the cell: `kubectl --context CELL -n HUB_NAMESPACE describe instances NAME`.",
        "Check the labels of the namespace on the cell: `kubectl --context CELL get namespace HUB_NAMESPACE --show-labels`.",
        "Check that the hub has the namespace and the deployment: `kubectl --context HUB -n HUB_NAMESPACE get workloaddeployments`.",
    ],
    seen_in: &[Seen::condition("Instance", "WrittenBack")],
    alerts: &[],
    runbook: Some("reconcile-errors.md#where-users-see-an-error"),
};

pub(super) static Pending: Entry = Entry {
    meaning: "Not reconciled yet.",
    effect: NOT_YET,
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "Ready")],
    alerts: &[],
    runbook: None,
};

pub(super) static SchedulingGatesPresent: Entry = Entry {
    meaning: "The gates in the message are closed.",
    effect: "The Instance starts once all gates are open. Running Instances are not affected.",
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "Ready")],
    alerts: &[],
    runbook: None,
};

pub(super) static PendingProgramming: Entry = Entry {
    meaning: "The provider has not begun.",
    effect: NOT_YET,
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "Ready"), Seen::condition("Instance", "Programmed")],
    alerts: &[],
    runbook: None,
};

pub(super) static Provisioning: Entry = Entry {
    meaning: "The provider is starting the Instance.",
    effect: NOT_YET,
    who: Who::Nobody,
    steps: &[],
    seen_in: &[Seen::condition("Instance", "Ready")],
    alerts: &[],
    runbook: None,
};

pub(super) static InstancesProvisioning: Entry = Entry {
    meaning: "Instances are starting, and none is ready yet.",
    effect: NOT_YET,
    who: Who::Nobody,
    steps: &[],
    seen_in: &[
        Seen::condition("WorkloadDeployment", "Available"),
        Seen::condition("WorkloadDeployment", "ReplicasReady"),
    ],
    alerts: &[],
    runbook: None,
};

pub(super) static NoAvailablePlacements: Entry = Entry {
    meaning: "No placement is available. The message has the worst reason.",
    effect: "The Workload does not serve from any city.",
    who: Who::Nobody,
    steps: &[
        "If it lasts, look up the reason in the message: `kubectl -n NAMESPACE describe workloads.compute.datumapis.com NAME`.",
    ],
    seen_in: &[Seen::condition("Workload", "Available")],
    alerts: &[],
    runbook: None,
};

pub(super) static NoAvailableDeployments: Entry = Entry {
    meaning: "No deployment of the placement is available. The message has the worst reason.",
    effect: "The placement does not serve from any city.",
    who: Who::Nobody,
    steps: &[
        "If it lasts, look up the reason in the message: `kubectl -n NAMESPACE describe workloads.compute.datumapis.com NAME`.",
    ],
    seen_in: &[Seen::condition("placement of a Workload", "Available")],
    alerts: &[],
    runbook: None,
};
