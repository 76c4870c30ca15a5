//! Ownership of claims, and the handling of another cell's claim.

use super::*;

/// Returns a claim with these labels. `None` omits the uid.
fn labelled(cluster: &str, uid: Option<&str>, namespace: &str) -> Claim {
    claim(|c| {
        let labels = c["metadata"]["labels"].as_object_mut().unwrap();
        labels.insert(label::SOURCE_CLUSTER.into(), json!(cluster));
        labels.insert(label::INSTANCE_NAMESPACE.into(), json!(namespace));
        match uid {
            Some(uid) => drop(labels.insert(label::CELL_UID.into(), json!(uid))),
            None => drop(labels.remove(label::CELL_UID)),
        }
    })
}

#[test]
fn claim_is_released_by_the_cell_that_holds_it() {
    let living = instance(|_| ());
    let leaving = instance(|i| i["metadata"]["deletionTimestamp"] = json!(at(0).to_string()));
    // The columns tell what happens to the claim while its Instance lives here, terminates, and is absent.
    for (name, cluster, uid, namespace, held, given_up, reclaimed) in [
        ("ours", CLUSTER, Some(CELL_UID), "ns-1", true, true, true),
        ("ours, from before the cell was renamed", "old", Some(CELL_UID), "ns-1", true, true, true),
        ("Go's, under our name", CLUSTER, None, "ns-1", true, true, false),
        ("Go's, under a name that we had", "before", None, "ns-1", true, true, false),
        ("another cell's, under a name that we had", "before", Some("uid-of-ord"), "ns-1", false, false, false),
        ("another cell's, under our name", CLUSTER, Some("uid-of-ord"), "ns-1", false, false, false),
        ("another cell's", "ord-1", Some("uid-of-ord"), "ns-1", false, false, false),
        ("Go's, of another cell", "ord-1", None, "ns-1", false, false, false),
        ("ours, of another namespace", CLUSTER, Some(CELL_UID), "ns-2", false, false, false),
    ] {
        let of = || labelled(cluster, uid, namespace);
        let decision = decide(&living, of(), 1);
        let (reason, calls) = reported(&decision);
        let wanted = if held { "Unknown PendingEvaluation" } else { "Unknown QuotaClaimHeld" };
        assert_eq!((reason.as_str(), &calls), (wanted, &vec![]), "{name}: nothing is touched");
        let polls = decision.next == Next::After(Duration::from_secs(1));
        assert_eq!(!polls, held, "{name}: no watch of ours shows the release of another's");
        let wanted = if given_up { &REMOVAL[..] } else { &["patch Instance"][..] };
        assert_eq!(reported(&decide(&leaving, of(), 1)).1, wanted, "{name}");
        let Claim::Present(claim) = of() else { panic!() };
        assert_eq!(!reclaim(claim).is_empty(), reclaimed, "{name}");
    }
}

/// A city moved between two cells that both had the name on the claim. The new Instance took the claim that the old one ran on.
/// It was left without a claim when the old Instance was deleted.
#[test]
fn claim_of_go_operator_older_than_instance_belongs_to_former_cell() {
    for (older_by, gated, uid, ours) in [
        (0, true, None, true),
        (-5, true, None, true),
        (5, true, None, true), // within the clock skew
        (11, true, None, false),
        (86400, true, None, false),
        (86400, false, None, true),
        (86400, true, Some(CELL_UID), true),
    ] {
        let name = format!("older by {older_by} s, gated: {gated}, uid: {uid:?}");
        let of = |at: Timestamp| {
            let Claim::Present(found) = labelled("before", uid, "ns-1") else { panic!() };
            let mut found = (*found).clone();
            found.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
            found.status = serde_json::from_value(granted("True", "QuotaAvailable")).unwrap();
            Claim::Present(found.into())
        };
        let made = |i: &mut Value| {
            i["metadata"]["creationTimestamp"] = json!(at(older_by).to_string());
            if gated {
                let gates = json!([{ "name": gate::QUOTA }]);
                i["spec"]["controller"] = json!({ "templateHash": "h", "schedulingGates": gates });
            }
        };
        let decision = decide(&instance(made), of(at(0)), older_by + 1);
        let wanted = if ours { "True QuotaAvailable" } else { "Unknown QuotaClaimHeld" };
        // A grant that opens a gate is read once more before.
        let confirmed = (ours && gated).then(|| "confirm present ResourceClaim default/instance-wd-0".to_owned());
        assert_eq!(reported(&decision), (wanted.to_owned(), confirmed.into_iter().collect()), "{name}");
        assert!(ours || decision.next != Next::Await, "{name}: it is reconciled again");
        let leaving = instance(|i| {
            made(i);
            i["metadata"]["deletionTimestamp"] = json!(at(older_by).to_string());
        });
        let wanted = if ours { &REMOVAL[..] } else { &["patch Instance"][..] };
        assert_eq!(reported(&decide(&leaving, of(at(0)), older_by + 1)).1, wanted, "{name}");
    }
}

#[test]
fn claim_of_cell_with_same_name_reports_how_to_rename() {
    let message = |claim: Claim| {
        let decision = decide(&instance(|_| ()), claim, 1);
        let Step::Local(Write { op: Op::Apply { body, .. }, .. }) = &decision.steps[0] else { panic!() };
        body["status"]["conditions"][0]["message"].as_str().unwrap().to_owned()
    };
    let twin = message(labelled(CLUSTER, Some("uid-of-ord"), "ns-1"));
    assert!(twin.contains("another cell with the name dfw-1 (uid uid-of-ord)"), "{twin}");
    assert!(twin.contains("discovery.clusterName"), "{twin}");
    let other = message(labelled("ord-1", Some("uid-of-ord"), "ns-1"));
    assert!(other.ends_with("is still held by ord-1"), "{other}");
    let of_go = message(labelled("ord-1", None, "ns-1"));
    assert!(
        of_go.contains("held by ord-1, for which") && of_go.ends_with("add it to discovery.formerClusterNames"),
        "{of_go}"
    );
}

/// A cell that was given a name lost sight of its earlier claims, and released none of them.
#[test]
fn newly_named_cell_watches_its_earlier_claims() {
    assert_eq!(cell().names.selector(), "compute.datumapis.com/source-cluster in (before,dfw-1,single)");
    let unnamed = Names { current: "single".into(), former: std::collections::BTreeSet::new() };
    assert_eq!(unnamed.selector(), "compute.datumapis.com/source-cluster in (single)");
    for (uid, shown, holder) in [
        (Some(CELL_UID), true, Holder::ThisCell),
        (Some("uid-of-ord"), true, Holder::Other),
        // Any unnamed cell of the Go operator. Only formerClusterNames could tell that it was this cell.
        (None, true, Holder::Other),
    ] {
        let Claim::Present(claim) = labelled("single", uid, "ns-1") else { panic!() };
        assert_eq!((cell().is_watched(&claim), cell().holder(&claim, "ns-1")), (shown, holder), "{uid:?}");
    }
    let Claim::Present(elsewhere) = labelled("ord-1", Some(CELL_UID), "ns-1") else { panic!() };
    assert!(!cell().is_watched(&elsewhere));
}
