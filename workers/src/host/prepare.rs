//! Preparation of a call of the host program: the document for its standard input, and the payload files.

use super::{
    HostExecutor, SectionTarget,
    call::HostAttempt,
    cluster::{Bootstrap, CloudToken, Cluster, MachineInCluster},
    facts::section,
    prepared::{CloudTokenSent, Prepared, bytes},
    renewal::with_token,
    values::{NodeValues, values},
};
use crate::{
    catalog::{InstalledVersion, VERSION_NOT_HERE},
    observer::{self, Operation},
    packed::{PACK_BYTES_MIN, Packed},
    progress::Progress,
    ssh::{FILES_AT_ONCE, Session, Sftp, SshError, Upload, at_once},
};
use dormer_host::paths::STAGING;
use dormer_profile::{
    invocation::Mode,
    profile::Profile,
    render::{Inputs, Rendered, Staged, render},
    sha256_hex,
    shown::named_secrets,
    values::{CLOUD_TOKEN, JOIN_TOKEN, join_secrets},
    variables::{Secrets, Variables},
};
use dormer_proto::{
    machine::{self, HostRef},
    message::Failure,
    pool::Desired,
};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The platform whose nodes run a cloud-node-manager each.
const CLOUD_NODES: &str = "azure";

/// Whether a profile's nodes run one that dormer gives its token.
fn has_cloud_nodes(profile: &Profile) -> bool {
    let used = named_secrets(profile, |name| name == CLOUD_TOKEN);
    used.get(CLOUD_TOKEN).is_some()
}

impl<C: Cluster> HostExecutor<C> {
    /// Renders a section for a host, with what its kubelet needs to join.
    pub(super) async fn prepare(
        &self,
        on: HostAttempt<'_>,
        wanted: SectionTarget<'_>,
    ) -> Result<Prepared, Failure> {
        let host = on.host;
        on.progress.step("render", 0, "");
        let found = self.find(wanted.desired).await?;
        let bootstrap = self.cluster.bootstrap().await?;
        let in_cluster = self
            .cluster
            .machine_in_cluster(&host.machine, wanted.node)
            .await?;
        let token = self.token(host, wanted, &bootstrap, &in_cluster).await?;
        // A Node keeps its name. Before there is one, the noted name routes its certificate requests.
        let named = wanted.node.map(str::to_owned).or(in_cluster.noted);
        let known = NodeValues {
            named,
            node: wanted.node,
            subnet: in_cluster.subnet,
        };
        let mut values = values(
            &bootstrap,
            host,
            wanted.section,
            known,
            &found.payload.manifest,
        );
        found.cluster_config.fill(&mut values);
        let mut secrets = join_secrets(
            &bootstrap.api_url,
            &bootstrap.api_ca,
            &bootstrap.client_ca,
            token.as_deref().map_or("", String::as_str),
        );
        if token.is_none() {
            secrets.withhold(JOIN_TOKEN);
        }
        let cloud = match values.platform == CLOUD_NODES && has_cloud_nodes(&found.profile) {
            true => self.cloud_token(wanted, &mut secrets).await?,
            false => CloudTokenSent::None,
        };
        found.cluster_config.secrets(&values.platform, &mut secrets);
        if let Some((certificate, key)) = &bootstrap.exporter_tls {
            secrets.set("exporter-tls-crt", certificate);
            secrets.set("exporter-tls-key", key.as_str());
        }
        let variables = values.variables();
        let keep = self.catalog.folders();
        let inputs = Inputs {
            profile: &found.profile,
            payload: &found.payload.manifest,
            variables: &variables,
            secrets: &secrets,
            keep: &keep,
        };
        let section = section(wanted.section);
        let rendered = render(&inputs, section, &wanted.desired.version)
            .map_err(|problems| Failure::lasting("ProfileUnusable", problems.to_string()))?;
        let due = match cloud {
            CloudTokenSent::Due => with_token(&inputs, &rendered),
            CloudTokenSent::None | CloudTokenSent::Lasts | CloudTokenSent::New { .. } => Vec::new(),
        };
        for secret in found.cluster_config.proxy_passwords() {
            self.known.value(secret);
        }
        self.learn(&bootstrap, token.as_deref(), &rendered, &variables);
        let bytes = bytes(&rendered.document)?;
        Ok(Prepared {
            section,
            rendered,
            payload: found.payload,
            bytes,
            cloud,
            due,
        })
    }

