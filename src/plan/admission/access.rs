//! Whether whoever writes a template may use what it refers to: which reviews that takes, and what their answers mean.
//!
//! The operator reads ConfigMaps and Secrets with its own rights. So that nobody reads through a Workload what he may not
//! read himself, the API server of the project is asked about each, in the name of whoever sent the request.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::field::{ErrorKind, FieldError, Path};
use crate::{
    api::compute::InstanceTemplateSpec,
    plan::{
        limits::{MAX_NETWORKS, MAX_REFERENCES},
        references::uses,
    },
};

/// The group that Kubernetes lets do anything.
const MASTERS: &str = "system:masters";

/// Most reviews that one request may take: an object that needs more breaks a rule of its own.
pub const MAX_REVIEWS: usize = MAX_REFERENCES + MAX_NETWORKS;

/// Most fields that are named for one access: one name can stand in very many.
const MAX_FIELDS: usize = 8;

/// Longest reason of an authorizer's that is passed on, in characters.
const MAX_REASON: usize = 512;

/// Who sent a request, as the API server authenticated it. All of it goes into a review: an authorizer may decide by each.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct User {
    /// Name.
    pub username: String,
    /// Unique id.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else the authenticator knows; with Milo, the project.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whether it is in the group that may do anything.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// What is asked about: one verb on one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    /// What a person calls it.
    kind: &'static str,
    namespace: String,
    name: String,
}

impl Access {
    fn network(namespace: &str, name: &str) -> Self {
        Self {
            verb: "use",
            group: "networking.datumapis.com",
            version: "v1alpha",
            resource: "networks",
            kind: "Network",
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The SubjectAccessReview that asks whether `user` has it.
    pub fn review(&self, user: &User) -> Value {
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups,
                "extra": user.extra,
                "resourceAttributes": {
                    "namespace": self.namespace, "verb": self.verb, "group": self.group, "version": self.version,
                    "resource": self.resource, "name": self.name,
                },
            },
        })
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.verb, self.kind, self.name)
    }
}

/// What came of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The user has the access.
    Allowed,
    /// The user has it not; in the authorizer's words, when it gave any.
    Denied(String),
    /// Nobody could say.
    Failed(String),
}

impl Answer {
    /// Reads the answer of an API server. Only a plain yes is a yes.
    pub fn read(review: &Value) -> Self {
        let status = &review["status"];
        let text = |key: &str| status[key].as_str().unwrap_or_default().chars().take(MAX_REASON).collect::<String>();
        match status["allowed"].as_bool() {
            Some(true) if status["denied"].as_bool() != Some(true) => Self::Allowed,
            Some(_) => match (text("reason"), text("evaluationError")) {
                // An authorizer that failed has not looked at everything: this is no denial for good.
                (reason, error) if reason.is_empty() && !error.is_empty() => Self::Failed(error),
                (reason, _) => Self::Denied(reason),
            },
            None => Self::Failed("the answer is no SubjectAccessReview".into()),
        }
    }
}

/// The accesses to ask about, each once, with the first fields that need it.
pub type Asked = BTreeMap<Access, BTreeSet<String>>;

/// What a template needs that its old state did not. `path` is the template's own.
///
/// # Errors
/// When it is more than anybody is asked about: then nobody is asked about any of it.
pub fn asked(
    path: &Path,
    new: &InstanceTemplateSpec,
    old: Option<&InstanceTemplateSpec>,
    namespace: &str,
) -> Result<Asked, FieldError> {
    let mut asked = needed(path, new, namespace);
    let before = old.map(|old| needed(path, old, namespace)).unwrap_or_default();
    asked.retain(|access, _| !before.contains_key(access));
    if asked.len() > MAX_REVIEWS {
        let detail = "refer to fewer ConfigMaps, Secrets and networks";
        return Err(FieldError::too_many(&path.child("spec"), asked.len(), MAX_REVIEWS, detail));
    }
    Ok(asked)
}

fn needed(path: &Path, template: &InstanceTemplateSpec, namespace: &str) -> Asked {
    let mut asked = Asked::new();
    let path = path.child("spec");
    let mut add = |access: Access, field: Path| {
        // Without a name it is refused for that.
        if !access.name.is_empty() {
            let fields = asked.entry(access).or_default();
            if fields.len() < MAX_FIELDS {
                fields.insert(field.to_string());
            }
        }
    };
    for (index, interface) in template.spec.network_interfaces.iter().enumerate() {
        let field = path.child("networkInterfaces").index(index).child("network");
        add(Access::network(namespace, &interface.network.name), field);
    }
    for used in uses(&template.spec) {
        let access = Access {
            verb: "get",
            group: "",
            version: "v1",
            resource: used.data_ref.kind.plural(),
            kind: used.data_ref.kind.as_str(),
            namespace: namespace.into(),
            name: used.data_ref.name,
        };
        add(access, path.child(&used.field));
    }
    asked
}

