//! The referenced data on the model's planes, in the form that caches keep.

use std::collections::BTreeMap;

use compute_operator::{
    api::{
        compute::WorkloadDeployment,
        referenced::DataRef,
        user_list::{Listed, UserName},
    },
    plan::{
        Kind,
        management::{
            observed::facts::CompanionFacts,
            referenced_data::{
                resolve::Source,
                users::{HubCopy, expects},
            },
        },
    },
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    model::{Key, Model},
    world::{HUB_NS, NS, data_refs},
};

/// Returns the state of each source in the project.
pub(super) fn sources(project: &Model) -> BTreeMap<DataRef, Source> {
    let source = |data_ref: &DataRef| match project.objects.contains_key(&(
        data_ref.kind.into(),
        NS.into(),
        data_ref.name.clone(),
    )) {
        true => Source::Present { size: 1 },
        false => Source::Absent,
    };
    data_refs().into_iter().map(|data_ref| (data_ref.clone(), source(&data_ref))).collect()
}

/// Returns the cached facts of a companion.
pub(super) fn companion_facts(hub: &Model, data_ref: &DataRef) -> Option<CompanionFacts> {
    let object = hub.raw(data_ref.kind.into(), HUB_NS, &data_ref.name)?;
    Some(CompanionFacts::of(&serde_json::from_value(object["metadata"].clone()).unwrap()))
}

/// Returns the copies on the hub, with their state for a companion. The crowd's copies expect the first one.
pub(super) fn hub_copies(hub: &Model, data_ref: &DataRef) -> BTreeMap<String, HubCopy> {
    let copies = hub.all::<WorkloadDeployment>(Kind::WorkloadDeployment).into_iter();
    let state = |copy: &WorkloadDeployment| if expects(copy, data_ref) { HubCopy::Expects } else { HubCopy::Exists };
    let copies = copies.map(|copy| (copy.name_any(), state(&copy)));
    let crowd = hub.crowd.iter().filter(|_| *data_ref == data_refs()[0]);
    copies.chain(crowd.map(|name| (name.clone(), HubCopy::Expects))).collect()
}

/// Updates the copies of the crowd. A copy is added once its deployment uses the companion, and removed with the deployment.
pub(super) fn crowd_follows(project: &Model, hub: &mut Model) {
    hub.crowd.retain(|name| project.crowd.contains(name));
    let Some(facts) = companion_facts(hub, &data_refs()[0]) else { return };
    let is_user = |name: &&String| facts.listed(&UserName::new(NS, name)) != Listed::No;
    hub.crowd.extend(project.crowd.iter().filter(is_user).cloned());
}

/// Replaces spec, labels and annotations of a copy on a member, as Karmada does.
pub(super) fn replace(
    cell: &mut Model,
    key: &Key,
    spec: &Value,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) {
    cell.put_spec(key, spec);
    cell.set_metadata(key, &json!({ "labels": labels, "annotations": annotations }));
}
