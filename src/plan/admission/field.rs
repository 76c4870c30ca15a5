//! Errors of single fields, in Kubernetes' own kinds and words, and which of them an update adds.

use std::{collections::BTreeMap, fmt};

/// Longest text of a user's that a message repeats, in characters.
const MAX_REPEATED: usize = 128;

/// Most errors that one answer names; a reader mends none beyond it at once, and the answer has a size.
const MAX_NAMED: usize = 100;

/// Where a field stands, as Kubernetes writes it: `spec.placements[0].cityCodes[1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// A field of the object itself.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// A field inside.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// An item of a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{}]", self.0, short(key)))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// It must be given.
    Required,
    /// It cannot be what it is.
    Invalid,
    /// It must be unique.
    Duplicate,
    /// It is none of the values that it may have.
    NotSupported,
    /// It may not be given, or not by this user.
    Forbidden,
    /// What it names is not there.
    NotFound,
    /// It is longer than it may be.
    TooLong,
    /// It has more items than it may have.
    TooMany,
    /// Whether it may be cannot be told.
    Internal,
}

impl ErrorKind {
    /// The reason of the cause in the API server's answer.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::Duplicate => "Duplicate value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    /// Whether the message repeats the value.
    fn shows_value(self) -> bool {
        matches!(self, Self::Invalid | Self::Duplicate | Self::NotSupported | Self::NotFound)
    }
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Where.
    pub field: String,
    /// What stands there. It tells errors apart that an update adds; the message repeats its beginning.
    value: String,
    /// How to put it right.
    pub detail: String,
}

impl FieldError {
    fn new(kind: ErrorKind, path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, field: path.0.clone(), value: value.into(), detail: detail.into() }
    }

    /// The field must be given.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Required, path, "", detail)
    }

    /// The field cannot be what it is.
    pub fn invalid(path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, value, detail)
    }

    /// The same stands twice.
    pub fn duplicate(path: &Path, value: impl Into<String>) -> Self {
        Self::new(ErrorKind::Duplicate, path, value, "")
    }

    /// The field is none of `supported`.
    pub fn not_supported(path: &Path, value: impl Into<String>, supported: &[impl AsRef<str>]) -> Self {
        let list: Vec<String> = supported.iter().map(|value| format!("{:?}", value.as_ref())).collect();
        let list = if list.is_empty() { "none".into() } else { list.join(", ") };
        Self::new(ErrorKind::NotSupported, path, value, format!("supported values: {list}"))
    }

    /// The field may not be given.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, path, "", detail)
    }

    /// What the field names is not there.
    pub fn not_found(path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, path, value, detail)
    }

    /// The field has more than `limit` bytes.
    pub fn too_long(path: &Path, value: impl Into<String>, limit: usize, detail: &str) -> Self {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        Self::new(ErrorKind::TooLong, path, value, format!("may not be more than {limit} bytes{detail}"))
    }

    /// There are more than `limit` items.
    pub fn too_many(path: &Path, count: usize, limit: usize, detail: &str) -> Self {
        Self::new(ErrorKind::TooMany, path, "", format!("{count}: must have at most {limit} items: {detail}"))
    }

    /// Whether the field may be what it is cannot be told.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, path, "", detail)
    }

    /// The message without the field, as a cause carries it.
    pub fn message(&self) -> String {
        let value = if self.kind.shows_value() { format!(": {:?}", short(&self.value)) } else { String::new() };
        let detail = if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        format!("{}{value}{detail}", self.kind.words())
    }

    /// What an error is told by when list items have moved: the field without indices, and what stands there.
    fn identity(&self) -> (ErrorKind, String, String) {
        let mut field = String::new();
        let mut parts = self.field.split('[');
        field.extend(parts.next());
        for part in parts {
            let is_index = part.split(']').next().is_some_and(|inner| inner.bytes().all(|b| b.is_ascii_digit()));
            let rest = part.split_once(']').map_or("", |(_, rest)| rest);
            field.push('[');
            field.push_str(if is_index { rest } else { part });
        }
        (self.kind, field, self.value.clone())
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// The errors that an update adds to those that were there: as many of each as there are more. Items of a list may have
/// moved, so what stands at the same place is taken for the old one first.
pub fn added(old: &[FieldError], new: Vec<FieldError>) -> Vec<FieldError> {
    let mut known: BTreeMap<(ErrorKind, String, String), usize> = BTreeMap::new();
    for error in old {
        *known.entry(error.identity()).or_default() += 1;
    }
    let (same, moved): (Vec<_>, Vec<_>) = new.into_iter().enumerate().partition(|(_, error)| old.contains(error));
    let mut added = Vec::new();
    for (index, error) in same.into_iter().chain(moved) {
        match known.get_mut(&error.identity()).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None => added.push((index, error)),
        }
    }
    added.sort_by_key(|(index, _)| *index);
    added.into_iter().map(|(_, error)| error).collect()
}

