//! What the model's planes have of referenced data, as caches would keep it.

use std::collections::BTreeMap;

use compute_operator::{
    api::referenced::DataRef,
    plan::management::{facts::CompanionFacts, resolve::Source},
};

use crate::{
    model::Model,
    world::{HUB_NS, NS, data_refs},
};

/// What the project has of everything that can be referred to.
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

/// What is kept of a companion.
pub(super) fn companion_facts(hub: &Model, data_ref: &DataRef) -> Option<CompanionFacts> {
    let object = hub.raw(data_ref.kind.into(), HUB_NS, &data_ref.name)?;
    Some(CompanionFacts::of(&serde_json::from_value(object["metadata"].clone()).unwrap()))
}
