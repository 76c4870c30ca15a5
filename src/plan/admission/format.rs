//! Formats of texts in fields, as Kubernetes checks them.

use std::net::IpAddr;

use base64::{Engine, prelude::BASE64_STANDARD};

use super::field::{Errors, FieldError, Path};
use crate::api::{names, referenced::DataRef};

/// Description of a label value in messages.
pub const LABEL_VALUE: &str =
    "a label's value has at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";

/// Valid port numbers.
pub const PORTS: std::ops::RangeInclusive<i64> = 1..=65535;

/// Kubernetes' message about a port number.
pub const PORT: &str = "must be between 1 and 65535, inclusive";

/// Longest key of a ConfigMap or Secret.
const MAX_DATA_KEY: usize = 253;

/// Longest name of a port.
const MAX_PORT_NAME: usize = 15;

/// Longest prefix of a label's or annotation's key.
const MAX_PREFIX: usize = 253;

/// Types of public keys in an `authorized_keys` line.
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

/// Reports a name that is missing, too long or no DNS label.
pub fn dns_label(path: &Path, name: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, "give it a name"));
    } else if name.len() > names::MAX_LABEL {
        errors.push(FieldError::too_long(path, name, names::MAX_LABEL, ""));
    } else if let Err(why) = names::dns_label(name) {
        errors.push(FieldError::invalid(path, name, why));
    }
}

/// Reports a text that is missing, or cannot be the value of a label.
pub fn label_value(path: &Path, text: &str, errors: &mut Errors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, "every Instance has it as a label's value"));
    } else if text.len() > names::MAX_LABEL {
        errors.push(FieldError::too_long(path, text, names::MAX_LABEL, "it is a label's value on every Instance"));
    } else if !is_label_value(text) {
        errors.push(FieldError::invalid(path, text, LABEL_VALUE));
    }
}

/// Reports a reference with a name that is missing, invalid, or too long to be copied.
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
                "Karmada appends to its name: rename the object",
            )),
            Some(NameFlaw::InEveryNamespace) => errors.push(FieldError::invalid(
                path,
                name,
                "every cluster writes a ConfigMap of this name, with its own content, into every namespace, and a copy would \
                 replace the cell's: copy it under another name",
            )),
            Some(NameFlaw::NoName) => errors.push(FieldError::invalid(
                path,
                name,
                format!("no {} can have this name: it must be a DNS subdomain in lower case", data_ref.kind.as_str()),
            )),
        },
    }
}

/// Returns the flaw in the name of a port: an IANA service name.
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

/// True if a text is a C identifier, and so may begin the name of an environment variable.
pub fn is_c_identifier(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// Returns the flaw in the key of a label or an annotation.
pub fn qualified_name(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| prefix.len() > MAX_PREFIX || !DataRef::config_map(prefix).is_valid()) {
        return Some("the part before '/' must be a DNS subdomain in lower case");
    }
    if name.is_empty() || !is_label_value(name) {
        return Some("must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends");
    }
    None
}

/// True if a text may be the value of a label.
pub fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= names::MAX_LABEL
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && edge(text.chars().next())
        && edge(text.chars().last())
}

/// Returns the flaw in a path below a volume.
pub fn relative_path(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        Some("must be a relative path")
    } else if path.split('/').any(|part| part == "..") {
        Some("must not contain '..'")
    } else if path.starts_with("..") {
        // Kubelets keep internal files under such names.
        Some("must not start with '..'")
    } else {
        None
    }
}

/// Returns the flaw in a variable's name; Kubernetes 1.34 and later accept everything else.
pub fn env_name(name: &str) -> Option<&'static str> {
    let is_good = |c: char| c != '=' && (' '..='~').contains(&c);
    (name.is_empty() || !name.chars().all(is_good))
        .then_some("a valid environment variable name must consist only of printable ASCII characters other than '='")
}

/// Returns the flaw in an image's name: it may not contain whitespace anywhere.
pub fn image(name: &str) -> Option<&'static str> {
    if name.trim() != name {
        Some("must not have leading or trailing whitespace")
    } else if !name.chars().all(|c| c.is_ascii_graphic()) {
        Some("must consist of printable ASCII characters without whitespace")
    } else {
        None
    }
}

