//! The rows on the host that they run on, each with its result, or with what the host lacks for it.

use dormer_host::ops::{
    Answer, Ask, DefenderRead, DismState, DomainRead, FeatureRead, Host, Operation,
};

use crate::{Failed, Needs, OnWine, Scope, row::perform, rows, run};

/// What came of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// The host answers as the row says.
    Held(&'static str),
    /// It does not run here: the reason.
    Skipped(&'static str, String),
    /// The host answers otherwise.
    Failed(Failed),
}

/// `NetSetupDomainName`.
const IN_DOMAIN: u32 = 3;

/// What this host has.
pub(crate) struct Features {
    containers: bool,
    defender: bool,
    domain: bool,
}

impl Features {
    pub(crate) async fn read(host: &mut impl Host) -> Self {
        let containers = FeatureRead {
            name: "Containers".into(),
        };
        let containers = perform(host, &containers.operation()).await;
        let defender: Operation = DefenderRead {}.operation();
        let domain = perform(host, &DomainRead {}.operation()).await;
        Self {
            containers: matches!(containers, Ok(Answer::FeatureRead(DismState::Installed))),
            defender: perform(host, &defender).await.is_ok(),
            domain: matches!(domain, Ok(Answer::DomainRead(domain)) if domain.status == IN_DOMAIN),
        }
    }

    /// Why a row does not hold here; none: it does.
    pub(crate) fn lack(&self, needs: Needs) -> Option<&'static str> {
        match needs {
            Needs::Containers if !self.containers => Some("needs the feature Containers"),
            Needs::NoContainers if self.containers => Some("needs a host without Containers"),
            Needs::NoDefender if self.defender => Some("needs a host without Defender"),
            Needs::NoDomain if self.domain => Some("needs a host that is in no domain"),
            _ => None,
        }
    }
}

/// Runs all rows on a host, and reports each as soon as its result is known. On Wine those run that it shows by itself.
pub async fn run_here(
    scope: &Scope,
    host: &mut impl Host,
    on_wine: bool,
    mut report: impl FnMut(Shown),
) {
    let features = Features::read(host).await;
    for row in rows(scope) {
        let lack = features.lack(row.needs).map(str::to_owned);
        let lack = lack.or_else(|| match row.wine {
            OnWine::StandIn(library) if on_wine => Some(format!("Wine has no {library}")),
            OnWine::Differs(why) if on_wine => Some(format!("Wine: {why}")),
            OnWine::Runs | OnWine::StandIn(_) | OnWine::Differs(_) => None,
        });
        report(match lack {
            Some(why) => Shown::Skipped(row.name, why),
            None => match run(&row, host).await {
                Ok(()) => Shown::Held(row.name),
                Err(failed) => Shown::Failed(failed),
            },
        });
    }
}
