use super::*;
use crate::plan::Op;
use serde_json::Value;

/// A cell's network objects, as JSON by kind and name.
#[derive(Default)]
struct KnownCell {
    locations: Vec<&'static str>,
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

    /// Everything from the binding to the subnet, ready.
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

/// Each of them says so.
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
fn every_step_that_is_missing_or_not_ready_says_so() {
    are_reported(vec![
        (Box::new(|_| ()), "NetworkReady", "networks are ready", ""),
        (
            Box::new(|c| c.locations.clear()),
            "NoMatchingLocation",
            "no Location or LocationBinding of this cell has the city code DFW",
            "",
        ),
        (Box::new(|c| c.locations.push("dfw-2")), "AmbiguousServingLocation", "dfw-1, dfw-2", ""),
        (
            without("NetworkBinding"),
            "NetworkProvisioning",
            "NetworkBinding wd-net-0 is being made",
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
        (lacks("NetworkBinding", "conditions"), "NetworkProvisioning", "says nothing yet", ""),
        (lacks("NetworkBinding", "networkContextRef"), "NetworkProvisioning", "names no NetworkContext yet", ""),
        (without("NetworkContext"), "NetworkProvisioning", "NetworkContext default-dfw is not there yet", ""),
        (
            says("NetworkContext", "Unknown", "Allocating"),
            "NetworkProvisioning",
            "NetworkContext default-dfw is not ready: Allocating",
            "",
        ),
        (
            without("SubnetClaim"),
            "NetworkProvisioning",
            "SubnetClaim default-dfw-0 is being made",
            "create SubnetClaim ns-1/default-dfw-0",
        ),
        (
            says("SubnetClaim", "False", "Exhausted"),
            "NetworkProvisioning",
            "SubnetClaim elsewhere-named is not ready: Exhausted",
            "",
        ),
        (lacks("SubnetClaim", "subnetRef"), "NetworkProvisioning", "names no Subnet yet", ""),
        (without("Subnet"), "NetworkProvisioning", "Subnet s is not there yet", ""),
        (says("Subnet", "False", "Programming"), "NetworkProvisioning", "Subnet s is not ready: Programming", ""),
    ]);
}

#[test]
fn what_is_for_something_else_is_replaced_or_left_alone() {
    are_reported(vec![
        (
            Box::new(|c| {
                let binding = c.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
                binding["spec"]["network"]["name"] = json!("other");
            }),
            "NetworkProvisioning",
            "is being replaced",
            "delete NetworkBinding ns-1/wd-net-0",
        ),
        (
            Box::new(|c| {
                let binding = c.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
                binding["metadata"]["ownerReferences"] = json!([]);
            }),
            "NetworkFailedToCreate",
            "belongs to somebody else",
            "",
        ),
        (
            // A claim of that name for something else: the next free name is taken.
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
fn the_worst_of_several_interfaces_is_reported_and_all_are_worked_on() {
    let mut wd = deployment();
    let second =
        NetworkInterface { network: NetworkReference { name: "other".into(), namespace: None }, network_policy: None };
    wd.spec.template.spec.network_interfaces.push(second);
    let mut cell = KnownCell::whole();
    let binding = cell.objects.get_mut(&("NetworkBinding", "wd-net-0".into())).unwrap();
    binding["status"]["conditions"] = ready_as("False", "NetworkFailedToCreate", "no");
    let Networks { writes, verdict, .. } = judge(&cell.observed(), &wd, &wd.spec.template.spec.network_interfaces);
    assert_eq!((writes.len(), verdict.reason.as_str()), (1, "NetworkFailedToCreate"));
    // An interface that is gone again leaves a binding that nobody needs.
    let surplus = surplus(&cell.observed(), &deployment(), 0);
    assert!(matches!(&surplus[..], [w] if w.object.name == "wd-net-0" && matches!(w.op, Op::Delete { .. })));
}

#[test]
fn an_instance_of_an_older_template_is_judged_by_its_own_network() {
    let older = [NetworkInterface {
        network: NetworkReference { name: "older".into(), namespace: None },
        network_policy: None,
    }];
    let verdict = judge(&KnownCell::whole().observed(), &deployment(), &older).verdict;
    assert_eq!(verdict.status, ConditionStatus::False, "the binding is for another network than this Instance's");
}

/// Found by reading: two locations of one name, in namespaces of their own, were taken for one.
#[test]
fn a_location_counts_once_and_a_namesake_in_another_namespace_is_another() {
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
