//! The least version of Karmada on the hub, and the assumptions that follow from it.
//!
//! The operator checks the behaviour of Karmada ([`super::probe`]). Some former bugs only show when they do harm. For these the
//! operator relies on the configured version, and reports that.

use std::fmt;

/// A minor release of Karmada 1, and a patch release of it.
type Release = (u32, u32);

/// A version of Karmada 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KarmadaVersion(Release);

/// A bug of earlier releases that removes data, or does not deliver it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormerBug {
    /// Of several companions of one kind, later ones and later changes reach no cell.
    LaterCompanions,
    /// A restart of Karmada removes data that its custom interpreter had brought.
    Restart,
    /// The record of dependencies overwrites the scheduler's annotations.
    Annotations,
    /// A policy with a selector for a missing object cannot be deleted.
    PolicyDeletion,
}

impl FormerBug {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::LaterCompanions, Self::Restart, Self::Annotations, Self::PolicyDeletion];

    /// The metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::LaterCompanions => "later_companions",
            Self::Restart => "restart",
            Self::Annotations => "annotations",
            Self::PolicyDeletion => "policy_deletion",
        }
    }

    /// A short description, with the number of the Karmada issue.
    pub fn text(self) -> &'static str {
        match self {
            Self::LaterCompanions => "it notices only the first of several companions of one kind (6924)",
            Self::Restart => "its restart removes the dependencies of deployments (6600)",
            Self::Annotations => "its record of dependencies overwrites other annotations of a binding (7208)",
            Self::PolicyDeletion => "it cannot delete a policy that names a missing object (7038)",
        }
    }

    /// The first releases without it, one for each fixed minor release.
    fn fixed_in(self) -> &'static [Release] {
        match self {
            Self::LaterCompanions => &[(15, 3), (16, 0)],
            Self::Restart => &[(15, 0)],
            Self::Annotations => &[(15, 6), (16, 3), (17, 0)],
            Self::PolicyDeletion => &[(15, 5), (16, 2), (17, 0)],
        }
    }
}

impl KarmadaVersion {
    /// The default: the first release without any of these bugs.
    pub const DEFAULT: Self = Self((15, 6));

    /// Parses a text such as `1.17.0` or `v1.17.0`. `None` if it is not a released version of Karmada 1.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let mut number = || {
            let part =
                parts.next().filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))?;
            part.parse::<u32>().ok()
        };
        let (major, minor, patch) = (number()?, number()?, number()?);
        (major == 1 && parts.next().is_none()).then_some(Self((minor, patch)))
    }

    /// True if this version has the bug.
    pub fn has(self, bug: FormerBug) -> bool {
        let Self((minor, patch)) = self;
        let fixed = bug.fixed_in();
        match fixed.iter().find(|(of, _)| *of == minor) {
            Some((_, first)) => patch < *first,
            None => fixed.iter().all(|(of, _)| minor < *of),
        }
    }

    /// The bugs of this version.
    pub fn bugs(self) -> Vec<FormerBug> {
        FormerBug::ALL.into_iter().filter(|bug| self.has(*bug)).collect()
    }
}

impl Default for KarmadaVersion {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for KarmadaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}.{}", self.0.0, self.0.1)
    }
}

/// The assumptions, for a reader without the configuration.
pub fn of_any() -> String {
    let bugs = FormerBug::ALL.map(FormerBug::text).join("; ");
    format!("Assumed from karmada.minimumVersion and not verified: Karmada on the hub does not have these bugs: {bugs}")
}

/// The assumptions about the configured version.
pub fn text(version: KarmadaVersion) -> String {
    let bugs = FormerBug::ALL.map(FormerBug::text);
    format!(
        "assumed from karmada.minimumVersion, not verified: Karmada on the hub is {version} or later, and does not have \
         these bugs: {}",
        bugs.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn karmada_version_parses_three_numbers_only() {
        for (text, expected) in [
            ("1.17.0", Some("v1.17.0")),
            ("v1.15.6", Some("v1.15.6")),
            ("1.17", None),
            ("1.17.0-rc.1", None),
            ("1.17.0.1", None),
            ("2.0.0", None),
            ("1.+7.0", None),
            ("1..0", None),
            ("", None),
            ("1.99999999999.0", None),
        ] {
            assert_eq!(KarmadaVersion::parse(text).map(|version| version.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn former_bug_ends_with_the_first_fixed_release_of_each_line() {
        use FormerBug::{Annotations, LaterCompanions, PolicyDeletion, Restart};
        let cases: [(&str, &[FormerBug]); 10] = [
            ("1.14.10", &[LaterCompanions, Restart, Annotations, PolicyDeletion]),
            ("1.15.2", &[LaterCompanions, Annotations, PolicyDeletion]),
            ("1.15.3", &[Annotations, PolicyDeletion]),
            ("1.15.5", &[Annotations]),
            ("1.15.6", &[]),
            ("1.16.0", &[Annotations, PolicyDeletion]),
            ("1.16.2", &[Annotations]),
            ("1.16.3", &[]),
            ("1.17.0", &[]),
            ("1.18.2", &[]),
        ];
        for (version, bugs) in cases {
            assert_eq!(KarmadaVersion::parse(version).unwrap().bugs(), bugs, "{version}");
        }
        assert_eq!(KarmadaVersion::DEFAULT.bugs(), []);
    }

    #[test]
    fn assumption_text_names_version_and_issues() {
        let text = text(KarmadaVersion::DEFAULT);
        assert!(
            text.starts_with(
                "assumed from karmada.minimumVersion, not verified: Karmada on the hub is v1.15.6 or later"
            ),
            "{text}"
        );
        assert!(["6924", "6600", "7208", "7038"].iter().all(|issue| text.contains(issue)), "{text}");
    }
}
