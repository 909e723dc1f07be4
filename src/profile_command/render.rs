//! `dormer profile render`: desired state of one machine, in two sections.

use super::{
    Form,
    offline::{document, layered, payload, rendered},
};
use clap::{Args, ValueEnum};
use dormer_client::{
    Failure,
    file::read,
    server::{ServerAddress, segment},
    uid_of_machine,
};
use dormer_profile::{
    document::Section, layers::LAYER_BYTES_MAX, payload::Manifest, values::Values,
};
use serde_json::Value;
use std::path::PathBuf;

/// Arguments of `dormer profile render`.
#[derive(Debug, Args)]
pub(crate) struct Render {
    /// Machine of a running dormer: its name or the end of it, NAMESPACE/NAME, or its UID
    #[arg(long, value_name = "NAME", conflicts_with_all = ["profile", "layer", "platform", "facts", "payload", "secret"])]
    machine: Option<String>,
    #[command(flatten)]
    address: ServerAddress,
    /// Built-in profile: openshift or upstream
    #[arg(long, default_value = "openshift", value_name = "NAME")]
    profile: String,
    /// File with a layer of your own on top (may be given several times, later ones on top)
    #[arg(long, value_name = "FILE")]
    layer: Vec<PathBuf>,
    /// Platform of the example machine
    #[arg(long, value_enum, default_value_t)]
    platform: PlatformArg,
    /// File with facts of a machine and its cluster (see `dormer profile schema facts`); missing facts are the
    /// example's
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Folder with a payload [default: an example manifest, whose releases are named]
    #[arg(long, value_name = "DIR")]
    payload: Option<PathBuf>,
    /// A secret that exists, optionally with a file that holds its text (may be given several times)
    #[arg(long, value_name = "NAME[=FILE]")]
    secret: Vec<String>,
    /// Print one section only
    #[arg(long, value_enum)]
    section: Option<SectionArg>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: RenderOutput,
}

/// Output format of a rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum RenderOutput {
    /// For people
    #[default]
    Yaml,
    /// For programs
    Json,
    /// What dormer-host.exe reads on its standard input, as plan or apply: one --section, from files
    Document,
}

/// Supported platforms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum PlatformArg {
    Aws,
    Azure,
    Gcp,
    Vsphere,
    Nutanix,
    #[default]
    None,
}

impl PlatformArg {
    fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Gcp => "gcp",
            Self::Vsphere => "vsphere",
            Self::Nutanix => "nutanix",
            Self::None => "none",
        }
    }
}

/// Section of the desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SectionArg {
    /// Items that do not need the Node
    Host,
    /// Items that need the Node
    Node,
}

impl SectionArg {
    fn section(self) -> Section {
        match self {
            Self::Host => Section::Host,
            Self::Node => Section::Node,
        }
    }
}

impl Render {
    pub(super) async fn run(&self) -> Result<String, Failure> {
        let form = match self.output {
            RenderOutput::Yaml => Form::Yaml,
            RenderOutput::Json => Form::Json,
            RenderOutput::Document => return self.document(),
        };
        let value = match &self.machine {
            Some(machine) => self.of_machine(machine).await?,
            None => self.of_files()?,
        };
        form.text(&value)
    }

    fn document(&self) -> Result<String, Failure> {
        let (Some(section), None) = (self.section, &self.machine) else {
            let said = "-o document: give --section host or --section node, and no --machine: a running dormer shows no \
                        document as it goes to a host";
            return Err(Failure::Usage(said.into()));
        };
        let profile = layered(&self.profile, &self.layer)?;
        let payload = self.manifest()?;
        let values = self.values()?;
        let secrets = self.secrets()?;
        document(&profile, &payload, &values, &secrets, section.section())
    }

    async fn of_machine(&self, machine: &str) -> Result<Value, Failure> {
        let server = self.address.server();
        let desired = |name: String| format!("/machines/{name}/desired");
        let mut value: Value = match server.get(&desired(segment(machine))).await {
            // The end of a name, as everywhere.
            Err(Failure::Absent { .. }) => {
                let uid = uid_of_machine(&server, machine).await?;
                server.get(&desired(segment(&uid))).await?
            }
            answered => answered?,
        };
        for section in [Section::Host, Section::Node] {
            if self.section.is_some_and(|only| only.section() != section)
                && let Some(whole) = value.as_object_mut()
            {
                whole.remove(section.as_str());
            }
        }
        Ok(value)
    }

    fn of_files(&self) -> Result<Value, Failure> {
        let profile = layered(&self.profile, &self.layer)?;
        let payload = self.manifest()?;
        let both = [Section::Host, Section::Node];
        let one = self.section.map(|one| [one.section()]);
        let sections = one.as_ref().map_or(both.as_slice(), |one| one.as_slice());
        let secrets = self.secrets()?;
        rendered(&profile, &payload, &self.values()?, &secrets, sections)
    }

    /// The payload's manifest. Without one, a message names the releases that the example's stands for.
    fn manifest(&self) -> Result<Manifest, Failure> {
        let manifest = payload(self.payload.as_deref())?;
        if self.payload.is_none() {
            eprintln!(
                "dormer: no --payload, so this is for kubelet {} and containerd {}",
                manifest.kubelet(),
                manifest.containerd()
            );
        }
        Ok(manifest)
    }

    /// The secrets of the command line, each with its text if a file has it.
    fn secrets(&self) -> Result<Vec<(String, Option<String>)>, Failure> {
        let mut secrets = Vec::with_capacity(self.secret.len());
        for said in &self.secret {
            secrets.push(match said.split_once('=') {
                Some((name, path)) => (
                    name.to_owned(),
                    Some(read("--secret", path.as_ref(), LAYER_BYTES_MAX as u64)?),
                ),
                None => (said.clone(), None),
            });
        }
        Ok(secrets)
    }

    fn values(&self) -> Result<Values, Failure> {
        let example = Values::example(self.platform.as_str());
        let Some(path) = &self.facts else {
            return Ok(example);
        };
        let text = read("--facts", path, LAYER_BYTES_MAX as u64)?;
        Values::parse_over(&example, &text)
            .map_err(|e| Failure::refused(e.below(&path.display().to_string()).to_string(), ""))
    }
}
