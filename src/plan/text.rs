//! Text for people, of bounded length. What others write goes into it: names of variables, words of API servers. So every
//! condition, and every annotation that carries words, is made with it, and none can grow beyond what an object may hold.

use std::{fmt, ops::Deref};

use serde::{Serialize, Serializer};

/// Longest text, in characters: enough for a sentence per city, far below the schema's 32768.
const MAX_TEXT: usize = 2048;
/// The same in bytes. With its quotes escaped and a reason beside it, a text takes less than 8 KiB of an annotation.
const MAX_BYTES: usize = 6 << 10;
/// Longest name that a text repeats, in bytes. Longer ones are names of nothing.
const MAX_NAME: usize = 300;

/// A text that is cut where it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundedText(String);

impl BoundedText {
    /// The text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl BoundedText {
    /// The same as one that people can read: JSON writes each of these characters as six.
    fn readable(text: String) -> Self {
        let is_noise = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        Self(if text.contains(is_noise) { text.replace(is_noise, " ") } else { text })
    }
}

impl From<String> for BoundedText {
    fn from(text: String) -> Self {
        // What has no more bytes than characters are allowed is short enough without a count.
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
        // A text of megabytes is not copied for its beginning. One character more shows that something follows.
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

/// The beginning of a name that a tenant chose, for a text with more than that name in it.
pub fn name(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    format!("{}…", &name[..name.floor_char_boundary(MAX_NAME)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_of_any_length_is_cut_at_a_character(unit in "[a-zü€𝄞\"]{1,3}", times in 0usize..9000) {
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
    fn text_control_characters_are_blanks() {
        let text = BoundedText::from("a\u{1}b\n\u{85}".repeat(3000));
        assert!(serde_json::to_string(&text).unwrap().len() < 8000 && text.starts_with("a b\n a b\n "));
    }

    #[test]
    fn text_within_the_limit_stays_as_it_is() {
        let text = "ü".repeat(MAX_TEXT);
        assert_eq!(&*BoundedText::from(text.clone()), text);
        assert_eq!(BoundedText::from(text + "ü").chars().count(), MAX_TEXT);
        assert_eq!(name(&"x".repeat(MAX_NAME)).len(), MAX_NAME);
        assert_eq!(name(&"x".repeat(250 << 10)).len(), MAX_NAME + "…".len());
    }
}
