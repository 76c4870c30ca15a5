//! Tools judge the objects of every history: kstatus' own Go code, which Flux and Helm run, and the Lua script for Argo CD.
//!
//! A history brings a world into one trouble, and lets the federator and the Workload's controller see it, at once and after the
//! tenant's grace. The objects of the project are judged as an API server shows them.

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock, time::Duration};

use compute_operator::{
    api::{
        compute::{Workload, WorkloadDeployment},
        shared::Shared,
    },
    plan::{
        Kind,
        management::{
            federator::diagnosis::Karmada,
            observed::facts::{BindingFacts, Scheduled},
            workload::refusal::Cause,
        },
    },
};
use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::{Value, json};
use testbed::{go_program::Program, kstatus};

use crate::{
    model::Key,
    skipping::skipped,
    world::{Actor, CLUSTER, Edit, HUB_NS, NOW, NS, PRESENT, World},
};

/// Expected status of the Workload after the grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Current,
    InProgress,
    Failed,
    Terminating,
}

use Expected::{Current, Failed, InProgress, Terminating};

/// A trouble, and its effect. The bool is true if the world runs everything before.
type Trouble = (&'static str, Expected, fn(&mut World, bool));

fn key() -> Key {
    (Kind::Workload, NS.to_owned(), "web".to_owned())
}

/// Lets both controllers that write the status act, at this time after the start.
fn look(world: &mut World, seconds: i64) {
    world.mishap.time = NOW + SignedDuration::from_secs(seconds);
    for actor in [Actor::Federator, Actor::Workload, Actor::Federator, Actor::Workload] {
        world.act(actor, PRESENT, usize::MAX);
    }
}

/// Changes the spec of the Workload as its tenant does.
fn edit_spec(world: &mut World, edit: impl FnOnce(&mut Value)) {
    let mut workload = world.now.project.raw(Kind::Workload, NS, "web").unwrap();
    edit(&mut workload["spec"]);
    world.now.project.put_spec(&key(), &workload["spec"]);
}

/// Makes every city report this cause for each of its Instances, as Karmada brings it to the hub.
fn report(world: &mut World, status: &str, reason: &str) {
    world.settle();
    let copies: Vec<WorkloadDeployment> = world.now.hub.all(Kind::WorkloadDeployment);
    for copy in copies.iter().filter(|copy| copy.namespace().as_deref() == Some(HUB_NS)) {
        let says = |type_: &str| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": format!("why {reason}"),
                "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z",
            })
        };
        let key = (Kind::WorkloadDeployment, HUB_NS.to_owned(), copy.name_any());
        let status = json!({ "readyReplicas": 0, "conditions": [says("Available"), says("ReplicasReady")] });
        world.now.hub.merge(&key, &json!({ "status": status }));
    }
}

/// What Karmada shows of each deployment. The reason has lasted for a minute.
fn karmada(world: &mut World, reason: &'static str, binding: Option<BindingFacts>, cluster: Option<Value>) {
    let clusters: serde_json::Map<String, Value> =
        cluster.map(|facts| (CLUSTER.to_owned(), facts)).into_iter().collect();
    let shows = json!({
        "policy_lives": true, "phase": "Dependencies", "binding": binding, "attached": {}, "clusters": clusters,
        "drain_waits": null,
    });
    world.mishap.karmada = Some((serde_json::from_value::<Karmada>(shows).unwrap(), reason));
}

fn binding(clusters: &[&str], applied: Option<Result<(), String>>, scheduled: bool) -> BindingFacts {
    let clusters: Vec<String> = clusters.iter().map(|name| (*name).to_owned()).collect();
    let applied: BTreeMap<String, Result<(), String>> =
        applied.map(|applied| (CLUSTER.to_owned(), applied)).into_iter().collect();
    let scheduled = Scheduled { succeeded: scheduled, reason: "R".into(), message: "m".into() };
    BindingFacts {
        clusters: Shared::from(clusters),
        applied: Shared::from(applied),
        scheduled: Shared::from(Some(scheduled)),
        ..BindingFacts::default()
    }
}

