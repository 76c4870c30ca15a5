//! The rows and panels of the dashboard.

/// A panel: its title, its description, Grafana's name of the unit, the pages in `docs/` for its problems, and its queries with their
/// legends.
pub(super) type Panel =
    (&'static str, &'static str, &'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// A panel with one number: its title, its description, its limits, the page in `docs/` for its problem, and its query.
pub(super) type Stat = (&'static str, &'static str, Limits, &'static str, &'static str);

/// The colours of a number.
#[derive(Clone, Copy)]
pub(super) enum Limits {
    /// Green at 0, else red.
    None,
    /// Green at 0, else yellow.
    NoneIdeally,
    /// Seconds. Red below the first number of days, yellow below the second, else green.
    Days(u32, u32),
}

/// The first row: is it well? Each number is 0 if it is, except the last one.
pub(super) const WELL: [Stat; 8] = [
    (
        "Alerts that fire",
        "Alerts of this operator, as Prometheus evaluates them",
        Limits::None,
        "runbooks/README.md",
        "count(ALERTS{job=~\"$job\",alertname=~\"Compute.+\",alertstate=\"firing\"}) or vector(0)",
    ),
    (
        "Managers down",
        "Managers that do not answer Prometheus. 1 if Prometheus knows none",
        Limits::None,
        "runbooks/manager-down.md",
        "count(up{$target} == 0) or absent(up{$target}) or vector(0)",
    ),
    (
        "Without a leader",
        "Namespaces with managers, of which none leads. Nothing is reconciled there",
        Limits::None,
        "runbooks/manager-down.md",
        "count(sum by (job, namespace) (leader_election_master_status{$target}) == 0) or vector(0)",
    ),
    (
        "Cells that do not answer",
        "Clusters of a city that Karmada cannot reach. What runs there continues",
        Limits::None,
        "runbooks/dead-cell.md",
        "sum(compute_federation_unready_clusters{$target}) or vector(0)",
    ),
    (
        "Failing watches",
        "Watches that fail now. Changes do not arrive",
        Limits::None,
        "runbooks/hub-unreachable.md",
        "count(sum by (pod, plane, resource) (rate(compute_watch_failures_total{$target}[$__rate_interval])) > 0) or vector(0)",
    ),
    (
        "Wait for the platform",
        "Deployments and Workloads that wait for the team that runs the federation. The table has their reasons",
        Limits::None,
        "runbooks/blocked-deployments.md",
        "sum(compute_waiting_objects{$target,waits_for=\"platform\"}) or vector(0)",
    ),
    (
        "Wait for a tenant",
        "Deployments and Workloads that wait for their owner. The table has their reasons",
        Limits::NoneIdeally,
        "reasons.md",
        "sum(compute_waiting_objects{$target,waits_for=\"tenant\"}) or vector(0)",
    ),
    (
        "First credential ends in",
        "Time until the first certificate or token of a manager expires",
        Limits::Days(3, 7),
        "runbooks/certificate-expires.md",
        "min(compute_certificate_expiration_timestamp_seconds{$target} or compute_token_expiration_timestamp_seconds{$target}) - time()",
    ),
];

/// The table of who waits: one line for each party, reason and city.
pub(super) const TABLE: (&str, &str, &str, &str) = (
    "Who waits",
    "Deployments that are not ready, and Workloads without one, by who has to act, by reason and by city. \
     `kubectl compute waiting` lists them by name",
    "runbooks/blocked-deployments.md",
    "sum by (waits_for, reason, city) (compute_waiting_objects{$target})",
);

/// Rows of the dashboard, each with its panels. `$job`, `$namespace` and `$pod` are variables of the dashboard.
pub(super) const ROWS: [(&str, &[Panel]); 7] = [
    ("Waiting and blocked", WAITING),
    ("Sweeps", SWEEPS),
    ("Referenced data", DATA),
    ("Cities and migration", CITIES),
    ("Quota", QUOTA),
    ("Work", WORK),
    ("Watches and processes", PROCESSES),
];

const WAITING: &[Panel] = &[
    (
        "Waiting objects",
        "Deployments that are not ready, and Workloads, by reason, by who has to act, and by city. Condition Ready of each one has the details",
        "short",
        &["runbooks/blocked-deployments.md"],
        &[(
            "sum by (reason, waits_for, city) (compute_waiting_objects{$target})",
            "{{reason}} {{city}} (waits for: {{waits_for}})",
        )],
    ),
    (
        "Blocked deployments",
        "On their way to the cell, by reason, and by who has to act. Condition Federated of each deployment has the details",
        "short",
        &["runbooks/blocked-deployments.md"],
        &[(
            "sum by (reason, waits_for) (compute_federation_blocked_deployments{$target})",
            "{{reason}} (waits for the {{waits_for}})",
        )],
    ),
    (
        "Latency of federation",
        "Median and 99th percentile by leg: project to hub, hub to the cell's report, and from there to the project's status",
        "s",
        &["runbooks/slow-federation.md"],
        &[
            (
                "histogram_quantile(0.5, sum by (le, leg) (rate(compute_federation_latency_seconds_bucket{$target}[$__rate_interval])))",
                "{{leg}} median",
            ),
            (
                "histogram_quantile(0.99, sum by (le, leg) (rate(compute_federation_latency_seconds_bucket{$target}[$__rate_interval])))",
                "{{leg}} 99 %",
            ),
        ],
    ),
    (
        "Repairs",
        "Templates touched because their binding or Work on the hub was removed",
        "short",
        &["runbooks/repairs.md"],
        &[("sum(increase(compute_federation_repairs_total{$target}[$__rate_interval]))", "repairs")],
    ),
    (
        "Left behind on the hub",
        "Namespaces of deleted projects, paused deletions, Instances that cannot be shown, policies that gave up waiting",
        "short",
        &["runbooks/stranded-data.md", "runbooks/quarantined-instances.md", "runbooks/rebuilt-hub.md"],
        &[
            ("sum(compute_federation_stranded_namespaces{$target})", "stranded namespaces"),
            ("sum by (cluster) (compute_federation_left_on_clusters{$target})", "still on {{cluster}}"),
            ("sum(increase(compute_federation_works_removed_total{$target}[$__rate_interval]))", "removed Works"),
            ("sum by (plane) (compute_deletions_paused{$target})", "deletions paused: {{plane}}"),
            ("sum by (reason) (compute_federation_quarantined_objects{$target})", "quarantined: {{reason}}"),
            (
                "sum(increase(compute_federation_guard_given_up_total{$target}[$__rate_interval]))",
                "policies that gave up",
            ),
            (
                "sum(increase(compute_federation_bindings_reaped_total{$target}[$__rate_interval]))",
                "removed bindings without companion",
            ),
        ],
    ),
];

const SWEEPS: &[Panel] = &[
    (
        "Finished sweeps",
        "By result. error: some of the work failed. postponed: the state of the hub was unknown",
        "short",
        &["runbooks/stranded-data.md"],
        &[("sum by (result) (increase(compute_sweeps_total{$target}[$__rate_interval]))", "{{result}}")],
    ),
    (
        "The last sweep",
        "Its duration, and the time since its end. Only the leader sweeps",
        "s",
        &["runbooks/stranded-data.md"],
        &[
            ("max by (pod) (compute_sweep_last_duration_seconds{$target})", "{{pod}} took"),
            ("time() - max by (pod) (compute_sweep_last_end_timestamp_seconds{$target} > 0)", "since {{pod}} ended it"),
        ],
    ),
    (
        "Collected companions",
        "Copies of ConfigMaps and Secrets deleted from the hub because they were unused",
        "short",
        &["runbooks/stranded-data.md"],
        &[("sum by (kind) (increase(compute_companions_collected_total{$target}[$__rate_interval]))", "{{kind}}")],
    ),
];

const DATA: &[Panel] = &[
    (
        "Companions in the cells",
        "Copies of ConfigMaps and Secrets that deployments of each cell expect, and those that exist",
        "short",
        &["runbooks/blocked-deployments.md"],
        &[
            ("sum by (pod) (compute_referenced_data_companions_expected{$target})", "{{pod}} expected"),
            ("sum by (pod) (compute_referenced_data_companions_present{$target})", "{{pod}} present"),
        ],
    ),
    (
        "Wait of Instances for their data",
        "Median and 99th percentile over all cells",
        "s",
        &["runbooks/blocked-deployments.md"],
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(compute_referenced_data_gate_wait_seconds_bucket{$target}[$__rate_interval])))",
                "median",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(compute_referenced_data_gate_wait_seconds_bucket{$target}[$__rate_interval])))",
                "99 %",
            ),
        ],
    ),
    (
        "ReferencedDataReady changes",
        "Instances with a new reason in condition ReferencedDataReady",
        "short",
        &["runbooks/blocked-deployments.md"],
        &[(
            "sum by (to_reason) (increase(compute_referenced_data_condition_transitions_total{$target}[$__rate_interval]))",
            "to {{to_reason}}",
        )],
    ),
];