/// Reports a key that is missing, or that no ConfigMap or Secret can have.
pub fn config_map_key(path: &Path, key: &str, errors: &mut Errors) {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if key.is_empty() {
        errors.push(FieldError::required(path, "name the key"));
    } else if key.len() > MAX_DATA_KEY {
        errors.push(FieldError::too_long(path, key, MAX_DATA_KEY, "no key is longer"));
    } else if !key.chars().all(is_good) {
        let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(FieldError::invalid(path, key, why));
    } else if key == "." {
        errors.push(FieldError::invalid(path, key, "must not be '.'"));
    } else if key.starts_with("..") {
        errors.push(FieldError::invalid(path, key, "must not start with '..'"));
    }
}

/// A range of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Number of bits in an address of its family.
    bits: u32,
    address: u128,
    prefix: u32,
}

impl Cidr {
    /// Parses `10.9.8.0/24` or `2001:db8::/64`. Bits behind the prefix may be set, as in a NetworkPolicy. Leading zeros of a
    /// number may not, because programs interpret them differently.
    ///
    /// # Errors
    /// The flaw, in Kubernetes' words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        let (address, prefix) = text.split_once('/').ok_or(FORM)?;
        let (address, bits) = match address.parse::<IpAddr>().map_err(|_| FORM)? {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
                return Err("must not have an IPv4-mapped IPv6 address");
            }
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let is_number = prefix.bytes().all(|b| b.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
        let prefix = prefix.parse::<u32>().ok().filter(|prefix| is_number && *prefix <= bits).ok_or(FORM)?;
        Ok(Self { bits, address, prefix })
    }

    /// True if the other range is a part of this one, and not all of it.
    pub fn has_strictly(self, other: Self) -> bool {
        let differs = (self.address ^ other.address).checked_shr(self.bits - self.prefix).unwrap_or_default();
        self.bits == other.bits && self.prefix < other.prefix && differs == 0
    }
}

/// True if a text is a public key as in an `authorized_keys` file, with optional options before it and a comment after it.
pub fn is_authorized_key(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).any(|pair| KEY_TYPES.contains(&pair[0]) && is_key_of_type(pair[1], pair[0]))
}

/// True if a key in base64 begins with the length and the name of this type, followed by the key.
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
    fn names_keys_and_paths_are_accepted_as_in_kubernetes() {
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
        for (path, good) in [
            ("a/b", true),
            ("a/..b", true),
            ("a/..data/x", true),
            (".a", true),
            ("a//b/", true),
            (".", true),
            ("/a", false),
            ("a/../b", false),
            ("a/..", false),
            ("..", false),
            ("..data", false),
            ("...", false),
            ("..data/x", false),
        ] {
            assert_eq!(relative_path(path).is_none(), good, "{path}");
        }
    }

    #[test]
    fn cidr_is_parsed_as_in_network_policies() {
        for (text, good) in [
            ("10.0.0.0/8", true),
            ("10.9.8.7/8", true),
            ("0.0.0.0/0", true),
            ("::/0", true),
            ("2001:db8::/128", true),
            ("10.0.0.0", false),
            ("10.0.0.0/33", false),
            ("10.0.0.0/-1", false),
            ("10.0.0.0/+8", false),
            ("10.0.0.0/08", false),
            ("010.0.0.0/8", false),
            ("10.0.0/8", false),
            ("::ffff:10.0.0.0/120", false),
            ("fe80::1%eth0/64", false),
            ("2001:db8::/129", false),
            (" 10.0.0.0/8", false),
            ("", false),
        ] {
            assert_eq!(Cidr::parse(text).is_ok(), good, "{text}");
        }
        for (range, hole, good) in [
            ("10.0.0.0/16", "10.0.3.0/24", true),
            ("0.0.0.0/0", "255.0.0.0/8", true),
            ("::/0", "ff00::/8", true),
            ("10.0.0.0/16", "10.0.0.0/16", false),
            ("10.0.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/16", "10.1.0.0/24", false),
            ("0.0.0.0/0", "::/8", false),
            ("10.0.0.1/32", "10.0.0.1/32", false),
        ] {
            let parse = |text| Cidr::parse(text).unwrap();
            assert_eq!(parse(range).has_strictly(parse(hole)), good, "{hole} in {range}");
        }
    }

    #[test]
    fn authorized_key_line_without_valid_key_is_refused() {
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
