//! A host that repeats every secret that it was sent, and more: none of them leaves the worker.

use super::bench::program;
use bytes::Bytes;
use dormer_fleet::{World, WorldConfig};
use dormer_profile::{
    cluster_config::ClusterSnapshot, layers::Layer, payload::Manifest, proxy::Proxy,
    render::EXAMPLE_PAYLOAD,
};
use dormer_proto::{
    id::{Attempt, Incarnation, RunId, Seq, Sum, TaskId, Timestamp},
    machine::{HostRef, MachineRef, Outcome, Section, Task},
    message::Failure,
    work::Order,
};
use dormer_workers::{
    catalog::Catalog,
    execute::Execute,
    host::{
        HostExecutor,
        cluster::{Bootstrap, CloudToken, Cluster, MachineInCluster},
    },
    payload::Payload,
    pool::Installed,
    progress::Progress,
    ssh::{BoxIo, Dial, Key, Limits},
};
use futures::future::BoxFuture;
use russh::{
    Channel, ChannelId,
    keys::{PrivateKey, decode_secret_key},
    server::{self, Auth, ChannelOpenHandle, Msg, VerifiedPublicKey},
};
use russh_sftp::protocol::{Attrs, FileAttributes, StatusCode};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};
use zeroize::Zeroizing;

/// Neither looks like a token.
const TOKEN: &str = "marked-token-of-no-shape";
const PASSWORD: &str = "marked-password-of-a-layer";
/// Too short for a secret that is known by its text.
const SHORT: &str = "pw-marked";
const OF_THE_PROXY: &str = "marked-password-of-the-proxy";

fn proxy() -> Proxy {
    let url = |password: &str| format!("http://u:{password}@proxy.example:3128");
    Proxy::new(&url(OF_THE_PROXY), &url(SHORT), "", "7")
}
const CLOUD_TOKEN: &str = "marked-token-of-a-cloud";

/// A server that answers whatever is run with one text.
#[derive(Clone)]
struct Talker {
    key: PrivateKey,
    says: Bytes,
    sftp: Files,
    channels: Vec<(ChannelId, Opened)>,
}

/// A channel until it is taken.
type Opened = Arc<Mutex<Option<Channel<Msg>>>>;

/// What its SFTP does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    /// It says the text.
    Talk,
    /// It has each file, and each is as long as the host program.
    There,
}

impl russh_sftp::server::Handler for Files {
    type Error = StatusCode;

    fn unimplemented(&self) -> StatusCode {
        StatusCode::OpUnsupported
    }

    async fn stat(&mut self, id: u32, _: String) -> Result<Attrs, StatusCode> {
        let attrs = FileAttributes {
            size: Some(program().bytes().len() as u64),
            ..FileAttributes::empty()
        };
        Ok(Attrs { id, attrs })
    }
}

impl server::Handler for Talker {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _: &str,
        _: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut server::Session,
    ) -> Result<(), Self::Error> {
        let id = channel.id();
        self.channels
            .push((id, Arc::new(Mutex::new(Some(channel)))));
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        if self.sftp == Files::Talk {
            return session.data(channel, self.says.clone());
        }
        let opened = self.channels.iter().find(|(id, _)| *id == channel);
        let (_, opened) = opened.expect("it was opened");
        let opened = opened.lock().expect("a channel").take();
        let stream = opened.expect("one SFTP for each channel").into_stream();
        russh_sftp::server::run(stream, self.sftp).await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _: &[u8],
        session: &mut server::Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        session.data(channel, self.says.clone())?;
        session.exit_status_request(channel, 1)?;
        session.eof(channel)?;
        session.close(channel)
    }
}

impl Dial for Talker {
    fn dial(&self, _: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let keys = vec![self.key.clone()];
        let config = Arc::new(server::Config {
            keys,
            ..server::Config::default()
        });
        let talker = self.clone();
        tokio::spawn(async move {
            if let Ok(session) = server::run_stream(config, theirs, talker).await {
                let _ = session.await;
            }
        });
        Box::pin(async move { Ok(Box::new(ours) as BoxIo) })
    }
}