const CITIES: &[Panel] = &[
    (
        "Drains of cities",
        "Drains by state, clusters that hold a city without its label, and clusters of a city that are not ready",
        "short",
        &["runbooks/moving-a-city.md"],
        &[
            (
                "sum by (city, cluster, state) (compute_federation_drains{$target})",
                "drain of {{city}} from {{cluster}}: {{state}}",
            ),
            (
                "sum by (cluster, city) (compute_federation_mislabelled_clusters{$target})",
                "{{cluster}} lacks the label {{city}}",
            ),
            (
                "sum by (cluster, city) (compute_federation_unready_clusters{$target})",
                "{{cluster}} of {{city}} not ready",
            ),
        ],
    ),
    (
        "City policies",
        "By phase of the migration from claims to dependencies. refused is 1 while Karmada does not propagate dependencies",
        "short",
        &["runbooks/migration.md"],
        &[
            ("sum by (phase) (compute_federation_policies{$target})", "{{phase}}"),
            ("max(compute_federation_migration_refused{$target})", "refused"),
            ("max by (bug) (compute_federation_karmada_assumed{$target})", "assumed not to have: {{bug}}"),
        ],
    ),
    (
        "Fields taken over",
        "Objects with fields taken over from another field manager",
        "short",
        &["migrating-from-go.md"],
        &[(
            "sum by (plane, kind) (increase(compute_fields_taken_over_total{$target}[$__rate_interval]))",
            "{{plane}} {{kind}}",
        )],
    ),
];

