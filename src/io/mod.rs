//! Everything that talks to an API server: clients, watches and their caches, writes, the work queue, the Lease. Also the servers
//! of our own ports, with TLS.

pub mod apply;
mod cache;
pub mod clients;
pub mod clock;
mod confidential;
pub mod credentials;
pub mod encoded;
pub mod feed;
pub mod health;
pub mod leadership;
pub mod lease;
pub mod list;
mod plugin;
mod proxy;
pub mod queue;
pub(crate) mod reads;
pub mod requests;
pub mod reviews;
pub mod server;
pub mod shared;
pub mod store;
#[cfg(test)]
pub(crate) mod stub_server;
mod token;
mod transport;
mod uid;
pub mod watch;
mod watched;

use std::time::Duration;

/// The error of an API call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused the call, or it could not be reached. `call` names verb, object and control plane.
    #[error("{call}: {}", explain(source))]
    Api {
        /// Verb, object and control plane.
        call: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{call}: no answer within {} s", after.as_secs())]
    Deadline {
        /// Verb, object and control plane.
        call: String,
        /// The deadline.
        after: Duration,
    },
    /// A live read found an object that should be absent. Reconcile again.
    #[error("{0} still exists")]
    StillThere(String),
    /// A live read did not find an object, or found another one of its name.
    #[error("{0} does not exist")]
    NotThere(String),
    /// A live read found another spec than the cached one. The cache is stale, and its watch will update it.
    #[error("{0} has changed since it was read")]
    Changed(String),
    /// The answer does not fit this call.
    #[error("{call}: unexpected answer: {why}")]
    Answer {
        /// Verb, object and control plane.
        call: String,
        /// The problem.
        why: String,
    },
}

/// The reaction to an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Retry with back-off.
    Retry,
    /// The object has changed: reconcile the new state soon.
    Conflict,
    /// The object is deleted. For a deletion this is success.
    Gone,
    /// The server does not accept our credentials. Credentials expire and are renewed.
    Unauthenticated,
    /// A person must grant a permission.
    Forbidden,
    /// A person must change the object.
    Invalid,
}

impl Error {
    /// Returns the plural of the kind that the server reports as not found. `None` for every other answer. Empty if the path
    /// itself is not served: the CRD is missing, or this is the wrong server.
    pub fn missing(&self) -> Option<&str> {
        let Self::Api { source, .. } = self else { return None };
        match source.as_ref() {
            kube::Error::Api(status) if status.code == 404 => Some(status.details.as_ref().map_or("", |d| &d.kind)),
            _ => None,
        }
    }

    /// True if one object is not found, while its kind and its namespace exist.
    pub fn is_of_an_object(&self) -> bool {
        matches!(self, Self::NotThere(_)) || self.missing().is_some_and(|kind| !kind.is_empty() && kind != "namespaces")
    }

    /// Returns the HTTP status of the answer, if there was one.
    fn code(&self) -> Option<u16> {
        let Self::Api { source, .. } = self else { return None };
        if let kube::Error::Api(status) = source.as_ref() { Some(status.code) } else { None }
    }

    /// True if an object of the kind with this plural exists already.
    pub fn is_there_already(&self, plural: &str) -> bool {
        let Self::Api { source, .. } = self else { return false };
        let kube::Error::Api(status) = source.as_ref() else { return false };
        status.reason == "AlreadyExists" && status.details.as_ref().is_some_and(|details| details.kind == plural)
    }