fn cluster(ready: &Value) -> Value {
    json!({
        "city": "dfw", "label": "dfw", "ready": ready, "obstacle": null, "taints": [], "draining": false, "deleting": false,
        "generation": 1,
    })
}

/// Makes the project reject every write to a deployment. A running Workload has one to make.
fn refuse(world: &mut World, cause: Cause) {
    edit_spec(world, |spec| spec["placements"][0]["scaleSettings"]["minReplicas"] = json!(3));
    world.mishap.refused = Some(cause);
}

const TROUBLES: [Trouble; 35] = [
    ("none", Current, |world, _| world.settle()),
    ("the Workload wants no Instance", Current, |world, _| {
        edit_spec(world, |spec| spec["placements"][0]["scaleSettings"]["minReplicas"] = json!(0));
        world.settle();
    }),
    ("no report yet", InProgress, |world, runs| {
        if runs {
            edit_spec(world, |spec| spec["template"]["spec"]["runtime"]["resources"]["instanceType"] = json!("u"));
        }
    }),
    ("a roll-out has begun", InProgress, |world, _| {
        world.settle();
        edit_spec(world, |spec| spec["template"]["spec"]["runtime"]["resources"]["instanceType"] = json!("u"));
        world.round();
    }),
    ("a source does not exist", Failed, |world, _| world.edit(&Edit::Source { source: 0, value: None })),
    ("the hub is away", InProgress, |world, _| world.mishap.outage = Some(true)),
    ("the hub does not show bindings", InProgress, |world, _| world.mishap.outage = Some(false)),
    ("no binding", InProgress, |world, _| {
        world.settle();
        karmada(world, "BindingMissing", None, None);
    }),
    ("no cluster", InProgress, |world, _| {
        world.settle();
        karmada(world, "NoClusterForCity", Some(binding(&[], None, false)), None);
    }),
    ("the cluster does not answer", InProgress, |world, _| {
        world.settle();
        let away = cluster(&json!({ "Err": "ClusterNotReachable" }));
        karmada(world, "ClusterNotReady", Some(binding(&[], None, false)), Some(away));
    }),
    ("not scheduled", InProgress, |world, _| {
        world.settle();
        karmada(world, "NotScheduled", Some(binding(&[], None, false)), Some(cluster(&json!({ "Ok": null }))));
    }),
    ("not applied", InProgress, |world, _| {
        world.settle();
        let rejected = binding(&[CLUSTER], Some(Err("denied".into())), true);
        karmada(world, "NotApplied", Some(rejected), Some(cluster(&json!({ "Ok": null }))));
    }),
    ("it has moved to a cell that has not reported", InProgress, |world, _| {
        world.settle();
        let moved = BindingFacts { unreported: true, ..binding(&[CLUSTER], Some(Ok(())), true) };
        karmada(world, "NotReported", Some(moved), Some(cluster(&json!({ "Ok": null }))));
    }),
    ("the last report is on an earlier spec", InProgress, |world, _| {
        report(world, "False", "InstanceCrashing");
        look(world, 0);
        edit_spec(world, |spec| spec["template"]["spec"]["runtime"]["resources"]["instanceType"] = json!("v"));
    }),
    ("a Network does not exist", Failed, |world, _| {
        edit_spec(world, |spec| {
            spec["template"]["spec"]["networkInterfaces"] = json!([{ "network": { "name": "n" } }]);
        });
        world.mishap.networks = Some([].into());
    }),
    ("an image cannot be pulled", Failed, |world, _| report(world, "False", "ImageUnavailable")),
    ("it exits", Failed, |world, _| report(world, "False", "InstanceCrashing")),
    ("its configuration is wrong", Failed, |world, _| report(world, "False", "ConfigurationError")),
    ("quota cannot count it", Failed, |world, _| report(world, "False", "ValidationFailed")),
    ("the cell knows no such Network", Failed, |world, _| report(world, "False", "NetworkNotFound")),
    ("quota is exceeded", InProgress, |world, _| report(world, "False", "QuotaExceeded")),
    ("the network is made", InProgress, |world, _| report(world, "False", "NetworkProvisioning")),
    ("the network fails", InProgress, |world, _| report(world, "False", "NetworkFailedToCreate")),
    ("data has not arrived", InProgress, |world, _| report(world, "False", "AwaitingPropagation")),
    ("the cell rejects it", InProgress, |world, _| report(world, "False", "InstanceRefused")),
    ("another component has a reason of its own", InProgress, |world, _| report(world, "False", "Odd")),
    ("it is not known", InProgress, |world, _| report(world, "Unknown", "InstanceCrashing")),
    ("it is suspended", InProgress, |world, _| report(world, "False", "Suspended")),
    ("no such city", Failed, |world, _| edit_spec(world, |spec| spec["placements"][0]["cityCodes"] = json!(["a/b"]))),
    ("a city twice", Failed, |world, _| {
        edit_spec(world, |spec| spec["placements"][0]["cityCodes"] = json!(["dfw", "DFW"]));
    }),
    ("too many placements", Failed, |world, _| {
        let many = (0..40)
            .map(|n| json!({ "name": if n == 0 { "p".to_owned() } else { format!("p{n}") }, "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } }));
        let many: Value = many.collect();
        edit_spec(world, |spec| spec["placements"] = many);
    }),
    ("a quota of the project denies it", Failed, |world, _| refuse(world, Cause::Denied)),
    ("the operator lacks a right", InProgress, |world, _| refuse(world, Cause::Forbidden)),
    ("a webhook of the project does not answer", InProgress, |world, _| {
        refuse(world, Cause::Passing { lasted: Duration::from_mins(1) });
    }),
    ("it is deleted", Terminating, |world, runs| {
        if !runs {
            world.settle();
        }
        world.edit(&Edit::Delete);
        world.mishap.outage = Some(true);
    }),
];

/// An object of the project, and what is known about it.
struct Sample {
    what: String,
    object: Value,
    /// The only allowed answer. `None` if it must not be Current.
    expected: Option<Expected>,
}

/// Returns an object as an API server shows it, with the default of its definition.
fn shown(mut object: Value, kind: &str) -> Value {
    object["kind"] = json!(kind);
    object["apiVersion"] = json!("compute.datumapis.com/v1alpha");
    if object["status"].is_null() && kind == "Workload" {
        object["status"] = DEFAULT_STATUS.clone();
    }
    object
}

/// Status that the definition gives to a new Workload.
static DEFAULT_STATUS: LazyLock<Value> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds/compute.datumapis.com_workloads.yaml");
    let crd: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"].clone()
});

fn workload(world: &World) -> Value {
    shown(world.now.project.raw(Kind::Workload, NS, "web").unwrap(), "Workload")
}

fn deployments(world: &World) -> Vec<Value> {
    let all: Vec<Value> = world.now.project.all(Kind::WorkloadDeployment);
    let ours = all.into_iter().filter(|wd| wd["metadata"]["namespace"] == NS);
    ours.map(|wd| shown(wd, "WorkloadDeployment")).collect()
}

/// Plays one history. Returns the objects before the operator has seen the trouble, at once, and after the tenant's grace.
fn play(
    what: &str,
    cities: &[usize],
    runs: bool,
    (expected, trouble): (Expected, fn(&mut World, bool)),
) -> Vec<Sample> {
    let mut world = World::new();
    let mut samples = Vec::new();
    let mut keep = |world: &World, when: &str, expected: Option<Expected>| {
        let what = format!("{what}, {when}");
        samples.push(Sample { what, object: workload(world), expected });
    };
    world.edit(&Edit::Spec { cities: cities.to_vec(), replicas: 2, template: 0 });
    keep(&world, "before the first look", Some(InProgress));
    if runs {
        world.settle();
        keep(&world, "as it ran before", Some(Current));
    }
    trouble(&mut world, runs);
    look(&mut world, 0);
    let at_once = if expected == Failed { Some(InProgress) } else { Some(expected) };
    // A source is read before the grace of its deployment begins, and a Workload follows its deployments.
    keep(&world, "at once", at_once);
    look(&mut world, 19);
    keep(&world, "within the grace", at_once);
    look(&mut world, 20);
    keep(&world, "after the grace", Some(expected));
    let settled = format!("{:?}", workload(&world));
    look(&mut world, 21);
    assert_eq!(format!("{:?}", workload(&world)), settled, "{what}: a status that does not change is not written");
    for object in deployments(&world) {
        let what = format!("{what}, {}", object["metadata"]["name"]);
        // One of several deployments may be complete.
        let expected = if expected == Current { Some(Current) } else { None };
        let unaffected = expected.is_none() && is_complete(&object);
        samples.push(Sample { what, object, expected: if unaffected { Some(Current) } else { expected } });
    }
    samples
}

/// True if a deployment's own status and spec say that everything runs.
fn is_complete(deployment: &Value) -> bool {
    let status = &deployment["status"];
    let wanted = &deployment["spec"]["replicas"];
    let counters = ["replicas", "readyReplicas", "updatedReplicas", "desiredReplicas"];
    let bad = status["conditions"].as_array().into_iter().flatten().any(|c| {
        ["Available", "ReplicasReady", "Federated", "ReferencedDataReady"].iter().any(|type_| c["type"] == *type_)
            && c["status"] != "True"
    });
    counters.iter().all(|counter| status[counter] == *wanted)
        && status["observedGeneration"] == deployment["metadata"]["generation"]
        && !bad
        && deployment["metadata"]["deletionTimestamp"].is_null()
}

/// All histories. They are played once for all tools.
static HISTORIES: LazyLock<Vec<Sample>> = LazyLock::new(histories);

/// Plays each trouble for a new Workload in one city, and for one that runs in two.
fn histories() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (what, expected, trouble) in TROUBLES {
        samples.extend(play(&format!("{what} (new)"), &[0], false, (expected, trouble)));
        samples.extend(play(&format!("{what} (running)"), &[0, 1], true, (expected, trouble)));
    }
    samples.extend(roll_outs());
    samples.extend(unbound());
    samples
}

