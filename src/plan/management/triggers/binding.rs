//! Whom a change of a binding has look again.

use std::collections::{BTreeMap, BTreeSet};

use super::{HubWork, original};
use crate::{
    api::karmada::BindingSnapshot,
    plan::{
        Delta,
        management::observed::facts::{BindingFacts, Template},
    },
};

/// A binding concerns the policies of its own city, and those deployments that see another thing in it than before. Where
/// thousands of them share one companion, each writes into its binding: whoever was woken by all would look as often as
/// there are pairs of them.
pub(super) fn after_binding(delta: &Delta<'_, BindingFacts>) -> BTreeSet<HubWork> {
    let mut work = BTreeSet::new();
    if delta.old.zip(delta.new).is_some_and(|(old, new)| old.says_the_same(new)) {
        return work;
    }
    let namespace = || delta.namespace.to_owned();
    if !delta.old.zip(delta.new).is_some_and(|(old, new)| is_where_it_was(old, new)) {
        work.extend(delta.both().flat_map(BindingFacts::cities).map(|city| HubWork::Policy(namespace(), city)));
    }
    let bound = |facts: &BindingFacts| (facts.clusters.clone(), facts.terminating);
    let moved = delta.old.map(bound) != delta.new.map(bound);
    if let (true, Template::Deployment(name)) = (moved, Template::of_binding(delta.name)) {
        work.insert(HubWork::Asked(Some((namespace(), name))));
    }
    for name in parents_that_see_news(delta).into_iter().chain([delta.name]) {
        if let Template::Deployment(name) = Template::of_binding(name) {
            work.insert(original(delta.namespace, &name));
        }
    }
    if let Some(Template::Companion(data_ref)) = delta.newest().map(|binding| &binding.template) {
        let whole = concerns_all(delta);
        if whole || delta.both().any(BindingFacts::has_own_place) {
            work.insert(HubWork::Companion(namespace(), data_ref.clone()));
        } else {
            work.insert(HubWork::ClaimedCompanion(namespace(), data_ref.clone()));
        }
        work.extend(whole.then(|| HubWork::Users(namespace(), data_ref.clone())));
    }
    work
}

/// Whether a binding says the same as before of where its template goes, by whose word, and for whom. Thousands may need it:
/// nothing of it is copied to be compared.
fn is_where_it_was(old: &BindingFacts, new: &BindingFacts) -> bool {
    old.clusters == new.clusters
        && old.required_by == new.required_by
        && old.policy == new.policy
        && old.cluster_policy == new.cluster_policy
        && old.placement == new.placement
        && old.scheduled_by == new.scheduled_by
        && old.suspension == new.suspension
        && old.shows_dependencies() == new.shows_dependencies()
}

/// Whether something of a binding has changed that everybody sees who needs it, or is to need it.
fn concerns_all(delta: &Delta<'_, BindingFacts>) -> bool {
    let seen = |facts: &BindingFacts| (facts.clusters.clone(), facts.suspension.clone(), facts.terminating);
    delta.old.map(seen) != delta.new.map(seen)
}

/// The bindings that need this one and see something else in it than before: that they need it, where, or whether it is
/// there.
fn parents_that_see_news<'a>(delta: &Delta<'a, BindingFacts>) -> BTreeSet<&'a str> {
    let needed = |facts: Option<&'a BindingFacts>| -> BTreeMap<&'a str, &'a BindingSnapshot> {
        facts.into_iter().flat_map(|facts| &facts.required_by).map(|by| (by.name.as_str(), by)).collect()
    };
    let (before, now, all) = (needed(delta.old), needed(delta.new), concerns_all(delta));
    let applied = |facts: Option<&'a BindingFacts>, on: &str| facts.and_then(|facts| facts.applied.get(on));
    let clusters: BTreeSet<&str> = delta.both().flat_map(|facts| facts.applied.keys()).map(String::as_str).collect();
    let news_on = |on: &str| applied(delta.old, on) != applied(delta.new, on);
    let clusters: BTreeSet<&str> = clusters.into_iter().filter(|on| news_on(on)).collect();
    let is_on_one = |by: &BindingSnapshot| by.clusters.iter().any(|on| clusters.contains(on.name.as_str()));
    let names = before.keys().chain(now.keys()).copied();
    names
        .filter(|name| {
            let (old, new) = (before.get(name), now.get(name));
            all || old != new || new.is_some_and(|by| is_on_one(by))
        })
        .collect()
}
