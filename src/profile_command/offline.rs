//! Rendering without a running dormer: built-in profiles, layers from files, and example facts.

use dormer_client::{Failure, file::read};
use dormer_profile::{
    builtin,
    document::Section,
    layers::{LAYER_BYTES_MAX, Layer, stack},
    payload::{MANIFEST_FILE, Manifest},
    problem::Problems,
    profile::Profile,
    render::{EXAMPLE_PAYLOAD, Inputs, render},
    shown::{named_secrets, readable},
    suggestion::question,
    values::{JOIN_SECRETS, Values},
    variables::Secrets,
    version::version,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Largest manifest, in bytes.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// Built-in profile `name` with layers from files on top. Layers for another profile are skipped.
///
/// # Errors
/// The profile or a file does not exist; or a layer is invalid: each mistake with its place and reason.
pub(crate) fn layered(name: &str, layers: &[PathBuf]) -> Result<Profile, Failure> {
    let mut all = vec![built_in(name)?];
    for path in layers {
        let text = read("--layer", path, LAYER_BYTES_MAX as u64)?;
        let layer = Layer::parse(&path.display().to_string(), &text).map_err(wrong)?;
        if layer.fits(name) {
            all.push(layer);
        }
    }
    stack(&all).map_err(wrong)
}

/// Built-in profile that `--profile` names.
///
/// # Errors
/// [`Failure::Usage`]: there is none of this name.
pub(crate) fn built_in(name: &str) -> Result<Layer, Failure> {
    if !builtin::NAMES.contains(&name) {
        let near = question(name, builtin::NAMES);
        let names = builtin::NAMES.join(", ");
        let said = format!(
            "--profile {name}: no profile is named {name}{near}\nthe profiles are: {names}"
        );
        return Err(Failure::Usage(said));
    }
    builtin::layer(name).map_err(wrong)
}

/// Manifest of the payload in a folder, or of the example.
///
/// # Errors
/// The manifest is missing or invalid.
pub(crate) fn payload(folder: Option<&Path>) -> Result<Manifest, Failure> {
    let Some(folder) = folder else {
        return Manifest::parse(EXAMPLE_PAYLOAD).map_err(wrong);
    };
    let path = folder.join(MANIFEST_FILE);
    let text = read("--payload", &path, MANIFEST_BYTES_MAX)?;
    Manifest::parse(&text).map_err(|e| wrong(e.below(&path.display().to_string())))
}

/// All sections of one machine, as [`super::render`] prints them.
///
/// # Errors
/// Each part that cannot be rendered, with its place and reason.
pub(super) fn rendered(
    profile: &Profile,
    payload: &Manifest,
    values: &Values,
    secrets: &[(String, Option<String>)],
    sections: &[Section],
) -> Result<Value, Failure> {
    let version = version(profile, payload);
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

/// One section of one machine, in the bytes that the program on its host reads.
///
/// # Errors
/// Each part that cannot be rendered, with its place and reason.
pub(super) fn document(
    profile: &Profile,
    payload: &Manifest,
    values: &Values,
    secrets: &[(String, Option<String>)],
    section: Section,
) -> Result<String, Failure> {
    let version = version(profile, payload);
    let inputs = Inputs {
        profile,
        payload,
        variables: &values.variables(),
        secrets: &known(profile, secrets),
        keep: &[],
    };
    let rendered = render(&inputs, section, &version).map_err(wrong)?;
    let bytes = rendered.document.to_bytes();
    let bytes = bytes.map_err(|error| Failure::refused(error.to_string(), ""))?;
    String::from_utf8(bytes).map_err(|error| Failure::refused(error.to_string(), ""))
}

/// Known secrets: those of every join, and those given on the command line, each with its text or its name.
fn known(profile: &Profile, said: &[(String, Option<String>)]) -> Secrets {
    let named = |name: &str| JOIN_SECRETS.contains(&name) || said.iter().any(|it| it.0 == name);
    let mut secrets = named_secrets(profile, named);
    for (name, text) in said {
        // A condition may refer to a secret that no text uses.
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
