//! Recording proxy between a client and the API server, which can hold or cut connections.

use super::cluster::Site;
use dormer_testkit::Speaker;
use http_body_util::BodyExt;
use hyper::{Request, Response, Uri};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, DynBody},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tower::util::{MapRequestLayer, MapResponseLayer};

/// What was asked of the API server: the path, and the query's words.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    query: BTreeMap<String, String>,
}

impl Asked {
    /// A watch: where it begins. `None`: something else.
    pub(crate) fn watch(&self) -> Option<u64> {
        self.query.get("watch").filter(|watch| *watch == "true")?;
        self.query.get("resourceVersion")?.parse().ok()
    }

    /// A list of the whole kind.
    pub(crate) fn list(&self) -> bool {
        self.query.contains_key("limit") && self.watch().is_none()
    }
}

/// How it stands with the wire.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    held: bool,
    cuts: u32,
}

/// The wire. Dropping it cuts it for good.
pub(crate) struct Wire {
    port: u16,
    url: String,
    state: Arc<watch::Sender<State>>,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<Asked>>>,
    marks: Arc<watch::Sender<BTreeMap<String, u64>>>,
}

impl Wire {
    /// A wire to the site's API server.
    pub(crate) async fn new(site: &Site) -> Self {
        let url = site.plane.url();
        let to = url.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(watch::Sender::default());
        let connections = Arc::default();
        tokio::spawn(serve(
            listener,
            to,
            Arc::downgrade(&state),
            Arc::clone(&connections),
        ));
        let marks = Arc::new(watch::Sender::default());
        Self {
            port,
            url,
            state,
            connections,
            asked: Arc::default(),
            marks,
        }
    }

    /// A user's client over this wire. Each of its watches lasts so many seconds: a server tells how far it is once a
    /// minute, and two seconds before a watch's end.
    pub(crate) async fn client(&self, site: &Site, speaker: &Speaker, seconds: u32) -> Client {
        let kubeconfig = site.plane.kubeconfig(speaker);
        let ours = kubeconfig.replace(&self.url, &format!("https://127.0.0.1:{}", self.port));
        let parsed = Kubeconfig::from_yaml(&ours).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(parsed, &options)
            .await
            .expect("a config");
        config.default_retry = false;
        let asked = self.asked.clone();
        let marks = self.marks.clone();
        let note = MapRequestLayer::new(move |mut request: Request<Body>| {
            let short = shorter(request.uri(), seconds);
            *request.uri_mut() = short;
            asked.lock().expect("no panic").push(read(request.uri()));
            request
        });
        let tap = MapResponseLayer::new(move |response: Response<Box<DynBody>>| {
            let marks = marks.clone();
            response.map(|body| {
                body.map_frame(move |frame| {
                    frame
                        .data_ref()
                        .into_iter()
                        .for_each(|data| note_request(data, &marks));
                    frame
                })
            })
        });
        let builder = ClientBuilder::try_from(config).expect("a client");
        builder.with_layer(&tap).with_layer(&note).build()
    }

    /// Drops everything without closing the connection.
    pub(crate) fn hold(&self) {
        self.state.send_modify(|state| state.held = true);
    }

    /// Ends every connection; new ones pass.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| {
            *state = State {
                held: false,
                cuts: state.cuts + 1,
            }
        });
    }

    /// Connections until now, also those that came to nothing.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// What was asked until now.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }

    /// The last bookmark of each kind.
    pub(crate) fn marks(&self) -> watch::Receiver<BTreeMap<String, u64>> {
        self.marks.subscribe()
    }
}

async fn serve(
    listener: TcpListener,
    to: String,
    state: std::sync::Weak<watch::Sender<State>>,
    connections: Arc<AtomicUsize>,
) {
    while let Ok((near, _)) = listener.accept().await {
        let Some(state) = state.upgrade().map(|state| state.subscribe()) else {
            return;
        };
        connections.fetch_add(1, Ordering::Relaxed);
        let to = to.clone();
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(to).await else {
                return;
            };
            let (a, b) = near.into_split();
            let (c, d) = far.into_split();
            tokio::select! {
                _ = pump(a, d, state.clone()) => {}
                _ = pump(c, b, state) => {}
            }
        });
    }
}

/// Carries bytes until an end, or a cut.
async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let begun = state.borrow().cuts;
    let mut ends = state.clone();
    let mut bytes = vec![0; 64 * 1024];
    let carry = async {
        loop {
            let count = from.read(&mut bytes).await?;
            if count == 0 || state.wait_for(|state| !state.held).await.is_err() {
                return Ok(());
            }
            to.write_all(&bytes[..count]).await?;
        }
    };
    tokio::select! {
        biased;
        _ = ends.wait_for(|state| state.cuts > begun) => Ok(()),
        done = carry => done,
    }
}

fn read(uri: &Uri) -> Asked {
    let words = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|word| word.split_once('='));
    let query = words
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Asked {
        path: uri.path().to_owned(),
        query,
    }
}

/// The same address, with a watch's length replaced.
fn shorter(uri: &Uri, seconds: u32) -> Uri {
    let Some((path, query)) = uri
        .to_string()
        .split_once('?')
        .map(|(p, q)| (p.to_owned(), q.to_owned()))
    else {
        return uri.clone();
    };
    let word = |word: &str| {
        if word.starts_with("timeoutSeconds=") {
            format!("timeoutSeconds={seconds}")
        } else {
            word.to_owned()
        }
    };
    let words: Vec<String> = query.split('&').map(word).collect();
    format!("{path}?{}", words.join("&"))
        .parse()
        .expect("an address")
}

/// Notes a bookmark. The server sends each event of a watch in one piece, and bookmarks are small.
fn note_request(data: &[u8], marks: &watch::Sender<BTreeMap<String, u64>>) {
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        let kind = event["object"]["kind"].as_str();
        let version = event["object"]["metadata"]["resourceVersion"].as_str();
        let (true, Some(kind), Some(version)) = (event["type"] == "BOOKMARK", kind, version) else {
            continue;
        };
        let version = version.parse().expect("a number");
        marks.send_modify(|marks| {
            marks.insert(kind.to_owned(), version);
        });
    }
}
