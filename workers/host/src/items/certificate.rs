//! Trusted root certificate of ours. A certificate that others added to the store is accepted, and stays theirs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_profile::{answer::FailureCode, item::Certificate};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{Bytes, Host, Root, RootAdd, RootList, RootRemove},
    problem::{Problem, Result},
    progress::Run,
    state::Made,
};

/// Friendly name of roots that we added, which people see in the store.
pub(crate) const MARK: &str = "dormer";
/// CRYPT_E_EXISTS.
const EXISTS: u32 = 0x8009_2005;
/// CRYPT_E_NOT_FOUND.
const NOT_FOUND: u32 = 0x8009_2004;

/// The roots in the store, read once a call: a bundle may have more than a hundred.
pub(crate) async fn roots<H: Host>(run: &mut Run<H>) -> Result<&[Root]> {
    if run.roots.is_none() {
        let listed = run.host.ask(RootList {}).await;
        let listed = listed.map_err(|error| {
            Problem::windows(FailureCode::CertificateFailed, "list the roots", &error)
        })?;
        run.roots = Some(listed);
    }
    Ok(run.roots.as_deref().unwrap_or_default())
}

impl Kind for Certificate {
    /// Whether it is in the store itself. A root that exists only by policy disappears with the policy.
    type CurrentState = bool;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<bool> {
        let roots = roots(run).await?;
        Ok(roots
            .iter()
            .any(|root| root.own && root.sha256 == self.sha256))
    }

    fn differs(&self, found: &bool) -> ItemVerdict {
        if *found {
            ItemVerdict::right()
        } else {
            ItemVerdict::wrong("is not there")
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, _: bool) -> Result<Step> {
        let failed = |said: String| Problem::new(FailureCode::CertificateFailed, said);
        let der = STANDARD
            .decode(&self.base64)
            .map_err(|error| failed(error.to_string()))?;
        if dormer_profile::sha256_hex(&der) != self.sha256 {
            return Err(failed(format!("the certificate is not {}", self.sha256)));
        }
        let add = RootAdd {
            der: Bytes(der),
            name: MARK.into(),
        };
        let added = run.host.ask(add).await;
        run.roots = None;
        match added {
            Ok(()) => Ok(Step::Changed("imported".into())),
            // Another process added it first, so it is not ours.
            Err(error) if error.number() == EXISTS => {
                if let Some(made) = self.made(false) {
                    run.inventory.forget(&made);
                    run.save_inventory().await?;
                }
                Ok(Step::Ok("somebody else put it there".into()))
            }
            Err(error) => Err(Problem::windows(
                FailureCode::CertificateFailed,
                "add a root",
                &error,
            )),
        }
    }

    fn made(&self, found: bool) -> Option<Made> {
        (!found).then(|| Made::Root {
            sha256: self.sha256.clone(),
        })
    }
}

/// Takes a root of ours away.
pub(crate) async fn remove<H: Host>(run: &mut Run<H>, sha256: &str) -> Result<bool> {
    if !is_ours(run, sha256).await? {
        return Ok(false);
    }
    run.roots = None;
    match run
        .host
        .ask(RootRemove {
            sha256: sha256.into(),
        })
        .await
    {
        Ok(()) => Ok(true),
        Err(error) if error.number() == NOT_FOUND => Ok(false),
        Err(error) => Err(Problem::windows(
            FailureCode::CertificateFailed,
            "remove a root",
            &error,
        )),
    }
}

/// Whether this root is in the store's own part and bears our mark.
pub(crate) async fn is_ours<H: Host>(run: &mut Run<H>, sha256: &str) -> Result<bool> {
    let roots = roots(run).await?;
    Ok(roots
        .iter()
        .any(|root| root.own && root.sha256 == sha256 && root.name == MARK))
}
