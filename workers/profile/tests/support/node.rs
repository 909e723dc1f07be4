//! A node of the support table: a profile, a platform, a Windows build and a payload's releases; and its documents.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_profile::{
    builtin,
    document::{Document, Section},
    item::{File, FileSource, ItemKind},
    layers::{Layer, stack},
    payload::{Manifest, PayloadFile},
    problem::Problems,
    render::{EXAMPLE_PAYLOAD, Inputs, render},
    values::{Values, join_secrets},
};
use serde_json::Value;

/// Kubernetes minors that are supported; of 1.37 the newest is of August 2026.
pub(crate) const KUBELETS: [&str; 5] = ["1.33", "1.34", "1.35", "1.36", "1.37"];
/// containerd releases that are supported. The empty one is a manifest from before the field.
pub(crate) const CONTAINERDS: [&str; 7] = ["", "1.7", "2.0", "2.1", "2.2", "2.3", "2.4"];
/// Platforms with Windows machines.
pub(crate) const PLATFORMS: [&str; 6] = ["aws", "azure", "gcp", "vsphere", "nutanix", "none"];
pub(crate) const SERVER_2019: &str = "10.0.17763";
pub(crate) const SERVER_2022: &str = "10.0.20348";
pub(crate) const SERVER_2025: &str = "10.0.26100";

pub(crate) fn payload(kubelet: &str, containerd: &str, build: &str) -> Manifest {
    let mut manifest = Manifest {
        kubelet: kubelet.into(),
        containerd: containerd.into(),
        windows_builds: vec![build.into()],
        ..Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest")
    };
    let names = ["windows_exporter.exe", "ecr-credential-provider.exe"];
    manifest.files.extend(names.map(further));
    manifest
}

pub(crate) fn further(name: &str) -> PayloadFile {
    PayloadFile {
        name: name.into(),
        sha256: dormer_profile::sha256_hex(name.as_bytes()),
        size: 1,
        destination: name.into(),
    }
}

/// Text of a built-in profile, and what it is replaced by, so that a row is not there.
pub(crate) type Change = (&'static str, &'static str);
pub(crate) const NO_CHANGE: Change = ("", "");

/// One node, with every secret that a cluster can have.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(crate) profile: &'a str,
    pub(crate) kubelet: &'a str,
    pub(crate) containerd: &'a str,
    pub(crate) platform: &'a str,
    pub(crate) build: &'a str,
    pub(crate) layer: &'a str,
    pub(crate) vxlan_port: &'a str,
    pub(crate) change: Change,
}

pub(crate) const NODE: Node<'static> = Node {
    profile: "openshift",
    kubelet: "1.33",
    containerd: "1.7",
    platform: "azure",
    build: SERVER_2022,
    layer: "",
    vxlan_port: "",
    change: NO_CHANGE,
};

impl Node<'_> {
    pub(crate) fn render(&self) -> Result<[Document; 2], Problems> {
        self.render_with(&payload(self.kubelet, self.containerd, self.build))
    }

    pub(crate) fn render_with(&self, payload: &Manifest) -> Result<[Document; 2], Problems> {
        let text = match self.profile {
            "upstream" => builtin::UPSTREAM,
            _ => builtin::OPENSHIFT,
        };
        let (from, to) = self.change;
        let mut layers = vec![match from {
            "" => builtin::layer(self.profile)?,
            from => Layer::parse(self.profile, &text.replace(from, to))?,
        }];
        if !self.layer.is_empty() {
            layers.push(Layer::parse("user", self.layer)?);
        }
        let profile = stack(&layers)?;
        let values = Values {
            windows_build: self.build.into(),
            vxlan_port: self.vxlan_port.into(),
            ..Values::example(self.platform)
        };
        let mut secrets = join_secrets(&values.api_server, "API CA", "CLIENT CA", "t0ken");
        for name in [
            "cloud-config",
            "ecr-config",
            "exporter-tls-crt",
            "exporter-tls-key",
        ] {
            secrets.set(name, "x");
        }
        let variables = values.variables();
        let inputs = Inputs {
            profile: &profile,
            payload,
            variables: &variables,
            secrets: &secrets,
            keep: &[],
        };
        let one = |section| Ok(render(&inputs, section, "v")?.document);
        Ok([one(Section::Host)?, one(Section::Node)?])
    }

    pub(crate) fn rendered(&self) -> [Document; 2] {
        let Self {
            profile,
            kubelet,
            containerd,
            platform,
            build,
            ..
        } = self;
        self.render()
            .unwrap_or_else(|e| panic!("{profile} {kubelet} {containerd} {platform} {build}: {e}"))
    }
}

pub(crate) fn file(documents: &[Document], path: &str) -> Option<String> {
    let items = documents.iter().flat_map(|document| &document.items);
    items.into_iter().find_map(|item| match &item.what {
        ItemKind::File(File {
            path: there,
            source: FileSource::Inline { base64 },
            ..
        }) if there == path => {
            let bytes = STANDARD.decode(base64).expect("base64");
            Some(String::from_utf8(bytes).expect("text"))
        }
        ItemKind::NetworkFile(file) if file.path == path => Some(file.template.clone()),
        _ => None,
    })
}

pub(crate) fn json(documents: &[Document], path: &str) -> Value {
    serde_json::from_str(&file(documents, path).expect(path)).expect("JSON")
}

pub(crate) fn command(documents: &[Document], name: &str) -> String {
    let mut items = documents.iter().flat_map(|document| &document.items);
    items
        .find_map(|item| match &item.what {
            ItemKind::Service(service) if service.name == name => Some(service.command.clone()),
            _ => None,
        })
        .expect(name)
}

pub(crate) fn at_least(release: &str, major: u32, minor: u32) -> bool {
    let release: dormer_profile::release::Release = release.parse().expect("a release");
    release >= dormer_profile::release::Release::new(major, minor)
}

pub(crate) fn toml(documents: &[Document]) -> toml::Table {
    let text = file(documents, r"C:\k\containerd\containerd_conf.toml").expect("a configuration");
    text.parse().expect("TOML")
}
