//! Uids in caches. Every object has one, and it is read only to compare two.

use std::fmt;

use crate::api::names;

/// Positions of the hyphens of a UUID, by the number of hexadecimal digits before them.
const HYPHENS: [usize; 4] = [8, 12, 16, 20];

/// A uid: the sixteen bytes of a UUID in the canonical form of API servers, else its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uid {
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl Uid {
    pub(super) fn of(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Text(text.into()), Self::Uuid)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self {
            Self::Uuid(bytes) => bytes,
            Self::Text(text) => return f.write_str(text),
        };
        for (nth, byte) in bytes.iter().enumerate() {
            if HYPHENS.contains(&(nth * 2)) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Returns the bytes of a UUID. Another spelling of the same number is another uid.
fn uuid(text: &str) -> Option<[u8; 16]> {
    if !names::is_uuid(text) {
        return None;
    }
    let mut digits = text.chars().filter_map(|c| c.to_digit(16));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = u8::try_from(digits.next()? * 16 + digits.next()?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_any_text_is_preserved() {
        let canonical = "1b8a1d44-6a3e-4c52-9d0a-3e0f5a6f7d21";
        assert!(matches!(Uid::of(canonical), Uid::Uuid(_)));
        let others = [
            "1B8A1D44-6A3E-4C52-9D0A-3E0F5A6F7D21",
            "1b8a1d446a3e4c529d0a3e0f5a6f7d21",
            "1b8a1d4-46a3e-4c52-9d0a-3e0f5a6f7d21",
            "+b8a1d44-6a3e-4c52-9d0a-3e0f5a6f7d21",
            "1b8a1d44-6a3e-4c52-9d0a-3e0f5a6f7d2",
            "1b8a1d44-6a3e-4c52-9d0a-3e0f5a6f7dé",
            "u",
            "",
        ];
        for text in others {
            assert!(matches!(Uid::of(text), Uid::Text(_)), "{text:?}");
            assert_ne!(Uid::of(text), Uid::of(canonical), "{text:?}");
        }
        for text in others.into_iter().chain([canonical]) {
            assert_eq!(Uid::of(text).to_string(), text);
        }
    }
}