    /// True if the namespace is terminating, so that nothing can be created in it. This ends without our help. Admission reports
    /// it by a cause (`NamespaceTerminatingCause` of k8s.io/api), which remains when the message is removed.
    pub fn is_of_terminating_namespace(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        let kube::Error::Api(status) = source.as_ref() else { return false };
        status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// True if there was no answer: the server or the network is down.
    pub fn is_of_transport(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        matches!(source.as_ref(), kube::Error::Service(_) | kube::Error::HyperError(_))
    }

    /// True if an apply without force conflicts with fields of another manager.
    pub fn is_of_others_fields(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        let kube::Error::Api(status) = source.as_ref() else { return false };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        status.code == 409 && causes.any(|cause| cause.reason == "FieldManagerConflict")
    }

    /// True if admission denied the request: a quota, a webhook, a policy, or a terminating namespace. False if a permission is
    /// missing. More permissions would not help. Webhooks and policies choose the code of their answer. One that answers with a
    /// server error has not judged the object: that is no denial.
    pub fn is_denied(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        let kube::Error::Api(status) = source.as_ref() else { return false };
        match status.code {
            403 => self.is_of_terminating_namespace() || is_of_admission(&status.message),
            400 | 413 | 422 => is_of_rule(&status.message),
            _ => false,
        }
    }

    /// True if the requested version, or the rest of a list, has expired on the server.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// Returns the reaction to this error.
    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => match status.code {
                    404 | 410 => Class::Gone,
                    409 => Class::Conflict,
                    401 => Class::Unauthenticated,
                    403 => Class::Forbidden,
                    400 | 405 | 413 | 415 | 422 => Class::Invalid,
                    500 if does_not_fit_its_kind(&status.message) => Class::Invalid,
                    _ => Class::Retry,
                },
                _ => Class::Retry,
            },
            Self::Deadline { .. } | Self::Answer { .. } => Class::Retry,
            Self::StillThere(_) | Self::Changed(_) => Class::Conflict,
            Self::NotThere(_) => Class::Gone,
        }
    }

    /// Returns the problem without names and addresses, for tenants, who read it on their objects. The error itself goes to the
    /// log of the platform.
    pub fn outline(&self) -> String {
        match (self, self.code()) {
            (Self::Deadline { after, .. }, _) => format!("no answer within {} s", after.as_secs()),
            (_, Some(401)) => "it does not accept this operator's credentials".to_owned(),
            (_, Some(403)) => "this operator may not read them".to_owned(),
            (_, Some(404)) => "it does not serve their kind".to_owned(),
            (_, Some(410)) => "it cannot continue the watch".to_owned(),
            (_, Some(code)) => format!("it answers with HTTP {code}"),
            (Self::Answer { .. }, None) => "its answer is invalid".to_owned(),
            (_, None) => "it cannot be reached".to_owned(),
        }
    }

    /// Returns the message of a failed write to the hub or a cell, for tenants. A problem of the object itself is reported in
    /// full, because its author can fix it. Messages about this operator or about addresses of the platform go only to the log. Of a
    /// webhook that does not answer, the name is shown.
    pub fn words_for_tenants(&self) -> String {
        let words = self.to_string();
        match self.class() {
            // An RBAC message names the account that lacks a permission.
            Class::Forbidden if words.contains("User \"") => "this operator lacks the permission".to_owned(),
            Class::Retry => self.outline_with_webhook(),
            Class::Unauthenticated => self.outline(),
            _ => words,
        }
    }

    /// Returns the message of a failed write to a project's own API server, for the project. Its owners read the message in full.
    /// Of a webhook that does not answer or fails, they read only the name: its address may belong to the platform.
    pub fn words_in_project(&self) -> String {
        if self.class() == Class::Retry { self.outline_with_webhook() } else { self.to_string() }
    }

    /// True if an admission webhook failed, and the API server itself answers.
    pub fn is_of_webhook(&self) -> bool {
        self.webhook().is_some()
    }

    fn outline_with_webhook(&self) -> String {
        match self.webhook() {
            Some((what, webhook)) => format!("{}: {what} {webhook:?}", self.outline()),
            None => self.outline(),
        }
    }

    /// Returns what happened with an admission webhook, and its name: the API server could not call it, or it answered.
    fn webhook(&self) -> Option<(&'static str, &str)> {
        let Self::Api { source, .. } = self else { return None };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        ["failed calling webhook", "error of admission webhook"].into_iter().find_map(|what| {
            let before = what.strip_prefix("error of ").unwrap_or(what);
            let (_, named) = status.message.split_once(before)?;
            let (name, _) = named.strip_prefix(" \"")?.split_once('"')?;
            Some((what, name))
        })
    }

    /// Returns the label for metrics, one of a fixed set.
    pub fn label(&self) -> &'static str {
        match (self, self.class()) {
            (Self::Deadline { .. }, _) => "deadline",
            (Self::StillThere(_), _) => "still_there",
            (Self::NotThere(_), _) => "not_there",
            (Self::Answer { .. }, _) => "answer",
            (Self::Api { .. }, Class::Retry) => "retry",
            (Self::Changed(_), _) | (Self::Api { .. }, Class::Conflict) => "conflict",
            (Self::Api { .. }, Class::Gone) => "gone",
            (Self::Api { .. }, Class::Forbidden) if self.is_denied() => "denied",
            (Self::Api { .. }, Class::Unauthenticated) => "unauthenticated",
            (Self::Api { .. }, Class::Forbidden) => "forbidden",
            (Self::Api { .. }, Class::Invalid) => "invalid",
        }
    }
}

