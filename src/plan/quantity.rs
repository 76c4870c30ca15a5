//! Resource quantities as numbers: `500m`, `2Gi`, `1e3`, after apimachinery's `resource.Quantity`.

use crate::api::compute::Quantity;

/// Maximum in thousandths. It is far above any machine, and far below the overflow of a sum.
const MAX_QUANTITY: f64 = 1e24;

/// Returns the value in thousandths, rounded up. `None` if it is negative, not a quantity, or above the maximum.
pub fn thousandths(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.as_str();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+' || c == '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let binary = |power: i32| 1024_f64.powi(power);
    let scale = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            10_f64.powi(digits.parse().ok()?)
        }
    };
    let value = number.parse::<f64>().ok()? * scale * 1000.0;
    // Products of decimals have small errors. A result that is very close to a whole number is that number.
    let whole = if (value - value.round()).abs() < 1e-6 * value.abs().max(1.0) { value.round() } else { value.ceil() };
    #[allow(clippy::cast_possible_truncation)] // the range is checked here
    (0.0..MAX_QUANTITY).contains(&whole).then_some(whole as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_is_parsed_as_in_kubernetes() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("500m", Some(500)),
            ("0.1", Some(100)),
            ("1500u", Some(2)),
            ("2Ki", Some(2_048_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("1e3", Some(1_000_000)),
            ("2E", Some(2_000_000_000_000_000_000_000)),
            ("0", Some(0)),
            ("-1", None),
            (" 1", None),
            ("1 ", None),
            ("1x", None),
            ("", None),
            ("e", None),
            ("1e99", None),
        ] {
            assert_eq!(thousandths(&Quantity(text.into())), expected, "{text}");
        }
    }
}
