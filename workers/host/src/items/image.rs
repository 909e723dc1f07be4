//! Image in containerd's store that a node needs before it can pull images, or because it must not pull any.

use dormer_profile::{answer::FailureCode, item::Image};

use super::{ItemVerdict, Kind, Step};
use crate::{
    containerd,
    ops::{Host, ImageArchiveRead, ImageImport, ImageRead, WinError},
    problem::{Doing as _, Problem, Result},
    progress::Run,
    state::Made,
};

/// Present state.
pub(crate) struct CurrentState {
    /// Digest in the archive; none without an archive.
    wanted: Option<String>,
    /// Digest in containerd's store; none without the image, and where containerd does not answer.
    there: Option<String>,
}

/// Whether containerd may answer in a moment: its pipe comes a while after its service runs (containerd#3659), and all of
/// a pipe's instances may be in use (sdk-api, `CreateFileW`: 231).
fn passes(error: &WinError) -> bool {
    // Unavailable, of gRPC.
    error.is_any(&[2, 109, 231, 232, 233]) || error.code == containerd::REFUSED + 14
}

impl Kind for Image {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let archive = ImageArchiveRead {
            path: self.archive.clone(),
            name: self.name.clone(),
        };
        let wanted = match run.host.ask(archive).await {
            Err(error) if error.is_any(&[2, 3]) => None,
            read => Some(read.doing(FailureCode::Other, || {
                format!("read the image {} in {}", self.name, self.archive)
            })?),
        };
        let image = ImageRead {
            pipe: self.pipe.clone(),
            name: self.name.clone(),
        };
        let there = match run.host.ask(image).await {
            Err(error) if passes(&error) => None,
            read => read.doing(FailureCode::Other, || {
                format!("ask containerd for {}", self.name)
            })?,
        };
        Ok(CurrentState { wanted, there })
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        match (&found.wanted, &found.there) {
            // The file's own item reports that.
            (None, _) => ItemVerdict::wrong("its archive is not there"),
            (Some(wanted), Some(there)) if wanted == there => ItemVerdict::right(),
            (_, Some(_)) => ItemVerdict::wrong("another image of that name"),
            (_, None) => ItemVerdict::wrong("is not in containerd's store"),
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        if found.wanted.is_none() {
            let said = format!("{} is not there", self.archive);
            return Err(Problem::new(FailureCode::FileMissing, said));
        }
        let wait = run.host.wait("containerd_answers", self.wait_ms).await?;
        loop {
            let image = ImageRead {
                pipe: self.pipe.clone(),
                name: self.name.clone(),
            };
            match run.host.ask(image).await {
                Ok(there) if there.is_some() && there == found.wanted => {
                    return Ok(Step::Ok(String::new()));
                }
                Ok(_) => break,
                Err(error) if passes(&error) => {
                    if !run.host.again(&wait, 500).await? {
                        let said = format!("containerd does not answer on {}: {error}", self.pipe);
                        return Err(Problem::new(FailureCode::NotHealthy, said));
                    }
                }
                Err(error) => {
                    let doing = format!("ask containerd for {}", self.name);
                    return Err(Problem::windows(FailureCode::Other, &doing, &error));
                }
            }
        }
        let import = ImageImport {
            pipe: self.pipe.clone(),
            name: self.name.clone(),
            path: self.archive.clone(),
        };
        let imported = run.host.ask(import).await;
        imported.doing(FailureCode::Other, || format!("import {}", self.name))?;
        Ok(Step::Changed("imported".into()))
    }

    fn made(&self, _: bool) -> Option<Made> {
        // The image disappears with containerd's store; pods of others may use it until then.
        None
    }
}
