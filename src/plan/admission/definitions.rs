//! Validates objects against definitions as an API server does (apiextensions-apiserver 0.36). Tests on servers include this file
//! too, so it uses nothing of this crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use regex::Regex;
use serde_json::{Map, Value};

/// The schema of each kind, by the kind's name.
pub struct Definitions(BTreeMap<String, Value>);

/// Keywords of a schema that are checked here.
const JUDGED: [&str; 22] = [
    "additionalProperties",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "not",
    "nullable",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-validations",
];

/// Keywords that refuse nothing. `anyOf` occurs only where a field is a number or a string, and repeats that.
const REFUSES_NOTHING: [&str; 5] = ["anyOf", "default", "description", "title", "x-kubernetes-preserve-unknown-fields"];

impl Definitions {
    /// Reads CustomResourceDefinitions with one version each.
    ///
    /// # Panics
    /// If a definition has a keyword that nothing here checks.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let schema = |text: &str| {
            let mut definition: Value = serde_saphyr::from_str(text).unwrap();
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
            let schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take();
            all_is_judged(&kind, &schema);
            (kind, schema)
        };
        Self(texts.into_iter().map(schema).collect())
    }

    /// Returns the schema of a kind.
    pub fn schema(&self, kind: &str) -> &Value {
        &self.0[kind]
    }

    /// Returns the refused fields of an object: the path of each, and the reason.
    pub fn refused(&self, object: &Value) -> Vec<(String, String)> {
        self.refused_below(object, "")
    }

    /// Returns the refused fields in one part of an object without the other parts.
    pub fn refused_below(&self, object: &Value, part: &str) -> Vec<(String, String)> {
        let schema = self.schema(object["kind"].as_str().unwrap());
        let mut refused = Vec::new();
        match part {
            "" => judge("", schema, object, &mut refused),
            part => judge(part, &schema["properties"][part], &object[part], &mut refused),
        }
        refused
    }
}

fn all_is_judged(path: &str, schema: &Value) {
    for key in schema.as_object().unwrap().keys() {
        let is_known = JUDGED.contains(&key.as_str()) || REFUSES_NOTHING.contains(&key.as_str());
        assert!(is_known, "{path}: nothing judges {key}");
    }
    let is_number_or_string = schema["x-kubernetes-int-or-string"] == true;
    assert!(schema["anyOf"].is_null() || is_number_or_string, "{path}: nothing judges anyOf");
    let format = schema["format"].as_str();
    assert!(
        format.is_none_or(|format| ["int32", "int64", "date-time", "cidr"].contains(&format)),
        "{path}: {format:?}"
    );
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        all_is_judged(&format!("{path}.{name}"), property);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            all_is_judged(&format!("{path}[]"), &schema[part]);
        }
    }
}

type Refused = Vec<(String, String)>;

fn judge(path: &str, schema: &Value, value: &Value, refused: &mut Refused) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let is_integer = value.is_i64() || value.is_u64();
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let message = rule["message"].as_str().unwrap();
        if !is_kept(message, value) {
            refused.push((path.to_owned(), message.to_owned()));
        }
    }
    let has_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => is_integer,
        None if schema["x-kubernetes-int-or-string"] == true => is_integer || value.is_string(),
        other => panic!("{path}: nothing judges type {other:?}"),
    };
    if !has_type {
        refused.push((path.to_owned(), format!("{value} is of another type")));
        return;
    }
    let is_one_of = |values: &Vec<Value>| values.contains(value);
    if !schema["enum"].as_array().is_none_or(is_one_of) {
        refused.push((path.to_owned(), format!("{value} is none of {}", schema["enum"])));
    }
    if schema["not"].is_object() && has_shape(&schema["not"], value) {
        refused.push((path.to_owned(), format!("must not validate the schema {}", schema["not"])));
    }
    match value {
        Value::Object(fields) => object(path, schema, fields, refused),
        Value::Array(items) => list(path, schema, items, refused),
        Value::String(text) => string(path, schema, text, refused),
        Value::Number(_) => number(path, schema, value, refused),
        _ => {}
    }
}

/// True if a new value keeps the rule with this message. The rules are in the Common Expression Language, which only API servers
/// evaluate. So each is written a second time here. A test sends the same objects to an API server.
fn is_kept(message: &str, value: &Value) -> bool {
    let items = || value.as_array().into_iter().flatten();
    let one_of =
        |object: &Value, fields: &[&str]| fields.iter().filter(|field| !object[**field].is_null()).count() == 1;
    match message {
        "each placement needs a name of its own" => items()
            .enumerate()
            .all(|(index, item)| item["name"] == "" || items().take(index).all(|other| other["name"] != item["name"])),
        "name at least one city in each placement" => {
            items().all(|item| item["cityCodes"].as_array().is_none_or(|cities| !cities.is_empty()))
        }
        "maxReplicas must not be below minReplicas" => items().all(|item| {
            let [least, most] = ["minReplicas", "maxReplicas"].map(|field| item["scaleSettings"][field].as_i64());
            least.zip(most).is_none_or(|(least, most)| least <= most)
        }),
        "give each metric exactly one of value, averageValue and averageUtilization" => items().all(|item| {
            let mut metrics = item["scaleSettings"]["metrics"].as_array().into_iter().flatten();
            let targets = ["value", "averageValue", "averageUtilization"];
            metrics.all(|metric| one_of(&metric["resource"]["target"], &targets))
        }),
        "leave out controller: only a cell writes it, in Instances" => value["controller"].is_null(),
        "leave out location: only a cell writes it, in Instances" => value["location"].is_null(),
        "give exactly one of sandbox and virtualMachine" => one_of(value, &["sandbox", "virtualMachine"]),
        "give each volume exactly one of disk, configMap and secret" => one_of(value, &["disk", "configMap", "secret"]),
        "give each source exactly one of configMapRef and secretRef" => {
            items().all(|item| one_of(item, &["configMapRef", "secretRef"]))
        }
        other => panic!("nothing judges the rule {other:?}"),
    }
}