/// The errors that follow from the answers. What has no answer was not allowed.
pub fn refusals(asked: &Asked, answers: &BTreeMap<Access, Answer>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (access, fields) in asked {
        let (kind, detail) = match answers.get(access) {
            Some(Answer::Allowed) => continue,
            Some(Answer::Denied(why)) => {
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                let text = match access.verb {
                    "use" => format!("permission to use the network {:?} denied{why}", access.name),
                    _ => format!("permission to {access} denied{why}"),
                };
                (ErrorKind::Forbidden, text)
            }
            Some(Answer::Failed(why)) => {
                (ErrorKind::Internal, format!("whether you may {access} could not be found out: {why}; try again"))
            }
            None => (ErrorKind::Internal, format!("whether you may {access} was not asked; try again")),
        };
        let error = |field: &String| match kind {
            ErrorKind::Forbidden => FieldError::forbidden(&Path::new(field), detail.clone()),
            _ => FieldError::internal(&Path::new(field), detail.clone()),
        };
        errors.extend(fields.iter().map(error));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(network: &str, configs: &[&str], secrets: &[&str]) -> InstanceTemplateSpec {
        let from = |key: &str, names: &[&str]| -> Vec<Value> {
            names.iter().map(|name| json!({ key: { "name": name, "optional": true } })).collect()
        };
        let sources = [from("configMapRef", configs), from("secretRef", secrets)].concat();
        serde_json::from_value(json!({ "spec": {
            "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                { "name": "a", "image": "i", "envFrom": sources },
            ] } },
            "networkInterfaces": [{ "network": { "name": network, "namespace": "ignored" } }],
        } }))
        .unwrap()
    }

    fn shown(asked: &Asked) -> Vec<(String, usize)> {
        asked.iter().map(|(access, fields)| (access.to_string(), fields.len())).collect()
    }

    #[test]
    fn equal_accesses_are_asked_about_once_and_only_new_ones() {
        let path = &Path::new("spec").child("template");
        let new = template("default", &["a", "a", ""], &["a", "b"]);
        let all = asked(path, &new, None, "shop").unwrap();
        assert_eq!(
            shown(&all),
            [
                ("get ConfigMap \"a\"".to_owned(), 2),
                ("get Secret \"a\"".to_owned(), 1),
                ("get Secret \"b\"".to_owned(), 1),
                ("use Network \"default\"".to_owned(), 1),
            ]
        );
        let old = template("default", &["a"], &["b"]);
        assert_eq!(shown(&asked(path, &new, Some(&old), "shop").unwrap()), [("get Secret \"a\"".to_owned(), 1)]);
        assert!(asked(path, &new, Some(&new), "shop").unwrap().is_empty());
    }

    #[test]
    fn more_than_may_be_asked_about_is_refused_without_asking() {
        let path = &Path::new("spec").child("template");
        let names: Vec<String> = (0..MAX_REVIEWS).map(|n| format!("c-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // With the network it is one more.
        let error = asked(path, &template("default", &names, &[]), None, "shop").unwrap_err();
        assert_eq!((error.kind, error.field.as_str()), (ErrorKind::TooMany, "spec.template.spec"));
        let old = template("default", &[], &[]);
        assert_eq!(asked(path, &template("default", &names, &[]), Some(&old), "shop").unwrap().len(), MAX_REVIEWS);
        // One object in very many fields.
        let all = asked(path, &template("default", &["a"; 1000], &[]), None, "shop").unwrap();
        assert_eq!(shown(&all)[0], ("get ConfigMap \"a\"".to_owned(), MAX_FIELDS));
    }

    #[test]
    fn a_review_carries_all_that_is_known_of_the_user() {
        let user: User = serde_json::from_value(json!({
            "username": "ada", "uid": "u-1", "groups": ["dev"],
            "extra": { "iam.miloapis.com/parent-name": ["shop"], "example.com/x": ["1", "2"] },
        }))
        .unwrap();
        let review = Access::network("ns", "default").review(&user);
        assert_eq!(
            review["spec"],
            json!({
                "user": "ada", "uid": "u-1", "groups": ["dev"],
                "extra": { "iam.miloapis.com/parent-name": ["shop"], "example.com/x": ["1", "2"] },
                "resourceAttributes": { "namespace": "ns", "verb": "use", "group": "networking.datumapis.com",
                    "version": "v1alpha", "resource": "networks", "name": "default" },
            })
        );
    }

    #[test]
    fn only_a_plain_yes_is_a_yes() {
        for (status, expected) in [
            (json!({ "allowed": true }), Answer::Allowed),
            (json!({ "allowed": true, "denied": true }), Answer::Denied(String::new())),
            (json!({ "allowed": false, "reason": "no role" }), Answer::Denied("no role".into())),
            (json!({ "allowed": false, "evaluationError": "away" }), Answer::Failed("away".into())),
            (json!({}), Answer::Failed("the answer is no SubjectAccessReview".into())),
            (json!({ "allowed": "true" }), Answer::Failed("the answer is no SubjectAccessReview".into())),
        ] {
            assert_eq!(Answer::read(&json!({ "status": status })), expected, "{status}");
        }
    }

    #[test]
    fn each_field_is_told_what_it_lacks() {
        let path = &Path::new("spec").child("template");
        let asked = asked(path, &template("default", &["a"], &["b", "c"]), None, "shop").unwrap();
        let answer = |access: &Access| match access.name.as_str() {
            "a" => Some(Answer::Allowed),
            "b" => Some(Answer::Failed("no answer".into())),
            "c" => None,
            _ => Some(Answer::Denied("no role".into())),
        };
        let answers = asked.keys().filter_map(|access| Some((access.clone(), answer(access)?))).collect();
        let found: Vec<String> = refusals(&asked, &answers).iter().map(ToString::to_string).collect();
        let from = "spec.template.spec.runtime.sandbox.containers[0].envFrom";
        assert_eq!(
            found,
            [
                format!("{from}[1].secretRef.name: Internal error: whether you may get Secret \"b\" could not be found out: no answer; try again"),
                format!("{from}[2].secretRef.name: Internal error: whether you may get Secret \"c\" was not asked; try again"),
                "spec.template.spec.networkInterfaces[0].network: Forbidden: permission to use the network \"default\" denied: no role".to_owned(),
            ]
        );
    }
}