struct Marked;

impl Cluster for Marked {
    async fn note(&self, _: &MachineRef, _: &str, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    async fn pinned(&self, _: &HostRef) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    async fn pin(&self, _: &MachineRef, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    async fn leaves(&self, _: &MachineRef) -> Result<bool, Failure> {
        Ok(false)
    }

    async fn machine_in_cluster(
        &self,
        _: &MachineRef,
        _: Option<&str>,
    ) -> Result<MachineInCluster, Failure> {
        let names = vec!["ip-10-0-0-9.ec2.internal".to_owned()];
        Ok(MachineInCluster {
            names,
            ..MachineInCluster::default()
        })
    }

    async fn read_cluster(&self) -> ClusterSnapshot {
        ClusterSnapshot {
            proxy: Ok(proxy()),
            ..ClusterSnapshot::default()
        }
    }

    async fn bootstrap(&self) -> Result<Bootstrap, Failure> {
        Ok(Bootstrap {
            api_url: "https://api-int.example:6443".into(),
            api_ca: "an authority".into(),
            client_ca: "an authority".into(),
            token: Some(TOKEN.to_owned().into()),
            exporter_tls: None,
            cluster_dns: "172.30.0.10".into(),
            cluster_domain: "cluster.local".into(),
            service_cidr: "172.30.0.0/16".into(),
        })
    }

    async fn token(&self, _: &MachineRef) -> Result<Zeroizing<String>, Failure> {
        Err(Failure::lasting(
            "NoToken",
            "one token is for all machines here",
        ))
    }

    async fn cloud_token(&self, _: &str, _: bool) -> Result<CloudToken, Failure> {
        Ok(CloudToken::New {
            token: CLOUD_TOKEN.to_owned().into(),
            node_uid: "uid-node".into(),
            due: Timestamp(u64::MAX),
        })
    }

    async fn note_cloud_token(&self, _: &str, _: &str, _: Timestamp) -> Result<(), Failure> {
        Ok(())
    }
}

fn order(body: Task) -> Order {
    let run = RunId::new("machine", "u").expect("a run");
    Order {
        task: TaskId {
            run,
            seq: Seq(1),
            ordinal: 0,
        },
        attempt: Attempt(1),
        incarnation: Incarnation(1),
        issued: Sum(1),
        episode: Seq(0),
        at: Timestamp(0),
        limit_ms: 60_000,
        body,
    }
}

fn host() -> HostRef {
    HostRef {
        machine: MachineRef {
            namespace: "ns".into(),
            name: "a".into(),
            uid: "u".into(),
            ..MachineRef::default()
        },
        address: "10.0.128.155".into(),
        user: "Administrator".into(),
        pin: None,
        platform: "AWS".into(),
    }
}

/// Executor that knows these secrets, and the lines of its key.
async fn executor(sftp: Files) -> (HostExecutor<Marked>, Catalog, Vec<String>) {
    let config = WorldConfig {
        linux: false,
        workload: false,
        ..WorldConfig::in_memory(0)
    };
    let world = World::start(config).await.expect("a world");
    let pem = &world.ssh_key.private_pem;
    let key_lines = pem
        .lines()
        .filter(|line| !line.starts_with("-----") && line.len() > 12);
    let key_lines: Vec<String> = key_lines.skip(1).map(str::to_owned).collect();
    assert!(!key_lines.is_empty());
    let layer = format!("host: {{services: {{kubelet: {{environment: {{WORD: {PASSWORD}}}}}}}}}");
    let layer = Layer::parse("layer", &layer).expect("a layer");
    let catalog = Catalog::new(&[layer]).expect("a catalog");
    let manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    catalog.add(Payload::in_memory(manifest, BTreeMap::new()));
    assert!(catalog.read_cluster(Marked.read_cluster().await).is_empty());
    let says = format!(
        "hello {TOKEN} {PASSWORD} {CLOUD_TOKEN} {} {OF_THE_PROXY} http://u:{SHORT}@proxy.example 10.0.128.155 bye\n",
        key_lines.join(" ")
    );
    let key = decode_secret_key(pem, None).expect("a key");
    let talker = Arc::new(Talker {
        key,
        says: says.into(),
        sftp,
        channels: Vec::new(),
    });
    let key = Key::read(pem).expect("a key");
    let executor = HostExecutor::new(
        talker,
        key,
        Limits::default(),
        catalog.clone(),
        program(),
        Arc::new(Marked),
    );
    (executor, catalog, key_lines)
}

#[tokio::test]
async fn the_token_of_a_cloud_node_manager_is_in_no_output_and_in_no_report() {
    let (executor, catalog, _) = executor(Files::There).await;
    let desired = catalog.desired("openshift", None).expect("a version")["10.0.20348"].clone();
    let converge = Task::Converge {
        host: HostRef {
            platform: "Azure".into(),
            ..host()
        },
        section: Section::Node,
        desired,
        generation: 1,
        node_name: Some("win-1".into()),
    };
    let progress = Progress::default();
    let answer = executor.execute(&order(converge), &progress).await;
    let mut texts = vec![answer.expect_err("it is no host of ours").message];
    texts.extend(
        progress
            .take_commands()
            .iter()
            .map(|ran| format!("{ran:?}")),
    );
    assert_eq!(texts.len(), 2, "{texts:#?}");
    for text in texts {
        assert!(text.contains("10.0.128.155 bye"), "{text}");
        assert!(!text.contains(CLOUD_TOKEN), "{text}");
    }
}

#[tokio::test]
async fn no_secret_in_a_hosts_output_is_published() {
    let (with_files, catalog, key_lines) = executor(Files::There).await;
    let desired = catalog.desired("openshift", None).expect("a version")["10.0.20348"].clone();
    let plan = Task::Plan {
        host: host(),
        desired: desired.clone(),
        node_name: None,
        adopt: false,
        generation: 1,
        renew: false,
    };
    let mut leaked = Vec::new();
    // The probe has no document. What the plan's said is known from before.
    for task in [plan, Task::Probe { host: host() }] {
        let progress = Progress::default();
        let answer: Result<Outcome, Failure> = with_files.execute(&order(task), &progress).await;
        let failure = answer.expect_err("it is no host of ours");
        leaked.push(("a report", failure.message));
        for command in progress.take_commands() {
            assert!(
                command.number == 1 && command.ended == "exit 1",
                "{command:?}"
            );
            assert!(command.head.starts_with("hello [secret]"), "{command:?}");
            leaked.push(("a remote command", format!("{command:?}")));
        }
    }
    assert_eq!(leaked.len(), 4, "{leaked:#?}");
    let (talking, _, other_lines) = executor(Files::Talk).await;
    let converge = Task::Converge {
        host: host(),
        section: Section::Host,
        desired,
        generation: 1,
        node_name: None,
    };
    let answer = talking
        .execute(&order(converge), &Progress::default())
        .await;
    let message = answer.expect_err("it is no host of ours").message;
    assert!(message.contains("SFTP"), "{message}");
    leaked.push(("a report", message));
    let key_lines = [key_lines, other_lines].concat();
    for (what, text) in &leaked {
        for secret in key_lines.iter().map(String::as_str).chain([TOKEN]) {
            assert!(!text.contains(secret), "{what} tells {secret}: {text}");
        }
        // SFTP's first words are repeated before anything of the document was said to the host.
        let of_output = !text.contains("SFTP");
        let secrets = [PASSWORD, OF_THE_PROXY, SHORT];
        let leaks = secrets.iter().any(|secret| text.contains(secret));
        assert!(!of_output || !leaks, "{what}: {text}");
        assert!(
            !of_output || text.contains("10.0.128.155 bye"),
            "no secret: {what}: {text}"
        );
        assert!(text.contains("[secret]"), "{what}: {text}");
    }
}
