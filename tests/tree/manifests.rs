//! The manifests: every overlay renders, states its purpose, and is accepted by the operator's own parser of flags and files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use compute_operator::config::{Config, Discovery, Flags};
use serde_json::Value;

use super::{
    optional::{OPTIONAL, of_managers, rendered, rendered_with, with_quota},
    root,
};

/// Returns the names of all overlays, sorted.
pub fn overlays() -> Vec<String> {
    folders("config/overlays")
}

/// Returns the names of all overlays of `e2e/kind`, sorted.
pub fn on_kind() -> Vec<String> {
    folders("e2e/kind/overlays")
}

fn folders(within: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(within)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Renders a folder with a kustomization.
pub fn kustomize(dir: &Path) -> String {
    testbed::manifests::kustomize(dir).unwrap()
}

#[test]
fn component_belongs_to_an_overlay_or_is_optional() {
    let overlays = overlays().into_iter().map(|name| root().join("config/overlays").join(name));
    let texts: Vec<String> = overlays.map(|dir| fs::read_to_string(dir.join("kustomization.yaml")).unwrap()).collect();
    for entry in fs::read_dir(root().join("config/components")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let used = texts.iter().any(|text| text.contains(&format!("- ../../components/{name}\n")));
        let added = OPTIONAL.iter().any(|(component, _)| *component == name);
        assert!(used || added, "{name} is used by no overlay, and is none to be added");
    }
    for (component, overlay) in OPTIONAL {
        assert_ne!(rendered_with(component, overlay), rendered(overlay), "{overlay} has {component} already");
    }
}

/// Two components that change the start of a manager were only applied to an API server, and no test started such a manager.
#[test]
fn component_that_changes_the_manager_start_is_started_in_a_test() {
    let found = of_managers();
    assert!(found.len() > 1, "{found:?}");
    let stages = ["mod", "admitted", "on_kind"]
        .map(|file| fs::read_to_string(root().join(format!("tests/it/overlays/{file}.rs"))));
    let stages = stages.map(Result::unwrap).concat();
    for one in found {
        assert!(stages.contains(&format!("\"{one}\"")), "{one} is started nowhere");
    }
}

/// Returns the objects of an overlay.
pub fn objects(overlay: &str) -> Vec<Value> {
    testbed::manifests::documents(&rendered(overlay)).unwrap()
}

/// Returns the objects of one kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|o| o["kind"] == kind).collect()
}

/// Returns the configuration of an overlay's manager: flags with their variables, and its config file. An existing file replaces
/// the files of the pod.
pub fn configuration(overlay: &str, objects: &[Value]) -> Config {
    let deployment = of_kind(objects, "Deployment")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mut variables = BTreeMap::new();
    for variable in container["env"].as_array().unwrap() {
        variables.insert(
            format!("$({})", variable["name"].as_str().unwrap()),
            variable["value"].as_str().unwrap().to_owned(),
        );
    }
    let some_file = root().join("Cargo.toml").display().to_string();
    let given = variables.get_mut("$(FEDERATION_KUBECONFIG)").unwrap();
    assert!(!given.is_empty(), "{overlay}: management works on the hub, and cells write back to it");
    given.clone_from(&some_file);
    let args = container["args"].as_array().unwrap().iter().map(|arg| {
        let mut arg = arg.as_str().unwrap().to_owned();
        for (name, value) in &variables {
            arg = arg.replace(name, value);
        }
        assert!(!arg.contains("$("), "{overlay}: {arg}");
        arg
    });
    let flags = Flags::from_args(["compute-operator".to_owned()].into_iter().chain(args)).unwrap();
    let configs = of_kind(objects, "ConfigMap");
    let file = configs.iter().find(|c| c["metadata"]["name"] == "compute-config").unwrap();
    let mut text = file["data"]["config.yaml"].as_str().unwrap().to_owned();
    for path in ["/etc/milo/kubeconfig", "/etc/quota-credentials/kubeconfig"] {
        text = text.replace(path, &some_file);
    }
    Config::new(flags, Some(&text)).unwrap()
}

