//! Route through the default gateway, in the active store: a boot deletes it, and the boot run restores it.

use dormer_profile::{answer::FailureCode, item};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{FileVersion, Host, Interface, InterfaceList, ProgramRun, Route, RouteAdd, RouteList},
    problem::{Doing as _, Problem, Result},
    progress::Run,
    session::Session,
    state::Made,
};

/// EC2Launch v2, which knows AWS' own routes, and keeps them across boots from this version on (WMCO, secrets.go).
const EC2_LAUNCH: &str = r"C:\Program Files\Amazon\EC2Launch\EC2Launch.exe";
const EC2_LAUNCH_MIN: [u16; 3] = [2, 0, 2107];
const EC2_LAUNCH_MS: u64 = 120_000;
/// ERROR_OBJECT_ALREADY_EXISTS.
const EXISTS: u32 = 5010;

/// The cards and the routes.
pub(crate) struct CurrentState {
    cards: Vec<Interface>,
    routes: Vec<Route>,
}

impl CurrentState {
    /// The card and the next hop of the cheapest default route: its own metric and its card's together (sdk-api,
    /// `CreateIpForwardEntry2`). A card that is down leads nowhere.
    fn gateway(&self) -> Option<(u32, &str)> {
        let defaults = self
            .routes
            .iter()
            .filter(|route| route.prefix == "0.0.0.0/0");
        let usable = defaults.filter_map(|route| {
            let card = self
                .cards
                .iter()
                .find(|card| card.index == route.interface && card.up)?;
            Some((u64::from(route.metric) + u64::from(card.metric), route))
        });
        let best = usable.min_by_key(|(metric, _)| *metric);
        best.map(|(_, route)| (route.interface, route.next_hop.as_str()))
    }

    /// Whether a route to `prefix` leads anywhere: by a gateway of its card, and that card is up.
    fn leads(&self, prefix: &str) -> bool {
        self.routes
            .iter()
            .filter(|route| route.prefix == prefix)
            .any(|route| {
                let card = self.cards.iter().find(|card| card.index == route.interface);
                card.is_some_and(|card| card.up && card.gateways.contains(&route.next_hop))
            })
    }
}

async fn read<H: Host>(host: &mut Session<H>) -> Result<CurrentState> {
    let cards = host.ask(InterfaceList {}).await;
    let cards = cards.doing(FailureCode::Other, || "list the network cards".into())?;
    let routes = host.ask(RouteList {}).await;
    let routes = routes.doing(FailureCode::Other, || "list the routes".into())?;
    Ok(CurrentState { cards, routes })
}

impl Kind for item::Route {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        read(&mut run.host).await
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        if found.leads(&self.prefix) {
            ItemVerdict::right()
        } else {
            ItemVerdict::wrong("is not there, or leads nowhere")
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let mut remark = "";
        if self.prefix.starts_with("169.254.") {
            match ec2_launch(&mut run.host).await? {
                Agent::None => {}
                Agent::TooOld => {
                    remark = "; EC2Launch on this host is too old to keep it (2.0.2107)"
                }
                Agent::Ran => {
                    if read(&mut run.host).await?.leads(&self.prefix) {
                        return Ok(Step::Changed("added by EC2Launch".into()));
                    }
                }
            }
        }
        let Some((interface, next_hop)) = found.gateway() else {
            let said = "the host has no default route";
            return Err(Problem::new(FailureCode::NoDefaultRoute, said));
        };
        let route = Route {
            prefix: self.prefix.clone(),
            next_hop: next_hop.to_owned(),
            interface,
            metric: 15,
        };
        match run.host.ask(RouteAdd { route }).await {
            Ok(()) => {}
            Err(error) if error.number() == EXISTS => {}
            Err(error) => {
                let doing = format!("add a route to {}", self.prefix);
                return Err(Problem::windows(FailureCode::Other, &doing, &error));
            }
        }
        Ok(Step::Changed(format!("added{remark}")))
    }

    /// A boot takes it, others may need it, and it leads where the default route leads.
    fn made(&self, _: bool) -> Option<Made> {
        None
    }
}

enum Agent {
    None,
    TooOld,
    Ran,
}

/// Has Amazon's own agent add its routes, where it is there.
async fn ec2_launch<H: Host>(host: &mut Session<H>) -> Result<Agent> {
    let version = match host
        .ask(FileVersion {
            path: EC2_LAUNCH.into(),
        })
        .await
    {
        Ok(version) => version,
        Err(_) => return Ok(Agent::None),
    };
    // By parts: as texts 2.0.99 is the newer one.
    if version[..3] < EC2_LAUNCH_MIN[..] {
        return Ok(Agent::TooOld);
    }
    let program = ProgramRun {
        path: EC2_LAUNCH.into(),
        arguments: vec![
            "run-task".into(),
            "add-routes".into(),
            "--persistent".into(),
        ],
        limit_ms: EC2_LAUNCH_MS,
    };
    // Its exit code is no evidence; the routes are.
    let _ = host.ask(program).await;
    Ok(Agent::Ran)
}
