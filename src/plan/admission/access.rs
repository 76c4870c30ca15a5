//! Authorization for the references of a template: the reviews to send, and the meaning of their answers.
//!
//! The operator reads ConfigMaps and Secrets with its own permissions. A user must not read through a Workload what the user may
//! not read directly. So the project's API server reviews each reference in the name of the user.

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

/// The group to which Kubernetes permits everything.
const MASTERS: &str = "system:masters";

/// Most reviews of one request. An object that needs more breaks another rule.
pub const MAX_REVIEWS: usize = MAX_REFERENCES + MAX_NETWORKS;

/// Most fields reported for one access, because many fields may have the same name.
const MAX_FIELDS: usize = 8;

/// Longest authorizer's reason that is passed on, in characters.
const MAX_REASON: usize = 512;

/// The user of a request, as the API server authenticated it. A review carries all of it, because an authorizer may use any part.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct User {
    /// Name.
    pub username: String,
    /// Unique id.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Other attributes from the authenticator; with Milo, the project.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// True if the user is in the group with every permission.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// The subject of a review: one verb on one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    /// Name of the kind in messages.
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

    /// Returns the SubjectAccessReview for this access of `user`.
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

/// Result of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The user has the access.
    Allowed,
    /// The user does not have the access; with the authorizer's reason, if it gave one.
    Denied(String),
    /// The review failed.
    Failed(String),
}

impl Answer {
    /// Parses the answer of an API server. Only an explicit permission counts.
    pub fn read(review: &Value) -> Self {
        let status = &review["status"];
        let text = |key: &str| status[key].as_str().unwrap_or_default().chars().take(MAX_REASON).collect::<String>();
        match status["allowed"].as_bool() {
            Some(true) if status["denied"].as_bool() != Some(true) => Self::Allowed,
            Some(_) => match (text("reason"), text("evaluationError")) {
                // An authorizer that failed has not checked everything, so this is no final denial.
                (reason, error) if reason.is_empty() && !error.is_empty() => Self::Failed(error),
                (reason, _) => Self::Denied(reason),
            },
            None => Self::Failed("the answer is not a SubjectAccessReview".into()),
        }
    }
}

/// The accesses to review, each once, with the first fields that need it.
pub type Asked = BTreeMap<Access, BTreeSet<String>>;

/// Returns the accesses that a template needs and its old state did not. `path` is the template's own.
///
/// # Errors
/// If they exceed [`MAX_REVIEWS`]: then none is reviewed.
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
        // A reference without a name is refused by another rule.
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

/// Returns the errors that follow from the answers. An access without an answer is not allowed.
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
                (ErrorKind::Internal, format!("permission to {access} could not be checked: {why}; try again"))
            }
            None => (ErrorKind::Internal, format!("permission to {access} was not checked; try again")),
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
    fn new_access_is_reviewed_once() {
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
    fn accesses_over_the_limit_are_refused_without_review() {
        let path = &Path::new("spec").child("template");
        let names: Vec<String> = (0..MAX_REVIEWS).map(|n| format!("c-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // With the network it is one more.
        let error = asked(path, &template("default", &names, &[]), None, "shop").unwrap_err();
        assert_eq!((error.kind, error.field.as_str()), (ErrorKind::TooMany, "spec.template.spec"));
        let old = template("default", &[], &[]);
        assert_eq!(asked(path, &template("default", &names, &[]), Some(&old), "shop").unwrap().len(), MAX_REVIEWS);
        // One object in many fields.
        let all = asked(path, &template("default", &["a"; 1000], &[]), None, "shop").unwrap();
        assert_eq!(shown(&all)[0], ("get ConfigMap \"a\"".to_owned(), MAX_FIELDS));
    }

    #[test]
    fn access_review_carries_all_attributes_of_the_user() {
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
    fn review_answer_without_explicit_permission_is_no_permission() {
        for (status, expected) in [
            (json!({ "allowed": true }), Answer::Allowed),
            (json!({ "allowed": true, "denied": true }), Answer::Denied(String::new())),
            (json!({ "allowed": false, "reason": "no role" }), Answer::Denied("no role".into())),
            (json!({ "allowed": false, "evaluationError": "away" }), Answer::Failed("away".into())),
            (json!({}), Answer::Failed("the answer is not a SubjectAccessReview".into())),
            (json!({ "allowed": "true" }), Answer::Failed("the answer is not a SubjectAccessReview".into())),
        ] {
            assert_eq!(Answer::read(&json!({ "status": status })), expected, "{status}");
        }
    }

    #[test]
    fn denied_access_is_reported_at_each_field() {
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
                format!("{from}[1].secretRef.name: Internal error: permission to get Secret \"b\" could not be checked: no \
                     answer; try again"),
                format!("{from}[2].secretRef.name: Internal error: permission to get Secret \"c\" was not checked; try \
                     again"),
                "spec.template.spec.networkInterfaces[0].network: Forbidden: permission to use the network \"default\" denied: no role".to_owned(),
            ]
        );
    }
}