/// A Workload whose city is not open to its project waits. One that runs there already is kept, and complete.
fn unbound() -> Vec<Sample> {
    let mut samples = Vec::new();
    for runs in [false, true] {
        let mut world = World::new();
        if runs {
            world.settle();
        }
        world.edit(&Edit::Bind(vec![]));
        world.settle();
        let expected = Some(if runs { Current } else { InProgress });
        samples.push(Sample { what: format!("closed city, ran: {runs}"), object: workload(&world), expected });
    }
    samples
}

/// Every act of a roll-out, of scaling, and of a move to another city. The model says if everything runs.
fn roll_outs() -> Vec<Sample> {
    let spec = |cities: &[usize], replicas, template| Edit::Spec { cities: cities.to_vec(), replicas, template };
    let edits = [spec(&[0], 2, 1), spec(&[0, 1], 2, 1), spec(&[1], 3, 0), spec(&[1], 0, 0), spec(&[0, 1, 2], 1, 1)];
    let mut samples = Vec::new();
    let mut world = World::new();
    world.settle();
    for (n, edit) in edits.iter().enumerate() {
        world.edit(edit);
        samples.push(Sample { what: format!("change {n}"), object: workload(&world), expected: None });
        while world.round() > 0 {
            // It may be Current before the end, if only other objects are still written.
            if !runs_all(&world) {
                samples.push(Sample { what: format!("roll-out {n}"), object: workload(&world), expected: None });
            }
        }
        world.settle();
        samples.push(Sample { what: format!("rolled out {n}"), object: workload(&world), expected: Some(Current) });
    }
    samples
}