/// The errors in one text: `one` as it is, several as Kubernetes lists them.
pub fn joined(errors: &[FieldError]) -> String {
    let named: Vec<String> = errors.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = errors.len().saturating_sub(MAX_NAMED);
    match (named.as_slice(), more) {
        ([one], 0) => one.clone(),
        (all, 0) => format!("[{}]", all.join(", ")),
        (all, more) => format!("[{}, and {more} more]", all.join(", ")),
    }
}

/// The errors that an answer names one by one.
pub fn named(errors: &[FieldError]) -> &[FieldError] {
    &errors[..errors.len().min(MAX_NAMED)]
}

fn short(text: &str) -> String {
    if text.chars().count() <= MAX_REPEATED {
        return text.to_owned();
    }
    text.chars().take(MAX_REPEATED).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_kubernetes_writes_them() {
        let path = Path::new("spec").child("placements").index(0).child("cityCodes").index(1);
        for (error, text) in [
            (FieldError::required(&path, "give it"), "Required value: give it"),
            (FieldError::invalid(&path, "x\"", "no"), "Invalid value: \"x\\\"\": no"),
            (FieldError::duplicate(&path, "a"), "Duplicate value: \"a\""),
            (
                FieldError::not_supported(&path, "c", &["a", "b"]),
                "Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ),
            (FieldError::not_supported(&path, "c", &[""; 0]), "Unsupported value: \"c\": supported values: none"),
            (FieldError::forbidden(&path, "no"), "Forbidden: no"),
            (FieldError::not_found(&path, "a", ""), "Not found: \"a\""),
            (FieldError::too_long(&path, "aaaa", 3, ""), "Too long: may not be more than 3 bytes"),
            (FieldError::too_many(&path, 4, 3, "use less"), "Too many: 4: must have at most 3 items: use less"),
            (FieldError::internal(&path, "away"), "Internal error: away"),
        ] {
            assert_eq!(error.to_string(), format!("spec.placements[0].cityCodes[1]: {text}"));
        }
        assert_eq!(Path::new("a").key("b/c").to_string(), "a[b/c]");
        assert!(FieldError::invalid(&path, "ü".repeat(5000), "no").to_string().chars().count() < 300);
    }

    #[test]
    fn an_update_is_charged_with_what_it_adds() {
        let at = |index, value: &str| FieldError::invalid(&Path::new("l").index(index).key("k"), value, "no");
        let old = [at(0, "a"), at(1, "b"), at(2, "b")];
        for (new, expected) in [
            (vec![at(0, "a")], vec![]),
            // Moved, and one of them gone.
            (vec![at(0, "b"), at(1, "b")], vec![]),
            (vec![at(0, "a"), at(1, "b"), at(2, "b"), at(3, "b")], vec![at(3, "b")]),
            (vec![at(0, "b"), at(1, "b"), at(2, "b")], vec![at(0, "b")]),
            (vec![at(0, "c")], vec![at(0, "c")]),
        ] {
            assert_eq!(added(&old, new), expected);
        }
        let other_key = FieldError::invalid(&Path::new("l").index(0).key("other"), "a", "no");
        assert_eq!(added(&old, vec![other_key.clone()]), [other_key]);
        let other_kind = FieldError::duplicate(&Path::new("l").index(0).key("k"), "a");
        assert_eq!(added(&old, vec![other_kind.clone()]), [other_kind]);
    }

    #[test]
    fn one_answer_names_so_many_and_counts_the_rest() {
        let errors: Vec<FieldError> = (0..130).map(|i| FieldError::duplicate(&Path::new("l").index(i), "x")).collect();
        assert!(joined(&errors).ends_with("and 30 more]"));
        assert_eq!(named(&errors).len(), 100);
        assert_eq!(joined(&errors[..1]), errors[0].to_string());
        assert!(joined(&errors[..2]).starts_with("[l[0]: "));
    }
}
