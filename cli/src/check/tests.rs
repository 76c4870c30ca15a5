use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::{Value, json};

use super::*;
use super::{
    credentials::{Account, End},
    facts::{Answer, Bindings, Clock, DeploymentFacts, Facts, Karmada, LeaseFacts, Manager, Plane, Rights, Webhook},
    judge::Report,
    roles::{Right, Role},
};
use crate::{
    exit::Exit,
    screen::{Mark, Screen},
    seen::Seen,
};

fn in_seconds(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn in_days(days: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() + days * 86400 + 60).unwrap()
}

fn granted(role: Role, user: &str) -> Rights {
    let total = role.rights().len();
    Rights { role: role.name().to_owned(), user: user.to_owned(), total, lacking: Seen::Found(Vec::new()) }
}

fn managed(secret: &str, key: &str) -> Manager {
    let lease = LeaseFacts { holder: "compute-manager-a_1".to_owned(), renewed: Some(now()), seconds: 15 };
    let ends = BTreeMap::from([(key.to_owned(), End::Token(Some(in_days(29))))]);
    let image = "registry.example.com/compute-operator:v0.1.0".to_owned();
    Manager {
        lease: Seen::Found(lease),
        deployment: Seen::Found(DeploymentFacts { image, secrets: [secret.to_owned()].into() }),
        credentials: [(secret.to_owned(), Seen::Found(ends))].into(),
        account: None,
    }
}

fn plane(context: &str, role: Role, user: &str) -> Plane {
    let own = definitions::own();
    let definitions =
        own.into_iter().map(|(name, own)| (name, Seen::Found(serde_json::from_value(own).unwrap()))).collect();
    Plane {
        context: context.to_owned(),
        version: Seen::Found("v1.34.1".to_owned()),
        clock: Some(Clock { server: now(), asked: now(), answered: now() }),
        uid: Seen::Found(format!("uid-{context}")),
        definitions,
        rights: vec![granted(role, user)],
        manager: None,
        webhooks: Seen::Unknown,
    }
}

fn cluster(city: &str, uid: &str) -> Value {
    json!({
        "city": city, "label": city, "ready": { "Ok": null }, "obstacle": null, "taints": [], "draining": false,
        "deleting": false, "cell": uid, "generation": 1,
    })
}

/// A federation in which all is well.
fn well() -> Facts {
    let user = roles::user("compute-manager");
    let cell = |context: &str| Plane {
        manager: Some(managed("compute-cell-federation-kubeconfig", "kubeconfig")),
        ..plane(context, Role::Cell, &user)
    };
    let clusters = json!({ "cell-dfw": cluster("dfw", "uid-dfw"), "cell-ord": cluster("ord", "uid-ord") });
    let holder = |cell: &str| (format!("uid-{cell}"), [roles::user(&format!("compute-cell-{cell}"))].into());
    let interpreter = roles::documents(include_str!("../../../config/components/federation/interpreter.yaml"));
    Facts {
        now: now(),
        pre: false,
        project: Plane {
            manager: Some(managed("compute-hub-credentials", "token")),
            ..plane("shop", Role::Project, &user)
        },
        manager: None,
        hub: Some(plane("hub", Role::Hub, &user)),
        cells: [("cell-dfw".to_owned(), cell("dfw")), ("cell-ord".to_owned(), cell("ord"))].into(),
        clusters: Seen::Found(serde_json::from_value(clusters).unwrap()),
        accounts: BTreeMap::new(),
        holders: Seen::Found([holder("dfw"), holder("ord")].into()),
        locations: Seen::Found(["dfw", "ord"].map(|city| (city.to_owned(), city.to_owned())).into()),
        karmada: Karmada {
            version: Seen::Found("v1.18.2".to_owned()),
            kinds: [("Cluster".to_owned(), Seen::Found(()))].into(),
            interpreters: Seen::Found([("workloaddeployment".to_owned(), interpreter[0]["spec"].clone())].into()),
            bindings: Seen::Found(Bindings { asking: 3, distributed: 3 }),
        },
        webhook: Webhook {
            authorities: Seen::Found([("vworkload.kb.io".to_owned(), End::Certificate(Some(in_days(82))))].into()),
            answer: Answer::Refused { millis: 21 },
        },
    }
}

fn cell_mut<'a>(facts: &'a mut Facts, name: &str) -> &'a mut Plane {
    facts.cells.get_mut(name).unwrap()
}

