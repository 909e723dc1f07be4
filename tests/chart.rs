//! The chart: what it renders to, and that this build takes the arguments which it gives to the pods.
//!
//! `deploy/chart` is written by hand. The other manifests in `deploy` are rendered from it, or copied into it, by a test
//! here: `UPDATE_EXPECT=1 cargo test --test integration chart::`.

use dormer_profile::yaml;
use dormer_proto::subject::{INBOX_BYTES_MAX, Names};
use dormer_support::windows::RELEASES;
use dormer_testkit::{Helm, started};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

/// First line of what is rendered.
const HEAD: &str = "# Rendered from deploy/chart by a test: UPDATE_EXPECT=1 cargo test --test integration chart::\n";

/// Any URL of NATS; nothing is connected.
const NATS: &str = "--set=nats.url=nats://nats:4222,nats.insecure=true";

/// Rendered manifests: the file, and Helm's arguments.
const RENDERED: [(&str, &[&str]); 9] = [
    (
        "install.yaml",
        &[
            "--set=namespace.create=true",
            "--set=http.session.generate=false",
            "--api-versions=dormer.io/v1beta1/WindowsPool",
        ],
    ),
    (
        "rbac.yaml",
        &[
            "--show-only=templates/rbac.yaml",
            "--set=namespace.create=true",
            "--set=mode=split",
            "--set=join.accountTokens=false",
        ],
    ),
    (
        "guard.yaml",
        &["--show-only=templates/guard.yaml", "--set=mode=split"],
    ),
    (
        "cloud-nodes.yaml",
        &["--show-only=templates/cloud-nodes.yaml", "--set=mode=split"],
    ),
    (
        "machine-tokens.yaml",
        &[
            "--show-only=templates/machine-tokens.yaml",
            "--set=join.machineTokens=true",
            "--set=mode=split",
        ],
    ),
    (
        "canary.yaml",
        &[
            "--show-only=templates/canary.yaml",
            "--set=canaryNamespace=dormer-canary",
            "--set=mode=split",
        ],
    ),
    (
        "account-tokens.yaml",
        &[
            "--show-only=templates/account-tokens.yaml",
            "--set=join.accountTokens=true",
            "--set=mode=split",
        ],
    ),
    (
        "people.yaml",
        &["--show-only=templates/people.yaml", "--set=mode=split"],
    ),
    (
        "nats-users.yaml",
        &[
            "--show-only=templates/nats-users.yaml",
            "--set=mode=split",
            "--set=nats.users=true",
        ],
    ),
];

/// Files that the chart holds a copy of: Helm reads none beyond its folder.
const COPIED: [(&str, &str); 3] = [
    ("crd.yaml", "chart/files/crd.yaml"),
    ("monitoring/alerts.yaml", "chart/files/alerts.yaml"),
    ("monitoring/dashboard.json", "chart/files/dashboard.json"),
];

/// Values that touch every branch of the templates, each set with a name.
pub(crate) const VARIANTS: [(&str, &[&str]); 5] = [
    ("single", &[]),
    (
        "single-upstream",
        &[
            "--set=platform=upstream",
            "--set=join.apiUrl=https://10.0.0.1:6443",
            "--set=join.serviceCidr=10.96.0.0/12",
            "--set=join.clusterDomain=cluster.test",
            "--set=join.clientCa=kube-system/ca/ca.crt",
            "--set=store.storageClass=fast",
            "--set=http.session.secret=own",
            "--set=http.tokenProxy=127.0.0.1",
            "--set=sshAgent.container.image=registry.example/agent:1",
            "--set=sshAgent.container.volumeMounts[0].name=agent-settings",
            "--set=sshAgent.container.volumeMounts[0].mountPath=/settings",
            "--set=sshAgent.volumes[0].name=agent-settings",
            "--set=sshAgent.volumes[0].secret.secretName=agent-settings",
            "--set=sshAgent.keys[0]=SHA256:key",
            "--set=audit.log=/var/lib/dormer/audit.log",
            "--set=hostProgramSha256=0123456789012345678901234567890123456789012345678901234567890123",
            "--set=image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123",
        ],
    ),
    (
        "split",
        &[
            "--set=mode=split",
            NATS,
            "--set=payloadKeys[0]=RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaV",
            "--set=payloads[0].name=1.0.0",
            "--set=payloads[0].image=registry.example/payload:1.0.0",
            "--set=payloads[1].name=0.9.0",
            "--set=payloads[1].claim=payloads",
            "--set=profileLayers.site\\.yaml=name: site",
            "--set=nats.secrets.all=nats",
            "--set=nats.secrets.worker=nats-worker",
            "--set=nats.tls.secret=nats-tls",
            "--set=nats.tls.client=true",
            "--set=nats.monitor=http://nats:8222",
            "--set=nats.prefix=one",
            "--set=nats.users=true",
            "--set=nats.replicas=3",
            "--set=autoscaling.workers.enabled=true",
            "--set=ownHosts=true",
            "--set=otlpEndpoint=http://collector:4318",
            "--set=monitoring.scrape=PodMonitor",
            "--set=monitoring.alerts=true",
            "--set=monitoring.dashboard=true",
        ],
    ),
    (
        "split-upstream",
        &[
            "--set=mode=split",
            NATS,
            "--set=platform=upstream",
            "--set=machineNamespace=*",
            "--set=clusterApiNamespace=*",
            "--set=canaryNamespace=dormer-canary",
            "--set=canaryOutbound=mirror.example:443",
            "--set=ownHosts=true",
            "--set=join.bootstrapSecret=kube-system/token",
            "--set=nats.acceptLazySync=true",
            "--set=http.tlsSecret=own-tls",
            "--set=http.audience=dormer",
            "--set=audit.log=-",
            "--set=audit.required=false",
            "--set=forcedDrains=false",
            "--set=guard.enabled=false",
            "--set=networkPolicy.enabled=false",
            "--set=roles.console.replicas=1",
            "--set=monitoring.scrape=ServiceMonitor",
        ],
    ),
    (
        "upgrade",
        &[
            "--api-versions=dormer.io/v1beta1/WindowsPool",
            "--set=pool.spec.strategy.maxUnavailable=2",
            "--set=namespace.create=true",
        ],
    ),
];