/// Overlay, management controllers, cell controllers, replicas.
const MANAGERS: [(&str, bool, bool, u64); 7] = [
    ("single-project", true, false, 1),
    ("single-project-admission", true, false, 2),
    ("management-plane", true, false, 1),
    ("management-plane-admission", true, false, 2),
    ("cell", false, true, 1),
    ("single-cluster", true, true, 2),
    ("single-cluster-admission", true, true, 2),
];

#[test]
fn overlay_flags_and_config_are_accepted_by_the_parser() {
    for (overlay, management, cell, replicas) in MANAGERS {
        let objects = objects(overlay);
        let config = configuration(overlay, &objects);
        assert_eq!(config.discovery != Discovery::Single, overlay.starts_with("management-plane"));
        assert_eq!((config.management, config.cell), (management, cell), "{overlay}");
        assert!(config.leader_election.is_some() && config.health.is_some(), "{overlay}");
        assert_eq!(config.quota.is_some(), overlay == "cell", "{overlay}");
        let deployment = of_kind(&objects, "Deployment")[0];
        assert_eq!(deployment["spec"]["replicas"], replicas);
        let pod = &deployment["spec"]["template"]["spec"];
        let context = &pod["containers"][0]["securityContext"];
        assert_eq!(
            (
                &context["readOnlyRootFilesystem"],
                &context["allowPrivilegeEscalation"],
                &context["capabilities"]["drop"]
            ),
            (&Value::from(true), &Value::from(false), &serde_json::json!(["ALL"]))
        );
        assert_eq!(
            (&pod["securityContext"]["runAsNonRoot"], &pod["securityContext"]["runAsUser"]),
            (&true.into(), &65532.into())
        );
        let served = if overlay.starts_with("management-plane") { "project-access" } else { overlay };
        assert_eq!(of_kind(&self::objects(served), "CustomResourceDefinition").len(), 3, "{served}");
    }
    assert_eq!(of_kind(&objects("hub"), "ResourceInterpreterCustomization").len(), 1);
    assert!(of_kind(&objects("dev"), "Deployment").is_empty());
}

/// The overlay bound management's rights for projects to the pod's user in its own cluster. There they cover every Secret, also
/// Karmada's, and they gave no right in Milo.
#[test]
fn management_plane_overlay_grants_project_rights_only_in_projects() {
    let granted = |overlay: &str| {
        let objects = objects(overlay);
        let mut bound = BTreeSet::new();
        for kind in ["ClusterRoleBinding", "RoleBinding"] {
            for binding in of_kind(&objects, kind) {
                let subjects = binding["subjects"].as_array().unwrap();
                if subjects.iter().any(|subject| subject["name"] == "compute-manager") {
                    bound.insert(binding["roleRef"]["name"].as_str().unwrap().to_owned());
                }
            }
        }
        let all = ["ClusterRole", "Role"].map(|kind| of_kind(&objects, kind)).concat();
        let roles = all.iter().filter(|role| bound.contains(role["metadata"]["name"].as_str().unwrap()));
        let granted = roles.flat_map(|role| role["rules"].as_array().unwrap());
        granted
            .flat_map(|rule| rule["resources"].as_array().unwrap())
            .map(|of| of.as_str().unwrap().to_owned())
            .collect()
    };
    let at_home: BTreeSet<String> = ["leases", "tokenreviews", "subjectaccessreviews"].map(str::to_owned).into();
    for overlay in ["management-plane", "management-plane-admission"] {
        assert_eq!(granted(overlay), at_home, "{overlay}");
    }
    let elsewhere: BTreeSet<String> = granted("project-access");
    let of_one_project: BTreeSet<String> = granted("single-project");
    assert_eq!(elsewhere.union(&at_home).cloned().collect::<BTreeSet<_>>(), of_one_project);
    assert!(of_kind(&objects("project-access"), "Deployment").is_empty());
}

#[test]
fn kind_cell_overlays_enable_the_expected_gates() {
    for (overlay, quota, networks) in
        [("cell", false, false), ("cell-quota", true, false), ("cell-networks", true, true)]
    {
        let text = kustomize(&root().join("e2e/kind/overlays").join(overlay));
        let config = configuration(overlay, &testbed::manifests::documents(&text).unwrap());
        assert_eq!((config.quota.is_some(), config.networks, config.data), (quota, networks, true), "{overlay}");
        assert!(
            config.quota.is_none_or(|quota| quota.internal.is_some()),
            "{overlay}: no server has Milo's paths there"
        );
    }
}

