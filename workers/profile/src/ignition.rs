//! Kubelet settings in a rendered MachineConfig, as far as they apply to Windows.

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::Serialize;
use serde_json::{Map, Value};

/// Path of the cloud configuration on Linux nodes.
const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud.conf";
/// Path of the kubelet's credential provider configuration for ECR on Linux nodes of AWS.
const ECR_CONFIG: &str = "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml";
/// Path of the kubelet's configuration on Linux nodes.
const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";
/// Largest file read from it, in bytes.
const FILE_BYTES_MAX: usize = 256 << 10;

/// Settings that apply to the kubelets of Windows nodes as well.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KubeletFacts {
    /// The kubelet's `--cloud-provider`, empty if it has none. `None`: unknown, so the platform decides.
    pub cloud_provider: Option<String>,
    /// Content of the file of `--cloud-config`, if the kubelet has that flag.
    pub cloud_config: Option<String>,
    /// Configuration of the credential provider for ECR, adapted to Windows.
    pub ecr_config: Option<String>,
    /// Content of the kubelet's configuration. `None`: the machine config has none. It is in a node's version by the layer
    /// that it becomes.
    #[serde(skip)]
    pub settings: Option<Map<String, Value>>,
    /// Why that content cannot be read; its settings then reach no Windows node.
    #[serde(skip)]
    pub unread: Option<String>,
}

/// Reads the Ignition configuration of a rendered MachineConfig (its `spec.config`).
///
/// # Errors
/// One sentence: it has no kubelet, or a file in it cannot be read.
pub fn kubelet_facts(config: &Value) -> Result<KubeletFacts, String> {
    let units = config["systemd"]["units"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let unit = units.iter().find(|unit| unit["name"] == "kubelet.service");
    let unit = unit
        .and_then(|unit| unit["contents"].as_str())
        .ok_or("has no kubelet.service")?;
    let words = command(unit).ok_or("its kubelet.service has no ExecStart")?;
    let flag = |name: &str| {
        let value = words
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let cloud_config = match flag("--cloud-config") {
        Some(_) => file(config, CLOUD_CONFIG)?,
        None => None,
    };
    let ecr_config = file(config, ECR_CONFIG)?
        .map(|text| for_windows(&text))
        .transpose()?;
    let cloud_provider = Some(flag("--cloud-provider").unwrap_or_default());
    // What Linux reads and this build does not must not keep every other setting away.
    let conf =
        file(config, KUBELET_CONF).and_then(|text| text.map(|text| settings(&text)).transpose());
    let unread = conf.as_ref().err().cloned();
    Ok(KubeletFacts {
        cloud_provider,
        cloud_config,
        ecr_config,
        settings: conf.ok().flatten(),
        unread,
    })
}

/// The kubelet's configuration, in JSON or YAML.
fn settings(text: &str) -> Result<Map<String, Value>, String> {
    crate::yaml::from_str(text)
        .map_err(|_| format!("its {KUBELET_CONF} is no configuration of a kubelet"))
}

/// Words of a unit's command: from `ExecStart=` to the first line end without `\`.
fn command(unit: &str) -> Option<Vec<&str>> {
    let mut lines = unit
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("ExecStart="));
    let mut words = Vec::new();
    let first = lines.next()?.trim_start().strip_prefix("ExecStart=")?;
    let mut line = first;
    loop {
        let (said, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(said) => (said, true),
            None => (line, false),
        };
        words.extend(said.split_whitespace());
        if !goes_on {
            return Some(words);
        }
        let Some(next) = lines.next() else {
            return Some(words);
        };
        line = next;
    }
}

/// Content of one of its files. `None`: the file does not exist.
fn file(config: &Value, path: &str) -> Result<Option<String>, String> {
    let files = config["storage"]["files"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let Some(found) = files.iter().find(|file| file["path"] == path) else {
        return Ok(None);
    };
    let contents = &found["contents"];
    if contents["compression"]
        .as_str()
        .is_some_and(|how| !how.is_empty())
    {
        return Err(format!("its {path} is compressed, which is not understood"));
    }
    let source = contents["source"].as_str().unwrap_or_default();
    let text = data_url(source).ok_or_else(|| format!("its {path} is no data URL of text"))?;
    if text.len() > FILE_BYTES_MAX {
        return Err(format!(
            "its {path} has {} bytes, at most {FILE_BYTES_MAX}",
            text.len()
        ));
    }
    Ok(Some(text))
}

/// Text of a `data:` URL (RFC 2397), in base64 or with `%XX`.
fn data_url(url: &str) -> Option<String> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    let plain = unescaped(data)?;
    if !kind.ends_with(";base64") {
        return String::from_utf8(plain).ok();
    }
    let lax = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&base64::alphabet::STANDARD, lax)
        .decode(plain)
        .ok()?;
    String::from_utf8(decoded).ok()
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let hex = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        rest = &after[2..];
    }
    Some(bytes)
}

