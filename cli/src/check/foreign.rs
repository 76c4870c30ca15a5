//! Admission webhooks of others that the operator's writes pass. Before an install, each is named with its effect.

use compute_operator::api::meta::GROUP;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use super::judge::Check;
use crate::seen::{Seen, list};

/// Configuration of this operator's own webhooks.
const OWN: &str = "compute-validating";
/// End of the names of Karmada's own webhooks, which every hub has.
const OF_KARMADA: &str = ".karmada.io";

/// A webhook of others that reviews this operator's kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// Its configuration.
    pub configuration: String,
    /// Its name.
    pub name: String,
    /// True if it can change objects.
    pub mutates: bool,
    /// True if writes fail while it does not answer.
    pub fails: bool,
}

/// Reads the webhooks of others that review this operator's kinds.
pub async fn read(client: &Client) -> Seen<Vec<Foreign>> {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let (validating, mutating) = futures::join!(list(&validating, None), list(&mutating, None));
    let validating = match validating {
        Seen::Found(validating) => validating,
        other => return other.map(|_| Vec::new()),
    };
    mutating.map(|mutating| of(validating, mutating))
}

/// Returns the webhooks of others that review this operator's kinds.
pub fn of(
    validating: Vec<ValidatingWebhookConfiguration>,
    mutating: Vec<MutatingWebhookConfiguration>,
) -> Vec<Foreign> {
    let mut found = Vec::new();
    for configuration in validating {
        let name = configuration.name_any();
        for hook in configuration.webhooks.into_iter().flatten() {
            let rules = hook.rules.unwrap_or_default();
            found.extend(foreign(&name, hook.name, &rules, hook.failure_policy.as_deref(), false));
        }
    }
    for configuration in mutating {
        let name = configuration.name_any();
        for hook in configuration.webhooks.into_iter().flatten() {
            let rules = hook.rules.unwrap_or_default();
            found.extend(foreign(&name, hook.name, &rules, hook.failure_policy.as_deref(), true));
        }
    }
    found
}

fn foreign(
    configuration: &str,
    name: String,
    rules: &[RuleWithOperations],
    failure_policy: Option<&str>,
    mutates: bool,
) -> Option<Foreign> {
    if configuration == OWN || name.ends_with(OF_KARMADA) || !rules.iter().any(is_about_own_kinds) {
        return None;
    }
    let fails = failure_policy != Some("Ignore");
    Some(Foreign { configuration: configuration.to_owned(), name, mutates, fails })
}

/// True if a rule matches a kind of this operator.
fn is_about_own_kinds(rule: &RuleWithOperations) -> bool {
    let has = |list: &Option<Vec<String>>, words: &[&str]| list.iter().flatten().any(|one| words.contains(&&**one));
    let of_resources = |resource: &String| {
        let resource = resource.split('/').next().unwrap_or_default();
        ["*", "workloads", "workloaddeployments", "instances"].contains(&resource)
    };
    has(&rule.api_groups, &["*", GROUP]) && rule.resources.iter().flatten().any(of_resources)
}

/// Judges the webhooks of others.
pub fn checks(seen: &Seen<Vec<Foreign>>) -> Vec<Check> {
    let Seen::Found(all) = seen else {
        return Check::hidden("webhooks of others", seen).into_iter().collect();
    };
    if all.is_empty() {
        return vec![Check::well("no webhook of others reviews its kinds")];
    }
    let text = |hook: &Foreign| {
        let effect = match (hook.mutates, hook.fails) {
            (true, true) => "it can change them, and blocks them while it does not answer",
            (true, false) => "it can change them",
            (false, true) => "it can refuse them, and blocks them while it does not answer",
            (false, false) => "it can refuse them",
        };
        format!("webhook {} of {} reviews the operator's objects: {effect}", hook.name, hook.configuration)
    };
    let fix =
        format!("exclude the API group {GROUP} from it, or make sure that it accepts every write of the operator");
    all.iter().map(|hook| Check::warning(text(hook), &*fix)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::screen::Mark;

    fn hook(name: &str, group: &str, resource: &str, policy: Option<&str>) -> Value {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {},
            "failurePolicy": policy,
            "rules": [{ "apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource] }],
        })
    }

    fn seen(configuration: &str, hooks: &[Value]) -> Vec<Foreign> {
        let object = json!({ "metadata": { "name": configuration }, "webhooks": hooks });
        of(vec![serde_json::from_value(object.clone()).unwrap()], vec![serde_json::from_value(object).unwrap()])
    }

    #[test]
    fn webhook_of_others_is_found_by_group_and_resource() {
        for (group, resource, is_found) in [
            ("*", "*", true),
            ("compute.datumapis.com", "*/*", true),
            ("compute.datumapis.com", "instances/status", true),
            ("compute.datumapis.com", "cells", false),
            ("apps", "*", false),
            ("", "secrets", false),
        ] {
            let found = seen("policy", &[hook("a.example.com", group, resource, None)]);
            assert_eq!(found.len(), 2 * usize::from(is_found), "{group}/{resource}: {found:?}");
        }
        assert_eq!(seen("compute-validating", &[hook("vworkload.kb.io", "*", "*", None)]), []);
        assert_eq!(seen("validating-config", &[hook("resourcedeletionprotection.karmada.io", "*", "*", None)]), []);
    }

    #[test]
    fn webhook_of_others_is_named_with_its_effect() {
        let found = seen("policy", &[hook("a.b", "*", "*", Some("Fail")), hook("c.d", "*", "*", Some("Ignore"))]);
        let checks = checks(&Seen::Found(found));
        let texts: Vec<&str> = checks.iter().map(|check| check.text.split_once(": ").unwrap().1).collect();
        let expected = [
            "it can refuse them, and blocks them while it does not answer",
            "it can refuse them",
            "it can change them, and blocks them while it does not answer",
            "it can change them",
        ];
        assert_eq!(texts, expected);
        assert!(checks.iter().all(|check| check.mark == Mark::Warning && check.fix.is_some()));
        assert!(checks[1].text.contains("webhook c.d of policy"), "{}", checks[1].text);
    }

    #[test]
    fn webhooks_that_are_not_visible_are_not_absent() {
        let hidden = super::checks(&Seen::Denied("no".to_owned()));
        assert_eq!(hidden[0].mark, Mark::Unseen);
        assert_eq!(super::checks(&Seen::Found(Vec::new()))[0].mark, Mark::Well);
        assert!(super::checks(&Seen::Unserved).is_empty());
    }
}