#[test]
fn overlay_with_cell_controllers_enables_the_data_gate() {
    for (overlay, _, cell, _) in MANAGERS {
        let config = configuration(overlay, &objects(overlay));
        assert_eq!(config.data, cell, "{overlay}: without the gate, Instances start before their data is there");
    }
}

#[test]
fn metrics_service_targets_a_served_port_behind_a_network_policy() {
    for (overlay, ..) in MANAGERS {
        let objects = objects(overlay);
        let config = configuration(overlay, &objects);
        let services = of_kind(&objects, "Service");
        let service = services.iter().find(|s| s["metadata"]["name"] == "compute-metrics").unwrap();
        let port = &service["spec"]["ports"][0];
        let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"];
        let container = &pod["spec"]["containers"][0];
        let ports = container["ports"].as_array().unwrap();
        let target = ports.iter().find(|p| p["name"] == port["targetPort"]).unwrap()["containerPort"].as_u64().unwrap();
        assert_eq!(config.metrics.map(|served| u64::from(served.at.port())), Some(target), "{overlay}");
        for policy in [
            service["spec"]["selector"].clone(),
            of_kind(&objects, "NetworkPolicy")[0]["spec"]["podSelector"]["matchLabels"].clone(),
        ] {
            for (label, value) in policy.as_object().unwrap() {
                assert_eq!(&pod["metadata"]["labels"][label], value, "{overlay}");
            }
        }
        let allowed = of_kind(&objects, "NetworkPolicy")[0]["spec"]["ingress"].as_array().unwrap();
        let rule = allowed.iter().find(|rule| rule["ports"][0]["port"] == target).unwrap();
        assert!(
            rule["from"][0]["namespaceSelector"].is_object(),
            "{overlay}: connections to metrics are not for everybody"
        );
    }
}

#[test]
fn volumes_are_mounted_and_contain_every_named_file() {
    let with_quota = with_quota(&rendered_with("quota-credentials", "single-cluster"));
    let with_quota = ("single-cluster with quota", testbed::manifests::documents(&with_quota).unwrap());
    assert!(configuration(with_quota.0, &with_quota.1).quota.is_some());
    for (overlay, objects) in MANAGERS.map(|(overlay, ..)| (overlay, objects(overlay))).into_iter().chain([with_quota])
    {
        let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let names = |list: &Value| -> Vec<String> {
            let mut names: Vec<String> =
                list.as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&pod["volumes"]), names(&container["volumeMounts"]), "{overlay}");
        let mounts: Vec<&str> =
            container["volumeMounts"].as_array().unwrap().iter().map(|m| m["mountPath"].as_str().unwrap()).collect();
        let config = of_kind(&objects, "ConfigMap").iter().map(|c| c["data"].to_string()).collect::<String>();
        let variables = container["env"].to_string();
        for named in format!("{config}{variables}").split(['"', ' ', '\\']).filter(|word| word.starts_with("/etc/")) {
            let inside = mounts.iter().any(|mount| named == *mount || named.starts_with(&format!("{mount}/")));
            assert!(inside, "{overlay}: {named} is not in {mounts:?}");
        }
    }
}