/// Values that switch the network of Windows nodes on. The pods of these DaemonSets are not dormer's.
pub(crate) const NETWORK: &[&str] = &[
    "--set=platform=upstream",
    "--set=join.apiUrl=https://api.example:6443",
    "--set=join.serviceCidr=10.96.0.0/12",
    "--set=windowsNetwork.podCidr=10.244.0.0/16",
    "--set=windowsNetwork.flannel.image=registry.example/flannel:0.27.4",
    "--set=windowsNetwork.kubeProxy.image=registry.example/kube-proxy:1.36.3",
];

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// The chart rendered for a namespace.
pub(crate) fn rendered(helm: &Helm, namespace: &str, arguments: &[&str]) -> String {
    let namespace = format!("--namespace={namespace}");
    let mut all = vec![namespace.as_str(), "--kube-version=1.36.0"];
    all.extend(arguments);
    // A part that is shown alone does not need the values of the others, but Helm renders all of them.
    if arguments.contains(&"--set=mode=split") {
        all.push(NATS);
    }
    helm.template(&deploy().join("chart"), &all)
        .unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
}

/// The objects of a rendering.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    yaml::documents(text).expect("objects")
}

/// Compares a file with what it should be, or writes it.
pub(crate) fn same(file: &str, wanted: &str) {
    let path = deploy().join(file);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, wanted).expect("written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "deploy/{file} is stale: UPDATE_EXPECT=1 cargo test --test integration -- chart:: olm::"
    );
}

/// A rendering without Helm's own comments and without what empty branches leave behind.
pub(crate) fn tidied(text: &str) -> String {
    let mut lines = String::new();
    let mut blank = false;
    for line in text.lines().map(str::trim_end) {
        if line.starts_with("# Source: ") {
            continue;
        }
        if line.is_empty() {
            blank = true;
            continue;
        }
        // An empty line counts only where text continues.
        if blank && line != "---" && !lines.ends_with("---\n") {
            lines.push('\n');
        }
        blank = false;
        lines.push_str(line);
        lines.push('\n');
    }
    lines.strip_prefix("---\n").unwrap_or(&lines).to_owned()
}

#[test]
fn what_is_rendered_and_copied_is_fresh() {
    // First the copies, which Helm reads.
    for (from, to) in COPIED {
        let text = std::fs::read_to_string(deploy().join(from)).expect("a file");
        same(to, &text);
    }
    let helm = started!(Helm::start());
    for (file, arguments) in RENDERED {
        let text = rendered(&helm, "dormer", arguments);
        same(file, &format!("{HEAD}{}", tidied(&text)));
    }
}

/// Pods that a rendering makes: each one's component and spec.
pub(crate) fn pods(objects: &[Value]) -> Vec<(String, Value)> {
    let templates = objects.iter().map(|object| &object["spec"]["template"]);
    templates
        .filter(|template| template["spec"]["containers"].is_array())
        .map(|template| {
            let component = &template["metadata"]["labels"]["app.kubernetes.io/component"];
            let component = component.as_str().expect("a component").to_owned();
            (component, template["spec"].clone())
        })
        .collect()
}