const QUOTA: &[Panel] = &[
    (
        "Instances without an answer",
        "By reason. Without an answer, Instances are neither started nor deleted",
        "short",
        &["runbooks/quota-backend.md"],
        &[("sum by (reason) (compute_quota_unanswered_instances{$target})", "{{reason}}")],
    ),
    (
        "Failed evaluations of quota",
        "By reason. The Instances wait",
        "short",
        &["runbooks/quota-backend.md"],
        &[("sum by (reason) (increase(compute_quota_eval_failures_total{$target}[$__rate_interval]))", "{{reason}}")],
    ),
    (
        "Claims left behind",
        "ResourceClaims of deleted Instances, in projects that could not be reached",
        "short",
        &["runbooks/quota-backend.md"],
        &[("sum(increase(compute_quota_claim_orphaned_total{$target}[$__rate_interval]))", "orphaned")],
    ),
    (
        "Quota enforced",
        "1 if Instances wait for quota",
        "short",
        &["runbooks/quota-backend.md"],
        &[("max by (pod) (compute_quota_enforcement_enabled{$target})", "{{pod}}")],
    ),
];

const WORK: &[Panel] = &[
    (
        "Reconciles",
        "Per second, by controller",
        "ops",
        &["runbooks/reconcile-storm.md"],
        &[(
            "sum by (controller) (rate(controller_runtime_reconcile_total{$target}[$__rate_interval]))",
            "{{controller}}",
        )],
    ),
    (
        "Failed reconciles",
        "Per second, by controller and class of the error",
        "ops",
        &["runbooks/reconcile-errors.md"],
        &[(
            "sum by (controller, class) (rate(controller_runtime_reconcile_errors_total{$target}[$__rate_interval]))",
            "{{controller}} {{class}}",
        )],
    ),
    (
        "Length of reconciles",
        "99th percentile by controller",
        "s",
        &["runbooks/reconcile-errors.md"],
        &[(
            "histogram_quantile(0.99, sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket{$target}[$__rate_interval])))",
            "{{controller}}",
        )],
    ),
    (
        "Keys ready to be reconciled",
        "By queue. The highest value of all pods",
        "short",
        &["runbooks/slow-federation.md"],
        &[("max by (name) (workqueue_depth{$target})", "{{name}}")],
    ),
    (
        "Keys added and requeued",
        "Per second, by queue: those that became ready, and those queued again for later",
        "ops",
        &["runbooks/reconcile-storm.md"],
        &[
            ("sum by (name) (rate(workqueue_adds_total{$target}[$__rate_interval]))", "{{name}} added"),
            ("sum by (name) (rate(workqueue_retries_total{$target}[$__rate_interval]))", "{{name}} requeued"),
        ],
    ),
    (
        "Wait and processing time of keys",
        "99th percentile by queue",
        "s",
        &["runbooks/slow-federation.md"],
        &[
            (
                "histogram_quantile(0.99, sum by (le, name) (rate(workqueue_queue_duration_seconds_bucket{$target}[$__rate_interval])))",
                "{{name}} waits",
            ),
            (
                "histogram_quantile(0.99, sum by (le, name) (rate(workqueue_work_duration_seconds_bucket{$target}[$__rate_interval])))",
                "{{name}} is processed",
            ),
        ],
    ),
    (
        "Workers",
        "Reconciles in progress, and the maximum of each controller",
        "short",
        &["runbooks/slow-federation.md"],
        &[
            ("max by (controller) (controller_runtime_active_workers{$target})", "{{controller}}"),
            ("max by (controller) (controller_runtime_max_concurrent_reconciles{$target})", "{{controller}} at most"),
        ],
    ),
    (
        "Requests",
        "Per second, by the kind of API server and HTTP code",
        "ops",
        &["runbooks/reconcile-errors.md"],
        &[("sum by (host, code) (rate(rest_client_requests_total{$target}[$__rate_interval]))", "{{host}} {{code}}")],
    ),
    (
        "Latency of API servers",
        "99th percentile by the kind of API server and verb, until the answer begins",
        "s",
        &["runbooks/slow-federation.md"],
        &[(
            "histogram_quantile(0.99, sum by (le, host, verb) (rate(rest_client_request_duration_seconds_bucket{$target}[$__rate_interval])))",
            "{{host}} {{verb}}",
        )],
    ),
    (
        "Writes",
        "Per second, by control plane and kind. While nothing changes, nothing is written",
        "ops",
        &["runbooks/reconcile-storm.md"],
        &[("sum by (plane, kind) (rate(compute_writes_total{$target}[$__rate_interval]))", "{{plane}} {{kind}}")],
    ),
    (
        "Reverted writes",
        "Objects in which another client repeatedly reverts writes, by controller",
        "short",
        &["runbooks/reconcile-storm.md"],
        &[("sum by (controller) (compute_contested_objects{$target})", "{{controller}}")],
    ),
];

