//! `dormer profile`: schemas of a Windows node's configuration, and its rendering for one machine.

pub(crate) mod offline;
mod render;

use clap::{Args, Subcommand, ValueEnum};
use dormer_client::{EXIT_CODES, Failure, finish};
use dormer_profile::{document::Document, payload::Manifest, profile, values::Values, yaml};
use schemars::schema_for;
use serde_json::Value;
use std::process::ExitCode;

/// Subcommands for profiles.
#[derive(Debug, Subcommand)]
pub(crate) enum Profile {
    /// Print the JSON Schema of a document that people write, for editors and checks
    #[command(after_help = EXIT_CODES)]
    Schema(Schema),
    /// Print the desired state of a machine: from built-in profiles and your own layers, or from a running dormer
    #[command(after_help = EXIT_CODES)]
    Render(Box<render::Render>),
}

/// Arguments of `dormer profile schema`.
#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Document
    #[arg(value_enum, default_value_t)]
    of: SchemaOf,
}

/// Documents with a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum SchemaOf {
    /// A profile or a layer
    #[default]
    Profile,
    /// A payload's manifest
    Payload,
    /// The facts that `render --facts` reads
    Facts,
    /// The converge document that a host receives
    Document,
}

impl SchemaOf {
    fn schema(self) -> Value {
        match self {
            Self::Profile => profile::Profile::schema(),
            Self::Payload => schema_for!(Manifest).to_value(),
            Self::Facts => schema_for!(Values).to_value(),
            Self::Document => schema_for!(Document).to_value(),
        }
    }
}

/// Output format of a rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Form {
    /// For people
    #[default]
    Yaml,
    /// For programs
    Json,
}

impl Form {
    fn text(self, value: &Value) -> Result<String, Failure> {
        let failed = |why: String| Failure::Usage(format!("the answer cannot be formatted: {why}"));
        match self {
            Self::Json => serde_json::to_string_pretty(value).map_err(|e| failed(e.to_string())),
            Self::Yaml => yaml::to_string(value)
                .map(|text| text.trim_end().to_owned())
                .map_err(|e| failed(e.to_string())),
        }
    }
}

/// Runs the subcommand, and returns the exit code.
pub(crate) async fn run(asked: Profile) -> ExitCode {
    let answer = match asked {
        Profile::Schema(Schema { of }) => Form::Json.text(&of.schema()),
        Profile::Render(render) => render.run().await,
    };
    finish(answer.map(|text| (text, true)))
}
