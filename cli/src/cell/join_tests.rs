use super::*;

fn endpoint(server: &str) -> Endpoint {
    Endpoint { server: server.to_owned(), authority: Some("QQ==".to_owned()), name: None }
}

/// A cell that has joined Karmada and nothing else.
fn fresh() -> Facts {
    let cluster = json!({
        "city": null, "label": null, "ready": { "Ok": null }, "obstacle": null, "taints": [], "draining": false,
        "deleting": false, "cell": "5b1c", "generation": 1,
    });
    let facts = Facts {
        now: Timestamp::from_second(1_800_000_000).unwrap(),
        name: "dfw-1".to_owned(),
        city: "dfw".to_owned(),
        endpoint: endpoint("https://hub:5443"),
        uid: Seen::Found("5b1c".to_owned()),
        clusters: Seen::Found(vec![("dfw-1".to_owned(), serde_json::from_value(cluster).unwrap())]),
        role: Seen::Found(()),
        namespace: Seen::Absent,
        secret: Seen::Absent,
        ..Facts::default()
    };
    let existing = facts.objects().iter().map(|_| Seen::Absent).collect();
    Facts { existing, ..facts }
}

fn cluster_mut(facts: &mut Facts) -> &mut ClusterFacts {
    let Seen::Found(clusters) = &mut facts.clusters else { panic!("no clusters") };
    &mut clusters[0].1
}

#[test]
fn fresh_cell_gets_everything() {
    let plan = Plan::of(&fresh()).unwrap();
    let expected = "\
hub   ServiceAccount compute-cell-dfw-1                        create
hub   ClusterRole compute-cell-dfw-1                           create  uid 5b1c
hub   ClusterRoleBinding compute-cell-dfw-1                    create
hub   ClusterRoleBinding compute-cell-federation-dfw-1         create
hub   Cluster dfw-1                                            add     label topology.datum.net/city-code=dfw
cell  Namespace compute-system                                 create
cell  Secret compute-system/compute-cell-federation-kubeconfig  create  token of compute-cell-dfw-1, 30 d
Nothing is written: --dry-run.
";
    let text = text(&plan, true, Screen::PLAIN);
    let columns =
        |text: &str| text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    assert_eq!(columns(&text), columns(expected));
}

#[test]
fn joined_cell_is_kept_and_an_ending_token_is_replaced() {
    let mut facts = fresh();
    facts.existing = facts.objects().into_iter().map(Seen::Found).collect();
    facts.namespace = Seen::Found(());
    let cluster = cluster_mut(&mut facts);
    (cluster.city, cluster.label) = (CityCode::parse("dfw").ok(), Some("dfw".to_owned()));
    let stored = |days: i64, facts: &Facts| Stored {
        endpoint: Some(endpoint("https://hub:5443")),
        user: Some("system:serviceaccount:compute-system:compute-cell-dfw-1".to_owned()),
        account: None,
        end: End::Token(Some(Timestamp::from_second(facts.now.as_second() + days * 86400).unwrap())),
    };
    facts.secret = Seen::Found(stored(29, &facts));
    let actions = |facts: &Facts| Plan::of(facts).unwrap().steps.iter().map(|step| step.action).collect::<Vec<_>>();
    assert_eq!(actions(&facts), [Action::Keep; 7]);
    let secret = |facts: &Facts| {
        let step = Plan::of(facts).unwrap().steps.pop().unwrap();
        (step.action, step.note)
    };
    assert_eq!(secret(&facts), (Action::Keep, "its token ends in 29d".to_owned()));
    facts.secret = Seen::Found(stored(3, &facts));
    assert_eq!(
        secret(&facts),
        (Action::Replace, "token of compute-cell-dfw-1, 30 d; the present one ends in 3d".to_owned())
    );
    // After a token was ended by the deletion of its ServiceAccount, the cell kept it.
    let of = |account: &str, facts: &Facts| Stored { account: Some(account.to_owned()), ..stored(29, facts) };
    let Seen::Found(live) = &mut facts.existing[0] else { panic!("no ServiceAccount") };
    live["metadata"]["uid"] = json!("new");
    facts.secret = Seen::Found(of("new", &facts));
    assert_eq!(secret(&facts).0, Action::Keep);
    facts.secret = Seen::Found(of("old", &facts));
    let (action, note) = secret(&facts);
    assert!(action == Action::Replace && note.ends_with("of a ServiceAccount that was deleted"), "{note}");
    let present = std::mem::replace(&mut facts.existing[0], Seen::Absent);
    assert_eq!(secret(&facts).0, Action::Replace, "it is created in the same run");
    facts.existing[0] = present;
    facts.secret = Seen::Found(Stored { endpoint: Some(endpoint("https://old")), ..stored(29, &facts) });
    let refused = Plan::of(&facts).unwrap_err();
    assert!(refused.contains("names https://old, and this hub is https://hub:5443"), "{refused}");
    facts.secret = Seen::Found(Stored { end: End::Renewed, ..stored(29, &facts) });
    let refused = Plan::of(&facts).unwrap_err();
    assert!(refused.contains("give --trust-issuer to keep it"), "{refused}");
    facts.secret = Seen::Found(Stored { user: Some("system:serviceaccount:a:b".to_owned()), ..stored(29, &facts) });
    assert_eq!(secret(&facts).0, Action::Replace, "another user");
    let rebuilt = Endpoint { authority: Some("Qg==".to_owned()), ..endpoint("https://hub:5443") };
    facts.secret = Seen::Found(Stored { endpoint: Some(rebuilt), ..stored(29, &facts) });
    let (action, note) = secret(&facts);
    assert!(action == Action::Replace && note.ends_with("it has the authority of another hub"), "{note}");
}

