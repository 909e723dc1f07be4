//! OTLP export: enabled signals, destinations, and TLS, as set by `--otlp-endpoint` and OpenTelemetry's own `OTEL_*`
//! variables.
//!
//! `opentelemetry-otlp` reads the variables of headers and compression; `opentelemetry_sdk` reads those of the
//! sampler and the resource. The rest is read here: endpoints, certificates, deadlines and switches.

use super::collector::{Collector, OtlpSignal};
use anyhow::{Context, bail, ensure};
use hyper::Uri;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    LogExporter, MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::{
    Resource,
    logs::LogExporter as _,
    metrics::Temporality,
    resource::{EnvResourceDetector, ResourceDetector, TelemetryResourceDetector},
    trace::SpanExporter as _,
};
use opentelemetry_semantic_conventions::{
    SCHEMA_URL,
    resource::{SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{sync::Arc, time::Duration};

/// Default deadline of one request: OpenTelemetry's own default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Default interval between two exports of metrics: OpenTelemetry's own default.
const INTERVAL: Duration = Duration::from_secs(60);
/// Shortest interval that a variable may set.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Samplers that the SDK implements.
const SAMPLERS: &[&str] = &[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Environment variables. Empty ones count as unset.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.trim().is_empty())
    }

    /// `OTEL_EXPORTER_OTLP_<SIGNAL>_<SETTING>`, else `OTEL_EXPORTER_OTLP_<SETTING>`: the variable and its value.
    fn of(&self, signal: OtlpSignal, setting: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{setting}", signal.variable());
        let general = format!("OTEL_EXPORTER_OTLP_{setting}");
        [own, general].into_iter().find_map(|name| {
            let value = self.get(&name)?;
            Some((name, value))
        })
    }

    /// Duration in a variable that was found. A value that is no duration is ignored with a warning, as OpenTelemetry's
    /// specification wants it.
    fn duration(&self, found: Option<(String, String)>) -> Option<Duration> {
        let (name, value) = found?;
        milliseconds(&name, &value)
            .inspect_err(|why| tracing::warn!("{why}"))
            .ok()
    }

    fn timeout(&self, signal: OtlpSignal) -> Duration {
        self.duration(self.of(signal, "TIMEOUT")).unwrap_or(TIMEOUT)
    }

    fn interval(&self) -> Duration {
        let name = "OTEL_METRIC_EXPORT_INTERVAL";
        let found = self.get(name).map(|value| (name.to_owned(), value));
        let interval = self.duration(found).unwrap_or(INTERVAL);
        interval.max(INTERVAL_MIN)
    }

    /// Warns of a value that the libraries would ignore silently.
    fn hold_to(&self, name: &str, known: &[&str]) {
        if let Some(value) = self.get(name)
            && !known.contains(&value.trim().to_ascii_lowercase().as_str())
        {
            let known = known.join(", ");
            tracing::warn!("{name}={value} is ignored: dormer knows {known}");
        }
    }
}

/// Milliseconds of the variable `name`.
///
/// # Errors
/// One sentence: they are no whole number above 0.
fn milliseconds(name: &str, value: &str) -> Result<Duration, String> {
    let read = value.trim().parse().ok().filter(|ms| *ms > 0);
    read.map(Duration::from_millis).ok_or_else(|| {
        format!("{name}={value} is ignored: it must be a whole number of milliseconds above 0")
    })
}

/// Exported signals and their destinations.
pub struct Export {
    traces: Option<OtlpTarget>,
    metrics: Option<OtlpTarget>,
    logs: Option<OtlpTarget>,
    resource: Resource,
    interval: Duration,
}

/// Destination of one signal.
struct OtlpTarget {
    signal: OtlpSignal,
    endpoint: Uri,
    timeout: Duration,
    tls: ClientConfig,
}

impl Export {
    /// Export of the process `name`. `endpoint` is `--otlp-endpoint`; it overrides the variables of endpoints.
    ///
    /// # Errors
    /// One sentence: an endpoint is not a URL, or a certificate cannot be used.
    pub fn new(endpoint: Option<&str>, name: &str) -> anyhow::Result<Self> {
        Self::by(endpoint, name, &|variable| std::env::var(variable).ok())
    }

