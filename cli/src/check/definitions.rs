//! Comparison of definitions with those of this version.

use std::collections::BTreeMap;

use compute_operator::api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Most fields that one line names.
const NAMED: usize = 4;

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The definition is this version's.
    Same,
    /// It lacks these fields: API servers drop them.
    Lacks(String),
    /// It has these fields, which this version does not know.
    Newer(String),
    /// Another part differs, such as a rule or a column. Its path.
    Differs(String),
}

/// Returns the definitions of this version, by name.
pub fn own() -> BTreeMap<String, Value> {
    let files = crds::files().unwrap_or_default();
    let parsed = files.into_iter().filter_map(|(_, text)| serde_saphyr::from_str::<Value>(&text).ok());
    let definitions = parsed.filter(|object| object["kind"] == "CustomResourceDefinition");
    definitions.filter_map(|object| Some((object["metadata"]["name"].as_str()?.to_owned(), object))).collect()
}

/// Compares a definition of an API server with this version's.
pub fn compare(live: &CustomResourceDefinition, own: &Value) -> Comparison {
    let Ok(typed) = serde_json::from_value::<CustomResourceDefinition>(own.clone()) else {
        return Comparison::Differs("spec".to_owned());
    };
    let fields = crds::differences(live, &typed);
    if !fields.less.is_empty() {
        return Comparison::Lacks(first(&fields.less));
    }
    if !fields.more.is_empty() {
        return Comparison::Newer(first(&fields.more));
    }
    // Both pass through the same type, so that both have the same form. The API server adds defaults.
    let there = serde_json::to_value(&live.spec).unwrap_or_default();
    let here = serde_json::to_value(&typed.spec).unwrap_or_default();
    differs(&here, &there, "spec").map_or(Comparison::Same, Comparison::Differs)
}

/// Returns the path of the first part that is not in `there` as it is here. More fields there do not count.
pub fn differs(here: &Value, there: &Value, path: &str) -> Option<String> {
    match (here, there) {
        (Value::Object(here), Value::Object(there)) => here.iter().find_map(|(name, value)| {
            let below = format!("{path}.{name}");
            match there.get(name) {
                Some(other) => differs(value, other, &below),
                // An API server leaves out what is empty.
                None => (!is_empty(value)).then_some(below),
            }
        }),
        (Value::Array(here), Value::Array(there)) if here.len() == there.len() => {
            let mut both = here.iter().zip(there).enumerate();
            both.find_map(|(nth, (here, there))| differs(here, there, &format!("{path}[{nth}]")))
        }
        (here, there) => (here != there).then(|| path.to_owned()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Returns the first fields, and the number of the others.
fn first(fields: &[String]) -> String {
    let text = fields[..fields.len().min(NAMED)].join(", ");
    match fields.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "/versions/0/schema/openAPIV3Schema/properties/status/properties";

    #[test]
    fn definition_is_compared_with_this_version() {
        let own = own();
        assert_eq!(own.len(), 3, "{:?}", own.keys());
        let instance = &own["instances.compute.datumapis.com"];
        let with = |edit: &dyn Fn(&mut Value)| {
            let mut live = instance.clone();
            live["spec"]["conversion"] = serde_json::json!({ "strategy": "None" });
            edit(&mut live["spec"]);
            compare(&serde_json::from_value(live).unwrap(), instance)
        };
        assert_eq!(with(&|_| ()), Comparison::Same);
        let lacks = with(&|spec| {
            spec.pointer_mut(STATUS).unwrap().as_object_mut().unwrap().remove("suspended");
        });
        assert_eq!(lacks, Comparison::Lacks("status.suspended".to_owned()));
        let newer = with(&|spec| spec.pointer_mut(STATUS).unwrap()["fuel"] = serde_json::json!({ "type": "string" }));
        assert_eq!(newer, Comparison::Newer("status.fuel".to_owned()));
        let other = with(&|spec| spec["scope"] = "Cluster".into());
        assert_eq!(other, Comparison::Differs("spec.scope".to_owned()));
    }

    #[test]
    fn long_lists_of_fields_are_cut() {
        let fields: Vec<String> = (1..=6).map(|n| format!("spec.f{n}")).collect();
        assert_eq!(first(&fields), "spec.f1, spec.f2, spec.f3, spec.f4 and 2 more");
    }
}
