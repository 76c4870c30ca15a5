//! References to ConfigMaps and Secrets, in the form of the annotations: `Kind/name`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest name of a source: the name of its binding, `<name>-configmap`, must be a valid name as well.
pub const MAX_SOURCE_NAME: usize = 242;

/// Kinds that can be referred to. A new kind also needs: `plan::references`, the roles, and the script that teaches Karmada about
/// dependencies. A test compares the latter two with [`Self::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SourceKind {
    /// `v1` ConfigMap
    ConfigMap,
    /// `v1` Secret
    Secret,
}

impl SourceKind {
    /// All kinds, in order.
    pub const ALL: [Self; 2] = [Self::ConfigMap, Self::Secret];

    /// Returns the kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// Returns the resource name in API paths and roles.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    /// True if the values under `data` are in base64 and the object has a type.
    pub fn is_encoded(self) -> bool {
        match self {
            Self::ConfigMap => false,
            Self::Secret => true,
        }
    }
}

/// One value for each kind.
#[derive(Clone, Debug, Default)]
pub struct PerKind<T>([T; SourceKind::ALL.len()]);

impl<T> PerKind<T> {
    /// Makes a value for each kind.
    pub fn new(make: impl FnMut(SourceKind) -> T) -> Self {
        Self(SourceKind::ALL.map(make))
    }

    /// Returns the value for a kind.
    pub fn get(&self, kind: SourceKind) -> &T {
        &self.0[kind as usize]
    }

    /// Iterates over the values of all kinds, in order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

/// One ConfigMap or Secret of a namespace. ConfigMaps sort first, then by name.
///
/// It serialises as `Kind/name`, and only a valid object name is decoded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DataRef {
    /// Its kind.
    pub kind: SourceKind,
    /// Its name.
    pub name: String,
}

impl DataRef {
    /// Refers to a ConfigMap.
    pub fn config_map(name: &str) -> Self {
        Self { kind: SourceKind::ConfigMap, name: name.into() }
    }

    /// Refers to a Secret.
    pub fn secret(name: &str) -> Self {
        Self { kind: SourceKind::Secret, name: name.into() }
    }

    /// True if an API server accepts the name: a DNS subdomain.
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

/// Returns the value of an annotation that lists references to data, sorted and distinct.
pub fn to_annotation<'a>(data_refs: impl IntoIterator<Item = &'a DataRef>) -> String {
    let sorted: std::collections::BTreeSet<&DataRef> = data_refs.into_iter().collect();
    serde_json::json!(sorted.iter().map(ToString::to_string).collect::<Vec<_>>()).to_string()
}

/// Returns the references in the value of an annotation. Invalid entries are left out. A text that is no list of strings has
/// none.
pub fn from_annotation(text: &str) -> Vec<DataRef> {
    let list: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    list.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_kind_value_belongs_to_its_kind() {
        let names = PerKind::new(SourceKind::as_str);
        for kind in SourceKind::ALL {
            assert_eq!(*names.get(kind), kind.as_str());
        }
        assert!(names.values().eq(SourceKind::ALL.map(SourceKind::as_str).iter()));
    }

    #[test]
    fn references_survive_the_annotation_with_configmaps_first() {
        let data_refs =
            [DataRef::secret("a"), DataRef::config_map("z"), DataRef::config_map("b.c"), DataRef::secret("a")];
        let text = to_annotation(&data_refs);
        assert_eq!(text, r#"["ConfigMap/b.c","ConfigMap/z","Secret/a"]"#);
        assert_eq!(to_annotation(&from_annotation(&text)), text);
    }

    #[test]
    fn annotation_with_invalid_references_drops_them() {
        assert!(from_annotation("not json").is_empty());
        assert!(from_annotation(r#"{"a":1}"#).is_empty());
        let odd = r#"["Pod/a","ConfigMap","Secret/../x","Secret/","Secret/A","Secret/-a","Secret/a..b","Secret/ok"]"#;
        assert_eq!(from_annotation(odd), [DataRef::secret("ok")]);
    }
}