fn clusters_mut(
    facts: &mut Facts,
) -> &mut BTreeMap<String, compute_operator::plan::management::observed::cluster::ClusterFacts> {
    let Seen::Found(clusters) = &mut facts.clusters else { panic!("no clusters") };
    clusters
}

/// Gives a cell the token of a ServiceAccount with this uid, beside what the hub shows of it.
fn token_of(facts: &mut Facts, uid: &str, live: Seen<String>) {
    let account = Account { namespace: "s".to_owned(), name: "compute-cell-ord".to_owned(), uid: uid.to_owned() };
    cell_mut(facts, "cell-ord").manager.as_mut().unwrap().account = Some(account);
    facts.accounts.insert("cell-ord".to_owned(), live);
}

/// The command was printed with a word to replace, although the Cluster says which city it has.
#[test]
fn command_that_joins_a_cell_again_is_complete() {
    let facts = |edit: &dyn Fn(&mut Facts)| {
        let mut facts = well();
        edit(&mut facts);
        let rows = Report::of(&facts).rows;
        let checks = rows.into_iter().find(|row| row.name == "cell-ord").unwrap().checks;
        checks.into_iter().filter(|check| check.mark == Mark::Broken).filter_map(|check| check.fix).collect::<Vec<_>>()
    };
    let join = ["kubectl compute cell join cell-ord --city ord"];
    assert_eq!(facts(&|f| token_of(f, "1", Seen::Absent)), join);
    assert_eq!(facts(&|f| token_of(f, "1", Seen::Found("1".to_owned()))), [""; 0]);
    assert_eq!(facts(&|f| token_of(f, "1", Seen::Denied("no".to_owned()))), [""; 0], "unknown is not deleted");
    let missing = facts(&|f| {
        let manager = cell_mut(f, "cell-ord").manager.as_mut().unwrap();
        manager.credentials.insert("compute-cell-federation-kubeconfig".to_owned(), Seen::Absent);
    });
    assert_eq!(missing, join);
}

