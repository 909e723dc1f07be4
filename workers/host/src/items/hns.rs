//! Requests to the Host Networking Service. The HRESULT comes first: a service that does not answer is no proof that a
//! network is not there (kubernetes#139519).

use dormer_profile::answer::FailureCode;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    ops::{HnsCall, Host, ServiceStart, ServiceState, WinError},
    paths::same,
    problem::{Problem, Result},
    progress::Run,
    services,
};

/// Time in which a service without an answer is asked again, in milliseconds.
const RETRY_MS: u64 = 30_000;
/// Longest start of `hns`.
const START_MS: u64 = 60_000;
/// RPC: unavailable, call failed, failed and not executed; the service (or a dependency) is not started; the manager is
/// stopping. None of these answers says anything about networks.
const NOT_NOW: [u32; 5] = [1722, 1726, 1727, 1062, 0x803b_0020];
/// No vmcompute.dll, or one without HNSCall: the feature Containers is not there.
const NOT_IN_WINDOWS: [u32; 2] = [126, 127];

pub(crate) const NO_NETWORK: u32 = 0x803b_0001;
pub(crate) const NO_ENDPOINT: u32 = 0x803b_0002;
pub(crate) const NETWORK_EXISTS: u32 = 0x803b_0010;
pub(crate) const ATTACHED_ALREADY: u32 = 0x803b_0014;

/// A network in HNS's answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Network {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, rename = "Type")]
    pub(crate) kind: String,
    #[serde(default, rename = "ManagementIP")]
    pub(crate) management_ip: String,
    #[serde(default)]
    pub(crate) subnets: Option<Vec<Subnet>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Subnet {
    #[serde(default)]
    pub(crate) address_prefix: String,
}

impl Network {
    pub(crate) fn subnet(&self) -> &str {
        let first = self.subnets.as_ref().and_then(|all| all.first());
        first.map_or("", |subnet| &subnet.address_prefix)
    }
}

/// An endpoint in HNS's answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Endpoint {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, rename = "IPAddress")]
    pub(crate) ip_address: String,
    #[serde(default)]
    pub(crate) virtual_network: String,
    /// 1 created, 2 attached, 3 attached and shared, 4 detached, 5 degraded, 6 destroyed (hcsshim hnsendpoint.go).
    #[serde(default)]
    pub(crate) state: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Response {
    #[serde(default)]
    success: bool,
    #[serde(default)]
    error: String,
    #[serde(default)]
    output: Option<Value>,
}

/// One request; the number if HNS refused, so that a caller may know better.
pub(crate) async fn call<H: Host>(
    run: &mut Run<H>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<std::result::Result<Value, WinError>> {
    let wait = run.host.wait("hns_answers", RETRY_MS).await?;
    loop {
        let call = HnsCall {
            method: method.into(),
            path: path.into(),
            body: body.into(),
        };
        let error = match run.host.ask(call).await {
            Ok(response) => return read(method, path, &response),
            Err(error) => error,
        };
        if NOT_IN_WINDOWS.contains(&error.number()) {
            let said = format!(
                "Windows has no host networking service ({error}): is the feature Containers enabled?"
            );
            return Err(Problem::new(FailureCode::HnsMissing, said));
        }
        if !NOT_NOW.contains(&error.number()) {
            return Ok(Err(error));
        }
        if !run.host.again(&wait, 1_000).await? {
            return Err(failed(method, path, &error));
        }
    }
}

fn read(method: &str, path: &str, response: &str) -> Result<std::result::Result<Value, WinError>> {
    let broken =
        |why: String| Problem::new(FailureCode::HnsFailed, format!("{method} {path}: {why}"));
    // Success without a response is an answer that got lost, never an empty list.
    let response: Response =
        serde_json::from_str(response).map_err(|error| broken(error.to_string()))?;
    if !response.success {
        return Err(broken(response.error));
    }
    Ok(Ok(response.output.unwrap_or(Value::Null)))
}

pub(crate) fn failed(method: &str, path: &str, error: &WinError) -> Problem {
    Problem::windows(FailureCode::HnsFailed, &format!("{method} {path}"), error)
}

async fn all<H: Host, T: serde::de::DeserializeOwned>(
    run: &mut Run<H>,
    path: &str,
) -> Result<Vec<T>> {
    let output = call(run, "GET", path, "").await?;
    let output = output.map_err(|error| failed("GET", path, &error))?;
    if output.is_null() {
        return Ok(Vec::new());
    }
    serde_json::from_value(output)
        .map_err(|error| Problem::new(FailureCode::HnsFailed, format!("GET {path}: {error}")))
}

/// The network of a name, looked up each time: an id of before may be another network's.
pub(crate) async fn network<H: Host>(run: &mut Run<H>, name: &str) -> Result<Option<Network>> {
    let all: Vec<Network> = all(run, "/networks").await?;
    Ok(all.into_iter().find(|network| same(&network.name, name)))
}

pub(crate) async fn endpoint<H: Host>(run: &mut Run<H>, name: &str) -> Result<Option<Endpoint>> {
    let all: Vec<Endpoint> = all(run, "/endpoints").await?;
    Ok(all.into_iter().find(|endpoint| same(&endpoint.name, name)))
}

/// Whether a plan finds the service stopped: Windows starts it on demand, and until then it answers nothing about networks.
pub(crate) async fn rests<H: Host>(run: &mut Run<H>) -> Result<bool> {
    if run.apply {
        return Ok(false);
    }
    let status = services::status(&mut run.host, "hns").await?;
    Ok(status.is_some_and(|status| status.state != ServiceState::Running))
}

/// Whether the service is there; one that is stopped (it starts on demand, and on Server 2019 does not after the boot:
/// K2s#593) is started first, where that is allowed.
pub(crate) async fn ready<H: Host>(run: &mut Run<H>) -> Result<bool> {
    let Some(status) = services::status(&mut run.host, "hns").await? else {
        return Ok(false);
    };
    if status.state == ServiceState::Running {
        return Ok(true);
    }
    if !run.apply {
        return Ok(false);
    }
    match run.host.ask(ServiceStart { name: "hns".into() }).await {
        Ok(()) => {}
        Err(error) if error.number() == 1056 => {}
        Err(error) => {
            return Err(Problem::windows(
                FailureCode::HnsFailed,
                "start the service hns",
                &error,
            ));
        }
    }
    services::until_running(run, "hns", START_MS)
        .await
        .map_err(|problem| Problem {
            code: FailureCode::HnsFailed,
            ..problem
        })?;
    Ok(true)
}

/// Deletes a network or an endpoint; one that is gone is well.
pub(crate) async fn delete<H: Host>(run: &mut Run<H>, path: &str) -> Result<()> {
    match call(run, "DELETE", path, "").await? {
        Ok(_) => Ok(()),
        Err(error) if error.is_any(&[NO_NETWORK, NO_ENDPOINT]) => Ok(()),
        Err(error) => Err(failed("DELETE", path, &error)),
    }
}
