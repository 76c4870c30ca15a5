//! Errors of single fields, in Kubernetes' own kinds and words, and which of them an update adds.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use serde::Serialize;
use sha2::{Digest, Sha256};

/// Longest text of a user's that a message repeats, in characters.
const MAX_REPEATED: usize = 128;

/// Most errors that one answer names; a reader mends none beyond it at once, and the answer has a size.
const MAX_NAMED: usize = 100;

/// Most errors that are collected of one object. Beyond it nobody reads them, and they would only take memory.
pub const MAX_COLLECTED: usize = 4000;

/// Most supported values that a message lists.
const MAX_LISTED: usize = 20;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// What stands in a field: it tells errors apart that an update adds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Content {
    /// A text, of which the message repeats the beginning where its kind shows values.
    Text(String),
    /// The digest of something that no message repeats.
    Hidden(String),
    /// How much there is. An update that does not make it more adds nothing.
    Amount(usize),
}

impl Content {
    fn hidden(content: &impl Serialize) -> Self {
        // What comes from JSON can be written as such; all that could not would count as equal.
        let text = serde_json::to_vec(content).unwrap_or_default();
        Self::Hidden(format!("{:x}", Sha256::digest(text)))
    }
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Where.
    pub field: String,
    /// What stands there.
    content: Content,
    /// How to put it right.
    pub detail: String,
}

impl FieldError {
    fn new(kind: ErrorKind, path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, field: path.0.clone(), content: Content::Text(value.into()), detail: detail.into() }
    }

    /// The same about a `content` that the message does not repeat: another one there is another error.
    #[must_use]
    fn about(self, content: &impl Serialize) -> Self {
        Self { content: Content::hidden(content), ..self }
    }

    /// The same about an amount.
    fn counting(self, amount: usize) -> Self {
        Self { content: Content::Amount(amount), ..self }
    }

    /// The field must be given.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Required, path, "", detail)
    }

    /// The field cannot be what it is.
    pub fn invalid(path: &Path, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, value, detail)
    }

    /// The field cannot be what it is, which the message does not repeat.
    pub fn invalid_hidden(path: &Path, content: &impl Serialize, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, "", detail).about(content)
    }

    /// The same stands twice.
    pub fn duplicate(path: &Path, value: impl Into<String>) -> Self {
        Self::new(ErrorKind::Duplicate, path, value, "")
    }

    /// The field is none of `supported`.
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

    /// The field may not be given, or not by this user.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, path, "", detail)
    }

    /// The field may not be given; with another content it would be another error.
    pub fn forbidden_content(path: &Path, content: &impl Serialize, detail: impl Into<String>) -> Self {
        Self::forbidden(path, detail).about(content)
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

    /// The number that stands in the field is more than `limit`. An update that does not make it more adds nothing.
    pub fn too_large(path: &Path, number: i32, limit: i32) -> Self {
        let amount = usize::try_from(number).unwrap_or_default();
        Self::new(ErrorKind::Invalid, path, "", format!("{number}: want at most {limit}")).counting(amount)
    }

    /// All that stands in the field together, `bytes`, is more than `limit`.
    pub fn too_long_together(path: &Path, bytes: usize, limit: usize, detail: &str) -> Self {
        Self::too_long(path, "", limit, detail).counting(bytes)
    }

    /// There are more than `limit` items.
    pub fn too_many(path: &Path, count: usize, limit: usize, detail: &str) -> Self {
        let detail = format!("{count}: must have at most {limit} items: {detail}");
        Self::new(ErrorKind::TooMany, path, "", detail).counting(count)
    }

    /// Whether the field may be what it is cannot be told.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, path, "", detail)
    }

    /// The message without the field, as a cause carries it.
    pub fn message(&self) -> String {
        let value = match &self.content {
            Content::Text(value) if self.kind.shows_value() => format!(": {:?}", short(value)),
            _ => String::new(),
        };
        let detail = if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        format!("{}{value}{detail}", self.kind.words())
    }

    /// What an error is told by when list items have moved: the field without indices, and what stands there; not how much.
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

/// The errors of one object, up to so many.
#[derive(Debug, Default)]
pub struct Errors {
    list: Vec<FieldError>,
    /// Whether there were more.
    is_cut: bool,
}

impl Errors {
    /// One error more.
    pub fn push(&mut self, error: FieldError) {
        if self.list.len() < MAX_COLLECTED {
            self.list.push(error);
        } else {
            self.is_cut = true;
        }
    }

    /// Only those that an update adds to `old`: as many of each as there are more, and an amount only when it has grown.
    /// Items of a list may have moved, so what stands at the same place is taken for the old one first.
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

    /// All of them. Where there were more than are collected, nobody has compared the rest, and that is an error too.
    pub fn into_vec(self, path: &Path) -> Vec<FieldError> {
        let mut list = self.list;
        if self.is_cut {
            let why = format!("more than {MAX_COLLECTED} things are wrong here; the rest was not looked at");
            list.push(FieldError::forbidden(path, why));
        }
        list
    }
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
#[path = "field_tests.rs"]
mod tests;