/// True if the cell runs the wanted Instances of every wanted city, on the wanted template.
fn runs_all(world: &World) -> bool {
    let wanted: Workload = world.now.project.get(Kind::Workload, NS, "web").unwrap();
    let placement = &wanted.spec.placements[0];
    let cities: Vec<String> = placement.city_codes.iter().map(|city| format!("web-p-{city}")).collect();
    let there: Vec<WorkloadDeployment> = world.now.cell.all(Kind::WorkloadDeployment);
    let complete = |wd: &WorkloadDeployment| {
        let least = placement.scale_settings.min_replicas;
        let status = wd.status.clone().unwrap_or_default();
        wd.spec.template == wanted.spec.template
            && status.observed_generation == wd.metadata.generation
            && [status.replicas, status.ready_replicas, status.updated_replicas] == [least; 3]
    };
    cities.iter().all(|city| there.iter().any(|wd| wd.name_any() == *city && complete(wd)))
}

/// Checks one tool's answers, given as kstatus' words.
fn check(tool: &str, samples: &[Sample], answers: &[String]) {
    for (sample, answer) in samples.iter().zip(answers) {
        let Sample { what, object, expected } = sample;
        let status = &object["status"];
        match expected {
            Some(expected) => assert_eq!(*answer, format!("{expected:?}"), "{tool}: {what}: {status}"),
            None => assert_ne!(answer, "Current", "{tool}: {what}: {status}"),
        }
        let stalled = status["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Stalled");
        assert!(answer != "Failed" || stalled, "{tool}: {what}: only Stalled is a failure: {status}");
    }
    let of = |word: &str| answers.iter().filter(|answer| *answer == word).count();
    assert!(of("Current") > 20 && of("InProgress") > 40 && of("Failed") > 20, "every answer is given: {answers:?}");
}