#[test]
fn this_build_takes_the_arguments_of_every_pod() {
    let helm = started!(Helm::start());
    for (variant, arguments) in VARIANTS {
        let pods = pods(&objects(&rendered(&helm, "dormer", arguments)));
        let wanted = if variant.starts_with("split") { 5 } else { 1 };
        assert_eq!(pods.len(), wanted, "{variant}");
        for (component, pod) in pods {
            let printed = configured(&pod["containers"][0], variant);
            let roles = match component.as_str() {
                "single" => {
                    r#"role = ["watcher", "engine", "worker", "approver", "console"]"#.to_owned()
                }
                role => format!(r#"role = ["{role}"]"#),
            };
            assert!(
                printed.lines().any(|line| line == roles),
                "{variant}: {component} runs with {printed}"
            );
            assert!(printed.contains("listen = \"0.0.0.0:7080\""), "{printed}");
        }
    }
}

/// What dormer says its settings are with a container's arguments and variables.
pub(crate) fn configured(container: &Value, variant: &str) -> String {
    let mut dormer = Command::new(env!("CARGO_BIN_EXE_dormer"));
    for argument in container["args"].as_array().expect("arguments") {
        dormer.arg(argument.as_str().expect("a text"));
    }
    for variable in container["env"].as_array().expect("variables") {
        let name = variable["name"].as_str().expect("a name");
        // A Secret for NATS has either a user or a token.
        if name != "DORMER_NATS_TOKEN" {
            let secret = "0123456789abcdef0123456789abcdef";
            dormer.env(name, variable["value"].as_str().unwrap_or(secret));
        }
    }
    let output = dormer.arg("--print-config").output().expect("dormer");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variant}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The page about backups.
const BACKUP: &str = include_str!("../docs/backup.md");

/// Objects in the YAML blocks of a page.
pub(crate) fn objects_of_page(page: &str) -> Vec<Value> {
    let blocks = page.split("```yaml\n").skip(1);
    let texts = blocks.filter_map(|block| block.split("\n```").next());
    texts.flat_map(objects).collect()
}

/// This build takes the arguments of the examples, and each of their files is on a volume.
#[test]
fn the_jobs_of_the_page_about_backups_can_run() {
    let all = objects_of_page(BACKUP);
    let mut jobs = 0;
    for object in &all {
        let spec = match object["kind"].as_str() {
            Some("CronJob") => &object["spec"]["jobTemplate"]["spec"],
            Some("Job") => &object["spec"],
            _ => continue,
        };
        jobs += 1;
        let container = &spec["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().expect("arguments");
        let arguments: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        for file in arguments.iter().filter_map(|it| it.split_once("=/")) {
            let path = format!("/{}", file.1);
            let within = |mount: &Value| {
                let at = mount["mountPath"].as_str().expect("a path");
                path.starts_with(at)
            };
            assert!(mounts.iter().any(within), "{path}");
        }
        // Help is printed once the arguments before it were understood.
        let said = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(&arguments)
            .arg("--help")
            .output()
            .expect("dormer runs");
        let why = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{arguments:?}: {why}");
    }
    assert_eq!(jobs, 2);
}

#[test]
fn a_pod_may_write_nothing_but_its_volumes_and_is_probed_where_dormer_answers() {
    let helm = started!(Helm::start());
    for (variant, arguments) in VARIANTS {
        for (component, pod) in pods(&objects(&rendered(&helm, "dormer", arguments))) {
            let init = pod["initContainers"].as_array().into_iter().flatten();
            for container in init.chain(pod["containers"].as_array().expect("containers")) {
                let security = &container["securityContext"];
                assert_eq!(security["readOnlyRootFilesystem"], true, "{variant}");
                assert_eq!(security["allowPrivilegeEscalation"], false, "{variant}");
                assert_eq!(security["capabilities"]["drop"][0], "ALL", "{variant}");
            }
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{variant}");
            let container = &pod["containers"][0];
            let port = &container["ports"][0]["name"];
            for (probe, path) in [
                ("startupProbe", "/healthz"),
                ("livenessProbe", "/healthz"),
                ("readinessProbe", "/readyz"),
            ] {
                let get = &container[probe]["httpGet"];
                assert_eq!(get["path"], path, "{variant} {component}");
                assert_eq!(&get["port"], port, "{variant} {component}");
                let scheme = get["scheme"].as_str().expect("a scheme").to_lowercase();
                assert_eq!(Some(scheme.as_str()), port.as_str(), "{variant}");
            }
            // An engine has no token, and the program of a payload's image sees none.
            let images = pod["initContainers"].is_array();
            let token = component != "engine";
            assert_eq!(
                pod["automountServiceAccountToken"] != false,
                token && !images,
                "{variant} {component}"
            );
            let mounts = |container: &Value| container["volumeMounts"].to_string();
            let place = "/var/run/secrets/kubernetes.io/serviceaccount";
            assert_eq!(
                mounts(container).contains(place),
                token && images,
                "{variant} {component}"
            );
            for init in pod["initContainers"].as_array().into_iter().flatten() {
                assert!(!mounts(init).contains(place), "{variant} {component}");
            }
        }
    }
}

/// `0440` is a number for readers of YAML 1.1 alone, such as kubectl, and a text for those of 1.2 and of JSON.
#[test]
fn keys_are_for_dormers_user_in_every_dialect_of_yaml() {
    let helm = started!(Helm::start());
    let keys = "--set=nats.keys=dormer-keys,history.keys=dormer-history-keys";
    let all = objects(&rendered(&helm, "dormer", &["--set=mode=split", keys]));
    let pods = pods(&all);
    let volumes = pods.iter().flat_map(|(_, pod)| pod["volumes"].as_array());
    let secrets = volumes.flatten().filter(|it| {
        let name = it["secret"]["secretName"].as_str().unwrap_or_default();
        name.starts_with("dormer-keys-") || name == "dormer-history-keys"
    });
    let modes: Vec<Option<u64>> = secrets
        .map(|it| it["secret"]["defaultMode"].as_u64())
        .collect();
    assert_eq!(
        modes,
        vec![Some(0o440); 6],
        "five roles, and the engine's history"
    );
}

/// Arguments of each component's pod.
fn arguments_of(helm: &Helm, values: &[&str]) -> Vec<(String, Vec<String>)> {
    let all = pods(&objects(&rendered(helm, "dormer", values)));
    let texts = |pod: &Value| {
        let all = pod["containers"][0]["args"].as_array().expect("arguments");
        let texts = all.iter().filter_map(Value::as_str).map(str::to_owned);
        texts.collect()
    };
    all.into_iter()
        .map(|(component, pod)| (component, texts(&pod)))
        .collect()
}

/// Neither by its arguments nor by its account does a pod of dormer's come to a private key.
#[test]
fn a_key_in_an_agent_is_in_no_secret_that_dormer_may_read() {
    let helm = started!(Helm::start());
    let agent = "--set=sshAgent.container.image=registry.example/agent:1";
    let keys = "--set=sshAgent.keys={SHA256:new,SHA256:old}";
    for mode in ["single", "split"] {
        let mode = format!("--set=mode={mode}");
        let may_read = |values: &[&str]| {
            let all = objects(&rendered(&helm, "dormer", values));
            let roles = all.iter().filter(|it| it["kind"] == "Role");
            let rules = roles.map(|role| role["rules"].to_string());
            rules.filter(|it| it.contains("cloud-private-key")).count()
        };
        assert_eq!(may_read(&[&mode]), 1, "{mode}");
        assert_eq!(may_read(&[&mode, agent]), 0, "{mode}");
        for (component, arguments) in arguments_of(&helm, &[&mode, agent, keys]) {
            let logs_in = ["single", "worker"].contains(&component.as_str());
            for (flag, there) in [
                ("--private-key-secret=cloud-private-key", false),
                ("--ssh-agent=/run/dormer-agent/socket", logs_in),
                ("--ssh-agent-key=SHA256:new", logs_in),
                ("--ssh-agent-key=SHA256:old", logs_in),
            ] {
                let found = arguments.iter().any(|it| it == flag);
                assert_eq!(found, there, "{mode} {component} {flag}: {arguments:?}");
            }
        }
        let all = objects(&rendered(&helm, "dormer", &[&mode, agent, keys]));
        for (component, pod) in pods(&all) {
            let beside = pod["initContainers"].as_array();
            let logs_in = ["single", "worker"].contains(&component.as_str());
            assert_eq!(beside.is_some(), logs_in, "{mode} {component}");
            if let Some(beside) = beside {
                assert_eq!(
                    beside[0]["restartPolicy"], "Always",
                    "it runs beside dormer"
                );
            }
        }
    }
}

/// The roles that serve people take a forwarded token of that one address, and without the value of none.
#[test]
fn one_proxy_may_forward_tokens_to_the_console_alone() {
    let helm = started!(Helm::start());
    let proxy = "--set=http.tokenProxy=10.0.0.7";
    for mode in ["single", "split"] {
        let mode = format!("--set=mode={mode}");
        let taken = |values: &[&str]| -> Vec<String> {
            let all = arguments_of(&helm, values).into_iter();
            let with = all.filter(|(_, all)| all.iter().any(|it| it == "--token-proxy=10.0.0.7"));
            with.map(|(component, _)| component).collect()
        };
        let people = if mode.ends_with("single") {
            "single"
        } else {
            "console"
        };
        assert_eq!(taken(&[&mode, proxy]), [people]);
        let unset = arguments_of(&helm, &[&mode]);
        assert!(!format!("{unset:?}").contains("token-proxy"), "{unset:?}");
    }
}

/// TCP ports to which network policies let a component's pods connect; `None`: any.
fn ports_out(all: &[Value], component: &str) -> Option<Vec<u64>> {
    let selects = |policy: &&Value| {
        let selector = &policy["spec"]["podSelector"];
        let label = &selector["matchLabels"]["app.kubernetes.io/component"];
        let among = selector["matchExpressions"][0]["values"].as_array();
        let named = among.is_none_or(|all| all.iter().any(|it| it == component));
        named && (label.is_null() || label == component)
    };
    let policies = all.iter().filter(|it| it["kind"] == "NetworkPolicy");
    let out = policies.filter(|it| it["spec"]["policyTypes"][0] == "Egress");
    let out: Vec<&Value> = out.filter(selects).collect();
    let rules = out.iter().flat_map(|it| it["spec"]["egress"].as_array());
    let ports = rules.flatten().flat_map(|rule| {
        let ports = rule["ports"].as_array();
        ports.expect("a rule without ports lets all through")
    });
    let tcp = ports.filter(|port| port["protocol"] == "TCP");
    let tcp = tcp.map(|port| port["port"].as_u64().expect("a number"));
    (!out.is_empty()).then(|| tcp.collect())
}

#[test]
fn only_workers_reach_the_ssh_port_and_each_role_reaches_what_the_values_name() {
    let helm = started!(Helm::start());
    let values = [
        "--set=mode=split",
        "--set=nats.url=tls://u:77@nats-a:4333\\,tls://nats-b",
        "--set=nats.insecure=true",
        "--set=nats.monitor=http://nats:8333",
        "--set=otlpEndpoint=https://collector.example/otlp",
        "--set=join.apiUrl=https://api.example:16443",
        "--set=networkPolicy.apiPorts={8443}",
    ];
    let text = helm
        .template(&deploy().join("chart"), &values)
        .expect("a rendering");
    let all = objects(&text);
    assert_eq!(ports_out(&all, "worker"), None);
    let cluster = [443, 6443, 16443, 8443];
    for (component, api) in [
        ("engine", &[][..]),
        ("approver", &cluster),
        ("watcher", &cluster),
        ("console", &cluster),
    ] {
        let ports = ports_out(&all, component).expect("a policy");
        for wanted in [4333, 4222, 8333, 443].iter().chain(api) {
            assert!(ports.contains(wanted), "{component} {wanted}: {ports:?}");
        }
        for refused in [22, 77, 10250] {
            assert!(!ports.contains(&refused), "{component}: {ports:?}");
        }
        let engines = component == "engine" && ports.contains(&6443);
        assert!(!engines, "an engine needs no API server: {ports:?}");
    }
}

#[test]
fn the_menu_of_openshifts_console_links_to_dormers() {
    let helm = started!(Helm::start());
    let url = "--set=consoleLink.url=https://dormer.apps.example";
    let links = |arguments: &[&str]| -> Vec<Value> {
        let all = objects(&rendered(&helm, "dormer", arguments));
        let links = all.into_iter().filter(|it| it["kind"] == "ConsoleLink");
        links.collect()
    };
    let found = links(&[url]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["spec"]["href"], "https://dormer.apps.example");
    assert_eq!(found[0]["spec"]["location"], "ApplicationMenu");
    assert!(links(&[]).is_empty(), "nobody knows the address");
    assert!(links(&[url, "--set=platform=upstream"]).is_empty());
}

#[test]
fn values_that_do_not_exist_or_do_not_fit_are_refused() {
    let helm = started!(Helm::start());
    let chart = deploy().join("chart");
    for (argument, says) in [
        ("--set=moed=single", "moed"),
        ("--set=mode=double", "mode"),
        ("--set=mode=split", "nats.url"),
        ("--set=payloads[0].name=1.0.0", "payloads"),
        (
            "--set-json=payloads=[{\"name\":\"1.0.0\",\"claim\":\"payloads\"}]",
            "payloadKeys",
        ),
        ("--set=payloadKeys[0]=untrusted comment", "payloadKeys"),
        ("--set=slots=0", "slots"),
        ("--set=pool.name=blue", "pool"),
        ("--set=sshAgent.keys[0]=id.pub", "sshAgent"),
        ("--set=http.tokenProxy=proxy.example", "tokenProxy"),
        ("--set=consoleLink.url=http://plain.example", "consoleLink"),
        (
            "--set=mode=split,nats.url=nats://nats:4222,autoscaling.workers.enabled=true,slots=64",
            "autoscaling.workers",
        ),
    ] {
        let said = helm
            .template(&chart, &[argument])
            .expect_err("Helm refuses it");
        assert!(said.contains(says), "{argument}: {said}");
    }
    let old = helm.template(&chart, &["--kube-version=1.32.9"]);
    assert!(old.expect_err("too old").contains("1.33"));
    let both = [
        "--set-json=payloads=[{\"name\":\"1.0.0\",\"claim\":\"payloads\"}]",
        "--set=payloadKeys[0]=RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaV",
        "--set=payloadUnsigned=true",
    ];
    let said = helm.template(&chart, &both).expect_err("Helm refuses it");
    assert!(said.contains("exclude each other"), "{said}");
}

/// What `dormer migrate` changed in the pool must not be the chart's any more.
#[test]
fn a_field_of_the_pool_that_is_set_to_null_is_not_the_charts() {
    let helm = started!(Helm::start());
    let values = [
        "--set=pool.spec.paused=true,pool.spec.approval=Manual",
        "--set=pool.spec.paused=null",
    ];
    let all = objects(&rendered(&helm, "dormer", &values));
    let pool = all.iter().find(|object| object["kind"] == "WindowsPool");
    let pool = pool.expect("a pool");
    assert_eq!(pool["spec"], serde_json::json!({"approval": "Manual"}));
}

/// A Prometheus that does not select the monitor, or may not reach the pods, says nothing, and no alert fires.
#[test]
fn the_prometheus_of_the_values_finds_the_monitor_and_reaches_the_pods() {
    let helm = started!(Helm::start());
    let with = |more: &str| -> Vec<Value> {
        let values = format!("--set=monitoring.alerts=true,monitoring.scrape=PodMonitor{more}");
        objects(&rendered(&helm, "dormer", &[&values]))
    };
    let of = |all: &[Value], kind: &str, name: &str| -> Value {
        let found = all
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
    };
    let admitted = |all: &[Value]| -> Vec<Value> {
        let policy = of(all, "NetworkPolicy", "dormer-in");
        let from = policy["spec"]["ingress"][0]["from"].as_array().cloned();
        let labels = |peer: &Value| {
            peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"].clone()
        };
        let names = from.unwrap_or_default();
        let names = names.iter().map(labels);
        names.filter(|name| !name.is_null()).collect()
    };
    let own = with(
        ",monitoring.prometheus.namespace=monitoring,monitoring.labels.release=kube-prometheus-stack",
    );
    for kind in ["PodMonitor", "PrometheusRule"] {
        let labels = of(&own, kind, "dormer")["metadata"]["labels"].clone();
        assert_eq!(labels["release"], "kube-prometheus-stack", "{kind}");
        assert_eq!(labels["app.kubernetes.io/name"], "dormer", "{kind}");
    }
    assert_eq!(admitted(&own), ["openshift-monitoring", "monitoring"]);
    assert_eq!(
        admitted(&with("")),
        ["openshift-monitoring"],
        "once is enough"
    );
    // Helm takes a value of null out of the values.
    let alone = with(",networkPolicy.from=null,monitoring.prometheus.namespace=monitoring");
    assert_eq!(admitted(&alone), ["monitoring"]);
}

/// With the default policy the controller waits for a pod that never becomes ready, such as one of an image that is not there, and
/// neither an upgrade nor a rollback replaces it (kubernetes/kubernetes issue 67250).
#[test]
fn a_pod_that_never_became_ready_is_replaced_by_the_next_template() {
    let helm = started!(Helm::start());
    let all = objects(&rendered(&helm, "dormer", &["--set=mode=single"]));
    let sets: Vec<&Value> = all
        .iter()
        .filter(|object| object["kind"] == "StatefulSet")
        .collect();
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0]["spec"]["podManagementPolicy"], "Parallel");
}

