//! What the model's planes have of referenced data, as caches would keep it.

use std::collections::BTreeMap;

use compute_operator::{
    api::referenced::Token,
    plan::management::{facts::CompanionFacts, resolve::Source},
};

use crate::{
    model::Model,
    world::{HUB_NS, NS, tokens},
};

/// What the project has of everything that can be referred to.
pub(super) fn sources(project: &Model) -> BTreeMap<Token, Source> {
    let source = |token: &Token| match project.objects.contains_key(&(token.kind.into(), NS.into(), token.name.clone()))
    {
        true => Source::Present { size: 1 },
        false => Source::Absent,
    };
    tokens().into_iter().map(|token| (token.clone(), source(&token))).collect()
}

/// What is kept of a companion.
pub(super) fn companion_facts(hub: &Model, token: &Token) -> Option<CompanionFacts> {
    let object = hub.raw(token.kind.into(), HUB_NS, &token.name)?;
    Some(CompanionFacts::of(&serde_json::from_value(object["metadata"].clone()).unwrap()))
}
