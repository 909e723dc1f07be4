//! Rights of people through the API, by the real API server's TokenReview and SubjectAccessReview and the shipped rules
//! of `deploy/people.yaml`.

use super::{
    accounts::{shipped, token},
    cluster::{PATIENCE, SERVICE_ACCOUNT, Site, World, client, plane},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dormer_profile::yaml;
use dormer_testkit::{
    ControlPlane, NatsOptions, NatsServer, Process, ProcessSpec, Speaker, TempDir, await_some,
    free_port, started, test_dir,
};
use dormer_views::actions::{ACTIONS, Action, ActionTarget};
use dormer_workers::kubernetes::join;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The manifest as it is shipped.
const PEOPLE: &str = include_str!("../../deploy/people.yaml");
/// Configured time for which the console caches a permission.
const REVIEW: Duration = Duration::from_secs(2);
/// What the API server itself remembers of a token, and a busy machine's part.
const SLACK: Duration = Duration::from_secs(25);
/// By how much the API server lets clocks differ when it looks whether a token has expired.
const TOLERANCE: Duration = Duration::from_secs(60);
/// Where Machines are, and where dormer is.
const MACHINES: &str = "openshift-machine-api";
const HOME: &str = "dormer";
/// The people's namespace.
const PEOPLE_HOME: &str = "people";

/// Who signs the tokens of accounts, and who they are for unless they say otherwise.
const ISSUER: &str = "https://kubernetes.default.svc";

const READS: [&str; 3] = ["get", "list", "watch"];
/// What the role for people on call names, beside reading.
const ON_CALL: [&str; 8] = [
    "retry", "pause", "resume", "hold", "drain", "approve", "abort", "requeue",
];

/// A console on the cluster, with an engine and a watcher behind it.
struct Office {
    server: NatsServer,
    folder: TempDir,
    _others: Process,
    console: Process,
    port: u16,
    world: World,
    /// The machine that is asked about, by its name and its run's key.
    machine: (String, String),
}

/// What is asked for: the verb, the resource, and how.
struct Asked {
    verb: String,
    resource: &'static str,
    request: String,
    /// On one object, which rules may name.
    object: Option<String>,
}

/// A process with these roles.
fn process(
    server: &NatsServer,
    folder: &TempDir,
    roles: &str,
    kubeconfig: &str,
    port: u16,
    authentication: &str,
) -> Process {
    let review = REVIEW.as_secs().to_string();
    let store = server.url();
    let listen = format!("127.0.0.1:{port}");
    let name = format!("{roles}-{authentication}");
    let flags = [
        ("--role", roles),
        ("--kubeconfig", kubeconfig),
        ("--store", store.as_str()),
        ("--listen", &listen),
        ("--namespace", HOME),
        ("--machine-namespace", MACHINES),
        ("--authentication", authentication),
        ("--review-seconds", &review),
        ("--name", &name),
    ];
    let flags = flags.into_iter().flat_map(|(flag, value)| [flag, value]);
    let spec = ProcessSpec {
        program: env!("CARGO_BIN_EXE_dormer").into(),
        args: std::iter::once("run")
            .chain(flags)
            .map(str::to_owned)
            .collect(),
        env: Vec::new(),
        log: folder.path().join(format!("log-{port}")),
        folder: None,
    };
    Process::start(&spec).expect("dormer starts")
}

impl Office {
    async fn open(plane: &'static ControlPlane, server: NatsServer) -> Self {
        let folder = test_dir("people");
        let port = free_port();
        let world = World {
            admin: client(&plane.kubeconfig(&plane.admin())).await,
        };
        for namespace in [HOME, PEOPLE_HOME, &join::namespace(HOME)] {
            world.namespace(namespace).await;
        }
        let people = yaml::documents(PEOPLE).expect("objects");
        for object in shipped().into_iter().chain(people) {
            // The namespace of canaries is the chart's test's, and no console's.
            let elsewhere = object["metadata"]["namespace"] == "dormer-canary";
            if object["kind"] != "Namespace" && !elsewhere {
                world.create(object).await;
            }
        }
        let site = Site {
            plane,
            world: world.clone(),
            name: PEOPLE_HOME,
            machines: MACHINES.into(),
        };
        let made = site.machine("one").await;
        let Speaker::Token(ours) = token(&site, HOME, "dormer-console").await else {
            unreachable!("an account has a token")
        };
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        // The console has its own account and no more; the others are no part of this.
        let ours = write("console", plane.kubeconfig(&Speaker::Token(ours)));
        let admin = write("admin", plane.kubeconfig(&plane.admin()));
        let run = |roles: &str, kubeconfig: &str, port: u16| {
            process(&server, &folder, roles, kubeconfig, port, "cluster")
        };
        let others = run("engine,watcher", &admin, free_port());
        let mut console = run("console", &ours, port);
        console
            .await_listening(port, PATIENCE)
            .expect("the console listens");
        Self {
            server,
            folder,
            _others: others,
            console,
            port,
            world,
            machine: (made.name, made.uid),
        }
    }

    /// An account, and the token by which it speaks.
    async fn account(&self, plane: &'static ControlPlane, name: &str) -> String {
        let meta = json!({"name": name, "namespace": PEOPLE_HOME});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta});
        self.world.create(account).await;
        self.token(plane, name).await
    }

    async fn token(&self, plane: &'static ControlPlane, name: &str) -> String {
        let world = self.world.clone();
        let site = Site {
            plane,
            world,
            name: PEOPLE_HOME,
            machines: MACHINES.into(),
        };
        match token(&site, PEOPLE_HOME, name).await {
            Speaker::Token(token) => token,
            Speaker::Certificate(_) => unreachable!("an account has a token"),
        }
    }

    /// Binds a role to an account, in all namespaces.
    async fn bind(&self, role: &str, account: &str) {
        self.world
            .create(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": format!("people-{account}-{role}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": PEOPLE_HOME}],
            }))
            .await;
    }

    /// A role of the test's own with these rules, bound to the account.
    async fn grant(&self, account: &str, rules: Value) {
        let name = format!("people-{account}");
        self.world
            .create(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name}, "rules": rules,
            }))
            .await;
        self.bind(&name, account).await;
    }

    /// The status of an answer, and what of its body came with it.
    fn ask(&self, request: &str, token: &str) -> (u16, String) {
        let body = if request.starts_with("POST") {
            r#"{"why": "a test", "to": 1, "payload": "0.0.1"}"#
        } else {
            ""
        };
        self.ask_at(self.port, request, token, body)
    }

    /// The same of the console at this port.
    fn ask_at(&self, port: u16, request: &str, token: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!(
            "{request} HTTP/1.1\r\nHost: dormer\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("asked");
        let mut text = Vec::new();
        if request.ends_with("/changes") {
            // It has no end, and its head is all that counts.
            let mut first = [0; 1_024];
            let read = stream.read(&mut first).expect("an answer");
            text.extend_from_slice(&first[..read]);
        } else {
            let _ = stream.read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let body = text
            .split_once("\r\n\r\n")
            .map_or("", |(_, body)| body)
            .to_owned();
        (status.unwrap_or_else(|| panic!("{request}: {text}")), body)
    }

    fn get(&self, path: &str, token: &str) -> u16 {
        self.ask(&format!("GET /api/v1{path}"), token).0
    }

    /// Waits until the answer has that status; answers how long it took.
    async fn becomes(&self, status: u16, path: &str, token: &str, within: Duration) -> Duration {
        let begun = Instant::now();
        await_some(&format!("{status} of {path}"), within, || async {
            (self.get(path, token) == status).then_some(())
        })
        .await;
        begun.elapsed()
    }

    /// Everything that can be asked for, with the right that it needs.
    fn everything(&self) -> Vec<Asked> {
        let (name, key) = &self.machine;
        let reads = [
            ("list", "machines", "/machines".to_owned()),
            ("list", "machines", "/tasks".into()),
            ("get", "machines", format!("/machines/{name}")),
            ("get", "machines", format!("/machines/{name}/history")),
            ("get", "machines", format!("/machines/{name}/commands")),
            ("get", "machines", format!("/runs/machine/{key}/timeline")),
            ("watch", "machines", "/changes".into()),
            ("list", "rollouts", "/rollouts".into()),
            ("get", "rollouts", "/rollouts/windows".into()),
            ("get", "rollouts", "/pools/windows".into()),
            ("list", "deadletters", "/dead-letters".into()),
            ("get", "deadletters", "/dead-letters/7".into()),
        ];
        let reads = reads.map(|(verb, resource, path)| Asked {
            verb: verb.into(),
            resource,
            object: (verb == "get" && resource == "machines").then(|| name.clone()),
            request: format!("GET /api/v1{path}"),
        });
        reads
            .into_iter()
            .chain(ACTIONS.iter().map(|action| self.action(action)))
            .collect()
    }

    fn action(&self, action: &Action) -> Asked {
        let (name, key) = &self.machine;
        let (resource, path, object) = match action.on {
            ActionTarget::Machine => (
                "machines",
                format!("machines/{name}/actions"),
                Some(name.clone()),
            ),
            ActionTarget::Run => (
                "machines",
                format!("runs/machine/{key}"),
                Some(name.clone()),
            ),
            ActionTarget::Rollout => ("rollouts", "rollouts/windows/actions".into(), None),
            ActionTarget::DeadLetter => ("deadletters", "dead-letters/7".into(), None),
        };
        let verb = action.name.to_owned();
        let request = format!("POST /api/v1/{path}/{}", action.name);
        Asked {
            verb,
            resource,
            request,
            object,
        }
    }
}

/// A person of the table: an account, and which of what is asked it may.
type Person<'a> = (&'a str, String, May);
/// Whether the user may do what is asked.
type May = fn(&Asked) -> bool;