    /// Sets the token of the Node's cloud-node-manager, if this section has it.
    async fn cloud_token(
        &self,
        wanted: SectionTarget<'_>,
        secrets: &mut Secrets,
    ) -> Result<CloudTokenSent, Failure> {
        let (Some(node), machine::Section::Node) = (wanted.node, wanted.section) else {
            return Ok(CloudTokenSent::None);
        };
        let renew = matches!(wanted.mode, Mode::Apply | Mode::Renew);
        Ok(match self.cluster.cloud_token(node, renew).await? {
            CloudToken::Lasts => CloudTokenSent::Lasts,
            // Another content than the host's, so that a comparison finds a difference.
            CloudToken::Due => {
                secrets.set(CLOUD_TOKEN, "due");
                CloudTokenSent::Due
            }
            CloudToken::New {
                token,
                node_uid,
                due,
            } => {
                self.known.value(&token);
                secrets.set(CLOUD_TOKEN, token.as_str());
                CloudTokenSent::New { node_uid, due }
            }
        })
    }

    /// Bootstrap token for the kubelet's first certificate. `None`: the host keeps the one that it has. A machine gets
    /// its own token only while it joins: a comparison or a host that is a node already needs none.
    async fn token(
        &self,
        host: &HostRef,
        wanted: SectionTarget<'_>,
        bootstrap: &Bootstrap,
        in_cluster: &MachineInCluster,
    ) -> Result<Option<Zeroizing<String>>, Failure> {
        if bootstrap.token.is_some() {
            return Ok(bootstrap.token.clone());
        }
        match wanted.mode {
            Mode::Apply if wanted.section == machine::Section::Host && !in_cluster.joined => {
                self.cluster.token(&host.machine).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Registers the secrets of the document, so that they are redacted from every output of the host.
    fn learn(
        &self,
        bootstrap: &Bootstrap,
        token: Option<&String>,
        rendered: &Rendered,
        variables: &Variables,
    ) {
        if let Some(token) = token {
            self.known.value(token);
        }
        if let Some((_, key)) = &bootstrap.exporter_tls {
            self.known.value(key);
        }
        self.known
            .document(&rendered.document, variables.iter().map(|(_, value)| value));
    }

    /// The installed version that `desired` means. An unknown one may follow from the cluster's present node settings.
    async fn find(&self, desired: &Desired) -> Result<InstalledVersion, Failure> {
        match self.catalog.find(desired) {
            Err(failure) if failure.code == VERSION_NOT_HERE => {
                for warning in self.catalog.read_cluster(self.cluster.read_cluster().await) {
                    tracing::debug!("of the cluster around: {warning}");
                }
                self.catalog.find(desired)
            }
            found => found,
        }
    }

    /// Uploads the payload files that are neither in place nor staged, judged by their sizes. The program finds
    /// differences that sizes do not show, and requests those files.
    pub(super) async fn upload_payload(
        &self,
        on: HostAttempt<'_>,
        session: &Session,
        prepared: &Prepared,
    ) -> Result<(), Failure> {
        // The program checks the files of the last convergence itself, so they are not checked here.
        let known = self.sent.has(on.host, &prepared.payload_mark());
        if prepared.rendered.payload.is_empty() || known {
            return Ok(());
        }
        on.progress.step(
            "look for the payload",
            prepared.rendered.payload.len() as u64,
            "files",
        );
        let sftp = session
            .sftp()
            .await
            .map_err(|error| self.failed(on.host, error))?;
        let checks = prepared.rendered.payload.iter().map(|file| async {
            let there = sftp.size(&file.destination).await? == Some(file.size);
            on.progress.advance(1);
            Ok::<_, SshError>((!there).then(|| file.clone()))
        });
        let checked = futures::future::try_join_all(checks).await;
        let missing: Vec<Staged> = checked
            .map_err(|error| self.failed(on.host, error))?
            .into_iter()
            .flatten()
            .collect();
        self.upload(on, session, prepared, &missing).await
    }

    /// Sends these payload files into the host's staging folder.
    pub(super) async fn upload(
        &self,
        on: HostAttempt<'_>,
        session: &Session,
        prepared: &Prepared,
        files: &[Staged],
    ) -> Result<(), Failure> {
        if files.is_empty() {
            return Ok(());
        }
        let transfers = self.pack(prepared, files, on.progress).await;
        on.progress.step(
            "upload",
            transfers.iter().map(FileTransfer::bytes).sum(),
            "bytes",
        );
        let sftp = session
            .sftp()
            .await
            .map_err(|error| self.failed(on.host, error))?;
        let mut works = Vec::with_capacity(files.len());
        for transfer in &transfers {
            works.push(async {
                let sent = self.send(on, &sftp, prepared, transfer).await;
                sent.map_err(|error| self.unsent(on.host, error))
            });
        }
        at_once(FILES_AT_ONCE, works).await
    }

    /// Chooses the transfer of each file: large files with enough savings are compressed first, unless an earlier
    /// upload has compressed them.
    async fn pack<'a>(
        &self,
        prepared: &Prepared,
        files: &'a [Staged],
        progress: &Progress,
    ) -> Vec<FileTransfer<'a>> {
        let large = files
            .iter()
            .map(|file| file.size)
            .filter(|size| *size >= PACK_BYTES_MIN);
        progress.step("compress", large.sum(), "bytes");
        let transfers = files.iter().map(|file| async {
            let Staged {
                name, sha256, size, ..
            } = file;
            let packed = self
                .packer
                .packed(&prepared.payload, name, sha256, *size, progress)
                .await;
            FileTransfer { file, packed }
        });
        futures::future::join_all(transfers).await
    }

    async fn send(
        &self,
        on: HostAttempt<'_>,
        sftp: &Sftp,
        prepared: &Prepared,
        transfer: &FileTransfer<'_>,
    ) -> Result<(), SendError> {
        let file = transfer.file;
        let path = format!(r"{STAGING}\{}", file.sha256);
        if sftp.size(&path).await? == Some(file.size) {
            on.progress.advance(transfer.bytes());
            return Ok(());
        }
        if let Some(packed) = &transfer.packed {
            match self.send_packed(on, sftp, &path, packed).await {
                Err(SendError::Host(SshError::Source(..)) | SendError::Unread(..)) => {
                    self.packer.forget(&file.sha256, packed);
                }
                sent => return sent,
            }
        }
        let opened = prepared.payload.open(&file.name).await;
        let from =
            opened.map_err(|error| SendError::Unread(file.name.clone(), error.to_string()))?;
        let part = on.part(&path);
        let size = file.size;
        let what = Upload {
            path: &path,
            part: &part,
            size,
            sha256: &file.sha256,
        };
        let operation = observer::begin(Operation::Upload { bytes: file.size });
        let sent = sftp
            .upload(what, from, |more| on.progress.advance(more))
            .await;
        Ok(operation.ended(sent)?)
    }

    /// Uploads the compressed form of a file. The program decompresses it and compares the checksum of the result.
    async fn send_packed(
        &self,
        on: HostAttempt<'_>,
        sftp: &Sftp,
        path: &str,
        packed: &Packed,
    ) -> Result<(), SendError> {
        let Packed {
            path: from,
            size,
            sha256,
        } = packed;
        let path = format!("{path}.gz");
        if sftp.size(&path).await? == Some(*size) {
            on.progress.advance(*size);
            return Ok(());
        }
        let unread = |error: std::io::Error| {
            SendError::Unread(from.display().to_string(), error.to_string())
        };
        let opened = tokio::fs::File::open(from).await.map_err(unread)?;
        let part = on.part(&path);
        let what = Upload {
            path: &path,
            part: &part,
            size: *size,
            sha256,
        };
        let operation = observer::begin(Operation::Upload { bytes: *size });
        let sent = sftp
            .upload(what, opened, |more| on.progress.advance(more))
            .await;
        Ok(operation.ended(sent)?)
    }

    fn unsent(&self, host: &HostRef, error: SendError) -> Failure {
        match error {
            SendError::Host(error) => self.failed(host, error),
            SendError::Unread(name, why) => {
                let message = format!("the payload's {name} cannot be read: {why}");
                Failure::transient("PayloadUnreadable", message)
            }
        }
    }
}

/// A payload file and its transfer.
struct FileTransfer<'a> {
    file: &'a Staged,
    packed: Option<Arc<Packed>>,
}

impl FileTransfer<'_> {
    /// Bytes that are sent.
    fn bytes(&self) -> u64 {
        self.packed
            .as_ref()
            .map_or(self.file.size, |packed| packed.size)
    }
}

/// Why a payload file did not reach its host.
enum SendError {
    Host(SshError),
    Unread(String, String),
}

impl From<SshError> for SendError {
    fn from(error: SshError) -> Self {
        Self::Host(error)
    }
}

/// Writes a small file that is named by its content, unless it is there.
pub(super) async fn put(
    on: HostAttempt<'_>,
    sftp: &Sftp,
    path: &str,
    bytes: &[u8],
) -> Result<(), SshError> {
    let size = bytes.len() as u64;
    if sftp.size(path).await? == Some(size) {
        return Ok(());
    }
    let part = on.part(path);
    let sha256 = sha256_hex(bytes);
    let operation = observer::begin(Operation::Upload { bytes: size });
    operation.ended(
        sftp.upload(
            Upload {
                path,
                part: &part,
                size,
                sha256: &sha256,
            },
            bytes,
            |more| on.progress.advance(more),
        )
        .await,
    )
}
