//! Inbound firewall rule, identified by its name. It is changed in place, so that its port is never closed in between.

use dormer_profile::{
    answer::FailureCode,
    item::{Firewall, Protocol},
};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{
        FirewallAdd, FirewallChange, FirewallPolicy, FirewallPolicyRead, FirewallRead,
        FirewallRemove, FirewallRule, Host, WinError,
    },
    problem::{Problem, Result},
    progress::Run,
    state::Made,
};

/// Every profile; rules that were made elsewhere say 7.
const ALL_PROFILES: i32 = 0x7fff_ffff;
const SOME_PROFILES: i32 = 7;
const INBOUND: i32 = 1;
const ALLOW: i32 = 1;
/// RPC_S_UNKNOWN_IF out of a firewall without its service: nothing filters (CSS-Exchange#61).
const OFF: u32 = 1753;
/// Rules of one name, at most.
const DUPLICATES_MAX: usize = 16;

/// State that the firewall reports.
pub(crate) enum CurrentState {
    /// Its service is off: nothing is filtered.
    Off,
    /// The rule, or none, and whether a rule takes effect.
    On(Option<Box<FirewallRule>>, FirewallPolicy),
}

fn wanted(item: &Firewall) -> FirewallRule {
    FirewallRule {
        name: item.name.clone(),
        description: "Made by dormer for a Kubernetes node".into(),
        protocol: match item.protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        },
        ports: item.port.to_string(),
        direction: INBOUND,
        action: ALLOW,
        profiles: ALL_PROFILES,
        enabled: true,
        remote: "*".into(),
        program: String::new(),
    }
}

fn failed(item: &str, error: &WinError) -> Problem {
    Problem::windows(
        FailureCode::FirewallFailed,
        &format!("firewall rule {item}"),
        error,
    )
}

impl Kind for Firewall {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let policy = match run.host.ask(FirewallPolicyRead {}).await {
            Ok(policy) => policy,
            Err(error) if error.number() == OFF => return Ok(CurrentState::Off),
            Err(error) => return Err(failed(&self.name, &error)),
        };
        match run
            .host
            .ask(FirewallRead {
                name: self.name.clone(),
            })
            .await
        {
            Ok(rule) => Ok(CurrentState::On(Some(Box::new(rule)), policy)),
            // Only this number is "no such rule".
            Err(error) if error.number() == 2 => Ok(CurrentState::On(None, policy)),
            Err(error) if error.number() == OFF => Ok(CurrentState::Off),
            Err(error) => Err(failed(&self.name, &error)),
        }
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        let (rule, policy) = match found {
            CurrentState::Off => {
                return ItemVerdict::Right("the firewall is off: nothing is filtered".into());
            }
            CurrentState::On(rule, policy) => (rule, policy),
        };
        let Some(rule) = rule else {
            return ItemVerdict::wrong("is not there");
        };
        let wanted = wanted(self);
        let right = rule.protocol == wanted.protocol
            && rule.ports == wanted.ports
            && rule.direction == INBOUND
            && rule.action == ALLOW
            && rule.profiles & SOME_PROFILES == SOME_PROFILES
            && rule.enabled
            && rule.remote == wanted.remote
            && rule.program.is_empty();
        if !right {
            return ItemVerdict::wrong("is another");
        }
        ItemVerdict::Right(finding(*policy).into())
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let (there, policy) = match found {
            CurrentState::Off => return Ok(Step::Ok(String::new())),
            CurrentState::On(rule, policy) => (rule.is_some(), policy),
        };
        let rule = wanted(self);
        let done = if there {
            run.host.ask(FirewallChange { rule }).await
        } else {
            run.host.ask(FirewallAdd { rule }).await
        };
        done.map_err(|error| failed(&self.name, &error))?;
        Ok(Step::Changed(match finding(policy) {
            "" => "set".into(),
            told => format!("set; {told}"),
        }))
    }

    fn made(&self, _: bool) -> Option<Made> {
        Some(Made::Firewall {
            name: self.name.clone(),
        })
    }
}

/// Note for people: under such a policy the call succeeds without an effect (icftypes.h).
const fn finding(policy: FirewallPolicy) -> &'static str {
    match policy {
        FirewallPolicy::Ok => "",
        FirewallPolicy::Overridden => "a group policy overrides the host's own rules",
        FirewallPolicy::InboundBlocked => "the firewall blocks everything that comes in",
    }
}

/// Takes a rule away, and others of its name: Windows can hold several (ansible#32478).
pub(crate) async fn remove<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    for n in 0..DUPLICATES_MAX {
        match run.host.ask(FirewallRead { name: name.into() }).await {
            Ok(_) => {}
            Err(error) if error.is_any(&[2, OFF]) => return Ok(n > 0),
            Err(error) => return Err(failed(name, &error)),
        }
        let removed = run.host.ask(FirewallRemove { name: name.into() }).await;
        removed.map_err(|error| failed(name, &error))?;
    }
    let said = format!("firewall rule {name}: it does not go");
    Err(Problem::new(FailureCode::FirewallFailed, said))
}

/// Whether there is a rule of this name.
pub(crate) async fn is_there<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    match run.host.ask(FirewallRead { name: name.into() }).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_any(&[2, OFF]) => Ok(false),
        Err(error) => Err(failed(name, &error)),
    }
}
