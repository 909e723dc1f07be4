//! A rendering without a running dormer: built-in profiles, layers from files, and an example's facts.

use dormer_client::{Failure, file::read};
use dormer_profile::{
    builtin,
    document::Section,
    layers::{LAYER_BYTES_MAX, Layer, stack},
    payload::{MANIFEST_FILE, Manifest},
    problem::Problems,
    profile::Profile,
    render::{EXAMPLE_PAYLOAD, Inputs, render},
    script,
    shown::{named_secrets, readable},
    values::{JOIN_SECRETS, Values},
    variables::Secrets,
    version::version,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Largest manifest that is read, in bytes.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// The built-in profile `name` with layers from files on top; a layer that is for another profile is left out.
///
/// # Errors
/// There is no such profile or file; or a layer has mistakes, each told with its place and reason.
pub(crate) fn layered(name: &str, layers: &[PathBuf]) -> Result<Profile, Failure> {
    let mut all = vec![builtin::layer(name).map_err(wrong)?];
    for path in layers {
        let text = read(path, LAYER_BYTES_MAX as u64)?;
        let layer = Layer::parse(&path.display().to_string(), &text).map_err(wrong)?;
        if layer.fits(name) {
            all.push(layer);
        }
    }
    stack(&all).map_err(wrong)
}

/// The manifest of the payload in a folder, or the example's.
///
/// # Errors
/// There is none, or it has mistakes.
pub(crate) fn payload(folder: Option<&Path>) -> Result<Manifest, Failure> {
    let Some(folder) = folder else {
        return Manifest::parse(EXAMPLE_PAYLOAD).map_err(wrong);
    };
    let path = folder.join(MANIFEST_FILE);
    let text = read(&path, MANIFEST_BYTES_MAX)?;
    Manifest::parse(&text).map_err(|e| wrong(e.below(&path.display().to_string())))
}

/// Every section of one machine, as [`super::render`] prints it.
///
/// # Errors
/// What cannot be rendered, each with its place and reason.
pub(super) fn rendered(
    profile: &Profile,
    payload: &Manifest,
    values: &Values,
    secrets: &[(String, Option<String>)],
    sections: &[Section],
) -> Result<Value, Failure> {
    let version = version(profile, payload, script::hash());
    let variables = values.variables();
    let secrets = known(profile, secrets);
    let inputs = Inputs {
        profile,
        payload,
        variables: &variables,
        secrets: &secrets,
        keep: &[],
    };
    let mut whole =
        json!({"profile": profile.name, "payload": payload.version, "version": version});
    for section in sections {
        let section_rendered = render(&inputs, *section, &version).map_err(wrong)?;
        whole[section.as_str()] = readable(&section_rendered.document);
    }
    whole["kubernetes"] = serde_json::to_value(&profile.kubernetes).unwrap_or_default();
    Ok(whole)
}

/// The secrets that there are: those of every join, and those that were named, with a text of their own or their name.
fn known(profile: &Profile, said: &[(String, Option<String>)]) -> Secrets {
    let named = |name: &str| JOIN_SECRETS.contains(&name) || said.iter().any(|it| it.0 == name);
    let mut secrets = named_secrets(profile, named);
    for (name, text) in said {
        // A condition may ask for one that no text names.
        let text = text
            .clone()
            .unwrap_or_else(|| format!("${{secret:{name}}}"));
        secrets.set(name, text);
    }
    secrets
}

fn wrong(problems: Problems) -> Failure {
    Failure::refused(problems.to_string(), "")
}