fn reads(asked: &Asked) -> bool {
    READS.contains(&asked.verb.as_str())
}

/// The role names `pause` and `resume` of rollouts too, and `requeue` of messages alone.
fn on_call(asked: &Asked) -> bool {
    let named = ON_CALL.contains(&asked.verb.as_str());
    let acts = match asked.resource {
        "machines" => named && asked.verb != "requeue",
        "rollouts" => ["pause", "resume"].contains(&asked.verb.as_str()),
        _ => asked.verb == "requeue",
    };
    reads(asked) || acts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rbac_decides_who_may_read_and_who_may_request() {
    let plane = plane!();
    let server = NatsServer::start(NatsOptions {
        sync_always: true,
        ..NatsOptions::default()
    });
    let server = started!(server);
    let mut office = Office::open(plane, server).await;
    let people = people(&office, plane).await;
    let known = format!("/machines/{}", office.machine.0);
    // The viewer's first look: the console has heard of the machine, and its own account may ask.
    office
        .becomes(200, &known, &people[0].1, 3 * PATIENCE)
        .await;

    for asked in office.everything() {
        for (who, token, may) in &people {
            let (status, said) = office.ask(&asked.request, token);
            let row = format!("{who}: {}: {status} {said}", asked.request);
            if may(&asked) {
                assert!(![401, 403, 503].contains(&status), "{row}");
            } else {
                assert_eq!(status, 403, "{row}");
                let expected = format!("may not {} {}", asked.verb, asked.resource);
                assert!(said.contains(&expected) && said.contains(who), "{row}");
            }
        }
        assert_eq!(
            office.ask(&asked.request, "nobody").0,
            401,
            "{}",
            asked.request
        );
    }
    viewer_holds_only_without_reviews(&office, &people[0].1).await;
    rights_end(&office, plane, &people).await;
    tokens_end(&office, plane).await;
    office.console.terminate().expect("it ends");
}

/// Everybody of the table.
async fn people(office: &Office, plane: &'static ControlPlane) -> Vec<Person<'static>> {
    for (account, role) in [
        ("viewer", "dormer-viewer"),
        ("operator", "dormer-operator"),
        ("administrator", "dormer-administrator"),
        ("caller", "dormer-caller"),
    ] {
        office.account(plane, account).await;
        office.bind(role, account).await;
    }
    // Everything in Kubernetes' own groups, and OpenShift's Machines, is nothing here.
    let groups = [
        "",
        "apps",
        "batch",
        "rbac.authorization.k8s.io",
        "machine.openshift.io",
    ];
    let star = json!([{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}]);
    office.account(plane, "powerful").await;
    office.grant("powerful", star).await;
    // One machine by its name, and one that there is not.
    for (account, name) in [
        ("narrow", office.machine.0.as_str()),
        ("elsewhere", "another"),
    ] {
        office.account(plane, account).await;
        let rule = json!([{"apiGroups": ["dormer.io"], "resources": ["machines"],
            "resourceNames": [name], "verbs": ["get", "retry"]}]);
        office.grant(account, rule).await;
    }
    let narrow: May =
        |asked| asked.object.is_some() && ["get", "retry"].contains(&asked.verb.as_str());
    let nothing: May = |_| false;
    let mut all: Vec<Person<'static>> = Vec::new();
    let table: [(&str, May); 7] = [
        ("viewer", reads),
        ("operator", on_call),
        ("administrator", |_| true),
        ("caller", nothing),
        ("powerful", nothing),
        ("narrow", narrow),
        ("elsewhere", nothing),
    ];
    for (who, may) in table {
        all.push((who, office.token(plane, who).await, may));
    }
    all
}

/// "Viewer": an action is refused, and leaves no trace in the history. A console beside it that reviews nothing does it.
async fn viewer_holds_only_without_reviews(office: &Office, viewer: &str) {
    let port = free_port();
    let ours = office.folder.path().join("console");
    let ours = ours.display().to_string();
    let mut open = process(
        &office.server,
        &office.folder,
        "console",
        &ours,
        port,
        "none",
    );
    open.await_listening(port, PATIENCE).expect("it listens");
    let request = format!("POST /api/v1/machines/{}/actions/hold", office.machine.0);
    let held = office.ask_at(office.port, &request, viewer, r#"{"why": "with reviews"}"#);
    assert_eq!(held.0, 403, "{held:?}");
    await_some("it is done without reviews", PATIENCE, || async {
        let done = office.ask_at(port, &request, viewer, r#"{"why": "without reviews"}"#);
        (done.0 < 300).then_some(())
    })
    .await;
    let history = format!("GET /api/v1/machines/{}/history", office.machine.0);
    let recorded = await_some("the history has it", PATIENCE, || async {
        let (_, text) = office.ask(&history, viewer);
        text.contains("without reviews").then_some(text)
    })
    .await;
    assert!(!recorded.contains("\"with reviews"), "{recorded}");
    open.terminate().expect("it ends");
}

/// A right that is taken away ends, and so does one that is narrowed to a namespace.
async fn rights_end(office: &Office, plane: &'static ControlPlane, people: &[Person<'_>]) {
    let (_, operator, _) = &people[1];
    let one = format!("/machines/{}", office.machine.0);
    assert_eq!(office.get(&one, operator), 200);
    let binding = ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding");
    office
        .world
        .delete(binding, "", "people-operator-dormer-operator")
        .await;
    let took = office.becomes(403, &one, operator, REVIEW + SLACK).await;
    eprintln!("a right that was taken away ended after {took:?}");

    // In the Machines' namespace alone: looking at machines, and nothing of what is dormer's own.
    let token = office.account(plane, "local").await;
    office
        .world
        .create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "people-local", "namespace": MACHINES},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dormer-viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "local", "namespace": PEOPLE_HOME}],
        }))
        .await;
    office
        .becomes(200, "/machines", &token, REVIEW + SLACK)
        .await;
    assert_eq!(
        [
            office.get("/rollouts", &token),
            office.get("/dead-letters", &token)
        ],
        [403, 403]
    );
}

