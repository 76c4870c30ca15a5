//! Errors of single fields, with Kubernetes' kinds and words, and the selection of those that an update adds.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use serde::Serialize;
use sha2::{Digest, Sha256};

/// Longest user's text that a message repeats, in characters.
const MAX_REPEATED: usize = 128;

/// Most errors in one response. A reader needs no more, and the response has a size limit.
const MAX_NAMED: usize = 100;

/// Most errors collected for one object. A reader needs no more, and they take memory.
pub const MAX_COLLECTED: usize = 4000;

/// Most supported values that a message lists.
const MAX_LISTED: usize = 20;

/// Path of a field, as Kubernetes writes it: `spec.placements[0].cityCodes[1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// Makes the path of a field of the object itself.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the path of a field inside.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// Returns the path of a list item.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Returns the path of a map entry.
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

/// Kind of a field error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// It must be set.
    Required,
    /// Its value is invalid.
    Invalid,
    /// It must be unique.
    Duplicate,
    /// The value is not a supported one.
    NotSupported,
    /// It may not be set, or not by this user.
    Forbidden,
    /// The object that it names does not exist.
    NotFound,
    /// It is too long.
    TooLong,
    /// It has too many items.
    TooMany,
    /// Its validity is not known.
    Internal,
}

impl ErrorKind {
    /// Returns the reason of the cause in the API server's answer.
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

    /// True if the message repeats the value.
    fn shows_value(self) -> bool {
        matches!(self, Self::Invalid | Self::Duplicate | Self::NotSupported | Self::NotFound)
    }
}

/// Content of a field. It identifies the errors that an update adds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Content {
    /// A text. The message repeats its beginning if its kind shows values.
    Text(String),
    /// The digest of a content that no message repeats.
    Hidden(String),
    /// An amount. An update that does not increase it adds no error.
    Amount(usize),
}

impl Content {
    fn hidden(content: &impl Serialize) -> Self {
        // Content from JSON always serialises. Contents that do not would count as equal.
        let text = serde_json::to_vec(content).unwrap_or_default();
        Self::Hidden(format!("{:x}", Sha256::digest(text)))
    }
}

/// One error of one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldError {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Path of the field.
    pub field: String,
    /// Content of the field.
    content: Content,
    /// How to fix it.
    pub detail: String,
}

impl FieldError {
    fn new(kind: ErrorKind, path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, field: path.0.clone(), content: Content::Text(value.into()), detail: detail.into() }
    }

    /// Returns the error with a `content` that the message does not repeat: another content is another error.
    #[must_use]
    fn about(self, content: &impl Serialize) -> Self {
        Self { content: Content::hidden(content), ..self }
    }

    /// Returns the error with an amount.
    fn counting(self, amount: usize) -> Self {
        Self { content: Content::Amount(amount), ..self }
    }

    /// Reports a missing field.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Required, path, "", detail)
    }

    /// Reports an invalid value.
    pub fn invalid(path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, value, detail)
    }

    /// Reports an invalid value that the message does not repeat.
    pub fn invalid_hidden(path: &Path, content: &impl Serialize, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, "", detail).about(content)
    }

    /// Reports a value that occurs twice.
    pub fn duplicate(path: &Path, value: impl Into<String>) -> Self {
        Self::new(ErrorKind::Duplicate, path, value, "")
    }

    /// Reports a value that is not in `supported`.
    pub fn not_supported(path: &Path, value: impl Into<String>, supported: &[impl AsRef<str>]) -> Self {
        let list: Vec<String> =
            supported.iter().take(MAX_LISTED).map(|value| format!("{:?}", value.as_ref())).collect();
        let list = if list.is_empty() { "none".into() } else { list.join(", ") };
        let more = match supported.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Self::new(ErrorKind::NotSupported, path, value, format!("supported values: {list}{more}"))
    }

    /// Reports a field that may not be set, or not by this user.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, path, "", detail)
    }

    /// Reports a field that may not be set; another content is another error.
    pub fn forbidden_content(path: &Path, content: &impl Serialize, detail: impl Into<String>) -> Self {
        Self::forbidden(path, detail).about(content)
    }

    /// Reports that the object that the field names does not exist.
    pub fn not_found(path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, path, value, detail)
    }

    /// Reports a value of more than `limit` bytes.
    pub fn too_long(path: &Path, value: impl Into<String>, limit: usize, detail: &str) -> Self {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        Self::new(ErrorKind::TooLong, path, value, format!("may not be more than {limit} bytes{detail}"))
    }

    /// Reports a number over `limit`. An update that does not increase it adds no error.
    pub fn too_large(path: &Path, number: i32, limit: i32) -> Self {
        let amount = usize::try_from(number).unwrap_or_default();
        Self::new(ErrorKind::Invalid, path, "", format!("{number}: want at most {limit}")).counting(amount)
    }

    /// Reports a content of `bytes` in total, over `limit`.
    pub fn too_long_together(path: &Path, bytes: usize, limit: usize, detail: &str) -> Self {
        Self::too_long(path, "", limit, detail).counting(bytes)
    }

    /// Reports more than `limit` items.
    pub fn too_many(path: &Path, count: usize, limit: usize, detail: &str) -> Self {
        let detail = format!("{count}: must have at most {limit} items: {detail}");
        Self::new(ErrorKind::TooMany, path, "", detail).counting(count)
    }

    /// Reports a field of unknown validity.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, path, "", detail)
    }

    /// Returns the message without the field, as in a cause.
    pub fn message(&self) -> String {
        let value = match &self.content {
            Content::Text(value) if self.kind.shows_value() => format!(": {:?}", short(value)),
            _ => String::new(),
        };
        let detail = if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        format!("{}{value}{detail}", self.kind.words())
    }

    /// Returns the key that identifies an error after list items have moved: the field without indices, and its content without
    /// the amount.
    fn identity(&self) -> Identity {
        let mut field = String::new();
        let mut parts = self.field.split('[');
        field.extend(parts.next());
        for part in parts {
            let is_index = part.split(']').next().is_some_and(|inner| inner.bytes().all(|b| b.is_ascii_digit()));
            let rest = part.split_once(']').map_or("", |(_, rest)| rest);
            field.push('[');
            field.push_str(if is_index { rest } else { part });
        }
        let content = match &self.content {
            Content::Amount(_) => Content::Amount(0),
            content => content.clone(),
        };
        (self.kind, field, content)
    }

    fn amount(&self) -> usize {
        match self.content {
            Content::Amount(amount) => amount,
            _ => 0,
        }
    }
}

