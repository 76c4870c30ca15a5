//! References to ConfigMaps and Secrets, in the one form that annotations carry: `Kind/name`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest name of a source: Karmada's binding of it is `<name>-configmap`, which must be a name as well.
pub const MAX_SOURCE_NAME: usize = 242;

/// How many users a companion names. Metadata holds 256 KiB, and Karmada writes the companion on every cell whenever it
/// changes.
pub const MAX_NAMED_USERS: usize = 32;

/// What stands for the names where there are more, as the list's only entry. It is no name that a deployment can have; the
/// Go operator keeps it when it adds a name, and keeps a companion of which an entry names nobody.
pub const MANY_USERS: &str = "more than 32";

/// What takes that one's place when nobody is known to use the companion any more, before it is deleted. Whoever uses it from
/// then on changes the list, and with it the version that a deletion goes by: also of one that was sent long ago.
pub const NO_USERS: &str = "nobody any more";

/// What can be referred to. A kind is added here, in what reads references (`plan::references`), in the roles and in the
/// script that teaches Karmada about dependencies; a test compares the latter two with [`Self::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SourceKind {
    /// `v1` ConfigMap
    ConfigMap,
    /// `v1` Secret
    Secret,
}

impl SourceKind {
    /// Every one, in order.
    pub const ALL: [Self; 2] = [Self::ConfigMap, Self::Secret];

    /// The kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// Its resource in API paths and roles.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    /// Whether the values under `data` are in base64, and the object has a type that says what they are.
    pub fn is_encoded(self) -> bool {
        match self {
            Self::ConfigMap => false,
            Self::Secret => true,
        }
    }
}

/// One of something for each kind.
#[derive(Clone, Debug, Default)]
pub struct PerKind<T>([T; SourceKind::ALL.len()]);

impl<T> PerKind<T> {
    /// What `make` makes of each kind.
    pub fn new(make: impl FnMut(SourceKind) -> T) -> Self {
        Self(SourceKind::ALL.map(make))
    }

    /// That of a kind.
    pub fn get(&self, kind: SourceKind) -> &T {
        &self.0[kind as usize]
    }

    /// That of every kind, in order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

/// One ConfigMap or Secret of a namespace; ConfigMaps sort first, then by name.
///
/// It serialises as `Kind/name`, and only what an API server would take as a name is read back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DataRef {
    /// Its kind.
    pub kind: SourceKind,
    /// Its name.
    pub name: String,
}

impl DataRef {
    /// A ConfigMap.
    pub fn config_map(name: &str) -> Self {
        Self { kind: SourceKind::ConfigMap, name: name.into() }
    }

    /// A Secret.
    pub fn secret(name: &str) -> Self {
        Self { kind: SourceKind::Secret, name: name.into() }
    }

    /// Whether an API server would take the name: a DNS subdomain.
    pub fn is_valid(&self) -> bool {
        let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let label = |part: &str| {
            part.starts_with(alphanumeric)
                && part.ends_with(alphanumeric)
                && part.chars().all(|c| alphanumeric(c) || c == '-')
        };
        self.name.len() <= 253 && self.name.split('.').all(label)
    }
}

impl TryFrom<String> for DataRef {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|()| format!("{text:?} is not Kind/name of a ConfigMap or Secret"))
    }
}

impl From<DataRef> for String {
    fn from(data_ref: DataRef) -> Self {
        data_ref.to_string()
    }
}

impl fmt::Display for DataRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.name)
    }
}

impl FromStr for DataRef {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, name) = text.split_once('/').ok_or(())?;
        let kind = SourceKind::ALL.into_iter().find(|k| k.as_str() == kind).ok_or(())?;
        let data_ref = Self { kind, name: name.into() };
        if data_ref.is_valid() { Ok(data_ref) } else { Err(()) }
    }
}

/// The value of an annotation that lists references to data, sorted and distinct.
pub fn to_annotation<'a>(data_refs: impl IntoIterator<Item = &'a DataRef>) -> String {
    let sorted: std::collections::BTreeSet<&DataRef> = data_refs.into_iter().collect();
    serde_json::json!(sorted.iter().map(ToString::to_string).collect::<Vec<_>>()).to_string()
}

/// The references in the value of an annotation. What is none is left out; a text that is no list of texts has none.
pub fn from_annotation(text: &str) -> Vec<DataRef> {
    let list: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    list.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own() {
        let names = PerKind::new(SourceKind::as_str);
        for kind in SourceKind::ALL {
            assert_eq!(*names.get(kind), kind.as_str());
        }
        assert!(names.values().eq(SourceKind::ALL.map(SourceKind::as_str).iter()));
    }

    #[test]
    fn references_sort_configmaps_first_and_survive_the_annotation() {
        let data_refs =
            [DataRef::secret("a"), DataRef::config_map("z"), DataRef::config_map("b.c"), DataRef::secret("a")];
        let text = to_annotation(&data_refs);
        assert_eq!(text, r#"["ConfigMap/b.c","ConfigMap/z","Secret/a"]"#);
        assert_eq!(to_annotation(&from_annotation(&text)), text);
    }

    #[test]
    fn what_is_no_reference_is_left_out() {
        assert!(from_annotation("not json").is_empty());
        assert!(from_annotation(r#"{"a":1}"#).is_empty());
        let odd = r#"["Pod/a","ConfigMap","Secret/../x","Secret/","Secret/A","Secret/-a","Secret/a..b","Secret/ok"]"#;
        assert_eq!(from_annotation(odd), [DataRef::secret("ok")]);
    }
}