/// The same providers with their Windows names, which end in `.exe`. The result is JSON, which is valid YAML.
fn for_windows(text: &str) -> Result<String, String> {
    let mut config: Value =
        crate::yaml::from_str(text).map_err(|e| format!("its {ECR_CONFIG} is no YAML: {e}"))?;
    let providers = config.get_mut("providers").and_then(Value::as_array_mut);
    let providers = providers.filter(|all| !all.is_empty());
    for provider in providers.ok_or_else(|| format!("its {ECR_CONFIG} names no provider"))? {
        let Some(Value::String(name)) = provider.get_mut("name") else {
            return Err(format!("its {ECR_CONFIG} has a provider without a name"));
        };
        if !name.ends_with(".exe") {
            name.push_str(".exe");
        }
    }
    Ok(format!("{config:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const UNIT: &str = "[Unit]\nDescription=Kubernetes Kubelet\n\n[Service]\nType=notify\n\
        ExecStartPre=/bin/mkdir --parents /etc/kubernetes/manifests\n\
        ExecStart=/usr/local/bin/kubenswrapper \\\n    /usr/bin/kubelet \\\n      --config=/etc/kubernetes/kubelet.conf \\\n\
        \x20     --cloud-provider=external \\\n      --cloud-config=/etc/kubernetes/cloud.conf \\\n      --v=2\n\n\
        Restart=always\nEnvironment=X=--cloud-provider=no\n";
    const ECR: &str = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
        \x20 - name: ecr-credential-provider\n    matchImages: ['*.dkr.ecr.*.amazonaws.com']\n";

    fn config(unit: &str, files: &[(&str, String)]) -> Value {
        let files: Vec<_> = files
            .iter()
            .map(|(path, source)| json!({"path": path, "contents": {"source": source}}))
            .collect();
        json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files},
            "systemd": {"units": [{"name": "other.service"}, {"name": "kubelet.service", "contents": unit}]}})
    }

    #[test]
    fn a_kubelet_of_linux_says_what_holds_for_windows() {
        use base64::engine::general_purpose::STANDARD;
        let files = [
            (CLOUD_CONFIG, "data:,%5Bglobal%5D%0Aa%3D1".to_owned()),
            (
                ECR_CONFIG,
                format!(
                    "data:text/plain;charset=utf-8;base64,{}",
                    STANDARD.encode(ECR)
                ),
            ),
        ];
        let facts = kubelet_facts(&config(UNIT, &files)).expect("facts");
        assert_eq!(facts.cloud_provider.as_deref(), Some("external"));
        assert_eq!(facts.cloud_config.as_deref(), Some("[global]\na=1"));
        let ecr: Value = serde_json::from_str(&facts.ecr_config.expect("one")).expect("JSON");
        assert_eq!(ecr["providers"][0]["name"], "ecr-credential-provider.exe");
        assert_eq!(
            ecr["providers"][0]["matchImages"][0],
            "*.dkr.ecr.*.amazonaws.com"
        );
    }

    #[test]
    fn a_file_without_its_flag_is_nobodys() {
        let unit = "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider= --v=2\n";
        let files = [(CLOUD_CONFIG, "data:,x".to_owned())];
        let none = KubeletFacts {
            cloud_provider: Some(String::new()),
            ..KubeletFacts::default()
        };
        assert_eq!(kubelet_facts(&config(unit, &files)), Ok(none));
    }

    #[test]
    fn a_kubelet_conf_that_cannot_be_read_keeps_nothing_else_away() {
        for (source, wanted) in [
            ("https://elsewhere", "no data URL"),
            ("data:,maxPods:%20%5B", "no configuration of a kubelet"),
        ] {
            let files = [
                (CLOUD_CONFIG, "data:,a".to_owned()),
                (KUBELET_CONF, source.to_owned()),
            ];
            let facts = kubelet_facts(&config(UNIT, &files)).expect("the rest");
            assert_eq!(facts.cloud_config.as_deref(), Some("a"));
            assert_eq!(facts.settings, None);
            let why = facts.unread.expect("why");
            assert!(why.contains(KUBELET_CONF) && why.contains(wanted), "{why}");
        }
        let files = [(KUBELET_CONF, "data:,maxPods:%20250".to_owned())];
        let facts = kubelet_facts(&config(UNIT, &files)).expect("facts");
        assert_eq!(facts.unread, None);
        assert_eq!(facts.settings.expect("settings")["maxPods"], 250);
    }

    #[test]
    fn an_unreadable_kubelet_config_is_reported() {
        let table = [
            (json!({}), "has no kubelet.service"),
            (config("[Service]\n", &[]), "has no ExecStart"),
            (
                config(UNIT, &[(CLOUD_CONFIG, "https://elsewhere".into())]),
                "no data URL",
            ),
            (
                config(UNIT, &[(CLOUD_CONFIG, "data:,%f".into())]),
                "no data URL",
            ),
            (
                config(UNIT, &[(ECR_CONFIG, "data:,x".into())]),
                "names no provider",
            ),
        ];
        for (config, wanted) in table {
            let why = kubelet_facts(&config).expect_err(wanted);
            assert!(why.contains(wanted), "{why}");
        }
    }
}
