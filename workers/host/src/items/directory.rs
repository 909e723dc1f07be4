//! Folder that exists, with the rights for its path.

use dormer_profile::{document::ChangeClass, item::Directory};

use super::{ItemVerdict, Kind, Step};
use crate::{
    files::{make_folder, missing_folders, put_aside, stat},
    ops::{DirectoryList, FileRights, FileSecurity, Host, Rights, Security},
    problem::{Doing as _, Problem, Result},
    progress::Run,
    rights::{Care, foreign, of_folder, readable},
    services,
    session::Session,
    state::Made,
};
use dormer_profile::answer::FailureCode;

/// Object at a folder's path.
pub(crate) enum CurrentState {
    Nothing,
    Folder(Option<Security>),
    /// A file, or a link.
    Else(&'static str),
}

impl Kind for Directory {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let host = &mut run.host;
        let found = match stat(host, &self.path).await? {
            None => return Ok(CurrentState::Nothing),
            Some(look) if look.is_link() => return Ok(CurrentState::Else("is a link")),
            Some(look) if !look.folder => return Ok(CurrentState::Else("is a file")),
            Some(_) => of_folder(&self.path),
        };
        match found {
            Care::Given(_) => Ok(CurrentState::Folder(Some(
                security(host, &self.path).await?,
            ))),
            Care::Inherited | Care::NotOurs => Ok(CurrentState::Folder(None)),
        }
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        match (found, of_folder(&self.path)) {
            // containerd makes it, with rights of its own.
            (CurrentState::Nothing, Care::NotOurs) => ItemVerdict::right(),
            (CurrentState::Nothing, _) => ItemVerdict::wrong("is not there"),
            (CurrentState::Else(what), _) => ItemVerdict::wrong(*what),
            (CurrentState::Folder(Some(security)), Care::Given(rights)) => {
                match wrong(security, rights) {
                    Some(why) => ItemVerdict::wrong(why),
                    None => ItemVerdict::right(),
                }
            }
            (CurrentState::Folder(_), _) => ItemVerdict::right(),
        }
    }

    /// What runs from it has to stop before it is put aside.
    fn least_change_class(&self, found: &CurrentState) -> Option<ChangeClass> {
        match found {
            CurrentState::Folder(Some(security)) => foreign(security).map(|_| ChangeClass::Drain),
            _ => None,
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let detail = match found {
            CurrentState::Nothing => String::from("made"),
            // The creator may keep it open with rights that a later correction does not remove.
            CurrentState::Folder(Some(security)) if foreign(&security).is_some() => {
                services::stop_below(run, &self.path).await?;
                let to = put_aside(&mut run.host, &self.path).await?;
                format!("what was there is {to} now")
            }
            CurrentState::Folder(_) => {
                close(&mut run.host, &self.path).await?;
                return Ok(Step::Changed("closed to others".into()));
            }
            CurrentState::Else("is a link") => {
                let said = format!("{} is a link", self.path);
                return Err(Problem::new(FailureCode::AccessDenied, said));
            }
            CurrentState::Else(what) => {
                return Err(Problem::new(
                    FailureCode::Other,
                    format!("{} {what}", self.path),
                ));
            }
        };
        make_with_parents(run, &self.path).await?;
        make_folder(&mut run.host, &self.path).await?;
        Ok(Step::Changed(detail))
    }

    fn made(&self, _: bool) -> Option<Made> {
        let ours = !self.keep && of_folder(&self.path) != Care::NotOurs;
        ours.then(|| Made::Directory {
            path: self.path.clone(),
            tree: true,
        })
    }
}

/// Makes the folders above a path, each noted before: they go when they are empty.
pub(crate) async fn make_with_parents<H: Host>(run: &mut Run<H>, path: &str) -> Result<()> {
    for folder in missing_folders(&mut run.host, path).await? {
        run.note(Made::Directory {
            path: folder.clone(),
            tree: false,
        })
        .await?;
        make_folder(&mut run.host, &folder).await?;
    }
    Ok(())
}

pub(crate) async fn security<H: Host>(host: &mut Session<H>, path: &str) -> Result<Security> {
    let asked = host.ask(FileSecurity { path: path.into() }).await;
    asked.doing(FailureCode::Other, || format!("read the rights of {path}"))
}

/// Difference between the rights of an object and the desired ones.
pub(crate) fn wrong(security: &Security, rights: Rights) -> Option<String> {
    foreign(security).or_else(|| match rights {
        Rights::Private => readable(security),
        Rights::Users | Rights::Inherited => None,
    })
}

/// Restricts a private folder and its contents to administrators. A link is restricted itself and not followed.
async fn close<H: Host>(host: &mut Session<H>, path: &str) -> Result<()> {
    let mut left = vec![(path.to_owned(), true)];
    while let Some((path, folder)) = left.pop() {
        let rights = Rights::Private;
        let asked = host
            .ask(FileRights {
                path: path.clone(),
                rights,
            })
            .await;
        match asked {
            Err(error) if error.is_any(&[2, 3]) => continue,
            asked => asked.doing(FailureCode::AccessDenied, || format!("close {path}"))?,
        }
        if !folder {
            continue;
        }
        let listed = host.ask(DirectoryList { path: path.clone() }).await;
        for entry in listed.doing(FailureCode::Other, || format!("list {path}"))? {
            let folder = entry.stat.folder && !entry.stat.is_link();
            left.push((format!(r"{path}\{}", entry.name), folder));
        }
    }
    Ok(())
}
