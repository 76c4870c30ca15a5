//! Copies of Instances on the hub that pass from one cell to another.
//!
//! No cell writes what another holds: the hub's admission policy sees to it. A city that moved and a cell that was built
//! anew get the copies of what they run by management's word, which rests on Karmada's binding and not on what cells say.

use serde_json::json;

use crate::{
    api::{
        compute::Instance,
        meta::{annotation, label, manager},
    },
    plan::{
        Hub, Write,
        ownership::{self, Holder},
    },
};

/// Gives a copy to the cell that asks for it, when that is the cell to which Karmada has bound the copy's deployment;
/// `bound` is the uid of that one, absent while it is not known or not one alone.
///
/// That the cell asks is part of the proof: what Karmada noted of a cluster when it joined may be out of date, and then
/// nobody asks under that uid.
pub fn write(copy: &Instance, bound: Option<&str>) -> Option<Write<Hub>> {
    let bound = bound.filter(|bound| ownership::asking_cell(copy).is_some_and(|asking| asking == bound))?;
    if copy.metadata.deletion_timestamp.is_some() || ownership::holder(copy, bound) == Holder::ThisCell {
        return None;
    }
    let metadata = json!({
        "labels": { label::CELL_UID: bound },
        "annotations": { annotation::CLAIMED_BY_CELL: null },
    });
    Some(Write::amend(manager::PROJECTOR, json!({ "metadata": metadata }), copy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Op;

    fn copy(holder: &str, asking: Option<&str>, leaving: bool) -> Instance {
        let mut object = json!({
            "metadata": {
                "name": "web-0", "namespace": "ns-1", "uid": "c", "resourceVersion": "9",
                "labels": { label::CELL_UID: holder },
            },
            "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
        });
        if let Some(asking) = asking {
            object["metadata"]["annotations"] = json!({ annotation::CLAIMED_BY_CELL: asking });
        }
        if leaving {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_the_cell_that_the_deployment_is_bound_to_gets_a_copy_and_only_when_it_asks() {
        for (what, holder, asking, leaving, bound, expected) in [
            ("the city moved", "old", Some("new"), false, Some("new"), true),
            ("nobody asks", "old", None, false, Some("new"), false),
            ("another asks", "old", Some("thief"), false, Some("new"), false),
            ("the binding says otherwise", "old", Some("new"), false, Some("old"), false),
            ("where it is bound is not known", "old", Some("new"), false, None, false),
            ("it has it already", "new", Some("new"), false, Some("new"), false),
            ("it is on its way out", "old", Some("new"), true, Some("new"), false),
        ] {
            let write = write(&copy(holder, asking, leaving), bound);
            assert_eq!(write.is_some(), expected, "{what}");
            let Some(Op::Merge { body, .. }) = write.map(|write| write.op) else { continue };
            assert_eq!(body["metadata"]["labels"], json!({ label::CELL_UID: "new" }));
            assert_eq!(body["metadata"]["annotations"], json!({ annotation::CLAIMED_BY_CELL: null }));
            assert_eq!(body["metadata"]["resourceVersion"], "9", "in exactly the version that was judged");
        }
    }
}