/// A stream reserves its bytes when it is created. The inbox of an earlier build is as large, and stays during an update.
#[test]
fn the_memory_of_nats_has_room_for_every_stream_and_for_an_update() {
    let text = std::fs::read_to_string(deploy().join("nats-values.yaml")).expect("a file");
    let values: Value = yaml::from_str(&text).expect("values");
    let size = values["config"]["jetstream"]["memoryStore"]["maxSize"].as_str();
    let mebibytes = size
        .and_then(|it| it.strip_suffix("Mi"))
        .expect("mebibytes");
    let given = mebibytes.parse::<i64>().expect("a number") << 20;
    let streams = Names::default().streams();
    let reserved = streams.iter().filter(|it| it.in_memory && it.bytes_max > 0);
    let reserved: i64 = reserved.map(|it| it.bytes_max).sum();
    assert!(reserved > INBOX_BYTES_MAX, "the stream of changes, too");
    let needed = reserved + INBOX_BYTES_MAX;
    // Orders and alarms reserve nothing.
    assert!(given > needed, "{size:?} for {} MiB and more", needed >> 20);
}

/// dormer refuses a server without TLS, and the first lines of the file name such a URL.
#[test]
fn nats_speaks_tls_by_the_values_that_dormer_ships() {
    let text = std::fs::read_to_string(deploy().join("nats-values.yaml")).expect("a file");
    assert!(text.contains("nats.url=tls://nats:4222"), "{text}");
    let values: Value = yaml::from_str(&text).expect("values");
    let tls = &values["config"]["nats"]["tls"];
    assert_eq!(tls["enabled"], true, "{tls}");
    let secret = tls["secretName"].as_str().expect("a Secret");
    assert!(text.contains(&format!("The Secret `{secret}`")), "{secret}");
}

