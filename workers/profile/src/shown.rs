//! Document for people: inline content as text, secrets by name.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    document::Document,
    profile::Profile,
    proxy::masked,
    variables::{Piece, Secrets, pieces},
};

/// Placeholder secrets: each is the text `${secret:NAME}`, so that a rendering shows where it is used and not its
/// content. Optional secrets of the profile are included if `exists` returns `true`.
#[must_use]
pub fn named_secrets(profile: &Profile, exists: impl Fn(&str) -> bool) -> Secrets {
    let mut secrets = Secrets::default();
    let value = serde_json::to_value(profile).unwrap_or_default();
    each_text(&value, &mut |text| {
        for piece in pieces(text).unwrap_or_default() {
            if let Piece::Secret(name) = piece
                && exists(name)
            {
                secrets.set(name, format!("${{secret:{name}}}"));
            }
        }
    });
    secrets
}

fn each_text(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(all) => all.iter().for_each(|one| each_text(one, found)),
        Value::Object(all) => all.values().for_each(|one| each_text(one, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Document for people: inline content as `text`, and no password of a URL.
#[must_use]
pub fn readable(document: &Document) -> Value {
    let mut value = decoded(document);
    hide(&mut value);
    value
}

fn hide(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("://") => *text = masked(text),
        Value::Array(all) => all.iter_mut().for_each(hide),
        Value::Object(all) => all.values_mut().for_each(hide),
        _ => {}
    }
}

/// Document with inline content as `text` instead of `base64`, if it is text. It may contain secrets.
#[must_use]
pub fn decoded(document: &Document) -> Value {
    let mut value = serde_json::to_value(document).unwrap_or_default();
    for item in value["items"].as_array_mut().into_iter().flatten() {
        let Some(source) = item.get_mut("source").and_then(Value::as_object_mut) else {
            continue;
        };
        let bytes = source
            .get("base64")
            .and_then(Value::as_str)
            .map(|text| STANDARD.decode(text));
        if let Some(text) = bytes
            .and_then(Result::ok)
            .and_then(|b| String::from_utf8(b).ok())
        {
            source.remove("base64");
            source.insert("text".into(), text.into());
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        builtin,
        document::Section,
        payload::Manifest,
        render::{EXAMPLE_PAYLOAD, Inputs, render},
        values::Values,
    };

    #[test]
    fn a_rendering_for_people_names_its_secrets_and_shows_its_texts() {
        let profile = builtin::openshift();
        let payload = Manifest::parse(EXAMPLE_PAYLOAD).expect("a payload");
        let variables = Values::example("aws").variables();
        let secrets = named_secrets(&profile, |name| name != "trusted-ca" && !name.contains("-"));
        assert_eq!(
            secrets,
            Secrets::default(),
            "every secret of the profile has a dash"
        );
        let secrets = named_secrets(&profile, |name| name == "api-ca" || name.contains("boot"));
        assert!(secrets.get("api-ca").is_some() && secrets.get("trusted-ca").is_none());
        let secrets = named_secrets(&profile, |name| {
            ["api-ca", "client-ca", "bootstrap-kubeconfig"].contains(&name)
        });
        let inputs = Inputs {
            profile: &profile,
            payload: &payload,
            variables: &variables,
            secrets: &secrets,
            keep: &[],
        };
        let host = render(&inputs, Section::Host, "v").expect("it renders");
        let text = readable(&host.document).to_string();
        assert!(text.contains("${secret:bootstrap-kubeconfig}"), "{text}");
        assert!(!text.contains("base64"), "all of it is text: {text}");
    }
}
