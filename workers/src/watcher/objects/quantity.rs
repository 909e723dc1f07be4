//! Value of a Kubernetes quantity, such as `16Gi` (kubernetes/apimachinery, `pkg/api/resource/quantity.go`).

use serde_json::Value;

/// Digits after the point that count: the API server rounds up to these.
const DIGITS: usize = 9;
const SUFFIXES: [(&str, u128); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// A quantity that is not negative, in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantity(u128);

impl Quantity {
    /// `None`: the value is no such quantity, or has an exponent.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let factor = match suffix {
            "" => 1,
            suffix => SUFFIXES.iter().find(|(name, _)| *name == suffix)?.1,
        };
        let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
        if rest.len() > DIGITS || (whole.is_empty() && rest.is_empty()) {
            return None;
        }
        let digits = format!("{whole}{rest:0<DIGITS$}");
        let billionths: u128 = digits.parse().ok()?;
        billionths.checked_mul(factor).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_the_same_has_one_value() {
        for same in [
            vec![
                json!("16384Mi"),
                json!("16Gi"),
                json!(17_179_869_184_u64),
                json!("17179869184"),
            ],
            vec![
                json!("0.5Ti"),
                json!("512Gi"),
                json!("512.000Gi"),
                json!(".5Ti"),
            ],
            vec![json!("1k"), json!("1000"), json!("1000.")],
            vec![json!("0.0321"), json!("0.03210"), json!(0.0321)],
        ] {
            let values: Vec<_> = same.iter().map(Quantity::of).collect();
            assert!(values[0].is_some(), "{same:?}");
            assert!(values.iter().all(|it| *it == values[0]), "{same:?}");
        }
        assert_ne!(Quantity::of(&json!("16G")), Quantity::of(&json!("16Gi")));
        for none in [
            "",
            ".",
            "Gi",
            "16 Gi",
            "16gi",
            "-1",
            "1e3",
            "1.2.3",
            "0.0000000001",
        ] {
            assert_eq!(Quantity::of(&json!(none)), None, "{none}");
        }
        let most = format!("{}Ei", u64::MAX);
        assert_eq!(Quantity::of(&json!(most)), None, "too large");
        assert_eq!(Quantity::of(&json!(true)), None);
    }
}
