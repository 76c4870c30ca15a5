//! Forms of texts that fields may have, as Kubernetes checks them.

use base64::{Engine, prelude::BASE64_STANDARD};

use super::field::{Errors, FieldError, Path};
use crate::api::{names, referenced::DataRef};

/// What the value of a label is, in words.
pub const LABEL_VALUE: &str =
    "a label's value has at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";

/// Longest name of a port.
const MAX_PORT_NAME: usize = 15;

/// Longest prefix of a label's or annotation's key.
const MAX_PREFIX: usize = 253;

/// Kinds of public keys that an `authorized_keys` line may begin with.
const KEY_TYPES: [&str; 8] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ssh-dss",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// Says that a name is missing, too long or no DNS label.
pub fn dns_label(path: &Path, name: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, "give it a name"));
    } else if name.len() > names::MAX_LABEL {
        errors.push(FieldError::too_long(path, name, names::MAX_LABEL, ""));
    } else if let Err(why) = names::dns_label(name) {
        errors.push(FieldError::invalid(path, name, why));
    }
}

/// Says that a text is missing, or cannot be the value of a label.
pub fn label_value(path: &Path, text: &str, errors: &mut Errors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, "every Instance has it as a label's value"));
    } else if text.len() > names::MAX_LABEL {
        errors.push(FieldError::too_long(path, text, names::MAX_LABEL, "it is a label's value on every Instance"));
    } else if !is_label_value(text) {
        errors.push(FieldError::invalid(path, text, LABEL_VALUE));
    }
}

/// Says that a reference has no name, or none that an object could have, or one that is too long to be carried.
pub fn source_name(path: &Path, data_ref: &DataRef, errors: &mut Errors) {
    use crate::plan::references::NameFlaw;
    match data_ref.name.as_str() {
        "" => errors.push(FieldError::required(path, "name the object")),
        name => match crate::plan::references::name_flaw(data_ref) {
            None => {}
            Some(NameFlaw::TooLong { limit }) => errors.push(FieldError::too_long(
                path,
                name,
                limit,
                "on its way to the cells its name gets an ending: rename the object",
            )),
            Some(NameFlaw::NoName) => errors.push(FieldError::invalid(
                path,
                name,
                format!("no {} can have this name: it must be a DNS subdomain in lower case", data_ref.kind.as_str()),
            )),
        },
    }
}

/// What is wrong with the name of a port: an IANA service name.
pub fn port_name(name: &str) -> Option<&'static str> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(inner) {
        Some("must consist of lower case letters, digits and '-'")
    } else if !name.chars().any(|c| c.is_ascii_lowercase()) {
        Some("must contain a letter")
    } else if name.len() > MAX_PORT_NAME {
        Some("must have at most 15 characters")
    } else if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        Some("must not begin or end with '-' nor have two of them in a row")
    } else {
        None
    }
}

/// Whether a text may be the beginning of the name of a variable in C, and so of one in an environment.
pub fn is_c_identifier(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// What is wrong with the key of a label or an annotation.
pub fn qualified_name(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| prefix.len() > MAX_PREFIX || !DataRef::config_map(prefix).is_valid()) {
        return Some("what stands before '/' must be a DNS subdomain in lower case");
    }
    if name.is_empty() || !is_label_value(name) {
        return Some("must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends");
    }
    None
}

/// Whether a text may be the value of a label.
pub fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= names::MAX_LABEL
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && edge(text.chars().next())
        && edge(text.chars().last())
}

/// What is wrong with a path below a volume.
pub fn relative_path(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        Some("must be a relative path")
    } else if path.split('/').any(|part| part == "..") {
        Some("must not contain '..'")
    } else {
        None
    }
}

/// Whether a text is a public key as an `authorized_keys` file has it: options may stand before it, a comment after it.
pub fn is_authorized_key(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).any(|pair| KEY_TYPES.contains(&pair[0]) && is_key_of_type(pair[1], pair[0]))
}

/// A public key in base64 begins with the length and the name of its type, and goes on with the key.
fn is_key_of_type(encoded: &str, name: &str) -> bool {
    let Ok(key) = BASE64_STANDARD.decode(encoded) else { return false };
    let Some((length, rest)) = key.split_first_chunk::<4>() else { return false };
    let length = u32::from_be_bytes(*length);
    usize::try_from(length).is_ok_and(|length| length == name.len())
        && rest.starts_with(name.as_bytes())
        && rest.len() > name.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (name, good) in [
            ("http", true),
            ("8080", false),
            ("h--p", false),
            ("-h", false),
            ("Http", false),
            ("a234567890123456", false),
        ] {
            assert_eq!(port_name(name).is_none(), good, "{name}");
        }
        for (prefix, good) in [("DB_", true), ("_", true), ("1", false), ("", false), ("a-b", false)] {
            assert_eq!(is_c_identifier(prefix), good, "{prefix}");
        }
        for (key, good) in [
            ("app", true),
            ("example.com/app", true),
            ("", false),
            ("example.com/", false),
            ("/app", false),
            ("Example.com/app", false),
            ("a/b/c", false),
            ("-a", false),
        ] {
            assert_eq!(qualified_name(key).is_none(), good, "{key}");
        }
        for (path, good) in [("a/b", true), ("a/..b", true), ("/a", false), ("a/../b", false), ("..", false)] {
            assert_eq!(relative_path(path).is_none(), good, "{path}");
        }
    }

    #[test]
    fn public_keys() {
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1vmw8eC7iFsS1rKzBBkOuXrhWPDNlD1cHLWS7lHEYf";
        for (text, good) in [
            (key.to_owned(), true),
            (format!("{key} me@home"), true),
            (format!("no-pty,command=\"a b\" {key} me"), true),
            (key.replace("ssh-ed25519 ", "ssh-rsa "), false),
            ("ssh-ed25519 AAAA".into(), false),
            ("ssh-ed25519".into(), false),
            ("ssh-ed25519 !!!".into(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_authorized_key(&text), good, "{text}");
        }
    }
}
