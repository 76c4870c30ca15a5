//! A blocked deployment in repeated reconciles.

use serde_json::{Value, json};

use super::*;
use crate::{api::reason::Reason, plan::management::observed::facts::BindingFacts};

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

/// In the middle of a migration to dependencies, a script was missing when Karmada checked the copy. Nothing made Karmada check
/// again, and the migration never ended.
#[test]
fn deployment_delivered_by_claims_is_repaired_for_its_dependencies() {
    let deployment = deployment(&json!({}), &json!(null));
    let timing = Timing::default();
    let reason = Reason::DependenciesNotPropagated;
    let pending = |repair: Option<Repair>, elapsed: Duration| {
        let note = Note { reason: reason.clone(), message: "it does not list Secret db".into(), repair };
        let finding = Delivery::Delivered { on: vec!["cell-dfw".into()], note: Some(note) };
        let before = Blocked { reason: reason.to_string(), silence: None, elapsed, repairs: 0, repaired_ago: None };
        let case = Case {
            blocker: Some(reason.to_string()),
            deployment: &deployment,
            copy: Some(&deployment),
            last_delivery: None,
            finding: Some(&finding),
            karmada: None,
            companions: &BTreeMap::new(),
            before: Some(&before),
            capacity: &Capacity::default(),
            timing: &timing,
            now: Timestamp::UNIX_EPOCH,
        };
        let state = State::of(&case);
        assert_eq!(state.in_full(Some(&finding)).as_ref(), Some(&finding), "what is delivered stays so");
        state.pending_repair.map(|pending| (pending.what.clone(), pending.decision.now))
    };
    let long = timing.arrival;
    assert_eq!(pending(None, long), None);
    assert_eq!(pending(Some(Repair::Copy), timing.delivery_grace / 2), None, "it may be pending");
    assert_eq!(pending(Some(Repair::Copy), long / 2), Some((Repair::Copy, false)));
    assert_eq!(pending(Some(Repair::Copy), long), Some((Repair::Copy, true)));
}

const SECOND: &str = "2026-01-01T00:01:00Z";

/// A Secret was added in the second of the last delivery, while Karmada was away. It was repaired as a lost one before Karmada
/// got to it. So was a Secret that was older than a delivery without it.
#[test]
fn companion_is_repaired_at_once_only_if_it_was_delivered() {
    let secret = DataRef::secret("db");
    let timing = Timing::default();
    let finding = Delivery::Blocked {
        cause: Verdict::no(Reason::BindingMissing, "it is not there"),
        data: true,
        silent: true,
        heard: true,
        repair: Some(Repair::Companion(secret.clone())),
    };
    let deployment = deployment(&json!({ "generation": 2 }), &json!(null));
    for (name, data, created, touched) in [
        ("added since", None, SECOND, false),
        ("added since, while others have had it for long", None, "2026-01-01T00:00:30Z", false),
        ("delivered, and removed", Some("Secret/db"), SECOND, true),
        ("the same for longer", Some("Secret/db"), "2026-01-01T00:00:30Z", true),
        ("recreated since", Some("Secret/db"), "2026-01-01T00:01:01Z", false),
    ] {
        let companion = SharedCompanion { created: Some(created.parse().unwrap()), ..SharedCompanion::default() };
        let last_delivery: LastDelivery = serde_json::from_value(json!({
            "copyUID": "u-1", "clusters": ["cell-dfw"], "data": Vec::from_iter(data), "time": SECOND,
        }))
        .unwrap();
        let clusters = vec!["cell-dfw".to_owned()].into();
        let mut karmada: Karmada = serde_json::from_value(json!({
            "policy_lives": true, "phase": "Dependencies", "binding": null, "attached": {}, "clusters": {},
        }))
        .unwrap();
        karmada.binding = Some(BindingFacts { clusters, ..BindingFacts::default() });
        let before = Blocked {
            reason: Reason::BindingMissing.to_string(),
            silence: Some(if data.is_some() { Absence::Lost } else { Absence::Pending }),
            elapsed: timing.delivery_grace * GRACES_WHILE_PENDING,
            repairs: 0,
            repaired_ago: None,
        };
        let case = Case {
            blocker: Some(Reason::BindingMissing.to_string()),
            deployment: &deployment,
            copy: Some(&deployment),
            last_delivery: Some(&last_delivery),
            finding: Some(&finding),
            karmada: Some(&karmada),
            companions: &BTreeMap::from([(secret.clone(), companion)]),
            before: Some(&before),
            capacity: &Capacity::default(),
            timing: &timing,
            now: SECOND.parse().unwrap(),
        };
        let state = State::of(&case);
        assert_eq!(state.pending_repair.is_some_and(|pending| pending.decision.now), touched, "{name}");
    }
}

/// A change that was reverted before Karmada processed it was waited for without end.
#[test]
fn change_ignored_by_karmada_is_repaired_after_a_wait() {
    let deployment = deployment(&json!({}), &json!(null));
    let timing = Timing::default();
    let finding = Delivery::Blocked {
        cause: Verdict::no(Reason::NotApplied, "it is there as it was"),
        data: false,
        silent: true,
        heard: true,
        repair: Some(Repair::Change),
    };
    let judge = |elapsed: Duration| {
        let before = Blocked {
            reason: Reason::NotApplied.to_string(),
            silence: Some(Absence::Pending),
            elapsed,
            repairs: 0,
            repaired_ago: None,
        };
        let case = Case {
            blocker: Some(Reason::NotApplied.to_string()),
            deployment: &deployment,
            copy: Some(&deployment),
            last_delivery: None,
            finding: Some(&finding),
            karmada: None,
            companions: &BTreeMap::new(),
            before: Some(&before),
            capacity: &Capacity::default(),
            timing: &timing,
            now: Timestamp::UNIX_EPOCH,
        };
        let state = State::of(&case);
        assert_eq!(state.in_full(Some(&finding)).as_ref(), Some(&finding), "it says no more than before");
        (state.overdue.blocked, state.pending_repair.is_some_and(|pending| pending.decision.now))
    };
    let graces = timing.delivery_grace * GRACES_WHILE_PENDING;
    for (name, elapsed, expected) in [
        ("pending", graces / 2, (false, false)),
        ("late", graces, (true, false)),
        ("not taken up", timing.arrival, (true, true)),
    ] {
        assert_eq!(judge(elapsed), expected, "{name}");
    }
}
