//! Types of the fields and flags of the kubelet and kube-proxy, and the check that a value has its own.

use serde_json::Value;

use crate::variables::seconds;

/// Reason against a value in a configuration, which is read strictly: a number is no text there, and a text no number.
/// `None`: it is right, or not known before a host fills it in (`@{…}`).
pub(super) fn wrong_value(kind: &str, value: &Value) -> Option<&'static str> {
    let text = value.as_str();
    if value.is_null() || text.is_some_and(|text| text.contains("@{")) {
        return None;
    }
    let (right, wanted) = match kind {
        "bool" => (value.is_boolean(), "true or false"),
        "string" => (value.is_string(), "a text"),
        "list" => (value.is_array(), "a list"),
        "map" => (value.is_object(), "a map"),
        "float32" | "float64" => (value.is_number(), "a number"),
        "int32" => (in_range(value, i32::MIN.into(), i32::MAX.into()), WHOLE_32),
        "uint32" => (in_range(value, 0, u32::MAX.into()), "a whole number from 0"),
        "int64" | "int" => (in_range(value, i64::MIN, i64::MAX), "a whole number"),
        "duration" => (text.is_some_and(is_duration), DURATION),
        "duration-or-number" => (
            value.as_i64().is_some() || text.is_some_and(is_duration),
            DURATION,
        ),
        "quantity" => (value.is_number() || text.is_some_and(is_quantity), QUANTITY),
        _ => return None,
    };
    (!right).then_some(wanted)
}

/// Reason against the value of a flag, which is a text. `None` as for [`wrong_value`].
pub(super) fn wrong_text(kind: &str, text: &str) -> Option<&'static str> {
    if text.contains("@{") {
        return None;
    }
    let whole =
        |least: i64, most: i64| text.parse().is_ok_and(|n: i64| (least..=most).contains(&n));
    let (right, wanted) = match kind {
        // strconv.ParseBool
        "bool" => (
            [
                "1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False",
            ]
            .contains(&text),
            "true or false",
        ),
        "int32" => (whole(i32::MIN.into(), i32::MAX.into()), WHOLE_32),
        "int64" | "int" | "Level" => (whole(i64::MIN, i64::MAX), "a whole number"),
        "float32" | "float64" => (text.parse::<f64>().is_ok(), "a number"),
        "duration" => (is_duration(text), DURATION),
        "quantity" => (is_quantity(text), QUANTITY),
        _ => return None,
    };
    (!right).then_some(wanted)
}

const WHOLE_32: &str = "a whole number of 32 bits";
const DURATION: &str = "a length of time, such as 30s";
const QUANTITY: &str = "a quantity, such as 100Mi";

fn in_range(value: &Value, least: i64, most: i64) -> bool {
    value
        .as_i64()
        .is_some_and(|value| (least..=most).contains(&value))
}

fn is_duration(text: &str) -> bool {
    seconds(text.strip_prefix(['-', '+']).unwrap_or(text)).is_some()
}

/// A number with one of the suffixes of k8s.io/apimachinery v0.37.2 `pkg/api/resource/suffix.go`, or with an exponent.
fn is_quantity(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let is_number = number.chars().any(|c| c.is_ascii_digit()) && number.parse::<f64>().is_ok();
    let has_suffix = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ]
    .contains(&suffix);
    let exponent = suffix.strip_prefix(['e', 'E']).unwrap_or_default();
    is_number && (has_suffix || exponent.parse::<i32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_of_another_type_is_refused() {
        let right = [
            ("bool", json!(true)),
            ("int32", json!(-1)),
            ("int32", json!(null)),
            ("uint32", json!(0)),
            ("float32", json!(1.5)),
            ("string", json!("x")),
            ("list", json!([])),
            ("map", json!({})),
            ("duration", json!("1h30m")),
            ("duration", json!("0")),
            ("duration-or-number", json!(5)),
            ("quantity", json!("100Mi")),
            ("quantity", json!("1.5e3")),
            ("quantity", json!(".5")),
            ("quantity", json!(4)),
            ("int32", json!("@{PODS}")),
        ];
        for (kind, value) in right {
            assert_eq!(wrong_value(kind, &value), None, "{kind} {value}");
        }
        let wrong = [
            ("bool", json!("true")),
            ("bool", json!(1)),
            ("int32", json!("x")),
            ("int32", json!("110")),
            ("int32", json!(1.5)),
            ("int32", json!(2_147_483_648_i64)),
            ("uint32", json!(-1)),
            ("string", json!(5)),
            ("list", json!("x")),
            ("map", json!([])),
            ("duration", json!(30)),
            ("duration", json!("30")),
            ("duration", json!("30 s")),
            ("duration-or-number", json!("x")),
            ("quantity", json!("100MB")),
            ("quantity", json!("")),
        ];
        for (kind, value) in wrong {
            assert!(wrong_value(kind, &value).is_some(), "{kind} {value}");
        }
    }

    #[test]
    fn a_flag_of_another_type_is_refused() {
        let right = [
            ("bool", "T"),
            ("int32", "110"),
            ("Level", "2"),
            ("duration", "10s"),
            ("string", "anything"),
            ("int32", "@{PODS}"),
        ];
        for (kind, text) in right {
            assert_eq!(wrong_text(kind, text), None, "{kind} {text}");
        }
        let wrong = [
            ("bool", "yes"),
            ("int32", "x"),
            ("int32", "9999999999"),
            ("Level", "debug"),
            ("duration", "10"),
            ("quantity", "lots"),
        ];
        for (kind, text) in wrong {
            assert!(wrong_text(kind, text).is_some(), "{kind} {text}");
        }
    }
}
