//! Validity of a bearer token, read from its claims. Verifies nothing, and keeps no part of the token.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

/// Largest token that is read. API servers accept at most 1 MiB of headers, and usual tokens have one or two KiB.
const MAX_BYTES: usize = 64 * 1024;

/// Times beyond the year 9999 count as no time.
const MAX_SECONDS: i64 = 253_402_300_799;

/// Period in which a token is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The claim `exp`.
    pub until: i64,
    /// The claim `iat`, if the token has it.
    pub since: Option<i64>,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    exp: Value,
    #[serde(default)]
    iat: Value,
}

/// Returns the validity of a JSON Web Token. `None` for a token without `exp`, and for every other form: only its server knows the
/// end of such a token.
pub fn validity(token: &str) -> Option<Validity> {
    let token = token.trim();
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    if token.len() > MAX_BYTES {
        return None;
    }
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Some(Validity { until: seconds(&claims.exp)?, since: seconds(&claims.iat) })
}

/// Reads a time of a token, which may have a fraction. A time before 1970 is as good as any other that has passed.
fn seconds(claim: &Value) -> Option<i64> {
    let number = claim.as_number()?;
    #[allow(clippy::cast_possible_truncation)] // saturates, and is compared with the limit
    let whole = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds.floor() as i64))?;
    (whole.unsigned_abs() <= MAX_SECONDS.unsigned_abs()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(claims: &str) -> String {
        format!("{}.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode("{\"alg\":\"RS256\"}"), URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn token_of_a_service_account_gives_its_times() {
        let token =
            of("{\"aud\":[\"karmada\"],\"exp\":1795305600,\"iat\":1792713600,\"sub\":\"system:serviceaccount:a:b\"}");
        let both = Some(Validity { until: 1_795_305_600, since: Some(1_792_713_600) });
        assert_eq!(validity(&token), both);
        assert_eq!(validity(&format!(" {token}\n")), both, "a file ends with a line break");
        assert_eq!(validity(&of("{\"exp\":1795305600}")), Some(Validity { until: 1_795_305_600, since: None }));
    }

    #[test]
    fn token_time_may_have_a_fraction_or_have_passed() {
        for (exp, until) in
            [("1795305600.9", 1_795_305_600), ("1.7953056e9", 1_795_305_600), ("-5", -5), ("-0.5", -1), ("0", 0)]
        {
            assert_eq!(validity(&of(&format!("{{\"exp\":{exp}}}"))).map(|v| v.until), Some(until), "{exp}");
        }
        let odd = validity(&of("{\"exp\":10,\"iat\":\"yesterday\"}"));
        assert_eq!(odd, Some(Validity { until: 10, since: None }));
    }

    #[test]
    fn token_without_a_readable_end_has_none() {
        let claims = [
            "{}",
            "null",
            "[]",
            "7",
            "\"exp\"",
            "",
            "{\"exp\":null}",
            "{\"exp\":\"1795305600\"}",
            "{\"exp\":true}",
            "{\"exp\":[1795305600]}",
            "{\"exp\":{\"at\":1795305600}}",
            "{\"exp\":1e300}",
            "{\"exp\":-1e300}",
            "{\"exp\":9223372036854775807}",
            "{\"exp\":-9223372036854775808}",
            "{\"exp\":18446744073709551615}",
            "{\"exp\":253402300800}",
            "{\"exp\":1e999}",
            "{\"exp\":NaN}",
            "{\"exp\":1795305600",
            "{\"exp\":1,\"exp\":2}",
        ];
        for claims in claims {
            assert_eq!(validity(&of(claims)), None, "{claims}");
        }
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(validity(&of(&format!("{{\"exp\":{deep}}}"))), None);
        let beside = validity(&of(&format!("{{\"exp\":1,\"a\":{deep}}}")));
        assert_eq!(beside, Some(Validity { until: 1, since: None }), "a claim that is not used is not read");
    }

    #[test]
    fn token_in_another_form_has_no_end() {
        let good = of("{\"exp\":1795305600}");
        let (head, claims) = (good.split('.').next().unwrap(), good.split('.').nth(1).unwrap());
        let plain = "{\"exp\":1795305600}";
        for token in [
            String::new(),
            "opaque".to_owned(),
            ".".to_owned(),
            "..".to_owned(),
            "...".to_owned(),
            format!("{head}.{claims}"),
            format!("{good}.more"),
            format!("{good}.more.more"),
            format!("{head}.{plain}.s"),
            format!("{head}.{claims}!.s"),
            format!("{head}.\u{e4}.s"),
            format!("{head}.{}.s", URL_SAFE_NO_PAD.encode([0xff, 0xfe])),
            format!("{}.{claims}.s", "a".repeat(MAX_BYTES)),
        ] {
            assert_eq!(validity(&token), None, "{token}");
        }
        assert!(validity(&format!("{head}.{claims}==.s")).is_some(), "padding does no harm");
    }
}
