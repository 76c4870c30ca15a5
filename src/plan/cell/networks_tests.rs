use super::*;
use crate::plan::Op;
use serde_json::Value;

/// The network objects of a cell, as JSON by kind and name.
#[derive(Default)]
struct KnownCell {
    locations: Vec<&'static str>,
    partial: bool,
    objects: std::collections::BTreeMap<(&'static str, String), Value>,
}

fn object(namespace: &str, name: &str, edit: &Value) -> Value {
    let mut object = json!({ "metadata": { "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "resourceVersion": "3" }, "spec": {} });
    for (field, value) in edit.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

fn ready_as(status: &str, reason: &str, message: &str) -> Value {
    json!([{ "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" }])
}

impl KnownCell {
    fn put(&mut self, kind: &'static str, object: Value) {
        self.objects.insert((kind, object["metadata"]["name"].as_str().unwrap().to_owned()), object);
    }

    fn get<K: serde::de::DeserializeOwned>(&self, kind: &'static str, name: &str) -> Option<Shared<K>> {
        let mut object = self.objects.get(&(kind, name.to_owned()))?.clone();
        object["apiVersion"] = json!("networking.datumapis.com/v1alpha");
        object["kind"] = json!(kind);
        Some(serde_json::from_value::<K>(object).unwrap().into())
    }

    /// Returns all objects from the binding to the subnet, each ready.
    fn whole() -> Self {
        let mut cell = Self { locations: vec!["dfw-1"], ..Self::default() };
        let yes = || ready_as("True", "Ready", "");
        cell.put("NetworkBinding", object("ns-1", "wd-net-0", &json!({
            "spec": { "network": { "name": "default" }, "location": { "name": "dfw-1" } },
            "status": { "conditions": yes(), "networkContextRef": { "namespace": "ns-1", "name": "default-dfw" } },
        })));
        cell.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap()["metadata"]["ownerReferences"] =
            ownership::controller_reference(&deployment());
        cell.put("NetworkContext", object("ns-1", "default-dfw", &json!({ "status": { "conditions": yes() } })));
        cell.put("SubnetClaim", object("ns-1", "elsewhere-named", &json!({
            "spec": { "subnetClass": "private", "networkContext": { "name": "default-dfw" }, "location": { "name": "dfw-1" }, "ipFamily": "IPv4" },
            "status": { "conditions": yes(), "subnetRef": { "name": "s" } },
        })));
        cell.put(
            "Subnet",
            object(
                "ns-1",
                "s",
                &json!({ "spec": { "networkContext": { "name": "default-dfw" } }, "status": { "conditions": yes() } }),
            ),
        );
        cell
    }
}

impl KnownCell {
    fn all<K: serde::de::DeserializeOwned>(&self, kind: &'static str) -> Vec<Shared<K>> {
        let names = self.objects.keys().filter(|(k, _)| *k == kind);
        names.filter_map(|(_, name)| self.get(kind, name)).collect()
    }

    fn observed(&self) -> Observed {
        let location = |name: &&str| LocationReference { name: (*name).into(), namespace: None };
        Observed {
            locations: self.locations.iter().map(location).collect(),
            partial: self.partial,
            bindings: self.all("NetworkBinding"),
            contexts: self.all("NetworkContext"),
            claims: self.all("SubnetClaim"),
            subnets: self.all("Subnet"),
        }
    }
}

fn deployment() -> WorkloadDeployment {
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": "wd", "namespace": "ns-1", "uid": "d1" },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [{ "network": { "name": "default" } }],
            }},
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn judged(cell: &KnownCell) -> Networks {
    let deployment = deployment();
    judge(&cell.observed(), &deployment, &deployment.spec.template.spec.network_interfaces)
}

fn without(kind: &'static str) -> Box<dyn Fn(&mut KnownCell)> {
    Box::new(move |cell| cell.objects.retain(|(k, _), _| *k != kind))
}
fn says(kind: &'static str, status: &'static str, reason: &'static str) -> Box<dyn Fn(&mut KnownCell)> {
    Box::new(move |cell| {
        let (_, object) = cell.objects.iter_mut().find(|((k, _), _)| *k == kind).unwrap();
        object["status"]["conditions"] = ready_as(status, reason, "because");
    })
}
fn lacks(kind: &'static str, field: &'static str) -> Box<dyn Fn(&mut KnownCell)> {
    Box::new(move |cell| {
        let (_, object) = cell.objects.iter_mut().find(|((k, _), _)| *k == kind).unwrap();
        object["status"].as_object_mut().unwrap().remove(field);
    })
}
type Case = (Box<dyn Fn(&mut KnownCell)>, &'static str, &'static str, &'static str);

/// Checks the verdict and the writes of each case.
fn are_reported(cases: Vec<Case>) {
    let reported = |edit: &dyn Fn(&mut KnownCell)| {
        let mut cell = KnownCell::whole();
        edit(&mut cell);
        let Networks { writes, verdict, .. } = judged(&cell);
        let does = writes.iter().map(|w| match &w.op {
            Op::Create { .. } => format!("create {}", w.object),
            Op::Delete { .. } => format!("delete {}", w.object),
            other => panic!("{other:?}"),
        });
        (verdict.reason, verdict.message, does.collect::<Vec<_>>().join(" "))
    };
    for (edit, reason, message, does) in cases {
        let reported = reported(&*edit);
        assert_eq!((reported.0.as_str(), reported.2.as_str()), (reason, does), "{}", reported.1);
        assert!(reported.1.contains(message), "{} lacks {message}", reported.1);
    }
}

#[test]
fn networks_missing_or_not_ready_objects_are_reported() {
    are_reported(vec![
        (Box::new(|_| ()), "NetworkReady", "networks are ready", ""),
        (
            Box::new(|c| c.locations.clear()),
            "NoMatchingLocation",
            "no Location or LocationBinding of this cell has the city code DFW",
            "",
        ),
        (Box::new(|c| c.locations.push("dfw-2")), "NetworkReady", "networks are ready", ""),
        (
            without("NetworkBinding"),
            "NetworkProvisioning",
            "NetworkBinding wd-net-0 is being created",
            "create NetworkBinding ns-1/wd-net-0",
        ),
        (
            says("NetworkBinding", "False", "Pending"),
            "NetworkProvisioning",
            "NetworkBinding wd-net-0 is not ready: Pending: because",
            "",
        ),
        (says("NetworkBinding", "False", "NetworkFailedToCreate"), "NetworkFailedToCreate", "because", ""),
        (says("NetworkBinding", "False", "NetworkNotFound"), "NetworkNotFound", "because", ""),
        (says("NetworkBinding", "False", "ProjectUnresolved"), "ProjectUnresolved", "because", ""),
        (says("NetworkBinding", "False", "LocationNotAvailable"), "LocationNotAvailable", "because", ""),
        (lacks("NetworkBinding", "conditions"), "NetworkProvisioning", "reports no status yet", ""),
        (lacks("NetworkBinding", "networkContextRef"), "NetworkProvisioning", "has no NetworkContext yet", ""),
        (without("NetworkContext"), "NetworkProvisioning", "NetworkContext default-dfw does not exist yet", ""),
        (
            says("NetworkContext", "Unknown", "Allocating"),
            "NetworkProvisioning",
            "NetworkContext default-dfw is not ready: Allocating",
            "",
        ),
        (
            without("SubnetClaim"),
            "NetworkProvisioning",
            "SubnetClaim default-dfw-0 is being created",
            "create SubnetClaim ns-1/default-dfw-0",
        ),
        (
            says("SubnetClaim", "False", "Exhausted"),
            "NetworkProvisioning",
            "SubnetClaim elsewhere-named is not ready: Exhausted",
            "",
        ),
        (lacks("SubnetClaim", "subnetRef"), "NetworkProvisioning", "has no Subnet yet", ""),
        (without("Subnet"), "NetworkProvisioning", "Subnet s does not exist yet", ""),
        (says("Subnet", "False", "Programming"), "NetworkProvisioning", "Subnet s is not ready: Programming", ""),
    ]);
}

/// The new binding if one of another network has the plain name.
const OTHER_BINDING: &str = "create NetworkBinding ns-1/wd-net-0-30189886";

#[test]
fn networks_objects_for_other_use_are_replaced_or_kept() {
    are_reported(vec![
        (
            Box::new(|c| {
                let binding = c.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
                binding["spec"]["network"]["name"] = json!("other");
            }),
            "NetworkProvisioning",
            "NetworkBinding wd-net-0-",
            OTHER_BINDING,
        ),
        (
            Box::new(|c| {
                let binding = c.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
                binding["metadata"]["ownerReferences"] = json!([]);
            }),
            "NetworkFailedToCreate",
            "has another owner",
            "",
        ),
        (
            // The claim of that name has another spec, so the next free name is used.
            Box::new(|c| {
                c.objects.retain(|(k, _), _| *k != "SubnetClaim");
                c.put("SubnetClaim", object("ns-1", "default-dfw-0", &json!({
                    "spec": { "subnetClass": "public", "networkContext": { "name": "default-dfw" }, "location": { "name": "dfw-1" }, "ipFamily": "IPv4" },
                })));
            }),
            "NetworkProvisioning",
            "default-dfw-1",
            "create SubnetClaim ns-1/default-dfw-1",
        ),
    ]);
}

#[test]
fn networks_several_interfaces_report_the_worst() {
    let mut wd = deployment();
    let second = NetworkInterface {
        network: NetworkReference { name: "other".into(), namespace: None },
        ..NetworkInterface::default()
    };
    wd.spec.template.spec.network_interfaces.push(second);
    let mut cell = KnownCell::whole();
    let binding = cell.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
    binding["status"]["conditions"] = ready_as("False", "NetworkFailedToCreate", "no");
    let Networks { writes, verdict, .. } = judge(&cell.observed(), &wd, &wd.spec.template.spec.network_interfaces);
    assert_eq!((writes.len(), verdict.reason.as_str()), (1, "NetworkFailedToCreate"));
}

fn running(network: &str, location: Option<&str>) -> Shared<Instance> {
    serde_json::from_value::<Instance>(json!({
        "metadata": { "name": "wd-0", "namespace": "ns-1" },
        "spec": {
            "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [{ "network": { "name": network } }],
            "location": location.map(|name| json!({ "name": name })),
        },
    }))
    .unwrap()
    .into()
}

/// After a change of network, the old binding was deleted under the Instances that still used it.
#[test]
fn binding_unused_by_any_instance_is_deleted() {
    let mut cell = KnownCell::whole();
    let mut other = cell.objects[&("NetworkBinding", "wd-net-0".into())].clone();
    other["metadata"]["name"] = json!("wd-net-0-abc");
    other["spec"]["network"]["name"] = json!("newer");
    cell.put("NetworkBinding", other);
    let mut newer = deployment();
    newer.spec.template.spec.network_interfaces[0].network.name = "newer".into();
    let gone = |wd: &WorkloadDeployment, instances: &[Shared<Instance>]| -> Vec<String> {
        surplus(&cell.observed(), wd, instances).iter().map(|binding| binding.name_any()).collect()
    };
    let Networks { writes, verdict, .. } =
        judge(&cell.observed(), &newer, &newer.spec.template.spec.network_interfaces);
    assert_eq!((writes.len(), verdict.status), (0, ConditionStatus::True), "it has one, under another name");
    let nothing: [&str; 0] = [];
    assert_eq!(gone(&newer, &[running("default", None), running("newer", None)]), nothing);
    assert_eq!(gone(&newer, &[running("default", Some("dfw-0"))]), nothing, "in any location");
    assert_eq!(gone(&newer, &[running("newer", None)]), ["wd-net-0"]);
    assert_eq!(gone(&deployment(), &[]), ["wd-net-0-abc"]);
    let mut without = deployment();
    without.spec.template.spec.network_interfaces.clear();
    assert_eq!(gone(&without, &[]), ["wd-net-0", "wd-net-0-abc"], "the interface was removed");
    cell.locations.clear();
    let observed = cell.observed();
    assert!(surplus(&observed, &without, &[]).is_empty(), "nothing is deleted while the location is unknown");
}

/// The Go operator wrote references with a namespace, and each of its bindings was recreated.
#[test]
fn reference_with_default_namespace_is_equal() {
    let mut cell = KnownCell::whole();
    let binding = cell.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
    binding["spec"]["network"]["namespace"] = json!("ns-1");
    binding["spec"]["location"]["namespace"] = json!("datum");
    let claim = cell.objects.get_mut(&("SubnetClaim", "elsewhere-named".into())).unwrap();
    claim["spec"]["location"]["namespace"] = json!("datum");
    let Networks { writes, verdict, .. } = judged(&cell);
    assert_eq!((writes.len(), verdict.status), (0, ConditionStatus::True), "{}", verdict.message);
}

#[test]
fn location_in_use_is_preferred_else_first_by_name() {
    let mut cell = KnownCell::whole();
    let choice = |cell: &KnownCell, held: Option<Value>| {
        let mut wd = deployment();
        wd.status = Some(serde_json::from_value(json!({ "location": held })).unwrap());
        let networks = judge(&cell.observed(), &wd, &[]);
        (networks.location.map(|location| location.name), networks.note)
    };
    assert_eq!(choice(&cell, None), (Some("dfw-1".into()), None), "one needs no choice");
    cell.locations = vec!["dfw-3", "dfw-2", "dfw-1"];
    for (held, expected) in [
        (None, "dfw-1"),
        (Some(json!({ "name": "dfw-2" })), "dfw-2"),
        (Some(json!({ "name": "dfw-3", "namespace": "datum" })), "dfw-3"),
        (Some(json!({ "name": "gone" })), "dfw-1"),
    ] {
        let (location, note) = choice(&cell, held);
        assert_eq!(location.as_deref(), Some(expected));
        let note = note.unwrap();
        assert!(note.ends_with(&format!("DFW (dfw-1, dfw-2, dfw-3): {expected} is used")), "{note}");
    }
}

/// While a location was recreated, its deployment moved to another one.
#[test]
fn deployment_with_bindings_keeps_its_absent_location() {
    let mut cell = KnownCell::whole();
    cell.locations = vec!["aaa", "dfw-0"];
    let location = |cell: &KnownCell| {
        let networks = judged(cell);
        (networks.location.unwrap().name, networks.writes.len(), networks.note)
    };
    let (name, writes, note) = location(&cell);
    assert_eq!((name.as_str(), writes), ("dfw-1", 0));
    assert!(note.unwrap().contains("(aaa, dfw-0): dfw-1 is used"));
    cell.objects.retain(|(kind, _), _| *kind != "NetworkBinding");
    assert_eq!(location(&cell).0, "aaa", "nothing holds it");
}

/// If the list of the second kind of location failed, a running deployment must not move, nor lose its location.
#[test]
fn deployment_keeps_its_location_while_one_list_is_missing() {
    let mut wd = deployment();
    wd.status = Some(serde_json::from_value(json!({ "location": { "name": "dfw-9" } })).unwrap());
    for (locations, partial, expected) in [
        (&["aaa"][..], true, Some("dfw-9")),
        (&[], true, Some("dfw-9")),
        (&["aaa", "dfw-9"], true, Some("dfw-9")),
        (&["aaa"], false, Some("aaa")),
        (&[], false, None),
    ] {
        let cell = KnownCell { locations: locations.to_vec(), partial, ..KnownCell::default() };
        let location = judge(&cell.observed(), &wd, &[]).location.map(|location| location.name);
        assert_eq!(location.as_deref(), expected, "{locations:?}, partial: {partial}");
    }
    let nowhere = KnownCell { partial: true, ..KnownCell::default() };
    let verdict = judge(&nowhere.observed(), &deployment(), &[]).verdict;
    assert_eq!(verdict.reason.as_str(), "NoMatchingLocation");
    assert!(verdict.message.contains("known so far"), "{}", verdict.message);
}

/// A network that was requested again at once opened gates through a terminating binding.
#[test]
fn terminating_binding_does_not_count() {
    let mut cell = KnownCell::whole();
    let binding = cell.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
    binding["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let Networks { writes, verdict, .. } = judged(&cell);
    assert_eq!((writes.len(), verdict.reason.as_str()), (1, "NetworkProvisioning"));
    assert!(writes[0].object.name.starts_with("wd-net-0-"), "the plain name is taken");
    assert!(surplus(&cell.observed(), &deployment(), &[]).is_empty(), "it is already terminating");
}

/// The location of an Instance that reports none is unknown.
#[test]
fn instance_without_location_keeps_all_bindings_of_its_network() {
    let mut cell = KnownCell::whole();
    let mut other = cell.objects[&("NetworkBinding", "wd-net-0".into())].clone();
    other["metadata"]["name"] = json!("wd-net-0-abc");
    other["spec"]["location"]["name"] = json!("dfw-2");
    cell.put("NetworkBinding", other);
    cell.locations.push("dfw-2");
    let gone = |instances: &[Shared<Instance>]| surplus(&cell.observed(), &deployment(), instances).len();
    assert_eq!(gone(&[running("default", None)]), 0);
    assert_eq!(gone(&[running("default", Some("dfw-1"))]), 1);
}

#[test]
fn instance_of_older_template_is_judged_by_its_own_network() {
    let older = [NetworkInterface {
        network: NetworkReference { name: "older".into(), namespace: None },
        ..NetworkInterface::default()
    }];
    let verdict = judge(&KnownCell::whole().observed(), &deployment(), &older).verdict;
    assert_eq!(verdict.status, ConditionStatus::False, "the binding is for another network than this Instance's");
}

/// Two locations of one name in different namespaces were treated as one.
#[test]
fn locations_duplicates_are_merged_by_name_and_namespace() {
    let of = |(name, namespace): &(&str, Option<&str>)| LocationReference {
        name: (*name).to_owned(),
        namespace: namespace.map(str::to_owned),
    };
    for (references, expected) in [
        (vec![], 0),
        (vec![("a", None), ("a", None)], 1),
        (vec![("a", None), ("b", None)], 2),
        (vec![("a", Some("x")), ("a", Some("x"))], 1),
        (vec![("a", Some("x")), ("a", Some("y"))], 2),
        (vec![("a", Some("x")), ("a", None)], 1),
    ] {
        assert_eq!(distinct(references.iter().map(of)).len(), expected, "{references:?}");
    }
}
