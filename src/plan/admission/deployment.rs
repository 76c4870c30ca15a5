//! Rules of WorkloadDeployments in a project: who may write what the operator goes by, and whose part one may claim to be.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use super::{
    Bound,
    access::User,
    field::{Errors, FieldError, Path},
    placements, template,
};
use crate::{
    api::{compute::WorkloadDeployment, meta::annotation, names::CityCode},
    plan::ownership,
};

/// Annotations that decide what is copied where: to write one is a power of its own (karmada-behaviour, fact 19).
pub const POWERS: [&str; 3] =
    [annotation::EXPECTED_REFERENCED_DATA, annotation::REFERENCED_DATA_ERROR, annotation::FEDERATION_NAMESPACE];

/// Most Workloads that a message names.
const MAX_REF_NAMED: usize = 3;

/// Who this operator is on a control plane, as that one knows it.
///
/// A name by itself says little: who may make namespaces and ServiceAccounts in his project can make one of the operator's
/// name there. The uid is of one account alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Name.
    pub username: String,
    /// Unique id; empty where the server gives none, as to who comes with a certificate.
    pub uid: String,
}

impl Own {
    /// Whether this is the operator: a server names one account alike, whoever asks it.
    pub fn is(&self, user: &User) -> bool {
        self.has_name_of(user) && self.uid == user.uid
    }

    /// Whether this is the operator, or somebody of its name: an account that was made anew has another uid.
    pub fn has_name_of(&self, user: &User) -> bool {
        self.username == user.username
    }
}

/// Who this operator is in the project, and who else may act in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// As whom this operator writes there, or why that could not be found out.
    pub own: Result<Own, String>,
    /// Names that the configuration gives the same powers.
    pub resolvers: BTreeSet<String>,
}

impl Identities {
    /// Whether this is the operator itself. While nobody knows who that is, whoever may act in its place counts as it.
    fn is_own(&self, user: &User) -> Result<bool, String> {
        match &self.own {
            Ok(own) => Ok(own.is(user)),
            Err(_) if self.resolvers.contains(&user.username) => Ok(true),
            Err(why) => Err(why.clone()),
        }
    }

    /// Whether the user may write the annotations of [`POWERS`]. An error when that depends on who we are, and nobody knows.
    fn may_write(&self, user: &User) -> Result<bool, String> {
        if user.is_master() || self.resolvers.contains(&user.username) {
            return Ok(true);
        }
        self.own.as_ref().map(|own| own.is(user)).map_err(Clone::clone)
    }
}

/// The annotations of [`POWERS`] that a write adds, changes or removes.
pub fn powers_used(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<&'static str> {
    let of = |deployment: Option<&WorkloadDeployment>, key: &str| {
        deployment.and_then(|deployment| deployment.annotations().get(key).cloned())
    };
    POWERS.into_iter().filter(|key| of(Some(new), key) != of(old, key)).collect()
}

/// Refuses the annotations of [`POWERS`] to whoever may not write them.
pub fn powers(
    new: &WorkloadDeployment,
    old: Option<&WorkloadDeployment>,
    user: &User,
    identities: &Identities,
) -> Vec<FieldError> {
    let path = Path::new("metadata").child("annotations");
    let refusal = |key: &str| match identities.may_write(user) {
        Ok(true) => None,
        Ok(false) => Some(FieldError::forbidden(
            &path.key(key),
            format!(
                "{:?} may not add, change or remove it: it decides what is copied to the cells, and the operator alone writes it",
                user.username
            ),
        )),
        Err(why) => Some(FieldError::internal(
            &path.key(key),
            format!("whether {:?} may write it could not be found out: {why}; try again", user.username),
        )),
    };
    powers_used(new, old).into_iter().filter_map(refusal).collect()
}

/// Whether this is the operator's own write of a part of the Workload that controls it: then the Workload was reviewed
/// when its author wrote it, and everything else is reviewed like a Workload.
///
/// # Errors
/// When that depends on who we are, and nobody knows: why.
pub fn is_part_of_reviewed_workload(
    deployment: &WorkloadDeployment,
    user: &User,
    identities: &Identities,
) -> Result<bool, String> {
    let controlled = ownership::controller_of(deployment)
        .is_some_and(|owner| owner.kind == "Workload" && owner.uid == deployment.spec.workload_ref.uid);
    if controlled { identities.is_own(user) } else { Ok(false) }
}

/// The answer to a write that would be refused to anybody but us, while nobody knows who we are.
pub fn nobody_knows(user: &User, why: &str) -> FieldError {
    let why = format!(
        "whether {:?} is this operator, which may write it, could not be found out: {why}; try again",
        user.username
    );
    FieldError::internal(&Path::new("spec"), why)
}

