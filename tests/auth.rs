//! Authorization of reads and actions by the cluster's own reviews: over the API, in a browser, and through a forwarded
//! port.

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{
        Grant, User,
        kubeconfig::{Credential, kubeconfig},
    },
};
use dormer_testkit::{
    Process, ProcessSpec, TempDir, TestCa, await_condition, await_some, free_port, test_dir,
};
use dormer_views::actions::{ACTIONS, ActionTarget};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

/// A busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(120);
/// Where WMCO's Secret with the key is, and so dormer's settings.
const NAMESPACE: &str = "dormer";
/// Where Machines are.
const MACHINES: &str = "openshift-machine-api";

/// A running dormer on a simulated cluster of one machine.
struct Site {
    folder: TempDir,
    world: World,
    ssh_port: u16,
    dormer: Process,
    port: u16,
}

/// An answer: its status, its head as it came and in small letters, its body.
struct Answer {
    status: u16,
    head: String,
    headers: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("JSON: {}", self.body))
    }

    /// The sentence of a refusal, and what to do.
    fn refusal(&self) -> String {
        let body = self.json();
        format!("{} | {}", body["error"], body["whatToDo"]).replace('\\', "")
    }

    fn cookie(&self) -> String {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        let line = headers.find(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let (_, line) = line.unwrap_or_else(|| panic!("no cookie: {}", self.headers));
        assert!(line.contains("; HttpOnly; SameSite=Strict"), "{line}");
        line.split(';').next().unwrap_or_default().to_owned()
    }
}

/// A port of this machine that speaks HTTP.
struct Near {
    port: u16,
}

impl Near {
    fn ask(&self, request: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.open(request, headers, body);
        let mut text = String::new();
        // A peer that ends the connection the hard way has said everything, too.
        let _ = stream.read_to_string(&mut text);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{request}: {text}"));
        let headers = head.to_ascii_lowercase();
        let head = head.to_owned();
        Answer {
            status,
            head,
            headers,
            body: body.to_owned(),
        }
    }

    fn open(&self, request: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        stream.set_read_timeout(Some(IN_TIME)).expect("a timeout");
        let mut head = format!("{request} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", self.port);
        head += &format!("Connection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream
            .write_all(format!("{head}\r\n{body}").as_bytes())
            .expect("asked");
        stream
    }
}

impl Site {
    async fn new(flags: &[(&str, &str)]) -> Self {
        let folder = test_dir("auth");
        let ssh_port = free_port();
        let pace = Pace::times_faster(20.0);
        let config = WorldConfig {
            ssh_port,
            ..WorldConfig::on_loopback(1, pace)
        };
        let world = World::start(config).await.expect("a world");
        world
            .write_kubeconfig(&folder.path().join("kubeconfig"))
            .expect("written");
        let (dormer, near) = run(&folder, ssh_port, "store", flags).await;
        Self {
            folder,
            world,
            ssh_port,
            dormer,
            port: near.port,
        }
    }

    /// Another dormer for the same cluster, on a store of its own.
    async fn beside(&self, store: &str, flags: &[(&str, &str)]) -> (Process, Near) {
        // In one namespace a second dormer with another folder is refused.
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": store}});
        self.world.create(namespace).expect("made");
        let flags = [flags, &[("--namespace", store)]].concat();
        run(&self.folder, self.ssh_port, store, &flags).await
    }

    /// The dormer anew, at another port and on the same store.
    async fn again(&mut self, flags: &[(&str, &str)]) {
        let (dormer, near) = run(&self.folder, self.ssh_port, "store", flags).await;
        (self.dormer, self.port) = (dormer, near.port);
    }

    /// A dormer that asks the cluster, and caches a granted right for this time.
    async fn in_cluster(seconds: &str) -> Self {
        Self::new(&[
            ("--authentication", "cluster"),
            ("--review-seconds", seconds),
        ])
        .await
    }

