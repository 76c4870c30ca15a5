//! Networks.

#![allow(non_upper_case_globals)] // an entry has the name of its reason

use super::{Entry, Seen, Who};

/// The Instance reports it, and what it belongs to takes it over.
const REPORTED: &[Seen] = &[
    Seen::condition("Instance", "Ready"),
    Seen::condition("WorkloadDeployment", "Available"),
    Seen::condition("Workload", "Available"),
];
const NEW_WAIT: &str = "Running Instances are not affected. New Instances wait at the gate of their network.";

pub(super) static NetworkReady: Entry = Entry {
    meaning: "All networks are ready.",
    effect: "The gate of the network is open.",
    who: Who::Nobody,
    steps: &[],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static NetworkProvisioning: Entry = Entry {
    meaning: "The network is being made by the network services. The message names the object.",
    effect: NEW_WAIT,
    who: Who::Nobody,
    steps: &[
        "If it lasts, look at the object that the message names: `kubectl --context CELL -n HUB_NAMESPACE get networkbindings,subnetclaims -o yaml`.",
        "If its conditions do not change, the network services have to act.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static NetworkFailedToCreate: Entry = Entry {
    meaning: "The network services refuse the network in this location. The message quotes them.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Read the conditions on the cell: `kubectl --context CELL -n HUB_NAMESPACE get networkbindings -o yaml`.",
        "Ask the team of the network services to resolve what they report.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: None,
};

pub(super) static NetworkNotFound: Entry = Entry {
    meaning: "A Network that the template names is not in the namespace.",
    effect: NEW_WAIT,
    who: Who::Tenant,
    steps: &[
        "List the Networks of the namespace: `kubectl -n NAMESPACE get networks`.",
        "Create the Network, or correct its name in the Workload.",
    ],
    seen_in: REPORTED,
    alerts: &[],
    runbook: None,
};

pub(super) static ProjectUnresolved: Entry = Entry {
    meaning: "The network services do not know the project.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Check the labels of the namespace on the cell: `kubectl --context CELL get namespace HUB_NAMESPACE --show-labels`.",
        "If the labels name the project, register the project with the network services.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: None,
};

pub(super) static LocationNotAvailable: Entry = Entry {
    meaning: "The network services do not serve the location.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "See the Locations of the cell: `kubectl --context CELL get locations,locationbindings -o yaml`.",
        "Ask the team of the network services to serve the location, or remove the city from the projects.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: None,
};

pub(super) static NoMatchingLocation: Entry = Entry {
    meaning: "The cell has no Location of the city.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "See the Locations of the cell with their cities: `kubectl --context CELL get locations,locationbindings -o yaml`.",
        "Create a Location on the cell with the city under `topology.datum.net/city-code` in its `spec.topology`.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: None,
};

pub(super) static AmbiguousServingLocation: Entry = Entry {
    meaning: "The network services, or the Go operator on the cell, found several Locations of the city. This operator takes one, \
              and names it in the message of `Available`.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "See the Locations of the cell with their cities: `kubectl --context CELL get locations,locationbindings -o yaml`.",
        "Leave the city in the `spec.topology` of one Location only.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: None,
};

pub(super) static LocationMismatch: Entry = Entry {
    meaning: "The network services report that the location is not the requested one.",
    effect: NEW_WAIT,
    who: Who::Platform,
    steps: &[
        "Compare the location in the conditions with the Instance's: `kubectl --context CELL -n HUB_NAMESPACE get networkbindings -o yaml`.",
        "Ask the team of the network services to correct the location.",
    ],
    seen_in: REPORTED,
    alerts: &["ComputeDeploymentsBlocked"],
    runbook: None,
};