#[test]
fn milo_overlay_registers_every_claimed_resource() {
    let objects = objects("milo");
    let types = |of: Vec<&Value>| -> BTreeSet<String> {
        of.into_iter().map(|of| of["resourceType"].as_str().unwrap().to_owned()).collect()
    };
    let registered = types(of_kind(&objects, "ResourceRegistration").iter().map(|of| &of["spec"]).collect());
    let policy = &of_kind(&objects, "GrantCreationPolicy")[0]["spec"]["target"]["resourceGrantTemplate"]["spec"];
    assert_eq!(registered, types(policy["allowances"].as_array().unwrap().iter().collect()));
    assert_eq!(registered, compute_operator::plan::cell::RESOURCES.map(str::to_owned).into());
    // Roles use exactly the permissions that the resources define.
    let permissions: BTreeSet<String> = of_kind(&objects, "ProtectedResource")
        .iter()
        .flat_map(|resource| {
            let (service, plural) =
                (resource["spec"]["serviceRef"]["name"].as_str(), resource["spec"]["plural"].as_str());
            let verbs = resource["spec"]["permissions"].as_array().unwrap().iter();
            verbs.map(move |verb| format!("{}/{}.{}", service.unwrap(), plural.unwrap(), verb.as_str().unwrap()))
        })
        .collect();
    let roles = of_kind(&objects, "Role");
    let given = roles.iter().flat_map(|role| role["spec"]["includedPermissions"].as_array().unwrap());
    let given: BTreeSet<String> = given.map(|permission| permission.as_str().unwrap().to_owned()).collect();
    assert_eq!(given, permissions);
}

#[test]
fn bundle_is_complete_and_reproducible() {
    let dir = testbed::binaries::cache().join(format!("run-{}-bundle", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let pack = |name: &str| {
        let out = Command::new(root().join(".ci/bundle")).arg(dir.join(name)).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        (String::from_utf8(out.stdout).unwrap(), fs::read(dir.join(name)).unwrap())
    };
    let (files, once) = pack("once.tar.gz");
    assert!(files.lines().any(|file| file == "crds/Kustomization"));
    assert_eq!(once, pack("again.tar.gz").1);
    let unpacked =
        Command::new("tar").args(["--extract", "--gzip", "--file", "once.tar.gz"]).current_dir(&dir).status();
    assert!(unpacked.unwrap().success());
    for overlay in overlays() {
        assert_eq!(kustomize(&dir.join("config/overlays").join(&overlay)), rendered(&overlay), "{overlay}");
    }
    fs::remove_dir_all(&dir).unwrap();
}

/// Returns the rights of an overlay's role, each as `group/resource verb`.
pub fn rights(objects: &[Value], role: &str) -> BTreeSet<String> {
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let roles = of_kind(objects, "ClusterRole");
    let role = roles.iter().find(|found| found["metadata"]["name"] == role).unwrap();
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                rights.extend(strings(&rule["verbs"]).iter().map(|verb| format!("{group}/{resource} {verb}")));
            }
        }
    }
    rights
}

#[test]
fn cell_role_on_the_hub_writes_only_instances_and_finalizers() {
    let (hub, cell) = (objects("hub"), objects("hub-cell"));
    let may = rights(&hub, "compute-cell-federation");
    let labels = "/namespaces get"; // they name the project of an Instance
    assert!(may.iter().all(|right| right == labels || right.starts_with("compute.datumapis.com/")), "{may:?}");
    let writes = |right: &&String| !["get", "list", "watch"].iter().any(|verb| right.ends_with(verb));
    let finalizers = "compute.datumapis.com/workloaddeployments/finalizers update";
    let instances = "compute.datumapis.com/instances";
    assert!(may.iter().filter(writes).all(|right| right == finalizers || right.starts_with(instances)), "{may:?}");
    // Next to Go operators, the hub allows the requests of the Go operator. The policy is in force at the same time.
    let beside = objects("hub-with-go-cells");
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        assert!(
            of_kind(&beside, kind).iter().any(|found| found["metadata"]["name"] == "compute-cell-instances"),
            "{kind}"
        );
    }
    let go = rights(&beside, "compute-go-operator");
    for right in ["instances update", "instances/status update", "workloaddeployments update", "cells hold"] {
        assert!(go.contains(&format!("compute.datumapis.com/{right}")), "{right}: {go:?}");
    }
    // Each cell has a role that names the cell it may write for. Management may write for all cells.
    assert!(rights(&hub, "compute-manager").contains("compute.datumapis.com/cells hold"));
    let holds = of_kind(&cell, "ClusterRole")[0];
    assert_eq!(holds["rules"][0]["resourceNames"], serde_json::json!(["uid-of-cell"]));
    assert_eq!(holds["rules"].as_array().unwrap().len(), 1);
    // Every binding names a ServiceAccount and a role that exist on the hub.
    let all: Vec<Value> = [hub, cell, objects("hub-single-cluster")].concat();
    let (accounts, roles) = (of_kind(&all, "ServiceAccount"), of_kind(&all, "ClusterRole"));
    for binding in of_kind(&all, "ClusterRoleBinding") {
        let subject = &binding["subjects"][0];
        let name = subject["name"].as_str().unwrap().rsplit(':').next().unwrap();
        assert!(accounts.iter().any(|a| a["metadata"]["name"] == name), "{subject}");
        let role = &binding["roleRef"]["name"];
        assert!(roles.iter().any(|r| r["metadata"]["name"] == *role), "{role}");
    }
}