#[test]
fn wrong_cluster_does_not_join() {
    let refused = |edit: &dyn Fn(&mut Facts)| {
        let mut facts = fresh();
        edit(&mut facts);
        Plan::of(&facts).unwrap_err()
    };
    for (said, edit) in [
        ("the hub has no Cluster other", &(|f: &mut Facts| f.name = "other".to_owned()) as &dyn Fn(&mut Facts)),
        ("has spec.id 5b1c, and kube-system", &|f| f.uid = Seen::Found("another".to_owned())),
        ("has no spec.id", &|f| cluster_mut(f).cell = None),
        ("has the city ord: drain it first", &|f| {
            cluster_mut(f).city = CityCode::parse("ord").ok();
            cluster_mut(f).label = Some("ord".to_owned());
        }),
        ("which is no city", &|f| cluster_mut(f).label = Some("?".to_owned())),
        ("no ClusterRole compute-cell-federation", &|f| f.role = Seen::Absent),
        ("not visible with your rights: no", &|f| f.secret = Seen::Denied("no".to_owned())),
        ("not visible with your rights: no", &|f| f.clusters = Seen::Denied("no".to_owned())),
    ] {
        let text = refused(edit);
        assert!(text.contains(said), "{text}\ndoes not say {said}");
    }
}

#[test]
fn trusted_issuer_needs_no_token_and_an_entry_on_the_hub() {
    let mut facts = fresh();
    facts.issuer = Some(Seen::Found("https://dfw.example".to_owned()));
    facts.existing = facts.objects().iter().map(|_| Seen::Absent).collect();
    let plan = Plan::of(&facts).unwrap();
    assert!(plan.steps.iter().all(|step| !step.object.starts_with("ServiceAccount")), "{plan:?}");
    assert_eq!(plan.steps.last().unwrap().note, "token of the cell's own cluster, renewed by the kubelet");
    let note = &plan.notes[0];
    assert!(note.contains("url: \"https://dfw.example\"") && note.contains("prefix: \"dfw-1:\""), "{note}");
    let patch = include_str!("../../../config/components/cell-hub-access/patch.yaml");
    assert!(patch.contains(&format!("audience: {AUDIENCE}")), "the audience is that of the manifests");
}

#[test]
fn another_cluster_of_the_city_and_a_local_address_are_named() {
    let mut facts = fresh();
    facts.endpoint = endpoint("https://127.0.0.1:5443");
    let mut other = cluster_mut(&mut facts).clone();
    (other.city, other.label) = (CityCode::parse("dfw").ok(), Some("dfw".to_owned()));
    if let Seen::Found(clusters) = &mut facts.clusters {
        clusters.push(("dfw-0".to_owned(), other));
    }
    let notes = Plan::of(&facts).unwrap().notes;
    assert!(notes[0].starts_with("dfw is on dfw-0 too"), "{notes:?}");
    assert!(notes[1].contains("--hub-server"), "{notes:?}");
}