/// True if an object has the required fields, and strings in them of the required length. The `not` of a schema uses nothing
/// else.
fn has_shape(shape: &Value, value: &Value) -> bool {
    let required = shape["required"].as_array().into_iter().flatten();
    let has_all = required.map(|name| name.as_str().unwrap()).all(|name| !value[name].is_null());
    let long_enough = |(name, of): (&String, &Value)| {
        let least = of["minLength"].as_u64().unwrap();
        value[name].as_str().is_none_or(|text| text.chars().count() as u64 >= least)
    };
    has_all && shape["properties"].as_object().into_iter().flatten().all(long_enough)
}

fn object(path: &str, schema: &Value, fields: &Map<String, Value>, refused: &mut Refused) {
    // The API server prunes unknown fields, removes a null that is not nullable, and fills in defaults.
    let mut given = BTreeMap::new();
    for (name, value) in fields {
        let values = Some(&schema["additionalProperties"]).filter(|values| values.is_object());
        let Some(field) = schema["properties"].get(name).or(values) else { continue };
        if !value.is_null() || field["nullable"] == true {
            given.insert(name.as_str(), (field, value));
        }
    }
    bounds(path, schema, ["minProperties", "maxProperties"], given.len(), refused);
    for name in schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()) {
        if !given.contains_key(name) && schema["properties"][name]["default"].is_null() {
            refused.push((format!("{path}.{name}"), "is missing".to_owned()));
        }
    }
    for (name, (field, value)) in given {
        judge(&format!("{path}.{name}"), field, value, refused);
    }
}

fn list(path: &str, schema: &Value, items: &[Value], refused: &mut Refused) {
    bounds(path, schema, ["minItems", "maxItems"], items.len(), refused);
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        judge(&format!("{path}[{index}]"), &schema["items"], item, refused);
        let identity = match schema["x-kubernetes-list-type"].as_str() {
            None | Some("atomic") => continue,
            Some("set") => item.to_string(),
            Some("map") => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().unwrap();
                keys.iter().map(|key| item[key.as_str().unwrap()].to_string()).collect::<Vec<_>>().join(" ")
            }
            Some(other) => panic!("{path}: nothing judges a list that is a {other}"),
        };
        if !seen.insert(identity) {
            refused.push((format!("{path}[{index}]"), "stands there twice".to_owned()));
        }
    }
}

fn string(path: &str, schema: &Value, text: &str, refused: &mut Refused) {
    bounds(path, schema, ["minLength", "maxLength"], text.chars().count(), refused);
    if schema["pattern"].as_str().is_some_and(|pattern| !Regex::new(pattern).unwrap().is_match(text)) {
        refused.push((path.to_owned(), format!("{text:?} is not of the form {}", schema["pattern"])));
    }
    if schema["format"] == "cidr" && !is_cidr(text) {
        refused.push((path.to_owned(), format!("{text:?} is no CIDR")));
    }
    if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
        refused.push((path.to_owned(), format!("{text:?} is no time")));
    }
}

/// Parses as Go's `net.ParseCIDR`.
fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let is_number = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
    is_number && prefix.parse::<u32>().is_ok_and(|prefix| prefix <= if address.is_ipv4() { 32 } else { 128 })
}

fn number(path: &str, schema: &Value, value: &Value, refused: &mut Refused) {
    let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)).unwrap();
    #[allow(clippy::cast_possible_truncation)] // whole numbers all, which definitions write as 1000.0
    let limit = |key: &str| schema[key].as_f64().map(|limit| limit as i128);
    let (least, most) = match schema["format"].as_str() {
        Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    let range = limit("minimum").unwrap_or(least).max(least)..=limit("maximum").unwrap_or(most).min(most);
    if !range.contains(&number) {
        refused.push((path.to_owned(), format!("{number} is not in {range:?}")));
    }
}

fn bounds(path: &str, schema: &Value, [least, most]: [&str; 2], size: usize, refused: &mut Refused) {
    let limit = |key: &str| schema[key].as_u64().map(|limit| usize::try_from(limit).unwrap());
    if limit(least).is_some_and(|least| size < least) || limit(most).is_some_and(|most| size > most) {
        refused.push((path.to_owned(), format!("{size} is not in {:?} to {:?}", schema[least], schema[most])));
    }
}
