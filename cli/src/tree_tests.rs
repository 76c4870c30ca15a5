use super::*;
use crate::inventory_samples::inventory;

#[test]
fn tree_has_all_objects_by_owner_and_derivation() {
    let tree = Tree::of(&inventory("hunter22"));
    let expected = "\
Workload demo/hello  project shop
└─ WorkloadDeployment hello-edge-dfw  0/1 NotApplied
   ├─ ConfigMap hello  source, resourceVersion 812
   ├─ Instance hello-edge-dfw-0  Ready=False NotApplied
   ├─ hub WorkloadDeployment ns-1/hello-edge-dfw
   │  ├─ PropagationPolicy city-dfw
   │  ├─ ResourceBinding hello-edge-dfw-workloaddeployment  -> cell-dfw
   │  │  └─ Work karmada-es-cell-dfw/hello-1  Applied
   │  └─ ConfigMap hello  <- demo/hello (resourceVersion 812)
   │     └─ ResourceBinding hello-configmap  -> cell-dfw
   │        └─ Work karmada-es-cell-dfw/hello-2  Applied
   └─ cell-dfw WorkloadDeployment ns-1/hello-edge-dfw
      ├─ NetworkBinding hello-edge-dfw-net-0
      │  └─ SubnetClaim claim-0  Ready=False Pending
      ├─ ConfigMap hello
      └─ Instance hello-edge-dfw-0  Ready=False NotApplied
         └─ project ResourceClaim instance-hello-edge-dfw-0  Granted
Of no deployment of this Workload:
└─ hub Instance ns-1/gone-edge-dfw-0
18 objects on 3 control planes · 1 without an owner
? hub: Instances: no answer: bad hunter22
";
    assert_eq!(tree.text(Screen::PLAIN), expected);
}

#[test]
fn tree_marks_what_is_terminating() {
    let mut inventory = inventory("hunter22");
    let copy = inventory.objects.iter_mut().find(|entry| entry.uid() == "d-hub").unwrap();
    copy.object["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z".into();
    let text = Tree::of(&inventory).text(Screen::PLAIN);
    assert!(text.contains("hub WorkloadDeployment ns-1/hello-edge-dfw  terminating\n"), "{text}");
}