const PROCESSES: &[Panel] = &[
    (
        "Failed attempts of watches",
        "Failed attempts per second, and watches replaced because they went silent",
        "ops",
        &["runbooks/hub-unreachable.md"],
        &[
            (
                "sum by (plane, resource, class) (rate(compute_watch_failures_total{$target}[$__rate_interval]))",
                "{{plane}} {{resource}} {{class}}",
            ),
            (
                "sum by (plane, resource) (rate(compute_watch_replaced_total{$target}[$__rate_interval]))",
                "{{plane}} {{resource}} replaced",
            ),
        ],
    ),
    (
        "Objects that cannot be read",
        "Skipped, by kind",
        "short",
        &["runbooks/reconcile-errors.md"],
        &[("sum by (kind) (increase(compute_undecodable_objects_total{$target}[$__rate_interval]))", "{{kind}}")],
    ),
    (
        "Leaders and projects",
        "The leading replica, the projects that it watches, and changed kubeconfigs that cannot be used",
        "short",
        &["runbooks/manager-down.md"],
        &[
            ("max by (pod) (leader_election_master_status{$target})", "{{pod}} leads"),
            ("sum(compute_projects_engaged{$target})", "projects"),
            ("max by (host) (compute_kubeconfig_unusable{$target})", "kubeconfig of {{host}} unusable"),
        ],
    ),
    (
        "Certificates and tokens",
        "Time until each expires, in the pod where it expires first, and the age of each token",
        "s",
        &["runbooks/certificate-expires.md"],
        &[
            (
                "min by (certificate) (compute_certificate_expiration_timestamp_seconds{$target}) - time()",
                "{{certificate}}",
            ),
            ("min by (host) (compute_token_expiration_timestamp_seconds{$target}) - time()", "token for {{host}}"),
            (
                "time() - min by (host) (compute_token_issue_timestamp_seconds{$target})",
                "age of the token for {{host}}",
            ),
        ],
    ),
    (
        "CPU",
        "Cores that each process uses",
        "short",
        &["metrics.md"],
        &[("sum by (pod) (rate(process_cpu_seconds_total{$target}[$__rate_interval]))", "{{pod}}")],
    ),
    (
        "Memory",
        "Resident and virtual memory of each process",
        "bytes",
        &["metrics.md"],
        &[
            ("max by (pod) (process_resident_memory_bytes{$target})", "{{pod}}"),
            ("max by (pod) (process_virtual_memory_bytes{$target})", "{{pod}} virtual"),
        ],
    ),
    (
        "Files and age",
        "Open files, their maximum, and the uptime of the process in hours",
        "short",
        &["runbooks/manager-down.md"],
        &[
            ("max by (pod) (process_open_fds{$target})", "{{pod}} open"),
            ("min by (pod) (process_max_fds{$target})", "{{pod}} at most"),
            ("(time() - max by (pod) (process_start_time_seconds{$target})) / 3600", "{{pod}} hours"),
        ],
    ),
];
