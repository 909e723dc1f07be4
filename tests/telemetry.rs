//! Telemetry of `dormer run`: traces that are complete after a kill, log lines, and no secrets.

use dormer_fleet::{Pace, World, WorldConfig, api::kinds, payload::write_example};
use dormer_testkit::{
    NatsOptions, NatsServer, OtlpReceiver, Process, ProcessSpec, TempDir, TestCa, await_condition,
    await_some, free_port, started, test_dir,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const IN_TIME: Duration = Duration::from_secs(180);
/// Where WMCO's Secret with the key is, and so dormer's settings.
const NAMESPACE: &str = "dormer";
/// A bearer token of a caller of the API.
const BEARER: &str = "marked-bearer-7d1f0a6c52";

/// A token for the collector, and the headers that it goes in, as the variable has them.
const OTLP_TOKEN: &str = "marked-otlp-52c8e1";
const OTLP_HEADERS: &str = "authorization=Bearer%20marked-otlp-52c8e1,x-tenant=windows";

/// Collector that stores what it receives: OpenTelemetry's own decoder, which refuses everything but OTLP.
struct Collector(OtlpReceiver);

impl Collector {
    fn received(&self) -> Vec<Value> {
        assert_eq!(self.0.refused(), Vec::<String>::new());
        let bytes = self.0.received();
        bytes
            .iter()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Names of the metrics that a process sent, with the kind of each.
    fn metrics(&self) -> BTreeMap<String, &'static str> {
        let mut all = BTreeMap::new();
        for message in self.received() {
            for metric in message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let kinds = ["sum", "gauge", "histogram"];
                let kind = kinds
                    .into_iter()
                    .find(|kind| metric[kind]["dataPoints"][0].is_object());
                all.insert(
                    text(metric, "name").to_owned(),
                    kind.expect("a kind with points"),
                );
            }
        }
        all
    }

    /// Bodies of all log records, in the order in which they came.
    fn logged(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        for message in self.received() {
            let records = &message["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
            let records = records.as_array().into_iter().flatten();
            bodies.extend(records.map(|record| text(&record["body"], "stringValue").to_owned()));
        }
        bodies
    }

    /// Every span once, by trace and id. A repeated span must be equal.
    fn spans(&self) -> BTreeMap<String, BTreeMap<String, Value>> {
        let mut traces: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        for message in self.received() {
            for resource in message["resourceSpans"].as_array().into_iter().flatten() {
                for span in resource["scopeSpans"][0]["spans"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    let trace = traces.entry(text(span, "traceId").to_owned()).or_default();
                    let again = trace.insert(text(span, "spanId").to_owned(), span.clone());
                    assert!(
                        again.is_none_or(|before| before == *span),
                        "told otherwise: {span}"
                    );
                }
            }
        }
        traces
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a str {
    let all = span["attributes"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|one| one["key"] == key);
    found
        .and_then(|one| one["value"]["stringValue"].as_str())
        .unwrap_or_default()
}

/// Simulated cluster, and dormer's settings for it.
struct Site {
    folder: TempDir,
    world: World,
    ssh_port: u16,
}

impl Site {
    async fn new(name: &str, machines: u32) -> Self {
        let folder = test_dir(name);
        let ssh_port = free_port();
        let pace = Pace::times_faster(20.0);
        let config = WorldConfig {
            ssh_port,
            ..WorldConfig::on_loopback(machines, pace)
        };
        let world = World::start(config).await.expect("a world");
        world
            .write_kubeconfig(&folder.path().join("kubeconfig"))
            .expect("written");
        let settings = json!({
            "apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows", "namespace": NAMESPACE},
            "spec": {"soak": "1s"},
        });
        world.create(settings).expect("settings of the pool");
        write_example(&folder.path().join("payload"), "11.0.0").expect("a payload");
        Self {
            folder,
            world,
            ssh_port,
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts `dormer run --log-format json` on the site's store.
    fn dormer(&self, log: &str, collector: &str, logged: &str) -> (Process, u16) {
        let store = self.path("store");
        self.dormer_on(
            log,
            &[("--store", &*store), ("--otlp-endpoint", collector)],
            logged,
        )
    }

    /// Starts `dormer run --log-format json` with these flags, too.
    fn dormer_on(&self, log: &str, more: &[(&str, &str)], logged: &str) -> (Process, u16) {
        self.dormer_in(log, more, &[("DORMER_LOG", logged)])
    }

    /// Starts `dormer run --log-format json` with these flags and variables, too.
    fn dormer_in(
        &self,
        log: &str,
        more: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> (Process, u16) {
        let port = free_port();
        let mut flags = vec![
            ("--kubeconfig", self.path("kubeconfig")),
            ("--payload", self.path("payload")),
            ("--host-program", crate::host_program(self.folder.path())),
            ("--ssh-port", self.ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
            ("--log-format", "json".to_owned()),
        ];
        flags.extend(
            more.iter()
                .map(|(flag, value)| (*flag, (*value).to_owned())),
        );
        let flags = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()]);
        let spec = ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(flags).collect(),
            env: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            log: self.folder.path().join(log),
            folder: None,
        };
        (Process::start(&spec).expect("dormer starts"), port)
    }

    fn served(&self) -> usize {
        let ready = |node: &Value| {
            let conditions = node["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            let ours = node["metadata"]["annotations"]["dormer.io/version"].is_string();
            ours && conditions
                .into_iter()
                .any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        self.world
            .all(&kinds::NODE)
            .iter()
            .filter(|node| ready(&node.value))
            .count()
    }

    /// Waits until the histories say that every machine is Joined.
    async fn await_joined(&self, count: usize, port: u16) {
        await_condition("machines that are Joined", IN_TIME, || {
            let body = get(port, "/api/v1/machines");
            let joined = body.matches("\"state\":\"Joined\"").count();
            async move { joined == count }
        })
        .await;
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

/// Waits until a process says that it is ready. Of one that has ended, or is late, it shows the log.
async fn await_ready(process: &mut Process, port: u16) {
    let until = Instant::now() + IN_TIME;
    await_condition("a process that is ready", 2 * IN_TIME, || {
        let answer = get(port, "/readyz");
        let ready = answer.starts_with("HTTP/1.1 200");
        let trouble = match process.is_running() {
            false => Some("it has ended"),
            true if Instant::now() > until => Some("it is late"),
            true => None,
        };
        if let Some(trouble) = trouble.filter(|_| !ready) {
            panic!("{trouble}, and answered {answer:?}: {}", process.log_tail());
        }
        async move { ready }
    })
    .await;
}

/// What a GET with a bearer token is answered, head and body, as far as it comes within a few seconds.
fn get(port: u16, path: &str) -> String {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let until = Instant::now() + Duration::from_secs(5);
    let mut bytes = Vec::new();
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else {
        return String::new();
    };
    let patience = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let asked = write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {BEARER}\r\nConnection: close\r\n\r\n"
    );
    let mut piece = [0; 65_536];
    while patience.is_ok() && asked.is_ok() && Instant::now() < until {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether every span's parent was sent, and there is one root.
fn hold_whole(trace: &BTreeMap<String, Value>) {
    let roots = trace
        .values()
        .filter(|span| text(span, "parentSpanId").is_empty());
    assert_eq!(roots.count(), 1, "{trace:#?}");
    for span in trace.values() {
        let parent = text(span, "parentSpanId");
        if !parent.is_empty() {
            assert!(trace.contains_key(parent), "a hole above {span:#}");
        }
        let at = |key| text(span, key).parse::<u64>().expect("nanoseconds");
        assert!(at("startTimeUnixNano") <= at("endTimeUnixNano"), "{span}");
    }
}

/// The names from a span up to the root.
fn ancestors<'a>(trace: &'a BTreeMap<String, Value>, span: &'a Value) -> Vec<&'a str> {
    let mut ancestors = vec![text(span, "name")];
    let mut at = span;
    while let Some(parent) = trace.get(text(at, "parentSpanId")) {
        ancestors.push(text(parent, "name"));
        at = parent;
    }
    ancestors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_is_whole_though_engine_and_worker_were_killed_in_the_middle() {
    dormer_testkit::full!();
    let collector = Collector(started!(OtlpReceiver::start()));
    let endpoint = collector.0.url();
    let site = Site::new("traces", 2).await;
    let (mut first, _) = site.dormer("log-1", &endpoint, "info");
    // A killed process takes with it what it has not sent yet (a quarter of a second), and no upload is done twice.
    await_condition(
        "an upload to each host, known to the collector",
        IN_TIME,
        || {
            let spans = collector.spans();
            let has_upload = |trace: &&BTreeMap<String, Value>| {
                trace.values().any(|span| text(span, "name") == "upload")
            };
            let known = spans.values().filter(has_upload).count();
            async move { known == 2 }
        },
    )
    .await;
    first.kill();
    let (mut second, port) = site.dormer("log-2", &endpoint, "info");
    site.await_joined(2, port).await;
    second.terminate().expect("it ends");

    let bring_ups = |traces: BTreeMap<String, BTreeMap<String, Value>>| {
        let is_root = |span: &Value| {
            text(span, "parentSpanId").is_empty() && text(span, "name") == "bring-up"
        };
        let ups = traces
            .into_values()
            .filter(|trace| trace.values().any(is_root));
        ups.collect::<Vec<_>>()
    };
    await_condition("both bring-ups", IN_TIME, || {
        let both = bring_ups(collector.spans()).len() == 2;
        async move { both }
    })
    .await;
    let traces = bring_ups(collector.spans());
    let mut instances = BTreeSet::new();
    for message in collector
        .received()
        .iter()
        .filter(|message| message["resourceSpans"].is_array())
    {
        let attributes = &message["resourceSpans"][0]["resource"];
        instances.insert(attribute(attributes, "service.instance.id").to_owned());
    }
    let metrics = collector.metrics();
    for (name, kind) in [
        ("dormer_transitions", "sum"),
        ("dormer_machines", "gauge"),
        ("dormer_attempt_duration_seconds", "histogram"),
    ] {
        assert_eq!(metrics.get(name), Some(&kind), "{metrics:?}");
    }
    assert_eq!(instances.len(), 2, "both processes told: {instances:?}");
    for trace in &traces {
        hold_whole(trace);
        let named = |name: &str| {
            trace
                .values()
                .filter(|span| text(span, "name") == name)
                .count()
        };
        for name in [
            "probe",
            "converge-host",
            "approve-csr",
            "converge-node",
            "mark-node",
        ] {
            assert!(named(name) >= 1, "{name}");
        }
        for operation in ["queue", "execute", "connect", "command", "upload"] {
            assert!(named(operation) >= 1, "{operation}");
        }
        let command = trace
            .values()
            .find(|span| text(span, "name") == "command")
            .expect("one");
        let ancestors = ancestors(trace, command);
        assert_eq!(
            (
                ancestors[0],
                ancestors.len(),
                ancestors[ancestors.len() - 1]
            ),
            ("command", 5, "bring-up"),
            "{ancestors:?}"
        );
        assert!(ancestors[1].starts_with("attempt "), "{ancestors:?}");
        assert!(ancestors[3].starts_with("transition "), "{ancestors:?}");
        // Every record of the episode, one after another.
        let seqs = trace
            .values()
            .filter(|span| text(span, "name").starts_with("transition"));
        let seqs: BTreeSet<u64> = seqs
            .map(|span| attribute(span, "dormer.seq").parse().expect("a seq"))
            .collect();
        assert_eq!(
            seqs.iter().copied().collect::<Vec<_>>(),
            (1..=seqs.len() as u64).collect::<Vec<_>>()
        );
    }
    hold_log(&site, &collector);
}

/// The first attribute of this name that a resource of the collector's messages has.
fn of_resource(messages: &[Value], signal: &str, key: &str) -> Option<String> {
    let resources = messages
        .iter()
        .map(|message| &message[signal][0]["resource"]);
    let found = resources.map(|resource| attribute(resource, key).to_owned());
    found.into_iter().find(|value| !value.is_empty())
}

/// The variables that have a process send everything to `collector`, whose certificate `trusted` must have signed.
fn tls_variables(
    site: &Site,
    collector: &str,
    trusted: &TestCa,
    ours: &TestCa,
) -> Vec<[String; 2]> {
    let client = ours.user("dormer", None);
    let file = |name: &str, pem: String| {
        let path = site.path(name);
        std::fs::write(&path, pem).expect("written");
        path
    };
    let trusted = file("collector-ca.pem", trusted.certificate());
    let certificate = file("client.pem", client.certificate);
    let key = file("client-key.pem", client.key);
    [
        ("ENDPOINT", collector),
        ("CERTIFICATE", &trusted),
        ("CLIENT_CERTIFICATE", &certificate),
        ("CLIENT_KEY", &key),
        ("HEADERS", OTLP_HEADERS),
        ("COMPRESSION", "gzip"),
    ]
    .map(|(name, value)| [format!("OTEL_EXPORTER_OTLP_{name}"), value.to_owned()])
    .to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_is_reached_over_tls_with_headers_and_one_that_is_not_trusted_costs_telemetry_alone()
 {
    let authority = TestCa::new();
    let stranger = TestCa::new();
    let collector = Collector(started!(OtlpReceiver::start_tls(&authority)));
    let url = collector.0.url();
    let site = Site::new("otlp-tls", 1).await;
    let started = |name: &str, trusted: &TestCa| {
        let store = site.path(&format!("store-{name}"));
        let mut variables = tls_variables(&site, &url, trusted, &authority);
        for (name, value) in [
            ("DORMER_LOG", "debug,dormer=trace"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment.name=a-test",
            ),
            ("OTEL_SERVICE_NAME", "nodes"),
        ] {
            variables.push([name.to_owned(), value.to_owned()]);
        }
        let variables: Vec<(&str, &str)> = variables
            .iter()
            .map(|[name, value]| (&**name, &**value))
            .collect();
        let audit = site.path(&format!("audit-{name}"));
        let flags = [("--store", &*store), ("--audit-log", &*audit)];
        site.dormer_in(name, &flags, &variables)
    };

    let (mut first, port) = started("distrustful", &stranger);
    site.await_joined(1, port).await;
    for signal in ["traces", "metrics"] {
        let sentence = format!("the collector at {url}/v1/{signal} does not accept {signal}");
        let line = await_some("a sentence in the log", IN_TIME, || {
            let log = site.log("distrustful");
            let line = log.lines().find(|line| line.contains(&sentence));
            let line = line.map(str::to_owned);
            async move { line }
        })
        .await;
        assert!(
            line.contains("invalid peer certificate")
                && line.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"),
            "{line}"
        );
    }
    assert!(get(port, "/readyz").starts_with("HTTP/1.1 200"));
    let page = get(port, "/metrics");
    assert!(
        page.contains("dormer_spans_total{result=\"dropped\"}"),
        "{page}"
    );
    assert!(
        !page.contains("dormer_spans_total{result=\"sent\"}"),
        "{page}"
    );
    first.terminate().expect("it ends");
    assert_eq!(collector.0.requests(), Vec::<String>::new());
    let warnings = site.log("distrustful");
    let warnings = warnings.matches("does not accept").count();
    assert_eq!(
        warnings, 2,
        "one for each signal, however often it is tried"
    );

    let (mut second, port) = started("trustful", &authority);
    site.await_joined(1, port).await;
    // Dead letters may have secrets' names, so that reading them is audited.
    let page = get(port, "/dead-letters");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    await_condition("traces, metrics and logs", IN_TIME, || {
        let messages = collector.received();
        let of = |signal| messages.iter().filter(|it| it[signal].is_array()).count();
        let traced = of("resourceSpans") >= 1 && of("resourceLogs") >= 1;
        let all = traced && of("resourceMetrics") >= 2;
        async move { all }
    })
    .await;
    second.terminate().expect("it ends");
    hold_requests(&site, &collector);
    for log in ["distrustful", "trustful"] {
        assert!(!site.log(log).contains(OTLP_TOKEN), "{log} has the token");
    }
}

/// Every request has the headers and the resource that variables set, and the log records are the lines of the audit.
fn hold_requests(site: &Site, collector: &Collector) {
    let audit = std::fs::read_to_string(site.path("audit-trustful")).expect("an audit");
    let audit: Vec<&str> = audit.lines().collect();
    assert!(
        audit.iter().any(|line| line.contains("/dead-letters")),
        "{audit:?}"
    );
    assert_eq!(collector.logged(), audit);
    let messages = collector.received();
    for signal in ["resourceSpans", "resourceMetrics", "resourceLogs"] {
        for (key, value) in [
            ("service.name", "nodes"),
            ("deployment.environment.name", "a-test"),
        ] {
            assert_eq!(of_resource(&messages, signal, key).as_deref(), Some(value));
        }
    }
    let requests = collector.0.requests();
    for request in &requests {
        let request: Value = serde_json::from_str(request).expect("JSON");
        let headers = &request["headers"];
        let header = |name: &str| headers[name][0].as_str().unwrap_or_default().to_owned();
        assert_eq!(header("Authorization"), format!("Bearer {OTLP_TOKEN}"));
        assert_eq!(header("X-Tenant"), "windows");
        assert_eq!(header("Content-Type"), "application/x-protobuf");
        assert_eq!(header("Content-Encoding"), "gzip");
    }
}

/// One line for each record, with the trace that the collector knows.
fn hold_log(site: &Site, collector: &Collector) {
    let lines = site.log("log-1") + &site.log("log-2");
    let mut records = BTreeSet::new();
    let traces = collector.spans();
    let mut tasks = 0;
    let mut known = 0;
    for line in lines.lines().filter(|line| line.starts_with('{')) {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            continue; // The one that a kill cut off.
        };
        if line["message"] != "transition" {
            continue;
        }
        let run = text(&line, "run").to_owned();
        let seq = line["seq"].as_u64().expect("a seq");
        // People on call know the names of machines, and no UIDs.
        let named = line["machine"].is_string() || seq == 1 || !run.starts_with("machine/");
        assert!(named, "{line}");
        let from = line["from"].as_str().unwrap_or("Failed");
        let waits = line["state"] == "Failed" && from != "Failed";
        assert_eq!(line["level"] == "WARN", waits, "{line}");
        assert!(records.insert((run.clone(), seq)), "{run} {seq} twice");
        assert!(
            line["state"].is_string() && line["events"].as_u64().is_some(),
            "{line}"
        );
        if line["task"].is_string() {
            tasks += 1;
            assert!(
                line["attempt"].is_string() && line["outcome"].is_string(),
                "{line}"
            );
        }
        known += usize::from(traces.contains_key(text(&line, "trace")));
    }
    assert!(
        records.len() > 20 && tasks > 10 && known > 20,
        "{} {tasks} {known}",
        records.len()
    );
}

/// What must appear nowhere.
fn marks(site: &Site) -> Vec<(String, String)> {
    let mut marks = vec![("a caller's bearer token".to_owned(), BEARER.to_owned())];
    let kubeconfig = site.world.kubeconfig();
    let bearer = text(&kubeconfig["users"][0]["user"], "token").to_owned();
    marks.push(("dormer's bearer token".into(), bearer));
    for secret in site.world.all(&kinds::SECRET) {
        for (key, value) in secret.value["data"].as_object().into_iter().flatten() {
            if !["private-key.pem", "token", "token-secret"].contains(&key.as_str()) {
                continue;
            }
            let encoded = value.as_str().unwrap_or_default();
            let bytes: k8s_openapi::ByteString =
                serde_json::from_value(value.clone()).expect("base64");
            let decoded = String::from_utf8(bytes.0).expect("text");
            let middle = &encoded[encoded.len() / 4..encoded.len() * 3 / 4];
            marks.push((format!("{key}, encoded"), middle.to_owned()));
            // The first line of a key says only what kind it is.
            let lines: Vec<&str> = decoded
                .lines()
                .filter(|it| !it.starts_with("-----"))
                .collect();
            let secret = if lines.len() > 1 {
                &lines[1..]
            } else {
                &lines[..]
            };
            marks.extend(secret.iter().map(|line| (key.clone(), (*line).to_owned())));
        }
    }
    marks.retain(|(_, mark)| mark.len() >= 12);
    marks
}

/// What `dormer logs` tells of a machine. That no secret is in it says something only if there is output at all.
fn logs(machine: &str, port: u16) -> String {
    let server = format!("http://127.0.0.1:{port}");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dormer"));
    let output = command
        .args(["logs", machine, "--server", &server])
        .output()
        .expect("it runs");
    let message = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "  command probe: exit 0 after ",
        r"$ C:\Windows\dormer\bin\dormer-host-",
        "  command apply host: exit 0 after ",
        "      | answer to apply: ",
        "  command apply node: exit 0 after ",
    ] {
        assert!(
            message.contains(part),
            "{part} in {message}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    message
}

/// Everything that people or programs can read: what it is, and its text.
fn outputs(site: &Site, collector: &Collector, port: u16) -> Vec<(String, String)> {
    let mut paths: Vec<String> = [
        "/healthz",
        "/readyz",
        "/metrics",
        "/",
        "/dead-letters",
        "/rollouts/windows",
        "/api/v1/machines",
        "/api/v1/runs",
        "/api/v1/rollouts",
        "/api/v1/pools",
        "/api/v1/tasks",
        "/api/v1/dead-letters",
        "/api/v1/changes",
        "/api/v1/rollouts/windows/history",
        "/api/v1/nonsense",
    ]
    .map(str::to_owned)
    .to_vec();
    for machine in site.world.all(&kinds::MACHINE) {
        let uid = text(&machine.value["metadata"], "uid");
        for end in ["", "/history?limit=1000", "/commands"] {
            paths.push(format!("/api/v1/machines/{uid}{end}"));
        }
        paths.push(format!("/machines/{uid}"));
    }
    let mut outputs: Vec<(String, String)> = paths
        .into_iter()
        .map(|path| (path.clone(), get(port, &path)))
        .collect();
    for machine in site.world.all(&kinds::MACHINE) {
        let uid = text(&machine.value["metadata"], "uid");
        // The control plane's machines are none of dormer's.
        if get(port, &format!("/api/v1/machines/{uid}")).contains("\"state\":\"Joined\"") {
            outputs.push((format!("dormer logs {uid}"), logs(uid, port)));
        }
    }
    assert!(
        outputs
            .iter()
            .any(|(name, _)| name.starts_with("dormer logs"))
    );
    outputs.push(("the log".into(), site.log("log")));
    outputs.push((
        "traces".into(),
        serde_json::to_string(&collector.received()).expect("JSON"),
    ));
    for kind in kinds::ALL.iter().filter(|kind| kind.kind != "Secret") {
        for object in site.world.all(kind) {
            outputs.push((kind.kind.to_owned(), object.value.to_string()));
        }
    }
    for file in std::fs::read_dir(site.path("store"))
        .expect("a store")
        .flatten()
    {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        let name = file.path().display().to_string();
        outputs.push((name, String::from_utf8_lossy(&bytes).into_owned()));
    }
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaves_the_process() {
    dormer_testkit::full!();
    let collector = Collector(started!(OtlpReceiver::start()));
    let endpoint = collector.0.url();
    let site = Site::new("secrets", 2).await;
    // As much as a person might ask for in the search for a fault.
    let (mut dormer, port) = site.dormer("log", &endpoint, "debug,dormer=trace");
    site.await_joined(2, port).await;
    assert_eq!(site.served(), 2);
    let marks = marks(&site);
    assert!(
        marks.len() > 5,
        "a key, a bootstrap token, bearer tokens: {}",
        marks.len()
    );
    let outputs = outputs(&site, &collector, port);
    dormer.terminate().expect("it ends");
    let empty = outputs
        .iter()
        .filter(|(_, text)| text.is_empty())
        .map(|(name, _)| name);
    assert_eq!(empty.collect::<Vec<_>>(), Vec::<&String>::new());
    for (output, text) in &outputs {
        for (secret, mark) in &marks {
            let at = text.find(mark.as_str());
            let around = at.map(|at| text[..at].chars().rev().take(200).collect::<String>());
            let around = around.map(|text| text.chars().rev().collect::<String>());
            assert_eq!(around, None, "{output} tells {secret}");
        }
    }
}

/// Everything that is said on a NATS server, as bytes: a subscriber to every subject.
struct Overheard(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Overheard {
    fn on(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let subscribed = b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB > 1\r\nPING\r\n";
        stream.write_all(subscribed).expect("subscribed");
        let said = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let into = std::sync::Arc::clone(&said);
        std::thread::spawn(move || {
            let mut piece = [0; 65_536];
            while let Ok(read @ 1..) = stream.read(&mut piece) {
                if piece[..read].windows(6).any(|it| it == b"PING\r\n") {
                    let _ = stream.write_all(b"PONG\r\n");
                }
                into.lock()
                    .expect("bytes")
                    .extend_from_slice(&piece[..read]);
            }
        });
        Self(said)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("bytes")).into_owned()
    }
}

/// Worker and console as processes of their own, as in pods of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_commands_of_a_worker_elsewhere_reach_the_console_and_carry_no_secret() {
    dormer_testkit::full!();
    let options = NatsOptions {
        sync_always: true,
        monitor: true,
        ..NatsOptions::default()
    };
    let server = started!(NatsServer::start(options));
    let url = server.url();
    let monitor = server.monitor_url().expect("a page");
    let port = url
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("a port");
    let overheard = Overheard::on(port);
    let site = Site::new("commands", 1).await;
    let role = |role| {
        [
            ("--store", &*url),
            ("--nats-monitor", &*monitor),
            ("--role", role),
        ]
    };
    let (mut engine, _) = site.dormer_on("engine", &role("engine,watcher,approver"), "info");
    let (mut console, port) = site.dormer_on("console", &role("console"), "info");
    await_ready(&mut console, port).await;
    let (mut worker, own) = site.dormer_on("worker", &role("worker"), "debug");
    site.await_joined(1, port).await;

    let machines = site.world.all(&kinds::MACHINE);
    let uids = machines
        .iter()
        .map(|it| text(&it.value["metadata"], "uid").to_owned());
    let joined =
        |uid: &String| get(port, &format!("/api/v1/machines/{uid}")).contains("\"Joined\"");
    let uid = uids.into_iter().find(joined).expect("a machine of ours");
    let page = get(port, &format!("/machines/{uid}"));
    assert!(
        page.contains("id=\"commands\"") && page.contains("<pre tabindex"),
        "{page}"
    );
    let outputs = [
        ("dormer logs", logs(&uid, port)),
        ("the machine's page", page),
        ("NATS", overheard.text()),
        ("the worker's log", site.log("worker")),
        ("the worker's page", get(own, "/metrics")),
    ];
    assert!(
        outputs[2].1.contains("answer to apply: "),
        "commands go over NATS"
    );
    let history = get(port, &format!("/api/v1/machines/{uid}/history?limit=1000"));
    assert!(
        history.contains("converge-host") && !history.contains("answer to apply"),
        "{history}"
    );
    for process in [&mut worker, &mut console, &mut engine] {
        process.terminate().expect("it ends");
    }
    for (secret, mark) in marks(&site) {
        for (output, text) in &outputs {
            assert!(!text.contains(&mark), "{output} tells {secret}");
        }
        let stored = ["engine", "console"].map(|log| site.log(log)).concat();
        assert!(!stored.contains(&mark), "a log tells {secret}");
    }
}
