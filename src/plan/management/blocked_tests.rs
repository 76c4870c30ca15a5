//! What has kept a deployment from being delivered, looked at again and again.

use serde_json::{Value, json};

use super::*;
use crate::{api::reason::Reason, plan::management::facts::BindingFacts};

fn deployment(more: &Value, status: &Value) -> WorkloadDeployment {
    let mut metadata = json!({ "name": "wd", "namespace": "shop", "uid": "u-1" });
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": metadata, "status": status,
        "spec": {
            "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

/// Seen: half way to dependencies, where nothing is missing yet, a script that had been away when Karmada looked was
/// never asked for again, and the migration stood still for good.
#[test]
fn what_is_there_by_its_claim_alone_is_looked_at_again_for_its_dependencies_as_well() {
    let deployment = deployment(&json!({}), &json!(null));
    let timing = Timing::default();
    let reason = Reason::DependenciesNotPropagated;
    let pending = |repair: Option<Repair>, elapsed: Duration| {
        let note = Note { reason: reason.clone(), message: "it does not list Secret db".into(), repair };
        let finding = Delivery::Delivered { on: vec!["cell-dfw".into()], note: Some(note) };
        let before = Blocked {
            reason: reason.to_string(),
            silent: false,
            elapsed,
            last_delivery: None,
            events: Vec::new(),
            repairs: 0,
        };
        let case = Case {
            blocker: Some(reason.to_string()),
            deployment: &deployment,
            copy: Some(&deployment),
            finding: Some(&finding),
            karmada: None,
            companions: &BTreeMap::new(),
            before: Some(&before),
            repairs: &Repairs::default(),
            timing: &timing,
            now: Timestamp::UNIX_EPOCH,
        };
        let state = State::of(&case);
        assert_eq!(state.in_full(Some(&finding)).as_ref(), Some(&finding), "what is delivered stays so");
        state.pending_repair.map(|pending| (pending.what.clone(), pending.decision.now))
    };
    let long = timing.never_delivered_repair;
    assert_eq!(pending(None, long), None);
    assert_eq!(pending(Some(Repair::Copy), timing.delivery_grace / 2), None, "it may be on its way");
    assert_eq!(pending(Some(Repair::Copy), long / 2), Some((Repair::Copy, false)));
    assert_eq!(pending(Some(Repair::Copy), long), Some((Repair::Copy, true)));
}

const SECOND: &str = "2026-01-01T00:01:00Z";

/// A deployment that is delivered since then, with so many companions.
fn delivered(count: usize) -> WorkloadDeployment {
    let said = json!({
        "type": "Federated", "status": "True", "reason": "Propagated", "lastTransitionTime": SECOND,
        "message": "cell-dfw has what the hub was given",
    });
    let ready = json!({
        "type": "ReferencedDataReady", "status": "True", "reason": "Ready", "lastTransitionTime": SECOND,
        "message": repair::materialised(count).message,
    });
    deployment(&json!({ "generation": 2 }), &json!({ "conditions": [said, ready] }))
}

/// Its copy, written for this generation with this list, at version 20.
fn copy(generation: &str, expected: &str) -> WorkloadDeployment {
    let annotations =
        json!({ annotation::SOURCE_GENERATION: generation, annotation::EXPECTED_REFERENCED_DATA: expected });
    let metadata = json!({
        "uid": "c-1", "resourceVersion": "20", "creationTimestamp": SECOND, "annotations": annotations,
    });
    deployment(&metadata, &json!(null))
}

/// Karmada has made the binding of this version of the copy, which depends on this.
fn karmada(seen: u64, dependencies: &[DataRef]) -> Karmada {
    let mut karmada: Karmada = serde_json::from_value(json!({
        "policy_lives": true, "phase": "Dependencies", "binding": null, "attached": {}, "clusters": {},
    }))
    .unwrap();
    let clusters = vec!["cell-dfw".to_owned()].into();
    karmada.written = Some(20);
    let dependencies = Some(dependencies.to_vec()).into();
    karmada.binding = Some(BindingFacts { seen: Some(seen), clusters, dependencies, ..BindingFacts::default() });
    karmada
}

/// Seen: Karmada was away when a Secret was added in the very second in which all had been delivered. Once it was back, and
/// had not got to the Secret yet, that was touched as one that had been taken away; also where the deployment had been looked at
/// first when its copy was still to be written, or was written without the Secret. Seen later: so was one of a hundred that was
/// older than the delivery of the deployment without them.
#[test]
fn what_is_added_after_a_delivery_was_no_part_of_it() {
    let secret = DataRef::secret("db");
    let companions = |created: &str| {
        let companion = SharedCompanion { created: Some(created.parse().unwrap()), ..SharedCompanion::default() };
        BTreeMap::from([(secret.clone(), companion)])
    };
    let finding = |reason: &Reason, repair: Option<Repair>| Delivery::Blocked {
        cause: Verdict::no(reason.clone(), "it is not there"),
        data: true,
        silent: true,
        heard: true,
        repair,
    };
    let timing = Timing::default();
    let look = |original: &WorkloadDeployment,
                copy: &WorkloadDeployment,
                finding: &Delivery,
                karmada: &Karmada,
                companions: &BTreeMap<DataRef, SharedCompanion>,
                before: Option<&Blocked>| {
        let Delivery::Blocked { cause, .. } = finding else { unreachable!() };
        let case = Case {
            blocker: Some(cause.reason.to_string()),
            deployment: original,
            copy: Some(copy),
            finding: Some(finding),
            karmada: Some(karmada),
            companions,
            before,
            repairs: &Repairs::default(),
            timing: &timing,
            now: SECOND.parse().unwrap(),
        };
        let state = State::of(&case);
        (state.last_delivery, state.pending_repair.is_some_and(|pending| pending.decision.now))
    };
    let unlisted = finding(&Reason::DependenciesNotPropagated, None);
    let unbound = finding(&Reason::BindingMissing, Some(Repair::Companion(secret.clone())));
    let (listed, all) = (r#"["Secret/db"]"#, copy("2", r#"["Secret/db"]"#));
    let (none, one): (&[DataRef], &[DataRef]) = (&[], std::slice::from_ref(&secret));
    let earlier = "2026-01-01T00:00:30Z";
    for (name, ready, at_first, seen_at_first, known_at_first, created, touched) in [
        ("added since", 0, all.clone(), 19, none, SECOND, false),
        ("the copy is still to be written", 0, copy("1", "[]"), 20, none, SECOND, false),
        ("it is still to list what nobody had named", 0, copy("2", "[]"), 20, none, SECOND, false),
        ("added since, while others have it for long", 0, all.clone(), 19, none, earlier, false),
        ("the same, and the copy is still to list it", 0, copy("2", "[]"), 20, none, earlier, false),
        ("the same, looked at first by a manager that has just started", 0, all.clone(), 20, one, earlier, false),
        ("there all the time, and taken away", 1, all.clone(), 20, one, SECOND, true),
        ("the same for longer", 1, all.clone(), 20, one, earlier, true),
        ("the same while the copy is changed", 1, copy("1", listed), 20, one, earlier, true),
        ("the same while a change is under way", 1, all.clone(), 19, one, earlier, true),
        ("made anew since", 1, all.clone(), 20, one, "2026-01-01T00:01:01Z", false),
    ] {
        let (original, companions) = (delivered(ready), companions(created));
        let look = |copy: &WorkloadDeployment, finding: &Delivery, karmada: &Karmada, before: Option<&Blocked>| {
            look(&original, copy, finding, karmada, &companions, before)
        };
        let (last_delivery, _) = look(&at_first, &unlisted, &karmada(seen_at_first, known_at_first), None);
        // Karmada is back, and has listed the Secret; a while later its binding is still missing.
        let before = Blocked {
            reason: Reason::BindingMissing.to_string(),
            silent: true,
            elapsed: timing.delivery_grace * GRACES_FOR_THE_FIRST_TIME,
            last_delivery,
            events: Vec::new(),
            repairs: 0,
        };
        let (_, now) = look(&all, &unbound, &karmada(20, one), Some(&before));
        assert_eq!(now, touched, "{name}");
    }
}

/// Seen: what was changed back before it had been looked at was waited for without end.
#[test]
fn a_change_that_is_not_taken_up_is_waited_for_and_asked_for_again_once() {
    let deployment = deployment(&json!({}), &json!(null));
    let timing = Timing::default();
    let finding = Delivery::Blocked {
        cause: Verdict::no(Reason::NotApplied, "it is there as it was"),
        data: false,
        silent: true,
        heard: true,
        repair: Some(Repair::Change),
    };
    let busy = Repairs { karmada_wrote: Some(Duration::from_secs(1)), deployments: 100, ..Repairs::default() };
    let look = |elapsed: Duration, repairs: &Repairs| {
        let before = Blocked {
            reason: Reason::NotApplied.to_string(),
            silent: true,
            elapsed,
            last_delivery: None,
            events: Vec::new(),
            repairs: 0,
        };
        let case = Case {
            blocker: Some(Reason::NotApplied.to_string()),
            deployment: &deployment,
            copy: Some(&deployment),
            finding: Some(&finding),
            karmada: None,
            companions: &BTreeMap::new(),
            before: Some(&before),
            repairs,
            timing: &timing,
            now: Timestamp::UNIX_EPOCH,
        };
        let state = State::of(&case);
        assert_eq!(state.in_full(Some(&finding)).as_ref(), Some(&finding), "it says no more than before");
        (state.overdue.blocked, state.pending_repair.is_some_and(|pending| pending.decision.now))
    };
    let graces = timing.delivery_grace * GRACES_FOR_THE_FIRST_TIME;
    for (name, elapsed, repairs, expected) in [
        ("on its way", graces / 2, &busy, (false, false)),
        ("late", graces, &busy, (true, false)),
        ("late, while Karmada is away", timing.never_delivered_repair, &Repairs::default(), (true, false)),
        ("not taken up", timing.never_delivered_repair, &busy, (true, true)),
    ] {
        assert_eq!(look(elapsed, repairs), expected, "{name}");
    }
}