/// True if an API server refuses an apply with this message because the object does not fit its schema. An example is a list with
/// a duplicate key. The server answers HTTP 500 then (`structured-merge-diff` of k8s.io/apimachinery).
fn does_not_fit_its_kind(words: &str) -> bool {
    words.starts_with("failed to create typed patch object ")
}

/// True if an admission plugin wrote this message of a forbidden request. An authorizer names the account that lacks a
/// permission, and so does the plugin that checks `blockOwnerDeletion`. An unknown message counts as a missing permission, so
/// that a person sees it.
fn is_of_admission(words: &str) -> bool {
    let lacks_right = |why: &str| why.starts_with("User \"") || why.starts_with("cannot set ");
    words.starts_with("admission webhook ")
        || words.starts_with(confidential::DENIED)
        || words.split_once(" is forbidden: ").is_some_and(|(_, why)| !lacks_right(why))
}

/// True if a webhook or a ValidatingAdmissionPolicy wrote this message of a denied request.
fn is_of_rule(words: &str) -> bool {
    words.starts_with("admission webhook ") || words.contains(" is forbidden: ValidatingAdmissionPolicy '")
}

/// Returns the useful part of a kube error: the message of the server, or the innermost cause of a transport failure.
fn explain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return if status.message.is_empty() { format!("HTTP {}", status.code) } else { status.message.clone() };
    }
    if let Some(words) = plugin::words(error) {
        return words;
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Longest wait for the answer to one call. kube itself would wait forever for a silent server.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant's own quota counted as a missing permission of this operator and fired its alert.
    #[test]
    fn error_denied_by_admission_is_not_a_missing_permission() {
        let table = [
            (
                r#"workloaddeployments.compute.datumapis.com "a" is forbidden: User "m" cannot patch resource"#,
                "forbidden",
            ),
            (r#"workloads.compute.datumapis.com is forbidden: User "m" cannot list resource"#, "forbidden"),
            (
                r#"x "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"#,
                "forbidden",
            ),
            (r#"forbidden: User "m" cannot get path "/x""#, "forbidden"),
            ("no", "forbidden"),
            ("", "forbidden"),
            (
                r#"x "a" is forbidden: exceeded quota: none, requested: count/x=1, used: count/x=0, limited: count/x=0"#,
                "denied",
            ),
            (
                r#"x "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: User "m" cannot"#,
                "denied",
            ),
            (r#"admission webhook "w" denied the request: x is forbidden: User "m" cannot"#, "denied"),
            ("denied by an admission webhook (HTTP 403)", "denied"),
        ];
        for (words, label) in table {
            let status = kube::core::Status::failure(words, "Forbidden").with_code(403).boxed();
            let error = Error::Api { call: "apply".into(), source: Box::new(kube::Error::Api(status)) };
            assert_eq!((error.label(), error.class()), (label, Class::Forbidden), "{words}");
        }
    }

    /// A token that the hub did not accept counted as a missing permission, and the alert for the hub did not fire.
    #[test]
    fn error_of_unknown_credentials_is_not_a_missing_permission() {
        for (code, label) in [
            (401, "unauthenticated"),
            (403, "forbidden"),
            (404, "gone"),
            (409, "conflict"),
            (422, "invalid"),
            (503, "retry"),
        ] {
            let status = kube::core::Status::failure("no", "").with_code(code).boxed();
            let error = Error::Api { call: "list".into(), source: Box::new(kube::Error::Api(status)) };
            assert_eq!(error.label(), label, "{code}");
        }
    }

    /// A deployment that fitted older CRDs but not those of the hub was reported as a hub that does not answer.
    #[test]
    fn error_500_of_an_object_that_does_not_fit_its_schema_is_invalid() {
        let words = r#"failed to create typed patch object (ns/web; compute.datumapis.com/v1alpha, Kind=WorkloadDeployment): .spec.env: duplicate entries for key [name="A"]"#;
        for (words, class) in [(words, Class::Invalid), ("etcdserver: request timed out", Class::Retry)] {
            let status = kube::core::Status::failure(words, "").with_code(500).boxed();
            let error = Error::Api { call: "apply".into(), source: Box::new(kube::Error::Api(status)) };
            assert_eq!(error.class(), class, "{words}");
        }
    }

    /// Messages of RBAC and of unavailable webhooks name this operator's account and addresses, and tenants read them on their
    /// deployments.
    #[test]
    fn error_for_tenants_names_their_object_but_nothing_of_the_platform() {
        let api = |code: u16, message: &str| {
            let status = kube::core::Status::failure(message, "").with_code(code).boxed();
            Error::Api {
                call: "apply WorkloadDeployment ns-1/web in hub".into(),
                source: Box::new(kube::Error::Api(status)),
            }
        };
        let denied = r#"workloaddeployments is forbidden: User "system:serviceaccount:c:m" cannot patch resource"#;
        let away = "failed calling webhook: Post \"https://karmada-webhook.svc:443\": dial tcp 10.0.0.7:443: refused";
        let named = r#"failed calling webhook "guard.example.com": dial tcp 10.0.0.7:443: refused"#;
        assert!(api(500, named).is_of_webhook() && !api(503, "not ready").is_of_webhook());
        for (error, words) in [
            (api(403, denied), "this operator lacks the permission"),
            (api(500, away), "it answers with HTTP 500"),
            (api(500, named), r#"it answers with HTTP 500: failed calling webhook "guard.example.com""#),
            (api(401, "Unauthorized"), "it does not accept this operator's credentials"),
            (api(422, "spec.x: too long"), "apply WorkloadDeployment ns-1/web in hub: spec.x: too long"),
            (api(403, "exceeded quota: small"), "apply WorkloadDeployment ns-1/web in hub: exceeded quota: small"),
        ] {
            assert_eq!(error.words_for_tenants(), words);
        }
    }

    /// A rule decides the code of its denial. Only a code of 403 counted, so the same rule was reported in several ways.
    #[test]
    fn denial_is_recognised_with_every_code_and_a_failing_webhook_is_none() {
        let policy = r#"workloaddeployments.compute.datumapis.com "web" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'freeze' denied request: not now"#;
        let webhook = r#"admission webhook "guard.example.com" denied the request: not now"#;
        let away = r#"Internal error occurred: failed calling webhook "guard.example.com": context deadline exceeded"#;
        let rbac = r#"workloaddeployments is forbidden: User "system:serviceaccount:c:m" cannot patch resource"#;
        for (code, words, denied) in [
            (403, policy, true),
            (422, policy, true),
            (413, policy, true),
            (400, webhook, true),
            (403, webhook, true),
            (422, webhook, true),
            (500, webhook, false),
            (500, away, false),
            (403, rbac, false),
            (422, "spec.x: Invalid value", false),
            (
                403,
                r#"workloaddeployments "web" is forbidden: exceeded quota: small, requested: 1, used: 1, limited: 1"#,
                true,
            ),
        ] {
            let status = kube::core::Status::failure(words, "").with_code(code).boxed();
            let error = Error::Api { call: "apply x".into(), source: Box::new(kube::Error::Api(status)) };
            assert_eq!(error.is_denied(), denied, "{code} {words}");
        }
    }

    #[test]
    fn error_in_project_names_an_unavailable_webhook_but_not_its_address() {
        let api = |code: u16, message: &str| {
            let status = kube::core::Status::failure(message, "").with_code(code).boxed();
            Error::Api { call: "apply x".into(), source: Box::new(kube::Error::Api(status)) }
        };
        let away = r#"Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: Post "https://10.0.0.7:443/": dial tcp 10.0.0.7:443: connect: connection refused"#;
        for (error, words) in [
            (api(500, away), r#"it answers with HTTP 500: failed calling webhook "guard.example.com""#),
            (
                api(500, r#"admission webhook "guard.example.com" denied the request: Get "https://10.0.0.7/": EOF"#),
                r#"it answers with HTTP 500: error of admission webhook "guard.example.com""#,
            ),
            (api(500, "etcdserver: leader changed"), "it answers with HTTP 500"),
            (api(422, "spec.x: too long"), "apply x: spec.x: too long"),
            (Error::Deadline { call: "apply x".into(), after: REQUEST_TIMEOUT }, "no answer within 10 s"),
        ] {
            assert_eq!(error.words_in_project(), words);
        }
    }
}