#[test]
fn federation_that_is_well_is_one_line_for_each_plane() {
    let report = Report::of(&well());
    let [project, hub, cell] = [Role::Project, Role::Hub, Role::Cell].map(|role| role.rights().len());
    let expected = format!("\
project shop  ✔ Kubernetes 1.34.1 (1.30 or newer)   ✔ definitions are this version's   ✔ {project} of {project} rights   ✔ a manager leads   ✔ token of compute-hub-credentials ends in 29 d   ✔ webhook answers a dry run in 21 ms   ✔ authority of the webhooks ends in 82 d
hub           ✔ Kubernetes 1.34.1 (1.30 or newer)   ✔ definitions are this version's   ✔ {hub} of {hub} rights   ✔ Karmada v1.18.2   ✔ Karmada's kinds are served   ✔ PropagateDeps (seen on 3 bindings)   ✔ interpreter is this version's
cell-dfw      ✔ Kubernetes 1.34.1   ✔ definitions are this version's   ✔ {cell} of {cell} rights   ✔ a manager leads   ✔ token of compute-cell-federation-kubeconfig ends in 29 d   ✔ Cluster is ready   ✔ spec.id is the uid of kube-system   ✔ it has its own user on the hub
cell-ord      ✔ Kubernetes 1.34.1   ✔ definitions are this version's   ✔ {cell} of {cell} rights   ✔ a manager leads   ✔ token of compute-cell-federation-kubeconfig ends in 29 d   ✔ Cluster is ready   ✔ spec.id is the uid of kube-system   ✔ it has its own user on the hub
cities        ✔ dfw -> cell-dfw   ✔ ord -> cell-ord
versions      ✔ all managers run v0.1.0
33 passed, 0 warnings, 0 failed
");
    assert_eq!(text::text(&report, Screen::PLAIN), expected);
    assert_eq!(report.exit(), Exit::Well);
    let narrow = text::text(&report, Screen { colours: false, width: Some(80) });
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
}

#[test]
fn problems_are_below_what_is_well_each_with_its_fix() {
    let mut facts = well();
    let cell = cell_mut(&mut facts, "cell-ord");
    cell.rights[0].lacking = Seen::Found(vec![Right::new("networking.datumapis.com", "subnetclaims", "watch")]);
    let manager = cell.manager.as_mut().unwrap();
    let ends = BTreeMap::from([("kubeconfig".to_owned(), End::Token(Some(in_days(6))))]);
    manager.credentials.insert("compute-cell-federation-kubeconfig".to_owned(), Seen::Found(ends));
    let report = Report::of(&facts);
    let text = text::text(&report, Screen::PLAIN);
    let row = text.split_once("cell-ord ").unwrap().1.split_once("\ncities").unwrap().0;
    let expected = "     ✔ Kubernetes 1.34.1   ✔ definitions are this version's   ✔ a manager leads   ✔ Cluster is ready   \
✔ spec.id is the uid of kube-system   ✔ it has its own user on the hub
              ✖ role compute-cell of system:serviceaccount:compute-system:compute-manager lacks: watch subnetclaims.networking.datumapis.com
                fix  kubectl --context ord: apply your overlay of config/overlays/cell of this version
              ▲ token of compute-cell-federation-kubeconfig ends in 6 d
                fix  kubectl compute cell rotate cell-ord";
    assert_eq!(row, expected);
    assert!(text.ends_with("31 passed, 1 warnings, 1 failed\n"), "{text}");
    assert_eq!(report.exit(), Exit::Platform);
}

type Edit = fn(&mut Facts);

/// Each problem, the row that names it, its mark and a part of its text.
const PROBLEMS: [(&str, &str, Mark, &str, Edit); 37] = [
    ("no answer", "hub", Mark::Broken, "does not answer", |f| {
        f.hub.as_mut().unwrap().version = Seen::Unanswered("refused".to_owned());
    }),
    ("old Kubernetes", "hub", Mark::Broken, "1.29.4+k3s1 is older than 1.30", |f| {
        f.hub.as_mut().unwrap().version = Seen::Found("v1.29.4+k3s1".to_owned());
    }),
    ("old cell", "cell-dfw", Mark::Broken, "1.29.0 is older than 1.30", |f| {
        cell_mut(f, "cell-dfw").version = Seen::Found("v1.29.0".to_owned());
    }),
    ("clock", "cell-dfw", Mark::Warning, "differs by 60 s", |f| {
        cell_mut(f, "cell-dfw").clock = Some(Clock { server: now(), asked: in_seconds(60), answered: in_seconds(62) });
    }),
    ("slow answer", "cell-dfw", Mark::Well, "Kubernetes", |f| {
        cell_mut(f, "cell-dfw").clock = Some(Clock { server: now(), asked: in_seconds(-7), answered: in_seconds(7) });
    }),
    ("silent definitions", "project shop", Mark::Unanswered, "definitions: no answer: not within 10 s", |f| {
        let silent = Seen::Unanswered("not within 10 s".to_owned());
        f.project.definitions.insert("instances.compute.datumapis.com".to_owned(), silent);
    }),
    ("silent rights", "hub", Mark::Unanswered, "rights of the operator: no answer", |f| {
        f.hub.as_mut().unwrap().rights[0].lacking = Seen::Unanswered("refused".to_owned());
    }),
    ("definition", "cell-dfw", Mark::Broken, "definition instances.compute.datumapis.com is missing", |f| {
        cell_mut(f, "cell-dfw").definitions.insert("instances.compute.datumapis.com".to_owned(), Seen::Absent);
    }),
    ("hidden definitions", "project shop", Mark::Unseen, "definitions: not visible with your rights", |f| {
        f.project.definitions.insert("instances.compute.datumapis.com".to_owned(), Seen::Denied("no".to_owned()));
    }),
    ("hidden rights", "hub", Mark::Unseen, "rights of the operator: not visible", |f| {
        f.hub.as_mut().unwrap().rights[0].lacking = Seen::Denied("no".to_owned());
    }),
    ("no Lease", "project shop", Mark::Broken, "no manager has led here", |f| {
        f.project.manager.as_mut().unwrap().lease = Seen::Absent;
    }),
    ("old Lease", "cell-ord", Mark::Broken, "has not renewed the manager's Lease for 16 s", |f| {
        let renewed = Timestamp::from_second(1_800_000_000 - 16).ok();
        let lease = LeaseFacts { holder: "a".to_owned(), renewed, seconds: 15 };
        cell_mut(f, "cell-ord").manager.as_mut().unwrap().lease = Seen::Found(lease);
    }),
    ("no leader", "cell-ord", Mark::Broken, "no manager leads", |f| {
        let lease = LeaseFacts { holder: String::new(), renewed: Some(now()), seconds: 1 };
        cell_mut(f, "cell-ord").manager.as_mut().unwrap().lease = Seen::Found(lease);
    }),
    ("leader's clock", "cell-ord", Mark::Warning, "is 30 s ahead", |f| {
        let renewed = Timestamp::from_second(1_800_000_030).ok();
        let lease = LeaseFacts { holder: "a".to_owned(), renewed, seconds: 15 };
        cell_mut(f, "cell-ord").manager.as_mut().unwrap().lease = Seen::Found(lease);
    }),
    ("ended token", "cell-ord", Mark::Broken, "token of compute-cell-federation-kubeconfig has ended", |f| {
        let ends = BTreeMap::from([("kubeconfig".to_owned(), End::Token(Some(in_days(-1))))]);
        let manager = cell_mut(f, "cell-ord").manager.as_mut().unwrap();
        manager.credentials.insert("compute-cell-federation-kubeconfig".to_owned(), Seen::Found(ends));
    }),
    ("no Secret", "cell-ord", Mark::Broken, "compute-cell-federation-kubeconfig does not exist", |f| {
        let manager = cell_mut(f, "cell-ord").manager.as_mut().unwrap();
        manager.credentials.insert("compute-cell-federation-kubeconfig".to_owned(), Seen::Absent);
    }),
    ("deleted account", "cell-ord", Mark::Broken, "its token is of a ServiceAccount", |f| {
        token_of(f, "1", Seen::Absent);
    }),
    ("account of another uid", "cell-ord", Mark::Broken, "/compute-cell-ord that was deleted", |f| {
        token_of(f, "1", Seen::Found("2".to_owned()));
    }),
    ("no webhook", "project shop", Mark::Warning, "no webhook", |f| {
        f.webhook = Webhook { authorities: Seen::Absent, answer: Answer::Accepted };
    }),
    ("silent webhook", "project shop", Mark::Broken, "cannot call the webhook", |f| {
        f.webhook.answer = Answer::Uncalled("failed calling webhook".to_owned());
    }),
    ("lenient webhook", "project shop", Mark::Broken, "accepted an invalid Workload", |f| {
        f.webhook.answer = Answer::Accepted;
    }),
    ("stored dry run", "project shop", Mark::Broken, "stored a Workload of a dry run", |f| {
        f.webhook.answer = Answer::Stored;
    }),
    ("authority", "project shop", Mark::Broken, "authority of the webhooks has ended", |f| {
        let ended = End::Certificate(Some(in_days(-3)));
        f.webhook.authorities = Seen::Found([("vworkload.kb.io".to_owned(), ended)].into());
    }),
    ("old Karmada", "hub", Mark::Broken, "Karmada v1.15.4 is not supported", |f| {
        f.karmada.version = Seen::Found("v1.15.4".to_owned());
    }),
    ("unknown Karmada", "hub", Mark::Unseen, "give --karmada-context", |f| f.karmada.version = Seen::Absent),
    ("no Karmada", "hub", Mark::Broken, "does not serve Cluster", |f| {
        f.karmada.kinds.insert("Cluster".to_owned(), Seen::Unserved);
    }),
    ("PropagateDeps", "hub", Mark::Broken, "processed none of 3 bindings", |f| {
        f.karmada.bindings = Seen::Found(Bindings { asking: 3, distributed: 0 });
    }),
    ("no interpreter", "hub", Mark::Broken, "workloaddeployment does not exist", |f| {
        f.karmada.interpreters = Seen::Found(BTreeMap::new());
    }),
    (
        "another interpreter",
        "hub",
        Mark::Broken,
        "differs from this version's in spec.customizations.retention.luaScript",
        |f| {
            let Seen::Found(all) = &mut f.karmada.interpreters else { return };
            all.get_mut("workloaddeployment").unwrap()["customizations"]["retention"]["luaScript"] = json!("other");
        },
    ),
    ("two interpreters", "hub", Mark::Warning, "other interpreters", |f| {
        let Seen::Found(all) = &mut f.karmada.interpreters else { return };
        all.insert("old".to_owned(), json!({}));
    }),
    ("no Cluster", "cell-ord", Mark::Broken, "the hub has no Cluster cell-ord", |f| {
        clusters_mut(f).remove("cell-ord");
    }),
    ("away", "cell-ord", Mark::Broken, "Cluster is not ready: ClusterNotReachable", |f| {
        clusters_mut(f).get_mut("cell-ord").unwrap().ready = Err("ClusterNotReachable".to_owned());
    }),
    (
        "another cluster",
        "cell-ord",
        Mark::Broken,
        "the Cluster has spec.id uid-ord, and kube-system has the uid other",
        |f| {
            cell_mut(f, "cell-ord").uid = Seen::Found("other".to_owned());
        },
    ),
    ("no user", "cell-ord", Mark::Broken, "no user of the hub may write for this cell", |f| {
        f.holders = Seen::Found(BTreeMap::new());
    }),
    (
        "open city",
        "cities",
        Mark::Broken,
        "ams is open to the project (LocationBinding ams), and no Cluster has it",
        |f| {
            let Seen::Found(all) = &mut f.locations else { return };
            all.insert("ams".to_owned(), "ams".to_owned());
        },
    ),
    ("two spellings", "cities", Mark::Warning, "dfw has several spellings: DFW, dfw", |f| {
        clusters_mut(f).get_mut("cell-dfw").unwrap().label = Some("DFW".to_owned());
    }),
    ("two versions", "versions", Mark::Warning, "project, cell-dfw run v0.1.0; cell-ord run v0.2.0", |f| {
        let Seen::Found(deployment) = &mut cell_mut(f, "cell-ord").manager.as_mut().unwrap().deployment else { return };
        deployment.image = "registry:5000/compute-operator:v0.2.0@sha256:00".to_owned();
    }),
];

#[test]
fn each_problem_is_named_on_its_plane() {
    for (what, row, mark, said, edit) in PROBLEMS {
        let mut facts = well();
        edit(&mut facts);
        let report = Report::of(&facts);
        let text = text::text(&report, Screen::PLAIN);
        let checks = &report.rows.iter().find(|one| one.name == row).unwrap_or_else(|| panic!("{what}: {text}")).checks;
        let check = checks.iter().find(|check| check.text.contains(said));
        let check = check.unwrap_or_else(|| panic!("{what}: {said} is not said\n{text}"));
        assert_eq!(check.mark, mark, "{what}: {check:?}");
        let has_a_fix = matches!(mark, Mark::Broken | Mark::Warning);
        assert_eq!(check.fix.is_some(), has_a_fix, "{what}: {check:?}");
        assert!(!check.fix.as_deref().unwrap_or_default().contains("NAME") || row == "cities", "{what}: {check:?}");
        let expected = match mark {
            Mark::Broken => Exit::Platform,
            Mark::Unanswered => Exit::CouldNotAsk,
            _ => Exit::Well,
        };
        assert_eq!(report.exit(), expected, "{what}");
        assert!(mark != Mark::Well || report.warnings == 0, "{what}: {text}");
    }
}

#[test]
fn drained_cluster_and_a_city_on_two_clusters_are_warnings() {
    let mut facts = well();
    let there = clusters_mut(&mut facts)["cell-dfw"].clone();
    clusters_mut(&mut facts).insert("cell-old".to_owned(), there);
    let of_cities = |facts: &Facts| Report::of(facts).rows.into_iter().find(|row| row.name == "cities").unwrap().checks;
    assert!(of_cities(&facts).iter().any(|check| check.text == "dfw is on several Clusters: cell-dfw, cell-old"));
    clusters_mut(&mut facts).get_mut("cell-old").unwrap().draining = true;
    assert!(of_cities(&facts).iter().all(|check| check.mark == Mark::Well), "one of them is left");
}

#[test]
fn before_the_install_only_its_requirements_are_checked() {
    let bare = |context: &str, lacking: Vec<Right>| Plane {
        context: context.to_owned(),
        version: Seen::Found("v1.34.1".to_owned()),
        rights: vec![Rights {
            role: "install".to_owned(),
            user: String::new(),
            total: 9,
            lacking: Seen::Found(lacking),
        }],
        webhooks: Seen::Found(Vec::new()),
        ..Plane::default()
    };
    let mut facts = Facts {
        pre: true,
        project: bare("shop", Vec::new()),
        hub: Some(bare("hub", vec![Right::new("rbac.authorization.k8s.io", "clusterroles", "create")])),
        cells: [("cell-dfw".to_owned(), bare("", Vec::new()))].into(),
        holders: Seen::NotAsked("not asked before the install".to_owned()),
        ..well()
    };
    let text = text::text(&Report::of(&facts), Screen::PLAIN);
    let expected = "\
project shop  ✔ Kubernetes 1.34.1 (1.30 or newer)   ✔ 9 of 9 rights to install   ✔ no webhook of others reviews its kinds
hub           ✔ Kubernetes 1.34.1 (1.30 or newer)   ✔ no webhook of others reviews its kinds   ✔ Karmada v1.18.2   ✔ Karmada's kinds are served   ✔ interpreter is this version's
              ✖ you lack: create clusterroles.rbac.authorization.k8s.io
                fix  install as a user with these rights, such as a cluster administrator
cell-dfw      ✔ Kubernetes 1.34.1   ✔ 9 of 9 rights to install   ✔ no webhook of others reviews its kinds   ✔ Cluster is ready
cities        ✔ dfw -> cell-dfw   ✔ ord -> cell-ord
14 passed, 0 warnings, 1 failed
";
    assert_eq!(text, expected);
    let of_hub = |facts: &Facts| Report::of(facts).rows.into_iter().find(|row| row.name == "hub").unwrap().checks;
    facts.karmada.interpreters = Seen::Found(BTreeMap::new());
    assert!(of_hub(&facts).contains(&judge::Check::well("no interpreter for WorkloadDeployments yet")));
    let other = [("workloaddeployment".to_owned(), json!({})), ("old".to_owned(), json!({}))];
    facts.karmada.interpreters = Seen::Found(other.into());
    let warned: Vec<String> =
        of_hub(&facts).into_iter().filter(|one| one.mark == Mark::Warning).map(|one| one.text).collect();
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(
        warned[0].contains("of another version differs in spec.") && warned[1].contains("other interpreters"),
        "{warned:?}"
    );
    facts.karmada.interpreters = Seen::Denied("no".to_owned());
    assert!(of_hub(&facts).iter().any(|one| one.mark == Mark::Unseen && one.text.starts_with("interpreter: ")));
    facts.hub.as_mut().unwrap().webhooks = Seen::Found(vec![foreign::Foreign {
        configuration: "policy".to_owned(),
        name: "a.example.com".to_owned(),
        mutates: false,
        fails: true,
    }]);
    assert!(of_hub(&facts).iter().any(|one| one.mark == Mark::Warning && one.text.contains("a.example.com of policy")));
}

#[test]
fn nothing_that_can_be_asked_is_no_success() {
    let silent = Plane { version: Seen::Unanswered("refused".to_owned()), ..Plane::default() };
    let facts = Facts { now: now(), project: silent, ..Facts::default() };
    let report = Report::of(&facts);
    assert_eq!(report.exit(), Exit::CouldNotAsk);
    let text = text::text(&report, Screen::PLAIN);
    assert!(text.contains("hub      ? not asked: give --hub-context"), "{text}");
}

#[test]
fn holders_are_the_users_that_name_a_cell() {
    let of = |objects: Vec<Value>, kind: &str| -> Vec<Value> {
        objects.into_iter().filter(|object| object["kind"] == kind).collect()
    };
    let user = include_str!("../../../config/base/cell-access/user.yaml").replace("name-of-cell", "dfw");
    let objects = roles::documents(&user.replace("uid-of-cell", "5b1c"));
    let management = roles::documents(include_str!("../../../config/base/downstream-rbac/role.yaml"));
    let all: Vec<Value> = objects.into_iter().chain(management).collect();
    let roles: Vec<ClusterRole> = serde_json::from_value(json!(of(all.clone(), "ClusterRole"))).unwrap();
    let bindings: Vec<ClusterRoleBinding> = serde_json::from_value(json!(of(all, "ClusterRoleBinding"))).unwrap();
    let holders = read::holders_of(&roles, &bindings);
    let expected = [("5b1c".to_owned(), ["system:serviceaccount:compute-system:compute-cell-dfw".to_owned()].into())];
    assert_eq!(holders, expected.into(), "management holds all cells, and is not listed");
}

#[test]
fn tag_of_an_image_has_no_registry_and_no_digest() {
    for (image, expected) in [
        ("docker.io/karmada/karmada-controller-manager:v1.18.2", "v1.18.2"),
        ("registry:5000/compute-operator:v0.1.0@sha256:0a", "v0.1.0"),
        ("registry:5000/compute-operator", "registry:5000/compute-operator"),
    ] {
        assert_eq!(read::tag(image), expected);
    }
}

#[test]
fn duration_is_read_as_people_write_it() {
    assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
    assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
    assert!(duration("soon").is_err() && duration("-2m").is_err());
}
