//! Contrast of the console's colours, computed from the style's variables: WCAG 2.2 level AA in light and dark mode.

use super::page::STYLE;
use std::collections::BTreeMap;

/// Text and background: at least 4.5 to 1.
const TEXT: [(&str, &str); 29] = [
    ("ink", "page"),
    ("ink", "paper"),
    ("ink", "soft"),
    ("ink", "bad-paper"),
    ("ink", "amber-paper"),
    ("quiet", "page"),
    ("quiet", "paper"),
    ("quiet", "soft"),
    ("quiet", "bad-paper"),
    ("quiet", "amber-paper"),
    ("link", "page"),
    ("link", "paper"),
    ("link", "soft"),
    ("link", "bad-paper"),
    ("link", "amber-paper"),
    ("on-brand", "brand"),
    ("good", "page"),
    ("good", "paper"),
    ("good", "soft"),
    ("bad", "page"),
    ("bad", "paper"),
    ("bad", "soft"),
    ("bad", "bad-paper"),
    ("paper", "bad"),
    ("amber", "paper"),
    ("amber", "soft"),
    ("amber", "amber-paper"),
    ("calm", "soft"),
    ("way", "soft"),
];
/// Shapes that carry meaning by colour, or show the focus: at least 3 to 1. (A wait in a timeline is the gap between
/// two bars, which mark its position.)
const SHAPES: [(&str, &str); 12] = [
    ("good-bar", "paper"),
    ("bad-bar", "paper"),
    ("amber-bar", "paper"),
    ("calm-bar", "paper"),
    ("way-bar", "paper"),
    ("bad-bar", "bad-paper"),
    ("control", "paper"),
    ("focus", "page"),
    ("focus", "paper"),
    ("focus", "soft"),
    ("focus", "bad-paper"),
    ("focus", "amber-paper"),
];

/// Variables of the first `:root` block after `from`.
fn variables(from: &str) -> BTreeMap<&str, &str> {
    let block = from
        .split(":root {")
        .nth(1)
        .and_then(|rest| rest.split('}').next())
        .unwrap();
    let lines = block
        .split(';')
        .filter_map(|line| line.trim().strip_prefix("--"));
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect()
}

/// Relative luminance of `#rrggbb`.
fn luminance(colour: &str) -> f64 {
    let part = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    assert!(
        colour.len() == 7 && colour.starts_with('#'),
        "{colour} is not #rrggbb"
    );
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let one = luminance(one) + 0.05;
    let other = luminance(other) + 0.05;
    one.max(other) / one.min(other)
}

#[test]
fn every_colour_is_readable_in_light_and_in_dark() {
    assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
    let dark = STYLE
        .split("prefers-color-scheme: dark")
        .nth(1)
        .expect("a dark scheme");
    let mut poor = Vec::new();
    for (scheme, text) in [("light", STYLE), ("dark", dark)] {
        let colours = variables(text);
        let pairs = TEXT
            .iter()
            .map(|it| (it, 4.5))
            .chain(SHAPES.iter().map(|it| (it, 3.0)));
        for ((one, other), least) in pairs {
            let found = contrast(colours[one], colours[other]);
            if found < least {
                poor.push(format!(
                    "{scheme}: {one} on {other} is {found:.2}, and should be {least}"
                ));
            }
        }
    }
    assert!(poor.is_empty(), "{}", poor.join("\n"));
}

/// The test above checks variables only, so no rule may name a colour itself.
#[test]
fn there_are_no_colours_beside_the_variables() {
    let outside = STYLE.split("box-sizing").nth(1).expect("the rules");
    let hex = outside.match_indices('#').filter(|(at, _)| {
        let digits = outside[at + 1..]
            .chars()
            .take_while(char::is_ascii_hexdigit)
            .count();
        let end = outside[at + 1 + digits..].starts_with([';', ' ', '}']);
        digits >= 3 && end
    });
    assert_eq!(hex.count(), 0);
}
