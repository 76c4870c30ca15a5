use super::*;
use crate::inventory_samples::inventory;

#[test]
fn timeline_has_changes_and_events_of_all_planes_in_their_order() {
    let mut inventory = inventory("hunter22");
    let wanted = ["w", "d", "d-hub"];
    inventory.objects.retain(|entry| wanted.contains(&entry.uid()));
    inventory.events[0].object["note"] = "it waits".into();
    inventory.objects[1].object["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:50Z".into();
    let timeline = Timeline::of(&inventory, None);
    let expected = "\
TIME      PLANE    OBJECT                             WHO                          WHAT
11:58:00  project  Workload/hello                     kubectl                      created spec.template
11:58:00  project  WorkloadDeployment/hello-edge-dfw  kubectl                      created spec.template
11:58:00  hub      WorkloadDeployment/hello-edge-dfw  kubectl                      created spec.template
11:59:00  project  Workload/hello                     compute-operator-deployment  applied status.conditions, status.replicas
11:59:00  project  WorkloadDeployment/hello-edge-dfw  compute-operator-deployment  applied status.conditions, status.replicas
11:59:00  hub      WorkloadDeployment/hello-edge-dfw  compute-operator-deployment  applied status.conditions, status.replicas
11:59:40  project  WorkloadDeployment/hello-edge-dfw  compute-operator             NotApplied: it waits (3 times)
11:59:50  project  WorkloadDeployment/hello-edge-dfw  –                            deletion requested
? hub: Instances: no answer: bad hunter22
";
    assert_eq!(timeline.text(Screen::PLAIN), expected);
    let recent = Timeline::of(&inventory, Some(Duration::from_secs(30)));
    assert_eq!(recent.rows.len(), 2, "{recent:?}");
}

#[test]
fn event_of_the_core_group_is_read_too() {
    let mut inventory = inventory("hunter22");
    inventory.objects.clear();
    inventory.events[0].object = serde_json::json!({
        "involvedObject": { "kind": "Instance", "name": "a-0" }, "reason": "Started", "message": "it runs",
        "source": { "component": "provider" }, "lastTimestamp": "2025-12-31T11:59:50Z", "count": 1,
    });
    let rows = Timeline::of(&inventory, None).rows;
    assert_eq!((rows.len(), &*rows[0].who, &*rows[0].what), (1, "provider", "Started: it runs"));
    inventory.events[0].object["lastTimestamp"] = serde_json::Value::Null;
    assert!(Timeline::of(&inventory, None).rows.is_empty(), "an Event without a time has no place");
}

#[test]
fn fields_of_data_are_not_named() {
    let fields = serde_json::json!({ "f:data": { "f:password": {} }, "f:metadata": { "f:labels": { "f:a": {} } } });
    assert_eq!(paths(&fields), ["data", "metadata.labels"]);
}