/// A namespace that is not there lets the whole installation fail.
#[test]
fn plain_kubernetes_needs_no_namespace_of_openshift() {
    let helm = started!(Helm::start());
    for mode in ["single", "split"] {
        let values = format!(
            "--set=platform=upstream,mode={mode},payloadUnsigned=true,ownHosts=true,clusterApiNamespace=clusters,\
             join.apiUrl=https://api.example:6443,join.serviceCidr=10.96.0.0/12,http.session.generate=false"
        );
        let text = rendered(&helm, "dormer", &[&values, NATS]);
        let mut namespaces: Vec<String> = objects(&text)
            .iter()
            .filter_map(|object| object["metadata"]["namespace"].as_str())
            .map(str::to_owned)
            .collect();
        namespaces.sort();
        namespaces.dedup();
        namespaces
            .retain(|name| !["clusters", "default", "dormer", "kube-system"].contains(&&**name));
        // The chart makes this one.
        namespaces.retain(|name| name != "dormer-join");
        assert_eq!(namespaces, Vec::<String>::new(), "{mode}");
        assert!(
            !text.contains("--machine-namespace=openshift-machine-api"),
            "{mode}"
        );
    }
}

/// Only OpenShift's machines use the Secret with the user data, and no name can be asked of a create: elsewhere nothing grants
/// it, and nowhere for all namespaces.
#[test]
fn the_right_to_make_the_user_data_is_for_the_namespaces_of_openshift() {
    let helm = started!(Helm::start());
    let granted = |values: &str| -> Vec<String> {
        let join = "join.apiUrl=https://api.example:6443,join.serviceCidr=10.96.0.0/12";
        let values = format!("--set=payloadUnsigned=true,{join},{values}");
        let objects = objects(&rendered(&helm, "dormer", &[&values]));
        let makes_secrets = |object: &&Value| {
            let rules = object["rules"].as_array().into_iter().flatten();
            let has = |it: &Value, key: &str, word: &str| {
                let words = it[key].as_array().into_iter().flatten();
                words.into_iter().any(|it| it == word || it == "*")
            };
            rules
                .filter(|it| has(it, "resources", "secrets"))
                .any(|it| has(it, "verbs", "create"))
        };
        let roles = objects.iter().filter(makes_secrets).filter(|it| {
            let namespace = it["metadata"]["namespace"].as_str().unwrap_or_default();
            // Bootstrap tokens, and the requests for tokens of the account.
            !["kube-system", "dormer-join"].contains(&namespace)
        });
        let roles: Vec<String> = roles
            .map(|it| {
                let at = &it["metadata"];
                let named = [&it["kind"], &at["name"], &at["namespace"]];
                named.map(|it| it.as_str().unwrap_or_default()).join(" ")
            })
            .collect();
        let bound = objects.iter().filter(|it| {
            it["roleRef"]["name"] == "dormer-worker-user-data" && it["kind"] == "RoleBinding"
        });
        assert_eq!(bound.count(), roles.len(), "{values}: {roles:?}");
        roles
    };
    let role = |namespace: &str| format!("Role dormer-worker-user-data {namespace}");
    for machines in ["", "x", "*"] {
        let upstream = format!("platform=upstream,machineNamespace={machines}");
        assert_eq!(granted(&upstream), Vec::<String>::new(), "{machines}");
    }
    for (values, namespaces) in [
        ("machineNamespace=", vec!["openshift-machine-api"]),
        ("machineNamespace=x", vec!["x"]),
        ("machineNamespace=*", vec!["openshift-machine-api"]),
        (
            "clusterApiNamespace=openshift-cluster-api",
            vec!["openshift-machine-api", "openshift-cluster-api"],
        ),
        (
            "clusterApiNamespace=clusters",
            vec!["openshift-machine-api"],
        ),
    ] {
        let wanted: Vec<String> = namespaces.into_iter().map(role).collect();
        let values = format!("platform=openshift,{values}");
        assert_eq!(granted(&values), wanted, "{values}");
    }
}

