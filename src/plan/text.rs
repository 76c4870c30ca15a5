//! Texts of bounded length for users. They contain words of others: names of variables, messages of API servers. All conditions,
//! and all annotations with texts, use this type, so that none exceeds the limits of an object.

use std::{fmt, ops::Deref};

use serde::{Serialize, Serializer};

/// Maximum length in characters. It is enough for a sentence per city, and far below the 32768 of the schema.
const MAX_TEXT: usize = 2048;
/// Maximum length in bytes. With escaped quotes and a reason, the text takes less than 8 KiB of an annotation.
const MAX_BYTES: usize = 6 << 10;
/// Maximum length of a repeated name, in bytes. A longer name names no object.
const MAX_NAME: usize = 300;

/// A text that is cut when it is created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundedText(String);

impl BoundedText {
    /// Returns the text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl BoundedText {
    /// Replaces control characters. JSON encodes each of them as six characters.
    fn readable(text: String) -> Self {
        let is_noise = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        Self(if text.contains(is_noise) { text.replace(is_noise, " ") } else { text })
    }
}

impl From<String> for BoundedText {
    fn from(text: String) -> Self {
        // A text with at most that many bytes has at most that many characters.
        if text.len() <= MAX_TEXT {
            return Self::readable(text);
        }
        let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(at, _)| at);
        if end == text.len() && end <= MAX_BYTES {
            return Self::readable(text);
        }
        let end = text.char_indices().nth(MAX_TEXT - 1).map_or(text.len(), |(at, _)| at);
        let end = text.floor_char_boundary(end.min(MAX_BYTES - "…".len()));
        Self::readable(format!("{}…", &text[..end]))
    }
}

impl From<&str> for BoundedText {
    fn from(text: &str) -> Self {
        // Avoids the copy of a text of megabytes. One character more shows that the text is cut.
        Self::from(text[..text.floor_char_boundary((MAX_TEXT + 1) * 4)].to_owned())
    }
}

impl Deref for BoundedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BoundedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for BoundedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Returns the beginning of a name that a tenant chose, for a text that contains more than the name.
pub fn name(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    format!("{}…", &name[..name.floor_char_boundary(MAX_NAME)])
}

/// The first of some items, and how many more there are.
pub fn named(items: &[String], most: usize) -> String {
    let named: Vec<&str> = items.iter().take(most).map(String::as_str).collect();
    match items.len().saturating_sub(most) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_too_long_is_cut_at_a_character_boundary(unit in "[a-zü€𝄞\"]{1,3}", times in 0usize..9000) {
            let text = unit.repeat(times);
            let cut = BoundedText::from(text.clone());
            prop_assert!(cut.chars().count() <= MAX_TEXT && cut.len() <= MAX_BYTES);
            prop_assert!(serde_json::to_string(&cut).unwrap().len() < 8000);
            if let Some(kept) = cut.strip_suffix('…') {
                prop_assert!(text.starts_with(kept) && text.len() > kept.len());
            } else {
                prop_assert_eq!(&*cut, &*text);
            }
            prop_assert_eq!(BoundedText::from(&*text), cut);
        }
    }

    #[test]
    fn text_control_characters_become_blanks() {
        let text = BoundedText::from("a\u{1}b\n\u{85}".repeat(3000));
        assert!(serde_json::to_string(&text).unwrap().len() < 8000 && text.starts_with("a b\n a b\n "));
    }

    #[test]
    fn text_within_the_limit_is_unchanged() {
        let text = "ü".repeat(MAX_TEXT);
        assert_eq!(&*BoundedText::from(text.clone()), text);
        assert_eq!(BoundedText::from(text + "ü").chars().count(), MAX_TEXT);
        assert_eq!(name(&"x".repeat(MAX_NAME)).len(), MAX_NAME);
        assert_eq!(name(&"x".repeat(250 << 10)).len(), MAX_NAME + "…".len());
    }
}