    fn by(
        endpoint: Option<&str>,
        name: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let variables = Variables(environment);
        let export = Self {
            traces: OtlpTarget::of(OtlpSignal::Traces, endpoint, &variables)?,
            metrics: OtlpTarget::of(OtlpSignal::Metrics, endpoint, &variables)?,
            logs: OtlpTarget::of(OtlpSignal::Logs, endpoint, &variables)?,
            resource: resource(name, &variables),
            interval: variables.interval(),
        };
        if export.traces.is_some() {
            variables.hold_to("OTEL_TRACES_SAMPLER", SAMPLERS);
        }
        if export.traces.is_some() || export.metrics.is_some() || export.logs.is_some() {
            variables.hold_to("OTEL_EXPORTER_OTLP_PROTOCOL", &["http/protobuf"]);
            variables.hold_to("OTEL_EXPORTER_OTLP_COMPRESSION", &["gzip", "none"]);
        }
        Ok(export)
    }

    /// Resource attributes of this process.
    pub(super) fn resource(&self) -> Resource {
        self.resource.clone()
    }

    /// Interval between two exports of metrics.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Exporter of spans, if spans are enabled.
    ///
    /// # Errors
    /// The library rejects its settings.
    pub(super) fn spans(&self) -> anyhow::Result<Option<(SpanExporter, Arc<Collector>)>> {
        let Some(target) = &self.traces else {
            return Ok(None);
        };
        let collector = target.collector();
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_shared_http_client(collector.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(target.endpoint.to_string())
            .with_timeout(target.timeout)
            .build()?;
        exporter.set_resource(&self.resource);
        Ok(Some((exporter, collector)))
    }

    /// Exporter of metrics, if metrics are enabled.
    ///
    /// # Errors
    /// The library rejects its settings.
    pub(crate) fn metrics(&self) -> anyhow::Result<Option<(MetricExporter, Arc<Collector>)>> {
        let Some(target) = &self.metrics else {
            return Ok(None);
        };
        let collector = target.collector();
        let exporter = MetricExporter::builder()
            .with_http()
            .with_shared_http_client(collector.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(target.endpoint.to_string())
            .with_timeout(target.timeout)
            // Scrapes read the same sums, so they are cumulative.
            .with_temporality(Temporality::Cumulative)
            .build()?;
        Ok(Some((exporter, collector)))
    }

    /// Exporter of the audit's lines, if logs are enabled.
    ///
    /// # Errors
    /// The library rejects its settings.
    pub(super) fn logs(&self) -> anyhow::Result<Option<(LogExporter, Arc<Collector>)>> {
        let Some(target) = &self.logs else {
            return Ok(None);
        };
        let collector = target.collector();
        let mut exporter = LogExporter::builder()
            .with_http()
            .with_shared_http_client(collector.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(target.endpoint.to_string())
            .with_timeout(target.timeout)
            .build()?;
        exporter.set_resource(&self.resource);
        Ok(Some((exporter, collector)))
    }
}

impl OtlpTarget {
    fn of(
        signal: OtlpSignal,
        flag: Option<&str>,
        variables: &Variables<'_>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(endpoint) = endpoint(signal, flag, variables)? else {
            return Ok(None);
        };
        let tls = match endpoint.scheme_str() {
            Some("https") => tls(signal, variables)?,
            _ => verified_by(RootCertStore::empty())?.with_no_client_auth(),
        };
        Ok(Some(Self {
            signal,
            endpoint,
            timeout: variables.timeout(signal),
            tls,
        }))
    }

    fn collector(&self) -> Arc<Collector> {
        let tls = self.tls.clone();
        Arc::new(Collector::new(
            self.signal,
            &self.endpoint,
            tls,
            self.timeout,
        ))
    }
}

/// URL of a signal. `None`: it is not sent.
fn endpoint(
    signal: OtlpSignal,
    flag: Option<&str>,
    variables: &Variables<'_>,
) -> anyhow::Result<Option<Uri>> {
    let says = |name: &str, word: &str| {
        let value = variables.get(name);
        value.is_some_and(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let exporter = format!("OTEL_{}_EXPORTER", signal.variable());
    if says("OTEL_SDK_DISABLED", "true") || says(&exporter, "none") {
        return Ok(None);
    }
    let path = signal.path();
    let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.variable());
    let (source, value, url) = match (flag, variables.of(signal, "ENDPOINT")) {
        (Some(flag), _) => {
            let base = flag.trim_end_matches('/');
            let base = base.trim_end_matches(OtlpSignal::Traces.path());
            (
                "--otlp-endpoint".to_owned(),
                flag.to_owned(),
                format!("{base}{path}"),
            )
        }
        (None, Some((name, value))) if name == own => (name, value.clone(), value),
        (None, Some((name, value))) => {
            let url = format!("{}{path}", value.trim_end_matches('/'));
            (name, value, url)
        }
        (None, None) => return Ok(None),
    };
    let uri: Option<Uri> = url.trim().parse().ok();
    let usable = uri.filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
    });
    let Some(uri) = usable else {
        bail!(
            "{source} {value}: it must be http://HOST:PORT or https://HOST:PORT of a collector \
             that accepts OTLP over HTTP"
        );
    };
    Ok(Some(uri))
}

/// TLS to a collector: the CAs of `OTEL_EXPORTER_OTLP_CERTIFICATE`, or else the system's, and an optional client
/// certificate.
fn tls(signal: OtlpSignal, variables: &Variables<'_>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if let Some((name, file)) = variables.of(signal, "CERTIFICATE") {
        for certificate in certificates(&name, &file)? {
            let added = roots.add(certificate);
            added.with_context(|| format!("{name} {file}: a certificate cannot be used"))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        ensure!(
            !roots.is_empty(),
            "the system has no CA certificates, so a collector at https:// cannot be verified: \
             set OTEL_EXPORTER_OTLP_CERTIFICATE to a file with the CA"
        );
    }
    let config = verified_by(roots)?;
    let certificate = variables.of(signal, "CLIENT_CERTIFICATE");
    let key = variables.of(signal, "CLIENT_KEY");
    match (certificate, key) {
        (None, None) => Ok(config.with_no_client_auth()),
        (Some((name, file)), Some((key_name, key_file))) => {
            let key = PrivateKeyDer::from_pem_file(&key_file)
                .with_context(|| format!("{key_name} {key_file}: it has no private key"))?;
            let chain = certificates(&name, &file)?;
            let config = config.with_client_auth_cert(chain, key);
            config
                .with_context(|| format!("{name} {file}: it does not match {key_name} {key_file}"))
        }
        (Some((name, _)), None) => bail!("{name} needs OTEL_EXPORTER_OTLP_CLIENT_KEY"),
        (None, Some((name, _))) => bail!("{name} needs OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
    }
}

type ClientConfigBuilder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn verified_by(roots: RootCertStore) -> anyhow::Result<ClientConfigBuilder> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots))
}