/// RBAC knows neither labels nor fences of a Machine: without the policy a worker may delete one of the control plane.
#[test]
fn the_machines_that_a_worker_may_delete_are_guarded_in_each_api() {
    let helm = started!(Helm::start());
    let arguments = [
        "--set=mode=split",
        "--set=payloadUnsigned=true",
        "--set=clusterApiNamespace=*",
    ];
    let all = objects(&rendered(&helm, "dormer", &arguments));
    let words_of = |rule: &Value, key: &str| -> Vec<String> {
        let words = rule[key].as_array().into_iter().flatten();
        let words = words.filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    };
    let policy = all.iter().find(|object| {
        object["kind"] == "ValidatingAdmissionPolicy"
            && object["metadata"]["name"] == "dormer-guard-machines"
    });
    let guarded = &policy.expect("a policy")["spec"]["matchConstraints"]["resourceRules"];
    let guarded = guarded.as_array().expect("rules").iter();
    let guarded: Vec<String> = guarded
        .flat_map(|rule| words_of(rule, "apiGroups"))
        .collect();
    let rules = all.iter().filter(|object| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with("dormer-worker")
    });
    let rules = rules.filter_map(|object| object["rules"].as_array());
    let deletes = rules.flatten().filter(|rule| {
        let has = |key: &str, word: &str| words_of(rule, key).iter().any(|it| it == word);
        has("resources", "machines") && has("verbs", "delete")
    });
    let mut groups: Vec<String> = deletes
        .flat_map(|rule| words_of(rule, "apiGroups"))
        .collect();
    groups.sort();
    assert_eq!(groups, ["cluster.x-k8s.io", "machine.openshift.io"]);
    for group in groups {
        assert!(guarded.contains(&group), "{group}: {guarded:?}");
    }
}

