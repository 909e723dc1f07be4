//! A file with exactly this content.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_profile::{
    answer::FailureCode,
    item::{File, FileSource},
};

use super::{
    ItemVerdict, Kind, Step,
    directory::{make_with_parents, security, wrong},
};
use crate::{
    files::{put, stat},
    ops::{Bytes, ContentSource, FileDelete, FileDigest, Host, Rights},
    paths::STAGING,
    problem::{Doing as _, Problem, Result},
    progress::Run,
    rights::file_is_private,
    services,
    session::Session,
    state::Made,
};

/// Present file, and the sources for its content.
pub(crate) struct CurrentState {
    /// SHA-256 of the file; none if there is none.
    sha256: Option<String>,
    /// Difference of its rights.
    rights: Option<String>,
    /// The uploaded content.
    staged: Option<Staged>,
}

struct Staged {
    path: String,
    gzip: bool,
}

impl Kind for File {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let host = &mut run.host;
        let sha256 = digest(host, &self.path).await?;
        let rights = match &sha256 {
            Some(_) => {
                let asked = if file_is_private(&self.path, self.private) {
                    Rights::Private
                } else {
                    Rights::Users
                };
                wrong(&security(host, &self.path).await?, asked)
            }
            None => None,
        };
        let right = sha256.as_deref() == Some(&self.sha256) && rights.is_none();
        let staged = match &self.source {
            FileSource::Staged { name } if !right => staged(host, name).await?,
            _ => None,
        };
        Ok(CurrentState {
            sha256,
            rights,
            staged,
        })
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        let wrong = match (&found.sha256, &found.rights) {
            (None, _) => "is not there".to_owned(),
            (Some(sha256), _) if *sha256 != self.sha256 => "differs".to_owned(),
            (Some(_), Some(why)) => why.clone(),
            (Some(_), None) => return ItemVerdict::right(),
        };
        match &self.source {
            FileSource::Staged { .. } if found.staged.is_none() => {
                ItemVerdict::Missing(self.path.clone())
            }
            _ => ItemVerdict::wrong(wrong),
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let source = match &self.source {
            FileSource::Inline { base64 } => {
                let bytes = STANDARD.decode(base64).map_err(|error| {
                    Problem::new(
                        FailureCode::DocumentRejected,
                        format!("{}: {error}", self.path),
                    )
                })?;
                ContentSource::Inline {
                    bytes: Bytes(bytes),
                }
            }
            FileSource::Staged { .. } => {
                let Some(Staged { path, gzip }) = &found.staged else {
                    return Ok(Step::Missing(self.path.clone()));
                };
                ContentSource::Staged {
                    path: path.clone(),
                    gzip: *gzip,
                }
            }
        };
        for user in &self.users {
            services::stop(run, user).await?;
        }
        make_with_parents(run, &self.path).await?;
        let rights = if file_is_private(&self.path, self.private) {
            Rights::Private
        } else {
            Rights::Users
        };
        let placed = put(
            &mut run.host,
            &self.path,
            source,
            rights,
            Some(&self.sha256),
        )
        .await;
        if let Some(Staged { path, .. }) = found.staged {
            // A damaged upload is no use to the next attempt, and one that arrived is used up.
            let used = placed
                .as_ref()
                .err()
                .is_none_or(|problem| problem.code == FailureCode::HashMismatch);
            if used {
                let _ = run.host.ask(FileDelete { path }).await;
            }
        }
        placed?;
        Ok(Step::Changed("written".into()))
    }

    fn made(&self, _: bool) -> Option<Made> {
        Some(Made::File {
            path: self.path.clone(),
            sha256: self.sha256.clone(),
        })
    }
}

/// SHA-256 of a file; none if there is none.
pub(crate) async fn digest<H: Host>(host: &mut Session<H>, path: &str) -> Result<Option<String>> {
    match host.ask(FileDigest { path: path.into() }).await {
        Ok(digest) => Ok(Some(digest.sha256)),
        Err(error) if error.is_any(&[2, 3]) => Ok(None),
        Err(error) => Err(error).doing(FailureCode::Other, || format!("read {path}")),
    }
}

/// The uploaded content of a file: as it is, or gzip-compressed.
async fn staged<H: Host>(host: &mut Session<H>, name: &str) -> Result<Option<Staged>> {
    for (ending, gzip) in [("", false), (".gz", true)] {
        let path = format!(r"{STAGING}\{name}{ending}");
        if stat(host, &path).await?.is_some() {
            return Ok(Some(Staged { path, gzip }));
        }
    }
    Ok(None)
}