/// What the rules say of a deployment by itself, as far as an update adds it: a template is held to them wherever it stands.
pub fn template(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<FieldError> {
    let path = Path::new("spec").child("template");
    let violations = |deployment: &WorkloadDeployment| {
        let mut errors = Errors::default();
        let namespace = deployment.namespace().unwrap_or_default();
        template::validate(&path, &deployment.spec.template, &namespace, &mut errors);
        errors
    };
    // What has not changed adds nothing.
    if old.is_some_and(|old| old.spec.template == new.spec.template) {
        return Vec::new();
    }
    let errors = violations(new);
    let errors = match old {
        Some(old) => errors.added_to(&violations(old)),
        None => errors,
    };
    errors.into_vec(&path)
}

/// Whether a write says anew in which city the deployment is.
pub fn names_city(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> bool {
    old.is_none_or(|old| {
        let city = |deployment: &WorkloadDeployment| CityCode::parse(&deployment.spec.city_code);
        old.spec.city_code != new.spec.city_code && (city(new).is_err() || city(old) != city(new))
    })
}

/// Refuses a city that is not open to the project.
pub fn city(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>, bound: &Bound) -> Option<FieldError> {
    let path = Path::new("spec").child("cityCode");
    names_city(new, old).then(|| placements::one_city(&path, &new.spec.city_code, bound)).flatten()
}

/// Whether a write says anew which Workload the deployment is a part of.
pub fn names_workload(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> bool {
    old.is_none_or(|old| old.spec.workload_ref != new.spec.workload_ref)
}

/// Refuses a deployment that claims to be a part of one Workload under the uid of another. `workloads`: name -> uid of
/// those in its namespace, or why they could not be read. One that is not there may be claimed: it harms nobody.
pub fn workload_ref(
    new: &WorkloadDeployment,
    old: Option<&WorkloadDeployment>,
    workloads: &Result<BTreeMap<String, String>, String>,
) -> Option<FieldError> {
    if !names_workload(new, old) {
        return None;
    }
    let path = Path::new("spec").child("workloadRef").child("uid");
    let given = &new.spec.workload_ref;
    let workloads = match workloads {
        Ok(workloads) => workloads,
        Err(why) => {
            let why = format!("the Workloads of the namespace could not be read: {why}; try again");
            return Some(FieldError::internal(&path, why));
        }
    };
    let others: Vec<&str> = workloads
        .iter()
        .filter(|(name, uid)| **uid == given.uid && **name != given.name)
        .map(|(name, _)| name.as_str())
        .take(MAX_REF_NAMED)
        .collect();
    let why = if let Some(other) = others.first() {
        format!("this is the uid of the Workload {other:?}, not of {:?}", given.name)
    } else {
        workloads.get(&given.name).filter(|uid| **uid != given.uid)?;
        format!("the Workload {:?} has another uid", given.name)
    };
    Some(FieldError::invalid(&path, &given.uid, why))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(annotations: &Value, reference: (&str, &str), owner: Option<&str>) -> WorkloadDeployment {
        let owners = owner.map(|uid| {
            json!([{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "name": "web", "uid": uid, "controller": true }])
        });
        serde_json::from_value(json!({
            "metadata": { "name": "web-main-dfw", "namespace": "shop", "annotations": annotations, "ownerReferences": owners },
            "spec": {
                "workloadRef": { "name": reference.0, "uid": reference.1 }, "placementName": "main", "cityCode": "dfw",
                "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap()
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User { username: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
    }

    fn identities() -> Identities {
        let own = Own { username: "operator".into(), uid: String::new() };
        Identities { own: Ok(own), resolvers: ["resolver".to_owned()].into() }
    }

    /// Found by reading: a tenant who made a ServiceAccount of the operator's name in his project was the operator there.
    #[test]
    fn who_has_but_the_name_of_the_operator_is_not_the_operator() {
        let named = |uid: &str| User { uid: uid.into(), ..user("operator", &[]) };
        let own = |uid: &str| Own { username: "operator".into(), uid: uid.into() };
        for (ours, theirs, expected) in [
            ("u", "u", true),
            ("u", "of-a-tenant", false),
            ("u", "", false),
            ("", "", true),
            ("", "of-a-tenant", false),
        ] {
            let identities = Identities { own: Ok(own(ours)), resolvers: BTreeSet::new() };
            let part = deployment(&json!({}), ("web", "u"), Some("u"));
            let is_part = is_part_of_reviewed_workload(&part, &named(theirs), &identities);
            assert_eq!(is_part, Ok(expected), "{ours:?} {theirs:?}");
            let powerful = deployment(&json!({ annotation::EXPECTED_REFERENCED_DATA: "[]" }), ("web", "u"), Some("u"));
            assert_eq!(powers(&powerful, None, &named(theirs), &identities).is_empty(), expected);
        }
    }

    #[test]
    fn who_may_write_what_decides_where_data_goes() {
        let with = |value: Value| deployment(&value, ("web", "u"), None);
        let key = annotation::EXPECTED_REFERENCED_DATA;
        let (none, one, other) = (with(json!({})), with(json!({ key: "[]" })), with(json!({ key: "[\"Secret/x\"]" })));
        let others = with(json!({ key: "[]", "example.com/note": "x" }));
        let both = with(json!({ annotation::FEDERATION_NAMESPACE: "ns-1", annotation::REFERENCED_DATA_ERROR: "{}" }));
        for (new, old, errors) in [
            (&one, None, 1),
            (&one, Some(&none), 1),
            (&none, Some(&one), 1),
            (&other, Some(&one), 1),
            (&one, Some(&one), 0),
            (&others, Some(&one), 0),
            (&none, None, 0),
            (&both, Some(&none), 2),
        ] {
            for (user, refused) in [
                (user("tenant", &["system:authenticated"]), errors),
                (user("operator", &[]), 0),
                (user("resolver", &[]), 0),
                (user("admin", &["system:masters"]), 0),
                (user("", &[]), errors),
            ] {
                let found = powers(new, old, &user, &identities());
                assert_eq!(found.len(), refused, "{user:?}: {}", super::super::field::joined(&found));
                assert!(found.iter().all(|error| error.to_string().contains(&format!("{:?}", user.username))));
            }
        }
        let found = powers(&one, None, &user("tenant", &[]), &identities());
        assert!(found[0].to_string().starts_with(&format!("metadata.annotations[{key}]: Forbidden: ")), "{}", found[0]);
    }

    #[test]
    fn while_nobody_knows_who_we_are_only_the_named_may_write() {
        let unknown = Identities { own: Err("no answer".into()), ..identities() };
        let one = deployment(&json!({ annotation::EXPECTED_REFERENCED_DATA: "[]" }), ("web", "u"), None);
        assert_eq!(powers(&one, None, &user("resolver", &[]), &unknown), []);
        let found = powers(&one, None, &user("operator", &[]), &unknown);
        assert_eq!(found[0].kind, super::super::field::ErrorKind::Internal);
    }

    #[test]
    fn only_our_own_write_under_a_controlling_workload_goes_unreviewed() {
        for (owner, name, expected) in [
            (Some("u"), "operator", true),
            (Some("u"), "resolver", false),
            (Some("u"), "tenant", false),
            (Some("v"), "operator", false),
            (None, "operator", false),
        ] {
            let deployment = deployment(&json!({}), ("web", "u"), owner);
            let is_part = is_part_of_reviewed_workload(&deployment, &user(name, &[]), &identities());
            assert_eq!(is_part, Ok(expected), "{owner:?} {name}");
        }
    }

    #[test]
    fn while_nobody_knows_who_we_are_the_named_stand_in_for_us() {
        let unknown = Identities { own: Err("no answer".into()), ..identities() };
        for (owner, name, expected) in [
            (Some("u"), "resolver", Ok(true)),
            (Some("v"), "resolver", Ok(false)),
            (Some("u"), "tenant", Err("no answer".to_owned())),
            (None, "tenant", Ok(false)),
        ] {
            let deployment = deployment(&json!({}), ("web", "u"), owner);
            let is_part = is_part_of_reviewed_workload(&deployment, &user(name, &[]), &unknown);
            assert_eq!(is_part, expected, "{owner:?} {name}");
        }
    }

    #[test]
    fn a_deployment_is_a_part_of_the_workload_that_it_names() {
        let known = Ok([("web", "u"), ("db", "v")].map(|(name, uid)| (name.to_owned(), uid.to_owned())).into());
        let of = |reference| deployment(&json!({}), reference, None);
        for (reference, refused) in [
            (("web", "u"), false),
            (("gone", "w"), false),
            (("web", "w"), true),
            (("web", "v"), true),
            (("gone", "u"), true),
        ] {
            let error = workload_ref(&of(reference), None, &known);
            assert_eq!(error.is_some(), refused, "{reference:?}: {error:?}");
            let known = ["\"u\"", "\"v\""];
            let tells = |text: &str| known.iter().any(|uid| !uid.contains(reference.1) && text.contains(uid));
            assert!(error.is_none_or(|error| error.field == "spec.workloadRef.uid" && !tells(&error.to_string())));
        }
        assert_eq!(workload_ref(&of(("web", "v")), Some(&of(("web", "v"))), &known), None);
        assert!(workload_ref(&of(("web", "u")), None, &Err("no answer".into())).is_some());
        assert_eq!(workload_ref(&of(("web", "u")), Some(&of(("web", "u"))), &Err("no answer".into())), None);
    }
}