/// A BYOH host may leave before its Node served, and that Node has no mark of dormer's. One of a Machine has its link.
#[test]
fn the_node_of_a_byoh_host_may_go_though_it_never_served() {
    let helm = started!(Helm::start());
    let arguments = [
        "--set=mode=split",
        "--set=payloadUnsigned=true",
        "--set=ownHosts=true",
    ];
    let all = objects(&rendered(&helm, "dormer", &arguments));
    let policy = all.iter().find(|object| {
        object["kind"] == "ValidatingAdmissionPolicy"
            && object["metadata"]["name"] == "dormer-guard-node-deletion"
    });
    let rule = &policy.expect("a policy")["spec"]["validations"][0]["expression"];
    let rule = rule.as_str().expect("an expression");
    assert!(!rule.contains("\"dormer.io/"), "{rule}");
    for link in ["machine.openshift.io/machine", "cluster.x-k8s.io/machine"] {
        assert!(rule.contains(&format!("!(\"{link}\" in")), "{rule}");
    }
}

/// Rights to write that no admission policy narrows: the account, resource and operation, and why.
const NOT_NARROWED: [(&str, &[&str], &str); 7] = [
    (
        "dormer-approver",
        &["events CREATE", "events UPDATE"],
        "dormer reads none",
    ),
    (
        "dormer-console",
        &["subjectaccessreviews CREATE", "tokenreviews CREATE"],
        "they are questions",
    ),
    ("dormer-console", &["events CREATE"], "dormer reads none"),
    ("dormer-watcher", &["events CREATE"], "dormer reads none"),
    (
        "dormer-watcher",
        &[
            "windowshosts CREATE",
            "windowshosts DELETE",
            "windowshosts UPDATE",
            "windowshosts/status UPDATE",
        ],
        "it makes them of a ConfigMap, and accepts them",
    ),
    (
        "dormer-worker",
        &["pods DELETE", "pods/exec CREATE", "services DELETE"],
        "of canaries, in a namespace of their own; pods also by `forcedDrains`",
    ),
    (
        "dormer-worker",
        &["pods/eviction CREATE"],
        "admission sees no pod",
    ),
];

/// Operation by which admission knows a verb; `None`: it writes nothing.
fn operation(verb: &str) -> Option<&'static str> {
    match verb {
        "create" => Some("CREATE"),
        "patch" | "update" => Some("UPDATE"),
        "delete" => Some("DELETE"),
        _ => None,
    }
}

/// The texts of a list.
fn texts<'a>(object: &'a Value, field: &str) -> Vec<&'a str> {
    let all = object[field].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect()
}

/// Rights to write of dormer's accounts: account, group, resource, operation.
fn rights_to_write(all: &[Value]) -> BTreeSet<(&str, &str, &str, &'static str)> {
    let mut rights = BTreeSet::new();
    for binding in all {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let ours = subjects.filter(|it| it["namespace"] == "dormer");
        let accounts: Vec<&str> = ours.filter_map(|it| it["name"].as_str()).collect();
        let of = &binding["roleRef"];
        let roles = all
            .iter()
            .filter(|it| it["kind"] == of["kind"] && it["metadata"]["name"] == of["name"]);
        for rule in roles.filter_map(|it| it["rules"].as_array()).flatten() {
            let operations = texts(rule, "verbs").into_iter().filter_map(operation);
            let operations: Vec<&'static str> = operations.collect();
            for group in texts(rule, "apiGroups") {
                for resource in texts(rule, "resources") {
                    for operation in &operations {
                        for account in &accounts {
                            rights.insert((*account, group, resource, *operation));
                        }
                    }
                }
            }
        }
    }
    rights
}

/// RBAC knows neither fields nor types: a right to write without a policy is one to write everything.
#[test]
fn every_right_to_write_is_narrowed_by_a_policy_or_listed() {
    let helm = started!(Helm::start());
    let mut open = BTreeSet::new();
    for platform in ["openshift", "upstream"] {
        let values = format!(
            "--set=platform={platform},payloadUnsigned=true,ownHosts=true,clusterApiNamespace=clusters,\
             canaryNamespace=dormer-canary,join.apiUrl=https://api.example:6443,join.serviceCidr=10.96.0.0/12"
        );
        let all = objects(&rendered(&helm, "dormer", &["--set=mode=split", &values]));
        let policies: Vec<&Value> = all
            .iter()
            .filter(|it| it["kind"] == "ValidatingAdmissionPolicy")
            .map(|it| &it["spec"])
            .collect();
        for (account, group, resource, operation) in rights_to_write(&all) {
            let named = format!("\"system:serviceaccount:dormer:{account}\"");
            let is_narrowed = policies.iter().any(|policy| {
                let conditions = policy["matchConditions"].as_array().into_iter().flatten();
                let mut said = conditions.filter_map(|it| it["expression"].as_str());
                let rules = policy["matchConstraints"]["resourceRules"].as_array();
                said.any(|text| text.contains(&named))
                    && rules.into_iter().flatten().any(|rule| {
                        texts(rule, "apiGroups").contains(&group)
                            && texts(rule, "resources").contains(&resource)
                            && texts(rule, "operations").contains(&operation)
                    })
            });
            if !is_narrowed {
                open.insert(format!("{account}: {resource} {operation}"));
            }
        }
    }
    let mut listed = BTreeSet::new();
    for (account, rights, _) in NOT_NARROWED {
        listed.extend(rights.iter().map(|right| format!("{account}: {right}")));
    }
    assert_eq!(open, listed);
}

