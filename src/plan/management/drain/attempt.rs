//! Names of the attempts to move a city's part in one namespace. Karmada's scheduler tries again only what has a name that it
//! has not seen; what a new manager is to know of a move is read off the name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the names of the two groups of a city that moves begin with; the attempt follows.
pub(crate) const MOVING_GROUP_PREFIX: &str = "moving-";
pub(crate) const LEAVING_GROUP_PREFIX: &str = "holding-";
/// How many characters an attempt may have: a group's name has at most 32.
const LONGEST: usize = 32 - LEAVING_GROUP_PREFIX.len();
/// What begins the name of an attempt to bring a namespace back.
const BACK: &str = "back-";

/// How a namespace's part of a city was before it was sent elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Whether an Instance was programmed.
    pub ran: bool,
    /// How many deployments were applied.
    pub applied: usize,
}

impl Before {
    /// The most that can be asked of it, where it is not remembered.
    pub const FULL: Self = Self { ran: true, applied: usize::MAX };
}

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Whether it brings back what did not arrive.
    pub(super) back: bool,
    /// Generation of the cluster that it goes to.
    pub(super) generation: i64,
    /// Tells those apart that have all else in common.
    pub(super) number: u32,
    /// How the namespace was before it was sent there; names of an earlier version of this operator do not say it.
    pub(super) before: Option<Before>,
}

impl Attempt {
    /// From its name; nothing when that is no name of ours.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (back, rest) = name.strip_prefix(BACK).map_or((false, name), |rest| (true, rest));
        let mut parts = rest.split('-');
        let (generation, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let before = match parts.next() {
            None => None,
            Some(said) => Some(parse_before(said)?),
        };
        parts.next().is_none().then_some(Self { back, generation, number, before })
    }

    /// Whether the attempt of this name brings back what did not arrive.
    pub(crate) fn is_back(name: &str) -> bool {
        name.starts_with(BACK)
    }
}

/// Whether an Instance ran, and how many deployments were applied.
fn parse_before(said: &str) -> Option<Before> {
    let (ran, applied) = match (said.strip_prefix('r'), said.strip_prefix('s')) {
        (Some(applied), _) => (true, applied),
        (_, Some(applied)) => (false, applied),
        _ => return None,
    };
    Some(Before { ran, applied: applied.parse().ok()? })
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}{}-{}", if self.back { BACK } else { "" }, self.generation, self.number);
        let before = self.before.filter(|before| *before != Before::FULL);
        let before = before.map(|before| format!("-{}{}", if before.ran { 'r' } else { 's' }, before.applied));
        // What does not fit is asked for in full.
        let before = before.filter(|before| name.len() + before.len() <= LONGEST).unwrap_or_default();
        write!(f, "{name}{before}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_fits_into_karmadas_limit() {
        let before = |ran, applied| Some(Before { ran, applied });
        for (name, back, generation, number, before) in [
            ("1-0", false, 1, 0, None),
            ("back-7-12", true, 7, 12, None),
            ("1-0-r3", false, 1, 0, before(true, 3)),
            ("12-3-s0", false, 12, 3, before(false, 0)),
            ("9999999-9999-r99999", false, 9_999_999, 9999, before(true, 99_999)),
        ] {
            let attempt = Attempt { back, generation, number, before };
            assert_eq!((Attempt::parse(name), attempt.to_string().as_str()), (Some(attempt), name));
            assert_eq!(Attempt::is_back(name), back);
        }
        for foreign in ["", "1", "1-x", "x-1", "1-0-", "1-0-3", "1-0-rx", "1-0-r1-2", "back-"] {
            assert_eq!(Attempt::parse(foreign), None, "{foreign}");
        }
        let long = Attempt { back: false, generation: 999_999_999, number: 9999, before: before(true, 99_999_999) };
        assert_eq!(long.to_string(), "999999999-9999-r99999999");
        let longer = Attempt { before: before(true, 999_999_999), ..long };
        assert_eq!(longer.to_string(), "999999999-9999", "it has no room");
        let full = Attempt { before: Some(Before::FULL), ..long };
        assert_eq!(full.to_string(), "999999999-9999", "nothing is known");
    }
}