/// A page asked operators to remove the separation between cells, which is not necessary.
#[test]
fn pages_keep_the_cell_policy_except_for_the_rollback_to_go() {
    let pages = ["docs", "docs/runbooks"]
        .map(|folder| root().join(folder))
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut seen = 0;
    for page in
        pages.map(|page| page.unwrap().path()).filter(|page| page.extension().is_some_and(|ending| ending == "md"))
    {
        let text = fs::read_to_string(&page).unwrap();
        for section in text.split("\n## ").filter(|section| section.contains("compute-cell-instances")) {
            seen += 1;
            let takes = section.to_lowercase().contains("delete") && !section.starts_with("What a cell's credentials");
            let stands = section.contains("stand from the first day");
            let back = section.starts_with("Back to Go\n");
            assert!(back || stands && !takes, "{}: {section}", page.display());
        }
    }
    assert_eq!(seen, 2, "the security page and the way back mention the policy");
}

/// Rights of the Go operator's former role on the hub, and the two extra rights that the hub requires. No Go operator runs in
/// these tests, so no audit log could show a superfluous right.
#[test]
fn go_operator_role_on_the_hub_has_its_former_rights() {
    let read = ["get", "list", "watch"];
    let kept = [&read[..], &["create", "update", "patch"]].concat();
    let full = [&kept[..], &["delete"]].concat();
    let compute = "compute.datumapis.com";
    let table: Vec<(String, Vec<&str>)> = vec![
        ("/namespaces".into(), kept),
        ("/configmaps".into(), full.clone()),
        ("/secrets".into(), full.clone()),
        (format!("{compute}/workloaddeployments"), full.clone()),
        (format!("{compute}/instances"), full.clone()),
        (format!("{compute}/workloaddeployments/status"), vec!["get", "update", "patch"]),
        (format!("{compute}/instances/status"), vec!["get", "update", "patch"]),
        (format!("{compute}/workloaddeployments/finalizers"), vec!["update"]),
        (format!("{compute}/cells"), vec!["hold"]),
        ("policy.karmada.io/propagationpolicies".into(), full.clone()),
        ("policy.karmada.io/clusterpropagationpolicies".into(), full),
        ("cluster.karmada.io/clusters".into(), read.to_vec()),
        ("config.karmada.io/resourceinterpretercustomizations".into(), read.to_vec()),
        ("work.karmada.io/resourcebindings".into(), [&read[..], &["delete"]].concat()),
    ];
    let of = |(resource, verbs): (String, Vec<&str>)| {
        verbs.into_iter().map(move |verb| format!("{resource} {verb}")).collect::<Vec<_>>()
    };
    let wanted: BTreeSet<String> = table.into_iter().flat_map(of).collect();
    assert_eq!(rights(&objects("hub-with-go-cells"), "compute-go-operator"), wanted);
}

/// The kubelet killed a manager that was still finishing its work and releasing its Lease. The next leader had to wait until the
/// Lease expired.
#[test]
fn manager_pod_has_enough_grace_period_and_priority() {
    let mut seen = 0;
    for overlay in overlays() {
        for deployment in of_kind(&objects(&overlay), "Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
            assert!(grace > compute_operator::manager::ENDS_WITHIN.as_secs(), "{overlay}: {grace} s");
            assert_eq!(pod["priorityClassName"], "system-cluster-critical", "{overlay}");
            let memory = |of: &str| pod["containers"][0]["resources"][of]["memory"].clone();
            assert_eq!(
                memory("requests"),
                memory("limits"),
                "{overlay}: a node that runs short of memory evicts others"
            );
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen}");
}