/// A token ends with its account, and with its time.
async fn tokens_end(office: &Office, plane: &'static ControlPlane) {
    let brief = office.account(plane, "brief").await;
    office.bind("dormer-viewer", "brief").await;
    office
        .becomes(200, "/machines", &brief, REVIEW + SLACK)
        .await;
    let account = office
        .world
        .get(SERVICE_ACCOUNT, PEOPLE_HOME, "brief")
        .await
        .expect("an account");
    let uid = account["metadata"]["uid"].as_str().expect("a UID");
    // In the past already, but within the API server's tolerance: it lives for another ten seconds.
    let ends = now() + 10 - TOLERANCE.as_secs();
    let made =
        |uid: &str, audience: &str| signed(&plane.accounts_key(), ("brief", uid), audience, ends);
    let lapsing = made(uid, ISSUER);
    assert_eq!(office.get("/machines", &lapsing), 200, "it lives");
    let for_others = made(uid, "vault.example");
    assert_eq!(
        office.get("/machines", &for_others),
        401,
        "it was given to another program"
    );
    let for_us = made(uid, dormer_views::AUDIENCE);
    assert_eq!(office.get("/machines", &for_us), 200, "it is for dormer");
    let client = client(&plane.kubeconfig(&Speaker::Token(for_us))).await;
    let answer = client.apiserver_version().await;
    assert!(
        matches!(&answer, Err(kube::Error::Api(status)) if status.code == 401),
        "the API server takes no token that is for dormer: {answer:?}"
    );
    let elsewhere = made("another-uid", ISSUER);
    assert_eq!(
        office.get("/machines", &elsewhere),
        401,
        "its account was made anew"
    );
    office
        .becomes(
            401,
            "/machines",
            &lapsing,
            Duration::from_secs(10) + REVIEW + SLACK,
        )
        .await;
    assert!(
        now() >= ends + TOLERANCE.as_secs(),
        "it ended before its time"
    );
    assert_eq!(office.get("/machines", &brief), 200);
    office
        .world
        .delete(SERVICE_ACCOUNT, PEOPLE_HOME, "brief")
        .await;
    office
        .becomes(401, "/machines", &brief, REVIEW + SLACK)
        .await;
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

/// A token as the API server itself signs them, of a life as short as a test needs: it grants none under ten minutes.
fn signed(key: &str, (account, uid): (&str, &str), audience: &str, ends: u64) -> String {
    let lines = key.lines().filter(|line| !line.starts_with("-----"));
    let key = base64::engine::general_purpose::STANDARD.decode(lines.collect::<String>());
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        &key.expect("base64"),
        &random,
    );
    let claims = json!({
        "iss": ISSUER, "aud": [audience], "iat": ends - 1, "nbf": ends - 1, "exp": ends,
        "sub": format!("system:serviceaccount:{PEOPLE_HOME}:{account}"),
        "kubernetes.io": {"namespace": PEOPLE_HOME, "serviceaccount": {"name": account, "uid": uid}},
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!(
        "{}.{}",
        part(&json!({"alg": "ES256", "typ": "JWT"})),
        part(&claims)
    );
    let signature = pair
        .expect("a key")
        .sign(&random, text.as_bytes())
        .expect("signed");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}