/// Certificates of a PEM file that a variable names: at least one.
fn certificates(name: &str, file: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Vec<_> = read.with_context(|| format!("{name} {file}: it cannot be read as PEM"))?;
    ensure!(!read.is_empty(), "{name} {file}: it has no certificate");
    Ok(read)
}

/// Resource attributes: dormer's own, overridden by `OTEL_RESOURCE_ATTRIBUTES`, overridden by `OTEL_SERVICE_NAME`.
fn resource(name: &str, variables: &Variables<'_>) -> Resource {
    let ours = [
        KeyValue::new(SERVICE_NAME, "dormer"),
        KeyValue::new(SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        KeyValue::new(SERVICE_INSTANCE_ID, name.to_owned()),
    ];
    let detectors: [Box<dyn ResourceDetector>; 2] = [
        Box::new(TelemetryResourceDetector),
        Box::new(EnvResourceDetector::new()),
    ];
    let resource = Resource::builder_empty()
        .with_schema_url(ours, SCHEMA_URL)
        .with_detectors(&detectors);
    match variables.get("OTEL_SERVICE_NAME") {
        Some(service) => resource.with_service_name(service).build(),
        None => resource.build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        signal: OtlpSignal,
        flag: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Result<Option<String>, String> {
        let get = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        endpoint(signal, flag, &Variables(&get))
            .map(|uri| uri.map(|uri| uri.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_flag_wins_over_the_signals_variable_and_that_over_the_general_one() {
        use OtlpSignal::{Logs, Metrics, Traces};
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://all:4318/");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/in");
        let url = |url: &str| Ok(Some(url.to_owned()));
        for (signal, flag, environment, expected) in [
            (Traces, None, &[][..], Ok(None)),
            (Traces, None, &[general], url("https://all:4318/v1/traces")),
            (
                Metrics,
                None,
                &[general, own],
                url("https://all:4318/v1/metrics"),
            ),
            (Traces, None, &[general, own], url("http://traces:1/in")),
            (Metrics, None, &[own], Ok(None)),
            (
                Traces,
                Some("http://flag:4318"),
                &[general, own],
                url("http://flag:4318/v1/traces"),
            ),
            (
                Metrics,
                Some("http://flag/v1/traces"),
                &[],
                url("http://flag/v1/metrics"),
            ),
            (
                Logs,
                Some("http://flag/v1/traces"),
                &[],
                url("http://flag/v1/logs"),
            ),
            (
                Logs,
                None,
                &[general, ("OTEL_LOGS_EXPORTER", "none")],
                Ok(None),
            ),
            (
                Traces,
                None,
                &[general, ("OTEL_TRACES_EXPORTER", "none")],
                Ok(None),
            ),
            (
                Traces,
                Some("http://flag"),
                &[("OTEL_SDK_DISABLED", "TRUE")],
                Ok(None),
            ),
        ] {
            assert_eq!(chosen(signal, flag, environment), expected);
        }
        let wrong = ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
        let error = chosen(Traces, None, &[wrong]).unwrap_err();
        assert!(
            error.starts_with(
                "OTEL_EXPORTER_OTLP_ENDPOINT collector:4317: it must be http://HOST:PORT"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_duration_that_is_no_number_is_ignored_and_named() {
        assert_eq!(milliseconds("A", " 250 "), Ok(Duration::from_millis(250)));
        for value in ["10s", "0", "-5", "1.5", "99999999999999999999"] {
            let why = milliseconds("OTEL_METRIC_EXPORT_INTERVAL", value).unwrap_err();
            let begin = format!("OTEL_METRIC_EXPORT_INTERVAL={value} is ignored: ");
            assert!(why.starts_with(&begin), "{why}");
        }
    }

    #[test]
    fn the_service_is_named_by_ourselves_then_by_attributes_then_by_its_variable() {
        let named = |environment: &'static [(&str, &str)]| {
            let get = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            resource("pod-1", &Variables(&get))
        };
        let text = |resource: &Resource, key: &'static str| {
            let value = resource.get(&opentelemetry::Key::from_static_str(key));
            value.map(|value| value.to_string())
        };
        let plain = named(&[]);
        assert_eq!(text(&plain, SERVICE_NAME).as_deref(), Some("dormer"));
        assert_eq!(text(&plain, SERVICE_INSTANCE_ID).as_deref(), Some("pod-1"));
        assert_eq!(
            text(&plain, "telemetry.sdk.language").as_deref(),
            Some("rust")
        );
        let renamed = named(&[("OTEL_SERVICE_NAME", "nodes")]);
        assert_eq!(text(&renamed, SERVICE_NAME).as_deref(), Some("nodes"));
    }

    #[test]
    fn a_certificate_that_cannot_be_used_is_refused_in_one_sentence() {
        let folder = dormer_testkit::test_dir("otlp-tls");
        let file = folder.path().join("ca.pem").display().to_string();
        let refused = |variables: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let export = Export::by(Some("https://collector:4318"), "w", &get);
            export.err().map(|error| format!("{error:#}"))
        };
        let certificate = ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*file);
        let error = refused(&[certificate]).expect("no such file");
        assert!(error.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{error}");
        std::fs::write(&file, "no certificate").unwrap();
        let error = refused(&[certificate]).expect("an empty file");
        assert!(error.ends_with("it has no certificate"), "{error}");
        let authority = dormer_testkit::TestCa::new();
        std::fs::write(&file, authority.certificate()).unwrap();
        assert_eq!(refused(&[certificate]), None);
        let half = ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &*file);
        let error = refused(&[certificate, half]).expect("a key is missing");
        assert!(
            error.ends_with("needs OTEL_EXPORTER_OTLP_CLIENT_KEY"),
            "{error}"
        );
    }
}