/// In v1alpha1 of the pool the spec has no schema. `approval: null` passes there, and the API server reads it as the default of
/// v1beta1, which is `Automatic`.
#[test]
fn a_pool_asks_for_approval_only_if_it_says_manual() {
    let helm = started!(Helm::start());
    let guard = ["--set=mode=split", "--show-only=templates/guard.yaml"];
    let all = objects(&rendered(&helm, "dormer", &guard));
    let loosening = all.iter().find(|it| {
        it["kind"] == "ValidatingAdmissionPolicy"
            && it["metadata"]["name"] == "dormer-guard-loosening"
    });
    let rules = loosening.expect("the policy")["spec"]["validations"].as_array();
    let mut rules = rules.expect("rules").iter();
    let found = rules.find_map(|rule| {
        let expression = rule["expression"].as_str()?;
        expression.contains(".?approval").then_some(expression)
    });
    let expression = found.expect("a rule for the approval");
    assert!(
        expression.starts_with(r#"variables.now.?approval.orValue("") == "Manual" ||"#),
        "{expression}"
    );
    assert!(
        expression.contains(r#"variables.before.?approval.orValue("") != "Manual""#),
        "{expression}"
    );
}

/// The DaemonSets and the profile mean the same folders, the plugins are where containerd looks for them, and the kubelet's
/// taint keeps neither away. The API server is reached by its own address, for no Service works before kube-proxy does.
#[test]
fn the_network_of_windows_nodes_fits_the_profile_and_is_off_by_default() {
    let helm = started!(Helm::start());
    let profile = include_str!("../workers/profile/src/builtin/upstream.yaml");
    let profile = &objects(profile)[0];
    let all = objects(&rendered(&helm, "dormer", NETWORK));
    let sets = all.iter().filter(|object| object["kind"] == "DaemonSet");
    let sets: Vec<&Value> = sets.collect();
    assert_eq!(sets.len(), 2);
    for set in sets {
        let pod = &set["spec"]["template"]["spec"];
        let env = pod["containers"][0]["env"].as_array().expect("variables");
        let value = |name: &str| {
            let found = env.iter().find(|it| it["name"] == name);
            found.expect(name)["value"].clone()
        };
        for name in ["CNI_BIN", "CNI_CONF"] {
            assert_eq!(value(name), profile["variables"][name], "{name}");
        }
        for (name, wanted) in [
            ("KUBERNETES_SERVICE_HOST", "api.example"),
            ("KUBERNETES_SERVICE_PORT", "6443"),
        ] {
            assert_eq!(value(name), wanted);
        }
        assert_eq!(
            pod["tolerations"],
            serde_json::json!([{"operator": "Exists"}])
        );
        assert_eq!(
            pod["securityContext"]["windowsOptions"]["hostProcess"],
            true
        );
        assert_eq!(pod["nodeSelector"]["kubernetes.io/os"], "windows");
        let terms =
            &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let build = &terms["nodeSelectorTerms"][0]["matchExpressions"][0];
        let supported = RELEASES.iter().filter(|release| release.refused.is_none());
        let builds: Vec<&str> = supported.map(|release| release.build).collect();
        assert_eq!(build["values"], serde_json::json!(builds));
        assert!(
            pod["containers"][0]["readinessProbe"].is_object(),
            "a join waits for it"
        );
    }
    let off = objects(&rendered(&helm, "dormer", &NETWORK[..4]));
    let of_network = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        ["network", "flannel", "kube-proxy"]
            .iter()
            .any(|part| name == format!("dormer-windows-{part}"))
    };
    assert_eq!(all.iter().filter(of_network).count(), 8);
    assert_eq!(
        off.iter().filter(of_network).count(),
        0,
        "off without an image"
    );
    for missing in ["join.apiUrl", "join.serviceCidr", "windowsNetwork.podCidr"] {
        let unset = format!("--set={missing}=");
        let mut arguments = NETWORK.to_vec();
        arguments.push(&unset);
        let why = helm
            .template(&deploy().join("chart"), &arguments)
            .expect_err(missing);
        assert!(why.contains(missing), "{why}");
    }
}

/// A pod that ends between the two leaves an address taken, and host-local gives no second one.
#[test]
fn kube_proxys_address_goes_back_before_it_is_taken() {
    let script = include_str!("../deploy/chart/files/windows-network/kube-proxy.ps1");
    let commands: Vec<&str> = script
        .lines()
        .filter_map(|line| line.trim().strip_prefix("$env:CNI_COMMAND = "))
        .collect();
    assert_eq!(commands, ["'DEL'", "'ADD'"]);
    let asked = script.matches("$asked | &").count();
    assert_eq!(asked, commands.len(), "host-local is run for each");
}