/// See [`FieldError::identity`].
type Identity = (ErrorKind, String, Content);

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// Errors of one object, at most [`MAX_COLLECTED`].
#[derive(Debug, Default)]
pub struct Errors {
    list: Vec<FieldError>,
    /// True if there were more.
    is_cut: bool,
}

impl Errors {
    /// Adds an error.
    pub fn push(&mut self, error: FieldError) {
        if self.list.len() < MAX_COLLECTED {
            self.list.push(error);
        } else {
            self.is_cut = true;
        }
    }

    /// Returns only the errors that an update adds to `old`: for each identity the surplus, and an amount only if it has grown.
    /// Items of a list may have moved, so an equal error at the same place is matched first.
    #[must_use]
    pub fn added_to(self, old: &Self) -> Self {
        let mut known: BTreeMap<Identity, (usize, usize)> = BTreeMap::new();
        for error in &old.list {
            let (count, amount) = known.entry(error.identity()).or_default();
            *count += 1;
            *amount = error.amount().max(*amount);
        }
        let before: HashSet<&FieldError> = old.list.iter().collect();
        let (same, moved): (Vec<_>, Vec<_>) =
            self.list.into_iter().enumerate().partition(|(_, error)| before.contains(error));
        let mut added = Vec::new();
        for (index, error) in same.into_iter().chain(moved) {
            let amount = error.amount();
            match known.get_mut(&error.identity()).filter(|(left, most)| *left > 0 && amount <= *most) {
                Some((left, _)) => *left -= 1,
                None => added.push((index, error)),
            }
        }
        added.sort_by_key(|(index, _)| *index);
        Self { list: added.into_iter().map(|(_, error)| error).collect(), is_cut: self.is_cut }
    }

    /// Returns all errors. If some were not collected, the rest was not compared, and that is an error too.
    pub fn into_vec(self, path: &Path) -> Vec<FieldError> {
        let mut list = self.list;
        if self.is_cut {
            let why = format!("more than {MAX_COLLECTED} errors here; the rest was not checked");
            list.push(FieldError::forbidden(path, why));
        }
        list
    }
}

/// Returns the errors in one text: a single one unchanged, several as Kubernetes lists them.
pub fn joined(errors: &[FieldError]) -> String {
    let named: Vec<String> = errors.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = errors.len().saturating_sub(MAX_NAMED);
    match (named.as_slice(), more) {
        ([one], 0) => one.clone(),
        (all, 0) => format!("[{}]", all.join(", ")),
        (all, more) => format!("[{}, and {more} more]", all.join(", ")),
    }
}

/// Returns the errors that a response lists.
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
#[path = "field_tests.rs"]
mod tests;