    /// A token of a user who may do these things and nothing else.
    fn token(&self, user: &str, grants: Vec<Grant>) -> String {
        self.grant(user, grants);
        self.world.token_for(User::new(user, []))
    }

    fn grant(&self, user: &str, grants: Vec<Grant>) {
        self.world.api.tokens().grant(user, grants);
    }

    fn ask(&self, request: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        Near { port: self.port }.ask(request, headers, body)
    }

    fn open(&self, request: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        Near { port: self.port }.open(request, headers, body)
    }

    fn get(&self, path: &str, token: &str) -> Answer {
        self.ask(
            &format!("GET {path}"),
            &[("Authorization", &format!("Bearer {token}"))],
            "",
        )
    }

    fn post(&self, path: &str, token: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        self.ask(&format!("POST {path}"), &headers, body)
    }

    /// The machine's name, once dormer knows it.
    async fn machine(&self, token: &str) -> String {
        await_some("a machine", IN_TIME, || async {
            let listed = self.get("/api/v1/machines", token);
            (listed.status == 200).then(|| {
                listed.json()["items"][0]["name"]
                    .as_str()
                    .map(str::to_owned)
            })?
        })
        .await
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn end(mut self) {
        self.dormer.terminate().expect("it ends");
        let log = self.log();
        // The fleet's tokens begin so.
        let output = log.replace("windows-user-data", "");
        assert!(!output.contains("user-"), "a token is in the log: {log}");
    }
}

/// Starts `dormer run` for the cluster whose kubeconfig is in the folder, and waits until it answers.
async fn run(
    folder: &TempDir,
    ssh_port: u16,
    store: &str,
    flags: &[(&str, &str)],
) -> (Process, Near) {
    let port = free_port();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut args = vec!["run".to_owned()];
    for (flag, value) in [
        ("--kubeconfig", path("kubeconfig")),
        ("--store", path(store)),
        ("--host-program", crate::host_program(folder.path())),
        ("--ssh-port", ssh_port.to_string()),
        ("--listen", format!("127.0.0.1:{port}")),
    ] {
        args.extend([flag.to_owned(), value]);
    }
    args.extend(
        flags
            .iter()
            .flat_map(|(flag, value)| [(*flag).into(), (*value).into()]),
    );
    let log = if store == "store" {
        "log".to_owned()
    } else {
        format!("log-{store}")
    };
    let spec = ProcessSpec {
        program: env!("CARGO_BIN_EXE_dormer").into(),
        args,
        env: Vec::new(),
        log: folder.path().join(log),
        folder: None,
    };
    let dormer = Process::start(&spec).expect("dormer starts");
    await_condition("it answers", IN_TIME, || async {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
    (dormer, Near { port })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Everything that can be read.
fn viewer() -> Vec<Grant> {
    let verbs = ["get", "list", "watch"];
    let of = |resource: &'static str| verbs.map(|verb| Grant::of(verb, resource));
    [of("machines"), of("rollouts"), of("deadletters")].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_action_is_refused_without_its_right_and_taken_with_it() {
    dormer_testkit::full!();
    let site = Site::in_cluster("0").await;
    let ann = site.token("ann", viewer());
    let name = site.machine(&ann).await;
    let uid = site.get(&format!("/api/v1/machines/{name}"), &ann).json()["uid"].clone();
    for action in ACTIONS {
        let (path, resource, object) = match action.on {
            ActionTarget::Machine => (
                format!("machines/{name}/actions"),
                "machines",
                name.as_str(),
            ),
            ActionTarget::Rollout => ("rollouts/windows/actions".into(), "rollouts", "windows"),
            ActionTarget::Run => {
                let key = uid.as_str().expect("a UID");
                (format!("runs/machine/{key}"), "machines", name.as_str())
            }
            ActionTarget::DeadLetter => ("dead-letters/7".into(), "deadletters", "7"),
        };
        let path = format!("/api/v1/{path}/{}", action.name);
        let body = r#"{"who": "root", "why": "a test", "to": 1, "payload": "0.0.1", "fingerprint": "none"}"#;
        site.grant("ann", viewer());
        let refused = site.post(&path, &ann, body);
        let said = refused.refusal();
        let expected = format!("user \"ann\" may not {} {resource} {object}", action.name);
        assert!(
            refused.status == 403 && said.contains(&expected),
            "{path}: {said}"
        );
        let rule = format!("resources: [{resource}], verbs: [{}]", action.name);
        assert!(
            said.contains("apiGroups: [dormer.io]") && said.contains(&rule),
            "{said}"
        );

        let namespace = if resource == "machines" {
            MACHINES
        } else {
            NAMESPACE
        };
        let narrow = Grant {
            namespace: Some(namespace.into()),
            name: Some(object.into()),
            ..Grant::of(action.name, resource)
        };
        site.grant("ann", [viewer(), vec![narrow]].concat());
        let taken = site.post(&path, &ann, body);
        assert!(
            ![401, 403, 503].contains(&taken.status),
            "{path}: {}",
            taken.body
        );
    }
    let output = site
        .get(&format!("/api/v1/machines/{name}/history"), &ann)
        .body;
    assert!(output.contains("ann asked: pause (“a test”)"), "{output}");
    assert!(
        !output.contains("root asked"),
        "what a client claims counts for nothing: {output}"
    );
    site.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_needs_a_right_and_no_unknown_user_reads() {
    dormer_testkit::full!();
    let site = Site::in_cluster("0").await;
    let ann = site.token("ann", viewer());
    let name = site.machine(&ann).await;
    for path in [
        "/api/v1/machines",
        "/api/v1/changes",
        "/api/v1/nonsense",
        "/",
    ] {
        let nobody = site.ask(&format!("GET {path}"), &[], "");
        assert_eq!(nobody.status, 401, "{path}: {}", nobody.body);
        assert!(
            nobody.body.contains("token"),
            "it says how: {}",
            nobody.body
        );
        assert_eq!(site.get(path, "nonsense").status, 401, "{path}");
    }
    let nobody = site.ask("GET /api/v1/machines", &[], "");
    assert!(
        nobody.headers.contains("www-authenticate: bearer"),
        "{}",
        nobody.headers
    );
    for path in ["/healthz", "/readyz", "/metrics", "/login", "/console.css"] {
        assert_ne!(
            site.ask(&format!("GET {path}"), &[], "").status,
            401,
            "{path}"
        );
    }

    site.grant("ann", Vec::new());
    let machine = format!("/api/v1/machines/{name}");
    let page = format!("/machines/{name}");
    for path in [
        "/api/v1/machines",
        &machine,
        "/api/v1/changes",
        "/api/v1/dead-letters",
        "/",
        &page,
    ] {
        let refused = site.get(path, &ann);
        assert_eq!(refused.status, 403, "{path}: {}", refused.body);
        assert!(refused.body.contains("may not"), "{path}: {}", refused.body);
    }
    assert!(
        site.get("/api/v1/machines/nobody", &ann).status == 403,
        "who may not look is not told either what there is not"
    );

    let one = Grant {
        namespace: Some(MACHINES.into()),
        name: Some(name.clone()),
        ..Grant::of("get", "machines")
    };
    site.grant("ann", vec![one]);
    assert_eq!(
        (
            site.get(&machine, &ann).status,
            site.get(&page, &ann).status
        ),
        (200, 200)
    );
    assert_eq!(
        site.get("/api/v1/machines", &ann).status,
        403,
        "one is not all"
    );

    let watch = ["machines", "rollouts"].map(|resource| Grant::of("watch", resource));
    site.grant("ann", watch.into());
    let bearer = format!("Bearer {ann}");
    let stream = site.open("GET /api/v1/changes", &[("Authorization", &bearer)], "");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line.starts_with("event: reset")),
        "the stream begins"
    );
    site.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_taken_back_works_no_longer_and_without_the_api_server_nobody_comes_in() {
    dormer_testkit::full!();
    let site = Site::in_cluster("2").await;
    let ann = site.token("ann", viewer());
    let bob = site.token("bob", viewer());
    site.machine(&ann).await;
    assert_eq!(site.get("/api/v1/machines", &ann).status, 200);
    site.world.api.tokens().revoke(&ann);
    await_condition("the token is refused", IN_TIME, || async {
        site.get("/api/v1/machines", &ann).status == 401
    })
    .await;

    assert_eq!(site.get("/api/v1/machines", &bob).status, 200);
    site.world.api.set_available(false);
    let stranger = site.get("/api/v1/machines", "never-seen");
    assert_eq!(stranger.status, 503, "{}", stranger.body);
    assert!(
        stranger
            .refusal()
            .contains("no one can log in until the API server answers"),
        "{}",
        stranger.refusal()
    );
    await_condition("nobody comes in", IN_TIME, || async {
        site.get("/api/v1/machines", &bob).status == 503
    })
    .await;
    site.world.api.set_available(true);
    await_condition("it is as before", IN_TIME, || async {
        site.get("/api/v1/machines", &bob).status == 200
    })
    .await;
    site.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_for_somebody_else_is_none() {
    dormer_testkit::full!();
    let site = Site::new(&[
        ("--authentication", "cluster"),
        ("--audience", "dormer.example"),
    ])
    .await;
    site.grant("ann", viewer());
    let tokens = site.world.api.tokens();
    tokens.add_for(
        "for-us",
        User::new("ann", []),
        vec!["dormer.example".into()],
    );
    tokens.add_for(
        "for-others",
        User::new("ann", []),
        vec!["others.example".into()],
    );
    let general = site.world.token_for(User::new("ann", []));
    assert_eq!(site.get("/api/v1/machines", "for-us").status, 200);
    for token in ["for-others", &general] {
        assert_eq!(site.get("/api/v1/machines", token).status, 401);
    }
    site.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_logs_in_by_token_or_link_and_sends_requests_from_our_pages_only() {
    dormer_testkit::full!();
    let site = Site::in_cluster("0").await;
    let ann = site.token(
        "ann",
        [viewer(), vec![Grant::of("pause", "machines")]].concat(),
    );
    let name = site.machine(&ann).await;
    let own = format!("http://127.0.0.1:{}", site.port);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let login = |origin: &str, token: &str| {
        site.ask(
            "POST /login",
            &[form, ("Origin", origin)],
            &format!("token={token}"),
        )
    };
    assert_eq!(login("http://evil.example", &ann).status, 403);
    assert_eq!(login(&own, "nonsense").status, 401);
    let entered = login(&own, &ann);
    assert_eq!(entered.status, 200, "{}", entered.body);
    let cookie = entered.cookie();
    let cookie = ("Cookie", cookie.as_str());
    assert_eq!(site.ask("GET /", &[cookie], "").status, 200);

    let path = format!("POST /api/v1/machines/{name}/actions/pause");
    let json = ("Content-Type", "application/json");
    assert_eq!(
        site.ask(&path, &[cookie, json], "{}").status,
        403,
        "no page says so"
    );
    for origin in ["http://evil.example", "http://127.0.0.1:1", "null"] {
        let refused = site.ask(&path, &[cookie, json, ("Origin", origin)], "{}");
        assert_eq!(refused.status, 403, "{origin}: {}", refused.body);
    }
    let own_page = ("Origin", own.as_str());
    assert_eq!(
        site.ask(&path, &[cookie, form, own_page], "a=b").status,
        415
    );
    let taken = site.ask(&path, &[cookie, json, own_page], "{}");
    assert_eq!(taken.status, 200, "{}", taken.body);
    assert_eq!(taken.json()["halt"]["text"], "paused by ann");

    let link = site.post("/api/v1/links", &ann, "{}").json();
    let link = format!("GET {}", link["path"].as_str().expect("a path"));
    let followed = site.ask(&link, &[], "");
    let second = followed.cookie();
    assert_eq!(site.ask("GET /", &[("Cookie", &second)], "").status, 200);
    assert_eq!(site.ask(&link, &[], "").status, 401, "a link works once");

    assert_eq!(
        site.ask("POST /logout", &[cookie, own_page], "").status,
        200
    );
    assert_eq!(site.ask("GET /", &[cookie], "").status, 401);
    site.world.api.tokens().revoke(&ann);
    let revoked = site.ask("GET /", &[("Cookie", &second)], "");
    assert_eq!(revoked.status, 401, "a session is no more than its token");
    site.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_outlives_its_process_and_holds_in_every_console_of_the_same_key() {
    dormer_testkit::full!();
    let old = "o".repeat(40);
    let new = "n".repeat(40);
    let flags = [("--authentication", "cluster"), ("--review-seconds", "0")];
    let keyed = |key| [&flags[..], &[("--session-key", key)]].concat();
    let mut site = Site::new(&keyed(&*old)).await;
    let ann = site.token("ann", viewer());
    let login = |site: &Site, token: &str| {
        let origin = format!("http://127.0.0.1:{}", site.port);
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        site.ask(
            "POST /login",
            &[form, ("Origin", &origin)],
            &format!("token={token}"),
        )
    };
    let cookie = login(&site, &ann).cookie();
    let page = |near: &Near| near.ask("GET /", &[("Cookie", &cookie)], "").status;

    // Another console of the same key, one of a newer key that knows the old one, and a stranger.
    let both = format!("{new},{old}");
    let (_second, second) = site.beside("second", &keyed(&*old)).await;
    let (_third, third) = site.beside("third", &keyed(&*both)).await;
    let (_other, other) = site.beside("other", &keyed(&*new)).await;
    assert_eq!([page(&second), page(&third), page(&other)], [200, 200, 401]);
    // What the newer key seals, the stranger opens, and the older consoles do not.
    let origin = format!("http://127.0.0.1:{}", third.port);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let newer = third.ask(
        "POST /login",
        &[form, ("Origin", &origin)],
        &format!("token={ann}"),
    );
    let newer = newer.cookie();
    let opens = |near: &Near| near.ask("GET /", &[("Cookie", &newer)], "").status;
    assert_eq!(
        [opens(&third), opens(&other), opens(&second)],
        [200, 200, 401]
    );

    site.dormer.kill();
    site.again(&keyed(&*old)).await;
    assert_eq!(
        page(&Near { port: site.port }),
        200,
        "a restart logs nobody out"
    );
    // A right is asked about anew, wherever the session came from.
    site.grant("ann", Vec::new());
    assert_eq!([page(&second), page(&Near { port: site.port })], [403, 403]);
    site.grant("ann", viewer());
    // After logging out the browser has no cookie, and this process accepts no copy of it.
    let own = format!("http://127.0.0.1:{}", site.port);
    let out = site.ask("POST /logout", &[("Cookie", &cookie), ("Origin", &own)], "");
    assert!(
        out.status == 200 && out.headers.contains("max-age=0"),
        "{}",
        out.headers
    );
    assert_eq!(page(&Near { port: site.port }), 401);
    site.world.api.tokens().revoke(&ann);
    await_condition("a session is no more than its token", IN_TIME, || async {
        page(&second) == 401
    })
    .await;

    let long = "x".repeat(4_000);
    site.world
        .api
        .tokens()
        .add_for(&long, User::new("ann", []), Vec::new());
    let refused = login(&site, &long);
    assert_eq!(refused.status, 413, "{}", refused.body);
    assert!(refused.body.contains("4000 bytes") && refused.body.contains("cookie holds"));
    assert!(!refused.body.contains("xxxx"), "the token is in the page");
    site.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_cluster_a_link_in_a_file_opens_the_console_once() {
    dormer_testkit::full!();
    let own = test_dir("login-link");
    let [file, audit] = ["link", "audit"].map(|name| own.path().join(name));
    let [link_file, audit_log] = [&file, &audit].map(|it| it.display().to_string());
    let flags = [
        ("--authentication", "token"),
        ("--access-token", "a-word-of-enough-letters"),
        ("--login-link", &link_file),
        ("--audit-log", &audit_log),
    ];
    let site = Site::new(&flags).await;
    let kept = || std::fs::read_to_string(&file).ok();
    let link = await_some("a link", IN_TIME, || async { kept() }).await;
    let link = link.trim();
    let path = link
        .split_once(&site.port.to_string())
        .expect("our address")
        .1
        .to_owned();
    await_condition("the log names the file", IN_TIME, || async {
        site.log().contains(&link_file)
    })
    .await;
    assert!(!site.log().contains("token="), "the secret is in the log");
    assert_eq!(site.ask("GET /", &[], "").status, 401);
    let followed = site.ask(&format!("GET {path}"), &[], "");
    let cookie = followed.cookie();
    assert_eq!(site.ask("GET /", &[("Cookie", &cookie)], "").status, 200);
    assert_eq!(site.ask(&format!("GET {path}"), &[], "").status, 401);
    await_condition("another link is there", IN_TIME, || async {
        kept().is_some_and(|fresh| fresh.trim() != link)
    })
    .await;
    assert_eq!(site.get("/api/v1/machines", "another-word").status, 401);
    let url = format!("http://127.0.0.1:{}", site.port);
    let asked = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(["get", "machines", "--server", &url])
        .env("DORMER_TOKEN", "a-word-of-enough-letters")
        .output()
        .expect("it runs");
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    site.end();
    assert!(!file.exists(), "a link does not outlive its process");
    let lines = std::fs::read_to_string(&audit).expect("the audit");
    let refused: Vec<&str> = lines.lines().filter(|it| it.contains("refused")).collect();
    assert_eq!(
        refused.len(),
        2,
        "the link's second use, and a wrong token: {lines}"
    );
    assert!(
        !lines.contains("a-word-of") && !lines.contains("token="),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_a_token_goes_to_the_server_that_its_authority_names() {
    dormer_testkit::full!();
    let ca = TestCa::new();
    let identity = ca.issue("dormer", &["127.0.0.1", "localhost"]);
    let folder = test_dir("auth-tls");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let certificate = write("tls.crt", &identity.certificate);
    let key = write("tls.key", &identity.key);
    let trusted = write("ca.crt", &ca.certificate());
    let site = Site::new(&[
        ("--authentication", "cluster"),
        ("--tls-certificate", &certificate),
        ("--tls-key", &key),
    ])
    .await;
    let token = write("token", &site.token("ann", viewer()));
    let ask = |authority: &str| {
        let url = format!("https://localhost:{}", site.port);
        let args = [
            "get",
            "pools",
            "--server",
            &url,
            "--token-file",
            &token,
            "--ca-file",
            authority,
        ];
        Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(args)
            .output()
            .expect("it runs")
    };
    await_condition("it answers", IN_TIME, || async {
        ask(&trusted).status.success()
    })
    .await;
    let other = write("other.crt", &TestCa::new().certificate());
    let refused = ask(&other);
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused.stderr));
    site.end();
}

/// `kubectl dormer` with a kubeconfig of that value.
fn plugin(site: &Site, kubeconfig: &Value, args: &[&str]) -> Output {
    let path = |name: &str| -> PathBuf { site.folder.path().join(name) };
    let called = path("kubectl-dormer");
    if !called.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dormer"), &called).expect("a link");
    }
    std::fs::write(path("of-caller"), kubeconfig.to_string()).expect("written");
    Command::new(called)
        .args(args)
        .env("KUBECONFIG", path("of-caller"))
        .env_remove("DORMER_SERVER")
        .output()
        .expect("it runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_a_plugin_it_finds_dormer_in_the_cluster_and_asks_under_the_callers_name() {
    dormer_testkit::full!();
    let site = Site::in_cluster("0").await;
    let ann = site.token("ann", viewer());
    let name = site.machine(&ann).await;
    let config = site.world.kubeconfig_for(User::new("ann", []));
    let missing = plugin(&site, &config, &["get", "machines"]);
    assert!(
        text(&missing.stderr).contains("app.kubernetes.io/name=dormer"),
        "{missing:?}"
    );

    let labels = json!({"app.kubernetes.io/name": "dormer"});
    let meta = |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("dormer"),
        "spec": {"selector": labels, "ports": [
            {"name": "metrics", "port": 9}, {"name": "http", "port": 80, "targetPort": "people"}]}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("dormer-0"),
        "spec": {"containers": [{"name": "dormer", "image": "dormer",
            "ports": [{"name": "people", "containerPort": site.port}]}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}]}});
    for object in [service, pod] {
        site.world.create(object).expect("made");
    }
    let listed = plugin(&site, &config, &["get", "machines"]);
    assert!(text(&listed.stdout).contains(&name), "{listed:?}");
    let refused = plugin(&site, &config, &["pause", &name, "-n", NAMESPACE]);
    let said = text(&refused.stderr);
    assert!(
        said.contains("user \"ann\" may not pause machines"),
        "{said}"
    );

    let mut console = Command::new(site.folder.path().join("kubectl-dormer"))
        .arg("console")
        .env("KUBECONFIG", site.folder.path().join("of-caller"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let said = BufReader::new(console.stdout.take().expect("its output"))
        .lines()
        .next();
    let link = said.expect("a line").expect("text");
    let (port, path) = link["http://127.0.0.1:".len()..]
        .split_once('/')
        .expect("an address");
    let near = Near {
        port: port.parse().expect("a port"),
    };
    let cookie = near.ask(&format!("GET /{path}"), &[], "").cookie();
    let page = near.ask("GET /", &[("Cookie", &cookie)], "");
    assert!(
        page.status == 200 && page.body.contains(&name),
        "{}",
        page.body
    );
    console.kill().expect("it ends");
    console.wait().expect("it has ended");

    // A client certificate is not seen through a forwarded port: an account speaks for its owner, if asked to.
    let pair = site
        .world
        .api
        .ca()
        .client("carl", &["system:masters"])
        .expect("a certificate");
    let url = site.world.api_url.as_ref();
    let pem = site.world.api.ca().pem();
    let config = kubeconfig(url, &pem, "carl", &Credential::Certificate(pair));
    let unseen = plugin(&site, &config, &["get", "machines"]);
    assert!(text(&unseen.stderr).contains("--as-account"), "{unseen:?}");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("on-call")});
    site.world.create(account).expect("made");
    let on_call = format!("{NAMESPACE}/on-call");
    let asked = plugin(&site, &config, &["pause", &name, "--as-account", &on_call]);
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    // The token is for dormer alone, and dormer takes none for others.
    let others = ["--as-account", &on_call, "--audience", "others.example"];
    let others = [&["get", "machines"][..], &others].concat();
    let refused = plugin(&site, &config, &others);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        text(&refused.stderr).contains("401") || text(&refused.stderr).contains("token"),
        "{refused:?}"
    );
    let story = plugin(
        &site,
        &config,
        &["history", &name, "--as-account", &on_call],
    );
    let user = format!("system:serviceaccount:{NAMESPACE}:on-call asked: pause");
    assert!(
        text(&story.stdout).contains(&user),
        "{}",
        text(&story.stdout)
    );
    site.end();
}