#[test]
fn kstatus_says_current_exactly_if_everything_runs_and_failed_only_if_the_tenant_has_to_act() {
    let program = match kstatus::build().unwrap() {
        Program::Built(program) => program,
        Program::Missing(what) => return skipped(&format!("kstatus' own code does not judge the histories: {what}")),
    };
    let samples = &*HISTORIES;
    let answers = kstatus::judge(&program, samples.iter().map(|sample| &sample.object)).unwrap();
    check("kstatus", samples, &answers);
    agree(samples, &answers);
}

/// Argo CD names a suspension. All other answers are kstatus' in other words.
fn agree(samples: &[Sample], answers: &[String]) {
    for (sample, answer) in samples.iter().zip(answers) {
        assert_eq!(argo(&sample.object), *answer, "{}: {}", sample.what, sample.object["status"]);
    }
}

/// Returns the answer of the script for Argo CD in kstatus' words.
fn argo(object: &Value) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/argocd/health.lua");
    let health = kstatus::argo_health(&fs::read_to_string(file).unwrap(), object).unwrap();
    let deleting = !object["metadata"]["deletionTimestamp"].is_null();
    let word = match &*health {
        "Progressing" if deleting => "Terminating",
        "Progressing" | "Suspended" => "InProgress",
        "Healthy" => "Current",
        "Degraded" => "Failed",
        other => panic!("{other} is no health of Argo CD"),
    };
    word.to_owned()
}

/// This one needs no Go.
#[test]
fn argo_script_judges_every_history() {
    let samples = &*HISTORIES;
    let answers: Vec<String> = samples.iter().map(|sample| argo(&sample.object)).collect();
    check("Argo CD", samples, &answers);
    let suspended = samples
        .iter()
        .find(|sample| sample.what.starts_with("it is suspended") && sample.what.ends_with("after the grace"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/argocd/health.lua");
    let health = kstatus::argo_health(&fs::read_to_string(file).unwrap(), &suspended.unwrap().object).unwrap();
    assert_eq!(health, "Suspended");
}

#[test]
fn argo_script_judges_an_instance_by_its_ready_condition() {
    let instance = |status: &str| {
        json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance", "metadata": { "name": "i", "generation": 3 },
            "status": { "conditions": [{ "type": "Ready", "status": status, "reason": "R", "message": "m" }] },
        })
    };
    assert_eq!([argo(&instance("True")), argo(&instance("Unknown"))], ["Current", "InProgress"]);
}
