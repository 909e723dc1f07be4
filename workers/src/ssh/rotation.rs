//! Rotation of the key on one host: the new one is added over a login with the old one, and the old one is taken away
//! over a login with the new one. Each is proven by a login, and each may be repeated.

use super::{
    Dialer, Key, Limits, Session, Sftp, SshError,
    key_file::{
        Edit, KEY_FILE_BYTES_MAX, keys_stay_out, permits, with_key, without_edit, without_key,
    },
};

/// A host, and how to reach it.
#[derive(Clone)]
pub struct RotationLogin<'a> {
    /// Opens connections.
    pub dialer: &'a Dialer,
    /// Limits of one connection.
    pub limits: Limits,
    pub address: &'a str,
    /// User of the login: an administrator.
    pub user: &'a str,
    /// Its pinned host key.
    pub pin: &'a str,
    /// File with the keys of administrators.
    pub file: &'a str,
}

/// Why a key was neither added nor taken away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// The host cannot be reached or opened.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// sshd does not let the new key in. The host is as it was.
    #[error("{address} does not accept the new key, and was left as it was: {why}")]
    NotAccepted {
        /// Which host.
        address: String,
        /// Cause.
        why: String,
    },
    /// The same, and the line with the new key stayed.
    #[error(
        "{address} does not accept the new key ({why}), and its line stays in {file}: {problem}"
    )]
    NotUndone {
        /// Which host.
        address: String,
        /// Cause.
        why: String,
        file: String,
        /// Why it stays.
        problem: String,
    },
    /// The next boot would bring the old key back.
    #[error(
        "user data of {0} writes the old key again at the next boot: it is of another program, or of a dormer before \
         this one"
    )]
    ComesBack(String),
    /// Another file than ours permits the old key.
    #[error("{0} accepts the old key although {1} does not have it any more")]
    StillAccepted(String, String),
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStep {
    /// The host was changed.
    Done,
    /// The host was so before.
    Already,
}

impl RotationLogin<'_> {
    async fn open(&self, key: &Key) -> Result<Session, SshError> {
        let pin = Some(self.pin);
        Session::open(self.dialer, self.address, self.user, pin, key, self.limits).await
    }

    async fn refuses(&self, key: &Key) -> Result<bool, SshError> {
        match self.open(key).await {
            Ok(_) => Ok(false),
            Err(SshError::Auth(..)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn read(&self, sftp: &Sftp) -> Result<Vec<u8>, SshError> {
        let read = sftp.read_file(self.file, KEY_FILE_BYTES_MAX).await?;
        let problem = |why: &str| SshError::File {
            address: self.address.to_owned(),
            path: self.file.to_owned(),
            why: why.to_owned(),
        };
        match read {
            Some(file) if file.len() < KEY_FILE_BYTES_MAX => Ok(file),
            Some(_) => Err(problem("it is too long for a file of keys")),
            None => Err(problem(
                "it does not exist, so sshd takes the keys from elsewhere (AuthorizedKeysFile in its sshd_config)",
            )),
        }
    }

    /// Whether the key opens the host.
    ///
    /// # Errors
    /// It does not, or the host cannot be reached.
    pub async fn try_key(&self, key: &Key) -> Result<(), SshError> {
        self.open(key).await.map(drop)
    }

    /// Adds `new` over a login with `old`, and proves it by a login. If that fails, the host is left as it was.
    ///
    /// # Errors
    /// The host cannot be reached, or does not take the key.
    pub async fn add_key(&self, old: &Key, new: &Key) -> Result<KeyStep, RotationError> {
        if !self.refuses(new).await? {
            return Ok(KeyStep::Already);
        }
        let session = self.open(old).await?;
        let sftp = session.sftp().await?;
        let edit = with_key(&self.read(&sftp).await?, &new.public_line()?);
        if let Some(edit) = &edit {
            sftp.write_at(self.file, edit.at, &edit.bytes).await?;
        }
        let Err(error) = self.open(new).await else {
            return Ok(KeyStep::Done);
        };
        let address = self.address.to_owned();
        let why = error.to_string();
        Err(match self.undo(&sftp, edit).await {
            Ok(()) => RotationError::NotAccepted { address, why },
            Err(problem) => RotationError::NotUndone {
                address,
                why,
                file: self.file.to_owned(),
                problem: problem.to_string(),
            },
        })
    }

    async fn undo(&self, sftp: &Sftp, edit: Option<Edit>) -> Result<(), SshError> {
        let Some(edit) = edit else { return Ok(()) };
        let size = without_edit(&self.read(sftp).await?, &edit);
        let size = size.ok_or_else(|| SshError::File {
            address: self.address.to_owned(),
            path: self.file.to_owned(),
            why: "another program changed it meanwhile".to_owned(),
        })?;
        sftp.truncate(self.file, size).await
    }

    /// Checks that the file is as it was read, but for the edits: a byte that is written into other lines could take
    /// another key away.
    async fn unchanged_but(
        &self,
        sftp: &Sftp,
        read: &[u8],
        edits: &[Edit],
    ) -> Result<(), SshError> {
        let now = self.read(sftp).await?;
        let ours = |at: usize| edits.iter().any(|edit| edit.at == at as u64);
        let same = |(at, (now, before)): (usize, (&u8, &u8))| now == before || ours(at);
        if now.len() == read.len() && now.iter().zip(read).enumerate().all(same) {
            return Ok(());
        }
        Err(SshError::File {
            address: self.address.to_owned(),
            path: self.file.to_owned(),
            why: "another program changed it meanwhile: run the command again".to_owned(),
        })
    }

    /// Proves that `new` still opens the host, while the session that can mend the file is open. Otherwise the old key's
    /// lines are as before.
    async fn still_lets_in(
        &self,
        sftp: &Sftp,
        new: &Key,
        read: &[u8],
        edits: &[Edit],
    ) -> Result<(), RotationError> {
        let Err(error) = self.open(new).await else {
            return Ok(());
        };
        for edit in edits {
            let at = usize::try_from(edit.at).unwrap_or(usize::MAX);
            if let Some(byte) = read.get(at) {
                sftp.write_at(self.file, edit.at, &[*byte]).await?;
            }
        }
        Err(RotationError::NotAccepted {
            address: self.address.to_owned(),
            why: error.to_string(),
        })
    }

    /// Takes `old` away over a login with `new`, and proves by a login that it is refused. It does
    /// nothing where user data would bring the key back at the next boot. `once`: user data runs at the first boot only.
    ///
    /// # Errors
    /// The host cannot be reached, does not take the new key, or would take the old one again.
    pub async fn remove_key(
        &self,
        old: &Key,
        new: &Key,
        once: bool,
    ) -> Result<KeyStep, RotationError> {
        let session = self.open(new).await?;
        let sftp = session.sftp().await?;
        let file = self.read(&sftp).await?;
        let key = old.public_line()?;
        let step = if permits(&file, &key) {
            if !once && !keys_stay_out(&file) {
                return Err(RotationError::ComesBack(self.address.to_owned()));
            }
            let edits = without_key(&file, &key);
            for edit in &edits {
                self.unchanged_but(&sftp, &file, &edits).await?;
                sftp.write_at(self.file, edit.at, &edit.bytes).await?;
            }
            self.still_lets_in(&sftp, new, &file, &edits).await?;
            KeyStep::Done
        } else {
            KeyStep::Already
        };
        match self.refuses(old).await? {
            true => Ok(step),
            false => Err(RotationError::StillAccepted(
                self.address.to_owned(),
                self.file.to_owned(),
            )),
        }
    }
}
